//! `WATCH`: the keys that connections watch, and the flags that writes set.
//!
//! ```text
//!   connection ── Watched ──▶ flag ◀── table of a shard's hash store, or of the ordered store ◀── key of a write
//! ```
//!
//! 1. `WATCH` is an isolated command: with the store of a key it has the store's table, and adds the key there.
//! 2. After each batch, a store with a table that is not empty looks up the keys of the writes that changed something.
//!    The cost without watchers is one branch for a batch.
//! 3. `EXEC` looks at the flag while it holds the stores of all keys that are watched. So no write can be between the look
//!    and the transaction.
//! 4. A connection that watches no more drops its flag. A table forgets the dead flags of a key when the key changes, and all
//!    of them when as many writes or watches as it has keys have passed, or when they take much memory.
//!
//! The memory of the keys belongs to the connection's requests. It is taken when a `WATCH` is decoded
//! (`resp_batch/memory.rs`), and returned when the connection watches no more. A table has little besides: [`DEAD_SIZE_MAX`]
//! bytes, or a [`DEAD_PART`]th of what it has.
//!
//! An expiry sets no flag. Instead, `EXEC` finds out that a key is missing that existed when it was watched.

use std::collections::hash_map::IntoIter;
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use skep_core::operation::{Reply, Request};

use crate::vocabulary::{Space, has_changed};

/// Keys that are freed at a time, after a flush.
const FREED_MAX: usize = 1024;
/// Keys from which on a table looks for dead flags.
const SWEEP_MIN: usize = 64;

/// Bytes of keys with dead flags from which on a table forgets them at once, and the part of all its bytes.
const DEAD_SIZE_MAX: usize = 1 << 20;
const DEAD_PART: usize = 8;

/// Bytes of a watched key besides itself: the tables, the list of its flags and the allocator.
const KEY_OVERHEAD: usize = 128;

/// The flag of a connection that watches keys.
#[derive(Debug, Default)]
pub(crate) struct Flag(AtomicBool);

/// The keys that a connection watches.
#[derive(Debug, Default)]
pub(crate) struct Watched {
    flag: Arc<Flag>,
    keys: Vec<WatchedKey>,
    /// Hashes of the keys.
    hashes: HashSet<u64>,
    hasher: RandomState,
    size: usize,
    /// The counts of dead bytes of the tables that have its keys, and the bytes that it has there.
    tables: Vec<(Arc<AtomicUsize>, usize)>,
}

/// A key that a connection watches.
#[derive(Debug)]
pub(crate) struct WatchedKey {
    pub(crate) space: Space,
    pub(crate) key: Box<[u8]>,
    /// The key existed when it was watched.
    pub(crate) existed: bool,
}

/// Returns the approximate bytes of memory that `count` watched keys take, which have `size` bytes together.
pub(crate) fn memory_of(count: usize, size: usize) -> usize {
    2 * size + count * (2 * size_of::<WatchedKey>() + KEY_OVERHEAD)
}

impl Watched {
    /// Adds a key, and registers it in the table of its store.
    pub(crate) fn add(&mut self, space: Space, key: &[u8], existed: bool, table: &mut WatchTable) {
        // The hashes save most of the search. Keys with equal hashes are told apart by it.
        let is_new = self.hashes.insert(self.hasher.hash_one((space == Space::Ordered, key)));
        if !is_new && self.keys.iter().any(|watched| watched.space == space && *watched.key == *key) {
            return;
        }
        let size = table.add(key, &self.flag);
        match self.tables.iter_mut().find(|(dead, _)| Arc::ptr_eq(dead, &table.dead)) {
            Some((_, total)) => *total += size,
            None => self.tables.push((table.dead.clone(), size)),
        }
        self.size += memory_of(1, key.len());
        self.keys.push(WatchedKey { space, key: key.into(), existed });
    }

    /// Returns the keys.
    pub(crate) fn keys(&self) -> &[WatchedKey] {
        &self.keys
    }

    /// Returns true if a watched key has changed.
    pub(crate) fn is_dirty(&self) -> bool {
        self.flag.0.load(Ordering::Acquire)
    }

    /// Returns the approximate bytes of memory held, also by the tables.
    pub(crate) fn capacity(&self) -> usize {
        self.size
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        // The flag is dead before its bytes are counted.
        self.flag = Arc::default();
        for (dead, size) in &self.tables {
            dead.fetch_add(*size, Ordering::Release);
        }
    }
}

/// Returns the approximate bytes of memory that a table has for one flag of a key.
fn size_in_table(key: &[u8]) -> usize {
    memory_of(1, key.len()) / 2
}

type Key = Box<[u8]>;
type Flags = Vec<Weak<Flag>>;

