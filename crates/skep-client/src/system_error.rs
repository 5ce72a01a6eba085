//! The text of an error of the operating system, in messages of the client.

use std::io;

/// Returns the system's error message without the number that Rust adds.
pub(crate) fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error ").next().unwrap_or_default().to_owned()
}
