//! Several NICs in one server (KV-Direct, section 6.2, Fig. 20).
//!
//! ```text
//!              ┌─ key's hash ─▶ NIC 0: wire, pipeline, NIC DRAM, link ─▶ its region ┐
//! clients, ────┼─────────────▶ NIC 1: …                             ─▶ its region  ├ memory node 0
//! a window of  │               …                                                   ┘
//! operations   └─────────────▶ NIC 9: …                             ─▶ its region  ─ memory node 1
//! ```
//!
//! The NICs of a memory node share its bandwidth, and all NICs share the clients. Each NIC has its own links: the slots
//! of section 6.2 are connected to the processors without a switch. Clients have a window of operations in flight and
//! draw keys without regard to their owners. So when one NIC is too slow, operations that wait for it fill the window,
//! and limit the rate of all other NICs.

use std::rc::Rc;

use skep_core::operation::Request;
use skep_store::processor::{Processor, Replies};

use crate::clock::{Clock, run};
use crate::dispatcher::hash;
use crate::dram::Dram;
use crate::hardware::Hardware;
use crate::memory::NicMemory;
use crate::pipeline::{Clients, Feed, Hazard, Passage, Pipeline};
use crate::time::Time;

/// A NIC of the server, and its input.
pub struct Nic<'a> {
    /// Its store. All stores of a server have one clock.
    pub processor: &'a mut Processor<NicMemory>,
    /// All requests for its keys.
    pub requests: &'a [Request<'a>],
    /// The earliest time at which each request has passed the wire, since the start of the run.
    pub arrivals: &'a [Time],
    /// The destination of the replies.
    pub replies: &'a mut Replies,
}

/// Returns the NIC that owns a key.
pub fn owner(key: u32, salt: u64, nics: u32) -> u32 {
    (hash(u64::from(key) ^ hash(salt)) % u64::from(nics)) as u32
}

/// Returns idle memory of all nodes, one entry for each NIC.
pub fn host_memories(hardware: &Hardware) -> Vec<Rc<Dram>> {
    let nodes: Vec<_> =
        (0..hardware.server.memory_nodes).map(|_| Rc::new(Dram::of_host(&hardware.host_dram))).collect();
    (0..hardware.server.nics as usize).map(|nic| Rc::clone(&nodes[nic % nodes.len()])).collect()
}

