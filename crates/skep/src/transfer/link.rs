//! A connection to a RESP port on which many commands are in flight.
//!
//! Commands are sent in groups of a bounded number of bytes, and the replies to a group are read before the next
//! group is sent. So neither end waits for the other one to read. The first failure of the connection ends the
//! exchange. A server that is loading its data, or that runs a script, is asked again for some time.

use std::thread;
use std::time::{Duration, Instant};

use redis::{Cmd, Connection, FromRedisValue, RedisError, Value};

use crate::failure::Failure;
use crate::password::Login;
use crate::resp_link::{connect, describe, without_password};

/// Bytes of commands that are sent before their replies are read, unless one command has more.
const GROUP_BYTES: usize = 256 << 10;
/// The longest time for which a server that is busy is asked again although it replies to no command, and the pause
/// before that.
const PATIENCE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(50);

/// A connection, and the name of its server.
pub(super) struct Link {
    connection: Connection,
    pub(super) name: String,
    patience: Duration,
}

impl Link {
    pub(super) fn connect(login: &Login) -> Result<Link, Failure> {
        Ok(Link { connection: connect(login)?, name: without_password(&login.address), patience: PATIENCE })
    }

    /// Sends commands. Returns their replies, of which some may be errors.
    pub(super) fn ask(&mut self, commands: impl IntoIterator<Item = Cmd>) -> Result<Vec<Value>, Failure> {
        let commands: Vec<Vec<u8>> = commands.into_iter().map(|command| command.get_packed_command()).collect();
        let mut until = Instant::now() + self.patience;
        let mut replies = Vec::with_capacity(commands.len());
        while replies.len() < commands.len() {
            let rest = &commands[replies.len()..];
            let mut bytes = 0;
            let is_within = |command: &&Vec<u8>| {
                bytes += command.len();
                bytes <= GROUP_BYTES
            };
            let count = rest.iter().take_while(is_within).count().max(1);
            let mut group = self.exchange(&rest[..count])?;
            // The commands after one that was refused are sent again too, so that all keep their order.
            if let Some(refused) = group.iter().position(is_busy).filter(|_| Instant::now() < until) {
                group.truncate(refused);
                thread::sleep(PAUSE);
            }
            if !group.is_empty() {
                until = Instant::now() + self.patience;
            }
            replies.append(&mut group);
        }
        Ok(replies)
    }

    /// Sends commands, and reads as many replies.
    fn exchange(&mut self, commands: &[Vec<u8>]) -> Result<Vec<Value>, Failure> {
        self.connection.send_packed_command(&commands.concat()).map_err(|error| self.failed(&error))?;
        let replies = (0..commands.len()).map(|_| self.connection.recv_response()).collect::<Result<_, _>>();
        replies.map_err(|error| self.failed(&error))
    }

    /// Sends a command. Fails if its reply is an error.
    pub(super) fn query<T: FromRedisValue>(&mut self, command: &Cmd) -> Result<T, Failure> {
        let reply = self.ask([command.clone()])?.pop().unwrap_or(Value::Nil);
        self.value(reply)
    }

    /// Returns the value of a reply that is no error.
    pub(super) fn value<T: FromRedisValue>(&self, reply: Value) -> Result<T, Failure> {
        let reply = reply.extract_error().map_err(|error| self.failed(&error))?;
        T::from_redis_value(reply).map_err(|_| self.odd())
    }

    /// Returns the failure of the server, or of the connection.
    pub(super) fn failed(&self, error: &RedisError) -> Failure {
        Failure::Runtime(format!("{}: {}", self.name, describe(error)))
    }

    /// Returns the failure of a server whose reply does not fit.
    pub(super) fn odd(&self) -> Failure {
        Failure::Runtime(format!("{} has sent a reply to another command: is it a server of Redis?", self.name))
    }
}

fn is_busy(reply: &Value) -> bool {
    matches!(reply, Value::ServerError(error) if ["LOADING", "BUSY"].contains(&error.code()))
}

/// Returns true if a reply is an error with this text.
pub(super) fn says(reply: &Value, text: &str) -> bool {
    matches!(reply, Value::ServerError(error) if error.details().is_some_and(|all| all.contains(text)))
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::net::TcpListener;

    use skep::ClientSettings;

    use super::*;

    /// Starts a server that is busy, except for one `PING` in each pause. Returns its URL.
    fn start_busy() -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("redis://{}", listener.local_addr().unwrap());
        thread::spawn(move || {
            let mut output = listener.accept().unwrap().0;
            let mut lines = BufReader::new(output.try_clone().unwrap()).lines();
            let mut executed_at = Instant::now();
            // A command is the number of its words, and two lines for each word.
            while let Some(Ok(head)) = lines.next() {
                let words: usize = head[1..].parse().unwrap();
                let command: Vec<_> = lines.by_ref().take(2 * words).map(Result::unwrap).collect();
                let is_busy = command[1] == "PING" && executed_at.elapsed() < PAUSE;
                if !is_busy {
                    executed_at = Instant::now();
                }
                output.write_all(if is_busy { b"-BUSY wait\r\n" } else { b"+OK\r\n" }).unwrap();
            }
        });
        url
    }

    #[test]
    fn a_busy_server_is_asked_again_as_long_as_it_replies_to_commands() {
        let mut link = Link::connect(&Login { address: start_busy(), settings: ClientSettings::default() }).unwrap();
        link.patience = 5 * PAUSE;
        let begun = Instant::now();
        let replies = link.ask((0..10).map(|_| redis::cmd("PING"))).unwrap();
        assert_eq!(replies, vec![Value::Okay; 10]);
        assert!(begun.elapsed() > link.patience, "the replies have taken too little time for this test");
    }
}
