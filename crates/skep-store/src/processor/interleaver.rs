//! Many operations under way at once on one thread, so that their memory accesses overlap.
//!
//! ```text
//! wave 1   a₁ b₁ c₁ d₁ e₁      each future is polled until its next line is on the way
//! wave 2   a₂ b₂ ·  d₂ e₂      c has ended
//! wave 3   a₃ ·  ·  d₃ ·
//! ```
//!
//! All futures are of one type and lie in an array on the stack: no allocation, no dynamic call. They are polled in
//! waves until all have ended; a place is not filled again before. Operations of a wave are at the same stage, so the
//! processor predicts their branches.
#![expect(unsafe_code, reason = "futures in an array that starts uninitialised, pinned where they are")]

use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

/// Most operations under way at once (KV-Direct, section 3.3.3).
pub(crate) const IN_FLIGHT_MAX: usize = 256;

/// Runs the futures that `start` makes for `0..count`, all at once.
///
/// # Panics
/// If there are more than [`IN_FLIGHT_MAX`].
pub(crate) fn interleave<F: Future<Output = ()>>(count: usize, mut start: impl FnMut(usize) -> F) {
    assert!(count <= IN_FLIGHT_MAX);
    let mut context = Context::from_waker(Waker::noop());
    let mut futures: [MaybeUninit<F>; IN_FLIGHT_MAX] = [const { MaybeUninit::uninit() }; IN_FLIGHT_MAX];
    let mut live = [0u16; IN_FLIGHT_MAX];
    let mut live_count = 0;
    for number in 0..count {
        // A future that ends at once leaves its place to the next one: as a rule all use the same few lines.
        let future = futures[live_count].write(start(number));
        // SAFETY: the future was just written to its place and stays there until it is dropped in it: the array is
        // neither moved nor borrowed otherwise. After a panic it is leaked with the array, which pinning allows.
        if unsafe { poll_in_place(future, &mut context) }.is_pending() {
            live[live_count] = live_count as u16;
            live_count += 1;
        }
    }
    while live_count > 0 {
        let mut kept = 0;
        for i in 0..live_count {
            let place = live[i];
            // SAFETY: only places whose future was written and returned `Pending` last time are in `live`; those that
            // end are dropped and leave it. So the future is initialised, and pinned as above.
            let pending = unsafe {
                let future = futures[usize::from(place)].assume_init_mut();
                poll_in_place(future, &mut context).is_pending()
            };
            if pending {
                live[kept] = place;
                kept += 1;
            }
        }
        live_count = kept;
    }
}

/// Polls a future and drops it where it is when it has ended.
///
/// # Safety
/// The future stays at its address until it is dropped, and is not used after it has ended.
unsafe fn poll_in_place<F: Future<Output = ()>>(future: &mut F, context: &mut Context<'_>) -> Poll<()> {
    // SAFETY: the caller keeps the future in place.
    let polled = unsafe { Pin::new_unchecked(&mut *future) }.poll(context);
    if polled.is_ready() {
        // SAFETY: the caller does not use the future again, so it is dropped once.
        unsafe { std::ptr::drop_in_place(future) };
    }
    polled
}

/// Runs one future to its end, and returns what it ends with.
#[cfg(test)]
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
}
