//! The subcommands of the commands that have some: their numbers of arguments, which are checked before they run.

use super::table::CommandName;
use super::{Arguments, excerpt, object_command, wrong_argument_count};
use crate::command_metrics::COMMAND_COUNT;

/// A subcommand.
pub(super) struct Subcommand {
    /// The command that it belongs to.
    pub(super) command: CommandName,
    pub(super) name: &'static str,
    /// Arguments with the two names; negative: at least this number.
    pub(super) arity: i64,
    pub(super) flags: &'static [&'static str],
    pub(super) summary: &'static str,
}

macro_rules! subcommands {
    ($($command:ident $name:literal $arity:literal [$($flag:literal)*] $summary:literal)*) => {
        /// All subcommands, by command.
        pub(super) const SUBCOMMANDS: &[Subcommand] = &[$(Subcommand {
            command: CommandName::$command, name: $name, arity: $arity, flags: &[$($flag),*], summary: $summary,
        }),*];
    };
}

subcommands! {
    Client "getname" 2 [] "Returns the name of the connection."
    Client "help" 2 [] "Returns a description of the subcommands."
    Client "id" 2 [] "Returns the number of the connection."
    Client "info" 2 [] "Describes the connection."
    Client "kill" -3 ["admin"] "Ends connections: ID, ADDR, LADDR, TYPE, USER, MAXAGE, SKIPME."
    Client "list" -2 ["admin"] "Describes connections: TYPE, ID."
    Client "no-evict" 3 ["admin"] "Is accepted; connections are never evicted."
    Client "no-touch" 3 [] "Is accepted, without effect: accesses are not recorded."
    Client "pause" -3 ["admin"] "Holds back commands for some milliseconds: WRITE, ALL."
    Client "reply" 3 [] "Switches the replies of the connection: ON, OFF, SKIP."
    Client "setinfo" 4 [] "Sets the name or the version of the client's library."
    Client "setname" 3 [] "Sets the name of the connection."
    Client "unpause" 2 ["admin"] "Ends a pause."
    Command "count" 2 [] "Returns the number of commands."
    Command "docs" -2 [] "Documents commands."
    Command "getkeys" -4 [] "Returns the keys of a command."
    Command "help" 2 [] "Returns a description of the subcommands."
    Command "info" -2 [] "Describes commands."
    Command "list" -2 [] "Returns the names of commands: FILTERBY."
    Config "get" -3 ["admin"] "Returns settings."
    Config "help" 2 [] "Returns a description of the subcommands."
    Config "resetstat" 2 ["admin"] "Sets the statistics of INFO to zero."
    Config "rewrite" 2 ["admin"] "Is refused; the server does not write its configuration file."
    Config "set" -4 ["admin"] "Changes settings."
    SkepFunction "delete" 3 ["admin"] "Removes a module of functions."
    SkepFunction "help" 2 [] "Returns a description of the subcommands."
    SkepFunction "list" 2 [] "Describes the modules, with their functions and records."
    SkepFunction "load" -3 ["admin"] "Loads a module of functions: REPLACE."
    SkepFunction "show" 3 [] "Returns the source of a module."
    SkepFunction "stats" 2 [] "Counts the calls of each function since the start: calls, elements, failed."
    SlowLog "get" -2 ["admin"] "Returns the last slow commands."
    SlowLog "help" 2 [] "Returns a description of the subcommands."
    SlowLog "len" 2 ["admin"] "Returns the number of slow commands."
    SlowLog "reset" 2 ["admin"] "Removes the slow commands."
    Latency "doctor" 2 ["admin"] "Returns a text about delays."
    Latency "graph" 3 ["admin"] "Is refused; there are no events."
    Latency "help" 2 [] "Returns a description of the subcommands."
    Latency "histogram" -2 ["admin"] "Returns the delays of commands."
    Latency "history" 3 ["admin"] "Returns the delays of an event; there are none."
    Latency "latest" 2 ["admin"] "Returns the last delays of events; there are none."
    Latency "reset" -2 ["admin"] "Removes the delays of events; there are none."
    Acl "cat" -2 [] "Returns the categories of commands, or the commands of one."
    Acl "deluser" -3 ["admin"] "Removes users, and ends their connections."
    Acl "dryrun" -4 ["admin"] "Tells if a user may run a command, without running it."
    Acl "genpass" -2 [] "Returns a random password of this number of bits, 256 without one."
    Acl "getuser" 3 ["admin"] "Describes a user."
    Acl "help" 2 [] "Returns a description of the subcommands."
    Acl "list" 2 ["admin"] "Describes the users, as the file of users has them."
    Acl "load" 2 ["admin"] "Reads the file of users again."
    Acl "log" -2 ["admin"] "Returns what was denied last: a count, or RESET."
    Acl "save" 2 ["admin"] "Writes the users to their file."
    Acl "setuser" -3 ["admin"] "Changes or adds a user by rules."
    Acl "users" 2 ["admin"] "Returns the names of the users."
    Acl "whoami" 2 [] "Returns the name of the connection's user."
    Object "encoding" 3 ["readonly"] "Returns the encoding that Redis gives such a value when it is set."
    Object "freq" 3 ["readonly"] "Is refused; accesses are not counted."
    Object "help" 2 [] "Returns a description of the subcommands."
    Object "idletime" 3 ["readonly"] "Returns 0; accesses are not recorded."
    Object "refcount" 3 ["readonly"] "Returns 1; values are not shared."
    Memory "help" 2 [] "Returns a description of the subcommands."
    Memory "usage" -3 ["readonly"] "Returns the bytes of a key and its value: SAMPLES."
}

