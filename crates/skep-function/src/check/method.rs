//! Checks the methods of numbers, each by its name.

use proc_macro2::Span;
use syn::spanned::Spanned;

use super::body::{Body, start};
use crate::source_error::SourceError;
use crate::tree::{Binary, Expr, Kind, Method};
use crate::types::{Number, Type};

/// A method of numbers.
struct Entry {
    name: &'static str,
    /// The numbers that have it.
    of: Of,
    /// The types of the arguments after the first.
    takes: &'static [Takes],
    gives: Gives,
    means: Means,
}

/// The numbers that have a method.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Of {
    Numbers,
    Integers,
    SignedIntegers,
    Signed,
    Floats,
}

/// The type of an argument.
#[derive(Clone, Copy)]
enum Takes {
    Same,
    U32,
}

/// The type of a result.
#[derive(Clone, Copy)]
enum Gives {
    Same,
    /// The unsigned integer of the same width.
    Unsigned,
    U32,
    Bool,
}

/// How a method is computed.
#[derive(Clone, Copy)]
enum Means {
    Method(Method),
    Binary(Binary),
    Negate,
}

const fn entry(name: &'static str, of: Of, takes: &'static [Takes], gives: Gives, means: Means) -> Entry {
    Entry { name, of, takes, gives, means }
}

const ONE: &[Takes] = &[Takes::Same];
const TWO: &[Takes] = &[Takes::Same, Takes::Same];
const COUNT: &[Takes] = &[Takes::U32];

const METHODS: &[Entry] = &[
    entry("min", Of::Numbers, ONE, Gives::Same, Means::Method(Method::Min)),
    entry("max", Of::Numbers, ONE, Gives::Same, Means::Method(Method::Max)),
    entry("clamp", Of::Numbers, TWO, Gives::Same, Means::Method(Method::Clamp)),
    entry("abs", Of::Signed, &[], Gives::Same, Means::Method(Method::Abs)),
    entry("wrapping_abs", Of::SignedIntegers, &[], Gives::Same, Means::Method(Method::Abs)),
    entry("abs_diff", Of::Integers, ONE, Gives::Unsigned, Means::Method(Method::AbsDiff)),
    entry("signum", Of::SignedIntegers, &[], Gives::Same, Means::Method(Method::Signum)),
    entry("wrapping_add", Of::Integers, ONE, Gives::Same, Means::Binary(Binary::Add)),
    entry("wrapping_sub", Of::Integers, ONE, Gives::Same, Means::Binary(Binary::Subtract)),
    entry("wrapping_mul", Of::Integers, ONE, Gives::Same, Means::Binary(Binary::Multiply)),
    entry("wrapping_div", Of::Integers, ONE, Gives::Same, Means::Binary(Binary::Divide)),
    entry("wrapping_rem", Of::Integers, ONE, Gives::Same, Means::Binary(Binary::Remainder)),
    entry("wrapping_shl", Of::Integers, COUNT, Gives::Same, Means::Binary(Binary::ShiftLeft)),
    entry("wrapping_shr", Of::Integers, COUNT, Gives::Same, Means::Binary(Binary::ShiftRight)),
    entry("wrapping_neg", Of::Integers, &[], Gives::Same, Means::Negate),
    entry("saturating_add", Of::Integers, ONE, Gives::Same, Means::Method(Method::SaturatingAdd)),
    entry("saturating_sub", Of::Integers, ONE, Gives::Same, Means::Method(Method::SaturatingSubtract)),
    entry("saturating_mul", Of::Integers, ONE, Gives::Same, Means::Method(Method::SaturatingMultiply)),
    entry("div_euclid", Of::Integers, ONE, Gives::Same, Means::Method(Method::DivideEuclid)),
    entry("rem_euclid", Of::Integers, ONE, Gives::Same, Means::Method(Method::RemainderEuclid)),
    entry("rotate_left", Of::Integers, COUNT, Gives::Same, Means::Method(Method::RotateLeft)),
    entry("rotate_right", Of::Integers, COUNT, Gives::Same, Means::Method(Method::RotateRight)),
    entry("count_ones", Of::Integers, &[], Gives::U32, Means::Method(Method::CountOnes)),
    entry("count_zeros", Of::Integers, &[], Gives::U32, Means::Method(Method::CountZeros)),
    entry("leading_zeros", Of::Integers, &[], Gives::U32, Means::Method(Method::LeadingZeros)),
    entry("trailing_zeros", Of::Integers, &[], Gives::U32, Means::Method(Method::TrailingZeros)),
    entry("sqrt", Of::Floats, &[], Gives::Same, Means::Method(Method::Sqrt)),
    entry("floor", Of::Floats, &[], Gives::Same, Means::Method(Method::Floor)),
    entry("ceil", Of::Floats, &[], Gives::Same, Means::Method(Method::Ceil)),
    entry("trunc", Of::Floats, &[], Gives::Same, Means::Method(Method::Trunc)),
    entry("round", Of::Floats, &[], Gives::Same, Means::Method(Method::Round)),
    entry("round_ties_even", Of::Floats, &[], Gives::Same, Means::Method(Method::RoundTiesEven)),
    entry("mul_add", Of::Floats, TWO, Gives::Same, Means::Method(Method::MultiplyAdd)),
    entry("is_nan", Of::Floats, &[], Gives::Bool, Means::Method(Method::IsNan)),
    entry("is_finite", Of::Floats, &[], Gives::Bool, Means::Method(Method::IsFinite)),
    entry("is_infinite", Of::Floats, &[], Gives::Bool, Means::Method(Method::IsInfinite)),
    entry("to_bits", Of::Floats, &[], Gives::Unsigned, Means::Method(Method::ToBits)),
    entry("exp", Of::Floats, &[], Gives::Same, Means::Method(Method::Exp)),
    entry("ln", Of::Floats, &[], Gives::Same, Means::Method(Method::Ln)),
    entry("powf", Of::Floats, ONE, Gives::Same, Means::Method(Method::Power)),
    entry("sin", Of::Floats, &[], Gives::Same, Means::Method(Method::Sin)),
    entry("cos", Of::Floats, &[], Gives::Same, Means::Method(Method::Cos)),
    entry("tanh", Of::Floats, &[], Gives::Same, Means::Method(Method::Tanh)),
];

