//! A client that obeys no rule, against a server at the address in `SKEP_RDMA`, whose RESP port is in `SKEP_RESP`. It needs a device, so it runs in the guest
//! of `crates/skep/tests/full_rdma.rs`, while other clients check their replies.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rand::{Rng, RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::client::RdmaStream;
use super::setup::{Acceptance, REQUEST_SIZE, Request};
use super::slots::{SLOT_COUNT, SLOT_SIZE, SLOTS_SIZE};
use super::verbs::Target;

/// The time after which the test gives up.
const WATCHDOG: Duration = Duration::from_secs(60);
/// Clients, one after the other.
const CLIENTS: u64 = 24;

/// Returns true if there is a server.
fn has_server() -> bool {
    let has_server = std::env::var_os("SKEP_RDMA").is_some();
    if !has_server {
        println!("skipped: it runs in the guest of full_rdma");
    }
    has_server
}

fn server() -> SocketAddr {
    std::env::var("SKEP_RDMA").expect("SKEP_RDMA is the address of a server").parse().expect("it is an address")
}

fn connect() -> RdmaStream {
    RdmaStream::connect(server(), WATCHDOG).expect("the server accepts")
}

/// Returns the number of slots in which the server has found something.
fn taken() -> u64 {
    let mut stream = TcpStream::connect(std::env::var("SKEP_RESP").expect("it is the address of RESP")).unwrap();
    stream.set_read_timeout(Some(WATCHDOG)).unwrap();
    stream.write_all(b"AUTH secret\r\nINFO stats\r\nQUIT\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("skep_rdma_packets_received:"));
    line.unwrap_or_else(|| panic!("no packets are counted: {text}")).trim().parse().unwrap()
}

fn wait_until(mut condition: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < WATCHDOG, "the condition does not hold after {WATCHDOG:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

impl RdmaStream {
    /// Writes bytes to an address of the server's memory, and waits until the device has sent them.
    fn write_anywhere(&mut self, bytes: &[u8], address: u64, key: u32, wakes: bool) {
        let target = Target::Memory { address, key, wakes };
        wait_until(|| self.writes.send(bytes, target) || self.writes.is_broken());
    }

    /// Wakes the server as often as the device allows, with packets of no meaning.
    fn flood(&mut self) {
        for index in 0..1000 {
            let address = self.slots.address + ((index % SLOT_COUNT + 1) * SLOT_SIZE - 64) as u64;
            let target = Target::Memory { address, key: self.slots.key, wakes: true };
            while !self.writes.send(&[7; 64], target) && !self.writes.is_broken() {
                std::hint::spin_loop();
            }
        }
        self.on_wake();
    }

    /// Waits until the server has ended the session.
    fn wait_for_the_end(&mut self) {
        wait_until(|| {
            self.on_wake();
            self.session.is_over()
        });
    }
}

#[test]
fn a_client_that_writes_anything_harms_only_itself() {
    if !has_server() {
        return;
    }
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
            // The device drops these, and some devices also break the queue pair.
            _ => stream.write_anywhere(&[7; 64], address + SLOTS_SIZE as u64, key, true),
        }
    }
}

#[test]
fn floods_of_wakeups_stop_no_other_client() {
    if !has_server() {
        return;
    }
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                // The server ends sessions without a hello.
                let mut stream = connect();
                while !is_over.load(Ordering::Relaxed) && !stream.session.is_over() {
                    stream.flood();
                }
            }
        });
        // Other clients, of both shards.
        let before = taken();
        let mut after = before;
        for _ in 0..100 {
            after = taken();
        }
        wait_until(|| taken() > before);
        is_over.store(true, Ordering::Relaxed);
        println!("{} packets in the slots while others were served", after - before);
    });
}

#[test]
fn the_key_of_another_client_gives_no_access() {
    if !has_server() {
        return;
    }
    let (mut victim, mut thief) = (connect(), connect());
    let before = taken();
    // The end of these bytes is the trailer of a slot.
    let write = |from: &mut RdmaStream, slots: Acceptance, slot: usize| {
        let address = slots.address + ((slot + 1) * SLOT_SIZE - 64) as u64;
        from.write_anywhere(&[7; 64], address, slots.key, true);
    };
    let (own, others) = (thief.slots, victim.slots);
    write(&mut thief, own, 0);
    wait_until(|| taken() == before + 1);
    write(&mut thief, others, 0);
    // The server looks into all slots of the victim, and finds only what the victim has written.
    write(&mut victim, others, 1);
    wait_until(|| taken() >= before + 2);
    assert_eq!(taken(), before + 2);
    assert!(victim.is_silent(), "the other session goes on");
}

#[test]
fn sessions_without_a_hello_end() {
    if !has_server() {
        return;
    }
    // One has slots, and the other has not sent its request.
    let mut silent = TcpStream::connect(server()).unwrap();
    let mut stream = connect();
    stream.wait_for_the_end();
    silent.set_read_timeout(Some(WATCHDOG)).unwrap();
    assert_eq!(silent.read(&mut [0; 1]).unwrap(), 0);
}

#[test]
fn clients_that_never_complete_their_request_have_no_session() {
    if !has_server() {
        return;
    }
    let mut sockets = Vec::new();
    for size in 0..REQUEST_SIZE {
        let mut socket = TcpStream::connect(server()).unwrap();
        let request = Request { write_pair: 1, write_start: 0, reply_pair: 1, reply_key: 0 }.encode();
        socket.write_all(&request[..size]).unwrap();
        sockets.push(socket);
    }
    for mut socket in sockets {
        // The rest is not a request.
        _ = socket.write_all(&[0xff; 2 * REQUEST_SIZE]);
        socket.set_read_timeout(Some(WATCHDOG)).unwrap();
        assert!(matches!(socket.read(&mut [0; 1]), Ok(0) | Err(_)));
    }
}
