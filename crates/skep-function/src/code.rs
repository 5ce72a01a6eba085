//! Compiles lowered functions to machine code, and calls it.
//!
//! Code is written to pages that are then made executable; no page is both. The pages are freed when the last function that
//! is in them is dropped: every closure owns them by a counted reference.
//!
//! Code reads and writes memory only at the addresses that it is given, in the sizes of the signature. The closures check
//! these sizes before a call, so safe callers cannot make it leave the slices.

#![expect(unsafe_code, reason = "calls machine code that was just compiled, and frees its pages")]

use std::sync::{Arc, Mutex};

use cranelift_codegen::ir::Function as Code;
use cranelift_codegen::isa::{OwnedTargetIsa, TargetFrontendConfig, TargetIsa};
use cranelift_codegen::settings::Configurable;
use cranelift_jit::{JITBuilder, JITModule};
use cranelift_module::{FuncId, Linkage, Module};
use skep_core::function::{FunctionKind, Operands, ShortCode, Signature, USER_OPERANDS_MAX, UserCode};
use skep_core::operation::OperationError;

use crate::lower::{Host, LIBRARY, TURN_SIZE_MAX, code_signature};

/// Machine code: elements, their count, addresses and strides of the operands, results; returns an error, or 0.
type Entry = unsafe extern "C" fn(*mut u8, u64, *const OperandAddress, *mut u8) -> i32;

/// Where an operand begins, and the distance to the one of the next element.
#[derive(Clone, Copy)]
#[repr(C)]
struct OperandAddress {
    address: *const u8,
    stride: u64,
}

/// Fewer elements are not computed in lanes.
const LANES_COUNT_MIN: usize = 8;
/// The most instructions of a function that has a form for one element in a register. Their work is not counted.
const SHORT_WORK_MAX: u32 = 256;
/// The most operands of such a function.
const FEW_OPERANDS: usize = 2;

/// A compiler for this machine.
pub(crate) struct Compiler {
    pages: Pages,
    context: cranelift_codegen::Context,
    count: usize,
}

/// The pages of the code of a module.
struct Pages(Mutex<Option<JITModule>>);

/// Code that is compiled, but not yet executable.
#[derive(Clone, Copy)]
pub(crate) struct Compiled(FuncId);

/// The compiled forms of a function.
#[derive(Clone, Copy)]
pub(crate) struct Forms {
    pub(crate) whole: Compiled,
    /// In lanes, with operands for all elements.
    pub(crate) shared: Option<LanesForm>,
    /// In lanes, with operands for each element, or a mixture.
    pub(crate) each: Option<LanesForm>,
}

/// Code in lanes.
#[derive(Clone, Copy)]
pub(crate) struct LanesForm {
    pub(crate) code: Compiled,
    /// The elements of a turn.
    pub(crate) elements: usize,
}

/// Executable pages, shared by the functions in them.
pub(crate) struct Executable(Arc<Pages>);

/// A function that can be called.
struct Callable {
    whole: Entry,
    shared: Option<LanesEntry>,
    each: Option<LanesEntry>,
    element_size: usize,
    /// The sizes of the operands, of which there are `operand_count`.
    operand_sizes: [usize; USER_OPERANDS_MAX],
    operand_count: usize,
    /// The sum of their sizes.
    operands_size: usize,
    /// The bytes of a result for each element, or of Σ.
    result_size: usize,
    is_reduce: bool,
    /// Keeps the code.
    _pages: Arc<Pages>,
}

#[derive(Clone, Copy)]
struct LanesEntry {
    code: Entry,
    elements: usize,
}

impl Compiler {
    /// Returns a compiler, or the reason why this machine has none.
    pub(crate) fn new() -> Result<Compiler, String> {
        let mut builder = JITBuilder::with_isa(native()?, cranelift_module::default_libcall_names());
        for function in LIBRARY {
            builder.symbol(format!("skep_{}", function.name), (function.address)());
        }
        let pages = Pages(Mutex::new(Some(JITModule::new(builder))));
        let mut compiler = Compiler { pages, context: cranelift_codegen::Context::new(), count: 0 };
        compiler.declare_library()?;
        Ok(compiler)
    }

    /// Declares the functions of the library, so that their numbers are those of the list.
    fn declare_library(&mut self) -> Result<(), String> {
        let module = self.module();
        let convention = module.isa().default_call_conv();
        for (index, function) in LIBRARY.iter().enumerate() {
            let name = format!("skep_{}", function.name);
            let declared = module.declare_function(&name, Linkage::Import, &function.signature(convention));
            let number = declared.map_err(|error| error.to_string())?;
            assert_eq!(number.as_u32() as usize, index, "functions are numbered in the order of their declarations");
        }
        Ok(())
    }

