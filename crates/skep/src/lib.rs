//! Skep, an in-memory key-value store for state that many programs share and change at memory speed.
//!
//! This library is for programs that embed the store or connect to a server. It exports what they need from the crates
//! of the workspace. Names that it does not export are internal.
//!
//! # A store inside the program
//!
//! A [`Store`] is one shard. One thread at a time uses it, and it is fastest with large batches.
//!
//! ```
//! use skep::{Element, Operation, PutCondition, Replies, Reply, Request, Shape, Store, StoreSettings, Update, UpdateFunction};
//!
//! // 16 MiB.
//! let mut store = Store::open(&StoreSettings::growing(16 << 20, 0x5eed))?;
//!
//! let add_five = Operation::Update(Update {
//!     function: UpdateFunction::Add,
//!     element: Element::I64,
//!     shape: Shape::ScalarToScalar,
//!     operand: &5i64.to_le_bytes(),
//!     initial: Some(&0i64.to_le_bytes()),
//!     return_old: false,
//! });
//! let batch = [
//!     Request { key: b"name", operation: Operation::Put { value: b"skep", condition: PutCondition::Always } },
//!     Request { key: b"hits", operation: add_five },
//!     Request { key: b"hits", operation: add_five },
//!     Request { key: b"hits", operation: Operation::Get },
//!     Request { key: b"missing", operation: Operation::Get },
//! ];
//! let mut replies = Replies::with_budget(1 << 20);
//! store.execute(&batch, &mut replies);
//!
//! assert_eq!(replies.get(0), Reply::Done);
//! assert_eq!(replies.get(3), Reply::Value(&10i64.to_le_bytes()));
//! assert_eq!(replies.get(4), Reply::NotFound);
//! # Ok::<(), skep::OpenError>(())
//! ```
//!
//! # A durable store inside the program
//!
//! A [`DurableStore`] keeps its pairs in a data directory. A thread writes each change to a log. When `flush` returns, all
//! earlier operations are on disk. A snapshot replaces the log.
//!
//! ```
//! use skep::{DurableStore, Operation, PutCondition, Replies, Reply, Request, StoreSettings};
//!
//! # let parent = tempfile::tempdir()?;
//! # let directory = parent.path().join("data");
//! let settings = StoreSettings::growing(16 << 20, 0x5eed);
//! let mut replies = Replies::with_budget(1 << 20);
//! {
//!     let mut store = DurableStore::open(&directory, &settings)?;
//!     let put = Operation::Put { value: b"skep", condition: PutCondition::Always };
//!     store.execute(&[Request { key: b"name", operation: put }], &mut replies)?;
//!     // On disk when it returns. One flush serves many batches.
//!     store.flush()?;
//!     if store.log_size() > store.statistics().pair_bytes {
//!         store.snapshot()?;
//!     }
//! }
//! let mut store = DurableStore::open(&directory, &settings)?;
//! store.execute(&[Request { key: b"name", operation: Operation::Get }], &mut replies)?;
//! assert_eq!(replies.get(0), Reply::Value(b"skep"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # An ordered store inside the program
//!
//! All threads share an [`ordered::OrderedStore`]; each works through a session of its own. Scans are linearizable, and readers
//! never wait for writers.
//!
//! ```
//! use skep::ordered::{OrderedSettings, OrderedStore, Range};
//! use skep::{PutCondition, Reply};
//!
//! let store = OrderedStore::new(&OrderedSettings::new(16 << 20))?;
//! std::thread::scope(|scope| {
//!     for thread in 0..2 {
//!         let mut session = store.session().expect("a store has many sessions");
//!         scope.spawn(move || {
//!             let key = format!("user:{thread}");
//!             assert_eq!(session.put(key.as_bytes(), b"ada", PutCondition::Always), Reply::Done);
//!         });
//!     }
//! });
//! let mut session = store.session().expect("a store has many sessions");
//! let mut keys = Vec::new();
//! session.scan(Range::ALL, |key, _value| {
//!     keys.push(String::from_utf8_lossy(key).into_owned());
//!     true
//! });
//! assert_eq!(keys, ["user:0", "user:1"]);
//! # Ok::<(), skep::RegionError>(())
//! ```
//!
//! # A cache inside the program
//!
//! A [`cache::Cache`] has the operations of the hash store, but never refuses a pair: it forgets old ones instead.
//!
//! ```
//! use skep::cache::{Cache, Settings};
//! use skep::{Operation, PutCondition, Replies, Reply, Request};
//!
//! let mut cache = Cache::new(&Settings { memory: 2 << 20, kv_size: 1024, seed: 1 })?;
//! let mut replies = Replies::with_budget(1 << 20);
//! let put = |value| Operation::Put { value, condition: PutCondition::Always };
//! for number in 0..10_000_u32 {
//!     cache.execute(&[Request { key: &number.to_le_bytes(), operation: put(&[7; 1020]) }], &mut replies);
//!     assert_eq!(replies.get(0), Reply::Done);
//! }
//! cache.execute(&[Request { key: &9_999_u32.to_le_bytes(), operation: Operation::Get }], &mut replies);
//! assert_eq!(replies.get(0), Reply::Value(&[7; 1020]));
//! cache.execute(&[Request { key: &0_u32.to_le_bytes(), operation: Operation::Get }], &mut replies);
//! assert_eq!(replies.get(0), Reply::NotFound);
//! # Ok::<(), skep::RegionError>(())
//! ```
//!
//! # A client of a server
//!
//! [`Client`] is blocking, [`AsyncClient`] runs on tokio. Both send each operation to the shard that owns its key, and
//! accept batches of any length.
//!
//! ```no_run
//! let mut client = skep::Client::connect("127.0.0.1:7379", skep::HASH_SPACE)?;
//! client.put(b"name", b"skep")?;
//! assert_eq!(client.get(b"name")?.as_deref(), Some(&b"skep"[..]));
//! # Ok::<(), skep::ClientError>(())
//! ```
//!
//! The address is `HOST:PORT`, or for the blocking client also `udp:HOST:PORT` or `shm:PATH` (shared memory).
//!
//! The ordered space returns keys in order. A scan shows the state at one moment, however many pages it takes.
//!
//! ```no_run
//! use skep::KeyRange;
//!
//! let mut client = skep::Client::connect("127.0.0.1:7379", skep::ORDERED_SPACE)?;
//! client.put(b"user:4", b"barbara")?;
//! let last_two = client.scan(KeyRange::prefix(b"user:").reverse().limit(2))?;
//! for page in client.pages(KeyRange::all().at_or_above(b"user:2")) {
//!     for (key, value) in page? {
//!         println!("{} {}", key.escape_ascii(), value.escape_ascii());
//!     }
//! }
//! # let _ = last_two;
//! # Ok::<(), skep::ClientError>(())
//! ```

