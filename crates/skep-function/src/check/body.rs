//! Checks the body of a function: blocks, statements, branches and calls. Other files check operators, methods, paths,
//! patterns and places.

use proc_macro2::Span;
use syn::spanned::Spanned;

use super::deferred::Deferred;
use super::infer::Unknowns;
use super::structs::find_type;
use super::{Called, Items, check_name, refuse};
use crate::source_error::SourceError;
use crate::tree::{Expr, Initializer, Kind, Statement};
use crate::types::{Number, Type};

/// A body that is being checked.
pub(super) struct Body<'a> {
    pub(super) items: &'a Items<'a>,
    pub(super) unknowns: Unknowns,
    /// The type that `return` returns.
    result: Type,
    /// The first local is the element, by reference.
    pub(super) is_by_reference: bool,
    locals: Vec<Local>,
    /// The first local of the guard of a match that is being checked. Those before it do not change there.
    pub(super) guard_start: usize,
    /// The names in scope, the last one first to be found.
    scope: Vec<Name>,
    calls: Vec<Called>,
    /// Checks that need the types of literals.
    pub(super) deferred: Vec<Deferred>,
}

struct Local {
    ty: Type,
    is_mutable: bool,
}

struct Name {
    name: String,
    local: usize,
}

/// The results of a checked body.
pub(super) struct Checked {
    pub(super) locals: Vec<Type>,
    pub(super) unknowns: Vec<Number>,
    pub(super) calls: Vec<Called>,
}

