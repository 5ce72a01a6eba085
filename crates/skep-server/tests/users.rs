//! Users: logins, rules, and what they deny.

mod support;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use skep_core::function::FunctionHandle;
use skep_core::operation::{Call, CallReply, Operation, PutCondition, Reply, Request};
use skep_server::{Server, ServerSettings};
use skep_wire::native::WireError;
use support::{Native, Resp, connect, server, server_with};

const NO_KEY: &str = "-NOPERM No permissions to access a key\r\n";

fn denied(user: &str, command: &str) -> String {
    format!("-NOPERM User {user} has no permissions to run the '{command}' command\r\n")
}

fn start(settings: ServerSettings) -> Server {
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    Server::start(&ServerSettings { native: any, resp: Some(any), memory: 48 << 20, ..settings }).expect("it starts")
}

#[test]
fn a_user_does_what_its_rules_allow() {
    let server = server(2, 32 << 20);
    let mut admin = Resp::connect(&server);
    admin.expect("ACL SETUSER cook on >ham ~a* %R~r* +@read +set +multi +exec +rename -strlen\r\n", "+OK\r\n");
    admin.expect("MSET a 1 r 2 b 3\r\n", "+OK\r\n");
    let mut cook = Resp::connect(&server);
    cook.expect("AUTH cook egg\r\n", "-WRONGPASS invalid username-password pair or user is disabled.\r\n");
    cook.expect("AUTH cook ham\r\nACL WHOAMI\r\n", format!("+OK\r\n{}", denied("cook", "acl|whoami")));
    cook.expect("GET a\r\nGET r\r\nGET b\r\nGET c\r\n", format!("$1\r\n1\r\n$1\r\n2\r\n{NO_KEY}{NO_KEY}"));
    cook.expect("SET a 4\r\nSET r 5\r\nSTRLEN a\r\n", format!("+OK\r\n{NO_KEY}{}", denied("cook", "strlen")));
    cook.expect("MGET a b\r\nMGET a r\r\n", format!("{NO_KEY}*2\r\n$1\r\n4\r\n$1\r\n2\r\n"));
    cook.expect("RENAME r a2\r\nRENAME a a2\r\n", format!("{NO_KEY}+OK\r\n"));
    cook.expect("KEYS a*\r\nKEYS b*\r\nKEYS r\r\n", "*1\r\n$2\r\na2\r\n*0\r\n*1\r\n$1\r\nr\r\n");
    cook.expect(
        "MULTI\r\nGET b\r\nEXEC\r\n",
        format!("+OK\r\n{NO_KEY}-EXECABORT Transaction discarded because of previous errors.\r\n"),
    );
    cook.expect("MULTI\r\nGET a2\r\nGET r\r\n", "+OK\r\n+QUEUED\r\n+QUEUED\r\n");
    admin.expect("ACL SETUSER cook resetkeys ~a*\r\n", "+OK\r\n");
    cook.expect("EXEC\r\n", "*2\r\n$1\r\n4\r\n-NOPERM ACLs rules changed between the moment the transaction was accumulated and the EXEC call. This command is no longer allowed for the following reason: no permission to touch the specified keys\r\n");
    admin.expect("ACL DELUSER cook\r\n", ":1\r\n");
    cook.expect_end();
    server.stop();
}

/// Returns the reply to `ACL LOG`.
fn log(admin: &mut Resp) -> String {
    admin.send("ACL LOG 100\r\nPING\r\n");
    let mut text = String::new();
    while !text.ends_with("+PONG\r\n") {
        text += &admin.line();
    }
    text
}

