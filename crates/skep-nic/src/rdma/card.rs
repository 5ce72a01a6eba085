//! A typed description of an RDMA NIC and its server, its TOML form, and HERD's (sections 3.3 and 4.1.1).
//!
//! The link, and the words for a refused value, are those of [`crate::hardware`].

use serde::{Deserialize, Serialize};

use crate::hardware::{HardwareError, HostDram, Pcie, bounds, form, refuse, table_of};

/// An RDMA NIC in its server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RdmaNic {
    /// The name in reports.
    pub name: String,
    /// A process that posts operations.
    pub process: Process,
    /// The path of work requests from the CPU to the NIC.
    pub pio: Pio,
    /// The parts of a work request.
    pub work_request: WorkRequest,
    /// The engine that handles verbs.
    pub engine: Engine,
    /// The cache of contexts of queue pairs.
    pub contexts: Contexts,
    /// The network to the other NICs.
    pub network: RdmaNetwork,
    /// The link to the host's memory.
    pub pcie: Pcie,
    /// Memory of the host.
    pub host_dram: HostDram,
}

/// A process that posts operations.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Process {
    /// Time of its core to post an operation.
    pub post_ns: f64,
    /// Operations that it has posted and the NIC has not handled.
    pub operations_in_flight: u32,
}

/// Programmed input and output (PIO): the CPU writes to the NIC.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pio {
    /// Bytes of a write: a cache line with write combining, a word without it.
    pub unit_bytes: u32,
    /// Writes of all cores together, in millions per second.
    pub million_units_per_s: f64,
}

/// The parts of a work request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkRequest {
    /// Bytes of the part that all have.
    pub control_bytes: u32,
    /// Bytes of the remote address of a READ or WRITE.
    pub remote_address_bytes: u32,
    /// Bytes of the address of a datagram.
    pub datagram_bytes: u32,
    /// Bytes before a payload that is inlined.
    pub inline_header_bytes: u32,
    /// Bytes of a pointer to a payload.
    pub data_pointer_bytes: u32,
}

/// The engine that handles verbs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Engine {
    /// Verbs that it handles at a time. All but one wait for the contexts of their queue pairs.
    pub units: u32,
    /// Largest rate of outbound WRITEs and SENDs, in millions per second.
    pub outbound_write_mops: f64,
    /// Largest rate of outbound READs, in millions per second.
    pub outbound_read_mops: f64,
    /// Largest rate of inbound WRITEs, in millions per second.
    pub inbound_write_mops: f64,
    /// READs of a queue pair that wait for their data.
    pub reads_in_flight: u32,
}

/// The cache of contexts of queue pairs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Contexts {
    /// Number of contexts on the NIC.
    pub cached: u32,
    /// Bytes of a context, which are read from the host's memory.
    pub bytes: u32,
}

/// The network to the other NICs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RdmaNetwork {
    /// Time from the engine of one NIC through another NIC and back.
    pub round_trip_us: f64,
}

/// Bytes of a word that a CPU writes.
const WORD_BYTES: u32 = 8;
const HERD: &str = include_str!("../../boards/rdma-nic.toml");

impl RdmaNic {
    /// Returns the NIC of HERD's evaluation.
    pub fn of_herd() -> Self {
        RdmaNic::from_toml(HERD).expect("the card of the crate is valid")
    }

    /// Parses a description and checks it.
    pub fn from_toml(text: &str) -> Result<Self, HardwareError> {
        let card: RdmaNic = table_of(text)?.try_into().map_err(|error| form(&error))?;
        card.check()?;
        Ok(card)
    }

    /// Checks that all values are possible.
    pub fn check(&self) -> Result<(), HardwareError> {
        let RdmaNic { process, pio, work_request, engine, contexts, network, pcie, host_dram, .. } = self;
        bounds::sizes_and_times(&[
            ("process.post_ns", process.post_ns),
            ("pio.million_units_per_s", pio.million_units_per_s),
            ("engine.outbound_write_mops", engine.outbound_write_mops),
            ("engine.outbound_read_mops", engine.outbound_read_mops),
            ("engine.inbound_write_mops", engine.inbound_write_mops),
            ("network.round_trip_us", network.round_trip_us),
            ("host_dram.size_gib", host_dram.size_gib),
            ("host_dram.bandwidth_gb_per_s", host_dram.bandwidth_gb_per_s),
        ])?;
        bounds::times_or_zero(&[("host_dram.access_ns", host_dram.access_ns)])?;
        bounds::counts(&[
            ("process.operations_in_flight", process.operations_in_flight),
            ("pio.unit_bytes", pio.unit_bytes),
            ("work_request.control_bytes", work_request.control_bytes),
            ("work_request.remote_address_bytes", work_request.remote_address_bytes),
            ("work_request.datagram_bytes", work_request.datagram_bytes),
            ("work_request.inline_header_bytes", work_request.inline_header_bytes),
            ("work_request.data_pointer_bytes", work_request.data_pointer_bytes),
            ("engine.units", engine.units),
            ("engine.reads_in_flight", engine.reads_in_flight),
            ("contexts.cached", contexts.cached),
            ("contexts.bytes", contexts.bytes),
            ("host_dram.channels", host_dram.channels),
        ])?;
        pcie.check()?;
        self.check_together()
    }

