//! Tests both clients over TLS, with certificates that the tests make: values and batches of all sizes, connections that
//! are cut, and a named error for each way in which client and server do not trust or understand each other.

#[path = "support/either.rs"]
mod either;
#[path = "support/tls.rs"]
mod tls;

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::thread;
use std::time::Duration;

use either::{EitherClient, call};
use skep_client::{
    ClientError, ClientIdentity, ClientSettings, ClientTlsSettings, HASH_SPACE, KeyRange, ORDERED_SPACE, Operation,
    PutCondition, Reply, Request, Responses, TlsFailure,
};
use skep_server::{Server, ServerSettings, TlsSettings};
use tls::{Authority, LONG, Speaks, TlsRelay, Years};

fn start_skep(shards: u16) -> Server {
    start_skep_with(shards, None)
}

fn start_skep_with(shards: u16, tls: Option<TlsSettings>) -> Server {
    let settings = ServerSettings {
        native: SocketAddr::from(([127, 0, 0, 1], 0)),
        resp: None,
        tls,
        memory: u64::from(shards) << 26,
        shards,
        pin_threads: false,
        ..ServerSettings::default()
    };
    Server::start(&settings).expect("the server starts")
}

/// Returns the reason for which both clients cannot connect.
#[track_caller]
fn failures(address: &str, settings: &ClientSettings) -> [TlsFailure; 2] {
    [false, true].map(|is_async| match EitherClient::connect(is_async, address, 0, settings).err() {
        Some(ClientError::Tls { reason, address: named }) => {
            assert!(named.starts_with("tls:"), "{named}");
            reason
        }
        other => panic!("{address}, async {is_async}: {other:?}"),
    })
}

/// Asserts that both clients fail for one reason.
macro_rules! assert_fails {
    ($address:expr, $settings:expr, $pattern:pat, $text:expr) => {
        for failure in failures($address, $settings) {
            assert!(matches!(failure, $pattern), "{failure:?}");
            assert!(failure.to_string().contains($text), "{failure}");
        }
    };
}

fn put<'a>(key: &'a [u8], value: &'a [u8]) -> Request<'a> {
    Request { key, operation: Operation::Put { value, condition: PutCondition::Always } }
}

#[test]
fn values_and_batches_of_all_sizes_pass() {
    let authority = Authority::new();
    authority.sign("server", &["localhost", "127.0.0.1"], LONG);
    let server = start_skep(3);
    for only_tls12 in [false, true] {
        let speaks = Speaks { only_tls12, ..Speaks::default() };
        let relay = TlsRelay::start(authority.server("server", speaks), server.native_address());
        for (is_async, name) in [(false, "localhost"), (true, "127.0.0.1")] {
            let settings = authority.trusted();
            let mut client = EitherClient::connect(is_async, relay.named(name), HASH_SPACE, &settings).unwrap();
            for size in [0, 1, 100, 16 << 10, 17_000, 1 << 20] {
                let value: Vec<u8> = (0..size).map(|index| (index % 251) as u8).collect();
                call!(client, put(b"k", &value)).unwrap();
                assert!(call!(client, get(b"k")).unwrap() == Some(value), "{size}");
            }
            deep_batches_pass(&mut client);
            client.select(ORDERED_SPACE);
            let keys: Vec<[u8; 4]> = (0..3000_u32).map(u32::to_be_bytes).collect();
            let puts: Vec<_> = keys.iter().map(|key| put(key, key)).collect();
            call!(client, execute(&puts, &mut Responses::new())).unwrap();
            assert_eq!(call!(client, scan(KeyRange::all())).unwrap().len(), keys.len());
            // The tickets of a session do not look like its end.
            assert_eq!(client.reconnection_count(), 0);
        }
    }
    server.stop();
}

/// Sends small requests and 1 MiB ones together, more than all buffers hold.
fn deep_batches_pass(client: &mut EitherClient) {
    let keys: Vec<Vec<u8>> = (0..5000_u32).map(|number| number.to_le_bytes().to_vec()).collect();
    let large = vec![7; 1 << 20];
    let value = |index: usize| if index.is_multiple_of(500) { large.as_slice() } else { keys[index].as_slice() };
    let puts: Vec<_> = keys.iter().enumerate().map(|(index, key)| put(key, value(index))).collect();
    let gets: Vec<_> = keys.iter().map(|key| Request { key, operation: Operation::Get }).collect();
    let mut responses = Responses::new();
    for _ in 0..2 {
        call!(*client, execute(&puts, &mut responses)).unwrap();
        assert!(responses.iter().all(|response| response == Ok(Reply::Done)));
        call!(*client, execute(&gets, &mut responses)).unwrap();
        assert!(responses.iter().enumerate().all(|(index, response)| response == Ok(Reply::Value(value(index)))));
    }
}

