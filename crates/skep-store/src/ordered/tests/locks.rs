//! The locks of space, garbage and leases: reads take none, and no thread takes two.

use crate::ordered::sync::{Mutex, lock_count};
use crate::ordered::{OrderedSettings, OrderedStore, Range};
use skep_core::operation::{PutCondition, Reply};

/// Gets and scans take no lock at all, also while there is garbage.
#[test]
fn reads_take_no_lock() {
    let store = OrderedStore::new(&OrderedSettings::new(64 << 20)).unwrap();
    let (mut session, mut reader) = (store.session().unwrap(), store.session().unwrap());
    let keys: Vec<[u8; 4]> = (0..5_000_u32).map(u32::to_be_bytes).collect();
    let mut write_all = |value: u8| {
        for key in &keys {
            assert_eq!(session.put(key, &[value; 600], PutCondition::Always), Reply::Done);
        }
    };
    write_all(0);
    write_all(1);
    let before = lock_count();
    let names: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
    assert!(reader.get(names[7], &mut Vec::new()));
    reader.get_batch(&names, |value| assert!(value.is_some()));
    reader.scan(Range::ALL, |_, _| true);
    reader.scan_reverse(Range::ALL, |_, _| true);
    reader.scan_batch(&[Range::ALL; 3], |_, _, _| true);
    assert_eq!(lock_count() - before, 0, "locks taken by readers");
    // The count is one that moves.
    write_all(2);
    assert!(lock_count() > before);
}

#[test]
#[should_panic(expected = "a thread takes a second lock of the store")]
fn control_a_second_lock_is_caught() {
    let (first, second) = (Mutex::new(1), Mutex::new(2));
    let _guard = first.lock();
    let _ = second.lock();
}
