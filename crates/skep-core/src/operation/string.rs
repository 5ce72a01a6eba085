//! Operations on a value as a string of bytes, and on the time at which its key expires: the strings of Redis.
//!
//! [`StringRead`] changes nothing. [`StringWrite`] replaces the value, the expiry, or both, at one moment. A reply that is
//! a number is a little-endian `i64` of eight bytes.
//!
//! A key expires when the time of the store reaches its [`Expiry`]. From then on it is missing for every operation. Only
//! operations of this module give a key an expiry or change it. A put and a new key have none; an update in place keeps it.

use super::{OPERANDS_SIZE_MAX, OperationError, VALUE_SIZE_MAX};
use crate::function::{BitField, BitFields, BitRange, check_fraction};

/// The time at which a key expires, in milliseconds since 1970 began (UTC).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Expiry(u64);

impl Expiry {
    /// The latest time. A store keeps 55 bits of it.
    pub const MAX: Expiry = Expiry((1 << 55) - 2);

    /// Returns the expiry at this many milliseconds, if that is not too late. A time before 1970 counts as its beginning.
    pub fn at(milliseconds: i64) -> Option<Expiry> {
        let expiry = Expiry(milliseconds.max(0) as u64);
        (expiry <= Expiry::MAX).then_some(expiry)
    }

    /// Returns the milliseconds since 1970.
    #[inline]
    pub const fn milliseconds(self) -> u64 {
        self.0
    }

    /// Returns true if the key is missing at this time, in milliseconds since 1970.
    #[inline]
    pub fn has_passed(self, now: u64) -> bool {
        self.0 <= now
    }
}

/// The change that a write makes to the expiry of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpiryChange(u64);

impl ExpiryChange {
    /// The key never expires.
    pub const CLEAR: ExpiryChange = ExpiryChange(u64::MAX);
    /// The key keeps the expiry that it has.
    pub const KEEP: ExpiryChange = ExpiryChange(u64::MAX - 1);

    /// Returns the change to an expiry.
    pub fn set(expiry: Expiry) -> Self {
        ExpiryChange(expiry.0)
    }

    /// Returns the change as a number: the milliseconds, or one of the two largest numbers.
    pub fn to_number(self) -> u64 {
        self.0
    }

    /// Returns the change that is this number.
    pub fn from_number(number: u64) -> Option<Self> {
        let change = ExpiryChange(number);
        let is_valid = change == ExpiryChange::CLEAR || change == ExpiryChange::KEEP || number <= Expiry::MAX.0;
        is_valid.then_some(change)
    }

    /// Returns the expiry after the change of the one before.
    #[inline]
    pub fn apply(self, before: Option<Expiry>) -> Option<Expiry> {
        match self {
            ExpiryChange::CLEAR => None,
            ExpiryChange::KEEP => before,
            ExpiryChange(milliseconds) => Some(Expiry(milliseconds)),
        }
    }
}

impl From<Option<Expiry>> for ExpiryChange {
    /// Returns the change to this expiry, or to none.
    #[inline]
    fn from(expiry: Option<Expiry>) -> Self {
        expiry.map_or(ExpiryChange::CLEAR, ExpiryChange::set)
    }
}

/// A read of a part or a property of a value. A missing key has the reply `NotFound`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum StringRead<'a> {
    /// Returns the number of bytes.
    Size,
    /// Returns the bytes from `start` to `end`, both included. Negative positions count from the end: the last byte is at
    /// -1. Positions beyond the value are cut.
    Slice {
        /// The first byte.
        start: i64,
        /// The last byte.
        end: i64,
    },
    /// Returns the number of bits that are 1.
    CountBits(BitRange),
    /// Returns the position of the first bit with this value; -1 if there is none.
    FindBit {
        /// The value.
        bit: bool,
        /// Where to look. If it has no end, the value is followed by zeros.
        range: BitRange,
    },
    /// Returns the fields, as [`StringWrite::Fields`] does. All of them are [`BitField::Get`].
    Fields(BitFields<'a>),
    /// Returns the XXH3 hash of 64 bits, as a number.
    Digest,
    /// Returns the expiry in milliseconds since 1970, as a number; `Done` if the key has none.
    Expiry,
}

