//! Commands of memcached's protocol: their effects one by one, then many random ones against a map.

use std::collections::HashMap;

use super::super::{
    CasNumber, ItemArithmetic, ItemChange, ItemCommand, ItemFields, ItemGet, ItemPut, ItemPutMode, ItemRequest,
    ItemValue,
};
use super::{Tested, put};
use crate::naive::{SplitMix64, test_seeds};
use skep_core::operation::{Expiry, ExpiryChange, Operation, Reply, Request, VALUE_SIZE_MAX};

const GET: ItemCommand<'static> = ItemCommand::Read;

fn store(value: &[u8], mode: ItemPutMode) -> ItemPut<'_> {
    ItemPut {
        value,
        mode,
        flags: 0,
        expiry: ExpiryChange::CLEAR,
        size_max: VALUE_SIZE_MAX,
        may_be_stale: false,
        returns_fields: true,
        has_base64_key: false,
    }
}

fn set(value: &[u8]) -> ItemCommand<'_> {
    ItemCommand::Put(store(value, ItemPutMode::Always))
}

fn add(delta: u64) -> ItemCommand<'static> {
    let change = ItemChange::Add(delta);
    ItemCommand::Arithmetic(ItemArithmetic { change, create: None, expiry: ExpiryChange::KEEP })
}

fn expiry(milliseconds: i64) -> ExpiryChange {
    ExpiryChange::set(Expiry::at(milliseconds).unwrap())
}

/// Executes a command on a key. Returns its reply, as text, and the fields if it has them.
fn run_on(
    tested: &mut Tested,
    key: &[u8],
    command: ItemCommand<'_>,
    cas: Option<CasNumber>,
) -> (String, Option<ItemFields>) {
    tested.cache.execute_items(&[ItemRequest { key, cas, command }], &mut tested.replies);
    match tested.replies.get(0) {
        Reply::Value(bytes) => {
            let (fields, value) = ItemFields::decode(bytes);
            (String::from_utf8(value.to_vec()).unwrap(), Some(fields))
        }
        reply => (format!("{reply:?}"), None),
    }
}

/// Executes a command on the usual key.
fn run(tested: &mut Tested, command: ItemCommand<'_>) -> (String, Option<ItemFields>) {
    run_on(tested, b"key", command, None)
}

/// Executes a command on the usual key, which must have this number. Returns its reply.
fn run_cas(tested: &mut Tested, command: ItemCommand<'_>, cas: CasNumber) -> (String, Option<ItemFields>) {
    run_on(tested, b"key", command, Some(cas))
}

fn value(tested: &mut Tested) -> String {
    run(tested, GET).0
}

#[test]
fn flags_and_expiry_are_stored_with_the_value() {
    let mut tested = Tested::new(16, 1);
    let new = ItemPut { flags: 0xdead_beef, expiry: expiry(500), ..store(b"5", ItemPutMode::Always) };
    let (_, stored) = run(&mut tested, ItemCommand::Put(new));
    let (text, read) = run(&mut tested, GET);
    assert_eq!((text.as_str(), read), ("5", stored));
    assert_eq!(read.map(|fields| (fields.flags, fields.expiry)), Some((0xdead_beef, Expiry::at(500))));
    // In place, then with another size.
    for (command, expected) in [(add(1), "6"), (add(100), "106")] {
        let (text, changed) = run(&mut tested, command);
        let fields = run(&mut tested, GET).1.unwrap();
        assert_eq!((text.as_str(), fields.flags, fields.expiry), (expected, 0xdead_beef, Expiry::at(500)));
        assert_eq!(changed.unwrap().cas, fields.cas);
    }
    for mode in [ItemPutMode::Append, ItemPutMode::Prepend] {
        let extended = ItemPut { flags: 1, expiry: expiry(900), ..store(b"-", mode) };
        let fields = run(&mut tested, ItemCommand::Put(extended)).1.unwrap();
        assert_eq!((fields.flags, fields.expiry), (0xdead_beef, Expiry::at(500)));
    }
    assert_eq!(value(&mut tested), "-106-");
    let fields = run(&mut tested, ItemCommand::Put(store(b"8", ItemPutMode::IfPresent))).1.unwrap();
    assert_eq!((fields.flags, fields.expiry), (0, None), "a new value has its own");
    // The operations of other clients act on the same keys.
    assert_eq!(tested.run(b"key", Operation::AddDecimal { delta: 1 }), Reply::Value(b"9"));
    assert_eq!(run(&mut tested, ItemCommand::Delete).0, "Done");
    assert_eq!(
        (run(&mut tested, ItemCommand::Delete).0.as_str(), value(&mut tested).as_str()),
        ("NotFound", "NotFound")
    );
}

