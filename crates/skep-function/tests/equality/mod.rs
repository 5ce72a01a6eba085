//! Compiles random modules with this compiler and with rustc, runs both on the same bytes, and compares all bytes.
//!
//! All modules of a batch become one program for rustc. It reads cases from a file, and writes their results to another:
//!
//! ```text
//! case    function │ elements │ operands that are vectors, one bit for each │ parts │ size of each part │ parts
//! parts   the elements, Σ, and each operand
//! result  1, or 0 if the function panicked │ elements, of an update │ results or Σ
//! ```

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use skep_core::function::{FunctionKind, Layout, Operand, Scalar, UserCode, UserFunction};
use skep_function::compile;
use skep_function::generate::{Generated, GeneratedFunction, Random};

/// Functions of a module.
const FUNCTIONS: usize = 10;
/// Cases of a function.
const CASES: usize = 6;
/// Modules of one program.
const MODULES: usize = 50;

/// What a comparison counts.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// Functions that both have run.
    pub(crate) functions: usize,
    /// Modules that this compiler refused because a function is too long.
    pub(crate) refused: usize,
    /// Cases.
    pub(crate) cases: usize,
    /// Cases that failed in both.
    pub(crate) failures: usize,
    /// Cases with a difference, described.
    pub(crate) differences: Vec<String>,
}

/// A function in both forms, with its cases.
struct Compared {
    function: UserFunction,
    source: String,
    cases: Vec<Case>,
}

/// A case, as it is given to both.
struct Case {
    count: usize,
    vectors: u32,
    elements: Vec<u8>,
    sigma: Vec<u8>,
    operands: Vec<Vec<u8>>,
}

/// Compares at least this many random functions. `change` may change the source for this compiler.
pub(crate) fn compare(seed: u64, functions: usize, change: fn(String) -> String) -> Counts {
    let mut counts = Counts::default();
    let mut batch = 0;
    while counts.functions < functions {
        compare_batch(seed.wrapping_mul(1_000_003).wrapping_add(batch), change, &mut counts);
        batch += 1;
    }
    counts
}

fn compare_batch(seed: u64, change: fn(String) -> String, counts: &mut Counts) {
    let mut random = Random::new(seed);
    let mut program = include_str!("prelude.txt").to_owned();
    let mut compared: Vec<Compared> = Vec::new();
    for index in 0..MODULES {
        let generated = Generated::new(random.bits(), &format!("m{index}"), FUNCTIONS);
        let source = change(generated.for_skep());
        let module = match compile(&source) {
            Ok(module) => module,
            Err(error) if error.message.contains("instructions for one element") => {
                counts.refused += 1;
                continue;
            }
            Err(error) => panic!("seed {seed}: {error}\n{source}"),
        };
        program += &generated.for_rustc();
        for (name, fields) in &generated.structs {
            program += &implement_wire(&format!("m{index}::{name}"), fields);
        }
        for (function, written) in module.functions.into_iter().zip(&generated.functions) {
            program += &wrapper(compared.len(), &format!("m{index}"), written);
            let cases = (0..CASES).map(|_| random_case(&mut random, &function)).collect();
            compared.push(Compared { function, source: source.clone(), cases });
        }
    }
    let runs: Vec<String> = (0..compared.len()).map(|number| format!("run_{number}")).collect();
    let _ = write!(program, "const TABLE: &[Run] = &[{}];\n", runs.join(", "));
    let mut input = Vec::new();
    for (number, compared) in compared.iter().enumerate() {
        for case in &compared.cases {
            write_case(number as u32, case, &mut input);
        }
    }
    let output = run_with_rustc(seed, &program, &input);
    let mut output = output.as_slice();
    for compared in &compared {
        counts.functions += 1;
        for case in &compared.cases {
            compare_case(seed, compared, case, &mut output, counts);
        }
    }
    assert!(output.is_empty(), "the program wrote {} bytes too many", output.len());
}

/// Writes the conversion of a struct from and to bytes.
fn implement_wire(path: &str, fields: &[String]) -> String {
    let get: Vec<String> = fields.iter().map(|field| format!("{field}: Wire::get(from)")).collect();
    let put: Vec<String> = fields.iter().map(|field| format!("self.{field}.put(to);")).collect();
    format!(
        "impl Wire for {path} {{ fn get(from: &mut &[u8]) -> Self {{ {path} {{ {} }} }} fn put(&self, to: &mut Vec<u8>) {{ {} }} }}\n",
        get.join(", "),
        put.join(" ")
    )
}

/// Writes the function that computes one element of a case.
fn wrapper(number: usize, module: &str, function: &GeneratedFunction) -> String {
    let name = format!("{module}::{}", function.name);
    let own = usize::from(function.kind == FunctionKind::Reduce);
    let arguments: String = (own..function.others.len()).map(|index| format!(", c.operand({})", index - own)).collect();
    let body = match function.kind {
        FunctionKind::Reduce => format!("let s = {name}(c.element(), c.sigma(){arguments}); c.set_sigma(s);"),
        _ if !function.is_by_reference => format!("let r = {name}(c.element(){arguments}); r.put(&mut c.one);"),
        _ => {
            format!("let mut v = c.element(); let r = {name}(&mut v{arguments}); v.put(&mut c.one); r.put(&mut c.two);")
        }
    };
    format!("fn run_{number}(c: &mut Case<'_>) {{ {body} }}\n")
}

