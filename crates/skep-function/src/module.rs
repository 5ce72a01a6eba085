//! Parses, checks and compiles a module.

use std::thread;

use cranelift_codegen::isa::{CallConv, TargetFrontendConfig};
use skep_core::function::{FUNCTION_WORK_MAX, FunctionKind, Layout, Parameter, Signature, UserFunction};

use crate::check::check_module;
use crate::code::{Compiler, Forms, LanesForm};
use crate::limits::{MODULE_TEXT_MAX, MODULE_WORK_MAX, STACK_SIZE};
use crate::lower::{Host, Lowered, Stop, lower_lanes, lower_whole};
use crate::scan::scan;
use crate::source_error::SourceError;
use crate::tree::{Function, Tree};
use crate::types::Type;

/// A compiled module.
#[derive(Debug)]
pub struct Module {
    /// Its name.
    pub name: String,
    /// The functions that are marked, in the order of the source. Their names begin with the module's.
    pub functions: Vec<UserFunction>,
    /// The structs, in the order of the source. Their names begin with the module's.
    pub records: Vec<(String, Layout)>,
}

/// A module that was checked, without code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// Its name.
    pub name: String,
    /// The functions that are marked, in the order of the source.
    pub functions: Vec<FunctionDescription>,
    /// The structs, in the order of the source.
    pub records: Vec<(String, Layout)>,
}

/// A function without code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionDescription {
    /// Its name: the module, a dot, and the name in the module.
    pub name: String,
    /// Its kind.
    pub kind: FunctionKind,
    /// What it takes and returns.
    pub signature: Signature,
}

/// Parses, checks and compiles a module.
pub fn compile(source: &str) -> Result<Module, SourceError> {
    with_stack(source, compile_here)
}

/// The same. The thread that does it calls `prepare` first, such as to come after other threads.
pub fn compile_after(prepare: impl FnOnce() + Send, source: &str) -> Result<Module, SourceError> {
    with_stack(source, |source| {
        prepare();
        compile_here(source)
    })
}

/// Parses and checks a module. This works on any machine.
pub fn check(source: &str) -> Result<Description, SourceError> {
    with_stack(source, check_here)
}

