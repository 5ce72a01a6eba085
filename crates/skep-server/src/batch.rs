//! Requests and replies that own their bytes: for the path between two shards, and for replies that must wait.
//!
//! A shard works on requests that borrow from the receive buffers of its connections. Requests for another shard are
//! copied once into a [`RequestBatch`], and the replies come back in a [`ReplyBatch`]. Both keep their memory for the
//! next round trip.
//!
//! ```text
//!   bytes     key ‖ first ‖ second │ key ‖ first ‖ second │ …      first: value, operand or Σ
//!   entries   start, sizes, operation without its bytes   │ …             or the end of a scan
//!                                                                  second: initial value or constants
//! ```
//!
//! The format is not that of the native protocol, because an operation that arrived by RESP may be larger than a frame.

use skep_core::operation::{Call, Filter, Operation, OperationError, Reduce, Reply, Request, Scan, Update};
use skep_store::cache::ItemRequest;
use skep_wire::native::{Response, WireError};

use crate::limits::{POOLED_ENTRIES_MAX, POOLED_SIZE_MAX};

/// Requests that own their bytes.
#[derive(Debug, Default)]
pub(crate) struct RequestBatch {
    bytes: Vec<u8>,
    entries: Vec<Entry>,
}

/// A request; its bytes begin at `start`, one part after another.
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
    /// Returns the number of requests.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns the bytes of memory held.
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
            Operation::Call(Call { function, vectors, operands, initial, reply }) => {
                let without = Call { function, vectors, operands: NOTHING, initial: initial.map(|_| NOTHING), reply };
                (Operation::Call(without), operands, initial.unwrap_or(NOTHING))
            }
            Operation::StringRead(read) => {
                let (without, bytes) = read.split();
                (Operation::StringRead(without), bytes, NOTHING)
            }
            Operation::StringWrite(write) => {
                let (without, bytes, operand) = write.split();
                (Operation::StringWrite(without), bytes, operand)
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

    /// Returns the requests in order.
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
                Operation::Call(call) => {
                    Operation::Call(Call { operands: first, initial: call.initial.map(|_| second), ..call })
                }
                Operation::Scan(scan) => Operation::Scan(Scan { end: scan.end.with_bytes(first), ..scan }),
                Operation::StringRead(read) => Operation::StringRead(read.with_bytes(first)),
                Operation::StringWrite(write) => Operation::StringWrite(write.with_bytes(first, second)),
                bare => bare,
            };
            Request { key, operation }
        })
    }
}

/// Commands of memcached's protocol that own their bytes: of each, the key and then the value.
#[derive(Debug, Default)]
pub(crate) struct ItemBatch {
    bytes: Vec<u8>,
    entries: Vec<ItemEntry>,
}

/// A command; its bytes end at `end`, and begin where those of the command before end.
#[derive(Debug)]
struct ItemEntry {
    end: usize,
    key_size: usize,
    /// With empty slices.
    item: ItemRequest<'static>,
}

impl ItemBatch {
    /// Returns the number of commands.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns the bytes of memory held.
    pub(crate) fn capacity(&self) -> usize {
        self.bytes.capacity() + self.entries.capacity() * size_of::<ItemEntry>()
    }

    /// Forgets the commands.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.shrink_to(POOLED_SIZE_MAX);
        self.entries.clear();
        self.entries.shrink_to(POOLED_ENTRIES_MAX);
    }

    /// Copies a command to the end.
    pub(crate) fn push(&mut self, item: &ItemRequest<'_>) {
        self.bytes.extend_from_slice(item.key);
        self.bytes.extend_from_slice(item.value());
        let item_without = item.with_bytes(&[], &[]);
        self.entries.push(ItemEntry { end: self.bytes.len(), key_size: item.key.len(), item: item_without });
    }

    /// Returns the commands in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = ItemRequest<'_>> {
        let mut start = 0;
        self.entries.iter().map(move |entry| {
            let (key, value) = self.bytes[start..entry.end].split_at(entry.key_size);
            start = entry.end;
            entry.item.with_bytes(key, value)
        })
    }
}

/// One reply; a value is a range of the bytes beside it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum OwnedReply {
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

impl OwnedReply {
    /// Copies a reply; its value goes to the end of `bytes`.
    pub(crate) fn copy(reply: Reply<'_>, bytes: &mut Vec<u8>) -> OwnedReply {
        match reply {
            Reply::Done => OwnedReply::Done,
            Reply::Value(value) => {
                let start = bytes.len();
                bytes.extend_from_slice(value);
                OwnedReply::Value { start, size: value.len() }
            }
            Reply::NotFound => OwnedReply::NotFound,
            Reply::Exists => OwnedReply::Exists,
            Reply::Failed(error) => OwnedReply::Failed(error),
            Reply::Deferred => OwnedReply::Deferred,
        }
    }

