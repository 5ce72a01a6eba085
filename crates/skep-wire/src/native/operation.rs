//! One operation of a request frame: its header, and the registers that the copy flags refer to.
//!
//! ```text
//! | opcode, flags | function | element, flags | key size | operand size | initial size | key | operand | initial |
//!   u8              u8         u8               u16        u32            u32
//!                   └── update, reduce, filter ┘ └─────── unless SAME_SIZES ────────┘         │
//!                                                                              unless SAME_VALUE
//! opcode, flags    7            6            5   4 ......... 0
//!                  | SAME_VALUE | SAME_SIZES | 0 | opcode    |
//! element, flags   7   6   5           4            3 ......... 0
//!                  | 0 | 0 | INITIAL   | RETURN_OLD | element   |
//! ```
//!
//! The operand and its size are present if the opcode has one ([`Opcode::has_operand`]). The initial value and its size
//! are present if `INITIAL` is set. The operand of each opcode holds:
//!
//! ```text
//! put, put_if_absent, put_if_present   the value
//! the three updates                    Δ
//! reduce                               Σ, one element, and the constants of a dot product
//! filter                               Δ, one element, or nothing for non-zero
//! add_decimal                          i64
//! scan                                 all of it but the key (module `scan`)
//! string read, string write            all of it but the key (module `string`)
//! call                                 all of it but the key (module `call`)
//! ```
//!
//! The copy flags (KV-Direct, section 4) refer to earlier operations of the frame. `SAME_SIZES`: each size that this
//! operation has is the same as that of the last operation that had it. `SAME_VALUE`: the operand is the same as that
//! of the last operation that had one. Its size is still stated, unless `SAME_SIZES` is set too, and must agree.
//!
//! All operations share this header, so the decoder can skip an operation with an unknown function or element. An
//! operation that it cannot skip ends the frame ([`Fault::Frame`]).

use skep_core::function::{Element, Fold, Predicate, UpdateFunction};
use skep_core::operation::{Filter, Operation, PlainRequest, PutCondition, Reduce, Request, Shape, Update};

use super::code::Coded;
use super::encoder_registers::{EncoderRegisters, HEAD_SIZE, head_of_short};
use super::opcode::{OPCODE_MASK, Opcode, SAME_SIZES, SAME_VALUE};
use super::{Cursor, WireError, call, scan, similar_put, string};

/// Bits 0 to 3 of the element byte.
const ELEMENT_MASK: u8 = 0x0F;
/// The update returns the old value.
const RETURN_OLD: u8 = 0x10;
/// The update carries the initial value for a missing key.
const INITIAL: u8 = 0x20;

const _: () = assert!(Element::ALL.len() <= ELEMENT_MASK as usize + 1);
const _: () = assert!(ELEMENT_MASK & (RETURN_OLD | INITIAL) == 0);

/// Bytes of the longest header.
const HEADER_SIZE_MAX: usize = 1 + 2 + size_of::<u16>() + 2 * size_of::<u32>();

/// The reason why an operation could not be decoded, and how much of the frame is affected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The next operation can still be decoded.
    Operation(WireError),
    /// The start of the next operation is unknown.
    Frame(WireError),
}

/// The last size of each kind in the frame. A size that no operation had yet is [`Sizes::NEVER`], which is larger than
/// any frame.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    key: usize,
    operand: usize,
    initial: usize,
}

impl Sizes {
    const NEVER: usize = usize::MAX;
}

impl Default for Sizes {
    fn default() -> Self {
        Sizes { key: Sizes::NEVER, operand: Sizes::NEVER, initial: Sizes::NEVER }
    }
}

/// The decoder's state between two operations.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct DecoderRegisters<'a> {
    sizes: Sizes,
    operand: Option<&'a [u8]>,
}

/// The same without the bytes: the operand is a range of the frame.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SavedRegisters {
    sizes: Sizes,
    operand: Option<SavedOperand>,
}

/// An operand of a frame: a frame has at most [`REQUEST_FRAME_SIZE_MAX`](super::REQUEST_FRAME_SIZE_MAX) bytes.
#[derive(Clone, Copy, Debug)]
struct SavedOperand {
    start: u32,
    size: u32,
}

