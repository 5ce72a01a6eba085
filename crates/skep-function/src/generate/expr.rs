//! Random expressions.

use super::{Generator, Ty};

impl Generator {
    /// Writes an expression of this type. It is closed by itself, so that operators may be written around it.
    pub(super) fn expr(&mut self, ty: &Ty, depth: usize) -> String {
        if depth == 0 || self.budget == 0 {
            return self.leaf(ty);
        }
        self.budget -= 1;
        if self.random.once_in(4) {
            return self.shared(ty, depth);
        }
        match ty {
            Ty::Bool => self.bool_expr(depth - 1),
            Ty::Number(number) if number.starts_with('f') => self.float_expr(number, depth - 1),
            Ty::Number(number) => self.int_expr(number, depth - 1),
            Ty::Array(element, count) => {
                if self.random.once_in(3) {
                    return format!("[{}; {count}]", self.expr(element, depth - 1));
                }
                let elements: Vec<String> = (0..*count).map(|_| self.expr(element, depth - 1)).collect();
                format!("[{}]", elements.join(", "))
            }
            Ty::Struct(index) => {
                let fields = self.structs[*index].clone();
                let mut values: Vec<String> = fields
                    .iter()
                    .enumerate()
                    .map(|(field, ty)| format!("f{field}: {}", self.expr(ty, depth - 1)))
                    .collect();
                let turn = self.random.below(values.len());
                values.rotate_left(turn);
                format!("(S{index} {{ {} }})", values.join(", "))
            }
        }
    }

    /// Writes an expression that all types have: a branch, a block, a call.
    fn shared(&mut self, ty: &Ty, depth: usize) -> String {
        let depth = depth - 1;
        match self.random.below(6) {
            0 | 1 => {
                let condition = self.expr(&Ty::Bool, depth);
                let (one, two) = (self.expr(ty, depth), self.expr(ty, depth));
                format!("(if {condition} {{ {one} }} else {{ {two} }})")
            }
            2 => self.match_expr(ty, depth),
            3 => {
                let scope = self.scope.len();
                let statements = self.statements();
                let value = self.expr(ty, depth);
                self.scope.truncate(scope);
                format!("({{ {statements} {value} }})")
            }
            4 => {
                let helpers: Vec<_> = self.helpers.iter().filter(|helper| helper.result == *ty).cloned().collect();
                if helpers.is_empty() {
                    return self.leaf(ty);
                }
                let helper = helpers[self.random.below(helpers.len())].clone();
                let arguments: Vec<String> = helper.parameters.iter().map(|ty| self.expr(ty, depth.min(1))).collect();
                format!("{}({})", helper.name, arguments.join(", "))
            }
            _ => match self.returns.clone() {
                // A branch may return instead of giving a value.
                Some(result) if self.random.once_in(3) => {
                    let condition = self.expr(&Ty::Bool, depth);
                    let (value, early) = (self.expr(ty, depth), self.expr(&result, depth));
                    format!("(if {condition} {{ return {early} }} else {{ {value} }})")
                }
                _ => self.leaf(ty),
            },
        }
    }

    /// Writes the guard of an arm. It changes no variable from outside.
    fn guard(&mut self, depth: usize) -> String {
        let scope = self.scope.clone();
        self.scope.iter_mut().for_each(|variable| variable.is_mutable = false);
        let guard = self.expr(&Ty::Bool, depth.min(1));
        self.scope = scope;
        format!(" if {guard}")
    }

