//! Scans in the plainest way: all pairs are compared with the range, and the page is built byte by byte.
//!
//! A lease is a copy of all pairs, without those that have expired since then. Its number may be any that no other lease has: if another store's replies are checked, it
//! is the number that the other store has given. A lease only expires when there are too many.

use std::collections::BTreeMap;

use super::{NaiveReply, remove_expired};
use crate::ordered::LEASE_COUNT_MAX;
use skep_core::operation::{
    Expiry, OperationError, PAGE_COUNT_MAX, PAGE_SIZE_GOAL, Scan, ScanAnswer, ScanEnd, ScanLease, ScanStart,
};

type Pairs = BTreeMap<Vec<u8>, Vec<u8>>;
type Expiries = BTreeMap<Vec<u8>, Expiry>;

/// The states that leases keep.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct NaiveLeases {
    /// Leases that were opened so far.
    last: u64,
    /// Number and state of each, in the order in which they were opened.
    states: BTreeMap<u64, (u64, Pairs, Expiries)>,
}

impl NaiveLeases {
    /// Forgets a lease, if there is one with this number.
    pub(super) fn expire(&mut self, number: u64) {
        self.states.retain(|_, (other, ..)| *other != number);
    }

    /// Removes the keys whose time has come from all states.
    pub(super) fn remove_expired(&mut self, now: u64) {
        for (_, pairs, expiries) in self.states.values_mut() {
            remove_expired(pairs, expiries, now);
        }
    }

    /// Returns true if a lease has this number.
    fn is_open(&self, number: u64) -> bool {
        self.states.values().any(|(other, ..)| *other == number)
    }

    /// Returns the reply to a valid scan from a key. A lease that it opens gets the number that another store has given, if there is
    /// one that can be.
    pub(super) fn scan(
        &mut self,
        pairs: &Pairs,
        expiries: &Expiries,
        key: &[u8],
        scan: &Scan<'_>,
        number_given: Option<u64>,
    ) -> NaiveReply {
        let mut number = 0;
        let page = match scan.lease {
            ScanLease::None => page(pairs, key, scan),
            ScanLease::Open => {
                // Room is made first.
                if self.states.len() == LEASE_COUNT_MAX {
                    self.states.pop_first();
                }
                let page = page(pairs, key, scan);
                if page.more {
                    self.last += 1;
                    number = number_given.filter(|number| !self.is_open(*number)).unwrap_or(self.last);
                    self.states.insert(self.last, (number, pairs.clone(), expiries.clone()));
                }
                page
            }
            ScanLease::Continue(lease) => {
                let Some((_, state, _)) = self.states.values().find(|(number, ..)| *number == lease) else {
                    return NaiveReply::Failed(OperationError::LeaseExpired);
                };
                let page = page(state, key, scan);
                match page.more {
                    true => number = lease,
                    false => self.expire(lease),
                }
                page
            }
        };
        NaiveReply::Value(page.bytes(number))
    }
}

struct NaivePage {
    answer: ScanAnswer,
    count: u32,
    more: bool,
    last_key: Vec<u8>,
    entries: Vec<u8>,
}

fn page(pairs: &Pairs, key: &[u8], scan: &Scan<'_>) -> NaivePage {
    let floor = pairs.keys().rfind(|other| other.as_slice() <= key);
    let is_in_range = |other: &[u8]| {
        let begins = match (scan.start, scan.end) {
            (ScanStart::Above, ScanEnd::Prefix(prefix)) if !key.starts_with(prefix) => other >= prefix,
            (ScanStart::Above, _) => other > key,
            (ScanStart::Floor, ScanEnd::Prefix(_)) | (ScanStart::AtOrAbove, _) => other >= key,
            (ScanStart::Floor, _) => floor.is_none_or(|floor| other >= floor.as_slice()),
        };
        let ends = match scan.end {
            ScanEnd::Last => false,
            ScanEnd::AtOrBelow(end) => other > end,
            ScanEnd::Below(end) => other >= end,
            ScanEnd::Prefix(prefix) => !other.starts_with(prefix),
        };
        begins && !ends
    };
    let mut range: Vec<_> = pairs.iter().filter(|(key, _)| is_in_range(key)).collect();
    if scan.reverse {
        range.reverse();
    }
    let mut page = NaivePage { answer: scan.answer, count: 0, more: false, last_key: Vec::new(), entries: Vec::new() };
    for (key, value) in range {
        let entry = match scan.answer {
            ScanAnswer::Pairs => {
                [&(key.len() as u16).to_le_bytes()[..], &(value.len() as u32).to_le_bytes(), key, value].concat()
            }
            ScanAnswer::Keys => [&(key.len() as u16).to_le_bytes()[..], key].concat(),
            ScanAnswer::Count => Vec::new(),
        };
        let is_full = scan.answer == ScanAnswer::Count && page.count == PAGE_COUNT_MAX
            || page.count > 0 && 16 + page.entries.len() + entry.len() > PAGE_SIZE_GOAL;
        if page.count == scan.limit || is_full {
            page.more = true;
            break;
        }
        page.count += 1;
        page.last_key.clone_from(key);
        page.entries.extend(entry);
    }
    page
}

impl NaivePage {
    fn bytes(&self, lease: u64) -> Vec<u8> {
        let last_key = if self.answer == ScanAnswer::Count { self.last_key.as_slice() } else { &[] };
        let last_key_size = last_key.len() as u16;
        [
            &self.count.to_le_bytes()[..],
            &[u8::from(self.more), self.answer as u8],
            &last_key_size.to_le_bytes(),
            &lease.to_le_bytes(),
            last_key,
            &self.entries,
        ]
        .concat()
    }
}
