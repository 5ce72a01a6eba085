//! The commands of memcached's protocol on one item, as a cache executes them.
//!
//! An [`ItemRequest`] has the meaning of a text or meta command: its number, expiry and flags are decoded, and a relative
//! time is resolved. The reply is one of these:
//!
//! | reply | of | meaning |
//! |---|---|---|
//! | `Value` | get, arithmetic, a put that asks for it | [`ItemFields`], then the value or the number |
//! | `Done` | put, delete, invalidate | it took place |
//! | `NotFound` | all | the key is missing, and the command needs one; an append or prepend would be too long |
//! | `Exists` | all | the item has another cas number, or a put needs a missing key |
//! | `Failed` | all | the request is not valid, or the value is no number |
//!
//! ```text
//! byte 0         4         8               16              24      25
//!      ├─────────┼─────────┼───────────────┼───────────────┼───────┼─────────┐
//!      │ flags   │ size    │ cas number    │ expiry        │ marks │ value   │  numbers are little-endian
//!      └─────────┴─────────┴───────────────┴───────────────┴───────┴─────────┘
//!                                            2⁶⁴ − 1: none   bits 0–5: the fields that are true or false
//! ```
//!
//! The reply to [`ItemCommand::ReadValue`] is an [`ItemValue`], which has only the flags before the value.

use super::execute::{Execution, Run, Target};
use super::item::CasNumber;
use crate::memory::ResidentLines;
use crate::processor::Replies;
use crate::short::{PADDED_SIZE, padded};
use skep_core::operation::{Expiry, ExpiryChange, KEY_SIZE_MAX, OperationError, Request, VALUE_SIZE_MAX};

/// Bytes of encoded [`ItemFields`].
pub(super) const FIELDS_SIZE: usize = 25;

/// Bytes of the flags in an encoded [`ItemValue`].
const FLAGS_SIZE: usize = size_of::<u32>();

/// A command of memcached's protocol on one item.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ItemRequest<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The command takes place only if the item has this number.
    pub cas: Option<CasNumber>,
    /// The command.
    pub command: ItemCommand<'a>,
}

/// The command of an [`ItemRequest`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ItemCommand<'a> {
    /// Returns the item, which counts as read from now on.
    Read,
    /// Does the same, but returns an [`ItemValue`].
    ReadValue,
    /// Returns the item, and changes it.
    Get(ItemGet),
    /// Stores a value.
    Put(ItemPut<'a>),
    /// Removes the item.
    Delete,
    /// Marks the item as stale, and changes its expiry. The next client that reads it wins.
    Invalidate {
        /// The change of the expiry.
        expiry: ExpiryChange,
    },
    /// Adds to a decimal number, or subtracts.
    Arithmetic(ItemArithmetic),
}

/// Returns an item, and changes its expiry.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ItemGet {
    /// The reply has the value.
    pub returns_value: bool,
    /// The item counts as read from now on.
    pub is_access: bool,
    /// The change of the expiry.
    pub expiry: ExpiryChange,
    /// The client wins if the item is stale, and no other client has won.
    pub may_win: bool,
    /// Creates a missing key with an empty value and this expiry. The client wins.
    pub create: Option<ExpiryChange>,
    /// The client also wins if the item expires before this time, in milliseconds since 1970.
    pub recache_before: Option<u64>,
}

impl ItemGet {
    /// Does what [`ItemCommand::Read`] does.
    pub const PLAIN: ItemGet = ItemGet {
        returns_value: true,
        is_access: true,
        expiry: ExpiryChange::KEEP,
        may_win: false,
        create: None,
        recache_before: None,
    };
}

/// Stores a value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ItemPut<'a> {
    /// The value, or the bytes that are added to it.
    pub value: &'a [u8],
    /// The condition, and where the bytes are added.
    pub mode: ItemPutMode,
    /// The flags of the client. Append and prepend keep those of the item.
    pub flags: u32,
    /// The expiry. Append and prepend keep that of the item.
    pub expiry: ExpiryChange,
    /// The longest value that append and prepend may make.
    pub size_max: usize,
    /// If the item has a higher number than the one given, stores the value as a stale one, with the item's expiry.
    pub may_be_stale: bool,
    /// The reply has the fields of the new item.
    pub returns_fields: bool,
    /// The client wrote the key as base64. A replaced item is marked so; append and prepend remove the mark.
    pub has_base64_key: bool,
}

