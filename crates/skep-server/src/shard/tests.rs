//! Shards that are driven turn by turn, so that the waiting time of a client is counted in turns. The clock is the
//! test's: an operation takes as long as the test says.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use skep_core::operation::{Operation, PutCondition, Reply, Request};
use skep_wire::native::{ReplyFrame, RequestFrameWriter, WireError};
use skep_wire::partition::Partition;

use super::driven::{Driven, driven_shards};
use crate::access::Login;
use crate::connection::Connection;
use crate::delays::DelayCounts;
use crate::endpoint::Endpoint;
use crate::limits::TICK;
use crate::native_batch::NativeBatch;
use crate::parsed_batch::ParsedBatch;
use crate::resp_batch::RespBatch;
use crate::resp_command::Session;
use crate::settings::ServerSettings;
use crate::shared::Shared;
use crate::start::Steps;
use crate::transport::Transport;
use crate::transport::tcp::Tcp;
use crate::unix_time::{SharedClock, read_clocks};

mod admission;
mod efforts;
mod flushes;
mod folds;
mod forwarded_batches;
mod functions_space;
mod idle;
mod isolated_commands;
mod memcached_datagrams;
mod memory;
mod memory_admission;
mod memory_left;
mod pulse;
mod relative_times;
mod server_replies;
mod small_requests;
mod transaction_memory;
mod turn_work;
mod vectors;
mod visits;
mod watch_memory;

const MICROSECOND: Duration = Duration::from_micros(1);

/// Shards without threads, a clock and a listener for their clients.
struct Bench {
    shared: Arc<Shared>,
    shards: Vec<Driven<'static>>,
    listener: TcpListener,
    now: Instant,
    /// The time that a turn takes, and the time that it takes in addition for each operation.
    turn_cost: Duration,
    cost: Duration,
}

impl Bench {
    fn new(shards: u16, settings: &ServerSettings) -> Bench {
        let settings =
            ServerSettings { shards, ordered_memory: 0, memory: u64::from(shards) * (32 << 20), ..settings.clone() };
        // For the shards, which borrow from it: they live as long as the process of the test.
        let shared: &'static Arc<Shared> =
            Box::leak(Box::new(Arc::new(Shared::new(settings, None, None, 1, 2, SharedClock::new(read_clocks(), 0)))));
        let now = Instant::now();
        let shards = driven_shards(shared, now, &mut Steps::default()).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        Bench { shared: shared.clone(), shards, listener, now, turn_cost: MICROSECOND, cost: MICROSECOND }
    }

    fn connect(&mut self, shard: usize, parsed: ParsedBatch) -> Client {
        let stream = TcpStream::connect(self.listener.local_addr().unwrap()).unwrap();
        let (accepted, address) = self.listener.accept().unwrap();
        stream.set_nonblocking(true).unwrap();
        stream.set_nodelay(true).unwrap();
        accepted.set_nonblocking(true).unwrap();
        accepted.set_nodelay(true).unwrap();
        let number = self.shared.enter(address, address, 2);
        let endpoint = Endpoint::new(Connection::new(number, parsed, self.now), Transport::Tcp(Tcp::new(accepted)));
        self.shards[shard].hand_over(endpoint);
        Client { stream, received: Vec::new() }
    }

    fn resp(&mut self, shard: usize) -> Client {
        let parsed = ParsedBatch::Resp(RespBatch::boxed(self.shared.spaces(), Session::default()));
        self.connect(shard, parsed)
    }

    /// Connects a client to the first shard that has not logged in.
    fn stranger(&mut self) -> Client {
        let login = Login::anonymous(&self.shared.access).unwrap();
        let parsed = ParsedBatch::Resp(RespBatch::boxed(self.shared.spaces(), Session::new(login)));
        self.connect(0, parsed)
    }

    fn native(&mut self, shard: usize) -> Client {
        let parsed = ParsedBatch::Native(NativeBatch::new(self.shared.spaces(), Login::default()));
        self.connect(shard, parsed)
    }

