//! A UDP socket, with many packets for each system call.
//!
//! - The packets of a burst leave as one buffer, which the kernel or the network card divides at [`PACKET_SIZE_MAX`]
//!   (generic segmentation offload). So all but the last one have that size.
//! - Packets that were sent together arrive as one buffer too. Each states its size, so it is divided without the help of
//!   the kernel.
//!
//! Where the kernel has no such offload, single packets are sent and received.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use nix::sys::socket::{setsockopt, sockopt};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, recvfrom, send, sendto};
use socket2::SockRef;

use super::packet::PACKET_SIZE_MAX;
use super::session::Session;

/// Bytes of a buffer for packets that arrive together: the largest UDP datagram.
pub const ARRIVAL_SIZE_MAX: usize = 64 << 10;
/// Bytes that leave with one call: as many whole packets as the largest datagram has, with the headers of IP and UDP.
const BURST_SIZE_MAX: usize = (ARRIVAL_SIZE_MAX - 48) / PACKET_SIZE_MAX * PACKET_SIZE_MAX;
/// Bytes that the kernel is asked to keep for a socket in each direction.
const SOCKET_BUFFER_SIZE: usize = 4 << 20;

/// A UDP socket. Calls do not wait, unless they say so.
#[derive(Debug)]
pub struct DatagramSocket {
    socket: UdpSocket,
    /// The kernel divides bursts.
    divides_bursts: bool,
}

impl DatagramSocket {
    /// Takes over a socket.
    pub fn new(socket: UdpSocket) -> DatagramSocket {
        // As much as the system grants.
        _ = SockRef::from(&socket).set_recv_buffer_size(SOCKET_BUFFER_SIZE);
        _ = SockRef::from(&socket).set_send_buffer_size(SOCKET_BUFFER_SIZE);
        // Without it, packets arrive one by one.
        _ = setsockopt(&socket, sockopt::UdpGroSegment, &true);
        let divides_bursts = setsockopt(&socket, sockopt::UdpGsoSegment, &(PACKET_SIZE_MAX as i32)).is_ok();
        DatagramSocket { socket, divides_bursts }
    }

    /// Returns the address to which the socket is bound.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Receives packets that were sent together. Returns their bytes and their sender, or `None` if there are none.
    pub fn receive_from<'b>(&self, buffer: &'b mut [u8]) -> io::Result<Option<(&'b [u8], SocketAddr)>> {
        match recvfrom(&self.socket, &mut *buffer, RecvFlags::DONTWAIT) {
            Ok((size, _, Some(from))) => {
                let from = SocketAddr::try_from(from).map_err(|_| ErrorKind::InvalidData)?;
                Ok(Some((&buffer[..size.min(ARRIVAL_SIZE_MAX)], from)))
            }
            Ok((_, _, None)) | Err(Errno::AGAIN | Errno::INTR) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Receives packets that were sent together, from the peer of a connected socket. With `waits`, waits for them until
    /// the timeout of the socket. Returns their bytes, or `None` if there are none.
    pub(super) fn receive<'b>(&self, buffer: &'b mut [u8], waits: bool) -> io::Result<Option<&'b [u8]>> {
        let flags = if waits { RecvFlags::empty() } else { RecvFlags::DONTWAIT };
        match recv(&self.socket, &mut *buffer, flags) {
            Ok((size, _)) => Ok(Some(&buffer[..size])),
            Err(Errno::AGAIN | Errno::INTR) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Sets the time after which a receive that waits ends.
    pub(super) fn set_timeout(&self, timeout: Duration) -> io::Result<()> {
        self.socket.set_read_timeout(Some(timeout))
    }

    /// Sends a packet, or several of which all but the last one have the full size: to an address, or to the peer of a
    /// connected socket.
    pub fn send(&self, bytes: &[u8], to: Option<SocketAddr>) -> io::Result<()> {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        let sent = match to {
            Some(to) => sendto(&self.socket, bytes, flags, &to),
            None => send(&self.socket, bytes, flags),
        };
        Ok(sent.map(|_| ())?)
    }
}

impl AsFd for DatagramSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Packets that leave together.
#[derive(Debug, Default)]
pub struct Burst {
    bytes: Vec<u8>,
}

impl Burst {
    /// Sends the packets of a session. Returns their number. A packet that the socket does not take is lost, as on the
    /// network; the error is returned after all were tried.
    pub fn send(
        &mut self,
        session: &mut Session,
        socket: &DatagramSocket,
        to: Option<SocketAddr>,
        now: Instant,
    ) -> io::Result<u64> {
        let (mut count, mut result) = (0, Ok(()));
        self.bytes.clear();
        loop {
            let start = self.bytes.len();
            let has_packet = session.next_packet(now, &mut self.bytes);
            // A packet after a short one, or after enough of them, begins a new burst.
            let is_full = !start.is_multiple_of(PACKET_SIZE_MAX) || start == BURST_SIZE_MAX || !socket.divides_bursts;
            if start > 0 && (is_full || !has_packet) {
                result = result.and(socket.send(&self.bytes[..start], to));
                self.bytes.drain(..start);
            }
            if !has_packet {
                return result.map(|()| count);
            }
            count += 1;
        }
    }
}
