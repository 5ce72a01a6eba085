//! A page: the reply to a scan, as bytes.
//!
//! ```text
//! page     0       4       5        6          8       16
//!          │ count │ flags │ answer │ key size │ lease │ last key │ entry │ entry │ ...
//!            u32     u8      u8       u16        u64
//! entry    │ key size │ value size │ key │ value │      of pairs
//!            u16        u32
//!          │ key size │ key │                           of keys
//!            u16
//! flags    bit 0: more pairs of the range may follow
//! ```
//!
//! Integers are little-endian. The last key is where the scan continues: that of the last pair, or an expired key if the
//! page has no pair because it has skipped many of these. The header holds it if there are no entries; otherwise its size
//! in the header is zero. A lease of zero means that there is no lease.

use super::{KEY_SIZE_MAX, VALUE_SIZE_MAX};

/// Size limit of a page, in bytes. A page ends before the pair that would exceed this limit, unless it is the first
/// pair.
pub const PAGE_SIZE_GOAL: usize = 64 << 10;
/// Size of the longest page, in bytes. It holds a single pair.
pub const PAGE_SIZE_MAX: usize = HEADER_SIZE + KEY_SIZE_SIZE + VALUE_SIZE_SIZE + KEY_SIZE_MAX + VALUE_SIZE_MAX;
/// Largest number of pairs that one page counts. Counting that many takes about a millisecond.
pub const PAGE_COUNT_MAX: u32 = 1 << 16;
/// Number of expired keys after which a page ends, since reading them takes time too.
pub const PAGE_SKIPPED_MAX: usize = 1 << 12;

const FLAGS_OFFSET: usize = 4;
const ANSWER_OFFSET: usize = 5;
const LAST_KEY_SIZE_OFFSET: usize = 6;
const LEASE_OFFSET: usize = 8;
const HEADER_SIZE: usize = 16;
const KEY_SIZE_SIZE: usize = size_of::<u16>();
const VALUE_SIZE_SIZE: usize = size_of::<u32>();
const MORE: u8 = 1;

const _: () = assert!(PAGE_SIZE_GOAL >= HEADER_SIZE + KEY_SIZE_MAX && PAGE_SIZE_MAX > PAGE_SIZE_GOAL);
const _: () = assert!(KEY_SIZE_MAX <= u16::MAX as usize && VALUE_SIZE_MAX <= u32::MAX as usize);

/// The parts of each pair that a page holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ScanAnswer {
    /// Key and value.
    Pairs = 0,
    /// The key.
    Keys = 1,
    /// Nothing: the pairs are only counted.
    Count = 2,
}

impl ScanAnswer {
    /// All variants, in the order of their codes.
    pub const ALL: [ScanAnswer; 3] = [ScanAnswer::Pairs, ScanAnswer::Keys, ScanAnswer::Count];
}

/// A page that borrows its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page<'a> {
    count: u32,
    more: bool,
    answer: ScanAnswer,
    lease: u64,
    last_key: &'a [u8],
    entries: &'a [u8],
}

/// The pairs of a page in its order. Values are empty if the page holds keys only.
#[derive(Clone, Copy, Debug)]
pub struct PagePairs<'a> {
    answer: ScanAnswer,
    rest: &'a [u8],
}

/// Appends a page to bytes.
#[derive(Debug)]
pub struct PageWriter<'o> {
    out: &'o mut Vec<u8>,
    start: usize,
    answer: ScanAnswer,
    count: u32,
}

impl<'a> Page<'a> {
    /// Decodes a page. Returns `None` if the bytes are not a page.
    pub fn decode(bytes: &'a [u8]) -> Option<Self> {
        let (header, rest) = bytes.split_first_chunk::<HEADER_SIZE>()?;
        let u16_at = |offset: usize| u16::from_le_bytes([header[offset], header[offset + 1]]);
        let answer = *ScanAnswer::ALL.get(usize::from(header[ANSWER_OFFSET]))?;
        let flags = header[FLAGS_OFFSET];
        let (last_key, entries) = rest.split_at_checked(usize::from(u16_at(LAST_KEY_SIZE_OFFSET)))?;
        let mut page = Page {
            count: u32::from_le_bytes(*header.first_chunk()?),
            more: flags & MORE != 0,
            answer,
            lease: u64::from_le_bytes(*header[LEASE_OFFSET..].first_chunk()?),
            last_key,
            entries,
        };
        if answer != ScanAnswer::Count {
            let mut pairs = page.pairs();
            for _ in 0..page.count {
                (page.last_key, _) = pairs.next()?;
            }
            page.entries = &entries[..entries.len() - pairs.rest.len()];
            if page.count > 0 && !last_key.is_empty() {
                return None;
            }
        }
        let is_complete = page.entries.len() == entries.len() && (answer != ScanAnswer::Count || entries.is_empty());
        let needs_last_key = page.count > 0 || page.more;
        let has_last_key = needs_last_key != page.last_key.is_empty() && page.last_key.len() <= KEY_SIZE_MAX;
        (flags & !MORE == 0 && is_complete && has_last_key).then_some(page)
    }

