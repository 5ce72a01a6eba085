//! The handshake of a connection: the client sends a hello, the server replies with a welcome or a refusal.
//!
//! ```text
//! hello    0        4         5   6              8                                   16
//!          | "SKEP" | version | 0 | wanted shard | 0                                 |               version 1
//!          | "SKEP" | version | 0 | wanted shard | password size | user size | 0  | user | password |    version 2
//!
//! welcome  0        4         5   6             8       10  12                  16               24  32
//!          | "SKEP" | version | 0 | shard count | shard | 0 | request frame max | partition seed | 0 |
//!
//! refusal  0        4         5        6                                                             32
//!          | "SKEP" | version | reason | 0                                                           |
//! ```
//!
//! The connection is served by the shard that the client asked for, or by any shard (`0xFFFF`). The server also accepts
//! operations on keys of other shards, and forwards them. A client ignores the zero bytes of the welcome. The server
//! checks the zero bytes of the hello, so that a later version can use them.
//!
//! A hello of version 2 differs from version 1 only in its password, and nothing else has a version 2. So a client
//! without a password and a server without one are understood by earlier versions. The size of the name of the user has
//! one byte after that of the password; 0 is the user `default`. Servers that do not know users refuse others. A refusal is a welcome with a reason
//! and without shards: a client that does not know refusals finds it invalid.

use super::password::{PASSWORD_SIZE_MAX, Password};
use super::{ProtocolError, VERSION};

const MAGIC: [u8; 4] = *b"SKEP";
const SHARD_ANY: u16 = 0xFFFF;
/// The version of a hello with a password.
const VERSION_WITH_PASSWORD: u8 = 2;

const _: () = assert!(Hello::SIZE == MAGIC.len() + 1 + 1 + size_of::<u16>() + size_of::<u64>());
const _: () =
    assert!(Welcome::SIZE == MAGIC.len() + 1 + 1 + 3 * size_of::<u16>() + size_of::<u32>() + 2 * size_of::<u64>());

/// The most bytes of the name of a user.
pub const USER_SIZE_MAX: usize = 128;

/// The first bytes of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The shard to serve the connection, or any.
    pub shard: Option<u16>,
    /// The name of the user, of at most [`USER_SIZE_MAX`] bytes; empty: the user `default`. It needs a password.
    pub user: String,
    /// The password of the user, if it has one.
    pub password: Option<Password>,
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

/// The reason why a server does not serve a client. The server then closes the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[repr(u8)]
pub enum Refusal {
    /// The server has a password, and the hello had none.
    #[error("it needs a password")]
    PasswordNeeded = 1,
    /// The password is wrong, or there is no such user, or it is off.
    #[error("the password is wrong, or there is no such user")]
    PasswordWrong = 2,
    /// The server has no password, so it serves only clients of its own machine.
    #[error(
        "it has no password, so it serves only clients on its own machine (protected mode): give it a password \
         (--requirepass-file), users (--acl-file) or certificates of clients (--tls-client-ca), or allow every client \
         everything (--protected-mode no)"
    )]
    Protected = 3,
    /// The server has as many connections as it may have.
    #[error("it takes no more connections (--max-clients); close others, or try again later")]
    Full = 4,
    /// The server reads its data directory.
    #[error("it is loading its data directory; try again later")]
    Loading = 5,
    /// Too many wrong passwords came from the address of the client.
    #[error("too many wrong passwords came from this address; try again in a few seconds")]
    TooManyGuesses = 6,
    /// The user has as many connections as it may have.
    #[error("the user has as many connections as it may have; close others, or try again later")]
    UserFull = 7,
}

impl Refusal {
    /// All reasons, in the order of their codes.
    pub const ALL: [Refusal; 7] = [
        Refusal::PasswordNeeded,
        Refusal::PasswordWrong,
        Refusal::Protected,
        Refusal::Full,
        Refusal::Loading,
        Refusal::TooManyGuesses,
        Refusal::UserFull,
    ];

