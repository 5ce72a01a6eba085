//! Kills servers with a data directory at random moments, under load, and starts them again: nothing that was
//! acknowledged is lost, and nothing is there that no client wrote. Some clients call random functions, whose code changes
//! before and between kills: a replay makes each call with the code of its time. They do so in the cache space too, which
//! has no keys after a kill.
//!
//! `SKEP_LONG` multiplies the kills, and `SKEP_SEED` is their seed. The moments are random all the same.

#[path = "kill/calls.rs"]
mod calls;
#[path = "kill/clients.rs"]
mod clients;
#[path = "program/data_directory.rs"]
#[expect(dead_code, reason = "the tests of the program use the other functions")]
mod data_directory;
mod full_run;
#[path = "kill/modules.rs"]
mod modules;
#[path = "kill/pairs.rs"]
mod pairs;
#[path = "program/process.rs"]
#[expect(dead_code, reason = "the tests of the program use the other functions")]
mod process;
mod setting;
#[path = "redis/wire.rs"]
#[expect(dead_code, reason = "the tests that compare with Redis use the other functions")]
mod wire;

use std::process::{Command, Stdio};
use std::thread::{self, Scope};
use std::time::Duration;

use calls::Outcomes;
use clients::{ACCOUNTS, BALANCE, Hot, NativeClient, RespClient, connect, read, words};
use data_directory::DataDirectory;
use full_run::is_full_run;
use modules::RandomModule;
use process::{Server, skep};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use setting::setting;
use skep_client::{CACHE_SPACE, FunctionHandle, HASH_SPACE, ORDERED_SPACE};
use wire::Connection;

/// Kills of a test. `SKEP_LONG` multiplies them.
const KILL_COUNT: u64 = 50;
/// Kills at the level that may lose something, and of a test of its own.
const KILL_COUNT_SMALL: u64 = 10;
/// The longest time under load, in milliseconds.
const LOAD_TIME_MAX: u64 = 400;
/// Modules of random functions. Some come back, and the server then has their code already.
const MODULE_COUNT: u64 = 30;

fn resp_address(server: &Server) -> String {
    server.resp.clone().expect("the server listens for RESP")
}

fn loading(source: &str) -> wire::Arguments {
    ["SKEP.FUNCTION", "LOAD", "REPLACE", source].map(|word| word.as_bytes().to_vec()).into()
}

/// What clients do.
#[derive(Clone, Copy)]
struct Load<'a> {
    /// The addresses of the server.
    native: &'a str,
    resp: &'a str,
    /// The functions that they call. Without them, all keys are removed now and then.
    functions: Option<&'a [FunctionHandle]>,
    /// The batches of each, unless the server ends before.
    batches: usize,
}

/// The clients of one space.
struct Space {
    number: u16,
    hot: Hot,
    natives: Vec<NativeClient>,
    resps: Vec<RespClient>,
}

/// A server that is killed and started again, and its clients.
struct Kills {
    directory: DataDirectory,
    level: &'static str,
    random: Xoshiro256PlusPlus,
    spaces: Vec<Space>,
    seed: u64,
    /// There is only one client, which also removes all keys.
    flushes: bool,
    shards: u16,
}

impl Space {
    fn new(number: u16, native_count: u16, resp_count: u16, seed: u64) -> Space {
        Space {
            number,
            hot: Hot::default(),
            natives: (0..native_count).map(|client| NativeClient::new(number, client, seed)).collect(),
            resps: (0..resp_count).map(|client| RespClient::new(number, client, seed)).collect(),
        }
    }

