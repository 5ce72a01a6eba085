//! Sparse logistic regression with a parameter server and several worker processes (KV-Direct, section 3.2).
//!
//! ```text
//! pip download --no-deps scikit-learn
//! unzip -p scikit_learn*.whl sklearn/datasets/data/breast_cancer.csv >breast_cancer.csv
//! cargo run --release --example regression -- breast_cancer.csv
//! ```
//!
//! The last column of a row is its label. Each other column is divided into 16 intervals, which have a weight each, so a
//! row has one weight of each column. The weights of a column are a vector in the server. A worker takes some rows, gets
//! the weights, computes the gradient, and adds it to the weights, while others do so too:
//!
//! ```text
//! functions in the server     one update for each column: adds the vector
//! get, compute, write back    get the vector, add, set it if it has not changed; repeat
//! ```
//!
//! Weights are integers, in parts of 2⁻³², so that sums are exact. At the end the weights must be the sum of all gradients
//! of all workers: no update was lost. A fifth of the rows is not trained, and their labels are predicted. The share of
//! right ones may be at most 5 % below that of one worker in this process.

#[path = "../application/mod.rs"]
mod application;
mod data;

use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use application::{
    Cost, CountingClient, Options, Target, Traffic, WAYS, bytes_of, measure, numbers_of, on_threads, print_costs, put,
    update,
};
use clap::Parser;
use data::{BINS, Data};
use skep::{HASH_SPACE, Request, Shape, UpdateFunction};

/// Trains a logistic regression with weights in a Skep server.
#[derive(Parser, Clone, Debug)]
struct Arguments {
    /// A file of numbers in rows, separated by commas; other lines are left out.
    data: PathBuf,
    /// The label that is predicted, against all others.
    #[arg(long, default_value_t = 1.0)]
    label: f64,
    /// How often each row is trained.
    #[arg(long, default_value_t = 50)]
    epochs: usize,
    /// Rows of a gradient.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..))]
    rows: u16,
    /// Run the workers as threads of this process.
    #[arg(long)]
    threads: bool,
    /// The number of this worker process, its way, and the prefix of the keys.
    #[arg(long, hide = true, num_args = 3)]
    worker: Option<Vec<String>>,
    #[command(flatten)]
    options: Options,
}

fn main() -> ExitCode {
    application::exit("regression", run(&Arguments::parse()))
}

fn run(arguments: &Arguments) -> Result<(), String> {
    let text = std::fs::read_to_string(&arguments.data)
        .map_err(|error| format!("cannot read {}: {error}", arguments.data.display()))?;
    let data = Data::parse(&text, arguments.label)?;
    if let Some(worker) = &arguments.worker {
        return work(arguments, worker, &data);
    }
    println!("{} rows of {} columns, {} workers", data.rows.len(), data.columns, arguments.options.clients);
    let target = Target::open(&arguments.options)?;
    let mut client = target.client(HASH_SPACE)?;
    let mut local = vec![0; data.columns * BINS];
    for _ in 0..arguments.epochs {
        for rows in data.trained(0, 1).chunks(usize::from(arguments.rows)) {
            let gradient = data.gradient(rows, &local);
            local.iter_mut().zip(gradient).for_each(|(weight, step)| *weight = u64::wrapping_add(*weight, step));
        }
    }
    let wanted = data.share_of_right(&local) - 0.05;
    let mut costs = Vec::new();
    for way in [Way::Functions, Way::Clients] {
        let keys = keys(&target, way, data.columns);
        keys.iter().try_for_each(|key| put(&mut client, key, &[0; 8 * BINS]))?;
        let (steps, cost) = match arguments.threads {
            true => measure(&mut target.clients(&arguments.options, HASH_SPACE)?, |clients| {
                on_threads(clients, |number, client| train(client, &keys, arguments, &data, number, way))
            })?,
            false => start_workers(arguments, &target, way)?,
        };
        let mut sum = vec![0; data.columns * BINS];
        steps.iter().for_each(|steps| add(&mut sum, steps));
        let weights = weights(&mut client, &keys)?;
        if weights != sum {
            return Err(format!("{way:?}: an update of the weights was lost"));
        }
        let right = data.share_of_right(&weights);
        println!(
            "{way:?}: the weights are the sum of all gradients; {:.1} % of the other rows are right",
            100.0 * right
        );
        if right < wanted {
            return Err(format!("{way:?}: one worker in this process has {:.1} % and more", 100.0 * wanted));
        }
        application::delete(&mut client, keys.iter())?;
        costs.push(cost);
    }
    print_costs(WAYS, [costs[0], costs[1]]);
    Ok(())
}

/// The way in which a gradient is added.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    Functions,
    Clients,
}

fn keys(target: &Target, way: Way, columns: usize) -> Vec<Vec<u8>> {
    (0..columns).map(|column| target.key(format!("{way:?}:{column}"))).collect()
}

