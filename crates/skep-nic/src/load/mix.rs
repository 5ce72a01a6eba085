//! The operations of clients: shares of their kinds, and the popularity of keys.

use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::zipf::Zipf;

/// Shares of operations, from 0 to 1. All others are GETs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Mix {
    /// PUTs of existing keys.
    pub put: f64,
    /// Insertions of keys that do not exist.
    pub insert: f64,
    /// Deletions of keys that exist: of the oldest inserted.
    pub delete: f64,
    /// Atomic updates, which add to the value and return the old one.
    pub update: f64,
}

/// The kind of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Get,
    Put,
    Insert,
    Delete,
    Update,
}

/// The popularity of existing keys.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Popularity {
    Uniform,
    /// Zipf's law with this θ among the keys of the board's whole memory, mapped to those of the corpus, see
    /// [`Draw::LongTail`].
    LongTail {
        theta: f64,
    },
    /// Zipf's law with this θ among this many keys. The less popular ones share the keys of the corpus.
    Among {
        keys: f64,
        theta: f64,
    },
}

/// Draws keys.
pub(crate) enum Draw {
    Uniform(u32),
    /// Zipf's law of a full memory on a scaled one, which has `1 / scale` of its keys.
    ///
    /// ```text
    /// full memory   │ head │ always cached         │ … │        ranks from popular to unpopular
    /// scaled        │ head │ ─▶ any of the popular │ rank / scale
    /// ```
    ///
    /// 1. The first keys have the shares that they have in the full memory. These decide how many operations are
    ///    forwarded, and how unevenly NICs are loaded.
    /// 2. Unpopular keys keep their rank in relation to the number of keys. It decides about a cache, whose size has the
    ///    same relation to that of the memory.
    /// 3. There are too many keys between these. Every cache has them, so each is any of the popular keys after the head.
    LongTail {
        full: Zipf,
        scale: f64,
        head: u64,
        popular: u64,
    },
    Among {
        keys: Zipf,
        key_count: u32,
    },
}

/// Number of keys that have their full-size shares, if the corpus has enough others.
const HEAD_MAX: u64 = 1000;
/// Part of the keys that is popular.
const POPULAR_PART: u64 = 32;

impl Mix {
    /// Returns a mix of GETs and PUTs.
    pub fn of_puts(put: f64) -> Self {
        Mix { put, ..Mix::default() }
    }

    /// Returns the share of GETs.
    pub fn get(&self) -> f64 {
        (1.0 - self.put - self.insert - self.delete - self.update).max(0.0)
    }

    /// Draws a kind.
    pub(crate) fn draw(&self, random: &mut Xoshiro256PlusPlus) -> Kind {
        let mut at: f64 = random.random();
        for (kind, share) in [
            (Kind::Put, self.put),
            (Kind::Insert, self.insert),
            (Kind::Delete, self.delete),
            (Kind::Update, self.update),
        ] {
            if at < share {
                return kind;
            }
            at -= share;
        }
        Kind::Get
    }
}

impl Draw {
    /// Returns the popularity of a corpus, which has some of the keys of a full memory.
    pub(crate) fn new(popularity: Popularity, key_count: u32, full_key_count: f64) -> Self {
        match popularity {
            Popularity::Uniform => Draw::Uniform(key_count),
            Popularity::LongTail { theta } => {
                let popular = (u64::from(key_count) / POPULAR_PART).max(1);
                let full_keys = full_key_count.max(f64::from(key_count));
                Draw::LongTail {
                    full: Zipf::new(full_keys as u64, theta),
                    scale: full_keys / f64::from(key_count),
                    head: HEAD_MAX.min(popular / 2),
                    popular,
                }
            }
            Popularity::Among { keys, theta } => Draw::Among { keys: Zipf::new(keys as u64, theta), key_count },
        }
    }

    /// Draws a key.
    pub(crate) fn draw(&self, random: &mut Xoshiro256PlusPlus) -> u32 {
        match self {
            Draw::Uniform(key_count) => random.random_range(0..*key_count),
            Draw::LongTail { full, scale, head, popular } => {
                let rank = full.draw(random);
                if rank < *head {
                    return rank as u32;
                }
                let scaled = (rank as f64 / scale) as u64;
                if scaled < *popular { random.random_range(*head..*popular) as u32 } else { scaled as u32 }
            }
            Draw::Among { keys, key_count } => (keys.draw(random) % u64::from(*key_count)) as u32,
        }
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    #[test]
    fn kinds_have_their_shares() {
        let mix = Mix { put: 0.1, insert: 0.2, delete: 0.05, update: 0.25 };
        assert!((mix.get() - 0.4).abs() < 1e-12);
        let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
        let drawn: Vec<Kind> = (0..40_000).map(|_| mix.draw(&mut random)).collect();
        for (kind, share) in
            [(Kind::Get, 0.4), (Kind::Put, 0.1), (Kind::Insert, 0.2), (Kind::Delete, 0.05), (Kind::Update, 0.25)]
        {
            let found = drawn.iter().filter(|drawn| **drawn == kind).count() as f64 / 40_000.0;
            assert!((found - share).abs() < 0.01, "{kind:?}: {found}");
        }
    }

    /// The first keys are as popular as in the full memory, and so is every larger part of the keys.
    #[test]
    fn a_long_tail_has_the_shares_of_a_full_memory() {
        const DRAWS: u32 = 400_000;
        for (key_count, full) in [(64_000, 1e9), (64_000, 64_000.0)] {
            let draw = Draw::new(Popularity::LongTail { theta: 0.99 }, key_count, full);
            let mut random = Xoshiro256PlusPlus::seed_from_u64(2);
            let drawn: Vec<u32> = (0..DRAWS).map(|_| draw.draw(&mut random)).collect();
            assert!(drawn.iter().all(|key| *key < key_count));
            // The sum of the weights of the first ranks.
            let sum = |ranks: f64| 0.5822 + (ranks.powf(0.01) - 1.0) / 0.01;
            for (keys, ranks) in [(1, 1.0), (500, 500.0), (2000, full / 32.0), (16_000, full / 4.0)] {
                let share = drawn.iter().filter(|key| **key < keys).count() as f64 / f64::from(DRAWS);
                let expected = if ranks == 1.0 { 1.0 / sum(full) } else { sum(ranks) / sum(full) };
                assert!((share - expected).abs() < 0.01, "{keys} of {full}: {share}, not {expected}");
            }
        }
    }
}
