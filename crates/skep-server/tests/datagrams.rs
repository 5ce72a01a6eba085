//! Tests the UDP ports with packets that no client of ours sends: malformed, forged, repeated, and far too many of them.
//! Each is dropped and counted with its reason, no reply is larger than its packet, and other clients are served.

mod support;

use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use skep_core::operation::{Operation, PutCondition, Request};
use skep_server::{Server, ServerSettings};
use skep_transport::datagram::{Control, Data, DatagramStream, Dropped, Opening, Packet, WINDOW_MAX};
use skep_wire::native::{Hello, ReplyFrame, Welcome};
use support::{Resp, frame, seeds};

const TIMEOUT: Duration = Duration::from_secs(60);

fn start(connections_max: usize) -> (Server, SocketAddr) {
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let settings = ServerSettings {
        native: any,
        resp: Some(any),
        udp: Some(any),
        memory: 32 << 20,
        connections_max,
        ..ServerSettings::default()
    };
    let server = Server::start(&settings).expect("the server starts");
    let address = server.udp_address().expect("it has a UDP port");
    (server, address)
}

/// A client that shows that the server serves others.
struct Witness {
    stream: DatagramStream,
    sequence: u32,
}

impl Witness {
    fn connect(address: SocketAddr) -> Witness {
        let mut stream = DatagramStream::connect(address, TIMEOUT).expect("the server accepts");
        stream.send(&Hello::new(None).encode()).unwrap();
        let mut welcome = [0; Welcome::SIZE];
        assert_eq!(stream.receive_within(&mut welcome, TIMEOUT).unwrap(), Some(Welcome::SIZE));
        Welcome::decode(&welcome).unwrap().expect("a whole welcome");
        Witness { stream, sequence: 0 }
    }

    /// Makes a round trip.
    fn check(&mut self) {
        let request = frame(self.sequence, &[Request { key: b"k", operation: Operation::Get }]);
        assert_eq!(self.stream.send(&request).unwrap(), request.len());
        let mut reply = [0; 100];
        let size = self.stream.receive_within(&mut reply, TIMEOUT).unwrap().expect("a reply in time");
        let (reply, _) = ReplyFrame::decode(&reply[..size]).unwrap().expect("a whole frame");
        assert_eq!((reply.sequence, reply.count), (self.sequence, 1));
        self.sequence += 1;
    }
}

/// A socket whose packets the test writes byte by byte.
struct Raw {
    socket: UdpSocket,
    sent: usize,
    received: usize,
}

impl Raw {
    fn new(server: SocketAddr) -> Raw {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect(server).unwrap();
        Raw { socket, sent: 0, received: 0 }
    }

    fn send(&mut self, packet: &[u8]) {
        self.sent += packet.len();
        self.socket.send(packet).unwrap();
    }

    /// Receives a packet, if one arrives within this time.
    fn receive(&mut self, time_max: Duration) -> Option<Vec<u8>> {
        let mut buffer = [0; 2048];
        self.socket.set_read_timeout(Some(time_max)).unwrap();
        let size = loop {
            match self.socket.recv(&mut buffer) {
                // As in `support::receive`.
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                received => break received.ok()?,
            }
        };
        self.received += size;
        Some(buffer[..size].to_vec())
    }

    /// Receives a control packet.
    #[track_caller]
    fn control(&mut self) -> Control {
        let packet = self.receive(TIMEOUT).expect("a reply");
        let Ok(Packet::Control(control)) = Packet::decode(&packet) else { panic!("{packet:?}") };
        control
    }

    /// Begins a session. Returns its number, and the hello that was accepted.
    fn open(&mut self, client: u64) -> (u64, Control) {
        let mut opening = Opening::new(client, Instant::now());
        let mut hello = opening.hello(Instant::now()).unwrap();
        loop {
            self.send(&hello.encode());
            let reply = self.control();
            match opening.receive(reply, Instant::now()) {
                Some(number) => return (number, hello),
                None => hello = opening.hello(Instant::now()).expect("a hello with the cookie"),
            }
        }
    }
}

fn data(session: u64, number: u64, payload: &[u8]) -> Vec<u8> {
    let mut packet = Vec::new();
    let window = WINDOW_MAX as u16;
    let (is_end, is_probe, acknowledgement, bitmap) = (false, false, 0, 0);
    Data { session, number: Some(number), is_end, is_probe, acknowledgement, bitmap, window, payload }
        .encode(&mut packet);
    packet
}

