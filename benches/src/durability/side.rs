//! The servers of a comparison, and the questions that are put to them over RESP.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use skep_measure::Turn;

use crate::keys::PairForm;
use crate::servers::{Load, Protocol, Sample, Server, Setting, Verb, load, measure};

use super::{Plan, Run, servers_plan};

/// The longest time for a start, a load or a snapshot.
const PATIENCE: Duration = Duration::from_secs(600);
/// The time between two questions.
const PAUSE: Duration = Duration::from_millis(1);
/// The share of Skep's memory that holds pairs of 10 bytes, and that of larger ones.
const UTILIZATION: [f64; 2] = [0.5, 0.33];
/// The smallest memory, in MiB.
const MEMORY_MIN: u64 = 64;

impl Run<'_> {
    /// Starts Skep with memory for `keys` pairs, and with a data directory at a level. Returns when it serves.
    pub(super) fn skep(&self, form: PairForm, keys: u64, data: Option<(&Path, &str)>) -> Result<Server, String> {
        start_skep(&self.setting, form, keys, data).map(|started| started.0)
    }

    /// Starts redis-server with its files in a folder. Returns when it serves.
    pub(super) fn redis(&self, folder: &Path, fsync: Option<&str>) -> Result<Server, String> {
        start_redis(&self.setting, folder, fsync).map(|started| started.0)
    }

    /// Puts all pairs.
    pub(super) fn load(&self, server: &Server, form: PairForm, keys: u64) -> Result<(), String> {
        load(server, &servers_plan(self.plan, keys, 1), form, self.progress)
    }

    /// Measures a round of puts to all pairs of this form, after a warm-up.
    pub(super) fn puts(
        &self,
        turn: Turn,
        server: &Server,
        protocol: Protocol,
        form: PairForm,
        depth: usize,
    ) -> Result<Sample, String> {
        let plan = servers_plan(self.plan, self.keys(form), depth);
        measure(turn, server, protocol, Load { form, verb: Verb::Set, depth }, &plan)
            .map_err(|error| format!("{}: {error}", server.name))
    }

    /// Returns the number of pairs of this form: fewer of the larger ones.
    pub(super) fn keys(&self, form: PairForm) -> u64 {
        keys(self.plan, form)
    }
}

fn keys(plan: &Plan, form: PairForm) -> u64 {
    match form {
        PairForm::Medium => plan.keys / 2,
        PairForm::Large => plan.keys * 2 / 5,
        _ => plan.keys,
    }
}

/// Returns the bytes of a pair.
pub(super) fn size(form: PairForm) -> usize {
    form.key_size() + form.value_size()
}

/// Starts Skep. All its memory is resident before it listens. Returns it with the seconds until it serves.
pub(super) fn start_skep(
    setting: &Setting,
    form: PairForm,
    keys: u64,
    data: Option<(&Path, &str)>,
) -> Result<(Server, f64), String> {
    let utilization = UTILIZATION[usize::from(form != PairForm::Random)];
    let memory = (keys as f64 * size(form) as f64 / utilization) as u64;
    let (memory, kv_size) = (format!("{}MiB", (memory >> 20).max(MEMORY_MIN)), size(form).to_string());
    let mut arguments = vec!["--shards", "1", "--ordered-memory", "off", "--prefault", "--resp", "127.0.0.1:0"];
    arguments.extend(["--memory", &memory, "--kv-size", &kv_size]);
    let folder = data.map(|(folder, _)| folder.to_string_lossy());
    if let Some((folder, (_, level))) = folder.as_ref().zip(data) {
        arguments.extend(["--data-dir", folder, "--durability", level]);
    }
    let begun = Instant::now();
    let mut server = setting.skep_with(&arguments)?;
    let seconds = wait_for_pong(&mut server, begun)?;
    Ok((server, seconds))
}

