//! The ordered store: Honeycomb's B+ tree, shared by threads, with linearizable scans and readers that never wait.
//!
//! `docs/ordered.md` draws every layout and says who may read what when. From the bottom up:
//!
//! | module | what it is | Honeycomb |
//! |---|---|---|
//! | `frame`, `header`, `page_table`, `hint` | memory of nodes, and where they are | section 3.1 |
//! | `lock`, `version`, `epoch` | the small machines that threads meet in | section 3.2 |
//! | `space`, `garbage`, `reclaim` | free frames and LIDs, those that wait to be free, how they are freed | section 3.2 |
//! | `lanes`, `window`, `shortcut`, `division`, `segment`, `interior`, `sorted`, `log`, `outside` | what lies in a node | section 3.1 |
//! | `leaf`, `cursor`, `range`, `scan`, `batch` | reading | sections 3.3, 4.3 |
//! | `change`, `edit`, `merge`, `write`, `restructure` | writing | sections 3.4, 3.5 |
//! | `tight`, `evacuate` | writing when memory is nearly full, moving frames | |
//! | `lease` | versions that are kept for scans in pages | |
//! | `execute`, `pages` | every operation, in batches; scans in pages | |
//! | `deferred`, `shortage` | operations that wait for memory | |
//! | `check` | what always holds of a tree | |

mod batch;
mod change;
mod check;
mod cursor;
mod deferred;
mod division;
mod edit;
mod epoch;
mod evacuate;
mod execute;
mod frame;
mod garbage;
mod header;
mod hint;
mod interior;
mod lanes;
mod leaf;
mod lease;
mod lock;
mod log;
mod merge;
mod outside;
mod page_table;
mod pages;
mod range;
mod reclaim;
mod restructure;
mod scale;
mod scan;
mod segment;
mod session;
mod shortage;
mod shortcut;
mod sorted;
mod space;
mod sync;
#[cfg(test)]
mod tests;
mod tight;
mod trace;
mod tree;
mod version;
mod window;
mod write;

pub use check::Checked;
pub use execute::OwnerRun;
pub use lease::{LEASE_COUNT_MAX, LEASE_TIME, LeaseStatistics};
pub use log::LogBlock;
pub use range::{End, Range, Start};
pub use session::Session;
pub use space::SpaceStatistics;
pub use trace::{LinesTouched, Touched, Trace, Untraced};
pub use tree::{OrderedSettings, OrderedStatistics, OrderedStore, SESSION_COUNT_MAX};
