//! Tests of the rings, of one side against hostile words, and of two ends with their socket.

use std::fs::File;
use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Duration;

use rand::{Rng, RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use rustix::net::{RecvFlags, recv};

use super::layout::{RING_WORD, TAIL_WORD, TAKEN_WORD, WAIT_WORD, WORD_SIZE};
use super::mapping::{OwnMapping, PeerMapping};
use super::ring::{copy_in, copy_out};
use super::setup::receive_files;
use super::side::{InvalidWord, OwnFile, PeerFile, Side};
use super::sync::{AtomicU64, Ordering};
use super::words::{NEXT_WAIT, PeerWords, WAITS_FOR_BYTES};
use super::{End, RING_SIZE, wait};

const LIMIT: Duration = Duration::from_secs(60);

/// Returns the seeds of a test: that of the environment, or fixed ones.
fn seeds() -> Vec<u64> {
    match std::env::var("SKEP_SEED") {
        Ok(seed) => vec![seed.parse().expect("SKEP_SEED is a number")],
        Err(_) => (1..=8).collect(),
    }
}

/// Returns the server's and the client's end of a connection.
fn ends() -> (End, End) {
    let (server, client) = UnixStream::pair().unwrap();
    let server = End::offer(server).unwrap();
    (server, End::take_offer(client).unwrap())
}

/// Returns the number of doorbells that wait at an end.
fn doorbells(end: &End) -> usize {
    match recv(end.as_fd(), &mut [0; 256], RecvFlags::DONTWAIT) {
        Ok((_, size)) => size,
        Err(_) => 0,
    }
}

#[test]
fn bytes_come_out_as_they_went_in_at_every_position_and_size() {
    const SIZE: usize = 32;
    let ring: Vec<AtomicU64> = (0..SIZE / WORD_SIZE).map(|_| AtomicU64::new(u64::MAX)).collect();
    for position in 0..2 * SIZE as u64 {
        for size in 0..=SIZE {
            let bytes: Vec<u8> = (0..size).map(|index| (position as usize * 31 + index) as u8).collect();
            // The other bytes of the ring are kept.
            let others = vec![0xA5; SIZE - size];
            copy_in(&ring, position + size as u64, &others);
            copy_in(&ring, position, &bytes);
            let mut out = vec![0; SIZE];
            copy_out(PeerWords::new(&ring), position, &mut out);
            assert_eq!(out, [bytes, others].concat(), "{size} bytes at {position}");
        }
    }
}

#[test]
fn a_side_survives_every_word_of_a_hostile_one() {
    const WORDS: usize = 3 + 8;
    for seed in seeds() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let (own, peer): ([AtomicU64; WORDS], [AtomicU64; WORDS]) = Default::default();
        let own_file = OwnFile { tail: &own[0], taken: &own[1], wait: &own[2], ring: &own[3..] };
        let words = PeerWords::new(&peer);
        let peer_file = PeerFile { words, tail: 0, taken: 1, wait: 2, ring: words.from(3) };
        let (mut side, mut errors, mut buffer) = (Side::default(), [0, 0], [0; 100]);
        for _ in 0..100_000 {
            let near = own[random.random_range(0..2)].load(Ordering::Relaxed);
            let value = match random.random_range(0..3) {
                0 => random.next_u64(),
                1 => near.wrapping_add(random.random_range(0..80)),
                _ => near.wrapping_sub(random.random_range(0..80)),
            };
            peer[random.random_range(0..WORDS)].store(value, Ordering::Relaxed);
            let size = random.random_range(0..buffer.len());
            match random.random_range(0..5) {
                0 => match side.send(own_file, peer_file, &buffer[..size]) {
                    Ok(moved) => assert!(moved.size <= size.min(64)),
                    Err(error) => errors[usize::from(error == InvalidWord::Taken)] += 1,
                },
                1 => match side.receive(own_file, peer_file, &mut buffer[..size]) {
                    Ok(moved) => assert!(moved.size <= size.min(64)),
                    Err(error) => errors[usize::from(error == InvalidWord::Taken)] += 1,
                },
                2 => _ = (side.take_changes(peer_file), side.has_peer_ended(peer_file)),
                3 => side.begin_wait(own_file, size % 2 == 0),
                _ => side.end_wait(own_file),
            }
        }
        assert!(errors.iter().all(|&count| count > 0), "SKEP_SEED={seed}: {errors:?}");
    }
}

#[test]
fn all_bytes_arrive_in_order_in_both_directions() {
    for seed in seeds() {
        let (server, client) = ends();
        let echo = thread::spawn(move || {
            let (mut held, mut buffer) = (Vec::new(), [0; 3000]);
            loop {
                assert!(wait(&[(&server, !held.is_empty())], LIMIT).unwrap());
                match server.receive(&mut buffer) {
                    Ok(0) => return,
                    Ok(size) => held.extend_from_slice(&buffer[..size]),
                    Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
                }
                if !held.is_empty()
                    && let Ok(size) = server.send(&held)
                {
                    held.drain(..size);
                }
            }
        });
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut bytes = vec![0; 10 * RING_SIZE];
        random.fill_bytes(&mut bytes);
        let (mut sent, mut received, mut buffer) = (0, Vec::new(), [0; 5000]);
        while received.len() < bytes.len() {
            let size = random.random_range(1..10_000).min(bytes.len() - sent);
            if let Ok(size) = client.send(&bytes[sent..sent + size]) {
                sent += size;
            }
            let size = random.random_range(1..buffer.len());
            match client.receive(&mut buffer[..size]) {
                Ok(size) => received.extend_from_slice(&buffer[..size]),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::WouldBlock);
                    assert!(wait(&[(&client, sent < bytes.len())], LIMIT).unwrap());
                }
            }
        }
        assert!(received == bytes, "SKEP_SEED={seed}");
        drop(client);
        echo.join().unwrap();
    }
}

