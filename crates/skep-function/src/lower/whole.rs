//! The loop over whole elements, in scalar form: any types, any mixture of operands.
//!
//! Code takes four words and returns an error, 0 for none:
//!
//! ```text
//! code(elements, count, operands, results) → error
//!
//! operands │ address │ stride │ address │ stride │ …     the stride is 0 if there is one record for all elements
//! results  of an update: one for each element; of a reduce: Σ, read before and written after; of a filter: one byte each
//! ```
//!
//! The count is at least 1. Addresses need no alignment.

use std::collections::HashSet;

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{self, AbiParam, Function as Code, InstBuilder, Signature, UserFuncName, Value, types};
use cranelift_codegen::isa::{CallConv, TargetFrontendConfig};
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext, Variable};
use skep_core::function::FunctionKind;

use super::{Form, Host, Lowering, MOVES_MAX, Stop, Values, little};
use crate::tree::{Function, Tree};
use crate::types::{Leaf, Type};

/// A lowered function.
pub(crate) struct Lowered {
    pub(crate) code: Code,
    /// The instructions for one element, or the moves between blocks if they are more.
    pub(crate) work: u32,
    pub(crate) can_fail: bool,
}

/// The addresses that a loop advances.
pub(super) struct Cursors {
    pub(super) element: Variable,
    pub(super) result: Variable,
    pub(super) operands: Vec<Cursor>,
}

/// The address of an operand, and how far it is to the next.
#[derive(Clone, Copy)]
pub(super) struct Cursor {
    pub(super) address: Variable,
    pub(super) stride: Value,
}

/// Returns the signature of all code.
pub(crate) fn code_signature(convention: CallConv) -> Signature {
    let mut signature = Signature::new(convention);
    signature.params = vec![AbiParam::new(types::I64); 4];
    signature.returns.push(AbiParam::new(types::I32));
    signature
}

/// Lowers a function that is marked.
pub(crate) fn lower_whole(
    tree: &Tree,
    index: usize,
    target: TargetFrontendConfig,
    host: Host,
) -> Result<Lowered, Stop> {
    let mut code = Code::with_name_signature(UserFuncName::default(), code_signature(target.default_call_conv));
    let mut context = FunctionBuilderContext::new();
    let builder = FunctionBuilder::new(&mut code, &mut context);
    let mut lowering = Lowering::new(tree, builder, Form::Scalar, host);
    lowering.whole(&tree.functions[index])?;
    lowering.check_length()?;
    let (moves, can_fail) = (lowering.moves(), lowering.can_fail);
    if moves > MOVES_MAX {
        return Err(Stop::TooLong);
    }
    let work = lowering.work.max(moves);
    lowering.builder.finalize(target);
    Ok(Lowered { code, work, can_fail })
}

impl<'a, 'b> Lowering<'a, 'b> {
    pub(super) fn new(tree: &'a Tree, builder: FunctionBuilder<'b>, form: Form, host: Host) -> Lowering<'a, 'b> {
        Lowering {
            tree,
            builder,
            form,
            host,
            work: 0,
            visits: 0,
            values_counted: 0,
            canonical: HashSet::new(),
            can_fail: false,
            failures: [None; 2],
            frames: Vec::new(),
        }
    }

    fn whole(&mut self, function: &'a Function) -> Result<(), Stop> {
        // The tree outlives the lowering; the parameter may not.
        let function =
            self.tree.functions.iter().find(|own| own.name == function.name).expect("a function of the tree");
        let kind = function.kind.expect("a marked function");
        let entry = self.builder.create_block();
        self.builder.append_block_params_for_function_params(entry);
        self.builder.switch_to_block(entry);
        self.builder.seal_block(entry);
        let parameters = self.builder.block_params(entry).to_vec();
        let first_operand = if kind == FunctionKind::Reduce { 2 } else { 1 };
        let cursors = self.cursors(&parameters, function.parameters.len() - first_operand);
        let left = self.variable(parameters[1]);
        let sigma: Vec<Variable> = match kind {
            FunctionKind::Reduce => {
                let values = self.load(&function.locals[1], parameters[3]);
                values.into_iter().map(|value| self.variable(value)).collect()
            }
            _ => Vec::new(),
        };
        let body = self.builder.create_block();
        self.builder.ins().jump(body, &[]);
        self.builder.switch_to_block(body);
        self.element(function, kind, &cursors, &sigma)?;
        let count = self.builder.use_var(left);
        let count = self.builder.ins().iadd_imm_s(count, -1);
        self.builder.def_var(left, count);
        let done = self.builder.create_block();
        self.builder.ins().brif(count, body, &[], done, &[]);
        self.builder.seal_block(body);
        self.builder.switch_to_block(done);
        self.builder.seal_block(done);
        let values: Values = sigma.iter().map(|variable| self.builder.use_var(*variable)).collect();
        self.store(&function.locals.get(1).cloned().unwrap_or(Type::Unit), parameters[3], &values, &[])?;
        let success = self.builder.ins().iconst(types::I32, 0);
        self.builder.ins().return_(&[success]);
        self.write_failures();
        Ok(())
    }

