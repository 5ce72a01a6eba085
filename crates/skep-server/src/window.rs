//! The window of a shard: the number of operations that it takes on at a time, so that none of them waits long in it.
//!
//! KV-Direct keeps the latency of its processor bounded when buffers fill (the thesis, chapter on KV-Direct, a block
//! left out of the final text). The window of operations in flight follows the running average of the processing delay,
//! as in TCP Vegas (Brakmo and Peterson, 1995). Clients are throttled beyond it: in KV-Direct by credits of RDMA, here
//! by TCP, because their sockets are not read.
//!
//! An operation is *in flight* from its submission to a store until that store has replied. An operation that was
//! decoded and not submitted is not in flight. Its *delay* is the time from the read of the socket that completed its
//! request until its reply is written. The difference to the smallest delay so far is the time for which it queues.
//!
//! ```text
//!   running delay − smallest delay                           age of a request
//!   0          1/32          1/16 of the goal                3/4 of the bound          bound
//!   ├─ grows by 1/8 ┼─ stays ─┼─ shrinks by 1/8 ─ …           ├─ is refused: BUSY ───────┤
//! ```
//!
//! As in Vegas, only operations read after the last adjustment count. The goal is the bound of the delay, or 100 ms if
//! there is none.
//!
//! A turn submits at most as many operations as the window has room for, and a connection at most a quarter of the
//! window in a turn. So a connection with many requests is served in parts, and the others are served between these.
//!
//! If a bound is set (`--delay-max`), operations that have not begun are refused when they come near it: the last
//! quarter of the bound is for operations that have begun. Nothing is refused while no other connection waits: that
//! would help no client. A connection with little work left is not refused: the reply would come as soon as the
//! refusal. The cost of its work is estimated with the median of recent turns. So a turn in which memory was touched
//! for the first time, or the processor was taken away, has no effect.

use std::time::{Duration, Instant};

use crate::limits::{COST_COUNT, DELAY_GAIN, DELAY_GOAL, WINDOW_MAX, WINDOW_MIN, WINDOW_PART, WINDOW_STEP};

/// The window of a shard.
#[derive(Debug)]
pub(crate) struct Window {
    /// The bound of the delay: operations that come near it are refused.
    bound: Option<Duration>,
    /// The delay by which the window is judged.
    goal: Duration,
    limit: usize,
    in_flight: usize,
    /// The running average, after the first reply.
    delay: Option<Duration>,
    delay_min: Duration,
    /// When the limit was last adjusted.
    since: Instant,
    /// Of the operations read since then: the number of those that have replies, and the sum of their delays.
    replied: u64,
    delay_sum: Duration,
    /// The costs of an operation in the last turns that executed any, and the number of such turns.
    costs: [Duration; COST_COUNT],
    cost_count: usize,
}

impl Window {
    /// Begins with the largest window, for delays below `bound`: it shrinks when delays are long.
    pub(crate) fn new(bound: Option<Duration>, now: Instant) -> Window {
        Window {
            bound,
            goal: bound.unwrap_or(DELAY_GOAL),
            limit: WINDOW_MAX,
            in_flight: 0,
            delay: None,
            delay_min: Duration::MAX,
            since: now,
            replied: 0,
            delay_sum: Duration::ZERO,
            costs: [Duration::ZERO; COST_COUNT],
            cost_count: 0,
        }
    }

    /// Records that `count` operations were submitted to another shard.
    pub(crate) fn submitted(&mut self, count: usize) {
        self.in_flight += count;
    }

    /// Records that `count` operations came back from another shard.
    pub(crate) fn returned(&mut self, count: usize) {
        self.in_flight -= count;
    }

    /// Records the replies to `count` operations that were read at `read_at`.
    pub(crate) fn replied(&mut self, count: u64, read_at: Instant, now: Instant) {
        let delay = now.saturating_duration_since(read_at);
        self.delay_min = self.delay_min.min(delay);
        if read_at >= self.since {
            self.replied += count;
            self.delay_sum += delay.saturating_mul(u32::try_from(count).unwrap_or(u32::MAX));
        }
    }

