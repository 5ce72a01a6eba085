//! `CLIENT KILL`: the choice of connections, and their end.
//!
//! A command looks at connections until the account of the turn is spent, at some in any case, and continues in the next turn.

use std::time::Duration;

use skep_wire::resp::ReplyWriter;

use super::{Arguments, Context, Session, decimal, excerpt};
use crate::limits::{CLIENT_WORK, CLIENTS_COPIED_MAX, LOOK_WORK};
use crate::shared::Client;
use crate::vocabulary::Address;

/// The connections that a `CLIENT KILL` is about: those that pass all conditions.
#[derive(Default)]
pub(super) struct ClientFilter {
    number: Option<u64>,
    address: Option<String>,
    local_address: Option<String>,
    user: Option<String>,
    age_min: Option<Duration>,
    /// No connection passes.
    is_empty: bool,
    /// The connection that sends the command passes too.
    includes_own: bool,
}

/// Returns true for the type of all connections that there are, false for other types.
pub(super) fn is_normal(name: &[u8]) -> Result<bool, String> {
    match name.to_ascii_lowercase().as_slice() {
        b"normal" => Ok(true),
        b"master" | b"slave" | b"replica" | b"pubsub" => Ok(false),
        _ => Err(format!("ERR Unknown client type '{}'", excerpt(name, 128))),
    }
}

impl ClientFilter {
    /// Runs `CLIENT KILL address`, or `CLIENT KILL` with pairs of an option and a value.
    pub(super) fn kill(
        arguments: Arguments<'_>,
        writer: &mut ReplyWriter<'_>,
        session: &mut Session,
        context: &mut Context<'_>,
    ) -> Result<(), String> {
        let is_old_form = arguments.count() == 3;
        let filter = if is_old_form {
            let address = arguments.text(2).into_owned();
            ClientFilter { address: Some(address), includes_own: true, ..ClientFilter::default() }
        } else {
            Self::decode(arguments, context)?
        };
        let (mut next, mut killed) = std::mem::take(&mut session.kill_progress);
        let end = filter.number.map_or(u64::MAX, |number| number.saturating_add(1));
        next = next.max(filter.number.unwrap_or(0));
        // The lock is given back after a few connections.
        loop {
            let mut clients = context.shared.clients();
            let mut last = None;
            for (&number, client) in clients.range_mut(next..end).take(CLIENTS_COPIED_MAX) {
                last = Some(number);
                context.account.spend(filter.work());
                if !filter.passes(number, client, context) {
                    continue;
                }
                if number == context.connection {
                    // It ends after its reply.
                    context.outcome.closing = true;
                    killed += 1;
                } else {
                    killed += i64::from(context.shared.kill(client));
                }
                if is_old_form {
                    last = None;
                    break;
                }
            }
            next = last.map_or(end, |last| last + 1);
            if next >= end || context.account.is_spent() {
                break;
            }
        }
        if killed > 0 {
            context.wake_shards();
        }
        if next < end {
            session.kill_progress = (next, killed);
            context.outcome.is_postponed = true;
        } else if !is_old_form {
            writer.integer(killed);
        } else if killed > 0 {
            writer.simple("OK");
        } else {
            return Err("ERR No such client".to_owned());
        }
        Ok(())
    }

    fn decode(arguments: Arguments<'_>, context: &Context<'_>) -> Result<ClientFilter, String> {
        let mut filter = ClientFilter::default();
        let mut index = 2;
        while index < arguments.count() {
            if index + 1 == arguments.count() {
                return Err("ERR syntax error".to_owned());
            }
            let value = arguments.get(index + 1);
            let text = || arguments.text(index + 1).into_owned();
            if arguments.is(index, "id") {
                let number = decimal(value).and_then(|number| u64::try_from(number).ok()).filter(|&number| number > 0);
                filter.number = Some(number.ok_or("ERR client-id should be greater than 0")?);
            } else if arguments.is(index, "type") {
                filter.is_empty |= !is_normal(value)?;
            } else if arguments.is(index, "addr") {
                filter.address = Some(text());
            } else if arguments.is(index, "laddr") {
                filter.local_address = Some(text());
            } else if arguments.is(index, "user") {
                let name = std::str::from_utf8(value).ok().filter(|name| context.shared.access.user(name).is_some());
                let name = name.ok_or_else(|| format!("ERR No such user '{}'", excerpt(value, 128)))?;
                filter.user = Some(name.to_owned());
            } else if arguments.is(index, "maxage") {
                let seconds = decimal(value).and_then(|number| u64::try_from(number).ok());
                let seconds = seconds.filter(|&seconds| seconds > 0);
                let seconds = seconds.ok_or("ERR maxage is not an integer or out of range")?;
                filter.age_min = Some(Duration::from_secs(seconds));
            } else if arguments.is(index, "skipme") && arguments.is(index + 1, "yes") {
                filter.includes_own = false;
            } else if arguments.is(index, "skipme") && arguments.is(index + 1, "no") {
                filter.includes_own = true;
            } else {
                return Err("ERR syntax error".to_owned());
            }
            index += 2;
        }
        Ok(filter)
    }

    /// Returns the work of a look at a connection, in bytes touched.
    fn work(&self) -> usize {
        let is_text = self.address.is_some() || self.local_address.is_some();
        if is_text { CLIENT_WORK } else { LOOK_WORK }
    }

    fn passes(&self, number: u64, client: &Client, context: &Context<'_>) -> bool {
        let is = |wanted: &Option<String>, address: &Address| {
            wanted.as_ref().is_none_or(|wanted| *wanted == address.to_string())
        };
        !self.is_empty
            && (self.includes_own || number != context.connection)
            && self.age_min.is_none_or(|age| client.since.elapsed() >= age)
            && self.user.as_ref().is_none_or(|user| **user == *client.user)
            && is(&self.address, &client.address)
            && is(&self.local_address, &client.local_address)
    }
}
