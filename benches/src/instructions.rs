//! Instructions of one operation of a store or a whole server, counted by callgrind. The load of the machine does not
//! change the count of a store. That of a server differs by some per cent, with the number of requests in a turn.
//!
//! ```text
//! valgrind ─▶ this program, few batches   ─▶ instructions a ┐
//! valgrind ─▶ this program, more batches  ─▶ instructions b ┴─▶ (b − a) / operations between them
//! ```
//!
//! 1. `count` starts the program under valgrind twice for each case. Both runs prepare the same store and the same
//!    batches, and execute different numbers of them.
//! 2. The difference is what `Processor::execute` or `Cache::execute` takes, or the puts of a session of the ordered store,
//!    and nothing else. Of a server, only the turns of its shard are counted.

mod cache;
mod ordered;
mod server;

use std::path::Path;
use std::process::Command;

use comfy_table::Table;
use skep_core::function::{Element, UpdateFunction};
use skep_core::operation::{Operation, PutCondition, Reply, Request, Shape, Update};
use skep_measure::Progress;
use skep_store::hash::Settings;
use skep_store::processor::{Processor, Replies};

use crate::keys::random_key;
use crate::tables::{Tables, table};

/// Operations of a batch.
const BATCH: usize = 256;
/// Pairs in the store before the first batch.
const PAIRS: u64 = 100_000;
/// Batches of the two runs.
const BATCHES: [usize; 2] = [60, 180];

/// Value sizes, and what a pair of them is stored as.
const VALUES: [(usize, &str); 2] = [(8, "8 + 8 B, inline"), (100, "8 + 100 B, slab")];
/// Names of the operations on the hash store, as they are given to the program under valgrind.
const OPERATIONS: [&str; 9] =
    ["get", "put", "fetch-add", "vector-update", "put-new", "delete", "mixed", "get-one-key", "fetch-add-one-key"];
/// One of this many operations of `mixed` is a put to an existing key. The others are gets.
const MIXED_PUT: usize = 8;

/// About how many seconds a run under valgrind takes.
const RUN_SECONDS: f64 = 4.0;

/// The case of a run under valgrind; without it, all cases are counted.
#[derive(clap::Args, Clone, Debug)]
pub struct Plan {
    /// Run this operation once, as it is run under valgrind: get, put, fetch-add, vector-update, put-new, delete, mixed,
    /// get-one-key or fetch-add-one-key of the hash store, ordered-put or ordered-put-batch of the ordered store;
    /// cache-get, cache-put, cache-fetch-add, cache-put-new or cache-delete of a cache; native-get, native-put, resp-get,
    /// resp-set, memcached-get or memcached-set of a server.
    #[arg(long, requires_all = ["value_size", "batches"])]
    case: Option<String>,
    /// Bytes of its values: 8 or 100, 16 or 100 for the ordered store.
    #[arg(long)]
    value_size: Option<usize>,
    /// Batches to execute.
    #[arg(long)]
    batches: Option<usize>,
    /// Print a line for each case: operation, bytes of a value, instructions.
    #[arg(long)]
    csv: bool,
}

/// Counts all cases, or runs one. Returns the text to print.
pub fn run(plan: &Plan, progress: &Progress) -> Result<String, String> {
    let Plan { case: Some(operation), value_size: Some(value_size), batches: Some(batches), .. } = plan else {
        let program =
            std::env::current_exe().map_err(|error| format!("this program does not know its path: {error}"))?;
        let counts = count(&program, progress)?;
        let line = |(case, count): &(Case, f64)| format!("{},{},{count:.1}", case.operation, case.value_size);
        return Ok(match plan.csv {
            true => counts.iter().map(line).collect::<Vec<_>>().join("\n"),
            false => tables(&counts).text(),
        });
    };
    // Only what the case does is counted.
    progress.hide();
    let case = Case::named(operation, *value_size);
    let case = case.ok_or_else(|| format!("there is no case {operation} with values of {value_size} bytes"))?;
    Ok(format!("{:x}", case.run(PAIRS, BATCHES[1], *batches)))
}

/// What is counted: an operation on pairs of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    /// For the hash store one of `get`, `put`, `fetch-add`, `vector-update`, `put-new`, `delete` and `mixed`; or `get-one-key`
    /// and `fetch-add-one-key`, whose operations are all on one key. For the ordered store `ordered-put` or
    /// `ordered-put-batch`. For a cache `cache-get` or another name of `OPERATIONS` in `instructions/cache.rs`. For a
    /// server, one of `instructions/server.rs`.
    pub operation: &'static str,
    /// Bytes of a value, the most if there are several sizes.
    pub value_size: usize,
}

impl Case {
    /// Returns the case with these names, as the program under valgrind gets them.
    pub fn named(operation: &str, value_size: usize) -> Option<Case> {
        Case::all().find(|case| case.operation == operation && case.value_size == value_size)
    }

