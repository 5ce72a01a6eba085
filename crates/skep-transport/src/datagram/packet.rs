//! The layout of packets. Numbers are little-endian. `docs/protocol.md` explains the fields.
//!
//! ```text
//! control  0      2      3  4  8                16               24
//!          | "SK" | kind | 0  | number          | word           |
//!
//! data     0      2      3       4        6      8         16       24                32       40
//!          | "SK" | kind | flags | window | size | session | number | acknowledgement | bitmap | payload |
//!
//! kind     1 hello, 2 challenge, 3 accept, 4 unknown; 5 data
//! flags    1 numbered: it has a payload or ends the stream; 2 end of the stream; 4 probe
//! ```
//!
//! A control packet is not longer than any packet to which it replies. So a forged address cannot make the server send
//! more bytes than it received.

/// The bytes that each packet begins with.
const MAGIC: [u8; 2] = *b"SK";
/// Bytes of a control packet.
pub const CONTROL_SIZE: usize = 24;
/// Bytes of a data packet before its payload.
pub(crate) const HEADER_SIZE: usize = 40;
/// The most bytes of a packet. With the headers of IPv6 and UDP it has the 1280 bytes that every path carries.
pub const PACKET_SIZE_MAX: usize = 1280 - 40 - 8;
/// The most bytes of a payload.
pub const PAYLOAD_SIZE_MAX: usize = PACKET_SIZE_MAX - HEADER_SIZE;
/// The most packets after the acknowledged ones that a session takes: the bitmap has a bit for each except the first.
pub const WINDOW_MAX: usize = 64;

const KIND: usize = 2;
const FLAGS: usize = 3;
const CONTROL_NUMBER: usize = 8;
const CONTROL_WORD: usize = 16;
const WINDOW: usize = 4;
const SIZE: usize = 6;
const SESSION: usize = 8;
const NUMBER: usize = 16;
const ACKNOWLEDGEMENT: usize = 24;
const BITMAP: usize = 32;

const _: () = {
    assert!(KIND == MAGIC.len() && FLAGS == KIND + 1 && WINDOW == FLAGS + 1 && SIZE == WINDOW + size_of::<u16>());
    assert!(SESSION == SIZE + size_of::<u16>() && NUMBER == SESSION + size_of::<u64>());
    assert!(ACKNOWLEDGEMENT == NUMBER + size_of::<u64>() && BITMAP == ACKNOWLEDGEMENT + size_of::<u64>());
    assert!(HEADER_SIZE == BITMAP + size_of::<u64>() && WINDOW_MAX <= u64::BITS as usize + 1);
    assert!(CONTROL_WORD == CONTROL_NUMBER + size_of::<u64>() && CONTROL_SIZE == CONTROL_WORD + size_of::<u64>());
    assert!(CONTROL_SIZE <= HEADER_SIZE && PAYLOAD_SIZE_MAX <= u16::MAX as usize);
};

const HELLO: u8 = 1;
const CHALLENGE: u8 = 2;
const ACCEPT: u8 = 3;
const UNKNOWN: u8 = 4;
const DATA: u8 = 5;

/// The packet has a number.
const NUMBERED: u8 = 1;
/// The stream ends after its payload.
const END: u8 = 2;
/// The receiver is to reply at once.
const PROBE: u8 = 4;

/// The reason why a packet was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(usize)]
pub enum Dropped {
    /// It is shorter than its header.
    Short,
    /// It does not begin as packets do.
    Foreign,
    /// Its kind is not one that this side takes.
    Kind,
    /// Its size differs from the one in its header, or is too large.
    Size,
    /// A field has a value that it cannot have.
    Field,
    /// A hello has a cookie that was not made for it, or too long ago.
    Cookie,
    /// Its session does not exist, or has ended.
    Session,
    /// It arrived before.
    Duplicate,
    /// It is beyond the window.
    Window,
    /// It acknowledges packets that were not sent.
    Acknowledgement,
    /// There is no memory for it at the moment.
    Memory,
    /// There are too many sessions.
    Sessions,
    /// The turn has replied to enough control packets.
    Turn,
    /// Over RDMA: it was changed while it was read.
    Checksum,
}

