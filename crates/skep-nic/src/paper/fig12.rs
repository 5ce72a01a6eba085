//! Figure 12: time to merge free slab slots on 1, 2, … cores, with an allocation bitmap or with radix sort.
//!
//! Run, on the cores of this machine: a vector of free slots in random order, and two methods that find
//! neighbours in it. Time is measured, so this item differs from run to run.
//!
//! ```text
//! bitmap   1. all threads set the bits of their entries at random offsets of one bitmap
//!          2. all threads search it for pairs of bits
//! radix    1. all threads distribute their entries to 256 parts by the top byte
//!          2. one thread sorts each part, byte by byte, and searches it for neighbours
//! ```

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::counted_store::add;
use super::{Axis, Context, Figures, Findings, Item, NoEvidence, Point, Sentence, Tolerance};

pub(super) const ITEM: Item = Item {
    name: "fig12",
    title: "Time to merge 4 billion free slab slots",
    paper: include_str!("../../papers/fig12-slab-merge.csv"),
    x: Axis::logarithmic("cores"),
    y: Axis::logarithmic("time (s)"),
    tolerance: Tolerance::Relative(0.5),
    no_evidence: &[NoEvidence::calculation("The time of fewer slots on this machine's cores, multiplied.", |_, _| {
        true
    })],
    open: &[],
    run: measure,
};

/// Number of free slots that are merged here. All of them are pairs of neighbours.
const SLOTS: u32 = 1 << 24;
/// Slots of the area. In the figure all of them are free.
const AREA: u64 = 1 << 32;
/// The figure's number of entries over the number here.
const SCALE: f64 = AREA as f64 / SLOTS as f64;
/// Number of runs. The fastest counts, because other programs may disturb a run.
const RUNS: u32 = 3;
/// Number of parts of the first step of the sort.
const PARTS: usize = 256;

fn measure(context: &mut Context<'_>) -> Findings {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let references = ITEM.references();
    let (measured, beyond): (Vec<_>, Vec<_>) = references.iter().partition(|reference| reference.x() as usize <= cores);
    let slots = free_slots(context.seed);
    let mut points = Vec::new();
    for (done, reference) in measured.iter().enumerate() {
        context.progress(done + 1, measured.len() + 1);
        let threads = reference.x() as usize;
        let seconds = (0..RUNS).map(|_| seconds(&reference.series, &slots, threads)).fold(f64::INFINITY, f64::min);
        points.push(Point::new(reference, seconds));
    }
    let mut curves = Vec::new();
    for reference in beyond {
        add(&mut curves, &reference.series, "published, on more cores than here", reference.x(), reference.y);
    }
    let speedup = |series: &str, of: fn(&Point) -> f64| {
        let times: Vec<f64> = points.iter().filter(|point| point.series == series).map(of).collect();
        times[0] / times[times.len() - 1]
    };
    let most = points.iter().map(|point| point.x).fold(0.0, f64::max);
    let gain = |series: &'static str, figures: Figures| {
        let ours = speedup(series, |point| point.ours);
        figures.beside(series, ours, speedup(series, |point| point.paper))
    };
    let gains = Figures::new(format!("Time on one core over that on {most}"));
    let sentences = vec![
        gain("radix sort", gain("bitmap", gains)).sentence(),
        Sentence::fact(
            "These processors differ from the paper's, and other programs run on them. So only the scaling of each \
             method can be compared. The bitmap's threads set random bits of the same 512 MiB, and each is a cache \
             miss and an atomic operation. Each thread of the sort writes to its own memory.",
        ),
    ];
    Findings {
        points,
        curves,
        setting: format!(
            "{} million free slots in random order, in an area of 4294 million slots. The time per entry is \
             multiplied by {SCALE:.0}. The bitmap is as large as the figure's, so that its lines are as rarely in a \
             cache. Real time on {cores} cores, the fastest of {RUNS} runs, with other results in each run. The run \
             uses 0.7 GiB. Larger numbers of cores are not measured, and their published times are shown as a further \
             curve.",
            SLOTS / 1_000_000,
        ),
        sentences,
    }
}

