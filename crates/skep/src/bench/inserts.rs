//! The records that a client inserts while it is measured, and which of them its reads may meet.
//!
//! ```text
//! records   0 … loaded │ client 0 │ client 1 │ client 0 │ client 1 │ …
//! ```
//!
//! Clients take turns at the numbers behind the loaded ones, so none waits for another. The latest records of a client are
//! those that it has inserted itself, the newest first, and behind them the loaded ones.

use std::collections::HashSet;

/// The records of a client.
#[derive(Debug)]
pub(crate) struct Inserts {
    loaded: u64,
    /// Of the first record.
    first: u64,
    /// From one to the next.
    step: u64,
    /// Records that were sent to be inserted.
    sent: u64,
    /// Those of them that were answered, which are the first ones.
    answered: u64,
    /// Those of these that were refused, by their order.
    refused: HashSet<u64>,
}

impl Inserts {
    /// Of the client of this number, after so many records were loaded.
    pub(crate) fn new(loaded: u64, client: u64, client_count: u64) -> Self {
        Inserts { loaded, first: loaded + client, step: client_count, sent: 0, answered: 0, refused: HashSet::new() }
    }

    /// A record to be inserted.
    pub(crate) fn next(&mut self) -> u64 {
        self.sent += 1;
        self.number(self.sent - 1)
    }

    /// The next record that was sent is answered.
    pub(crate) fn answer(&mut self, is_refused: bool) {
        if is_refused {
            self.refused.insert(self.answered);
        }
        self.answered += 1;
    }

    /// The record that is meant by one of the loaded ones, when the latest of these are the most popular. One that was
    /// refused gives its place to the loaded one.
    pub(crate) fn latest(&self, record: u64) -> u64 {
        let place = self.answered + record;
        match place.checked_sub(self.loaded) {
            None => place,
            Some(insert) if self.refused.contains(&insert) => record,
            Some(insert) => self.number(insert),
        }
    }

    /// Records that were sent to be inserted.
    pub(crate) fn count(&self) -> u64 {
        self.sent
    }

    /// The record that is inserted behind so many.
    pub(crate) fn number(&self, insert: u64) -> u64 {
        self.first + insert * self.step
    }
}

#[cfg(test)]
mod tests {
    use super::Inserts;

    #[test]
    fn the_latest_are_the_own_and_then_the_loaded() {
        let mut inserts = Inserts::new(100, 1, 3);
        assert_eq!([99, 98, 0].map(|record| inserts.latest(record)), [99, 98, 0]);
        assert_eq!([inserts.next(), inserts.next(), inserts.next()], [101, 104, 107]);
        assert_eq!(inserts.latest(99), 99, "nothing is answered");
        inserts.answer(false);
        inserts.answer(true);
        assert_eq!([99, 98, 97, 0].map(|record| inserts.latest(record)), [99, 101, 99, 2]);
        inserts.answer(false);
        assert_eq!([99, 98, 97, 96].map(|record| inserts.latest(record)), [107, 98, 101, 99]);
        assert_eq!(inserts.count(), 3);
    }
}
