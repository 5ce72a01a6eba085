//! The connection to one shard, without the socket: frames that wait to be sent, operations in flight, and received
//! bytes.
//!
//! ```text
//! requests of the lane    | replied | in flight            | not yet in a frame |
//!                                    │                      │                    │
//!                                    replied                next                 end
//! output                  | sent | waits for the socket |
//! ```
//!
//! At most [`FRAMES_IN_FLIGHT_MAX`] frames are in flight. So the next frames travel while the server works on one, and
//! the output stays bounded for any batch. The frames may fill the socket buffers of both ends. So the client must read
//! while it writes: a server stops reading from a client that does not receive its replies.

use std::collections::VecDeque;

use skep_core::operation::Request;
use skep_wire::native::{ProtocolError, ReplyFrame, RequestFrameWriter};

use crate::responses::Responses;

/// Largest number of frames in flight on one connection.
const FRAMES_IN_FLIGHT_MAX: usize = 4;

/// Size in bytes at which a frame is closed, so that the server can begin before all of a batch has arrived.
const FRAME_SIZE_FULL: usize = 16 << 10;

/// Initial size of the input buffer in bytes. A larger buffer is reduced to it between batches.
const INPUT_SIZE: usize = 64 << 10;

/// The space of the frames of a lane, and their size limit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FrameLimits {
    /// The space of the operations.
    pub(crate) space: u16,
    /// The largest size that a request frame may state.
    pub(crate) size_max: usize,
}

/// The connection to one shard.
#[derive(Debug, Default)]
pub(crate) struct Lane {
    /// Indexes in the batch of this lane's requests, in their order.
    requests: Vec<usize>,
    replied: usize,
    next: usize,
    sequence: u32,
    in_flight: VecDeque<InFlight>,
    output: Vec<u8>,
    sent: usize,
    /// Bytes of all frames so far.
    written: u64,
    input: Vec<u8>,
    /// The range of the input that has arrived and is not yet decoded.
    arrived: std::ops::Range<usize>,
}

/// A frame whose replies have not all arrived.
#[derive(Clone, Copy, Debug)]
struct InFlight {
    sequence: u32,
    missing: u16,
    /// The number of bytes that were written before this frame.
    begin: u64,
    /// The end of its requests in the requests of the lane.
    end: usize,
}

impl Lane {
    /// Removes the previous batch, whose replies must all have arrived.
    pub(crate) fn begin(&mut self) {
        self.requests.clear();
        self.replied = 0;
        self.next = 0;
        if self.input.len() > INPUT_SIZE && self.arrived.is_empty() {
            self.input.truncate(INPUT_SIZE);
            self.input.shrink_to_fit();
            self.arrived = 0..0;
        }
    }

    /// Adds the request at this index of the batch to the lane.
    pub(crate) fn push(&mut self, index: usize) {
        self.requests.push(index);
    }

