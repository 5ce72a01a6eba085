//! The bounds of what a server keeps of user functions, as it tells them.

mod support;

use support::{Resp, command, server_with};

const FOUR: &str = "
mod four {
    #[update] fn one(v: u8) -> u8 { v + 1 }
    #[update] fn two(v: u8) -> u8 { v + 2 }
    #[filter] fn three(v: u8) -> bool { v > 3 }
    #[reduce] fn four(v: u8, sum: u64) -> u64 { sum + 4 * v as u64 }
}
";

fn module(name: &str, number: u32) -> String {
    format!("mod {name} {{ #[update] fn f(v: u32) -> u32 {{ v + {number} }} }}")
}

fn load(source: &str) -> Vec<u8> {
    command(&[b"SKEP.FUNCTION", b"LOAD", b"REPLACE", source.as_bytes()])
}

/// Returns fields of `INFO functions`: functions, sources, bytes of sources, names.
fn usage(resp: &mut Resp) -> [usize; 4] {
    let text = resp.text("INFO functions");
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("skep_{name}:")));
        line.unwrap_or_else(|| panic!("{name} is not in {text}")).parse().expect("a number")
    };
    let names = ["functions", "function_sources", "function_source_bytes", "function_names"];
    assert_eq!(names.map(|name| field(&format!("{name}_limit"))), [512, 4096, 32 << 20, 65_535]);
    names.map(field)
}

/// A user sees how much room is left before a load is refused.
#[test]
fn the_bounds_that_are_used_are_told() {
    let server = server_with(|settings| (settings.shards, settings.memory) = (2, 16 << 20));
    let mut resp = Resp::connect(&server);
    assert_eq!(usage(&mut resp), [0; 4]);
    let (one, two) = (module("m", 1), module("m", 22));
    resp.expect(load(&one), "$1\r\nm\r\n");
    assert_eq!(usage(&mut resp), [1, 1, one.len(), 1]);
    resp.expect(load(&two), "$1\r\nm\r\n");
    assert_eq!(usage(&mut resp), [1, 2, one.len() + two.len(), 1]);
    // What is refused, and what was there, takes nothing.
    resp.expect(load(&one), "$1\r\nm\r\n");
    resp.expect(command(&[b"SKEP.FUNCTION", b"LOAD", module("m", 3).as_bytes()]), "-ERR module 'm' exists");
    resp.line();
    assert_eq!(usage(&mut resp), [1, 2, one.len() + two.len(), 1]);
    // What is deleted frees its functions alone.
    resp.expect(load(FOUR), "$4\r\nfour\r\n");
    assert_eq!(usage(&mut resp)[0], 1 + 4);
    resp.expect("SKEP.FUNCTION DELETE four\r\nSKEP.FUNCTION DELETE m\r\n", "+OK\r\n+OK\r\n");
    let bytes = one.len() + two.len() + FOUR.len();
    assert_eq!(usage(&mut resp), [0, 3, bytes, 1 + 4]);
    server.stop();
}
