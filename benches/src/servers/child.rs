//! Starts the servers on their cores and stops each one when its value is dropped.
//!
//! ```text
//! skep           one shard, memory for the pairs at half to full use, both front ends
//! redis-server   no snapshots, no append-only file; otherwise as Debian's package runs it: one thread
//! memcached      one thread, so much memory that it evicts nothing
//! echo           this program with --echo
//! ```
//!
//! All servers have the huge pages that a user gets: Skep requests them itself; Redis and memcached do not.

use std::env;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::plan::Plan;
use super::template::Protocol;
use crate::keys::PairForm;
use crate::process::{cores, pin_to_some, processor_seconds_of, resident_size_of};

/// The longest time that a server may take to start.
const START_MAX: Duration = Duration::from_secs(60);
/// The longest time that a server may work after its load, and the time in which it is then idle.
const IDLE_MAX: Duration = Duration::from_secs(120);
const IDLE_TIME: Duration = Duration::from_millis(500);
/// Bytes of memory per pair for memcached. It uses about 64 and evicts when it has no more.
const MEMCACHED_PAIR_SIZE: u64 = 160;
/// Share of Skep's memory that holds pairs, for each form: the random one, that of redis-benchmark, counters. Pairs of
/// the random form take 20 bytes at half use, those of redis-benchmark 50, counters with an expiry 88.
const SKEP_UTILIZATION: [f64; 3] = [0.5, 0.38, 0.2];
/// Bytes of an expiry.
const EXPIRY_SIZE: usize = 8;
/// The smallest memory of any server, in MiB.
const MEMORY_MIN: u64 = 64;

/// The programs and the cores that they run on.
#[derive(Clone, Debug)]
pub(crate) struct Setting {
    /// The program `skep`.
    pub(crate) skep: PathBuf,
    /// The cores of the servers.
    pub(crate) server_cores: Vec<usize>,
    /// The cores of the client.
    pub(crate) client_cores: Vec<usize>,
    /// Pairs in each server.
    pub(crate) keys: u64,
}

/// A running server.
pub(crate) struct Server {
    pub(crate) name: &'static str,
    child: Child,
    /// Protocols and addresses of its front ends, the fastest protocol first.
    pub(crate) front_ends: Vec<(Protocol, SocketAddr)>,
}

impl Setting {
    /// Gives the servers the first core and the client the second one, and checks that Skep and these other programs exist.
    /// Each is the name of its package too.
    pub(crate) fn new(plan: &Plan, programs: &[&str]) -> Result<Setting, String> {
        let cores = cores()?;
        let setting = Setting {
            skep: plan.skep.clone(),
            server_cores: vec![cores[0]],
            client_cores: vec![*cores.get(1).unwrap_or(&cores[0])],
            keys: plan.keys,
        };
        setting.check(programs)?;
        Ok(setting)
    }

    /// Checks that all programs exist. The error names the missing ones.
    pub(crate) fn check(&self, programs: &[&str]) -> Result<(), String> {
        let mut missing = Vec::new();
        if !self.skep.is_file() {
            missing
                .push(format!("{}: build it with `cargo build --release`, or name it by --skep", self.skep.display()));
        }
        for program in programs {
            if find_program(program).is_none() {
                missing.push(format!("{program}: on Debian, `sudo apt-get install {program}`"));
            }
        }
        if missing.is_empty() { Ok(()) } else { Err(format!("missing programs:\n  {}", missing.join("\n  "))) }
    }

    /// Starts Skep.
    pub(crate) fn skep(&self, form: PairForm) -> Result<Server, String> {
        let (native, resp) = (free_address()?, free_address()?);
        let expiry = if form == PairForm::Counter { EXPIRY_SIZE } else { 0 };
        let kv_size = form.key_size() + form.value_size() + expiry;
        let utilization = SKEP_UTILIZATION[form as usize];
        let memory = (self.keys as f64 * kv_size as f64 / utilization) as u64;
        let mut command = Command::new(&self.skep);
        command
            .args(["serve", "--shards", "1", "--listen"])
            .arg(native.to_string())
            .arg("--resp")
            .arg(resp.to_string());
        command.arg("--memory").arg(format!("{}MiB", (memory >> 20).max(MEMORY_MIN)));
        command.arg("--kv-size").arg(kv_size.to_string());
        self.start("skep", command, vec![(Protocol::Native, native), (Protocol::Resp, resp)])
    }

    /// Starts Skep with a cache of this many bytes for pairs of 8 + 8 bytes, for clients of memcached. With `--prefault`
    /// all of its memory is resident from the start, as that of a cache that was full once.
    pub(crate) fn skep_cache(&self, memory: u64, prefault: bool) -> Result<Server, String> {
        let (native, memcached) = (free_address()?, free_address()?);
        let mut command = Command::new(&self.skep);
        command.args(["serve", "--shards", "1", "--resp", "off", "--listen", &native.to_string()]);
        command.args(["--memory", "64MiB", "--ordered-memory", "off", "--kv-size", "16"]);
        command.args([
            "--cache-memory",
            &format!("{}MiB", (memory >> 20).max(MEMORY_MIN)),
            "--memcached",
            &memcached.to_string(),
        ]);
        command.args(prefault.then_some("--prefault"));
        self.start("skep", command, vec![(Protocol::Memcached, memcached)])
    }

