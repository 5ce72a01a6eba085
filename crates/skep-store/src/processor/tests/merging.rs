//! Operations that need memory which is free in pieces: they are put off, nothing else is, and nothing waits.
//!
//! [`Fragments`] is a store full of the smallest slabs, of which a third at random is free again. A pair of 480 bytes needs
//! sixteen of them side by side. All bounds are counts: turns, passes, entries.

use super::{execute, put};
use crate::hash::Settings;
use crate::hash::slab::MergeDaemon;
use crate::naive::{Generator, GeneratorSettings, Mix, NaiveStore, OwnedRequest, SplitMix64};
use crate::processor::{MERGE_WORK_MAX, Processor, Replies};
use skep_core::operation::{Operation, OperationError, Reply, Request};

const MEMORY: u64 = 24 << 20;
/// Zones of that memory.
const ZONES: u64 = 24;
/// Units of a zone, and so the most entries that a pass can have.
const ZONE_ENTRIES: u64 = 1 << 15;
/// A pair of this size takes the smallest slab, with a key of eight bytes.
const SMALL: [u8; 8] = [7; 8];
const BIG: [u8; 480] = [9; 480];

struct Fragments {
    processor: Processor,
    replies: Replies,
    /// Keys that are in the store, in the order in which they came.
    kept: Vec<[u8; 8]>,
}

impl Fragments {
    /// Fills a store, and deletes a third of the pairs at random, and the first `side_by_side`, which are in the zone that a
    /// search visits last.
    fn new(side_by_side: usize) -> Self {
        let settings = Settings { memory: MEMORY, hash_index_ratio: 0.25, inline_threshold: 0, grows: false, seed: 3 };
        let (mut processor, mut replies) = (Processor::new(&settings).unwrap(), Replies::with_budget(1 << 20));
        let mut keys: Vec<[u8; 8]> = Vec::new();
        loop {
            let count = keys.len() as u64;
            keys.extend((count..count + 256).map(u64::to_le_bytes));
            let requests: Vec<_> =
                keys[count as usize..].iter().map(|key| Request { key, operation: put(&SMALL) }).collect();
            processor.execute(&requests, &mut replies);
            if replies.iter().any(|reply| reply != Reply::Done) {
                let stored = (0..256).filter(|index| replies.get(*index) == Reply::Done);
                let stored: Vec<_> = stored.map(|index| keys[count as usize + index]).collect();
                keys.truncate(count as usize);
                keys.extend(stored);
                break;
            }
        }
        let mut random = SplitMix64::new(5);
        let (mut deleted, mut kept) = (Vec::new(), Vec::new());
        for (number, key) in keys.into_iter().enumerate() {
            (if number < side_by_side || random.below(3) == 0 { &mut deleted } else { &mut kept }).push(key);
        }
        // What is released together would be joined together.
        for number in (1..deleted.len()).rev() {
            deleted.swap(number, random.below(number as u64 + 1) as usize);
        }
        let mut fragments = Fragments { processor, replies, kept };
        for keys in deleted.chunks(256) {
            fragments.all_are_done(keys, Operation::Delete);
        }
        fragments
    }

    fn all_are_done(&mut self, keys: &[[u8; 8]], operation: Operation<'_>) {
        let requests: Vec<_> = keys.iter().map(|key| Request { key, operation }).collect();
        self.processor.execute(&requests, &mut self.replies);
        assert!(self.replies.iter().all(|reply| reply == Reply::Done));
    }

    /// A put of many small slabs' size alone.
    fn put_big(&mut self) -> Reply<'_> {
        self.processor.execute(&[Request { key: b"big", operation: put(&BIG) }], &mut self.replies);
        self.replies.get(0)
    }
}

