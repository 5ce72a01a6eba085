//! The bounds that all values of a kind have, for every card.

use super::{HardwareError, refuse};

/// Checks sizes, rates and times. Outside these bounds, in any of these units, sums of picoseconds could overflow.
pub(crate) fn sizes_and_times(fields: &[(&'static str, f64)]) -> Result<(), HardwareError> {
    within(fields, |value| (1e-6..=1e9).contains(&value), "between a millionth and a billion")
}

/// Checks times that may be zero.
pub(crate) fn times_or_zero(fields: &[(&'static str, f64)]) -> Result<(), HardwareError> {
    within(fields, |value| (0.0..=1e9).contains(&value), "between 0 and a billion")
}

/// Checks numbers of things of which there is at least one.
pub(crate) fn counts(fields: &[(&'static str, u32)]) -> Result<(), HardwareError> {
    within(fields, |value| (1..=1 << 16).contains(&value), "between 1 and 65536")
}

/// Checks numbers of things of which there may be none.
pub(crate) fn counts_or_zero(fields: &[(&'static str, u32)]) -> Result<(), HardwareError> {
    within(fields, |value| value <= 1 << 16, "between 0 and 65536")
}

fn within<T: Copy + std::fmt::Display>(
    fields: &[(&'static str, T)],
    is_possible: impl Fn(T) -> bool,
    words: &str,
) -> Result<(), HardwareError> {
    match fields.iter().find(|(_, value)| !is_possible(*value)) {
        Some(&(field, value)) => refuse(field, format!("{value} is not {words}")),
        None => Ok(()),
    }
}
