//! The slab allocator (KV-Direct, section 3.3.2) and the reservation station (section 3.3.3). The station is measured
//! through the processor: batches of distinct keys are compared with batches in which keys repeat.

use skep_core::function::{Element, UpdateFunction};
use skep_core::operation::{Operation, PutCondition, Reply, Request, Shape, Update};
use skep_store::hash::Settings;
use skep_store::hash::slab::{SlabAllocator, SlabClass};
use skep_store::memory::Pointer;
use skep_store::processor::{Processor, Replies};

use super::{Workload, fold};
use crate::keys::{random_key, random_value};

/// Number of operations in a batch: the most that can be in flight.
const BATCH: u64 = 256;
/// Memory of the allocator and of the store, in bytes.
const MEMORY: u64 = 1 << 20;

pub(super) fn workloads() -> Vec<Workload> {
    vec![
        slab("slab/allocate_release_64", 64, 1, 0xcdcf_d0b2_4a5e_5db4),
        slab("slab/allocate_release_half_512", 512, 2, 0xb168_b89b_53d6_0330),
        station("station/get_distinct", Operation::Get, BATCH, 0x7b0e_3e69_aa81_9b5b),
        station("station/get_16_keys", Operation::Get, 16, 0x6180_ba55_8ac9_8249),
        station("station/add_distinct", ADD, BATCH, 0x7b0e_3e69_aa81_9b5b),
        station("station/add_16_keys", ADD, 16, 0xd85b_7f5f_1587_3044),
        station("station/add_one_key", ADD, 1, 0xe1a3_3cb3_0ad5_8c08),
    ]
}

const ADD: Operation<'static> = Operation::Update(Update {
    function: UpdateFunction::Add,
    element: Element::U16,
    shape: Shape::ScalarToScalar,
    operand: &[1, 0],
    initial: None,
    return_old: true,
});

/// Allocates a batch of slabs and frees them, in `step` passes over every `step`-th slab.
fn slab(name: &'static str, size: usize, step: usize, hash: u64) -> Workload {
    let mut allocator = SlabAllocator::new(Pointer::new(0), Pointer::to_line(MEMORY / 64));
    let class = SlabClass::for_size(size).expect("there is a class of this size");
    let mut allocated = Vec::with_capacity(BATCH as usize);
    let run = move || {
        allocated.extend((0..BATCH).map_while(|_| allocator.allocate(class)));
        let hash = fold(allocated.len() as u64, allocator.free_size());
        // Neighbouring slabs are not freed one after the other.
        for first in (0..step).rev() {
            allocated.iter().skip(first).step_by(step).for_each(|pointer| allocator.release(class, *pointer));
        }
        allocated.clear();
        fold(hash, allocator.free_size())
    };
    Workload { name, operations: BATCH, hash, run: Box::new(run) }
}

/// Executes batches of one operation that cycle through `key_count` keys.
fn station(name: &'static str, operation: Operation<'static>, key_count: u64, hash: u64) -> Workload {
    let mut processor = Processor::new(&Settings::for_kv_size(MEMORY, 10, 1)).expect("a small memory can be had");
    let mut replies = Replies::with_budget(usize::MAX);
    let keys: Vec<[u8; 8]> = (0..BATCH).map(random_key).collect();
    let values: Vec<[u8; 2]> = (0..BATCH).map(random_value).collect();
    let put = |(key, value)| {
        let condition = PutCondition::Always;
        Request {
            key: <[u8; 8]>::as_slice(key),
            operation: Operation::Put { value: <[u8; 2]>::as_slice(value), condition },
        }
    };
    let puts: Vec<Request<'_>> = keys.iter().zip(&values).map(put).collect();
    processor.execute(&puts, &mut replies);
    let keys: Vec<[u8; 8]> = (0..BATCH).map(|index| random_key(index % key_count)).collect();
    let run = move || {
        let requests: [Request<'_>; BATCH as usize] =
            std::array::from_fn(|index| Request { key: &keys[index], operation });
        processor.execute(&requests, &mut replies);
        replies.iter().fold(0, |hash, reply| match reply {
            Reply::Value(value) => fold(hash, u64::from(value[0]) | u64::from(value[1]) << 8),
            _ => fold(hash, 1 << 32),
        })
    };
    Workload { name, operations: BATCH, hash, run: Box::new(run) }
}
