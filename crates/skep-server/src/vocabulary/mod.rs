//! The names that the other modules share. They need nothing of the server themselves.

mod address;
mod decoded;
mod durability;
mod effort;
mod extent;
mod functions;
mod has_changed;
mod keyspace_operation;
mod limit;
mod log_pace;
mod operation_source;
mod pause;
mod release;
mod shard_set;
mod space;
mod step;
mod token;

pub(crate) use address::Address;
pub(crate) use decoded::{Decoded, Need, make_room};
pub use durability::Durability;
pub(crate) use effort::Effort;
pub(crate) use extent::{Extent, Extents};
pub(crate) use functions::{FunctionTable, Functions, Revision};
pub(crate) use has_changed::has_changed;
pub(crate) use keyspace_operation::{END, KeyspaceOperation, UNKNOWN, WalkStart};
pub(crate) use limit::{Limit, Refusal};
pub(crate) use log_pace::LogPace;
pub(crate) use operation_source::OperationSource;
pub(crate) use pause::Pause;
pub(crate) use release::{Doubt, EncodedReplies, Reached, Release};
pub(crate) use shard_set::ShardSet;
pub(crate) use space::{List, ReplyIndex, Space, Spaces};
pub(crate) use step::Step;
pub(crate) use token::Token;
