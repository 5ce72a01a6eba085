//! Random requests for tests and benchmarks of all crates, the same ones for the same seed.
//!
//! Random operations on random bytes would mostly fail with `ElementWidth`. So every key has a *home*, derived from its
//! number: an element type and a value size, or decimal text. Most operations on a key fit its home, and so each other. The
//! rest do not, because errors and values that change their size class are input too.

use std::ops::RangeInclusive;

use super::owned::{OwnedOperation, OwnedRequest};
use super::random::SplitMix64;
use super::user_functions::test_functions;
use skep_core::function::{Element, Fold, FunctionHandle, FunctionKind, Layout, Predicate, UpdateFunction};
use skep_core::operation::{
    CallReply, KEY_SIZE_MAX, PutCondition, Scan, ScanAnswer, ScanEnd, ScanLease, ScanStart, Shape, VALUE_SIZE_MAX,
};

/// The settings of a [`Generator`].
#[derive(Clone, Debug)]
pub struct GeneratorSettings {
    /// Seed of all random decisions.
    pub seed: u64,
    /// Number of different keys, at least 1. Below four bytes, keys of different numbers may be equal.
    pub key_count: u32,
    /// Sizes of the keys, in bytes.
    pub key_size: RangeInclusive<usize>,
    /// The distribution of the sizes of values.
    pub sizes: SizeWeights,
    /// Longest of the large values, in bytes; at least 509.
    pub large_size_max: usize,
    /// The distribution of operations.
    pub mix: Mix,
    /// Of a thousand requests, the number that is invalid on any value, or nearly so.
    pub invalid_per_mille: u32,
}

/// The distribution of the sizes of values. The weights are relative to their sum, which must not be zero.
#[derive(Clone, Copy, Debug)]
pub struct SizeWeights {
    /// No bytes.
    pub empty: u32,
    /// 1 to 40 bytes, half of them one element.
    pub inline: u32,
    /// 41 to 508 bytes.
    pub slab: u32,
    /// 509 bytes to [`GeneratorSettings::large_size_max`].
    pub large: u32,
}

/// The distribution of operations. The weights are relative to their sum, which must not be zero.
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "the names are those of the operations")]
pub struct Mix {
    pub get: u32,
    pub contains: u32,
    pub put: u32,
    pub put_if_absent: u32,
    pub put_if_present: u32,
    pub delete: u32,
    pub update: u32,
    pub reduce: u32,
    pub filter: u32,
    pub add_decimal: u32,
    pub string_read: u32,
    pub string_write: u32,
    pub call: u32,
    pub scan: u32,
}

/// An endless sequence of requests.
#[derive(Clone, Debug)]
pub struct Generator {
    settings: GeneratorSettings,
    pub(super) random: SplitMix64,
}

/// The form of most values of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Home {
    /// A decimal number in text.
    Decimal,
    /// Elements that take `size` bytes.
    Vector { element: Element, size: usize },
}

/// One key of each group of this many numbers, the last, has decimal text as its home.
const DECIMAL_EVERY: u32 = 8;

impl Default for GeneratorSettings {
    /// A thousand keys of 1 to 32 bytes, every operation, values up to 4 KiB, one request in a hundred invalid.
    fn default() -> Self {
        GeneratorSettings {
            seed: 1,
            key_count: 1000,
            key_size: 1..=32,
            sizes: SizeWeights::default(),
            large_size_max: 4096,
            mix: Mix::default(),
            invalid_per_mille: 10,
        }
    }
}

impl Default for SizeWeights {
    fn default() -> Self {
        SizeWeights { empty: 2, inline: 60, slab: 30, large: 8 }
    }
}

impl Default for Mix {
    fn default() -> Self {
        Mix {
            get: 15,
            contains: 3,
            put: 15,
            put_if_absent: 8,
            put_if_present: 4,
            delete: 8,
            update: 25,
            reduce: 8,
            filter: 8,
            add_decimal: 6,
            string_read: 6,
            string_write: 12,
            call: 10,
            scan: 0,
        }
    }
}

impl Mix {
    /// Returns the distribution of operations without user functions.
    pub fn built_in() -> Mix {
        Mix { call: 0, ..Mix::default() }
    }
}

impl GeneratorSettings {
    fn value_size(&self, random: &mut SplitMix64) -> usize {
        match random.weighted(&[self.sizes.empty, self.sizes.inline, self.sizes.slab, self.sizes.large]) {
            0 => 0,
            1 => random.within(1..=40),
            2 => random.within(41..=508),
            _ => random.within(509..=self.large_size_max),
        }
    }
}