    /// Adjusts the limit to the delay of the operations that got replies.
    pub(crate) fn adjust(&mut self, now: Instant) {
        if self.replied == 0 {
            return;
        }
        let mean = self.delay_sum.div_f64(self.replied as f64);
        let delay = self.delay.map_or(mean, |delay| delay - delay / DELAY_GAIN + mean / DELAY_GAIN);
        let queueing = delay.saturating_sub(self.delay_min);
        if queueing < self.goal / 32 {
            self.limit = (self.limit + self.limit / WINDOW_STEP).min(WINDOW_MAX);
        } else if queueing > self.goal / 16 {
            self.limit = (self.limit - self.limit / WINDOW_STEP).max(WINDOW_MIN);
        }
        self.delay = Some(delay);
        (self.since, self.replied, self.delay_sum) = (now, 0, Duration::ZERO);
    }

    /// Returns the most operations that may be in flight.
    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    /// Returns the operations in flight: those that other shards have. Those of a turn are done when it ends.
    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Returns the number of operations that may be submitted in addition.
    pub(crate) fn room(&self) -> usize {
        self.limit.saturating_sub(self.in_flight)
    }

    /// Returns the number of operations that one connection may read at a time, and may submit in a turn.
    pub(crate) fn share(&self) -> usize {
        self.limit / WINDOW_PART
    }

    /// Records a turn that executed this number of operations in this time.
    pub(crate) fn worked(&mut self, operations: usize, spent: Duration) {
        let Ok(operations @ 1..) = u32::try_from(operations) else { return };
        self.costs[self.cost_count % COST_COUNT] = spent / operations;
        self.cost_count += 1;
    }

    /// Returns the cost of an operation: the median of recent turns.
    fn cost(&self) -> Duration {
        let mut costs = self.costs;
        let costs = &mut costs[..self.cost_count.min(COST_COUNT)];
        let middle = costs.len() / 2;
        if costs.is_empty() { Duration::ZERO } else { *costs.select_nth_unstable(middle).1 }
    }

    /// Returns true if operations that were read at `read_at`, and have not begun, are too near the bound. Their
    /// connection has `left` operations without a reply. `others_wait` says that other connections wait.
    pub(crate) fn is_late(&self, read_at: Instant, now: Instant, left: usize, others_wait: bool) -> bool {
        let Some(bound) = self.bound else { return false };
        let is_near = others_wait && now.saturating_duration_since(read_at) >= bound * 3 / 4;
        is_near && self.cost().saturating_mul(u32::try_from(left).unwrap_or(u32::MAX)) > bound / 16
    }

    /// Returns the running average of the delay.
    pub(crate) fn delay(&self) -> Duration {
        self.delay.unwrap_or_default()
    }

