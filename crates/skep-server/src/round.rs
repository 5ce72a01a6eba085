//! The answers that a connection waits for.
//!
//! A connection works in *rounds*: so many operations are decoded, and the next ones only when every answer of these
//! is in the output. So replies leave in the order of their requests, and operations of one connection on one
//! key are carried out in order, whichever shard carries them out.
//!
//! ```text
//!   slots   │ answered │ answered │ unanswered │ forwarded │ answered │ …        those in the output are gone
//!   runs    │ 2                   │ 1          │ 1         │ …                   neighbours that are alike
//! ```
//!
//! A slot that is `Unanswered` is submitted to a store, again and again if the store defers it; since a store that
//! defers one operation on a key defers the later ones too, and a round is only submitted again when nothing of it
//! is under way, order is kept.

use skep_core::operation::Reply;
use skep_wire::native::Response;

use crate::batch::{Answer, Answers};
use crate::limits::{BUFFERED_SIZE_MAX, IDLE_QUEUE_SIZE_MAX, IDLE_RANGES_MAX};
use crate::spaces::{Place, SpaceReplies};

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

/// Slots beside each other that are alike: the first one, and how many there are. Fresh answers lie in a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Run {
    slot: Slot,
    count: usize,
}

impl Run {
    /// One slot.
    #[inline]
    pub(crate) fn one(slot: Slot) -> Run {
        Run { slot, count: 1 }
    }

    /// Number of slots.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Whether its operations are to be submitted.
    pub(crate) fn is_unanswered(&self) -> bool {
        self.slot == Slot::Unanswered
    }

    /// Returns true if one of its operations was deferred because there is no room for its reply.
    pub(crate) fn is_deferred_for_room(&self, replies: &SpaceReplies) -> bool {
        let Slot::Fresh(place) = self.slot else { return false };
        (0..self.count).any(|index| replies.is_deferred_for_room(place.ahead(index)))
    }

    /// Where the answers to its operations lie, if they are fresh.
    pub(crate) fn fresh(&self) -> Option<Place> {
        if let Slot::Fresh(place) = self.slot { Some(place) } else { None }
    }

    /// Whether `next` continues it.
    #[inline]
    fn goes_on_with(&self, next: &Run) -> bool {
        match (self.slot, next.slot) {
            (Slot::Unanswered, Slot::Unanswered) => true,
            (Slot::Forwarded(shard), Slot::Forwarded(other)) => shard == other,
            (Slot::Fresh(place), Slot::Fresh(other)) => place.ahead(self.count) == other,
            _ => false,
        }
    }

    /// Takes its first `count` slots.
    #[inline]
    fn take(&mut self, count: usize) -> Run {
        let taken = Run { slot: self.slot, count };
        self.count -= count;
        if let Slot::Fresh(place) = self.slot {
            self.slot = Slot::Fresh(place.ahead(count));
        }
        taken
    }
}

/// Appends a run to those from number `begin` on.
#[inline]
pub(crate) fn push_run(runs: &mut Vec<Run>, begin: usize, run: Run) {
    match runs[begin..].last_mut() {
        Some(last) if last.goes_on_with(&run) => last.count += run.count,
        _ if run.count == 0 => {}
        _ => runs.push(run),
    }
}

/// Operations and their answers.
#[derive(Debug, Default)]
pub(crate) struct Round {
    /// Those before `first` are in the output.
    runs: Vec<Run>,
    first: usize,
    /// Empty; kept for its memory.
    spare: Vec<Run>,
    /// Slots from the first run on.
    remaining: usize,
    /// The values of kept answers.
    bytes: Vec<u8>,
    /// Parcels under way.
    parcel_count: usize,
}

impl Round {
    /// Begins a round of `count` operations. The last one must be finished.
    pub(crate) fn begin(&mut self, count: usize) {
        debug_assert!(self.is_finished());
        self.clear();
        push_run(&mut self.runs, 0, Run { slot: Slot::Unanswered, count });
        self.remaining = count;
    }

    fn clear(&mut self) {
        self.runs.clear();
        self.runs.shrink_to(IDLE_RANGES_MAX);
        self.spare.shrink_to(IDLE_RANGES_MAX);
        self.first = 0;
        self.bytes.clear();
        self.bytes.shrink_to(IDLE_QUEUE_SIZE_MAX);
    }

