//! The start screen of `skep serve`: addresses, memory, and commands to try.

use std::fmt::Write as _;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;

use skep_server::{Durability, TlsSettings};

use crate::size::MemorySize;

/// The contents of the screen.
pub(super) struct Screen<'a> {
    /// The command that started this program, so that the examples can be copied.
    pub(super) program: &'a str,
    /// The address for native clients.
    pub(super) native: SocketAddr,
    /// The address for Redis clients.
    pub(super) resp: Option<SocketAddr>,
    /// The path of the socket for shared memory.
    pub(super) shared_memory: Option<&'a Path>,
    /// The address for clients of memcached.
    pub(super) memcached: Option<SocketAddr>,
    /// Their UDP address.
    pub(super) memcached_udp: Option<SocketAddr>,
    /// The first UDP address for native clients.
    pub(super) udp: Option<SocketAddr>,
    /// The first address for native clients over RDMA.
    pub(super) rdma: Option<SocketAddr>,
    /// The address for metrics.
    pub(super) metrics: Option<SocketAddr>,
    /// Memory of all shards together.
    pub(super) memory: MemorySize,
    /// Memory of the ordered space; 0 if it is disabled.
    pub(super) ordered_memory: MemorySize,
    /// Memory of the cache space; 0 if it is disabled.
    pub(super) cache_memory: MemorySize,
    /// Threads with one store each.
    pub(super) shard_count: u16,
    /// The data directory, if there is one.
    pub(super) data_dir: Option<&'a Path>,
    /// What a fault may cost.
    pub(super) durability: Durability,
    /// True if all memory was touched at the start, including that of the other spaces.
    pub(super) prefault: bool,
    /// The certificates, if the TCP ports speak TLS.
    pub(super) tls: Option<&'a TlsSettings>,
    /// Clients must send a password.
    pub(super) has_password: bool,
    /// Without a password, only clients on this machine are served.
    pub(super) protected_mode: bool,
    /// The kernel's policy for huge pages.
    pub(super) huge_pages: HugePages,
}

/// The kernel's policy for transparent huge pages. Every shard requests them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HugePages {
    /// The kernel grants them on request.
    Granted,
    /// The owner of the machine has disabled them.
    SwitchedOff,
    /// The kernel does not have them, or does not report its policy.
    Unknown,
}

impl HugePages {
    /// Reads the policy from the kernel.
    pub(super) fn of_this_machine() -> Self {
        match fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled") {
            Ok(choices) => Self::chosen(&choices),
            Err(_) => HugePages::Unknown,
        }
    }

    /// Returns the policy in brackets.
    fn chosen(choices: &str) -> Self {
        if choices.contains("[always]") || choices.contains("[madvise]") {
            HugePages::Granted
        } else if choices.contains("[never]") {
            HugePages::SwitchedOff
        } else {
            HugePages::Unknown
        }
    }
}

/// Default ports of the clients in the examples. The examples name any other port.
const NATIVE_DEFAULT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 7379);
const REDIS_PORT_DEFAULT: u16 = 6379;

/// Lines of text.
#[derive(Default)]
struct Lines(String);

impl Lines {
    fn add(&mut self, line: std::fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        _ = writeln!(self.0, "{line}");
    }
}

