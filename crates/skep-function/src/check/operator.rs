//! Checks operators and conversions.

use proc_macro2::Span;
use syn::spanned::Spanned;

use super::body::{Body, start, without_parentheses};
use super::deferred::Deferred;
use super::structs::find_type;
use crate::source_error::SourceError;
use crate::tree::{Binary, Expr, Kind};
use crate::types::{Number, Type};

impl Body<'_> {
    /// Checks `-x`, `!x` and `*v`. `ty` is the type that a conversion with `as` gives a literal without suffix.
    pub(super) fn unary(&mut self, at: Span, unary: &syn::ExprUnary, ty: Option<Number>) -> Result<Expr, SourceError> {
        match unary.op {
            syn::UnOp::Deref(_) => {
                let mut place = self.dereference(at, &unary.expr)?;
                place.ty = place.ty.of_value();
                Ok(place)
            }
            syn::UnOp::Neg(_) => {
                let operand = match without_parentheses(&unary.expr) {
                    syn::Expr::Lit(lit) => {
                        let literal = self.literal(&lit.lit, true, ty)?;
                        if literal.ty == Type::Bool {
                            return Err(SourceError::at(at, "a bool is not negated with `-`: write `!`"));
                        }
                        return Ok(literal);
                    }
                    syn::Expr::Unary(inner) => self.unary(start(&unary.expr), inner, ty)?,
                    inner => self.expr(inner, None)?,
                };
                if operand.ty != Type::Never && !self.is_number(&operand.ty) {
                    let name = self.unknowns.name(&self.items.records, &operand.ty);
                    return Err(SourceError::at(at, format!("`-` is for numbers, not for {name}")));
                }
                self.deferred.push(Deferred::Negated(at, operand.ty.clone()));
                Ok(Expr { ty: operand.ty.clone(), at, kind: Kind::Negate(Box::new(operand)) })
            }
            syn::UnOp::Not(_) => {
                let operand = match without_parentheses(&unary.expr) {
                    syn::Expr::Lit(lit) => self.literal(&lit.lit, false, ty)?,
                    syn::Expr::Unary(inner) => self.unary(start(&unary.expr), inner, ty)?,
                    inner => self.expr(inner, None)?,
                };
                let resolved = self.unknowns.resolve(&operand.ty);
                if !matches!(resolved, Type::Bool | Type::Never) && !self.unknowns.is_integer(&resolved) {
                    let name = self.unknowns.name(&self.items.records, &operand.ty);
                    return Err(SourceError::at(at, format!("`!` is for integers and bools, not for {name}")));
                }
                Ok(Expr { ty: operand.ty.clone(), at, kind: Kind::Not(Box::new(operand)) })
            }
            _ => Err(SourceError::at(at, "there is no such operator")),
        }
    }

    pub(super) fn binary(&mut self, binary: &syn::ExprBinary) -> Result<Expr, SourceError> {
        let at = binary.op.span();
        if let Some((op, assigns)) = operator(&binary.op) {
            if assigns {
                return self.assign_binary(at, op, &binary.left, &binary.right);
            }
            if let (syn::BinOp::Mul(times), syn::Expr::Unary(syn::ExprUnary { op: syn::UnOp::Deref(second), .. })) =
                (&binary.op, &*binary.right)
                && times.span().end() == second.span().start()
            {
                return Err(SourceError::at(at, "there is no operator `**`: multiply, or write `powf` of a float"));
            }
            let left = self.expr(&binary.left, None)?;
            let right = self.expr(&binary.right, None)?;
            let ty = self.operands(at, op, &left.ty, &right)?;
            return Ok(Expr { ty, at, kind: Kind::Binary(op, Box::new(left), Box::new(right)) });
        }
        let left = Box::new(self.expr_of(&binary.left, &Type::Bool)?);
        let right = Box::new(self.expr_of(&binary.right, &Type::Bool)?);
        let kind = match binary.op {
            syn::BinOp::And(_) => Kind::And(left, right),
            _ => Kind::Or(left, right),
        };
        Ok(Expr { ty: Type::Bool, at, kind })
    }

    /// Checks the types of two operands, and returns the type of the result.
    pub(super) fn operands(&mut self, at: Span, op: Binary, left: &Type, right: &Expr) -> Result<Type, SourceError> {
        if op.is_shift() {
            let left_type = self.unknowns.resolve(left);
            for ty in [&left_type, &right.ty] {
                if *ty != Type::Never && !self.unknowns.is_integer(ty) {
                    let name = self.unknowns.name(&self.items.records, ty);
                    return Err(SourceError::at(at, format!("a shift is for integers, not for {name}")));
                }
            }
            return Ok(left_type);
        }
        let Some(common) = self.unknowns.unify(left, &right.ty) else {
            return Err(SourceError::at(right.at, self.mismatch(left, &right.ty)));
        };
        let is_number = self.is_number(&common);
        let is_bool = common == Type::Bool;
        let is_integer = self.unknowns.is_integer(&common);
        let allowed = match op {
            _ if common == Type::Never => true,
            op if op.is_comparison() => is_number || is_bool,
            op if op.is_bitwise() => is_integer || is_bool,
            _ => is_number,
        };
        if !allowed {
            let name = self.unknowns.name(&self.items.records, &common);
            let instead = match common {
                Type::Record(_) => "take the fields by their names",
                Type::Array(..) => "take the elements by [index]",
                Type::Bool => "write &, | or ^ for bools",
                _ if op.is_bitwise() => "take the bits with `to_bits`",
                _ => "write a number",
            };
            return Err(SourceError::at(at, format!("this operator is not for {name}: {instead}")));
        }
        Ok(if op.is_comparison() { Type::Bool } else { common })
    }

    /// Returns true if the type is a number, or will be one.
    pub(super) fn is_number(&self, ty: &Type) -> bool {
        self.unknowns.is_float(ty) || self.unknowns.is_integer(ty)
    }

    pub(super) fn cast(&mut self, at: Span, cast: &syn::ExprCast) -> Result<Expr, SourceError> {
        let ty = find_type(self.items, &cast.ty)?;
        let Type::Number(number) = ty else {
            let instead = match ty {
                Type::Bool => "compare it, such as `x != 0`",
                Type::Half(_) => "a half is computed as f32: convert to f32",
                _ => "take its parts one by one",
            };
            let name = self.items.records.name(&ty);
            return Err(SourceError::at(at, format!("`as` does not convert to {name}: {instead}")));
        };
        // rustc gives a literal the type to which it is converted.
        let value = match without_parentheses(&cast.expr) {
            syn::Expr::Lit(lit) => self.literal(&lit.lit, false, Some(number))?,
            syn::Expr::Unary(unary) => self.unary(start(&cast.expr), unary, Some(number))?,
            other => self.expr(other, None)?,
        };
        let from = self.unknowns.resolve(&value.ty);
        let allowed = match from {
            Type::Bool => !number.is_float(),
            Type::Never => true,
            ref from => self.is_number(from),
        };
        if !allowed {
            let name = self.unknowns.name(&self.items.records, &from);
            let instead = if from == Type::Bool { ": convert it to an integer first" } else { "" };
            return Err(SourceError::at(at, format!("`as` does not convert {name} to {}{instead}", number.name())));
        }
        Ok(Expr { ty: Type::Number(number), at, kind: Kind::Cast(Box::new(value)) })
    }
}

