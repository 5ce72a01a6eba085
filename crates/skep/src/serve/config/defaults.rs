//! Defaults that depend on the memory of the machine.

use skep_server::ServerSettings;

use super::Configuration;

/// The least default memory of each shard, and of the ordered space, in bytes.
const SHARD_MEMORY_MIN: u64 = 8 << 20;
const ORDERED_MEMORY_MIN: u64 = 8 << 20;
/// The least default number of connections.
const CONNECTIONS_MIN: usize = 100;
/// The least default memory of connections, in bytes.
const CONNECTION_MEMORY_MIN: u64 = 16 << 20;

impl Configuration {
    /// Halves the default sizes of the hash and the ordered space, of the memory of connections, and their number, until all
    /// memory takes at most 85 % of `total` bytes: those of the machine, or the limit of its control group. Returns true if a
    /// size has changed.
    ///
    /// Sizes that the user gave stay as they are. If the memory is too small with the least sizes too, all stay, and the
    /// server refuses them. Used memory does not matter here, so that a restart on the same machine has the same sizes: its
    /// data directory fits.
    pub(crate) fn fit_defaults(&self, given: &mut ServerSettings, total: u64) -> bool {
        let mut settings = given.clone();
        while settings.memory_needed() > total / 20 * 17 {
            let needed = settings.memory_needed();
            if self.memory.is_none() {
                let least = SHARD_MEMORY_MIN * u64::from(settings.shards);
                settings.memory = half(settings.memory, least);
            }
            if self.ordered_memory.is_none() {
                settings.ordered_memory = half(settings.ordered_memory, ORDERED_MEMORY_MIN);
            }
            if self.max_clients.is_none() {
                settings.connections_max = (settings.connections_max / 2).max(CONNECTIONS_MIN);
            }
            if self.connection_memory.is_none() {
                let least = ServerSettings::connection_memory_min(settings.connections_max);
                settings.connection_memory = half(settings.connection_memory, least.max(CONNECTION_MEMORY_MIN));
            }
            if settings.memory_needed() >= needed {
                return false;
            }
        }
        let has_changed = settings.memory_needed() < given.memory_needed();
        *given = settings;
        has_changed
    }
}

/// Returns half of a size, but not less than `least`, unless the size is smaller already.
fn half(size: u64, least: u64) -> u64 {
    size.min(least.max(size / 2))
}
