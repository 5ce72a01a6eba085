//! `skep function`: checks modules of user functions, and loads them into a server.
//!
//! It speaks RESP, because the commands are those of `SKEP.FUNCTION`.

use std::collections::HashMap;
use std::fmt::Display;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use redis::{FromRedisValue, InfoDict, Value};

use crate::failure::{Failure, reason};
use crate::resp_link::{DEFAULT_ADDRESS, connect, describe};
use crate::tls::LoginSource;

/// Checks modules of functions, or sends a command about them to a server.
#[derive(clap::Args, Debug)]
pub(crate) struct Arguments {
    /// RESP address of the server: HOST:PORT, or tls:HOST:PORT.
    #[arg(long, global = true, value_name = "ADDRESS", default_value = DEFAULT_ADDRESS)]
    addr: String,
    #[command(flatten)]
    source: LoginSource,
    #[command(subcommand)]
    command: Command,
}

/// The commands.
#[derive(clap::Subcommand, Debug)]
enum Command {
    /// Check a module without a server, and print its functions with the work of each.
    Check {
        /// The file with the module.
        file: PathBuf,
    },
    /// Load a module. It is compiled in the server, and survives restarts of a server with a data directory.
    Load {
        /// The file with the module.
        file: PathBuf,
        /// Replace the module of this name if there is one.
        #[arg(long)]
        replace: bool,
    },
    /// Print the modules of a server with their functions and records.
    List,
    /// Print the source of a module.
    Show {
        /// The name of the module.
        module: String,
    },
    /// Remove a module from a server.
    Delete {
        /// The name of the module.
        module: String,
    },
    /// Print how often each function of a server was called since its start, and how much it has room for.
    Stats,
}

/// Executes the command.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let mut output = io::stdout().lock();
    match &arguments.command {
        Command::Check { file } => check(file, &mut output),
        Command::Load { file, replace } => {
            let source = read(file)?;
            // The server would close the connection.
            if source.len() > skep_function::SOURCE_SIZE_MAX {
                return check(file, &mut output);
            }
            let mut command = redis::cmd("SKEP.FUNCTION");
            command.arg("LOAD");
            if *replace {
                command.arg("REPLACE");
            }
            let name: String = query(command.arg(source), arguments, file.display())?;
            Ok(writeln!(output, "{name}")?)
        }
        Command::List => {
            let modules: Vec<HashMap<String, Value>> =
                query(redis::cmd("SKEP.FUNCTION").arg("LIST"), arguments, &arguments.addr)?;
            modules.into_iter().try_for_each(|module| print_module(module, &mut output))
        }
        Command::Show { module } => {
            let source: String = query(redis::cmd("SKEP.FUNCTION").arg("SHOW").arg(module), arguments, module)?;
            Ok(writeln!(output, "{}", source.trim_end())?)
        }
        Command::Stats => {
            let functions: Vec<HashMap<String, Value>> =
                query(redis::cmd("SKEP.FUNCTION").arg("STATS"), arguments, &arguments.addr)?;
            functions.into_iter().try_for_each(|function| print_statistics(function, &mut output))?;
            let usage: InfoDict = query(redis::cmd("INFO").arg("functions"), arguments, &arguments.addr)?;
            print_usage(&usage, &mut output)
        }
        Command::Delete { module } => {
            query::<Value>(redis::cmd("SKEP.FUNCTION").arg("DELETE").arg(module), arguments, module).map(drop)
        }
    }
}

/// Prints what the server has counted about a function.
fn print_statistics(mut function: HashMap<String, Value>, output: &mut impl Write) -> Result<(), Failure> {
    let mut field =
        |name: &str| String::from_redis_value(function.remove(name).unwrap_or(Value::Nil)).unwrap_or_default();
    let [name, calls, elements, failed] = ["function", "calls", "elements", "failed"].map(&mut field);
    Ok(writeln!(output, "{name}: {calls} calls, {elements} elements, {failed} failed")?)
}

/// Prints the part of the bounds that the server has used. An earlier server does not tell it.
fn print_usage(usage: &InfoDict, output: &mut impl Write) -> Result<(), Failure> {
    let used = |name: &str| {
        let number = |name: &str| usage.get::<u64>(name);
        Some(format!("{} of {}", number(&format!("skep_{name}"))?, number(&format!("skep_{name}_limit"))?))
    };
    let [functions, sources, bytes, names] =
        ["functions", "function_sources", "function_source_bytes", "function_names"].map(used);
    if let (Some(functions), Some(sources), Some(bytes), Some(names)) = (functions, sources, bytes, names) {
        writeln!(output, "used: {functions} functions, {sources} sources, {bytes} bytes of sources, {names} names")?;
    }
    Ok(())
}

/// Checks a module, and prints what is in it.
fn check(file: &Path, output: &mut impl Write) -> Result<(), Failure> {
    let source = read(file)?;
    let module = skep_function::check(&source);
    let module = module.map_err(|error| Failure::Runtime(format!("{}: {error}", file.display())))?;
    for (name, layout) in &module.records {
        writeln!(output, "{name} {layout}: {} bytes", layout.size())?;
    }
    for function in &module.functions {
        let signature = &function.signature;
        let description = signature.describe(function.kind, &function.name);
        writeln!(output, "{description}: at most {} instructions for an element", signature.work)?;
    }
    Ok(())
}

fn read(file: &Path) -> Result<String, Failure> {
    let read = fs::read_to_string(file);
    read.map_err(|error| Failure::Usage(format!("cannot read {}: {}", file.display(), reason(&error))))
}

/// Sends a command to the server. `about` names what it is about, for error messages.
fn query<T: FromRedisValue>(command: &redis::Cmd, arguments: &Arguments, about: impl Display) -> Result<T, Failure> {
    let mut connection = connect(&arguments.source.login(&arguments.addr)?)?;
    command.query(&mut connection).map_err(|error| Failure::Runtime(format!("{about}: {}", describe(&error))))
}

/// Prints a module as the server lists it.
fn print_module(mut module: HashMap<String, Value>, output: &mut impl Write) -> Result<(), Failure> {
    let mut field = |name: &str| module.remove(name).unwrap_or(Value::Nil);
    let text = |value: Value| String::from_redis_value(value).unwrap_or_default();
    let lines = |value: Value| Vec::<String>::from_redis_value(value).unwrap_or_default();
    writeln!(output, "{} (revision {})", text(field("module")), text(field("revision")))?;
    for line in lines(field("records")).iter().chain(&lines(field("functions"))) {
        writeln!(output, "  {line}")?;
    }
    if let Value::BulkString(error) = field("error") {
        writeln!(output, "  does not compile: {}", String::from_utf8_lossy(&error))?;
    }
    Ok(())
}
