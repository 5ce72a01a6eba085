//! A typed description of the hardware that is modelled, its TOML form, and the paper's boards.
//!
//! Every constant of the model stands here, in units that its name ends with. What the paper gives and what was fitted
//! is said beside the values, in `boards/kv-direct.toml`, which is also the pattern for a board of one's own.
//!
//! A description is checked as a whole before anything runs: the first field that cannot be is named, with the reason.

use serde::{Deserialize, Serialize};

use crate::time::Time;

/// A NIC and the server that it sits in.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hardware {
    /// What to call it in reports.
    pub name: String,
    /// What the NICs have around them.
    pub server: Server,
    /// The pipeline that works on operations.
    pub processor: Processor,
    /// The way to the host's memory.
    pub pcie: Pcie,
    /// Memory on the NIC.
    pub nic_dram: NicDram,
    /// Memory of the host.
    pub host_dram: HostDram,
    /// Cores of the host that work for the NIC.
    pub host_cpu: HostCpu,
    /// The way to the clients.
    pub network: Network,
}

/// The server: NICs, all alike, and the memory nodes that they are divided over. A NIC has a region of its own in the
/// memory of its node, and keys of its own (section 6.2).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Server {
    /// Programmable NICs.
    pub nics: u32,
    /// Processors with memory and PCIe lanes of their own, among which the NICs take turns.
    pub memory_nodes: u32,
}

/// The pipeline: one operation a cycle.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Processor {
    /// Its clock.
    pub clock_mhz: f64,
    /// Operations under way at most.
    pub operations_in_flight: u32,
    /// Mean delay of operations above which the congestion window shrinks, wires included and the network's delay not.
    pub delay_target_us: f64,
}

/// PCIe links, all alike, and the DMA engine before each.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pcie {
    /// Links of this NIC.
    pub links: u32,
    /// Of each link, in each direction.
    pub bandwidth_gb_per_s: f64,
    /// Header and padding of a transaction-layer packet (TLP).
    pub tlp_overhead_bytes: u32,
    /// What the receiver of a TLP sends back for it: acknowledgement and credits.
    pub link_packet_bytes: u32,
    /// Most bytes of payload in one TLP, and most that one read asks for.
    pub payload_max_bytes: u32,
    /// Reads that can be told apart while they are under way.
    pub read_tags: u32,
    /// Reads that the host accepts before it gives credits back.
    pub nonposted_credits: u32,
    /// Writes that the host accepts before it gives credits back.
    pub posted_credits: u32,
    /// Of a packet and its answer, without DMA engine and memory.
    pub round_trip_ns: f64,
    /// A read of 64 bytes from the processor's cache over an idle link, with everything.
    pub read_cached_ns: f64,
    /// The same from memory, as points of the distribution: percentile and latency, from 0 to 100 %.
    pub read_uncached_ns: Vec<(f64, f64)>,
    /// Between the pipeline and the link.
    pub dma_engine: DmaEngine,
}

/// The path between the pipeline and a link. It is half duplex: what was read and what is to be written take turns.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DmaEngine {
    /// Its clock.
    pub clock_mhz: f64,
    /// Payload of a cycle.
    pub word_bytes: u32,
    /// Cycles for a written TLP besides those of its payload.
    pub write_header_cycles: u32,
    /// Cycles for a TLP that answers a read, besides those of its payload.
    pub read_header_cycles: u32,
    /// Cycles lost between a read and a write.
    pub turnaround_cycles: u32,
    /// Queues among which reads take turns. In each of them answers are delivered in the order of the requests.
    pub ordered_queues: u32,
}

/// Memory on the NIC: a direct-mapped cache of host lines.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NicDram {
    /// Its size.
    pub size_gib: f64,
    /// Of all channels.
    pub bandwidth_gb_per_s: f64,
    /// Of one line when nothing else is under way.
    pub latency_ns: f64,
    /// Bits of a line's ECC that can hold its tag and its dirty flag.
    pub spare_bits: u32,
}

/// Memory of the host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostDram {
    /// The part that holds keys and values: the region of one NIC.
    pub size_gib: f64,
    /// Of one memory node: what the accesses of its NICs share.
    pub bandwidth_gb_per_s: f64,
}

