//! The answers that a connection waits for.
//!
//! A connection works in *rounds*: a run of operations is decoded, and the next one only when every answer of this
//! one is in the output. So replies leave in the order of their requests, and operations of one connection on one
//! key are carried out in order, whichever shard carries them out.
//!
//! ```text
//!   slots   │ encoded │ encoded │ answered │ unanswered │ forwarded │ answered │ …
//!                                 ▲ `encoded`
//! ```
//!
//! A slot that is `Unanswered` is submitted to a store, again and again if the store defers it; since a store that
//! defers one operation on a key defers the later ones too, and a round is only submitted again when nothing of it
//! is under way, order is kept.

use skep_store::operation::Reply;
use skep_wire::native::Response;

use crate::batch::{Answer, Answers};
use crate::spaces::{Place, SpaceReplies};

/// Bytes of answers that a round keeps before it becomes careful.
const KEPT_BYTES_MAX: usize = 1 << 20;

/// Bytes of answers, and slots, that a finished round keeps the memory of: a connection may be idle for hours after it.
const IDLE_BYTES_MAX: usize = 64 << 10;
const IDLE_SLOTS_MAX: usize = 1024;

/// Where an operation of the round stands.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Slot {
    /// To be submitted.
    Unanswered,
    /// In a parcel to this shard.
    Forwarded(u16),
    /// Answered at this place of the shard's [`SpaceReplies`]; only until the shard's next batch.
    Fresh(Place),
    /// Answered.
    Kept(Answer),
}

/// A run of operations and their answers.
#[derive(Debug, Default)]
pub(crate) struct Round {
    slots: Vec<Slot>,
    /// The values of kept answers.
    bytes: Vec<u8>,
    /// Slots before this one are in the output.
    encoded: usize,
    /// Parcels under way.
    parcel_count: usize,
}

impl Round {
    /// Begins a round of `count` operations. The last one must be finished.
    pub(crate) fn begin(&mut self, count: usize) {
        debug_assert!(self.is_finished());
        self.clear();
        self.slots.resize(count, Slot::Unanswered);
    }

    fn clear(&mut self) {
        self.slots.clear();
        self.slots.shrink_to(IDLE_SLOTS_MAX);
        self.bytes.clear();
        self.bytes.shrink_to(IDLE_BYTES_MAX);
        self.encoded = 0;
    }

    /// Whether every answer is in the output.
    pub(crate) fn is_finished(&self) -> bool {
        self.encoded == self.slots.len()
    }

    /// Whether operations are to be submitted: some are unanswered and none is under way.
    pub(crate) fn wants_submission(&self) -> bool {
        self.parcel_count == 0 && self.slots[self.encoded..].contains(&Slot::Unanswered)
    }

    /// How many of the unanswered operations may be submitted: when many bytes already wait for an answer that
    /// stands before them, that one only.
    pub(crate) fn submission_max(&self) -> usize {
        if self.bytes.len() > KEPT_BYTES_MAX { 1 } else { usize::MAX }
    }

    /// Whether answers are under way.
    pub(crate) fn waits_for_parcels(&self) -> bool {
        self.parcel_count > 0
    }

    /// Operations of which the answers are not in the output.
    pub(crate) fn remaining(&self) -> usize {
        self.slots.len() - self.encoded
    }

    /// Whether the operation at this distance from the first that is not in the output is to be submitted.
    pub(crate) fn is_unanswered(&self, ahead: usize) -> bool {
        self.slots[self.encoded + ahead] == Slot::Unanswered
    }

    /// Whether all these operations are of this round and none of them has been done or is under way.
    pub(crate) fn is_untouched(&self, ahead: usize, count: usize) -> bool {
        let slots = self.slots[self.encoded + ahead..].get(..count);
        slots.is_some_and(|slots| slots.iter().all(|slot| *slot == Slot::Unanswered))
    }

    /// Says where the unanswered operations went, in order, and in how many parcels. Local ones that the store
    /// deferred stay unanswered.
    pub(crate) fn place(&mut self, places: &[Slot], parcel_count: usize, replies: &SpaceReplies) {
        self.parcel_count = parcel_count;
        let unanswered = self.slots[self.encoded..].iter_mut().filter(|slot| **slot == Slot::Unanswered);
        for (slot, &place) in unanswered.zip(places) {
            *slot = match place {
                Slot::Fresh(place) if replies.is_deferred(place) => Slot::Unanswered,
                place => place,
            };
        }
    }

    /// The answer to the first operation that is not in the output, if it is there.
    pub(crate) fn next<'a>(&'a self, replies: &'a SpaceReplies) -> Option<Response<'a>> {
        match *self.slots.get(self.encoded)? {
            Slot::Unanswered | Slot::Forwarded(_) => None,
            Slot::Fresh(place) => Some(Ok(replies.get(place))),
            Slot::Kept(answer) => Some(answer.response(&self.bytes)),
        }
    }

    /// Says that the answer of [`Round::next`] is in the output.
    pub(crate) fn advance(&mut self) {
        self.encoded += 1;
    }

    /// Says that the answer of [`Round::next`] was taken and the operation goes on: it is to be submitted again.
    pub(crate) fn go_on(&mut self) {
        self.slots[self.encoded] = Slot::Unanswered;
    }

    /// Copies the answers that are still in the shard's `replies`, before its next batch overwrites them.
    pub(crate) fn keep(&mut self, replies: &SpaceReplies) {
        if self.is_finished() {
            return self.clear();
        }
        for slot in &mut self.slots[self.encoded..] {
            if let Slot::Fresh(place) = *slot {
                *slot = Slot::Kept(Answer::keep(replies.get(place), &mut self.bytes));
            }
        }
        if self.bytes.len() > KEPT_BYTES_MAX {
            self.forget_encoded();
        }
    }

