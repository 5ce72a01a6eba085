//! Data directories that a server refuses: by name, with what to do, and without a change of any file.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use crate::data_directory::DataDirectory;
use crate::process::{Server, assert_refusal, start_or_refusal, text};
use crate::wire::Connection;

/// Offset of the first group in a segment.
const FIRST_GROUP: u64 = 4096;

fn run(server: &Server, line: &str) -> Vec<u8> {
    let words = line.split(' ').map(|word| word.as_bytes().to_vec()).collect();
    Connection::to_address(server.resp.as_ref().expect("the RESP port is on")).run(&[words]).remove(0)
}

/// Starts a server, which must refuse the directory with these words. No file may change.
fn refuses(directory: &DataDirectory, parts: &[&str]) {
    let before = directory.fingerprints();
    let mut command = directory.command(2, "always");
    let Err(output) = start_or_refusal(command.args(["--memory", "96MiB"])) else {
        panic!("the directory is not refused: {parts:?}");
    };
    assert_refusal(&output, 1, parts);
    let mut after = directory.fingerprints();
    if !before.contains_key("lock") {
        after.remove("lock");
    }
    assert_eq!(before, after, "{parts:?}");
}

/// Returns a directory with 100 keys in a snapshot and 100 in the log after it, of a server that was killed.
fn used(name: &str) -> DataDirectory {
    let directory = DataDirectory::new(name);
    let mut server = directory.start(2, "always");
    for key in 0..100 {
        assert_eq!(run(&server, &format!("SET key:{key} value")), b"+OK\r\n");
    }
    assert_eq!(run(&server, "SAVE"), b"+OK\r\n");
    for key in 100..200 {
        assert_eq!(run(&server, &format!("SET key:{key} value")), b"+OK\r\n");
    }
    // A server that is idle writes that the end of its log is whole.
    thread::sleep(Duration::from_millis(200));
    server.child().kill().expect("the server runs");
    server.wait();
    directory
}

#[test]
fn a_limit_of_file_sizes_is_an_error_of_the_disk() {
    let directory = DataDirectory::new("file-size");
    let server = directory.command(1, "always");
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -f 4096; exec \"$0\" \"$@\""]).arg(server.get_program()).args(server.get_args());
    let Err(output) = start_or_refusal(command.args(["--memory", "96MiB"])) else {
        panic!("a segment has more than 2 MiB");
    };
    let message = text(&output.stderr);
    assert!(message.contains("cannot prepare a segment") && message.contains("ulimit -f"), "{message}");
    assert_eq!(output.status.code(), Some(1), "{message}");
}

#[test]
fn a_second_server_is_refused() {
    let directory = DataDirectory::new("second-server");
    let server = directory.start(2, "always");
    run(&server, "SET a 1");
    // It also prepares the next segment.
    while directory.names("log-").len() < 2 {
        thread::sleep(Duration::from_millis(10));
    }
    let mut before = directory.fingerprints();
    loop {
        thread::sleep(Duration::from_millis(200));
        let after = directory.fingerprints();
        if std::mem::replace(&mut before, after.clone()) == after {
            break;
        }
    }
    refuses(&directory, &["another process uses the data directory"]);
    assert_eq!(run(&server, "GET a"), b"$1\r\n1\r\n");
}

#[test]
fn a_foreign_directory_is_refused() {
    let directory = DataDirectory::new("foreign");
    fs::write(directory.path().join("letter.txt"), "Dear Ada").unwrap();
    refuses(&directory, &["letter.txt", "no manifest of Skep"]);
    let file = directory.path().join("letter.txt");
    let mut command = DataDirectory::command_of(&file, 2, "always");
    let output = start_or_refusal(command.args(["--memory", "96MiB"])).expect_err("a file is no directory");
    assert_refusal(&output, 1, &["letter.txt"]);
}

