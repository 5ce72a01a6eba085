//! The life of one operation: all of its events on an otherwise idle NIC, from the client and back.
//!
//! ```text
//! wire ─ network ─▶ latency ─▶ decoder ─▶ pipeline: accesses … ─▶ wire ─ network
//! ```

use std::rc::Rc;

use skep_core::operation::Reply;
use skep_store::hash::Settings;
use skep_store::processor::Replies;

use crate::dispatcher::{Dispatcher, Policy};
use crate::hardware::Hardware;
use crate::load::corpus::processor;
use crate::load::mix::Kind;
use crate::load::pairs::{KEY_BYTES_MIN, Pairs};
use crate::load::requests::{Contents, Drawn, Keys};
use crate::memory::Pace;
use crate::network::packet_bytes;
use crate::pipeline::{Clients, Hazard, run_pipeline};
use crate::time::Time;
use crate::trace::{Event, Track};

/// Sizes of the pairs whose life can be shown, key and value: the value is not empty, and the pair fits one slab.
pub const LIFE_KV_BYTES: std::ops::RangeInclusive<u32> = KEY_BYTES_MIN + 1..=500;

/// The operation and its conditions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LifeSettings {
    /// True for a PUT, false for a GET.
    pub puts: bool,
    /// Size of the pair, key and value, within [`LIFE_KV_BYTES`].
    pub kv_bytes: u32,
    /// Seed that decides the key, the cacheable lines and the latencies of the host.
    pub seed: u64,
}

/// The events in the order of their starts. The first event contains all others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Life {
    /// A description of the operation.
    pub title: String,
    /// The events, with times since the client began to send.
    pub events: Vec<Event>,
    /// Time that the client waited.
    pub latency: Time,
}

const LINE_BITS: u32 = 14;
/// Bytes of pairs over those of the memory. Every size can reach it.
const UTILIZATION: f64 = 0.25;
/// The load dispatch ratio, as for the long tail of Figure 16.
const RATIO: f64 = 0.5;

impl Life {
    /// Runs the operation on this board and records its events.
    ///
    /// # Panics
    /// If the size is not within [`LIFE_KV_BYTES`].
    pub fn of(hardware: &Hardware, settings: &LifeSettings) -> Self {
        life(hardware, settings, true)
    }
}

fn life(hardware: &Hardware, settings: &LifeSettings, records: bool) -> Life {
    let LifeSettings { puts, kv_bytes, seed } = *settings;
    assert!(LIFE_KV_BYTES.contains(&kv_bytes), "{kv_bytes} B are not one value in one slab");
    let memory = 64_u64 << LINE_BITS;
    let store = Settings::for_kv_size(memory, kv_bytes as usize, seed);
    let (mut processor, extent) = processor(hardware, &store, Policy::Dispatch(RATIO), seed);
    let clock = Rc::clone(processor.memory().clock());
    let mut replies = Replies::with_budget(usize::MAX);
    let pairs = Pairs::of_bytes(kv_bytes);
    let contents = Contents::of(&pairs);
    let drawn = |key: u32, kind: Kind| Drawn { key, part: 0, kind, begins: true };
    let key_count = (memory as f64 * UTILIZATION / f64::from(kv_bytes)) as u32;
    processor.memory().set_pace(Pace::AtOnce);
    let all: Vec<Drawn> = (0..key_count).map(|key| drawn(key, Kind::Insert)).collect();
    for chunk in all.chunks(1 << 12) {
        processor.execute(&contents.requests(&pairs, chunk, &Keys::of(&pairs, chunk)), &mut replies);
        assert!(replies.iter().all(|reply| reply == Reply::Done), "the corpus fits");
    }
    let dispatcher = Dispatcher::new(&clock, hardware, extent, Policy::Dispatch(RATIO), seed);
    processor.memory().set_dispatcher(Rc::new(dispatcher));
    processor.memory().set_pace(Pace::Timed);

    let key = ((seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) % u64::from(key_count)) as u32;
    let operation = drawn(key, if puts { Kind::Put } else { Kind::Get });
    let key = Keys::of(&pairs, &[operation]);
    let requests = contents.requests(&pairs, &[operation], &key);
    let spec = &hardware.network;
    let on_wire = |bytes: u32| Time::of_bytes(packet_bytes(spec, 1, bytes).into(), spec.bandwidth_gb_per_s);
    let one_way = Time::from_ns(spec.delay_us * 1e3);

    let start = clock.now();
    let sent = on_wire(operation.request_bytes(&pairs));
    let arrival = sent + one_way;
    if records {
        clock.recorder().switch_on();
    }
    let clients = Clients::Open(&[arrival]);
    let passage = run_pipeline(&mut processor, hardware, Hazard::Waits, &requests, clients, &mut replies).pop();
    let replied = passage.expect("there is one request").replied;
    let back = replied + on_wire(operation.reply_bytes(&pairs));
    let latency = back + one_way;
    for (name, begin, end) in [
        ("operation", Time::ZERO, latency),
        ("request on the wire", Time::ZERO, sent),
        ("through the network", sent, arrival),
        ("in the NIC", arrival, replied),
        ("reply on the wire", replied, back),
        ("through the network", back, latency),
    ] {
        clock.recorder().add(Track::Network, name, start + begin, start + end);
    }
    let mut events = clock.recorder().switch_off();
    for event in &mut events {
        (event.begin, event.end) = (event.begin - start, event.end - start);
    }
    Life {
        title: format!("a {} of {kv_bytes} B on an idle {}", if puts { "PUT" } else { "GET" }, hardware.name),
        events,
        latency,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::lanes;

    #[test]
    fn a_life_is_complete_and_recording_does_not_change_it() {
        let hardware = Hardware::kv_direct();
        let mut met = [false; 3];
        for seed in 0..12 {
            for (puts, kv_bytes) in [(false, 5), (true, 5), (false, 10), (true, 62), (false, 254), (true, 500)] {
                let settings = LifeSettings { puts, kv_bytes, seed };
                let seen = Life::of(&hardware, &settings);
                let unseen = life(&hardware, &settings, false);
                assert_eq!((seen.latency, unseen.events.len()), (unseen.latency, 0), "{settings:?}");
                assert_eq!(seen, Life::of(&hardware, &settings), "{settings:?}");
                let positions = lanes(&seen.events);
                assert_eq!(positions[0], (0, 0));
                assert_eq!((seen.events[0].begin, seen.events[0].end), (Time::ZERO, seen.latency));
                // The steps of the first event follow each other without a gap.
                let mut at = Time::ZERO;
                for (step, _) in seen.events.iter().zip(&positions).filter(|(_, position)| **position == (0, 1)) {
                    assert_eq!(step.begin, at, "{settings:?}: {}", step.name);
                    at = step.end;
                }
                assert_eq!(at, seen.latency, "{settings:?}");
                // A GET of an inline pair is one access: one read of the bucket.
                let reads = seen.events.iter().filter(|event| event.name.starts_with("reads ")).count();
                assert!(reads > 0 && (puts || kv_bytes > 10 || reads <= 2), "{settings:?}: {reads}");
                for (met, what) in met.iter_mut().zip(["PCIe read", "NIC DRAM", "miss: PCIe read"]) {
                    *met |= seen.events.iter().any(|event| event.name.starts_with(what));
                }
            }
        }
        assert_eq!(met, [true; 3], "every path was used by some operation");
    }
}
