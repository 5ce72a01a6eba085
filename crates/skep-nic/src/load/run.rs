//! A run of a workload in virtual time, and its outcome.
//!
//! ```text
//! sent ─▶ wire of the NIC ─▶ pipeline, memory ─▶ wire ─▶ the last reply of an operation ends it
//! ```

use std::rc::Rc;

use skep_core::operation::Reply;
use skep_store::processor::Replies;

use super::corpus::{Corpus, Workload};
use super::requests::{Drawn, Keys};
use crate::dispatcher::{DispatchCounts, Dispatcher, MemoryLoad};
use crate::network::{carry, operations_per_packet, packet_bytes};
use crate::pipeline::{Clients, Passage, run_pipeline};
use crate::resource::mops;
use crate::server::{Nic, run_server};
use crate::time::Time;

/// The results of a run.
pub(crate) struct Outcome {
    /// Rate of the pipelines, in requests.
    pub(crate) mops: f64,
    /// Rate of operations between wires for requests and wires for replies, with shared packets on both. With several NICs
    /// it is the rate at which the busiest one replies, over its share of the requests.
    pub(crate) carried_mops: f64,
    /// Share of requests that got their value from another request.
    pub(crate) forwarded_share: f64,
    /// Share of requests that found no room, or no key.
    pub(crate) failed_share: f64,
    /// Share of lines that the NICs' DRAM served.
    pub(crate) near_share: f64,
    /// Share of the cacheable lines that the NICs' DRAM served.
    pub(crate) hit_rate: f64,
    /// Lines that one operation accesses.
    pub(crate) lines: f64,
    /// Latencies in the order in which the operations ended. A latency begins when the operation waits for the wire at
    /// the client, and ends when its last reply has left the wire. It excludes the network's delay.
    pub(crate) latencies: Vec<Time>,
    /// Time from the start until the last reply has left a wire.
    pub(crate) span: Time,
    pub(crate) busiest: BusiestNic,
}

/// The NIC with the most requests.
pub(crate) struct BusiestNic {
    /// Its share of all requests, over the average.
    pub(crate) over_average: f64,
    pub(crate) requests: u32,
    /// Share of the cycles in which its decoder was busy: requests over cycles.
    pub(crate) decoder: f64,
    /// Share of its requests that got their value from another request.
    pub(crate) forwarded: f64,
    /// Total time in flight of its requests.
    pub(crate) held: Time,
    /// Bytes of keys, values and operands in its requests, and in its replies.
    pub(crate) carried_bytes: [u64; 2],
    /// The load of its memory's parts.
    pub(crate) load: MemoryLoad,
}

/// The times of a request on the wires: since the start, and since it was sent.
struct Carried {
    nic: usize,
    end: Time,
    sent: Time,
    operation: u32,
}

impl Corpus {
    /// Runs a workload whose requests all arrive at the start.
    pub(crate) fn run(&mut self, workload: &Workload) -> Outcome {
        self.offer(workload, Time::ZERO)
    }

