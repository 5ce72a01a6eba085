//! Scans in pages: translates a request to a range, and writes the pairs of the range to a page.

use super::super::node::overflow;
use super::super::node::segment::Value;
use super::super::store::OrderedStore;
use super::super::version::epoch::Guard;
use skep_core::operation::{PageWriter, Scan, ScanAnswer};

/// The end of a page.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PageEnd<'g> {
    /// The last pair's key; empty if there is none.
    pub(crate) last_key: &'g [u8],
    /// True if more pairs of the range follow.
    pub(crate) more: bool,
}

impl OrderedStore {
    /// Fills a page with the pairs of a valid scan from a key on, as of a version.
    pub(crate) fn fill_page<'g>(
        &'g self,
        key: &[u8],
        scan: &Scan<'_>,
        version: u64,
        guard: &'g Guard<'_>,
        page: &mut PageWriter<'_>,
    ) -> PageEnd<'g> {
        let mut end = PageEnd::default();
        let f = |key: &'g [u8], value: Value<'g>| self.add_to_page(page, scan, &mut end, (key, value), guard);
        // One pair more tells if more pairs follow.
        let range = scan.range(key).limit(scan.limit as usize + 1);
        match scan.reverse {
            true => self.scan_reverse(range, version, guard, f),
            false => self.scan(range, version, guard, f),
        }
        end
    }

    /// Adds a pair to the page of a scan, and moves its end. Returns false if the page ends before the pair.
    pub(crate) fn add_to_page<'g>(
        &'g self,
        page: &mut PageWriter<'_>,
        scan: &Scan<'_>,
        end: &mut PageEnd<'g>,
        (key, value): (&'g [u8], Value<'g>),
        guard: &Guard<'_>,
    ) -> bool {
        let value_size = shown_size(scan, &value);
        if page.count() == scan.limit || !page.has_room(key.len(), value_size) {
            end.more = true;
            return false;
        }
        page.push(key, value_size, |out| match value.is_overflow {
            true => overflow::with_parts(&self.frames, value.bytes, guard, |_, part| out.extend_from_slice(part)),
            false => out.extend_from_slice(value.bytes),
        });
        end.last_key = key;
        true
    }
}

/// Returns the bytes that a value adds to the page of a scan.
pub(crate) fn shown_size(scan: &Scan<'_>, value: &Value<'_>) -> usize {
    match value.is_overflow {
        _ if scan.answer != ScanAnswer::Pairs => 0,
        true => overflow::value_size(value.bytes),
        false => value.bytes.len(),
    }
}
