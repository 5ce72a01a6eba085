//! Tests of the whole crate on a simulated disk.

mod copies;
mod crashes;
mod directories;
mod functions;
mod model;
mod without_room;

use model::{Pairs, execute, position, shard};

use crate::{BlockView, Boundary, Directory, EffectOrder, LogEnd, LogError, Section, SimulatedDisk};

/// How a directory is recovered and operations are acknowledged.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Rule {
    /// An operation is acknowledged when it is durable.
    Durable,
    /// A control: when its block is given to the group writer.
    Early,
    /// A control: as `Durable`, but recovery applies all operations of the log to the snapshot.
    WithoutBoundary,
    /// A control: as `Durable`, but recovery applies effects in the order of the blocks.
    WithoutOrder,
}

/// Returns the pairs of the hash space and the ordered space, and the end of the log.
pub(crate) fn recover(
    directory: &Directory<SimulatedDisk>,
    shards: usize,
    accept_loss: bool,
    rule: Rule,
) -> Result<([Pairs; 2], LogEnd), LogError> {
    let [mut hash, mut ordered] = [Pairs::new(), Pairs::new()];
    let mut boundaries = Vec::new();
    for shard in 0..shards as u16 {
        boundaries.push(directory.read_snapshot(shard, |chunk| {
            chunk.requests().try_for_each(|request| request.map(|request| execute(&mut hash, &request)))
        })?);
    }
    let ordered_boundary = directory.read_ordered_snapshot(|chunk| {
        chunk.requests().try_for_each(|request| request.map(|request| execute(&mut ordered, &request)))
    })?;
    if rule == Rule::WithoutBoundary {
        boundaries.fill(Boundary::default());
    }
    let mut order = EffectOrder::default();
    let mut apply = |block: &BlockView<'_>| {
        for section in block.sections() {
            match section {
                Section::Operations { operations, .. } => {
                    for request in operations {
                        let request = request?;
                        if boundaries[shard(request.key, shards)].applies(block.number, position(request.key)) {
                            execute(&mut hash, &request);
                        }
                    }
                }
                Section::Flush { shard: flushed, .. } => {
                    let flushed = usize::from(flushed);
                    let is_kept = |key: &[u8]| {
                        shard(key, shards) != flushed || !boundaries[flushed].applies(block.number, position(key))
                    };
                    hash.retain(|key, _| is_kept(key));
                }
                Section::Effects { effects, .. } if rule == Rule::WithoutOrder => {
                    effects.for_each(|effect| execute(&mut ordered, &effect.expect("a valid effect").1));
                }
                Section::Effects { .. } => {}
            }
        }
        if rule == Rule::WithoutOrder {
            return Ok(());
        }
        order.read(block, |_, version, request| {
            if ordered_boundary.applies(version, request.key) {
                execute(&mut ordered, request);
            }
        })
    };
    let end = directory.read_log(accept_loss, |blocks| {
        for block in blocks {
            apply(&block).map_err(|error| (block.number, error))?;
        }
        Ok(())
    })?;
    Ok(([hash, ordered], end))
}

/// A source of random numbers that follow from a seed (splitmix64).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number below `end`.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    /// Returns true once in `of` times.
    pub(crate) fn once_in(&mut self, of: usize) -> bool {
        self.below(of) == 0
    }
}
