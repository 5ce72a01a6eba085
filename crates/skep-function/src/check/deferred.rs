//! Checks that need the types of literals, and so are done at the end of a function.

use proc_macro2::Span;

use crate::source_error::SourceError;
use crate::tree::Range;
use crate::types::{Number, Type};

/// A check that is done when the types of literals are known.
pub(super) enum Deferred {
    /// The integer fits its type.
    Literal(Span, i128, Type),
    /// The digits of a float are within the range of its type.
    Float(Span, String, Type),
    /// The type is signed.
    Negated(Span, Type),
    /// The arms accept every value of the type.
    Exhaustive(Span, Vec<Range>, Type),
}

impl Deferred {
    /// Does the check. `number` returns the number type of a type that is one.
    pub(super) fn check(&self, number: impl Fn(&Type) -> Option<Number>) -> Result<(), SourceError> {
        match self {
            Deferred::Literal(at, value, ty) => check_range(*at, *value, number(ty)),
            Deferred::Float(at, digits, ty) => check_float(*at, digits, number(ty)),
            Deferred::Negated(at, ty) => check_signed(*at, number(ty)),
            Deferred::Exhaustive(at, ranges, ty) => check_exhaustive(*at, ranges, number(ty)),
        }
    }
}

/// Refuses an integer that its type does not hold.
fn check_range(at: Span, value: i128, number: Option<Number>) -> Result<(), SourceError> {
    let Some(number) = number.filter(|number| !number.is_float()) else { return Ok(()) };
    if (number.min()..=number.max()).contains(&value) {
        return Ok(());
    }
    let message = format!(
        "{value} does not fit {}, which has {} to {}: write a smaller number, or another type",
        number.name(),
        number.min(),
        number.max()
    );
    Err(SourceError::at(at, message))
}

/// Refuses a float that would be infinite.
fn check_float(at: Span, digits: &str, number: Option<Number>) -> Result<(), SourceError> {
    let is_finite = match number {
        Some(Number::F32) => digits.parse().is_ok_and(f32::is_finite),
        _ => digits.parse().is_ok_and(f64::is_finite),
    };
    if is_finite {
        return Ok(());
    }
    let name = number.map_or("f64", Number::name);
    Err(SourceError::at(
        at,
        format!("the literal is too large for {name}: write `{name}::INFINITY`, or a smaller number"),
    ))
}

/// Refuses to negate an unsigned number.
fn check_signed(at: Span, number: Option<Number>) -> Result<(), SourceError> {
    match number {
        Some(number) if !number.is_signed() => {
            let message =
                format!("{} has no negative numbers: write `0 - x`, which wraps, or use a signed type", number.name());
            Err(SourceError::at(at, message))
        }
        _ => Ok(()),
    }
}

/// Refuses a match that does not accept every value.
fn check_exhaustive(at: Span, ranges: &[Range], number: Option<Number>) -> Result<(), SourceError> {
    let (mut next, last) = number.map_or((0, 1), |number| (number.min(), number.max()));
    let mut sorted = ranges.to_vec();
    sorted.sort_by_key(|range| range.first);
    for range in sorted {
        if range.first > next {
            break;
        }
        next = next.max(range.last.saturating_add(1));
    }
    if next > last {
        return Ok(());
    }
    let value = if number.is_none() { (next == 1).to_string() } else { next.to_string() };
    Err(SourceError::at(at, format!("no arm of this `match` accepts {value}: add an arm `_ => …` at the end")))
}