/// The watched keys of one store.
#[derive(Debug, Default)]
pub(crate) struct WatchTable {
    flags: HashMap<Key, Flags>,
    /// The same flags, each once, by their addresses. No address is used again while a `Weak` of it is here.
    watchers: HashMap<usize, Weak<Flag>>,
    /// What is left of tables that a flush has emptied.
    discarded: Vec<IntoIter<Key, Flags>>,
    /// Writes and watches until the next sweep.
    until_sweep: usize,
    /// Approximate bytes of the flags with their keys, and of those whose connections have ended since the last sweep.
    size: usize,
    dead: Arc<AtomicUsize>,
}

impl WatchTable {
    /// Returns true if no key is watched, and no memory of such keys is to be freed.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.flags.is_empty() && self.discarded.is_empty()
    }

    /// Returns true if [`WatchTable::forget_dead`] has something to free, or would have if all connections ended.
    pub(crate) fn is_large(&self) -> bool {
        !self.flags.is_empty() && self.size >= DEAD_SIZE_MAX || !self.discarded.is_empty()
    }

    /// Adds a key, and returns the bytes that it takes here.
    fn add(&mut self, key: &[u8], flag: &Arc<Flag>) -> usize {
        self.count(1);
        self.size += size_in_table(key);
        self.flags.entry(key.into()).or_default().push(Arc::downgrade(flag));
        self.watchers.entry(Arc::as_ptr(flag).addr()).or_insert_with(|| Arc::downgrade(flag));
        size_in_table(key)
    }

    /// Sets the flags of a key that has changed.
    fn touch(&mut self, key: &[u8]) {
        if let Some(flags) = self.flags.remove(key) {
            set(&flags);
        }
    }

    /// Sets the flags of all keys: the store was emptied.
    pub(crate) fn touch_all(&mut self) {
        self.watchers.drain().for_each(|(_, flag)| set(&[flag]));
        // Millions of keys may be watched: they are freed in parts. A flush has many steps, and most find no key.
        if !self.flags.is_empty() {
            self.discarded.push(std::mem::take(&mut self.flags).into_iter());
            self.size = 0;
        }
    }

    /// Sets the flags of the keys that a batch has changed.
    pub(crate) fn record<'r>(&mut self, requests: &[Request<'_>], reply: impl Fn(usize) -> Reply<'r>) {
        for (index, request) in requests.iter().enumerate() {
            if has_changed(&request.operation, reply(index)) {
                self.touch(request.key);
            }
        }
        self.count(requests.len());
    }

    /// Frees a part of what was discarded. Counts writes and watches, and forgets dead flags after as many as there are keys.
    fn count(&mut self, count: usize) {
        self.free_discarded();
        self.until_sweep = self.until_sweep.saturating_sub(count);
        if self.until_sweep == 0 {
            self.sweep();
        } else {
            self.sweep_if_large();
        }
    }

    fn free_discarded(&mut self) {
        if let Some(discarded) = self.discarded.last_mut() {
            discarded.by_ref().take(FREED_MAX).for_each(drop);
            if discarded.len() == 0 {
                self.discarded.pop();
            }
        }
    }

    /// Frees a part of what was discarded. Forgets dead flags if they take much memory, which no connection is charged for.
    pub(crate) fn forget_dead(&mut self) {
        self.free_discarded();
        self.sweep_if_large();
    }

    fn sweep_if_large(&mut self) {
        if self.dead.load(Ordering::Relaxed) >= DEAD_SIZE_MAX.max(self.size / DEAD_PART) {
            self.sweep();
        }
    }

    fn sweep(&mut self) {
        // Those that die from now on are counted for the next sweep.
        self.dead.swap(0, Ordering::Acquire);
        self.size = 0;
        self.flags.retain(|key, flags| {
            flags.retain(|flag| flag.strong_count() > 0);
            self.size += flags.len() * size_in_table(key);
            !flags.is_empty()
        });
        if self.flags.capacity() > 4 * self.flags.len().max(SWEEP_MIN) {
            self.flags.shrink_to(2 * self.flags.len());
        }
        self.watchers.retain(|_, flag| flag.strong_count() > 0);
        self.until_sweep = self.flags.len().max(SWEEP_MIN);
    }
}

fn set(flags: &[Weak<Flag>]) {
    for flag in flags.iter().filter_map(Weak::upgrade) {
        flag.0.store(true, Ordering::Release);
    }
}

/// The ordered space's keys that connections watch.
#[derive(Debug, Default)]
pub(crate) struct OrderedWatches {
    table: Mutex<WatchTable>,
    /// The table may have keys. It is set by a shard that holds all others.
    pub(crate) is_used: AtomicBool,
    /// What was [`WatchTable::is_large`] at the last call.
    pub(crate) is_large: AtomicBool,
}

impl OrderedWatches {
    /// Calls `f` with the table.
    pub(crate) fn with<T>(&self, f: impl FnOnce(&mut WatchTable) -> T) -> T {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        let result = f(&mut table);
        self.is_used.store(!table.is_empty(), Ordering::Relaxed);
        self.is_large.store(table.is_large(), Ordering::Relaxed);
        result
    }
}

