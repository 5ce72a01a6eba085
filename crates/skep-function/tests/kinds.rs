//! One function of each kind, what their signatures say, and how they fail.

use skep_core::function::{Layout, Operands, UserCode, UserFunction};
use skep_core::operation::OperationError;
use skep_function::{Module, compile};

fn module(source: &str) -> Module {
    match compile(source) {
        Ok(module) => module,
        Err(error) => panic!("{error}\n{source}"),
    }
}

fn only(source: &str) -> UserFunction {
    module(source).functions.remove(0)
}

fn update(function: &UserFunction, value: &mut [u8], operands: &[u8]) -> Result<Vec<u8>, OperationError> {
    let UserCode::Update(code) = &function.code else { panic!("no update") };
    let size = function.signature.result.as_ref().map_or(0, Layout::size);
    let mut results = vec![0; size * (value.len() / function.signature.element.size())];
    code(value, &for_all(function, operands), &mut results).map(|()| results)
}

/// Returns operands that are the same for all elements.
fn for_all<'a>(function: &'a UserFunction, bytes: &'a [u8]) -> Operands<'a> {
    Operands { signature: &function.signature, bytes, vectors: 0, first: 0 }
}

#[test]
fn an_update_decays_a_vector() {
    let decay = only("mod m { #[update] fn decay(v: f32, d: f32) -> f32 { v * 0.99 + d } }");
    assert_eq!(decay.name, "m.decay");
    for count in 0..70 {
        let numbers: Vec<f32> = (0..count).map(|index| index as f32 * 1.5).collect();
        let mut value: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        update(&decay, &mut value, &2.5_f32.to_le_bytes()).unwrap();
        let expected: Vec<u8> = numbers.iter().flat_map(|number| (number * 0.99 + 2.5).to_le_bytes()).collect();
        assert_eq!(value, expected, "{count} elements");
    }
}

const BUCKET: &str = "mod limits {
    /// A token bucket.
    struct Bucket { tokens: f32, at: u64 }
    #[update] fn take(b: &mut Bucket, now: u64, cost: f32, rate: f32, burst: f32) -> bool {
        let t = burst.min(b.tokens + rate * (now.saturating_sub(b.at)) as f32);
        b.at = b.at.max(now);
        if t < cost { b.tokens = t; return false; }
        b.tokens = t - cost;
        true
    }
}";

#[test]
fn a_record_is_changed_and_returns_a_result() {
    let module = module(BUCKET);
    assert_eq!(module.records[0].0, "limits.Bucket");
    assert_eq!(module.records[0].1.size(), 12);
    let take = &module.functions[0];
    let mut bucket = [&1.5_f32.to_le_bytes()[..], &100_u64.to_le_bytes()].concat();
    let floats = [1.0_f32, 0.25, 10.0].map(f32::to_le_bytes);
    let now = 102_u64.to_le_bytes();
    let operands = [&now[..], &floats.concat()].concat();
    assert_eq!(update(take, &mut bucket, &operands), Ok(vec![1]));
    assert_eq!(bucket, [&1.0_f32.to_le_bytes()[..], &102_u64.to_le_bytes()].concat());
    assert_eq!(update(take, &mut bucket, &operands), Ok(vec![1]));
    assert_eq!(update(take, &mut bucket, &operands), Ok(vec![0]));
    assert!(!take.signature.can_fail);
    assert!((10..80).contains(&take.signature.work), "{}", take.signature.work);
}

#[test]
fn a_reduce_has_its_own_sigma_and_a_filter_selects() {
    let module = module(
        "mod m {
            #[reduce] fn mean_sum(v: u8, sum: u64) -> u64 { sum + v as u64 }
            #[reduce] fn sum(v: i32, sum: i32) -> i32 { sum + v }
            #[reduce(associative)] fn dot(v: f32, sum: f32, c: f32) -> f32 { sum + v * c }
            #[filter] fn hot(v: f32, limit: f32) -> bool { v > limit }
        }",
    );
    let reduce = |index: usize, value: &[u8], operands: &[u8], sigma: &mut [u8]| {
        let UserCode::Reduce(code) = &module.functions[index].code else { panic!("no reduce") };
        code(value, &for_all(&module.functions[index], operands), sigma).unwrap();
    };
    let mut sigma = 1_u64.to_le_bytes();
    reduce(0, &[200; 100], &[], &mut sigma);
    assert_eq!(sigma, 20_001_u64.to_le_bytes());
    let value: Vec<u8> = (0..77_i32).flat_map(i32::to_le_bytes).collect();
    let mut sigma = 5_i32.to_le_bytes();
    reduce(1, &value, &[], &mut sigma);
    assert_eq!(sigma, (77 * 38 + 5_i32).to_le_bytes());
    let value: Vec<u8> = (0..77_u8).flat_map(|number| f32::from(number).to_le_bytes()).collect();
    let mut sigma = 0.5_f32.to_le_bytes();
    reduce(2, &value, &2.0_f32.to_le_bytes(), &mut sigma);
    assert_eq!(sigma, (77.0 * 38.0 * 2.0 + 0.5_f32).to_le_bytes());
    let UserCode::Filter(code) = &module.functions[3].code else { panic!("no filter") };
    let mut flags = vec![7; 77];
    code(&value, &for_all(&module.functions[3], &40.0_f32.to_le_bytes()), &mut flags).unwrap();
    assert_eq!(flags, (0..77).map(|number| u8::from(number > 40)).collect::<Vec<u8>>());
}

