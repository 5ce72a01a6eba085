//! The path of a connection to its shard.
//!
//! ```text
//!   listener ─▶ accept ─▶ hand over ─▶ accept_handed_over ─▶ take: the poller knows it, and it is in the queue
//!   hello ─▶ handshake ────────┘
//! ```
//!
//! The first shard accepts for all. RESP and memcached connections are distributed over the shards in rotation. A native
//! one is handed over to the shard that its hello names, with the bytes that arrived after the hello.

use std::io::Read;
use std::sync::Arc;
use std::time::Instant;

use skep_wire::native::{Hello, PASSWORD_SIZE_MAX, REQUEST_FRAME_SIZE_MAX, Refusal, Welcome};

use super::{Message, Shard};
use crate::access::Login;
use crate::connection::Connection;
use crate::endpoint::{Endpoint, MemoryWait};
use crate::front_end::FrontEnd;
use crate::limits::{ARRIVALS_IN_TURN_MAX, CLIENT_WORK, TURN_ARRIVALS_WORK};
use crate::memcached_batch::MemcachedBatch;
use crate::memcached_counts::Count;
use crate::parsed_batch::ParsedBatch;
use crate::resp_batch::RespBatch;
use crate::resp_command::Session;
use crate::transport::memcached_datagram::MemcachedSocket;
use crate::transport::poller::Source;
use crate::transport::shared_memory::SharedMemory;
use crate::transport::tcp::Tcp;
use crate::transport::tls::Tls;
use crate::transport::{Event, Transport};
use crate::vocabulary::Token;

/// The reply to a RESP client on another machine in protected mode. Clients know its prefix.
const DENIED: &[u8] =
    b"-DENIED Skep has no password, so it serves only clients on its own machine (protected mode). To \
serve others, give it a password (--requirepass-file, or CONFIG SET requirepass on its machine), users (--acl-file, with \
`user default off`) or certificates of clients (--tls-client-ca), or allow every client everything (--protected-mode no).\r\n";

/// The replies to clients without a login when the default user has as many connections as it may have.
const USER_FULL: &[u8] = b"-ERR max number of clients of this user reached\r\n";
const MEMCACHED_USER_FULL: &[u8] = b"SERVER_ERROR the user has too many connections\r\n";

/// The replies to clients that do not speak TLS at a port that does. Those of the native protocol know the alert of TLS.
const PLAIN: &[u8] = b"-ERR this port speaks TLS: connect with TLS (redis-cli --tls, rediss://)\r\n";
const MEMCACHED_PLAIN: &[u8] = b"SERVER_ERROR this port speaks TLS\r\n";

/// The same for a client of memcached.
const MEMCACHED_DENIED: &[u8] =
    b"SERVER_ERROR Skep has no password, so it serves only clients on its own machine (protected mode)\r\n";

impl Shard {
    /// Accepts connections.
    pub(super) fn accept(&mut self, front_end: FrontEnd, now: Instant) {
        let Some(mut listeners) = self.parts.listeners.take() else { return };
        let mut accepted = Vec::new();
        let keepalive = self.parts.shared.adjustable.tcp_keepalive.get();
        listeners.accept(&self.poller, front_end, keepalive, now, |tcp| accepted.push(tcp));
        self.parts.listeners = Some(listeners);
        for tcp in accepted {
            self.welcome_socket(tcp, front_end, now);
        }
    }

