//! Bits of a value: counts, searches and fields, as Redis's `BITCOUNT`, `BITPOS` and `BITFIELD` have them.
//!
//! Bit 0 is the highest bit of the first byte. A field is a run of up to 64 bits, the most significant first:
//!
//! ```text
//! byte   0                1
//! bit    0 1 2 3 4 5 6 7  8 9 …
//!              └─ u8 at 3 ─┘
//! ```
//!
//! A list of fields is bytes, so that requests need no memory of their own. Each takes 20 bytes:
//!
//! ```text
//! | kind | bits, bit 7: signed | overflow | 0 | offset, u64 | operand, i64 |
//! ```

use std::ops::Range;

/// A part of a value, in bytes or bits. Negative positions count from the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BitRange {
    /// The first byte or bit.
    pub start: i64,
    /// The last one; without it, the range ends with the value.
    pub end: Option<i64>,
    /// Selects positions in bits if true, else in bytes.
    pub in_bits: bool,
}

impl BitRange {
    /// The whole value.
    pub const ALL: BitRange = BitRange { start: 0, end: None, in_bits: false };

    /// Returns the bits of the range, in a value of `size` bytes.
    pub fn bits(self, size: usize) -> Range<usize> {
        let total = if self.in_bits { size * 8 } else { size } as i64;
        let from_start = |position: i64| if position < 0 { position.saturating_add(total).max(0) } else { position };
        let start = from_start(self.start);
        let last = from_start(self.end.unwrap_or(-1)).min(total - 1);
        if start > last {
            return 0..0;
        }
        let unit = if self.in_bits { 1 } else { 8 };
        start as usize * unit..(last as usize + 1) * unit
    }

    /// Returns the bits that a count counts: as [`BitRange::bits`], but none if both ends are negative and in the wrong order.
    pub fn counted_bits(self, size: usize) -> Range<usize> {
        match self.end {
            Some(end) if self.start < 0 && end < 0 && self.start > end => 0..0,
            _ => self.bits(size),
        }
    }

    /// Returns the position of a bit with this value that no search of the range has found: that of the zeros after the value,
    /// if the range is not empty and is not ended by the request.
    pub fn beyond(self, bit: bool, size: usize) -> Option<usize> {
        let bits = self.bits(size);
        (!bit && !bits.is_empty() && self.end.is_none()).then_some(bits.end)
    }
}

/// Returns the number of bits in a range that are 1.
pub fn count_bits(bytes: &[u8], range: Range<usize>) -> usize {
    if range.is_empty() {
        return 0;
    }
    let bytes = &bytes[range.start / 8..range.end.div_ceil(8)];
    let before = if !range.start.is_multiple_of(8) { bytes[0] >> (8 - range.start % 8) } else { 0 };
    let after = if !range.end.is_multiple_of(8) { bytes[bytes.len() - 1] << (range.end % 8) } else { 0 };
    count_ones(bytes) - before.count_ones() as usize - after.count_ones() as usize
}

/// Words whose counts are added before the bytes of their sum are: they are at most 8 each.
const WORDS_TOGETHER: usize = 16;

/// Returns the number of bits that are 1. The words of a group are counted in parallel, eight bytes of sums in each: without
/// a multiplication in the loop, the compiler counts several words at once on every machine.
fn count_ones(bytes: &[u8]) -> usize {
    let (groups, rest) = bytes.as_chunks::<{ WORDS_TOGETHER * 8 }>();
    let of_group = |group: &[u8; WORDS_TOGETHER * 8]| {
        let sums: u64 = group.as_chunks::<8>().0.iter().map(|word| ones_of_bytes(u64::from_ne_bytes(*word))).sum();
        let (even, odd) = (sums & 0x00ff_00ff_00ff_00ff, sums >> 8 & 0x00ff_00ff_00ff_00ff);
        ((even + odd).wrapping_mul(0x0001_0001_0001_0001) >> 48) as usize
    };
    let of_rest: usize = rest.iter().map(|byte| byte.count_ones() as usize).sum();
    groups.iter().map(of_group).sum::<usize>() + of_rest
}

/// Returns the number of bits that are 1 of each byte, in that byte.
fn ones_of_bytes(word: u64) -> u64 {
    let pairs = word - (word >> 1 & 0x5555_5555_5555_5555);
    let nibbles = (pairs & 0x3333_3333_3333_3333) + (pairs >> 2 & 0x3333_3333_3333_3333);
    (nibbles + (nibbles >> 4)) & 0x0f0f_0f0f_0f0f_0f0f
}

