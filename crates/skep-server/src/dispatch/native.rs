//! Dispatches the operations of native frames.

use skep_core::operation::{PlainRequest, Request};
use skep_wire::native::{Operations, WireError};

use super::Dispatch;
use crate::native_batch::{NativeOperations, describe_denial, permit};
use crate::reply_queue::ReplyRange;
use crate::vocabulary::{Functions, Limit, OperationSource, Refusal, Space};

/// The operations of a frame.
struct NativeSource<'a> {
    operations: Operations<'a>,
    functions: &'static Functions,
}

impl<'a> OperationSource<'a> for NativeSource<'a> {
    #[inline(always)]
    fn next_plain(&mut self) -> Option<PlainRequest<'a>> {
        self.operations.next_plain()
    }

    fn next_other(&mut self) -> Option<Result<Request<'a>, WireError>> {
        self.operations.next().map(|request| self.functions.resolve_in(request))
    }
}

impl<'a> Dispatch<'_, 'a> {
    /// Dispatches pending operations, in order; `ranges` are those of the operations whose replies are not in the
    /// output. Some may be refused.
    pub(super) fn submit_native(
        &mut self,
        mut operations: NativeOperations<'a>,
        ranges: &[ReplyRange],
        refusal: Refusal,
        limit: &mut Limit,
    ) {
        for range in ranges {
            if limit.is_reached() {
                return;
            }
            match range.is_pending() {
                true if refusal == Refusal::Late => {
                    self.refuse(WireError::Busy, range.count());
                    operations.skip(range.count());
                }
                true => self.submit_frames(&mut operations, range.count(), refusal, limit),
                false => operations.skip(range.count()),
            }
        }
    }

    /// Dispatches `count` operations, or as many as the limit allows.
    fn submit_frames(
        &mut self,
        operations: &mut NativeOperations<'a>,
        count: usize,
        refusal: Refusal,
        limit: &mut Limit,
    ) {
        let (functions, user) = (operations.functions(), operations.limited());
        operations.for_each_frame(count, |space, count, operations| {
            let mut count = count.min(limit.count);
            let resolve = |request| functions.resolve_in(request);
            if let (Refusal::Writes(_), Some(space), None) = (refusal, space, user) {
                return self.submit_or_refuse(space, &mut operations.take(count).map(resolve), refusal, limit);
            }
            let mut is_held = false;
            if limit.holds_writes {
                let is_read = |request: &Result<Request<'_>, _>| {
                    request.as_ref().map_or(true, |request| !limit.holds(&request.operation))
                };
                // A call counts as a write here: another function could have its number when it is looked up.
                let reads = operations.clone().take(count).take_while(is_read).count();
                is_held = reads < count;
                count = reads;
            }
            let Some(space) = space else {
                operations.take(count).for_each(drop);
                limit.count -= count;
                return self.refuse(WireError::UnknownSpace, count);
            };
            if let Some(user) = user {
                let mut denied = self.denial.take();
                let permit = |request: Result<_, _>| {
                    let request = resolve(request)?;
                    permit(user, space, request).inspect_err(|error| {
                        if *error == WireError::NotPermitted && denied.is_none() {
                            denied = describe_denial(user, space, &request);
                        }
                    })
                };
                self.submit_or_refuse(space, &mut operations.take(count).map(permit), refusal, limit);
                self.denial = denied;
                limit.is_held |= is_held;
                return;
            }
            // A copy, which the compiler can keep in registers.
            let mut source = NativeSource { operations: operations.clone(), functions };
            self.extend(space, &mut source, count, limit);
            limit.is_held |= is_held;
            *operations = source.operations;
        });
    }

    /// Dispatches operations one at a time, and refuses some.
    fn submit_or_refuse(
        &mut self,
        space: Space,
        operations: &mut impl Iterator<Item = Result<Request<'a>, WireError>>,
        refusal: Refusal,
        limit: &mut Limit,
    ) {
        while !limit.is_reached()
            && let Some(operation) = operations.next()
        {
            limit.count(&operation);
            match operation.and_then(|request| refusal.of(&request.operation).map_or(Ok(request), Err)) {
                Ok(request) => self.push(space, request),
                Err(error) => self.refuse(error, 1),
            }
        }
    }
}
