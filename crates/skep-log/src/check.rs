//! Reads all of a data directory as a recovery does, but without a store: a directory that passes can be started.
//!
//! Files are checked by their own checksums, and against the manifest. Each operation is decoded. Nothing is executed,
//! so it stays open whether the pairs fit the memory of a server.

use crate::block::Section;
use crate::directory::Directory;
use crate::disk::Disk;
use crate::effect_order::EffectOrder;
use crate::error::LogError;
use crate::log_end::LogEnd;

/// A snapshot that was checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CheckedSnapshot {
    /// Its files.
    pub files: u64,
    /// Bytes of these, without the zeros between chunks.
    pub bytes: u64,
    /// Its pairs.
    pub pairs: u64,
}

/// Functions that were checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CheckedFunctions {
    /// Modules that can be used.
    pub modules: u64,
    /// Sources: those of these modules, and earlier ones.
    pub sources: u64,
    /// Names of functions.
    pub names: u64,
    /// The file that is not valid, if one is: the other one was read.
    pub damaged: Option<&'static str>,
}

/// A log that was checked.
#[derive(Clone, Debug)]
pub struct CheckedLog {
    /// Operations, effects and flushes in it.
    pub operations: u64,
    /// Where it ends.
    pub end: LogEnd,
}

impl<D: Disk> Directory<D> {
    /// Reads the snapshot that the manifest names. It is empty if the manifest names none.
    pub fn check_snapshot(&self) -> Result<CheckedSnapshot, LogError> {
        let mut checked = CheckedSnapshot::default();
        let Some(manifest) = self.manifest().filter(|manifest| manifest.snapshot.is_some()) else { return Ok(checked) };
        let (mut bytes, mut pairs) = (0, 0);
        let mut count = |chunk: &crate::Chunk<'_>| {
            bytes += chunk.size as u64;
            pairs += u64::from(chunk.pairs);
            chunk.requests().try_for_each(|request| request.map(drop))
        };
        for shard in 0..manifest.shards.len() {
            self.read_snapshot(shard as u16, &mut count)?;
            checked.files += 1;
        }
        if manifest.ordered.chunk_count > 0 {
            self.read_ordered_snapshot(&mut count)?;
            checked.files += 1;
        }
        Ok(CheckedSnapshot { bytes, pairs, ..checked })
    }

    /// Reads the sources and the names of functions. Does not compile them.
    pub fn check_functions(&self) -> Result<CheckedFunctions, LogError> {
        let (functions, file) = self.functions()?;
        let modules = functions.modules.iter().filter(|module| module.is_current).count() as u64;
        let (sources, names) = (functions.modules.len() as u64, functions.names.len() as u64);
        Ok(CheckedFunctions { modules, sources, names, damaged: file.damaged() })
    }

    /// Reads the log, and decodes its operations.
    pub fn check_log(&self) -> Result<CheckedLog, LogError> {
        let mut operations = 0;
        let mut order = EffectOrder::default();
        let end = self.read_log(false, |blocks| {
            for block in blocks {
                operations += u64::from(block.count);
                let decoded = block.sections().try_for_each(decode);
                let decoded = decoded.and_then(|()| order.read(&block, |_, _, _| {}));
                decoded.map_err(|error| (block.number, error))?;
            }
            Ok(())
        })?;
        Ok(CheckedLog { operations, end })
    }
}

/// Decodes the operations of a section.
fn decode(section: Section<'_>) -> Result<(), skep_wire::native::WireError> {
    match section {
        Section::Operations { mut operations, .. } => operations.try_for_each(|request| request.map(drop)),
        // The order of effects decodes them.
        Section::Effects { .. } | Section::Flush { .. } => Ok(()),
    }
}
