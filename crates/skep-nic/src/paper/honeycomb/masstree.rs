//! The rates of eRPC-Masstree, which the paper does not give: those with which our rates have some of the paper's ratios.
//! So what is compared with them is a calculation.

/// Our rate of insertions over Masstree's, and of SCANs of three items (Figure 11), of GETs and of SCANs of 24 items
/// (Figures 10 and 13).
pub(super) const INSERTIONS: f64 = 0.58;
pub(super) const SCANS_OF_THREE: f64 = 2.3;
pub(super) const GETS: f64 = 1.9;
pub(super) const SCANS_OF_24: f64 = 4.0;

/// Times of its operations, in microseconds of its whole socket.
#[derive(Clone, Copy, Debug)]
pub(super) struct Masstree {
    pub(super) insertion_us: f64,
    pub(super) scan_of_three_us: f64,
}

impl Masstree {
    /// Returns the times that follow from our rates, in millions a second.
    pub(super) fn from_ours(insertions: f64, scans_of_three: f64) -> Self {
        Masstree { insertion_us: INSERTIONS / insertions, scan_of_three_us: SCANS_OF_THREE / scans_of_three }
    }

    /// Returns the rate of a mix with this share of reads, each of this time.
    pub(super) fn rate(self, reads: f64, read_us: f64) -> f64 {
        1.0 / (reads * read_us + (1.0 - reads) * self.insertion_us)
    }
}
