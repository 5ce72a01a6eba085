//! What connections hold while they wait for memory, at the smallest budget, in turns: the others go on beside it, and it is
//! back when all have left.

use std::net::Shutdown;

use super::memory_admission::{Sender, serve_all};
use super::transaction_memory::take;
use super::{Bench, Client, command};
use crate::limits::{PIECE, PIECES_KEPT, TICK};
use crate::memory_budget::{Loan, ShardBudget};
use crate::settings::ServerSettings;

fn settings() -> ServerSettings {
    ServerSettings {
        connection_memory: 8 << 20,
        connections_max: 512,
        cache_memory: 16 << 20,
        ..ServerSettings::default()
    }
}

/// Lets all clients leave. Checks that the memory is back, and that a request of 100 KB is served at once.
fn leave(bench: &mut Bench, name: &str) {
    for _ in 0..200 {
        bench.turn_or_tick();
    }
    let kept = (bench.shards.len() * 2 * PIECES_KEPT * PIECE) as isize;
    let memory_budget = &bench.shared.memory_budget;
    assert_eq!((memory_budget.starved(), memory_budget.has_waiting()), (0, false), "{name}");
    assert!(memory_budget.common_taken() <= kept, "{name}: {} bytes are taken", memory_budget.common_taken());
    let mut fresh = bench.resp(0);
    bench.send(&mut fresh, &command(&[b"SET", b"fresh", &vec![b'v'; 100_000]]));
    bench.turns_until(&mut fresh, 5, 100);
}

#[test]
fn commands_that_are_run_in_parts_hold_nothing_between_them() {
    const COUNT: usize = 100;
    const VALUES: usize = 12;
    const SIZE: usize = 500_000;
    for shards in [1, 2] {
        let mut bench = Bench::new(shards, &settings());
        let keys: Vec<Vec<u8>> = (0..VALUES).map(|number| bench.key(number as u16 % shards, number)).collect();
        let mut first = bench.resp(0);
        for key in &keys {
            bench.ask(&mut first, &command(&[b"SET", key, &vec![b'v'; SIZE]]), 5);
        }
        let mut mget: Vec<&[u8]> = vec![b"MGET"];
        mget.extend(keys.iter().map(|key| &key[..]));
        let size = "*12\r\n".len() + VALUES * (SIZE + "$500000\r\n\r\n".len());
        let mut clients: Vec<Client> = (0..COUNT).map(|number| bench.resp(number % usize::from(shards))).collect();
        clients.iter_mut().for_each(|client| bench.send(client, &command(&mget)));
        let (mut received, begun, mut rounds) = ([0; COUNT], bench.now, 0);
        while received.iter().any(|received| *received < size) {
            bench.turn_or_tick();
            for (client, received) in clients.iter_mut().zip(&mut received) {
                *received += take(client).expect("it is served");
            }
            assert!(bench.shared.memory_budget.pool_left() >= 0, "they hold no memory of requests");
            rounds += 1;
            let left = received.iter().filter(|received| **received < size).count();
            assert!(rounds < 20_000, "{shards} shards: {left} clients stand still");
        }
        let ticks = (bench.now - begun).as_nanos() / TICK.as_nanos();
        assert!(ticks <= 10 && received == [size; COUNT], "{shards} shards: nothing happened in {ticks} ticks");
        assert_eq!(bench.closed(), 0);
        drop(clients);
        leave(&mut bench, "MGET");
    }
}

/// Returns a transaction that sets a value of this size as often.
fn transaction(count: usize, size: usize) -> Vec<u8> {
    let set = command(&[b"SET", b"key", &vec![b'v'; size]]).repeat(count);
    [command(&[b"MULTI"]), set, command(&[b"EXEC"])].concat()
}

#[test]
fn long_transactions_are_queued_one_after_another() {
    for (shards, count, size) in [(1, 10, 60_000), (2, 10, 60_000), (1, 2, 250_000), (2, 2, 250_000)] {
        let mut bench = Bench::new(shards, &settings());
        let reply_size = 5 + 9 * count + format!("*{count}\r\n").len() + 5 * count;
        let mut senders: Vec<Sender> = (0..40)
            .map(|number| Sender::new(bench.resp(number % usize::from(shards)), transaction(count, size), reply_size))
            .collect();
        let mut is_kept = true;
        serve_all("transaction", &mut bench, &mut senders, &mut |bench| {
            is_kept &= bench.shared.memory_budget.pool_left() >= 0;
        });
        assert!(is_kept, "{shards} shards: growing connections hold more than the pool");
        assert_eq!(bench.closed(), 0);
        assert!(senders.iter().all(|sender| !sender.client.received.contains(&b'-')));
        drop(senders);
        leave(&mut bench, "transactions");
    }
}