#[test]
fn no_doorbell_rings_while_both_sides_poll() {
    let (server, client) = ends();
    let mut buffer = [0; 100];
    for round in 0..10_000 {
        assert_eq!(client.send(&buffer[..1 + round % 100]).unwrap(), 1 + round % 100);
        assert!(server.take_changes().has_bytes && !server.has_changes());
        assert_eq!(server.receive(&mut buffer).unwrap(), 1 + round % 100);
        assert!(!server.has_changes(), "its change was taken with the bytes");
        assert_eq!(server.send(&buffer[..7]).unwrap(), 7);
        assert_eq!(client.receive(&mut buffer).unwrap(), 7);
    }
    assert_eq!((doorbells(&server), doorbells(&client)), (0, 0));
}

#[test]
fn one_doorbell_rings_for_each_wait() {
    let (server, client) = ends();
    for _ in 0..3 {
        server.begin_wait(false);
        assert!(!server.has_changes());
        for _ in 0..10 {
            client.send(b"request").unwrap();
        }
        assert!(server.take_changes().has_bytes);
        server.end_wait();
        assert_eq!(doorbells(&server), 1);
        client.send(b"request").unwrap();
        assert_eq!(doorbells(&server), 0, "the wait has ended");
        while server.receive(&mut [0; 50]).is_ok() {}
    }
}

#[test]
fn a_side_that_waits_and_finds_its_ring_full_is_woken_for_room() {
    let (server, client) = ends();
    server.begin_wait(false);
    assert_eq!(server.send(&vec![7; 2 * RING_SIZE]).unwrap(), RING_SIZE);
    assert_eq!(server.send(&[7]).unwrap_err().kind(), ErrorKind::WouldBlock);
    assert!(!server.has_changes() && doorbells(&server) == 0);
    assert_eq!(client.receive(&mut [0; 10]).unwrap(), 10);
    assert!(server.take_changes().has_room && doorbells(&server) == 1);
    assert_eq!(server.send(&[7; 20]).unwrap(), 10);
}

#[test]
fn the_last_bytes_arrive_before_the_end() {
    for is_killed in [false, true] {
        let (server, client) = ends();
        server.send(b"bye").unwrap();
        if is_killed {
            // Only the kernel tells it: the socket is closed.
            server
                .as_fd()
                .try_clone_to_owned()
                .map(UnixStream::from)
                .unwrap()
                .shutdown(std::net::Shutdown::Both)
                .unwrap();
            std::mem::forget(server);
        } else {
            drop(server);
        }
        assert_eq!(client.receive(&mut [0; 10]).unwrap(), 3);
        assert!(wait(&[(&client, false)], LIMIT).unwrap());
        assert_eq!(client.receive(&mut [0; 10]).unwrap(), 0);
        assert!(!client.has_nothing_to_receive());
    }
}

#[test]
fn a_wait_has_a_limit() {
    let (_server, client) = ends();
    assert!(!wait(&[(&client, false)], Duration::from_millis(1)).unwrap());
}

#[test]
fn a_client_can_change_nothing_but_its_own_words() {
    let (server, client) = UnixStream::pair().unwrap();
    let server = End::offer(server).unwrap();
    let [requests, replies] = receive_files(&client).unwrap();
    assert!(OwnMapping::new(&replies).is_err(), "the file of replies cannot be mapped for writing");
    assert!(PeerMapping::new(&replies).is_ok() && OwnMapping::new(&requests).is_ok());
    let [requests, replies] = [File::from(requests), File::from(replies)];
    assert!(replies.write_at(&[1], 0).is_err());
    for file in [&requests, &replies] {
        assert!(file.set_len(0).is_err() && file.set_len(1 << 30).is_err());
        assert!(rustix::fs::fcntl_add_seals(file, rustix::fs::SealFlags::WRITE).is_err());
    }
    // Opened again, the file has the same seals.
    let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&replies));
    if let Ok(again) = File::options().read(true).write(true).open(path) {
        assert!(OwnMapping::new(&again).is_err() && again.write_at(&[1], 0).is_err());
    }
    // A word that contradicts the server's is refused by its name.
    let word = |index: usize, value: u64| {
        assert_eq!(requests.write_at(&value.to_le_bytes(), (index * WORD_SIZE) as u64).unwrap(), WORD_SIZE);
    };
    word(TAIL_WORD, RING_SIZE as u64 + 1);
    assert!(server.take_changes().has_bytes);
    assert_eq!(server.receive(&mut [0; 9]).unwrap_err().to_string(), InvalidWord::Tail.to_string());
    assert_eq!(server.invalid_word(), Some(InvalidWord::Tail));
    word(TAKEN_WORD, 1);
    word(WAIT_WORD, NEXT_WAIT | WAITS_FOR_BYTES);
    word(RING_WORD, 7);
    assert_eq!(server.send(&vec![7; RING_SIZE]).unwrap(), RING_SIZE);
    assert_eq!(server.send(&[7]).unwrap(), 1);
    word(TAKEN_WORD, u64::MAX);
    assert_eq!(server.send(&[7]).unwrap_err().to_string(), InvalidWord::Taken.to_string());
}
