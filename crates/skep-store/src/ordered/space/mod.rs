//! Divides the region: frames in use and free granules, LIDs, and the blocks that are kept back for writes that must not fail.
//!
//! ```text
//! region   │ unused │ chunk of 9s: ███░█ │ chunk of 3s: █░░░█ │ free chunk │ chunks never touched ... │
//! owners   a word for each granule: free │ LID of the frame that begins here │ goes on │ unowned │ moved
//! ```
//!
//! **Where a frame goes.** A chunk has 512 granules. While there is room, a frame goes to a chunk that holds frames of its
//! size, or to a free chunk, which then holds that size. When free blocks become scarce it goes to the shortest free run that
//! fits, wherever that is, and to a free chunk only if there is none. A frame that is freed joins the free granules around it,
//! so memory of one size serves every other; a chunk whose last frame is freed is free at once. Chunks are in lists by the
//! size that they hold and by their free runs, so each of these is a fixed number of steps.
//!
//! **What is kept back.** A block is 16 free granules where the largest frame fits. A frame takes one at most, see
//! `granules`. A frame that fills a shorter run is always granted, except to growth. One that takes a block leaves as many as
//! its [`Claim`] says:
//!
//! | kept back | for |
//! |---|---|
//! | [`BLOCKS_FOR_NODES`] | deletes, overwrites: what their merges build before the old nodes are free |
//! | as many as the largest value has frames | the new copy of a value that is overwritten by one of its size |
//! | [`BLOCKS_FOR_MOVES`], and one for each chunk | frames that are moved out of chunks with little in them |
//!
//! The largest delete builds at most three leaves and two interior nodes for each level above, so 16 blocks are enough for
//! any tree of seven levels. It gives back frames as large as those it took, but where they were, not as blocks: for each
//! size that may turn one block into shorter runs, which serve that size from then on. There are 16 sizes, so another 16. An
//! operation takes all its frames at once or none, so those that find the reserve in use wait for what the others free.
//!
//! A chunk may keep up to [`WASTE_MIN`] free granules outside of blocks, in which no frame of the sizes that are written
//! now fits. So growth leaves a block for each chunk besides: otherwise overwrites of several sizes would turn all blocks
//! into such runs, a few granules in each chunk.
//!
//! **Moving.** When blocks are scarce, [`Space::next_movable`] goes through the chunk that has most free granules outside of
//! blocks, in proportion to what is in use there, and names the frames to move elsewhere. It costs a word for each granule,
//! 0.8 % of the memory that is touched, to know whose a frame is.

use std::ops::Range;

mod check;
mod granules;
mod lists;

use granules::{BLOCK_GRANULES, CHUNK_BLOCKS, Granules};
use lists::{LISTS, Lists};

use super::memory::frame_state::FreeFrame;
use super::memory::number::{CHUNK_GRANULES, FrameNumber, GRANULE_MAX, GRANULE_SIZE, GRANULES_UNUSED, Lid};
use crate::memory::RegionError;

/// Blocks that the largest delete takes: three leaves, and two interior nodes for each of six levels.
const BLOCKS_FOR_DELETE: u32 = 16;
/// Blocks that only writes take which must not fail: deletes, and overwrites of the same size. For each size of frame one may
/// turn into shorter free runs.
const BLOCKS_FOR_NODES: u32 = BLOCKS_FOR_DELETE + GRANULE_MAX as u32;
/// Blocks beyond these that only moves take.
const BLOCKS_FOR_MOVES: u32 = 8;
/// Chunks of the smallest region: the reserve, and as much again.
const CHUNK_COUNT_MIN: u32 = 3;
/// Granules of the largest region: a word of `owners` names a LID and its kind.
const GRANULE_COUNT_MAX: u32 = (u32::MAX - Owner::FIRST) / 2;
/// Free blocks beyond what is kept back below which they are scarce: this part of all, and at least so many.
const SCARCE_PART: u32 = 32;
const SCARCE_BLOCKS_MIN: u32 = 32;
/// Free granules outside of blocks from which on it is worth moving what is in a chunk.
const WASTE_MIN: u32 = 32;
/// Granules that were moved and wait for an epoch to pass, beyond which no more are moved.
const MOVED_GRANULES_MAX: u32 = 1024;
/// Lists of chunks by what moving gains: this many for a granule gained by each granule that is moved.
const GAIN_UNIT: u32 = 4;
const GAIN_MAX: u32 = 15;