impl<'a> DecoderRegisters<'a> {
    /// Saves the state, for a frame that contains the bytes `operations`.
    pub(super) fn save(&self, operations: &'a [u8]) -> SavedRegisters {
        let saved = |operand: &[u8]| SavedOperand {
            start: (operand.as_ptr() as usize - operations.as_ptr() as usize) as u32,
            size: operand.len() as u32,
        };
        SavedRegisters { sizes: self.sizes, operand: self.operand.map(saved) }
    }
}

impl SavedRegisters {
    /// Restores the saved state.
    pub(super) fn restore<'a>(&self, operations: &'a [u8]) -> DecoderRegisters<'a> {
        let operand = self.operand.map(|saved| &operations[saved.start as usize..][..saved.size as usize]);
        DecoderRegisters { sizes: self.sizes, operand }
    }
}

/// The fields of an operation on the wire.
struct Parts<'a> {
    opcode: Opcode,
    /// Function and element byte.
    function: Option<[u8; 2]>,
    /// The operand in pieces that are not adjacent in memory.
    operand: Option<[&'a [u8]; 3]>,
    initial: Option<&'a [u8]>,
}

/// Returns the largest size of the operation in a frame, which it has without the copy flags.
#[inline]
pub fn operation_size(request: &Request<'_>) -> usize {
    let header = match request.operation {
        Operation::Scan(_) => scan::HEADER_SIZE,
        Operation::StringRead(_) => string::READ_HEADER_SIZE_MAX,
        Operation::StringWrite(_) => string::WRITE_HEADER_SIZE,
        Operation::Call(_) => call::HEADER_SIZE,
        _ => 0,
    };
    HEADER_SIZE_MAX + header + request.size()
}

/// Decodes the operation at the cursor if it is plain. Otherwise, or if it is malformed, changes nothing.
#[inline(always)]
pub(super) fn decode_plain<'a>(
    cursor: &mut Cursor<'a>,
    registers: &mut DecoderRegisters<'a>,
) -> Option<PlainRequest<'a>> {
    let mut rest = *cursor;
    let first = rest.take_u8()?;
    let has_sizes = first & SAME_SIZES == 0;
    if first & !SAME_SIZES == Opcode::Get as u8 {
        let size = if has_sizes { usize::from(rest.take_u16()?) } else { registers.sizes.key };
        let key = rest.take(size)?;
        (*cursor, registers.sizes.key) = (rest, size);
        return Some(PlainRequest { key, value: None });
    }
    if first & !(SAME_SIZES | SAME_VALUE) != Opcode::Put as u8 {
        return None;
    }
    let Sizes { key: mut key_size, operand: mut value_size, .. } = registers.sizes;
    if has_sizes {
        (key_size, value_size) = (usize::from(rest.take_u16()?), rest.take_u32()? as usize);
    }
    let key = rest.take(key_size)?;
    let value = match first & SAME_VALUE {
        0 => rest.take(value_size)?,
        _ => registers.operand.filter(|operand| operand.len() == value_size)?,
    };
    (*cursor, registers.operand) = (rest, Some(value));
    (registers.sizes.key, registers.sizes.operand) = (key_size, value_size);
    Some(PlainRequest { key, value: Some(value) })
}

