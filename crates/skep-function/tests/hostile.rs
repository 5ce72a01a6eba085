//! Hostile sources: each is refused with a position and a message, without a panic.
//!
//! Time is not measured. Without the bounds that are tested here, a test would not end, or overflow the stack.

use skep_function::{FUNCTIONS_MAX, SOURCE_SIZE_MAX, SourceError, check, compile};

/// Returns the error of a source, in both functions.
fn refusal(source: &str) -> SourceError {
    let error = check(source).expect_err(source.get(..400).unwrap_or(source));
    assert_eq!(compile(source).map(|module| module.name), Err(error.clone()));
    error
}

/// Returns a module with one function of this body.
fn body(body: &str) -> String {
    format!("mod m {{ #[update] fn f(v: i32, d: i32) -> i32 {{ {body} }} }}")
}

#[test]
fn nesting_is_refused_before_it_is_parsed() {
    let deep = |open: &str, close: &str, depth: usize| body(&(open.repeat(depth) + "v" + &close.repeat(depth)));
    for (open, close) in
        [("(", ")"), ("{", "}"), ("if true {", "} else { 1 }"), ("f(", ")"), ("[", "]"), ("v as u8 + (", ")")]
    {
        let error = refusal(&deep(open, close, 80));
        assert!(error.message.contains("nested more than 64 deep"), "{open}: {error}");
        let error = refusal(&deep(open, close, 2000));
        assert!(error.message.contains("nested more than 64 deep"), "{open}: {error}");
    }
    let inside = deep("(", ")", 60);
    compile(&inside).unwrap();
    let chains = [
        "!",
        "-",
        "- ",
        "*",
        "&",
        "&mut ",
        "return ",
        "if ",
        "match ",
        "|x| ",
        "move || ",
        "v = ",
        "v + ",
        "v as i32 as ",
        "break ",
    ];
    for chain in chains {
        for end in ["", "v"] {
            // As long as it may be: this may compile, but must not overflow the stack.
            let _ = compile(&body(&(chain.repeat(900 / chain.split_whitespace().count().max(1)) + end)));
            let error = refusal(&body(&(chain.repeat(5000) + end)));
            assert!(error.message.contains("tokens in a row"), "{chain}: {error}");
        }
    }
    for (first, chain, last) in [
        ("if v == 0 { 1 }", " else if v == 1 { 2 }", " else { 3 }"),
        ("v", " + d", ""),
        ("v", ".max(d)", ""),
        ("v", " as i64 as i32", ""),
        ("v", "[0]", ""),
        ("v", ".x", ""),
        ("v", " = d", ""),
        ("v", " && d", ""),
        ("v", " .. d", ""),
    ] {
        let error = refusal(&body(&(first.to_owned() + &chain.repeat(2500) + last)));
        assert!(error.message.contains("tokens in a row"), "{chain}: {error}");
        // As long as it may be: this must not overflow the stack.
        let source = body(&(first.to_owned() + &chain.repeat(1000 / chain.split_whitespace().count().max(4)) + last));
        let _ = compile(&source);
    }
    for ty in ["A<", "&", "*const ", "fn() -> ", "impl Fn() -> ", "dyn A + ", "for<'a> ", "[", "("] {
        refusal(&format!("mod m {{ #[update] fn f(v: {}i32) -> i32 {{ v }} }}", ty.repeat(900)));
    }
    for pattern in ["&", "(", "x @ ", "ref ", "Some(", "1 | "] {
        refusal(&body(&format!("match v {{ {}_ => 1 }}", pattern.repeat(900))));
    }
}

#[test]
fn a_long_source_is_refused() {
    for source in ["(".repeat(1 << 20), body(&"(".repeat(1 << 20)), "/*".repeat(1 << 19), body(&"v;".repeat(1 << 19))] {
        let error = refusal(&source);
        assert!(error.message.contains("more than 65536"), "{error}");
    }
    for unit in [
        "(", ")", "[", "{", "}", "<", "/*", "//", "\"", "'", "r#\"", "b'", "#", "!", "1", "a", "é", "\u{0}",
        "\u{feff}", "#![", "0x",
    ] {
        let source = unit.repeat(SOURCE_SIZE_MAX / unit.len());
        refusal(&source);
        refusal(&body(&unit.repeat((SOURCE_SIZE_MAX - 200) / unit.len())));
    }
    let error = refusal(&body(&"9".repeat(60_000)));
    assert!(error.message.contains("more than 256 characters"), "{error}");
}

