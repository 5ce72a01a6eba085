//! The run of an isolated command, step by step.
//!
//! 1. A step executes operations on the stores that the shard has, and writes the replies to the output of the
//!    connection.
//! 2. It ends when the command is done, or when a store defers all that is left, or after the operations of a turn. The
//!    next step continues. The stores stay with the command meanwhile.
//! 3. A command that only reads, or deletes, and is longer than [`crate::limits::ISOLATED_READS_MAX`], or whose replies are more than
//!    its permit allows, is run in parts: it *pauses*, and other operations may be executed before the next part.
//! 4. A transaction never pauses. It is admitted whole or refused whole, before anything of it is executed
//!    (`forecast.rs`). So is any other command that cannot be run in parts.

use std::cell::Cell;

use skep_core::operation::{Operation, Reply, Request};
use skep_wire::resp::ReplyWriter;

use super::command::step;
use super::course::Course;
use super::environment::Environment;
use super::exec::Transaction;
use super::forecast::{Commands, Forecast, Verdict};
use crate::limits::TRANSACTION_WORK_MAX;
use crate::resp_command::table::CommandName;
use crate::resp_command::{Bound, Invocation, Isolated, SessionOutput};
use crate::vocabulary::{Space, Step};

/// The run of an isolated command.
#[derive(Debug, Default)]
pub(crate) struct Run {
    course: Course,
    /// The forecast of the commands, if they are not yet admitted.
    forecast: Option<Forecast>,
    /// What the commands take at most, if they are admitted, and what they have taken.
    admitted: Option<Bound>,
    taken: Bound,
    transaction: Option<Transaction>,
}

thread_local! {
    /// The memory of the last run: an isolated command allocates nothing. A shard has a thread of its own.
    static SPARE: Cell<Option<Box<Run>>> = const { Cell::new(None) };
}

impl Run {
    /// Begins a run, with the memory of the last one of this thread.
    pub(crate) fn begin() -> Box<Run> {
        SPARE.take().unwrap_or_default()
    }

    /// Ends the run, and keeps some of its memory for another one.
    pub(crate) fn end(mut self: Box<Run>) {
        self.course.reset();
        (self.transaction, self.forecast, self.admitted, self.taken) = (None, None, None, Bound::default());
        SPARE.set(Some(self));
    }

    /// Returns the bytes of memory held.
    pub(crate) fn capacity(&self) -> usize {
        let of_transaction = self.transaction.as_ref().map_or(0, Transaction::capacity);
        let Course { window, writes, kept, .. } = &self.course;
        let of_forecast = self.forecast.as_ref().map_or(0, Forecast::capacity);
        window.capacity() + writes.capacity() + kept.capacity() + of_transaction + of_forecast
    }

    /// Returns the work of commands that do not begin yet.
    pub(super) fn forecast(
        &mut self,
        commands: Commands<'_>,
        space: Space,
        environment: &mut Environment<'_, '_, '_>,
    ) -> Result<usize, Step> {
        self.course.reset();
        let work = Forecast::new(space).work(commands, space, &mut self.course, environment);
        self.course.reset();
        environment.touched = 0;
        work
    }

    /// Continues a command. Returns the space that is chosen after it, or the reason why it is not done.
    pub(crate) fn step(
        &mut self,
        command: &Isolated,
        invocation: Invocation<'_>,
        output: &mut SessionOutput<'_>,
        environment: &mut Environment<'_, '_, '_>,
    ) -> Result<Space, Step> {
        let Invocation { name, arguments, space, .. } = invocation;
        let commands = match command {
            Isolated::Exec(queue) => Some(Commands::Queue(queue)),
            // They are run in parts, or are short.
            Isolated::Keys(_) | Isolated::Watch => None,
            _ => Some(Commands::One(name, arguments)),
        };
        let begin = output.len();
        if let Some(commands) = commands
            && self.admitted.is_none()
            && let Some(refusal) = self.admit(commands, space, environment)?
        {
            refusal.write(name, &mut output.writer());
            environment.context.count_command(name, arguments, command.weight(arguments.count()));
            if output.bytes.get(begin) == Some(&b'-') {
                environment.context.count_error(&output.bytes[begin..]);
            }
            output.remove_if_silent(begin);
            return Ok(space);
        }
        let done = self.run(command, invocation, output, environment);
        if let Some(admitted) = self.admitted {
            self.taken.add(Bound { work: environment.touched, reply: output.len() - begin });
            let Bound { work, reply } = self.taken;
            debug_assert!(work <= admitted.work && reply <= admitted.reply, "{work} and {reply} of {admitted:?}");
        }
        done
    }