    /// Returns true if a page has room for `pair_count` pairs of this size.
    pub fn holds(pair_count: usize, key_size: usize, value_size: usize) -> bool {
        let entry_size = KEY_SIZE_SIZE + VALUE_SIZE_SIZE + key_size + value_size;
        pair_count == 1 || HEADER_SIZE + pair_count * entry_size <= PAGE_SIZE_GOAL
    }

    /// Returns the number of pairs that are shown or counted.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Returns true if the range may have more pairs after the page.
    pub fn more(&self) -> bool {
        self.more
    }

    /// Returns which parts of each pair the page holds.
    pub fn answer(&self) -> ScanAnswer {
        self.answer
    }

    /// Returns the number of the lease for the next page.
    pub fn lease(&self) -> Option<u64> {
        (self.lease != 0).then_some(self.lease)
    }

    /// Returns the key after which the next page begins: that of the last pair, or an expired one. It is empty if there is
    /// none.
    pub fn last_key(&self) -> &'a [u8] {
        self.last_key
    }

    /// Returns keys and values in the order of the scan. There are none if they were only counted.
    pub fn pairs(&self) -> PagePairs<'a> {
        PagePairs { answer: self.answer, rest: self.entries }
    }
}

impl<'a> Iterator for PagePairs<'a> {
    type Item = (&'a [u8], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let (key_size, rest) = self.rest.split_first_chunk::<KEY_SIZE_SIZE>()?;
        let (value_size, rest) = match self.answer {
            ScanAnswer::Pairs => rest.split_first_chunk::<VALUE_SIZE_SIZE>()?,
            _ => (&[0; VALUE_SIZE_SIZE], rest),
        };
        let (key, rest) = rest.split_at_checked(usize::from(u16::from_le_bytes(*key_size)))?;
        let (value, rest) = rest.split_at_checked(u32::from_le_bytes(*value_size) as usize)?;
        if !(1..=KEY_SIZE_MAX).contains(&key.len()) || value.len() > VALUE_SIZE_MAX {
            return None;
        }
        self.rest = rest;
        Some((key, value))
    }
}

impl<'o> PageWriter<'o> {
    /// Appends an empty page to `out`.
    pub fn new(out: &'o mut Vec<u8>, answer: ScanAnswer) -> Self {
        let start = out.len();
        out.resize(start + HEADER_SIZE, 0);
        PageWriter { out, start, answer, count: 0 }
    }

    /// Returns the number of pairs so far.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Returns true if another pair fits on this page. The first pair always fits.
    pub fn has_room(&self, key_size: usize, value_size: usize) -> bool {
        let entry_size = match self.answer {
            ScanAnswer::Pairs => KEY_SIZE_SIZE + VALUE_SIZE_SIZE + key_size + value_size,
            ScanAnswer::Keys => KEY_SIZE_SIZE + key_size,
            ScanAnswer::Count => return self.count < PAGE_COUNT_MAX,
        };
        self.count == 0 || self.out.len() - self.start + entry_size <= PAGE_SIZE_GOAL
    }

    /// Adds a pair. If the page holds values, `write_value` appends the value, which has `value_size` bytes.
    pub fn push(&mut self, key: &[u8], value_size: usize, write_value: impl FnOnce(&mut Vec<u8>)) {
        self.count += 1;
        if self.answer == ScanAnswer::Count {
            return;
        }
        self.out.extend_from_slice(&(key.len() as u16).to_le_bytes());
        if self.answer == ScanAnswer::Keys {
            return self.out.extend_from_slice(key);
        }
        self.out.extend_from_slice(&(value_size as u32).to_le_bytes());
        self.out.extend_from_slice(key);
        let start = self.out.len();
        write_value(self.out);
        assert_eq!(self.out.len() - start, value_size, "`write_value` appends `value_size` bytes");
    }

