//! The effects of a section, as bytes: operations, and the differences of their versions.
//!
//! See [`EffectOrder`](crate::EffectOrder) for what versions are for.

use skep_core::operation::Request;
use skep_wire::native::{Operations, WireError};

/// The effects of a section, with their versions, which never decrease.
#[derive(Clone, Debug)]
pub struct Effects<'a> {
    version: u64,
    operations: Operations<'a>,
    differences: &'a [u8],
}

/// Appends a difference of versions, as LEB128.
pub(crate) fn write_difference(output: &mut Vec<u8>, mut difference: u64) {
    while difference >= 0x80 {
        output.push(difference as u8 | 0x80);
        difference >>= 7;
    }
    output.push(difference as u8);
}

/// Splits a difference off.
fn take_difference(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut difference = 0;
    for (index, &byte) in bytes.iter().enumerate().take(10) {
        let bits = u64::from(byte & 0x7f);
        difference |= bits.checked_shl(7 * index as u32).filter(|shifted| shifted >> (7 * index) == bits)?;
        if byte < 0x80 {
            return Some((difference, &bytes[index + 1..]));
        }
    }
    None
}

impl<'a> Effects<'a> {
    /// Returns the effects with the differences at the start of the bytes, and the bytes after these.
    pub(crate) fn decode(version: u64, operations: Operations<'a>, bytes: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let (mut rest, mut last) = (bytes, version);
        for _ in 0..operations.len() {
            let (difference, after) = take_difference(rest)?;
            last = last.checked_add(difference)?;
            rest = after;
        }
        Some((Effects { version, operations, differences: bytes }, rest))
    }
}

impl<'a> Iterator for Effects<'a> {
    type Item = Result<(u64, Request<'a>), WireError>;

    fn next(&mut self) -> Option<Self::Item> {
        let request = self.operations.next()?;
        let (difference, rest) = take_difference(self.differences)?;
        (self.version, self.differences) = (self.version + difference, rest);
        Some(request.map(|request| (self.version, request)))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.operations.size_hint()
    }
}

impl ExactSizeIterator for Effects<'_> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_of_any_size_return() {
        for difference in [0, 1, 0x7f, 0x80, 0x3fff, 0x4000, 1 << 62, u64::MAX] {
            let mut bytes = Vec::new();
            write_difference(&mut bytes, difference);
            bytes.push(7);
            assert_eq!(take_difference(&bytes), Some((difference, &[7][..])), "{difference}");
            assert_eq!(take_difference(&bytes[..bytes.len() - 2]), None);
        }
        assert_eq!(take_difference(&[0xff; 20]), None);
    }
}
