//! Splits and joins of nodes: a run of neighbouring children is replaced by new nodes, its pieces (Honeycomb, sections
//! 3.4 and 3.5).
//!
//! ```text
//!            root of the split: keeps its LID, gets another frame
//!           ╱        │         ╲
//!        ...    run ▶ pieces    ...          at each level below: locked, replaced by pieces with new LIDs
//!                    │
//!   left ◀──▶ run of leaves ▶ pieces ◀──▶ right      the leaves on both sides are locked and linked to the pieces
//! ```
//!
//! 1. A leaf without room is a run of one, replaced by two pieces. A leaf that is nearly empty is a run with its
//!    neighbour, replaced by one piece.
//! 2. The pieces have the same pairs as the run; the write itself begins again afterwards. A reader may reach a piece
//!    by its left sibling before the parent leads to it. Without versions it would otherwise see a write that readers
//!    from the root miss.
//! 3. The parent takes the pieces and is the root of the split; or it is divided or joined with its own neighbour in
//!    the same way.
//! 4. If the root itself is divided, or has one child left, LID 0 gets a node of another level.
//!
//! All nodes are locked and all memory is allocated before the first change. Each lock is tried once; if one fails, all
//! are unlocked.

use super::super::key_head::encoding::Encoding;
use super::super::key_head::{Target, separator};
use super::super::leaf::build::{LEAF_SIZE_MERGED_MAX, LeafPlan, Sorted, size_of_pair};
use super::super::leaf::edit::Edits;
use super::super::leaf::merge::{Halves, pairs_with};
use super::super::memory::frame_state::{FreeFrame, SealedFrame};
use super::super::memory::number::{FrameNumber, Lid};
use super::super::node::builder::Siblings;
use super::super::node::division::middle_of;
use super::super::node::frame::{LockedNode, Node};
use super::super::node::hint::NO_HINT;
use super::super::node::interior::{self, CHILD_COUNT_LOW, Child, InteriorPlan};
use super::super::node::log::LogBlock;
use super::super::node::segment::Item;
use super::super::space::Claim;
use super::super::store::OrderedStore;
use super::super::version::epoch::Guard;
use super::super::version::garbage::Garbage;
use super::attempt::{AbortOnPanic, Attempt, Terms};

/// An interior node on the path to a leaf.
struct Step<'g> {
    node: Node<'g>,
    children: Vec<Child<'g>>,
    /// The index of the child on the path.
    index: usize,
    fences: Fences<'g>,
}

/// The lowest key of a node's range, and the lowest key above it. Each is `None` at an end of the tree.
#[derive(Clone, Copy, Debug)]
struct Fences<'a> {
    low: Option<&'a [u8]>,
    high: Option<&'a [u8]>,
}

impl<'a> Fences<'a> {
    /// Returns the fences of a run of children of a node with these fences.
    fn of_run(self, children: &[Child<'a>], run: &std::ops::Range<usize>) -> Fences<'a> {
        let low = if run.start == 0 { self.low } else { Some(children[run.start].separator) };
        let high = children.get(run.end).map(|child| child.separator).or(self.high);
        Fences { low, high }
    }
}

/// Neighbouring leaves of one parent that are replaced, and the path to them.
struct Run<'g> {
    path: Vec<Step<'g>>,
    /// Their indexes in the parent.
    children: std::ops::Range<usize>,
    leaves: Vec<LockedNode<'g>>,
}

impl<'g> Run<'g> {
    /// Returns the run of a single leaf.
    fn of_leaf(path: Vec<Step<'g>>, leaf: LockedNode<'g>) -> Self {
        let children = path.last().map_or(0..1, |step| step.index..step.index + 1);
        Run { path, children, leaves: vec![leaf] }
    }

    fn fences(&self) -> Fences<'g> {
        let of_tree = Fences { low: None, high: None };
        self.path.last().map_or(of_tree, |step| step.fences.of_run(&step.children, &self.children))
    }
}

/// A node that is to be built.
struct Piece<'a> {
    lid: Lid,
    fences: Fences<'a>,
    content: Content<'a>,
    /// The frame for readers of older versions.
    old: Option<FrameNumber>,
}

enum Content<'a> {
    Pairs(LeafPlan<'a>),
    Children(u8, Vec<Child<'a>>, InteriorPlan),
}

impl Content<'_> {
    fn units(&self) -> usize {
        match self {
            Content::Pairs(plan) => plan.units(),
            Content::Children(_, _, plan) => plan.units(),
        }
    }
}

