//! The names of functions: their numbers, and their bound.

use std::sync::Arc;

use skep_core::function::{Element, Layout, Scalar, Signature, UserCode, UserFunction};
use skep_log::FUNCTION_NAMES_MAX;

use super::{Change, FunctionLoader, FunctionNames, Module};

/// Returns a loader that has given this many names.
fn with_names(count: usize) -> FunctionLoader {
    let loader = FunctionLoader::new(1);
    let names: Vec<String> = (0..count).map(|number| format!("old.f{number}")).collect();
    loader.loaded().names = Arc::new(FunctionNames::new(&names));
    loader
}

/// Returns a module with these functions.
fn module(name: &str, functions: &[&str]) -> String {
    let function = |name: &&str| format!("#[update] fn {name}(v: u32) -> u32 {{ v + 1 }}");
    format!("mod {name} {{ {} }}", functions.iter().map(function).collect::<String>())
}

/// Returns the current modules, each with the numbers of its functions.
fn numbers(loader: &FunctionLoader) -> Vec<(String, Vec<u32>)> {
    loader.modules().iter().map(|module| (module.name.clone(), module.numbers().to_vec())).collect()
}

#[test]
fn the_bound_of_names_holds_without_a_data_directory() {
    let last = FUNCTION_NAMES_MAX as u32;
    let loader = with_names(FUNCTION_NAMES_MAX - 2);
    let refused = |source: &str, replaces| {
        let error = loader.load(source, replaces).expect_err("too many names");
        assert!(error.contains("at most 65535: use names of functions that it had before"), "{error}");
    };
    refused(&module("m", &["f", "g", "h"]), false);
    assert_eq!(loader.modules().len(), 0);
    loader.load(&module("m", &["f", "g"]), false).unwrap();
    let loaded = [("m".to_owned(), vec![last - 1, last])];
    assert_eq!(numbers(&loader), loaded);
    assert_eq!(loader.functions().find("m.g").map(|found| (found.id, found.revision)), Some((last, 1)));

    // Also for modules that are replaced, and after the names were deleted.
    refused(&module("m", &["f", "h"]), true);
    assert_eq!(numbers(&loader), loaded);
    loader.load(&module("m", &["g"]), true).unwrap();
    assert_eq!(numbers(&loader), [("m".to_owned(), vec![last])]);
    assert!(loader.make(&Change::Delete { name: "m".to_owned() }).unwrap().is_some());
    refused(&module("n", &["f"]), false);

    // Names that the server had keep their numbers.
    loader.load(&module("old", &["f7", "f0"]), false).unwrap();
    loader.load(&module("m", &["f"]), false).unwrap();
    assert_eq!(numbers(&loader), [("m".to_owned(), vec![last - 1]), ("old".to_owned(), vec![8, 1])]);
}

/// If each name were compared with all before, these would be two billion comparisons.
#[test]
fn as_many_names_as_possible_get_numbers_in_their_order() {
    let function = |number: usize| {
        let element = Layout::number(Scalar::Element(Element::U8));
        let signature = Signature { element, operands: Vec::new(), result: None, work: 1, can_fail: false };
        UserFunction::new(
            &format!("m{}.f{number}", number / 64),
            signature,
            UserCode::Update(Box::new(|_, _, _| Ok(()))),
        )
    };
    let mut names = FunctionNames::default();
    for first in (0..FUNCTION_NAMES_MAX).step_by(64) {
        let functions: Vec<UserFunction> = (first..FUNCTION_NAMES_MAX.min(first + 64)).map(function).collect();
        names.add(&functions).unwrap();
        // Those that have a number keep it.
        names.add(&functions).unwrap();
    }
    names.add(&[function(FUNCTION_NAMES_MAX)]).unwrap_err();
    assert_eq!(names.in_order.len(), FUNCTION_NAMES_MAX);
    for (name, number) in names.in_order.iter().zip(1..) {
        assert_eq!(names.number(name), Some(number), "{name}");
    }
}

/// A source that was replaced before the start is compiled for the log only: its module keeps its functions.
#[test]
fn a_module_that_is_loaded_again_has_its_functions() {
    let loader = FunctionLoader::new(1);
    let (first, second) = (module("m", &["f", "g"]), module("m", &["g", "h"]));
    for (source, numbers, revision) in [(&first, [1, 2], 1), (&second, [2, 3], 2), (&first, [1, 2], 1)] {
        loader.load(source, true).unwrap();
        let modules = loader.modules();
        let [Module { revision: found, .. }] = modules[..] else { panic!("one module") };
        assert_eq!((modules[0].numbers(), found), (&numbers[..], revision));
        for name in ["m.f", "m.g", "m.h"] {
            let number = loader.functions().find(name).map(|handle| handle.id);
            let expected = modules[0].functions().iter().position(|function| function.name == name);
            assert_eq!(number, expected.map(|index| numbers[index]), "{name}");
        }
    }
}
