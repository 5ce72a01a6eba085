//! Conversations over RESP, byte for byte. The error messages are those that clients of Redis read.

mod support;

use std::io::{Read, Write};

use support::{Resp, command, server};

const SMALL: u64 = 16 << 20;

#[test]
fn strings() {
    for (shards, space) in [(1, 0), (3, 0), (1, 1), (3, 1)] {
        let server = server(shards, SMALL);
        let mut resp = Resp::connect(&server);
        resp.expect(format!("SELECT {space}\r\n"), "+OK\r\n");
        resp.expect("PING\r\n", "+PONG\r\n");
        resp.expect(command(&[b"PING", b"a\r\nb"]), "$4\r\na\r\nb\r\n");
        resp.expect("ECHO 'a b'\r\n", "$3\r\na b\r\n");
        resp.expect("GET a\r\n", "$-1\r\n");
        resp.expect("SET a 1\r\n", "+OK\r\n");
        resp.expect("INCRBY a 41\r\n", ":42\r\n");
        resp.expect("GET a\r\n", "$2\r\n42\r\n");
        resp.expect("incr a\r\nDECR a\r\ndecrby a 2\r\n", ":43\r\n:42\r\n:40\r\n");
        resp.expect("INCRBY a 9223372036854775807\r\n", "-ERR increment or decrement would overflow\r\n");
        resp.expect("DECRBY a -9223372036854775808\r\n", "-ERR decrement would overflow\r\n");
        resp.expect("INCRBY a 1x\r\nINCRBY a 01\r\n", "-ERR value is not an integer or out of range\r\n".repeat(2));
        resp.expect("SET b x NX\r\nSET b y NX\r\nSET b z xx\r\nSET c z XX\r\n", "+OK\r\n$-1\r\n+OK\r\n$-1\r\n");
        resp.expect("INCR b\r\n", "-ERR value is not an integer or out of range\r\n");
        resp.expect("SET b x NX XX\r\nSET b x FOO\r\n", "-ERR syntax error\r\n".repeat(2));
        resp.expect("MSET d 1 e 2 f 3 d 4\r\n", "+OK\r\n");
        resp.expect("MGET d e missing f d\r\n", "*5\r\n$1\r\n4\r\n$1\r\n2\r\n$-1\r\n$1\r\n3\r\n$1\r\n4\r\n");
        resp.expect("EXISTS a d d missing\r\n", ":3\r\n");
        let size = if space == 0 { "DBSIZE" } else { "SKEP.COUNT - +" };
        resp.expect(format!("{size}\r\n"), ":5\r\n");
        resp.expect("DEL a d d missing\r\n", ":2\r\n");
        resp.expect(format!("SET x 1\r\n{size}\r\nDEL x\r\n{size}\r\n"), "+OK\r\n:4\r\n:1\r\n:3\r\n");
        resp.expect(command(&[b"SET", b"", b"v"]), "-ERR key is empty\r\n");
        resp.expect(command(&[b"GET", &[b'k'; 461]]), "-ERR key is longer than 460 bytes\r\n");
        resp.expect(
            command(&[b"SET", b"k", &vec![b'v'; (1 << 20) + 1]]),
            "-ERR value is longer than 1048576 bytes\r\n",
        );
        resp.expect(command(&[b"SET", b"k", &vec![b'v'; 1 << 20]]), "+OK\r\n");
        let mut big = b"$1048576\r\n".to_vec();
        big.extend_from_slice(&vec![b'v'; 1 << 20]);
        resp.expect("GET k\r\nPING\r\n", [&big[..], b"\r\n+PONG\r\n"].concat());
        server.stop();
    }
}

