//! `skep log dump`: prints the operations of a log, and the pairs of a snapshot, a line each.
//!
//! ```text
//! block     time or version           space    operation  key     operands
//! 17        2026-11-24T00:48:08.123Z  hash     put        name    skep
//! 18        version 7                 ordered  delete     user:4
//! 19        -                         hash     flush      -       shard 1 of 2
//! 20        2026-11-24T00:48:09.456Z  hash     call       bucket  limits.take revision 3 0x0100000000002041
//! snapshot  -                         hash     put        hits    12
//! ```
//!
//! A call is shown with the name of its function, or with its number if the directory has no such name. Its operands are
//! bytes: their types are in the source of the function, which is not read.

use std::io::{self, BufWriter, Write};
use std::time::{Duration, UNIX_EPOCH};

use skep::{
    CACHE_SPACE, Element, ExpiryChange, HASH_SPACE, ORDERED_SPACE, Operation, Request, StringWrite, Update, WireError,
};
use skep_core::operation::Call;
use skep_log::{BlockView, Chunk, Directory, Files, LogError, Section, StoredFunctions};

use crate::failure::Failure;

/// Bytes of a key or value that are printed.
const BYTES_MAX: usize = 100;
/// Elements of an operand that are printed.
const ELEMENTS_MAX: usize = 8;

/// What is printed.
#[derive(clap::Args, Debug)]
pub(super) struct Options {
    /// Most lines to print.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    limit: Option<u64>,
    /// Print the pairs of the snapshot before the log.
    #[arg(long)]
    snapshot: bool,
}

/// The reason why no further line is printed.
enum Stop {
    Limit,
    Output(io::Error),
    Unknown(WireError),
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        Stop::Output(error)
    }
}

impl From<WireError> for Stop {
    fn from(error: WireError) -> Self {
        Stop::Unknown(error)
    }
}

/// Prints a directory. An error of the directory ends the output.
pub(super) fn dump(directory: &Directory<Files>, options: &Options) -> Result<(), Failure> {
    // Without names, the rest can be printed. The error is the last thing that is said.
    let (functions, functions_error) = match directory.functions() {
        Ok((functions, _)) => (functions, None),
        Err(error) => (StoredFunctions::default(), Some(error)),
    };
    let (out, left) = (BufWriter::new(io::stdout().lock()), options.limit.unwrap_or(u64::MAX));
    let mut lines = Lines { out, left, functions };
    // Readers know only errors of operations. One of these ends the reading, and the reason is kept here.
    let mut stop = None;
    let mut end = |reason| match reason {
        Stop::Unknown(error) => error,
        reason => {
            stop = Some(reason);
            WireError::UnknownOperation
        }
    };
    let mut print = || {
        if options.snapshot {
            let shards = directory.manifest().map_or(0, |manifest| manifest.shards.len());
            for shard in 0..shards {
                directory.read_snapshot(shard as u16, |chunk| lines.chunk(HASH_SPACE, chunk).map_err(&mut end))?;
            }
            directory.read_ordered_snapshot(|chunk| lines.chunk(ORDERED_SPACE, chunk).map_err(&mut end))?;
        }
        directory.read_log(true, |blocks| {
            for block in blocks {
                lines.block(&block).map_err(|reason| (block.number, end(reason)))?;
            }
            Ok(())
        })
    };
    let printed = print();
    lines.out.flush()?;
    match (stop, printed) {
        (Some(Stop::Output(error)), _) => Err(error.into()),
        (Some(_), _) => Ok(()),
        (None, Err(error)) => Err(Failure::Runtime(error.to_string())),
        (None, Ok(end)) => {
            let lost = end.loss.map(|loss| loss.to_string()).or(end.missing);
            match lost.or(functions_error.as_ref().map(LogError::to_string)) {
                Some(lost) => Err(Failure::Runtime(lost)),
                None => Ok(()),
            }
        }
    }
}

/// The output, the number of lines that may follow, and the names of functions.
struct Lines<W: Write> {
    out: BufWriter<W>,
    left: u64,
    functions: StoredFunctions,
}

