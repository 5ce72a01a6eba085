//! The checks of a guest: clients over RDMA against a server at the address in `SKEP_RDMA`, whose RESP port is in
//! `SKEP_RESP`. `SKEP_ADDITIONS` is the number of additions of each client.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use skep_client::{
    Client, ClientSettings, Element, HASH_SPACE, ORDERED_SPACE, Operation, Password, Reply, Request, Responses, Shape,
    Update, UpdateFunction,
};
use skep_store::naive::{EXPIRIES_END, Generator, GeneratorSettings, Mix, NaiveStore, OwnedRequest};

/// The time after which a check gives up.
const WATCHDOG: Duration = Duration::from_secs(120);
/// Clients that add at the same time.
const ADDERS: u64 = 3;

/// Returns true in a guest. The checks do nothing elsewhere: they need the server of the job.
fn is_in_guest() -> bool {
    let is_in_guest = std::env::var_os("SKEP_RDMA").is_some();
    if !is_in_guest {
        println!("skipped: it runs in the guests");
    }
    is_in_guest
}

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is set in a guest"))
}

fn connect(space: u16) -> Client {
    let settings = ClientSettings { password: Password::new(b"secret"), reply_timeout: WATCHDOG, ..Default::default() };
    let address = format!("rdma:{}", variable("SKEP_RDMA"));
    let begun = Instant::now();
    loop {
        match Client::connect_with(address.as_str(), space, &settings) {
            Ok(client) => return client,
            // The server is about to start.
            Err(error) => assert!(begun.elapsed() < WATCHDOG, "{error}"),
        }
        thread::sleep(Duration::from_millis(50));
    }
}

/// Sends RESP commands, and returns the text of their replies.
fn ask(commands: &str) -> String {
    let mut stream = TcpStream::connect(variable("SKEP_RESP")).unwrap();
    stream.write_all(format!("AUTH secret\r\n{commands}\r\nQUIT\r\n").as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

/// Returns a number of `INFO`.
fn number(section: &str, name: &str) -> u64 {
    let text = ask(&format!("INFO {section}"));
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("no {name}: {text}")).trim().parse().unwrap()
}

fn wait_until(condition: impl Fn() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < WATCHDOG, "the condition does not hold after {WATCHDOG:?}");
        thread::sleep(Duration::from_millis(10));
    }
}

fn agrees_with_the_naive_store(space: u16, seed: u64) {
    let mut client = connect(space);
    let mut naive = NaiveStore::new();
    naive.set_now(EXPIRIES_END);
    let mut responses = Responses::new();
    let settings =
        GeneratorSettings { seed, key_count: 300, invalid_per_mille: 50, mix: Mix::built_in(), ..Default::default() };
    let mut generator = Generator::new(settings);
    for batch_size in [1, 2, 3, 700, 0, 1, 1500, 30] {
        let owned: Vec<OwnedRequest> = generator.by_ref().take(batch_size).collect();
        let requests: Vec<_> = owned.iter().map(OwnedRequest::as_request).collect();
        client.execute(&requests, &mut responses).unwrap();
        for (index, (request, response)) in requests.iter().zip(responses.iter()).enumerate() {
            let checked = naive.check(request, response.expect("the space exists"));
            assert_eq!(checked, Ok(()), "request {index} of {batch_size}: {request:?}");
        }
    }
    assert_eq!(client.reconnection_count(), 0);
}

#[test]
fn all_operations_agree_with_the_naive_store() {
    if !is_in_guest() {
        return;
    }
    agrees_with_the_naive_store(HASH_SPACE, 1);
    agrees_with_the_naive_store(ORDERED_SPACE, 2);
}

#[test]
fn large_values_arrive() {
    if !is_in_guest() {
        return;
    }
    let mut client = connect(ORDERED_SPACE);
    for size in [1, 900, 976, 977, 1100, 100_000, 1_000_000] {
        let value: Vec<u8> = (0..size).map(|index| (index * 7 % 251) as u8).collect();
        client.put(b"large", &value).unwrap();
        assert!(client.get(b"large").unwrap() == Some(value), "{size} bytes");
    }
}

/// An addition to a counter that begins with 0, and returns its value before.
const ADD: Operation<'_> = Operation::Update(Update {
    function: UpdateFunction::Add,
    element: Element::U64,
    shape: Shape::ScalarToScalar,
    operand: &1_u64.to_le_bytes(),
    initial: Some(&0_u64.to_le_bytes()),
    return_old: true,
});