    /// Lets a shard make a turn, which takes its time. Returns false if the shard found nothing to do.
    fn turn(&mut self, shard: usize) -> bool {
        let driven = &mut self.shards[shard];
        let executed = driven.turn(self.now);
        if let Some(executed) = executed {
            let spent = self.turn_cost + self.cost * u32::try_from(executed).unwrap();
            self.now += spent;
            driven.measure(self.now, spent);
        }
        executed.is_some()
    }

    /// Lets all shards make a turn. If none has anything to do, the next tick comes.
    fn turn_or_tick(&mut self) {
        let worked: Vec<bool> = (0..self.shards.len()).map(|shard| self.turn(shard)).collect();
        if !worked.contains(&true) {
            // The kernel may still move bytes between both ends of a connection: no client is slow meanwhile.
            std::thread::sleep(Duration::from_micros(100));
            self.now += TICK;
            self.shards.iter_mut().for_each(|driven| driven.tick(self.now));
        }
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

    /// Returns a key that a shard owns; another one for another number.
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
    /// Takes the bytes that have arrived. Returns the size of all so far.
    fn receive(&mut self) -> usize {
        let mut piece = vec![0; 256 << 10];
        loop {
            match self.stream.read(&mut piece) {
                Ok(0) => {
                    let end = &self.received[self.received.len().saturating_sub(200)..];
                    panic!("the connection ended after {} bytes: {}", self.received.len(), end.escape_ascii());
                }
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

/// Returns a command of many arguments.
fn long_command(name: &[u8], argument: &[u8], count: usize) -> Vec<u8> {
    let mut arguments = vec![name];
    arguments.extend(std::iter::repeat_n(argument, count));
    command(&arguments)
}

/// Connects clients whose commands have arrived except the last byte.
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
    let mut bench = Bench::new(1, &ServerSettings::default());
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
    let mut bench = Bench::new(2, &ServerSettings::default());
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
    let mut bench = Bench::new(1, &ServerSettings::default());
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

/// Counts the replies that a native client received, and the refusals among them; the others satisfy `is_right`.
fn refusals(client: &Client, is_right: impl Fn(Reply<'_>) -> bool) -> (usize, usize) {
    let (mut replies, mut refusals, mut rest) = (0, 0, &client.received[..]);
    while let Some((frame, size)) = ReplyFrame::decode(rest).unwrap() {
        for response in frame.replies() {
            replies += 1;
            match response.unwrap() {
                Err(WireError::Busy) => refusals += 1,
                response => assert!(response.is_ok_and(&is_right), "{response:?}"),
            }
        }
        rest = &rest[size..];
    }
    (replies, refusals)
}

fn with_bound(milliseconds: u64) -> ServerSettings {
    ServerSettings { delay_max: Some(Duration::from_millis(milliseconds)), ..ServerSettings::default() }
}

#[test]
fn a_first_batch_on_a_cold_store_is_not_refused() {
    let mut bench = Bench::new(1, &with_bound(10));
    // Memory is touched for the first time, all the time.
    bench.cost = 100 * MICROSECOND;
    let keys: Vec<[u8; 8]> = (0..32_768_u64).map(u64::to_le_bytes).collect();
    let put = Operation::Put { value: &[7; 16], condition: PutCondition::Always };
    let puts: Vec<Request<'_>> = keys.iter().map(|key| Request { key, operation: put }).collect();
    let mut client = bench.native(0);
    bench.send(&mut client, &frame(&puts));
    while bench.turn(0) {
        client.receive();
    }
    client.receive();
    assert_eq!(refusals(&client, |reply| reply == Reply::Done), (puts.len(), 0));
}

#[test]
fn clients_beside_slow_readers_are_not_refused() {
    let mut bench = Bench::new(1, &with_bound(100));
    bench.turn_cost = Duration::from_millis(2);
    let mut first = bench.resp(0);
    bench.ask(&mut first, &command(&[b"SET", b"large", &vec![b'v'; 300_000]]), 5);
    let mut slow: Vec<Client> = (0..100).map(|_| bench.resp(0)).collect();
    let gets = command(&[b"GET", b"large"]).repeat(50);
    slow.iter_mut().for_each(|client| bench.send(client, &gets));
    let mut quick: Vec<Client> = (0..10).map(|_| bench.resp(0)).collect();
    for _ in 0..50 {
        for client in &mut quick {
            bench.send(client, &command(&[b"SET", b"small", b"1"]));
        }
        for client in &mut quick {
            let turns = bench.turns_until(client, 5, 1000);
            assert!(turns <= 10, "{turns} turns");
            assert_eq!(std::mem::take(&mut client.received), b"+OK\r\n");
        }
    }
}

#[test]
fn delays_stay_under_the_bound_and_what_would_come_later_is_refused() {
    const OPERATIONS: usize = 10_000;
    let mut bench = Bench::new(1, &with_bound(100));
    let get = Request { key: b"missing", operation: Operation::Get };
    let gets = frame(&[get; OPERATIONS]);
    let mut hogs: Vec<Client> = (0..40).map(|_| bench.native(0)).collect();
    hogs.iter_mut().for_each(|hog| bench.send(hog, &gets));
    let mut modest = bench.native(0);
    let mut replied = 0;
    while bench.shards[0].shard.has_work() || bench.turn(0) {
        bench.ask(&mut modest, &frame(&[get]), 9);
        replied += 1;
        hogs.iter_mut().for_each(|hog| _ = hog.receive());
    }
    hogs.iter_mut().for_each(|hog| _ = hog.receive());
    let mut refused = 0;
    for hog in &hogs {
        let (replies, refusals) = refusals(hog, |reply| reply == Reply::NotFound);
        assert_eq!(replies, OPERATIONS);
        refused += refusals;
    }
    let mut delays = DelayCounts::default();
    bench.shared.metrics(0).add_delays_to(&mut delays);
    assert_eq!(delays.buckets().map(|(_, count)| count).sum::<u64>(), (40 * OPERATIONS + replied) as u64);
    // Four hundred thousand operations take 400 ms.
    assert!(refused > OPERATIONS, "{refused}");
    assert!(delays.quantile(1.0) < Duration::from_millis(125), "{delays:?}");
    assert_eq!(bench.shared.metrics(0).operations.refused.get(), refused as u64, "who asks for little is not refused");
}

#[test]
fn operations_without_memory_leave_the_turns_to_others() {
    for count in [1, 10, 600] {
        let mut bench = Bench::new(1, &ServerSettings::default());
        bench.shards[0].stores.defers_puts = true;
        let mut writers: Vec<Client> = (0..count).map(|_| bench.resp(0)).collect();
        for (number, writer) in writers.iter_mut().enumerate() {
            let key = format!("key{number}");
            let put = command(&[b"SET", key.as_bytes(), b"value"]);
            bench.send(writer, &[put, command(&[b"GET", key.as_bytes()])].concat());
        }
        let mut reader = bench.resp(0);
        for _ in 0..20 {
            (0..5).for_each(|_| _ = bench.turn(0));
            let Driven { shard, stores, .. } = &mut bench.shards[0];
            assert!(shard.is_stuck());
            // Nothing wakes it.
            shard.sleep(bench.now, stores);
            bench.send(&mut reader, &command(&[b"GET", b"missing"]));
            let turns = bench.turns_until(&mut reader, 5, 1000);
            assert!(turns <= 2, "{turns} turns beside {count}");
            reader.received.clear();
        }
        assert!(writers.iter_mut().all(|writer| writer.receive() == 0));
        bench.shards[0].stores.defers_puts = false;
        for writer in &mut writers {
            bench.turns_until(writer, 16, 100);
            assert_eq!(writer.received, b"+OK\r\n$5\r\nvalue\r\n", "in the order of the requests");
        }
        while bench.turn(0) {}
        assert!(!bench.shards[0].shard.is_stuck());
    }
}
