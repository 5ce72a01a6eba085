//! A typed description of Honeycomb's card and its server, its TOML form, and the paper's.
//!
//! The links, and the words for a refused value, are those of [`crate::hardware`].

use serde::{Deserialize, Serialize};

use crate::hardware::{Card, HardwareError, HostDram, Pcie, Preset, bounds, fields, form, refuse, table_of};

/// Honeycomb's card in its server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HoneycombCard {
    /// The name in reports.
    pub name: String,
    /// The card as a whole.
    pub card: Card,
    /// The units that search and scan.
    pub accelerator: Accelerator,
    /// The cache of interior nodes, and the page table.
    pub cache: CacheSizes,
    /// The links to the host's memory.
    pub pcie: Pcie,
    /// Memory on the card.
    pub nic_dram: CardDram,
    /// Memory of the host.
    pub host_dram: HostDram,
    /// Cores of the host, which write, and read when they have time.
    pub host: HostCores,
    /// The network to the clients.
    pub network: CardNetwork,
}

/// The units that search and scan, and what they share.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Accelerator {
    /// Adapters between the units and the memory.
    pub memory_adapters: u32,
    /// Bytes that an adapter delivers in a cycle.
    pub adapter_word_bytes: u32,
    /// Reads that an adapter has in flight.
    pub adapter_reads_in_flight: u32,
    /// Units that search blocks of interior nodes.
    pub key_search_units: u32,
    /// Units that search shortcut blocks of leaves.
    pub shortcut_units: u32,
    /// Units that sort and scan log blocks. A log entry takes one cycle to sort.
    pub log_units: u32,
    /// Units that scan segments of leaves.
    pub sorted_units: u32,
    /// Bytes that a unit takes in a cycle.
    pub unit_word_bytes: u32,
    /// Cycles of a unit for a block, in addition to those of its bytes.
    pub block_cycles: u32,
    /// Largest number of requests in flight.
    pub requests_in_flight: u32,
    /// Requests whose leaves are buffered.
    pub leaf_slots: u32,
    /// Time of a request outside the search engines.
    pub latency_ns: f64,
}

/// Sizes of the cache and of the page table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CacheSizes {
    /// Number of pairs in the store that these sizes are for.
    pub pairs: u64,
    /// Size of the cache in NIC DRAM. 0 for none.
    pub size_mib: f64,
    /// Nodes of a set. The LID chooses the set.
    pub ways: u32,
    /// Bytes that a node takes.
    pub node_bytes: u32,
    /// Bytes that a bit of the occupancy map stands for.
    pub chunk_bytes: u32,
    /// Metadata entries that are on the chip. The others are in NIC DRAM.
    pub metadata_on_chip: u32,
    /// Bytes of a metadata entry. The entries of a set are read together.
    pub metadata_entry_bytes: u32,
    /// Bytes of a page table entry.
    pub page_table_entry_bytes: u32,
}

/// Memory on the card.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CardDram {
    /// Its size.
    pub size_gib: f64,
    /// Number of channels. Accesses take them in turns.
    pub channels: u32,
    /// Total bandwidth of all channels.
    pub bandwidth_gb_per_s: f64,
    /// Time between two random accesses of a channel, if it is longer than their transfers. 0 if only bytes count. It
    /// has the timings of the chips, and the losses of the controller.
    pub access_ns: f64,
    /// Latency of an access when no other is in flight, besides its transfer.
    pub latency_ns: f64,
}

/// Cores of the host. The time of an operation is that of its lines, and a constant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostCores {
    /// Number of cores.
    pub cores: u32,
    /// Time of an insertion besides its lines and its messages to the card.
    pub insertion_ns: f64,
    /// Time of a scan besides its lines.
    pub scan_ns: f64,
    /// Time of a core for a line that an operation reads or writes.
    pub line_ns: f64,
    /// Time of a core to send a message to the card: an entry of the page table, or the read version.
    pub message_ns: f64,
}

/// The network to the clients, as far as replies need it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CardNetwork {
    /// Bandwidth in each direction.
    pub bandwidth_gb_per_s: f64,
    /// Header and padding of a packet.
    pub header_bytes: u32,
    /// Size of a packet with its header.
    pub packet_max_bytes: u32,
    /// Bytes of an item in a reply besides its key and value.
    pub item_header_bytes: u32,
}

