//! The durable store: what was flushed is there after each end, and it is what the naive store has.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::net::TcpStream;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use skep::{
    Condition, DirectoryError, DiskError, DurableStore, Expiry, ExpiryChange, LogError, Operation, PutCondition,
    Replies, Reply, Request, Server, ServerSettings, StoreSettings, StringWrite,
};
use skep_log::{BlockView, Directory, Files, Section};
use skep_store::naive::{Generator, GeneratorSettings, Harness, Mix, NaiveStore, OwnedRequest};

const BATCH: usize = 50;
const BUDGET: usize = 64 << 20;

fn settings() -> StoreSettings {
    StoreSettings::for_kv_size(16 << 20, 200, 7)
}

fn generator(seed: u64) -> Generator {
    Generator::new(GeneratorSettings { seed, key_count: 300, mix: Mix::built_in(), ..GeneratorSettings::default() })
}

fn batch(generator: &mut Generator) -> Vec<OwnedRequest> {
    generator.take(BATCH).collect()
}

/// Returns a directory that is removed at the end, and a name in it.
fn directory() -> (tempfile::TempDir, PathBuf) {
    let parent = tempfile::tempdir().unwrap();
    let path = parent.path().join("data");
    (parent, path)
}

fn open(path: &Path) -> DurableStore {
    DurableStore::open(path, &settings()).unwrap()
}

fn put<'a>(key: &'a [u8], value: &'a [u8]) -> Request<'a> {
    Request { key, operation: Operation::Put { value, condition: PutCondition::Always } }
}

fn get(store: &mut DurableStore, key: &[u8]) -> Option<Vec<u8>> {
    let mut replies = Replies::with_budget(BUDGET);
    store.execute(&[Request { key, operation: Operation::Get }], &mut replies).unwrap();
    match replies.get(0) {
        Reply::Value(value) => Some(value.to_vec()),
        reply => {
            assert_eq!(reply, Reply::NotFound);
            None
        }
    }
}

/// Returns the pairs of a store whose keys are those of a generator.
fn pairs(store: &mut DurableStore, generator: &Generator) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let keys = (0..300).map(|number| generator.key(number));
    let pairs: BTreeMap<_, _> = keys.filter_map(|key| get(store, &key).map(|value| (key, value))).collect();
    assert_eq!(store.statistics().pairs, pairs.len() as u64);
    pairs
}

fn pairs_of(naive: &NaiveStore) -> BTreeMap<Vec<u8>, Vec<u8>> {
    naive.iter().map(|(key, value)| (key.to_vec(), value.to_vec())).collect()
}

/// Copies a directory that is in use, and whose store executes nothing.
fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for file in fs::read_dir(from).unwrap() {
        let file = file.unwrap();
        match fs::copy(file.path(), to.join(file.file_name())) {
            // The thread of the log has renamed a segment that is not in use, to prepare the next one.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            result => assert!(result.is_ok(), "{result:?}"),
        }
    }
}

#[test]
fn a_store_that_is_opened_again_is_the_same() {
    let (parent, path) = directory();
    let mut generator = generator(11);
    let mut harness = Harness::new(NaiveStore::new(), BUDGET, 11);
    harness.set_now(now());
    let mut store = open(&path);
    for round in 0..30 {
        for _ in 0..10 {
            let requests = batch(&mut generator);
            harness.execute_owned(&requests, |requests, replies| store.execute(requests, replies).unwrap());
        }
        if round % 4 == 1 {
            store.snapshot().unwrap();
            assert_eq!(store.log_size(), 0);
        }
        match round % 3 {
            0 => {
                drop(store);
                // The seed and the memory may change.
                let other = StoreSettings::for_kv_size((16 + round) << 20, 100, round);
                store = DurableStore::open(&path, &other).unwrap();
            }
            1 => {
                // A crash just after a flush.
                store.flush().unwrap();
                let of_crash = parent.path().join(format!("crash-{round}"));
                copy(&path, &of_crash);
                let mut store = open(&of_crash);
                assert_eq!(pairs(&mut store, &generator), pairs_of(harness.naive()), "round {round}");
            }
            _ => {}
        }
        assert_eq!(pairs(&mut store, &generator), pairs_of(harness.naive()), "round {round}");
    }
}