#[test]
fn no_way_leads_around_a_rule() {
    let server = server_with(|settings| {
        settings.memory = 32 << 20;
        settings.shards = 1;
    });
    let mut admin = Resp::connect(&server);
    admin.expect("ACL SETUSER cook on >ham ~a:* +@all -@dangerous -del\r\n", "+OK\r\n");
    admin.expect("MSET a:1 1 b:1 2\r\nSELECT 1\r\nMSET a:1 1 a:2 2 b:1 3\r\nSELECT 0\r\n", "+OK\r\n".repeat(4));
    let mut cook = Resp::connect(&server);
    cook.expect("HELLO 2 AUTH cook egg\r\n", "-WRONGPASS invalid username-password pair or user is disabled.\r\n");
    cook.expect("AUTH cook ham\r\n", "+OK\r\n");
    // Keys that exist and keys that do not are refused alike.
    for (there, missing) in [("b:1", "b:9"), ("b:1", "c")] {
        for command in ["GET K", "EXISTS K", "TYPE K", "OBJECT ENCODING K", "MEMORY USAGE K", "TTL K", "DUMP K"] {
            for key in [there, missing] {
                cook.expect(command.replace('K', key) + "\r\n", NO_KEY);
            }
        }
    }
    for command in [
        "COPY b:1 a:9",
        "COPY a:1 b:9",
        "COPY a:1 b:9 DB 1",
        "RENAME b:1 a:9",
        "RENAME a:1 b:1",
        "RENAMENX a:1 b:9",
        "MSET a:1 1 b:1 2",
        "MSETEX 2 a:1 1 b:1 2",
        "MSETNX a:8 1 b:9 2",
        "BITOP AND a:9 a:1 b:1",
        "WATCH b:1",
        "SKEP.UPDATE b:1 add i64 1 INIT 0",
        "SKEP.REDUCE b:1 sum i64 0",
    ] {
        cook.expect(format!("{command}\r\n"), NO_KEY);
    }
    cook.expect("DEL a:1\r\nKEYS *\r\nFLUSHALL\r\n", {
        ["del", "keys", "flushall"].map(|command| denied("cook", command)).concat()
    });
    cook.expect("SCAN 0 COUNT 1000\r\n", "*2\r\n$1\r\n0\r\n*1\r\n$3\r\na:1\r\n");
    cook.expect("MULTI\r\nSCAN 0 COUNT 1000\r\nEXEC\r\n", {
        "+OK\r\n+QUEUED\r\n*1\r\n*2\r\n$1\r\n0\r\n*1\r\n$3\r\na:1\r\n"
    });
    for _ in 0..20 {
        cook.expect("RANDOMKEY\r\n", "$3\r\na:1\r\n");
    }
    let range =
        "-NOPERM No permissions to access a key: a range must lie within one pattern of the user, such as user:*\r\n";
    cook.expect(
        "SELECT 1\r\nSKEP.COUNT - +\r\nSKEP.SCAN [a:1 +\r\nSKEP.PREFIX b\r\nSKEP.PREFIX a\r\nSKEP.FLOOR a:9\r\n",
        format!("+OK\r\n{}", range.repeat(5)),
    );
    cook.expect("SKEP.COUNT PREFIX a:\r\nSKEP.COUNT [a:1 (a;\r\nSKEP.COUNT [a:1 (a:2\r\n", ":2\r\n:2\r\n:1\r\n");
    cook.expect("SKEP.SCAN [a:1 [a:9 REV AFTER b:1 KEYS\r\n", "*2\r\n$-1\r\n*2\r\n$3\r\na:2\r\n$3\r\na:1\r\n");
    admin.expect("GET b:1\r\nDBSIZE\r\n", "$1\r\n2\r\n:2\r\n");
    let log = log(&mut admin);
    for part in ["cook", "auth", "HELLO", "b:1", "client-info", "user=cook", "flushall"] {
        assert!(log.contains(part), "{part} is not in {log}");
    }
    server.stop();
}

/// Requests that were read and wait, here for the end of a pause, are not done by rules that are no longer in force.
#[test]
fn requests_that_wait_obey_new_rules() {
    let server = server(2, 32 << 20);
    let mut admin = Resp::connect(&server);
    for user in ["cook", "zoe"] {
        admin.expect(format!("ACL SETUSER {user} on >ham ~* +@read +set +mset\r\n"), "+OK\r\n");
    }
    let logged_in = |user: &str| {
        let mut client = Resp::connect(&server);
        client.expect(format!("AUTH {user} ham\r\n"), "+OK\r\n");
        client
    };
    let [mut cook, mut other, mut zoe] = ["cook", "cook", "zoe"].map(logged_in);
    admin.expect("CLIENT PAUSE 60000 WRITE\r\n", "+OK\r\n");
    cook.send("SET a 1\r\n");
    other.send("MSET b 1 c 1\r\nGET a\r\n");
    zoe.send("SET z 1\r\n");
    std::thread::sleep(std::time::Duration::from_millis(200));
    admin.expect("ACL SETUSER cook -set -mset\r\nCLIENT UNPAUSE\r\n", "+OK\r\n+OK\r\n");
    cook.expect_end();
    other.expect_end();
    zoe.expect("", "+OK\r\n");
    admin.expect("EXISTS a b c z\r\n", ":1\r\n");
    server.stop();
}