/// Allocated LIDs. Those that are not used are freed.
struct Reserved<'s> {
    store: &'s OrderedStore,
    claim: Claim,
    lids: Vec<Lid>,
}

impl Reserved<'_> {
    fn lid(&mut self) -> Result<Lid, Attempt> {
        let lid = self.store.space().allocate_lid().ok_or(Attempt::NoMemory(self.claim))?;
        // Until the node is published no frame is moved for this LID.
        self.store.frames.clear(lid);
        self.lids.push(lid);
        Ok(lid)
    }
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        let mut space = self.store.space();
        self.lids.drain(..).for_each(|lid| space.free_lid(lid));
    }
}

/// The node that is replaced in place, its replacement, and all changes below it.
struct Rebuilt<'a, 'g> {
    top: LockedNode<'g>,
    top_piece: Piece<'a>,
    pieces: Vec<Piece<'a>>,
    dead: Vec<LockedNode<'g>>,
}

impl OrderedStore {
    /// Splits a leaf in two by its pairs: in the middle, or after a full left leaf if its log is above all other pairs.
    /// The write that has no room begins again afterwards.
    pub(crate) fn split_leaf<'g>(
        &'g self,
        leaf: LockedNode<'g>,
        key: &[u8],
        claim: Claim,
        guard: &'g Guard<'_>,
        retired: &mut Vec<Garbage>,
    ) -> Attempt {
        let node = leaf.node();
        let Some(path) = self.path(key, node.lid(), guard) else { return Attempt::Conflict };
        let run = Run::of_leaf(path, leaf);
        let fences = run.fences();
        let edits = Edits::of_log(node);
        let terms = Terms { claim, dropped: self.parts_of(&edits.dropped, guard) };
        let mut pieces = Vec::with_capacity(2);
        if edits.are_ascending(node) {
            let pairs = pairs_with(node, &edits.edits);
            let middle = self.most_that_fit(&pairs);
            divide_pairs_at(pairs, middle, fences, self.log_block, &mut pieces);
            return self.replace_run(run, pieces, &terms, guard, retired);
        }
        let halves = Sorted::edited(node, &edits.edits).and_then(|sorted| sorted.halves(node, self.log_block));
        match halves {
            Some(Halves { left, right, separator }) => {
                let piece = |plan, fences| Piece { lid: Lid::ROOT, fences, content: Content::Pairs(plan), old: None };
                pieces.push(piece(left, Fences { high: Some(separator), ..fences }));
                pieces.push(piece(right, Fences { low: Some(separator), ..fences }));
            }
            None => halve_pairs(pairs_with(node, &edits.edits), fences, self.log_block, &mut pieces),
        }
        self.replace_run(run, pieces, &terms, guard, retired)
    }

    /// Returns the largest number of these pairs, except for all of them, that one leaf can have. It is nearly all:
    /// they were in one leaf and its log.
    fn most_that_fit(&self, pairs: &[Item<'_>]) -> usize {
        let fits = |count: &usize| LeafPlan::of_pairs(pairs[..*count].to_vec(), self.log_block).is_ok();
        (1..pairs.len()).rev().find(fits).expect("one pair fits a leaf")
    }

    /// Joins a leaf that a write would leave too small with a neighbour of the same parent, by the pairs of both. The
    /// write begins again afterwards. If both are too large for one leaf, the leaf is replaced as in `plan`, the write
    /// included; `terms` has the values that this drops.
    pub(crate) fn join_leaf<'a, 'g: 'a>(
        &'g self,
        leaf: LockedNode<'g>,
        plan: &LeafPlan<'a>,
        key: &[u8],
        terms: &Terms,
        guard: &'g Guard<'_>,
        retired: &mut Vec<Garbage>,
    ) -> Attempt {
        let Some(mut path) = self.path(key, leaf.node().lid(), guard) else { return Attempt::Conflict };
        let Some(parent) = path.last_mut() else { return self.replace_leaf(leaf, plan, terms, retired) };
        let is_last = parent.index + 1 == parent.children.len();
        let first = if is_last { parent.index - 1 } else { parent.index };
        let neighbour = if is_last { first } else { first + 1 };
        let node = self.latest(parent.children[neighbour].lid, guard);
        let Some(neighbour) = node.try_lock() else { return Attempt::Conflict };
        let of_neighbour = Edits::of_log(node);
        let others = pairs_with(node, &of_neighbour.edits);
        let others = others.as_slice();
        let joined = |pairs: &[Item<'a>]| if is_last { [others, pairs].concat() } else { [pairs, others].concat() };
        let size = LeafPlan::of_pairs(joined(plan.pairs()), self.log_block).map(|plan| plan.size());
        let of_leaf = Edits::of_log(leaf.node());
        let own = pairs_with(leaf.node(), &of_leaf.edits);
        let pairs = joined(&own);
        let fits_one = LeafPlan::of_pairs(pairs.clone(), self.log_block).is_ok();
        // A leaf that the write would leave empty takes pairs of the neighbour in any case. Others are joined only if
        // one leaf can have all pairs: two leaves could be as small again, and the write would join them for ever.
        if !plan.pairs().is_empty() && (!fits_one || size.map_or(true, |size| size > LEAF_SIZE_MERGED_MAX)) {
            return self.replace_leaf(leaf, plan, terms, retired);
        }
        let dropped = [&of_leaf, &of_neighbour].iter().flat_map(|edits| self.parts_of(&edits.dropped, guard)).collect();
        let terms = Terms { claim: terms.claim, dropped };
        let leaves = if is_last { vec![neighbour, leaf] } else { vec![leaf, neighbour] };
        let run = Run { path, children: first..first + 2, leaves };
        let mut pieces = Vec::with_capacity(2);
        if fits_one {
            divide_pairs(pairs, run.fences(), self.log_block, &mut pieces);
        } else {
            // One pair more, so that one is left after the write.
            let middle = if is_last { pairs.len() - own.len() - 1 } else { own.len() + 1 };
            divide_pairs_at(pairs, middle, run.fences(), self.log_block, &mut pieces);
        }
        self.replace_run(run, pieces, &terms, guard, retired)
    }

    /// Replaces a run of leaves by pieces.
    fn replace_run<'a, 'g: 'a>(
        &'g self,
        run: Run<'g>,
        mut pieces: Vec<Piece<'a>>,
        terms: &Terms,
        guard: &'g Guard<'_>,
        retired: &mut Vec<Garbage>,
    ) -> Attempt {
        let (first, last) = (run.leaves[0].node(), run.leaves[run.leaves.len() - 1].node());
        for (index, piece) in pieces.iter_mut().enumerate() {
            // Readers of older versions reach only the leftmost piece, by its left sibling.
            piece.old = Some(if index == 0 { first.number() } else { last.number() });
        }
        let outer = [first.left(), last.right()];
        let mut locked_outer = [None, None];
        for (lid, locked) in outer.iter().zip(&mut locked_outer) {
            if let Some(lid) = lid {
                *locked = self.latest(*lid, guard).try_lock();
                if locked.is_none() {
                    return Attempt::Conflict;
                }
            }
        }
        let mut reserved = Reserved { store: self, claim: terms.claim, lids: Vec::new() };
        let rebuilt = match self.rebuild(run, pieces, &mut reserved, guard) {
            Ok(rebuilt) => rebuilt,
            Err(attempt) => return attempt,
        };
        let wanted: Vec<(Lid, usize)> =
            rebuilt.pieces.iter().chain([&rebuilt.top_piece]).map(|piece| (piece.lid, piece.content.units())).collect();
        let before: Vec<FrameNumber> =
            rebuilt.dead.iter().chain([&rebuilt.top]).map(|node| node.node().number()).collect();
        let Some(frames) = self.allocate_nodes(&wanted, &before, terms.claim) else {
            return Attempt::NoMemory(terms.claim);
        };
        reserved.lids.clear();
        let version = self.commit(rebuilt, frames, outer, &locked_outer, retired);
        self.retire_overflow(&terms.dropped, retired);
        Attempt::Restructured { version }
    }

    /// Builds all pieces and publishes them.
    fn commit(
        &self,
        rebuilt: Rebuilt<'_, '_>,
        frames: Vec<FreeFrame>,
        outer: [Option<Lid>; 2],
        locked_outer: &[Option<LockedNode<'_>>; 2],
        retired: &mut Vec<Garbage>,
    ) -> u64 {
        let Rebuilt { top, top_piece, pieces, dead } = rebuilt;
        let mut frames = frames.into_iter();
        let is_leaf = |piece: &Piece<'_>| matches!(piece.content, Content::Pairs(..));
        let leaf_lids: Vec<Lid> =
            pieces.iter().chain([&top_piece]).filter(|piece| is_leaf(piece)).map(|piece| piece.lid).collect();
        let mut leaf_index = 0_usize;
        let mut build = |piece: &Piece<'_>| {
            let siblings = if is_leaf(piece) {
                let left = leaf_index.checked_sub(1).map_or(outer[0], |left| Some(leaf_lids[left]));
                leaf_index += 1;
                Siblings { left, right: leaf_lids.get(leaf_index).copied().or(outer[1]) }
            } else {
                Siblings::default()
            };
            self.build(piece, frames.next().expect("a frame for each piece"), siblings)
        };
        let sealed: Vec<SealedFrame> = pieces.iter().map(&mut build).collect();
        let sealed_top = build(&top_piece);
        let _abort = AbortOnPanic;
        let version = self.versions.allocate();
        for (piece, frame) in pieces.iter().zip(&sealed) {
            self.frames.set_version(frame, version);
            self.frames.publish(piece.lid, frame);
        }
        // Before the swap, from which on other threads write to the pieces: readers from the siblings find the same
        // leaves as readers from the parent.
        if let Some(left) = &locked_outer[0] {
            left.set_right(leaf_lids.first().copied());
        }
        if let Some(right) = &locked_outer[1] {
            right.set_left(leaf_lids.last().copied());
        }
        self.frames.set_version(&sealed_top, version);
        let old_top = self.frames.replace(top, &sealed_top);
        self.publish_version(version);
        retired.push(Garbage::Frame(old_top));
        for node in dead {
            retired.push(Garbage::Lid(node.node().lid()));
            retired.push(Garbage::Frame(node.into_retired()));
        }
        version
    }

    fn build(&self, piece: &Piece<'_>, frame: FreeFrame, siblings: Siblings) -> SealedFrame {
        let builder = self.frames.build(frame);
        let Fences { low, high } = piece.fences;
        match &piece.content {
            Content::Pairs(plan) => plan.build(builder, piece.lid, Encoding::between(low, high), siblings, piece.old),
            Content::Children(level, children, plan) => {
                let encoding = interior::encoding_of(children, low, high);
                plan.build(builder, piece.lid, *level, &encoding, children, piece.old)
            }
        }
    }

    /// Goes up from a run of children and its pieces to the node that keeps its LID. Locks every node on the path that
    /// changes.
    fn rebuild<'a, 'g: 'a>(
        &'g self,
        run: Run<'g>,
        mut pieces: Vec<Piece<'a>>,
        reserved: &mut Reserved<'_>,
        guard: &'g Guard<'_>,
    ) -> Result<Rebuilt<'a, 'g>, Attempt> {
        let Run { mut path, children: mut run, leaves: mut dead } = run;
        let mut done: Vec<Piece<'a>> = Vec::new();
        let mut level = 0;
        loop {
            level += 1;
            let Some(step) = path.pop() else {
                // The root itself is replaced.
                let top = dead.pop().expect("the root is in the run");
                let mut top_piece = if pieces.len() == 1 {
                    pieces.remove(0)
                } else {
                    name(&mut pieces, reserved)?;
                    let children = children_of(&pieces);
                    let plan = InteriorPlan::new(&children).expect("a few children fit a node");
                    let fences = Fences { low: None, high: None };
                    Piece { lid: Lid::ROOT, fences, content: Content::Children(level, children, plan), old: None }
                };
                done.append(&mut pieces);
                top_piece.old = Some(top.node().number());
                return Ok(Rebuilt { top, top_piece, pieces: done, dead });
            };
            let parent = step.node.try_lock().ok_or(Attempt::Conflict)?;
            let is_root = path.is_empty();
            let count = step.children.len() - run.len() + pieces.len();
            if is_root && count == 1 {
                // One child is left: it becomes the root.
                let mut top_piece = pieces.remove(0);
                (top_piece.lid, top_piece.old) = (Lid::ROOT, Some(step.node.number()));
                return Ok(Rebuilt { top: parent, top_piece, pieces: done, dead });
            }
            name(&mut pieces, reserved)?;
            let mut children: Vec<Child<'a>> = step.children.clone();
            let mut new_children = children_of(&pieces);
            new_children[0].separator = children[run.start].separator;
            let has_shrunk = pieces.len() < run.len();
            children.splice(run.clone(), new_children);
            done.append(&mut pieces);
            let plan = InteriorPlan::new(&children);
            let is_too_small = has_shrunk && !is_root && children.len() < CHILD_COUNT_LOW;
            if let (Some(plan), false) = (&plan, is_too_small) {
                let content = Content::Children(level, children, plan.clone());
                let top_piece =
                    Piece { lid: step.node.lid(), fences: step.fences, content, old: Some(step.node.number()) };
                return Ok(Rebuilt { top: parent, top_piece, pieces: done, dead });
            }
            let mut fences = step.fences;
            let above = path.last();
            run = above.map_or(0..1, |above| above.index..above.index + 1);
            if let (Some(above), true) = (above, plan.is_some()) {
                let is_left = above.index + 1 == above.children.len();
                let neighbour = if is_left { above.index - 1 } else { above.index + 1 };
                let node = self.latest(above.children[neighbour].lid, guard);
                let locked = node.try_lock().ok_or(Attempt::Conflict)?;
                let mut others = interior::children(node);
                if is_left {
                    children[0].separator = above.children[above.index].separator;
                    others.append(&mut children);
                    children = others;
                    run = run.start - 1..run.end;
                } else {
                    others[0].separator = above.children[neighbour].separator;
                    children.append(&mut others);
                    run = run.start..run.end + 1;
                }
                fences = above.fences.of_run(&above.children, &run);
                dead.push(locked);
            }
            dead.push(parent);
            divide_children(level, children, fences, &mut pieces);
        }
    }

    /// Returns the interior nodes from the root to a leaf. Returns `None` if they do not lead there any more.
    fn path<'g>(&'g self, key: &[u8], leaf: Lid, guard: &'g Guard<'_>) -> Option<Vec<Step<'g>>> {
        let mut path = Vec::new();
        let mut fences = Fences { low: None, high: None };
        let found = self.descend(Target::AtOrBelow(key), u64::MAX, guard, |node, child| {
            let children = interior::children(node);
            let index = children.iter().position(|other| other.lid == child.lid).expect("it is a child of the node");
            let below = fences.of_run(&children, &(index..index + 1));
            path.push(Step { node, children, index, fences });
            fences = below;
        });
        (found.lid() == leaf).then_some(path)
    }
}

