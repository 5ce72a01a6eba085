//! The transfer of a connection while others wait for memory: a slow one may be closed, see `shard/memory.rs`.

use std::cmp::Reverse;
use std::time::{Duration, Instant};

use crate::limits::{ACKNOWLEDGED_AT_ONCE_MAX, PROGRESS_GAP_MAX, PROGRESS_SIZE_MIN, PROGRESS_TIME};
use crate::transport::Acknowledged;

/// The transfer of a connection while others wait for memory.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// Bytes that were read, and those that the client has taken.
    pub(super) moved: u64,
    /// The same when the connection last had enough progress.
    moved_before: u64,
    /// The time since then for which it has waited for its client.
    waited: Duration,
    /// The time for which it may wait.
    allowed: Duration,
    looked_at: Option<Instant>,
    /// The bytes that the client had acknowledged at the last look, if replies waited for it then. Meanwhile, it has taken
    /// these, and not all that the transport has accepted.
    acknowledged: Option<u64>,
    /// The bytes that the client had acknowledged, and when they were first seen, also while no others wait for memory.
    last_step: Option<(u64, Instant)>,
}

impl Progress {
    /// Counts bytes that the transport has accepted, unless those that the client acknowledges count.
    pub(super) fn count_written(&mut self, size: u64) {
        if self.acknowledged.is_none() {
            self.moved += size;
        }
    }

    /// Notes how many bytes the client has acknowledged.
    pub(super) fn note(&mut self, now: Instant, acknowledged: Option<Acknowledged>) {
        let is_new = |acknowledged: &Acknowledged| self.last_step.is_none_or(|(bytes, _)| bytes != acknowledged.bytes);
        match acknowledged {
            Some(acknowledged) if !is_new(&acknowledged) => {}
            _ => self.last_step = acknowledged.map(|acknowledged| (acknowledged.bytes, now)),
        }
    }

    /// Returns the time after which a client is slow that has not acknowledged any bytes since the first look: what is left of
    /// the time in which it may take those that it acknowledges at once.
    fn time_of_first_step(&self, now: Instant, acknowledged: Option<Acknowledged>) -> Duration {
        let Some((step, (_, since))) = acknowledged.map(|it| it.step).zip(self.last_step) else { return PROGRESS_TIME };
        let passed = now.saturating_duration_since(since);
        time_to_take(step.min(ACKNOWLEDGED_AT_ONCE_MAX)).saturating_sub(passed).max(PROGRESS_TIME)
    }

    /// Looks at the progress. Returns the bytes that were moved and the time for which the client was waited for, if it is
    /// too slow. `acknowledged` are the bytes that it has acknowledged, if replies wait for it and its transport tells them.
    pub(super) fn look(
        &mut self,
        now: Instant,
        waits_for_client: bool,
        acknowledged: Option<Acknowledged>,
    ) -> Option<(u64, Reverse<Duration>)> {
        self.note(now, acknowledged);
        let first_step = self.time_of_first_step(now, acknowledged);
        let acknowledged = acknowledged.map(|acknowledged| acknowledged.bytes);
        let passed = self.looked_at.map_or(Duration::MAX, |before| now.saturating_duration_since(before));
        self.looked_at = Some(now);
        let is_new = passed > PROGRESS_GAP_MAX || acknowledged.is_some() != self.acknowledged.is_some();
        let acknowledged_before = std::mem::replace(&mut self.acknowledged, acknowledged);
        if let (Some(before), Some(acknowledged)) = (acknowledged_before, acknowledged) {
            self.moved += acknowledged.saturating_sub(before);
        }
        let moved = self.moved - self.moved_before;
        if is_new || moved >= PROGRESS_SIZE_MIN {
            let left = self.allowed.saturating_sub(self.waited);
            self.allowed = match acknowledged {
                Some(_) if !is_new => (left + time_to_take(moved)).min(time_to_take(ACKNOWLEDGED_AT_ONCE_MAX)),
                _ => first_step,
            };
            (self.moved_before, self.waited) = (self.moved, Duration::ZERO);
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

    use super::{Acknowledged, Progress, time_to_take};
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

    /// Returns that `bytes` are acknowledged, of which `step` come at once.
    fn at_once(bytes: u64, step: u64) -> Option<Acknowledged> {
        Some(Acknowledged { bytes, step })
    }

    /// Looks each tick until a client is slow that acknowledges `size` bytes in the first tick and in each `every`-th one.
    /// Returns the ticks.
    fn ticks_until_slow(size: u64, every: u32, written_in_tick: u64) -> u32 {
        let (mut progress, mut now, mut acknowledged) = (Progress::default(), Instant::now(), 1);
        for tick in 1..1000 {
            if progress.look(now, true, at_once(acknowledged, PROGRESS_SIZE_MIN)).is_some() {
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
        assert_eq!(progress.look(now, true, at_once(1, PROGRESS_SIZE_MIN)), None);
        let mut ticks_left = 0;
        while progress.look(now, true, at_once(1 << 30, PROGRESS_SIZE_MIN)).is_none() {
            now += TICK;
            ticks_left += 1;
        }
        assert_eq!(ticks_left, at_most, "after very many bytes");
    }

    #[test]
    fn the_first_step_of_a_client_has_the_time_of_its_bytes() {
        const STEP: u64 = 95_232;
        let ticks = |time: Duration| time.div_duration_f64(TICK).ceil() as u32;
        let step_ticks = ticks(time_to_take(STEP));
        // The ticks before memory is scarce in which it takes nothing, those of its first step after that, and those after
        // which it is slow.
        for (before, first_step, slow_after) in [
            (0, None, step_ticks),
            (20, None, step_ticks - 20),
            (200, None, ticks(PROGRESS_TIME)),
            (0, Some(step_ticks - 1), 1000),
            (20, Some(step_ticks - 21), 1000),
        ] {
            let (mut progress, mut now) = (Progress::default(), Instant::now());
            progress.note(now, at_once(1, STEP));
            now += before * TICK;
            let (mut tick, mut acknowledged) = (0, 1);
            while progress.look(now, true, at_once(acknowledged, STEP)).is_none() && tick < 1000 {
                (tick, now) = (tick + 1, now + TICK);
                let is_step =
                    first_step.is_some_and(|first| tick >= first && (tick - first).is_multiple_of(step_ticks - 1));
                acknowledged += if is_step { STEP } else { 0 };
            }
            assert_eq!(tick, slow_after, "{before} ticks before, first step after {first_step:?}");
        }
        // No client has more time than the largest step takes.
        let mut progress = Progress::default();
        progress.note(Instant::now(), at_once(1, 1 << 40));
        let most = progress.time_of_first_step(Instant::now(), at_once(1, 1 << 40));
        assert!(most <= time_to_take(ACKNOWLEDGED_AT_ONCE_MAX));
    }
}
