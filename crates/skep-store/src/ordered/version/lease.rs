//! Leases: versions that are kept for the pages of a scan.
//!
//! ```text
//! open ─▶ pin, then version ─▶ page, page, page ... ─▶ the last page ─▶ unpin
//!                                      └─ 5 s without a page, its memory is needed, too many leases ─▶ expired
//! ```
//!
//! A lease is an operation without a thread: a [`Pin`]. Frames that are retired while it lasts are garbage that waits
//! for it, so a lease costs as much memory as is written. It ends with its last page. It expires earlier in these
//! cases:
//!
//! 1. No page was requested for five seconds, or for the time in the settings.
//! 2. Garbage exceeds its budget, or a write finds no memory. Then those leases expire that the oldest garbage waits
//!    for, the oldest first.
//! 3. Another lease is opened and all are in use. Then one that is not being read expires: the oldest one of the owner that
//!    has the most leases, or of the one that opens another if it has as many. So one owner cannot end the leases of others.
//!
//! While a page is read its lease stays: it expires after the page.
//!
//! A lease belongs to the owner that opened it; in a server that is a connection. Another owner cannot use its number.
//! A number is a hash of a secret and a counter, so it cannot be guessed. It has 63 bits, so signed integers can hold
//! it.
//!
//! Opening and resuming a lease take a lock for a moment, and so does a batch when a lease is due. Gets, and scans
//! without a lease, do not.

use std::cmp::Reverse;
use std::hash::{DefaultHasher, Hasher};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use super::super::sync::{AtomicU64, Mutex, Ordering};
use super::epoch::{Epochs, Guard, Pin, PinName};
use super::versions::Versions;

/// Most leases at a time.
pub const LEASE_COUNT_MAX: usize = 32;
/// The default time for which a lease is kept without being read.
pub const LEASE_TIME: Duration = Duration::from_secs(5);

/// All leases of a store.
#[derive(Debug)]
pub(crate) struct Leases {
    /// The time for which a lease is kept without being read.
    time: Duration,
    /// The secret that numbers are made from.
    seed: u64,
    table: Mutex<Table>,
    /// The time when the first lease was opened.
    origin: OnceLock<Instant>,
    /// The time when the next lease expires, in nanoseconds since `origin`; `NEVER` if none does.
    due: AtomicU64,
}

const NEVER: u64 = u64::MAX;

#[derive(Debug)]
struct Table {
    /// In the order in which they were opened.
    leases: Vec<Lease>,
    /// Count of the numbers that were given.
    number_count: u64,
    expired: u64,
    ended_for_memory: u64,
}

#[derive(Debug)]
struct Lease {
    pin: Pin,
    version: u64,
    owner: u64,
    /// Zero while the first page is read.
    number: u64,
    until: Instant,
    /// Threads that are reading a page of it.
    readers: u32,
    /// True if it ends when its last reader has finished.
    is_over: bool,
}

/// A lease of which a page is being read: it stays pinned. References in the page borrow from this.
#[derive(Debug)]
pub(crate) struct LeaseReading<'l> {
    leases: &'l Leases,
    epochs: &'l Epochs,
    slot: usize,
    version: u64,
}

/// Statistics of the leases of a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeaseStatistics {
    /// Leases that are open.
    pub open: u64,
    /// Leases that ended before their scan did.
    pub expired: u64,
    /// Leases among these that ended because their memory was needed.
    pub ended_for_memory: u64,
}

impl Leases {
    /// Creates an empty table. Its leases are kept for this time without being read; their numbers follow from the
    /// seed.
    pub(crate) fn new(time: Duration, seed: u64) -> Self {
        let leases = Vec::with_capacity(LEASE_COUNT_MAX);
        let table = Table { leases, number_count: 0, expired: 0, ended_for_memory: 0 };
        Leases { time, seed, table: Mutex::new(table), origin: OnceLock::new(), due: AtomicU64::new(NEVER) }
    }

