//! Checks places: locals, fields and elements of arrays, and what is assigned to them.
//!
//! A place may be a half; a value that is read from it is an `f32`.

use proc_macro2::Span;

use super::body::{Body, start, unit};
use super::refuse;
use crate::source_error::SourceError;
use crate::tree::{Binary, Expr, Kind};
use crate::types::{Number, Type};

impl Body<'_> {
    /// Checks a place that is read.
    pub(super) fn read_place(&mut self, expr: &syn::Expr) -> Result<Expr, SourceError> {
        let mut place = self.place(expr)?;
        place.ty = place.ty.of_value();
        Ok(place)
    }

    /// Checks a field or an element. Its root may be any value, and the element of an update is used without `*`.
    fn place(&mut self, expr: &syn::Expr) -> Result<Expr, SourceError> {
        let at = start(expr);
        match expr {
            syn::Expr::Paren(paren) => self.place(&paren.expr),
            syn::Expr::Field(field) => {
                let base = self.base(&field.base)?;
                self.field(at, base, &field.member)
            }
            syn::Expr::Index(index) => {
                let base = self.base(&index.expr)?;
                self.index(at, base, &index.index)
            }
            syn::Expr::Unary(syn::ExprUnary { op: syn::UnOp::Deref(_), expr, .. }) => self.dereference(at, expr),
            syn::Expr::Path(path) => match path.path.get_ident().and_then(|name| self.find_local(&name.to_string())) {
                Some(local) if !(self.is_by_reference && local == 0) => {
                    Ok(Expr { ty: self.local_type(local), at, kind: Kind::Local(local) })
                }
                _ => self.path(at, path),
            },
            other => self.expr(other, None),
        }
    }

    /// Checks the record or array of a place.
    fn base(&mut self, expr: &syn::Expr) -> Result<Expr, SourceError> {
        if self.is_element(expr) {
            return Ok(Expr { ty: self.local_type(0), at: start(expr), kind: Kind::Local(0) });
        }
        self.place(expr)
    }

    /// Returns true if the expression is the name of the element that an update takes by reference.
    fn is_element(&self, expr: &syn::Expr) -> bool {
        let syn::Expr::Path(path) = expr else { return false };
        let local = path.path.get_ident().and_then(|name| self.find_local(&name.to_string()));
        self.is_by_reference && local == Some(0)
    }

    /// Checks `*v`.
    pub(super) fn dereference(&mut self, at: Span, expr: &syn::Expr) -> Result<Expr, SourceError> {
        let mut inner = expr;
        while let syn::Expr::Paren(paren) = inner {
            inner = &paren.expr;
        }
        if self.is_element(inner) {
            return Ok(Expr { ty: self.local_type(0), at, kind: Kind::Local(0) });
        }
        Err(SourceError::at(at, "only the element of an update that is `&mut` is read with `*`: remove the `*`"))
    }

    fn field(&mut self, at: Span, base: Expr, member: &syn::Member) -> Result<Expr, SourceError> {
        let syn::Member::Named(name) = member else {
            return Err(SourceError::at(at, "there are no tuples: take a field by its name, an element by [index]"));
        };
        match self.unknowns.resolve(&base.ty) {
            Type::Record(index) => {
                let fields = &self.items.records.0[index].fields;
                let Some(field) = fields.iter().find(|field| name == &field.name) else {
                    return Err(SourceError::at(name.span(), self.no_field(index, &name.to_string())));
                };
                Ok(Expr { ty: field.ty.clone(), at, kind: Kind::Field(Box::new(base), field.first) })
            }
            other => {
                let ty = self.unknowns.name(&self.items.records, &other);
                Err(SourceError::at(name.span(), format!("{ty} has no fields: remove `.{name}`")))
            }
        }
    }

    /// Returns the message for a field that a struct does not have.
    pub(super) fn no_field(&self, record: usize, field: &str) -> String {
        let record = &self.items.records.0[record];
        let names: Vec<&str> = record.fields.iter().map(|field| field.name.as_str()).collect();
        format!("`{}` has no field `{field}`: it has `{}`", record.name, names.join("`, `"))
    }

    fn index(&mut self, at: Span, base: Expr, index: &syn::Expr) -> Result<Expr, SourceError> {
        let Type::Array(element, count) = self.unknowns.resolve(&base.ty) else {
            let ty = self.unknowns.name(&self.items.records, &base.ty);
            return Err(SourceError::at(at, format!("{ty} has no elements: only arrays are indexed")));
        };
        if let syn::Expr::Range(_) = index {
            return Err(SourceError::at(start(index), "there are no slices: take the elements one after another"));
        }
        let checked = self.expr(index, None)?;
        let index = match self.unknowns.unify(&checked.ty, &Type::Number(Number::Usize)) {
            Some(_) => checked,
            None => return Err(SourceError::at(start(index), "an index is a usize: convert it with `as usize`")),
        };
        if let Kind::Int(value) = index.kind
            && !(0..count as i128).contains(&value)
        {
            let message = format!("the index {value} is not in the array, which has {count} elements");
            return Err(SourceError::at(index.at, message));
        }
        Ok(Expr { ty: (*element).clone(), at, kind: Kind::Index(Box::new(base), Box::new(index)) })
    }

    /// Checks `place = value`.
    pub(super) fn assign(&mut self, at: Span, left: &syn::Expr, right: &syn::Expr) -> Result<Expr, SourceError> {
        if let syn::Expr::Infer(_) = left {
            let value = self.expr(right, None)?;
            let ty = if value.ty == Type::Never { Type::Never } else { Type::Unit };
            let statement = crate::tree::Statement::Expr(value);
            return Ok(Expr { ty, at, kind: Kind::Block(vec![statement], None) });
        }
        let place = self.assigned_place(left)?;
        let value = self.expr_of(right, &place.ty.clone())?;
        Ok(Expr { kind: Kind::Assign(Box::new(place), Box::new(value)), ..unit(at) })
    }

    /// Checks `place op= value`.
    pub(super) fn assign_binary(
        &mut self,
        at: Span,
        op: Binary,
        left: &syn::Expr,
        right: &syn::Expr,
    ) -> Result<Expr, SourceError> {
        let place = self.assigned_place(left)?;
        let value = self.expr(right, None)?;
        self.operands(at, op, &place.ty.of_value(), &value)?;
        Ok(Expr { kind: Kind::AssignBinary(op, Box::new(place), Box::new(value)), ..unit(at) })
    }

    fn assigned_place(&mut self, expr: &syn::Expr) -> Result<Expr, SourceError> {
        if self.is_element(expr) {
            return Err(SourceError::at(start(expr), "write `*` before the element to change it"));
        }
        let place = match expr {
            syn::Expr::Path(_)
            | syn::Expr::Field(_)
            | syn::Expr::Index(_)
            | syn::Expr::Paren(_)
            | syn::Expr::Unary(_) => self.place(expr)?,
            syn::Expr::Tuple(_) => return Err(SourceError::at(start(expr), refuse::expr(expr))),
            _ => return Err(SourceError::at(start(expr), "only a local, a field or an element can be changed")),
        };
        let Some(local) = root(&place) else {
            return Err(SourceError::at(start(expr), "only a local, a field or an element can be changed"));
        };
        if !self.is_mutable(local) {
            return Err(SourceError::at(
                start(expr),
                "this local does not change: write `let mut`, or `mut` before the parameter",
            ));
        }
        if local < self.guard_start {
            return Err(SourceError::at(
                start(expr),
                "a guard of a match changes nothing: change it before the `match`",
            ));
        }
        Ok(place)
    }
}

/// Returns the local of a place.
fn root(place: &Expr) -> Option<usize> {
    match &place.kind {
        Kind::Local(local) => Some(*local),
        Kind::Field(base, _) | Kind::Index(base, _) => root(base),
        _ => None,
    }
}
