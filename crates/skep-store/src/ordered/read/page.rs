//! Scans in pages: translates a request to a range, and writes the pairs of the range to a page.

use super::super::leaf::cursor::Seen;
use super::super::node::overflow;
use super::super::node::value::{Content, Value};
use super::super::store::OrderedStore;
use super::super::version::clock::Snapshot;
use super::super::version::epoch::Guard;
use skep_core::operation::{PAGE_SKIPPED_MAX, PageWriter, Scan, ScanAnswer};

/// The end of a page.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PageEnd<'g> {
    /// The key after which the next page begins: that of the last pair. A page without pairs that ends among expired keys has
    /// the last of these. Empty if there is none.
    pub(crate) last_key: &'g [u8],
    /// True if more pairs of the range may follow.
    pub(crate) more: bool,
    /// Number of expired keys that were skipped.
    pub(crate) skipped: usize,
}

impl OrderedStore {
    /// Fills a page with the pairs of a valid scan from a key on, as of a snapshot.
    pub(crate) fn fill_page<'g>(
        &'g self,
        key: &[u8],
        scan: &Scan<'_>,
        snapshot: Snapshot,
        guard: &'g Guard<'_>,
        page: &mut PageWriter<'_>,
    ) -> PageEnd<'g> {
        let mut end = PageEnd::default();
        let f = |key: &'g [u8], seen: Seen<'g>| self.add_to_page(page, scan, &mut end, key, seen, guard);
        // One pair more tells if more pairs follow.
        let range = scan.range(key).limit(scan.limit as usize + 1);
        match scan.reverse {
            true => self.scan_reverse(range, snapshot, guard, f),
            false => self.scan(range, snapshot, guard, f),
        }
        end
    }

    /// Adds a pair to the page of a scan, or skips expired keys, and moves its end. Returns false if the page ends there.
    pub(crate) fn add_to_page<'g>(
        &'g self,
        page: &mut PageWriter<'_>,
        scan: &Scan<'_>,
        end: &mut PageEnd<'g>,
        key: &'g [u8],
        seen: Seen<'g>,
        guard: &Guard<'_>,
    ) -> bool {
        let value = match seen {
            Seen::Pair(value) => value,
            Seen::Expired(count) => {
                end.skipped += count;
                end.more = end.skipped >= PAGE_SKIPPED_MAX;
                // An expired key is only named if there is no pair to continue after.
                if end.more && page.count() == 0 {
                    end.last_key = key;
                }
                return !end.more;
            }
        };
        let value_size = shown_size(scan, &value);
        if page.count() == scan.limit || !page.has_room(key.len(), value_size) {
            end.more = true;
            return false;
        }
        page.push(key, value_size, |out| match value.content() {
            Content::Inside(bytes) => out.extend_from_slice(bytes),
            Content::Overflow(reference) => {
                overflow::with_parts(&self.frames, reference, guard, |_, part| out.extend_from_slice(part));
            }
        });
        end.last_key = key;
        true
    }
}

/// Returns the bytes that a value adds to the page of a scan.
pub(crate) fn shown_size(scan: &Scan<'_>, value: &Value<'_>) -> usize {
    if scan.answer == ScanAnswer::Pairs { value.size() } else { 0 }
}