#[test]
fn a_client_of_memcached_has_the_rules_of_its_user() {
    let server = server_with(|settings| {
        settings.memory = 32 << 20;
        settings.cache_memory = 8 << 20;
        settings.memcached = Some(SocketAddr::from(([127, 0, 0, 1], 0)));
    });
    let mut admin = Resp::connect(&server);
    admin.expect("ACL SETUSER cook on >ham ~a:* +@all -@dangerous -del\r\nSELECT 2\r\nSET b:1 4\r\n", {
        "+OK\r\n+OK\r\n+OK\r\n"
    });
    let mut memcached = Resp(connect(server.memcached_address().unwrap()));
    admin.expect("ACL SETUSER default off\r\n", "+OK\r\n");
    let mut locked = Resp(connect(server.memcached_address().unwrap()));
    locked.expect("get b:1\r\n", "CLIENT_ERROR unauthenticated\r\n");
    locked.expect("set x 0 0 8\r\ncook egg\r\n", "CLIENT_ERROR authentication failure\r\n");
    locked.expect("set x 0 0 8\r\ncook ham\r\n", "STORED\r\n");
    let (key, command) = (
        "CLIENT_ERROR the user has no permission for a key\r\n",
        "CLIENT_ERROR the user has no permission for this command\r\n",
    );
    for line in
        ["get b:1", "get a:1 b:1", "gets b:9", "mg b:1 v", "me b:1", "incr b:1 1", "touch b:1 0", "set b:1 0 0 1\r\nx"]
    {
        locked.expect(format!("{line}\r\n"), key);
    }
    for line in ["delete a:1", "md a:1", "flush_all", "stats"] {
        locked.expect(format!("{line}\r\n"), command);
    }
    // A further change of a meta command takes a permission too.
    admin.expect("ACL SETUSER cook -getex -expire\r\n", "+OK\r\n");
    for line in ["mg a:1 v T60", "mg a:1 v R60", "ma a:1 T60", "gat 60 a:1", "touch a:1 60"] {
        locked.expect(format!("{line}\r\n"), command);
    }
    locked.expect("mg a:1 v\r\nma a:1\r\nma a:1 N60\r\n", format!("EN\r\nNF\r\n{command}"));
    admin.expect("ACL SETUSER cook +del\r\n", "+OK\r\n");
    locked.expect("md a:1 I T0\r\nmd a:1 I\r\n", format!("{command}NF\r\n"));
    locked.expect("set a:1 0 0 1\r\nx\r\nget a:1\r\n", "STORED\r\nVALUE a:1 0 1\r\nx\r\nEND\r\n");
    memcached.expect("get b:1\r\n", "VALUE b:1 0 1\r\n4\r\nEND\r\n");
    admin.expect("GET b:1\r\nDBSIZE\r\n", "$1\r\n4\r\n:2\r\n");
    let log = log(&mut admin);
    for part in ["auth", "b:1", "flushdb", "info"] {
        assert!(log.contains(part), "{part} is not in {log}");
    }
    server.stop();
}

#[test]
fn a_user_stays_in_its_spaces() {
    let server = server(2, 32 << 20);
    let mut admin = Resp::connect(&server);
    admin.expect("SET a 1\r\nACL SETUSER cook on >ham allkeys +@all space:ordered\r\n", "+OK\r\n+OK\r\n");
    let mut cook = Resp::connect(&server);
    let hash = "-NOPERM No permissions to access the hash space\r\n";
    cook.expect("AUTH cook ham\r\n", "+OK\r\n");
    cook.expect("GET a\r\nDBSIZE\r\nSCAN 0\r\nSELECT 0\r\nFLUSHDB\r\nFLUSHALL\r\nPING\r\n", {
        format!("{}+PONG\r\n", hash.repeat(6))
    });
    cook.expect("SELECT 1\r\nSET b 2\r\nCOPY b c DB 0\r\nCOPY b c\r\n", format!("+OK\r\n+OK\r\n{hash}:1\r\n"));
    cook.expect("MULTI\r\nSELECT 0\r\nEXEC\r\n", {
        format!("+OK\r\n{hash}-EXECABORT Transaction discarded because of previous errors.\r\n")
    });
    cook.expect("SKEP.FUNCTION LIST\r\nDBSIZE\r\n", "*0\r\n:2\r\n");
    admin.expect("GET a\r\n", "$1\r\n1\r\n");
    server.stop();
}

