//! The sockets of a server. They are bound before anything that takes long, so that a port in use is found at once.

#[cfg(feature = "rdma")]
use std::net::TcpListener;
use std::net::UdpSocket;
use std::time::Instant;

use crate::listen::Listeners;
use crate::settings::ServerSettings;
use crate::start::Steps;
use crate::start_error::StartError;
use crate::transport::datagram::{self, Datagrams};
use crate::transport::memcached_datagram::MemcachedSocket;
#[cfg(feature = "rdma")]
use crate::transport::rdma::{self, RdmaShard};

/// The sockets of a server, until the shards take them.
pub(crate) struct Sockets {
    pub(crate) listeners: Listeners,
    pub(crate) datagrams: Vec<UdpSocket>,
    pub(crate) memcached: Option<MemcachedSocket>,
    #[cfg(feature = "rdma")]
    pub(crate) rdma: Vec<TcpListener>,
}

impl Sockets {
    /// Binds the sockets. The addresses of the settings get the ports that the system chose.
    pub(crate) fn bind(settings: &mut ServerSettings, steps: &mut Steps) -> Result<Sockets, StartError> {
        let ServerSettings { native, resp, memcached, shared_memory, .. } = settings;
        Ok(Sockets {
            listeners: Listeners::bind(native, resp, memcached, shared_memory.as_deref(), steps)?,
            datagrams: match &mut settings.udp {
                Some(address) => datagram::bind(address, settings.shards, steps)?,
                None => Vec::new(),
            },
            memcached: match &mut settings.memcached_udp {
                Some(address) => Some(MemcachedSocket::bind(address, steps)?),
                None => None,
            },
            #[cfg(feature = "rdma")]
            rdma: match &mut settings.rdma {
                Some(address) => rdma::bind(address, settings.shards, steps)?,
                None => Vec::new(),
            },
        })
    }
}

/// The sockets of a shard. The first one has those that all share.
pub(crate) struct ShardSockets {
    pub(crate) listeners: Option<Listeners>,
    pub(crate) datagrams: Option<Box<Datagrams>>,
    pub(crate) memcached: Option<MemcachedSocket>,
    #[cfg(feature = "rdma")]
    pub(crate) rdma: Option<Box<RdmaShard>>,
}

impl Sockets {
    /// Returns the sockets of each of this number of shards.
    pub(crate) fn divide(self, shards: usize, steps: &mut Steps) -> Result<Vec<ShardSockets>, StartError> {
        let (mut listeners, mut memcached) = (Some(self.listeners), self.memcached);
        let mut datagrams = self.datagrams.into_iter();
        #[cfg(feature = "rdma")]
        let mut rdma = self.rdma.into_iter();
        let mut divided = Vec::with_capacity(shards);
        for index in 0..shards {
            divided.push(ShardSockets {
                listeners: listeners.take(),
                datagrams: match datagrams.next() {
                    Some(socket) => {
                        Some(Box::new(steps.open(format!("the packets of shard {index}"), || {
                            Datagrams::new(socket, Instant::now())
                        })?))
                    }
                    None => None,
                },
                memcached: memcached.take(),
                #[cfg(feature = "rdma")]
                rdma: match rdma.next() {
                    Some(listener) => Some(Box::new(RdmaShard::new(listener, steps)?)),
                    None => None,
                },
            });
        }
        Ok(divided)
    }
}
