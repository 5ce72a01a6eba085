//! Operations on values that take more than one slab.
//!
//! They run one at a time, after the waves, so that a megabyte delays no wave; their pieces are prefetched ahead. Nothing
//! is forwarded: the next operation of the chain finds the value anew.
//!
//! Large answers count against the reply budget of the batch, and eight times as many bytes may be read or written
//! without being answered. When either is used up, the rest of the chain is left for later, untouched. Replies of more than
//! 64 KiB have a budget of their own: when it is used up, only the requests of that key are left. What counts is what
//! an operation touches: nothing if it is answered from the root of the value, a line for each slab that it gives back.

use super::chain::{Batch, LargeOperation};
use super::replies::Grant;
use super::station::{ChainIndex, Chains, Waiting};
use crate::hash::{Home, LargeRoot, Location, NotStored, PAIR_SIZE_MAX, Pieces};
use crate::memory::{LINE_SIZE, Memory};
use skep_core::function::{filter, operand_piece, reduce, update};
use skep_core::operation::{Operation, OperationError, PutCondition, Reply, Request, Shape, Update};

impl<M: Memory> Batch<'_, M> {
    /// Carries out the first operation of a chain, which found or stores a large value. Returns false if it is left for
    /// later, with its chain, because the budget is used up. One whose reply has no room is left with those of its key alone.
    pub(super) async fn run_large(&self, operation: LargeOperation) -> bool {
        let LargeOperation { chain, first, location } = operation;
        let request = &self.requests[first.index()];
        let reply_size = reply_size(&request.operation, &location);
        if !self.replies.borrow().may_touch_large(reply_size > 0) {
            self.leave_chain(chain, first);
            return false;
        }
        let grant = self.replies.borrow_mut().grant(reply_size);
        if grant != Grant::Granted {
            if grant == Grant::NoRoom {
                self.replies.borrow_mut().defer_for_room(self.first_reply + first.index());
            }
            self.defer(chain, first);
            return true;
        }
        let outcome = self.large_path(request, self.homes[first.index()], &location, first).await;
        self.finish(chain, first, outcome);
        true
    }

    /// Leaves a whole chain for later.
    fn leave_chain(&self, chain: ChainIndex, first: Waiting) {
        let left = std::iter::successors(Some(first), |request| self.station.after(*request)).count() as u64;
        self.deferred.set(self.deferred.get() + left);
        self.station.clear(chain);
    }

    async fn large_path(
        &self,
        request: &Request<'_>,
        home: Home,
        location: &Location,
        waiting: Waiting,
    ) -> Result<(), NotStored> {
        let key = request.key;
        let root = match location {
            Location::Large { root, .. } => Some(root),
            _ => None,
        };
        match (&request.operation, root) {
            (Operation::Put { condition: PutCondition::IfPresent, .. }, _) if location.value_size().is_none() => {
                self.answer(waiting, Reply::NotFound);
            }
            (Operation::Put { condition: PutCondition::IfAbsent, .. }, _) if location.value_size().is_some() => {
                self.answer(waiting, Reply::Exists);
            }
            (Operation::Put { value, .. }, Some(root)) if root.value_size as usize == value.len() => {
                let copy = |offset: usize, piece: &mut [u8]| piece.copy_from_slice(&value[offset..][..piece.len()]);
                let pieces = self.find_pieces(root).await;
                self.replies.borrow_mut().touch_large(value.len());
                self.table.update_pieces(&pieces, copy).await;
                self.answer(waiting, Reply::Done);
            }
            (Operation::Put { value, .. }, _) => {
                self.store(home, location, key, value, |_, _| ()).await?;
                self.answer(waiting, Reply::Done);
            }
            (Operation::Delete, Some(root)) => {
                self.table.remove(home, location, key.len()).await;
                self.release(root).await;
                self.answer(waiting, Reply::Done);
            }
            (Operation::Update(operation), None) => {
                // The key is missing and the initial value large: it is stored as the update leaves it.
                let initial = operation.initial.unwrap_or_default();
                let change = |offset: usize, piece: &mut [u8]| update_piece(operation, offset, piece);
                self.store(home, location, key, initial, change).await?;
                self.answer(waiting, if operation.return_old { Reply::Value(initial) } else { Reply::Done });
            }
            (Operation::AddDecimal { .. }, _) => return Err(OperationError::NotAnInteger.into()),
            (Operation::Scan(_), _) => return Err(OperationError::NotOrdered.into()),
            (_, Some(root)) => self.stream(request, root, waiting).await?,
            (_, None) => unreachable!("a large value was found"),
        }
        Ok(())
    }

    /// Stores a value where the search ended, of which the old or the new one is large, and gives the old one back.
    async fn store(
        &self,
        home: Home,
        location: &Location,
        key: &[u8],
        value: &[u8],
        change: impl FnMut(usize, &mut [u8]),
    ) -> Result<(), NotStored> {
        if key.len() + value.len() > PAIR_SIZE_MAX {
            self.table.store_large(home, location, key, value, change).await?;
            self.replies.borrow_mut().touch_large(value.len());
        } else {
            self.table.store(home, location, key, value, |_| ()).await?;
        }
        if let Location::Large { root, .. } = location {
            self.release(root).await;
        }
        Ok(())
    }

    /// Gives back the slabs of a large value to which nothing points any more.
    async fn release(&self, root: &LargeRoot) {
        let pieces = self.find_pieces(root).await;
        self.replies.borrow_mut().touch_large(pieces.slab_count() * LINE_SIZE);
        self.table.release_pieces(&pieces);
    }

    /// Reads the index of a large value.
    async fn find_pieces(&self, root: &LargeRoot) -> Pieces {
        let pieces = self.table.pieces(root).await;
        self.replies.borrow_mut().touch_large(pieces.index_size());
        pieces
    }

    /// Lets the pieces of a large value pass by an operation that reads or changes each element.
    async fn stream(&self, request: &Request<'_>, root: &LargeRoot, waiting: Waiting) -> Result<(), OperationError> {
        let value_size = root.value_size as usize;
        match &request.operation {
            Operation::Update(operation) => operation.validate_value(value_size)?,
            Operation::Reduce(operation) => operation.validate_value(value_size)?,
            Operation::Filter(operation) => operation.validate_value(value_size)?,
            _ => self.hits.set(self.hits.get() + 1),
        }
        let pieces = self.find_pieces(root).await;
        let place = self.first_reply + waiting.index();
        self.replies.borrow_mut().touch_large(value_size);
        let start = self.replies.borrow_mut().bytes_mut().len();
        match &request.operation {
            Operation::Update(operation) => {
                let change = |offset: usize, piece: &mut [u8]| {
                    if operation.return_old {
                        self.replies.borrow_mut().bytes_mut().extend_from_slice(piece);
                    }
                    update_piece(operation, offset, piece);
                };
                self.table.update_pieces(&pieces, change).await;
                if !operation.return_old {
                    self.answer(waiting, Reply::Done);
                    return Ok(());
                }
            }
            Operation::Reduce(operation) => {
                let mut accumulator = [0; 8];
                let accumulator = &mut accumulator[..operation.element.width()];
                accumulator.copy_from_slice(operation.initial);
                let fold = |offset: usize, piece: &[u8]| {
                    let constants = operation.constants.get(offset..offset + piece.len()).unwrap_or_default();
                    reduce(operation.fold, operation.element, accumulator, piece, constants);
                };
                self.table.read_pieces(&pieces, fold).await;
                self.answer(waiting, Reply::Value(accumulator));
                return Ok(());
            }
            Operation::Filter(operation) => {
                let select = |_: usize, piece: &[u8]| {
                    let mut replies = self.replies.borrow_mut();
                    filter(operation.predicate, operation.element, operation.operand, piece, replies.bytes_mut());
                };
                self.table.read_pieces(&pieces, select).await;
            }
            _ => {
                let copy = |_: usize, piece: &[u8]| self.replies.borrow_mut().bytes_mut().extend_from_slice(piece);
                self.table.read_pieces(&pieces, copy).await;
            }
        }
        self.replies.borrow_mut().finish_value(place, start);
        Ok(())
    }
}

/// Updates the piece of a large value that begins at `offset`.
fn update_piece(operation: &Update<'_>, offset: usize, piece: &mut [u8]) {
    let range = offset..offset + piece.len();
    let operand = operand_piece(operation.function, operation.shape, operation.operand, range);
    // A vector's piece is a vector; a scalar is never large.
    debug_assert_ne!(operation.shape, Shape::ScalarToScalar);
    update(operation.function, operation.element, operation.shape, operand, piece);
}

/// Returns the most bytes that the reply can have if they may be about as many as those of the value, else 0.
fn reply_size(operation: &Operation<'_>, location: &Location) -> usize {
    let value_size = location.value_size();
    match operation {
        Operation::Get | Operation::Filter(_) => value_size.unwrap_or(0),
        Operation::Update(update) if update.return_old => value_size.or(update.initial.map(<[u8]>::len)).unwrap_or(0),
        _ => 0,
    }
}
