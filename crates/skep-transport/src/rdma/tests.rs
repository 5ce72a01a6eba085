//! A client that obeys no rule, against a server at the address in `SKEP_RDMA`. It needs a device, so it runs in the guest
//! of `crates/skep/tests/full_rdma.rs`, while other clients check their replies.

use std::io::Write;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use rand::{Rng, RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::client::RdmaStream;
use super::slots::{SLOT_COUNT, SLOT_SIZE, SLOTS_SIZE};
use super::verbs::Target;

/// The time after which the test gives up.
const WATCHDOG: Duration = Duration::from_secs(60);
/// Clients, one after the other.
const CLIENTS: u64 = 24;

fn server() -> SocketAddr {
    std::env::var("SKEP_RDMA").expect("SKEP_RDMA is the address of a server").parse().expect("it is an address")
}

fn connect() -> RdmaStream {
    RdmaStream::connect(server(), WATCHDOG).expect("the server accepts")
}

impl RdmaStream {
    /// Writes bytes to an address of the server's memory, and waits until the device has sent them.
    fn write_anywhere(&mut self, bytes: &[u8], address: u64, key: u32, wakes: bool) {
        let begun = Instant::now();
        while !self.writes.is_broken() && !self.writes.send(bytes, Target::Memory { address, key, wakes }) {
            assert!(begun.elapsed() < WATCHDOG, "the device sends nothing");
        }
    }

    /// Waits until the server has ended the session.
    fn wait_for_the_end(&mut self) {
        let begun = Instant::now();
        while !self.session.is_over() {
            assert!(begun.elapsed() < WATCHDOG, "the server does not end the session");
            self.on_wake();
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

#[test]
#[ignore = "needs a server on a machine with RDMA: full_rdma runs it in a guest"]
fn a_client_that_writes_anything_harms_only_itself() {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
    for client in 0..CLIENTS {
        let mut stream = connect();
        let (address, key) = (stream.slots.address, stream.slots.key);
        // Random words of random sizes, in all slots, also such that the end of a packet is in the middle of one.
        for _ in 0..2 * SLOT_COUNT {
            let mut bytes = vec![0; 8 * random.random_range(1..=SLOT_SIZE / 8)];
            random.fill_bytes(&mut bytes);
            let at = 8 * random.random_range(0..=(SLOTS_SIZE - bytes.len()) / 8);
            stream.write_anywhere(&bytes, address + at as u64, key, random.random_range(0..4) == 0);
        }
        // Some of them leave in the middle of that; others say something after their request, or write elsewhere.
        match client % 3 {
            0 => {}
            1 => {
                stream.socket.write_all(b"more").unwrap();
                stream.wait_for_the_end();
            }
            _ => {
                stream.write_anywhere(&[7; 64], address + SLOTS_SIZE as u64, key, true);
                stream.wait_for_the_end();
            }
        }
    }
}

#[test]
#[ignore = "needs a server on a machine with RDMA: full_rdma runs it in a guest"]
fn the_key_of_another_client_gives_no_access() {
    let (mut victim, mut thief) = (connect(), connect());
    thief.write_anywhere(&[7; 64], victim.slots.address, victim.slots.key, true);
    thief.wait_for_the_end();
    assert!(victim.is_silent(), "the other session goes on");
}

#[test]
#[ignore = "needs a server on a machine with RDMA: full_rdma runs it in a guest"]
fn clients_that_never_complete_their_request_have_no_session() {
    let mut sockets = Vec::new();
    for size in 0..super::REQUEST_SIZE {
        let mut socket = std::net::TcpStream::connect(server()).unwrap();
        let request = super::Request { write_pair: 1, write_start: 0, reply_pair: 1, reply_key: 0 }.encode();
        socket.write_all(&request[..size]).unwrap();
        sockets.push(socket);
    }
    for mut socket in sockets {
        // The rest is not a request.
        _ = socket.write_all(&[0xff; 2 * super::REQUEST_SIZE]);
        socket.set_read_timeout(Some(WATCHDOG)).unwrap();
        assert!(matches!(std::io::Read::read(&mut socket, &mut [0; 1]), Ok(0) | Err(_)));
    }
}
