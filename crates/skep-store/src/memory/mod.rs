//! Memory in lines of 64 bytes, on which the hash store is built.
//!
//! The operations of the hash store are written once, over the trait [`Memory`]. On [`LocalMemory`] an await
//! prefetches, lets other operations run, then loads. A model of other hardware adds its own time. The stages of the
//! processor bypass awaits: they access prefetched lines through [`Memory::resident`]. The units:
//!
//! - An **access** is one read or write of a run of adjacent bytes: one DMA request in KV-Direct's terms. The papers
//!   count accesses.
//! - A **line** is 64 aligned bytes. An access touches one or more of them.
//! - A **pointer** names 32 bytes, the smallest slab, and has 31 bits, so a memory has at most 64 GiB
//!   (KV-Direct, section 3.3.1).
//!
//! ```text
//! pointer   0        1        2        3        4
//!           ├─ 32 B ─┼─ 32 B ─┼─ 32 B ─┼─ 32 B ─┤
//! line      0                 1                 2
//! ```
//!
//! Writes carry only the bytes of their span. So two small slabs of one line may belong to operations that are in
//! flight at the same time.

mod counting;
mod local;
mod mapping;
mod region_error;

pub use counting::{AccessCounts, CountingLines, CountingMemory};
pub use local::{LocalLines, LocalMemory};
pub(crate) use mapping::{Mapping, prefetch};
pub use region_error::RegionError;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Bytes of a line: a processor cache, a DRAM burst and KV-Direct's DMA engine move this number at once.
pub const LINE_SIZE: usize = 64;
/// Bytes of the unit of pointers.
pub const UNIT_SIZE: usize = 32;
/// Most bytes that 31-bit pointers reach: 64 GiB.
pub const MEMORY_SIZE_MAX: u64 = (1 << 31) * UNIT_SIZE as u64;

/// One line, by value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(64))]
pub struct Line(pub [u8; LINE_SIZE]);

const _: () = assert!(size_of::<Line>() == LINE_SIZE && align_of::<Line>() == LINE_SIZE);

/// An address in a memory, in units of 32 bytes from its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pointer(u32);

impl Pointer {
    /// Bits of a pointer.
    pub const BITS: u32 = 31;

    /// The pointer to this unit.
    ///
    /// # Panics
    /// If the number has more than 31 bits.
    pub fn new(unit: u32) -> Self {
        assert!(unit >> Self::BITS == 0, "a pointer has 31 bits");
        Pointer(unit)
    }

    /// The pointer to a line.
    pub fn to_line(line_index: u64) -> Self {
        let unit = line_index * (LINE_SIZE / UNIT_SIZE) as u64;
        Pointer::new(u32::try_from(unit).expect("the line lies within 64 GiB"))
    }

    /// The pointer to a line below 2³⁰, which is where a memory ends.
    ///
    /// The caller must ensure this. A larger number gives a pointer to another line or to none. It is not checked,
    /// because that would cost every operation a check.
    #[inline(always)]
    pub(crate) const fn to_line_below_end(line_index: u32) -> Self {
        Pointer(line_index << 1)
    }

    /// The pointer to a unit below the end of a memory.
    ///
    /// The caller must ensure this, as for [`Pointer::to_line_below_end`].
    #[inline(always)]
    pub(crate) fn below_end(unit: u32) -> Self {
        Pointer(unit)
    }

    /// Number of the unit.
    #[inline]
    pub fn unit(self) -> u32 {
        self.0
    }

    /// Returns the pointer to the unit this number of bytes later.
    ///
    /// # Panics
    /// If these are not whole units, or if there is no such pointer.
    pub(crate) fn plus(self, bytes: usize) -> Self {
        assert!(bytes.is_multiple_of(UNIT_SIZE), "a pointer names whole units");
        Pointer::new(self.0 + (bytes / UNIT_SIZE) as u32)
    }

    /// Bytes from the start of the memory.
    #[inline]
    pub fn byte_offset(self) -> usize {
        self.0 as usize * UNIT_SIZE
    }

