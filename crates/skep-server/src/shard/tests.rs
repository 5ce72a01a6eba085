//! Shards that are driven turn by turn, so that what a client waits for is counted in turns. The clock is the test's:
//! an operation takes as long as the test says.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use skep_store::operation::{Operation, PutCondition, Request};
use skep_store::processor::Processor;
use skep_wire::native::RequestFrameWriter;
use skep_wire::partition::Partition;

use super::{EVENTS_MAX, Handover, Parts, Shard};
use crate::chunk::Chunk;
use crate::connection::Connection;
use crate::exchange::connect_shards;
use crate::native_chunk::NativeChunk;
use crate::resp_chunk::RespChunk;
use crate::settings::ServerSettings;
use crate::shared::Shared;
use crate::spaces::Stores;

/// A shard and what it takes to drive it.
struct Driven {
    shard: Shard,
    stores: Stores<'static>,
    events: Vec<rustix::event::epoll::Event>,
}

/// Shards without threads, a clock and a listener for their clients.
struct Bench {
    shared: Arc<Shared>,
    shards: Vec<Driven>,
    listener: TcpListener,
    now: Instant,
    /// What a turn takes for each operation.
    cost: Duration,
}

impl Bench {
    fn new(shards: u16, settings: ServerSettings) -> Bench {
        let settings = ServerSettings { shards, ordered_memory: 0, memory: u64::from(shards) * (32 << 20), ..settings };
        let shared = Arc::new(Shared::new(settings, None, 1, 2));
        let rings = connect_shards(usize::from(shards)).unwrap();
        let (handovers, adopted): (Vec<_>, Vec<_>) = rings
            .iter()
            .map(|(waker, _)| {
                let (sender, receiver) = channel();
                (Handover { sender, waker: waker.clone() }, receiver)
            })
            .unzip();
        let shards = (0..shards)
            .zip(rings.into_iter().zip(adopted))
            .map(|(index, ((waker, peers), adopted))| {
                let processor = Processor::new(&shared.settings.store(u64::from(index))).unwrap();
                let parts = Parts {
                    index,
                    shared: shared.clone(),
                    partition: Partition::new(shared.partition_seed, shared.settings.shards),
                    listeners: None,
                    waker,
                    peers,
                    adopted,
                    handovers: handovers.clone(),
                };
                let shard = Shard::new(parts, &processor.statistics()).unwrap();
                Driven { shard, stores: Stores::new(processor, None), events: Vec::with_capacity(EVENTS_MAX) }
            })
            .collect();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        Bench { shared, shards, listener, now: Instant::now(), cost: Duration::from_micros(1) }
    }

    fn connect(&mut self, shard: usize, chunk: Chunk) -> Client {
        let stream = TcpStream::connect(self.listener.local_addr().unwrap()).unwrap();
        let (accepted, address) = self.listener.accept().unwrap();
        stream.set_nonblocking(true).unwrap();
        stream.set_nodelay(true).unwrap();
        accepted.set_nonblocking(true).unwrap();
        accepted.set_nodelay(true).unwrap();
        let number = self.shared.enter(address, address, 2);
        let handover = self.shards[shard].shard.parts.handovers[shard].clone();
        handover.sender.send(Box::new(Connection::new(accepted, number, chunk))).unwrap();
        Client { stream, received: Vec::new() }
    }

    fn resp(&mut self, shard: usize) -> Client {
        let chunk = Chunk::Resp(RespChunk::new(self.shared.spaces()));
        self.connect(shard, chunk)
    }

    fn native(&mut self, shard: usize) -> Client {
        let chunk = Chunk::Native(NativeChunk::new(self.shared.spaces()));
        self.connect(shard, chunk)
    }

    /// Lets a shard make a turn, which takes its time. Returns false if the shard found nothing to do.
    fn turn(&mut self, shard: usize) -> bool {
        let Driven { shard, stores, events } = &mut self.shards[shard];
        let worked = shard.turn(stores, events, self.now);
        if worked {
            let spent = self.cost * u32::try_from(shard.executed).unwrap() + Duration::from_micros(1);
            self.now += spent;
            shard.measure(self.now, spent);
        }
        worked
    }

    /// Lets all shards make turns until a reply of this size has arrived; returns how many turns the first one made.
    fn turns_until(&mut self, client: &mut Client, size: usize, turns_max: usize) -> usize {
        for turns in 0..turns_max {
            if client.receive() >= size {
                return turns;
            }
            for shard in 0..self.shards.len() {
                self.turn(shard);
            }
        }
        panic!("no reply within {turns_max} turns");
    }

