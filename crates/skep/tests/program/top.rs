//! `skep top` on a terminal, and at the ports of others.

use std::process::Command;

use crate::process::{Server, assert_refusal, output};
use crate::terminal::Terminal;

/// Starts a server with metrics and returns it with their address.
fn start() -> (Server, String) {
    let server = Server::start(&["--metrics", "127.0.0.1:0"]);
    let line = server.screen.lines().find_map(|line| line.trim_start().strip_prefix("metrics "));
    let address = line.expect("the screen names the address").trim().to_owned();
    (server, address)
}

#[test]
fn a_signal_restores_the_terminal() {
    let (_server, address) = start();
    for (signal, code) in [("TERM", 143), ("HUP", 129), ("INT", 130)] {
        let folder = tempfile::tempdir().expect("a folder");
        let pid = folder.path().join("pid");
        let top = format!("sh -c 'echo $$ > {}; exec $SKEP top {address}'", pid.display());
        let command = format!("stty rows 30 cols 100; {top}; echo; echo code $?; {top}; echo the code is $?; stty -a");
        // The first one ends by a key, and the second one by the signal.
        let mut terminal = Terminal::start(&command, folder.path());
        terminal.wait_for("operations");
        terminal.type_in(b"q");
        terminal.wait_for("code 0");
        terminal.wait_for_after("code 0", "operations");
        let id = std::fs::read_to_string(&pid).expect("the shell has written it");
        let kill = format!("kill -{signal} {id}");
        assert!(Command::new("sh").args(["-c", &kill]).status().expect("there is a shell").success());
        terminal.wait_for(&format!("the code is {code}"));
        terminal.wait();
        let printed = terminal.printed();
        let (_, end) = printed.rsplit_once("\u{1b}[?1049h").expect("it has used the alternate screen");
        for part in ["\u{1b}[?1049l", "\u{1b}[?25h", " icanon", " echo"] {
            assert!(end.contains(part), "{signal}: {part:?} is not in {end:?}");
        }
        assert!(!end.contains("-icanon"), "{signal}: {end}");
    }
}

#[test]
fn the_port_of_another_protocol_is_named() {
    let server = Server::start(&[]);
    let resp = server.resp.as_deref().expect("the RESP port is on");
    for address in [resp, &server.native] {
        let parts = [address, "is not the port of a Skep server's metrics", "--metrics"];
        assert_refusal(&output(&["top", "--once", address]), 1, &parts);
    }
    assert_refusal(&output(&["top", "--once", "127.0.0.1:1"]), 1, &["no server shows its metrics", "skep serve"]);
}
