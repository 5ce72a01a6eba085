//! User functions: λ that users bring (KV-Direct, section 3.2), as stores see them.
//!
//! A user function is code with a [`Signature`]. The code works on whole elements, one after another, as the built-in
//! functions do. An element, an operand and a result are records: one number or several, without padding.
//!
//! ```text
//! element  { tokens: f32, at: u64 }       │ tokens, 4 bytes │ at, 8 bytes │ tokens │ at │ …
//! operands │ Δ │ ε0 ε1 ε2 … │             one after another; each is one record for all elements, or one for each
//! results  │ r0 r1 r2 …                   of an update: one for each element
//! ```
//!
//! The code is compiled before it is registered, lives as long as the process, and is shared by all threads. So an operation
//! can refer to it without counting references, and runs with the code that it was checked against, although the function may
//! be replaced or deleted meanwhile.

use std::fmt;

use half::{bf16, f16};

use super::Element;
use super::calls::CallCounts;
use super::text::ParseError;
use crate::error::OperationError;

/// Most operands of a user function.
pub const USER_OPERANDS_MAX: usize = 8;
/// Most bytes of an element, an operand, a result and Σ.
pub const RECORD_SIZE_MAX: usize = 256;
/// Most instructions of a user function for one element.
pub const FUNCTION_WORK_MAX: u32 = 4096;
/// Most instructions of one call of a user function, for all elements of the value: some milliseconds.
pub const CALL_WORK_MAX: u64 = 1 << 25;

/// A number in a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scalar {
    /// One of the ten element types.
    Element(Element),
    /// A floating-point number of two bytes, in the format of IEEE 754. Computed as `f32`.
    F16,
    /// The upper two bytes of an `f32`. Computed as `f32`.
    BF16,
    /// One byte: 0 is false, every other value is true. Written as 0 or 1.
    Bool,
}

/// The numbers of a record, one after another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    fields: Vec<Field>,
    size: usize,
    /// How it is written, if not by its numbers.
    text: Option<Box<str>>,
}

/// A number of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Where it is: `tokens`, `position.x`, `weights[3]`. Empty if the record is one number.
    pub name: String,
    /// Its type.
    pub scalar: Scalar,
}

/// An operand that a user function takes besides the element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Its name.
    pub name: String,
    /// Its numbers.
    pub layout: Layout,
}

/// What a user function takes and returns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signature {
    /// An element of the value.
    pub element: Layout,
    /// The operands besides the element, at most [`USER_OPERANDS_MAX`].
    pub operands: Vec<Parameter>,
    /// What an update returns for each element, or the Σ of a reduce.
    pub result: Option<Layout>,
    /// The most instructions for one element, at most [`FUNCTION_WORK_MAX`].
    pub work: u32,
    /// The function may fail on some elements. The value then stays as it was.
    pub can_fail: bool,
}

/// A registered user function.
pub struct UserFunction {
    /// Its name: the module, a dot, and the name in the module.
    pub name: String,
    /// What it takes and returns.
    pub signature: Signature,
    /// The code.
    pub code: UserCode,
    /// The same for one element of a few bytes, if the function has such a form.
    pub short: Option<ShortCode>,
    /// Counts the calls, if a server has the function.
    pub counts: Option<&'static CallCounts>,
}

/// A user function of an operation: its number, and the function if the number was looked up.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FunctionHandle {
    /// The number of the name. It stays the same when the function is replaced, and after a restart.
    pub id: u32,
    /// The number of this code among all that the name had. 0 for the newest.
    pub revision: u32,
    /// The function; `None` until the number is looked up, and if no function has it.
    pub function: Option<&'static UserFunction>,
}

/// The operands of a call, for those of the value's elements that the code is given.
#[derive(Clone, Copy, Debug)]
pub struct Operands<'a> {
    /// The signature of the function.
    pub signature: &'a Signature,
    /// The operands of the whole value, one after another; each is one record, or one for each element of the value.
    pub bytes: &'a [u8],
    /// Bit n is set if operand n has a record for each element.
    pub vectors: u8,
    /// The position in the value of the first element that the code is given.
    pub first: usize,
}

impl Scalar {
    /// Returns the bytes of the number.
    pub fn width(self) -> usize {
        match self {
            Scalar::Element(element) => element.width(),
            Scalar::F16 | Scalar::BF16 => 2,
            Scalar::Bool => 1,
        }
    }

