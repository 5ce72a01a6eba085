//! Keys that expire: from the time of their expiry on, they are missing for every operation.

use std::collections::BTreeSet;

use super::Tested;
use crate::naive::{
    EXPIRIES_END, Generator, GeneratorSettings, Harness, NaiveStore, OwnedOperation, OwnedRequest, test_seeds,
};
use skep_core::operation::{
    Condition, Expiry, ExpiryChange, ExpiryCondition, Operation, Reply, Request, StringRead, StringWrite,
};

const GET_EXPIRY: Operation<'static> = Operation::StringRead(StringRead::Expiry);

/// Returns a set with an expiry.
fn set(value: &[u8], expiry: ExpiryChange) -> Operation<'_> {
    Operation::StringWrite(StringWrite::Set { value, condition: Condition::ALWAYS, expiry, return_old: false })
}

fn at(milliseconds: u64) -> ExpiryChange {
    ExpiryChange::set(Expiry::at(milliseconds as i64).unwrap())
}

/// Random operations while the time advances. Keys that have expired may be evicted, so evictions are only bounded.
#[test]
fn a_cache_with_expiries_is_a_naive_store_that_forgets() {
    for seed in test_seeds() {
        let mut tested = Tested::new(100, seed);
        let mut harness = Harness::new(NaiveStore::forgetful(), usize::MAX, seed);
        let mut generator = Generator::new(GeneratorSettings { seed, key_count: 3000, ..Default::default() });
        let (mut expired, batches) = (0, 400);
        for number in 0..batches {
            let now = EXPIRIES_END * number / batches;
            let before = harness.naive().len();
            tested.cache.set_now(now);
            harness.set_now(now);
            expired += (before - harness.naive().len()) as u64;
            let batch: Vec<OwnedRequest> = generator.by_ref().take(200).collect();
            let mut requests = Vec::new();
            for request in batch.iter().map(OwnedRequest::as_request) {
                if !request.operation.is_read() {
                    requests.push(Request { key: request.key, operation: Operation::Contains });
                }
                requests.push(request);
            }
            harness.execute(&requests, |requests, replies| tested.cache.execute(requests, replies));
        }
        let keys: Vec<Vec<u8>> = harness.naive().iter().map(|(key, _)| key.to_vec()).collect();
        let gets: Vec<_> = keys.iter().map(|key| Request { key, operation: Operation::Get }).collect();
        harness.execute(&gets, |requests, replies| tested.cache.execute(requests, replies));
        assert_eq!(harness.deferred(), 0, "SKEP_SEED={seed}: each write follows its `Contains`");
        let statistics = tested.cache.statistics();
        let lost = statistics.index_evictions + statistics.log_evictions + statistics.expired;
        let forgotten = harness.naive().forgotten();
        assert!((forgotten..=forgotten + expired).contains(&lost), "SKEP_SEED={seed}: {statistics:?}");
        assert!(statistics.items >= harness.naive().len() as u64, "SKEP_SEED={seed}: {statistics:?}");
        assert!(statistics.expired > 50, "SKEP_SEED={seed}: {statistics:?}");
    }
}

/// The reply of every operation to a key that has just expired is that to a missing key.
#[test]
fn an_expired_key_is_missing_for_every_operation() {
    for seed in test_seeds() {
        let mut tested = Tested::new(100, seed);
        let mut kinds = BTreeSet::new();
        for (number, request) in Generator::new(GeneratorSettings { seed, ..Default::default() }).take(5000).enumerate()
        {
            let now = 1000 + number as u64;
            let (request, key) = (request.as_request(), number.to_le_bytes());
            tested.cache.set_now(now);
            if request.validate_unordered().is_err() {
                continue;
            }
            kinds.insert(kind(&request.operation));
            // The expiry is one millisecond later.
            assert_eq!(tested.run(&key, set(b"12345678", at(now + 1))), Reply::Done);
            assert_eq!(tested.run(&key, Operation::Contains), Reply::Done, "it has not expired yet");
            tested.cache.set_now(now + 1);
            let mut naive = NaiveStore::new();
            naive.set_now(now + 1);
            let request = Request { key: &key, ..request };
            let reply = tested.run(&key, request.operation);
            assert_eq!(naive.check(&request, reply), Ok(()), "SKEP_SEED={seed}: {request:?}");
            for operation in [Operation::Get, GET_EXPIRY] {
                let reply = tested.run(&key, operation);
                assert_eq!(
                    naive.check(&Request { key: &key, operation }, reply),
                    Ok(()),
                    "SKEP_SEED={seed}: {request:?}"
                );
            }
        }
        assert_eq!(kinds.len(), 11 + 7 + 7, "SKEP_SEED={seed}: {kinds:?}");
    }
}

