//! The pairs of one client: what the server has acknowledged, and what was sent without a reply.

use std::collections::BTreeMap;

use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;
use skep_client::{Call, CallReply, Element, FunctionHandle, Operation, PutCondition, Shape, Update, UpdateFunction};

use crate::wire::Arguments;

/// Returns the module whose first function is that of [`Change::Mix`]. The comment makes it another source.
pub(crate) fn module(comment: u64) -> String {
    format!("mod kill {{ /* {comment} */ #[update] fn mix(v: i64, d: i64) -> i64 {{ v * 3 + d }} }}")
}

/// A change of one key.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    Put(Vec<u8>),
    /// Adds to an integer of 8 bytes.
    Add([u8; 8]),
    /// Multiplies an integer of 8 bytes by 3 and adds to it, with the function of the [module](module).
    Mix([u8; 8]),
    /// Adds to decimal text.
    AddDecimal(i64),
    Append(Vec<u8>),
    Delete,
}

impl Change {
    fn apply(&self, old: Option<Vec<u8>>) -> Option<Vec<u8>> {
        match self {
            Change::Put(value) => Some(value.clone()),
            Change::Add(delta) => {
                let old = old.map_or(0, |old| i64::from_le_bytes(old.try_into().expect("numbers have 8 bytes")));
                Some(old.wrapping_add(i64::from_le_bytes(*delta)).to_le_bytes().to_vec())
            }
            Change::Mix(delta) => {
                let old = old.map_or(0, |old| i64::from_le_bytes(old.try_into().expect("numbers have 8 bytes")));
                Some(old.wrapping_mul(3).wrapping_add(i64::from_le_bytes(*delta)).to_le_bytes().to_vec())
            }
            Change::AddDecimal(delta) => {
                let old: i64 = old.map_or(0, |old| String::from_utf8(old).expect("text").parse().expect("a number"));
                Some((old + delta).to_string().into_bytes())
            }
            Change::Append(bytes) => Some([old.unwrap_or_default(), bytes.clone()].concat()),
            Change::Delete => None,
        }
    }

    /// Returns the operation of the native protocol.
    pub(crate) fn operation(&self) -> Operation<'_> {
        match self {
            Change::Put(value) => Operation::Put { value, condition: PutCondition::Always },
            Change::Add(delta) => Operation::Update(Update {
                function: UpdateFunction::Add,
                element: Element::I64,
                shape: Shape::ScalarToScalar,
                operand: delta,
                initial: Some(&[0; 8]),
                return_old: true,
            }),
            Change::Mix(delta) => Operation::Call(Call {
                function: FunctionHandle { id: 1, revision: 0, function: None },
                vectors: 0,
                operands: delta,
                initial: Some(&[0; 8]),
                reply: CallReply::Old,
            }),
            Change::AddDecimal(delta) => Operation::AddDecimal { delta: *delta },
            Change::Append(_) => unreachable!("only RESP clients append"),
            Change::Delete => Operation::Delete,
        }
    }

    /// Returns the command of RESP.
    pub(crate) fn command(&self, key: Vec<u8>) -> Arguments {
        match self {
            Change::Put(value) => vec![b"SET".to_vec(), key, value.clone()],
            Change::AddDecimal(delta) => vec![b"INCRBY".to_vec(), key, delta.to_string().into_bytes()],
            Change::Append(bytes) => vec![b"APPEND".to_vec(), key, bytes.clone()],
            Change::Delete => vec![b"DEL".to_vec(), key],
            Change::Add(_) | Change::Mix(_) => unreachable!("RESP clients add to text"),
        }
    }
}

/// The pairs that only one client changes.
pub(crate) struct Pairs {
    name: String,
    count: u32,
    acknowledged: BTreeMap<u32, Vec<u8>>,
    /// Changes without a reply, in their order. The server has made the first ones of each key, or none.
    doubtful: BTreeMap<u32, Vec<Change>>,
}

impl Pairs {
    pub(crate) fn new(name: String, count: u32) -> Pairs {
        Pairs { name, count, acknowledged: BTreeMap::new(), doubtful: BTreeMap::new() }
    }

    pub(crate) fn key(&self, number: u32) -> Vec<u8> {
        format!("{}:{number}", self.name).into_bytes()
    }

    /// Returns all keys that may exist.
    pub(crate) fn keys(&self) -> Vec<Vec<u8>> {
        (0..self.count).map(|number| self.key(number)).collect()
    }

    /// Returns a random change. Keys of even numbers have numbers, the others have text.
    pub(crate) fn random(&self, is_resp: bool, random: &mut Xoshiro256PlusPlus) -> (u32, Change) {
        let number = random.random_range(0..self.count);
        let mut bytes = |size_max| {
            let size = random.random_range(0..size_max);
            (0..size).map(|_| random.random()).collect::<Vec<u8>>()
        };
        let (long, short) = (bytes(300), bytes(10));
        let change = match (random.random_range(0..10), number % 2 == 0, is_resp) {
            (0, _, _) => Change::Delete,
            (1..5, true, false) => Change::Mix(random.random_range(-1000..1000_i64).to_le_bytes()),
            (_, true, false) => Change::Add(random.random_range(-1000..1000_i64).to_le_bytes()),
            (_, true, true) => Change::AddDecimal(random.random_range(-1000..1000)),
            (1..5, false, true) => Change::Append(short),
            (_, false, _) => Change::Put(long),
        };
        (number, change)
    }

    /// Notes a change that the server has acknowledged.
    pub(crate) fn acknowledge(&mut self, number: u32, change: &Change) {
        let old = self.acknowledged.remove(&number);
        self.acknowledged.extend(change.apply(old).map(|value| (number, value)));
    }

    /// Notes a change without a reply.
    pub(crate) fn doubt(&mut self, number: u32, change: Change) {
        self.doubtful.entry(number).or_default().push(change);
    }

    /// Notes that all keys were removed.
    pub(crate) fn acknowledge_flush(&mut self) {
        self.acknowledged.clear();
    }

    /// Notes that all keys may have been removed.
    pub(crate) fn doubt_flush(&mut self) {
        (0..self.count).for_each(|number| self.doubt(number, Change::Delete));
    }

    /// Compares the pairs with those that the server has after a restart, and goes on with these. Returns the keys
    /// whose values are neither what was acknowledged nor that after the first doubtful changes.
    pub(crate) fn check(&mut self, found: &[Option<Vec<u8>>]) -> Vec<String> {
        let mut wrong = Vec::new();
        for (number, found) in (0..self.count).zip(found) {
            let acknowledged = self.acknowledged.remove(&number);
            let changes = self.doubtful.remove(&number).unwrap_or_default();
            let mut value = acknowledged.clone();
            let mut is_right = value == *found;
            for change in &changes {
                value = change.apply(value);
                is_right |= value == *found;
            }
            if !is_right {
                let key = String::from_utf8(self.key(number)).expect("keys are text");
                wrong
                    .push(format!("{key} has {found:?}: {acknowledged:?} was acknowledged, then {changes:?} was sent"));
            }
            self.acknowledged.extend(found.clone().map(|value| (number, value)));
        }
        wrong
    }
}