/// Decodes the operation at the cursor.
pub(super) fn decode<'a>(cursor: &mut Cursor<'a>, registers: &mut DecoderRegisters<'a>) -> Result<Request<'a>, Fault> {
    const MALFORMED: Fault = Fault::Frame(WireError::Malformed);

    let first = cursor.take_u8().ok_or(MALFORMED)?;
    let opcode = Opcode::from_code(first & OPCODE_MASK).ok_or(Fault::Frame(WireError::UnknownOperation))?;
    let [function, element] = match opcode.has_function() {
        true => [cursor.take_u8().ok_or(MALFORMED)?, cursor.take_u8().ok_or(MALFORMED)?],
        false => [0, 0],
    };

    let sizes = &mut registers.sizes;
    if first & SAME_SIZES == 0 {
        sizes.key = usize::from(cursor.take_u16().ok_or(MALFORMED)?);
        if opcode.has_operand() {
            sizes.operand = cursor.take_u32().ok_or(MALFORMED)? as usize;
        }
        if element & INITIAL != 0 {
            sizes.initial = cursor.take_u32().ok_or(MALFORMED)? as usize;
        }
    }

    let key = cursor.take(sizes.key).ok_or(MALFORMED)?;
    let mut operand: &[u8] = &[];
    if opcode.has_operand() {
        operand = if first & SAME_VALUE == 0 {
            cursor.take(sizes.operand).ok_or(MALFORMED)?
        } else {
            registers.operand.filter(|operand| operand.len() == sizes.operand).ok_or(MALFORMED)?
        };
        registers.operand = Some(operand);
    }
    let mut initial = None;
    if element & INITIAL != 0 {
        initial = Some(cursor.take(sizes.initial).ok_or(MALFORMED)?);
    }

    if first & SAME_VALUE != 0 && !opcode.has_operand() {
        return Err(Fault::Operation(WireError::Malformed));
    }
    let operation = assemble(opcode, function, element, operand, initial).map_err(Fault::Operation)?;
    Ok(Request { key, operation })
}

/// Builds the operation from its parts.
#[inline]
fn assemble<'a>(
    opcode: Opcode,
    function: u8,
    element: u8,
    operand: &'a [u8],
    initial: Option<&'a [u8]>,
) -> Result<Operation<'a>, WireError> {
    let put = |condition| Ok(Operation::Put { value: operand, condition });
    let update = |shape| {
        Ok(Operation::Update(Update {
            function: UpdateFunction::from_code(function).ok_or(WireError::UnknownFunction)?,
            element: decode_element(element, RETURN_OLD | INITIAL)?,
            shape,
            operand,
            initial,
            return_old: element & RETURN_OLD != 0,
        }))
    };
    match opcode {
        Opcode::Get => Ok(Operation::Get),
        Opcode::Contains => Ok(Operation::Contains),
        Opcode::Put => put(PutCondition::Always),
        Opcode::PutIfAbsent => put(PutCondition::IfAbsent),
        Opcode::PutIfPresent => put(PutCondition::IfPresent),
        Opcode::Delete => Ok(Operation::Delete),
        Opcode::UpdateScalarToScalar => update(Shape::ScalarToScalar),
        Opcode::UpdateScalarToVector => update(Shape::ScalarToVector),
        Opcode::UpdateVectorToVector => update(Shape::VectorToVector),
        Opcode::Reduce => {
            let fold = Fold::from_code(function).ok_or(WireError::UnknownFunction)?;
            let element = decode_element(element, 0)?;
            // If the operand is shorter than Σ, all of it becomes Σ. The store then refuses it with a specific error.
            let (initial, constants) = operand.split_at(fold.sigma(element).width().min(operand.len()));
            Ok(Operation::Reduce(Reduce { fold, element, initial, constants }))
        }
        Opcode::Filter => {
            let predicate = Predicate::from_code(function).ok_or(WireError::UnknownFunction)?;
            Ok(Operation::Filter(Filter { predicate, element: decode_element(element, 0)?, operand }))
        }
        Opcode::AddDecimal => {
            let delta = operand.try_into().map_err(|_| WireError::Malformed)?;
            Ok(Operation::AddDecimal { delta: i64::from_le_bytes(delta) })
        }
        Opcode::Scan => Ok(Operation::Scan(scan::decode(operand)?)),
        Opcode::StringRead => Ok(Operation::StringRead(string::decode_read(operand)?)),
        Opcode::StringWrite => Ok(Operation::StringWrite(string::decode_write(operand)?)),
        Opcode::Call => Ok(Operation::Call(call::decode(operand)?)),
    }
}

/// Decodes the element type of an element byte that may have the flags `allowed`.
#[inline]
fn decode_element(byte: u8, allowed: u8) -> Result<Element, WireError> {
    if byte & !(ELEMENT_MASK | allowed) != 0 {
        return Err(WireError::Malformed);
    }
    Element::from_code(byte & ELEMENT_MASK).ok_or(WireError::UnknownElement)
}

