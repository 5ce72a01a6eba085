//! `skep serve`: starts the server, prints how to connect to it, and stops it on a signal.
//!
//! SIGTERM and SIGINT stop the server in order, and the process exits with 0. A second SIGINT during the stop exits
//! immediately with 1. Until the server accepts connections, a signal ends the process immediately with 0, even while
//! it touches its memory. Signals that would end a process without a handler, and that a user, a terminal or a tool may send
//! by mistake, are ignored with a line in the log. SIGHUP reads the certificates of TLS again, and nothing else. SIGQUIT and SIGABRT still end
//! the process at once, with a core dump. Under systemd (`Type=notify`) the program reports that it is ready, that its shards make
//! progress, and that it stops. The log is written to standard error; it covers the control plane only.

pub(crate) mod allocator;
mod config;
mod screen;
mod systemd;
mod watch;

use std::fs;
use std::io::{self, IsTerminal, Write};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use sd_notify::NotifyState;
use signal_hook::consts::{SIGALRM, SIGHUP, SIGINT, SIGIO, SIGPROF, SIGTERM, SIGUSR1, SIGUSR2, SIGVTALRM, SIGXFSZ};
use signal_hook::iterator::Signals;
use skep::RegionError;
use skep_server::{Server, ServerSettings, StartError};
use tracing_subscriber::EnvFilter;

use crate::failure::{Failure, reason};
use crate::size::MemorySize;
pub(crate) use config::service_configuration;
use config::{Configuration, DEFAULT_CONFIGURATION, LogFormat};
use screen::{HugePages, Screen};
use systemd::{Watchdog, notify};
use watch::Watch;

const MIB: u64 = 1 << 20;

/// Starts the server.
#[derive(clap::Args, Debug)]
pub(crate) struct Arguments {
    #[command(flatten)]
    settings: Configuration,
    /// File of settings; flags override it.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print a configuration file with all settings and their defaults, and exit.
    #[arg(long)]
    print_config: bool,
}

/// Serves until a signal arrives.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    if arguments.print_config {
        io::stdout().write_all(DEFAULT_CONFIGURATION.as_bytes())?;
        return Ok(());
    }
    let starting = Arc::new(AtomicBool::new(true));
    let mut signals = stop_signals(&starting)
        .map_err(|error| Failure::Runtime(format!("cannot wait for signals: {}: {RAISE_THE_LIMIT}", reason(&error))))?;
    let file = match &arguments.config {
        Some(path) => Configuration::read(path)?,
        None => Configuration::default(),
    };
    let core_count = thread::available_parallelism().map_or(1, usize::from);
    let configuration = arguments.settings.clone().or(file);
    let password = configuration.password()?;
    let functions = configuration.functions()?;
    let tls = configuration.tls()?;
    let metrics = configuration.metrics();
    let mut settings = ServerSettings { password, functions, tls, ..configuration.clone().into_settings(core_count) };
    configuration.check(&settings)?;

    log_to_standard_error(configuration.log_format.unwrap_or_default());
    fit_defaults(&configuration, &mut settings);
    allocator::return_freed_buffers();
    // Before the stores: a supervisor sees that the server starts.
    let watch = metrics.map(start_watch).transpose()?;
    let server = Server::start(&settings).map_err(|error| failure_of(&error, &settings))?;
    // Not before: a refusal is one line.
    for path in configuration.secrets().filter(|path| is_open(path)) {
        let path = path.display();
        tracing::warn!("{path} has secrets, and all users of this machine can read it: chmod o-r {path}");
    }
    if let Some(watch) = &watch {
        watch.observe(&server);
    }
    let handle = signals.handle();
    server.on_shutdown(move || handle.close());
    if let Err(error) = allocator::return_unused_buffers() {
        tracing::warn!(%error, "cannot start a thread that returns unused buffers: up to 16 MiB stay with the server");
    }
    // From here on a signal stops the server in order.
    starting.store(false, Ordering::SeqCst);

    let shared_memory = settings.shared_memory.as_deref().and_then(|path| std::path::absolute(path).ok());
    let program = std::env::args().next().unwrap_or_else(|| "skep".to_owned());
    let screen = Screen {
        program: &program,
        native: server.native_address(),
        resp: server.resp_address(),
        shared_memory: shared_memory.as_deref(),
        memcached: server.memcached_address(),
        memcached_udp: server.memcached_udp_address(),
        udp: server.udp_address(),
        rdma: server.rdma_address(),
        metrics: watch.as_ref().map(Watch::address),
        memory: MemorySize(settings.memory),
        ordered_memory: MemorySize(settings.ordered_memory),
        cache_memory: MemorySize(settings.cache_memory),
        shard_count: settings.shards,
        data_dir: settings.data_dir.as_deref(),
        durability: settings.durability,
        prefault: settings.prefault,
        tls: settings.tls.as_ref(),
        has_password: server.needs_password(),
        protected_mode: settings.protected_mode,
        huge_pages: HugePages::of_this_machine(),
    };
    // If standard output is closed, the server still serves.
    _ = io::stdout().write_all(screen.text().as_bytes());
    notify(NotifyState::Ready);
    let watchdog = Watchdog::start(server.pulse());

    let signal = wait_for_stop(&mut signals, &server);
    tracing::info!("{}: stopping", signal.map_or("SHUTDOWN", name_of));
    drop(watchdog);
    notify(NotifyState::Stopping);
    server.stop();
    Ok(())
}

