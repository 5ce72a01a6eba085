//! Runs a server and its clients in two network namespaces, joined by a link that really loses packets: nftables drops
//! 1 % of them in each direction. Needs root, `ip` and `nft`.
//!
//! `SKEP_LONG` multiplies the additions: 10⁵ without it.

mod full_run;
#[path = "program/process.rs"]
#[expect(dead_code, reason = "the tests of the program use the other functions")]
mod process;

use std::process::{Command, Output};
use std::{env, fs, thread};

use full_run::is_full_run;
use process::{Server, text};
use skep::{
    Client, ClientSettings, Element, HASH_SPACE, Operation, Password, Reply, Request, Responses, Shape, Update,
    UpdateFunction,
};

/// The address of the server, for the process in the namespace of the clients.
const ADDRESS: &str = "SKEP_TEST_LOSSY_ADDRESS";
/// The number of additions, for the same process.
const ADDITIONS: &str = "SKEP_TEST_LOSSY_ADDITIONS";
const PASSWORD: &str = "of the two namespaces";
/// Packets in a hundred that are lost in each direction.
const LOSS: u32 = 1;
const CLIENTS: u64 = 4;

/// Two namespaces with a link between them.
struct Namespaces {
    server: String,
    clients: String,
}

impl Namespaces {
    fn new() -> Namespaces {
        let id = std::process::id();
        let namespaces = Namespaces { server: format!("skep-{id}-s"), clients: format!("skep-{id}-c") };
        let Namespaces { server, clients } = &namespaces;
        run(&format!("ip netns add {server}"));
        run(&format!("ip netns add {clients}"));
        run(&format!("ip link add skeps{id} netns {server} type veth peer name skepc{id} netns {clients}"));
        for (namespace, link, address) in [(server, "skeps", "10.99.0.1"), (clients, "skepc", "10.99.0.2")] {
            run(&format!("ip -n {namespace} address add {address}/24 dev {link}{id}"));
            run(&format!("ip -n {namespace} link set {link}{id} up"));
            run(&format!("ip -n {namespace} link set lo up"));
        }
        namespaces
    }

    /// Lets both directions lose packets.
    fn lose(&self) {
        for namespace in [&self.server, &self.clients] {
            let nft = format!("ip netns exec {namespace} nft");
            run(&format!("{nft} add table inet loss"));
            run(&format!("{nft} add chain inet loss input {{ type filter hook input priority 0 ; }}"));
            run(&format!("{nft} add rule inet loss input udp length > 0 numgen random mod 100 < {LOSS} counter drop"));
        }
    }

    /// Returns the packets that each direction has lost.
    fn lost(&self) -> [u64; 2] {
        [&self.server, &self.clients].map(|namespace| {
            let rules = text(&run(&format!("ip netns exec {namespace} nft list chain inet loss input")).stdout);
            let (_, after) = rules.split_once("counter packets ").expect("the rule counts");
            after.split_whitespace().next().and_then(|count| count.parse().ok()).expect("a number of packets")
        })
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        for namespace in [&self.server, &self.clients] {
            _ = Command::new("ip").args(["netns", "delete", namespace]).status();
        }
    }
}

/// Runs a command whose words have no blanks, and which must succeed.
fn run(line: &str) -> Output {
    let mut words = line.split(' ');
    let program = words.next().expect("a line has a program");
    let output = Command::new(program).args(words).output();
    let output = output.unwrap_or_else(|error| panic!("{line}: {error}; Debian has it in iproute2 and nftables"));
    assert!(output.status.success(), "{line}: {}", text(&output.stderr));
    output
}

#[test]
fn additions_over_a_lossy_link_happen_exactly_once() {
    if !is_full_run() {
        return;
    }
    let namespaces = Namespaces::new();
    let password = env::temp_dir().join(format!("skep-lossy-{}", std::process::id()));
    fs::write(&password, PASSWORD).expect("a temporary file");
    let mut command = Command::new("ip");
    command.args(["netns", "exec", &namespaces.server, env!("CARGO_BIN_EXE_skep"), "serve"]);
    command.args(["--listen", "127.0.0.1:0", "--resp", "127.0.0.1:0", "--udp", "10.99.0.1:7379"]);
    command.args(["--memory", "64MiB", "--shards", "2", "--requirepass-file", &password.display().to_string()]);
    let _server = Server::start_command(&mut command);
    namespaces.lose();
    let factor = env::var("SKEP_LONG").map_or(1, |factor| factor.parse::<u64>().expect("SKEP_LONG is a number"));
    let clients = Command::new("ip")
        .args(["netns", "exec", &namespaces.clients])
        .arg(env::current_exe().expect("a test has a path"))
        .args(["--exact", "the_clients_of_the_lossy_link", "--nocapture"])
        .env(ADDRESS, "udp:10.99.0.1:7379")
        .env(ADDITIONS, (100_000 * factor).to_string())
        .output()
        .expect("there is ip");
    fs::remove_file(&password).expect("the file is still there");
    let report = text(&clients.stdout) + &text(&clients.stderr);
    assert!(clients.status.success() && report.contains("exactly once"), "{report}");
    let lost = namespaces.lost();
    println!("{lost:?} packets were lost, {}", report.lines().find(|line| line.contains("exactly")).unwrap());
    assert!(lost.iter().all(|count| *count > 0), "the link lost nothing: {lost:?}");
}

/// In the namespace of the clients: adds, and compares the sum.
#[test]
fn the_clients_of_the_lossy_link() {
    let Ok(address) = env::var(ADDRESS) else { return };
    let additions: u64 = env::var(ADDITIONS).expect("the other process sets both").parse().expect("a number");
    let each = additions / CLIENTS;
    thread::scope(|scope| {
        for own in 0..CLIENTS {
            scope.spawn({
                let address = &address;
                move || add(address, &own.to_le_bytes(), each)
            });
        }
    });
    let mut client = connect(&address);
    let sum = client.get(b"all").expect("the server replies").expect("the counter exists");
    assert_eq!(u64::from_le_bytes(sum.try_into().expect("a counter has 8 bytes")), CLIENTS * each);
    println!("{} additions took place exactly once", CLIENTS * each);
}

fn connect(address: &str) -> Client {
    let settings = ClientSettings { password: Password::new(PASSWORD.as_bytes()), ..Default::default() };
    Client::connect_with(address, HASH_SPACE, &settings).expect("the server accepts")
}

/// Adds in batches of different sizes, half to an own counter, whose values must come in their order.
fn add(address: &str, own: &[u8], count: u64) {
    let operation = Operation::Update(Update {
        function: UpdateFunction::Add,
        element: Element::U64,
        shape: Shape::ScalarToScalar,
        operand: &1_u64.to_le_bytes(),
        initial: Some(&0_u64.to_le_bytes()),
        return_old: true,
    });
    let (mut client, mut responses, mut done) = (connect(address), Responses::new(), 0_u64);
    for size in [1, 200, 7, 1000, 50].into_iter().cycle() {
        let size = size.min(count - done);
        let requests: Vec<_> =
            (0..2 * size).map(|index| Request { key: [own, b"all"][index as usize % 2], operation }).collect();
        client.execute(&requests, &mut responses).expect("the server replies");
        for response in responses.iter().step_by(2) {
            assert_eq!(response, Ok(Reply::Value(&done.to_le_bytes())));
            done += 1;
        }
        if done == count {
            return;
        }
    }
}
