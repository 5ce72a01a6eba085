//! Operations on values that take more than one slab, which `resident_large` has left.
//!
//! 1. They run one at a time, after the waves, so that a megabyte delays no wave. Their pieces are prefetched ahead.
//! 2. Nothing is forwarded: the next operation of the queue finds the value anew.
//! 3. Large replies count against the reply budget of the batch. Eight times as many bytes may be read or written without
//!    being in a reply. When either is used up, the rest of the queue is deferred, unchanged.
//! 4. Replies of more than 64 KiB have a budget of their own. When it is used up, only the requests of that key are deferred.
//!
//! 5. A read or a write of a part of the value touches only that part, and the lines of the index that lead to it. If the
//!    outcome depends on all bytes and nothing less, they are copied to one piece first ([`Outcome::Whole`]).
//!
//! The bytes that an operation touches count: none if the size of the value decides it, a line for each slab that it frees.

use std::ops::{ControlFlow, Range};

use super::queue::{Batch, LargeOperation};
use super::replies::Grant;
use super::station::{QueueIndex, Queues, RequestIndex};
use crate::apply::{Edit, Found, InPlace, NewValue, Outcome, PartWrite, Read, Reader, apply};
use crate::hash::{Home, LargeRoot, Location, NotStored, Pieces, is_large};
use crate::memory::{LINE_SIZE, Memory};
use skep_core::operation::{ExpiryChange, Reply, Request};

impl<'a, M: Memory> Batch<'a, M> {
    /// Executes the head of a queue, which has found or stores a large value. Returns false if it is deferred with its queue,
    /// because the budget is used up. If its reply has no room, it is deferred with the requests of its key alone.
    pub(super) async fn run_large(&self, operation: LargeOperation<'a>) -> bool {
        let LargeOperation { queue, first, location, mut outcome } = operation;
        let request = &self.requests[first.index()];
        let root = if let Location::Large { root, .. } = &location { Some(root) } else { None };
        let (index, touched_before) = (self.first_reply + first.index(), self.replies.borrow().bytes_touched());
        let mut whole = None;
        if let (Outcome::Whole, Some(root)) = (&outcome, root) {
            if !self.replies.borrow().may_touch_large(false) {
                self.defer_queue(queue, first);
                return false;
            }
            let value = whole.insert(self.copy_large(root).await);
            outcome = apply(&request.operation, Some(|| Found::bytes(value, location.expiry())), self.arena);
        }
        let reply_size = outcome.reply_size_max(location.value_size().unwrap_or(0));
        if whole.is_none() && !self.replies.borrow().may_touch_large(reply_size > 0) {
            self.defer_queue(queue, first);
            return false;
        }
        let grant = self.replies.borrow_mut().grant(reply_size);
        if grant != Grant::Granted {
            if grant == Grant::NoRoom {
                self.replies.borrow_mut().defer_for_room(index);
            }
            self.defer(queue, first);
            return true;
        }
        self.execute_large(queue, first, &location, &outcome, whole.as_deref()).await;
        let mut replies = self.replies.borrow_mut();
        let touched = replies.bytes_touched() - touched_before;
        replies.list_cost(index, touched);
        true
    }

    /// Executes the head of a queue, which has found or stores a large value. `whole` is a copy of the value, if the outcome
    /// depends on it.
    async fn execute_large(
        &self,
        queue: QueueIndex,
        first: RequestIndex,
        location: &Location,
        outcome: &Outcome<'_>,
        whole: Option<&[u8]>,
    ) {
        let (request, home) = (&self.requests[first.index()], self.homes[first.index()]);
        let root = if let Location::Large { root, .. } = location { Some(root) } else { None };
        match (outcome, root) {
            (Outcome::Read(read), _) if let Some(whole) = whole => {
                self.replies.borrow_mut().slot(self.first_reply + first.index()).set_read(*read, whole);
                self.station.remove(queue, None, first);
            }
            // An operation that has read the whole value may have found that nothing changes.
            (Outcome::Reply(reply), _) => {
                self.end_first(queue, first, *reply, &mut self.replies.borrow_mut());
            }
            (Outcome::Read(read), Some(root)) => {
                self.read_large(first, *read, root).await;
                self.station.remove(queue, None, first);
            }
            (Outcome::Update(update), Some(root)) => {
                self.update_large(first, *update, root).await;
                self.station.remove(queue, None, first);
            }
            (Outcome::Part(write), Some(root)) => {
                let written = self.write_part(home, request.key, location, root, *write).await;
                self.finish(queue, first, written.as_deref().map(Reply::Value).map_err(|error| *error));
            }
            (Outcome::Edit(edit), _) => {
                let edited = self.edit_large(home, request, location, root, edit).await;
                self.finish(queue, first, edited.map(|()| edit.reply()));
            }
            (Outcome::Expire(change), Some(root)) => {
                let expired = self.expire_large(home, request.key, location, root, *change).await;
                self.finish(queue, first, expired.map(|()| Reply::Done));
            }
            (Outcome::Read(_) | Outcome::Update(_) | Outcome::Part(_) | Outcome::Expire(_) | Outcome::Whole, _) => {
                unreachable!("a large value is needed")
            }
        }
    }

