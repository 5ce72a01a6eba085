//! The mixes of YCSB and of Honeycomb's cloud storage (section 6.2): their reads, their writes, and the share of each.
//! `skep bench`, `skep bench engine` and the comparisons in `benches` use this table.
//!
//! | mix | reads | writes |
//! |---|---|---|
//! | A | 50% get | put of a new value |
//! | B | 95% get | put of a new value |
//! | C | 100% get | |
//! | D | 95% get | insert of a new record |
//! | E | 95% scan of 1 to 100 pairs | insert of a new record |
//! | F | 50% get | read-modify-write |
//! | cloud storage | scan of 3 or 4 pairs from a floor | insert of a new record |
//!
//! A range of cloud storage begins at an offset in a file, within one of the chunks that the records describe. So the
//! scan begins at a key that is no record, and shows first the record with the greatest key below it (section 3.3).
//!
//! YCSB's client does a read-modify-write as a get and a put, which loses updates of concurrent clients. Here it is one
//! atomic update next to the data: it adds one to every element of the value and returns the old value.

/// A mix of operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mix {
    /// Its reads.
    pub read: Read,
    /// Its writes.
    pub write: Write,
    /// Number of writes in a hundred operations.
    pub writes_in_100: u32,
}

/// The reads of a mix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    /// A get of a record.
    Get,
    /// A scan from a record, of a random number of pairs between the first and the second number.
    Scan(u32, u32),
    /// The same from [`inside`] a record: from the greatest key that is not above that.
    ScanFromFloor(u32, u32),
    /// The sum of a value's elements.
    Sum,
}

/// The writes of a mix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Write {
    /// A put to a record that exists.
    Update,
    /// A put of a record that does not exist; its key is as random as all keys are.
    Insert,
    /// An atomic update of a record that exists.
    Modify,
}

impl Read {
    /// Returns the least and the greatest number of pairs of a scan, if it is one.
    pub const fn pair_counts(self) -> Option<(u32, u32)> {
        match self {
            Read::Scan(least, most) | Read::ScanFromFloor(least, most) => Some((least, most)),
            Read::Get | Read::Sum => None,
        }
    }
}

/// Adds one to the last byte of a record's key, unless that is the greatest byte. No record is likely to have a key
/// between both, if keys are random. So the record is the floor of the new key.
pub fn inside(key: &mut [u8]) {
    if let Some(last) = key.last_mut() {
        *last = last.saturating_add(1);
    }
}

impl Mix {
    /// Half gets, half puts.
    pub const A: Mix = Mix::new(Read::Get, Write::Update, 50);
    /// Gets and a few puts.
    pub const B: Mix = Mix::new(Read::Get, Write::Update, 5);
    /// Gets.
    pub const C: Mix = Mix::new(Read::Get, Write::Update, 0);
    /// Gets and a few inserts.
    pub const D: Mix = Mix::new(Read::Get, Write::Insert, 5);
    /// Scans and a few inserts.
    pub const E: Mix = Mix::new(Read::Scan(1, 100), Write::Insert, 5);
    /// Half gets, half read-modify-writes.
    pub const F: Mix = Mix::new(Read::Get, Write::Modify, 50);

    /// Returns a mix with this many writes in a hundred operations.
    pub const fn new(read: Read, write: Write, writes_in_100: u32) -> Mix {
        Mix { read, write, writes_in_100 }
    }

    /// Returns the mix of cloud storage. The paper's ranges have three pairs at first, and four after an insert.
    pub const fn cloud_storage(reads_in_100: u32) -> Mix {
        Mix::new(Read::ScanFromFloor(3, 4), Write::Insert, 100 - reads_in_100)
    }

    /// Returns the number of writes in 256 operations, rounded.
    pub const fn writes_in_256(self) -> u32 {
        (256 * self.writes_in_100 + 50) / 100
    }

    /// Returns true if it inserts records.
    pub fn inserts(self) -> bool {
        self.write == Write::Insert && self.writes_in_100 > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_in_256_are_rounded() {
        assert_eq!([Mix::A, Mix::B, Mix::C].map(Mix::writes_in_256), [128, 13, 0]);
        assert_eq!(Mix::new(Read::Get, Write::Update, 100).writes_in_256(), 256);
    }

    #[test]
    fn a_key_inside_a_record_is_not_below_it() {
        for (record, expected) in [(&b"a"[..], &b"b"[..]), (b"ab", b"ac"), (b"a\xff", b"a\xff"), (b"", b"")] {
            let mut key = record.to_vec();
            inside(&mut key);
            assert_eq!(key, expected);
        }
    }
}
