//! Memory accesses of the hash store, counted, against the curves of KV-Direct's Figure 11 (section 5.1.1).
//!
//! As there, random pairs of one size are put until a utilization is reached; the settings are the best for it: the
//! largest hash index that still leaves room. Then existing keys are read, and the puts of new ones that led there are
//! what a PUT costs.

use std::collections::BTreeMap;

use skep_core::function::{Element, Fold, UpdateFunction};
use skep_core::operation::{
    Expiry, ExpiryChange, ExpiryCondition, Filter, Operation, OperationError, PutCondition, Reduce, Reply, Request,
    Shape, StringRead, StringWrite, Update,
};
use skep_store::hash::Settings;
use skep_store::memory::{AccessCounts, CountingMemory, LocalMemory};
use skep_store::processor::{Processor, Replies};

const MEMORY_SIZE: u64 = 16 << 20;
/// Puts over which the cost of a PUT is averaged.
const PUT_SAMPLE: u64 = 8192;

/// A store of equal pairs, numbered.
struct Corpus {
    processor: Processor<CountingMemory<LocalMemory>>,
    replies: Replies,
    key_size: usize,
    value_size: usize,
    pair_count: u64,
}

impl Corpus {
    fn new(settings: &Settings, key_size: usize, value_size: usize) -> Self {
        let memory = CountingMemory::new(LocalMemory::new(settings.memory).unwrap());
        let processor = Processor::with_memory(memory, settings).unwrap();
        Corpus { processor, replies: Replies::with_budget(usize::MAX), key_size, value_size, pair_count: 0 }
    }

    fn key(&self, number: u64) -> Vec<u8> {
        let mut key = number.to_le_bytes().to_vec();
        key.resize(self.key_size, 0x5a);
        key
    }

    fn value(&self, number: u64) -> Vec<u8> {
        let mut value = (number.wrapping_mul(0x9e37_79b9)).to_le_bytes().to_vec();
        value.resize(self.value_size, 0xa5);
        value
    }

    /// Puts pairs up to this count; the accesses of that. `Err`: how many there are when the memory is full.
    fn fill(&mut self, pair_count: u64) -> Result<AccessCounts, u64> {
        let before = self.processor.memory().counts();
        while self.pair_count < pair_count {
            let numbers: Vec<u64> = (self.pair_count..pair_count.min(self.pair_count + 256)).collect();
            let pairs: Vec<_> = numbers.iter().map(|n| (self.key(*n), self.value(*n))).collect();
            let put = |value| Operation::Put { value, condition: PutCondition::Always };
            let requests: Vec<_> =
                pairs.iter().map(|(key, value)| Request { key, operation: put(value.as_slice()) }).collect();
            self.processor.execute(&requests, &mut self.replies);
            for reply in self.replies.iter() {
                match reply {
                    Reply::Done => self.pair_count += 1,
                    Reply::Failed(error) if error.is_out_of_memory() => {}
                    other => panic!("a put was answered {other:?}"),
                }
            }
            if self.replies.iter().any(|reply| reply != Reply::Done) {
                return Err(self.pair_count);
            }
        }
        Ok(self.processor.memory().counts() - before)
    }

    /// Reads pairs, checks them, and returns the accesses.
    fn read(&mut self, numbers: impl Iterator<Item = u64>) -> AccessCounts {
        let before = self.processor.memory().counts();
        for number in numbers {
            let key = self.key(number);
            self.processor.execute(&[Request { key: &key, operation: Operation::Get }], &mut self.replies);
            assert_eq!(self.replies.get(0), Reply::Value(&self.value(number)), "pair {number}");
        }
        self.processor.memory().counts() - before
    }
}

