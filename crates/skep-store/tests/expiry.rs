//! Keys that expire in the hash store: what operations on them cost, and that their memory comes back.

use skep_core::operation::{
    Condition, Expiry, ExpiryChange, ExpiryCondition, Operation, PutCondition, Reply, Request, StringRead, StringWrite,
};
use skep_store::hash::{STEP_KEYS_MAX, Settings};
use skep_store::memory::{CountingMemory, LocalMemory};
use skep_store::processor::{Processor, Replies};

fn at(milliseconds: u64) -> ExpiryChange {
    ExpiryChange::set(Expiry::at(milliseconds as i64).unwrap())
}

fn set(value: &[u8], expiry: ExpiryChange) -> Operation<'_> {
    Operation::StringWrite(StringWrite::Set { value, condition: Condition::ALWAYS, expiry, return_old: false })
}

fn expire<'a>(expiry: ExpiryChange) -> Operation<'a> {
    let condition = ExpiryCondition::Always;
    Operation::StringWrite(StringWrite::Expire { expiry, condition, return_value: false })
}

#[test]
fn a_key_with_an_expiry_costs_what_a_pair_in_a_slab_costs() {
    const PUT: Operation<'_> = Operation::Put { value: b"value", condition: PutCondition::Always };
    const READ_EXPIRY: Operation<'_> = Operation::StringRead(StringRead::Expiry);
    let done = Reply::Done;
    let time = 10i64.to_le_bytes();
    // Accesses that read, and that write.
    let steps: &[(u64, Operation<'_>, Reply<'_>, (u64, u64))] = &[
        // Inline, without an expiry: one bucket.
        (0, PUT, done, (1, 1)),
        (0, Operation::Get, Reply::Value(b"value"), (1, 0)),
        // To a slab: its bucket is read, then slab and bucket are written.
        (0, expire(at(10)), done, (1, 2)),
        (9, Operation::Get, Reply::Value(b"value"), (2, 0)),
        (9, READ_EXPIRY, Reply::Value(&time), (2, 0)),
        // A new value and a new time, in the slab.
        (9, set(b"other", at(20)), done, (2, 1)),
        (9, expire(at(30)), done, (2, 1)),
        (29, Operation::Get, Reply::Value(b"other"), (2, 0)),
        // Expired: the slab says so.
        (30, Operation::Get, Reply::NotFound, (2, 0)),
        (30, Operation::Delete, Reply::NotFound, (2, 0)),
        // The expired pair is replaced: in its slab, or back in the bucket.
        (30, set(b"again", at(40)), done, (2, 1)),
        (40, PUT, done, (2, 1)),
        (40, Operation::Get, Reply::Value(b"value"), (1, 0)),
        (40, set(b"value", ExpiryChange::KEEP), done, (1, 1)),
        (40, Operation::Delete, done, (1, 1)),
        // A missing key.
        (40, set(b"value", at(50)), done, (1, 2)),
        (40, Operation::Delete, done, (2, 1)),
    ];
    for has_resident_lines in [false, true] {
        let settings = Settings { memory: 1 << 20, hash_index_ratio: 0.5, inline_threshold: 50, grows: false, seed: 1 };
        let memory = LocalMemory::new(settings.memory).unwrap();
        let memory = match has_resident_lines {
            true => CountingMemory::with_resident_lines(memory),
            false => CountingMemory::new(memory),
        };
        let mut processor = Processor::with_memory(memory, &settings).unwrap();
        let mut replies = Replies::with_budget(1 << 20);
        for (step, (now, operation, reply, accesses)) in steps.iter().enumerate() {
            processor.set_now(*now);
            let before = (processor.memory().counts(), processor.stage_counts().futures);
            processor.execute(&[Request { key: b"key", operation: *operation }], &mut replies);
            let of_stages = processor.memory().take_stage_counts();
            let is_staged = has_resident_lines && processor.stage_counts().futures == before.1;
            let counts = if is_staged { of_stages } else { processor.memory().counts() - before.0 };
            assert_eq!(replies.get(0), *reply, "step {step}: {operation:?}");
            let counted = (counts.read_accesses, counts.write_accesses);
            assert_eq!(counted, *accesses, "step {step}, resident lines {has_resident_lines}: {operation:?}");
        }
        assert_eq!((processor.statistics().pairs, processor.statistics().expiring), (0, 0));
    }
}