    /// Continues a command that is admitted, as [`Run::step`] does.
    fn run(
        &mut self,
        command: &Isolated,
        invocation: Invocation<'_>,
        output: &mut SessionOutput<'_>,
        environment: &mut Environment<'_, '_, '_>,
    ) -> Result<Space, Step> {
        let Run { course, transaction, .. } = self;
        let Isolated::Exec(queue) = command else {
            step(command, invocation, course, true, output, environment)?;
            return Ok(invocation.space);
        };
        let transaction = match transaction {
            Some(transaction) => transaction,
            None => {
                let begin = output.len();
                output.writer().array(queue.len());
                output.remove_if_silent(begin);
                transaction.insert(Transaction::new(invocation.space, queue.len()))
            }
        };
        while transaction.decode(queue, &mut output.session.login, environment) {
            transaction.step(queue, course, output, environment)?;
        }
        let Invocation { name, arguments, .. } = invocation;
        environment.context.count_command(name, arguments, command.weight(arguments.count()));
        Ok(transaction.space())
    }
}

impl Run {
    /// Returns the most bytes of the replies of commands that wait for room for them.
    pub(crate) fn reply_needed(&self) -> usize {
        self.forecast.as_ref().map_or(0, Forecast::reply_max)
    }

    /// Continues the admission of commands that are executed whole. Returns the reason if they are refused.
    fn admit(
        &mut self,
        commands: Commands<'_>,
        space: Space,
        environment: &mut Environment<'_, '_, '_>,
    ) -> Result<Option<Refused>, Step> {
        let Run { course, forecast, .. } = self;
        let is_exec = matches!(commands, Commands::Queue(_));
        if forecast.is_none() && is_exec && !is_valid(course, environment)? {
            *environment.watched = None;
            return Ok(Some(Refused::Changed));
        }
        let forecast = forecast.get_or_insert_with(|| {
            course.reset();
            Forecast::new(space)
        });
        let verdict = forecast.step(commands, space, course, environment)?;
        self.forecast = None;
        self.course.reset();
        environment.touched = 0;
        if is_exec {
            *environment.watched = None;
        }
        Ok(match verdict {
            Verdict::Admitted(bound) => {
                self.admitted = Some(bound);
                None
            }
            Verdict::TooMuchWork(work) => Some(Refused::Work(work)),
            Verdict::TooLargeReplies(size) => Some(Refused::Replies(size, environment.replies.most())),
        })
    }
}

/// The reason why commands are refused that are executed whole, or not at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refused {
    /// A key that the connection watches has changed.
    Changed,
    /// They would take this work.
    Work(usize),
    /// They may have replies of these bytes, and the connection may hold those.
    Replies(usize, usize),
}

impl Refused {
    fn write(self, name: CommandName, writer: &mut ReplyWriter<'_>) {
        let reason = match self {
            Refused::Changed => return writer.null_array(),
            Refused::Work(work) => format!(
                "may touch {work} bytes, more than the limit of {TRANSACTION_WORK_MAX}: use fewer or shorter values"
            ),
            Refused::Replies(size, most) => format!(
                "may have replies of {size} bytes, more than the {most} that this connection may hold: read fewer values, \
                 or raise --connection-memory"
            ),
        };
        match name {
            CommandName::Exec => writer.error(&format!("EXECABORT Transaction discarded because it {reason}")),
            _ => writer.error(&format!("ERR '{}' {reason}", name.text())),
        }
    }
}

/// Returns true if no key that the connection watches has changed or expired.
fn is_valid(course: &mut Course, environment: &mut Environment<'_, '_, '_>) -> Result<bool, Step> {
    let Some(watched) = environment.watched.take() else { return Ok(true) };
    let keys: Vec<_> = watched.keys().iter().filter(|key| key.existed).collect();
    if !course.window.is_open() {
        course.window.begin(keys.len());
    }
    let completed = environment.complete(&mut course.window, |index| {
        (keys[index].space, Request { key: &keys[index].key, operation: Operation::Contains })
    });
    let all_exist = (0..course.window.len()).all(|index| course.window.response(index) == Ok(Reply::Done));
    let is_valid = all_exist && !watched.is_dirty();
    *environment.watched = Some(watched);
    completed.map(|()| is_valid)
}
