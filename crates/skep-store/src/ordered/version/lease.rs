//! Leases: versions that are kept for the pages of a scan.
//!
//! ```text
//! open ─▶ hold, then version ─▶ page, page, page ... ─▶ the page that nothing follows ─▶ hold let go
//!                                      └─ 5 s without a page, its memory is needed, too many leases ─▶ expired
//! ```
//!
//! A lease is an operation under way that no thread is within: a [`Hold`]. Whatever is replaced while it lasts is garbage
//! that waits for it, so a lease costs as much memory as is written. It expires when nobody has asked for its next page for
//! five seconds, or as long as the settings say. If garbage goes beyond its budget, or a write finds no memory, leases expire
//! for which the oldest garbage waits, and only these, the oldest first. The oldest of all expires when another is opened and
//! there are as many as can be. While a page is read its lease cannot be pulled away: it expires after the page.
//!
//! A lease belongs to the owner that opened it, in a server a connection: with any other owner its number is unknown. Numbers
//! are hashes of a secret and a counter, so they cannot be guessed either, and have 63 bits, so that signed integers hold them.
//!
//! Opening a lease and going on with one take a lock for a moment, and so does a batch when a lease is due. Gets, and scans
//! without a lease, do not come here.

use std::hash::{DefaultHasher, Hasher};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use super::super::sync::{AtomicU64, Mutex, Ordering};
use super::epoch::{Epochs, Guard, Hold, HoldName};
use super::versions::Versions;

/// Most leases at a time.
pub const LEASE_COUNT_MAX: usize = 32;
/// How long a lease is kept without being read, unless the settings say otherwise.
pub const LEASE_TIME: Duration = Duration::from_secs(5);

/// All leases of a store.
#[derive(Debug)]
pub(crate) struct Leases {
    /// How long a lease is kept without being read.
    time: Duration,
    /// The secret that numbers are made of.
    seed: u64,
    table: Mutex<Table>,
    /// When the first lease of all was opened.
    origin: OnceLock<Instant>,
    /// When the next lease expires by time, in nanoseconds since `origin`; `NEVER` if none does.
    due: AtomicU64,
}

const NEVER: u64 = u64::MAX;

#[derive(Debug)]
struct Table {
    /// In the order in which they were opened.
    leases: Vec<Lease>,
    /// How many numbers were given.
    number_count: u64,
    expired: u64,
    ended_for_memory: u64,
}

#[derive(Debug)]
struct Lease {
    hold: Hold,
    version: u64,
    owner: u64,
    /// Zero while its first page is read.
    number: u64,
    until: Instant,
    /// Threads that read a page of it.
    readers: u32,
    /// Whether it goes when nobody reads it.
    is_over: bool,
}

/// A page of a lease that is being read: the lease stays. What is read for the page borrows from this.
#[derive(Debug)]
pub(crate) struct LeaseReading<'l> {
    leases: &'l Leases,
    epochs: &'l Epochs,
    slot: usize,
    version: u64,
}

/// Figures of the leases of a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeaseStatistics {
    /// Leases that are open.
    pub open: u64,
    /// Leases that ended before their scan did.
    pub expired: u64,
    /// Leases of these that ended because their memory was needed.
    pub ended_for_memory: u64,
}

impl Leases {
    /// No leases; those to come are kept so long without being read, and have numbers that only the seed tells.
    pub(crate) fn new(time: Duration, seed: u64) -> Self {
        let leases = Vec::with_capacity(LEASE_COUNT_MAX);
        let table = Table { leases, number_count: 0, expired: 0, ended_for_memory: 0 };
        Leases { time, seed, table: Mutex::new(table), origin: OnceLock::new(), due: AtomicU64::new(NEVER) }
    }