/// KV-Direct's curve of a part of Figure 11: accesses by utilization in per cent.
fn paper(part: &str) -> BTreeMap<u64, f64> {
    let path = format!("{}/tests/papers/kvdirect-fig11{part}.csv", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let row = |line: &str| {
        let mut fields = line.split(',');
        (fields.next() == Some("KV-Direct")).then(|| {
            let mut number = || fields.next().unwrap().parse::<f64>().unwrap();
            (number() as u64, number())
        })
    };
    let points: BTreeMap<_, _> = text.lines().filter(|line| !line.starts_with('#')).filter_map(row).collect();
    assert!(points.len() >= 8, "{path} has {} points", points.len());
    points
}

/// Fills a store to each utilization of the figure; GET and PUT must cost no more than on the paper's curves.
fn hold_against_figure_11(get_part: &str, put_part: &str, key_size: usize, value_size: usize) {
    let kv_size = key_size + value_size;
    let (paper_get, paper_put) = (paper(get_part), paper(put_part));
    println!(
        "{kv_size} B: utilization, ratio | GET paper, ours, lines | PUT paper, ours | slab lines for an allocation"
    );
    for (percent, paper_get) in paper_get {
        let utilization = percent as f64 / 100.0;
        // A few per mille of room, or the last of the random chains would not find their buckets.
        let settings = Settings::for_utilization(MEMORY_SIZE, kv_size, utilization + 0.005, 7).unwrap();
        let mut corpus = Corpus::new(&settings, key_size, value_size);
        let pair_count = (utilization * MEMORY_SIZE as f64 / kv_size as f64) as u64;
        corpus.fill(pair_count - PUT_SAMPLE).unwrap_or_else(|at| panic!("full at {at} of {pair_count} pairs"));
        let put = corpus.fill(pair_count).unwrap_or_else(|at| panic!("full at {at} of {pair_count} pairs"));
        let put = put.accesses() as f64 / PUT_SAMPLE as f64;
        let sample = (0..pair_count).step_by(7);
        let sample_count = sample.clone().count() as f64;
        let counts = corpus.read(sample);
        let (get, lines) = (counts.accesses() as f64 / sample_count, counts.lines() as f64 / sample_count);
        let traffic = corpus.processor.statistics().slab;
        let slab = traffic.lines as f64 / (traffic.allocations.max(1) + traffic.releases) as f64;
        let ratio = settings.hash_index_ratio;
        let paper_put = paper_put[&percent];
        println!(
            "{percent} %, {ratio:.3} | {paper_get:.3}, {get:.3}, {lines:.2} | {paper_put:.2}, {put:.3} | {slab:.4}"
        );
        assert_eq!(counts.write_accesses, 0);
        assert!(get <= paper_get, "GET at {percent} %: {get} accesses, the paper has {paper_get}");
        assert!(put <= paper_put, "PUT at {percent} %: {put} accesses, the paper has {paper_put}");
        assert!(slab < 0.08, "slab at {percent} %: {slab} lines for an allocation");
    }
}

#[test]
fn ten_byte_pairs_cost_no_more_than_in_figure_11() {
    hold_against_figure_11("a-10b-get", "b-10b-put", 8, 2);
}

#[test]
fn pairs_of_254_bytes_cost_no_more_than_in_figure_11() {
    hold_against_figure_11("c-254b-get", "d-254b-put", 16, 238);
}

/// A PUT of an existing key is one read and one write inline, and one more of each kind in a slab (section 3.3.1).
#[test]
fn overwriting_costs_one_read_and_one_write() {
    for (key_size, value_size, reads, writes) in [(8, 2, 1.0, 1.0), (16, 238, 2.0, 1.0)] {
        let settings = Settings::for_utilization(MEMORY_SIZE, key_size + value_size, 0.3, 7).unwrap();
        let mut corpus = Corpus::new(&settings, key_size, value_size);
        let pair_count = 10_000;
        corpus.fill(pair_count).unwrap();
        corpus.pair_count = 0;
        let counts = corpus.fill(pair_count).unwrap();
        let (read, written) = (counts.read_accesses as f64, counts.write_accesses as f64);
        assert!(read / pair_count as f64 <= reads + 0.02, "{counts:?}");
        assert_eq!(written / pair_count as f64, writes);
    }
}

/// Ten-byte pairs fill at least 65 % of a memory that is laid out for that; those that came before it was full stay.
#[test]
fn ten_byte_pairs_fill_two_thirds_of_the_memory() {
    let settings = Settings::for_utilization(MEMORY_SIZE, 10, 0.72, 7).unwrap();
    let mut corpus = Corpus::new(&settings, 8, 2);
    let pair_count = corpus.fill(u64::MAX).unwrap_err();
    let utilization = (pair_count * 10) as f64 / MEMORY_SIZE as f64;
    println!("{pair_count} pairs, {utilization:.3} of the memory");
    assert!(utilization >= 0.65, "{utilization}");
    assert_eq!(corpus.processor.statistics().pairs, pair_count);
    // The batch in which the memory became full may have stored some after the first that failed.
    corpus.read(0..pair_count - 256);
}

/// Updates of one key are one read and one write for all that are in flight: the value is forwarded (section 3.3.3).
#[test]
fn forwarding_saves_accesses() {
    let settings = Settings::for_kv_size(1 << 20, 16, 7);
    let mut corpus = Corpus::new(&settings, 8, 8);
    corpus.fill(1).unwrap();
    let before = corpus.processor.memory().counts();
    let key = corpus.key(0);
    let requests = vec![Request { key: &key, operation: add_to_counter(&[1, 0, 0, 0, 0, 0, 0, 0]) }; 256];
    corpus.processor.execute(&requests, &mut corpus.replies);
    assert!(corpus.replies.iter().all(|reply| reply == Reply::Done));
    let counts = corpus.processor.memory().counts() - before;
    assert_eq!((counts.read_accesses, counts.write_accesses), (1, 1));
}

fn add_to_counter(operand: &[u8]) -> Operation<'_> {
    Operation::Update(Update {
        function: UpdateFunction::Add,
        element: Element::U64,
        shape: Shape::ScalarToScalar,
        operand,
        initial: None,
        return_old: false,
    })
}

