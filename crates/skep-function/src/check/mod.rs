//! Checks a module: its items, the types of its structs, and its functions, one after another.

mod body;
mod deferred;
mod infer;
mod literal;
mod method;
mod operator;
mod path;
mod pattern;
mod place;
mod refuse;
mod signature;
mod structs;

use std::collections::BTreeMap;

use proc_macro2::{Span, TokenStream, TokenTree};
use syn::spanned::Spanned;

use crate::limits::{FUNCTIONS_MAX, NAME_SIZE_MAX};
use crate::source_error::SourceError;
use crate::tree::{Function, Tree};
use crate::types::{Number, Records};

/// The items of a module by name.
pub(super) struct Items<'a> {
    pub(super) records: Records,
    pub(super) record_numbers: BTreeMap<String, usize>,
    pub(super) functions: Vec<&'a syn::ItemFn>,
    pub(super) constants: Vec<&'a syn::ItemConst>,
    /// The numbers of functions in the tree. Constants come after the functions: they are functions without parameters.
    pub(super) function_numbers: BTreeMap<String, usize>,
    pub(super) constant_numbers: BTreeMap<String, usize>,
}

/// Checks the tokens of a source.
pub(crate) fn check_module(tokens: TokenStream) -> Result<Tree, SourceError> {
    let begins_with_module = match tokens.clone().into_iter().next() {
        Some(TokenTree::Ident(first)) => first == "mod",
        Some(TokenTree::Punct(first)) => first.as_char() == '#',
        _ => false,
    };
    let file: syn::File = syn::parse2(tokens).map_err(|error| match begins_with_module {
        true => SourceError::at(error.span(), format!("this is not Rust: {error}")),
        false => SourceError::at(
            error.span(),
            "a source is Rust, and begins with `mod name {`; it is not the name of a file",
        ),
    })?;
    let (module, content) = only_module(&file)?;
    let name = check_name(&module.ident)?;
    check_attributes(&module.attrs, "a module", &[])?;
    let items = Items::collect(content)?;
    let mut functions = Vec::new();
    let mut calls = Vec::new();
    for item in &items.functions {
        let (function, called) = signature::check_function(&items, item)?;
        functions.push(function);
        calls.push(called);
    }
    for item in &items.constants {
        let (function, called) = signature::check_constant(&items, item)?;
        functions.push(function);
        calls.push(called);
    }
    check_recursion(&functions, items.functions.len(), &calls)?;
    if functions.iter().all(|function| function.kind.is_none()) {
        let message = "no function is marked: write #[update], #[reduce] or #[filter] before a function";
        return Err(SourceError::at(module.ident.span(), message));
    }
    Ok(Tree { name, records: items.records, functions })
}

fn only_module(file: &syn::File) -> Result<(&syn::ItemMod, &[syn::Item]), SourceError> {
    if let Some(attribute) = file.attrs.first() {
        return Err(SourceError::at(attribute.span(), "a source has no attributes: remove this one"));
    }
    let modules =
        || file.items.iter().filter_map(|item| if let syn::Item::Mod(module) = item { Some(module) } else { None });
    let Some(module) = modules().next() else {
        let expected = "a source is one module: write `mod name { … }` around the functions";
        let first = file.items.first().map(|first| SourceError::at(first.span(), expected));
        return Err(first.unwrap_or_else(|| SourceError::of_whole(expected)));
    };
    if let Some(second) = modules().nth(1) {
        let message = "a source is one module: load the second one as a source of its own";
        return Err(SourceError::at(second.span(), message));
    }
    if let Some(other) = file.items.iter().find(|item| !matches!(item, syn::Item::Mod(_))) {
        let message = match other {
            syn::Item::Fn(_) | syn::Item::Struct(_) | syn::Item::Const(_) => {
                format!("a source is one module: move this into `mod {} {{ … }}`", module.ident)
            }
            _ => refuse::item(other).to_owned(),
        };
        return Err(SourceError::at(other.span(), message));
    }
    match &module.content {
        Some((_, content)) if module.unsafety.is_none() => Ok((module, content)),
        Some(_) => Err(SourceError::at(module.span(), "nothing here is unsafe: remove `unsafe`")),
        None => {
            let message = format!("the functions are in the source itself: write `mod {} {{ … }}`", module.ident);
            Err(SourceError::at(module.span(), message))
        }
    }
}

