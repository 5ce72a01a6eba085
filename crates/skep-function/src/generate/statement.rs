//! Random statements.

use super::{Generator, Ty};

impl Generator {
    /// Writes the body of a function that returns this type.
    pub(super) fn body(&mut self, result: &Ty) -> String {
        let statements = self.statements();
        let tail = self.expr(result, 4);
        // Sometimes the last statement returns.
        if self.random.once_in(12) { format!("{statements} return {tail};") } else { format!("{statements} {tail}") }
    }

    /// Writes a reduce that may be computed in lanes.
    pub(super) fn fold(&mut self, ty: &Ty) -> String {
        let Ty::Number(number) = ty else { unreachable!("a fold is of numbers") };
        let sigma = self.scope.iter().position(|variable| variable.text == "p0").expect("a reduce has Σ");
        let sigma = self.scope.remove(sigma).text;
        let term = self.expr(ty, 2);
        let is_float = number.starts_with('f');
        // A sum of floats is in order, because it is not marked.
        let op = if is_float {
            self.random.choose(&["+", "*"])
        } else {
            self.random.choose(&["+", "*", "&", "|", "^", "min", "max"])
        };
        match op {
            "min" | "max" => format!("{sigma}.{op}({term})"),
            op if self.random.once_in(2) => format!("{sigma} {op} {term}"),
            op => format!("{term} {op} {sigma}"),
        }
    }

    /// Writes some statements. Names that they define stay in scope.
    pub(super) fn statements(&mut self) -> String {
        let mut text = String::new();
        for _ in 0..self.random.below(4) {
            text += &self.statement();
            text.push(' ');
        }
        text
    }

    fn statement(&mut self) -> String {
        match self.random.below(8) {
            0..=2 => self.let_statement(),
            3 | 4 => self.assignment(),
            5 => {
                let condition = self.expr(&Ty::Bool, 2);
                let scope = self.scope.len();
                let inside = self.assignment();
                self.scope.truncate(scope);
                let other =
                    if self.random.once_in(2) { format!("else {{ {} }}", self.assignment()) } else { String::new() };
                self.scope.truncate(scope);
                format!("if {condition} {{ {inside} }} {other}")
            }
            6 => match self.returns.clone() {
                Some(result) => {
                    let condition = self.expr(&Ty::Bool, 2);
                    let value = self.expr(&result, 2);
                    let before = self.assignment();
                    format!("if {condition} {{ {before} return {value}; }}")
                }
                None => self.let_statement(),
            },
            _ => {
                let ty = self.stored_type(0);
                format!("let _ = {};", self.expr(&ty, 2))
            }
        }
    }

    fn let_statement(&mut self) -> String {
        let ty = if self.is_plain { self.element_type() } else { self.stored_type(2) };
        if let (Ty::Number(number), true) = (&ty, self.random.once_in(6)) {
            // The type of the literal is inferred from its use.
            let literal = format!("{}{}", self.random.below(100), if number.starts_with('f') { ".25" } else { "" });
            let name = self.declare("x", ty.clone(), false);
            return format!("let {name} = {literal}; let _: {} = {name};", self.name(&ty));
        }
        let value = self.expr(&ty, 3);
        let is_mutable = self.random.once_in(2);
        let written = self.name(&ty);
        let name = self.declare("x", ty, is_mutable);
        let mutable = if is_mutable { "mut " } else { "" };
        if self.random.once_in(3) {
            format!("let {mutable}{name}: {written} = {value};")
        } else {
            format!("let {mutable}{name} = {value};")
        }
    }

    /// Writes an assignment to a local or the element, or nothing if none can change.
    fn assignment(&mut self) -> String {
        let places: Vec<_> = self.scope.iter().filter(|variable| variable.is_mutable).cloned().collect();
        if places.is_empty() {
            return String::new();
        }
        let place = places[self.random.below(places.len())].clone();
        let (mut text, mut ty) = (place.text, place.ty);
        while !self.random.once_in(4) {
            match ty.clone() {
                Ty::Array(element, count) => {
                    text = self.element(&text, count);
                    ty = *element;
                }
                Ty::Struct(index) => {
                    let field = self.random.below(self.structs[index].len());
                    text = format!("{text}.f{field}");
                    ty = self.structs[index][field].clone();
                }
                _ => break,
            }
        }
        let value = self.expr(&ty, 2);
        let op = match &ty {
            Ty::Number(number) if number.starts_with('f') => self.random.choose(&["=", "+=", "-=", "*=", "/="]),
            Ty::Number(_) => self.random.choose(&["=", "+=", "-=", "*=", "&=", "|=", "^=", "<<=", ">>="]),
            Ty::Bool => self.random.choose(&["=", "&=", "|=", "^="]),
            _ => "=",
        };
        format!("{text} {op} {value};")
    }

    /// Writes an element of an array, with an index that is known, or that may be outside.
    pub(super) fn element(&mut self, array: &str, count: usize) -> String {
        let index = match self.random.below(8) {
            0 => {
                let number = self.random.choose(&["u8", "u16", "u32", "u64", "i32"]);
                format!("({} as usize)", self.expr(&Ty::Number(number), 1))
            }
            1 | 2 => {
                let value = self.expr(&Ty::Number("u8"), 1);
                format!("(({value} % {count}u8) as usize)")
            }
            _ => self.random.below(count).to_string(),
        };
        format!("{array}[{index}]")
    }
}