/// Data slabs and index slabs of a value that does not fit into the slab of its key.
fn pieces(value_size: usize) -> (u64, u64) {
    let data = value_size.div_ceil(512) as u64;
    let (mut index, mut level) = (0, data);
    while level > 8 {
        level = level.div_ceil(128);
        index += level;
    }
    (data, index)
}

/// Adds to all bytes of a value.
fn add<'a>(shape: Shape, operand: &'a [u8], initial: Option<&'a [u8]>) -> Operation<'a> {
    let (function, element) = (UpdateFunction::Add, Element::U8);
    Operation::Update(Update { function, element, shape, operand, initial, return_old: false })
}

fn expire(expiry: ExpiryChange) -> Operation<'static> {
    let condition = ExpiryCondition::Always;
    Operation::StringWrite(StringWrite::Expire { expiry, condition, return_value: false })
}

/// Executes an operation on the first pair. Its reply, its reads and its writes are these; the reply to
/// `reduce` is any number.
fn assert_accesses(
    corpus: &mut Corpus,
    name: &str,
    operation: Operation<'_>,
    expected: Reply<'_>,
    reads: u64,
    writes: u64,
) {
    let value_size = corpus.value_size;
    let key = corpus.key(0);
    let before = corpus.processor.memory().counts();
    corpus.processor.execute(&[Request { key: &key, operation }], &mut corpus.replies);
    let counts = corpus.processor.memory().counts() - before;
    let reply = corpus.replies.get(0);
    let is_sum = name == "reduce" && matches!(reply, Reply::Value([_]));
    assert!(is_sum || reply == expected, "{name} of {value_size} B: {reply:?}");
    assert_eq!((counts.read_accesses, counts.write_accesses), (reads, writes), "{name} of {value_size} B");
}