#[test]
fn the_number_of_functions_and_the_length_of_names_are_limited() {
    let functions = |count: usize| {
        let functions: Vec<String> =
            (0..count).map(|index| format!("#[update] fn g{index}(v: u8) -> u8 {{ v + 1 }}")).collect();
        format!("mod m {{ {} }}", functions.join("\n"))
    };
    assert_eq!(compile(&functions(FUNCTIONS_MAX)).unwrap().functions.len(), FUNCTIONS_MAX);
    assert!(refusal(&functions(1000)).message.contains("at most 64 functions"));
    let name = "a".repeat(65);
    assert!(refusal(&format!("mod m {{ #[update] fn {name}(v: u8) -> u8 {{ v }} }}")).message.contains("more than 64"));
    assert!(refusal("mod m { #[update] fn größe(v: u8) -> u8 { v } }").message.contains("a-z"));
    let parameters: Vec<String> = (0..9).map(|index| format!("p{index}: u8")).collect();
    assert!(
        refusal(&format!("mod m {{ #[update] fn f(v: u8, {}) -> u8 {{ v }} }}", parameters.join(", ")))
            .message
            .contains("at most 8 operands")
    );
}

/// Types are stored as text too, for lists and errors: a few bytes of a source must not become megabytes of it.
#[test]
fn types_whose_text_is_long_are_refused() {
    let long = |kind: char, index: usize| format!("{kind}{index:0>62}");
    let chain = |depth: usize| -> String {
        let first = format!("struct {} {{ {}: u8 }}\n", long('S', 0), long('f', 0));
        let rest = (1..depth)
            .map(|level| format!("struct {} {{ {}: {} }}\n", long('S', level), long('f', level), long('S', level - 1)));
        first + &rest.collect::<String>()
    };
    let module = |items: &str| format!("mod m {{ {items} #[filter] fn f(v: u8) -> bool {{ true }} }}");
    compile(&module(&chain(8))).unwrap();
    assert!(refusal(&module(&chain(9))).message.contains("at most 8 deep in each other"));
    let fields = |count: usize, ty: &str| -> String { (0..count).map(|index| format!("a{index}: {ty},")).collect() };
    let wide = |count: usize| format!("{} struct T {{ {} }}", chain(7), fields(count, &long('S', 6)));
    compile(&module(&wide(8))).unwrap();
    assert!(refusal(&module(&wide(256))).message.contains("bytes as text, more than 16384"));
    let structs =
        |count: usize| -> String { (0..count).map(|index| format!("struct R{index} {{ r: u8 }}\n")).collect() };
    assert_eq!(compile(&module(&structs(64))).unwrap().records.len(), 64);
    assert!(refusal(&module(&structs(65))).message.contains("at most 64 structs"));

    let plain = format!("struct T {{ {} }}", fields(256, "u8"));
    let functions = |count: usize| -> String {
        let operands = fields(8, "T");
        (0..count).map(|index| format!("#[filter] fn g{index}(v: T, {operands}) -> bool {{ true }}\n")).collect()
    };
    let description = check(&format!("mod m {{ {plain} {} }}", functions(2))).unwrap();
    let text = |function: &skep_function::FunctionDescription| function.signature.describe(function.kind, "g").len();
    assert!(description.functions.iter().map(text).sum::<usize>() < 128 << 10);
    let error = refusal(&format!("mod m {{ {plain} {} }}", functions(6)));
    assert!(error.message.contains("more than 131072 bytes as text, together"), "{error}");
}