/// A change of a value or of its expiry.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum StringWrite<'a> {
    /// Stores a value.
    Set {
        /// The value.
        value: &'a [u8],
        /// The condition under which it is stored.
        condition: Condition<'a>,
        /// The change of the expiry.
        expiry: ExpiryChange,
        /// Selects the reply if the key exists: its value, whether or not the new one is stored.
        return_old: bool,
    },
    /// Removes the key.
    Remove {
        /// The condition under which it is removed.
        condition: Condition<'a>,
        /// Selects the reply if the key is removed: its value.
        return_old: bool,
    },
    /// Changes the expiry of an existing key, if it fulfils the condition. Otherwise the reply is `Exists`.
    Expire {
        /// The change.
        expiry: ExpiryChange,
        /// The condition.
        condition: ExpiryCondition,
        /// Selects the reply if the key exists: its value, whether or not the expiry is changed.
        return_value: bool,
    },
    /// Appends bytes, and returns the number of bytes after it. A missing key has an empty value.
    Append(&'a [u8]),
    /// Writes bytes from a position on, and returns the number of bytes after it. Bytes between the end and the position
    /// become zeros. A missing key has an empty value, and stays missing if no bytes are written.
    Overwrite {
        /// The position.
        offset: u32,
        /// The bytes.
        bytes: &'a [u8],
    },
    /// Reads and writes fields of bits, in their order. Returns nine bytes for each: 1 and a number, or zeros if the field
    /// was to fail on overflow. The value grows by zeros to the end of the last field that is written.
    Fields(BitFields<'a>),
    /// Reads the value and these bytes as decimal fractions, as Redis's `INCRBYFLOAT` does. Stores the sum as text and
    /// returns it. A missing key counts as `0`.
    AddFraction(&'a [u8]),
}

/// A condition on the value of a key.
///
/// If it does not hold, the reply is `NotFound` for a missing key and `Exists` for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Condition<'a> {
    /// The kind of the condition.
    pub kind: ConditionKind,
    /// The value to compare with. For a digest, its eight bytes, little-endian. Otherwise empty.
    pub operand: &'a [u8],
}

/// The kind of a [`Condition`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ConditionKind {
    /// Always.
    Always,
    /// The key is missing.
    IfAbsent,
    /// The key exists.
    IfPresent,
    /// The key exists and has this value.
    IfEqual,
    /// The key is missing or has another value.
    IfNotEqual,
    /// The key exists and its value has this digest.
    IfDigest,
    /// The key is missing or its value has another digest.
    IfNotDigest,
}

/// A condition on the expiry that an existing key has before it is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ExpiryCondition {
    /// Always.
    Always,
    /// It has none.
    IfNone,
    /// It has one.
    IfSome,
    /// The new one is later. None is later than all.
    IfLater,
    /// The new one is earlier.
    IfEarlier,
    /// It has one, and the new one is earlier.
    IfSomeAndEarlier,
}

impl ConditionKind {
    /// All kinds, in the order of their codes.
    pub const ALL: [ConditionKind; 7] = [
        ConditionKind::Always,
        ConditionKind::IfAbsent,
        ConditionKind::IfPresent,
        ConditionKind::IfEqual,
        ConditionKind::IfNotEqual,
        ConditionKind::IfDigest,
        ConditionKind::IfNotDigest,
    ];
}

impl ExpiryCondition {
    /// All conditions, in the order of their codes.
    pub const ALL: [ExpiryCondition; 6] = [
        ExpiryCondition::Always,
        ExpiryCondition::IfNone,
        ExpiryCondition::IfSome,
        ExpiryCondition::IfLater,
        ExpiryCondition::IfEarlier,
        ExpiryCondition::IfSomeAndEarlier,
    ];

