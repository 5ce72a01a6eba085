//! Lowers functions of the typed tree to Cranelift's code.
//!
//! Values are lists of numbers, one for each leaf of their type. Locals are Cranelift's variables, one for each leaf, so a
//! function has no memory but its element, operands and results, at offsets that are known. A call of another function is
//! inlined.
//!
//! Code has one of two forms. In the *scalar* form a number is a scalar, a bool is 0 or 1, and branches are branches. In
//! *lanes* a number is a vector of 16 bytes, a bool is a mask of the same shape, and both sides of a branch are computed;
//! a mask then selects. Functions that can fail, or that call libm, have no lanes.
//!
//! While code is emitted, its instructions are counted. Lowering stops at the limit, so functions that call each other
//! twice at every level cannot take exponential time.

mod branch;
mod cast;
mod expr;
mod float;
mod half;
mod integer;
mod lanes;
mod library;
mod place;
mod whole;

use std::collections::HashSet;

use cranelift_codegen::ir::{self, Block, InstBuilder, MemFlagsData, Value, types};
use cranelift_frontend::{FuncInstBuilder, FunctionBuilder, Variable};
use skep_core::function::FUNCTION_WORK_MAX;
use skep_core::operation::OperationError;

use crate::tree::{Function, Tree};
use crate::types::{Leaf, Number, Type};

pub(crate) use lanes::{TURN_SIZE_MAX, lower_lanes};
pub(crate) use library::LIBRARY;
pub(crate) use whole::{Lowered, code_signature, lower_whole};

/// Most parts of the tree that are lowered for one function. It bounds the time of functions that emit no instructions.
const VISITS_MAX: u32 = 1 << 16;

/// Most numbers that blocks of one function begin with. It bounds the time of the compiler and of calls: an array that
/// is assigned in a branch is as many of them as it has elements, without an instruction.
const MOVES_MAX: u32 = FUNCTION_WORK_MAX;
/// Most numbers of one function, with those that turn out to be others. It bounds the memory.
const VALUES_MAX: usize = 1 << 18;
/// The moves are counted whenever this many numbers are new.
const VALUES_BETWEEN_COUNTS: usize = 1024;

/// The reason why lowering stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// The code returned: what follows is never reached.
    Ends,
    /// The function has too many instructions.
    TooLong,
    /// The function cannot be computed in lanes.
    NoLanes,
}

/// The form of the code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Scalar,
    /// Vectors of numbers of this width.
    Lanes(usize),
}

/// What the machine has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Host {
    /// An instruction for `mul_add`.
    pub(crate) has_fma: bool,
}

/// The numbers of a value.
type Values = Vec<Value>;

/// A function that is being lowered, with those that are inlined into it.
struct Lowering<'a, 'b> {
    tree: &'a Tree,
    builder: FunctionBuilder<'b>,
    form: Form,
    host: Host,
    work: u32,
    visits: u32,
    /// The numbers of the code when its moves were last counted.
    values_counted: usize,
    can_fail: bool,
    /// Floats that are not a number only if they are the canonical one.
    canonical: HashSet<Value>,
    /// The blocks that return an error, by its number.
    failures: [Option<Block>; 2],
    frames: Vec<Frame<'a>>,
}

/// A function that is being inlined.
struct Frame<'a> {
    function: &'a Function,
    /// The variables of each local that has a value.
    locals: Vec<Option<Vec<Variable>>>,
    exit: Exit,
}

/// Where a `return` goes.
enum Exit {
    /// To a block, which exists if there was a `return`. Its parameters are the result.
    Scalar(Option<Block>),
    Lanes(Returns),
}

/// What was returned in lanes.
#[derive(Default)]
struct Returns {
    /// The lanes that have not returned; all, if there is no mask.
    active: Option<Value>,
    returned: Vec<Returned>,
}

/// The lanes in which one `return` returned.
struct Returned {
    mask: Value,
    result: Values,
    /// The first local, which is the element if it is changed in place.
    element: Values,
}

