//! Recovery without files, for the simulation.

use skep_log::{BlockView, Boundary, Chunk, Manifest, OrderedBoundary, SnapshotPart};
use skep_store::ordered::OrderedStore;
use skep_store::processor::Processor;
use skep_wire::partition::Partition;

use super::{Contained, OrderedReplay, Progress, Replay, Stores, Times};

/// Which blocks are applied to a snapshot.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Rule {
    /// Those that the boundary tells.
    Boundary,
    /// A control: all.
    AllBlocks,
}

/// Stores that get their keys back.
pub(crate) struct Recovering<'s> {
    stores: Stores<'s>,
    ordered: OrderedReplay<'s>,
    rule: Rule,
}

impl<'s> Recovering<'s> {
    pub(crate) fn new(
        processors: Vec<&'s mut Processor>,
        ordered: &'s OrderedStore,
        partition: Partition,
        rule: Rule,
    ) -> Recovering<'s> {
        let progress = Box::leak(Box::<Progress>::default());
        let stores = Stores::new(processors, partition, progress);
        Recovering { stores, ordered: OrderedReplay::new(ordered.session().expect("it is new"), 0), rule }
    }

    pub(crate) fn load(&mut self, part: SnapshotPart, chunk: &Chunk<'_>) {
        match part {
            SnapshotPart::Shard(_) => self.stores.load(chunk),
            SnapshotPart::Ordered => self.ordered.load(chunk),
        }
        .expect("the chunk is valid");
    }

    pub(crate) fn replay(
        mut self,
        before: &Manifest,
        (mut boundaries, boundary): (Vec<Boundary>, OrderedBoundary),
        blocks: &mut dyn Iterator<Item = BlockView<'_>>,
    ) {
        if self.rule == Rule::AllBlocks {
            boundaries.fill(Boundary::default());
        } else {
            self.ordered.set_boundary(boundary);
        }
        let seed = before.partition_seed;
        let contained = Contained::new(Some(before), boundaries, seed);
        let (stores, ordered) = (&self.stores, Some(self.ordered));
        let times = Times::new(before.shards.len(), stores.stores.len());
        let mut replay = Replay { stores, contained, seed, ordered, lacks_ordered: false, times };
        replay.group(blocks).expect("the blocks are valid");
        assert!(replay.check().is_ok());
    }
}
