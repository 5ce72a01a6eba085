//! The types of the language, and how values are flattened into numbers.
//!
//! A value is a list of *leaves*: its numbers in the order of their bytes. A record `{ tokens: f32, at: [u64; 2] }` has
//! three leaves. There is no padding, so the layout of a record follows from its leaves.

use std::rc::Rc;

use skep_core::function::{Element, Field, Layout, Scalar};

/// A type of numbers. `usize` is only computed with: records cannot hold it, because its width depends on the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Number {
    U8,
    U16,
    U32,
    U64,
    Usize,
    I8,
    I16,
    I32,
    I64,
    F32,
    F64,
}

/// A floating-point type of two bytes. It is a type of places: a value read from one is an `f32`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Half {
    F16,
    BF16,
}

/// A type.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Type {
    /// `()`
    Unit,
    /// The type of an expression that does not end, such as `return`.
    Never,
    Bool,
    Number(Number),
    /// The type of a literal, which is inferred.
    Unknown(usize),
    Half(Half),
    Array(Rc<Type>, usize),
    /// The struct with this number.
    Record(usize),
}

/// One number of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leaf {
    Bool,
    Number(Number),
    /// Computed as `f32`.
    Half(Half),
}

/// A struct.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub(crate) name: String,
    pub(crate) fields: Vec<RecordField>,
}

/// A field of a struct.
#[derive(Clone, Debug)]
pub(crate) struct RecordField {
    pub(crate) name: String,
    pub(crate) ty: Type,
    /// The number of its first leaf.
    pub(crate) first: usize,
}

/// The structs of a module, by number.
#[derive(Clone, Debug, Default)]
pub(crate) struct Records(pub(crate) Vec<Record>);

impl Number {
    pub(crate) const ALL: [Number; 11] = [
        Number::U8,
        Number::U16,
        Number::U32,
        Number::U64,
        Number::Usize,
        Number::I8,
        Number::I16,
        Number::I32,
        Number::I64,
        Number::F32,
        Number::F64,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Number::U8 => "u8",
            Number::U16 => "u16",
            Number::U32 => "u32",
            Number::U64 => "u64",
            Number::Usize => "usize",
            Number::I8 => "i8",
            Number::I16 => "i16",
            Number::I32 => "i32",
            Number::I64 => "i64",
            Number::F32 => "f32",
            Number::F64 => "f64",
        }
    }

    pub(crate) fn from_name(name: &str) -> Option<Number> {
        Number::ALL.into_iter().find(|number| number.name() == name)
    }

    pub(crate) fn width(self) -> usize {
        match self {
            Number::U8 | Number::I8 => 1,
            Number::U16 | Number::I16 => 2,
            Number::U32 | Number::I32 | Number::F32 => 4,
            Number::U64 | Number::Usize | Number::I64 | Number::F64 => 8,
        }
    }

    pub(crate) fn bits(self) -> u32 {
        8 * self.width() as u32
    }

    pub(crate) fn is_float(self) -> bool {
        matches!(self, Number::F32 | Number::F64)
    }

    /// Returns true for signed integers and floats.
    pub(crate) fn is_signed(self) -> bool {
        matches!(self, Number::I8 | Number::I16 | Number::I32 | Number::I64) || self.is_float()
    }

    /// Returns the smallest integer of the type.
    pub(crate) fn min(self) -> i128 {
        if self.is_signed() { -(1 << (self.bits() - 1)) } else { 0 }
    }

    /// Returns the largest integer of the type.
    pub(crate) fn max(self) -> i128 {
        if self.is_signed() { (1 << (self.bits() - 1)) - 1 } else { (1 << self.bits()) - 1 }
    }

    /// Returns the unsigned integer type of the same width.
    pub(crate) fn unsigned(self) -> Number {
        match self.width() {
            1 => Number::U8,
            2 => Number::U16,
            4 => Number::U32,
            _ => Number::U64,
        }
    }

    fn scalar(self) -> Scalar {
        Scalar::Element(match self {
            Number::U8 => Element::U8,
            Number::U16 => Element::U16,
            Number::U32 => Element::U32,
            Number::U64 | Number::Usize => Element::U64,
            Number::I8 => Element::I8,
            Number::I16 => Element::I16,
            Number::I32 => Element::I32,
            Number::I64 => Element::I64,
            Number::F32 => Element::F32,
            Number::F64 => Element::F64,
        })
    }
}

impl Leaf {
    /// Returns the number as skep-core names it.
    pub(crate) fn scalar(self) -> Scalar {
        match self {
            Leaf::Bool => Scalar::Bool,
            Leaf::Number(number) => number.scalar(),
            Leaf::Half(Half::F16) => Scalar::F16,
            Leaf::Half(Half::BF16) => Scalar::BF16,
        }
    }
}

impl Type {
    /// Returns the number type of a type that is a plain number.
    pub(crate) fn plain_number(&self) -> Option<Number> {
        match self {
            Type::Number(number) => Some(*number),
            _ => None,
        }
    }

    /// Returns the type of a value that is read from a place of this type.
    pub(crate) fn of_value(&self) -> Type {
        match self {
            Type::Half(_) => Type::Number(Number::F32),
            other => other.clone(),
        }
    }
}

impl Records {
    /// Returns the name of a type.
    pub(crate) fn name(&self, ty: &Type) -> String {
        match ty {
            Type::Unit => "()".to_owned(),
            Type::Never => "!".to_owned(),
            Type::Bool => "bool".to_owned(),
            Type::Number(number) => number.name().to_owned(),
            Type::Unknown(_) => "a number".to_owned(),
            Type::Half(Half::F16) => "f16".to_owned(),
            Type::Half(Half::BF16) => "bf16".to_owned(),
            Type::Array(element, count) => format!("[{}; {count}]", self.name(element)),
            Type::Record(index) => self.0[*index].name.clone(),
        }
    }

