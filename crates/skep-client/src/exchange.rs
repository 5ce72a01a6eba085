//! A batch and its answers, without sockets: which lane each request takes, and when all of it is answered.
//!
//! The clients drive it: they give the bytes of [`Lane::transmit`] to the sockets and what the sockets have to
//! [`Lane::receive_buffer`], until [`Exchange::is_finished`].

use skep_core::operation::{Operation, Reply, Request, Scan, ScanLease};
use skep_wire::native::{ProtocolError, REQUEST_FRAME_SIZE_MAX, Response, Welcome, operation_size};
use skep_wire::partition::Partition;

use crate::error::ClientError;
use crate::lane::{FrameLimits, Lane};
use crate::responses::Responses;

/// Bytes of a request frame's header that its size field counts.
const FRAME_HEADER_SIZE: usize = 8;

/// Everything a client knows but its sockets.
#[derive(Debug)]
pub(crate) struct Exchange {
    partition: Partition,
    /// The shard whose connection has the leases of this client.
    lease_shard: u16,
    limits: FrameLimits,
    lanes: Vec<Lane>,
    responses: Responses,
    /// A batch was begun and has not ended. If another one finds it so, answers may be under way that nobody
    /// waits for.
    under_way: bool,
}

impl Exchange {
    /// For a server that said this welcome, on one of its spaces.
    pub(crate) fn new(welcome: &Welcome, space: u16) -> Self {
        Exchange {
            partition: Partition::new(welcome.partition_seed, welcome.shard_count),
            // The one that the server has chosen: it divides its clients among its shards.
            lease_shard: welcome.shard,
            limits: FrameLimits { space, size_max: REQUEST_FRAME_SIZE_MAX.min(welcome.frame_size_max as usize) },
            lanes: (0..welcome.shard_count).map(|_| Lane::default()).collect(),
            responses: Responses::new(),
            under_way: false,
        }
    }

    /// Number of shards, and of lanes.
    pub(crate) fn shard_count(&self) -> u16 {
        self.partition.shard_count()
    }

    /// Chooses the space of the batches that follow.
    pub(crate) fn select(&mut self, space: u16) {
        self.limits.space = space;
    }

    /// Divides a batch among the lanes. What no store could carry out is answered here, as a server would.
    pub(crate) fn begin(&mut self, batch: &[Request<'_>]) -> Result<(), ClientError> {
        if self.under_way {
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
                // A lease is known only to the connection that has opened it.
                Operation::Scan(Scan { lease: ScanLease::Open | ScanLease::Continue(_), .. }) => self.lease_shard,
                _ => self.partition.shard_of(request.key),
            };
            self.lanes[usize::from(shard)].push(index);
        }
        self.under_way = true;
        Ok(())
    }

    /// Bytes that can be sent to this shard now.
    pub(crate) fn transmit(&mut self, shard: usize, batch: &[Request<'_>]) -> &[u8] {
        self.lanes[shard].transmit(batch, self.limits)
    }

    /// The lane to this shard.
    pub(crate) fn lane(&mut self, shard: usize) -> &mut Lane {
        &mut self.lanes[shard]
    }

    /// All lanes, in the order of their shards.
    pub(crate) fn lanes(&self) -> &[Lane] {
        &self.lanes
    }

    /// This many bytes arrived from this shard.
    pub(crate) fn received(&mut self, shard: usize, size: usize) -> Result<(), ProtocolError> {
        self.lanes[shard].received(size, &mut self.responses)
    }

    /// Whether every request is answered.
    pub(crate) fn is_finished(&self) -> bool {
        self.lanes.iter().all(Lane::is_finished)
    }

    /// Ends a batch that is finished.
    pub(crate) fn end(&mut self) {
        debug_assert!(self.is_finished());
        self.under_way = false;
    }

    /// Hands the answers over, for older buffers in exchange.
    pub(crate) fn swap_responses(&mut self, responses: &mut Responses) {
        std::mem::swap(&mut self.responses, responses);
    }

    /// The answer to a batch of one request.
    pub(crate) fn single(&self) -> Response<'_> {
        self.responses.get(0)
    }
}