/// Returns the operator, and true if it assigns.
fn operator(op: &syn::BinOp) -> Option<(Binary, bool)> {
    use syn::BinOp as B;
    Some(match op {
        B::Add(_) => (Binary::Add, false),
        B::Sub(_) => (Binary::Subtract, false),
        B::Mul(_) => (Binary::Multiply, false),
        B::Div(_) => (Binary::Divide, false),
        B::Rem(_) => (Binary::Remainder, false),
        B::BitAnd(_) => (Binary::And, false),
        B::BitOr(_) => (Binary::Or, false),
        B::BitXor(_) => (Binary::Xor, false),
        B::Shl(_) => (Binary::ShiftLeft, false),
        B::Shr(_) => (Binary::ShiftRight, false),
        B::Eq(_) => (Binary::Equal, false),
        B::Ne(_) => (Binary::NotEqual, false),
        B::Lt(_) => (Binary::Less, false),
        B::Le(_) => (Binary::LessEqual, false),
        B::Gt(_) => (Binary::Greater, false),
        B::Ge(_) => (Binary::GreaterEqual, false),
        B::AddAssign(_) => (Binary::Add, true),
        B::SubAssign(_) => (Binary::Subtract, true),
        B::MulAssign(_) => (Binary::Multiply, true),
        B::DivAssign(_) => (Binary::Divide, true),
        B::RemAssign(_) => (Binary::Remainder, true),
        B::BitAndAssign(_) => (Binary::And, true),
        B::BitOrAssign(_) => (Binary::Or, true),
        B::BitXorAssign(_) => (Binary::Xor, true),
        B::ShlAssign(_) => (Binary::ShiftLeft, true),
        B::ShrAssign(_) => (Binary::ShiftRight, true),
        _ => return None,
    })
}
