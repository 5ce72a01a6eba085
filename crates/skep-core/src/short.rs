//! Up to eight bytes as one little-endian number.
//!
//! ```text
//! bytes    ├ a b c d e f ┤
//! loads    ├ a b c d ┤
//!              ├ c d e f ┤       two loads that may overlap
//! ```
//!
//! Keys, counters and most values of a cache line are that short, and a call to copy two bytes costs more than the rest
//! of an operation.

/// Most bytes of a short value.
pub const SHORT_SIZE_MAX: usize = 8;

/// Returns the bytes as a number, zeros above them; of more than eight, the first eight.
#[inline(always)]
pub fn load_short(bytes: &[u8]) -> u64 {
    load_masked(bytes).0
}

/// Returns the bytes as [`load_short`] does, and a mask of them.
#[inline(always)]
pub fn load_masked(bytes: &[u8]) -> (u64, u64) {
    if let Some(first) = bytes.first_chunk() {
        return (u64::from_le_bytes(*first), u64::MAX);
    }
    let size = bytes.len();
    let word = if let (Some(first), Some(last)) = (bytes.first_chunk(), bytes.last_chunk()) {
        u64::from(u32::from_le_bytes(*first)) | u64::from(u32::from_le_bytes(*last)) << (8 * (size - 4))
    } else if let (Some(first), Some(last)) = (bytes.first_chunk(), bytes.last_chunk()) {
        u64::from(u16::from_le_bytes(*first)) | u64::from(u16::from_le_bytes(*last)) << (8 * (size - 2))
    } else {
        u64::from(bytes.first().copied().unwrap_or(0))
    };
    (word, (1 << (8 * size)) - 1)
}

/// Copies bytes over others of the same number. Two to sixteen are copied as two words that may overlap.
#[inline(always)]
pub fn overwrite(old: &mut [u8], new: &[u8]) {
    debug_assert_eq!(old.len(), new.len());
    #[inline(always)]
    fn by_words<const N: usize>(old: &mut [u8], new: &[u8]) -> Option<()> {
        let (first, last) = (*new.first_chunk::<N>()?, *new.last_chunk::<N>()?);
        *old.first_chunk_mut()? = first;
        *old.last_chunk_mut()? = last;
        Some(())
    }
    // Most have eight bytes or more.
    let copied = if matches!(new.len(), 8..=16) {
        by_words::<8>(old, new)
    } else {
        match new.len() {
            2..=3 => by_words::<2>(old, new),
            4..=7 => by_words::<4>(old, new),
            _ => None,
        }
    };
    if copied.is_none() {
        old.copy_from_slice(new);
    }
}

/// Most bytes that [`padded`] takes.
pub const PADDED_SIZE: usize = 2 * SHORT_SIZE_MAX;

/// Returns up to sixteen bytes with zeros after them, or `None` if there are more. They are copied as two words that may
/// overlap.
#[inline(always)]
pub fn padded(bytes: &[u8]) -> Option<[u8; PADDED_SIZE]> {
    let (size, mut words) = (bytes.len(), [0; PADDED_SIZE]);
    if size > PADDED_SIZE {
        return None;
    }
    words[..SHORT_SIZE_MAX].copy_from_slice(&load_short(bytes).to_le_bytes());
    if let Some(last) = bytes.last_chunk::<SHORT_SIZE_MAX>() {
        words[size - SHORT_SIZE_MAX..size].copy_from_slice(last);
    }
    Some(words)
}

/// Appends bytes to a buffer. Up to sixteen are copied with what pads them, which is taken back.
#[inline(always)]
pub fn append(buffer: &mut Vec<u8>, bytes: &[u8]) {
    let Some(words) = padded(bytes) else { return buffer.extend_from_slice(bytes) };
    let end = buffer.len() + bytes.len();
    buffer.extend_from_slice(&words);
    buffer.truncate(end);
}

/// Returns true if two runs are the same. Eight to sixteen bytes are compared as two words that may overlap.
#[inline(always)]
pub fn equal(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    let ends = |bytes: &[u8]| {
        let word = |bytes: &[u8; SHORT_SIZE_MAX]| u64::from_le_bytes(*bytes);
        Some((word(bytes.first_chunk()?), word(bytes.last_chunk()?)))
    };
    match (ends(a), ends(b)) {
        (Some(ends_a), Some(ends_b)) => ends_a == ends_b && (a.len() <= 2 * SHORT_SIZE_MAX || a == b),
        _ => load_short(a) == load_short(b),
    }
}

/// Returns true if a run is before another in the order of bytes. Mostly the first eight or sixteen bytes decide.
#[inline(always)]
pub fn is_below(a: &[u8], b: &[u8]) -> bool {
    let words = |index: usize| {
        let word = |run: &[u8]| run.get(index..)?.first_chunk().map(|word| u64::from_be_bytes(*word));
        Some((word(a)?, word(b)?))
    };
    for index in [0, SHORT_SIZE_MAX] {
        match words(index) {
            Some((a, b)) if a == b => {}
            Some((a, b)) => return a < b,
            None => break,
        }
    }
    a < b
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_run_is_its_bytes_and_zeros() {
        let bytes: Vec<u8> = (1..=12).collect();
        for size in 0..=bytes.len() {
            let mut first = [0; SHORT_SIZE_MAX];
            let kept = size.min(SHORT_SIZE_MAX);
            first[..kept].copy_from_slice(&bytes[..kept]);
            assert_eq!(load_short(&bytes[..size]).to_le_bytes(), first, "{size} bytes");
            let mask = if size == 0 { 0 } else { u64::MAX >> (64 - 8 * kept) };
            assert_eq!(load_masked(&bytes[..size]).1, mask, "{size} bytes");
        }
    }

    #[test]
    fn runs_differ_in_any_byte() {
        for size in 0..=40 {
            let a: Vec<u8> = (1..=size).collect();
            assert!(equal(&a, &a.clone()) && !is_below(&a, &a.clone()));
            for index in 0..a.len() {
                let mut b = a.clone();
                b[index] ^= 0x80;
                assert!(!equal(&a, &b), "{size} bytes, byte {index}");
                assert!(!equal(&a, &a[..index]));
                assert!(is_below(&a, &b) && !is_below(&b, &a));
                assert!(is_below(&a[..index], &b) && !is_below(&a, &a[..index]));
            }
        }
    }

    #[test]
    fn all_bytes_are_appended_and_no_others() {
        for size in 0..=40 {
            let new: Vec<u8> = (1..=size).collect();
            let mut buffer = vec![0xff];
            append(&mut buffer, &new);
            assert_eq!(buffer, [&[0xff][..], &new].concat(), "{size} bytes");
        }
    }

    #[test]
    fn all_bytes_are_overwritten_and_no_others() {
        for size in 0..=40 {
            let new: Vec<u8> = (1..=size).collect();
            let mut old = [0xff; 42];
            overwrite(&mut old[1..=usize::from(size)], &new);
            assert_eq!(old[1..=usize::from(size)], new);
            assert_eq!((old[0], old[usize::from(size) + 1]), (0xff, 0xff), "{size} bytes");
        }
    }
}