/// Merges once. Returns the seconds for the number of entries in the figure.
fn seconds(series: &str, slots: &[u32], threads: usize) -> f64 {
    let (seconds, buddies) = if series == "bitmap" {
        let bitmap = empty_bitmap();
        let start = Instant::now();
        set_bits(slots, &bitmap, threads);
        let set = start.elapsed().as_secs_f64();
        let buddies = count_buddies(&bitmap, threads);
        // The bitmap is as large as the figure's, but has fewer entries.
        (set * SCALE + start.elapsed().as_secs_f64() - set, buddies)
    } else {
        let (mut slots, mut other) = (slots.to_vec(), slots.to_vec());
        let start = Instant::now();
        let buddies = merge_by_radix_sort(&mut slots, &mut other, AREA, threads);
        (start.elapsed().as_secs_f64() * SCALE, buddies)
    };
    assert_eq!(buddies, u64::from(SLOTS / 2), "every slot has its neighbour");
    seconds
}

/// Returns slots of an area in random order. Each has its neighbour.
fn free_slots(seed: u64) -> Vec<u32> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    // One pair of neighbours from each stretch.
    let stretch = 2 * SCALE as u32;
    let pair = |number: u32, within: u32| number * stretch + 2 * within;
    let pairs = (0..SLOTS / 2).map(|number| pair(number, random.random_range(0..stretch / 2)));
    let mut slots: Vec<u32> = pairs.flat_map(|even| [even, even + 1]).collect();
    slots.shuffle(&mut random);
    slots
}

/// Returns a bit for each slot of the area. Its pages are mapped before the measurement begins.
fn empty_bitmap() -> Vec<AtomicU64> {
    let bitmap: Vec<_> = (0..AREA / u64::from(u64::BITS)).map(|_| AtomicU64::new(1)).collect();
    bitmap.iter().for_each(|word| word.store(0, Ordering::Relaxed));
    bitmap
}

/// Sets the bits of free slots.
fn set_bits(slots: &[u32], bitmap: &[AtomicU64], threads: usize) {
    thread::scope(|scope| {
        for slots in slots.chunks(slots.len().div_ceil(threads)) {
            scope.spawn(move || {
                for slot in slots {
                    let bit = 1 << (slot % u64::BITS);
                    bitmap[(slot / u64::BITS) as usize].fetch_or(bit, Ordering::Relaxed);
                }
            });
        }
    });
}

/// Counts the pairs of neighbours whose bits are set. A pair is an even slot and the next slot.
fn count_buddies(bitmap: &[AtomicU64], threads: usize) -> u64 {
    thread::scope(|scope| {
        let sweeps: Vec<_> = bitmap
            .chunks(bitmap.len().div_ceil(threads))
            .map(|words| {
                scope.spawn(move || {
                    let evens = u64::MAX / 3;
                    let pairs = |word: u64| u64::from((word & word >> 1 & evens).count_ones());
                    words.iter().map(|word| pairs(word.load(Ordering::Relaxed))).sum::<u64>()
                })
            })
            .collect();
        sweeps.into_iter().map(|sweep| sweep.join().expect("a sweep does not panic")).sum()
    })
}