    /// Returns the reply whose value is in `bytes`.
    pub(crate) fn response(self, bytes: &[u8]) -> Response<'_> {
        Ok(match self {
            OwnedReply::Done => Reply::Done,
            OwnedReply::Value { start, size } => Reply::Value(&bytes[start..start + size]),
            OwnedReply::NotFound => Reply::NotFound,
            OwnedReply::Exists => Reply::Exists,
            OwnedReply::Failed(error) => Reply::Failed(error),
            OwnedReply::Deferred => Reply::Deferred,
            OwnedReply::Unserved(error) => return Err(error),
        })
    }
}

/// The replies to a [`RequestBatch`], in its order.
#[derive(Debug, Default)]
pub(crate) struct ReplyBatch {
    entries: Vec<OwnedReply>,
    bytes: Vec<u8>,
}

impl ReplyBatch {
    /// Returns the bytes of memory held.
    pub(crate) fn capacity(&self) -> usize {
        self.bytes.capacity() + self.entries.capacity() * size_of::<OwnedReply>()
    }

    /// Forgets the replies.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.shrink_to(POOLED_SIZE_MAX);
        self.entries.clear();
        self.entries.shrink_to(POOLED_ENTRIES_MAX);
    }

    /// Copies a reply to the end.
    pub(crate) fn push(&mut self, reply: Reply<'_>) {
        let reply = OwnedReply::copy(reply, &mut self.bytes);
        self.entries.push(reply);
    }

    /// Returns the bytes of their values.
    pub(crate) fn size(&self) -> usize {
        self.bytes.len()
    }

    /// Returns the number of replies.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns the number of replies of operations that were executed.
    pub(crate) fn done_count(&self) -> u64 {
        self.entries.iter().filter(|reply| **reply != OwnedReply::Deferred).count() as u64
    }

    /// Returns the replies in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Response<'_>> {
        self.entries.iter().map(|reply| reply.response(&self.bytes))
    }
}

#[cfg(test)]
mod tests {
    use skep_core::function::{Element, Fold, Predicate, UpdateFunction};
    use skep_core::operation::{
        ExpiryChange, Filter, Operation, OperationError, PutCondition, Reduce, Reply, Request, Scan, ScanAnswer,
        ScanEnd, ScanLease, ScanStart, Shape, Update,
    };

    use skep_store::cache::{CasNumber, ItemCommand, ItemGet, ItemPut, ItemPutMode, ItemRequest};

    use super::{ItemBatch, POOLED_ENTRIES_MAX, POOLED_SIZE_MAX, ReplyBatch, RequestBatch};

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
    fn items_come_back_as_they_went_in() {
        let put = ItemPut {
            value: b"value",
            mode: ItemPutMode::Append,
            flags: 7,
            expiry: ExpiryChange::CLEAR,
            size_max: 9,
            may_be_stale: true,
            returns_fields: false,
            has_base64_key: true,
        };
        let items = [
            ItemRequest { key: b"a", cas: Some(CasNumber(5)), command: ItemCommand::Put(put) },
            ItemRequest { key: b"bc", cas: None, command: ItemCommand::Get(ItemGet::PLAIN) },
            ItemRequest { key: b"bc", cas: None, command: ItemCommand::Read },
            ItemRequest { key: b"bc", cas: None, command: ItemCommand::ReadValue },
            ItemRequest { key: b"d", cas: None, command: ItemCommand::Put(ItemPut { value: b"", ..put }) },
            ItemRequest { key: b"", cas: None, command: ItemCommand::Delete },
        ];
        let mut batch = ItemBatch::default();
        for _ in 0..2 {
            batch.clear();
            items.iter().for_each(|item| batch.push(item));
            assert!(batch.iter().eq(items));
        }
    }

    #[test]
    fn much_memory_is_not_pooled() {
        let (mut batch, mut returned) = (RequestBatch::default(), ReplyBatch::default());
        let put = Operation::Put { value: &[1; 1000], condition: PutCondition::Always };
        for _ in 0..10_000 {
            batch.push(&Request { key: b"key", operation: put });
            returned.push(Reply::Value(&[1; 1000]));
        }
        batch.clear();
        returned.clear();
        assert!(batch.bytes.capacity() <= POOLED_SIZE_MAX && batch.entries.capacity() <= POOLED_ENTRIES_MAX);
        assert!(returned.bytes.capacity() <= POOLED_SIZE_MAX && returned.entries.capacity() <= POOLED_ENTRIES_MAX);
    }

    #[test]
    fn replies_come_back_as_they_went_in() {
        let replies = [
            Reply::Done,
            Reply::Value(b"value"),
            Reply::Value(b""),
            Reply::NotFound,
            Reply::Exists,
            Reply::Failed(OperationError::SlabFull),
            Reply::Deferred,
        ];
        let mut returned = ReplyBatch::default();
        for _ in 0..2 {
            returned.clear();
            for reply in replies {
                returned.push(reply);
            }
            assert_eq!(returned.iter().map(|response| response.unwrap()).collect::<Vec<_>>(), replies);
        }
    }
}
