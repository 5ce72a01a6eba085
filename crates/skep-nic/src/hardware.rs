//! A typed description of the modelled hardware, its TOML form, and the paper's boards.
//!
//! It contains every constant of the model, and the name of each constant ends with its unit. The files in `boards/`
//! state for each value if the paper or a specification gives it, or if it was fitted or assumed. They are also the
//! templates for other boards.
//!
//! A description is checked completely before a run begins. The error names the first invalid field and the reason.

use serde::{Deserialize, Serialize};

/// Most NICs of a server: each has a memory in the model.
const NICS_MAX: u32 = 64;

/// A NIC and its server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hardware {
    /// The name in reports.
    pub name: String,
    /// The server of the NICs.
    pub server: Server,
    /// The card as a whole.
    pub card: Card,
    /// The pipeline of KV-Direct's card, which executes operations.
    pub processor: Processor,
    /// The links to the host's memory.
    pub pcie: Pcie,
    /// Memory on the NIC.
    pub nic_dram: NicDram,
    /// Memory of the host.
    pub host_dram: HostDram,
    /// Cores of the host that work for the NIC.
    pub host_cpu: HostCpu,
    /// The network to the clients.
    pub network: Network,
}

/// The server: identical NICs, and the memory nodes that they are distributed over. A NIC has its own region in the
/// memory of its node, and its own keys (section 6.2).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Server {
    /// Number of programmable NICs.
    pub nics: u32,
    /// Number of processors with their own memory and PCIe lanes. The NICs are assigned to them in turns.
    pub memory_nodes: u32,
}

/// A card without its processor: the clock, and what a server with its cards costs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Card {
    /// The clock of the processor.
    pub clock_mhz: f64,
    /// Power of the server with all of its cards at the peak. Without it, no rate per watt is calculated.
    pub watts: Option<f64>,
    /// Price of the server with all of its cards, in any currency. Without it, no rate per price is calculated.
    pub price: Option<f64>,
}

/// KV-Direct's pipeline, which executes one operation per cycle.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Processor {
    /// Time from the arrival of a packet until its operations enter the reservation station. Operations at this stage
    /// are not among those in flight.
    pub latency_ns: f64,
    /// Time from the arrival of a read until the request of the next one of the same operation: of the next bucket of a
    /// chain, or of a slab.
    pub next_read_ns: f64,
    /// True if an operation that is not a read writes back its home bucket although its key is in another one of the
    /// chain.
    pub writes_read_buckets: bool,
    /// Largest number of operations in flight.
    pub operations_in_flight: u32,
    /// Mean delay of operations above which the congestion window shrinks. It includes the wires but not the network's
    /// delay.
    pub delay_target_us: f64,
}

/// Identical PCIe links, and the DMA engine of each.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pcie {
    /// Links of this NIC.
    pub links: u32,
    /// Bandwidth of each link, in each direction.
    pub bandwidth_gb_per_s: f64,
    /// Header and padding of a transaction-layer packet (TLP).
    pub tlp_overhead_bytes: u32,
    /// Bytes that the receiver of a TLP sends back for it: acknowledgement and credits.
    pub link_packet_bytes: u32,
    /// Largest payload of one TLP, and largest size of one read request.
    pub payload_max_bytes: u32,
    /// The host divides the data of a read where the address is a multiple of this, and sends a TLP for each part.
    pub read_completion_bytes: u32,
    /// Number of reads in flight that the link can distinguish.
    pub read_tags: u32,
    /// Number of reads that the host accepts before it returns credits.
    pub nonposted_credits: u32,
    /// Number of writes that the host accepts before it returns credits.
    pub posted_credits: u32,
    /// Number of the host's writes that the card accepts before it returns credits.
    pub host_posted_credits: u32,
    /// Round trip of a packet and its reply, without DMA engine and memory.
    pub round_trip_ns: f64,
    /// Total latency of a read of 64 bytes from the processor's cache over an idle link.
    pub read_cached_ns: f64,
    /// The same from memory, as points of the distribution: percentile and latency, from 0 to 100 %.
    pub read_uncached_ns: Vec<(f64, f64)>,
    /// Time after the last TLP of a write has left until the DMA engine reports the write.
    pub write_confirmed_ns: f64,
    /// The DMA engine between the pipeline and the link.
    pub dma_engine: DmaEngine,
}

/// The engine between the pipeline and a link, with a path in each direction. Requests of reads and written data share
/// the path to the link. Read data has the other path.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DmaEngine {
    /// Its clock.
    pub clock_mhz: f64,
    /// Payload of one cycle.
    pub word_bytes: u32,
    /// Cycles for a written TLP, in addition to those of its payload.
    pub write_header_cycles: u32,
    /// Cycles for the request of a read, on the path that it shares with written TLPs.
    pub read_request_cycles: u32,
    /// Cycles for a TLP with read data, in addition to those of its payload.
    pub read_header_cycles: u32,
    /// Number of queues to which reads are assigned in turns. In each queue, replies are delivered in the order of the
    /// requests.
    pub ordered_queues: u32,
}

