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
//! | [`paper`] | the figures and tables, measured | sections 5, 6 |

pub mod clock;
pub mod hardware;
pub mod paper;
pub mod pcie;
pub mod resource;
pub mod time;