#[test]
fn a_user_has_limits() {
    let server = server(2, 32 << 20);
    let mut admin = Resp::connect(&server);
    admin.expect("ACL SETUSER cook on >ham allkeys +@all connections:2 operations:50\r\n", "+OK\r\n");
    let mut cooks: Vec<Resp> = (0..3).map(|_| Resp::connect(&server)).collect();
    cooks[0].expect("AUTH cook ham\r\nAUTH cook ham\r\n", "+OK\r\n+OK\r\n");
    cooks[1].expect("AUTH cook ham\r\n", "+OK\r\n");
    let full = "-ERR max number of clients of this user reached\r\n";
    cooks[2].expect("AUTH cook ham\r\nPING\r\n", format!("{full}+PONG\r\n"));
    cooks[1].expect("QUIT\r\n", "+OK\r\n");
    cooks[1].expect_end();
    while cooks[2].text_of_line("AUTH cook ham\r\n") == full {}
    let (mut done, mut refused) = (0, 0);
    for _ in 0..200 {
        match cooks[2].text_of_line("INCR n\r\n").as_bytes() {
            [b':', ..] => done += 1,
            reply => {
                assert!(reply.starts_with(b"-BUSY user cook has had all"), "{}", reply.escape_ascii());
                refused += 1;
            }
        }
    }
    assert!((50..=150).contains(&done) && refused >= 50, "{done} done, {refused} refused");
    // A transaction is done as a whole or not at all.
    let (begun, mut done, mut discarded) = (Instant::now(), 0, 0);
    while (done == 0 || discarded == 0) && begun.elapsed() < Duration::from_secs(60) {
        cooks[2].expect("MULTI\r\n", "+OK\r\n");
        (0..10).for_each(|_| drop(cooks[2].text_of_line("INCR m\r\n")));
        match &*cooks[2].text_of_line("EXEC\r\n") {
            "*10\r\n" => {
                (0..10).for_each(|_| assert!(cooks[2].text_of_line("").starts_with(':')));
                done += 1;
            }
            reply => {
                assert!(reply.starts_with("-EXECABORT"), "{reply}");
                discarded += 1;
            }
        }
    }
    assert!(done > 0 && discarded > 0, "{done} done, {discarded} discarded");
    let sum = (10 * done).to_string();
    admin.expect("GET m\r\n", format!("${}\r\n{sum}\r\n", sum.len()));
    // What ends a transaction is never refused.
    cooks[2].expect("MULTI\r\n", "+OK\r\n");
    while cooks[2].text_of_line("INCR m\r\n") == "+QUEUED\r\n" {}
    cooks[2].expect("DISCARD\r\nMULTI\r\nDISCARD\r\n", "+OK\r\n+OK\r\n+OK\r\n");
    // A connection that begins again keeps its seat.
    admin.expect("ACL SETUSER default connections:1\r\nRESET\r\nPING\r\nACL SETUSER default connections:0\r\n", {
        "+OK\r\n+RESET\r\n+PONG\r\n+OK\r\n"
    });
    // It may be changed, and an administrator is not concerned.
    admin.expect("ACL SETUSER cook operations:0\r\n", "+OK\r\n");
    cooks[2].expect("PING\r\n", "+PONG\r\n");
    server.stop();
}

#[test]
fn a_native_call_needs_the_command_of_its_kind() {
    let server = server(1, 32 << 20);
    let mut admin = Resp::connect(&server);
    let source = "mod m { #[reduce] fn sum(v: u8, sum: u64) -> u64 { sum + v as u64 } }";
    admin.expect(format!("SKEP.FUNCTION LOAD '{source}'\r\n"), "$1\r\nm\r\n");
    admin.expect("SET a 12\r\n", "+OK\r\n");
    for (rules, is_allowed) in [("%R~a +skep.reduce", true), ("~a +skep.update +skep.filter", false)] {
        admin.expect(format!("ACL SETUSER cook reset on >ham {rules}\r\n"), "+OK\r\n");
        let function = FunctionHandle { id: 1, revision: 0, function: None };
        let (initial, reply) = (Some(&[0; 8][..]), CallReply::Result);
        let call = Call { function, vectors: 0, operands: b"", initial, reply };
        Native::log_in(&server, "cook", b"ham").execute(
            1,
            &[Request { key: b"a", operation: Operation::Call(call) }],
            |_, response| {
                let sum = u64::from(b'1' + b'2').to_le_bytes();
                assert_eq!(response, if is_allowed { Ok(Reply::Value(&sum)) } else { Err(WireError::NotPermitted) });
            },
        );
    }
    server.stop();
}

