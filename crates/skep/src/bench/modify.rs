//! The read-modify-write of a mix: one atomic update that adds one to every element of the value.

use skep_core::function::{Element, UpdateFunction};
use skep_core::operation::{Operation, Shape, Update};

/// Returns the read-modify-write of a value of this size.
pub(crate) fn modify(value_size: usize) -> Operation<'static> {
    /// The number one, little-endian, in any width.
    const ONE: [u8; 8] = [1, 0, 0, 0, 0, 0, 0, 0];
    let element = widest_element(value_size);
    Operation::Update(Update {
        function: UpdateFunction::Add,
        element,
        shape: Shape::ScalarToVector,
        operand: &ONE[..element.width()],
        initial: None,
        return_old: true,
    })
}

/// Returns the widest unsigned element whose width divides the size of the value.
pub(crate) fn widest_element(value_size: usize) -> Element {
    let widths = [Element::U64, Element::U32, Element::U16];
    widths.into_iter().find(|element| value_size.is_multiple_of(element.width())).unwrap_or(Element::U8)
}