    fn module(&mut self) -> &mut JITModule {
        self.pages.module()
    }

    /// Returns the conventions of this machine.
    pub(crate) fn target(&mut self) -> TargetFrontendConfig {
        self.module().target_config()
    }

    /// Returns what code may use.
    pub(crate) fn host(&mut self) -> Host {
        host(self.module().isa())
    }

    /// Compiles a lowered function.
    pub(crate) fn compile(&mut self, code: Code) -> Result<Compiled, String> {
        self.count += 1;
        let name = format!("code_{}", self.count);
        self.context.clear();
        self.context.func = code;
        let Compiler { pages, context, .. } = self;
        let module = pages.module();
        let convention = module.isa().default_call_conv();
        let id = module
            .declare_function(&name, Linkage::Local, &code_signature(convention))
            .map_err(|error| error.to_string())?;
        module.define_function(id, context).map_err(|error| format!("{error:?}"))?;
        Ok(Compiled(id))
    }

    /// Makes the code executable.
    pub(crate) fn finish(mut self) -> Result<Executable, String> {
        self.module().finalize_definitions().map_err(|error| error.to_string())?;
        Ok(Executable(Arc::new(self.pages)))
    }
}

/// Returns the description of this machine for Cranelift.
fn native() -> Result<OwnedTargetIsa, String> {
    const SUPPORTED: &str = "functions are compiled on x86-64 (with SSE 4.2) and on aarch64, under Linux";
    if !cfg!(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))) {
        return Err(format!("this machine is another: {SUPPORTED}"));
    }
    let mut settings = cranelift_codegen::settings::builder();
    let verifies = if cfg!(debug_assertions) { "true" } else { "false" };
    let values = [
        ("opt_level", "speed"),
        ("is_pic", "false"),
        ("use_colocated_libcalls", "false"),
        ("enable_verifier", verifies),
        ("unwind_info", "false"),
        // Code with many numbers touches each page of its stack.
        ("enable_probestack", "true"),
        ("probestack_strategy", "inline"),
    ];
    for (name, value) in values {
        settings.set(name, value).map_err(|error| error.to_string())?;
    }
    let flags = cranelift_codegen::settings::Flags::new(settings);
    let isa = cranelift_native::builder().map_err(str::to_owned)?.finish(flags).map_err(|error| error.to_string())?;
    if cfg!(target_arch = "x86_64") && !has(&*isa, "has_sse42") {
        return Err(format!("the processor is too old: {SUPPORTED}"));
    }
    Ok(isa)
}

fn has(isa: &dyn TargetIsa, flag: &str) -> bool {
    isa.isa_flags().iter().any(|value| value.name == flag && value.as_bool() == Some(true))
}

fn host(isa: &dyn TargetIsa) -> Host {
    Host { has_fma: cfg!(target_arch = "aarch64") || has(isa, "has_fma") }
}

impl Pages {
    fn module(&mut self) -> &mut JITModule {
        let module = self.0.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner);
        module.as_mut().expect("pages are freed when they are dropped")
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        let module = self.0.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner).take();
        if let Some(module) = module {
            // SAFETY: the closures that call the code own a reference to these pages, so none is left.
            unsafe { module.free_memory() };
        }
    }
}

impl Executable {
    /// Returns the closure that calls a function.
    pub(crate) fn closure(&self, kind: FunctionKind, signature: &Signature, forms: Forms) -> UserCode {
        let lanes = |form: LanesForm| {
            assert!(form.elements.is_power_of_two(), "a turn has 1, 2 or 4 vectors of numbers of one width");
            LanesEntry { code: self.entry(form.code), elements: form.elements }
        };
        let result = signature.result.as_ref().map_or(0, skep_core::function::Layout::size);
        let callable = Callable {
            whole: self.entry(forms.whole),
            shared: forms.shared.map(lanes),
            each: forms.each.map(lanes),
            element_size: signature.element.size(),
            operand_sizes: std::array::from_fn(|index| {
                signature.operands.get(index).map_or(0, |operand| operand.layout.size())
            }),
            operand_count: signature.operands.len(),
            operands_size: signature.operands_size(0, 0),
            result_size: if kind == FunctionKind::Filter { 1 } else { result },
            is_reduce: kind == FunctionKind::Reduce,
            _pages: Arc::clone(&self.0),
        };
        if callable.operand_count <= FEW_OPERANDS {
            callable.closure::<FEW_OPERANDS>(kind)
        } else {
            callable.closure::<USER_OPERANDS_MAX>(kind)
        }
    }

