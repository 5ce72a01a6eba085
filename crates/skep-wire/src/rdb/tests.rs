//! Files that are written here, byte by byte, and then cut off and changed.

use super::{Entry, Kind, RdbError, RdbReader};
use skep_core::operation::{KEY_SIZE_MAX, VALUE_SIZE_MAX};

use crc_fast::{CrcAlgorithm, checksum};

/// A copy of an entry.
#[derive(Clone, Debug, PartialEq)]
enum Owned {
    String(u64, Vec<u8>, Vec<u8>, Option<i64>),
    OutOfBounds(u64, u64),
    Other(Kind),
}

/// Reads a file to its end.
fn read(bytes: &[u8]) -> Result<Vec<Owned>, RdbError> {
    let mut reader = RdbReader::new(bytes)?;
    let mut entries = Vec::new();
    while let Some(entry) = reader.next_entry()? {
        entries.push(match entry {
            Entry::String { database, key, value, expiry } => {
                Owned::String(database, key.to_vec(), value.to_vec(), expiry)
            }
            Entry::OutOfBounds { key, key_size, value_size, .. } => {
                assert_eq!(key.len() as u64, if key_size > KEY_SIZE_MAX as u64 { 0 } else { key_size });
                Owned::OutOfBounds(key_size, value_size)
            }
            Entry::Other(kind) => Owned::Other(kind),
        });
    }
    assert_eq!(reader.next_entry().unwrap(), None, "the end stays the end");
    Ok(entries)
}

/// Returns a file with these records and a valid checksum.
fn file(header: &str, records: &[&[u8]]) -> Vec<u8> {
    let mut bytes = header.as_bytes().to_vec();
    bytes.extend(records.concat());
    bytes.push(255);
    let sum = checksum(CrcAlgorithm::Crc64Redis, &bytes);
    bytes.extend(sum.to_le_bytes());
    bytes
}

fn pair(key: &str, value: &str) -> Owned {
    Owned::String(0, key.into(), value.into(), None)
}

/// Returns a file with one record of each kind that Redis 7 writes and its length forms.
fn all_kinds() -> Vec<u8> {
    let expiry = [&[252][..], &1_900_000_000_123_i64.to_le_bytes()].concat();
    let seconds = [&[253][..], &1_900_000_000_i32.to_le_bytes()].concat();
    let double = 1.5f64.to_le_bytes();
    file(
        "REDIS0011",
        &[
            b"\xfa\x09redis-ver\x057.2.0",
            b"\xfa\x04bits\xc0\x40",
            b"\xf5\x0cfunction lib",
            b"\xf7\x41\x07\x02\x01\x05\x02ab\x00",
            b"\xfe\x00\xfb\x0a\x02",
            b"\x00\x01a\x01b",
            &expiry,
            b"\xf9\x05\x00\x01c\xc0\xff",
            &seconds,
            b"\xf8\x40\x64\x00\x01d\xc1\x00\x80",
            b"\x00\x01e\xc2\x00\x00\x00\x80",
            b"\x00\x01f\xc3\x05\x14\x00a\xe0\x0a\x00",
            b"\x00\x01g\x40\x03abc\x00\x01h\x80\x00\x00\x00\x01x\x00\x01i\x81\0\0\0\0\0\0\0\x01y",
            b"\x01\x01k\x02\x01a\xc0\x01",
            b"\x02\x01k\x01\x01a",
            b"\x03\x01k\x03\x01a\x03 12\x01b\xfd\x01c\xff",
            b"\x04\x01k\x01\x01f\x01v",
            b"\x05\x01k\x01\x01a",
            &double,
            b"\x0b\x01k\x02ab\x10\x01k\x02ab\x11\x01k\x02ab\x14\x01k\x02ab",
            b"\x12\x01k\x02\x01\x01a\x02\x01b",
            b"\x07\x01k\x41\x07\x01\x02\x02\x03\x03abcd\x04abcdefgh\x05\x01s\x00",
            b"\x15\x01k\x01\x01i\x01l\x01\x05\x06\x05\x06\x00\x00\x01",
            b"\x01\x01g\x05\x06\x01",
            b"\x01aaaaaaaaaaaaaaaabbbbbbbb\x01",
            b"\x01\x01cttttttttuuuuuuuu\x01aaaaaaaaaaaaaaaa",
            b"\xfe\x02\xf4\x01\x02\x03\x00\x01z\x00",
        ],
    )
}

