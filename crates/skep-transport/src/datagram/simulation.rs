//! A simulation of sessions over a network that loses, repeats and reorders packets. Time is a number, and everything
//! follows from one seed, so the same seed gives the same run.
//!
//! ```text
//!   clients ─▶ network: each packet is lost, or arrives after a delay, perhaps twice ─▶ server ─▶ network ─▶ clients
//! ```
//!
//! A step advances the time to the next arrival or deadline, delivers what is due, and lets both sides read, write and
//! send. Checked are the bytes that arrive, the memory of each session, and that every run ends in bounded time.
//!
//! A failing test prints its seed; `SKEP_SEED` repeats it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::hash::RandomState;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use rand::{Rng, RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use skep_store::naive;

use super::{Control, Cookies, Opening, PAYLOAD_SIZE_MAX, Packet, Role, Session, WINDOW_MAX};

/// A session holds as many packets in its window, and twice as many that leave; a buffer may be twice its content.
const MEMORY_MAX: usize = 8 * WINDOW_MAX * PAYLOAD_SIZE_MAX;
/// A run that takes longer never ends.
const TIME_MAX: Duration = Duration::from_secs(600);
const SERVER: usize = usize::MAX;

/// A packet in flight: when it arrives, its number, its sender, its receiver, and its bytes.
type InFlight = (Instant, u64, usize, usize, Vec<u8>);

/// A network with its faults, in thousandths.
struct Network {
    loss: u32,
    copies: u32,
    reordering: u32,
    random: Xoshiro256PlusPlus,
    /// By time, then in the order in which they were sent.
    in_flight: BinaryHeap<Reverse<InFlight>>,
    count: u64,
}

impl Network {
    fn new(faults: [u32; 3], seed: u64) -> Network {
        let [loss, copies, reordering] = faults;
        let random = Xoshiro256PlusPlus::seed_from_u64(seed);
        Network { loss, copies, reordering, random, in_flight: BinaryHeap::new(), count: 0 }
    }

    fn has_fault(&mut self, thousandths: u32) -> bool {
        self.random.random_ratio(thousandths, 1000)
    }

    fn send(&mut self, now: Instant, from: usize, to: usize, packet: &[u8]) {
        let copies = if self.has_fault(self.copies) { 2 } else { 1 };
        for _ in 0..copies {
            if self.has_fault(self.loss) {
                continue;
            }
            let late = if self.has_fault(self.reordering) { self.random.random_range(0..5_000) } else { 0 };
            let due = now + Duration::from_micros(100 + late);
            self.count += 1;
            self.in_flight.push(Reverse((due, self.count, from, to, packet.to_vec())));
        }
    }

    fn take_due(&mut self, now: Instant) -> Option<(usize, usize, Vec<u8>)> {
        self.next_arrival().filter(|due| *due <= now)?;
        let Reverse((_, _, from, to, packet)) = self.in_flight.pop()?;
        Some((from, to, packet))
    }

    fn next_arrival(&self) -> Option<Instant> {
        self.in_flight.peek().map(|Reverse((due, ..))| *due)
    }

    /// Sends all packets of a session.
    fn flush(&mut self, session: &mut Session, now: Instant, from: usize, to: usize) {
        assert!(session.memory() <= MEMORY_MAX, "{} bytes", session.memory());
        let mut packet = Vec::new();
        while session.next_packet(now, &mut packet) {
            self.send(now, from, to, &packet);
            packet.clear();
        }
    }
}

/// Returns this number of seeds, or the one in the variable.
fn seeds(count: u64) -> Vec<u64> {
    naive::seeds(&(0..count).collect::<Vec<_>>())
}

/// The byte at a position of the stream that client `number` sends, or gets.
fn byte_at(number: usize, position: u64) -> u8 {
    (position.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(number as u64) >> 32) as u8
}