impl Iterator for Generator {
    type Item = OwnedRequest;

    /// Returns the next request; there always is one.
    fn next(&mut self) -> Option<OwnedRequest> {
        let mut request = self.fitting();
        if self.random.below(1000) < u64::from(self.settings.invalid_per_mille) {
            self.make_invalid(&mut request);
        }
        Some(request)
    }
}

impl Generator {
    /// Returns a generator at its first request.
    ///
    /// # Panics
    /// If the settings are not as they are documented.
    pub fn new(settings: GeneratorSettings) -> Self {
        assert!(settings.key_count > 0, "there must be a key");
        assert!(!settings.key_size.is_empty() && *settings.key_size.start() > 0, "a key has at least one byte");
        assert!(*settings.key_size.end() <= KEY_SIZE_MAX, "a key has at most {KEY_SIZE_MAX} bytes");
        assert!((509..=VALUE_SIZE_MAX).contains(&settings.large_size_max), "large values begin with 509 bytes");
        let random = SplitMix64::new(settings.seed);
        Generator { settings, random }
    }

    /// Returns the key with this number, below [`GeneratorSettings::key_count`].
    pub fn key(&self, number: u32) -> Vec<u8> {
        let mut random = SplitMix64::stream(self.settings.seed, u64::from(number) << 1);
        let mut key = number.to_le_bytes().to_vec();
        let size = random.within(self.settings.key_size.clone());
        while key.len() < size {
            key.extend_from_slice(&random.next().to_le_bytes());
        }
        key.truncate(size);
        key
    }

    /// A request that fits the home of its key more often than not.
    fn fitting(&mut self) -> OwnedRequest {
        let mix = self.settings.mix;
        let weights = [
            mix.get,
            mix.contains,
            mix.put,
            mix.put_if_absent,
            mix.put_if_present,
            mix.delete,
            mix.update,
            mix.reduce,
            mix.filter,
            mix.add_decimal,
            mix.string_read,
            mix.string_write,
            mix.call,
            mix.scan,
        ];
        let chosen = self.random.weighted(&weights);
        let number = match chosen {
            6..=8 | 11 | 12 => self.key_number(Some(false)),
            9 => self.key_number(Some(true)),
            _ => self.key_number(None),
        };
        let home = self.home(number);
        let operation = match chosen {
            0 => OwnedOperation::Get,
            1 => OwnedOperation::Contains,
            2 => OwnedOperation::Put { value: self.value(home), condition: PutCondition::Always },
            3 => OwnedOperation::Put { value: self.value(home), condition: PutCondition::IfAbsent },
            4 => OwnedOperation::Put { value: self.value(home), condition: PutCondition::IfPresent },
            5 => OwnedOperation::Delete,
            6 => self.update(home),
            7 => self.reduce(home),
            8 => self.filter(home),
            9 => OwnedOperation::AddDecimal { delta: self.delta() },
            10 => self.string_read(),
            11 => self.string_write(home),
            12 => self.call(home),
            _ => return self.scan(number),
        };
        OwnedRequest { key: self.key(number), operation }
    }

    /// A key, mostly one whose home is decimal text or is not, if that is asked for.
    fn key_number(&mut self, decimal: Option<bool>) -> u32 {
        let key_count = self.settings.key_count;
        let number = self.random.below(u64::from(key_count)) as u32;
        let place = number % DECIMAL_EVERY;
        match decimal {
            Some(true) if self.random.chance(7, 8) => {
                let last = number - place + (DECIMAL_EVERY - 1);
                if last < key_count { last } else { number }
            }
            Some(false) if place == DECIMAL_EVERY - 1 && self.random.chance(7, 8) => {
                number - 1 - self.random.below(u64::from(DECIMAL_EVERY - 1)) as u32
            }
            _ => number,
        }
    }

    fn home(&self, number: u32) -> Home {
        if number % DECIMAL_EVERY == DECIMAL_EVERY - 1 {
            return Home::Decimal;
        }
        let mut random = SplitMix64::stream(self.settings.seed, u64::from(number) << 1 | 1);
        let element = random.choose(&Element::ALL);
        let width = element.width();
        let size = match self.settings.value_size(&mut random) {
            1..=40 if random.chance(1, 2) => width,
            // Rounded to whole elements, but not to none.
            size => {
                if size < width {
                    size.min(1) * width
                } else {
                    size - size % width
                }
            }
        };
        Home::Vector { element, size }
    }

