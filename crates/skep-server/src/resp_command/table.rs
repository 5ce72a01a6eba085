//! The table of commands: the description that `COMMAND` returns, and the number of arguments that is checked.

use crate::command_metrics::COMMAND_COUNT;

/// A command as `COMMAND` and `COMMAND DOCS` describe it.
pub(super) struct CommandInfo {
    pub(super) name: &'static str,
    /// Arguments with the name; negative: at least this number.
    pub(super) arity: i64,
    pub(super) flags: &'static [&'static str],
    /// Index of the first key, of the last (negative: from the end), and the step between keys; 0: no keys.
    pub(super) keys: (i64, i64, i64),
    /// What the command does to the values of its keys, as Redis has it: `r`, it reads them, `w`, it writes them, or
    /// nothing. After a blank: what it does to those of all keys but the first.
    pub(super) access: &'static str,
    pub(super) group: &'static str,
    pub(super) since: &'static str,
    pub(super) summary: &'static str,
    /// It is for spaces whose keys have an order.
    pub(super) needs_order: bool,
    /// It is for the cache space too, which may forget keys and does not list them.
    pub(super) is_for_caches: bool,
}

/// Declares [`CommandName`] and [`COMMANDS`] together, so that a name is the index of its description.
macro_rules! commands {
    ($($variant:ident $name:literal $arity:literal [$($flag:literal)*] $keys:tt $access:literal $group:literal $since:literal $summary:literal)*) => {
        /// A command.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum CommandName { $($variant),* }

        /// All commands, in the order of [`CommandName`].
        pub(super) const COMMANDS: &[CommandInfo] = &[$(CommandInfo {
            name: $name, arity: $arity, flags: &[$($flag),*], keys: $keys, access: $access, group: $group, since: $since, summary: $summary,
            needs_order: matches!(
                CommandName::$variant,
                CommandName::SkepScan | CommandName::SkepPrefix | CommandName::SkepCount | CommandName::SkepFloor
            ),
            is_for_caches: !matches!(
                CommandName::$variant,
                CommandName::Scan | CommandName::Keys | CommandName::RandomKey | CommandName::Rename
                    | CommandName::RenameNx | CommandName::Copy | CommandName::Watch
            ),
        }),*];

        const NAMES: &[CommandName] = &[$(CommandName::$variant),*];
    };
}