    /// Runs a workload whose clients have another operation after each `interval`.
    pub(crate) fn offer(&mut self, workload: &Workload, interval: Time) -> Outcome {
        let (dispatchers, drawn) = self.begin(workload);
        let spec = self.hardware.network.clone();
        let order: Vec<u32> = drawn.iter().map(|one| self.owner(*one)).collect();
        let of_nics = self.divided(&drawn);
        let mut sent = vec![Vec::new(); of_nics.len()];
        let mut operations = vec![Vec::new(); of_nics.len()];
        let mut operation = 0;
        for (nic, one) in order.iter().zip(&drawn) {
            operation += u32::from(one.begins);
            let at = interval * u64::from(operation - 1);
            sent[*nic as usize].push((at, self.request_bytes(workload, *one)));
            operations[*nic as usize].push(operation - 1);
        }
        let arrivals: Vec<Vec<Time>> = sent.iter().map(|sent| carry(&spec, sent)).collect();
        let passages = self.pass(workload, &of_nics, &arrivals, &order);
        let mut ends = Vec::new();
        for (nic, passages) in passages.iter().enumerate() {
            let reply = |index: usize| (passages[index].replied, of_nics[nic][index].reply_bytes(&self.pairs));
            let mut by_reply: Vec<usize> = (0..passages.len()).collect();
            by_reply.sort_by_cached_key(|index| reply(*index));
            let back = carry(&spec, &by_reply.iter().map(|index| reply(*index)).collect::<Vec<_>>());
            ends.extend(by_reply.iter().zip(back).map(|(index, end)| {
                let (sent, operation) = (sent[nic][*index].0, operations[nic][*index]);
                Carried { nic, end, sent, operation }
            }));
        }
        let hottest = (0..passages.len()).max_by_key(|nic| passages[*nic].len()).expect("a server has a NIC");
        let bytes = |part: fn(Drawn, &Self) -> u32| -> u64 {
            of_nics[hottest].iter().map(|one| u64::from(part(*one, self))).sum()
        };
        let carried_bytes = [
            sent[hottest].iter().map(|(_, bytes)| u64::from(*bytes)).sum(),
            bytes(|one, corpus| one.reply_bytes(&corpus.pairs)),
        ];
        self.outcome(ends, &passages, &dispatchers, carried_bytes)
    }

    /// Computes the outcome from the ends of all requests.
    fn outcome(
        &self,
        carried: Vec<Carried>,
        passages: &[Vec<Passage>],
        dispatchers: &[Rc<Dispatcher>],
        carried_bytes: [u64; 2],
    ) -> Outcome {
        let requests = carried.len() as f64;
        let hottest = (0..passages.len()).max_by_key(|nic| passages[*nic].len()).expect("a server has a NIC");
        let of_busiest: Vec<Time> =
            carried.iter().filter(|carried| carried.nic == hottest).map(|carried| carried.end).collect();
        // An operation ends with its last request.
        let mut ends: Vec<(Time, Time)> = Vec::new();
        for Carried { end, sent, operation, .. } in carried {
            if ends.len() <= operation as usize {
                ends.resize(operation as usize + 1, (Time::ZERO, Time::ZERO));
            }
            let of_operation = &mut ends[operation as usize];
            *of_operation = (of_operation.0.max(end), end.max(of_operation.0) - sent);
        }
        let operations = ends.len() as f64;
        ends.sort_unstable();
        let span = ends.last().map_or(Time::ZERO, |last| last.0);
        let failed = self.replies.iter().flat_map(Replies::iter).filter(|reply| !is_success(*reply)).count() as f64;
        let mut counts = DispatchCounts::default();
        dispatchers.iter().for_each(|dispatcher| counts.add(dispatcher.counts()));
        let forwarded = |nic: &Vec<Passage>| nic.iter().filter(|passage| passage.forwarded).count() as f64;
        let of_hottest = &passages[hottest];
        let rate = |ends: Vec<Time>| if passages.len() > 1 { sustained_mops(ends) } else { mops(ends) };
        let all = rate(ends.iter().map(|end| end.0).collect());
        // When its wire is full, the others cannot stay ahead: clients have a window of operations for all NICs.
        let share = of_hottest.len() as f64 / requests;
        let carried_mops =
            if passages.len() > 1 { all.min(rate(of_busiest) / share * operations / requests) } else { all };
        Outcome {
            mops: rate(passages.iter().flatten().map(|passage| passage.replied).collect()),
            carried_mops,
            forwarded_share: passages.iter().map(forwarded).sum::<f64>() / requests,
            failed_share: failed / requests,
            near_share: counts.hits as f64 / counts.lines.max(1) as f64,
            hit_rate: counts.hits as f64 / counts.cacheable.max(1) as f64,
            lines: counts.lines as f64 / operations,
            latencies: ends.into_iter().map(|end| end.1).collect(),
            span,
            busiest: BusiestNic {
                over_average: of_hottest.len() as f64 * passages.len() as f64 / requests,
                requests: of_hottest.len() as u32,
                decoder: rate(of_hottest.iter().map(|passage| passage.decoded).collect())
                    / self.hardware.card.clock_mhz,
                forwarded: forwarded(of_hottest) / of_hottest.len() as f64,
                held: of_hottest.iter().map(|passage| passage.replied - passage.decoded).sum(),
                carried_bytes,
                load: dispatchers[hottest].load(span),
            },
        }
    }

