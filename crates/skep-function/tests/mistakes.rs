//! Mistakes that users of Rust make, and people who write another language: each is refused at its position, and the message
//! says what to write instead.

use skep_function::check;

/// Each source has one line, and its error is in the line after it.
const MISTAKES: &str = include_str!("mistakes.txt");

#[test]
fn each_mistake_has_its_message() {
    let lines: Vec<&str> = MISTAKES.lines().collect();
    let mut wrong = Vec::new();
    for pair in lines.chunks(2) {
        let &[source, expected] = pair else { panic!("a source without an error: {pair:?}") };
        match check(source) {
            Err(error) if error.to_string() == expected.trim_start() => {}
            Err(error) => wrong.push(format!("{source}\n    {error}\ninstead of\n{expected}")),
            Ok(_) => wrong.push(format!("{source}\nis accepted")),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(lines.len() > 2 * 200, "{} mistakes", lines.len() / 2);
}
