//! The commands of `skep cli`, and the request that each becomes on the wire.

use skep::{
    Condition, ConditionKind, Element, ExpiryChange, ExpiryCondition, Filter, Fold, Operation, OperationError,
    Predicate, PutCondition, Reduce, Request, Shape, StringRead, StringWrite, Update, UpdateFunction,
};

use super::Space;
use crate::failure::{Failure, with_options};

/// A command. Operands are elements, little-endian.
pub(super) enum Command {
    Get {
        key: Vec<u8>,
    },
    GetVector {
        key: Vec<u8>,
        element: Element,
    },
    Put {
        key: Vec<u8>,
        value: Vec<u8>,
        condition: PutCondition,
        expiry: ExpiryChange,
    },
    Expire {
        key: Vec<u8>,
        expiry: ExpiryChange,
    },
    Expiry {
        key: Vec<u8>,
    },
    Delete {
        key: Vec<u8>,
    },
    Exists {
        key: Vec<u8>,
    },
    Increment {
        key: Vec<u8>,
        delta: i64,
    },
    Update {
        key: Vec<u8>,
        function: UpdateFunction,
        element: Element,
        operand: Vec<u8>,
        initial: Option<Vec<u8>>,
        return_old: bool,
    },
    Reduce {
        key: Vec<u8>,
        fold: Fold,
        element: Element,
        initial: Vec<u8>,
        constants: Vec<u8>,
    },
    Filter {
        key: Vec<u8>,
        predicate: Predicate,
        element: Element,
        operand: Vec<u8>,
    },
}

/// Returns the condition of a put for its two flags.
pub(super) fn condition(if_absent: bool, if_present: bool) -> PutCondition {
    if if_absent {
        PutCondition::IfAbsent
    } else if if_present {
        PutCondition::IfPresent
    } else {
        PutCondition::Always
    }
}

impl Command {
    /// Returns the request.
    pub(super) fn request(&self) -> Request<'_> {
        let operation = match self {
            Command::Get { .. } | Command::GetVector { .. } => Operation::Get,
            Command::Put { value, condition, expiry: ExpiryChange::CLEAR, .. } => {
                Operation::Put { value, condition: *condition }
            }
            Command::Put { value, condition, expiry, .. } => {
                let kind = match condition {
                    PutCondition::Always => ConditionKind::Always,
                    PutCondition::IfAbsent => ConditionKind::IfAbsent,
                    PutCondition::IfPresent => ConditionKind::IfPresent,
                };
                let condition = Condition { kind, operand: &[] };
                Operation::StringWrite(StringWrite::Set { value, condition, expiry: *expiry, return_old: false })
            }
            Command::Expire { expiry, .. } => {
                let condition = ExpiryCondition::Always;
                Operation::StringWrite(StringWrite::Expire { expiry: *expiry, condition, return_value: false })
            }
            Command::Expiry { .. } => Operation::StringRead(StringRead::Expiry),
            Command::Delete { .. } => Operation::Delete,
            Command::Exists { .. } => Operation::Contains,
            Command::Increment { delta, .. } => Operation::AddDecimal { delta: *delta },
            Command::Update { function, element, operand, initial, return_old, .. } => Operation::Update(Update {
                function: *function,
                element: *element,
                shape: shape(*function, *element, operand),
                operand,
                initial: initial.as_deref(),
                return_old: *return_old,
            }),
            Command::Reduce { fold, element, initial, constants, .. } => {
                Operation::Reduce(Reduce { fold: *fold, element: *element, initial, constants })
            }
            Command::Filter { predicate, element, operand, .. } => {
                Operation::Filter(Filter { predicate: *predicate, element: *element, operand })
            }
        };
        Request { key: self.key(), operation }
    }

    pub(super) fn key(&self) -> &[u8] {
        match self {
            Command::Get { key }
            | Command::GetVector { key, .. }
            | Command::Put { key, .. }
            | Command::Expire { key, .. }
            | Command::Expiry { key }
            | Command::Delete { key }
            | Command::Exists { key }
            | Command::Increment { key, .. }
            | Command::Update { key, .. }
            | Command::Reduce { key, .. }
            | Command::Filter { key, .. } => key,
        }
    }

    /// Returns the type of the elements, if the store reads the value as a vector.
    pub(super) fn element(&self) -> Option<Element> {
        match self {
            Command::Update { element, .. } | Command::Reduce { element, .. } | Command::Filter { element, .. } => {
                Some(*element)
            }
            _ => None,
        }
    }

    /// Formats the key for a message: only its beginning if it is long.
    pub(super) fn shown_key(&self) -> String {
        const SHOWN_MAX: usize = 100;
        let (key, rest) = match self.key().split_at_checked(SHOWN_MAX) {
            Some((first, [_, ..])) => (first, "…"),
            _ => (self.key(), ""),
        };
        format!("`{}{rest}`", key.escape_ascii())
    }

    /// Returns true if an update has no operands. The store would accept that as one operand for each of zero elements.
    pub(super) fn lacks_operands(&self) -> bool {
        matches!(self, Command::Update { operand, .. } if operand.is_empty())
    }

    /// Describes an error of the command. If operands do not fit, the text says which would.
    pub(super) fn failed(&self, error: OperationError) -> String {
        let (name, operands) = match self {
            Command::Update { function, .. } => (function.name(), function.operands()),
            Command::Reduce { fold, .. } => (fold.name(), fold.operands()),
            Command::Filter { predicate, .. } => (predicate.name(), predicate.operands()),
            _ => return with_options(error),
        };
        if error == OperationError::OperandLength {
            format!("{error}: {name} takes {operands}")
        } else {
            with_options(error)
        }
    }

    /// Describes the error of a missing key, and how to avoid it.
    pub(super) fn not_found(&self, space: Space) -> String {
        let advice = match self {
            Command::Update { .. } => ": put it first, or name its first elements with --init",
            Command::Put { .. } => ": without --if-present it is inserted",
            _ => "",
        };
        format!("key {} not found in the {} space{advice}", self.shown_key(), space.name())
    }
}