#[test]
fn strings_in_parts() {
    for (shards, space) in [(1, 0), (3, 0), (2, 1)] {
        let server = server(shards, SMALL);
        let mut resp = Resp::connect(&server);
        resp.expect(format!("SELECT {space}\r\n"), "+OK\r\n");
        resp.expect("APPEND a hello\r\nAPPEND a ' world'\r\nSTRLEN a\r\nSTRLEN no\r\n", ":5\r\n:11\r\n:11\r\n:0\r\n");
        resp.expect(
            "GETRANGE a -5 -1\r\nSUBSTR a 0 4\r\nGETRANGE no 0 1\r\n",
            "$5\r\nworld\r\n$5\r\nhello\r\n$0\r\n\r\n",
        );
        resp.expect("SETRANGE a 6 Redis\r\nGET a\r\n", ":11\r\n$11\r\nhello Redis\r\n");
        resp.expect("SETRANGE a 1048576 x\r\n", "-ERR string exceeds maximum allowed size (proto-max-bulk-len)\r\n");
        resp.expect("SETRANGE a -1 x\r\n", "-ERR offset is out of range\r\n");
        resp.expect("SET a new GET\r\nSET a x NX GET\r\nSET b 1 GET\r\n", "$11\r\nhello Redis\r\n$3\r\nnew\r\n$-1\r\n");
        resp.expect(
            "SET a 2 IFEQ old\r\nSET a 2 IFEQ new\r\nSET a 3 IFNE 2\r\nSET no 3 IFEQ ''\r\n",
            "$-1\r\n+OK\r\n$-1\r\n$-1\r\n",
        );
        // The hash of "2", from the reference implementation.
        resp.expect("SET a 3 IFEQ 2 NX\r\nSET a 3 IFDEQ 12\r\n", {
            "-ERR syntax error\r\n-ERR The digest must be exactly 16 hexadecimal characters\r\n"
        });
        resp.expect("SET h hello\r\nDIGEST h\r\nDIGEST no\r\n", "+OK\r\n$16\r\n9555e8555c62dcfd\r\n$-1\r\n");
        resp.expect("SET h x IFDNE 9555E8555C62DCFD\r\nSET h y IFDEQ 9555e8555c62dcfd\r\n", "$-1\r\n+OK\r\n");
        resp.expect("DELEX h IFEQ x\r\nDELEX h IFEQ y\r\nDELEX h\r\n", ":0\r\n:1\r\n:0\r\n");
        resp.expect("DELEX h IFEQ\r\nDELEX h NX x\r\n", {
            "-ERR wrong number of arguments for 'delex' command\r\n\
             -ERR Invalid condition. Use IFEQ, IFNE, IFDEQ, or IFDNE\r\n"
        });
        resp.expect(
            "GETSET a 10.5\r\nINCRBYFLOAT a 0.1\r\nGETDEL a\r\nGETDEL a\r\n",
            "$1\r\n2\r\n$4\r\n10.6\r\n$4\r\n10.6\r\n$-1\r\n",
        );
        resp.expect("INCRBYFLOAT a x\r\nINCRBYFLOAT a inf\r\n", {
            "-ERR value is not a valid float\r\n-ERR increment would produce NaN or Infinity\r\n"
        });
        resp.expect("SETBIT f 7 1\r\nGETBIT f 7\r\nBITCOUNT f\r\nBITPOS f 1\r\n", ":0\r\n:1\r\n:1\r\n:7\r\n");
        resp.expect("SETBIT f 8388608 1\r\n", "-ERR bit offset is not an integer or out of range\r\n");
        resp.expect("BITFIELD f SET u8 0 255 OVERFLOW FAIL INCRBY u8 0 1 GET i8 #0\r\n", "*3\r\n:1\r\n$-1\r\n:-1\r\n");
        resp.expect("BITFIELD_RO f GET u8 0\r\nBITFIELD_RO f SET u8 0 1\r\nBITFIELD f\r\n", {
            "*1\r\n:255\r\n-ERR BITFIELD_RO only supports the GET subcommand\r\n*0\r\n"
        });
        resp.expect(
            "SET e 1\r\nTTL e\r\nPTTL no\r\nPERSIST e\r\nTYPE e\r\nTYPE no\r\n",
            "+OK\r\n:-1\r\n:-2\r\n:0\r\n+string\r\n+none\r\n",
        );
        resp.expect("EXPIRE e -1\r\nEXISTS e\r\nEXPIRE e 10\r\nEXPIRE e 1 NX GT\r\n", {
            ":1\r\n:0\r\n:0\r\n-ERR NX and XX, GT or LT options at the same time are not compatible\r\n"
        });
        resp.expect("SETEX e 0 x\r\nSET e x EX 1 KEEPTTL\r\nGETEX e PX x\r\n", {
            "-ERR invalid expire time in 'setex' command\r\n-ERR syntax error\r\n\
             -ERR value is not an integer or out of range\r\n"
        });
        resp.expect(
            "TOUCH f no f\r\nOBJECT ENCODING b\r\nMEMORY USAGE b\r\nUNLINK f b\r\n",
            ":2\r\n$3\r\nint\r\n:2\r\n:2\r\n",
        );
        resp.expect("RESET\r\nDBSIZE\r\n", "+RESET\r\n:0\r\n");
        server.stop();
    }
}

