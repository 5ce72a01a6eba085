//! Checks the signature of a function, then its body.

use syn::spanned::Spanned;

use skep_core::function::{FunctionKind, USER_OPERANDS_MAX};

use super::body::Body;
use super::structs::{find_type, stored_type};
use super::{Called, Items, check_attributes, check_name, refuse};
use crate::source_error::SourceError;
use crate::tree::Function;
use crate::types::Type;

/// What the attribute of a function says.
#[derive(Clone, Copy)]
struct Mark {
    kind: Option<FunctionKind>,
    is_associative: bool,
}

/// A parameter, by the pattern and type of syn.
struct Parameter {
    name: String,
    is_mutable: bool,
    ty: Type,
    is_reference: bool,
}

/// Checks a function.
pub(super) fn check_function(items: &Items<'_>, item: &syn::ItemFn) -> Result<(Function, Vec<Called>), SourceError> {
    let mark = mark_of(&item.attrs)?;
    check_plain(&item.sig)?;
    let mut parameters = Vec::new();
    for (index, input) in item.sig.inputs.iter().enumerate() {
        parameters.push(check_parameter(items, input, mark, index)?);
    }
    let result = match &item.sig.output {
        syn::ReturnType::Default => Type::Unit,
        syn::ReturnType::Type(_, ty) if mark.kind.is_some() => stored_type(items, ty)?,
        syn::ReturnType::Type(_, ty) => find_type(items, ty)?,
    };
    if let Some(kind) = mark.kind {
        check_kind(items, &item.sig, kind, &parameters, &result)?;
    }
    let is_by_reference = parameters.first().is_some_and(|parameter| parameter.is_reference);
    if mark.is_associative && parameters[1].ty != parameters[0].ty {
        let message = "the element and the Σ of an associative reduce have the same type: write #[reduce] alone";
        return Err(SourceError::at(item.sig.ident.span(), message));
    }
    let mut body = Body::new(items, result.clone(), is_by_reference);
    for (parameter, input) in parameters.iter().zip(&item.sig.inputs) {
        if body.find_local(&parameter.name).is_some() {
            let message = format!("two parameters are named `{}`: rename one", parameter.name);
            return Err(SourceError::at(input.span(), message));
        }
        body.declare(&parameter.name, parameter.ty.clone(), parameter.is_mutable);
    }
    let expr = body.function_block(&item.block)?;
    let checked = body.finish()?;
    let function = Function {
        name: check_name(&item.sig.ident)?,
        at: item.sig.ident.span(),
        kind: mark.kind,
        is_associative: mark.is_associative,
        is_by_reference,
        locals: checked.locals,
        parameters: parameters.into_iter().map(|parameter| parameter.name).collect(),
        result,
        body: expr,
        unknowns: checked.unknowns,
    };
    Ok((function, checked.calls))
}

/// Checks a constant. It is a function without parameters.
pub(super) fn check_constant(items: &Items<'_>, item: &syn::ItemConst) -> Result<(Function, Vec<Called>), SourceError> {
    check_attributes(&item.attrs, "a constant", &[])?;
    if let Some(parameter) = item.generics.params.first() {
        return Err(SourceError::at(parameter.span(), "a constant has no type parameters: remove them"));
    }
    let result = find_type(items, &item.ty)?;
    let mut body = Body::new(items, result.clone(), false);
    let expr = body.constant(&item.expr)?;
    let checked = body.finish()?;
    let function = Function {
        name: check_name(&item.ident)?,
        at: item.ident.span(),
        kind: None,
        is_associative: false,
        is_by_reference: false,
        locals: checked.locals,
        parameters: Vec::new(),
        result,
        body: expr,
        unknowns: checked.unknowns,
    };
    Ok((function, checked.calls))
}

fn mark_of(attributes: &[syn::Attribute]) -> Result<Mark, SourceError> {
    let mut mark = Mark { kind: None, is_associative: false };
    for attribute in attributes.iter().filter(|attribute| !attribute.path().is_ident("doc")) {
        let kinds = [FunctionKind::Update, FunctionKind::Reduce, FunctionKind::Filter];
        let Some(kind) = kinds.into_iter().find(|kind| attribute.path().is_ident(kind.name())) else {
            let message = "a function has only the attributes #[update], #[reduce], #[reduce(associative)] and #[filter]: remove this one";
            return Err(SourceError::at(attribute.span(), message));
        };
        if mark.kind.is_some() {
            return Err(SourceError::at(attribute.span(), "a function has one kind: remove the second mark"));
        }
        mark.kind = Some(kind);
        match &attribute.meta {
            syn::Meta::Path(_) => {}
            syn::Meta::List(list) if kind == FunctionKind::Reduce && list.tokens.to_string() == "associative" => {
                mark.is_associative = true;
            }
            other => {
                let message = format!(
                    "write #[{}] without more{}",
                    kind.name(),
                    match kind {
                        FunctionKind::Reduce => ", or #[reduce(associative)]",
                        _ => "",
                    }
                );
                return Err(SourceError::at(other.span(), message));
            }
        }
    }
    Ok(mark)
}

