//! Many operations in flight on one thread, so that their memory accesses overlap.
//!
//! ```text
//! wave 1   a₁ b₁ c₁ d₁ e₁      each future is polled until it has prefetched its next line
//! wave 2   a₂ b₂ ·  d₂ e₂      c has ended
//! wave 3   a₃ ·  ·  d₃ ·
//! ```
//!
//! All futures have one type and are in an array on the stack: no allocation, no dynamic call. They are polled in waves
//! until all have ended. A slot of the array is used again only if its future ended before the first wave. Operations
//! of a wave are at the same stage, so the processor predicts their branches.
#![expect(unsafe_code, reason = "futures in an array that starts uninitialised, pinned where they are")]

use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

/// Most operations in flight (KV-Direct, section 3.3.3).
pub(crate) const IN_FLIGHT_MAX: usize = 256;

/// Polls the futures that `start` makes for `0..count` to their ends, all at once. If one panics, the others are
/// dropped.
///
/// # Panics
/// If there are more than [`IN_FLIGHT_MAX`].
pub(crate) fn interleave<F: Future<Output = ()>>(count: usize, mut start: impl FnMut(usize) -> F) {
    assert!(count <= IN_FLIGHT_MAX);
    let mut context = Context::from_waker(Waker::noop());
    let mut flight = Flight::<F> {
        futures: [const { MaybeUninit::uninit() }; IN_FLIGHT_MAX],
        live: [0; IN_FLIGHT_MAX],
        kept: 0,
        next: 0,
        end: 0,
    };
    for number in 0..count {
        // A future that ends at once leaves its slot to the next one, so mostly the same few lines are used.
        let slot = flight.end;
        flight.futures[slot].write(start(number));
        flight.live[flight.end] = slot as u16;
        flight.end += 1;
        flight.poll_next(&mut context);
        flight.end_wave();
    }
    while flight.end > 0 {
        (flight.kept, flight.next) = (0, 0);
        while flight.next < flight.end {
            flight.poll_next(&mut context);
        }
        flight.end_wave();
    }
}

/// The futures in flight.
///
/// ```text
/// live   ├─ kept ─┤ ended ├─ next .. end ─┤      during a wave
/// ```
struct Flight<F> {
    futures: [MaybeUninit<F>; IN_FLIGHT_MAX],
    /// Slots of futures. Those in `..kept` and `next..end` hold one that was not dropped; no other slot does.
    live: [u16; IN_FLIGHT_MAX],
    kept: usize,
    next: usize,
    end: usize,
}

impl<F: Future<Output = ()>> Flight<F> {
    /// Polls the next future of the wave. One that has ended is dropped where it is, others are kept.
    #[inline]
    fn poll_next(&mut self, context: &mut Context<'_>) {
        let slot = self.live[self.next];
        let future = self.futures[usize::from(slot)].as_mut_ptr();
        // SAFETY: the slot is one of `next..end`, so it holds a future. That stays there until it is dropped: a flight
        // is a local variable of `interleave` and never moved, and its own drop drops what is left.
        let polled = unsafe { Pin::new_unchecked(&mut *future) }.poll(context);
        self.next += 1;
        if polled.is_ready() {
            // SAFETY: the future is initialised, and out of both ranges since the line above: it is not dropped again,
            // not even if it panics while it is dropped.
            unsafe { std::ptr::drop_in_place(future) };
        } else {
            self.live[self.kept] = slot;
            self.kept += 1;
        }
    }
}

impl<F> Flight<F> {
    /// Closes the gap that ended futures left in `live`.
    fn end_wave(&mut self) {
        (self.next, self.end) = (self.kept, self.kept);
    }
}

impl<F> Drop for Flight<F> {
    /// Drops all futures after a panic. Pinned futures must be dropped before their memory is used again, and this is
    /// the stack.
    fn drop(&mut self) {
        let left = self.live[..self.kept].iter().chain(&self.live[self.next..self.end]);
        for slot in left {
            // SAFETY: both ranges hold futures that were not dropped. Another panic here ends the process.
            unsafe { self.futures[usize::from(*slot)].assume_init_drop() };
        }
    }
}

/// Polls one future to its end, and returns its result. Unlike [`interleave`] it needs no room on the stack for 256
/// futures.
pub(crate) fn drive<T>(future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(result) = future.as_mut().poll(&mut context) {
            return result;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::future::poll_fn;

    /// Ends after `turns` pauses, noting each turn.
    async fn step(name: usize, turns: usize, log: &RefCell<Vec<usize>>) {
        for _ in 0..turns {
            log.borrow_mut().push(name);
            let mut paused = false;
            poll_fn(|_| if std::mem::replace(&mut paused, true) { Poll::Ready(()) } else { Poll::Pending }).await;
        }
    }

    #[test]
    fn futures_are_polled_in_waves_until_all_have_ended() {
        let log = RefCell::new(Vec::new());
        let turns = [1, 3, 2];
        interleave(turns.len(), |name| step(name, turns[name], &log));
        assert_eq!(log.into_inner(), [0, 1, 2, 1, 2, 1]);
    }

    #[test]
    fn every_future_is_dropped_once() {
        let witness = std::rc::Rc::new(());
        interleave(IN_FLIGHT_MAX, |name| {
            let witness = witness.clone();
            async move {
                step(name, name % 3, &RefCell::new(Vec::new())).await;
                drop(witness);
            }
        });
        assert_eq!(std::rc::Rc::strong_count(&witness), 1);
    }
    /// Pinned futures may be known to others by their address, so they must be dropped before the stack is used again.
    #[test]
    fn a_panic_drops_the_futures_in_flight() {
        for (panics_in_turn, panics_in_drop) in [(0, false), (1, false), (2, false), (1, true)] {
            struct Counted<'a>(&'a std::cell::Cell<i32>, bool);
            impl Drop for Counted<'_> {
                fn drop(&mut self) {
                    self.0.set(self.0.get() - 1);
                    assert!(!self.1, "a drop that panics");
                }
            }
            let alive = std::cell::Cell::new(0);
            let run = || {
                interleave(20, |name| {
                    alive.set(alive.get() + 1);
                    let counted = Counted(&alive, panics_in_drop && name == 7);
                    async move {
                        let _counted = counted;
                        let turns = if name == 7 { panics_in_turn } else { name % 5 };
                        step(name, turns, &RefCell::new(Vec::new())).await;
                        assert!(name != 7 || panics_in_drop, "a future that panics");
                    }
                });
            };
            assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).is_err());
            assert_eq!(alive.get(), 0, "turn {panics_in_turn}: each future is dropped once");
        }
    }

    #[test]
    fn a_start_that_panics_drops_the_futures_before_it() {
        let witness = std::rc::Rc::new(());
        let run = || {
            interleave(9, |name| {
                assert!(name < 8, "a start that panics");
                let witness = witness.clone();
                async move {
                    step(name, name % 3, &RefCell::new(Vec::new())).await;
                    drop(witness);
                }
            });
        };
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).is_err());
        assert_eq!(std::rc::Rc::strong_count(&witness), 1);
    }
}
