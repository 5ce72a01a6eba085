//! Random changes of valid sources: tokens are removed, repeated, exchanged and replaced. Most are refused, some compile.
//! Nothing panics, a source that is checked and one that is compiled agree, and code writes nothing outside.

mod run;
mod seeds;

use run::Call;
use skep_function::generate::{Generated, Random};
use skep_function::{check, compile};

/// Changed sources of each seed. `SKEP_LONG` multiplies them.
const SOURCES: usize = 3000;

/// Tokens that replace others.
const TOKENS: &str = "0 1 2 255 -1 1.5 1e30 true false v d x u8 u16 u32 u64 usize i8 i32 i64 f16 bf16 f32 f64 bool + - * / % & | ^ \
    << >> == != < <= > >= && || ! = += -= *= /= <<= . .. ..= , ; : :: -> => ( ) [ ] { } # & &mut mut let if else match return as fn \
    struct const mod self update reduce filter associative min max abs clamp saturating_sub wrapping_add rotate_left sqrt exp \
    mul_add to_bits from_bits MAX NAN len is_nan div_euclid count_ones _ 'a \"s\" ?";

/// Divides a source into words and single characters.
fn tokens(source: &str) -> Vec<String> {
    let mut tokens: Vec<String> = Vec::new();
    let mut in_word = false;
    for character in source.chars() {
        let is_word = character.is_alphanumeric() || character == '_';
        match tokens.last_mut() {
            Some(last) if is_word && in_word => last.push(character),
            _ => tokens.push(character.to_string()),
        }
        in_word = is_word;
    }
    tokens
}

fn change(random: &mut Random, tokens: &mut Vec<String>, pool: &[&str]) {
    let index = random.below(tokens.len());
    let other = random.below(tokens.len());
    match random.below(6) {
        0 => drop(tokens.remove(index)),
        1 => tokens.insert(index, tokens[other].clone()),
        2 => tokens.swap(index, other),
        3 => {
            // A part from elsewhere.
            let part = tokens[other..].iter().take(random.below(12)).cloned().collect::<Vec<_>>();
            tokens.splice(index..index, part);
        }
        4 => tokens[index] = format!(" {} ", random.choose(pool)),
        _ => tokens.insert(index, format!(" {} ", random.choose(pool))),
    }
}

#[test]
fn changed_sources_are_refused_or_run() {
    let long: usize = std::env::var("SKEP_LONG").map_or(1, |factor| factor.parse().expect("SKEP_LONG is a number"));
    let pool: Vec<&str> = TOKENS.split_whitespace().collect();
    for seed in seeds::seeds(&[1]) {
        println!("SKEP_SEED={seed}");
        let mut random = Random::new(seed);
        let mut compiled = 0;
        for _ in 0..SOURCES * long {
            let functions = 1 + random.below(3);
            let mut tokens = tokens(&Generated::new(random.bits(), "m", functions).for_skep());
            for _ in 0..1 + random.below(4) {
                change(&mut random, &mut tokens, &pool);
            }
            let source = tokens.concat();
            let (checked, module) = (check(&source), compile(&source));
            let module = match (checked, module) {
                (Ok(checked), Ok(module)) => {
                    assert_eq!(checked.functions.len(), module.functions.len());
                    for (checked, function) in checked.functions.iter().zip(&module.functions) {
                        assert_eq!(checked.signature, function.signature, "{source}");
                    }
                    module
                }
                (Err(one), Err(two)) => {
                    assert_eq!(one, two, "{source}");
                    continue;
                }
                (checked, module) => panic!("checked: {checked:?}, compiled: {module:?}\n{source}"),
            };
            compiled += 1;
            for function in &module.functions {
                for (count, vectors) in [(0, 0), (1, 0), (37, u8::MAX), (70, 0b0101)] {
                    let mut call = Call::random(function, &mut random, count, vectors);
                    let ran = call.run(function, count % 16);
                    assert!(ran.is_ok() || function.signature.can_fail, "{} cannot fail\n{source}", function.name);
                }
            }
        }
        assert!(compiled > SOURCES / 50, "{compiled} sources compile");
    }
}
