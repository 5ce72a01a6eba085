//! Runs servers on a disk that has faults, under load: power is lost, calls fail, the disk is full, or slow. Nothing that
//! was acknowledged is lost, and what is refused has not happened. Needs `/dev/fuse`.
//!
//! `SKEP_LONG` multiplies the losses of power, and `SKEP_SEED` is their seed. The moments are random all the same.

#[expect(dead_code, reason = "the test of the disk uses the other functions")]
mod faulty_disk;
mod full_run;
#[path = "power/load.rs"]
mod load;
#[path = "program/process.rs"]
#[expect(dead_code, reason = "the tests of the program use the other functions")]
mod process;
mod setting;
#[path = "redis/wire.rs"]
#[expect(dead_code, reason = "the tests that compare with Redis use the other functions")]
mod wire;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use faulty_disk::FaultyDisk;
use full_run::is_full_run;
use load::{Connection, Load, Seen, address};
use process::{Server, WATCHDOG, skep};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use rustix::io::Errno;
use setting::setting;
use skep::HASH_SPACE;
use tempfile::TempDir;

/// Losses of power. `SKEP_LONG` multiplies them.
const LOSS_COUNT: u64 = 10;
/// Those at the level that may lose something.
const CONTROL_COUNT: u64 = 5;
/// The longest time under load before a loss, in milliseconds.
const LOAD_TIME_MAX: u64 = 400;
/// The longest time until a call that is to fail is made.
const FAULT_TIME: Duration = Duration::from_secs(1);
/// The time in which a server returns from a fault by itself.
const RETURN_TIME: Duration = Duration::from_secs(4);
/// Bytes of the log that are not on disk, at most: with what the shards do between two looks at it.
const UNFLUSHED_MAX: u64 = 80 << 20;
/// Time between two looks at the server.
const LOOK_TIME: Duration = Duration::from_millis(5);

/// A disk, the servers that use it one after another, and their clients.
struct Machine {
    disk: FaultyDisk,
    load: Load,
    random: Xoshiro256PlusPlus,
    arguments: Vec<&'static str>,
    /// Where the servers log.
    directory: TempDir,
}