impl ItemPut<'_> {
    /// Stores an empty value without flags and expiry, in any case.
    pub const PLAIN: ItemPut<'static> = ItemPut {
        value: &[],
        mode: ItemPutMode::Always,
        flags: 0,
        expiry: ExpiryChange::CLEAR,
        size_max: VALUE_SIZE_MAX,
        may_be_stale: false,
        returns_fields: false,
        has_base64_key: false,
    };
}

/// What an [`ItemPut`] stores, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ItemPutMode {
    /// The value, in any case.
    Always,
    /// The value, if the key is missing.
    IfAbsent,
    /// The value, if the key exists.
    IfPresent,
    /// The value of the item, then the bytes. The key must exist.
    Append,
    /// The bytes, then the value of the item. The key must exist.
    Prepend,
}

/// Changes a decimal number of 64 bits without a sign. The reply is the new number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ItemArithmetic {
    /// The change.
    pub change: ItemChange,
    /// Creates a missing key with this number and expiry.
    pub create: Option<(u64, ExpiryChange)>,
    /// The change of the expiry of an item.
    pub expiry: ExpiryChange,
}

/// The change of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ItemChange {
    /// Adds this modulo 2⁶⁴.
    Add(u64),
    /// Subtracts this, or all if the number is smaller.
    Subtract(u64),
}

/// The fields of an item besides its key and value. The expiry is that before a get or an arithmetic command has changed
/// it; the other fields are those after the command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ItemFields {
    /// The flags of the client.
    pub flags: u32,
    /// The bytes of the value.
    pub size: u32,
    /// The number of this state of the key.
    pub cas: CasNumber,
    /// The time from which on the key is missing.
    pub expiry: Option<Expiry>,
    /// An earlier command has read the item.
    pub was_fetched: bool,
    /// The value is stale.
    pub is_stale: bool,
    /// Another client has won before.
    pub is_won_by_other: bool,
    /// This client has won: it should store a new value.
    pub is_won: bool,
    /// The command has created the item.
    pub is_created: bool,
    /// The client that stored the value wrote the key as base64.
    pub has_base64_key: bool,
}

impl ItemFields {
    /// Decodes the reply of a command: the fields, and the value or the number after them.
    ///
    /// # Panics
    /// If the bytes are not such a reply.
    #[inline]
    pub fn decode(reply: &[u8]) -> (ItemFields, &[u8]) {
        let (bytes, value) = reply.split_first_chunk::<FIELDS_SIZE>().expect("the reply begins with the fields");
        let (flags, rest) = bytes.split_first_chunk().expect("4 of 25 bytes");
        let (size, rest) = rest.split_first_chunk().expect("4 of 21 bytes");
        let (cas, rest) = rest.split_first_chunk().expect("8 of 17 bytes");
        let (expiry, marks) = rest.split_first_chunk().expect("8 of 9 bytes");
        let has = |bit: u8| marks[0] >> bit & 1 != 0;
        let fields = ItemFields {
            flags: u32::from_le_bytes(*flags),
            size: u32::from_le_bytes(*size),
            cas: CasNumber(u64::from_le_bytes(*cas)),
            expiry: i64::try_from(u64::from_le_bytes(*expiry)).ok().and_then(Expiry::at),
            was_fetched: has(0),
            is_stale: has(1),
            is_won_by_other: has(2),
            is_won: has(3),
            is_created: has(4),
            has_base64_key: has(5),
        };
        (fields, value)
    }