#[test]
fn a_transaction_is_queued_whose_queue_fits_although_twice_as_many_bytes_do_not() {
    for (count, size) in [(10, 84_000), (16, 84_000), (20, 84_000), (10, 168_000)] {
        let mut bench = Bench::new(1, &settings());
        assert!(count * size < bench.shards[0].shard.shard_budget.one_max());
        let reply_size = 5 + 9 * count + format!("*{count}\r\n").len() + 5 * count;
        let mut senders = [Sender::new(bench.resp(0), transaction(count, size), reply_size)];
        serve_all(&format!("{count} commands of {size} bytes"), &mut bench, &mut senders, &mut |_| ());
        assert!(!senders[0].client.received.contains(&b'-'), "{count} commands of {size} bytes");
        drop(senders);
        leave(&mut bench, "a transaction");
    }
}

#[test]
fn clients_that_leave_while_they_wait_leave_nothing() {
    for shards in [1, 2] {
        for rounds in [1, 3, 10, 30, 100] {
            let mut bench = Bench::new(shards, &settings());
            let mut senders: Vec<Sender> = (0..40)
                .map(|number| Sender::new(bench.resp(number % usize::from(shards)), transaction(10, 100_000), 1 << 20))
                .collect();
            for _ in 0..rounds {
                senders.iter_mut().for_each(|sender| _ = sender.go_on());
                bench.turn_or_tick();
            }
            drop(senders);
            leave(&mut bench, &format!("{shards} shards, {rounds} rounds"));
        }
    }
}

fn connections(bench: &mut Bench) -> usize {
    bench.shards[0].shard.connections.iter_mut().count()
}

/// Takes all that is left for small requests.
fn hold_small_part(other: &mut ShardBudget) -> Vec<Loan> {
    let granted = || {
        let mut loan = Loan::default();
        other.grant(&mut loan, 20_000, true).then_some(loan)
    };
    std::iter::from_fn(granted).collect()
}

#[test]
fn a_request_whose_rest_never_comes_leaves_the_queue_and_a_whole_one_is_served() {
    let mut bench = Bench::new(1, &settings());
    let (mut other, mut loan) = (ShardBudget::new(bench.shared.memory_budget.clone()), Loan::default());
    other.record(&mut loan, 8 << 20, 0, 8 << 20);
    let in_small_part = hold_small_part(&mut other);
    // They fit the buffer of a socket: the server knows what has arrived.
    let small = command(&[b"SET", b"key", &vec![b'v'; 60_000]]);
    let mut waiting: Vec<Sender> =
        [40_000, small.len()].map(|size| Sender::new(bench.resp(0), small[..size].to_vec(), 5)).into_iter().collect();
    for _ in 0..20 {
        waiting.iter_mut().for_each(|sender| _ = sender.go_on());
        bench.turn(0);
    }
    assert!(bench.shared.memory_budget.queued_connections().len() == 2, "they wait");
    waiting.iter().for_each(|sender| sender.client.stream.shutdown(Shutdown::Write).unwrap());
    let (open, begun) = (connections(&mut bench), bench.now);
    while connections(&mut bench) == open && bench.now < begun + 4 * TICK {
        bench.turn_or_tick();
    }
    assert_eq!(connections(&mut bench), open - 1, "the one whose rest never comes is closed");
    in_small_part.into_iter().chain([loan]).for_each(|mut loan| other.leave(&mut loan, 1 << 40));
    for _ in 0..100 {
        waiting[1].go_on();
        bench.turn_or_tick();
    }
    assert_eq!(waiting[1].client.received, b"+OK\r\n");
}

