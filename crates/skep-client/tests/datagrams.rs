//! Tests the blocking client over UDP against Skep's server: through a network with faults, and across ends of clients
//! and servers. The harness compares all operations with the naive store.
//!
//! `SKEP_LONG` multiplies the additions: 10⁵ without it.

#[path = "support/relay.rs"]
mod relay;
#[expect(dead_code, reason = "the other tests of the clients use the rest")]
mod support;

use std::net::{SocketAddr, UdpSocket};
use std::thread;
use std::time::Duration;

use relay::{Faults, Relay};
use skep_client::{
    Client, ClientError, ClientSettings, Element, HASH_SPACE, ORDERED_SPACE, Operation, Reply, Request, Responses,
    Shape, Update, UpdateFunction,
};
use skep_server::{Server, ServerSettings};
use skep_store::naive::{EXPIRIES_END, Generator, GeneratorSettings, Mix, NaiveStore, OwnedRequest, seeds};
use support::as_response;

fn start(udp: SocketAddr, shards: u16) -> Server {
    let settings = ServerSettings {
        native: SocketAddr::from(([127, 0, 0, 1], 0)),
        resp: None,
        udp: Some(udp),
        memory: u64::from(shards) << 26,
        shards,
        ..ServerSettings::default()
    };
    Server::start(&settings).expect("the server starts")
}

fn start_anywhere(shards: u16) -> (Server, SocketAddr) {
    let server = start(SocketAddr::from(([127, 0, 0, 1], 0)), shards);
    let address = server.udp_address().expect("it has UDP ports");
    (server, address)
}

fn connect(address: SocketAddr, space: u16) -> Client {
    Client::connect(format!("udp:{address}"), space).expect("the server accepts")
}

/// An addition to a counter that begins with 0, and returns its value before.
const ADD: Operation<'_> = Operation::Update(Update {
    function: UpdateFunction::Add,
    element: Element::U64,
    shape: Shape::ScalarToScalar,
    operand: &1_u64.to_le_bytes(),
    initial: Some(&0_u64.to_le_bytes()),
    return_old: true,
});

fn counter(client: &mut Client, key: &[u8]) -> u64 {
    let value = client.get(key).unwrap().expect("the counter exists");
    u64::from_le_bytes(value.try_into().unwrap())
}

fn agrees_with_the_naive_store(client: &mut Client, seed: u64) {
    let mut naive = NaiveStore::new();
    naive.set_now(EXPIRIES_END);
    let mut responses = Responses::new();
    let settings =
        GeneratorSettings { seed, key_count: 300, invalid_per_mille: 50, mix: Mix::built_in(), ..Default::default() };
    let mut generator = Generator::new(settings);
    for batch_size in [1, 2, 3, 700, 0, 1, 2500, 30].into_iter().cycle().take(24) {
        let owned: Vec<OwnedRequest> = generator.by_ref().take(batch_size).collect();
        let requests: Vec<_> = owned.iter().map(OwnedRequest::as_request).collect();
        client.execute(&requests, &mut responses).unwrap();
        for (index, (request, response)) in requests.iter().zip(responses.iter()).enumerate() {
            let expected = naive.execute(request);
            assert!(response == as_response(&expected), "SKEP_SEED={seed}, request {index} of {batch_size}");
        }
    }
}

#[test]
fn the_client_agrees_with_the_naive_store() {
    for shards in [1, 3] {
        let (_server, address) = start_anywhere(shards);
        let mut client = connect(address, HASH_SPACE);
        assert_eq!(client.shard_count(), shards);
        agrees_with_the_naive_store(&mut client, seeds(&[1])[0]);
        client.select(ORDERED_SPACE);
        agrees_with_the_naive_store(&mut client, seeds(&[2])[0]);
        assert_eq!(client.reconnection_count(), 0);
    }
}

#[test]
fn the_client_agrees_with_the_naive_store_over_a_bad_network() {
    for seed in seeds(&[3, 4]) {
        let (_server, address) = start_anywhere(1);
        let relay = Relay::start(address, Faults { loss: 20, copies: 20, reordering: 100 }, seed);
        let mut client = connect(relay.address, HASH_SPACE);
        agrees_with_the_naive_store(&mut client, seed);
        assert_eq!(client.reconnection_count(), 0);
    }
}

#[test]
fn large_values_arrive_over_a_bad_network() {
    let (_server, address) = start_anywhere(1);
    let relay = Relay::start(address, Faults { loss: 10, copies: 10, reordering: 50 }, 5);
    let mut client = connect(relay.address, ORDERED_SPACE);
    for size in [1, 1300, 1400, 100_000, 1_000_000] {
        let value: Vec<u8> = (0..size).map(|index| (index * 7 % 251) as u8).collect();
        client.put(b"large", &value).unwrap();
        assert!(client.get(b"large").unwrap() == Some(value), "{size} bytes");
    }
}

