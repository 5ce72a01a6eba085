//! One direction of the network for items about the whole NIC: when the wire is free, all waiting transfers share
//! packets.

use crate::hardware::Network;
use crate::resource::Path;
use crate::time::Time;

/// Returns the time at which each transfer has left the wire. Expects the transfers in the order of the times from
/// which they wait, with their bytes of key and value.
pub(super) fn carry(spec: &Network, waiting: &[(Time, u32)]) -> Vec<Time> {
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
    use crate::hardware::Hardware;

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
