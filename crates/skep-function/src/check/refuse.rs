//! The messages for parts of Rust that are not part of the language: each says what to write instead.

/// The message for a macro.
const MACRO: &str = "there are no macros: a function only computes, and a fault is a result, such as a bool";

const LOOP: &str = "there are no loops: a function computes one element, and the store runs it on all; write repeated steps one after another";

/// The message for a parameter that is all elements of a value.
const ELEMENTS: &str = "a function takes one element, and the store runs it on all elements of the value";

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

/// Returns the message for a call of a macro.
pub(super) fn macro_call(call: &syn::Macro) -> &'static str {
    match call.path.get_ident().map(ToString::to_string).as_deref() {
        Some("print" | "println" | "eprint" | "eprintln" | "dbg" | "format") => {
            "there are no macros and no output: return the value"
        }
        Some("vec") => "there are no macros: write an array with a fixed length, such as [0; 4]",
        Some("matches") => "there are no macros: write `match … { … => true, _ => false }`",
        _ => MACRO,
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
        syn::Expr::Macro(call) => macro_call(&call.mac),
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

/// Returns the message for a type that nothing has.
pub(super) fn ty(ty: &syn::Type) -> &'static str {
    match ty {
        syn::Type::Reference(_) => {
            "only the element of an update is a reference, `&mut T`: pass a value, and return the new one"
        }
        syn::Type::Tuple(_) => "there are no tuples: write a struct with names",
        syn::Type::Slice(_) => "there are no slices: write an array with a fixed length, such as [f32; 4]",
        syn::Type::Ptr(_) => "there are no pointers: pass a value, and return the new one",
        syn::Type::ImplTrait(_) | syn::Type::TraitObject(_) => "there are no traits: write the type",
        syn::Type::BareFn(_) => "functions cannot be passed on: call a function of this module by its name",
        syn::Type::Infer(_) => "write the type",
        syn::Type::Never(_) => "leave the type out: a function returns a value or nothing",
        _ => "this is no type of a number: write a number, bool, an array or a struct of this module",
    }
}

/// Returns what to write instead of the name of a type that there is not.
pub(super) fn type_name(name: &str) -> &'static str {
    match name {
        "isize" => "write i64",
        "i128" | "u128" => "write i64 or u64: the widest numbers have 8 bytes",
        "f128" => "write f64: the widest numbers have 8 bytes",
        "char" => "write u32",
        "byte" | "uint8_t" => "write u8",
        "int" | "uint" | "long" | "short" => "write i32, u32, i64 or u64",
        "float" => "write f32",
        "double" => "write f64",
        "String" | "str" | "string" => "write an array of u8: a function computes with numbers",
        "Option" | "Result" => "return a bool beside the value, in a struct",
        "Vec" | "VecDeque" | "HashMap" | "BTreeMap" | "HashSet" | "BTreeSet" => {
            "write an array with a fixed length, such as [f32; 4]"
        }
        "Box" | "Rc" | "Arc" | "Cell" | "RefCell" | "Mutex" => "write the type that is in it",
        "Wrapping" | "Saturating" => "write the number: integers wrap, and have `saturating_add`",
        "Duration" | "Instant" | "SystemTime" => "write u64: a function has no clock, the caller gives it the time",
        "Ordering" => "compare with `<`, `==` and `>`",
        "Self" => "write the name of the struct",
        name if name.starts_with("Atomic") => "write the number: a call is atomic",
        name if name.starts_with("NonZero") => "write the number",
        _ => "write a number (u8 … u64, i8 … i64, f16, bf16, f32, f64), bool, an array, or a struct of this module",
    }
}

/// Returns the message for the element of a function if it is a list of elements.
pub(super) fn element(ty: &syn::Type) -> Option<String> {
    let (reference, inner) = match ty {
        syn::Type::Reference(reference) if reference.mutability.is_some() => ("&mut ", &*reference.elem),
        syn::Type::Reference(reference) => ("", &*reference.elem),
        other => ("", other),
    };
    let element = match inner {
        syn::Type::Slice(slice) => &*slice.elem,
        syn::Type::Path(path) => {
            let last = path.path.segments.last().filter(|last| last.ident == "Vec")?;
            let syn::PathArguments::AngleBracketed(arguments) = &last.arguments else { return None };
            let syn::GenericArgument::Type(element) = arguments.args.first()? else { return None };
            element
        }
        _ => return None,
    };
    // Others are wrong too.
    let syn::Type::Path(path) = element else { return Some(format!("{ELEMENTS}: write the type of one")) };
    Some(format!("{ELEMENTS}: write `{reference}{}`", path.path.get_ident()?))
}

/// Returns the message for a call with another number of arguments than it takes.
pub(super) fn argument_count(name: &str, takes: usize, given: usize) -> String {
    format!("`{name}` takes {takes} argument{}, not {given}", if takes == 1 { "" } else { "s" })
}

/// Returns what to do instead of a call of a function that there is not, nor a method of numbers.
pub(super) fn function(path: &[&str]) -> String {
    match *path.last().expect("a path has a name") {
        "Some" | "Ok" | "Err" => {
            "there is no `Option` and no `Result`, so return a bool beside the value, in a struct".to_owned()
        }
        "now" | "elapsed" => "a function has no clock, so the caller gives it the time as an operand".to_owned(),
        "random" | "random_range" | "rand" | "rng" | "thread_rng" => {
            "a function has no random numbers, so the caller gives them as operands".to_owned()
        }
        "swap" | "replace" | "take" if path.len() > 1 => {
            "there are no references, so write a local with `let`".to_owned()
        }
        _ if path.len() > 1 => "call functions of this module by their name alone".to_owned(),
        _ => "define it with `fn`".to_owned(),
    }
}

/// Returns what to write instead of a method of arrays, structs or bools, which have none.
pub(super) fn method(name: &str) -> String {
    let instead = match name {
        "iter" | "iter_mut" | "into_iter" | "map" | "chunks" | "windows" | "for_each" | "fold" | "sum" => {
            "there are no iterators: write the elements one after another, `v[0] + v[1]`"
        }
        "get" | "get_mut" | "first" | "last" => "take an element by its index, `v[0]`",
        "then" | "then_some" => "write `if … { … } else { … }`",
        "clone" | "to_owned" => "values are copied: remove it",
        "cmp" | "partial_cmp" | "eq" => "compare with `<`, `==` and `>`",
        _ => return format!("call a function of this module, `{name}(x, …)`"),
    };
    instead.to_owned()
}
