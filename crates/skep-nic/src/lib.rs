//! The programmable NICs of KV-Direct and Honeycomb and the RDMA NIC of HERD as discrete-event models, and the papers'
//! evaluations on them.
//!
//! The boards cannot be rented. The model shows why they reached their throughput, and the throughput of a
//! card with other PCIe, DRAM or network. Time is virtual and randomness has a seed, so the same run gives the same
//! bytes.
//!
//! | module | content | KV-Direct |
//! |---|---|---|
//! | [`hardware`] | every constant, as a TOML file and checked | sections 2.4, 4 |
//! | [`time`], [`clock`], [`resource`] | virtual time, events, shared resources | |
//! | [`pcie`] | links: tags, credits, packets, latency; the DMA engine | section 2.4, Fig. 3 |
//! | [`dram`] | channels of the NIC's and the host's memory | sections 3.3.4, 5.2.5 |
//! | [`dispatcher`], [`cache`] | NIC DRAM as a cache for a share of the lines | section 3.3.4, Fig. 7 |
//! | [`memory`] | the store's memory on this hardware | |
//! | [`pipeline`] | the store's operations, one decoded per cycle | section 3.3.3, Fig. 4 |
//! | [`window`] | the congestion window of operations in flight | thesis chapter |
//! | [`balance`] | the best load dispatch ratio | section 6.3.1, Tables 5, 6 |
//! | [`server`] | several NICs in one server | section 6.2, Fig. 20 |
//! | [`trace`] | the events of an operation with their times | |
//! | [`sizing`] | the throughput of a board with a given load, and its bottleneck | section 5.2.1 |
//! | [`network`] | packets, batches, the decoder | section 4, Fig. 15 |
//! | [`scatter_gather`] | cores of the host that help the NIC | section 6.1, Fig. 18 |
//! | [`popularity`], [`zipf`] | uniform and long-tail accesses | section 5 |
//! | [`load`] | pairs and operations of clients, runs of one or several NICs | section 5 |
//! | [`baseline`] | the hash tables that Figure 11 compares with | section 5.1.1 |
//! | [`honeycomb`] | Honeycomb's card: scans and GETs of the ordered store | Honeycomb, sections 4, 5 |
//! | [`rdma`] | an RDMA NIC: PIO, its engine, contexts of queue pairs | HERD, section 3.3 |
//! | [`paper`] | the figures and tables, measured | sections 5, 6 |

pub mod balance;
pub mod baseline;
pub mod cache;
pub mod clock;
pub mod dispatcher;
pub mod dram;
pub mod hardware;
pub mod honeycomb;
pub mod load;
pub mod memory;
pub mod network;
pub mod paper;
pub mod pcie;
pub mod pipeline;
pub mod popularity;
pub mod rdma;
pub mod resource;
pub mod scatter_gather;
pub mod server;
pub mod sizing;
pub mod time;
pub mod trace;
pub mod window;
pub mod zipf;