/// Appends the operation if the output then has at most `size_max` bytes. Otherwise leaves the output unchanged.
///
/// Two kinds of requests cannot be encoded at all, and both are invalid for any store. The first has a key whose size
/// does not fit 16 bits. The second is a fold whose Σ is not one number, because the decoder could not separate Σ from
/// the constants.
#[inline]
pub(super) fn encode(
    request: &Request<'_>,
    registers: &mut EncoderRegisters,
    output: &mut Vec<u8>,
    size_max: usize,
) -> bool {
    if let Operation::Put { value, condition: PutCondition::Always } = request.operation
        && registers.key_size.is_some_and(|size| usize::from(size) == request.key.len())
        && registers.operand_size.is_some_and(|size| size as usize == value.len())
    {
        return similar_put::encode(request.key, value, registers, output, size_max);
    }
    let delta;
    let scan_header;
    let read_header;
    let write_header;
    let call_header;
    let parts = match &request.operation {
        Operation::Get => Parts::without_operand(Opcode::Get),
        Operation::Contains => Parts::without_operand(Opcode::Contains),
        Operation::Delete => Parts::without_operand(Opcode::Delete),
        Operation::Put { value, condition } => {
            let opcode = match condition {
                PutCondition::Always => Opcode::Put,
                PutCondition::IfAbsent => Opcode::PutIfAbsent,
                PutCondition::IfPresent => Opcode::PutIfPresent,
            };
            Parts { operand: Some([value, &[], &[]]), ..Parts::without_operand(opcode) }
        }
        Operation::Update(update) => Parts::of_update(update),
        Operation::Reduce(reduce) => {
            if reduce.initial.len() != reduce.sigma().width() {
                return false;
            }
            Parts {
                function: Some([reduce.fold.code(), reduce.element.code()]),
                operand: Some([reduce.initial, reduce.constants, &[]]),
                ..Parts::without_operand(Opcode::Reduce)
            }
        }
        Operation::Filter(filter) => Parts {
            function: Some([filter.predicate.code(), filter.element.code()]),
            operand: Some([filter.operand, &[], &[]]),
            ..Parts::without_operand(Opcode::Filter)
        },
        Operation::AddDecimal { delta: number } => {
            delta = number.to_le_bytes();
            Parts { operand: Some([&delta, &[], &[]]), ..Parts::without_operand(Opcode::AddDecimal) }
        }
        Operation::Scan(scan) => {
            scan_header = scan::encode_header(scan);
            Parts { operand: Some([&scan_header, scan.end.bytes(), &[]]), ..Parts::without_operand(Opcode::Scan) }
        }
        Operation::StringRead(read) => {
            read_header = string::encode_read(read);
            let operand = Some([read_header.as_bytes(), read.split().1, &[]]);
            Parts { operand, ..Parts::without_operand(Opcode::StringRead) }
        }
        Operation::StringWrite(write) => {
            let (_, bytes, operand) = write.split();
            write_header = string::encode_write(write, operand.len());
            let operand = Some([&write_header, operand, bytes]);
            Parts { operand, ..Parts::without_operand(Opcode::StringWrite) }
        }
        Operation::Call(call) => {
            call_header = call::encode_header(call);
            let operand = Some([&call_header, call.operands, call.initial.unwrap_or(&[])]);
            Parts { operand, ..Parts::without_operand(Opcode::Call) }
        }
    };
    parts.encode(request.key, registers, output, size_max)
}

/// Returns true if the bytes begin with these pieces.
#[inline]
fn starts_with(mut bytes: &[u8], pieces: [&[u8]; 3]) -> bool {
    pieces.iter().all(|piece| {
        let (same_place, rest) = bytes.split_at(piece.len());
        bytes = rest;
        same_place == *piece
    })
}

/// Returns the first bytes of an operand as a number, at most eight.
#[inline]
fn head(pieces: [&[u8]; 3]) -> u64 {
    let [first, rest @ ..] = pieces;
    match first.first_chunk() {
        Some(head) => u64::from_le_bytes(*head),
        None if rest == [&[]; 2] => head_of_short(first),
        None => {
            let mut head = [0; HEAD_SIZE];
            head.iter_mut().zip(pieces.into_iter().flatten()).for_each(|(to, from)| *to = *from);
            u64::from_le_bytes(head)
        }
    }
}