/// Waits for a signal that stops the server. `SHUTDOWN` ends the wait without one.
fn wait_for_stop(signals: &mut Signals, server: &Server) -> Option<i32> {
    signals.forever().find(|signal| match *signal {
        SIGHUP => {
            read_again(server);
            false
        }
        signal if IGNORED.contains(&signal) => {
            tracing::warn!("{} is ignored: SIGTERM or SHUTDOWN stops the server", name_of(signal));
            false
        }
        _ => true,
    })
}

/// Reads the certificates of TLS and the file of users again, if the server has some. They are all that can be read again.
fn read_again(server: &Server) {
    let certificates = server.read_certificates();
    match &certificates {
        Ok(true) => tracing::info!("SIGHUP: the certificates were read again"),
        Ok(false) => {}
        Err(error) => tracing::error!("SIGHUP: the certificates stay as they were: {}", reason(error)),
    }
    let users = server.read_users();
    match &users {
        Ok(true) => tracing::info!("SIGHUP: the users were read again"),
        Ok(false) => {}
        Err(error) => tracing::error!("SIGHUP: the users stay as they were: {}", reason(error)),
    }
    if matches!((certificates, users), (Ok(false), Ok(false))) {
        tracing::warn!(
            "SIGHUP is ignored: it reads certificates and users again, and this server has no files of them; SIGTERM or \
             SHUTDOWN stops the server"
        );
    }
}

/// Returns true if all users of the machine can read a file.
fn is_open(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o004 != 0)
}

fn start_watch(address: SocketAddr) -> Result<Watch, Failure> {
    Watch::start(address).map_err(|error| {
        let reason = reason(&error);
        Failure::Runtime(format!("cannot listen on {address}: {reason}: choose another address with --metrics"))
    })
}

/// Makes the default sizes smaller if the memory of the machine, or of its control group, is too small for them.
fn fit_defaults(configuration: &Configuration, settings: &mut ServerSettings) {
    if let Some(total) = skep_server::memory_total()
        && configuration.fit_defaults(settings, total)
    {
        let (total, memory) = (MemorySize(total / MIB * MIB), MemorySize(settings.memory));
        tracing::info!("the default sizes are smaller, because there are {total} in all: --memory is {memory}");
    }
}