/// Adds `count` times, in batches of different sizes. Checks that the client's own additions take effect in their order.
fn add(address: SocketAddr, own: &[u8], count: u64) {
    let mut client = connect(address, HASH_SPACE);
    let mut responses = Responses::new();
    let mut done = 0;
    for size in [1, 200, 7, 1000, 50].into_iter().cycle() {
        let size = (count - done).min(size);
        let requests: Vec<_> =
            (0..2 * size).map(|index| Request { key: [own, b"all"][index as usize % 2], operation: ADD }).collect();
        client.execute(&requests, &mut responses).unwrap();
        for response in responses.iter().step_by(2) {
            // The first addition returns the value that it began with.
            assert_eq!(response, Ok(Reply::Value(&done.to_le_bytes())));
            done += 1;
        }
        if done == count {
            return;
        }
    }
}

#[test]
fn additions_over_a_bad_network_happen_exactly_once() {
    let factor = std::env::var("SKEP_LONG").map_or(1, |factor| factor.parse().expect("SKEP_LONG is a number"));
    let clients: Vec<String> = (0..4).map(|index| format!("own {index}")).collect();
    let count = 25_000 * factor;
    let (_server, address) = start_anywhere(1);
    let relay = Relay::start(address, Faults { loss: 10, copies: 10, reordering: 50 }, 6);
    thread::scope(|scope| {
        for own in &clients {
            scope.spawn(|| add(relay.address, own.as_bytes(), count));
        }
    });
    let mut client = connect(address, HASH_SPACE);
    assert_eq!(counter(&mut client, b"all"), clients.len() as u64 * count);
    for own in &clients {
        assert_eq!(counter(&mut client, own.as_bytes()), count);
    }
    assert!(relay.lost() > count / 1000, "{} packets were lost", relay.lost());
}

#[test]
fn a_client_that_vanishes_harms_no_other() {
    let (_server, address) = start_anywhere(1);
    let mut other = connect(address, HASH_SPACE);
    for round in 1..=100 {
        let mut client = connect(address, HASH_SPACE);
        let requests = [Request { key: b"n", operation: ADD }; 500];
        client.execute(&requests, &mut Responses::new()).unwrap();
        // It is gone without a word.
        std::mem::forget(client);
        assert_eq!(counter(&mut other, b"n"), 500 * round);
    }
    assert_eq!(other.reconnection_count(), 0);
}

#[test]
fn a_client_connects_again_after_a_restart_of_the_server() {
    let (server, address) = start_anywhere(2);
    let mut client = connect(address, HASH_SPACE);
    client.put(b"k", b"before").unwrap();
    server.stop();
    let _server = start(address, 2);
    assert_eq!(client.get(b"k").unwrap(), None, "nothing survives a restart");
    assert_eq!(client.reconnection_count(), 1);
}

#[test]
fn an_update_that_is_in_flight_at_a_restart_may_have_happened() {
    let (server, address) = start_anywhere(1);
    let relay = Relay::start(address, Faults::default(), 7);
    let mut client = connect(relay.address, HASH_SPACE);
    client.put(b"k", b"before").unwrap();
    relay.lose_replies(true);
    let call = thread::spawn(move || client.put(b"k", b"after"));
    // The server has executed it when another client sees it.
    let mut other = connect(address, HASH_SPACE);
    while other.get(b"k").unwrap().as_deref() != Some(b"after") {
        thread::sleep(Duration::from_millis(1));
    }
    server.stop();
    let _server = start(address, 1);
    relay.lose_replies(false);
    let error = call.join().unwrap().unwrap_err();
    let ClientError::MayHaveHappened { source } = &error else { panic!("{error:?}") };
    assert!(matches!(**source, ClientError::Closed { .. }), "{source:?}");
}

#[test]
fn a_server_that_does_not_reply_is_reported() {
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = format!("udp:{}", silent.local_addr().unwrap());
    let settings = ClientSettings { connect_timeout: Duration::from_millis(100), ..ClientSettings::default() };
    let error = Client::connect_with(&address, HASH_SPACE, &settings).unwrap_err();
    assert!(matches!(error, ClientError::Connect { .. }), "{error:?}");
    drop(silent);
    let error = Client::connect_with(&address, HASH_SPACE, &settings).unwrap_err();
    assert!(matches!(error, ClientError::Connect { .. }), "{error:?}");
}
