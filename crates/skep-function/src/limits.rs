//! The limits of a source, together.

/// Most bytes of a source.
pub const SOURCE_SIZE_MAX: usize = 64 * 1024;
/// Most functions of a module.
pub const FUNCTIONS_MAX: usize = 64;
/// Most instructions of all functions of a module, each for one element. It bounds the time of the compiler.
pub const MODULE_WORK_MAX: u32 = 16384;
/// Most structs of a module.
pub(crate) const STRUCTS_MAX: usize = 64;
/// Deepest nesting of structs in each other.
pub(crate) const STRUCT_NESTING_MAX: usize = 8;
/// Most bytes of a type as text: what it is, and the names of its numbers, each with those of the structs that it is in.
pub(crate) const TYPE_TEXT_MAX: usize = 16 * 1024;
/// The same for all structs of a module and all types in the signatures of its functions, together.
pub(crate) const MODULE_TEXT_MAX: usize = 128 * 1024;
/// Deepest nesting of brackets.
pub const NESTING_MAX: usize = 64;
/// Most bytes of a name.
pub const NAME_SIZE_MAX: usize = 64;
/// Most characters of a literal.
pub(crate) const LITERAL_SIZE_MAX: usize = 256;
/// Most tokens in a row, without a semicolon or a comma, together with those around the brackets that they are in. This
/// limits the depth of every recursion over the source.
pub(crate) const RUN_MAX: usize = 1024;
/// The stack of the thread that compiles. [`RUN_MAX`] tokens need less than 4 MiB of it, and more without optimisation. The
/// system gives the thread only what it touches.
pub(crate) const STACK_SIZE: usize = 64 << 20;