    /// Defers a whole queue.
    fn defer_queue(&self, queue: QueueIndex, first: RequestIndex) {
        let left = std::iter::successors(Some(first), |request| self.station.after(*request)).count() as u64;
        self.deferred.set(self.deferred.get() + left);
        self.station.clear(queue);
    }

    /// Edits a pair that is large, or becomes so.
    async fn edit_large(
        &self,
        home: Home,
        request: &Request<'_>,
        location: &Location,
        root: Option<&LargeRoot>,
        edit: &Edit<'_>,
    ) -> Result<(), NotStored> {
        let key = request.key;
        match (edit, root) {
            (Edit::Store(new), _) if self.table.expires_at_once(location, new) => {
                if location.value_size().is_some() {
                    self.table.remove(location, key.len()).await;
                }
            }
            (Edit::Store(new), Some(root)) if root.value_size as usize == new.size() => {
                let expiry = self.table.expiry_after(location, new);
                if expiry != location.expiry() {
                    self.table.store_root(home, location, key, root, expiry).await?;
                }
                self.overwrite_large(new, root).await;
                return Ok(());
            }
            (Edit::Store(new), _)
                if is_large(key.len(), new.size(), self.table.expiry_after(location, new).is_some()) =>
            {
                self.table.store_large(home, location, key, new).await?;
                self.replies.borrow_mut().touch_large(new.size());
            }
            (Edit::Store(new), _) => self.table.store(home, location, key, new).await?,
            (Edit::Remove(_), _) => self.table.remove(location, key.len()).await,
        }
        if let Some(root) = root {
            self.release(root).await;
        }
        Ok(())
    }

    /// Changes the expiry of a large value, which stays where it is.
    async fn expire_large(
        &self,
        home: Home,
        key: &[u8],
        location: &Location,
        root: &LargeRoot,
        change: ExpiryChange,
    ) -> Result<(), NotStored> {
        let expiry = change.apply(location.expiry());
        if self.table.has_expired(expiry) {
            self.table.remove(location, key.len()).await;
            self.release(root).await;
            return Ok(());
        }
        self.table.store_root(home, location, key, root, expiry).await
    }

    /// Writes a part of a large value, which grows if it has to. Returns the reply.
    async fn write_part(
        &self,
        home: Home,
        key: &[u8],
        location: &Location,
        root: &LargeRoot,
        write: PartWrite<'_>,
    ) -> Result<Vec<u8>, NotStored> {
        let (before, mut root) = (root.value_size as usize, *root);
        if write.end() > before {
            root = self.table.grow_large(home, location, key, &root, write.end()).await?;
            self.replies.borrow_mut().touch_large(write.end() - before);
        }
        let range = write.range(root.value_size as usize);
        let pieces = self.find_pieces(&root, range.clone()).await;
        self.replies.borrow_mut().touch_large(range.len());
        let (start, end) = (range.start, range.end);
        // The bytes of a run of lines that are in the range, and their position in it.
        let within = |offset: usize, size: usize| {
            let (from, to) = (start.clamp(offset, offset + size), end.clamp(offset, offset + size));
            (from - offset..to - offset, from - start)
        };
        match write {
            PartWrite::Bytes(_, bytes) => {
                let copy = |offset: usize, piece: &mut [u8]| {
                    let (in_piece, from) = within(offset, piece.len());
                    piece[in_piece.clone()].copy_from_slice(&bytes[from..][..in_piece.len()]);
                };
                self.table.update_pieces(&pieces, range, copy).await;
                Ok(i64::from(root.value_size).to_le_bytes().to_vec())
            }
            PartWrite::Fields(fields) => {
                let (mut part, mut reply) = (Vec::with_capacity(range.len()), vec![0; fields.reply_size()]);
                let read = |offset: usize, piece: &[u8]| part.extend_from_slice(&piece[within(offset, piece.len()).0]);
                self.table.read_pieces(&pieces, range.clone(), read).await;
                fields.execute(start, &mut part, &mut reply);
                let copy = |offset: usize, piece: &mut [u8]| {
                    let (in_piece, from) = within(offset, piece.len());
                    piece[in_piece.clone()].copy_from_slice(&part[from..][..in_piece.len()]);
                };
                self.table.update_pieces(&pieces, range, copy).await;
                Ok(reply)
            }
        }
    }

