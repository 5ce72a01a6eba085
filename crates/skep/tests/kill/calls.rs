//! Keys whose values are changed and read by calls of random functions: what they hold in the naive store, which makes the
//! calls that the server has acknowledged, and the calls that were sent without a reply.

use std::collections::BTreeMap;

use skep_client::{CallReply, Operation, OperationError, PutCondition, Reply, Request};
use skep_core::function::{Element, FunctionHandle, FunctionKind, Layout, Parameter, Scalar, Signature, UserFunction};
use skep_function::generate::Random;
use skep_store::naive::{NaiveReply, NaiveStore, OwnedOperation, OwnedRequest};

use crate::wire::Arguments;

/// Keys of a client.
const KEY_COUNT: u32 = 250;
/// The most bytes of the operands of a call, and of those that are written as text.
const OPERANDS_SIZE_MAX: usize = 64 << 10;
const TEXT_OPERANDS_SIZE_MAX: usize = 4 << 10;

/// The keys that only one client changes, by calls.
pub(crate) struct Calls {
    name: String,
    random: Random,
    acknowledged: NaiveStore,
    /// Changes without a reply, in their order. The server has made the first ones of each key, or none.
    doubtful: BTreeMap<u32, Vec<OwnedRequest>>,
    /// The server may forget keys, and has none after a restart.
    is_cache: bool,
    pub(crate) outcomes: Outcomes,
}

/// How calls ended, of those that were acknowledged.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Outcomes {
    /// Updates of a value.
    pub(crate) updates: u64,
    /// Reduces and filters of a value.
    pub(crate) reads: u64,
    /// Calls whose function failed on an element: nothing has changed.
    pub(crate) failures: u64,
    /// Calls that do not fit the value.
    pub(crate) refusals: u64,
    /// Keys that a cache has forgotten.
    pub(crate) forgotten: u64,
}

impl Outcomes {
    pub(crate) fn add(&mut self, other: Outcomes) {
        self.updates += other.updates;
        self.reads += other.reads;
        self.failures += other.failures;
        self.refusals += other.refusals;
        self.forgotten += other.forgotten;
    }
}

/// A change or a read of one key.
#[derive(Clone, Debug)]
pub(crate) struct KeyCall {
    number: u32,
    request: OwnedRequest,
}

impl KeyCall {
    pub(crate) fn key(&self) -> Vec<u8> {
        self.request.key.clone()
    }

    /// Returns the operation of the native protocol. It names a function by its number alone.
    pub(crate) fn operation(&self) -> Operation<'_> {
        match self.request.operation.as_operation() {
            Operation::Call(mut call) => {
                call.function.function = None;
                Operation::Call(call)
            }
            operation => operation,
        }
    }

    /// Returns the command of RESP.
    pub(crate) fn command(&self) -> Arguments {
        let key = self.key();
        match &self.request.operation {
            OwnedOperation::Put { value, .. } => vec![b"SET".to_vec(), key, value.clone()],
            OwnedOperation::Delete => vec![b"DEL".to_vec(), key],
            OwnedOperation::Call { function, vectors, operands, initial, reply } => {
                let function = function.function.expect("it has its code");
                let Signature { element, operands: parameters, result, .. } = &function.signature;
                let (command, word) = match (function.kind(), reply) {
                    (FunctionKind::Reduce, _) => ("SKEP.REDUCE", None),
                    (FunctionKind::Filter, CallReply::Positions) => ("SKEP.FILTER", Some("POSITIONS")),
                    (FunctionKind::Filter, CallReply::Pairs) => ("SKEP.FILTER", Some("WITHPOSITIONS")),
                    (FunctionKind::Filter, _) => ("SKEP.FILTER", None),
                    (FunctionKind::Update, CallReply::Nothing) => ("SKEP.UPDATE", Some("NORETURN")),
                    (FunctionKind::Update, CallReply::Old) => ("SKEP.UPDATE", Some("OLD")),
                    (FunctionKind::Update, _) => ("SKEP.UPDATE", None),
                };
                let mut arguments = vec![command.into(), key, function.name.clone().into_bytes()];
                if let (FunctionKind::Reduce, Some(sigma), Some(initial)) = (function.kind(), result, initial) {
                    append_numbers(sigma, initial, &mut arguments);
                }
                let mut rest = &operands[..];
                let of_each = function.signature.operands_size_of_element(*vectors).max(1);
                let count = (operands.len() - function.signature.operands_size(*vectors, 0)) / of_each;
                for (index, Parameter { layout, .. }) in parameters.iter().enumerate() {
                    let is_vector = vectors >> index & 1 == 1;
                    let (own, others) = rest.split_at(layout.size() * if is_vector { count } else { 1 });
                    arguments.extend(is_vector.then(|| b"[".to_vec()));
                    append_numbers(layout, own, &mut arguments);
                    arguments.extend(is_vector.then(|| b"]".to_vec()));
                    rest = others;
                }
                if let (FunctionKind::Update, Some(initial)) = (function.kind(), initial) {
                    arguments.push(b"INIT".to_vec());
                    append_numbers(element, initial, &mut arguments);
                }
                arguments.extend(word.map(Vec::from));
                arguments
            }
            other => unreachable!("RESP clients do not send {other:?}"),
        }
    }
}

