//! A memory that counts accesses, so that a test can compare an operation's accesses with the papers'.
//!
//! It has two forms. [`CountingMemory::new`] has no lines resident, so the futures run, as on a NIC: each access is counted.
//! [`CountingMemory::with_resident_lines`] has those of the memory below, so the stages run, as in the product. A stage may
//! return to a line, which is in the cache then. So each span that the stages use is counted once, until the counts are
//! taken; accesses of the futures after the stages are counted as in the first form.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::ops::Sub;

use super::{Effect, Line, Memory, Pointer, ResidentLines, Span};

/// Accesses and the lines they touched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AccessCounts {
    /// Runs of adjacent bytes read.
    pub read_accesses: u64,
    /// Lines touched by them.
    pub read_lines: u64,
    /// Runs of adjacent bytes written.
    pub write_accesses: u64,
    /// Lines touched by them.
    pub write_lines: u64,
}

impl AccessCounts {
    /// Reads and writes together: what the papers plot.
    pub fn accesses(&self) -> u64 {
        self.read_accesses + self.write_accesses
    }

    /// Lines read and written.
    pub fn lines(&self) -> u64 {
        self.read_lines + self.write_lines
    }
}

impl Sub for AccessCounts {
    type Output = AccessCounts;

    fn sub(self, earlier: AccessCounts) -> AccessCounts {
        AccessCounts {
            read_accesses: self.read_accesses - earlier.read_accesses,
            read_lines: self.read_lines - earlier.read_lines,
            write_accesses: self.write_accesses - earlier.write_accesses,
            write_lines: self.write_lines - earlier.write_lines,
        }
    }
}

/// A memory and the counts of its accesses.
#[derive(Debug)]
pub struct CountingMemory<M> {
    memory: M,
    counts: Cell<AccessCounts>,
    /// The spans that the stages used; `None` if no lines are resident.
    stages: Option<RefCell<StageSpans>>,
}

/// The spans that the stages used since this was last asked.
#[derive(Debug, Default)]
struct StageSpans {
    read: HashSet<Span>,
    changed: HashSet<Span>,
}

/// The resident lines of a memory, whose use is counted.
pub struct CountingLines<'a, L> {
    lines: L,
    spans: &'a RefCell<StageSpans>,
}

impl<L: ResidentLines> ResidentLines for CountingLines<'_, L> {
    fn line(&mut self, pointer: Pointer) -> &mut Line {
        self.spans.borrow_mut().read.insert(pointer.span(super::LINE_SIZE));
        self.lines.line(pointer)
    }

    fn span(&mut self, span: Span) -> &mut [u8] {
        self.spans.borrow_mut().read.insert(span);
        self.lines.span(span)
    }

    fn new_span(&mut self, span: Span) -> &mut [u8] {
        self.spans.borrow_mut().changed.insert(span);
        self.lines.new_span(span)
    }

    fn note(&mut self, span: Span, effect: Effect) {
        if effect == Effect::Changed {
            self.spans.borrow_mut().changed.insert(span);
        }
        self.lines.note(span, effect);
    }
}

impl<M: Memory> CountingMemory<M> {
    /// Counts the accesses to `memory`, from zero. Has no lines resident.
    pub fn new(memory: M) -> Self {
        CountingMemory { memory, counts: Cell::default(), stages: None }
    }

    /// Counts the accesses to `memory`, from zero. Has its lines resident.
    pub fn with_resident_lines(memory: M) -> Self {
        CountingMemory { memory, counts: Cell::default(), stages: Some(RefCell::default()) }
    }

    /// Returns the spans of resident lines that were used since the last call, each counted once.
    pub fn take_stage_counts(&self) -> AccessCounts {
        let StageSpans { read, changed } = self.stages.as_ref().map(RefCell::take).unwrap_or_default();
        let lines = |spans: &HashSet<Span>| spans.iter().map(|span| span.line_count() as u64).sum();
        AccessCounts {
            read_accesses: read.len() as u64,
            read_lines: lines(&read),
            write_accesses: changed.len() as u64,
            write_lines: lines(&changed),
        }
    }