#[test]
fn the_memory_of_expired_keys_comes_back_in_bounded_steps() {
    let settings = Settings::for_kv_size(8 << 20, 40, 7);
    let mut processor = Processor::new(&settings).unwrap();
    let mut replies = Replies::with_budget(1 << 20);
    let sizes = [0, 10, 30, 100, 400, 2000];
    let value = [b'v'; 2000];
    let mut number = 0u64;
    // Fills the store with keys that expire at a time. Returns their number.
    let mut fill = |processor: &mut Processor, time| {
        let first = number;
        let mut refused = 0;
        while refused < 200 {
            number += 1;
            let (key, size) = (number.to_le_bytes(), sizes[number as usize % sizes.len()]);
            loop {
                let request = Request { key: &key, operation: set(&value[..size], at(time)) };
                processor.execute(&[request], &mut replies);
                match replies.get(0) {
                    Reply::Done => {}
                    Reply::Deferred => continue,
                    Reply::Failed(error) if error.is_out_of_memory() => refused += 1,
                    other => panic!("{other:?}"),
                }
                break;
            }
        }
        number - first - refused
    };
    let mut first = 0;
    for round in 1..=3 {
        let time = round * 1000;
        let filled = fill(&mut processor, time);
        assert_eq!(processor.statistics().expiring, filled);
        processor.set_now(time - 1);
        assert!(!processor.is_reclaim_due() && processor.reclaim() == 0, "nothing has expired");
        processor.set_now(time);
        let mut reclaimed = 0;
        while processor.is_reclaim_due() {
            let step = processor.reclaim();
            assert!(step <= STEP_KEYS_MAX);
            reclaimed += step as u64;
        }
        assert_eq!((reclaimed, processor.statistics().pairs, processor.statistics().expiring), (filled, 0, 0));
        assert_eq!(processor.reclaim_from(), None);
        first = if round == 1 { filled } else { first };
        assert!(filled * 100 >= first * 95, "round {round}: {filled} keys fit, {first} in an empty store");
    }
}

#[test]
fn a_flush_sets_no_count_back() {
    for settings in [Settings::growing(4 << 20, 7), Settings::for_kv_size(4 << 20, 40, 7)] {
        let mut processor = Processor::new(&settings).unwrap();
        let mut replies = Replies::with_budget(1 << 20);
        let counts = |processor: &Processor| {
            let statistics = processor.statistics();
            [statistics.expired, statistics.operations, statistics.hits, statistics.misses]
        };
        let mut before = [0; 4];
        for round in 1..=3 {
            for number in 0..1000u64 {
                let key = number.to_le_bytes();
                let requests =
                    [set(b"value", at(round * 1000)), Operation::Get].map(|operation| Request { key: &key, operation });
                processor.execute(&requests, &mut replies);
                processor.execute(&[Request { key: b"missing", operation: Operation::Get }], &mut replies);
            }
            processor.set_now(round * 1000);
            while processor.is_reclaim_due() {
                processor.reclaim();
            }
            let counted = counts(&processor);
            // Expired keys, operations, hits and misses of this round.
            let in_round: [u64; 4] = std::array::from_fn(|count| counted[count] - before[count]);
            assert_eq!(in_round, [1000, 3000, 1000, 1000], "round {round}");
            processor.flush();
            assert_eq!(counts(&processor), counted);
            while processor.flush_step() {}
            assert_eq!(counts(&processor), counted);
            before = counted;
        }
    }
}