/// Returns the name of an operation.
fn kind(operation: &Operation<'_>) -> String {
    let (kind, name) = match operation {
        Operation::StringRead(read) => ("read", format!("{read:?}")),
        Operation::StringWrite(write) => ("write", format!("{write:?}")),
        Operation::Put { condition, .. } => ("put", format!("{condition:?}")),
        other => ("", format!("{other:?}")),
    };
    format!("{kind} {}", name.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default())
}

#[test]
fn an_expiry_is_set_kept_and_cleared() {
    let mut tested = Tested::new(16, 1);
    tested.cache.set_now(100);
    let expiry = |tested: &mut Tested| match tested.run(b"key", GET_EXPIRY) {
        Reply::Value(value) => u64::from_le_bytes(value.try_into().unwrap()),
        Reply::Done => 0,
        reply => panic!("{reply:?}"),
    };
    tested.run(b"key", set(b"5", at(200)));
    assert_eq!(expiry(&mut tested), 200);
    assert_eq!(tested.run(b"key", Operation::AddDecimal { delta: 1 }), Reply::Value(b"6"));
    assert_eq!(expiry(&mut tested), 200, "a counter keeps it");
    tested.run(b"key", set(b"7", ExpiryChange::KEEP));
    assert_eq!(expiry(&mut tested), 200, "and so does a set that says so");
    let expire = |expiry| {
        Operation::StringWrite(StringWrite::Expire { expiry, condition: ExpiryCondition::Always, return_value: true })
    };
    let used = tested.cache.statistics().log_used_bytes;
    assert_eq!(tested.run(b"key", expire(at(300))), Reply::Value(b"7"));
    assert_eq!((expiry(&mut tested), tested.cache.statistics().log_used_bytes), (300, used), "changed in place");
    assert_eq!(tested.run(b"key", expire(ExpiryChange::CLEAR)), Reply::Value(b"7"));
    assert_eq!(expiry(&mut tested), 0);
    tested.run(b"key", set(b"8", at(101)));
    tested.put(b"key", b"9");
    assert_eq!(expiry(&mut tested), 0, "a put clears it");
    // The time has passed already: the key is removed, also by a set that reads nothing.
    assert_eq!(tested.run(b"key", set(b"8", at(100))), Reply::Done);
    assert_eq!(tested.run(b"key", Operation::Get), Reply::NotFound);
    assert_eq!(tested.cache.statistics().items, 0);
    // The time does not go back.
    tested.run(b"key", set(b"8", at(150)));
    tested.cache.set_now(150);
    tested.cache.set_now(140);
    assert_eq!(tested.run(b"key", Operation::Get), Reply::NotFound);
    assert_eq!(tested.cache.statistics().expired, 1);
}

/// The generator has all kinds of operations with an expiry.
#[test]
fn a_set_with_an_expiry_takes_one_line() {
    let is_set = |request: &OwnedRequest| {
        let OwnedOperation::StringWrite { write, .. } = &request.operation else { return false };
        matches!(write, StringWrite::Set { condition, expiry, return_old: false, .. }
            if *condition == Condition::ALWAYS && *expiry != ExpiryChange::KEEP)
    };
    let mut count = 0;
    for request in Generator::new(GeneratorSettings::default()).filter(is_set).take(100) {
        assert!(super::super::execute::unconditional(&request.as_request().operation).is_some(), "{request:?}");
        count += 1;
    }
    assert_eq!(count, 100);
}
