//! The results of `skep cli --json`: an object on a line for each.
//!
//! ```text
//! {"key":"k", "value":"v"}         get, and each pair of scan and prefix (with --keys: {"key":"k"})
//! {"key":"k", "elements":[1,2]}    get-vector, update, reduce, filter
//! {"key":"k", "number":42}         incr
//! {"key":"k", "exists":true}       exists
//! {"key":"k", "left_ms":1500}      expiry; null: never
//! {"key":"k", "ok":true}           put, delete, expire, persist, update --no-return
//! {"count":3}   {"ok":true}        count; ping
//! {"error":"…"}                    a failure, on standard error; with "line" if it is of a line of a pipe
//! ```
//!
//! Bytes that are not UTF-8 are in a field with `_base64` after its name, as `skep export --format json` writes them. A number
//! of an element that JSON does not have, such as NaN, is text.

use std::io::{self, Write};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Map, Number, Value};
use skep::Element;

use super::request::{Command, check_width};
use crate::failure::Failure;
use crate::transfer::text_or_base64;

/// An object that is built.
#[derive(Debug, Default)]
pub(super) struct Object(Map<String, Value>);

impl Object {
    /// Adds bytes.
    pub(super) fn bytes(mut self, name: &str, bytes: &[u8]) -> Object {
        match text_or_base64(bytes) {
            (Some(text), _) => self.0.insert(name.to_owned(), text.into()),
            (None, base64) => self.0.insert(format!("{name}_base64"), base64.into()),
        };
        self
    }

    /// Adds a value.
    pub(super) fn with(mut self, name: &str, value: impl Into<Value>) -> Object {
        self.0.insert(name.to_owned(), value.into());
        self
    }

    /// Returns the line.
    pub(super) fn line(self) -> String {
        Value::Object(self.0).to_string() + "\n"
    }

    /// Prints the line.
    pub(super) fn print(self) -> Result<(), Failure> {
        Ok(io::stdout().lock().write_all(self.line().as_bytes())?)
    }
}

/// Returns the result of a command that succeeded. `value` is the value that it returned.
pub(super) fn result(command: &Command, value: Option<&[u8]>) -> Result<Object, Failure> {
    let object = Object::default().bytes("key", command.key());
    Ok(match (command, value) {
        (Command::Exists { .. }, None) => object.with("exists", true),
        (Command::Expiry { .. }, None) => object.with("left_ms", Value::Null),
        (Command::Expiry { .. }, Some(time)) => object.with("left_ms", left_until(time)),
        (_, None) => object.with("ok", true),
        (
            Command::Update { element, .. } | Command::Filter { element, .. } | Command::GetVector { element, .. },
            Some(value),
        ) => object.with("elements", elements(*element, value)?),
        (Command::Reduce { fold, element, .. }, Some(value)) => {
            object.with("elements", elements(fold.sigma(*element), value)?)
        }
        (Command::Increment { .. }, Some(value)) => object.with("number", number(&String::from_utf8_lossy(value))),
        (_, Some(value)) => object.bytes("value", value),
    })
}

/// Prints a failure on standard error. Returns one with the same exit code and without a message.
pub(super) fn report(failure: Failure, line: Option<usize>) -> Failure {
    let Some(message) = failure.message() else { return failure };
    let object = line.map_or_else(Object::default, |line| Object::default().with("line", line));
    // Nothing else can be said if standard error is closed.
    _ = io::stderr().lock().write_all(object.with("error", message).line().as_bytes());
    Failure::Told { is_usage: matches!(failure, Failure::Usage(_)) }
}

/// Returns the milliseconds until an expiry.
fn left_until(expiry: &[u8]) -> u64 {
    let expiry = Duration::from_millis(expiry.try_into().map_or(0, u64::from_le_bytes));
    let left = (UNIX_EPOCH + expiry).duration_since(SystemTime::now()).unwrap_or_default();
    left.as_millis() as u64
}

fn elements(element: Element, value: &[u8]) -> Result<Value, Failure> {
    check_width(element, value)?;
    Ok(value.chunks_exact(element.width()).map(|bytes| number(&element.format(bytes))).collect())
}

/// Returns a number; as text if JSON does not have it.
fn number(text: &str) -> Value {
    let integer = text.parse::<i64>().map(Value::from).or_else(|_| text.parse::<u64>().map(Value::from));
    match integer {
        Ok(number) if text != "-0" => number,
        // The parser of the standard library returns the nearest number, and that of serde_json another one
        // sometimes.
        _ => text.parse::<f64>().ok().and_then(Number::from_f64).map_or_else(|| text.into(), Value::Number),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(command: &Command, value: Option<&[u8]>) -> String {
        result(command, value).unwrap().line()
    }

    #[test]
    fn a_result_is_an_object_on_a_line() {
        let key = b"k\n".to_vec();
        let get = Command::Get { key: key.clone() };
        assert_eq!(line(&get, Some("zwölf".as_bytes())), "{\"key\":\"k\\n\",\"value\":\"zwölf\"}\n");
        assert_eq!(line(&get, Some(b"\xff\0")), "{\"key\":\"k\\n\",\"value_base64\":\"/wA=\"}\n");
        let binary = Command::Get { key: vec![0xff] };
        assert_eq!(line(&binary, Some(b"")), "{\"key_base64\":\"/w==\",\"value\":\"\"}\n");
        assert_eq!(line(&Command::Delete { key: key.clone() }, None), "{\"key\":\"k\\n\",\"ok\":true}\n");
        assert_eq!(line(&Command::Exists { key: key.clone() }, None), "{\"exists\":true,\"key\":\"k\\n\"}\n");
        assert_eq!(line(&Command::Expiry { key: key.clone() }, None), "{\"key\":\"k\\n\",\"left_ms\":null}\n");
        let increment = Command::Increment { key: key.clone(), delta: 1 };
        assert_eq!(line(&increment, Some(b"-42")), "{\"key\":\"k\\n\",\"number\":-42}\n");
        let vector = |element| Command::GetVector { key: key.clone(), element };
        let floats = [1.5_f64, f64::INFINITY].map(f64::to_le_bytes).concat();
        assert!(line(&vector(Element::F64), Some(&floats)).contains("\"elements\":[1.5,\"inf\"]"));
        assert!(line(&vector(Element::U64), Some(&u64::MAX.to_le_bytes())).contains("[18446744073709551615]"));
        assert!(result(&vector(Element::U64), Some(b"abc")).is_err());
    }

    #[test]
    fn a_float_is_printed_as_it_is() {
        for _ in 0..1000 {
            let float = f64::from_bits(rand::random());
            let printed = number(&Element::F64.format(&float.to_le_bytes())).to_string();
            match float.is_finite() {
                true => assert_eq!(printed.parse::<f64>().unwrap().to_bits(), float.to_bits(), "{float:e}"),
                false => assert!(printed.starts_with('"'), "{printed}"),
            }
        }
        assert_eq!(number("0.1").to_string(), "0.1");
        assert_eq!(number("18446744073709551615").to_string(), "18446744073709551615");
    }
}