/// What a frame is taken for, and so what it has to leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    /// A write that may fail: leaves all that is kept back.
    Growth,
    /// The copy of a value that is overwritten by one of its size: leaves what nodes need.
    Overwrite,
    /// A node of a write that must not fail.
    Upkeep,
    /// A frame that is moved: leaves what writes need.
    Move,
}

/// Whose a frame is, and so what has to change when it is moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// The latest frame of a node, or one that is being built for it.
    Node(Lid),
    /// A complete part of a value.
    Value(Lid),
}

impl Owner {
    /// The word of a granule that no frame has.
    const FREE: u32 = 0;
    /// The word of a granule of a frame that began before it.
    const REST: u32 = 1;
    /// The word of a frame that cannot be moved: it is being written, or was replaced.
    const UNOWNED: u32 = 2;
    /// The word of a frame whose content was moved.
    const MOVED: u32 = 3;
    /// The first word that names an owner.
    const FIRST: u32 = 4;

    fn to_word(self) -> u32 {
        let (lid, kind) = match self {
            Owner::Node(lid) => (lid, 0),
            Owner::Value(lid) => (lid, 1),
        };
        Owner::FIRST + 2 * lid.number() + kind
    }

    fn from_word(word: u32) -> Option<Self> {
        let number = word.checked_sub(Owner::FIRST)?;
        let lid = Lid::new(number / 2);
        Some(if number.is_multiple_of(2) { Owner::Node(lid) } else { Owner::Value(lid) })
    }
}

/// A frame whose content can go elsewhere.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Movable {
    pub(crate) owner: Owner,
    pub(crate) number: FrameNumber,
    pub(crate) granules: usize,
}

/// A chunk of which frames were handed out at some time.
#[derive(Clone, Copy, Debug)]
struct Chunk {
    granules: Granules,
    /// Granules in use.
    used: u16,
    /// Granules from its start that were handed out at some time.
    touched: u16,
    /// Granules of the frames that it is for.
    home: u8,
    free_blocks: u8,
}

impl Chunk {
    /// The list of its group that it is in while it is in use, if any granule is free. Lists below [`GRANULE_MAX`] are for the
    /// longest free run. Those from there on are for chunks in which the largest frame fits: by the longest run outside of free
    /// blocks, at most [`GRANULE_MAX`] - 1.
    fn list(&self) -> Option<usize> {
        let outside = self.granules.outside_of_blocks().longest_run();
        let has_largest = self.free_blocks > 0 || outside == GRANULE_MAX;
        let list = if has_largest { GRANULE_MAX + outside.min(GRANULE_MAX - 1) } else { outside };
        (self.used > 0 && list > 0).then_some(list)
    }
}

/// Free granules and LIDs.
#[derive(Debug)]
pub(crate) struct Space {
    /// Of each granule, see [`Owner`].
    owners: Vec<u32>,
    /// Those that were touched.
    chunks: Vec<Chunk>,
    chunk_count: u32,
    /// Chunks in use: groups by the size that they are for, lists by their free runs, see [`Chunk::list`].
    by_run: Lists,
    /// Chunks in use, by what moving their frames gains.
    by_gain: Lists,
    /// Chunks that were touched and are free.
    chunks_free: Vec<u32>,
    /// Free blocks of all chunks, those never touched included.
    free_blocks: u32,
    block_count: u32,
    /// Blocks that the largest value needs, of those that were there since there was none.
    value_blocks_max: u32,
    /// The chunk whose frames are being moved, and the granule to go on with.
    source: Option<(u32, u32)>,
    /// Granules that wait for an epoch since their content was moved.
    moved_granules: u32,
    lids_free: Vec<u32>,
    lid_next: u32,
    /// LIDs of parts of values.
    value_lids: u64,
    used_granules: u64,
    touched_granules: u64,
    /// Chunks and lists that were looked at to find room.
    #[cfg(test)]
    steps: std::cell::Cell<u64>,
}

