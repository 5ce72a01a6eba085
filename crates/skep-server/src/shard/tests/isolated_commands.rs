//! Clients that leave while their transactions wait for shards, hold them, or wait for memory.

use skep_wire::partition::Partition;

use super::{Bench, Client};
use crate::settings::ServerSettings;

fn turn_all(bench: &mut Bench, turns: usize) {
    for _ in 0..turns {
        (0..bench.shards.len()).for_each(|shard| _ = bench.turn(shard));
    }
}

#[test]
fn every_shard_goes_on_after_a_client_left_that_held_it() {
    let (mut done, mut dropped) = (0, 0);
    for (waits, home, turns) in (0..48).map(|run| (run % 2 == 0, run / 2 % 2, run / 4)) {
        let mut bench = Bench::new(2, &ServerSettings::default());
        let partition = Partition::new(bench.shared.partition_seed, 2);
        let key_of =
            |shard| (0..).map(|number| format!("k{number}")).find(|key| partition.shard_of(key.as_bytes()) == shard);
        let [one, other] = [key_of(0), key_of(1)].map(Option::unwrap);
        let mut leaver = bench.resp(home);
        // A reply that it has not read lets the end of its socket be a reset.
        bench.send(&mut leaver, b"PING\r\n");
        turn_all(&mut bench, 4);
        bench.shards[home].stores.defers_puts = waits;
        bench.send(&mut leaver, format!("MULTI\r\nSET {one} v\r\nSET {other} v\r\nEXEC\r\n").as_bytes());
        turn_all(&mut bench, turns);
        drop(leaver);
        let mut others: Vec<Client> = (0..2).map(|shard| bench.resp(shard)).collect();
        for client in &mut others {
            bench.send(client, format!("INCR n{one}\r\nEXISTS {one} {other}\r\n").as_bytes());
        }
        turn_all(&mut bench, 20);
        bench.shards[home].stores.defers_puts = false;
        for client in &mut others {
            bench.turns_until(client, 8, 1000);
            match &client.received[4..] {
                b":2\r\n" => done += 1,
                b":0\r\n" => dropped += 1,
                received => panic!("waits {waits}, {turns} turns: {received:?}"),
            }
        }
    }
    assert!(done > 0 && dropped > 0, "{done} done, {dropped} dropped");
}