    /// Gives an accepted connection to the shard where it begins.
    fn welcome_socket(&mut self, tcp: Tcp, front_end: FrontEnd, now: Instant) {
        let shared = &self.parts.shared;
        if shared.connection_count() >= shared.settings.connections_max {
            self.metrics().connections.refused.add(1);
            // The socket is new: its buffer has room for this, or the peer has closed it. A handshake is work, so that a
            // client which asks for one sees the end of the connection.
            let _ = match front_end {
                _ if shared.access.certificates.is_some() => return,
                FrontEnd::Native => tcp.write(&Refusal::Full.encode()),
                FrontEnd::Resp => tcp.write(b"-ERR max number of clients reached\r\n"),
                FrontEnd::Memcached => tcp.write(b"ERROR Too many open connections\r\n"),
            };
            // A close with a hello that was not read would destroy the reply.
            let _ = (&Transport::Tcp(tcp)).read(&mut [0; Hello::SIZE + PASSWORD_SIZE_MAX]);
            return;
        }
        let Ok((address, local_address)) = tcp.addresses() else { return };
        let Some(transport) = self.secure(tcp, front_end) else { return };
        let shared = &self.parts.shared;
        // A native client is refused after its hello.
        let is_denied =
            front_end != FrontEnd::Native && !transport.proves_client() && !shared.access.admits(address.ip());
        let login = Login::anonymous(&shared.access);
        let is_full = login.is_none() && front_end != FrontEnd::Native;
        let login = login.unwrap_or_default();
        let (protocol, parsed, shard) = match front_end {
            FrontEnd::Native => (0, ParsedBatch::Handshake, self.parts.index),
            FrontEnd::Resp => {
                let parsed = RespBatch::boxed(shared.spaces(), Session::new(login));
                (2, ParsedBatch::Resp(parsed), shared.any_shard())
            }
            FrontEnd::Memcached => {
                let parsed = MemcachedBatch::boxed(&shared.settings, login, Arc::clone(&shared.cache_flushes));
                (0, ParsedBatch::Memcached(parsed), shared.any_shard())
            }
        };
        let number = shared.enter(address, local_address, protocol);
        self.metrics().connections.accepted.add(1);
        let mut connection = Connection::new(number, parsed, now);
        if is_denied {
            self.metrics().connections.denied.add(1);
            connection.reject(if front_end == FrontEnd::Resp { DENIED } else { MEMCACHED_DENIED });
        }
        if is_full {
            self.metrics().connections.refused.add(1);
            connection.reject(if front_end == FrontEnd::Resp { USER_FULL } else { MEMCACHED_USER_FULL });
        }
        let endpoint = Endpoint::new(connection, transport);
        self.hand_over(Box::new(endpoint), shard, now);
    }

    /// Returns the transport of an accepted socket: with TLS, if the server has a certificate.
    fn secure(&self, tcp: Tcp, front_end: FrontEnd) -> Option<Transport> {
        let Some(certificates) = &self.parts.shared.access.certificates else { return Some(Transport::Tcp(tcp)) };
        let plain_reply = match front_end {
            FrontEnd::Native => &[],
            FrontEnd::Resp => PLAIN,
            FrontEnd::Memcached => MEMCACHED_PLAIN,
        };
        let tls = Tls::new(tcp, certificates, plain_reply);
        let tls = tls.inspect_err(|error| tracing::warn!(%error, "cannot begin a TLS session"));
        Some(Transport::Tls(Box::new(tls.ok()?)))
    }

    /// Begins a connection for each datagram of a memcached client that has arrived, up to a bound.
    pub(super) fn receive_memcached_datagrams(&mut self, now: Instant) {
        for _ in 0..ARRIVALS_IN_TURN_MAX {
            if self.turn.account.spent() >= TURN_ARRIVALS_WORK {
                return;
            }
            let Some(received) = self.parts.memcached_socket.as_mut().and_then(MemcachedSocket::receive) else {
                return;
            };
            let shared = &self.parts.shared;
            match received {
                Ok(datagram) => {
                    let (peer, local) = datagram.addresses();
                    self.turn.account.spend_operations(1, CLIENT_WORK + datagram.size());
                    let number = shared.enter_datagram(peer, local);
                    let login = Login::anonymous_again(None, &shared.access);
                    let flushes = Arc::clone(&shared.cache_flushes);
                    let parsed = ParsedBatch::Memcached(MemcachedBatch::boxed(&shared.settings, login, flushes));
                    self.metrics().memcached.add(Count::Datagrams, 1);
                    let mut connection = Connection::new(number, parsed, now);
                    // No more than the datagram arrives. If it would have to wait for memory or a pause, it is dropped.
                    connection.on_event(Event { is_finished: true, ..Event::default() });
                    let endpoint = Endpoint::new(connection, Transport::MemcachedDatagram(Box::new(datagram)));
                    self.take(Box::new(endpoint), now);
                }
                Err(reason) => self.metrics().memcached.add(reason, 1),
            }
        }
    }

    /// Begins a connection over shared memory: it is native, and waits for its hello.
    pub(super) fn welcome_shared_memory(&mut self, memory: SharedMemory, now: Instant) {
        let shared = &self.parts.shared;
        if shared.connection_count() >= shared.settings.connections_max {
            self.metrics().connections.refused.add(1);
            // The files of the client keep it after the end.
            let _ = memory.end().send(&Refusal::Full.encode());
            return;
        }
        let number = shared.enter(memory.address(), memory.address(), 0);
        self.metrics().connections.accepted.add(1);
        let connection = Connection::new(number, ParsedBatch::Handshake, now);
        self.take(Box::new(Endpoint::new(connection, Transport::SharedMemory(memory))), now);
    }