impl Screen<'_> {
    /// Returns the screen as text; each line ends with a newline.
    pub(super) fn text(&self) -> String {
        let mut lines = Lines::default();
        lines.add(format_args!("skep {} is ready (process {})", env!("CARGO_PKG_VERSION"), std::process::id()));
        lines.add(format_args!(""));
        self.add_addresses(&mut lines);
        self.add_memory(&mut lines);
        self.add_durability(&mut lines);
        self.add_access(&mut lines);
        lines.add(format_args!(""));
        lines.add(format_args!("Try, in another terminal:"));
        self.add_examples(&mut lines);
        lines.add(format_args!(""));
        lines.add(format_args!("Ctrl-C stops it."));
        lines.0
    }

    /// Adds the addresses of all front ends.
    fn add_addresses(&self, lines: &mut Lines) {
        let tls = if self.tls.is_some() { ", TLS" } else { "" };
        lines.add(format_args!("  native      {}{tls}", self.native));
        match self.resp {
            Some(address) => lines.add(format_args!("  RESP        {address}{tls}")),
            None => lines.add(format_args!("  RESP        off")),
        }
        if let Some(path) = self.shared_memory {
            lines.add(format_args!("  shm         shm:{}", path.display()));
        }
        if let Some(address) = self.memcached {
            lines.add(format_args!("  memcached   {address}{tls}"));
        }
        if let Some(address) = self.memcached_udp {
            lines.add(format_args!("  memcached   {address}, UDP"));
        }
        for (name, address) in [("UDP ", self.udp), ("RDMA", self.rdma)] {
            let Some(address) = address else { continue };
            match self.shard_count {
                1 => lines.add(format_args!("  {name}        {address}")),
                count => lines.add(format_args!(
                    "  {name}        {address} to {}, a port for each shard",
                    address.port().saturating_add(count - 1)
                )),
            }
        }
        if let Some(address) = self.metrics {
            lines.add(format_args!("  metrics     http://{address}/"));
        }
    }

    /// Adds the memory of each space, and the kernel's policy for it.
    fn add_memory(&self, lines: &mut Lines) {
        let shards = match self.shard_count {
            1 => "1 shard".to_owned(),
            count => format!("{count} shards"),
        };
        let touched = if self.prefault { "touched already" } else { "touched as it fills" };
        lines.add(format_args!("  memory      {} in {shards}, {touched}", self.memory));
        match self.ordered_memory {
            MemorySize(0) => lines.add(format_args!("  ordered     off")),
            size => lines.add(format_args!("  ordered     {size} for the ordered space (SELECT 1), {touched}")),
        }
        match self.cache_memory {
            MemorySize(0) => {}
            size => lines.add(format_args!("  cache       {size} for the cache space (SELECT 2), {touched}")),
        }
        lines.add(format_args!(
            "  huge pages  {}",
            match self.huge_pages {
                HugePages::Granted => "transparent huge pages asked for, and this kernel grants them",
                HugePages::SwitchedOff =>
                    "not granted: /sys/kernel/mm/transparent_hugepage/enabled says never; madvise would make skep faster",
                HugePages::Unknown => "asked for; this kernel does not say whether it grants them",
            }
        ));
    }

    /// Adds what a fault may cost, and where the data is.
    fn add_durability(&self, lines: &mut Lines) {
        match (self.data_dir, self.durability) {
            (None, _) => lines.add(format_args!("  durability  none: nothing survives a restart (--data-dir)")),
            (Some(path), level) => {
                let loss = match level {
                    Durability::Memory => {
                        "memory: a stop or a fault costs everything since the last snapshot (SHUTDOWN SAVE takes one)"
                    }
                    Durability::Second => "second: a fault costs at most the last second",
                    Durability::Always => "always: a fault costs nothing that was acknowledged",
                };
                lines.add(format_args!("  durability  {loss}"));
                lines.add(format_args!("  data        {}", path.display()));
            }
        }
    }

    /// Adds who is served: if other machines reach the server, or if not everybody on this one is.
    fn add_access(&self, lines: &mut Lines) {
        let open = [Some(self.native), self.resp, self.udp, self.rdma, self.memcached]
            .into_iter()
            .flatten()
            .any(|address| !address.ip().is_loopback());
        let needs_certificate = self.tls.is_some_and(|tls| tls.client_ca.is_some());
        if open || self.has_password || needs_certificate {
            let access = match (self.has_password, self.protected_mode) {
                (true, _) if needs_certificate => "clients over TCP have a certificate, and send a password",
                (true, _) => "clients send a password",
                (false, true) if needs_certificate => {
                    "clients over TCP have a certificate; others only from this machine"
                }
                (false, true) => {
                    "only from this machine, because there is no password (--requirepass-file, --acl-file)"
                }
                (false, false) => "without a password: any client that reaches this machine can change everything",
            };
            lines.add(format_args!("  access      {access}"));
        }
    }

    /// Adds commands to try.
    fn add_examples(&self, lines: &mut Lines) {
        let to_native = self.native_option();
        if let Some(address) = self.resp {
            let login = self.redis_login();
            lines.add(format_args!("  redis-cli{}{login} SET a 1", redis_options(address)));
            lines.add(format_args!("  {} cli{to_native} incr a 41", self.program));
        } else {
            lines.add(format_args!("  {} cli{to_native} put a 1", self.program));
            lines.add(format_args!("  {} cli{to_native} incr a 41", self.program));
        }
        lines.add(format_args!("  {} cli{to_native} update hits add i64 5 --init 0", self.program));
        if let Some(path) = self.shared_memory {
            lines.add(format_args!("  {} cli --addr shm:{} get a", self.program, path.display()));
        }
        if let Some(address) = self.memcached.map(reachable).filter(|_| self.tls.is_none()) {
            let (ip, port) = (address.ip(), address.port());
            lines.add(format_args!("  printf 'set a 0 0 1\\r\\n1\\r\\nget a\\r\\nquit\\r\\n' | nc {ip} {port}"));
        }
    }

    /// Returns the options of `skep cli` for this server; empty if the defaults are right.
    fn native_option(&self) -> String {
        let reachable = reachable(self.native);
        let mut options = if reachable == NATIVE_DEFAULT { String::new() } else { format!(" --addr {reachable}") };
        if let Some(tls) = self.tls {
            options += " --tls-ca CA.pem";
            options += if tls.client_ca.is_some() { " --tls-cert CLIENT.pem --tls-key CLIENT.key" } else { "" };
        }
        options += if self.has_password { " --password-file FILE" } else { "" };
        options
    }

    /// Returns the options with which `redis-cli` gets in; empty if it needs none.
    fn redis_login(&self) -> String {
        let mut options = String::new();
        if let Some(tls) = self.tls {
            options += " --tls --cacert CA.pem";
            options += if tls.client_ca.is_some() { " --cert CLIENT.pem --key CLIENT.key" } else { "" };
        }
        options += if self.has_password { " --askpass" } else { "" };
        options
    }
}

