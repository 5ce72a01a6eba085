//! `skep bench vectors`: KV-Direct's Table 2 (section 5.1.5) on this machine. Measures how many bytes of vectors a client
//! increments in a second, by updates in the store and by the alternatives, and in a redis-server if one is named.
//!
//! For each size there are few vectors, which stay in the caches, and many, which do not. The store in this process and
//! a server of one shard hold the same vectors, and other stores hold the same data with one key per element. In each
//! round all ways take turns, each after a warm-up.

mod corpus;
mod redis_way;
mod report;
mod way;

use std::io::{self, Write};

use skep::limits::VALUE_SIZE_MAX;
use skep_measure::{Effort, Figure, Progress, Rounds, Row, SPREAD_MAX, VectorSpeed, VectorsReport, machine, size_text};

use self::corpus::{Corpus, Order};
use self::redis_way::{Redis, RedisWay};
use self::way::{ELEMENT_SIZE, Vectors, WAYS, Way};
use super::interrupt;
use crate::failure::Failure;
use crate::local_server::Cores;
use crate::size::MemorySize;

/// Measures ways to change vectors.
#[derive(clap::Args, Debug)]
pub(crate) struct Arguments {
    /// Bytes of a vector, multiples of 64; several numbers are separated by commas [default: 64 to 1048576].
    #[arg(long, value_name = "BYTES,BYTES…", value_delimiter = ',', default_values_t = SIZES, hide_default_value = true, value_parser = size)]
    sizes: Vec<usize>,
    /// How the client reaches the store: process, shm, udp, tcp; several are separated by commas.
    #[arg(
        long,
        value_name = "NAME,NAME…",
        value_delimiter = ',',
        default_value = "process,shm,tcp",
        hide_possible_values = true
    )]
    over: Vec<Over>,
    /// Measure a redis-server too. The run sets keys that begin with `bench:vectors:`, and deletes them.
    #[arg(long, value_name = "HOST:PORT", value_parser = crate::cli::address)]
    redis: Option<String>,
    /// Bytes of all vectors of one size that are out of cache.
    #[arg(long, value_name = "SIZE", default_value_t = MemorySize(64 << 20))]
    memory: MemorySize,
    /// Bytes of all vectors of one size that are in cache, or one vector if it is larger.
    #[arg(long, value_name = "SIZE", default_value_t = MemorySize(256 << 10))]
    cached: MemorySize,
    #[command(flatten)]
    effort: Effort,
    /// Print one line of JSON instead of tables.
    #[arg(long, conflicts_with = "csv")]
    json: bool,
    /// Print CSV instead of tables.
    #[arg(long)]
    csv: bool,
}

/// Sizes of vectors.
const SIZES: [usize; 8] = [64, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20];
/// The unit of sizes: a turn of the loop of the Lua script.
const SIZE_UNIT: usize = 64;
/// The most vectors in a batch, and the most bytes of them.
const BATCH: usize = 256;
const BATCH_SIZE: usize = 1 << 20;
/// About how many seconds a load takes for each byte, with one key for each element in several stores.
const BYTE_SECONDS: f64 = 1e-7;

/// How a client reaches a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Over {
    // Plain comments, as in `Distribution`.
    // The store is in this process.
    Process,
    // Shared memory.
    Shm,
    // Sessions over UDP.
    Udp,
    Tcp,
}

impl Over {
    /// Returns the transport, if there is one.
    fn transport(self) -> Option<&'static str> {
        match self {
            Over::Process => None,
            Over::Shm => Some("shm"),
            Over::Udp => Some("udp"),
            Over::Tcp => Some("tcp"),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Over::Process => "in process",
            Over::Shm => "shared memory",
            Over::Udp => "UDP",
            Over::Tcp => "TCP",
        }
    }
}

/// A side of the comparison.
#[derive(Clone, Copy, Debug)]
enum Side {
    Skep {
        /// Index among the arguments.
        over: usize,
        way: Way,
    },
    Redis(RedisWay),
}

/// Vectors of one size: those in cache and those out of it.
struct Sized {
    size: usize,
    vectors: [Vectors; 2],
    sides: Vec<Side>,
}

/// Measures and prints.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    if arguments.redis.is_some() {
        interrupt::watch("the run deletes its keys; a second signal ends it at once, and leaves them in the server");
    }
    let progress = Progress::shown();
    let report = measure(arguments, &progress)?;
    drop(progress);
    let text = match (arguments.json, arguments.csv) {
        (true, _) => report::json(&report),
        (_, true) => report::csv(&report),
        _ => report::tables(&report),
    };
    writeln!(io::stdout(), "{text}")?;
    Ok(())
}

