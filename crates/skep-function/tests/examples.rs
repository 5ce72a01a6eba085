//! The examples of docs/functions.md: they compile here and with rustc, their stated results hold, and those that are
//! refused have the stated message.

use std::process::Command;

use skep_core::function::{FunctionKind, Layout, Operands, UserCode, UserFunction};
use skep_function::compile;

const PAGE: &str = include_str!("../../../docs/functions.md");

/// A fenced block of the page.
struct Example {
    /// What follows the three quotes: `rust`, `rust,skep` for one that rustc does not know, `rust,refused`.
    mark: String,
    source: String,
    /// The comments at the end.
    claims: Vec<String>,
}

fn examples() -> Vec<Example> {
    let blocks = PAGE.split("```").skip(1).step_by(2);
    let rust = blocks.filter(|block| block.starts_with("rust"));
    rust.map(|block| {
        let (mark, text) = block.split_once('\n').expect("a block has lines");
        let (claims, source): (Vec<&str>, Vec<&str>) = text.lines().partition(|line| line.starts_with("// "));
        let claims = claims.into_iter().map(|claim| claim.trim_start_matches("// ").to_owned()).collect();
        Example { mark: mark.to_owned(), source: source.join("\n"), claims }
    })
    .collect()
}

#[test]
fn the_stated_results_hold() {
    let mut count = 0;
    for example in examples().iter().filter(|example| example.mark != "rust,refused") {
        let module = compile(&example.source).unwrap_or_else(|error| panic!("{error}\n{}", example.source));
        assert!(!example.claims.is_empty(), "an example states a result:\n{}", example.source);
        for claim in &example.claims {
            check_claim(&module.functions, claim);
            count += 1;
        }
        for function in &module.functions {
            let name = function.name.split_once('.').expect("a name has a module").1;
            let is_called = example.claims.iter().any(|claim| claim.starts_with(&format!("{name}(")));
            assert!(is_called, "no result of `{name}` is stated");
        }
    }
    assert!(count > 25, "{count} results");
}

#[test]
fn refused_examples_have_the_stated_message() {
    let refused: Vec<Example> = examples().into_iter().filter(|example| example.mark == "rust,refused").collect();
    assert!(!refused.is_empty());
    for example in refused {
        let error = compile(&example.source).map(|module| module.name).expect_err(&example.source);
        assert_eq!([error.to_string()], example.claims[..], "{}", example.source);
    }
}

#[test]
fn the_table_of_errors_has_the_messages() {
    let (_, table) = PAGE.split_once("| source | message |\n|---|---|\n").expect("the page has the table");
    let mut count = 0;
    for row in table.lines().take_while(|line| line.starts_with('|')) {
        let (item, message) = row.trim_matches(['|', ' ']).split_once("` | ").unwrap_or_else(|| panic!("{row}"));
        let source = format!("mod m {{ {} }}", item.trim_start_matches('`'));
        let error = compile(&source).map(|module| module.name).expect_err(&source);
        assert_eq!(error.message, message, "{source}");
        count += 1;
    }
    assert!(count > 30, "{count} rows");
}

#[test]
fn rustc_compiles_the_examples() {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("examples");
    std::fs::create_dir_all(&folder).unwrap();
    let mut text = String::from("#![allow(dead_code)]\n");
    for example in examples().iter().filter(|example| example.mark == "rust") {
        text += &example.source;
    }
    for mark in ["#[update]", "#[reduce]", "#[reduce(associative)]", "#[filter]"] {
        text = text.replace(mark, "");
    }
    std::fs::write(folder.join("examples.rs"), text).unwrap();
    let built = Command::new(std::env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned()))
        .args([
            "--edition",
            "2024",
            "--crate-type",
            "lib",
            "--emit",
            "metadata",
            "-A",
            "arithmetic_overflow",
            "--out-dir",
        ])
        .args([&folder, &folder.join("examples.rs")])
        .output()
        .unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
}

/// Checks `f(element, operands…) = element, result`, or `f(…) fails: message`.
fn check_claim(functions: &[UserFunction], claim: &str) {
    let (name, rest) = claim.split_once('(').unwrap_or_else(|| panic!("no call: {claim}"));
    let (arguments, outcome) = rest.rsplit_once(") ").unwrap_or_else(|| panic!("no result: {claim}"));
    let function = functions.iter().find(|function| function.name.ends_with(&format!(".{name}")));
    let function = function.unwrap_or_else(|| panic!("no such function: {claim}"));
    let signature = &function.signature;
    let mut arguments = parts(arguments).into_iter();
    let mut elements = encode(&signature.element, &arguments.next().expect("an element"));
    let count = elements.len() / signature.element.size();
    let mut results = match (function.kind(), &signature.result) {
        (FunctionKind::Reduce, Some(sigma)) => encode(sigma, &arguments.next().expect("Σ")),
        (FunctionKind::Filter, _) => vec![0; count],
        (_, result) => vec![0; count * result.as_ref().map_or(0, Layout::size)],
    };
    let operands: Vec<Vec<u8>> =
        signature.operands.iter().zip(&mut arguments).map(|(operand, text)| encode(&operand.layout, &text)).collect();
    assert!(operands.len() == signature.operands.len() && arguments.next().is_none(), "operands: {claim}");
    let operands = Operands { signature, bytes: &operands.concat(), vectors: 0, first: 0 };
    let ran = match &function.code {
        UserCode::Update(code) => code(&mut elements, &operands, &mut results),
        UserCode::Reduce(code) | UserCode::Filter(code) => code(&elements, &operands, &mut results),
    };
    if let Some(message) = outcome.strip_prefix("fails: ") {
        assert_eq!(ran.map_err(|error| error.to_string()), Err(message.to_owned()), "{claim}");
        return;
    }
    assert_eq!(ran, Ok(()), "{claim}");
    let outcome = parts(outcome.strip_prefix("= ").unwrap_or_else(|| panic!("no result: {claim}")));
    let expected: Vec<u8> = match (function.kind(), &signature.result) {
        (FunctionKind::Update, None) => encode(&signature.element, &outcome[0]),
        (FunctionKind::Update, Some(result)) => {
            [encode(&signature.element, &outcome[0]), encode(result, &outcome[1])].concat()
        }
        (FunctionKind::Reduce, Some(sigma)) => encode(sigma, &outcome[0]),
        _ => encode(&Layout::number(skep_core::function::Scalar::Bool), &outcome[0]),
    };
    let found = if function.kind() == FunctionKind::Update { [elements, results].concat() } else { results };
    assert_eq!(found, expected, "{claim}");
}

/// Divides a list at the commas that are in no brackets.
fn parts(text: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut depth = 0;
    for character in text.chars() {
        match character {
            '[' | '{' => depth += 1,
            ']' | '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(String::new());
                continue;
            }
            _ => {}
        }
        parts.last_mut().expect("a part").push(character);
    }
    parts
}

/// Returns the bytes of one record or several.
fn encode(layout: &Layout, text: &str) -> Vec<u8> {
    let numbers = text.split([',', '[', ']', '{', '}']).map(str::trim).filter(|number| !number.is_empty());
    let fields = layout.fields().iter().cycle();
    let mut bytes = Vec::new();
    for (number, field) in numbers.zip(fields) {
        field.scalar.parse(number, &mut bytes).unwrap_or_else(|_| panic!("{number} is no {}", field.scalar.name()));
    }
    bytes
}