    /// Returns true if the condition holds for a change of this expiry.
    pub fn holds(self, before: Option<Expiry>, change: ExpiryChange) -> bool {
        let later = |after: Option<Expiry>| match (before, after) {
            (None, _) => false,
            (Some(_), None) => true,
            (Some(before), Some(after)) => after > before,
        };
        let earlier = |after: Option<Expiry>| match (before, after) {
            (_, None) => false,
            (None, Some(_)) => true,
            (Some(before), Some(after)) => after < before,
        };
        let after = change.apply(before);
        match self {
            ExpiryCondition::Always => true,
            ExpiryCondition::IfNone => before.is_none(),
            ExpiryCondition::IfSome => before.is_some(),
            ExpiryCondition::IfLater => later(after),
            ExpiryCondition::IfEarlier => earlier(after),
            ExpiryCondition::IfSomeAndEarlier => before.is_some() && earlier(after),
        }
    }
}

impl<'a> Condition<'a> {
    /// Always.
    pub const ALWAYS: Condition<'static> = Condition { kind: ConditionKind::Always, operand: &[] };

    /// Returns a condition that compares with nothing.
    pub fn new(kind: ConditionKind) -> Condition<'static> {
        Condition { kind, operand: &[] }
    }

    /// Returns true if the condition holds for a missing key.
    #[inline]
    pub fn holds_for_missing(self) -> bool {
        match self.kind {
            ConditionKind::Always
            | ConditionKind::IfAbsent
            | ConditionKind::IfNotEqual
            | ConditionKind::IfNotDigest => true,
            ConditionKind::IfPresent | ConditionKind::IfEqual | ConditionKind::IfDigest => false,
        }
    }

    /// Returns true if it depends on the bytes of the value.
    pub fn compares(self) -> bool {
        !matches!(self.kind, ConditionKind::Always | ConditionKind::IfAbsent | ConditionKind::IfPresent)
    }

    /// Returns true if the condition holds for this value.
    pub fn holds_for(self, value: &[u8]) -> bool {
        match self.kind {
            ConditionKind::Always | ConditionKind::IfPresent => true,
            ConditionKind::IfAbsent => false,
            ConditionKind::IfEqual => value == self.operand,
            ConditionKind::IfNotEqual => value != self.operand,
            ConditionKind::IfDigest => digest(value).to_le_bytes() == self.operand,
            ConditionKind::IfNotDigest => digest(value).to_le_bytes() != self.operand,
        }
    }

    /// Returns true if the operand is of the kind.
    fn is_valid(self) -> bool {
        match self.kind {
            ConditionKind::Always | ConditionKind::IfAbsent | ConditionKind::IfPresent => self.operand.is_empty(),
            ConditionKind::IfEqual | ConditionKind::IfNotEqual => true,
            ConditionKind::IfDigest | ConditionKind::IfNotDigest => self.operand.len() == size_of::<u64>(),
        }
    }
}

/// Returns the digest of a value: XXH3 with 64 bits.
pub fn digest(value: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(value)
}

/// The digest of a value that is read in pieces.
pub struct Digester(xxhash_rust::xxh3::Xxh3);

impl Digester {
    /// Begins the digest of a value.
    #[expect(clippy::new_without_default, reason = "it has half a kibibyte, so it is made on purpose")]
    pub fn new() -> Digester {
        Digester(xxhash_rust::xxh3::Xxh3::new())
    }

    /// Adds the next piece.
    pub fn add(&mut self, piece: &[u8]) {
        self.0.update(piece);
    }

    /// Returns the digest of the pieces.
    pub fn finish(&self) -> u64 {
        self.0.digest()
    }
}

impl std::fmt::Debug for Digester {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Digester").finish_non_exhaustive()
    }
}

impl<'a> StringRead<'a> {
    /// Returns the read without its bytes, and the bytes.
    pub fn split(self) -> (StringRead<'static>, &'a [u8]) {
        match self {
            StringRead::Size => (StringRead::Size, &[]),
            StringRead::Slice { start, end } => (StringRead::Slice { start, end }, &[]),
            StringRead::CountBits(range) => (StringRead::CountBits(range), &[]),
            StringRead::FindBit { bit, range } => (StringRead::FindBit { bit, range }, &[]),
            StringRead::Fields(fields) => (StringRead::Fields(BitFields::new(&[])), fields.bytes()),
            StringRead::Digest => (StringRead::Digest, &[]),
            StringRead::Expiry => (StringRead::Expiry, &[]),
        }
    }