impl Dropped {
    /// All reasons, in their order, with their names.
    pub const ALL: [(Dropped, &str); 14] = [
        (Dropped::Short, "short"),
        (Dropped::Foreign, "foreign"),
        (Dropped::Kind, "kind"),
        (Dropped::Size, "size"),
        (Dropped::Field, "field"),
        (Dropped::Cookie, "cookie"),
        (Dropped::Session, "session"),
        (Dropped::Duplicate, "duplicate"),
        (Dropped::Window, "window"),
        (Dropped::Acknowledgement, "acknowledgement"),
        (Dropped::Memory, "memory"),
        (Dropped::Sessions, "sessions"),
        (Dropped::Turn, "turn"),
        (Dropped::Checksum, "checksum"),
    ];
}

/// A control packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    /// A client asks for a session; the cookie is 0 at first.
    Hello {
        /// The number that the client chose.
        client: u64,
        /// The cookie of the last challenge.
        cookie: u64,
    },
    /// The server asks for proof that the address is the client's.
    Challenge {
        /// The number that the client chose.
        client: u64,
        /// The proof: the next hello has it.
        cookie: u64,
    },
    /// The server has a session for the client.
    Accept {
        /// The number that the client chose.
        client: u64,
        /// The number of the session.
        session: u64,
    },
    /// There is no such session.
    Unknown {
        /// The number of the session.
        session: u64,
    },
}

/// A data packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Data<'p> {
    /// The number of the session.
    pub session: u64,
    /// The number of the packet, if it has one.
    pub number: Option<u64>,
    /// The stream ends after the payload.
    pub is_end: bool,
    /// The receiver is to reply at once.
    pub is_probe: bool,
    /// The first numbered packet that its sender lacks.
    pub acknowledgement: u64,
    /// The packets after that one which its sender has.
    pub bitmap: u64,
    /// Its sender takes this number of packets from `acknowledgement` on.
    pub window: u16,
    /// A part of the stream.
    pub payload: &'p [u8],
}

/// A packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packet<'p> {
    /// It is about the session itself.
    Control(Control),
    /// It belongs to a session.
    Data(Data<'p>),
}

impl Control {
    /// Returns the bytes of the packet.
    pub fn encode(self) -> [u8; CONTROL_SIZE] {
        let (kind, number, word) = match self {
            Control::Hello { client, cookie } => (HELLO, client, cookie),
            Control::Challenge { client, cookie } => (CHALLENGE, client, cookie),
            Control::Accept { client, session } => (ACCEPT, client, session),
            Control::Unknown { session } => (UNKNOWN, session, 0),
        };
        let mut bytes = [0; CONTROL_SIZE];
        bytes[..KIND].copy_from_slice(&MAGIC);
        bytes[KIND] = kind;
        bytes[CONTROL_NUMBER..CONTROL_WORD].copy_from_slice(&number.to_le_bytes());
        bytes[CONTROL_WORD..].copy_from_slice(&word.to_le_bytes());
        bytes
    }

    fn decode(kind: u8, bytes: &[u8]) -> Result<Control, Dropped> {
        let bytes: &[u8; CONTROL_SIZE] = bytes.try_into().map_err(|_| Dropped::Size)?;
        let (number, word) = (u64_at(bytes, CONTROL_NUMBER), u64_at(bytes, CONTROL_WORD));
        match kind {
            _ if bytes[FLAGS..CONTROL_NUMBER].iter().any(|&byte| byte != 0) => Err(Dropped::Field),
            HELLO => Ok(Control::Hello { client: number, cookie: word }),
            CHALLENGE => Ok(Control::Challenge { client: number, cookie: word }),
            ACCEPT => Ok(Control::Accept { client: number, session: word }),
            UNKNOWN if word == 0 => Ok(Control::Unknown { session: number }),
            UNKNOWN => Err(Dropped::Field),
            _ => Err(Dropped::Kind),
        }
    }
}