/// The thread writes nothing of its own into the log that begins with a snapshot.
#[test]
fn the_log_is_empty_after_a_snapshot_until_the_next_change() {
    let (_parent, path) = directory();
    let mut store = open(&path);
    let mut replies = Replies::with_budget(BUDGET);
    store.execute(&[put(b"k", b"v")], &mut replies).unwrap();
    store.snapshot().unwrap();
    // Longer than the log is idle before its end is sealed.
    thread::sleep(Duration::from_millis(20));
    assert_eq!(store.log_size(), 0);
    store.execute(&[put(b"k", b"w")], &mut replies).unwrap();
    assert!(store.log_size() > 0);
}

/// The next segment is prepared while the present one has room, so all that was executed gets to the disk.
#[test]
fn a_store_whose_log_cannot_grow_keeps_what_it_has_executed() {
    let (_parent, path) = directory();
    let mut store = open(&path);
    let names = fs::read_dir(&path).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap());
    let numbers = names.filter_map(|name| u64::from_str_radix(name.strip_prefix("log-")?, 16).ok());
    // Something else has the name of the next segment.
    let next = path.join(format!("log-{:016x}", numbers.max().unwrap() + 1));
    fs::create_dir(&next).unwrap();
    let mut replies = Replies::with_budget(BUDGET);
    let mut executed = 0_u64;
    let error = loop {
        let key = executed.to_le_bytes();
        match store.execute(&[put(&key, &key)], &mut replies) {
            Ok(()) => assert_eq!(replies.get(0), Reply::Done, "the store is full"),
            Err(error) => break error.to_string(),
        }
        executed += 1;
        // Otherwise the memory could be full before the disk is.
        if executed.is_multiple_of(100) {
            thread::sleep(Duration::from_millis(1));
        }
    };
    assert!(executed > 0 && error.contains("the next segment of the log cannot be prepared"), "{error}");
    assert!(matches!(store.flush(), Err(DiskError::Log(_))));
    assert_eq!(get(&mut store, &0_u64.to_le_bytes()).as_deref(), Some(&0_u64.to_le_bytes()[..]));
    drop(store);
    fs::remove_dir(&next).unwrap();
    let mut store = open(&path);
    assert_eq!(store.statistics().pairs, executed);
    store.execute(&[put(b"key", b"value")], &mut replies).unwrap();
    store.flush().unwrap();
}

const CHILD: &str = "SKEP_TEST_DURABLE_STORE";

/// Executes batches without end, and tells after each flush how many are on disk.
fn run_child(path: &Path) {
    let mut store = open(path);
    let (mut generator, mut replies) = (generator(5), Replies::with_budget(BUDGET));
    println!();
    for number in 1_u64.. {
        let requests = batch(&mut generator);
        let requests: Vec<Request<'_>> = requests.iter().map(OwnedRequest::as_request).collect();
        store.execute(&requests, &mut replies).unwrap();
        assert_eq!(replies.deferred_count(), 0);
        if number.is_multiple_of(7) {
            if number.is_multiple_of(49) { store.snapshot() } else { store.flush() }.unwrap();
            println!("flushed {number}");
            std::io::stdout().flush().unwrap();
        }
    }
}