    /// Writes a value over another one of its size.
    async fn overwrite_large(&self, new: &NewValue<'_>, root: &LargeRoot) {
        let pieces = self.find_pieces(root, 0..new.size()).await;
        self.replies.borrow_mut().touch_large(new.size());
        let copy = |offset: usize, piece: &mut [u8]| {
            piece.copy_from_slice(&new.bytes()[offset..][..piece.len()]);
            new.finish(offset, piece);
        };
        self.table.update_pieces(&pieces, 0..new.size(), copy).await;
    }

    /// Frees the slabs of a large value that nothing refers to.
    async fn release(&self, root: &LargeRoot) {
        let pieces = self.find_pieces(root, 0..root.value_size as usize).await;
        self.replies.borrow_mut().touch_large(pieces.slab_count() * LINE_SIZE);
        self.table.release_pieces(&pieces);
    }

    /// Reads the index of a range of a large value.
    async fn find_pieces(&self, root: &LargeRoot, range: Range<usize>) -> Pieces {
        let pieces = self.table.pieces_of(root, range).await;
        self.replies.borrow_mut().touch_large(pieces.index_size());
        pieces
    }

    /// Returns a copy of a large value.
    async fn copy_large(&self, root: &LargeRoot) -> Vec<u8> {
        let all = 0..root.value_size as usize;
        let pieces = self.find_pieces(root, all.clone()).await;
        self.replies.borrow_mut().touch_large(all.len());
        let mut value = Vec::with_capacity(all.len());
        self.table.read_pieces(&pieces, all, |_, piece| value.extend_from_slice(piece)).await;
        value
    }

    /// Computes a reply from the pieces of a large value.
    async fn read_large(&self, first: RequestIndex, read: Read<'_>, root: &LargeRoot) {
        if let Read::Value = read {
            self.hits.set(self.hits.get() + 1);
        }
        if let Read::Number(_) | Read::Computed(_) = read {
            return self.replies.borrow_mut().slot(self.first_reply + first.index()).set_read(read, &[]);
        }
        let range = read.range(root.value_size as usize);
        let pieces = self.find_pieces(root, range.clone()).await;
        let start = self.replies.borrow_mut().bytes_mut().len();
        let (mut reader, mut size) = (Reader::new(read), 0);
        let read_piece = |offset: usize, piece: &[u8]| {
            reader.read(offset, piece, self.replies.borrow_mut().bytes_mut());
            size += piece.len();
            if reader.is_done() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        self.table.read_pieces_until(&pieces, range, read_piece).await;
        let mut replies = self.replies.borrow_mut();
        replies.touch_large(read.work(size));
        reader.finish(replies.bytes_mut());
        replies.finish_value(self.first_reply + first.index(), start);
    }

    /// Updates the pieces of a large value.
    async fn update_large(&self, first: RequestIndex, update: InPlace<'_>, root: &LargeRoot) {
        let all = 0..root.value_size as usize;
        let pieces = self.find_pieces(root, all.clone()).await;
        self.replies.borrow_mut().touch_large(all.len());
        let start = self.replies.borrow_mut().bytes_mut().len();
        let change = |offset: usize, piece: &mut [u8]| {
            update.update_piece(offset, piece, self.replies.borrow_mut().bytes_mut());
        };
        self.table.update_pieces(&pieces, all, change).await;
        let (index, mut replies) = (self.first_reply + first.index(), self.replies.borrow_mut());
        if update.replies_with_value() {
            replies.finish_value(index, start);
        } else {
            replies.set(index, Reply::Done);
        }
    }
}
