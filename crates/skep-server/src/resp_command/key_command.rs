//! Commands that are operations on keys.
//!
//! ```text
//!   GET k            get                       DEL k…  EXISTS k…     delete, contains each; how many
//!   SET k v [NX|XX]  put, with its condition   MGET k…               get each; an array
//!   SETNX k v        put if absent; 1 or 0     INCRBY k d            add_decimal
//! ```
//!
//! Those on vectors, on ranges of keys and on strings with more options are made by modules of their own.

use std::ops::Range;

use skep_core::function::{Element, Fold, Predicate, UpdateFunction};
use skep_core::operation::{
    Filter, KEY_SIZE_MAX, Operation, OperationError, PutCondition, Reduce, Reply, Request, Shape, Update,
};
use skep_wire::native::Response;
use skep_wire::resp::ReplyWriter;

use super::call_command::CallCommand;
use super::element_type::ElementType;
use super::elements::{number_of, width_hint, write_elements, write_number, write_value};
use super::scan_command::{Resume, ScanCommand};
use super::string_command::StringCommand;
use super::{Arguments, Progress, store_error, wire_error};

/// A command on keys; ranges are positions of binary operands.
#[derive(Debug, PartialEq)]
pub(crate) enum KeyCommand {
    Get,
    GetMany,
    Set(PutCondition),
    /// A reply by number: 1 if it was set, 0 if the key exists.
    SetNew,
    Delete,
    Exists,
    Add {
        delta: i64,
    },
    SetVector {
        value: Range<usize>,
    },
    GetVector(ElementType),
    Update {
        function: UpdateFunction,
        element: Element,
        shape: Shape,
        operand: Range<usize>,
        initial: Option<Range<usize>>,
        return_old: bool,
    },
    Reduce {
        fold: Fold,
        element: Element,
        initial: Range<usize>,
        constants: Range<usize>,
    },
    Filter {
        predicate: Predicate,
        element: Element,
        operand: Range<usize>,
    },
    Call(CallCommand),
    Scan(ScanCommand),
    String(StringCommand),
}

impl KeyCommand {
    /// Returns the number of operations of the command, with this many arguments.
    #[inline]
    pub(crate) fn operation_count(&self, argument_count: usize) -> usize {
        match self {
            KeyCommand::GetMany | KeyCommand::Delete | KeyCommand::Exists => argument_count - 1,
            _ => 1,
        }
    }

    /// Returns true if an operation of the command may continue after its reply.
    #[inline]
    pub(crate) fn may_continue(&self) -> bool {
        matches!(self, KeyCommand::Scan(_))
    }

    /// Returns the type of the elements of the reply, if that is a vector.
    #[inline]
    pub(crate) fn elements(&self) -> Option<ElementType> {
        match self {
            KeyCommand::GetVector(element) => Some(*element),
            KeyCommand::Filter { element, .. } | KeyCommand::Update { element, return_old: true, .. } => {
                Some(ElementType::Number(*element))
            }
            KeyCommand::Call(call) => call.reply_type(),
            _ => None,
        }
    }

    /// Checks all operations of a command before the first one is submitted: one invalid key or value refuses the whole
    /// command. A command of one operation is not checked here, unless it is an `MGET`: the store checks it.
    pub(super) fn validate(&self, arguments: Arguments<'_>, operands: &[u8]) -> Result<(), OperationError> {
        let operation_count = self.operation_count(arguments.count());
        if operation_count == 1 && !matches!(self, KeyCommand::GetMany) {
            return Ok(());
        }
        // Of a million keys, only the sizes are looked at.
        let is_sized = |index: usize| (1..=KEY_SIZE_MAX).contains(&arguments.get(index).len());
        let has_keys_only = matches!(self, KeyCommand::GetMany | KeyCommand::Delete | KeyCommand::Exists);
        if has_keys_only && (1..arguments.count()).all(is_sized) {
            return Ok(());
        }
        (0..operation_count).try_for_each(|index| self.request(arguments, operands, index, None).validate())
    }