impl Subcommand {
    /// Returns the subcommands of a command.
    pub(super) fn all_of(command: &str) -> impl Iterator<Item = &'static Subcommand> {
        SUBCOMMANDS.iter().filter(move |subcommand| subcommand.command.info().name == command)
    }

    /// Returns the subcommand of this full name, such as `client|id`, in small or capital letters.
    pub(super) fn find(name: &[u8]) -> Option<&'static Subcommand> {
        SUBCOMMANDS.iter().find(|subcommand| subcommand.full_name().as_bytes().eq_ignore_ascii_case(name))
    }

    /// Returns the index in [`SUBCOMMANDS`] of the subcommand that the arguments name, if the command has subcommands.
    pub(super) fn index_of(command: CommandName, arguments: Arguments<'_>) -> Option<usize> {
        if !HAS_SUBCOMMANDS[command as usize] || arguments.count() < 2 {
            return None;
        }
        SUBCOMMANDS.iter().position(|subcommand| subcommand.command == command && arguments.is(1, subcommand.name))
    }

    /// Returns the positions of its keys, as [`super::table::CommandInfo::keys`] has them.
    pub(super) fn keys(&self) -> [i64; 3] {
        let (first, last, step) = self.command.info().keys;
        if self.flags.contains(&"readonly") { [first, last, step] } else { [0; 3] }
    }

    /// Returns true if it is one of administrators that shows something and changes nothing.
    pub(super) fn only_shows(&self) -> bool {
        const SHOWING: [&str; 13] = [
            "doctor",
            "dryrun",
            "get",
            "getuser",
            "graph",
            "histogram",
            "history",
            "latest",
            "len",
            "list",
            "log",
            "show",
            "users",
        ];
        SHOWING.contains(&self.name)
    }

    /// Returns the categories of the subcommand, as the access lists of Redis have them.
    pub(super) fn categories(&self) -> impl Iterator<Item = &'static str> {
        let of_command = match self.command {
            CommandName::Object => "keyspace",
            CommandName::Client | CommandName::Command => "connection",
            CommandName::SkepFunction => "scripting",
            _ => "",
        };
        let has = |flag| self.flags.contains(&flag);
        [
            (of_command, !of_command.is_empty()),
            ("write", has("write")),
            ("read", has("readonly")),
            ("admin", has("admin")),
            ("dangerous", has("admin")),
            ("slow", true),
        ]
        .into_iter()
        .filter_map(|(name, has_it)| has_it.then_some(name))
    }

    /// Returns the name of the command and that of the subcommand.
    pub(super) fn full_name(&self) -> String {
        format!("{}|{}", self.command.info().name, self.name)
    }
}

/// For each command, whether it has subcommands. Every command asks for this.
const HAS_SUBCOMMANDS: [bool; COMMAND_COUNT] = {
    let (mut has, mut index) = ([false; COMMAND_COUNT], 0);
    while index < SUBCOMMANDS.len() {
        has[SUBCOMMANDS[index].command as usize] = true;
        index += 1;
    }
    has
};

/// Checks the subcommand of a command that has some.
#[inline]
pub(super) fn check(command: CommandName, arguments: Arguments<'_>) -> Result<(), String> {
    match HAS_SUBCOMMANDS[command as usize] && arguments.count() > 1 {
        true => check_subcommand(command, arguments),
        false => Ok(()),
    }
}

fn check_subcommand(command: CommandName, arguments: Arguments<'_>) -> Result<(), String> {
    let on_key = match command {
        CommandName::Object => Some(object_command::object(arguments)),
        CommandName::Memory => Some(object_command::memory(arguments)),
        _ => None,
    };
    if let Some(decoded) = on_key {
        let is_wrong = |message: &String| message.starts_with("ERR unknown") || message.starts_with("ERR wrong number");
        return decoded.err().filter(is_wrong).map_or(Ok(()), Err);
    }
    let mut of_command = SUBCOMMANDS.iter().filter(|subcommand| subcommand.command == command);
    let Some(subcommand) = of_command.find(|subcommand| arguments.is(1, subcommand.name)) else {
        let name = command.info().name.to_ascii_uppercase();
        return Err(format!("ERR unknown subcommand '{}'. Try {name} HELP.", excerpt(arguments.get(1), 128)));
    };
    let count = arguments.count() as i64;
    if (subcommand.arity >= 0 && count != subcommand.arity) || count < -subcommand.arity {
        return Err(wrong_argument_count(&format!("{}|{}", command.info().name, subcommand.name)));
    }
    Ok(())
}

/// Returns the names of all commands, and the full names of all subcommands.
#[cfg(test)]
pub(crate) fn full_names() -> Vec<String> {
    let names = super::table::COMMANDS.iter().flat_map(|info| {
        let subcommands: Vec<String> = Subcommand::all_of(info.name).map(Subcommand::full_name).collect();
        let is_alone = subcommands.is_empty() || info.arity == -1;
        subcommands.into_iter().chain(is_alone.then(|| info.name.to_owned()))
    });
    names.collect()
}
