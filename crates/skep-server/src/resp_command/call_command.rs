//! Calls of user functions, by the commands on vectors.
//!
//! ```text
//!   SKEP.UPDATE k limits.take 1700 1 5 10 INIT 10 0      an update that returns a result for each element
//!   SKEP.UPDATE k limits.take 1700 1 5 10 OLD            the old elements instead; NORETURN: nothing
//!   SKEP.REDUCE k stats.sum 0                            Σ, and then the operands
//!   SKEP.FILTER k stats.hot 0.5 WITHPOSITIONS            POSITIONS: without the elements
//! ```
//!
//! The operands are the numbers of all parameters, once for all elements, or once for each element: then those of the
//! first element come first. The store has all records of one operand side by side, so they are converted to that order.
//!
//! If there are both kinds in a call, one after another is given, and brackets enclose an operand for each element:
//!
//! ```text
//!   SKEP.UPDATE k limits.take 1700 [ 1 5 2 ] 0.1 10      the costs of three elements; the others are for all
//! ```

use std::ops::Range;

use skep_core::function::{Element, FunctionHandle, FunctionKind, Parameter, Signature, UserFunction};
use skep_core::operation::{Call, CallReply, Operation, OperationError};
use skep_wire::resp::ReplyWriter;

use super::element_type::ElementType;
use super::elements::{element_of, width_hint, write_elements, write_value};
use super::{Arguments, Operands};
use crate::function_loader::shorten;
use crate::vocabulary::Functions;

/// A call of a function; ranges are positions of binary operands.
#[derive(Debug, PartialEq)]
pub(crate) struct CallCommand {
    function: FunctionHandle,
    vectors: u8,
    reply: CallReply,
    operands: Range<u32>,
    initial: Option<Range<u32>>,
}

/// Returns the function that an argument names, if the name is that of a user function: it has a dot.
pub(super) fn find(
    arguments: Arguments<'_>,
    index: usize,
    functions: &Functions,
) -> Result<Option<FunctionHandle>, String> {
    let Ok(name) = std::str::from_utf8(arguments.get(index)) else { return Ok(None) };
    if !name.contains('.') {
        return Ok(None);
    }
    let name = super::excerpt(name.as_bytes(), 128);
    functions.find(&name).map(Some).ok_or_else(|| not_loaded("function", &name, functions))
}

/// Returns the error of a function or record that is not loaded, perhaps because its module does not compile any more.
pub(super) fn not_loaded(kind: &str, name: &str, functions: &Functions) -> String {
    match functions.refusal(name) {
        Some(error) => format!(
            "ERR the module of '{name}' does not compile any more: {error}: replace it by SKEP.FUNCTION LOAD REPLACE"
        ),
        None => format!("ERR no {kind} '{name}' is loaded: SKEP.FUNCTION LIST shows those that are"),
    }
}

/// Decodes `key function operand… [INIT number…] [OLD|NORETURN]`.
pub(super) fn update(
    handle: FunctionHandle,
    arguments: Arguments<'_>,
    operands: &mut Operands,
) -> Result<CallCommand, String> {
    let function = of_kind(handle, FunctionKind::Update)?;
    let mut end = arguments.count();
    let mut reply = if function.signature.result.is_some() { CallReply::Result } else { CallReply::Old };
    for (word, chosen) in [("NORETURN", CallReply::Nothing), ("OLD", CallReply::Old)] {
        if arguments.is(end - 1, word) {
            reply = chosen;
            end -= 1;
            break;
        }
    }
    if (3..end).any(|index| arguments.is(index, "OLD") || arguments.is(index, "NORETURN")) {
        return Err("ERR syntax error: OLD or NORETURN comes last, once, and after INIT".to_owned());
    }
    let initial_word = (3..end).find(|&index| arguments.is(index, "INIT"));
    let given = Given::new(function, arguments, 3..initial_word.unwrap_or(end).max(3))?;
    let element = ElementType::Record(&function.signature.element);
    let initial = initial_word.map(|word| word + 1..end);
    let count = element.number_count();
    if initial.as_ref().is_some_and(|initial| initial.is_empty() || !initial.len().is_multiple_of(count)) {
        let numbers = if count == 1 { "one number".to_owned() } else { format!("{count} numbers") };
        return Err(format!("ERR syntax error: INIT takes the elements of a missing key, {numbers} for each"));
    }
    let Planned { vectors, values } = given.plan(operands);
    let plan =
        |initial: Range<usize>| narrow(operands.plan_records(element, initial.clone(), initial.start, count, "INIT"));
    Ok(CallCommand { function: handle, vectors, reply, operands: values, initial: initial.map(plan) })
}

