//! Starts stores again and again whose memory is full: no start is refused, and each has what was acknowledged.
//!
//! The histories are random: sizes that drift, values that are replaced, keys that expire, windows of ascending keys,
//! values from 4 bytes to a mebibyte, snapshots, clean ends and kills, other numbers of shards. All of them keep the memory
//! nearly full. Recovery may need no more memory than the final state, so every start succeeds.
//!
//! `SKEP_LONG` multiplies the histories, and `SKEP_SEED` is the seed of the first one.

#[path = "program/data_directory.rs"]
#[expect(dead_code, reason = "the tests of the program use the other functions")]
mod data_directory;
mod full_run;
#[path = "program/process.rs"]
#[expect(dead_code, reason = "the tests of the program use the other functions")]
mod process;
mod setting;
#[path = "restarts/space.rs"]
mod space;
#[path = "redis/wire.rs"]
#[expect(dead_code, reason = "the tests that compare with Redis use the other functions")]
mod wire;

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use data_directory::DataDirectory;
use full_run::is_full_run;
use process::{Server, skep};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use setting::setting;
use skep::{DurableStore, Replies, StoreSettings};
use skep_client::{Client, HASH_SPACE, ORDERED_SPACE, Operation, OperationError, Reply, Request, Responses};
use space::{Change, Space};
use wire::Connection;

/// Histories of a test, and starts of each.
const HISTORY_COUNT: u64 = 5;
const START_COUNT: usize = 5;
/// The most batches of a space between two starts.
const BATCHES_MAX: usize = 600;
/// Batches after which a space is full, unless its load cannot fill it.
const FILL_BATCHES_MAX: usize = 4000;
/// Bytes of the replies of a batch.
const REPLIES_MAX: usize = 64 << 20;

/// A server, and the settings that all of its starts have.
struct ServerHistory {
    directory: DataDirectory,
    memory: u64,
    ordered_memory: u64,
    kv_size: Option<u32>,
    shards: u16,
    spaces: Vec<Space>,
    random: Xoshiro256PlusPlus,
}

impl ServerHistory {
    fn new(seed: u64) -> ServerHistory {
        println!("seed {seed}");
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let kv_size = [None, Some(16), Some(40), Some(200)][random.random_range(0..4)];
        ServerHistory {
            directory: DataDirectory::new(&format!("restarts-{seed}")),
            memory: random.random_range(8..24),
            ordered_memory: random.random_range(8..20),
            kv_size,
            shards: random.random_range(1..=3),
            spaces: [HASH_SPACE, ORDERED_SPACE].map(|number| Space::new(number, seed)).into(),
            random,
        }
    }

    fn start(&self) -> Server {
        let mut command = skep(&["serve", "--listen", "127.0.0.1:0", "--resp", "127.0.0.1:0", "--shards"]);
        command.arg(self.shards.to_string()).arg("--data-dir").arg(self.directory.path());
        command.args(["--memory", &format!("{}MiB", self.memory)]);
        command.args(["--ordered-memory", &format!("{}MiB", self.ordered_memory)]);
        command.args(self.kv_size.iter().flat_map(|size| ["--kv-size".to_owned(), size.to_string()]));
        println!(
            "start: {} shards, {} and {} MiB, kv size {:?}",
            self.shards, self.memory, self.ordered_memory, self.kv_size
        );
        self.directory.start_command(&mut command)
    }

    /// Changes the pairs until both spaces are full.
    fn fill(&mut self, server: &Server) {
        for space in &mut self.spaces {
            let mut client = connect(server, space.number);
            let filled = (0..FILL_BATCHES_MAX).any(|_| {
                execute(&mut client, space);
                space.is_full()
            });
            assert!(filled, "space {} has {} keys and is not full", space.number, space.len());
        }
    }

    /// Changes the pairs, and sometimes begins a snapshot meanwhile.
    fn load(&mut self, server: &Server) {
        let loads: Vec<_> = self.spaces.iter_mut().map(Space::choose).collect();
        let batches = self.random.random_range(1..BATCHES_MAX);
        let save = self.random.random_range(0..2 * batches);
        println!("{batches} batches of {loads:?}, snapshot in batch {save}");
        let mut clients: Vec<_> = self.spaces.iter().map(|space| connect(server, space.number)).collect();
        for batch in 0..batches {
            if batch == save {
                let mut connection = Connection::to_address(server.resp.as_ref().expect("RESP is on"));
                connection.run(&[vec![b"BGSAVE".to_vec()]]);
            }
            for (space, client) in self.spaces.iter_mut().zip(&mut clients) {
                execute(client, space);
            }
        }
    }

