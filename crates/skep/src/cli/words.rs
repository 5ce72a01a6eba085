//! The words of a command of `skep cli`, and the command that they make.

use std::ffi::OsString;
use std::io::{self, Read};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use skep::limits::VALUE_SIZE_MAX;
use skep::{Element, Expiry, ExpiryChange, Fold, Predicate, PutCondition, UpdateFunction};

use super::request::{self, Command};
use super::scan::ScanWords;
use super::{Source, life};
use crate::failure::{Failure, quoted};

/// The commands and their arguments.
#[derive(clap::Subcommand, Debug)]
pub(super) enum Words {
    /// Print pong if the server takes the password and a shard replies.
    #[command(after_help = "Example: skep cli ping")]
    Ping,
    /// Print the value of a key
    ///
    /// Into a pipe or a file, its bytes are unchanged. On a terminal, a newline follows, and a value that is not text is
    /// escaped. In reply to a command from a pipe, the value is one escaped line.
    #[command(after_help = "Example: skep cli get greeting")]
    Get {
        /// The key.
        key: OsString,
    },
    /// Set the value of a key; `-` reads the value from standard input.
    #[command(after_help = "Example: skep cli put greeting \"good morning\" --expires-in 10s")]
    Put {
        /// The key.
        key: OsString,
        /// The value, or `-` for standard input. Where standard input has the commands, `-` is refused, and "-" in quotes is
        /// that text.
        #[arg(allow_hyphen_values = true)]
        value: OsString,
        /// Only if the key does not exist.
        #[arg(long, conflicts_with = "if_present")]
        if_absent: bool,
        /// Only if the key exists.
        #[arg(long)]
        if_present: bool,
        /// Let the key expire after this time, such as 500ms, 10s or 1h30m.
        #[arg(long, value_name = "TIME", value_parser = life)]
        expires_in: Option<Duration>,
    },
    /// Let a key expire after a time.
    #[command(after_help = "Example: skep cli expire greeting 1h30m")]
    Expire {
        /// The key.
        key: OsString,
        /// The time, such as 500ms, 10s or 1h30m.
        #[arg(value_parser = life)]
        time: Duration,
    },
    /// Remove the expiry of a key.
    #[command(after_help = "Example: skep cli persist greeting")]
    Persist {
        /// The key.
        key: OsString,
    },
    /// Print the time until a key expires, or never.
    #[command(after_help = "Example: skep cli expiry greeting")]
    Expiry {
        /// The key.
        key: OsString,
    },
    /// Remove a key.
    #[command(after_help = "Example: skep cli delete greeting")]
    Delete {
        /// The key.
        key: OsString,
    },
    /// Print yes if a key exists; otherwise print no and exit with code 1.
    #[command(after_help = "Example: skep cli exists greeting")]
    Exists {
        /// The key.
        key: OsString,
    },
    /// Add to a number stored as decimal text, and print the sum; a missing key counts as 0.
    #[command(after_help = "Example: skep cli incr visits 5")]
    Incr {
        /// The key.
        key: OsString,
        /// The number to add.
        #[arg(allow_negative_numbers = true, default_value_t = 1)]
        delta: i64,
    },
    /// Replace every element of a value by a function of it, and print the old elements.
    #[command(after_help = "Example: skep cli update hits add i64 5 --init 0")]
    Update {
        /// The key.
        key: OsString,
        /// add, sub, mul, min, max, and, or, xor, swap, cas or wrap.
        #[arg(value_parser = function)]
        function: UpdateFunction,
        /// Type of the elements: u8 to u64, i8 to i64, f32, f64.
        #[arg(value_parser = element)]
        element: Element,
        /// One operand for all elements, or one for each; cas (expected, new) and wrap (delta, refill) take two.
        #[arg(allow_negative_numbers = true)]
        operands: Vec<String>,
        /// Elements to begin with if the key is missing.
        #[arg(long, value_name = "ELEMENT", num_args = 1.., allow_negative_numbers = true)]
        init: Vec<String>,
        /// Do not print the old elements.
        #[arg(long)]
        no_return: bool,
    },
    /// Fold the elements of a value to one, beginning with INITIAL.
    #[command(after_help = "Example: skep cli reduce hits sum i64 0")]
    Reduce {
        /// The key.
        key: OsString,
        /// sum, min, max, dot, count, or wide-sum, whose sum has eight bytes.
        #[arg(value_parser = fold)]
        fold: Fold,
        /// Type of the elements: u8 to u64, i8 to i64, f32, f64.
        #[arg(value_parser = element)]
        element: Element,
        /// The number that the fold begins with.
        #[arg(allow_negative_numbers = true)]
        initial: String,
        /// For dot: a constant for each element.
        #[arg(allow_negative_numbers = true)]
        constants: Vec<String>,
    },
    /// Print the elements of a value for which a predicate holds.
    #[command(after_help = "Example: skep cli filter hits gt i64 3")]
    Filter {
        /// The key.
        key: OsString,
        /// eq, gt, lt, or nonzero, which needs no operand.
        #[arg(value_parser = predicate)]
        predicate: Predicate,
        /// Type of the elements: u8 to u64, i8 to i64, f32, f64.
        #[arg(value_parser = element)]
        element: Element,
        /// The element to compare with.
        #[arg(allow_negative_numbers = true)]
        operand: Option<String>,
    },
    /// Set the value of a key to a vector of elements.
    #[command(after_help = "Example: skep cli set-vector weights f32 0.5 1.5 2")]
    SetVector {
        /// The key.
        key: OsString,
        /// Type of the elements: u8 to u64, i8 to i64, f32, f64.
        #[arg(value_parser = element)]
        element: Element,
        /// The elements.
        #[arg(required = true, allow_negative_numbers = true)]
        elements: Vec<String>,
    },
    /// Print the value of a key as a vector of elements.
    #[command(after_help = "Example: skep cli get-vector weights f32")]
    GetVector {
        /// The key.
        key: OsString,
        /// Type of the elements: u8 to u64, i8 to i64, f32, f64.
        #[arg(value_parser = element)]
        element: Element,
    },
    #[command(flatten)]
    Scan(ScanWords),
}