/// After each state of the key, twice, also after its expiry.
#[test]
fn a_read_does_what_a_plain_get_does() {
    let mut of_reads = Tested::new(16, 1);
    let mut of_gets = Tested::new(16, 1);
    let mut of_values = Tested::new(16, 1);
    let large = [7; 3000];
    let states = [
        set(b"1"),
        add(5),
        ItemCommand::Put(ItemPut { flags: 9, expiry: expiry(500), ..store(b"value", ItemPutMode::Always) }),
        ItemCommand::Put(ItemPut { has_base64_key: true, ..store(&large, ItemPutMode::Always) }),
        ItemCommand::Invalidate { expiry: ExpiryChange::KEEP },
        ItemCommand::Get(ItemGet { may_win: true, ..ItemGet::PLAIN }),
        ItemCommand::Delete,
        ItemCommand::Put(ItemPut { expiry: expiry(600), ..store(b"last", ItemPutMode::Always) }),
    ];
    let (mut hits, mut misses) = (0, 0);
    for (step, state) in states.into_iter().enumerate() {
        let expected = run(&mut of_gets, state);
        assert_eq!((run(&mut of_reads, state), run(&mut of_values, state)), (expected.clone(), expected));
        for time in [0, 0, 1000].into_iter().take(if step == 7 { 3 } else { 2 }) {
            of_reads.cache.set_now(time);
            of_gets.cache.set_now(time);
            of_values.cache.set_now(time);
            let read = run(&mut of_reads, ItemCommand::Read);
            assert_eq!(read, run(&mut of_gets, ItemCommand::Get(ItemGet::PLAIN)), "step {step} at {time}");
            let request = ItemRequest { key: b"key", cas: None, command: ItemCommand::ReadValue };
            of_values.cache.execute_items(&[request], &mut of_values.replies);
            let expected = read.1.map(|fields| ItemValue { flags: fields.flags, value: read.0.as_bytes() });
            let of_value = match of_values.replies.get(0) {
                Reply::Value(bytes) => Some(ItemValue::decode(bytes)),
                _ => None,
            };
            assert_eq!(of_value, expected, "step {step} at {time}");
            (hits, misses) = (hits + u32::from(read.1.is_some()), misses + u32::from(read.1.is_none()));
        }
        assert_eq!(of_reads.cache.statistics(), of_gets.cache.statistics());
        assert_eq!(of_values.cache.statistics(), of_gets.cache.statistics());
    }
    assert_eq!((hits, misses), (14, 3));
}

#[test]
fn a_command_with_a_number_takes_place_on_that_state_only() {
    let mut tested = Tested::new(16, 1);
    let tested = &mut tested;
    let cas = |(_, fields): (String, Option<ItemFields>)| fields.unwrap().cas;
    let first = cas(run(tested, set(b"1")));
    assert_eq!(run_cas(tested, set(b"2"), CasNumber(first.0 + 1)).0, "Exists");
    let second = cas(run_cas(tested, set(b"2"), first));
    assert_eq!(run_cas(tested, set(b"3"), first).0, "Exists");
    let third = cas(run_cas(tested, add(1), second));
    let others = [GET, add(1), ItemCommand::Delete, ItemCommand::Invalidate { expiry: ExpiryChange::KEEP }];
    let modes = [ItemPutMode::Always, ItemPutMode::IfPresent, ItemPutMode::Append, ItemPutMode::Prepend];
    let puts = modes.map(|mode| ItemCommand::Put(store(b"9", mode)));
    for command in others.into_iter().chain(puts) {
        assert_eq!(run_cas(tested, command, second).0, "Exists", "{command:?}");
        assert_eq!(value(tested), "3");
    }
    assert_eq!(run_cas(tested, ItemCommand::Delete, third).0, "Done");
    for command in others.into_iter().chain(puts) {
        assert_eq!(run_cas(tested, command, third).0, "NotFound", "{command:?}");
    }
    // A key that is put again has a new number, and so has one after a flush.
    let fourth = cas(run(tested, set(b"1")));
    tested.cache.flush();
    assert_eq!(run_cas(tested, set(b"1"), fourth).0, "NotFound");
    let fifth = cas(run(tested, set(b"1")));
    let numbers = [first, second, third, fourth, fifth];
    assert!(numbers.is_sorted_by(|one, next| one < next), "{numbers:?}");
    // A get, and a change of the expiry in place, change no number.
    let sixth = cas(run(tested, ItemCommand::Put(ItemPut { expiry: expiry(500), ..store(b"1", ItemPutMode::Always) })));
    let touch = ItemCommand::Get(ItemGet { returns_value: false, expiry: expiry(600), ..ItemGet::PLAIN });
    assert_eq!((cas(run(tested, touch)), cas(run(tested, GET))), (sixth, sixth));
    assert_eq!(run(tested, GET).1.unwrap().expiry, Expiry::at(600));
    // An item that loses its expiry, or gets its first one, has another number. The reply has this one, and the value.
    for (change, expected) in [(ExpiryChange::CLEAR, None), (expiry(700), Expiry::at(700))] {
        let before = cas(run(tested, GET));
        let (text, changed) = run(tested, ItemCommand::Get(ItemGet { expiry: change, ..ItemGet::PLAIN }));
        let (number, after) = (changed.unwrap().cas, run(tested, GET).1.unwrap());
        assert_eq!((text.as_str(), number, expected), ("1", after.cas, after.expiry));
        assert!(number > before);
    }
}

