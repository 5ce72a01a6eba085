//! Tests of clients over shared memory against Skep's server: access, the socket's file, and clients that obey no rule.

#[path = "support/shared_memory.rs"]
mod shared_memory;

use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use rand::{Rng, RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use shared_memory::{
    RING, RawClient, TAIL, TAKEN, WAIT, ask, connect, metric, path_of, settings, start, unused_path, wait_until,
};
use skep_client::{
    AsyncClient, Client, ClientError, ClientSettings, HASH_SPACE, Operation, Password, PutCondition, Refusal, Request,
    ServerAddress,
};
use skep_server::{Server, ServerSettings, StartError};
use skep_wire::native::{Hello, RequestFrameWriter};

/// Bytes of a ring.
const RING_SIZE: u64 = 64 << 10;

#[test]
fn the_socket_belongs_to_the_user_of_the_server() {
    let settings = settings(1);
    let path = settings.shared_memory.clone().unwrap();
    // A server that was killed has left its socket.
    drop(UnixListener::bind(&path).unwrap());
    let server = start(&settings);
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let error = Server::start(&settings).unwrap_err();
    assert!(matches!(&error, StartError::SharedMemoryInUse(used) if *used == path), "{error}");
    connect(&server).put(b"k", b"v").unwrap();
    server.stop();
    assert!(!path.exists());

    // Another file is never replaced.
    fs::write(&path, "text").unwrap();
    assert!(matches!(Server::start(&settings), Err(StartError::SharedMemoryFile(_))));
    assert_eq!(fs::read(&path).unwrap(), b"text");
    fs::remove_file(&path).unwrap();
    let nowhere = ServerSettings { shared_memory: Some(path.join("socket")), ..settings };
    assert!(matches!(Server::start(&nowhere), Err(StartError::SharedMemory { .. })));
}

#[test]
fn a_password_is_needed_over_shared_memory_too() {
    let password = Password::new(b"ham");
    let server = start(&ServerSettings { password: password.clone(), ..settings(2) });
    let address = ServerAddress::SharedMemory(path_of(&server).to_owned());
    let error = Client::connect(address.clone(), HASH_SPACE).unwrap_err();
    assert!(matches!(error, ClientError::Refused { reason: Refusal::PasswordNeeded, .. }), "{error}");
    let settings = ClientSettings { password, ..ClientSettings::default() };
    let mut client = Client::connect_with(address, HASH_SPACE, &settings).unwrap();
    client.put(b"k", b"v").unwrap();
    assert_eq!(client.get(b"k").unwrap().unwrap(), b"v");
}

#[test]
fn no_server_at_the_path() {
    let path = unused_path();
    let error = Client::connect(ServerAddress::SharedMemory(path.clone()), HASH_SPACE).unwrap_err();
    assert!(matches!(error, ClientError::Connect { .. }) && error.to_string().contains("shm:"), "{error}");
    // The async client names what it cannot do.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let error = runtime.block_on(AsyncClient::connect(ServerAddress::SharedMemory(path), HASH_SPACE)).unwrap_err();
    assert!(error.to_string().contains("only the blocking client"), "{error}");
}

#[test]
fn clients_are_listed_and_counted() {
    let server = start(&settings(2));
    let mut client = connect(&server);
    client.put(b"k", b"v").unwrap();
    let list = ask(&server, "CLIENT LIST");
    let shown = format!("addr=shm:{0} laddr=shm:{0} ", path_of(&server).display());
    assert_eq!(list.matches(&shown).count(), 2, "one for each shard: {list}");
    assert_eq!(metric(&server, "skep_shared_memory_connections"), 2);
    drop(client);
    wait_until(|| metric(&server, "skep_shared_memory_connections") == 0);
}

#[test]
fn a_client_that_was_killed_by_a_command_connects_again() {
    let server = start(&settings(1));
    let mut client = connect(&server);
    client.put(b"k", b"v").unwrap();
    ask(&server, &format!("CLIENT KILL shm:{}", path_of(&server).display()));
    wait_until(|| metric(&server, "skep_shared_memory_connections") == 0);
    assert_eq!(client.get(b"k").unwrap().unwrap(), b"v");
    assert_eq!(client.reconnection_count(), 1);
}

#[test]
fn connections_over_shared_memory_are_bounded() {
    let server = start(&settings(1));
    let clients: Vec<RawClient> = (0..1024).map(|_| RawClient::connect(&server)).collect();
    let error = Client::connect(ServerAddress::SharedMemory(path_of(&server).to_owned()), HASH_SPACE).unwrap_err();
    assert!(error.to_string().contains("no more connections"), "{error}");
    drop(clients);
    wait_until(|| metric(&server, "skep_shared_memory_connections") == 0);
    connect(&server).put(b"k", b"v").unwrap();
}

/// Puts and gets keys of its own until `stop`. Every reply must be right.
fn witness(mut client: Client, name: &str, stop: &AtomicBool) -> u64 {
    let mut round = 0_u64;
    while !stop.load(Ordering::Relaxed) {
        let key = format!("{name}-{}", round % 100);
        let value = round.to_le_bytes().repeat(1 + round as usize % 50);
        client.put(key.as_bytes(), &value).unwrap();
        assert_eq!(client.get(key.as_bytes()).unwrap().unwrap(), value);
        round += 1;
    }
    assert_eq!(client.reconnection_count(), 0);
    round
}

/// Returns a hello and frames of valid requests.
fn valid_bytes() -> Vec<u8> {
    let mut bytes = Hello::new(Some(0)).encode();
    for sequence in 0..20 {
        let mut writer = RequestFrameWriter::with_size_max(&mut bytes, sequence, HASH_SPACE, 1 << 20);
        for number in 0..20_u8 {
            let key = [b's', number];
            let operation = if number % 2 == 0 {
                Operation::Put { value: &[number; 100], condition: PutCondition::Always }
            } else {
                Operation::Get
            };
            writer.push(&Request { key: &key, operation });
        }
        writer.finish();
    }
    bytes
}

/// Scribbles over the words and the ring of a connection, until the server closes it or there were enough.
fn scribble(client: &RawClient, random: &mut Xoshiro256PlusPlus) {
    let valid = valid_bytes();
    client.begin(&valid[..random.random_range(0..valid.len())]);
    for _ in 0..random.random_range(0..2000) {
        match random.random_range(0..12) {
            0 => client.set(TAIL, client.word_of_server(TAKEN).wrapping_add(random.random_range(0..RING_SIZE))),
            1 => client.set(TAKEN, client.word_of_server(TAIL)),
            2 => client.set(WAIT, random.next_u64()),
            3 if random.random_range(0..50) == 0 => {
                client.set([TAIL, TAKEN][random.random_range(0..2)], random.next_u64());
            }
            4 => {
                // A part of the ring becomes valid again, while the server may read it.
                let from = random.random_range(0..valid.len());
                client.requests.write_all_at(&valid[from..], RING + from as u64).unwrap();
            }
            5 if !client.ring() => return,
            _ => {
                let mut bytes = [0; 64];
                let size = random.random_range(1..bytes.len());
                random.fill_bytes(&mut bytes);
                client.requests.write_all_at(&bytes[..size], RING + random.random_range(0..RING_SIZE - 64)).unwrap();
            }
        }
    }
}

#[test]
fn clients_that_scribble_over_their_memory_harm_only_themselves() {
    let seed = std::env::var("SKEP_SEED").map_or(1, |seed| seed.parse().expect("SKEP_SEED is a number"));
    println!("SKEP_SEED={seed}");
    let server = start(&settings(2));
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let over_memory = scope.spawn(|| witness(connect(&server), "memory", &stop));
        let over_tcp =
            scope.spawn(|| witness(Client::connect(server.native_address(), HASH_SPACE).unwrap(), "tcp", &stop));
        let scribblers = [0, 1].map(|number| {
            let server = &server;
            scope.spawn(move || {
                let mut random = Xoshiro256PlusPlus::seed_from_u64(seed ^ (number << 32));
                for _ in 0..200 {
                    scribble(&RawClient::connect(server), &mut random);
                }
            })
        });
        scribblers.into_iter().for_each(|scribbler| scribbler.join().unwrap());
        stop.store(true, Ordering::Relaxed);
        assert!(over_memory.join().unwrap() > 0 && over_tcp.join().unwrap() > 0);
    });
    // A word that cannot be right is refused, named and counted.
    let closed = metric(&server, "skep_connections_closed_for_invalid_words");
    let client = RawClient::connect(&server);
    client.begin(&Hello::new(Some(1)).encode());
    client.set(TAIL, 3 * RING_SIZE);
    client.ring();
    wait_until(|| metric(&server, "skep_connections_closed_for_invalid_words") == closed + 1);
    wait_until(|| metric(&server, "skep_shared_memory_connections") == 0);
}

