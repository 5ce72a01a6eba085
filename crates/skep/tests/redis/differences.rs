//! The differences from Redis that are meant, each with its reason. `docs/resp.md` has the same table.

/// A difference: the commands, the reason, and the test of the two replies.
pub(crate) struct Difference {
    pub(crate) commands: &'static [&'static str],
    pub(crate) reason: &'static str,
    /// Returns true if the reply of Redis, and the other one of Skep, are as they should be.
    pub(crate) is_meant: fn(&[u8], &[u8]) -> bool,
}

pub(crate) const DIFFERENCES: &[Difference] = &[
    Difference {
        commands: &["BITCOUNT", "BITPOS", "GETEX"],
        reason: "A wrong argument is an error, also for a missing key; Redis 7.0 looks for the key first.",
        is_meant: |redis, skep| skep[0] == b'-' && matches!(redis, b":0\r\n" | b":-1\r\n" | b"$-1\r\n" | b"_\r\n"),
    },
    Difference {
        commands: &["RESTORE"],
        reason: "A wrong argument is an error, also for a key that exists; Redis looks for the key first.",
        is_meant: |redis, skep| skep[0] == b'-' && redis.starts_with(b"-BUSYKEY"),
    },
    Difference {
        commands: &["OBJECT ENCODING"],
        reason: "The encoding is that of a value that was set; Redis remembers if it was changed in place.",
        is_meant: |redis, skep| ENCODINGS.contains(&redis) && ENCODINGS.contains(&skep),
    },
    Difference {
        commands: &["OBJECT REFCOUNT", "OBJECT IDLETIME", "MEMORY USAGE"],
        reason: "Values are not shared, accesses are not recorded, and bytes are counted without those of the store.",
        is_meant: |redis, skep| redis[0] == b':' && skep[0] == b':',
    },
    Difference {
        commands: &["TIME"],
        reason: "The clock has moved between the two runs.",
        is_meant: |redis, skep| redis[..7] == skep[..7] && redis.len() >= 20,
    },
    Difference {
        commands: &["TTL", "PTTL", "EXPIRETIME", "PEXPIRETIME"],
        reason: "The time that is left depends on when each server got the command.",
        is_meant: |redis, skep| match (number(redis), number(skep)) {
            (Some(redis), Some(skep)) => redis > 0 && redis.abs_diff(skep) <= 2000,
            _ => false,
        },
    },
];

/// Differences that no random command shows.
pub(crate) const RARE_DIFFERENCES: &[(&str, &str)] = &[
    ("all", "Keys have 1 to 460 bytes."),
    ("all", "An expiry is at most 2^55 - 2 milliseconds after 1970. A later one is refused: `invalid expire time`."),
    ("`EXPIRE` and others", "The first expiry of a key takes memory. In a full store it can fail with `OOM`."),
    ("`BITFIELD`", "It has at most 4096 fields. A field that is written ends within the longest value of 1 MiB."),
    (
        "`BITFIELD`",
        "With `OVERFLOW SAT`, `SET` of a number near -2^63 stores the least number of the field; Redis 7.0 the greatest.",
    ),
    ("`RESTORE`", "It takes strings only, of every version. Redis lets a time near the largest number overflow."),
    ("`KEYS`, `SCAN`", "A pattern has at most 1024 bytes. A cursor that the server does not know is an error."),
    ("`FLUSHDB`, `FLUSHALL`", "Each shard and each key of the ordered space has its own moment."),
    ("`DEBUG SLEEP`", "It holds the connection, not the server, and is an error in a transaction."),
    (
        "`MSET` and others",
        "In the ordered space they are refused with `OOM` before it is full: about 40 KiB must be free for each pair, since \
         each could split a leaf.",
    ),
    (
        "`CLIENT REPLY`",
        "It is refused in a transaction, as in Valkey 9. In Redis 7.0 the array of `EXEC` then lacks replies.",
    ),
    ("`LOLWUT`", "It returns the name and the version."),
];

const ENCODINGS: [&[u8]; 3] = [b"$3\r\nint\r\n", b"$6\r\nembstr\r\n", b"$3\r\nraw\r\n"];

fn number(reply: &[u8]) -> Option<i64> {
    std::str::from_utf8(reply).ok()?.strip_prefix(':')?.trim_end().parse().ok()
}

impl Difference {
    /// Returns true if one of its commands begins with these words.
    fn is_of(&self, words: &[String]) -> bool {
        let mut commands = self.commands.iter();
        commands.any(|command| words.join(" ") == *command || words[0] == *command)
    }
}

/// Returns true if the replies to a command are equal, or differ as they should.
pub(crate) fn agree(arguments: &[Vec<u8>], redis: &[u8], skep: &[u8]) -> bool {
    let words = arguments.iter().take(2).map(|word| String::from_utf8_lossy(word).to_uppercase());
    let words: Vec<String> = words.collect();
    let mut differences = DIFFERENCES.iter();
    redis == skep || differences.any(|difference| difference.is_of(&words) && (difference.is_meant)(redis, skep))
}
