//! The table of the clock, with time as an argument.

use std::cell::Cell;
use std::time::{Duration, Instant, UNIX_EPOCH};

use super::{Clock, Reading, SharedClock};

const START: i64 = 1_700_000_000;
const HOUR: f64 = 3600.0;
const DAY: f64 = 24.0 * HOUR;

/// A machine: the seconds on its monotonic clock, and by which its time of day is wrong.
struct Machine {
    monotonic: f64,
    offset: f64,
    clock: Clock,
    /// The time between two readings.
    step: f64,
    jumps: usize,
}

impl Machine {
    fn new(offset: f64) -> Machine {
        let clock = Clock::new(Duration::ZERO, wall(0.0, offset), Duration::ZERO);
        Machine { monotonic: 0.0, offset, clock, step: 0.01, jumps: 0 }
    }

    /// Runs for a time, with readings. Each of them is checked: time goes on, and not much too fast or too slowly.
    fn run(&mut self, seconds: f64) {
        let until = self.monotonic + seconds;
        while self.monotonic < until {
            self.monotonic += self.step;
            let before = self.clock.time();
            self.jumps += usize::from(self.clock.read(seconds_of(self.monotonic), wall(self.monotonic, self.offset)));
            let passed = self.clock.time().checked_sub(before).expect("time goes back").as_secs_f64();
            assert!(passed > 0.49 * self.step, "{passed} s in {} s", self.step);
        }
    }

    /// Returns the seconds by which the clock is ahead of the right time.
    fn error(&self) -> f64 {
        self.clock.time().as_secs_f64() - START as f64 - self.monotonic
    }

    fn assert_error(&self, expected: f64) {
        assert!((self.error() - expected).abs() < 0.05, "{} s instead of {expected} s", self.error());
    }
}

fn seconds_of(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

fn wall(monotonic: f64, offset: f64) -> Duration {
    seconds_of((START as f64 + monotonic + offset).max(0.0))
}

#[test]
fn a_jump_that_is_taken_back_within_a_minute_changes_nothing() {
    for offset in [1.5, 60.0, HOUR, DAY, 3650.0 * DAY, -1.5, -60.0, -HOUR, -DAY, -60.0 * 365.0 * DAY] {
        for seconds in [0.01, 0.3, 59.0] {
            let mut machine = Machine::new(0.0);
            machine.run(1.0);
            machine.offset = offset;
            machine.run(seconds);
            machine.assert_error(0.0);
            machine.offset = 0.0;
            machine.run(1.0);
            machine.assert_error(0.0);
            assert_eq!((machine.jumps, machine.clock.jumps), (1, 1), "{offset}");
        }
    }
}

#[test]
fn steps_of_less_than_a_second_are_followed_by_a_tenth() {
    for offset in [0.128_f64, 0.99, -0.128, -0.99] {
        let mut machine = Machine::new(0.0);
        machine.run(1.0);
        machine.offset = offset;
        machine.run(1.0);
        machine.assert_error(offset.clamp(-0.1, 0.1));
        machine.run(10.0);
        machine.assert_error(offset);
        assert_eq!(machine.jumps, 0);
    }
}

#[test]
fn a_jump_ahead_that_lasts_a_minute_is_followed_at_once() {
    let mut machine = Machine::new(0.0);
    machine.offset = HOUR;
    machine.run(59.9);
    machine.assert_error(0.0);
    machine.run(0.2);
    machine.assert_error(HOUR);
    // From the time before clocks on batteries were set.
    let mut machine = Machine::new(-(START as f64));
    machine.offset = 0.0;
    machine.run(60.1);
    machine.assert_error(0.0);
}

#[test]
fn a_jump_back_that_lasts_a_minute_is_followed_by_half_of_each_second() {
    let mut machine = Machine::new(HOUR);
    machine.offset = 0.0;
    machine.run(60.0);
    machine.assert_error(HOUR);
    machine.run(HOUR);
    machine.assert_error(HOUR / 2.0);
    machine.run(HOUR + 20.0);
    machine.assert_error(0.0);
    assert_eq!(machine.jumps, 1);
}

/// A bad time server sets a wrong time each half minute, and another one the right time.
#[test]
fn a_clock_that_jumps_again_and_again_is_not_followed() {
    let mut machine = Machine::new(0.0);
    for _ in 0..20 {
        machine.offset = DAY;
        machine.run(30.0);
        machine.offset = 2.0 * DAY;
        machine.run(40.0);
        machine.offset = 0.0;
        machine.run(1.0);
        machine.assert_error(0.0);
    }
    assert_eq!(machine.jumps, 40);
}

/// Nothing reads the clock while a server is idle. Jumps meanwhile are seen by the next reading, and the minute begins there.
#[test]
fn a_server_that_was_idle_sees_the_jump_later() {
    let mut machine = Machine::new(0.0);
    machine.offset = HOUR;
    machine.step = HOUR;
    machine.run(1.0);
    machine.assert_error(0.0);
    machine.step = 0.01;
    machine.run(59.0);
    machine.assert_error(0.0);
    machine.run(1.1);
    machine.assert_error(HOUR);
}

/// The machine sleeps, and its monotonic clock stops meanwhile; or a clock drifts.
#[test]
fn a_drift_is_followed_without_a_jump() {
    for drift in [1.0005, 0.9995, 1.05, 0.95] {
        let mut machine = Machine::new(0.0);
        for _ in 0..600 {
            machine.offset += (drift - 1.0) * 0.1;
            machine.run(0.1);
            machine.assert_error(machine.offset);
        }
        assert_eq!(machine.jumps, 0);
    }
}

/// Random jumps of any size at any time, in one run of seeds: time never goes back or stands still, and a minute after the last
/// of them the clock is right or on its way.
#[test]
fn random_jumps_keep_the_rules() {
    let seed: u64 = std::env::var("SKEP_SEED").map_or(1, |seed| seed.parse().expect("SKEP_SEED is a number"));
    let mut state = seed;
    let mut random = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as f64 / (1_u64 << 31) as f64
    };
    for run in 0..100 {
        let mut machine = Machine::new(0.0);
        machine.step = 0.5;
        for _ in 0..20 {
            let size = 10_f64.powf(random() * 9.0 - 1.0);
            machine.offset = if random() < 0.5 { size } else { -size };
            machine.run(random() * 150.0);
        }
        let before = machine.error();
        machine.offset = 0.0;
        machine.run(200.0);
        let message = format!("SKEP_SEED={seed}, run {run}: {before} s became {} s", machine.error());
        assert!((-0.1..=(before - 65.0).max(0.1)).contains(&machine.error()), "{message}");
    }
}

