//! Checks matches on integers and bools. That their arms accept every value is checked at the end, when its type is known.

use proc_macro2::Span;
use syn::spanned::Spanned;

use super::body::{Body, start};
use super::deferred::Deferred;
use super::structs::constant_integer;
use super::{check_attributes, check_name};
use crate::source_error::SourceError;
use crate::tree::{Arm, Expr, Kind, Range};
use crate::types::Type;

/// What a pattern accepts.
struct Pattern {
    /// Empty if it accepts all.
    ranges: Vec<Range>,
    /// The name that holds the value.
    binding: Option<Binding>,
}

struct Binding {
    name: String,
    is_mutable: bool,
}

impl Body<'_> {
    pub(super) fn match_on(
        &mut self,
        at: Span,
        matched: &syn::ExprMatch,
        hint: Option<&Type>,
    ) -> Result<Expr, SourceError> {
        let value = self.expr(&matched.expr, None)?;
        if value.ty != Type::Bool && !self.unknowns.is_integer(&value.ty) {
            let name = self.unknowns.name(&self.items.records, &value.ty);
            let message = format!("`match` is for integers and bools, not for {name}: write `if … else if …`");
            return Err(SourceError::at(value.at, message));
        }
        let mut arms: Vec<Arm> = Vec::new();
        let mut accepted = Vec::new();
        let mut accepts_all = false;
        let mut ty = Type::Never;
        for arm in &matched.arms {
            check_attributes(&arm.attrs, "an arm", &[])?;
            let names = self.scope_size();
            let pattern = self.pattern(&arm.pat, &value.ty)?;
            let binding = pattern.binding.map(|name| self.declare(&name.name, value.ty.clone(), name.is_mutable));
            let guard = match &arm.guard {
                Some((_, guard)) => Some(self.guard(guard)?),
                None => None,
            };
            let body = self.expr(&arm.body, hint)?;
            self.leave_scope(names);
            let Some(common) = self.unknowns.unify(&ty, &body.ty.of_value()) else {
                return Err(SourceError::at(body.at, self.mismatch(&ty, &body.ty)));
            };
            ty = common;
            if guard.is_none() {
                accepts_all |= pattern.ranges.is_empty();
                accepted.extend(&pattern.ranges);
            }
            arms.push(Arm { ranges: pattern.ranges, binding, guard, body });
        }
        if !accepts_all {
            self.deferred.push(Deferred::Exhaustive(at, accepted, value.ty.clone()));
        }
        Ok(Expr { ty, at, kind: Kind::Match(Box::new(value), arms) })
    }

    fn guard(&mut self, guard: &syn::Expr) -> Result<Expr, SourceError> {
        let start = self.local_count();
        let outer = std::mem::replace(&mut self.guard_start, start);
        let checked = self.expr_of(guard, &Type::Bool);
        self.guard_start = outer;
        checked
    }

    fn pattern(&mut self, pattern: &syn::Pat, ty: &Type) -> Result<Pattern, SourceError> {
        let at = pattern.span();
        match pattern {
            syn::Pat::Wild(_) => Ok(Pattern { ranges: Vec::new(), binding: None }),
            syn::Pat::Paren(paren) => self.pattern(&paren.pat, ty),
            syn::Pat::Ident(ident) if ident.by_ref.is_none() && ident.subpat.is_none() => {
                let name = check_name(&ident.ident)?;
                if self.items.constant_numbers.contains_key(&name) {
                    let path = syn::Expr::Path(syn::ExprPath {
                        attrs: Vec::new(),
                        qself: None,
                        path: ident.ident.clone().into(),
                    });
                    return Ok(Pattern { ranges: vec![self.single(&path, ty)?], binding: None });
                }
                let binding = Binding { name, is_mutable: ident.mutability.is_some() };
                Ok(Pattern { ranges: Vec::new(), binding: Some(binding) })
            }
            syn::Pat::Lit(lit) => {
                let expr = syn::Expr::Lit(lit.clone());
                Ok(Pattern { ranges: vec![self.single(&expr, ty)?], binding: None })
            }
            syn::Pat::Path(path) => {
                let expr = syn::Expr::Path(path.clone());
                Ok(Pattern { ranges: vec![self.single(&expr, ty)?], binding: None })
            }
            syn::Pat::Range(range) => Ok(Pattern { ranges: vec![self.range(range, ty)?], binding: None }),
            syn::Pat::Or(or) => {
                let mut ranges = Vec::new();
                for case in &or.cases {
                    let case_pattern = self.pattern(case, ty)?;
                    if case_pattern.ranges.is_empty() {
                        return Err(SourceError::at(
                            case.span(),
                            "this part of the pattern accepts all: write it alone",
                        ));
                    }
                    ranges.extend(case_pattern.ranges);
                }
                Ok(Pattern { ranges, binding: None })
            }
            _ => Err(SourceError::at(at, "a pattern is a number, a range such as 1..=5, a bool, a name or `_`")),
        }
    }

    /// Returns the value of a pattern as a range of one integer. False is 0, true is 1.
    fn single(&mut self, expr: &syn::Expr, ty: &Type) -> Result<Range, SourceError> {
        let value = self.pattern_value(expr, ty)?;
        Ok(Range { first: value, last: value })
    }

    fn range(&mut self, range: &syn::ExprRange, ty: &Type) -> Result<Range, SourceError> {
        let at = range.span();
        if *ty == Type::Bool {
            return Err(SourceError::at(at, "a bool is matched with true and false"));
        }
        let first = match &range.start {
            Some(start) => self.pattern_value(start, ty)?,
            None => i128::MIN,
        };
        let last = match (&range.end, &range.limits) {
            (Some(end), syn::RangeLimits::Closed(_)) => self.pattern_value(end, ty)?,
            (Some(end), syn::RangeLimits::HalfOpen(_)) => self.pattern_value(end, ty)? - 1,
            (None, _) => i128::MAX,
        };
        if first > last {
            return Err(SourceError::at(at, "the range has no numbers: write the smaller one first"));
        }
        Ok(Range { first, last })
    }

    fn pattern_value(&mut self, expr: &syn::Expr, ty: &Type) -> Result<i128, SourceError> {
        let at = start(expr);
        if let syn::Expr::Path(path) = expr
            && let Some(constant) =
                path.path.get_ident().and_then(|name| self.items.constant_numbers.get(&name.to_string()))
        {
            let value = self.constant_value(at, *constant)?;
            self.demand(value, ty)?;
            return constant_integer(self.items, expr, 0);
        }
        let value = match expr {
            syn::Expr::Lit(lit) => self.literal(&lit.lit, false, None)?,
            syn::Expr::Unary(unary) => self.unary(at, unary, None)?,
            syn::Expr::Path(path) => self.path(at, path)?,
            _ => {
                return Err(SourceError::at(at, "a pattern is a number, a range such as 1..=5, a bool, a name or `_`"));
            }
        };
        match self.demand(value, ty)?.kind {
            Kind::Int(value) => Ok(value),
            Kind::Bool(value) => Ok(value.into()),
            _ => Err(SourceError::at(at, "a pattern is a number, a range such as 1..=5, a bool, a name or `_`")),
        }
    }
}
