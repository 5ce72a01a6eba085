//! The isolated commands of a parsed batch, and the transaction that is being queued: see [`crate::transaction`].

use skep_wire::native::WireError;
use skep_wire::partition::Partition;
use skep_wire::resp::{Argument, ReplyWriter};

use super::memory::inline_watch_growth;
use super::{After, RespBatch, may_be_watch};
use crate::access::{Access, Login};
use crate::limits::{ISOLATED_OPERATIONS_MAX, SHARE, TRANSACTION_SIZE_MAX};
use crate::memory_budget::{Permit, ReplyAccount};
use crate::resp_command::table::CommandName;
use crate::resp_command::{
    Action, Arguments, Context, Invocation, Isolated, Multi, NOT_IN_TRANSACTION, SessionOutput, TooLong,
    changes_functions, shards_of_key, wire_error,
};
use crate::transaction::{Bounds, Environment, Judgement, Run};
use crate::vocabulary::{Effort, Refusal, ShardSet, Space, Spaces, Step};

impl RespBatch {
    /// Returns the shards that the next command involves, if that is an isolated one and its turn has come. If it has begun,
    /// they are held already.
    pub(crate) fn isolated_shards(&mut self, partition: &Partition, input: &[u8]) -> Option<ShardSet> {
        let Action::Isolated(..) = self.requests.commands.get(self.replies.command)?.action else { return None };
        if self.requests.is_decoding && self.replies.command + 1 == self.requests.commands.len() {
            return None; // It waits for its operands.
        }
        if self.isolated.is_blocked {
            return Some(ShardSet::default());
        }
        // A command of a million keys is run in parts: hashing all keys for each would be quadratic.
        if self.isolated.next_shards.is_none() {
            self.isolated.next_shards = self.shards_of_next(partition, input);
        }
        self.isolated.next_shards
    }

    fn shards_of_next(&self, partition: &Partition, input: &[u8]) -> Option<ShardSet> {
        let command = &self.requests.commands[self.replies.command];
        let Action::Isolated(name, isolated) = &command.action else { return None };
        let Isolated::Exec(queue) = isolated else {
            return Some(name.shards(command.arguments(input, &self.requests.arguments), command.space, partition));
        };
        let mut shards = queue.shards(command.space, self.spaces, partition);
        for watched in self.watched.iter().flat_map(|watched| watched.keys()) {
            shards.extend(shards_of_key(&watched.key, watched.space, partition));
        }
        Some(shards)
    }

    /// Returns the login of the connection.
    #[inline]
    pub(crate) fn login(&self) -> &Login {
        &self.session.login
    }

    /// Returns the login of the connection, to be changed.
    #[inline]
    pub(crate) fn login_mut(&mut self) -> &mut Login {
        &mut self.session.login
    }

    /// Returns true if an isolated command is in the parsed batch.
    #[inline]
    pub(crate) fn has_isolated(&self) -> bool {
        self.requests.has_isolated
    }

    /// Returns true if the next command is isolated.
    pub(crate) fn is_next_isolated(&self) -> bool {
        self.requests.commands.get(self.replies.command).is_some_and(|command| command.action.is_isolated())
    }

    /// Returns the memory of the queue of the next command that has no commands, if that is a transaction that has not begun.
    pub(crate) fn spare_of_transaction(&self) -> Option<usize> {
        match &self.requests.commands.get(self.replies.command)?.action {
            Action::Isolated(_, Isolated::Exec(queue)) if !self.has_begun_isolated() => Some(queue.spare()),
            _ => None,
        }
    }

    /// Returns that memory to the allocator.
    pub(crate) fn fit_transaction(&mut self) {
        if let Action::Isolated(_, Isolated::Exec(queue)) = &mut self.requests.commands[self.replies.command].action {
            let before = queue.capacity();
            queue.fit();
            self.requests.queued_bytes -= before - queue.capacity();
        }
    }

    /// Returns true if an isolated command has begun, and the shards that it involves must be held until it is done.
    pub(crate) fn is_blocked(&self) -> bool {
        self.isolated.is_blocked
    }

    /// Returns true if the next command counts what the stores have.
    pub(crate) fn is_next_statistics(&self) -> bool {
        self.requests.commands.get(self.replies.command).is_some_and(|command| command.action.reads_statistics())
    }

    /// Returns true if the next command, which is isolated, begins with a permit: its reply may be large, and is not
    /// admitted as a whole.
    pub(crate) fn takes_permit(&self) -> bool {
        match &self.requests.commands[self.replies.command].action {
            Action::Isolated(_, Isolated::Exec(_)) => false,
            Action::Isolated(name, _) => !name.has_short_reply(),
            _ => true,
        }
    }

