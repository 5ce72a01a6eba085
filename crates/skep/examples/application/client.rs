//! A client that counts its traffic, and the loop that changes values without functions.

use skep::{Client, Condition, ConditionKind, ExpiryChange, Operation, Reply, Request, Responses, StringWrite};

/// The bytes of keys, operands and replies, without the headers of frames and packets.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Traffic {
    pub(crate) operations: u64,
    pub(crate) sent: u64,
    pub(crate) received: u64,
}

/// A client that counts its traffic.
pub(crate) struct CountingClient {
    client: Client,
    responses: Responses,
    pub(crate) traffic: Traffic,
}

impl CountingClient {
    pub(crate) fn new(client: Client) -> CountingClient {
        CountingClient { client, responses: Responses::default(), traffic: Traffic::default() }
    }

    /// Executes requests in one batch, and calls `on_reply` with each reply in order.
    pub(crate) fn execute(
        &mut self,
        requests: &[Request<'_>],
        mut on_reply: impl FnMut(usize, Reply<'_>) -> Result<(), String>,
    ) -> Result<(), String> {
        self.client.execute(requests, &mut self.responses).map_err(|error| error.to_string())?;
        self.traffic.operations += requests.len() as u64;
        self.traffic.sent += requests.iter().map(|request| request.size() as u64).sum::<u64>();
        for (index, response) in self.responses.iter().enumerate() {
            let reply = response.map_err(|error| error.to_string())?;
            if let Reply::Value(value) = reply {
                self.traffic.received += value.len() as u64;
            }
            on_reply(index, reply)?;
        }
        Ok(())
    }

    /// Executes requests that return nothing.
    pub(crate) fn done(&mut self, requests: &[Request<'_>]) -> Result<(), String> {
        self.execute(requests, |_, reply| if reply == Reply::Done { Ok(()) } else { Err(unexpected(reply)) })
    }

    /// Executes a request that returns a value.
    pub(crate) fn value(&mut self, key: &[u8], operation: Operation<'_>) -> Result<Vec<u8>, String> {
        let mut found = Vec::new();
        self.execute(&[Request { key, operation }], |_, reply| match reply {
            Reply::Value(value) => {
                found.extend_from_slice(value);
                Ok(())
            }
            reply => Err(unexpected(reply)),
        })?;
        Ok(found)
    }

    /// Returns the values of keys; `None` for those that are missing.
    pub(crate) fn values(&mut self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>, String> {
        let gets: Vec<_> = keys.iter().map(|key| Request { key, operation: Operation::Get }).collect();
        let mut values = Vec::with_capacity(keys.len());
        self.execute(&gets, |_, reply| {
            values.push(match reply {
                Reply::Value(value) => Some(value.to_vec()),
                Reply::NotFound => None,
                reply => return Err(unexpected(reply)),
            });
            Ok(())
        })?;
        Ok(values)
    }

    /// Changes values without functions: gets them, computes, and sets each one if it has not changed since. Repeats that
    /// for those that have. `compute` gets the index of a key and its value, and returns the new value.
    pub(crate) fn get_compute_set(
        &mut self,
        keys: &[&[u8]],
        mut compute: impl FnMut(usize, Option<&[u8]>) -> Result<Vec<u8>, String>,
    ) -> Result<(), String> {
        let mut left: Vec<usize> = (0..keys.len()).collect();
        while !left.is_empty() {
            let old = self.values(&left.iter().map(|index| keys[*index]).collect::<Vec<_>>())?;
            let new = left.iter().zip(&old).map(|(index, old)| compute(*index, old.as_deref()));
            let new = new.collect::<Result<Vec<_>, _>>()?;
            // A long value is compared by its digest.
            let expected: Vec<(ConditionKind, Vec<u8>)> = old.iter().map(|old| expected(old.as_deref())).collect();
            let sets = left.iter().zip(expected.iter().zip(&new)).map(|(index, ((kind, operand), value))| {
                let condition = Condition { kind: *kind, operand };
                let write = StringWrite::Set { value, condition, expiry: ExpiryChange::KEEP, return_old: false };
                Request { key: keys[*index], operation: Operation::StringWrite(write) }
            });
            let mut changed = Vec::new();
            self.execute(&sets.collect::<Vec<_>>(), |number, reply| match reply {
                Reply::Done => Ok(()),
                Reply::Exists => {
                    changed.push(left[number]);
                    Ok(())
                }
                reply => Err(unexpected(reply)),
            })?;
            left = changed;
        }
        Ok(())
    }
}

/// Returns the kind and the operand of the condition that a value has not changed.
fn expected(value: Option<&[u8]>) -> (ConditionKind, Vec<u8>) {
    match value {
        None => (ConditionKind::IfAbsent, Vec::new()),
        Some(value) if value.len() <= 8 => (ConditionKind::IfEqual, value.to_vec()),
        Some(value) => (ConditionKind::IfDigest, skep_core::operation::digest(value).to_le_bytes().to_vec()),
    }
}

/// Describes a reply that no correct server sends.
pub(crate) fn unexpected(reply: Reply<'_>) -> String {
    match reply {
        Reply::Failed(error) => format!("the server replied: {error}"),
        reply => format!("the server sent a reply to another request: {reply:?}"),
    }
}
