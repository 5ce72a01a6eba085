//! Compares the examples of docs/functions.md with rustc.
//!
//! An example becomes a module for rustc: its marks are removed, its structs are copied, and the wrappers of its functions are
//! written into it, so that they see its private items.

use skep_core::function::FunctionKind;
use skep_function::compile;
use skep_function::generate::{GeneratedFunction, Random};
use syn::spanned::Spanned;

use super::{Compared, Counts, compare_program, implement_wire, random_call, wrapper};

const PAGE: &str = include_str!("../../../../docs/functions.md");

/// Functions whose results differ from Rust's for some operands, as the page says: division by zero and -1, bounds in the
/// wrong order, and libm.
const DIFFERENT: [&str; 3] = ["divide", "within", "squash"];

/// Cases of an example.
const CASES: usize = 200;

/// Compares all examples that rustc knows.
pub(crate) fn compare_examples(seed: u64) -> Counts {
    let mut random = Random::new(seed);
    let mut program = include_str!("prelude.txt").to_owned();
    let (mut compared, mut runs) = (Vec::new(), Vec::new());
    for block in PAGE.split("```").skip(1).step_by(2) {
        let Some(block) = block.strip_prefix("rust\n") else { continue };
        // Without the results that it states.
        let source: String =
            block.lines().filter(|line| !line.starts_with("// ")).map(|line| format!("{line}\n")).collect();
        let source = source.as_str();
        let module: syn::ItemMod = syn::parse_str(source).expect("an example is a module");
        let mut text =
            source.replace("#[derive(Clone, Copy)]", "").replace("struct ", "#[derive(Clone, Copy)] struct ");
        for mark in ["#[update]", "#[reduce]", "#[reduce(associative)]", "#[filter]"] {
            text = text.replace(mark, "");
        }
        for method in ["min", "max", "to_bits"] {
            text = text.replace(&format!(".{method}("), &format!(".skep_{method}("));
        }
        let mut added = String::from("use super::*;\n");
        let mut functions = compile(source).expect("an example compiles").functions.into_iter();
        for item in &module.content.as_ref().expect("a module has content").1 {
            match item {
                syn::Item::Struct(item) => {
                    let fields = item.fields.iter().filter_map(|field| field.ident.as_ref());
                    let fields: Vec<String> = fields.map(ToString::to_string).collect();
                    added += &implement_wire(&item.ident.to_string(), &fields);
                }
                syn::Item::Fn(item) if item.attrs.iter().any(|attribute| !attribute.path().is_ident("doc")) => {
                    let function = functions.next().expect("a function is compiled");
                    let described = describe(item, function.kind());
                    if DIFFERENT.contains(&described.name.as_str()) {
                        continue;
                    }
                    added += "pub ";
                    added += &wrapper(compared.len(), "self", &described);
                    runs.push(format!("{}::run_{}", module.ident, compared.len()));
                    let cases = (0..CASES).map(|_| random_call(&mut random, &function)).collect();
                    compared.push(Compared { function, source: source.to_owned(), cases });
                }
                _ => {}
            }
        }
        let end = text.rfind("}\n").expect("a module ends with a brace");
        text.insert_str(end, &added);
        program += &text;
    }
    let mut counts = Counts::default();
    compare_program(seed, program, &runs, &compared, &mut counts);
    counts
}

/// Returns what a wrapper needs to know of a function.
fn describe(item: &syn::ItemFn, kind: FunctionKind) -> GeneratedFunction {
    let text = |ty: &syn::Type| ty.span().source_text().expect("the text of a type");
    let mut types = item.sig.inputs.iter().map(|input| match input {
        syn::FnArg::Typed(typed) => &*typed.ty,
        syn::FnArg::Receiver(_) => panic!("a function of an example has no self"),
    });
    let element = types.next().expect("an element");
    let (is_by_reference, element) = match element {
        syn::Type::Reference(reference) => (true, &*reference.elem),
        other => (false, other),
    };
    GeneratedFunction {
        name: item.sig.ident.to_string(),
        kind,
        is_by_reference,
        element: text(element),
        others: types.map(text).collect(),
        has_result: !matches!(item.sig.output, syn::ReturnType::Default),
    }
}