#[test]
fn all_encodings_of_strings_are_read_and_other_kinds_are_passed_over() {
    let entries = read(&all_kinds()).unwrap();
    let with_expiry =
        |key: &str, value: &str, expiry| Owned::String(0, key.as_bytes().to_vec(), value.as_bytes().to_vec(), expiry);
    let expected = [
        Owned::Other(Kind::Functions),
        pair("a", "b"),
        with_expiry("c", "-1", Some(1_900_000_000_123)),
        with_expiry("d", "-32768", Some(1_900_000_000_000)),
        pair("e", "-2147483648"),
        pair("f", "aaaaaaaaaaaaaaaaaaaa"),
        pair("g", "abc"),
        pair("h", "x"),
        pair("i", "y"),
        Owned::Other(Kind::List),
        Owned::Other(Kind::Set),
        Owned::Other(Kind::SortedSet),
        Owned::Other(Kind::Hash),
        Owned::Other(Kind::SortedSet),
        Owned::Other(Kind::Set),
        Owned::Other(Kind::Hash),
        Owned::Other(Kind::SortedSet),
        Owned::Other(Kind::Set),
        Owned::Other(Kind::List),
        Owned::Other(Kind::Module),
        Owned::Other(Kind::Stream),
        Owned::String(2, b"z".to_vec(), Vec::new(), None),
    ];
    assert_eq!(entries, expected);
}

#[test]
fn a_file_that_is_cut_off_is_refused_at_every_byte() {
    let bytes = all_kinds();
    for size in 0..bytes.len() {
        match read(&bytes[..size]) {
            Err(RdbError::NotRdb) => assert!(size < 9),
            Err(RdbError::Truncated { offset }) => assert_eq!(offset, size as u64),
            other => panic!("{size} bytes: {other:?}"),
        }
    }
}

#[test]
fn a_file_with_a_changed_bit_is_refused() {
    let bytes = all_kinds();
    let mut checksum_count = 0;
    for bit in 0..bytes.len() * 8 {
        let mut changed = bytes.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        let error = read(&changed).expect_err("a bit was changed");
        assert!(!error.to_string().is_empty());
        checksum_count += usize::from(matches!(error, RdbError::Checksum { .. }));
    }
    assert!(checksum_count > bytes.len(), "only {checksum_count} changes were found by the checksum");
}

#[test]
fn a_file_may_lack_a_checksum() {
    let mut bytes = file("REDIS0009", &[b"\x00\x01a\x01b"]);
    let end = bytes.len();
    bytes[end - 8..].fill(0);
    assert_eq!(read(&bytes).unwrap(), [pair("a", "b")]);
    // Before version 5, nothing follows the end.
    assert_eq!(read(b"REDIS0004\xfe\x00\x00\x01a\x01b\xff").unwrap(), [pair("a", "b")]);
    assert!(matches!(read(b"REDIS0004\xff\x00"), Err(RdbError::Damaged { offset: 10, .. })));
    // What follows a checksum is ignored, as Redis does.
    bytes.extend([b'f'; 40]);
    assert_eq!(read(&bytes).unwrap(), [pair("a", "b")]);
    let padded = [&file("REDIS0009", &[b"\x00\x01a\x01b"])[..], &[0; 4096]].concat();
    assert_eq!(read(&padded).unwrap(), [pair("a", "b")]);
}

