//! Operations on values that take more than one slab.
//!
//! They run one at a time, after the waves, so that a megabyte delays no wave; their pieces are announced ahead. Nothing
//! is forwarded: the next operation of the chain finds the value anew.
//!
//! Large answers count against the reply budget of the batch, and eight times as many bytes may be read or written
//! without being answered. When either is used up, the rest of the chain is left for later, untouched.

use super::chain::{Batch, stored_size};
use super::station::{ChainIndex, Chains, Waiting};
use crate::function::{filter, operand_piece, reduce, update};
use crate::hash::{Edit, Home, Location, PAIR_SIZE_MAX, Visit};
use crate::memory::Memory;
use crate::operation::{Operation, OperationError, PutCondition, Reply, Request, Shape};

impl<M: Memory> Batch<'_, M> {
    /// Carries out the first operation of a chain, which finds or stores a large value.
    pub(super) async fn run_large(&self, chain: ChainIndex, first: Waiting) {
        let request = &self.requests[first.index()];
        if !self.replies.borrow().may_touch_large(answers_much(&request.operation)) {
            let left = std::iter::successors(Some(first), |request| self.station.after(*request)).count() as u64;
            self.deferred.set(self.deferred.get() + left);
            self.station.clear(chain);
            return;
        }
        let home = self.homes[first.index()];
        let location = self.locate(request, home).await;
        if let Err(error) = self.large_path(request, home, location, first).await {
            self.answer(first, Reply::Failed(error));
        }
        self.station.retire(chain, None, first);
    }

    /// Where the key is, or would be.
    async fn locate(&self, request: &Request<'_>, home: Home) -> Location {
        let slots = self.needed_slots(request).max(1);
        let sought = self.table.seek(request.key, home, slots, |_| Visit::Left, |_| Edit::None).await;
        sought.unwrap_or_else(|_| unreachable!("nothing was done to the value"))
    }

    async fn large_path(
        &self,
        request: &Request<'_>,
        home: Home,
        location: Location,
        waiting: Waiting,
    ) -> Result<(), OperationError> {
        let key = request.key;
        // What a large value leaves behind when it goes.
        let old_pieces = match &location {
            Location::Large { root, .. } => Some(self.table.pieces(root).await),
            _ => None,
        };
        let release_old = || old_pieces.as_ref().map(|pieces| self.table.release_pieces(pieces));
        let value_size = location.value_size();
        self.replies.borrow_mut().touch_large(value_size.unwrap_or(0).max(stored_size(request)));
        match &request.operation {
            Operation::Put { condition: PutCondition::IfPresent, .. } if value_size.is_none() => {
                self.answer(waiting, Reply::NotFound);
            }
            Operation::Put { condition: PutCondition::IfAbsent, .. } if value_size.is_some() => {
                self.answer(waiting, Reply::Exists);
            }
            Operation::Put { value, .. } => {
                match &old_pieces {
                    Some(pieces) if pieces.value_size() == value.len() => {
                        let copy = |offset: usize, piece: &mut [u8]| {
                            piece.copy_from_slice(&value[offset..offset + piece.len()]);
                        };
                        self.table.update_pieces(pieces, copy).await;
                    }
                    _ if key.len() + value.len() > PAIR_SIZE_MAX => {
                        self.table.store_large(home, &location, key, value).await?;
                        release_old();
                    }
                    _ => {
                        self.table.store(home, &location, key, value, |_| ()).await?;
                        release_old();
                    }
                }
                self.answer(waiting, Reply::Done);
            }
            Operation::Delete => {
                self.table.remove(home, &location, key.len()).await;
                release_old();
                self.answer(waiting, Reply::Done);
            }
            Operation::Contains => self.answer(waiting, Reply::Done),
            Operation::AddDecimal { .. } => return Err(OperationError::NotAnInteger),
            Operation::Scan(_) => return Err(OperationError::NotOrdered),
            Operation::Update(operation) if value_size.is_none() => {
                // The key is missing and the initial value large: it is stored, then updated where it lies.
                let initial = operation.initial.unwrap_or_default();
                self.table.store_large(home, &location, key, initial).await?;
                let location = self.locate(request, home).await;
                self.stream(request, &location, waiting).await?;
            }
            Operation::Get | Operation::Update(_) | Operation::Reduce(_) | Operation::Filter(_) => {
                self.stream(request, &location, waiting).await?;
            }
        }
        Ok(())
    }

    /// Lets the pieces of a large value pass by an operation that reads or changes each element.
    async fn stream(&self, request: &Request<'_>, location: &Location, waiting: Waiting) -> Result<(), OperationError> {
        let Location::Large { root, .. } = location else { unreachable!("a large value was found or stored") };
        let value_size = root.value_size as usize;
        match &request.operation {
            Operation::Update(operation) => operation.validate_value(value_size)?,
            Operation::Reduce(operation) => operation.validate_value(value_size)?,
            Operation::Filter(operation) => operation.validate_value(value_size)?,
            _ => self.hits.set(self.hits.get() + 1),
        }
        let pieces = self.table.pieces(root).await;
        let place = self.first_reply + waiting.index();
        let start = self.replies.borrow_mut().bytes_mut().len();
        match &request.operation {
            Operation::Update(operation) => {
                let change = |offset: usize, piece: &mut [u8]| {
                    if operation.return_old {
                        self.replies.borrow_mut().bytes_mut().extend_from_slice(piece);
                    }
                    let range = offset..offset + piece.len();
                    let operand = operand_piece(operation.function, operation.shape, operation.operand, range);
                    // A vector's piece is a vector; a scalar is never large.
                    debug_assert_ne!(operation.shape, Shape::ScalarToScalar);
                    update(operation.function, operation.element, operation.shape, operand, piece);
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

/// Whether the answer may be about as long as the value.
fn answers_much(operation: &Operation<'_>) -> bool {
    match operation {
        Operation::Get | Operation::Filter(_) => true,
        Operation::Update(operation) => operation.return_old,
        _ => false,
    }
}
