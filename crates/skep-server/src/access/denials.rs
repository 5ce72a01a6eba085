//! What was denied last, for `ACL LOG`: commands, keys, spaces and logins.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Entries that are kept, as in Redis.
const ENTRIES_MAX: usize = 128;

/// Equal denials within this many milliseconds are one entry, as in Redis.
const UNITED_MILLISECONDS: i64 = 60_000;

/// Bytes of a name that an entry keeps.
pub(crate) const OBJECT_SIZE_MAX: usize = 256;

/// What a user was denied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    Command,
    Key,
    Space,
    /// The login: the password was wrong, or the user is not known.
    Login,
}

impl Reason {
    /// Returns the word that `ACL LOG` has for it.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Reason::Command => "command",
            Reason::Key => "key",
            Reason::Space => "space",
            Reason::Login => "auth",
        }
    }
}

/// A denial, as `ACL LOG` shows it.
#[derive(Clone, Debug)]
pub(crate) struct Denial {
    pub(crate) reason: Reason,
    /// It was in a transaction.
    pub(crate) is_in_transaction: bool,
    /// The command, the key or the space.
    pub(crate) object: Vec<u8>,
    pub(crate) user: String,
    /// The connection, as `CLIENT LIST` shows it.
    pub(crate) client: String,
}

/// The reason why an operation over the native protocol was denied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DeniedOperation {
    pub(crate) reason: Reason,
    /// The command of RESP that does the same, the key or the space.
    pub(crate) object: Vec<u8>,
}

/// An entry of the log.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) number: u64,
    pub(crate) count: u64,
    /// In milliseconds since 1970.
    pub(crate) created: i64,
    /// The time of the last one, in milliseconds since 1970.
    pub(crate) updated: i64,
    pub(crate) denial: Denial,
}

/// The last denials, the newest first.
#[derive(Debug, Default)]
pub(crate) struct Denials {
    log: Mutex<Log>,
    /// Commands that were denied, and commands whose keys or spaces were.
    commands: AtomicU64,
    keys: AtomicU64,
}

#[derive(Debug, Default)]
struct Log {
    next: u64,
    entries: VecDeque<Entry>,
}

impl Denials {
    /// Counts a denial and adds it, at a time in milliseconds since 1970.
    pub(crate) fn add(&self, denial: Denial, now: i64) {
        match denial.reason {
            Reason::Command => self.commands.fetch_add(1, Ordering::Relaxed),
            Reason::Key | Reason::Space => self.keys.fetch_add(1, Ordering::Relaxed),
            Reason::Login => 0,
        };
        self.list(denial, now);
    }

    /// Adds a denial that is counted elsewhere.
    pub(crate) fn list(&self, mut denial: Denial, now: i64) {
        denial.object.truncate(OBJECT_SIZE_MAX);
        denial.object.shrink_to_fit();
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        let is_equal = |entry: &Entry| {
            let other = &entry.denial;
            (other.reason, other.is_in_transaction) == (denial.reason, denial.is_in_transaction)
                && other.object == denial.object
                && other.user == denial.user
                && now - entry.updated <= UNITED_MILLISECONDS
        };
        if let Some(index) = log.entries.iter().position(is_equal)
            && let Some(entry) = log.entries.remove(index)
        {
            log.entries.push_front(Entry { count: entry.count + 1, updated: now, denial, ..entry });
            return;
        }
        let number = log.next;
        log.next += 1;
        log.entries.push_front(Entry { number, count: 1, created: now, updated: now, denial });
        log.entries.truncate(ENTRIES_MAX);
    }

    /// Returns the newest entries, the newest first.
    pub(crate) fn newest(&self, count: usize) -> Vec<Entry> {
        let log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        log.entries.iter().take(count).cloned().collect()
    }

    /// Returns how many commands were denied since the start, and how many because of their keys or spaces.
    pub(crate) fn counts(&self) -> [u64; 2] {
        [&self.commands, &self.keys].map(|count| count.load(Ordering::Relaxed))
    }

    /// Forgets all entries.
    pub(crate) fn clear(&self) {
        self.log.lock().unwrap_or_else(PoisonError::into_inner).entries.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::{Denial, Denials, ENTRIES_MAX, OBJECT_SIZE_MAX, Reason};

    fn denial(object: &str) -> Denial {
        Denial {
            reason: Reason::Key,
            is_in_transaction: false,
            object: object.as_bytes().to_vec(),
            user: "cook".to_owned(),
            client: String::new(),
        }
    }

    #[test]
    fn equal_denials_are_one_entry() {
        let denials = Denials::default();
        denials.add(denial("a"), 1000);
        denials.add(denial("b"), 2000);
        denials.add(denial("a"), 3000);
        denials.add(Denial { is_in_transaction: true, ..denial("a") }, 4000);
        denials.add(denial("a"), 100_000);
        let entries = denials.newest(10);
        let shown: Vec<_> =
            entries.iter().map(|entry| (entry.number, entry.count, entry.created, entry.updated)).collect();
        assert_eq!(shown, [(3, 1, 100_000, 100_000), (2, 1, 4000, 4000), (0, 2, 1000, 3000), (1, 1, 2000, 2000)]);
        assert_eq!(denials.newest(1).len(), 1);
        denials.clear();
        assert!(denials.newest(10).is_empty());
        assert_eq!(denials.counts(), [0, 5]);
    }

    #[test]
    fn the_log_is_bounded() {
        let denials = Denials::default();
        (0..2 * ENTRIES_MAX).for_each(|number| denials.add(denial(&format!("{number}{}", "x".repeat(1000))), 0));
        let entries = denials.newest(usize::MAX);
        assert_eq!(entries.len(), ENTRIES_MAX);
        assert!(entries.iter().all(|entry| entry.denial.object.len() == OBJECT_SIZE_MAX));
        // Also what is not shown is bounded.
        let log = denials.log.lock().unwrap();
        assert!(log.entries.iter().all(|entry| entry.denial.object.capacity() < 2 * OBJECT_SIZE_MAX));
    }
}
