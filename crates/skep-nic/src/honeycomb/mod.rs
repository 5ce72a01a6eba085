//! Honeycomb's card as a discrete-event model: GETs and SCANs of the ordered store by an FPGA (Honeycomb, sections 4, 5).
//!
//! ```text
//! clients ─▶ request ─▶ interior search ───────────────▶ leaf scan ────────────────▶ reply ─▶ network
//!            slots      header, shortcuts ─▶ segment     header, shortcuts ─▶ segments
//!                       14 key search units              └▶ log block    4 + 5 + 5 units, slots
//!                          │ blocks                         │ blocks
//!                          └──────▶ 4 memory adapters ◀─────┘
//!                                          │
//!                 root: SRAM    metadata ──┼── page table: NIC DRAM
//!                                   hit ───┴─── miss, leaf
//!                              balancer │         │
//!                                  NIC DRAM      PCIe ─▶ host DRAM
//! ```
//!
//! The store is the product's: a run repeats the blocks that the ordered store has read, see [`tree`]. The card decides
//! only which bytes of them it fetches from which memory, and when.
//!
//! | module | content | Honeycomb |
//! |---|---|---|
//! | [`card`] | every constant, as a TOML file and checked | section 6.1 |
//! | [`tree`] | a store with random keys, and the nodes that its operations read | section 6.2 |
//! | [`fetch`] | the bytes of a node that a card fetches: as in the paper, or line by line | section 3.1 |
//! | [`cache`] | interior nodes in NIC DRAM, with their metadata | section 5 |
//! | [`memory`] | page table, cache, balancer, PCIe | section 5 |
//! | [`engine`] | search units, scan units and their slots | section 4 |
//! | [`run`] | many operations at once: rate, bytes, busy shares | section 6.4 |
//! | [`insertion`] | the lines and the messages of an insertion | section 3.2 |
//! | [`mixed`] | reads beside insertions by the cores of the host: rates | section 6.3 |
//! | [`live`] | requests of the card beside writers of the host: every reply compared with the product's | sections 3.2, 4.1 |
//!
//! The rates of [`run`] are those of a load that only reads, by the card alone. Those of [`mixed`] have writers of the
//! host, and scans by its cores; old versions are not read there.

pub mod cache;
pub mod card;
pub mod engine;
pub mod fetch;
pub mod insertion;
pub mod live;
pub mod memory;
pub mod mixed;
pub mod run;
pub mod tree;

use crate::dispatcher::hash;

/// A part of a run that draws numbers of its own, so that no part decides the draws of another.
#[derive(Clone, Copy, Debug)]
enum Stream {
    /// The keys of the operations.
    Keys,
    /// The copies of the tree that operations are on, and the order in which the cache is filled.
    Copies,
    /// The nodes that make room in the cache.
    Evictions,
    /// Which operations are insertions.
    Mix,
    /// The latencies of the host over a link.
    Link(u32),
}

impl Stream {
    /// Returns the seed of the stream in a run with this seed.
    fn seed(self, of_run: u64) -> u64 {
        let number = match self {
            Stream::Keys => 1,
            Stream::Copies => 2,
            Stream::Evictions => 3,
            Stream::Link(number) => 4 + u64::from(number),
            // No card has as many links.
            Stream::Mix => 1 << 40,
        };
        hash(hash(of_run) ^ number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_of_a_run_and_of_other_runs_differ() {
        let all = [Stream::Keys, Stream::Copies, Stream::Evictions, Stream::Mix, Stream::Link(0), Stream::Link(1)];
        let mut seeds: Vec<u64> = (0..100).flat_map(|seed| all.map(|stream| stream.seed(seed))).collect();
        seeds.sort_unstable();
        assert!(seeds.windows(2).all(|two| two[0] != two[1]));
    }
}