impl Machine {
    /// Mounts a disk, and starts a server on it once, if the full tests are enabled and the machine allows it.
    fn new(arguments: &[&'static str]) -> Option<Machine> {
        if !is_full_run() {
            return None;
        }
        let seed = setting("SKEP_SEED", 1);
        println!("seed {seed}");
        let mut machine = Machine {
            disk: FaultyDisk::mount()?,
            load: Load::new(seed),
            random: Xoshiro256PlusPlus::seed_from_u64(seed),
            arguments: arguments.to_vec(),
            directory: TempDir::new().expect("there is room for a folder"),
        };
        let server = machine.start();
        machine.load.begin(&address(&server));
        machine.lose_power(server);
        Some(machine)
    }

    fn server_log(&self) -> PathBuf {
        self.directory.path().join("server.log")
    }

    /// Starts a server with a random number of shards. Returns it when it has loaded what is on the disk.
    fn start(&mut self) -> Server {
        let shards = self.random.random_range(1..=3).to_string();
        let mut command = skep(&["serve", "--listen", "127.0.0.1:0", "--resp", "127.0.0.1:0", "--shards", &shards]);
        command.args(["--memory", "96MiB", "--ordered-memory", "64MiB", "--data-dir"]).arg(self.disk.path());
        let log = File::options().create(true).append(true).open(self.server_log()).expect("there is room");
        let server = Server::start_command(command.args(&self.arguments).stderr(log));
        wait_until("the server has loaded", || ask(&server, "PING").starts_with(b"+PONG"));
        server
    }

    /// Kills the server at the moment at which the disk loses power.
    fn lose_power(&mut self, mut server: Server) {
        self.disk.power_off();
        server.child().kill().expect("the server runs");
        server.wait();
        self.disk.power_loss(self.random.random());
    }

    /// Compares what a server has with what the clients know.
    fn check(&mut self, server: &Server) -> Vec<String> {
        self.load.check(&address(server))
    }

    /// Loses power, and asserts that a new server has what was acknowledged. Returns it.
    fn restart(&mut self, server: Server, moment: &str) -> Server {
        self.lose_power(server);
        let server = self.start();
        assert_right(&self.check(&server), moment);
        server
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        if thread::panicking() {
            let log = fs::read_to_string(self.server_log()).unwrap_or_default();
            let lines: Vec<_> = log.lines().collect();
            println!("the log of the servers ends with:\n{}", lines[lines.len().saturating_sub(30)..].join("\n"));
        }
    }
}

fn assert_right(wrong: &[String], moment: &str) {
    assert!(wrong.is_empty(), "{moment}, {} keys:\n{}", wrong.len(), wrong[..wrong.len().min(10)].join("\n"));
}

/// Sends a command over a connection of its own. Returns the bytes of its reply.
fn ask(server: &Server, line: &str) -> Vec<u8> {
    let connection = Connection::open(&address(server), HASH_SPACE);
    connection.and_then(|mut connection| connection.run(line)).expect("the server replies")
}

/// Returns a field of INFO.
fn info(server: &Server, name: &str) -> String {
    let text = String::from_utf8(ask(server, "INFO persistence")).expect("INFO is text");
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    value.unwrap_or_else(|| panic!("INFO lacks {name}: {text}")).to_owned()
}

fn wait_until(event: &str, mut has_happened: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !has_happened() {
        assert!(begun.elapsed() < WATCHDOG, "it takes too long until {event}");
        thread::sleep(LOOK_TIME);
    }
}

/// Returns true if no write of the log is missing, and no snapshot is being taken.
fn is_well(server: &Server) -> bool {
    info(server, "aof_last_write_status") == "ok" && info(server, "rdb_bgsave_in_progress") == "0"
}

/// Returns true if the server executes a write.
fn writes(server: &Server) -> bool {
    let reply = ask(server, "SET probe 1");
    assert!(reply == b"+OK\r\n" || reply.starts_with(b"-MISCONF"), "{}", reply.escape_ascii());
    reply == b"+OK\r\n"
}

/// Waits until clients were served this many times more.
fn wait_for_load(seen: &Seen, count: u64) {
    let begun = seen.acknowledged.load(Ordering::Relaxed);
    wait_until("the clients are served", || seen.acknowledged.load(Ordering::Relaxed) >= begun + count);
}

/// Loads a server for a random time, with a snapshot or without, and loses power. Returns what the next server has and
/// should not have, or has not and should.
fn lose(machine: &mut Machine) -> Vec<String> {
    let mut server = machine.start();
    let saves = machine.random.random_ratio(1, 2);
    let times = [0; 2].map(|_| Duration::from_millis(machine.random.random_range(0..LOAD_TIME_MAX / 2)));
    let Machine { disk, load, random, .. } = machine;
    load.run(&mut server, |server, seen| {
        wait_for_load(seen, 100);
        thread::sleep(times[0]);
        if saves {
            let reply = ask(server, "BGSAVE");
            // A start with another number of shards takes one too.
            let replies = [&b"+Background saving started\r\n"[..], b"-ERR Background save already in progress\r\n"];
            assert!(replies.contains(&&reply[..]), "{}", reply.escape_ascii());
        }
        thread::sleep(times[1]);
        disk.power_off();
        server.child().kill().expect("the server runs");
        server.wait();
    });
    disk.power_loss(random.random());
    let mut server = machine.start();
    let wrong = machine.check(&server);
    server.child().kill().expect("the server runs");
    server.wait();
    wrong
}

#[test]
fn nothing_acknowledged_is_lost_when_power_is_lost() {
    let Some(mut machine) = Machine::new(&["--durability", "always"]) else { return };
    let count = LOSS_COUNT * setting("SKEP_LONG", 1);
    for loss in 0..count {
        assert_right(&lose(&mut machine), &format!("loss {loss}"));
    }
    let acknowledged = machine.load.seen.acknowledged.load(Ordering::Relaxed);
    println!("{count} losses of power, {acknowledged} operations acknowledged");
}

#[test]
fn replies_that_leave_before_the_disk_has_them_are_found() {
    let Some(mut machine) = Machine::new(&["--durability", "second"]) else { return };
    let lost = (0..CONTROL_COUNT).filter(|_| !lose(&mut machine).is_empty()).count() as u64;
    assert!(lost > CONTROL_COUNT / 2, "{lost} of {CONTROL_COUNT} losses of power have lost something");
}

/// Waits until a server without load writes nothing more, and returns the calls of each kind.
fn idle(machine: &Machine) -> BTreeMap<String, u64> {
    let mut kinds = machine.disk.kinds();
    wait_until("the server is idle", || {
        thread::sleep(10 * LOOK_TIME);
        std::mem::replace(&mut kinds, machine.disk.kinds()) == kinds
    });
    kinds
}

/// Loads a server, and takes a snapshot, while calls of these kinds fail once. Then loses power. Returns whether all have
/// failed, and the calls of each kind.
fn fail(machine: &mut Machine, faults: &[(&str, u64)]) -> (bool, BTreeMap<String, u64>) {
    let mut server = machine.start();
    assert_right(&machine.check(&server), "before a fault");
    let before = idle(machine);
    let errno = if machine.random.random() { Errno::IO } else { Errno::NOSPC };
    println!("{faults:?}: {errno}");
    for (kind, number) in faults {
        machine.disk.fail_call_of(kind, *number, errno);
    }
    let Machine { disk, load, random, .. } = machine;
    let saves_first = random.random();
    load.run(&mut server, |server, seen| {
        wait_for_answers(seen, 100);
        let mut has_ended = false;
        let begun = Instant::now();
        while !disk.has_failed() && begun.elapsed() < FAULT_TIME {
            if saves_first || begun.elapsed() > FAULT_TIME / 8 {
                ask(server, "BGSAVE");
            }
            thread::sleep(LOOK_TIME);
        }
        let begun = Instant::now();
        while !(is_well(server) && writes(server)) {
            assert!(ask(server, "GET account:1").starts_with(b"$"), "reads go on");
            if faults.len() > 1 && !has_ended && begun.elapsed() > RETURN_TIME {
                // The attempt to begin a fresh log has failed too. It is repeated when a command asks for it.
                has_ended = true;
                assert!(seen.closed.load(Ordering::Relaxed) > 0, "replies are held for ever");
                let reply = ask(server, if saves_first { "SAVE" } else { "BGSAVE" });
                assert!(reply.starts_with(b"+"), "{}", reply.escape_ascii());
            }
            assert!(begun.elapsed() < WATCHDOG, "after {faults:?} the log is not written again");
            thread::sleep(LOOK_TIME);
        }
        wait_for_load(seen, 200);
    });
    let has_failed = machine.disk.has_failed();
    let mut calls = machine.disk.kinds();
    for (kind, count) in &mut calls {
        *count -= before.get(kind).unwrap_or(&0);
    }
    let server = machine.restart(server, &format!("after {faults:?}"));
    machine.lose_power(server);
    (has_failed, calls)
}

/// Waits until clients had this many replies more: also refusals.
fn wait_for_answers(seen: &Seen, count: u64) {
    let answers =
        || [&seen.acknowledged, &seen.refused, &seen.closed].map(|count| count.load(Ordering::Relaxed)).iter().sum();
    let begun: u64 = answers();
    wait_until("the clients have replies", || answers() >= begun + count);
}

#[test]
fn a_call_that_fails_costs_nothing_that_was_acknowledged() {
    let Some(mut machine) = Machine::new(&["--durability", "always"]) else { return };
    // A broken log, so that segments are recycled. A fresh one may begin before a client sends a write.
    let mut kinds = BTreeMap::new();
    for number in 1.. {
        kinds.extend(fail(&mut machine, &[("write log", number)]).1);
        if number >= 2 && machine.load.seen.refused.load(Ordering::Relaxed) > 0 {
            break;
        }
        assert!(number < 20, "no write was refused");
    }
    println!("{kinds:?}");
    let times = setting("SKEP_LONG", 1);
    for (kind, count) in kinds.iter().filter(|(_, count)| **count > 0) {
        // All calls of a kind that is rare, and some of the others.
        let mut numbers: Vec<u64> = (1..=(2 * times).min(*count)).collect();
        if *count > 2 * times {
            numbers.extend((0..times).map(|_| machine.random.random_range(2 * times + 1..=*count)));
        }
        for number in numbers {
            let (alone, _) = fail(&mut machine, &[(kind, number)]);
            let (both, _) = fail(&mut machine, &[("write log", 1), (kind, number)]);
            println!("{kind} {number}: {alone} {both}");
        }
    }
}

#[test]
fn a_disk_on_which_nothing_can_be_written_serves_reads() {
    let Some(mut machine) = Machine::new(&["--durability", "always"]) else { return };
    for command in ["BGSAVE", "SAVE"] {
        let mut server = machine.start();
        idle(&machine);
        let Machine { disk, load, .. } = &mut machine;
        load.run(&mut server, |server, seen| {
            wait_for_load(seen, 100);
            let closed = seen.closed.load(Ordering::Relaxed);
            disk.fail_all(Some(Errno::IO));
            wait_until("the fresh log has failed too", || seen.closed.load(Ordering::Relaxed) > closed);
            assert!(ask(server, "SAVE").starts_with(b"-ERR the snapshot was given up"));
            assert_eq!(info(server, "rdb_last_bgsave_status"), "err");
            assert_eq!(info(server, "aof_last_write_status"), "err");
            assert!(!writes(server) && ask(server, "GET account:1").starts_with(b"$"));
            disk.fail_all(None);
            assert!(!writes(server), "a fresh log needs a snapshot");
            assert!(ask(server, command).starts_with(b"+"));
            wait_until("the log is written again", || is_well(server) && writes(server));
            wait_for_load(seen, 200);
        });
        let server = machine.restart(server, command);
        machine.lose_power(server);
    }
}

/// Returns the names of the files of snapshots.
fn snapshots(machine: &Machine) -> Vec<String> {
    let entries = fs::read_dir(machine.disk.path()).expect("the directory can be read");
    let names = entries.map(|entry| entry.expect("it has a name").file_name().into_string().expect("names are text"));
    names.filter(|name| name.starts_with("snapshot")).collect()
}

/// Returns commands that write pairs of 1 KiB. All values are different: the log has equal ones in a row only once.
fn puts(count: u64) -> String {
    let filling = "y".repeat(1 << 10);
    (0..count).map(|number| format!("SET flood:{number} {number}{filling}\r\n")).collect()
}

/// Writes pairs of 1 KiB over a connection, `count` at once, until `is_over`. Returns the bytes that were acknowledged.
fn flood(server: &Server, is_over: &AtomicBool) -> u64 {
    const COUNT: u64 = 256;
    let mut connection = Connection::open(&address(server), HASH_SPACE).expect("the server serves");
    let commands = puts(COUNT);
    let mut acknowledged = 0;
    while !is_over.load(Ordering::Relaxed) {
        connection.stream.write_all(commands.as_bytes()).expect("the server reads");
        for _ in 0..COUNT {
            let reply = connection.reply().expect("the server replies");
            assert!(reply == b"+OK\r\n" || reply.starts_with(b"-MISCONF") || reply.starts_with(b"-BUSY"));
            acknowledged += u64::from(reply[0] == b'+') << 10;
        }
    }
    acknowledged
}

#[test]
fn a_full_disk_is_seen_one_segment_ahead() {
    let Some(mut machine) = Machine::new(&["--durability", "always"]) else { return };
    let mut server = machine.start();
    idle(&machine);
    // There is room for what is there, and no more.
    let Machine { disk, load, .. } = &mut machine;
    disk.limit(Some(disk.used()));
    load.run(&mut server, |server, seen| {
        wait_for_load(seen, 100);
        assert!(ask(server, "BGSAVE").starts_with(b"+"));
        wait_until("the snapshot has failed", || info(server, "rdb_bgsave_in_progress") == "0");
        assert_eq!(info(server, "rdb_last_bgsave_status"), "err");
        wait_for_load(seen, 100);
        assert_eq!(seen.refused.load(Ordering::Relaxed), 0, "the log goes on");
    });
    assert!(snapshots(&machine).len() <= 4, "parts of a snapshot are left: {:?}", snapshots(&machine));
    machine.load.run(&mut server, |server, _| {
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let floods: Vec<_> = (0..2).map(|_| scope.spawn(|| flood(server, &is_over))).collect();
            let begun = Instant::now();
            while writes(server) && begun.elapsed() < 4 * WATCHDOG {
                thread::sleep(LOOK_TIME);
            }
            is_over.store(true, Ordering::Relaxed);
            println!("{} after {:?}", info(server, "skep_log_trouble"), begun.elapsed());
            let bytes: u64 = floods.into_iter().map(|flood| flood.join().expect("it ends")).sum();
            println!("{} MiB were acknowledged", bytes >> 20);
        });
        assert!(!writes(server) && ask(server, "GET flood:1").starts_with(b"$"));
    });
    // Nothing is free for the segment of a start: it serves reads.
    for signal in ["TERM", "KILL"] {
        server.signal(signal);
        server.wait();
        server = machine.start();
        assert!(!writes(&server) && ask(&server, "GET flood:1").starts_with(b"$"), "after {signal}");
        assert_right(&machine.check(&server), "after a start on a full disk");
    }
    let Machine { disk, load, .. } = &mut machine;
    load.run(&mut server, |server, seen| {
        disk.limit(None);
        wait_until("writes are accepted", || writes(server));
        wait_for_load(seen, 200);
    });
    let server = machine.restart(server, "after the disk was full");
    machine.lose_power(server);
}

