//! The newest effects on the keys of a range, within a budget of memory: for the recovery of the ordered space.
//!
//! ```text
//! bytes   | effect | effect | effect | ...            in the order in which they were added
//! index   offsets: in the order of keys | as added
//!
//! effect  0             8      12         14            18       26
//!         | version,kind | rank | key size | [value size] | [expiry] | key | value |
//!           u64            u32    u16        u32            u64
//! ```
//!
//! 1. An effect is appended. Earlier ones on its key stay until there is no more room.
//! 2. Then the index is sorted by keys, and only the last effect of each key remains. If less than an eighth of the room
//!    is free after that, those on the greatest keys are dropped, and the range ends before them.
//! 3. Each effect notes its *rank*, which is its place in the index. So the bytes can be packed in the order of their offsets,
//!    and the index learns where each of them has moved.
//!
//! **What it costs.** An effect takes 18 to 26 bytes, those of its key and value, and 16 in the index and for sorting it. A
//! reading of the log ends with at least seven eighths of the budget in use, unless all effects have fitted.

use std::ops::Range;

use skep_core::operation::Expiry;

/// The bytes of an effect without its value size, its expiry, its key and its value.
const HEADER_SIZE: usize = 14;
/// The bytes of an effect in the index, and in the memory for sorting it.
const INDEX_SIZE: usize = 16;
/// The most bytes of an effect besides its key and its value.
#[cfg(test)]
pub(super) const EFFECT_SIZE: usize = HEADER_SIZE + 4 + 8 + INDEX_SIZE;

const DELETE: u64 = 0;
const VALUE: u64 = 1;
const VALUE_WITH_EXPIRY: u64 = 2;
/// The rank of an effect that is not in the index.
const UNRANKED: u32 = u32::MAX;

/// The value and the expiry of a key; `None` if there is no key.
pub(super) type State<'a> = Option<(&'a [u8], Option<Expiry>)>;

/// The newest effects on the keys of a range.
pub(super) struct NewestEffects {
    bytes: Vec<u8>,
    index: Vec<u64>,
    /// The effects of the index up to this one are sorted, and each of them is on another key.
    sorted: usize,
    /// The effects of the index up to this one were taken.
    taken: usize,
    /// The range. It has no end if there was room for all effects.
    from: Vec<u8>,
    pub(super) to: Option<Vec<u8>>,
    size_max: usize,
}

/// An effect: the version, and the state that it gives its key.
pub(super) struct NewestEffect<'a> {
    pub(super) key: &'a [u8],
    pub(super) version: u64,
    pub(super) state: State<'a>,
}

fn number<const SIZE: usize>(bytes: &[u8], offset: usize) -> [u8; SIZE] {
    bytes[offset..offset + SIZE].try_into().expect("as many bytes")
}

/// The parts of an effect.
struct Parts {
    kind: u64,
    version: u64,
    expiry: Option<Expiry>,
    key: Range<usize>,
    value: Range<usize>,
}

impl Parts {
    fn of(bytes: &[u8], offset: usize) -> Parts {
        let first = u64::from_le_bytes(number(bytes, offset));
        let (version, kind) = (first >> 2, first & 3);
        let key_size = usize::from(u16::from_le_bytes(number(bytes, offset + 12)));
        let mut at = offset + HEADER_SIZE;
        let (mut value_size, mut expiry) = (0, None);
        if kind != DELETE {
            value_size = u32::from_le_bytes(number(bytes, at)) as usize;
            at += 4;
        }
        if kind == VALUE_WITH_EXPIRY {
            expiry = Expiry::at(i64::from_le_bytes(number(bytes, at)));
            at += 8;
        }
        let key = at..at + key_size;
        Parts { kind, version, expiry, value: key.end..key.end + value_size, key }
    }
}

fn key_at(bytes: &[u8], offset: u64) -> &[u8] {
    &bytes[Parts::of(bytes, offset as usize).key]
}

impl NewestEffects {
    /// Returns the effects on all keys from this one on, as far as they fit this many bytes.
    pub(super) fn new(from: Vec<u8>, size_max: usize) -> NewestEffects {
        NewestEffects { bytes: Vec::new(), index: Vec::new(), sorted: 0, taken: 0, from, to: None, size_max }
    }

    /// Begins with the effects on the keys from this one on.
    pub(super) fn restart(&mut self, from: Vec<u8>) {
        self.bytes.clear();
        self.index.clear();
        (self.sorted, self.taken, self.from, self.to) = (0, 0, from, None);
    }

    /// Returns the range of the keys.
    pub(super) fn range(&self) -> (Vec<u8>, Option<Vec<u8>>) {
        (self.from.clone(), self.to.clone())
    }