    /// A value for a key: like its home, or one time in four of any size.
    pub(super) fn value(&mut self, home: Home) -> Vec<u8> {
        match home {
            _ if self.random.chance(1, 4) => {
                let size = self.settings.value_size(&mut self.random);
                let element = self.random.choose(&Element::ALL);
                self.random.elements(element, size)
            }
            Home::Decimal => self.decimal(),
            Home::Vector { element, size } => self.random.elements(element, size),
        }
    }

    /// The text of a number, or something near it that is none.
    fn decimal(&mut self) -> Vec<u8> {
        let number = self.delta();
        match self.random.below(32) {
            0 => format!("+{number}"),
            1 => format!("0{number}"),
            2 => format!("{number} "),
            3 => format!("{number}0000000000"),
            _ => number.to_string(),
        }
        .into_bytes()
    }

    fn delta(&mut self) -> i64 {
        match self.random.below(16) {
            0 => i64::MAX,
            1 => i64::MIN,
            2 => self.random.next() as i64,
            _ => self.random.below(200) as i64 - 100,
        }
    }

    /// The element type and size in bytes that an operation on a vector expects: mostly those of the home.
    fn expected_vector(&mut self, home: Home) -> (Element, usize) {
        match home {
            Home::Vector { element, size } if self.random.chance(15, 16) => (element, size),
            Home::Vector { size, .. } => (self.random.choose(&Element::ALL), size),
            Home::Decimal => (self.random.choose(&Element::ALL), self.random.below(24) as usize),
        }
    }

    fn update(&mut self, home: Home) -> OwnedOperation {
        let (element, size) = self.expected_vector(home);
        let width = element.width();
        let function = loop {
            let function = self.random.choose(&UpdateFunction::ALL);
            if function.is_defined_for(element) {
                break function;
            }
        };
        let shape = match self.random.below(16) {
            0 => Shape::ScalarToScalar,
            1..12 if size == width => Shape::ScalarToScalar,
            1..8 => Shape::ScalarToVector,
            _ => Shape::VectorToVector,
        };
        let vector_size = size - size % width;
        let (operand_size, initial_size) = match shape {
            Shape::ScalarToScalar => (width, width),
            Shape::ScalarToVector => (width, vector_size),
            Shape::VectorToVector => (vector_size, vector_size),
        };
        OwnedOperation::Update {
            function,
            element,
            shape,
            operand: self.random.elements(element, operand_size * function.operand_count()),
            initial: self.random.chance(1, 2).then(|| self.random.elements(element, initial_size)),
            return_old: self.random.chance(1, 2),
        }
    }

    fn reduce(&mut self, home: Home) -> OwnedOperation {
        let (element, size) = self.expected_vector(home);
        let fold = self.random.choose(&Fold::ALL);
        let constants_size = if fold == Fold::Dot { size - size % element.width() } else { 0 };
        OwnedOperation::Reduce {
            fold,
            element,
            initial: self.random.elements(fold.sigma(element), fold.sigma(element).width()),
            constants: self.random.elements(element, constants_size),
        }
    }

    fn filter(&mut self, home: Home) -> OwnedOperation {
        let (element, _) = self.expected_vector(home);
        let predicate = self.random.choose(&Predicate::ALL);
        let operand_size = if predicate == Predicate::NonZero { 0 } else { element.width() };
        OwnedOperation::Filter { predicate, element, operand: self.random.elements(element, operand_size) }
    }

    /// A call of a test function, mostly one whose elements divide the size of the value.
    fn call(&mut self, home: Home) -> OwnedOperation {
        let (_, size) = self.expected_vector(home);
        let functions: Vec<FunctionHandle> = test_functions().collect();
        let mut handle = self.random.choose(&functions);
        let element_size =
            |handle: &FunctionHandle| handle.function.map_or(1, |function| function.signature.element.size());
        for _ in 0..6 {
            if !size.is_multiple_of(element_size(&handle)) {
                handle = self.random.choose(&functions);
            }
        }
        let function = handle.function.expect("a test function");
        let signature = &function.signature;
        let vectors = self.random.below(1 << signature.operands.len()) as u8;
        let operands_size = signature.operands_size(vectors, size / signature.element.size());
        let whole = size - size % signature.element.size();
        let result = signature.result.as_ref();
        let (initial_size, replies): (_, &[CallReply]) = match function.kind() {
            FunctionKind::Update if result.is_some() => {
                (self.random.chance(1, 2).then_some(whole), &[CallReply::Nothing, CallReply::Old, CallReply::Result])
            }
            FunctionKind::Update => (self.random.chance(1, 2).then_some(whole), &[CallReply::Nothing, CallReply::Old]),
            FunctionKind::Reduce => (result.map(Layout::size), &[CallReply::Result]),
            FunctionKind::Filter => (None, &[CallReply::Result, CallReply::Positions, CallReply::Pairs]),
        };
        OwnedOperation::Call {
            function: handle,
            vectors,
            operands: self.random.elements(Element::U8, operands_size),
            initial: initial_size.map(|size| self.random.elements(Element::U8, size)),
            reply: self.random.choose(replies),
        }
    }