/// Most bits of an occupancy map.
const CHUNK_COUNT_MAX: u32 = 32;
const HONEYCOMB: &str = include_str!("../../boards/honeycomb.toml");
const GEN5: &str = include_str!("../../boards/honeycomb-gen5.toml");

/// Fewest pairs of a store. The load of a much smaller tree has no insertions that a run could repeat.
pub(crate) const PAIRS_MIN: u64 = 100_000;

impl HoneycombCard {
    /// The cards that come with the crate, by name.
    pub const PRESETS: &[Preset] =
        &[Preset { name: "honeycomb", text: HONEYCOMB }, Preset { name: "honeycomb-gen5", text: GEN5 }];

    /// Returns the names of all numbers of a description, with the names of their tables.
    pub fn fields(&self) -> Vec<String> {
        fields::fields(self)
    }

    /// Returns the description with another number in a field, which is not checked. Returns `None` if there is no such
    /// field.
    pub fn with(&self, field: &str, number: &str) -> Option<Result<Self, HardwareError>> {
        fields::with(self, field, number)
    }

    /// Returns the paper's card.
    pub fn of_the_paper() -> Self {
        HoneycombCard::from_toml(HONEYCOMB).expect("the card of the crate is valid")
    }

    /// Returns a card of the next generation: PCIe Gen5, HBM, more units (section 6.3).
    pub fn gen5() -> Self {
        HoneycombCard::from_toml(GEN5).expect("the card of the crate is valid")
    }

    /// Parses a description and checks it.
    pub fn from_toml(text: &str) -> Result<Self, HardwareError> {
        let table = table_of(text)?;
        for (field, words) in [("processor", "the pipeline"), ("server", "a server"), ("host_cpu", "the host's cores")]
        {
            if table.contains_key(field) {
                return refuse(field, format!("it is {words} of KV-Direct's card, and Honeycomb's has [accelerator]"));
            }
        }
        let card: HoneycombCard = table.try_into().map_err(|error| form(&error))?;
        card.check()?;
        Ok(card)
    }

    /// Checks that all values are possible.
    pub fn check(&self) -> Result<(), HardwareError> {
        let HoneycombCard { card, accelerator: units, cache, nic_dram, host_dram, host, network, .. } = self;
        bounds::sizes_and_times(&[
            ("card.clock_mhz", card.clock_mhz),
            ("card.watts", card.watts.unwrap_or(1.0)),
            ("card.price", card.price.unwrap_or(1.0)),
            ("accelerator.latency_ns", units.latency_ns),
            ("nic_dram.size_gib", nic_dram.size_gib),
            ("nic_dram.bandwidth_gb_per_s", nic_dram.bandwidth_gb_per_s),
            ("nic_dram.latency_ns", nic_dram.latency_ns),
            ("host_dram.size_gib", host_dram.size_gib),
            ("host_dram.bandwidth_gb_per_s", host_dram.bandwidth_gb_per_s),
            ("network.bandwidth_gb_per_s", network.bandwidth_gb_per_s),
        ])?;
        bounds::times_or_zero(&[
            ("cache.size_mib", cache.size_mib),
            ("nic_dram.access_ns", nic_dram.access_ns),
            ("host_dram.access_ns", host_dram.access_ns),
            ("host.insertion_ns", host.insertion_ns),
            ("host.scan_ns", host.scan_ns),
            ("host.line_ns", host.line_ns),
            ("host.message_ns", host.message_ns),
        ])?;
        bounds::counts(&[
            ("accelerator.memory_adapters", units.memory_adapters),
            ("accelerator.adapter_word_bytes", units.adapter_word_bytes),
            ("accelerator.adapter_reads_in_flight", units.adapter_reads_in_flight),
            ("accelerator.key_search_units", units.key_search_units),
            ("accelerator.shortcut_units", units.shortcut_units),
            ("accelerator.log_units", units.log_units),
            ("accelerator.sorted_units", units.sorted_units),
            ("accelerator.unit_word_bytes", units.unit_word_bytes),
            ("accelerator.requests_in_flight", units.requests_in_flight),
            ("accelerator.leaf_slots", units.leaf_slots),
            ("cache.ways", cache.ways),
            ("cache.metadata_on_chip", cache.metadata_on_chip),
            ("cache.metadata_entry_bytes", cache.metadata_entry_bytes),
            ("cache.page_table_entry_bytes", cache.page_table_entry_bytes),
            ("nic_dram.channels", nic_dram.channels),
            ("host_dram.channels", host_dram.channels),
            ("host.cores", host.cores),
        ])?;
        bounds::counts_or_zero(&[
            ("accelerator.block_cycles", units.block_cycles),
            ("network.header_bytes", network.header_bytes),
            ("network.packet_max_bytes", network.packet_max_bytes),
            ("network.item_header_bytes", network.item_header_bytes),
        ])?;
        self.pcie.check()?;
        self.check_cache()?;
        if network.header_bytes >= network.packet_max_bytes {
            return refuse(
                "network.packet_max_bytes",
                format!("{} leaves no room for an item", network.packet_max_bytes),
            );
        }
        Ok(())
    }

