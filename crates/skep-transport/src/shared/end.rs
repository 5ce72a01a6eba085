//! One end of a connection over shared memory: the two files, and the socket for doorbells.

use std::cell::{Cell, RefCell};
use std::io::{Error, ErrorKind, Result};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use super::mapping::{OwnMapping, PeerMapping};
use super::side::{InvalidWord, Side};

/// Bytes that a doorbell takes from the socket at a time. The other side sends one for each wait.
const DOORBELLS_MAX: usize = 64;

/// One end of a connection. A call never waits.
#[derive(Debug)]
pub struct End {
    side: RefCell<Side>,
    own: OwnMapping,
    peer: PeerMapping,
    socket: UnixStream,
    /// The other process has closed its end of the socket.
    is_over: Cell<bool>,
    invalid: Cell<Option<InvalidWord>>,
}

/// Changes since the last use of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Bytes have arrived.
    pub has_bytes: bool,
    /// The other side has taken bytes, after a send found too little room.
    pub has_room: bool,
}

impl End {
    /// Joins the files with the socket.
    pub(crate) fn new(own: OwnMapping, peer: PeerMapping, socket: UnixStream) -> End {
        End { side: RefCell::default(), own, peer, socket, is_over: Cell::new(false), invalid: Cell::new(None) }
    }

    /// Receives bytes that have arrived. Returns how many these are, or 0 if the other side has ended.
    pub fn receive(&self, buffer: &mut [u8]) -> Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        let mut size = self.receive_now(buffer)?;
        if size == 0 && (self.is_over.get() || self.side.borrow().has_peer_ended(self.peer.file())) {
            // The other side may have sent its last bytes between the two checks.
            size = self.receive_now(buffer)?;
        } else if size == 0 {
            return Err(ErrorKind::WouldBlock.into());
        }
        Ok(size)
    }

    fn receive_now(&self, buffer: &mut [u8]) -> Result<usize> {
        let moved = self.side.borrow_mut().receive(self.own.file(), self.peer.file(), buffer);
        let moved = moved.map_err(|invalid| self.refuse(invalid))?;
        if moved.must_ring {
            self.ring();
        }
        Ok(moved.size)
    }

    /// Sends as many of the bytes as there is room for. Returns how many these are.
    pub fn send(&self, bytes: &[u8]) -> Result<usize> {
        if self.is_over.get() {
            return Err(ErrorKind::BrokenPipe.into());
        }
        let (own, peer) = (self.own.file(), self.peer.file());
        let mut sent = 0;
        loop {
            let mut side = self.side.borrow_mut();
            let moved = match side.send(own, peer, &bytes[sent..]).map_err(|invalid| self.refuse(invalid)) {
                Ok(moved) => moved,
                // The other side may take the bytes that were sent before.
                Err(_) if sent > 0 => break,
                Err(error) => return Err(error),
            };
            sent += moved.size;
            if moved.must_ring {
                self.ring();
            }
            if sent == bytes.len() || !side.is_waiting() {
                break;
            }
            // A side that waits for doorbells needs one for room too.
            side.begin_wait(own, true);
            if !side.has_room(peer) {
                break;
            }
        }
        if sent == 0 && !bytes.is_empty() { Err(ErrorKind::WouldBlock.into()) } else { Ok(sent) }
    }

    fn refuse(&self, invalid: InvalidWord) -> Error {
        self.invalid.set(Some(invalid));
        Error::new(ErrorKind::InvalidData, invalid)
    }

    /// Returns the invalid word that the other side has written, if it has.
    pub fn invalid_word(&self) -> Option<InvalidWord> {
        self.invalid.get()
    }

    /// Rings the doorbell. The socket takes no byte if it is full of doorbells, or if the other process has ended.
    fn ring(&self) {
        let _ = send(&self.socket, &[1], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
    }

    /// Returns true if there is something to receive, or room to send if the caller waits for it, or if the other side
    /// has ended. The caller must have received all bytes that it can.
    pub fn is_ready(&self, for_room: bool) -> bool {
        let (side, peer) = (self.side.borrow(), self.peer.file());
        self.is_over.get() || side.has_bytes(peer) || for_room && side.has_room(peer) || side.has_peer_ended(peer)
    }

    /// Returns true if no byte and no end has arrived, as far as memory says.
    pub fn has_nothing_to_receive(&self) -> bool {
        !self.is_ready(false)
    }

    /// Returns the changes since the last call or the last use, each once. Costs no system call.
    #[inline]
    pub fn take_changes(&self) -> Changes {
        let (has_bytes, has_room) = self.side.borrow_mut().take_changes(self.peer.file());
        Changes { has_bytes, has_room }
    }

    /// Returns true if [`End::take_changes`] would return a change.
    #[inline]
    pub fn has_changes(&self) -> bool {
        self.side.borrow().has_changes(self.peer.file())
    }

    /// Asks the other side for doorbells from now on: for bytes, and for room if a send found too little, or if
    /// `for_room` says so. Before the caller sleeps, it must check once more with [`End::take_changes`] or [`End::is_ready`].
    pub fn begin_wait(&self, for_room: bool) {
        let mut side = self.side.borrow_mut();
        let for_room = for_room || side.is_blocked();
        side.begin_wait(self.own.file(), for_room);
    }

    /// Ends a wait: the other side rings no more.
    pub fn end_wait(&self) {
        self.side.borrow_mut().end_wait(self.own.file());
    }

    /// Takes the doorbells that have arrived. Returns false if the other process has closed the socket.
    pub fn take_doorbells(&self) -> bool {
        let mut doorbells = [0; DOORBELLS_MAX];
        match recv(&self.socket, &mut doorbells, RecvFlags::DONTWAIT) {
            Ok((_, 0)) => self.is_over.set(true),
            Ok(_) | Err(Errno::AGAIN | Errno::INTR) => {}
            Err(_) => self.is_over.set(true),
        }
        !self.is_over.get()
    }

    /// Tells the other side that no more bytes will be sent.
    pub fn finish(&self) -> Result<()> {
        self.side.borrow_mut().finish(self.own.file());
        self.socket.shutdown(Shutdown::Write)
    }
}

impl AsFd for End {
    /// Returns the socket: it is readable when a doorbell has arrived or the other process has ended.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for End {
    fn drop(&mut self) {
        self.side.borrow_mut().finish(self.own.file());
    }
}
