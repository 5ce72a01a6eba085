//! Runs of the program: to its end, or as a server that is stopped at the end of the test.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStdout, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

/// The longest time in which a server must start or end. It finds what hangs: a machine that is busy with other work, such
/// as a build, fails no test.
pub(crate) const WATCHDOG: Duration = Duration::from_secs(90);

/// Returns the command of the program with these arguments.
pub(crate) fn skep(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_skep"));
    command.args(arguments).stdin(Stdio::null()).env_remove("NOTIFY_SOCKET");
    command
}

/// Runs the program to its end.
pub(crate) fn output(arguments: &[&str]) -> Output {
    skep(arguments).output().expect("the program starts")
}

/// Runs a program that must refuse its arguments. If it prints something instead, it is killed: a server that has
/// started would run for ever.
pub(crate) fn refusal(arguments: &[&str]) -> Output {
    let mut child = skep(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts");
    let printed = child.stdout.as_mut().expect("standard output is a pipe").read(&mut [0]);
    if !matches!(printed, Ok(0)) {
        _ = child.kill();
        _ = child.wait();
        panic!("{arguments:?} was not refused");
    }
    child.wait_with_output().expect("the program ends")
}

/// Starts a server. Returns its output if it refuses to start.
pub(crate) fn start_or_refusal(command: &mut Command) -> Result<Child, Output> {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts");
    let mut stdout = child.stdout.take().expect("standard output is a pipe");
    let (sender, receiver) = channel();
    thread::spawn(move || {
        let printed = stdout.read(&mut [0]).expect("standard output can be read");
        // The thread returns the pipe, so that it stays open as long as the server.
        sender.send((printed, stdout))
    });
    let Ok((printed, stdout)) = receiver.recv_timeout(WATCHDOG) else {
        _ = child.kill();
        panic!("{command:?} neither serves nor ends: {:?}", child.wait_with_output());
    };
    child.stdout = Some(stdout);
    if printed == 0 { Err(child.wait_with_output().expect("the program ends")) } else { Ok(child) }
}

/// Asserts that the program has failed: with this exit code, an empty standard output, and one line that contains the
/// parts.
pub(crate) fn assert_refusal(output: &Output, code: i32, parts: &[&str]) {
    let line = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{line}");
    assert_eq!(text(&output.stdout), "");
    assert!(line.starts_with("skep: ") && line.ends_with('\n') && line.lines().count() == 1, "not one line: {line:?}");
    for part in parts {
        assert!(line.contains(part), "{line:?} lacks {part:?}");
    }
    for internal in ["panicked", "RUST_BACKTRACE", "Os {", "os error", "Error("] {
        assert!(!line.contains(internal), "{line:?} shows internals");
    }
}

/// Sends a signal with the shell, since the standard library cannot.
pub(crate) fn signal(child: &Child, name: &str) {
    let kill = format!("kill -{name} {}", child.id());
    let status = Command::new("sh").args(["-c", &kill]).status().expect("there is a shell");
    assert!(status.success(), "{kill}");
}

/// Waits for a process that must end and returns its exit status.
pub(crate) fn wait(child: &mut Child) -> ExitStatus {
    let begun = Instant::now();
    while begun.elapsed() < WATCHDOG {
        if let Some(status) = child.try_wait().expect("a child can be waited for") {
            return status;
        }
        thread::sleep(Duration::from_millis(1));
    }
    _ = child.kill();
    panic!("the process does not end");
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("the program prints UTF-8")
}

/// A server on free ports.
pub(crate) struct Server {
    child: Child,
    /// Keeps the pipe open, so that the server never writes to a closed one.
    _stdout: BufReader<ChildStdout>,
    /// The start screen.
    pub(crate) screen: String,
    pub(crate) native: String,
    pub(crate) resp: Option<String>,
}

impl Server {
    /// Starts a server with two shards of 32 MiB and these arguments.
    pub(crate) fn start(arguments: &[&str]) -> Server {
        Self::start_command(
            skep(&["serve", "--listen", "127.0.0.1:0", "--resp", "127.0.0.1:0", "--memory", "64MiB", "--shards", "2"])
                .args(arguments),
        )
    }

    /// Starts a server with this command.
    pub(crate) fn start_command(command: &mut Command) -> Server {
        let mut child = command.stdout(Stdio::piped()).spawn().expect("the program starts");
        let mut stdout = BufReader::new(child.stdout.take().expect("standard output is a pipe"));
        let mut screen = String::new();
        while !screen.ends_with("Ctrl-C stops it.\n") {
            let read = stdout.read_line(&mut screen).expect("the screen can be read");
            assert!(read > 0, "the server ended after printing {screen:?}: {:?}", child.wait());
        }
        let value_of = |name: &str| {
            let line = screen.lines().find_map(|line| line.trim_start().strip_prefix(name));
            line.expect("the screen names both ports").trim().trim_end_matches(", TLS").to_owned()
        };
        let (native, resp) = (value_of("native "), Some(value_of("RESP ")).filter(|address| address != "off"));
        Server { child, _stdout: stdout, screen, native, resp }
    }

    /// Sends a signal.
    pub(crate) fn signal(&self, name: &str) {
        signal(&self.child, name);
    }

    /// Waits for the end of the server and returns its exit status.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        wait(&mut self.child)
    }

    /// Returns its process id.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Runs `skep cli` against this server.
    pub(crate) fn cli(&self, words: &[&str]) -> Output {
        self.cli_command(words).output().expect("the program starts")
    }

    /// Runs `skep cli` against this server with `input` on its standard input.
    pub(crate) fn cli_with_input(&self, words: &[&str], input: &[u8]) -> Output {
        let mut command = self.cli_command(words);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let mut stdin = child.stdin.take().expect("standard input is a pipe");
        // The program may refuse the input and exit before it has read all of it.
        _ = stdin.write_all(input);
        drop(stdin);
        child.wait_with_output().expect("the program ends")
    }

    /// Returns the number of keys in the two spaces, read from the RESP port.
    pub(crate) fn key_counts(&self) -> [u64; 2] {
        let mut resp = TcpStream::connect(self.resp.as_ref().expect("the RESP port is on")).expect("it listens");
        resp.write_all(b"DBSIZE\r\nSELECT 1\r\nDBSIZE\r\n").expect("it reads");
        let mut lines = BufReader::new(resp).lines().map(|line| line.expect("it replies"));
        let [hash, selected, ordered] = std::array::from_fn(|_| lines.next().expect("it replies"));
        assert_eq!(selected, "+OK");
        [hash, ordered].map(|line| line.trim_start_matches(':').parse().expect("the reply is a number"))
    }

    pub(crate) fn cli_command(&self, words: &[&str]) -> Command {
        let mut command = skep(&["cli", "--addr", &self.native]);
        command.args(words);
        command
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The server has already ended in tests of its end.
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

/// Waits until a directory that this process had locked is free. A process that another test has just started holds a copy of
/// the lock until its program begins.
pub(crate) fn wait_until_unlocked(directory: &str) {
    let is_locked = || text(&output(&["log", "check", directory]).stderr).contains("a server uses it");
    let begun = Instant::now();
    while is_locked() {
        assert!(begun.elapsed() < WATCHDOG, "{directory} stays locked");
    }
}