/// While the daemon does nothing at all, a batch returns, with all executed except the put and later requests of its
/// key; deletes, overwrites and new small pairs go on turn after turn.
#[test]
fn a_put_that_needs_merging_holds_up_nothing_but_its_own_key() {
    let mut fragments = Fragments::new(0);
    let _held_back: MergeDaemon = fragments.processor.merge_daemon();
    let pairs = fragments.processor.statistics().pairs;
    for turn in 0..20_usize {
        let kept = std::mem::take(&mut fragments.kept);
        let new: Vec<[u8; 8]> = (0..64).map(|number| ((1 << 40) + turn as u64 * 64 + number).to_le_bytes()).collect();
        let mut requests = vec![Request { key: b"big", operation: put(&BIG) }];
        let overwritten = [turn as u8; 8];
        for number in 0..64 {
            requests.push(Request { key: &kept[turn * 128 + number], operation: Operation::Delete });
            requests.push(Request { key: &kept[turn * 128 + 64 + number], operation: put(&overwritten) });
            requests.push(Request { key: &new[number], operation: put(&SMALL) });
        }
        // More than two parts of a batch after the put.
        requests.extend(kept[3000..3600].iter().map(|key| Request { key, operation: Operation::Get }));
        let own = [Operation::Get, Operation::Contains, put(&SMALL), Operation::Delete];
        let others = requests.len();
        requests.extend(own.map(|operation| Request { key: b"big", operation }));
        fragments.processor.execute(&requests, &mut fragments.replies);
        let replies = &fragments.replies;
        let deferred: Vec<usize> = (0..requests.len()).filter(|index| replies.is_deferred(*index)).collect();
        assert_eq!(deferred, [0, others, others + 1, others + 2, others + 3], "turn {turn}");
        let (writes, reads) = (1..=192, 193..others);
        assert!(writes.into_iter().all(|index| replies.get(index) == Reply::Done), "turn {turn}");
        assert!(reads.into_iter().all(|index| replies.get(index) == Reply::Value(&SMALL)), "turn {turn}");
        fragments.kept = kept;
    }
    assert_eq!(fragments.processor.statistics().pairs, pairs, "as many came as went");
}

/// The daemon gets passes of bounded size, a bounded number at a time, and as many turns as there are zones are enough,
/// to find what can be joined in the last of them, and to find out that nothing can.
#[test]
fn a_search_takes_bounded_passes_and_a_bounded_number_of_turns() {
    for side_by_side in [64, 0] {
        let mut fragments = Fragments::new(side_by_side);
        let daemon = fragments.processor.merge_daemon();
        let before = fragments.processor.statistics().slab;
        let (mut turns, mut passes, mut entries) = (0, 0, 0);
        let reply = loop {
            turns += 1;
            let reply = fragments.put_big();
            if reply != Reply::Deferred {
                break format!("{reply:?}");
            }
            let handed_over = daemon.run_waiting();
            assert!(handed_over.len() <= 4, "{handed_over:?}");
            assert!(handed_over.iter().all(|entries| *entries as u64 <= ZONE_ENTRIES), "{handed_over:?}");
            passes += handed_over.len() as u64;
            entries += handed_over.iter().sum::<usize>();
            assert!(turns <= 2 * ZONES + 2, "the search ends");
        };
        let expected = if side_by_side > 0 { Reply::Done } else { Reply::Failed(OperationError::SlabFull) };
        assert_eq!(reply, format!("{expected:?}"), "{side_by_side} side by side");
        let after = fragments.processor.statistics().slab;
        println!("{side_by_side} side by side: {turns} turns, {passes} passes, {entries} entries");
        assert!(turns > 2 && passes <= 2 * ZONES, "{turns} turns, {passes} passes");
        assert!(
            after.merged_entries - before.merged_entries <= 2 * ZONE_ENTRIES,
            "the shard left the work to the daemon"
        );
    }
}

