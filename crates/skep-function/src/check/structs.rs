//! Checks structs, and finds the types that a source names.

use syn::punctuated::Punctuated;
use syn::spanned::Spanned;

use skep_core::function::RECORD_SIZE_MAX;

use super::{Items, check_attributes, check_name, refuse};
use crate::limits::{STRUCT_NESTING_MAX, STRUCTS_MAX, TYPE_TEXT_MAX};
use crate::source_error::SourceError;
use crate::types::{Half, Number, Record, RecordField, Type};

/// Checks the structs of a module. A struct may contain others in any order, but not itself.
pub(super) fn check_structs(items: &mut Items<'_>, structs: &[&syn::ItemStruct]) -> Result<(), SourceError> {
    if let Some(item) = structs.get(STRUCTS_MAX) {
        let message = format!("a module has at most {STRUCTS_MAX} structs: divide it into several modules");
        return Err(SourceError::at(item.ident.span(), message));
    }
    for (index, item) in structs.iter().enumerate() {
        items.record_numbers.insert(item.ident.to_string(), index);
        items.records.0.push(Record { name: item.ident.to_string(), fields: Vec::new() });
    }
    let order = contained_first(items, structs)?;
    for index in order {
        let item = structs[index];
        let fields = check_struct(items, item)?;
        items.records.0[index].fields = fields;
        check_size(items, index).map_err(|message| SourceError::at(item.ident.span(), message))?;
    }
    Ok(())
}

/// Checks a struct whose fields are known. All that it contains was checked before.
fn check_size(items: &Items<'_>, index: usize) -> Result<(), String> {
    let (records, ty) = (&items.records, Type::Record(index));
    let size = records.size(&ty);
    if size > RECORD_SIZE_MAX {
        return Err(format!(
            "the struct has {size} bytes, more than {RECORD_SIZE_MAX}: remove fields, or use smaller types"
        ));
    }
    if records.nesting(&ty) > STRUCT_NESTING_MAX {
        return Err(format!(
            "structs are at most {STRUCT_NESTING_MAX} deep in each other: write the fields of the inner ones"
        ));
    }
    let size = records.text_size(&ty);
    if size > TYPE_TEXT_MAX {
        return Err(format!(
            "the struct and the names of its numbers have {size} bytes as text, more than {TYPE_TEXT_MAX}: shorten the names of fields"
        ));
    }
    Ok(())
}

fn check_struct(items: &Items<'_>, item: &syn::ItemStruct) -> Result<Vec<RecordField>, SourceError> {
    check_attributes(&item.attrs, "a struct", &["derive"])?;
    check_derived(&item.attrs)?;
    if let Some(parameter) = item.generics.params.first() {
        return Err(SourceError::at(parameter.span(), "a struct has no type parameters: write the types"));
    }
    let syn::Fields::Named(named) = &item.fields else {
        return Err(SourceError::at(item.ident.span(), "a struct has fields with names: write `{ name: type, … }`"));
    };
    let mut fields: Vec<RecordField> = Vec::new();
    let mut first = 0;
    for field in &named.named {
        check_attributes(&field.attrs, "a field", &[])?;
        let ident = field.ident.as_ref().expect("a named field has a name");
        let name = check_name(ident)?;
        if fields.iter().any(|field| field.name == name) {
            return Err(SourceError::at(ident.span(), format!("the struct has two fields named `{name}`: rename one")));
        }
        let ty = stored_type(items, &field.ty)?;
        if ty == Type::Unit {
            return Err(SourceError::at(field.ty.span(), "a field has a value: write its type, or remove it"));
        }
        let count = items.records.leaf_count(&ty);
        fields.push(RecordField { name, ty, first });
        first += count;
    }
    if fields.is_empty() {
        return Err(SourceError::at(item.ident.span(), "a struct has at least one field: add one"));
    }
    Ok(fields)
}

/// Accepts the traits that every struct can have. They change nothing here.
fn check_derived(attributes: &[syn::Attribute]) -> Result<(), SourceError> {
    const TRAITS: [&str; 5] = ["Clone", "Copy", "Debug", "Default", "PartialEq"];
    for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("derive")) {
        let list = attribute.parse_args_with(Punctuated::<syn::Ident, syn::Token![,]>::parse_terminated);
        let is_known = list.is_ok_and(|list| list.iter().all(|name| TRAITS.iter().any(|known| name == known)));
        if !is_known {
            let message = format!("a struct derives only {}: write #[derive(Clone, Copy)]", TRAITS.join(", "));
            return Err(SourceError::at(attribute.span(), message));
        }
    }
    Ok(())
}

/// Returns the numbers of the structs, each after those that it contains.
fn contained_first(items: &Items<'_>, structs: &[&syn::ItemStruct]) -> Result<Vec<usize>, SourceError> {
    let contained: Vec<Vec<usize>> = structs
        .iter()
        .map(|item| item.fields.iter().filter_map(|field| named_struct(items, &field.ty)).collect())
        .collect();
    let mut order = Vec::new();
    let mut states = vec![0; structs.len()];
    for start in 0..structs.len() {
        let mut path = if states[start] == 0 { vec![(start, 0)] } else { Vec::new() };
        while let Some((index, next)) = path.last_mut() {
            let index = *index;
            states[index] = 1;
            let Some(&inner) = contained[index].get(*next) else {
                states[index] = 2;
                order.push(index);
                path.pop();
                continue;
            };
            *next += 1;
            match states[inner] {
                0 => path.push((inner, 0)),
                1 => {
                    let message = "the struct contains itself: name the fields of one level only";
                    return Err(SourceError::at(structs[inner].ident.span(), message));
                }
                _ => {}
            }
        }
    }
    Ok(order)
}