impl<'a> Body<'a> {
    pub(super) fn new(items: &'a Items<'a>, result: Type, is_by_reference: bool) -> Body<'a> {
        Body {
            items,
            unknowns: Unknowns::default(),
            result,
            is_by_reference,
            locals: Vec::new(),
            guard_start: 0,
            scope: Vec::new(),
            calls: Vec::new(),
            deferred: Vec::new(),
        }
    }

    /// Returns the name of a new local. In Rust, the name of a constant would be a pattern.
    pub(super) fn new_name(&self, ident: &syn::Ident) -> Result<String, SourceError> {
        let name = check_name(ident)?;
        if self.items.constant_numbers.contains_key(&name) {
            return Err(SourceError::at(
                ident.span(),
                format!("`{name}` is a constant of this module: rename the local"),
            ));
        }
        Ok(name)
    }

    /// Adds a local to the scope.
    pub(super) fn declare(&mut self, name: &str, ty: Type, is_mutable: bool) -> usize {
        let local = self.locals.len();
        self.locals.push(Local { ty, is_mutable });
        self.scope.push(Name { name: name.to_owned(), local });
        local
    }

    /// Returns the number of locals that were declared, also of those that are no longer in scope.
    pub(super) fn local_count(&self) -> usize {
        self.locals.len()
    }

    pub(super) fn find_local(&self, name: &str) -> Option<usize> {
        self.scope.iter().rev().find(|entry| entry.name == name).map(|entry| entry.local)
    }

    pub(super) fn scope_size(&self) -> usize {
        self.scope.len()
    }

    /// Removes the names that were declared since the scope had this size.
    pub(super) fn leave_scope(&mut self, size: usize) {
        self.scope.truncate(size);
    }

    pub(super) fn local_type(&self, local: usize) -> Type {
        self.locals[local].ty.clone()
    }

    pub(super) fn is_mutable(&self, local: usize) -> bool {
        self.locals[local].is_mutable
    }

    /// Checks the block of a function.
    pub(super) fn function_block(&mut self, block: &syn::Block) -> Result<Expr, SourceError> {
        let result = self.result.clone();
        let body = self.block(block, Some(&result))?;
        self.demand(body, &result)
    }

    /// Checks the value of a constant.
    pub(super) fn constant(&mut self, expr: &syn::Expr) -> Result<Expr, SourceError> {
        let result = self.result.clone();
        let value = self.expr(expr, Some(&result))?;
        self.demand(value, &result)
    }

    /// Does the deferred checks.
    pub(super) fn finish(self) -> Result<Checked, SourceError> {
        let unknowns = self.unknowns.finish();
        let number = |ty: &Type| match self.unknowns.resolve(ty) {
            Type::Unknown(index) => Some(unknowns[index]),
            Type::Number(number) => Some(number),
            _ => None,
        };
        for check in &self.deferred {
            check.check(number)?;
        }
        let locals = self.locals.iter().map(|local| self.unknowns.resolve(&local.ty)).collect();
        Ok(Checked { locals, unknowns, calls: self.calls })
    }

    /// Checks an expression. `hint` is the type that its context has, if that is known.
    pub(super) fn expr(&mut self, expr: &syn::Expr, hint: Option<&Type>) -> Result<Expr, SourceError> {
        let at = start(expr);
        super::check_attributes(attributes(expr), "an expression", &[])?;
        match expr {
            syn::Expr::Paren(paren) => self.expr(&paren.expr, hint),
            syn::Expr::Lit(lit) => self.literal(&lit.lit, false, None),
            syn::Expr::Path(path) => self.path(at, path),
            syn::Expr::Field(_) | syn::Expr::Index(_) => self.read_place(expr),
            syn::Expr::Unary(unary) => self.unary(at, unary, None),
            syn::Expr::Binary(binary) => self.binary(binary),
            syn::Expr::Assign(assign) => self.assign(at, &assign.left, &assign.right),
            syn::Expr::Cast(cast) => self.cast(at, cast),
            syn::Expr::Block(block) if block.label.is_none() => self.block(&block.block, hint),
            syn::Expr::If(branch) => self.branch(at, branch, hint),
            syn::Expr::Match(matched) => self.match_on(at, matched, hint),
            syn::Expr::Return(returned) => self.return_value(at, returned.expr.as_deref()),
            syn::Expr::Call(call) => self.call(at, call),
            syn::Expr::MethodCall(call) => self.method_call(call),
            syn::Expr::Struct(structure) => self.record(at, structure),
            syn::Expr::Array(array) => self.array(at, array, hint),
            syn::Expr::Repeat(repeat) => self.repeat(at, repeat, hint),
            syn::Expr::Tuple(tuple) if tuple.elems.is_empty() => Ok(unit(at)),
            other => Err(SourceError::at(at, refuse::expr(other))),
        }
    }

    /// Checks an expression, and that it has this type.
    pub(super) fn expr_of(&mut self, expr: &syn::Expr, ty: &Type) -> Result<Expr, SourceError> {
        let checked = self.expr(expr, Some(ty))?;
        self.demand(checked, ty)
    }

    /// Returns the expression, if it has the type. A value for a half is rounded.
    pub(super) fn demand(&mut self, mut expr: Expr, ty: &Type) -> Result<Expr, SourceError> {
        if let Type::Half(half) = *ty {
            let value = self.demand(expr, &Type::Number(Number::F32))?;
            let at = value.at;
            return Ok(Expr { ty: ty.clone(), at, kind: Kind::Round(half, Box::new(value)) });
        }
        match self.unknowns.unify(&expr.ty, ty) {
            Some(common) => {
                if expr.ty != Type::Never {
                    expr.ty = common;
                }
                Ok(expr)
            }
            None => {
                let message = match last(&expr).kind {
                    Kind::Assign(..) | Kind::AssignBinary(..) => {
                        "an assignment has no value: write a semicolon, and the value after it".to_owned()
                    }
                    Kind::If(_, _, None) => {
                        "an `if` without `else` has no value: add `else { … }`, or write the value after it".to_owned()
                    }
                    _ => self.mismatch(ty, &expr.ty),
                };
                Err(SourceError::at(expr.at, message))
            }
        }
    }

    /// Returns the message for a value of the wrong type.
    pub(super) fn mismatch(&self, expected: &Type, found: &Type) -> String {
        let expected_name = self.unknowns.name(&self.items.records, expected);
        let found_name = self.unknowns.name(&self.items.records, found);
        let is_number = |ty: &Type| self.unknowns.is_float(ty) || self.unknowns.is_integer(ty);
        let instead = match (self.unknowns.resolve(expected), self.unknowns.resolve(found)) {
            (Type::Number(_), found @ Type::Unknown(_)) if self.unknowns.is_integer(&found) => {
                ": write the literal with a point, such as 1.0".to_owned()
            }
            (Type::Number(_), Type::Unknown(_)) => ": write the literal without a point".to_owned(),
            (Type::Number(number), found) if is_number(&found) || found == Type::Bool && !number.is_float() => {
                format!(": convert it with `as {expected_name}`")
            }
            (Type::Bool, found) if is_number(&found) => ": compare it, such as `x != 0`".to_owned(),
            (_, Type::Unit) => ": end the block with a value, without a semicolon after it".to_owned(),
            (Type::Array(..), found) if is_number(&found) => ": take the elements by [index]".to_owned(),
            (Type::Record(_), found) if is_number(&found) => ": write a struct, or take a field".to_owned(),
            (expected, Type::Array(..)) if is_number(&expected) => ": take an element by [index]".to_owned(),
            (expected, Type::Record(_)) if is_number(&expected) => ": take a field by its name".to_owned(),
            (Type::Unit, _) => ": write a semicolon after it, or give the function a result".to_owned(),
            _ => String::new(),
        };
        format!("expected {expected_name}, found {found_name}{instead}")
    }

    pub(super) fn block(&mut self, block: &syn::Block, hint: Option<&Type>) -> Result<Expr, SourceError> {
        let at = block.brace_token.span.open();
        let names = self.scope.len();
        let mut statements = Vec::new();
        let mut diverges = false;
        let mut tail = None;
        let last = block.stmts.len().wrapping_sub(1);
        for (index, statement) in block.stmts.iter().enumerate() {
            match statement {
                syn::Stmt::Expr(expr, None) if index == last => tail = Some(Box::new(self.expr(expr, hint)?)),
                _ => {
                    let checked = self.statement(statement)?;
                    let (Statement::Let(_, expr) | Statement::Expr(expr)) = &checked;
                    diverges |= expr.ty == Type::Never;
                    statements.push(checked);
                }
            }
        }
        self.scope.truncate(names);
        let ty = match &tail {
            _ if diverges => Type::Never,
            Some(tail) => tail.ty.clone(),
            None => Type::Unit,
        };
        Ok(Expr { ty, at: tail.as_ref().map_or(at, |tail| tail.at), kind: Kind::Block(statements, tail) })
    }

    fn statement(&mut self, statement: &syn::Stmt) -> Result<Statement, SourceError> {
        match statement {
            syn::Stmt::Local(local) => self.let_statement(local),
            syn::Stmt::Expr(expr, Some(_)) => Ok(Statement::Expr(self.expr(expr, None)?)),
            syn::Stmt::Expr(expr, None) => {
                let checked = self.expr(expr, Some(&Type::Unit))?;
                Ok(Statement::Expr(self.demand(checked, &Type::Unit)?))
            }
            syn::Stmt::Item(item @ (syn::Item::Fn(_) | syn::Item::Struct(_) | syn::Item::Const(_))) => {
                Err(SourceError::at(item.span(), "an item belongs into the module: move it out of the function"))
            }
            syn::Stmt::Item(item) => Err(SourceError::at(item.span(), refuse::item(item))),
            syn::Stmt::Macro(call) => Err(SourceError::at(call.span(), refuse::macro_call(&call.mac))),
        }
    }

    fn let_statement(&mut self, local: &syn::Local) -> Result<Statement, SourceError> {
        super::check_attributes(&local.attrs, "a statement", &[])?;
        let (pattern, ty) = match &local.pat {
            syn::Pat::Type(typed) => (&*typed.pat, Some(find_type(self.items, &typed.ty)?)),
            pattern => (pattern, None),
        };
        let Some(init) = &local.init else {
            return Err(SourceError::at(
                local.span(),
                "a local has a value from the beginning: write `let name = value;`",
            ));
        };
        if let Some((token, _)) = &init.diverge {
            return Err(SourceError::at(token.span(), "write `if` in place of `let … else`"));
        }
        let value = match &ty {
            Some(ty) => self.expr_of(&init.expr, ty)?,
            None => self.expr(&init.expr, None)?,
        };
        // The declared type of a half is a place. A value without one is what was read.
        let ty = ty.unwrap_or_else(|| value.ty.of_value());
        match pattern {
            syn::Pat::Ident(ident) if ident.by_ref.is_none() && ident.subpat.is_none() => {
                let name = self.new_name(&ident.ident)?;
                let local = self.declare(&name, ty, ident.mutability.is_some());
                Ok(Statement::Let(local, value))
            }
            syn::Pat::Wild(_) => Ok(Statement::Expr(value)),
            other => Err(SourceError::at(other.span(), "write `let name = value;`, and take fields by `name.field`")),
        }
    }

    fn branch(&mut self, at: Span, branch: &syn::ExprIf, hint: Option<&Type>) -> Result<Expr, SourceError> {
        if let syn::Expr::Let(condition) = &*branch.cond {
            return Err(SourceError::at(condition.span(), refuse::expr(&branch.cond)));
        }
        if let syn::Expr::Assign(assign) = without_parentheses(&branch.cond) {
            return Err(SourceError::at(assign.eq_token.span(), "write `==` to compare"));
        }
        let condition = self.expr_of(&branch.cond, &Type::Bool)?;
        let mut then = self.block(&branch.then_branch, hint)?;
        let Some((_, other)) = &branch.else_branch else {
            if !matches!(then.ty, Type::Unit | Type::Never) {
                let message = "an `if` without `else` has no value: add `else { … }`, or write `return` before it";
                return Err(SourceError::at(then.at, message));
            }
            return Ok(Expr { ty: Type::Unit, at, kind: Kind::If(Box::new(condition), Box::new(then), None) });
        };
        let mut other = self.expr(other, hint)?;
        let ty = self.common(&mut then, &mut other)?;
        Ok(Expr { ty, at, kind: Kind::If(Box::new(condition), Box::new(then), Some(Box::new(other))) })
    }

    /// Returns the common type of two branches.
    pub(super) fn common(&mut self, one: &mut Expr, two: &mut Expr) -> Result<Type, SourceError> {
        let (first, second) = (one.ty.of_value(), two.ty.of_value());
        match self.unknowns.unify(&first, &second) {
            Some(ty) => Ok(ty),
            None => Err(SourceError::at(two.at, self.mismatch(&first, &second))),
        }
    }

    fn return_value(&mut self, at: Span, value: Option<&syn::Expr>) -> Result<Expr, SourceError> {
        let result = self.result.clone();
        let value = match value {
            Some(value) => Some(Box::new(self.expr_of(value, &result)?)),
            None if result == Type::Unit => None,
            None => {
                let name = self.items.records.name(&result);
                return Err(SourceError::at(at, format!("the function returns {name}: write `return value;`")));
            }
        };
        Ok(Expr { ty: Type::Never, at, kind: Kind::Return(value) })
    }

    /// Checks a call of a function of the module, with its arguments.
    pub(super) fn call_function(
        &mut self,
        at: Span,
        function: usize,
        arguments: &[&syn::Expr],
    ) -> Result<Expr, SourceError> {
        let item = self.items.functions[function];
        let name = item.sig.ident.to_string();
        self.calls.push(Called { function, at });
        let mut types = Vec::new();
        for input in &item.sig.inputs {
            let syn::FnArg::Typed(typed) = input else { continue };
            if let syn::Type::Reference(_) = &*typed.ty {
                let message = format!(
                    "`{name}` changes an element in place: call a function that takes a value and returns the new one"
                );
                return Err(SourceError::at(at, message));
            }
            types.push(find_type(self.items, &typed.ty)?);
        }
        if types.len() != arguments.len() {
            let message = refuse::argument_count(&name, types.len(), arguments.len());
            return Err(SourceError::at(at, message));
        }
        let mut checked = Vec::new();
        for (argument, ty) in arguments.iter().zip(&types) {
            checked.push(self.expr_of(argument, ty)?);
        }
        let ty = match &item.sig.output {
            syn::ReturnType::Default => Type::Unit,
            syn::ReturnType::Type(_, ty) => find_type(self.items, ty)?,
        };
        Ok(Expr { ty: ty.of_value(), at, kind: Kind::Call(function, checked) })
    }

    /// Checks the use of a constant of the module.
    pub(super) fn constant_value(&mut self, at: Span, function: usize) -> Result<Expr, SourceError> {
        let item = self.items.constants[function - self.items.functions.len()];
        self.calls.push(Called { function, at });
        let ty = find_type(self.items, &item.ty)?;
        Ok(Expr { ty: ty.of_value(), at, kind: Kind::Call(function, Vec::new()) })
    }

    fn record(&mut self, at: Span, structure: &syn::ExprStruct) -> Result<Expr, SourceError> {
        let named = structure.path.get_ident().map(ToString::to_string);
        let Some(&index) = named.as_ref().and_then(|name| self.items.record_numbers.get(name)) else {
            return Err(SourceError::at(at, "there is no such struct in this module: define it with `struct`"));
        };
        if let Some(rest) = &structure.rest {
            return Err(SourceError::at(rest.span(), "write every field: `..` is not available"));
        }
        let fields = &self.items.records.0[index].fields;
        let mut values: Vec<Initializer> = Vec::new();
        for value in &structure.fields {
            let syn::Member::Named(ident) = &value.member else {
                return Err(SourceError::at(value.span(), "fields have names: write `name: value`"));
            };
            let Some(field) = fields.iter().find(|field| ident == &field.name) else {
                return Err(SourceError::at(ident.span(), self.no_field(index, &ident.to_string())));
            };
            if values.iter().any(|value| value.first == field.first) {
                return Err(SourceError::at(ident.span(), format!("the field `{ident}` has two values: remove one")));
            }
            let checked = self.expr_of(&value.expr, &field.ty)?;
            values.push(Initializer { first: field.first, value: checked });
        }
        if let Some(missing) = fields.iter().find(|field| values.iter().all(|value| value.first != field.first)) {
            return Err(SourceError::at(at, format!("the field `{}` has no value: add it", missing.name)));
        }
        Ok(Expr { ty: Type::Record(index), at, kind: Kind::Record(values) })
    }

    fn array(&mut self, at: Span, array: &syn::ExprArray, hint: Option<&Type>) -> Result<Expr, SourceError> {
        let hinted = element_hint(hint);
        let mut elements: Vec<Expr> = Vec::new();
        let mut ty: Option<Type> = hinted.clone();
        for element in &array.elems {
            let checked = match &ty {
                Some(ty) => self.expr_of(element, &ty.clone())?,
                None => self.expr(element, None)?,
            };
            ty = ty.or_else(|| Some(checked.ty.of_value()));
            elements.push(checked);
        }
        let Some(ty) = ty.filter(|_| !elements.is_empty()) else {
            return Err(SourceError::at(at, "an array has at least one element"));
        };
        let count = elements.len();
        self.array_type(at, ty, count).map(|ty| Expr { ty, at, kind: Kind::Array(elements) })
    }

    fn repeat(&mut self, at: Span, repeat: &syn::ExprRepeat, hint: Option<&Type>) -> Result<Expr, SourceError> {
        let count = super::structs::constant_integer(self.items, &repeat.len, 0)?;
        let element = match element_hint(hint) {
            Some(ty) => self.expr_of(&repeat.expr, &ty)?,
            None => self.expr(&repeat.expr, None)?,
        };
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        let ty = self.array_type(at, element.ty.clone(), count)?;
        Ok(Expr { ty, at, kind: Kind::Repeat(Box::new(element), count) })
    }

    /// Returns the type of an array, unless it is too large. An element of unknown type counts one byte.
    fn array_type(&self, at: Span, element: Type, count: usize) -> Result<Type, SourceError> {
        let size_max = skep_core::function::RECORD_SIZE_MAX;
        let size = self.items.records.size(&self.unknowns.resolve(&element)).max(1).saturating_mul(count);
        let is_value = !matches!(element, Type::Unit | Type::Never);
        if count == 0 || size > size_max || !is_value {
            return Err(SourceError::at(at, format!("an array has from 1 to {size_max} bytes of numbers: shorten it")));
        }
        Ok(Type::Array(element.into(), count))
    }
}