#[test]
fn a_process_that_is_killed_loses_nothing_that_was_flushed() {
    if let Some(path) = std::env::var_os(CHILD) {
        return run_child(Path::new(&path));
    }
    for round in 0..5 {
        let (_parent, path) = directory();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "a_process_that_is_killed_loses_nothing_that_was_flushed", "--nocapture"])
            .env(CHILD, &path)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut flushed = 0;
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        for line in lines {
            if let Some(number) = line.unwrap().strip_prefix("flushed ") {
                flushed = number.parse::<u64>().unwrap();
                if flushed >= 10 + 37 * round {
                    // The rest of what it has written does not matter.
                    child.kill().unwrap();
                    break;
                }
            }
        }
        child.wait().unwrap();
        let mut store = open(&path);
        let mut generator = generator(5);
        let found = pairs(&mut store, &generator);
        let mut naive = NaiveStore::new();
        naive.set_now(now());
        let run_next = |naive: &mut NaiveStore, generator: &mut Generator| {
            for request in batch(generator) {
                naive.execute(&request.as_request());
            }
        };
        (0..flushed).for_each(|_| run_next(&mut naive, &mut generator));
        let mut later = 0;
        while pairs_of(&naive) != found {
            run_next(&mut naive, &mut generator);
            later += 1;
            assert!(later < 10_000, "after {flushed} batches, the store has a state that it never had");
        }
    }
}

#[test]
fn a_directory_is_open_once() {
    let (_parent, path) = directory();
    let store = open(&path);
    let refusal = DurableStore::open(&path, &settings()).err();
    assert!(matches!(refusal, Some(DirectoryError::Directory(LogError::Locked))), "{refusal:?}");
    drop(store);
    open(&path);
}

#[test]
fn a_damaged_log_is_refused() {
    let (_parent, path) = directory();
    let mut store = open(&path);
    let mut replies = Replies::with_budget(BUDGET);
    for key in [b"a", b"b", b"c"] {
        store.execute(&[put(key, b"value")], &mut replies).unwrap();
        store.flush().unwrap();
    }
    drop(store);
    let names = fs::read_dir(&path).unwrap().map(|file| file.unwrap().path());
    let first = names.filter(|path| path.to_string_lossy().contains("/log-")).min().unwrap();
    let file = fs::File::options().write(true).open(first).unwrap();
    file.write_all_at(b"!", 4096 + 70).unwrap();
    let Err(refusal) = DurableStore::open(&path, &settings()) else { panic!("the damage was not seen") };
    assert!(matches!(refusal, DirectoryError::Damaged(_)), "{refusal}");
    assert!(refusal.to_string().contains("restore the data directory from a backup"), "{refusal}");
}

#[test]
fn a_directory_with_more_than_the_memory_is_refused() {
    let (_parent, path) = directory();
    let mut store = open(&path);
    let mut replies = Replies::with_budget(BUDGET);
    for number in 0_u32..2000 {
        store.execute(&[put(&number.to_le_bytes(), &[7; 1000])], &mut replies).unwrap();
    }
    drop(store);
    let refusal = DurableStore::open(&path, &StoreSettings::for_kv_size(1 << 20, 200, 7)).err();
    let Some(DirectoryError::DoesNotFit { missing, memory }) = refusal else { panic!("{refusal:?}") };
    assert!(missing > 1 << 20 && memory < 4 << 20, "{missing} bytes are missing, {memory} are enough");
    assert!(DurableStore::open(&path, &StoreSettings::for_kv_size(memory, 200, 7)).is_ok());
    assert_eq!(open(&path).statistics().pairs, 2000);
}

#[test]
fn a_put_takes_few_bytes_of_the_log() {
    let (_parent, path) = directory();
    let mut store = open(&path);
    let mut replies = Replies::with_budget(BUDGET);
    let (batches, size) = (64, 10);
    for number in 0..batches {
        let keys: Vec<[u8; 8]> = (0..256_u64).map(|key| (number * 256 + key).to_le_bytes()).collect();
        let requests: Vec<_> = keys.iter().map(|key| put(key, b"12")).collect();
        store.execute(&requests, &mut replies).unwrap();
    }
    store.flush().unwrap();
    let bytes = store.log_size() as f64 / (batches * 256) as f64;
    assert!(bytes <= f64::from(size) + 1.3, "{bytes}");
}