    /// Completes the page. Expects the key of the last pair as `last_key`. Without pairs, it is the key after which the next
    /// page begins, or empty.
    pub fn finish(self, last_key: &[u8], more: bool, lease: Option<u64>) {
        let mut last_key_size = 0;
        if self.answer == ScanAnswer::Count || self.count == 0 {
            self.out.extend_from_slice(last_key);
            last_key_size = last_key.len() as u16;
        }
        let header = &mut self.out[self.start..][..HEADER_SIZE];
        header[..FLAGS_OFFSET].copy_from_slice(&self.count.to_le_bytes());
        header[FLAGS_OFFSET] = if more { MORE } else { 0 };
        header[ANSWER_OFFSET] = self.answer as u8;
        header[LAST_KEY_SIZE_OFFSET..LEASE_OFFSET].copy_from_slice(&last_key_size.to_le_bytes());
        header[LEASE_OFFSET..].copy_from_slice(&lease.unwrap_or(0).to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAIRS: &[(&[u8], &[u8])] = &[(b"a", b""), (b"ab", b"value"), (&[255; KEY_SIZE_MAX], &[7; 300])];

    fn page(answer: ScanAnswer, pairs: &[(&[u8], &[u8])], more: bool, lease: Option<u64>) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut writer = PageWriter::new(&mut bytes, answer);
        for (key, value) in pairs {
            writer.push(key, value.len(), |out| out.extend_from_slice(value));
        }
        writer.finish(pairs.last().map_or(&[], |(key, _)| key), more, lease);
        bytes
    }

    #[test]
    fn the_bytes_of_a_page() {
        let pairs = page(ScanAnswer::Pairs, &[(b"k", b"vv")], true, Some(0x0102));
        assert_eq!(pairs, b"\x01\0\0\0\x01\0\0\0\x02\x01\0\0\0\0\0\0\x01\0\x02\0\0\0kvv");
        let keys = page(ScanAnswer::Keys, &[(b"k", b"vv")], false, None);
        assert_eq!(keys, b"\x01\0\0\0\0\x01\0\0\0\0\0\0\0\0\0\0\x01\0k");
        let count = page(ScanAnswer::Count, &[(b"k", b"vv")], true, None);
        assert_eq!(count, b"\x01\0\0\0\x01\x02\x01\0\0\0\0\0\0\0\0\0k");
    }

    #[test]
    fn pages_round_trip() {
        for answer in ScanAnswer::ALL {
            for (count, more) in [(0, false), (1, false), (3, true)] {
                let bytes = page(answer, &PAIRS[..count], more, more.then_some(9));
                let page = Page::decode(&bytes).unwrap();
                assert_eq!((page.count(), page.more(), page.answer()), (count as u32, more, answer));
                assert_eq!(page.lease(), more.then_some(9));
                assert_eq!(page.last_key(), if count == 0 { &[] } else { PAIRS[count - 1].0 });
                let value = |value| if answer == ScanAnswer::Pairs { value } else { &[][..] };
                let shown = if answer == ScanAnswer::Count { 0 } else { count };
                let expected = PAIRS[..shown].iter().map(|(key, bytes)| (*key, value(*bytes)));
                assert!(page.pairs().eq(expected), "{answer:?}");
            }
        }
    }

    /// Decodes every truncation of a page, and every page with one changed byte. Decoding refuses the bytes or returns
    /// another page, and never panics.
    #[test]
    fn damaged_pages() {
        for answer in ScanAnswer::ALL {
            let whole = page(answer, PAIRS, true, Some(1));
            for size in 0..whole.len() {
                assert_eq!(Page::decode(&whole[..size]), None, "{answer:?} cut to {size}");
            }
            assert_eq!(Page::decode(&[&whole[..], b"x"].concat()), None, "{answer:?} with a byte more");
            for offset in 0..whole.len() {
                for change in [1, 0x80, 0xff] {
                    let mut bytes = whole.clone();
                    bytes[offset] ^= change;
                    if let Some(page) = Page::decode(&bytes) {
                        assert!(page.pairs().all(|(key, _)| !key.is_empty()));
                    }
                }
            }
        }
    }

    #[test]
    fn a_page_holds_what_it_has_room_for() {
        for (key_size, value_size) in [(1, 0), (16, 16), (100, 549), (460, 30_000), (460, VALUE_SIZE_MAX)] {
            let mut bytes = Vec::new();
            let mut writer = PageWriter::new(&mut bytes, ScanAnswer::Pairs);
            while writer.has_room(key_size, value_size) {
                writer.push(&[1; KEY_SIZE_MAX][..key_size], value_size, |out| out.resize(out.len() + value_size, 3));
            }
            let count = writer.count() as usize;
            assert!(Page::holds(count, key_size, value_size) && !Page::holds(count + 1, key_size, value_size));
        }
    }

    #[test]
    fn an_empty_page_may_end_at_a_key() {
        for answer in ScanAnswer::ALL {
            let mut bytes = b"before".to_vec();
            PageWriter::new(&mut bytes, answer).finish(b"expired", true, None);
            let page = Page::decode(&bytes[6..]).unwrap();
            assert_eq!((page.count(), page.more(), page.last_key()), (0, true, &b"expired"[..]));
            assert_eq!(page.pairs().count(), 0);
        }
    }

    #[test]
    fn a_page_has_room_for_its_first_pair() {
        let mut bytes = b"before".to_vec();
        let mut writer = PageWriter::new(&mut bytes, ScanAnswer::Pairs);
        assert!(writer.has_room(KEY_SIZE_MAX, VALUE_SIZE_MAX));
        writer.push(&[1; KEY_SIZE_MAX], VALUE_SIZE_MAX, |out| out.resize(out.len() + VALUE_SIZE_MAX, 3));
        assert!(!writer.has_room(1, 0));
        writer.finish(&[1; KEY_SIZE_MAX], false, None);
        assert_eq!(bytes.len(), b"before".len() + PAGE_SIZE_MAX);
        assert!(Page::decode(&bytes[6..]).is_some());
    }
}