impl<W: Write> Lines<W> {
    fn block(&mut self, block: &BlockView<'_>) -> Result<(), Stop> {
        let number = block.number.to_string();
        for section in block.sections() {
            match section {
                Section::Operations { now, space, operations } => {
                    let time = time(now);
                    for request in operations {
                        self.line(&number, &time, space, &request?)?;
                    }
                }
                Section::Flush { space, shard, shard_count } => {
                    self.take()?;
                    let space = space_name(space);
                    writeln!(self.out, "{number}\t-\t{space}\tflush\t-\tshard {shard} of {shard_count}")?;
                }
                Section::Effects { space, effects } => {
                    for effect in effects {
                        let (version, request) = effect?;
                        self.line(&number, &format!("version {version}"), space, &request)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn chunk(&mut self, space: u16, chunk: &Chunk<'_>) -> Result<(), Stop> {
        for request in chunk.requests() {
            self.line("snapshot", "-", space, &request?)?;
        }
        Ok(())
    }

    fn line(&mut self, block: &str, time: &str, space: u16, request: &Request<'_>) -> Result<(), Stop> {
        self.take()?;
        let (operation, operands) = words(&request.operation, &self.functions);
        let (space, key) = (space_name(space), bytes(request.key));
        writeln!(self.out, "{block}\t{time}\t{space}\t{operation}\t{key}\t{operands}")?;
        Ok(())
    }

    /// Counts a line.
    fn take(&mut self) -> Result<(), Stop> {
        self.left = self.left.checked_sub(1).ok_or(Stop::Limit)?;
        Ok(())
    }
}

fn space_name(space: u16) -> String {
    match space {
        HASH_SPACE => "hash".to_owned(),
        ORDERED_SPACE => "ordered".to_owned(),
        CACHE_SPACE => "cache".to_owned(),
        space => space.to_string(),
    }
}

/// Formats a time in milliseconds since 1970.
fn time(milliseconds: u64) -> String {
    // Later ones have no date.
    match UNIX_EPOCH.checked_add(Duration::from_millis(milliseconds)) {
        Some(time) if milliseconds < 253_402_300_800_000 => humantime::format_rfc3339_millis(time).to_string(),
        _ => format!("{milliseconds} ms"),
    }
}

/// Escapes bytes, and cuts them.
fn bytes(bytes: &[u8]) -> String {
    match bytes.get(..BYTES_MAX) {
        Some(first) if bytes.len() > BYTES_MAX => format!("{}... ({} bytes)", first.escape_ascii(), bytes.len()),
        _ => bytes.escape_ascii().to_string(),
    }
}

/// Formats the elements of an operand, and cuts them.
fn elements(element: Element, bytes: &[u8]) -> String {
    let count = bytes.len() / element.width();
    let first: Vec<_> =
        bytes.chunks_exact(element.width()).take(ELEMENTS_MAX).map(|bytes| element.format(bytes)).collect();
    let rest = if count > ELEMENTS_MAX { format!("... ({count} elements)") } else { String::new() };
    first.join(" ") + &rest
}

/// Formats bytes as a hexadecimal number, in their order, and cuts them.
fn hexadecimal(bytes: &[u8]) -> String {
    let first = bytes.iter().take(BYTES_MAX).map(|byte| format!("{byte:02x}"));
    let rest = if bytes.len() > BYTES_MAX { format!("... ({} bytes)", bytes.len()) } else { String::new() };
    format!("0x{}{rest}", first.collect::<String>())
}

/// Formats a call: its function, which operands have a record for each element, and the bytes of the operands.
fn call_words(call: &Call<'_>, functions: &StoredFunctions) -> String {
    let Call { function, vectors, operands, initial, .. } = call;
    let name = functions.name(function.id).map_or_else(|| format!("function {}", function.id), str::to_owned);
    let mut words = format!("{name} revision {}", function.revision);
    if *vectors != 0 {
        let each: Vec<_> = (0..u8::BITS).filter(|operand| vectors >> operand & 1 == 1).map(|n| n.to_string()).collect();
        words += &format!(" each {}", each.join(","));
    }
    if !operands.is_empty() {
        words += &format!(" {}", hexadecimal(operands));
    }
    if let Some(initial) = initial {
        words += &format!(" init {}", hexadecimal(initial));
    }
    words
}

fn expiry(change: ExpiryChange) -> String {
    match change {
        ExpiryChange::CLEAR => String::new(),
        ExpiryChange::KEEP => " keeps its expiry".to_owned(),
        change => format!(" expires {}", time(change.to_number())),
    }
}

/// Returns the name of an operation, and its operands. Conditions are left out: the operation took place.
fn words(operation: &Operation<'_>, functions: &StoredFunctions) -> (&'static str, String) {
    match operation {
        Operation::Call(call) => ("call", call_words(call, functions)),
        Operation::Put { value, .. } => ("put", bytes(value)),
        Operation::Delete => ("delete", String::new()),
        Operation::Update(Update { function, element, operand, initial, .. }) => {
            let initial = initial.map_or(String::new(), |initial| format!(" init {}", elements(*element, initial)));
            ("update", format!("{} {} {}{initial}", function.name(), element.name(), elements(*element, operand)))
        }
        Operation::AddDecimal { delta } => ("incr", delta.to_string()),
        Operation::StringWrite(write) => match write {
            StringWrite::Set { value, expiry: change, .. } => ("set", bytes(value) + &expiry(*change)),
            StringWrite::Remove { .. } => ("delete", String::new()),
            StringWrite::Expire { expiry: ExpiryChange::CLEAR, .. } => ("persist", String::new()),
            StringWrite::Expire { expiry: change, .. } => ("expire", time(change.to_number())),
            StringWrite::Append(value) => ("append", bytes(value)),
            StringWrite::Overwrite { offset, bytes: value } => ("overwrite", format!("{offset} {}", bytes(value))),
            StringWrite::Fields(fields) => ("bitfield", bytes(format!("{fields:?}").as_bytes())),
            StringWrite::AddFraction(fraction) => ("incr", bytes(fraction)),
        },
        read => ("read", bytes(format!("{read:?}").as_bytes())),
    }
}

#[cfg(test)]
mod tests {
    use skep::{ExpiryCondition, PutCondition};
    use skep_core::function::FunctionHandle;
    use skep_core::operation::CallReply;

    use super::*;

    #[test]
    fn operations_are_one_line_each() {
        let words = |operation: &Operation<'_>| super::words(operation, &StoredFunctions::default());
        let put = |value| words(&Operation::Put { value, condition: PutCondition::IfAbsent });
        assert_eq!(put(b"a\tb\n\xff"), ("put", "a\\tb\\n\\xff".to_owned()));
        assert_eq!(put(&[b'x'; 101]).1, "x".repeat(100) + "... (101 bytes)");
        let set = StringWrite::Expire {
            expiry: ExpiryChange::from_number(1_000).unwrap(),
            condition: ExpiryCondition::Always,
            return_value: false,
        };
        assert_eq!(words(&Operation::StringWrite(set)), ("expire", "1970-01-01T00:00:01.000Z".to_owned()));
        assert_eq!(time(u64::MAX), "18446744073709551615 ms");
        assert_eq!(elements(Element::U8, &[1; 9]), "1 1 1 1 1 1 1 1... (9 elements)");
    }

    #[test]
    fn a_call_has_the_name_of_its_function() {
        let functions = StoredFunctions { names: vec!["limits.take".into()], modules: Vec::new() };
        let words = |id, vectors, operands, initial| {
            let function = FunctionHandle { id, revision: 3, function: None };
            let call = Call { function, vectors, operands, initial, reply: CallReply::Nothing };
            super::words(&Operation::Call(call), &functions)
        };
        assert_eq!(words(1, 0, &[1, 0xab], None), ("call", "limits.take revision 3 0x01ab".to_owned()));
        assert_eq!(words(2, 0, &[], None).1, "function 2 revision 3");
        assert_eq!(words(1, 5, &[7], Some(&[0, 1])).1, "limits.take revision 3 each 0,2 0x07 init 0x0001");
        assert_eq!(
            words(1, 0, &[0; 101], None).1,
            format!("limits.take revision 3 0x{}... (101 bytes)", "00".repeat(100))
        );
    }
}