commands! {
    Get "get" 2 ["readonly" "fast"] (1, 1, 1) "r" "string" "1.0.0" "Returns the string value of a key."
    Set "set" -3 ["write" "denyoom"] (1, 1, 1) "w" "string" "1.0.0" "Sets the string value of a key: NX, XX, IFEQ, IFNE, IFDEQ, IFDNE, GET, KEEPTTL, EX, PX, EXAT, PXAT."
    SetNx "setnx" 3 ["write" "denyoom" "fast"] (1, 1, 1) "w" "string" "1.0.0" "Sets the string value of a key only if the key does not exist."
    Del "del" -2 ["write"] (1, -1, 1) "w" "generic" "1.0.0" "Deletes one or more keys."
    Exists "exists" -2 ["readonly" "fast"] (1, -1, 1) "" "generic" "1.0.0" "Determines whether one or more keys exist."
    MGet "mget" -2 ["readonly" "fast"] (1, -1, 1) "r" "string" "1.0.0" "Returns the string values of one or more keys."
    MSet "mset" -3 ["write" "denyoom"] (1, -1, 2) "w" "string" "1.0.1" "Sets the string values of one or more keys."
    MSetNx "msetnx" -3 ["write" "denyoom"] (1, -1, 2) "w" "string" "1.0.1" "Sets the string values of one or more keys only if none of the keys exists."
    MSetEx "msetex" -4 ["write" "denyoom" "movablekeys"] (0, 0, 0) "w" "string" "8.4.0" "Sets the string values and the expiry of one or more keys: NX, XX, EX, PX, EXAT, PXAT, KEEPTTL."
    Incr "incr" 2 ["write" "denyoom" "fast"] (1, 1, 1) "rw" "string" "1.0.0" "Increments the decimal number in a key by one."
    Decr "decr" 2 ["write" "denyoom" "fast"] (1, 1, 1) "rw" "string" "1.0.0" "Decrements the decimal number in a key by one."
    IncrBy "incrby" 3 ["write" "denyoom" "fast"] (1, 1, 1) "rw" "string" "1.0.0" "Increments the decimal number in a key by a number."
    DecrBy "decrby" 3 ["write" "denyoom" "fast"] (1, 1, 1) "rw" "string" "1.0.0" "Decrements the decimal number in a key by a number."
    IncrByFloat "incrbyfloat" 3 ["write" "denyoom" "fast"] (1, 1, 1) "rw" "string" "2.6.0" "Increments the decimal fraction in a key by a number."
    SetEx "setex" 4 ["write" "denyoom"] (1, 1, 1) "w" "string" "2.0.0" "Sets the string value and the expiry of a key, in seconds."
    PSetEx "psetex" 4 ["write" "denyoom"] (1, 1, 1) "w" "string" "2.6.0" "Sets the string value and the expiry of a key, in milliseconds."
    GetSet "getset" 3 ["write" "denyoom" "fast"] (1, 1, 1) "rw" "string" "1.0.0" "Sets the string value of a key and returns the old one."
    GetDel "getdel" 2 ["write" "fast"] (1, 1, 1) "rw" "string" "6.2.0" "Deletes a key and returns its string value."
    GetEx "getex" -2 ["write" "fast"] (1, 1, 1) "rw" "string" "6.2.0" "Returns the string value of a key and changes its expiry."
    DelEx "delex" -2 ["write" "fast"] (1, 1, 1) "w" "string" "8.4.0" "Deletes a key if its string value fulfils a condition: IFEQ, IFNE, IFDEQ, IFDNE."
    Digest "digest" 2 ["readonly" "fast"] (1, 1, 1) "r" "string" "8.4.0" "Returns the XXH3 hash of a string value."
    StrLen "strlen" 2 ["readonly" "fast"] (1, 1, 1) "" "string" "2.2.0" "Returns the number of bytes of a string value."
    Append "append" 3 ["write" "denyoom" "fast"] (1, 1, 1) "w" "string" "2.0.0" "Appends bytes to a string value."
    GetRange "getrange" 4 ["readonly"] (1, 1, 1) "r" "string" "2.4.0" "Returns a part of a string value."
    SubStr "substr" 4 ["readonly"] (1, 1, 1) "r" "string" "1.0.0" "Returns a part of a string value."
    SetRange "setrange" 4 ["write" "denyoom"] (1, 1, 1) "w" "string" "2.2.0" "Overwrites a part of a string value."
    GetBit "getbit" 3 ["readonly" "fast"] (1, 1, 1) "r" "bitmap" "2.2.0" "Returns a bit of a string value."
    SetBit "setbit" 4 ["write" "denyoom"] (1, 1, 1) "rw" "bitmap" "2.2.0" "Sets a bit of a string value and returns the old one."
    BitCount "bitcount" -2 ["readonly"] (1, 1, 1) "r" "bitmap" "2.6.0" "Counts the bits of a string value that are 1."
    BitPos "bitpos" -3 ["readonly"] (1, 1, 1) "r" "bitmap" "2.8.7" "Finds the first bit of a string value that is 1 or 0."
    BitField "bitfield" -2 ["write" "denyoom"] (1, 1, 1) "rw" "bitmap" "3.2.0" "Reads and writes numbers of any width in a string value."
    BitFieldRo "bitfield_ro" -2 ["readonly" "fast"] (1, 1, 1) "r" "bitmap" "6.0.0" "Reads numbers of any width in a string value."
    BitOp "bitop" -4 ["write" "denyoom"] (2, -1, 1) "w r" "bitmap" "2.6.0" "Combines string values bit by bit, and stores the result: AND, OR, XOR, NOT."
    Expire "expire" -3 ["write" "fast"] (1, 1, 1) "w" "generic" "1.0.0" "Sets the expiry of a key, in seconds from now: NX, XX, GT, LT."
    PExpire "pexpire" -3 ["write" "fast"] (1, 1, 1) "w" "generic" "2.6.0" "Sets the expiry of a key, in milliseconds from now: NX, XX, GT, LT."
    ExpireAt "expireat" -3 ["write" "fast"] (1, 1, 1) "w" "generic" "1.2.0" "Sets the expiry of a key, in seconds since 1970: NX, XX, GT, LT."
    PExpireAt "pexpireat" -3 ["write" "fast"] (1, 1, 1) "w" "generic" "2.6.0" "Sets the expiry of a key, in milliseconds since 1970: NX, XX, GT, LT."
    Ttl "ttl" 2 ["readonly" "fast"] (1, 1, 1) "r" "generic" "1.0.0" "Returns the time until a key expires, in seconds."
    PTtl "pttl" 2 ["readonly" "fast"] (1, 1, 1) "r" "generic" "2.6.0" "Returns the time until a key expires, in milliseconds."
    ExpireTime "expiretime" 2 ["readonly" "fast"] (1, 1, 1) "r" "generic" "7.0.0" "Returns the expiry of a key, in seconds since 1970."
    PExpireTime "pexpiretime" 2 ["readonly" "fast"] (1, 1, 1) "r" "generic" "7.0.0" "Returns the expiry of a key, in milliseconds since 1970."
    Persist "persist" 2 ["write" "fast"] (1, 1, 1) "w" "generic" "2.2.0" "Removes the expiry of a key."
    Type "type" 2 ["readonly" "fast"] (1, 1, 1) "" "generic" "1.0.0" "Returns the type of a value: string, or none."
    Touch "touch" -2 ["readonly" "fast"] (1, -1, 1) "" "generic" "3.2.1" "Counts those of the keys that exist."
    Unlink "unlink" -2 ["write" "fast"] (1, -1, 1) "w" "generic" "4.0.0" "Deletes one or more keys."
    Rename "rename" 3 ["write"] (1, 2, 1) "rw w" "generic" "1.0.0" "Renames a key and overwrites the destination."
    RenameNx "renamenx" 3 ["write" "fast"] (1, 2, 1) "rw w" "generic" "1.0.0" "Renames a key only if the new key does not exist."
    Copy "copy" -3 ["write" "denyoom"] (1, 2, 1) "r w" "generic" "6.2.0" "Copies the value of a key to a new key: DB, REPLACE."
    Object "object" -2 ["readonly"] (2, 2, 1) "" "generic" "2.2.3" "Returns a property of a value: ENCODING, REFCOUNT, IDLETIME, FREQ."
    Dump "dump" 2 ["readonly"] (1, 1, 1) "r" "generic" "2.6.0" "Returns a value as Redis's RDB files encode it."
    Restore "restore" -4 ["write" "denyoom"] (1, 1, 1) "w" "generic" "2.6.0" "Sets a value that DUMP returned."
    Scan "scan" -2 ["readonly"] (0, 0, 0) "" "generic" "2.8.0" "Returns some keys and the cursor for the next ones: MATCH, COUNT, TYPE."
    Keys "keys" 2 ["readonly"] (0, 0, 0) "" "generic" "1.0.0" "Returns all keys that match a pattern."
    RandomKey "randomkey" 1 ["readonly"] (0, 0, 0) "" "generic" "1.0.0" "Returns a random key."
    SkepSet "skep.set" -4 ["write" "denyoom"] (1, 1, 1) "w" "skep" "0.1.0" "Sets a vector: SKEP.SET key element number..."
    SkepGetV "skep.getv" 3 ["readonly" "fast"] (1, 1, 1) "r" "skep" "0.1.0" "Returns a vector: SKEP.GETV key element"
    SkepUpdate "skep.update" -3 ["write" "denyoom"] (1, 1, 1) "rw" "skep" "0.1.0" "Updates elements and returns the old value: SKEP.UPDATE key function element operand... [INIT number...] [NORETURN]. A user function knows its element: SKEP.UPDATE key module.function [operand...] [INIT number...] [OLD|NORETURN]"
    SkepReduce "skep.reduce" -4 ["readonly"] (1, 1, 1) "r" "skep" "0.1.0" "Folds a vector to one number: SKEP.REDUCE key fold element initial [constant...]. By a user function: SKEP.REDUCE key module.function initial... [operand...]"
    SkepFilter "skep.filter" -3 ["readonly"] (1, 1, 1) "r" "skep" "0.1.0" "Returns the elements for which a predicate holds: SKEP.FILTER key predicate element [operand]. By a user function: SKEP.FILTER key module.function [operand...] [POSITIONS|WITHPOSITIONS]"
    SkepScan "skep.scan" -3 ["readonly"] (0, 0, 0) "" "skep" "0.1.0" "Returns the pairs of a range of the ordered space: SKEP.SCAN start end [LIMIT n] [REV] [KEYS] [LEASE OPEN|n] [AFTER key]"
    SkepPrefix "skep.prefix" -2 ["readonly"] (0, 0, 0) "" "skep" "0.1.0" "Returns the pairs of the ordered space whose keys begin so: SKEP.PREFIX prefix [LIMIT n] [REV] [KEYS] [LEASE OPEN|n] [AFTER key]"
    SkepCount "skep.count" 3 ["readonly"] (0, 0, 0) "" "skep" "0.1.0" "Counts the pairs of a range of the ordered space: SKEP.COUNT start end, SKEP.COUNT PREFIX prefix"
    SkepFloor "skep.floor" 2 ["readonly" "fast"] (1, 1, 1) "r" "skep" "0.1.0" "Returns the pair of the ordered space with the greatest key not above this one: SKEP.FLOOR key"
    SkepFunction "skep.function" -2 ["noscript"] (0, 0, 0) "" "skep" "0.2.0" "Loads and shows user functions: LOAD [REPLACE] source, LIST, SHOW module, DELETE module, STATS, HELP."
    Multi "multi" 1 ["noscript" "loading" "stale" "fast" "allow_busy"] (0, 0, 0) "" "transactions" "1.2.0" "Begins a transaction."
    Exec "exec" 1 ["noscript" "loading" "stale" "skip_slowlog"] (0, 0, 0) "" "transactions" "1.2.0" "Executes all commands of a transaction."
    Discard "discard" 1 ["noscript" "loading" "stale" "fast" "allow_busy"] (0, 0, 0) "" "transactions" "2.0.0" "Discards a transaction."
    Watch "watch" -2 ["noscript" "loading" "stale" "fast" "allow_busy"] (1, -1, 1) "" "transactions" "2.2.0" "Watches keys: EXEC does nothing if one of them has changed."
    Unwatch "unwatch" 1 ["noscript" "loading" "stale" "fast" "allow_busy"] (0, 0, 0) "" "transactions" "2.2.0" "Watches no keys any more."
    Ping "ping" -1 ["fast"] (0, 0, 0) "" "connection" "1.0.0" "Returns PONG, or its argument."
    Echo "echo" 2 ["loading" "stale" "fast"] (0, 0, 0) "" "connection" "1.0.0" "Returns its argument."
    Hello "hello" -1 ["noscript" "loading" "stale" "fast" "no_auth" "allow_busy"] (0, 0, 0) "" "connection" "6.0.0" "Chooses the version of the protocol."
    Auth "auth" -2 ["noscript" "loading" "stale" "fast" "no_auth" "allow_busy"] (0, 0, 0) "" "connection" "1.0.0" "Logs the connection in: AUTH [user] password."
    Reset "reset" 1 ["noscript" "loading" "stale" "fast" "no_auth" "allow_busy"] (0, 0, 0) "" "connection" "6.2.0" "Restores the state in which a connection begins."
    Select "select" 2 ["loading" "stale" "fast"] (0, 0, 0) "" "connection" "1.0.0" "Chooses a space: 0, the hash store, 1, the ordered store, or 2, the cache."
    Quit "quit" -1 ["noscript" "loading" "stale" "fast" "no_auth" "allow_busy"] (0, 0, 0) "" "connection" "1.0.0" "Closes the connection."
    Client "client" -2 ["noscript" "loading" "stale"] (0, 0, 0) "" "connection" "2.4.0" "Commands about connections: ID, INFO, LIST, KILL, PAUSE, UNPAUSE, REPLY, GETNAME, SETNAME, SETINFO, NO-EVICT, NO-TOUCH."
    DbSize "dbsize" 1 ["readonly" "fast"] (0, 0, 0) "" "server" "1.0.0" "Returns the number of keys in the chosen space."
    FlushDb "flushdb" -1 ["write"] (0, 0, 0) "" "server" "1.0.0" "Removes all keys of the chosen space: ASYNC, SYNC."
    FlushAll "flushall" -1 ["write"] (0, 0, 0) "" "server" "1.0.0" "Removes all keys of all spaces: ASYNC, SYNC."
    Time "time" 1 ["loading" "stale" "fast"] (0, 0, 0) "" "server" "2.6.0" "Returns the server's time in seconds and microseconds."
    Lolwut "lolwut" -1 ["readonly" "fast"] (0, 0, 0) "" "server" "5.0.0" "Returns the server's name and version."
    Memory "memory" -2 ["readonly"] (2, 2, 1) "" "server" "4.0.0" "Returns the bytes of a key and its value: USAGE."
    Info "info" -1 ["loading" "stale"] (0, 0, 0) "" "server" "1.0.0" "Returns what the server can tell about itself."
    Command "command" -1 ["loading" "stale"] (0, 0, 0) "" "server" "2.8.13" "Describes the commands: COUNT, LIST, INFO, DOCS, GETKEYS."
    Config "config" -2 ["admin" "noscript" "loading" "stale"] (0, 0, 0) "" "server" "2.0.0" "Tells and changes settings: GET, SET, RESETSTAT."
    Acl "acl" -2 ["noscript" "loading" "stale" "no_multi"] (0, 0, 0) "" "server" "6.0.0" "Commands about users: SETUSER, GETUSER, DELUSER, LIST, USERS, LOG, CAT, WHOAMI, DRYRUN, GENPASS, LOAD, SAVE."
    Role "role" 1 ["noscript" "loading" "stale" "fast"] (0, 0, 0) "" "server" "2.8.12" "Returns the role of the server: master, without replicas."
    Wait "wait" 3 ["noscript"] (0, 0, 0) "" "generic" "3.0.0" "Returns the number of replicas that have the writes: 0, at once."
    WaitAof "waitaof" 4 ["noscript" "no_multi"] (0, 0, 0) "" "generic" "7.2.0" "Waits until the writes so far are on disk: WAITAOF numlocal numreplicas timeout."
    Save "save" 1 ["admin" "noscript" "no_async_loading" "no_multi"] (0, 0, 0) "" "server" "1.0.0" "Takes a snapshot, and waits for it. Other connections do not."
    BgSave "bgsave" -1 ["admin" "noscript" "no_async_loading"] (0, 0, 0) "" "server" "1.0.0" "Begins a snapshot: SCHEDULE."
    BgRewriteAof "bgrewriteaof" 1 ["admin" "noscript" "no_async_loading"] (0, 0, 0) "" "server" "1.0.0" "Begins a snapshot, after which the log is short."
    LastSave "lastsave" 1 ["loading" "stale" "fast"] (0, 0, 0) "" "server" "1.0.0" "Returns when the last snapshot was complete."
    SlowLog "slowlog" -2 ["admin" "noscript" "loading" "stale"] (0, 0, 0) "" "server" "2.2.12" "Returns the slowest of the last commands: GET, LEN, RESET."
    Latency "latency" -2 ["admin" "noscript" "loading" "stale"] (0, 0, 0) "" "server" "2.8.13" "Returns the delays of commands: HISTOGRAM, DOCTOR, LATEST, HISTORY, RESET."
    Monitor "monitor" 1 ["admin" "noscript" "loading" "stale"] (0, 0, 0) "" "server" "1.0.0" "Sends the commands of all connections to this one."
    Debug "debug" -2 ["admin" "noscript" "loading" "stale"] (0, 0, 0) "" "server" "1.0.0" "Delays the connection: SLEEP."
    Shutdown "shutdown" -1 ["admin" "noscript" "loading" "stale" "no_multi" "allow_busy"] (0, 0, 0) "" "server" "1.0.0" "Stops the server: SAVE, NOSAVE, NOW, FORCE."
}