    /// Bytes of memory held.
    #[inline]
    pub(crate) fn capacity(&self) -> usize {
        (self.runs.capacity() + self.spare.capacity()) * size_of::<Run>() + self.bytes.capacity()
    }

    /// Returns the memory of a finished round.
    pub(crate) fn release(&mut self) {
        (self.runs, self.spare, self.bytes) = (Vec::new(), Vec::new(), Vec::new());
        self.first = 0;
    }

    /// Whether every answer is in the output.
    pub(crate) fn is_finished(&self) -> bool {
        self.remaining == 0
    }

    /// Whether operations are to be submitted: some are unanswered and none is under way.
    pub(crate) fn wants_submission(&self) -> bool {
        self.parcel_count == 0 && self.runs().iter().any(Run::is_unanswered)
    }

    /// How many of the unanswered operations may be submitted: when many bytes already wait for an answer that
    /// stands before them, that one only.
    pub(crate) fn submission_max(&self) -> usize {
        if self.bytes.len() > BUFFERED_SIZE_MAX { 1 } else { usize::MAX }
    }

    /// Whether answers are under way.
    pub(crate) fn waits_for_parcels(&self) -> bool {
        self.parcel_count > 0
    }

    /// Operations of which the answers are not in the output.
    pub(crate) fn remaining(&self) -> usize {
        self.remaining
    }

    /// These operations, no two neighbours alike.
    pub(crate) fn runs(&self) -> &[Run] {
        &self.runs[self.first..]
    }

    /// Says where the unanswered operations went, in order, and in how many parcels. Local ones that the store
    /// deferred stay unanswered, and so do those for which there was no parcel. Returns how many these are.
    pub(crate) fn place(&mut self, places: &[Run], parcel_count: usize, replies: &SpaceReplies) -> usize {
        self.parcel_count = parcel_count;
        let mut unanswered = 0;
        let mut places = places.iter().copied();
        let mut place = places.next();
        self.replace(|mut run, placed, _| {
            while let Some(next) = &mut place
                && run.is_unanswered()
                && run.count > 0
            {
                let part = next.take(run.take(next.count.min(run.count)).count);
                match part.fresh() {
                    Some(first) if replies.have_deferred(first) => {
                        for place in (0..part.count).map(|index| first.ahead(index)) {
                            let is_deferred = replies.is_deferred(place);
                            unanswered += usize::from(is_deferred);
                            let slot = if is_deferred { Slot::Unanswered } else { Slot::Fresh(place) };
                            push_run(placed, 0, Run::one(slot));
                        }
                    }
                    _ => {
                        unanswered += if part.is_unanswered() { part.count } else { 0 };
                        push_run(placed, 0, part);
                    }
                }
                if next.count == 0 {
                    place = places.next();
                }
            }
            push_run(placed, 0, run);
        });
        unanswered
    }

    /// Lets `replace` append something else for each run; it gets the values of kept answers too.
    fn replace(&mut self, mut replace: impl FnMut(Run, &mut Vec<Run>, &mut Vec<u8>)) {
        for &run in &self.runs[self.first..] {
            replace(run, &mut self.spare, &mut self.bytes);
        }
        std::mem::swap(&mut self.runs, &mut self.spare);
        self.spare.clear();
        self.first = 0;
    }

    /// Gives the answers that are there to `write`, in order, at most `count_max` and until it wants no more; answers how
    /// many it took. They are in the output then.
    #[inline]
    pub(crate) fn take<'a>(
        &'a mut self,
        count_max: usize,
        replies: &'a SpaceReplies,
        mut write: impl FnMut(Response<'_>) -> bool,
    ) -> usize {
        let mut taken = 0;
        let mut wants_more = count_max > 0;
        while wants_more && let Some(run) = self.runs.get_mut(self.first) {
            let count = run.count.min(count_max - taken);
            let mut written = 0;
            match run.slot {
                Slot::Unanswered | Slot::Forwarded(_) => break,
                Slot::Fresh(place) => {
                    while wants_more && written < count {
                        wants_more = write(Ok(replies.get(place.ahead(written))));
                        written += 1;
                    }
                }
                Slot::Kept(answer) => {
                    wants_more = write(answer.response(&self.bytes));
                    written = 1;
                }
            }
            run.take(written);
            self.first += usize::from(run.count == 0);
            taken += written;
            wants_more &= taken < count_max;
        }
        self.remaining -= taken;
        taken
    }

