//! DRAM, of the NIC or of a memory node of the host (KV-Direct, sections 3.3.4 and 5.2.5).
//!
//! ```text
//! random access ─┬▶ channel 0   max(access_ns, bytes / bandwidth) each
//!                ├▶ channel 1
//! stream ────────┴▶ …           bytes / bandwidth: its lines are in open rows
//! ```
//!
//! Addresses are hashed, so that accesses are distributed evenly: the channels take turns. A random access opens a row.
//! `access_ns` is the time between two such accesses of a channel, which bounds short ones. KV-Direct counts the whole
//! bandwidth for lines of 64 B, so its boards have 0. For a chip it is the largest of tFAW / 4, tRRD and tRC over the
//! number of banks.

use std::cell::Cell;

use crate::clock::{self, Clock};
use crate::hardware::{HostDram, NicDram};
use crate::resource::Path;
use crate::time::Time;

const LINE_BYTES: u32 = 64;
/// Lines that a program which reads adjacent lines has in flight.
const STREAM_WIDTH: usize = 64;

/// The channels of a memory.
#[derive(Debug)]
pub struct Dram {
    channels: Vec<Path>,
    next: Cell<usize>,
    channel_gb_per_s: f64,
    access: Time,
    opening: Time,
}

impl Dram {
    /// Returns idle memory of one node of the host.
    pub fn of_host(spec: &HostDram) -> Self {
        Dram::new(spec.channels, spec.bandwidth_gb_per_s, spec.access_ns)
    }

    /// Returns idle memory of a NIC.
    pub fn of_nic(spec: &NicDram) -> Self {
        Dram::new(spec.channels, spec.bandwidth_gb_per_s, spec.access_ns)
    }

    /// Returns idle memory with this total bandwidth.
    pub fn new(channels: u32, bandwidth_gb_per_s: f64, access_ns: f64) -> Self {
        Dram {
            channels: (0..channels).map(|_| Path::default()).collect(),
            next: Cell::default(),
            channel_gb_per_s: bandwidth_gb_per_s / f64::from(channels),
            access: Time::from_ns(access_ns),
            opening: Time::ZERO,
        }
    }

    /// Returns this memory, whose random accesses each take this time in addition to their transfer.
    #[must_use]
    pub fn with_opening(self, opening_ns: f64) -> Self {
        Dram { opening: Time::from_ns(opening_ns), ..self }
    }

    /// Returns how long a channel was busy so far, on average.
    pub fn busy(&self) -> Time {
        self.channels.iter().map(Path::busy).sum::<Time>().part(self.channels.len() as u64)
    }

    /// Moves complete lines at a random address. Returns the time at which that is done.
    pub fn reserve(&self, now: Time, bytes: u32) -> Time {
        let span = (self.transfer(bytes.next_multiple_of(LINE_BYTES)) + self.opening).max(self.access);
        self.next_channel().reserve(now, span)
    }

    /// Returns the time for which a random access of a line occupies a channel.
    pub fn line(&self) -> Time {
        (self.transfer(LINE_BYTES) + self.opening).max(self.access)
    }

    /// Reads adjacent lines as fast as the memory allows, as a program of the host does.
    pub async fn stream(&self, clock: &Clock, lines: u32) {
        let line =
            async |_: u32| clock.until(self.next_channel().reserve(clock.now(), self.transfer(LINE_BYTES))).await;
        clock::all(STREAM_WIDTH, (0..lines).map(line)).await;
    }

    fn transfer(&self, bytes: u32) -> Time {
        Time::of_bytes(bytes.into(), self.channel_gb_per_s)
    }

    fn next_channel(&self) -> &Path {
        let channel = self.next.get();
        self.next.set((channel + 1) % self.channels.len());
        &self.channels[channel]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::run;

    /// Timings of a channel of 64 bits, in ns.
    struct Timings {
        name: &'static str,
        gb_per_s: f64,
        /// Time in which at most four rows are opened.
        faw: f64,
        /// Between two bursts of 64 B in the same group of banks, and the number of groups.
        ccd_l: f64,
        groups: f64,
        /// Between two rows of the same bank, and the number of banks.
        rc: f64,
        banks: f64,
    }

    const TIMINGS: [Timings; 2] = [
        Timings { name: "DDR3-1600", gb_per_s: 12.8, faw: 30.0, ccd_l: 5.0, groups: 1.0, rc: 48.75, banks: 8.0 },
        Timings { name: "DDR4-2133", gb_per_s: 17.067, faw: 21.0, ccd_l: 5.625, groups: 4.0, rc: 46.5, banks: 16.0 },
    ];

    /// Returns how long a number of random accesses takes.
    fn span(dram: &Dram, bytes: u32, count: u32) -> Time {
        let clock = Clock::default();
        let access = async |_: u32| clock.until(dram.reserve(clock.now(), bytes)).await;
        run(&clock, 64, (0..count).map(access));
        clock.now()
    }

    #[test]
    fn random_reads_reach_the_bound_of_the_timings() {
        for Timings { name, gb_per_s, faw, ccd_l, groups, rc, banks } in TIMINGS {
            let access_ns = (faw / 4.0_f64).max(rc / banks);
            for channels in [1, 3] {
                for bytes in [64, 256, 512] {
                    let dram = Dram::new(channels, gb_per_s * f64::from(channels), access_ns);
                    let bursts = f64::from(bytes / 64);
                    let bounds = [64.0 * bursts / gb_per_s, bursts * ccd_l / groups, faw / 4.0, rc / banks];
                    let bound = bounds.into_iter().fold(0.0, f64::max);
                    let one = span(&dram, bytes, 3000).as_ns() / 3000.0 * f64::from(channels);
                    assert!((one / bound - 1.0).abs() < 0.1, "{name}, {channels} channels, {bytes} B: {one}, {bound}");
                }
            }
        }
    }

    #[test]
    fn a_program_gets_what_the_accesses_leave_and_opens_no_row_for_a_line() {
        let alone = |access_ns: f64| {
            let (dram, clock) = (Dram::new(4, 60.0, access_ns), Clock::default());
            run(&clock, 1, [dram.stream(&clock, 10_000)]);
            640e3 / clock.now().as_ns()
        };
        assert!((59.5..60.1).contains(&alone(0.0)) && (59.5..60.1).contains(&alone(20.0)));
        let (dram, clock) = (Dram::new(4, 60.0, 0.0), Clock::default());
        let end = Cell::new(Time::ZERO);
        let program = async {
            dram.stream(&clock, 10_000).await;
            end.set(clock.now());
        };
        // A device reads a line every 8 ns, which is 8 GB/s.
        let device = async {
            while end.get() == Time::ZERO {
                dram.reserve(clock.now(), 64);
                clock.after(Time::from_ns(8.0)).await;
            }
        };
        run(&clock, 1, [clock::both(program, device)]);
        let left = 640e3 / end.get().as_ns();
        assert!((51.0..53.0).contains(&left), "{left} of 60 GB/s");
        assert!((0.99..1.001).contains(&dram.busy().share_of(end.get())));
    }
}
