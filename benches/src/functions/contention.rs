//! Eight clients change one vector: by an update in the server, or by a get, a computation and a compare-and-set that is
//! repeated until no other client was faster.
//!
//! The servers have the first core, and the clients have the second one. Each client has one request in flight. At the
//! end, the value must show every change that was counted.

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use skep_client::{
    Call, CallReply, Client, Condition, ConditionKind, ExpiryChange, FunctionHandle, HASH_SPACE, Operation, Reply,
    Request, Responses, StringWrite,
};
use skep_measure::{Figure, Rounds, Row, Work};

use super::lambda::ADD;
use super::report::Line;
use super::{Run, start_skep};
use crate::durability::Bar;
use crate::servers::Protocol;

/// Clients.
const CLIENTS: usize = 8;
/// The key, and the bytes of its value.
const KEY: &[u8] = b"shared";
const VALUE_SIZE: usize = 1 << 10;
/// Δ.
const OPERAND: [u8; 4] = 1_u32.to_le_bytes();
/// The goal.
const GOAL: Bar = Bar::AtLeast(10.0);

/// How a client changes the value.
#[derive(Clone, Copy)]
enum Side {
    Update,
    CompareAndSet,
}

const SIDES: [Side; 2] = [Side::Update, Side::CompareAndSet];

/// Returns about how many seconds the section takes.
pub(super) fn expected_seconds(run: &Run<'_>) -> f64 {
    rounds(run).expected_seconds()
}

fn rounds(run: &Run<'_>) -> Rounds {
    Rounds::new(run.plan.effort, vec![Row::new("8 clients on one value", SIDES.len())])
}

/// Measures, and returns the line of the report.
pub(super) fn run(run: &Run<'_>) -> Result<Vec<Line>, String> {
    let skep = start_skep(run.setting.as_ref().ok_or("this section needs servers")?)?;
    let address = skep.address(Protocol::Native).ok_or("the server has no port for native clients")?;
    let mut clients = Clients::connect(address)?;
    let rates = rounds(run).run(run.progress, |turn| turn.rate(|at_least| clients.run(SIDES[turn.side], at_least)))?;
    clients.check()?;
    let [update, compare_and_set] = [0, 1].map(|side| &rates[0][side]);
    let rate = |rates: &[f64]| Figure::of(rates).text(|rate| format!("{:.1} k/s", rate / 1e3));
    Ok(vec![Line {
        name: "8 clients on 1 KiB: update / get and compare-and-set".to_owned(),
        figure: Figure::of_ratio(update, compare_and_set),
        unit: "×",
        goal: Some(GOAL),
        from: format!("{} / {}", rate(update), rate(compare_and_set)),
    }])
}

/// The clients, and the changes that they have made.
struct Clients {
    clients: Vec<Client>,
    changes: u32,
}

impl Clients {
    fn connect(address: SocketAddr) -> Result<Clients, String> {
        let connect = || Client::connect(address.to_string().as_str(), HASH_SPACE).map_err(|error| error.to_string());
        let mut clients = (0..CLIENTS).map(|_| connect()).collect::<Result<Vec<Client>, String>>()?;
        clients[0].put(KEY, &[0; VALUE_SIZE]).map_err(|error| error.to_string())?;
        Ok(Clients { clients, changes: 0 })
    }

    /// Changes the value for this time. An operation is a change.
    fn run(&mut self, side: Side, at_least: Duration) -> Result<Work, String> {
        let begun = Instant::now();
        let counts: Vec<Result<usize, String>> = thread::scope(|scope| {
            let run = |client| scope.spawn(move || change_for(client, side, begun, at_least));
            let threads: Vec<_> = self.clients.iter_mut().map(run).collect();
            threads.into_iter().map(|thread| thread.join().expect("a client does not panic")).collect()
        });
        let operations = counts.into_iter().sum::<Result<usize, String>>()?;
        self.changes = self.changes.wrapping_add(operations as u32);
        Ok(Work { spent: begun.elapsed(), operations })
    }

    /// Checks that the value has every change.
    fn check(&mut self) -> Result<(), String> {
        let value = self.clients[0].get(KEY).map_err(|error| error.to_string())?.unwrap_or_default();
        let expected = self.changes.to_le_bytes().repeat(VALUE_SIZE / 4);
        if value == expected { Ok(()) } else { Err(format!("the value does not show {} changes", self.changes)) }
    }
}

fn change_for(client: &mut Client, side: Side, begun: Instant, at_least: Duration) -> Result<usize, String> {
    let mut responses = Responses::new();
    let mut count = 0;
    while begun.elapsed() < at_least {
        count += match side {
            Side::Update => update(client, &mut responses)?,
            Side::CompareAndSet => compare_and_set(client, &mut responses)?,
        };
    }
    Ok(count)
}

/// Updates the value in the server.
fn update(client: &mut Client, responses: &mut Responses) -> Result<usize, String> {
    let function = FunctionHandle { id: ADD, revision: 0, function: None };
    let call = Call { function, vectors: 0, operands: &OPERAND, initial: None, reply: CallReply::Nothing };
    let requests = [Request { key: KEY, operation: Operation::Call(call) }];
    client.execute(&requests, responses).map_err(|error| error.to_string())?;
    match responses.get(0) {
        Ok(Reply::Done) => Ok(1),
        other => Err(format!("the update failed: {other:?}")),
    }
}

/// Reads the value, and writes the new one if the value is still the same. Returns the number of changes: 0 or 1.
fn compare_and_set(client: &mut Client, responses: &mut Responses) -> Result<usize, String> {
    client.execute(&[Request { key: KEY, operation: Operation::Get }], responses).map_err(|error| error.to_string())?;
    let Ok(Reply::Value(old)) = responses.get(0) else { return Err("there is no value".to_owned()) };
    let old = old.to_vec();
    let add = |number: &[u8]| u32::from_le_bytes(number.try_into().expect("four bytes")).wrapping_add(1).to_le_bytes();
    let value: Vec<u8> = old.chunks_exact(4).flat_map(add).collect();
    let condition = Condition { kind: ConditionKind::IfEqual, operand: &old };
    let set = StringWrite::Set { value: &value, condition, expiry: ExpiryChange::KEEP, return_old: false };
    let requests = [Request { key: KEY, operation: Operation::StringWrite(set) }];
    client.execute(&requests, responses).map_err(|error| error.to_string())?;
    match responses.get(0) {
        Ok(Reply::Done) => Ok(1),
        Ok(Reply::Exists) => Ok(0),
        other => Err(format!("the compare-and-set failed: {other:?}")),
    }
}