fn counter(client: &mut Client, key: &[u8]) -> u64 {
    client.get(key).unwrap().map_or(0, |value| u64::from_le_bytes(value.try_into().unwrap()))
}

/// Adds `count` times to a counter of its own and to one of all. Checks that its own additions take effect in their
/// order.
fn add(own: &str, all: &str, count: u64) {
    let mut client = connect(HASH_SPACE);
    let mut responses = Responses::new();
    let mut done = 0;
    for size in [1, 50, 7, 200, 20].into_iter().cycle() {
        let size = (count - done).min(size);
        let requests: Vec<_> = (0..2 * size)
            .map(|index| Request { key: [own, all][index as usize % 2].as_bytes(), operation: ADD })
            .collect();
        client.execute(&requests, &mut responses).unwrap();
        for response in responses.iter().step_by(2) {
            // The first addition returns the value that it began with.
            assert_eq!(response, Ok(Reply::Value(&done.to_le_bytes())));
            done += 1;
        }
        if done == count {
            assert_eq!(client.reconnection_count(), 0);
            return;
        }
    }
}

#[test]
fn additions_happen_exactly_once() {
    if !is_in_guest() {
        return;
    }
    let count = variable("SKEP_ADDITIONS").parse().unwrap();
    let name = format!("sum {}", std::process::id());
    thread::scope(|scope| {
        for index in 0..ADDERS {
            let name = &name;
            scope.spawn(move || add(&format!("{name} of {index}"), name, count));
        }
    });
    let mut client = connect(HASH_SPACE);
    assert_eq!(counter(&mut client, name.as_bytes()), ADDERS * count);
    println!("{} additions, the sum is exact", ADDERS * count);
}

/// Adds until [`a_killed_client_harms_no_other`] kills it.
#[test]
fn endless() {
    if !is_in_guest() {
        return;
    }
    let mut client = connect(HASH_SPACE);
    let mut responses = Responses::new();
    let requests = [Request { key: b"endless", operation: ADD }; 500];
    loop {
        client.execute(&requests, &mut responses).unwrap();
    }
}

/// Starts a client that never ends.
fn spawn_endless() -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["guest::endless", "--exact"]).stdout(Stdio::null()).spawn().unwrap()
}

#[test]
fn a_killed_client_harms_no_other() {
    if !is_in_guest() {
        return;
    }
    let mut client = connect(HASH_SPACE);
    for _ in 0..5 {
        let before = counter(&mut client, b"endless");
        let mut victim = spawn_endless();
        while counter(&mut client, b"endless") < before + 1000 {}
        victim.kill().unwrap();
        victim.wait().unwrap();
        // Each client has a connection to each of the two shards.
        wait_until(|| number("clients", "connected_clients") == 3);
    }
    assert_eq!(client.reconnection_count(), 0);
}

/// Returns the hundredths of a second for which a process has used a processor.
fn ticks(process: &str) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    // The name of the program may have blanks; it ends with the last parenthesis.
    let fields: Vec<&str> = text.rsplit(')').next().unwrap().split_whitespace().collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

#[test]
fn an_idle_client_costs_nothing_and_wakes_the_server() {
    if !is_in_guest() {
        return;
    }
    let server = variable("SKEP_SERVER");
    let mut client = connect(HASH_SPACE);
    for round in 0..3_u8 {
        client.put(b"idle", &[round]).unwrap();
        assert_eq!(client.get(b"idle").unwrap(), Some(vec![round]));
        thread::sleep(Duration::from_millis(500));
        let before = ticks(&server);
        thread::sleep(Duration::from_secs(2));
        let used = ticks(&server) - before;
        // A shard that polls would use 200 of them.
        assert!(used < 20, "the idle server used {used} hundredths of a second in 2 s");
    }
    assert_eq!(client.reconnection_count(), 0);
}

#[test]
fn the_server_has_repeated_packets() {
    if !is_in_guest() {
        return;
    }
    println!(
        "{}",
        ask("INFO stats").lines().filter(|line| line.starts_with("skep_rdma")).collect::<Vec<_>>().join("\n")
    );
    let of = |name| number("stats", name);
    assert!(of("skep_rdma_packets_repeated") > 0 && of("skep_rdma_dropped_duplicate") > 0);
}

#[test]
fn stop_the_server() {
    if !is_in_guest() {
        return;
    }
    ask("SHUTDOWN NOSAVE");
}