/// Returns the name of a command, given its index in the table.
pub(crate) fn command_name(index: usize) -> &'static str {
    COMMANDS[index].name
}

/// Returns true if the first argument of the command of this name is a key.
pub(crate) fn begins_with_key(name: &[u8]) -> bool {
    CommandName::find(name).is_some_and(|name| name.info().keys.0 == 1)
}

const _: () = assert!(COMMANDS.len() == COMMAND_COUNT);

/// Longest name of a command.
const NAME_SIZE_MAX: usize = 16;

impl CommandInfo {
    /// Returns true if the command has this flag.
    pub(super) fn has(&self, flag: &str) -> bool {
        self.flags.contains(&flag)
    }

    /// Returns the categories of the command, as the access lists of Redis have them. A subcommand has its own: see
    /// [`super::subcommands::Subcommand::categories`].
    pub(super) fn categories(&self) -> impl Iterator<Item = &'static str> {
        let of_group = match self.group {
            "string" => "string",
            "bitmap" => "bitmap",
            "connection" if self.name != "client" => "connection",
            "transactions" => "transaction",
            "generic" if self.name == "object" => "",
            "generic" if self.keys.0 > 0 || matches!(self.name, "keys" | "scan" | "randomkey") => "keyspace",
            "server" if matches!(self.name, "dbsize" | "flushall" | "flushdb") => "keyspace",
            "server" if self.name == "command" => "connection",
            "generic" if matches!(self.name, "wait" | "waitaof") => "connection",
            "skep" if self.name == "skep.function" => "scripting",
            _ => "",
        };
        // What a command with subcommands does, they do.
        let does = !matches!(self.name, "config" | "slowlog" | "latency" | "object" | "memory");
        let is_admin = does && self.has("admin");
        let is_dangerous = is_admin
            || matches!(
                self.name,
                "info" | "restore" | "role" | "keys" | "flushall" | "flushdb" | "shutdown" | "lastsave"
            );
        [
            (of_group, !of_group.is_empty()),
            ("write", self.has("write")),
            ("read", does && self.has("readonly")),
            ("admin", is_admin || matches!(self.name, "role" | "lastsave")),
            ("dangerous", is_dangerous),
            ("fast", self.has("fast")),
            ("slow", !self.has("fast")),
        ]
        .into_iter()
        .filter_map(|(name, has_it)| has_it.then_some(name))
    }
}

