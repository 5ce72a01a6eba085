//! The messages for parts of Rust that are not part of the language: each says what to write instead.

/// The message for a call of a macro.
pub(super) const MACRO: &str = "there are no macros: a function only computes, and a fault is a result, such as a bool";

const LOOP: &str = "there are no loops: a function computes one element, and the store runs it on all; write repeated steps one after another";

/// Returns the message for an item that a module may not have.
pub(super) fn item(item: &syn::Item) -> &'static str {
    match item {
        syn::Item::Enum(_) => "there are no enums: write a number, and `const` items for its values",
        syn::Item::Use(_) => "nothing can be imported: remove `use`, the methods of numbers are there without it",
        syn::Item::Mod(_) => "a module has no modules inside: move the functions out, or load them as another module",
        syn::Item::Static(_) => {
            "functions keep no state except the element: write `const`, or put the state into the element"
        }
        syn::Item::Impl(_) | syn::Item::Trait(_) | syn::Item::TraitAlias(_) => {
            "there are no methods and traits: write a function that takes the struct"
        }
        syn::Item::Type(_) => "there are no names for types: write the type, or a struct",
        syn::Item::Macro(_) => MACRO,
        syn::Item::Union(_) => "there are no unions: write a struct, and take bits with `to_bits`",
        syn::Item::ExternCrate(_) | syn::Item::ForeignMod(_) => {
            "nothing can be imported: write the function in this module"
        }
        _ => "a module has functions, structs and constants: remove this",
    }
}

/// Returns the message for an expression that a function may not have.
pub(super) fn expr(expr: &syn::Expr) -> &'static str {
    match expr {
        syn::Expr::While(_) | syn::Expr::ForLoop(_) | syn::Expr::Loop(_) => LOOP,
        syn::Expr::Break(_) | syn::Expr::Continue(_) => LOOP,
        syn::Expr::Block(_) => "a block has no label: leave a function with `return`",
        syn::Expr::Closure(_) => "there are no closures: write a function of this module, and call it",
        syn::Expr::Reference(_) => "there are no references: pass the value, and return the new one",
        syn::Expr::Macro(_) => MACRO,
        syn::Expr::Tuple(_) => "there are no tuples: write a struct with names",
        syn::Expr::Let(_) => "write a comparison or `match`: there are no patterns in conditions",
        syn::Expr::Range(_) => "a range is only a pattern of `match`: write two comparisons",
        syn::Expr::Unsafe(_) => "nothing here is unsafe: remove `unsafe`",
        syn::Expr::Async(_) | syn::Expr::Await(_) | syn::Expr::Yield(_) => {
            "a function cannot wait: it computes and returns"
        }
        syn::Expr::Try(_) | syn::Expr::TryBlock(_) => "there is no `?`: return a bool, and compare",
        syn::Expr::Const(_) => "write a `const` item in the module",
        syn::Expr::Infer(_) => "write the value",
        _ => "this is not part of the language: see docs/functions.md for what is",
    }
}