#[test]
fn what_is_denied_counts_for_the_limits() {
    let server = server(1, 32 << 20);
    let mut admin = Resp::connect(&server);
    admin.expect("ACL SETUSER cook on >ham ~a* +get +auth operations:50\r\n", "+OK\r\n");
    let mut cook = Resp::connect(&server);
    cook.expect("AUTH cook ham\r\n", "+OK\r\n");
    let begun = Instant::now();
    let mut replies = BTreeSet::new();
    while replies.len() < 2 && begun.elapsed() < Duration::from_secs(60) {
        replies.insert(cook.text_of_line("GET b\r\n"));
    }
    let keys = "-NOPERM No permissions to access a key\r\n".to_owned();
    let limit = "-BUSY user cook has had all operations or bytes of this second: send the command again later\r\n";
    assert_eq!(replies, [keys, limit.to_owned()].into());

    // Over the native protocol too, where `ACL LOG` has the first denial of a batch.
    let mut native = Native::log_in(&server, "cook", b"ham");
    let put = Operation::Put { value: b"1", condition: PutCondition::Always };
    let mut errors = BTreeSet::new();
    while errors.len() < 2 && begun.elapsed() < Duration::from_secs(60) {
        native.execute(1, &[Request { key: b"a", operation: put }], |_, response| {
            errors.insert(response.unwrap_err() as u8);
        });
    }
    assert_eq!(errors, [WireError::NotPermitted as u8, WireError::TooFast as u8].into());
    let log = log(&mut admin);
    assert!(log.contains("\r\ncommand\r\n") && log.contains("\r\nset\r\n") && log.contains("\r\ncook\r\n"), "{log}");
    server.stop();
}

#[test]
fn guesses_are_slow() {
    let server = server(1, 32 << 20);
    let mut admin = Resp::connect(&server);
    admin.expect("ACL SETUSER cook on >ham +@all\r\n", "+OK\r\n");
    let mut stranger = Resp::connect(&server);
    let replies: Vec<String> = (0..30).map(|_| stranger.text_of_line("AUTH cook egg\r\n")).collect();
    let wrong = replies.iter().filter(|reply| reply.starts_with("-WRONGPASS")).count();
    assert!((10..20).contains(&wrong), "{wrong}");
    let told = "-ERR too many wrong passwords from this address: wait a few seconds, then try again\r\n";
    assert_eq!(replies[29], told);
    assert_eq!(stranger.text_of_line("AUTH cook ham\r\n"), told, "also a right one");
    admin.expect("PING\r\n", "+PONG\r\n");
    server.stop();
}

#[test]
fn a_file_of_users_is_taken_as_a_whole() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("users.acl");
    let settings = ServerSettings { users: Some(path.clone()), ..ServerSettings::default() };
    let error = |text: &str| {
        std::fs::write(&path, text).unwrap();
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        Server::start(&ServerSettings { native: any, resp: Some(any), memory: 48 << 20, ..settings.clone() })
            .unwrap_err()
            .to_string()
    };
    assert!(error("user cook on\nuser x +nosuch\n").contains("line 2: the rule '+nosuch': Unknown command"));
    std::fs::write(&path, "user default off\nuser admin on >pw allkeys +@all\nuser cook on >ham ~a* +get\n").unwrap();
    let server = start(settings);
    assert!(server.needs_password());
    let mut admin = Resp::connect(&server);
    admin.expect("PING\r\nAUTH admin pw\r\n", "-NOAUTH Authentication required.\r\n+OK\r\n");
    let [mut cook, mut second] = [Resp::connect(&server), Resp::connect(&server)];
    cook.expect("AUTH cook ham\r\nGET a\r\n", "+OK\r\n$-1\r\n");
    second.expect("AUTH admin pw\r\n", "+OK\r\n");
    // A file that is wrong changes nothing.
    std::fs::write(&path, "user default off\nuser cook nonsense\n").unwrap();
    let wrong = server.read_users().unwrap_err().to_string();
    assert!(wrong.contains("line 2: the rule 'nonsense': Syntax error") && wrong.contains("choose"), "{wrong}");
    admin.send("ACL LOAD\r\n");
    assert!(admin.line().contains("line 2"));
    cook.expect("GET a\r\n", "$-1\r\n");
    // Nor does one that a full disk has left empty.
    std::fs::write(&path, "").unwrap();
    let empty = server.read_users().unwrap_err().to_string();
    assert!(empty.contains("users.acl: it is empty, and would delete all users"), "{empty}");
    admin.send("ACL LOAD\r\n");
    assert!(admin.line().contains("it is empty"));
    cook.expect("GET a\r\n", "$-1\r\n");
    std::fs::write(&path, "user default off\nuser admin on >pw allkeys +@all\nuser cook on >ham ~b* +get\n").unwrap();
    assert!(server.read_users().unwrap());
    cook.expect("GET a\r\nGET b\r\n", format!("{NO_KEY}$-1\r\n"));
    admin.expect("ACL SETUSER cook +set\r\nACL SAVE\r\nACL SETUSER cook -set\r\nACL LOAD\r\n", "+OK\r\n".repeat(4));
    cook.expect("SET b 1\r\n", "+OK\r\n");
    std::fs::write(&path, "user default off\nuser admin on >pw allkeys +@all\n").unwrap();
    admin.expect("ACL LOAD\r\n", "+OK\r\n");
    cook.expect_end();
    second.expect("ACL USERS\r\n", "*2\r\n$5\r\nadmin\r\n$7\r\ndefault\r\n");
    server.stop();
}

