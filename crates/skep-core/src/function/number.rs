//! The ten element types as Rust numbers, so that every λ is written once.
//!
//! [`Number`] has the operations that the loops of this module need from a type. [`for_element!`] selects the type
//! once, outside the loop, so the compiler sees one plain loop for each function and type. Values may have any address,
//! so elements are byte arrays that are converted to numbers one by one. The compiler turns these conversions into
//! unaligned vector loads.

use std::ops::{BitAnd, BitOr, BitXor};

/// An element type. Integer arithmetic wraps. Float arithmetic returns the canonical NaN in place of any NaN.
pub(super) trait Number: Copy + PartialOrd {
    /// The little-endian bytes of one element.
    type Bytes: Copy + AsRef<[u8]>;
    /// The unsigned integer with the same bits.
    type Bits: Copy + Eq + BitAnd<Output = Self::Bits> + BitOr<Output = Self::Bits> + BitXor<Output = Self::Bits>;

    /// The type of eight bytes that has all these numbers.
    type Wide: Number;

    const WIDTH: usize;
    const ZERO: Self;

    /// Returns the complete elements of a byte slice.
    fn elements(bytes: &[u8]) -> &[Self::Bytes];
    /// Returns the complete elements of a byte slice, to be changed in place.
    fn elements_mut(bytes: &mut [u8]) -> &mut [Self::Bytes];

    fn read(bytes: Self::Bytes) -> Self;
    fn write(self) -> Self::Bytes;

    fn to_bits(self) -> Self::Bits;
    fn from_bits(bits: Self::Bits) -> Self;

    fn add(self, other: Self) -> Self;
    fn subtract(self, other: Self) -> Self;
    fn multiply(self, other: Self) -> Self;
    /// Returns `Σ + v` or `Σ + v · c` of a fold. Does not make a NaN canonical: [`Number::canonical`] does that once,
    /// at the end.
    fn add_raw(self, other: Self) -> Self;
    /// Returns the number as one of eight bytes.
    fn widen(self) -> Self::Wide;
    /// Returns the number itself, or the canonical NaN for a NaN.
    fn canonical(self) -> Self;
    /// Implements [`super::UpdateFunction::WrapAround`].
    fn wrap_around(self, delta: Self, refill: Self) -> Self;
}

/// Implements the methods that are the same for all types.
macro_rules! bytes_of_number {
    ($bits:ty, $wide:ty) => {
        type Wide = $wide;
        type Bytes = [u8; size_of::<Self>()];
        type Bits = $bits;
        const WIDTH: usize = size_of::<Self>();

        fn elements(bytes: &[u8]) -> &[Self::Bytes] {
            bytes.as_chunks().0
        }

        fn elements_mut(bytes: &mut [u8]) -> &mut [Self::Bytes] {
            bytes.as_chunks_mut().0
        }

        fn read(bytes: Self::Bytes) -> Self {
            Self::from_le_bytes(bytes)
        }

        fn write(self) -> Self::Bytes {
            self.to_le_bytes()
        }

        fn widen(self) -> $wide {
            <$wide>::from(self)
        }
    };
}

macro_rules! integer_number {
    ($type:ty, $unsigned:ty, $wide:ty, $stays:expr) => {
        impl Number for $type {
            bytes_of_number!($unsigned, $wide);
            const ZERO: Self = 0;

            fn to_bits(self) -> $unsigned {
                self as $unsigned
            }

            fn from_bits(bits: $unsigned) -> Self {
                bits as $type
            }

            fn add(self, other: Self) -> Self {
                self.wrapping_add(other)
            }

            fn subtract(self, other: Self) -> Self {
                self.wrapping_sub(other)
            }

            fn multiply(self, other: Self) -> Self {
                self.wrapping_mul(other)
            }

            fn add_raw(self, other: Self) -> Self {
                self.wrapping_add(other)
            }

            fn canonical(self) -> Self {
                self
            }

            fn wrap_around(self, delta: Self, refill: Self) -> Self {
                let rest = self.wrapping_sub(delta);
                let stays: fn($type, $type, $type) -> bool = $stays;
                if stays(self, delta, rest) { rest } else { rest.wrapping_add(refill) }
            }
        }
    };
}

macro_rules! float_number {
    ($type:ty, $unsigned:ty, $nan:literal) => {
        impl Number for $type {
            bytes_of_number!($unsigned, f64);
            const ZERO: Self = 0.0;

            fn to_bits(self) -> $unsigned {
                self.to_bits()
            }

            fn from_bits(bits: $unsigned) -> Self {
                <$type>::from_bits(bits)
            }

            fn add(self, other: Self) -> Self {
                (self + other).canonical()
            }

            fn subtract(self, other: Self) -> Self {
                (self - other).canonical()
            }

            fn multiply(self, other: Self) -> Self {
                (self * other).canonical()
            }

            fn add_raw(self, other: Self) -> Self {
                self + other
            }

            fn canonical(self) -> Self {
                if self.is_nan() { <$type>::from_bits($nan) } else { self }
            }

            fn wrap_around(self, delta: Self, refill: Self) -> Self {
                let rest = self - delta;
                (if rest >= 10.0 { rest } else { rest + refill }).canonical()
            }
        }
    };
}

// If an unsigned difference wraps, the result is a large number, but the stock is below zero.
integer_number!(u8, u8, u64, |v, delta, rest| v >= delta && rest >= 10);
integer_number!(u16, u16, u64, |v, delta, rest| v >= delta && rest >= 10);
integer_number!(u32, u32, u64, |v, delta, rest| v >= delta && rest >= 10);
integer_number!(u64, u64, u64, |v, delta, rest| v >= delta && rest >= 10);
integer_number!(i8, u8, i64, |_, _, rest| rest >= 10);
integer_number!(i16, u16, i64, |_, _, rest| rest >= 10);
integer_number!(i32, u32, i64, |_, _, rest| rest >= 10);
integer_number!(i64, u64, i64, |_, _, rest| rest >= 10);
float_number!(f32, u32, 0x7fc0_0000);
float_number!(f64, u64, 0x7ff8_0000_0000_0000);

/// Evaluates an expression with a type name bound to the number type of an [`Element`](super::Element).
macro_rules! for_element {
    ($element:expr, $number:ident => $body:expr) => {{
        macro_rules! with {
            ($type:ty) => {{
                type $number = $type;
                $body
            }};
        }
        match $element {
            $crate::function::Element::U8 => with!(u8),
            $crate::function::Element::U16 => with!(u16),
            $crate::function::Element::U32 => with!(u32),
            $crate::function::Element::U64 => with!(u64),
            $crate::function::Element::I8 => with!(i8),
            $crate::function::Element::I16 => with!(i16),
            $crate::function::Element::I32 => with!(i32),
            $crate::function::Element::I64 => with!(i64),
            $crate::function::Element::F32 => with!(f32),
            $crate::function::Element::F64 => with!(f64),
        }
    }};
}
pub(super) use for_element;
