//! The functions of the issue, and one of each kind.

use skep_core::function::{Layout, Operand, UserCode, UserFunction};
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

fn update(function: &UserFunction, value: &mut [u8], operands: &[Operand<'_>]) -> Result<Vec<u8>, OperationError> {
    let UserCode::Update(code) = &function.code else { panic!("no update") };
    let size = function.signature.result.as_ref().map_or(0, Layout::size);
    let mut results = vec![0; size * (value.len() / function.signature.element.size())];
    code(value, operands, &mut results).map(|()| results)
}

fn one(bytes: &[u8]) -> Operand<'_> {
    Operand { bytes, is_vector: false }
}

#[test]
fn an_update_decays_a_vector() {
    let decay = only("mod m { #[update] fn decay(v: f32, d: f32) -> f32 { v * 0.99 + d } }");
    assert_eq!(decay.name, "m.decay");
    for count in 0..70 {
        let numbers: Vec<f32> = (0..count).map(|index| index as f32 * 1.5).collect();
        let mut value: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        update(&decay, &mut value, &[one(&2.5_f32.to_le_bytes())]).unwrap();
        let expected: Vec<u8> = numbers.iter().flat_map(|number| (number * 0.99 + 2.5).to_le_bytes()).collect();
        assert_eq!(value, expected, "{count} elements");
    }
}

const BUCKET: &str = "mod limits {
    /// A token bucket.
    struct Bucket { tokens: f32, at: u64 }
    #[update] fn take(b: &mut Bucket, now: u64, cost: f32, rate: f32, burst: f32) -> bool {
        let t = burst.min(b.tokens + rate * (now.saturating_sub(b.at)) as f32);
        b.at = now;
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
    let operands = [one(&now), one(&floats[0]), one(&floats[1]), one(&floats[2])];
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
    let reduce = |index: usize, value: &[u8], operands: &[Operand<'_>], sigma: &mut [u8]| {
        let UserCode::Reduce(code) = &module.functions[index].code else { panic!("no reduce") };
        code(value, operands, sigma).unwrap();
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
    reduce(2, &value, &[one(&2.0_f32.to_le_bytes())], &mut sigma);
    assert_eq!(sigma, (77.0 * 38.0 * 2.0 + 0.5_f32).to_le_bytes());
    let UserCode::Filter(code) = &module.functions[3].code else { panic!("no filter") };
    let mut flags = vec![7; 77];
    code(&value, &[one(&40.0_f32.to_le_bytes())], &mut flags).unwrap();
    assert_eq!(flags, (0..77).map(|number| u8::from(number > 40)).collect::<Vec<u8>>());
}

#[test]
fn a_division_by_zero_fails() {
    let divide = only("mod m { #[update] fn divide(v: i32, by: i32) -> i32 { v / by } }");
    assert!(divide.signature.can_fail);
    let mut value = 7_i32.to_le_bytes();
    assert_eq!(update(&divide, &mut value, &[one(&0_i32.to_le_bytes())]), Err(OperationError::DivisionByZero));
    update(&divide, &mut value, &[one(&2_i32.to_le_bytes())]).unwrap();
    assert_eq!(value, 3_i32.to_le_bytes());
    let mut value = i32::MIN.to_le_bytes();
    update(&divide, &mut value, &[one(&(-1_i32).to_le_bytes())]).unwrap();
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
        assert_eq!(update(&pick, &mut value, &[one(&[index])]), Ok(u16::from(index + 11).to_le_bytes().to_vec()));
    }
    assert_eq!(update(&pick, &mut value, &[one(&[5])]), Err(OperationError::IndexOutOfRange));
}

#[test]
fn an_error_has_a_position() {
    let error = compile("mod m {\n    #[update] fn f(v: f32) -> f32 {\n        v + 1\n    }\n}").unwrap_err();
    assert_eq!(
        error.to_string(),
        "line 3, column 13: expected f32, found an integer: write the literal with a point, such as 1.0"
    );
}