/// Starts redis-server without snapshots; with an append-only file if a value of `appendfsync` is given. The file is
/// never rewritten, because no fork then disturbs it. Returns it with the seconds until it serves.
pub(super) fn start_redis(setting: &Setting, folder: &Path, fsync: Option<&str>) -> Result<(Server, f64), String> {
    let folder = folder.to_string_lossy();
    let mut arguments = vec!["--auto-aof-rewrite-percentage", "0", "--dir", &folder];
    arguments.extend(["--appendonly", if fsync.is_some() { "yes" } else { "no" }]);
    arguments.extend(fsync.map(|fsync| ["--appendfsync", fsync]).iter().flatten());
    setting.redis_with(&arguments, wait_for_pong)
}

/// Waits until a server executes commands. Returns the seconds since `begun`.
fn wait_for_pong(server: &mut Server, begun: Instant) -> Result<f64, String> {
    let address = server.address(Protocol::Resp).ok_or("the server has no port for RESP")?;
    while begun.elapsed() < PATIENCE {
        // A server that loads its data may accept connections and refuse commands.
        if Asker::new(address).and_then(|mut asker| asker.ask("PING")).is_ok_and(|reply| reply == "PONG") {
            let seconds = begun.elapsed().as_secs_f64();
            // Another program may have taken the port.
            return if server.is_running() { Ok(seconds) } else { Err(format!("{} ended at its start", server.name)) };
        }
        if !server.is_running() {
            return Err(format!("{} ended at its start", server.name));
        }
        sleep(PAUSE);
    }
    Err(format!("{} does not serve after {} s", server.name, PATIENCE.as_secs()))
}

/// A connection for single commands.
pub(super) struct Asker {
    stream: BufReader<TcpStream>,
}

impl Asker {
    /// Connects.
    pub(super) fn new(address: SocketAddr) -> Result<Asker, String> {
        let stream = TcpStream::connect(address).map_err(|error| format!("cannot connect to {address}: {error}"))?;
        stream.set_nodelay(true).and_then(|()| stream.set_read_timeout(Some(PATIENCE))).map_err(|e| e.to_string())?;
        Ok(Asker { stream: BufReader::new(stream) })
    }

    /// Connects to a server's port for RESP.
    pub(super) fn of(server: &Server) -> Result<Asker, String> {
        Asker::new(server.address(Protocol::Resp).ok_or("the server has no port for RESP")?)
    }

    /// Sends a command, and returns the text of its reply. An error of the server is an error.
    pub(super) fn ask(&mut self, command: &str) -> Result<String, String> {
        let failed = |error: std::io::Error| format!("{command}: {error}");
        self.stream.get_mut().write_all(format!("{command}\r\n").as_bytes()).map_err(failed)?;
        let mut line = String::new();
        self.stream.read_line(&mut line).map_err(failed)?;
        let line = line.trim_end();
        match line.split_at_checked(1) {
            Some(("+" | ":", text)) => Ok(text.to_owned()),
            Some(("$", size)) => {
                let size: usize = size.parse().map_err(|_| format!("{command}: the reply is {line}"))?;
                let mut text = vec![0; size + 2];
                self.stream.read_exact(&mut text).map_err(failed)?;
                Ok(String::from_utf8_lossy(&text[..size]).into_owned())
            }
            _ => Err(format!("{command}: the reply is {line:?}")),
        }
    }

    /// Returns a number of `INFO persistence`.
    pub(super) fn persistence(&mut self, field: &str) -> Result<u64, String> {
        let text = self.ask("INFO persistence")?;
        let value = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        value.and_then(|value| value.parse().ok()).ok_or_else(|| format!("INFO persistence has no number {field}"))
    }

    /// Waits until a number of `INFO persistence` is 0.
    pub(super) fn wait_for_zero(&mut self, field: &str) -> Result<(), String> {
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            if self.persistence(field)? == 0 {
                return Ok(());
            }
            sleep(PAUSE);
        }
        Err(format!("{field} is not 0 after {} s", PATIENCE.as_secs()))
    }

    /// Takes a snapshot, and waits until it is complete.
    pub(super) fn take_snapshot(&mut self) -> Result<(), String> {
        self.wait_for_zero("rdb_bgsave_in_progress")?;
        self.ask("SAVE").map(|_| ())
    }
}