    /// Returns the name of the type.
    pub fn name(self) -> &'static str {
        match self {
            Scalar::Element(element) => element.name(),
            Scalar::F16 => "f16",
            Scalar::BF16 => "bf16",
            Scalar::Bool => "bool",
        }
    }

    /// Parses `text` as a number and appends its bytes, as [`Element::parse`] does. A bool is `true`, `false`, 1 or 0.
    pub fn parse(self, text: &str, out: &mut Vec<u8>) -> Result<(), ParseError> {
        let float = || text.parse::<f32>().map_err(|_| ParseError::NotANumber);
        match self {
            Scalar::Element(element) => return element.parse(text, out),
            Scalar::F16 => out.extend_from_slice(&f16::from_f32(float()?).to_le_bytes()),
            Scalar::BF16 => out.extend_from_slice(&bf16::from_f32(float()?).to_le_bytes()),
            Scalar::Bool => out.push(match text {
                "true" | "1" => 1,
                "false" | "0" => 0,
                _ => return Err(ParseError::NotABool),
            }),
        }
        Ok(())
    }

    /// Widens the bytes of a number to an element type that holds every number of this type, and returns both.
    ///
    /// # Panics
    /// If `bytes` has not the width of the number.
    pub fn widen(self, bytes: &[u8]) -> (Element, [u8; 8]) {
        let mut wide = [0; 8];
        let two = || <[u8; 2]>::try_from(bytes).expect("two bytes");
        let element = match self {
            Scalar::Element(element) => {
                wide[..element.width()].copy_from_slice(bytes);
                element
            }
            Scalar::F16 => {
                wide[..4].copy_from_slice(&f16::from_le_bytes(two()).to_f32().to_le_bytes());
                Element::F32
            }
            Scalar::BF16 => {
                wide[..4].copy_from_slice(&bf16::from_le_bytes(two()).to_f32().to_le_bytes());
                Element::F32
            }
            Scalar::Bool => {
                wide[0] = u8::from(bytes != [0]);
                Element::U8
            }
        };
        (element, wide)
    }
}

impl Layout {
    /// Returns a record of these numbers.
    ///
    /// # Panics
    /// If it has no number, or more than [`RECORD_SIZE_MAX`] bytes.
    pub fn new(fields: Vec<Field>) -> Layout {
        let size = fields.iter().map(|field| field.scalar.width()).sum();
        assert!((1..=RECORD_SIZE_MAX).contains(&size), "a record of {size} bytes");
        Layout { fields, size, text: None }
    }

    /// Returns the same record, which is written as its type in the source: `[f32; 16]`, `Bucket {tokens: f32, at: u64}`.
    pub fn written_as(self, text: String) -> Layout {
        Layout { text: Some(text.into()), ..self }
    }

    /// Returns a record of one number.
    pub fn number(scalar: Scalar) -> Layout {
        Layout::new(vec![Field { name: String::new(), scalar }])
    }

    /// Returns the numbers in order.
    pub fn fields(&self) -> &[Field] {
        &self.fields
    }

    /// Returns the bytes of the record.
    #[inline]
    pub fn size(&self) -> usize {
        self.size
    }

    /// Returns the number of records in this number of bytes. Most sizes are powers of two, and need no division.
    #[inline]
    pub fn count(&self, bytes: usize) -> usize {
        if self.size.is_power_of_two() { bytes >> self.size.trailing_zeros() } else { bytes / self.size }
    }
}

impl fmt::Display for Layout {
    /// Writes the record as its source does, or else as `{tokens: f32, at: u64}`, or as the type of its only number.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(text) = &self.text {
            return formatter.write_str(text);
        }
        if let [field] = &self.fields[..]
            && field.name.is_empty()
        {
            return formatter.write_str(field.scalar.name());
        }
        for (index, field) in self.fields.iter().enumerate() {
            let separator = if index == 0 { "{" } else { ", " };
            write!(formatter, "{separator}{}: {}", field.name, field.scalar.name())?;
        }
        formatter.write_str("}")
    }
}

impl fmt::Debug for UserFunction {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "UserFunction({})", self.name)
    }
}