#[test]
fn every_version_is_read_and_unknown_types_are_named() {
    for header in ["REDIS0005", "REDIS0012", "REDIS0013", "REDIS0015", "REDIS0099", "VALKEY080", "VALKEY081"] {
        assert_eq!(read(&file(header, &[b"\x00\x01a\x01b"])).unwrap_or_default().len(), 1, "{header}");
    }
    for header in ["", "REDIS", "redis0011", "REDIS001x", "VALKEY0xx", "*2\r\n$6\r\nSELECT"] {
        assert!(matches!(RdbReader::new(header.as_bytes()), Err(RdbError::NotRdb)), "{header:?}");
    }
    // The same number has another meaning in the other program.
    let field = b"\x16\x01k\x01\x01f\x01vtttttttt";
    assert_eq!(read(&file("VALKEY080", &[field])).unwrap(), [Owned::Other(Kind::Hash)]);
    // In the release candidates of Redis 7.4, the time is before the field.
    let old = b"\x16\x01k\x01\x05\x01f\x01v\x17\x01k\x01l";
    assert_eq!(read(&file("REDIS0012", &[old])).unwrap(), [Owned::Other(Kind::Hash), Owned::Other(Kind::Hash)]);
    let functions = b"\xf6\x03lib\x03LUA\x00\x04code\xf6\x03lib\x03LUA\x01\x04text\x04code";
    let kinds = [Owned::Other(Kind::Functions), Owned::Other(Kind::Functions)];
    assert_eq!(read(&file("REDIS0010", &[functions])).unwrap(), kinds);
    let hint = b"\x6b\x40\x43\x00\x01a\x01b";
    assert_eq!(read(&file("REDIS0012", &[hint])).unwrap(), [pair("a", "b")]);
    let metadata = b"\xf3\x01cccc\x02\x07\x05\x01s\x00\x00\x01a\x01b";
    assert_eq!(read(&file("REDIS0013", &[metadata])).unwrap(), [pair("a", "b")]);
    let field = b"\x18\x01kmmmmmmmm\x01\x05\x01f\x01v\x19\x01kmmmmmmmm\x01l";
    assert_eq!(read(&file("REDIS0012", &[field])).unwrap(), [Owned::Other(Kind::Hash), Owned::Other(Kind::Hash)]);
    assert!(matches!(read(&file("VALKEY080", &[field])), Err(RdbError::UnknownType { number: 24, .. })));
    for (record, text) in [
        (
            &b"\x1a\x03new\x01x"[..],
            "the record at byte 9 of key `new` has the unknown type 26: the file has version 16 of",
        ),
        (b"\xf2\x03new", "the record at byte 9 has the unknown type 242"),
    ] {
        let error = read(&file("REDIS0016", &[record])).expect_err("it is not known").to_string();
        assert!(error.starts_with(text), "{error}");
    }
    let slots = b"\xf3\x03job\x02\x00\x05\x07\x40\xff";
    assert_eq!(read(&file("VALKEY080", &[slots, b"\x00\x01a\x01b"])).unwrap(), [pair("a", "b")]);
}

#[test]
fn strings_that_no_store_accepts_are_told_apart() {
    let string = |size: usize| [&[0x80][..], &(size as u32).to_be_bytes(), &vec![b'x'; size]].concat();
    let record = |key: usize, value: usize| [&[0][..], &string(key), &string(value)].concat();
    for (key, value, is_accepted) in [
        (1, 0, true),
        (KEY_SIZE_MAX, VALUE_SIZE_MAX, true),
        (0, 1, false),
        (KEY_SIZE_MAX + 1, 1, false),
        (1, VALUE_SIZE_MAX + 1, false),
    ] {
        let entries = read(&file("REDIS0011", &[&record(key, value), b"\x00\x01a\x01b"])).unwrap();
        let found = match &entries[0] {
            Owned::String(_, found_key, found_value, _) => (found_key.len(), found_value.len(), true),
            Owned::OutOfBounds(key_size, value_size) => (*key_size as usize, *value_size as usize, false),
            Owned::Other(_) => panic!("it is a string"),
        };
        assert_eq!(found, (key, value, is_accepted));
        assert_eq!(entries[1], pair("a", "b"));
    }
}

#[test]
fn a_size_that_is_wrong_costs_no_memory() {
    // All of these name more bytes or elements than the file has.
    for record in [
        &b"\x00\x81\xff\xff\xff\xff\xff\xff\xff\xff"[..],
        b"\x00\x01a\x80\xff\xff\xff\xff",
        b"\x00\x01a\xc3\x80\x00\x10\x00\x00\x80\x00\x10\x00\x00",
        b"\x00\x01a\xc3\x81\xff\xff\xff\xff\xff\xff\xff\xff\x81\xff\xff\xff\xff\xff\xff\xff\xff",
        b"\x01\x01a\x81\xff\xff\xff\xff\xff\xff\xff\xff",
        b"\x15\x01a\x81\xff\xff\xff\xff\xff\xff\xff\xff",
    ] {
        let found = read(&[b"REDIS0011", record, b"some bytes"].concat());
        assert!(matches!(found, Err(RdbError::Truncated { .. } | RdbError::Damaged { .. })), "{found:?}");
    }
    let found = read(b"REDIS0011\x00\x01a\xc3\x05\x04");
    assert!(matches!(found, Err(RdbError::Damaged { offset: 15, .. })), "{found:?}");
}