    /// Starts Skep as a user does who sets nothing but the ports, and perhaps the number of shards.
    pub(crate) fn skep_by_default(&self, shards: Option<usize>) -> Result<Server, String> {
        let (native, resp) = (free_address()?, free_address()?);
        let mut command = Command::new(&self.skep);
        command.args(["serve", "--listen", &native.to_string(), "--resp", &resp.to_string()]);
        if let Some(shards) = shards {
            command.args(["--shards", &shards.to_string()]);
        }
        self.start("skep", command, vec![(Protocol::Native, native), (Protocol::Resp, resp)])
    }

    /// Starts redis-server.
    pub(crate) fn redis(&self) -> Result<Server, String> {
        let address = free_address()?;
        let mut command = Command::new(find_program("redis-server").unwrap_or_default());
        command.args([
            "--port",
            &address.port().to_string(),
            "--bind",
            "127.0.0.1",
            "--save",
            "",
            "--appendonly",
            "no",
        ]);
        command.arg("--dir").arg(env::temp_dir());
        self.start("redis", command, vec![(Protocol::Resp, address)])
    }

    /// Starts memcached.
    pub(crate) fn memcached(&self) -> Result<Server, String> {
        let address = free_address()?;
        let memory = ((self.keys * MEMCACHED_PAIR_SIZE) >> 20).max(MEMORY_MIN);
        let mut command = Command::new(find_program("memcached").unwrap_or_default());
        command.args(["-l", "127.0.0.1", "-p", &address.port().to_string(), "-U", "0", "-t", "1"]);
        // memcached runs as root only with this option.
        command.args(["-u", "root", "-m", &memory.to_string()]);
        self.start("memcached", command, vec![(Protocol::Memcached, address)])
    }

    /// Starts the echo.
    pub(crate) fn echo(&self) -> Result<Server, String> {
        let address = free_address()?;
        let program = env::current_exe().map_err(|error| format!("cannot find this program: {error}"))?;
        let mut command = Command::new(program);
        command.arg("--echo").arg(address.to_string());
        self.start("echo", command, vec![(Protocol::Echo, address)])
    }

    /// Starts a program on the servers' cores.
    pub(crate) fn spawn(
        &self,
        name: &'static str,
        mut command: Command,
        front_ends: Vec<(Protocol, SocketAddr)>,
    ) -> Result<Server, String> {
        // A child process inherits the core of the thread that starts it.
        pin_to_some(&self.server_cores)?;
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn();
        pin_to_some(&self.client_cores)?;
        let child = child.map_err(|error| format!("cannot start {}: {error}", command.get_program().display()))?;
        Ok(Server { name, child, front_ends })
    }

    /// Starts a program on the servers' cores and waits until it listens.
    fn start(
        &self,
        name: &'static str,
        command: Command,
        front_ends: Vec<(Protocol, SocketAddr)>,
    ) -> Result<Server, String> {
        let mut server = self.spawn(name, command, front_ends)?;
        let begun = Instant::now();
        for (_, address) in &server.front_ends {
            while TcpStream::connect(address).is_err() {
                if let Ok(Some(status)) = server.child.try_wait() {
                    return Err(format!("{name} ended at its start: {status}"));
                }
                if begun.elapsed() > START_MAX {
                    return Err(format!("{name} does not listen on {address}"));
                }
                thread::sleep(Duration::from_millis(20));
            }
        }
        Ok(server)
    }
}

impl Server {
    /// Returns the seconds of processor time that it has used.
    pub(crate) fn processor_seconds(&self) -> f64 {
        processor_seconds_of(&self.child.id().to_string())
    }

    /// Waits until it uses no more than a tenth of a core.
    pub(crate) fn wait_until_idle(&self) -> Result<(), String> {
        let begun = Instant::now();
        while begun.elapsed() < IDLE_MAX {
            let used = self.processor_seconds();
            thread::sleep(IDLE_TIME);
            if self.processor_seconds() - used <= IDLE_TIME.as_secs_f64() / 10.0 {
                return Ok(());
            }
        }
        Err(format!("{} is still busy {} s after its load", self.name, IDLE_MAX.as_secs()))
    }

    /// Returns the bytes of its resident memory.
    pub(crate) fn resident_size(&self) -> u64 {
        resident_size_of(&self.child.id().to_string())
    }

    /// Returns the number of its process.
    pub(crate) fn process(&self) -> u32 {
        self.child.id()
    }

    /// Returns true if its process has not ended.
    pub(crate) fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Returns its address for a protocol.
    pub(crate) fn address(&self, protocol: Protocol) -> Option<SocketAddr> {
        self.front_ends.iter().find(|front_end| front_end.0 == protocol).map(|front_end| front_end.1)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

/// Finds a program in `PATH`.
pub(crate) fn find_program(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path).map(|folder| folder.join(name)).find(|program| Path::is_file(program))
}

/// Returns an address that is free.
pub(crate) fn free_address() -> Result<SocketAddr, String> {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(|error| format!("no free port: {error}"))?;
    listener.local_addr().map_err(|error| format!("no free port: {error}"))
}
