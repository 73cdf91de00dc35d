//! The socket by which connection tracking is followed and changed (netlink(7)).

use polder_devices::netlink::{Client, DATAGRAM};
use rustix::io::Errno;
use rustix::net::netlink::{NETFILTER, SocketAddrNetlink};
use rustix::net::sockopt::{set_socket_recv_buffer_size, set_socket_recv_buffer_size_force};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, getsockname, recv, send, socket_with,
};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Bytes that may wait to be read: 50 000 events. With the kernel's default, a third of 10 000 a second was lost by a
/// reader that stalled for 80 ms.
pub const BUFFER_BYTES: usize = 8 << 20;

/// Connection tracking cannot be followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// The kernel has no netfilter, or no ctnetlink.
    #[error(
        "the kernel tells nothing about connections: load its module nf_conntrack_netlink \
         (`modprobe nf_conntrack_netlink`), or build it with CONFIG_NF_CT_NETLINK"
    )]
    NoConntrack,
    /// The process may not.
    #[error("following connections needs CAP_NET_ADMIN in this network namespace: run as root")]
    NotPermitted,
    /// Another error of the socket.
    #[error("cannot open a netlink socket to follow connections")]
    Socket(#[source] Errno),
}

impl From<Errno> for OpenError {
    fn from(error: Errno) -> Self {
        match error {
            Errno::PERM | Errno::ACCESS => Self::NotPermitted,
            // The subsystem of a module that is not loaded is an invalid one.
            Errno::PROTONOSUPPORT | Errno::AFNOSUPPORT | Errno::INVAL | Errno::OPNOTSUPP => Self::NoConntrack,
            other => Self::Socket(other),
        }
    }
}

/// Result of one look at the socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading<'a> {
    /// A datagram of messages.
    Datagram(&'a [u8]),
    /// Messages were lost: what is known may be wrong, and answers may not come.
    Lost,
    /// Nothing waits.
    Nothing,
}

/// A socket of ctnetlink that hears of new, changed and removed connections of the network namespace that it was opened
/// in. It never blocks.
#[derive(Debug)]
pub struct Socket {
    socket: OwnedFd,
    port_id: u32,
    datagram: Vec<u8>,
}

impl Socket {
    /// Subscribes. The receive buffer has `buffer_bytes` bytes, or what this process is allowed.
    ///
    /// # Errors
    /// If the kernel has no connection tracking, its module is not loaded, or the process may not.
    pub fn open(buffer_bytes: usize) -> Result<Self, OpenError> {
        // A subscription succeeds without the module.
        Client::open(Some(NETFILTER))?.ask(GET_STATS, &[0; 4])?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, Some(NETFILTER))?;
        if set_socket_recv_buffer_size_force(&socket, buffer_bytes).is_err() {
            set_socket_recv_buffer_size(&socket, buffer_bytes)?;
        }
        bind(
            &socket,
            &SocketAddrNetlink::new(0, GROUPS.iter().fold(0, |mask, group| mask | 1 << (group - 1))),
        )?;
        let port_id = SocketAddrNetlink::try_from(getsockname(&socket)?)?.pid();
        Ok(Self { socket, port_id, datagram: vec![0; DATAGRAM] })
    }

    /// Its netlink port: events that its requests have caused have it.
    pub fn port_id(&self) -> u32 {
        self.port_id
    }

    /// Reads a datagram, if one waits.
    ///
    /// # Errors
    /// If the socket fails for good.
    pub fn read(&mut self) -> Result<Reading<'_>, Errno> {
        loop {
            match recv(&self.socket, &mut self.datagram[..], RecvFlags::TRUNC | RecvFlags::DONTWAIT) {
                Ok((_, length)) => {
                    return Ok(self.datagram.get(..length).map_or(Reading::Lost, Reading::Datagram));
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(Reading::Nothing),
                Err(Errno::NOBUFS) => return Ok(Reading::Lost),
                Err(error) => return Err(error),
            }
        }
    }

    /// Sends a datagram of requests. The kernel has done them when this returns; the answers wait to be read.
    ///
    /// # Errors
    /// If it was not sent. Then none of the requests was done.
    pub fn send(&self, requests: &[u8]) -> Result<(), Errno> {
        loop {
            match send(&self.socket, requests, SendFlags::DONTWAIT) {
                Ok(_) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// `NFNLGRP_CONNTRACK_NEW`, `UPDATE` and `DESTROY` of linux/netfilter/nfnetlink.h.
const GROUPS: [u32; 3] = [1, 2, 3];
/// `NFNL_SUBSYS_CTNETLINK` and `IPCTNL_MSG_CT_GET_STATS`.
const GET_STATS: u16 = 0x105;
