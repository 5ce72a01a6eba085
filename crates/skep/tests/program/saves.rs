//! Snapshots that many clients ask for at once.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use skep_log::{Directory, Files};

use crate::data_directory::DataDirectory;
use crate::process::wait_until_unlocked;
use crate::wire::{Arguments, Connection};

/// The time of two statements of the time. What is read sooner may not be stated.
const STEP: Duration = Duration::from_millis(100);
const CLIENTS: usize = 4;
const ROUNDS: usize = 100;

fn words(line: &str) -> Arguments {
    line.split(' ').map(|word| word.as_bytes().to_vec()).collect()
}

/// Each client writes a pair of its own and asks for a snapshot, again and again.
#[test]
fn each_save_among_many_is_replied_to_and_has_what_was_written_before_it() {
    let directory = DataDirectory::new("saves");
    // At this level only snapshots keep what was written.
    let mut server = directory.start(2, "memory");
    let address = server.resp.clone().expect("the RESP port is on");
    thread::scope(|scope| {
        for client in 0..CLIENTS {
            let address = &address;
            scope.spawn(move || {
                let mut connection = Connection::to_address(address);
                for round in 0..ROUNDS {
                    let set = words(&format!("SET client:{client} {round}"));
                    assert_eq!(connection.run(&[set, words("SAVE")]), [b"+OK\r\n"; 2], "{client}: {round}");
                }
            });
        }
        scope.spawn(|| {
            let mut connection = Connection::to_address(&address);
            for _ in 0..ROUNDS {
                let reply = connection.run(&[words("BGSAVE")]).remove(0);
                let is_expected =
                    reply.starts_with(b"+Background saving ") || reply.starts_with(b"-ERR Background save");
                assert!(is_expected, "{}", reply.escape_ascii());
            }
        });
    });
    server.child().kill().expect("the server runs");
    server.wait();
    let server = directory.start(3, "memory");
    let mut connection = Connection::to_address(server.resp.as_ref().expect("the RESP port is on"));
    for client in 0..CLIENTS {
        let value = connection.run(&[words(&format!("GET client:{client}"))]).remove(0);
        assert_eq!(value, format!("$2\r\n{}\r\n", ROUNDS - 1).into_bytes(), "client {client}");
    }
}

/// Returns the last time that a directory states.
fn stated_time(directory: &DataDirectory) -> u64 {
    let files = Arc::new(Files::open(directory.path()).expect("no server uses it"));
    let time = Directory::open(files).expect("it is valid").manifest().expect("it has a manifest").last_time;
    wait_until_unlocked(directory.path().to_str().expect("the path is UTF-8"));
    time
}

/// Returns the time of a server in milliseconds.
fn time(connection: &mut Connection) -> u64 {
    let reply = String::from_utf8(connection.run(&[words("TIME")]).remove(0)).expect("numbers");
    let parts: Vec<u64> = reply.split("\r\n").filter_map(|line| line.parse().ok()).collect();
    parts[0] * 1000 + parts[1] / 1000
}

/// Without a log, snapshots and the end of the server state the time. Keys that a client has seen expire before are then not
/// back after a start with an earlier clock.
#[test]
fn at_the_level_memory_a_snapshot_and_a_stop_state_the_time() {
    let directory = DataDirectory::new("stated-time");
    let mut server = directory.start(1, "memory");
    let mut connection = Connection::to_address(server.resp.as_ref().expect("the RESP port is on"));
    assert_eq!(connection.run(&[words("SET key value EX 1000")]), [b"+OK\r\n"]);
    thread::sleep(STEP);
    let before_save = time(&mut connection);
    assert_eq!(connection.run(&[words("GET key"), words("SAVE")])[1], b"+OK\r\n");
    server.child().kill().expect("the server runs");
    server.wait();
    assert!(stated_time(&directory) >= before_save);

    let mut server = directory.start(1, "memory");
    let mut connection = Connection::to_address(server.resp.as_ref().expect("the RESP port is on"));
    thread::sleep(STEP);
    let before_end = time(&mut connection);
    assert_eq!(connection.run(&[words("GET key")]), [b"$5\r\nvalue\r\n"]);
    server.signal("TERM");
    assert_eq!(server.wait().code(), Some(0));
    assert!(stated_time(&directory) >= before_end);
}

/// Each write of the log takes at least a page. So a snapshot begins by the bytes of the files, not by those of the
/// operations, which are a hundredth of them here.
#[test]
fn many_small_writes_of_one_key_take_bounded_room() {
    const SET_COUNT: usize = 5000;
    const SEGMENT: u64 = 8 << 20;
    let directory = DataDirectory::new("small-writes");
    let server = directory.start_command(directory.command(1, "always").args(["--memory", "8MiB"]));
    let mut connection = Connection::to_address(server.resp.as_ref().expect("the RESP port is on"));
    for number in 0..SET_COUNT {
        // Each one waits for the disk.
        assert_eq!(connection.run(&[words(&format!("SET key {number}"))]), [b"+OK\r\n"]);
    }
    let info = connection.run(&[words("INFO persistence")]).remove(0);
    let info = String::from_utf8(info).expect("text");
    let saves = info.lines().find_map(|line| line.strip_prefix("rdb_saves:")).expect("the field is there");
    assert!(saves.parse::<u64>().unwrap() > 0, "{info}");
    let sizes = std::fs::read_dir(directory.path()).unwrap().map(|file| file.unwrap().metadata().unwrap().len());
    let size: u64 = sizes.sum();
    assert!(size <= 5 * SEGMENT, "{size} bytes");
}

#[test]
fn one_command_sets_the_level_in_any_order_of_its_arguments() {
    let directory = DataDirectory::new("levels");
    let server = directory.start(1, "always");
    let mut connection = Connection::to_address(server.resp.as_ref().expect("the RESP port is on"));
    let mut level_after = |command: &str| {
        assert_eq!(connection.run(&[words(command)]), [b"+OK\r\n"], "{command}");
        let get = words("CONFIG GET appendonly appendfsync");
        connection.run(&[get]).remove(0).escape_ascii().to_string().replace("\\r\\n", " ")
    };
    let mut level_after_twice = |command: &str| {
        let levels = [level_after(command), level_after(command)];
        assert_eq!(levels[0], levels[1], "{command}");
        levels[0].clone()
    };
    for (command, fsync, only) in [
        ("CONFIG SET appendonly no appendfsync always", "$6 always", "$2 no"),
        ("CONFIG SET appendfsync everysec appendonly no", "$8 everysec", "$2 no"),
        ("CONFIG SET appendonly yes", "$8 everysec", "$3 yes"),
        ("CONFIG SET appendonly yes appendfsync always", "$6 always", "$3 yes"),
        ("CONFIG SET appendonly no", "$6 always", "$2 no"),
        ("CONFIG SET appendfsync everysec", "$8 everysec", "$3 yes"),
    ] {
        let level = level_after_twice(command);
        assert!(level.contains(fsync) && level.contains(only), "{command}: {level}");
    }
}
