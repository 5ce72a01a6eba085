//! Fuzzes batches of operations on a small ordered store, scans and leases among them, and compares it with the naive
//! store.
//!
//! The bytes are decoded as settings, then as batches. The memory is small, so that the store becomes full. Small log
//! blocks make merges, splits and evacuations frequent. Looks for five faults:
//! 1. a panic
//! 2. a reply or a page that differs from that of the naive store
//! 3. a refused operation that changed something
//! 4. a lost pair
//! 5. a broken invariant of the tree

use std::time::{Duration, Instant};

use arbitrary::{Result, Unstructured};
use skep_core::operation::{
    KEY_SIZE_MAX, Operation, Page, Reply, Request, Scan, ScanAnswer, ScanEnd, ScanLease, ScanStart,
};
use skep_store::naive::{Harness, NaiveStore, OwnedOperation, OwnedRequest};
use skep_store::ordered::{LogBlock, OrderedSettings, OrderedStore, Session};

use crate::operations::{KEY_COUNT, key, key_number, operation};

/// The pages that scans of earlier batches continue with, at most.
const NEXT_PAGES_MAX: usize = 40;

/// The time between two submissions: a write that waits for memory is refused after a second.
pub(crate) const SUBMISSION_TIME: Duration = Duration::from_millis(10);

/// The form of the keys.
#[derive(Clone, Copy)]
enum Keys {
    /// Those of the hash store: most short, some long, two not allowed.
    Mixed,
    /// Decimal numbers after a common prefix.
    Decimal,
    /// Few different bytes, so that keys are prefixes of each other.
    Nested,
    /// The longest keys, which differ at their end.
    Longest,
}

/// Runs the target.
pub fn run(input: &[u8]) {
    // The run ends when the bytes end.
    let _ = run_batches(&mut Unstructured::new(input));
}

fn run_batches(input: &mut Unstructured<'_>) -> Result<()> {
    let memory = *input.choose(&[768 << 10, 1 << 20, 4 << 20])?;
    let sizes = [(LogBlock::SIZE_MIN, 16), (200, 16), (512, 3), (512, 16), (LogBlock::SIZE_MAX, 16)];
    let (size, entry_count_max) = *input.choose(&sizes)?;
    let log_block = LogBlock::new(size, entry_count_max).expect("the sizes are within the limits");
    // Leases end by count and size here: the naive store knows no time.
    let lease_time = Duration::from_secs(1 << 30);
    let settings = OrderedSettings { log_block, lease_time, ..OrderedSettings::new(memory) };
    let store = OrderedStore::new(&settings).expect("a few megabytes can be reserved");
    let mut session = store.session().expect("this is the first session");
    let keys = *input.choose(&[Keys::Mixed, Keys::Decimal, Keys::Nested, Keys::Longest])?;
    let mut harness = Harness::new(NaiveStore::ordered(), *input.choose(&[1, 4096, 64 << 20])?, 0);
    let mut now = Instant::now();
    let mut next_pages = Vec::new();
    while !input.is_empty() {
        let count = input.int_in_range(1..=64)?;
        let requests = (0..count).map(|_| request(input, keys, &mut next_pages)).collect::<Result<Vec<_>>>()?;
        execute(&mut harness, &mut session, &mut now, &requests, &mut next_pages);
    }
    let all = Scan {
        start: ScanStart::AtOrAbove,
        end: ScanEnd::Last,
        reverse: false,
        limit: u32::MAX,
        answer: ScanAnswer::Pairs,
        lease: ScanLease::None,
    };
    let mut pages =
        vec![OwnedRequest { key: Vec::new(), operation: OwnedOperation::Scan { end: Vec::new(), scan: all } }];
    while let Some(page) = pages.pop() {
        execute(&mut harness, &mut session, &mut now, &[page], &mut pages);
    }
    let every_key: Vec<OwnedRequest> =
        (0..KEY_COUNT).map(|number| OwnedRequest { key: keys.key(number), operation: OwnedOperation::Get }).collect();
    execute(&mut harness, &mut session, &mut now, &every_key, &mut pages);
    let (checked, naive) = (session.check(), harness.naive());
    assert_eq!((checked.pairs, checked.pair_bytes), (naive.len() as u64, naive.key_and_value_bytes()));
    Ok(())
}

