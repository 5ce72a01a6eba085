//! The records that a client inserts while it is measured, and those of them that its reads can find.
//!
//! ```text
//! records   0 … loaded │ client 0 │ client 1 │ client 0 │ client 1 │ …
//! ```
//!
//! Clients take the numbers after the loaded records in turn, so that no client waits for another. The latest records
//! of a client are those that it has inserted itself, the newest first, and then the loaded ones.

use std::collections::HashSet;

/// The inserted records of a client.
#[derive(Debug)]
pub(crate) struct Inserts {
    loaded: u64,
    /// Number of its first record.
    first: u64,
    /// Distance between the numbers of its records.
    step: u64,
    /// Number of records that were sent.
    sent: u64,
    /// Number of records with a reply: always the first ones.
    acknowledged: u64,
    /// Indexes of records that the server refused.
    refused: HashSet<u64>,
}

impl Inserts {
    /// Returns the inserts of client `client` of `client_count`, after `loaded` records were loaded.
    pub(crate) fn new(loaded: u64, client: u64, client_count: u64) -> Self {
        Inserts {
            loaded,
            first: loaded + client,
            step: client_count,
            sent: 0,
            acknowledged: 0,
            refused: HashSet::new(),
        }
    }

    /// Returns the next record to insert.
    pub(crate) fn next(&mut self) -> u64 {
        self.sent += 1;
        self.number(self.sent - 1)
    }

    /// Counts the reply to the next record that was sent.
    pub(crate) fn acknowledge(&mut self, is_refused: bool) {
        if is_refused {
            self.refused.insert(self.acknowledged);
        }
        self.acknowledged += 1;
    }

    /// Maps a loaded record to a record of the same rank, where the latest records are the most popular. The result is
    /// an inserted record or a loaded one. If the inserted record was refused, it is the loaded record itself.
    pub(crate) fn latest(&self, record: u64) -> u64 {
        let position = self.acknowledged + record;
        match position.checked_sub(self.loaded) {
            None => position,
            Some(insert) if self.refused.contains(&insert) => record,
            Some(insert) => self.number(insert),
        }
    }

    /// Returns the number of records that were sent.
    pub(crate) fn count(&self) -> u64 {
        self.sent
    }

    /// Returns the number of the record with this index among the inserts.
    pub(crate) fn number(&self, insert: u64) -> u64 {
        self.first + insert * self.step
    }
}

#[cfg(test)]
mod tests {
    use super::Inserts;

    #[test]
    fn the_latest_records_are_the_inserted_ones_then_the_loaded_ones() {
        let mut inserts = Inserts::new(100, 1, 3);
        assert_eq!([99, 98, 0].map(|record| inserts.latest(record)), [99, 98, 0]);
        assert_eq!([inserts.next(), inserts.next(), inserts.next()], [101, 104, 107]);
        assert_eq!(inserts.latest(99), 99, "nothing is acknowledged");
        inserts.acknowledge(false);
        inserts.acknowledge(true);
        assert_eq!([99, 98, 97, 0].map(|record| inserts.latest(record)), [99, 101, 99, 2]);
        inserts.acknowledge(false);
        assert_eq!([99, 98, 97, 96].map(|record| inserts.latest(record)), [107, 98, 101, 99]);
        assert_eq!(inserts.count(), 3);
    }
}