    /// Returns true if a part of the next command, which is isolated, was executed.
    pub(crate) fn has_begun_isolated(&self) -> bool {
        self.isolated.run.is_some()
    }

    /// Returns true if the next command, which is isolated, has not begun and must wait for the end of a pause.
    pub(crate) fn is_isolated_paused(&self, context: &mut Context<'_>) -> bool {
        !self.has_begun_isolated() && self.requests.commands[self.replies.command].action.is_paused(context)
    }

    /// Returns the error for the next command, which is isolated, if it is refused.
    pub(crate) fn isolated_refusal(&self, refusal: Refusal, access: &Access) -> Option<WireError> {
        // It was allowed by rules that are no longer in force, while it has waited.
        if self.session.login.has_other_rules(access) && !self.has_begun_isolated() {
            return Some(WireError::NotPermitted);
        }
        let writes = match &self.requests.commands[self.replies.command].action {
            Action::Isolated(_, Isolated::Exec(queue)) => queue.writes(),
            Action::Isolated(name, _) => name.writes(),
            _ => false,
        };
        refusal.of_command(writes).filter(|_| !self.has_begun_isolated())
    }

    /// Refuses the next command, which is isolated.
    pub(crate) fn refuse_isolated(&mut self, error: WireError, output: &mut Vec<u8>, context: &mut Context<'_>) {
        let Action::Isolated(name, _) = self.requests.commands[self.replies.command].action else {
            unreachable!("it is isolated")
        };
        let begin = output.len();
        ReplyWriter::new(output, self.session.version).error(&wire_error(error));
        context.count_refused(name, &output[begin..]);
        if self.session.replies.is_silent() {
            output.truncate(begin);
        }
        self.session.login.leave_uncounted(output.len() - begin);
        if name == CommandName::Exec {
            self.watched = None;
        }
        self.end_isolated();
    }

    /// Returns the need of an inline request that `input` begins with, if the transaction or the watched keys might grow by
    /// more than there is room for. It cannot be parsed again, so there must be room before.
    pub(super) fn needed_by_inline(&self, input: &[u8], memory_max: usize) -> Option<After> {
        if input.first().is_none_or(|&first| first == b'*') || !self.multi.is_open() && !may_be_watch(input) {
            return None;
        }
        let size = input.iter().position(|&byte| byte == b'\n')? + 1;
        let room = self.room_in_transaction(memory_max);
        if self.multi.is_open() {
            let growth = self.multi.growth(size, size / 2);
            return (!self.multi.has_room(growth, room)).then_some(After::NeedsRoom(growth));
        }
        let growth = inline_watch_growth(&input[..size]);
        (growth > room).then_some(After::NeedsMemory(growth))
    }

    /// Returns the bytes by which the transaction, or the watched keys, may grow.
    pub(super) fn room_in_transaction(&self, memory_max: usize) -> usize {
        memory_max.max(SHARE).saturating_sub(self.capacity())
    }

    /// Forgets the commands of the transaction that is being queued, and the watched keys: its end is not taken any more.
    pub(crate) fn end_transaction(&mut self) {
        self.multi.close();
        if self.is_finished() {
            self.watched = None;
        }
    }

    fn end_isolated(&mut self) {
        let command = &self.requests.commands[self.replies.command];
        self.isolated.left -= command.argument_count;
        if let Action::Isolated(_, Isolated::Watch) = command.action {
            // The watched keys have what they need of it.
            self.watch_room = 0;
        }
        (self.isolated.run, self.isolated.is_blocked, self.isolated.next_shards, self.replies.needed) =
            (None, false, None, 0);
        self.isolated.judgement = Judgement::default();
        self.session.replies.end_command();
        self.replies.command += 1;
    }

    /// Returns the effort of the next command, as far as it is known. It is isolated.
    pub(crate) fn effort(&mut self) -> Effort {
        let command = &self.requests.commands[self.replies.command];
        if let Action::Isolated(_, isolated) = &command.action {
            self.isolated.judgement.count(isolated, command.argument_count);
        }
        self.isolated.judgement.effort()
    }

    /// Returns the bytes of replies for which the next command, which is a transaction, has found no memory; 0 if it has
    /// not.
    pub(crate) fn reply_needed(&self) -> usize {
        self.replies.needed
    }