/// Cores that gather and scatter for the NIC (section 6.1).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostCpu {
    /// So many for each link. Without any the NIC reads and writes the host's memory itself.
    pub cores_per_link: u32,
    /// A random access to one line, with as many others under way as the core can have.
    pub first_line_ns: f64,
    /// Each line that follows it.
    pub next_line_ns: f64,
    /// Copying a line between two queues that are in the cache.
    pub copy_line_ns: f64,
    /// Operations that are prefetched together.
    pub doorbell_operations: u32,
}

/// The network.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Network {
    /// In each direction.
    pub bandwidth_gb_per_s: f64,
    /// From client to server without any queue.
    pub delay_us: f64,
    /// Header and padding of a packet.
    pub header_bytes: u32,
    /// A packet with its header.
    pub packet_max_bytes: u32,
    /// Header of an operation.
    pub operation_header_bytes: u32,
    /// The same if sizes are those of the operation before.
    pub repeated_header_bytes: u32,
}

/// Why a description is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HardwareError {
    /// A field is missing, unknown or of another type.
    #[error("{0}")]
    Form(String),
    /// A value that cannot be, alone or beside others.
    #[error("{field}: {reason}")]
    Value {
        /// Its name, with that of its table.
        field: &'static str,
        /// What is wrong with it.
        reason: String,
    },
}