impl<'p> Data<'p> {
    /// Appends the header of a packet whose payload the caller appends.
    pub(crate) fn encode_header(&self, payload_size: usize, out: &mut Vec<u8>) {
        debug_assert!(payload_size <= PAYLOAD_SIZE_MAX && usize::from(self.window) <= WINDOW_MAX);
        let flag = |is_set, flag| if is_set { flag } else { 0 };
        let mut header = [0; HEADER_SIZE];
        header[..KIND].copy_from_slice(&MAGIC);
        header[KIND] = DATA;
        header[FLAGS] = flag(self.number.is_some(), NUMBERED) | flag(self.is_end, END) | flag(self.is_probe, PROBE);
        header[WINDOW..SIZE].copy_from_slice(&self.window.to_le_bytes());
        header[SIZE..SESSION].copy_from_slice(&(payload_size as u16).to_le_bytes());
        header[SESSION..NUMBER].copy_from_slice(&self.session.to_le_bytes());
        header[NUMBER..ACKNOWLEDGEMENT].copy_from_slice(&self.number.unwrap_or(0).to_le_bytes());
        header[ACKNOWLEDGEMENT..BITMAP].copy_from_slice(&self.acknowledgement.to_le_bytes());
        header[BITMAP..].copy_from_slice(&self.bitmap.to_le_bytes());
        out.extend_from_slice(&header);
    }

    /// Appends the packet.
    pub fn encode(&self, out: &mut Vec<u8>) {
        self.encode_header(self.payload.len(), out);
        out.extend_from_slice(self.payload);
    }

