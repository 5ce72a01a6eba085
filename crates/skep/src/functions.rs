//! User functions (λ) in a program that embeds a store.
//!
//! A function is written in Rust's syntax and compiled when the program runs, or it is a closure of the program. It runs on
//! the value where it is. `docs/functions.md` describes the language.
//!
//! ```
//! use skep::functions::{Call, CallReply, compile};
//! use skep::{Operation, Replies, Reply, Request, Store, StoreSettings};
//!
//! let mut store = Store::open(&StoreSettings::growing(16 << 20, 0x5eed))?;
//! let functions = compile("mod m { #[update] fn capped(v: u32, n: u32, max: u32) -> u32 { (v + n).min(max) } }")?;
//! let call = Call {
//!     function: functions[0],
//!     // Both operands are for all elements.
//!     vectors: 0,
//!     operands: &[3, 0, 0, 0, 5, 0, 0, 0],
//!     initial: Some(&[1, 0, 0, 0]),
//!     reply: CallReply::Old,
//! };
//! let mut replies = Replies::with_budget(1 << 20);
//! store.execute(&[Request { key: b"k", operation: Operation::Call(call) }; 3], &mut replies);
//! assert_eq!(replies.get(1), Reply::Value(&4u32.to_le_bytes()));
//! assert_eq!(replies.get(2), Reply::Value(&5u32.to_le_bytes()));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A closure gets whole elements, the operands, and memory for results:
//!
//! ```
//! use skep::Element;
//! use skep::functions::{Layout, Scalar, Signature, UserCode, UserFunction, register};
//!
//! let signature = Signature {
//!     element: Layout::number(Scalar::Element(Element::U8)),
//!     operands: Vec::new(),
//!     result: None,
//!     work: 1,
//!     can_fail: false,
//! };
//! let code = UserCode::Update(Box::new(|value, _operands, _results| {
//!     value.iter_mut().for_each(|v| *v = v.wrapping_neg());
//!     Ok(())
//! }));
//! let negate = register(UserFunction::new("mine.negate", signature, code));
//! assert_eq!(negate.function.unwrap().name, "mine.negate");
//! ```
//!
//! A [`DurableStore`](crate::DurableStore) refuses updates by functions, because a later opening could not run them again.

pub use skep_core::function::{
    Field, FunctionHandle, FunctionKind, Layout, Operands, Parameter, Scalar, ShortCode, Signature, UserCode,
    UserFunction, WordCode,
};
pub use skep_core::operation::{Call, CallReply};
pub use skep_function::SourceError;

/// Makes a function usable by the stores of this process. It is never freed.
pub fn register(function: UserFunction) -> FunctionHandle {
    FunctionHandle { id: 0, revision: 0, function: Some(Box::leak(Box::new(function))) }
}

/// Compiles a module, and registers its functions. They are returned in the order of the source.
pub fn compile(source: &str) -> Result<Vec<FunctionHandle>, SourceError> {
    Ok(skep_function::compile(source)?.functions.into_iter().map(register).collect())
}