/// A stream of bytes through two ends.
struct Stream {
    number: usize,
    size: u64,
    written: u64,
    read: u64,
    is_ended: bool,
}

impl Stream {
    fn new(number: usize, size: u64) -> Stream {
        Stream { number, size, written: 0, read: 0, is_ended: false }
    }

    fn write(&mut self, session: &mut Session, random: &mut impl Rng) {
        while self.written < self.size {
            let size = random.random_range(1..5000).min(self.size - self.written);
            let bytes: Vec<u8> = (self.written..self.written + size).map(|at| byte_at(self.number, at)).collect();
            let count = session.write(&bytes, usize::MAX);
            self.written += count as u64;
            if self.written == self.size {
                session.finish();
            }
            if count < bytes.len() {
                return;
            }
        }
    }

    /// Reads, and returns an error if a byte is not the one that was written.
    fn read(&mut self, session: &mut Session, random: &mut impl Rng) -> Result<(), String> {
        let mut buffer = [0; 3000];
        let room = random.random_range(1..buffer.len());
        while let Some(size) = session.read(&mut buffer[..room]) {
            if size == 0 {
                self.is_ended = true;
                break;
            }
            for &byte in &buffer[..size] {
                if byte != byte_at(self.number, self.read) {
                    return Err(format!("byte {} is wrong", self.read));
                }
                self.read += 1;
            }
            if random.random_ratio(1, 10) {
                // The reader is slow.
                break;
            }
        }
        if self.is_ended && self.read != self.size { Err(format!("{} bytes arrived", self.read)) } else { Ok(()) }
    }
}

/// Sends a stream in each direction of a session. Returns an error if other bytes arrive, or not all.
fn run_streams(seed: u64, faults: [u32; 3], is_broken: bool) -> Result<(), String> {
    let begun = Instant::now();
    let mut now = begun;
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut network = Network::new(faults, seed);
    let mut client = Session::new(7, Role::Client, PAYLOAD_SIZE_MAX, now);
    let mut server = Session::new(7, Role::Server, PAYLOAD_SIZE_MAX, now);
    if is_broken {
        server.take_twice();
    }
    let mut up = Stream::new(1, random.random_range(1..400_000));
    let mut down = Stream::new(2, random.random_range(1..400_000));
    while !(up.is_ended && down.is_ended && client.is_delivered()) {
        if now > begun + TIME_MAX {
            return Err(format!("{} and {} bytes arrived in {TIME_MAX:?}", up.read, down.read));
        }
        while let Some((_, to, packet)) = network.take_due(now) {
            let session = if to == SERVER { &mut server } else { &mut client };
            let Ok(Packet::Data(data)) = Packet::decode(&packet) else { panic!("only data is sent") };
            // Sometimes memory is short.
            let has_memory = !network.has_fault(network.loss / 4);
            _ = session.receive(&data, has_memory, now);
        }
        up.write(&mut client, &mut random);
        down.read(&mut client, &mut random)?;
        down.write(&mut server, &mut random);
        up.read(&mut server, &mut random)?;
        for session in [&mut client, &mut server] {
            if session.deadline().is_some_and(|deadline| deadline <= now) {
                session.on_deadline(now);
            }
        }
        client.wait(now);
        network.flush(&mut client, now, 0, SERVER);
        network.flush(&mut server, now, SERVER, 0);
        let readable = client.readable() + server.readable() > 0;
        let soon = readable.then(|| now + Duration::from_micros(50));
        let times = [network.next_arrival(), client.deadline(), server.deadline(), soon];
        let Some(next) = times.into_iter().flatten().min() else {
            return Err(format!("both sides wait after {} and {} bytes", up.read, down.read));
        };
        now = next.max(now);
    }
    Ok(())
}

#[test]
fn every_byte_arrives_once_and_in_order() {
    for seed in seeds(60) {
        for faults in [[0, 0, 0], [10, 10, 50], [100, 100, 200], [300, 300, 500]] {
            run_streams(seed, faults, false).unwrap_or_else(|error| panic!("SKEP_SEED={seed}, {faults:?}: {error}"));
        }
    }
}