/// Finds pairs of neighbours by sorting, and returns their number. All slots are below `limit`. `other` is as long as
/// `slots`. The order of both is undefined after the call.
fn merge_by_radix_sort(slots: &mut [u32], other: &mut [u32], limit: u64, threads: usize) -> u64 {
    // At least one bit remains, so that neighbours are in one part.
    let shift = (u64::BITS - (limit - 1).leading_zeros()).saturating_sub(PARTS.ilog2()).max(1);
    let part_of = |slot: u32| (slot >> shift) as usize;
    let chunk_size = slots.len().div_ceil(threads).max(1);
    // The number of entries of each chunk for each part.
    let counts: Vec<[usize; PARTS]> = thread::scope(|scope| {
        let counts: Vec<_> = slots
            .chunks(chunk_size)
            .map(|chunk| {
                scope.spawn(move || {
                    let mut counts = [0; PARTS];
                    chunk.iter().for_each(|slot| counts[part_of(*slot)] += 1);
                    counts
                })
            })
            .collect();
        counts.into_iter().map(|counts| counts.join().expect("counting does not panic")).collect()
    });
    // Each chunk has its own stretch of every part, so the threads write in parallel.
    let mut stretches: Vec<Vec<&mut [u32]>> = counts.iter().map(|_| Vec::with_capacity(PARTS)).collect();
    let mut rest = &mut *other;
    for part in 0..PARTS {
        for (chunk, counts) in counts.iter().enumerate() {
            let (stretch, behind) = rest.split_at_mut(counts[part]);
            stretches[chunk].push(stretch);
            rest = behind;
        }
    }
    thread::scope(|scope| {
        for (chunk, mut stretches) in slots.chunks(chunk_size).zip(stretches) {
            scope.spawn(move || {
                let mut written = [0; PARTS];
                for slot in chunk {
                    let part = part_of(*slot);
                    stretches[part][written[part]] = *slot;
                    written[part] += 1;
                }
            });
        }
    });
    // The parts, each with memory to sort it in.
    let mut parts = Vec::with_capacity(PARTS);
    let (mut dealt, mut room) = (other, slots);
    for part in 0..PARTS {
        let size = counts.iter().map(|counts| counts[part]).sum();
        let (entries, dealt_behind) = dealt.split_at_mut(size);
        let (part_room, room_behind) = room.split_at_mut(size);
        parts.push((entries, part_room));
        (dealt, room) = (dealt_behind, room_behind);
    }
    let parts = Mutex::new(parts);
    let next = || parts.lock().expect("taking a part does not panic").pop();
    thread::scope(|scope| {
        let sweeps: Vec<_> = (0..threads)
            .map(|_| {
                scope.spawn(|| {
                    std::iter::from_fn(next).map(|(part, room)| sort_and_sweep(part, room, shift)).sum::<u64>()
                })
            })
            .collect();
        sweeps.into_iter().map(|sweep| sweep.join().expect("a sweep does not panic")).sum()
    })
}

/// Sorts entries by their low bits, one byte after the other, and counts the buddies among them.
fn sort_and_sweep(entries: &mut [u32], room: &mut [u32], bits: u32) -> u64 {
    let (mut from, mut to) = (entries, room);
    for shift in (0..bits).step_by(8) {
        let byte_of = |slot: u32| (slot >> shift) as usize & 0xff;
        let mut offsets = [0; 256];
        from.iter().for_each(|slot| offsets[byte_of(*slot)] += 1);
        let mut offset = 0;
        for count in &mut offsets {
            offset += std::mem::replace(count, offset);
        }
        for slot in &*from {
            let offset = &mut offsets[byte_of(*slot)];
            to[*offset] = *slot;
            *offset += 1;
        }
        (from, to) = (to, from);
    }
    from.windows(2).filter(|pair| pair[0] % 2 == 0 && pair[1] == pair[0] + 1).count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_methods_find_the_same_buddies() {
        for (seed, limit) in [(1, 64), (2, 1 << 10), (3, 1 << 16), (4, 100_032)] {
            let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
            let mut slots: Vec<u32> = (0..limit).filter(|_| random.random_bool(0.7)).collect();
            let expected = slots.windows(2).filter(|pair| pair[0] % 2 == 0 && pair[1] == pair[0] + 1).count() as u64;
            slots.shuffle(&mut random);
            for threads in [1, 2, 3] {
                let bitmap: Vec<_> = (0..limit / u64::BITS).map(|_| AtomicU64::new(0)).collect();
                set_bits(&slots, &bitmap, threads);
                assert_eq!(count_buddies(&bitmap, threads), expected, "seed {seed}, {threads} threads");
                let (mut slots, mut other) = (slots.clone(), slots.clone());
                let found = merge_by_radix_sort(&mut slots, &mut other, u64::from(limit), threads);
                assert_eq!(found, expected, "seed {seed}, {threads} threads");
            }
        }
    }
}
