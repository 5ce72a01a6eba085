//! The NIC's DRAM as a direct-mapped cache of host lines, and the storage of its metadata (KV-Direct, section 4).
//!
//! ```text
//! line      word 0     word 1     …  word 7       of 8 bytes
//! ECC       hhhhhhh p  hhhhhhh p  …  hhhhhhh p    7 bits of Hamming code and a parity bit for each
//!                   └─────────────┬──────────┘
//! widened from 64 to 256 bits, parity needs 2 of the 8: 6 are spare
//!
//! spare     bit 0    bits 1–5
//!           dirty    tag: the host line's number over the number of sets
//! ```
//!
//! There is no valid bit. Only the NIC uses this memory, and at the start every set holds the line of tag 0, whose
//! bytes were copied there. A lookup therefore costs exactly one access of the line, which also reads the spare bits.
//!
//! The model holds metadata only. The bytes of a line are stored once, in [`crate::memory::NicMemory`].

/// The spare bits of one line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct SpareBits(u16);

const DIRTY_BITS: u32 = 1;
const DIRTY: u16 = (1 << DIRTY_BITS) - 1;
/// Parity bits of the words of a line, less those of two halves: the paper's six.
const SPARE_BITS_OF_ECC: u32 = 8 - 2;
const TAG_BITS_OF_ECC: u32 = SPARE_BITS_OF_ECC - DIRTY_BITS;

// 64 GiB of host memory and 4 GiB of NIC memory need 4 bits of tag. With the dirty flag, one of the six bits is unused.
const _: () = assert!(1 << (TAG_BITS_OF_ECC - 1) == (64 / 4) && SPARE_BITS_OF_ECC <= u16::BITS);

impl SpareBits {
    fn new(tag: u16, dirty: bool) -> Self {
        SpareBits(tag << DIRTY_BITS | u16::from(dirty))
    }

    fn tag(self) -> u16 {
        self.0 >> DIRTY_BITS
    }

    fn is_dirty(self) -> bool {
        self.0 & DIRTY != 0
    }
}

/// Number of a line of the host's memory.
pub type HostLine = u64;

/// The result of a lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// The cache held the line.
    Hit,
    /// The cache held another line, which was replaced.
    Miss {
        /// The replaced line, if it has to be written back.
        write_back: Option<HostLine>,
    },
}

/// The metadata of all lines.
#[derive(Debug)]
pub struct Cache {
    sets: Vec<SpareBits>,
}

impl Cache {
    /// Returns a cache of `line_count` lines for a memory of `host_line_count` lines. It holds the first lines of the
    /// memory.
    ///
    /// # Panics
    /// If a tag needs more bits than there are.
    pub fn new(line_count: u64, host_line_count: u64, spare_bits: u32) -> Self {
        let tags = host_line_count.div_ceil(line_count);
        assert!(tags <= 1 << (spare_bits - DIRTY_BITS), "{tags} tags do not fit into {spare_bits} spare bits");
        let count = usize::try_from(line_count).expect("a cache that is modelled fits into memory");
        Cache { sets: vec![SpareBits::default(); count] }
    }

    /// Returns true if the cache holds the line.
    pub fn holds(&self, line: HostLine) -> bool {
        let (set, tag) = self.set_and_tag(line);
        self.sets[set].tag() == tag
    }

    /// Looks up a line and loads it if it is absent. Marks it dirty if `changes` is true.
    pub fn look_up(&mut self, line: HostLine, changes: bool) -> Lookup {
        let (set, tag) = self.set_and_tag(line);
        let before = self.sets[set];
        if before.tag() == tag {
            self.sets[set] = SpareBits::new(tag, before.is_dirty() || changes);
            return Lookup::Hit;
        }
        self.sets[set] = SpareBits::new(tag, changes);
        let write_back = before.is_dirty().then(|| u64::from(before.tag()) * self.sets.len() as u64 + set as u64);
        Lookup::Miss { write_back }
    }

    fn set_and_tag(&self, line: HostLine) -> (usize, u16) {
        let sets = self.sets.len() as u64;
        ((line % sets) as usize, (line / sets) as u16)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use rand::{RngExt, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::*;

    /// Moves two copies of every line as the lookups require. No read ever returns an old copy.
    #[test]
    fn no_written_line_is_lost() {
        const HOST: u64 = 512;
        for seed in 0..20 {
            let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
            let mut cache = Cache::new(32, HOST, 6);
            let mut truth = vec![0_u64; HOST as usize];
            let mut host = truth.clone();
            let mut cached: HashMap<u64, u64> = (0..32).map(|line| (line, 0)).collect();
            for version in 1..5000 {
                let line = random.random_range(0..HOST);
                let changes = random.random_bool(0.3);
                let held = cache.holds(line);
                match cache.look_up(line, changes) {
                    Lookup::Hit => assert!(held, "seed {seed}"),
                    Lookup::Miss { write_back } => {
                        assert!(!held, "seed {seed}");
                        let victims: Vec<u64> =
                            cached.keys().copied().filter(|other| other % 32 == line % 32).collect();
                        assert_eq!(victims.len(), 1, "seed {seed}");
                        let bytes = cached.remove(&victims[0]).unwrap();
                        if let Some(victim) = write_back {
                            assert_eq!(victim, victims[0], "seed {seed}");
                            host[victim as usize] = bytes;
                        }
                        cached.insert(line, host[line as usize]);
                    }
                }
                assert_eq!(cached[&line], truth[line as usize], "seed {seed}, line {line}");
                if changes {
                    cached.insert(line, version);
                    truth[line as usize] = version;
                }
            }
        }
    }

    #[test]
    fn only_changed_lines_are_written_back() {
        let mut cache = Cache::new(4, 64, 6);
        assert_eq!(cache.look_up(3, false), Lookup::Hit);
        assert_eq!(cache.look_up(7, true), Lookup::Miss { write_back: None });
        assert_eq!(cache.look_up(7, false), Lookup::Hit);
        assert_eq!(cache.look_up(63, false), Lookup::Miss { write_back: Some(7) });
        assert_eq!(cache.look_up(7, false), Lookup::Miss { write_back: None });
    }

    #[test]
    #[should_panic(expected = "64 tags")]
    fn a_tag_must_fit() {
        Cache::new(1, 64, 6);
    }
}
