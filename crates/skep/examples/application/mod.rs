//! What the applications share: a server, a client that counts its traffic, and the comparison of two runs.
//!
//! An application does its job twice: by functions that run in the server, and by a client that gets a value, computes,
//! and writes it back. It checks both results, and prints the time and the traffic of both.

#![allow(dead_code, unused_imports, reason = "each application uses a part of it")]

mod client;
mod functions;

use std::process::ExitCode;
use std::thread;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use skep::functions::FunctionHandle;
use skep::{Client, Element, Operation, PutCondition, Request, Server, ServerSettings, Shape, Update, UpdateFunction};

pub(crate) use client::{CountingClient, Traffic, unexpected};

/// Ends an application: prints its error, if there is one.
pub(crate) fn exit(name: &str, result: Result<(), String>) -> ExitCode {
    let Err(message) = result else { return ExitCode::SUCCESS };
    eprintln!("{name}: {message}");
    ExitCode::FAILURE
}

/// The options that all applications have.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Options {
    /// Native address of a server [default: a server in this process].
    #[arg(long)]
    addr: Option<String>,
    /// Clients that work at the same time.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) clients: u16,
}

/// The server of an application, and the prefix of its keys.
pub(crate) struct Target {
    address: String,
    prefix: String,
    /// Stops when the application ends.
    server: Option<Server>,
}

impl Target {
    /// Starts a server, unless the options name one. Each run has keys of its own.
    pub(crate) fn open(options: &Options) -> Result<Target, String> {
        let server = match &options.addr {
            Some(_) => None,
            None => Some(Server::start(&settings()).map_err(|error| error.to_string())?),
        };
        let started = server.as_ref().map(|server| server.native_address().to_string());
        let address = started.or_else(|| options.addr.clone()).expect("one of both is there");
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
        Ok(Target { address, prefix: format!("run:{:x}:{now:x}:", std::process::id()), server })
    }

    /// Uses the server and the keys of another process.
    pub(crate) fn join(options: &Options, prefix: &str) -> Result<Target, String> {
        let address = options.addr.clone().ok_or("the server has no address")?;
        Ok(Target { address, prefix: prefix.to_owned(), server: None })
    }

    /// Returns the address of the server.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Returns the prefix of the keys.
    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Connects a client to a space.
    pub(crate) fn client(&self, space: u16) -> Result<CountingClient, String> {
        let client = Client::connect(self.address.as_str(), space).map_err(|error| {
            format!("{error}: start a server with `cargo run --release -- serve`, or leave out --addr")
        })?;
        Ok(CountingClient::new(client))
    }

    /// Connects as many clients as the options name.
    pub(crate) fn clients(&self, options: &Options, space: u16) -> Result<Vec<CountingClient>, String> {
        (0..options.clients).map(|_| self.client(space)).collect()
    }

    /// Loads a module of user functions, and returns the function of this name. `resp` is the RESP address of a server that
    /// the options name.
    pub(crate) fn load_function(&self, resp: Option<&str>, source: &str, name: &str) -> Result<FunctionHandle, String> {
        let own = self.server.as_ref().and_then(Server::resp_address).map(|address| address.to_string());
        let address = own.or_else(|| resp.map(str::to_owned));
        functions::load(&address.ok_or("name the RESP port of the server with --resp")?, source, name)
    }

    /// Returns a key of this run.
    pub(crate) fn key(&self, name: impl std::fmt::Display) -> Vec<u8> {
        format!("{}{name}", self.prefix).into_bytes()
    }
}

fn settings() -> ServerSettings {
    ServerSettings {
        native: "127.0.0.1:0".parse().expect("it is an address"),
        resp: Some("127.0.0.1:0".parse().expect("it is an address")),
        memory: 256 << 20,
        ..ServerSettings::default()
    }
}

/// Puts a value.
pub(crate) fn put(client: &mut CountingClient, key: &[u8], value: &[u8]) -> Result<(), String> {
    client.done(&[Request { key, operation: Operation::Put { value, condition: PutCondition::Always } }])
}

