//! Native frames on the functions of users ([`skep_wire::native::functions`]).
//!
//! Such a frame is alone in its parsed batch: what follows it finds the functions that it has loaded. Its operations are
//! executed when their replies are encoded, one after another. A change is made by a thread of its own. Meanwhile only this
//! connection waits.

use skep_core::operation::{KEY_SIZE_MAX, Operation, OperationError, PutCondition, Reply, Request};
use skep_wire::native::functions::{ALL_FUNCTIONS, ChangeOutcome};
use skep_wire::native::{Position, ReplyFrameWriter, RequestFrame, WireError};

use super::permission::permit_functions;
use crate::access::{Login, Reason};
use crate::function_loader::{Change, ChangeInProgress, FunctionLoader, Module};
use crate::limits::{FUNCTION_LOOK_TIME, OPERATION_WORK, TEXT_WORK};
use crate::resp_command::{Context, note_administration, note_denied};

/// The progress of a frame on functions.
#[derive(Debug, Default)]
pub(super) struct FunctionsFrame {
    /// The first operation without a reply.
    position: Position,
    /// Its change, if that has begun.
    change: Option<ChangeInProgress>,
}

/// The reply to an operation.
enum Answer {
    Plain(Result<Reply<'static>, WireError>),
    Value(Vec<u8>),
}

impl FunctionsFrame {
    /// Returns the number of operations that have replies.
    pub(super) fn done(&self) -> usize {
        self.position.count()
    }

    /// Executes operations, and writes their replies, until the output has `end` bytes. Returns true if all have replies.
    pub(super) fn run(
        &mut self,
        frame: &RequestFrame<'_>,
        login: &mut Login,
        output: &mut Vec<u8>,
        end: usize,
        context: &mut Context<'_>,
    ) -> bool {
        loop {
            let mut operations = frame.operations_from(self.position);
            let Some(request) = operations.next() else { return true };
            if output.len() > end || !context.may_execute(false) {
                return false;
            }
            let request = match (request, login.limited()) {
                // A change that has begun was permitted.
                (Ok(request), Some(user)) if self.change.is_none() => {
                    permit_functions(user, request).inspect_err(|error| {
                        if *error == WireError::NotPermitted {
                            note_denied(Reason::Command, b"skep.function", login, context);
                        }
                    })
                }
                (request, _) => request,
            };
            let Some(answer) = self.answer(request, login, context) else { return false };
            let before = output.len();
            let mut writer = ReplyFrameWriter::new(output, frame.sequence);
            match &answer {
                Answer::Plain(response) => writer.push(*response),
                Answer::Value(bytes) => writer.push(Ok(Reply::Value(bytes))),
            }
            writer.finish();
            if let Answer::Plain(Err(_)) = answer {
                login.leave_uncounted(output.len() - before);
            }
            // A reply may be much shorter than what was looked at for it: see `answer`.
            context.account.spend(OPERATION_WORK + TEXT_WORK * (output.len() - before));
            self.position = frame.position(&operations);
        }
    }