    /// Returns the operation at this index of the command; a count continues where it stopped.
    pub(crate) fn request<'a>(
        &self,
        arguments: Arguments<'a>,
        operands: &'a [u8],
        index: usize,
        resume: Option<&'a Resume>,
    ) -> Request<'a> {
        let operation = match self {
            KeyCommand::Get | KeyCommand::GetMany | KeyCommand::GetVector(_) => Operation::Get,
            KeyCommand::Set(condition) => Operation::Put { value: arguments.get(2), condition: *condition },
            KeyCommand::SetNew => Operation::Put { value: arguments.get(2), condition: PutCondition::IfAbsent },
            KeyCommand::SetVector { value } => {
                Operation::Put { value: &operands[value.clone()], condition: PutCondition::Always }
            }
            KeyCommand::Delete => Operation::Delete,
            KeyCommand::Exists => Operation::Contains,
            KeyCommand::Add { delta } => Operation::AddDecimal { delta: *delta },
            KeyCommand::Update { function, element, shape, operand, initial, return_old } => {
                Operation::Update(Update {
                    function: *function,
                    element: *element,
                    shape: *shape,
                    operand: &operands[operand.clone()],
                    initial: initial.clone().map(|range| &operands[range]),
                    return_old: *return_old,
                })
            }
            KeyCommand::Reduce { fold, element, initial, constants } => Operation::Reduce(Reduce {
                fold: *fold,
                element: *element,
                initial: &operands[initial.clone()],
                constants: &operands[constants.clone()],
            }),
            KeyCommand::Filter { predicate, element, operand } => Operation::Filter(Filter {
                predicate: *predicate,
                element: *element,
                operand: &operands[operand.clone()],
            }),
            KeyCommand::Call(call) => call.operation(operands),
            KeyCommand::Scan(scan) => return scan.request(arguments, resume),
            KeyCommand::String(command) => return command.request(arguments, operands),
        };
        Request { key: arguments.get(1 + index), operation }
    }

    /// Takes the reply to the operation at `index`. Returns true if the operation continues, and has to be submitted
    /// again.
    pub(crate) fn reply(
        &self,
        arguments: Arguments<'_>,
        index: usize,
        response: Response<'_>,
        progress: &mut Progress,
        writer: &mut ReplyWriter<'_>,
    ) -> bool {
        let reply = match response {
            Ok(reply) => reply,
            // A command is refused as a whole, and has one reply.
            Err(error) => {
                if index == 0 {
                    writer.error(&wire_error(error));
                }
                progress.refused = true;
                return false;
            }
        };
        if index == 0 && matches!(self, KeyCommand::GetMany) {
            writer.array(self.operation_count(arguments.count()));
        }
        if let Reply::Failed(error) = reply {
            progress.error = progress.error.or(Some(error));
            if !self.has_one_reply() {
                writer.error(&self.error_message(error));
            }
            return false;
        }
        match (self, reply) {
            (KeyCommand::Scan(scan), _) => return scan.reply(arguments, reply, progress, writer),
            (KeyCommand::String(command), _) => command.reply(reply, writer),
            (KeyCommand::Delete | KeyCommand::Exists, _) => {
                progress.done += i64::from(reply == Reply::Done);
            }
            (KeyCommand::SetNew, _) => writer.integer(i64::from(reply == Reply::Done)),
            (_, Reply::Done) => writer.ok(),
            (KeyCommand::Get | KeyCommand::GetMany, Reply::Value(value)) => writer.bulk(value),
            (KeyCommand::Add { .. }, Reply::Value(text)) => writer.decimal(text),
            (KeyCommand::GetVector(element), Reply::Value(value)) => write_elements(*element, value, writer),
            (KeyCommand::Filter { element, .. }, Reply::Value(value)) => {
                write_elements(ElementType::Number(*element), value, writer);
            }
            (KeyCommand::Update { element, .. }, Reply::Value(value)) => {
                write_value(ElementType::Number(*element), value, writer);
            }
            (KeyCommand::Call(call), Reply::Value(value)) => call.write(value, writer),
            (KeyCommand::Reduce { fold, element, .. }, Reply::Value(value)) => {
                write_number(fold.sigma(*element), value, writer);
            }
            _ => writer.null(),
        }
        false
    }

    /// Writes the reply of a command whose replies are summed up.
    #[inline]
    pub(crate) fn finish(&self, progress: &Progress, writer: &mut ReplyWriter<'_>) {
        match (self, progress.error) {
            _ if progress.refused => {}
            (_, Some(error)) if self.has_one_reply() => writer.error(&store_error(error)),
            (KeyCommand::Delete | KeyCommand::Exists, _) => writer.integer(progress.done),
            _ => {}
        }
    }

    /// Returns the error message for an error of the store. If the operands or the type of the elements do not fit, the
    /// message says what would.
    fn error_message(&self, error: OperationError) -> String {
        let message = store_error(error);
        let (name, operands, element) = match self {
            KeyCommand::Update { function, element, .. } => (function.name(), function.operands(), *element),
            KeyCommand::Reduce { fold, element, .. } => (fold.name(), fold.operands(), *element),
            KeyCommand::Filter { predicate, element, .. } => (predicate.name(), predicate.operands(), *element),
            KeyCommand::String(command) => return command.error_message(error),
            KeyCommand::Call(call) => {
                return call.hint(error).map_or_else(|| message.clone(), |hint| format!("{message}: {hint}"));
            }
            _ => return message,
        };
        match error {
            OperationError::OperandLength => format!("{message}: {name} takes {operands}"),
            OperationError::ElementWidth => format!("{message}: {}", width_hint(&number_of(element))),
            _ => message,
        }
    }

    /// Returns true if the command has one reply for all its operations.
    fn has_one_reply(&self) -> bool {
        matches!(self, KeyCommand::Delete | KeyCommand::Exists)
    }
}