    /// Opens a lease on the newest version. None if as many as can be are being read at this moment.
    pub(crate) fn open<'l>(
        &'l self,
        epochs: &'l Epochs,
        versions: &Versions,
        owner: u64,
        now: Instant,
    ) -> Option<LeaseReading<'l>> {
        let mut table = self.table.lock();
        if table.leases.len() == LEASE_COUNT_MAX {
            table.expire_oldest_unread(epochs);
        }
        let hold = epochs.hold()?;
        self.origin.get_or_init(|| now);
        let slot = hold.slot();
        // The version is read behind the hold, as by any operation.
        let version = versions.read();
        let until = now + self.time;
        table.leases.push(Lease { hold, version, owner, number: 0, until, readers: 1, is_over: false });
        self.note_due(&table);
        Some(LeaseReading { leases: self, epochs, slot, version })
    }

    /// Goes on with a lease of this owner, unless it has expired.
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
            LeaseReading { leases: self, epochs, slot: lease.hold.slot(), version: lease.version }
        });
        self.note_due(&table);
        found
    }

    /// Lets those expire whose time is over. Takes the lock only if there are any.
    pub(crate) fn expire_due(&self, epochs: &Epochs, now: Instant) {
        let due = self.due.load(Ordering::Relaxed);
        if due == NEVER || self.nanoseconds(now) < due {
            return;
        }
        // Whoever has the lock does this too, or will be followed by someone who does.
        if let Some(mut table) = self.table.try_lock() {
            table.expire_due(epochs, now);
            self.note_due(&table);
        }
    }

    /// Ends the oldest lease that has one of these holds, because its memory is needed. Returns true if the hold was let go: a
    /// lease that is being read ends after its page.
    pub(crate) fn end_oldest_of(&self, epochs: &Epochs, holds: &[HoldName]) -> bool {
        let mut table = self.table.lock();
        let Some(oldest) = table.leases.iter_mut().find(|lease| holds.contains(&lease.hold.name())) else {
            return false;
        };
        let is_let_go = oldest.readers == 0;
        let is_first = !std::mem::replace(&mut oldest.is_over, true);
        table.expired += u64::from(is_first);
        table.ended_for_memory += u64::from(is_first);
        table.let_go(epochs);
        self.note_due(&table);
        is_let_go
    }

    /// Ends the leases of an owner, who is gone.
    pub(crate) fn end_of_owner(&self, epochs: &Epochs, owner: u64) {
        let mut table = self.table.lock();
        table.leases.iter_mut().filter(|lease| lease.owner == owner).for_each(|lease| lease.is_over = true);
        table.let_go(epochs);
        self.note_due(&table);
    }

    pub(crate) fn statistics(&self) -> LeaseStatistics {
        let table = self.table.lock();
        let Table { expired, ended_for_memory, .. } = *table;
        LeaseStatistics { open: table.leases.len() as u64, expired, ended_for_memory }
    }

    /// Notes when the next lease that nobody reads expires.
    fn note_due(&self, table: &Table) {
        let unread = table.leases.iter().filter(|lease| lease.readers == 0);
        let due = unread.map(|lease| self.nanoseconds(lease.until)).min().unwrap_or(NEVER);
        self.due.store(due, Ordering::Relaxed);
    }

    fn nanoseconds(&self, time: Instant) -> u64 {
        let since = time.saturating_duration_since(*self.origin.get_or_init(|| time));
        u64::try_from(since.as_nanos()).unwrap_or(NEVER - 1)
    }

    /// The number of the n-th lease: SipHash in the standard library of today.
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
        self.let_go(epochs);
    }

    fn expire_oldest_unread(&mut self, epochs: &Epochs) {
        if let Some(oldest) = self.leases.iter_mut().find(|lease| lease.readers == 0) {
            oldest.is_over = true;
            self.expired += 1;
            self.let_go(epochs);
        }
    }

    /// Lets go of all that are over and that nobody reads.
    fn let_go(&mut self, epochs: &Epochs) {
        for lease in self.leases.extract_if(.., |lease| lease.is_over && lease.readers == 0) {
            epochs.let_go(lease.hold);
        }
    }
}

impl LeaseReading<'_> {
    /// Returns the version that its pages show, and a guard for reading it. The guard is that of the operation that reads the
    /// page; it is lent no longer than the reading lasts, so that nothing read under it outlives the lease's protection.
    pub(crate) fn as_of<'r>(&'r self, guard: &'r Guard<'_>) -> (u64, &'r Guard<'r>) {
        (self.version, guard)
    }

    /// Says how the page ended: if nothing follows, its lease is over. Returns the number to go on with, if more follows and
    /// the lease has not expired meanwhile.
    pub(crate) fn conclude(&self, more: bool) -> Option<u64> {
        let mut table = self.leases.table.lock();
        let Table { leases, number_count, .. } = &mut *table;
        let lease = leases.iter_mut().find(|lease| lease.hold.slot() == self.slot)?;
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
        if let Some(lease) = table.leases.iter_mut().find(|lease| lease.hold.slot() == self.slot) {
            lease.readers -= 1;
            // Of a first page that was not concluded nobody knows the number.
            lease.is_over |= lease.number == 0;
        }
        table.let_go(self.epochs);
        self.leases.note_due(&table);
    }
}
