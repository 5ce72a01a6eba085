//! Random modules, for tests that compare this compiler with rustc, or a store with the naive store.
//!
//! A module follows from a seed. It is valid for this compiler and for rustc, with the same meaning, except where the
//! language differs from Rust. There the generated text has a name that [`Generated::for_rustc`] and [`Generated::for_skep`]
//! replace: `skep_min`, `skep_max` and `skep_to_bits` are methods that a test defines for rustc. The generator does not use
//! methods that call libm, and no `f16` and `bf16`, which stable Rust has not.

mod expr;
mod random;
mod statement;

pub use random::Random;
use skep_core::function::FunctionKind;

/// A random module.
#[derive(Clone, Debug)]
pub struct Generated {
    /// The functions that are marked.
    pub functions: Vec<GeneratedFunction>,
    /// The structs, by name, with the names of their fields.
    pub structs: Vec<(String, Vec<String>)>,
    text: String,
}

/// A marked function of a random module.
#[derive(Clone, Debug)]
pub struct GeneratedFunction {
    /// Its name in the module.
    pub name: String,
    /// Its kind.
    pub kind: FunctionKind,
    /// The element is `&mut`.
    pub is_by_reference: bool,
    /// The type of the element, in Rust's syntax; structs have a path from the module's parent.
    pub element: String,
    /// The types of the parameters after the element: Σ and the operands.
    pub others: Vec<String>,
    /// It has a result.
    pub has_result: bool,
}

/// A type of a random module.
#[derive(Clone, Debug, PartialEq)]
enum Ty {
    Bool,
    Number(&'static str),
    Array(Box<Ty>, usize),
    Struct(usize),
}

/// A name in scope.
#[derive(Clone, Debug)]
struct Variable {
    text: String,
    ty: Ty,
    is_mutable: bool,
}

/// A function that others may call.
#[derive(Clone, Debug)]
struct Helper {
    name: String,
    parameters: Vec<Ty>,
    result: Ty,
}

/// Writes a random module.
struct Generator {
    random: Random,
    module: String,
    structs: Vec<Vec<Ty>>,
    helpers: Vec<Helper>,
    constants: Vec<Variable>,
    scope: Vec<Variable>,
    /// The result type of the function that is being written, unless it may not return early.
    returns: Option<Ty>,
    /// The types of numbers that functions use.
    numbers: Vec<&'static str>,
    /// Functions avoid what has no form in lanes.
    is_plain: bool,
    /// How many more expressions the function may have.
    budget: usize,
    names: usize,
}

const NUMBERS: [&str; 10] = ["u8", "u16", "u32", "u64", "i8", "i16", "i32", "i64", "f32", "f64"];

impl Generated {
    /// Returns the random module of a seed, with this number of marked functions.
    pub fn new(seed: u64, name: &str, functions: usize) -> Generated {
        let mut generator = Generator {
            random: Random::new(seed),
            module: name.to_owned(),
            structs: Vec::new(),
            helpers: Vec::new(),
            constants: Vec::new(),
            scope: Vec::new(),
            returns: None,
            numbers: NUMBERS.to_vec(),
            is_plain: false,
            budget: 0,
            names: 0,
        };
        generator.write(functions)
    }

    /// Returns the source for this compiler.
    pub fn for_skep(&self) -> String {
        self.text.replace("skep_", "")
    }

    /// Returns the source for rustc, without the attributes of functions.
    pub fn for_rustc(&self) -> String {
        let text = self.text.replace("#[update]", "").replace("#[filter]", "");
        text.replace("#[reduce]", "").replacen("{\n", "{\nuse super::*;\n", 1)
    }
}

impl Generator {
    fn write(&mut self, functions: usize) -> Generated {
        let mut text = format!("pub mod {} {{\n", self.module);
        let mut structs = Vec::new();
        for index in 0..self.random.below(4) {
            let fields: Vec<Ty> = (0..1 + self.random.below(4)).map(|_| self.stored_type(2)).collect();
            let names: Vec<String> = (0..fields.len()).map(|field| format!("f{field}")).collect();
            let written: Vec<String> =
                names.iter().zip(&fields).map(|(name, ty)| format!("pub {name}: {}", self.name(ty))).collect();
            text += &format!("#[derive(Clone, Copy)]\npub struct S{index} {{ {} }}\n", written.join(", "));
            structs.push((format!("S{index}"), names));
            self.structs.push(fields);
        }
        for index in 0..self.random.below(3) {
            let number = self.random.choose(&NUMBERS);
            let name = format!("C{index}");
            text += &format!("pub const {name}: {number} = {};\n", self.literal(number));
            self.constants.push(Variable { text: name, ty: Ty::Number(number), is_mutable: false });
        }
        for index in 0..self.random.below(4) {
            text += &self.helper(index);
        }
        let mut written = Vec::new();
        for index in 0..functions {
            let (function, source) = self.function(index);
            text += &source;
            written.push(function);
        }
        text += "}\n";
        Generated { functions: written, structs, text }
    }

    fn helper(&mut self, index: usize) -> String {
        self.begin(12);
        let name = format!("h{index}");
        let parameters: Vec<Ty> = (0..self.random.below(4)).map(|_| self.stored_type(1)).collect();
        let result = self.stored_type(1);
        let mut written = Vec::new();
        for ty in &parameters {
            let variable = self.declare("a", ty.clone(), false);
            written.push(format!("{variable}: {}", self.name(ty)));
        }
        self.returns = Some(result.clone());
        let body = self.body(&result);
        let text = format!("fn {name}({}) -> {} {{ {body} }}\n", written.join(", "), self.name(&result));
        self.helpers.push(Helper { name, parameters, result });
        text
    }

