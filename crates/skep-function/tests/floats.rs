//! Floats that rustc's random functions leave out: `f16` and `bf16` against the crate half, and the functions of libm.

mod run;

use half::{bf16, f16};
use run::{Call, random_records};
use skep_core::function::UserFunction;
use skep_function::compile;
use skep_function::generate::Random;

fn only(source: &str) -> UserFunction {
    compile(source).unwrap_or_else(|error| panic!("{error}\n{source}")).functions.remove(0)
}

/// Calls an update on elements without operands, and returns the elements and the results.
fn update(function: &UserFunction, elements: Vec<u8>) -> Call {
    let count = elements.len() / function.signature.element.size();
    let results = vec![0; count * function.signature.result.as_ref().map_or(0, skep_core::function::Layout::size)];
    let mut call = Call { count, vectors: 0, elements, operands: Vec::new(), results };
    call.run(function, 1).unwrap();
    call
}

/// Returns the bits, or those of the canonical NaN.
fn canonical(value: f32) -> u32 {
    if value.is_nan() { 0x7fc0_0000 } else { value.to_bits() }
}

#[test]
fn every_half_is_read_as_the_crate_half_reads_it() {
    let all: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_le_bytes).collect();
    let read = only("mod m { #[update] fn f(v: &mut f16) -> f32 { *v } }");
    let expected: Vec<u8> =
        (0..=u16::MAX).flat_map(|bits| canonical(f16::from_bits(bits).to_f32()).to_le_bytes()).collect();
    let call = update(&read, all.clone());
    assert!(call.results == expected);
    let written = (0..=u16::MAX).map(|bits| if f16::from_bits(bits).is_nan() { 0x7e00 } else { bits });
    assert!(call.elements == written.flat_map(u16::to_le_bytes).collect::<Vec<u8>>());
    let read = only("mod m { #[update] fn f(v: &mut bf16) -> f32 { *v } }");
    let expected: Vec<u8> =
        (0..=u16::MAX).flat_map(|bits| canonical(bf16::from_bits(bits).to_f32()).to_le_bytes()).collect();
    let call = update(&read, all);
    assert!(call.results == expected);
    let written = (0..=u16::MAX).map(|bits| if bf16::from_bits(bits).is_nan() { 0x7fc0 } else { bits });
    assert!(call.elements == written.flat_map(u16::to_le_bytes).collect::<Vec<u8>>());
}

#[test]
fn floats_are_rounded_to_halves_as_the_crate_half_rounds_them() {
    let round = only(
        "mod m { struct Halves { a: f16, b: bf16 } #[update] fn f(v: &mut f32) -> Halves { Halves { a: *v, b: *v } } }",
    );
    // Every pattern of the upper 20 bits, with the lower bits below, at and above a half.
    let patterns =
        (0..1_u32 << 20).flat_map(|upper| [0, 1, 0x7ff, 0x800, 0x801, 0xfff].map(|lower| upper << 12 | lower));
    let numbers: Vec<f32> = patterns.map(f32::from_bits).collect();
    let call = update(&round, numbers.iter().flat_map(|number| number.to_le_bytes()).collect());
    for (number, halves) in numbers.iter().zip(call.results.as_chunks::<4>().0) {
        let a = if number.is_nan() { 0x7e00 } else { f16::from_f32(*number).to_bits() };
        let b = if number.is_nan() { 0x7fc0 } else { bf16::from_f32(*number).to_bits() };
        assert_eq!(*halves, [a.to_le_bytes(), b.to_le_bytes()].concat()[..], "{number:e} {:x}", number.to_bits());
    }
}

#[test]
fn a_half_is_computed_as_f32_and_rounded_when_it_is_stored() {
    let source = "mod m {
        struct Point { x: f16, y: [bf16; 2] }
        #[update] fn f(p: &mut Point, d: f16) -> f32 {
            let sum = p.x + d * 3.0;
            p.x = sum;
            p.y[0] += sum;
            p.y = [p.y[1], sum];
            sum - p.x
        }
    }";
    let function = only(source);
    let mut random = Random::new(5);
    for _ in 0..2000 {
        let mut call = Call::random(&function, &mut random, 1, 0);
        let half = |bytes: &[u8], index: usize| u16::from_le_bytes([bytes[2 * index], bytes[2 * index + 1]]);
        let (x, y1) = (f16::from_bits(half(&call.elements, 0)), bf16::from_bits(half(&call.elements, 2)));
        let sum = x.to_f32() + f16::from_bits(half(&call.operands[0], 0)).to_f32() * 3.0;
        let rounded = f16::from_f32(sum);
        call.run(&function, 0).unwrap();
        let bits16 = |value: f16| if value.is_nan() { 0x7e00 } else { value.to_bits() };
        let bits_bf = |value: bf16| if value.is_nan() { 0x7fc0 } else { value.to_bits() };
        assert_eq!(half(&call.elements, 0), bits16(rounded));
        assert_eq!(half(&call.elements, 1), bits_bf(y1));
        assert_eq!(half(&call.elements, 2), bits_bf(bf16::from_f32(sum)));
        assert_eq!(call.results, canonical(sum - rounded.to_f32()).to_le_bytes());
    }
}