    /// A scan from a key, or from some of its first bytes, or from the lowest. Mostly it ends above where it begins.
    fn scan(&mut self, number: u32) -> OwnedRequest {
        let mut key = self.key(number);
        match self.random.below(8) {
            0 => key.clear(),
            1 => key.truncate(1),
            _ => {}
        }
        let other = self.random.below(u64::from(self.settings.key_count)) as u32;
        let mut end = self.key(other);
        if end < key && self.random.chance(15, 16) {
            std::mem::swap(&mut key, &mut end);
        }
        let limits = [1, 2, 10, 100, u32::MAX];
        let scan = Scan {
            start: self.random.choose(&[ScanStart::AtOrAbove, ScanStart::Above, ScanStart::Floor]),
            end: self.random.choose(&[
                ScanEnd::Last,
                ScanEnd::AtOrBelow(&[]),
                ScanEnd::Below(&[]),
                ScanEnd::Prefix(&[]),
            ]),
            reverse: self.random.chance(1, 2),
            limit: self.random.choose(&limits),
            answer: self.random.choose(&ScanAnswer::ALL),
            lease: match self.random.below(4) {
                0 => ScanLease::Open,
                // There may be one.
                1 => ScanLease::Continue(self.random.below(1000)),
                _ => ScanLease::None,
            },
        };
        if let ScanEnd::Prefix(_) = scan.end {
            let size = self.random.below(4) as usize;
            end = if self.random.chance(7, 8) { key[..size.min(key.len())].to_vec() } else { end };
        }
        OwnedRequest { key, operation: OwnedOperation::Scan { end, scan } }
    }

