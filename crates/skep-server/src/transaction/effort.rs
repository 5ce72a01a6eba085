//! The effort of an isolated command, which is judged before the command begins.
//!
//! 1. The number of arguments is known at once: each counts as an operation.
//! 2. A few arguments may name large values. While commands that take several turns are about, the lengths of the values
//!    are read, and the work of the command is forecast. At other times that would take longer than most commands.
//! 3. The values may change before the command begins. Therefore the judgement decides only which commands come first.
//!
//! A command that is run in parts is a medium effort at most: each of its parts fits a turn.

use super::environment::Environment;
use super::forecast::Commands;
use super::run::Run;
use crate::limits::{MEDIUM_EFFORT_ARGUMENTS, MEDIUM_EFFORT_WORK, SMALL_EFFORT_ARGUMENTS, SMALL_EFFORT_WORK};
use crate::resp_command::{Invocation, Isolated};
use crate::vocabulary::Effort;

/// What is known of the effort of a command that has not begun.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Judgement {
    effort: Effort,
    /// Its work was forecast.
    is_forecast: bool,
}

impl Judgement {
    /// Returns the effort, as far as it is known.
    pub(crate) fn effort(self) -> Effort {
        self.effort
    }

    /// Judges a command by the number of its arguments.
    pub(crate) fn count(&mut self, command: &Isolated, argument_count: usize) {
        let count = if let Isolated::Exec(queue) = command { queue.argument_count() } else { argument_count };
        self.raise(command, effort_of(count, SMALL_EFFORT_ARGUMENTS, MEDIUM_EFFORT_ARGUMENTS));
    }

    /// Judges a command by the work that it takes with the values as they are.
    pub(crate) fn forecast(
        &mut self,
        command: &Isolated,
        invocation: Invocation<'_>,
        environment: &mut Environment<'_, '_, '_>,
    ) {
        if self.is_forecast {
            return;
        }
        let Invocation { name, arguments, space, .. } = invocation;
        let commands =
            if let Isolated::Exec(queue) = command { Commands::Queue(queue) } else { Commands::One(name, arguments) };
        let mut run = Run::begin();
        let work = run.forecast(commands, space, environment);
        run.end();
        match work {
            Ok(work) => {
                self.raise(command, effort_of(work, SMALL_EFFORT_WORK, MEDIUM_EFFORT_WORK));
                self.is_forecast = true;
            }
            // The lengths cannot be read at the moment. Others need not wait for that.
            Err(_) => self.raise(command, self.effort.larger()),
        }
    }

    /// Notes that a part of the command was run.
    pub(crate) fn pause(&mut self, command: &Isolated) {
        self.raise(command, Effort::Medium);
    }

    fn raise(&mut self, command: &Isolated, effort: Effort) {
        let most = if let Isolated::Keys(_) = command { Effort::Medium } else { Effort::Large };
        self.effort = self.effort.max(effort.min(most));
    }
}

fn effort_of(amount: usize, small: usize, medium: usize) -> Effort {
    match amount {
        _ if amount <= small => Effort::Small,
        _ if amount <= medium => Effort::Medium,
        _ => Effort::Large,
    }
}