    /// Runs a workload of one NIC whose requests arrive one by one at this interval. Returns the time from arrival to
    /// reply of each request.
    pub(crate) fn run_spread(&mut self, workload: &Workload, interval: Time) -> Vec<Time> {
        let (_, drawn) = self.begin(workload);
        let arrivals: Vec<Time> = (0..drawn.len() as u64).map(|index| interval * index).collect();
        let passages = self.pass_one(workload, &drawn, Clients::Open(&arrivals));
        passages.iter().zip(arrivals).map(|(passage, arrival)| passage.replied - arrival).collect()
    }

    /// Runs a workload of one NIC whose clients always have another request, with the congestion window. Requests and
    /// replies share full packets.
    pub(crate) fn run_closed(&mut self, workload: &Workload) -> Vec<Passage> {
        let (_, drawn) = self.begin(workload);
        let spec = &self.hardware.network;
        let on_wire = |bytes: u32| {
            let together = operations_per_packet(spec, bytes);
            let packet = Time::of_bytes(packet_bytes(spec, together, bytes).into(), spec.bandwidth_gb_per_s);
            Time::from_ps(packet.as_ps() / u64::from(together))
        };
        let span = |one: &Drawn| (on_wire(self.request_bytes(workload, *one)), on_wire(one.reply_bytes(&self.pairs)));
        let spans: Vec<_> = drawn.iter().map(span).collect();
        self.pass_one(workload, &drawn, Clients::Closed(&spans))
    }

    fn request_bytes(&self, workload: &Workload, drawn: Drawn) -> u32 {
        let bytes = drawn.request_bytes(&self.pairs);
        if workload.whole_pairs && bytes > 0 && drawn.reply_bytes(&self.pairs) > 0 {
            return bytes.max(self.pairs.key_bytes(drawn.key) + drawn.value_bytes(&self.pairs));
        }
        bytes
    }

    /// Executes the requests of all NICs in their pipelines.
    fn pass(
        &mut self,
        workload: &Workload,
        of_nics: &[Vec<Drawn>],
        arrivals: &[Vec<Time>],
        order: &[u32],
    ) -> Vec<Vec<Passage>> {
        if let [drawn] = of_nics {
            return vec![self.pass_one(workload, drawn, Clients::Open(&arrivals[0]))];
        }
        let keys: Vec<Keys> = of_nics.iter().map(|drawn| Keys::of(&self.pairs, drawn)).collect();
        let requests: Vec<_> =
            of_nics.iter().zip(&keys).map(|(drawn, keys)| self.contents.requests(&self.pairs, drawn, keys)).collect();
        let mut nics: Vec<Nic<'_>> = Vec::new();
        for (nic, (processor, replies)) in self.processors.iter_mut().zip(&mut self.replies).enumerate() {
            nics.push(Nic { processor, requests: &requests[nic], arrivals: &arrivals[nic], replies });
        }
        run_server(&self.clock, &self.hardware, &mut nics, order)
    }

    /// Executes the requests of one NIC in its pipeline.
    fn pass_one(&mut self, workload: &Workload, drawn: &[Drawn], clients: Clients<'_>) -> Vec<Passage> {
        let keys = Keys::of(&self.pairs, drawn);
        let requests = self.contents.requests(&self.pairs, drawn, &keys);
        let (processor, replies) = (&mut self.processors[0], &mut self.replies[0]);
        run_pipeline(processor, &self.hardware, workload.hazard, &requests, clients, replies)
    }
}

/// Returns true if an operation did what it was sent for.
fn is_success(reply: Reply<'_>) -> bool {
    matches!(reply, Reply::Done | Reply::Value(_))
}

/// Returns the rate of operations that ended in the second half of a run. In the first half, operations that wait for
/// the busiest NIC may still fill the clients' window.
fn sustained_mops(mut ends: Vec<Time>) -> f64 {
    ends.sort_unstable();
    mops(ends.split_off(ends.len() / 2))
}
