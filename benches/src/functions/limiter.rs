//! A rate limiter: the token bucket of `docs/functions.md` in Skep, and the same limiter as a Lua script in redis-server.
//!
//! ```text
//! skep    one shard    native: a call by the number of the function     RESP: SKEP.UPDATE … INIT …
//! redis   one thread   EVALSHA: a script that reads and writes the same 12 bytes
//! ```
//!
//! One client sends batches of different depths over the same number of connections. The best depth of each counts. The
//! programs have the first core, and the client has the second one. Before that, both must reply alike.

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use skep_core::function::FunctionHandle;
use skep_core::operation::{Call, CallReply, Operation, Request};
use skep_measure::{Figure, Rounds, Row, median};
use skep_wire::native::RequestFrameWriter;

use super::lambda::TAKE;
use super::report::Line;
use super::wire::{Batches, Wire};
use super::{Run, start_skep};
use crate::durability::Bar;
use crate::figures::millions;
use crate::keys::random_key;
use crate::servers::{Protocol, Server};
use crate::soak::resp::{Reply, Resp, append};

/// Requests in a batch.
const DEPTHS: [usize; 4] = [16, 64, 256, 1024];
/// Connections of the client.
const CONNECTIONS: usize = 16;
/// Requests that are encoded for a depth.
const REQUESTS: usize = 1 << 17;
/// The goal of the native protocol.
const GOAL: Bar = Bar::AtLeast(20.0);
/// The first time, and the number of further ones. Tokens for a fraction of the requests come in between.
const NOW: u64 = 1_700_000_000;
const NOWS: u64 = 100;
/// Tokens: those of a request, those that come in a second, and those that a bucket holds.
const COST: f32 = 1.0;
const RATE: f32 = 0.5;
const BURST: f32 = 5.0;
/// Calls of one bucket that are compared.
const COMPARED: u64 = 40;

/// The same limiter in Lua, on the same record.
const SCRIPT: &str = "
local now, cost, rate, burst = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local record, tokens, at = redis.call('GET', KEYS[1]), burst, now
if record then tokens, at = struct.unpack('<fI8', record) end
tokens = math.min(burst, tokens + rate * math.max(0, now - at))
local taken = 0
if tokens >= cost then tokens, taken = tokens - cost, 1 end
redis.call('SET', KEYS[1], struct.pack('<fI8', tokens, math.max(at, now)))
return taken
";

/// The sides of a row.
#[derive(Clone, Copy)]
enum Side {
    Native,
    Resp,
    Redis,
}

const SIDES: [Side; 3] = [Side::Native, Side::Resp, Side::Redis];

impl Side {
    fn protocol(self) -> Protocol {
        match self {
            Side::Native => Protocol::Native,
            Side::Resp | Side::Redis => Protocol::Resp,
        }
    }

    /// Appends calls for these buckets.
    fn append(self, now: u64, buckets: impl Iterator<Item = u64>, script: &str, out: &mut Vec<u8>) {
        let text = [now.to_string(), COST.to_string(), RATE.to_string(), BURST.to_string()];
        let [now_text, cost, rate, burst] = text.each_ref().map(String::as_bytes);
        let numbers = [COST, RATE, BURST].map(f32::to_le_bytes).concat();
        let operands = [&now.to_le_bytes()[..], &numbers].concat();
        let initial = [&BURST.to_le_bytes()[..], &now.to_le_bytes()].concat();
        let function = FunctionHandle { id: TAKE, revision: 0, function: None };
        let initial = Some(&initial[..]);
        let call = Call { function, vectors: 0, operands: &operands, initial, reply: CallReply::Result };
        match self {
            Side::Native => {
                let mut writer = RequestFrameWriter::new(out, 0, 0);
                for bucket in buckets {
                    let request = Request { key: &random_key(bucket), operation: Operation::Call(call) };
                    assert!(writer.push(&request), "a batch fits into a frame");
                }
                writer.finish();
            }
            Side::Resp => buckets.for_each(|bucket| {
                let key = random_key(bucket);
                let words = [b"SKEP.UPDATE", &key[..], b"limits.take", now_text, cost, rate, burst];
                append(&[&words[..], &[b"INIT", burst, now_text]].concat(), out);
            }),
            Side::Redis => buckets.for_each(|bucket| {
                let key = random_key(bucket);
                append(&[b"EVALSHA", script.as_bytes(), b"1", &key[..], now_text, cost, rate, burst], out);
            }),
        }
    }