#[test]
fn helpers_that_double_are_refused() {
    for step in [
        "h{}(v) + h{}(v)",
        "{ h{}(v); h{}(v) }",
        "if v > 0 { h{}(v) } else { h{}(v) }",
        "h{}(h{}(v))",
        "match v { 0 => h{}(v), _ => h{}(v) }",
    ] {
        let mut source = String::from("mod m { fn h0(v: i32) -> i32 { v }\n");
        for level in 1..60 {
            let before = (level - 1).to_string();
            source += &format!("fn h{level}(v: i32) -> i32 {{ {} }}\n", step.replace("{}", &before));
        }
        source += "#[update] fn f(v: i32) -> i32 { h59(v) } }";
        let error = refusal(&source);
        assert!(error.message.contains("more than 4096 instructions"), "{error}");
    }
    let mut source = String::from("mod m { const C0: i32 = 1;\n");
    for level in 1..200 {
        source += &format!("const C{level}: i32 = C{0} + C{0};\n", level - 1);
    }
    source += "#[update] fn f(v: i32) -> i32 { C199 } }";
    assert!(refusal(&source).message.contains("more than 4096 instructions"));
    // A function that emits nothing, but is visited often.
    let nothing = "();".repeat(3000);
    let source = format!(
        "mod m {{ fn a() {{ {nothing} }} fn b() {{ {} }} fn c() {{ {} }} #[update] fn f(v: u8) -> u8 {{ c(); v }} }}",
        "a();".repeat(1000),
        "b();".repeat(1000)
    );
    assert!(refusal(&source).message.contains("more than 4096 instructions"));
}

#[test]
fn many_long_functions_are_refused() {
    // Moves of whole arrays between branches, which the compiler has to allocate, count too.
    let branches: String = (0..5).map(|index| format!("v = if v[{index}] > d {{ v }} else {{ w }};\n")).collect();
    let functions: String = (0..60)
        .map(|index| format!("#[update] fn g{index}(v: [u8; 256], d: u8) -> [u8; 256] {{ h(v, d) }}\n"))
        .collect();
    let helper = format!("fn h(w: [u8; 256], d: u8) -> [u8; 256] {{ let mut v = w; {branches} v }}");
    let error = refusal(&format!("mod m {{ {helper} {functions} }}"));
    assert!(error.message.contains("more than 16384 instructions"), "{error}");
    compile(&format!("mod m {{ {helper} #[update] fn f(v: [u8; 256], d: u8) -> [u8; 256] {{ h(v, d) }} }}")).unwrap();
}

/// Each array has as many numbers after a branch as elements, without an instruction.
#[test]
fn many_numbers_without_instructions_are_refused() {
    let source = |arrays: usize, rounds: usize| {
        let each = |text: &str| (0..arrays).map(|index| text.replace('#', &index.to_string())).collect::<String>();
        let round = |round| format!("if v == {round} {{ {} }} {}", each("a# = d; "), each("a#; "));
        let rounds: String = (0..rounds).map(round).collect();
        let arrays = format!("let b = [v; 256]; let d = [w; 256]; {}", each("let mut a# = b; "));
        format!("#[update] fn f(v: u8, w: u8) -> u8 {{ {arrays} {rounds} a0[3] }}")
    };
    for (arrays, rounds) in [(20, 4), (300, 1), (1000, 2), (1, 60)] {
        let error = refusal(&format!("mod m {{ {} }}", source(arrays, rounds)));
        assert!(error.message.contains("instructions for one element"), "{error}");
    }
    compile(&format!("mod m {{ {} }}", source(5, 2))).unwrap();
    let functions: String = (0..40).map(|index| source(5, 2).replace("fn f(", &format!("fn g{index}("))).collect();
    let error = refusal(&format!("mod m {{ {functions} }}"));
    assert!(error.message.contains("together"), "{error}");
}

#[test]
fn what_returns_may_be_an_operand() {
    for operand in
        ["-(return v)", "!(return v)", "(return v) + 1", "1 - (return v)", "(return v) << 2", "v.min(return v)"]
    {
        compile(&body(operand)).unwrap();
    }
}

/// Nothing is assigned, but the compiler looks for it in all blocks.
#[test]
fn many_reads_after_many_branches_end() {
    let arrays: String = (0..400).map(|index| format!("let a{index} = [v; 256]; ")).collect();
    let reads: String = (0..400).map(|index| format!("a{index}; ")).collect();
    let branches = "if v == w { } ".repeat(900);
    let source = format!("mod m {{ #[update] fn f(v: u8, w: u8) -> u8 {{ {arrays} {branches} {reads} v }} }}");
    assert!(refusal(&source).message.contains("instructions for one element"));
}

