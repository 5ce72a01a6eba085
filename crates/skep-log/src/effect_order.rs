//! Effects of operations in a space where two threads may write one key, and the order in which they are replayed.
//!
//! ```text
//! block 7   floor 4   effects 1 3 6          handed out: 1 2 3
//! block 8   floor 4   effects 5
//! block 9   floor 8   effects 4 7 8          handed out: 4 5 6 7; the effect 8 waits for a later floor
//! ```
//!
//! Threads seal their blocks one after another, so the blocks are not in the order of the versions. The floor of a block
//! states that all effects with lower versions are in it or before it. So the effects below the greatest floor are
//! complete, and they are handed out in the order of their versions. Effects above it may depend on others that a crash
//! took. They were not acknowledged, and the recovery drops them.
//!
//! **Why they stay dropped.** The segment that a recovery begins is marked. Its first block ends the wait of all earlier
//! effects, whose versions are used again.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use skep_core::operation::{Condition, ExpiryChange, Operation, PutCondition, Request, StringWrite};
use skep_wire::native::WireError;

use crate::block::{BlockView, Section};

/// Hands out the effects of blocks in the order of their versions. The effects that are left at the end are dropped.
#[derive(Debug, Default)]
pub struct EffectOrder {
    waiting: BinaryHeap<Reverse<Waiting>>,
    arrivals: u64,
}

/// An effect that waits for a floor above its version.
#[derive(Debug)]
struct Waiting {
    version: u64,
    /// Effects of one version keep their order.
    arrival: u64,
    space: u16,
    key: Box<[u8]>,
    /// `None` for a delete.
    value: Option<Box<[u8]>>,
    expiry: ExpiryChange,
}

impl Waiting {
    fn order(&self) -> (u64, u64) {
        (self.version, self.arrival)
    }
}

impl PartialEq for Waiting {
    fn eq(&self, other: &Self) -> bool {
        self.order() == other.order()
    }
}

impl Eq for Waiting {}

impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Waiting {
    fn cmp(&self, other: &Self) -> Ordering {
        self.order().cmp(&other.order())
    }
}

impl EffectOrder {
    /// Takes the effects of the next block of the log. Calls `apply` with the space, the version and the operation of
    /// each effect that is now complete.
    pub fn read(&mut self, block: &BlockView<'_>, apply: impl FnMut(u16, u64, &Request<'_>)) -> Result<(), WireError> {
        self.read_wanted(block, |_| true, apply)
    }

    /// Does the same with the effects on some keys. The others are left out.
    pub fn read_wanted(
        &mut self,
        block: &BlockView<'_>,
        is_wanted: impl Fn(&[u8]) -> bool,
        mut apply: impl FnMut(u16, u64, &Request<'_>),
    ) -> Result<(), WireError> {
        if block.begins_run {
            self.waiting.clear();
        }
        for section in block.sections() {
            let Section::Effects { space, effects } = section else { continue };
            for effect in effects {
                let (version, Request { key, operation }) = effect?;
                if !is_wanted(key) {
                    continue;
                }
                let (value, expiry) = match operation {
                    Operation::Put { value, condition: PutCondition::Always } => {
                        (Some(value.into()), ExpiryChange::CLEAR)
                    }
                    Operation::Delete => (None, ExpiryChange::CLEAR),
                    Operation::StringWrite(StringWrite::Set {
                        value, condition: Condition::ALWAYS, expiry, ..
                    }) if expiry != ExpiryChange::KEEP => (Some(value.into()), expiry),
                    _ => return Err(WireError::UnknownOperation),
                };
                let (key, arrival) = (key.into(), self.arrivals);
                self.waiting.push(Reverse(Waiting { version, arrival, space, key, value, expiry }));
                self.arrivals += 1;
            }
        }
        while self.waiting.peek().is_some_and(|Reverse(first)| first.version < block.floor) {
            let Reverse(Waiting { version, space, key, value, expiry, .. }) = self.waiting.pop().expect("it was seen");
            let operation = match &value {
                Some(value) => Operation::put(value, expiry),
                None => Operation::Delete,
            };
            apply(space, version, &Request { key: &key, operation });
        }
        Ok(())
    }

    /// Returns the number of effects that wait.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Returns true if no effect waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::BlockWriter;

    #[test]
    fn effects_return_in_the_order_of_their_versions() {
        let blocks: [(u64, &[u64]); 3] = [(4, &[1, 3, 6, 2]), (4, &[5]), (8, &[4, 7, 8])];
        let mut order = EffectOrder::default();
        let mut found = Vec::new();
        let mut writer = BlockWriter::new();
        let mut read = |floor, versions: &[u64], begins_run| {
            for &version in versions {
                let key = version.to_le_bytes();
                assert!(writer.append_effect(1, version, &Request { key: &key, operation: Operation::Delete }));
            }
            let block = writer.seal(floor).unwrap();
            let (mut view, _) = BlockView::decode(1, block.bytes()).unwrap();
            view.begins_run = begins_run;
            let apply = |space, version: u64, request: &Request<'_>| {
                assert_eq!((space, request.key), (1, &version.to_le_bytes()[..]));
                found.push(version);
            };
            order.read(&view, apply).unwrap();
            (order.len(), std::mem::take(&mut found))
        };
        let handed_out = blocks.map(|(floor, versions)| read(floor, versions, false));
        assert_eq!(handed_out, [(1, vec![1, 2, 3]), (2, vec![]), (1, vec![4, 5, 6, 7])]);
        // After a recovery the version 8 is used again.
        assert_eq!(read(11, &[8, 9], true), (0, vec![8, 9]));
    }
}
