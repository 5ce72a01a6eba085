//! How many operations a shard takes on at a time, so that none of them waits long in it.
//!
//! KV-Direct keeps the latency of its processor bounded when buffers fill (the thesis, chapter on KV-Direct, a block
//! left out of the final text): a window of operations in flight follows the running average of the processing delay as
//! TCP Vegas does (Brakmo and Peterson, 1995), and clients are held back beyond it. There, credits of RDMA hold them back;
//! here, their sockets are not read, and TCP does.
//!
//! An operation is *in flight* from the read of the socket that completed its request until its reply is written; its
//! *delay* is that time. What it waits beyond the smallest delay there was, it queues.
//!
//! ```text
//!   running delay − smallest delay                           age of a request
//!   0          1/32          1/16 of the bound               3/4 of the bound          bound
//!   ├─ grows by 1/8 ┼─ stays ─┼─ shrinks by 1/8 ─ …           ├─ is refused: BUSY ───────┤
//! ```
//!
//! Vegas adjusts once a round trip: a new window is judged by operations that were read under it. Whoever has much in
//! flight, and there is no limit to what one frame may ask for, counts for a quarter of the window at most, and is worked
//! off by as much in a turn, so that one connection does not shut the others out. What such frames hold beyond the window is
//! refused when it comes near the bound and is work for a while: the last quarter of the bound is kept for what is begun.
//! Where little is left to do, as after a pause in which others had the processor, a refusal would come no sooner than
//! the answer.

use std::time::{Duration, Instant};

/// The smallest window: what a processor has under way at a time. Below it, batches lose what they are for.
const LIMIT_MIN: usize = 256;
/// The largest window. More would not make batches faster.
const LIMIT_MAX: usize = 4096;
/// A connection counts for this part of the window at most.
const SHARE: usize = 4;
/// The window changes by this part of it at a time.
const STEP: usize = 8;
/// The running average takes over this part of what is new.
const GAIN: u32 = 4;

/// The window of a shard.
#[derive(Debug)]
pub(crate) struct Window {
    bound: Duration,
    limit: usize,
    in_flight: usize,
    /// The running average, once something was answered.
    delay: Option<Duration>,
    delay_min: Duration,
    /// When the limit was last judged.
    since: Instant,
    /// Of the operations read since then: how many were answered now, and their delays together.
    answered: u64,
    delay_sum: Duration,
    /// Running average of what an operation takes of a turn.
    cost: Duration,
}

impl Window {
    /// The largest window, for delays below `bound`: that they will be long is to be seen first.
    pub(crate) fn new(bound: Duration, now: Instant) -> Window {
        Window {
            bound,
            limit: LIMIT_MAX,
            in_flight: 0,
            delay: None,
            delay_min: Duration::MAX,
            since: now,
            answered: 0,
            delay_sum: Duration::ZERO,
            cost: Duration::ZERO,
        }
    }

    /// A connection had `before` operations in flight and has `after`.
    pub(crate) fn recount(&mut self, before: usize, after: usize) {
        self.in_flight = self.in_flight - before + after;
    }

    /// `count` operations that were read at `read_at` have their replies.
    pub(crate) fn answered(&mut self, count: u64, read_at: Instant, now: Instant) {
        let delay = now.saturating_duration_since(read_at);
        self.delay_min = self.delay_min.min(delay);
        if read_at >= self.since {
            self.answered += count;
            self.delay_sum += delay.saturating_mul(u32::try_from(count).unwrap_or(u32::MAX));
        }
    }

    /// Lets the limit follow the delay of what was answered.
    pub(crate) fn adjust(&mut self, now: Instant) {
        if self.answered == 0 {
            return;
        }
        let mean = self.delay_sum.div_f64(self.answered as f64);
        let delay = self.delay.map_or(mean, |delay| delay - delay / GAIN + mean / GAIN);
        let queueing = delay.saturating_sub(self.delay_min);
        if queueing < self.bound / 32 {
            self.limit = (self.limit + self.limit / STEP).min(LIMIT_MAX);
        } else if queueing > self.bound / 16 {
            self.limit = (self.limit - self.limit / STEP).max(LIMIT_MIN);
        }
        self.delay = Some(delay);
        (self.since, self.answered, self.delay_sum) = (now, 0, Duration::ZERO);
    }

    /// Most operations in flight, and most of a batch.
    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    /// Operations in flight.
    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Whether another request may be read.
    pub(crate) fn has_room(&self) -> bool {
        self.in_flight < self.limit
    }

    /// What one connection may count for, may read at a time and may have in a batch, in operations.
    pub(crate) fn share(&self) -> usize {
        self.limit / SHARE
    }

    /// A turn with so many operations took so long. One in which the processor was taken away says little about the next.
    pub(crate) fn worked(&mut self, operations: usize, spent: Duration) {
        let Ok(operations @ 1..) = u32::try_from(operations) else { return };
        let cost = spent / operations;
        let cost = if self.cost.is_zero() { cost } else { cost.min(2 * self.cost) };
        self.cost = self.cost - self.cost / GAIN + cost / GAIN;
    }