/// The categories of [`CommandInfo::categories`], and those whose commands are all missing.
pub(super) const CATEGORIES: [&str; 21] = [
    "keyspace",
    "read",
    "write",
    "set",
    "sortedset",
    "list",
    "hash",
    "string",
    "bitmap",
    "hyperloglog",
    "geo",
    "stream",
    "pubsub",
    "admin",
    "fast",
    "slow",
    "blocking",
    "dangerous",
    "connection",
    "transaction",
    "scripting",
];

/// A name in small letters, as two numbers: the bytes after it are 0.
type Packed = [u64; NAME_SIZE_MAX / WORD_SIZE];

/// Bytes of a word of a packed name.
const WORD_SIZE: usize = 8;

/// The packed names of the commands.
const PACKED: [Packed; COMMAND_COUNT] = {
    let (mut packed, mut index) = ([[0; 2]; COMMAND_COUNT], 0);
    while index < COMMANDS.len() {
        let (name, mut bytes, mut at) = (COMMANDS[index].name.as_bytes(), [[0; WORD_SIZE]; 2], 0);
        while at < name.len() {
            bytes[at / WORD_SIZE][at % WORD_SIZE] = name[at];
            at += 1;
        }
        packed[index] = [u64::from_le_bytes(bytes[0]), u64::from_le_bytes(bytes[1])];
        index += 1;
    }
    packed
};