/// Returns the failure of a start. It is one of usage if the settings cannot work on any machine.
fn failure_of(error: &StartError, settings: &ServerSettings) -> Failure {
    use StartError as Error;
    let message = explain(error, settings);
    match error {
        Error::HashMemory(error) | Error::OrderedMemory(error) | Error::CacheMemory(error) => match error {
            RegionError::TooSmall { .. } | RegionError::TooLarge { .. } => Failure::Usage(message),
            RegionError::Refused { .. } => Failure::Runtime(message),
        },
        Error::Shards(_)
        | Error::OrderedShards(_)
        | Error::Delay(_)
        | Error::Lease(_)
        | Error::ConnectionMemory { .. }
        | Error::Connections
        | Error::MemcachedWithoutCache
        | Error::CacheSizeWithoutCache
        | Error::MemcachedValue(_)
        | Error::MemcachedUdp(_)
        | Error::ShardPorts { .. }
        | Error::WithoutRdma
        | Error::WithoutDataDirectory
        | Error::Tls(_)
        | Error::Users(_)
        | Error::Store(_) => Failure::Usage(message),
        _ => Failure::Runtime(message),
    }
}

/// Explains why the memory of a space is too small for its stores: one for each shard, or one for all.
fn explain_memory(error: &StartError, settings: &ServerSettings) -> Option<String> {
    let (flag, memory, stores, cause) = match error {
        StartError::HashMemory(cause) => ("--memory", settings.memory, settings.shards, cause),
        StartError::OrderedMemory(cause) => ("--ordered-memory", settings.ordered_memory, 1, cause),
        StartError::CacheMemory(cause) => ("--cache-memory", settings.cache_memory, settings.shards, cause),
        _ => return None,
    };
    let RegionError::TooSmall { size, size_min } = *cause else { return None };
    let (memory, least, size_min) =
        (MemorySize(memory), MemorySize(size_min * u64::from(stores)), MemorySize(size_min));
    Some(match stores {
        1 => format!("{flag} {memory} is too little: choose at least {least}"),
        _ => format!(
            "{flag} {memory} gives each of {stores} shards {}; each needs at least {size_min}: choose at least {least}, \
             or fewer --shards",
            MemorySize(size)
        ),
    })
}

/// Explains why the server did not start, with the flags to change.
fn explain(error: &StartError, settings: &ServerSettings) -> String {
    if let Some(explained) = explain_memory(error, settings) {
        return explained;
    }
    match error {
        StartError::ShardPortInUse { front_end, .. } => format!("{error} with {}", flag_of(front_end)),
        StartError::ShardPorts { front_end, .. } => {
            error.to_string().replacen(&format!("{front_end} address"), flag_of(front_end), 1)
        }
        StartError::MemoryAvailable { memory, ordered_memory, cache_memory, connection_memory, available } => {
            let (available, most) = (MemorySize(*available), MemorySize(available / 10 * 9));
            let (memory, connections) = (MemorySize(*memory), MemorySize(*connection_memory));
            let others: String = [("--ordered-memory", ordered_memory), ("--cache-memory", cache_memory)]
                .iter()
                .filter(|(_, size)| **size > 0)
                .map(|(flag, size)| format!(", {flag} {}", MemorySize(**size)))
                .collect();
            format!(
                "--memory {memory}{others} and {connections} for connections (--connection-memory) are more than 90% of \
                 the {available} that this machine has to spare: choose at most {most} together"
            )
        }
        StartError::ConnectionMemory { connection_memory, connections_max } => format!(
            "--connection-memory {} is too little for --max-clients {connections_max}: choose at least {}, or fewer clients",
            MemorySize(*connection_memory),
            MemorySize(ServerSettings::connection_memory_min(*connections_max))
        ),
        StartError::SharedMemoryInUse(_) | StartError::SharedMemoryFile(_) => format!("{error} with --shared-memory"),
        StartError::SharedMemory { path, source } => format!(
            "cannot listen at {} for shared memory: {}: choose another path with --shared-memory",
            path.display(),
            reason(source)
        ),
        StartError::AddressInUse { front_end, .. } => format!("{error} with {}", flag_of(front_end)),
        StartError::Listen { front_end, address, source } => {
            format!(
                "cannot listen on {address}: {}: choose another address with {}",
                reason(source),
                flag_of(front_end)
            )
        }
        StartError::Cores { shards, cores } => format!(
            "--pin-threads: {shards} shards have no core each, because the process may use {cores}: choose fewer --shards, \
             or leave --pin-threads out"
        ),
        StartError::MemcachedWithoutCache => {
            let flag = flag_of(if settings.memcached.is_some() { "memcached" } else { "memcached UDP" });
            format!("{flag} needs a cache: add --cache-memory SIZE, such as --cache-memory 1GiB")
        }
        StartError::CacheSizeWithoutCache => {
            "--cache-kv-size needs a cache: add --cache-memory SIZE, such as --cache-memory 1GiB".to_owned()
        }
        StartError::DataDirectory(error) => match &settings.data_dir {
            Some(path) => format!("--data-dir {}: {}", path.display(), reason(error)),
            None => reason(error),
        },
        StartError::WithoutDataDirectory => {
            let flag = if settings.accept_loss {
                "--accept-loss".to_owned()
            } else {
                format!("--durability {}", settings.durability)
            };
            format!("{flag} needs a data directory: add --data-dir DIR")
        }
        _ => reason(error),
    }
}

