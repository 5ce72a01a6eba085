//! The conditions of a comparison of servers.

use super::child::Setting;
use super::plan::{Plan, ROUNDS};

/// The conditions of a comparison, as its result records them.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct Conditions {
    /// Pairs in every server.
    pub keys: u64,
    /// Requests in a batch, for the figures that compare all servers at one depth.
    pub depth: usize,
    /// Connections of the client.
    pub connections: usize,
    /// Seconds for a case, all its rounds together.
    pub seconds: f64,
    /// Rounds for each case.
    pub rounds: usize,
    /// The core of the servers and that of the client.
    pub cores: [usize; 2],
}

impl Conditions {
    /// Returns the conditions of a comparison with this plan.
    pub(super) fn new(plan: &Plan, setting: &Setting) -> Self {
        Conditions {
            keys: plan.keys,
            depth: plan.depth,
            connections: plan.connections,
            seconds: plan.seconds,
            rounds: ROUNDS,
            cores: [setting.server_cores[0], setting.client_cores[0]],
        }
    }
}