/// Runs `f` in a thread with a large stack. The thread also keeps the positions of tokens, and frees them at its end.
fn with_stack<T: Send>(source: &str, f: impl FnOnce(&str) -> Result<T, SourceError> + Send) -> Result<T, SourceError> {
    thread::scope(|scope| {
        let thread = thread::Builder::new().name("skep-function".to_owned()).stack_size(STACK_SIZE);
        let running = thread.spawn_scoped(scope, || f(source)).map_err(|error| {
            SourceError::of_whole(format!("the system refuses a thread to compile: {error}; try again"))
        })?;
        running.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn check_here(source: &str) -> Result<Description, SourceError> {
    let tree = check_module(scan(source)?)?;
    let target = TargetFrontendConfig {
        default_call_conv: CallConv::SystemV,
        pointer_width: target_lexicon::PointerWidth::U64,
        page_size_align_log2: 12,
    };
    let lowered = lower(&tree, target, Host { has_fma: true })?;
    let functions = lowered.into_iter().map(|lowered| lowered.description).collect();
    Ok(Description { records: records(&tree), name: tree.name, functions })
}

fn compile_here(source: &str) -> Result<Module, SourceError> {
    let tree = check_module(scan(source)?)?;
    let mut compiler = Compiler::new().map_err(SourceError::of_whole)?;
    // All functions are lowered before the first is compiled, so that a source that is refused costs little.
    let lowered = lower(&tree, compiler.target(), compiler.host())?;
    let mut compiled = Vec::new();
    for LoweredFunction { index, description, lowered } in lowered {
        let forms = compile_forms(&mut compiler, &tree, index, lowered)?;
        compiled.push((description, forms));
    }
    let executable = compiler.finish().map_err(SourceError::of_whole)?;
    let functions = compiled.into_iter().map(|(description, forms)| {
        let FunctionDescription { name, kind, signature } = description;
        let code = executable.closure(kind, &signature, forms);
        let short = executable.short(kind, &signature, forms);
        UserFunction { short, ..UserFunction::new(&name, signature, code) }
    });
    Ok(Module { functions: functions.collect(), records: records(&tree), name: tree.name })
}

/// A function for which code was written.
struct LoweredFunction {
    /// Its number in the tree.
    index: usize,
    description: FunctionDescription,
    lowered: Lowered,
}

/// Lowers the functions that are marked.
fn lower(tree: &Tree, target: TargetFrontendConfig, host: Host) -> Result<Vec<LoweredFunction>, SourceError> {
    let mut functions = Vec::new();
    let mut work = 0;
    let mut text: usize = (0..tree.records.0.len()).map(|index| tree.records.text_size(&Type::Record(index))).sum();
    for (index, function) in tree.functions.iter().enumerate().filter(|(_, function)| function.kind.is_some()) {
        let lowered = lower_whole(tree, index, target, host).map_err(|stop| refused(function, stop))?;
        work += lowered.work;
        if work > MODULE_WORK_MAX {
            let message = format!(
                "the functions of the module have more than {MODULE_WORK_MAX} instructions for one element, together: divide it into several modules"
            );
            return Err(SourceError::at(function.at, message));
        }
        let parameters = &function.locals[..function.parameters.len()];
        text += parameters.iter().chain([&function.result]).map(|ty| tree.records.text_size(ty)).sum::<usize>();
        if text > MODULE_TEXT_MAX {
            let message = format!(
                "the structs of the module and the types that its functions take and return have more than {MODULE_TEXT_MAX} bytes as text, together: shorten the names of fields, or divide it into several modules"
            );
            return Err(SourceError::at(function.at, message));
        }
        functions.push(LoweredFunction { index, description: describe(tree, function, &lowered), lowered });
    }
    Ok(functions)
}

fn compile_forms(compiler: &mut Compiler, tree: &Tree, index: usize, lowered: Lowered) -> Result<Forms, SourceError> {
    let function = &tree.functions[index];
    let own = if function.kind == Some(FunctionKind::Reduce) { 2 } else { 1 };
    let has_operands = function.parameters.len() > own;
    let failed = |error: String| SourceError::at(function.at, format!("the compiler refuses this function: {error}"));
    let mut lanes = |is_vector: bool| {
        let lowered = lower_lanes(tree, index, is_vector, lowered.work, compiler.target(), compiler.host()).ok()?;
        // A function without a form in lanes has the other form.
        let code = compiler.compile(lowered.code).ok()?;
        Some(LanesForm { code, elements: lowered.elements })
    };
    let shared = lanes(false);
    let each = if has_operands { lanes(true) } else { None };
    let whole = compiler.compile(lowered.code).map_err(failed)?;
    Ok(Forms { whole, shared, each })
}

fn describe(tree: &Tree, function: &Function, lowered: &Lowered) -> FunctionDescription {
    let kind = function.kind.expect("a marked function");
    let own = if kind == FunctionKind::Reduce { 2 } else { 1 };
    let parameters = function.parameters.iter().zip(&function.locals).skip(own);
    let operands = parameters.map(|(name, ty)| Parameter { name: name.clone(), layout: tree.records.layout(ty) });
    let result = match kind {
        FunctionKind::Update if !function.is_by_reference => None,
        FunctionKind::Filter => None,
        _ => (function.result != Type::Unit).then(|| tree.records.layout(&function.result)),
    };
    FunctionDescription {
        name: format!("{}.{}", tree.name, function.name),
        kind,
        signature: Signature {
            element: tree.records.layout(&function.locals[0]),
            operands: operands.collect(),
            result,
            work: lowered.work,
            can_fail: lowered.can_fail,
        },
    }
}

/// Describes the structs for skep-core.
fn records(tree: &Tree) -> Vec<(String, Layout)> {
    let records = tree.records.0.iter().enumerate();
    records
        .map(|(index, record)| (format!("{}.{}", tree.name, record.name), tree.records.record_layout(index)))
        .collect()
}

fn refused(function: &Function, stop: Stop) -> SourceError {
    debug_assert_eq!(stop, Stop::TooLong, "scalar code has all functions");
    let message = format!(
        "`{}` has more than {FUNCTION_WORK_MAX} instructions for one element, with the functions that it calls: shorten it, or divide it into two functions that are called one after another",
        function.name
    );
    SourceError::at(function.at, message)
}

#[cfg(test)]
mod tests {
    use skep_core::function::{Operands, UserCode};

    use super::*;

    /// Returns true if the function has both forms in lanes, and false if it has none.
    fn has_lanes(item: &str) -> bool {
        let source = format!("mod m {{ struct P {{ x: f32, y: f32 }} fn twice(v: f32) -> f32 {{ v * 2.0 }} {item} }}");
        let tree = check_module(scan(&source).unwrap()).unwrap_or_else(|error| panic!("{error}\n{source}"));
        let mut compiler = Compiler::new().unwrap();
        let index = tree.functions.iter().position(|function| function.kind.is_some()).unwrap();
        let function = &tree.functions[index];
        let lowered = lower_whole(&tree, index, compiler.target(), compiler.host()).unwrap();
        let has_operands = function.parameters.len() > if function.kind == Some(FunctionKind::Reduce) { 2 } else { 1 };
        let forms = compile_forms(&mut compiler, &tree, index, lowered).unwrap();
        assert_eq!(forms.each.is_some(), forms.shared.is_some() && has_operands, "{item}");
        forms.shared.is_some()
    }

    #[test]
    fn plain_functions_have_lanes() {
        for number in ["u8", "u16", "u32", "u64", "i8", "i16", "i32", "i64"] {
            let operators = ["v + d", "v - d", "v & d", "!v", "v << 3", "v >> 5", "v.max(d)", "v.saturating_add(d)"];
            let others = ["v.saturating_sub(d)", "v.rotate_right(3)", "v.clamp(3, 100)", "if v == d { 1 } else { d }"];
            for body in operators.into_iter().chain(others) {
                assert!(
                    has_lanes(&format!("#[update] fn f(v: {number}, d: {number}) -> {number} {{ {body} }}")),
                    "{body}"
                );
            }
            assert_eq!(
                has_lanes(&format!("#[update] fn f(v: {number}, d: {number}) -> {number} {{ v * d }}")),
                !number.ends_with('8')
            );
            assert!(has_lanes(&format!("#[filter] fn f(v: {number}, d: {number}) -> bool {{ v <= d || v == 7 }}")));
            assert!(has_lanes(&format!("#[reduce] fn f(v: {number}, s: {number}) -> {number} {{ v + s }}")));
        }
        for body in [
            "v * 0.99 + d",
            "v.mul_add(d, 1.0).floor().min(d)",
            "v.round() - d.abs().sqrt()",
            "if v > d { return d; } let x = v + 1.0; if x > 3.0 { x * 2.0 } else { x }",
            "let mut x = v; if v > d && d > 0.0 { x -= d; } else { x = twice(x); } x",
            "match v.to_bits() { 0 => d, 1..=5 | 9 => v, _ if v.is_nan() => 0.0, other => f32::from_bits(other ^ 1) }",
            "(v as i32 as f32) + d",
        ] {
            assert!(has_lanes(&format!("#[update] fn f(v: f32, d: f32) -> f32 {{ {body} }}")), "{body}");
        }
        assert!(has_lanes("#[update] fn f(v: &mut f32, d: f32) -> f32 { let before = *v; *v = d; before }"));
        assert!(has_lanes("#[reduce(associative)] fn f(v: f32, s: f32, d: f32) -> f32 { s + v * d }"));
        assert!(has_lanes("#[reduce(associative)] fn f(v: f32, s: f32) -> f32 { s.max(v) }"));
    }

    #[test]
    fn a_machine_without_the_instruction_calls_libm_for_mul_add() {
        for (source, width) in [
            ("mod m { #[update] fn f(v: f32, d: f32, e: f32) -> f32 { v.mul_add(d, e) } }", 4),
            ("mod m { #[update] fn f(v: f64, d: f64, e: f64) -> f64 { v.mul_add(d, e) } }", 8),
        ] {
            let tree = check_module(scan(source).unwrap()).unwrap();
            let mut compiler = Compiler::new().unwrap();
            let lowered = lower(&tree, compiler.target(), Host { has_fma: false }).unwrap().remove(0);
            let with = lower(&tree, compiler.target(), Host { has_fma: true }).unwrap().remove(0);
            assert_eq!(lowered.description, with.description, "all machines count the same work");
            let whole = compiler.compile(lowered.lowered.code).unwrap();
            let forms = Forms { whole, shared: None, each: None };
            let signature = lowered.description.signature;
            let code = compiler.finish().unwrap().closure(FunctionKind::Update, &signature, forms);
            let UserCode::Update(code) = code else { unreachable!("an update") };
            let mut random = crate::generate::Random::new(3);
            for _ in 0..5000 {
                let [v, d, e] = [0; 3].map(|_: u8| random.number_bytes(width, true));
                let mut value = v;
                let bytes = [&d[..width], &e[..width]].concat();
                let operands = Operands { signature: &signature, bytes: &bytes, vectors: 0, first: 0 };
                code(&mut value[..width], &operands, &mut []).unwrap();
                let expected = if width == 4 {
                    let [v, d, e] = [v, d, e].map(|bytes| f32::from_bits(u64::from_le_bytes(bytes) as u32));
                    let result = v.mul_add(d, e);
                    u64::from(if result.is_nan() { 0x7fc0_0000 } else { result.to_bits() })
                } else {
                    let [v, d, e] = [v, d, e].map(f64::from_le_bytes);
                    let result = v.mul_add(d, e);
                    if result.is_nan() { 0x7ff8_0000_0000_0000 } else { result.to_bits() }
                };
                assert_eq!(u64::from_le_bytes(value), expected, "{v:x?} {d:x?} {e:x?}");
            }
        }
    }

    #[test]
    fn many_random_functions_have_lanes() {
        let (mut count, mut lanes) = (0, 0);
        for seed in 0..40 {
            let source = crate::generate::Generated::new(seed, "m", 8).for_skep();
            let tree = check_module(scan(&source).unwrap()).unwrap();
            let mut compiler = Compiler::new().unwrap();
            for index in (0..tree.functions.len()).filter(|index| tree.functions[*index].kind.is_some()) {
                let lowered = lower_whole(&tree, index, compiler.target(), compiler.host()).unwrap();
                count += 1;
                lanes += usize::from(compile_forms(&mut compiler, &tree, index, lowered).unwrap().shared.is_some());
            }
        }
        assert!(lanes * 5 > count, "{lanes} of {count} random functions have lanes");
        assert!(lanes * 5 < count * 4, "{lanes} of {count} random functions have lanes");
    }

    #[test]
    fn other_functions_have_none() {
        for item in [
            "#[update] fn f(v: f32, d: f64) -> f32 { v + d as f32 }",
            "#[update] fn f(v: f32) -> f32 { v.exp() }",
            "#[update] fn f(v: u32, d: u32) -> u32 { v / d }",
            "#[update] fn f(v: P, d: f32) -> P { P { x: v.x + d, y: v.y } }",
            "#[reduce] fn f(v: f32, s: f32) -> f32 { s + v }",
            "#[reduce] fn f(v: u8, s: u64) -> u64 { s + v as u64 }",
            "#[reduce] fn f(v: u32, s: u32) -> u32 { s - v }",
            "#[reduce] fn f(v: u32, s: u32) -> u32 { s + (v ^ s) }",
            "#[update] fn f(v: f16) -> f16 { v + 1.0 }",
        ] {
            assert!(!has_lanes(item), "{item}");
        }
    }
}