fn random_case(random: &mut Random, function: &UserFunction) -> Case {
    let signature = &function.signature;
    let count_max = if random.once_in(3) { 70 } else { 6 };
    let count = 1 + random.below(count_max);
    let vectors = match random.below(3) {
        0 => 0,
        1 => u32::MAX,
        _ => random.bits() as u32,
    };
    let elements = random_records(random, &signature.element, count);
    let sigma = match (function.kind(), &signature.result) {
        (FunctionKind::Reduce, Some(result)) => random_records(random, result, 1),
        _ => Vec::new(),
    };
    let mut operands = Vec::new();
    for (index, operand) in signature.operands.iter().enumerate() {
        let records = if vectors >> index & 1 == 1 { count } else { 1 };
        operands.push(random_records(random, &operand.layout, records));
    }
    Case { count, vectors, elements, sigma, operands }
}

/// Returns random numbers, many of them at the edges of their types.
pub(crate) fn random_records(random: &mut Random, layout: &Layout, count: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..count {
        for field in layout.fields() {
            let is_float = match field.scalar {
                Scalar::Element(element) => element.is_float(),
                Scalar::F16 | Scalar::BF16 => true,
                Scalar::Bool => false,
            };
            let width = field.scalar.width();
            bytes.extend_from_slice(&random.number_bytes(width, is_float)[..width]);
        }
    }
    bytes
}

fn write_case(number: u32, case: &Case, input: &mut Vec<u8>) {
    let parts: Vec<&Vec<u8>> = [&case.elements, &case.sigma].into_iter().chain(&case.operands).collect();
    for word in [number, case.count as u32, case.vectors, parts.len() as u32] {
        input.extend_from_slice(&word.to_le_bytes());
    }
    for part in &parts {
        input.extend_from_slice(&(part.len() as u32).to_le_bytes());
    }
    input.extend(parts.into_iter().flatten());
}

/// Compiles and runs the program, and returns its output. The program and its files stay if it fails.
fn run_with_rustc(seed: u64, program: &str, input: &[u8]) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("equality-{}-{seed:x}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = |name: &str| -> PathBuf { folder.join(name) };
    std::fs::write(file("program.rs"), program).unwrap();
    std::fs::write(file("input"), input).unwrap();
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    let built = Command::new(rustc)
        .args(["--edition", "2024", "-O", "-C", "overflow-checks=off", "-C", "codegen-units=4", "-A", "warnings", "-o"])
        .args([file("program"), file("program.rs")])
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&built.stderr);
    assert!(
        built.status.success(),
        "rustc refuses {}:\n{}",
        file("program.rs").display(),
        &errors[..errors.len().min(4000)]
    );
    let run = Command::new(file("program")).args([file("input"), file("output")]).output().unwrap();
    assert!(run.status.success(), "{} fails: {}", file("program").display(), String::from_utf8_lossy(&run.stderr));
    let output = std::fs::read(file("output")).unwrap();
    if std::env::var("SKEP_KEEP").is_err() {
        std::fs::remove_dir_all(&folder).unwrap();
    }
    output
}

fn compare_case(seed: u64, compared: &Compared, case: &Case, output: &mut &[u8], counts: &mut Counts) {
    let function = &compared.function;
    let mut elements = case.elements.clone();
    let operands: Vec<Operand<'_>> = case
        .operands
        .iter()
        .enumerate()
        .map(|(index, bytes)| Operand { bytes, is_vector: case.vectors >> index & 1 == 1 })
        .collect();
    let result_size = function.signature.result.as_ref().map_or(0, Layout::size);
    let (ran, mut bytes) = match &function.code {
        UserCode::Update(code) => {
            let mut results = vec![0; result_size * case.count];
            let ran = code(&mut elements, &operands, &mut results);
            (ran, [elements, results].concat())
        }
        UserCode::Reduce(code) => {
            let mut sigma = case.sigma.clone();
            (code(&elements, &operands, &mut sigma), sigma)
        }
        UserCode::Filter(code) => {
            let mut flags = vec![0; case.count];
            (code(&elements, &operands, &mut flags), flags)
        }
    };
    if ran.is_err() {
        assert!(function.signature.can_fail, "a function that cannot fail failed:\n{}", compared.source);
        bytes.clear();
    }
    counts.cases += 1;
    let expected_ok = output[0] == 1;
    let size = if expected_ok { bytes_of_result(function, case) } else { 0 };
    let expected = &output[1..1 + size];
    *output = &output[1 + size..];
    counts.failures += usize::from(!expected_ok && ran.is_err());
    if expected_ok == ran.is_ok() && expected == bytes {
        return;
    }
    counts.differences.push(format!(
        "SKEP_SEED={seed}: {} with {} elements, vectors {:b}\n elements {:x?}\n sigma {:x?}\n operands {:x?}\n rustc {expected_ok} {expected:x?}\n skep {ran:?} {bytes:x?}\n{}",
        function.name, case.count, case.vectors, case.elements, case.sigma, case.operands, compared.source
    ));
}

fn bytes_of_result(function: &UserFunction, case: &Case) -> usize {
    let result = function.signature.result.as_ref().map_or(0, Layout::size);
    match function.kind() {
        FunctionKind::Update => case.elements.len() + result * case.count,
        FunctionKind::Reduce => result,
        FunctionKind::Filter => case.count,
    }
}
