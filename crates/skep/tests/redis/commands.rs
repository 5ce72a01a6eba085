//! Random commands that both Redis and Skep have, with valid and invalid arguments.

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::wire::Arguments;

const KEYS: [&str; 8] = ["a", "b", "c", "d", "e", "f:1", "f:2", "f:3"];
/// The key of long values.
const LONG_KEY: &str = "long";
/// Bits of the longest value.
const BITS_MAX: i64 = 8 << 20;
/// Arguments that most commands refuse.
const JUNK: [&str; 17] = [
    "x",
    "-1",
    "0",
    "1.5",
    "01",
    "+1",
    " 1",
    "99999999999999999999",
    "NX",
    "XX",
    "GET",
    "KEEPTTL",
    "PERSIST",
    "SAMPLES",
    "BIT",
    "SET",
    "#1",
];

/// A source of commands.
pub(crate) struct Commands {
    random: Xoshiro256PlusPlus,
    /// The times that were chosen so far. Each is another one, so that no two of a key are nearly the same.
    time_count: u64,
}

impl Commands {
    /// Returns the source of this seed.
    pub(crate) fn new(seed: u64) -> Commands {
        Commands { random: Xoshiro256PlusPlus::seed_from_u64(seed), time_count: 0 }
    }

    /// Returns a number below `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.random.random_range(0..end)
    }

    fn chance(&mut self, part: u64) -> bool {
        self.below(part) == 0
    }

    fn choose<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len() as u64) as usize]
    }

    fn any_case(&mut self, word: &str) -> String {
        if self.chance(4) { word.to_lowercase() } else { word.to_owned() }
    }

    /// Returns the next command.
    pub(crate) fn next(&mut self) -> Arguments {
        let mut arguments = match self.below(20) {
            0..=5 => self.whole_value(),
            6..=9 => self.part_of_value(),
            10..=13 => self.bits(),
            14..=15 => self.expiry(),
            16..=17 => self.keys(),
            18 => self.several(),
            _ => self.other(),
        };
        if self.chance(12) {
            self.spoil(&mut arguments);
        }
        arguments
    }

    /// Returns the next command, or the commands of a transaction.
    pub(crate) fn next_block(&mut self) -> Vec<Arguments> {
        if !self.chance(12) {
            return vec![self.next()];
        }
        let mut block = Vec::new();
        if self.chance(3) {
            block.push(vec!["WATCH".into(), self.key(), self.key()]);
        }
        if self.chance(3) {
            // A change of a watched key by the connection itself counts too. Some other commands count only in Skep.
            block.push(self.write());
        }
        block.push(vec![self.any_case("MULTI").into()]);
        for _ in 0..self.below(10) {
            // Wrong commands are rarer than others, because each lets the transaction be refused.
            let is_wrong = self.chance(20);
            block.push(if is_wrong { self.out_of_place() } else { self.next() });
        }
        block.push(vec![if self.chance(10) { "DISCARD" } else { "EXEC" }.into()]);
        block
    }

    fn out_of_place(&mut self) -> Arguments {
        let words: &[&[&str]] = &[&["MULTI"], &["UNWATCH"], &["NOSUCH"], &["GET"], &["EXEC", "x"], &["SELECT", "x"]];
        self.choose(words).iter().map(|word| word.as_bytes().to_vec()).collect()
    }

    /// Returns a command that changes a key if it succeeds, and whose reply tells if it does.
    pub(crate) fn write(&mut self) -> Arguments {
        let (key, value) = (self.key(), self.value());
        match self.below(10) {
            0 => vec!["SET".into(), key, value],
            1 => vec!["SET".into(), key, value, "NX".into()],
            2 => vec!["SETNX".into(), key, value],
            3 => vec!["DEL".into(), key, self.key()],
            4 => vec!["PERSIST".into(), key],
            5 => vec!["EXPIRE".into(), key, self.time(true, true).into()],
            6 => vec!["INCR".into(), key],
            7 => vec!["APPEND".into(), key, value],
            _ => self.several(),
        }
    }

    /// Returns a command of several keys.
    pub(crate) fn several(&mut self) -> Arguments {
        let (key, other) = (self.key(), self.key());
        match self.below(8) {
            0 => vec!["MSETNX".into(), key, self.value(), other, self.value()],
            1 => vec!["RENAME".into(), key, other],
            2 => vec!["RENAMENX".into(), key, other],
            3..=4 => {
                let mut arguments = vec!["COPY".into(), key, other];
                for _ in 0..self.below(3) {
                    match self.below(4) {
                        0 => arguments.extend(["DB".into(), self.choose(&["0", "1", "x", "0"]).into()]),
                        1 => arguments.push("NX".into()),
                        _ => arguments.push(self.any_case("REPLACE").into()),
                    }
                }
                arguments
            }
            5 => vec!["BITOP".into(), self.choose(&["NOT", "not", "AND"]).into(), key, other],
            _ => {
                let mut arguments = vec!["BITOP".into(), self.choose(&["AND", "OR", "XOR", "or", "NOR"]).into(), key];
                (0..=self.below(4)).for_each(|_| arguments.push(self.key()));
                arguments
            }
        }
    }

    /// Adds, drops or replaces an argument.
    fn spoil(&mut self, arguments: &mut Arguments) {
        let index = self.below(arguments.len() as u64) as usize;
        let junk = self.choose(&JUNK).as_bytes().to_vec();
        match self.below(3) {
            // The argument after the key must not become the key: it may be empty.
            0 if index > 1 || index == 1 && arguments.len() == 2 => _ = arguments.remove(index),
            1 if index > 1 => arguments[index] = junk,
            _ => arguments.push(junk),
        }
    }

    pub(crate) fn key(&mut self) -> Vec<u8> {
        self.choose(&KEYS).into()
    }

    /// Returns a value: a number, a fraction, a text or bytes.
    fn value(&mut self) -> Vec<u8> {
        match self.below(8) {
            0..=1 => self.number().into_bytes(),
            2 => self.fraction().into_bytes(),
            3 => self.choose(&["", "abc", "hello world", "00", "-0", "1 ", "\r\n", "\0"]).into(),
            4 => vec![b'x'; self.below(120) as usize],
            5 => vec![self.choose(&[0, 0xff]); self.below(20) as usize],
            _ => {
                let size = self.below(24);
                (0..size).map(|_| self.below(256) as u8).collect()
            }
        }
    }

    fn number(&mut self) -> String {
        let shift = self.below(64);
        match self.below(10) {
            0 => self.choose(&["9223372036854775807", "-9223372036854775808", "9223372036854775806"]).to_owned(),
            1 => "0".to_owned(),
            _ => (self.random.random::<u64>().cast_signed() >> shift).to_string(),
        }
    }

    /// Returns a decimal fraction, as text that is a number or nearly one.
    pub(crate) fn fraction(&mut self) -> String {
        let sign = self.choose(&["", "", "-", "+"]);
        let mantissa: String = match self.below(6) {
            0 => self.choose(&["inf", "-inf", "nan", "0x1.8p3", "0x", ".", "1e", "Infinity", "0x.1", "1e4932"]).into(),
            1 => format!("{}.5", self.random.random::<u64>() >> self.random.random_range(0..64)),
            2 => format!(".{}", self.random.random::<u32>()),
            3 => format!("{}", self.random.random::<u128>() >> self.random.random_range(0..128)),
            4 => format!("{}", self.random.random::<u32>() as f32 / 1e6),
            _ => format!("{}.{:017}", self.below(1000), self.random.random::<u64>() >> 8),
        };
        let exponent = match self.below(8) {
            0 => format!("e{}", self.random.random_range(-30..30)),
            1 => format!("E{}", self.random.random_range(-5000..5000)),
            2 => format!("e-{}", self.random.random_range(15..20)),
            _ => String::new(),
        };
        format!("{sign}{mantissa}{exponent}")
    }

    fn position(&mut self) -> String {
        match self.below(12) {
            0 => self.choose(&["9223372036854775807", "-9223372036854775808", "9223372036854775808"]).to_owned(),
            1 => self.random.random_range(-100_000..100_000).to_string(),
            _ => self.random.random_range(-40..40).to_string(),
        }
    }

    /// Returns a time: seconds or milliseconds, from now or from 1970 on.
    fn time(&mut self, in_seconds: bool, from_now: bool) -> String {
        self.time_count += 1;
        let seconds = 1000 + 100 * (self.time_count * 7919 % 100_003) + if from_now { 0 } else { 4_000_000_000 };
        match self.below(8) {
            0 => self.choose(&["0", "-1", "-9223372036854775808"]).to_owned(),
            1 if in_seconds || from_now => "9223372036854775807".to_owned(),
            2 => self.choose(&["x", "", "1.5", "9223372036854775808"]).to_owned(),
            _ if in_seconds => seconds.to_string(),
            _ => (seconds * 1000).to_string(),
        }
    }

    fn time_option(&mut self) -> [Vec<u8>; 2] {
        let (word, in_seconds, from_now) =
            self.choose(&[("EX", true, true), ("PX", false, true), ("EXAT", true, false), ("PXAT", false, false)]);
        [self.any_case(word).into(), self.time(in_seconds, from_now).into()]
    }

    fn whole_value(&mut self) -> Arguments {
        let (key, value) = (self.key(), self.value());
        match self.below(20) {
            0..=4 => {
                let mut arguments = vec![self.any_case("SET").into(), key, value];
                for _ in 0..self.below(4) {
                    match self.below(5) {
                        0..=2 => arguments.push(self.choose(&["NX", "XX", "GET", "get"]).into()),
                        3 => arguments.push(self.any_case("KEEPTTL").into()),
                        _ => arguments.extend(self.time_option()),
                    }
                }
                arguments
            }
            5..=8 => vec![self.any_case("GET").into(), key],
            9 => vec!["GETSET".into(), key, value],
            10 => vec!["GETDEL".into(), key],
            11 => {
                let mut arguments = vec!["GETEX".into(), key];
                match self.below(4) {
                    0 => arguments.push("PERSIST".into()),
                    1 => {}
                    _ => arguments.extend(self.time_option()),
                }
                arguments
            }
            12 => {
                let (word, in_seconds) = self.choose(&[("SETEX", true), ("PSETEX", false)]);
                vec![word.into(), key, self.time(in_seconds, true).into(), value]
            }
            13 => vec!["SETNX".into(), key, value],
            14 => vec!["MSET".into(), key, value, self.key(), self.value()],
            15 => vec!["MGET".into(), key, self.key(), self.key()],
            16 => vec![self.choose(&["INCR", "DECR"]).into(), key],
            17 => vec![self.choose(&["INCRBY", "DECRBY"]).into(), key, self.number().into()],
            _ => vec!["INCRBYFLOAT".into(), key, self.fraction().into()],
        }
    }

    fn part_of_value(&mut self) -> Arguments {
        let key = self.key();
        match self.below(10) {
            0..=1 => vec![self.any_case("STRLEN").into(), key],
            2..=3 => vec!["APPEND".into(), key, self.value()],
            4..=6 => {
                let name = self.choose(&["GETRANGE", "getrange", "SUBSTR"]);
                vec![name.into(), key, self.position().into(), self.position().into()]
            }
            7..=8 => vec!["SETRANGE".into(), key, self.random.random_range(-2..60).to_string().into(), self.value()],
            _ if self.chance(10) => {
                let offset = self.choose(&["1048570", "1048576", "1048577", "9223372036854775807", "4294967296"]);
                vec!["SETRANGE".into(), LONG_KEY.into(), offset.into(), self.value()]
            }
            _ if self.chance(4) => vec!["APPEND".into(), LONG_KEY.into(), self.value()],
            _ => vec!["DEL".into(), LONG_KEY.into()],
        }
    }

    fn bit(&mut self) -> String {
        match self.below(14) {
            0 => (BITS_MAX + self.random.random_range(0..3)).to_string(),
            1 => self.choose(&["-1", "x", "", "9223372036854775807", "99999999999999999999"]).to_owned(),
            _ => self.below(200).to_string(),
        }
    }

    fn bits(&mut self) -> Arguments {
        let key = self.key();
        match self.below(10) {
            0..=1 => vec![self.any_case("GETBIT").into(), key, self.bit().into()],
            2..=3 => vec!["SETBIT".into(), key, self.bit().into(), self.choose(&["0", "1", "1", "2", "x"]).into()],
            4..=5 => {
                let mut arguments = vec!["BITCOUNT".into(), key];
                self.bit_range(&mut arguments, true);
                arguments
            }
            6..=7 => {
                let bit = self.choose(&["0", "1", "0", "1", "2", "x"]);
                let mut arguments = vec!["BITPOS".into(), key, bit.into()];
                self.bit_range(&mut arguments, false);
                arguments
            }
            _ => self.fields(key),
        }
    }

    fn bit_range(&mut self, arguments: &mut Arguments, has_end: bool) {
        if self.chance(3) {
            return;
        }
        arguments.push(self.position().into());
        if has_end || self.chance(2) {
            arguments.push(self.position().into());
            if self.chance(2) {
                arguments.push(self.choose(&["BYTE", "BIT", "bit", "BITS"]).into());
            }
        }
    }

    fn fields(&mut self, key: Vec<u8>) -> Arguments {
        let name = self.choose(&["BITFIELD", "BITFIELD", "BITFIELD", "BITFIELD_RO"]);
        let mut arguments = vec![name.into(), key];
        for _ in 0..self.below(5) {
            let kind = self.below(8);
            if kind == 0 {
                arguments.extend(["OVERFLOW".into(), self.choose(&["WRAP", "SAT", "FAIL", "sat", "NO"]).into()]);
                continue;
            }
            let is_get = kind < 4;
            let word = if is_get { "GET" } else { self.choose(&["SET", "INCRBY"]) };
            let bits = match self.below(20) {
                0 => self.choose(&["u64", "i65", "i0", "x8", "8", "u"]).to_owned(),
                _ => format!("{}{}", self.choose(&["i", "u"]), 1 + self.below(63)),
            };
            let offset = match self.below(4) {
                0 => format!("#{}", self.below(10)),
                _ => self.bit(),
            };
            arguments.extend([word.into(), bits.into(), offset.into()]);
            if !is_get {
                let number = self.number();
                // Numbers near the least one overflow in Redis, see the differences.
                let is_least = word == "SET" && number.len() == 20;
                arguments.push(if is_least { number[..19].into() } else { number.into() });
            }
        }
        arguments
    }

    fn expiry(&mut self) -> Arguments {
        let key = self.key();
        let (name, in_seconds, from_now) = match self.below(12) {
            0 => ("EXPIRE", true, true),
            1 => ("PEXPIRE", false, true),
            2 => ("EXPIREAT", true, false),
            3 => ("PEXPIREAT", false, false),
            4 => return vec!["PERSIST".into(), key],
            _ => {
                let name = self.choose(&["TTL", "PTTL", "EXPIRETIME", "PEXPIRETIME"]);
                return vec![self.any_case(name).into(), key];
            }
        };
        let mut arguments = vec![name.into(), key, self.time(in_seconds, from_now).into()];
        for _ in 0..self.below(3) {
            arguments.push(self.choose(&["NX", "XX", "GT", "LT", "lt", "ZZ"]).into());
        }
        arguments
    }

    fn keys(&mut self) -> Arguments {
        let key = self.key();
        match self.below(10) {
            0..=1 => vec!["DEL".into(), key, self.key()],
            2 => vec!["UNLINK".into(), key],
            3 => vec![self.any_case("EXISTS").into(), key.clone(), self.key(), key],
            4 => vec!["TOUCH".into(), key, self.key()],
            5 => vec!["TYPE".into(), key],
            6 => {
                let name = self.choose(&["ENCODING", "REFCOUNT", "IDLETIME", "FREQ", "encoding", "NOSUCH"]);
                vec!["OBJECT".into(), name.into(), key]
            }
            7 => vec!["MEMORY".into(), "USAGE".into(), key],
            8 => vec!["DUMP".into(), key],
            _ => self.restore(key),
        }
    }

    fn restore(&mut self, key: Vec<u8>) -> Arguments {
        // Replies of Redis to DUMP: a number, a text, a compressed text, and damaged ones.
        let payloads: [&[u8]; 5] = [
            b"\x00\x05hello\n\x00cr\xdfve4 \n",
            b"\x00\xc3\x0b<\x03abca\xe0-\x02\x01bc\n\x00o`)\xe4\xaf\xd7d\xac",
            b"\x00\x05hallo\n\x00cr\xdfve4 \n",
            b"hello",
            b"",
        ];
        let payload = self.choose(&payloads);
        let time = if self.chance(2) {
            // In Redis, a time near the largest number overflows, see the differences.
            Some(self.time(false, true)).filter(|time| time.len() < 19).unwrap_or_else(|| "1000000".to_owned())
        } else {
            self.choose(&["0", "0", "0", "-1", "x"]).into()
        };
        let mut arguments = vec!["RESTORE".into(), key, time.into(), payload.into()];
        match self.below(8) {
            0 => {}
            1 => arguments.extend(["IDLETIME".into(), self.position().into()]),
            2 => arguments.extend(["FREQ".into(), self.position().into()]),
            _ => arguments.push(self.any_case("REPLACE").into()),
        }
        arguments
    }

    fn other(&mut self) -> Arguments {
        let words: &[&[&str]] = &[
            &["PING"],
            &["PING", "a"],
            &["ECHO", "a b"],
            &["DBSIZE"],
            &["TIME"],
            &["NOSUCH", "a", "b"],
            &["MEMORY", "NOSUCH"],
            &["OBJECT", "FREQ"],
            &["DEL"],
            &["SETNX", "a"],
            &["GETRANGE", "a", "1"],
            &["SELECT", "0"],
            &["SELECT", "1"],
            &["EXEC"],
            &["DISCARD"],
            &["UNWATCH"],
            &["SELECT", "x"],
        ];
        self.choose(words).iter().map(|word| word.as_bytes().to_vec()).collect()
    }
}
