//! The sweep: removes the entries of lost items from the index, bucket after bucket (MICA, NSDI 2014, section 4.3, where it
//! prevents that offsets wrap around).
//!
//! ```text
//! log     ├── appended since the last step ──┤      of all units
//! index   ├── swept in this step ────────────┤      of all buckets: the same share
//! ```
//!
//! 1. When an item is overwritten, its entry stays. It is a miss, because its age shows that it is lost.
//! 2. After each part of a batch, the sweep checks as many buckets as the part has appended units, in proportion. So it
//!    checks each bucket once while the log wraps around once.
//! 3. **Why it is needed.** Stored offsets have 32 bits, and without it an old entry would count as young after 2³² units. It
//!    also counts evictions by the log that no request has noticed.
//! 4. **What it costs.** It reads adjacent lines, and their number is proportional to the appended bytes: with
//!    pairs of 8 + 8 bytes, a fifth of a line for each PUT. It writes a line only if it has a lost item.

use super::bucket::Bucket;
use super::counts::Counts;
use super::log::Log;
use crate::memory::{Effect, LINE_SIZE, Pointer, ResidentLines};

/// The progress of the sweep.
#[derive(Debug, Default)]
pub(super) struct Sweep {
    /// The next bucket.
    next: u32,
    /// The units that were appended when the last step ended.
    appended_units: u64,
    /// Units, each times the number of buckets, that no bucket was swept for yet.
    credit: u64,
}

impl Sweep {
    /// Sweeps the share of the buckets that was appended to the log since the last call.
    #[inline]
    pub(super) fn step(&mut self, lines: &mut impl ResidentLines, log: &Log, bucket_count: u32, counts: &mut Counts) {
        let appended = log.appended_units() - self.appended_units;
        self.appended_units += appended;
        self.credit += appended * u64::from(bucket_count);
        let unit_count = u64::from(log.unit_count());
        // A batch that wraps the log around more than once needs each bucket once.
        for _ in 0..(self.credit / unit_count).min(u64::from(bucket_count)) {
            let at = Pointer::to_line_below_end(self.next);
            let bucket = Bucket::from_line_mut(lines.line(at));
            let lost = bucket.lost(log);
            if lost != 0 {
                counts.lose(bucket, lost, log);
                lines.note(at.span(LINE_SIZE), Effect::Changed);
            }
            self.next = if self.next + 1 == bucket_count { 0 } else { self.next + 1 };
        }
        self.credit %= unit_count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::bucket::KeyHash;
    use crate::memory::{LocalMemory, Memory};

    /// Entries of lost items are removed within one more wrap, so no stored offset becomes ambiguous. Those of kept items stay.
    #[test]
    fn each_bucket_is_swept_once_in_a_wrap() {
        const BUCKETS: u32 = 37;
        let memory = LocalMemory::new(1 << 16).unwrap();
        let mut lines = memory.resident().unwrap();
        let (mut log, mut sweep, mut counts) = (Log::new(40, 50), Sweep::default(), Counts::default());
        let (old, _) = log.append(1);
        for bucket in 0..BUCKETS {
            let hash = (u64::from(bucket) << 32).div_ceil(u64::from(BUCKETS)) << 32;
            let hash = KeyHash::from_hash(hash | 5, BUCKETS);
            assert_eq!(hash.pointer(), Pointer::to_line(bucket.into()));
            Bucket::from_line_mut(lines.line(hash.pointer())).set(3, hash, old.stored());
            counts.items += 1;
        }
        for appended in 2..=100 {
            log.append(1);
            sweep.step(&mut lines, &log, BUCKETS, &mut counts);
            assert_eq!((log.appended_units(), counts.log_evictions), (appended, 0), "the item is kept");
        }
        for _ in 0..101 {
            log.append(1);
            sweep.step(&mut lines, &log, BUCKETS, &mut counts);
        }
        assert_eq!((counts.log_evictions, counts.items), (u64::from(BUCKETS), 0));
    }
}
