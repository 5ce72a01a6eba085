//! The functions of the measurements: modules that are compiled here, and calls of them.

use skep_core::function::{FunctionHandle, UserFunction};
use skep_core::operation::{Call, CallReply, Operation};

/// Functions of the same meaning as built-in ones.
pub(super) const BUILT_IN: &str = "
mod same {
    #[update] fn add_f32(v: f32, d: f32) -> f32 { v + d }
    #[update] fn add_u32(v: u32, d: u32) -> u32 { v + d }
    #[update] fn max_f32(v: f32, d: f32) -> f32 { v.max(d) }
    #[update] fn add_u64(v: u64, d: u64) -> u64 { v + d }
}
";

/// The token bucket of `docs/functions.md`, and a sum. A module of about ten lines.
pub(super) const LIMITS: &str = "
mod limits {
    struct Bucket { tokens: f32, at: u64 }
    #[update]
    fn take(b: &mut Bucket, now: u64, cost: f32, rate: f32, burst: f32) -> bool {
        let t = burst.min(b.tokens + rate * (now.saturating_sub(b.at)) as f32);
        b.at = b.at.max(now);
        if t < cost { b.tokens = t; return false; }
        b.tokens = t - cost;
        true
    }
    #[update] fn add(v: u32, d: u32) -> u32 { v + d }
}
";

/// The numbers that a server without other functions gives to those of [`LIMITS`].
pub(super) const TAKE: u32 = 1;
pub(super) const ADD: u32 = 2;

/// Compiles a module, and keeps its functions for the rest of the program.
pub(super) fn compile(source: &str) -> Result<&'static [UserFunction], String> {
    let module = skep_function::compile(source).map_err(|error| error.to_string())?;
    Ok(Vec::leak(module.functions))
}

/// Returns a call of the function with this name in its module, with these operands for all elements.
pub(super) fn call(
    functions: &'static [UserFunction],
    name: &str,
    operands: &'static [u8],
    reply: CallReply,
) -> Result<Operation<'static>, String> {
    let is_named = |function: &&UserFunction| function.name.split_once('.').is_some_and(|(_, own)| own == name);
    let function = functions.iter().find(is_named).ok_or_else(|| format!("there is no function {name}"))?;
    let handle = FunctionHandle { id: 1, revision: 1, function: Some(function) };
    Ok(Operation::Call(Call { function: handle, vectors: 0, operands, initial: None, reply }))
}