#[test]
fn a_pass_that_finds_little_is_followed_by_a_pause() {
    let settings = Settings::for_kv_size(1 << 20, 40, 7);
    let mut processor = Processor::new(&settings).unwrap();
    let mut replies = Replies::with_budget(1 << 20);
    for number in 0..1000u64 {
        let time = if number == 0 { 10 } else { 1_000_000 + number };
        let request = Request { key: &number.to_le_bytes(), operation: set(b"value", at(time)) };
        processor.execute(&[request], &mut replies);
    }
    let mut now = 10;
    let mut removed = 0;
    while processor.reclaim_from().is_some_and(|from| from <= now) {
        processor.set_now(now);
        removed += processor.reclaim();
        now += 1;
    }
    assert_eq!(removed, 1);
    // One more key expires soon. The next pass waits eight times as long as the last one took.
    let pass = now - 1 - 10;
    let request = Request { key: b"soon", operation: set(b"value", at(now)) };
    processor.execute(&[request], &mut replies);
    assert_eq!(processor.reclaim_from(), Some(now - 1 + 8 * pass));
}

#[test]
fn a_time_that_has_passed_removes_the_key() {
    let settings = Settings { memory: 1 << 20, hash_index_ratio: 0.5, inline_threshold: 50, grows: false, seed: 1 };
    let mut processor = Processor::new(&settings).unwrap();
    let mut replies = Replies::with_budget(1 << 20);
    processor.set_now(100);
    for value_size in [5, 100, 400, 2000] {
        let value = vec![b'v'; value_size];
        let put = Operation::Put { value: &value, condition: PutCondition::Always };
        for before in [put, set(&value, at(1000))] {
            for after in [expire(at(50)), set(&value, at(100)), set(b"other", at(0)), set(&[0; 3000], at(7))] {
                for operation in [before, after] {
                    processor.execute(&[Request { key: b"key", operation }], &mut replies);
                    assert_eq!(replies.get(0), Reply::Done, "{operation:?}");
                }
                processor.execute(&[Request { key: b"key", operation: Operation::Get }], &mut replies);
                assert_eq!(replies.get(0), Reply::NotFound, "{before:?} {after:?}");
                let statistics = processor.statistics();
                assert_eq!((statistics.pairs, statistics.pair_bytes, statistics.expiring), (0, 0, 0), "{after:?}");
            }
        }
        processor.execute(&[Request { key: b"key", operation: set(&value, at(100)) }], &mut replies);
        assert_eq!((replies.get(0), processor.statistics().pairs), (Reply::Done, 0));
    }
}

#[test]
fn a_get_of_an_expired_value_is_a_miss_for_every_size() {
    let mut processor = Processor::new(&Settings::for_kv_size(8 << 20, 40, 7)).unwrap();
    let mut replies = Replies::with_budget(4 << 20);
    let value = vec![7; 100_000];
    for (missed, size) in [1, 100, 2000, 100_000].into_iter().enumerate() {
        let key = [missed as u8];
        processor.set_now(missed as u64 * 10);
        let put = Request { key: &key, operation: set(&value[..size], at(missed as u64 * 10 + 10)) };
        let get = Request { key: &key, operation: Operation::Get };
        processor.execute(&[put], &mut replies);
        processor.execute(&[get], &mut replies);
        assert_eq!(replies.get(0), Reply::Value(&value[..size]));
        processor.set_now(missed as u64 * 10 + 10);
        processor.execute(&[get], &mut replies);
        assert_eq!(replies.get(0), Reply::NotFound);
        let statistics = processor.statistics();
        assert_eq!((statistics.hits, statistics.misses), (missed as u64 + 1, missed as u64 + 1), "{size} B");
    }
}