impl Calls {
    /// Returns the keys of a client, of which there are none.
    pub(crate) fn new(name: String, is_cache: bool, seed: u64) -> Calls {
        Calls {
            name,
            random: Random::new(seed),
            acknowledged: NaiveStore::new(),
            doubtful: BTreeMap::new(),
            is_cache,
            outcomes: Outcomes::default(),
        }
    }

    /// Returns all keys that may exist.
    pub(crate) fn keys(&self) -> Vec<Vec<u8>> {
        (0..KEY_COUNT).map(|number| self.key(number)).collect()
    }

    fn key(&self, number: u32) -> Vec<u8> {
        format!("{}:call:{number}", self.name).into_bytes()
    }

    /// Returns a random call of one of the functions on a random key, or a write of a value for one.
    pub(crate) fn random(&mut self, is_resp: bool, functions: &[FunctionHandle]) -> KeyCall {
        let number = self.random.below(KEY_COUNT as usize) as u32;
        let key = self.key(number);
        let size = self.acknowledged.get(&key).map(<[u8]>::len);
        let (handle, function) = self.choose(functions, size.unwrap_or(0));
        let element = &function.signature.element;
        // Mostly, a value that other functions have left is replaced.
        let fits = size.is_none_or(|size| size.is_multiple_of(element.size()));
        let operation = match self.random.below(if fits { 16 } else { 4 }) {
            0 => OwnedOperation::Delete,
            1 | 2 => {
                let count = self.count(element);
                let value = self.records(is_resp, element, count);
                OwnedOperation::Put { value, condition: PutCondition::Always }
            }
            _ => self.call(is_resp, handle, function, size),
        };
        KeyCall { number, request: OwnedRequest { key, operation } }
    }

    /// Returns a random function, mostly one whose elements divide a value of this size.
    fn choose(&mut self, functions: &[FunctionHandle], size: usize) -> (FunctionHandle, &'static UserFunction) {
        let choices: Vec<_> = functions.iter().filter_map(|handle| Some((*handle, handle.function?))).collect();
        let mut chosen = self.random.choose(&choices);
        for _ in 0..6 {
            if !size.is_multiple_of(chosen.1.signature.element.size()) {
                chosen = self.random.choose(&choices);
            }
        }
        chosen
    }