/// More changes than an item counts. Each has its own number, and only some of them append an item.
#[test]
fn a_counter_is_changed_in_place() {
    const CHANGES: u64 = 200_000;
    const BEGIN: u64 = 1_000_000;
    let mut tested = Tested::new(16, 1);
    run_on(&mut tested, b"counter", set(BEGIN.to_string().as_bytes()), None);
    let requests = vec![ItemRequest { key: b"counter", cas: None, command: add(1) }; 1000];
    let (mut last, mut count) = (CasNumber(0), BEGIN);
    for _ in 0..CHANGES / 1000 {
        tested.cache.execute_items(&requests, &mut tested.replies);
        for reply in tested.replies.iter() {
            let Reply::Value(bytes) = reply else { panic!("{reply:?}") };
            let (fields, number) = ItemFields::decode(bytes);
            count += 1;
            assert_eq!(number, count.to_string().as_bytes());
            assert!(fields.cas > last);
            last = fields.cas;
        }
    }
    let statistics = tested.cache.statistics();
    assert_eq!((statistics.items, statistics.operations), (1, 1 + CHANGES));
    assert_eq!(statistics.log_used_bytes, (1 + CHANGES / (1 << 16)) * 32, "an item for 65536 changes");
}

#[test]
fn numbers_wrap_around_upwards_and_stop_at_0() {
    let mut tested = Tested::new(16, 1);
    let subtract = |delta| {
        let change = ItemChange::Subtract(delta);
        ItemCommand::Arithmetic(ItemArithmetic { change, create: None, expiry: ExpiryChange::KEEP })
    };
    run(&mut tested, set(b"10"));
    assert_eq!(run(&mut tested, subtract(1)).0, "9");
    assert_eq!(value(&mut tested), "9 ", "a number keeps its place");
    assert_eq!(run(&mut tested, add(91)).0, "100");
    assert_eq!(run(&mut tested, subtract(u64::MAX)).0, "0");
    assert_eq!(run(&mut tested, add(u64::MAX)).0, u64::MAX.to_string());
    assert_eq!(run(&mut tested, add(3)).0, "2");
    run(&mut tested, set(b"x"));
    assert_eq!(run(&mut tested, add(1)).0, "Failed(NotAnInteger)");
    let create =
        ItemArithmetic { change: ItemChange::Add(5), create: Some((13, expiry(900))), expiry: ExpiryChange::KEEP };
    let (number, fields) = run_on(&mut tested, b"new", ItemCommand::Arithmetic(create), None);
    let fields = fields.unwrap();
    assert_eq!((number.as_str(), fields.is_created, fields.expiry), ("13", true, Expiry::at(900)));
    assert_eq!(run_on(&mut tested, b"new", ItemCommand::Arithmetic(create), None).0, "18");
}

