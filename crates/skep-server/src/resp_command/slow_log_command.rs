//! `SLOWLOG` and `LATENCY`: what took long.

use skep_wire::resp::ReplyWriter;

use super::table::COMMANDS;
use super::{Arguments, Context, excerpt};
use crate::delays::DelayCounts;
use crate::limits::{LOOK_WORK, SLOW_LOG_LENGTH_MAX, TEXT_WORK};
use crate::slow_log::SlowCommand;

const SLOW_LOG_HELP: [&str; 11] = [
    "SLOWLOG <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "GET [<count>]",
    "    Return top <count> entries from the slowlog (default: 10, -1 mean all).",
    "    Entries are made of:",
    "    id, timestamp, time in microseconds, arguments array, client IP and port,",
    "    client name",
    "LEN",
    "    Return the length of the slowlog.",
    "RESET",
    "    Reset the slowlog.",
    "HELP",
];

const LATENCY_HELP: [&str; 14] = [
    "LATENCY <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "DOCTOR",
    "    Return a human readable latency analysis report.",
    "GRAPH <event>",
    "    Return an ASCII latency graph for the <event> class; there are no events.",
    "HISTORY <event>",
    "    Return time-latency samples for the <event> class; there are none.",
    "LATEST",
    "    Return the latest latency samples for all events; there are none.",
    "RESET [<event> ...]",
    "    Reset latency data of one or more <event> classes; there are none.",
    "HISTOGRAM [COMMAND ...]",
    "    Return a cumulative distribution of latencies, from read to reply, of the commands.",
    "HELP",
];

const DOCTOR: &str = "Skep records no latency events. LATENCY HISTOGRAM and INFO latencystats tell how long commands \
take from the read of their request to their reply, SLOWLOG GET the slowest ones, and INFO congestion the delays of all \
operations.\n";

/// Runs a subcommand of `SLOWLOG`, whose number of arguments was checked.
pub(super) fn slow_log(
    arguments: Arguments<'_>,
    writer: &mut ReplyWriter<'_>,
    context: &mut Context<'_>,
) -> Result<(), String> {
    let log = &context.shared.slow_log;
    match arguments.get(1).to_ascii_lowercase().as_slice() {
        b"get" if arguments.count() > 3 => {
            let name = excerpt(arguments.get(1), 128);
            return Err(format!("ERR unknown subcommand or wrong number of arguments for '{name}'. Try SLOWLOG HELP."));
        }
        b"get" => {
            let count = if arguments.count() == 3 { arguments.integer(2) } else { Some(10) };
            let count = count.filter(|&count| count >= -1).ok_or("ERR count should be greater than or equal to -1")?;
            let count = usize::try_from(count).unwrap_or(SLOW_LOG_LENGTH_MAX);
            let commands = log.newest(count);
            writer.array(commands.len());
            commands.iter().for_each(|command| write(command, writer));
        }
        b"len" => writer.integer(log.len() as i64),
        b"reset" => {
            context.account.spend(TEXT_WORK * log.clear());
            writer.simple("OK");
        }
        _ => writer.lines(&SLOW_LOG_HELP),
    }
    Ok(())
}

fn write(command: &SlowCommand, writer: &mut ReplyWriter<'_>) {
    writer.array(6);
    writer.integer(command.number.cast_signed());
    writer.integer(command.time.cast_signed());
    writer.integer(i64::try_from(command.duration.as_micros()).unwrap_or(i64::MAX));
    writer.array(command.arguments.len());
    command.arguments.iter().for_each(|argument| writer.bulk(argument));
    writer.bulk(command.client.as_ref().map_or_else(String::new, ToString::to_string).as_bytes());
    writer.bulk(command.client_name.as_bytes());
}

/// Runs a subcommand of `LATENCY`, whose number of arguments was checked. There are no events.
pub(super) fn latency(
    arguments: Arguments<'_>,
    writer: &mut ReplyWriter<'_>,
    context: &mut Context<'_>,
) -> Result<(), String> {
    match arguments.get(1).to_ascii_lowercase().as_slice() {
        b"latest" | b"history" => writer.array(0),
        b"reset" => writer.integer(0),
        b"doctor" => writer.text(DOCTOR),
        b"graph" => return Err(format!("ERR No samples available for event '{}'", excerpt(arguments.get(2), 128))),
        b"histogram" => {
            let looks = COMMANDS.len() * (arguments.count() - 2);
            context.account.spend(LOOK_WORK * looks + COMMANDS.len() * context.shared.command_totals_work());
            let is_wanted =
                |name: &str| arguments.count() == 2 || (2..arguments.count()).any(|index| arguments.is(index, name));
            let found: Vec<(&str, DelayCounts)> = (0..COMMANDS.len())
                .filter(|&command| is_wanted(COMMANDS[command].name))
                .map(|command| (COMMANDS[command].name, context.shared.command_totals(command).delays))
                .filter(|(_, delays)| delays.total() > 0)
                .collect();
            writer.map(found.len());
            for (name, delays) in found {
                writer.bulk(name.as_bytes());
                writer.map(2);
                writer.bulk(b"calls");
                writer.integer(delays.total().cast_signed());
                writer.bulk(b"histogram_usec");
                let steps = delays.cumulative();
                writer.map(steps.len());
                for (delay, count) in steps {
                    writer.integer(i64::try_from(delay.as_micros()).unwrap_or(i64::MAX));
                    writer.integer(count.cast_signed());
                }
            }
        }
        _ => writer.lines(&LATENCY_HELP),
    }
    Ok(())
}