    /// Returns a random call for a value of this size.
    fn call(
        &mut self,
        is_resp: bool,
        handle: FunctionHandle,
        function: &UserFunction,
        size: Option<usize>,
    ) -> OwnedOperation {
        let Signature { element, operands, result, .. } = &function.signature;
        let replies: &[CallReply] = match function.kind() {
            FunctionKind::Update if result.is_some() => &[CallReply::Nothing, CallReply::Old, CallReply::Result],
            FunctionKind::Update => &[CallReply::Nothing, CallReply::Old],
            FunctionKind::Reduce => &[CallReply::Result],
            FunctionKind::Filter => &[CallReply::Result, CallReply::Positions, CallReply::Pairs],
        };
        let mut vectors = if self.random.once_in(2) { 0 } else { self.random.below(1 << operands.len()) };
        // A missing key may get elements, as many as the operands are for.
        let count = size.map_or_else(|| self.count(element), |size| size / element.size());
        let size_max = if is_resp { TEXT_OPERANDS_SIZE_MAX } else { OPERANDS_SIZE_MAX };
        // As text, operands for each of no elements would be operands for all.
        if function.signature.operands_size(vectors as u8, count) > size_max || is_resp && count == 0 {
            vectors = 0;
        }
        let initial = match (function.kind(), result) {
            (FunctionKind::Update, _) if self.random.once_in(2) => {
                // Operands for all elements fit any number of them.
                let initial_count = if size.is_some() && vectors == 0 { 1 } else { count };
                Some(self.records(is_resp, element, initial_count))
            }
            (FunctionKind::Reduce, Some(sigma)) => Some(self.records(is_resp, sigma, 1)),
            _ => None,
        };
        let mut bytes = Vec::new();
        for (index, operand) in operands.iter().enumerate() {
            let records = if vectors >> index & 1 == 1 { count } else { 1 };
            bytes.extend(self.records(is_resp, &operand.layout, records));
        }
        let mut reply = self.random.choose(replies);
        if self.is_cache && function.kind() == FunctionKind::Update && initial.is_some() {
            // The reply tells if the cache had forgotten the key.
            reply = CallReply::Old;
        }
        OwnedOperation::Call { function: handle, vectors: vectors as u8, operands: bytes, initial, reply }
    }

    /// Returns the number of elements of a value. Some values have several KiB.
    fn count(&mut self, element: &Layout) -> usize {
        match self.random.below(16) {
            0 => (4096 + self.random.below(8192)) / element.size(),
            1..=7 => 1 + self.random.below(8),
            _ => 1 + self.random.below(300),
        }
    }

    /// Returns records of random numbers, many of them at the edges of their types. Those for RESP can be written as text.
    fn records(&mut self, is_resp: bool, layout: &Layout, count: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(count * layout.size());
        for field in (0..count).flat_map(|_| layout.fields()) {
            let is_float = match field.scalar {
                Scalar::Element(element) => element.is_float(),
                Scalar::F16 | Scalar::BF16 => true,
                Scalar::Bool => false,
            };
            let width = field.scalar.width();
            let number = &self.random.number_bytes(width, is_float)[..width];
            if is_resp {
                field.scalar.parse(&text_of(field.scalar, number), &mut bytes).expect("the text of a number");
            } else {
                bytes.extend_from_slice(number);
            }
        }
        bytes
    }

    /// Notes a call that the server has acknowledged. Returns an error if another reply was right.
    pub(crate) fn acknowledge(&mut self, call: &KeyCall, reply: Reply<'_>) -> Result<(), String> {
        let expected = self.execute(call, |expected| *expected == reply);
        expected.map_err(|expected| wrong_reply(call, &expected, &format!("{reply:?}")))
    }

    /// Notes a call that the server has acknowledged by RESP. Of errors, only that there is one is compared.
    pub(crate) fn acknowledge_text(&mut self, call: &KeyCall, reply: &[u8]) -> Result<(), String> {
        let is_delete = call.request.operation == OwnedOperation::Delete;
        let is_right = |expected: &NaiveReply| match expected {
            NaiveReply::Done if is_delete => reply == b":1\r\n",
            NaiveReply::NotFound if is_delete => reply == b":0\r\n",
            NaiveReply::Done => reply == b"+OK\r\n",
            NaiveReply::NotFound => reply == b"$-1\r\n",
            NaiveReply::Failed(_) => reply.starts_with(b"-"),
            NaiveReply::Value(value) => reply == reply_text(&call.request.operation, value).as_bytes(),
            NaiveReply::Exists => false,
        };
        let expected = self.execute(call, is_right);
        expected.map_err(|expected| wrong_reply(call, &expected, &reply.escape_ascii().to_string()))
    }

