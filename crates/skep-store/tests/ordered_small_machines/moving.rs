//! Frames that are moved while others read, replace and free them.

use loom::sync::Arc;
use loom::thread;

use super::epoch::{Epochs, Tag};
use super::lock::State;
use super::page_table::PageTable;
use super::sync::{AtomicU32, AtomicU64, Mutex, Ordering};
use super::{Bytes, NEW, OLD, REUSED, control, model};

const THIRD: u32 = 2;
const CONTENT: u64 = 7;

/// A LID whose content is in the first frame, and can be moved to the second: a part of a value, or a node.
struct Movable {
    epochs: Epochs,
    /// The space: which frame can be moved.
    owned: Mutex<Option<u32>>,
    /// Whether anything refers to the LID.
    is_referred_to: AtomicU64,
    table: [AtomicU32; 1],
    states: [AtomicU64; 3],
    frames: [Bytes; 3],
}

impl Movable {
    fn new() -> Arc<Self> {
        let movable = Movable {
            epochs: Epochs::new(3, 0),
            owned: Mutex::new(Some(OLD)),
            is_referred_to: AtomicU64::new(1),
            table: [AtomicU32::new(OLD)],
            states: [(); 3].map(|()| AtomicU64::new(State::NEW.bits())),
            frames: Default::default(),
        };
        movable.frames[OLD as usize].set(CONTENT);
        Arc::new(movable)
    }

    fn table(&self) -> PageTable<'_> {
        PageTable::new(&self.table)
    }

    fn read(&self) {
        let mut participant = self.epochs.join().unwrap();
        let guard = participant.enter();
        if self.is_referred_to.load(Ordering::Acquire) == 1 {
            assert_eq!(self.frames[self.table().frame(0) as usize].get(), CONTENT, "what was moved is the same");
        }
        drop(guard);
    }

    /// Uses a frame again when no operation can reach it: another node is built there.
    fn reuse(&self, frame: u32, tag: &Tag) {
        if self.epochs.is_past(tag) {
            self.frames[frame as usize].set(REUSED);
            self.states[frame as usize].store(State::NEW.bits(), Ordering::Relaxed);
        }
    }

    /// Moves a part: all of it while the space is locked.
    fn move_part(&self, tag: impl Fn(&Self) -> Tag) {
        let mut owned = self.owned.lock();
        if *owned == Some(OLD) {
            self.frames[NEW as usize].set(self.frames[OLD as usize].get());
            self.table().replace(0, NEW);
            *owned = Some(NEW);
            drop(owned);
            self.reuse(OLD, &tag(self));
        }
    }

    /// Drops the reference, and frees the frame that the LID names.
    fn retire_part(&self, is_settled_late: bool) {
        let early = self.table().frame(0);
        self.is_referred_to.store(0, Ordering::Release);
        let frame = if is_settled_late {
            early
        } else {
            let mut owned = self.owned.lock();
            *owned = None;
            self.table().frame(0)
        };
        self.reuse(frame, &self.epochs.tag());
    }

    /// Moves a node, which the space has named before.
    fn move_node(&self, has_guard: bool) {
        let mut participant = self.epochs.join().unwrap();
        let guard = has_guard.then(|| participant.enter());
        let is_owned = *self.owned.lock() == Some(OLD);
        if is_owned && self.table().frame(0) == OLD {
            let state = &self.states[OLD as usize];
            if State::try_lock(state, State::load(state)) {
                let content = self.frames[OLD as usize].get();
                assert_eq!(content, CONTENT, "what is locked is the node");
                self.frames[NEW as usize].set(content);
                self.table().replace(0, NEW);
                *self.owned.lock() = None;
                drop(guard);
                self.reuse(OLD, &self.epochs.tag());
            }
        }
    }

    /// Replaces a node by what a merge makes of it.
    fn merge_node(&self) {
        let mut participant = self.epochs.join().unwrap();
        let guard = participant.enter();
        let frame = self.table().frame(0);
        let state = &self.states[frame as usize];
        if State::try_lock(state, State::load(state)) {
            *self.owned.lock() = None;
            self.frames[THIRD as usize].set(self.frames[frame as usize].get());
            self.table().replace(0, THIRD);
            drop(guard);
            self.reuse(frame, &self.epochs.tag());
        }
    }

    /// Runs these side by side.
    fn run(works: [fn(&Self); 2], here: fn(&Self)) {
        let movable = Movable::new();
        let threads = works.map(|work| {
            let movable = movable.clone();
            thread::spawn(move || work(&movable))
        });
        here(&movable);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    }
}

#[test]
fn a_part_is_moved_while_it_is_read_and_dropped() {
    model(|| {
        Movable::run([Movable::read, |part| part.move_part(|part| part.epochs.tag())], |part| part.retire_part(false));
    });
}

#[test]
fn control_a_part_whose_old_frame_is_used_again_at_once() {
    control(|| Movable::run([Movable::read, |part| part.move_part(|_| Tag::default())], |_| ()));
}

#[test]
fn control_a_part_that_is_dropped_without_a_word_to_the_space() {
    control(|| Movable::run([|_| (), |part| part.move_part(|part| part.epochs.tag())], |part| part.retire_part(true)));
}

#[test]
fn a_node_is_moved_while_it_is_read() {
    model(|| Movable::run([Movable::read, |node| node.move_node(true)], |_| ()));
}

#[test]
fn a_node_is_moved_while_it_is_merged() {
    model(|| Movable::run([|_| (), |node| node.move_node(true)], Movable::merge_node));
}

#[test]
fn control_a_node_that_is_moved_by_no_operation() {
    control(|| Movable::run([|_| (), |node| node.move_node(false)], Movable::merge_node));
}
