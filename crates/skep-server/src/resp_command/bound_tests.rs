//! Bounds of commands that touch little of a long value, or of a space: they follow the part that is touched.

use skep_core::operation::VALUE_SIZE_MAX;
use skep_wire::resp::{Parsed, RequestParser};

use super::table::CommandName;
use super::{Arguments, Bound, KeySums, Lengths};
use crate::vocabulary::{Extent, Extents, Functions, Space, Spaces};

/// Returns the bound of a command on a value of this length, and on an ordered space of this extent.
fn bound_in(space: Space, line: &str, length: usize, ordered: Extent) -> Bound {
    let mut input = format!("{line}\r\n").into_bytes();
    let mut ranges = Vec::with_capacity(16);
    let parsed = RequestParser::default().parse(&mut input, &mut ranges);
    assert!(matches!(parsed, Ok(Parsed::Complete(_))), "{line}");
    let arguments = Arguments::new(&input, &ranges);
    let spaces = Spaces { has_ordered: true, has_cache: true, shard_count: 2, functions: Functions::leaked() };
    let mut lengths = Lengths::default();
    lengths.learn(1);
    lengths.set(space, b"k", length);
    let name = CommandName::find(arguments.get(0)).unwrap();
    let mut sums = KeySums::default();
    name.add_up_keys(&mut sums, usize::MAX, arguments, space, &mut lengths, spaces);
    name.bound(arguments, space, sums, &mut lengths, &Extents { ordered, ..Extents::unknown(spaces) })
}

#[test]
fn a_range_counts_and_not_the_value() {
    for (line, size) in [
        ("BITCOUNT k 0 9", 10),
        ("BITCOUNT k -10 -1", 10),
        ("BITCOUNT k 1000000 -1", VALUE_SIZE_MAX - 1_000_000),
        ("BITCOUNT k 5 20 BIT", 4),
        ("BITCOUNT k", VALUE_SIZE_MAX),
        ("BITPOS k 1 1048570", 10),
        ("BITPOS k 0 -5 -1 BYTE", 5),
        ("BITPOS k 0 -16 -1 bit", 3),
        ("BITPOS k 0", VALUE_SIZE_MAX),
        ("GETRANGE k -100 -1", 100),
        ("GETRANGE k 1048500 -1", 100),
        ("GETRANGE k 0 -1048500", 100),
        ("SUBSTR k 0 99", 100),
        ("GETRANGE k 0 -1", VALUE_SIZE_MAX),
        ("GETBIT k 7", 1),
    ] {
        for space in [Space::Hash, Space::Ordered, Space::Cache] {
            let Bound { work, reply } = bound_in(space, line, VALUE_SIZE_MAX, Extent::default());
            assert!(work >= size && work <= 4096 + size + size / 4, "{line} in {space:?}: {work} bytes of work");
            let is_range = line.starts_with("GETR") || line.starts_with("SUBSTR");
            assert!(!is_range || reply >= size && reply <= size + 100, "{line} in {space:?}: a reply of {reply} bytes");
        }
    }
}

#[test]
fn a_page_counts_its_pairs() {
    let pairs = 1_000_000;
    let of_values = |value_size_max| Extent { pairs, value_size_max, ..Extent::default() };
    for (line, value_size_max, most) in [
        ("SKEP.SCAN - + LIMIT 1", 469, 8 << 10),
        ("SKEP.SCAN - + LIMIT 10", 469, 40 << 10),
        ("SKEP.PREFIX a LIMIT 10", 469, 40 << 10),
        ("SKEP.FLOOR k", 469, 8 << 10),
        ("SKEP.SCAN - + LIMIT 1", 8188, 24 << 10),
        ("SKEP.SCAN - + LIMIT 1", VALUE_SIZE_MAX, (2 * VALUE_SIZE_MAX) + (8 << 10)),
    ] {
        let Bound { work, reply } = bound_in(Space::Ordered, line, 0, of_values(value_size_max));
        assert!(work <= most, "{line} of values of {value_size_max} bytes: {work} bytes of work");
        assert!(reply >= value_size_max && reply <= most, "{line} of {value_size_max}: a reply of {reply} bytes");
    }
    // Without a limit, a page is as long as it may be. Keys that have expired are passed over.
    assert!(bound_in(Space::Ordered, "SKEP.SCAN - +", 0, of_values(469)).work >= 64 << 10);
    let expired = Extent { expiring: 10_000, ..of_values(469) };
    assert!(bound_in(Space::Ordered, "SKEP.SCAN - + LIMIT 1", 0, expired).work >= 64 << 10);
}