    /// Returns the bytes of the fields.
    #[inline]
    pub(super) fn encode(&self) -> [u8; FIELDS_SIZE] {
        let mut bytes = [0; FIELDS_SIZE];
        bytes[..4].copy_from_slice(&self.flags.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.size.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.cas.0.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.expiry.map_or(u64::MAX, Expiry::milliseconds).to_le_bytes());
        let Self { was_fetched, is_stale, is_won_by_other, is_won, is_created, has_base64_key, .. } = *self;
        let marks = [was_fetched, is_stale, is_won_by_other, is_won, is_created, has_base64_key];
        bytes[24] = marks.iter().rev().fold(0, |bits, mark| bits << 1 | u8::from(*mark));
        bytes
    }
}

/// The flags and the value of an item: the reply to [`ItemCommand::ReadValue`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ItemValue<'r> {
    /// The flags of the client.
    pub flags: u32,
    /// The value.
    pub value: &'r [u8],
}

impl<'r> ItemValue<'r> {
    /// Bytes besides the value when it is encoded.
    pub(super) const OVERHEAD: usize = FLAGS_SIZE;

    /// Decodes the reply of the command.
    ///
    /// # Panics
    /// If the bytes are not such a reply.
    #[inline]
    pub fn decode(reply: &'r [u8]) -> Self {
        let (flags, value) = reply.split_first_chunk().expect("the reply begins with the flags");
        ItemValue { flags: u32::from_le_bytes(*flags), value }
    }

    /// Appends the encoded bytes.
    #[inline(always)]
    pub(super) fn append(&self, to: &mut Vec<u8>) {
        let flags = self.flags.to_le_bytes();
        let Some(padded) = padded(self.value) else {
            to.extend_from_slice(&flags);
            return to.extend_from_slice(self.value);
        };
        // One copy of a constant size, whose end is taken back.
        let mut bytes = [0; FLAGS_SIZE + PADDED_SIZE];
        bytes[..FLAGS_SIZE].copy_from_slice(&flags);
        bytes[FLAGS_SIZE..].copy_from_slice(&padded);
        let end = to.len() + FLAGS_SIZE + self.value.len();
        to.extend_from_slice(&bytes);
        to.truncate(end);
    }
}

impl<'a> ItemRequest<'a> {
    /// Returns true if the command changes no item, except that the item counts as read.
    pub fn is_read(&self) -> bool {
        matches!(
            self.command,
            ItemCommand::Read
                | ItemCommand::ReadValue
                | ItemCommand::Get(ItemGet { expiry: ExpiryChange::KEEP, may_win: false, .. })
        )
    }

    /// Returns the bytes of key and value.
    #[inline]
    pub fn size(&self) -> usize {
        self.key.len() + self.value().len()
    }

    /// Returns the bytes that a put stores.
    #[inline]
    pub fn value(&self) -> &'a [u8] {
        if let ItemCommand::Put(put) = self.command { put.value } else { &[] }
    }

    /// Returns the same command on another key, with another value if it has one.
    pub fn with_bytes<'b>(&self, key: &'b [u8], value: &'b [u8]) -> ItemRequest<'b> {
        let command = match self.command {
            ItemCommand::Put(put) => ItemCommand::Put(ItemPut { value, ..put }),
            ItemCommand::Read => ItemCommand::Read,
            ItemCommand::ReadValue => ItemCommand::ReadValue,
            ItemCommand::Get(get) => ItemCommand::Get(get),
            ItemCommand::Delete => ItemCommand::Delete,
            ItemCommand::Invalidate { expiry } => ItemCommand::Invalidate { expiry },
            ItemCommand::Arithmetic(arithmetic) => ItemCommand::Arithmetic(arithmetic),
        };
        ItemRequest { key, cas: self.cas, command }
    }
}

/// What is known of requests before they are executed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Checked {
    /// They are valid for every value. May be false for valid ones.
    pub(super) are_valid: bool,
    /// One may read the item of its key. May be true for others.
    pub(super) read_items: bool,
}

/// A request that a cache executes.
pub(super) trait CacheRequest {
    /// Returns the key.
    fn key(&self) -> &[u8];

    /// Checks the request, faster than [`CacheRequest::validate`] and [`CacheRequest::reads_item`].
    fn check(&self) -> Checked;

