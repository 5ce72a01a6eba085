//! Random text and meta commands, with valid and invalid arguments. Those in which Skep differs from memcached, as
//! `docs/memcached.md` lists them, are left out.

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::wire::CAS;

const KEYS: [&str; 5] = ["a", "b", "c", "d:1", "d:2"];
/// The same keys as base64.
const BASE64_KEYS: [&str; 5] = ["YQ==", "Yg==", "Yw==", "ZDox", "ZDoy"];
/// No sum of these is 2⁶³ or more: of such a number, memcached reads bytes after its end.
const NUMBERS: [&str; 7] = ["0", "1", "5", "100", "4294967296", "18446744073709551616", "x"];
/// Never, at once (twice), in the future (twice), at once as a number without its sign (twice), never.
const EXPTIMES: [&str; 9] = ["0", "0", "-1", "2592001", "100", "1999999999", "4294967295", "2147483648", "4294967296"];
const JUNK: [&str; 16] = [
    "get",
    "gets",
    "gat",
    "foo bar",
    "set a 0 0",
    "set a x 0 1",
    "set a 0 0 -1",
    "incr a",
    "incr a 1 2 3",
    "touch a",
    "touch a x",
    "delete a 1",
    "mg",
    "mg a v v",
    "mg a ~",
    "ms a x",
];

/// A source of commands.
pub(crate) struct Commands {
    random: Xoshiro256PlusPlus,
    /// The first command of the next pipeline, if it is chosen.
    first: Option<Vec<u8>>,
    /// No expiry has changed since the last `gets` of an earlier pipeline, and since the last one of this pipeline: a new
    /// expiry gives an item another number in Skep.
    has_number: bool,
    has_new_number: Option<bool>,
}

impl Commands {
    /// Returns the source of this seed.
    pub(crate) fn new(seed: u64) -> Commands {
        Commands {
            random: Xoshiro256PlusPlus::seed_from_u64(seed),
            first: None,
            has_number: false,
            has_new_number: None,
        }
    }

    /// Returns a number below `end`.
    fn below(&mut self, end: u64) -> u64 {
        self.random.random_range(0..end)
    }

    /// Returns commands that are sent together, at most this number. A command on a number is the first one: while a reply is
    /// not sent, memcached does not change its item in place, and a number that becomes shorter loses its blanks.
    pub(crate) fn pipeline(&mut self, count_max: u64) -> Vec<Vec<u8>> {
        let count = 1 + self.below(count_max) as usize;
        if let Some(has_number) = self.has_new_number.take() {
            self.has_number = has_number;
        }
        let mut commands: Vec<Vec<u8>> = self.first.take().into_iter().collect();
        while commands.len() < count {
            let next = self.next();
            let is_on_number = [&b"incr"[..], b"decr", b"ma "].iter().any(|name| next.starts_with(name));
            if is_on_number && !commands.is_empty() {
                self.first = Some(next);
                break;
            }
            commands.push(next);
        }
        commands
    }

    fn chance(&mut self, part: u64) -> bool {
        self.below(part) == 0
    }