#[test]
fn a_client_that_takes_no_replies_harms_no_other() {
    let server = start(&settings(1));
    let value = vec![7; 100_000];
    let mut client = connect(&server);
    client.put(b"large", &value).unwrap();
    let mut bytes = Hello::new(Some(0)).encode();
    let mut writer = RequestFrameWriter::with_size_max(&mut bytes, 0, HASH_SPACE, 1 << 20);
    for _ in 0..100 {
        writer.push(&Request { key: b"large", operation: Operation::Get });
    }
    writer.finish();
    let stalled: Vec<RawClient> = (0..8).map(|_| RawClient::connect(&server)).collect();
    stalled.iter().for_each(|stalled| stalled.begin(&bytes));
    // Each has a ring full of replies, and the server holds some more of them, within its budget.
    for stalled in &stalled {
        wait_until(|| stalled.word_of_server(TAIL) == RING_SIZE);
    }
    for _ in 0..100 {
        assert_eq!(client.get(b"large").unwrap().unwrap(), value);
    }
    assert!(metric(&server, "skep_connection_memory_used") <= metric(&server, "skep_connection_memory_limit"));
    // One takes replies after all, and gets the rest.
    let taken = stalled[0].word_of_server(TAIL);
    stalled[0].set(TAKEN, taken);
    stalled[0].ring();
    wait_until(|| stalled[0].word_of_server(TAIL) == 2 * RING_SIZE);
    drop(stalled);
    wait_until(|| metric(&server, "skep_shared_memory_connections") == 1);
    assert_eq!(client.get(b"large").unwrap().unwrap(), value);
}

#[test]
fn a_full_server_says_so_over_shared_memory_too() {
    let server = start(&ServerSettings { connections_max: 1, ..settings(1) });
    let _first = connect(&server);
    let address = ServerAddress::SharedMemory(path_of(&server).to_owned());
    let error = Client::connect(address, HASH_SPACE).unwrap_err();
    assert!(matches!(error, ClientError::Refused { reason: Refusal::Full, .. }), "{error:?}");
}
