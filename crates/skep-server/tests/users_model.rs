//! Random users and commands beside a naive model of the rules: what `ACL DRYRUN` decides is what happens, over RESP, in a
//! transaction and over the native protocol.
//!
//! `SKEP_LONG` multiplies the users, and `SKEP_SEED` is the seed.

mod support;

use std::collections::BTreeMap;
use std::io::Read;

use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use skep_core::operation::{Operation, PutCondition, Request};
use skep_wire::native::WireError;
use support::{Native, Resp, command, seeds, server};

/// Commands that do no harm, each with its keys and what it does to them: `r`, `w`, both, or nothing.
const COMMANDS: &[(&str, &[(usize, &str)])] = &[
    ("GET a1", &[(1, "r")]),
    ("SET b1 1", &[(1, "w")]),
    ("SET ab 1 GET", &[(1, "rw")]),
    ("SET ab 1 IFEQ 1", &[(1, "rw")]),
    ("DEL ab b2", &[(1, "w"), (2, "w")]),
    ("EXISTS ba", &[(1, "")]),
    ("MGET a1 b1 ab", &[(1, "r"), (2, "r"), (3, "r")]),
    ("MSET a1 1 b1 2", &[(1, "w"), (3, "w")]),
    ("MSETEX 2 a1 1 b1 2 EX 10", &[(2, "w"), (4, "w")]),
    ("INCRBY ab 1", &[(1, "rw")]),
    ("STRLEN a1", &[(1, "")]),
    ("RENAME a1 b9", &[(1, "rw"), (2, "w")]),
    ("COPY b1 a9", &[(1, "r"), (2, "w")]),
    ("BITOP AND ab a1 b1", &[(2, "w"), (3, "r"), (4, "r")]),
    ("BITFIELD ab GET u8 0", &[(1, "r")]),
    ("BITFIELD ab SET u8 0 1", &[(1, "rw")]),
    ("TTL b1", &[(1, "r")]),
    ("TYPE b1", &[(1, "")]),
    ("OBJECT ENCODING a1", &[(2, "")]),
    ("MEMORY USAGE ab", &[(2, "")]),
    ("DBSIZE", &[]),
    ("PING", &[]),
    ("COMMAND COUNT", &[]),
    ("CONFIG GET save", &[]),
    ("CONFIG HELP", &[]),
    ("CLIENT ID", &[]),
    ("SLOWLOG LEN", &[]),
    ("ACL WHOAMI", &[]),
    ("SKEP.UPDATE ab add i64 1 INIT 0", &[(1, "rw")]),
    ("SKEP.GETV ab i64", &[(1, "r")]),
];

const CATEGORIES: [&str; 10] =
    ["all", "read", "write", "keyspace", "string", "fast", "slow", "admin", "dangerous", "connection"];

const PATTERNS: [&str; 9] = ["a*", "*b", "?1", "[a-b]1", "b\\1", "ab", "*", "x", "[^a]*"];

/// The rules of a user, in the order in which they were given.
#[derive(Debug, Default)]
struct Model {
    /// Commands, subcommands and categories, allowed or denied.
    commands: Vec<(bool, String)>,
    /// Patterns with what they allow, and true if all keys are allowed.
    keys: (Vec<(String, String)>, bool),
}

/// The commands and subcommands of each category, as the server tells them.
type Categories = BTreeMap<String, Vec<String>>;

impl Model {
    /// Returns true if the last rule that concerns a command allows it.
    fn allows_command(&self, words: &[&str], categories: &Categories) -> bool {
        let name = words[0].to_lowercase();
        let subcommand = words.get(1).map(|word| format!("{name}|{}", word.to_lowercase()));
        let is_container = categories["all"].iter().any(|other| other.starts_with(&format!("{name}|")));
        let full = subcommand.filter(|_| is_container).unwrap_or_else(|| name.clone());
        let concerns = |rule: &str| match rule.strip_prefix('@') {
            Some("all") => true,
            Some(category) => categories[category].iter().any(|other| *other == full || *other == name),
            None => rule == full || rule == name,
        };
        self.commands.iter().rev().find(|(_, rule)| concerns(rule)).is_some_and(|(is_allowed, _)| *is_allowed)
    }

