//! The memory of code: never writable and executable at once, and freed with the last function of its module.
//!
//! Alone in its process, so that no other test maps memory meanwhile.

use skep_core::function::{Operands, UserCode, UserFunction};
use skep_function::{Module, compile};

/// Returns the permissions of all mappings of this process.
fn mappings() -> Vec<String> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    maps.lines().map(|line| line.split_whitespace().nth(1).unwrap_or_default().to_owned()).collect()
}

fn executable() -> usize {
    mappings().iter().filter(|permissions| permissions.contains('x')).count()
}

fn module(index: usize) -> Module {
    compile(&format!(
        "mod m{index} {{
            #[update] fn one(v: f32) -> f32 {{ v.exp() + {index}.0 }}
            #[filter] fn two(v: u8) -> bool {{ v > {} }}
        }}",
        index % 200
    ))
    .unwrap()
}

#[test]
fn code_is_not_writable_and_is_freed_with_the_last_function() {
    let before = executable();
    let mut modules: Vec<Module> = (0..100).map(module).collect();
    assert!(executable() > before, "code is in mappings of its own");
    for permissions in mappings() {
        assert!(!(permissions.contains('w') && permissions.contains('x')), "{permissions}");
    }
    // The code stays while one function of the module is left.
    for module in &mut modules {
        module.functions.remove(0);
    }
    assert!(executable() > before);
    let UserFunction { signature, code: UserCode::Filter(code), .. } = &modules[7].functions[0] else {
        panic!("no filter")
    };
    let mut flags = [9; 3];
    code(&[7, 8, 0], &Operands { signature, bytes: &[], vectors: 0, first: 0 }, &mut flags).unwrap();
    assert_eq!(flags, [0, 1, 0]);
    drop(modules);
    assert_eq!(executable(), before);
    // A source that is refused leaves nothing, nor does one whose last function is refused.
    let long = format!(
        "mod m {{ #[update] fn f(v: u8) -> u8 {{ v }} #[update] fn g(v: u8) -> u8 {{ {} v }} }}",
        "v / v;".repeat(300)
    );
    for _ in 0..20 {
        compile(&long).unwrap_err();
    }
    assert_eq!(executable(), before);
}
