//! Tables of commands that change or read expiries, and the operations that they become at a known time.

use std::time::Duration;

use skep_core::operation::{
    Condition, ConditionKind, Expiry, ExpiryChange, ExpiryCondition, Operation, StringRead, StringWrite,
};
use skep_wire::resp::{Parsed, RequestParser};

use super::table::{COMMANDS, CommandName};
use super::{Action, Arguments, CommandRequest, Operands, SimpleCommand};
use crate::access::Login;
use crate::unix_time::UnixTime;
use crate::vocabulary::{Functions, Space, Spaces};

/// Milliseconds since 1970 at which the commands are decoded.
const NOW: u64 = 5_000;

/// Asserts that a command on the key `k` is decoded to this operation, or refused with this error message.
fn check(line: &str, expected: &Result<Operation<'_>, &str>) {
    let mut input = format!("{line}\r\n").into_bytes();
    let mut ranges = Vec::with_capacity(16);
    let parsed = RequestParser::default().parse(&mut input, &mut ranges);
    assert!(matches!(parsed, Ok(Parsed::Complete(_))), "{line}");
    let arguments = Arguments::new(&input, &ranges);
    let mut operands = Operands::default();
    let now = UnixTime::after(Duration::from_millis(NOW));
    let spaces = Spaces { has_ordered: true, has_cache: true, shard_count: 2, functions: Functions::leaked() };
    let action = Action::decode(arguments, Space::default(), spaces, &mut operands, now, &Login::default());
    let decoded = match &action {
        Action::Refuse(message) => Err(message.as_str()),
        action => match action.request(arguments, operands.bytes(), 0, None) {
            CommandRequest::Key(request) => Ok(request),
            CommandRequest::Keyspace(..) => panic!("{line} is about all keys"),
        },
    };
    assert_eq!(decoded.map(|request| request.operation), *expected, "{line}");
    assert!(decoded.is_err() || decoded.is_ok_and(|request| request.key == b"k"), "{line}");
}

/// What is decoded as a simple command is the same command in all spaces, and has no operands.
#[test]
fn simple_commands_are_what_the_table_decodes() {
    let mut simple_count = 0;
    for info in COMMANDS {
        for argument_count in 1..6 {
            let mut input = format!("{} k 1 2 3 4\r\n", info.name).into_bytes();
            let mut ranges = Vec::with_capacity(16);
            let parsed = RequestParser::default().parse(&mut input, &mut ranges);
            assert!(matches!(parsed, Ok(Parsed::Complete(_))), "{}", info.name);
            let arguments = Arguments::new(&input, &ranges[..argument_count]);
            let name = CommandName::find(info.name.as_bytes()).expect("it is in the table");
            let Some(simple) = SimpleCommand::find(name, argument_count) else { continue };
            simple_count += 1;
            let command = simple.on_key();
            let request = simple.request(arguments.get(1), arguments.get(argument_count - 1));
            assert_eq!(request, command.request(arguments, &[], 0, None), "{}", info.name);
            let plain = simple.plain(arguments.get(1), arguments.get(argument_count - 1));
            assert!(plain.is_none_or(|plain| plain.request() == request), "{}", info.name);
            assert!(command.operation_count(argument_count) == 1 && !command.may_continue());
            assert!(command.elements().is_none(), "{}", info.name);
            for space in [Space::Hash, Space::Ordered, Space::Cache] {
                let mut operands = Operands::default();
                let spaces =
                    Spaces { has_ordered: true, has_cache: true, shard_count: 2, functions: Functions::leaked() };
                let action =
                    Action::decode(arguments, space, spaces, &mut operands, UnixTime::default(), &Login::default());
                let Action::Keys(decoded, of_table) = action else { panic!("{} is not on a key", info.name) };
                assert_eq!((decoded, &of_table), (name, &command), "{}", info.name);
                assert!(operands.bytes().is_empty() && operands.is_complete(), "{}", info.name);
            }
        }
    }
    assert_eq!(simple_count, 9);
}

fn at(milliseconds: i64) -> ExpiryChange {
    ExpiryChange::set(Expiry::at(milliseconds).unwrap())
}

fn set(kind: ConditionKind, operand: &[u8], expiry: ExpiryChange, return_old: bool) -> Operation<'_> {
    let condition = Condition { kind, operand };
    Operation::StringWrite(StringWrite::Set { value: b"v", condition, expiry, return_old })
}

fn expire(expiry: ExpiryChange, condition: ExpiryCondition, return_value: bool) -> Operation<'static> {
    Operation::StringWrite(StringWrite::Expire { expiry, condition, return_value })
}