/// The pause after a pass that has found little is bounded, however the clock goes on, and ends when memory is short.
#[test]
fn a_pause_ends_when_a_write_is_refused() {
    let mut processor = Processor::new(&Settings::for_kv_size(8 << 20, 100, 7)).unwrap();
    let mut replies = Replies::with_budget(1 << 20);
    processor.execute(&[Request { key: b"one", operation: set(b"v", at(1000)) }], &mut replies);
    processor.set_now(1000);
    processor.reclaim();
    // The machine slept in the middle of the pass.
    let day = 24 * 3600 * 1000;
    processor.set_now(day);
    while processor.is_reclaim_due() {
        processor.reclaim();
    }
    let mut number = 0u64;
    loop {
        number += 1;
        processor.execute(&[Request { key: &number.to_be_bytes(), operation: set(b"v", at(day + 1)) }], &mut replies);
        match replies.get(0) {
            Reply::Done | Reply::Deferred => {}
            reply => break assert!(matches!(reply, Reply::Failed(error) if error.is_out_of_memory()), "{reply:?}"),
        }
    }
    assert_eq!(processor.reclaim_from(), Some(day + 1), "there is no pause, because a write was refused");
    processor.set_now(day + 1);
    let mut removed = 0;
    while processor.is_reclaim_due() {
        removed += processor.reclaim();
    }
    assert_eq!((processor.statistics().pairs, processor.statistics().expiring), (0, 0), "{removed} were removed");
    // With memory, the pause is a minute at most.
    processor.execute(&[Request { key: b"one", operation: set(b"v", at(day + 2)) }], &mut replies);
    processor.set_now(day + 2);
    processor.reclaim();
    processor.set_now(2 * day);
    while processor.is_reclaim_due() {
        processor.reclaim();
    }
    processor.execute(&[Request { key: b"one", operation: set(b"v", at(2 * day + 1)) }], &mut replies);
    assert_eq!(processor.reclaim_from(), Some(2 * day + 60_000));
}

/// A full store refuses no write of a key with an expiry that does not grow: another expiry, none, or a shorter value.
#[test]
fn a_full_store_takes_writes_of_pairs_that_do_not_grow() {
    let value = vec![7; 100_000];
    for size in [20, 50, 100, 490, 3000, 100_000] {
        let mut processor = Processor::new(&Settings::for_kv_size(8 << 20, 8 + size, 7)).unwrap();
        let mut replies = Replies::with_budget(1 << 20);
        let mut execute = |key: u64, operation| loop {
            processor.execute(&[Request { key: &key.to_be_bytes(), operation }], &mut replies);
            match replies.get(0) {
                Reply::Deferred => {}
                Reply::Done => return true,
                Reply::Failed(error) if error.is_out_of_memory() => return false,
                reply => panic!("{reply:?}"),
            }
        };
        let count = (0..).find(|number| !execute(*number, set(&value[..size], at(100)))).unwrap();
        // What is left is filled with pairs of all smaller sizes.
        let mut filler = u64::MAX;
        for size in (1..=size.min(3000)).rev() {
            while execute(filler, set(&value[..size], at(100))) {
                filler -= 1;
            }
        }
        let writes = [
            ("persist", expire(ExpiryChange::CLEAR)),
            ("put", Operation::Put { value: &value[..size], condition: PutCondition::Always }),
            ("another expiry", expire(at(200))),
            ("value and expiry", set(&value[..size], at(300))),
            // A large value has no slab for a pair.
            ("shorter", set(&value[..if size <= 490 { size / 2 } else { size }], at(300))),
            ("shorter without expiry", set(&value[..if size <= 490 { size / 2 } else { size }], ExpiryChange::CLEAR)),
        ];
        assert!(count >= 12, "{count} pairs of {size} B");
        for (number, (name, write)) in writes.into_iter().enumerate() {
            for key in [2 * number as u64, 2 * number as u64 + 1] {
                assert!(execute(key, write), "{name} of a pair of {size} B is refused");
            }
        }
        for key in 0..count {
            assert!(execute(key, Operation::Delete), "delete");
        }
    }
}