    /// Returns true if a key is in the range.
    pub(super) fn has(&self, key: &[u8]) -> bool {
        key >= &self.from[..] && self.to.as_ref().is_none_or(|to| key < &to[..])
    }

    /// Returns the bytes that the effects take.
    pub(super) fn size(&self) -> usize {
        self.bytes.len() + self.index.len() * INDEX_SIZE
    }

    /// Adds an effect on a key of the range, which is newer than all before it.
    pub(super) fn insert(&mut self, key: &[u8], version: u64, state: State<'_>) {
        self.index.push(self.bytes.len() as u64);
        let kind = match state {
            None => DELETE,
            Some((_, None)) => VALUE,
            Some((_, Some(_))) => VALUE_WITH_EXPIRY,
        };
        self.bytes.extend_from_slice(&(version << 2 | kind).to_le_bytes());
        self.bytes.extend_from_slice(&UNRANKED.to_le_bytes());
        self.bytes.extend_from_slice(&u16::try_from(key.len()).expect("a key is short").to_le_bytes());
        if let Some((value, expiry)) = state {
            let size = u32::try_from(value.len()).expect("a value is shorter than 4 GiB");
            self.bytes.extend_from_slice(&size.to_le_bytes());
            if let Some(expiry) = expiry {
                self.bytes.extend_from_slice(&expiry.milliseconds().to_le_bytes());
            }
        }
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(state.map_or(&[], |(value, _)| value));
        if self.size() > self.size_max || self.index.len() >= UNRANKED as usize {
            self.make_room();
        }
    }

    /// Sorts the index. Only the last effect of each key remains.
    fn sort(&mut self) {
        if self.sorted == self.index.len() {
            return;
        }
        let bytes = &self.bytes;
        // It is stable, so the last one is the newest. It finds the part that is sorted already.
        self.index.sort_by(|one, other| key_at(bytes, *one).cmp(key_at(bytes, *other)));
        let mut kept = 0;
        for place in 0..self.index.len() {
            let next = self.index.get(place + 1);
            if next.is_none_or(|next| key_at(bytes, *next) != key_at(bytes, self.index[place])) {
                self.index[kept] = self.index[place];
                kept += 1;
            }
        }
        self.index.truncate(kept);
        self.sorted = kept;
    }

    /// Removes effects that are not the newest, and those on the greatest keys if that is not enough.
    fn make_room(&mut self) {
        self.sort();
        let size = |offset: u64| Parts::of(&self.bytes, offset as usize).value.end - offset as usize + INDEX_SIZE;
        let (mut count, mut left) = (0, self.size_max - self.size_max / 8);
        // At least one remains, so that the range is not empty.
        while count < self.index.len()
            && (count == 0 || size(self.index[count]) <= left)
            && count < UNRANKED as usize / 2
        {
            left = left.saturating_sub(size(self.index[count]));
            count += 1;
        }
        if let Some(offset) = self.index.get(count) {
            self.to = Some(key_at(&self.bytes, *offset).to_vec());
            self.index.truncate(count);
        }
        self.sorted = self.index.len();
        self.pack();
    }

    /// Moves the effects of the index together.
    fn pack(&mut self) {
        for (rank, offset) in (0_u32..).zip(&self.index) {
            self.bytes[*offset as usize + 8..][..4].copy_from_slice(&rank.to_le_bytes());
        }
        let (mut from, mut to) = (0, 0);
        while from < self.bytes.len() {
            let end = Parts::of(&self.bytes, from).value.end;
            let rank = u32::from_le_bytes(number(&self.bytes, from + 8));
            if rank != UNRANKED {
                self.index[rank as usize] = to as u64;
                self.bytes[from + 8..][..4].copy_from_slice(&UNRANKED.to_le_bytes());
                self.bytes.copy_within(from..end, to);
                to += end - from;
            }
            from = end;
        }
        self.bytes.truncate(to);
    }

    /// Takes the effect on the lowest key, if `is_taken` returns true for this key.
    pub(super) fn take(&mut self, is_taken: impl Fn(&[u8]) -> bool) -> Option<NewestEffect<'_>> {
        self.sort();
        let offset = *self.index.get(self.taken)?;
        let parts = Parts::of(&self.bytes, offset as usize);
        let key = &self.bytes[parts.key];
        if !is_taken(key) {
            return None;
        }
        self.taken += 1;
        let state = (parts.kind != DELETE).then(|| (&self.bytes[parts.value], parts.expiry));
        Some(NewestEffect { key, version: parts.version, state })
    }
}
