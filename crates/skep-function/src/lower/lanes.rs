//! The loop over elements in lanes: vectors of 16 bytes, several in a turn.
//!
//! The element, the operands and the result are plain numbers of one width. There is a loop for operands that are all the
//! same for all elements, and one for other operands. It advances the address of an operand by its stride, times the
//! elements of a turn. So it also reads one that is the same for all elements, if that is repeated for a turn and its stride
//! is 0. The caller gives a loop whole turns, and the rest to the scalar loop.
//!
//! A filter writes 16 flags in a turn: the masks of as many vectors as a number has bytes are narrowed to bytes.
//!
//! A reduce is computed in lanes if its body is `Σ op term`, and Σ has the type of the element. Each lane begins with the
//! number that changes nothing, and the lanes are combined with Σ at the end. Integers give the same result in any order.
//! Floats do not, so such a reduce must be marked `associative`.

use cranelift_codegen::ir::condcodes::FloatCC;
use cranelift_codegen::ir::{BlockArg, Function as Code, InstBuilder, UserFuncName, Value, types};
use cranelift_codegen::isa::TargetFrontendConfig;
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext};
use skep_core::function::FunctionKind;

use super::whole::{Cursors, code_signature};
use super::{Form, Host, Lowering, Stop, Values, little, mask_type};
use crate::tree::{Binary, Expr, Function, Kind, Method, Tree};
use crate::types::{Number, Type};

/// The bytes of a vector.
pub(super) const LANES_SIZE: usize = 16;
/// The most bytes of an operand in a turn: a filter of numbers of 8 bytes has 8 vectors.
pub(crate) const TURN_SIZE_MAX: usize = 8 * LANES_SIZE;
/// The vectors of a turn, unless the function is long.
const VECTORS: usize = 4;
/// The instructions of a long function.
const LONG_WORK: u32 = 64;

/// Code in lanes.
pub(crate) struct LanesCode {
    pub(crate) code: Code,
    /// The elements of a turn.
    pub(crate) elements: usize,
}

/// The operator that combines Σ with a term, and the term.
struct Fold<'a> {
    op: FoldOperator,
    term: &'a Expr,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum FoldOperator {
    Binary(Binary),
    Min,
    Max,
}

/// Lowers a function in lanes. If `is_vector`, operands may be one for each element.
pub(crate) fn lower_lanes(
    tree: &Tree,
    index: usize,
    is_vector: bool,
    work: u32,
    target: TargetFrontendConfig,
    host: Host,
) -> Result<LanesCode, Stop> {
    let function = &tree.functions[index];
    let number = plain_width(function).ok_or(Stop::NoLanes)?;
    let vectors = match function.kind {
        Some(FunctionKind::Filter) => number.width(),
        _ if work > LONG_WORK => 1,
        _ => VECTORS,
    };
    let mut code = Code::with_name_signature(UserFuncName::default(), code_signature(target.default_call_conv));
    let mut context = FunctionBuilderContext::new();
    let builder = FunctionBuilder::new(&mut code, &mut context);
    let mut lowering = Lowering::new(tree, builder, Form::Lanes(number.width()), host);
    let turn = Turn { function, is_vector, vectors, number };
    let elements = turn.elements();
    lowering.lanes(&turn)?;
    lowering.builder.finalize(target);
    Ok(LanesCode { code, elements })
}

/// What a loop in lanes does in a turn.
struct Turn<'a> {
    function: &'a Function,
    is_vector: bool,
    vectors: usize,
    number: Number,
}

impl Turn<'_> {
    fn elements(&self) -> usize {
        self.vectors * LANES_SIZE / self.number.width()
    }
}

/// Returns the type of the element, if all parameters and the result are plain numbers of its width.
fn plain_width(function: &Function) -> Option<Number> {
    let number = function.locals[0].plain_number()?;
    let is_same = |ty: &Type| ty.plain_number().is_some_and(|other| other.width() == number.width());
    let parameters = &function.locals[..function.parameters.len()];
    let result = match function.kind? {
        FunctionKind::Filter => true,
        FunctionKind::Update => function.result == Type::Unit || is_same(&function.result),
        FunctionKind::Reduce => function.result == function.locals[0],
    };
    (parameters.iter().all(is_same) && result).then_some(number)
}