/// Refuses what Rust allows before and after the name of a function.
fn check_plain(signature: &syn::Signature) -> Result<(), SourceError> {
    let refused = if let Some(token) = &signature.asyncness {
        Some((token.span(), "a function cannot wait: remove `async`"))
    } else if let Some(token) = &signature.unsafety {
        Some((token.span(), "nothing here is unsafe: remove `unsafe`"))
    } else if let Some(token) = &signature.constness {
        Some((token.span(), "remove `const` before `fn`: it is not needed"))
    } else if let Some(abi) = &signature.abi {
        Some((abi.span(), "remove `extern`: functions are called by the store"))
    } else if let Some(parameter) = signature.generics.params.first() {
        Some((parameter.span(), "a function has no type parameters and no lifetimes: write the types"))
    } else if let Some(clause) = &signature.generics.where_clause {
        Some((clause.span(), "a function has no type parameters: remove `where`"))
    } else {
        signature.variadic.as_ref().map(|dots| (dots.span(), "name each parameter"))
    };
    refused.map_or(Ok(()), |(span, message)| Err(SourceError::at(span, message)))
}

fn check_parameter(items: &Items<'_>, input: &syn::FnArg, mark: Mark, index: usize) -> Result<Parameter, SourceError> {
    let syn::FnArg::Typed(typed) = input else {
        return Err(SourceError::at(input.span(), "there are no methods: name the parameter, and write its type"));
    };
    check_attributes(&typed.attrs, "a parameter", &[])?;
    let syn::Pat::Ident(pattern) = &*typed.pat else {
        return Err(SourceError::at(typed.pat.span(), "a parameter has a name: write `name: type`"));
    };
    if pattern.by_ref.is_some() || pattern.subpat.is_some() {
        return Err(SourceError::at(typed.pat.span(), "a parameter is a name: write `name: type`"));
    }
    let name = check_name(&pattern.ident)?;
    if items.constant_numbers.contains_key(&name) {
        let message = format!("`{name}` is a constant of this module: rename the parameter");
        return Err(SourceError::at(pattern.ident.span(), message));
    }
    if let Some(message) = refuse::element(&typed.ty).filter(|_| index == 0 && mark.kind.is_some()) {
        return Err(SourceError::at(typed.ty.span(), message));
    }
    let is_mutable = pattern.mutability.is_some();
    if let syn::Type::Reference(reference) = &*typed.ty {
        if let syn::Type::Path(_) = &*reference.elem {
            // There may be no such type, as for `&str`.
            find_type(items, &reference.elem)?;
        }
        let is_element = index == 0 && matches!(mark.kind, Some(FunctionKind::Update));
        if !is_element || reference.mutability.is_none() || reference.lifetime.is_some() || is_mutable {
            let message = "only the element of an update is a reference, and it is `name: &mut T`: pass a value, and return the new one";
            return Err(SourceError::at(typed.span(), message));
        }
        let ty = stored_type(items, &reference.elem)?;
        if ty == Type::Unit {
            return Err(SourceError::at(reference.elem.span(), "an element has a value: write its type"));
        }
        return Ok(Parameter { name, is_mutable: true, ty, is_reference: true });
    }
    let ty = if mark.kind.is_some() { stored_type(items, &typed.ty)? } else { find_type(items, &typed.ty)? };
    if ty == Type::Unit {
        return Err(SourceError::at(typed.ty.span(), "a parameter has a value: write its type, or remove it"));
    }
    Ok(Parameter { name, is_mutable, ty, is_reference: false })
}

/// Checks that the parameters and the result are those of the kind.
fn check_kind(
    items: &Items<'_>,
    signature: &syn::Signature,
    kind: FunctionKind,
    parameters: &[Parameter],
    result: &Type,
) -> Result<(), SourceError> {
    let name = |ty: &Type| items.records.name(ty);
    let at = |message: String| Err(SourceError::at(signature.ident.span(), message));
    let own = if kind == FunctionKind::Reduce { 2 } else { 1 };
    let form = match kind {
        FunctionKind::Update => "fn name(v: T, operands…) -> T",
        FunctionKind::Reduce => "fn name(v: T, sigma: S, operands…) -> S",
        FunctionKind::Filter => "fn name(v: T, operands…) -> bool",
    };
    let Some(element) = parameters.first().filter(|_| parameters.len() >= own) else {
        let least = match kind {
            FunctionKind::Update => "an update has at least 1 parameter",
            FunctionKind::Filter => "a filter has at least 1 parameter",
            FunctionKind::Reduce => "a reduce has at least 2 parameters",
        };
        return at(format!("{least}: write `{form}`"));
    };
    if parameters.len() > own + USER_OPERANDS_MAX {
        return at(format!(
            "a function has at most {USER_OPERANDS_MAX} operands besides the {}: put several into a struct",
            if own == 2 { "element and Σ" } else { "element" }
        ));
    }
    let expected = match kind {
        FunctionKind::Update if element.is_reference => return Ok(()),
        FunctionKind::Update => &element.ty,
        FunctionKind::Reduce => &parameters[1].ty,
        FunctionKind::Filter => &Type::Bool,
    };
    if result == expected {
        return Ok(());
    }
    let instead = match kind {
        FunctionKind::Update => " (to return something else, take the element as `&mut`)",
        FunctionKind::Reduce if *result == element.ty => {
            " (the type of Σ, its second parameter: the element comes first)"
        }
        FunctionKind::Reduce => " (the type of Σ, its second parameter)",
        FunctionKind::Filter => "",
    };
    at(format!("this {} returns {}{instead}, not {}: write `{form}`", kind.name(), name(expected), name(result)))
}
