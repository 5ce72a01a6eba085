//! Flags and cas numbers: the fields of memcached's protocol.

use super::super::{Cache, CasNumber, ItemFields, ItemOptions, ItemRequest};
use super::{Tested, put};
use skep_core::function::{Element, UpdateFunction};
use skep_core::operation::{
    Condition, ConditionKind, Expiry, ExpiryChange, Operation, PutCondition, Reply, Request, Shape, StringWrite, Update,
};

const ADD_ONE: Operation<'static> = Operation::AddDecimal { delta: 1 };

/// Executes an operation with options. Returns its reply, as text, and the fields.
fn run(tested: &mut Tested, operation: Operation<'_>, options: ItemOptions) -> (String, Option<ItemFields>) {
    let mut fields = Vec::new();
    let request = ItemRequest { request: Request { key: b"key", operation }, options };
    tested.cache.execute_items(&[request], &mut tested.replies, &mut fields);
    let reply = match tested.replies.get(0) {
        Reply::Value(value) => String::from_utf8(value.to_vec()).unwrap(),
        reply => format!("{reply:?}"),
    };
    (reply, fields[0])
}

fn with_flags(flags: u32) -> ItemOptions {
    ItemOptions { flags: Some(flags), cas: None }
}

fn with_cas(cas: CasNumber) -> ItemOptions {
    ItemOptions { flags: None, cas: Some(cas) }
}

const NONE: ItemOptions = ItemOptions { flags: None, cas: None };

#[test]
fn flags_are_stored_with_the_value() {
    let mut tested = Tested::new(16, 1);
    let expiry = Expiry::at(500);
    let set = StringWrite::Set {
        value: b"5",
        condition: Condition::ALWAYS,
        expiry: ExpiryChange::set(expiry.unwrap()),
        return_old: false,
    };
    let (_, stored) = run(&mut tested, Operation::StringWrite(set), with_flags(0xdead_beef));
    let (value, read) = run(&mut tested, Operation::Get, NONE);
    assert_eq!((value.as_str(), read), ("5", stored));
    assert_eq!(read.map(|fields| (fields.flags, fields.expiry)), Some((0xdead_beef, expiry)));
    // In place, then with another size.
    for (operation, expected) in [(ADD_ONE, "6"), (Operation::AddDecimal { delta: 100 }, "106")] {
        let (value, fields) = run(&mut tested, operation, NONE);
        assert_eq!((value.as_str(), fields.map(|fields| fields.flags)), (expected, Some(0xdead_beef)));
        assert_eq!(run(&mut tested, Operation::Get, NONE), (expected.into(), fields));
    }
    let (_, fields) = run(&mut tested, Operation::StringWrite(StringWrite::Append(b"7")), with_flags(1));
    assert_eq!(fields.map(|fields| fields.flags), Some(1), "flags that are given replace those of the item");
    for operation in [put(b"8"), Operation::Put { value: b"9", condition: PutCondition::IfPresent }] {
        run(&mut tested, Operation::Get, with_flags(1));
        let (_, fields) = run(&mut tested, operation, NONE);
        assert_eq!(fields.map(|fields| (fields.flags, fields.expiry)), Some((0, None)), "a new value has none");
    }
    assert_eq!(run(&mut tested, Operation::Delete, NONE), ("Done".into(), None));
    assert_eq!(run(&mut tested, Operation::Get, NONE), ("NotFound".into(), None));
}