#[test]
fn a_division_by_zero_fails() {
    let divide = only("mod m { #[update] fn divide(v: i32, by: i32) -> i32 { v / by } }");
    assert!(divide.signature.can_fail);
    let mut value = 7_i32.to_le_bytes();
    assert_eq!(update(&divide, &mut value, &0_i32.to_le_bytes()), Err(OperationError::DivisionByZero));
    update(&divide, &mut value, &2_i32.to_le_bytes()).unwrap();
    assert_eq!(value, 3_i32.to_le_bytes());
    let mut value = i32::MIN.to_le_bytes();
    update(&divide, &mut value, &(-1_i32).to_le_bytes()).unwrap();
    assert_eq!(value, i32::MIN.to_le_bytes());
    let half = only("mod m { #[update] fn half(v: i32) -> i32 { v / 2 } }");
    assert!(!half.signature.can_fail);
}

#[test]
fn an_index_outside_fails() {
    let pick =
        only("mod m { #[update] fn pick(v: &mut [u16; 5], i: u8) -> u16 { v[i as usize] += 1; v[i as usize] } }");
    assert!(pick.signature.can_fail);
    let mut value: Vec<u8> = (10..15_u16).flat_map(u16::to_le_bytes).collect();
    for index in 0..5_u8 {
        assert_eq!(update(&pick, &mut value, &[index]), Ok(u16::from(index + 11).to_le_bytes().to_vec()));
    }
    assert_eq!(update(&pick, &mut value, &[5]), Err(OperationError::IndexOutOfRange));
}

#[test]
fn an_error_has_a_position() {
    let error = compile("mod m {\n    #[update] fn f(v: f32) -> f32 {\n        v + 1\n    }\n}").unwrap_err();
    assert_eq!(
        error.to_string(),
        "line 3, column 13: expected f32, found an integer: write the literal with a point, such as 1.0"
    );
}

#[test]
fn a_signature_says_what_can_fail() {
    let can_fail = |body: &str| {
        let source = format!(
            "mod m {{ const TEN: i32 = 10; #[update] fn f(v: &mut [i32; 4], d: i32, i: u8) -> i32 {{ {body} }} }}"
        );
        only(&source).signature.can_fail
    };
    let cannot = [
        "v[0] / 3",
        "v[1] % -7",
        "v[2] / TEN",
        "d.wrapping_div(7)",
        "d.rem_euclid(5)",
        "d << i",
        "d.saturating_mul(d)",
    ];
    for body in cannot.into_iter().chain([
        "{ let last = 3; v[last] }",
        "v[TEN as usize - 7]",
        "((d as f32) / (i as f32)) as i32",
    ]) {
        // The compiler does not compute what is known only from several literals.
        assert_eq!(can_fail(body), body.contains("- 7"), "{body}");
    }
    for body in [
        "v[0] / d",
        "v[0] % (d | 1)",
        "v[i as usize]",
        "d.div_euclid(d)",
        "1 / 0",
        "v[0] / (2 - 2)",
        "if d > 0 { 1 / d } else { 0 }",
    ] {
        assert!(can_fail(body), "{body}");
    }
}

#[test]
fn work_counts_helpers_and_both_sides_of_branches() {
    let work = |body: &str| {
        only(&format!("mod m {{ fn h(x: f32) -> f32 {{ x * x + 1.0 }} #[update] fn f(v: f32) -> f32 {{ {body} }} }}"))
            .signature
            .work
    };
    assert!(work("v") < work("v + 1.0"));
    assert!(work("h(v)") < work("h(h(v))"));
    assert!(work("if v > 0.0 { h(v) } else { v }") < work("if v > 0.0 { h(v) } else { h(h(v)) }"));
    assert!(work("v.exp()") >= 64 && work("v.powf(2.0)") >= 128);
    assert!(work("v") < 20);
}