    /// Starts the clients.
    fn spawn<'a>(&'a mut self, scope: &'a Scope<'a, '_>, load: Load<'a>) {
        let Space { hot, natives, resps, .. } = self;
        let hot = &*hot;
        for client in natives {
            let functions = load.functions.unwrap_or_default();
            scope.spawn(move || client.run(load.native, hot, functions, load.batches));
        }
        for client in resps {
            scope.spawn(move || client.run(load.resp, load.functions, load.batches));
        }
    }

    /// Returns a connection of RESP to this space.
    fn connect_resp(&self, server: &Server) -> Connection {
        let mut connection = Connection::to_address(&resp_address(server));
        assert_eq!(connection.run(&[words(&format!("SELECT {}", self.number))]), [b"+OK\r\n"]);
        connection
    }

    /// Returns true if its keys survive a kill.
    fn is_durable(&self) -> bool {
        self.number != CACHE_SPACE
    }

    /// Writes the accounts.
    fn begin(&self, server: &Server) {
        let accounts: Vec<String> = (0..ACCOUNTS).map(|number| format!("account:{number} {BALANCE}")).collect();
        let reply = self.connect_resp(server).run(&[words(&format!("MSET {}", accounts.join(" ")))]);
        assert_eq!(reply, [b"+OK\r\n"]);
    }

    /// Returns what the server has and should not have, or has not and should.
    fn check(&mut self, server: &Server, has_accounts: bool) -> Vec<String> {
        let mut client = connect(&server.native, self.number).expect("the server serves");
        let mut wrong = Vec::new();
        let mut count = 0;
        let mut read_all = |keys: &[Vec<u8>]| {
            let found = read(&mut client, keys);
            count += found.iter().flatten().count();
            found
        };
        for client in &mut self.natives {
            wrong.extend(client.pairs.check(&read_all(&client.pairs.keys())));
            wrong.extend(client.calls.check(&read_all(&client.calls.keys())));
        }
        wrong.extend(self.hot.check(&read_all(&Hot::keys())));
        let mut numbers = |keys: &[Vec<u8>]| -> Vec<i64> {
            let number = |value: Vec<u8>| String::from_utf8(value).expect("text").parse().expect("a number");
            read_all(keys).into_iter().map(|value| value.map_or(0, number)).collect()
        };
        if has_accounts && self.is_durable() {
            let keys: Vec<_> = (0..ACCOUNTS).map(|number| format!("account:{number}").into_bytes()).collect();
            let balances = numbers(&keys);
            if balances.iter().sum::<i64>() != ACCOUNTS as i64 * BALANCE {
                wrong.push(format!("the accounts have {balances:?}"));
            }
        }
        for client in &mut self.resps {
            let found = numbers(&[client.counter()])[0];
            wrong.extend(client.check_transfers(found));
        }
        for client in &mut self.resps {
            wrong.extend(client.pairs.check(&read_all(&client.pairs.keys())));
            wrong.extend(client.calls.check(&read_all(&client.calls.keys())));
        }
        let key_count = self.connect_resp(server).run(&[words("DBSIZE")]).remove(0);
        if key_count != format!(":{count}\r\n").into_bytes() {
            wrong
                .push(format!("there are {} keys, and those that clients wrote are {count}", key_count.escape_ascii()));
        }
        wrong.iter().map(|wrong| format!("space {}: {wrong}", self.number)).collect()
    }

    fn acknowledged(&self) -> u64 {
        let natives = self.natives.iter().map(|client| client.acknowledged);
        natives.chain(self.resps.iter().map(|client| client.acknowledged)).sum()
    }

    /// Returns how the calls of native clients ended, and those of clients of RESP.
    fn outcomes(&self) -> [Outcomes; 2] {
        let mut outcomes = [Outcomes::default(); 2];
        self.natives.iter().for_each(|client| outcomes[0].add(client.calls.outcomes));
        self.resps.iter().for_each(|client| outcomes[1].add(client.calls.outcomes));
        outcomes
    }
}

impl Kills {
    fn new(name: &str, level: &'static str, flushes: bool) -> Kills {
        let seed = setting("SKEP_SEED", 1);
        println!("seed {seed}");
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let spaces = if flushes {
            vec![Space::new(HASH_SPACE, 0, 1, seed)]
        } else {
            [HASH_SPACE, ORDERED_SPACE, CACHE_SPACE].map(|number| Space::new(number, 2, 2, seed)).into()
        };
        Kills {
            directory: DataDirectory::new(name),
            level,
            shards: random.random_range(1..=3),
            random,
            spaces,
            seed,
            flushes,
        }
    }

    /// Returns the command of the server.
    fn command(&self) -> Command {
        let mut command = skep(&["serve", "--listen", "127.0.0.1:0", "--resp", "127.0.0.1:0", "--memory", "96MiB"]);
        command.args(["--ordered-memory", "64MiB", "--cache-memory", "96MiB", "--durability", self.level, "--shards"]);
        command.arg(self.shards.to_string()).arg("--data-dir").arg(self.directory.path());
        command
    }

    /// Starts the server, sometimes with another number of shards, and sometimes after a start that was killed.
    fn start(&mut self) -> Server {
        if self.random.random_ratio(1, 4) {
            self.shards = self.random.random_range(1..=3);
        }
        if self.random.random_ratio(1, 4) {
            let mut child =
                self.command().stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the program starts");
            thread::sleep(Duration::from_millis(self.random.random_range(0..200)));
            child.kill().expect("it runs");
            child.wait().expect("it was killed");
        }
        self.directory.start_command(&mut self.command())
    }

    fn begin(&mut self) {
        let server = self.start();
        if !self.flushes {
            assert_eq!(
                Connection::to_address(&resp_address(&server)).run(&[loading(&pairs::module(0))]),
                [b"$4\r\nkill\r\n"]
            );
            self.spaces.iter().filter(|space| space.is_durable()).for_each(|space| space.begin(&server));
        }
        self.kill(server);
    }

    fn kill(&self, mut server: Server) {
        server.child().kill().expect("the server runs");
        server.wait();
    }

    /// Loads random modules, each in place of the one before, and lets the clients call the functions of all but the last,
    /// which it returns. So the log has calls of the same names with the code of several modules.
    fn load_functions(&mut self, native: &str, resp: &str) -> RandomModule {
        let mut module = self.load_module(resp);
        for _ in 0..self.random.random_range(0..3) {
            let functions = Some(&module.functions[..]);
            let load = Load { native, resp, functions, batches: self.random.random_range(1..8) };
            thread::scope(|scope| self.spaces.iter_mut().for_each(|space| space.spawn(scope, load)));
            module = self.load_module(resp);
        }
        module
    }