/// The name of a board, and the board.
pub type Preset = (&'static str, fn() -> Hardware);

/// Most links: each of them has a seed and queues of its own.
const LINKS_MAX: u32 = 64;

/// The board of the paper.
const KV_DIRECT: &str = include_str!("../boards/kv-direct.toml");

impl Hardware {
    /// The boards that come with the crate, by name.
    pub const PRESETS: &[Preset] = &[
        ("kv-direct", Hardware::kv_direct),
        ("kv-direct-one-link", Hardware::kv_direct_one_link),
        ("kv-direct-ten-nics", Hardware::kv_direct_ten_nics),
    ];

    /// A board of [`Hardware::PRESETS`].
    pub fn preset(name: &str) -> Option<Self> {
        Hardware::PRESETS.iter().find(|(preset, _)| *preset == name).map(|(_, board)| board())
    }

    /// The paper's NIC with both of its PCIe links (section 4).
    pub fn kv_direct() -> Self {
        Hardware::from_toml(KV_DIRECT).expect("the board that comes with the crate is valid")
    }

    /// The paper's NIC with one link: Figure 3 and section 6.1.
    pub fn kv_direct_one_link() -> Self {
        let mut board = Hardware::kv_direct();
        board.name += "-one-link";
        board.pcie.links = 1;
        board
    }

    /// A server with ten of the paper's NICs, each with one link: section 6.2.
    ///
    /// Its 80 lanes are those of two processors. The paper does not say how large the regions are: the benchmarked server
    /// has 128 GiB (section 5), so ten of 12 GiB leave 8 to the system, and a region cannot be much larger.
    pub fn kv_direct_ten_nics() -> Self {
        let mut board = Hardware::kv_direct_one_link();
        board.name = "kv-direct-ten-nics".to_owned();
        board.server = Server { nics: 10, memory_nodes: 2 };
        board.host_dram.size_gib = 12.0;
        board
    }

    /// One of the server's NICs, alone, with its part of what they share.
    pub fn one_nic(&self) -> Self {
        let mut nic = self.clone();
        let Server { nics, memory_nodes } = nic.server;
        nic.host_dram.bandwidth_gb_per_s /= f64::from(nics.div_ceil(memory_nodes));
        nic.server = Server { nics: 1, memory_nodes: 1 };
        nic
    }

    /// Reads a description and checks it.
    pub fn from_toml(text: &str) -> Result<Self, HardwareError> {
        let table: toml::Table = text.parse().map_err(|error: toml::de::Error| form(&error))?;
        let hardware: Hardware = table.try_into().map_err(|error| form(&error))?;
        hardware.check()?;
        Ok(hardware)
    }

    /// Writes the description as it can be read again.
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("numbers and text are always valid TOML")
    }

    /// NIC memory over host memory: k of section 3.3.4.
    pub fn memory_ratio(&self) -> f64 {
        self.nic_dram.size_gib / self.host_dram.size_gib
    }

    /// Refuses what cannot be.
    pub fn check(&self) -> Result<(), HardwareError> {
        let Hardware { processor, pcie, nic_dram, host_dram, host_cpu, network, .. } = self;
        let engine = &pcie.dma_engine;
        for (field, value) in [
            ("processor.clock_mhz", processor.clock_mhz),
            ("processor.delay_target_us", processor.delay_target_us),
            ("pcie.bandwidth_gb_per_s", pcie.bandwidth_gb_per_s),
            ("pcie.round_trip_ns", pcie.round_trip_ns),
            ("pcie.read_cached_ns", pcie.read_cached_ns),
            ("pcie.dma_engine.clock_mhz", engine.clock_mhz),
            ("nic_dram.size_gib", nic_dram.size_gib),
            ("nic_dram.bandwidth_gb_per_s", nic_dram.bandwidth_gb_per_s),
            ("nic_dram.latency_ns", nic_dram.latency_ns),
            ("host_dram.size_gib", host_dram.size_gib),
            ("host_dram.bandwidth_gb_per_s", host_dram.bandwidth_gb_per_s),
            ("host_cpu.first_line_ns", host_cpu.first_line_ns),
            ("host_cpu.next_line_ns", host_cpu.next_line_ns),
            ("host_cpu.copy_line_ns", host_cpu.copy_line_ns),
            ("network.bandwidth_gb_per_s", network.bandwidth_gb_per_s),
            ("network.delay_us", network.delay_us),
        ] {
            // Beyond these bounds of any of these units, sums of picoseconds could overflow.
            if !(1e-6..=1e9).contains(&value) {
                return refuse(field, format!("{value} is not between a millionth and a billion"));
            }
        }
        for (field, value) in [
            ("server.nics", self.server.nics),
            ("server.memory_nodes", self.server.memory_nodes),
            ("processor.operations_in_flight", processor.operations_in_flight),
            ("pcie.read_tags", pcie.read_tags),
            ("pcie.nonposted_credits", pcie.nonposted_credits),
            ("pcie.posted_credits", pcie.posted_credits),
            ("pcie.dma_engine.ordered_queues", engine.ordered_queues),
            ("host_cpu.doorbell_operations", host_cpu.doorbell_operations),
        ] {
            if !(1..=1 << 16).contains(&value) {
                return refuse(field, format!("{value} is not between 1 and 65536"));
            }
        }
        if !(1..=LINKS_MAX).contains(&pcie.links) {
            return refuse("pcie.links", format!("{} is not between 1 and {LINKS_MAX}", pcie.links));
        }
        for (field, value) in [
            ("host_cpu.cores_per_link", host_cpu.cores_per_link),
            ("pcie.tlp_overhead_bytes", pcie.tlp_overhead_bytes),
            ("pcie.link_packet_bytes", pcie.link_packet_bytes),
            ("pcie.dma_engine.write_header_cycles", engine.write_header_cycles),
            ("pcie.dma_engine.read_header_cycles", engine.read_header_cycles),
            ("pcie.dma_engine.turnaround_cycles", engine.turnaround_cycles),
            ("network.header_bytes", network.header_bytes),
            ("network.operation_header_bytes", network.operation_header_bytes),
            ("network.packet_max_bytes", network.packet_max_bytes),
        ] {
            if value > 1 << 16 {
                return refuse(field, format!("{value} is more than 65536"));
            }
        }
        self.check_together()
    }

    /// Values that are possible alone and contradict each other.
    fn check_together(&self) -> Result<(), HardwareError> {
        let Hardware { server, pcie, nic_dram, host_dram, network, .. } = self;
        if server.memory_nodes > server.nics {
            let reason = format!("{} of which some have no NIC, there are {}", server.memory_nodes, server.nics);
            return refuse("server.memory_nodes", reason);
        }
        let payload = pcie.payload_max_bytes;
        if !(64..=4096).contains(&payload) || !payload.is_power_of_two() {
            return refuse("pcie.payload_max_bytes", format!("{payload} is not one of 64, 128, … 4096"));
        }
        if !pcie.dma_engine.word_bytes.is_power_of_two() || pcie.dma_engine.word_bytes > payload {
            let word = pcie.dma_engine.word_bytes;
            return refuse("pcie.dma_engine.word_bytes", format!("{word} is not a power of two up to {payload}"));
        }
        let points = &pcie.read_uncached_ns;
        let ends = (points.first().map(|point| point.0), points.last().map(|point| point.0));
        if ends != (Some(0.0), Some(100.0)) {
            return refuse("pcie.read_uncached_ns", "the percentiles do not go from 0 to 100".to_owned());
        }
        if let Some(pair) = points.windows(2).find(|pair| !(pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1)) {
            return refuse("pcie.read_uncached_ns", format!("{:?} does not come before {:?}", pair[0], pair[1]));
        }
        let own = self.idle_read_of_the_engine().as_ns();
        let fastest = points[0].1.min(pcie.read_cached_ns);
        if !(fastest > own && points[points.len() - 1].1 <= 1e9) {
            let reason = format!("{fastest} ns for 64 bytes, of which the link and its engine alone take {own:.1} ns");
            return refuse("pcie.read_uncached_ns", reason);
        }
        if pcie.round_trip_ns > fastest {
            let reason = format!("{} is more than the {fastest} ns of a whole read", pcie.round_trip_ns);
            return refuse("pcie.round_trip_ns", reason);
        }
        let ratio = host_dram.size_gib / nic_dram.size_gib;
        if ratio < 1.0 {
            return refuse("nic_dram.size_gib", format!("{} is more than host_dram.size_gib", nic_dram.size_gib));
        }
        let tag_bits = ratio.ceil().log2().ceil() as u32;
        if nic_dram.spare_bits > 16 || tag_bits + 1 > nic_dram.spare_bits {
            let reason = format!(
                "{} of at most 16, where {tag_bits} bits of tag and a dirty flag are needed",
                nic_dram.spare_bits
            );
            return refuse("nic_dram.spare_bits", reason);
        }
        if network.header_bytes + network.operation_header_bytes >= network.packet_max_bytes {
            let reason = format!("{} leaves no room for an operation", network.packet_max_bytes);
            return refuse("network.packet_max_bytes", reason);
        }
        if network.repeated_header_bytes > network.operation_header_bytes {
            let reason = format!("{} is more than operation_header_bytes", network.repeated_header_bytes);
            return refuse("network.repeated_header_bytes", reason);
        }
        Ok(())
    }

    /// What a read of 64 bytes spends in the engine and on an idle link. The rest of its latency is the host's.
    pub(crate) fn idle_read_of_the_engine(&self) -> Time {
        let pcie = &self.pcie;
        let bytes = 2 * (pcie.tlp_overhead_bytes + pcie.link_packet_bytes) + 64;
        let cycles = pcie.dma_engine.read_header_cycles + 64_u32.div_ceil(pcie.dma_engine.word_bytes.max(1));
        Time::of_bytes(bytes.into(), pcie.bandwidth_gb_per_s)
            + Time::cycle(pcie.dma_engine.clock_mhz) * u64::from(cycles)
    }
}