/// The number of each command and one more, at the hash of its name or in the first slot after it that was free; 0: none.
const SLOTS: [u8; 256] = {
    let (mut slots, mut index) = ([0; 256], 0);
    while index < COMMANDS.len() {
        let mut slot = hash(PACKED[index]);
        while slots[slot] != 0 {
            slot = (slot + 1) % slots.len();
        }
        index += 1;
        slots[slot] = index as u8;
    }
    slots
};

const _: () = assert!(COMMANDS.len() < SLOTS.len() / 2);

/// Packs a name, in small letters, by few loads of fixed sizes, of which two may overlap. `None` if it is longer than any
/// name.
#[inline]
fn pack(name: &[u8]) -> Option<Packed> {
    /// Returns the number that is `SIZE` bytes long and begins at `from`.
    #[inline(always)]
    fn load<const SIZE: usize>(name: &[u8], from: usize) -> u64 {
        let mut bytes = [0; WORD_SIZE];
        bytes[..SIZE].copy_from_slice(&name[from..from + SIZE]);
        u64::from_le_bytes(bytes)
    }
    let size = name.len();
    let first = match size {
        0 => 0,
        1 => load::<1>(name, 0),
        2..4 => load::<2>(name, 0) | load::<2>(name, size - 2) << (8 * (size - 2)),
        4..WORD_SIZE => load::<4>(name, 0) | load::<4>(name, size - 4) << (8 * (size - 4)),
        WORD_SIZE => load::<8>(name, 0),
        9..=NAME_SIZE_MAX => {
            let last = load::<8>(name, size - WORD_SIZE) >> (8 * (NAME_SIZE_MAX - size));
            return Some([in_small_letters(load::<8>(name, 0)), in_small_letters(last)]);
        }
        _ => return None,
    };
    Some([in_small_letters(first), 0])
}