#[test]
fn a_value_that_would_be_too_long_is_refused() {
    let mut tested = Tested::new(16, 1);
    let half = vec![b'a'; VALUE_SIZE_MAX / 2 + 1];
    run(&mut tested, set(&half));
    assert_eq!(run(&mut tested, ItemCommand::Put(store(&half, ItemPutMode::Append))).0, "NotFound");
    let bounded = |mode| ItemCommand::Put(ItemPut { size_max: half.len(), ..store(b"b", mode) });
    for mode in [ItemPutMode::Append, ItemPutMode::Prepend] {
        assert_eq!(run(&mut tested, bounded(mode)).0, "NotFound");
    }
    assert_eq!(value(&mut tested).len(), half.len());
    let long = vec![b'a'; VALUE_SIZE_MAX + 1];
    assert_eq!(run(&mut tested, set(&long)).0, "Failed(ValueTooLong)");
}

/// As memcached 1.6.18: changes in place keep the form of the key, a value that is stored anew has that of its command.
#[test]
fn an_item_keeps_the_form_in_which_its_key_was_stored() {
    let mut tested = Tested::new(16, 1);
    let tested = &mut tested;
    let base64 = |mode| ItemCommand::Put(ItemPut { has_base64_key: true, ..store(b"5", mode) });
    let touch = ItemCommand::Get(ItemGet { expiry: expiry(9000), ..ItemGet::PLAIN });
    let create = ItemCommand::Get(ItemGet { create: Some(expiry(5000)), ..ItemGet::PLAIN });
    let late = ItemPut { may_be_stale: true, has_base64_key: true, ..store(b"6", ItemPutMode::Always) };
    for (before, command, expected) in [
        (set(b"1"), base64(ItemPutMode::Always), true),
        (set(b"1"), base64(ItemPutMode::IfPresent), true),
        (set(b"1"), base64(ItemPutMode::Append), false),
        (set(b"1"), ItemCommand::Put(late), true),
        (ItemCommand::Delete, base64(ItemPutMode::IfAbsent), true),
        (ItemCommand::Delete, create, false),
        (base64(ItemPutMode::Always), set(b"1"), false),
        (base64(ItemPutMode::Always), ItemCommand::Put(store(b"1", ItemPutMode::Prepend)), false),
        (base64(ItemPutMode::Always), touch, true),
        (base64(ItemPutMode::Always), ItemCommand::Invalidate { expiry: ExpiryChange::KEEP }, true),
        (base64(ItemPutMode::Always), ItemCommand::Invalidate { expiry: expiry(9000) }, true),
        (base64(ItemPutMode::Always), add(1), true),
        (base64(ItemPutMode::Always), add(100), false),
    ] {
        run(tested, before);
        run(tested, command);
        let fields = run(tested, GET).1.unwrap();
        assert_eq!(fields.has_base64_key, expected, "{before:?} {command:?}");
    }
}

#[test]
fn one_client_wins_and_stores_a_new_value() {
    let mut tested = Tested::new(16, 1);
    let tested = &mut tested;
    let marks = |(_, fields): (String, Option<ItemFields>)| {
        let ItemFields { is_won, is_won_by_other, is_stale, was_fetched, .. } = fields.unwrap();
        (is_won, is_won_by_other, is_stale, was_fetched)
    };
    // A missing key is created for the first client.
    let meta = ItemGet { may_win: true, ..ItemGet::PLAIN };
    let create = ItemCommand::Get(ItemGet { create: Some(expiry(5000)), ..meta });
    let (text, fields) = run(tested, create);
    assert_eq!((text.as_str(), fields.unwrap().is_created), ("", true));
    assert_eq!(marks(run(tested, create)), (false, true, false, true));
    let first = run(tested, set(b"1")).1.unwrap().cas;
    assert_eq!(marks(run(tested, GET)), (false, false, false, false), "a new value has no marks");
    assert_eq!(marks(run(tested, GET)), (false, false, false, true));
    let peek = ItemCommand::Get(ItemGet { is_access: false, ..ItemGet::PLAIN });
    run(tested, set(b"1"));
    run(tested, peek);
    assert_eq!(marks(run(tested, peek)), (false, false, false, false));
    // A stale value: the first client that reads it wins.
    let expires = ItemPut { expiry: expiry(9000), ..store(b"2", ItemPutMode::Always) };
    let second = run(tested, ItemCommand::Put(expires)).1.unwrap().cas;
    assert_eq!(run(tested, ItemCommand::Invalidate { expiry: expiry(8000) }).0, "Done");
    assert_eq!(marks(run(tested, GET)), (false, false, true, false), "only some commands win");
    let (text, fields) = run(tested, ItemCommand::Get(meta));
    assert_eq!((text.as_str(), fields.unwrap().expiry), ("2", Expiry::at(8000)));
    assert!(fields.unwrap().cas > second && fields.unwrap().is_won && fields.unwrap().is_stale);
    assert_eq!(marks(run(tested, GET)), (false, true, true, true));
    // A value that was computed from an older one is stored as a stale one, and keeps the expiry.
    let late = ItemPut { may_be_stale: true, ..store(b"3", ItemPutMode::Always) };
    assert_eq!(run_cas(tested, ItemCommand::Put(store(b"3", ItemPutMode::Always)), first).0, "Exists");
    assert_eq!(run_cas(tested, ItemCommand::Put(late), first).0, "");
    let (text, fields) = run(tested, GET);
    assert_eq!((text.as_str(), fields.unwrap().expiry), ("3", Expiry::at(8000)));
    assert_eq!(marks(run(tested, GET)), (false, true, true, true));
    // A value that expires soon: the first client wins.
    run(tested, ItemCommand::Put(expires));
    let recache = |time| ItemCommand::Get(ItemGet { recache_before: Some(time), ..meta });
    assert_eq!(marks(run(tested, recache(9000))), (false, false, false, false));
    assert_eq!(marks(run(tested, recache(9001))), (true, false, false, true));
    assert_eq!(marks(run(tested, recache(9001))), (false, true, false, true));
}

