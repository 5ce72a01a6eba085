//! Starts the servers on their cores and stops each one when its value is dropped.
//!
//! ```text
//!                                                                                         its port is
//! skep           one shard, memory for the pairs at half to full use, both front ends     on its first screen
//! redis-server   no snapshots, no append-only file; otherwise as Debian's package         tried until one is free
//!                runs it: one thread
//! memcached      one thread, so much memory that it evicts nothing                        in a file that it writes
//! echo           this program with `echo`                                                 on its first line
//! ```
//!
//! A port that is found free may be in use a moment later. So the servers choose their ports where they can. Redis cannot,
//! and is started again with another port if it ends at its start.
//!
//! All servers have the huge pages that a user gets: Skep requests them itself; Redis and memcached do not.

use std::env;
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rustls::ClientConfig;

use super::plan::Plan;
use super::template::Protocol;
use crate::keys::PairForm;
use crate::process::{cores, pin_to_some, processor_seconds_of, resident_size_of};

/// The longest time that a server may take to start.
const START_MAX: Duration = Duration::from_secs(60);
/// Ports that are tried for a server that cannot choose one.
const PORTS_TRIED: usize = 5;
/// The pause between two checks of a server that starts.
const START_PAUSE: Duration = Duration::from_millis(20);
/// The address of a server that chooses its port.
const ANY: &str = "127.0.0.1:0";
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
    /// Keeps the pipe open, so that the server never writes to a closed one.
    stdout: Option<BufReader<ChildStdout>>,
    /// Protocols and addresses of its front ends, the fastest protocol first.
    pub(crate) front_ends: Vec<(Protocol, SocketAddr)>,
    /// The address of its metrics, if it has them.
    pub(super) metrics: Option<SocketAddr>,
    /// How clients speak TLS with it, if it wants that.
    pub(super) tls: Option<Arc<ClientConfig>>,
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

    /// Starts Skep. All its settings are the default ones, except the memory and the ports.
    pub(crate) fn skep(&self, form: PairForm) -> Result<Server, String> {
        self.skep_with(&["--resp", ANY, "--shards", "1", "--memory", &self.memory(form)])
    }

    /// Returns the memory that Skep needs for its pairs of this form.
    pub(super) fn memory(&self, form: PairForm) -> String {
        let memory = (self.keys as f64 * kv_size(form) as f64 / SKEP_UTILIZATION[form as usize]) as u64;
        format!("{}MiB", (memory >> 20).max(MEMORY_MIN))
    }

    /// Starts Skep with a cache of this many bytes for pairs of 8 + 8 bytes, for clients of memcached. With `--prefault`
    /// all of its memory is resident from the start, as that of a cache that was full once.
    pub(crate) fn skep_cache(&self, memory: u64, prefault: bool) -> Result<Server, String> {
        let memory = format!("{}MiB", (memory >> 20).max(MEMORY_MIN));
        let mut arguments = vec!["--shards", "1", "--resp", "off", "--memory", "64MiB", "--ordered-memory", "off"];
        arguments.extend(["--cache-kv-size", "16", "--cache-memory", &memory, "--memcached", ANY]);
        arguments.extend(prefault.then_some("--prefault"));
        let mut server = self.skep_with(&arguments)?;
        // Its clients speak no other protocol.
        server.front_ends.retain(|front_end| front_end.0 == Protocol::Memcached);
        Ok(server)
    }

    /// Starts Skep as a user does who sets nothing but the ports, and perhaps the number of shards.
    pub(crate) fn skep_by_default(&self, shards: Option<usize>) -> Result<Server, String> {
        match shards {
            Some(shards) => self.skep_with(&["--resp", ANY, "--shards", &shards.to_string()]),
            None => self.skep_with(&["--resp", ANY]),
        }
    }

    /// Starts Skep with these arguments, on ports that it chooses. Returns when it is ready.
    pub(crate) fn skep_with(&self, arguments: &[&str]) -> Result<Server, String> {
        let mut command = Command::new(&self.skep);
        command.args(["serve", "--listen", ANY]).args(arguments).env_remove("NOTIFY_SOCKET");
        let mut server = self.spawn("skep", command, Stdio::piped())?;
        let read = |screen: &str| Some((skep_addresses(screen)?, metrics_address(screen)));
        (server.front_ends, server.metrics) = server.first_lines(read)?;
        Ok(server)
    }

    /// Starts redis-server without snapshots, with these arguments, and calls `wait` with it and the time of its start.
    /// If it has ended then, it is started again on another port. Returns it with what `wait` returned.
    pub(crate) fn redis_with<T>(
        &self,
        arguments: &[&str],
        wait: impl Fn(&mut Server, Instant) -> Result<T, String>,
    ) -> Result<(Server, T), String> {
        let mut failure = String::new();
        for _ in 0..PORTS_TRIED {
            let address = free_address()?;
            let mut command = Command::new(find_program("redis-server").unwrap_or_default());
            command.args(["--bind", "127.0.0.1", "--save", "", "--port", &address.port().to_string()]).args(arguments);
            let begun = Instant::now();
            let mut server = self.spawn("redis", command, Stdio::null())?;
            server.front_ends = vec![(Protocol::Resp, address)];
            match wait(&mut server, begun) {
                Ok(waited) => return Ok((server, waited)),
                Err(reason) if server.is_running() => return Err(reason),
                Err(reason) => failure = reason,
            }
        }
        Err(format!("{failure}; tried {PORTS_TRIED} ports"))
    }

    /// Starts redis-server without a log. Returns when it listens.
    pub(crate) fn redis(&self) -> Result<Server, String> {
        let folder = env::temp_dir();
        let arguments = ["--appendonly", "no", "--dir", &folder.to_string_lossy()];
        self.redis_with(&arguments, Server::wait_until_it_listens).map(|started| started.0)
    }

    /// Starts memcached. It chooses its port if it is given -1, and writes it to a file.
    pub(crate) fn memcached(&self) -> Result<Server, String> {
        let ports = env::temp_dir().join(format!("skep-memcached-{}", std::process::id()));
        let memory = ((self.keys * MEMCACHED_PAIR_SIZE) >> 20).max(MEMORY_MIN);
        let mut command = Command::new(find_program("memcached").unwrap_or_default());
        // memcached runs as root only with this option.
        command.args(["-l", "127.0.0.1", "-p", "-1", "-U", "0", "-t", "1", "-u", "root", "-m", &memory.to_string()]);
        command.env("MEMCACHED_PORT_FILENAME", &ports);
        let mut server = self.spawn("memcached", command, Stdio::null())?;
        let begun = Instant::now();
        let port = loop {
            let text = fs::read_to_string(&ports).unwrap_or_default();
            let port = text.lines().find_map(|line| line.strip_prefix("TCP INET: ")?.trim().parse::<u16>().ok());
            match port {
                Some(port) => break port,
                None => server.pause_at_start(begun)?,
            }
        };
        _ = fs::remove_file(&ports);
        server.front_ends = vec![(Protocol::Memcached, SocketAddr::from(([127, 0, 0, 1], port)))];
        Ok(server)
    }

    /// Starts the echo.
    pub(crate) fn echo(&self) -> Result<Server, String> {
        let program = env::current_exe().map_err(|error| format!("cannot find this program: {error}"))?;
        let mut command = Command::new(program);
        command.arg("echo");
        let mut server = self.spawn("echo", command, Stdio::piped())?;
        let address = server.first_lines(|line| line.trim().parse().ok())?;
        server.front_ends = vec![(Protocol::Echo, address)];
        Ok(server)
    }

    /// Starts a program on the servers' cores.
    fn spawn(&self, name: &'static str, mut command: Command, stdout: Stdio) -> Result<Server, String> {
        // A child process inherits the core of the thread that starts it.
        pin_to_some(&self.server_cores)?;
        let child = command.stdin(Stdio::null()).stdout(stdout).spawn();
        pin_to_some(&self.client_cores)?;
        let mut child = child.map_err(|error| format!("cannot start {}: {error}", command.get_program().display()))?;
        let stdout = child.stdout.take().map(BufReader::new);
        Ok(Server { name, child, stdout, front_ends: Vec::new(), metrics: None, tls: None })
    }
}

