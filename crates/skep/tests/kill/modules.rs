//! Modules of random functions. The server loads their source, and the test compiles it too, to know what calls do.
//!
//! The functions of all modules have the same names, so each module replaces the one before by others of another meaning.

use skep_core::function::{FunctionHandle, FunctionKind};
use skep_function::compile;
use skep_function::generate::{Generated, Random};

/// Functions of a module.
const FUNCTION_COUNT: usize = 8;
/// The number of the first function. That of the module of [`crate::pairs`], which is loaded before, is 1.
const NUMBER_FIRST: u32 = 2;

/// A module of random functions.
pub(crate) struct RandomModule {
    pub(crate) source: String,
    /// The functions with their code. The server numbers them in the same way.
    pub(crate) functions: Vec<FunctionHandle>,
}

impl RandomModule {
    /// The name of all of them.
    pub(crate) const NAME: &str = "random";

    /// Returns the module of a seed, which has an update. Its code is never freed.
    pub(crate) fn new(seed: u64) -> RandomModule {
        let mut random = Random::new(seed);
        loop {
            let source = Generated::new(random.bits(), RandomModule::NAME, FUNCTION_COUNT).for_skep();
            match compile(&source) {
                Ok(module) if module.functions.iter().all(|function| function.kind() != FunctionKind::Update) => {}
                Ok(module) => {
                    let functions = (NUMBER_FIRST..).zip(module.functions);
                    let handle = |(id, function)| FunctionHandle {
                        id,
                        revision: 0,
                        function: Some(Box::leak(Box::new(function))),
                    };
                    return RandomModule { source, functions: functions.map(handle).collect() };
                }
                // The generator does not count instructions.
                Err(error) if error.message.contains("instructions for one element") => {}
                Err(error) => panic!("seed {seed}: {error}\n{source}"),
            }
        }
    }
}
