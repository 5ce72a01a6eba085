//! Assigns keys to shards. A client that knows the partition sends each key to its owner, and the server forwards
//! nothing.
//!
//! ```text
//! shard = (rapidhash_v3(key, seed) · shard count) >> 64
//! ```
//!
//! The hash is rapidhash V3 with its default secrets and the partition seed of the server's welcome. It equals
//! `rapidhash_withSeed(key, size, seed)` of the C header, so a client in any language can compute it. The seed is
//! public and does not change while the server runs. This hash decides only the shard. A secret hash decides the
//! position of a key within its shard.

use rapidhash::v3::{RapidSecrets, rapidhash_v3_seeded};

/// The assignment of all keys to the shards of one server.
#[derive(Clone, Copy, Debug)]
pub struct Partition {
    secrets: RapidSecrets,
    shard_count: u16,
}

impl Partition {
    /// Returns the partition of a server's welcome.
    ///
    /// # Panics
    /// If there are no shards.
    pub fn new(seed: u64, shard_count: u16) -> Self {
        assert!(shard_count > 0, "a server has at least one shard");
        Partition { secrets: RapidSecrets::seed_cpp(seed), shard_count }
    }

    /// Returns the number of shards.
    pub fn shard_count(&self) -> u16 {
        self.shard_count
    }

    /// Returns the shard that owns the key. It is below the number of shards.
    #[inline]
    pub fn shard_of(&self, key: &[u8]) -> u16 {
        if self.shard_count == 1 {
            return 0;
        }
        let hash = rapidhash_v3_seeded(key, &self.secrets);
        ((u128::from(hash) * u128::from(self.shard_count)) >> 64) as u16
    }
}

/// Returns the shard that owns a single key, as [`Partition::shard_of`] does. For many keys, create a [`Partition`]
/// once.
pub fn shard_of(key: &[u8], partition_seed: u64, shard_count: u16) -> u16 {
    Partition::new(partition_seed, shard_count).shard_of(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the table of `docs/protocol.md`: key, seed, hash, and the owner among 3, 16 and 1000 shards.
    #[test]
    fn the_documented_partition_is_the_one_used() {
        let long = [0x55; 460];
        let cases: [(&[u8], u64, u64, [u16; 3]); 8] = [
            (b"a", 0, 0x599f_47df_33a2_e1eb, [1, 5, 350]),
            (b"a", 42, 0x0c4b_4535_681a_d65d, [0, 0, 48]),
            (b"ham", 42, 0xb133_3c61_98a7_dc81, [2, 11, 692]),
            (b"egg", 42, 0x84f0_2567_815b_6616, [1, 8, 519]),
            (b"spoon", 42, 0xd685_2631_b01a_5991, [2, 13, 837]),
            (b"user:1000", 42, 0xc79c_2690_48f5_fd18, [2, 12, 779]),
            (b"a key of more than sixteen bytes", 42, 0x0771_e03d_c96d_f6c1, [0, 0, 29]),
            (&long, 42, 0xf7b8_d858_2bf4_b289, [2, 15, 967]),
        ];
        let document = include_str!("../../../docs/protocol.md");
        for (key, seed, hash, owners) in cases {
            assert_eq!(rapidhash_v3_seeded(key, &RapidSecrets::seed_cpp(seed)), hash);
            assert_eq!([3, 16, 1000].map(|shard_count| shard_of(key, seed, shard_count)), owners);
            let name = if key == long { "460 bytes `0x55`".into() } else { format!("`{}`", key.escape_ascii()) };
            let [of_3, of_16, of_1000] = owners;
            let row = format!("| {name} | {seed} | `{hash:016x}` | {of_3} | {of_16} | {of_1000} |");
            assert!(document.contains(&row), "docs/protocol.md lacks {row}");
        }
    }

    #[test]
    fn one_shard_owns_everything() {
        for seed in [0, 1, u64::MAX] {
            assert_eq!(shard_of(b"", seed, 1), 0);
            assert_eq!(shard_of(b"any key", seed, 1), 0);
        }
    }

    #[test]
    fn shards_get_equal_shares() {
        for shard_count in [2u16, 3, 7, 64] {
            let partition = Partition::new(0x5eed, shard_count);
            let mut keys = vec![0u32; usize::from(shard_count)];
            for number in 0..64_000u64 {
                keys[usize::from(partition.shard_of(&number.to_le_bytes()))] += 1;
            }
            let fair = 64_000 / u32::from(shard_count);
            assert!(keys.iter().all(|&count| count.abs_diff(fair) < fair / 4), "{shard_count} shards: {keys:?}");
        }
    }
}