/// What the space holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpaceStatistics {
    /// Bytes of frames in use, those waiting for an epoch to pass included.
    pub used_bytes: u64,
    /// Bytes of the region that were handed out at some time: the memory that the store really takes.
    pub touched_bytes: u64,
    /// LIDs that were handed out at some time: each has a word in the page table.
    pub lids: u64,
    /// LIDs of nodes in use. Parts of values have LIDs too, which are not among these.
    pub lids_used: u64,
}

impl Space {
    /// Granules of the whole chunks that a region of `size` bytes holds.
    pub(crate) fn granule_count(size: u64) -> Result<u32, RegionError> {
        let chunk_size = u64::from(CHUNK_GRANULES) * GRANULE_SIZE as u64;
        let size_min = u64::from(CHUNK_COUNT_MIN) * chunk_size;
        if size < size_min {
            return Err(RegionError::TooSmall { size, size_min });
        }
        let granules = u32::try_from(size / chunk_size * u64::from(CHUNK_GRANULES)).ok();
        granules.filter(|granules| *granules <= GRANULE_COUNT_MAX).ok_or(RegionError::TooLarge { size })
    }

    /// All of a region of so many granules, which are whole chunks, is free.
    pub(crate) fn new(granule_count: u32) -> Self {
        let chunk_count = granule_count / CHUNK_GRANULES;
        assert!(granule_count.is_multiple_of(CHUNK_GRANULES) && chunk_count >= CHUNK_COUNT_MIN);
        let block_count = chunk_count * CHUNK_BLOCKS - GRANULES_UNUSED.div_ceil(BLOCK_GRANULES);
        Space {
            owners: vec![Owner::FREE; granule_count as usize],
            chunks: Vec::with_capacity(chunk_count as usize),
            chunk_count,
            by_run: Lists::new(GRANULE_MAX + 1, chunk_count as usize),
            by_gain: Lists::new(1, chunk_count as usize),
            chunks_free: Vec::new(),
            free_blocks: block_count,
            block_count,
            value_blocks_max: 0,
            source: None,
            moved_granules: 0,
            lids_free: Vec::new(),
            lid_next: Lid::ROOT.number() + 1,
            value_lids: 0,
            used_granules: 0,
            touched_granules: 0,
            #[cfg(test)]
            steps: std::cell::Cell::new(0),
        }
    }

    /// Takes a frame, which is unowned until [`Space::give`].
    pub(crate) fn allocate(&mut self, granules: usize, claim: Claim) -> Option<FreeFrame> {
        self.allocate_beside(granules, claim, None)
    }

    /// Takes the frames of a value and a LID for each, or nothing. They leave room for another value of this size.
    pub(crate) fn allocate_value(&mut self, granules: &[usize], claim: Claim) -> Option<Vec<(Lid, FreeFrame)>> {
        let blocks_max_before = self.value_blocks_max;
        self.value_blocks_max = blocks_max_before.max(granules.len() as u32);
        let mut parts = Vec::with_capacity(granules.len());
        for size in granules {
            let frame = self.allocate(*size, claim);
            let lid = if frame.is_some() { self.allocate_lid() } else { None };
            self.value_lids += u64::from(lid.is_some());
            match (lid, frame) {
                (Some(lid), Some(frame)) => parts.push((lid, frame)),
                (_, frame) => {
                    frame.into_iter().for_each(|frame| self.free(frame));
                    for (lid, frame) in parts {
                        self.free(frame);
                        self.free_value_lid(lid);
                    }
                    self.value_blocks_max = blocks_max_before;
                    return None;
                }
            }
        }
        Some(parts)
    }

