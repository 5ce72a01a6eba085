//! The figures of a server for one verb, and ratios of them.

use skep_measure::{Figure, median};

use super::template::Verb;
use crate::figures::percent;

/// Depths at which every server is measured; the best one counts.
pub(super) const DEPTHS: [usize; 4] = [16, 64, 256, 1024];

/// The figures of one server with one protocol.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct Row {
    /// Name of the server, and protocol.
    pub server: String,
    /// The command.
    pub verb: Verb,
    /// Growth of its resident memory during the load, per pair.
    pub bytes_per_pair: f64,
    /// The figures for each depth, from the smallest.
    pub depths: Vec<DepthFigures>,
}

/// The figures at one depth.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct DepthFigures {
    /// Requests in a batch; each connection has one batch in flight.
    pub depth: usize,
    /// Requests per second.
    pub ops_per_s: Figure,
    /// Requests per second of each round. All servers are measured in each round.
    pub rates: Vec<f64>,
    /// Processor time of the server, in cores.
    pub server_cpu: f64,
    /// Processor time of the client, in cores; it polls, so it uses a whole core.
    pub client_cpu: f64,
    /// Share of the time in which the client waited for replies.
    pub client_waiting: f64,
}

/// A figure of Skep divided by that of another server.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct Ratio {
    /// Name of the comparison.
    pub name: String,
    /// The ratio, calculated round by round.
    pub ratio: Figure,
}

impl DepthFigures {
    /// Formats the processor time of server and client, and the share of the time in which the client waited.
    pub(super) fn load_text(&self) -> String {
        let [server, client, waiting] = [self.server_cpu, self.client_cpu, self.client_waiting].map(percent);
        format!("{server} / {client}, {waiting}")
    }
}

impl Row {
    /// Computes the figures from the rates of the rounds.
    pub(super) fn compute(&mut self) {
        self.depths.iter_mut().for_each(|figures| figures.ops_per_s = Figure::of(&figures.rates));
    }

    /// Returns the rates of the rounds at this depth.
    pub(super) fn at(&self, depth: usize) -> Option<&[f64]> {
        self.depths.iter().find(|figures| figures.depth == depth).map(|figures| &figures.rates[..])
    }

    /// Returns the rates at the depth with the highest median, of those that all servers are measured at.
    pub(super) fn best(&self) -> Option<&[f64]> {
        DEPTHS.iter().filter_map(|depth| self.at(*depth)).max_by(|a, b| median(a).total_cmp(&median(b)))
    }
}
