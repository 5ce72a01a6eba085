//! Crashes in the simulation of transfers: a server with a log ends at some step, and what was on disk then is recovered
//! into stores of another number of shards.
//!
//! Each transfer also counts, in the same transaction. After the crash all accounts of a space have the same sum as
//! before, because a transaction is in the log as a whole or not at all, and the count of each client is at least the
//! number of transfers that it knows of. Snapshots are taken meanwhile, in steps between the turns of the shards. If one
//! was complete, recovery begins with it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use skep_core::operation::{Operation, Reply, Request};
use skep_log::{Block, BlockView, Boundary, Chunk, Manifest, ManifestShard, Pages, SnapshotPart};
use skep_store::naive::seeds;
use skep_store::ordered::OrderedStore;
use skep_store::processor::{Processor, Replies};
use skep_wire::partition::Partition;

use super::transfers::{ACCOUNTS, BALANCE, Client, Outcome, account, connect, turns};
use crate::durability::recovery::simulated::{Recovering, Rule};
use crate::durability::tasks::Piece;
use crate::durability::{Log, Patience};
use crate::limits::TICK;
use crate::settings::ServerSettings;
use crate::shard::driven::{Driven, driven_shards};
use crate::shared::Shared;
use crate::start::Steps;
use crate::unix_time::{SharedClock, read_clocks};
use crate::vocabulary::{Durability, Reached};

const STEPS_MAX: u64 = 4000;

/// A snapshot that is being taken, or is complete.
#[derive(Default)]
struct Snapshot {
    /// The first block that is not in all of it.
    first_block: u64,
    chunks: Vec<(SnapshotPart, Pages)>,
    ends: usize,
    reached: Reached,
}

/// The disk of a server: blocks, and complete snapshots.
#[derive(Default)]
struct Disk {
    blocks: Vec<Block>,
    taking: Option<Snapshot>,
    complete: Option<Snapshot>,
    snapshots: usize,
}

impl Disk {
    fn reached(&self) -> Reached {
        let floor = self.blocks.iter().map(Block::floor).max().unwrap_or(0);
        Reached { block: self.blocks.len() as u64, version: floor.saturating_sub(1) }
    }

    /// Writes what has arrived.
    fn flush(&mut self, log: &Log) {
        self.blocks.extend(log.take());
        log.set_durable(self.reached());
    }

    /// Begins a snapshot, takes its parts, or completes it: it has the ordered space and these shards.
    fn keep(&mut self, log: &Log, shards: usize, random: &mut Xoshiro256PlusPlus) {
        for piece in log.tasks.take_pieces() {
            let taking = self.taking.as_mut().expect("shards walk for a snapshot");
            match piece {
                Piece::Chunk { part, pages, .. } => taking.chunks.push((part, pages)),
                Piece::End { reached, .. } => {
                    taking.ends += 1;
                    taking.reached.block = taking.reached.block.max(reached.block);
                    taking.reached.version = taking.reached.version.max(reached.version);
                }
            }
        }
        let reached = self.reached();
        if let Some(taking) = self.taking.take_if(|taking| taking.ends == shards + 1 && reached.covers(taking.reached))
        {
            log.snapshots.end(true, 0);
            self.complete = Some(taking);
            self.snapshots += 1;
        }
        if self.taking.is_none() && random.random_ratio(1, 200) {
            let number = self.snapshots as u64 + 1;
            self.taking = Some(Snapshot { first_block: log.sealed() + 1, ..Snapshot::default() });
            log.snapshots.begin(number);
        }
    }
}

/// Runs the simulation of a seed up to a crash. Returns the number of transfers that were acknowledged, and whether the
/// recovery began with a snapshot.
fn crash(seed: u64, level: Durability, rule: Rule) -> Result<(usize, bool), String> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let shard_count = random.random_range(1..=4);
    let memory = u64::from(shard_count) * (1 << 20);
    let settings = ServerSettings {
        shards: shard_count,
        memory,
        ordered_memory: 8 << 20,
        connections_max: 100,
        ..Default::default()
    };
    let log = Arc::new(Log::new(level, Reached::default(), Patience::ENDLESS));
    let ordered = settings.ordered(seed).map(|settings| OrderedStore::new(&settings).expect("there is memory"));
    let shared =
        Arc::new(Shared::new(settings, ordered, Some(log.clone()), seed, 1, SharedClock::new(read_clocks(), 0)));
    let mut now = Instant::now();
    let mut shards = driven_shards(&shared, now, &mut Steps::default()).expect("there is memory");
    let mut clients: Vec<Client> =
        (0..random.random_range(2..12)).map(|number| connect(number, &shared, &shards, now, &mut random)).collect();
    let (mut disk, mut outcome) = (Disk::default(), Outcome::default());
    // Small numbers are slow disks.
    let flush_ratio = random.random_range(2..300);
    for step in 0..random.random_range(1..STEPS_MAX) {
        now += Duration::from_micros(random.random_range(1..20));
        for client in &mut clients {
            client.act(now, false, &mut random, &mut outcome).map_err(|error| format!("step {step}: {error}"))?;
        }
        if !turns(&mut shards, &mut now, &mut random) && random.random_ratio(1, 4) {
            now += TICK;
        }
        for shard in &mut shards {
            let steps = random.random_range(0..20);
            (0..steps).for_each(|_| shard.walk());
        }
        disk.keep(&log, usize::from(shard_count), &mut random);
        // A part of a command that is not done must not be on disk.
        let has_begun = shards.iter().any(Driven::has_begun);
        if random.random_ratio(1, if has_begun { 2 } else { flush_ratio }) {
            disk.flush(&log);
            if has_begun && random.random_ratio(1, 20) {
                break;
            }
        }
    }
    let begins_with_snapshot = disk.complete.is_some();
    let mut recovered = Recovered::new(&shared, shard_count, random.random_range(1..=4), &disk, rule);
    for space in 0..2 {
        let balances: Vec<_> = (0..ACCOUNTS).filter_map(|index| recovered.number(space, &account(index))).collect();
        if !balances.is_empty() && (balances.len(), balances.iter().sum()) != (ACCOUNTS, ACCOUNTS as i64 * BALANCE) {
            return Err(format!("after the crash, space {space}: {balances:?}"));
        }
    }
    for client in &clients {
        let count = recovered.number(client.space, &format!("client:{}", client.number)).unwrap_or(0);
        let (number, acknowledged) = (client.number, client.acknowledged as i64);
        if !(acknowledged..=acknowledged + 1).contains(&count) {
            return Err(format!("client {number} knows of {acknowledged} transfers, {count} were recovered"));
        }
    }
    Ok((clients.iter().map(|client| client.acknowledged).sum(), begins_with_snapshot))
}