    /// Says whose a frame is. From here on it can be moved, once the page table leads to it.
    pub(crate) fn give(&mut self, frame: FrameNumber, owner: Owner) {
        self.owners[frame.bits() as usize] = owner.to_word();
    }

    /// Makes a frame unowned, before it is tagged as garbage. It is not moved from here on.
    pub(crate) fn retire(&mut self, frame: FrameNumber) {
        self.owners[frame.bits() as usize] = Owner::UNOWNED;
    }

    /// Says that the content of a frame is elsewhere.
    pub(crate) fn retire_moved(&mut self, frame: &Movable) {
        self.owners[frame.number.bits() as usize] = Owner::MOVED;
        self.moved_granules += frame.granules as u32;
    }

    /// Takes a frame back.
    #[expect(clippy::needless_pass_by_value, reason = "the frame is in the space's hand from here on")]
    pub(crate) fn free(&mut self, frame: FreeFrame) {
        let (number, granules) = (frame.number().bits(), frame.granules());
        let words = &mut self.owners[number as usize..][..granules];
        assert!(words[0] != Owner::FREE && words[1..].iter().all(|word| *word == Owner::REST), "it is one frame");
        if words[0] == Owner::MOVED {
            self.moved_granules -= granules as u32;
        }
        words.fill(Owner::FREE);
        let place = number / CHUNK_GRANULES;
        let chunk = &mut self.chunks[place as usize];
        chunk.granules.flip(number % CHUNK_GRANULES, granules as u32);
        chunk.used -= granules as u16;
        self.used_granules -= granules as u64;
        if chunk.used == 0 {
            self.chunks_free.push(place);
        }
        self.update(place);
    }

    /// A LID that nobody knows.
    pub(crate) fn allocate_lid(&mut self) -> Option<Lid> {
        if let Some(lid) = self.lids_free.pop() {
            return Some(Lid::new(lid));
        }
        let lid = self.lid_next;
        ((lid as usize) < self.owners.len()).then(|| {
            self.lid_next += 1;
            Lid::new(lid)
        })
    }

    /// Takes a LID back.
    pub(crate) fn free_lid(&mut self, lid: Lid) {
        self.lids_free.push(lid.number());
    }

    /// Takes the LID of a part of a value back that was never published.
    pub(crate) fn free_value_lid(&mut self, lid: Lid) {
        self.forget_value_lid();
        self.free_lid(lid);
    }

    /// Says that a LID that will be taken back is no part's of a value any more.
    pub(crate) fn forget_value_lid(&mut self) {
        self.value_lids -= 1;
        if self.value_lids == 0 {
            self.value_blocks_max = 0;
        }
    }

    /// Whether any value has frames of its own.
    pub(crate) fn has_values(&self) -> bool {
        self.value_lids > 0
    }

    /// Whether so few blocks are free that frames are moved to make more of them.
    pub(crate) fn is_scarce(&self) -> bool {
        let spare = (self.block_count / SCARCE_PART).max(SCARCE_BLOCKS_MIN);
        self.free_blocks < self.kept_back(Claim::Growth) + spare
    }

    /// The next frame to move, while there is anything to gain and `left` granules may be looked at.
    pub(crate) fn next_movable(&mut self, left: &mut u32) -> Option<Movable> {
        while *left > 0 {
            if self.source.is_none() {
                self.source = Some((self.gainful_chunk()?, 0));
            }
            let (chunk, next) = self.source?;
            if next == CHUNK_GRANULES {
                // Not again before something changes there.
                self.by_gain.put(chunk, None, true);
                self.source = None;
                continue;
            }
            let number = chunk * CHUNK_GRANULES + next;
            let granules = self.frame_granules(number);
            self.source = Some((chunk, next + granules.max(1)));
            *left = left.saturating_sub(granules.max(1));
            if let Some(owner) = Owner::from_word(self.owners[number as usize]) {
                let number = FrameNumber::from_bits(number.try_into().expect("the first granules are not used"));
                return Some(Movable { owner, number, granules: granules as usize });
            }
        }
        None
    }

