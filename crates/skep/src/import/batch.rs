//! Changes that are sent to the server together.
//!
//! The changes of each space are sent one after the other, in the order of the source. The server may refuse some for
//! a while: it is busy, its disk has stopped, or the user is over a limit. These are sent again, and so are the later
//! changes of their keys: otherwise an earlier value could replace a later one.
//!
//! The client connects again by itself. The server may then be another run, without the last changes. So an import
//! ends after a lost connection, unless nothing was sent on it.
//!
//! Changes are held back for a bounded time only: `push` sends old ones, and `input.rs` does before it waits.

use std::collections::HashSet;
use std::mem;
use std::ops::Range;
use std::thread;
use std::time::{Duration, Instant};

use skep::{Client, ClientError, Expiry, ExpiryChange, Operation, Reply, Request, Responses, WireError};
use skep_wire::native::Response;

use crate::failure::{reason, with_options};
use crate::transfer::{self, SPACES};

/// Changes, and bytes of them, that are sent together; the client divides them into frames.
const BATCH_CHANGES_MAX: usize = 16 << 10;
const BATCH_BYTES_MAX: usize = 4 << 20;
/// The longest time for which changes of a slow source are held back.
const DELAY_MAX: Duration = Duration::from_secs(1);

/// The longest time for which changes are sent again although none is accepted, and the pause before that: it
/// doubles.
const PATIENCE: Duration = Duration::from_secs(30);
const PAUSE_MIN: Duration = Duration::from_millis(5);
const PAUSE_MAX: Duration = Duration::from_millis(500);

/// Checks that the server has a space. The user need not be permitted to read the key that is asked for.
pub(super) fn has_space(client: &mut Client, space: u16) -> Result<(), String> {
    client.select(space);
    match client.contains(b"x") {
        Ok(_) | Err(ClientError::Rejected(WireError::Busy | WireError::TooFast | WireError::NotPermitted)) => Ok(()),
        Err(error) => Err(reason(&error)),
    }
}

/// Changes that are sent together.
pub(super) struct Batch {
    client: Client,
    /// Keys and values.
    bytes: Vec<u8>,
    /// The changes that were not acknowledged, for each of [`SPACES`].
    changes: [Vec<Change>; SPACES.len()],
    /// When the last changes were sent.
    sent_at: Instant,
    /// Number of changes that the server has acknowledged.
    pub(super) sent: u64,
    /// The number of the last entry of the source that was added.
    added: u64,
    has_begun: bool,
    /// True after a failure of the connection: the server may have lost changes.
    pub(super) is_connection_lost: bool,
    /// Why changes could not be sent while the source was silent.
    pub(super) failure: Option<String>,
}

/// A change of a key.
struct Change {
    /// The number of its entry.
    number: u64,
    key: Range<usize>,
    /// The new value and its expiry. Without one, the key is removed.
    pair: Option<(Range<usize>, ExpiryChange)>,
}

impl Batch {
    /// Begins after a number of entries that were imported before.
    pub(super) fn new(client: Client, added: u64) -> Self {
        let changes = [const { Vec::new() }; SPACES.len()];
        let (bytes, sent_at) = (Vec::new(), Instant::now());
        Batch {
            client,
            bytes,
            changes,
            sent_at,
            sent: 0,
            added,
            has_begun: false,
            is_connection_lost: false,
            failure: None,
        }
    }

    /// Returns the number of entries of the source that are done.
    pub(super) fn acknowledged(&self) -> u64 {
        let first = self.changes.iter().filter_map(|changes| Some(changes.first()?.number)).min();
        first.map_or(self.added, |number| number - 1)
    }

    /// Returns the time for which its changes may still be held back, if it has some.
    pub(super) fn time_left(&self) -> Option<Duration> {
        let has_changes = self.changes.iter().any(|changes| !changes.is_empty());
        has_changes.then(|| DELAY_MAX.saturating_sub(self.sent_at.elapsed()))
    }

    /// Adds a change, which is the entry of this number, and first sends those before it if they are many or old.
    pub(super) fn push(&mut self, number: u64, change: &transfer::Change<'_>) -> Result<(), String> {
        let count: usize = self.changes.iter().map(Vec::len).sum();
        let is_full = count >= BATCH_CHANGES_MAX || self.bytes.len() >= BATCH_BYTES_MAX;
        if is_full || self.sent_at.elapsed() > DELAY_MAX {
            self.send()?;
        }
        let (space, key) = match *change {
            transfer::Change::Put(pair) => (pair.space, pair.key),
            transfer::Change::Delete { space, key } => (space, key),
        };
        let key = self.add(key);
        let pair = match *change {
            transfer::Change::Put(transfer::Pair { value, expiry, .. }) => {
                // No key lives until the latest expiry, which is a million years away.
                let set = |time| ExpiryChange::set(Expiry::at(time).unwrap_or(Expiry::MAX));
                Some((self.add(value), expiry.map_or(ExpiryChange::CLEAR, set)))
            }
            transfer::Change::Delete { .. } => None,
        };
        let index = SPACES.iter().position(|(number, _)| *number == space).expect("a change is of a space");
        self.changes[index].push(Change { number, key, pair });
        self.added = number;
        Ok(())
    }

    fn add(&mut self, bytes: &[u8]) -> Range<usize> {
        let begin = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        begin..self.bytes.len()
    }

    /// Sends the changes.
    pub(super) fn send(&mut self) -> Result<(), String> {
        for index in 0..SPACES.len() {
            if !self.changes[index].is_empty() {
                self.send_space(index)?;
            }
        }
        self.bytes.clear();
        self.sent_at = Instant::now();
        Ok(())
    }

