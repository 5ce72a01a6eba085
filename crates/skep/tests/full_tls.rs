//! Follows `docs/security.md`: makes certificates with its commands, and connects with redis-cli and openssl.

#[expect(dead_code, reason = "the tests of other pages use the other functions")]
mod documented;
mod full_run;
#[path = "program/process.rs"]
#[expect(dead_code, reason = "the tests of the program use the other functions")]
mod process;

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use documented::blocks;
use full_run::is_full_run;
use process::{Server, text};

const PAGE: &str = include_str!("../../../docs/security.md");

/// Runs commands of a shell in a directory.
fn shell(directory: &Path, commands: &str) -> Output {
    let mut command = Command::new("sh");
    command.args(["-ec", commands]).current_dir(directory).stdin(Stdio::null());
    command.output().expect("there is a shell")
}

/// Returns the commands of the page that begin with these words.
fn block(beginning: &str) -> String {
    let found = blocks(PAGE).into_iter().find(|block| block.kind == "sh" && block.text.starts_with(beginning));
    found.expect("the page has these commands").text
}

/// Makes an authority and a certificate in a directory.
fn certify(directory: &Path) {
    let made = shell(directory, &block("openssl req"));
    assert!(made.status.success(), "{}", text(&made.stderr));
}

/// Returns the last replies of redis-cli to a command.
fn redis_cli(server: &Server, directory: &Path, words: &str) -> String {
    let port = server.resp.as_ref().and_then(|address| address.rsplit(':').next()).expect("it listens for RESP");
    let output = shell(directory, &format!("redis-cli -h localhost -p {port} {words} 2>&1 || true"));
    text(&output.stdout).trim_end().to_owned()
}

/// Returns the issuer's certificate fingerprint that the server shows.
fn shown(server: &Server, directory: &Path) -> String {
    let address = server.resp.as_ref().expect("it listens for RESP");
    let connect = format!("openssl s_client -connect {address} -CAfile ca.pem -verify_return_error");
    let output = shell(directory, &format!("{connect} 2>&1 | openssl x509 -noout -fingerprint 2>&1 || true"));
    text(&output.stdout)
}

#[test]
fn the_page_on_security_can_be_followed() {
    if !is_full_run() {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path();
    certify(path);
    let file = |name: &str| path.join(name).display().to_string();
    let files = [file("server.pem"), file("server.key"), file("ca.pem")];
    let tls = ["--tls-cert", &files[0], "--tls-key", &files[1]];
    let server = Server::start(&tls);
    assert!(server.screen.contains(", TLS\n"), "{}", server.screen);
    assert_eq!(redis_cli(&server, path, "--tls --cacert ca.pem PING"), "PONG");
    assert_eq!(redis_cli(&server, path, "--tls --cacert ca.pem SET a 1"), "OK");
    let plain = redis_cli(&server, path, "PING");
    assert!(plain.contains("ERR this port speaks TLS"), "{plain}");
    let wrong = redis_cli(&server, path, "--tls --cacert server.pem PING");
    assert!(wrong.contains("verify failed"), "{wrong}");

    // New certificates, and then files that are wrong.
    let before = shown(&server, path);
    assert!(before.contains("Fingerprint="), "{before}");
    certify(path);
    server.signal("HUP");
    let changed =
        (0..1000).map(|_| shown(&server, path)).find(|shown| shown.contains("Fingerprint=") && *shown != before);
    let changed = changed.expect("the new certificate");
    fs::write(path.join("server.pem"), "nothing").expect("a file");
    server.signal("HUP");
    assert_eq!(shown(&server, path), changed);
    assert_eq!(redis_cli(&server, path, "--tls --cacert ca.pem GET a"), "1");
    drop(server);

    // Certificates of clients.
    certify(path);
    let asking = [&tls[..], &["--tls-client-ca", &files[2]]].concat();
    let server = Server::start(&asking);
    let unknown = redis_cli(&server, path, "--tls --cacert ca.pem PING");
    assert!(!unknown.contains("PONG"), "{unknown}");
    assert_eq!(redis_cli(&server, path, "--tls --cacert ca.pem --cert server.pem --key server.key PING"), "PONG");
    drop(server);

    let refused = process::refusal(&["serve", "--tls-cert", &files[0]]);
    process::assert_refusal(&refused, 2, &["TLS needs a certificate and its private key: add --tls-key FILE"]);
    fs::write(path.join("server.key"), "nothing").expect("a file");
    let refused = process::refusal(&[&["serve"], &tls[..]].concat());
    process::assert_refusal(&refused, 2, &["server.key: it has no private key: choose a PEM file with a private key"]);
}
