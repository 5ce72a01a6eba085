//! Datagrams of memcached's protocol: what they hold while they are in work.

use std::net::{SocketAddr, UdpSocket};

use super::Bench;
use crate::limits::TURN_WORK;
use crate::settings::ServerSettings;
use crate::start::Steps;
use crate::transport::memcached_datagram::MemcachedSocket;

/// Returns a shard whose only connections are datagrams with this request, as many as given.
fn with_requests(count: usize, request: &[u8]) -> Bench {
    let mut bench = Bench::new(1, &ServerSettings { cache_memory: 8 << 20, ..ServerSettings::default() });
    let mut address = SocketAddr::from(([127, 0, 0, 1], 0));
    let socket = MemcachedSocket::bind(&mut address, &mut Steps::default()).unwrap();
    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    let shard = &mut bench.shards[0].shard;
    shard.parts.memcached_socket = Some(socket);
    for _ in 0..count {
        client.send_to(&[&b"\0\0\0\0\0\x01\0\0"[..], request].concat(), address).unwrap();
        // The socket has room for few of the longest.
        shard.receive_memcached_datagrams(bench.now);
    }
    assert_eq!(shard.connections.tokens().count(), count);
    bench
}

fn with_datagrams(count: usize) -> Bench {
    with_requests(count, b"mn\r\n")
}

/// A datagram is as long as a datagram may be, and has thousands of commands: those that do not fit a turn run in the next.
#[test]
fn the_commands_of_one_share_their_turn() {
    for request in
        ["stats\r\n", "stats reset\r\n", "stats settings\r\n", "stats conns\r\n", "mn\r\n", "mg k\r\n", "nosuch\r\n"]
    {
        for count in [1, 10] {
            let mut bench = with_requests(count, request.repeat(8500.min(65_000 / request.len())).as_bytes());
            let (mut sum, mut most) = (0, 0);
            while bench.turn(0) {
                let spent = bench.shards[0].shard.turn.account.spent();
                (sum, most) = (sum + spent, most.max(spent));
            }
            assert!(bench.shards[0].is_empty());
            assert!(most <= TURN_WORK + TURN_WORK / 4, "{count} of {request:?}: {most} bytes of work in a turn");
            // A reply that is too long ends the work on a datagram.
            assert!(sum >= count * 500_000, "{count} of {request:?}: {sum} bytes of work");
        }
    }
}

#[test]
fn one_that_lacks_memory_is_dropped() {
    let mut bench = with_datagrams(2);
    let shard = &mut bench.shards[0].shard;
    let token = shard.connections.tokens().next().unwrap();
    shard.starve(token);
    assert_eq!(shard.connections.tokens().count(), 1);
    assert!(shard.waits.starved.is_empty() && shard.connections.get_mut(token).is_none());
    while bench.turn(0) {}
    assert!(bench.shards[0].is_empty());
}

#[test]
fn they_take_no_places_of_connections() {
    let mut bench = with_datagrams(5);
    let count = |bench: &Bench| (bench.shared.connection_count(), bench.shared.clients().len());
    assert_eq!(count(&bench), (0, 5));
    let client = bench.resp(0);
    assert_eq!(count(&bench), (1, 6));
    while bench.turn(0) {}
    assert_eq!(count(&bench), (1, 1));
    drop(client);
}