#[test]
fn an_operation_with_a_number_takes_place_on_that_state_only() {
    let mut tested = Tested::new(16, 1);
    let cas = |fields: Option<ItemFields>| fields.unwrap().cas;
    let first = cas(run(&mut tested, put(b"1"), NONE).1);
    assert_eq!(run(&mut tested, put(b"2"), with_cas(CasNumber(first.0 + 1))).0, "Exists");
    let (reply, fields) = run(&mut tested, put(b"2"), with_cas(first));
    assert_eq!(reply, "Done");
    let second = cas(fields);
    // The reply has the fields of the item that is there.
    assert_eq!(run(&mut tested, put(b"3"), with_cas(first)), ("Exists".into(), fields));
    let third = cas(run(&mut tested, ADD_ONE, with_cas(second)).1);
    for operation in [put(b"9"), ADD_ONE, Operation::Delete, Operation::Get] {
        assert_eq!(run(&mut tested, operation, with_cas(second)).0, "Exists");
        assert_eq!(run(&mut tested, Operation::Get, NONE).0, "3");
    }
    assert_eq!(run(&mut tested, Operation::Get, with_cas(third)).0, "3");
    let absent = Condition::new(ConditionKind::IfAbsent);
    let add = StringWrite::Set { value: b"4", condition: absent, expiry: ExpiryChange::CLEAR, return_old: false };
    assert_eq!(
        run(&mut tested, Operation::StringWrite(add), with_cas(third)).0,
        "Exists",
        "both conditions hold or none"
    );
    assert_eq!(run(&mut tested, Operation::Delete, with_cas(third)).0, "Done");
    for operation in [put(b"9"), ADD_ONE, Operation::Delete, Operation::Get] {
        assert_eq!(run(&mut tested, operation, with_cas(third)), ("NotFound".into(), None));
    }
    // A key that is put again has a new number, and so has one after a flush.
    let fourth = cas(run(&mut tested, put(b"1"), NONE).1);
    tested.cache.flush();
    assert_eq!(run(&mut tested, put(b"1"), with_cas(fourth)).0, "NotFound");
    let fifth = cas(run(&mut tested, put(b"1"), NONE).1);
    let numbers = [first, second, third, fourth, fifth];
    assert!(numbers.windows(2).all(|pair| pair[0].0 < pair[1].0), "{numbers:?}");
}

/// More changes than an item counts. Each has its own number, and only some of them append an item.
#[test]
fn a_counter_is_changed_in_place() {
    const CHANGES: u64 = 200_000;
    let mut tested = Tested::new(16, 1);
    let add = Operation::Update(Update {
        function: UpdateFunction::Add,
        element: Element::U64,
        shape: Shape::ScalarToScalar,
        operand: &1_u64.to_le_bytes(),
        initial: Some(&0_u64.to_le_bytes()),
        return_old: true,
    });
    let requests = vec![ItemRequest { request: Request { key: b"counter", operation: add }, options: NONE }; 1000];
    let (mut last, mut count) = (0, 0);
    let mut fields = Vec::new();
    for _ in 0..CHANGES / 1000 {
        tested.cache.execute_items(&requests, &mut tested.replies, &mut fields);
        for (reply, fields) in tested.replies.iter().zip(&fields) {
            assert_eq!(reply, Reply::Value(&u64::to_le_bytes(count)));
            let cas = fields.unwrap().cas.0;
            assert!(cas > last);
            (last, count) = (cas, count + 1);
        }
    }
    let statistics = tested.cache.statistics();
    assert_eq!((statistics.items, statistics.operations), (1, CHANGES));
    assert_eq!(statistics.log_used_bytes, (1 + CHANGES / (1 << 16)) * 32, "an item for 65536 changes");
}

#[test]
fn requests_with_options_have_the_replies_of_those_without() {
    let mut tested = [Tested::new(16, 1), Tested::new(16, 1)];
    let generator = || crate::naive::Generator::new(crate::naive::GeneratorSettings::default());
    let requests: Vec<_> = generator().take(3000).collect();
    let requests: Vec<Request<'_>> = requests.iter().map(crate::naive::OwnedRequest::as_request).collect();
    let with_options: Vec<_> =
        requests.iter().map(|request| ItemRequest { request: *request, options: NONE }).collect();
    let [plain, other] = &mut tested;
    let execute = Cache::execute;
    execute(&mut plain.cache, &requests, &mut plain.replies);
    let mut fields = Vec::new();
    other.cache.execute_items(&with_options, &mut other.replies, &mut fields);
    assert!(plain.replies.iter().eq(other.replies.iter()) && fields.len() == requests.len());
    assert_eq!(plain.cache.statistics(), other.cache.statistics());
}