#[test]
fn a_dumped_value_is_restored() {
    let server = server(2, SMALL);
    let mut resp = Resp::connect(&server);
    let payload = b"\x00\x05hello\n\x00cr\xdfve4 \n";
    resp.expect(command(&[b"RESTORE", b"a", b"0", payload]), "+OK\r\n");
    resp.expect("GET a\r\n", "$5\r\nhello\r\n");
    resp.expect("DUMP a\r\n", [b"$17\r\n", &payload[..], b"\r\n"].concat());
    resp.expect(command(&[b"RESTORE", b"a", b"0", payload]), "-BUSYKEY Target key name already exists.\r\n");
    resp.expect(command(&[b"RESTORE", b"a", b"1", payload, b"REPLACE", b"ABSTTL"]), "+OK\r\n");
    resp.expect("EXISTS a\r\n", ":0\r\n");
    let wrong = "-ERR DUMP payload version or checksum are wrong\r\n";
    resp.expect(command(&[b"RESTORE", b"a", b"0", b"hello"]), wrong);
    server.stop();
}

#[test]
fn refusals() {
    let server = server(1, SMALL);
    let mut resp = Resp::connect(&server);
    resp.expect("GET\r\n", "-ERR wrong number of arguments for 'get' command\r\n");
    resp.expect("GET a b\r\nMSET a\r\n", {
        "-ERR wrong number of arguments for 'get' command\r\n-ERR wrong number of arguments for 'mset' command\r\n"
    });
    resp.expect("MSET a 1 b\r\n", "-ERR wrong number of arguments for 'mset' command\r\n");
    resp.expect(
        command(&[b"Foo", b"a", b"b\r\nc"]),
        "-ERR unknown command 'Foo', with args beginning with: 'a' 'b  c' \r\n",
    );
    resp.expect("ZSCAN k 0\r\n", "-ERR unknown command 'ZSCAN', with args beginning with: 'k' '0' \r\n");
    resp.expect("SELECT 0\r\n", "+OK\r\n");
    resp.expect("SELECT 3\r\nSELECT -1\r\n", "-ERR DB index is out of range\r\n".repeat(2));
    resp.expect("SELECT x\r\n", "-ERR value is not an integer or out of range\r\n");
    resp.expect("CLIENT FOO\r\n", "-ERR unknown subcommand 'FOO'. Try CLIENT HELP.\r\n");
    resp.expect("CLIENT SETNAME\r\n", "-ERR wrong number of arguments for 'client|setname' command\r\n");
    resp.expect("CONFIG SET a b\r\n", "-ERR Unknown option or number of arguments for CONFIG SET - 'a'\r\n");
    resp.expect("PING\r\n", "+PONG\r\n");

    for (sent, sentence) in [
        ("*1\r\n$1048576000\r\n", "invalid bulk length"),
        ("*9999999999\r\n", "invalid multibulk length"),
        ("*1\r\n!x", ""),
        ("*1\r\n!x\r\n", "expected '$', got '!'"),
        ("SET \"a\r\n", "unbalanced quotes in request"),
    ] {
        let mut resp = Resp::connect(&server);
        resp.0.write_all(b"PING\r\n").unwrap();
        resp.0.write_all(sent.as_bytes()).unwrap();
        resp.0.write_all(b"\r\nPING\r\n").unwrap();
        resp.expect_bytes("+PONG\r\n");
        let sentence = if sentence.is_empty() { "expected '$', got '!'" } else { sentence };
        resp.expect_bytes(format!("-ERR Protocol error: {sentence}\r\n"));
        resp.expect_end();
    }
}

