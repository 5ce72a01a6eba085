//! The memory of watched keys, in turns: it is taken when a `WATCH` is decoded, and returned when the keys are not watched.

use super::memory_admission::{BUDGET, Sender, serve_all, settings};
use super::{Bench, command};
use crate::limits::{MEMORY_SCAN_TIME, SHARD_RESERVE, TICK};

/// Keys of a `WATCH`.
const KEYS: usize = 1000;

/// Returns a command that watches other keys for another number.
fn watch(number: usize) -> Vec<u8> {
    let keys: Vec<Vec<u8>> = (0..KEYS).map(|key| format!("watched:{number}:{key}").into_bytes()).collect();
    let mut arguments: Vec<&[u8]> = vec![b"WATCH"];
    arguments.extend(keys.iter().map(Vec::as_slice));
    command(&arguments)
}

/// Returns the same command as a line. Its name may be in quotes.
fn watch_line(number: usize) -> Vec<u8> {
    let keys: String = (0..KEYS).map(|key| format!(" watched:{number}:{key}")).collect();
    format!("{}{keys}\r\n", ["\twatch", "\"\\x57ATCH\"", "'watch'"][number % 3]).into_bytes()
}

/// Returns a client that watches keys twice, and then ends that in one of several ways.
fn honest(bench: &mut Bench, number: usize) -> Sender {
    let first = if number.is_multiple_of(2) { watch(2 * number) } else { watch_line(2 * number) };
    let watches = [first, watch(2 * number + 1)].concat();
    let key = format!("key{number}");
    let set = command(&[b"SET", key.as_bytes(), &vec![b'v'; 20_000]]);
    let [multi, exec] = [&b"MULTI"[..], b"EXEC"].map(|name| command(&[name]));
    let (rest, reply_size) = match number % 4 {
        0 => (command(&[b"UNWATCH"]), 5),
        1 => ([multi, set, command(&[b"DISCARD"])].concat(), 5 + 9 + 5),
        // A key has changed: nothing is executed.
        2 => {
            ([command(&[b"SET", format!("watched:{}:7", 2 * number).as_bytes(), b"1"]), multi, set, exec].concat(), 24)
        }
        _ => ([multi, set, exec].concat(), 5 + 9 + 4 + 5),
    };
    Sender::new(bench.resp(number % bench.shards.len()), [watches, rest].concat(), 10 + reply_size)
}

#[test]
fn clients_that_watch_and_go_on_keep_no_other_one_waiting_for_ever() {
    let set = command(&[b"SET", b"key", &[b'v'; 20_000]]);
    let [multi, exec, refused] = [&b"MULTI"[..], b"EXEC", b"NONE"].map(|name| command(&[name]));
    let queue = [multi.clone(), set.repeat(10)].concat();
    // Those that watch read something, and those that queue send what is refused: both at twice the stated rate.
    for (kept, more) in [(watch(0), command(&[b"ECHO", &[b'v'; 2000]])), (queue, refused.repeat(200))] {
        let mut bench = Bench::new(1, &settings());
        let mut holders: Vec<Sender> = (0..60).map(|_| Sender::new(bench.resp(0), kept.clone(), usize::MAX)).collect();
        let honest = [multi.clone(), set.repeat(3), exec.clone()].concat();
        (0..50).for_each(|_| {
            holders.iter_mut().for_each(|sender| _ = sender.go_on());
            bench.turn_or_tick();
        });
        let mut honest = Sender::new(bench.resp(0), honest, 5 + 3 * 9 + 4 + 3 * 5);
        let mut ticks = 0;
        while !honest.go_on() {
            for sender in &mut holders {
                if sender.sent == sender.requests.len() {
                    (sender.requests, sender.sent) = (more.clone(), 0);
                }
                sender.go_on();
            }
            while bench.turn(0) {}
            bench.now += TICK;
            let now = bench.now;
            bench.shards[0].tick(now);
            ticks += 1;
            assert!(ticks < 10_000, "it waits for ever");
        }
        assert!(honest.client.received.ends_with(b"+OK\r\n"));
    }
}

#[test]
fn clients_that_watch_ten_times_the_memory_are_all_served() {
    for shards in [1, 2, 4] {
        let mut bench = Bench::new(shards, &settings());
        let mut senders: Vec<Sender> = (0..200).map(|number| honest(&mut bench, number)).collect();
        let ticks = serve_all("WATCH", &mut bench, &mut senders, &mut |_| ());
        assert!(ticks <= 10, "{shards} shards: nothing happened in {ticks} ticks");
        let most = bench.shared.memory_budget.used_max() as usize;
        assert!(most <= BUDGET + usize::from(shards) * SHARD_RESERVE / 2, "{shards} shards: {most}");
        for (number, sender) in senders.iter().enumerate() {
            assert!(!sender.client.received.contains(&b'-') || number % 4 == 2, "{:?}", sender.client.received);
        }
        // Silent connections return their empty buffers.
        bench.now += 2 * MEMORY_SCAN_TIME;
        let now = bench.now;
        bench.shards.iter_mut().for_each(|driven| driven.tick(now));
        (0..20).for_each(|_| bench.turn_or_tick());
        assert!(bench.shards.iter().all(|driven| driven.shard.shard_budget.borrowed() == 0), "{shards} shards");
    }
}

#[test]
fn watched_keys_stay_within_the_budget() {
    for (shards, is_line) in [(1, false), (2, false), (1, true), (2, true)] {
        let mut bench = Bench::new(shards, &settings());
        let requests = |number| if is_line { watch_line(number) } else { watch(number) };
        let mut senders: Vec<Sender> =
            (0..260).map(|number| Sender::new(bench.resp(number % bench.shards.len()), requests(number), 5)).collect();
        for _ in 0..300 {
            senders.iter_mut().for_each(|sender| _ = sender.go_on());
            (0..usize::from(shards)).for_each(|shard| _ = bench.turn(shard));
        }
        let watching = senders.iter_mut().map(|sender| usize::from(sender.go_on())).sum::<usize>();
        assert!((1..60).contains(&watching), "{watching} watch {KEYS} keys each");
        assert!(bench.shared.memory_budget.has_waiting(), "the others wait");
        let most = bench.shared.memory_budget.used_max() as usize;
        assert!(most <= BUDGET, "{shards} shards: {most}");
        // Those that end make room for others.
        drop(senders);
        let mut next = [honest(&mut bench, 3)];
        serve_all("the next one", &mut bench, &mut next, &mut |_| ());
    }
}