#[test]
fn a_clock_does_not_begin_before_its_log_and_runs_from_there() {
    let mut clock = Clock::new(Duration::ZERO, seconds_of(1000.0), seconds_of(5000.0));
    assert_eq!(clock.time(), seconds_of(5000.0));
    assert!(!clock.read(seconds_of(10.0), seconds_of(1010.0)));
    assert_eq!((clock.time(), clock.jumps), (seconds_of(5010.0), 1));
    let clock = Clock::new(Duration::ZERO, seconds_of(5000.0), seconds_of(1000.0));
    assert_eq!((clock.time(), clock.jumps), (seconds_of(5000.0), 0));
}

/// The time of the log is that of a clock which was an hour ahead. Each start begins at the last time of the run before.
#[test]
fn an_earlier_clock_at_a_start_is_followed_by_half_of_each_second_over_restarts_too() {
    let mut machine = Machine::new(0.0);
    let (mut last, mut starts) = (seconds_of(START as f64 + HOUR), 0);
    while machine.error() > 0.1 || starts == 0 {
        machine.clock = Clock::new(seconds_of(machine.monotonic), wall(machine.monotonic, 0.0), last);
        assert_eq!(machine.clock.jumps, u64::from(machine.error() > 1.0), "start {starts}");
        let before = machine.error();
        machine.run(10.0 * 60.0);
        // The first minute of each run is that in which the machine's clock may be wrong.
        machine.assert_error((before - 0.5 * 9.0 * 60.0).max(0.0));
        last = machine.clock.time();
        starts += 1;
    }
    assert_eq!(starts, 14);
}

#[test]
fn shards_read_the_clocks_each_ten_milliseconds_and_count_jumps() {
    let origin = Instant::now();
    let at = |milliseconds| origin + Duration::from_millis(milliseconds);
    let clock = SharedClock::new(Reading { monotonic: origin, wall: UNIX_EPOCH + Duration::from_secs(100) }, 0);
    let readings = Cell::new(0);
    let time = |now, wall| {
        let read = || {
            readings.set(readings.get() + 1);
            Reading { monotonic: at(now), wall: UNIX_EPOCH + Duration::from_millis(wall) }
        };
        clock.time(at(now), read).milliseconds()
    };
    assert_eq!((time(0, 100_000), readings.get()), (100_000, 1));
    assert_eq!((time(9, 0), readings.get()), (100_009, 1));
    assert_eq!((time(10, 3_700_010), readings.get()), (100_010, 2));
    assert_eq!((time(19, 0), readings.get()), (100_019, 2));
    assert_eq!((clock.ahead(), clock.jumps()), (3_600_000, 1));
    assert_eq!((time(300, 100_300), readings.get()), (100_300, 3));
    assert_eq!((clock.ahead(), clock.jumps()), (0, 1));
}

/// A reading of one shard after an hour without any is not complete when the turn of another one begins. That one must not
/// take the time of the last reading: keys that expire in less than an hour would be gone at once.
#[test]
fn a_turn_that_begins_during_a_reading_has_the_time_of_it() {
    let origin = Instant::now();
    let start = UNIX_EPOCH + Duration::from_secs(100);
    let clock = SharedClock::new(Reading { monotonic: origin, wall: start }, 0);
    let hour = Duration::from_secs(3600);
    let read = || Reading { monotonic: origin + hour, wall: start + hour };
    std::thread::scope(|scope| {
        let mut other = None;
        let time = clock.time(origin + hour, || {
            let turn = scope.spawn(|| clock.time(origin + hour, read));
            // Enough for a turn that does not wait.
            for _ in 0..100 {
                if turn.is_finished() {
                    break;
                }
                std::thread::sleep(Duration::from_millis(1));
            }
            other = Some(turn);
            read()
        });
        assert_eq!(time.milliseconds(), 3_700_000);
        assert_eq!(other.expect("the reading was made").join().expect("it has a time"), time);
    });
}