/// Starts a process for each worker. Returns the sum of the gradients of each, and what all of them cost.
fn start_workers(arguments: &Arguments, target: &Target, way: Way) -> Result<(Vec<Vec<u64>>, Cost), String> {
    let begun = Instant::now();
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let start = |number: u16| {
        Command::new(&program)
            .arg(&arguments.data)
            .args(["--addr", target.address(), "--label", &arguments.label.to_string()])
            .args(["--epochs", &arguments.epochs.to_string(), "--rows", &arguments.rows.to_string()])
            .args(["--clients", &arguments.options.clients.to_string()])
            .args(["--worker", &number.to_string(), &format!("{way:?}"), target.prefix()])
            .stdout(Stdio::piped())
            .spawn()
    };
    let workers: Result<Vec<_>, _> = (0..arguments.options.clients).map(start).collect();
    let (mut steps, mut traffic) = (Vec::new(), Traffic::default());
    for worker in workers.map_err(|error| format!("a worker does not start: {error}"))? {
        let output = worker.wait_with_output().map_err(|error| error.to_string())?;
        let text = String::from_utf8_lossy(&output.stdout);
        let numbers: Vec<u64> = text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        let [operations, sent, received, of_worker @ ..] = &numbers[..] else {
            return Err(format!("a worker has failed: {}", output.status));
        };
        traffic.operations += operations;
        traffic.sent += sent;
        traffic.received += received;
        steps.push(of_worker.to_vec());
    }
    Ok((steps, Cost { seconds: begun.elapsed().as_secs_f64(), traffic }))
}

/// Does the work of a worker process, and prints its traffic and the sum of its gradients.
fn work(arguments: &Arguments, worker: &[String], data: &Data) -> Result<(), String> {
    let number = worker[0].parse().map_err(|_| "a worker has a number")?;
    let way = if worker[1] == "Functions" { Way::Functions } else { Way::Clients };
    let target = Target::join(&arguments.options, &worker[2])?;
    let mut client = target.client(HASH_SPACE)?;
    let steps = train(&mut client, &keys(&target, way, data.columns), arguments, data, number, way)?;
    let Traffic { operations, sent, received } = client.traffic;
    let numbers: Vec<String> = [operations, sent, received].iter().chain(&steps).map(u64::to_string).collect();
    println!("{}", numbers.join(" "));
    Ok(())
}

/// Trains the rows of a worker. Returns the sum of its gradients.
fn train(
    client: &mut CountingClient,
    keys: &[Vec<u8>],
    arguments: &Arguments,
    data: &Data,
    number: usize,
    way: Way,
) -> Result<Vec<u64>, String> {
    let rows = data.trained(number, usize::from(arguments.options.clients));
    let mut sum = vec![0; data.columns * BINS];
    for _ in 0..arguments.epochs {
        for rows in rows.chunks(usize::from(arguments.rows)) {
            let weights = weights(client, keys)?;
            let gradient = data.gradient(rows, &weights);
            match way {
                Way::Functions => add_by_functions(client, keys, &gradient)?,
                Way::Clients => add_by_client(client, keys, &gradient)?,
            }
            add(&mut sum, &gradient);
        }
    }
    Ok(sum)
}

fn add(sum: &mut [u64], numbers: &[u64]) {
    sum.iter_mut().zip(numbers).for_each(|(sum, number)| *sum = sum.wrapping_add(*number));
}

/// Gets the weights of all columns.
fn weights(client: &mut CountingClient, keys: &[Vec<u8>]) -> Result<Vec<u64>, String> {
    let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let vectors = client.values(&keys)?;
    Ok(vectors.iter().flat_map(|vector| numbers_of(vector.as_deref().unwrap_or_default())).collect())
}

fn add_by_functions(client: &mut CountingClient, keys: &[Vec<u8>], gradient: &[u64]) -> Result<(), String> {
    let operands: Vec<_> = gradient.chunks(BINS).map(bytes_of).collect();
    let operation = |operand| update(UpdateFunction::Add, Shape::VectorToVector, operand);
    let requests = keys.iter().zip(&operands).map(|(key, operand)| Request { key, operation: operation(operand) });
    client.done(&requests.collect::<Vec<_>>())
}

fn add_by_client(client: &mut CountingClient, keys: &[Vec<u8>], gradient: &[u64]) -> Result<(), String> {
    let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    client.get_compute_set(&keys, |column, old| {
        let mut weights = numbers_of(old.unwrap_or_default());
        add(&mut weights, &gradient[column * BINS..(column + 1) * BINS]);
        Ok(bytes_of(&weights))
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::{Arguments, run};
    use crate::data::tests::rows;

    #[test]
    fn workers_lose_no_update() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), rows()).unwrap();
        for clients in ["1", "4"] {
            let path = file.path().to_str().unwrap();
            let settings = ["regression", path, "--threads", "--clients", clients, "--epochs", "20"];
            assert_eq!(run(&Arguments::parse_from(settings)), Ok(()), "{clients} clients");
        }
    }
}
