//! The numbers of vector commands: they arrive as text and are converted to binary elements. Other commands append the
//! bytes of theirs at once.
//!
//! ```text
//!   bytes     number │ number │ number │ …        planned: where they end when all are converted
//!   numbers             ▲ arguments that are not converted
//! ```
//!
//! A command first plans its numbers: their element type and their count say where they will be. They are converted
//! afterwards, in parts, because there can be a million of them.

use std::collections::VecDeque;
use std::ops::Range;

use skep_core::function::{Element, ParseError};

use super::Arguments;
use super::element_type::ElementType;
use super::string_command::Bytes;
use crate::limits::{NUMBER_WORK, OPERAND_BYTE_WORK};

/// The operands of the commands of a parsed batch.
#[derive(Debug, Default)]
pub(crate) struct Operands {
    bytes: Vec<u8>,
    planned: usize,
    /// Numbers of the last command that are not converted, in order.
    numbers: VecDeque<Numbers>,
}

/// Numbers to convert.
#[derive(Debug)]
struct Numbers {
    element: ElementType,
    /// The arguments with the numbers that are left.
    arguments: Range<usize>,
    /// The first argument of the first element, and the number of arguments from each element to the next.
    first: usize,
    stride: usize,
    /// What a user calls them: begins the error message if one of them is not a number, unless it is empty.
    name: &'static str,
    /// Continues that message.
    hint: &'static str,
}

impl Operands {
    /// Returns the bytes of the numbers that are converted.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the bytes of memory held.
    pub(crate) fn capacity(&self) -> usize {
        self.bytes.capacity() + self.numbers.capacity() * size_of::<Numbers>()
    }

    /// Returns the bytes of memory that `needed` more bytes may take in addition.
    pub(crate) fn growth(&self, needed: usize) -> usize {
        let is_enough = self.bytes.capacity() - self.planned.min(self.bytes.capacity()) >= needed;
        if is_enough { 0 } else { needed.max(self.bytes.capacity()) }
    }

    /// Makes room for `needed` more bytes: a list of them that grows takes up to twice as many otherwise.
    pub(crate) fn reserve(&mut self, needed: usize) {
        self.bytes.reserve(self.planned + needed - self.bytes.len());
    }

    /// Returns true if all numbers are converted.
    pub(crate) fn is_complete(&self) -> bool {
        self.numbers.is_empty()
    }

    /// Plans that these arguments are converted to numbers. Returns their positions. `hint` continues the error message
    /// for an argument that is no number.
    pub(super) fn plan(&mut self, element: Element, arguments: Range<usize>, hint: &'static str) -> Range<usize> {
        let first = arguments.start;
        self.plan_numbers(Numbers {
            element: ElementType::Number(element),
            arguments,
            first,
            stride: 1,
            name: "",
            hint,
        })
    }

    /// Plans the elements of every `stride` arguments from `first` on, each of whose numbers are adjacent. The error
    /// message for an argument that is no number calls them `name`.
    pub(super) fn plan_records(
        &mut self,
        element: ElementType,
        arguments: Range<usize>,
        first: usize,
        stride: usize,
        name: &'static str,
    ) -> Range<usize> {
        self.plan_numbers(Numbers { element, arguments, first, stride, name, hint: "" })
    }

    fn plan_numbers(&mut self, numbers: Numbers) -> Range<usize> {
        let start = self.planned;
        self.planned += numbers.arguments.len().div_ceil(numbers.stride.max(1)) * numbers.element.size();
        // Reserves at once, so that the memory counts for the connection before the first number is converted.
        self.bytes.reserve(self.planned - self.bytes.len());
        if !numbers.arguments.is_empty() {
            self.numbers.push_back(numbers);
        }
        start..self.planned
    }

    /// Returns the bytes of all numbers that are converted or planned.
    pub(super) fn planned(&self) -> usize {
        self.planned
    }

    /// Appends the bytes that `f` writes, for a command that plans no numbers. Returns their position.
    pub(super) fn append(&mut self, f: impl FnOnce(&mut Vec<u8>)) -> Bytes {
        debug_assert_eq!(self.planned, self.bytes.len());
        let start = self.planned;
        f(&mut self.bytes);
        self.planned = self.bytes.len();
        Bytes::Operands { start: start as u32, end: self.planned as u32 }
    }

    /// Appends the bytes that `f` writes, as [`Operands::append`] does. If it fails, they are removed.
    pub(super) fn try_append(&mut self, f: impl FnOnce(&mut Vec<u8>) -> Result<(), String>) -> Result<Bytes, String> {
        let start = self.planned;
        let mut result = Ok(());
        let bytes = self.append(|bytes| result = f(bytes));
        if result.is_err() {
            self.bytes.truncate(start);
            self.planned = start;
        }
        result.map(|()| bytes)
    }

    /// Converts up to `count_max` numbers of the command that has these arguments. Returns the work. On an error,
    /// returns the message that refuses the command, and drops the command's numbers.
    pub(crate) fn convert(&mut self, arguments: Arguments<'_>, count_max: usize) -> Result<usize, String> {
        let mut left = count_max;
        let mut work = 0;
        while left > 0
            && let Some(Numbers { element, arguments: range, first, stride, name, hint }) = self.numbers.front_mut()
        {
            let part = range.start..range.end.min(range.start + left);
            for index in part.clone() {
                let number = (index - *first) % *stride;
                if number >= element.number_count() {
                    // It belongs to another operand.
                    continue;
                }
                work += OPERAND_BYTE_WORK * arguments.get(index).len() + NUMBER_WORK;
                let scalar = element.number(number);
                if let Err(error) = scalar.parse(&arguments.text(index), &mut self.bytes) {
                    let hint = if error == ParseError::OutOfRange { "" } else { hint };
                    let text = super::excerpt(arguments.get(index), 128);
                    let of = if name.is_empty() { "" } else { ": " };
                    let message = format!("ERR {name}{of}'{text}' is wrong for {}: {error}{hint}", scalar.name());
                    self.numbers.clear();
                    self.planned = self.bytes.len();
                    return Err(message);
                }
            }
            left -= part.len();
            range.start = part.end;
            if range.start == range.end {
                self.numbers.pop_front();
            }
        }
        Ok(work)
    }

    /// Forgets all numbers, and keeps the memory of no more than `kept` bytes.
    pub(crate) fn clear(&mut self, kept: usize) {
        self.bytes.clear();
        self.bytes.shrink_to(kept);
        self.planned = 0;
        self.numbers.clear();
    }
}