    /// The answer to the first operation that is not in the output, if it is there.
    pub(crate) fn next<'a>(&'a self, replies: &'a SpaceReplies) -> Option<Response<'a>> {
        match self.runs.get(self.first)?.slot {
            Slot::Unanswered | Slot::Forwarded(_) => None,
            Slot::Fresh(place) => Some(Ok(replies.get(place))),
            Slot::Kept(answer) => Some(answer.response(&self.bytes)),
        }
    }

    /// Says that the answer of [`Round::next`] is in the output.
    pub(crate) fn advance(&mut self) {
        let run = &mut self.runs[self.first];
        run.take(1);
        self.first += usize::from(run.count == 0);
        self.remaining -= 1;
    }

    /// Says that the answer of [`Round::next`] was taken and the operation goes on: it is to be submitted again.
    pub(crate) fn go_on(&mut self) {
        let mut is_first = true;
        self.replace(|mut run, runs, _| {
            if std::mem::take(&mut is_first) {
                run.take(1);
                push_run(runs, 0, Run::one(Slot::Unanswered));
            }
            push_run(runs, 0, run);
        });
    }

    /// Copies the answers that are still in the shard's `replies`, before its next batch overwrites them.
    pub(crate) fn keep(&mut self, replies: &SpaceReplies) {
        if self.is_finished() {
            return self.clear();
        }
        if self.runs().iter().any(|run| run.fresh().is_some()) {
            self.replace(|run, runs, bytes| match run.fresh() {
                Some(first) => runs.extend(
                    (0..run.count)
                        .map(|index| Run::one(Slot::Kept(Answer::keep(replies.get(first.ahead(index)), bytes)))),
                ),
                None => runs.push(run),
            });
        }
        let is_needed = |run: &Run| matches!(run.slot, Slot::Kept(Answer::Value { .. }));
        if !self.bytes.is_empty() && !self.runs().iter().any(is_needed) {
            // They are in the output. An operation before the others may be deferred for long.
            self.bytes.clear();
            self.bytes.shrink_to(IDLE_QUEUE_SIZE_MAX);
        } else if self.bytes.len() > BUFFERED_SIZE_MAX {
            self.forget_encoded();
        }
    }

