//! The steps of a start, each of which the system may refuse.
//!
//! Every system call whose failure ends the start goes through [`Steps`]: there is no conversion from its error to a
//! [`StartError`] otherwise. So each refusal names the step and the remedy, and the test below can refuse every step in
//! turn without a list of them. The results of the earlier steps are dropped with the error, and that ends them:
//! threads that were started wait until all steps are taken, see [`crate::threads::Threads`].

use std::io;

use rustix::io::Errno;
use skep_store::memory::RegionError;

use crate::start_error::StartError;

/// Counts the steps of a start.
#[derive(Debug, Default)]
pub(crate) struct Steps {
    taken: usize,
    /// The step that is refused instead of taken; only tests choose one.
    refused: Option<usize>,
}

impl Steps {
    /// Refuses a step, the first one by 1.
    #[cfg(test)]
    pub(crate) fn refusing(step: usize) -> Steps {
        Steps { taken: 0, refused: Some(step) }
    }

    /// Takes a step; `refusal` makes the error of the start from that of the system.
    pub(crate) fn take<T, E: Into<io::Error>>(
        &mut self,
        step: impl FnOnce() -> Result<T, E>,
        refusal: impl FnOnce(io::Error) -> StartError,
    ) -> Result<T, StartError> {
        if self.is_refused() {
            return Err(refusal(Errno::AGAIN.into()));
        }
        step().map_err(|error| refusal(error.into()))
    }

    /// Takes a step that opens a file descriptor or waits for events on one.
    pub(crate) fn open<T, E: Into<io::Error>>(
        &mut self,
        what: impl Into<String>,
        open: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, StartError> {
        self.take(open, |source| StartError::Descriptor { what: what.into(), source })
    }

    /// Takes a step that reserves memory.
    pub(crate) fn reserve<T>(
        &mut self,
        reserve: impl FnOnce() -> Result<T, RegionError>,
        refusal: impl FnOnce(RegionError) -> StartError,
    ) -> Result<T, StartError> {
        if self.is_refused() {
            return Err(refusal(RegionError::Refused { size: 0, reason: Errno::NOMEM.to_string() }));
        }
        reserve().map_err(refusal)
    }

    fn is_refused(&mut self) -> bool {
        self.taken += 1;
        self.refused == Some(self.taken)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::read_dir;
    use std::io::{Read, Write};
    use std::net::{SocketAddr, TcpStream};
    use std::process::Command;
    use std::time::Duration;

    use super::Steps;
    use crate::{Server, ServerSettings};

    /// The time that a start, or the end of what it began, may take before the test gives up.
    const WATCHDOG: Duration = Duration::from_secs(60);

    /// In a process of its own, whose threads and descriptors are those of the server alone.
    #[test]
    fn a_start_that_is_refused_any_step_leaves_nothing_behind() {
        const VARIABLE: &str = "SKEP_TEST_START";
        if std::env::var_os(VARIABLE).is_some() {
            return refuse_each_step();
        }
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "start::tests::a_start_that_is_refused_any_step_leaves_nothing_behind", "--nocapture"])
            .env(VARIABLE, "1")
            .output()
            .unwrap();
        assert!(child.status.success(), "{}", String::from_utf8_lossy(&child.stderr));
        print!("{}", String::from_utf8_lossy(&child.stdout));
    }

    fn refuse_each_step() {
        std::thread::spawn(|| {
            std::thread::sleep(WATCHDOG);
            eprintln!("a start, or the end of its threads, takes longer than {WATCHDOG:?}");
            std::process::abort();
        });
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let small = ServerSettings {
            native: any,
            resp: Some(any),
            udp: Some(any),
            memcached: Some(any),
            memcached_udp: Some(any),
            shared_memory: Some(std::env::temp_dir().join(format!("skep-start-{}", std::process::id()))),
            memory: 16 << 20,
            ordered_memory: 8 << 20,
            cache_memory: 16 << 20,
            prefault: true,
            ..ServerSettings::default()
        };
        let three_shards = ServerSettings { shards: 3, ..small.clone() };
        let parts = [
            "native",
            "RESP",
            "UDP",
            "a socket for shared memory",
            "cannot listen at",
            "packets of shard 2",
            "memcached",
            "memcached UDP",
            "address space",
            "shard 0",
            "shard 2",
            "skep-merge-2",
            "skep-shard-0",
            "skep-shard-2",
        ];
        refuse_each_step_of(&three_shards, &parts);
        refuse_each_step_of(&ServerSettings { pin_threads: true, ..small }, &["which cores"]);
    }

    /// Refuses the first step, the second and so on until there are no more; the refusals tell of all these parts.
    fn refuse_each_step_of(settings: &ServerSettings, parts: &[&str]) {
        let before = [entries("fd"), entries("task")];
        // A thread that was joined is listed for a moment longer.
        let wait_for_the_end = || {
            while [entries("fd"), entries("task")] != before {
                std::thread::yield_now();
            }
        };
        let mut refusals = Vec::new();
        let server = loop {
            let steps = Steps::refusing(refusals.len() + 1);
            match Server::start_in_steps(settings, steps) {
                Ok(server) => break server,
                Err(error) => refusals.push(error.to_string()),
            }
            wait_for_the_end();
        };
        for message in &refusals {
            let says_what_to_do = ["raise", "choose"].iter().any(|verb| message.contains(verb));
            assert!(says_what_to_do && !message.contains('\n'), "{message}");
        }
        for part in parts {
            assert!(refusals.iter().any(|message| message.contains(part)), "nothing about {part}: {refusals:#?}");
        }
        let mut client = TcpStream::connect(server.resp_address().unwrap()).unwrap();
        client.write_all(b"PING\r\n").unwrap();
        let mut pong = [0; 7];
        client.read_exact(&mut pong).unwrap();
        assert_eq!(&pong, b"+PONG\r\n");
        drop(client);
        server.stop();
        wait_for_the_end();
        println!("{} steps were refused in turn", refusals.len());
    }

    /// Returns the number of file descriptors or threads of this process.
    fn entries(directory: &str) -> usize {
        read_dir(format!("/proc/self/{directory}")).unwrap().count()
    }
}
