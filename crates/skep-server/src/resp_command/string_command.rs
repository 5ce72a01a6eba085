//! Commands on one string: their operation, and the form of their reply.
//!
//! ```text
//!   SET k v EX 10 GET    set, expiry             value      INCRBYFLOAT k 1.5    add fraction         value
//!   GETRANGE k 0 -1      slice                   value      SETBIT k 7 1         fields: set u1 at 7  field
//!   APPEND k v           append                  number     BITFIELD k …         fields               fields
//!   TTL k                expiry                  time left  DUMP k               get                  dump
//! ```
//!
//! The modules that decode the commands choose among these operations and forms.

use skep_core::function::{BitFields, field_replies};
use skep_core::operation::{
    Condition, ConditionKind, ExpiryChange, ExpiryCondition, Operation, OperationError, Reply, Request, StringRead,
    StringWrite,
};
use skep_wire::rdb::payload;
use skep_wire::resp::ReplyWriter;

use super::expiry::later;
use super::{Arguments, store_error};

/// A command on one string.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct StringCommand {
    pub(super) operation: StringOperation,
    pub(super) form: ReplyForm,
    /// Its times count from the execution: until then they are moved, see [`StringCommand::postpone`].
    pub(super) counts_from_now: bool,
}

/// The operation of a command, without its bytes.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum StringOperation {
    Get,
    Contains,
    Delete,
    /// A read that needs no bytes.
    Read(StringRead<'static>),
    ReadFields(Bytes),
    Set {
        value: Bytes,
        condition: ConditionKind,
        operand: Bytes,
        expiry: ExpiryChange,
        return_old: bool,
    },
    Remove {
        condition: ConditionKind,
        operand: Bytes,
        return_old: bool,
    },
    Expire {
        expiry: ExpiryChange,
        condition: ExpiryCondition,
        return_value: bool,
    },
    Append(Bytes),
    Overwrite {
        offset: u32,
        bytes: Bytes,
    },
    Fields(Bytes),
    AddFraction(Bytes),
}

/// Bytes of an operation.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Bytes {
    None,
    /// An argument.
    Argument(u32),
    /// A range of the converted operands.
    Operands {
        start: u32,
        end: u32,
    },
}

/// The form of a reply.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum ReplyForm {
    /// `OK`, or null if the condition does not hold.
    Status,
    /// `OK`, or `BUSYKEY` if the key exists.
    Restored,
    /// The value, or null.
    Value,
    /// The value, or an empty one.
    ValueOrEmpty,
    /// The value as the payload of `DUMP`, or null.
    Dump,
    /// 1 if something was done, else 0.
    Flag,
    /// A number, or this one if the key is missing.
    Number { missing: i64 },
    /// This number, or null if the key is missing.
    Constant(i64),
    /// The size of the value and this number, or null.
    SizePlus(i64),
    /// 16 hexadecimal digits, or null.
    Digest,
    /// The only field as a number.
    Field,
    /// An array with this number of fields.
    Fields(u32),
    /// The time from this one to the expiry: -1 if there is none, -2 if the key is missing.
    Expiry { in_seconds: bool, from: i64 },
    /// `string` or `none`.
    Type,
    /// The encoding that Redis gives a new value, of which this is the beginning.
    Encoding,
    /// Redis's refusal to count accesses, or null.
    Frequency,
}

impl ReplyForm {
    /// Returns the index of the argument that is the key: subcommands of `OBJECT` and `MEMORY` are before it.
    fn key_index(self) -> usize {
        match self {
            ReplyForm::Encoding | ReplyForm::Frequency | ReplyForm::Constant(_) | ReplyForm::SizePlus(_) => 2,
            _ => 1,
        }
    }
}

/// Bytes of a value by which its encoding is told.
pub(super) const ENCODED_SIZE_MAX: usize = 44;

const NO_FREQUENCY: &str = "ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please note that \
                            when switching between policies at runtime LRU and LFU data will take some time to adjust.";

impl StringCommand {
    /// Returns a command.
    pub(super) fn new(operation: StringOperation, form: ReplyForm) -> Self {
        StringCommand { operation, form, counts_from_now: false }
    }

    /// Lets the times of the command count from its execution, if they are of this form.
    pub(super) fn counting_from_now(self, counts_from_now: bool) -> Self {
        StringCommand { counts_from_now, ..self }
    }

    /// Moves times that count from now: the command is executed this many milliseconds later than was expected.
    pub(super) fn postpone(&mut self, milliseconds: i64) {
        if !self.counts_from_now {
            return;
        }
        if let StringOperation::Set { expiry, .. } | StringOperation::Expire { expiry, .. } = &mut self.operation {
            *expiry = later(*expiry, milliseconds);
        }
        if let ReplyForm::Expiry { from, .. } = &mut self.form {
            *from += milliseconds;
        }
    }

    /// Returns a read that needs no bytes.
    pub(super) fn read(read: StringRead<'static>, form: ReplyForm) -> Self {
        StringCommand::new(StringOperation::Read(read), form)
    }

