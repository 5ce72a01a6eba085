//! An item of the log: a pair, with its expiry and the flags of its client.
//!
//! ```text
//! byte 0             8                16          20
//!      ├─────────────┼────────────────┼───────────┼─────────┼───────────┤
//!      │ header u64  │ expiry u64     │ flags u32 │ key     │ value     │  rounded up to units of 32 bytes
//!      └─────────────┴────────────────┴───────────┴─────────┴───────────┘
//!                      only if set      only if not 0
//! header  bits 0–8    bytes of the key, 1 to 460
//!         bits 9–29   bytes of the value, 0 to 1 MiB
//!         bit  30     has flags
//!         bit  31     has an expiry: milliseconds since 1970
//!         bits 32–47  changes in place since the item was appended
//!         bits 48–51  marks of memcached's protocol
//!         bits 52–63  zero
//! ```
//!
//! A pair of 8 + 8 bytes takes one unit, also with an expiry. A pair of up to 56 bytes takes at most one line.
//!
//! **The cas number** of an item (memcached's *compare and swap*) is not stored: it is the virtual offset of the item and the
//! number of its changes in place. A virtual offset is never used twice, so two states of a key never have the same number,
//! until 2⁴⁸ units (8 PiB) were appended. An item that was changed 2¹⁶ − 1 times is appended anew at its next change.

use super::log::VirtualOffset;
use crate::short::overwrite;
use skep_core::operation::{Expiry, KEY_SIZE_MAX, VALUE_SIZE_MAX};

const HEADER_SIZE: usize = 8;
const EXPIRY_SIZE: usize = 8;
const FLAGS_SIZE: usize = 4;
const KEY_SIZE_BITS: u32 = 9;
const VALUE_SIZE_BITS: u32 = 21;
const CHANGES_BITS: u32 = 16;
const HAS_FLAGS: u64 = 1 << (KEY_SIZE_BITS + VALUE_SIZE_BITS);
const HAS_EXPIRY: u64 = HAS_FLAGS << 1;
/// The bits of a header, shifted right, that are the bytes of its optional fields.
const OPTIONAL_SHIFT: u32 = HAS_FLAGS.trailing_zeros() - FLAGS_SIZE.trailing_zeros();
const CHANGES_SHIFT: u32 = KEY_SIZE_BITS + VALUE_SIZE_BITS + 2;
const MARKS_SHIFT: u32 = CHANGES_SHIFT + CHANGES_BITS;
const MARKS_BITS: u32 = 4;

const _: () = assert!(KEY_SIZE_MAX < 1 << KEY_SIZE_BITS && VALUE_SIZE_MAX < 1 << VALUE_SIZE_BITS);
const _: () =
    assert!(HAS_FLAGS >> OPTIONAL_SHIFT == FLAGS_SIZE as u64 && HAS_EXPIRY >> OPTIONAL_SHIFT == EXPIRY_SIZE as u64);
const _: () = assert!(CHANGES_SHIFT == 32 && MARKS_SHIFT + MARKS_BITS <= u64::BITS);

/// Most bytes of an item.
pub(super) const ITEM_SIZE_MAX: usize = HEADER_SIZE + EXPIRY_SIZE + FLAGS_SIZE + KEY_SIZE_MAX + VALUE_SIZE_MAX;

/// The number that changes whenever the value of a key changes, as memcached's `gets` returns it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CasNumber(pub u64);

/// The fields of an item besides its key and value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Attributes {
    /// The time from which on the item is missing.
    pub(super) expiry: Option<Expiry>,
    /// A number of the client, which memcached's protocol stores with each value.
    pub(super) flags: u32,
    /// What memcached's commands have marked.
    pub(super) marks: Marks,
}

impl Attributes {
    /// Returns the bytes of an item before its key.
    #[inline(always)]
    fn key_offset(&self) -> usize {
        let expiry_size = if self.expiry.is_some() { EXPIRY_SIZE } else { 0 };
        let flags_size = if self.flags != 0 { FLAGS_SIZE } else { 0 };
        HEADER_SIZE + expiry_size + flags_size
    }

    /// Returns the bytes of an item with these attributes. A key and a value have less than 4 GiB.
    #[inline(always)]
    pub(super) fn item_size(&self, key_size: usize, value_size: usize) -> u32 {
        (self.key_offset() + key_size + value_size) as u32
    }
}

/// Marks of an item, which memcached's commands set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Marks(u8);

impl Marks {
    /// A command has read the item.
    pub(super) const FETCHED: Marks = Marks(1);
    /// The value is stale.
    pub(super) const STALE: Marks = Marks(2);
    /// A client has won: it was told to store a new value.
    pub(super) const WON: Marks = Marks(4);
    /// The client that stored the value wrote the key as base64.
    pub(super) const BASE64_KEY: Marks = Marks(8);

    /// Returns true if one of these marks is set.
    #[inline(always)]
    pub(super) fn has(self, marks: Marks) -> bool {
        self.0 & marks.0 != 0
    }

    /// Returns the other marks.
    #[inline(always)]
    pub(super) fn without(self, marks: Marks) -> Marks {
        Marks(self.0 & !marks.0)
    }

