//! The processor.
mod replies;
pub use replies::Replies;
