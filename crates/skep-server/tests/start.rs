//! What keeps a server from starting, in words that say what to do.

mod support;

use std::net::{SocketAddr, TcpListener};

use skep_server::{Server, ServerSettings, StartError};
use support::Resp;

fn settings() -> ServerSettings {
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    ServerSettings { native: any, resp: Some(any), memory: 16 << 20, pin_threads: false, ..ServerSettings::default() }
}

#[track_caller]
fn refused(settings: &ServerSettings, sentence: &str) -> StartError {
    let error = Server::start(settings).expect_err("this server must not start");
    let text = error.to_string();
    assert!(text.contains(sentence) && !text.contains('\n'), "{text}");
    error
}

#[test]
fn bad_settings() {
    refused(&ServerSettings { shards: 0, ..settings() }, "choose a number from 1 to");
    refused(&ServerSettings { delay_max: Some(std::time::Duration::ZERO), ..settings() }, "choose one from 1ms to 60s");
    refused(&ServerSettings { memory: 1 << 50, ..settings() }, "choose at most");
    refused(&ServerSettings { ordered_memory: 1 << 50, ..settings() }, "choose at most");
    refused(&ServerSettings { ordered_memory: 100, ..settings() }, "choose a larger --ordered-memory");
    refused(&ServerSettings { connection_memory: 1 << 50, ..settings() }, "choose at most");
    refused(&ServerSettings { connection_memory: 100 << 20, ..settings() }, "choose at least 164626432 bytes");
    let few = ServerSettings { connection_memory: 1 << 20, connections_max: 1, ..settings() };
    refused(&few, "choose at least 8388608 bytes");
    refused(&ServerSettings { connections_max: 0, ..settings() }, "choose at least 1");
    refused(&ServerSettings { shards: 200, memory: 1 << 30, ..settings() }, "an ordered space serves up to 127");
    let crowded = ServerSettings { shards: 256, memory: 1 << 30, ordered_memory: 0, ..settings() };
    if std::thread::available_parallelism().is_ok_and(|cores| cores.get() < 256) {
        refused(&ServerSettings { pin_threads: true, ..crowded }, "256 shards cannot be pinned");
    }
    refused(&ServerSettings { memory: 100, ..settings() }, "choose a larger --memory");
    refused(&ServerSettings { hash_index_ratio: Some(1.5), ..settings() }, "hash index ratio");
    refused(&ServerSettings { inline_threshold: Some(51), ..settings() }, "inline threshold");
    refused(&ServerSettings { native: SocketAddr::from(([192, 0, 2, 1], 0)), ..settings() }, "cannot listen on native");
}

#[test]
fn a_port_in_use() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let error = refused(&ServerSettings { resp: Some(address), ..settings() }, "stop the program that listens there");
    assert!(matches!(error, StartError::AddressInUse { front_end: "RESP", .. }));
    refused(&ServerSettings { native: address, ..settings() }, &address.to_string());
    drop(taken);
    // And after a server has stopped, its port can be had at once.
    for _ in 0..3 {
        let server = Server::start(&ServerSettings { resp: Some(address), ..settings() }).unwrap();
        Resp::connect(&server).expect("PING\r\n", "+PONG\r\n");
    }
}

#[test]
fn without_resp() {
    let server = Server::start(&ServerSettings { resp: None, prefault: true, ..settings() }).unwrap();
    assert_eq!(server.resp_address(), None);
    assert_ne!(server.native_address().port(), 0);
}

#[test]
fn pinned_threads_serve_too() {
    let server = Server::start(&ServerSettings { pin_threads: true, ..settings() }).unwrap();
    Resp::connect(&server).expect("PING\r\n", "+PONG\r\n");
}

#[test]
fn too_many_connections() {
    let server = Server::start(&ServerSettings { connections_max: 2, ..settings() }).unwrap();
    let mut first = Resp::connect(&server);
    first.expect("PING\r\n", "+PONG\r\n");
    let mut second = Resp::connect(&server);
    second.expect("PING\r\n", "+PONG\r\n");
    let mut third = Resp::connect(&server);
    third.expect_bytes("-ERR max number of clients reached\r\n");
    third.expect_end();
    assert!(first.text("INFO stats").contains("rejected_connections:1\r\n"));
    second.expect("QUIT\r\n", "+OK\r\n");
    second.expect_end();
    drop(second);
    // The place is free when the server has noticed.
    loop {
        let mut fourth = Resp::connect(&server);
        let refused = std::io::Write::write_all(&mut fourth.0, b"ECHO hello\r\n").is_err();
        let mut byte = [0];
        if !refused && matches!(std::io::Read::read(&mut fourth.0, &mut byte), Ok(1)) && byte == *b"$" {
            break;
        }
    }
}
