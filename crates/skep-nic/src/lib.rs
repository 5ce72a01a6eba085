//! KV-Direct's programmable NIC as a discrete-event model, and the paper's evaluation on it.
//!
//! Nobody can rent the board of 2017. The model shows why it reached what it reached, and what a card with other PCIe,
//! DRAM or network would reach. Time is virtual, randomness comes from a seed: the same run gives the same bytes.
//!
//! | module | what it is | KV-Direct |
//! |---|---|---|
//! | [`hardware`] | every constant, as a TOML file and checked | sections 2.4, 4 |
//! | [`time`], [`clock`], [`resource`] | virtual time, events, what is waited for | |
//! | [`pcie`] | links: tags, credits, packets, latency; the DMA engine | section 2.4, Fig. 3 |
//! | [`dispatcher`], [`cache`] | NIC DRAM as a cache for a share of the lines | section 3.3.4, Fig. 7 |
//! | [`memory`] | the store's memory on all that | |
//! | [`pipeline`] | the store's operations, decoded one a cycle | section 3.3.3, Fig. 4 |
//! | [`balance`] | the best load dispatch ratio | section 6.3.1, Tables 5, 6 |
//! | [`server`] | several NICs in one server | section 6.2, Fig. 20 |
//! | [`trace`] | what happened to an operation when | |
//! | [`sizing`] | what a board reaches with a given load, and what limits it | section 5.2.1 |
//! | [`network`] | packets, batches, the decoder | section 4, Fig. 15 |
//! | [`scatter_gather`] | cores of the host that help the NIC | section 6.1, Fig. 18 |
//! | [`popularity`] | uniform and long-tail accesses | section 5 |
//! | [`baseline`] | the hash tables that Figure 11 compares with | section 5.1.1 |
//! | [`paper`] | the figures and tables, measured | sections 5, 6 |

pub mod balance;
pub mod baseline;
pub mod cache;
pub mod clock;
pub mod dispatcher;
pub mod hardware;
pub mod memory;
pub mod network;
pub mod paper;
pub mod pcie;
pub mod pipeline;
pub mod popularity;
pub mod resource;
pub mod scatter_gather;
pub mod server;
pub mod sizing;
pub mod time;
pub mod trace;