    /// Checks the request without its value.
    fn validate(&self) -> Result<(), OperationError>;

    /// Returns true if it may read the item of its key.
    fn reads_item(&self) -> bool;

    /// Executes the first of these requests, which are valid, and those after it that are alike, if it is a frequent one. Sets
    /// their replies, which begin at `first`, except that of a deferred one.
    fn execute_run<'e, L: ResidentLines>(
        requests: &'e [Self],
        targets: &[Target],
        execution: &mut Execution<'e, L>,
        first: usize,
        replies: &mut Replies,
    ) -> Run
    where
        Self: Sized;
}

impl CacheRequest for Request<'_> {
    #[inline(always)]
    fn key(&self) -> &[u8] {
        self.key
    }

    #[inline(always)]
    fn check(&self) -> Checked {
        super::check(self)
    }

    fn validate(&self) -> Result<(), OperationError> {
        self.validate_unordered()
    }

    #[inline(always)]
    fn reads_item(&self) -> bool {
        super::execute::unconditional(&self.operation).is_none()
    }

    #[inline(always)]
    fn execute_run<'e, L: ResidentLines>(
        requests: &'e [Self],
        targets: &[Target],
        execution: &mut Execution<'e, L>,
        first: usize,
        replies: &mut Replies,
    ) -> Run {
        execution.execute_run(requests, targets, first, replies)
    }
}

impl CacheRequest for ItemRequest<'_> {
    #[inline(always)]
    fn key(&self) -> &[u8] {
        self.key
    }

    #[inline(always)]
    fn check(&self) -> Checked {
        let is_key = matches!(self.key.len(), 1..=KEY_SIZE_MAX);
        let are_valid = is_key & (self.value().len() <= VALUE_SIZE_MAX);
        Checked { are_valid, read_items: self.reads_item() }
    }

    fn validate(&self) -> Result<(), OperationError> {
        match self.key.len() {
            0 => Err(OperationError::KeyEmpty),
            1..=KEY_SIZE_MAX if self.value().len() <= VALUE_SIZE_MAX => Ok(()),
            1..=KEY_SIZE_MAX => Err(OperationError::ValueTooLong),
            _ => Err(OperationError::KeyTooLong),
        }
    }

    #[inline(always)]
    fn reads_item(&self) -> bool {
        !matches!(self.command, ItemCommand::Put(ItemPut { mode: ItemPutMode::Always, .. })) || self.cas.is_some()
    }

    #[inline(always)]
    fn execute_run<'e, L: ResidentLines>(
        requests: &'e [Self],
        targets: &[Target],
        execution: &mut Execution<'e, L>,
        first: usize,
        replies: &mut Replies,
    ) -> Run {
        execution.execute_item_run(requests, targets, first, replies)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_and_values_come_back() {
        let text = b"a value of more than sixteen bytes";
        for (size, flags) in (0..=text.len()).flat_map(|size| [(size, 0), (size, u32::MAX)]) {
            let item = ItemValue { flags, value: &text[..size] };
            let mut reply = vec![0xff];
            item.append(&mut reply);
            assert_eq!(reply.len(), 1 + ItemValue::OVERHEAD + size);
            assert_eq!((ItemValue::decode(&reply[1..]), reply[0]), (item, 0xff));
        }
    }

    #[test]
    fn fields_come_back() {
        let fields = |bit: u32| ItemFields {
            flags: 1 << bit,
            size: 7,
            cas: CasNumber(u64::MAX),
            expiry: if bit == 0 { None } else { Expiry::at(5) },
            was_fetched: bit == 0,
            is_stale: bit == 1,
            is_won_by_other: bit == 2,
            is_won: bit == 3,
            is_created: bit == 4,
            has_base64_key: bit == 5,
        };
        for fields in (0..7).map(fields) {
            let mut reply = fields.encode().to_vec();
            reply.extend_from_slice(b"value");
            assert_eq!(ItemFields::decode(&reply), (fields, &b"value"[..]));
        }
    }
}
