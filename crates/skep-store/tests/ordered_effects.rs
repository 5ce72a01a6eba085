//! The effects that writes to the ordered store have, one by one, and the floors of sessions that take turns.

use std::time::Instant;

use skep_core::function::{Element, UpdateFunction};
use skep_core::operation::{
    Condition, ConditionKind, Expiry, ExpiryChange, ExpiryCondition, Operation, PutCondition, Request, Shape,
    StringWrite, Update,
};
use skep_store::ordered::{Effect, FlushStep, OrderedSettings, OrderedStore, Session};
use skep_store::processor::Replies;

/// A key, and its value with the expiry in milliseconds.
type Shown = (String, Option<(String, Option<u64>)>);

fn store() -> OrderedStore {
    OrderedStore::new(&OrderedSettings::new(32 << 20)).unwrap()
}

fn logged(store: &OrderedStore) -> Session<'_> {
    let mut session = store.session().unwrap();
    session.record_effects();
    session
}

fn execute(session: &mut Session<'_>, requests: &[(&str, Operation<'_>)]) {
    let requests: Vec<Request<'_>> =
        requests.iter().map(|(key, operation)| Request { key: key.as_bytes(), operation: *operation }).collect();
    session.execute(&requests, &mut Replies::with_budget(4 << 20), Instant::now());
}

fn put(value: &str, condition: PutCondition) -> Operation<'_> {
    Operation::Put { value: value.as_bytes(), condition }
}

fn expire(at: i64) -> Operation<'static> {
    Operation::StringWrite(StringWrite::Expire {
        expiry: ExpiryChange::set(Expiry::at(at).unwrap()),
        condition: ExpiryCondition::Always,
        return_value: false,
    })
}

/// Seals, and returns the blocks: the effects and the floor of each.
fn seal(session: &mut Session<'_>) -> Vec<(Vec<Shown>, u64)> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let show = |Effect { key, value, .. }: Effect<'_>| {
        (text(key), value.map(|(value, expiry)| (text(value), expiry.map(Expiry::milliseconds))))
    };
    let mut blocks = Vec::new();
    session.seal(|effects, floor| blocks.push((effects.map(show).collect(), floor)));
    assert!(!session.has_unsealed());
    blocks
}

/// Seals, and returns the effects of the only block.
fn effects(session: &mut Session<'_>) -> Vec<Shown> {
    let [(effects, floor)] = &seal(session)[..] else { panic!("one block") };
    assert!(*floor > session.read_version());
    effects.clone()
}

fn shown(key: &str, value: &str) -> Shown {
    (key.into(), Some((value.into(), None)))
}

#[test]
fn each_write_that_takes_place_has_one_effect() {
    let store = store();
    let mut session = logged(&store);
    let long = "x".repeat(20_000);
    let append = Operation::StringWrite(StringWrite::Append(b"!"));
    let update = Operation::Update(Update {
        function: UpdateFunction::Add,
        element: Element::U8,
        shape: Shape::ScalarToVector,
        operand: &[1],
        initial: None,
        return_old: true,
    });
    let set_if_absent = Operation::StringWrite(StringWrite::Set {
        value: b"other",
        condition: Condition::new(ConditionKind::IfAbsent),
        expiry: ExpiryChange::CLEAR,
        return_old: false,
    });
    let requests = [
        ("a", put("1", PutCondition::Always)),
        ("b", put("2", PutCondition::IfPresent)),
        ("a", put("3", PutCondition::IfAbsent)),
        ("a", Operation::Get),
        ("a", Operation::AddDecimal { delta: 41 }),
        ("b", Operation::Delete),
        ("", put("4", PutCondition::Always)),
        ("l", put(&long, PutCondition::IfAbsent)),
        ("l", append),
        ("a", update),
        ("a", set_if_absent),
        ("a", expire(70)),
        ("l", expire(80)),
        ("a", append),
        ("l", Operation::Delete),
    ];
    execute(&mut session, &requests);
    let expected = [
        shown("a", "1"),
        shown("a", "42"),
        shown("l", &long),
        shown("l", &format!("{long}!")),
        shown("a", "53"),
        ("a".into(), Some(("53".into(), Some(70)))),
        ("l".into(), Some((format!("{long}!"), Some(80)))),
        ("a".into(), Some(("53!".into(), Some(70)))),
        ("l".into(), None),
    ];
    assert_eq!(effects(&mut session), expected);
    assert!(seal(&mut session).is_empty());
    // Single calls, and calls for many pairs.
    session.put(b"c", b"5", PutCondition::Always);
    session.put_batch(&[(b"d", b"6"), (b"c", b"7")], PutCondition::IfAbsent, |_| ());
    session.delete(b"c");
    session.delete(b"c");
    assert_eq!(effects(&mut session), [shown("c", "5"), shown("d", "6"), ("c".into(), None)]);
}

