//! Fuzzes the packets of a session over UDP. Neither side must trust the other.
//!
//! Looks for five faults:
//! 1. a panic
//! 2. a packet that is decoded differently after it was decoded and encoded again
//! 3. a session that reads more bytes than arrived
//! 4. a session that holds more memory than its window allows
//! 5. a packet of a session that is too large, or that the other side does not decode

use std::time::{Duration, Instant};

use skep_transport::datagram::{
    Control, Data, PACKET_SIZE_MAX, PAYLOAD_SIZE_MAX, Packet, Role, Session, WINDOW_MAX, packets,
};

/// A window of packets that arrived, twice as many that leave, and buffers that have doubled.
const MEMORY_MAX: usize = 8 * WINDOW_MAX * PAYLOAD_SIZE_MAX;

/// Runs the target.
pub fn run(input: &[u8]) {
    let begun = Instant::now();
    let mut sessions = [Role::Client, Role::Server].map(|role| Session::new(7, role, PAYLOAD_SIZE_MAX, begun));
    let mut arrived = 0;
    for (step, packet) in packets(input).enumerate().take(1 << 12) {
        let now = begun + step as u32 * Duration::from_millis(3);
        match packet {
            Ok(Packet::Control(control)) => {
                assert_eq!(Packet::decode(&control.encode()), Ok(Packet::Control(control)));
                if let Control::Unknown { session: 7 } = control {
                    sessions[0].end();
                }
            }
            Ok(Packet::Data(data)) => {
                let mut again = Vec::new();
                data.encode(&mut again);
                assert_eq!(Packet::decode(&again), Ok(Packet::Data(data)));
                arrived += data.payload.len();
                for session in &mut sessions {
                    let has_memory = data.session % 5 != 0;
                    _ = session.receive(&Data { session: 7, ..data }, has_memory, now);
                }
            }
            Err(_) => {}
        }
        sessions.iter_mut().for_each(|session| drive(session, step, now));
    }
    for session in &mut sessions {
        let mut read = 0;
        let mut buffer = [0; 1000];
        while let Some(size) = session.read(&mut buffer).filter(|&size| size > 0) {
            read += size;
        }
        assert!(read <= arrived, "{read} bytes of {arrived}");
    }
}

/// Writes, sends, and acts on the time.
fn drive(session: &mut Session, step: usize, now: Instant) {
    session.write(&[7; 3000][..step % 3000], usize::MAX);
    if step % 64 == 63 {
        session.finish();
    }
    if session.deadline().is_some_and(|deadline| deadline <= now) {
        session.on_deadline(now);
    }
    let mut packet = Vec::new();
    while session.next_packet(now, &mut packet) {
        assert!(packet.len() <= PACKET_SIZE_MAX);
        let Ok(Packet::Data(_)) = Packet::decode(&packet) else { panic!("{packet:?}") };
        packet.clear();
    }
    assert!(session.memory() <= MEMORY_MAX, "{} bytes", session.memory());
}
