//! The graph of packages, and its ranks computed in this process.

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;

/// Packages and their dependencies. Those without any are last.
pub(crate) struct Graph {
    pub(crate) names: Vec<String>,
    /// The dependencies of package `p` are `targets[starts[p]..starts[p + 1]]`.
    starts: Vec<usize>,
    pub(crate) targets: Vec<u32>,
}

impl Graph {
    /// Reads the fields `Package`, `Depends` and `Pre-Depends`. All alternatives of a dependency count.
    pub(crate) fn parse(text: &str) -> Graph {
        let mut packages: Vec<(&str, BTreeSet<&str>)> = Vec::new();
        let mut numbers: HashMap<&str, usize> = HashMap::new();
        let mut current = None;
        for (name, value) in text.lines().filter_map(|line| line.split_once(": ")) {
            if name == "Package" {
                let number = *numbers.entry(value).or_insert(packages.len());
                if number == packages.len() {
                    packages.push((value, BTreeSet::new()));
                }
                current = Some(number);
            } else if let (Some(current), "Depends" | "Pre-Depends") = (current, name) {
                let named = value.split([',', '|']).filter_map(|one| one.trim().split([' ', ':', '(']).next());
                packages[current].1.extend(named);
            }
        }
        for (name, dependencies) in &mut packages {
            dependencies.retain(|other| other != name && numbers.contains_key(other));
        }
        packages.sort_by_key(|(_, dependencies)| dependencies.is_empty());
        let numbers: HashMap<&str, u32> = packages.iter().zip(0..).map(|((name, _), number)| (*name, number)).collect();
        let (mut starts, mut targets) = (vec![0], Vec::new());
        for (_, dependencies) in &packages {
            targets.extend(dependencies.iter().map(|name| numbers[name]));
            starts.push(targets.len());
        }
        Graph { names: packages.iter().map(|(name, _)| (*name).to_owned()).collect(), starts, targets }
    }

    /// Returns the dependencies of a package.
    pub(crate) fn targets_of(&self, package: usize) -> &[u32] {
        &self.targets[self.starts[package]..self.starts[package + 1]]
    }

    /// Divides the packages into blocks. No block has packages with dependencies and others without.
    pub(crate) fn blocks(&self, size: usize) -> Vec<Range<usize>> {
        let count = self.names.len();
        let linked = (0..count).take_while(|package| !self.targets_of(*package).is_empty()).count();
        let cut = |all: Range<usize>| all.clone().step_by(size).map(move |first| first..all.end.min(first + size));
        cut(0..linked).chain(cut(linked..count)).collect()
    }
}

/// The sum of all ranks.
pub(crate) const WHOLE: u64 = 1 << 56;

/// Returns the part of 85 % of a rank that each of some packages gets.
pub(crate) fn part_of(rank: u64, packages: usize) -> u64 {
    rank * 85 / (100 * packages as u64)
}

/// Returns what each of all packages gets, given the sum of the ranks of those without dependencies.
pub(crate) fn share_of_all(unlinked: u64, packages: usize) -> u64 {
    WHOLE * 15 / 100 / packages as u64 + part_of(unlinked, packages)
}

/// Computes the ranks in this process.
pub(crate) fn local_ranks(graph: &Graph, iterations: usize) -> Vec<u64> {
    let count = graph.names.len();
    let mut ranks = vec![WHOLE / count as u64; count];
    for _ in 0..iterations {
        let (mut next, mut unlinked) = (vec![0; count], 0);
        for (package, rank) in ranks.iter().enumerate() {
            match graph.targets_of(package) {
                [] => unlinked += rank,
                targets => targets.iter().for_each(|to| next[*to as usize] += part_of(*rank, targets.len())),
            }
        }
        next.iter_mut().for_each(|rank| *rank += share_of_all(unlinked, count));
        ranks = next;
    }
    ranks
}

#[cfg(test)]
pub(crate) mod tests {
    use super::{Graph, WHOLE, local_ranks};

    /// Returns packages with up to four dependencies; some have none, or name packages that do not exist.
    pub(crate) fn packages() -> String {
        let package = |number: u64| {
            let depends = (0..number % 5).map(|which| format!("p{} (>= 1) | p{which}", number * (which + 7) % 3_100));
            let depends = depends.collect::<Vec<_>>().join(", ");
            format!("Package: p{number}\nDepends: {depends}\nDescription: of {number}\n continued: p1\n\n")
        };
        (0..3_000).map(package).collect()
    }

    #[test]
    fn integers_differ_little_from_fractions() {
        let graph = Graph::parse(&packages());
        let count = graph.names.len();
        let mut ranks = vec![1.0 / count as f64; count];
        for _ in 0..20 {
            let unlinked: f64 = (0..count).filter(|of| graph.targets_of(*of).is_empty()).map(|of| ranks[of]).sum();
            let mut next = vec![(0.15 + 0.85 * unlinked) / count as f64; count];
            for (package, rank) in ranks.iter().enumerate() {
                let targets = graph.targets_of(package);
                targets.iter().for_each(|to| next[*to as usize] += 0.85 * rank / targets.len() as f64);
            }
            ranks = next;
        }
        let greatest = ranks.iter().fold(0.0_f64, |one, other| one.max(*other));
        for (rank, integer) in ranks.iter().zip(local_ranks(&graph, 20)) {
            assert!((rank - integer as f64 / WHOLE as f64).abs() < greatest / 1e6);
        }
        assert!((ranks.iter().sum::<f64>() - 1.0).abs() < 1e-9);
    }
}