    fn check(&mut self, server: &Server) {
        for space in &mut self.spaces {
            space.expire();
            let mut client = connect(server, space.number);
            let mut responses = Responses::new();
            for keys in space.keys() {
                let requests: Vec<_> = keys.iter().map(|(_, key)| get(key)).collect();
                client.execute(&requests, &mut responses).expect("the server serves");
                for ((number, _), response) in keys.iter().zip(responses.iter()) {
                    space.check(*number, response.expect("reads are not refused"));
                }
            }
        }
        let expected = [0, 1].map(|index: usize| self.spaces[index].len() as u64);
        assert_eq!(server.key_counts(), expected);
    }

    /// Ends the server by a signal, while no operation is in flight.
    fn end(&mut self, mut server: Server) {
        if self.random.random() {
            println!("end");
            server.signal("TERM");
            assert_eq!(server.wait().code(), Some(0));
        } else {
            println!("kill");
            server.child().kill().expect("the server runs");
            server.wait();
        }
    }

    fn run(&mut self, starts: usize, changes_shards: bool) {
        let server = self.start();
        self.fill(&server);
        self.end(server);
        for _ in 0..starts {
            if changes_shards && self.random.random() {
                self.shards = self.random.random_range(1..=3);
            }
            let server = self.start();
            self.check(&server);
            // Sometimes nothing changes between two starts.
            if self.random.random_ratio(9, 10) {
                self.load(&server);
            }
            self.end(server);
        }
        let server = self.start();
        self.check(&server);
        let refused = self.spaces.iter().map(|space| space.refused).min();
        assert!(refused > Some(0), "a space was never full");
    }
}

fn connect(server: &Server, space: u16) -> Client {
    Client::connect(&server.native, space).expect("the server serves")
}

fn get(key: &[u8]) -> Request<'_> {
    Request { key, operation: Operation::Get }
}

/// Returns the outcome of a change.
fn outcome(reply: Reply<'_>) -> Result<(), OperationError> {
    match reply {
        Reply::Done | Reply::NotFound => Ok(()),
        Reply::Failed(error) => Err(error),
        other => panic!("a change has the reply {other:?}"),
    }
}

/// Executes the next batch of a space.
fn execute(client: &mut Client, space: &mut Space) {
    let changes = space.batch();
    let requests: Vec<_> = changes.iter().map(Change::request).collect();
    let mut responses = Responses::new();
    client.execute(&requests, &mut responses).expect("the server serves");
    let outcomes: Vec<_> =
        responses.iter().map(|response| outcome(response.expect("the server is not busy"))).collect();
    space.acknowledge(&changes, &outcomes);
}

/// A store in this process.
struct StoreHistory {
    parent: tempfile::TempDir,
    /// The name of the directory in the parent.
    name: u32,
    settings: StoreSettings,
    space: Space,
    random: Xoshiro256PlusPlus,
}

impl StoreHistory {
    fn new(seed: u64) -> StoreHistory {
        println!("seed {seed}");
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let memory = random.random_range(8..24) << 20;
        let kv_size = [None, Some(16), Some(40), Some(64), Some(200)][random.random_range(0..5)];
        StoreHistory {
            parent: tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("the target folder can be written"),
            name: 0,
            settings: kv_size
                .map_or(StoreSettings::growing(memory, 7), |size| StoreSettings::for_kv_size(memory, size, 7)),
            space: Space::new(HASH_SPACE, seed),
            random,
        }
    }

    fn path(&self) -> PathBuf {
        self.parent.path().join(self.name.to_string())
    }

    fn open(&self) -> DurableStore {
        println!("open: {:?}", self.settings);
        DurableStore::open(self.path(), &self.settings).expect("the same settings served before")
    }