    /// Returns these marks too, if the condition holds.
    #[inline(always)]
    pub(super) fn with(self, marks: Marks, condition: bool) -> Marks {
        if condition { Marks(self.0 | marks.0) } else { self }
    }
}

/// The parts of an item.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parts<'i> {
    pub(super) header: Header,
    /// The expiry and the flags, as far as the item has them.
    options: &'i [u8],
    pub(super) key: &'i [u8],
    pub(super) value: &'i [u8],
}

impl Parts<'_> {
    /// Returns the expiry.
    #[inline(always)]
    pub(super) fn expiry(&self) -> Option<Expiry> {
        if !self.header.has_expiry() {
            return None;
        }
        Expiry::at(i64::from_le_bytes(*self.options.first_chunk().expect("the expiry is the first option")))
    }

    /// Returns the flags of the client.
    #[inline(always)]
    pub(super) fn flags(&self) -> u32 {
        if !self.header.has_flags() {
            return 0;
        }
        u32::from_le_bytes(*self.options.last_chunk().expect("the flags are the last option"))
    }
}

/// The first word of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header(u64);

impl Header {
    /// Returns the header of an item that was not changed yet.
    #[inline(always)]
    pub(super) fn new(key_size: usize, value_size: usize, attributes: Attributes) -> Self {
        let sizes = key_size as u64 | (value_size as u64) << KEY_SIZE_BITS;
        let expiry = if attributes.expiry.is_some() { HAS_EXPIRY } else { 0 };
        let flags = if attributes.flags != 0 { HAS_FLAGS } else { 0 };
        Header(sizes | expiry | flags | u64::from(attributes.marks.0) << MARKS_SHIFT)
    }

    #[inline(always)]
    pub(super) fn marks(self) -> Marks {
        Marks((self.0 >> MARKS_SHIFT) as u8)
    }

    /// Returns the header with these marks instead of its own.
    #[inline(always)]
    pub(super) fn with_marks(self, marks: Marks) -> Self {
        let without = self.0 & ((1 << MARKS_SHIFT) - 1);
        Header(without | u64::from(marks.0) << MARKS_SHIFT)
    }

    /// Reads the header of an item.
    #[inline(always)]
    pub(super) fn of(item: &[u8]) -> Self {
        Header(u64::from_le_bytes(*item.first_chunk().expect("an item begins with its header")))
    }

    #[inline(always)]
    fn has_expiry(self) -> bool {
        self.0 & HAS_EXPIRY != 0
    }

    #[inline(always)]
    fn has_flags(self) -> bool {
        self.0 & HAS_FLAGS != 0
    }

    #[inline(always)]
    fn key_offset(self) -> usize {
        HEADER_SIZE + ((self.0 >> OPTIONAL_SHIFT) as usize & (EXPIRY_SIZE + FLAGS_SIZE))
    }

    #[inline(always)]
    fn key_size(self) -> usize {
        (self.0 & ((1 << KEY_SIZE_BITS) - 1)) as usize
    }

    /// Returns the bytes of the value.
    #[inline(always)]
    pub(super) fn value_size(self) -> usize {
        ((self.0 >> KEY_SIZE_BITS) & ((1 << VALUE_SIZE_BITS) - 1)) as usize
    }

    #[inline(always)]
    fn value_offset(self) -> usize {
        self.key_offset() + self.key_size()
    }

    /// Returns the bytes of the item.
    #[inline(always)]
    pub(super) fn size(self) -> usize {
        self.value_offset() + self.value_size()
    }

    fn changes(self) -> u64 {
        self.0 >> CHANGES_SHIFT & ((1 << CHANGES_BITS) - 1)
    }

    /// Returns the header after one more change in place. `None` if it counts no more.
    pub(super) fn changed(self) -> Option<Self> {
        (self.changes() + 1 < 1 << CHANGES_BITS).then_some(Header(self.0 + (1 << CHANGES_SHIFT)))
    }

    /// Returns the cas number of the item at this offset.
    pub(super) fn cas(self, at: VirtualOffset) -> CasNumber {
        CasNumber(at.units() << CHANGES_BITS | self.changes())
    }

    /// Writes the header of an item.
    #[inline(always)]
    pub(super) fn write(self, item: &mut [u8]) {
        *item.first_chunk_mut().expect("an item begins with its header") = self.0.to_le_bytes();
    }

