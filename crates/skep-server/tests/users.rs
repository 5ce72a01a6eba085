//! Users: logins, rules, and what they deny.

mod support;

use std::net::SocketAddr;

use skep_server::{Server, ServerSettings};
use support::{Resp, server};

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
