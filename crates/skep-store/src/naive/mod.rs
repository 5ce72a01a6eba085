//! The obvious store: a sorted map, and every operation in the plainest way. All stores of Skep are tested against
//! it (by the tests and benchmarks of every crate, so it is not hidden behind `cfg(test)`).
//!
//! The meaning of an operation, in the order of the decisions:
//!
//! 1. **Validity**, for any content of the store: [`Request::validate`], or for a hash store
//!    [`Request::validate_unordered`], else `Failed`.
//! 2. **Existence**: a key that the operation needs and that is missing is `NotFound`, one that
//!    [`PutCondition::IfAbsent`] finds is `Exists`. An update with an initial value takes a missing key to hold
//!    that value: it stores `λ(initial)`, and the old value it may return is the initial one. `AddDecimal` takes a
//!    missing key to hold `0`.
//! 3. **The value**: `validate_value` of the update, fold or filter, or a number for `AddDecimal`; else `Failed`.
//! 4. Only now something changes.
//!
//! So an invalid request on a missing key is `Failed`, and a fold of the wrong width over a missing key is
//! `NotFound`. No operation makes a value longer than [`VALUE_SIZE_MAX`](skep_core::operation::VALUE_SIZE_MAX).
//!
//! The naive store never runs out of memory. A store that replies with an error that
//! [is out of memory](OperationError::is_out_of_memory) has changed nothing: [`NaiveStore::check`] then leaves the map
//! unchanged.

mod arithmetic;
#[cfg(test)]
mod functions;
mod generator;
mod harness;
mod owned;
mod random;
mod scan;
mod string;
mod string_generator;
mod user_functions;

use std::collections::BTreeMap;

use arithmetic::Scalar;
pub use generator::{Generator, GeneratorSettings, Mix, SizeWeights};
pub use harness::{Harness, seeds};
pub use owned::{OwnedOperation, OwnedRequest};
use scan::NaiveLeases;
pub use string_generator::EXPIRIES_END;
pub use user_functions::test_functions;

#[cfg(test)]
pub(crate) use random::{SplitMix64, test_seeds};

use skep_core::operation::{
    Expiry, ExpiryChange, Filter, Operation, OperationError, Page, PutCondition, Reduce, Reply, Request, Scan,
    ScanLease, Update,
};

/// A sorted map that executes requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NaiveStore {
    pairs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// The expiries of the keys that have one.
    expiries: BTreeMap<Vec<u8>, Expiry>,
    /// Milliseconds since 1970.
    now: u64,
    /// `None` for a store without scans.
    leases: Option<NaiveLeases>,
    /// Keys that the other store has forgotten; `None` for a store that forgets none.
    forgotten: Option<u64>,
}

/// A [`Reply`] that owns its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NaiveReply {
    /// [`Reply::Done`]
    Done,
    /// [`Reply::Value`]
    Value(Vec<u8>),
    /// [`Reply::NotFound`]
    NotFound,
    /// [`Reply::Exists`]
    Exists,
    /// [`Reply::Failed`]
    Failed(OperationError),
}

/// The effect of an operation on its key.
enum Change {
    Nothing,
    Set(Vec<u8>, ExpiryChange),
    Remove,
}

impl NaiveReply {
    /// Returns the reply as a store gives it.
    pub fn as_reply(&self) -> Reply<'_> {
        match self {
            NaiveReply::Done => Reply::Done,
            NaiveReply::Value(value) => Reply::Value(value),
            NaiveReply::NotFound => Reply::NotFound,
            NaiveReply::Exists => Reply::Exists,
            NaiveReply::Failed(error) => Reply::Failed(*error),
        }
    }
}

impl PartialEq<Reply<'_>> for NaiveReply {
    fn eq(&self, other: &Reply<'_>) -> bool {
        self.as_reply() == *other
    }
}

impl PartialEq<NaiveReply> for Reply<'_> {
    fn eq(&self, other: &NaiveReply) -> bool {
        other == self
    }
}

impl NaiveStore {
    /// Returns a store without keys that replies as a hash store.
    pub fn new() -> Self {
        NaiveStore::default()
    }

    /// Returns a store without keys that replies as an ordered store.
    pub fn ordered() -> Self {
        NaiveStore { leases: Some(NaiveLeases::default()), ..NaiveStore::default() }
    }

    /// Returns a store without keys that replies as a cache. [`NaiveStore::check`] lets the other store forget keys.
    pub fn forgetful() -> Self {
        NaiveStore { forgotten: Some(0), ..NaiveStore::default() }
    }