/// Returns the number of the struct that a type names, also as the element of an array.
fn named_struct(items: &Items<'_>, ty: &syn::Type) -> Option<usize> {
    match ty {
        syn::Type::Array(array) => named_struct(items, &array.elem),
        syn::Type::Paren(paren) => named_struct(items, &paren.elem),
        syn::Type::Path(path) => items.record_numbers.get(&path.path.get_ident()?.to_string()).copied(),
        _ => None,
    }
}

/// Returns a type that a record, an operand or a result may have.
pub(super) fn stored_type(items: &Items<'_>, ty: &syn::Type) -> Result<Type, SourceError> {
    let found = find_type(items, ty)?;
    if items.records.has_usize(&found) {
        let message = "the width of `usize` depends on the machine: store u64, and convert it with `as usize`";
        return Err(SourceError::at(ty.span(), message));
    }
    Ok(found)
}

/// Returns the type that `ty` names.
pub(super) fn find_type(items: &Items<'_>, ty: &syn::Type) -> Result<Type, SourceError> {
    match ty {
        syn::Type::Paren(paren) => find_type(items, &paren.elem),
        syn::Type::Tuple(tuple) if tuple.elems.is_empty() => Ok(Type::Unit),
        syn::Type::Path(path) if path.qself.is_none() => find_named(items, path),
        syn::Type::Array(array) => {
            let element = find_type(items, &array.elem)?;
            let count = array_length(items, &array.len)?;
            let size = items.records.size(&element).saturating_mul(count);
            if element == Type::Unit || size > RECORD_SIZE_MAX {
                let message =
                    format!("the array has {size} bytes; an array has from 1 to {RECORD_SIZE_MAX} bytes: shorten it");
                return Err(SourceError::at(array.span(), message));
            }
            Ok(Type::Array(element.into(), count))
        }
        other => Err(SourceError::at(other.span(), refuse::ty(other))),
    }
}

fn find_named(items: &Items<'_>, path: &syn::TypePath) -> Result<Type, SourceError> {
    let last = path.path.segments.last().expect("a path has a name");
    let (ident, is_plain) = (&last.ident, path.path.get_ident().is_some());
    let name = if is_plain { ident.to_string() } else { String::new() };
    if let Some(number) = Number::from_name(&name) {
        return Ok(Type::Number(number));
    }
    match name.as_str() {
        "bool" => return Ok(Type::Bool),
        "f16" => return Ok(Type::Half(Half::F16)),
        "bf16" => return Ok(Type::Half(Half::BF16)),
        _ => {}
    }
    if let Some(&index) = items.record_numbers.get(&name) {
        return Ok(Type::Record(index));
    }
    let name = ident.to_string();
    if Number::from_name(&name).is_some() || name == "bool" || items.record_numbers.contains_key(&name) {
        return Err(SourceError::at(ident.span(), format!("a type has no path: write `{name}` alone")));
    }
    Err(SourceError::at(ident.span(), format!("there is no type `{name}`: {}", refuse::type_name(&name))))
}

/// Returns the length of an array: a literal, or a constant of the module.
fn array_length(items: &Items<'_>, length: &syn::Expr) -> Result<usize, SourceError> {
    let value = constant_integer(items, length, 0)?;
    match usize::try_from(value) {
        Ok(count @ 1..=RECORD_SIZE_MAX) => Ok(count),
        _ => {
            let message = format!("an array has from 1 to {RECORD_SIZE_MAX} elements, not {value}");
            Err(SourceError::at(length.span(), message))
        }
    }
}

/// Computes an integer that must be known before the function runs.
pub(super) fn constant_integer(items: &Items<'_>, expr: &syn::Expr, depth: usize) -> Result<i128, SourceError> {
    let unknown = || SourceError::at(expr.span(), "write an integer, or a `const` of this module whose value is one");
    let again = |inner: &syn::Expr| constant_integer(items, inner, depth);
    match expr {
        syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Int(literal), .. }) => {
            literal.base10_parse::<u64>().map(i128::from).map_err(|_| unknown())
        }
        syn::Expr::Paren(paren) => again(&paren.expr),
        syn::Expr::Unary(syn::ExprUnary { op: syn::UnOp::Neg(_), expr, .. }) => Ok(-again(expr)?),
        syn::Expr::Path(path) => {
            let name = path.path.get_ident().ok_or_else(unknown)?.to_string();
            let &number = items.constant_numbers.get(&name).ok_or_else(unknown)?;
            // A chain of constants is as long as their number, unless one is defined by itself.
            if depth > items.constants.len() {
                return Err(SourceError::at(expr.span(), format!("`{name}` is defined by itself: write its value")));
            }
            constant_integer(items, &items.constants[number - items.functions.len()].expr, depth + 1)
        }
        _ => Err(unknown()),
    }
}
