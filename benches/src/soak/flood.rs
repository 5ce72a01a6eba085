//! Attacks that send more than their share: floods of pipelines, long pipelines sent before any reply is read, and one
//! costly command.

use std::sync::OnceLock;
use std::time::Duration;

use rand::RngExt;
use skep_client::{Client, Responses};
use skep_core::operation::{Operation, PutCondition, Request};
use skep_wire::native::{HASH_SPACE, ORDERED_SPACE};

use super::resp::append;
use super::turn::{LARGE_KEY, SMALL_KEY, Turn};

/// Pipelines in a turn.
const PIPELINES: usize = 50;
/// Commands in a pipeline.
const DEPTH: usize = 500;
/// Keys of the floods in each space.
const KEY_COUNT: u32 = 20_000;
/// The value of the floods.
const VALUE: [u8; 40] = [b'f'; 40];
/// GETs that are sent before a reply is read.
const LONG_PIPELINE: usize = 150_000;
/// Keys of one EXISTS.
const EXISTS_KEYS: usize = 1_000_000;
/// Pause between pipelines.
const PAUSE: Duration = Duration::from_millis(2);

/// Sends the pipelines of a turn with pauses in between, until the soak is over. `send` gets the number of a pipeline
/// and waits for its replies.
fn send_pipelines(
    turn: &mut Turn<'_>,
    mut send: impl FnMut(&mut Turn<'_>, usize) -> Result<(), String>,
) -> Result<(), String> {
    for number in 0..PIPELINES {
        send(turn, number)?;
        turn.tally.add(DEPTH as u64);
        turn.stage.pause(PAUSE);
        if turn.stage.is_over() {
            break;
        }
    }
    Ok(())
}

/// Sends pipelines of reads and writes in both spaces.
pub(super) fn resp(turn: &mut Turn<'_>) -> Result<(), String> {
    let mut resp = turn.connect()?;
    let mut bytes = Vec::new();
    send_pipelines(turn, |turn, number| {
        bytes.clear();
        append(&[b"SELECT", if number % 2 == 0 { b"0" } else { b"1" }], &mut bytes);
        for _ in 0..DEPTH {
            let key = format!("flood:{}", turn.random.random_range(0..KEY_COUNT));
            match turn.random.random_range(0..8) {
                0..=3 => append(&[b"GET", key.as_bytes()], &mut bytes),
                4..=6 => append(&[b"SET", key.as_bytes(), &VALUE], &mut bytes),
                _ => append(&[b"DEL", key.as_bytes()], &mut bytes),
            }
        }
        resp.send(&bytes).map_err(|error| error.to_string())?;
        for _ in 0..=DEPTH {
            resp.reply().map_err(|error| error.to_string())?;
        }
        Ok(())
    })
}

/// Sends the same operations over the native protocol.
pub(super) fn native(turn: &mut Turn<'_>) -> Result<(), String> {
    let mut client = Client::connect(turn.stage.native, HASH_SPACE).map_err(|error| error.to_string())?;
    let mut responses = Responses::new();
    send_pipelines(turn, |turn, number| {
        client.select(if number % 2 == 0 { HASH_SPACE } else { ORDERED_SPACE });
        let keys: Vec<String> =
            (0..DEPTH).map(|_| format!("flood:{}", turn.random.random_range(0..KEY_COUNT))).collect();
        let operation = |kind| match kind {
            0..=3 => Operation::Get,
            4..=6 => Operation::Put { value: &VALUE, condition: PutCondition::Always },
            _ => Operation::Delete,
        };
        let requests: Vec<Request<'_>> = keys
            .iter()
            .map(|key| Request { key: key.as_bytes(), operation: operation(turn.random.random_range(0..8)) })
            .collect();
        client.execute(&requests, &mut responses).map_err(|error| error.to_string())?;
        Ok(())
    })
}

/// Sends a complete pipeline whose replies take about 30 MB before it reads the first reply, as many libraries do.
pub(super) fn long_pipeline(turn: &mut Turn<'_>) -> Result<(), String> {
    static REQUESTS: OnceLock<Vec<u8>> = OnceLock::new();
    let requests = REQUESTS.get_or_init(|| {
        let mut bytes = Vec::new();
        (0..LONG_PIPELINE).for_each(|_| append(&[b"GET", SMALL_KEY], &mut bytes));
        bytes
    });
    let mut resp = turn.connect()?;
    resp.send(requests).map_err(|error| error.to_string())?;
    for _ in 0..LONG_PIPELINE {
        resp.reply().map_err(|error| error.to_string())?;
        turn.tally.add(1);
    }
    Ok(())
}

/// Sends one EXISTS that names the same large value a million times.
pub(super) fn exists(turn: &mut Turn<'_>) -> Result<(), String> {
    static REQUEST: OnceLock<Vec<u8>> = OnceLock::new();
    let request = REQUEST.get_or_init(|| {
        let keys = std::iter::repeat_n(LARGE_KEY, EXISTS_KEYS);
        let words: Vec<&[u8]> = std::iter::once(&b"EXISTS"[..]).chain(keys).collect();
        let mut bytes = Vec::new();
        append(&words, &mut bytes);
        bytes
    });
    let mut resp = turn.connect()?;
    resp.send(request).map_err(|error| error.to_string())?;
    resp.reply().map_err(|error| error.to_string())?;
    turn.tally.add(1);
    Ok(())
}