impl<'a> Lowering<'a, '_> {
    fn lanes(&mut self, turn: &Turn<'a>) -> Result<(), Stop> {
        let kind = turn.function.kind.expect("a marked function");
        let fold = match kind {
            FunctionKind::Reduce => Some(find_fold(turn.function).ok_or(Stop::NoLanes)?),
            _ => None,
        };
        let entry = self.builder.create_block();
        self.builder.append_block_params_for_function_params(entry);
        self.builder.switch_to_block(entry);
        self.builder.seal_block(entry);
        let parameters = self.builder.block_params(entry).to_vec();
        let own = if fold.is_some() { 2 } else { 1 };
        let mut cursors = self.cursors(&parameters, turn.function.parameters.len() - own);
        if turn.is_vector {
            // The stride of an operand becomes that of a turn.
            for cursor in &mut cursors.operands {
                cursor.stride = self.builder.ins().imul_imm_u(cursor.stride, turn.elements() as i64);
            }
        }
        let shared = if turn.is_vector { Vec::new() } else { self.shared_operands(turn, own, &cursors)? };
        let mut sums = Vec::new();
        if let Some(fold) = &fold {
            for _ in 0..turn.vectors {
                let neutral = self.neutral(fold.op, turn.number)?;
                sums.push(self.variable(neutral));
            }
        }
        let left = self.variable(parameters[1]);
        let body = self.builder.create_block();
        self.builder.ins().jump(body, &[]);
        self.builder.switch_to_block(body);
        let mut masks = Vec::new();
        for vector in 0..turn.vectors {
            let offset = (LANES_SIZE * vector) as i32;
            let element_address = self.builder.use_var(cursors.element);
            let ty = self.type_of(turn.number)?;
            let element = self.ins().load(ty, little(), element_address, offset);
            let operands =
                if turn.is_vector { self.vector_operands(turn, own, &cursors, offset)? } else { shared.clone() };
            match &fold {
                Some(fold) => {
                    let sum = sums.get(vector).copied().expect("a sum for each vector");
                    let before = self.builder.use_var(sum);
                    let after = self.fold(turn, fold, element, &operands, before)?;
                    self.builder.def_var(sum, after);
                }
                None => masks.extend(self.lanes_element(turn, &cursors, element, operands, offset)?),
            }
        }
        self.advance(turn, &cursors, &masks);
        let count = self.builder.use_var(left);
        let count = self.builder.ins().iadd_imm_s(count, -(turn.elements() as i64));
        self.builder.def_var(left, count);
        let done = self.builder.create_block();
        let no_arguments: &[BlockArg] = &[];
        self.builder.ins().brif(count, body, no_arguments, done, no_arguments);
        self.builder.seal_block(body);
        self.builder.switch_to_block(done);
        self.builder.seal_block(done);
        if let Some(fold) = &fold {
            let sums: Values = sums.iter().map(|variable| self.builder.use_var(*variable)).collect();
            self.combine(turn, fold, &sums, parameters[3])?;
        }
        let success = self.builder.ins().iconst(types::I32, 0);
        self.builder.ins().return_(&[success]);
        Ok(())
    }

    /// Computes one vector of elements. Returns the mask of a filter.
    fn lanes_element(
        &mut self,
        turn: &Turn<'a>,
        cursors: &Cursors,
        element: Value,
        operands: Vec<Values>,
        offset: i32,
    ) -> Result<Option<Value>, Stop> {
        let function = turn.function;
        let mut arguments = vec![vec![element]];
        arguments.extend(operands);
        let outcome = self.inline(function, &arguments)?;
        if function.kind == Some(FunctionKind::Filter) {
            return Ok(Some(outcome.result[0]));
        }
        let element_address = self.builder.use_var(cursors.element);
        let result_address = self.builder.use_var(cursors.result);
        if !function.is_by_reference {
            self.store_lanes(turn.number, outcome.result[0], element_address, offset)?;
            return Ok(None);
        }
        self.store_lanes(turn.number, outcome.element[0], element_address, offset)?;
        if let (Some(result), Some(number)) = (outcome.result.first(), function.result.plain_number()) {
            self.store_lanes(number, *result, result_address, offset)?;
        }
        Ok(None)
    }

    fn store_lanes(&mut self, number: Number, value: Value, address: Value, offset: i32) -> Result<(), Stop> {
        let stored = if number.is_float() { self.canonical(number, value)? } else { value };
        self.ins().store(little(), stored, address, offset);
        Ok(())
    }

    /// Advances the addresses by a turn, and writes the flags of a filter.
    fn advance(&mut self, turn: &Turn<'a>, cursors: &Cursors, masks: &[Value]) {
        let size = (turn.vectors * LANES_SIZE) as i64;
        let address = self.builder.use_var(cursors.element);
        let next = self.builder.ins().iadd_imm_s(address, size);
        self.builder.def_var(cursors.element, next);
        let operands = if turn.is_vector { &cursors.operands[..] } else { &[] };
        for operand in operands {
            let address = self.builder.use_var(operand.address);
            let next = self.builder.ins().iadd(address, operand.stride);
            self.builder.def_var(operand.address, next);
        }
        let address = self.builder.use_var(cursors.result);
        let mut step = size;
        if !masks.is_empty() {
            let flags = self.flags(masks, turn.number.width());
            self.builder.ins().store(little(), flags, address, 0);
            step = LANES_SIZE as i64;
        }
        let next = self.builder.ins().iadd_imm_s(address, step);
        self.builder.def_var(cursors.result, next);
    }

    /// Narrows masks to 16 bytes, each 0 or 1.
    fn flags(&mut self, masks: &[Value], width: usize) -> Value {
        let mut masks = masks.to_vec();
        let mut width = width;
        while masks.len() > 1 {
            let pairs = masks.chunks(2).map(|pair| (pair[0], pair[1])).collect::<Vec<_>>();
            masks = pairs.into_iter().map(|(low, high)| self.narrow(low, high, width)).collect();
            width /= 2;
        }
        let one = self.builder.ins().iconst(types::I8, 1);
        let ones = self.builder.ins().splat(types::I8X16, one);
        self.builder.ins().band(masks[0], ones)
    }

    /// Narrows two masks to one.
    fn narrow(&mut self, low: Value, high: Value, width: usize) -> Value {
        if width < 8 {
            return self.builder.ins().snarrow(low, high);
        }
        // The lower half of each lane.
        let (low, high) = (self.cast_bits(low, types::I8X16), self.cast_bits(high, types::I8X16));
        let bytes: Vec<u8> = [0, 8, 16, 24].into_iter().flat_map(|first| first..first + 4).collect();
        let mask = self.builder.func.dfg.immediates.push(bytes.as_slice().into());
        let shuffled = self.builder.ins().shuffle(low, high, mask);
        self.cast_bits(shuffled, mask_type(4))
    }

    /// Loads the operands that are the same for all elements, once.
    fn shared_operands(&mut self, turn: &Turn<'a>, own: usize, cursors: &Cursors) -> Result<Vec<Values>, Stop> {
        let mut operands = Vec::new();
        for (cursor, ty) in cursors.operands.iter().zip(&turn.function.locals[own..]) {
            let number = ty.plain_number().ok_or(Stop::NoLanes)?;
            let address = self.builder.use_var(cursor.address);
            let lanes = self.type_of(number)?;
            let scalar = self.builder.ins().load(lanes.lane_type(), little(), address, 0);
            operands.push(vec![self.builder.ins().splat(lanes, scalar)]);
        }
        Ok(operands)
    }

    fn vector_operands(
        &mut self,
        turn: &Turn<'a>,
        own: usize,
        cursors: &Cursors,
        offset: i32,
    ) -> Result<Vec<Values>, Stop> {
        let mut operands = Vec::new();
        for (cursor, ty) in cursors.operands.iter().zip(&turn.function.locals[own..]) {
            let number = ty.plain_number().ok_or(Stop::NoLanes)?;
            let address = self.builder.use_var(cursor.address);
            let lanes = self.type_of(number)?;
            operands.push(vec![self.ins().load(lanes, little(), address, offset)]);
        }
        Ok(operands)
    }

    /// Combines the lanes of one sum with the term of one vector.
    fn fold(
        &mut self,
        turn: &Turn<'a>,
        fold: &Fold<'a>,
        element: Value,
        operands: &[Values],
        before: Value,
    ) -> Result<Value, Stop> {
        // Σ is not read by the term; its local is never defined.
        let exit = super::Exit::Lanes(super::Returns::default());
        let locals = vec![None; turn.function.locals.len()];
        self.frames.push(super::Frame { function: turn.function, locals, exit });
        self.define_local(0, &[element]);
        for (index, operand) in operands.iter().enumerate() {
            self.define_local(2 + index, operand);
        }
        let term = self.expr(fold.term);
        let combined = term.and_then(|term| self.combine_two(fold.op, turn.number, before, term[0]));
        self.frames.pop();
        combined
    }

    fn combine_two(&mut self, op: FoldOperator, number: Number, one: Value, two: Value) -> Result<Value, Stop> {
        match op {
            FoldOperator::Binary(op) if number.is_float() => self.float_operator(op, number, one, two),
            FoldOperator::Binary(op) => self.integer_operator(op, number, one, two),
            FoldOperator::Min | FoldOperator::Max if number.is_float() => {
                let comparison = if op == FoldOperator::Min { FloatCC::LessThan } else { FloatCC::GreaterThan };
                Ok(self.smaller_float(one, two, comparison))
            }
            FoldOperator::Min | FoldOperator::Max => {
                let comparison = if op == FoldOperator::Min { Binary::Less } else { Binary::Greater };
                let is_two = self.integer_operator(comparison, number, two, one)?;
                Ok(self.select(is_two, two, one))
            }
        }
    }

    /// Returns the number that changes nothing, in all lanes.
    fn neutral(&mut self, op: FoldOperator, number: Number) -> Result<Value, Stop> {
        let (int, float) = match op {
            // The sum of -0.0 and a number is the number.
            FoldOperator::Binary(Binary::Add) => (0, -0.0),
            FoldOperator::Binary(Binary::Multiply) => (1, 1.0),
            FoldOperator::Binary(Binary::And) => (number.unsigned().max(), 0.0),
            // The other operand is the result.
            FoldOperator::Min | FoldOperator::Max if number.is_float() => (0, f64::NAN),
            FoldOperator::Min => (number.max(), 0.0),
            FoldOperator::Max => (number.min(), 0.0),
            FoldOperator::Binary(_) => (0, 0.0),
        };
        if number.is_float() { self.float(number, float) } else { self.int(number, int) }
    }

    /// Combines the sums with each other, their lanes, and Σ.
    fn combine(&mut self, turn: &Turn<'a>, fold: &Fold<'a>, sums: &[Value], address: Value) -> Result<(), Stop> {
        let mut sum = sums[0];
        for other in &sums[1..] {
            sum = self.combine_two(fold.op, turn.number, sum, *other)?;
        }
        let scalar = super::scalar_type(turn.number);
        let mut result = self.builder.ins().load(scalar, little(), address, 0);
        self.form = Form::Scalar;
        for lane in 0..LANES_SIZE / turn.number.width() {
            let value = self.builder.ins().extractlane(sum, lane as u8);
            result = self.combine_two(fold.op, turn.number, result, value)?;
        }
        let stored = if turn.number.is_float() { self.canonical(turn.number, result)? } else { result };
        self.builder.ins().store(little(), stored, address, 0);
        Ok(())
    }
}

