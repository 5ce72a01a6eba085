//! The connections that work. Each owns a few keys and knows their values, so it knows the bytes of every reply.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::net::sockopt::set_socket_linger;

use crate::soak::append;

/// Commands in a batch.
const DEPTH: usize = 16;
/// Keys of a connection.
const KEYS: usize = 8;
/// Sizes of the values.
const VALUE_SIZES: [usize; 3] = [5, 60, 400];
/// A server that sends nothing to any worker for this long has failed.
const PATIENCE: Duration = Duration::from_secs(30);
/// The longest latency that the histogram holds, in microseconds.
const LATENCY_MAX: u64 = 600_000_000;
/// Most errors that are reported in words.
const ERRORS_SHOWN: usize = 5;

/// The result of a phase.
pub(super) struct Phase {
    pub(super) operations: u64,
    pub(super) seconds: f64,
    /// Latencies of batches, in microseconds.
    pub(super) latencies: Histogram<u64>,
    pub(super) resets: u64,
    pub(super) error_count: u64,
    /// Descriptions of the first errors.
    pub(super) errors: Vec<String>,
}

/// All workers.
pub(super) struct Workers {
    address: SocketAddr,
    epoll: OwnedFd,
    workers: Vec<Worker>,
    random: Xoshiro256PlusPlus,
}

struct Worker {
    stream: TcpStream,
    /// Distinguishes the keys of this connection from those of all others.
    name: u64,
    values: [Option<Vec<u8>>; KEYS],
    /// The replies that the batch in flight must get, and those that have arrived.
    expected: Vec<u8>,
    arrived: Vec<u8>,
    sent: Instant,
}

impl Workers {
    /// Opens the connections.
    pub(super) fn connect(address: SocketAddr, count: usize) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let workers = (0..count).map(|name| Worker::connect(address, name as u64)).collect::<io::Result<Vec<_>>>()?;
        for (index, worker) in workers.iter().enumerate() {
            worker.watch(&epoll, index)?;
        }
        Ok(Workers { address, epoll, workers, random: Xoshiro256PlusPlus::seed_from_u64(1) })
    }

    /// Sends batches for this time, and resets a random connection in each interval.
    pub(super) fn run(
        &mut self,
        time: Duration,
        reset_interval: Option<Duration>,
        interrupted: &AtomicBool,
    ) -> Result<Phase, String> {
        let latencies = Histogram::new_with_bounds(1, LATENCY_MAX, 3).expect("the bounds are valid");
        let (resets, error_count, errors) = (0, 0, Vec::new());
        let mut phase = Phase { operations: 0, seconds: 0.0, latencies, resets, error_count, errors };
        let begun = Instant::now();
        let mut last_reply = begun;
        for index in 0..self.workers.len() {
            self.send(index, &mut phase)?;
        }
        let mut in_flight = self.workers.len();
        let mut buffer = vec![0; 64 << 10];
        let mut events = Vec::with_capacity(self.workers.len());
        while in_flight > 0 {
            events.clear();
            let timeout = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };
            match epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&timeout)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(format!("cannot poll: {error}")),
            }
            let is_over = begun.elapsed() >= time || interrupted.load(Ordering::Relaxed);
            for event in &events {
                let index = event.data.u64() as usize;
                let worker = &mut self.workers[index];
                if worker.expected.is_empty() {
                    continue;
                }
                last_reply = Instant::now();
                match worker.receive(&mut buffer) {
                    Ok(false) => continue,
                    Ok(true) => {
                        let micros = worker.sent.elapsed().as_micros() as u64;
                        phase.latencies.saturating_record(micros.clamp(1, LATENCY_MAX));
                        phase.operations += DEPTH as u64;
                    }
                    Err(reason) => {
                        phase.error(format!("{:.1?}: worker {index}: {reason}", begun.elapsed()));
                        self.replace(index)?;
                    }
                }
                if is_over {
                    in_flight -= 1;
                } else {
                    self.send(index, &mut phase)?;
                }
            }
            if last_reply.elapsed() > PATIENCE {
                return Err(format!("no reply to {in_flight} workers for {PATIENCE:?}"));
            }
            let is_due = reset_interval.is_some_and(|interval| begun.elapsed() >= interval * (phase.resets as u32 + 1));
            if is_due && !is_over {
                let index = self.random.random_range(0..self.workers.len());
                set_socket_linger(&self.workers[index].stream, Some(Duration::ZERO)).map_err(|e| e.to_string())?;
                self.replace(index)?;
                self.send(index, &mut phase)?;
                phase.resets += 1;
            }
        }
        phase.seconds = begun.elapsed().as_secs_f64();
        Ok(phase)
    }

    /// Sends a batch. A connection that cannot send is an error of the server, and replaced.
    fn send(&mut self, index: usize, phase: &mut Phase) -> Result<(), String> {
        if let Err(error) = self.workers[index].send(&mut self.random) {
            phase.error(format!("worker {index}: cannot send: {error}"));
            self.replace(index)?;
            self.workers[index].send(&mut self.random).map_err(|error| format!("cannot send: {error}"))?;
        }
        Ok(())
    }

    /// Closes a connection and opens another one with keys of its own.
    fn replace(&mut self, index: usize) -> Result<(), String> {
        let name = self.workers[index].name + self.workers.len() as u64;
        let worker = Worker::connect(self.address, name).map_err(|error| format!("cannot connect: {error}"))?;
        worker.watch(&self.epoll, index).map_err(|error| format!("cannot watch a connection: {error}"))?;
        self.workers[index] = worker;
        Ok(())
    }
}