#[test]
fn clients_speak_tls_with_skep_itself() {
    let authority = Authority::new();
    authority.sign("server", &["localhost"], LONG).sign("client", &["client"], LONG);
    let tls = |asks_clients: bool| TlsSettings {
        certificate: authority.path("server.pem"),
        key: authority.path("server.key"),
        client_ca: asks_clients.then(|| authority.path("ca.pem")),
    };
    for asks_clients in [false, true] {
        let server = start_skep_with(2, Some(tls(asks_clients)));
        let address = format!("tls:localhost:{}", server.native_address().port());
        let trusted = authority.trusted();
        let identity = Some(authority.identity("client"));
        let settings = ClientSettings { tls: ClientTlsSettings { identity, ..trusted.tls.clone() }, ..trusted.clone() };
        for is_async in [false, true] {
            let mut client = EitherClient::connect(is_async, address.as_str(), HASH_SPACE, &settings).unwrap();
            deep_batches_pass(&mut client);
            // New certificates do not end a session.
            assert!(server.read_certificates().unwrap());
            assert!(call!(client, get(b"missing")).unwrap().is_none());
            assert_eq!(client.reconnection_count(), 0);
        }
        if asks_clients {
            assert_fails!(&address, &trusted, TlsFailure::CertificateNeeded, "--tls-cert");
        }
        for client in EitherClient::connect_both(server.native_address(), 0, &trusted) {
            let error = client.err().unwrap();
            assert!(error.to_string().contains("tls:HOST:PORT"), "{error}");
        }
        server.stop();
    }
}

#[test]
fn a_connection_that_was_cut_is_made_again() {
    let authority = Authority::new();
    authority.sign("server", &["localhost"], LONG);
    let server = start_skep(2);
    let relay = TlsRelay::start(authority.server("server", Speaks::default()), server.native_address());
    for is_async in [false, true] {
        let settings = ClientSettings { retries_max: 10, ..authority.trusted() };
        let mut client = EitherClient::connect(is_async, relay.named("localhost"), HASH_SPACE, &settings).unwrap();
        call!(client, put(b"k", b"v")).unwrap();
        for _ in 0..3 {
            relay.cut();
            assert_eq!(call!(client, get(b"k")).unwrap(), Some(b"v".to_vec()));
        }
        assert!((1..=30).contains(&client.reconnection_count()));
    }
    drop(relay);
    server.stop();
}

#[test]
fn a_server_that_is_not_trusted_is_refused_with_the_reason() {
    let authority = Authority::new();
    authority.sign("server", &["localhost"], LONG);
    authority.sign("expired", &["localhost"], Years { first: 2020, last: 2021 });
    authority.sign("early", &["localhost"], Years { first: 3000, last: 3001 });
    let nowhere = SocketAddr::from(([127, 0, 0, 1], 9));
    let relay = |name| TlsRelay::start(authority.server(name, Speaks::default()), nowhere);

    let server = relay("server");
    let stranger = Authority::new();
    assert_fails!(&server.named("localhost"), &stranger.trusted(), TlsFailure::UnknownAuthority, "--tls-ca");
    assert_fails!(&server.named("127.0.0.1"), &authority.trusted(), TlsFailure::WrongName(_), "localhost");
    let expired = relay("expired");
    assert_fails!(&expired.named("localhost"), &authority.trusted(), TlsFailure::Expired, "expired");
    let early = relay("early");
    assert_fails!(&early.named("localhost"), &authority.trusted(), TlsFailure::NotYetValid, "clocks");
}

