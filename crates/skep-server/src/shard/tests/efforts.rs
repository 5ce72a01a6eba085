//! Small isolated commands beside long ones: the work that is done while they wait does not grow with the number of clients.

use super::{Bench, Client, command};
use crate::exchange::slot_count;
use crate::settings::ServerSettings;

const SIZE: usize = 1 << 20;
/// Values that a long command reads.
const SOURCES: usize = 40;

/// Clients that send the next long command when they have the reply to the last one.
struct Hogs {
    clients: Vec<Client>,
    request: Vec<u8>,
    replies: Vec<usize>,
    /// Each command comes over a connection of its own.
    are_fresh: bool,
}

impl Hogs {
    fn new(bench: &mut Bench, count: usize, request: Vec<u8>, are_fresh: bool) -> Hogs {
        let mut clients: Vec<Client> = (0..count).map(|_| bench.resp(0)).collect();
        clients.iter_mut().for_each(|client| bench.send(client, &request));
        Hogs { clients, request, replies: vec![0; count], are_fresh }
    }

    fn go_on(&mut self, bench: &mut Bench) {
        for (client, replies) in self.clients.iter_mut().zip(&mut self.replies) {
            if client.receive() > 0 {
                assert_eq!(client.received, b":1048576\r\n");
                *replies += 1;
                client.received.clear();
                if self.are_fresh {
                    *client = bench.resp(0);
                }
                bench.send(client, &self.request);
            }
        }
    }
}

/// Returns a bench with large values of the first and the last shard, and the requests of the long command: on those of one
/// shard, or of both.
fn bench(shards: u16, owners: [u16; 2]) -> (Bench, Vec<u8>) {
    let settings = ServerSettings { connection_memory: 64 << 20, connections_max: 1000, ..ServerSettings::default() };
    let mut bench = Bench::new(shards, &settings);
    let keys = owners.map(|owner| bench.key(owner, 0));
    let mut client = bench.resp(0);
    for key in &keys {
        bench.ask(&mut client, &command(&[b"SET", key, &vec![7; SIZE]]), 5);
    }
    let new = bench.key(owners[0], 1);
    let sources = keys.iter().cycle().take(SOURCES).map(|key| &key[..]);
    let long: Vec<&[u8]> = [&b"BITOP"[..], b"AND", &new].into_iter().chain(sources).collect();
    (bench, command(&long))
}

/// Lets all shards make a turn. Returns their work.
fn turn_all(bench: &mut Bench) -> usize {
    let work = |shard: usize, bench: &mut Bench| {
        if bench.turn(shard) { bench.shards[shard].shard.turn.account.spent() } else { 0 }
    };
    (0..bench.shards.len()).map(|shard| work(shard, bench)).sum()
}

/// Returns the most work that is done while a client waits for a reply to a small command, in long commands.
fn most_work(bench: &mut Bench, hogs: &mut Hogs, home: usize, small: &[u8], reply: &[u8]) -> usize {
    let mut client = bench.resp(home);
    let mut most = 0;
    for round in 0..8 {
        // It arrives at different moments.
        for _ in 0..round {
            turn_all(bench);
            hogs.go_on(bench);
        }
        bench.send(&mut client, small);
        let mut work = 0;
        while client.receive() < reply.len() {
            work += turn_all(bench);
            hogs.go_on(bench);
            assert!(work < 1000 * SOURCES * SIZE, "no reply to {}", small.escape_ascii());
        }
        assert_eq!(std::mem::take(&mut client.received), reply);
        most = most.max(work);
    }
    most / (SOURCES * SIZE)
}

#[test]
fn a_small_command_waits_for_few_long_ones_beside_any_number_of_them() {
    // The shards of the keys of the long commands, of those of the small ones, and of their clients. All long ones are sent to
    // the first shard.
    for (shards, owners, keys, home, most) in [
        (1, [0, 0], [0, 0], 0, 2),
        (2, [0, 0], [0, 0], 1, 2),
        (2, [1, 1], [1, 1], 1, 2),
        (2, [1, 1], [1, 1], 0, 2),
        (2, [0, 0], [0, 1], 0, 4),
        (2, [0, 1], [0, 1], 0, 4),
        (2, [0, 1], [0, 1], 1, 4),
        (2, [0, 1], [0, 0], 0, 4),
    ] {
        let (mut bench, long) = bench(shards, owners);
        let [one, other] = [2, 3].map(|number| bench.key(keys[number - 2], number));
        let set = command(&[b"MSET", &one, b"1", &other, b"2"]);
        let queued = [command(&[b"MULTI"]), command(&[b"SET", &one, b"1"]), command(&[b"GET", &other])].concat();
        let transaction = [queued, command(&[b"EXEC"])].concat();
        for (count, are_fresh) in [(4, false), (16, true), (64, false), (64, true)] {
            let mut hogs = Hogs::new(&mut bench, count, long.clone(), are_fresh);
            for (small, reply) in
                [(&set, &b"+OK\r\n"[..]), (&transaction, b"+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n+OK\r\n$1\r\n2\r\n")]
            {
                let waited = most_work(&mut bench, &mut hogs, home, small, reply);
                assert!(
                    waited <= most,
                    "{waited} long commands of {owners:?} beside {count} (fresh: {are_fresh}), on {keys:?} from {home}: {}",
                    small[..20].escape_ascii()
                );
            }
        }
    }
}

#[test]
fn a_small_visit_does_not_wait_for_the_slots_of_long_ones() {
    // Their effort is known from the number of their arguments, or only when their values are looked up.
    for sources in [2 * SOURCES, SOURCES] {
        let (mut bench, _) = bench(2, [1, 1]);
        let key = bench.key(1, 0);
        let long = command(&[&[&b"BITOP"[..], b"AND", &bench.key(1, 1)], &vec![&key[..]; sources][..]].concat());
        let mut hogs = Hogs::new(&mut bench, 2 * slot_count(2), long, false);
        let [one, other] = [2, 3].map(|number| bench.key(1, number));
        let set = command(&[b"MSET", &one, b"1", &other, b"2"]);
        let waited = most_work(&mut bench, &mut hogs, 0, &set, b"+OK\r\n");
        assert!(waited <= 4, "{waited} long commands");
        assert!(hogs.replies.iter().sum::<usize>() > 0, "the long ones have their turns");
    }
}

#[test]
fn long_commands_take_turns_beside_small_ones() {
    for (shards, owners) in [(1, [0, 0]), (2, [1, 1]), (2, [0, 1])] {
        let (mut bench, long) = bench(shards, owners);
        let mut hogs = Hogs::new(&mut bench, 6, long, false);
        let [one, other] = [2, 3].map(|number| bench.key(owners[number - 2], number));
        let small = command(&[b"MSET", &one, b"1", &other, b"2"]);
        // Their pipelines are never empty.
        let mut small_ones: Vec<Client> = (0..6).map(|_| bench.resp(0)).collect();
        let (mut work, mut replies) = (0, 0);
        while hogs.replies.iter().any(|replies| *replies < 3) {
            for client in &mut small_ones {
                replies += client.receive() / 5;
                client.received.clear();
                bench.send(client, &small.repeat(200));
            }
            work += turn_all(&mut bench);
            hogs.go_on(&mut bench);
            assert!(work < 1000 * SOURCES * SIZE, "{:?} beside {replies} small ones", hogs.replies);
        }
        let most = *hogs.replies.iter().max().unwrap();
        assert!(most <= 4 && replies > 1000, "{:?} beside {replies} small ones, {shards} shards", hogs.replies);
    }
}