/// Gives new LIDs to all pieces.
fn name(pieces: &mut [Piece<'_>], reserved: &mut Reserved<'_>) -> Result<(), Attempt> {
    for piece in pieces {
        piece.lid = reserved.lid()?;
    }
    Ok(())
}

fn children_of<'a>(pieces: &[Piece<'a>]) -> Vec<Child<'a>> {
    let child = |(index, piece): (usize, &Piece<'a>)| Child {
        separator: if index == 0 { &[] } else { piece.fences.low.expect("a piece between others has a low fence") },
        lid: piece.lid,
        hint: NO_HINT,
    };
    pieces.iter().enumerate().map(child).collect()
}

/// Divides pairs into leaves of similar size that fit.
fn divide_pairs<'a>(items: Vec<Item<'a>>, fences: Fences<'a>, log_block: LogBlock, pieces: &mut Vec<Piece<'a>>) {
    let items = match LeafPlan::of_pairs(items, log_block) {
        Ok(plan) => return pieces.push(Piece { lid: Lid::ROOT, fences, content: Content::Pairs(plan), old: None }),
        Err(items) => items,
    };
    halve_pairs(items, fences, log_block, pieces);
}

/// Divides at least two pairs into two leaves or more, of similar size.
fn halve_pairs<'a>(items: Vec<Item<'a>>, fences: Fences<'a>, log_block: LogBlock, pieces: &mut Vec<Piece<'a>>) {
    let middle = middle_of(items.iter().map(size_of_pair));
    divide_pairs_at(items, middle, fences, log_block, pieces);
}