/// Decodes `key function Σ… operand…`.
pub(super) fn reduce(
    handle: FunctionHandle,
    arguments: Arguments<'_>,
    operands: &mut Operands,
) -> Result<CallCommand, String> {
    let function = of_kind(handle, FunctionKind::Reduce)?;
    let sigma = function.signature.result.as_ref().expect("a reduce has Σ");
    let end = 3 + sigma.fields().len();
    if arguments.count() < end {
        return Err(syntax_error(function));
    }
    let given = Given::new(function, arguments, end..arguments.count())?;
    let initial = operands.plan_records(ElementType::Record(sigma), 3..end, 3, sigma.fields().len(), "Σ");
    let Planned { vectors, values } = given.plan(operands);
    let initial = Some(narrow(initial));
    Ok(CallCommand { function: handle, vectors, reply: CallReply::Result, operands: values, initial })
}

/// Decodes `key function operand… [POSITIONS|WITHPOSITIONS]`.
pub(super) fn filter(
    handle: FunctionHandle,
    arguments: Arguments<'_>,
    operands: &mut Operands,
) -> Result<CallCommand, String> {
    let function = of_kind(handle, FunctionKind::Filter)?;
    let mut end = arguments.count();
    let mut reply = CallReply::Result;
    for (word, chosen) in [("POSITIONS", CallReply::Positions), ("WITHPOSITIONS", CallReply::Pairs)] {
        if arguments.is(end - 1, word) {
            reply = chosen;
            end -= 1;
            break;
        }
    }
    let Planned { vectors, values } = Given::new(function, arguments, 3..end.max(3))?.plan(operands);
    Ok(CallCommand { function: handle, vectors, reply, operands: values, initial: None })
}

impl CallCommand {
    /// Returns the operation.
    pub(super) fn operation<'a>(&self, operands: &'a [u8]) -> Operation<'a> {
        let bytes = |range: &Range<u32>| &operands[range.start as usize..range.end as usize];
        Operation::Call(Call {
            function: self.function,
            vectors: self.vectors,
            operands: bytes(&self.operands),
            initial: self.initial.as_ref().map(bytes),
            reply: self.reply,
        })
    }

    /// Returns the type of the elements of the reply. `None` if it is `OK`.
    pub(super) fn reply_type(&self) -> Option<ElementType> {
        let signature = &self.function.function?.signature;
        let kind = self.function.function?.kind();
        Some(match (kind, self.reply) {
            (_, CallReply::Nothing) => return None,
            (FunctionKind::Filter, CallReply::Positions) => ElementType::Number(Element::U32),
            (FunctionKind::Filter, CallReply::Pairs) => ElementType::Positioned(&signature.element),
            (FunctionKind::Filter, _) | (_, CallReply::Old) => ElementType::Record(&signature.element),
            _ => ElementType::Record(signature.result.as_ref()?),
        })
    }

    /// Writes the reply: the elements that passed as an array, others as a number if there is one.
    pub(super) fn write(&self, value: &[u8], writer: &mut ReplyWriter<'_>) {
        let Some(element) = self.reply_type() else { return writer.ok() };
        match self.function.function.map(UserFunction::kind) {
            Some(FunctionKind::Filter) => write_elements(element, value, writer),
            _ => write_value(element, value, writer),
        }
    }

    /// Continues the error message for an error of the store: what the function takes, or is called for.
    pub(super) fn hint(&self, error: OperationError) -> Option<String> {
        let function = self.function.function?;
        match error {
            OperationError::OperandLength => Some(usage(function)),
            OperationError::ElementWidth => Some(width_hint(&element_of(&function.signature.element))),
            _ => None,
        }
    }
}

fn of_kind(handle: FunctionHandle, kind: FunctionKind) -> Result<&'static UserFunction, String> {
    let function = handle.function.ok_or("ERR no such function")?;
    if function.kind() == kind {
        return Ok(function);
    }
    let kind = function.kind().name();
    let article = if kind == "update" { "an" } else { "a" };
    Err(format!("ERR '{}' is {article} {kind}: use SKEP.{}", function.name, kind.to_ascii_uppercase()))
}

/// The operands of a call, as arguments whose number was checked.
struct Given<'a> {
    function: &'static UserFunction,
    arguments: Arguments<'a>,
    /// Where they are.
    range: Range<usize>,
    form: Form,
}

/// How the operands of a call are given.
#[derive(Clone, Copy)]
enum Form {
    /// The numbers of all operands, once for all elements, or once for each.
    Together {
        /// The number of arguments for one element.
        stride: usize,
    },
    /// One operand after another, with brackets around those for each element.
    OneByOne,
}

/// An operand, as arguments.
struct GivenOperand {
    /// The numbers of its records, and those of other operands between them.
    arguments: Range<usize>,
    /// The number of arguments from each record to the next.
    stride: usize,
    /// It has a record for each element.
    is_vector: bool,
    /// The first argument of the next operand.
    next: usize,
}

/// The operands of a call.
struct Planned {
    /// Which of them have a record for each element.
    vectors: u8,
    /// Where all of them are.
    values: Range<u32>,
}