#[test]
fn keys_that_expire_leave_no_effect() {
    let store = store();
    let mut session = logged(&store);
    execute(&mut session, &[("a", put("1", PutCondition::Always)), ("b", put("2", PutCondition::Always))]);
    execute(&mut session, &[("a", expire(50)), ("b", expire(50)), ("c", put("3", PutCondition::Always))]);
    assert_eq!(effects(&mut session).len(), 5);
    store.set_now(60);
    execute(&mut session, &[("a", Operation::Delete)]);
    assert!(seal(&mut session).is_empty(), "the delete has found no key");
    execute(&mut session, &[("a", Operation::AddDecimal { delta: 1 })]);
    assert_eq!(effects(&mut session), [shown("a", "1")]);
    while session.reclaim().is_some() {}
    assert_eq!(session.expired_count(), 1);
    // It has taken a version, which other sessions can read: they get a floor above it.
    assert_eq!(effects(&mut session), []);
    let mut position = Vec::new();
    while session.flush_step(&mut position) != FlushStep::Done {}
    assert_eq!(effects(&mut session), [("a".into(), None), ("c".into(), None)]);
}

#[test]
fn a_session_that_has_not_sealed_holds_the_floors_of_others_back() {
    let store = store();
    let (mut one, mut other) = (logged(&store), logged(&store));
    let write = |session: &mut Session<'_>| execute(session, &[("a", put("1", PutCondition::Always))]);
    write(&mut one);
    let held = one.read_version();
    write(&mut other);
    let blocks = seal(&mut other);
    assert_eq!((blocks.len(), blocks[0].1), (1, held), "not above the first write that is not sealed");
    // A write without an effect, and none at all, hold nothing back for longer than until they are sealed.
    assert_eq!(seal(&mut one).last().unwrap().1, other.read_version() + 1);
    execute(&mut one, &[("a", put("2", PutCondition::IfAbsent))]);
    assert!(one.has_unsealed());
    write(&mut other);
    let read = other.read_version();
    assert_eq!(seal(&mut other)[0].1, read);
    let blocks = seal(&mut one);
    assert!(blocks.len() == 1 && blocks[0].0.is_empty() && blocks[0].1 > read, "{blocks:?}");
    assert!(seal(&mut one).is_empty() && seal(&mut other).is_empty());
    // Without a session that was held back, a block without effects is not needed.
    execute(&mut one, &[("a", put("2", PutCondition::IfAbsent))]);
    assert!(seal(&mut one).is_empty());
}

/// A transaction runs in several batches while no other session writes: they are sealed together, under one floor.
#[test]
fn no_floor_divides_a_transaction() {
    let store = store();
    let (mut one, mut other) = (logged(&store), logged(&store));
    execute(&mut other, &[("x", put("1", PutCondition::Always)), ("x", expire(5))]);
    seal(&mut other);
    execute(&mut one, &[("a", put("1", PutCondition::Always))]);
    let first = one.read_version();
    // Another session may still free memory.
    store.set_now(6);
    assert!(other.reclaim().is_some());
    assert!(seal(&mut other).iter().all(|(_, floor)| *floor <= first));
    execute(&mut one, &[("b", put("2", PutCondition::Always))]);
    let last = one.read_version();
    assert!(last > first);
    let blocks = seal(&mut one);
    assert_eq!(blocks[0].0, [shown("a", "1"), shown("b", "2")]);
    assert!(blocks[0].1 > last, "the block of the transaction is enough");
}

#[test]
fn versions_of_a_restored_store_begin_above_those_of_its_log() {
    let mut store = store();
    store.session().unwrap().put(b"a", b"1", PutCondition::Always);
    store.begin_versions_after(1 << 40);
    let mut session = logged(&store);
    assert_eq!(session.read_version(), 1 << 40);
    for value in 0..100_u8 {
        session.put(b"a", &[value], PutCondition::Always);
        session.put(&[b'b', value], &[value], PutCondition::Always);
    }
    let mut versions = Vec::new();
    session.seal(|effects, _| versions.extend(effects.map(|effect| effect.version)));
    assert!(versions.len() == 200 && versions.iter().all(|version| *version > 1 << 40));
    assert_eq!(session.check().pairs, 101);
    // They never go back.
    drop(session);
    store.begin_versions_after(7);
    assert!(store.session().unwrap().read_version() >= *versions.last().unwrap());
}

#[test]
#[should_panic(expected = "effects that were not sealed")]
fn effects_that_were_never_sealed_are_found() {
    let store = store();
    logged(&store).put(b"a", b"1", PutCondition::Always);
    logged(&store);
}