#[test]
fn long_functions_compile() {
    let branches: String =
        (0..300).map(|index| format!("if v[{}] > d {{ v[{}] += d; }}\n", index % 256, (index * 7) % 256)).collect();
    compile(&format!("mod m {{ #[update] fn f(v: &mut [u8; 256], d: u8) {{ {branches} }} }}")).unwrap();
    let indexes: String = (0..4).map(|index| format!("v[(d + {index}) as usize] += d;\n")).collect();
    compile(&format!("mod m {{ #[update] fn f(v: &mut [u8; 256], d: u8) {{ {indexes} }} }}")).unwrap();
    let returns: String = (0..300)
        .map(|index| format!("if v[{}] > d {{ return {index}; }} v[{index} % 256] += 1;\n", index % 256))
        .collect();
    let _ = compile(&format!("mod m {{ #[update] fn f(v: &mut [u8; 256], d: u8) -> u32 {{ {returns} 0 }} }}"));
    let sum = vec!["v"; 400].join(" + ");
    compile(&format!("mod m {{ #[update] fn f(v: u64) -> u64 {{ {sum} }} }}")).unwrap();
    let divisions: String = (0..100).map(|_| "x = x / d + 1;").collect();
    compile(&format!("mod m {{ #[update] fn f(v: u64, d: u64) -> u64 {{ let mut x = v; {divisions} x }} }}")).unwrap();
}

#[test]
fn recursion_is_refused() {
    assert!(refusal("mod m { #[update] fn f(v: u8) -> u8 { f(v) } }").message.contains("`f` calls itself"));
    let error = refusal(
        "mod m { fn g(v: u8) -> u8 { h(v) }\nfn h(v: u8) -> u8 { f(v) }\n#[update] fn f(v: u8) -> u8 { g(v) } }",
    );
    assert!(error.message.contains("calls itself"), "{error}");
    assert!(
        refusal("mod m { const A: u8 = B; const B: u8 = A; #[update] fn f(v: u8) -> u8 { A } }")
            .message
            .contains("`A` is defined by itself")
    );
    assert!(
        refusal("mod m { const A: usize = B; const B: usize = A; #[update] fn f(v: [u8; A]) -> [u8; A] { v } }")
            .message
            .contains("defined by itself")
    );
    assert!(
        refusal("mod m { struct A { b: B } struct B { a: [A; 2] } #[update] fn f(v: A) -> A { v } }")
            .message
            .contains("contains itself")
    );
}

#[test]
fn every_keyword_is_refused_as_a_name() {
    let keywords = "as break const continue crate else enum extern false fn for if impl in let loop match mod move mut pub ref return self Self static struct super trait true type unsafe use where while async await dyn abstract become box do final macro override priv typeof unsized virtual yield try gen";
    for word in keywords.split_whitespace() {
        refusal(&format!("mod {word} {{ #[update] fn f(v: u8) -> u8 {{ v }} }} }}"));
        refusal(&format!("mod m {{ #[update] fn {word}(v: u8) -> u8 {{ v }}"));
        for source in [
            format!("mod m {{ #[update] fn f({word}: u8) -> u8 {{ 1 }} }}"),
            format!("mod m {{ #[update] fn f(v: u8) -> u8 {{ let {word} = v; v }} }}"),
            format!("mod m {{ #[update] fn f(v: u8) -> u8 {{ {word} }} }}"),
            format!("mod m {{ {word} }}"),
            word.to_owned(),
        ] {
            let _ = check(&source);
        }
    }
    // Names of commands are names like others.
    compile("mod GET { #[update] fn SET(DEL: u8) -> u8 { DEL + 1 } }").unwrap();
}

