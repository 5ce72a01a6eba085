//! The reasons why memory could not be reserved, in words.

/// The reason why a region could not be reserved.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegionError {
    /// The kernel refused.
    #[error(
        "the system has no {} of address space for a store's memory ({reason})",
        in_words(*size)
    )]
    Refused {
        /// Bytes asked for.
        size: u64,
        /// The kernel's word.
        reason: String,
    },
    /// Pointers of 31 bits in 32-byte units end at 64 GiB.
    #[error(
        "a store's memory of {} is out of reach of its pointers, which end at 64 GiB",
        in_words(*size)
    )]
    TooLarge {
        /// Bytes asked for.
        size: u64,
    },
    /// There must be room for at least one bucket and some slabs.
    #[error(
        "a store's memory of {} is too small, it takes at least {}",
        in_words(*size), in_words(*size_min)
    )]
    TooSmall {
        /// Bytes asked for.
        size: u64,
        /// Bytes it takes.
        size_min: u64,
    },
}

/// A size in the largest unit of which there is at least one.
fn in_words(size: u64) -> String {
    match [("TiB", 1_u64 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)]
        .iter()
        .find(|unit| size >= unit.1)
    {
        Some((name, unit)) if size.is_multiple_of(*unit) => format!("{} {name}", size / unit),
        Some((name, unit)) => format!("{:.1} {name}", size as f64 / *unit as f64),
        None => format!("{size} bytes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_said_in_units() {
        for (size, words) in [(64, "64 bytes"), (1 << 10, "1 KiB"), (1536 << 20, "1.5 GiB"), (900 << 40, "900 TiB")] {
            let said = RegionError::TooLarge { size }.to_string();
            assert!(said.contains(&format!("memory of {words} is")), "{said}");
        }
    }
}