#[test]
fn greetings() {
    let server = server(1, SMALL);
    let mut resp = Resp::connect(&server);
    resp.expect("HELLO 4\r\n", "-NOPROTO unsupported protocol version\r\n");
    resp.expect("HELLO x\r\n", "-ERR Protocol version is not an integer or out of range\r\n");
    resp.expect("HELLO 3 FOO\r\n", "-ERR Syntax error in HELLO option 'FOO'\r\n");
    resp.expect("HELLO 3 AUTH me pw\r\n", "-WRONGPASS invalid username-password pair or user is disabled.\r\n");
    resp.expect(
        "AUTH pw\r\n",
        "-ERR AUTH <password> called without any password configured for the default user. Are you sure your \
         configuration is correct?\r\n",
    );
    resp.expect("GET a\r\n", "$-1\r\n");
    let fields = |proto: u8| {
        format!(
            "$6\r\nserver\r\n$5\r\nredis\r\n$7\r\nversion\r\n$5\r\n7.2.4\r\n$5\r\nproto\r\n:{proto}\r\n$2\r\nid\r\n:1\r\n\
             $4\r\nmode\r\n$10\r\nstandalone\r\n$4\r\nrole\r\n$6\r\nmaster\r\n$7\r\nmodules\r\n*0\r\n"
        )
    };
    resp.expect(
        "GET a\r\nHELLO 3 AUTH default pw SETNAME me\r\nGET a\r\nCLIENT GETNAME\r\n",
        format!("$-1\r\n%7\r\n{}_\r\n$2\r\nme\r\n", fields(3)),
    );
    resp.expect("HELLO\r\n", format!("%7\r\n{}", fields(3)));
    resp.expect("HELLO 2\r\nGET a\r\n", format!("*14\r\n{}$-1\r\n", fields(2)));
    resp.expect("CLIENT ID\r\nCLIENT SETINFO lib-name x\r\nCLIENT SETINFO lib-ver 1.0\r\n", ":1\r\n+OK\r\n+OK\r\n");
    resp.expect("CLIENT SETINFO foo x\r\n", "-ERR Unrecognized option 'foo'\r\n");
    resp.expect(
        "CLIENT SETNAME 'a b'\r\n",
        "-ERR Client names cannot contain spaces, newlines or special characters.\r\n",
    );
    resp.expect("CLIENT NO-EVICT on\r\nCLIENT NO-TOUCH off\r\n", "+OK\r\n+OK\r\n");
    let list = resp.text("CLIENT LIST");
    assert!(list.starts_with("id=1 addr=127.0.0.1:") && list.contains(" name=me ") && list.contains(" lib-ver=1.0\n"));
    assert_eq!(resp.text("CLIENT INFO"), list);
    resp.expect("QUIT\r\nSET after 1\r\n", "+OK\r\n");
    resp.expect_end();
    Resp::connect(&server).expect("GET after\r\n", "$-1\r\n");
}

#[test]
fn delays_are_shown() {
    let server = server(2, SMALL);
    let mut resp = Resp::connect(&server);
    let field = |text: &str, name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':').map(str::to_owned));
        line.unwrap_or_else(|| panic!("{name}: {text}"))
    };
    let idle = resp.text("INFO congestion");
    assert_eq!(field(&idle, "skep_delay_bound_usec"), "0.000", "nothing is refused unless that is asked for");
    assert_eq!(field(&idle, "skep_delay_buckets_usec"), "");
    resp.expect("SET a 1\r\nMGET a b c\r\n", "+OK\r\n*3\r\n$1\r\n1\r\n$-1\r\n$-1\r\n");
    let text = resp.text("INFO congestion");
    let buckets = field(&text, "skep_delay_buckets_usec");
    let counts = buckets.split(',').map(|bucket| bucket.split_once('=').unwrap().1.parse::<u64>().unwrap());
    assert_eq!(counts.sum::<u64>(), 4, "{text}");
    let max: f64 = field(&text, "skep_delay_max_usec").parse().unwrap();
    assert!(max > 0.0 && field(&text, "skep_delay_p999_usec").parse::<f64>().unwrap() > 0.0, "{text}");
    assert_eq!((&field(&text, "skep_operations_refused")[..], &field(&text, "skep_reads_held_back")[..]), ("0", "0"));
    for shard in ["skep_shard0", "skep_shard1"] {
        let line = field(&text, shard);
        let window = line.strip_prefix("window=").and_then(|rest| rest.split_once(',')?.0.parse().ok());
        assert!(window.is_some_and(|window: u64| window >= 256) && line.contains(",in_flight=0,"), "{text}");
    }
}

