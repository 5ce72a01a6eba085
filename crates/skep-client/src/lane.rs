//! The connection to one shard, without the socket: the frames that wait to be sent, the operations that are in
//! flight, and what has arrived of their answers.
//!
//! ```text
//! requests of the lane    | answered | in flight            | not yet in a frame |
//!                                     │                      │                    │
//!                                     answered               next                 end
//! output                  | sent | waits for the socket |
//! ```
//!
//! At most [`FRAMES_IN_FLIGHT_MAX`] frames are unanswered: while the server works on one, the next ones travel, and
//! the output is bounded whatever the batch. They may fill the socket buffers of both ends, so who moves the bytes
//! must read while it writes: a server stops reading from a client that does not take its answers.

use std::collections::VecDeque;

use skep_core::operation::Request;
use skep_wire::native::{ProtocolError, ReplyFrame, RequestFrameWriter};

use crate::responses::Responses;

/// Frames that may be unanswered on one connection.
const FRAMES_IN_FLIGHT_MAX: usize = 4;

/// A frame is closed once it has this many bytes, so that the server can begin before all of a batch has arrived.
const FRAME_SIZE_FULL: usize = 16 << 10;

/// What the input buffer begins with and is given back to between batches, in bytes.
const INPUT_SIZE: usize = 64 << 10;

/// Where the frames of a lane go, and how long they may be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FrameLimits {
    /// The space that the operations are about.
    pub(crate) space: u16,
    /// The largest size that a request frame may state.
    pub(crate) size_max: usize,
}

/// The connection to one shard.
#[derive(Debug, Default)]
pub(crate) struct Lane {
    /// Places in the batch of this lane's requests, in their order.
    requests: Vec<usize>,
    answered: usize,
    next: usize,
    sequence: u32,
    in_flight: VecDeque<InFlight>,
    output: Vec<u8>,
    sent: usize,
    input: Vec<u8>,
    /// What has arrived and is not yet decoded lies here in the input.
    arrived: std::ops::Range<usize>,
}

/// A frame of which answers are missing.
#[derive(Clone, Copy, Debug)]
struct InFlight {
    sequence: u32,
    unanswered: u16,
}

impl Lane {
    /// Forgets the batch before this one, which must have been answered.
    pub(crate) fn begin(&mut self) {
        self.requests.clear();
        self.answered = 0;
        self.next = 0;
        if self.input.len() > INPUT_SIZE && self.arrived.is_empty() {
            self.input.truncate(INPUT_SIZE);
            self.input.shrink_to_fit();
            self.arrived = 0..0;
        }
    }

    /// Gives the lane the request at this place of the batch.
    pub(crate) fn push(&mut self, index: usize) {
        self.requests.push(index);
    }