/// Executes a batch. Appends the requests for the pages after those that are replied.
fn execute(
    harness: &mut Harness,
    session: &mut Session<'_>,
    now: &mut Instant,
    requests: &[OwnedRequest],
    next_pages: &mut Vec<OwnedRequest>,
) {
    let requests: Vec<Request<'_>> = requests.iter().map(OwnedRequest::as_request).collect();
    harness.execute_with(
        &requests,
        |requests, replies| {
            *now += SUBMISSION_TIME;
            session.execute(requests, replies, *now);
        },
        |request, reply| {
            let (Operation::Scan(_), Reply::Value(page)) = (request.operation, reply) else { return };
            let page = Page::decode(page).expect("the reply to a scan is a page");
            if next_pages.len() < NEXT_PAGES_MAX {
                next_pages.extend(request.after_page(&page).as_ref().and_then(owned));
            }
        },
    );
}

/// Returns a scan with its own bytes.
fn owned(request: &Request<'_>) -> Option<OwnedRequest> {
    let Operation::Scan(Scan { start, end, reverse, limit, answer, lease }) = request.operation else { return None };
    let scan = Scan { start, end: end.with_bytes(&[]), reverse, limit, answer, lease };
    Some(OwnedRequest {
        key: request.key.to_vec(),
        operation: OwnedOperation::Scan { end: end.bytes().to_vec(), scan },
    })
}

fn request(input: &mut Unstructured<'_>, keys: Keys, next_pages: &mut Vec<OwnedRequest>) -> Result<OwnedRequest> {
    let number = key_number(input)?;
    match input.int_in_range(0..=7)? {
        0 => scan(input, keys, number),
        1 if !next_pages.is_empty() => {
            let index = input.choose_index(next_pages.len())?;
            Ok(next_pages.swap_remove(index))
        }
        _ => Ok(OwnedRequest { key: keys.key(number), operation: operation(input, number)? }),
    }
}

fn scan(input: &mut Unstructured<'_>, keys: Keys, number: u16) -> Result<OwnedRequest> {
    let key = if input.ratio(1, 8)? { Vec::new() } else { keys.key(number) };
    let mut end = if input.ratio(1, 8)? { Vec::new() } else { keys.key(key_number(input)?) };
    let end_kind = match input.int_in_range(0..=3)? {
        0 => ScanEnd::Last,
        1 => ScanEnd::AtOrBelow(&[]),
        2 => ScanEnd::Below(&[]),
        _ => {
            end.truncate(input.int_in_range(0..=3)?);
            ScanEnd::Prefix(&[])
        }
    };
    let scan = Scan {
        start: *input.choose(&[ScanStart::AtOrAbove, ScanStart::Above, ScanStart::Floor])?,
        end: end_kind,
        reverse: input.arbitrary()?,
        limit: *input.choose(&[0, 1, 3, 20, 1000, u32::MAX])?,
        answer: *input.choose(&[ScanAnswer::Pairs, ScanAnswer::Keys, ScanAnswer::Count])?,
        lease: match input.int_in_range(0..=7)? {
            0..=3 => ScanLease::None,
            4..=6 => ScanLease::Open,
            _ => ScanLease::Continue(input.arbitrary::<u8>()?.into()),
        },
    };
    Ok(OwnedRequest { key, operation: OwnedOperation::Scan { end, scan } })
}

impl Keys {
    /// Returns the key with this number.
    fn key(self, number: u16) -> Vec<u8> {
        match self {
            Keys::Mixed => key(number),
            Keys::Decimal => format!("user{number}").into_bytes(),
            // The number in base 3, without leading zeros.
            Keys::Nested => {
                let digits = std::iter::successors(Some(number + 1), |rest| Some(rest / 3).filter(|rest| *rest > 0));
                let mut key: Vec<u8> = digits.map(|rest| [0, b'a', 255][usize::from(rest % 3)]).collect();
                key.reverse();
                key
            }
            Keys::Longest => {
                let mut key = vec![7; KEY_SIZE_MAX - 2 - usize::from(number % 5)];
                key.extend_from_slice(&number.to_be_bytes());
                key
            }
        }
    }
}
