//! Replies with the elements of a value.

use skep_core::function::Element;
use skep_core::operation::OperationError;
use skep_wire::resp::ReplyWriter;

use super::store_error;

/// Writes all elements of a value as an array.
pub(super) fn write_elements(element: Element, value: &[u8], writer: &mut ReplyWriter<'_>) {
    if !value.len().is_multiple_of(element.width()) {
        return writer.error(&store_error(OperationError::ElementWidth));
    }
    writer.array(value.len() / element.width());
    for bytes in value.chunks_exact(element.width()) {
        write_number(element, bytes, writer);
    }
}

/// Writes a value: a number if it has one element, otherwise an array.
pub(super) fn write_value(element: Element, value: &[u8], writer: &mut ReplyWriter<'_>) {
    if value.len() == element.width() {
        write_number(element, value, writer);
    } else {
        write_elements(element, value, writer);
    }
}

/// Writes one element.
pub(super) fn write_number(element: Element, bytes: &[u8], writer: &mut ReplyWriter<'_>) {
    if element.is_float() {
        return writer.double(&element.format(bytes));
    }
    let signed = matches!(element, Element::I8 | Element::I16 | Element::I32 | Element::I64);
    let negative = signed && bytes.last().is_some_and(|&byte| byte >= 0x80);
    let mut wide = if negative { [0xff; 8] } else { [0; 8] };
    wide[..bytes.len()].copy_from_slice(bytes);
    let number = i64::from_le_bytes(wide);
    if number < 0 && !signed {
        writer.big_number(&element.format(bytes));
    } else {
        writer.integer(number);
    }
}