/// Bytes that a search for a bit compares at once.
const BYTES_TOGETHER: usize = 64;

/// Returns the position of the first bit in a range that has this value.
pub fn find_bit(bytes: &[u8], range: Range<usize>, bit: bool) -> Option<usize> {
    if range.is_empty() {
        return None;
    }
    let skipped = if bit { 0x00 } else { 0xff };
    let (first, end) = (range.start / 8, range.end.div_ceil(8));
    // The bits before the range are set to the value that is skipped.
    let begin = (bytes[first] ^ skipped) & 0xff >> (range.start % 8);
    let found = |at: usize, differing: u8| {
        let position = at * 8 + differing.leading_zeros() as usize;
        (position < range.end).then_some(position)
    };
    if begin != 0 {
        return found(first, begin);
    }
    let rest = &bytes[first + 1..end];
    let groups = rest.as_chunks::<BYTES_TOGETHER>().0;
    let whole = groups.iter().take_while(|group| **group == [skipped; BYTES_TOGETHER]).count() * BYTES_TOGETHER;
    let at = whole + rest[whole..].iter().position(|byte| *byte != skipped)?;
    found(first + 1 + at, rest[at] ^ skipped)
}

/// A field of bits and what is done with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BitField {
    /// Returns it.
    Get(FieldPosition),
    /// Stores a number, and returns the one before.
    Set(FieldPosition, Overflow, i64),
    /// Adds a number, and returns the sum.
    Add(FieldPosition, Overflow, i64),
}

/// The position and type of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldPosition {
    /// Its first bit.
    pub offset: u64,
    /// Its bits: 1 to 64, or 63 if it is not signed.
    pub bits: u8,
    /// True if it is in two's complement.
    pub is_signed: bool,
}

/// What happens to a number that does not fit its field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Overflow {
    /// Its lowest bits are stored.
    Wrap,
    /// The largest or smallest number is stored.
    Saturate,
    /// Nothing is stored.
    Fail,
}

/// A list of fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BitFields<'a> {
    bytes: &'a [u8],
}

/// Bytes of a field in the list.
const FIELD_SIZE: usize = 20;
/// Bytes of the reply to a field.
const REPLY_SIZE: usize = 9;
/// Bit of the byte `bits` that marks a signed field.
const SIGNED: u8 = 0x80;

impl BitField {
    /// Appends the field to a list.
    pub fn append_to(self, list: &mut Vec<u8>) {
        let (kind, position, overflow, operand) = match self {
            BitField::Get(position) => (0, position, Overflow::Wrap, 0),
            BitField::Set(position, overflow, number) => (1, position, overflow, number),
            BitField::Add(position, overflow, number) => (2, position, overflow, number),
        };
        let sign = if position.is_signed { SIGNED } else { 0 };
        list.extend_from_slice(&[kind, position.bits | sign, overflow as u8, 0]);
        list.extend_from_slice(&position.offset.to_le_bytes());
        list.extend_from_slice(&operand.to_le_bytes());
    }

    /// Decodes a field, if it is valid.
    fn decode(bytes: &[u8]) -> Option<BitField> {
        let [kind, bits, overflow, 0] = *bytes.first_chunk()? else { return None };
        let position = FieldPosition {
            offset: u64::from_le_bytes(*bytes.get(4..)?.first_chunk()?),
            bits: bits & !SIGNED,
            is_signed: bits & SIGNED != 0,
        };
        let operand = i64::from_le_bytes(*bytes.get(12..)?.first_chunk()?);
        let overflow = [Overflow::Wrap, Overflow::Saturate, Overflow::Fail].get(usize::from(overflow)).copied()?;
        let bits_max = if position.is_signed { 64 } else { 63 };
        if !(1..=bits_max).contains(&position.bits) || position.offset > u64::from(u32::MAX) * 8 {
            return None;
        }
        match kind {
            0 => Some(BitField::Get(position)),
            1 => Some(BitField::Set(position, overflow, operand)),
            2 => Some(BitField::Add(position, overflow, operand)),
            _ => None,
        }
    }

    /// Returns its position.
    pub fn position(self) -> FieldPosition {
        match self {
            BitField::Get(position) | BitField::Set(position, ..) | BitField::Add(position, ..) => position,
        }
    }
}

impl<'a> BitFields<'a> {
    /// Returns the list with these bytes.
    pub fn new(bytes: &'a [u8]) -> Self {
        BitFields { bytes }
    }

