//! Datagrams of memcached's protocol: what they hold while they are in work.

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::Ordering;

use super::Bench;
use crate::settings::ServerSettings;
use crate::start::Steps;
use crate::transport::memcached_datagram::MemcachedSocket;

/// Returns a shard whose only connections are datagrams, as many as given.
fn with_datagrams(count: usize) -> Bench {
    let mut bench = Bench::new(1, &ServerSettings { cache_memory: 8 << 20, ..ServerSettings::default() });
    let mut address = SocketAddr::from(([127, 0, 0, 1], 0));
    let socket = MemcachedSocket::bind(&mut address, &mut Steps::default()).unwrap();
    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    for _ in 0..count {
        client.send_to(b"\0\0\0\0\0\x01\0\0mn\r\n", address).unwrap();
    }
    let shard = &mut bench.shards[0].shard;
    shard.parts.memcached_socket = Some(socket);
    shard.receive_memcached_datagrams(bench.now);
    assert_eq!(shard.connections.tokens().count(), count);
    bench
}

#[test]
fn one_that_lacks_memory_is_dropped() {
    let mut bench = with_datagrams(2);
    let shard = &mut bench.shards[0].shard;
    let token = shard.connections.tokens().next().unwrap();
    shard.starve(token);
    assert_eq!(shard.connections.tokens().count(), 1);
    assert!(shard.starved.is_empty() && shard.connections.get_mut(token).is_none());
    while bench.turn(0) {}
    assert!(bench.shards[0].is_empty());
}

#[test]
fn they_take_no_places_of_connections() {
    let mut bench = with_datagrams(5);
    let count = |bench: &Bench| (bench.shared.connection_count.load(Ordering::Relaxed), bench.shared.clients().len());
    assert_eq!(count(&bench), (0, 5));
    let client = bench.resp(0);
    assert_eq!(count(&bench), (1, 6));
    while bench.turn(0) {}
    assert_eq!(count(&bench), (1, 1));
    drop(client);
}