    fn choose<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len() as u64) as usize]
    }

    fn key(&mut self) -> String {
        if self.chance(20) { "k".repeat(250) } else { self.choose(&KEYS).to_owned() }
    }

    fn keys(&mut self) -> String {
        let count = 1 + self.below(5);
        (0..count).map(|_| format!(" {}", self.key())).collect()
    }

    /// Returns a key for a meta command, in either form, and the flag of the form.
    fn key_and_form(&mut self) -> (&'static str, &'static str) {
        let index = self.below(KEYS.len() as u64) as usize;
        if self.chance(3) { (BASE64_KEYS[index], " b") } else { (KEYS[index], "") }
    }

    fn meta_key(&mut self) -> String {
        let (key, form) = self.key_and_form();
        format!("{key}{form}")
    }

    fn noreply(&mut self) -> &'static str {
        if self.chance(5) { " noreply" } else { "" }
    }

    fn value(&mut self) -> String {
        // Not a value of blanks alone: to find digits, memcached reads bytes after its end.
        let numbers = ["", "0", "7", "10", "99", "12 ", " 3", " abc", "- 1", "+5", "1000"];
        match self.below(8) {
            0 => "x".repeat(self.below(600) as usize),
            1 => "abc".to_owned(),
            _ => self.choose(&numbers).to_owned(),
        }
    }

    /// Returns the next command, with its value.
    fn next(&mut self) -> Vec<u8> {
        let (key, noreply) = (self.key(), self.noreply());
        let command = match self.below(40) {
            0..=5 => format!("get{}", self.keys()),
            6..=8 => format!("gets {key}"),
            9 => format!("gat {}{}", self.choose(&EXPTIMES), self.keys()),
            10..=16 => {
                let name = self.choose(&["set", "set", "add", "replace", "append", "prepend"]);
                let (flags, exptime, value) =
                    (self.choose(&["0", "5", "4294967295"]), self.choose(&EXPTIMES), self.value());
                format!("{name} {key} {flags} {exptime} {}{noreply}\r\n{value}", value.len())
            }
            17..=18 => {
                let (exptime, value) = (self.choose(&EXPTIMES), self.value());
                let number = if self.has_number { CAS } else { "1" };
                format!("cas {key} 0 {exptime} {} {number}{noreply}\r\n{value}", value.len())
            }
            19..=22 => {
                let name = self.choose(&["incr", "decr"]);
                format!("{name} {key} {}{noreply}", self.choose(&NUMBERS))
            }
            23..=24 => format!("delete {key}{noreply}"),
            25 => format!("touch {key} {}{noreply}", self.choose(&EXPTIMES)),
            26..=27 => format!("mg {}{}", self.meta_key(), self.flags("v t f h s k O N R q u")),
            28..=29 => format!("mg {}{}", self.meta_key(), self.flags("v t f h s k O T q u")),
            30..=32 => {
                let (flags, value) = (self.flags("k O T F M q"), self.value());
                let (name, form) = self.key_and_form();
                format!("ms {name} {}{form}{flags}\r\n{value}", value.len())
            }
            33..=34 => format!("md {}{}", self.meta_key(), self.flags("k O q I T")),
            35..=36 => format!("ma {}{}", self.meta_key(), self.flags("k O q v t N D J M")),
            37 => self.choose(&["mn", "verbosity 1", "version"]).to_owned(),
            38 if self.chance(8) => format!("flush_all{noreply}"),
            _ => self.choose(&JUNK).to_owned(),
        };
        let changes_expiry = ["gat ", "touch ", "mg "].iter().any(|name| command.starts_with(name));
        if command.starts_with("gets ") {
            self.has_new_number = Some(true);
        } else if changes_expiry {
            self.has_number = false;
            self.has_new_number = self.has_new_number.map(|_| false);
        }
        (command + "\r\n").into_bytes()
    }

    /// Returns some of these flags, in any order, with tokens.
    fn flags(&mut self, letters: &str) -> String {
        let mut chosen: Vec<&str> = letters.split(' ').filter(|_| self.chance(3)).collect();
        for index in (1..chosen.len()).rev() {
            chosen.swap(index, self.below(index as u64 + 1) as usize);
        }
        let flags = chosen.into_iter().map(|letter| {
            let token = match letter {
                "O" => "opaque",
                "T" | "N" => self.choose(&["0", "30", "100"]),
                // Not near these, because the seconds of the two servers do not begin at the same moment.
                "R" => self.choose(&["0", "60"]),
                "F" => self.choose(&["0", "5", "x"]),
                "M" => self.choose(&["E", "A", "P", "R", "S", "I", "D", "+", "-", "x"]),
                "D" => self.choose(&NUMBERS),
                "J" => self.choose(&["0", "13"]),
                _ => "",
            };
            format!(" {letter}{token}")
        });
        flags.collect()
    }
}
