//! The network: packets of one or many operations (KV-Direct, section 4, "Vector Operation Decoder", Fig. 15).
//!
//! ```text
//! packet   ┌ 88 B header ┬ 3 B ┬ key, value ┬ 1 B ┬ key, value ┬ 1 B ┬ …      up to 1500 B
//!          └             └ operation header └ the same with the flag for "sizes as before"
//!
//! client ─ fill ─▶ wire, 5 GB/s ─▶ delay ─▶ decoder, one operation a cycle
//!        ◀─ delay ─ wire, 5 GB/s ◀─ replies that wait share packets
//! ```

use std::rc::Rc;

use crate::clock::Clock;
use crate::hardware::{Hardware, Network};
use crate::resource::Path;
use crate::time::Time;

/// One direction, from clients to the decoder.
#[derive(Debug)]
pub struct NetworkPath {
    clock: Rc<Clock>,
    spec: Network,
    cycle: Time,
    wire: Path,
    decoder: Path,
}

impl NetworkPath {
    /// Returns an idle path.
    pub fn new(clock: Rc<Clock>, hardware: &Hardware) -> Self {
        NetworkPath {
            clock,
            spec: hardware.network.clone(),
            cycle: Time::cycle(hardware.card.clock_mhz),
            wire: Path::default(),
            decoder: Path::default(),
        }
    }

    /// Carries a packet of operations with keys and values of this many bytes. Ends when the last of them is decoded.
    /// Returns the times at which the operations were decoded.
    pub async fn carry(&self, operations: u32, kv_bytes: u32) -> impl Iterator<Item = Time> + use<> {
        let bytes = u64::from(packet_bytes(&self.spec, operations, kv_bytes));
        let sent = self.wire.reserve(self.clock.now(), Time::of_bytes(bytes, self.spec.bandwidth_gb_per_s));
        self.clock.until(sent + Time::from_ns(self.spec.delay_us * 1e3)).await;
        let decoded = self.decoder.reserve(self.clock.now(), self.cycle * u64::from(operations));
        self.clock.until(decoded).await;
        let cycle = self.cycle;
        (0..operations).rev().map(move |behind| decoded - cycle * u64::from(behind))
    }
}

/// Returns the bytes of a packet with its headers.
pub fn packet_bytes(spec: &Network, operations: u32, kv_bytes: u32) -> u32 {
    let repeated = operations.saturating_sub(1);
    spec.header_bytes + spec.operation_header_bytes + kv_bytes + repeated * (spec.repeated_header_bytes + kv_bytes)
}

/// Returns the largest number of operations of one size that a packet holds, at least one.
pub fn operations_per_packet(spec: &Network, kv_bytes: u32) -> u32 {
    let room = spec.packet_max_bytes.saturating_sub(packet_bytes(spec, 1, kv_bytes));
    1 + room / (spec.repeated_header_bytes + kv_bytes).max(1)
}

/// Returns the time at which each transfer has left the wire of one direction. When the wire is free, all waiting
/// transfers share packets. Expects the transfers in the order of the times from
/// which they wait, with their bytes of key and value.
pub fn carry(spec: &Network, waiting: &[(Time, u32)]) -> Vec<Time> {
    let wire = Path::default();
    let mut ends = Vec::with_capacity(waiting.len());
    let mut free = Time::ZERO;
    while let Some((since, first)) = waiting.get(ends.len()) {
        let begin = free.max(*since);
        let (mut bytes, mut count) = (spec.header_bytes + spec.operation_header_bytes + first, 1);
        for (since, next) in &waiting[ends.len() + 1..] {
            let more = bytes + spec.repeated_header_bytes + next;
            if *since > begin || more > spec.packet_max_bytes {
                break;
            }
            (bytes, count) = (more, count + 1);
        }
        free = wire.reserve(begin, Time::of_bytes(bytes.into(), spec.bandwidth_gb_per_s));
        ends.resize(ends.len() + count, free);
    }
    ends
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::run;

    #[test]
    fn packets_are_filled() {
        let spec = Hardware::kv_direct().network;
        for (kv_bytes, operations) in [(8, 156), (64, 21), (256, 5), (2000, 1)] {
            assert_eq!(operations_per_packet(&spec, kv_bytes), operations);
            let full = packet_bytes(&spec, operations, kv_bytes);
            assert!(operations == 1 || (1500 - kv_bytes..=1500).contains(&full), "{full}");
        }
        assert_eq!(packet_bytes(&spec, 1, 8), 99);
    }

    #[test]
    fn a_packet_takes_wire_delay_and_decoder_one_after_the_other() {
        let clock = Rc::new(Clock::default());
        let path = NetworkPath::new(Rc::clone(&clock), &Hardware::kv_direct());
        let carry = async |_: u32| {
            let decoded: Vec<Time> = path.carry(2, 8).await.collect();
            assert_eq!(decoded[1], clock.now());
            assert_eq!(decoded[1] - decoded[0], Time::cycle(180.0));
        };
        run(&clock, 2, (0..2).map(carry));
        // 108 bytes a packet: the second packet waits until the first has left the wire, but not for its delay.
        let wire = Time::of_bytes(108, 5.0);
        assert_eq!(clock.now(), wire * 2 + Time::from_ns(1000.0) + Time::cycle(180.0) * 2);
    }

    #[test]
    fn waiting_transfers_share_a_packet_until_it_is_full() {
        let spec = Hardware::kv_direct().network;
        let bytes = |bytes| Time::of_bytes(bytes, spec.bandwidth_gb_per_s);
        let waiting = [(Time::ZERO, 8), (Time::from_ps(1), 8), (Time::from_ps(2), 8), (Time::from_ns(900.0), 8)];
        let ends = carry(&spec, &waiting);
        assert_eq!(ends[..3], [bytes(99), bytes(99) + bytes(108), bytes(99) + bytes(108)]);
        assert_eq!(ends[3], Time::from_ns(900.0) + bytes(99));
        // 5 GB/s of full packets.
        let many = carry(&spec, &vec![(Time::ZERO, 62); 10_000]);
        let rate = 10_000.0 / many[9_999].as_us();
        assert!((73.0..75.0).contains(&rate), "{rate}");
    }
}