    /// Returns the counts so far.
    pub fn counts(&self) -> AccessCounts {
        self.counts.get()
    }

    fn count_read(&self, span: Span) {
        let mut counts = self.counts.get();
        counts.read_accesses += 1;
        counts.read_lines += span.line_count() as u64;
        self.counts.set(counts);
    }

    fn count_change(&self, span: Span, effect: Effect) {
        if effect == Effect::Changed {
            self.count_write(span);
        }
    }

    fn count_write(&self, span: Span) {
        let mut counts = self.counts.get();
        counts.write_accesses += 1;
        counts.write_lines += span.line_count() as u64;
        self.counts.set(counts);
    }
}

impl<M: Memory> Memory for CountingMemory<M> {
    type Resident<'a>
        = CountingLines<'a, M::Resident<'a>>
    where
        M: 'a;

    fn resident(&self) -> Option<Self::Resident<'_>> {
        let spans = self.stages.as_ref()?;
        self.memory.resident().map(|lines| CountingLines { lines, spans })
    }

    fn size(&self) -> u64 {
        self.memory.size()
    }

    fn prefetch(&self, span: Span) {
        self.memory.prefetch(span);
    }

    fn prefetch_bulk(&self, span: Span) {
        self.memory.prefetch_bulk(span);
    }

    async fn update_prefetched_line<R>(&self, pointer: Pointer, f: impl FnOnce(&mut Line) -> (Effect, R)) -> R {
        let span = pointer.span(super::LINE_SIZE);
        self.count_read(span);
        let (effect, result) = self.memory.update_prefetched_line(pointer, keep_effect(f)).await;
        self.count_change(span, effect);
        result
    }

    async fn read_line(&self, pointer: Pointer) -> Line {
        self.count_read(pointer.span(super::LINE_SIZE));
        self.memory.read_line(pointer).await
    }

    async fn write_line(&self, pointer: Pointer, line: &Line) {
        self.count_write(pointer.span(super::LINE_SIZE));
        self.memory.write_line(pointer, line).await;
    }

    async fn read<R>(&self, span: Span, f: impl FnOnce(&[u8]) -> R) -> R {
        self.count_read(span);
        self.memory.read(span, f).await
    }

    async fn update<R>(&self, span: Span, f: impl FnOnce(&mut [u8]) -> (Effect, R)) -> R {
        self.count_read(span);
        let (effect, result) = self.memory.update(span, keep_effect(f)).await;
        self.count_change(span, effect);
        result
    }

    async fn write(&self, span: Span, fill: impl FnOnce(&mut [u8])) {
        self.count_write(span);
        self.memory.write(span, fill).await;
    }

    async fn pause(&self) {
        self.memory.pause().await;
    }
}

/// Returns the effect of a closure to the counting memory, besides its result.
fn keep_effect<B: ?Sized, R>(f: impl FnOnce(&mut B) -> (Effect, R)) -> impl FnOnce(&mut B) -> (Effect, (Effect, R)) {
    |bytes| {
        let (effect, result) = f(bytes);
        (effect, (effect, result))
    }
}

#[cfg(test)]
mod tests {
    use super::super::LocalMemory;
    use super::*;
    use crate::processor::drive;

    #[test]
    fn an_access_counts_once_and_each_of_its_lines() {
        let memory = CountingMemory::new(LocalMemory::new(1 << 16).unwrap());
        drive(memory.read_line(Pointer::to_line(1)));
        drive(memory.read(Pointer::new(1).span(256), |_| ()));
        drive(memory.update(Pointer::new(4).span(64), |_| (Effect::Unchanged, ())));
        drive(memory.update(Pointer::new(4).span(64), |_| (Effect::Changed, ())));
        drive(memory.write(Pointer::new(4).span(65), |_| ()));
        let expected = AccessCounts { read_accesses: 4, read_lines: 1 + 5 + 1 + 1, write_accesses: 2, write_lines: 3 };
        assert_eq!(memory.counts(), expected);
        assert_eq!(memory.counts() - memory.counts(), AccessCounts::default());
    }
}