#[test]
fn a_session_without_the_check_for_copies_is_found() {
    let runs: Vec<_> = seeds(10).into_iter().map(|seed| run_streams(seed, [10, 50, 50], true)).collect();
    assert!(runs.iter().all(Result::is_err), "{runs:?}");
}

/// A client that adds to a counter of the server, several requests at a time.
struct Adder {
    opening: Opening,
    session: Option<Session>,
    left: u64,
    in_flight: u64,
    last: Option<u64>,
    bytes: Vec<u8>,
}

/// The bytes of a request: the number to add.
const REQUEST_SIZE: usize = 8;
/// The bytes of a reply: the sum before it, and padding.
const REPLY_SIZE: usize = 40;

impl Adder {
    fn new(number: usize, count: u64, now: Instant) -> Adder {
        let opening = Opening::new(100 + number as u64, now);
        Adder { opening, session: None, left: count, in_flight: 0, last: None, bytes: Vec::new() }
    }

    fn is_done(&self) -> bool {
        self.left + self.in_flight == 0
    }

    fn receive(&mut self, packet: &[u8], now: Instant) {
        match (Packet::decode(packet).expect("packets are well-formed"), &mut self.session) {
            (Packet::Control(control), None) => {
                let number = self.opening.receive(control, now);
                self.session = number.map(|number| Session::new(number, Role::Client, PAYLOAD_SIZE_MAX, now));
            }
            (Packet::Control(Control::Unknown { session }), Some(own)) => {
                assert_ne!(session, own.number(), "the server keeps a session that is in use");
            }
            (Packet::Data(data), Some(session)) => _ = session.receive(&data, true, now),
            // A late reply to a hello.
            (Packet::Control(_), Some(_)) => {}
            (Packet::Data(_), None) => panic!("the session has not begun"),
        }
    }

    fn work(&mut self, depth: u64, now: Instant) -> Option<Control> {
        let Some(session) = &mut self.session else { return self.opening.hello(now) };
        if session.deadline().is_some_and(|deadline| deadline <= now) {
            session.on_deadline(now);
        }
        let mut buffer = [0; 1000];
        while let Some(size) = session.read(&mut buffer) {
            self.bytes.extend(&buffer[..size]);
        }
        let whole = self.bytes.len() / REPLY_SIZE;
        for reply in self.bytes.drain(..whole * REPLY_SIZE).as_slice().chunks(REPLY_SIZE) {
            let sum = u64::from_le_bytes(reply[..8].try_into().unwrap());
            assert!(self.last.replace(sum).is_none_or(|last| last < sum), "a client's own additions are in order");
            self.in_flight -= 1;
        }
        while self.in_flight < depth && self.left > 0 {
            assert_eq!(session.write(&1_u64.to_le_bytes(), usize::MAX), REQUEST_SIZE);
            (self.in_flight, self.left) = (self.in_flight + 1, self.left - 1);
        }
        if self.in_flight > 0 {
            session.wait(now);
        }
        None
    }

    fn deadline(&self) -> Option<Instant> {
        match &self.session {
            Some(session) => session.deadline(),
            None => Some(self.opening.deadline()),
        }
    }
}

/// The server's side: its sessions by client.
struct Server {
    cookies: Cookies,
    sessions: BTreeMap<usize, (u64, Session, Vec<u8>)>,
    sum: u64,
}