/// Memory on the NIC: a direct-mapped cache of host lines.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NicDram {
    /// Its size.
    pub size_gib: f64,
    /// Number of channels. Accesses take them in turns.
    pub channels: u32,
    /// Total bandwidth of all channels.
    pub bandwidth_gb_per_s: f64,
    /// Time between two random accesses of a channel, if it is longer than their transfers. 0 if only bytes count.
    pub access_ns: f64,
    /// Latency of one line when no other access is in flight.
    pub latency_ns: f64,
    /// Bits of a line's ECC that can hold its tag and its dirty flag.
    pub spare_bits: u32,
}

/// Memory of the host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostDram {
    /// Size of the part that holds keys and values: the region of one NIC.
    pub size_gib: f64,
    /// Number of channels of one memory node. Accesses take them in turns.
    pub channels: u32,
    /// Bandwidth of one memory node, shared by its NICs.
    pub bandwidth_gb_per_s: f64,
    /// Time between two random accesses of a channel, if it is longer than their transfers. 0 if only bytes count.
    pub access_ns: f64,
}

/// Cores that gather and scatter for the NIC (section 6.1).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostCpu {
    /// Number of cores for each link. Without cores the NIC accesses the host's memory itself.
    pub cores_per_link: u32,
    /// Time for a random access to one line, with as many other accesses in flight as the core supports.
    pub first_line_ns: f64,
    /// Time for each line that follows it.
    pub next_line_ns: f64,
    /// Time to copy a line between two queues in the cache.
    pub copy_line_ns: f64,
    /// Operations that are prefetched together.
    pub doorbell_operations: u32,
}

/// The network.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Network {
    /// Bandwidth in each direction.
    pub bandwidth_gb_per_s: f64,
    /// Delay from client to server, and the same back, without queues.
    pub delay_us: f64,
    /// Header and padding of a packet.
    pub header_bytes: u32,
    /// Size of a packet with its header.
    pub packet_max_bytes: u32,
    /// Header of an operation.
    pub operation_header_bytes: u32,
    /// Header of an operation whose sizes are those of the operation before.
    pub repeated_header_bytes: u32,
}

/// The reason why a description is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HardwareError {
    /// A field is missing, unknown or of another type.
    #[error("{0}")]
    Form(String),
    /// A value that is impossible, alone or together with others.
    #[error("{field}: {reason}")]
    Value {
        /// The name of the field and of its table.
        field: &'static str,
        /// The reason.
        reason: String,
    },
}

/// A board that comes with the crate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preset {
    /// Its name.
    pub name: &'static str,
    /// Its file, with the source of each value.
    pub text: &'static str,
}

/// Largest region of a NIC, in bytes: a pointer of the store has 31 bits and counts units of 32 bytes.
pub const MEMORY_OF_CARD_MAX: u64 = skep_store::memory::MEMORY_SIZE_MAX;
const REGION_GIB_MAX: f64 = MEMORY_OF_CARD_MAX as f64 / (1_u64 << 30) as f64;

/// The boards of the paper, and one of the next generation.
const KV_DIRECT: &str = include_str!("../boards/kv-direct.toml");
const ONE_LINK: &str = include_str!("../boards/kv-direct-one-link.toml");
const TEN_NICS: &str = include_str!("../boards/kv-direct-ten-nics.toml");
const GEN5_X16: &str = include_str!("../boards/gen5-x16.toml");

impl Hardware {
    /// The boards that come with the crate, by name.
    pub const PRESETS: &[Preset] = &[
        Preset { name: "kv-direct", text: KV_DIRECT },
        Preset { name: "kv-direct-one-link", text: ONE_LINK },
        Preset { name: "kv-direct-ten-nics", text: TEN_NICS },
        Preset { name: "gen5-x16", text: GEN5_X16 },
    ];

    /// Returns the board of [`Hardware::PRESETS`] with this name.
    pub fn preset(name: &str) -> Option<Preset> {
        Hardware::PRESETS.iter().find(|preset| preset.name == name).copied()
    }

    /// Returns the paper's NIC with both of its PCIe links (section 4).
    pub fn kv_direct() -> Self {
        of_crate(KV_DIRECT)
    }

    /// Returns the paper's NIC with one link: Figure 3 and section 6.1.
    pub fn kv_direct_one_link() -> Self {
        of_crate(ONE_LINK)
    }

    /// Returns a server with ten of the paper's NICs, each with one link: section 6.2.
    pub fn kv_direct_ten_nics() -> Self {
        of_crate(TEN_NICS)
    }

    /// Returns one of the server's NICs alone, with its part of the shared resources.
    pub fn one_nic(&self) -> Self {
        let mut nic = self.clone();
        let Server { nics, memory_nodes } = nic.server;
        nic.host_dram.bandwidth_gb_per_s /= f64::from(nics.div_ceil(memory_nodes));
        nic.server = Server { nics: 1, memory_nodes: 1 };
        nic
    }