#[test]
fn other_languages_are_refused() {
    for source in [
        "",
        " ",
        "return redis.call('GET', KEYS[1])",
        "def f(v):\n    return v * 2\n",
        "function f(v) { return v * 2; }",
        "SELECT * FROM t",
        "fn f(v: f32) -> f32 { v }",
        "#[update] fn f(v: f32) -> f32 { v }",
        "mod a { #[update] fn f(v: u8) -> u8 { v } } mod b { }",
        "mod a;",
        "#![no_std] mod a { }",
        "(module (func (param i32)))",
        "mod m { }",
        "mod m { fn f(v: u8) -> u8 { v } }",
    ] {
        let error = refusal(source);
        assert!(error.line >= 1 && error.column >= 1 && error.message.len() > 20, "{error}");
    }
}

/// Items that rustc refuses too, or that the language leaves out, with a part of the message.
const REFUSED: &[(&str, &str)] = &[
    ("const A: u8 = 1; #[update] fn f(A: u8) -> u8 { 1 }", "is a constant"),
    ("const A: u8 = 1; #[update] fn f(v: u8) -> u8 { let A = v; v }", "is a constant"),
    ("#[update] fn f(v: &mut ()) {}", "an element has a value"),
    ("struct S { a: () } #[update] fn f(v: S) -> S { v }", "a field has a value"),
    ("#[derive(Eq)] struct S { a: u8 } #[update] fn f(v: S) -> S { v }", "derives only"),
    ("#[derive(,)] struct S { a: u8 } #[update] fn f(v: S) -> S { v }", "derives only"),
    ("struct S {} #[update] fn f(v: S) -> S { v }", "at least one field"),
    ("struct S(u8); #[update] fn f(v: S) -> S { v }", "fields with names"),
    ("struct S<T> { a: T } #[update] fn f(v: S) -> S { v }", "type parameters"),
    ("struct S { a: [u64; 33] } #[update] fn f(v: S) -> S { v }", "from 1 to 256"),
    ("struct S { a: [u64; 32], b: u8 } #[update] fn f(v: S) -> S { v }", "257 bytes"),
    ("struct S { a: [u64; 0] } #[update] fn f(v: S) -> S { v }", "1 to 256 elements"),
    ("#[update] fn f(v: u8) -> u8 { #[inline] (v + 1) }", "an expression has no attributes"),
    ("#[update] fn f(v: u8) -> u8 { #[cold] let x = v; x }", "a statement has no attributes"),
    ("#[update] fn f(v: f32) -> f32 { v + 1e39 }", "too large for f32"),
    ("#[update] fn f(v: f64) -> f64 { v + 1e309 }", "too large for f64"),
    ("#[update] fn f(v: f64, v: f64) -> f64 { v }", "two parameters"),
    ("#[update] #[filter] fn f(v: u8) -> u8 { v }", "one kind"),
    ("#[update(fast)] fn f(v: u8) -> u8 { v }", "without more"),
    ("#[reduce(associative)] fn f(v: u8, s: u64) -> u64 { s }", "same type"),
    ("#[update] async fn f(v: u8) -> u8 { v }", "async"),
    ("#[update] unsafe fn f(v: u8) -> u8 { v }", "unsafe"),
    ("#[update] extern \"C\" fn f(v: u8) -> u8 { v }", "extern"),
    ("#[update] fn f(self) -> u8 { 1 }", "no methods"),
    ("#[update] fn f(_: u8) -> u8 { 1 }", "has a name"),
    ("#[update] fn f(v: u8) -> u8 where u8: Copy { 1 }", "where"),
    ("#[update] fn f() -> u8 { 1 }", "at least 1 parameter:"),
    ("#[update] fn f(v: u8) { v + 1; }", "returns u8"),
    ("#[filter] fn f(v: &mut u8) -> bool { true }", "only the element of an update"),
    ("#[update] fn f(v: &mut &mut u8) { }", "is a reference"),
    ("#[update] fn f(v: u8) -> u8 { let x; x = v; x }", "from the beginning"),
    ("#[update] fn f(v: u8) -> u8 { let (a, b) = v; a }", "let name = value"),
    ("#[update] fn f(v: u8) -> u8 { if let 1 = v { 2 } else { 3 } }", "patterns in conditions"),
    ("#[update] fn f(v: u8) -> u8 { let x = |a| a; x(v) }", "closures"),
    ("#[update] fn f(v: u8) -> u8 { unsafe { v } }", "nothing here is unsafe"),
    ("#[update] fn f(v: u8) -> u8 { loop { } }", "no loops"),
    ("#[update] fn f(v: u8) -> u8 { while v > 1 { } v }", "no loops"),
    ("#[update] fn f(v: u8) -> u8 { v? }", "no `?`"),
    ("#[update] fn f(v: u8) -> u8 { fn g() {} v }", "move it out"),
    ("#[update] fn f(v: u8) -> u8 { v.0 }", "no tuples"),
    ("#[update] fn f(v: u8) -> u8 { v.x }", "has no fields"),
    ("#[update] fn f(v: u8) -> u8 { v[0] }", "only arrays are indexed"),
    ("#[update] fn f(v: u8) -> u8 { 5 = v; v }", "can be changed"),
    ("#[update] fn f(v: bool) -> bool { v + v }", "&, | or ^"),
    ("#[update] fn f(v: f32) -> f32 { v & v }", "to_bits"),
    ("#[update] fn f(v: f32) -> f32 { v << 1 }", "a shift is for integers"),
    ("#[update] fn f(v: f32) -> f32 { !v }", "integers and bools"),
    ("#[update] fn f(v: f32) -> f32 { v as bool as u8 as f32 }", "does not convert to bool"),
    ("#[update] fn f(v: f32) -> f32 { (v > 1.0) as f32 }", "does not convert bool"),
    ("#[update] fn f(v: u64) -> u64 { u32::from(v) as u64 }", "does not hold every u64"),
    ("#[update] fn f(v: u8) -> u8 { v.min(1, 2) }", "takes 1 argument, not 2"),
    ("#[update] fn f(v: u8) -> u8 { u8::min(v) }", "takes 1 argument, not 0"),
    ("#[update] fn f(v: u8) -> u8 { v.min::<u8>(1) }", "no type parameters"),
    ("#[update] fn f(v: u8) -> u8 { u8::WIDTH }", "no such constant"),
    ("#[update] fn f(v: u8) -> u8 { g(v, 1) } fn g(a: u8) -> u8 { a }", "takes 1 argument, not 2"),
    ("#[update] fn f(v: u8) -> u8 { g } fn g(a: u8) -> u8 { a }", "call it"),
    ("struct S { a: u8 } #[update] fn f(v: S) -> S { S { } }", "has no value"),
    ("struct S { a: u8 } #[update] fn f(v: S) -> S { S { a: 1, a: 2 } }", "two values"),
    ("struct S { a: u8 } #[update] fn f(v: S) -> S { S { b: 1 } }", "no field `b`"),
    ("struct S { a: u8 } #[update] fn f(v: S) -> S { S { ..v } }", "write every field"),
    ("struct S { a: u8 } #[filter] fn f(v: S) -> bool { v == v }", "take the fields"),
    ("#[update] fn f(v: u8) -> u8 { match v { 1 | _ => 1 } }", "accepts all"),
    ("#[update] fn f(v: u8) -> u8 { match v { 5..=1 => 1, _ => 2 } }", "no numbers"),
    ("#[update] fn f(v: u8) -> u8 { match v { 300 => 1, _ => 2 } }", "does not fit u8"),
    ("#[update] fn f(v: u8) -> u8 { match v { 1 => 1, x if x > 2 => 2 } }", "accepts 0"),
    ("#[update] fn f(v: bool) -> bool { match v { true => false } }", "accepts false"),
    ("#[update] fn f(v: u8) -> u8 { return; }", "write `return value;`"),
    ("#[update] fn f(v: u8) -> u8 { { let x = v; } x }", "no local"),
    ("#[update] fn f(v: u8) -> u8 { v + 1u16 }", "expected u8, found u16"),
    ("#[update] fn f(v: u8) -> u8 { 1u128 as u8 }", "no type `u128`"),
];

#[test]
fn what_rustc_refuses_is_refused() {
    for (item, part) in REFUSED {
        let error = refusal(&format!("mod m {{ {item} }}"));
        assert!(error.message.contains(part), "{item}\n{error}");
        assert_eq!(error.line, 1, "{item}");
        assert!(error.column > 8, "{item}\n{error}");
    }
}
