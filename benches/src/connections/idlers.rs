//! The connections that hold the server up if they can: some read slowly, some say nothing.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use rustix::net::sockopt::set_socket_linger;

use super::RESET_INTERVAL;
use crate::soak::append;

/// The value that slow readers request.
const VALUE_SIZE: usize = 4096;
/// Requests of a slow reader that are sent at once.
const DEPTH: usize = 64;
/// Bytes that a slow reader reads at a time.
const SIP: usize = 1024;
/// Time between two reads of a slow reader.
const INTERVAL: Duration = Duration::from_millis(20);
const KEY: &[u8] = b"slow";

/// Counts of a run.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    /// Bytes that slow readers have read.
    pub(super) read: u64,
    pub(super) resets: u64,
    /// Connections that the server closed. It may close those that make no progress.
    pub(super) closed: u64,
}

/// All slow and silent connections.
pub(super) struct Idlers {
    address: SocketAddr,
    idlers: Vec<Idler>,
    random: Xoshiro256PlusPlus,
}

#[derive(Clone, Copy, Debug)]
enum Habit {
    ReadsSlowly,
    SaysNothing,
    SaysHalf,
}

struct Idler {
    habit: Habit,
    stream: TcpStream,
    /// Bytes of replies that have not been read.
    unread: usize,
}

impl Idlers {
    /// Puts the value that slow readers request, and opens the connections.
    pub(super) fn connect(address: SocketAddr, slow: usize, silent: usize) -> io::Result<Self> {
        let (mut put, mut reply) = (Vec::new(), [0; 5]);
        append(&[b"SET", KEY, &[b'x'; VALUE_SIZE]], &mut put);
        let mut stream = TcpStream::connect(address)?;
        stream.write_all(&put)?;
        stream.read_exact(&mut reply)?;
        let silent = (0..silent).map(|index| if index % 2 == 0 { Habit::SaysNothing } else { Habit::SaysHalf });
        let habits = std::iter::repeat_n(Habit::ReadsSlowly, slow).chain(silent);
        let idlers = habits.map(|habit| Idler::connect(address, habit)).collect::<io::Result<_>>()?;
        Ok(Idlers { address, idlers, random: Xoshiro256PlusPlus::seed_from_u64(2) })
    }

    /// Reads slowly and resets a random connection now and then, until `is_over` is set.
    pub(super) fn run(&mut self, is_over: &AtomicBool) -> io::Result<Tally> {
        let begun = Instant::now();
        let mut tally = Tally::default();
        while !is_over.load(Ordering::Relaxed) {
            for index in 0..self.idlers.len() {
                match self.idlers[index].sip() {
                    Ok(size) => tally.read += size as u64,
                    Err(_) => {
                        tally.closed += 1;
                        self.replace(index)?;
                    }
                }
            }
            if begun.elapsed() >= RESET_INTERVAL * (tally.resets as u32 + 1) {
                let index = self.random.random_range(0..self.idlers.len());
                set_socket_linger(&self.idlers[index].stream, Some(Duration::ZERO))?;
                self.replace(index)?;
                tally.resets += 1;
            }
            thread::sleep(INTERVAL);
        }
        Ok(tally)
    }

    fn replace(&mut self, index: usize) -> io::Result<()> {
        self.idlers[index] = Idler::connect(self.address, self.idlers[index].habit)?;
        Ok(())
    }
}

impl Idler {
    fn connect(address: SocketAddr, habit: Habit) -> io::Result<Self> {
        let mut stream = TcpStream::connect(address)?;
        if let Habit::SaysHalf = habit {
            stream.write_all(b"*3\r\n$3\r\nSET\r\n$4\r\nhalf\r\n$100\r\nbegins")?;
        }
        stream.set_nonblocking(true)?;
        Ok(Idler { habit, stream, unread: 0 })
    }

    /// Reads a few bytes of the replies, and requests more if none are left. Returns how many bytes were read; an error
    /// if the connection is closed.
    fn sip(&mut self) -> io::Result<usize> {
        if let (Habit::ReadsSlowly, 0) = (self.habit, self.unread) {
            let mut bytes = Vec::new();
            (0..DEPTH).for_each(|_| append(&[b"GET", KEY], &mut bytes));
            self.stream.write_all(&bytes)?;
            self.unread = DEPTH * format!("${VALUE_SIZE}\r\n\r\n").len() + DEPTH * VALUE_SIZE;
        }
        match self.stream.read(&mut [0; SIP]) {
            Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
            Ok(size) => {
                self.unread = self.unread.saturating_sub(size);
                Ok(size)
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(0),
            Err(error) => Err(error),
        }
    }
}