/// Returns a word of a name with its capital letters as small ones, all at a time.
#[inline]
fn in_small_letters(word: u64) -> u64 {
    const EACH: u64 = u64::MAX / 0xff;
    const HIGH: u64 = 0x80 * EACH;
    let low = word & !HIGH;
    // The high bit of a byte says that it is at least `A`, and that it is above `Z`.
    let from_a = low + u64::from(0x80 - b'A') * EACH;
    let above_z = low + u64::from(0x7f - b'Z') * EACH;
    let capital = (from_a ^ above_z) & HIGH & !word;
    word | capital >> 2
}

/// Returns a hash of a packed name, less than 256.
const fn hash(name: Packed) -> usize {
    ((name[0] ^ name[1]).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as usize
}

impl CommandName {
    /// Returns the command of this name, in small or capital letters.
    pub(crate) fn find(name: &[u8]) -> Option<CommandName> {
        let packed = pack(name)?;
        let mut slot = hash(packed);
        while let Some(index) = SLOTS[slot].checked_sub(1) {
            // The padding has zeros, and a name of a client may end with some.
            if PACKED[usize::from(index)] == packed && COMMANDS[usize::from(index)].name.len() == name.len() {
                return Some(NAMES[usize::from(index)]);
            }
            slot = (slot + 1) % SLOTS.len();
        }
        None
    }

    /// Returns the name in small letters.
    pub(crate) fn text(self) -> &'static str {
        self.info().name
    }

    /// Returns true if the command may change keys.
    pub(crate) fn writes(self) -> bool {
        self.info().has("write")
    }

    /// Returns true if the command must not be in a transaction.
    pub(crate) fn is_never_queued(self) -> bool {
        self.info().has("no_multi")
    }

    /// Returns true if a reply to the command is a number, a status or an error.
    pub(crate) fn has_short_reply(self) -> bool {
        use CommandName::{
            Append, BitCount, BitOp, BitPos, Copy, Decr, DecrBy, Del, DelEx, Exists, Expire, ExpireAt, ExpireTime,
            GetBit, Incr, IncrBy, MSet, MSetEx, MSetNx, PExpire, PExpireAt, PExpireTime, PSetEx, PTtl, Persist, Rename,
            RenameNx, SetBit, SetEx, SetNx, SetRange, StrLen, Touch, Ttl, Type, Unlink, Watch,
        };
        matches!(
            self,
            Append
                | BitCount
                | BitOp
                | BitPos
                | Copy
                | Decr
                | DecrBy
                | Del
                | DelEx
                | Exists
                | Expire
                | ExpireAt
                | ExpireTime
                | GetBit
                | Incr
                | IncrBy
                | MSet
                | MSetEx
                | MSetNx
                | PExpire
                | PExpireAt
                | PExpireTime
                | PSetEx
                | PTtl
                | Persist
                | Rename
                | RenameNx
                | SetBit
                | SetEx
                | SetNx
                | SetRange
                | StrLen
                | Touch
                | Ttl
                | Type
                | Unlink
                | Watch
        )
    }

    /// Returns the description of the command.
    pub(super) fn info(self) -> &'static CommandInfo {
        &COMMANDS[self as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::{COMMANDS, CommandName, NAME_SIZE_MAX, NAMES};

    #[test]
    fn names_are_indexes() {
        for (index, name) in NAMES.iter().enumerate() {
            assert_eq!(*name as usize, index);
            assert_eq!(CommandName::find(COMMANDS[index].name.to_uppercase().as_bytes()), Some(*name));
            assert!(COMMANDS[index].name.len() <= NAME_SIZE_MAX);
        }
        for name in [&b""[..], b"\0", b"get\0", b"RESTORE\0", b"GET\0\0\0"] {
            assert_eq!(CommandName::find(name), None);
        }
        assert_eq!(CommandName::find(&[b'g'; 100]), None);
    }

    #[test]
    fn each_byte_of_a_name_is_compared_in_small_letters() {
        let naive =
            |name: &[u8]| NAMES.iter().copied().find(|other| other.text().as_bytes().eq_ignore_ascii_case(name));
        for info in COMMANDS {
            for at in 0..info.name.len() {
                for byte in 0..=u8::MAX {
                    let mut name = info.name.as_bytes().to_vec();
                    name[at] = byte;
                    assert_eq!(CommandName::find(&name), naive(&name), "{}", name.escape_ascii());
                }
                for part in [&info.name[..at], &info.name[at..]] {
                    assert_eq!(CommandName::find(part.as_bytes()), naive(part.as_bytes()), "{part}");
                }
            }
        }
    }
}