#[test]
fn a_flush_at_a_time_removes_what_is_there_then() {
    let mut tested = Tested::new(16, 1);
    tested.cache.set_now(1000);
    tested.cache.flush_at(2000);
    run(&mut tested, set(b"1"));
    tested.cache.set_now(1999);
    assert_eq!(value(&mut tested), "1");
    tested.cache.set_now(2000);
    assert_eq!(value(&mut tested), "NotFound");
    run(&mut tested, set(b"2"));
    tested.cache.set_now(3000);
    assert_eq!(value(&mut tested), "2", "it takes place once");
    // A later flush replaces the one that was asked for.
    tested.cache.flush_at(4000);
    tested.cache.flush_at(5000);
    tested.cache.set_now(4500);
    assert_eq!(value(&mut tested), "2");
    tested.cache.flush_at(0);
    assert_eq!(value(&mut tested), "NotFound");
    run(&mut tested, set(b"3"));
    tested.cache.set_now(9000);
    assert_eq!(value(&mut tested), "3");
}

#[test]
fn an_expiry_in_the_past_removes_the_item() {
    let mut tested = Tested::new(16, 1);
    tested.cache.set_now(1000);
    let past = expiry(1000);
    let touch = ItemCommand::Get(ItemGet { returns_value: false, expiry: past, ..ItemGet::PLAIN });
    let stored = ItemCommand::Put(ItemPut { expiry: past, ..store(b"2", ItemPutMode::Always) });
    let added = ItemCommand::Put(ItemPut { expiry: past, ..store(b"2", ItemPutMode::IfAbsent) });
    let number = ItemArithmetic { change: ItemChange::Add(1), create: None, expiry: past };
    for command in [touch, stored, ItemCommand::Invalidate { expiry: past }, ItemCommand::Arithmetic(number)] {
        run(&mut tested, set(b"1"));
        assert_ne!(run(&mut tested, command).0, "NotFound");
        assert_eq!(value(&mut tested), "NotFound", "{command:?}");
        assert_eq!(tested.cache.statistics().items, 0, "{command:?}");
    }
    for command in [stored, added] {
        assert_eq!(run(&mut tested, command).0, "");
        assert_eq!(value(&mut tested), "NotFound", "{command:?}");
    }
    assert_eq!(tested.cache.statistics().items, 0);
}

/// The state of a key in the model.
#[derive(Clone, Debug, PartialEq)]
struct Modelled {
    value: Vec<u8>,
    flags: u32,
}

/// Random commands on a few keys, in batches, beside a map. No item is evicted, because all fit.
#[test]
fn random_commands_have_the_replies_of_a_map() {
    for seed in test_seeds() {
        compare_with_a_map(seed);
    }
}

