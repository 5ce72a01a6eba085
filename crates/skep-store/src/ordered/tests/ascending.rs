//! Loads in ascending order: leaves are split above their pairs, not in the middle, so that they stay full.

use super::super::leaf::build::LeafPlan;
use super::super::leaf::edit::Edits;
use super::super::leaf::merge::pairs_with;
use super::super::memory::number::Lid;
use super::super::node::interior;
use super::super::{OrderedSettings, OrderedStore, Session};
use skep_core::operation::{PutCondition, Reply};

/// The numbers of pairs of all leaves, from left to right, and how many of the pairs one leaf can hold.
fn pairs_of_leaves(session: &mut Session<'_>) -> (Vec<usize>, usize) {
    let (store, guard) = session.enter();
    let mut node = store.latest(Lid::ROOT, &guard);
    while node.level() > 0 {
        node = store.latest(interior::children(node)[0].lid, &guard);
    }
    let (mut counts, mut first_pairs) = (Vec::new(), Vec::new());
    loop {
        let edits = Edits::of_log(node);
        let pairs = pairs_with(node, &edits.edits);
        counts.push(pairs.len());
        if counts.len() <= 3 {
            first_pairs.extend(pairs);
        }
        let Some(right) = node.right() else { break };
        node = store.latest(right, &guard);
    }
    let fits = |count: &usize| LeafPlan::of_pairs(first_pairs[..*count].to_vec(), store.log_block).is_ok();
    let most = (1..first_pairs.len()).rev().find(fits).expect("three leaves hold more than one can");
    (counts, most)
}

#[test]
fn an_ascending_load_leaves_full_leaves() {
    for (key_size, value_size) in [(8, 8), (16, 16), (16, 100), (32, 400), (200, 20)] {
        let store = OrderedStore::new(&OrderedSettings::new(128 << 20)).unwrap();
        let mut session = store.session().unwrap();
        let value = vec![7; value_size];
        for number in 0..30_000_u64 {
            let mut key = vec![b'k'; key_size - 8];
            key.extend(number.to_be_bytes());
            assert_eq!(session.put(&key, &value, PutCondition::Always), Reply::Done);
        }
        session.check();
        let (counts, most) = pairs_of_leaves(&mut session);
        let full = counts[..counts.len() - 1].iter().sum::<usize>() as f64 / ((counts.len() - 1) * most) as f64;
        println!("{key_size} B keys, {value_size} B values: {} leaves, {full:.3} of {most} pairs", counts.len());
        assert!(full >= 0.9, "{key_size} B keys, {value_size} B values: {full:.3} of {most} pairs");
        assert_eq!(counts.iter().sum::<usize>(), 30_000);
    }
}
