//! The settings of a comparison.

use std::path::PathBuf;
use std::time::Duration;

use skep_measure::Effort;

use crate::program::number;

/// Rounds for each case.
pub(crate) const ROUNDS: usize = 9;

/// About how many seconds the load of a pair takes.
const PAIR_SECONDS: f64 = 0.7e-6;

/// The settings of a comparison, as the programs take them.
#[derive(clap::Args, Clone, Debug)]
pub struct Plan {
    /// Pairs in every server.
    #[arg(long, default_value_t = 10_000_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub keys: u64,
    /// Requests in a batch, for the figures that compare all servers at one depth.
    #[arg(long, default_value_t = 64, value_parser = number(1..=1024))]
    pub depth: usize,
    /// Connections of the client.
    #[arg(long, default_value_t = 16, value_parser = number(1..=1024))]
    pub connections: usize,
    /// Seconds for a case, all its rounds together: above 0, up to 3600.
    #[arg(long, default_value_t = 5.0, value_parser = seconds)]
    pub seconds: f64,
    /// The program skep.
    #[arg(long, default_value = "target/release/skep")]
    pub skep: PathBuf,
}

impl Plan {
    /// Returns the rounds and slices.
    pub(crate) fn effort(&self) -> Effort {
        Effort { rounds: ROUNDS, slice: Duration::from_secs_f64(self.seconds / ROUNDS as f64) }
    }

    /// Returns about how many seconds the load of a server takes.
    pub(crate) fn load_seconds(&self) -> f64 {
        self.keys as f64 * PAIR_SECONDS
    }
}

fn seconds(text: &str) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|seconds| *seconds > 0.0 && *seconds <= 3600.0)
        .ok_or("choose above 0, up to 3600".to_owned())
}