    /// Returns the operation.
    pub(super) fn request<'a>(&self, arguments: Arguments<'a>, operands: &'a [u8]) -> Request<'a> {
        let get = |bytes: &Bytes| -> &'a [u8] {
            match *bytes {
                Bytes::None => &[],
                Bytes::Argument(index) => arguments.get(index as usize),
                Bytes::Operands { start, end } => &operands[start as usize..end as usize],
            }
        };
        let operation = match &self.operation {
            StringOperation::Get => Operation::Get,
            StringOperation::Contains => Operation::Contains,
            StringOperation::Delete => Operation::Delete,
            StringOperation::Read(read) => Operation::StringRead(*read),
            StringOperation::ReadFields(list) => Operation::StringRead(StringRead::Fields(BitFields::new(get(list)))),
            StringOperation::Set { value, condition, operand, expiry, return_old } => {
                Operation::StringWrite(StringWrite::Set {
                    value: get(value),
                    condition: Condition { kind: *condition, operand: get(operand) },
                    expiry: *expiry,
                    return_old: *return_old,
                })
            }
            StringOperation::Remove { condition, operand, return_old } => {
                let condition = Condition { kind: *condition, operand: get(operand) };
                Operation::StringWrite(StringWrite::Remove { condition, return_old: *return_old })
            }
            StringOperation::Expire { expiry, condition, return_value } => {
                Operation::StringWrite(StringWrite::Expire {
                    expiry: *expiry,
                    condition: *condition,
                    return_value: *return_value,
                })
            }
            StringOperation::Append(bytes) => Operation::StringWrite(StringWrite::Append(get(bytes))),
            StringOperation::Overwrite { offset, bytes } => {
                Operation::StringWrite(StringWrite::Overwrite { offset: *offset, bytes: get(bytes) })
            }
            StringOperation::Fields(list) => Operation::StringWrite(StringWrite::Fields(BitFields::new(get(list)))),
            StringOperation::AddFraction(delta) => Operation::StringWrite(StringWrite::AddFraction(get(delta))),
        };
        Request { key: arguments.get(self.form.key_index()), operation }
    }

    /// Writes the reply.
    pub(super) fn reply(&self, reply: Reply<'_>, writer: &mut ReplyWriter<'_>) {
        match (self.form, reply) {
            (ReplyForm::Status | ReplyForm::Restored, Reply::Done) => writer.simple("OK"),
            // With a past expiry, the key that is replaced may be missing.
            (ReplyForm::Restored, Reply::NotFound) => writer.simple("OK"),
            (ReplyForm::Restored, _) => writer.error("BUSYKEY Target key name already exists."),
            (ReplyForm::Value | ReplyForm::ValueOrEmpty, Reply::Value(value)) => writer.bulk(value),
            (ReplyForm::ValueOrEmpty, _) => writer.bulk(b""),
            (ReplyForm::Dump, Reply::Value(value)) => writer.bulk(&payload::encode(value)),
            (ReplyForm::Flag, reply) => writer.integer(i64::from(reply == Reply::Done)),
            (ReplyForm::Number { .. }, Reply::Value(bytes)) => writer.integer(number(bytes)),
            (ReplyForm::Number { missing }, _) => writer.integer(missing),
            (ReplyForm::Constant(number), Reply::Done) => writer.integer(number),
            (ReplyForm::SizePlus(more), Reply::Value(bytes)) => writer.integer(number(bytes) + more),
            (ReplyForm::Digest, Reply::Value(bytes)) => writer.bulk(format!("{:016x}", number(bytes)).as_bytes()),
            (ReplyForm::Field, Reply::Value(bytes)) => writer.integer(field_replies(bytes).flatten().sum()),
            (ReplyForm::Field, _) => writer.integer(0),
            (ReplyForm::Fields(count), Reply::Value(bytes)) => {
                writer.array(count as usize);
                for field in field_replies(bytes) {
                    match field {
                        Some(number) => writer.integer(number),
                        None => writer.null(),
                    }
                }
            }
            (ReplyForm::Fields(count), _) => {
                writer.array(count as usize);
                (0..count).for_each(|_| writer.integer(0));
            }
            (ReplyForm::Expiry { in_seconds, from }, Reply::Value(bytes)) => {
                let left = (number(bytes) - from).max(0);
                writer.integer(if in_seconds { (left + 500) / 1000 } else { left });
            }
            (ReplyForm::Expiry { .. }, reply) => writer.integer(if reply == Reply::Done { -1 } else { -2 }),
            (ReplyForm::Type, reply) => writer.simple(if reply == Reply::Done { "string" } else { "none" }),
            (ReplyForm::Encoding, Reply::Value(beginning)) => writer.bulk(encoding(beginning).as_bytes()),
            (ReplyForm::Frequency, Reply::Done) => writer.error(NO_FREQUENCY),
            _ => writer.null(),
        }
    }

    /// Returns the error message for an error of the store.
    pub(super) fn error_message(&self, error: OperationError) -> String {
        match (&self.operation, error) {
            (StringOperation::Append(_) | StringOperation::Overwrite { .. }, OperationError::ValueTooLong) => {
                TOO_LONG.to_owned()
            }
            (StringOperation::Fields(_), OperationError::ValueTooLong) => BIT_OFFSET.to_owned(),
            _ => store_error(error),
        }
    }
}

/// Redis's error message for a value that would become too long.
pub(super) const TOO_LONG: &str = "ERR string exceeds maximum allowed size (proto-max-bulk-len)";
/// Redis's error message for a bit beyond the longest value.
pub(super) const BIT_OFFSET: &str = "ERR bit offset is not an integer or out of range";

fn number(bytes: &[u8]) -> i64 {
    i64::from_le_bytes(bytes.try_into().expect("a number has eight bytes"))
}

fn encoding(beginning: &[u8]) -> &'static str {
    match beginning.len() {
        _ if super::decimal(beginning).is_some() => "int",
        0..=ENCODED_SIZE_MAX => "embstr",
        _ => "raw",
    }
}