    /// The `size` bytes from here on.
    #[inline]
    pub fn span(self, size: usize) -> Span {
        Span { pointer: self, size: u32::try_from(size).expect("a span is shorter than 4 GiB") }
    }
}

/// A run of bytes that begins at a pointer. One access reads or writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Span {
    pointer: Pointer,
    size: u32,
}

impl Span {
    /// Returns its first unit.
    #[inline]
    pub fn pointer(self) -> Pointer {
        self.pointer
    }

    /// Returns its size in bytes.
    #[inline]
    pub fn size(self) -> usize {
        self.size as usize
    }

    /// Returns the number of lines that it touches.
    pub fn line_count(self) -> usize {
        let start = self.pointer.byte_offset();
        let end = start + self.size();
        end.div_ceil(LINE_SIZE) - start / LINE_SIZE
    }
}

/// The effect of a read-modify-write on its span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Nothing: the span need not be written.
    Unchanged,
    /// The span is to be written.
    Changed,
}

/// Memory that a store's operations read and write, one await for an access.
///
/// A closure sees bytes only while it runs, so no reference outlives the access. The closure must not use the memory
/// itself.
#[expect(async_fn_in_trait, reason = "a shard's operations stay on its thread, so their futures need not be Send")]
pub trait Memory {
    /// The prefetched lines of [`Memory::resident`]; [`NoLines`] if this memory cannot show them.
    type Resident<'a>: ResidentLines
    where
        Self: 'a;

    /// Bytes of the memory.
    fn size(&self) -> u64;

    /// Prefetches a span.
    fn prefetch(&self, span: Span);

    /// Prefetches a span of many lines, into the cache that can wait for the most lines at a time.
    fn prefetch_bulk(&self, span: Span) {
        self.prefetch(span);
    }

    /// Prefetches a line.
    fn prefetch_line(&self, pointer: Pointer) {
        self.prefetch(pointer.span(LINE_SIZE));
    }

    /// Returns the prefetched lines, if this memory can show them at once and without an await. Nothing else of the
    /// memory is accessible until they are dropped.
    fn resident(&self) -> Option<Self::Resident<'_>> {
        None
    }

    /// Reads a line that was prefetched long enough ago to be resident, and writes it back if `f` changed it. Admission
    /// prefetches the first lines of a whole batch.
    async fn update_prefetched_line<R>(&self, pointer: Pointer, f: impl FnOnce(&mut Line) -> (Effect, R)) -> R;

    /// Reads a line.
    async fn read_line(&self, pointer: Pointer) -> Line;

    /// Writes a line.
    async fn write_line(&self, pointer: Pointer, line: &Line);

    /// Reads a span.
    async fn read<R>(&self, span: Span, f: impl FnOnce(&[u8]) -> R) -> R;

    /// Reads a span, and writes it back if `f` changed it.
    async fn update<R>(&self, span: Span, f: impl FnOnce(&mut [u8]) -> (Effect, R)) -> R;

    /// Writes a span whose content is undefined: the closure sets the bytes that matter.
    async fn write(&self, span: Span, fill: impl FnOnce(&mut [u8]));

    /// Lets other operations run.
    async fn pause(&self);
}

/// The prefetched lines of a memory that shows them at once and without an await.
pub trait ResidentLines {
    /// Returns a line, to be read and changed.
    fn line(&mut self, pointer: Pointer) -> &mut Line;

    /// Returns a span, to be read and changed.
    fn span(&mut self, span: Span) -> &mut [u8];

    /// Returns a span with undefined content, to be written.
    fn new_span(&mut self, span: Span) -> &mut [u8];

    /// Notes what was done to a span that was returned.
    fn note(&mut self, span: Span, effect: Effect);
}

/// The prefetched lines of a memory that cannot show them at once.
#[derive(Debug)]
pub enum NoLines {}

impl ResidentLines for NoLines {
    fn line(&mut self, _: Pointer) -> &mut Line {
        match *self {}
    }

    fn span(&mut self, _: Span) -> &mut [u8] {
        match *self {}
    }

    fn new_span(&mut self, _: Span) -> &mut [u8] {
        match *self {}
    }

    fn note(&mut self, _: Span, _: Effect) {}
}
