//! The client of a benchmark with a fixed rate. It sends each batch when it is due, without waiting for earlier
//! replies.
//!
//! ```text
//! due       │ 0 │ 1 │ 2 │ 3 │ …                 on each connection in turn
//! socket    ──0──1───────2─3──▶                 later than due, if the server throttles the connection
//! replies   ─────────0──1─────────2──3─▶
//! latency       └─ from the time when the batch was due ─┘
//! ```
//!
//! A client that waits for replies before it sends the next batch sends less while the server is slow. It then does not
//! measure the delays that other clients would have seen ("coordinated omission"). This client measures from the time
//! when a batch was due, even if the socket accepted it later.
//!
//! One thread owns all connections, so that on few cores the clients leave processor time to the server. It polls,
//! because waking up would be the largest part of a latency. The connections are assigned to the shards in turn. The
//! server forwards operations on keys of other shards.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use skep::{Reply, Request, Response, WireError};
use skep_client::ShardStream;
use skep_wire::native::{ReplyFrame, RequestFrameWriter};

use crate::cli::connect;
use crate::failure::reason;
use crate::password::Login;

use super::drive::{Findings, Limit, Plan};
use super::inserts::Inserts;
use super::interrupt;
use super::workload::{Draw, Values, append_key, operation};

/// A batch is encoded only if at most this many bytes wait for the socket.
const OUTPUT_SIZE_MAX: usize = 64 << 10;
/// The most bytes in one read.
const INPUT_SIZE: usize = 256 << 10;
/// The longest time without a reply while replies are due.
const PATIENCE: Duration = Duration::from_secs(10);

/// The flags of fixed rates.
#[derive(clap::Args, Debug)]
pub(crate) struct OfferFlags {
    /// Operations to send per second, all clients together, without waiting for earlier replies. Latencies then begin
    /// when an operation is due [default: a batch is sent after all replies to the last one].
    #[arg(long, value_name = "N", conflicts_with = "embedded", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) rate: Option<u64>,
    /// Search the greatest rate that the server sustains: --rate for --seconds at each of about 15 rates.
    #[arg(long, conflicts_with_all = ["embedded", "rate", "operations", "resp"])]
    pub(crate) saturate: bool,
    /// The 99th percentile of the latencies up to which a rate counts as sustained.
    #[arg(long, value_name = "TIME", requires = "saturate", default_value = "1ms", value_parser = crate::cli::life)]
    pub(crate) latency_max: Duration,
    /// File for a plot of latency against throughput.
    #[arg(long, value_name = "FILE", requires = "saturate")]
    pub(crate) svg: Option<PathBuf>,
}

/// Sends batches at a fixed rate, on its connections in turn.
pub(crate) struct Offerer {
    connections: Vec<Connection>,
}

impl Offerer {
    /// Opens connections to the shards in turn.
    pub(crate) fn connect(login: &Login, connection_count: usize) -> Result<Self, String> {
        let mut streams = Vec::new();
        while streams.len() < connection_count {
            streams.extend(connect(login)?.into_streams());
        }
        streams.truncate(connection_count);
        let connection = |stream| Connection {
            stream,
            output: Vec::new(),
            sent: 0,
            input: vec![0; INPUT_SIZE],
            end: 0,
            in_flight: VecDeque::new(),
        };
        Ok(Offerer { connections: streams.into_iter().map(connection).collect() })
    }

    /// Sends `rate` operations per second until the limit or a signal, then waits for the outstanding replies. After the last
    /// draw it begins again with the first one. Each connection inserts its own records.
    pub(crate) fn offer(
        &mut self,
        plan: &Plan,
        draws: &[Draw],
        inserts: &mut [Inserts],
        rate: f64,
        limit: Limit,
        seed: u64,
    ) -> Findings {
        let mut findings = Findings::new();
        let mut values = Values::new(plan.value_size, seed);
        let connection_count = self.connections.len() as u64;
        let schedule = Schedule { interval: plan.batch as f64 / rate };
        let (batch_count, last_size) = match limit {
            Limit::Operations(operations) => {
                let batch_count = operations.div_ceil(plan.batch as u64);
                (batch_count, operations - (batch_count - 1) * plan.batch as u64)
            }
            Limit::Time(time) => (schedule.due_count(time), plan.batch as u64),
        };
        let mut next_draw = 0;
        // Index of the next batch of each connection.
        let mut next: Vec<u64> = (0..connection_count).collect();
        let (mut unsent, mut due_count) = (batch_count, None);
        let begun = Instant::now();
        let mut last_change = begun;
        loop {
            let now = Instant::now();
            if interrupt::is_set() {
                // The batches that are due later are not missing.
                due_count.get_or_insert_with(|| schedule.due_count(now - begun).min(batch_count));
            }
            let is_over =
                due_count.is_some() || unsent == 0 || matches!(limit, Limit::Time(time) if now - begun >= time);
            let mut moved = false;
            for ((connection, next), inserts) in self.connections.iter_mut().zip(&mut next).zip(&mut *inserts) {
                let due = begun + schedule.due(*next);
                if !is_over && *next < batch_count && now >= due && connection.output.len() < OUTPUT_SIZE_MAX {
                    let count = if *next + 1 == batch_count { last_size as usize } else { plan.batch };
                    connection.encode(plan, draws, next_draw..next_draw + count, inserts, &mut values, due);
                    next_draw = (next_draw + count) % draws.len();
                    *next += connection_count;
                    unsent -= 1;
                }
                match connection.exchange(plan, draws, inserts, &mut findings) {
                    Ok(change) => moved |= change,
                    Err(error) => {
                        findings.error(plan.batch, || reason(&error));
                        return findings;
                    }
                }
            }
            if moved {
                last_change = now;
                continue;
            }
            let is_idle = self.connections.iter().all(|connection| connection.in_flight.is_empty());
            if is_idle && is_over {
                let due_count = due_count.unwrap_or(batch_count);
                findings.unsent = due_count.saturating_sub(batch_count - unsent) * plan.batch as u64;
                return findings;
            }
            if !is_idle && now - last_change > PATIENCE {
                findings.error(plan.batch, || "no more replies".to_owned());
                return findings;
            }
            std::thread::yield_now();
        }
    }
}