    fn match_expr(&mut self, ty: &Ty, depth: usize) -> String {
        if self.random.once_in(4) {
            let value = self.expr(&Ty::Bool, depth);
            let (one, two) = (self.expr(ty, depth), self.expr(ty, depth));
            return format!("(match {value} {{ true => {one}, false => {two} }})");
        }
        let number = self.integer();
        let value = self.expr(&Ty::Number(number), depth);
        let mut arms = Vec::new();
        for _ in 0..1 + self.random.below(3) {
            let pattern = match self.random.below(4) {
                0 => {
                    let (one, two) = (self.small(number), self.small(number));
                    format!("{}..={}", one.min(two), one.max(two))
                }
                1 => format!("{} | {}", self.small(number), self.small(number)),
                2 => self.literal(number).trim_matches(['(', ')']).to_owned(),
                _ => format!("{}..", self.small(number)),
            };
            let guard = if self.random.once_in(4) { self.guard(depth) } else { String::new() };
            arms.push(format!("{pattern}{guard} => {}", self.expr(ty, depth)));
        }
        if self.random.once_in(2) {
            let scope = self.scope.len();
            let name = self.declare("m", Ty::Number(number), false);
            arms.push(format!("{name} => {}", self.expr(ty, depth)));
            self.scope.truncate(scope);
        } else {
            arms.push(format!("_ => {}", self.expr(ty, depth)));
        }
        format!("(match {value} {{ {} }})", arms.join(", "))
    }

    /// Writes a variable, a part of one, a constant or a literal.
    pub(super) fn leaf(&mut self, ty: &Ty) -> String {
        let mut found = Vec::new();
        for variable in self.scope.iter().chain(&self.constants) {
            self.parts(&variable.text, &variable.ty, ty, &mut found);
        }
        if !found.is_empty() && !self.random.once_in(4) {
            let text = found[self.random.below(found.len())].clone();
            return self.fill_indexes(&text);
        }
        match ty {
            Ty::Bool => self.random.choose(&["true", "false"]).to_string(),
            Ty::Number(number) if self.random.once_in(16) => {
                format!("{number}::{}", self.random.choose(&["MIN", "MAX"]))
            }
            Ty::Number(number) => self.literal(number),
            Ty::Array(element, count) => {
                let element = self.leaf(element);
                format!("[{element}; {count}]")
            }
            Ty::Struct(index) => {
                let fields = self.structs[*index].clone();
                let values: Vec<String> =
                    fields.iter().enumerate().map(|(field, ty)| format!("f{field}: {}", self.leaf(ty))).collect();
                format!("(S{index} {{ {} }})", values.join(", "))
            }
        }
    }

    /// Collects the parts of a variable that have the type. An index is written as `[#count]`.
    fn parts(&self, text: &str, from: &Ty, ty: &Ty, found: &mut Vec<String>) {
        if from == ty {
            found.push(text.to_owned());
        }
        match from {
            Ty::Array(element, count) => self.parts(&format!("{text}[#{count}]"), element, ty, found),
            Ty::Struct(index) => {
                for (field, from) in self.structs[*index].iter().enumerate() {
                    self.parts(&format!("{text}.f{field}"), from, ty, found);
                }
            }
            _ => {}
        }
    }