    /// Makes a call in the naive store. If the reply is not right then, a cache may have forgotten the key. Returns the
    /// reply if it was wrong.
    fn execute(&mut self, call: &KeyCall, is_right: impl Fn(&NaiveReply) -> bool) -> Result<(), NaiveReply> {
        let request = call.request.as_request();
        let existed = self.acknowledged.get(request.key).is_some();
        let mut reply = self.acknowledged.execute(&request);
        let mut result = if is_right(&reply) { Ok(()) } else { Err(reply.clone()) };
        if self.is_cache && existed && result.is_err() {
            self.acknowledged.execute(&Request { operation: Operation::Delete, ..request });
            reply = self.acknowledged.execute(&request);
            if is_right(&reply) {
                self.outcomes.forgotten += 1;
                result = Ok(());
            }
        }
        if let OwnedOperation::Call { function, .. } = &call.request.operation {
            let is_update = function.function.is_some_and(|function| function.kind() == FunctionKind::Update);
            match reply {
                NaiveReply::Failed(OperationError::DivisionByZero | OperationError::IndexOutOfRange) => {
                    self.outcomes.failures += 1;
                }
                NaiveReply::Failed(_) => self.outcomes.refusals += 1,
                NaiveReply::NotFound => {}
                _ if is_update => self.outcomes.updates += 1,
                _ => self.outcomes.reads += 1,
            }
        }
        result
    }

    /// Notes a call without a reply.
    pub(crate) fn doubt(&mut self, call: KeyCall) {
        self.doubtful.entry(call.number).or_default().push(call.request);
    }

    /// Compares the values with those that the server has after a restart, and goes on with these. Returns the keys whose
    /// values are neither what was acknowledged nor that after the first doubtful changes.
    pub(crate) fn check(&mut self, found: &[Option<Vec<u8>>]) -> Vec<String> {
        if self.is_cache {
            (self.acknowledged, self.doubtful) = (NaiveStore::new(), BTreeMap::new());
        }
        let mut wrong = Vec::new();
        for (number, found) in (0..KEY_COUNT).zip(found) {
            let key = self.key(number);
            let acknowledged = self.acknowledged.get(&key).map(<[u8]>::to_vec);
            let mut is_right = acknowledged == *found;
            let changes = self.doubtful.remove(&number).unwrap_or_default();
            for request in &changes {
                self.acknowledged.execute(&request.as_request());
                is_right |= self.acknowledged.get(&key) == found.as_deref();
            }
            if !is_right {
                let differ = |(a, b): (&Vec<u8>, &Vec<u8>)| a.iter().zip(b).position(|(a, b)| a != b);
                wrong.push(shortened(format!(
                    "{} has {:?} bytes: {:?} were acknowledged, with the first difference at {:?}, then {changes:?} was \
                     sent",
                    key.escape_ascii(),
                    found.as_ref().map(Vec::len),
                    acknowledged.as_ref().map(Vec::len),
                    acknowledged.as_ref().zip(found.as_ref()).and_then(differ),
                )));
            }
            let operation = match found {
                Some(value) => Operation::Put { value, condition: PutCondition::Always },
                None => Operation::Delete,
            };
            self.acknowledged.execute(&Request { key: &key, operation });
        }
        wrong
    }
}

fn wrong_reply(call: &KeyCall, expected: &NaiveReply, reply: &str) -> String {
    let (key, reply) = (call.request.key.escape_ascii(), shortened(reply.to_owned()));
    let (expected, operation) =
        (shortened(format!("{expected:?}")), shortened(format!("{:?}", call.request.operation)));
    format!("{key} has the reply\n{reply} instead of\n{expected} to\n{operation}")
}

/// Returns the reply of RESP to a call that returns this value: a number, or the numbers of all records as an array.
fn reply_text(operation: &OwnedOperation, value: &[u8]) -> String {
    let OwnedOperation::Call { function, reply, .. } = operation else { unreachable!("only calls return values") };
    let function = function.function.expect("it has its code");
    let fields = |layout: &Layout| layout.fields().iter().map(|field| field.scalar).collect::<Vec<Scalar>>();
    let (element, result) = (&function.signature.element, function.signature.result.as_ref());
    let position = Scalar::Element(Element::U32);
    let scalars = match (function.kind(), reply) {
        (FunctionKind::Filter, CallReply::Positions) => vec![position],
        (FunctionKind::Filter, CallReply::Pairs) => [vec![position], fields(element)].concat(),
        (FunctionKind::Filter, _) | (_, CallReply::Old) => fields(element),
        _ => fields(result.expect("it returns something")),
    };
    let (mut text, mut count, mut rest) = (String::new(), 0, value);
    for scalar in scalars.iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let (number, others) = rest.split_at(scalar.width());
        text += &number_text(*scalar, number);
        (count, rest) = (count + 1, others);
    }
    let is_number = count == 1 && scalars.len() == 1 && function.kind() != FunctionKind::Filter;
    if is_number { text } else { format!("*{count}\r\n{text}") }
}