    /// A frame for the content of another, in another chunk. If there is none, what shares its chunk stays too.
    pub(crate) fn allocate_for(&mut self, from: &Movable) -> Option<FreeFrame> {
        let source = from.number.bits() / CHUNK_GRANULES;
        let frame = self.allocate_beside(from.granules, Claim::Move, Some(source));
        if frame.is_none() && self.source.is_some_and(|(chunk, _)| chunk == source) {
            self.source = Some((source, CHUNK_GRANULES));
        }
        frame
    }

    pub(crate) fn statistics(&self) -> SpaceStatistics {
        let bytes = |granules: u64| granules * GRANULE_SIZE as u64;
        SpaceStatistics {
            used_bytes: bytes(self.used_granules),
            touched_bytes: bytes(self.touched_granules),
            lids: u64::from(self.lid_next),
            lids_used: u64::from(self.lid_next) - self.lids_free.len() as u64 - self.value_lids,
        }
    }

    /// Blocks that a claim has to leave.
    fn kept_back(&self, claim: Claim) -> u32 {
        match claim {
            Claim::Growth => BLOCKS_FOR_NODES + self.value_blocks_max + BLOCKS_FOR_MOVES + self.chunk_count,
            Claim::Move => BLOCKS_FOR_NODES + self.value_blocks_max,
            Claim::Overwrite => BLOCKS_FOR_DELETE,
            Claim::Upkeep => 0,
        }
    }

    fn allocate_beside(&mut self, granules: usize, claim: Claim, avoided: Option<u32>) -> Option<FreeFrame> {
        let is_close = claim == Claim::Move || self.is_scarce();
        let own = (!is_close).then(|| self.by_run.lowest(granules, granules)).flatten();
        let own = own.and_then(|run| self.by_run.first(granules, run));
        let found = own.or_else(|| {
            let (free, other) = (|| self.free_chunk(), || self.chunk_with_run(granules, avoided));
            if is_close { other().or_else(free) } else { free().or_else(other) }
        })?;
        #[cfg(test)]
        self.steps.update(|steps| steps + 1);
        if found as usize == self.chunks.len() {
            self.add_chunk();
        }
        let chunk = &mut self.chunks[found as usize];
        let outside = is_close.then(|| chunk.granules.outside_of_blocks().first_run(granules)).flatten();
        let first = outside.or_else(|| chunk.granules.first_run(granules)).expect("the list tells the longest run");
        let mut with_frame = chunk.granules;
        with_frame.flip(first, granules as u32);
        let taken = u32::from(chunk.free_blocks) - with_frame.free_blocks();
        if (taken > 0 || claim == Claim::Growth) && self.free_blocks - taken < self.kept_back(claim) {
            return None;
        }
        let chunk = &mut self.chunks[found as usize];
        if chunk.used == 0 {
            chunk.home = granules as u8;
            let free = self.chunks_free.pop();
            assert_eq!(free, Some(found), "a chunk that is not in use is the last of the free");
        }
        let end = first + granules as u32;
        self.touched_granules += u64::from(end.saturating_sub(u32::from(chunk.touched)));
        chunk.touched = chunk.touched.max(end as u16);
        chunk.granules = with_frame;
        chunk.used += granules as u16;
        self.used_granules += granules as u64;
        self.update(found);
        let number = found * CHUNK_GRANULES + first;
        self.owners[number as usize..][..granules].fill(Owner::REST);
        self.owners[number as usize] = Owner::UNOWNED;
        Some(FreeFrame::carved(number, granules))
    }

