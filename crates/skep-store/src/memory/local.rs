//! The memory of a shard on a CPU: one region of anonymous pages, touched lazily, see [`super::mapping`].
//!
//! One thread uses a region at a time: its `Cell` prevents sharing, but it can be sent to another thread. While a
//! closure has access to bytes, every other access panics. So there are never two references to the same byte.
#![expect(unsafe_code, reason = "the region is raw memory from the kernel; this module makes it safe to use")]

use std::cell::Cell;
use std::future::poll_fn;
use std::task::Poll;

use super::mapping::{Mapping, prefetch, prefetch_outer};
use super::region_error::RegionError;
use super::{Effect, LINE_SIZE, Line, MEMORY_SIZE_MAX, Memory, Pointer, ResidentLines, Span};

/// A region of this machine's memory.
#[derive(Debug)]
pub struct LocalMemory {
    mapping: Mapping,
    /// Bytes of the memory. What the mapping has after them is spare: guarded until it is opened.
    size: usize,
    /// Bytes that are not guarded: those of the memory, and of the spare memory while it is open.
    open: Cell<usize>,
    /// The open bytes, or zero while a closure has access to bytes. So one comparison checks the bounds and the exclusive
    /// access.
    accessible: Cell<usize>,
}

impl LocalMemory {
    /// Reserves a region of `size` bytes, rounded up to whole lines. No page is touched.
    pub fn new(size: u64) -> Result<Self, RegionError> {
        Self::with_spare(size, 0)
    }

    /// Reserves a region of `size` bytes, and `spare` bytes of address space after it, if pointers reach as far.
    pub fn with_spare(size: u64, spare: u64) -> Result<Self, RegionError> {
        if size > MEMORY_SIZE_MAX {
            return Err(RegionError::TooLarge { size });
        }
        let size = size.next_multiple_of(LINE_SIZE as u64);
        let all = (size + spare).min(MEMORY_SIZE_MAX).next_multiple_of(LINE_SIZE as u64);
        let mapping = Mapping::with_guarded(all, size)?;
        let size = size as usize;
        Ok(LocalMemory { mapping, size, open: Cell::new(size), accessible: Cell::new(size) })
    }

    /// Opens the spare memory, or a sixteenth of it if the system does not grant all. Returns where it ends: at the end of
    /// the memory if the system grants none.
    ///
    /// # Panics
    /// If a closure with access to the memory calls it.
    pub(crate) fn open_spare(&mut self) -> u64 {
        let end = self.mapping.size();
        let granted = [end, self.size + (end - self.size) / 16 / LINE_SIZE * LINE_SIZE]
            .into_iter()
            .find(|end| self.mapping.open(self.size, *end).is_ok());
        self.set_open(granted.unwrap_or(self.size));
        self.open.get() as u64
    }

    /// Frees the spare memory and guards it.
    pub(crate) fn close_spare(&mut self) {
        if self.open.get() > self.size {
            self.set_open(self.size);
            self.mapping.guard(self.size);
        }
    }

    fn set_open(&self, open: usize) {
        assert!(self.accessible.get() == self.open.get(), "a closure with access to the memory used the memory");
        self.open.set(open);
        self.accessible.set(open);
    }

    /// Touches every page except spare ones, so that no operation waits for one later.
    ///
    /// # Panics
    /// If a closure with access to the memory calls it.
    pub fn prefault(&self) {
        assert!(self.accessible.get() == self.open.get(), "a closure with access to the memory used the memory");
        if !self.mapping.populate(self.size) {
            // Touch by hand.
            for offset in (0..self.size).step_by(4096) {
                // SAFETY: the offset is within the region, and nothing else uses the region now (it is not Sync and, as
                // was checked, no closure runs). Writing back the byte that was read changes nothing.
                unsafe {
                    let byte = self.mapping.base().as_ptr().add(offset);
                    byte.write_volatile(byte.read_volatile());
                }
            }
        }
    }

    /// Returns the address of the span's first byte, checked against the accessible size.
    #[inline]
    fn address(&self, pointer: Pointer, size: usize) -> *mut u8 {
        let offset = pointer.byte_offset();
        if offset + size > self.accessible.get() {
            self.refuse();
        }
        // SAFETY: the offset was checked against the region's size.
        unsafe { self.mapping.base().as_ptr().add(offset) }
    }

    /// Panics with the reason why an access is not allowed.
    #[cold]
    #[inline(never)]
    fn refuse(&self) -> ! {
        assert!(self.accessible.get() == self.open.get(), "a closure with access to the memory used the memory");
        panic!("an access ends beyond the memory");
    }

    /// Calls `f` with a line, which it may change.
    #[inline]
    pub fn with_line<R>(&self, pointer: Pointer, f: impl FnOnce(&mut Line) -> R) -> R {
        let address = self.line_address(pointer);
        let _exclusive = Exclusive::begin(self);
        // SAFETY: the line is within the region, aligned and initialised. As in `with_span`, nothing else refers to it
        // until `_exclusive` is dropped.
        f(unsafe { &mut *address })
    }

