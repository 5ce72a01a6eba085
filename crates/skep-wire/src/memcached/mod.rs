//! The text protocol of memcached: the server's side, which parses requests and writes replies.
//!
//! A request is a line of words, separated by blanks. Some requests have a value after the line. A line ends with
//! `\r\n` or `\n`, a value always with `\r\n`:
//!
//! ```text
//!   get KEY...                                         gets KEY...
//!   gat EXPTIME KEY...                                 gats EXPTIME KEY...
//!   set KEY FLAGS EXPTIME SIZE [noreply]               then VALUE; also add, replace, append, prepend
//!   cas KEY FLAGS EXPTIME SIZE CAS [noreply]           then VALUE
//!   delete KEY [0] [noreply]                           touch KEY EXPTIME [noreply]
//!   incr KEY DELTA [noreply]                           decr KEY DELTA [noreply]
//!   flush_all [DELAY] [noreply]                        verbosity LEVEL [noreply]
//!   stats [reset|settings|items|slabs|sizes|conns]     version, quit
//! ```
//!
//! A meta command has two letters, a key and flags of one letter, some with a token: `mg key v t Oid`.
//!
//! ```text
//!   mg KEY FLAG...          get            md KEY FLAG...     delete          me KEY [b]    debug
//!   ms KEY SIZE FLAG...     then VALUE     ma KEY FLAG...     arithmetic      mn            no operation
//!
//!   b        the key is base64             C cas     the operation needs this cas
//!   q        a usual reply is not sent     T exptime the new expiry
//!   v        returns the value             N exptime creates a missing key, which expires then
//!   k        returns the key               R exptime lets one client win if less time is left
//!   O token  returns the token             F flags   the client's flags of the pair
//!   s t c    returns size, time to live,   M mode    of ms: E A P R S; of ma: I + D -
//!            cas                           D delta   of ma
//!   f h l    returns flags, hit before,    J number  the initial value of ma
//!            time since the last access    I         marks the pair as stale
//!   u        is not an access              P L token ignored
//! ```
//!
//! Replies:
//!
//! ```text
//!   VALUE KEY FLAGS SIZE [CAS]\r\n VALUE\r\n ... END\r\n          STAT NAME VALUE\r\n ... END\r\n
//!   STORED  NOT_STORED  EXISTS  NOT_FOUND  DELETED  TOUCHED  OK  RESET  a number  VERSION text
//!   ERROR   CLIENT_ERROR text   SERVER_ERROR text
//!   HD FLAG...   EN   NS   NF   EX   MN   VA SIZE FLAG...\r\n VALUE\r\n   ME KEY NAME=VALUE...
//! ```
//!
//! Behaviour and error messages are those of memcached 1.6. These inputs have another effect:
//!
//! | input | memcached | here |
//! |---|---|---|
//! | flags of 2³² or more, a size of 2³¹ or more | uses the low 32 bits | refused |
//! | an exptime outside 32 bits | uses the low 32 bits | a time after 2038, or long ago |
//! | a tab or carriage return beside a number | ignored, with what follows it | refused |
//! | `-0` as flags, size, cas or delta | 0 | refused |
//! | a byte 0 | ends the line | refused in a key |
//! | base64 that continues after its end | ignores the rest | refused |
//! | a line that begins with the byte 80₁₆, as requests of the binary protocol do | `ERROR` after another line | closes the connection |
//! | a line over [`LINE_SIZE_MAX`] | accepted if it arrives in one part | closes the connection |
//! | an opaque token that is too long | refused after the change by `ma` or `N` | refused before any change |
//! | `lru_crawler`, `watch`, `slabs` and other commands on its memory | | `ERROR` |
//!
//! Invariants: no input makes the parser panic. The parser allocates nothing. The result does not depend on the pieces
//! in which the input arrives. A request is complete, or refused as a whole.

mod base64;
mod datagram;
mod error;
mod exptime;
mod line;
mod meta;
mod parser;
mod plain;
mod reply;
mod request;
#[cfg(test)]
mod tests;
mod text;
mod words;

pub use datagram::{DATAGRAM_SIZE_MAX, FRAME_SIZE, Frame, frames};
pub use error::ErrorReply;
pub use exptime::Exptime;
pub use meta::{MetaFlags, ReturnFlag, ReturnFlags};
pub use parser::{Parsed, RequestParser};
pub use plain::Plain;
pub use reply::{MetaCode, MetaDebug, MetaItem, ReplyWriter, Status};
pub use request::{Direction, Request, Statistics, Store, StoreMode};
pub use words::Words;

/// Longest key, in bytes. A base64 key has at most this many bytes before it is decoded.
pub const KEY_SIZE_MAX: usize = 250;
/// Longest line of a request that is no retrieval, in bytes before its line feed.
pub const LINE_SIZE_MAX: usize = 2048;
/// Longest line of a retrieval, in bytes before its line feed. memcached has no limit.
pub const RETRIEVAL_SIZE_MAX: usize = 2 << 20;
/// Longest opaque token of a meta command, in bytes, without its letter.
pub const OPAQUE_SIZE_MAX: usize = 31;
/// Most words of a meta command, its name and key included.
pub const META_WORD_COUNT_MAX: usize = 19;