/// Other clients delete and store pairs in every batch, before the puts that wait: as many as make each search worth another
/// one, and large ones, which take what was joined. The puts are done or refused all the same, all of them together.
#[test]
fn puts_that_wait_are_told_soon_though_others_delete_and_store_beside_them() {
    let large = vec![3; 20_000];
    for (has_daemon, value, side_by_side) in [(true, &BIG[..], 0), (false, &BIG, 64), (true, &large, 256)] {
        let mut fragments = Fragments::new(side_by_side);
        let daemon = has_daemon.then(|| fragments.processor.merge_daemon());
        let kept = std::mem::take(&mut fragments.kept);
        let mut waiting: Vec<[u8; 8]> = (0..8).map(|number| (u64::MAX - number).to_le_bytes()).collect();
        let (mut turns, mut done, mut refused) = (0_usize, 0, 0);
        while !waiting.is_empty() {
            let new: Vec<[u8; 8]> =
                (0..2000).map(|number| ((1 << 40) + turns as u64 * 2000 + number).to_le_bytes()).collect();
            let mut requests = Vec::new();
            // Far from each other, so that they make no long runs.
            for (old, new) in kept.iter().skip(turns).step_by(kept.len() / 2000).zip(&new) {
                requests.push(Request { key: old, operation: Operation::Delete });
                requests.push(Request { key: new, operation: put(&SMALL) });
            }
            let others = (1 << 50) + turns as u64 % 2;
            let other = others.to_le_bytes();
            let operation = if turns % 4 < 2 { put(&BIG) } else { Operation::Delete };
            requests.push(Request { key: &other, operation });
            let first = requests.len();
            requests.extend(waiting.iter().map(|key| Request { key, operation: put(value) }));
            fragments.processor.execute(&requests, &mut fragments.replies);
            let replies: Vec<String> = fragments.replies.iter().skip(first).map(|reply| format!("{reply:?}")).collect();
            done += replies.iter().filter(|reply| *reply == "Done").count();
            refused += replies.iter().filter(|reply| reply.contains("SlabFull")).count();
            let mut reply = replies.iter();
            waiting.retain(|_| reply.next().unwrap() == "Deferred");
            if let Some(daemon) = &daemon {
                daemon.run_waiting();
            }
            turns += 1;
            assert!(turns as u64 <= 2 * ZONES + 2, "{} puts of {} B wait", waiting.len(), value.len());
        }
        println!("daemon {has_daemon}: {done} of {} B done and {refused} refused after {turns} turns", value.len());
        assert_eq!(done + refused, 8);
    }
}

/// Without a daemon every batch merges a bounded part, so a caller that submits again what was deferred comes to an end.
#[test]
fn without_a_daemon_each_batch_merges_a_part_until_the_put_is_done_or_refused() {
    for side_by_side in [64, 0] {
        let mut fragments = Fragments::new(side_by_side);
        let free = fragments.processor.statistics().slab_free_bytes / 32;
        let (mut deferred, mut merged) = (0, fragments.processor.statistics().slab.merged_entries);
        let reply = loop {
            let reply = format!("{:?}", fragments.put_big());
            let now = fragments.processor.statistics().slab.merged_entries;
            assert!(now - merged <= MERGE_WORK_MAX as u64 + ZONE_ENTRIES, "{} entries in a batch", now - merged);
            if reply != "Deferred" {
                break reply;
            }
            assert!(now > merged, "a batch that defers has merged");
            (deferred, merged) = (deferred + 1, now);
        };
        let expected = if side_by_side > 0 { Reply::Done } else { Reply::Failed(OperationError::SlabFull) };
        assert_eq!(reply, format!("{expected:?}"), "{side_by_side} side by side");
        println!("{side_by_side} side by side: {deferred} batches deferred for {free} free slabs");
        assert!(deferred > 0 && deferred <= 2 * (free / MERGE_WORK_MAX as u64 + 1), "{deferred} batches");
    }
}

/// Memory that small pairs leave serves large ones beside a daemon that runs whenever it likes: nothing is refused while
/// what is free could be joined, and what is deferred gets its turn.
#[test]
fn no_put_is_refused_while_free_memory_can_be_joined() {
    let mut fragments = Fragments::new(0);
    let daemon = fragments.processor.merge_daemon();
    let thread = std::thread::spawn(move || daemon.run());
    let kept = std::mem::take(&mut fragments.kept);
    for keys in kept.chunks(256) {
        fragments.all_are_done(keys, Operation::Delete);
    }
    let free = fragments.processor.statistics().slab_free_bytes;
    let mut count = 0_u32;
    loop {
        let key = count.to_le_bytes();
        let request = Request { key: &key, operation: put(&BIG) };
        fragments.processor.execute(&[request], &mut fragments.replies);
        match fragments.replies.get(0) {
            Reply::Done => count += 1,
            Reply::Deferred => std::thread::yield_now(),
            reply => break assert!(matches!(reply, Reply::Failed(error) if error.is_out_of_memory()), "{reply:?}"),
        }
    }
    let left = fragments.processor.statistics().slab_free_bytes;
    assert!(left <= free / 64, "{left} of {free} bytes are left after {count} pairs");
    drop(fragments);
    thread.join().unwrap();
}