#[test]
fn sets_with_an_expiry() {
    let plain = |expiry| set(ConditionKind::Always, b"", expiry, false);
    for (line, operation) in [
        ("SET k v EX 10", plain(at(15_000))),
        ("set k v px 10", plain(at(5_010))),
        ("SET k v EXAT 10", plain(at(10_000))),
        ("SET k v PXAT 10", plain(at(10))),
        ("SET k v EX 1 EX 2", plain(at(7_000))),
        ("SET k v KEEPTTL", plain(ExpiryChange::KEEP)),
        ("SET k v PXAT 36028797018963966", plain(at((1 << 55) - 2))),
        ("SET k v NX EX 1 GET", set(ConditionKind::IfAbsent, b"", at(6_000), true)),
        ("SET k v XX KEEPTTL", set(ConditionKind::IfPresent, b"", ExpiryChange::KEEP, false)),
        ("SET k v IFEQ old EX 1", set(ConditionKind::IfEqual, b"old", at(6_000), false)),
        (
            "SET k v IFDNE 00000000000000Ff",
            set(ConditionKind::IfNotDigest, b"\xff\0\0\0\0\0\0\0", ExpiryChange::CLEAR, false),
        ),
        ("SETEX k 10 v", plain(at(15_000))),
        ("PSETEX k 10 v", plain(at(5_010))),
        ("GETSET k v", set(ConditionKind::Always, b"", ExpiryChange::CLEAR, true)),
    ] {
        check(line, &Ok(operation));
    }
}

#[test]
fn changes_of_an_expiry() {
    let always = |expiry| expire(expiry, ExpiryCondition::Always, false);
    let expiry = || Operation::StringRead(StringRead::Expiry);
    let getdel = Operation::StringWrite(StringWrite::Remove { condition: Condition::ALWAYS, return_old: true });
    for (line, operation) in [
        ("EXPIRE k 10", always(at(15_000))),
        ("PEXPIRE k 10", always(at(5_010))),
        ("EXPIREAT k 10", always(at(10_000))),
        ("PEXPIREAT k 5001", always(at(5_001))),
        ("PEXPIREAT k 5000", Operation::Delete),
        ("EXPIRE k -9223372036854775", Operation::Delete),
        ("PEXPIRE k -1 XX", expire(at(4_999), ExpiryCondition::IfSome, false)),
        ("EXPIRE k 1 nx", expire(at(6_000), ExpiryCondition::IfNone, false)),
        ("EXPIRE k 1 XX GT", expire(at(6_000), ExpiryCondition::IfLater, false)),
        ("EXPIRE k 1 LT", expire(at(6_000), ExpiryCondition::IfEarlier, false)),
        ("EXPIRE k 1 LT XX", expire(at(6_000), ExpiryCondition::IfSomeAndEarlier, false)),
        ("PERSIST k", expire(ExpiryChange::CLEAR, ExpiryCondition::IfSome, false)),
        ("GETEX k", Operation::Get),
        ("GETEX k PERSIST", expire(ExpiryChange::CLEAR, ExpiryCondition::Always, true)),
        ("GETEX k EX 1", expire(at(6_000), ExpiryCondition::Always, true)),
        ("GETEX k PXAT 5000", getdel),
        ("GETDEL k", getdel),
        ("TTL k", expiry()),
        ("PEXPIRETIME k", expiry()),
    ] {
        check(line, &Ok(operation));
    }
}

#[test]
fn wrong_times_are_refused() {
    let not_a_number = "ERR value is not an integer or out of range";
    for (line, message) in [
        ("SET k v EX 0", "ERR invalid expire time in 'set' command"),
        ("SET k v PX -1", "ERR invalid expire time in 'set' command"),
        ("SET k v EX 9223372036854775807", "ERR invalid expire time in 'set' command"),
        ("SET k v PXAT 36028797018963967", "ERR invalid expire time in 'set' command"),
        ("SET k v EX x", not_a_number),
        ("SET k v EX", "ERR syntax error"),
        ("SET k v EX 1 PX 1", "ERR syntax error"),
        ("SET k v EX 1 KEEPTTL", "ERR syntax error"),
        ("SET k v KEEPTTL EX 1", "ERR syntax error"),
        ("SET k v PERSIST", "ERR syntax error"),
        ("GETEX k EX 1 PERSIST", "ERR syntax error"),
        ("GETEX k KEEPTTL", "ERR syntax error"),
        ("GETEX k EXAT 0", "ERR invalid expire time in 'getex' command"),
        ("PSETEX k 0 v", "ERR invalid expire time in 'psetex' command"),
        ("EXPIRE k 9223372036854776", "ERR invalid expire time in 'expire' command"),
        ("PEXPIRE k 9223372036854775807", "ERR invalid expire time in 'pexpire' command"),
        ("EXPIREAT k 1.5", not_a_number),
        ("EXPIRE k x ZZ", "ERR Unsupported option ZZ"),
        ("EXPIRE k x GT LT", "ERR GT and LT options at the same time are not compatible"),
        ("TTL k k", "ERR wrong number of arguments for 'ttl' command"),
    ] {
        check(line, &Err(message));
    }
}
