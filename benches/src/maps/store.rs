//! Skep's processor as a contender: the work of a program that embeds the store.
//!
//! Building requests and reading replies are part of the measured time, since every user has to do both.

use skep_core::function::{Element, UpdateFunction};
use skep_core::operation::{Operation, PutCondition, Reply, Request, Shape, Update};
use skep_store::hash::Settings;
use skep_store::processor::{Processor, Replies};

use super::{Contender, weigh};

/// Bytes of a pair.
const KV_SIZE: usize = 10;
/// The smallest useful memory.
const MEMORY_SIZE_MIN: u64 = 1 << 20;

/// The store.
pub(crate) struct Store {
    processor: Processor,
    replies: Replies,
}

impl Store {
    /// Opens an empty store whose memory is filled to `utilization` by `pairs` pairs.
    pub(crate) fn new(pairs: usize, utilization: f64) -> Result<Self, String> {
        let memory = ((pairs * KV_SIZE) as f64 / utilization) as u64;
        let settings = Settings::for_kv_size(memory.max(MEMORY_SIZE_MIN), KV_SIZE, 1);
        let processor = Processor::new(&settings).map_err(|error| error.to_string())?;
        Ok(Store { processor, replies: Replies::with_budget(usize::MAX) })
    }

    /// Executes an operation on every key. Returns the sum of the replies' weights. `operation` gets the index of the
    /// key.
    fn execute<'a>(&mut self, keys: &[&'a [u8]], batch: usize, operation: impl Fn(usize) -> Operation<'a>) -> u64 {
        let mut requests = Vec::with_capacity(batch);
        let mut sum = 0;
        let mut index = 0;
        for keys in keys.chunks(batch) {
            requests.clear();
            for key in keys {
                requests.push(Request { key, operation: operation(index) });
                index += 1;
            }
            self.processor.execute(&requests, &mut self.replies);
            for reply in self.replies.iter() {
                match reply {
                    Reply::Value(value) => sum += weigh(value),
                    Reply::Done => {}
                    other => panic!("the store replied {other:?}"),
                }
            }
        }
        sum
    }
}

impl Contender for Store {
    fn get(&mut self, keys: &[&[u8]], batch: usize) -> u64 {
        self.execute(keys, batch, |_| Operation::Get)
    }

    fn put(&mut self, keys: &[&[u8]], values: &[&[u8]], batch: usize) {
        self.execute(keys, batch, |index| Operation::Put { value: values[index], condition: PutCondition::Always });
    }

    fn fetch_add(&mut self, keys: &[&[u8]], delta: u16, batch: usize) -> u64 {
        let operand = delta.to_le_bytes();
        let update = Operation::Update(Update {
            function: UpdateFunction::Add,
            element: Element::U16,
            shape: Shape::ScalarToScalar,
            operand: &operand,
            initial: None,
            return_old: true,
        });
        self.execute(keys, batch, |_| update)
    }

    fn utilization(&self) -> Option<f64> {
        let statistics = self.processor.statistics();
        Some(statistics.pair_bytes as f64 / statistics.memory_bytes as f64)
    }
}