    /// Returns the smallest delay so far.
    pub(crate) fn delay_min(&self) -> Duration {
        if self.delay.is_some() { self.delay_min } else { Duration::ZERO }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::{WINDOW_MAX, WINDOW_MIN, Window};

    const BOUND: Duration = Duration::from_millis(100);

    /// Drives a shard with endless requests: each turn it reads as many as the window allows and replies to them,
    /// `cost` each. Returns the delay of the last turn.
    fn overload(window: &mut Window, now: &mut Instant, turns: usize, cost: Duration) -> Duration {
        let mut delay = Duration::ZERO;
        for _ in 0..turns {
            let read_at = *now;
            let count = window.room();
            window.submitted(count);
            assert_eq!(window.room(), 0);
            delay = cost * count as u32;
            *now += delay;
            window.replied(count as u64, read_at, *now);
            window.adjust(*now);
            window.returned(count);
            assert!((WINDOW_MIN..=WINDOW_MAX).contains(&window.limit()));
        }
        delay
    }

    /// Drives a shard that is asked for one cheap operation at a time.
    fn idle(window: &mut Window, now: &mut Instant, turns: usize) {
        for _ in 0..turns {
            let read_at = *now;
            *now += Duration::from_micros(10);
            window.replied(1, read_at, *now);
            window.adjust(*now);
        }
    }

    #[test]
    fn the_delay_converges_for_cheap_and_expensive_operations() {
        for microseconds in [2, 3, 5, 10, 20] {
            let mut now = Instant::now();
            let mut window = Window::new(Some(BOUND), now);
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
        let mut window = Window::new(Some(BOUND), now);
        overload(&mut window, &mut now, 100, Duration::from_nanos(100));
        assert_eq!(window.limit(), WINDOW_MAX, "cheap operations are not held back");
        let dear = Duration::from_micros(20);
        let begun = now;
        while overload(&mut window, &mut now, 1, dear) > BOUND / 16 {}
        assert!(now - begun < Duration::from_secs(1), "{:?}", now - begun);
        overload(&mut window, &mut now, 100, Duration::from_millis(1));
        assert_eq!(window.limit(), WINDOW_MIN);
        idle(&mut window, &mut now, 100);
        assert_eq!(window.limit(), WINDOW_MAX, "it grows when nothing queues");
    }

    #[test]
    fn operations_of_an_earlier_window_say_nothing_about_the_next() {
        let mut now = Instant::now();
        let mut window = Window::new(Some(BOUND), now);
        let early = now;
        idle(&mut window, &mut now, 100);
        let limit = window.limit();
        for _ in 0..100 {
            now += BOUND;
            window.replied(1000, early, now);
            window.adjust(now);
        }
        assert_eq!(window.limit(), limit);
        window.replied(1, now, now + BOUND);
        window.adjust(now + BOUND);
        assert!(window.limit() < limit && window.delay() > BOUND / 16);
    }

    #[test]
    fn only_what_is_near_the_bound_and_work_and_keeps_others_waiting_is_refused() {
        let now = Instant::now();
        let mut window = Window::new(Some(BOUND), now);
        let much = 100_000;
        assert!(!window.is_late(now, now + BOUND, much, true), "nothing is known of the work");
        (0..100).for_each(|_| window.worked(100, Duration::from_micros(100)));
        assert!(!window.is_late(now, now, much, true));
        assert!(!window.is_late(now, now + BOUND / 2, much, true));
        assert!(window.is_late(now, now + BOUND * 3 / 4, much, true));
        assert!(window.is_late(now, now + BOUND, much, true));
        assert!(!window.is_late(now, now + 10 * BOUND, much, false), "no other connection waits");
        assert!(!window.is_late(now, now + BOUND, 1000, true), "a millisecond of work");
        let mut boundless = Window::new(None, now);
        (0..100).for_each(|_| boundless.worked(100, Duration::from_micros(100)));
        assert!(!boundless.is_late(now, now + 1000 * BOUND, much, true), "nothing is refused without a bound");
    }

    #[test]
    fn operations_are_priced_by_the_median_of_recent_turns() {
        let mut window = Window::new(Some(BOUND), Instant::now());
        assert_eq!(window.cost(), Duration::ZERO);
        // Page faults of a cold store make every third turn dear.
        for turn in 0..100 {
            let cost = if turn % 3 == 0 { Duration::from_millis(1) } else { Duration::from_micros(1) };
            window.worked(100, 100 * cost);
            window.worked(0, 10 * BOUND);
            assert!(turn == 0 || window.cost() <= Duration::from_millis(1));
        }
        assert_eq!(window.cost(), Duration::from_micros(1));
        (0..8).for_each(|_| window.worked(100, Duration::from_millis(100)));
        assert_eq!(window.cost(), Duration::from_millis(1), "operations that have become dear are");
    }

    #[test]
    fn the_room_is_what_is_not_in_flight() {
        let mut window = Window::new(Some(BOUND), Instant::now());
        let share = window.share();
        for connection in 0..4 {
            assert!(window.room() > 0, "{connection}");
            window.submitted(share);
        }
        assert_eq!(window.room(), 0);
        window.submitted(10);
        assert_eq!((window.room(), window.in_flight()), (0, 4 * share + 10));
        window.returned(share);
        assert_eq!(window.room(), share - 10);
    }
}