fn statistic(resp: &mut Resp, name: &str) -> u64 {
    let info = resp.text("INFO");
    let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("no {name} in {info}")).trim().parse().unwrap()
}

fn dropped(resp: &mut Resp, reason: Dropped) -> u64 {
    let (_, name) = Dropped::ALL[reason as usize];
    statistic(resp, &format!("skep_udp_dropped_{name}"))
}

#[test]
fn malformed_packets_are_dropped_and_counted_with_their_reason() {
    let (server, address) = start(100);
    let (mut resp, mut witness, mut raw) = (Resp::connect(&server), Witness::connect(address), Raw::new(address));
    let (session, _) = raw.open(7);
    let good = data(session, 0, b"bytes");
    let changed = |at: usize, byte: u8| {
        let mut packet = good.clone();
        packet[at] = byte;
        packet
    };
    let with = |acknowledgement| {
        let Ok(Packet::Data(decoded)) = Packet::decode(&good) else { panic!("it is well-formed") };
        let mut packet = Vec::new();
        Data { acknowledgement, ..decoded }.encode(&mut packet);
        packet
    };
    for (packet, reason) in [
        (vec![], Dropped::Short),
        (vec![1, 2, 3], Dropped::Short),
        (changed(0, b'X'), Dropped::Foreign),
        (Control::Accept { client: 7, session: 8 }.encode().to_vec(), Dropped::Kind),
        (changed(6, 200), Dropped::Size),
        (changed(3, 0), Dropped::Field),
        (Control::Hello { client: 9, cookie: 1 }.encode().to_vec(), Dropped::Cookie),
        (data(session + 1, 0, b"bytes"), Dropped::Session),
        (data(session, WINDOW_MAX as u64, b"bytes"), Dropped::Window),
        (with(1), Dropped::Acknowledgement),
        // Nothing is kept for a client whose hello is missing.
        (data(session, 1, b"early"), Dropped::Memory),
    ] {
        let before = dropped(&mut resp, reason);
        raw.send(&packet);
        let begun = Instant::now();
        while dropped(&mut resp, reason) == before {
            assert!(begun.elapsed() < TIMEOUT, "{reason:?} is not counted");
        }
        witness.check();
    }
    assert!(raw.received <= raw.sent, "{} bytes for {}", raw.received, raw.sent);
}

#[test]
fn a_flood_of_hellos_gets_no_session_and_no_more_bytes_than_it_sent() {
    let (server, address) = start(100);
    let (mut resp, mut witness) = (Resp::connect(&server), Witness::connect(address));
    let before = statistic(&mut resp, "connected_clients");
    let mut sources: Vec<Raw> = (0..20).map(|_| Raw::new(address)).collect();
    for round in 0..500 {
        for (index, raw) in sources.iter_mut().enumerate() {
            // Every other one has a cookie, which is wrong.
            raw.send(&Control::Hello { client: index as u64, cookie: round % 2 * round }.encode());
        }
        if round % 100 == 0 {
            witness.check();
        }
    }
    witness.check();
    assert_eq!(statistic(&mut resp, "connected_clients"), before);
    assert!(dropped(&mut resp, Dropped::Cookie) > 0);
    for raw in &mut sources {
        while raw.receive(Duration::from_millis(1)).is_some() {}
        assert!(raw.received > 0 && raw.received <= raw.sent, "{} bytes for {}", raw.received, raw.sent);
    }
}

#[test]
fn a_datagram_of_many_hellos_gets_one_reply_and_one_session() {
    let (server, address) = start(100);
    let (mut resp, mut witness, mut raw) = (Resp::connect(&server), Witness::connect(address), Raw::new(address));
    let (clients, turn) = (statistic(&mut resp, "connected_clients"), dropped(&mut resp, Dropped::Turn));
    let hellos: Vec<u8> = (1..=50)
        .flat_map(|client| {
            raw.send(&Control::Hello { client, cookie: 0 }.encode());
            let Control::Challenge { cookie, .. } = raw.control() else { panic!("it has no session") };
            Control::Hello { client, cookie }.encode()
        })
        .collect();
    raw.send(&hellos);
    assert!(matches!(raw.control(), Control::Accept { client: 1, .. }));
    witness.check();
    assert_eq!(raw.receive(Duration::from_millis(1)), None);
    assert_eq!(statistic(&mut resp, "connected_clients"), clients + 1);
    assert_eq!(dropped(&mut resp, Dropped::Turn), turn + 49);
}