/// The result of an inlined function.
struct Outcome {
    result: Values,
    /// The first local, which is the element if it is changed in place.
    element: Values,
}

impl<'a, 'b> Lowering<'a, 'b> {
    /// Returns the builder of the next instruction, and counts it.
    fn ins(&mut self) -> FuncInstBuilder<'_, 'b> {
        self.work += 1;
        self.builder.ins()
    }

    /// Counts instructions besides those that are emitted.
    fn spend(&mut self, work: u32) {
        self.work = self.work.saturating_add(work);
    }

    /// Stops if the function is too long.
    fn check_length(&mut self) -> Result<(), Stop> {
        self.visits += 1;
        let values = self.builder.func.dfg.num_values();
        let is_counted = values < self.values_counted + VALUES_BETWEEN_COUNTS;
        if !is_counted {
            self.values_counted = values;
        }
        let is_long = self.work > FUNCTION_WORK_MAX || self.visits > VISITS_MAX || values > VALUES_MAX;
        if is_long || (!is_counted && self.moves() > MOVES_MAX) { Err(Stop::TooLong) } else { Ok(()) }
    }

    /// Returns the numbers that blocks begin with, without the first block. Each is moved to its place where a block
    /// before ends.
    fn moves(&self) -> u32 {
        let code = &self.builder.func;
        code.layout.blocks().skip(1).map(|block| code.dfg.num_block_params(block) as u32).sum()
    }

