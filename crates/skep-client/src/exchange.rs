//! A batch and its replies, without sockets: assigns requests to lanes, and knows when all replies have arrived.
//!
//! The clients drive it. They write the bytes of [`Lane::transmit`] to the sockets, and read from the sockets into
//! [`Lane::receive_buffer`], until [`Exchange::is_finished`].

use skep_core::operation::{Operation, OperationError, Reply, Request, Scan, ScanLease};
use skep_wire::native::{ProtocolError, REQUEST_FRAME_SIZE_MAX, Response, Welcome, operation_size};
use skep_wire::partition::Partition;

use crate::error::ClientError;
use crate::lane::{FrameLimits, Lane};
use crate::responses::Responses;

/// Bytes of a request frame's header that its size field counts.
const FRAME_HEADER_SIZE: usize = 8;

/// The state of a client, except its sockets.
#[derive(Debug)]
pub(crate) struct Exchange {
    partition: Partition,
    /// The shard whose connection owns the leases of this client.
    lease_shard: u16,
    /// The space of the batches.
    space: u16,
    /// That of the next batch, if it is another one.
    next_space: Option<u16>,
    /// Those of the current batch.
    limits: FrameLimits,
    lanes: Vec<Lane>,
    responses: Responses,
    /// True between the begin and the end of a batch. If another batch begins in that time, the last one failed or was
    /// abandoned, and replies to it may be in flight.
    in_progress: bool,
    /// Bytes that the sockets have accepted and delivered.
    moved_bytes: u64,
}

impl Exchange {
    /// Returns the state for a server with this welcome, on one of its spaces.
    pub(crate) fn new(welcome: &Welcome, space: u16) -> Self {
        Exchange {
            partition: Partition::new(welcome.partition_seed, welcome.shard_count),
            // The server has chosen this shard, because it distributes its clients over its shards.
            lease_shard: welcome.shard,
            space,
            next_space: None,
            limits: FrameLimits { space, size_max: REQUEST_FRAME_SIZE_MAX.min(welcome.frame_size_max as usize) },
            lanes: (0..welcome.shard_count).map(|_| Lane::default()).collect(),
            responses: Responses::new(),
            in_progress: false,
            moved_bytes: 0,
        }
    }

    /// Returns the number of shards, which is also the number of lanes.
    pub(crate) fn shard_count(&self) -> u16 {
        self.partition.shard_count()
    }

    /// Chooses the space of the next batches.
    pub(crate) fn select(&mut self, space: u16) {
        self.space = space;
    }

    /// Chooses the space of the next batch only.
    pub(crate) fn select_once(&mut self, space: u16) {
        self.next_space = Some(space);
    }

    /// Begins a batch of this size. Returns false if the last batch has not ended: then its connections must be closed,
    /// because a reply to it could be taken for a reply to this one.
    pub(crate) fn begin(&mut self, count: usize) -> bool {
        let has_ended = !self.in_progress;
        self.limits.space = self.next_space.take().unwrap_or(self.space);
        if !has_ended {
            self.lanes.iter_mut().for_each(|lane| *lane = Lane::default());
        }
        self.responses.reset(count);
        self.in_progress = true;
        has_ended
    }