    /// Returns all cases.
    pub fn all() -> impl Iterator<Item = Case> {
        Case::of_store(&OPERATIONS, VALUES)
            .chain(Case::of_store(&ordered::OPERATIONS, ordered::VALUES))
            .chain(Case::of_store(&cache::OPERATIONS, cache::SIZES))
            .chain(Case::of_store(&server::OPERATIONS, server::SIZES))
    }

    /// Returns the cases of one store.
    fn of_store(operations: &'static [&'static str], values: [(usize, &'static str); 2]) -> impl Iterator<Item = Case> {
        let case = move |index: usize| Case {
            operation: operations[index % operations.len()],
            value_size: values[index / operations.len()].0,
        };
        (0..values.len() * operations.len()).map(case)
    }

    /// Fills a store, prepares `batches_max` batches and executes the first `batches` of them. Returns a hash of the replies.
    pub fn run(self, pairs: u64, batches_max: usize, batches: usize) -> u64 {
        if ordered::OPERATIONS.contains(&self.operation) {
            return ordered::run(self, pairs, batches_max, batches);
        }
        if cache::OPERATIONS.contains(&self.operation) {
            return cache::run(self, pairs, batches_max, batches);
        }
        if self.is_of_server() {
            return server::run(self, pairs, batches);
        }
        let memory = (pairs + (batches_max * BATCH) as u64) * 4 * (8 + self.value_size as u64);
        let settings = Settings::for_kv_size(memory.max(1 << 20), 8 + self.value_size, 7);
        let mut processor = Processor::new(&settings).expect("a store of some megabytes");
        let mut replies = Replies::with_budget(1 << 20);
        let value: Vec<u8> = (0..self.value_size).map(|byte| byte as u8).collect();
        let put = Operation::Put { value: &value, condition: PutCondition::Always };
        let keys: Vec<[u8; 8]> = (0..pairs + (batches_max * BATCH) as u64).map(random_key).collect();
        let (stored, new) = keys.split_at(pairs as usize);
        for keys in stored.chunks(BATCH) {
            let puts: Vec<_> = keys.iter().map(|key| Request { key, operation: put }).collect();
            processor.execute(&puts, &mut replies);
        }
        let operation = match self.operation {
            "get" | "get-one-key" => Operation::Get,
            "fetch-add" | "fetch-add-one-key" => Operation::Update(self.fetch_add()),
            "vector-update" => Operation::Update(Update {
                shape: Shape::ScalarToVector,
                element: Element::U32,
                operand: &[1, 0, 0, 0],
                return_old: false,
                ..self.fetch_add()
            }),
            "delete" => Operation::Delete,
            _ => put,
        };
        // Coprime to the number of stored pairs, so that no pair is deleted twice.
        const STEP: usize = 7919;
        let key = |number: usize| match self.operation {
            "put-new" => &new[number],
            "get-one-key" | "fetch-add-one-key" => &stored[0],
            _ => &stored[number * STEP % stored.len()],
        };
        let operation = |number: usize| match self.operation {
            "mixed" if !number.is_multiple_of(MIXED_PUT) => Operation::Get,
            _ => operation,
        };
        let requests: Vec<Request<'_>> =
            (0..batches_max * BATCH).map(|number| Request { key: key(number), operation: operation(number) }).collect();
        let mut hash = 0;
        for batch in requests.chunks(BATCH).take(batches) {
            processor.execute(batch, &mut replies);
            hash = fold(hash, replies.get(hash as usize % BATCH));
        }
        hash ^ processor.statistics().pairs
    }

    fn is_of_server(self) -> bool {
        server::OPERATIONS.contains(&self.operation)
    }

    /// Returns the operations of a batch.
    fn batch(self) -> usize {
        if self.is_of_server() { server::batch(self.operation) } else { BATCH }
    }

    /// Returns an update that adds one to every element: one of 64 bits if it is the whole value, or elements of 32 bits.
    fn fetch_add(self) -> Update<'static> {
        let (element, shape, operand): (_, _, &[u8]) = match self.value_size {
            8 => (Element::U64, Shape::ScalarToScalar, &[1, 0, 0, 0, 0, 0, 0, 0]),
            _ => (Element::U32, Shape::ScalarToVector, &[1, 0, 0, 0]),
        };
        Update { function: UpdateFunction::Add, element, shape, operand, initial: None, return_old: true }
    }
}