    /// Returns true if one pattern allows all that is done to a key.
    fn allows_key(&self, key: &str, needed: &str) -> bool {
        let (patterns, is_all) = &self.keys;
        *is_all
            || patterns.iter().any(|(allowed, pattern)| {
                needed.chars().all(|access| allowed.contains(access)) && matches(pattern.as_bytes(), key.as_bytes())
            })
    }

    /// Adds a pattern: what two rules with the same one allow is united.
    fn add_pattern(&mut self, allowed: &str, pattern: &str) {
        match self.keys.0.iter_mut().find(|(_, other)| other == pattern) {
            Some((before, _)) => before.push_str(allowed),
            None => self.keys.0.push((allowed.to_owned(), pattern.to_owned())),
        }
    }
}

/// Returns true if a key matches a pattern, by definition.
fn matches(pattern: &[u8], key: &[u8]) -> bool {
    match (pattern, key) {
        ([], key) => key.is_empty(),
        ([b'*', rest @ ..], key) => (0..=key.len()).any(|taken| matches(rest, &key[taken..])),
        (_, []) => false,
        ([b'?', rest @ ..], [_, key @ ..]) => matches(rest, key),
        ([b'\\', expected, rest @ ..], [character, key @ ..]) => expected == character && matches(rest, key),
        ([b'[', class @ ..], [character, key @ ..]) => {
            let end = class.iter().position(|byte| *byte == b']').expect("the patterns here have whole classes");
            let (is_inverted, members) = match &class[..end] {
                [b'^', members @ ..] => (true, members),
                members => (false, members),
            };
            let is_member = match members {
                [first, b'-', last] => (first..=last).contains(&character),
                members => members.contains(character),
            };
            is_member != is_inverted && matches(&class[end + 1..], key)
        }
        ([expected, rest @ ..], [character, key @ ..]) => expected == character && matches(rest, key),
    }
}

/// Reads one reply, and returns its first line.
fn reply(resp: &mut Resp) -> String {
    let line = resp.line();
    let number = || line[1..].trim().parse::<i64>().unwrap();
    match line.as_bytes()[0] {
        b'$' if number() >= 0 => {
            let mut rest = vec![0; number() as usize + 2];
            resp.0.read_exact(&mut rest).unwrap();
            String::from_utf8_lossy(&rest).into_owned()
        }
        b'*' => (0..number().max(0)).map(|_| reply(resp)).collect::<String>(),
        _ => line,
    }
}

fn ask(resp: &mut Resp, words: &[&str]) -> String {
    let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
    resp.send(command(&words));
    reply(resp)
}

fn categories(admin: &mut Resp) -> Categories {
    let mut categories = Categories::new();
    for category in CATEGORIES.into_iter().filter(|category| *category != "all") {
        let names = ask(admin, &["ACL", "CAT", category]);
        categories.insert(category.to_owned(), names.split_whitespace().map(str::to_owned).collect());
    }
    let mut all: Vec<String> = categories.values().flatten().cloned().collect();
    all.sort();
    all.dedup();
    categories.insert("all".to_owned(), all);
    categories
}

/// Returns random rules, and the model of a user that has them.
fn random_rules(random: &mut Xoshiro256PlusPlus, all: &[String]) -> (Vec<String>, Model) {
    let (mut rules, mut model) = (vec!["reset".to_owned(), "on".to_owned(), ">pw".to_owned()], Model::default());
    for _ in 0..random.random_range(0..8) {
        let is_allowed = random.random_bool(0.7);
        let name = match random.random_bool(0.4) {
            true => format!("@{}", CATEGORIES.choose(random).unwrap()),
            false => all.choose(random).unwrap().clone(),
        };
        rules.push(format!("{}{name}", if is_allowed { '+' } else { '-' }));
        model.commands.push((is_allowed, name));
    }
    for _ in 0..random.random_range(0..4) {
        let pattern = *PATTERNS.choose(random).unwrap();
        let (sign, allowed) = *[("~", "rw"), ("%R~", "r"), ("%W~", "w"), ("%RW~", "rw")].choose(random).unwrap();
        if sign == "~" && pattern == "*" {
            model.keys = (Vec::new(), true);
            rules.push("allkeys".to_owned());
            break;
        }
        rules.push(format!("{sign}{pattern}"));
        model.add_pattern(allowed, pattern);
    }
    (rules, model)
}

