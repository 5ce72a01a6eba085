//! What a durable store inside a program shares with a server: which operations are logged, and the recovery of a data
//! directory.

use std::path::Path;

use skep_log::LogSettings;
use skep_store::hash::Settings;
use skep_store::processor::Processor;

use super::loading::Progress;
pub use super::recovery::Recovered;
use super::recovery::{NewStores, Opened, recover};
use crate::function_loader::FunctionLoader;
use crate::recovery_error::RecoveryError;
use crate::settings::ServerSettings;
use crate::vocabulary::Durability;

pub use super::shard_log::record;
pub use crate::random_number;
pub use crate::unix_time::Clock;

/// Reads a directory into a new store with these settings, and begins the next segment of its log. A directory that has a
/// secret seed keeps it.
pub fn recover_store(
    path: &Path,
    settings: &Settings,
    log: LogSettings,
) -> Result<(Processor, Recovered), RecoveryError> {
    recover_opened(Opened::new(path)?, settings, log)
}

pub(super) fn recover_opened(
    opened: Opened,
    settings: &Settings,
    log: LogSettings,
) -> Result<(Processor, Recovered), RecoveryError> {
    let server = ServerSettings {
        shards: 1,
        memory: settings.memory,
        // The settings of a store do not tell it.
        kv_size: None,
        durability: Durability::Always,
        ..ServerSettings::default()
    };
    let table = Settings { seed: opened.secret_seed(0, 1).unwrap_or(settings.seed), ..settings.clone() };
    let mut processor = Processor::with_spare(&table, settings.memory).map_err(RecoveryError::Memory)?;
    let loader = FunctionLoader::new(0);
    let stores = NewStores { processors: vec![&mut processor], tables: &[table], ordered: None, loader: &loader };
    let recovered = recover(opened, &server, log, stores, random_number, &Progress::default())?;
    Ok((processor, recovered))
}
