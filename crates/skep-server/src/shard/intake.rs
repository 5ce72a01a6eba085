//! How a connection comes to its shard.
//!
//! ```text
//!   listener ─▶ accept ─▶ hand over ─▶ adopt ─▶ take: epoll knows it, it stands in the queue
//!   hello ────▶ greet ───────┘
//! ```
//!
//! The first shard accepts for all. A RESP connection goes to each shard in turn; a native one goes where its hello
//! says, with what has arrived behind it.

use std::net::TcpStream;
use std::sync::atomic::Ordering;
use std::time::Instant;

use rustix::event::epoll::{self, EventData, EventFlags};
use skep_wire::native::{Hello, REQUEST_FRAME_SIZE_MAX, Welcome};

use super::Shard;
use crate::chunk::Chunk;
use crate::connection::{Connection, addresses};
use crate::connections::Token;
use crate::listen::Door;
use crate::resp_chunk::RespChunk;

impl Shard {
    /// Accepts connections.
    pub(super) fn accept(&mut self, door: Door) {
        let Some(mut listeners) = self.parts.listeners.take() else { return };
        let mut streams = Vec::new();
        listeners.accept(&self.epoll, door, |stream| streams.push(stream));
        self.parts.listeners = Some(listeners);
        for stream in streams {
            self.welcome_stream(stream, door);
        }
    }

    /// Gives an accepted connection to the shard where it begins.
    fn welcome_stream(&mut self, stream: TcpStream, door: Door) {
        let shared = &self.parts.shared;
        if shared.connection_count.load(Ordering::Relaxed) >= shared.settings.connections_max {
            self.metrics().connections_refused.add(1);
            if door == Door::Resp {
                // The socket is new: this fits, or the peer is gone.
                let _ = std::io::Write::write(&mut &stream, b"-ERR max number of clients reached\r\n");
            }
            return;
        }
        let Ok((address, local_address)) = addresses(&stream) else { return };
        let (protocol, chunk, shard) = match door {
            Door::Native => (0, Chunk::Hello, self.parts.index),
            Door::Resp => (2, Chunk::Resp(RespChunk::new(shared.spaces())), shared.any_shard()),
        };
        let number = shared.enter(address, local_address, protocol);
        self.metrics().connections_accepted.add(1);
        self.hand_over(Box::new(Connection::new(stream, number, chunk)), shard);
    }

    /// Gives a connection to a shard.
    fn hand_over(&mut self, connection: Box<Connection>, shard: u16) {
        if shard == self.parts.index {
            self.take(connection);
            return;
        }
        let mut connection = connection;
        connection.leave(&mut self.purse);
        let handover = &self.parts.handovers[usize::from(shard)];
        match handover.sender.send(connection) {
            Ok(()) => handover.waker.wake(),
            Err(refused) => self.parts.shared.leave(refused.0.number),
        }
    }

    /// Takes the connections that other shards hand over.
    pub(super) fn adopt(&mut self) {
        while let Ok(connection) = self.parts.adopted.try_recv() {
            self.take(connection);
        }
    }

    /// Makes a connection one of this shard's.
    fn take(&mut self, connection: Box<Connection>) {
        let number = connection.number;
        let token = self.connections.insert(connection);
        let Some(connection) = self.connections.get_mut(token) else { return };
        // It may have waited in another shard, which counts turns of its own.
        connection.waits_since = None;
        connection.waits_for_memory = false;
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        if epoll::add(&self.epoll, connection.stream(), EventData::new_u64(token.to_u64()), flags).is_err() {
            self.connections.remove(token);
            self.parts.shared.leave(number);
            return;
        }
        connection.settle(&mut self.purse);
        if self.stop_until.is_some() {
            let metrics = self.parts.shared.metrics(usize::from(self.parts.index));
            connection.end_input(metrics, Instant::now(), &mut self.purse);
        }
        self.queue(token);
    }

    /// Answers the hello of a native connection; answers whether that moved it to another shard.
    pub(super) fn greet(&mut self, token: Token, hello: &Hello) -> bool {
        let shared = self.parts.shared.clone();
        let shard_count = shared.settings.shards;
        let shard = hello.shard.filter(|&shard| shard < shard_count).unwrap_or_else(|| shared.any_shard());
        let Some(connection) = self.connections.get_mut(token) else { return true };
        connection.welcome(
            &Welcome {
                shard_count,
                shard,
                frame_size_max: REQUEST_FRAME_SIZE_MAX as u32,
                partition_seed: shared.partition_seed,
            },
            shared.spaces(),
        );
        if shard == self.parts.index {
            // The next turn decodes what came with the hello.
            return false;
        }
        // The only failure is a socket that is not registered.
        let _ = epoll::delete(&self.epoll, connection.stream());
        if let Some(connection) = self.connections.remove(token) {
            self.hand_over(connection, shard);
        }
        true
    }
}