    /// Executes a batch of the space.
    fn execute(&mut self, store: &mut DurableStore) {
        let changes = self.space.batch();
        let mut outcomes = Vec::new();
        for change in &changes {
            outcomes.push(outcome(reply(store, change.request()).as_reply()));
        }
        self.space.acknowledge(&changes, &outcomes);
    }

    fn load(&mut self, store: &mut DurableStore) {
        let load = self.space.choose();
        let batches = self.random.random_range(1..BATCHES_MAX);
        let save = self.random.random_range(0..2 * batches);
        println!("{batches} batches of {load:?}, snapshot in batch {save}");
        for batch in 0..batches {
            if batch == save {
                store.snapshot().expect("the disk works");
            }
            self.execute(store);
        }
    }

    /// Closes the store, or copies its directory as a crash after a flush would leave it.
    fn end(&mut self, mut store: DurableStore) {
        if self.random.random() {
            println!("close");
            return;
        }
        println!("crash");
        store.flush().expect("the disk works");
        let (from, name) = (self.path(), self.name);
        self.name += 1;
        copy(&from, &self.path());
        drop(store);
        fs::remove_dir_all(self.parent.path().join(name.to_string())).expect("it is there");
    }

    fn check(&mut self, store: &mut DurableStore) {
        self.space.expire();
        for (number, key) in self.space.keys().into_iter().flatten() {
            self.space.check(number, reply(store, get(&key)).as_reply());
        }
    }

    fn run(&mut self, starts: usize) {
        let mut store = self.open();
        let filled = (0..FILL_BATCHES_MAX).any(|_| {
            self.execute(&mut store);
            self.space.is_full()
        });
        assert!(filled, "{} keys do not fill it", self.space.len());
        self.end(store);
        for _ in 0..starts {
            let mut store = self.open();
            self.check(&mut store);
            self.load(&mut store);
            self.end(store);
        }
        let mut store = self.open();
        self.check(&mut store);
    }
}

/// The reply to one request, with its own bytes.
enum OwnReply {
    Value(Vec<u8>),
    Other(Reply<'static>),
}

impl OwnReply {
    fn as_reply(&self) -> Reply<'_> {
        match self {
            OwnReply::Value(value) => Reply::Value(value),
            OwnReply::Other(reply) => *reply,
        }
    }
}

/// Executes one request until it is not deferred.
fn reply(store: &mut DurableStore, request: Request<'_>) -> OwnReply {
    let mut replies = Replies::with_budget(REPLIES_MAX);
    loop {
        store.execute(&[request], &mut replies).expect("the disk works");
        match replies.get(0) {
            Reply::Deferred => std::thread::yield_now(),
            Reply::Value(value) => return OwnReply::Value(value.to_vec()),
            Reply::Done => return OwnReply::Other(Reply::Done),
            Reply::NotFound => return OwnReply::Other(Reply::NotFound),
            Reply::Exists => return OwnReply::Other(Reply::Exists),
            Reply::Failed(error) => return OwnReply::Other(Reply::Failed(error)),
        }
    }
}

/// Copies a directory that is in use, and whose store executes nothing.
fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).expect("the target folder can be written");
    for file in fs::read_dir(from).expect("it is there") {
        let file = file.expect("it is there");
        match fs::copy(file.path(), to.join(file.file_name())) {
            // The thread of the log has renamed a segment that is not in use.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            result => assert!(result.is_ok(), "{result:?}"),
        }
    }
}

fn histories() -> impl Iterator<Item = u64> {
    let seed = setting("SKEP_SEED", 1);
    (0..HISTORY_COUNT * setting("SKEP_LONG", 1)).map(move |history| seed + history)
}

#[test]
fn a_full_server_starts_again_with_the_same_settings() {
    if is_full_run() {
        histories().for_each(|seed| ServerHistory::new(seed).run(START_COUNT, false));
    }
}

#[test]
fn a_full_server_starts_again_with_other_shards() {
    if is_full_run() {
        histories().for_each(|seed| ServerHistory::new(1000 + seed).run(START_COUNT, true));
    }
}

#[test]
fn a_full_store_opens_again_with_the_same_settings() {
    if is_full_run() {
        histories().for_each(|seed| StoreHistory::new(seed).run(START_COUNT));
    }
}
