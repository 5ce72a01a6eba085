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
//! **What it costs.** [`CURSOR_SCANS_MAX`] scans take at most about a mebibyte. If another one begins, one is forgotten: of
//! the connection that has the most, and of this one if it has as many, the scan that was used least recently. So one
//! connection cannot take the scans of others. The next request of a forgotten scan is refused, and its client begins again.
//! A scan counts for the connection that used it last, since a client may have several, and those of all connections that
//! have ended count as one connection's.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, PoisonError};

use crate::limits::CURSOR_SCANS_MAX;

const SCAN_BITS: u32 = CURSOR_SCANS_MAX.ilog2();
const RANDOM_BITS: u32 = 53 - 1 - SCAN_BITS;

const _: () = assert!(CURSOR_SCANS_MAX.is_power_of_two());

/// In place of the numbers of connections that have ended.
const ENDED: u64 = 0;

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
    /// The clock when it was used last. 0: it has ended.
    used: u64,
    /// The connection that used it last.
    connection: u64,
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
    /// this key. `connection` has asked for it.
    pub(crate) fn follow(&self, cursor: u64, key: &[u8], connection: u64) -> u64 {
        let mut table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        table.clock += 1;
        let clock = table.clock;
        let index = if cursor == 0 { table.new_scan(connection) } else { scan_of(cursor) };
        let number = table.random.hash_one(clock) >> (u64::BITS - RANDOM_BITS);
        let next = (number << SCAN_BITS | index as u64) << 1 | 1;
        let scan = &mut table.scans[index];
        let is_known = cursor == 0 || scan.cursors.iter().any(|(known, _)| *known == cursor);
        if !is_known {
            // The scan was forgotten meanwhile: its place belongs to another one.
            drop(table);
            return self.follow(0, key, connection);
        }
        (scan.used, scan.connection) = (clock, connection);
        match scan.cursors.iter().position(|(known, _)| *known == cursor && cursor != 0) {
            // The last request again. Its reply is usually the same.
            Some(0) if scan.cursors[1].1 == key => return scan.cursors[1].0,
            Some(0) => {}
            Some(_) => scan.cursors.swap(0, 1),
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

    /// Notes that a connection has ended. Another one of its client may continue its scans.
    pub(crate) fn end_of_connection(&self, connection: u64) {
        let mut table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let of_connection = table.scans.iter_mut().filter(|scan| scan.connection == connection);
        of_connection.for_each(|scan| scan.connection = ENDED);
    }
}

impl Table {
    /// Returns the index of a scan without cursors, in the place of another one if there are as many as there may be.
    fn new_scan(&mut self, connection: u64) -> usize {
        if self.scans.len() < CURSOR_SCANS_MAX {
            self.scans.push(Scan::default());
            return self.scans.len() - 1;
        }
        let mut shares: HashMap<u64, usize> = HashMap::new();
        for scan in &self.scans {
            *shares.entry(scan.connection).or_default() += 1;
        }
        // As if the new one existed: of two with as many, the connection that begins another one loses one.
        *shares.entry(connection).or_default() += 1;
        let lost = self.scans.iter().enumerate().min_by_key(|(_, scan)| {
            let share = if scan.used == 0 { usize::MAX } else { shares[&scan.connection] };
            (Reverse(share), scan.used)
        });
        let index = lost.map_or(0, |(index, _)| index);
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
        let first = cursors.follow(0, b"a", 1);
        assert!(is_ordered(first) && first < 1 << 53);
        assert_eq!(cursors.find(first).unwrap(), b"a");
        let second = cursors.follow(first, b"b", 1);
        // The request is repeated: the same reply has the same cursor, another one a new cursor.
        assert_eq!(cursors.follow(first, b"b", 1), second);
        let changed = cursors.follow(first, b"bb", 1);
        assert_eq!((cursors.find(second), cursors.find(changed).unwrap()), (None, b"bb".to_vec()));
        let third = cursors.follow(changed, b"c", 1);
        assert_eq!((cursors.find(first), cursors.find(changed).unwrap()), (None, b"bb".to_vec()));
        assert_eq!(cursors.find(third).unwrap(), b"c");
        for unknown in [0, 1, 2, third ^ 1 << 40, u64::MAX] {
            assert_eq!(cursors.find(unknown), None);
        }
    }

    /// A connection that begins scans without end has as many as the others leave, and they keep theirs.
    #[test]
    fn one_connection_does_not_take_the_scans_of_others() {
        let cursors = Cursors::default();
        let of_others: Vec<u64> = (2..12).map(|connection| cursors.follow(0, b"mine", connection)).collect();
        for _ in 0..3 * CURSOR_SCANS_MAX {
            cursors.follow(0, b"many", 1);
        }
        assert!(of_others.iter().all(|cursor| cursors.find(*cursor).is_some()));
        // A connection gets some although there are as many as there may be, and keeps them.
        let late: Vec<u64> = (0..20).map(|_| cursors.follow(0, b"late", 12)).collect();
        (0..CURSOR_SCANS_MAX).for_each(|_| _ = cursors.follow(0, b"many", 1));
        assert!(of_others.iter().chain(&late).all(|cursor| cursors.find(*cursor).is_some()));
        // Another connection of the client continues a scan: it counts for that one.
        let next = cursors.follow(late[0], b"later", 13);
        (0..CURSOR_SCANS_MAX).for_each(|_| _ = cursors.follow(0, b"many", 12));
        assert!(cursors.find(next).is_some());
        // One that connects anew for each scan takes no more.
        for connection in 100..100 + 2 * CURSOR_SCANS_MAX as u64 {
            cursors.follow(0, b"many", connection);
            cursors.end_of_connection(connection);
        }
        assert!(of_others.iter().chain(&[next]).all(|cursor| cursors.find(*cursor).is_some()));
    }

    #[test]
    fn the_scan_that_was_used_least_recently_is_forgotten() {
        let cursors = Cursors::default();
        let scans: Vec<u64> = (0..CURSOR_SCANS_MAX).map(|number| cursors.follow(0, &number.to_le_bytes(), 1)).collect();
        assert!(cursors.find(scans[0]).is_some());
        cursors.follow(0, b"another", 1);
        assert_eq!((cursors.find(scans[0]).is_some(), cursors.find(scans[1])), (true, None));
        // One that has ended goes first.
        cursors.end(scans[700]);
        cursors.follow(0, b"one more", 1);
        assert_eq!((cursors.find(scans[2]).is_some(), cursors.find(scans[700])), (true, None));
        // A step of a scan that was forgotten meanwhile begins another scan.
        let next = cursors.follow(scans[1], b"later", 1);
        assert_eq!(cursors.find(next).unwrap(), b"later");
    }
}
