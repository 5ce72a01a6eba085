//! KV-Direct's hash store (section 3.3): a table of 64-byte buckets, and slabs for larger pairs.

pub mod bucket;
mod bucket_index;
mod edit;
mod find;
mod flush;
mod growth;
mod index;
mod large;
mod large_layout;
mod location;
mod object;
pub mod poisson;
mod position;
mod reclaim;
mod replay;
mod resident;
mod resident_large;
mod resident_slab;
mod room;
mod settings;
pub mod slab;
mod stale;
mod table;
mod used;
mod walk;
mod walk_pairs;

pub(crate) use bucket_index::BucketIndex;
pub use find::Search;
pub use flush::STEP_BUCKETS as FLUSH_STEP_BUCKETS;
pub(crate) use index::Division;
pub use position::KeyPositions;
pub use settings::Settings;
pub use table::HashTable;
pub use walk::{STEP_BUCKETS_MAX, STEP_SLABS_MAX, WalkLimit, WalkStep};

pub(crate) use bucket::{Bucket, InlinePair, SlabSlot};
pub(crate) use edit::NotStored;
pub(crate) use find::{Lanes, Probe, QuickProbe, ShortValue, WithLanes, find_short_value, probe};
pub(crate) use large::Pieces;
pub(crate) use location::Location;
pub(crate) use object::{LargeRoot, PAIR_SIZE_MAX, is_large};
pub(crate) use reclaim::Reclaim;
pub use reclaim::STEP_KEYS_MAX;
pub(crate) use resident_slab::{ResidentSlab, SlabAccess};
pub use room::Room;
pub(crate) use table::{Access, BucketAccess, Home, KeyHash, ResidentValue, Sought};
