//! Runs `skep cli` and `skep bench` against a server that speaks TLS: the flags, and what their errors say.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Instant;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use skep::{Server, ServerSettings};
use skep_server::TlsSettings;
use tempfile::TempDir;

use crate::process::{WATCHDOG, assert_refusal, output, text};

/// Certificates of an authority, of a server and of a client, as files.
struct Files(TempDir);

impl Files {
    fn new() -> Files {
        let files = Files(tempfile::tempdir().unwrap());
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        std::fs::write(files.0.path().join("ca.pem"), authority.pem()).unwrap();
        for name in ["server", "client"] {
            let key = KeyPair::generate().unwrap();
            let certificate = CertificateParams::new(["localhost".to_owned()]).unwrap().signed_by(&key, &authority);
            std::fs::write(files.0.path().join(format!("{name}.pem")), certificate.unwrap().pem()).unwrap();
            std::fs::write(files.0.path().join(format!("{name}.key")), key.serialize_pem()).unwrap();
        }
        files
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).display().to_string()
    }

    fn server(&self, asks_clients: bool) -> Server {
        let path = |name| PathBuf::from(self.path(name));
        let tls = TlsSettings {
            certificate: path("server.pem"),
            key: path("server.key"),
            client_ca: asks_clients.then(|| path("ca.pem")),
        };
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let settings = ServerSettings {
            native: any,
            resp: Some(any),
            tls: Some(tls),
            memory: 64 << 20,
            shards: 2,
            pin_threads: false,
            ..ServerSettings::default()
        };
        Server::start(&settings).expect("the server starts")
    }
}

/// Runs `skep cli` at the native port of a server, with these flags and words.
fn cli(server: &Server, flags: &[&str], words: &[&str]) -> std::process::Output {
    let address = format!("localhost:{}", server.native_address().port());
    output(&[&["cli", "--addr", &address], flags, words].concat())
}

#[test]
fn commands_reach_a_server_over_tls() {
    let files = Files::new();
    let (ca, cert, key) = (files.path("ca.pem"), files.path("client.pem"), files.path("client.key"));
    for asks_clients in [false, true] {
        let server = files.server(asks_clients);
        let mut flags = vec!["--tls", "--tls-ca", &ca];
        if asks_clients {
            assert_refusal(&cli(&server, &flags, &["ping"]), 1, &["wants a certificate", "--tls-cert"]);
            flags.extend(["--tls-cert", &cert, "--tls-key", &key]);
        }
        let put = cli(&server, &flags, &["put", "k", "v"]);
        assert_eq!((text(&put.stdout), text(&put.stderr)), ("OK\n".to_owned(), String::new()));
        // The other flags include the first one, and may follow the command.
        let get = cli(&server, &[], &[&["get", "k"], &flags[1..]].concat());
        assert_eq!((text(&get.stdout), text(&get.stderr)), ("v".to_owned(), String::new()));
        let address = format!("tls:localhost:{}", server.native_address().port());
        let small = ["--records", "100", "--operations", "1000", "--clients", "1"];
        let bench = output(&[&["bench", "--addr", &address], &flags[1..], &small].concat());
        assert_eq!(bench.status.code(), Some(0), "{}", text(&bench.stderr));
        let offered = ["--records", "100", "--operations", "1000", "--rate", "10000", "--json"];
        let bench = output(&[&["bench", "--addr", &address], &flags[1..], &offered].concat());
        assert!(
            text(&bench.stdout).contains("\"operations\":1000,"),
            "{} {}",
            text(&bench.stdout),
            text(&bench.stderr)
        );
        server.stop();
    }
}

#[test]
fn the_resp_port_serves_functions_and_exports_over_tls() {
    let files = Files::new();
    let (ca, cert, key) = (files.path("ca.pem"), files.path("client.pem"), files.path("client.key"));
    for asks_clients in [false, true] {
        let server = files.server(asks_clients);
        let port = server.resp_address().expect("it listens for RESP").port();
        let address = format!("localhost:{port}");
        let mut flags = vec!["--addr", &address, "--tls-ca", &ca];
        if asks_clients {
            assert_eq!(output(&[&["function"], &flags[..], &["list"]].concat()).status.code(), Some(1));
            flags.extend(["--tls-cert", &cert, "--tls-key", &key]);
        }
        let module = files.path("m.rs");
        std::fs::write(&module, "mod m { #[update] fn halve(v: u8, by: u8) -> u8 { v / by } }").unwrap();
        let loaded = output(&[&["function"], &flags[..], &["load", &module]].concat());
        assert_eq!((text(&loaded.stdout), text(&loaded.stderr)), ("m\n".to_owned(), String::new()));
        assert_eq!(cli(&server, &flags[2..], &["put", "k", "v"]).status.code(), Some(0));
        let exported = output(&[&["export", "-", "--format", "csv"], &flags[..]].concat());
        let expected = "space,key,value,expires_at_ms,encoding\nhash,k,v,,text\n";
        assert_eq!(text(&exported.stdout), expected, "{}", text(&exported.stderr));
        server.stop();
    }
}

#[test]
fn handshakes_that_fail_are_counted() {
    let files = Files::new();
    let strangers = Files::new();
    let strange = strangers.path("ca.pem");
    let server = files.server(false);
    let observer = server.observer();
    let failed = || observer.observe().connections.handshakes_failed;
    let ca = files.path("ca.pem");
    assert_eq!(cli(&server, &["--tls-ca", &ca], &["ping"]).status.code(), Some(0));
    assert_eq!(failed(), 0);
    // An authority that the client does not trust, and no TLS.
    for (flags, expected) in [(&["--tls-ca", &strange][..], 1), (&[], 2)] {
        assert_eq!(cli(&server, flags, &["ping"]).status.code(), Some(1));
        // The server may close its end a little later.
        let begun = Instant::now();
        while failed() < expected {
            assert!(begun.elapsed() < WATCHDOG);
        }
        assert_eq!(failed(), expected);
    }
    server.stop();
}

#[test]
fn errors_of_tls_say_what_to_do() {
    let files = Files::new();
    let stranger = Files::new();
    let (ca, cert, strange) = (files.path("ca.pem"), files.path("client.pem"), stranger.path("ca.pem"));
    let server = files.server(false);
    let fail = |flags: &[&str], code, parts: &[&str]| assert_refusal(&cli(&server, flags, &["ping"]), code, parts);
    fail(&["--tls-ca", &strange], 1, &["no authority that this client trusts", "--tls-ca"]);
    fail(&["--tls-ca", "/missing.pem"], 1, &["/missing.pem: No such file", "choose a PEM file"]);
    fail(&[], 1, &["it speaks TLS: connect to tls:HOST:PORT (skep cli --tls)"]);
    let address = format!("127.0.0.1:{}", server.native_address().port());
    let by_number = output(&["cli", "--addr", &address, "--tls-ca", &ca, "ping"]);
    assert_refusal(&by_number, 1, &["is not for `127.0.0.1`", "localhost"]);
    assert_refusal(
        &output(&["cli", "--tls", "--addr", "shm:/run/skep.sock", "ping"]),
        2,
        &["shm has no TLS", "--addr"],
    );
    let half = output(&["cli", "--tls-cert", &cert, "ping"]);
    assert!(half.status.code() == Some(2) && text(&half.stderr).contains("--tls-key"), "{}", text(&half.stderr));
    server.stop();
}