#[test]
fn a_queue_that_is_given_up_is_closed_once_and_returns_its_memory_at_once() {
    let mut bench = Bench::new(1, &settings());
    let request = transaction(10, 60_000);
    let queued = request[..request.len() - command(&[b"EXEC"]).len()].to_vec();
    let mut silent: Vec<Sender> = (0..10).map(|_| Sender::new(bench.resp(0), queued.clone(), usize::MAX)).collect();
    for _ in 0..50 {
        silent.iter_mut().for_each(|sender| _ = sender.go_on());
        bench.turn(0);
    }
    let reply_size = 5 + 9 * 10 + 5 + 5 * 10;
    let mut honest = [Sender::new(bench.resp(0), request, reply_size)];
    serve_all("a transaction", &mut bench, &mut honest, &mut |_| {
        silent.iter_mut().for_each(|sender| _ = sender.go_on());
    });
    silent.iter_mut().for_each(|sender| _ = sender.go_on());
    let told = |sender: &&Sender| sender.client.received.ends_with(b"(--connection-memory)\r\n");
    let (closed, told) =
        (bench.shared.metrics(0).connections.closed_for_memory.get(), silent.iter().filter(told).count());
    assert!(told > 0 && closed == told as u64, "{closed} closings of {told} connections are counted");
}

/// Sends the next request of each client when the one before is replied to.
fn serve_one_by_one(bench: &mut Bench, name: &str, count: usize, steps: &[(Vec<u8>, usize)]) {
    let mut clients: Vec<Option<Client>> =
        (0..count).map(|number| Some(bench.resp(number % bench.shards.len()))).collect();
    for (request, reply_size) in steps {
        let sender = |client: &mut Option<Client>| Sender::new(client.take().unwrap(), request.clone(), *reply_size);
        let mut senders: Vec<Sender> = clients.iter_mut().map(sender).collect();
        serve_all(name, bench, &mut senders, &mut |_| ());
        for (sender, client) in senders.into_iter().zip(&mut clients) {
            assert!(!sender.client.received.contains(&b'-'), "{name}: {:?}", sender.client.received);
            *client = Some(Client { received: Vec::new(), ..sender.client });
        }
    }
    assert_eq!(bench.closed(), 0, "{name}");
}

#[test]
fn a_value_of_the_largest_size_is_set_in_a_transaction_at_the_smallest_budget() {
    let set = command(&[b"SET", b"key", &vec![b'v'; 1 << 20]]);
    let tail = command(&[b"SET", b"tail", b"v"]);
    let (multi, exec) = (command(&[b"MULTI"]), command(&[b"EXEC"]));
    for (connections_max, shards) in [(256, 1), (256, 2), (512, 1), (512, 2)] {
        for tails in [0, 1, 20] {
            let name = format!("{connections_max} clients, {shards} shards, {tails} after it");
            let settings = ServerSettings { connections_max, ..settings() };
            let reply_size = format!("*{}\r\n", 1 + tails).len() + 5 * (1 + tails);
            // One client that waits for each reply, and many that do not.
            let mut bench = Bench::new(shards, &settings);
            let mut steps = vec![(multi.clone(), 5), (set.clone(), 9)];
            steps.extend((0..tails).map(|_| (tail.clone(), 9)));
            steps.push((exec.clone(), reply_size));
            serve_one_by_one(&mut bench, &name, 1, &steps);
            let all = [&multi[..], &set, &tail.repeat(tails), &exec].concat();
            serve_one_by_one(&mut bench, &name, 20, &[(all, 5 + 9 * (1 + tails) + reply_size)]);
        }
    }
}

#[test]
fn a_value_of_the_largest_size_is_set_and_read_in_a_transaction() {
    for (shards, owner) in [(1, 0), (2, 0), (2, 1)] {
        let mut bench = Bench::new(shards, &ServerSettings { connections_max: 256, ..settings() });
        let key = bench.key(owner, 0);
        let (set, get) = (command(&[b"SET", &key, &vec![b'v'; 1 << 20]]), command(&[b"GET", &key]));
        let (multi, exec) = (command(&[b"MULTI"]), command(&[b"EXEC"]));
        let reply_size = "*2\r\n+OK\r\n$1048576\r\n\r\n".len() + (1 << 20);
        let all = [&multi[..], &set, &get, &exec].concat();
        let name = format!("{shards} shards, a key of {owner}");
        serve_one_by_one(&mut bench, &name, 1, &[(multi, 5), (set, 9), (get, 9), (exec, reply_size)]);
        serve_one_by_one(&mut bench, &name, 20, &[(all, 5 + 9 + 9 + reply_size)]);
    }
}