    /// Checks sizes of the cache that are possible alone but may contradict each other.
    fn check_cache(&self) -> Result<(), HardwareError> {
        let CacheSizes { pairs, size_mib, ways, node_bytes, chunk_bytes, metadata_on_chip, .. } = self.cache;
        if !(PAIRS_MIN..=1 << 40).contains(&pairs) {
            return refuse("cache.pairs", format!("{pairs} is not between {PAIRS_MIN} and 2^40"));
        }
        // The store's frames have at most this size.
        if node_bytes != 8192 {
            return refuse("cache.node_bytes", format!("{node_bytes} is not 8192, the largest node of the store"));
        }
        if !chunk_bytes.is_power_of_two() || chunk_bytes > node_bytes || node_bytes / chunk_bytes > CHUNK_COUNT_MAX {
            let reason = format!(
                "{chunk_bytes} is not a power of two that divides the {node_bytes} of cache.node_bytes into at most \
                 {CHUNK_COUNT_MAX}"
            );
            return refuse("cache.chunk_bytes", reason);
        }
        if size_mib / 1024.0 > self.nic_dram.size_gib {
            let reason = format!("{size_mib} MiB is more than the {} GiB of nic_dram.size_gib", self.nic_dram.size_gib);
            return refuse("cache.size_mib", reason);
        }
        let entries = self.cache.entries();
        if !entries.is_multiple_of(u64::from(ways)) {
            return refuse("cache.ways", format!("{ways} does not divide the {entries} nodes of the cache"));
        }
        if size_mib > 0.0 && u64::from(metadata_on_chip) > entries {
            let reason = format!("{metadata_on_chip} is more than the {entries} entries of the cache");
            return refuse("cache.metadata_on_chip", reason);
        }
        Ok(())
    }
}

