//! Commands on vectors (KV-Direct, section 3.2), which Redis does not have.
//!
//! ```text
//!   SKEP.SET k i64 1 2 3                            a vector of three
//!   SKEP.GETV k i64                                 1 2 3
//!   SKEP.UPDATE k add i64 5 [INIT 0] [NORETURN]     one operand for every element
//!   SKEP.UPDATE k add i64 1 2 3                     an operand for each element
//!   SKEP.REDUCE k sum i64 0                         6
//!   SKEP.REDUCE k dot i64 0 1 1 1                   Σ, then a constant for each element
//!   SKEP.FILTER k gt i64 1                          2 3
//! ```
//!
//! A name with a dot is that of a user function or of a record of a module: see [`call_command`]. User functions know the
//! type of their elements.
//!
//! An update replies the old value: one number if that has one element, otherwise an array. A missing key is null.
//! Numbers are RESP integers; an unsigned one beyond 63 bits is a big number, a float a double, which version 2
//! writes as bulk strings.

use skep_core::function::{Element, Fold, Predicate, UpdateFunction};
use skep_core::operation::Shape;

use super::element_type::ElementType;
use super::error_messages::wrong_argument_count;
use super::key_command::KeyCommand;
use super::{Arguments, Operands, call_command};
use crate::vocabulary::Functions;

/// Decodes `SKEP.SET key element number…`.
pub(super) fn set(
    arguments: Arguments<'_>,
    operands: &mut Operands,
    functions: &Functions,
) -> Result<KeyCommand, String> {
    let element = element_type(arguments, 2, functions)?;
    let given = 3..arguments.count();
    if !given.len().is_multiple_of(element.number_count()) {
        return Err(format!("ERR syntax error: an element of this record has {} numbers", element.number_count()));
    }
    Ok(KeyCommand::SetVector { value: operands.plan_records(element, given, 3, element.number_count(), "") })
}

/// Decodes `SKEP.GETV key element`.
pub(super) fn get(arguments: Arguments<'_>, functions: &Functions) -> Result<KeyCommand, String> {
    Ok(KeyCommand::GetVector(element_type(arguments, 2, functions)?))
}

/// Decodes `SKEP.UPDATE key function element operand… [INIT number…] [NORETURN]`.
pub(super) fn update(
    arguments: Arguments<'_>,
    operands: &mut Operands,
    functions: &Functions,
) -> Result<KeyCommand, String> {
    if let Some(handle) = call_command::find(arguments, 2, functions)? {
        return Ok(KeyCommand::Call(call_command::update(handle, arguments, operands)?));
    }
    at_least(arguments, 5, "skep.update")?;
    let function = named(
        arguments,
        2,
        "function",
        UpdateFunction::from_name,
        &UpdateFunction::ALL.map(UpdateFunction::short_name),
    )?;
    let element = element(arguments, 3)?;
    let mut end = arguments.count();
    let return_old = !arguments.is(end - 1, "NORETURN");
    if !return_old {
        end -= 1;
    }
    let initial_word = (4..end).find(|&index| arguments.is(index, "INIT"));
    let operand_end = initial_word.unwrap_or(end);
    if operand_end == 4 {
        return Err(format!("ERR syntax error: {} takes {}", function.name(), function.operands()));
    }
    if initial_word == Some(end - 1) {
        return Err("ERR syntax error: INIT takes the elements of a missing key, one at least".to_owned());
    }
    let options = "; after the operands come INIT, with elements, and NORETURN";
    let operand = operands.plan(element, 4..operand_end, options);
    let initial = initial_word.map(|word| operands.plan(element, word + 1..end, options));
    let one_for_all = operand_end - 4 == function.operand_count();
    let shape = if one_for_all { Shape::ScalarToVector } else { Shape::VectorToVector };
    Ok(KeyCommand::Update { function, element, shape, operand, initial, return_old })
}

/// Decodes `SKEP.REDUCE key fold element initial [constant…]`.
pub(super) fn reduce(
    arguments: Arguments<'_>,
    operands: &mut Operands,
    functions: &Functions,
) -> Result<KeyCommand, String> {
    if let Some(handle) = call_command::find(arguments, 2, functions)? {
        return Ok(KeyCommand::Call(call_command::reduce(handle, arguments, operands)?));
    }
    at_least(arguments, 5, "skep.reduce")?;
    let fold = named(arguments, 2, "fold", Fold::from_name, &Fold::ALL.map(Fold::name))?;
    let element = element(arguments, 3)?;
    let initial = operands.plan(fold.sigma(element), 4..5, "");
    let constants = operands.plan(element, 5..arguments.count(), "");
    Ok(KeyCommand::Reduce { fold, element, initial, constants })
}

/// Decodes `SKEP.FILTER key predicate element [operand]`.
pub(super) fn filter(
    arguments: Arguments<'_>,
    operands: &mut Operands,
    functions: &Functions,
) -> Result<KeyCommand, String> {
    if let Some(handle) = call_command::find(arguments, 2, functions)? {
        return Ok(KeyCommand::Call(call_command::filter(handle, arguments, operands)?));
    }
    at_least(arguments, 4, "skep.filter")?;
    let predicate = named(arguments, 2, "predicate", Predicate::from_name, &Predicate::ALL.map(Predicate::short_name))?;
    let element = element(arguments, 3)?;
    let operand = operands.plan(element, 4..arguments.count(), "");
    Ok(KeyCommand::Filter { predicate, element, operand })
}

/// Checks the number of arguments of a command with a built-in function.
fn at_least(arguments: Arguments<'_>, count: usize, name: &str) -> Result<(), String> {
    if arguments.count() < count { Err(wrong_argument_count(name)) } else { Ok(()) }
}

/// Returns the type that an argument names: a built-in one, or a record of a module.
fn element_type(arguments: Arguments<'_>, index: usize, functions: &Functions) -> Result<ElementType, String> {
    let name = arguments.text(index);
    if !name.contains('.') {
        return element(arguments, index).map(ElementType::Number);
    }
    if let Some(record) = functions.record(&name) {
        return Ok(ElementType::Record(record));
    }
    let name = super::excerpt(arguments.get(index), 128);
    Err(call_command::not_loaded("record", &name, functions))
}

fn element(arguments: Arguments<'_>, index: usize) -> Result<Element, String> {
    named(arguments, index, "element type", Element::from_name, &Element::ALL.map(Element::name))
}

/// Finds the item that an argument names; `all` are the names that there are.
fn named<T>(
    arguments: Arguments<'_>,
    index: usize,
    what: &str,
    find: fn(&str) -> Option<T>,
    all: &[&str],
) -> Result<T, String> {
    let name = arguments.text(index).to_ascii_lowercase();
    find(&name).ok_or_else(|| {
        format!("ERR unknown {what} '{}': write {}", super::excerpt(arguments.get(index), 128), all.join(", "))
    })
}
