//! The two messages that set up a session, over TCP. Numbers are little-endian.
//!
//! ```text
//! request     0          8      12         16     20          24
//!             | SKEPRDM1 | pair | sequence | pair | pair's key |
//!                        └ that writes ────┘ └ for datagrams ──┘
//!
//! acceptance  0          8        12      16        24        32     36         40    44
//!             | SKEPRDM1 | status | slots | session | address | pair | sequence | key | zero, up to 48
//! ```
//!
//! - pair: the number of a queue pair.
//! - sequence: the number with which the packets of a pair begin, on the network.
//! - status: 0, or the reason of a refusal. Then all after it is zero.
//! - slots: their number. Each has 1024 bytes.
//! - session: the number of the session.
//! - address, key: those of the slots, in the server's memory.
//!
//! The version is part of the magic bytes. Neither message has an address of a machine: both sides know the other one
//! from the TCP connection. So a client cannot direct replies to another machine.

use super::slots::SLOT_COUNT;

const MAGIC: [u8; 8] = *b"SKEPRDM1";
/// Bytes of a request.
pub const REQUEST_SIZE: usize = 24;
/// Bytes of an acceptance.
pub const ACCEPTANCE_SIZE: usize = 48;
/// Numbers of pairs and packets have 24 bits.
const NUMBER_MAX: u32 = (1 << 24) - 1;
/// Keys of pairs with the highest bit belong to the system.
const KEY_MAX: u32 = u32::MAX >> 1;

/// The fault of a message that is malformed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// It does not begin as messages of this version do.
    #[error("it does not speak this version of Skep's protocol over RDMA")]
    Foreign,
    /// A field has a value that it cannot have.
    #[error("a field of its message has a value that it cannot have")]
    Field,
}

/// A request for a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The client's queue pair that writes.
    pub write_pair: u32,
    /// The number of its first packet on the network.
    pub write_start: u32,
    /// The client's queue pair for datagrams.
    pub reply_pair: u32,
    /// The key of that pair.
    pub reply_key: u32,
}

/// A session that the server has created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Acceptance {
    /// The number of the session.
    pub session: u64,
    /// The address of the slots.
    pub address: u64,
    /// The key of the slots.
    pub key: u32,
    /// The server's queue pair.
    pub pair: u32,
    /// The number of its first packet on the network. It sends none.
    pub start: u32,
}

/// The reason why there is no session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// There are too many clients.
    #[error("the server takes no more connections over RDMA")]
    Full = 1,
    /// The server's device has refused.
    #[error("the RDMA device of the server has refused the connection")]
    Device = 2,
    /// Without a password, the server serves only its own machine.
    #[error(
        "the server has no password, so it serves only clients on its own machine (protected mode): give it a password"
    )]
    Protected = 3,
}

impl Request {
    /// Returns the bytes of the message.
    pub fn encode(&self) -> [u8; REQUEST_SIZE] {
        let mut bytes = [0; REQUEST_SIZE];
        bytes[..8].copy_from_slice(&MAGIC);
        for (at, number) in [(8, self.write_pair), (12, self.write_start), (16, self.reply_pair), (20, self.reply_key)]
        {
            bytes[at..at + 4].copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }

    /// Decodes a message.
    pub fn decode(bytes: &[u8; REQUEST_SIZE]) -> Result<Request, Malformed> {
        if bytes[..8] != MAGIC {
            return Err(Malformed::Foreign);
        }
        let request = Request {
            write_pair: pair_at(bytes, 8)?,
            write_start: u32_at(bytes, 12),
            reply_pair: pair_at(bytes, 16)?,
            reply_key: u32_at(bytes, 20),
        };
        if request.write_start > NUMBER_MAX || request.reply_key > KEY_MAX {
            return Err(Malformed::Field);
        }
        Ok(request)
    }
}

impl Acceptance {
    /// Returns the bytes of the message.
    pub fn encode(&self) -> [u8; ACCEPTANCE_SIZE] {
        let mut bytes = [0; ACCEPTANCE_SIZE];
        bytes[..8].copy_from_slice(&MAGIC);
        for (at, number) in [(16, self.session), (24, self.address)] {
            bytes[at..at + 8].copy_from_slice(&number.to_le_bytes());
        }
        for (at, number) in [(12, SLOT_COUNT as u32), (32, self.pair), (36, self.start), (40, self.key)] {
            bytes[at..at + 4].copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }

    /// Decodes a message, which may be a refusal.
    pub fn decode(bytes: &[u8; ACCEPTANCE_SIZE]) -> Result<Result<Acceptance, Refusal>, Malformed> {
        if bytes[..8] != MAGIC {
            return Err(Malformed::Foreign);
        }
        let status = u32_at(bytes, 8);
        if status != 0 {
            let refusal = [Refusal::Full, Refusal::Device, Refusal::Protected].into_iter();
            let refusal = refusal.into_iter().find(|refusal| *refusal as u32 == status).ok_or(Malformed::Field)?;
            return if *bytes == refusal.encode() { Ok(Err(refusal)) } else { Err(Malformed::Field) };
        }
        let acceptance = Acceptance {
            session: u64_at(bytes, 16),
            address: u64_at(bytes, 24),
            key: u32_at(bytes, 40),
            pair: pair_at(bytes, 32)?,
            start: u32_at(bytes, 36),
        };
        // The address of every slot is one.
        let fits = acceptance.address.checked_add(super::SLOTS_SIZE as u64).is_some();
        if u32_at(bytes, 12) != SLOT_COUNT as u32 || u32_at(bytes, 44) != 0 || acceptance.start > NUMBER_MAX || !fits {
            return Err(Malformed::Field);
        }
        Ok(Ok(acceptance))
    }
}

impl Refusal {
    /// Returns the bytes of the message.
    pub fn encode(self) -> [u8; ACCEPTANCE_SIZE] {
        let mut bytes = [0; ACCEPTANCE_SIZE];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&(self as u32).to_le_bytes());
        bytes
    }
}

fn u32_at<const N: usize>(bytes: &[u8; N], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("the range has four bytes"))
}