    fn decode(bytes: &'p [u8]) -> Result<Data<'p>, Dropped> {
        let Some((header, payload)) = bytes.split_first_chunk::<HEADER_SIZE>() else { return Err(Dropped::Short) };
        let flags = header[FLAGS];
        let window = u16::from_le_bytes([header[WINDOW], header[WINDOW + 1]]);
        let size = u16::from_le_bytes([header[SIZE], header[SIZE + 1]]);
        if usize::from(size) != payload.len() || payload.len() > PAYLOAD_SIZE_MAX {
            return Err(Dropped::Size);
        }
        let number = u64_at(header, NUMBER);
        let (is_numbered, is_end) = (flags & NUMBERED != 0, flags & END != 0);
        let is_consistent = is_numbered == (is_end || !payload.is_empty()) && (is_numbered || number == 0);
        if flags > NUMBERED | END | PROBE || usize::from(window) > WINDOW_MAX || !is_consistent {
            return Err(Dropped::Field);
        }
        Ok(Data {
            session: u64_at(header, SESSION),
            number: is_numbered.then_some(number),
            is_end,
            is_probe: flags & PROBE != 0,
            acknowledgement: u64_at(header, ACKNOWLEDGEMENT),
            bitmap: u64_at(header, BITMAP),
            window,
            payload,
        })
    }
}

impl<'p> Packet<'p> {
    /// Decodes the packet of a datagram.
    pub fn decode(bytes: &'p [u8]) -> Result<Packet<'p>, Dropped> {
        match bytes {
            [..] if bytes.len() < CONTROL_SIZE => Err(Dropped::Short),
            [first, second, kind, ..] if [*first, *second] == MAGIC => match *kind {
                DATA => Data::decode(bytes).map(Packet::Data),
                kind => Control::decode(kind, bytes).map(Packet::Control),
            },
            _ => Err(Dropped::Foreign),
        }
    }
}

/// Decodes packets that arrived as one buffer. After one without a size that can be trusted, the rest counts as one.
pub fn packets(mut bytes: &[u8]) -> impl Iterator<Item = Result<Packet<'_>, Dropped>> {
    std::iter::from_fn(move || {
        let size = match bytes {
            [] => return None,
            [_, _, DATA, _, _, _, low, high, ..] => HEADER_SIZE + usize::from(u16::from_le_bytes([*low, *high])),
            [_, _, HELLO..=UNKNOWN, ..] => CONTROL_SIZE,
            _ => bytes.len(),
        };
        let (packet, rest) = bytes.split_at(size.min(bytes.len()));
        bytes = rest;
        Some(Packet::decode(packet))
    })
}

/// Returns the number at a position of a header.
fn u64_at<const N: usize>(header: &[u8; N], at: usize) -> u64 {
    u64::from_le_bytes(header[at..at + size_of::<u64>()].try_into().expect("the range has eight bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DATA_PACKET: Data<'_> = Data {
        session: 7,
        number: Some(3),
        is_end: true,
        is_probe: false,
        acknowledgement: 9,
        bitmap: 5,
        window: 64,
        payload: b"bytes",
    };

    fn encoded(data: &Data<'_>) -> Vec<u8> {
        let mut bytes = Vec::new();
        data.encode(&mut bytes);
        bytes
    }

    #[test]
    fn packets_are_decoded_as_they_were_encoded() {
        for control in [
            Control::Hello { client: 1, cookie: 2 },
            Control::Challenge { client: 3, cookie: 4 },
            Control::Accept { client: 5, session: 6 },
            Control::Unknown { session: 7 },
        ] {
            assert_eq!(Packet::decode(&control.encode()), Ok(Packet::Control(control)));
        }
        let bare = Data { number: None, is_end: false, is_probe: true, payload: &[], ..DATA_PACKET };
        for data in [DATA_PACKET, bare] {
            assert_eq!(Packet::decode(&encoded(&data)), Ok(Packet::Data(data)));
        }
    }

    #[test]
    fn malformed_packets_have_a_reason() {
        let changed = |at: usize, byte: u8| {
            let mut bytes = encoded(&DATA_PACKET);
            bytes[at] = byte;
            Packet::decode(&bytes).unwrap_err()
        };
        assert_eq!(changed(0, b'X'), Dropped::Foreign);
        assert_eq!(changed(KIND, 9), Dropped::Size);
        assert_eq!(changed(FLAGS, NUMBERED | 8), Dropped::Field);
        assert_eq!(changed(FLAGS, 0), Dropped::Field);
        assert_eq!(changed(WINDOW, 65), Dropped::Field);
        assert_eq!(changed(SIZE, 4), Dropped::Size);
        let bytes = encoded(&DATA_PACKET);
        assert_eq!(Packet::decode(&bytes[..CONTROL_SIZE - 1]), Err(Dropped::Short));
        assert_eq!(Packet::decode(&bytes[..HEADER_SIZE - 1]), Err(Dropped::Short));
        let mut control = Control::Unknown { session: 7 }.encode();
        control[KIND] = 0;
        assert_eq!(Packet::decode(&control), Err(Dropped::Kind));
        control[KIND] = UNKNOWN;
        control[CONTROL_WORD] = 1;
        assert_eq!(Packet::decode(&control), Err(Dropped::Field));
        let together = [encoded(&DATA_PACKET), Control::Unknown { session: 7 }.encode().to_vec(), vec![7; 99]].concat();
        let decoded: Vec<_> = packets(&together).collect();
        let unknown = Packet::Control(Control::Unknown { session: 7 });
        assert_eq!(decoded, [Ok(Packet::Data(DATA_PACKET)), Ok(unknown), Err(Dropped::Foreign)]);
        let long = [encoded(&DATA_PACKET), vec![0; PACKET_SIZE_MAX]].concat();
        assert_eq!(Packet::decode(&long), Err(Dropped::Size));
        for (index, (reason, _)) in Dropped::ALL.iter().enumerate() {
            assert_eq!(*reason as usize, index);
        }
    }
}