/// Divides pairs into the first `middle` ones and the others, each in one leaf or more.
fn divide_pairs_at<'a>(
    items: Vec<Item<'a>>,
    middle: usize,
    fences: Fences<'a>,
    log_block: LogBlock,
    pieces: &mut Vec<Piece<'a>>,
) {
    let mut left = items;
    let right = left.split_off(middle);
    let fence = Some(separator(left[middle - 1].key, right[0].key));
    divide_pairs(left, Fences { high: fence, ..fences }, log_block, pieces);
    divide_pairs(right, Fences { low: fence, ..fences }, log_block, pieces);
}

/// Divides children into interior nodes of similar size that fit.
fn divide_children<'a>(level: u8, children: Vec<Child<'a>>, fences: Fences<'a>, pieces: &mut Vec<Piece<'a>>) {
    if let Some(plan) = InteriorPlan::new(&children) {
        pieces.push(Piece { lid: Lid::ROOT, fences, content: Content::Children(level, children, plan), old: None });
        return;
    }
    let middle = children.len() / 2;
    let mut left = children;
    let mut right = left.split_off(middle);
    let fence = Some(std::mem::take(&mut right[0].separator));
    divide_children(level, left, Fences { high: fence, ..fences }, pieces);
    divide_children(level, right, Fences { low: fence, ..fences }, pieces);
}
