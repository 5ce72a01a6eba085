//! Runs clients over RDMA against the program, on a software RDMA device in emulated machines (`rdma/guest.sh`): in one
//! machine, and in two whose network loses, repeats, delays and reorders packets. `rdma/guest.rs` has the checks, `rdma/run`
//! their order.
//!
//! It builds the program with the feature `rdma`. It installs the emulator and fetches a kernel
//! from Debian. If that is impossible, it says so with the reason, and does nothing.

mod full_run;
#[path = "rdma/guest.rs"]
mod guest;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Mutex, OnceLock};

use full_run::is_full_run;

/// The exit code of `guest.sh` on a machine that lacks something.
const CANNOT_RUN: i32 = 77;
/// The only reasons that are accepted.
const REASONS: &[&str] = &[
    "the guests are x86-64 machines",
    "it needs the packages of Debian",
    "only root can install packages",
    "the packages of Debian cannot be fetched",
    "there is no kernel package linux-image-amd64",
    "cannot be fetched",
];
/// The faults of the network between two guests, in both directions, as tc netem names them, with _ for blanks.
const FAULTS: &str = "delay_1ms_1ms_loss_1%_duplicate_1%_reorder_5%";

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("rdma")
}

/// Runs the script of the guests. Returns its output, or `None` if this machine cannot run guests.
fn script(arguments: &[&str]) -> Option<String> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/rdma/guest.sh");
    let output = Command::new(script).arg(folder()).args(arguments).output().expect("bash runs the script");
    let text = text(&output);
    let reason = text.lines().find_map(|line| line.strip_prefix("cannot run: "));
    match reason {
        Some(reason)
            if output.status.code() == Some(CANNOT_RUN) && REASONS.iter().any(|known| reason.ends_with(known)) =>
        {
            println!("RDMA WAS NOT TESTED: {reason}");
            None
        }
        _ => {
            assert!(output.status.success(), "{arguments:?}: {}\n{text}", output.status);
            Some(text)
        }
    }
}

/// Builds what runs in the guests, and returns the folder of the job.
fn job() -> &'static Path {
    static JOB: OnceLock<PathBuf> = OnceLock::new();
    JOB.get_or_init(|| {
        let job = folder().join("job");
        fs::create_dir_all(&job).expect("the folder can be created");
        let build = |arguments: &[&str], executables: &[(&str, &str)]| {
            let mut command = Command::new(env!("CARGO"));
            command.args(["test", "--no-run", "--locked", "--message-format=json"]);
            command.args(arguments).current_dir(env!("CARGO_MANIFEST_DIR"));
            let output = command.output().expect("cargo starts");
            assert!(output.status.success(), "{command:?}: {}", text(&output));
            let messages = String::from_utf8(output.stdout).expect("cargo prints UTF-8");
            for (target, name) in executables {
                let built = messages.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
                let path = built
                    .filter(|message| message["target"]["name"] == *target)
                    .find_map(|message| Some(message["executable"].as_str()?.to_owned()));
                let path = path.unwrap_or_else(|| panic!("cargo builds {target}"));
                // Without the tables for debuggers, which are most of the file.
                let strip = Command::new("strip").args(["-o", job.join(name).to_str().unwrap(), &path]).status();
                if !strip.is_ok_and(|status| status.success()) {
                    fs::copy(path, job.join(name)).expect("the program can be copied");
                }
            }
        };
        // Cargo puts the program where other tests expect the one without the feature.
        let (program, saved) = (env!("CARGO_BIN_EXE_skep"), folder().join("skep"));
        fs::copy(program, &saved).expect("the program can be copied");
        // As of the whole workspace: for one crate alone, dependencies have other features, and would all be built again.
        let checks = ["--workspace", "--features", "skep/rdma", "--test", "full_rdma"];
        build(&checks, &[("skep", "skep"), ("full_rdma", "checks")]);
        fs::rename(saved, program).expect("the program can be replaced");
        build(&["-p", "skep-transport", "--features", "rdma", "--lib"], &[("skep_transport", "hostile")]);
        let run = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/rdma/run");
        fs::copy(run, job.join("run")).expect("the job can be copied");
        job
    })
}

/// Runs a job, one at a time: guests want two processors each.
fn run(command: &str, faults: &str) {
    static ONE: Mutex<()> = Mutex::new(());
    if !is_full_run() {
        return;
    }
    let _one = ONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if script(&["prepare"]).is_some() {
        let output = script(&[command, job().to_str().expect("the path is UTF-8"), faults]);
        println!("{}", output.unwrap_or_default());
    }
}

#[test]
fn clients_over_rdma_agree_with_the_naive_store() {
    run("alone", "");
}

#[test]
fn updates_over_a_bad_network_happen_exactly_once() {
    run("pair", FAULTS);
}
