//! The allocator of the program: the C library's, which returns the memory of large freed buffers to the system, and a
//! bounded list of such buffers that are used again.
//!
//! 1. The C library's allocator maps each buffer above a threshold separately, and unmaps it when it is freed.
//! 2. By default, freeing such a buffer raises the threshold to its size, up to 32 MiB. Later buffers are then
//!    allocated from heaps. A heap shrinks only at its end, so one small buffer keeps all memory below it.
//! 3. A threshold set by the program is not raised. It is larger than the buffers of small requests, so that these cost
//!    no system call.
//! 4. Each page of a new mapping costs a page fault, and an unmapping interrupts all processors that run the program. So
//!    the last freed buffers, [`FREED_BUFFERS_KEPT`] together, are kept for the next ones of their size. When none of
//!    them was used for a second, they return to the system too.
//!
//! ```text
//!   free ─▶ │ newest … oldest │ ─▶ unmapped        (more buffers or bytes than may be kept)
//!             └▶ allocate: the newest of the size
//! ```
//!
//! C libraries other than GNU's map large buffers separately by default.
//!
//! **Bound.** A buffer takes no more pages than its owner asked for, although it may be larger: the pages that only an
//! earlier owner has used, or the same one before it shrank the buffer, return to the system.

#![expect(
    unsafe_code,
    reason = "the allocator of the program, and the C library's function that sets a parameter of its own"
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr::null_mut;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::{io, thread};

use rustix::mm::{Advice, madvise};
use rustix::param::page_size;
use skep_server::FREED_BUFFERS_KEPT;

/// Smallest size of a separately mapped buffer, in bytes.
const MAPPED_SIZE: usize = 32 << 10;

/// Size of the largest buffer that is kept, in bytes.
const KEPT_BUFFER_MAX: usize = 4 << 20;

/// Number of kept buffers, at most.
const KEPT_COUNT_MAX: usize = 128;

/// The time after which kept buffers return to the system, if none is used.
const UNUSED_TIME: Duration = Duration::from_secs(1);

/// Alignment of all mapped buffers, in bytes. What wants more is not kept.
const ALIGNMENT: usize = 16;

static KEPT: Mutex<Kept> = Mutex::new(Kept::NEW);

/// The allocator of the program.
pub(crate) struct Allocator;

/// The freed buffers that are kept, the oldest first.
struct Kept {
    buffers: [Buffer; KEPT_COUNT_MAX],
    count: usize,
    /// Bytes of all buffers.
    size: usize,
    /// Buffers that were taken since the start.
    taken: u64,
}

/// A buffer that is not in use.
#[derive(Clone, Copy)]
struct Buffer {
    address: *mut u8,
    size: usize,
    /// Bytes at its beginning that its last owner may have used. The pages behind them take no memory.
    used: usize,
}

// SAFETY: a free buffer has no owner in any thread.
unsafe impl Send for Buffer {}

impl Buffer {
    const NONE: Buffer = Buffer { address: null_mut(), size: 0, used: 0 };

    /// Returns its memory to the system.
    ///
    /// # Safety
    ///
    /// It was kept, and is no longer.
    unsafe fn free(self) {
        // SAFETY: a kept buffer was allocated with its size and this alignment.
        unsafe { System.dealloc(self.address, Layout::from_size_align_unchecked(self.size, ALIGNMENT)) };
    }
}

impl Kept {
    const NEW: Kept = Kept { buffers: [Buffer::NONE; KEPT_COUNT_MAX], count: 0, size: 0, taken: 0 };

    /// Takes the newest buffer of this size.
    fn take(&mut self, size: usize) -> Option<Buffer> {
        let place = self.buffers[..self.count].iter().rposition(|buffer| buffer.size == size)?;
        self.taken += 1;
        Some(self.remove(place))
    }

    /// Takes the oldest buffer, if one of this size is too much beside those that are kept.
    fn make_room(&mut self, size: usize) -> Option<Buffer> {
        let is_full = self.count == KEPT_COUNT_MAX || self.size + size > FREED_BUFFERS_KEPT;
        is_full.then(|| self.remove(0))
    }

    /// Takes the oldest buffer, unless another one was taken since `taken` of them were.
    fn unused(&mut self, taken: u64) -> Option<Buffer> {
        (self.count > 0 && self.taken == taken).then(|| self.remove(0))
    }

    /// Keeps a buffer, for which there is room.
    fn keep(&mut self, buffer: Buffer) {
        self.buffers[self.count] = buffer;
        self.count += 1;
        self.size += buffer.size;
    }

