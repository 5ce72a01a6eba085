//! Child hints: with any hints reads find the right nodes, and readers repair stale hints.

use super::super::key_head::Target;
use super::super::memory::number::{FrameNumber, Lid};
use super::super::node::interior;
use super::super::node::shortcut::Shortcuts;
use super::super::{OrderedSettings, OrderedStore, Session};
use skep_core::operation::{PutCondition, Reply};

const PAIR_COUNT: u64 = 60_000;

fn key(number: u64) -> [u8; 8] {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()
}

fn put_all(session: &mut Session<'_>, round: u64) {
    for number in 0..PAIR_COUNT {
        assert_eq!(session.put(&key(number), &(number + round).to_le_bytes(), PutCondition::Always), Reply::Done);
    }
}

fn get_all(session: &mut Session<'_>, round: u64) {
    let mut value = Vec::new();
    for number in 0..PAIR_COUNT {
        value.clear();
        assert!(session.get(&key(number), &mut value));
        assert_eq!(value, (number + round).to_le_bytes());
    }
}

fn get_all_in_batches(session: &mut Session<'_>, round: u64) {
    let keys: Vec<[u8; 8]> = (0..PAIR_COUNT).map(key).collect();
    let keys: Vec<&[u8]> = keys.iter().map(<[u8; 8]>::as_slice).collect();
    let mut number = 0;
    session.get_batch(&keys, |value| {
        assert_eq!(value, Some(&(number + round).to_le_bytes()[..]));
        number += 1;
    });
}

/// Counts the right hints and the stale ones. If `invalid` is given, sets all hints to it.
fn hints(session: &mut Session<'_>, invalid: Option<FrameNumber>) -> (usize, usize) {
    let (store, guard) = session.enter();
    let (mut right, mut wrong) = (0, 0);
    let mut nodes = vec![(store.latest(Lid::ROOT, &guard), &[][..])];
    while let Some((node, low_fence)) = nodes.pop() {
        if node.level() == 0 {
            continue;
        }
        for child in interior::children(node) {
            let low_fence = if child.separator.is_empty() { low_fence } else { child.separator };
            let target = Target::AtOrBelow(low_fence);
            let position = interior::find_in_segment(node, Shortcuts::open(node).find(target), target);
            assert_eq!(position.lid, child.lid);
            let node = store.latest(child.lid, &guard);
            if position.hint.guess() == node.number().bits() {
                right += 1;
            } else {
                wrong += 1;
            }
            if let Some(number) = invalid {
                position.hint.repair(number);
            }
            nodes.push((node, low_fence));
        }
    }
    (right, wrong)
}

#[test]
fn hints_are_repaired_and_only_prefetch() {
    let store = OrderedStore::new(&OrderedSettings::new(64 << 20)).unwrap();
    let mut session = store.session().unwrap();
    let session = &mut session;
    let frame_of_root = {
        let (store, guard) = session.enter();
        store.latest(Lid::ROOT, &guard).number()
    };
    let missing_frame = FrameNumber::from_bits(std::num::NonZeroU32::MAX);
    put_all(session, 0);
    get_all(session, 0);
    let (all, wrong) = hints(session, Some(frame_of_root));
    assert!(all > 200 && wrong == 0, "{all} hints are right, {wrong} wrong");
    get_all(session, 0);
    assert_eq!(hints(session, Some(missing_frame)), (all, 0), "gets repair");
    get_all_in_batches(session, 0);
    assert_eq!(hints(session, Some(missing_frame)), (all, 0), "batches repair");
    put_all(session, 1);
    let (right, wrong) = hints(session, None);
    assert!(
        right > wrong,
        "writes repair during the descent and leave another frame: {right} are right, {wrong} wrong"
    );
    get_all_in_batches(session, 1);
    assert_eq!(hints(session, None).1, 0);
    session.check();
}