fn compare_with_a_map(seed: u64) {
    let mut random = SplitMix64::new(seed);
    let mut tested = Tested::new(16, seed);
    let mut model: HashMap<Vec<u8>, Modelled> = HashMap::new();
    let values: Vec<Vec<u8>> = [0, 1, 2, 20, 600].iter().map(|size| vec![b'7'; *size]).collect();
    for round in 0..300 {
        let keys: Vec<Vec<u8>> = (0..40).map(|_| format!("k{}", random.within(0..=19)).into_bytes()).collect();
        let commands: Vec<ItemCommand<'_>> = keys
            .iter()
            .map(|_| {
                let value = &values[random.within(0..=values.len() - 1)];
                let modes = [
                    ItemPutMode::Always,
                    ItemPutMode::IfAbsent,
                    ItemPutMode::IfPresent,
                    ItemPutMode::Append,
                    ItemPutMode::Prepend,
                ];
                let mode = modes[random.within(0..=modes.len() - 1)];
                match random.within(0..=7) {
                    0..2 => GET,
                    2 => ItemCommand::Get(ItemGet::PLAIN),
                    3 => ItemCommand::Delete,
                    4 => add(random.within(0..=999) as u64),
                    _ => ItemCommand::Put(ItemPut {
                        flags: random.within(0..=2) as u32,
                        returns_fields: false,
                        has_base64_key: false,
                        ..store(value, mode)
                    }),
                }
            })
            .collect();
        let requests: Vec<_> = keys
            .iter()
            .zip(&commands)
            .map(|(key, command)| ItemRequest { key, cas: None, command: *command })
            .collect();
        tested.cache.execute_items(&requests, &mut tested.replies);
        for (index, request) in requests.iter().enumerate() {
            let expected = apply(&mut model, request);
            let reply = match tested.replies.get(index) {
                Reply::Value(bytes) => {
                    let (fields, value) = ItemFields::decode(bytes);
                    Ok(Modelled { value: value.to_vec(), flags: fields.flags })
                }
                reply => Err(format!("{reply:?}")),
            };
            assert_eq!(reply, expected, "SKEP_SEED={seed}, round {round}: {request:?}");
        }
        // Keep the values short.
        let long: Vec<_> =
            model.iter().filter(|(_, item)| item.value.len() > 5000).map(|(key, _)| key.clone()).collect();
        for key in long {
            model.remove(&key);
            let delete = Request { key: &key, operation: Operation::Delete };
            tested.cache.execute(&[delete], &mut tested.replies);
        }
    }
    assert_eq!(tested.cache.statistics().items, model.len() as u64);
    assert_eq!(tested.run(b"k", put(b"")), Reply::Done);
}

/// Executes a command on the model.
fn apply(model: &mut HashMap<Vec<u8>, Modelled>, request: &ItemRequest<'_>) -> Result<Modelled, String> {
    let found = model.get(request.key).cloned();
    let missing = || Err("NotFound".to_owned());
    match request.command {
        ItemCommand::Read | ItemCommand::Get(_) => found.map_or_else(missing, Ok),
        ItemCommand::Delete => model.remove(request.key).map_or_else(missing, |_| Err("Done".to_owned())),
        ItemCommand::Put(ItemPut { value, mode, flags, .. }) => {
            let new = match (mode, found) {
                (ItemPutMode::IfAbsent, Some(_)) => return Err("Exists".to_owned()),
                (ItemPutMode::IfPresent | ItemPutMode::Append | ItemPutMode::Prepend, None) => return missing(),
                (ItemPutMode::Append, Some(old)) => Modelled { value: [&old.value, value].concat(), ..old },
                (ItemPutMode::Prepend, Some(old)) => Modelled { value: [value, &old.value].concat(), ..old },
                _ => Modelled { value: value.to_vec(), flags },
            };
            model.insert(request.key.to_vec(), new);
            Err("Done".to_owned())
        }
        ItemCommand::Arithmetic(ItemArithmetic { change: ItemChange::Add(delta), .. }) => {
            let Some(old) = found else { return missing() };
            let text = std::str::from_utf8(&old.value).unwrap().trim_end();
            let Ok(number) = text.parse::<u64>() else { return Err("Failed(NotAnInteger)".to_owned()) };
            let new = number.wrapping_add(delta).to_string();
            let mut value = new.clone().into_bytes();
            value.resize(value.len().max(old.value.len()), b' ');
            let item = Modelled { value, ..old };
            model.insert(request.key.to_vec(), item.clone());
            Ok(Modelled { value: new.into_bytes(), ..item })
        }
        command => unreachable!("{command:?} is not generated"),
    }
}