    /// Whether what was read at `read_at`, and is not begun, would come too near the bound. Its connection has `left`
    /// operations in flight.
    pub(crate) fn is_late(&self, read_at: Instant, now: Instant, left: usize) -> bool {
        let work = self.cost.saturating_mul(u32::try_from(left.max(self.in_flight)).unwrap_or(u32::MAX));
        now.saturating_duration_since(read_at) >= self.bound * 3 / 4 && work > self.bound / 16
    }

    /// The running average of the delay.
    pub(crate) fn delay(&self) -> Duration {
        self.delay.unwrap_or_default()
    }

    /// The smallest delay so far.
    pub(crate) fn delay_min(&self) -> Duration {
        if self.delay.is_some() { self.delay_min } else { Duration::ZERO }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::{LIMIT_MAX, LIMIT_MIN, Window};

    const BOUND: Duration = Duration::from_millis(100);

    /// A shard with endless requests: each turn it reads as many as the window allows and answers them, `cost` each.
    /// Answers the delay of the last turn.
    fn overload(window: &mut Window, now: &mut Instant, turns: usize, cost: Duration) -> Duration {
        let mut delay = Duration::ZERO;
        for _ in 0..turns {
            let read_at = *now;
            let count = window.limit();
            window.recount(0, count);
            assert!(!window.has_room());
            delay = cost * count as u32;
            *now += delay;
            window.answered(count as u64, read_at, *now);
            window.adjust(*now);
            window.recount(count, 0);
            assert!((LIMIT_MIN..=LIMIT_MAX).contains(&window.limit()));
        }
        delay
    }

    /// A shard that is asked for one cheap operation at a time.
    fn idle(window: &mut Window, now: &mut Instant, turns: usize) {
        for _ in 0..turns {
            let read_at = *now;
            *now += Duration::from_micros(10);
            window.answered(1, read_at, *now);
            window.adjust(*now);
        }
    }

    #[test]
    fn the_delay_converges_whatever_an_operation_costs() {
        for microseconds in [2, 3, 5, 10, 20] {
            let mut now = Instant::now();
            let mut window = Window::new(BOUND, now);
            idle(&mut window, &mut now, 1);
            overload(&mut window, &mut now, 100, Duration::from_micros(microseconds));
            for _ in 0..100 {
                let delay = overload(&mut window, &mut now, 1, Duration::from_micros(microseconds));
                assert!(delay >= BOUND / 40 && delay <= BOUND / 12, "{microseconds} µs each: {delay:?}");
            }
        }
    }

    #[test]
    fn the_window_follows_a_change_of_work() {
        let mut now = Instant::now();
        let mut window = Window::new(BOUND, now);
        overload(&mut window, &mut now, 100, Duration::from_nanos(100));
        assert_eq!(window.limit(), LIMIT_MAX, "cheap operations are not held back");
        let dear = Duration::from_micros(20);
        let begun = now;
        while overload(&mut window, &mut now, 1, dear) > BOUND / 16 {}
        assert!(now - begun < Duration::from_secs(1), "{:?}", now - begun);
        overload(&mut window, &mut now, 100, Duration::from_millis(1));
        assert_eq!(window.limit(), LIMIT_MIN);
        idle(&mut window, &mut now, 100);
        assert_eq!(window.limit(), LIMIT_MAX, "it grows when nothing queues");
    }

    #[test]
    fn operations_of_an_earlier_window_say_nothing_about_the_next() {
        let mut now = Instant::now();
        let mut window = Window::new(BOUND, now);
        let early = now;
        idle(&mut window, &mut now, 100);
        let limit = window.limit();
        for _ in 0..100 {
            now += BOUND;
            window.answered(1000, early, now);
            window.adjust(now);
        }
        assert_eq!(window.limit(), limit);
        window.answered(1, now, now + BOUND);
        window.adjust(now + BOUND);
        assert!(window.limit() < limit && window.delay() > BOUND / 16);
    }

    #[test]
    fn only_what_is_near_the_bound_and_work_is_refused() {
        let now = Instant::now();
        let mut window = Window::new(BOUND, now);
        let much = 100_000;
        assert!(!window.is_late(now, now + BOUND, much), "nothing is known of the work");
        (0..100).for_each(|_| window.worked(100, Duration::from_micros(100)));
        assert!(!window.is_late(now, now, much));
        assert!(!window.is_late(now, now + BOUND / 2, much));
        assert!(window.is_late(now, now + BOUND * 3 / 4, much));
        assert!(window.is_late(now, now + BOUND, much));
        assert!(!window.is_late(now, now + BOUND, 1000), "a millisecond of work");
        window.worked(100, 10 * BOUND);
        assert!(!window.is_late(now, now + 10 * BOUND, 1000), "one pause changes little");
        (0..20).for_each(|_| window.worked(100, Duration::from_millis(10)));
        assert!(window.is_late(now, now + BOUND, 1000), "but work that has become dear does");
        window.recount(0, 1000);
        assert!(window.is_late(now, now + BOUND, 1), "what others have in flight counts");
    }

    #[test]
    fn the_room_is_what_is_not_in_flight() {
        let mut window = Window::new(BOUND, Instant::now());
        let share = window.share();
        for connection in 0..4 {
            assert!(window.has_room(), "{connection}");
            window.recount(0, share);
        }
        assert!(!window.has_room());
        window.recount(share, share - 1);
        assert!(window.has_room());
        assert_eq!(window.in_flight(), 4 * share - 1);
    }
}