    /// Returns the read with these bytes.
    pub fn with_bytes(self, bytes: &[u8]) -> StringRead<'_> {
        match self.split().0 {
            StringRead::Fields(_) => StringRead::Fields(BitFields::new(bytes)),
            read => read,
        }
    }

    /// Checks the read without its value.
    pub fn validate(&self) -> Result<(), OperationError> {
        match self {
            StringRead::Fields(fields) => {
                let are_reads = fields.are_valid() && fields.iter().all(|field| matches!(field, BitField::Get { .. }));
                if are_reads { Ok(()) } else { Err(OperationError::OperandLength) }
            }
            _ => Ok(()),
        }
    }
}

impl<'a> StringWrite<'a> {
    /// Returns the write without its bytes, the bytes, and the operand of its condition.
    pub fn split(self) -> (StringWrite<'static>, &'a [u8], &'a [u8]) {
        const NOTHING: &[u8] = &[];
        match self {
            StringWrite::Set { value, condition, expiry, return_old } => {
                let bare = Condition::new(condition.kind);
                (StringWrite::Set { value: NOTHING, condition: bare, expiry, return_old }, value, condition.operand)
            }
            StringWrite::Remove { condition, return_old } => {
                let bare = Condition::new(condition.kind);
                (StringWrite::Remove { condition: bare, return_old }, NOTHING, condition.operand)
            }
            StringWrite::Expire { expiry, condition, return_value } => {
                (StringWrite::Expire { expiry, condition, return_value }, NOTHING, NOTHING)
            }
            StringWrite::Append(bytes) => (StringWrite::Append(NOTHING), bytes, NOTHING),
            StringWrite::Overwrite { offset, bytes } => {
                (StringWrite::Overwrite { offset, bytes: NOTHING }, bytes, NOTHING)
            }
            StringWrite::Fields(fields) => (StringWrite::Fields(BitFields::new(NOTHING)), fields.bytes(), NOTHING),
            StringWrite::AddFraction(delta) => (StringWrite::AddFraction(NOTHING), delta, NOTHING),
        }
    }

    /// Returns the write with these bytes and this operand of its condition.
    pub fn with_bytes<'b>(self, bytes: &'b [u8], operand: &'b [u8]) -> StringWrite<'b> {
        match self {
            StringWrite::Set { condition, expiry, return_old, .. } => {
                let condition = Condition { kind: condition.kind, operand };
                StringWrite::Set { value: bytes, condition, expiry, return_old }
            }
            StringWrite::Remove { condition, return_old } => {
                StringWrite::Remove { condition: Condition { kind: condition.kind, operand }, return_old }
            }
            StringWrite::Expire { expiry, condition, return_value } => {
                StringWrite::Expire { expiry, condition, return_value }
            }
            StringWrite::Append(_) => StringWrite::Append(bytes),
            StringWrite::Overwrite { offset, .. } => StringWrite::Overwrite { offset, bytes },
            StringWrite::Fields(_) => StringWrite::Fields(BitFields::new(bytes)),
            StringWrite::AddFraction(_) => StringWrite::AddFraction(bytes),
        }
    }

    /// Returns true if the value is computed, or copied to the reply, so that it takes memory until the batch has ended.
    pub fn computes_value(&self) -> bool {
        match self {
            StringWrite::Set { return_old, .. } | StringWrite::Remove { return_old, .. } => *return_old,
            StringWrite::Expire { .. }
            | StringWrite::Append(_)
            | StringWrite::Overwrite { .. }
            | StringWrite::Fields(_)
            | StringWrite::AddFraction(_) => true,
        }
    }

    /// Returns true if the reply may be the value before the write.
    pub fn returns_old_value(&self) -> bool {
        match self {
            StringWrite::Set { return_old, .. } | StringWrite::Remove { return_old, .. } => *return_old,
            StringWrite::Expire { return_value, .. } => *return_value,
            StringWrite::Append(_)
            | StringWrite::Overwrite { .. }
            | StringWrite::Fields(_)
            | StringWrite::AddFraction(_) => false,
        }
    }