/// Returns the options of `redis-cli` for this server; empty if the defaults are right.
fn redis_options(address: SocketAddr) -> String {
    let address = reachable(address);
    let mut options = String::new();
    if address.ip() != NATIVE_DEFAULT.ip() {
        _ = write!(options, " -h {}", address.ip());
    }
    if address.port() != REDIS_PORT_DEFAULT {
        _ = write!(options, " -p {}", address.port());
    }
    options
}

/// Returns an address at which a client on this machine reaches the listener at `address`.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

#[cfg(test)]
mod tests {
    use super::{Durability, HugePages, Screen, TlsSettings};
    use crate::size::MemorySize;

    fn screen() -> Screen<'static> {
        Screen {
            program: "skep",
            native: "127.0.0.1:7379".parse().unwrap(),
            resp: Some("127.0.0.1:6379".parse().unwrap()),
            shared_memory: None,
            memcached: None,
            memcached_udp: None,
            udp: None,
            rdma: None,
            metrics: None,
            memory: MemorySize(1 << 30),
            ordered_memory: MemorySize(256 << 20),
            cache_memory: MemorySize(0),
            data_dir: None,
            durability: Durability::Memory,
            shard_count: 2,
            prefault: false,
            tls: None,
            has_password: false,
            protected_mode: true,
            huge_pages: HugePages::Granted,
        }
    }

    #[test]
    fn the_screen_shows_addresses_and_commands() {
        let text = screen().text();
        for part in [
            "127.0.0.1:7379",
            "127.0.0.1:6379",
            "1 GiB in 2 shards",
            "256 MiB for the ordered space",
            "nothing survives a restart",
        ] {
            assert!(text.contains(part), "{text}");
        }
        for example in
            ["  redis-cli SET a 1\n", "  skep cli incr a 41\n", "  skep cli update hits add i64 5 --init 0\n"]
        {
            assert!(text.contains(example), "{text}");
        }
        assert!(!text.contains("password"));
        assert!(text.lines().count() <= 24 && text.lines().all(|line| line.len() <= 100), "{text}");
    }

    #[test]
    fn other_addresses_are_in_the_examples() {
        let other = Screen {
            native: "0.0.0.0:7000".parse().unwrap(),
            resp: Some("192.0.2.1:6000".parse().unwrap()),
            ..screen()
        };
        let text = other.text();
        assert!(text.contains("redis-cli -h 192.0.2.1 -p 6000 SET a 1"), "{text}");
        assert!(text.contains("skep cli --addr 127.0.0.1:7000 incr a 41"), "{text}");
        assert!(text.contains("only from this machine, because there is no password"), "{text}");
        let open = Screen { protected_mode: false, ..other }.text();
        assert!(open.contains("without a password: any client"), "{open}");
        let closed = Screen { native: "0.0.0.0:7000".parse().unwrap(), has_password: true, ..screen() }.text();
        assert!(closed.contains("clients send a password"), "{closed}");
        let own = Screen { has_password: true, ..screen() }.text();
        for part in
            ["clients send a password", "redis-cli --askpass SET a 1", "skep cli --password-file FILE incr a 41"]
        {
            assert!(own.contains(part), "{own}");
        }
        let tls = TlsSettings { certificate: "a".into(), key: "b".into(), client_ca: Some("c".into()) };
        let secure = Screen { native: "0.0.0.0:7000".parse().unwrap(), tls: Some(&tls), ..screen() }.text();
        for part in [
            "  RESP        127.0.0.1:6379, TLS\n",
            "  access      clients over TCP have a certificate; others only from this machine\n",
            "redis-cli --tls --cacert CA.pem --cert CLIENT.pem --key CLIENT.key SET a 1",
            "skep cli --addr 127.0.0.1:7000 --tls-ca CA.pem --tls-cert CLIENT.pem --tls-key CLIENT.key incr a 41",
        ] {
            assert!(secure.contains(part), "{secure}");
        }
        let shared = Screen { shared_memory: Some("/run/skep.sock".as_ref()), ..screen() }.text();
        assert!(shared.contains("  shm         shm:/run/skep.sock\n"), "{shared}");
        assert!(shared.contains("  skep cli --addr shm:/run/skep.sock get a\n"), "{shared}");
        let udp = Screen { udp: Some("127.0.0.1:7380".parse().unwrap()), ..screen() }.text();
        assert!(udp.contains("  UDP         127.0.0.1:7380 to 7381, a port for each shard\n"), "{udp}");
        let silent = Screen { resp: None, ordered_memory: MemorySize(0), ..screen() }.text();
        assert!(silent.contains("  ordered     off\n"), "{silent}");
        assert!(
            !silent.contains("redis-cli") && !silent.contains("cache") && !silent.contains("memcached"),
            "{silent}"
        );
        let cache = Screen {
            memcached: Some("127.0.0.1:11211".parse().unwrap()),
            cache_memory: MemorySize(1 << 30),
            ..screen()
        };
        let text = cache.text();
        assert!(text.contains("  memcached   127.0.0.1:11211\n"), "{text}");
        assert!(text.contains("get a\\r\\nquit\\r\\n' | nc 127.0.0.1 11211\n"), "{text}");
        assert!(text.contains("  cache       1 GiB for the cache space (SELECT 2), touched as it fills\n"), "{text}");
    }

    #[test]
    fn the_kernels_choice_is_read() {
        assert_eq!(HugePages::chosen("always [madvise] never\n"), HugePages::Granted);
        assert_eq!(HugePages::chosen("[always] madvise never\n"), HugePages::Granted);
        assert_eq!(HugePages::chosen("always madvise [never]\n"), HugePages::SwitchedOff);
        assert_eq!(HugePages::chosen(""), HugePages::Unknown);
    }
}