    fn remove(&mut self, place: usize) -> Buffer {
        let buffer = self.buffers[place];
        self.buffers.copy_within(place + 1..self.count, place);
        self.count -= 1;
        self.size -= buffer.size;
        buffer
    }
}

/// Returns what is allocated for a layout. Mapped buffers have one alignment. Those that can be kept have one of four
/// sizes for each power of two, so that one fits the next owner.
fn allocated(layout: Layout) -> Layout {
    if layout.size() < MAPPED_SIZE || layout.align() > ALIGNMENT {
        return layout;
    }
    let step = if layout.size() <= KEPT_BUFFER_MAX { layout.size().next_power_of_two() / 8 } else { 1 };
    Layout::from_size_align(layout.size().next_multiple_of(step), ALIGNMENT).unwrap_or(layout)
}

fn is_kept(allocated: Layout) -> bool {
    (MAPPED_SIZE..=KEPT_BUFFER_MAX).contains(&allocated.size()) && allocated.align() == ALIGNMENT
}

/// Takes a kept buffer for what is allocated, of which its owner uses `used` bytes. `None` too if another thread uses
/// the list: no thread waits for it.
fn take(allocated: Layout, used: usize) -> Option<*mut u8> {
    let buffer = if is_kept(allocated) { KEPT.try_lock().ok()?.take(allocated.size())? } else { return None };
    if used < buffer.used {
        // SAFETY: the buffer has no owner.
        unsafe { return_pages(buffer.address, used, buffer.size) };
    }
    Some(buffer.address)
}

/// Returns the whole pages from byte `start` of a buffer to byte `end` to the system. They are 0 when they are used again.
///
/// # Safety
///
/// The buffer has these bytes, and their values are not needed.
unsafe fn return_pages(address: *mut u8, start: usize, end: usize) {
    let page = page_size();
    let first = start + (address.addr() + start).wrapping_neg() % page;
    let last = end - (address.addr() + end) % page;
    if first < last {
        // The system may refuse, for instance if the memory is locked.
        // SAFETY: the pages are in the buffer, and it is memory of the process without a file.
        let _ = unsafe { madvise(address.add(first).cast(), last - first, Advice::LinuxDontNeed) };
    }
}

// SAFETY: each buffer is of the system's allocator, which got `allocated(layout)` for it. That is at least as large and
// as aligned as `layout`, and the same for the same layout. A buffer is in the list only while it is free.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let allocated = allocated(layout);
        // SAFETY: the size is at least that of `layout`, which is not 0.
        take(allocated, layout.size()).unwrap_or_else(|| unsafe { System.alloc(allocated) })
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        let allocated = allocated(layout);
        let Some(address) = take(allocated, layout.size()) else {
            // SAFETY: the size is at least that of `layout`, which is not 0.
            return unsafe { System.alloc_zeroed(allocated) };
        };
        // SAFETY: the buffer has at least the size of `layout`, and the caller alone has it.
        unsafe { address.write_bytes(0, layout.size()) };
        address
    }

    unsafe fn dealloc(&self, address: *mut u8, layout: Layout) {
        let allocated = allocated(layout);
        if is_kept(allocated) {
            while let Ok(mut kept) = KEPT.try_lock() {
                let Some(oldest) = kept.make_room(allocated.size()) else {
                    return kept.keep(Buffer { address, size: allocated.size(), used: layout.size() });
                };
                drop(kept);
                // SAFETY: the buffer is not in the list any more.
                unsafe { oldest.free() };
            }
        }
        // SAFETY: the buffer was allocated with `allocated(layout)`.
        unsafe { System.dealloc(address, allocated) };
    }

    unsafe fn realloc(&self, address: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller promises that the size, rounded up to the alignment, is not above `isize::MAX`.
        let new_layout = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        let (old, new) = (allocated(layout), allocated(new_layout));
        // What shrinks by more than half moves: the large buffer is kept whole.
        let is_moved = old.align() != new.align() || is_kept(old) && new.size() < old.size() / 2;
        let taken = if is_moved || new.size() > old.size() { take(new, size) } else { None };
        if taken.is_none() && !is_moved {
            // SAFETY: the buffer was allocated with `old`; the size of `new` is not 0 and fits the alignment.
            let same = if old == new { address } else { unsafe { System.realloc(address, old, new.size()) } };
            if size < layout.size() && is_kept(new) && !same.is_null() {
                // SAFETY: the buffer has the size of `new`, and its owner gives up what is behind `size`.
                unsafe { return_pages(same, size, new.size()) };
            }
            return same;
        }
        // SAFETY: the size of `new` is not 0.
        let moved = taken.unwrap_or_else(|| unsafe { System.alloc(new) });
        if !moved.is_null() {
            // SAFETY: both buffers have at least the smaller size, and are different.
            unsafe { moved.copy_from_nonoverlapping(address, layout.size().min(size)) };
            // SAFETY: the caller gives the old buffer up.
            unsafe { self.dealloc(address, layout) };
        }
        moved
    }
}

