//! Frees the memory of expired keys that no request touches, in steps of bounded work.
//!
//! ```text
//! leaves   ├────────────────────▶ position ──────────────────────────────┤   a pass: once over all leaves
//! a step                          ▐ up to 8 leaves: find the keys that have expired, remove up to 64 of them
//! ```
//!
//! 1. A step descends to the position, which is a key, so it need not know what splits and joins have changed.
//! 2. It removes the expired keys of the leaf as deletes do. Each of these writes removes its key only if it still has
//!    expired when the leaf is locked.
//! 3. The position moves to the first key of the next leaf. If the leaf has more keys to remove, the next step continues
//!    with it.
//!
//! `version/expiries.rs` tells when a pass begins, and which session makes the next step.

use super::super::key_head::Target;
use super::super::leaf::cursor::LeafCursor;
use super::super::node::frame::Node;
use super::super::node::log::DirectoryWord;
use super::super::node::segment::Segment;
use super::super::node::shortcut::Shortcuts;
use super::super::version::clock::Snapshot;
use super::super::version::expiries::Pass;
use super::super::write::change::Change;
use super::Session;
use skep_core::operation::Reply;

/// Most leaves of a step.
const STEP_LEAVES: usize = 8;
/// Most keys that a step removes.
pub const STEP_KEYS_MAX: usize = 64;

/// The content of a leaf that matters to a pass.
struct Visited {
    /// Keys that have expired, at most as many as may be removed.
    expired: Vec<Vec<u8>>,
    /// True if the leaf has more of them.
    has_more: bool,
    /// The first key of the next leaf.
    next: Option<Vec<u8>>,
}

impl Session<'_> {
    /// Sets the time for expiries, as [`OrderedStore::set_now`](super::super::store::OrderedStore::set_now) does.
    pub fn set_now(&self, now: u64) {
        self.store.set_now(now);
    }

    /// Returns the time from which on [`Session::reclaim`] has work, in milliseconds since 1970. `None` if no key has an
    /// expiry.
    pub fn reclaim_from(&self) -> Option<u64> {
        self.store.expiries.due()
    }

    /// Returns the number of expired keys that the session has removed.
    pub fn expired_count(&self) -> u64 {
        self.expired
    }

    /// Frees the memory of some keys that have expired, if it is time to look for them: at most [`STEP_KEYS_MAX`] keys.
    /// Returns their number, or `None` if there is nothing that this session can do now: no key is due, another session
    /// does it, or there is no memory for a removal.
    pub fn reclaim(&mut self) -> Option<usize> {
        let removed = self.reclaim_step();
        self.expired += removed.unwrap_or(0) as u64;
        removed
    }

    fn reclaim_step(&mut self) -> Option<usize> {
        let now = self.store.clock.now();
        if self.reclaim_from().is_none_or(|from| from > now) {
            return None;
        }
        let mut pass = self.store.expiries.begin_step(now)?;
        let mut removed = 0;
        for _ in 0..STEP_LEAVES {
            pass.leaves += 1;
            let seen_before = pass.seen + removed as u64;
            let Visited { expired, has_more, next } = self.visit(&mut pass, now, STEP_KEYS_MAX - removed);
            for key in expired {
                match self.remove_expired(&key) {
                    Some(Reply::Done) => removed += 1,
                    Some(_) => {}
                    // The next step tries it again: the memory that it needs is garbage, or in use by other sessions.
                    None => {
                        (pass.removed, pass.seen) = (pass.removed + removed as u64, seen_before);
                        self.store.expiries.end_step(pass);
                        return (removed > 0).then_some(removed);
                    }
                }
            }
            match next {
                _ if has_more => break,
                Some(next) => pass.position = next,
                None => {
                    pass.removed += removed as u64;
                    self.store.expiries.end_pass(pass, now);
                    return Some(removed);
                }
            }
        }
        pass.removed += removed as u64;
        self.store.expiries.end_step(pass);
        Some(removed)
    }

    /// Frees the memory of keys that have expired, in at most this number of steps, also in a pause between passes. Returns
    /// true if it has found that no more keys have expired.
    pub fn reclaim_all(&mut self, steps: usize) -> bool {
        self.store.expiries.end_pause();
        let now = self.store.clock.now();
        for _ in 0..steps {
            if self.reclaim_from().is_none_or(|from| from > now) {
                return true;
            }
            if self.reclaim().is_none() {
                return false;
            }
        }
        self.reclaim_from().is_none_or(|from| from > now)
    }

    /// Finds the expired keys of the leaf at the position, at most this number.
    fn visit(&mut self, pass: &mut Pass, now: u64, count_max: usize) -> Visited {
        let (store, guard) = self.enter();
        let leaf = store.find_leaf(Target::AtOrBelow(&pass.position), u64::MAX, &guard);
        let (mut expired, mut has_more) = (Vec::new(), false);
        if has_marks(leaf) {
            let mut cursor = LeafCursor::new(leaf, 0, Snapshot::ALL);
            while let Some(item) = cursor.next() {
                let Some(expiry) = item.value.expiry() else { continue };
                if !expiry.has_passed(now) {
                    pass.leave(expiry);
                } else if expired.len() < count_max {
                    pass.seen += 1;
                    expired.push(item.key.to_vec());
                } else {
                    has_more = true;
                }
            }
        }
        let first = |right| LeafCursor::new(store.latest(right, &guard), 0, Snapshot::ALL).next();
        // Every leaf beside another one has a pair.
        let next = leaf.right().and_then(first).map(|item| item.key.to_vec());
        Visited { expired, has_more, next }
    }

    /// Removes a key if it has expired. Returns `None` if there is no memory for that now.
    fn remove_expired(&mut self, key: &[u8]) -> Option<Reply<'static>> {
        let reply = self.try_write(key, Change::Reclaim).or_else(|| {
            self.hand_over();
            self.store.reclaimer.make_room();
            self.try_write(key, Change::Reclaim)
        });
        self.collect_batch();
        reply
    }
}

/// Returns true if a value of a leaf is marked. Reads the head of each segment and the directory of the log.
fn has_marks(leaf: Node<'_>) -> bool {
    let shortcuts = Shortcuts::open(leaf);
    let in_log = |word| DirectoryWord::from_bits(word).flags.is_marked;
    let in_segment = |index| Segment::open(leaf, shortcuts.segment_start(index), index).marked_bits() != 0;
    leaf.log_words().any(in_log) || (0..shortcuts.segment_count()).any(in_segment)
}
