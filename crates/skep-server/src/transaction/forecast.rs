//! The forecast of a transaction, or of another command that is executed whole: what it may take, before anything runs.
//!
//! 1. The bounds of all commands are added up, as if every value were the longest. Nearly every transaction is short
//!    enough, and is admitted without any access to a store.
//! 2. Otherwise the length of each value is read, one small operation for each key, and the bounds are added up again.
//!    Each command may make values longer, for the commands after it ([`Lengths`]).
//! 3. If the work is more than [`TRANSACTION_WORK_MAX`], or the replies are more than the connection may hold, the
//!    commands are refused together, and nothing was executed. Otherwise the memory of all replies is taken from the
//!    account ([`ReplyAccount`]). If it is not free, the stores are given back, and the transaction waits for it in the
//!    queue of the requests. It is then forecast once more, because the values may have changed.
//!
//! The stores are held from the forecast to the end of the commands, so the lengths are those that the commands find.
//! The work of the forecast counts too, as that of other operations.

use skep_core::operation::{KEY_SIZE_MAX, Operation, Reply, Request, StringRead, VALUE_SIZE_MAX};

use super::course::Course;
use super::environment::Environment;
use crate::limits::{
    ERRORS_SIZE_MAX, ISOLATED_PART_MAX, SMALL_EFFORT_WORK, TRANSACTION_PART_MAX, TRANSACTION_WORK_MAX,
};
use crate::memory_budget::ReplyAccount;
use crate::resp_command::table::CommandName;
use crate::resp_command::{Arguments, Bound, KeySums, Lengths, Queue, chosen_space};
use crate::vocabulary::{Extents, Space, Spaces, Step};

/// Bytes of an error besides those of a short reply.
const ERROR_SIZE: usize = 192;

/// Keys or commands that are added up in the time of an operation, while no lengths are known.
const ROUGH_PART: usize = 4;