/// Measures all sizes. Pins this thread to the core of the client.
fn measure(arguments: &Arguments, progress: &Progress) -> Result<VectorsReport, Failure> {
    let cores = Cores::divide(1)?;
    cores.pin_client(0)?;
    let mut redis = arguments.redis.as_deref().map(Redis::connect).transpose()?;
    let mut report = VectorsReport {
        skep: env!("CARGO_PKG_VERSION").to_owned(),
        machine: machine(),
        cached: arguments.cached.0,
        memory: arguments.memory.0,
        batch: BATCH as u64,
        batch_size: BATCH_SIZE as u64,
        rounds: arguments.effort.rounds as u64,
        spread_max: SPREAD_MAX,
        are_apart: cores.are_apart(),
        in_cache: Vec::new(),
        out_of_cache: Vec::new(),
        published: report::published(),
    };
    let load_seconds = arguments.memory.0 as f64 * BYTE_SECONDS;
    for size in &arguments.sizes {
        progress.expect(load_seconds + rounds(arguments, *size).expected_seconds());
    }
    for size in &arguments.sizes {
        progress.begin(format!("loading vectors of {}", size_text(*size as u64)), load_seconds);
        let mut sized = Sized::new(arguments, &cores, *size)?;
        // Before the first keys of this size.
        if let Some(interrupted) = interrupt::failure("") {
            return Err(interrupted);
        }
        let outcome = sized.measure(arguments, redis.as_mut(), progress, &mut report);
        let unloaded = redis.as_mut().map_or(Ok(()), |redis| redis.unload(sized.count()));
        outcome.and(unloaded)?;
    }
    Ok(report)
}

/// Returns the rounds of a size: a row for each of the vectors in cache and out of it.
fn rounds(arguments: &Arguments, size: usize) -> Rounds {
    let side_count = sides(arguments, size).len();
    let row = |place: &str| Row::new(format!("{} {place}", size_text(size as u64)), side_count);
    Rounds::new(arguments.effort, vec![row("in cache"), row("out of cache")])
}

fn sides(arguments: &Arguments, size: usize) -> Vec<Side> {
    let skep = (0..arguments.over.len()).flat_map(|over| WAYS.map(|way| Side::Skep { over, way }));
    let redis = if arguments.redis.is_some() { RedisWay::of_size(size) } else { &[] };
    skep.chain(redis.iter().map(|way| Side::Redis(*way))).collect()
}

impl Sized {
    /// Loads the stores with vectors of this size.
    fn new(arguments: &Arguments, cores: &Cores, size: usize) -> Result<Sized, Failure> {
        let one = 1_f32.to_le_bytes();
        let vectors = |memory: MemorySize| {
            let count = usize::try_from(memory.0).map_or(1, |memory| (memory / size).max(1));
            let corpus = |value: &[u8], count| Corpus::new(cores, &arguments.over, value, count);
            Ok::<_, Failure>(Vectors {
                whole: corpus(&one.repeat(size / ELEMENT_SIZE), count)?,
                elements: corpus(&one, count * size / ELEMENT_SIZE)?,
                order: Order::new(count, (BATCH_SIZE / size).clamp(1, BATCH)),
            })
        };
        let vectors = [vectors(arguments.cached)?, vectors(arguments.memory)?];
        Ok(Sized { size, vectors, sides: sides(arguments, size) })
    }

    /// Returns the number of vectors that a redis-server has: those that are in cache are among the others.
    fn count(&self) -> usize {
        self.vectors.iter().map(|vectors| vectors.order.count()).max().unwrap_or(0)
    }

    /// Measures all sides, and adds their speeds to the report.
    fn measure(
        &mut self,
        arguments: &Arguments,
        mut redis: Option<&mut Redis>,
        progress: &Progress,
        report: &mut VectorsReport,
    ) -> Result<(), Failure> {
        if let Some(redis) = &mut redis {
            redis.load(self.size, self.count())?;
        }
        let samples = rounds(arguments, self.size).run(progress, |turn| {
            if let Some(interrupted) = interrupt::failure("") {
                return Err(interrupted);
            }
            let vectors = &mut self.vectors[turn.row];
            turn.rate(|at_least| match (self.sides[turn.side], &mut redis) {
                (Side::Skep { over, way }, _) => way.run(vectors, over, at_least),
                (Side::Redis(way), Some(redis)) => redis.run(way, &mut vectors.order, at_least),
                (Side::Redis(_), None) => unreachable!("a run without Redis has no such side"),
            })
        })?;
        for (lines, of_row) in [&mut report.in_cache, &mut report.out_of_cache].into_iter().zip(&samples) {
            for (side, rates) in self.sides.iter().zip(of_row) {
                let speed = VectorSpeed { size: self.size as u64, bytes_per_s: Figure::of(rates) };
                let (over, way) = match side {
                    Side::Skep { over, way } => (arguments.over[*over].name(), way.name()),
                    Side::Redis(way) => ("redis-server", way.name()),
                };
                report::add(lines, over, way, speed);
            }
        }
        Ok(())
    }
}

