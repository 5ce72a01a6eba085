//! The ordered store against the obvious one: random batches of all operations, scans and leases among them, from a printed
//! seed. `SKEP_SEED` repeats a run.

use std::thread;
use std::time::{Duration, Instant};

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use skep_core::function::{Element, UpdateFunction};
use skep_core::operation::{
    Operation, OperationError, Page, PutCondition, Reply, Request, Scan, ScanAnswer, ScanEnd, ScanLease, ScanStart,
    Shape, Update,
};
use skep_store::hash::Settings;
use skep_store::naive::{
    Generator, GeneratorSettings, Harness, Mix, NaiveStore, OwnedOperation, OwnedRequest, SizeWeights, seeds,
};
use skep_store::ordered::{OrderedSettings, OrderedStore, STEP_KEYS_MAX, Session};
use skep_store::processor::{Processor, Replies};

struct Case {
    memory: u64,
    generator: GeneratorSettings,
    operations: u64,
    reply_budget: usize,
}

/// Counts of the cases that were found, so that a test can assert that each was.
#[derive(Debug, Default)]
struct Seen {
    nodes_full: u64,
    deferred: u64,
    /// Pages after which the scan continued.
    continued: u64,
    /// Pages of a lease except its first.
    leased: u64,
    expired: u64,
    /// Keys that were removed because they had expired.
    reclaimed: u64,
}

fn seed() -> u64 {
    seeds(&[20_171_028])[0]
}

fn owned(request: &Request<'_>) -> Option<OwnedRequest> {
    let Operation::Scan(Scan { start, end, reverse, limit, answer, lease }) = request.operation else { return None };
    let scan = Scan { start, end: end.with_bytes(&[]), reverse, limit, answer, lease };
    Some(OwnedRequest {
        key: request.key.to_vec(),
        operation: OwnedOperation::Scan { end: end.bytes().to_vec(), scan },
    })
}

/// Makes steps until the memory of all keys that have expired is free. Each removes a bounded number of them.
fn reclaim(session: &mut Session<'_>, now: u64) -> u64 {
    let mut removed = 0;
    while session.reclaim_from().is_some_and(|from| from <= now) {
        let keys = session.reclaim().unwrap_or(0);
        assert!(keys <= STEP_KEYS_MAX);
        removed += keys as u64;
    }
    removed
}

