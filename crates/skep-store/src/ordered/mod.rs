//! The ordered store: Honeycomb's B+ tree, shared by threads, with linearizable scans and readers that never wait.
//!
//! `docs/ordered.md` draws every layout and says who may read what when. From the bottom up:
//!
//! | module | what it is | Honeycomb |
//! |---|---|---|
//! | `sync`, `lines` | atomics and locks; the observer of reads, from the parent module | |
//! | `memory` | LIDs, frames, the page table | section 3.1 |
//! | `space` | free frames and LIDs | section 3.2 |
//! | `version` | versions, epochs, garbage, leases, floors of a log | section 3.2 |
//! | `key_head` | what a search compares instead of keys | section 3.1 |
//! | `node` | what lies in a node | section 3.1 |
//! | `leaf` | searching, walking, editing and building a leaf | sections 3.3, 3.4 |
//! | `store` | what all sessions share | |
//! | `read` | descents, groups of gets, scans | sections 3.3, 4.3 |
//! | `write` | appends, merges, splits and joins | sections 3.4, 3.5 |
//! | `room` | room for several puts | |
//! | `session` | every operation, alone and in batches; effects for a log, snapshots | |

mod key_head;
mod leaf;
mod memory;
mod node;
mod read;
mod room;
mod session;
mod space;
mod store;
mod sync;
#[cfg(test)]
mod tests;
mod version;
mod write;

use super::lines;

pub use node::log::LogBlock;
pub use read::reader::{Block, Content, FoundPair, FrameBuffer, Inconsistent, Reader, SHORTCUT_BLOCK_SIZE};
pub use session::{
    Checked, Effect, Effects, FLUSH_KEYS_MAX, FlushStep, Load, MissingMemory, NodeLayout, OwnerRun, STEP_KEYS_MAX,
    Session, SnapshotStep, SnapshotWalk,
};
pub use skep_core::operation::{Range, ScanEnd as End, Start};
pub use space::SpaceStatistics;
pub use store::{OrderedSettings, OrderedStatistics, OrderedStore, SESSION_COUNT_MAX};
pub use version::lease::{LEASE_COUNT_MAX, LEASE_TIME, LeaseStatistics};
pub use version::window::Window;