#[test]
fn a_stop_waits_until_the_replies_are_delivered() {
    let (server, address) = start(100);
    let (mut witness, mut resp) = (Witness::connect(address), Resp::connect(&server));
    // More than a session sends before an acknowledgement.
    let value = vec![7; 100_000];
    let set = Operation::Put { value: &value, condition: PutCondition::Always };
    for operation in [set, Operation::Get] {
        let mut request = &frame(witness.sequence, &[Request { key: b"k", operation }])[..];
        while !request.is_empty() {
            let size = witness.stream.send(request).expect("the session has room");
            request = &request[size..];
        }
        witness.sequence += 1;
    }
    // When the first packets of the reply have left, both requests are executed.
    let mut replies = vec![0; 2 * value.len()];
    let mut size = 0;
    while size < 1000 {
        size += witness.stream.receive_within(&mut replies[size..2000], TIMEOUT).unwrap().expect("bytes in time");
    }
    _ = resp.text("INFO");
    let stop = std::thread::spawn(move || drop(server));
    while size < value.len() {
        let received = witness.stream.receive_within(&mut replies[size..], TIMEOUT).unwrap().expect("bytes in time");
        assert!(received > 0, "the stream has ended after {size} bytes");
        size += received;
    }
    stop.join().unwrap();
}

#[test]
fn a_repeated_hello_begins_no_second_session() {
    let (server, address) = start(100);
    let (mut resp, mut raw) = (Resp::connect(&server), Raw::new(address));
    let before = statistic(&mut resp, "connected_clients");
    let (session, hello) = raw.open(7);
    for _ in 0..10 {
        raw.send(&hello.encode());
        assert_eq!(raw.control(), Control::Accept { client: 7, session });
    }
    assert_eq!(statistic(&mut resp, "connected_clients"), before + 1);
    // A program that was started at the same port is another client, and packets of the old session are not its.
    let (other, _) = raw.open(8);
    assert_ne!(other, session);
    raw.send(&data(session, 0, b"late"));
    assert_eq!(raw.control(), Control::Unknown { session });
    raw.send(&Control::Unknown { session: other }.encode());
    let begun = Instant::now();
    while statistic(&mut resp, "connected_clients") > before {
        assert!(begun.elapsed() < TIMEOUT, "the sessions have ended");
    }
}

#[test]
fn sessions_are_bounded_like_connections() {
    let (server, address) = start(3);
    let mut resp = Resp::connect(&server);
    let mut witnesses: Vec<Witness> = (0..2).map(|_| Witness::connect(address)).collect();
    let error = DatagramStream::connect(address, Duration::from_millis(200)).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::TimedOut);
    assert!(dropped(&mut resp, Dropped::Sessions) > 0);
    witnesses.iter_mut().for_each(Witness::check);
    // A client that leaves makes room.
    witnesses.pop();
    Witness::connect(address).check();
}

#[test]
fn random_packets_of_a_session_harm_no_other() {
    for seed in seeds() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let (server, address) = start(100);
        let (mut resp, mut witness, mut raw) = (Resp::connect(&server), Witness::connect(address), Raw::new(address));
        for client in 1..=5 {
            let (session, _) = raw.open(client);
            for _ in 0..300 {
                let payload: Vec<u8> = (0..random.random_range(0..300)).map(|_| random.random_range(0..4)).collect();
                let mut packet = Vec::new();
                let is_end = random.random_ratio(1, 50);
                let data = Data {
                    session,
                    number: (is_end || !payload.is_empty()).then(|| random.random_range(0..100)),
                    is_end,
                    is_probe: random.random_ratio(1, 10),
                    acknowledgement: random.random_range(0..3),
                    bitmap: random.random_range(0..4),
                    window: random.random_range(0..=WINDOW_MAX as u16),
                    payload: &payload,
                };
                data.encode(&mut packet);
                if random.random_ratio(1, 10) {
                    let at = random.random_range(0..packet.len());
                    packet[at] = random.random_range(0..=u8::MAX);
                }
                raw.send(&packet);
            }
            witness.check();
            while raw.receive(Duration::from_millis(1)).is_some() {}
        }
        assert!(statistic(&mut resp, "skep_udp_packets_received") > 1000, "SKEP_SEED={seed}");
    }
}