/// The replies to the puts of a flood.
#[derive(Debug, Default)]
struct Poured {
    acknowledged: u64,
    /// Those that were refused with `BUSY`, and with another error.
    busy: u64,
    refused: u64,
}

impl Poured {
    fn count(&mut self, reply: &[u8]) {
        let count = match reply {
            [b'+' | b':', ..] => &mut self.acknowledged,
            [b'-', b'B', b'U', b'S', b'Y', ..] => &mut self.busy,
            _ => &mut self.refused,
        };
        *count += 1;
    }
}

/// Floods a server while its disk is slow. Returns the largest size of the log that was not on disk, as INFO has it when
/// its replies leave, and the replies of the flood.
fn flood_slowly(machine: &mut Machine, server: &mut Server, slow: impl FnOnce(&FaultyDisk)) -> (u64, Poured) {
    let Machine { disk, load, .. } = machine;
    let result = load.run(server, |server, seen| {
        wait_for_load(seen, 100);
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let server = &*server;
            // Each connection has one pipeline without replies: 64 of them have 128 MiB.
            let floods: Vec<_> = (0..64)
                .map(|number| {
                    scope.spawn({
                        let is_over = &is_over;
                        move || pour(server, number, is_over)
                    })
                })
                .collect();
            thread::sleep(Duration::from_millis(300));
            slow(disk);
            let begun = Instant::now();
            let mut largest = 0;
            while begun.elapsed() < Duration::from_secs(8) {
                largest = largest.max(info(server, "skep_log_unflushed_bytes").parse().expect("a number"));
                thread::sleep(LOOK_TIME);
            }
            is_over.store(true, Ordering::Relaxed);
            disk.slow(Duration::ZERO);
            let poured = floods.into_iter().map(|flood| flood.join().expect("it ends"));
            let poured = poured.fold(Poured::default(), |all, one| Poured {
                acknowledged: all.acknowledged + one.acknowledged,
                busy: all.busy + one.busy,
                refused: all.refused + one.refused,
            });
            let memory = fs::read_to_string(format!("/proc/{}/status", server.id())).expect("the server runs");
            let memory = memory.lines().find(|line| line.starts_with("VmHWM")).unwrap_or_default();
            println!("{} MiB unflushed, {poured:?}, {memory}", largest >> 20);
            (largest, poured)
        })
    });
    load.run(server, |server, seen| {
        wait_until("writes are accepted", || writes(server));
        wait_for_load(seen, 200);
    });
    result
}

