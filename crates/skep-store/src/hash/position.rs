//! The positions of keys in a hash index, which do not depend on its size: see `index.rs`.

use rapidhash::v3::{RapidSecrets, rapidhash_v3_seeded};

/// Computes the positions of keys in the index that has this seed.
#[derive(Clone, Debug)]
pub struct KeyPositions {
    secrets: RapidSecrets,
}

impl KeyPositions {
    /// Takes the secret seed of an index ([`Settings::seed`](super::Settings::seed)).
    pub fn new(seed: u64) -> KeyPositions {
        KeyPositions { secrets: RapidSecrets::seed(seed) }
    }

    /// Returns the position of a key.
    #[inline]
    pub fn of(&self, key: &[u8]) -> u64 {
        rapidhash_v3_seeded(key, &self.secrets)
    }
}

#[cfg(test)]
mod tests {
    use super::KeyPositions;
    use crate::hash::Settings;
    use crate::processor::Processor;

    #[test]
    fn a_position_is_that_of_the_home_bucket() {
        let settings =
            Settings { memory: 256 << 10, hash_index_ratio: 0.3, inline_threshold: 30, grows: false, seed: 77 };
        let store = Processor::new(&settings).unwrap();
        let positions = KeyPositions::new(77);
        for number in 0..1000_u64 {
            let key = number.to_le_bytes();
            let bucket = (u128::from(positions.of(&key)) * u128::from(store.home_bucket_count())) >> 64;
            assert_eq!(bucket, u128::from(store.home_bucket(&key)));
        }
    }
}