#[test]
fn a_store_whose_disk_fails_refuses_writes_and_reads_on() {
    let (_parent, path) = directory();
    let mut store = open(&path);
    let mut replies = Replies::with_budget(BUDGET);
    store.execute(&[put(b"k", b"v")], &mut replies).unwrap();
    // No further segment can be created.
    fs::remove_dir_all(&path).unwrap();
    let value = vec![1; 1 << 20];
    let refusal =
        (0..200).find_map(|_| store.flush().and_then(|()| store.execute(&[put(b"large", &value)], &mut replies)).err());
    let Some(DiskError::Log(reason)) = refusal else { panic!("{refusal:?}") };
    assert!(reason.contains("cannot be prepared"), "{reason}");
    let refusal = store.execute(&[put(b"k", b"w")], &mut replies);
    assert!(refusal.unwrap_err().to_string().contains("open the store again"));
    assert!(matches!(store.flush(), Err(DiskError::Log(_))));
    assert!(matches!(store.snapshot(), Err(DiskError::Log(_))));
    assert_eq!(get(&mut store, b"k").unwrap(), b"v");
}

#[test]
fn a_directory_goes_to_a_server_and_back() {
    let (_parent, path) = directory();
    let mut store = open(&path);
    let mut replies = Replies::with_budget(BUDGET);
    store.execute(&[put(b"a", b"1"), put(b"b", b"2")], &mut replies).unwrap();
    drop(store);
    let any = "127.0.0.1:0".parse().unwrap();
    let settings = ServerSettings {
        native: any,
        resp: None,
        data_dir: Some(path.clone()),
        durability: skep_server::Durability::Always,
        memory: 16 << 20,
        ordered_memory: 0,
        shards: 2,
        ..ServerSettings::default()
    };
    let server = Server::start(&settings).unwrap();
    let mut client = skep::Client::connect(server.native_address().to_string(), skep::HASH_SPACE).unwrap();
    assert_eq!(client.get(b"a").unwrap().as_deref(), Some(&b"1"[..]));
    client.put(b"c", b"3").unwrap();
    drop(client);
    server.stop();
    let mut store = open(&path);
    for (key, value) in [(b"a", b"1"), (b"b", b"2"), (b"c", b"3")] {
        assert_eq!(get(&mut store, key).unwrap(), value);
    }
}

/// Returns the time in milliseconds: the expiries of a generator are long before it, or long after.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64
}

/// Sets a key that expires after this time.
fn set_for<'a>(key: &'a [u8], value: &'a [u8], time: Duration) -> Request<'a> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let expiry = ExpiryChange::set(Expiry::at((now + time).as_millis() as i64).unwrap());
    let set = StringWrite::Set { value, condition: Condition::ALWAYS, expiry, return_old: false };
    Request { key, operation: Operation::StringWrite(set) }
}

#[test]
fn keys_expire_also_those_of_a_snapshot() {
    let (_parent, path) = directory();
    let mut store = open(&path);
    let mut replies = Replies::with_budget(BUDGET);
    let requests = [set_for(b"a", b"1", Duration::from_millis(300)), set_for(b"b", b"2", Duration::from_secs(1000))];
    store.execute(&requests, &mut replies).unwrap();
    assert_eq!(get(&mut store, b"a").as_deref(), Some(b"1".as_slice()));
    store.snapshot().unwrap();
    store.execute(&[set_for(b"c", b"3", Duration::from_millis(300))], &mut replies).unwrap();
    drop(store);
    thread::sleep(Duration::from_millis(350));
    let mut store = open(&path);
    for (key, value) in [(b"a", None), (b"b", Some(b"2".as_slice())), (b"c", None)] {
        assert_eq!(get(&mut store, key).as_deref(), value, "{}", key.escape_ascii());
    }
    let is_one_left = |store: &mut DurableStore| get(store, b"b").is_some() && store.statistics().pairs == 1;
    assert!((0..100_000).any(|_| is_one_left(&mut store)), "the memory of expired keys is freed");
}

#[test]
fn a_batch_of_more_than_a_block_can_have_is_logged() {
    let (_parent, path) = directory();
    let settings = StoreSettings::for_kv_size(64 << 20, 1000, 7);
    let mut store = DurableStore::open(&path, &settings).unwrap();
    let mut replies = Replies::with_budget(BUDGET);
    let value = vec![7; 1 << 20];
    // More than a gibibyte of changes.
    let requests: Vec<_> = (0..1100).map(|_| put(b"key", &value)).collect();
    store.execute(&requests, &mut replies).unwrap();
    store.execute(&[put(b"last", b"1")], &mut replies).unwrap();
    store.flush().unwrap();
    drop(store);
    let mut store = DurableStore::open(&path, &settings).unwrap();
    assert_eq!(get(&mut store, b"key"), Some(value));
    assert_eq!(get(&mut store, b"last").as_deref(), Some(b"1".as_slice()));
}

