//! A client of Skep: batches of operations over the native protocol, blocking ([`Client`]) or on tokio
//! ([`AsyncClient`]).
//!
//! ```no_run
//! # fn main() -> Result<(), skep_client::ClientError> {
//! use skep_client::{Client, Element, Operation, Request, Responses, Shape, Update, UpdateFunction};
//!
//! let mut client = Client::connect("127.0.0.1:7379", 0)?;
//! client.put(b"greeting", b"hello")?;
//! assert_eq!(client.get(b"greeting")?.as_deref(), Some(b"hello".as_slice()));
//!
//! // Each single operation is one round trip. A batch is one round trip for all of its requests.
//! let increment = Operation::Update(Update {
//!     function: UpdateFunction::Add,
//!     element: Element::I64,
//!     shape: Shape::ScalarToScalar,
//!     operand: &1i64.to_le_bytes(),
//!     initial: Some(&0i64.to_le_bytes()),
//!     return_old: false,
//! });
//! let words = ["the", "quick", "brown", "fox", "and", "the", "dog"];
//! let requests: Vec<_> = words.iter().map(|word| Request { key: word.as_bytes(), operation: increment }).collect();
//! let mut responses = Responses::new();
//! client.execute(&requests, &mut responses)?;
//! # Ok(())
//! # }
//! ```
//!
//! The address is `HOST:PORT` or `tls:HOST:PORT`, or for the blocking client also `udp:HOST:PORT` or `shm:PATH` (shared
//! memory). For TLS, [`ClientTlsSettings`] names the authorities to trust.
//!
//! The space is chosen when a client connects, and by [`Client::select`]. The ordered space supports ranges:
//!
//! ```no_run
//! # fn main() -> Result<(), skep_client::ClientError> {
//! use skep_client::{Client, KeyRange, ORDERED_SPACE};
//!
//! let mut client = Client::connect("127.0.0.1:7379", ORDERED_SPACE)?;
//! client.put(b"user:7", b"ada")?;
//! for (key, value) in client.scan(KeyRange::prefix(b"user:").limit(100))? {
//!     println!("{} is {}", key.escape_ascii(), value.escape_ascii());
//! }
//! for page in client.pages(KeyRange::all().reverse()) {
//!     println!("{} pairs", page?.len());
//! }
//! # Ok(())
//! # }
//! ```
//!
//! A client has one connection to each shard of the server, and sends each key to the shard that owns it. It divides a
//! batch into frames and keeps several of them in flight on each connection. It reads replies while it writes, so a
//! batch may have any size. Replies are returned in the order of the requests. Requests on one key take effect in their
//! order. A batch is not a transaction: a scan in a batch may or may not see changes of the same batch.
//!
//! [`ClientSettings`] has the password of the server, the timeouts and the retries of [`Client::connect_with`]. If a
//! connection breaks, the running or the next call connects again:
//!
//! - Reads, and requests that were not yet sent, are sent over the new connection.
//! - An update that was sent and has no reply may have happened. It is never sent again: the call fails with
//!   [`ClientError::MayHaveHappened`].
//! - A scan that has returned pages ends with [`OperationError::LeaseExpired`], because the server has forgotten the
//!   moment that it shows.
//! - A call without a reply for too long closes its connections and fails, so that no later call gets its reply.
//!
//! Both clients only move bytes. They share one core, without sockets and timers, that encodes requests and decodes
//! replies.

mod address;
mod async_stream;
mod asynchronous;
mod blocking;
mod error;
mod exchange;
mod expiries;
mod functions;
mod handshake;
mod lane;
mod operations;
mod range;
mod reply;
mod responses;
mod retries;
mod scans;
mod settings;
mod stream;
mod system_error;
mod tls;
mod tls_stream;

pub use address::{ResolvedAddress, ServerAddress};
pub use asynchronous::{AsyncClient, AsyncPages};
pub use blocking::{Client, Pages, ShardStream};
pub use error::{ClientError, NotWelcome};
pub use expiries::KeyExpiry;
pub use functions::ListedFunction;
pub use range::{KeyRange, Pair};
pub use responses::Responses;
pub use settings::ClientSettings;
pub use skep_core::function::{
    BitField, BitFields, BitRange, Element, FieldPosition, Fold, FunctionHandle, Overflow, Predicate, UpdateFunction,
};
pub use skep_core::operation::{
    Call, CallReply, Condition, ConditionKind, Expiry, ExpiryChange, ExpiryCondition, Filter, Operation,
    OperationError, Page, PutCondition, Reduce, Reply, Request, Scan, ScanAnswer, ScanEnd, ScanLease, ScanStart, Shape,
    StringRead, StringWrite, Update,
};
pub use skep_wire::native::{
    CACHE_SPACE, FUNCTIONS_SPACE, HASH_SPACE, ORDERED_SPACE, PASSWORD_SIZE_MAX, Password, ProtocolError, Refusal,
    Response, WireError,
};
pub use tls::{CertificateNames, ClientIdentity, ClientTlsSettings, TlsFailure};
