//! What the connections of a shard wait for: one list for each cause.
//!
//! | list | its connections wait |
//! |---|---|
//! | `ready` | for their turn |
//! | `postponed` | for a turn with enough work left for a reply that the server makes itself |
//! | `aside` | until the shard may use its store again |
//! | `stuck` | for memory of the store: nothing before them in the batch has taken it |
//! | `returned` | for memory of another shard's store, which has sent their operations back |
//! | `slotless` | for a slot to send operations to another shard |
//! | `visits` | for a slot to send a command to another shard |
//! | `later` | for time for isolated commands of their effort |
//! | `starved` | for memory for a reply |
//! | `held` | for the end of a pause, or of `DEBUG SLEEP` |
//! | `awaiting` | until what their replies rest on is on disk; they go on meanwhile |
//! | `draining` | until their client has taken the last reply |
//!
//! A connection that is in none waits for its client, for a hold of shards (`hold.rs`), for a command that has begun, or for
//! its commands, which are at another shard. It is in one of the first eight at most, or held: then it
//! [is queued](crate::endpoint::Endpoint::is_queued). So it is while it waits for a hold or for a visit.

use std::collections::VecDeque;
use std::time::Instant;

use super::Shard;
use super::held::Held;
use super::later::Later;
use super::ready::ReadyQueue;
use super::returned::Returned;
use super::visits::WaitingVisits;
use crate::connection::Next;
use crate::exchange::Peer;
use crate::limits::STUCK_MAX;
use crate::vocabulary::{Reached, Token};

/// The connections that wait, by what they wait for.
pub(super) struct Waits {
    pub(super) ready: ReadyQueue,
    /// Connections whose next reply the server makes itself (such as that of `CLIENT LIST`), and did not fit the turn
    /// in which they were tried last.
    pub(super) postponed: VecDeque<Token>,
    /// Connections that wait until the shard may use its store again, each with whether it was costly.
    pub(super) aside: VecDeque<(Token, bool)>,
    /// Connections whose operations were deferred although no earlier operation of the batch was executed.
    pub(super) stuck: VecDeque<Token>,
    /// Connections whose operations another shard returned for lack of memory.
    pub(super) returned: Returned,
    /// Connections whose next operations belong to another shard, when there was no slot for a batch to it, by that shard.
    slotless: Vec<VecDeque<Token>>,
    /// Connections whose commands are to visit another shard, and that wait for a slot, by shard.
    pub(super) visits: Vec<WaitingVisits>,
    /// Connections whose commands visit other shards.
    pub(super) visits_away: usize,
    /// The slots that are promised in this turn to connections of `slotless`, by shard.
    promised: Vec<usize>,
    /// Isolated commands on the keys of this shard that wait for their turn.
    pub(super) later: Later,
    /// Connections that wait for memory.
    pub(super) starved: Vec<Token>,
    pub(super) held: Held,
    /// Connections with replies that wait for what they rest on to be on disk, in their order.
    pub(super) awaiting: VecDeque<(Reached, Token)>,
    pub(super) draining: Vec<Token>,
}

impl Waits {
    /// Creates empty lists for a server of this many shards.
    pub(super) fn new(shard_count: usize, now: Instant) -> Waits {
        Waits {
            ready: ReadyQueue::default(),
            postponed: VecDeque::new(),
            aside: VecDeque::new(),
            stuck: VecDeque::new(),
            returned: Returned::new(now),
            slotless: vec![VecDeque::new(); shard_count],
            visits: (0..shard_count).map(|_| WaitingVisits::default()).collect(),
            visits_away: 0,
            promised: vec![0; shard_count],
            later: Later::default(),
            starved: Vec::new(),
            held: Held::default(),
            awaiting: VecDeque::new(),
            draining: Vec::new(),
        }
    }

    /// Returns true if connections wait for nothing but their turn.
    pub(super) fn have_ready(&self) -> bool {
        !self.ready.is_empty() || !self.postponed.is_empty()
    }

    /// Returns true if a turn has connections to try.
    pub(super) fn have_work(&self) -> bool {
        self.have_ready() || !self.aside.is_empty() || !self.stuck.is_empty()
    }

    /// Returns true if connections wait for memory of stores.
    pub(super) fn have_stuck(&self) -> bool {
        !self.stuck.is_empty() || !self.returned.is_empty()
    }

    /// Returns the number of connections that wait for more than their turn.
    pub(super) fn blocked_count(&self) -> usize {
        let slotless = self.slotless.iter().map(VecDeque::len).sum::<usize>();
        let visits = self.visits.iter().map(WaitingVisits::len).sum::<usize>();
        self.stuck.len() + self.postponed.len() + self.returned.len() + self.later.len() + slotless + visits
    }

    /// Returns true if connections have waited for a slot, and there is one.
    pub(super) fn may_forward(&self, peers: &[Option<Peer>]) -> bool {
        let mut waiting = std::iter::zip(&self.slotless, &self.visits)
            .map(|(requests, visits)| !requests.is_empty() || visits.may_be_sent(peers.len()));
        let has_slot = |peer: &Option<Peer>| peer.as_ref().is_some_and(|peer| peer.slots() > 0);
        peers.iter().any(|peer| waiting.next() == Some(true) && has_slot(peer))
    }

    /// Begins a turn: no slots are promised.
    pub(super) fn begin_promises(&mut self) {
        self.promised.fill(0);
    }

    /// Takes a connection that has waited for a slot, if there are more slots than such connections were taken in this
    /// turn.
    pub(super) fn next_with_slot(&mut self, peers: &[Option<Peer>]) -> Option<Token> {
        let slots = peers.iter().map(|peer| peer.as_ref().map_or(0, Peer::slots));
        let mut waiting = self.slotless.iter_mut().zip(&mut self.promised).zip(slots);
        waiting.find_map(|((waiting, promised), slots)| {
            let token = if *promised < slots { waiting.pop_front() } else { None };
            *promised += usize::from(token.is_some());
            token
        })
    }

    /// Lets a connection wait for a slot to this shard.
    pub(super) fn push_slotless(&mut self, shard: usize, token: Token) {
        self.slotless[shard].push_back(token);
    }

    /// Returns how many stuck connections are tried in this turn. Each is the first one in one of the turns: some may be
    /// deferred only because of others before them.
    pub(super) fn begin_stuck(&mut self) -> usize {
        if (2..=STUCK_MAX).contains(&self.stuck.len()) {
            self.stuck.rotate_left(1);
        }
        self.stuck.len().min(STUCK_MAX)
    }

    /// Returns the connections that have waited aside to the heads of their queues.
    pub(super) fn end_aside(&mut self) {
        while let Some((token, is_costly)) = self.aside.pop_back() {
            self.ready.push_front(token, is_costly);
        }
    }
}

impl Shard {
    /// Acts on the next step of a connection that may go on in any turn.
    pub(super) fn act_on(&mut self, token: Token, next: Next) {
        match next {
            Next::Work => self.queue(token),
            Next::Wait => {}
            Next::Starve => self.starve(token),
            Next::Drain if self.waits.draining.contains(&token) => {}
            Next::Drain => self.waits.draining.push(token),
            Next::Close => self.close(token),
        }
    }
}
