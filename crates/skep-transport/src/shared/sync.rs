//! The atomics of the rings. A model checker replaces this module.

pub(crate) use std::sync::atomic::{AtomicU64, Ordering, fence};