fn u64_at<const N: usize>(bytes: &[u8; N], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("the range has eight bytes"))
}

/// Returns the number of a queue pair.
fn pair_at<const N: usize>(bytes: &[u8; N], at: usize) -> Result<u32, Malformed> {
    match u32_at(bytes, at) {
        number @ 1..=NUMBER_MAX => Ok(number),
        _ => Err(Malformed::Field),
    }
}

#[cfg(test)]
mod tests {
    use rand::{Rng, RngExt, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::*;

    const REQUEST: Request = Request { write_pair: 17, write_start: NUMBER_MAX, reply_pair: 18, reply_key: KEY_MAX };
    const ACCEPTANCE: Acceptance = Acceptance { session: u64::MAX, address: 1 << 40, key: u32::MAX, pair: 1, start: 0 };

    #[test]
    fn messages_are_decoded_as_they_were_encoded() {
        assert_eq!(Request::decode(&REQUEST.encode()), Ok(REQUEST));
        assert_eq!(Acceptance::decode(&ACCEPTANCE.encode()), Ok(Ok(ACCEPTANCE)));
        for refusal in [Refusal::Full, Refusal::Device, Refusal::Protected] {
            assert_eq!(Acceptance::decode(&refusal.encode()), Ok(Err(refusal)));
        }
    }

    #[test]
    fn malformed_messages_have_a_reason() {
        let request = |at: usize, byte| {
            let mut bytes = REQUEST.encode();
            bytes[at] = byte;
            Request::decode(&bytes)
        };
        assert_eq!(request(7, b'2'), Err(Malformed::Foreign));
        for (at, byte) in [(8, 0), (11, 1), (15, 1), (16, 0), (19, 1), (23, 0x80)] {
            assert_eq!(request(at, byte), Err(Malformed::Field), "{at}");
        }
        let acceptance = |at: usize, byte| {
            let mut bytes = ACCEPTANCE.encode();
            bytes[at] = byte;
            Acceptance::decode(&bytes)
        };
        assert_eq!(acceptance(0, 0), Err(Malformed::Foreign));
        for (at, byte) in [(8, 1), (8, 4), (12, 1), (32, 0), (35, 1), (39, 1), (44, 1)] {
            assert_eq!(acceptance(at, byte), Err(Malformed::Field), "{at}");
        }
        let high = Acceptance { address: u64::MAX - 1, ..ACCEPTANCE };
        assert_eq!(Acceptance::decode(&high.encode()), Err(Malformed::Field));
    }

    #[test]
    fn no_message_makes_the_decoder_panic() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
        for _ in 0..100_000 {
            let (mut request, mut acceptance) = (REQUEST.encode(), ACCEPTANCE.encode());
            for _ in 0..random.random_range(1..8) {
                request[random.random_range(0..REQUEST_SIZE)] = random.next_u64() as u8;
                acceptance[random.random_range(0..ACCEPTANCE_SIZE)] = random.next_u64() as u8;
            }
            if let Ok(decoded) = Request::decode(&request) {
                assert_eq!(decoded.encode(), request);
            }
            if let Ok(Ok(decoded)) = Acceptance::decode(&acceptance) {
                assert_eq!(decoded.encode(), acceptance);
            }
        }
    }
}
