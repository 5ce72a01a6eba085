//! Programs on a terminal of their own, which util-linux's `script` provides.

use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use crate::process::{WATCHDOG, wait};

/// A shell on a terminal.
pub(crate) struct Terminal {
    script: Child,
    output: Arc<Mutex<Vec<u8>>>,
}

impl Terminal {
    /// Runs a command of the shell on a terminal. `$SKEP` is the program, and `home` the folder of its history.
    pub(crate) fn start(command: &str, home: &Path) -> Terminal {
        let mut script = Command::new("script")
            .args(["-qefc", command, "/dev/null"])
            .env("SHELL", "/bin/sh")
            .env("SKEP", env!("CARGO_BIN_EXE_skep"))
            .env("TERM", "xterm")
            .env("XDG_STATE_HOME", home)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("util-linux has script");
        let output = Arc::new(Mutex::new(Vec::new()));
        let (mut stdout, read) = (script.stdout.take().expect("a pipe"), output.clone());
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = stdout.read(&mut bytes) {
                read.lock().expect("no thread panics").extend_from_slice(&bytes[..count]);
            }
        });
        Terminal { script, output }
    }

    /// Types these bytes.
    pub(crate) fn type_in(&mut self, bytes: &[u8]) {
        self.script.stdin.as_mut().expect("a pipe").write_all(bytes).expect("it reads");
    }

    /// Returns what was printed since the start.
    pub(crate) fn printed(&self) -> String {
        String::from_utf8_lossy(&self.output.lock().expect("no thread panics")).into_owned()
    }

    /// Waits until a text has been printed.
    #[track_caller]
    pub(crate) fn wait_for(&self, text: &str) {
        let begun = Instant::now();
        while !self.printed().contains(text) {
            assert!(begun.elapsed() < WATCHDOG, "{text:?} is not in {:?}", self.printed());
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits until a text has been printed after the last of another one.
    #[track_caller]
    pub(crate) fn wait_for_after(&self, first: &str, text: &str) {
        let begun = Instant::now();
        while !self.printed().rsplit_once(first).is_some_and(|(_, end)| end.contains(text)) {
            assert!(begun.elapsed() < WATCHDOG, "{text:?} is not in {:?}", self.printed());
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits for the end of the shell.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        wait(&mut self.script)
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // It has ended, unless the test has failed.
        _ = self.script.kill();
        _ = self.script.wait();
    }
}