    /// Continues the next command, which is isolated and whose shards are held. Returns the reason why it is not done. It does
    /// not begin if it is more effort than may be taken.
    pub(crate) fn run_isolated(
        &mut self,
        input: &[u8],
        output: &mut Vec<u8>,
        bounds: &mut Bounds<'_, '_>,
        context: &mut Context<'_>,
        replies: ReplyAccount<'_>,
        permit: Permit,
    ) -> Result<(), Step> {
        // It may have waited for other shards.
        self.set_time(context.time);
        context.reply_max = permit.reply_max();
        let effort = self.effort();
        let excess = if self.isolated.is_blocked { 0 } else { Bounds::excess(effort) };
        let command = &self.requests.commands[self.replies.command];
        let Action::Isolated(name, isolated) = &command.action else { unreachable!("the command is isolated") };
        let shard = context.shard;
        let mut environment = Environment {
            stores: bounds.stores,
            now: context.now,
            context,
            watched: &mut self.watched,
            spaces: self.spaces,
            replies,
            left: bounds.left + excess,
            operation_work: bounds.operation_work,
            executed: 0,
            touched: 0,
        };
        let arguments = command.arguments(input, &self.requests.arguments);
        let operands = self.requests.operands.bytes();
        let invocation = Invocation { name: *name, arguments, operands, space: command.space };
        if self.isolated.run.is_none() {
            if bounds.is_careful && effort <= bounds.effort_max && bounds.effort_max < Effort::Large {
                self.isolated.judgement.forecast(isolated, invocation, &mut environment);
                bounds.has_misjudged |= self.isolated.judgement.effort() > effort;
            }
            if self.isolated.judgement.effort() > bounds.effort_max {
                bounds.left = environment.left.saturating_sub(excess);
                return Err(Step::Later);
            }
        }
        let run = self.isolated.run.get_or_insert_with(Run::begin);
        let mut output = SessionOutput { bytes: output, session: &mut self.session };
        let done = run.step(isolated, invocation, &mut output, &mut environment);
        let executed = environment.executed;
        bounds.has_misjudged |= excess > 0 && environment.left < bounds.left;
        bounds.left = environment.left.saturating_sub(excess);
        bounds.executed += executed;
        let metrics = context.shared.metrics(shard);
        metrics.operations.executed.add(executed as u64);
        self.end_step(done)
    }

    /// Ends a step of the next command, which is isolated.
    fn end_step(&mut self, done: Result<Space, Step>) -> Result<(), Step> {
        self.isolated.is_blocked = matches!(done, Err(Step::Wait | Step::More));
        let Action::Isolated(_, isolated) = &self.requests.commands[self.replies.command].action else {
            unreachable!("it is isolated")
        };
        match done {
            Err(Step::Room) => {
                self.replies.needed = self.isolated.run.as_ref().map_or(0, |run| run.reply_needed());
                self.isolated.next_shards = None;
                if let Some(run) = self.isolated.run.take() {
                    run.end();
                }
            }
            Err(Step::Pause) => self.isolated.judgement.pause(isolated),
            _ => {}
        }
        let space = done?;
        if let Isolated::Exec(queue) = isolated
            && queue.selects()
        {
            // No later command is decoded.
            self.space = space;
        }
        if let Some(run) = self.isolated.run.take() {
            run.end();
        }
        self.end_isolated();
        Ok(())
    }
}

/// Adds a command to the transaction, which has `room` bytes to grow, unless it ends or refuses it.
pub(super) fn queue(
    multi: &mut Multi,
    request: &[u8],
    ranges: &[Argument],
    room: usize,
    spaces: Spaces,
    login: &Login,
) -> Action {
    let arguments = Arguments::new(request, ranges);
    let name = match Action::name_to_queue(arguments, spaces, login) {
        Ok(name) => name,
        Err(refusal) => {
            if refusal.discards() {
                multi.close();
            }
            multi.abort();
            return refusal;
        }
    };
    match name {
        CommandName::Multi => Action::Refuse("ERR MULTI calls can not be nested".to_owned()),
        CommandName::Watch => Action::Refuse("ERR WATCH inside MULTI is not allowed".to_owned()),
        CommandName::Exec => match multi.close() {
            Some(queue) if !queue.is_aborted() => Action::Isolated(name, Isolated::Exec(queue)),
            _ => Action::Server(name),
        },
        CommandName::Discard => {
            multi.close();
            Action::Server(name)
        }
        CommandName::Quit | CommandName::Reset => Action::Server(name),
        // It takes long, and the stores would be held meanwhile.
        CommandName::SkepFunction if changes_functions(arguments) => {
            multi.abort();
            Action::Refuse(format!("ERR {NOT_IN_TRANSACTION}"))
        }
        // The array of EXEC would have another number of replies than it says.
        _ if name.is_never_queued() || name == CommandName::Client && arguments.is(1, "reply") => {
            multi.abort();
            Action::Refuse(format!("ERR {NOT_IN_TRANSACTION}"))
        }
        _ => match multi.push(name, request, ranges, room) {
            Ok(()) => Action::Queued(name),
            Err(TooLong) => Action::Refuse(format!(
                "ERR a transaction has at most {ISOLATED_OPERATIONS_MAX} operations and {TRANSACTION_SIZE_MAX} bytes"
            )),
        },
    }
}
