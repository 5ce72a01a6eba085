//! The replay of a log that has far more pairs than the memory, most of which have expired.

use crate::hash::Settings;
use crate::processor::{Processor, Replies};
use skep_core::operation::{Condition, Expiry, ExpiryChange, Operation, OperationError, Reply, Request, StringWrite};

const MEMORY: u64 = 1 << 20;
const VALUE: [u8; 200] = [5; 200];
/// Keys of a millisecond, which expire ten milliseconds later.
const KEYS: u64 = 50;
const LIFE: u64 = 10;
/// Bytes of the log's pairs: about ten times the memory.
const MILLISECONDS: u64 = 1000;

fn set(value: &[u8], expires_at: u64) -> Operation<'_> {
    let expiry = ExpiryChange::set(Expiry::at(expires_at as i64).expect("it is early"));
    Operation::StringWrite(StringWrite::Set { value, condition: Condition::ALWAYS, expiry, return_old: false })
}

/// Replays operations of each millisecond. In the second part of each one, the time is one millisecond earlier. Returns the
/// store, and the first failure.
fn replay(margin: Option<u64>) -> (Processor, Result<(), OperationError>) {
    let mut processor = Processor::new(&Settings::for_kv_size(MEMORY, 200, 3)).unwrap();
    let mut replies = Replies::with_budget(1 << 20);
    let mut outcome = Ok(());
    for time in 1..=MILLISECONDS {
        // Without a margin no key counts as expired.
        let all_after = margin.map_or(0, |margin| time.saturating_sub(margin));
        let keys: Vec<[u8; 8]> = (time * KEYS..(time + 1) * KEYS).map(u64::to_le_bytes).collect();
        let life = time + LIFE;
        let mut requests: Vec<_> = keys.iter().map(|key| Request { key, operation: set(&VALUE, life) }).collect();
        // After the put of the same key, which may be deferred.
        let overwrites = keys.iter().step_by(10).map(|key| Request { key, operation: set(b"last", life) });
        requests.extend(overwrites);
        outcome = outcome.and(processor.replay(time, all_after, &mut requests, &mut replies));
        let mut earlier = vec![Request { key: b"counter", operation: set(b"1", time - 1 + LIFE) }];
        outcome = outcome.and(processor.replay(time - 1, all_after, &mut earlier, &mut replies));
    }
    (processor, outcome)
}

#[test]
fn memory_of_expired_keys_is_free_for_later_operations() {
    for margin in [1, 2, LIFE] {
        let (mut processor, outcome) = replay(Some(margin));
        assert_eq!(outcome, Ok(()), "margin {margin}");
        processor.end_replay(MILLISECONDS);
        let mut replies = Replies::with_budget(1 << 20);
        for number in (MILLISECONDS - LIFE + 1) * KEYS..(MILLISECONDS + 1) * KEYS {
            let value: &[u8] = if number % 10 == 0 { b"last" } else { &VALUE };
            processor.execute(&[Request { key: &number.to_le_bytes(), operation: Operation::Get }], &mut replies);
            assert_eq!(replies.get(0), Reply::Value(value), "margin {margin}, key {number}");
        }
        let expired = ((MILLISECONDS - LIFE) * KEYS).to_le_bytes();
        processor.execute(&[Request { key: &expired, operation: Operation::Get }], &mut replies);
        assert_eq!(replies.get(0), Reply::NotFound);
    }
}

#[test]
fn without_a_replay_the_same_operations_find_no_memory() {
    let (_, outcome) = replay(None);
    assert!(outcome.is_err_and(OperationError::is_out_of_memory), "{outcome:?}");
}

/// A margin that is longer than the keys live lets too many of them take memory.
#[test]
fn keys_within_the_margin_keep_their_memory() {
    let (_, outcome) = replay(Some(MILLISECONDS));
    assert!(outcome.is_err_and(OperationError::is_out_of_memory), "{outcome:?}");
}
