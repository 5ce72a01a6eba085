//! Tests of the tree under several threads that need to see inside it.

mod history;
mod stress;
mod without_versions;
