//! Elements as text, in the form that users write on a command line and in RESP.

use std::fmt::{self, Write as _};
use std::num::IntErrorKind;

use super::Element;
use super::number::{Number, for_element};

/// The reason why a text is not an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// The text is not a number, or it is a fraction and the type holds integers.
    #[error("not a number of this type")]
    NotANumber,
    /// The number is too large or too small for the type.
    #[error("number is out of the range of this type")]
    OutOfRange,
    /// The text is not a bool.
    #[error("a bool is true, false, 1 or 0")]
    NotABool,
}

impl Element {
    /// Parses `text` as a number and appends its little-endian bytes to `out`.
    ///
    /// Integers are decimal digits after an optional sign. Floats may have a fraction and an exponent, and may be `inf`
    /// or `nan`. Leaves `out` unchanged if it fails.
    pub fn parse(self, text: &str, out: &mut Vec<u8>) -> Result<(), ParseError> {
        for_element!(self, T => out.extend_from_slice(&T::parse(text)?.write()));
        Ok(())
    }

    /// Returns the text of one element, which [`Element::parse`] converts back to the same number. Expects `bytes` to
    /// be one element. Returns an empty text if it is shorter.
    pub fn format(self, bytes: &[u8]) -> String {
        self.text(bytes).as_str().to_owned()
    }

    /// Returns the text that [`Element::format`] returns, without an allocation: a vector may have a million elements.
    pub fn text(self, bytes: &[u8]) -> NumberText {
        let mut text = NumberText { bytes: [0; NumberText::SIZE_MAX], size: 0 };
        for_element!(self, T => if let Some(&bytes) = T::elements(bytes).first() {
            T::read(bytes).format(&mut text);
        });
        text
    }
}

/// The text of one element.
#[derive(Clone, Copy, Debug)]
pub struct NumberText {
    /// The text, and zeros.
    bytes: [u8; NumberText::SIZE_MAX],
    size: usize,
}

impl NumberText {
    /// Bytes of the longest text: `-1.7976931348623157e308`, and shorter ones.
    const SIZE_MAX: usize = 24;

    /// Returns the text.
    pub fn as_str(&self) -> &str {
        str::from_utf8(&self.bytes[..self.size]).expect("only text was written")
    }
}

impl fmt::Write for NumberText {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let end = self.size + text.len();
        self.bytes.get_mut(self.size..end).ok_or(fmt::Error)?.copy_from_slice(text.as_bytes());
        self.size = end;
        Ok(())
    }
}

/// A number with a text form.
trait Text: Sized {
    fn parse(text: &str) -> Result<Self, ParseError>;
    fn format(self, text: &mut NumberText);
}

macro_rules! integer_text {
    ($($type:ty)*) => {$(
        impl Text for $type {
            fn parse(text: &str) -> Result<Self, ParseError> {
                // Most are numbers of this type, which are parsed about three times as fast.
                if let Ok(number) = text.parse() {
                    return Ok(number);
                }
                // Parsed as the widest type, so that -1 is out of the range of a u8, and not an invalid character.
                let number = text.parse::<i128>().map_err(|error| match error.kind() {
                    IntErrorKind::PosOverflow | IntErrorKind::NegOverflow => ParseError::OutOfRange,
                    _ => ParseError::NotANumber,
                })?;
                Self::try_from(number).map_err(|_| ParseError::OutOfRange)
            }

            fn format(self, text: &mut NumberText) {
                write!(text, "{self}").expect("a number is shorter than the text");
            }
        }
    )*};
}

macro_rules! float_text {
    ($($type:ty)*) => {$(
        impl Text for $type {
            fn parse(text: &str) -> Result<Self, ParseError> {
                let number: $type = text.parse().map_err(|_| ParseError::NotANumber)?;
                // Digits that parse as infinity are out of range. Only the word means infinity.
                if number.is_infinite() && text.contains(|c: char| c.is_ascii_digit()) {
                    return Err(ParseError::OutOfRange);
                }
                Ok(number)
            }

            fn format(self, text: &mut NumberText) {
                // The debug form uses exponents where the display form would write hundreds of zeros.
                write!(text, "{self:?}").expect("a number is shorter than the text");
                text.size = text.as_str().strip_suffix(".0").map_or(text.size, str::len);
            }
        }
    )*};
}

integer_text!(u8 u16 u32 u64 i8 i16 i32 i64);
float_text!(f32 f64);

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(element: Element, text: &str) -> Result<Vec<u8>, ParseError> {
        let mut out = vec![9];
        let result = element.parse(text, &mut out);
        assert_eq!(out[0], 9, "parse must append");
        if result.is_err() {
            assert_eq!(out, [9], "a failure must not append bytes");
        }
        result.map(|()| out.split_off(1))
    }

    #[test]
    fn extremes_round_trip() {
        for (element, texts) in [
            (Element::U8, ["0", "255"]),
            (Element::U16, ["0", "65535"]),
            (Element::U32, ["0", "4294967295"]),
            (Element::U64, ["0", "18446744073709551615"]),
            (Element::I8, ["-128", "127"]),
            (Element::I16, ["-32768", "32767"]),
            (Element::I32, ["-2147483648", "2147483647"]),
            (Element::I64, ["-9223372036854775808", "9223372036854775807"]),
            (Element::F32, ["-3.4028235e38", "1e-45"]),
            (Element::F64, ["-1.7976931348623157e308", "5e-324"]),
        ] {
            for text in texts {
                let bytes = parse(element, text).unwrap();
                assert_eq!(bytes.len(), element.width());
                assert_eq!(element.format(&bytes), text, "{element:?}");
            }
            assert_eq!(element.format(&[]), "");
        }
    }

    #[test]
    fn floats_are_written_briefly() {
        for text in ["0", "-0", "1", "-1.5", "0.1", "100000", "1e300", "inf", "-inf", "NaN"] {
            assert_eq!(Element::F64.format(&parse(Element::F64, text).unwrap()), text);
        }
        assert_eq!(Element::F32.format(&parse(Element::F32, "0.1").unwrap()), "0.1");
    }

    #[test]
    fn invalid_texts_are_refused() {
        for element in Element::ALL {
            for text in ["", " ", "a", "1 ", " 1", "1,0", "--1", "0x10", "1_000"] {
                assert_eq!(parse(element, text), Err(ParseError::NotANumber), "{element:?} {text:?}");
            }
        }
        assert_eq!(parse(Element::I64, "1.5"), Err(ParseError::NotANumber));
        for (element, text) in [
            (Element::U8, "256"),
            (Element::U8, "-1"),
            (Element::I8, "128"),
            (Element::U64, "18446744073709551616"),
            (Element::I64, "999999999999999999999999999999999999999999"),
            (Element::F32, "1e39"),
            (Element::F64, "-1e309"),
        ] {
            assert_eq!(parse(element, text), Err(ParseError::OutOfRange), "{element:?} {text:?}");
        }
    }
}
