//! The progress of a client: the bytes that it transfers while others wait for memory.

use std::cmp::Reverse;
use std::time::{Duration, Instant};

use crate::limits::{ACKNOWLEDGED_AT_ONCE_MAX, PROGRESS_GAP_MAX, PROGRESS_SIZE_MIN, PROGRESS_TIME};

/// The transfer of a connection while others wait for memory.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// Bytes that were read, and those that the client has taken.
    pub(super) moved: u64,
    /// The same when the connection last had enough progress.
    moved_before: u64,
    /// Bytes that were moved until the connection last kept no memory for requests, and the most that count.
    pub(super) moved_unkept: u64,
    pub(super) moved_max: Option<u64>,
    /// The time since then for which it has waited for its client.
    waited: Duration,
    /// The time for which it may wait.
    allowed: Duration,
    looked_at: Option<Instant>,
    /// The bytes that the client had acknowledged at the last look, if replies waited for it then. Meanwhile, it has taken
    /// these, and not all that the transport has accepted.
    acknowledged: Option<u64>,
}

impl Progress {
    /// Counts bytes that the transport has accepted, unless those that the client acknowledges count.
    pub(super) fn count_written(&mut self, size: u64) {
        if self.acknowledged.is_none() {
            self.moved += size;
        }
    }

    /// Looks at the progress. Returns the bytes that were moved and the time for which the client was waited for, if it is
    /// too slow. `acknowledged` are the bytes that it has acknowledged, if replies wait for it and its transport tells them.
    pub(super) fn look(
        &mut self,
        now: Instant,
        waits_for_client: bool,
        acknowledged: Option<u64>,
    ) -> Option<(u64, Reverse<Duration>)> {
        let passed = self.looked_at.map_or(Duration::MAX, |before| now.saturating_duration_since(before));
        self.looked_at = Some(now);
        let is_new = passed > PROGRESS_GAP_MAX || acknowledged.is_some() != self.acknowledged.is_some();
        let acknowledged_before = std::mem::replace(&mut self.acknowledged, acknowledged);
        if let (Some(before), Some(acknowledged)) = (acknowledged_before, acknowledged) {
            self.moved += acknowledged.saturating_sub(before);
        }
        let total = self.moved_max.map_or(self.moved, |most| self.moved.min(most));
        let moved = total.saturating_sub(self.moved_before);
        if is_new || moved >= PROGRESS_SIZE_MIN {
            let left = self.allowed.saturating_sub(self.waited);
            self.allowed = match acknowledged {
                Some(_) if !is_new => (left + time_to_take(moved)).min(time_to_take(ACKNOWLEDGED_AT_ONCE_MAX)),
                _ => PROGRESS_TIME,
            };
            (self.moved_before, self.waited) = (total, Duration::ZERO);
            return None;
        }
        if waits_for_client {
            self.waited += passed;
        }
        (waits_for_client && self.waited >= self.allowed).then_some((moved, Reverse(self.waited)))
    }
}

/// Returns the time in which a client may take as many bytes.
fn time_to_take(size: u64) -> Duration {
    PROGRESS_TIME.mul_f64(size as f64 / PROGRESS_SIZE_MIN as f64)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::{Progress, time_to_take};
    use crate::limits::{ACKNOWLEDGED_AT_ONCE_MAX, PROGRESS_SIZE_MIN, PROGRESS_TIME, TICK};

    #[test]
    fn only_a_client_that_is_waited_for_is_slow() {
        for (waits_for_client, bytes_in_tick, is_slow) in
            [(true, 0, true), (true, 10, true), (false, 0, false), (true, PROGRESS_SIZE_MIN, false)]
        {
            let (mut progress, mut now) = (Progress::default(), Instant::now());
            let mut ticks = 0;
            while progress.look(now, waits_for_client, None).is_none() && ticks < 1000 {
                progress.moved += bytes_in_tick;
                now += TICK;
                ticks += 1;
            }
            let expected = if is_slow { PROGRESS_TIME.div_duration_f64(TICK).ceil() as u32 } else { 1000 };
            assert_eq!(ticks, expected, "{waits_for_client}, {bytes_in_tick} bytes");
            now += Duration::from_secs(5);
            assert_eq!(progress.look(now, true, None), None, "it was not looked at meanwhile");
        }
    }

    /// Looks each tick until a client is slow that acknowledges `size` bytes in the first tick and in each `every`-th one.
    /// Returns the ticks.
    fn ticks_until_slow(size: u64, every: u32, written_in_tick: u64) -> u32 {
        let (mut progress, mut now, mut acknowledged) = (Progress::default(), Instant::now(), 1);
        for tick in 1..1000 {
            if progress.look(now, true, Some(acknowledged)).is_some() {
                return tick - 1;
            }
            acknowledged += if tick == 1 || tick % every == 0 { size } else { 0 };
            progress.count_written(written_in_tick);
            now += TICK;
        }
        1000
    }

    #[test]
    fn a_client_is_as_fast_as_it_acknowledges() {
        let ticks = |time: Duration| time.div_duration_f64(TICK).ceil() as u32;
        let (first, at_most) = (ticks(PROGRESS_TIME), ticks(time_to_take(ACKNOWLEDGED_AT_ONCE_MAX)));
        // What the transport accepts counts for nothing.
        for written in [0, 1 << 20] {
            assert_eq!(ticks_until_slow(0, 1, written), first, "it takes none");
        }
        // It has the time for what it took, at once or in parts.
        for (size, every) in [(PROGRESS_SIZE_MIN, 15), (PROGRESS_SIZE_MIN / 5, 3), (2 * PROGRESS_SIZE_MIN, 30)] {
            assert_eq!(
                ticks_until_slow(size, (every - 1).max(1), 0),
                1000,
                "{size} bytes in each {every} ticks but one"
            );
            let slow_at = ticks_until_slow(size / 2, every, 0);
            assert!(slow_at < 6 * first, "half as many: {slow_at} ticks");
        }
        // What it took does not last.
        let (mut progress, mut now) = (Progress::default(), Instant::now());
        assert_eq!(progress.look(now, true, Some(1)), None);
        let mut ticks_left = 0;
        while progress.look(now, true, Some(1 << 30)).is_none() {
            now += TICK;
            ticks_left += 1;
        }
        assert_eq!(ticks_left, at_most, "after very many bytes");
    }
}