/// Returns the flag for the address of a front end.
fn flag_of(front_end: &str) -> &'static str {
    match front_end {
        "RESP" => "--resp",
        "memcached" => "--memcached",
        "memcached UDP" => "--memcached-udp",
        "UDP" => "--udp",
        "RDMA" => "--rdma",
        _ => "--listen",
    }
}

/// The signals that are ignored, and that would end the process without a handler.
const IGNORED: [i32; 7] = [SIGHUP, SIGUSR1, SIGUSR2, SIGALRM, SIGVTALRM, SIGPROF, SIGIO];

fn name_of(signal: i32) -> &'static str {
    signal_hook::low_level::signal_name(signal).unwrap_or("signal")
}

/// The instruction if there is no file descriptor left for the signals.
const RAISE_THE_LIMIT: &str = "raise the limit of open files (ulimit -n)";

/// Returns the signals that stop the server, and those that are ignored. While `starting` is true, one of the former ends the
/// process with 0. Later a second SIGINT ends it with 1.
fn stop_signals(starting: &Arc<AtomicBool>) -> io::Result<Signals> {
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register_conditional_shutdown(signal, 0, Arc::clone(starting))?;
    }
    let stopping = Arc::new(AtomicBool::new(false));
    // The order matters: the first signal finds the flag unset and then sets it. Only the next signal finds it set.
    signal_hook::flag::register_conditional_shutdown(SIGINT, 1, Arc::clone(&stopping))?;
    signal_hook::flag::register(SIGINT, Arc::clone(&stopping))?;
    signal_hook::flag::register(SIGTERM, stopping)?;
    // A write beyond the limit of file sizes (ulimit -f) then fails, and does not end the process.
    signal_hook::flag::register(SIGXFSZ, Arc::default())?;
    Signals::new([SIGINT, SIGTERM].into_iter().chain(IGNORED))
}

fn log_to_standard_error(format: LogFormat) {
    let colours = io::stderr().is_terminal();
    // Others are not of interest unless they warn: the compiler of functions describes its work.
    let filter = EnvFilter::new("warn,skep=info");
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr);
    // This fails only if a log exists already.
    _ = match format {
        LogFormat::Text => log.with_ansi(colours).with_target(false).try_init(),
        LogFormat::Json => log.json().flatten_event(true).with_target(false).try_init(),
    };
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::is_open;

    #[test]
    fn a_file_of_secrets_that_all_users_can_read_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("password");
        fs::write(&path, "ham\n").unwrap();
        for (mode, open) in [(0o600, false), (0o640, false), (0o644, true)] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(is_open(&path), open, "{mode:o}");
        }
        assert!(!is_open(folder.path()) && !is_open(&folder.path().join("none")));
    }
}
