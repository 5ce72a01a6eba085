//! Ranges of an ordered space, and the pages in which a client goes through one.
//!
//! ```text
//! lowest ── start ▶│ page │ page │ ... │◀ end ── greatest        reversed: the last page comes first
//! ```
//!
//! All pages show the space at one moment, that of the first: the server keeps it by a lease, which expires when nobody asks
//! for the next page for five seconds (unless the server was told another time), or earlier when many pairs are overwritten
//! or many leases are open. Then the scan ends with
//! [`OperationError::LeaseExpired`](crate::OperationError::LeaseExpired) and has to begin again.

use skep_core::operation::{Operation, Page, Reply, Request, Scan, ScanAnswer, ScanEnd, ScanLease, ScanStart};
use skep_wire::native::{Response, WireError};

use crate::error::ClientError;

/// A key and its value.
pub type Pair = (Vec<u8>, Vec<u8>);

/// Which pairs of an ordered space a scan goes through, and in which order.
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
    /// All pairs.
    pub fn all() -> Self {
        KeyRange { key: &[], start: ScanStart::AtOrAbove, end: ScanEnd::Last, reverse: false, limit: u64::MAX }
    }

    /// The pairs whose keys begin with these bytes.
    pub fn prefix(prefix: &'k [u8]) -> Self {
        KeyRange { key: prefix, end: ScanEnd::Prefix(prefix), ..KeyRange::all() }
    }

    /// From the lowest key not below this one.
    #[must_use]
    pub fn at_or_above(self, key: &'k [u8]) -> Self {
        KeyRange { key, start: ScanStart::AtOrAbove, ..self }
    }

    /// From the lowest key above this one.
    #[must_use]
    pub fn above(self, key: &'k [u8]) -> Self {
        KeyRange { key, start: ScanStart::Above, ..self }
    }

    /// From the greatest key not above this one, or from the lowest of all if there is none.
    #[must_use]
    pub fn from_floor(self, key: &'k [u8]) -> Self {
        KeyRange { key, start: ScanStart::Floor, ..self }
    }

    /// Up to the greatest key not above this one.
    #[must_use]
    pub fn at_or_below(self, key: &'k [u8]) -> Self {
        KeyRange { end: ScanEnd::AtOrBelow(key), ..self }
    }

    /// Up to the greatest key below this one.
    #[must_use]
    pub fn below(self, key: &'k [u8]) -> Self {
        KeyRange { end: ScanEnd::Below(key), ..self }
    }

    /// The greatest key first.
    #[must_use]
    pub fn reverse(self) -> Self {
        KeyRange { reverse: true, ..self }
    }

    /// No more than so many pairs.
    #[must_use]
    pub fn limit(self, limit: u64) -> Self {
        KeyRange { limit, ..self }
    }
}

/// How far a scan has come, without the connection.
#[derive(Debug)]
pub(crate) struct ScanProgress<'k> {
    range: KeyRange<'k>,
    answer: ScanAnswer,
    /// Pairs that may still come.
    left: u64,
    /// The last key of the last page; the scan goes on behind it.
    after: Option<Vec<u8>>,
    lease: ScanLease,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Pages are to be asked for.
    Pages,
    /// The lease is to be given back: what it keeps is not wanted.
    Release,
    /// Nothing is.
    Ended,
}

impl<'k> ScanProgress<'k> {
    /// Before the first page. A scan that is limited begins without a lease: as a rule one page is all of it.
    pub(crate) fn new(range: KeyRange<'k>, answer: ScanAnswer) -> Self {
        let lease = if range.limit == u64::MAX { ScanLease::Open } else { ScanLease::None };
        let state = if range.limit == 0 { State::Ended } else { State::Pages };
        ScanProgress { range, answer, left: range.limit, after: None, lease, state }
    }

    /// What to ask for next.
    pub(crate) fn request(&self) -> Option<Request<'_>> {
        let KeyRange { mut key, start, end, reverse, .. } = self.range;
        let limit = u32::try_from(self.left).unwrap_or(u32::MAX);
        let mut scan = Scan { start, end, reverse, limit, answer: self.answer, lease: self.lease };
        match &self.after {
            Some(after) if reverse => {
                // A prefix bounds the start too. The new end says nothing of it, so the start has to.
                (scan.start, key) = scan.start_at(key);
                scan.end = ScanEnd::Below(after);
            }
            Some(after) => (key, scan.start) = (after, ScanStart::Above),
            None => {}
        }
        match self.state {
            State::Ended => return None,
            State::Pages => {}
            State::Release => {
                // A range in which nothing lies: the page that nothing follows ends the lease.
                (key, scan.start, scan.end, scan.limit) = (&[], ScanStart::AtOrAbove, ScanEnd::Below(&[]), 1);
            }
        }
        Some(Request { key, operation: Operation::Scan(scan) })
    }

    /// Takes the answer to the request: a page, `None` if there is nothing to show of it. After an error other than
    /// [`WireError::Busy`] the scan has ended.
    pub(crate) fn answered<'r>(&mut self, response: Response<'r>) -> Result<Option<Page<'r>>, ClientError> {
        let taken = self.take(response);
        if !matches!(taken, Ok(_) | Err(ClientError::Rejected(WireError::Busy))) {
            self.state = State::Ended;
        }
        taken
    }

    /// Asks for nothing more: the connection is of no use.
    pub(crate) fn end(&mut self) {
        self.state = State::Ended;
    }

    fn take<'r>(&mut self, response: Response<'r>) -> Result<Option<Page<'r>>, ClientError> {
        if self.state == State::Release {
            // A lease that could not be given back expires.
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
            // It is longer than a page after all. From the beginning, so that all of it shows one moment.
            self.lease = ScanLease::Open;
            return Ok(None);
        }
        self.left = left;
        self.state = match (page.more(), left, page.lease()) {
            (true, 1.., Some(lease)) => {
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

/// The pairs of a page.
pub(crate) fn pairs(page: &Page<'_>) -> Vec<Pair> {
    page.pairs().map(|(key, value)| (key.to_vec(), value.to_vec())).collect()
}

/// How many pairs a page counts.
pub(crate) fn count(page: &Page<'_>) -> u64 {
    u64::from(page.count())
}

/// The keys of a page.
pub(crate) fn keys(page: &Page<'_>) -> Vec<Vec<u8>> {
    page.pairs().map(|(key, _)| key.to_vec()).collect()
}
