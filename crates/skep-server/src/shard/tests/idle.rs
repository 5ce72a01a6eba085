//! The timeout of idle connections: a client that waits for the server is not idle.

use std::io::Write;
use std::time::Duration;

use skep_wire::native::Password;

use super::{Bench, Client, command};
use crate::limits::{IDLE_PASS_TIME, LOGIN_TIME, LOGIN_TIME_WHEN_CROWDED, TICK};
use crate::parsed_batch::ParsedBatch;
use crate::settings::ServerSettings;
use crate::vocabulary::{EncodedReplies, Reached, Release};

const SIZE: usize = 1 << 20;

/// Returns the number of connections that were closed because they were idle.
fn closed(bench: &Bench) -> u64 {
    bench.shared.metrics(0).connections.closed_idle.get()
}

/// Lets the clients send the rest of a `SET` of a mebibyte, this number of bytes at most.
fn send_more(clients: &mut [(Client, usize)], request: &[u8], most: usize) {
    for (client, sent) in clients {
        let end = request.len().min(sent.saturating_add(most));
        *sent += client.stream.write(&request[*sent..end]).unwrap_or(0);
    }
}

#[test]
fn a_client_whose_request_waits_for_memory_is_not_idle() {
    let settings =
        ServerSettings { connection_memory: 8 << 20, connections_max: 512, timeout: 1, ..ServerSettings::default() };
    let mut bench = Bench::new(1, &settings);
    let _silent = bench.resp(0);
    let request = command(&[b"SET", b"k", &vec![b'v'; SIZE]]);
    let mut clients: Vec<(Client, usize)> = (0..8).map(|_| (bench.resp(0), 0)).collect();
    // All begin, and those that have memory go on slowly. The others send nothing that the server reads.
    send_more(&mut clients, &request, 100_000);
    for _ in 0..60 {
        (0..10).for_each(|_| _ = bench.turn(0));
        send_more(&mut clients, &request, 4000);
        bench.now += TICK;
        let now = bench.now;
        bench.shards[0].tick(now);
    }
    assert_eq!(closed(&bench), 1, "only the client that has sent nothing is closed");
    assert!(bench.shards[0].shard.shard_budget.memory_budget().starved() > 0, "requests wait for memory");
    for _ in 0..2000 {
        send_more(&mut clients, &request, usize::MAX);
        (0..10).for_each(|_| _ = bench.turn(0));
        clients.iter_mut().for_each(|(client, _)| _ = client.receive());
        if clients.iter().all(|(client, _)| !client.received.is_empty()) {
            break;
        }
    }
    assert!(clients.iter().all(|(client, _)| client.received == b"+OK\r\n"), "each has its reply");
}

/// The reply is made, and leaves when it is on disk.
#[test]
fn a_client_whose_reply_waits_for_the_disk_is_not_idle() {
    let mut bench = Bench::new(1, &ServerSettings::default());
    let _client = bench.resp(0);
    bench.turn(0);
    let (now, second) = (bench.now, Duration::from_secs(1));
    let shared = bench.shared.clone();
    let shard = &mut bench.shards[0].shard;
    let token = shard.connections.tokens().next().unwrap();
    let mut write = |release, bytes: &[u8], now| {
        let endpoint = shard.connections.get_mut(token).unwrap();
        endpoint.write(EncodedReplies { bytes, release }, true, shared.metrics(0), now, &mut shard.shard_budget);
        endpoint.connection.is_idle(now + 2 * second, second)
    };
    assert!(write(Release::Now, b"+OK\r\n", now));
    assert!(!write(Release::After(Reached::default()), b"+OK\r\n", now));
}

/// With a password, a client must log in within a minute; within a second, if the places are nearly used up.
#[test]
fn a_client_that_does_not_log_in_is_closed() {
    for (others, time) in [(0, LOGIN_TIME), (8, LOGIN_TIME_WHEN_CROWDED)] {
        let mut bench = Bench::new(1, &ServerSettings { connections_max: 12, ..ServerSettings::default() });
        let mut friends: Vec<Client> = (0..=others).map(|_| bench.resp(0)).collect();
        bench.turn(0);
        bench.shared.access.set_password(Password::new(b"ham").as_ref());
        let mut strangers = [bench.connect(0, ParsedBatch::Handshake), bench.stranger(), bench.stranger()];
        let begun = bench.now;
        while bench.now < begun + time {
            assert_eq!(bench.shared.metrics(0).connections.closed_without_login.get(), 0);
            // One of them talks.
            _ = strangers[2].stream.write(b"PING\r\n").unwrap();
            bench.turn(0);
            bench.now += time / 20;
            let now = bench.now;
            bench.shards[0].tick(now);
        }
        bench.now += IDLE_PASS_TIME;
        let now = bench.now;
        bench.shards[0].tick(now);
        assert_eq!(bench.shared.metrics(0).connections.closed_without_login.get(), 3, "{time:?}");
        for friend in &mut friends {
            _ = friend.stream.write(b"PING\r\n").unwrap();
            bench.turns_until(friend, 7, 100);
            assert_eq!(friend.received, b"+PONG\r\n");
        }
    }
}

/// The time begins when the client has no login any more, not when the connection began.
#[test]
fn a_client_that_has_reset_its_connection_has_time_to_log_in_again() {
    let mut bench = Bench::new(1, &ServerSettings::default());
    let mut client = bench.resp(0);
    bench.turn(0);
    bench.shared.access.set_password(Password::new(b"ham").as_ref());
    let pass = |bench: &mut Bench, time: Duration| {
        bench.now += time;
        let now = bench.now;
        bench.shards[0].tick(now);
    };
    pass(&mut bench, 2 * LOGIN_TIME);
    _ = client.stream.write(b"RESET\r\n").unwrap();
    bench.turns_until(&mut client, 8, 100);
    assert_eq!(client.received, b"+RESET\r\n");
    pass(&mut bench, LOGIN_TIME / 2);
    assert_eq!(bench.shared.metrics(0).connections.closed_without_login.get(), 0);
    pass(&mut bench, LOGIN_TIME);
    assert_eq!(bench.shared.metrics(0).connections.closed_without_login.get(), 1);
}