/// The commands of a forecast.
#[derive(Clone, Copy)]
pub(super) enum Commands<'c> {
    One(CommandName, Arguments<'c>),
    Queue(&'c Queue),
}

impl<'c> Commands<'c> {
    fn count(self) -> usize {
        match self {
            Commands::One(..) => 1,
            Commands::Queue(queue) => queue.len(),
        }
    }

    fn get(self, index: usize) -> (CommandName, Arguments<'c>) {
        match self {
            Commands::One(name, arguments) => (name, arguments),
            Commands::Queue(queue) => (queue.name(index), queue.arguments(index)),
        }
    }

    fn all(self) -> impl Iterator<Item = (CommandName, Arguments<'c>)> {
        (0..self.count()).map(move |index| self.get(index))
    }

    /// Returns the number of keys on whose lengths the bounds depend.
    fn keys_with_lengths(self) -> usize {
        let named = self.all().filter(|(name, _)| name.needs_lengths());
        named.map(|(name, arguments)| name.key_indexes(arguments).count()).sum()
    }

    /// Returns the pairs that the commands may add to a space, the bytes of their keys, and the length that their values may
    /// have.
    fn growth(self) -> (usize, usize, usize) {
        let written = self.all().filter(|(name, _)| name.writes());
        written.fold((0, 0, 0), |(pairs, key_bytes, value_size), (name, arguments)| {
            (
                pairs + arguments.count(),
                key_bytes + arguments.from(1).map(|argument| argument.len().min(KEY_SIZE_MAX)).sum::<usize>(),
                value_size + name.value_growth(arguments),
            )
        })
    }
}

/// A forecast that has begun.
#[derive(Debug, Default)]
pub(super) struct Forecast {
    pass: Pass,
    /// The next command, and the next of its keys that is read.
    next: (usize, usize),
    /// The keys of that command that are added up.
    sums: KeySums,
    /// The space of that command.
    space: Space,
    lengths: Lengths,
    extents: Option<Extents>,
    /// Commands and arguments that are keys, whose lengths are being read, and their spaces.
    probed: Vec<(u32, u32, Space)>,
    bound: Bound,
    /// The work of looking up each key, which the commands take at least. Too many keys are refused without a look at them.
    least: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Pass {
    /// The bounds are added up as if every value were the longest.
    #[default]
    Rough,
    /// The lengths of the values are read.
    Probe,
    /// The bounds are added up.
    Exact,
}

/// The result of a forecast.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The commands may run: they take at most this.
    Admitted(Bound),
    /// They would take this work.
    TooMuchWork(usize),
    /// They may have replies of these bytes.
    TooLargeReplies(usize),
}

impl Forecast {
    /// Begins a forecast of commands of which the first is on this space.
    pub(super) fn new(space: Space) -> Forecast {
        Forecast { space, ..Forecast::default() }
    }

    /// Returns the most bytes of the replies, when all are added up.
    pub(super) fn reply_max(&self) -> usize {
        self.bound.reply
    }

    /// Returns the bytes of memory held.
    pub(super) fn capacity(&self) -> usize {
        self.lengths.capacity() + self.probed.capacity() * size_of::<(u32, u32, Space)>()
    }

    /// Continues the forecast. Fails with [`Step::Room`] if the commands have to wait for memory.
    pub(super) fn step(
        &mut self,
        commands: Commands<'_>,
        space: Space,
        course: &mut Course,
        environment: &mut Environment<'_, '_, '_>,
    ) -> Result<Verdict, Step> {
        if self.pass == Pass::Rough {
            self.add_up(commands, environment)?;
            if self.least > TRANSACTION_WORK_MAX {
                return Ok(Verdict::TooMuchWork(self.least));
            }
            let is_short = self.bound.work <= TRANSACTION_WORK_MAX && environment.replies.permit(self.bound.reply);
            let keys = if is_short { 0 } else { commands.keys_with_lengths() };
            if keys == 0 {
                return self.verdict(&mut environment.replies);
            }
            self.lengths.learn(keys);
            self.begin(Pass::Probe, space);
        }
        if self.pass == Pass::Probe {
            self.probe(commands, course, environment)?;
            self.begin(Pass::Exact, space);
        }
        self.add_up(commands, environment)?;
        self.verdict(&mut environment.replies)
    }

    /// Returns the work of commands that do not begin yet, with the values as they are. It is exact only if it is more than
    /// that of a small effort.
    pub(super) fn work(
        &mut self,
        commands: Commands<'_>,
        space: Space,
        course: &mut Course,
        environment: &mut Environment<'_, '_, '_>,
    ) -> Result<usize, Step> {
        self.add_up(commands, environment)?;
        let keys = if self.bound.work > SMALL_EFFORT_WORK { commands.keys_with_lengths() } else { 0 };
        if keys > 0 {
            self.lengths.learn(keys);
            self.begin(Pass::Probe, space);
            self.probe(commands, course, environment)?;
            self.begin(Pass::Exact, space);
            self.add_up(commands, environment)?;
        }
        Ok(self.bound.work)
    }

    fn begin(&mut self, pass: Pass, space: Space) {
        (self.pass, self.next, self.space) = (pass, (0, 0), space);
        (self.sums, self.bound) = (KeySums::default(), Bound::default());
    }

    fn verdict(&self, replies: &mut ReplyAccount<'_>) -> Result<Verdict, Step> {
        let Bound { work, reply } = self.bound;
        match () {
            () if work > TRANSACTION_WORK_MAX => Ok(Verdict::TooMuchWork(work)),
            () if reply > replies.most() => Ok(Verdict::TooLargeReplies(reply)),
            () if !replies.permit(reply) => Err(Step::Room),
            () => Ok(Verdict::Admitted(self.bound)),
        }
    }

    /// Adds up the bounds of all commands, some commands or some keys of one at a time. The first pass ends early if they are
    /// too much.
    fn add_up(&mut self, commands: Commands<'_>, environment: &mut Environment<'_, '_, '_>) -> Result<(), Step> {
        if self.next.0 == 0 && self.sums.count == 0 {
            self.bound.reply = (commands.count() * ERROR_SIZE).min(ERRORS_SIZE_MAX) + ERROR_SIZE;
        }
        let is_too_much = |forecast: &Forecast| {
            forecast.pass == Pass::Rough && forecast.bound.work.max(forecast.least) > TRANSACTION_WORK_MAX
        };
        while self.next.0 < commands.count() && !is_too_much(self) {
            // A known length is looked up, and noted again.
            environment.work(0)?;
            let mut left = TRANSACTION_PART_MAX;
            while left > 0 && self.next.0 < commands.count() && !is_too_much(self) {
                left -= self.add_up_some(commands, left, environment);
            }
            let count = TRANSACTION_PART_MAX - left;
            environment.spend_on(count.div_ceil(if self.pass == Pass::Rough { ROUGH_PART } else { 1 }));
        }
        Ok(())
    }

    /// Adds up the next keys of a command, or its bound. Returns for how many of `most` keys that counts.
    fn add_up_some(&mut self, commands: Commands<'_>, most: usize, environment: &mut Environment<'_, '_, '_>) -> usize {
        let (name, arguments) = commands.get(self.next.0);
        if self.pass == Pass::Rough && self.sums.count == 0 {
            self.least += name.least_work(arguments);
            if self.least > TRANSACTION_WORK_MAX {
                return most;
            }
        }
        let (space, spaces) = (self.space, environment.spaces);
        if name.add_up_keys(&mut self.sums, most, arguments, space, &mut self.lengths, spaces) == most {
            if self.pass == Pass::Rough && self.sums.touched > TRANSACTION_WORK_MAX {
                self.bound.work = self.sums.touched;
            }
            return most;
        }
        if name.needs_extents() && self.extents.is_none() {
            let mut extents = environment.extents();
            let (pairs, key_bytes, value_size) = commands.growth();
            extents.grow(pairs, key_bytes, value_size.min(VALUE_SIZE_MAX));
            self.extents = Some(extents);
        }
        let extents = self.extents.unwrap_or(Extents::unknown(spaces));
        let sums = std::mem::take(&mut self.sums);
        self.bound.add(name.bound(arguments, space, sums, &mut self.lengths, &extents));
        self.choose_space(name, arguments, spaces);
        self.next.0 += 1;
        sums.count.clamp(1, most)
    }

    fn choose_space(&mut self, name: CommandName, arguments: Arguments<'_>, spaces: Spaces) {
        if name == CommandName::Select {
            self.space = chosen_space(arguments, spaces).unwrap_or(self.space);
        }
    }

    /// Reads the lengths of all values.
    fn probe(
        &mut self,
        commands: Commands<'_>,
        course: &mut Course,
        environment: &mut Environment<'_, '_, '_>,
    ) -> Result<(), Step> {
        loop {
            if !course.window.is_open() {
                self.collect(commands, environment)?;
                if self.probed.is_empty() {
                    return Ok(());
                }
                course.window.begin(self.probed.len());
            }
            let probed = &self.probed;
            let key =
                |(command, argument, _): (u32, u32, Space)| commands.get(command as usize).1.get(argument as usize);
            environment.complete(&mut course.window, |index| {
                let operation = Operation::StringRead(StringRead::Size);
                (probed[index].2, Request { key: key(probed[index]), operation })
            })?;
            for (index, probe) in self.probed.drain(..).enumerate() {
                let length = match course.window.response(index) {
                    Ok(Reply::Value(bytes)) => bytes.try_into().map_or(0, i64::from_le_bytes).max(0) as usize,
                    _ => 0,
                };
                self.lengths.set(probe.2, key(probe), length);
            }
            course.window.end();
        }
    }

    /// Collects the next keys whose lengths are to be read, each once. A key that was collected before counts as an operation:
    /// there may be many. So do some commands.
    fn collect(&mut self, commands: Commands<'_>, environment: &mut Environment<'_, '_, '_>) -> Result<(), Step> {
        while self.next.0 < commands.count() {
            environment.work(0)?;
            let (mut repeated, mut commands_seen) = (0, 0);
            while self.next.0 < commands.count()
                && repeated + commands_seen < TRANSACTION_PART_MAX
                && self.probed.len() < ISOLATED_PART_MAX
            {
                repeated += self.collect_some(commands, TRANSACTION_PART_MAX - repeated, environment.spaces);
                commands_seen += 1;
            }
            environment.spend_on(repeated + commands_seen.div_ceil(ROUGH_PART));
            if self.probed.len() >= ISOLATED_PART_MAX {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Collects the next keys of a command, until there are enough, or `most` were collected before. Returns the number of those.
    fn collect_some(&mut self, commands: Commands<'_>, most: usize, spaces: Spaces) -> usize {
        let (name, arguments) = commands.get(self.next.0);
        let keys = name.key_indexes(arguments).skip(self.next.1).filter(|_| name.needs_lengths());
        let mut repeated = 0;
        for index in keys {
            if self.probed.len() >= ISOLATED_PART_MAX || repeated == most {
                return repeated;
            }
            self.next.1 += 1;
            let space = name.space_of_key(arguments, index, self.space, spaces);
            if self.lengths.note(space, arguments.get(index)) {
                self.probed.push((self.next.0 as u32, index as u32, space));
            } else {
                repeated += 1;
            }
        }
        self.choose_space(name, arguments, spaces);
        self.next = (self.next.0 + 1, 0);
        repeated
    }
}
