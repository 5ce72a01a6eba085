//! Requests and answers that own their bytes, for the way between two shards and for answers that must wait.
//!
//! A shard works on requests that borrow from the receive buffers of its connections. What another shard must do
//! is copied once into a [`RequestBatch`], and the answers come back in [`Answers`]; both keep their memory from
//! journey to journey.
//!
//! ```text
//!   bytes     key ‖ first ‖ second │ key ‖ first ‖ second │ …      first: value, operand or Σ
//!   entries   start, sizes, operation without its bytes   │ …             or the end of a scan
//!                                                                  second: initial value or constants
//! ```
//!
//! It is not the native protocol's packet, because an operation that came in by RESP may be larger than a frame.

use skep_core::operation::{Filter, Operation, OperationError, Reduce, Reply, Request, Scan, Update};
use skep_wire::native::{Response, WireError};

use crate::limits::{POOLED_ENTRIES_MAX, POOLED_SIZE_MAX};

/// Requests that own their bytes.
#[derive(Debug, Default)]
pub(crate) struct RequestBatch {
    bytes: Vec<u8>,
    entries: Vec<Entry>,
}

/// A request; its bytes lie one behind another from `start` on.
#[derive(Debug)]
struct Entry {
    start: usize,
    key_size: usize,
    first_size: usize,
    second_size: usize,
    /// With empty slices.
    operation: Operation<'static>,
}

impl RequestBatch {
    /// Number of requests.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Bytes of memory held.
    pub(crate) fn capacity(&self) -> usize {
        self.bytes.capacity() + self.entries.capacity() * size_of::<Entry>()
    }

    /// Forgets the requests.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.shrink_to(POOLED_SIZE_MAX);
        self.entries.clear();
        self.entries.shrink_to(POOLED_ENTRIES_MAX);
    }

    /// Copies a request to the end.
    pub(crate) fn push(&mut self, request: &Request<'_>) {
        const NOTHING: &[u8] = &[];
        let (operation, first, second) = match request.operation {
            Operation::Get => (Operation::Get, NOTHING, NOTHING),
            Operation::Contains => (Operation::Contains, NOTHING, NOTHING),
            Operation::Delete => (Operation::Delete, NOTHING, NOTHING),
            Operation::AddDecimal { delta } => (Operation::AddDecimal { delta }, NOTHING, NOTHING),
            Operation::Put { value, condition } => (Operation::Put { value: NOTHING, condition }, value, NOTHING),
            Operation::Update(Update { function, element, shape, operand, initial, return_old }) => {
                let without = Update {
                    function,
                    element,
                    shape,
                    operand: NOTHING,
                    initial: initial.map(|_| NOTHING),
                    return_old,
                };
                (Operation::Update(without), operand, initial.unwrap_or(NOTHING))
            }
            Operation::Reduce(Reduce { fold, element, initial, constants }) => {
                let without = Reduce { fold, element, initial: NOTHING, constants: NOTHING };
                (Operation::Reduce(without), initial, constants)
            }
            Operation::Filter(Filter { predicate, element, operand }) => {
                (Operation::Filter(Filter { predicate, element, operand: NOTHING }), operand, NOTHING)
            }
            Operation::Scan(Scan { start, end, reverse, limit, answer, lease }) => {
                let without = Scan { start, end: end.with_bytes(NOTHING), reverse, limit, answer, lease };
                (Operation::Scan(without), end.bytes(), NOTHING)
            }
        };
        let start = self.bytes.len();
        self.bytes.extend_from_slice(request.key);
        self.bytes.extend_from_slice(first);
        self.bytes.extend_from_slice(second);
        let (key_size, first_size, second_size) = (request.key.len(), first.len(), second.len());
        self.entries.push(Entry { start, key_size, first_size, second_size, operation });
    }

    /// The requests in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Request<'_>> {
        self.entries.iter().map(|entry| {
            let (key, rest) = self.bytes[entry.start..].split_at(entry.key_size);
            let (first, rest) = rest.split_at(entry.first_size);
            let second = &rest[..entry.second_size];
            let operation = match entry.operation {
                Operation::Put { condition, .. } => Operation::Put { value: first, condition },
                Operation::Update(update) => {
                    Operation::Update(Update { operand: first, initial: update.initial.map(|_| second), ..update })
                }
                Operation::Reduce(reduce) => Operation::Reduce(Reduce { initial: first, constants: second, ..reduce }),
                Operation::Filter(filter) => Operation::Filter(Filter { operand: first, ..filter }),
                Operation::Scan(scan) => Operation::Scan(Scan { end: scan.end.with_bytes(first), ..scan }),
                bare => bare,
            };
            Request { key, operation }
        })
    }
}

/// One answer; a value is a range of the bytes beside it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Answer {
    /// [`Reply::Done`]
    Done,
    /// [`Reply::Value`]
    Value { start: usize, size: usize },
    /// [`Reply::NotFound`]
    NotFound,
    /// [`Reply::Exists`]
    Exists,
    /// [`Reply::Failed`]
    Failed(OperationError),
    /// [`Reply::Deferred`]
    Deferred,
    /// The request never reached a store.
    Unserved(WireError),
}

impl Answer {
    /// Keeps an answer; a value is copied to the end of `bytes`.
    pub(crate) fn keep(reply: Reply<'_>, bytes: &mut Vec<u8>) -> Answer {
        match reply {
            Reply::Done => Answer::Done,
            Reply::Value(value) => {
                let start = bytes.len();
                bytes.extend_from_slice(value);
                Answer::Value { start, size: value.len() }
            }
            Reply::NotFound => Answer::NotFound,
            Reply::Exists => Answer::Exists,
            Reply::Failed(error) => Answer::Failed(error),
            Reply::Deferred => Answer::Deferred,
        }
    }

