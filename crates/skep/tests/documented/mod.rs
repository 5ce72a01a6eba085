//! Follows pages of the documentation: finds their blocks of code, and runs their commands as a reader would type them.
//!
//! Commands run in a network namespace of their own, so that they find the default ports free, and in an empty directory.
//! Two kinds of blocks have commands:
//!
//! - `sh`: the lines are one script, which must succeed.
//! - `console`: a line that begins with `$ ` is a command, typed on a terminal. The lines after it are what it prints;
//!   without any, its output does not matter.
//!
//! A command that begins with `skep serve` starts the server, after the one before is stopped. Namespaces need root.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use crate::process::{Server, text};

/// A fenced block of a page.
pub(crate) struct Block {
    /// The words after the three quotes.
    pub(crate) kind: String,
    /// Its lines, without the indentation of the block.
    pub(crate) text: String,
}

/// Returns the fenced blocks of a page.
pub(crate) fn blocks(page: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut open = None;
    for line in page.lines() {
        match (line.trim_start().strip_prefix("```"), open) {
            (Some(kind), None) => {
                open = Some(line.len() - line.trim_start().len());
                blocks.push(Block { kind: kind.to_owned(), text: String::new() });
            }
            (Some(_), Some(_)) => open = None,
            (None, Some(indentation)) => {
                let block = blocks.last_mut().expect("a block is open");
                block.text += line.get(indentation..).unwrap_or_default();
                block.text.push('\n');
            }
            (None, None) => {}
        }
    }
    blocks
}

/// A process that ends with the test.
pub(crate) struct Running(Child);

impl Running {
    pub(crate) fn start(command: &mut Command) -> Running {
        command.stdout(Stdio::null()).stderr(Stdio::null());
        Running(command.spawn().expect("the program starts"))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

/// A reader of a page: a directory, a network, and perhaps a server.
pub(crate) struct Reader {
    /// A process whose network the commands use.
    network: Child,
    /// Keeps the directory.
    _folder: tempfile::TempDir,
    /// The directory in which commands are typed.
    directory: PathBuf,
    /// The search path of programs.
    path: String,
    server: Option<Server>,
}

impl Reader {
    /// Gives the reader an empty directory and an empty network. `skep` and `target/release/skep` are the program.
    pub(crate) fn new() -> Reader {
        let mut command = Command::new("unshare");
        command.args(["--net", "sh", "-ec", "ip link set lo up; echo up; exec cat"]);
        let mut network = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("util-linux has unshare");
        let mut line = String::new();
        let stdout = network.stdout.as_mut().expect("a pipe");
        BufReader::new(stdout).read_line(&mut line).expect("a pipe can be read");
        assert_eq!(line, "up\n", "a network namespace needs root and `ip`");
        let folder = tempfile::tempdir().expect("a directory");
        let (directory, programs) = (folder.path().join("work"), folder.path().join("bin"));
        let release = directory.join("target/release");
        for made in [&programs, &release] {
            fs::create_dir_all(made).expect("a directory");
            symlink(env!("CARGO_BIN_EXE_skep"), made.join("skep")).expect("a link");
        }
        let path = format!("{}:{}", programs.display(), std::env::var("PATH").expect("a path"));
        Reader { network, _folder: folder, directory, path, server: None }
    }

    /// Returns the command of a program that runs in the reader's network and directory.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/proc/{}/ns/net", self.network.id())).arg("--").arg(program);
        command.current_dir(&self.directory).env("PATH", &self.path).env_remove("NOTIFY_SOCKET").stdin(Stdio::null());
        command
    }

    /// Starts a server by the words after `skep serve`, after the one before is stopped.
    pub(crate) fn serve(&mut self, words: &str) {
        if let Some(mut server) = self.server.take() {
            server.signal("TERM");
            assert!(server.wait().success(), "the server before `skep serve {words}` did not end well");
        }
        self.server = Some(Server::start_command(self.command("sh").args(["-c", &format!("exec skep serve {words}")])));
    }

    /// Follows a page.
    pub(crate) fn follow(&mut self, page: &str) {
        for block in blocks(page) {
            match block.kind.as_str() {
                "sh" => self.run_script(&block.text),
                "console" => self.type_commands(&block.text),
                _ => {}
            }
        }
    }

    /// Runs the lines of a script. Those that start a server stay alone.
    fn run_script(&mut self, script: &str) {
        let mut lines = String::new();
        for line in script.replace("\\\n", "").lines() {
            if let Some(words) = words_of_server(line) {
                self.run(&std::mem::take(&mut lines));
                self.serve(words);
            } else {
                lines += line;
                lines.push('\n');
            }
        }
        self.run(&lines);
    }

    fn run(&self, lines: &str) {
        let output = self.command("sh").args(["-exc", lines]).output().expect("there is a shell");
        let printed = text(&output.stdout) + &text(&output.stderr);
        assert!(output.status.success(), "{}: this failed:\n{lines}\n{printed}", output.status);
    }

    /// Types the commands of a dialogue, and compares what they print.
    fn type_commands(&mut self, dialogue: &str) {
        for part in format!("\n{dialogue}").split("\n$ ").skip(1) {
            let (line, expected) = part.split_once('\n').unwrap_or((part, ""));
            if let Some(words) = words_of_server(line) {
                self.serve(words);
                continue;
            }
            let typed = format!("stty cols 100; {line}");
            let mut terminal = self.command("script");
            terminal.args(["--quiet", "--return", "--command", &typed, "/dev/null"]).env("SHELL", "/bin/sh");
            let printed = text(&terminal.output().expect("util-linux has script").stdout).replace('\r', "");
            if !expected.trim().is_empty() {
                assert_eq!(printed.trim_end(), expected.trim_end(), "`{line}` prints something else");
            }
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        // The server is in the network.
        self.server = None;
        _ = self.network.kill();
        _ = self.network.wait();
    }
}

/// Returns the words after `skep serve` of a command that starts a server.
fn words_of_server(line: &str) -> Option<&str> {
    let line = line.split(" # ").next().unwrap_or_default().trim();
    let programs = ["skep", "target/release/skep", "cargo run --release --"];
    programs.iter().find_map(|program| line.strip_prefix(program)?.strip_prefix(" serve"))
}