    /// Returns how many leaves a value of this type has.
    pub(crate) fn leaf_count(&self, ty: &Type) -> usize {
        match ty {
            Type::Unit | Type::Never => 0,
            Type::Bool | Type::Number(_) | Type::Unknown(_) | Type::Half(_) => 1,
            Type::Array(element, count) => self.leaf_count(element) * count,
            Type::Record(index) => {
                let last = self.0[*index].fields.last();
                last.map_or(0, |field| field.first + self.leaf_count(&field.ty))
            }
        }
    }

    /// Returns the leaves of a type that has no unknown parts.
    pub(crate) fn leaves(&self, ty: &Type) -> Vec<Leaf> {
        let mut leaves = Vec::new();
        self.visit(ty, &mut String::new(), &mut |leaf, _| leaves.push(leaf));
        leaves
    }

    /// Returns the bytes of a value of this type.
    pub(crate) fn size(&self, ty: &Type) -> usize {
        match ty {
            Type::Array(element, count) => self.size(element) * count,
            Type::Record(index) => self.0[*index].fields.iter().map(|field| self.size(&field.ty)).sum(),
            Type::Bool => 1,
            Type::Half(_) => 2,
            Type::Number(number) => number.width(),
            Type::Unit | Type::Never | Type::Unknown(_) => 0,
        }
    }

    /// Returns the record of this type for skep-core. It is written as the source does, a struct with its fields.
    pub(crate) fn layout(&self, ty: &Type) -> Layout {
        let layout = self.numbers(ty);
        match ty {
            Type::Array(..) | Type::Record(_) => layout.written_as(self.describe(ty)),
            _ => layout,
        }
    }

    /// Returns the struct with this number for skep-core. It is written as its fields.
    pub(crate) fn record_layout(&self, index: usize) -> Layout {
        self.numbers(&Type::Record(index)).written_as(self.describe_fields(index))
    }

    fn describe(&self, ty: &Type) -> String {
        match ty {
            Type::Array(element, count) => format!("[{}; {count}]", self.describe(element)),
            Type::Record(index) => format!("{} {}", self.name(ty), self.describe_fields(*index)),
            _ => self.name(ty),
        }
    }

    fn describe_fields(&self, record: usize) -> String {
        let field = |field: &RecordField| format!("{}: {}", field.name, self.describe(&field.ty));
        let fields: Vec<String> = self.0[record].fields.iter().map(field).collect();
        format!("{{{}}}", fields.join(", "))
    }

    /// Returns the bytes of a type as text: what it is, and the names of its numbers. A layout has both.
    pub(crate) fn text_size(&self, ty: &Type) -> usize {
        let mut size = self.description_size(ty);
        self.visit(ty, &mut String::new(), &mut |_, name| size += name.len());
        size
    }

    /// Returns the length of [`Records::describe`], which is not made for it.
    fn description_size(&self, ty: &Type) -> usize {
        match ty {
            Type::Array(element, count) => self.description_size(element) + format!("[; {count}]").len(),
            Type::Record(index) => {
                let Record { name, fields } = &self.0[*index];
                let field = |field: &RecordField| field.name.len() + self.description_size(&field.ty) + ": , ".len();
                name.len() + " {}".len() + fields.iter().map(field).sum::<usize>() - ", ".len()
            }
            _ => self.name(ty).len(),
        }
    }

    /// Returns how deep structs are in each other in a type: 1 for a struct without others.
    pub(crate) fn nesting(&self, ty: &Type) -> usize {
        match ty {
            Type::Array(element, _) => self.nesting(element),
            Type::Record(index) => {
                1 + self.0[*index].fields.iter().map(|field| self.nesting(&field.ty)).max().unwrap_or(0)
            }
            _ => 0,
        }
    }

    fn numbers(&self, ty: &Type) -> Layout {
        let mut fields = Vec::new();
        self.visit(ty, &mut String::new(), &mut |leaf, name| {
            fields.push(Field { name: name.to_owned(), scalar: leaf.scalar() });
        });
        Layout::new(fields)
    }

    /// Returns true if the type contains a `usize`.
    pub(crate) fn has_usize(&self, ty: &Type) -> bool {
        self.leaves(ty).contains(&Leaf::Number(Number::Usize))
    }

    /// Calls `f` with each leaf and its name: `position.x`, `weights[3]`.
    fn visit(&self, ty: &Type, name: &mut String, f: &mut dyn FnMut(Leaf, &str)) {
        let length = name.len();
        match ty {
            Type::Unit | Type::Never => {}
            Type::Bool => f(Leaf::Bool, name),
            Type::Number(number) => f(Leaf::Number(*number), name),
            Type::Unknown(_) => f(Leaf::Number(Number::I32), name),
            Type::Half(half) => f(Leaf::Half(*half), name),
            Type::Array(element, count) => {
                for index in 0..*count {
                    *name += &format!("[{index}]");
                    self.visit(element, name, f);
                    name.truncate(length);
                }
            }
            Type::Record(index) => {
                for field in &self.0[*index].fields {
                    if !name.is_empty() {
                        name.push('.');
                    }
                    *name += &field.name;
                    self.visit(&field.ty, name, f);
                    name.truncate(length);
                }
            }
        }
    }
}