/// Runs a case in batches of 1 to 300, and compares every reply. Scans continue in a later batch. Keys expire during the
/// run.
fn run(case: Case) -> Seen {
    let seed = case.generator.seed;
    println!("seed {seed}");
    // Leases are ended by count and size here: the naive store knows no time, and a busy machine may take any.
    let lease_time = Duration::from_secs(3600);
    let store = OrderedStore::new(&OrderedSettings { lease_time, ..OrderedSettings::new(case.memory) }).unwrap();
    let mut session = store.session().unwrap();
    let mut harness = Harness::new(NaiveStore::ordered(), case.reply_budget, seed);
    let mut generator = Generator::new(case.generator);
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let (mut continued, mut leased, mut reclaimed) = (0, 0, 0);
    let mut next_pages: Vec<OwnedRequest> = Vec::new();
    while harness.operations() < case.operations {
        let size = random.random_range(1..=300);
        let mut batch: Vec<OwnedRequest> = generator.by_ref().take(size).collect();
        for page in next_pages.drain(..) {
            batch.insert(random.random_range(0..=batch.len()), page);
        }
        let requests: Vec<Request<'_>> = batch.iter().map(OwnedRequest::as_request).collect();
        // The last of the usual expiries passes in the first half. Most keys are overwritten before they are reclaimed.
        let milliseconds = harness.operations() * 2000 / case.operations;
        store.set_now(milliseconds);
        harness.set_now(milliseconds);
        match random.random_range(0..8) {
            0 => reclaimed += reclaim(&mut session, milliseconds),
            1..=4 => reclaimed += session.reclaim().unwrap_or(0) as u64,
            _ => {}
        }
        let now = Instant::now();
        let execute = |requests: &[Request<'_>], replies: &mut Replies| session.execute(requests, replies, now);
        harness.execute_with(&requests, execute, |request, reply| {
            let (Operation::Scan(scan), Reply::Value(page)) = (request.operation, reply) else { return };
            leased += u64::from(matches!(scan.lease, ScanLease::Continue(_)));
            let page = Page::decode(page).expect("the reply to a scan is a page");
            if let Some(next) = request.after_page(&page)
                && next_pages.len() < 20
            {
                continued += 1;
                next_pages.extend(owned(&next));
            }
        });
    }
    store.set_now(2000);
    harness.set_now(2000);
    reclaimed += reclaim(&mut session, 2000);
    let (checked, naive) = (session.check(), harness.naive());
    assert_eq!((checked.pairs, checked.pair_bytes), (naive.len() as u64, naive.key_and_value_bytes()), "seed {seed}");
    assert_eq!(store.statistics().expiring, naive.expiring() as u64, "seed {seed}");
    let seen = Seen {
        nodes_full: harness.failed(OperationError::NodesFull),
        deferred: harness.deferred(),
        continued,
        leased,
        expired: harness.failed(OperationError::LeaseExpired),
        reclaimed,
    };
    println!("{} operations, {seen:?} {:?}", harness.operations(), store.statistics());
    seen
}

/// All operations.
fn with_scans() -> Mix {
    Mix { scan: 4, ..Mix::default() }
}

#[test]
fn all_operations_in_a_memory_with_room() {
    let generator =
        GeneratorSettings { seed: seed(), key_count: 3000, mix: with_scans(), ..GeneratorSettings::default() };
    let seen = run(Case { memory: 256 << 20, generator, operations: 100_000, reply_budget: 1 << 20 });
    assert_eq!(seen.nodes_full, 0);
    assert!(seen.continued > 500 && seen.leased > 100 && seen.expired > 100, "{seen:?}");
    assert!(seen.reclaimed > 100, "{seen:?}");
}

#[test]
fn few_hot_keys() {
    let generator = GeneratorSettings {
        seed: seed() + 1,
        key_count: 12,
        key_size: 1..=3,
        mix: with_scans(),
        ..GeneratorSettings::default()
    };
    run(Case { memory: 64 << 20, generator, operations: 100_000, reply_budget: 1 << 20 });
}

#[test]
fn large_values_and_a_small_reply_budget() {
    let generator = GeneratorSettings {
        seed: seed() + 2,
        key_count: 60,
        sizes: SizeWeights { empty: 1, inline: 2, slab: 5, large: 10 },
        large_size_max: 100_000,
        mix: with_scans(),
        ..GeneratorSettings::default()
    };
    let seen = run(Case { memory: 256 << 20, generator, operations: 8_000, reply_budget: 100_000 });
    assert!(seen.deferred > 0 && seen.leased > 0);
}

#[test]
fn a_small_memory_fills_up() {
    let generator = GeneratorSettings {
        seed: seed() + 3,
        key_count: 20_000,
        mix: Mix { put: 50, ..with_scans() },
        ..GeneratorSettings::default()
    };
    let seen = run(Case { memory: 1 << 20, generator, operations: 30_000, reply_budget: 1 << 20 });
    assert!(seen.nodes_full > 100, "{seen:?}");
}

/// Scan all with these settings, one page after the other, and count pairs and pages.
fn scan_all(session: &mut Session<'_>, scan: Scan<'_>, replies: &mut Replies) -> (Vec<Vec<u8>>, u32, usize) {
    let (mut keys, mut count, mut pages) = (Vec::new(), 0, 0);
    let mut next = owned(&Request { key: b"", operation: Operation::Scan(scan) });
    while let Some(request) = next {
        let request = request.as_request();
        session.execute(&[request], replies, Instant::now());
        let Reply::Value(bytes) = replies.get(0) else { panic!("{:?}", replies.get(0)) };
        let page = Page::decode(bytes).unwrap();
        count += page.count();
        pages += 1;
        keys.extend(page.pairs().map(|(key, _)| key.to_vec()));
        next = request.after_page(&page).and_then(|next| owned(&next));
    }
    (keys, count, pages)
}

#[test]
fn pages_make_up_the_range() {
    const COUNT: u32 = 150_000;
    let store = OrderedStore::new(&OrderedSettings::new(256 << 20)).unwrap();
    let mut session = store.session().unwrap();
    let mut replies = Replies::with_budget(1 << 20);
    for number in 0..COUNT {
        assert_eq!(session.put(&number.to_be_bytes(), b"value", PutCondition::Always), Reply::Done);
    }
    let scan = Scan {
        start: ScanStart::AtOrAbove,
        end: ScanEnd::Last,
        reverse: false,
        limit: u32::MAX,
        answer: ScanAnswer::Pairs,
        lease: ScanLease::Open,
    };
    let mut ascending: Vec<Vec<u8>> = (0..COUNT).map(|number| number.to_be_bytes().to_vec()).collect();
    let forwards = scan_all(&mut session, scan, &mut replies);
    assert!(forwards.0 == ascending && forwards.1 == COUNT && forwards.2 > 30, "{} pages", forwards.2);
    let keys = scan_all(&mut session, Scan { answer: ScanAnswer::Keys, limit: 1000, ..scan }, &mut replies);
    assert!(keys.0 == ascending && keys.2 == 150);
    ascending.reverse();
    let backwards = scan_all(&mut session, Scan { reverse: true, ..scan }, &mut replies);
    assert!(backwards.0 == ascending && backwards.1 == COUNT);
    let counted = scan_all(&mut session, Scan { answer: ScanAnswer::Count, ..scan }, &mut replies);
    assert_eq!((counted.0.len(), counted.1, counted.2), (0, COUNT, 3));
    assert_eq!(store.statistics().leases.open, 0, "a lease ends with its scan");
}

/// A page that holds the greatest pair alone, and the one behind it.
#[test]
fn the_largest_values_are_pages_of_their_own() {
    let store = OrderedStore::new(&OrderedSettings::new(64 << 20)).unwrap();
    let mut session = store.session().unwrap();
    let mut replies = Replies::with_budget(1 << 20);
    for key in [b"a", b"b", b"c"] {
        assert_eq!(session.put(key, &vec![key[0]; 1 << 20], PutCondition::Always), Reply::Done);
    }
    let scan = Scan {
        start: ScanStart::AtOrAbove,
        end: ScanEnd::Last,
        reverse: false,
        limit: 100,
        answer: ScanAnswer::Pairs,
        lease: ScanLease::None,
    };
    assert_eq!(scan_all(&mut session, scan, &mut replies).2, 3);
    let keys = Scan { answer: ScanAnswer::Keys, ..scan };
    assert_eq!(scan_all(&mut session, keys, &mut replies).2, 1);
}

#[test]
fn a_hash_store_has_no_order() {
    let mut processor = Processor::new(&Settings::for_kv_size(1 << 20, 64, 1)).unwrap();
    let mut replies = Replies::with_budget(1 << 20);
    let scan = Scan {
        start: ScanStart::Floor,
        end: ScanEnd::Last,
        reverse: false,
        limit: 0,
        answer: ScanAnswer::Pairs,
        lease: ScanLease::None,
    };
    let requests =
        [Request { key: b"", operation: Operation::Scan(scan) }, Request { key: b"k", operation: Operation::Get }];
    processor.execute(&requests, &mut replies);
    assert_eq!(replies.get(0), Reply::Failed(OperationError::NotOrdered));
    assert_eq!(replies.get(1), Reply::NotFound);
    assert_eq!(NaiveStore::new().execute(&requests[0]), replies.get(0));
}

/// Counters of several threads beside writes of their neighbours: a number, a text, and a vector outside its node.
#[test]
fn updates_of_several_threads_are_atomic() {
    const THREADS: u64 = 3;
    const ROUNDS: u64 = 3_000;
    const VECTOR_SIZE: usize = 4_000;
    let store = OrderedStore::new(&OrderedSettings::new(256 << 20)).unwrap();
    let update = |initial| {
        Operation::Update(Update {
            function: UpdateFunction::Add,
            element: Element::U32,
            shape: Shape::ScalarToVector,
            operand: &[1, 0, 0, 0],
            initial: Some(initial),
            return_old: true,
        })
    };
    let zeros = [0; VECTOR_SIZE];
    let count = |thread: u64| {
        let mut session = store.session().unwrap();
        let mut replies = Replies::with_budget(16 << 20);
        let mut last = [0; 2];
        for round in 0..ROUNDS {
            let own = [b'k', thread as u8, round as u8];
            let put = Operation::Put { value: &[thread as u8; 50], condition: PutCondition::Always };
            let requests = [
                Request { key: b"kk", operation: update(&zeros[..4]) },
                Request { key: b"kl", operation: update(&zeros) },
                Request { key: b"km", operation: Operation::AddDecimal { delta: 1 } },
                Request { key: &own, operation: put },
                Request { key: b"km", operation: Operation::AddDecimal { delta: 1 } },
            ];
            session.execute(&requests, &mut replies, Instant::now());
            for (place, last) in last.iter_mut().enumerate() {
                let Reply::Value(old) = replies.get(place) else { panic!("{:?}", replies.get(place)) };
                assert!(old.chunks(4).all(|element| element == &old[..4]), "a vector is whole");
                let old = u32::from_le_bytes(*old.first_chunk().unwrap()) + 1;
                assert!(old > *last, "a counter counts up");
                *last = old;
            }
        }
    };
    thread::scope(|scope| {
        (0..THREADS).for_each(|thread| drop(scope.spawn(move || count(thread))));
    });
    let mut session = store.session().unwrap();
    let mut replies = Replies::with_budget(1 << 20);
    let gets = [b"kk", b"kl", b"km"].map(|key| Request { key, operation: Operation::Get });
    session.execute(&gets, &mut replies, Instant::now());
    let total = (THREADS * ROUNDS) as u32;
    assert_eq!(replies.get(0), Reply::Value(&total.to_le_bytes()));
    assert_eq!(replies.get(1), Reply::Value(&total.to_le_bytes().repeat(VECTOR_SIZE / 4)));
    assert_eq!(replies.get(2), Reply::Value((2 * total).to_string().as_bytes()));
    session.check();
}
