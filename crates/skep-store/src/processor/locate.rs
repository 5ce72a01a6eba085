//! The first loop of admission: checks requests and hashes their keys.

use std::cell::Cell;
use std::hint::cold_path;

use super::same_key::SameKeys;
use crate::hash::{HashTable, Home, Lanes, WithLanes};
use crate::memory::Memory;
use crate::short::equal;
use skep_core::operation::{Operation, Request};

/// The result of checking the requests of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Located {
    /// All are valid GETs.
    Gets,
    /// All are valid.
    Valid,
    /// One is not valid. Those after it were not hashed.
    Invalid,
}

/// Checks requests and hashes their keys, up to the first invalid one. Notes each key that is the same as
/// that of the request before.
///
/// Runs under `Search::run` only so that it is compiled with BMI2 (`mulx`).
pub(super) struct Locate<'a, 'k, M> {
    pub(super) table: &'a HashTable<M>,
    pub(super) requests: &'a [Request<'k>],
    /// One more than requests: the first is not of this part.
    pub(super) homes: &'a mut [Home],
    pub(super) same_keys: &'a mut SameKeys,
}

impl<M: Memory> WithLanes for Locate<'_, '_, M> {
    type Output = Located;

    #[inline(always)]
    fn run(self, _: impl Lanes) -> Located {
        let Locate { table, requests, homes, same_keys } = self;
        let (mut end, mut only_gets) = (0, true);
        while end < requests.len() {
            let cells = Cell::from_mut(&mut homes[end..]).as_slice_of_cells();
            let Some(count) = locate_others(table, &requests[end..], cells, &mut only_gets) else {
                return Located::Invalid;
            };
            end += count;
            let Some([before, last]) = requests[..end].last_chunk() else { continue };
            if equal(before.key, last.key) {
                let begin = end - 2;
                let is_repeated = |request: &&Request<'_>| equal(request.key, last.key) && is_valid(request);
                end += requests[end..].iter().take_while(is_repeated).count();
                only_gets &= requests[begin..end].iter().all(is_get);
                let home = homes[begin + 1];
                homes[begin + 1..=end].fill(home);
                same_keys.push(begin..end);
            }
        }
        if only_gets { Located::Gets } else { Located::Valid }
    }
}

/// Checks requests and hashes their keys, up to one whose hash is that of the request before. Returns their number, or
/// `None` if one is invalid. `homes` begins with the request before the first.
#[inline(always)]
fn locate_others<M: Memory>(
    table: &HashTable<M>,
    requests: &[Request<'_>],
    homes: &[Cell<Home>],
    only_gets: &mut bool,
) -> Option<usize> {
    for (index, (request, homes)) in requests.iter().zip(homes.windows(2)).enumerate() {
        // Most keys are one or two words. They need fewer checks, also in the hash function.
        let is_short = matches!(request.key.len(), 8..=16);
        let is_get = is_get(request);
        if !is_get {
            *only_gets = false;
        }
        let is_short_and_valid = is_short && (is_get || is_valid_other(&request.operation));
        let home = if is_short_and_valid { table.locate(request.key) } else { locate_any(table, request)? };
        homes[1].set(home);
        if home.hash == homes[0].get().hash {
            return Some(index + 1);
        }
    }
    Some(requests.len())
}

/// Returns true if the request is valid, apart from its key.
#[inline(always)]
fn is_valid(request: &Request<'_>) -> bool {
    is_get(request) || is_valid_other(&request.operation)
}

/// Returns true if the operation is valid. A call, so that the compiler does not test for GETs in this way.
#[inline(never)]
fn is_valid_other(operation: &Operation<'_>) -> bool {
    operation.validate_unordered().is_ok()
}

/// Returns true if the request is a GET, which needs no check. Without the hint the compiler tests for all operations
/// at once.
#[inline(always)]
fn is_get(request: &Request<'_>) -> bool {
    let is_get = matches!(request.operation, Operation::Get);
    if !is_get {
        cold_path();
    }
    is_get
}

/// Checks a request and hashes its key, of any size.
#[inline(never)]
fn locate_any<M: Memory>(table: &HashTable<M>, request: &Request<'_>) -> Option<Home> {
    request.validate_unordered().ok().map(|()| table.locate(request.key))
}