/// Chooses the shape of an update: one operand for all elements of the value, or one for each.
fn shape(function: UpdateFunction, element: Element, operand: &[u8]) -> Shape {
    if operand.len() == element.width() * function.operand_count() {
        Shape::ScalarToVector
    } else {
        Shape::VectorToVector
    }
}

/// Fails if a value is not a vector of these elements.
pub(super) fn check_width(element: Element, value: &[u8]) -> Result<(), Failure> {
    wrong_width(element, value).map_or(Ok(()), |message| Err(Failure::Runtime(message)))
}

/// Says what is wrong with a value that is not a vector of these elements.
pub(super) fn wrong_width(element: Element, value: &[u8]) -> Option<String> {
    let (length, width) = (value.len(), element.width());
    (!length.is_multiple_of(width)).then(|| {
        let name = element.name();
        format!(
            "the value has {length} bytes, which is not a multiple of {width}, the size of {name}: choose another \
             element type, or get"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::{Command, Shape, Space, shape};
    use skep::{Element, UpdateFunction};

    #[test]
    fn the_number_of_operands_chooses_the_shape() {
        for (function, operand_size, expected) in [
            (UpdateFunction::Add, 8, Shape::ScalarToVector),
            (UpdateFunction::Add, 16, Shape::VectorToVector),
            (UpdateFunction::CompareAndSwap, 16, Shape::ScalarToVector),
            (UpdateFunction::CompareAndSwap, 32, Shape::VectorToVector),
        ] {
            assert_eq!(shape(function, Element::I64, &vec![0; operand_size]), expected, "{function:?} {operand_size}");
        }
    }

    #[test]
    fn keys_in_messages_can_be_read() {
        let command = Command::Get { key: b"a\xff".to_vec() };
        assert_eq!(command.not_found(Space::Hash), "key `a\\xff` not found in the hash space");
        let shown = |length| Command::Get { key: vec![b'k'; length] }.shown_key();
        assert_eq!((shown(100), shown(101)), (format!("`{}`", "k".repeat(100)), format!("`{}…`", "k".repeat(100))));
    }
}