    /// Returns the number of keys that the other store has forgotten, as far as its replies have shown it.
    pub fn forgotten(&self) -> u64 {
        self.forgotten.unwrap_or(0)
    }

    /// Executes a request.
    pub fn execute(&mut self, request: &Request<'_>) -> NaiveReply {
        self.execute_with(request, None)
    }

    /// Executes a request. A lease that it opens may have the number that another store has given.
    fn execute_with(&mut self, request: &Request<'_>, lease: Option<u64>) -> NaiveReply {
        if let (Operation::Scan(scan), Some(leases), Ok(())) = (request.operation, &mut self.leases, request.validate())
        {
            return leases.scan(&self.pairs, &self.expiries, request.key, &scan, lease);
        }
        let (reply, change) = self.outcome(request);
        match change {
            Change::Nothing => {}
            Change::Set(value, expiry) => {
                match expiry.apply(self.expiry(request.key)) {
                    Some(expiry) => self.expiries.insert(request.key.to_vec(), expiry),
                    None => self.expiries.remove(request.key),
                };
                self.pairs.insert(request.key.to_vec(), value);
                self.remove_expired();
            }
            Change::Remove => {
                self.pairs.remove(request.key);
                self.expiries.remove(request.key);
            }
        }
        reply
    }

    /// Compares the reply of another store with the reply of this one, and changes as that store did.
    ///
    /// A reply that says the memory is full is accepted from a request that would insert a pair or change the size of a value,
    /// and nothing changes. A delete, or an update that keeps the size, never fails for lack of memory. A lease may expire at
    /// any time, and has the number that the other store gives. [`Reply::Deferred`] is never accepted: submit the request
    /// again and check its reply.
    ///
    /// If this store is [forgetful](NaiveStore::forgetful), a reply that fits only a missing key is accepted for a key that
    /// exists: the key was forgotten, and is counted. Some writes have the same reply for both, such as an update with an
    /// initial value that returns nothing. To know then, check [`Operation::Contains`] before them.
    ///
    /// # Errors
    /// Returns the expected reply if the replies differ. The store has then changed as expected.
    pub fn check(&mut self, request: &Request<'_>, reply: Reply<'_>) -> Result<(), NaiveReply> {
        if let Reply::Failed(error) = reply
            && error.is_out_of_memory()
            && let Change::Set(value, expiry) = self.outcome(request).1
            && (self.get(request.key).is_none_or(|old| old.len() != value.len())
                || expiry.apply(self.expiry(request.key)) != self.expiry(request.key))
        {
            return Ok(());
        }
        if let Operation::Scan(Scan { lease: ScanLease::Continue(number), .. }) = request.operation
            && let Some(leases) = &mut self.leases
            && reply == Reply::Failed(OperationError::LeaseExpired)
        {
            leases.expire(number);
        }
        if self.forgotten.is_some() && self.outcome(request).0 != reply {
            self.forget_if_missing(request, reply);
        }
        let lease = match (request.operation, reply) {
            (Operation::Scan(Scan { lease: ScanLease::Open, .. }), Reply::Value(page)) => {
                Page::decode(page).and_then(|page| page.lease())
            }
            _ => None,
        };
        let expected = self.execute_with(request, lease);
        if expected == reply { Ok(()) } else { Err(expected) }
    }

    /// Removes the key of a request if its reply is that of a missing key.
    fn forget_if_missing(&mut self, request: &Request<'_>, reply: Reply<'_>) {
        let Some(value) = self.pairs.remove(request.key) else { return };
        let expiry = self.expiries.remove(request.key);
        if self.outcome(request).0 == reply {
            self.forgotten = self.forgotten.map(|count| count + 1);
            return;
        }
        self.pairs.insert(request.key.to_vec(), value);
        self.expiries.extend(expiry.map(|expiry| (request.key.to_vec(), expiry)));
    }

    /// Sets the time, in milliseconds since 1970. Keys whose time has come are removed.
    pub fn set_now(&mut self, now: u64) {
        self.now = now;
        self.remove_expired();
    }

    fn remove_expired(&mut self) {
        remove_expired(&mut self.pairs, &mut self.expiries, self.now);
        if let Some(leases) = &mut self.leases {
            leases.remove_expired(self.now);
        }
    }

    /// Returns the number of keys with an expiry.
    pub fn expiring(&self) -> usize {
        self.expiries.len()
    }