#[test]
fn introspection() {
    let server = server(2, SMALL);
    let mut resp = Resp::connect(&server);
    resp.expect("CONFIG GET save\r\n", "*2\r\n$4\r\nsave\r\n$0\r\n\r\n");
    resp.expect("CONFIG GET append* maxmemory\r\n", {
        "*6\r\n$11\r\nappendfsync\r\n$6\r\nalways\r\n$10\r\nappendonly\r\n$2\r\nno\r\n\
         $9\r\nmaxmemory\r\n$8\r\n16777216\r\n"
    });
    resp.expect("CONFIG GET nothing\r\n", "*0\r\n");
    resp.expect(
        "COMMAND INFO get nothing\r\n",
        "*2\r\n*10\r\n$3\r\nget\r\n:2\r\n*2\r\n+readonly\r\n+fast\r\n:1\r\n:1\r\n:1\r\n\
         *3\r\n+@string\r\n+@read\r\n+@fast\r\n*0\r\n*0\r\n*0\r\n$-1\r\n",
    );
    resp.expect(
        "COMMAND DOCS echo nothing\r\n",
        "*2\r\n$4\r\necho\r\n*6\r\n$7\r\nsummary\r\n$21\r\nReturns its argument.\r\n$5\r\nsince\r\n$5\r\n1.0.0\r\n\
         $5\r\ngroup\r\n$10\r\nconnection\r\n",
    );
    resp.expect("COMMAND COUNT\r\n", ":99\r\n");
    resp.expect("SET a 1\r\nGET a\r\nGET b\r\nFOO\r\n", {
        "+OK\r\n$1\r\n1\r\n$-1\r\n-ERR unknown command 'FOO', with args beginning with: \r\n"
    });
    let info = resp.text("INFO");
    for line in [
        "# Server\r\nredis_version:7.2.",
        "redis_mode:standalone\r\n",
        concat!("skep_version:", env!("CARGO_PKG_VERSION"), "\r\n"),
        &format!("tcp_port:{}\r\n", server.resp_address().unwrap().port()),
        "uptime_in_seconds:",
        "connected_clients:1\r\n",
        "used_memory:",
        "maxmemory:16777216\r\n",
        "loading:0\r\n",
        "keyspace_hits:1\r\n",
        "keyspace_misses:1\r\n",
        "expired_keys:0\r\n",
        "evicted_keys:0\r\n",
        "total_error_replies:1\r\n",
        "role:master\r\n",
        "\r\n\r\n# Keyspace\r\ndb0:keys=1,expires=0,avg_ttl=0\r\n",
    ] {
        assert!(info.contains(line), "{line:?} is not in\n{info}");
    }
    let server_only = resp.text("INFO server keyspace");
    assert!(server_only.contains("# Server") && server_only.contains("# Keyspace") && !server_only.contains("# CPU"));
}

/// The replies of Redis 7.
#[test]
fn sets_of_resp3_and_bytes_in_errors() {
    let server = server(2, SMALL);
    let (mut resp, mut third) = (Resp::connect(&server), Resp::connect(&server));
    third.0.write_all(b"HELLO 3\r\nCOMMAND INFO get\r\nECHO end\r\n").unwrap();
    let text = read_until(&mut third, "end\r\n");
    assert!(
        text.contains(
            "*1\r\n*10\r\n$3\r\nget\r\n:2\r\n~2\r\n+readonly\r\n+fast\r\n:1\r\n:1\r\n:1\r\n\
             ~3\r\n+@string\r\n+@read\r\n+@fast\r\n~0\r\n~0\r\n~0\r\n$3\r\nend\r\n"
        ),
        "{text}"
    );
    // An error has the bytes of the client.
    resp.expect(b"nosuch \"\\xff\\xfe\"\r\nCONFIG \"\\xff\" x\r\nCLIENT KILL TYPE \"\\xff\"\r\n", {
        b"-ERR unknown command 'nosuch', with args beginning with: '\xff\xfe' \r\n\
          -ERR unknown subcommand '\xff'. Try CONFIG HELP.\r\n-ERR Unknown client type '\xff'\r\n"
    });
    // The name of a command ends with no zero bytes.
    resp.expect("*2\r\n$4\r\nget\0\r\n$1\r\na\r\n", {
        "-ERR unknown command 'get\0', with args beginning with: 'a' \r\n"
    });
}