    /// Computes one element, and advances the addresses.
    fn element(
        &mut self,
        function: &'a Function,
        kind: FunctionKind,
        cursors: &Cursors,
        sigma: &[Variable],
    ) -> Result<(), Stop> {
        let element_address = self.builder.use_var(cursors.element);
        let result_address = self.builder.use_var(cursors.result);
        let element = self.load(&function.locals[0], element_address);
        let mut arguments = vec![element.clone()];
        if kind == FunctionKind::Reduce {
            arguments.push(sigma.iter().map(|variable| self.builder.use_var(*variable)).collect());
        }
        let first = arguments.len();
        for (index, cursor) in cursors.operands.iter().enumerate() {
            let address = self.builder.use_var(cursor.address);
            let values = self.load(&function.locals[first + index], address);
            arguments.push(values);
            let next = self.ins().iadd(address, cursor.stride);
            self.builder.def_var(cursor.address, next);
        }
        let outcome = self.inline(function, &arguments)?;
        let mut result_size = self.tree.records.size(&function.result);
        match kind {
            FunctionKind::Update if function.is_by_reference => {
                self.store(&function.locals[0], element_address, &outcome.element, &element)?;
                self.store(&function.result, result_address, &outcome.result, &[])?;
            }
            FunctionKind::Update => {
                self.store(&function.result, element_address, &outcome.result, &element)?;
                result_size = 0;
            }
            FunctionKind::Filter => self.store(&Type::Bool, result_address, &outcome.result, &[])?,
            FunctionKind::Reduce => {
                for (variable, value) in sigma.iter().zip(outcome.result) {
                    self.builder.def_var(*variable, value);
                }
                result_size = 0;
            }
        }
        let size = self.tree.records.size(&function.locals[0]);
        let next = self.builder.ins().iadd_imm_s(element_address, size as i64);
        self.builder.def_var(cursors.element, next);
        if result_size > 0 {
            let next = self.builder.ins().iadd_imm_s(result_address, result_size as i64);
            self.builder.def_var(cursors.result, next);
        }
        Ok(())
    }

    /// Makes the addresses variables.
    pub(super) fn cursors(&mut self, parameters: &[Value], operand_count: usize) -> Cursors {
        let operands = (0..operand_count)
            .map(|index| {
                let offset = 16 * index as i32;
                let address = self.builder.ins().load(types::I64, little(), parameters[2], offset);
                let stride = self.builder.ins().load(types::I64, little(), parameters[2], offset + 8);
                Cursor { address: self.variable(address), stride }
            })
            .collect();
        Cursors { element: self.variable(parameters[0]), result: self.variable(parameters[3]), operands }
    }

    /// Returns a variable with this value.
    pub(super) fn variable(&mut self, value: Value) -> Variable {
        let ty: ir::Type = self.builder.func.dfg.value_type(value);
        let variable = self.builder.declare_var(ty);
        self.builder.def_var(variable, value);
        variable
    }

    /// Loads a value of this type.
    fn load(&mut self, ty: &Type, address: Value) -> Values {
        let mut values = Vec::new();
        let mut offset = 0;
        for leaf in self.tree.records.leaves(ty) {
            values.push(match leaf {
                Leaf::Bool => {
                    let byte = self.ins().load(types::I8, little(), address, offset);
                    self.ins().icmp_imm_u(IntCC::NotEqual, byte, 0)
                }
                Leaf::Number(number) => self.ins().load(super::scalar_type(number), little(), address, offset),
                Leaf::Half(half) => {
                    let bits = self.ins().load(types::I16, little(), address, offset);
                    self.half_value(half, bits)
                }
            });
            offset += leaf.scalar().width() as i32;
        }
        values
    }

    /// Stores a value of this type. Floats that are not a number are stored as the canonical NaN. Integers that are still
    /// the loaded ones are not stored.
    fn store(&mut self, ty: &Type, address: Value, values: &[Value], loaded: &[Value]) -> Result<(), Stop> {
        let mut offset = 0;
        for (index, (leaf, value)) in self.tree.records.leaves(ty).into_iter().zip(values).enumerate() {
            let is_same = loaded.get(index) == Some(value);
            let stored = match leaf {
                Leaf::Number(number) if number.is_float() => Some(self.canonical(number, *value)?),
                Leaf::Number(_) => (!is_same).then_some(*value),
                Leaf::Bool => Some(*value),
                Leaf::Half(half) => Some(self.half_bits(half, *value)),
            };
            if let Some(stored) = stored {
                self.ins().store(little(), stored, address, offset);
            }
            offset += leaf.scalar().width() as i32;
        }
        Ok(())
    }
}