    fn fill_indexes(&mut self, text: &str) -> String {
        let mut parts = text.split("[#");
        let mut filled = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let (count, rest) = part.split_once(']').expect("an index is closed");
            let count: usize = count.parse().expect("a count");
            filled = if self.budget == 0 || self.is_plain {
                format!("{filled}[{}]", self.random.below(count))
            } else {
                self.budget -= 1;
                self.element(&filled, count)
            };
            filled += rest;
        }
        filled
    }

    fn bool_expr(&mut self, depth: usize) -> String {
        match self.random.below(8) {
            0 => format!("(!{})", self.expr(&Ty::Bool, depth)),
            1 | 2 => {
                let op = self.random.choose(&["&&", "||", "&", "|", "^", "==", "!=", "<", ">="]);
                format!("({} {op} {})", self.expr(&Ty::Bool, depth), self.expr(&Ty::Bool, depth))
            }
            3 if self.numbers.iter().any(|number| number.starts_with('f')) => {
                let float = self.float();
                let method = self.random.choose(&["is_nan", "is_finite", "is_infinite"]);
                format!("{}.{method}()", self.expr(&Ty::Number(float), depth))
            }
            _ => {
                let number = self.any_number();
                let op = self.random.choose(&["==", "!=", "<", "<=", ">", ">="]);
                let left = self.expr(&Ty::Number(number), depth);
                format!("({left} {op} {})", self.expr(&Ty::Number(number), depth))
            }
        }
    }

    fn int_expr(&mut self, number: &'static str, depth: usize) -> String {
        let ty = Ty::Number(number);
        let is_signed = number.starts_with('i');
        let one = self.expr(&ty, depth);
        match self.random.below(18) {
            0..=3 => {
                let op = self.random.choose(&["+", "-", "*", "&", "|", "^"]);
                // The type of a literal without suffix follows from the other operand.
                let two =
                    if self.random.once_in(6) { self.random.below(100).to_string() } else { self.expr(&ty, depth) };
                format!("({one} {op} {two})")
            }
            4 => format!("({one} {} {})", self.random.choose(&["<<", ">>"]), self.shift_amount(depth)),
            5 if !self.is_plain => self.division(number, &one, depth),
            6 => format!("(!{one})"),
            7 if is_signed => format!("(-{one})"),
            8..=12 => self.int_method(number, one, depth),
            13 => format!("({} as {number})", self.expr(&Ty::Bool, depth)),
            // The same by the path of the type, without a literal or a name of the scope.
            14 => format!(
                "{number}::{}({one}, {})",
                self.random.choose(&["wrapping_add", "saturating_sub"]),
                self.expr(&ty, depth)
            ),
            15 if number == "u64" && !self.is_plain => {
                let narrow = self.random.choose(&["u8", "u16", "u32"]);
                format!("u64::from({})", self.expr(&Ty::Number(narrow), depth))
            }
            15 => format!("{:#x}_{number}", self.random.below(100)),
            _ => {
                let from = self.any_number();
                format!("({} as {number})", self.expr(&Ty::Number(from), depth))
            }
        }
    }

    fn int_method(&mut self, number: &'static str, one: String, depth: usize) -> String {
        let ty = Ty::Number(number);
        let is_signed = number.starts_with('i');
        match self.random.below(5) {
            0 => {
                let mut methods = vec![
                    "min",
                    "max",
                    "wrapping_add",
                    "wrapping_sub",
                    "wrapping_mul",
                    "saturating_add",
                    "saturating_sub",
                    "saturating_mul",
                ];
                if self.is_plain {
                    methods.truncate(7);
                }
                let method = self.random.choose(&methods);
                format!("{one}.{method}({})", self.expr(&ty, depth))
            }
            1 => {
                let method = self.random.choose(&["rotate_left", "rotate_right", "wrapping_shl", "wrapping_shr"]);
                let amount = if self.is_plain {
                    self.random.below(70).to_string()
                } else {
                    self.expr(&Ty::Number("u32"), depth)
                };
                format!("{one}.{method}({amount})")
            }
            2 if is_signed => {
                format!("{one}.{}()", self.random.choose(&["abs", "signum", "wrapping_neg", "wrapping_abs"]))
            }
            3 => {
                let (low, high) = (self.small(number), self.small(number));
                format!("{one}.clamp({}, {})", low.min(high), low.max(high))
            }
            4 if number == "u32" && !self.is_plain => {
                let other = self.integer();
                let method = self.random.choose(&["count_ones", "count_zeros", "leading_zeros", "trailing_zeros"]);
                format!("{}.{method}()", self.expr(&Ty::Number(other), depth))
            }
            4 if number == "u32" || number == "u64" => {
                let float = if number == "u32" { "f32" } else { "f64" };
                format!("{}.skep_to_bits()", self.expr(&Ty::Number(float), depth))
            }
            4 if !is_signed => format!("{one}.abs_diff({})", self.expr(&ty, depth)),
            _ => one,
        }
    }

    /// Writes a division. The smallest number divided by -1 panics in Rust, so it is written as `wrapping_div`.
    fn division(&mut self, number: &'static str, one: &str, depth: usize) -> String {
        let is_signed = number.starts_with('i');
        let literal = 1 + self.random.below(100);
        match self.random.below(6) {
            0 => format!("({one} / {literal})"),
            1 => format!("({one} % {literal})"),
            2 => format!("{one}.{}({literal})", self.random.choose(&["div_euclid", "rem_euclid"])),
            _ if is_signed => {
                let method = self.random.choose(&["wrapping_div", "wrapping_rem"]);
                format!("{one}.{method}({})", self.expr(&Ty::Number(number), depth))
            }
            _ => {
                let op = self.random.choose(&["/", "%"]);
                format!("({one} {op} {})", self.expr(&Ty::Number(number), depth))
            }
        }
    }

    fn shift_amount(&mut self, depth: usize) -> String {
        if self.is_plain || self.random.once_in(3) {
            return self.random.below(8).to_string();
        }
        let number = self.integer();
        self.expr(&Ty::Number(number), depth)
    }

    fn float_expr(&mut self, number: &'static str, depth: usize) -> String {
        let ty = Ty::Number(number);
        let one = self.expr(&ty, depth);
        match self.random.below(12) {
            0..=4 => {
                let op = self.random.choose(&["+", "-", "*", "/"]);
                let two = if self.random.once_in(6) {
                    format!("{}.5", self.random.below(100))
                } else {
                    self.expr(&ty, depth)
                };
                format!("({one} {op} {two})")
            }
            5 => format!("(-{one})"),
            6 => {
                let method = self.random.choose(&["abs", "sqrt", "floor", "ceil", "trunc", "round", "round_ties_even"]);
                format!("{one}.{method}()")
            }
            7 => format!("{one}.skep_{}({})", self.random.choose(&["min", "max"]), self.expr(&ty, depth)),
            8 => {
                let low = self.random.below(100) as i32 - 50;
                format!("{one}.clamp({low}.0, {}.5)", low + 1 + self.random.below(50) as i32)
            }
            9 => format!("{one}.mul_add({}, {})", self.expr(&ty, depth), self.expr(&ty, depth)),
            10 if self.random.once_in(3) => {
                let bits = if number == "f32" { "u32" } else { "u64" };
                format!("{number}::from_bits({})", self.expr(&Ty::Number(bits), depth))
            }
            10 if !self.is_plain && number == "f32" && self.random.once_in(3) => {
                format!("({one} % {})", self.expr(&ty, depth))
            }
            _ => {
                let from = self.any_number();
                format!("({} as {number})", self.expr(&Ty::Number(from), depth))
            }
        }
    }

    /// Returns a type of integers.
    fn integer(&mut self) -> &'static str {
        let integers: Vec<&str> = self.numbers.iter().copied().filter(|number| !number.starts_with('f')).collect();
        self.random.choose(&integers)
    }

    fn float(&mut self) -> &'static str {
        let floats: Vec<&str> = self.numbers.iter().copied().filter(|number| number.starts_with('f')).collect();
        self.random.choose(&floats)
    }

    /// Returns a small integer that the type holds.
    fn small(&mut self, number: &str) -> i64 {
        let value = self.random.below(100) as i64;
        if number.starts_with('i') { value - 50 } else { value }
    }

    /// Writes a literal, often one at an edge of the type.
    pub(super) fn literal(&mut self, number: &str) -> String {
        let width = match number {
            "u8" | "i8" => 1,
            "u16" | "i16" => 2,
            "u32" | "i32" | "f32" => 4,
            _ => 8,
        };
        let is_float = number.starts_with('f');
        let bits = u64::from_le_bytes(self.random.number_bytes(width, is_float));
        let text = match number {
            "f32" => format!("{:?}", f32::from_bits(bits as u32)),
            "f64" => format!("{:?}", f64::from_bits(bits)),
            "i8" => (bits as i8).to_string(),
            "i16" => (bits as i16).to_string(),
            "i32" => (bits as i32).to_string(),
            "i64" => (bits as i64).to_string(),
            _ => bits.to_string(),
        };
        match text.as_str() {
            "NaN" => format!("{number}::NAN"),
            "inf" => format!("{number}::INFINITY"),
            "-inf" => format!("{number}::NEG_INFINITY"),
            text if text.starts_with('-') => format!("({text}{number})"),
            text => format!("{text}{number}"),
        }
    }
}