    /// Returns its bytes.
    pub fn bytes(self) -> &'a [u8] {
        self.bytes
    }

    /// Returns true if it is not empty and all its fields are valid.
    pub fn are_valid(self) -> bool {
        !self.bytes.is_empty()
            && self.bytes.len().is_multiple_of(FIELD_SIZE)
            && self.bytes.chunks(FIELD_SIZE).all(|bytes| BitField::decode(bytes).is_some())
    }

    /// Returns the fields of a valid list.
    pub fn iter(self) -> impl Iterator<Item = BitField> + 'a {
        self.bytes.chunks(FIELD_SIZE).map_while(BitField::decode)
    }

    /// Returns the size that a value needs for the fields that are written.
    pub fn size_written(self) -> usize {
        let writes = self.iter().filter(|field| !matches!(field, BitField::Get(_)));
        writes.map(|field| field.position().end().div_ceil(8)).max().unwrap_or(0)
    }

    /// Returns the size of the reply.
    pub fn reply_size(self) -> usize {
        self.bytes.len() / FIELD_SIZE * REPLY_SIZE
    }

    /// Returns the bytes from the first one of a field to the last one, of a value of `size` bytes.
    pub fn range(self, size: usize) -> Range<usize> {
        let fields = self.iter().map(|field| field.position().window(size).0);
        fields.reduce(|all, field| all.start.min(field.start)..all.end.max(field.end)).unwrap_or_default()
    }

    /// Reads the fields of a value. Appends the reply. `part` has the bytes of the value from `start` on, with those of
    /// [`BitFields::range`].
    pub fn read(self, start: usize, part: &[u8], reply: &mut Vec<u8>) {
        for field in self.iter() {
            reply.extend_from_slice(&encoded(Some(field.position().in_part(start).load(part))));
        }
    }

    /// Executes the fields on a value of at least [`BitFields::size_written`] bytes. Fills the reply, which has
    /// [`BitFields::reply_size`]. `part` is as for [`BitFields::read`].
    pub fn execute(self, start: usize, part: &mut [u8], reply: &mut [u8]) {
        for (field, reply) in self.iter().zip(reply.chunks_exact_mut(REPLY_SIZE)) {
            reply.copy_from_slice(&encoded(field.execute(start, part)));
        }
    }
}

impl BitField {
    fn execute(self, start: usize, value: &mut [u8]) -> Option<i64> {
        let position = self.position().in_part(start);
        let before = position.load(value);
        let (exact, overflow) = match self {
            BitField::Get(_) => return Some(before),
            // A number for a field without sign is taken as it is in 64 bits.
            BitField::Set(_, overflow, number) if position.is_signed => (i128::from(number), overflow),
            BitField::Set(_, overflow, number) => (i128::from(number as u64), overflow),
            BitField::Add(_, overflow, number) => (i128::from(before) + i128::from(number), overflow),
        };
        let (min, max) = position.limits();
        let after = match overflow {
            _ if (min..=max).contains(&exact) => exact,
            Overflow::Wrap => exact,
            Overflow::Saturate => exact.clamp(min, max),
            Overflow::Fail => return None,
        };
        position.store(after as u64, value);
        let after = position.load(value);
        Some(if matches!(self, BitField::Set(..)) { before } else { after })
    }
}

impl FieldPosition {
    /// Returns the position in a part of the value that begins with this byte, which is not after its first.
    fn in_part(self, start: usize) -> FieldPosition {
        FieldPosition { offset: self.offset - start as u64 * 8, ..self }
    }

    /// Returns the bit after it.
    fn end(self) -> usize {
        self.offset as usize + usize::from(self.bits)
    }

    fn limits(self) -> (i128, i128) {
        let bits = u32::from(self.bits);
        if self.is_signed { (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) } else { (0, (1 << bits) - 1) }
    }

    /// Returns the number in the field. Bits beyond the value are zeros.
    fn load(self, value: &[u8]) -> i64 {
        let (bytes, shift) = self.window(value.len());
        let number = (load_window(&value[bytes]) >> shift) as u64;
        let unused = 64 - u32::from(self.bits);
        if self.is_signed { (number << unused) as i64 >> unused } else { (number << unused >> unused) as i64 }
    }

    /// Stores the lowest bits of a number.
    fn store(self, number: u64, value: &mut [u8]) {
        let (bytes, shift) = self.window(value.len());
        let bytes = &mut value[bytes];
        let mask = (u128::MAX >> (128 - u32::from(self.bits))) << shift;
        let window = load_window(bytes) & !mask | u128::from(number) << shift & mask;
        bytes.copy_from_slice(&window.to_be_bytes()[..bytes.len()]);
    }