#[test]
fn vectors() {
    for (shards, space) in [(1, 0), (3, 0), (1, 1), (3, 1)] {
        let server = server(shards, SMALL);
        let mut resp = Resp::connect(&server);
        resp.expect(format!("SELECT {space}\r\n"), "+OK\r\n");
        resp.expect("SKEP.SET v i64 1 -2 3\r\n", "+OK\r\n");
        resp.expect("SKEP.GETV v i64\r\n", "*3\r\n:1\r\n:-2\r\n:3\r\n");
        resp.expect("SKEP.UPDATE v add i64 5\r\n", "*3\r\n:1\r\n:-2\r\n:3\r\n");
        resp.expect("SKEP.UPDATE v add i64 1 1 2 NORETURN\r\n", "+OK\r\n");
        resp.expect("SKEP.GETV v i64\r\n", "*3\r\n:7\r\n:4\r\n:10\r\n");
        resp.expect("SKEP.UPDATE v cas i64 4 5\r\n", "*3\r\n:7\r\n:4\r\n:10\r\n");
        resp.expect("SKEP.UPDATE v cas i64 7 8 0 1 10 11\r\n", "*3\r\n:7\r\n:5\r\n:10\r\n");
        resp.expect("SKEP.REDUCE v sum i64 100\r\n", ":124\r\n");
        resp.expect("SKEP.REDUCE v dot i64 0 1 0 2\r\n", ":30\r\n");
        resp.expect("SKEP.FILTER v gt i64 5\r\n", "*2\r\n:8\r\n:11\r\n");
        resp.expect("SKEP.FILTER v nonzero i64\r\n", "*3\r\n:8\r\n:5\r\n:11\r\n");
        resp.expect("SKEP.UPDATE v add i64 1 2\r\n", {
            "-ERR operand has the wrong length: add takes one operand for all elements, or one for each\r\n"
        });
        resp.expect("SKEP.FILTER v gt i64\r\n", "-ERR operand has the wrong length: greater takes one operand\r\n");
        resp.expect("SKEP.UPDATE n add u8 5 INIT 250\r\n", ":250\r\n");
        resp.expect("SKEP.UPDATE n add u8 5 INIT 250 NORETURN\r\n", "+OK\r\n");
        resp.expect("SKEP.GETV n u8\r\n", "*1\r\n:4\r\n");
        resp.expect("SKEP.UPDATE missing add u8 5\r\nSKEP.GETV missing u8\r\n", "$-1\r\n$-1\r\n");
        resp.expect("SKEP.SET u u64 18446744073709551615\r\n", "+OK\r\n");
        resp.expect("SKEP.GETV u u64\r\n", "*1\r\n$20\r\n18446744073709551615\r\n");
        resp.expect("SKEP.SET f f64 1.5 -inf\r\nSKEP.GETV f f64\r\n", "+OK\r\n*2\r\n$3\r\n1.5\r\n$4\r\n-inf\r\n");
        resp.expect("SKEP.UPDATE f xor f64 1\r\n", "-ERR function is not defined for this element type\r\n");
        resp.expect("SKEP.GETV v i32\r\nSET t abc\r\n", "*6\r\n:8\r\n:0\r\n:5\r\n:0\r\n:11\r\n:0\r\n+OK\r\n");
        resp.expect("SKEP.GETV t i16\r\n", {
            "-ERR element width does not divide the value's length: the value has 3 bytes, and an element is i16, of 2 \
             bytes: choose another type, or GET\r\n"
        });
        resp.expect("SKEP.UPDATE t add i16 1\r\n", {
            "-ERR element width does not divide the value's length: an element is i16, of 2 bytes: choose another type; \
             STRLEN returns the length\r\n"
        });
        resp.expect("SKEP.SET v i65 1\r\n", {
            "-ERR unknown element type 'i65': write u8, u16, u32, u64, i8, i16, i32, i64, f32, f64\r\n"
        });
        resp.expect("SKEP.UPDATE v frob i64 1\r\n", {
            "-ERR unknown function 'frob': write add, sub, mul, min, max, and, or, xor, swap, cas, wrap\r\n"
        });
        resp.expect("SKEP.FILTER v frob i64\r\n", "-ERR unknown predicate 'frob': write nonzero, eq, gt, lt\r\n");
        resp.expect("SKEP.UPDATE v add u8 256\r\n", {
            "-ERR '256' is wrong for u8: number is out of the range of this type\r\n"
        });
        resp.expect("SKEP.SET v u8 256\r\n", "-ERR '256' is wrong for u8: number is out of the range of this type\r\n");
        let none = "-ERR syntax error: add takes one operand for all elements, or one for each\r\n";
        resp.expect("SKEP.UPDATE v add i64 INIT 1\r\nSKEP.UPDATE v add i64 NORETURN\r\n", none.repeat(2));
        resp.expect("SKEP.UPDATE v add i64 1 INIT\r\n", {
            "-ERR syntax error: INIT takes the elements of a missing key, one at least\r\n"
        });
        resp.expect("SKEP.UPDATE v add i64 1 INTI 0\r\n", {
            "-ERR 'INTI' is wrong for i64: not a number of this type; after the operands come INIT, with elements, \
             and NORETURN\r\n"
        });
    }
}