#[cfg(test)]
mod tests {
    use skep_core::operation::{Operation, PutCondition, Reply, Request};

    use super::{DEAD_PART, DEAD_SIZE_MAX, FREED_MAX, SWEEP_MIN, size_in_table};
    use crate::vocabulary::Space;
    use crate::watches::{WatchTable, Watched};

    fn put(key: &[u8]) -> Request<'_> {
        Request { key, operation: Operation::Put { value: b"v", condition: PutCondition::IfAbsent } }
    }

    #[test]
    fn only_a_write_that_changed_a_watched_key_sets_the_flag() {
        let mut table = WatchTable::default();
        let mut watched = Watched::default();
        watched.add(Space::Hash, b"k", false, &mut table);
        table.record(&[Request { key: b"k", operation: Operation::Get }], |_| Reply::Value(b"v"));
        table.record(&[put(b"k"), put(b"k")], |index| [Reply::Exists, Reply::Deferred][index]);
        table.record(&[put(b"other")], |_| Reply::Done);
        assert!(!watched.is_dirty());
        table.record(&[put(b"k")], |_| Reply::Done);
        assert!(watched.is_dirty() && table.is_empty());
    }

    #[test]
    fn a_key_sets_the_flags_of_all_that_watch_it() {
        let mut table = WatchTable::default();
        let mut connections = [(); 3].map(|()| Watched::default());
        for watched in &mut connections {
            watched.add(Space::Hash, b"k", true, &mut table);
            watched.add(Space::Hash, b"k", true, &mut table);
            assert_eq!(watched.keys().len(), 1);
        }
        table.record(&[Request { key: b"k", operation: Operation::Delete }], |_| Reply::Done);
        assert!(connections.iter().all(Watched::is_dirty));
    }

    #[test]
    fn a_flush_sets_all_flags_and_frees_the_keys_in_parts() {
        let mut table = WatchTable::default();
        let mut connections = [(); 3].map(|()| Watched::default());
        for (number, watched) in connections.iter_mut().enumerate() {
            for key in 0..FREED_MAX {
                watched.add(Space::Hash, format!("{number}:{key}").as_bytes(), true, &mut table);
            }
        }
        table.touch_all();
        table.touch_all();
        assert!(connections.iter().all(Watched::is_dirty));
        assert_eq!(table.discarded.len(), 1, "the second step found no key");
        let mut watched = Watched::default();
        watched.add(Space::Hash, b"k", true, &mut table);
        assert!(!watched.is_dirty(), "it began after the flush");
        for parts in (0..3).rev() {
            let left: usize = table.discarded.iter().map(ExactSizeIterator::len).sum();
            assert!(left <= parts * FREED_MAX, "{left}");
            table.record(&[put(b"other")], |_| Reply::Done);
        }
        table.record(&[put(b"k")], |_| Reply::Done);
        assert!(watched.is_dirty() && table.is_empty());
    }

    #[test]
    fn the_keys_of_connections_that_are_gone_take_little_memory() {
        const KEYS: usize = 4096;
        let mut table = WatchTable::default();
        let watch = |table: &mut WatchTable, number: usize| {
            let mut watched = Watched::default();
            for key in 0..KEYS {
                watched.add(Space::Hash, format!("{number}:{key:0400}").as_bytes(), false, table);
            }
            watched
        };
        let mut live: Vec<Watched> = (0..20).map(|number| watch(&mut table, number)).collect();
        while live.pop().is_some() {
            // No store executes anything meanwhile.
            assert!(table.is_large(), "it is not looked at any more");
            table.forget_dead();
            let in_use: usize = live.iter().flat_map(Watched::keys).map(|watched| size_in_table(&watched.key)).sum();
            let held: usize = table.flags.iter().map(|(key, flags)| flags.len() * size_in_table(key)).sum();
            assert!(held - in_use <= DEAD_SIZE_MAX.max(held / DEAD_PART), "{held} bytes for {in_use}");
        }
        assert!(table.is_empty() && !table.is_large(), "{} keys", table.flags.len());
    }

    #[test]
    fn the_keys_of_connections_that_are_gone_are_forgotten() {
        let mut table = WatchTable::default();
        for number in 0..100 * SWEEP_MIN {
            Watched::default().add(Space::Hash, number.to_string().as_bytes(), true, &mut table);
            assert!(table.flags.len() <= SWEEP_MIN);
        }
        let mut watched = Watched::default();
        watched.add(Space::Hash, b"k", true, &mut table);
        (0..2 * SWEEP_MIN).for_each(|_| table.record(&[put(b"other")], |_| Reply::Done));
        assert_eq!(table.flags.len(), 1);
        drop(watched);
        (0..SWEEP_MIN).for_each(|_| table.record(&[put(b"other")], |_| Reply::Done));
        assert!(table.is_empty());
    }
}