impl<'a> Parts<'a> {
    fn without_operand(opcode: Opcode) -> Self {
        Parts { opcode, function: None, operand: None, initial: None }
    }

    fn of_update(update: &Update<'a>) -> Self {
        let opcode = match update.shape {
            Shape::ScalarToScalar => Opcode::UpdateScalarToScalar,
            Shape::ScalarToVector => Opcode::UpdateScalarToVector,
            Shape::VectorToVector => Opcode::UpdateVectorToVector,
        };
        let mut element = update.element.code();
        if update.return_old {
            element |= RETURN_OLD;
        }
        if update.initial.is_some() {
            element |= INITIAL;
        }
        Parts {
            opcode,
            function: Some([update.function.code(), element]),
            operand: Some([update.operand, &[], &[]]),
            initial: update.initial,
        }
    }

    #[inline]
    fn encode(&self, key: &[u8], registers: &mut EncoderRegisters, output: &mut Vec<u8>, size_max: usize) -> bool {
        let Ok(key_size) = u16::try_from(key.len()) else { return false };
        let operand_size = self.operand.map(|pieces| pieces.iter().map(|piece| piece.len()).sum());
        let initial_size = self.initial.map(<[u8]>::len);
        if operand_size.max(initial_size).is_some_and(|size| size > size_max) {
            return false;
        }
        let narrow = |size: usize| u32::try_from(size).expect("no longer than a frame");
        let operand_size = operand_size.map(narrow);
        let initial_size = initial_size.map(narrow);

        let same_sizes = registers.key_size == Some(key_size)
            && (operand_size.is_none() || operand_size == registers.operand_size)
            && (initial_size.is_none() || initial_size == registers.initial_size);
        let operand_head = self.operand.map_or(0, head);
        let same_value = self.operand.is_some_and(|pieces| {
            operand_size == registers.operand_size
                && operand_head == registers.operand_head
                && (operand_size <= Some(HEAD_SIZE as u32) || starts_with(&output[registers.operand_start..], pieces))
        });

        let mut size = 1 + key.len();
        size += if self.function.is_some() { 2 } else { 0 };
        if !same_sizes {
            size += size_of::<u16>();
            size += if operand_size.is_some() { size_of::<u32>() } else { 0 };
            size += if initial_size.is_some() { size_of::<u32>() } else { 0 };
        }
        size += if same_value { 0 } else { operand_size.unwrap_or(0) as usize };
        size += initial_size.unwrap_or(0) as usize;
        if output.len() + size > size_max {
            return false;
        }

        output.reserve(size);
        let mut first = self.opcode as u8;
        first |= if same_sizes { SAME_SIZES } else { 0 };
        first |= if same_value { SAME_VALUE } else { 0 };
        output.push(first);
        if let Some(function) = self.function {
            output.extend_from_slice(&function);
        }
        if !same_sizes {
            output.extend_from_slice(&key_size.to_le_bytes());
            for size in [operand_size, initial_size].into_iter().flatten() {
                output.extend_from_slice(&size.to_le_bytes());
            }
        }
        output.extend_from_slice(key);
        if let Some(pieces) = self.operand
            && !same_value
        {
            (registers.operand_start, registers.operand_head) = (output.len(), operand_head);
            for piece in pieces {
                output.extend_from_slice(piece);
            }
        }
        if let Some(initial) = self.initial {
            output.extend_from_slice(initial);
        }

        registers.key_size = Some(key_size);
        registers.operand_size = operand_size.or(registers.operand_size);
        registers.initial_size = initial_size.or(registers.initial_size);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::head;

    #[test]
    fn the_head_is_the_first_eight_bytes() {
        let bytes: Vec<u8> = (1..=10).collect();
        for size in 0..bytes.len() {
            let mut expected = [0; 8];
            expected.iter_mut().zip(&bytes[..size]).for_each(|(to, from)| *to = *from);
            for end in 0..=size {
                let pieces = [&bytes[..end], &bytes[end..size], &[]];
                assert_eq!(head(pieces), u64::from_le_bytes(expected), "{end} of {size} bytes");
            }
        }
    }
}
