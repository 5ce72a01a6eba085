//! What has happened between two states of a server.

use std::collections::{BTreeMap, HashMap};

use serde::Serialize;

use crate::live::{HotKey, Log, Slow, Space, State};

/// Seconds that the history keeps: as many columns of the terminal.
pub(super) const LENGTH: usize = 240;

/// The states so far.
#[derive(Debug, Default)]
pub(super) struct History {
    pub(super) last: State,
    /// The state before it, if both are of one run of the server.
    before: Option<State>,
    /// Operations a second, and the 99th percentile of their delays in nanoseconds.
    pub(super) rates: Vec<u64>,
    pub(super) delays: Vec<u64>,
    /// Why the last request had no reply.
    pub(super) trouble: Option<String>,
}

impl History {
    /// Adds a state.
    pub(super) fn add(&mut self, state: State) {
        let before = std::mem::replace(&mut self.last, state);
        // A server that has started again counts from 0.
        self.before = (before.uptime > 0.0 && before.uptime < self.last.uptime).then_some(before);
        self.trouble = None;
        if self.before.is_some() {
            let (rate, delay) = (self.rate(|state| state.operations), self.delay(0.99));
            keep(&mut self.rates, rate as u64);
            keep(&mut self.delays, (delay * 1e9) as u64);
        }
    }

    /// Records that a request had no reply.
    pub(super) fn miss(&mut self, trouble: String) {
        self.trouble = Some(trouble);
        self.before = None;
    }

    /// Returns what a count has grown by in a second.
    pub(super) fn rate(&self, count: impl Fn(&State) -> u64) -> f64 {
        self.before.as_ref().map_or(0.0, |before| self.per_second(before, count(before), count(&self.last)))
    }

    fn per_second(&self, before: &State, from: u64, to: u64) -> f64 {
        to.saturating_sub(from) as f64 / (self.last.uptime - before.uptime)
    }

    /// Returns the delay that this part of the operations between the states has not exceeded, in seconds; 0 if there were
    /// none.
    pub(super) fn delay(&self, part: f64) -> f64 {
        let Some(before) = &self.before else { return 0.0 };
        let counts: HashMap<u64, u64> = before.delays.iter().map(|(end, count)| (end.to_bits(), *count)).collect();
        let grown =
            |(end, count): &(f64, u64)| (*end, count.saturating_sub(counts.get(&end.to_bits()).copied().unwrap_or(0)));
        let grown: Vec<(f64, u64)> = self.last.delays.iter().map(grown).collect();
        let wanted = part * grown.iter().map(|(_, count)| count).sum::<u64>() as f64;
        let mut met = 0;
        let found = grown.iter().find(|(_, count)| {
            met += count;
            *count > 0 && met as f64 >= wanted
        });
        found.map_or(0.0, |(end, _)| *end)
    }

    /// Returns the commands of RESP that were called, and their calls a second, the most frequent first.
    pub(super) fn commands(&self) -> Vec<(&str, f64)> {
        let Some(before) = &self.before else { return Vec::new() };
        let counts: HashMap<&str, u64> = before.commands.iter().map(|(name, calls)| (name.as_str(), *calls)).collect();
        let rate = |(name, calls): &'_ (String, u64)| {
            self.per_second(before, counts.get(name.as_str()).copied().unwrap_or(0), *calls)
        };
        let all = self.last.commands.iter().map(|command| (command.0.as_str(), rate(command)));
        let mut called: Vec<(&str, f64)> = all.filter(|(_, rate)| *rate > 0.0).collect();
        called.sort_by(|one, other| other.1.total_cmp(&one.1));
        called
    }

    /// Returns the operations a second of each shard.
    pub(super) fn shards(&self) -> Vec<f64> {
        let of = |index: usize| self.rate(|state| state.shards.get(index).copied().unwrap_or(0));
        (0..self.last.shards.len()).map(of).collect()
    }
}

