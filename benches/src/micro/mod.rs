//! The parts alone, each on data that stays in the first caches: what an operation costs when memory costs nothing.
//!
//! A workload is a name, a piece of work that can be repeated, and the hash of what its first run does. The hash follows
//! from answers and bytes on the wire, not from how they come about, so a faster implementation keeps it.

mod bucket;
mod codec;
mod store;

/// Work that can be repeated.
pub struct Workload {
    /// Its part and what is done with it.
    pub name: &'static str,
    /// Operations of one run.
    pub operations: u64,
    /// The hash of the first run.
    pub hash: u64,
    /// One run; a hash of what it did.
    pub run: Box<dyn FnMut() -> u64>,
}

/// All workloads, fresh.
pub fn workloads() -> Vec<Workload> {
    [bucket::workloads(), store::workloads(), codec::workloads()].into_iter().flatten().collect()
}

/// Takes one more number into a hash.
#[inline]
fn fold(hash: u64, number: u64) -> u64 {
    (hash ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
}

/// Takes bytes into a hash.
fn fold_bytes(hash: u64, bytes: &[u8]) -> u64 {
    fold(hash, rapidhash::v3::rapidhash_v3(bytes))
}

#[cfg(test)]
mod tests {
    use super::workloads;

    #[test]
    fn each_does_the_work_that_it_did() {
        let wrong: Vec<String> = workloads()
            .into_iter()
            .map(|mut workload| (workload.name, (workload.run)(), workload.hash))
            .filter(|(_, found, expected)| found != expected)
            .map(|(name, found, _)| format!("{name}: {found:#018x}"))
            .collect();
        assert!(wrong.is_empty(), "other work than before:\n{}", wrong.join("\n"));
    }

    #[test]
    fn each_can_be_repeated() {
        for mut workload in workloads() {
            (0..3).for_each(|_| _ = (workload.run)());
        }
    }
}
