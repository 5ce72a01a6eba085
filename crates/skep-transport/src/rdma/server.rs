//! The server's side: the device of a shard, and the end of each client.
//!
//! A client that was accepted gets these objects: memory for its slots, a queue pair that takes its WRITEs, and a path for
//! replies to its machine. The first two are in a protection domain of the client alone. So it cannot write the slots of
//! another one, even if it guesses their key. One queue pair sends the replies to all clients of the shard.

use std::io::Result;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use super::port::{gid_of, open};
use super::sends::SendQueue;
use super::setup::{Acceptance, Request};
use super::slots::{SLOT_COUNT, SLOT_WORDS, Slots};
use super::verbs::{AddressHandle, Channel, Device, Domain, Kind, QueuePair, Region, Target};
use crate::datagram::Dropped;

/// WRITEs of a client that may raise a completion before the server looks at them. Further ones are lost.
const WAKEUPS_MAX: u32 = 32;

/// Creates the queue pair that sends replies.
fn reply_queue(domain: &Arc<Domain>) -> Result<SendQueue> {
    let replies = SendQueue::new(domain, Kind::Datagrams { key: 0 })?;
    replies.pair().begin()?;
    Ok(replies)
}

/// The RDMA device of a shard.
pub struct RdmaPort {
    replies: SendQueue,
    /// The paths of clients that have gone. Each is kept until the device has sent the replies that use it.
    retired: Vec<(u64, AddressHandle)>,
    domain: Arc<Domain>,
    channel: Arc<Channel>,
    device: Arc<Device>,
}

impl RdmaPort {
    /// Opens the device that has this IP address.
    pub fn open(address: IpAddr) -> Result<RdmaPort> {
        let device = open(address)?;
        let domain = Domain::new(&device)?;
        Ok(RdmaPort {
            replies: reply_queue(&domain)?,
            retired: Vec::new(),
            domain,
            channel: Channel::new(&device)?,
            device,
        })
    }

    /// Creates the end of a client at this address. Its wake-ups are events with this word.
    pub fn accept(&self, peer: IpAddr, request: &Request, session: u64, word: u64) -> Result<(RdmaEnd, Acceptance)> {
        let gid = gid_of(peer);
        let domain = Domain::new(&self.device)?;
        let memory = Region::new(&domain, SLOT_COUNT * SLOT_WORDS, true)?;
        let writes = QueuePair::new(&domain, Kind::Connected, [1, WAKEUPS_MAX], 0, Some((&self.channel, word)))?;
        writes.connect(gid, request.write_pair, 0, request.write_start)?;
        for _ in 0..WAKEUPS_MAX {
            writes.receive(0, None)?;
        }
        let machine = AddressHandle::new(&self.domain, gid)?;
        let acceptance = Acceptance {
            session,
            address: memory.address(),
            key: memory.remote_key(),
            pair: writes.number(),
            start: 0,
        };
        let Request { reply_pair, reply_key, .. } = *request;
        let slots = Slots::default();
        let end = RdmaEnd { writes, memory, slots, machine, reply_pair, reply_key, last_reply: 0, is_broken: false };
        Ok((end, acceptance))
    }

    /// Returns the word of a client that wakes the shard.
    pub fn next_event(&self) -> Option<u64> {
        self.channel.next_event()
    }

    /// Returns true if there is room for a packet. All clients share the room. No event tells that there is some again.
    pub fn has_room(&mut self) -> bool {
        self.replies.has_room() || self.replies.is_broken()
    }

    /// Sends a packet to a client. Returns false if it is lost.
    pub fn send(&mut self, end: &mut RdmaEnd, packet: &mut Vec<u8>) -> bool {
        if self.replies.is_broken()
            && let Ok(replies) = reply_queue(&self.domain)
        {
            // Only a fault of the device breaks a queue pair for datagrams. The old one is destroyed with its sends.
            self.replies = replies;
            self.retired.clear();
        }
        packet.resize(packet.len().next_multiple_of(size_of::<u64>()), 0);
        let target = Target::Datagram { machine: &end.machine, pair: end.reply_pair, key: end.reply_key };
        let sent = self.replies.send(packet, target);
        end.last_reply = self.replies.posted();
        sent
    }

    /// Ends the access of a client to its slots.
    pub fn end(&mut self, end: RdmaEnd) {
        let done = self.replies.done();
        self.retired.retain(|(last_reply, _)| *last_reply > done);
        if end.last_reply > done {
            self.retired.push((end.last_reply, end.machine));
        }
    }
}

impl AsFd for RdmaPort {
    /// Returns the descriptor that is readable when there are events.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }
}

impl std::fmt::Debug for RdmaPort {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("RdmaPort").finish_non_exhaustive()
    }
}

/// The server's end of a client.
pub struct RdmaEnd {
    writes: QueuePair,
    memory: Region,
    slots: Slots,
    machine: AddressHandle,
    reply_pair: u32,
    reply_key: u32,
    /// The number of sends of the shard after its last reply.
    last_reply: u64,
    is_broken: bool,
}

impl RdmaEnd {
    /// Returns true if a packet may have arrived in one of the polled slots.
    #[inline]
    pub fn has_packet(&self) -> bool {
        self.slots.has_packet(self.memory.words())
    }

    /// Moves a packet to the buffer, of the polled slots or of all. Returns `None` if there is none, and the reason if it
    /// is malformed.
    pub fn take_packet(&mut self, all: bool, packet: &mut Vec<u8>) -> Option<std::result::Result<(), Dropped>> {
        self.slots.take(self.memory.words(), all, packet)
    }

    /// Takes the completions of wake-ups, so that there is room for others. Takes a bounded number, because a client
    /// may raise others meanwhile. Returns true if there may be more, or `None` if the client has broken its queue
    /// pair, for example by a WRITE outside of its slots.
    pub fn take_wakeups(&mut self) -> Option<bool> {
        let mut has_more = true;
        for _ in 0..WAKEUPS_MAX {
            let Some(completion) = self.writes.next_received() else {
                has_more = false;
                break;
            };
            self.is_broken |= !completion.is_success || self.writes.receive(0, None).is_err();
        }
        (!self.is_broken).then_some(has_more)
    }

    /// Asks for an event with the next wake-up. Packets and wake-ups that arrived before raise none.
    pub fn arm(&mut self) {
        self.is_broken |= self.writes.arm().is_err();
    }
}

impl std::fmt::Debug for RdmaEnd {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("RdmaEnd").finish_non_exhaustive()
    }
}
