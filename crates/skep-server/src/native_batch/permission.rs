//! What the user of a native connection may do: an operation needs the permission for the RESP command that does the same,
//! so no front end allows what another one denies.

use skep_core::function::{FunctionKind, UserFunction};
use skep_core::operation::{Operation, PutCondition, Request, Scan, ScanEnd, ScanStart, StringRead, StringWrite};
use skep_wire::native::WireError;
use skep_wire::native::functions::ALL_FUNCTIONS;

use crate::access::{DeniedOperation, KeyAccess, LimitedUser, OBJECT_SIZE_MAX, Reason};
use crate::resp_command::table::CommandName;
use crate::resp_command::{FunctionsPermission, common_prefix, may_use_functions, name_of_space};
use crate::vocabulary::Space;

/// Counts an operation for the limits of the user, and checks it. What is denied counts too.
pub(crate) fn permit<'a>(user: LimitedUser<'_>, space: Space, request: Request<'a>) -> Result<Request<'a>, WireError> {
    match user.may_operate(request.size()) {
        false => Err(WireError::TooFast),
        true if denial(user, space, &request).is_some() => Err(WireError::NotPermitted),
        true => Ok(request),
    }
}

/// Returns what an operation was denied for.
pub(crate) fn describe_denial(user: LimitedUser<'_>, space: Space, request: &Request<'_>) -> Option<DeniedOperation> {
    let reason = denial(user, space, request)?;
    let object = match reason {
        Reason::Space => name_of_space(space).as_bytes(),
        Reason::Key => &request.key[..request.key.len().min(OBJECT_SIZE_MAX)],
        Reason::Command | Reason::Login => needs(&request.operation).0.text().as_bytes(),
    };
    Some(DeniedOperation { reason, object: object.to_vec() })
}

/// Returns why an operation is denied, if it is.
fn denial(user: LimitedUser<'_>, space: Space, request: &Request<'_>) -> Option<Reason> {
    let (command, needed) = needs(&request.operation);
    let allows_key = || match request.operation {
        Operation::Scan(scan) => {
            user.keys().is_all()
                || prefix_of(request.key, &scan).is_some_and(|prefix| user.keys().allow_reading_prefix(prefix))
        }
        _ => user.keys().allow(request.key, needed),
    };
    match () {
        () if !user.commands().has(command as usize) => Some(Reason::Command),
        () if !user.spaces().has(space) => Some(Reason::Space),
        () if !allows_key() => Some(Reason::Key),
        () => None,
    }
}

/// Checks an operation on the functions of users.
pub(super) fn permit_functions<'a>(user: LimitedUser<'_>, request: Request<'a>) -> Result<Request<'a>, WireError> {
    let needed = match request.operation {
        Operation::Get | Operation::Contains if request.key == ALL_FUNCTIONS => FunctionsPermission::List,
        Operation::Get | Operation::Contains => FunctionsPermission::Show,
        Operation::Delete => FunctionsPermission::Delete,
        _ => FunctionsPermission::Load,
    };
    match user.may_operate(request.size()) {
        false => Err(WireError::TooFast),
        true if !may_use_functions(user.commands(), needed) => Err(WireError::NotPermitted),
        true => Ok(request),
    }
}

/// Returns the command that does the same as an operation, and what it does to the key. Operations of which RESP has
/// several kinds need all that one of them may do.
fn needs(operation: &Operation<'_>) -> (CommandName, KeyAccess) {
    match operation {
        Operation::Get => (CommandName::Get, KeyAccess::READ),
        Operation::Contains => (CommandName::Exists, KeyAccess::NONE),
        Operation::Put { condition: PutCondition::IfAbsent, .. } => (CommandName::SetNx, KeyAccess::WRITE),
        Operation::Put { .. } => (CommandName::Set, KeyAccess::WRITE),
        Operation::Delete => (CommandName::Del, KeyAccess::WRITE),
        Operation::AddDecimal { .. } => (CommandName::IncrBy, KeyAccess::BOTH),
        Operation::Update(_) => (CommandName::SkepUpdate, KeyAccess::BOTH),
        Operation::Reduce(_) => (CommandName::SkepReduce, KeyAccess::READ),
        Operation::Filter(_) => (CommandName::SkepFilter, KeyAccess::READ),
        Operation::Call(call) => match call.function.function.map(UserFunction::kind) {
            Some(FunctionKind::Reduce) => (CommandName::SkepReduce, KeyAccess::READ),
            Some(FunctionKind::Filter) => (CommandName::SkepFilter, KeyAccess::READ),
            // Without a function, the call fails.
            Some(FunctionKind::Update) | None => (CommandName::SkepUpdate, KeyAccess::BOTH),
        },
        Operation::StringRead(read) => (of_read(read), KeyAccess::READ),
        Operation::StringWrite(write) => (of_write(write), KeyAccess::BOTH),
        Operation::Scan(_) => (CommandName::SkepScan, KeyAccess::READ),
    }
}