    fn frame(&self) -> &Frame<'a> {
        self.frames.last().expect("a function is being lowered")
    }

    fn frame_mut(&mut self) -> &mut Frame<'a> {
        self.frames.last_mut().expect("a function is being lowered")
    }

    /// Returns the number type of a type that is one.
    fn number(&self, ty: &Type) -> Number {
        self.frame().function.number(ty)
    }

    /// Returns the leaves of a type.
    fn leaves(&self, ty: &Type) -> Vec<Leaf> {
        match ty {
            Type::Unknown(_) => vec![Leaf::Number(self.number(ty))],
            Type::Array(element, count) => self.leaves(element).repeat(*count),
            other => self.tree.records.leaves(other),
        }
    }

    /// Returns Cranelift's type for a number. In lanes, only numbers of one width have one.
    fn type_of(&self, number: Number) -> Result<ir::Type, Stop> {
        let scalar = scalar_type(number);
        match self.form {
            Form::Scalar => Ok(scalar),
            Form::Lanes(width) if width == number.width() => {
                Ok(scalar.by(lanes::LANES_SIZE as u32 / width as u32).expect("16 bytes"))
            }
            Form::Lanes(_) => Err(Stop::NoLanes),
        }
    }

    fn type_of_bool(&self) -> ir::Type {
        match self.form {
            Form::Scalar => types::I8,
            Form::Lanes(width) => mask_type(width),
        }
    }

    fn type_of_leaf(&self, leaf: Leaf) -> Result<ir::Type, Stop> {
        match leaf {
            Leaf::Bool => Ok(self.type_of_bool()),
            Leaf::Number(number) => self.type_of(number),
            Leaf::Half(_) if self.form == Form::Scalar => Ok(types::F32),
            Leaf::Half(_) => Err(Stop::NoLanes),
        }
    }

    /// Stops if the code is in lanes.
    fn scalar_only(&self) -> Result<(), Stop> {
        if self.form == Form::Scalar { Ok(()) } else { Err(Stop::NoLanes) }
    }

    /// Returns an integer.
    fn int(&mut self, number: Number, value: i128) -> Result<Value, Stop> {
        let ty = self.type_of(number)?;
        // An immediate has zeros above its type.
        let mask = if number.width() == 8 { u64::MAX } else { (1 << number.bits()) - 1 };
        let scalar = self.ins().iconst(scalar_type(number), (value as u64 & mask) as i64);
        Ok(if ty.is_vector() { self.ins().splat(ty, scalar) } else { scalar })
    }

    /// Returns a float, by its value in `f64`, which its type holds.
    fn float(&mut self, number: Number, value: f64) -> Result<Value, Stop> {
        let ty = self.type_of(number)?;
        let scalar = match number {
            Number::F32 => self.ins().f32const(value as f32),
            _ => self.ins().f64const(value),
        };
        Ok(if ty.is_vector() { self.ins().splat(ty, scalar) } else { scalar })
    }

    fn bool(&mut self, value: bool) -> Value {
        let ty = self.type_of_bool();
        match self.form {
            Form::Scalar => self.ins().iconst(ty, i64::from(value)),
            Form::Lanes(_) => {
                let lane = ty.lane_type();
                let bits = if value { u64::MAX >> (64 - lane.bits()) } else { 0 };
                let scalar = self.ins().iconst(lane, bits as i64);
                self.ins().splat(ty, scalar)
            }
        }
    }

    /// Returns `one` where the condition is true, else `two`.
    fn select(&mut self, condition: Value, one: Value, two: Value) -> Value {
        if one == two {
            return one;
        }
        match self.form {
            Form::Scalar => self.ins().select(condition, one, two),
            Form::Lanes(_) => {
                let ty = self.builder.func.dfg.value_type(one);
                let mask = self.cast_bits(condition, ty);
                self.ins().bitselect(mask, one, two)
            }
        }
    }

    /// Returns the same bits as another type of the same size.
    fn cast_bits(&mut self, value: Value, ty: ir::Type) -> Value {
        if self.builder.func.dfg.value_type(value) == ty {
            return value;
        }
        self.builder.ins().bitcast(ty, little(), value)
    }

    /// Returns the other truth value.
    fn not(&mut self, condition: Value) -> Value {
        match self.form {
            Form::Scalar => self.ins().bxor_imm_u(condition, 1),
            Form::Lanes(_) => self.ins().bnot(condition),
        }
    }

    /// Returns the value of an integer that is known.
    fn known_int(&self, value: Value) -> Option<i64> {
        let function = &self.builder.func;
        let ir::ValueDef::Result(inst, _) = function.dfg.value_def(function.dfg.resolve_aliases(value)) else {
            return None;
        };
        match function.dfg.insts[inst] {
            ir::InstructionData::UnaryImm { opcode: ir::Opcode::Iconst, imm } => {
                let unused = 64 - self.builder.func.dfg.value_type(value).bits();
                Some(imm.bits() << unused >> unused)
            }
            _ => None,
        }
    }

    /// Leaves the code with an error if the condition is true.
    fn fail_if(&mut self, condition: Value, error: OperationError) -> Result<(), Stop> {
        self.scalar_only()?;
        self.can_fail = true;
        let index = usize::from(error == OperationError::IndexOutOfRange);
        let failure = match self.failures[index] {
            Some(block) => block,
            None => *self.failures[index].insert(self.builder.create_block()),
        };
        let next = self.builder.create_block();
        self.ins().brif(condition, failure, &[], next, &[]);
        self.builder.switch_to_block(next);
        self.builder.seal_block(next);
        Ok(())
    }

    /// Writes the blocks that return errors.
    fn write_failures(&mut self) {
        for (index, block) in self.failures.into_iter().enumerate() {
            let Some(block) = block else { continue };
            self.builder.switch_to_block(block);
            self.builder.seal_block(block);
            self.builder.set_cold_block(block);
            let code = self.builder.ins().iconst(types::I32, index as i64 + 1);
            self.builder.ins().return_(&[code]);
        }
    }

    /// Gives a local its value.
    fn define_local(&mut self, local: usize, values: &[Value]) {
        let variables = match self.frame().locals[local].clone() {
            Some(variables) => variables,
            None => {
                let types: Vec<ir::Type> =
                    values.iter().map(|value| self.builder.func.dfg.value_type(*value)).collect();
                let variables: Vec<Variable> = types.into_iter().map(|ty| self.builder.declare_var(ty)).collect();
                self.frame_mut().locals[local] = Some(variables.clone());
                variables
            }
        };
        for (variable, value) in variables.into_iter().zip(values) {
            self.builder.def_var(variable, *value);
        }
    }

    /// Inlines a function.
    fn inline(&mut self, function: &'a Function, arguments: &[Values]) -> Result<Outcome, Stop> {
        self.spend(1);
        let exit = match self.form {
            Form::Scalar => Exit::Scalar(None),
            Form::Lanes(_) => Exit::Lanes(Returns::default()),
        };
        self.frames.push(Frame { function, locals: vec![None; function.locals.len()], exit });
        for (local, values) in arguments.iter().enumerate() {
            self.define_local(local, values);
        }
        let last = self.expr(&function.body);
        let outcome = self.leave(last);
        self.frames.pop();
        outcome
    }

    /// Returns the result of the function that is being inlined, from its last expression and all `return`s.
    fn leave(&mut self, last: Result<Values, Stop>) -> Result<Outcome, Stop> {
        match last {
            Ok(_) | Err(Stop::Ends) => {}
            Err(stop) => return Err(stop),
        }
        match std::mem::replace(&mut self.frame_mut().exit, Exit::Scalar(None)) {
            Exit::Scalar(None) => {
                let result = last?;
                Ok(Outcome { result, element: self.first_local() })
            }
            Exit::Scalar(Some(block)) => {
                if let Ok(values) = last {
                    let arguments: Vec<ir::BlockArg> = values.into_iter().map(ir::BlockArg::Value).collect();
                    self.ins().jump(block, &arguments);
                }
                self.builder.switch_to_block(block);
                self.builder.seal_block(block);
                let result = self.builder.block_params(block).to_vec();
                Ok(Outcome { result, element: self.first_local() })
            }
            Exit::Lanes(mut returns) => {
                let mut outcome = match last {
                    Ok(result) => Outcome { result, element: self.first_local() },
                    Err(_) => {
                        let Some(Returned { result, element, .. }) = returns.returned.pop() else {
                            return Err(Stop::Ends);
                        };
                        Outcome { result, element }
                    }
                };
                for returned in returns.returned.into_iter().rev() {
                    for (value, own) in outcome.result.iter_mut().zip(returned.result) {
                        *value = self.select(returned.mask, own, *value);
                    }
                    for (value, own) in outcome.element.iter_mut().zip(returned.element) {
                        *value = self.select(returned.mask, own, *value);
                    }
                }
                Ok(outcome)
            }
        }
    }

    /// Returns the element, if it is changed in place.
    fn first_local(&mut self) -> Values {
        if !self.frame().function.is_by_reference {
            return Vec::new();
        }
        let variables = self.frame().locals[0].clone().expect("the element has a value");
        variables.into_iter().map(|variable| self.builder.use_var(variable)).collect()
    }
}

/// Returns Cranelift's type for a number that is not in lanes.
fn scalar_type(number: Number) -> ir::Type {
    match number {
        Number::U8 | Number::I8 => types::I8,
        Number::U16 | Number::I16 => types::I16,
        Number::U32 | Number::I32 => types::I32,
        Number::U64 | Number::Usize | Number::I64 => types::I64,
        Number::F32 => types::F32,
        Number::F64 => types::F64,
    }
}

/// Returns the type of masks for numbers of this width.
fn mask_type(width: usize) -> ir::Type {
    match width {
        1 => types::I8X16,
        2 => types::I16X8,
        4 => types::I32X4,
        _ => types::I64X2,
    }
}

/// Returns the flags of memory that has any address, and of casts between vectors.
fn little() -> MemFlagsData {
    MemFlagsData::new().with_endianness(ir::Endianness::Little)
}