    /// Checks the write without its value.
    pub fn validate(&self) -> Result<(), OperationError> {
        let (size, is_valid) = match self {
            StringWrite::Set { value, condition, .. } => (value.len(), condition.is_valid()),
            StringWrite::Remove { condition, .. } => (0, condition.is_valid()),
            StringWrite::Expire { .. } => (0, true),
            StringWrite::Append(bytes) => (bytes.len(), true),
            StringWrite::Overwrite { bytes: [], .. } => (0, true),
            StringWrite::Overwrite { offset, bytes } => (*offset as usize + bytes.len(), true),
            StringWrite::Fields(fields) => {
                (fields.size_written(), fields.are_valid() && fields.bytes().len() <= OPERANDS_SIZE_MAX)
            }
            StringWrite::AddFraction(delta) => return check_fraction(delta),
        };
        if !is_valid {
            Err(OperationError::OperandLength)
        } else if size > VALUE_SIZE_MAX {
            Err(OperationError::ValueTooLong)
        } else {
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::function::FieldPosition;

    /// A log has to take each operation that took place.
    #[test]
    fn a_list_of_fields_has_a_bound() {
        let get = BitField::Get(FieldPosition { offset: 0, bits: 8, is_signed: false });
        let bytes_of = |count: usize| {
            let mut bytes = Vec::new();
            (0..count).for_each(|_| get.append_to(&mut bytes));
            bytes
        };
        let field_size = bytes_of(1).len();
        let validate = |count| StringWrite::Fields(BitFields::new(&bytes_of(count))).validate();
        assert_eq!(validate(OPERANDS_SIZE_MAX / field_size), Ok(()));
        assert_eq!(validate(OPERANDS_SIZE_MAX / field_size + 1), Err(OperationError::OperandLength));
    }

    #[test]
    fn an_expiry_has_55_bits() {
        assert_eq!(Expiry::at(-5), Some(Expiry(0)));
        assert_eq!(Expiry::at(i64::MAX), None);
        assert_eq!(Expiry::at(Expiry::MAX.0 as i64), Some(Expiry::MAX));
        assert_eq!(Expiry::at(Expiry::MAX.0 as i64 + 1), None);
        assert!(Expiry(5).has_passed(5) && !Expiry(5).has_passed(4));
    }

    #[test]
    fn no_expiry_is_later_than_all() {
        let (five, six) = (Expiry::at(5), Expiry::at(6));
        for (condition, before, after, holds) in [
            (ExpiryCondition::IfLater, five, six, true),
            (ExpiryCondition::IfLater, six, five, false),
            (ExpiryCondition::IfLater, five, five, false),
            (ExpiryCondition::IfLater, None, five, false),
            (ExpiryCondition::IfLater, five, None, true),
            (ExpiryCondition::IfEarlier, six, five, true),
            (ExpiryCondition::IfEarlier, five, five, false),
            (ExpiryCondition::IfEarlier, None, five, true),
            (ExpiryCondition::IfSomeAndEarlier, None, five, false),
            (ExpiryCondition::IfNone, None, five, true),
            (ExpiryCondition::IfNone, six, five, false),
            (ExpiryCondition::IfSome, six, None, true),
        ] {
            assert_eq!(condition.holds(before, after.into()), holds, "{condition:?} {before:?} {after:?}");
        }
        assert_eq!(ExpiryChange::KEEP.apply(five), five);
        assert_eq!(ExpiryChange::CLEAR.apply(five), None);
    }

    #[test]
    fn conditions_on_values() {
        let equal = Condition { kind: ConditionKind::IfEqual, operand: b"a" };
        assert!(equal.holds_for(b"a") && !equal.holds_for(b"b") && !equal.holds_for_missing());
        let bytes = digest(b"a").to_le_bytes();
        let not = Condition { kind: ConditionKind::IfNotDigest, operand: &bytes };
        assert!(not.holds_for(b"b") && !not.holds_for(b"a") && not.holds_for_missing());
        let short = Condition { kind: ConditionKind::IfDigest, operand: b"a" };
        let set = StringWrite::Set { value: b"", condition: short, expiry: ExpiryChange::CLEAR, return_old: false };
        assert_eq!(set.validate(), Err(OperationError::OperandLength));
        // XXH3 of no bytes and of "hello", from the reference implementation.
        assert_eq!((digest(b""), digest(b"hello")), (0x2d06_8005_38d3_94c2, 0x9555_e855_5c62_dcfd));
    }
}