    /// Returns the form of an update for one element in a register, if it is short and has few operands.
    pub(crate) fn short(&self, kind: FunctionKind, signature: &Signature, forms: Forms) -> Option<ShortCode> {
        let Signature { element, operands, result, work, can_fail } = signature;
        let is_short = element.size() <= size_of::<u64>() && *work <= SHORT_WORK_MAX && operands.len() <= FEW_OPERANDS;
        if kind != FunctionKind::Update || !is_short || *can_fail || result.is_some() {
            return None;
        }
        let (entry, pages) = (self.entry(forms.whole), Arc::clone(&self.0));
        let first_size = operands.first().map_or(0, |operand| operand.layout.size());
        let operands_size = operands.iter().map(|operand| operand.layout.size()).sum();
        let code = move |element: u64, operands: &[u8]| {
            let _pages = &pages;
            assert!(operands.len() == operands_size, "the operands have another size");
            let mut bytes = element.to_le_bytes();
            let (first, second) = operands.split_at(first_size);
            let addresses = [first, second].map(|operand| OperandAddress { address: operand.as_ptr(), stride: 0 });
            // SAFETY: the code reads and writes one element, which has at most eight bytes, and reads at most two operands,
            // whose sizes together are those of the slice. It cannot fail, and has no results. The pages are kept.
            unsafe { entry(bytes.as_mut_ptr(), 1, addresses.as_ptr(), std::ptr::dangling_mut()) };
            u64::from_le_bytes(bytes)
        };
        Some(ShortCode { element_size: element.size(), operands_size, code: Box::new(code) })
    }

    fn entry(&self, compiled: Compiled) -> Entry {
        let guard = self.0.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let module = guard.as_ref().expect("pages are freed when they are dropped");
        let address = module.get_finalized_function(compiled.0);
        // SAFETY: the address is that of finished code with this signature: `code_signature` is the signature of all code
        // that `Compiler::compile` compiles.
        unsafe { std::mem::transmute::<*const u8, Entry>(address) }
    }
}

impl Callable {
    /// Returns the closure that calls the function, which has at most `N` operands.
    fn closure<const N: usize>(self, kind: FunctionKind) -> UserCode {
        match kind {
            FunctionKind::Update => UserCode::Update(Box::new(move |elements, operands, results| {
                self.run::<N>(elements.as_mut_ptr(), elements.len(), operands, results)
            })),
            // Code of these kinds only reads elements.
            FunctionKind::Reduce => UserCode::Reduce(Box::new(move |elements, operands, results| {
                self.run::<N>(elements.as_ptr().cast_mut(), elements.len(), operands, results)
            })),
            FunctionKind::Filter => UserCode::Filter(Box::new(move |elements, operands, results| {
                self.run::<N>(elements.as_ptr().cast_mut(), elements.len(), operands, results)
            })),
        }
    }

    /// Runs the code on `elements`, `size` bytes that may be written if the function is an update.
    ///
    /// # Panics
    /// If an operand or the memory for results is too short.
    #[inline]
    fn run<const N: usize>(
        &self,
        elements: *mut u8,
        size: usize,
        operands: &Operands<'_>,
        results: &mut [u8],
    ) -> Result<(), OperationError> {
        let count = quotient(size, self.element_size);
        let result_count = if self.is_reduce { 1 } else { count };
        assert!(results.len() >= self.result_size * result_count, "the memory for results is too short");
        let mut addresses = self.addresses::<N>(operands, count);
        let vectors = operands.vectors & low_bits(self.operand_count);
        let mut done = 0;
        if count >= LANES_COUNT_MIN
            && let Some(lanes) = self.lanes(vectors)
        {
            // The elements of a turn are a power of two.
            done = count & !(lanes.elements - 1);
            if done > 0 {
                if vectors == 0 || vectors == low_bits(self.operand_count) {
                    // SAFETY: as below. Code in lanes takes whole turns, and never fails.
                    unsafe { (lanes.code)(elements, done as u64, addresses.as_ptr(), results.as_mut_ptr()) };
                } else {
                    self.run_mixture(lanes, elements, done, operands, addresses, results);
                }
                for address in &mut addresses[..self.operand_count] {
                    address.address = address.address.wrapping_add(address.stride as usize * done);
                }
            }
        }
        if done == count {
            return Ok(());
        }
        let first_result = if self.is_reduce { 0 } else { self.result_size * done };
        // SAFETY: the code reads and writes `count - done` elements of the slice, as many operands or one, and as many results
        // or one, and the sizes above are those of the signature from which it was compiled. The pages live as long as `self`.
        let error = unsafe {
            (self.whole)(
                elements.wrapping_add(self.element_size * done),
                (count - done) as u64,
                addresses.as_ptr(),
                results.as_mut_ptr().wrapping_add(first_result),
            )
        };
        match error {
            0 => Ok(()),
            1 => Err(OperationError::DivisionByZero),
            _ => Err(OperationError::IndexOutOfRange),
        }
    }

