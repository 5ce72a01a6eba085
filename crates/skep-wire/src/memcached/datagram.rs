//! The frame of a UDP datagram. A request has one datagram, a reply as many as it needs.
//!
//! ```text
//!   0          2          4          6          8
//!   │ request  │ sequence │ count    │ reserved │ part of a request or a reply
//! ```
//!
//! All numbers are big-endian. The client chooses the request's number, and the reply repeats it. The parts of a reply
//! are numbered from 0 on. As in memcached, the sequence and the reserved number of a request are ignored, and a
//! datagram of a longer request is dropped without a reply.

/// Size of a frame's header, in bytes.
pub const FRAME_SIZE: usize = 8;
/// Longest datagram of a reply, in bytes. With the headers of UDP and IP it fits in a packet of Ethernet.
pub const DATAGRAM_SIZE_MAX: usize = 1400;
/// Bytes of a reply in a datagram.
const PART_SIZE_MAX: usize = DATAGRAM_SIZE_MAX - FRAME_SIZE;

/// The header of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The number that the client chose.
    pub request: u16,
    /// The number of this datagram in its message.
    pub sequence: u16,
    /// The number of datagrams of the message.
    pub count: u16,
}

impl Frame {
    /// Decodes a datagram. Returns its header and the bytes after it, or `None` if it is too short for a header.
    pub fn decode(datagram: &[u8]) -> Option<(Frame, &[u8])> {
        let (header, rest) = datagram.split_first_chunk::<FRAME_SIZE>()?;
        let [a, b, c, d, e, f, _, _] = *header;
        let [request, sequence, count] = [[a, b], [c, d], [e, f]].map(u16::from_be_bytes);
        Some((Frame { request, sequence, count }, rest))
    }

    /// Returns the bytes of the header.
    pub fn encode(self) -> [u8; FRAME_SIZE] {
        let [[a, b], [c, d], [e, f]] = [self.request, self.sequence, self.count].map(u16::to_be_bytes);
        [a, b, c, d, e, f, 0, 0]
    }

    /// Returns true if the datagram is a whole request.
    pub fn is_whole_request(self) -> bool {
        self.count == 1
    }
}

/// Divides a reply into datagrams: returns their headers and parts. Returns `None` if the reply is empty or needs more
/// datagrams than a header can count.
pub fn frames(request: u16, reply: &[u8]) -> Option<impl ExactSizeIterator<Item = ([u8; FRAME_SIZE], &[u8])>> {
    let parts = reply.chunks(PART_SIZE_MAX);
    let count = u16::try_from(parts.len()).ok().filter(|&count| count > 0)?;
    Some(parts.enumerate().map(move |(index, part)| {
        // The index is below the count.
        let frame = Frame { request, sequence: index as u16, count };
        (frame.encode(), part)
    }))
}

#[cfg(test)]
mod tests {
    use super::{DATAGRAM_SIZE_MAX, FRAME_SIZE, Frame, frames};

    #[test]
    fn header() {
        let bytes = [1, 2, 0, 0, 0, 1, 0, 9, b'm', b'n', b'\n'];
        let frame = Frame { request: 0x0102, sequence: 0, count: 1 };
        assert_eq!(Frame::decode(&bytes), Some((frame, &b"mn\n"[..])));
        assert_eq!(frame.encode(), [1, 2, 0, 0, 0, 1, 0, 0], "the reserved number is 0");
        assert!(frame.is_whole_request());
        for count in [0, 2, u16::MAX] {
            assert!(!Frame { count, ..frame }.is_whole_request());
        }
        for size in 0..FRAME_SIZE {
            assert_eq!(Frame::decode(&bytes[..size]), None);
        }
        assert_eq!(Frame::decode(&bytes[..FRAME_SIZE]), Some((frame, &[][..])));
    }

    #[test]
    fn a_reply_is_divided_and_joined() {
        const PART: usize = DATAGRAM_SIZE_MAX - FRAME_SIZE;
        for (size, count) in [(1, 1), (PART, 1), (PART + 1, 2), (3 * PART, 3), (u16::MAX as usize * PART, u16::MAX)] {
            let reply: Vec<u8> = (0..size).map(|index| index as u8).collect();
            let mut joined = Vec::new();
            for (index, (header, part)) in frames(7, &reply).unwrap().enumerate() {
                let (frame, _) = Frame::decode(&header).unwrap();
                assert_eq!(frame, Frame { request: 7, sequence: index as u16, count });
                joined.extend_from_slice(part);
            }
            assert!(joined == reply);
        }
        assert!(frames(7, b"").is_none());
        assert!(frames(7, &vec![0; u16::MAX as usize * PART + 1]).is_none());
    }
}