    /// Prepares the rest of the batch for new connections to a server with this welcome. The leases of the closed
    /// connections have ended, so the scans that need them fail.
    pub(crate) fn reconnected(&mut self, welcome: &Welcome, batch: &[Request<'_>]) {
        let responses = std::mem::take(&mut self.responses);
        let (space, in_progress, moved_bytes) = (self.space, self.in_progress, self.moved_bytes);
        *self = Exchange { space, responses, in_progress, moved_bytes, ..Exchange::new(welcome, self.limits.space) };
        for (index, request) in batch.iter().enumerate() {
            if let Operation::Scan(Scan { lease: ScanLease::Continue(_), .. }) = request.operation
                && self.responses.is_missing(index)
            {
                self.responses.set(index, Ok(Reply::Failed(OperationError::LeaseExpired)));
            }
        }
    }

    /// Assigns the requests without a reply to the lanes. Sets the error for a request that every store refuses, as a
    /// server would.
    pub(crate) fn assign(&mut self, batch: &[Request<'_>]) -> Result<(), ClientError> {
        self.lanes.iter_mut().for_each(Lane::begin);
        for (index, request) in batch.iter().enumerate() {
            if !self.responses.is_missing(index) {
                continue;
            }
            // Only the server knows the functions of its users.
            if let Err(error) = request.validate()
                && error != OperationError::FunctionUnknown
            {
                self.responses.set(index, Ok(Reply::Failed(error)));
                continue;
            }
            let size = FRAME_HEADER_SIZE + operation_size(request);
            if size > self.limits.size_max {
                // Nothing is in flight, so the connections can be used.
                self.in_progress = false;
                return Err(ClientError::RequestTooLarge { index, size, size_max: self.limits.size_max });
            }
            let shard = match request.operation {
                // Only the connection that opened a lease can use it.
                Operation::Scan(Scan { lease: ScanLease::Open | ScanLease::Continue(_), .. }) => self.lease_shard,
                _ => self.partition.shard_of(request.key),
            };
            self.lanes[usize::from(shard)].push(index);
        }
        Ok(())
    }

    /// Returns the bytes that can be sent to this shard now.
    pub(crate) fn transmit(&mut self, shard: usize, batch: &[Request<'_>]) -> &[u8] {
        self.lanes[shard].transmit(batch, self.limits)
    }

    /// Returns the lane to this shard.
    pub(crate) fn lane(&mut self, shard: usize) -> &mut Lane {
        &mut self.lanes[shard]
    }

    /// Returns all lanes, in the order of their shards.
    pub(crate) fn lanes(&self) -> &[Lane] {
        &self.lanes
    }

    /// Removes this many bytes, which the socket of this shard accepted, from its output.
    pub(crate) fn transmitted(&mut self, shard: usize, size: usize) {
        self.moved_bytes += size as u64;
        self.lanes[shard].transmitted(size);
    }

    /// Decodes this many bytes, which arrived from this shard.
    pub(crate) fn received(&mut self, shard: usize, size: usize) -> Result<(), ProtocolError> {
        self.moved_bytes += size as u64;
        self.lanes[shard].received(size, &mut self.responses)
    }

    /// Returns the number of bytes that were sent and received so far. A call that waits too long without a change of
    /// this number has timed out.
    pub(crate) fn moved_bytes(&self) -> u64 {
        self.moved_bytes
    }

    /// Returns true if an update of the batch was sent and has no reply.
    pub(crate) fn has_update_in_flight(&self, batch: &[Request<'_>]) -> bool {
        self.lanes.iter().flat_map(Lane::sent_without_reply).any(|&index| is_update(&batch[index]))
    }

    /// Returns true if an update of the batch has happened or may have happened.
    pub(crate) fn may_have_updated(&self, batch: &[Request<'_>]) -> bool {
        let has_happened = |index| self.responses.is_done(index) && is_update(&batch[index]);
        (0..batch.len()).any(has_happened) || self.has_update_in_flight(batch)
    }

    /// Returns true if all replies have arrived.
    pub(crate) fn is_finished(&self) -> bool {
        self.lanes.iter().all(Lane::is_finished)
    }

    /// Ends a finished batch.
    pub(crate) fn end(&mut self) {
        debug_assert!(self.is_finished());
        self.in_progress = false;
    }

    /// Exchanges the replies with buffers of an earlier batch.
    pub(crate) fn swap_responses(&mut self, responses: &mut Responses) {
        std::mem::swap(&mut self.responses, responses);
    }

    /// Returns the reply to a batch of one request.
    pub(crate) fn single(&self) -> Response<'_> {
        self.responses.get(0)
    }
}

/// Returns true if the operation may change something. All others can be sent again.
fn is_update(request: &Request<'_>) -> bool {
    !request.operation.is_read() && !matches!(request.operation, Operation::Scan(_))
}