    /// Sends the changes of a space. Sends those again that the server refuses for a while.
    fn send_space(&mut self, index: usize) -> Result<(), String> {
        let space = SPACES[index].0;
        if !self.has_begun {
            // The server may have closed the connection while the source was silent. Nothing is lost with it.
            has_space(&mut self.client, space)?;
            self.has_begun = true;
        }
        self.client.select(space);
        let (mut until, mut pause) = (Instant::now() + PATIENCE, PAUSE_MIN);
        let mut responses = Responses::default();
        while !self.changes[index].is_empty() {
            let requests: Vec<_> = self.changes[index].iter().map(|change| request(change, &self.bytes)).collect();
            let (count, connections) = (requests.len(), self.client.reconnection_count());
            let outcome = self.client.execute(&requests, &mut responses);
            self.is_connection_lost = self.client.reconnection_count() != connections;
            if let Err(error) = outcome {
                return Err(self.failed(&error));
            }
            let may_retry = Instant::now() < until;
            let (sent, removed) =
                remove_acknowledged(&mut self.changes[index], &self.bytes, responses.iter(), may_retry);
            self.sent += sent;
            removed?;
            if self.is_connection_lost {
                return Err("the server has closed the connection, and may have started again".to_owned());
            }
            match self.changes[index].len() {
                0 => {}
                left if left < count => (until, pause) = (Instant::now() + PATIENCE, PAUSE_MIN),
                _ => pause = (2 * pause).min(PAUSE_MAX),
            }
            if !self.changes[index].is_empty() {
                thread::sleep(pause);
            }
        }
        Ok(())
    }

    /// Returns the message of a failure of the connection.
    fn failed(&mut self, error: &ClientError) -> String {
        use ClientError::{MayHaveHappened, Operation, Rejected, RequestTooLarge};
        self.is_connection_lost |= !matches!(error, Operation(_) | Rejected(_) | RequestTooLarge { .. });
        match error {
            MayHaveHappened { source } => reason(source),
            error => reason(error),
        }
    }
}

/// Removes the changes that the server has acknowledged, except those after a refused one of the same key. Returns the
/// number of the removed ones, and the failure of a change that must not be sent again.
fn remove_acknowledged<'a>(
    changes: &mut Vec<Change>,
    bytes: &[u8],
    responses: impl IntoIterator<Item = Response<'a>>,
    may_retry: bool,
) -> (u64, Result<(), String>) {
    let (mut sent, mut failure) = (0, None);
    let mut refused_keys = HashSet::new();
    let mut responses = responses.into_iter();
    for change in mem::take(changes) {
        let key = &bytes[change.key.clone()];
        let is_done = match responses.next().expect("each request has a reply") {
            _ if failure.is_some() => false,
            Ok(Reply::Done | Reply::NotFound) => !refused_keys.contains(key),
            Err(WireError::Busy | WireError::TooFast | WireError::NotDurable) if may_retry => false,
            response => {
                let text = match response {
                    Ok(Reply::Failed(error)) => with_options(error),
                    Err(error) => error.to_string(),
                    Ok(_) => "it has a reply to another request".to_owned(),
                };
                failure = Some(format!("key `{}`: {text}", key.escape_ascii()));
                false
            }
        };
        if is_done {
            sent += 1;
        } else {
            refused_keys.insert(key);
            changes.push(change);
        }
    }
    (sent, failure.map_or(Ok(()), Err))
}

fn request<'a>(change: &Change, bytes: &'a [u8]) -> Request<'a> {
    let operation = match &change.pair {
        None => Operation::Delete,
        Some((value, expiry)) => Operation::put(&bytes[value.clone()], *expiry),
    };
    Request { key: &bytes[change.key.clone()], operation }
}

#[cfg(test)]
mod tests {
    use skep::OperationError;

    use super::*;

    /// Removes the acknowledged ones of changes of keys, which are numbered from 1 on. Returns the numbers of the
    /// others, the number of the removed ones, and the failure.
    fn left(keys: &[u8], responses: Vec<Response<'_>>, may_retry: bool) -> (Vec<u64>, u64, Result<(), String>) {
        assert_eq!(keys.len(), responses.len());
        let change = |index| Change { number: index as u64 + 1, key: index..index + 1, pair: None };
        let mut changes = (0..keys.len()).map(change).collect();
        let (sent, removed) = remove_acknowledged(&mut changes, keys, responses, may_retry);
        (changes.iter().map(|change| change.number).collect(), sent, removed)
    }

    #[test]
    fn the_changes_after_a_refused_one_of_the_same_key_are_kept() {
        const DONE: Response<'_> = Ok(Reply::Done);
        for refusal in [WireError::TooFast, WireError::Busy, WireError::NotDurable] {
            assert_eq!(left(b"aa", vec![Err(refusal), DONE], true), (vec![1, 2], 0, Ok(())));
            let responses = vec![DONE, Err(refusal), DONE, Ok(Reply::NotFound), Err(refusal), DONE];
            assert_eq!(left(b"aababb", responses, true), (vec![2, 4, 5, 6], 2, Ok(())), "b is refused later");
        }
    }

    #[test]
    fn nothing_after_a_failure_is_removed() {
        let full = || Ok(Reply::Failed(OperationError::SlabFull));
        for (refusal, may_retry, text) in [(full(), true, "(--memory)"), (Err(WireError::Busy), false, "busy")] {
            let (kept, sent, removed) = left(b"abc", vec![Ok(Reply::Done), refusal, Ok(Reply::Done)], may_retry);
            assert_eq!((kept, sent), (vec![2, 3], 1));
            let message = removed.unwrap_err();
            assert!(message.starts_with("key `b`: ") && message.contains(text), "{message}");
        }
    }
}