#[test]
fn a_full_store_says_so_and_keeps_what_it_has() {
    let server = server(2, 1 << 20);
    let mut resp = Resp::connect(&server);
    let value = [b'v'; 1000];
    let mut stored = 0;
    let sentence = loop {
        resp.0.write_all(&command(&[b"SET", format!("key{stored}").as_bytes(), &value])).unwrap();
        let mut first = [0; 5];
        std::io::Read::read_exact(&mut resp.0, &mut first).unwrap();
        if &first != b"+OK\r\n" {
            let mut rest = Vec::new();
            while !rest.ends_with(b"\r\n") {
                let mut byte = [0];
                std::io::Read::read_exact(&mut resp.0, &mut byte).unwrap();
                rest.push(byte[0]);
            }
            break [&first[..], &rest].concat();
        }
        stored += 1;
        assert!(stored < 2000, "more than memory can hold");
    };
    let sentence = String::from_utf8(sentence).unwrap();
    let prefix = "-OOM command not allowed when used memory > 'maxmemory'. OUT_OF_MEMORY: ";
    assert!(sentence.starts_with(prefix) && sentence.contains("full; delete keys"), "{sentence}");
    for key in 0..stored {
        let mut expected = b"$1000\r\n".to_vec();
        expected.extend_from_slice(&value);
        resp.expect(format!("GET key{key}\r\n"), [&expected[..], b"\r\n"].concat());
    }
}

#[test]
fn descriptions_are_given_for_a_few_commands_at_a_time() {
    let server = server(1, SMALL);
    let mut resp = Resp::connect(&server);
    let mut request: Vec<&[u8]> = vec![b"COMMAND", b"INFO"];
    request.resize(2 + 100_000, b"get");
    resp.expect(command(&request), "-ERR wrong number of arguments for 'command|info' command\r\n");
    request[1] = b"DOCS";
    resp.expect(command(&request), "-ERR wrong number of arguments for 'command|docs' command\r\n");
    resp.expect("COMMAND INFO nothing nothing\r\n", "*2\r\n$-1\r\n$-1\r\n");
}

/// Returns what the server sends up to these bytes.
fn read_until(resp: &mut Resp, end: &str) -> String {
    let mut text = Vec::new();
    while !text.ends_with(end.as_bytes()) {
        let mut byte = [0];
        resp.0.read_exact(&mut byte).unwrap();
        text.push(byte[0]);
    }
    String::from_utf8(text).unwrap()
}