/// Operations of the native protocol, each with the command that does the same.
fn operations() -> Vec<(&'static str, Request<'static>)> {
    let put = |condition| Operation::Put { value: b"1", condition };
    let operation = |key: &'static str, operation| Request { key: key.as_bytes(), operation };
    vec![
        ("GET a1", operation("a1", Operation::Get)),
        ("EXISTS b1", operation("b1", Operation::Contains)),
        ("SET ab 1", operation("ab", put(PutCondition::Always))),
        ("SETNX ba 1", operation("ba", put(PutCondition::IfAbsent))),
        ("DEL b2", operation("b2", Operation::Delete)),
        ("INCRBY a2 1", operation("a2", Operation::AddDecimal { delta: 1 })),
    ]
}

#[test]
fn what_is_decided_is_what_happens() {
    let long: usize = std::env::var("SKEP_LONG").map_or(1, |factor| factor.parse().expect("SKEP_LONG is a number"));
    for seed in seeds() {
        println!("SKEP_SEED={seed}");
        let server = server(2, 32 << 20);
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut admin = Resp::connect(&server);
        let categories = categories(&mut admin);
        for round in 0..40 * long {
            let (rules, model) = random_rules(&mut random, &categories["all"]);
            let set: Vec<&str> = ["ACL", "SETUSER", "u"].into_iter().chain(rules.iter().map(String::as_str)).collect();
            assert_eq!(ask(&mut admin, &set), "+OK\r\n", "{rules:?}");
            let mut user = Resp::connect(&server);
            assert_eq!(ask(&mut user, &["AUTH", "u", "pw"]), "+OK\r\n");
            for (line, keys) in COMMANDS {
                let words: Vec<&str> = line.split(' ').collect();
                let allows_keys = keys.iter().all(|(index, needed)| model.allows_key(words[*index], needed));
                let allows_command = model.allows_command(&words, &categories);
                let expected = allows_command && allows_keys;
                let at = format!("seed {seed}, round {round}: {line} of {rules:?}");
                let told = ask(&mut admin, &[&["ACL", "DRYRUN", "u"], &words[..]].concat());
                assert_eq!(told == "+OK\r\n", expected, "{at}: {told}");
                assert_eq!(told.contains("permissions to run"), !allows_command, "{at}: {told}");
                let done = ask(&mut user, &words);
                assert_eq!(done.starts_with("-NOPERM"), !expected, "{at}: {done}");
                // The rule of the user is that for MULTI and EXEC too.
                if model.allows_command(&["MULTI"], &categories) && model.allows_command(&["EXEC"], &categories) {
                    assert_eq!(ask(&mut user, &["MULTI"]), "+OK\r\n", "{at}");
                    let queued = ask(&mut user, &words);
                    assert_eq!(queued.starts_with("-NOPERM"), !expected, "{at}: {queued}");
                    let ended = ask(&mut user, &["EXEC"]);
                    assert_eq!(ended.starts_with("-EXECABORT"), !queued.starts_with("+QUEUED"), "{at}: {ended}");
                }
            }
            let operations = operations();
            let requests: Vec<Request<'_>> = operations.iter().map(|(_, request)| *request).collect();
            Native::log_in(&server, "u", b"pw").execute(1, &requests, |index, response| {
                let words: Vec<&str> = operations[index].0.split(' ').collect();
                let told = ask(&mut admin, &[&["ACL", "DRYRUN", "u"], &words[..]].concat());
                let is_denied = response == Err(WireError::NotPermitted);
                assert_eq!(told != "+OK\r\n", is_denied, "seed {seed}, round {round}: {words:?} of {rules:?}");
            });
        }
        server.stop();
    }
}
