//! A file that a long run writes at its end.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::failure::{Failure, reason};

/// The file. It is opened before the run, so that a path which cannot be written is refused then and not after it.
/// What it had before stays until it is written. Dropping it removes it if it is new and was not written.
#[derive(Debug)]
pub(crate) struct OutputFile {
    path: PathBuf,
    file: File,
    is_unwritten_and_new: bool,
}

impl OutputFile {
    /// Opens or creates the file.
    pub(crate) fn open(path: &Path) -> Result<OutputFile, Failure> {
        let of = |file, is_new| OutputFile { path: path.to_owned(), file, is_unwritten_and_new: is_new };
        let opened = match OpenOptions::new().write(true).create_new(true).open(path) {
            Ok(file) => Ok(of(file, true)),
            // Also a link to a file that does not exist.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                OpenOptions::new().write(true).create(true).truncate(false).open(path).map(|file| of(file, false))
            }
            Err(error) => Err(error),
        };
        opened.map_err(|error| cannot_write(path, &error))
    }

    /// Replaces the contents of the file.
    pub(crate) fn write(mut self, contents: &str) -> Result<(), Failure> {
        self.is_unwritten_and_new = false;
        let mut replace = || {
            // A pipe or a device has no length.
            if self.file.metadata()?.is_file() {
                self.file.set_len(0)?;
            }
            self.file.write_all(contents.as_bytes())
        };
        replace().map_err(|error| cannot_write(&self.path, &error))
    }
}

impl Drop for OutputFile {
    fn drop(&mut self) {
        if self.is_unwritten_and_new {
            // It can be removed by hand too.
            _ = fs::remove_file(&self.path);
        }
    }
}

/// Returns the failure of a write to a path.
pub(crate) fn cannot_write(path: &Path, error: &io::Error) -> Failure {
    Failure::Runtime(format!("cannot write {}: {}", path.display(), reason(error)))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::OutputFile;

    #[test]
    fn a_file_has_its_old_contents_until_it_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let [new, old] = ["new", "old"].map(|name| folder.path().join(name));
        fs::write(&old, "a long text").unwrap();
        for path in [&new, &old] {
            drop(OutputFile::open(path).unwrap());
        }
        assert!(!new.exists());
        assert_eq!(fs::read_to_string(&old).unwrap(), "a long text");
        for path in [&new, &old] {
            OutputFile::open(path).unwrap().write("short").unwrap();
            assert_eq!(fs::read_to_string(path).unwrap(), "short");
        }
        assert!(OutputFile::open(folder.path()).is_err());
        assert!(OutputFile::open(&folder.path().join("none/file")).is_err());
    }
}