impl Of {
    fn has(self, number: Number) -> bool {
        match self {
            Of::Numbers => true,
            Of::Integers => !number.is_float(),
            Of::SignedIntegers => !number.is_float() && number.is_signed(),
            Of::Signed => number.is_signed(),
            Of::Floats => number.is_float(),
        }
    }
}

impl Body<'_> {
    /// Checks `x.method(…)`.
    pub(super) fn method_call(&mut self, call: &syn::ExprMethodCall) -> Result<Expr, SourceError> {
        let at = call.method.span();
        if let Some(generics) = &call.turbofish {
            return Err(SourceError::at(
                generics.span(),
                "the methods of numbers have no type parameters: remove them",
            ));
        }
        let receiver = self.expr(&call.receiver, None)?;
        let arguments: Vec<&syn::Expr> = call.args.iter().collect();
        match self.unknowns.resolve(&receiver.ty) {
            Type::Number(number) => self.method(at, number, &call.method, receiver, &arguments),
            Type::Unknown(_) => {
                let message = "the type of this literal is not known: end it with its type, such as 1.0_f32 or 1_u64";
                Err(SourceError::at(start(&call.receiver), message))
            }
            Type::Array(_, count) if call.method == "len" && arguments.is_empty() => {
                Ok(Expr { ty: Type::Number(Number::Usize), at, kind: Kind::Int(count as i128) })
            }
            other => {
                let name = self.unknowns.name(&self.items.records, &other);
                let instead = super::refuse::method(&call.method.to_string());
                Err(SourceError::at(at, format!("{name} has no method `{}`: {instead}", call.method)))
            }
        }
    }

    /// Checks `f32::method(x, …)`, `f32::from_bits(x)` and `u64::from(x)`.
    pub(super) fn associated_call(
        &mut self,
        at: Span,
        number: Number,
        method: &syn::Ident,
        arguments: &[&syn::Expr],
    ) -> Result<Expr, SourceError> {
        let ty = Type::Number(number);
        match (method.to_string().as_str(), arguments) {
            ("from_bits", [bits]) if number.is_float() => {
                let bits = self.expr_of(bits, &Type::Number(number.unsigned()))?;
                Ok(Expr { ty, at, kind: Kind::Method(Method::FromBits, vec![bits]) })
            }
            ("from", [value]) => {
                let value = self.expr(value, None)?;
                let from = self.unknowns.resolve(&value.ty);
                if !is_lossless(&from, number) {
                    let name = self.unknowns.name(&self.items.records, &from);
                    let message = format!("{} does not hold every {name}: write `as {}`", number.name(), number.name());
                    return Err(SourceError::at(at, message));
                }
                Ok(Expr { ty, at, kind: Kind::Cast(Box::new(value)) })
            }
            (_, [receiver, rest @ ..]) => {
                let receiver = self.expr_of(receiver, &ty)?;
                self.method(at, number, method, receiver, rest)
            }
            _ => Err(SourceError::at(at, unknown_method(number, &method.to_string()))),
        }
    }

    fn method(
        &mut self,
        at: Span,
        number: Number,
        method: &syn::Ident,
        receiver: Expr,
        arguments: &[&syn::Expr],
    ) -> Result<Expr, SourceError> {
        let name = method.to_string();
        let Some(entry) = METHODS.iter().find(|entry| entry.name == name && entry.of.has(number)) else {
            return Err(SourceError::at(method.span(), unknown_method(number, &name)));
        };
        if entry.takes.len() != arguments.len() {
            let message = super::refuse::argument_count(&name, entry.takes.len(), arguments.len());
            return Err(SourceError::at(at, message));
        }
        let mut operands = vec![receiver];
        for (argument, takes) in arguments.iter().zip(entry.takes) {
            let ty = match takes {
                Takes::Same => number,
                Takes::U32 => Number::U32,
            };
            operands.push(self.expr_of(argument, &Type::Number(ty))?);
        }
        let ty = match entry.gives {
            Gives::Same => Type::Number(number),
            Gives::Unsigned => Type::Number(number.unsigned()),
            Gives::U32 => Type::Number(Number::U32),
            Gives::Bool => Type::Bool,
        };
        // `abs_diff` of a usize is a usize.
        let ty =
            if number == Number::Usize && matches!(entry.gives, Gives::Unsigned) { Type::Number(number) } else { ty };
        let kind = match entry.means {
            Means::Method(method) => Kind::Method(method, operands),
            Means::Binary(op) => {
                let second = operands.pop().expect("an operator has two operands");
                let first = operands.pop().expect("an operator has two operands");
                Kind::Binary(op, Box::new(first), Box::new(second))
            }
            Means::Negate => Kind::Negate(Box::new(operands.remove(0))),
        };
        Ok(Expr { ty, at, kind })
    }
}

