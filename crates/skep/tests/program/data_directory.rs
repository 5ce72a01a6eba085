//! A data directory of a test, and the servers that use it.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

use crate::process::{Server, skep};

/// A directory that is removed at the end of the test, unless it has failed.
pub(crate) struct DataDirectory {
    path: PathBuf,
}

/// Size, time of the last change and content of a file.
type Fingerprint = (u64, SystemTime, u64);

impl DataDirectory {
    /// Creates an empty directory.
    pub(crate) fn new(name: &str) -> DataDirectory {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("data-{name}-{}", std::process::id()));
        _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("the target folder can be written");
        DataDirectory { path }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the path of the file in which the servers log.
    pub(crate) fn server_log(&self) -> PathBuf {
        self.path.with_extension("log")
    }

    /// Returns the command of a server that uses the directory.
    pub(crate) fn command(&self, shards: u16, level: &str) -> Command {
        DataDirectory::command_of(&self.path, shards, level)
    }

    /// Returns the command of a server that uses a directory, or what is there instead.
    pub(crate) fn command_of(path: &Path, shards: u16, level: &str) -> Command {
        let arguments = ["serve", "--listen", "127.0.0.1:0", "--resp", "127.0.0.1:0", "--ordered-memory", "off"];
        let mut command = skep(&arguments);
        command.args(["--durability", level, "--shards"]).arg(shards.to_string()).arg("--data-dir").arg(path);
        command
    }

    /// Starts a server with 96 MiB.
    pub(crate) fn start(&self, shards: u16, level: &str) -> Server {
        self.start_command(self.command(shards, level).args(["--memory", "96MiB"]))
    }

    /// Starts a server with this command. It logs in a file.
    pub(crate) fn start_command(&self, command: &mut Command) -> Server {
        let log = File::options().create(true).append(true).open(self.server_log());
        Server::start_command(command.stderr(log.expect("the target folder can be written")))
    }

    /// Returns the names of the files, in order, that begin so.
    pub(crate) fn names(&self, prefix: &str) -> Vec<String> {
        let names = self.fingerprints().into_keys();
        names.filter(|name| name.starts_with(prefix)).collect()
    }

    /// Returns what all files are.
    pub(crate) fn fingerprints(&self) -> BTreeMap<String, Fingerprint> {
        let mut fingerprints = BTreeMap::new();
        for entry in fs::read_dir(&self.path).expect("the directory can be read") {
            let entry = entry.expect("the directory can be read");
            let file = entry.metadata().expect("the file is there");
            let mut hasher = DefaultHasher::new();
            hasher.write(&fs::read(entry.path()).expect("the file can be read"));
            let name = entry.file_name().into_string().expect("names are text");
            let changed = file.modified().expect("files have times");
            fingerprints.insert(name, (file.len(), changed, hasher.finish()));
        }
        fingerprints
    }
}

impl Drop for DataDirectory {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!(
                "the directory is kept: {}; its servers logged in {}",
                self.path.display(),
                self.server_log().display()
            );
        } else {
            _ = fs::remove_dir_all(&self.path);
            _ = fs::remove_file(self.server_log());
        }
    }
}
