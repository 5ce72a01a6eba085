//! Fills and empties the stores in turn: it puts pairs of one size until a put is refused, then deletes them all.
//!
//! This is how the witnesses meet full stores. Deletes, and overwrites of the same size, must not be refused here
//! either. One thread fills the ordered space, the other one the hash space.

use std::time::Duration;

use skep_client::{Client, Responses};
use skep_core::operation::{Operation, PutCondition, Reply, Request};
use skep_wire::native::{HASH_SPACE, ORDERED_SPACE, WireError};

use super::server::HASH_MEMORY;
use super::turn::Turn;

/// Sizes of the values.
const VALUE_SIZES: [usize; 8] = [16, 1 << 20, 500, 4000, 100, 64 << 10, 200, 30];
/// Most bytes of the values in a batch.
const BATCH_SIZE: usize = 1 << 20;
/// Most pairs in a batch.
const BATCH_COUNT: usize = 256;
/// Pairs of each full store that are overwritten with the same value.
const OVERWRITTEN: usize = 512;
/// How often an operation is retried that the server refuses as BUSY.
const TRIES: usize = 500;
const BUSY_PAUSE: Duration = Duration::from_millis(5);

/// The operation on a range of the keys.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Work {
    Put,
    Overwrite,
    Delete,
}

/// The connection and the value of one turn.
struct Filler<'t, 'a> {
    turn: &'t Turn<'a>,
    client: Client,
    value: Vec<u8>,
}

/// Fills a space and empties it.
pub(super) fn fill_and_empty(turn: &mut Turn<'_>) -> Result<(), String> {
    let space = if turn.thread == 0 { HASH_SPACE } else { ORDERED_SPACE };
    let size = VALUE_SIZES[turn.number % VALUE_SIZES.len()];
    let client = Client::connect(turn.stage.native, space).map_err(|error| error.to_string())?;
    let mut filler = Filler { turn, client, value: vec![b'v'; size] };
    let batch = (BATCH_SIZE / size).clamp(1, BATCH_COUNT);
    let count_max = (HASH_MEMORY as usize) << 20;
    let mut count = 0;
    while count < count_max && !turn.stage.is_over() {
        count += batch;
        if filler.execute(Work::Put, count - batch..count)? > 0 {
            break;
        }
    }
    // The last batch is not overwritten, because some of its puts were refused.
    for first in (0..OVERWRITTEN.min(count - batch)).step_by(batch) {
        filler.execute(Work::Overwrite, first..(first + batch).min(count - batch))?;
    }
    // The keys are deleted even if the soak is over: a store that then refuses deletes is just as wrong.
    for first in (0..count).step_by(batch) {
        filler.execute(Work::Delete, first..first + batch)?;
    }
    Ok(())
}

impl Filler<'_, '_> {
    /// Executes the operation on keys. Returns how many operations were refused for lack of memory.
    fn execute(&mut self, work: Work, keys: std::ops::Range<usize>) -> Result<usize, String> {
        let keys: Vec<String> = keys.map(|number| format!("fill:{number}")).collect();
        let value = &self.value;
        let operation = match work {
            Work::Put | Work::Overwrite => Operation::Put { value, condition: PutCondition::Always },
            Work::Delete => Operation::Delete,
        };
        let mut requests: Vec<Request<'_>> =
            keys.iter().map(|key| Request { key: key.as_bytes(), operation }).collect();
        let mut responses = Responses::new();
        let mut refused = 0;
        for _ in 0..TRIES {
            self.client.execute(&requests, &mut responses).map_err(|error| error.to_string())?;
            self.turn.tally.add(requests.len() as u64);
            let mut busy = Vec::new();
            for (request, response) in requests.iter().zip(responses.iter()) {
                match response {
                    Ok(Reply::Done) => {}
                    // Some keys of the last batch were refused.
                    Ok(Reply::NotFound) if work == Work::Delete => {}
                    Ok(Reply::Failed(error)) if error.is_out_of_memory() && work == Work::Put => refused += 1,
                    Err(WireError::Busy) => busy.push(*request),
                    other => self.turn.tally.wrong(format!(
                        "{} of a value of {} B: {other:?}",
                        if work == Work::Delete { "DELETE" } else { "PUT" },
                        value.len()
                    )),
                }
            }
            if busy.is_empty() || self.turn.stage.is_over() {
                break;
            }
            requests = busy;
            self.turn.stage.pause(BUSY_PAUSE);
        }
        Ok(refused)
    }
}