    /// Drops the values that are in the output already.
    fn forget_encoded(&mut self) {
        let mut bytes = Vec::new();
        for slot in &mut self.slots[self.encoded..] {
            if let Slot::Kept(answer @ Answer::Value { .. }) = slot
                && let Ok(reply) = answer.response(&self.bytes)
            {
                *answer = Answer::keep(reply, &mut bytes);
            }
        }
        self.bytes = bytes;
    }

    /// Takes the answers of a parcel that came back from `shard`.
    pub(crate) fn receive(&mut self, shard: u16, answers: &Answers) {
        self.parcel_count -= 1;
        let forwarded = self.slots[self.encoded..].iter_mut().filter(|slot| **slot == Slot::Forwarded(shard));
        for (slot, response) in forwarded.zip(answers.iter()) {
            *slot = match response {
                Ok(Reply::Deferred) => Slot::Unanswered,
                Ok(reply) => Slot::Kept(Answer::keep(reply, &mut self.bytes)),
                Err(error) => Slot::Kept(Answer::Unserved(error)),
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use skep_store::operation::Reply;

    use super::{IDLE_BYTES_MAX, IDLE_SLOTS_MAX, KEPT_BYTES_MAX, Round, Slot};
    use crate::batch::{Answer, Answers};
    use crate::spaces::SpaceReplies;

    /// The answers that can be encoded.
    fn encode(round: &mut Round, replies: &SpaceReplies) -> Vec<Vec<u8>> {
        let mut encoded = Vec::new();
        while let Some(response) = round.next(replies) {
            encoded.push(match response.unwrap() {
                Reply::Value(value) => value.to_vec(),
                reply => format!("{reply:?}").into_bytes(),
            });
            round.advance();
        }
        encoded
    }

    #[test]
    fn answers_leave_in_order_and_deferred_ones_are_submitted_again() {
        let replies = SpaceReplies::new();
        let mut round = Round::default();
        assert!(round.is_finished());
        round.begin(5);
        assert!(round.wants_submission());
        let places = [
            Slot::Kept(Answer::Done),
            Slot::Forwarded(1),
            Slot::Forwarded(2),
            Slot::Forwarded(1),
            Slot::Kept(Answer::NotFound),
        ];
        round.place(&places, 2, &replies);
        assert!(!round.wants_submission() && round.waits_for_parcels());
        assert_eq!(encode(&mut round, &replies), [b"Done"]);

        let mut answers = Answers::default();
        answers.push(Reply::Value(b"one"));
        answers.push(Reply::Deferred);
        round.receive(1, &answers);
        assert_eq!(encode(&mut round, &replies), [b"one"]);
        assert!(!round.wants_submission(), "one parcel is still under way");
        answers.clear();
        answers.push(Reply::Value(b"two"));
        round.receive(2, &answers);
        assert_eq!(encode(&mut round, &replies), [b"two"]);

        assert!(round.wants_submission());
        assert_eq!((round.remaining(), round.is_unanswered(0), round.is_unanswered(1)), (2, true, false));
        round.place(&[Slot::Kept(Answer::Exists)], 0, &replies);
        assert_eq!(encode(&mut round, &replies), [b"Exists".to_vec(), b"NotFound".to_vec()]);
        assert!(round.is_finished() && !round.wants_submission());
    }

    #[test]
    fn a_finished_round_gives_its_memory_back() {
        let replies = SpaceReplies::new();
        let mut round = Round::default();
        let mut answers = Answers::default();
        answers.push(Reply::Value(&[1; KEPT_BYTES_MAX / 2]));
        round.begin(65_535);
        round.place(&vec![Slot::Kept(Answer::Done); 65_534], 0, &replies);
        round.place(&[Slot::Forwarded(1)], 1, &replies);
        round.receive(1, &answers);
        assert_eq!(encode(&mut round, &replies).len(), 65_535);
        round.keep(&replies);
        assert!(round.slots.capacity() <= IDLE_SLOTS_MAX && round.bytes.capacity() <= IDLE_BYTES_MAX);
    }

    #[test]
    fn kept_bytes_are_bounded() {
        let replies = SpaceReplies::new();
        let mut round = Round::default();
        round.begin(100);
        let mut answers = Answers::default();
        answers.push(Reply::Value(&[1; KEPT_BYTES_MAX]));
        for index in 0..100 {
            assert_eq!(round.submission_max(), usize::MAX);
            round.place(&[Slot::Forwarded(1)], 1, &replies);
            round.receive(1, &answers);
            assert_eq!(encode(&mut round, &replies).len(), 1, "{index}");
            round.keep(&replies);
            assert!(round.bytes.len() <= KEPT_BYTES_MAX);
        }
        round.begin(3);
        round.place(&[Slot::Forwarded(1), Slot::Forwarded(2)], 2, &replies);
        answers.push(Reply::Value(b"more"));
        round.receive(2, &answers);
        answers.clear();
        answers.push(Reply::Deferred);
        round.receive(1, &answers);
        round.keep(&replies);
        assert_eq!(round.submission_max(), usize::MAX);
        answers.clear();
        answers.push(Reply::Value(b"some"));
        round.place(&[Slot::Kept(Answer::Deferred), Slot::Forwarded(3)], 1, &replies);
        round.receive(3, &answers);
        round.keep(&replies);
        assert_eq!(round.submission_max(), 1);
    }
}