#[test]
fn the_description_of_a_module_is_that_of_its_code() {
    let description = skep_function::check(BUCKET).unwrap();
    let module = module(BUCKET);
    assert_eq!((description.name, description.records), (module.name, module.records));
    let functions = module.functions.iter().map(|function| (&function.name, &function.signature));
    assert!(functions.eq(description.functions.iter().map(|function| (&function.name, &function.signature))));
    let names: Vec<&str> =
        description.functions[0].signature.element.fields().iter().map(|field| field.name.as_str()).collect();
    assert_eq!(names, ["tokens", "at"]);
}

#[test]
fn types_are_written_as_in_the_source() {
    let module = module(
        "mod m {
            struct Point { x: f32, y: f32 }
            struct Line { ends: [Point; 2], is_dashed: bool, tags: [[u8; 3]; 2] }
            #[update] fn norm(v: [f32; 16], by: [Point; 2], half: f16) -> [f32; 16] { v }
            #[update] fn at(v: &mut Line, to: Point) -> Point { to }
            #[reduce] fn far(v: Point, most: Point) -> Point { most }
        }",
    );
    let described =
        module.functions.iter().map(|function| function.signature.describe(function.kind(), &function.name));
    let line = "{ends: [Point {x: f32, y: f32}; 2], is_dashed: bool, tags: [[u8; 3]; 2]}";
    let expected = [
        "update m.norm([f32; 16], by: [Point {x: f32, y: f32}; 2], half: f16)",
        &format!("update m.at(Line {line}, to: Point {{x: f32, y: f32}}) -> Point {{x: f32, y: f32}}"),
        "reduce m.far(Point {x: f32, y: f32}, Σ: Point {x: f32, y: f32})",
    ];
    assert_eq!(described.collect::<Vec<_>>(), expected);
    let records = module.records.iter().map(|(name, layout)| format!("{name} {layout}"));
    assert_eq!(records.collect::<Vec<_>>(), ["m.Point {x: f32, y: f32}", &format!("m.Line {line}")]);
}

#[test]
fn parts_of_records_have_names() {
    let source = "mod m { struct P { x: f32, y: f32 } struct L { ends: [P; 2], weight: u8 } #[update] fn f(v: &mut L) { v.weight = 1; } }";
    let function = only(source);
    let names: Vec<&str> = function.signature.element.fields().iter().map(|field| field.name.as_str()).collect();
    assert_eq!(names, ["ends[0].x", "ends[0].y", "ends[1].x", "ends[1].y", "weight"]);
}

#[test]
#[should_panic(expected = "an operand is too short")]
fn code_never_reads_outside_an_operand() {
    let add = only("mod m { #[update] fn add(v: u32, d: u32) -> u32 { v + d } }");
    let UserCode::Update(code) = &add.code else { panic!("no update") };
    let operands = Operands { signature: &add.signature, bytes: &[0; 39], vectors: 1, first: 0 };
    let _ = code(&mut [0; 40], &operands, &mut []);
}

#[test]
#[should_panic(expected = "an operand is too short")]
fn code_never_reads_after_the_operands_of_the_last_element() {
    let add = only("mod m { #[update] fn add(v: u32, d: u32, e: u8) -> u32 { v + d + e as u32 } }");
    let UserCode::Update(code) = &add.code else { panic!("no update") };
    let operands = Operands { signature: &add.signature, bytes: &[0; 41], vectors: 1, first: 1 };
    let _ = code(&mut [0; 40], &operands, &mut []);
}

#[test]
#[should_panic(expected = "an operand is too short")]
fn code_never_reads_before_an_operand() {
    let add = only("mod m { #[update] fn add(v: u32, d: u32) -> u32 { v + d } }");
    let UserCode::Update(code) = &add.code else { panic!("no update") };
    let operands = Operands { signature: &add.signature, bytes: &[0; 40], vectors: 1, first: usize::MAX - 3 };
    let _ = code(&mut [0; 40], &operands, &mut []);
}

#[test]
#[should_panic(expected = "the memory for results is too short")]
fn code_never_writes_outside_the_results() {
    let swap = only("mod m { #[update] fn swap(v: &mut u32, d: u32) -> u32 { let before = *v; *v = d; before } }");
    let UserCode::Update(code) = &swap.code else { panic!("no update") };
    let _ = code(&mut [0; 40], &for_all(&swap, &[0; 4]), &mut [0; 39]);
}

/// Found by random functions (`SKEP_SEED=41`): the index was computed for the read, and again for the write.
#[test]
fn an_index_of_an_assignment_is_computed_once() {
    let add = only(
        "mod m { #[update] fn add(v: &mut [u8; 4], i: u8) { v[{ v[3] += 1; i } as usize] += 10; v[{ v[2] += 1; 0 }] = 7; } }",
    );
    let mut value = [1, 2, 3, 4];
    update(&add, &mut value, &[1]).unwrap();
    assert_eq!(value, [7, 12, 4, 5]);
}
