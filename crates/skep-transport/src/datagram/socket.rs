//! A UDP socket, with many packets for each system call.
//!
//! - Packets to one address leave as one buffer, which the kernel or the network card divides (generic segmentation
//!   offload). All but the last one have the same size.
//! - Packets arrive as such buffers too, from several addresses with one call.
//!
//! The crate `quinn-udp` makes the calls. Where the kernel has no such offload, it sends and receives single packets.

use std::fmt;
use std::io::{self, IoSliceMut};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

use quinn_udp::{RecvMeta, Transmit, UdpSockRef, UdpSocketState};

use super::packet::PACKET_SIZE_MAX;
use super::session::Session;

/// Bytes of a buffer that holds one arrival: the largest UDP datagram.
const ARRIVAL_SIZE_MAX: usize = 64 << 10;
/// Arrivals that a call takes at most.
const ARRIVALS_MAX: usize = quinn_udp::BATCH_SIZE;
/// Bytes that leave with one call at most: the largest datagram over IPv6, less a packet.
const BURST_SIZE_MAX: usize = (64 << 10) - PACKET_SIZE_MAX;

/// A UDP socket that does not block.
#[derive(Debug)]
pub struct DatagramSocket {
    socket: UdpSocket,
    state: UdpSocketState,
}

impl DatagramSocket {
    /// Takes over a socket.
    pub fn new(socket: UdpSocket) -> io::Result<DatagramSocket> {
        let state = UdpSocketState::new(UdpSockRef::from(&socket))?;
        Ok(DatagramSocket { socket, state })
    }

    /// Returns the address to which the socket is bound.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Takes the packets that have arrived, as many as there is room for. Returns true if there may be more.
    pub fn receive(&self, arrivals: &mut Arrivals) -> io::Result<bool> {
        arrivals.count = 0;
        let mut buffers = arrivals.bytes.chunks_exact_mut(ARRIVAL_SIZE_MAX);
        let mut slices: [IoSliceMut<'_>; ARRIVALS_MAX] =
            std::array::from_fn(|_| IoSliceMut::new(buffers.next().unwrap_or_default()));
        let max = arrivals.metas.len();
        match self.state.recv(UdpSockRef::from(&self.socket), &mut slices[..max], &mut arrivals.metas) {
            Ok(count) => {
                arrivals.count = count;
                Ok(count == max)
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Sends packets of the same size to an address; the last one may be shorter. They leave from the address `from`, if
    /// it is given.
    pub fn send(&self, to: SocketAddr, from: Option<IpAddr>, bytes: &[u8], packet_size: usize) -> io::Result<()> {
        let segment_size = (bytes.len() > packet_size).then_some(packet_size);
        let transmit = Transmit { destination: to, ecn: None, contents: bytes, segment_size, src_ip: from };
        self.state.try_send(UdpSockRef::from(&self.socket), &transmit)
    }
}

impl AsFd for DatagramSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// A packet that arrived.
#[derive(Clone, Copy, Debug)]
pub struct Arrival<'a> {
    /// Its sender.
    pub from: SocketAddr,
    /// The address to which it was sent, if the system tells it.
    pub to: Option<IpAddr>,
    /// Its bytes.
    pub bytes: &'a [u8],
}

/// Memory for packets that arrive, and the packets of the last call.
pub struct Arrivals {
    bytes: Box<[u8]>,
    metas: Box<[RecvMeta]>,
    count: usize,
}

impl fmt::Debug for Arrivals {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Arrivals").field("count", &self.count).finish_non_exhaustive()
    }
}

impl Arrivals {
    /// Makes room for this number of arrivals, 64 KiB each; no more than a system call takes.
    pub fn new(count: usize) -> Arrivals {
        let count = count.clamp(1, ARRIVALS_MAX);
        Arrivals {
            bytes: vec![0; count * ARRIVAL_SIZE_MAX].into(),
            metas: vec![RecvMeta::default(); count].into(),
            count: 0,
        }
    }

    /// Returns the packets of the last call.
    pub fn packets(&self) -> impl Iterator<Item = Arrival<'_>> {
        let arrivals = self.bytes.chunks_exact(ARRIVAL_SIZE_MAX).zip(&self.metas).take(self.count);
        arrivals.flat_map(|(buffer, meta)| {
            let bytes = &buffer[..meta.len.min(buffer.len())];
            let packets = bytes.chunks(meta.stride.max(1));
            packets.map(|bytes| Arrival { from: meta.addr, to: meta.dst_ip, bytes })
        })
    }

    /// Returns the number of bytes of the last call.
    pub fn size(&self) -> usize {
        self.metas[..self.count].iter().map(|meta| meta.len).sum()
    }
}

/// Packets that leave together.
#[derive(Debug, Default)]
pub struct Burst {
    bytes: Vec<u8>,
}

impl Burst {
    /// Sends the packets of a session. Returns their number. A packet that the socket does not take is lost, as on the
    /// network; an error is returned after all were tried.
    pub fn send(
        &mut self,
        session: &mut Session,
        socket: &DatagramSocket,
        to: SocketAddr,
        from: Option<IpAddr>,
        now: Instant,
    ) -> io::Result<u64> {
        let (mut count, mut result) = (0, Ok(()));
        let (mut in_burst, mut packet_size, mut is_closed) = (0, 0, false);
        let packets_max = socket.state.max_gso_segments();
        self.bytes.clear();
        loop {
            let start = self.bytes.len();
            if !session.next_packet(now, &mut self.bytes) {
                break;
            }
            count += 1;
            let size = self.bytes.len() - start;
            if in_burst > 0 && (is_closed || size > packet_size || in_burst == packets_max || start > BURST_SIZE_MAX) {
                result = result.and(socket.send(to, from, &self.bytes[..start], packet_size));
                self.bytes.copy_within(start.., 0);
                self.bytes.truncate(size);
                in_burst = 0;
            }
            if in_burst == 0 {
                packet_size = size;
            }
            in_burst += 1;
            is_closed = size < packet_size;
        }
        if !self.bytes.is_empty() {
            result = result.and(socket.send(to, from, &self.bytes, packet_size));
        }
        result.map(|()| count)
    }
}
