//! The folder of a run: data directories of all servers, on the disk that is measured.

use std::fs;
use std::path::{Path, PathBuf};

/// The type of a file system in memory, and those of file systems with a name, as `statfs` has them.
const TMPFS: u64 = 0x0102_1994;
const NAMES: [(u64, &str); 4] =
    [(0xEF53, "ext4"), (0x5846_5342, "xfs"), (0x9123_683E, "btrfs"), (0x794C_7630, "overlayfs")];

/// A folder that is removed when the value is dropped.
pub(super) struct Folder {
    path: PathBuf,
}

impl Folder {
    /// Creates a folder in a folder. Refuses a file system in memory.
    pub(super) fn new(parent: &Path) -> Result<Folder, String> {
        let path = parent.join(format!("durability-{}", std::process::id()));
        fs::create_dir_all(&path).map_err(|error| format!("cannot create {}: {error}", path.display()))?;
        let path = path.canonicalize().map_err(|error| format!("cannot find {}: {error}", path.display()))?;
        let folder = Folder { path };
        match folder.file_system_type() {
            Some(TMPFS) => Err(format!("{} is in memory: name a folder on a disk by --dir", parent.display())),
            _ => Ok(folder),
        }
    }

    /// Returns its path.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Creates an empty folder in it; removes an older one of this name.
    pub(super) fn empty(&self, name: &str) -> Result<PathBuf, String> {
        let path = self.path.join(name);
        _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).map_err(|error| format!("cannot create {}: {error}", path.display()))?;
        Ok(path)
    }

    /// Returns the name of its file system.
    pub(super) fn file_system(&self) -> String {
        let number = self.file_system_type().unwrap_or(0);
        let known = NAMES.iter().find(|name| name.0 == number);
        known.map_or_else(|| format!("file system {number:#x}"), |known| known.1.to_owned())
    }

    fn file_system_type(&self) -> Option<u64> {
        rustix::fs::statfs(&self.path).ok().and_then(|found| u64::try_from(found.f_type).ok())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What remains is in a folder that names this program.
        _ = fs::remove_dir_all(&self.path);
    }
}
