//! The pace of log lines for which clients give the reason.
//!
//! Clients may give a reason for a line as often as they like: by connections that are too slow, again and again. A log
//! must not fill a disk for that, so one line a second is written, and it says how many were left out before it.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The shortest time between two lines.
const PAUSE: Duration = Duration::from_secs(1);

/// The times of all paces count from here.
static BEGIN: LazyLock<Instant> = LazyLock::new(Instant::now);

/// The pace of the lines of one kind.
#[derive(Debug, Default)]
pub(crate) struct LogPace {
    /// The time from which on another line may be written, in milliseconds.
    next: AtomicU64,
    left_out: AtomicU64,
}

impl LogPace {
    /// Asks for a line. Returns how many were left out before it, or `None` if this one is left out too.
    pub(crate) fn line(&self) -> Option<u64> {
        self.line_at(BEGIN.elapsed())
    }

    fn line_at(&self, now: Duration) -> Option<u64> {
        if (now.as_millis() as u64) < self.next.load(Ordering::Relaxed) {
            self.left_out.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        self.next.store((now + PAUSE).as_millis() as u64, Ordering::Relaxed);
        Some(self.left_out.swap(0, Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::LogPace;

    #[test]
    fn a_line_a_second_says_how_many_were_left_out() {
        let pace = LogPace::default();
        let lines: Vec<u64> = (0..10_000).filter_map(|index| pace.line_at(Duration::from_millis(index / 4))).collect();
        assert_eq!(lines, [0, 3999, 3999]);
        assert_eq!(pace.line_at(Duration::from_secs(100)), Some(1999));
        assert_eq!(pace.line_at(Duration::from_secs(200)), Some(0));
    }
}