impl<'a> Items<'a> {
    fn collect(content: &'a [syn::Item]) -> Result<Items<'a>, SourceError> {
        let mut items = Items {
            records: Records::default(),
            record_numbers: BTreeMap::new(),
            functions: Vec::new(),
            constants: Vec::new(),
            function_numbers: BTreeMap::new(),
            constant_numbers: BTreeMap::new(),
        };
        let mut structs = Vec::new();
        let mut names = BTreeMap::new();
        for item in content {
            let ident = match item {
                syn::Item::Fn(function) => {
                    items.functions.push(function);
                    &function.sig.ident
                }
                syn::Item::Const(constant) => {
                    items.constants.push(constant);
                    &constant.ident
                }
                syn::Item::Struct(structure) => {
                    structs.push(structure);
                    &structure.ident
                }
                other => return Err(SourceError::at(other.span(), refuse::item(other))),
            };
            let name = check_name(ident)?;
            if names.insert(name.clone(), ()).is_some() {
                return Err(SourceError::at(
                    ident.span(),
                    format!("the name `{name}` is used twice: rename one of the two"),
                ));
            }
        }
        if let Some(function) = items.functions.get(FUNCTIONS_MAX) {
            let message = format!("a module has at most {FUNCTIONS_MAX} functions: divide it into several modules");
            return Err(SourceError::at(function.sig.ident.span(), message));
        }
        for (index, function) in items.functions.iter().enumerate() {
            items.function_numbers.insert(function.sig.ident.to_string(), index);
        }
        for (index, constant) in items.constants.iter().enumerate() {
            items.constant_numbers.insert(constant.ident.to_string(), items.functions.len() + index);
        }
        structs::check_structs(&mut items, &structs)?;
        Ok(items)
    }
}

/// Returns a name, unless it is too long, not ASCII, or the name of a type.
pub(super) fn check_name(ident: &syn::Ident) -> Result<String, SourceError> {
    let name = ident.to_string();
    if name.len() > NAME_SIZE_MAX {
        let message = format!("the name has {} bytes, more than {NAME_SIZE_MAX}: shorten it", name.len());
        return Err(SourceError::at(ident.span(), message));
    }
    if !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
        let message = format!("the name `{name}` has characters other than a-z, A-Z, 0-9 and _: rename it");
        return Err(SourceError::at(ident.span(), message));
    }
    if Number::from_name(&name).is_some()
        || ["bool", "f16", "bf16", "char", "str", "isize", "i128", "u128"].contains(&name.as_str())
    {
        return Err(SourceError::at(ident.span(), format!("`{name}` is the name of a type: choose another name")));
    }
    Ok(name)
}

/// Refuses attributes other than doc comments and `allowed`.
pub(super) fn check_attributes(attributes: &[syn::Attribute], of: &str, allowed: &[&str]) -> Result<(), SourceError> {
    for attribute in attributes {
        let is_allowed = allowed.iter().any(|name| attribute.path().is_ident(name));
        if !attribute.path().is_ident("doc") && !is_allowed {
            let message = match allowed {
                [] => format!("{of} has no attributes: remove this one"),
                _ => format!("{of} has only the attribute #[{}]: remove this one", allowed.join("], #[")),
            };
            return Err(SourceError::at(attribute.span(), message));
        }
    }
    Ok(())
}

/// A function that another calls.
pub(super) struct Called {
    pub(super) function: usize,
    pub(super) at: Span,
}

/// Refuses functions that call themselves, directly or by others. Those from `first_constant` on are constants.
fn check_recursion(functions: &[Function], first_constant: usize, calls: &[Vec<Called>]) -> Result<(), SourceError> {
    // 0: not visited; 1: its calls are being visited; 2: it calls only functions that do not recurse.
    let mut states = vec![0; functions.len()];
    for start in 0..functions.len() {
        let mut path = vec![(start, 0)];
        while let Some((function, next)) = path.last_mut() {
            let function = *function;
            states[function] = 1;
            let Some(called) = calls[function].get(*next) else {
                states[function] = 2;
                path.pop();
                continue;
            };
            *next += 1;
            match states[called.function] {
                0 => path.push((called.function, 0)),
                1 => {
                    let name = &functions[called.function].name;
                    let message = match called.function < first_constant {
                        true => {
                            format!(
                                "`{name}` calls itself: a function cannot recur, so write its steps one after another"
                            )
                        }
                        false => format!("`{name}` is defined by itself: write its value"),
                    };
                    return Err(SourceError::at(called.at, message));
                }
                _ => {}
            }
        }
    }
    Ok(())
}