    /// Writes a marked function.
    fn function(&mut self, index: usize) -> (GeneratedFunction, String) {
        let name = format!("g{index}");
        self.is_plain = self.random.once_in(2);
        if self.is_plain {
            let widths: [&[&str]; 4] = [&["u8", "i8"], &["u16", "i16"], &["u32", "i32", "f32"], &["u64", "i64", "f64"]];
            self.numbers = self.random.choose(&widths).to_vec();
        }
        let size = if self.is_plain { 16 } else { 50 };
        self.begin(size);
        let kind = self.random.choose(&[
            FunctionKind::Update,
            FunctionKind::Update,
            FunctionKind::Reduce,
            FunctionKind::Filter,
        ]);
        let mut element = self.element_type();
        let is_by_reference = kind == FunctionKind::Update && self.random.once_in(2);
        let mut others: Vec<Ty> = (0..self.random.below(4)).map(|_| self.element_type()).collect();
        let mut result = match kind {
            FunctionKind::Update if !is_by_reference => Some(element.clone()),
            FunctionKind::Update if self.random.once_in(2) => None,
            FunctionKind::Update => Some(self.element_type()),
            FunctionKind::Filter => Some(Ty::Bool),
            FunctionKind::Reduce => Some(self.element_type()),
        };
        let is_fold = kind == FunctionKind::Reduce && self.is_plain;
        if is_fold {
            element = Ty::Number(self.any_number());
            result = Some(element.clone());
        }
        if kind == FunctionKind::Reduce {
            others.insert(0, result.clone().expect("a reduce has a result"));
        }
        let reference = if is_by_reference { "&mut " } else { "" };
        let mut written = vec![format!("v: {reference}{}", self.name(&element))];
        let text = if is_by_reference { "(*v)" } else { "v" };
        self.scope.push(Variable { text: text.to_owned(), ty: element.clone(), is_mutable: is_by_reference });
        for (index, ty) in others.iter().enumerate() {
            let text = format!("p{index}");
            written.push(format!("{text}: {}", self.name(ty)));
            self.scope.push(Variable { text, ty: ty.clone(), is_mutable: false });
        }
        let (arrow, body) = match &result {
            Some(result) if is_fold && self.random.below(4) > 0 => {
                (format!(" -> {}", self.name(result)), self.fold(result))
            }
            Some(result) => {
                self.returns = Some(result.clone());
                (format!(" -> {}", self.name(result)), self.body(result))
            }
            None => (String::new(), self.statements()),
        };
        let source = format!("#[{}] pub fn {name}({}){arrow} {{ {body} }}\n", kind.name(), written.join(", "));
        let path = |generator: &Generator, ty: &Ty| generator.path(ty);
        let function = GeneratedFunction {
            name,
            kind,
            is_by_reference,
            element: path(self, &element),
            others: others.iter().map(|ty| path(self, ty)).collect(),
            has_result: result.is_some(),
        };
        self.numbers = NUMBERS.to_vec();
        self.is_plain = false;
        (function, source)
    }

    /// Begins a function that has at most this number of expressions, and two.
    fn begin(&mut self, budget: usize) {
        self.scope.clear();
        self.returns = None;
        self.budget = 2 + self.random.below(budget);
    }

    /// Adds a name to the scope, and returns it.
    fn declare(&mut self, prefix: &str, ty: Ty, is_mutable: bool) -> String {
        self.names += 1;
        let text = format!("{prefix}{}", self.names);
        self.scope.push(Variable { text: text.clone(), ty, is_mutable });
        text
    }

    /// Returns a type of numbers.
    fn any_number(&mut self) -> &'static str {
        let index = self.random.below(self.numbers.len());
        self.numbers[index]
    }

    /// Returns the type of an element, an operand or a result.
    fn element_type(&mut self) -> Ty {
        if self.is_plain { Ty::Number(self.any_number()) } else { self.stored_type(2) }
    }

    /// Returns a random type of at most 64 bytes; `depth` limits arrays in arrays.
    fn stored_type(&mut self, depth: usize) -> Ty {
        let ty = match self.random.below(10) {
            0 => Ty::Bool,
            1 if depth > 0 => Ty::Array(Box::new(self.stored_type(depth - 1)), 1 + self.random.below(4)),
            2 if depth > 0 && !self.structs.is_empty() => Ty::Struct(self.random.below(self.structs.len())),
            _ => Ty::Number(self.any_number()),
        };
        if self.size(&ty) <= 64 { ty } else { Ty::Bool }
    }

    /// Returns at least the bytes of a type.
    fn size(&self, ty: &Ty) -> usize {
        match ty {
            Ty::Bool => 1,
            Ty::Number(_) => 8,
            Ty::Array(element, count) => self.size(element) * count,
            Ty::Struct(index) => self.structs[*index].iter().map(|field| self.size(field)).sum(),
        }
    }

    /// Returns the name of a type inside the module.
    fn name(&self, ty: &Ty) -> String {
        match ty {
            Ty::Bool => "bool".to_owned(),
            Ty::Number(number) => (*number).to_owned(),
            Ty::Array(element, count) => format!("[{}; {count}]", self.name(element)),
            Ty::Struct(index) => format!("S{index}"),
        }
    }

    /// Returns the name of a type outside the module.
    fn path(&self, ty: &Ty) -> String {
        match ty {
            Ty::Array(element, count) => format!("[{}; {count}]", self.path(element)),
            Ty::Struct(index) => format!("{}::S{index}", self.module),
            other => self.name(other),
        }
    }
}