/// A large value takes all its slabs or none: one for which there is no room changes nothing, however often it is tried.
#[test]
fn a_large_value_that_is_put_off_holds_nothing() {
    let mut fragments = Fragments::new(0);
    let _held_back = fragments.processor.merge_daemon();
    let large = vec![1; 1 << 20];
    let before = fragments.processor.statistics();
    for _ in 0..10 {
        let operations = [put(&large), Operation::Get];
        let replies = execute(&mut fragments.processor, &mut fragments.replies, &operations);
        assert_eq!(replies, [Reply::Deferred, Reply::Deferred]);
    }
    let after = fragments.processor.statistics();
    assert_eq!((after.slab_free_bytes, after.pairs), (before.slab_free_bytes, before.pairs));
    assert_eq!(after.slab.allocations, before.slab.allocations);
    assert_eq!(after.operations, before.operations, "what is deferred is not counted");
}

/// Executes requests until none is deferred, beside a daemon that is slow, with the replies of the naive store. Returns the
/// number of deferred and of refused ones.
fn settle<'a>(
    processor: &mut Processor,
    daemon: &MergeDaemon,
    naive: &mut NaiveStore,
    mut left: Vec<Request<'a>>,
    of: &str,
) -> (usize, usize) {
    let mut replies = Replies::with_budget(1 << 20);
    let (mut deferred, mut refused, mut turns) = (0, 0, 0);
    while !left.is_empty() {
        processor.execute(&left, &mut replies);
        let mut again: Vec<Request<'a>> = Vec::new();
        for (request, reply) in left.iter().zip(replies.iter()) {
            if reply == Reply::Deferred {
                again.push(*request);
                continue;
            }
            let overtakes = request.validate().is_ok() && again.iter().any(|earlier| earlier.key == request.key);
            assert!(!overtakes, "{of}: {request:?}");
            refused += usize::from(matches!(reply, Reply::Failed(error) if error.is_out_of_memory()));
            let checked = naive.check(request, reply);
            assert!(checked.is_ok(), "{of}: {request:?}\n{reply:?}, not {checked:?}");
        }
        deferred += again.len();
        left = again;
        turns += 1;
        if turns % 3 == 0 {
            daemon.run_waiting();
        }
        assert!(turns < 1000, "{of}: {} are left", left.len());
    }
    (deferred, refused)
}

/// Random operations on a store that is full most of the time: what is deferred is executed later, in the order of each key.
/// Small pairs fill the memory at first, and some of them are deleted in each batch, far from each other: so much is free, in
/// pieces.
#[test]
fn deferred_operations_keep_the_order_of_their_keys() {
    const BATCHES: usize = 150;
    let pieces: Vec<[u8; 8]> = (0..60_000_u64).map(u64::to_le_bytes).collect();
    let (mut deferred, mut refused) = (0, 0);
    for seed in 0..6 {
        let settings = Settings { memory: 2 << 20, hash_index_ratio: 0.1, inline_threshold: 0, grows: false, seed };
        let mut processor = Processor::new(&settings).unwrap();
        let daemon = processor.merge_daemon();
        let mut naive = NaiveStore::new();
        let mix = Mix { put: 50, delete: 20, ..Mix::default() };
        let settings = GeneratorSettings { seed, key_count: 8000, key_size: 1..=64, mix, ..Default::default() };
        let mut generator = Generator::new(settings);
        let stored = pieces.iter().map(|key| Request { key, operation: put(&SMALL) }).collect();
        settle(&mut processor, &daemon, &mut naive, stored, "pieces");
        for batch in 0..BATCHES {
            let owned: Vec<OwnedRequest> = generator.by_ref().take(700).collect();
            let mut requests: Vec<Request<'_>> = owned.iter().map(OwnedRequest::as_request).collect();
            let deleted = pieces.iter().skip(batch * 2).step_by(BATCHES * 2);
            requests.extend(deleted.map(|key| Request { key, operation: Operation::Delete }));
            let of = format!("seed {seed} batch {batch}");
            let (more_deferred, more_refused) = settle(&mut processor, &daemon, &mut naive, requests, &of);
            (deferred, refused) = (deferred + more_deferred, refused + more_refused);
        }
        // The time is 0, and so are some expiries.
        while processor.reclaim_from() == Some(0) {
            processor.reclaim();
        }
        let statistics = processor.statistics();
        assert_eq!((statistics.pairs, statistics.pair_bytes), (naive.len() as u64, naive.key_and_value_bytes()));
    }
    println!("{deferred} deferred, {refused} refused");
    assert!(deferred > 1000 && refused > 1000, "{deferred} deferred, {refused} refused");
}
