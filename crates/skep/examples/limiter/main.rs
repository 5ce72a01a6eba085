//! A rate limiter: a user function that takes tokens from a bucket, in the server (KV-Direct, section 3.2).
//!
//! ```text
//! cargo run --release --example limiter
//! ```
//!
//! Each user has a bucket of tokens, which fills at a constant rate up to its size. A request takes a token, or is refused if
//! there is none. All clients serve all users, as the front ends of a service do, and send the time with each request.
//!
//! ```text
//! value of a user   { tokens: u32, unused: u32, at: u64 }      16 bytes; `unused` counts the tokens that found the bucket full
//! ```
//!
//! The module `limiter` is loaded by `SKEP.FUNCTION LOAD`; then a request is one call, and its reply says whether it may pass.
//! Without functions, a client gets the bucket, computes the same, and sets it if it has not changed.
//!
//! Times of several clients arrive in any order, so the requests that pass depend on it. Tokens do not: those that were
//! taken, those that are left and those that found the bucket full are all that have flowed in.

#[path = "../application/mod.rs"]
mod application;
mod bucket;

use std::process::ExitCode;

use application::{CountingClient, Options, Target, WAYS, measure, on_threads, print_costs, unexpected};
use bucket::{BUCKET_SIZE, Bucket, SOURCE};
use clap::Parser;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use skep::functions::{Call, CallReply, FunctionHandle};
use skep::{HASH_SPACE, Operation, Reply, Request};

/// Limits the rate of requests with several clients of a Skep server.
#[derive(Parser)]
struct Arguments {
    /// Users, each with a bucket.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    users: u32,
    /// Requests of each client.
    #[arg(long, default_value_t = 200_000)]
    requests: u32,
    /// Requests that a client sends in one batch.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=16_384))]
    batch: u32,
    /// Requests of each client between two moments; then each user gets tokens.
    #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(u32).range(1..))]
    requests_per_moment: u32,
    /// Tokens that each user gets at each moment.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rate: u32,
    /// Tokens of a full bucket.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    size: u32,
    /// RESP address of the server that `--addr` names: the function is loaded there.
    #[arg(long, requires = "addr")]
    resp: Option<String>,
    #[command(flatten)]
    options: Options,
}

fn main() -> ExitCode {
    application::exit("limiter", run(&Arguments::parse()))
}

fn run(arguments: &Arguments) -> Result<(), String> {
    let target = Target::open(&arguments.options)?;
    let take = target.load_function(arguments.resp.as_deref(), SOURCE, "limiter.take")?;
    let limits = Limits { take, rate: arguments.rate, size: arguments.size };
    let mut clients = target.clients(&arguments.options, HASH_SPACE)?;
    let requests: Vec<Vec<Take>> = (0..clients.len()).map(|client| requests(arguments, client as u64)).collect();
    println!("{} users, {} requests of each of {} clients", arguments.users, arguments.requests, clients.len());
    let mut costs = Vec::new();
    for way in ["functions", "clients"] {
        let keys: Vec<_> = (0..arguments.users).map(|user| target.key(format!("{way}:{user}"))).collect();
        let (passed, cost) = measure(&mut clients, |clients| {
            on_threads(clients, |number, client| {
                let mut passed = vec![0; keys.len()];
                for batch in requests[number].chunks(arguments.batch as usize) {
                    match way {
                        "functions" => limits.take_by_function(client, &keys, batch, &mut passed)?,
                        _ => limits.take_by_client(client, &keys, batch, &mut passed)?,
                    }
                }
                Ok(passed)
            })
        })?;
        let total = limits.check(&mut clients[0], &keys, &passed, &requests)?;
        let count: usize = requests.iter().map(Vec::len).sum();
        let (rate, bytes) = (count as f64 / cost.seconds / 1e6, cost.bytes() as f64 / count as f64);
        println!(
            "{way}: {total} of {count} requests have passed; {rate:.3} million a second, {bytes:.0} bytes for each"
        );
        costs.push(cost);
    }
    println!("exact: each token of each user was taken, is left, or found the bucket full");
    print_costs(WAYS, [costs[0], costs[1]]);
    Ok(())
}