    /// Returns the batches of a depth, on random buckets.
    fn batches(self, depth: usize, buckets: u64, script: &str) -> Batches {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(3);
        let batch = |index: usize| {
            let mut bytes = Vec::new();
            let drawn = (0..depth).map(|_| random.random_range(0..buckets));
            self.append(NOW + index as u64 % NOWS, drawn, script, &mut bytes);
            bytes
        };
        Batches { protocol: self.protocol(), depth, bytes: (0..(REQUESTS / depth).max(1)).map(batch).collect() }
    }
}

/// Returns about how many seconds the section takes.
pub(super) fn expected_seconds(run: &Run<'_>) -> f64 {
    rounds(run).expected_seconds()
}

fn rounds(run: &Run<'_>) -> Rounds {
    let rows = DEPTHS.map(|depth| Row::new(format!("token bucket, depth {depth}"), SIDES.len()));
    Rounds::new(run.plan.effort, rows.to_vec())
}

/// Measures, and returns the lines of the report.
pub(super) fn run(run: &Run<'_>) -> Result<Vec<Line>, String> {
    let setting = run.setting.as_ref().ok_or("this section needs servers")?;
    let skep = start_skep(setting)?;
    let redis = setting.redis()?;
    let script = load_script(&redis)?;
    compare(&skep, &redis, &script)?;
    let servers = [&skep, &skep, &redis];
    let batches = DEPTHS.map(|depth| SIDES.map(|side| side.batches(depth, run.plan.buckets, &script)));
    let mut wires: Vec<Wire> = Vec::new();
    for (server, side) in servers.iter().zip(SIDES) {
        let address = server.address(side.protocol()).ok_or("a server does not listen")?;
        wires.push(Wire::connect(address, side.protocol(), CONNECTIONS)?);
    }
    let rates = rounds(run).run(run.progress, |turn| {
        turn.rate(|at_least| wires[turn.side].run(&batches[turn.row][turn.side], at_least))
    })?;
    let best = [0, 1, 2].map(|side: usize| {
        let rate = |depth: &usize| median(&rates[*depth][side]);
        (0..DEPTHS.len()).max_by(|a, b| rate(a).total_cmp(&rate(b))).unwrap_or(0)
    });
    let line = |name: &str, side: usize, depth: usize, goal: Option<Bar>| {
        let (ours, theirs) = (&rates[depth][side], &rates[best[2]][2]);
        let rate = |rates: &[f64], depth: usize| format!("{} M/s at {}", millions(median(rates)), DEPTHS[depth]);
        Line {
            name: format!("token bucket: {name}"),
            figure: Figure::of_ratio(ours, theirs),
            unit: "×",
            goal,
            from: format!("{} / {}", rate(ours, depth), rate(theirs, best[2])),
        }
    };
    Ok(vec![
        line("native / redis with Lua, best depths", 0, best[0], Some(GOAL)),
        line("RESP / redis with Lua, best depths", 1, best[1], None),
        line("RESP / redis with Lua, best depth of redis", 1, best[2], None),
    ])
}

/// Loads the script, and returns its number.
fn load_script(redis: &Server) -> Result<String, String> {
    let mut resp = connect(redis)?;
    match resp.call(&[b"SCRIPT", b"LOAD", SCRIPT.as_bytes()]) {
        Ok(Reply::Bulk(Some(number))) => Ok(String::from_utf8_lossy(&number).into_owned()),
        other => Err(format!("redis does not take the script: {other:?}")),
    }
}

fn connect(server: &Server) -> Result<Resp, String> {
    let address = server.address(Protocol::Resp).ok_or("a server has no port for RESP")?;
    Resp::connect(address, None).map_err(|error| format!("cannot connect to {address}: {error}"))
}

/// Checks that both servers take and refuse alike. The bucket is none of those that are measured.
fn compare(skep: &Server, redis: &Server, script: &str) -> Result<(), String> {
    let (mut skep, mut redis) = (connect(skep)?, connect(redis)?);
    for call in 0..COMPARED {
        let ask = |resp: &mut Resp, side: Side| {
            let mut bytes = Vec::new();
            side.append(NOW + call / 3, std::iter::once(u64::MAX >> 1), script, &mut bytes);
            resp.send(&bytes).and_then(|()| resp.reply()).map_err(|error| error.to_string())
        };
        let replies = [ask(&mut skep, Side::Resp)?, ask(&mut redis, Side::Redis)?];
        if replies[0] != replies[1] || !matches!(replies[0], Reply::Integer(_)) {
            return Err(format!("call {call} of a bucket: Skep replies {:?}, Redis {:?}", replies[0], replies[1]));
        }
    }
    Ok(())
}
