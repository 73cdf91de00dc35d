//! One interface as frames: a packet socket (packet(7)).

use super::{interface_number, sys};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Frames of any EtherType (`ETH_P_ALL`).
const ALL: u16 = 3;
/// Frames that the kernel keeps for us, in bytes.
const KEPT: usize = 8 << 20;
/// Bytes of the link-layer addresses, behind which a tag stands.
const ADDRESSES: usize = 12;

/// Packet socket that receives the packets that come in by an interface, and sends by it. It does
/// not receive its own packets.
#[derive(Debug)]
pub struct PacketSocket(OwnedFd);

impl PacketSocket {
    /// Opens it on an interface of the calling thread's namespace.
    ///
    /// # Errors
    /// When there is no such interface, or this is not root.
    pub fn open(interface: &str) -> Result<Self, Errno> {
        Self::bound(interface, ALL)
    }

    /// Opens it for frames of one EtherType, as daemons do: it hears what programs at the interface's ingress leave to the
    /// kernel, and not what they take.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_for(interface: &str, kind: u16) -> Result<Self, Errno> {
        Self::bound(interface, kind)
    }

    fn bound(interface: &str, kind: u16) -> Result<Self, Errno> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::PACKET, SocketType::RAW, flags, None)?;
        // A smaller one only loses more when this process stands still.
        let _ = rustix::net::sockopt::set_socket_recv_buffer_size_force(&socket, KEPT);
        let own = Self(socket);
        sys::set_option(own.as_fd(), libc::SOL_PACKET, libc::PACKET_AUXDATA, 1)?;
        sys::bind_to_interface(own.as_fd(), interface_number(interface)?, kind)?;
        Ok(own)
    }

    /// The same without packets that other sockets of this machine send by the interface, which fill the buffer of one beside
    /// a flood.
    ///
    /// # Errors
    /// When the kernel is older than Linux 4.20.
    pub fn incoming_alone(self) -> Result<Self, Errno> {
        sys::set_option(self.as_fd(), libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, 1)?;
        Ok(self)
    }

    /// Sends a frame.
    ///
    /// # Errors
    /// When the interface does not take it.
    pub fn send(&self, frame: &[u8]) -> Result<(), Errno> {
        send(&self.0, frame, SendFlags::empty()).map(drop)
    }

    /// The next frame; its length, at most the room's.
    ///
    /// # Errors
    /// [`Errno::AGAIN`] when there is none.
    pub fn receive(&self, room: &mut [u8]) -> Result<usize, Errno> {
        recv(&self.0, room, RecvFlags::empty()).map(|(length, _)| length)
    }

    /// The next frame as it was on the wire: with its tag, which the kernel keeps beside the bytes.
    ///
    /// # Errors
    /// [`Errno::AGAIN`] when there is none.
    pub fn receive_tagged(&self, room: &mut [u8]) -> Result<Vec<u8>, Errno> {
        let (length, tag) = sys::receive_with_tag(self.as_fd(), room)?;
        let mut frame = room.get(..length).unwrap_or_default().to_vec();
        if let Some(tag) = tag.filter(|_| length >= ADDRESSES) {
            frame.splice(ADDRESSES..ADDRESSES, tag);
        }
        Ok(frame)
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