/// Returns a number as RESP writes it: integers that are not too large as such, others as text.
fn number_text(scalar: Scalar, number: &[u8]) -> String {
    let text = text_of(scalar, number);
    let is_float = matches!(scalar, Scalar::F16 | Scalar::BF16)
        || matches!(scalar, Scalar::Element(element) if element.is_float());
    match text.parse::<i64>() {
        Ok(_) if !is_float => format!(":{text}\r\n"),
        _ => format!("${}\r\n{text}\r\n", text.len()),
    }
}

/// Returns the begin of a text that may have the bytes of long values.
fn shortened(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(2000));
    text
}

/// Appends the numbers of records as arguments of a command.
fn append_numbers(layout: &Layout, mut records: &[u8], arguments: &mut Arguments) {
    while !records.is_empty() {
        for field in layout.fields() {
            let (number, rest) = records.split_at(field.scalar.width());
            arguments.push(text_of(field.scalar, number).into_bytes());
            records = rest;
        }
    }
}

/// Returns the text of a number.
fn text_of(scalar: Scalar, number: &[u8]) -> String {
    let (element, wide) = scalar.widen(number);
    element.format(&wide[..element.width()])
}

#[cfg(test)]
mod tests {
    use super::{Calls, NaiveStore, OwnedOperation, OwnedRequest};
    use crate::modules::RandomModule;

    /// Returns the request, with the function of another module that has its number.
    fn with_code_of(module: &RandomModule, request: &OwnedRequest) -> OwnedRequest {
        let mut request = request.clone();
        if let OwnedOperation::Call { function, .. } = &mut request.operation {
            *function = *module.functions.iter().find(|other| other.id == function.id).expect("it has all numbers");
        }
        request
    }

    /// Compares the calls of the functions of `module` with a store in which they have the code of `replayed`. Returns the
    /// number of values that are wrong.
    fn wrong_values(module: &RandomModule, replayed: &RandomModule, is_doubtful: bool) -> usize {
        let mut calls = Calls::new("control".to_owned(), false, 7);
        let mut store = NaiveStore::new();
        for count in 0..4000 {
            let call = calls.random(count % 2 == 0, &module.functions);
            store.execute(&with_code_of(replayed, &call.request).as_request());
            if is_doubtful && count >= 3600 {
                calls.doubt(call);
            } else {
                calls.execute(&call, |_| true).unwrap();
            }
        }
        let found: Vec<Option<Vec<u8>>> = calls.keys().iter().map(|key| store.get(key).map(<[u8]>::to_vec)).collect();
        let wrong = calls.check(&found);
        assert!(calls.check(&found).is_empty(), "it goes on with what the server has");
        wrong.len()
    }

    #[test]
    fn calls_with_the_code_of_another_round_are_found() {
        for seed in 0..20 {
            let [before, now] = [seed, seed + 1].map(RandomModule::new);
            for is_doubtful in [false, true] {
                assert_eq!(wrong_values(&now, &now, is_doubtful), 0, "seed {seed}");
                let wrong = wrong_values(&now, &before, is_doubtful);
                assert!(wrong > 10, "seed {seed}: {wrong} values are wrong");
            }
        }
    }

    /// Returns the number of replies that are wrong if the functions of `module` have the code of `called`.
    fn wrong_replies(module: &RandomModule, called: &RandomModule) -> usize {
        let mut calls = Calls::new("control".to_owned(), false, 7);
        let mut store = NaiveStore::new();
        let is_wrong = |_: &usize| {
            let call = calls.random(false, &module.functions);
            let reply = store.execute(&with_code_of(called, &call.request).as_request());
            calls.acknowledge(&call, reply.as_reply()).is_err()
        };
        (0..2000).filter(is_wrong).count()
    }

    #[test]
    fn replies_of_other_code_are_found() {
        for seed in 0..20 {
            let [before, now] = [seed, seed + 1].map(RandomModule::new);
            assert_eq!(wrong_replies(&now, &now), 0, "seed {seed}");
            let wrong = wrong_replies(&now, &before);
            assert!(wrong > 100, "seed {seed}: {wrong} replies are wrong");
        }
    }
}