    /// Lets the client send, while the shards take it.
    fn send(&mut self, client: &mut Client, bytes: &[u8]) {
        let mut sent = 0;
        while sent < bytes.len() {
            match client.stream.write(&bytes[sent..]) {
                Ok(count) => sent += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    (0..self.shards.len()).for_each(|shard| _ = self.turn(shard));
                }
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// Lets the client ask and wait for a reply of this size.
    fn ask(&mut self, client: &mut Client, bytes: &[u8], size: usize) -> Vec<u8> {
        self.send(client, bytes);
        self.turns_until(client, size, 100_000);
        std::mem::take(&mut client.received)
    }

    /// A key that a shard owns; another one for another number.
    fn key(&self, shard: u16, number: usize) -> Vec<u8> {
        let partition = Partition::new(self.shared.partition_seed, self.shared.settings.shards);
        let keys = (0_u32..).map(|number| format!("key{number}").into_bytes());
        keys.filter(|key| partition.shard_of(key) == shard).nth(number).unwrap()
    }
}

/// The other end of a connection.
struct Client {
    stream: TcpStream,
    received: Vec<u8>,
}

impl Client {
    /// Takes what has arrived; returns the size of all that has arrived.
    fn receive(&mut self) -> usize {
        let mut piece = vec![0; 256 << 10];
        loop {
            match self.stream.read(&mut piece) {
                Ok(0) => panic!("the connection ended after {} bytes", self.received.len()),
                Ok(size) => self.received.extend_from_slice(&piece[..size]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return self.received.len(),
                Err(error) => panic!("{error}"),
            }
        }
    }
}

fn command(arguments: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", arguments.len()).into_bytes();
    for argument in arguments {
        bytes.extend_from_slice(format!("${}\r\n", argument.len()).as_bytes());
        bytes.extend_from_slice(argument);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

fn frame(requests: &[Request<'_>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = RequestFrameWriter::new(&mut bytes, 1, 0);
    requests.iter().for_each(|request| assert!(writer.push(request)));
    writer.finish();
    bytes
}

/// A command of many arguments.
fn long_command(name: &[u8], argument: &[u8], count: usize) -> Vec<u8> {
    let mut arguments = vec![name];
    arguments.extend(std::iter::repeat_n(argument, count));
    command(&arguments)
}

/// Clients whose commands have arrived but for the last byte.
fn prepare(bench: &mut Bench, count: usize, command: &[u8]) -> Vec<Client> {
    let mut clients: Vec<Client> = (0..count).map(|_| bench.resp(0)).collect();
    for client in &mut clients {
        bench.send(client, &command[..command.len() - 1]);
    }
    while bench.turn(0) {}
    clients
}

#[test]
fn commands_of_many_keys_keep_a_get_waiting_for_few_turns() {
    let mut bench = Bench::new(1, ServerSettings::default());
    let request = long_command(b"EXISTS", b"missing", 100_000);
    for hog_count in [1, 5, 40] {
        let mut hogs = prepare(&mut bench, hog_count, &request);
        hogs.iter_mut().for_each(|hog| bench.send(hog, b"\n"));
        let mut modest = bench.resp(0);
        for _ in 0..10 {
            bench.turn(0);
            modest.received.clear();
            bench.send(&mut modest, &command(&[b"GET", b"small"]));
            let turns = bench.turns_until(&mut modest, 5, 1000);
            // Four connections fill a batch, and each has waited for those before it.
            assert!(turns <= 1 + hog_count.div_ceil(4), "{turns} turns beside {hog_count} commands");
        }
        for hog in &mut hogs {
            bench.turns_until(hog, 4, 100_000);
            assert_eq!(hog.received, b":0\r\n");
        }
    }
}

#[test]
fn large_values_for_other_shards_keep_a_local_get_waiting_for_few_turns() {
    let mut bench = Bench::new(2, ServerSettings::default());
    let (large, small) = (bench.key(0, 0), bench.key(0, 1));
    let put = Operation::Put { value: &vec![7; 300_000], condition: PutCondition::Always };
    let mut local = bench.native(0);
    bench.ask(&mut local, &frame(&[Request { key: &large, operation: put }]), 9);
    let gets = frame(&vec![Request { key: &large, operation: Operation::Get }; 500]);
    let mut hogs: Vec<Client> = (0..20).map(|_| bench.native(1)).collect();
    hogs.iter_mut().for_each(|hog| bench.send(hog, &gets));
    let get = frame(&[Request { key: &small, operation: Operation::Get }]);
    for _ in 0..20 {
        bench.send(&mut local, &get);
        let mut turns = 0;
        while local.receive() == 0 {
            // The inbox of the first shard is never empty, and the hogs take their replies.
            (0..3).for_each(|_| _ = bench.turn(1));
            bench.turn(0);
            hogs.iter_mut().for_each(|hog| _ = hog.receive());
            turns += 1;
            assert!(turns <= 3, "{turns} turns");
        }
        local.received.clear();
    }
}

#[test]
fn numbers_are_decoded_in_parts() {
    const CONNECTIONS: usize = 8;
    const NUMBERS: usize = 1 << 18;
    let mut bench = Bench::new(1, ServerSettings::default());
    let mut arguments: Vec<&[u8]> = vec![b"SKEP.SET", b"k", b"u8"];
    arguments.extend(std::iter::repeat_n(&b"7"[..], NUMBERS));
    let request = command(&arguments);
    let mut hogs = prepare(&mut bench, CONNECTIONS, &request);
    hogs.iter_mut().for_each(|hog| bench.send(hog, b"\n"));
    let mut modest = bench.resp(0);
    let mut turns = 0;
    while hogs.iter_mut().any(|hog| hog.receive() == 0) {
        modest.received.clear();
        bench.send(&mut modest, &command(&[b"GET", b"small"]));
        let waited = bench.turns_until(&mut modest, 5, 1000);
        assert!(waited <= 1 + CONNECTIONS, "{waited} turns");
        turns += waited;
    }
    // Sixteen megabytes of numbers.
    assert!(turns >= CONNECTIONS * request.len() / (4 << 20), "all decoded in {turns} turns");
    assert!(hogs.iter().all(|hog| hog.received == b"+OK\r\n"));
}