/// Sends pairs of 1 KiB without waiting for replies, until `is_over`. A thread of its own sends them while this one reads
/// and counts the replies. Among them, a counter of this number is increased: in the end it has counted what was
/// acknowledged, and nothing that was refused.
fn pour(server: &Server, number: usize, is_over: &AtomicBool) -> Poured {
    let counter = format!("poured:{number}");
    let counted = |server| match &ask(server, &format!("GET {counter}"))[..] {
        b"$-1\r\n" => 0,
        bulk => {
            let text = String::from_utf8_lossy(bulk);
            text.lines()
                .nth(1)
                .and_then(|line| line.parse::<u64>().ok())
                .unwrap_or_else(|| panic!("{counter} has {text}"))
        }
    };
    let before = counted(server);
    let mut connection = Connection::open(&address(server), HASH_SPACE).expect("the server serves");
    let mut stream = connection.stream.try_clone().expect("a socket can be cloned");
    let (sent, has_ended) = (AtomicU64::new(0), AtomicBool::new(false));
    let (poured, increments) = thread::scope(|scope| {
        scope.spawn(|| {
            let command = puts(32) + &format!("INCR {counter}\r\n");
            while !is_over.load(Ordering::Relaxed) {
                sent.fetch_add(33, Ordering::Relaxed);
                stream.write_all(command.as_bytes()).expect("the server reads");
            }
            has_ended.store(true, Ordering::Relaxed);
        });
        let (mut read, mut poured, mut increments) = (0, Poured::default(), 0);
        while !has_ended.load(Ordering::Relaxed) || read < sent.load(Ordering::Relaxed) {
            if read == sent.load(Ordering::Relaxed) {
                thread::yield_now();
                continue;
            }
            let reply = connection.reply().expect("the server replies");
            poured.count(&reply);
            increments += u64::from(reply[0] == b':');
            read += 1;
        }
        (poured, increments)
    });
    assert_eq!(
        counted(server) - before,
        increments,
        "{counter} has other increments than those that were acknowledged"
    );
    poured
}