/// A large value is read once, its index too, and neither if the root of the value is enough.
#[test]
fn a_large_value_and_its_index_are_read_once_and_only_if_needed() {
    for value_size in [600, 4096, 5000, 100_000, 1 << 20] {
        let mut corpus = Corpus::new(&Settings::for_kv_size(16 << 20, 64, 7), 8, value_size);
        corpus.fill(1).unwrap();
        let (key, value, longer) = (corpus.key(0), corpus.value(0), vec![3; value_size - 88]);
        let (data, index) = pieces(value_size);
        // Index slabs on the path to a byte.
        let height = [4096, 524_288].into_iter().filter(|size| value_size > *size).count() as u64;
        let (longer_data, longer_index) = pieces(longer.len());
        let put = |value, condition| Operation::Put { value, condition };
        let sum = Reduce { fold: Fold::Sum, element: Element::U8, initial: &[0], constants: &[] };
        let wide = Reduce { fold: Fold::Dot, element: Element::U64, initial: &[0; 8], constants: &[0; 8] };
        let none = Filter { predicate: skep_core::function::Predicate::Greater, element: Element::U8, operand: &[255] };
        let operand_length = Reply::Failed(OperationError::OperandLength);
        let reads_all = (2 + index + data, 0);
        let (size, time) = ((value_size as i64).to_le_bytes(), 20i64.to_le_bytes());
        let last_bytes = StringRead::Slice { start: -10, end: -1 };
        let expiry = |time| ExpiryChange::set(Expiry::at(time).unwrap());
        // Header, key, and up to eight pointers.
        let root_size = 8 + 8 + 4 * if index == 0 { data } else { data.div_ceil(128) };
        let first_expiry = if root_size.next_power_of_two() < root_size + 8 { 2 } else { 1 };
        // Each with its reads and writes: the bucket and the root are two reads, and one write each if they change.
        let cases = [
            ("get", Operation::Get, Reply::Value(&value), reads_all),
            ("reduce", Operation::Reduce(sum), Reply::Value(&[0]), reads_all),
            ("filter", Operation::Filter(none), Reply::Value(&[]), reads_all),
            ("contains", Operation::Contains, Reply::Done, (2, 0)),
            ("put if absent", put(&value, PutCondition::IfAbsent), Reply::Exists, (2, 0)),
            ("dot of another length", Operation::Reduce(wide), operand_length, (2, 0)),
            ("update of another length", add(Shape::VectorToVector, &[1], None), operand_length, (2, 0)),
            ("scalar update", add(Shape::ScalarToScalar, &[1], None), Reply::Failed(OperationError::NotScalar), (2, 0)),
            ("add decimal", Operation::AddDecimal { delta: 1 }, Reply::Failed(OperationError::NotAnInteger), (2, 0)),
            ("size", Operation::StringRead(StringRead::Size), Reply::Value(&size), (2, 0)),
            (
                "last bytes",
                Operation::StringRead(last_bytes),
                Reply::Value(&value[value_size - 10..]),
                (2 + height + 1, 0),
            ),
            // Only the root is written: in its slab, or in one of the next class, which the bucket then names.
            ("first expiry", expire(expiry(10)), Reply::Done, (2, first_expiry)),
            ("another expiry", expire(expiry(20)), Reply::Done, (2, 1)),
            ("its time", Operation::StringRead(StringRead::Expiry), Reply::Value(&time), (2, 0)),
            ("get with an expiry", Operation::Get, Reply::Value(&value), reads_all),
            ("no expiry", expire(ExpiryChange::CLEAR), Reply::Done, (2, first_expiry)),
            ("get after that", Operation::Get, Reply::Value(&value), reads_all),
            ("update", add(Shape::ScalarToVector, &[1], None), Reply::Done, (2 + index + data, data)),
            ("put", put(&value, PutCondition::Always), Reply::Done, (2 + index + data, data)),
            (
                "put of another size",
                put(&longer, PutCondition::IfPresent),
                Reply::Done,
                (2 + index, longer_data + longer_index + 2),
            ),
            ("delete", Operation::Delete, Reply::Done, (2 + longer_index, 1)),
            ("contains", Operation::Contains, Reply::NotFound, (1, 0)),
            (
                "update of a missing key",
                add(Shape::ScalarToVector, &[1], Some(&value)),
                Reply::Done,
                (1, data + index + 2),
            ),
        ];
        for (name, operation, expected, (reads, writes)) in cases {
            assert_accesses(&mut corpus, name, operation, expected, reads, writes);
        }
        let updated: Vec<u8> = value.iter().map(|byte| byte.wrapping_add(1)).collect();
        corpus.processor.execute(&[Request { key: &key, operation: Operation::Get }], &mut corpus.replies);
        assert_eq!(corpus.replies.get(0), Reply::Value(&updated));
    }
}

/// The bytes that an operation touches count for the work of a batch. An operation that touches none of a large value is
/// never deferred.
#[test]
fn a_batch_is_rationed_by_the_bytes_that_its_operations_touch() {
    let mut corpus = Corpus::new(&Settings::for_kv_size(64 << 20, 64, 7), 8, 1 << 20);
    corpus.fill(40).unwrap();
    corpus.replies = Replies::with_budget(1 << 20);
    let keys: Vec<_> = (0..40).map(|number| corpus.key(number)).collect();
    let value = corpus.value(0);
    let refused = Operation::Update(Update {
        function: UpdateFunction::Add,
        element: Element::U8,
        shape: Shape::VectorToVector,
        operand: &[1],
        initial: None,
        return_old: false,
    });
    let if_absent = Operation::Put { value: &value, condition: PutCondition::IfAbsent };
    for (operation, count) in [(Operation::Contains, 1_000_000), (refused, 10_000), (if_absent, 10_000)] {
        let before = corpus.processor.memory().counts();
        corpus.processor.execute(&vec![Request { key: &keys[0], operation }; count], &mut corpus.replies);
        assert_eq!(corpus.replies.deferred_count(), 0, "{operation:?}");
        let counts = corpus.processor.memory().counts() - before;
        assert_eq!(counts.accesses(), 2 * count as u64, "the bucket and the root");
    }
    // A delete gives 2048 slabs back, and counts for a line each: an eighth of the value.
    let deletes: Vec<_> = keys.iter().map(|key| Request { key, operation: Operation::Delete }).collect();
    let gets: Vec<_> = keys.iter().map(|key| Request { key, operation: Operation::Get }).collect();
    let put = Operation::Put { value: &value, condition: PutCondition::Always };
    let puts: Vec<_> = keys.iter().map(|key| Request { key, operation: put }).collect();
    for (requests, done) in [(gets, 1), (puts, 8), (deletes, 40)] {
        corpus.processor.execute(&requests, &mut corpus.replies);
        assert_eq!(requests.len() - corpus.replies.deferred_count(), done, "{:?}", requests[0].operation);
    }
}