/// Builds the command from the words.
pub(super) fn command(words: Words, source: Source) -> Result<Command, Failure> {
    Ok(match words {
        Words::Get { key } => Command::Get { key: bytes(key) },
        Words::Put { key, value, if_absent, if_present, expires_in } => Command::Put {
            key: bytes(key),
            value: value_or_input(value, source)?,
            condition: request::condition(if_absent, if_present),
            expiry: expires_in.map_or(ExpiryChange::CLEAR, expires_in_from_now),
        },
        Words::Expire { key, time } => Command::Expire { key: bytes(key), expiry: expires_in_from_now(time) },
        Words::Persist { key } => Command::Expire { key: bytes(key), expiry: ExpiryChange::CLEAR },
        Words::Expiry { key } => Command::Expiry { key: bytes(key) },
        Words::Delete { key } => Command::Delete { key: bytes(key) },
        Words::Exists { key } => Command::Exists { key: bytes(key) },
        Words::Incr { key, delta } => Command::Increment { key: bytes(key), delta },
        Words::Update { key, function, element, operands, init, no_return } => Command::Update {
            key: bytes(key),
            function,
            element,
            operand: parse(element, &operands)?,
            initial: if init.is_empty() { None } else { Some(parse(element, &init)?) },
            return_old: !no_return,
        },
        Words::Reduce { key, fold, element, initial, constants } => Command::Reduce {
            key: bytes(key),
            fold,
            element,
            initial: parse(fold.sigma(element), &[initial])?,
            constants: parse(element, &constants)?,
        },
        Words::Filter { key, predicate, element, operand } => {
            Command::Filter { key: bytes(key), predicate, element, operand: parse(element, operand.as_slice())? }
        }
        Words::SetVector { key, element, elements } => Command::Put {
            key: bytes(key),
            value: parse(element, &elements)?,
            condition: PutCondition::Always,
            expiry: ExpiryChange::CLEAR,
        },
        Words::GetVector { key, element } => Command::GetVector { key: bytes(key), element },
        Words::Scan(_) | Words::Ping => unreachable!("it is not a request on one key"),
    })
}

fn bytes(word: OsString) -> Vec<u8> {
    use std::os::unix::ffi::OsStringExt;
    word.into_vec()
}

/// Returns the change to the expiry that is this long after now.
fn expires_in_from_now(life: Duration) -> ExpiryChange {
    let time = SystemTime::now().checked_add(life).and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    let expiry = time.and_then(|time| Expiry::at(i64::try_from(time.as_millis()).ok()?));
    ExpiryChange::set(expiry.unwrap_or(Expiry::MAX))
}

/// Returns the word itself, or the standard input if it is `-`.
fn value_or_input(word: OsString, source: Source) -> Result<Vec<u8>, Failure> {
    if word != "-" || source == (Source::Line { is_dash_quoted: true }) {
        return Ok(bytes(word));
    }
    if source != Source::CommandLine {
        let refusal = "`-` is standard input, which has the commands here: write \"-\", in quotes, to put that text, or \
                       run `skep cli put KEY -` to put the standard input of that program";
        return Err(Failure::Usage(refusal.to_owned()));
    }
    let mut value = Vec::new();
    // Reads one byte more than allowed, so that a value which is too long is refused and not truncated.
    io::stdin().lock().take(VALUE_SIZE_MAX as u64 + 1).read_to_end(&mut value)?;
    Ok(value)
}

fn parse(element: Element, words: &[String]) -> Result<Vec<u8>, Failure> {
    let mut elements = Vec::with_capacity(words.len() * element.width());
    for word in words {
        element.parse(word, &mut elements).map_err(|error| {
            Failure::Usage(format!("`{}` is not of type {}: {error}", quoted(word), element.name()))
        })?;
    }
    Ok(elements)
}

fn element(name: &str) -> Result<Element, String> {
    Element::from_name(name).ok_or_else(|| {
        format!("`{name}` is not an element type: write one of {}", names(&Element::ALL.map(Element::name)))
    })
}

fn function(name: &str) -> Result<UpdateFunction, String> {
    UpdateFunction::from_name(name)
        .ok_or_else(|| not_built_in(name, "function", &UpdateFunction::ALL.map(UpdateFunction::short_name), "UPDATE"))
}

fn fold(name: &str) -> Result<Fold, String> {
    Fold::from_name(name).ok_or_else(|| not_built_in(name, "fold", &Fold::ALL.map(Fold::name), "REDUCE"))
}

fn predicate(name: &str) -> Result<Predicate, String> {
    Predicate::from_name(name)
        .ok_or_else(|| not_built_in(name, "predicate", &Predicate::ALL.map(Predicate::short_name), "FILTER"))
}

/// Says what to write instead of a name that is not built in. Names of user functions have a dot.
fn not_built_in(name: &str, kind: &str, all: &[&str], command: &str) -> String {
    if name.contains('.') {
        return format!("`{name}` is a user function: send SKEP.{command} to the RESP port, as with redis-cli");
    }
    format!("`{name}` is not a {kind}: write one of {}", names(all))
}

fn names(all: &[&str]) -> String {
    all.join(", ")
}