    /// Checks values that are possible alone but may contradict each other.
    fn check_together(&self) -> Result<(), HardwareError> {
        let unit = self.pio.unit_bytes;
        if unit < WORD_BYTES || !unit.is_power_of_two() {
            return refuse("pio.unit_bytes", format!("{unit} is not a power of two from {WORD_BYTES}"));
        }
        let (units, tags) = (self.engine.units, self.pcie.read_tags);
        if units > tags {
            let reason = format!("{units} is more than the {tags} of pcie.read_tags, and each may read a context");
            return refuse("engine.units", reason);
        }
        if self.pcie.links != 1 {
            return refuse("pcie.links", format!("{} is not 1: the NIC has one link", self.pcie.links));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(from: &str, to: &str) -> String {
        assert!(HERD.contains(from), "{from}");
        RdmaNic::from_toml(&HERD.replacen(from, to, 1)).expect_err(to).to_string()
    }

    #[test]
    fn the_card_is_valid_and_every_value_has_a_source() {
        let card = RdmaNic::of_herd();
        let text = toml::to_string(&card).expect("numbers and text are valid TOML");
        assert_eq!(RdmaNic::from_toml(&text), Ok(card));
        let values = HERD.lines().filter(|line| line.contains(" = ") && !line.starts_with('#'));
        for line in values.filter(|line| !line.starts_with("name") && !line.ends_with('[')) {
            assert!(line.contains(" # "), "{line}");
        }
        let rates: Vec<&str> = HERD.lines().filter(|line| line.contains("_mops = ")).collect();
        assert!(rates.len() == 3 && rates.iter().all(|line| line.contains(" # given: ")), "{rates:?}");
    }

    #[test]
    fn an_invalid_description_is_refused_with_field_value_and_reason() {
        for (from, to, parts) in [
            ("units = 6", "", ["units", "missing", "engine"]),
            ("units = 6", "units = 6\nlanes = 4", ["lanes", "unknown", "engine"]),
            ("units = 6", "units = 0", ["engine.units", "0 is not", "between 1"]),
            ("units = 6", "units = 65", ["engine.units", "65 is more", "64 of pcie.read_tags"]),
            ("cached = 64", "cached = -1", ["cached", "-1", "contexts"]),
            ("bytes = 256 ", "bytes = 0 ", ["contexts.bytes", "0 is not", "between 1"]),
            ("unit_bytes = 64", "unit_bytes = 4", ["pio.unit_bytes", "4 is not", "from 8"]),
            ("unit_bytes = 64", "unit_bytes = 48", ["pio.unit_bytes", "48 is not", "power of two"]),
            (
                "million_units_per_s = 52.0",
                "million_units_per_s = 0.0",
                ["pio.million_units_per_s", "0 is", "millionth"],
            ),
            ("post_ns = 150.0", "post_ns = nan", ["process.post_ns", "NaN", "millionth"]),
            (
                "outbound_read_mops = 22.0",
                "outbound_read_mops = -22.0",
                ["engine.outbound_read_mops", "-22", "billion"],
            ),
            ("datagram_bytes = 48", "datagram_bytes = 0", ["work_request.datagram_bytes", "0 is not", "between 1"]),
            ("links = 1", "links = 2", ["pcie.links", "2 is not 1", "one link"]),
            ("read_tags = 64", "read_tags = 0", ["pcie.read_tags", "0 is not", "between 1"]),
            ("access_ns = 0.0", "access_ns = -1.0", ["host_dram.access_ns", "-1 is not", "billion"]),
        ] {
            let refusal = refusal(from, to);
            assert!(parts.iter().all(|part| refusal.contains(part)), "{to}: {refusal}");
        }
    }
}
