//! A relay between clients and a server that loses, repeats and reorders real UDP packets. The faults follow from a seed.
//!
//! ```text
//!   clients ─▶ front socket ─▶ lost, late or twice ─▶ a socket for each client ─▶ server, and the same way back
//! ```

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Thousandths of the packets that are lost, sent twice, or late.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Faults {
    pub(crate) loss: u32,
    pub(crate) copies: u32,
    pub(crate) reordering: u32,
}

/// A relay that runs until it is dropped.
pub(crate) struct Relay {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    is_over: AtomicBool,
    loses_replies: AtomicBool,
    lost: AtomicU64,
}

impl Relay {
    /// Starts a relay to the server at this address.
    pub(crate) fn start(server: SocketAddr, faults: Faults, seed: u64) -> Relay {
        let front = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = front.local_addr().unwrap();
        let shared = Arc::new(Shared::default());
        let state = Running {
            front,
            server,
            faults,
            shared: shared.clone(),
            random: Xoshiro256PlusPlus::seed_from_u64(seed),
            clients: Vec::new(),
            indexes: HashMap::new(),
            late: BinaryHeap::new(),
        };
        Relay { address, shared, thread: Some(thread::spawn(move || state.run())) }
    }

    /// Loses everything that the server sends, or no longer does.
    pub(crate) fn lose_replies(&self, loses: bool) {
        self.shared.loses_replies.store(loses, Ordering::SeqCst);
    }

    /// Returns the number of packets that were lost.
    pub(crate) fn lost(&self) -> u64 {
        self.shared.lost.load(Ordering::SeqCst)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::SeqCst);
        self.thread.take().map(JoinHandle::join);
    }
}

/// A packet's client, its direction, and its bytes.
type Late = Reverse<(Instant, u64, usize, bool, Vec<u8>)>;

struct Running {
    front: UdpSocket,
    server: SocketAddr,
    faults: Faults,
    shared: Arc<Shared>,
    random: Xoshiro256PlusPlus,
    /// The address of each client, and its socket to the server.
    clients: Vec<(SocketAddr, UdpSocket)>,
    indexes: HashMap<SocketAddr, usize>,
    late: BinaryHeap<Late>,
}

impl Running {
    fn run(mut self) {
        self.front.set_nonblocking(true).unwrap();
        let mut packet = [0; 2048];
        while !self.shared.is_over.load(Ordering::SeqCst) {
            self.wait();
            while let Ok((size, from)) = self.front.recv_from(&mut packet) {
                let index = self.index_of(from);
                self.pass(index, true, &packet[..size]);
            }
            for index in 0..self.clients.len() {
                // A server that was stopped makes the system report an error.
                while let Ok(size) = self.clients[index].1.recv(&mut packet) {
                    if !self.shared.loses_replies.load(Ordering::SeqCst) {
                        self.pass(index, false, &packet[..size]);
                    }
                }
            }
            while self.late.peek().is_some_and(|Reverse((due, ..))| *due <= Instant::now()) {
                let Some(Reverse((_, _, index, to_server, bytes))) = self.late.pop() else { break };
                self.send(index, to_server, &bytes);
            }
        }
    }

    fn wait(&self) {
        let due = self.late.peek().map(|Reverse((due, ..))| due.saturating_duration_since(Instant::now()));
        let left = due.unwrap_or(Duration::from_millis(20)).min(Duration::from_millis(20));
        let sockets = self.clients.iter().map(|(_, socket)| socket).chain([&self.front]);
        let mut polled: Vec<_> = sockets.map(|socket| PollFd::new(socket, PollFlags::IN)).collect();
        let _ = poll(&mut polled, Timespec::try_from(left).ok().as_ref());
    }

    fn index_of(&mut self, client: SocketAddr) -> usize {
        *self.indexes.entry(client).or_insert_with(|| {
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            socket.connect(self.server).unwrap();
            socket.set_nonblocking(true).unwrap();
            self.clients.push((client, socket));
            self.clients.len() - 1
        })
    }

    fn pass(&mut self, index: usize, to_server: bool, bytes: &[u8]) {
        let copies = if self.random.random_ratio(self.faults.copies, 1000) { 2 } else { 1 };
        for _ in 0..copies {
            if self.random.random_ratio(self.faults.loss, 1000) {
                self.shared.lost.fetch_add(1, Ordering::SeqCst);
            } else if self.random.random_ratio(self.faults.reordering, 1000) {
                let due = Instant::now() + Duration::from_micros(self.random.random_range(0..3000));
                self.late.push(Reverse((due, self.random.random_range(0..u64::MAX), index, to_server, bytes.to_vec())));
            } else {
                self.send(index, to_server, bytes);
            }
        }
    }

    fn send(&self, index: usize, to_server: bool, bytes: &[u8]) {
        let (client, socket) = &self.clients[index];
        // A packet that cannot be sent is lost.
        let _ = if to_server { socket.send(bytes) } else { self.front.send_to(bytes, client) };
    }
}
