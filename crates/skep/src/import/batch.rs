//! Pairs that are sent to the server together.

use std::ops::Range;
use std::thread;
use std::time::{Duration, Instant};

use skep::{
    Client, ClientError, Condition, ConditionKind, Expiry, ExpiryChange, HASH_SPACE, Operation, PutCondition, Reply,
    Request, Responses, StringWrite, WireError,
};

use crate::failure::{reason, with_options};
use crate::transfer;

/// Pairs, and bytes of them, that are sent together; the client divides them into frames.
const BATCH_PAIRS_MAX: usize = 16 << 10;
const BATCH_BYTES_MAX: usize = 4 << 20;

/// The longest time for which a batch is sent again while the server is busy, and the pause before that.
const PATIENCE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(5);

/// Checks that the server has a space.
pub(super) fn has_space(client: &mut Client, space: u16) -> Result<(), String> {
    client.select(space);
    match client.contains(b"x") {
        Ok(_) => Ok(()),
        Err(ClientError::Rejected(WireError::Busy | WireError::TooFast)) => Ok(()),
        Err(error) => Err(reason(&error)),
    }
}

/// Pairs of one space that are sent together.
pub(super) struct Batch {
    client: Client,
    space: u16,
    /// Keys and values.
    bytes: Vec<u8>,
    pairs: Vec<Pair>,
    /// Number of pairs that the server has acknowledged.
    pub(super) sent: u64,
    /// The number of the last entry of the source that was added, and that of the last one that was acknowledged.
    added: u64,
    pub(super) acknowledged: u64,
}

struct Pair {
    key: Range<usize>,
    value: Range<usize>,
    expiry: ExpiryChange,
}

impl Batch {
    pub(super) fn new(client: Client) -> Self {
        let (bytes, pairs) = (Vec::new(), Vec::new());
        Batch { client, space: HASH_SPACE, bytes, pairs, sent: 0, added: 0, acknowledged: 0 }
    }

    /// Adds a pair, which is the entry of this number, and first sends those before it if they are many or of another space.
    pub(super) fn push(&mut self, number: u64, pair: &transfer::Pair<'_>) -> Result<(), String> {
        let transfer::Pair { space, key, value, expiry } = *pair;
        let is_full = self.pairs.len() == BATCH_PAIRS_MAX || self.bytes.len() >= BATCH_BYTES_MAX;
        if is_full || self.space != space {
            self.send()?;
            self.space = space;
        }
        let key_begin = self.bytes.len();
        self.bytes.extend_from_slice(key);
        let value_begin = self.bytes.len();
        self.bytes.extend_from_slice(value);
        // No key lives until the latest expiry, which is a million years away.
        let set = |time| ExpiryChange::set(Expiry::at(time).unwrap_or(Expiry::MAX));
        self.pairs.push(Pair {
            key: key_begin..value_begin,
            value: value_begin..self.bytes.len(),
            expiry: expiry.map_or(ExpiryChange::CLEAR, set),
        });
        self.added = number;
        Ok(())
    }

    /// Sends the pairs. Sends those again that the server refuses for a while: it is busy, or its disk has stopped.
    pub(super) fn send(&mut self) -> Result<(), String> {
        self.client.select(self.space);
        let until = Instant::now() + PATIENCE;
        let mut responses = Responses::default();
        while !self.pairs.is_empty() {
            let requests: Vec<_> = self.pairs.iter().map(|pair| request(pair, &self.bytes)).collect();
            self.client.execute(&requests, &mut responses).map_err(|error| reason(&error))?;
            let mut refused = Vec::new();
            for (pair, response) in self.pairs.drain(..).zip(responses.iter()) {
                let key = &self.bytes[pair.key.clone()];
                match response {
                    Ok(Reply::Done) => self.sent += 1,
                    Err(WireError::Busy | WireError::TooFast | WireError::NotDurable) if Instant::now() < until => {
                        refused.push(pair);
                    }
                    Ok(Reply::Failed(error)) => {
                        return Err(format!("key `{}`: {}", key.escape_ascii(), with_options(error)));
                    }
                    Err(error) => return Err(format!("key `{}`: {error}", key.escape_ascii())),
                    Ok(_) => return Err(format!("key `{}` has a reply to another request", key.escape_ascii())),
                }
            }
            if !refused.is_empty() {
                thread::sleep(PAUSE);
            }
            self.pairs = refused;
        }
        self.bytes.clear();
        self.acknowledged = self.added;
        Ok(())
    }
}

fn request<'a>(pair: &Pair, bytes: &'a [u8]) -> Request<'a> {
    let value = &bytes[pair.value.clone()];
    let operation = match pair.expiry {
        ExpiryChange::CLEAR => Operation::Put { value, condition: PutCondition::Always },
        expiry => {
            let condition = Condition { kind: ConditionKind::Always, operand: &[] };
            Operation::StringWrite(StringWrite::Set { value, condition, expiry, return_old: false })
        }
    };
    Request { key: &bytes[pair.key.clone()], operation }
}
