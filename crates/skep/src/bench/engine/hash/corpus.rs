//! The pairs of the hash store. They are numbered, have one size, and are put until they fill a share of the memory.

use skep_core::function::Element;
use skep_core::operation::{Operation, PutCondition, Reply, Request};
use skep_store::hash::Settings;
use skep_store::memory::Memory;
use skep_store::processor::{Processor, Replies};

/// Sizes and number of the pairs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) key_size: usize,
    pub(super) value_size: usize,
    pub(super) pair_count: u64,
}

/// Size of the longest key. Eight bytes make more different keys than fit into the memory.
pub(super) const KEY_SIZE_MAX: usize = 8;

impl Shape {
    /// Returns the shape of pairs of `kv_size` bytes, at least two, that fill this share of a memory.
    pub(super) fn new(kv_size: usize, memory_size: u64, utilization: f64) -> Self {
        let key_size = KEY_SIZE_MAX.min(kv_size - 1);
        let pair_count = (memory_size as f64 * utilization / kv_size as f64) as u64;
        Shape { key_size, value_size: kv_size - key_size, pair_count: pair_count.max(1) }
    }

    /// Returns the key of a pair. Different numbers have different keys, since multiplying by an odd number is
    /// invertible.
    pub(super) fn key(&self, number: u64) -> [u8; KEY_SIZE_MAX] {
        number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes()
    }

    /// Returns the widest integer whose width divides the size of a value.
    pub(super) fn element(&self) -> Element {
        match self.value_size.trailing_zeros() {
            0 => Element::U8,
            1 => Element::U16,
            2 => Element::U32,
            _ => Element::U64,
        }
    }
}

/// A store that holds the pairs.
pub(super) struct Corpus<M> {
    pub(super) processor: Processor<M>,
    pub(super) replies: Replies,
    pub(super) shape: Shape,
}

impl<M: Memory> Corpus<M> {
    /// Opens a store and puts all pairs. Calls `loaded` with the share that is put.
    pub(super) fn new(
        memory: M,
        settings: &Settings,
        shape: Shape,
        mut loaded: impl FnMut(f64),
    ) -> Result<Self, String> {
        let processor = Processor::with_memory(memory, settings).map_err(|error| error.to_string())?;
        let mut corpus = Corpus { processor, replies: Replies::with_budget(usize::MAX), shape };
        let value = vec![b'v'; shape.value_size];
        let mut number = 0;
        while number < shape.pair_count {
            let keys: Vec<_> = (number..shape.pair_count.min(number + 256)).map(|number| shape.key(number)).collect();
            let put = Operation::Put { value: &value, condition: PutCondition::Always };
            let requests: Vec<_> =
                keys.iter().map(|key| Request { key: &key[..shape.key_size], operation: put }).collect();
            corpus.processor.execute(&requests, &mut corpus.replies);
            // The store defers some puts while slabs are being merged. Puts can be repeated.
            while corpus.replies.deferred_count() > 0 {
                corpus.processor.execute(&requests, &mut corpus.replies);
            }
            if let Some(reply) = corpus.replies.iter().find(|reply| *reply != Reply::Done) {
                return Err(format!(
                    "pair {number} of {}: the reply is {reply:?}: choose a smaller --utilization",
                    shape.pair_count
                ));
            }
            number += keys.len() as u64;
            loaded(number as f64 / shape.pair_count as f64);
        }
        Ok(corpus)
    }
}