impl CacheSizes {
    /// Returns the number of nodes that fit.
    pub fn entries(&self) -> u64 {
        (self.size_mib * f64::from(1 << 20) / f64::from(self.node_bytes)) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hardware::Hardware;

    fn refusal(from: &str, to: &str) -> String {
        assert!(HONEYCOMB.contains(from), "{from}");
        HoneycombCard::from_toml(&HONEYCOMB.replacen(from, to, 1)).expect_err(to).to_string()
    }

    #[test]
    fn the_card_is_valid_and_every_value_has_a_source() {
        let card = HoneycombCard::of_the_paper();
        assert_eq!((card.name.as_str(), card.cache.entries()), ("honeycomb", 32_768));
        let text = toml::to_string(&card).expect("numbers and text are valid TOML");
        assert_eq!(HoneycombCard::from_toml(&text), Ok(card));
        assert_eq!(HoneycombCard::gen5().name, "honeycomb-gen5");
        for text in [HONEYCOMB, GEN5] {
            let values = text.lines().filter(|line| line.contains(" = ") && !line.starts_with(['#']));
            for line in values.filter(|line| !line.starts_with("name") && !line.ends_with('[')) {
                assert!(line.contains(" # "), "{line}");
            }
        }
        let is_for_a_figure = |line: &str| ["paper's rate", "GB/s", "Mreq/s"].iter().any(|words| line.contains(words));
        let chosen = HONEYCOMB.lines().filter(|line| line.contains(" = ") && is_for_a_figure(line));
        assert!(chosen.clone().count() >= 6 && chosen.clone().all(|line| line.contains(" # fitted to ")), "{chosen:?}");
    }

    #[test]
    fn the_next_generation_has_the_link_and_the_memory_of_the_other_card() {
        let (card, other) =
            (HoneycombCard::gen5(), Hardware::from_toml(Hardware::preset("gen5-x16").unwrap().text).unwrap());
        assert_eq!(card.pcie, other.pcie);
        let (dram, of_other) = (&card.nic_dram, &other.nic_dram);
        assert_eq!(
            (dram.channels, dram.bandwidth_gb_per_s, dram.access_ns, dram.latency_ns),
            (of_other.channels, of_other.bandwidth_gb_per_s, of_other.access_ns, of_other.latency_ns)
        );
        assert_eq!(card.host_dram, other.host_dram);
    }

    #[test]
    fn an_invalid_description_is_refused_with_field_value_and_reason() {
        for (from, to, parts) in [
            ("key_search_units = 14", "", ["key_search_units", "missing", "accelerator"]),
            ("leaf_slots = 64", "leaf_slots = 64\nlog_slots = 64", ["log_slots", "unknown", "accelerator"]),
            (
                "key_search_units = 14",
                "key_search_units = 0",
                ["accelerator.key_search_units", "0 is not", "between 1"],
            ),
            ("sorted_units = 5", "sorted_units = -5", ["sorted_units", "-5", "accelerator"]),
            ("clock_mhz = 220.0", "clock_mhz = nan", ["card.clock_mhz", "NaN", "millionth"]),
            ("ways = 4", "ways = 3", ["cache.ways", "3 does not divide", "32768"]),
            ("ways = 4", "ways = 0", ["cache.ways", "0 is not", "between 1"]),
            ("size_mib = 256.0", "size_mib = 8192.0", ["cache.size_mib", "8192 MiB", "4 GiB of nic_dram.size_gib"]),
            ("size_mib = 256.0", "size_mib = 4.0", ["cache.metadata_on_chip", "1024 is more", "512 entries"]),
            ("metadata_on_chip = 1024", "metadata_on_chip = 40000", ["cache.metadata_on_chip", "40000", "32768"]),
            ("chunk_bytes = 256", "chunk_bytes = 128", ["cache.chunk_bytes", "128", "at most 32"]),
            ("chunk_bytes = 256", "chunk_bytes = 300", ["cache.chunk_bytes", "300", "power of two"]),
            ("node_bytes = 8192", "node_bytes = 4096", ["cache.node_bytes", "4096", "largest node"]),
            ("pairs = 128000000", "pairs = 0", ["cache.pairs", "0 is not", "between 100000"]),
            ("links = 2", "links = 0", ["pcie.links", "0 is not", "between 1"]),
            ("access_ns = 39.2", "access_ns = -1.0", ["nic_dram.access_ns", "-1 is not", "billion"]),
            ("packet_max_bytes = 1538", "packet_max_bytes = 78", ["network.packet_max_bytes", "78", "no room"]),
        ] {
            let refusal = refusal(from, to);
            assert!(parts.iter().all(|part| refusal.contains(part)), "{to}: {refusal}");
        }
        // Without a cache, nothing of it is on the chip.
        assert!(HoneycombCard::from_toml(&HONEYCOMB.replace("size_mib = 256.0", "size_mib = 0.0")).is_ok());
    }

    #[test]
    fn a_description_of_the_other_card_is_refused_with_the_name_of_the_difference() {
        let other = Hardware::PRESETS[0].text;
        let refusal = HoneycombCard::from_toml(other).expect_err("it is KV-Direct's").to_string();
        assert!(refusal.starts_with("processor: ") && refusal.contains("[accelerator]"), "{refusal}");
        let refusal = Hardware::from_toml(HONEYCOMB).expect_err("it is Honeycomb's").to_string();
        assert!(refusal.starts_with("accelerator: ") && refusal.contains("Honeycomb"), "{refusal}");
    }
}
