//! The words of a connection over shared memory, in every interleaving and with weak memory: loom runs the very source
//! files of the transport, with its own atomics behind their `sync`. The protocol has a broken control, which must fail.

use loom::sync::Arc;
use loom::thread;

#[path = "../src/shared"]
mod shared {
    pub(crate) mod ring;
    #[expect(unreachable_pub, reason = "the crate exports the error")]
    #[expect(dead_code, reason = "the models poll no changes")]
    pub(crate) mod side;
    pub(crate) mod words;

    /// Loom's atomics in place of the standard ones.
    pub(crate) mod sync {
        pub(crate) use loom::sync::atomic::{AtomicU64, Ordering, fence};
    }
}

use shared::side::{OwnFile, PeerFile, Side};
use shared::sync::{AtomicU64, Ordering};
use shared::words::PeerWords;

/// Words of the smallest ring.
const RING_WORDS: usize = 1;
/// Bytes of it.
const RING_SIZE: usize = 8 * RING_WORDS;

/// A file of a connection.
struct File([AtomicU64; 3 + RING_WORDS]);

impl File {
    fn new() -> File {
        File(std::array::from_fn(|_| AtomicU64::new(0)))
    }

    fn own(&self) -> OwnFile<'_> {
        OwnFile { tail: &self.0[0], taken: &self.0[1], wait: &self.0[2], ring: &self.0[3..] }
    }

    fn peer(&self) -> PeerFile<'_> {
        let words = PeerWords::new(&self.0);
        PeerFile { words, tail: 0, taken: 1, wait: 2, ring: words.from(3) }
    }
}

/// The files of a connection, and the doorbells that were rung for each side.
struct Connection {
    client: File,
    server: File,
    client_bell: AtomicU64,
    server_bell: AtomicU64,
}

impl Connection {
    fn new() -> Arc<Connection> {
        let bell = || AtomicU64::new(0);
        Arc::new(Connection { client: File::new(), server: File::new(), client_bell: bell(), server_bell: bell() })
    }
}

fn model(run: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.max_branches = 10_000;
    let runs = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let count = runs.clone();
    builder.check(move || {
        count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        run();
    });
    println!("{runs:?} interleavings");
}

/// A model that must fail.
fn control(run: impl Fn() + Sync + Send + 'static) {
    let failed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| model(run))).is_err();
    assert!(failed, "the control was not caught");
}

/// Runs a client that sends bytes once, and a server that waits for them with this function. The function returns true
/// if the server has gone to sleep. Then the doorbell must have been rung.
fn send_and_wait(begin_wait: fn(&mut Side, &Connection)) {
    let connection = Connection::new();
    let client = thread::spawn({
        let connection = connection.clone();
        move || {
            let mut side = Side::default();
            let moved = side.send(connection.client.own(), connection.server.peer(), b"abc").unwrap();
            assert_eq!(moved.size, 3);
            if moved.must_ring {
                connection.server_bell.store(1, Ordering::Relaxed);
            }
        }
    });
    let mut side = Side::default();
    begin_wait(&mut side, &connection);
    let sleeps = !side.has_bytes(connection.client.peer());
    client.join().unwrap();
    let mut buffer = [0; RING_SIZE];
    if sleeps {
        assert_eq!(connection.server_bell.load(Ordering::Relaxed), 1, "the server sleeps for ever");
        side.end_wait(connection.server.own());
    }
    let moved = side.receive(connection.server.own(), connection.client.peer(), &mut buffer).unwrap();
    assert_eq!(&buffer[..moved.size], b"abc");
}

#[test]
fn a_side_that_sleeps_is_woken_for_bytes() {
    model(|| send_and_wait(|side, connection| side.begin_wait(connection.server.own(), false)));
}

#[test]
fn a_wait_without_a_fence_is_caught() {
    control(|| {
        send_and_wait(|_, connection| {
            connection
                .server
                .own()
                .wait
                .store(shared::words::NEXT_WAIT | shared::words::WAITS_FOR_BYTES, Ordering::Relaxed);
        });
    });
}

#[test]
fn a_side_that_sleeps_is_woken_for_room() {
    model(|| {
        let connection = Connection::new();
        let mut client = Side::default();
        let sent = client.send(connection.client.own(), connection.server.peer(), &[7; 2 * RING_SIZE]).unwrap();
        assert_eq!(sent.size, RING_SIZE);
        let server = thread::spawn({
            let connection = connection.clone();
            move || {
                let mut side = Side::default();
                let mut buffer = [0; RING_SIZE];
                let moved = side.receive(connection.server.own(), connection.client.peer(), &mut buffer).unwrap();
                assert_eq!((moved.size, buffer), (RING_SIZE, [7; RING_SIZE]));
                if moved.must_ring {
                    connection.client_bell.store(1, Ordering::Relaxed);
                }
            }
        });
        client.begin_wait(connection.client.own(), true);
        let sleeps = !client.has_room(connection.server.peer());
        server.join().unwrap();
        assert!(!sleeps || connection.client_bell.load(Ordering::Relaxed) == 1, "the client sleeps for ever");
    });
}

#[test]
fn bytes_are_received_as_they_were_sent_when_the_ring_is_used_again() {
    model(|| {
        let connection = Connection::new();
        let sent = *b"0123456789ab";
        let client = thread::spawn({
            let connection = connection.clone();
            move || {
                let (mut side, mut rest) = (Side::default(), &sent[..]);
                // The last bytes are sent only if the server has made room by then.
                for size in [5, 3, 4] {
                    let moved = side.send(connection.client.own(), connection.server.peer(), &rest[..size]).unwrap();
                    rest = &rest[moved.size..];
                    if moved.size < size {
                        break;
                    }
                }
                rest.len()
            }
        });
        let (mut side, mut received, mut buffer) = (Side::default(), Vec::new(), [0; RING_SIZE]);
        for _ in 0..2 {
            let moved = side.receive(connection.server.own(), connection.client.peer(), &mut buffer).unwrap();
            received.extend_from_slice(&buffer[..moved.size]);
        }
        let missing = client.join().unwrap();
        let moved = side.receive(connection.server.own(), connection.client.peer(), &mut buffer).unwrap();
        received.extend_from_slice(&buffer[..moved.size]);
        assert_eq!(received, sent[..sent.len() - missing]);
    });
}

#[test]
fn an_end_is_seen_after_the_last_bytes() {
    model(|| {
        let connection = Connection::new();
        let client = thread::spawn({
            let connection = connection.clone();
            move || {
                let mut side = Side::default();
                side.send(connection.client.own(), connection.server.peer(), b"bye").unwrap();
                side.finish(connection.client.own());
            }
        });
        let mut side = Side::default();
        let has_ended = side.has_peer_ended(connection.client.peer());
        let mut buffer = [0; RING_SIZE];
        let moved = side.receive(connection.server.own(), connection.client.peer(), &mut buffer).unwrap();
        assert!(!has_ended || &buffer[..moved.size] == b"bye");
        client.join().unwrap();
    });
}