    /// The chunk that is used next of those that are free; it may have to be added.
    fn free_chunk(&self) -> Option<u32> {
        let next = self.chunks.len() as u32;
        self.chunks_free.last().copied().or((next < self.chunk_count).then_some(next))
    }

    /// A chunk in use with a free run that is as short as can be, of those that fit; one in a free block only if there is no
    /// other.
    fn chunk_with_run(&self, granules: usize, avoided: Option<u32>) -> Option<u32> {
        // Chunks without free blocks; chunks with such a run beside free blocks; the others, which the largest frame fits.
        let lists = [granules..GRANULE_MAX, GRANULE_MAX + granules..LISTS, GRANULE_MAX..LISTS];
        lists.into_iter().find_map(|lists| {
            let found = (1..=GRANULE_MAX).filter_map(|home| self.chunk_in_lists(home, lists.clone(), avoided));
            Some(found.min_by_key(|(list, _)| *list)?.1)
        })
    }

    /// The first chunk that is not avoided in the lowest of these lists that has one, and the list.
    fn chunk_in_lists(&self, home: usize, mut lists: Range<usize>, avoided: Option<u32>) -> Option<(usize, u32)> {
        loop {
            #[cfg(test)]
            self.steps.update(|steps| steps + 1);
            let list = self.by_run.lowest(home, lists.start).filter(|list| lists.contains(list))?;
            let first = self.by_run.first(home, list)?;
            match if Some(first) == avoided { self.by_run.after(first) } else { Some(first) } {
                Some(chunk) => return Some((list, chunk)),
                None => lists.start = list + 1,
            }
        }
    }

    /// Adds the next chunk that was never touched to those that are free.
    fn add_chunk(&mut self) {
        let place = self.chunks.len() as u32;
        let mut granules = Granules::FREE;
        if place == 0 {
            granules.flip(0, GRANULES_UNUSED);
        }
        let free_blocks = granules.free_blocks() as u8;
        self.chunks.push(Chunk { granules, used: 0, touched: 0, home: 0, free_blocks });
        self.by_run.add();
        self.by_gain.add();
        self.chunks_free.push(place);
    }

    /// Puts a chunk that has changed where it belongs.
    fn update(&mut self, place: u32) {
        let is_scarce = self.is_scarce();
        let chunk = &mut self.chunks[place as usize];
        let free_blocks = chunk.granules.free_blocks();
        self.free_blocks = self.free_blocks + free_blocks - u32::from(chunk.free_blocks);
        chunk.free_blocks = free_blocks as u8;
        let (home, used, list) = (usize::from(chunk.home), u32::from(chunk.used), chunk.list());
        let waste = CHUNK_GRANULES - chunk.granules.used() - free_blocks * BLOCK_GRANULES;
        let gain = 1 + GAIN_UNIT * waste / used.max(1);
        // What was used before comes before what was never touched. Where frames are moved away, a chunk has time to become
        // empty before it is used again.
        let is_last = u32::from(chunk.touched) < CHUNK_GRANULES - GRANULE_MAX as u32 || is_scarce;
        self.by_run.put(place, list.map(|list| (home, list)), is_last);
        self.by_gain.put(place, (used > 0 && waste >= WASTE_MIN).then_some((0, gain.min(GAIN_MAX) as usize)), true);
    }

    /// The chunk where moving gains most, unless too much that was moved still waits.
    fn gainful_chunk(&self) -> Option<u32> {
        if self.moved_granules >= MOVED_GRANULES_MAX {
            return None;
        }
        self.by_gain.first(0, self.by_gain.highest(0)?)
    }

    /// Granules of the frame that begins here, or zero.
    fn frame_granules(&self, number: u32) -> u32 {
        if matches!(self.owners[number as usize], Owner::FREE | Owner::REST) {
            return 0;
        }
        let rest = self.owners[number as usize + 1..].iter().take_while(|word| **word == Owner::REST);
        1 + rest.take(GRANULE_MAX - 1).count() as u32
    }
}

#[cfg(test)]
mod tests;
