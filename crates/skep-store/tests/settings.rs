//! How the memory is divided if all that is known is the size of the pairs, judged by counted accesses.
//!
//! A layout is filled until it refuses a pair. It is the better the more it held and the fewer accesses a GET took on the
//! way there: what is compared is the utilization when full over the accesses of a GET, averaged over the filling. The
//! layouts that the chosen one is held against are a grid of hash index ratios, each with everything inline that can be and
//! with nothing inline.

use skep_core::operation::{Operation, PutCondition, Reply, Request};
use skep_store::hash::Settings;
use skep_store::memory::{CountingMemory, LocalMemory};
use skep_store::processor::{Processor, Replies};

const MEMORY: u64 = 1 << 20;
const KEY_SIZE: usize = 4;
/// GETs are counted whenever another such part of the memory is full.
const PARTS: u64 = 16;
const GETS: u64 = 250;

/// How sizes lie around their mean.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Sizes {
    Equal,
    /// Anywhere from half of it to one and a half times.
    Spread,
}

/// The result of a layout.
struct Outcome {
    utilization: f64,
    get_accesses: f64,
}

impl Outcome {
    fn worth(&self) -> f64 {
        self.utilization / self.get_accesses
    }
}

fn pair_size(mean: usize, sizes: Sizes, number: u64) -> usize {
    let (low, spread) = ((mean / 2).max(KEY_SIZE + 1), number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33);
    match sizes {
        Sizes::Equal => mean,
        Sizes::Spread => low + spread as usize % (2 * (mean - low) + 1),
    }
}

fn fill(settings: &Settings, mean: usize, sizes: Sizes) -> Outcome {
    let memory = CountingMemory::new(LocalMemory::new(MEMORY).unwrap());
    let mut processor = Processor::with_memory(memory, settings).unwrap();
    let mut replies = Replies::with_budget(usize::MAX);
    let (mut accesses, mut gets, mut part) = (0, 0, 1);
    for number in 0_u64.. {
        let key = (number as u32).to_le_bytes();
        let value = vec![7; pair_size(mean, sizes, number) - KEY_SIZE];
        let put = Operation::Put { value: &value, condition: PutCondition::Always };
        processor.execute(&[Request { key: &key, operation: put }], &mut replies);
        let is_full = replies.get(0) != Reply::Done;
        if is_full || processor.statistics().pair_bytes >= part * MEMORY / PARTS {
            part += 1;
            let before = processor.memory().counts();
            for number in (0..number).step_by((number / GETS + 1) as usize) {
                let key = (number as u32).to_le_bytes();
                processor.execute(&[Request { key: &key, operation: Operation::Get }], &mut replies);
                assert!(matches!(replies.get(0), Reply::Value(_)), "pair {number}");
                gets += 1;
            }
            accesses += (processor.memory().counts() - before).accesses();
        }
        if is_full {
            break;
        }
    }
    let utilization = processor.statistics().pair_bytes as f64 / MEMORY as f64;
    Outcome { utilization, get_accesses: accesses as f64 / f64::from(gets) }
}

/// Beside sizes of which the whole range is inline or in slabs, the chosen layout is nearly the best. From 26 to 50 B equal
/// and different sizes want different ones: the chosen one keeps the room for both, where inline could be faster for one.
fn least_share(mean: usize) -> f64 {
    if (26..=50).contains(&mean) { 0.65 } else { 0.90 }
}

#[test]
fn the_default_layout_is_among_the_best() {
    println!(
        "size | chosen: inline threshold, ratio, full at, GET | best of the grid | worth of the chosen one over it"
    );
    for mean in [10, 16, 20, 25, 30, 40, 50, 64, 254] {
        for sizes in [Sizes::Equal, Sizes::Spread] {
            let chosen = Settings::for_kv_size(MEMORY, mean, 7);
            let ours = fill(&chosen, mean, sizes);
            let grid = (1..=9).flat_map(|step| [0, 50].map(|threshold| (0.1 * f64::from(step), threshold)));
            let (best, settings) = grid
                .map(|(hash_index_ratio, inline_threshold)| {
                    let settings = Settings { hash_index_ratio, inline_threshold, ..chosen.clone() };
                    (fill(&settings, mean, sizes), settings)
                })
                .max_by(|one, other| one.0.worth().total_cmp(&other.0.worth()))
                .unwrap();
            let share = ours.worth() / best.worth();
            let text = |outcome: &Outcome, settings: &Settings| {
                let (threshold, ratio) = (settings.inline_threshold, settings.hash_index_ratio);
                format!("{threshold} B, {ratio:.2}, {:.3}, {:.3}", outcome.utilization, outcome.get_accesses)
            };
            let (ours, best) = (text(&ours, &chosen), text(&best, &settings));
            println!("{mean} B {sizes:?} | {ours} | {best} | {share:.3}");
            assert!(share >= least_share(mean), "{mean} B {sizes:?}: {share}");
        }
    }
}