/// The metrics of `--once --json`.
#[derive(Debug, Serialize)]
struct Metrics<'a> {
    version: &'a str,
    uptime_seconds: f64,
    operations_per_second: f64,
    forwarded_per_second: f64,
    refused_per_second: f64,
    /// The delays that half, 99 % and 99.9 % of the operations have not exceeded.
    delay_seconds: [f64; 3],
    connections: u64,
    connection_memory: u64,
    input_bytes_per_second: f64,
    output_bytes_per_second: f64,
    spaces: &'a [Space],
    evictions_per_second: Option<f64>,
    log: Option<&'a Log>,
    commands_per_second: BTreeMap<&'a str, f64>,
    shard_operations_per_second: Vec<f64>,
    hot_keys: Option<&'a [HotKey]>,
    slow: &'a [Slow],
}

impl History {
    /// Returns the metrics of the last second as JSON.
    pub(super) fn json(&self) -> String {
        let state = &self.last;
        let metrics = Metrics {
            version: &state.version,
            uptime_seconds: state.uptime,
            operations_per_second: self.rate(|state| state.operations),
            forwarded_per_second: self.rate(|state| state.forwarded),
            refused_per_second: self.rate(|state| state.refused),
            delay_seconds: [0.5, 0.99, 0.999].map(|part| self.delay(part)),
            connections: state.connections,
            connection_memory: state.connection_memory,
            input_bytes_per_second: self.rate(|state| state.input_bytes),
            output_bytes_per_second: self.rate(|state| state.output_bytes),
            spaces: &state.spaces,
            evictions_per_second: state.evictions.map(|_| self.rate(|state| state.evictions.unwrap_or(0))),
            log: state.log.as_ref(),
            commands_per_second: self.commands().into_iter().collect(),
            shard_operations_per_second: self.shards(),
            hot_keys: state.hot_keys.as_deref(),
            slow: &state.slow,
        };
        serde_json::to_string(&metrics).expect("its names and numbers are JSON")
    }
}

/// Adds a number, and drops the oldest of too many.
fn keep(numbers: &mut Vec<u64>, number: u64) {
    if numbers.len() == LENGTH {
        numbers.remove(0);
    }
    numbers.push(number);
}

#[cfg(test)]
mod tests {
    use super::History;
    use crate::live::State;

    fn state(uptime: f64, operations: u64, delays: &[(f64, u64)]) -> State {
        let commands =
            vec![("get".to_owned(), operations / 4), ("set".to_owned(), operations / 2), ("ping".to_owned(), 7)];
        State { uptime, operations, delays: delays.to_vec(), commands, shards: vec![operations], ..State::default() }
    }

    #[test]
    fn figures_are_those_between_two_states() {
        let mut history = History::default();
        history.add(state(10.0, 100, &[(1e-6, 90), (1e-3, 10)]));
        assert_eq!((history.rate(|state| state.operations), history.delay(0.5)), (0.0, 0.0));
        // Two seconds later: 400 operations more, of which 4 took a millisecond.
        history.add(state(12.0, 500, &[(1e-6, 90), (1e-5, 396), (1e-3, 14)]));
        assert_eq!(history.rate(|state| state.operations), 200.0);
        assert_eq!((history.delay(0.5), history.delay(0.99), history.delay(0.995)), (1e-5, 1e-5, 1e-3));
        assert_eq!(history.commands(), [("set", 100.0), ("get", 50.0)]);
        assert_eq!((history.shards(), history.rates.as_slice()), (vec![200.0], &[200][..]));
        let json = history.json();
        for part in ["\"operations_per_second\":200.0", "{\"get\":50.0,\"set\":100.0}", "[0.00001,0.00001,0.001]"] {
            assert!(json.contains(part), "{json} lacks {part}");
        }
        // The server has started again.
        history.add(state(1.0, 50, &[(1e-6, 50)]));
        assert_eq!((history.rate(|state| state.operations), history.commands().len()), (0.0, 0));
        history.add(state(2.0, 80, &[(1e-6, 80)]));
        assert_eq!(history.rate(|state| state.operations), 30.0);
        history.miss("gone".to_owned());
        assert_eq!(history.rate(|state| state.operations), 0.0);
    }
}