/// Starts a thread that returns the kept buffers to the system when none of them was used for [`UNUSED_TIME`].
pub(super) fn return_unused_buffers() -> io::Result<()> {
    let watch = || {
        let mut taken = 0;
        loop {
            thread::sleep(UNUSED_TIME);
            while let Some(buffer) = take_unused(taken) {
                // SAFETY: the buffer is not in the list any more.
                unsafe { buffer.free() };
            }
            taken = lock().taken;
        }
    };
    thread::Builder::new().name("skep-allocator".to_owned()).spawn(watch).map(|_| ())
}

fn take_unused(taken: u64) -> Option<Buffer> {
    lock().unused(taken)
}

fn lock() -> MutexGuard<'static, Kept> {
    KEPT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sets the threshold for the whole process. Must be called before it allocates buffers.
#[cfg(target_env = "gnu")]
pub(super) fn return_freed_buffers() {
    unsafe extern "C" {
        fn mallopt(parameter: i32, value: i32) -> i32;
    }
    /// `M_MMAP_THRESHOLD` of `malloc.h`.
    const MMAP_THRESHOLD: i32 = -3;
    // SAFETY: mallopt(3) accepts any two numbers and takes the allocator's own lock.
    let is_set = unsafe { mallopt(MMAP_THRESHOLD, MAPPED_SIZE as i32) };
    debug_assert_eq!(is_set, 1, "the allocator knows the parameter");
}

/// Does nothing: this C library needs no setting.
#[cfg(not(target_env = "gnu"))]
pub(super) fn return_freed_buffers() {}

#[cfg(test)]
mod tests {
    use std::alloc::{GlobalAlloc, Layout};
    use std::fs::File;
    use std::os::unix::fs::FileExt;