/// Batches at equal distances in time.
#[derive(Clone, Copy, Debug)]
struct Schedule {
    /// Seconds from one batch to the next.
    interval: f64,
}

impl Schedule {
    /// Returns when a batch is due, counted from the start.
    fn due(self, batch: u64) -> Duration {
        Duration::from_secs_f64(self.interval * batch as f64)
    }

    /// Returns how many batches are due before this time.
    fn due_count(self, time: Duration) -> u64 {
        (time.as_secs_f64() / self.interval).ceil() as u64
    }
}

/// A batch that was written to the socket or waits in the output.
struct InFlight {
    due: Instant,
    /// Index of its first operation among the draws.
    draw: usize,
    count: usize,
    replied: usize,
    executed: usize,
}

/// A connection and its batches in flight.
struct Connection {
    stream: ShardStream,
    output: Vec<u8>,
    sent: usize,
    input: Vec<u8>,
    /// Number of bytes in the input.
    end: usize,
    in_flight: VecDeque<InFlight>,
}

impl Connection {
    /// Appends a batch of operations to the output. The first has the draw at the begin of the range, and the others follow
    /// it, after the last draw again the first.
    fn encode(
        &mut self,
        plan: &Plan,
        draws: &[Draw],
        operations: Range<usize>,
        inserts: &mut Inserts,
        values: &mut Values,
        due: Instant,
    ) {
        let mut key = Vec::new();
        let (mut draw, mut left) = (operations.start, operations.len());
        // Record of the operation that did not fit into the last frame.
        let mut deferred = None;
        while left > 0 {
            let mut writer = RequestFrameWriter::new(&mut self.output, 0, plan.space);
            let frame_draw = draw;
            while left > 0 {
                key.clear();
                let record = deferred.take().unwrap_or_else(|| plan.record(draws[draw], inserts));
                append_key(plan.mix, draws[draw], plan.keys, record, &mut key);
                let value = values.next_start();
                let operation = operation(plan.mix, draws[draw], values.at(value));
                if !writer.push(&Request { key: &key, operation }) {
                    deferred = Some(record);
                    break;
                }
                draw = (draw + 1) % draws.len();
                left -= 1;
            }
            let count = usize::from(writer.count());
            writer.finish();
            self.in_flight.push_back(InFlight { due, draw: frame_draw, count, replied: 0, executed: 0 });
        }
    }

    /// Writes and reads as much as the socket accepts and has. Returns true if any byte moved.
    fn exchange(
        &mut self,
        plan: &Plan,
        draws: &[Draw],
        inserts: &mut Inserts,
        findings: &mut Findings,
    ) -> io::Result<bool> {
        let mut moved = false;
        if self.sent < self.output.len() {
            match self.stream.send(&self.output[self.sent..]) {
                Ok(size) => {
                    self.sent += size;
                    moved |= size > 0;
                }
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                Err(error) => return Err(error),
            }
            if self.sent == self.output.len() {
                self.output.clear();
                self.sent = 0;
            }
        }
        if self.in_flight.is_empty() {
            return Ok(moved);
        }
        if self.end == self.input.len() {
            self.input.resize(2 * self.end, 0);
        }
        match self.stream.receive(&mut self.input[self.end..]) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(size) => {
                self.end += size;
                moved = true;
                self.take_replies(plan, draws, inserts, findings)?;
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(error) => return Err(error),
        }
        Ok(moved)
    }

    /// Assigns the replies in the input to their batches.
    fn take_replies(
        &mut self,
        plan: &Plan,
        draws: &[Draw],
        inserts: &mut Inserts,
        findings: &mut Findings,
    ) -> io::Result<()> {
        let malformed = |error| io::Error::new(ErrorKind::InvalidData, error);
        let now = Instant::now();
        let mut used = 0;
        while let Some((frame, size)) = ReplyFrame::decode(&self.input[used..self.end]).map_err(malformed)? {
            let Some(batch) = self.in_flight.front_mut() else {
                return Err(io::Error::new(ErrorKind::InvalidData, "a reply without a request"));
            };
            for reply in frame.replies() {
                let reply: Response<'_> = reply.map_err(malformed)?;
                let draw = draws[(batch.draw + batch.replied) % draws.len()];
                batch.replied += 1;
                if plan.is_insert(draw) {
                    inserts.acknowledge(reply != Ok(Reply::Done));
                }
                if matches!(reply, Err(WireError::Busy | WireError::TooFast)) {
                    findings.refused += 1;
                } else {
                    batch.executed += 1;
                    findings.check(plan, draw, reply);
                }
            }
            if batch.replied >= batch.count {
                findings.batch(batch.executed, now - batch.due);
                self.in_flight.pop_front();
            }
            used += size;
        }
        self.input.copy_within(used..self.end, 0);
        self.end -= used;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Schedule;

    #[test]
    fn batches_have_equal_intervals() {
        let schedule = Schedule { interval: 100.0 / 1e6 };
        for batch in [0, 1, 7, 100_000] {
            assert_eq!(schedule.due(batch), Duration::from_micros(100 * batch));
        }
        for (microseconds, count) in [(0, 0), (1, 1), (100, 1), (101, 2), (950, 10)] {
            assert_eq!(schedule.due_count(Duration::from_micros(microseconds)), count);
        }
    }
}