impl Server {
    /// Takes a packet. Returns the reply to a hello, or to a packet of no session.
    fn receive(&mut self, from: usize, packet: &[u8], now: Instant) -> Option<Control> {
        let address = SocketAddr::from(([127, 0, 0, 1], 1 + from as u16));
        match Packet::decode(packet).expect("packets are well-formed") {
            Packet::Control(Control::Hello { client, cookie }) => {
                if let Some(challenge) = self.cookies.check(address, client, cookie, now) {
                    return Some(challenge);
                }
                let cookies = &mut self.cookies;
                let (known, session, _) = self.sessions.entry(from).or_insert_with(|| {
                    (client, Session::new(cookies.session_number(), Role::Server, PAYLOAD_SIZE_MAX, now), Vec::new())
                });
                assert_eq!(*known, client);
                Some(Control::Accept { client, session: session.number() })
            }
            Packet::Control(control) => panic!("{control:?}"),
            Packet::Data(data) => {
                let Some((_, session, _)) = self.sessions.get_mut(&from) else {
                    return Some(Control::Unknown { session: data.session });
                };
                _ = session.receive(&data, true, now);
                None
            }
        }
    }

    fn work(&mut self, now: Instant) {
        for (_, session, bytes) in self.sessions.values_mut() {
            if session.deadline().is_some_and(|deadline| deadline <= now) {
                session.on_deadline(now);
            }
            let mut buffer = [0; 1000];
            while let Some(size) = session.read(&mut buffer) {
                bytes.extend(&buffer[..size]);
            }
            let whole = bytes.len() / REQUEST_SIZE;
            for request in bytes.drain(..whole * REQUEST_SIZE).as_slice().chunks(REQUEST_SIZE) {
                let mut reply = [7; REPLY_SIZE];
                reply[..8].copy_from_slice(&self.sum.to_le_bytes());
                assert_eq!(session.write(&reply, usize::MAX), REPLY_SIZE);
                self.sum += u64::from_le_bytes(request.try_into().unwrap());
            }
        }
    }
}

#[test]
fn additions_of_several_clients_happen_exactly_once() {
    for seed in seeds(20) {
        for faults in [[10, 10, 50], [150, 150, 300]] {
            let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
            let count = random.random_range(1..8);
            let additions = random.random_range(1..600);
            let depth = random.random_range(1..200);
            let begun = Instant::now();
            let mut now = begun;
            let mut network = Network::new(faults, seed);
            let mut clients: Vec<_> = (0..count).map(|number| Adder::new(number, additions, now)).collect();
            let cookies = Cookies::new(RandomState::new(), now);
            let mut server = Server { cookies, sessions: BTreeMap::new(), sum: 0 };
            while !clients.iter().all(Adder::is_done) {
                assert!(now < begun + TIME_MAX, "SKEP_SEED={seed}, {faults:?}: the sum is {}", server.sum);
                while let Some((from, to, packet)) = network.take_due(now) {
                    match to {
                        SERVER => {
                            if let Some(reply) = server.receive(from, &packet, now) {
                                assert!(reply.encode().len() <= packet.len(), "a reply is not larger");
                                network.send(now, SERVER, from, &reply.encode());
                            }
                        }
                        number => clients[number].receive(&packet, now),
                    }
                }
                server.work(now);
                for (number, client) in clients.iter_mut().enumerate() {
                    if let Some(hello) = client.work(depth, now) {
                        network.send(now, number, SERVER, &hello.encode());
                    }
                    if let Some(session) = &mut client.session {
                        network.flush(session, now, number, SERVER);
                    }
                }
                for (number, (_, session, _)) in &mut server.sessions {
                    network.flush(session, now, SERVER, *number);
                }
                let sessions = server.sessions.values().filter_map(|(_, session, _)| session.deadline());
                let deadlines =
                    clients.iter().filter_map(Adder::deadline).chain(sessions).chain(network.next_arrival());
                match deadlines.min() {
                    Some(next) => now = next.max(now),
                    None => assert!(clients.iter().all(Adder::is_done), "SKEP_SEED={seed}: all wait"),
                }
            }
            assert_eq!(server.sum, count as u64 * additions, "SKEP_SEED={seed}, {faults:?}");
        }
    }
}