    /// Returns the expiry of a key.
    pub(crate) fn expiry(&self, key: &[u8]) -> Option<Expiry> {
        self.expiries.get(key).copied()
    }

    /// Returns the value of a key.
    pub fn get(&self, key: &[u8]) -> Option<&[u8]> {
        self.pairs.get(key).map(Vec::as_slice)
    }

    /// Returns the number of keys.
    pub fn len(&self) -> usize {
        self.pairs.len()
    }

    /// Returns true if there are no keys.
    pub fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }

    /// Returns all pairs in the order of their keys.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.pairs.iter().map(|(key, value)| (key.as_slice(), value.as_slice()))
    }

    /// Returns the bytes of all keys and values.
    pub fn key_and_value_bytes(&self) -> u64 {
        self.pairs.iter().map(|(key, value)| (key.len() + value.len()) as u64).sum()
    }

    /// Checks that a request is valid, for any content of the store.
    fn validate(&self, request: &Request<'_>) -> Result<(), OperationError> {
        if self.leases.is_some() { request.validate() } else { request.validate_unordered() }
    }

    /// Returns the reply to a request and its effect.
    fn outcome(&self, request: &Request<'_>) -> (NaiveReply, Change) {
        if let Err(error) = self.validate(request) {
            return (NaiveReply::Failed(error), Change::Nothing);
        }
        let value = self.get(request.key);
        match request.operation {
            Operation::Put { value: new, condition } => return put(value, new, condition),
            Operation::Update(update) => return update_value(value, &update),
            Operation::AddDecimal { delta } => return add_decimal(value, delta),
            Operation::StringWrite(write) => return string::write(value, self.expiry(request.key), &write),
            Operation::Call(call) => return user_functions::call(value, &call),
            _ => {}
        }
        let Some(value) = value else { return (NaiveReply::NotFound, Change::Nothing) };
        match request.operation {
            Operation::Get => (NaiveReply::Value(value.to_vec()), Change::Nothing),
            Operation::Contains => (NaiveReply::Done, Change::Nothing),
            Operation::Delete => (NaiveReply::Done, Change::Remove),
            Operation::Reduce(reduce) => (reduce_value(value, &reduce), Change::Nothing),
            Operation::Filter(filter) => (filter_value(value, &filter), Change::Nothing),
            Operation::StringRead(read) => (string::read(value, self.expiry(request.key), &read), Change::Nothing),
            Operation::Put { .. }
            | Operation::Update(_)
            | Operation::AddDecimal { .. }
            | Operation::Call(_)
            | Operation::StringWrite(_)
            | Operation::Scan(_) => {
                unreachable!("was carried out before")
            }
        }
    }
}

/// Removes the keys whose time has come.
fn remove_expired(pairs: &mut BTreeMap<Vec<u8>, Vec<u8>>, expiries: &mut BTreeMap<Vec<u8>, Expiry>, now: u64) {
    expiries.retain(|key, expiry| {
        let is_left = expiry.milliseconds() > now;
        if !is_left {
            pairs.remove(key);
        }
        is_left
    });
}

fn put(old: Option<&[u8]>, new: &[u8], condition: PutCondition) -> (NaiveReply, Change) {
    match (condition, old) {
        (PutCondition::IfAbsent, Some(_)) => (NaiveReply::Exists, Change::Nothing),
        (PutCondition::IfPresent, None) => (NaiveReply::NotFound, Change::Nothing),
        _ => (NaiveReply::Done, Change::Set(new.to_vec(), ExpiryChange::CLEAR)),
    }
}

fn update_value(value: Option<&[u8]>, update: &Update<'_>) -> (NaiveReply, Change) {
    let Some(old) = value.or(update.initial) else { return (NaiveReply::NotFound, Change::Nothing) };
    if let Err(error) = update.validate_value(old.len()) {
        return (NaiveReply::Failed(error), Change::Nothing);
    }
    let operands: Vec<Scalar> = Scalar::all(update.element, update.operand).collect();
    // One group of operands for all elements, or a group for each.
    let mut groups = operands.chunks(update.function.operand_count()).cycle();
    let mut new = Vec::with_capacity(old.len());
    for v in Scalar::all(update.element, old) {
        let group = groups.next().expect("a valid update of an element has operands");
        arithmetic::update(update.function, v, group).append_to(&mut new);
    }
    let reply = if update.return_old { NaiveReply::Value(old.to_vec()) } else { NaiveReply::Done };
    (reply, Change::Set(new, ExpiryChange::KEEP))
}

