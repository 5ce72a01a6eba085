//! The cursors of scans of the ordered space.
//!
//! A client names the position of its scan by a number. In the ordered space the position is a key: the last one that was
//! returned. A number has no room for a key, so the server keeps the keys, for a bounded number of scans:
//!
//! ```text
//!   cursor   scan, the index in the table │ random │ 1        below 2⁵³, so that every client can represent it
//!   scan     the last two cursors, each with its key          so that a client may repeat its last request
//! ```
//!
//! **Why no key is missed.** Each step returns the keys after the position in their order, and the next position is the
//! last of them. A key that exists from the first step to the last is above the position before one step and not above
//! it after.
//!
//! **What it costs.** [`CURSOR_SCANS_MAX`] scans take at most about a mebibyte. If another one begins, the scan that was
//! used least recently is forgotten. Its next request is refused, so the client begins again.

use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, PoisonError};

use crate::limits::CURSOR_SCANS_MAX;

const SCAN_BITS: u32 = CURSOR_SCANS_MAX.ilog2();
const RANDOM_BITS: u32 = 53 - 1 - SCAN_BITS;

const _: () = assert!(CURSOR_SCANS_MAX.is_power_of_two());

/// The cursors of a server.
#[derive(Debug, Default)]
pub(crate) struct Cursors(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    scans: Vec<Scan>,
    /// Uses of cursors so far.
    clock: u64,
    random: RandomState,
}

#[derive(Debug, Default)]
struct Scan {
    /// The clock when it was used last.
    used: u64,
    /// The last two cursors, the newer one last. 0: none.
    cursors: [(u64, Vec<u8>); 2],
}

/// Returns true if a cursor is one of the ordered space.
pub(crate) fn is_ordered(cursor: u64) -> bool {
    cursor & 1 == 1
}

impl Cursors {
    /// Returns the key of a cursor, after which its scan continues. `None` if the cursor is not known.
    pub(crate) fn find(&self, cursor: u64) -> Option<Vec<u8>> {
        let mut table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        table.clock += 1;
        let clock = table.clock;
        let scan = table.scans.get_mut(scan_of(cursor))?;
        let (_, key) = scan.cursors.iter().find(|(known, _)| *known == cursor && cursor != 0)?;
        scan.used = clock;
        Some(key.clone())
    }

    /// Returns the cursor of the step after the one that began with `cursor`, 0 for the first step, and has ended with
    /// this key.
    pub(crate) fn follow(&self, cursor: u64, key: &[u8]) -> u64 {
        let mut table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        table.clock += 1;
        let clock = table.clock;
        let index = if cursor == 0 { table.new_scan() } else { scan_of(cursor) };
        let number = table.random.hash_one(clock) >> (u64::BITS - RANDOM_BITS);
        let next = (number << SCAN_BITS | index as u64) << 1 | 1;
        let scan = &mut table.scans[index];
        scan.used = clock;
        match scan.cursors.iter().position(|(known, _)| *known == cursor && cursor != 0) {
            // The last request again. Its reply is usually the same.
            Some(0) if scan.cursors[1].1 == key => return scan.cursors[1].0,
            Some(0) => {}
            Some(_) => scan.cursors.swap(0, 1),
            // The scan was forgotten meanwhile: its place belongs to another one.
            None if cursor != 0 => {
                drop(table);
                return self.follow(0, key);
            }
            None => scan.cursors[0] = (0, Vec::new()),
        }
        scan.cursors[1] = (next, key.to_vec());
        next
    }

    /// Notes that the scan of a cursor has ended: it is forgotten before others.
    pub(crate) fn end(&self, cursor: u64) {
        let mut table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(scan) = table.scans.get_mut(scan_of(cursor))
            && scan.cursors.iter().any(|(known, _)| *known == cursor && cursor != 0)
        {
            scan.used = 0;
        }
    }
}

impl Table {
    /// Returns the index of a scan without cursors, in the place of the one that was used least recently if there are as
    /// many as there may be.
    fn new_scan(&mut self) -> usize {
        if self.scans.len() < CURSOR_SCANS_MAX {
            self.scans.push(Scan::default());
            return self.scans.len() - 1;
        }
        let oldest = self.scans.iter().enumerate().min_by_key(|(_, scan)| scan.used);
        let index = oldest.map_or(0, |(index, _)| index);
        self.scans[index] = Scan::default();
        index
    }
}

fn scan_of(cursor: u64) -> usize {
    (cursor >> 1) as usize % CURSOR_SCANS_MAX
}

#[cfg(test)]
mod tests {
    use super::{CURSOR_SCANS_MAX, Cursors, is_ordered};

    #[test]
    fn a_cursor_names_a_key_until_two_steps_later() {
        let cursors = Cursors::default();
        let first = cursors.follow(0, b"a");
        assert!(is_ordered(first) && first < 1 << 53);
        assert_eq!(cursors.find(first).unwrap(), b"a");
        let second = cursors.follow(first, b"b");
        // The request is repeated: the same reply has the same cursor, another one a new cursor.
        assert_eq!(cursors.follow(first, b"b"), second);
        let changed = cursors.follow(first, b"bb");
        assert_eq!((cursors.find(second), cursors.find(changed).unwrap()), (None, b"bb".to_vec()));
        let third = cursors.follow(changed, b"c");
        assert_eq!((cursors.find(first), cursors.find(changed).unwrap()), (None, b"bb".to_vec()));
        assert_eq!(cursors.find(third).unwrap(), b"c");
        for unknown in [0, 1, 2, third ^ 1 << 40, u64::MAX] {
            assert_eq!(cursors.find(unknown), None);
        }
    }

    #[test]
    fn the_scan_that_was_used_least_recently_is_forgotten() {
        let cursors = Cursors::default();
        let scans: Vec<u64> = (0..CURSOR_SCANS_MAX).map(|number| cursors.follow(0, &number.to_le_bytes())).collect();
        assert!(cursors.find(scans[0]).is_some());
        cursors.follow(0, b"another");
        assert_eq!((cursors.find(scans[0]).is_some(), cursors.find(scans[1])), (true, None));
        // One that has ended goes first.
        cursors.end(scans[700]);
        cursors.follow(0, b"one more");
        assert_eq!((cursors.find(scans[2]).is_some(), cursors.find(scans[700])), (true, None));
        // A step of a scan that was forgotten meanwhile begins another scan.
        let next = cursors.follow(scans[1], b"later");
        assert_eq!(cursors.find(next).unwrap(), b"later");
    }
}