/// Returns the times that a copy of a directory states in its manifest and in its log, and the pairs of its snapshot.
fn stated(path: &Path) -> (u64, u64, u64) {
    let (parent, copied) = directory();
    copy(path, &copied);
    let directory = Directory::open(Arc::new(Files::open(&copied).unwrap())).unwrap();
    let (mut time, mut pairs) = (0, 0);
    let mut note = |block: BlockView<'_>| {
        for section in block.sections() {
            if let Section::Operations { now, .. } = section {
                time = time.max(now);
            }
        }
    };
    let read = directory.read_log(false, |blocks| {
        blocks.for_each(&mut note);
        Ok(())
    });
    read.unwrap();
    let read = directory.read_snapshot(0, |chunk| {
        pairs += u64::from(chunk.pairs);
        Ok(())
    });
    read.unwrap();
    let last = directory.manifest().unwrap().last_time;
    drop(parent);
    (last, time, pairs)
}

/// A key that a caller has seen expire must not be back after the next opening, also if the machine's clock is set back. So a
/// flush states the time. A snapshot removes the log that does, so it states the time too.
#[test]
fn flushes_and_snapshots_state_the_time_at_which_keys_were_seen_to_expire() {
    let (_parent, path) = directory();
    let mut store = open(&path);
    let expires = now() + 300;
    let expiry = ExpiryChange::set(Expiry::at(expires as i64).unwrap());
    let set = StringWrite::Set { value: b"value", condition: Condition::ALWAYS, expiry, return_old: false };
    let set = Request { key: b"expires", operation: Operation::StringWrite(set) };
    store.execute(&[set, put(b"stays", b"value")], &mut Replies::with_budget(BUDGET)).unwrap();
    store.flush().unwrap();
    assert!(stated(&path).1 < expires);
    while get(&mut store, b"expires").is_some() {
        thread::sleep(Duration::from_millis(5));
    }
    store.flush().unwrap();
    let (in_manifest, in_log, _) = stated(&path);
    assert!(in_manifest < expires && in_log >= expires, "{in_manifest} and {in_log} instead of {expires}");
    store.snapshot().unwrap();
    let (in_manifest, in_log, pairs) = stated(&path);
    assert!(in_manifest >= expires && in_log == 0, "{in_manifest} and {in_log} instead of {expires}");
    assert_eq!(pairs, 1);
}