    /// Opens a lease on the newest version. Returns `None` if all leases are being read.
    pub(crate) fn open<'l>(
        &'l self,
        epochs: &'l Epochs,
        versions: &Versions,
        owner: u64,
        now: Instant,
    ) -> Option<LeaseReading<'l>> {
        let mut table = self.table.lock();
        if table.leases.len() == LEASE_COUNT_MAX {
            table.expire_for(owner, epochs);
        }
        let pin = epochs.pin()?;
        self.origin.get_or_init(|| now);
        let slot = pin.slot();
        // The version is read after pinning, as by any operation.
        let version = versions.read();
        let until = now + self.time;
        table.leases.push(Lease { pin, version, owner, number: 0, until, readers: 1, is_over: false });
        self.note_due(&table);
        Some(LeaseReading { leases: self, epochs, slot, version })
    }

    /// Resumes a lease of this owner. Returns `None` if it has expired.
    pub(crate) fn resume<'l>(
        &'l self,
        epochs: &'l Epochs,
        number: u64,
        owner: u64,
        now: Instant,
    ) -> Option<LeaseReading<'l>> {
        let mut table = self.table.lock();
        table.expire_due(epochs, now);
        let is_meant = |lease: &&mut Lease| (lease.number, lease.owner) == (number, owner) && !lease.is_over;
        let lease = table.leases.iter_mut().find(is_meant).filter(|_| number != 0);
        let found = lease.map(|lease| {
            lease.readers += 1;
            lease.until = now + self.time;
            LeaseReading { leases: self, epochs, slot: lease.pin.slot(), version: lease.version }
        });
        self.note_due(&table);
        found
    }

    /// Ends the leases whose time is over. Takes the lock only if there are any.
    pub(crate) fn expire_due(&self, epochs: &Epochs, now: Instant) {
        let due = self.due.load(Ordering::Relaxed);
        if due == NEVER || self.nanoseconds(now) < due {
            return;
        }
        // If another thread has the lock, that thread or a later batch does this.
        if let Some(mut table) = self.table.try_lock() {
            table.expire_due(epochs, now);
            self.note_due(&table);
        }
    }

    /// Ends the oldest lease that has one of these pins, because its memory is needed. Returns true if it was unpinned:
    /// a lease that is being read ends after its page.
    pub(crate) fn end_oldest_of(&self, epochs: &Epochs, pins: &[PinName]) -> bool {
        let mut table = self.table.lock();
        let Some(oldest) = table.leases.iter_mut().find(|lease| pins.contains(&lease.pin.name())) else {
            return false;
        };
        let is_unpinned = oldest.readers == 0;
        let is_first = !std::mem::replace(&mut oldest.is_over, true);
        table.expired += u64::from(is_first);
        table.ended_for_memory += u64::from(is_first);
        table.unpin(epochs);
        self.note_due(&table);
        is_unpinned
    }

    /// Ends the leases of an owner that has ended.
    pub(crate) fn end_of_owner(&self, epochs: &Epochs, owner: u64) {
        let mut table = self.table.lock();
        table.leases.iter_mut().filter(|lease| lease.owner == owner).for_each(|lease| lease.is_over = true);
        table.unpin(epochs);
        self.note_due(&table);
    }

    pub(crate) fn statistics(&self) -> LeaseStatistics {
        let table = self.table.lock();
        let Table { expired, ended_for_memory, .. } = *table;
        LeaseStatistics { open: table.leases.len() as u64, expired, ended_for_memory }
    }

    /// Stores when the next lease that is not being read expires.
    fn note_due(&self, table: &Table) {
        let unread = table.leases.iter().filter(|lease| lease.readers == 0);
        let due = unread.map(|lease| self.nanoseconds(lease.until)).min().unwrap_or(NEVER);
        self.due.store(due, Ordering::Relaxed);
    }

    fn nanoseconds(&self, time: Instant) -> u64 {
        let since = time.saturating_duration_since(*self.origin.get_or_init(|| time));
        u64::try_from(since.as_nanos()).unwrap_or(NEVER - 1)
    }

    /// Returns the number of the n-th lease: SipHash in today's standard library.
    fn number(&self, count: u64) -> u64 {
        let mut hasher = DefaultHasher::new();
        hasher.write_u64(self.seed);
        hasher.write_u64(count);
        hasher.finish() >> 1
    }
}

impl Table {
    fn expire_due(&mut self, epochs: &Epochs, now: Instant) {
        for lease in &mut self.leases {
            if lease.until <= now && lease.readers == 0 {
                lease.is_over = true;
                self.expired += 1;
            }
        }
        self.unpin(epochs);
    }

    /// Ends a lease that is not being read, so that an owner can open another one.
    fn expire_for(&mut self, owner: u64, epochs: &Epochs) {
        let share = |of: u64| {
            // As if the new one existed: of two with as many, the owner that opens another one loses one.
            self.leases.iter().filter(|lease| lease.owner == of).count() + usize::from(of == owner)
        };
        let unread = self.leases.iter().enumerate().filter(|(_, lease)| lease.readers == 0);
        let lost = unread.min_by_key(|(index, lease)| (Reverse(share(lease.owner)), *index));
        if let Some((index, _)) = lost {
            self.leases[index].is_over = true;
            self.expired += 1;
            self.unpin(epochs);
        }
    }

    /// Unpins all leases that are over and are not being read.
    fn unpin(&mut self, epochs: &Epochs) {
        for lease in self.leases.extract_if(.., |lease| lease.is_over && lease.readers == 0) {
            epochs.unpin(lease.pin);
        }
    }
}

impl LeaseReading<'_> {
    /// Returns the version that its pages show, and a guard for reading it. The guard is that of the operation that
    /// reads the page. It is lent no longer than this borrow lasts, so references read under it do not outlive the pin.
    pub(crate) fn as_of<'r>(&'r self, guard: &'r Guard<'_>) -> (u64, &'r Guard<'r>) {
        (self.version, guard)
    }

    /// Ends the page; if no more pairs follow, its lease is over. Returns the number for the next page if more follow
    /// and the lease has not expired.
    pub(crate) fn conclude(&self, more: bool) -> Option<u64> {
        let mut table = self.leases.table.lock();
        let Table { leases, number_count, .. } = &mut *table;
        let lease = leases.iter_mut().find(|lease| lease.pin.slot() == self.slot)?;
        if !more {
            lease.is_over = true;
        }
        while lease.number == 0 && more {
            *number_count += 1;
            lease.number = self.leases.number(*number_count);
        }
        more.then_some(lease.number)
    }
}

impl Drop for LeaseReading<'_> {
    fn drop(&mut self) {
        let mut table = self.leases.table.lock();
        if let Some(lease) = table.leases.iter_mut().find(|lease| lease.pin.slot() == self.slot) {
            lease.readers -= 1;
            // The number of a lease is not known if its first page was not concluded.
            lease.is_over |= lease.number == 0;
        }
        table.unpin(self.epochs);
        self.leases.note_due(&table);
    }
}
