//! Checks literals. That they fit the types that are inferred for them is checked at the end.

use proc_macro2::Span;

use super::body::Body;
use super::deferred::Deferred;
use crate::source_error::SourceError;
use crate::tree::{Expr, Kind};
use crate::types::{Number, Type};

/// The message for an integer that no type holds.
const TOO_LARGE: &str = "the literal does not fit 64 bits: write a smaller number";

impl Body<'_> {
    /// Checks a literal. `ty` is the type that a conversion with `as` gives a literal without suffix.
    pub(super) fn literal(
        &mut self,
        literal: &syn::Lit,
        is_negated: bool,
        ty: Option<Number>,
    ) -> Result<Expr, SourceError> {
        let at = literal.span();
        match literal {
            syn::Lit::Bool(value) => Ok(Expr { ty: Type::Bool, at, kind: Kind::Bool(value.value) }),
            syn::Lit::Int(int) if is_float_suffix(int.suffix()) => {
                self.float(at, int.base10_digits(), int.suffix(), is_negated, ty)
            }
            syn::Lit::Int(int) => {
                let ty = match int.suffix() {
                    "" => match ty.filter(|number| !number.is_float()) {
                        Some(number) => Type::Number(number),
                        None => self.unknowns.integer(),
                    },
                    suffix => Type::Number(suffix_number(at, suffix)?),
                };
                // In a pattern, syn gives a literal its sign.
                let (is_negated, digits) = match int.base10_digits().strip_prefix('-') {
                    Some(digits) => (true, digits),
                    None => (is_negated, int.base10_digits()),
                };
                let digits: u64 = digits.parse().map_err(|_| SourceError::at(at, TOO_LARGE))?;
                let value = if is_negated { -i128::from(digits) } else { i128::from(digits) };
                if is_negated {
                    self.deferred.push(Deferred::Negated(at, ty.clone()));
                }
                self.check_literal(at, value, &ty);
                Ok(Expr { ty, at, kind: Kind::Int(value) })
            }
            syn::Lit::Float(float) => self.float(at, float.base10_digits(), float.suffix(), is_negated, ty),
            syn::Lit::Str(_) | syn::Lit::ByteStr(_) | syn::Lit::CStr(_) => {
                Err(SourceError::at(at, "there are no strings: write an array of u8, such as [115, 107]"))
            }
            syn::Lit::Char(character) => {
                let number = u32::from(character.value());
                Err(SourceError::at(at, format!("there are no characters: write the number, {number}")))
            }
            syn::Lit::Byte(byte) => {
                Err(SourceError::at(at, format!("there are no characters: write the number, {}", byte.value())))
            }
            _ => Err(SourceError::at(at, "this literal is not a number")),
        }
    }

    fn float(
        &mut self,
        at: Span,
        digits: &str,
        suffix: &str,
        is_negated: bool,
        ty: Option<Number>,
    ) -> Result<Expr, SourceError> {
        let ty = match suffix {
            "" => match ty.filter(|number| number.is_float()) {
                Some(number) => Type::Number(number),
                None => self.unknowns.float(),
            },
            suffix => Type::Number(suffix_number(at, suffix)?),
        };
        let sign = if is_negated { "-" } else { "" };
        let digits = format!("{sign}{digits}");
        self.deferred.push(Deferred::Float(at, digits.clone(), ty.clone()));
        Ok(Expr { ty, at, kind: Kind::Float(digits) })
    }

    /// Checks that an integer fits its type, when the type is known.
    pub(super) fn check_literal(&mut self, at: Span, value: i128, ty: &Type) {
        self.deferred.push(Deferred::Literal(at, value, ty.clone()));
    }
}

fn is_float_suffix(suffix: &str) -> bool {
    Number::from_name(suffix).is_some_and(Number::is_float)
}

fn suffix_number(at: Span, suffix: &str) -> Result<Number, SourceError> {
    Number::from_name(suffix).ok_or_else(|| {
        SourceError::at(at, format!("there is no type `{suffix}`: end the literal with u8 … u64, i8 … i64, f32 or f64"))
    })
}
