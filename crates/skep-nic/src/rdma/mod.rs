//! An RDMA NIC as a discrete-event model: how fast it handles verbs (HERD, section 3.3, Figures 4 and 6).
//!
//! ```text
//! processes ─▶ PIO ────────▶ units ─▶ engine ─▶ network ─▶ engine of another NIC, for inbound verbs
//!    150 ns    64 B a unit     │
//!                              └ contexts of queue pairs: on the NIC, or read from the host over PCIe
//! ```
//!
//! The rates at which the engine handles verbs are published and given to the model. The model decides which part
//! limits the rate: the processes, PIO, the engine, or reads of contexts.
//!
//! | module | content | HERD |
//! |---|---|---|
//! | [`card`] | every constant, as a TOML file and checked | sections 3.3, 4.1.1 |
//! | [`contexts`] | the cache of contexts of queue pairs | section 3.3 |
//! | [`nic`] | work requests, units, the engine | section 3.3 |
//! | [`run`] | processes that post to one or several NICs | Figures 4, 6 |
//!
//! It has no bandwidth of the network, no payload that the NIC reads from the host, no completions, and no
//! retransmission.

pub mod card;
pub mod contexts;
pub mod nic;
pub mod run;