    /// Returns where the operands of `count` elements are.
    ///
    /// # Panics
    /// If an operand is too short.
    #[inline]
    fn addresses<const N: usize>(&self, operands: &Operands<'_>, count: usize) -> [OperandAddress; N] {
        const TOO_SHORT: &str = "an operand is too short";
        let Operands { bytes, vectors, first, .. } = *operands;
        let sizes = self.operand_sizes[..self.operand_count].iter().enumerate();
        let is_vector = |index: usize| vectors >> index & 1 == 1;
        let mut addresses = [OperandAddress { address: bytes.as_ptr(), stride: 0 }; N];
        let mut start = 0;
        if vectors == 0 {
            assert!(bytes.len() >= self.operands_size, "{TOO_SHORT}");
            for (index, size) in sizes {
                addresses[index].address = bytes.as_ptr().wrapping_add(start);
                start += size;
            }
            return addresses;
        }
        let element_size = sizes.clone().map(|(index, size)| if is_vector(index) { *size } else { 0 }).sum();
        let shared_size = self.operands_size - element_size;
        assert!(bytes.len() >= shared_size, "{TOO_SHORT}");
        let element_count = if element_size == 0 { 0 } else { quotient(bytes.len() - shared_size, element_size) };
        let has_all = first.checked_add(count).is_some_and(|end| end <= element_count);
        assert!(element_size == 0 || has_all, "{TOO_SHORT}");
        for (index, size) in sizes {
            let (own, skipped, stride) = if is_vector(index) { (element_count, first, *size) } else { (1, 0, 0) };
            addresses[index] =
                OperandAddress { address: bytes.as_ptr().wrapping_add(start + size * skipped), stride: stride as u64 };
            start += size * own;
        }
        addresses
    }

    /// Returns the code in lanes for operands of which those in `vectors` are one for each element.
    fn lanes(&self, vectors: u8) -> Option<LanesEntry> {
        if vectors == 0 { self.shared } else { self.each }
    }

    /// Runs code in lanes on `count` elements. Operands that are the same for all elements are repeated for a turn.
    #[inline(never)]
    fn run_mixture<const N: usize>(
        &self,
        lanes: LanesEntry,
        elements: *mut u8,
        count: usize,
        operands: &Operands<'_>,
        mut addresses: [OperandAddress; N],
        results: &mut [u8],
    ) {
        let mut repeated = [[0; TURN_SIZE_MAX / 8]; N];
        for (index, words) in repeated.iter_mut().enumerate().take(self.operand_count) {
            if addresses[index].stride == 0 {
                // Operands of code in lanes have 1, 2, 4 or 8 bytes.
                let operand = operands.record(index, 0);
                let number: [u8; 8] = std::array::from_fn(|byte| operand[byte % operand.len()]);
                words.fill(u64::from_ne_bytes(number));
                addresses[index].address = words.as_ptr().cast();
            }
        }
        // SAFETY: as in `run`. An operand with a stride of 0 is read for at most one turn, which has at most `TURN_SIZE_MAX`
        // bytes.
        unsafe { (lanes.code)(elements, count as u64, addresses.as_ptr(), results.as_mut_ptr()) };
    }
}

/// Returns a set of the first `count` of eight operands.
fn low_bits(count: usize) -> u8 {
    ((1_u16 << count) - 1) as u8
}

/// Returns how often `size` is in `bytes`. Most sizes are powers of two, and need no division.
fn quotient(bytes: usize, size: usize) -> usize {
    if size.is_power_of_two() { bytes >> size.trailing_zeros() } else { bytes / size }
}
