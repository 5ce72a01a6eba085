//! A page: the answer to a scan, as bytes.
//!
//! ```text
//! page     0       4       5        6          8       16
//!          │ count │ flags │ answer │ key size │ lease │ last key │ entry │ entry │ ...
//!            u32     u8      u8       u16        u64
//! entry    │ key size │ value size │ key │ value │      of pairs
//!            u16        u32
//!          │ key size │ key │                           of keys
//!            u16
//! flags    bit 0: more pairs of the range follow
//! ```
//!
//! Integers are little-endian. The last key, from where the scan goes on, stands in front only if pairs are counted;
//! otherwise it is that of the last entry, and its size in front is zero. A lease of zero is none.

use super::{KEY_SIZE_MAX, ScanAnswer, VALUE_SIZE_MAX};

/// A page ends before the pair that would make it longer than this, in bytes, unless that is its first.
pub const PAGE_SIZE_GOAL: usize = 64 << 10;
/// Longest page, in bytes: one of a single pair.
pub const PAGE_SIZE_MAX: usize = HEAD_SIZE + KEY_SIZE_SIZE + VALUE_SIZE_SIZE + KEY_SIZE_MAX + VALUE_SIZE_MAX;
/// Most pairs that one page counts: it takes about a millisecond.
pub const PAGE_COUNT_MAX: u32 = 1 << 16;

const FLAGS_PLACE: usize = 4;
const ANSWER_PLACE: usize = 5;
const LAST_KEY_SIZE_PLACE: usize = 6;
const LEASE_PLACE: usize = 8;
const HEAD_SIZE: usize = 16;
const KEY_SIZE_SIZE: usize = size_of::<u16>();
const VALUE_SIZE_SIZE: usize = size_of::<u32>();
const MORE: u8 = 1;

const _: () = assert!(PAGE_SIZE_GOAL >= HEAD_SIZE + KEY_SIZE_MAX && PAGE_SIZE_MAX > PAGE_SIZE_GOAL);
const _: () = assert!(KEY_SIZE_MAX <= u16::MAX as usize && VALUE_SIZE_MAX <= u32::MAX as usize);

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

/// The pairs of a page in its order; values are empty if it holds keys only.
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
    /// The page that these bytes are, if they are one.
    pub fn decode(bytes: &'a [u8]) -> Option<Self> {
        let (head, rest) = bytes.split_first_chunk::<HEAD_SIZE>()?;
        let u16_at = |place: usize| u16::from_le_bytes([head[place], head[place + 1]]);
        let answer = *ScanAnswer::ALL.get(usize::from(head[ANSWER_PLACE]))?;
        let flags = head[FLAGS_PLACE];
        let (last_key, entries) = rest.split_at_checked(usize::from(u16_at(LAST_KEY_SIZE_PLACE)))?;
        let mut page = Page {
            count: u32::from_le_bytes(*head.first_chunk()?),
            more: flags & MORE != 0,
            answer,
            lease: u64::from_le_bytes(*head[LEASE_PLACE..].first_chunk()?),
            last_key,
            entries,
        };
        if answer != ScanAnswer::Count {
            if !last_key.is_empty() {
                return None;
            }
            let mut pairs = page.pairs();
            for _ in 0..page.count {
                (page.last_key, _) = pairs.next()?;
            }
            page.entries = &entries[..entries.len() - pairs.rest.len()];
        }
        let is_whole = page.entries.len() == entries.len() && (answer != ScanAnswer::Count || entries.is_empty());
        let has_last_key = (page.count > 0) != page.last_key.is_empty() && page.last_key.len() <= KEY_SIZE_MAX;
        (flags & !MORE == 0 && is_whole && has_last_key && (page.count > 0 || !page.more)).then_some(page)
    }

    /// Whether a page has room for so many pairs of this size.
    pub fn holds(pair_count: usize, key_size: usize, value_size: usize) -> bool {
        let entry_size = KEY_SIZE_SIZE + VALUE_SIZE_SIZE + key_size + value_size;
        pair_count == 1 || HEAD_SIZE + pair_count * entry_size <= PAGE_SIZE_GOAL
    }

    /// Number of pairs that are shown or counted.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Whether the range goes on behind the page.
    pub fn more(&self) -> bool {
        self.more
    }

    /// What the page holds of each pair.
    pub fn answer(&self) -> ScanAnswer {
        self.answer
    }

    /// The number of the lease to go on with.
    pub fn lease(&self) -> Option<u64> {
        (self.lease != 0).then_some(self.lease)
    }

    /// The key of the last pair; empty if there is none.
    pub fn last_key(&self) -> &'a [u8] {
        self.last_key
    }

    /// Keys and values in the order of the scan; none if they were counted only.
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
    /// An empty page behind what `out` holds.
    pub fn new(out: &'o mut Vec<u8>, answer: ScanAnswer) -> Self {
        let start = out.len();
        out.resize(start + HEAD_SIZE, 0);
        PageWriter { out, start, answer, count: 0 }
    }

    /// Number of pairs so far.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Whether another pair belongs on this page. The first always does.
    pub fn has_room(&self, key_size: usize, value_size: usize) -> bool {
        let entry_size = match self.answer {
            ScanAnswer::Pairs => KEY_SIZE_SIZE + VALUE_SIZE_SIZE + key_size + value_size,
            ScanAnswer::Keys => KEY_SIZE_SIZE + key_size,
            ScanAnswer::Count => return self.count < PAGE_COUNT_MAX,
        };
        self.count == 0 || self.out.len() - self.start + entry_size <= PAGE_SIZE_GOAL
    }

    /// Adds a pair, of whose value, if it is shown, `write_value` appends `value_size` bytes.
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
        assert_eq!(self.out.len() - start, value_size, "the value is as long as was said");
    }

    /// Completes the page. `last_key` is that of the last pair.
    pub fn finish(self, last_key: &[u8], more: bool, lease: Option<u64>) {
        let mut last_key_size = 0;
        if self.answer == ScanAnswer::Count {
            self.out.extend_from_slice(last_key);
            last_key_size = last_key.len() as u16;
        }
        let head = &mut self.out[self.start..][..HEAD_SIZE];
        head[..FLAGS_PLACE].copy_from_slice(&self.count.to_le_bytes());
        head[FLAGS_PLACE] = if more { MORE } else { 0 };
        head[ANSWER_PLACE] = self.answer as u8;
        head[LAST_KEY_SIZE_PLACE..LEASE_PLACE].copy_from_slice(&last_key_size.to_le_bytes());
        head[LEASE_PLACE..].copy_from_slice(&lease.unwrap_or(0).to_le_bytes());
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
    fn what_is_written_is_read() {
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

    /// Every page cut short, and every one with a byte changed, is refused or is another page; none panics.
    #[test]
    fn damaged_pages() {
        for answer in ScanAnswer::ALL {
            let whole = page(answer, PAIRS, true, Some(1));
            for size in 0..whole.len() {
                assert_eq!(Page::decode(&whole[..size]), None, "{answer:?} cut to {size}");
            }
            assert_eq!(Page::decode(&[&whole[..], b"x"].concat()), None, "{answer:?} with a byte more");
            for place in 0..whole.len() {
                for change in [1, 0x80, 0xff] {
                    let mut bytes = whole.clone();
                    bytes[place] ^= change;
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
