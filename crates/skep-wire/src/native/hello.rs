//! The handshake of a connection: the client sends a hello, the server replies with a welcome.
//!
//! ```text
//! hello    0        4         5   6              8                                16
//!          | "SKEP" | version | 0 | wanted shard | 0                              |
//!
//! welcome  0        4         5   6             8       10  12                  16               24  32
//!          | "SKEP" | version | 0 | shard count | shard | 0 | request frame max | partition seed | 0 |
//! ```
//!
//! The connection is served by the shard that the client asked for, or by any shard (`0xFFFF`). The server also accepts
//! operations on keys of other shards, and forwards them. A client ignores the zero bytes of the welcome. The server
//! checks the zero bytes of the hello, so that a later version can use them.

use super::{ProtocolError, VERSION};

const MAGIC: [u8; 4] = *b"SKEP";
const SHARD_ANY: u16 = 0xFFFF;

const _: () = assert!(Hello::SIZE == MAGIC.len() + 1 + 1 + size_of::<u16>() + size_of::<u64>());
const _: () =
    assert!(Welcome::SIZE == MAGIC.len() + 1 + 1 + 3 * size_of::<u16>() + size_of::<u32>() + 2 * size_of::<u64>());

/// The first bytes of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The shard to serve the connection, or any.
    pub shard: Option<u16>,
}

/// The first bytes of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Welcome {
    /// Number of the server's shards, at least one.
    pub shard_count: u16,
    /// The shard that serves this connection.
    pub shard: u16,
    /// Largest size that a request frame may state, in bytes.
    pub frame_size_max: u32,
    /// Seed of the hash that assigns keys to shards: see [`Partition`](crate::partition::Partition).
    pub partition_seed: u64,
}

impl Hello {
    /// Bytes of a hello.
    pub const SIZE: usize = 16;

    /// Returns the bytes to send.
    pub fn encode(&self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        bytes[0..4].copy_from_slice(&MAGIC);
        bytes[4] = VERSION;
        bytes[6..8].copy_from_slice(&self.shard.unwrap_or(SHARD_ANY).to_le_bytes());
        bytes
    }

    /// Decodes the hello at the start of the bytes that arrived. Returns `None` if more bytes are needed.
    pub fn decode(bytes: &[u8]) -> Result<Option<Hello>, ProtocolError> {
        check_start(bytes)?;
        let Some(bytes) = bytes.first_chunk::<{ Self::SIZE }>() else { return Ok(None) };
        if bytes[5] != 0 || bytes[8..16] != [0; 8] {
            return Err(ProtocolError::BadHello);
        }
        let shard = u16::from_le_bytes(field(bytes, 6));
        Ok(Some(Hello { shard: (shard != SHARD_ANY).then_some(shard) }))
    }
}

impl Welcome {
    /// Bytes of a welcome.
    pub const SIZE: usize = 32;

    /// Returns the bytes to send.
    pub fn encode(&self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        bytes[0..4].copy_from_slice(&MAGIC);
        bytes[4] = VERSION;
        bytes[6..8].copy_from_slice(&self.shard_count.to_le_bytes());
        bytes[8..10].copy_from_slice(&self.shard.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.frame_size_max.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.partition_seed.to_le_bytes());
        bytes
    }

    /// Decodes the welcome at the start of the bytes that arrived. Returns `None` if more bytes are needed.
    pub fn decode(bytes: &[u8]) -> Result<Option<Welcome>, ProtocolError> {
        check_start(bytes)?;
        let Some(bytes) = bytes.first_chunk::<{ Self::SIZE }>() else { return Ok(None) };
        let welcome = Welcome {
            shard_count: u16::from_le_bytes(field(bytes, 6)),
            shard: u16::from_le_bytes(field(bytes, 8)),
            frame_size_max: u32::from_le_bytes(field(bytes, 12)),
            partition_seed: u64::from_le_bytes(field(bytes, 16)),
        };
        if welcome.shard < welcome.shard_count { Ok(Some(welcome)) } else { Err(ProtocolError::BadHello) }
    }
}