    /// Parses a description and checks it.
    pub fn from_toml(text: &str) -> Result<Self, HardwareError> {
        let table = table_of(text)?;
        if table.contains_key("accelerator") {
            let reason = "it is the processor of Honeycomb's card".to_owned();
            return refuse("accelerator", reason);
        }
        let hardware: Hardware = table.try_into().map_err(|error| form(&error))?;
        hardware.check()?;
        Ok(hardware)
    }

    /// Formats the description as TOML, which [`Hardware::from_toml`] can parse.
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("numbers and text are always valid TOML")
    }

    /// Returns NIC memory over host memory: k of section 3.3.4.
    pub fn memory_ratio(&self) -> f64 {
        self.nic_dram.size_gib / self.host_dram.size_gib
    }

    /// Checks that all values are possible.
    pub fn check(&self) -> Result<(), HardwareError> {
        self.check_sizes_and_times()?;
        self.check_counts()?;
        self.pcie.check()?;
        self.check_together()
    }

    fn check_sizes_and_times(&self) -> Result<(), HardwareError> {
        let Hardware { card, processor, nic_dram, host_dram, host_cpu, network, .. } = self;
        bounds::sizes_and_times(&[
            ("card.clock_mhz", card.clock_mhz),
            ("card.watts", card.watts.unwrap_or(1.0)),
            ("card.price", card.price.unwrap_or(1.0)),
            ("processor.latency_ns", processor.latency_ns),
            ("processor.delay_target_us", processor.delay_target_us),
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
        ])?;
        bounds::times_or_zero(&[
            ("processor.next_read_ns", processor.next_read_ns),
            ("nic_dram.access_ns", nic_dram.access_ns),
            ("host_dram.access_ns", host_dram.access_ns),
        ])
    }

    fn check_counts(&self) -> Result<(), HardwareError> {
        let Hardware { processor, nic_dram, host_dram, host_cpu, network, .. } = self;
        bounds::counts(&[
            ("nic_dram.channels", nic_dram.channels),
            ("host_dram.channels", host_dram.channels),
            ("server.memory_nodes", self.server.memory_nodes),
            ("processor.operations_in_flight", processor.operations_in_flight),
            ("host_cpu.doorbell_operations", host_cpu.doorbell_operations),
        ])?;
        if !(1..=NICS_MAX).contains(&self.server.nics) {
            return refuse("server.nics", format!("{} is not between 1 and {NICS_MAX}", self.server.nics));
        }
        bounds::counts_or_zero(&[
            ("host_cpu.cores_per_link", host_cpu.cores_per_link),
            ("network.header_bytes", network.header_bytes),
            ("network.operation_header_bytes", network.operation_header_bytes),
            ("network.packet_max_bytes", network.packet_max_bytes),
        ])
    }

    /// Checks values that are possible alone but may contradict each other.
    fn check_together(&self) -> Result<(), HardwareError> {
        let Hardware { server, nic_dram, host_dram, network, .. } = self;
        if server.memory_nodes > server.nics {
            let reason = format!("{} nodes and {} NICs: some nodes have no NIC", server.memory_nodes, server.nics);
            return refuse("server.memory_nodes", reason);
        }
        if host_dram.size_gib > REGION_GIB_MAX {
            let (size, nics) = (host_dram.size_gib, self.server.nics);
            let needed = (size * f64::from(nics) / REGION_GIB_MAX).ceil();
            let reason = format!(
                "{size} is more than the {REGION_GIB_MAX} GiB that a NIC can address: {} GiB in all need {needed} NICs, and server.nics is {nics}",
                size * f64::from(nics)
            );
            return refuse("host_dram.size_gib", reason);
        }
        let ratio = host_dram.size_gib / nic_dram.size_gib;
        if ratio < 1.0 {
            return refuse("nic_dram.size_gib", format!("{} is more than host_dram.size_gib", nic_dram.size_gib));
        }
        let tag_bits = ratio.ceil().log2().ceil() as u32;
        if nic_dram.spare_bits > 16 || tag_bits + 1 > nic_dram.spare_bits {
            let reason = format!(
                "{} is not possible: {tag_bits} bits of tag and a dirty flag are needed, and 16 bits are the most",
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

    /// Returns what is possible but useless: a link that its DMA engine cannot fill.
    pub fn warnings(&self) -> Vec<String> {
        self.pcie.warning().into_iter().collect()
    }
}

/// Returns a board of the crate.
fn of_crate(text: &str) -> Hardware {
    Hardware::from_toml(text).expect("the boards of the crate are valid")
}

/// Refuses a value.
pub(crate) fn refuse<T>(field: &'static str, reason: String) -> Result<T, HardwareError> {
    Err(HardwareError::Value { field, reason })
}

/// Parses a description, without its meaning.
pub(crate) fn table_of(text: &str) -> Result<toml::Table, HardwareError> {
    text.parse().map_err(|error: toml::de::Error| form(&error))
}

/// Joins the lines of the error. The first line is the reason, and the last names the table.
pub(crate) fn form(error: &toml::de::Error) -> HardwareError {
    let text = error.to_string();
    HardwareError::Form(text.lines().map(str::trim).collect::<Vec<_>>().join(" "))
}

pub(crate) mod bounds;
pub(crate) mod fields;
mod link;

#[cfg(test)]
mod tests;