fn refuse(field: &'static str, reason: String) -> Result<(), HardwareError> {
    Err(HardwareError::Value { field, reason })
}

/// The first line says what is wrong, the last in which table.
fn form(error: &toml::de::Error) -> HardwareError {
    let text = error.to_string();
    HardwareError::Form(text.lines().map(str::trim).collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use rand::{RngExt, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::*;
    use crate::clock::{Clock, run};
    use crate::dispatcher::{Dispatcher, Extent, Policy};

    fn refusal(from: &str, to: &str) -> String {
        assert!(KV_DIRECT.contains(from), "{from}");
        Hardware::from_toml(&KV_DIRECT.replacen(from, to, 1)).expect_err(to).to_string()
    }

    #[test]
    fn the_board_is_valid_and_read_back() {
        let board = Hardware::kv_direct();
        assert_eq!(Hardware::from_toml(&board.to_toml()), Ok(board.clone()));
        assert_eq!(board.memory_ratio(), 1.0 / 16.0);
        for (name, board) in Hardware::PRESETS {
            assert_eq!(board().check(), Ok(()));
            assert_eq!(Hardware::preset(name).map(|board| board.name), Some((*name).to_owned()));
        }
        assert_eq!(Hardware::preset("kv-indirect"), None);
    }

    #[test]
    fn what_is_missing_unknown_or_of_another_type_is_named_with_its_table() {
        for (from, to, parts) in [
            ("read_tags = 64", "", ["read_tags", "missing", "pcie"]),
            ("word_bytes = 32", "", ["word_bytes", "missing", "pcie.dma_engine"]),
            ("read_tags = 64", "read_tags = 64\nread_tag = 64", ["read_tag", "unknown", "pcie"]),
            ("posted_credits = 88", "posted_credits = -88", ["posted_credits", "-88", "pcie"]),
            ("[network]", "[netwerk]", ["netwerk", "unknown", "network"]),
            ("links = 2", "links = \"two\"", ["links", "two", "pcie"]),
            ("delay_us = 2.0", "delay_us = ", ["delay_us", "", ""]),
        ] {
            let refusal = refusal(from, to);
            assert!(parts.iter().all(|part| refusal.contains(part)), "{to}: {refusal}");
        }
    }

    #[test]
    fn what_cannot_be_is_refused_with_its_field_and_the_reason() {
        for (from, to, field, reason) in [
            ("clock_mhz = 180.0", "clock_mhz = -180.0", "processor.clock_mhz", "-180"),
            ("clock_mhz = 180.0", "clock_mhz = nan", "processor.clock_mhz", "NaN"),
            ("delay_us = 2.0", "delay_us = inf", "network.delay_us", "inf"),
            ("clock_mhz = 180.0", "clock_mhz = 1e-300", "processor.clock_mhz", "a millionth"),
            ("bandwidth_gb_per_s = 5.0", "bandwidth_gb_per_s = 0.0", "network.bandwidth_gb_per_s", "0 is not"),
            ("links = 2", "links = 0", "pcie.links", "between 1"),
            ("nics = 1", "nics = 0", "server.nics", "between 1"),
            ("memory_nodes = 1", "memory_nodes = 2", "server.memory_nodes", "no NIC"),
            ("links = 2", "links = 65", "pcie.links", "and 64"),
            ("read_tags = 64", "read_tags = 70000", "pcie.read_tags", "70000"),
            ("[100, 1368]", "[100, nan]", "pcie.read_uncached_ns", "does not come before"),
            ("header_bytes = 88", "header_bytes = 4294967295", "network.header_bytes", "65536"),
            ("operation_header_bytes = 3", "operation_header_bytes = 1500", "network.packet_max_bytes", "no room"),
            ("turnaround_cycles = 1", "turnaround_cycles = 70000", "pcie.dma_engine.turnaround_cycles", "65536"),
            ("payload_max_bytes = 256", "payload_max_bytes = 100", "pcie.payload_max_bytes", "100"),
            ("word_bytes = 32", "word_bytes = 0", "pcie.dma_engine.word_bytes", "power of two"),
            ("word_bytes = 32", "word_bytes = 512", "pcie.dma_engine.word_bytes", "up to 256"),
            ("[0, 748]", "[1, 748]", "pcie.read_uncached_ns", "from 0 to 100"),
            ("[10, 836]", "[10, 700]", "pcie.read_uncached_ns", "does not come before"),
            ("[0, 748], [5, 780]", "[0, 20], [5, 780]", "pcie.read_uncached_ns", "link and its engine"),
            ("round_trip_ns = 500.0", "round_trip_ns = 900.0", "pcie.round_trip_ns", "whole read"),
            ("size_gib = 4.0", "size_gib = 65.0", "nic_dram.size_gib", "host_dram.size_gib"),
            ("spare_bits = 6", "spare_bits = 4", "nic_dram.spare_bits", "4 bits of tag"),
            ("packet_max_bytes = 1500", "packet_max_bytes = 91", "network.packet_max_bytes", "no room"),
            ("repeated_header_bytes = 1", "repeated_header_bytes = 9", "network.repeated_header_bytes", "9 is more"),
        ] {
            let refusal = refusal(from, to);
            assert!(refusal.starts_with(field) && refusal.contains(reason), "{to}: {refusal}");
        }
    }

    /// The tables and keys of all values, and each value.
    fn leaves(table: &toml::Table, path: &mut Vec<String>, found: &mut Vec<(Vec<String>, toml::Value)>) {
        for (key, value) in table {
            path.push(key.clone());
            match value {
                toml::Value::Table(inner) => leaves(inner, path, found),
                value => found.push((path.clone(), value.clone())),
            }
            path.pop();
        }
    }

    fn set(table: &mut toml::Table, path: &[String], value: Option<toml::Value>) {
        match (path, value) {
            ([key], Some(value)) => _ = table.insert(key.clone(), value),
            ([key], None) => _ = table.remove(key),
            ([outer, inner @ ..], value) => {
                set(table[outer].as_table_mut().expect("it is a table"), inner, value);
            }
            ([], _) => unreachable!("every value has a key"),
        }
    }

    /// One value after the other is left out, of another type, or out of bounds: named, with the reason.
    #[test]
    fn every_field_is_checked() {
        use toml::Value::{Boolean, Float, Integer, String};
        let board: toml::Table = KV_DIRECT.parse().unwrap();
        let mut all = Vec::new();
        leaves(&board, &mut Vec::new(), &mut all);
        assert_eq!(all.len(), 40, "a new value is checked, too");
        for (path, value) in all {
            let (field, last) = (path.join("."), path.last().unwrap());
            let with = |value: Option<toml::Value>| {
                let mut changed = board.clone();
                set(&mut changed, &path, value);
                Hardware::from_toml(&changed.to_string())
            };
            let refused = |value: Option<toml::Value>| {
                let refusal = with(value.clone()).expect_err(&format!("{field} = {value:?}")).to_string();
                assert!(refusal.contains(last.as_str()) && refusal.len() > last.len() + 8, "{field}: {refusal}");
            };
            refused(None);
            refused(Some(Boolean(true)));
            match value {
                String(_) => continue,
                toml::Value::Array(_) => {
                    let point = |percent: f64, ns: f64| toml::Value::Array(vec![Float(percent), Float(ns)]);
                    let ends = |from: f64, to: f64| Some(toml::Value::Array(vec![point(0.0, from), point(100.0, to)]));
                    refused(Some(toml::Value::Array(Vec::new())));
                    for (from, to) in [(-1.0, 900.0), (900.0, 800.0), (f64::NAN, 900.0), (900.0, f64::INFINITY)] {
                        refused(ends(from, to));
                    }
                    assert!(with(ends(900.0, 900.0)).is_ok());
                    continue;
                }
                Integer(_) => {
                    // Too many of them would be no memory or time that a run could have.
                    for value in [-1, i64::MIN, 1 << 31, i64::MAX] {
                        refused(Some(Integer(value)));
                    }
                    refused(Some(Float(1.5)));
                }
                _ => {
                    for value in [-1.0, -0.0, 0.0, 1e-300, 1e300, f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
                        refused(Some(Float(value)));
                    }
                }
            }
            refused(Some(String("64".to_owned())));
        }
    }

    /// Several values changed at random: what is not refused, with one of the fields, can be run.
    #[test]
    fn what_is_not_refused_runs() {
        let board: toml::Table = KV_DIRECT.parse().unwrap();
        let mut all = Vec::new();
        leaves(&board, &mut Vec::new(), &mut all);
        let fields: Vec<String> = all.iter().map(|(path, _)| path.join(".")).collect();
        let (mut refused, mut ran) = (0, 0);
        for seed in 0..400 {
            let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
            let mut changed = board.clone();
            for _ in 0..random.random_range(1..=4) {
                let (path, value) = &all[random.random_range(0..all.len())];
                let factor = [0.0, 0.1, 0.5, 0.9, 1.1, 2.0, 10.0, 1e4][random.random_range(0..8)];
                let other = match value {
                    toml::Value::Float(value) => toml::Value::Float(value * factor),
                    toml::Value::Integer(value) => toml::Value::Integer((*value as f64 * factor) as i64),
                    value => value.clone(),
                };
                set(&mut changed, path, Some(other));
            }
            match Hardware::from_toml(&changed.to_string()) {
                Err(HardwareError::Form(reason)) => panic!("seed {seed}: {reason}"),
                Err(HardwareError::Value { field, reason }) => {
                    assert!(fields.iter().any(|known| known == field) && !reason.is_empty(), "seed {seed}: {field}");
                    refused += 1;
                }
                Ok(hardware) => {
                    let clock = Rc::new(Clock::default());
                    let extent = Extent::scaled(&hardware, 1 << 10);
                    let memory = Dispatcher::new(&clock, &hardware, extent, Policy::Dispatch(0.5), seed);
                    let access = async |number: u64| {
                        let (line, bytes) = (number * 37 % 1000, (number % 5 * 100 + 1) as u32);
                        if number.is_multiple_of(2) {
                            memory.read(line * 64, bytes).await;
                        } else {
                            memory.write(line * 64, bytes).await;
                        }
                    };
                    run(&clock, 64, (0..200).map(access));
                    assert!(clock.now() > Time::ZERO, "seed {seed}");
                    ran += 1;
                }
            }
        }
        assert!(refused > 50 && ran > 50, "{refused} refused, {ran} ran");
    }
}