    /// Makes a request invalid, by its key or by what is special to its operation.
    fn make_invalid(&mut self, request: &mut OwnedRequest) {
        let way = self.random.below(4);
        // These cost a copy of a mebibyte, so they are rare.
        let huge = self.random.chance(1, 16);
        match &mut request.operation {
            OwnedOperation::Put { value, .. } if huge => value.resize(VALUE_SIZE_MAX + 1, 0),
            OwnedOperation::Update { initial, .. } if huge => *initial = Some(vec![0; VALUE_SIZE_MAX + 8]),
            OwnedOperation::Update { operand, .. } if way == 0 => operand.push(0),
            OwnedOperation::Update { function, element, .. } if way == 1 => {
                *function = UpdateFunction::Xor;
                *element = Element::F32;
            }
            OwnedOperation::Update { initial: Some(initial), .. } if way == 2 => initial.push(0),
            OwnedOperation::Reduce { initial, .. } if way == 0 => initial.push(0),
            OwnedOperation::Reduce { constants, .. } if way == 1 => constants.push(0),
            OwnedOperation::Filter { operand, .. } if way < 2 => operand.push(0),
            OwnedOperation::Call { operands, .. } if way == 0 => operands.push(0),
            OwnedOperation::Call { function, .. } if way == 1 => {
                *function = FunctionHandle { id: u32::MAX, revision: 0, function: None };
            }
            OwnedOperation::Call { function, reply, .. } if way == 2 => {
                let is_filter = function.function.is_some_and(|function| function.kind() == FunctionKind::Filter);
                *reply = if is_filter { CallReply::Old } else { CallReply::Pairs };
            }
            OwnedOperation::Call { vectors, .. } if huge => *vectors |= 0x80,
            OwnedOperation::Scan { scan, .. } if way < 2 => scan.limit = 0,
            OwnedOperation::StringWrite { bytes, .. } if huge => bytes.resize(VALUE_SIZE_MAX + 1, 0),
            _ if way == 3 => request.key.clear(),
            _ => request.key.resize(KEY_SIZE_MAX + 1, 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;
    use crate::naive::{NaiveReply, NaiveStore, random};
    use skep_core::operation::{Operation, OperationError};

    #[test]
    fn the_same_seed_gives_the_same_requests() {
        let with_seed = |seed| Generator::new(GeneratorSettings { seed, ..GeneratorSettings::default() });
        assert!(with_seed(7).take(1000).eq(with_seed(7).take(1000)));
        assert!(with_seed(7).take(1000).ne(with_seed(8).take(1000)));
    }

    #[test]
    fn keys_are_different_and_of_the_sizes_asked_for() {
        let settings = GeneratorSettings { key_size: 4..=460, ..GeneratorSettings::default() };
        let generator = Generator::new(settings);
        let keys: BTreeSet<_> = (0..1000).map(|number| generator.key(number)).collect();
        assert_eq!(keys.len(), 1000);
        assert!(keys.iter().all(|key| (4..=460).contains(&key.len())));
        assert!(keys.iter().any(|key| key.len() > 400));
        let one = GeneratorSettings { key_size: 8..=8, key_count: 1, invalid_per_mille: 0, ..Default::default() };
        let generator = Generator::new(one);
        let key = generator.key(0);
        assert!(generator.take(100).all(|request| request.key == key));
    }

    /// Returns the name of an operation that may fail on the value of its key.
    fn kind(operation: &Operation<'_>) -> Option<&'static str> {
        match operation {
            Operation::Update(_) => Some("update"),
            Operation::Reduce(_) => Some("reduce"),
            Operation::Filter(_) => Some("filter"),
            Operation::AddDecimal { .. } => Some("add_decimal"),
            Operation::Call(_) => Some("call"),
            _ => None,
        }
    }

    /// A test with this generator executes each function on each type in each shape on a value with elements, and has each
    /// error and each class of sizes.
    #[test]
    fn everything_comes_up() {
        for seed in random::test_seeds() {
            let mut store = NaiveStore::ordered();
            let mut updates = BTreeSet::new();
            let mut folds = BTreeSet::new();
            let mut filters = BTreeSet::new();
            let mut errors = BTreeSet::new();
            let mut sizes = [0; 4];
            let mut outcomes = BTreeMap::new();
            let mix = Mix { scan: 1, ..Mix::default() };
            for request in Generator::new(GeneratorSettings { seed, mix, ..Default::default() }).take(200_000) {
                let request = request.as_request();
                let has_elements = store.get(request.key).is_some_and(|value| !value.is_empty());
                let reply = store.execute(&request);
                if let NaiveReply::Failed(error) = reply {
                    errors.insert(error as u8);
                }
                let done = matches!(reply, NaiveReply::Done | NaiveReply::Value(_));
                match request.operation {
                    Operation::Update(update) if done && has_elements => {
                        updates.insert((update.function as u8, update.element as u8, update.shape as u8));
                    }
                    Operation::Reduce(reduce) if done && has_elements => {
                        folds.insert((reduce.fold as u8, reduce.element as u8));
                    }
                    Operation::Filter(filter) if done && has_elements => {
                        filters.insert((filter.predicate as u8, filter.element as u8));
                    }
                    Operation::Put { value, .. } if done => match value.len() {
                        0 => sizes[0] += 1,
                        1..=40 => sizes[1] += 1,
                        41..=508 => sizes[2] += 1,
                        _ => sizes[3] += 1,
                    },
                    _ => {}
                }
                if let Some(kind) = kind(&request.operation).filter(|_| has_elements) {
                    let (tried, succeeded) = outcomes.entry(kind).or_insert((0, 0));
                    *tried += 1;
                    *succeeded += u32::from(done);
                }
            }
            let update_count: usize = Element::ALL
                .iter()
                .map(|&element| UpdateFunction::ALL.iter().filter(|function| function.is_defined_for(element)).count())
                .sum();
            assert_eq!(updates.len(), 3 * update_count, "SKEP_SEED={seed}");
            assert_eq!(folds.len(), Fold::ALL.len() * Element::ALL.len(), "SKEP_SEED={seed}");
            assert_eq!(filters.len(), Predicate::ALL.len() * Element::ALL.len(), "SKEP_SEED={seed}");
            let is_possible = |error: &OperationError| {
                !error.is_out_of_memory()
                    && !matches!(
                        error,
                        OperationError::NotOrdered | OperationError::FunctionWork | OperationError::FunctionReplyLong
                    )
            };
            let possible = OperationError::ALL.into_iter().filter(is_possible);
            let expected: Vec<u8> = possible.map(|error| error as u8).collect();
            assert!(errors.iter().eq(&expected), "SKEP_SEED={seed}: {errors:?}");
            assert!(sizes.iter().all(|&count| count > 100), "SKEP_SEED={seed}: {sizes:?}");
            for (kind, (tried, succeeded)) in outcomes {
                assert!(succeeded * 2 > tried, "SKEP_SEED={seed}: {kind} succeeds {succeeded} times of {tried}");
                assert!(succeeded < tried, "SKEP_SEED={seed}: {kind} never fails");
            }
        }
    }
}