/// Runs all requests of all NICs. `order` is the order in which clients send them: each entry is a NIC, and stands for
/// its next request. Returns the passages of each NIC's requests, relative to one start.
///
/// # Panics
/// If the order names a NIC more often than it has requests.
pub fn run_server(clock: &Clock, hardware: &Hardware, nics: &mut [Nic<'_>], order: &[u32]) -> Vec<Vec<Passage>> {
    let plans: Vec<_> = nics.iter().map(|nic| nic.processor.plan(nic.requests)).collect();
    let mut pipelines = Vec::new();
    for (nic, plan) in nics.iter_mut().zip(&plans) {
        let feed = Feed::new(nic.processor, Hazard::Waits, nic.requests, Clients::Open(nic.arrivals));
        pipelines.push(Pipeline::new(clock, nic.processor.flow(plan, nic.replies), hardware, feed));
    }
    let mut next = vec![0; pipelines.len()];
    let operations = order.iter().map(|nic| {
        let (pipeline, next) = (&pipelines[*nic as usize], &mut next[*nic as usize]);
        *next += 1;
        pipeline.operation(*next - 1)
    });
    run(clock, pipelines.len() * hardware.processor.operations_in_flight as usize, operations);
    pipelines.into_iter().map(Pipeline::end).collect()
}

#[cfg(test)]
mod tests {
    use skep_core::operation::{Operation, PutCondition, Reply};
    use skep_store::hash::Settings;
    use skep_store::memory::LocalMemory;

    use super::*;
    use crate::dispatcher::{Dispatcher, Extent, Policy};
    use crate::hardware::Server;

    const MEMORY: u64 = 1 << 20;

    /// Returns how long a server of this kind takes for an equal number of PUTs and GETs of each of a NIC's keys.
    fn span(hardware: &Hardware, order: impl Fn(u32) -> u32) -> Time {
        const COUNT: u32 = 4000;
        let clock = Rc::new(Clock::default());
        let settings = Settings { memory: MEMORY, hash_index_ratio: 0.5, inline_threshold: 24, grows: false, seed: 3 };
        let extent = Extent::scaled(hardware, MEMORY / 64);
        let mut processors: Vec<_> = (0..)
            .zip(host_memories(hardware))
            .map(|(nic, host)| {
                let policy = Policy::Dispatch(0.0);
                let dispatcher = Dispatcher::beside_others(&clock, &host, hardware, extent, policy, nic);
                let bytes = LocalMemory::new(MEMORY).unwrap();
                let memory = NicMemory::new(bytes, Rc::clone(&clock), Rc::new(dispatcher), hardware);
                Processor::with_memory(memory, &settings).unwrap()
            })
            .collect();
        let mut replies: Vec<_> = processors.iter().map(|_| Replies::with_budget(usize::MAX)).collect();
        let keys: Vec<[u8; 4]> = (0..COUNT).map(|number| (number / 2).to_le_bytes()).collect();
        let order: Vec<u32> = (0..COUNT).map(order).collect();
        let mut of_nics = vec![Vec::new(); processors.len()];
        for (number, nic) in order.iter().enumerate() {
            let put = Operation::Put { value: &keys[number], condition: PutCondition::Always };
            let operation = if number % 2 == 0 { put } else { Operation::Get };
            of_nics[*nic as usize].push(Request { key: &keys[number], operation });
        }
        let mut nics = Vec::new();
        for ((processor, replies), requests) in processors.iter_mut().zip(&mut replies).zip(&of_nics) {
            nics.push(Nic { processor, requests, arrivals: &[], replies });
        }
        let passages = run_server(&clock, hardware, &mut nics, &order);
        for (replies, requests) in replies.iter().zip(&of_nics) {
            for (reply, request) in replies.iter().zip(requests) {
                let expected =
                    if request.operation == Operation::Get { Reply::Value(request.key) } else { Reply::Done };
                assert_eq!(reply, expected, "{request:?}");
            }
        }
        assert!(passages.iter().zip(&of_nics).all(|(passages, requests)| passages.len() == requests.len()));
        passages.into_iter().flatten().map(|passage| passage.replied).max().unwrap()
    }

    fn server(nics: u32, memory_nodes: u32) -> Hardware {
        Hardware { server: Server { nics, memory_nodes }, ..Hardware::kv_direct_one_link() }
    }

    #[test]
    fn nics_work_in_parallel_and_the_busiest_limits_all() {
        let one = span(&server(1, 1), |_| 0).as_us();
        let four = span(&server(4, 1), |number| number / 2 % 4).as_us();
        assert!((3.2..4.0).contains(&(one / four)), "{one} and {four} µs");
        let uneven = span(&server(4, 1), |number| if number / 2 % 4 == 3 { 1 } else { 0 }).as_us();
        assert!((1.2..1.4).contains(&(one / uneven)), "{one} and {uneven} µs");
    }

    #[test]
    fn nics_of_one_node_share_its_memory() {
        let mut slow = server(4, 1);
        slow.host_dram.bandwidth_gb_per_s = 2.0;
        let order = |number| number / 2 % 4;
        let together = span(&slow, order).as_us();
        slow.server.memory_nodes = 4;
        let apart = span(&slow, order).as_us();
        assert!((2.0..4.1).contains(&(together / apart)), "{together} and {apart} µs");
    }

    #[test]
    fn keys_are_divided_evenly() {
        for salt in 0..5 {
            let mut counts = [0_u32; 10];
            for key in 0..100_000 {
                counts[owner(key, salt, 10) as usize] += 1;
            }
            assert!(counts.iter().all(|count| (9_500..10_500).contains(count)), "{counts:?}");
        }
    }
}