#[test]
fn commands_about_users() {
    let server = server(1, 32 << 20);
    let mut admin = Resp::connect(&server);
    admin.expect("ACL GETUSER cook\r\nACL DELUSER cook\r\n", "$-1\r\n:0\r\n");
    admin.expect("ACL DELUSER default\r\n", "-ERR The 'default' user cannot be removed\r\n");
    admin.expect("ACL SETUSER 'a b' on\r\n", "-ERR Usernames can't contain spaces or null characters\r\n");
    admin.expect("ACL LOAD\r\n", "-ERR Skep has no file of users: start it with --acl-file\r\n");
    for (rule, reason) in [
        ("+nosuch", "Unknown command or category name in ACL"),
        ("+config|nosuch", "Unknown command or category name in ACL"),
        ("nonsense", "Syntax error"),
        ("space:nowhere", "Syntax error"),
        ("#12", "The password hash must be exactly 64 characters and contain only lowercase hexadecimal characters"),
        ("<x", "The password you are trying to remove from the user does not exist"),
        ("(+get)", "Selectors, which are rules in parentheses, are not supported: make another user"),
    ] {
        admin.expect(
            format!("ACL SETUSER b {rule}\r\n"),
            format!("-ERR Error in ACL SETUSER modifier '{rule}': {reason}\r\n"),
        );
    }
    admin.expect("ACL SETUSER b on ~x nonsense\r\nACL GETUSER b\r\n", {
        "-ERR Error in ACL SETUSER modifier 'nonsense': Syntax error\r\n$-1\r\n"
    });
    admin.expect("ACL SETUSER b >p space:hash bytes:9 ~x\r\n", "+OK\r\n");
    let hash = "148de9c5a7a44d19e56cd9ae1a554bf67847afb0c58f6e12fa29ac7ddfca9940";
    admin.expect("ACL LIST\r\n", {
        let b = format!("user b off #{hash} ~x resetchannels space:hash bytes:9 -@all");
        format!("*2\r\n${}\r\n{b}\r\n$34\r\nuser default on nopass ~* &* +@all\r\n", b.len())
    });
    admin.expect(
        "ACL DRYRUN b GET x\r\n",
        "$51\r\nUser b has no permissions to run the 'get' command\r\n".replace("51", "50"),
    );
    admin.expect("ACL DRYRUN default GET x\r\nACL DRYRUN b nosuch\r\nACL DRYRUN n get x\r\n", {
        "+OK\r\n-ERR Command 'nosuch' not found\r\n-ERR User 'n' not found\r\n"
    });
    admin.send("ACL GENPASS\r\nACL GENPASS 5\r\n");
    let lines: Vec<String> = (0..4).map(|_| admin.line()).collect();
    assert_eq!((&*lines[0], lines[1].len(), &*lines[2], lines[3].len()), ("$64\r\n", 66, "$2\r\n", 4));
    admin.expect("ACL LOG RESET\r\nACL LOG\r\n", "+OK\r\n*0\r\n");
    server.stop();
}