impl PartialEq for UserFunction {
    /// Returns true if both are the same code.
    fn eq(&self, other: &UserFunction) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Signature {
    /// Returns the size of the operands for a value of this many elements; bit n of `vectors` is set if operand n has a
    /// record for each element.
    pub fn operands_size(&self, vectors: u8, element_count: usize) -> usize {
        let sizes = self.operands.iter().enumerate().map(|(index, operand)| {
            let count = if vectors >> index & 1 == 1 { element_count } else { 1 };
            operand.layout.size() * count
        });
        sizes.sum()
    }

    /// Describes a function with this signature: `update limits.take(Bucket {tokens: f32, at: u64}, now: u64) -> bool`.
    pub fn describe(&self, kind: FunctionKind, name: &str) -> String {
        let mut parameters = vec![self.element.to_string()];
        if let (FunctionKind::Reduce, Some(sigma)) = (kind, &self.result) {
            parameters.push(format!("Σ: {sigma}"));
        }
        parameters.extend(self.operands.iter().map(|operand| format!("{}: {}", operand.name, operand.layout)));
        let result = match (kind, &self.result) {
            (FunctionKind::Update, Some(result)) => format!(" -> {result}"),
            _ => String::new(),
        };
        format!("{} {name}({}){result}", kind.name(), parameters.join(", "))
    }

    /// Returns the size of the results of an update for a value of this size.
    pub fn results_size(&self, value_size: usize) -> usize {
        self.result.as_ref().map_or(0, |result| result.size() * self.element.count(value_size))
    }

    /// Returns the bytes that the operands have for each element.
    pub fn operands_size_of_element(&self, vectors: u8) -> usize {
        self.operands_size(vectors, 1) - self.operands_size(vectors, 0)
    }
}

impl<'a> Operands<'a> {
    /// Returns the record of an operand that belongs to an element, given the position of the element among those that the
    /// code is given.
    ///
    /// # Panics
    /// If the function has no such operand, or the operands are too short.
    pub fn record(&self, operand: usize, element: usize) -> &'a [u8] {
        let Operands { signature, bytes, vectors, first } = *self;
        let shared_size = signature.operands_size(vectors, 0);
        let element_size = signature.operands_size_of_element(vectors);
        let element_count = (bytes.len() - shared_size).checked_div(element_size).unwrap_or(0);
        let is_vector = |index: usize| vectors >> index & 1 == 1;
        let size_of = |index: usize| signature.operands[index].layout.size();
        let start: usize =
            (0..operand).map(|index| size_of(index) * if is_vector(index) { element_count } else { 1 }).sum();
        let start = start + if is_vector(operand) { size_of(operand) * (first + element) } else { 0 };
        &bytes[start..start + size_of(operand)]
    }
}

/// The code of a user function, by its kind. It is given whole elements of a value, the operands of the call, and memory for
/// its results.
///
/// Code that can fail is given all elements of the value at once. If it fails, its results and the elements are discarded.
pub enum UserCode {
    /// Changes elements, and writes a result for each if the signature has one.
    Update(UpdateCode),
    /// Folds the elements into Σ, which holds the result so far.
    Reduce(ReduceCode),
    /// Selects elements: writes one byte for each, 1 if it passes, else 0.
    Filter(ReduceCode),
}

/// The code of an update for a value of one element in a register. It cannot fail, is short, and has no result.
pub struct ShortCode {
    /// Bytes of the element, from 1 to 8.
    pub element_size: usize,
    /// Bytes of all operands.
    pub operands_size: usize,
    /// Returns the element after, given the element and the operands, one after another. The element is in the lower bytes of
    /// both numbers; the bytes above it are undefined.
    pub code: WordCode,
}

/// Code that is given an element and the operands, and returns the element after.
pub type WordCode = Box<dyn Fn(u64, &[u8]) -> u64 + Send + Sync>;
/// Code that is given elements, operands and memory for results.
pub type UpdateCode = Box<dyn Fn(&mut [u8], &Operands<'_>, &mut [u8]) -> Result<(), OperationError> + Send + Sync>;
/// Code that does not change the elements.
pub type ReduceCode = Box<dyn Fn(&[u8], &Operands<'_>, &mut [u8]) -> Result<(), OperationError> + Send + Sync>;

/// The kinds of user functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FunctionKind {
    /// Changes elements, and may return a result for each.
    Update,
    /// Folds the elements into Σ.
    Reduce,
    /// Selects elements.
    Filter,
}

impl FunctionKind {
    /// Returns the name of the kind.
    pub fn name(self) -> &'static str {
        match self {
            FunctionKind::Update => "update",
            FunctionKind::Reduce => "reduce",
            FunctionKind::Filter => "filter",
        }
    }
}

impl UserFunction {
    /// Returns a function whose calls are not counted, without a form for one short element.
    pub fn new(name: &str, signature: Signature, code: UserCode) -> UserFunction {
        UserFunction { name: name.to_owned(), signature, code, short: None, counts: None }
    }

    /// Returns the kind of the function.
    pub fn kind(&self) -> FunctionKind {
        match self.code {
            UserCode::Update(_) => FunctionKind::Update,
            UserCode::Reduce(_) => FunctionKind::Reduce,
            UserCode::Filter(_) => FunctionKind::Filter,
        }
    }

    /// Counts a call on this number of elements.
    #[inline]
    pub fn note_call(&self, element_count: usize) {
        if let Some(counts) = self.counts {
            counts.note_call(element_count);
        }
    }

    /// Counts that a call has failed, which was counted before.
    pub fn note_failure(&self) {
        if let Some(counts) = self.counts {
            counts.note_failure();
        }
    }
}