    /// Gives a connection to a shard.
    fn hand_over(&mut self, mut endpoint: Box<Endpoint>, shard: u16, now: Instant) {
        if shard == self.parts.index {
            self.take(endpoint, now);
            return;
        }
        endpoint.connection.leave(&mut self.shard_budget);
        self.parts.shared.unsettle(endpoint.connection.number);
        let handover = &self.parts.handovers[usize::from(shard)];
        match handover.sender.send(endpoint) {
            Ok(()) => handover.waker.wake(),
            Err(refused) => self.parts.shared.leave(refused.0.connection.number),
        }
    }

    /// Takes the connections that other shards hand over, those of this one that were admitted to memory, and messages
    /// about stores.
    pub(super) fn accept_handed_over(&mut self, now: Instant) {
        self.take_admitted();
        while let Ok(endpoint) = self.parts.incoming.connections.try_recv() {
            self.take(endpoint, now);
        }
        while let Ok(message) = self.parts.incoming.messages.try_recv() {
            if let Message::Lend(_, _, time) | Message::GiveBack(_, time) = &message {
                // Keys that have expired in another shard's turn stay expired.
                self.turn.time = self.turn.time.max(*time);
            }
            self.holds.take(message);
        }
    }

    /// Adds a connection to this shard, and returns its token unless it has ended.
    pub(super) fn take(&mut self, mut endpoint: Box<Endpoint>, now: Instant) -> Option<Token> {
        let number = endpoint.connection.number;
        // It may have waited in another shard, which counts its own turns.
        (endpoint.is_queued, endpoint.waits_since, endpoint.memory_wait) = (false, None, MemoryWait::Nowhere);
        endpoint.is_polled = false;
        let token = self.connections.insert(endpoint);
        let endpoint = self.connections.get_mut(token)?;
        if endpoint.transport.register(&self.poller, Source::Connection(token)).is_err() {
            self.connections.remove(token);
            self.parts.shared.leave(number);
            return None;
        }
        match self.parts.shared.settle(number, self.parts.index, token) {
            Some(activity) => endpoint.activity = activity,
            None => {
                self.close(token);
                return None;
            }
        }
        endpoint.connection.record_memory(&mut self.shard_budget);
        if self.stop.until.is_some() {
            let metrics = self.parts.shared.metrics(usize::from(self.parts.index));
            endpoint.end_input(metrics, now, &mut self.shard_budget);
        }
        self.poll_words_of(token);
        self.queue(token);
        Some(token)
    }

    /// Replies to the hello of a native connection. Returns true if the connection has left this shard: it was handed over
    /// to another one, or has ended.
    pub(super) fn handshake(&mut self, token: Token, hello: &Hello, now: Instant) -> bool {
        let shared = self.parts.shared.clone();
        let shard_count = shared.settings.shards;
        let Some(endpoint) = self.connections.get_mut(token) else { return true };
        let shard = match hello.shard {
            _ if endpoint.transport.belongs_to_shard() => self.parts.index,
            Some(shard) if shard < shard_count => shard,
            _ => shared.any_shard(),
        };
        let Ok((address, _)) = endpoint.transport.addresses() else {
            // The transport has ended. Bytes that arrived before are not taken from a client that was not checked.
            self.close(token);
            return true;
        };
        let is_known = endpoint.transport.proves_client();
        let login = match shared.access.check_hello(address.ip(), is_known, hello, now) {
            Ok(login) => login,
            Err(refusal) => return self.refuse_hello(token, refusal),
        };
        if let Some(client) = shared.clients().get_mut(&endpoint.connection.number) {
            client.user = login.name().clone();
        }
        endpoint.connection.welcome(
            &Welcome {
                shard_count,
                shard,
                frame_size_max: REQUEST_FRAME_SIZE_MAX as u32,
                partition_seed: shared.partition_seed,
            },
            shared.spaces(),
            login,
        );
        if shard == self.parts.index {
            // The next turn decodes the bytes after the hello.
            return false;
        }
        endpoint.transport.deregister(&self.poller);
        if let Some(endpoint) = self.connections.remove(token) {
            self.hand_over(endpoint, shard, now);
        }
        true
    }

    /// Tells a native client why it is not served, and ends its connection. Returns false: it has not left the shard.
    fn refuse_hello(&mut self, token: Token, refusal: Refusal) -> bool {
        match refusal {
            Refusal::Protected => self.metrics().connections.denied.add(1),
            Refusal::Full | Refusal::UserFull | Refusal::Loading => self.metrics().connections.refused.add(1),
            Refusal::PasswordNeeded | Refusal::PasswordWrong | Refusal::TooManyGuesses => {
                self.metrics().passwords_refused.add(1);
            }
        }
        if let Some(connection) = self.connections.connection_mut(token) {
            connection.reject(&refusal.encode());
        }
        false
    }
}