/// Stores that were recovered.
struct Recovered {
    stores: Vec<Processor>,
    ordered: OrderedStore,
    partition: Partition,
    replies: Replies,
}

impl Recovered {
    /// Recovers what was written by `shards_before` shards into `shards` others.
    fn new(shared: &Shared, shards_before: u16, shards: u16, disk: &Disk, rule: Rule) -> Recovered {
        let settings = ServerSettings { memory: u64::from(shards) * (4 << 20), shards, ..shared.settings.clone() };
        let of_shard = |shard: u16| Processor::new(&settings.store(77 + u64::from(shard))).expect("there is memory");
        let mut stores: Vec<Processor> = (0..shards).map(of_shard).collect();
        let ordered_settings = settings.ordered(3).expect("it has memory");
        let ordered = OrderedStore::new(&ordered_settings).expect("there is memory");
        let seeds = (0..shards_before).map(|shard| shared.settings.store(u64::from(shard)).seed);
        let before = Manifest {
            partition_seed: shared.partition_seed,
            shards: seeds.map(|secret_seed| ManifestShard { secret_seed, ..Default::default() }).collect(),
            ..Manifest::default()
        };
        let partition = Partition::new(shared.partition_seed, shards);
        let mut recovering = Recovering::new(stores.iter_mut().collect(), &ordered, partition, rule);
        let mut boundaries = vec![Boundary::default(); usize::from(shards_before)];
        let mut first_block = 1;
        if let Some(snapshot) = &disk.complete {
            first_block = snapshot.first_block;
            for (part, pages) in &snapshot.chunks {
                let chunk = Chunk::decode(pages.bytes()).expect("it was just written");
                if let SnapshotPart::Shard(shard) = part {
                    let boundary = &mut boundaries[usize::from(*shard)];
                    assert!(chunk.steps().all(|step| boundary.push(&step)), "steps end at positions");
                }
                recovering.load(*part, chunk);
            }
        }
        let blocks = disk.blocks.iter().zip(1..).skip(first_block as usize - 1);
        let views = blocks.map(|(block, number)| BlockView::decode(number, block.bytes()).expect("it is valid").0);
        let views: Vec<BlockView<'_>> = views.collect();
        recovering.replay(&before, boundaries, &views);
        Recovered { stores, ordered, partition, replies: Replies::with_budget(1 << 20) }
    }

    fn number(&mut self, space: u8, key: &str) -> Option<i64> {
        let mut value = Vec::new();
        if space == 1 {
            let mut session = self.ordered.session().expect("there is one");
            return session.get(key.as_bytes(), &mut value).then(|| parse(&value));
        }
        let store = &mut self.stores[usize::from(self.partition.shard_of(key.as_bytes()))];
        store.execute(&[Request { key: key.as_bytes(), operation: Operation::Get }], &mut self.replies);
        match self.replies.get(0) {
            Reply::Value(text) => Some(parse(text)),
            _ => None,
        }
    }
}

fn parse(text: &[u8]) -> i64 {
    std::str::from_utf8(text).unwrap().parse().unwrap()
}

#[test]
fn nothing_acknowledged_is_lost_in_a_crash() {
    let (mut acknowledged, mut with_snapshot) = (0, 0);
    for seed in seeds(&(1..=400).collect::<Vec<_>>()) {
        let crash = crash(seed, Durability::Always, Rule::Boundary);
        let (count, begins_with_snapshot) = crash.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        acknowledged += count;
        with_snapshot += usize::from(begins_with_snapshot);
    }
    println!("{acknowledged} transfers, {with_snapshot} recoveries with a snapshot");
    assert!(acknowledged > 1000 && with_snapshot > 50 || std::env::var("SKEP_SEED").is_ok());
}

#[test]
fn replies_that_leave_before_the_disk_has_them_are_found() {
    let lost = (1..=200).filter(|seed| crash(*seed, Durability::Second, Rule::Boundary).is_err()).count();
    assert!(lost > 10, "{lost} of 200 runs have lost something");
}

#[test]
fn a_recovery_that_applies_all_blocks_to_a_snapshot_is_found() {
    let wrong = (1..=100).filter(|seed| crash(*seed, Durability::Always, Rule::AllBlocks).is_err()).count();
    assert!(wrong > 5, "{wrong} of 100 runs were wrong");
}