/// Finds `Σ op term` or `term op Σ` in the body of a reduce, if the operator may be computed in any order.
fn find_fold(function: &Function) -> Option<Fold<'_>> {
    let mut body = &function.body;
    while let Kind::Block(statements, Some(tail)) = &body.kind {
        if !statements.is_empty() {
            return None;
        }
        body = tail;
    }
    let number = function.locals[0].plain_number()?;
    let is_free = !number.is_float() || function.is_associative;
    let (op, one, two) = match &body.kind {
        Kind::Binary(op, one, two) => (FoldOperator::Binary(*op), &**one, &**two),
        Kind::Method(Method::Min, operands) => (FoldOperator::Min, &operands[0], &operands[1]),
        Kind::Method(Method::Max, operands) => (FoldOperator::Max, &operands[0], &operands[1]),
        _ => return None,
    };
    let is_associative = match op {
        FoldOperator::Binary(op) => matches!(op, Binary::Add | Binary::Multiply) || op.is_bitwise(),
        _ => true,
    };
    if !is_free || !is_associative {
        return None;
    }
    let is_sigma = |expr: &Expr| matches!(expr.kind, Kind::Local(1));
    let term = if is_sigma(one) { two } else { one };
    let other = if is_sigma(one) { one } else { two };
    (is_sigma(other) && !has_sigma(term)).then_some(Fold { op, term })
}

/// Returns true if the term may read Σ, or has parts that a term seldom has.
fn has_sigma(expr: &Expr) -> bool {
    match &expr.kind {
        Kind::Local(local) => *local == 1,
        Kind::Bool(_) | Kind::Int(_) | Kind::Float(_) | Kind::FloatValue(_) => false,
        Kind::Negate(one) | Kind::Not(one) | Kind::Cast(one) => has_sigma(one),
        Kind::Binary(_, one, two) | Kind::And(one, two) | Kind::Or(one, two) => has_sigma(one) || has_sigma(two),
        Kind::If(condition, then, Some(other)) => has_sigma(condition) || has_sigma(then) || has_sigma(other),
        Kind::Block(statements, Some(tail)) if statements.is_empty() => has_sigma(tail),
        Kind::Call(_, arguments) | Kind::Method(_, arguments) => arguments.iter().any(has_sigma),
        _ => true,
    }
}