#[test]
fn a_slow_disk_bounds_what_is_not_on_it() {
    let Some(mut machine) = Machine::new(&["--durability", "always"]) else { return };
    let mut server = machine.start();
    idle(&machine);
    let (unflushed, _) = flood_slowly(&mut machine, &mut server, |disk| disk.slow(Duration::from_millis(100)));
    assert!(unflushed <= UNFLUSHED_MAX, "{unflushed} bytes were not on disk");
    let (_, poured) = flood_slowly(&mut machine, &mut server, |disk| disk.stop_for(Duration::from_secs(5)));
    assert!(poured.refused > 0, "while the disk stands still, nothing is refused");
    let server = machine.restart(server, "after the disk was slow");
    machine.lose_power(server);
}

#[test]
fn with_a_bound_for_delays_a_slow_disk_makes_the_server_busy() {
    let Some(mut machine) = Machine::new(&["--durability", "always", "--delay-max", "100ms"]) else { return };
    let mut server = machine.start();
    idle(&machine);
    let (unflushed, poured) = flood_slowly(&mut machine, &mut server, |disk| disk.slow(Duration::from_millis(100)));
    assert!(unflushed <= UNFLUSHED_MAX, "{unflushed} bytes were not on disk");
    // The clients of the load send right after a sync, when nothing is refused yet, so they may see no refusal.
    assert!(poured.busy > 0, "nothing was refused because the server was busy");
    let server = machine.restart(server, "after the server was busy");
    machine.lose_power(server);
}