    /// Bytes that can be sent now.
    pub(crate) fn transmit(&mut self, batch: &[Request<'_>], limits: FrameLimits) -> &[u8] {
        while self.next < self.requests.len() && self.in_flight.len() < FRAMES_IN_FLIGHT_MAX {
            self.write_frame(batch, limits);
        }
        &self.output[self.sent..]
    }

    fn write_frame(&mut self, batch: &[Request<'_>], limits: FrameLimits) {
        if self.sent >= self.output.len() / 2 {
            // A socket that always leaves something waiting must not make the output grow with the batch.
            self.output.drain(..self.sent);
            self.sent = 0;
        }
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
        self.in_flight.push_back(InFlight { sequence: self.sequence, unanswered: count });
        self.sequence = self.sequence.wrapping_add(1);
    }

    /// The socket took this many bytes.
    pub(crate) fn transmitted(&mut self, size: usize) {
        self.sent += size;
        if self.sent == self.output.len() {
            self.output.clear();
            self.sent = 0;
        }
    }

    /// Whether bytes wait for the socket.
    pub(crate) fn is_sending(&self) -> bool {
        self.sent < self.output.len()
    }

    /// Whether answers are to come.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.in_flight.is_empty()
    }

    /// Whether everything was sent and answered.
    pub(crate) fn is_finished(&self) -> bool {
        self.answered == self.requests.len()
    }

    /// Where bytes that arrive are to be put. Never empty.
    pub(crate) fn receive_buffer(&mut self) -> &mut [u8] {
        if self.arrived.is_empty() {
            self.arrived = 0..0;
        } else if self.arrived.end == self.input.len() {
            // The front half of a frame: first use what is free before it, then more memory. The limit of a frame's
            // size bounds the latter.
            self.input.copy_within(self.arrived.clone(), 0);
            self.arrived = 0..self.arrived.len();
        }
        if self.arrived.end == self.input.len() {
            self.input.resize((2 * self.input.len()).max(INPUT_SIZE), 0);
        }
        &mut self.input[self.arrived.end..]
    }

    /// This many bytes arrived in the buffer.
    pub(crate) fn received(&mut self, size: usize, responses: &mut Responses) -> Result<(), ProtocolError> {
        self.arrived.end += size;
        while let Some((frame, consumed)) = ReplyFrame::decode(&self.input[self.arrived.clone()])? {
            let in_flight = self.in_flight.front_mut().ok_or(ProtocolError::Malformed)?;
            if frame.sequence != in_flight.sequence {
                return Err(ProtocolError::Malformed);
            }
            in_flight.unanswered = in_flight.unanswered.checked_sub(frame.count).ok_or(ProtocolError::Malformed)?;
            if in_flight.unanswered == 0 {
                self.in_flight.pop_front();
            }
            for response in frame.replies() {
                responses.set(self.requests[self.answered], response?);
                self.answered += 1;
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

    /// Answers each get with its key, `answers_max` to a reply frame.
    fn answer(request_bytes: &[u8], answers_max: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut rest = request_bytes;
        while let Some((frame, consumed)) = RequestFrame::decode(rest).unwrap() {
            assert_eq!(frame.space, 3);
            let requests: Vec<_> = frame.operations().map(Result::unwrap).collect();
            for part in requests.chunks(answers_max) {
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
    fn answers_find_their_requests_in_whatever_pieces_they_arrive() {
        let keys: Vec<Vec<u8>> = (0..500u32).map(|number| number.to_le_bytes().repeat(40)).collect();
        let batch = batch(&keys);
        for (piece_size, answers_max) in [(1, 7), (13, 1), (4096, 1000), (usize::MAX, 3)] {
            let (mut lane, mut responses) = (Lane::default(), Responses::new());
            for _ in 0..2 {
                responses.reset(batch.len());
                lane.begin();
                (0..batch.len()).rev().for_each(|index| lane.push(index));
                while !lane.is_finished() {
                    let bytes = lane.transmit(&batch, LIMITS).to_vec();
                    lane.transmitted(bytes.len());
                    let mut answers = answer(&bytes, answers_max).into_iter();
                    while answers.len() > 0 {
                        let buffer = lane.receive_buffer();
                        let size = piece_size.min(buffer.len()).min(answers.len());
                        buffer[..size].iter_mut().zip(&mut answers).for_each(|(to, from)| *to = from);
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
    fn unanswered_frames_are_bounded() {
        let keys = vec![vec![7; 400]; 10_000];
        let batch = batch(&keys);
        let mut lane = Lane::default();
        lane.begin();
        (0..batch.len()).for_each(|index| lane.push(index));
        let size = lane.transmit(&batch, LIMITS).len();
        assert!(size <= FRAMES_IN_FLIGHT_MAX * (FRAME_SIZE_FULL + 500));
        lane.transmitted(size - 1);
        assert!(lane.is_sending());
        assert_eq!(lane.transmit(&batch, LIMITS).len(), 1, "nothing more until an answer comes");
    }

    #[test]
    fn a_socket_that_never_takes_everything_does_not_make_the_output_grow() {
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
                let answers = answer(&arrived[..consumed], usize::MAX);
                arrived.drain(..consumed);
                let mut rest = &answers[..];
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
    fn answers_that_nobody_asked_for_are_refused() {
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
