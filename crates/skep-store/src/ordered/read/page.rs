//! Scans in pages: translates a request to a range, and writes the pairs of the range to a page.

use super::super::leaf::range::{End, Range, Start};
use super::super::node::overflow;
use super::super::node::segment::Value;
use super::super::store::OrderedStore;
use super::super::trace::Trace;
use super::super::version::epoch::Guard;
use skep_core::operation::{KEY_SIZE_MAX, PageWriter, Scan, ScanAnswer, ScanEnd, ScanStart};

/// The end of a page.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PageEnd<'g> {
    /// The last pair's key; empty if there is none.
    pub(crate) last_key: &'g [u8],
    /// True if more pairs of the range follow.
    pub(crate) more: bool,
}

impl<T: Trace> OrderedStore<T> {
    /// Fills a page with the pairs of a valid scan from a key on, as of a version.
    pub(crate) fn fill_page<'g>(
        &'g self,
        key: &[u8],
        scan: &Scan<'_>,
        version: u64,
        guard: &'g Guard<'_>,
        page: &mut PageWriter<'_>,
    ) -> PageEnd<'g> {
        let mut successor = [0; KEY_SIZE_MAX];
        let (start, key) = scan.start_at(key);
        let start = match start {
            ScanStart::AtOrAbove => Start::AtOrAbove(key),
            ScanStart::Above => Start::Above(key),
            ScanStart::Floor => Start::Floor(key),
        };
        let end = match scan.end {
            ScanEnd::Last => End::Last,
            ScanEnd::AtOrBelow(end) => End::AtOrBelow(end),
            ScanEnd::Below(end) => End::Below(end),
            ScanEnd::Prefix(prefix) => end_of_prefix(prefix, &mut successor),
        };
        let mut reached = PageEnd { last_key: &[], more: false };
        let f = |key: &'g [u8], value: Value<'g>| {
            let is_shown = scan.answer == ScanAnswer::Pairs;
            let value_size = match value.is_overflow {
                _ if !is_shown => 0,
                true => overflow::value_size(value.bytes),
                false => value.bytes.len(),
            };
            if page.count() == scan.limit || !page.has_room(key.len(), value_size) {
                reached.more = true;
                return false;
            }
            page.push(key, value_size, |out| match value.is_overflow {
                true => overflow::with_parts(&self.frames, value.bytes, guard, |_, part| out.extend_from_slice(part)),
                false => out.extend_from_slice(value.bytes),
            });
            reached.last_key = key;
            true
        };
        // One pair more tells if more pairs follow.
        let range = Range::new(start, end).limit(scan.limit as usize + 1);
        match scan.reverse {
            true => self.scan_reverse(range, version, guard, f),
            false => self.scan(range, version, guard, f),
        }
        reached
    }
}

/// Returns the end of the keys that begin with a prefix: below the prefix with its last byte incremented, without
/// trailing bytes that cannot be.
fn end_of_prefix<'s>(prefix: &[u8], successor: &'s mut [u8; KEY_SIZE_MAX]) -> End<'s> {
    let Some(last) = prefix.iter().rposition(|byte| *byte != u8::MAX) else { return End::Last };
    successor[..=last].copy_from_slice(&prefix[..=last]);
    successor[last] += 1;
    End::Below(&successor[..=last])
}
