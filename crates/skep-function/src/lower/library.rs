//! The functions of libm that code calls. They are the same on every machine, unlike those of the system.

use cranelift_codegen::ir::{AbiParam, ExtFuncData, ExternalName, InstBuilder, Signature, UserExternalName, Value};
use cranelift_codegen::isa::CallConv;

use super::{Lowering, Stop, scalar_type};
use crate::types::Number;

/// A function of libm, of both float types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Library {
    Exp,
    Ln,
    Power,
    Sin,
    Cos,
    Tanh,
    Remainder,
    MultiplyAdd,
}

/// A function that code calls.
pub(crate) struct LibraryFunction {
    pub(crate) name: &'static str,
    pub(crate) parameters: usize,
    pub(crate) address: fn() -> *const u8,
    is_double: bool,
    function: Library,
    /// Instructions that the function takes the time of.
    work: u32,
}

macro_rules! library {
    ($($function:ident $float:ty, $parameters:literal, $work:literal: $name:ident($($operand:ident),*);)*) => {
        $(
            extern "C" fn $name($($operand: $float),*) -> $float {
                libm::$name($($operand),*)
            }
        )*

        /// All functions. Code refers to them by their number in this list.
        pub(crate) const LIBRARY: &[LibraryFunction] = &[$(LibraryFunction {
            name: stringify!($name),
            parameters: $parameters,
            address: || $name as *const u8,
            is_double: size_of::<$float>() == 8,
            function: Library::$function,
            work: $work,
        }),*];
    };
}

library! {
    Exp f32, 1, 64: expf(x);
    Exp f64, 1, 64: exp(x);
    Ln f32, 1, 64: logf(x);
    Ln f64, 1, 64: log(x);
    Power f32, 2, 256: powf(x, y);
    Power f64, 2, 256: pow(x, y);
    Sin f32, 1, 384: sinf(x);
    Sin f64, 1, 384: sin(x);
    Cos f32, 1, 384: cosf(x);
    Cos f64, 1, 384: cos(x);
    Tanh f32, 1, 128: tanhf(x);
    Tanh f64, 1, 128: tanh(x);
    Remainder f32, 2, 128: fmodf(x, y);
    Remainder f64, 2, 384: fmod(x, y);
    MultiplyAdd f32, 3, 64: fmaf(x, y, z);
    MultiplyAdd f64, 3, 128: fma(x, y, z);
}

impl LibraryFunction {
    /// Returns the number type of the operands and the result.
    pub(crate) fn number(&self) -> Number {
        if self.is_double { Number::F64 } else { Number::F32 }
    }

    pub(crate) fn signature(&self, convention: CallConv) -> Signature {
        let ty = AbiParam::new(scalar_type(self.number()));
        let mut signature = Signature::new(convention);
        signature.params = vec![ty; self.parameters];
        signature.returns.push(ty);
        signature
    }
}

impl Library {
    /// Returns the number of the function in the list.
    fn index(self, number: Number) -> usize {
        let found = LIBRARY.iter().position(|entry| entry.function == self && entry.number() == number);
        found.expect("every function exists for both types")
    }

    /// Returns the instructions that the function takes the time of.
    pub(super) fn work(self, number: Number) -> u32 {
        LIBRARY[self.index(number)].work
    }
}

impl Lowering<'_, '_> {
    /// Calls a function of libm.
    pub(super) fn library(&mut self, function: Library, number: Number, values: &[Value]) -> Result<Value, Stop> {
        self.scalar_only()?;
        let index = function.index(number);
        let entry = &LIBRARY[index];
        self.spend(entry.work);
        let signature = self.builder.import_signature(entry.signature(self.builder.func.signature.call_conv));
        let name = UserExternalName { namespace: 0, index: index as u32 };
        let name = ExternalName::user(self.builder.func.declare_imported_user_function(name));
        let called = self.builder.import_function(ExtFuncData { name, signature, colocated: false, patchable: false });
        let call = self.ins().call(called, values);
        Ok(self.builder.inst_results(call)[0])
    }
}
