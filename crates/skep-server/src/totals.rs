//! The sums of the counters of all shards since the start, or since `CONFIG RESETSTAT`.
//!
//! Only a shard writes its counters. So they are never reset: `CONFIG RESETSTAT` stores the sums of that moment, and
//! they are subtracted later.

use crate::command_metrics::COMMAND_COUNT;
use crate::command_metrics::{CommandMetrics, ERROR_PREFIXES};
use crate::counter::Counter;
use crate::delays::DelayCounts;
use crate::memcached_counts::COUNT_COUNT;
use crate::metrics::Metrics;

/// Declares [`Totals`] and its sums together.
macro_rules! totals {
    ($($field:ident: $($counter:ident).+;)*) => {
        /// The sums of counters.
        #[derive(Clone, Debug, Default)]
        pub(crate) struct Totals { $(pub(crate) $field: u64),* }

        impl Totals {
            /// Returns the sums over shards.
            pub(crate) fn of<'a>(shards: impl Iterator<Item = &'a Metrics> + Clone) -> Totals {
                let sum = |counter: fn(&Metrics) -> &Counter| shards.clone().map(|metrics| counter(metrics).get()).sum();
                Totals { $($field: sum(|metrics| &metrics.$($counter).+)),* }
            }

            /// Returns what was added since `earlier`.
            pub(crate) fn since(&self, earlier: &Totals) -> Totals {
                Totals { $($field: self.$field.saturating_sub(earlier.$field)),* }
            }
        }
    };
}

totals! {
    connections_accepted: connections.accepted;
    connections_refused: connections.refused;
    passwords_refused: passwords_refused;
    operations_native: operations.native;
    operations: operations.executed;
    operations_forwarded: operations.forwarded;
    input_bytes: input_bytes;
    output_bytes: output_bytes;
    error_replies: error_replies;
    protocol_errors: protocol_errors;
    hits: store.hits;
    misses: store.misses;
    expired: store.expired;
}

/// The sums of the counters of one command.
#[derive(Clone, Debug, Default)]
pub(crate) struct CommandTotals {
    pub(crate) calls: u64,
    pub(crate) nanoseconds: u64,
    pub(crate) rejected: u64,
    pub(crate) failed: u64,
    pub(crate) delays: DelayCounts,
}

impl CommandTotals {
    /// Returns the sums of a command over shards.
    pub(crate) fn of<'a>(command: usize, shards: impl Iterator<Item = &'a Metrics>) -> CommandTotals {
        let mut totals = CommandTotals::default();
        for metrics in shards {
            let CommandMetrics { calls, nanoseconds, rejected, failed, delays } = metrics.commands.of(command);
            totals.calls += calls.get();
            totals.nanoseconds += nanoseconds.get();
            totals.rejected += rejected.get();
            totals.failed += failed.get();
            delays.add_to(&mut totals.delays);
        }
        totals
    }

    fn subtract(&mut self, earlier: &CommandTotals) {
        self.calls = self.calls.saturating_sub(earlier.calls);
        self.nanoseconds = self.nanoseconds.saturating_sub(earlier.nanoseconds);
        self.rejected = self.rejected.saturating_sub(earlier.rejected);
        self.failed = self.failed.saturating_sub(earlier.failed);
        self.delays.subtract(&earlier.delays);
    }
}

/// The sums at the last `CONFIG RESETSTAT`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Baseline {
    totals: Totals,
    /// By command; empty before the first reset.
    commands: Vec<CommandTotals>,
    errors: [u64; ERROR_PREFIXES.len()],
    memcached: [u64; COUNT_COUNT],
}

fn errors_of<'a>(shards: &(impl Iterator<Item = &'a Metrics> + Clone)) -> [u64; ERROR_PREFIXES.len()] {
    std::array::from_fn(|index| shards.clone().map(|metrics| metrics.errors.get(index)).sum())
}

fn memcached_of<'a>(shards: impl Iterator<Item = &'a Metrics>) -> [u64; COUNT_COUNT] {
    let mut sums = [0; COUNT_COUNT];
    shards.for_each(|metrics| metrics.memcached.add_to(&mut sums));
    sums
}

impl Baseline {
    /// Returns the sums over shards at this moment.
    pub(crate) fn of<'a>(shards: impl Iterator<Item = &'a Metrics> + Clone) -> Baseline {
        Baseline {
            commands: (0..COMMAND_COUNT).map(|command| CommandTotals::of(command, shards.clone())).collect(),
            errors: errors_of(&shards),
            memcached: memcached_of(shards.clone()),
            totals: Totals::of(shards),
        }
    }

    /// Lets the sums begin at this moment that the statistics of memcached's protocol show.
    pub(crate) fn reset_memcached<'a>(&mut self, shards: impl Iterator<Item = &'a Metrics> + Clone) {
        self.memcached = memcached_of(shards.clone());
        self.totals = Totals::of(shards);
    }

    /// Returns the sums since then.
    pub(crate) fn totals<'a>(&self, shards: impl Iterator<Item = &'a Metrics> + Clone) -> Totals {
        Totals::of(shards).since(&self.totals)
    }

    /// Returns the number of commands that were executed since then.
    pub(crate) fn calls<'a>(&self, shards: impl Iterator<Item = &'a Metrics>) -> u64 {
        let calls =
            |metrics: &Metrics| (0..COMMAND_COUNT).map(|command| metrics.commands.of(command).calls.get()).sum::<u64>();
        let earlier: u64 = self.commands.iter().map(|totals| totals.calls).sum();
        shards.map(calls).sum::<u64>().saturating_sub(earlier)
    }

    /// Returns the sums of a command since then.
    pub(crate) fn command<'a>(&self, command: usize, shards: impl Iterator<Item = &'a Metrics>) -> CommandTotals {
        let mut totals = CommandTotals::of(command, shards);
        if let Some(earlier) = self.commands.get(command) {
            totals.subtract(earlier);
        }
        totals
    }

    /// Returns the counts of memcached's commands since then.
    pub(crate) fn memcached<'a>(&self, shards: impl Iterator<Item = &'a Metrics>) -> [u64; COUNT_COUNT] {
        let now = memcached_of(shards);
        std::array::from_fn(|index| now[index].saturating_sub(self.memcached[index]))
    }

    /// Returns the numbers of errors since then, in the order of [`ERROR_PREFIXES`].
    pub(crate) fn errors<'a>(
        &self,
        shards: &(impl Iterator<Item = &'a Metrics> + Clone),
    ) -> [u64; ERROR_PREFIXES.len()] {
        let now = errors_of(shards);
        std::array::from_fn(|index| now[index].saturating_sub(self.errors[index]))
    }
}