/// Returns the expression at the end of a block, or another expression.
fn last(mut expr: &Expr) -> &Expr {
    while let Kind::Block(_, Some(tail)) = &expr.kind {
        expr = tail;
    }
    expr
}

/// Returns an expression without the parentheses around it.
pub(super) fn without_parentheses(mut expr: &syn::Expr) -> &syn::Expr {
    while let syn::Expr::Paren(paren) = expr {
        expr = &paren.expr;
    }
    expr
}

fn element_hint(hint: Option<&Type>) -> Option<Type> {
    match hint {
        Some(Type::Array(element, _)) => Some((**element).clone()),
        _ => None,
    }
}

/// Returns the position of an expression: its first token. The span of syn would visit all tokens.
pub(super) fn start(expr: &syn::Expr) -> Span {
    match expr {
        syn::Expr::Assign(assign) => start(&assign.left),
        syn::Expr::Binary(binary) => start(&binary.left),
        syn::Expr::Call(call) => start(&call.func),
        syn::Expr::MethodCall(call) => start(&call.receiver),
        syn::Expr::Field(field) => start(&field.base),
        syn::Expr::Index(index) => start(&index.expr),
        syn::Expr::Cast(cast) => start(&cast.expr),
        syn::Expr::Paren(paren) => paren.paren_token.span.open(),
        syn::Expr::Array(array) => array.bracket_token.span.open(),
        syn::Expr::Block(block) => block.block.brace_token.span.open(),
        syn::Expr::If(branch) => branch.if_token.span,
        syn::Expr::Match(matched) => matched.match_token.span,
        syn::Expr::Return(returned) => returned.return_token.span,
        syn::Expr::Struct(structure) => {
            structure.path.segments.first().map_or_else(Span::call_site, |first| first.ident.span())
        }
        syn::Expr::Unary(unary) => match &unary.op {
            syn::UnOp::Neg(token) => token.span,
            syn::UnOp::Not(token) => token.span,
            syn::UnOp::Deref(token) => token.span,
            _ => unary.span(),
        },
        other => other.span(),
    }
}

