//! Short scans of a batch that run as a group.
//!
//! ```text
//! requests   scan a │ scan b │ scan c │ put d │ scan e
//! executed   a b c, in turn            put d   e
//! ```
//!
//! 1. Scans wait while the requests after them are short scans too.
//! 2. A group of them is executed as of one snapshot. Each scan takes a step in turn, so that the cache misses of different
//!    scans overlap, and fills a page of its own.
//! 3. The pages are copied to the replies.
//!
//! The size of a page is known when it is filled. A page that has no room ends the group: its scan is deferred, with all
//! scans after it. If a page begins with a value that is larger than a page, the group ends there too.
//! That scan runs alone, and the scans after it form another group. So no scan shows an older state than one before it.

use super::super::leaf::cursor::Seen;
use super::super::read::page::{PageEnd, shown_size};
use super::super::store::OrderedStore;
use super::super::version::epoch::Guard;
use crate::processor::Replies;
use skep_core::operation::{Operation, PAGE_SIZE_GOAL, PageWriter, Range, Reply, Request, Scan, ScanLease};

/// Scans of a group. Their pages may exceed the reply budget of a batch, which ends with the group: by half a mebibyte.
pub(super) const SCANS_AT_ONCE: usize = 8;

/// Bytes that each pair of a scan adds to the work of a batch, besides its reply: a line.
pub(super) const PAIR_WORK: usize = crate::memory::LINE_SIZE;

/// The largest limit of a short scan. A longer one prefetches more by itself.
const SHORT_LIMIT: u32 = 256;

/// Bytes of memory that a page keeps from group to group.
const KEPT_PAGE_SIZE: usize = 2 * PAGE_SIZE_GOAL;

/// A scan of a group.
struct Filling<'p, 'g, 'r> {
    scan: &'r Scan<'r>,
    page: PageWriter<'p>,
    end: PageEnd<'g>,
    /// Its first value is larger than a page.
    is_large: bool,
}

/// Returns the scan if the request is a short one that may be a part of a group.
pub(super) fn short_scan<'r>(request: &'r Request<'r>) -> Option<&'r Scan<'r>> {
    match &request.operation {
        Operation::Scan(scan) => {
            let is_short = scan.limit <= SHORT_LIMIT && !scan.reverse && scan.lease == ScanLease::None;
            is_short.then_some(scan)
        }
        _ => None,
    }
}

impl OrderedStore {
    /// Executes short scans as a group, all as of one snapshot. Stops at the first one whose page has no room, or begins with a
    /// value that is larger than a page. Returns the number of scans before it, whose replies are set, and whether its page
    /// had room.
    pub(super) fn scan_pages(
        &self,
        requests: &[Request<'_>],
        indexes: &[usize],
        pages: &mut [Vec<u8>; SCANS_AT_ONCE],
        replies: &mut Replies,
        guard: &Guard<'_>,
    ) -> (usize, bool) {
        let snapshot = self.snapshot();
        let mut ranges = [Range::ALL; SCANS_AT_ONCE];
        let mut buffers = pages.iter_mut();
        let mut fillings: [Option<Filling<'_, '_, '_>>; SCANS_AT_ONCE] = std::array::from_fn(|number| {
            let request = &requests[*indexes.get(number)?];
            let scan = short_scan(request)?;
            // One pair more tells if more pairs follow.
            ranges[number] = scan.range(request.key).limit(scan.limit as usize + 1);
            let page = PageWriter::new(buffers.next()?, scan.answer);
            Some(Filling { scan, page, end: PageEnd::default(), is_large: false })
        });
        self.scan_group(&ranges[..indexes.len()], snapshot, guard, |number, key, seen| {
            let Some(Filling { scan, page, end, is_large }) = &mut fillings[number] else { return false };
            let shown = if let Seen::Pair(value) = &seen { shown_size(scan, value) } else { 0 };
            *is_large = page.count() == 0 && shown > PAGE_SIZE_GOAL;
            !*is_large && self.add_to_page(page, scan, end, key, seen, guard)
        });
        let mut counts = [0; SCANS_AT_ONCE];
        let (mut done, mut has_room) = (indexes.len(), true);
        for (number, filling) in fillings.into_iter().enumerate() {
            let Some(Filling { page, end, is_large, .. }) = filling else { continue };
            counts[number] = page.count() as usize + end.skipped;
            if is_large {
                done = done.min(number);
            }
            page.finish(end.last_key, end.more, None);
        }
        for (number, page) in pages.iter_mut().enumerate() {
            if number < done && !replies.has_room(page.len()) {
                (done, has_room) = (number, false);
                replies.touch_large(page.len() + counts[number] * PAIR_WORK);
            }
            if number < done {
                replies.set(indexes[number], Reply::Value(page));
                replies.use_room(page.len());
                replies.touch_large_for(indexes[number], page.len() + counts[number] * PAIR_WORK);
            }
            page.clear();
            page.shrink_to(KEPT_PAGE_SIZE);
        }
        (done, has_room)
    }
}
