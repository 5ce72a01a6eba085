//! What a durable store inside a program shares with a server: which operations are logged, and the recovery of a data
//! directory.

use std::path::Path;

use skep_log::LogSettings;
use skep_store::hash::Settings;
use skep_store::processor::Processor;

use super::Durability;
use super::loading::Progress;
pub use super::recovery::Recovered;
use super::recovery::{Opened, RecoveryError, recover};
use crate::settings::ServerSettings;

pub use super::shard_log::record;
pub use crate::random_number;
pub use crate::unix_time::Clock;

/// Reads a directory into a new store with these settings, and begins the next segment of its log.
pub fn recover_store(
    path: &Path,
    processor: &mut Processor,
    settings: &Settings,
    log: LogSettings,
) -> Result<Recovered, RecoveryError> {
    let server = ServerSettings {
        shards: 1,
        memory: settings.memory,
        // The settings of a store do not tell it.
        kv_size: 0,
        durability: Durability::Always,
        ..ServerSettings::default()
    };
    let stores = (vec![processor], &[settings.seed][..]);
    recover(Opened::new(path)?, &server, log, stores, None, random_number, &Progress::default())
}
