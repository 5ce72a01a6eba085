//! Fuzzes the bytes of a group in a segment of the log.
//!
//! Looks for five faults:
//! 1. a panic
//! 2. a group that is larger than its bytes
//! 3. a number of operations that differs from the count of its block
//! 4. versions of a section that decrease
//! 5. an effect that is handed out although the floor is not above its version

use skep_log::{EffectOrder, Group, Section, set_group_checksums};

/// Runs the target: on the bytes, and on the same with valid checksums.
pub fn run(input: &[u8]) {
    check(input);
    let mut bytes = input.to_vec();
    set_group_checksums(&mut bytes);
    check(&bytes);
}

fn check(bytes: &[u8]) {
    let Some(group) = Group::decode(bytes) else { return };
    assert!(group.size <= bytes.len());
    let mut order = EffectOrder::default();
    for block in group.blocks() {
        let mut count = 0;
        for section in block.sections() {
            count += section.count();
            match section {
                Section::Operations { operations, .. } => operations.for_each(drop),
                Section::Flush { .. } => {}
                Section::Effects { effects, .. } => {
                    let expected = effects.len();
                    let effects: Vec<_> = effects.collect();
                    assert_eq!(effects.len(), expected);
                    assert!(effects.iter().flatten().is_sorted_by_key(|(version, _)| *version));
                }
            }
        }
        assert_eq!(count, block.count as usize);
        _ = order.read(&block, |_, version, _| assert!(version < block.floor));
    }
}
