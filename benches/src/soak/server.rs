//! The server under attack: the program `skep serve` as a child process, on free ports, with memories so small that
//! they fill.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::process::resident_size_of;
use crate::servers::skep_addresses;

/// Memory of the hash space, in MiB.
pub(super) const HASH_MEMORY: u64 = 256;
/// Memory of the ordered space, in MiB.
pub(super) const ORDERED_MEMORY: u64 = 64;
/// The longest time from SIGTERM to the end of the server. After that it is killed.
const END_MAX: Duration = Duration::from_secs(60);

/// A running server. Dropping it kills it.
pub(crate) struct Server {
    child: Child,
    /// Keeps the pipe open, so that the server never writes to a closed one.
    _stdout: BufReader<ChildStdout>,
    pub(crate) native: SocketAddr,
    pub(crate) resp: SocketAddr,
    pub(super) memcached: SocketAddr,
}

/// The end of a server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct End {
    /// `None` if it had to be killed.
    pub(crate) status: Option<ExitStatus>,
    /// Time since SIGTERM.
    pub(crate) after: Duration,
}

impl Server {
    /// Starts the program and waits until it has printed its addresses.
    pub(crate) fn start(skep: &Path) -> Result<Self, String> {
        let mut command = Command::new(skep);
        command.args(["serve", "--listen", "127.0.0.1:0", "--resp", "127.0.0.1:0", "--shards", "2"]);
        command.arg("--memory").arg(format!("{HASH_MEMORY}MiB"));
        command.arg("--ordered-memory").arg(format!("{ORDERED_MEMORY}MiB"));
        command.args(["--memcached", "127.0.0.1:0", "--cache-memory", "32MiB"]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).env_remove("NOTIFY_SOCKET");
        let mut child = command.spawn().map_err(|error| format!("cannot start {}: {error}", skep.display()))?;
        let mut stdout = BufReader::new(child.stdout.take().expect("standard output is a pipe"));
        match addresses(&mut stdout) {
            Ok([native, resp, memcached]) => Ok(Server { child, _stdout: stdout, native, resp, memcached }),
            Err(reason) => {
                _ = child.kill();
                Err(format!("{reason}: {:?}", child.wait()))
            }
        }
    }

    /// Returns the bytes of its resident memory.
    pub(crate) fn resident_size(&self) -> u64 {
        resident_size_of(&self.child.id().to_string())
    }

    /// Returns its exit status if it has exited.
    pub(super) fn exited(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Kills it, so that every connection to it ends.
    pub(super) fn kill(&mut self) {
        _ = self.child.kill();
    }

    /// Sends SIGTERM and waits for the end. Kills the server if that takes longer than [`END_MAX`].
    pub(crate) fn terminate(&mut self) -> End {
        let begun = Instant::now();
        _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        while begun.elapsed() < END_MAX {
            if let Some(status) = self.exited() {
                return End { status: Some(status), after: begun.elapsed() };
            }
            thread::sleep(Duration::from_millis(5));
        }
        self.kill();
        End { status: None, after: begun.elapsed() }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
        _ = self.child.wait();
    }
}

/// Reads the start screen of the server to its end. Returns the addresses for native clients, RESP and memcached.
fn addresses(stdout: &mut impl BufRead) -> Result<[SocketAddr; 3], String> {
    let mut screen = String::new();
    loop {
        match skep_addresses(&screen).as_deref() {
            Some([native, resp, memcached]) => return Ok([native.1, resp.1, memcached.1]),
            Some(_) => return Err(format!("an address is missing in {screen:?}")),
            None => {}
        }
        match stdout.read_line(&mut screen) {
            Ok(0) | Err(_) => return Err(format!("the server ended after printing {screen:?}")),
            Ok(_) => {}
        }
    }
}
