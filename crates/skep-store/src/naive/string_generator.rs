//! Random operations on strings.

use super::generator::{Generator, Home};
use super::owned::OwnedOperation;
use skep_core::function::{BitField, BitFields, BitRange, FieldPosition, Overflow};
use skep_core::operation::{
    Condition, ConditionKind, Expiry, ExpiryChange, ExpiryCondition, StringRead, StringWrite, digest,
};

/// The expiries that a generator chooses are before this time, in milliseconds since 1970, except those that never come.
/// A test lets it pass, or begins with it if it cannot set the time of a store.
pub const EXPIRIES_END: u64 = 1000;

impl Generator {
    pub(super) fn string_read(&mut self) -> OwnedOperation {
        let read = match self.random.below(7) {
            0 => StringRead::Size,
            1 => StringRead::Slice { start: self.position(), end: self.position() },
            2 => StringRead::CountBits(self.bit_range()),
            3 => StringRead::FindBit { bit: self.random.chance(1, 2), range: self.bit_range() },
            4 => StringRead::Fields(BitFields::new(&[])),
            5 => StringRead::Digest,
            _ => StringRead::Expiry,
        };
        let list = if let StringRead::Fields(_) = read { self.fields(false) } else { Vec::new() };
        OwnedOperation::StringRead { read, list }
    }

    pub(super) fn string_write(&mut self, home: Home) -> OwnedOperation {
        let condition = Condition::new(self.random.choose(&ConditionKind::ALL));
        let expiry = self.expiry();
        let write = match self.random.below(10) {
            0..=2 => StringWrite::Set { value: &[], condition, expiry, return_old: self.random.chance(1, 2) },
            3 => StringWrite::Remove { condition, return_old: self.random.chance(1, 2) },
            4..=5 => StringWrite::Expire {
                expiry,
                condition: self.random.choose(&ExpiryCondition::ALL),
                return_value: self.random.chance(1, 2),
            },
            6 => StringWrite::Append(&[]),
            7 => StringWrite::Overwrite { offset: self.random.below(100) as u32, bytes: &[] },
            8 => StringWrite::AddFraction(&[]),
            _ => StringWrite::Fields(BitFields::new(&[])),
        };
        let bytes = match write {
            StringWrite::Set { .. } => self.value(home),
            // So that values that are appended to again and again do not grow without limit.
            StringWrite::Append(_) | StringWrite::Overwrite { .. } => {
                let size = self.random.below(20) as usize;
                vec![b'+'; size]
            }
            StringWrite::Fields(_) => self.fields(true),
            StringWrite::AddFraction(_) => match self.random.below(4) {
                0 => b"inf".to_vec(),
                _ => format!("{}e-{}", self.random.next() as i32, self.random.below(20)).into_bytes(),
            },
            StringWrite::Remove { .. } | StringWrite::Expire { .. } => Vec::new(),
        };
        let operand = match condition.kind {
            ConditionKind::IfEqual | ConditionKind::IfNotEqual => self.value(home),
            ConditionKind::IfDigest | ConditionKind::IfNotDigest => digest(&self.value(home)).to_le_bytes().to_vec(),
            ConditionKind::Always | ConditionKind::IfAbsent | ConditionKind::IfPresent => Vec::new(),
        };
        OwnedOperation::StringWrite { write, bytes, operand }
    }

    /// A change of an expiry: mostly to a time in the first [`EXPIRIES_END`] milliseconds, or to one that never comes.
    fn expiry(&mut self) -> ExpiryChange {
        let time = match self.random.below(8) {
            0..=1 => return ExpiryChange::CLEAR,
            2 => return ExpiryChange::KEEP,
            3 => Some(Expiry::MAX),
            _ => Expiry::at(self.random.below(EXPIRIES_END) as i64),
        };
        ExpiryChange::set(time.expect("the time is early enough"))
    }

    /// A position in a value, or outside of it.
    fn position(&mut self) -> i64 {
        match self.random.below(16) {
            0 => i64::MIN,
            1 => i64::MAX,
            2..4 => self.random.below(5000) as i64 - 2500,
            _ => self.random.below(60) as i64 - 30,
        }
    }

    fn bit_range(&mut self) -> BitRange {
        let end = if self.random.chance(1, 2) { Some(self.position()) } else { None };
        BitRange { start: self.position(), end, in_bits: self.random.chance(1, 2) }
    }

    /// A list of fields; of some to be written, if `is_written`.
    fn fields(&mut self, is_written: bool) -> Vec<u8> {
        let mut list = Vec::new();
        for _ in 0..=self.random.below(4) {
            let is_signed = self.random.chance(1, 2);
            let bits = self.random.within(1..=if is_signed { 64 } else { 63 }) as u8;
            let position = FieldPosition { offset: self.random.below(400), bits, is_signed };
            let overflow = self.random.choose(&[Overflow::Wrap, Overflow::Saturate, Overflow::Fail]);
            let number = self.random.next() as i64 >> self.random.below(64);
            let field = match self.random.below(3) {
                1 if is_written => BitField::Set(position, overflow, number),
                2 if is_written => BitField::Add(position, overflow, number),
                _ => BitField::Get(position),
            };
            field.append_to(&mut list);
        }
        list
    }
}