/// Takes a reply into a hash. Little work, which is counted too: one reply of a batch.
fn fold(hash: u64, reply: Reply<'_>) -> u64 {
    let number = match reply {
        Reply::Value(value) => rapidhash::v3::rapidhash_v3(value),
        Reply::Done => 1,
        Reply::NotFound => 2,
        _ => 3,
    };
    (hash ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
}

/// Counts the instructions of an operation of every case. `program` runs one if it is called with `instructions --case
/// OPERATION --value-size BYTES --batches NUMBER`.
fn count(program: &Path, progress: &Progress) -> Result<Vec<(Case, f64)>, String> {
    let seconds = BATCHES.len() as f64 * RUN_SECONDS;
    progress.expect(Case::all().count() as f64 * seconds);
    let per_operation = |case: Case| {
        progress.begin(format!("{}, values of {} B", case.operation, case.value_size), seconds);
        let [few, more] = BATCHES.map(|batches| collected(program, case, batches));
        Ok((case, (more? - few?) as f64 / ((BATCHES[1] - BATCHES[0]) * case.batch()) as f64))
    };
    Case::all().map(per_operation).collect()
}

/// Runs a case under valgrind. Returns the instructions of the process, or of the turns of its server.
fn collected(program: &Path, case: Case, batches: usize) -> Result<u64, String> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .args(case.is_of_server().then(|| format!("--toggle-collect={}", server::COUNTED)))
        .arg(program)
        .args(["instructions", "--case", case.operation, "--value-size", &case.value_size.to_string()])
        .args(["--batches", &batches.to_string()])
        .output()
        .map_err(|error| format!("cannot start valgrind: {error}; install it: apt-get install valgrind"))?;
    let text = String::from_utf8_lossy(&output.stderr);
    let instructions = instructions_of(&text).filter(|_| output.status.success());
    instructions.ok_or_else(|| format!("valgrind counted nothing ({}):\n{text}", output.status))
}

/// Returns the number after `Collected :` in what callgrind prints.
fn instructions_of(text: &str) -> Option<u64> {
    let (_, after) = text.lines().find_map(|line| line.split_once("Collected :"))?;
    after.trim().parse().ok()
}

/// Returns the counts as a table: a row for each operation, a column for each size of pairs.
fn tables(counts: &[(Case, f64)]) -> Tables {
    let note = format!(
        "Batches of {BATCH} in a store of {PAIRS} pairs; fetch-add on 100 B adds to 25 elements, vector-update to 2 or 25. \
         Of mixed operations, one of {MIXED_PUT} is a put, the others are gets. Puts of the ordered \
         store are to existing keys, one at a time and {} at a time. Of servers: without the kernel, native in batches of {}, the others in pipelines of {}.",
        ordered::PUT_BATCH,
        server::batch("native-get"),
        server::batch("resp-get"),
    );
    Tables {
        tables: vec![
            of_store(&OPERATIONS, VALUES, counts),
            of_store(&ordered::OPERATIONS, ordered::VALUES, counts),
            of_store(&cache::OPERATIONS, cache::SIZES, counts),
            of_store(&server::OPERATIONS, server::SIZES, counts),
        ],
        note,
    }
}

/// Returns the table of the operations of one store.
fn of_store(operations: &[&str], values: [(usize, &str); 2], counts: &[(Case, f64)]) -> Table {
    let cell = |(_, count): &(Case, f64)| format!("{count:.1}");
    let row = |operation: &&str| {
        let own = counts.iter().filter(|(case, _)| case.operation == *operation);
        std::iter::once((*operation).to_owned()).chain(own.map(cell)).collect()
    };
    table(&["instructions of an operation", values[0].1, values[1].1], 1, operations.iter().map(row))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_does_its_work() {
        let hashes: Vec<u64> = Case::all().map(|case| case.run(1000, 2, 2)).collect();
        let (reads_8, reads_100) = (13_544_993_261_705_030_461, 18_246_856_378_247_184_570);
        let (done, put_new, deleted) = (97_241_829_719_769_032, 97_241_829_719_767_496, 97_241_829_719_768_520);
        // If no key comes twice, the old value of a fetch-and-add is the one that a GET reads.
        let cases = |read, mixed, added| [read, done, read, done, put_new, deleted, mixed, read, added];
        let of_8 = cases(reads_8, 11_810_254_168_192_694_796, 4_852_098_177_572_127_825);
        let of_100 = cases(reads_100, 16_039_308_696_318_666_214, 17_961_079_692_511_998_104);
        let hash_store = [of_8, of_100].concat();
        assert_eq!(hashes[..hash_store.len()], hash_store);
        let (ordered_store, rest) = hashes[hash_store.len()..].split_at(4);
        let (caches, servers) = rest.split_at(10);
        assert_eq!(ordered_store, [1000; 4], "all pairs of the ordered store are still there");
        // The replies and the number of pairs are those of the hash store, which has updates of vectors besides.
        let of_cache = |hashes: &[u64]| [hashes[0], hashes[1], hashes[2], hashes[4], hashes[5]];
        assert_eq!(caches, [of_cache(&of_8), of_cache(&of_100)].concat());
        let replies = server::OPERATIONS.map(|operation| 2 * server::batch(operation) as u64);
        assert_eq!(servers, [replies, replies].concat());
    }

    #[test]
    fn the_count_is_read_from_what_callgrind_prints() {
        let text = "==7== Events    : Ir\n==7== Collected : 72148775\n==7==\n";
        assert_eq!(instructions_of(text), Some(72_148_775));
        assert_eq!(instructions_of("==7== Collected :"), None);
    }
}