    /// Drops the values that are in the output already.
    fn forget_encoded(&mut self) {
        let mut bytes = Vec::new();
        for run in &mut self.runs[self.first..] {
            if let Slot::Kept(answer @ Answer::Value { .. }) = &mut run.slot
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
        let mut answers = answers.iter();
        self.replace(|mut run, runs, bytes| {
            while run.slot == Slot::Forwarded(shard)
                && run.count > 0
                && let Some(response) = answers.next()
            {
                run.take(1);
                let slot = match response {
                    Ok(Reply::Deferred) => Slot::Unanswered,
                    Ok(reply) => Slot::Kept(Answer::keep(reply, bytes)),
                    Err(error) => Slot::Kept(Answer::Unserved(error)),
                };
                push_run(runs, 0, Run::one(slot));
            }
            push_run(runs, 0, run);
        });
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use skep_core::operation::{Operation, PutCondition, Reply, Request};
    use skep_store::hash::Settings;
    use skep_store::processor::Processor;

    use super::{BUFFERED_SIZE_MAX, IDLE_QUEUE_SIZE_MAX, IDLE_RANGES_MAX, Round, Run, Slot, push_run};
    use crate::batch::{Answer, Answers};
    use crate::spaces::{Space, SpaceReplies, SpaceRequests, Stores};

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
        round.place(&places.map(Run::one), 2, &replies);
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
        assert_eq!(round.remaining(), 2);
        assert_eq!(round.runs(), [Slot::Unanswered, Slot::Kept(Answer::NotFound)].map(Run::one));
        round.place(&[Run::one(Slot::Kept(Answer::Exists))], 0, &replies);
        assert_eq!(encode(&mut round, &replies), [b"Exists".to_vec(), b"NotFound".to_vec()]);
        assert!(round.is_finished() && !round.wants_submission());
    }

    #[test]
    fn what_a_store_deferred_of_a_run_is_submitted_again_behind_it() {
        const COUNT: usize = 12;
        let value = vec![7; 200 << 10];
        let processor = Processor::new(&Settings::for_kv_size(64 << 20, value.len(), 0)).unwrap();
        let (mut stores, mut replies) = (Stores::new(processor, None), SpaceReplies::new());
        let put = Operation::Put { value: &value, condition: PutCondition::Always };
        let mut batch = SpaceRequests::default();
        batch.push(Space::Hash, Request { key: b"k", operation: put });
        assert_eq!(stores.execute(&batch, &mut replies, Instant::now()), 1);

        let mut round = Round::default();
        round.begin(COUNT + 1);
        let (mut submissions, mut sizes) = (0, Vec::new());
        while !round.is_finished() {
            assert!(round.wants_submission());
            let count: usize = round.runs().iter().filter(|run| run.is_unanswered()).map(Run::count).sum();
            let (mut batch, mut places) = (SpaceRequests::default(), Vec::new());
            for _ in 0..count {
                let place = batch.push(Space::Hash, Request { key: b"k", operation: Operation::Get });
                push_run(&mut places, 0, Run::one(Slot::Fresh(place)));
            }
            assert_eq!(places.len(), 1, "places in a row are one run");
            let done = stores.execute(&batch, &mut replies, Instant::now());
            assert!(submissions > 0 || 0 < done && done < COUNT, "the budget is for some of them");
            round.place(&places, 0, &replies);
            assert!(round.runs().len() <= 2);
            // What is taken one at a time, and what in a row, comes in order.
            if submissions % 2 == 0 {
                assert!(matches!(round.next(&replies), Some(Ok(Reply::Value(_)))));
                round.advance();
                sizes.push(value.len());
            }
            round.take(COUNT, &replies, |response| match response {
                Ok(Reply::Value(value)) => {
                    sizes.push(value.len());
                    true
                }
                other => panic!("{other:?}"),
            });
            round.keep(&replies);
            submissions += 1;
        }
        assert_eq!(sizes, [value.len(); COUNT + 1]);
        assert!(submissions > 1);
    }

    #[test]
    fn a_finished_round_gives_its_memory_back() {
        let replies = SpaceReplies::new();
        let mut round = Round::default();
        let mut answers = Answers::default();
        answers.push(Reply::Value(&[1; BUFFERED_SIZE_MAX / 2]));
        round.begin(65_535);
        round.place(&vec![Run::one(Slot::Kept(Answer::Done)); 65_534], 0, &replies);
        round.place(&[Run::one(Slot::Forwarded(1))], 1, &replies);
        round.receive(1, &answers);
        assert_eq!(encode(&mut round, &replies).len(), 65_535);
        round.keep(&replies);
        assert!(round.runs.capacity() <= IDLE_RANGES_MAX && round.spare.capacity() <= IDLE_RANGES_MAX);
        assert!(round.bytes.capacity() <= IDLE_QUEUE_SIZE_MAX);
    }

    #[test]
    fn kept_bytes_are_bounded() {
        let replies = SpaceReplies::new();
        let mut round = Round::default();
        round.begin(100);
        let mut answers = Answers::default();
        answers.push(Reply::Value(&[1; BUFFERED_SIZE_MAX]));
        for index in 0..100 {
            assert_eq!(round.submission_max(), usize::MAX);
            round.place(&[Run::one(Slot::Forwarded(1))], 1, &replies);
            round.receive(1, &answers);
            assert_eq!(encode(&mut round, &replies).len(), 1, "{index}");
            round.keep(&replies);
            assert!(round.bytes.len() <= BUFFERED_SIZE_MAX);
        }
        round.begin(3);
        round.place(&[Slot::Forwarded(1), Slot::Forwarded(2)].map(Run::one), 2, &replies);
        answers.push(Reply::Value(b"more"));
        round.receive(2, &answers);
        answers.clear();
        answers.push(Reply::Deferred);
        round.receive(1, &answers);
        round.keep(&replies);
        assert_eq!(round.submission_max(), usize::MAX);
        answers.clear();
        answers.push(Reply::Value(b"some"));
        round.place(&[Slot::Kept(Answer::Deferred), Slot::Forwarded(3)].map(Run::one), 1, &replies);
        round.receive(3, &answers);
        round.keep(&replies);
        assert_eq!(round.submission_max(), 1);
    }
}