    /// Divides the bytes from the begin of an item on. `None` if they do not have all of it.
    #[inline(always)]
    pub(super) fn divide(self, bytes: &[u8]) -> Option<Parts<'_>> {
        let (before, after) = bytes.split_at_checked(self.key_offset())?;
        let (key, after) = after.split_at_checked(self.key_size())?;
        let value = after.get(..self.value_size())?;
        Some(Parts { header: self, options: &before[HEADER_SIZE..], key, value })
    }

    /// Returns the key of an item.
    #[inline(always)]
    pub(super) fn key(self, item: &[u8]) -> &[u8] {
        &item[self.key_offset()..][..self.key_size()]
    }

    /// Returns the value of an item.
    #[inline(always)]
    pub(super) fn value(self, item: &[u8]) -> &[u8] {
        &item[self.value_offset()..][..self.value_size()]
    }

    /// Returns the value of an item, to be changed.
    #[inline(always)]
    pub(super) fn value_mut(self, item: &mut [u8]) -> &mut [u8] {
        &mut item[self.value_offset()..][..self.value_size()]
    }

    /// Returns the expiry of an item.
    #[inline(always)]
    pub(super) fn expiry(self, item: &[u8]) -> Option<Expiry> {
        if !self.has_expiry() {
            return None;
        }
        let bytes = *item[HEADER_SIZE..].first_chunk().expect("the expiry follows the header");
        Expiry::at(i64::from_le_bytes(bytes))
    }

    /// Returns the expiry, the flags and the marks of an item.
    pub(super) fn attributes(self, item: &[u8]) -> Attributes {
        let mut flags = [0; FLAGS_SIZE];
        if self.has_flags() {
            flags.copy_from_slice(&item[self.key_offset() - FLAGS_SIZE..][..FLAGS_SIZE]);
        }
        Attributes { expiry: self.expiry(item), flags: u32::from_le_bytes(flags), marks: self.marks() }
    }

    /// Overwrites the expiry and the flags of an item that has the same ones of them.
    #[inline(always)]
    pub(super) fn write_attributes(self, item: &mut [u8], attributes: Attributes) {
        if let Some(expiry) = attributes.expiry {
            let bytes = item[HEADER_SIZE..].first_chunk_mut().expect("the expiry follows the header");
            *bytes = expiry.milliseconds().to_le_bytes();
        }
        if attributes.flags != 0 {
            let at = self.key_offset() - FLAGS_SIZE;
            item[at..][..FLAGS_SIZE].copy_from_slice(&attributes.flags.to_le_bytes());
        }
    }

    /// Writes all of an item.
    #[inline(always)]
    pub(super) fn write_item(self, item: &mut [u8], attributes: Attributes, key: &[u8], value: &[u8]) {
        self.write(item);
        self.write_attributes(item, attributes);
        let (key_bytes, value_bytes) = item[attributes.key_offset()..].split_at_mut(key.len());
        overwrite(key_bytes, key);
        overwrite(&mut value_bytes[..value.len()], value);
    }

    /// Returns true if an item with this header can be overwritten by one with the other: their fields have the same offsets.
    pub(super) fn has_shape_of(self, other: Header) -> bool {
        let shape = (1 << CHANGES_SHIFT) - 1;
        self.0 & shape == other.0 & shape
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{LINE_SIZE, UNIT_SIZE};

    #[test]
    fn an_item_is_read_as_it_was_written() {
        let expiries = [None, Expiry::at(0), Some(Expiry::MAX)];
        for (key_size, value_size) in [(1, 0), (8, 8), (16, 1), (460, 1000), (460, VALUE_SIZE_MAX)] {
            for (expiry, flags) in expiries.into_iter().flat_map(|expiry| [(expiry, 0), (expiry, u32::MAX)]) {
                let marks = if flags == 0 { Marks::default() } else { Marks::STALE.with(Marks::WON, true) };
                let attributes = Attributes { expiry, flags, marks };
                let (key, value) = (vec![b'k'; key_size], vec![b'v'; value_size]);
                let header = Header::new(key_size, value_size, attributes);
                let mut item = vec![0xff; header.size()];
                header.write_item(&mut item, attributes, &key, &value);
                assert_eq!(Header::of(&item), header);
                assert_eq!((header.key(&item), header.value(&item)), (&key[..], &value[..]));
                assert_eq!(header.attributes(&item), attributes);
                assert_eq!(header.expiry(&item), expiry);
                assert_eq!(attributes.item_size(key_size, value_size) as usize, header.size());
                assert!(header.size() <= ITEM_SIZE_MAX);
            }
        }
    }

    #[test]
    fn small_pairs_take_a_unit_or_a_line() {
        let expiring = Attributes { expiry: Some(Expiry::MAX), ..Attributes::default() };
        assert!(Header::new(8, 8, Attributes::default()).size() <= UNIT_SIZE);
        assert_eq!(Header::new(8, 8, expiring).size(), UNIT_SIZE);
        assert_eq!(Header::new(28, 28, Attributes::default()).size(), LINE_SIZE);
    }

    #[test]
    fn each_change_has_its_own_number() {
        let mut header = Header::new(3, 4, Attributes::default()).with_marks(Marks::FETCHED);
        let mut log = super::super::log::Log::new(0, 8);
        let (at, next) = (log.append(1).0, log.append(1).0);
        let mut numbers = vec![header.cas(at)];
        while let Some(changed) = header.changed() {
            assert!(changed.has_shape_of(header) && changed.size() == header.size());
            assert_eq!(changed.with_marks(Marks::default()).marks(), Marks::default());
            assert_eq!(changed.marks(), Marks::FETCHED);
            header = changed;
            numbers.push(header.cas(at));
        }
        assert_eq!(numbers.len(), 1 << 16);
        numbers.push(header.cas(next));
        assert!(numbers.windows(2).all(|pair| pair[0].0 < pair[1].0));
    }
}
