//! A window of an isolated command: operations that do not depend on each other's replies, and the replies so far.
//!
//! A store may defer operations of a window. They are submitted again, and no other operation is executed meanwhile. So the
//! whole window takes effect at one moment, and operations on one key in their order.

use skep_core::operation::Reply;
use skep_wire::native::Response;

use crate::batch::OwnedReply;

/// Operations and their replies so far.
#[derive(Debug, Default)]
pub(crate) struct Window {
    /// Index of the first operation whose reply was not taken.
    first: usize,
    replies: Vec<OwnedReply>,
    bytes: Vec<u8>,
}

/// Bytes of values for which an empty window keeps memory.
const SIZE_KEPT: usize = 64 << 10;
/// Replies for which an empty window keeps memory.
const REPLIES_KEPT: usize = 1 << 10;

impl Window {
    /// Begins a window of this many operations.
    pub(crate) fn begin(&mut self, count: usize) {
        self.end();
        self.replies.resize(count, OwnedReply::Deferred);
    }

    /// Ends the window.
    pub(crate) fn end(&mut self) {
        self.first = 0;
        self.replies.clear();
        self.bytes.clear();
        self.bytes.shrink_to(SIZE_KEPT);
        self.replies.shrink_to(REPLIES_KEPT);
    }

    /// Returns true if the window has begun and has not ended.
    pub(crate) fn is_open(&self) -> bool {
        !self.replies.is_empty()
    }

    /// Returns the number of operations whose replies were taken.
    pub(crate) fn taken(&self) -> usize {
        self.first
    }

    /// Returns the number of operations.
    pub(crate) fn len(&self) -> usize {
        self.replies.len()
    }

    /// Returns true if every operation has its reply.
    pub(crate) fn is_complete(&self) -> bool {
        !self.replies[self.first..].contains(&OwnedReply::Deferred)
    }

    /// Returns the indexes of the operations without replies.
    pub(crate) fn pending(&self) -> impl Iterator<Item = usize> {
        (self.first..self.len()).filter(|index| self.replies[*index] == OwnedReply::Deferred)
    }

    /// Sets the reply to the operation at this index.
    pub(crate) fn set(&mut self, index: usize, reply: Reply<'_>) {
        self.replies[index] = OwnedReply::copy(reply, &mut self.bytes);
    }

    /// Returns the bytes of the values.
    pub(crate) fn size(&self) -> usize {
        self.bytes.len()
    }

    /// Returns the reply to the operation at this index.
    pub(crate) fn response(&self, index: usize) -> Response<'_> {
        self.replies[index].response(&self.bytes)
    }

    /// Returns the first operation whose reply was not taken, and its reply if it has one.
    pub(crate) fn next(&self) -> Option<(usize, Option<Response<'_>>)> {
        let reply = *self.replies.get(self.first)?;
        let response = (reply != OwnedReply::Deferred).then(|| reply.response(&self.bytes));
        Some((self.first, response))
    }

    /// Notes that the reply of [`Window::next`] was taken. Frees the values when no other reply needs them.
    pub(crate) fn advance(&mut self) {
        self.first += 1;
        let is_value = |reply: &OwnedReply| matches!(reply, OwnedReply::Value { .. });
        if !self.bytes.is_empty() && !self.replies[self.first..].iter().any(is_value) {
            self.bytes.clear();
        }
    }

    /// Lets the operation of [`Window::next`] be executed again: it continues.
    pub(crate) fn repeat(&mut self) {
        self.replies[self.first] = OwnedReply::Deferred;
    }

    /// Returns the bytes of memory held.
    pub(crate) fn capacity(&self) -> usize {
        self.replies.capacity() * size_of::<OwnedReply>() + self.bytes.capacity()
    }
}

#[cfg(test)]
mod tests {
    use skep_core::operation::Reply;

    use super::Window;

    #[test]
    fn replies_are_taken_in_order_and_others_are_pending() {
        let mut window = Window::default();
        assert!(!window.is_open() && window.next().is_none());
        window.begin(3);
        window.set(1, Reply::Value(b"one"));
        assert_eq!(window.pending().collect::<Vec<_>>(), [0, 2]);
        assert_eq!(window.next(), Some((0, None)));
        window.set(0, Reply::Value(b"zero"));
        assert_eq!(window.next(), Some((0, Some(Ok(Reply::Value(b"zero"))))));
        window.advance();
        assert_eq!(window.next(), Some((1, Some(Ok(Reply::Value(b"one"))))));
        assert!(!window.is_complete());
        window.repeat();
        assert_eq!(window.pending().collect::<Vec<_>>(), [1, 2]);
        window.set(1, Reply::Done);
        window.set(2, Reply::NotFound);
        assert!(window.is_complete());
        window.advance();
        window.advance();
        assert!(window.next().is_none() && window.size() == 0);
    }
}
