//! A batch and its replies, without sockets: assigns requests to lanes, and knows when all replies have arrived.
//!
//! The clients drive it. They write the bytes of [`Lane::transmit`] to the sockets, and read from the sockets into
//! [`Lane::receive_buffer`], until [`Exchange::is_finished`].

use skep_core::operation::{Operation, Reply, Request, Scan, ScanLease};
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
    limits: FrameLimits,
    lanes: Vec<Lane>,
    responses: Responses,
    /// True between the begin and the end of a batch. If another batch begins in that time, replies to an abandoned
    /// batch may be in flight.
    in_progress: bool,
}

impl Exchange {
    /// Returns the state for a server with this welcome, on one of its spaces.
    pub(crate) fn new(welcome: &Welcome, space: u16) -> Self {
        Exchange {
            partition: Partition::new(welcome.partition_seed, welcome.shard_count),
            // The server has chosen this shard, because it distributes its clients over its shards.
            lease_shard: welcome.shard,
            limits: FrameLimits { space, size_max: REQUEST_FRAME_SIZE_MAX.min(welcome.frame_size_max as usize) },
            lanes: (0..welcome.shard_count).map(|_| Lane::default()).collect(),
            responses: Responses::new(),
            in_progress: false,
        }
    }

    /// Returns the number of shards, which is also the number of lanes.
    pub(crate) fn shard_count(&self) -> u16 {
        self.partition.shard_count()
    }

    /// Chooses the space of the next batches.
    pub(crate) fn select(&mut self, space: u16) {
        self.limits.space = space;
    }

    /// Assigns the requests of a batch to the lanes. Sets the error for a request that every store refuses, as a server
    /// would.
    pub(crate) fn begin(&mut self, batch: &[Request<'_>]) -> Result<(), ClientError> {
        if self.in_progress {
            return Err(ClientError::Broken);
        }
        self.responses.reset(batch.len());
        self.lanes.iter_mut().for_each(Lane::begin);
        for (index, request) in batch.iter().enumerate() {
            if let Err(error) = request.validate() {
                self.responses.set(index, Ok(Reply::Failed(error)));
                continue;
            }
            let size = FRAME_HEADER_SIZE + operation_size(request);
            if size > self.limits.size_max {
                return Err(ClientError::RequestTooLarge { index, size, size_max: self.limits.size_max });
            }
            let shard = match request.operation {
                // Only the connection that opened a lease can use it.
                Operation::Scan(Scan { lease: ScanLease::Open | ScanLease::Continue(_), .. }) => self.lease_shard,
                _ => self.partition.shard_of(request.key),
            };
            self.lanes[usize::from(shard)].push(index);
        }
        self.in_progress = true;
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

    /// Decodes this many bytes, which arrived from this shard.
    pub(crate) fn received(&mut self, shard: usize, size: usize) -> Result<(), ProtocolError> {
        self.lanes[shard].received(size, &mut self.responses)
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