    fn load_module(&mut self, resp: &str) -> RandomModule {
        let number = self.random.random_range(0..MODULE_COUNT);
        let module = RandomModule::new(self.seed.wrapping_mul(MODULE_COUNT).wrapping_add(number));
        let reply = Connection::to_address(resp).run(&[loading(&module.source)]).remove(0);
        let name = RandomModule::NAME;
        assert_eq!(reply.escape_ascii().to_string(), format!("${}\\r\\n{name}\\r\\n", name.len()));
        module
    }

    /// Lets the clients run for a random time, and kills the server. Meanwhile a snapshot may be taken.
    fn load_and_kill(&mut self) {
        let mut server = self.start();
        let (native, resp) = (server.native.clone(), resp_address(&server));
        let saves = self.random.random_ratio(1, 2);
        let times = [0; 2].map(|_| Duration::from_millis(self.random.random_range(0..LOAD_TIME_MAX / 2)));
        let flushes = self.flushes;
        let module = if flushes { None } else { Some(self.load_functions(&native, &resp)) };
        let functions = module.as_ref().map(|module| &module.functions[..]);
        let load = Load { native: &native, resp: &resp, functions, batches: usize::MAX };
        let comment = self.random.random_range(0..500);
        thread::scope(|scope| {
            let resp = &resp;
            self.spaces.iter_mut().for_each(|space| space.spawn(scope, load));
            if !flushes {
                // The functions are replaced, by others of the same meaning, until the server ends.
                scope.spawn(move || {
                    let Ok(mut connection) = Connection::connect(resp) else { return };
                    for comment in comment..comment + 20 {
                        if connection.send(&[loading(&pairs::module(comment))]).is_err() {
                            return;
                        }
                        let Ok(reply) = connection.reply() else { return };
                        assert_eq!(reply, b"$4\r\nkill\r\n");
                    }
                });
            }
            thread::sleep(times[0]);
            if saves {
                let reply = Connection::to_address(resp).run(&[words("BGSAVE")]).remove(0);
                // A start with another number of shards takes one too.
                assert!(
                    [&b"+Background saving started\r\n"[..], b"-ERR Background save already in progress\r\n"]
                        .contains(&&reply[..])
                );
            }
            thread::sleep(times[1]);
            // The clients end with the server.
            server.child().kill().expect("the server runs");
            server.wait();
        });
    }

    /// Starts the server. Returns what it has and should not have, or has not and should.
    fn check(&mut self) -> Vec<String> {
        let server = self.start();
        let wrong = self.spaces.iter_mut().flat_map(|space| space.check(&server, !self.flushes)).collect();
        self.kill(server);
        wrong
    }

    /// Returns the operations that were acknowledged so far.
    fn acknowledged(&self) -> u64 {
        self.spaces.iter().map(Space::acknowledged).sum()
    }

    /// Kills the server this many times under load, and as often without. Nothing may be lost.
    fn run(&mut self, count: u64) {
        self.begin();
        for kill in 0..count {
            self.load_and_kill();
            let wrong = self.check();
            assert!(
                wrong.is_empty(),
                "kill {kill}, {} keys:\n{}",
                wrong.len(),
                wrong[..wrong.len().min(10)].join("\n")
            );
        }
        println!("{count} kills, {} operations acknowledged", self.acknowledged());
        assert!(self.acknowledged() > 100 * count, "the clients ran");
        for space in self.spaces.iter().filter(|_| !self.flushes) {
            for (outcomes, clients) in space.outcomes().into_iter().zip(["native clients", "clients of RESP"]) {
                println!("space {}: calls of {clients}: {outcomes:?}", space.number);
                let Outcomes { updates, reads, failures, refusals, forgotten } = outcomes;
                let fewest = updates.min(reads).min(failures).min(refusals);
                assert!(fewest > 0 && forgotten <= updates, "the calls have all outcomes");
            }
        }
        let mut server = self.start();
        server.signal("TERM");
        assert_eq!(server.wait().code(), Some(0));
        assert_eq!(self.check(), [""; 0]);
    }
}

#[test]
fn nothing_acknowledged_is_lost_when_the_server_is_killed() {
    if !is_full_run() {
        return;
    }
    Kills::new("kill", "always", false).run(KILL_COUNT * setting("SKEP_LONG", 1));
}

#[test]
fn keys_that_were_removed_all_together_stay_removed() {
    if !is_full_run() {
        return;
    }
    Kills::new("kill-flush", "always", true).run(KILL_COUNT_SMALL * setting("SKEP_LONG", 1));
}

#[test]
fn replies_that_leave_before_the_disk_has_them_are_found() {
    if !is_full_run() {
        return;
    }
    let mut kills = Kills::new("kill-control", "second", false);
    kills.begin();
    let mut lost = 0;
    for _ in 0..KILL_COUNT_SMALL {
        kills.load_and_kill();
        lost += u64::from(!kills.check().is_empty());
    }
    assert!(lost >= KILL_COUNT_SMALL / 2, "{lost} of {KILL_COUNT_SMALL} kills have lost something");
}