impl Server {
    /// Reads lines until `parse` understands all of them together.
    fn first_lines<T>(&mut self, parse: impl Fn(&str) -> Option<T>) -> Result<T, String> {
        let stdout = self.stdout.as_mut().ok_or("the output is not read")?;
        let mut text = String::new();
        loop {
            if let Some(found) = parse(&text) {
                return Ok(found);
            }
            match stdout.read_line(&mut text) {
                Ok(0) | Err(_) => return Err(format!("{} ended at its start, after printing {text:?}", self.name)),
                Ok(_) => {}
            }
        }
    }

    /// Waits until it accepts connections. Fails if it ends before.
    fn wait_until_it_listens(&mut self, begun: Instant) -> Result<(), String> {
        while TcpStream::connect(self.front_ends[0].1).is_err() {
            self.pause_at_start(begun)?;
        }
        // Another program may have taken the port. Then this one ends soon.
        self.pause_at_start(begun)
    }

    /// Waits a moment for a server that starts. Fails if it has ended, or has started for too long.
    fn pause_at_start(&mut self, begun: Instant) -> Result<(), String> {
        thread::sleep(START_PAUSE);
        match self.child.try_wait() {
            Ok(Some(status)) => Err(format!("{} ended at its start: {status}", self.name)),
            _ if begun.elapsed() > START_MAX => Err(format!("{} does not start", self.name)),
            _ => Ok(()),
        }
    }

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

/// Returns the protocols and addresses on the first screen of Skep, the fastest protocol first, when it is complete.
pub(crate) fn skep_addresses(screen: &str) -> Option<Vec<(Protocol, SocketAddr)>> {
    if !screen.ends_with("Ctrl-C stops it.\n") {
        return None;
    }
    let address = |(name, protocol)| {
        let line = screen.lines().find_map(|line| line.trim_start().strip_prefix(name));
        Some((protocol, line?.trim().trim_end_matches(", TLS").parse().ok()?))
    };
    let names = [("native ", Protocol::Native), ("RESP ", Protocol::Resp), ("memcached ", Protocol::Memcached)];
    Some(names.into_iter().filter_map(address).collect())
}

/// Returns the address of the metrics on the first screen of Skep, if it has them.
fn metrics_address(screen: &str) -> Option<SocketAddr> {
    let url = screen.lines().find_map(|line| line.trim_start().strip_prefix("metrics "))?;
    url.trim().strip_prefix("http://")?.strip_suffix('/')?.parse().ok()
}

/// Returns the bytes of a pair of this form.
fn kv_size(form: PairForm) -> usize {
    form.key_size() + form.value_size() + if form == PairForm::Counter { EXPIRY_SIZE } else { 0 }
}

/// Returns an address that is free now.
fn free_address() -> Result<SocketAddr, String> {
    let listener = TcpListener::bind(ANY).map_err(|error| format!("no free port: {error}"))?;
    listener.local_addr().map_err(|error| format!("no free port: {error}"))
}

/// Returns an address that no other program has for UDP at this moment.
pub(crate) fn free_udp_address() -> Result<SocketAddr, String> {
    let free = UdpSocket::bind(ANY).and_then(|socket| socket.local_addr());
    free.map_err(|error| format!("no free port for UDP: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_screen_has_the_addresses() {
        let screen =
            "skep is ready\n\n  native      127.0.0.1:7379\n  RESP        off\n  memcached   127.0.0.1:11211\n";
        assert_eq!(skep_addresses(screen), None, "more may follow");
        let of = |protocol, port| (protocol, SocketAddr::from(([127, 0, 0, 1], port)));
        let addresses = skep_addresses(&format!("{screen}\nCtrl-C stops it.\n"));
        assert_eq!(addresses, Some(vec![of(Protocol::Native, 7379), of(Protocol::Memcached, 11211)]));
    }
}