fn reduce_value(value: &[u8], reduce: &Reduce<'_>) -> NaiveReply {
    if let Err(error) = reduce.validate_value(value.len()) {
        return NaiveReply::Failed(error);
    }
    let mut constants = Scalar::all(reduce.element, reduce.constants);
    let mut sum = Scalar::from_bytes(reduce.sigma(), reduce.initial);
    for v in Scalar::all(reduce.element, value) {
        sum = arithmetic::reduce(reduce.fold, sum, v, constants.next());
    }
    let mut result = Vec::new();
    sum.append_to(&mut result);
    NaiveReply::Value(result)
}

fn filter_value(value: &[u8], filter: &Filter<'_>) -> NaiveReply {
    if let Err(error) = filter.validate_value(value.len()) {
        return NaiveReply::Failed(error);
    }
    let operand = Scalar::all(filter.element, filter.operand).next();
    let mut passed = Vec::new();
    for v in Scalar::all(filter.element, value) {
        if arithmetic::passes(filter.predicate, v, operand) {
            v.append_to(&mut passed);
        }
    }
    NaiveReply::Value(passed)
}

fn add_decimal(value: Option<&[u8]>, delta: i64) -> (NaiveReply, Change) {
    let text = std::str::from_utf8(value.unwrap_or(b"0")).unwrap_or("");
    // A number is what is written back as it was read: no other sign, zeros or spaces.
    let Some(number) = text.parse::<i64>().ok().filter(|number| number.to_string() == text) else {
        return (NaiveReply::Failed(OperationError::NotAnInteger), Change::Nothing);
    };
    match i64::try_from(i128::from(number) + i128::from(delta)) {
        Ok(sum) => {
            let text = sum.to_string().into_bytes();
            (NaiveReply::Value(text.clone()), Change::Set(text, ExpiryChange::KEEP))
        }
        Err(_) => (NaiveReply::Failed(OperationError::DecimalOverflow), Change::Nothing),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use skep_core::function::{Element, Fold, Predicate, UpdateFunction};
    use skep_core::operation::{KEY_SIZE_MAX, Shape, VALUE_SIZE_MAX};

    const ADD_U16: Update<'_> = Update {
        function: UpdateFunction::Add,
        element: Element::U16,
        shape: Shape::ScalarToVector,
        operand: &[1, 0],
        initial: None,
        return_old: true,
    };
    const SUM_U16: Reduce<'_> = Reduce { fold: Fold::Sum, element: Element::U16, initial: &[0, 1], constants: &[] };
    const GREATER_U16: Filter<'_> = Filter { predicate: Predicate::Greater, element: Element::U16, operand: &[2, 0] };

    fn put<'a>(value: &'a [u8], condition: PutCondition) -> Operation<'a> {
        Operation::Put { value, condition }
    }

    /// Returns the reply to an operation on a key with the value `before`, and the value after it.
    fn run(before: Option<&[u8]>, operation: Operation<'_>) -> (NaiveReply, Option<Vec<u8>>) {
        let mut store = NaiveStore::new();
        if let Some(value) = before {
            store.pairs.insert(b"k".to_vec(), value.to_vec());
        }
        let reply = store.execute(&Request { key: b"k", operation });
        if matches!(reply, NaiveReply::NotFound | NaiveReply::Exists | NaiveReply::Failed(_)) {
            assert_eq!(store.get(b"k"), before, "{reply:?} changed the value");
        }
        (reply, store.get(b"k").map(<[u8]>::to_vec))
    }

    fn value(bytes: &[u8]) -> NaiveReply {
        NaiveReply::Value(bytes.to_vec())
    }

    #[test]
    fn a_missing_key() {
        let initial = Update { initial: Some(&[5, 0, 255, 255]), ..ADD_U16 };
        for (operation, reply, after) in [
            (Operation::Get, NaiveReply::NotFound, None),
            (Operation::Contains, NaiveReply::NotFound, None),
            (Operation::Delete, NaiveReply::NotFound, None),
            (put(b"v", PutCondition::Always), NaiveReply::Done, Some(b"v".to_vec())),
            (put(b"", PutCondition::IfAbsent), NaiveReply::Done, Some(Vec::new())),
            (put(b"v", PutCondition::IfPresent), NaiveReply::NotFound, None),
            (Operation::Update(ADD_U16), NaiveReply::NotFound, None),
            (Operation::Update(initial), value(&[5, 0, 255, 255]), Some(vec![6, 0, 0, 0])),
            (Operation::Update(Update { return_old: false, ..initial }), NaiveReply::Done, Some(vec![6, 0, 0, 0])),
            (Operation::Reduce(SUM_U16), NaiveReply::NotFound, None),
            (Operation::Filter(GREATER_U16), NaiveReply::NotFound, None),
            (Operation::AddDecimal { delta: -4 }, value(b"-4"), Some(b"-4".to_vec())),
        ] {
            assert_eq!(run(None, operation), (reply, after), "{operation:?}");
        }
    }

    #[test]
    fn an_existing_key() {
        let before = [1, 0, 2, 0, 3, 0];
        let same = Some(before.to_vec());
        for (operation, reply, after) in [
            (Operation::Get, value(&before), same.clone()),
            (Operation::Contains, NaiveReply::Done, same.clone()),
            (Operation::Delete, NaiveReply::Done, None),
            (put(b"v", PutCondition::Always), NaiveReply::Done, Some(b"v".to_vec())),
            (put(b"v", PutCondition::IfPresent), NaiveReply::Done, Some(b"v".to_vec())),
            (put(b"v", PutCondition::IfAbsent), NaiveReply::Exists, same.clone()),
            // The initial value is for missing keys only.
            (
                Operation::Update(Update { initial: Some(&[9, 9]), ..ADD_U16 }),
                value(&before),
                Some(vec![2, 0, 3, 0, 4, 0]),
            ),
            (Operation::Reduce(SUM_U16), value(&[6, 1]), same.clone()),
            (Operation::Filter(GREATER_U16), value(&[3, 0]), same.clone()),
        ] {
            assert_eq!(run(Some(&before), operation), (reply, after), "{operation:?}");
        }
    }

    #[test]
    fn vectors_without_elements() {
        let vector = Update { shape: Shape::VectorToVector, operand: &[], ..ADD_U16 };
        for (operation, reply) in [
            (Operation::Update(ADD_U16), value(b"")),
            (Operation::Update(vector), value(b"")),
            (Operation::Reduce(SUM_U16), value(&[0, 1])),
            (Operation::Filter(GREATER_U16), value(b"")),
        ] {
            assert_eq!(run(Some(b""), operation), (reply, Some(Vec::new())), "{operation:?}");
        }
    }

    #[test]
    fn values_that_do_not_fit() {
        let scalar = Update { shape: Shape::ScalarToScalar, ..ADD_U16 };
        let vector = Update { shape: Shape::VectorToVector, ..ADD_U16 };
        let pairs = Update { function: UpdateFunction::CompareAndSwap, operand: &[0; 4], ..vector };
        let dot = Reduce { fold: Fold::Dot, constants: &[1, 0], ..SUM_U16 };
        for (before, operation, error) in [
            (&[1, 2, 3][..], Operation::Update(ADD_U16), OperationError::ElementWidth),
            (&[1, 2, 3], Operation::Update(vector), OperationError::ElementWidth),
            (&[1, 2, 3], Operation::Update(scalar), OperationError::NotScalar),
            (&[1, 2, 3, 4], Operation::Update(scalar), OperationError::NotScalar),
            (&[], Operation::Update(scalar), OperationError::NotScalar),
            (&[1, 2, 3, 4], Operation::Update(vector), OperationError::OperandLength),
            (&[], Operation::Update(vector), OperationError::OperandLength),
            (&[1, 2, 3, 4], Operation::Update(pairs), OperationError::OperandLength),
            (&[1, 2, 3], Operation::Reduce(SUM_U16), OperationError::ElementWidth),
            (&[1, 2, 3, 4], Operation::Reduce(dot), OperationError::OperandLength),
            (&[1], Operation::Filter(GREATER_U16), OperationError::ElementWidth),
            (b"", Operation::AddDecimal { delta: 0 }, OperationError::NotAnInteger),
            (b"+1", Operation::AddDecimal { delta: 0 }, OperationError::NotAnInteger),
            (b"-0", Operation::AddDecimal { delta: 0 }, OperationError::NotAnInteger),
            (b"\xff", Operation::AddDecimal { delta: 0 }, OperationError::NotAnInteger),
            (b"-1", Operation::AddDecimal { delta: i64::MIN }, OperationError::DecimalOverflow),
        ] {
            let expected = (NaiveReply::Failed(error), Some(before.to_vec()));
            assert_eq!(run(Some(before), operation), expected, "{operation:?}");
        }
    }

    #[test]
    fn invalid_requests_fail_before_the_key_is_looked_for() {
        let float = Update { element: Element::F32, operand: &[0; 4], ..ADD_U16 };
        let too_long = vec![0; VALUE_SIZE_MAX + 2];
        for (operation, error) in [
            (put(&too_long, PutCondition::IfPresent), OperationError::ValueTooLong),
            (Operation::Update(Update { function: UpdateFunction::Or, ..float }), OperationError::FunctionElement),
            (Operation::Update(Update { operand: &[], ..ADD_U16 }), OperationError::OperandLength),
            (Operation::Update(Update { operand: &[0; 4], ..ADD_U16 }), OperationError::OperandLength),
            (
                Operation::Update(Update { shape: Shape::VectorToVector, operand: &[0; 3], ..ADD_U16 }),
                OperationError::OperandLength,
            ),
            (
                Operation::Update(Update { shape: Shape::VectorToVector, initial: Some(&[0; 4]), ..ADD_U16 }),
                OperationError::OperandLength,
            ),
            (Operation::Update(Update { initial: Some(&[0; 3]), ..ADD_U16 }), OperationError::ElementWidth),
            (
                Operation::Update(Update { shape: Shape::ScalarToScalar, initial: Some(&[0; 4]), ..ADD_U16 }),
                OperationError::NotScalar,
            ),
            (Operation::Update(Update { initial: Some(&too_long), ..ADD_U16 }), OperationError::ValueTooLong),
            (Operation::Reduce(Reduce { initial: &[0], ..SUM_U16 }), OperationError::OperandLength),
            (Operation::Reduce(Reduce { constants: &[0, 0], ..SUM_U16 }), OperationError::OperandLength),
            (
                Operation::Reduce(Reduce { fold: Fold::Dot, constants: &[0; 3], ..SUM_U16 }),
                OperationError::OperandLength,
            ),
            (Operation::Filter(Filter { operand: &[0], ..GREATER_U16 }), OperationError::OperandLength),
            (Operation::Filter(Filter { predicate: Predicate::NonZero, ..GREATER_U16 }), OperationError::OperandLength),
        ] {
            assert_eq!(run(None, operation), (NaiveReply::Failed(error), None), "{error:?}");
        }
        let mut store = NaiveStore::new();
        let mut get = |key: &[u8]| store.execute(&Request { key, operation: Operation::Get });
        assert_eq!(get(b""), NaiveReply::Failed(OperationError::KeyEmpty));
        assert_eq!(get(&[0; KEY_SIZE_MAX]), NaiveReply::NotFound);
        assert_eq!(get(&[0; KEY_SIZE_MAX + 1]), NaiveReply::Failed(OperationError::KeyTooLong));
    }

    #[test]
    fn a_full_store_is_believed_only_where_it_needs_memory() {
        let full = Reply::Failed(OperationError::SlabFull);
        let put = Request { key: b"k", operation: put(b"v", PutCondition::IfAbsent) };
        let get = Request { key: b"k", operation: Operation::Get };
        let mut store = NaiveStore::new();
        assert_eq!(store.check(&put, full), Ok(()));
        assert!(store.is_empty(), "a refused put took place");
        assert_eq!(store.check(&get, full), Err(NaiveReply::NotFound));
        assert_eq!(store.check(&put, Reply::Done), Ok(()));
        assert_eq!(store.check(&put, full), Err(NaiveReply::Exists));
        assert_eq!(store.check(&get, Reply::Value(b"v")), Ok(()));
        assert_eq!(store.check(&get, Reply::Deferred), Err(value(b"v")));
        assert_eq!((store.len(), store.key_and_value_bytes()), (1, 2));
        let overwrite =
            |value| Request { key: b"k", operation: Operation::Put { value, condition: PutCondition::Always } };
        assert_eq!(store.check(&overwrite(b"longer"), full), Ok(()));
        assert_eq!(store.check(&overwrite(b""), full), Ok(()));
        assert_eq!(store.check(&overwrite(b"w"), full), Err(NaiveReply::Done), "the size stays");
        let delete = Request { key: b"k", operation: Operation::Delete };
        for mut store in [store, NaiveStore { leases: Some(NaiveLeases::default()), ..NaiveStore::new() }] {
            store.execute(&overwrite(b"v"));
            assert_eq!(store.check(&delete, full), Err(NaiveReply::Done), "a delete needs no memory");
        }
    }
}