    /// Returns the bytes that can be sent now.
    pub(crate) fn transmit(&mut self, batch: &[Request<'_>], limits: FrameLimits) -> &[u8] {
        while self.next < self.requests.len() && self.in_flight.len() < FRAMES_IN_FLIGHT_MAX {
            self.write_frame(batch, limits);
        }
        &self.output[self.sent..]
    }

    fn write_frame(&mut self, batch: &[Request<'_>], limits: FrameLimits) {
        if self.sent >= self.output.len() / 2 {
            // The sent bytes are removed here, so that the output stays bounded even if the socket never accepts all of
            // it.
            self.output.drain(..self.sent);
            self.sent = 0;
        }
        let size_before = self.output.len();
        let mut writer =
            RequestFrameWriter::with_size_max(&mut self.output, self.sequence, limits.space, limits.size_max);
        while self.next < self.requests.len()
            && writer.size() < FRAME_SIZE_FULL
            && writer.push(&batch[self.requests[self.next]])
        {
            self.next += 1;
        }
        let count = writer.count();
        assert!(count > 0, "every request was found to fit a frame");
        writer.finish();
        let (begin, end) = (self.written, self.next);
        self.written += (self.output.len() - size_before) as u64;
        self.in_flight.push_back(InFlight { sequence: self.sequence, missing: count, begin, end });
        self.sequence = self.sequence.wrapping_add(1);
    }

    /// Removes this many bytes, which the socket accepted, from the output.
    pub(crate) fn transmitted(&mut self, size: usize) {
        self.sent += size;
        if self.sent == self.output.len() {
            self.output.clear();
            self.sent = 0;
        }
    }

    /// Returns true if bytes wait for the socket.
    pub(crate) fn is_sending(&self) -> bool {
        self.sent < self.output.len()
    }

    /// Returns the indexes of the requests without a reply that the server may have executed. These are the requests of
    /// all frames of which the socket has accepted at least one byte.
    pub(crate) fn sent_without_reply(&self) -> &[usize] {
        let accepted = self.written - (self.output.len() - self.sent) as u64;
        let last = self.in_flight.iter().rev().find(|frame| frame.begin < accepted);
        &self.requests[self.replied..last.map_or(self.replied, |frame| frame.end)]
    }

    /// Returns true if replies are missing.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.in_flight.is_empty()
    }

    /// Returns true if everything was sent and all replies have arrived.
    pub(crate) fn is_finished(&self) -> bool {
        self.replied == self.requests.len()
    }

    /// Returns the buffer for the bytes that arrive. It is never empty.
    pub(crate) fn receive_buffer(&mut self) -> &mut [u8] {
        if self.arrived.is_empty() {
            self.arrived = 0..0;
        } else if self.arrived.end == self.input.len() {
            // The input ends within a frame. Use the free space before it first, and then more memory. The size limit
            // of a frame bounds that memory.
            self.input.copy_within(self.arrived.clone(), 0);
            self.arrived = 0..self.arrived.len();
        }
        if self.arrived.end == self.input.len() {
            self.input.resize((2 * self.input.len()).max(INPUT_SIZE), 0);
        }
        &mut self.input[self.arrived.end..]
    }

    /// Decodes this many bytes, which arrived in the buffer.
    pub(crate) fn received(&mut self, size: usize, responses: &mut Responses) -> Result<(), ProtocolError> {
        self.arrived.end += size;
        while let Some((frame, consumed)) = ReplyFrame::decode(&self.input[self.arrived.clone()])? {
            let in_flight = self.in_flight.front_mut().ok_or(ProtocolError::Malformed)?;
            if frame.sequence != in_flight.sequence {
                return Err(ProtocolError::Malformed);
            }
            let missing = in_flight.missing.checked_sub(frame.count).ok_or(ProtocolError::Malformed)?;
            for response in frame.replies() {
                responses.set(self.requests[self.replied], response?);
                self.replied += 1;
            }
            // Only now: if a reply cannot be decoded, its operation is still in flight.
            in_flight.missing = missing;
            if missing == 0 {
                self.in_flight.pop_front();
            }
            self.arrived.start += consumed;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use skep_core::operation::{Operation, Reply};
    use skep_wire::native::{REQUEST_FRAME_SIZE_MAX, ReplyFrameWriter, RequestFrame};

    use super::*;

    const LIMITS: FrameLimits = FrameLimits { space: 3, size_max: REQUEST_FRAME_SIZE_MAX };

    fn batch(keys: &[Vec<u8>]) -> Vec<Request<'_>> {
        keys.iter().map(|key| Request { key, operation: Operation::Get }).collect()
    }

    /// Replies to each get with its key, with `replies_max` replies in a frame.
    fn reply_to(request_bytes: &[u8], replies_max: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut rest = request_bytes;
        while let Some((frame, consumed)) = RequestFrame::decode(rest).unwrap() {
            assert_eq!(frame.space, 3);
            let requests: Vec<_> = frame.operations().map(Result::unwrap).collect();
            for part in requests.chunks(replies_max) {
                let mut writer = ReplyFrameWriter::new(&mut bytes, frame.sequence);
                for request in part {
                    writer.push(Ok(Reply::Value(request.key)));
                }
                writer.finish();
            }
            rest = &rest[consumed..];
        }
        assert!(rest.is_empty());
        bytes
    }

    #[test]
    fn replies_are_matched_for_all_piece_sizes() {
        let keys: Vec<Vec<u8>> = (0..500u32).map(|number| number.to_le_bytes().repeat(40)).collect();
        let batch = batch(&keys);
        for (piece_size, replies_max) in [(1, 7), (13, 1), (4096, 1000), (usize::MAX, 3)] {
            let (mut lane, mut responses) = (Lane::default(), Responses::new());
            for _ in 0..2 {
                responses.reset(batch.len());
                lane.begin();
                (0..batch.len()).rev().for_each(|index| lane.push(index));
                while !lane.is_finished() {
                    let bytes = lane.transmit(&batch, LIMITS).to_vec();
                    lane.transmitted(bytes.len());
                    let mut replies = reply_to(&bytes, replies_max).into_iter();
                    while replies.len() > 0 {
                        let buffer = lane.receive_buffer();
                        let size = piece_size.min(buffer.len()).min(replies.len());
                        buffer[..size].iter_mut().zip(&mut replies).for_each(|(to, from)| *to = from);
                        lane.received(size, &mut responses).unwrap();
                    }
                }
                for (key, response) in keys.iter().zip(responses.iter()) {
                    assert_eq!(response, Ok(Reply::Value(key)));
                }
                assert!(!lane.is_waiting() && !lane.is_sending());
            }
        }
    }

    #[test]
    fn frames_in_flight_are_bounded() {
        let keys = vec![vec![7; 400]; 10_000];
        let batch = batch(&keys);
        let mut lane = Lane::default();
        lane.begin();
        (0..batch.len()).for_each(|index| lane.push(index));
        let size = lane.transmit(&batch, LIMITS).len();
        assert!(size <= FRAMES_IN_FLIGHT_MAX * (FRAME_SIZE_FULL + 500));
        lane.transmitted(size - 1);
        assert!(lane.is_sending());
        assert_eq!(lane.transmit(&batch, LIMITS).len(), 1, "nothing more until a reply arrives");
    }

    #[test]
    fn the_output_is_bounded_if_the_socket_never_accepts_all_of_it() {
        let keys = vec![vec![7; 400]; 20_000];
        let batch = batch(&keys);
        let (mut lane, mut responses) = (Lane::default(), Responses::new());
        responses.reset(batch.len());
        lane.begin();
        (0..batch.len()).for_each(|index| lane.push(index));
        let mut arrived = Vec::new();
        while !lane.is_finished() {
            let bytes = lane.transmit(&batch, LIMITS);
            let size = bytes.len() - usize::from(bytes.len() > 1);
            arrived.extend_from_slice(&bytes[..size]);
            lane.transmitted(size);
            while let Some((_, consumed)) = RequestFrame::decode(&arrived).unwrap() {
                let replies = reply_to(&arrived[..consumed], usize::MAX);
                arrived.drain(..consumed);
                let mut rest = &replies[..];
                while !rest.is_empty() {
                    let buffer = lane.receive_buffer();
                    let size = rest.len().min(buffer.len());
                    buffer[..size].copy_from_slice(&rest[..size]);
                    lane.received(size, &mut responses).unwrap();
                    rest = &rest[size..];
                }
            }
            assert!(lane.output.len() <= 2 * FRAMES_IN_FLIGHT_MAX * (FRAME_SIZE_FULL + 500));
        }
    }

    #[test]
    fn requests_are_sent_with_the_first_byte_of_their_frame() {
        let keys = vec![vec![7; 400]; 100];
        let batch = batch(&keys);
        let (mut lane, mut responses) = (Lane::default(), Responses::new());
        responses.reset(batch.len());
        (0..batch.len()).for_each(|index| lane.push(index));
        let bytes = lane.transmit(&batch, LIMITS).to_vec();
        let (first, size) = RequestFrame::decode(&bytes).unwrap().unwrap();
        let first_count = usize::from(first.count);
        assert!((2..100).contains(&first_count));
        assert!(lane.sent_without_reply().is_empty(), "the socket has accepted nothing");
        lane.transmitted(1);
        assert_eq!(lane.sent_without_reply().len(), first_count);
        lane.transmitted(size - 1);
        assert_eq!(lane.sent_without_reply().len(), first_count, "no byte of the second frame was accepted");
        lane.transmitted(1);
        assert!(lane.sent_without_reply().len() > first_count);
        // A reply to one request of the first frame.
        let mut reply = Vec::new();
        let mut writer = ReplyFrameWriter::new(&mut reply, first.sequence);
        writer.push(Ok(Reply::NotFound));
        writer.finish();
        lane.receive_buffer()[..reply.len()].copy_from_slice(&reply);
        lane.received(reply.len(), &mut responses).unwrap();
        assert_eq!(lane.sent_without_reply()[0], 1);
        lane.transmitted(bytes.len() - size - 1);
        assert_eq!(lane.sent_without_reply(), (1..100).collect::<Vec<_>>());
    }

    #[test]
    fn the_frame_limit_of_the_server_is_kept() {
        let keys = vec![vec![7; 400]; 100];
        let batch = batch(&keys);
        let mut lane = Lane::default();
        (0..batch.len()).for_each(|index| lane.push(index));
        let mut rest = lane.transmit(&batch, FrameLimits { space: 3, size_max: 1000 });
        while let Some((frame, consumed)) = RequestFrame::decode(rest).unwrap() {
            assert_eq!(frame.count, 2);
            rest = &rest[consumed..];
        }
    }

    #[test]
    fn unexpected_replies_are_refused() {
        let keys = vec![b"key".to_vec()];
        let batch = batch(&keys);
        let reply = |sequence, count| {
            let mut bytes = Vec::new();
            let mut writer = ReplyFrameWriter::new(&mut bytes, sequence);
            (0..count).for_each(|_| writer.push(Ok(Reply::Done)));
            writer.finish();
            bytes
        };
        let two_frames = [reply(0, 1), reply(0, 1)].concat();
        for bytes in [reply(1, 1), reply(0, 2), two_frames] {
            let (mut lane, mut responses) = (Lane::default(), Responses::new());
            responses.reset(1);
            lane.push(0);
            lane.transmit(&batch, LIMITS);
            lane.receive_buffer()[..bytes.len()].copy_from_slice(&bytes);
            assert_eq!(lane.received(bytes.len(), &mut responses), Err(ProtocolError::Malformed));
        }
    }
}
