//! Compiles random modules with this compiler and with rustc, runs both on the same bytes, and compares all bytes.
//!
//! The modules are random ones, or the examples of docs/functions.md. All modules of a batch become one program for rustc. It reads cases from a file, and writes their results to another:
//!
//! ```text
//! case    function │ elements │ operands that are vectors, one bit for each │ parts │ size of each part │ parts
//! parts   the elements, Σ, and each operand
//! result  1, or 0 if the function panicked │ elements, of an update │ results or Σ
//! ```

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use skep_core::function::{FunctionKind, UserFunction};
use skep_function::compile;
use skep_function::generate::{Generated, GeneratedFunction, Random};

mod examples;

use crate::run::Call;

pub(crate) use examples::compare_examples;

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
    cases: Vec<Call>,
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
            let cases = (0..CASES).map(|_| random_call(&mut random, &function)).collect();
            compared.push(Compared { function, source: source.clone(), cases });
        }
    }
    let runs: Vec<String> = (0..compared.len()).map(|number| format!("run_{number}")).collect();
    compare_program(seed, program, &runs, &compared, counts);
}

/// Compiles and runs a program with rustc, and compares all cases. `runs` are the paths of the functions' wrappers.
fn compare_program(seed: u64, mut program: String, runs: &[String], compared: &[Compared], counts: &mut Counts) {
    let _ = writeln!(program, "const TABLE: &[Run] = &[{}];", runs.join(", "));
    let mut input = Vec::new();
    for (number, compared) in compared.iter().enumerate() {
        for case in &compared.cases {
            write_case(number as u32, &compared.function, case, &mut input);
        }
    }
    let output = run_with_rustc(seed, &program, &input);
    let mut output = output.as_slice();
    for compared in compared {
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

fn random_call(random: &mut Random, function: &UserFunction) -> Call {
    let count_max = if random.once_in(3) { 70 } else { 6 };
    let count = 1 + random.below(count_max);
    let vectors = match random.below(3) {
        0 => 0,
        1 => u8::MAX,
        _ => random.bits() as u8,
    };
    Call::random(function, random, count, vectors)
}

fn write_case(number: u32, function: &UserFunction, call: &Call, input: &mut Vec<u8>) {
    let sigma = if function.kind() == FunctionKind::Reduce { &call.results[..] } else { &[] };
    let operands = call.operands.iter().map(Vec::as_slice);
    let parts: Vec<&[u8]> = [&call.elements, sigma].into_iter().chain(operands).collect();
    for word in [number, call.count as u32, call.vectors.into(), parts.len() as u32] {
        input.extend_from_slice(&word.to_le_bytes());
    }
    for part in &parts {
        input.extend_from_slice(&(part.len() as u32).to_le_bytes());
    }
    input.extend(parts.into_iter().flatten());
}

/// Compiles and runs the program, and returns its output. The program and its files stay if it fails.
///
/// Only one program in eight is optimised: the others are compiled in a third of the time, and have the same results.
fn run_with_rustc(seed: u64, program: &str, input: &[u8]) -> Vec<u8> {
    static PROGRAMS: AtomicU32 = AtomicU32::new(0);
    let number = PROGRAMS.fetch_add(1, Ordering::Relaxed);
    let name = format!("equality-{}-{number}-{seed:x}", std::process::id());
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&folder).unwrap();
    let file = |name: &str| -> PathBuf { folder.join(name) };
    std::fs::write(file("program.rs"), program).unwrap();
    std::fs::write(file("input"), input).unwrap();
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    let level = if seed.is_multiple_of(8) { "opt-level=3" } else { "opt-level=0" };
    let built = Command::new(rustc)
        .args(["--edition", "2024", "-C", level, "-C", "overflow-checks=off", "-A", "warnings", "-o"])
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
    std::fs::remove_dir_all(&folder).unwrap();
    output
}

fn compare_case(seed: u64, compared: &Compared, call: &Call, output: &mut &[u8], counts: &mut Counts) {
    let function = &compared.function;
    let mut after = call.clone();
    let ran = after.run(function, counts.cases % 16);
    let bytes = match function.kind() {
        _ if ran.is_err() => Vec::new(),
        FunctionKind::Update => [after.elements, after.results].concat(),
        FunctionKind::Reduce | FunctionKind::Filter => after.results,
    };
    assert!(ran.is_ok() || function.signature.can_fail, "a function that cannot fail failed:\n{}", compared.source);
    counts.cases += 1;
    let expected_ok = output[0] == 1;
    let elements_size = if function.kind() == FunctionKind::Update { call.elements.len() } else { 0 };
    let size = if expected_ok { elements_size + call.results.len() } else { 0 };
    let expected = &output[1..1 + size];
    *output = &output[1 + size..];
    counts.failures += usize::from(!expected_ok && ran.is_err());
    if expected_ok == ran.is_ok() && expected == bytes {
        return;
    }
    counts.differences.push(format!(
        "SKEP_SEED={seed}: {} {call:x?}\n rustc {expected_ok} {expected:x?}\n skep {ran:?} {bytes:x?}\n{}",
        function.name, compared.source
    ));
}
