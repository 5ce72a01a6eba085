//! Ranges of an ordered space, and the pages in which a client reads a range.
//!
//! ```text
//! lowest ── start ▶│ page │ page │ ... │◀ end ── greatest        reversed: the last page is the first
//! ```
//!
//! All pages show the space at the moment of the first page. The server keeps that version by a lease. The lease
//! expires if no page is requested for five seconds, or for the time that the server was configured with. It expires
//! earlier if many pairs are overwritten or many leases are open. Then the scan returns
//! [`OperationError::LeaseExpired`](crate::OperationError::LeaseExpired) and has to begin again.

use skep_core::operation::{Operation, Page, Reply, Request, Scan, ScanAnswer, ScanEnd, ScanLease, ScanStart};
use skep_wire::native::{Response, WireError};

use crate::error::ClientError;

/// A key and its value.
pub type Pair = (Vec<u8>, Vec<u8>);

/// The pairs of an ordered space that a scan shows, and their order.
///
/// ```
/// use skep_client::KeyRange;
///
/// let users = KeyRange::prefix(b"user:");
/// let newest = KeyRange::prefix(b"event:").reverse().limit(10);
/// let some = KeyRange::all().at_or_above(b"a").below(b"b");
/// # let _ = (users, newest, some);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyRange<'k> {
    key: &'k [u8],
    start: ScanStart,
    end: ScanEnd<'k>,
    reverse: bool,
    limit: u64,
}

impl<'k> KeyRange<'k> {
    /// Returns the range of all pairs.
    pub fn all() -> Self {
        KeyRange { key: &[], start: ScanStart::AtOrAbove, end: ScanEnd::Last, reverse: false, limit: u64::MAX }
    }

    /// Returns the range of the pairs whose keys begin with these bytes.
    pub fn prefix(prefix: &'k [u8]) -> Self {
        KeyRange { key: prefix, end: ScanEnd::Prefix(prefix), ..KeyRange::all() }
    }

    /// Begins the range at the lowest key not below this one.
    #[must_use]
    pub fn at_or_above(self, key: &'k [u8]) -> Self {
        KeyRange { key, start: ScanStart::AtOrAbove, ..self }
    }

    /// Begins the range at the lowest key above this one.
    #[must_use]
    pub fn above(self, key: &'k [u8]) -> Self {
        KeyRange { key, start: ScanStart::Above, ..self }
    }

    /// Begins the range at the greatest key not above this one, or at the lowest of all keys if there is none.
    #[must_use]
    pub fn from_floor(self, key: &'k [u8]) -> Self {
        KeyRange { key, start: ScanStart::Floor, ..self }
    }

    /// Ends the range at the greatest key not above this one.
    #[must_use]
    pub fn at_or_below(self, key: &'k [u8]) -> Self {
        KeyRange { end: ScanEnd::AtOrBelow(key), ..self }
    }

    /// Ends the range at the greatest key below this one.
    #[must_use]
    pub fn below(self, key: &'k [u8]) -> Self {
        KeyRange { end: ScanEnd::Below(key), ..self }
    }

    /// Reverses the order: the greatest key is the first.
    #[must_use]
    pub fn reverse(self) -> Self {
        KeyRange { reverse: true, ..self }
    }

    /// Limits the number of pairs.
    #[must_use]
    pub fn limit(self, limit: u64) -> Self {
        KeyRange { limit, ..self }
    }
}

/// The progress of a scan, without the connection.
#[derive(Debug)]
pub(crate) struct ScanProgress<'k> {
    range: KeyRange<'k>,
    answer: ScanAnswer,
    /// Number of pairs that the limit still allows.
    left: u64,
    /// The last key of the last page. The scan continues after it.
    after: Option<Vec<u8>>,
    /// The floor is still to be found: at that key or below it.
    seeks_floor: bool,
    lease: ScanLease,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// More pages are to be requested.
    Pages,
    /// The lease is to be released, because no further page is wanted.
    Release,
    /// Nothing is left to request.
    Ended,
}

impl<'k> ScanProgress<'k> {
    /// Returns the state before the first page. A scan with a limit begins without a lease, because one page usually
    /// holds all of it.
    pub(crate) fn new(range: KeyRange<'k>, answer: ScanAnswer) -> Self {
        let lease = if range.limit == u64::MAX { ScanLease::Open } else { ScanLease::None };
        let state = if range.limit == 0 { State::Ended } else { State::Pages };
        ScanProgress { range, answer, left: range.limit, after: None, seeks_floor: false, lease, state }
    }