/// A request of a user.
#[derive(Clone, Copy, Debug)]
struct Take {
    user: usize,
    /// The time at which it is sent.
    now: u64,
}

/// Returns the requests of a client, each of a random user. The time passes as they are sent.
fn requests(arguments: &Arguments, seed: u64) -> Vec<Take> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let take = |number: u32| Take {
        user: random.random_range(0..arguments.users as usize),
        now: 1 + u64::from(number / arguments.requests_per_moment),
    };
    (0..arguments.requests).map(take).collect()
}

/// The limits of all users.
struct Limits {
    take: FunctionHandle,
    /// Tokens that flow in at each moment.
    rate: u32,
    /// Tokens of a full bucket.
    size: u32,
}

impl Limits {
    /// Calls the function for each request of a batch, and counts those that pass, by user.
    fn take_by_function(
        &self,
        client: &mut CountingClient,
        keys: &[Vec<u8>],
        batch: &[Take],
        passed: &mut [u64],
    ) -> Result<(), String> {
        let limits = [self.rate.to_le_bytes(), self.size.to_le_bytes()].concat();
        let operands: Vec<Vec<u8>> = batch.iter().map(|take| [&take.now.to_le_bytes(), &limits[..]].concat()).collect();
        let requests: Vec<Request<'_>> = batch
            .iter()
            .zip(&operands)
            .map(|(take, operands)| {
                let (vectors, initial) = (0, Some(&[0; BUCKET_SIZE][..]));
                let call = Call { function: self.take, vectors, operands, initial, reply: CallReply::Result };
                Request { key: &keys[take.user], operation: Operation::Call(call) }
            })
            .collect();
        client.execute(&requests, |index, reply| match reply {
            Reply::Value([passes @ 0..=1]) => {
                passed[batch[index].user] += u64::from(*passes);
                Ok(())
            }
            reply => Err(unexpected(reply)),
        })
    }

    /// Does the same without the function.
    fn take_by_client(
        &self,
        client: &mut CountingClient,
        keys: &[Vec<u8>],
        batch: &[Take],
        passed: &mut [u64],
    ) -> Result<(), String> {
        let mut passes = vec![false; batch.len()];
        let of_batch: Vec<&[u8]> = batch.iter().map(|take| &keys[take.user][..]).collect();
        client.get_compute_set(&of_batch, |index, old| {
            let mut bucket = old.map_or(Ok(Bucket::default()), Bucket::decode)?;
            passes[index] = bucket.take(batch[index].now, self.rate, self.size);
            Ok(bucket.encode())
        })?;
        batch.iter().zip(passes).for_each(|(take, passes)| passed[take.user] += u64::from(passes));
        Ok(())
    }

    /// Checks the buckets of all users against the requests that have passed, and deletes them. Returns the number of these
    /// requests.
    fn check(
        &self,
        client: &mut CountingClient,
        keys: &[Vec<u8>],
        passed: &[Vec<u64>],
        requests: &[Vec<Take>],
    ) -> Result<u64, String> {
        let mut last = vec![0; keys.len()];
        requests.iter().flatten().for_each(|take| last[take.user] = take.now.max(last[take.user]));
        let values = client.values(&keys.iter().map(Vec::as_slice).collect::<Vec<_>>())?;
        for (user, value) in values.iter().enumerate() {
            let bucket = value.as_deref().map_or(Ok(Bucket::default()), Bucket::decode)?;
            let taken = passed.iter().map(|of_client| of_client[user]).sum();
            bucket.check(taken, last[user], self.rate, self.size).map_err(|error| format!("user {user}: {error}"))?;
        }
        let found = keys.iter().zip(&values).filter(|(_, value)| value.is_some());
        application::delete(client, found.map(|(key, _)| key))?;
        Ok(passed.iter().flatten().sum())
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::{Arguments, run};

    #[test]
    fn each_token_is_taken_once() {
        for (clients, users) in [("1", "20"), ("4", "20"), ("4", "1")] {
            let settings = ["--requests", "2000", "--batch", "32", "--requests-per-moment", "100"];
            let arguments = ["limiter", "--clients", clients, "--users", users].into_iter().chain(settings);
            assert_eq!(run(&Arguments::parse_from(arguments)), Ok(()), "{clients} clients, {users} users");
        }
    }
}
