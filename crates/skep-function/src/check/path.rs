//! Checks names: locals, constants, functions, and what belongs to a type, such as `u32::MAX`.

use proc_macro2::Span;

use super::body::Body;
use super::method::method_call;
use super::refuse;
use crate::limits::NAME_SIZE_MAX;
use crate::source_error::SourceError;
use crate::tree::{Expr, Kind};
use crate::types::{Number, Type};

impl Body<'_> {
    /// Checks a name that is a value.
    pub(super) fn path(&mut self, at: Span, path: &syn::ExprPath) -> Result<Expr, SourceError> {
        if let Some(ident) = path.path.get_ident() {
            let name = ident.to_string();
            if let Some(local) = self.find_local(&name) {
                if self.is_by_reference && local == 0 {
                    return Err(SourceError::at(at, format!("`{name}` is a reference: write `*{name}` for its value")));
                }
                return Ok(Expr { ty: self.local_type(local).of_value(), at, kind: Kind::Local(local) });
            }
            if let Some(&constant) = self.items.constant_numbers.get(&name) {
                return self.constant_value(at, constant);
            }
            return Err(SourceError::at(at, self.unknown_name(&name, at)));
        }
        let segments: Vec<String> = path.path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
        let found = match segments.as_slice() {
            [ty, name] => Number::from_name(ty).and_then(|number| associated(number, name, at)),
            ["std" | "core", ty, "consts", name] => {
                Number::from_name(ty).and_then(|number| float_constant(number, name, at))
            }
            _ => None,
        };
        found.ok_or_else(|| {
            let message = match segments.as_slice() {
                ["std" | "core", ty, name] if Number::from_name(ty).is_some() => {
                    format!("there is no such constant: write `{ty}::{name}`")
                }
                [ty, "consts", name] => format!("there is no such constant: write `std::{ty}::consts::{name}`"),
                ["std" | "core", _, "consts", _] => {
                    "there is no such constant: `consts` has PI, TAU, E, LN_2, LN_10 and SQRT_2".to_owned()
                }
                _ => "there is no such constant: numbers have MIN, MAX and BITS, floats INFINITY, NEG_INFINITY, NAN, EPSILON and MIN_POSITIVE".to_owned(),
            };
            SourceError::at(at, message)
        })
    }

    /// Returns the message for a name that is no value.
    fn unknown_name(&self, name: &str, at: Span) -> String {
        if self.items.function_numbers.contains_key(name) {
            return format!("`{name}` is a function: call it, `{name}(…)`");
        }
        let instead = match name {
            "None" => "return a bool beside the value, in a struct".to_owned(),
            "self" => "name the parameter of the function".to_owned(),
            name if float_constant(Number::F64, name, at).is_some() => {
                format!("write `std::f32::consts::{name}` or `std::f64::consts::{name}`")
            }
            _ => "define it before with `let`".to_owned(),
        };
        format!("there is no local, parameter or constant `{name}`: {instead}")
    }

    /// Checks a call of a function by its name, or of a method by its path.
    pub(super) fn call(&mut self, at: Span, call: &syn::ExprCall) -> Result<Expr, SourceError> {
        let syn::Expr::Path(path) = &*call.func else {
            return Err(SourceError::at(at, "call a function of this module by its name"));
        };
        let segments: Vec<String> = path.path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
        let arguments: Vec<&syn::Expr> = call.args.iter().collect();
        if let Some(ident) = path.path.get_ident() {
            let name = ident.to_string();
            return match self.items.function_numbers.get(&name) {
                Some(&function) if self.find_local(&name).is_none() => self.call_function(at, function, &arguments),
                _ => Err(SourceError::at(at, self.unknown_function(&segments))),
            };
        }
        let method = path.path.segments.last().expect("a path has a name");
        match *segments {
            [ty, _] if let Some(number) = Number::from_name(ty) => {
                self.associated_call(at, number, &method.ident, &arguments)
            }
            _ => Err(SourceError::at(at, self.unknown_function(&segments))),
        }
    }

    /// Returns the message for a call of a function that there is not.
    fn unknown_function(&self, path: &[&str]) -> String {
        let name: String = path.join("::").chars().take(NAME_SIZE_MAX).collect();
        let instead = match *path {
            [name] | [name, "new" | "default"] if self.items.record_numbers.contains_key(name) => {
                format!("write `{name} {{ field: value, … }}`")
            }
            [.., last] if path.len() > 1 && self.items.function_numbers.contains_key(last) => {
                format!("write `{last}(…)`")
            }
            [.., last] if let Some(call) = method_call(last) => format!("write `{call}`, a method of numbers"),
            _ => refuse::function(path),
        };
        format!("there is no function `{name}` in this module: {instead}")
    }
}

/// Returns a constant of a type of numbers.
fn associated(number: Number, name: &str, at: Span) -> Option<Expr> {
    let ty = Type::Number(number);
    if !number.is_float() {
        let (value, ty) = match name {
            "MIN" => (number.min(), ty),
            "MAX" => (number.max(), ty),
            "BITS" => (i128::from(number.bits()), Type::Number(Number::U32)),
            _ => return None,
        };
        return Some(Expr { ty, at, kind: Kind::Int(value) });
    }
    let is_single = number == Number::F32;
    let value = match name {
        "INFINITY" => f64::INFINITY,
        "NEG_INFINITY" => f64::NEG_INFINITY,
        "NAN" => f64::NAN,
        "MAX" if is_single => f32::MAX.into(),
        "MAX" => f64::MAX,
        "MIN" if is_single => f32::MIN.into(),
        "MIN" => f64::MIN,
        "EPSILON" if is_single => f32::EPSILON.into(),
        "EPSILON" => f64::EPSILON,
        "MIN_POSITIVE" if is_single => f32::MIN_POSITIVE.into(),
        "MIN_POSITIVE" => f64::MIN_POSITIVE,
        _ => return None,
    };
    Some(Expr { ty, at, kind: Kind::FloatValue(value) })
}

/// Returns a constant of `std::f32::consts` or `std::f64::consts`.
fn float_constant(number: Number, name: &str, at: Span) -> Option<Expr> {
    use std::{f32::consts as single, f64::consts as double};
    let (single, double) = match name {
        "PI" => (single::PI, double::PI),
        "TAU" => (single::TAU, double::TAU),
        "E" => (single::E, double::E),
        "LN_2" => (single::LN_2, double::LN_2),
        "LN_10" => (single::LN_10, double::LN_10),
        "SQRT_2" => (single::SQRT_2, double::SQRT_2),
        _ => return None,
    };
    let value = match number {
        Number::F32 => f64::from(single),
        Number::F64 => double,
        _ => return None,
    };
    Some(Expr { ty: Type::Number(number), at, kind: Kind::FloatValue(value) })
}
