//! PageRank of Debian's packages: a package links to those on which it depends (KV-Direct, section 3.2).
//!
//! ```text
//! apt-cache dumpavail >packages.txt
//! cargo run --release --example pagerank -- packages.txt
//! ```
//!
//! Ranks are vectors of integers in the server, a block of packages for each key. In an iteration, each client gets the
//! ranks of its packages and computes what they give to others. Then the results of all clients are added:
//!
//! ```text
//!                                functions in the server               get, compute, write back
//! the result of a client         an update of a block: add a vector    get, add, compare and set; repeat
//! ranks of packages without      a reduce of their blocks: the sum     get their blocks
//!   dependencies
//! the share of all packages      an update: add one number to all      get the blocks, put them
//! ```
//!
//! Ranks are fractions of 2⁵⁶, so that sums do not depend on the order. Both results must be equal to a local one, number
//! by number. A test compares it with fractions.

#[path = "../application/mod.rs"]
mod application;
mod graph;

use std::ops::Range;
use std::path::PathBuf;
use std::process::ExitCode;

use application::{
    CountingClient, Options, Target, WAYS, bytes_of, measure, number, numbers_of, on_threads, print_costs, put, update,
};
use clap::Parser;
use graph::{Graph, WHOLE, local_ranks, part_of, share_of_all};
use skep::{Element, Fold, HASH_SPACE, Operation, Reduce, Request, Shape, StringRead, UpdateFunction};

/// Computes the PageRank of Debian's packages with vectors in a Skep server.
#[derive(Parser)]
struct Arguments {
    /// A file in the form of `apt-cache dumpavail`.
    packages: PathBuf,
    /// Iterations.
    #[arg(long, default_value_t = 20)]
    iterations: usize,
    /// Packages of a block.
    #[arg(long, default_value_t = 8192, value_parser = clap::value_parser!(u32).range(1..=131_072))]
    block: u32,
    #[command(flatten)]
    options: Options,
}

fn main() -> ExitCode {
    application::exit("pagerank", run(&Arguments::parse()))
}

fn run(arguments: &Arguments) -> Result<(), String> {
    let file = &arguments.packages;
    let bytes = std::fs::read(file).map_err(|error| format!("cannot read {}: {error}", file.display()))?;
    let graph = Graph::parse(&String::from_utf8_lossy(&bytes));
    if graph.names.is_empty() {
        return Err("the file names no packages: write one with `apt-cache dumpavail`".to_owned());
    }
    println!("{} packages, {} dependencies", graph.names.len(), graph.targets.len());
    let target = Target::open(&arguments.options)?;
    let mut clients = target.clients(&arguments.options, HASH_SPACE)?;
    let expected = local_ranks(&graph, arguments.iterations);
    let mut costs = Vec::new();
    for way in [Way::Functions, Way::Clients] {
        let job = Job::new(&graph, &target, arguments, way);
        job.begin(&mut clients[0])?;
        let (_, cost) = measure(&mut clients, |clients| job.iterate(clients))?;
        let ranks = job.ranks(&mut clients[0])?;
        if ranks != expected {
            return Err(format!("{way:?}: the ranks differ from those of a local computation"));
        }
        application::delete(&mut clients[0], job.keys.iter().flatten())?;
        let edges = (graph.targets.len() * arguments.iterations) as f64;
        println!("{way:?}: {:.1} million traversed edges a second", edges / cost.seconds / 1e6);
        costs.push(cost);
    }
    let mut top: Vec<_> = expected.iter().zip(&graph.names).collect();
    top.sort_unstable_by(|one, other| other.0.cmp(one.0).then(one.1.cmp(other.1)));
    for (rank, name) in top.iter().take(10) {
        println!("{:>10.6}  {name}", **rank as f64 / WHOLE as f64);
    }
    print_costs(WAYS, [costs[0], costs[1]]);
    println!("exact: both results are those of a local computation");
    Ok(())
}

/// The way in which the results of the clients are added.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    Functions,
    Clients,
}

struct Job<'g> {
    graph: &'g Graph,
    way: Way,
    iterations: usize,
    clients: usize,
    blocks: Vec<Range<usize>>,
    /// The keys of the blocks. The ranks of iteration `i` are at the keys `i % 2`, the next ones at the others.
    keys: [Vec<Vec<u8>>; 2],
}

impl<'g> Job<'g> {
    fn new(graph: &'g Graph, target: &Target, arguments: &Arguments, way: Way) -> Self {
        let blocks = graph.blocks(arguments.block as usize);
        let keys = |side| (0..blocks.len()).map(|block| target.key(format!("{way:?}:{side}:{block}"))).collect();
        let (keys, clients) = ([keys(0), keys(1)], usize::from(arguments.options.clients));
        Job { graph, way, iterations: arguments.iterations, clients, blocks, keys }
    }

    /// Returns the blocks of the packages that have dependencies, or of those that have none.
    fn blocks_of(&self, has_links: bool) -> impl Iterator<Item = usize> {
        let graph = self.graph;
        let is_one = move |block: &Range<usize>| graph.targets_of(block.start).is_empty() != has_links;
        self.blocks.iter().enumerate().filter(move |(_, block)| is_one(block)).map(|(number, _)| number)
    }