    /// Executes an operation. Returns `None` if it waits.
    fn answer(
        &mut self,
        request: Result<Request<'_>, WireError>,
        login: &Login,
        context: &mut Context<'_>,
    ) -> Option<Answer> {
        let Request { key, operation } = match request {
            Ok(request) => request,
            Err(error) => return Some(Answer::Plain(Err(error))),
        };
        match key.len() {
            0 => return Some(failed(OperationError::KeyEmpty)),
            size if size > KEY_SIZE_MAX => return Some(failed(OperationError::KeyTooLong)),
            _ => {}
        }
        if let Some(pause) = context.pause
            && !pause.writes_only
        {
            context.outcome.held_until = Some(pause.until);
            return None;
        }
        let loader = &context.shared.loader;
        let change = match operation {
            _ if self.change.is_some() => None,
            Operation::Get => return Some(read(loader, key).map_or(NOT_FOUND, Answer::Value)),
            Operation::Contains => return Some(if contains(loader, key) { DONE } else { NOT_FOUND }),
            Operation::Put { value, condition } if key == ALL_FUNCTIONS && condition != PutCondition::IfPresent => {
                let replaces = condition == PutCondition::Always;
                // First: many puts of a frame may have one value, which took its bytes on the wire once.
                if let Err(error) = skep_function::check_size(value.len()) {
                    return Some(refused(&error.to_string()));
                }
                context.account.spend(value.len());
                let Some(source) = text(value) else { return Some(refused("the source is not UTF-8 text")) };
                Some(Change::Load { source, replaces })
            }
            Operation::Delete => {
                let Some(name) = text(key) else { return Some(NOT_FOUND) };
                Some(Change::Delete { name })
            }
            _ => return Some(Answer::Plain(Err(WireError::NotOfFunctions))),
        };
        let is_delete = matches!(operation, Operation::Delete);
        if let Some(change) = change {
            let Some(begun) = loader.begin(change) else { return Some(Answer::Plain(Err(WireError::Busy))) };
            self.change = Some(begun);
            let command = if is_delete { "skep.function|delete" } else { "skep.function|load" };
            note_administration(command, key, true, login, context);
        }
        self.look(is_delete, context)
    }

    /// Looks if the change is made. Returns `None` if it is not.
    fn look(&mut self, is_delete: bool, context: &mut Context<'_>) -> Option<Answer> {
        let outcome = match self.change.as_ref()?.get() {
            // Also while the server stops: the change may be on disk already.
            None => {
                context.outcome.held_until = Some(context.now + FUNCTION_LOOK_TIME);
                return None;
            }
            Some(outcome) => outcome.clone(),
        };
        self.change = None;
        Some(match outcome {
            Ok(None) => NOT_FOUND,
            Ok(Some(_)) if is_delete => DONE,
            Ok(Some(name)) => Answer::Value(ChangeOutcome::Made(&name).encode()),
            Err(reason) => refused(&reason),
        })
    }
}

const DONE: Answer = Answer::Plain(Ok(Reply::Done));
const NOT_FOUND: Answer = Answer::Plain(Ok(Reply::NotFound));

fn text(bytes: &[u8]) -> Option<String> {
    std::str::from_utf8(bytes).ok().map(str::to_owned)
}

fn failed(error: OperationError) -> Answer {
    Answer::Plain(Ok(Reply::Failed(error)))
}

fn refused(reason: &str) -> Answer {
    Answer::Value(ChangeOutcome::Refused(reason).encode())
}

/// Returns the value of a key, if there is one.
fn read(loader: &FunctionLoader, key: &[u8]) -> Option<Vec<u8>> {
    if key == ALL_FUNCTIONS {
        return Some(list(&loader.modules()).into_bytes());
    }
    let name = std::str::from_utf8(key).ok()?;
    if let Some(handle) = loader.functions().find(name) {
        return Some(handle.id.to_le_bytes().to_vec());
    }
    let modules = loader.modules();
    module(&modules, name).map(|module| module.source.as_bytes().to_vec())
}

/// Returns true if a key has a value, without making that.
fn contains(loader: &FunctionLoader, key: &[u8]) -> bool {
    let is_loaded = |name| loader.functions().find(name).is_some() || module(&loader.modules(), name).is_some();
    key == ALL_FUNCTIONS || std::str::from_utf8(key).is_ok_and(is_loaded)
}

/// Returns the module of this name; they are sorted.
fn module<'m>(modules: &'m [Module], name: &str) -> Option<&'m Module> {
    modules.binary_search_by(|module| module.name.as_str().cmp(name)).ok().map(|index| &modules[index])
}

/// Returns a line for each function: its number, a space, and what it takes and returns. A module that does not compile has
/// one line: 0, its name, and why.
fn list(modules: &[Module]) -> String {
    let mut lines = String::new();
    for module in modules {
        for (number, description) in module.numbers().iter().zip(module.descriptions()) {
            lines.push_str(&format!("{number} {description}\n"));
        }
        if let Some(error) = module.error_excerpt() {
            lines.push_str(&format!("0 {}: {}\n", module.name, error.replace('\n', " ")));
        }
    }
    lines
}
