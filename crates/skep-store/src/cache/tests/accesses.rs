//! Lines that an operation on a small pair takes, counted in the stages of the product: at most 2 random lines for a GET and 1
//! for a PUT (HERD, section 4.1).
//!
//! The log and the sweep use adjacent lines, one after another. So a PUT writes its bucket and the next line of the log, and
//! reads a line that the sweep visits now and then.

use super::{MEMORY_SIZE, Tested, put};
use crate::memory::{AccessCounts, CountingMemory, LocalMemory};
use skep_core::function::{Element, UpdateFunction};
use skep_core::operation::{Operation, PutCondition, Reply, Request, Shape, Update};

type Counted = Tested<CountingMemory<LocalMemory>>;

fn counted(kv_size: usize) -> Counted {
    let memory = CountingMemory::with_resident_lines(LocalMemory::new(MEMORY_SIZE).unwrap());
    Tested::with_memory(memory, kv_size, 11)
}

impl Counted {
    /// Executes an operation. Returns its accesses, and the buckets that were swept.
    fn count(&mut self, key: &[u8], operation: Operation<'_>) -> (AccessCounts, u64) {
        let swept = |tested: &Counted| {
            let cache = &tested.cache;
            cache.log.appended_units() * u64::from(cache.locator.bucket_count) / u64::from(cache.log.unit_count())
        };
        let before = swept(self);
        self.cache.memory().take_stage_counts();
        self.run(key, operation);
        assert_eq!(self.cache.memory().counts(), AccessCounts::default(), "all lines are resident");
        (self.cache.memory().take_stage_counts(), swept(self) - before)
    }
}

#[test]
fn a_get_takes_two_lines_and_a_put_one_besides_the_log() {
    for pair_size in 1..=56 {
        let mut tested = counted(pair_size);
        let key = |number: u64| number.to_le_bytes()[..pair_size.min(5)].to_vec();
        let value = vec![7; pair_size - pair_size.min(5)];
        let count = if pair_size < 3 { 100 } else { 1000 };
        let (mut lines, mut swept_in_all) = (0, 0);
        for number in 0..count {
            let used = tested.cache.statistics().log_used_bytes;
            let (puts, swept) = tested.count(&key(number), put(&value));
            assert_eq!(tested.run(&key(number), Operation::Contains), Reply::Done);
            assert!(puts.read_lines <= 1 + swept, "{pair_size} bytes: {puts:?}");
            assert_eq!((puts.write_accesses, puts.write_lines), (2, 2), "{pair_size} bytes: the bucket and the log");
            assert!(tested.cache.statistics().log_used_bytes - used <= 64, "{pair_size} bytes: the next line");
            (lines, swept_in_all) = (lines + puts.read_lines, swept_in_all + swept);
        }
        assert!(swept_in_all <= count / 5 + 1 && lines >= count, "{pair_size} bytes: {swept_in_all} swept");
        let mut lost = 0;
        for number in 0..count {
            let (gets, _) = tested.count(&key(number), Operation::Get);
            if tested.replies.get(0) == Reply::NotFound {
                lost += 1;
                continue;
            }
            let expected = AccessCounts { read_accesses: 2, read_lines: 2, ..Default::default() };
            assert_eq!((tested.replies.get(0), gets), (Reply::Value(&value), expected), "{pair_size} bytes");
        }
        // Two keys may have the same tag.
        assert!(lost <= 1 && lost == tested.cache.statistics().index_evictions, "{pair_size} bytes: {lost} lost");
    }
}

#[test]
fn a_get_of_a_missing_key_takes_one_line() {
    let mut tested = counted(16);
    for number in 0..20_000_u64 {
        tested.put(&number.to_le_bytes(), b"12345678");
    }
    let mut lines = 0;
    for number in 20_000..40_000_u64 {
        let (gets, _) = tested.count(&number.to_le_bytes(), Operation::Get);
        assert_eq!((tested.replies.get(0), gets.write_accesses), (Reply::NotFound, 0));
        lines += gets.read_lines;
    }
    assert_eq!(lines, 20_000, "the check excludes items of other keys");
}

#[test]
fn other_operations_take_two_lines() {
    let mut tested = counted(16);
    for number in 0..1000_u64 {
        tested.put(&number.to_le_bytes(), &number.to_le_bytes());
    }
    let add = Operation::Update(Update {
        function: UpdateFunction::Add,
        element: Element::U64,
        shape: Shape::ScalarToScalar,
        operand: &1_u64.to_le_bytes(),
        initial: None,
        return_old: true,
    });
    let absent = Operation::Put { value: b"87654321", condition: PutCondition::IfAbsent };
    let present = Operation::Put { value: b"87654321", condition: PutCondition::IfPresent };
    // Lines read and written. A replaced value is appended to the log; a changed one stays where it is.
    let operations =
        [(Operation::Contains, 2, 0), (add, 2, 1), (absent, 2, 0), (present, 2, 2), (Operation::Delete, 2, 1)];
    for (operation, read_lines, write_lines) in operations {
        for number in 0..100_u64 {
            let (counts, swept) = tested.count(&number.to_le_bytes(), operation);
            assert!(counts.read_lines <= read_lines + swept, "{operation:?}: {counts:?}");
            assert_eq!(counts.write_lines, write_lines, "{operation:?}");
        }
    }
    let (counts, swept) = tested.count(b"new", absent);
    assert_eq!((counts.read_lines, counts.write_lines), (1 + swept, 2), "an absent key has no item");
}

/// A batch takes no line that its requests alone do not take.
#[test]
fn a_batch_takes_the_lines_of_its_requests() {
    let mut tested = counted(16);
    let keys: Vec<[u8; 8]> = (0..256_u64).map(u64::to_le_bytes).collect();
    for key in &keys {
        tested.put(key, key);
    }
    tested.cache.memory().take_stage_counts();
    let gets: Vec<_> = keys.iter().map(|key| Request { key, operation: Operation::Get }).collect();
    tested.cache.execute(&gets, &mut tested.replies);
    let counts = tested.cache.memory().take_stage_counts();
    assert!(counts.read_lines <= 2 * 256 && counts.write_lines == 0, "{counts:?}");
}
