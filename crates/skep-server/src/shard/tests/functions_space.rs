//! Frames on the functions of users spend the work of what they look at, not only that of their replies.

use skep_core::operation::{Operation, PutCondition, Request};
use skep_wire::native::{FUNCTIONS_SPACE, RequestFrameWriter};

use super::Bench;
use crate::limits::{OPERATION_WORK, TURN_PART_OF_CONNECTION, TURN_WORK};
use crate::settings::ServerSettings;

/// Returns the turns that a frame of this operation, as often as `count`, takes until it has its replies.
fn turns(operation: Operation<'_>, count: u16, reply_size: usize) -> usize {
    let mut bench = Bench::new(1, &ServerSettings::default());
    let mut client = bench.native(0);
    let mut bytes = Vec::new();
    let mut writer = RequestFrameWriter::new(&mut bytes, 1, FUNCTIONS_SPACE);
    // After the first one, the frame has neither key sizes nor values.
    assert!((0..count).all(|_| writer.push(&Request { key: b"*", operation })));
    writer.finish();
    bench.send(&mut client, &bytes);
    bench.turns_until(&mut client, usize::from(count) * (12 + reply_size), 10_000)
}

#[test]
fn a_short_frame_does_not_keep_a_turn_for_long() {
    let part = TURN_WORK / TURN_PART_OF_CONNECTION;
    let contained = turns(Operation::Contains, 60_000, 1);
    assert!(contained >= 60_000 * OPERATION_WORK / part - 1, "{contained} turns");

    // Not UTF-8 at its end.
    let value = [&[b'a'; 60_000][..], &[0xff]].concat();
    let put = Operation::Put { value: &value, condition: PutCondition::Always };
    let reply = 1 + 4 + 1 + "the source is not UTF-8 text".len();
    let looked_at = turns(put, 1000, reply);
    assert!(looked_at >= 1000 * value.len() / (part + value.len()) - 1, "{looked_at} turns");

    // A value that is too long is not looked at.
    let value = vec![0xff; 1 << 20];
    let put = Operation::Put { value: &value, condition: PutCondition::Always };
    let reply = 1
        + 4
        + 1
        + "line 1, column 1: the source has 1048576 bytes, more than 65536: divide it into several modules".len();
    let too_long = turns(put, 1000, reply);
    assert!(too_long < 10, "{too_long} turns");
}