/// Keys may have expired because the machine's clock is wrong. So they are on disk until a client has met the clock: also
/// after snapshots that a start takes, or a client that does nothing else.
#[test]
fn keys_that_expire_between_two_starts_are_on_disk_until_a_client_meets_the_clock() {
    let (_parent, path) = directory();
    let any = "127.0.0.1:0".parse().unwrap();
    let settings = |shards| ServerSettings {
        native: any,
        resp: Some(any),
        data_dir: Some(path.clone()),
        durability: skep_server::Durability::Always,
        memory: 16 << 20,
        ordered_memory: 8 << 20,
        shards,
        ..ServerSettings::default()
    };
    let connect = |server: &Server, space| skep::Client::connect(server.native_address().to_string(), space).unwrap();
    let spaces = [skep::HASH_SPACE, skep::ORDERED_SPACE];
    let expires = now() + 300;
    let server = Server::start(&settings(1)).unwrap();
    for space in spaces {
        let set = set_for(b"expires", b"value", Duration::from_millis(300));
        connect(&server, space).execute(&[set], &mut skep::Responses::new()).unwrap();
    }
    server.stop();
    while now() < expires + 100 {
        thread::sleep(Duration::from_millis(5));
    }
    let snapshot_pairs = |shards: u16| {
        let (_parent, copied) = directory();
        copy(&path, &copied);
        let directory = Directory::open(Arc::new(Files::open(&copied).unwrap())).unwrap();
        let mut pairs = 0;
        let mut count = |chunk: &skep_log::Chunk<'_>| {
            pairs += chunk.pairs;
            Ok(())
        };
        (0..shards).for_each(|shard| _ = directory.read_snapshot(shard, &mut count).unwrap());
        directory.read_ordered_snapshot(&mut count).unwrap();
        pairs
    };
    let save = |server: &Server| {
        let mut stream = TcpStream::connect(server.resp_address().unwrap()).unwrap();
        stream.write_all(b"SAVE\r\n").unwrap();
        let mut reply = String::new();
        BufReader::new(stream).read_line(&mut reply).unwrap();
        assert_eq!(reply, "+OK\r\n");
    };
    // Another number of shards is a reason for a snapshot.
    for shards in [1, 2] {
        let server = Server::start(&settings(shards)).unwrap();
        // The shards are idle, and would free the memory of these keys.
        thread::sleep(Duration::from_millis(100));
        save(&server);
        assert_eq!(snapshot_pairs(shards), 2, "{shards} shards");
        server.stop();
    }
    let server = Server::start(&settings(2)).unwrap();
    for space in spaces {
        assert_eq!(connect(&server, space).get(b"expires").unwrap(), None);
    }
    save(&server);
    assert_eq!(snapshot_pairs(2), 0);
    server.stop();
}

/// Opening a store states no time, also if it takes a snapshot because the log is long.
#[test]
fn a_snapshot_of_an_opening_has_the_keys_that_have_expired_since_the_last_time() {
    let (_parent, path) = directory();
    let mut store = open(&path);
    let mut replies = Replies::with_budget(BUDGET);
    store.execute(&[set_for(b"expires", b"value", Duration::from_millis(300))], &mut replies).unwrap();
    let expires = now() + 300;
    let long = vec![7; 1 << 20];
    for _ in 0..40 {
        store.execute(&[put(b"long", &long)], &mut replies).unwrap();
    }
    drop(store);
    while now() < expires + 100 {
        thread::sleep(Duration::from_millis(5));
    }
    for _ in 0..2 {
        // Also if the caller does nothing else than take one.
        open(&path).snapshot().unwrap();
    }
    let (time, _, pairs) = stated(&path);
    assert!(time < expires && pairs == 2, "{time} instead of less than {expires}, {pairs} pairs");
}

/// A start with more shards is served although one of them has more keys than its part of the memory. Then clients fill the
/// others.
#[test]
fn a_start_that_divides_keys_unevenly_succeeds_again_after_all_shards_are_full() {
    let mut served = 0;
    for _ in 0..4 {
        let (_parent, path) = directory();
        let settings = |shards| ServerSettings {
            native: "127.0.0.1:0".parse().unwrap(),
            resp: None,
            data_dir: Some(path.clone()),
            durability: skep_server::Durability::Second,
            memory: 8 << 20,
            ordered_memory: 0,
            kv_size: Some(64),
            shards,
            ..ServerSettings::default()
        };
        let fill = |server: &Server, size: usize| {
            let mut client = skep::Client::connect(server.native_address().to_string(), skep::HASH_SPACE).unwrap();
            let (value, mut refused, mut number) = (vec![7; size], 0, 0);
            while refused < 200 {
                let key = format!("{size} {number}").into_bytes();
                refused += u32::from(client.put(&key, &value).is_err());
                number += 1;
            }
        };
        let server = Server::start(&settings(1)).unwrap();
        fill(&server, 200_000);
        server.stop();
        // Other settings may be refused.
        let Ok(server) = Server::start(&settings(2)) else { continue };
        fill(&server, 190_000);
        fill(&server, 2000);
        server.stop();
        for start in 0..2 {
            Server::start(&settings(2)).unwrap_or_else(|error| panic!("start {start}: {error}")).stop();
        }
        served += 1;
    }
    assert!(served > 0);
}