    /// Returns the next request, if any.
    pub(crate) fn request(&self) -> Option<Request<'_>> {
        let KeyRange { mut key, start, end, reverse, .. } = self.range;
        let limit = u32::try_from(self.left).unwrap_or(u32::MAX);
        let mut scan = Scan { start, end, reverse, limit, answer: self.answer, lease: self.lease };
        match &self.after {
            Some(after) if reverse => {
                // A prefix bounds the start too. The new end no longer contains the prefix, so the start must.
                (scan.start, key) = scan.start_at(key);
                scan.end = ScanEnd::Below(after);
                if self.seeks_floor {
                    key = after;
                }
            }
            Some(after) if self.seeks_floor => (key, scan.start) = (after, ScanStart::Floor),
            Some(after) => (key, scan.start) = (after, ScanStart::Above),
            None => {}
        }
        match self.state {
            State::Ended => return None,
            State::Pages => {}
            State::Release => {
                // An empty range: its page is the last one, which ends the lease.
                (key, scan.start, scan.end, scan.limit) = (&[], ScanStart::AtOrAbove, ScanEnd::Below(&[]), 1);
            }
        }
        Some(Request { key, operation: Operation::Scan(scan) })
    }

    /// Processes the reply to the request. Returns a page, or `None` if the reply shows nothing. After an error other
    /// than [`WireError::Busy`] and [`WireError::TooFast`] the scan has ended.
    pub(crate) fn receive<'r>(&mut self, response: Response<'r>) -> Result<Option<Page<'r>>, ClientError> {
        let page = self.decode(response);
        if !matches!(page, Ok(_) | Err(ClientError::Rejected(WireError::Busy | WireError::TooFast))) {
            self.state = State::Ended;
        }
        page
    }

    /// Ends the scan, because the connection can no longer be used.
    pub(crate) fn end(&mut self) {
        self.state = State::Ended;
    }

    fn decode<'r>(&mut self, response: Response<'r>) -> Result<Option<Page<'r>>, ClientError> {
        if self.state == State::Release {
            // A lease that could not be released expires.
            self.state = State::Ended;
            return Ok(None);
        }
        let bytes = match response? {
            Reply::Value(bytes) => bytes,
            Reply::Failed(error) => return Err(error.into()),
            _ => return Err(ClientError::UnexpectedReply),
        };
        let page =
            Page::decode(bytes).filter(|page| page.answer() == self.answer && u64::from(page.count()) <= self.left);
        let page = page.ok_or(ClientError::UnexpectedReply)?;
        let left = self.left - u64::from(page.count());
        if page.more() && left > 0 && self.lease == ScanLease::None {
            // The range is longer than one page. The scan begins again with a lease, so that all pages show one moment.
            self.lease = ScanLease::Open;
            return Ok(None);
        }
        self.left = left;
        self.state = match (page.more(), left, page.lease()) {
            (true, 1.., Some(lease)) => {
                let Some(Request { key, operation: Operation::Scan(scan) }) = self.request() else {
                    return Err(ClientError::UnexpectedReply);
                };
                self.seeks_floor = scan.seeks_floor(key, &page);
                self.after = Some(page.last_key().to_vec());
                self.lease = ScanLease::Continue(lease);
                State::Pages
            }
            (true, 1.., None) => return Err(ClientError::UnexpectedReply),
            (true, 0, Some(lease)) => {
                self.lease = ScanLease::Continue(lease);
                State::Release
            }
            _ => State::Ended,
        };
        Ok(Some(page))
    }
}

/// Returns the pairs of a page.
pub(crate) fn pairs(page: &Page<'_>) -> Vec<Pair> {
    page.pairs().map(|(key, value)| (key.to_vec(), value.to_vec())).collect()
}

/// Returns the number of pairs that a page counts.
pub(crate) fn count(page: &Page<'_>) -> u64 {
    u64::from(page.count())
}

/// Returns the keys of a page.
pub(crate) fn keys(page: &Page<'_>) -> Vec<Vec<u8>> {
    page.pairs().map(|(key, _)| key.to_vec()).collect()
}

#[cfg(test)]
mod tests {
    use skep_core::operation::PageWriter;

    use super::*;

    fn page(keys: &[&[u8]], last_key: &[u8], lease: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut writer = PageWriter::new(&mut bytes, ScanAnswer::Keys);
        keys.iter().for_each(|key| writer.push(key, 0, |_| {}));
        writer.finish(last_key, true, Some(lease));
        bytes
    }

    /// The server has skipped expired keys below the start, and not yet found the floor.
    #[test]
    fn a_scan_goes_on_looking_for_its_floor_below_expired_keys() {
        for reverse in [false, true] {
            let range = KeyRange { reverse, ..KeyRange::all().from_floor(b"m") };
            let mut progress = ScanProgress::new(range, ScanAnswer::Keys);
            for (last_key, start, end) in
                [(&b"k"[..], (ScanStart::Floor, &b"k"[..]), &b"k"[..]), (b"c", (ScanStart::Floor, b"c"), b"c")]
            {
                progress.receive(Ok(Reply::Value(&page(&[], last_key, 7)))).unwrap();
                let Some(Request { key, operation: Operation::Scan(scan) }) = progress.request() else { panic!() };
                assert_eq!((scan.start, key), start);
                assert_eq!(scan.end, if reverse { ScanEnd::Below(end) } else { ScanEnd::Last });
            }
            if !reverse {
                // The floor is found: the scan continues above it.
                progress.receive(Ok(Reply::Value(&page(&[b"a"], b"a", 7)))).unwrap();
                let Some(Request { key, operation: Operation::Scan(scan) }) = progress.request() else { panic!() };
                assert_eq!((scan.start, key), (ScanStart::Above, &b"a"[..]));
            }
        }
    }
}