    /// Returns the address of a line, aligned.
    #[inline]
    fn line_address(&self, pointer: Pointer) -> *mut Line {
        assert!(pointer.byte_offset().is_multiple_of(LINE_SIZE), "a line begins at an even pointer");
        self.address(pointer, LINE_SIZE).cast()
    }

    /// Calls `f` with the address of each line of a span.
    #[inline(always)]
    fn for_each_line(&self, span: Span, f: impl Fn(*const u8)) {
        // Most spans are one line, so the first needs no comparison.
        let mut line = span.pointer().byte_offset() / LINE_SIZE * LINE_SIZE;
        let end = span.pointer().byte_offset() + span.size();
        loop {
            f(self.mapping.base().as_ptr().wrapping_add(line));
            line += LINE_SIZE;
            if line >= end {
                break;
            }
        }
    }

    #[inline]
    fn with_span<R>(&self, span: Span, f: impl FnOnce(&mut [u8]) -> R) -> R {
        let address = self.address(span.pointer(), span.size());
        let _exclusive = Exclusive::begin(self);
        // SAFETY: the bytes are within the region and are initialised (the kernel zeroes them). The region is reached
        // by this thread only, and through `address` only, which panics until `_exclusive` is dropped: the slice is the
        // only reference to them.
        f(unsafe { std::slice::from_raw_parts_mut(address, span.size()) })
    }
}

/// Makes the memory inaccessible until it is dropped, also if a closure panics.
struct Exclusive<'a> {
    accessible: &'a Cell<usize>,
    /// The accessible size before. It is zero if this access is nested in another one (possible for an empty span).
    /// Then dropping this one must not end the outer one.
    before: usize,
}

impl<'a> Exclusive<'a> {
    #[inline]
    fn begin(memory: &'a LocalMemory) -> Self {
        Exclusive { accessible: &memory.accessible, before: memory.accessible.replace(0) }
    }
}

impl Drop for Exclusive<'_> {
    #[inline]
    fn drop(&mut self) {
        self.accessible.set(self.before);
    }
}

/// The lines of a region. All are accessible without an await. The prefetched ones are also in the cache.
pub struct LocalLines<'a> {
    base: *mut u8,
    /// Bytes that are accessible.
    size: usize,
    /// The offsets below which a line may begin.
    line_end: usize,
    _exclusive: Exclusive<'a>,
}

impl ResidentLines for LocalLines<'_> {
    #[inline(always)]
    fn line(&mut self, pointer: Pointer) -> &mut Line {
        let offset = pointer.byte_offset();
        assert!(offset.is_multiple_of(LINE_SIZE), "a line begins at an even pointer");
        assert!(offset < self.line_end, "an access ends beyond the memory, or lies within another");
        // SAFETY: the line is within the region, aligned and initialised. `_exclusive` ensures that the region is
        // reached through `self` only, so this reference is the only one while it lives.
        unsafe { &mut *self.base.add(offset).cast() }
    }

    #[inline]
    fn span(&mut self, span: Span) -> &mut [u8] {
        let offset = span.pointer().byte_offset();
        assert!(offset + span.size() <= self.size, "an access ends beyond the memory, or lies within another");
        // SAFETY: as for a line.
        unsafe { std::slice::from_raw_parts_mut(self.base.add(offset), span.size()) }
    }

    #[inline]
    fn new_span(&mut self, span: Span) -> &mut [u8] {
        self.span(span)
    }

    #[inline(always)]
    fn note(&mut self, _: Span, _: Effect) {}
}

impl Memory for LocalMemory {
    type Resident<'a> = LocalLines<'a>;

    fn size(&self) -> u64 {
        self.size as u64
    }

    #[inline]
    fn prefetch(&self, span: Span) {
        self.for_each_line(span, prefetch);
    }

    #[inline]
    fn prefetch_bulk(&self, span: Span) {
        self.for_each_line(span, prefetch_outer);
    }

    #[inline]
    fn prefetch_line(&self, pointer: Pointer) {
        prefetch(self.mapping.base().as_ptr().wrapping_add(pointer.byte_offset()));
    }

