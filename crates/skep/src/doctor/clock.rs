//! The clock, which a server reads for each turn, for expiry and for delays.

use std::hint::black_box;
use std::path::Path;
use std::time::Instant;

use super::{Finding, read};

/// A read of the clock that takes longer is a system call.
const SLOW_NANOSECONDS: u64 = 200;

/// Examines the clock.
pub(super) fn examine(root: &Path) -> Vec<Finding> {
    let source = read(root, "sys/devices/system/clocksource/clocksource0/current_clocksource");
    vec![clock(&source.unwrap_or_else(|| "unknown".to_owned()), read_time())]
}

/// Returns the nanoseconds that a read takes: the best of some series, because other threads interrupt.
fn read_time() -> u64 {
    const READS: u32 = 10_000;
    let series = || {
        let begun = Instant::now();
        for _ in 0..READS {
            black_box(Instant::now());
        }
        begun.elapsed() / READS
    };
    let best = (0..5).map(|_| series()).min().unwrap_or_default();
    u64::try_from(best.as_nanos()).unwrap_or(u64::MAX)
}

fn clock(source: &str, nanoseconds: u64) -> Finding {
    let is = format!("source {source}, {nanoseconds} ns for a read");
    match nanoseconds > SLOW_NANOSECONDS {
        false => Finding::good("clock", is),
        true => Finding::advice(
            "clock",
            is,
            "each batch of a client reads the clock a few times: a microsecond or more for single requests",
            "choose tsc, or kvm-clock in a virtual machine: the kernel parameter clocksource=tsc",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::State::{Advice, Good};
    use super::{clock, read_time};

    #[test]
    fn a_slow_clock_is_noticed() {
        for (nanoseconds, state) in [(25, Good), (200, Good), (201, Advice), (1500, Advice)] {
            assert_eq!(clock("hpet", nanoseconds).state, state, "{nanoseconds}");
        }
        assert!(read_time() < 1_000_000);
    }
}
