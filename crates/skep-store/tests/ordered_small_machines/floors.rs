//! The floors of blocks: two sessions write, seal and queue their blocks. All effects below a floor are in the queue when its
//! block is, and at the end a floor is above all versions.

use loom::sync::Arc;
use loom::thread;

use super::sync::Mutex;
use super::version::floors::Floors;
use super::version::versions::Versions;
use super::{control, model_with};

/// A block: its effects and its floor.
struct Block {
    effects: Vec<u64>,
    floor: u64,
}

struct Store {
    versions: Versions,
    floors: Floors,
    queue: Mutex<Vec<Block>>,
}

impl Store {
    fn write(&self) -> u64 {
        let version = self.versions.allocate();
        self.versions.publish(version);
        version
    }

    fn queue(&self, slot: usize, effects: Vec<u64>) {
        let floor = self.floors.floor(slot, &self.versions);
        self.queue.lock().push(Block { effects, floor });
    }

    /// Writes, and seals the effects as a block.
    fn batch(&self, slot: usize) {
        self.floors.open(slot, &self.versions);
        let effects = vec![self.write()];
        self.floors.begin_seal(slot);
        self.queue(slot, effects);
        if self.floors.close(slot) {
            self.queue(slot, Vec::new());
        }
    }

    fn check(&self) {
        let queue = self.queue.lock();
        for count in 1..=queue.len() {
            let floor = queue[..count].iter().map(|block| block.floor).max().unwrap();
            let later = queue[count..].iter().flat_map(|block| &block.effects).min();
            assert!(later.is_none_or(|version| *version >= floor), "an effect below a floor comes after it");
        }
        let floor = queue.iter().map(|block| block.floor).max().unwrap();
        assert!(floor > self.versions.read(), "no floor is above the last version");
    }
}

/// Runs the batches of two sessions, of which the second one has two.
fn two_sessions(batch: impl Fn(&Store, usize) + Copy + Send + Sync + 'static) {
    let store = Store { versions: Versions::new(4), floors: Floors::new(2), queue: Mutex::new(Vec::new()) };
    assert!((0..2).all(|slot| store.floors.join(slot)));
    let store = Arc::new(store);
    let other = store.clone();
    let other = thread::spawn(move || batch(&other, 0));
    batch(&store, 1);
    batch(&store, 1);
    other.join().unwrap();
    store.check();
}

#[test]
fn all_effects_below_a_floor_are_in_the_queue() {
    // Three preemptions take five minutes and find no more.
    model_with(2, || two_sessions(Store::batch));
}

#[test]
fn control_a_slot_opened_after_the_write() {
    control(|| {
        two_sessions(|store, slot| {
            let effects = vec![store.write()];
            store.floors.open(slot, &store.versions);
            store.queue(slot, effects);
            if store.floors.close(slot) {
                store.queue(slot, Vec::new());
            }
        });
    });
}

#[test]
fn control_a_slot_closed_before_its_block_is_queued() {
    control(|| {
        two_sessions(|store, slot| {
            store.floors.open(slot, &store.versions);
            let effects = vec![store.write()];
            store.floors.begin_seal(slot);
            let is_marked = store.floors.close(slot);
            store.queue(slot, effects);
            if is_marked {
                store.queue(slot, Vec::new());
            }
        });
    });
}

#[test]
fn control_a_mark_that_is_ignored() {
    control(|| {
        two_sessions(|store, slot| {
            store.floors.open(slot, &store.versions);
            let effects = vec![store.write()];
            store.floors.begin_seal(slot);
            store.queue(slot, effects);
            store.floors.close(slot);
        });
    });
}