    /// Returns the bytes to send in place of a welcome.
    pub fn encode(self) -> [u8; Welcome::SIZE] {
        let mut bytes = [0; Welcome::SIZE];
        bytes[0..4].copy_from_slice(&MAGIC);
        bytes[4] = VERSION;
        bytes[5] = self as u8;
        bytes
    }
}

impl Hello {
    /// Bytes of a hello without a password.
    pub const SIZE: usize = 16;

    /// Returns a hello without a password.
    pub fn new(shard: Option<u16>) -> Hello {
        Hello { shard, user: String::new(), password: None }
    }

    /// Returns the bytes to send. A name that is too long is cut: the server then refuses it.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0; Self::SIZE];
        bytes[0..4].copy_from_slice(&MAGIC);
        bytes[4] = if self.password.is_some() { VERSION_WITH_PASSWORD } else { VERSION };
        bytes[6..8].copy_from_slice(&self.shard.unwrap_or(SHARD_ANY).to_le_bytes());
        if let Some(password) = &self.password {
            let size = u16::try_from(password.bytes().len()).expect("a password is at most 512 bytes");
            let user = &self.user.as_bytes()[..self.user.len().min(USER_SIZE_MAX)];
            bytes[8..10].copy_from_slice(&size.to_le_bytes());
            bytes[10] = user.len() as u8;
            bytes.extend_from_slice(user);
            bytes.extend_from_slice(password.bytes());
        }
        bytes
    }

    /// Decodes the hello at the start of the bytes that arrived, and returns its size. Returns `None` if more bytes are
    /// needed.
    pub fn decode(bytes: &[u8]) -> Result<Option<(Hello, usize)>, ProtocolError> {
        check_start(bytes, VERSION_WITH_PASSWORD)?;
        let Some(header) = bytes.first_chunk::<{ Self::SIZE }>() else { return Ok(None) };
        let has_password = header[4] == VERSION_WITH_PASSWORD;
        let zeros = if has_password { 11..16 } else { 8..16 };
        if header[5] != 0 || header[zeros].iter().any(|&byte| byte != 0) {
            return Err(ProtocolError::BadHello);
        }
        let shard = u16::from_le_bytes(field(header, 6));
        let shard = (shard != SHARD_ANY).then_some(shard);
        if !has_password {
            return Ok(Some((Hello::new(shard), Self::SIZE)));
        }
        let size = usize::from(u16::from_le_bytes(field(header, 8)));
        let user_size = usize::from(header[10]);
        if !(1..=PASSWORD_SIZE_MAX).contains(&size) || user_size > USER_SIZE_MAX {
            return Err(ProtocolError::BadHello);
        }
        let end = Self::SIZE + user_size + size;
        let Some(names) = bytes.get(Self::SIZE..end) else { return Ok(None) };
        let (user, password) = names.split_at(user_size);
        let user = std::str::from_utf8(user).map_err(|_| ProtocolError::BadHello)?.to_owned();
        Ok(Some((Hello { shard, user, password: Password::new(password) }, end)))
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

    /// Decodes the welcome at the start of the bytes that arrived. Returns `None` if more bytes are needed. A refusal is
    /// an error.
    pub fn decode(bytes: &[u8]) -> Result<Option<Welcome>, ProtocolError> {
        check_start(bytes, VERSION)?;
        let Some(bytes) = bytes.first_chunk::<{ Self::SIZE }>() else { return Ok(None) };
        if let Some(refusal) = Refusal::ALL.into_iter().find(|&refusal| refusal as u8 == bytes[5])
            && bytes[6..] == [0; 26]
        {
            return Err(ProtocolError::Refused(refusal));
        }
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
fn check_start(bytes: &[u8], version_max: u8) -> Result<(), ProtocolError> {
    if bytes.iter().zip(MAGIC).any(|(&byte, expected)| byte != expected) {
        return Err(ProtocolError::BadHello);
    }
    match bytes.get(MAGIC.len()) {
        Some(&version) if !(VERSION..=version_max).contains(&version) => {
            Err(ProtocolError::UnsupportedVersion(version))
        }
        _ => Ok(()),
    }
}

fn field<const SIZE: usize, const FIELD: usize>(bytes: &[u8; SIZE], start: usize) -> [u8; FIELD] {
    std::array::from_fn(|index| bytes[start + index])
}

#[cfg(test)]
mod tests {
    use super::*;

    const HELLO: Hello = Hello { shard: Some(0x0102), user: String::new(), password: None };
    const WELCOME: Welcome = Welcome {
        shard_count: 0x0203,
        shard: 0x0104,
        frame_size_max: 0x0506_0708,
        partition_seed: 0x1112_1314_1516_1718,
    };

    fn with_password(password: &str) -> Hello {
        Hello { password: Password::new(password.as_bytes()), ..HELLO }
    }

    #[test]
    fn bytes_match_the_picture() {
        assert_eq!(HELLO.encode(), *b"SKEP\x01\x00\x02\x01\0\0\0\0\0\0\0\0");
        assert_eq!(Hello::new(None).encode(), *b"SKEP\x01\x00\xff\xff\0\0\0\0\0\0\0\0");
        assert_eq!(with_password("ham").encode(), *b"SKEP\x02\x00\x02\x01\x03\0\0\0\0\0\0\0ham");
        let cook = Hello { user: "cook".to_owned(), ..with_password("ham") };
        assert_eq!(cook.encode(), *b"SKEP\x02\x00\x02\x01\x03\0\x04\0\0\0\0\0cookham");
        assert_eq!(Refusal::PasswordWrong.encode()[..8], *b"SKEP\x01\x02\0\0");
        assert_eq!(Refusal::PasswordWrong.encode()[8..], [0; 24]);
        assert_eq!(
            WELCOME.encode(),
            *b"SKEP\x01\x00\x03\x02\x04\x01\x00\x00\x08\x07\x06\x05\
               \x18\x17\x16\x15\x14\x13\x12\x11\0\0\0\0\0\0\0\0"
        );
    }

    #[test]
    fn round_trip_and_truncation() {
        let longest = "p".repeat(PASSWORD_SIZE_MAX);
        for hello in [
            HELLO,
            Hello::new(None),
            Hello::new(Some(0)),
            with_password("p"),
            with_password(&longest),
            Hello { user: "u".repeat(USER_SIZE_MAX), ..with_password("p") },
        ] {
            let bytes = hello.encode();
            for size in 0..bytes.len() {
                assert_eq!(Hello::decode(&bytes[..size]), Ok(None));
            }
            assert_eq!(Hello::decode(&bytes), Ok(Some((hello.clone(), bytes.len()))));
            assert_eq!(Hello::decode(&[&bytes[..], b"more"].concat()), Ok(Some((hello, bytes.len()))));
        }
        for refusal in Refusal::ALL {
            assert_eq!(Welcome::decode(&refusal.encode()), Err(ProtocolError::Refused(refusal)));
            assert_eq!(Welcome::decode(&refusal.encode()[..31]), Ok(None));
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
        assert_eq!(Hello::decode(b"SKEP\x03"), Err(ProtocolError::UnsupportedVersion(3)));
        assert_eq!(Welcome::decode(b"SKEP\x02"), Err(ProtocolError::UnsupportedVersion(2)));
        assert_eq!(Welcome::decode(b"SKEP\x00"), Err(ProtocolError::UnsupportedVersion(0)));
    }

    #[test]
    fn reserved_bytes_of_a_hello_are_zero() {
        for (hello, indexes) in [(HELLO, &[5, 8, 15][..]), (with_password("ham"), &[5, 11, 15])] {
            for &index in indexes {
                let mut bytes = hello.encode();
                bytes[index] = 1;
                assert_eq!(Hello::decode(&bytes), Err(ProtocolError::BadHello));
            }
        }
        let mut bytes = with_password("ham").encode();
        bytes[10] = USER_SIZE_MAX as u8 + 1;
        assert_eq!(Hello::decode(&bytes), Err(ProtocolError::BadHello));
        for size in [0, PASSWORD_SIZE_MAX as u16 + 1, u16::MAX] {
            let mut bytes = with_password("ham").encode();
            bytes[8..10].copy_from_slice(&size.to_le_bytes());
            assert_eq!(Hello::decode(&bytes), Err(ProtocolError::BadHello), "a password of {size} bytes");
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
