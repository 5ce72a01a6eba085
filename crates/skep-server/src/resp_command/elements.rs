//! Replies with the elements of a value. A vector of a mebibyte becomes several mebibytes of text, which takes some ten
//! milliseconds: so a long one is written in parts, in several turns.

use std::ops::Range;

use skep_core::function::{Element, Layout, Scalar};
use skep_core::operation::{OperationError, Reply};
use skep_wire::native::Response;
use skep_wire::resp::{ReplyWriter, Version};

use super::element_type::ElementType;
use super::{Action, Context, Progress, store_error};
use crate::function_loader::shorten;
use crate::limits::{ELEMENTS_FEW, ELEMENTS_PART, TEXT_WORK};

impl Action {
    /// Returns true if the reply is a vector, whose elements are written as text.
    pub(crate) fn has_elements(&self) -> bool {
        matches!(self, Action::Keys(_, command) if command.elements().is_some())
    }

    /// Writes elements of a vector, in parts, until the output has `end` bytes or the connection has had its work of the
    /// turn. Returns true if all are written, and `None` if the reply is no array of elements.
    pub(crate) fn write_elements(
        &self,
        response: Response<'_>,
        progress: &mut Progress,
        end: usize,
        output: &mut Vec<u8>,
        version: Version,
        context: &mut Context<'_>,
    ) -> Option<bool> {
        let (Action::Keys(_, command), Ok(Reply::Value(value))) = (self, response) else { return None };
        let element = command.elements()?;
        let count = value.len() / element.size();
        if count <= 1 || !value.len().is_multiple_of(element.size()) {
            return None;
        }
        while progress.written < count {
            if output.len() > end || !context.has_time(count * element.number_count() <= ELEMENTS_FEW) {
                return Some(false);
            }
            let before = output.len();
            let part = progress.written..count.min(progress.written + ELEMENTS_PART.div_ceil(element.number_count()));
            progress.written = part.end;
            write_part(element, value, part, &mut ReplyWriter::new(output, version));
            context.account.spend(TEXT_WORK * (output.len() - before));
        }
        Some(true)
    }
}

/// Describes the elements that a value should have: `an element is {tokens: f32, at: u64}, of 12 bytes`.
pub(super) fn element_of(layout: &Layout) -> String {
    format!("an element is {}, of {} bytes", shorten(layout.to_string()), layout.size())
}

/// Describes the elements of a built-in type that a value should have.
pub(super) fn number_of(element: Element) -> String {
    format!("an element is {}, of {} bytes", element.name(), element.width())
}

/// Continues the error message for a value whose length is not a multiple of the size of an element. The length is not
/// known.
pub(super) fn width_hint(element: &str) -> String {
    format!("{element}: choose another type; STRLEN returns the length")
}

/// Writes all elements of a value as an array.
pub(super) fn write_elements(element: ElementType, value: &[u8], writer: &mut ReplyWriter<'_>) {
    if !value.len().is_multiple_of(element.size()) {
        let message = store_error(OperationError::ElementWidth);
        let element = match element {
            ElementType::Number(element) => number_of(element),
            ElementType::Record(layout) | ElementType::Positioned(layout) => element_of(layout),
        };
        let length = value.len();
        return writer
            .error(&format!("{message}: the value has {length} bytes, and {element}: choose another type, or GET"));
    }
    write_part(element, value, 0..value.len() / element.size(), writer);
}

/// Writes some elements of the array of all elements of a value. Its header is before the first one.
pub(super) fn write_part(element: ElementType, value: &[u8], part: Range<usize>, writer: &mut ReplyWriter<'_>) {
    let size = element.size();
    if part.start == 0 {
        writer.array(value.len() / size * element.number_count());
    }
    let elements = value[part.start * size..part.end * size].chunks_exact(size);
    if let ElementType::Number(element) = element {
        return elements.for_each(|bytes| write_number(element, bytes, writer));
    }
    elements.for_each(|bytes| write_record(element, bytes, writer));
}

/// Writes a value: a number if it has one, otherwise an array.
pub(super) fn write_value(element: ElementType, value: &[u8], writer: &mut ReplyWriter<'_>) {
    if value.len() == element.size() && element.number_count() == 1 {
        write_record(element, value, writer);
    } else {
        write_elements(element, value, writer);
    }
}

/// Writes the numbers of one element.
fn write_record(element: ElementType, mut bytes: &[u8], writer: &mut ReplyWriter<'_>) {
    for index in 0..element.number_count() {
        let scalar = element.number(index);
        let (number, rest) = bytes.split_at(scalar.width());
        bytes = rest;
        if let Scalar::Element(element) = scalar {
            write_number(element, number, writer);
        } else {
            let (element, wide) = scalar.widen(number);
            write_number(element, &wide[..element.width()], writer);
        }
    }
}

/// Writes one element.
pub(super) fn write_number(element: Element, bytes: &[u8], writer: &mut ReplyWriter<'_>) {
    if element.is_float() {
        return writer.double(element.text(bytes).as_str());
    }
    let signed = matches!(element, Element::I8 | Element::I16 | Element::I32 | Element::I64);
    let negative = signed && bytes.last().is_some_and(|&byte| byte >= 0x80);
    let mut wide = if negative { [0xff; 8] } else { [0; 8] };
    wide[..bytes.len()].copy_from_slice(bytes);
    let number = i64::from_le_bytes(wide);
    if number < 0 && !signed {
        writer.big_number(element.text(bytes).as_str());
    } else {
        writer.integer(number);
    }
}
