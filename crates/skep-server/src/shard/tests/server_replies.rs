//! Replies that the server makes itself, in turns: how much a turn encodes of them, and who waits meanwhile.

use super::{Bench, Client, command, long_command};
use crate::limits::TURN_SIZE_MAX;
use crate::settings::ServerSettings;

/// Returns the bytes of replies that the first shard has encoded.
fn encoded(bench: &mut Bench) -> u64 {
    let waiting: usize =
        bench.shards[0].shard.connections.iter_mut().map(|(_, endpoint)| endpoint.connection.output_size()).sum();
    bench.shared.metrics(0).output_bytes.get() + waiting as u64
}

/// The largest reply to a list of connections, and small replies of each connection in a turn.
const SLACK: u64 = 512 << 10;

#[test]
fn costly_commands_of_many_connections_keep_a_ping_waiting_for_few_turns() {
    const HOGS: usize = 300;
    let name = vec![b'n'; 256];
    for request in [
        command(&[b"CLIENT", b"LIST"]),
        command(&[b"INFO"]),
        command(&[b"COMMAND", b"DOCS"]),
        command(&[b"CONFIG", b"GET", b"*"]),
        command(&[b"PING", &[b'p'; 1000]]),
        command(&[b"ECHO", &[b'e'; 1000]]),
    ] {
        let mut bench = Bench::new(1, &ServerSettings::default());
        let mut modest = bench.resp(0);
        let mut hogs: Vec<Client> = (0..HOGS).map(|_| bench.resp(0)).collect();
        for hog in &mut hogs {
            bench.ask(hog, &command(&[b"CLIENT", b"SETNAME", &name]), 5);
        }
        hogs.iter_mut().for_each(|hog| bench.send(hog, &request.repeat(5)));
        let mut most_replies = vec![0; HOGS];
        for round in 0..30 {
            bench.send(&mut modest, &command(&[b"PING"]));
            let mut turns = 0;
            while modest.receive() == 0 {
                let before = encoded(&mut bench);
                bench.turn(0);
                let size = encoded(&mut bench) - before;
                assert!(size <= TURN_SIZE_MAX as u64 + SLACK, "{size} bytes in a turn");
                turns += 1;
                assert!(turns <= 5, "{turns} turns in round {round}");
                for (hog, received) in hogs.iter_mut().zip(&mut most_replies) {
                    *received += hog.receive();
                    hog.received.clear();
                }
            }
            assert_eq!(std::mem::take(&mut modest.received), b"+PONG\r\n");
        }
        while bench.turn(0) {
            for (hog, received) in hogs.iter_mut().zip(&mut most_replies) {
                *received += hog.receive();
                hog.received.clear();
            }
        }
        assert!(most_replies.iter().all(|&received| received > 100), "every connection gets its replies");
    }
}

#[test]
fn costly_commands_are_served_in_the_order_of_their_arrival() {
    const HOGS: usize = 200;
    let mut bench = Bench::new(1, &ServerSettings::default());
    let echo = command(&[b"ECHO", &[b'e'; 100_000]]);
    let mut hogs: Vec<Client> = (0..HOGS).map(|_| bench.resp(0)).collect();
    hogs.iter_mut().for_each(|hog| bench.send(hog, &echo.repeat(3)));
    let mut received = vec![0; HOGS];
    // Three times 20 MB.
    for turns in 0.. {
        bench.turn(0);
        for (hog, received) in hogs.iter_mut().zip(&mut received) {
            *received += hog.receive();
            hog.received.clear();
        }
        // No connection is left out while others get all.
        if received.iter().all(|&size| size > 0) {
            break;
        }
        assert!(turns <= 3 * HOGS * echo.len() / TURN_SIZE_MAX, "a connection waits after {turns} turns");
    }
}

#[test]
fn commands_of_the_server_have_a_bounded_number_of_arguments() {
    let mut bench = Bench::new(1, &ServerSettings::default());
    let mut client = bench.resp(0);
    for (name, count) in [("info", 1024), ("config", 2000), ("hello", 100_000)] {
        let expected = format!("-ERR wrong number of arguments for '{name}' command\r\n");
        let reply = bench.ask(&mut client, &long_command(name.as_bytes(), b"get", count), expected.len());
        assert_eq!(reply.escape_ascii().to_string(), expected.escape_default().to_string());
    }
    bench.ask(&mut client, &long_command(b"INFO", b"cluster", 1023), 20);
    let long = [&[b'*'; 300][..], b"e"].concat();
    assert_eq!(bench.ask(&mut client, &command(&[b"CONFIG", b"GET", &long]), 4), b"*0\r\n");
}