    use rand::{RngExt, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::{
        ALIGNMENT, Allocator, Buffer, FREED_BUFFERS_KEPT, KEPT_BUFFER_MAX, KEPT_COUNT_MAX, Kept, MAPPED_SIZE,
        allocated, page_size,
    };

    #[test]
    fn the_newest_buffers_are_kept_within_the_bounds() {
        let (mut kept, mut dropped) = (Box::new(Kept::NEW), 0);
        let buffer =
            |number: usize, size| Buffer { address: std::ptr::without_provenance_mut(number), size, used: size };
        let mut keep = |kept: &mut Kept, number, size| {
            while let Some(oldest) = kept.make_room(size) {
                dropped += 1;
                assert_eq!(oldest.address.addr(), dropped, "the oldest is dropped first");
            }
            kept.keep(buffer(number, size));
            assert!(kept.size <= FREED_BUFFERS_KEPT && kept.count <= KEPT_COUNT_MAX);
        };
        for number in 1..=2 * KEPT_COUNT_MAX {
            keep(&mut kept, number, MAPPED_SIZE);
        }
        let large = FREED_BUFFERS_KEPT / KEPT_BUFFER_MAX;
        for number in 0..large {
            keep(&mut kept, 2 * KEPT_COUNT_MAX + 1 + number, KEPT_BUFFER_MAX);
        }
        assert_eq!((kept.count, kept.size, dropped), (large, FREED_BUFFERS_KEPT, 2 * KEPT_COUNT_MAX));
        assert!(kept.take(MAPPED_SIZE).is_none() && kept.taken == 0);
        assert_eq!(kept.take(KEPT_BUFFER_MAX).unwrap().address.addr(), 2 * KEPT_COUNT_MAX + large);
        assert!(kept.unused(0).is_none(), "one was used");
        let unused = std::iter::from_fn(|| kept.unused(1)).count();
        assert_eq!((unused, kept.size), (large - 1, 0));
    }

    #[test]
    fn a_layout_gets_at_least_its_size_and_a_quarter_more_at_most() {
        for size in (1..8 << 20).step_by(997) {
            let layout = Layout::from_size_align(size, 8).unwrap();
            let got = allocated(layout);
            assert!(got.size() >= size && got.size() <= size + size / 4 && got.align() >= 8, "{size}: {got:?}");
            assert_eq!(allocated(got), got);
        }
    }

    /// A buffer of 640 KiB that is used for 520 KiB takes no memory for the rest, whether it changes its owner or shrinks.
    #[test]
    fn a_buffer_takes_no_memory_that_its_owner_has_not_asked_for() {
        let layout = |size| Layout::from_size_align(size, 1).unwrap();
        let (large, small) = (layout(640 << 10), layout(520 << 10));
        assert_eq!(allocated(large), allocated(small));
        // SAFETY: each layout is the one with which the buffer was allocated last, and none is of size 0.
        unsafe {
            let address = Allocator.alloc(large);
            fill(address, large.size(), 1);
            assert!(pages_present(address, large.size()) >= large.size() / page_size() - 1);
            Allocator.dealloc(address, large);
            let address = Allocator.alloc(small);
            fill(address, small.size(), 2);
            assert!(pages_present(address, large.size()) <= small.size() / page_size() + 2);
            let address = Allocator.realloc(address, small, large.size());
            fill(address, large.size(), 3);
            let address = Allocator.realloc(address, large, small.size());
            check(address, small.size(), 3);
            assert!(pages_present(address, large.size()) <= small.size() / page_size() + 2);
            Allocator.dealloc(address, small);
        }
    }

    /// Returns the number of pages in memory among those that hold these bytes.
    fn pages_present(address: *mut u8, size: usize) -> usize {
        /// Bytes of an entry of the map, whose highest bit tells that the page is in memory.
        const ENTRY_SIZE: usize = 8;
        let map = File::open("/proc/self/pagemap").unwrap();
        let (first, last) = (address.addr() / page_size(), (address.addr() + size - 1) / page_size());
        let mut entries = vec![0; (last - first + 1) * ENTRY_SIZE];
        map.read_exact_at(&mut entries, (first * ENTRY_SIZE) as u64).unwrap();
        entries.iter().skip(ENTRY_SIZE - 1).step_by(ENTRY_SIZE).filter(|&&byte| byte & 0x80 != 0).count()
    }

    /// Random buffers, each filled with its own byte, are never given to two owners, and keep their bytes when they move.
    #[test]
    fn buffers_belong_to_one_owner_and_keep_their_bytes() {
        std::thread::scope(|scope| {
            for thread in 0..4_u64 {
                scope.spawn(move || allocate_at_random(thread));
            }
        });
    }

    fn allocate_at_random(seed: u64) {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut owned: Vec<(*mut u8, Layout, u8)> = Vec::new();
        for round in 0..4000 {
            let size = 1 << random.random_range(10..23);
            let size = random.random_range(size / 2..=size);
            let align = 1 << random.random_range(0..=ALIGNMENT.ilog2() + 1);
            let layout = Layout::from_size_align(size, align).unwrap();
            let byte = (seed * 61 + round) as u8;
            match random.random_range(0..3) {
                0 if owned.len() < 16 => {
                    // SAFETY: the size is not 0.
                    let address = unsafe { Allocator.alloc(layout) };
                    fill(address, size, byte);
                    owned.push((address, layout, byte));
                }
                1 if owned.len() < 16 => {
                    // SAFETY: the size is not 0.
                    let address = unsafe { Allocator.alloc_zeroed(layout) };
                    check(address, size, 0);
                    fill(address, size, byte);
                    owned.push((address, layout, byte));
                }
                2 if !owned.is_empty() => {
                    let (address, layout, byte) = owned.swap_remove(random.random_range(0..owned.len()));
                    // SAFETY: the allocator gave the buffer for this layout; the new size is not 0.
                    let moved = unsafe { Allocator.realloc(address, layout, size) };
                    check(moved, size.min(layout.size()), byte);
                    fill(moved, size, byte);
                    owned.push((moved, Layout::from_size_align(size, layout.align()).unwrap(), byte));
                }
                _ if !owned.is_empty() => {
                    let (address, layout, byte) = owned.swap_remove(0);
                    check(address, layout.size(), byte);
                    // SAFETY: the allocator gave the buffer for this layout.
                    unsafe { Allocator.dealloc(address, layout) };
                }
                _ => {}
            }
        }
        for (address, layout, byte) in owned {
            check(address, layout.size(), byte);
            // SAFETY: the allocator gave the buffer for this layout.
            unsafe { Allocator.dealloc(address, layout) };
        }
    }

    fn fill(address: *mut u8, size: usize, byte: u8) {
        assert!(!address.is_null());
        // SAFETY: the caller owns a buffer of this size.
        unsafe { address.write_bytes(byte, size) };
    }

    fn check(address: *mut u8, size: usize, byte: u8) {
        // SAFETY: the caller owns a buffer of this size, which it has filled.
        let bytes = unsafe { std::slice::from_raw_parts(address, size) };
        assert!(bytes.iter().all(|&found| found == byte), "another owner has written to {size} bytes at {address:?}");
    }
}