/// Returns true if `number` holds every value of the type.
fn is_lossless(from: &Type, number: Number) -> bool {
    match *from {
        Type::Bool => !number.is_float() && number != Number::Usize,
        Type::Number(Number::Usize) => number == Number::Usize,
        Type::Number(from) if number == Number::Usize => matches!(from, Number::U8 | Number::U16),
        Type::Number(from) if number.is_float() && from.is_float() => from.width() <= number.width(),
        Type::Number(from) if number.is_float() => from.width() < number.width(),
        Type::Number(from) => !from.is_float() && number.min() <= from.min() && from.max() <= number.max(),
        _ => false,
    }
}

/// Returns how a method of numbers of this name is called, if there is one.
pub(super) fn method_call(name: &str) -> Option<String> {
    let entry = METHODS.iter().find(|entry| entry.name == name)?;
    Some(format!("x.{name}({})", if entry.takes.is_empty() { "" } else { "…" }))
}

fn unknown_method(number: Number, name: &str) -> String {
    let type_name = number.name();
    let others = METHODS.iter().find(|entry| entry.name == name).map(|entry| entry.of);
    let instead = match name {
        "abs" => "it is never negative".to_owned(),
        "signum" if number.is_float() => "write `if … else`".to_owned(),
        "abs_diff" => "write `(x - y).abs()`".to_owned(),
        _ if others == Some(Of::Floats) => "floats have it: write `(x as f64)` before it".to_owned(),
        _ if others == Some(Of::SignedIntegers) => "signed integers have it: write `(x as i64)` before it".to_owned(),
        _ if others.is_some() => "integers have it: write `(x as i64)` before it".to_owned(),
        "exp2" | "exp_m1" => "write `exp`".to_owned(),
        "log" | "log2" | "log10" | "ln_1p" => "write `ln`, and divide by a constant".to_owned(),
        "tan" => "write `x.sin() / x.cos()`".to_owned(),
        "fract" => "write `x - x.trunc()`".to_owned(),
        "recip" => "write `1.0 / x`".to_owned(),
        "hypot" => "write `(x * x + y * y).sqrt()`".to_owned(),
        "cbrt" => "write `powf`".to_owned(),
        "isqrt" => "write `(x as f64).sqrt()`, and convert with `as`".to_owned(),
        "ilog2" => format!("write `{type_name}::BITS - 1 - x.leading_zeros()`"),
        "is_power_of_two" => "write `x.count_ones() == 1`".to_owned(),
        "unsigned_abs" => "write `abs`, and convert with `as`".to_owned(),
        "is_positive" | "is_negative" | "is_sign_negative" | "is_sign_positive" => "compare with 0".to_owned(),
        "cmp" | "partial_cmp" | "total_cmp" | "eq" | "ne" | "lt" | "le" | "gt" | "ge" => {
            "compare with `<`, `==` and `>`".to_owned()
        }
        "add" | "sub" | "mul" | "div" | "rem" | "neg" | "not" => "write the operator".to_owned(),
        "swap_bytes" | "to_le_bytes" | "to_be_bytes" | "to_ne_bytes" | "to_be" | "to_le" => {
            "take bytes with `>>` and `as u8`".to_owned()
        }
        "to_f32" | "into" | "try_into" | "try_from" => "convert with `as`".to_owned(),
        "clone" | "to_owned" | "copied" => "values are copied: remove it".to_owned(),
        "to_string" => "there are no strings: return the number".to_owned(),
        "from_bits" => format!("write `{type_name}::from_bits(x)`"),
        "unwrap" | "expect" | "unwrap_or" | "unwrap_or_default" => "methods here return numbers: remove it".to_owned(),
        "pow" | "powi" | "wrapping_pow" if !number.is_float() => "multiply: `x * x`".to_owned(),
        "saturating_pow" => "multiply: `x.saturating_mul(x)`".to_owned(),
        "pow" | "powi" => "multiply, or write `powf`".to_owned(),
        name if name.starts_with("checked_") || name.starts_with("overflowing_") => {
            let operation = name.split_once('_').map_or("", |(_, operation)| operation);
            let others = ["saturating", "wrapping"].map(|kind| format!("{kind}_{operation}"));
            let others: Vec<String> = others.into_iter().filter(|name| method_call(name).is_some()).collect();
            if others.is_empty() {
                "write an operator".to_owned()
            } else {
                format!("write `{}`", others.join("` or `"))
            }
        }
        _ => {
            let names: Vec<&str> =
                METHODS.iter().filter(|entry| entry.of.has(number)).map(|entry| entry.name).collect();
            format!("it has {}", names.join(", "))
        }
    };
    format!("{type_name} has no method `{name}`: {instead}")
}
