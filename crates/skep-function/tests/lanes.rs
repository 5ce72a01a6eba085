//! Code in lanes, code for whole elements, and mixtures of operands have the same results for all lengths
//! and addresses, and write nothing outside.

mod run;
mod seeds;

use run::{Call, random_records};
use skep_core::function::{FunctionKind, UserFunction};
use skep_function::compile;
use skep_function::generate::{Generated, Random};

/// Functions whose forms in lanes differ from each other: every operator and method, of every width.
fn written() -> String {
    let mut text = String::from("mod m {\n");
    let mut count = 0;
    let mut add = |kind: &str, signature: String, body: String| {
        text += &format!("#[{kind}] fn g{count}({signature} {{ {body} }}\n");
        count += 1;
    };
    for number in ["u8", "u16", "u32", "u64", "i8", "i16", "i32", "i64"] {
        let operators =
            ["v + d", "v - d", "v * d", "v & d", "v | d", "v ^ d", "!v", "v << 3", "v >> 5", "v.min(d)", "v.max(d)"];
        let methods = [
            "v.saturating_add(d)",
            "v.saturating_sub(d)",
            "v.rotate_left(3)",
            "v.clamp(3, 100)",
            "if v == d { 1 } else { d }",
        ];
        for body in operators.into_iter().chain(methods) {
            add("update", format!("v: {number}, d: {number}) -> {number}"), body.to_owned());
        }
        for op in ["<", "<=", ">", ">=", "==", "!="] {
            add("filter", format!("v: {number}, d: {number}) -> bool"), format!("v {op} d"));
        }
        for op in ["+", "*", "&", "|", "^"] {
            add("reduce", format!("v: {number}, s: {number}, d: {number}) -> {number}"), format!("s {op} (v ^ d)"));
        }
        add("reduce", format!("v: {number}, s: {number}) -> {number}"), "s.min(v)".to_owned());
        add("reduce", format!("v: {number}, s: {number}) -> {number}"), "s.max(v)".to_owned());
    }
    for number in ["f32", "f64"] {
        let operators = [
            "v + d",
            "v - d",
            "v * d",
            "v / d",
            "-v",
            "v.min(d)",
            "v.max(d)",
            "v.abs()",
            "v.sqrt()",
            "v.mul_add(d, v)",
        ];
        let methods = ["v.floor()", "v.ceil()", "v.trunc()", "v.round()", "v.round_ties_even()", "v.clamp(-2.0, 3.0)"];
        for body in operators.into_iter().chain(methods) {
            add("update", format!("v: {number}, d: {number}) -> {number}"), body.to_owned());
        }
        for body in ["v < d", "v != d", "v.is_nan()", "v.is_finite() && d > 1.0", "v.to_bits() > d.to_bits()"] {
            add("filter", format!("v: {number}, d: {number}) -> bool"), body.to_owned());
        }
        add(
            "update",
            format!("v: &mut {number}, d: {number}) -> {number}"),
            "let before = *v; if d > 1.0 { return d; } *v = d; if before > d { *v = 0.0; } before".to_owned(),
        );
    }
    text += "}\n";
    text
}

/// Returns what the function gives when it is called for one element after another.
fn one_by_one(function: &UserFunction, call: &Call) -> Result<Call, ()> {
    let mut whole = call.clone();
    let element_size = function.signature.element.size();
    let result_size = call.result_size(function);
    for index in 0..call.count {
        let mut one =
            Call { count: 1, elements: call.elements[element_size * index..][..element_size].to_vec(), ..call.clone() };
        for (operand, (layout, bytes)) in function.signature.operands.iter().zip(&call.operands).enumerate() {
            if call.is_vector(operand) {
                let size = layout.layout.size();
                one.operands[operand] = bytes[size * index..][..size].to_vec();
            }
        }
        let range = if function.kind() == FunctionKind::Reduce {
            0..result_size
        } else {
            result_size * index..result_size * (index + 1)
        };
        one.results = whole.results[range.clone()].to_vec();
        one.run(function, 0).map_err(|_| ())?;
        whole.elements[element_size * index..][..element_size].copy_from_slice(&one.elements);
        whole.results[range].copy_from_slice(&one.results);
    }
    Ok(whole)
}

fn check(function: &UserFunction, random: &mut Random, lengths: impl Iterator<Item = usize>, source: &str) {
    for count in lengths {
        for vectors in [0, u8::MAX, random.bits() as u8] {
            let call = Call::random(function, random, count, vectors);
            let expected = one_by_one(function, &call);
            let mut whole = call.clone();
            let offset = random.below(16);
            let ran = whole.run(function, offset).map_err(|_| ());
            assert_eq!(
                ran.map(|()| whole),
                expected,
                "{}, {count} elements at {offset}, vectors {vectors:b}\n{source}",
                function.name
            );
        }
    }
}

#[test]
fn every_operator_has_the_same_results_in_lanes() {
    let mut random = Random::new(7);
    let source = written();
    // A module has at most 64 functions.
    let lines: Vec<&str> = source.lines().filter(|line| line.starts_with('#')).collect();
    for part in lines.chunks(64) {
        let source = format!("mod m {{ {} }}", part.join("\n"));
        for function in compile(&source).unwrap_or_else(|error| panic!("{error}\n{source}")).functions {
            check(&function, &mut random, (0..=70).step_by(3).chain([70, 256]), &source);
        }
    }
}

#[test]
fn random_functions_have_the_same_results_in_lanes() {
    for seed in seeds::seeds(&[1, 2]) {
        println!("SKEP_SEED={seed}");
        let mut random = Random::new(seed);
        for _ in 0..40 {
            let generated = Generated::new(random.bits(), "m", 8);
            let source = generated.for_skep();
            for function in compile(&source).unwrap_or_else(|error| panic!("{error}\n{source}")).functions {
                check(&function, &mut random, 0..=70, &source);
            }
        }
    }
}

#[test]
fn random_records_are_random() {
    let function = &compile("mod m { #[update] fn f(v: u64) -> u64 { v } }").unwrap().functions[0];
    let records = random_records(&mut Random::new(1), &function.signature.element, 100);
    assert!(records.iter().collect::<std::collections::BTreeSet<_>>().len() > 20);
}