fn size(text: &str) -> Result<usize, String> {
    let size = text.parse().ok().filter(|size: &usize| size.is_multiple_of(SIZE_UNIT));
    size.filter(|size| (SIZE_UNIT..=VALUE_SIZE_MAX).contains(size))
        .ok_or_else(|| format!("write a multiple of {SIZE_UNIT}, up to {VALUE_SIZE_MAX}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser as _;

    #[derive(clap::Parser)]
    struct Program {
        #[command(flatten)]
        arguments: Arguments,
    }

    fn arguments(words: &str) -> Arguments {
        let tiny = "vectors --memory 32KiB --cached 8KiB --rounds 1 --milliseconds 1";
        Program::parse_from(tiny.split(' ').chain(words.split(' '))).arguments
    }

    /// Runs in a thread of its own, because a measurement pins it.
    fn in_a_thread(test: impl FnOnce() + Send + 'static) {
        std::thread::spawn(test).join().expect("the test passes");
    }

    #[test]
    fn each_way_changes_vectors_alike() {
        in_a_thread(|| {
            let arguments = arguments("--sizes 64,8192 --over process,shm,udp,tcp");
            let cores = Cores::divide(1).unwrap();
            for size in &arguments.sizes {
                let mut sized = Sized::new(&arguments, &cores, *size).unwrap();
                for vectors in &mut sized.vectors {
                    check(&arguments, vectors);
                }
            }
        });
    }

    /// Changes all vectors once by each way, and compares every element with the number of changes. All transports
    /// reach the same server.
    fn check(arguments: &Arguments, vectors: &mut Vectors) {
        let mut counts = [[1.0; 2]; 2];
        let all = vectors.order.count() * vectors.whole.value_size;
        for (over, way) in arguments.over.iter().enumerate().flat_map(|(over, _)| WAYS.map(|way| (over, way))) {
            let mut changed = 0;
            while changed < all {
                changed += way.step(vectors, over).unwrap().operations;
            }
            assert_eq!(changed, all, "a batch does not wrap around");
            let is_remote = usize::from(arguments.over[over].transport().is_some());
            counts[is_remote][usize::from(way == Way::Elements)] += 1.0;
            let [whole, element] = counts[is_remote];
            for (corpus, number) in [(&mut vectors.whole, whole), (&mut vectors.elements, element)] {
                let value = f32::to_le_bytes(number).repeat(corpus.value_size / ELEMENT_SIZE);
                for index in 0..all / corpus.value_size {
                    let key = corpus::key(index);
                    let get = skep::Request { key: &key, operation: skep::Operation::Get };
                    corpus.execute(over, &[get]).unwrap();
                    assert_eq!(corpus.value(over, 0), Some(&value[..]), "{way:?} {over} {index}");
                }
            }
        }
    }

    #[test]
    fn a_report_has_all_ways() {
        in_a_thread(|| {
            let arguments = arguments("--sizes 64,1024 --over process,tcp");
            let report = measure(&arguments, &Progress::hidden()).unwrap();
            let (tables, csv) = (report::tables(&report), report::csv(&report));
            for lines in [&report.in_cache, &report.out_of_cache] {
                assert_eq!(lines.len(), 2 * WAYS.len());
                assert!(lines.iter().all(|line| line.speeds.len() == 2 && tables.contains(&line.way)), "{tables}");
            }
            assert_eq!(csv.lines().count(), 1 + 2 * 2 * WAYS.len() * 2 + 20, "{csv}");
            assert!(
                csv.contains("\nKV-Direct's Table 2,KV-Direct's card,\"fetch to client\",1024,0.4600,0.000"),
                "{csv}"
            );
        });
    }

    #[test]
    fn a_size_that_no_way_can_change_is_refused() {
        for text in ["0", "100", "2097152", "1KiB"] {
            assert_eq!(size(text), Err("write a multiple of 64, up to 1048576".to_owned()));
        }
        assert_eq!((size("64"), size("1048576")), (Ok(64), Ok(VALUE_SIZE_MAX)));
    }
}