/// Refuses an invalid start at its first wrong byte. It does not wait for a complete hello, because a peer that uses
/// another protocol may never send that many bytes.
fn check_start(bytes: &[u8]) -> Result<(), ProtocolError> {
    if bytes.iter().zip(MAGIC).any(|(&byte, expected)| byte != expected) {
        return Err(ProtocolError::BadHello);
    }
    match bytes.get(MAGIC.len()) {
        Some(&version) if version != VERSION => Err(ProtocolError::UnsupportedVersion(version)),
        _ => Ok(()),
    }
}

fn field<const SIZE: usize, const FIELD: usize>(bytes: &[u8; SIZE], start: usize) -> [u8; FIELD] {
    std::array::from_fn(|index| bytes[start + index])
}

#[cfg(test)]
mod tests {
    use super::*;

    const HELLO: Hello = Hello { shard: Some(0x0102) };
    const WELCOME: Welcome = Welcome {
        shard_count: 0x0203,
        shard: 0x0104,
        frame_size_max: 0x0506_0708,
        partition_seed: 0x1112_1314_1516_1718,
    };

    #[test]
    fn bytes_match_the_picture() {
        assert_eq!(HELLO.encode(), *b"SKEP\x01\x00\x02\x01\0\0\0\0\0\0\0\0");
        assert_eq!(Hello { shard: None }.encode(), *b"SKEP\x01\x00\xff\xff\0\0\0\0\0\0\0\0");
        assert_eq!(
            WELCOME.encode(),
            *b"SKEP\x01\x00\x03\x02\x04\x01\x00\x00\x08\x07\x06\x05\
               \x18\x17\x16\x15\x14\x13\x12\x11\0\0\0\0\0\0\0\0"
        );
    }

    #[test]
    fn round_trip_and_truncation() {
        for hello in [HELLO, Hello { shard: None }, Hello { shard: Some(0) }] {
            assert_eq!(Hello::decode(&hello.encode()), Ok(Some(hello)));
            for size in 0..Hello::SIZE {
                assert_eq!(Hello::decode(&hello.encode()[..size]), Ok(None));
            }
        }
        assert_eq!(Welcome::decode(&WELCOME.encode()), Ok(Some(WELCOME)));
        for size in 0..Welcome::SIZE {
            assert_eq!(Welcome::decode(&WELCOME.encode()[..size]), Ok(None));
        }
    }

    #[test]
    fn wrong_starts_are_refused_at_once() {
        for start in ["G", "*1\r\n", "SKEL", "SSH-2.0-OpenSSH", "-ERR unknown command\r\n"] {
            assert_eq!(Hello::decode(start.as_bytes()), Err(ProtocolError::BadHello), "{start}");
            assert_eq!(Welcome::decode(start.as_bytes()), Err(ProtocolError::BadHello), "{start}");
        }
        assert_eq!(Hello::decode(b"SKEP\x02"), Err(ProtocolError::UnsupportedVersion(2)));
        assert_eq!(Welcome::decode(b"SKEP\x00"), Err(ProtocolError::UnsupportedVersion(0)));
    }

    #[test]
    fn reserved_bytes_of_a_hello_are_zero() {
        for index in [5, 8, 15] {
            let mut bytes = HELLO.encode();
            bytes[index] = 1;
            assert_eq!(Hello::decode(&bytes), Err(ProtocolError::BadHello));
        }
    }

    #[test]
    fn a_welcome_names_a_shard_that_exists() {
        let none = Welcome { shard_count: 0, shard: 0, ..WELCOME };
        let beyond = Welcome { shard_count: 3, shard: 3, ..WELCOME };
        for welcome in [none, beyond] {
            assert_eq!(Welcome::decode(&welcome.encode()), Err(ProtocolError::BadHello));
        }
    }
}
