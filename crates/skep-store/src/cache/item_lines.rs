//! Items in the lines of a memory. Most have all of their bytes in one line, which is then the only access.

use super::item::{Header, Parts};
use crate::memory::{Effect, LINE_SIZE, Pointer, ResidentLines, UNIT_SIZE};

/// The position of an item in a line.
#[derive(Clone, Copy)]
struct Position {
    line: Pointer,
    /// The first byte in the line.
    begin: usize,
}

impl Position {
    #[inline(always)]
    fn of(item: Pointer) -> Self {
        const LINE_UNITS: u32 = (LINE_SIZE / UNIT_SIZE) as u32;
        let begin = (item.unit() % LINE_UNITS) as usize * UNIT_SIZE;
        Position { line: Pointer::to_line_below_end(item.unit() / LINE_UNITS), begin }
    }

    /// Returns the bytes of the line from the begin of the item on.
    #[inline(always)]
    fn bytes<L: ResidentLines>(self, lines: &mut L) -> &mut [u8] {
        &mut lines.line(self.line).0[self.begin..]
    }
}

/// Returns the bytes of an item.
#[inline(always)]
pub(super) fn item_bytes<L: ResidentLines>(lines: &mut L, item: Pointer) -> &mut [u8] {
    let position = Position::of(item);
    let size = Header::of(position.bytes(lines)).size();
    if position.begin + size <= LINE_SIZE { &mut position.bytes(lines)[..size] } else { lines.span(item.span(size)) }
}

/// Returns the parts of an item.
#[inline(always)]
pub(super) fn item_parts<L: ResidentLines>(lines: &mut L, item: Pointer) -> Parts<'_> {
    const WHOLE: &str = "the bytes of an item have all of its parts";
    let position = Position::of(item);
    let bytes = position.bytes(lines);
    let header = Header::of(bytes);
    // The line is divided once: the compiler sees that both are the same. The borrow checker would not let these parts go.
    if header.divide(bytes).is_some() {
        header.divide(position.bytes(lines)).expect(WHOLE)
    } else {
        header.divide(lines.span(item.span(header.size()))).expect(WHOLE)
    }
}

/// Writes the header of an item anew.
#[inline(always)]
pub(super) fn write_header<L: ResidentLines>(lines: &mut L, item: Pointer, header: Header) {
    header.write(Position::of(item).bytes(lines));
    lines.note(item.span(header.size()), Effect::Changed);
}