fn of_read(read: &StringRead<'_>) -> CommandName {
    match read {
        StringRead::Size => CommandName::StrLen,
        StringRead::Slice { .. } => CommandName::GetRange,
        StringRead::CountBits(_) => CommandName::BitCount,
        StringRead::FindBit { .. } => CommandName::BitPos,
        StringRead::Fields(_) => CommandName::BitFieldRo,
        StringRead::Digest => CommandName::Digest,
        StringRead::Expiry => CommandName::PExpireTime,
    }
}

fn of_write(write: &StringWrite<'_>) -> CommandName {
    match write {
        StringWrite::Set { .. } => CommandName::Set,
        StringWrite::Remove { .. } => CommandName::Del,
        StringWrite::Expire { .. } => CommandName::PExpire,
        StringWrite::Append(_) => CommandName::Append,
        StringWrite::Overwrite { .. } => CommandName::SetRange,
        StringWrite::Fields(_) => CommandName::BitField,
        StringWrite::AddFraction(_) => CommandName::IncrByFloat,
    }
}

/// Returns the longest text with which all keys begin that a scan may return; `None`: it may return any.
fn prefix_of<'k>(start: &'k [u8], scan: &Scan<'k>) -> Option<&'k [u8]> {
    match (scan.start, scan.end) {
        (ScanStart::Floor, _) | (_, ScanEnd::Last) => None,
        (_, ScanEnd::AtOrBelow(end)) => Some(common_prefix(start, end, true)),
        (_, ScanEnd::Below(end)) => Some(common_prefix(start, end, false)),
        // Keys between a start below the prefix and the prefix belong to it.
        (_, ScanEnd::Prefix(prefix)) => Some(common_prefix(start, prefix, true)),
    }
}

#[cfg(test)]
mod tests {
    use skep_core::operation::{
        Condition, Expiry, ExpiryChange, ExpiryCondition, Operation, Scan, ScanAnswer, ScanEnd, ScanLease, ScanStart,
        StringRead, StringWrite,
    };

    use super::{needs, prefix_of};
    use crate::resp_command::table::CommandName;

    #[test]
    fn each_kind_of_a_read_or_write_has_its_own_command() {
        let expiry = ExpiryChange::set(Expiry::at(1).unwrap());
        let condition = ExpiryCondition::Always;
        for (operation, expected) in [
            (Operation::StringRead(StringRead::Size), CommandName::StrLen),
            (Operation::StringRead(StringRead::Digest), CommandName::Digest),
            (Operation::StringRead(StringRead::Expiry), CommandName::PExpireTime),
            (
                Operation::StringWrite(StringWrite::Remove { condition: Condition::ALWAYS, return_old: true }),
                CommandName::Del,
            ),
            (
                Operation::StringWrite(StringWrite::Expire { expiry, condition, return_value: false }),
                CommandName::PExpire,
            ),
            (Operation::StringWrite(StringWrite::Append(b"x")), CommandName::Append),
            (Operation::StringWrite(StringWrite::AddFraction(b"1")), CommandName::IncrByFloat),
        ] {
            assert_eq!(needs(&operation).0, expected, "{operation:?}");
        }
    }

    #[test]
    fn the_keys_of_a_scan_have_a_prefix() {
        let scan = |start, end| Scan {
            start,
            end,
            reverse: false,
            limit: 1,
            answer: ScanAnswer::Keys,
            lease: ScanLease::None,
        };
        let (from, floor) = (ScanStart::AtOrAbove, ScanStart::Floor);
        for (start, scan, expected) in [
            (&b"user:1"[..], scan(from, ScanEnd::AtOrBelow(b"user:9")), Some(&b"user:"[..])),
            (b"user:1", scan(from, ScanEnd::Below(b"user;")), Some(b"user:")),
            (b"user:1", scan(from, ScanEnd::AtOrBelow(b"user;")), Some(b"user")),
            (b"user:1", scan(from, ScanEnd::Below(b"user;0")), Some(b"user")),
            (b"user:", scan(from, ScanEnd::Prefix(b"user:")), Some(b"user:")),
            (b"a", scan(from, ScanEnd::Prefix(b"user:")), Some(b"")),
            (b"user:1", scan(from, ScanEnd::Last), None),
            (b"user:1", scan(floor, ScanEnd::Below(b"user:2")), None),
            (b"\xff", scan(from, ScanEnd::Below(b"\xff\x00")), Some(b"\xff")),
        ] {
            assert_eq!(prefix_of(start, &scan), expected, "{scan:?}");
        }
    }
}