impl<'a> Given<'a> {
    /// Finds the operands of a function in some arguments.
    fn new(
        function: &'static UserFunction,
        arguments: Arguments<'a>,
        range: Range<usize>,
    ) -> Result<Given<'a>, String> {
        let has_bracket = |word: &&[u8]| word.starts_with(b"[") || word.ends_with(b"]");
        let brackets = || range.clone().map(|index| arguments.get(index)).filter(has_bracket);
        if brackets().next().is_some() {
            if let Some(word) = brackets().find(|word| word.len() > 1) {
                let word = super::excerpt(word, 128);
                return Err(format!(
                    "ERR syntax error: '{word}': write [ and ] as words of their own, as in [ 1 2 3 ]"
                ));
            }
            let given = Given { function, arguments, range, form: Form::OneByOne };
            return given.check_one_by_one().map(|()| given);
        }
        let numbers = function.signature.operands.iter().map(|parameter| parameter.layout.fields().len());
        let (stride, count) = (numbers.sum(), range.len());
        let fits = if stride == 0 { count == 0 } else { count > 0 && count.is_multiple_of(stride) };
        if !fits {
            return Err(syntax_error(function));
        }
        Ok(Given { function, arguments, range, form: Form::Together { stride } })
    }

    fn check_one_by_one(&self) -> Result<(), String> {
        let mut next = self.range.start;
        for parameter in &self.function.signature.operands {
            next = self.operand(parameter, next)?.next;
        }
        if next == self.range.end { Ok(()) } else { Err(syntax_error(self.function)) }
    }

    /// Finds an operand, which begins with the argument `first`.
    fn operand(&self, parameter: &Parameter, first: usize) -> Result<GivenOperand, String> {
        let (arguments, end, size) = (self.arguments, self.range.end, parameter.layout.fields().len());
        if let Form::Together { stride } = self.form {
            let is_vector = self.range.len() > stride;
            return Ok(GivenOperand { arguments: first..end, stride, is_vector, next: first + size });
        }
        let is_vector = first < end && arguments.is(first, "[");
        let close = || (first..end).find(|&index| arguments.is(index, "]"));
        let (numbers, next) = match is_vector {
            false => (first..first + size, first + size),
            true => {
                let close = close().ok_or_else(|| format!("ERR syntax error: no ] ends [ of {}", parameter.name))?;
                (first + 1..close, close + 1)
            }
        };
        let is_number = |index: usize| index < end && !arguments.is(index, "[") && !arguments.is(index, "]");
        if numbers.is_empty() || !numbers.len().is_multiple_of(size) || !numbers.clone().all(is_number) {
            let count = if size == 1 { "a number".to_owned() } else { format!("{size} numbers") };
            let Parameter { name, layout } = parameter;
            return Err(format!(
                "ERR syntax error: {name}: {layout} is {count} for all elements, or [ {count} for each ]"
            ));
        }
        Ok(GivenOperand { arguments: numbers, stride: size, is_vector, next })
    }

    /// Plans that the operands are converted to numbers.
    fn plan(&self, operands: &mut Operands) -> Planned {
        let (start, mut vectors, mut next) = (operands.planned(), 0, self.range.start);
        for (index, parameter) in self.function.signature.operands.iter().enumerate() {
            let operand = self.operand(parameter, next).expect("it was checked");
            let GivenOperand { arguments, stride, is_vector, .. } = operand;
            let first = arguments.start;
            operands.plan_records(ElementType::Record(&parameter.layout), arguments, first, stride, &parameter.name);
            vectors |= u8::from(is_vector) << index;
            next = operand.next;
        }
        Planned { vectors, values: narrow(start..operands.planned()) }
    }
}

fn narrow(range: Range<usize>) -> Range<u32> {
    // A parsed batch is shorter than 4 GiB.
    range.start as u32..range.end as u32
}

fn syntax_error(function: &UserFunction) -> String {
    format!("ERR syntax error: {}", usage(function))
}

/// Describes what a function takes: `limits.decay takes d: f32; operands for all elements, or for each`.
fn usage(function: &UserFunction) -> String {
    let Signature { operands, result, .. } = &function.signature;
    let names: Vec<String> = operands.iter().map(|Parameter { name, layout }| format!("{name}: {layout}")).collect();
    let names = names.join(", ");
    let mixed = if operands.len() > 1 { ", or one by one with [ ] around those for each" } else { "" };
    let takes = match (function.kind(), result, operands.is_empty()) {
        (FunctionKind::Reduce, Some(sigma), true) => format!("Σ: {sigma}, and no operand"),
        (FunctionKind::Reduce, Some(sigma), false) => {
            format!("Σ: {sigma}, then {names}; operands for all elements, or for each{mixed}")
        }
        (_, _, true) => "no operand".to_owned(),
        _ => format!("{names}; operands for all elements, or for each{mixed}"),
    };
    shorten(format!("{} takes {takes}", function.name))
}
