//! Runs `skep serve` during its start: limits of the system, signals, and the cores of its threads.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use crate::process::{Server, assert_refusal, refusal, signal, skep, start_or_refusal, wait};

const SMALL: [&str; 10] = [
    "--listen",
    "127.0.0.1:0",
    "--resp",
    "127.0.0.1:0",
    "--memory",
    "64MiB",
    "--ordered-memory",
    "8MiB",
    "--shards",
    "2",
];

/// Starts a small server of this program, under the limit that the shell command sets. Returns true if it started.
/// Otherwise checks that it failed with an error that contains `parts`.
fn starts_under(limit: &str, program: &Path, user: Option<u32>, parts: &[&str]) -> bool {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("{limit}; exec \"$0\" serve \"$@\"")]).arg(program).args(SMALL).stdin(Stdio::null());
    command.current_dir("/");
    if let Some(user) = user {
        command.uid(user).gid(user);
    }
    match start_or_refusal(&mut command) {
        Ok(mut child) => {
            signal(&child, "TERM");
            assert_eq!(wait(&mut child).code(), Some(0), "{limit}");
            true
        }
        Err(output) => {
            assert_refusal(&output, 1, parts);
            false
        }
    }
}

#[test]
fn a_start_with_too_few_descriptors_ends_and_says_what_to_do() {
    let program = Path::new(env!("CARGO_BIN_EXE_skep"));
    // With three descriptors, the dynamic loader cannot open the libraries.
    let first = 4;
    let enough = (first..100).find(|limit| starts_under(&format!("ulimit -n {limit}"), program, None, &["ulimit -n"]));
    let enough = enough.expect("100 descriptors are enough");
    // The standard streams, signals, two ports, and two for each of two shards.
    assert!(enough > first + 6, "{enough} descriptors were enough");
}

#[test]
fn a_start_with_too_few_threads_ends_and_says_what_to_do() {
    // The limit counts all processes of a user, and does not apply to root. Root can start the server as a user without
    // processes. Other users can only test a limit that refuses the first thread. The shell option for the limit is -u
    // or -p.
    let is_root = fs::metadata("/proc/self").expect("there is /proc").uid() == 0;
    let limit = |count: u32| format!("ulimit -u {count} 2>/dev/null || ulimit -p {count}");
    let parts = ["the thread skep-", "ulimit -u", "shards"];
    if !is_root {
        let program = Path::new(env!("CARGO_BIN_EXE_skep"));
        assert!(!starts_under(&limit(1), program, None, &parts));
        return;
    }
    // The copy is in a directory that every user can read.
    let program = Program::copy();
    let user = 20_000 + std::process::id() % 40_000;
    let enough = (1..20).find(|&count| starts_under(&limit(count), &program.0, Some(user), &parts));
    // The process itself, and two threads for each of two shards.
    assert_eq!(enough, Some(5));
}

/// A copy of the program in the system's directory for temporary files.
struct Program(PathBuf);

impl Program {
    fn copy() -> Program {
        let path = std::env::temp_dir().join(format!("skep-test-{}", std::process::id()));
        // Another process makes the copy, because a file that is open for writing cannot be executed. If this process
        // wrote it, a child process that another test forks meanwhile could still have it open.
        let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_skep")).arg(&path).status().expect("there is cp");
        assert!(copied.success(), "the program can be copied");
        Program(path)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        _ = fs::remove_file(&self.0);
    }
}

#[test]
fn a_signal_while_it_touches_its_memory_ends_it_immediately() {
    for name in ["TERM", "INT"] {
        let ended_early = (0..20).any(|_| {
            let mut command = skep(&["serve", "--prefault", "--shards", "1", "--memory", "1GiB"]);
            command.args(["--listen", "127.0.0.1:0", "--resp", "off", "--ordered-memory", "off"]);
            let mut child = command.stdout(Stdio::piped()).spawn().expect("the program starts");
            while !is_caught(child.id(), 15) {
                thread::sleep(Duration::from_micros(100));
            }
            signal(&child, name);
            assert_eq!(wait(&mut child).code(), Some(0), "SIG{name}");
            let output = child.wait_with_output().expect("the program has ended");
            // On a busy machine the server may have started before the signal arrived. Then the test is repeated.
            output.stdout.is_empty()
        });
        assert!(ended_early, "SIG{name} never arrived before the server had started");
    }
}

/// Returns true if a process catches a signal.
fn is_caught(process: u32, number: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{process}/status")).expect("the process exists");
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).expect("the status lists caught signals");
    u64::from_str_radix(caught.trim(), 16).expect("the signals are a number") >> (number - 1) & 1 == 1
}

/// Returns the cores that a thread of a process may run on. Waits until a thread has a name that begins with `name`.
fn cores_of(process: u32, name: &str) -> String {
    loop {
        if let Some(cores) = all_cores_of(process, name).pop() {
            return cores;
        }
        thread::sleep(Duration::from_millis(1));
    }
}

fn all_cores_of(process: u32, name: &str) -> Vec<String> {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).expect("the process exists");
    let tasks = tasks.map(|task| task.expect("a thread has a name").path());
    let named = tasks.filter(|task| fs::read_to_string(task.join("comm")).is_ok_and(|comm| comm.starts_with(name)));
    named
        .map(|task| {
            let status = fs::read_to_string(task.join("status")).expect("the thread exists");
            let cores = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
            cores.expect("the status lists the allowed cores").trim().to_owned()
        })
        .collect()
}

#[test]
fn shards_are_pinned_only_if_asked_and_two_servers_take_different_cores() {
    let ours = cores_of(std::process::id(), "");
    let core_count = thread::available_parallelism().map_or(1, usize::from);
    let start = |arguments: &[&str]| {
        let mut command = skep(&["serve", "--listen", "127.0.0.1:0", "--resp", "off", "--memory", "64MiB"]);
        Server::start_command(command.args(["--shards", "1"]).args(arguments))
    };
    let server = start(&[]);
    assert_eq!(cores_of(server.id(), "skep-shard"), ours);

    let first = start(&["--pin-threads"]);
    let second = start(&["--pin-threads"]);
    let cores = [&first, &second].map(|server| cores_of(server.id(), "skep-shard"));
    assert!(cores.iter().all(|core| core.parse::<usize>().is_ok()), "{cores:?}");
    assert!(core_count == 1 || cores[0] != cores[1], "{cores:?}");
    // The thread that merges slabs is not pinned, and no other thread is.
    assert_eq!(cores_of(first.id(), "skep-merge"), ours);
}

#[test]
fn more_pinned_shards_than_cores_are_refused() {
    let any = "127.0.0.1:0";
    let addresses = ["--listen", any, "--resp", any];
    let output =
        refusal(&[&["serve", "--shards", "256", "--pin-threads", "--ordered-memory", "off"], &addresses[..]].concat());
    if thread::available_parallelism().is_ok_and(|count| count.get() < 256) {
        assert_refusal(&output, 1, &["--pin-threads", "256 shards", "--shards"]);
    }
}