/// Deletes keys that exist.
pub(crate) fn delete<'k>(client: &mut CountingClient, keys: impl Iterator<Item = &'k Vec<u8>>) -> Result<(), String> {
    client.done(&keys.map(|key| Request { key, operation: Operation::Delete }).collect::<Vec<_>>())
}

/// Returns the update of a vector of numbers of eight bytes.
pub(crate) fn update(function: UpdateFunction, shape: Shape, operand: &[u8]) -> Operation<'_> {
    Operation::Update(Update { function, element: Element::U64, shape, operand, initial: None, return_old: false })
}

/// Returns the update of a number of eight bytes, which counts from zero and returns the old one if that is wanted.
pub(crate) fn fetch_add(delta: &[u8; 8], return_old: bool) -> Operation<'_> {
    Operation::Update(Update {
        function: UpdateFunction::Add,
        element: Element::U64,
        shape: Shape::ScalarToScalar,
        operand: delta,
        initial: Some(&[0; 8]),
        return_old,
    })
}

/// Returns the number that a value of eight bytes is.
pub(crate) fn number(value: &[u8]) -> Result<u64, String> {
    let bytes = value.try_into().map_err(|_| format!("a number has {} bytes", value.len()))?;
    Ok(u64::from_le_bytes(bytes))
}

/// Returns the bytes of a vector of numbers.
pub(crate) fn bytes_of(numbers: &[u64]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

/// Returns the numbers of a vector.
pub(crate) fn numbers_of(value: &[u8]) -> Vec<u64> {
    value.as_chunks().0.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect()
}

/// The time and the traffic of a job.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cost {
    pub(crate) seconds: f64,
    pub(crate) traffic: Traffic,
}

impl Cost {
    pub(crate) fn bytes(self) -> u64 {
        self.traffic.sent + self.traffic.received
    }
}

/// Runs a job with some clients, and measures it.
pub(crate) fn measure<T>(
    clients: &mut [CountingClient],
    job: impl FnOnce(&mut [CountingClient]) -> Result<T, String>,
) -> Result<(T, Cost), String> {
    clients.iter_mut().for_each(|client| client.traffic = Traffic::default());
    let begun = Instant::now();
    let result = job(clients)?;
    let seconds = begun.elapsed().as_secs_f64();
    let traffic = clients.iter().fold(Traffic::default(), |sum, client| Traffic {
        operations: sum.operations + client.traffic.operations,
        sent: sum.sent + client.traffic.sent,
        received: sum.received + client.traffic.received,
    });
    Ok((result, Cost { seconds, traffic }))
}

/// Runs a step of a job on a thread for each client. Returns the results in the order of the clients.
pub(crate) fn on_threads<T: Send>(
    clients: &mut [CountingClient],
    step: impl Fn(usize, &mut CountingClient) -> Result<T, String> + Sync,
) -> Result<Vec<T>, String> {
    let step = &step;
    thread::scope(|scope| {
        let threads: Vec<_> =
            clients.iter_mut().enumerate().map(|(index, client)| scope.spawn(move || step(index, client))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a thread does not panic")).collect()
    })
}

/// The names of the two ways in which most jobs are done.
pub(crate) const WAYS: [&str; 2] = ["functions in the server", "get, compute, set"];

/// Prints the costs of a job that was done in two ways.
pub(crate) fn print_costs(names: [&str; 2], costs: [Cost; 2]) {
    println!("{:<26}{:>10}{:>14}{:>16}{:>16}", "", "seconds", "operations", "bytes sent", "bytes received");
    for (name, cost) in names.iter().zip(costs) {
        let Traffic { operations, sent, received } = cost.traffic;
        println!("{name:<26}{:>10.3}{operations:>14}{sent:>16}{received:>16}", cost.seconds);
    }
    let [one, other] = costs;
    println!(
        "{} takes {:.1} times as long as {}, and {:.1} times as many bytes",
        names[1],
        other.seconds / one.seconds,
        names[0],
        other.bytes() as f64 / one.bytes() as f64
    );
}