mod durable_log;
mod durable_store;
pub mod functions;
mod store;

pub use durable_store::{DirectoryError, DiskError, DurableStore};
pub use skep_client::{
    AsyncClient, AsyncPages, CertificateNames, Client, ClientError, ClientIdentity, ClientSettings, ClientTlsSettings,
    KeyExpiry, KeyRange, NotWelcome, Pages, Pair, ResolvedAddress, Responses, ServerAddress, TlsFailure,
};
pub use skep_core::function::{
    BitField, BitFields, BitRange, Element, FieldPosition, Fold, Overflow, ParseError, Predicate, UpdateFunction,
};
pub use skep_core::operation::{
    Condition, ConditionKind, Expiry, ExpiryChange, ExpiryCondition, Filter, Operation, OperationError, Page,
    PutCondition, Reduce, Reply, Request, Scan, ScanAnswer, ScanEnd, ScanLease, ScanStart, Shape, StringRead,
    StringWrite, Update,
};
pub use skep_log::{Damage, LogError};
pub use skep_server::{Server, ServerSettings, StartError};
pub use skep_store::hash::Settings as StoreSettings;
pub use skep_store::memory::RegionError;
pub use skep_store::processor::{Replies, Statistics};
pub use skep_wire::native::{
    CACHE_SPACE, FUNCTIONS_SPACE, HASH_SPACE, ORDERED_SPACE, PASSWORD_SIZE_MAX, Password, ProtocolError, Refusal,
    Response, WireError,
};
pub use store::{OpenError, Store};

/// The ordered store (Honeycomb): a B+ tree that the threads of a program share.
pub mod ordered {
    pub use skep_store::ordered::{End, OrderedSettings, OrderedStatistics, OrderedStore, Range, Session, Start};
}

/// A store that may forget keys (MICA's cache mode, as HERD uses it).
pub mod cache {
    pub use skep_store::cache::{
        Cache, CasNumber, ItemArithmetic, ItemChange, ItemCommand, ItemFields, ItemGet, ItemPut, ItemPutMode,
        ItemRequest, ItemValue, Settings, Statistics,
    };
}

/// The limits of keys and values.
pub mod limits {
    pub use skep_core::operation::{KEY_SIZE_MAX, VALUE_SIZE_MAX};
}
