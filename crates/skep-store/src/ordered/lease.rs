//! Leases: versions that are kept for the pages of a scan.
//!
//! ```text
//! open ─▶ hold, then version ─▶ page, page, page ... ─▶ the page that nothing follows ─▶ hold let go
//!                                      └─ 5 s without a page, too much garbage, too many leases ─▶ expired
//! ```
//!
//! A lease is an operation under way that no thread is within: a [`Hold`]. Whatever is replaced while it lasts is garbage
//! that waits for it, so a lease costs as much memory as is written. It expires when nobody has asked for its next page for
//! five seconds, or as long as the settings say; and the oldest of all expires when garbage goes beyond its budget, when
//! memory is full, or when another is opened and there are as many as can be. While a page is read its lease cannot be pulled
//! away: it expires behind it.
//!
//! Opening a lease and going on with one take a lock for a moment. Gets, and scans without a lease, do not come here.

use std::time::{Duration, Instant};

use super::epoch::{Epochs, Hold};
use super::sync::{AtomicU64, Mutex, MutexGuard, Ordering};
use super::version::Versions;

/// Most leases at a time.
pub const LEASE_COUNT_MAX: usize = 32;
/// How long a lease is kept without being read, unless the settings say otherwise.
pub const LEASE_TIME: Duration = Duration::from_secs(5);

/// All leases of a store.
#[derive(Debug)]
pub(crate) struct Leases {
    /// How long a lease is kept without being read.
    time: Duration,
    table: Mutex<Table>,
    /// Leases in the table, for those who only want to know whether there are any.
    count: AtomicU64,
}

#[derive(Debug)]
struct Table {
    /// In the order in which they were opened.
    leases: Vec<Lease>,
    /// The last number that was given.
    last_number: u64,
    expired: u64,
}

#[derive(Debug)]
struct Lease {
    hold: Hold,
    version: u64,
    /// Zero while its first page is read.
    number: u64,
    until: Instant,
    /// Threads that read a page of it.
    readers: u32,
    /// Whether it goes when nobody reads it.
    is_over: bool,
}

/// A page of a lease that is being read: the lease stays.
#[derive(Debug)]
pub(crate) struct LeaseReading<'l> {
    leases: &'l Leases,
    epochs: &'l Epochs,
    slot: usize,
    version: u64,
}

/// Figures of the leases of a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeaseFigures {
    /// Leases that are open.
    pub open: u64,
    /// Leases that ended before their scan did.
    pub expired: u64,
}

impl Leases {
    /// No leases; those to come are kept so long without being read.
    pub(crate) fn new(time: Duration) -> Self {
        let table = Table { leases: Vec::with_capacity(LEASE_COUNT_MAX), last_number: 0, expired: 0 };
        Leases { time, table: Mutex::new(table), count: AtomicU64::new(0) }
    }

    /// Opens a lease on the newest version. None if as many as can be are being read at this moment.
    pub(crate) fn open<'l>(
        &'l self,
        epochs: &'l Epochs,
        versions: &Versions,
        now: Instant,
    ) -> Option<LeaseReading<'l>> {
        let mut table = self.table();
        if table.leases.len() == LEASE_COUNT_MAX {
            table.expire_oldest_unread(epochs);
        }
        let hold = epochs.hold()?;
        let slot = hold.slot();
        // The version is read behind the hold, as by any operation.
        let version = versions.read();
        table.leases.push(Lease { hold, version, number: 0, until: now + self.time, readers: 1, is_over: false });
        self.note(&table);
        Some(LeaseReading { leases: self, epochs, slot, version })
    }

    /// Goes on with a lease, unless it has expired.
    pub(crate) fn resume<'l>(&'l self, epochs: &'l Epochs, number: u64, now: Instant) -> Option<LeaseReading<'l>> {
        let mut table = self.table();
        table.expire_due(epochs, now);
        let is_meant = |lease: &&mut Lease| lease.number == number && number != 0 && !lease.is_over;
        let found = table.leases.iter_mut().find(is_meant).map(|lease| {
            lease.readers += 1;
            lease.until = now + self.time;
            LeaseReading { leases: self, epochs, slot: lease.hold.slot(), version: lease.version }
        });
        self.note(&table);
        found
    }

    /// Lets those expire whose time is over.
    pub(crate) fn expire_due(&self, epochs: &Epochs, now: Instant) {
        if self.count.load(Ordering::Relaxed) == 0 {
            return;
        }
        // Whoever has the lock does this too, or will be followed by someone who does.
        if let Ok(mut table) = self.table.try_lock() {
            table.expire_due(epochs, now);
            self.note(&table);
        }
    }

    /// Lets the oldest lease expire. Whether it was let go: one that is being read goes later.
    pub(crate) fn expire_oldest(&self, epochs: &Epochs) -> bool {
        if self.count.load(Ordering::Relaxed) == 0 {
            return false;
        }
        let mut table = self.table();
        let Some(oldest) = table.leases.first_mut() else { return false };
        let was_over = std::mem::replace(&mut oldest.is_over, true);
        table.expired += u64::from(!was_over);
        let count = table.leases.len();
        table.let_go(epochs);
        self.note(&table);
        table.leases.len() < count
    }

    pub(crate) fn figures(&self) -> LeaseFigures {
        let table = self.table();
        LeaseFigures { open: table.leases.len() as u64, expired: table.expired }
    }

    fn note(&self, table: &Table) {
        self.count.store(table.leases.len() as u64, Ordering::Relaxed);
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().expect("no thread panics while it holds the leases")
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
    /// The version that its pages show.
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// Ends the reading of a page. The number to go on with, if more follows and the lease has not expired meanwhile.
    pub(crate) fn end(self, more: bool) -> Option<u64> {
        let mut table = self.leases.table();
        let Table { leases, last_number, .. } = &mut *table;
        let lease = leases.iter_mut().find(|lease| lease.hold.slot() == self.slot)?;
        if !more {
            lease.is_over = true;
        } else if lease.number == 0 {
            *last_number += 1;
            lease.number = *last_number;
        }
        more.then_some(lease.number)
    }
}

impl Drop for LeaseReading<'_> {
    fn drop(&mut self) {
        let mut table = self.leases.table();
        if let Some(lease) = table.leases.iter_mut().find(|lease| lease.hold.slot() == self.slot) {
            lease.readers -= 1;
            // Of a first page that was not ended nobody knows the number.
            lease.is_over |= lease.number == 0;
        }
        table.let_go(self.epochs);
        self.leases.note(&table);
    }
}