impl Worker {
    fn connect(address: SocketAddr, name: u64) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        let (expected, arrived) = (Vec::new(), Vec::new());
        Ok(Worker { stream, name, values: Default::default(), expected, arrived, sent: Instant::now() })
    }

    fn watch(&self, epoll: &OwnedFd, index: usize) -> io::Result<()> {
        Ok(epoll::add(epoll, &self.stream, epoll::EventData::new_u64(index as u64), epoll::EventFlags::IN)?)
    }

    /// Sends a batch of random commands and notes the replies that it must get.
    fn send(&mut self, random: &mut Xoshiro256PlusPlus) -> io::Result<()> {
        let mut bytes = Vec::new();
        for _ in 0..DEPTH {
            let number = random.random_range(0..KEYS);
            let key = format!("worker:{}:{number}", self.name);
            if random.random_bool(0.5) {
                let size = VALUE_SIZES[random.random_range(0..VALUE_SIZES.len())];
                let value = vec![random.random_range(b'a'..=b'z'); size];
                append(&[b"SET", key.as_bytes(), &value], &mut bytes);
                self.values[number] = Some(value);
                self.expected.extend_from_slice(b"+OK\r\n");
            } else {
                append(&[b"GET", key.as_bytes()], &mut bytes);
                match &self.values[number] {
                    None => self.expected.extend_from_slice(b"$-1\r\n"),
                    Some(value) => {
                        self.expected.extend_from_slice(format!("${}\r\n", value.len()).as_bytes());
                        self.expected.extend_from_slice(value);
                        self.expected.extend_from_slice(b"\r\n");
                    }
                }
            }
        }
        self.sent = Instant::now();
        // A batch is smaller than a socket's buffer, which is empty, because all earlier replies have arrived.
        self.stream.write_all(&bytes)
    }

    /// Reads what has arrived. Returns true if all replies have arrived, or an error if one is wrong.
    fn receive(&mut self, buffer: &mut [u8]) -> Result<bool, String> {
        match self.stream.read(buffer) {
            Ok(0) => return Err("closed by the server".to_owned()),
            Ok(size) => self.arrived.extend_from_slice(&buffer[..size]),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => return Ok(false),
            Err(error) => return Err(error.to_string()),
        }
        if !self.expected.starts_with(&self.arrived) {
            let same = self.expected.iter().zip(&self.arrived).take_while(|(expected, arrived)| expected == arrived);
            let from = same.count();
            let end = self.arrived.len().min(from + 80);
            return Err(format!(
                "wrong reply at byte {from}: {:?}",
                self.arrived[from..end].escape_ascii().to_string()
            ));
        }
        let is_complete = self.arrived.len() == self.expected.len();
        if is_complete {
            self.expected.clear();
            self.arrived.clear();
        }
        Ok(is_complete)
    }
}

impl Phase {
    fn error(&mut self, description: String) {
        self.error_count += 1;
        if self.errors.len() < ERRORS_SHOWN {
            self.errors.push(description);
        }
    }

    /// Returns median, 99th percentile and maximum of the latencies, in milliseconds.
    pub(super) fn latencies(&self) -> [f64; 3] {
        [0.5, 0.99, 1.0].map(|quantile| self.latencies.value_at_quantile(quantile) as f64 / 1e3)
    }
}

#[cfg(test)]
mod tests {
    use skep_server::{Server, ServerSettings};

    use super::*;

    fn server() -> Server {
        let any = "127.0.0.1:0".parse().unwrap();
        let memory = 16 << 20;
        Server::start(&ServerSettings { native: any, resp: Some(any), memory, shards: 1, ..ServerSettings::default() })
            .unwrap()
    }

    #[test]
    fn workers_that_are_reset_cause_no_errors() {
        let server = server();
        let mut workers = Workers::connect(server.resp_address().unwrap(), 20).unwrap();
        let interval = Some(Duration::from_millis(1));
        let phase = workers.run(Duration::from_millis(200), interval, &AtomicBool::new(false)).unwrap();
        assert_eq!(phase.errors, Vec::<String>::new());
        assert!(phase.operations > 0 && phase.resets > 0);
        server.stop();
    }

    #[test]
    fn a_wrong_reply_and_a_closed_connection_are_errors() {
        let server = server();
        let mut workers = Workers::connect(server.resp_address().unwrap(), 2).unwrap();
        for worker in &mut workers.workers {
            worker.values.fill(Some(b"a value that no one has put".to_vec()));
        }
        let phase = workers.run(Duration::from_millis(50), None, &AtomicBool::new(false)).unwrap();
        assert_eq!(phase.error_count, 2);
        assert!(phase.errors[0].contains("wrong reply"), "{:?}", phase.errors);
        workers.workers[0].stream.shutdown(std::net::Shutdown::Both).unwrap();
        let phase = workers.run(Duration::from_millis(50), None, &AtomicBool::new(false)).unwrap();
        assert_eq!(phase.error_count, 1, "{:?}", phase.errors);
        server.stop();
    }
}
