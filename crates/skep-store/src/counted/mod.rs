//! The ordered store with an observer of its reads and writes: the same source files as [`crate::ordered`], compiled a
//! second time.
//!
//! ```text
//! crate::lines, no observer ──▶ crate::ordered          ships; is timed
//! counted::lines, observer ───▶ counted::ordered        counts lines, copies changes; stops a writer in tests
//!                               └ the same files
//! ```
//!
//! The two differ in the module `lines` that they import from their parent. So the counted path is the path that ships,
//! without a type parameter, and the shipped store has no trace of the observer.

mod lines;
#[expect(clippy::duplicate_mod, reason = "the counted store has the source of the shipped one")]
#[path = "../ordered/mod.rs"]
pub mod ordered;

use std::sync::Arc;

pub use lines::{LinesTouched, Observer, Touched};

use crate::memory::RegionError;
use ordered::{OrderedSettings, OrderedStore};

/// Creates an empty store whose reads and writes are observed.
pub fn observed(settings: &OrderedSettings, observer: Arc<dyn Observer>) -> Result<OrderedStore, RegionError> {
    OrderedStore::with_lines(settings, lines::Lines::observed(observer))
}
