//! Tests of the tree that need to see inside it, and of what it is under several threads.

mod ascending;
mod hints;
mod history;
mod locks;
mod merges;
mod stress;
mod without_versions;