/// Returns the attributes of an expression that the language has.
fn attributes(expr: &syn::Expr) -> &[syn::Attribute] {
    match expr {
        syn::Expr::Array(expr) => &expr.attrs,
        syn::Expr::Assign(expr) => &expr.attrs,
        syn::Expr::Binary(expr) => &expr.attrs,
        syn::Expr::Block(expr) => &expr.attrs,
        syn::Expr::Call(expr) => &expr.attrs,
        syn::Expr::Cast(expr) => &expr.attrs,
        syn::Expr::Field(expr) => &expr.attrs,
        syn::Expr::If(expr) => &expr.attrs,
        syn::Expr::Index(expr) => &expr.attrs,
        syn::Expr::Lit(expr) => &expr.attrs,
        syn::Expr::Match(expr) => &expr.attrs,
        syn::Expr::MethodCall(expr) => &expr.attrs,
        syn::Expr::Paren(expr) => &expr.attrs,
        syn::Expr::Path(expr) => &expr.attrs,
        syn::Expr::Repeat(expr) => &expr.attrs,
        syn::Expr::Return(expr) => &expr.attrs,
        syn::Expr::Struct(expr) => &expr.attrs,
        syn::Expr::Tuple(expr) => &expr.attrs,
        syn::Expr::Unary(expr) => &expr.attrs,
        _ => &[],
    }
}

/// Returns the value `()`.
pub(super) fn unit(at: Span) -> Expr {
    Expr { ty: Type::Unit, at, kind: Kind::Unit }
}