#[test]
fn a_server_can_ask_for_the_certificate_of_the_client() {
    let authority = Authority::new();
    authority.sign("server", &["localhost"], LONG);
    authority.sign("client", &["client"], LONG);
    let stranger = Authority::new();
    stranger.sign("client", &["client"], LONG);
    let server = start_skep(2);
    for only_tls12 in [true, false] {
        let speaks = Speaks { only_tls12, asks_clients: true };
        let relay = TlsRelay::start(authority.server("server", speaks), server.native_address());
        let address = relay.named("localhost");
        let with = |identity: Option<ClientIdentity>| {
            let trusted = authority.trusted();
            ClientSettings { tls: ClientTlsSettings { identity, ..trusted.tls }, ..trusted }
        };
        for is_async in [false, true] {
            let settings = with(Some(authority.identity("client")));
            let mut client = EitherClient::connect(is_async, address.as_str(), HASH_SPACE, &settings).unwrap();
            call!(client, put(b"k", b"v")).unwrap();
        }
        // TLS 1.2 has no alert for a missing certificate.
        if !only_tls12 {
            assert_fails!(&address, &with(None), TlsFailure::CertificateNeeded, "--tls-cert");
        }
        let strange = with(Some(stranger.identity("client")));
        assert_fails!(&address, &strange, TlsFailure::CertificateRefused(_), "--tls-client-ca");
    }
    server.stop();
}

/// Starts a server that sends these bytes to each client and closes the connection after the first bytes of the client.
fn start_stranger(bytes: &'static [u8]) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            // A close with bytes that were not read would destroy the reply.
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(bytes);
        }
    });
    address
}

#[test]
fn a_port_without_tls_is_named() {
    let authority = Authority::new();
    let settings = authority.trusted();
    let resp = start_stranger(b"-ERR unknown command\r\n").port();
    assert_fails!(&format!("tls:localhost:{resp}"), &settings, TlsFailure::NotTls, "does not speak TLS");
    let closing = start_stranger(b"").port();
    assert_fails!(&format!("tls:localhost:{closing}"), &settings, TlsFailure::Closed, "does it speak TLS");
    // Skep's own native port.
    let server = start_skep(1);
    for failure in failures(&format!("tls:127.0.0.1:{}", server.native_address().port()), &settings) {
        assert!(matches!(failure, TlsFailure::NotTls | TlsFailure::Closed), "{failure:?}");
    }
    server.stop();
}

#[test]
fn a_server_that_does_not_shake_hands_causes_a_timeout() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("tls:localhost:{}", listener.local_addr().unwrap().port());
    let authority = Authority::new();
    let settings = ClientSettings { connect_timeout: Duration::from_millis(50), ..authority.trusted() };
    for is_async in [false, true] {
        let error = EitherClient::connect(is_async, address.as_str(), 0, &settings).err().unwrap();
        assert!(matches!(error, ClientError::Connect { .. }), "{error:?}");
    }
}

#[test]
fn a_plain_client_of_a_port_with_tls_is_told_to_use_it() {
    let authority = Authority::new();
    authority.sign("server", &["localhost"], LONG);
    let relay = TlsRelay::start(authority.server("server", Speaks::default()), SocketAddr::from(([127, 0, 0, 1], 9)));
    for client in EitherClient::connect_both(relay.address, 0, &authority.trusted()) {
        let error = client.err().unwrap();
        assert!(matches!(error, ClientError::NotWelcome { .. }), "{error:?}");
        assert!(error.to_string().contains("tls:HOST:PORT"), "{error}");
    }
}

#[test]
fn files_that_cannot_be_used_are_named() {
    let authority = Authority::new();
    authority.sign("client", &["client"], LONG).sign("other", &["client"], LONG);
    fs::write(authority.path("empty.pem"), "").unwrap();
    let address = "tls:localhost:9";
    let with_ca = |name| {
        let tls = ClientTlsSettings { ca: Some(authority.path(name)), identity: None };
        ClientSettings { tls, ..ClientSettings::default() }
    };
    assert_fails!(address, &with_ca("missing.pem"), TlsFailure::File { .. }, "missing.pem: No such file");
    assert_fails!(address, &with_ca("empty.pem"), TlsFailure::File { .. }, "empty.pem: it has no certificates");
    assert_fails!(address, &with_ca("client.key"), TlsFailure::File { .. }, "choose a PEM file with certificates");
    let with = |certificate: &str, key: &str| {
        let identity = ClientIdentity { certificate: authority.path(certificate), key: authority.path(key) };
        let trusted = authority.trusted();
        ClientSettings { tls: ClientTlsSettings { identity: Some(identity), ..trusted.tls }, ..trusted }
    };
    assert_fails!(address, &with("client.pem", "client.pem"), TlsFailure::File { .. }, "with a private key");
    assert_fails!(address, &with("client.pem", "other.key"), TlsFailure::Identity { .. }, "choose the key");
    let error = EitherClient::connect(false, "tls:not a name:9", 0, &authority.trusted()).err().unwrap();
    assert!(matches!(error, ClientError::Connect { .. } | ClientError::Tls { .. }), "{error:?}");
}