    #[inline(always)]
    fn resident(&self) -> Option<LocalLines<'_>> {
        let size = self.accessible.get();
        let exclusive = Exclusive::begin(self);
        // A line may begin below `line_end`. If nothing is accessible, that is 0.
        let line_end = size.saturating_sub(LINE_SIZE - 1);
        Some(LocalLines { base: self.mapping.base().as_ptr(), size, line_end, _exclusive: exclusive })
    }

    #[inline]
    async fn update_prefetched_line<R>(&self, pointer: Pointer, f: impl FnOnce(&mut Line) -> (Effect, R)) -> R {
        self.with_line(pointer, f).1
    }

    #[inline]
    async fn read_line(&self, pointer: Pointer) -> Line {
        self.prefetch_line(pointer);
        self.pause().await;
        // SAFETY: the line is within the region, aligned and initialised, and no closure holds a reference to it.
        unsafe { self.line_address(pointer).read() }
    }

    #[inline]
    async fn write_line(&self, pointer: Pointer, line: &Line) {
        // SAFETY: as for reading; `line` is outside the region, or a closure would hold a reference into it.
        unsafe { self.line_address(pointer).write(*line) }
    }

    #[inline]
    async fn read<R>(&self, span: Span, f: impl FnOnce(&[u8]) -> R) -> R {
        self.prefetch(span);
        self.pause().await;
        self.with_span(span, |bytes| f(bytes))
    }

    #[inline]
    async fn update<R>(&self, span: Span, f: impl FnOnce(&mut [u8]) -> (Effect, R)) -> R {
        self.prefetch(span);
        self.pause().await;
        self.with_span(span, |bytes| f(bytes).1)
    }

    #[inline]
    async fn write(&self, span: Span, fill: impl FnOnce(&mut [u8])) {
        // The lines of a slab that was free are seldom in the cache, and a store to them is as slow as a load.
        self.prefetch(span);
        self.pause().await;
        self.with_span(span, fill);
    }

    #[inline]
    async fn pause(&self) {
        let mut paused = false;
        poll_fn(|_| if std::mem::replace(&mut paused, true) { Poll::Ready(()) } else { Poll::Pending }).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::processor::drive;

    #[test]
    fn a_region_starts_zeroed_and_keeps_what_is_written() {
        let memory = LocalMemory::new(1 << 20).unwrap();
        let pointer = Pointer::to_line(77);
        assert_eq!(drive(memory.read_line(pointer)), Line([0; LINE_SIZE]));
        drive(memory.write_line(pointer, &Line([9; LINE_SIZE])));
        drive(memory.update(Pointer::new(155).span(3), |bytes| {
            bytes.copy_from_slice(&[1, 2, 3]);
            (Effect::Changed, ())
        }));
        let line = drive(memory.read_line(pointer)).0;
        assert_eq!(&line[..32], &[9; 32]);
        assert_eq!(&line[32..36], &[1, 2, 3, 9]);
    }

    #[test]
    #[should_panic(expected = "beyond the memory")]
    fn an_access_beyond_the_end_is_refused() {
        let memory = LocalMemory::new(4096).unwrap();
        drive(memory.read(Pointer::new(127).span(33), |_| ()));
    }

    #[test]
    #[should_panic(expected = "used the memory")]
    fn a_closure_cannot_reach_the_memory_again() {
        let memory = LocalMemory::new(4096).unwrap();
        drive(memory.read(Pointer::new(0).span(8), |_| drive(memory.write(Pointer::new(0).span(8), |_| ()))));
    }

    #[test]
    #[should_panic(expected = "used the memory")]
    fn not_even_after_an_access_to_no_bytes() {
        let memory = LocalMemory::new(4096).unwrap();
        let nothing = Pointer::new(0).span(0);
        drive(memory.read(Pointer::new(0).span(8), |_| {
            drive(memory.read(nothing, |_| ()));
            drive(memory.read(Pointer::new(0).span(8), |_| ()));
        }));
    }

    /// If the kernel cannot populate, prefaulting writes: that is undefined while a closure has a slice.
    #[test]
    #[should_panic(expected = "used the memory")]
    fn a_closure_cannot_prefault_the_memory() {
        let memory = LocalMemory::new(4096).unwrap();
        drive(memory.read(Pointer::new(0).span(8), |_| memory.prefault()));
    }

    #[test]
    fn spare_memory_is_zeroed_each_time_it_is_opened_and_costs_no_page_before() {
        const SIZE: u64 = (1 << 20) + 64;
        let in_spare = Pointer::to_line(SIZE / 64 + 100);
        let mut memory = LocalMemory::with_spare(SIZE, 1 << 20).unwrap();
        for _ in 0..2 {
            assert_eq!(memory.open_spare(), SIZE + (1 << 20));
            assert_eq!(drive(memory.read_line(in_spare)), Line([0; LINE_SIZE]));
            for line in [in_spare, Pointer::to_line(SIZE / 64 - 1)] {
                drive(memory.write_line(line, &Line([7; LINE_SIZE])));
            }
            memory.close_spare();
            assert_eq!(drive(memory.read_line(Pointer::to_line(SIZE / 64 - 1))), Line([7; LINE_SIZE]));
        }
        let closed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drive(memory.read_line(in_spare))));
        assert!(closed.is_err(), "closed spare memory is out of reach");
    }

    #[test]
    fn a_region_beyond_the_pointers_is_refused() {
        assert!(matches!(LocalMemory::new(MEMORY_SIZE_MAX + 1), Err(RegionError::TooLarge { .. })));
    }

    #[test]
    fn prefaulting_changes_nothing() {
        let memory = LocalMemory::new(1 << 20).unwrap();
        drive(memory.write_line(Pointer::to_line(3), &Line([5; LINE_SIZE])));
        memory.prefault();
        assert_eq!(drive(memory.read_line(Pointer::to_line(3))), Line([5; LINE_SIZE]));
    }
}
