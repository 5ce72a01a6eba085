//! Prints the results of `skep cli`: of one command to a pipe the bytes of a value, else readable lines.

use std::io::{self, Write};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use skep::Element;

use super::escape::escape;
use super::request::{Command, check_width};
use super::{Form, json};
use crate::failure::{Failure, is_shown};

/// Prints the result of a command that succeeded. `value` is the value that it returned.
pub(super) fn print(command: &Command, value: Option<&[u8]>, form: Form) -> Result<(), Failure> {
    if form == Form::Json {
        return json::result(command, value)?.print();
    }
    let bytes = match (command, value) {
        (Command::Exists { .. }, None) => b"yes\n".to_vec(),
        (Command::Expiry { .. }, None) => b"never\n".to_vec(),
        (Command::Expiry { .. }, Some(time)) => left_until(time, SystemTime::now()),
        (_, None) => b"OK\n".to_vec(),
        (
            Command::Update { element, .. } | Command::Filter { element, .. } | Command::GetVector { element, .. },
            Some(value),
        ) => elements(*element, value)?,
        (Command::Reduce { fold, element, .. }, Some(value)) => elements(fold.sigma(*element), value)?,
        (Command::Increment { .. }, Some(value)) => [value, b"\n"].concat(),
        (_, Some(value)) => plain(value, form),
    };
    let mut out = io::stdout().lock();
    out.write_all(&bytes)?;
    out.flush()?;
    Ok(())
}

/// Formats the time from now until an expiry, which is a number of milliseconds.
fn left_until(expiry: &[u8], now: SystemTime) -> Vec<u8> {
    let milliseconds = expiry.try_into().map_or(0, u64::from_le_bytes);
    let left = (UNIX_EPOCH + Duration::from_millis(milliseconds)).duration_since(now).unwrap_or_default();
    let left = Duration::from_millis(left.as_millis() as u64);
    format!("{}\n", humantime::format_duration(left)).into_bytes()
}

/// Formats the elements on one line, as they are typed.
fn elements(element: Element, value: &[u8]) -> Result<Vec<u8>, Failure> {
    check_width(element, value)?;
    let texts: Vec<_> = value.chunks_exact(element.width()).map(|bytes| element.format(bytes)).collect();
    Ok((texts.join(" ") + "\n").into_bytes())
}

/// Formats a value.
fn plain(value: &[u8], form: Form) -> Vec<u8> {
    match form {
        Form::Bytes => return value.to_vec(),
        Form::Escaped => return (escape(value) + "\n").into_bytes(),
        Form::Line | Form::Json => {}
    }
    let is_readable = |text: &&str| text.chars().all(|c| is_shown(c) || c == '\n' || c == '\t');
    let text = str::from_utf8(value).ok().filter(is_readable);
    match text {
        Some(text) => format!("{text}\n").into_bytes(),
        None => (escape(value) + "\n").into_bytes(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::{Form, elements, left_until, plain};
    use skep::Element;

    #[test]
    fn a_pipe_gets_the_bytes_and_a_terminal_gets_text() {
        assert_eq!(plain(b"a\xff\n", Form::Bytes), b"a\xff\n");
        assert_eq!(plain(b"a\xff\n", Form::Line), b"a\\xff\\n\n");
        assert_eq!(plain("zwölf".as_bytes(), Form::Line), "zwölf\n".as_bytes());
        assert_eq!(plain("a\u{202e}b".as_bytes(), Form::Line), b"a\\xe2\\x80\\xaeb\n");
        assert_eq!(plain(b"\x1b[2J", Form::Line), b"\\x1b[2J\n", "a value must not control the terminal");
    }

    #[test]
    fn the_time_that_is_left_is_printed_in_milliseconds() {
        let now = UNIX_EPOCH + Duration::from_micros(1_000_500);
        assert_eq!(left_until(&91_001u64.to_le_bytes(), now), b"1m 30s\n");
        assert_eq!(left_until(&1000u64.to_le_bytes(), now), b"0s\n");
    }

    #[test]
    fn elements_are_printed_as_they_are_typed() {
        assert_eq!(elements(Element::I16, &[1, 0, 0xff, 0xff]).unwrap(), b"1 -1\n");
        assert_eq!(elements(Element::F32, &1.5f32.to_le_bytes()).unwrap(), b"1.5\n");
        assert_eq!(elements(Element::I16, &[]).unwrap(), b"\n");
        assert!(elements(Element::I16, &[1]).is_err());
    }
}