    /// The answer that was kept in `bytes`.
    pub(crate) fn response(self, bytes: &[u8]) -> Response<'_> {
        Ok(match self {
            Answer::Done => Reply::Done,
            Answer::Value { start, size } => Reply::Value(&bytes[start..start + size]),
            Answer::NotFound => Reply::NotFound,
            Answer::Exists => Reply::Exists,
            Answer::Failed(error) => Reply::Failed(error),
            Answer::Deferred => Reply::Deferred,
            Answer::Unserved(error) => return Err(error),
        })
    }
}

/// The answers to a [`RequestBatch`], in its order.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    entries: Vec<Answer>,
    bytes: Vec<u8>,
}

impl Answers {
    /// Bytes of memory held.
    pub(crate) fn capacity(&self) -> usize {
        self.bytes.capacity() + self.entries.capacity() * size_of::<Answer>()
    }

    /// Forgets the answers.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.shrink_to(POOLED_SIZE_MAX);
        self.entries.clear();
        self.entries.shrink_to(POOLED_ENTRIES_MAX);
    }

    /// Copies an answer to the end.
    pub(crate) fn push(&mut self, reply: Reply<'_>) {
        let answer = Answer::keep(reply, &mut self.bytes);
        self.entries.push(answer);
    }

    /// Bytes of their values.
    pub(crate) fn size(&self) -> usize {
        self.bytes.len()
    }

    /// Number of answers.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// How many are more than a promise to be answered later.
    pub(crate) fn done_count(&self) -> u64 {
        self.entries.iter().filter(|answer| **answer != Answer::Deferred).count() as u64
    }

    /// The answers in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Response<'_>> {
        self.entries.iter().map(|answer| answer.response(&self.bytes))
    }
}

#[cfg(test)]
mod tests {
    use skep_core::function::{Element, Fold, Predicate, UpdateFunction};
    use skep_core::operation::{
        Filter, Operation, OperationError, PutCondition, Reduce, Reply, Request, Scan, ScanAnswer, ScanEnd, ScanLease,
        ScanStart, Shape, Update,
    };

    use super::{Answers, POOLED_ENTRIES_MAX, POOLED_SIZE_MAX, RequestBatch};

    #[test]
    fn requests_come_back_as_they_went_in() {
        let update = |initial, return_old| {
            Operation::Update(Update {
                function: UpdateFunction::CompareAndSwap,
                element: Element::U16,
                shape: Shape::VectorToVector,
                operand: b"operands",
                initial,
                return_old,
            })
        };
        let operations = [
            Operation::Get,
            Operation::Contains,
            Operation::Put { value: b"value", condition: PutCondition::IfAbsent },
            Operation::Put { value: b"", condition: PutCondition::IfPresent },
            Operation::Delete,
            update(None, true),
            update(Some(b""), false),
            update(Some(b"beginning"), false),
            Operation::Reduce(Reduce { fold: Fold::Dot, element: Element::U8, initial: b"s", constants: b"cons" }),
            Operation::Filter(Filter { predicate: Predicate::Less, element: Element::F32, operand: b"4444" }),
            Operation::AddDecimal { delta: i64::MIN },
            Operation::Scan(Scan {
                start: ScanStart::Floor,
                end: ScanEnd::Below(b"end"),
                reverse: true,
                limit: 7,
                answer: ScanAnswer::Keys,
                lease: ScanLease::Continue(9),
            }),
        ];
        let keys: [&[u8]; 3] = [b"a", b"", b"longer"];
        let requests: Vec<Request<'_>> = operations
            .iter()
            .enumerate()
            .map(|(index, &operation)| Request { key: keys[index % keys.len()], operation })
            .collect();
        let mut batch = RequestBatch::default();
        for _ in 0..2 {
            batch.clear();
            for request in &requests {
                batch.push(request);
            }
            assert_eq!(batch.iter().collect::<Vec<_>>(), requests);
        }
    }

    #[test]
    fn much_memory_is_not_kept() {
        let (mut batch, mut answers) = (RequestBatch::default(), Answers::default());
        let put = Operation::Put { value: &[1; 1000], condition: PutCondition::Always };
        for _ in 0..10_000 {
            batch.push(&Request { key: b"key", operation: put });
            answers.push(Reply::Value(&[1; 1000]));
        }
        batch.clear();
        answers.clear();
        assert!(batch.bytes.capacity() <= POOLED_SIZE_MAX && batch.entries.capacity() <= POOLED_ENTRIES_MAX);
        assert!(answers.bytes.capacity() <= POOLED_SIZE_MAX && answers.entries.capacity() <= POOLED_ENTRIES_MAX);
    }

    #[test]
    fn answers_come_back_as_they_went_in() {
        let replies = [
            Reply::Done,
            Reply::Value(b"value"),
            Reply::Value(b""),
            Reply::NotFound,
            Reply::Exists,
            Reply::Failed(OperationError::SlabFull),
            Reply::Deferred,
        ];
        let mut answers = Answers::default();
        for _ in 0..2 {
            answers.clear();
            for reply in replies {
                answers.push(reply);
            }
            assert_eq!(answers.iter().map(|response| response.unwrap()).collect::<Vec<_>>(), replies);
        }
    }
}
