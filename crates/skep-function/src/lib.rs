//! Functions that users bring: λ in Rust's own syntax, compiled to machine code (KV-Direct, section 3.2).
//!
//! A source is a module of functions over numbers. It is parsed by syn, checked here, and compiled by Cranelift to loops
//! over the elements of a value, in place:
//!
//! ```text
//! source ──scan──> tokens ──syn──> syntax ──check──> typed tree ──lower──> Cranelift's code ──> machine code
//!          limits                           types,                work, branches, lanes
//!                                           positions
//! ```
//!
//! A λ needs no sandbox, because it cannot express what a sandbox prevents. It has no pointers, no loops and no recursion,
//! it calls only functions of its module and of a fixed list, and its state is its element. So it ends after a number of
//! instructions that is counted before it runs. `docs/functions.md` is the reference of the language.
//!
//! The crate does no I/O.

mod check;
mod code;
pub mod generate;
mod limits;
mod lower;
mod module;
mod scan;
mod source_error;
mod tree;
mod types;

pub use limits::{FUNCTIONS_MAX, MODULE_WORK_MAX, NAME_SIZE_MAX, NESTING_MAX, SOURCE_SIZE_MAX};
pub use module::{Description, FunctionDescription, Module, check, compile, compile_after};
pub use scan::check_size;
pub use source_error::SourceError;