    /// Returns the bytes of the value that the field touches, at most nine, and the position of its last bit in the number
    /// that begins with them ([`load_window`]).
    fn window(self, value_size: usize) -> (Range<usize>, u32) {
        let first = self.offset as usize / 8;
        let bytes = first.min(value_size)..self.end().div_ceil(8).min(value_size);
        (bytes, (first * 8 + 128 - self.end()) as u32)
    }
}

/// Returns up to sixteen bytes as the highest ones of a number.
fn load_window(bytes: &[u8]) -> u128 {
    let mut window = [0; 16];
    window[..bytes.len()].copy_from_slice(bytes);
    u128::from_be_bytes(window)
}

/// Returns the numbers of a reply; `None` for a field that was to fail on overflow.
pub fn field_replies(reply: &[u8]) -> impl Iterator<Item = Option<i64>> + '_ {
    reply.chunks_exact(REPLY_SIZE).map(|field| {
        let number = i64::from_le_bytes(*field.last_chunk().expect("nine bytes"));
        (field[0] == 1).then_some(number)
    })
}

/// Returns the reply to a field.
fn encoded(number: Option<i64>) -> [u8; REPLY_SIZE] {
    let mut reply = [0; REPLY_SIZE];
    reply[0] = u8::from(number.is_some());
    reply[1..].copy_from_slice(&number.unwrap_or(0).to_le_bytes());
    reply
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: i64, end: Option<i64>, in_bits: bool) -> BitRange {
        BitRange { start, end, in_bits }
    }

    #[test]
    fn ranges_select_bits_as_a_string_of_them_would() {
        let value: Vec<u8> = (0..9u8).map(|index| index.wrapping_mul(91) ^ 0x35).collect();
        let text: String = value.iter().map(|byte| format!("{byte:08b}")).collect();
        let positions = [-100, -73, -72, -71, -65, -10, -9, -8, -1, 0, 1, 7, 8, 9, 15, 16, 63, 64, 71, 72, 100];
        for in_bits in [false, true] {
            let (total, unit) = if in_bits { (72, 1) } else { (9, 8) };
            for start in positions {
                for end in positions.map(Some).into_iter().chain([None]) {
                    let absolute = |position: i64| if position < 0 { position + total } else { position };
                    let (first, last) = (absolute(start).max(0), absolute(end.unwrap_or(-1)).max(0).min(total - 1));
                    let bits = if first > last { "" } else { &text[first as usize * unit..(last as usize + 1) * unit] };
                    let range = range(start, end, in_bits);
                    let is_reversed = end.is_some_and(|end| start < 0 && end < 0 && start > end);
                    let ones = if is_reversed { 0 } else { bits.matches('1').count() };
                    assert_eq!(count_bits(&value, range.counted_bits(value.len())), ones, "{range:?}");
                    for (bit, digit) in [(false, '0'), (true, '1')] {
                        let beyond = (!bit && end.is_none() && !bits.is_empty()).then_some(72);
                        let found = bits.find(digit).map(|at| at + first as usize * unit).or(beyond);
                        assert_eq!(find(range, bit, &value), found, "{range:?} {bit}");
                    }
                }
            }
        }
        assert_eq!(count_bits(b"", BitRange::ALL.counted_bits(0)), 0);
        assert_eq!((find(BitRange::ALL, false, b""), find(BitRange::ALL, false, b"\xff")), (None, Some(8)));
    }

    fn find(range: BitRange, bit: bool, value: &[u8]) -> Option<usize> {
        find_bit(value, range.bits(value.len()), bit).or_else(|| range.beyond(bit, value.len()))
    }

    #[test]
    fn long_values_are_counted_and_searched_as_short_ones() {
        let value: Vec<u8> = (0..700u32).map(|index| (index.wrapping_mul(0x9e37_79b9) >> 13) as u8).collect();
        let is_one = |at: usize| value[at / 8] & (0x80 >> (at % 8)) != 0;
        for start in [0, 1, 7, 8, 127, 1023, 1024, 1025, 2000] {
            for end in [start, start + 1, start + 9, 3000, 4095, 4096, 5599, 5600] {
                assert_eq!(count_bits(&value, start..end), (start..end).filter(|at| is_one(*at)).count());
            }
        }
        assert_eq!(count_bits(&[0xff; 700], 0..5600), 5600);
        for bit in [false, true] {
            let mut value = vec![if bit { 0x00 } else { 0xff }; 700];
            assert_eq!(find_bit(&value, 0..5600, bit), None);
            for at in [0, 1, 9, 511, 512, 513, 519, 520, 521, 1030, 4000, 5599] {
                value[at / 8] ^= 0x80 >> (at % 8);
                for (range, found) in [(0..5600, Some(at)), (at..5600, Some(at)), (0..at + 1, Some(at)), (0..at, None)]
                {
                    assert_eq!(find_bit(&value, range, bit), found, "{at} {bit}");
                }
                assert_eq!(find_bit(&value, at + 1..5600, bit), None);
                value[at / 8] ^= 0x80 >> (at % 8);
            }
        }
    }

    fn field(offset: u64, bits: u8, is_signed: bool) -> FieldPosition {
        FieldPosition { offset, bits, is_signed }
    }

    fn run(value: &mut Vec<u8>, fields: &[BitField]) -> Vec<Option<i64>> {
        let mut list = Vec::new();
        fields.iter().for_each(|field| field.append_to(&mut list));
        let fields = BitFields::new(&list);
        assert!(fields.are_valid());
        if fields.size_written() > value.len() {
            value.resize(fields.size_written(), 0);
        }
        let mut reply = vec![0; fields.reply_size()];
        let range = fields.range(value.len());
        fields.execute(range.start, &mut value[range], &mut reply);
        field_replies(&reply).collect()
    }

    #[test]
    fn fields_are_read_and_written_in_order() {
        let mut value = Vec::new();
        let position = field(5, 13, false);
        let replies = run(
            &mut value,
            &[
                BitField::Set(position, Overflow::Wrap, 0x1abc),
                BitField::Get(position),
                BitField::Add(position, Overflow::Wrap, 1),
                BitField::Get(field(100, 8, true)),
            ],
        );
        assert_eq!(replies, [Some(0), Some(0x1abc), Some(0x1abd), Some(0)]);
        let number = 0x1abdu32 << (24 - 18);
        assert_eq!(value, number.to_be_bytes()[1..]);
    }

    #[test]
    fn numbers_that_do_not_fit_wrap_saturate_or_fail() {
        let (byte, nibble, word) = (field(0, 8, false), field(8, 4, true), field(0, 64, true));
        for (fields, replies) in [
            ([BitField::Set(byte, Overflow::Wrap, 257), BitField::Get(byte)], [Some(0), Some(1)]),
            ([BitField::Set(byte, Overflow::Saturate, 257), BitField::Get(byte)], [Some(0), Some(255)]),
            ([BitField::Set(byte, Overflow::Saturate, -1), BitField::Get(byte)], [Some(0), Some(255)]),
            ([BitField::Set(byte, Overflow::Fail, 257), BitField::Get(byte)], [None, Some(0)]),
            ([BitField::Add(byte, Overflow::Wrap, -1), BitField::Get(byte)], [Some(255), Some(255)]),
            ([BitField::Add(byte, Overflow::Saturate, -1), BitField::Get(byte)], [Some(0), Some(0)]),
            ([BitField::Add(nibble, Overflow::Wrap, 8), BitField::Get(nibble)], [Some(-8), Some(-8)]),
            ([BitField::Add(nibble, Overflow::Saturate, 100), BitField::Get(nibble)], [Some(7), Some(7)]),
            ([BitField::Add(nibble, Overflow::Fail, -9), BitField::Get(nibble)], [None, Some(0)]),
            (
                [BitField::Set(word, Overflow::Fail, i64::MIN), BitField::Add(word, Overflow::Wrap, -1)],
                [Some(0), Some(i64::MAX)],
            ),
        ] {
            assert_eq!(run(&mut Vec::new(), &fields), replies, "{fields:?}");
        }
    }

    #[test]
    fn invalid_lists_are_refused() {
        let mut list = Vec::new();
        BitField::Get(field(0, 8, true)).append_to(&mut list);
        assert!(BitFields::new(&list).are_valid());
        assert!(!BitFields::new(&[]).are_valid());
        for (index, byte) in [(0, 3), (1, 0), (1, 64), (1, SIGNED | 65), (2, 3), (3, 1), (11, 1)] {
            let mut list = list.clone();
            list[index] = byte;
            assert!(!BitFields::new(&list).are_valid(), "{byte} at {index}");
        }
        list.pop();
        assert!(!BitFields::new(&list).are_valid());
    }
}