#[test]
fn a_directory_without_permissions_is_refused() {
    let directory = DataDirectory::new("permissions");
    fs::set_permissions(directory.path(), Permissions::from_mode(0o500)).unwrap();
    if File::create(directory.path().join("file")).is_ok() {
        println!("not tested: this user may write everywhere");
        return;
    }
    refuses(&directory, &["check its disk"]);
    fs::set_permissions(directory.path(), Permissions::from_mode(0o700)).unwrap();
}

/// Changes a byte of a file.
fn damage(path: &Path, offset: u64) {
    let file = File::options().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).unwrap();
    file.write_all_at(&[!byte[0]], offset).unwrap();
}

/// Refuses a directory without these files, which come back.
fn refuses_without(directory: &DataDirectory, names: &[String], parts: &[&str]) {
    let (path, aside) = (directory.path(), directory.path().with_extension("aside"));
    fs::create_dir_all(&aside).unwrap();
    names.iter().for_each(|name| fs::rename(path.join(name), aside.join(name)).unwrap());
    refuses(directory, parts);
    names.iter().for_each(|name| fs::rename(aside.join(name), path.join(name)).unwrap());
    fs::remove_dir(&aside).unwrap();
}

#[test]
fn a_directory_that_is_damaged_or_incomplete_is_refused() {
    let directory = used("damaged");
    let [snapshot, log] = ["snapshot-", "log-"].map(|prefix| directory.names(prefix).remove(0));
    let in_part = "the data directory was copied only in part";
    refuses_without(&directory, std::slice::from_ref(&snapshot), &[&snapshot, in_part]);
    let manifests = directory.names("manifest.");
    refuses_without(&directory, &manifests, &["both manifests are missing", in_part]);
    refuses_without(&directory, &directory.names("log-"), &[in_part]);

    let path = directory.path().join(&snapshot);
    let content = fs::read(&path).unwrap();
    fs::write(&path, &content[..content.len() / 2 / 4096 * 4096]).unwrap();
    refuses(&directory, &[&snapshot]);
    fs::write(&path, &content).unwrap();
    damage(&path, 60);
    refuses(&directory, &[&snapshot, "is damaged at offset", "backup"]);
    fs::write(&path, &content).unwrap();

    // The log begins with the keys of the snapshot. The last groups have those after it.
    let path = directory.path().join(&log);
    let pages = (0..).map(|page| FIRST_GROUP + page * 4096).take_while(|offset| !is_empty(&path, *offset));
    let offset = pages.last().unwrap() - 10 * 4096;
    damage(&path, offset + 20);
    let parts = ["acknowledged operations are damaged", &format!("offset {offset}"), "--accept-loss"];
    refuses(&directory, &parts);
    let mut command = directory.command(2, "always");
    let server = directory.start_command(command.args(["--memory", "96MiB", "--accept-loss"]));
    let count = run(&server, "DBSIZE");
    let number: u64 = std::str::from_utf8(&count[1..count.len() - 2]).unwrap().parse().unwrap();
    assert!((100..200).contains(&number), "{number} keys are left");
    assert_eq!(run(&server, "SET other value"), b"+OK\r\n");
    drop(server);
    let server = directory.start(2, "always");
    assert_eq!(run(&server, "DBSIZE"), format!(":{}\r\n", number + 1).into_bytes());
    (0..100).for_each(|key| assert_eq!(run(&server, &format!("SET late{key} value")), b"+OK\r\n"));
    drop(server);

    // The segment that the first start has written may be gone.
    let logs = directory.names("log-").into_iter().map(|log| (directory.path().join(&log), log));
    let (path, log) = logs.rev().find(|(path, _)| !is_empty(path, FIRST_GROUP)).unwrap();
    File::options().write(true).open(&path).unwrap().set_len(FIRST_GROUP + 4096).unwrap();
    refuses(&directory, &[&log]);
}

/// Returns true if a page of a file has only zeros.
fn is_empty(path: &Path, offset: u64) -> bool {
    let mut page = [0; 4096];
    File::open(path).unwrap().read_exact_at(&mut page, offset).unwrap();
    page == [0; 4096]
}
