//! Recovery without files, for the simulation.

use skep_log::{BlockView, Boundary, Chunk, Manifest, SnapshotPart};
use skep_store::ordered::OrderedStore;
use skep_store::processor::Processor;
use skep_wire::partition::Partition;

use super::super::ordered_recovery::ReadAgain;
use super::{FunctionLoader, OrderedReplay, Progress, Replay, Stores};

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
    /// The chunks of the ordered space, which are merged with the log.
    chunks: Vec<Chunk<'s>>,
    rule: Rule,
}

/// So few effects are kept that the log is read again and again.
const EFFECTS_SIZE_MAX: usize = 1000;

impl<'s> Recovering<'s> {
    pub(crate) fn new(
        processors: Vec<&'s mut Processor>,
        ordered: &'s OrderedStore,
        partition: Partition,
        rule: Rule,
    ) -> Recovering<'s> {
        let progress = Box::leak(Box::<Progress>::default());
        let stores = Stores::new(processors, partition, progress, Box::leak(Box::new(FunctionLoader::new(0))));
        let ordered = OrderedReplay::new(ordered.session().expect("it is new"), 0, EFFECTS_SIZE_MAX);
        Recovering { stores, ordered, chunks: Vec::new(), rule }
    }

    pub(crate) fn load(&mut self, part: SnapshotPart, chunk: Chunk<'s>) {
        match part {
            SnapshotPart::Shard(_) => self.stores.load(&chunk).expect("the chunk is valid"),
            SnapshotPart::Ordered => self.chunks.push(chunk),
        }
    }

    /// Replays blocks. Returns the latest time that they state, and the number of walks over all buckets.
    pub(crate) fn replay(
        self,
        before: &Manifest,
        mut boundaries: Vec<Boundary>,
        blocks: &[BlockView<'_>],
    ) -> (u64, u64) {
        if self.rule == Rule::AllBlocks {
            boundaries.fill(Boundary::default());
        }
        let mut replay = Replay::new(&self.stores, Some(before), boundaries, before.partition_seed);
        replay.ordered = Some(self.ordered);
        replay.group(&mut blocks.iter().copied()).expect("the blocks are valid");
        replay.lacks_ordered = false;
        assert!(replay.check().is_ok());
        let mut ordered = replay.ordered.take().expect("it has an ordered space");
        let read_again: ReadAgain<'_> = &|apply| {
            blocks.iter().try_for_each(apply).expect("the blocks are valid");
            Ok(())
        };
        self.chunks.iter().for_each(|chunk| ordered.chunk(chunk, read_again).expect("the chunk is valid"));
        assert!(ordered.finish(read_again).is_ok());
        (replay.times.last, replay.walks)
    }
}