#[test]
fn functions_of_libm_have_its_results() {
    type Single = fn(f32) -> f32;
    type Double = fn(f64) -> f64;
    let functions: [(&str, Single, Double); 6] = [
        ("exp", libm::expf, libm::exp),
        ("ln", libm::logf, libm::log),
        ("sin", libm::sinf, libm::sin),
        ("cos", libm::cosf, libm::cos),
        ("tanh", libm::tanhf, libm::tanh),
        ("sqrt", libm::sqrtf, libm::sqrt),
    ];
    let mut random = Random::new(9);
    for (name, single, double) in functions {
        let function = only(&format!("mod m {{ #[update] fn f(v: f32) -> f32 {{ v.{name}() }} }}"));
        let elements = random_records(&mut random, &function.signature.element, 5000);
        let numbers = elements.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes));
        let expected: Vec<u8> = numbers.flat_map(|number| canonical(single(number)).to_le_bytes()).collect();
        assert!(update(&function, elements).elements == expected, "{name}");
        let function = only(&format!("mod m {{ #[update] fn f(v: f64) -> f64 {{ v.{name}() }} }}"));
        let elements = random_records(&mut random, &function.signature.element, 5000);
        let numbers = elements.as_chunks().0.iter().map(|bytes| f64::from_le_bytes(*bytes));
        let bits = |value: f64| if value.is_nan() { 0x7ff8_0000_0000_0000 } else { value.to_bits() };
        let expected: Vec<u8> = numbers.flat_map(|number| bits(double(number)).to_le_bytes()).collect();
        assert!(update(&function, elements).elements == expected, "{name}");
    }
}

#[test]
fn functions_of_libm_with_two_operands_have_its_results() {
    let mut random = Random::new(10);
    for (body, expected) in [("p.x.powf(p.y)", libm::powf as fn(f32, f32) -> f32), ("p.x % p.y", libm::fmodf)] {
        let source = format!("mod m {{ struct P {{ x: f32, y: f32 }} #[update] fn f(p: &mut P) -> f32 {{ {body} }} }}");
        let function = only(&source);
        let elements = random_records(&mut random, &function.signature.element, 5000);
        let pairs = elements.as_chunks::<8>().0.iter().map(|bytes| {
            let number = |at: usize| f32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
            canonical(expected(number(0), number(4))).to_le_bytes()
        });
        let results: Vec<u8> = pairs.flatten().collect();
        assert!(update(&function, elements).results == results, "{body}");
    }
}

#[test]
fn a_nan_is_stored_as_the_canonical_one() {
    for (number, nan) in [("f32", 0x7fc0_0000_u64), ("f64", 0x7ff8_0000_0000_0000)] {
        let function = only(&format!("mod m {{ #[update] fn f(v: {number}) -> {number} {{ -(v - v) }} }}"));
        let width = function.signature.element.size();
        for count in [1, 40] {
            let infinity =
                if width == 4 { f32::INFINITY.to_le_bytes().to_vec() } else { f64::INFINITY.to_le_bytes().to_vec() };
            let call = update(&function, infinity.repeat(count));
            assert_eq!(call.elements, nan.to_le_bytes()[..width].repeat(count));
        }
    }
}

#[test]
fn an_associative_reduce_of_floats_has_the_exact_results_of_the_one_in_order() {
    let source = "mod m {
        #[reduce] fn ordered(v: f32, s: f32, c: f32) -> f32 { s + v * c }
        #[reduce(associative)] fn free(v: f32, s: f32, c: f32) -> f32 { s + v * c }
    }";
    let functions = compile(source).unwrap().functions;
    let mut random = Random::new(12);
    for method in ["min", "max"] {
        let ordered = only(&format!("mod m {{ #[reduce] fn f(v: f64, s: f64) -> f64 {{ s.{method}(v) }} }}"));
        let free = only(&format!("mod m {{ #[reduce(associative)] fn f(v: f64, s: f64) -> f64 {{ v.{method}(s) }} }}"));
        for count in 0..100 {
            let call = Call::random(&ordered, &mut random, count, 0);
            let mut calls = [call.clone(), call];
            calls[0].run(&ordered, 1).unwrap();
            calls[1].run(&free, 2).unwrap();
            let [one, two] = calls.map(|call| f64::from_le_bytes(call.results.try_into().unwrap()));
            // Only the sign of a zero depends on the order.
            assert!(one == two || one.is_nan() && two.is_nan(), "{count} elements: {one}, {two}");
        }
    }
    for count in 0..200_usize {
        let numbers: Vec<u8> = (0..count).flat_map(|index| (index as f32 + 0.25).to_le_bytes()).collect();
        let one = 0.5_f32.to_le_bytes().to_vec();
        for (vectors, constants) in [(0, one.clone()), (1, one.repeat(count))] {
            let sums = [0, 1].map(|index: usize| {
                let mut call = Call {
                    count,
                    vectors,
                    elements: numbers.clone(),
                    operands: vec![constants.clone()],
                    results: 7.0_f32.to_le_bytes().to_vec(),
                };
                call.run(&functions[index], 3).unwrap();
                f32::from_le_bytes(call.results.try_into().unwrap())
            });
            // These sums are exact, so the order makes no difference.
            assert_eq!(sums[0], sums[1], "{count} elements");
        }
    }
}
