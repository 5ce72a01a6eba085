//! The log and the snapshots of an ordered store, as lists, and the recovery of a store from them.

use std::collections::BTreeMap;

use skep_core::operation::Expiry;
use skep_store::ordered::{Effect, Effects, Load, OrderedSettings, OrderedStore, Session, SnapshotWalk};

/// The value of a key, and its expiry.
pub(crate) type State = (Vec<u8>, Option<Expiry>);
/// All keys of a store that have not expired.
pub(crate) type Dump = BTreeMap<Vec<u8>, State>;

/// An effect that owns its bytes.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    pub(crate) version: u64,
    pub(crate) key: Vec<u8>,
    pub(crate) value: Option<State>,
}

/// A block of the log.
#[derive(Clone, Debug)]
pub(crate) struct Block {
    pub(crate) effects: Vec<Kept>,
    pub(crate) floor: u64,
}

/// A step of a snapshot: the pairs from its first key to that of the next step.
#[derive(Clone, Debug)]
struct Step {
    first: Vec<u8>,
    version: u64,
    pairs: Vec<Kept>,
}

/// The steps of a snapshot.
#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    /// The number of blocks before its first step. Recovery does not need them.
    pub(crate) blocks: usize,
    steps: Vec<Step>,
    /// `None` before the first step.
    pub(crate) walk: Option<SnapshotWalk>,
    pub(crate) is_complete: bool,
}

/// A fault of a recovery that must not be equal to the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    /// Effects are applied in the order of their blocks.
    BlockOrder,
    /// Effects are applied that the snapshot has.
    NoRule,
    /// Effects are applied that are not below the floor.
    NoFloor,
}

impl Block {
    pub(crate) fn new(effects: Effects<'_>, floor: u64) -> Self {
        let kept = |Effect { version, key, value }: Effect<'_>| Kept {
            version,
            key: key.to_vec(),
            value: value.map(|(value, expiry)| (value.to_vec(), expiry)),
        };
        Block { effects: effects.map(kept).collect(), floor }
    }
}

/// Returns the greatest floor.
pub(crate) fn floor_of(blocks: &[Block]) -> u64 {
    blocks.iter().map(|block| block.floor).max().unwrap_or(0)
}

impl Snapshot {
    /// Begins a snapshot after these blocks.
    pub(crate) fn new(blocks: usize) -> Self {
        Snapshot { blocks, steps: Vec::new(), walk: None, is_complete: false }
    }

    /// Makes the next step.
    pub(crate) fn step(&mut self, session: &mut Session<'_>, pairs_max: usize, bytes_max: usize) {
        let walk = self.walk.get_or_insert_with(|| session.begin_snapshot(u64::MAX));
        let (first, mut pairs) = (walk.position().to_vec(), Vec::new());
        let step = session.snapshot_step(walk, pairs_max, bytes_max, |key, value, expiry| {
            pairs.push(Kept { version: 0, key: key.to_vec(), value: Some((value.to_vec(), expiry)) });
        });
        let size = |pair: &Kept| pair.key.len() + pair.value.as_ref().map_or(0, |(value, _)| value.len());
        assert!(pairs.len() <= 1 || pairs.len() <= pairs_max && pairs.iter().map(size).sum::<usize>() <= bytes_max);
        let position = walk.position().to_vec();
        assert!(position > first || step.is_last && position.is_empty(), "a step moves on");
        assert!(pairs.iter().all(|pair| pair.key >= first && pair.key < position));
        if !position.is_empty() {
            self.steps.push(Step { first, version: step.version, pairs });
        }
        if step.is_last {
            self.steps.push(Step { first: position, version: walk.begun_at(), pairs: Vec::new() });
        }
        self.is_complete = step.is_last;
    }

    /// Returns the number of pairs of all steps.
    pub(crate) fn pair_count(&self) -> usize {
        self.steps.iter().map(|step| step.pairs.len()).sum()
    }

    /// Returns true if the log tells all that has happened before the last step.
    pub(crate) fn is_covered(&self, blocks: &[Block]) -> bool {
        let newest = self.steps.iter().map(|step| step.version).max();
        self.is_complete && self.blocks < blocks.len() && newest < Some(floor_of(&blocks[self.blocks..]))
    }

    fn version_of(&self, key: &[u8]) -> u64 {
        self.steps[self.steps.partition_point(|step| &step.first[..] <= key) - 1].version
    }
}

/// Returns all pairs of a store that have not expired.
pub(crate) fn dump(session: &mut Session<'_>) -> Dump {
    let (mut dump, mut walk) = (Dump::new(), session.begin_snapshot(u64::MAX));
    let mut add =
        |key: &[u8], value: &[u8], expiry| assert!(dump.insert(key.to_vec(), (value.to_vec(), expiry)).is_none());
    while !session.snapshot_step(&mut walk, 100, 1 << 20, &mut add).is_last {}
    dump
}

/// Recovers a store from a snapshot and the blocks after it, or from all blocks, and returns its pairs at a time.
pub(crate) fn recover(snapshot: Option<&Snapshot>, blocks: &[Block], now: u64, fault: Fault) -> Dump {
    let blocks = &blocks[snapshot.map_or(0, |snapshot| snapshot.blocks)..];
    let floor = floor_of(blocks);
    let is_wanted = |effect: &&Kept| {
        let is_new = snapshot.is_none_or(|snapshot| effect.version > snapshot.version_of(&effect.key));
        (is_new || fault == Fault::NoRule) && (effect.version < floor || fault == Fault::NoFloor)
    };
    let mut effects: Vec<&Kept> = blocks.iter().flat_map(|block| &block.effects).filter(is_wanted).collect();
    if fault != Fault::BlockOrder {
        effects.sort_by_key(|effect| effect.version);
    }
    let mut store = OrderedStore::new(&OrderedSettings::new(32 << 20)).unwrap();
    store.set_now(now);
    store.begin_versions_after(floor);
    let mut left = Dump::new();
    let pairs = snapshot.iter().flat_map(|snapshot| &snapshot.steps).flat_map(|step| &step.pairs);
    for Kept { key, value, .. } in pairs.chain(effects) {
        match value {
            Some((_, Some(expiry))) if expiry.has_passed(now) => _ = left.remove(key),
            Some(value) => _ = left.insert(key.clone(), value.clone()),
            None => _ = left.remove(key),
        }
    }
    let mut load = Load::new(store.session().unwrap());
    left.iter().for_each(|(key, (value, expiry))| load.push(key, value, *expiry).unwrap());
    load.finish().unwrap();
    let mut session = store.session().unwrap();
    assert!(session.read_version() >= floor);
    dump(&mut session)
}