    /// Puts the first ranks, and zeros for the next ones.
    fn begin(&self, client: &mut CountingClient) -> Result<(), String> {
        for (keys, rank) in self.keys.iter().zip([WHOLE / self.graph.names.len() as u64, 0]) {
            for (key, block) in keys.iter().zip(&self.blocks) {
                put(client, key, &bytes_of(&vec![rank; block.len()]))?;
            }
        }
        Ok(())
    }

    fn ranks(&self, client: &mut CountingClient) -> Result<Vec<u64>, String> {
        let keys = &self.keys[self.iterations % 2];
        keys.iter()
            .try_fold(Vec::new(), |ranks, key| Ok([ranks, numbers_of(&client.value(key, Operation::Get)?)].concat()))
    }

    fn iterate(&self, clients: &mut [CountingClient]) -> Result<(), String> {
        for iteration in 0..self.iterations {
            let (ranks, next) = (&self.keys[iteration % 2], &self.keys[(iteration + 1) % 2]);
            on_threads(clients, |number, client| {
                let given = self.given_by(client, ranks, number)?;
                self.add(client, next, &given)
            })?;
            match self.way {
                Way::Functions => self.share_by_functions(&mut clients[0], ranks, next)?,
                Way::Clients => self.share_by_client(&mut clients[0], ranks, next)?,
            }
        }
        Ok(())
    }

    /// Returns what each package gets from those of a client, which has a part of each block.
    fn given_by(&self, client: &mut CountingClient, ranks: &[Vec<u8>], number: usize) -> Result<Vec<u64>, String> {
        let mut given = vec![0; self.graph.names.len()];
        for block in self.blocks_of(true) {
            let begin = self.blocks[block].start;
            let cut = |number| self.blocks[block].len() * number / self.clients;
            let part = cut(number)..cut(number + 1);
            if part.is_empty() {
                continue;
            }
            let slice = StringRead::Slice { start: 8 * part.start as i64, end: 8 * part.end as i64 - 1 };
            let found = numbers_of(&client.value(&ranks[block], Operation::StringRead(slice))?);
            for (package, rank) in part.zip(found) {
                let targets = self.graph.targets_of(begin + package);
                targets.iter().for_each(|to| given[*to as usize] += part_of(rank, targets.len()));
            }
        }
        Ok(given)
    }

    /// Adds what packages get to the next ranks, while other clients do so too.
    fn add(&self, client: &mut CountingClient, next: &[Vec<u8>], given: &[u64]) -> Result<(), String> {
        for (key, block) in next.iter().zip(&self.blocks) {
            let given = &given[block.clone()];
            match self.way {
                _ if given.iter().all(|number| *number == 0) => {}
                Way::Functions => {
                    let operand = bytes_of(given);
                    let operation = update(UpdateFunction::Add, Shape::VectorToVector, &operand);
                    client.done(&[Request { key, operation }])?;
                }
                Way::Clients => client.get_compute_set(&[key], |_, old| {
                    let old = numbers_of(old.unwrap_or_default());
                    Ok(bytes_of(&old.iter().zip(given).map(|(one, other)| one + other).collect::<Vec<_>>()))
                })?,
            }
        }
        Ok(())
    }

    /// Ends an iteration: adds the share of all packages, and sets the ranks of this iteration to zero.
    fn share_by_functions(
        &self,
        client: &mut CountingClient,
        ranks: &[Vec<u8>],
        next: &[Vec<u8>],
    ) -> Result<(), String> {
        let reduce = Reduce { fold: Fold::Sum, element: Element::U64, initial: &[0; 8], constants: &[] };
        let unlinked = self.blocks_of(false).try_fold(0, |sum, block| {
            Ok::<u64, String>(sum + number(&client.value(&ranks[block], Operation::Reduce(reduce))?)?)
        })?;
        let share = share_of_all(unlinked, self.graph.names.len()).to_le_bytes();
        let request =
            |key, function, operand| Request { key, operation: update(function, Shape::ScalarToVector, operand) };
        let shares = next.iter().map(|key| request(key, UpdateFunction::Add, &share[..]));
        let zeros = ranks.iter().map(|key| request(key, UpdateFunction::Swap, &[0; 8][..]));
        client.done(&shares.chain(zeros).collect::<Vec<_>>())
    }

    /// Does the same without functions.
    fn share_by_client(&self, client: &mut CountingClient, ranks: &[Vec<u8>], next: &[Vec<u8>]) -> Result<(), String> {
        let unlinked = self.blocks_of(false).try_fold(0, |sum, block| {
            Ok::<u64, String>(sum + numbers_of(&client.value(&ranks[block], Operation::Get)?).iter().sum::<u64>())
        })?;
        let share = share_of_all(unlinked, self.graph.names.len());
        for (block, key) in next.iter().enumerate() {
            let old = numbers_of(&client.value(key, Operation::Get)?);
            put(client, key, &bytes_of(&old.iter().map(|rank| rank + share).collect::<Vec<_>>()))?;
            put(client, &ranks[block], &bytes_of(&vec![0; old.len()]))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::{Arguments, run};
    use crate::graph::tests::packages;

    #[test]
    fn ranks_are_exact_with_blocks_of_any_size() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&file, packages()).unwrap();
        for (block, clients) in [("1000", "3"), ("131072", "1"), ("64", "4")] {
            let path = file.path().to_str().unwrap();
            let settings = ["pagerank", path, "--block", block, "--clients", clients, "--iterations", "5"];
            assert_eq!(run(&Arguments::parse_from(settings)), Ok(()), "blocks of {block}");
        }
    }
}
