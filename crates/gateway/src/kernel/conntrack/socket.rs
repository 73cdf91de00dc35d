//! The socket by which connection tracking is followed and changed (netlink(7)).

use super::message::{CONNECTION_DELETE, CONNECTION_NEW, CTA_STATUS, CTA_SYNPROXY, NLM_F_MULTI, Status};
use polder_devices::netlink::{
    Client, DATAGRAM, Instruction, JUMP_EQUAL, LOAD_HALF, LOAD_WORD, RETURN, filter_socket,
};
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
        "the kernel does not report connections: load its module nf_conntrack_netlink (`modprobe \
         nf_conntrack_netlink`), or build it with CONFIG_NF_CT_NETLINK"
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

/// A socket of ctnetlink that hears of changed and removed connections of the network namespace that it was opened in:
/// changes of those that are assured, and ends of those that had an answer. It never blocks.
///
/// Most connections end soon. So the kernel is not asked for messages about new ones, each of which would cost it more
/// than a packet, and leaves out what nobody would carry.
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
        load()?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, Some(NETFILTER))?;
        if set_socket_recv_buffer_size_force(&socket, buffer_bytes).is_err() {
            set_socket_recv_buffer_size(&socket, buffer_bytes)?;
        }
        // Before it hears anything.
        filter_socket(&socket, &FILTER)?;
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

/// Asks the kernel about connections, for which it loads its modules if it can.
///
/// # Errors
/// If the kernel has no connection tracking, its module is not loaded, or the process may not.
pub fn load() -> Result<(), OpenError> {
    Ok(Client::open(Some(NETFILTER))?.ask(GET_STATS, &[0; 4]).map(drop)?)
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// `NFNLGRP_CONNTRACK_UPDATE` and `DESTROY` of linux/netfilter/nfnetlink.h.
const GROUPS: [u32; 2] = [2, 3];
/// `NFNL_SUBSYS_CTNETLINK` and `IPCTNL_MSG_CT_GET_STATS`.
const GET_STATS: u16 = 0x105;

/// A program of classic BPF that lets through answers, changes of connections that are assured or whose handshake the
/// kernel answers, and ends of those that had an answer. (A flowtable may take back that a connection is assured.)
const FILTER: [Instruction; 23] = [
    (LOAD_HALF, 0, 0, 4), // nlmsghdr.nlmsg_type
    (JUMP_EQUAL, 13, 0, CONNECTION_DELETE.to_be() as u32),
    (JUMP_EQUAL, 0, 18, CONNECTION_NEW.to_be() as u32),
    (LOAD_HALF, 0, 0, 6), // nlmsghdr.nlmsg_flags
    (JUMP_BITS, 16, 0, NLM_F_MULTI.to_be() as u32),
    (SET, 0, 0, ATTRIBUTES),
    (SET_INDEX, 0, 0, CTA_SYNPROXY as u32),
    (LOAD_WORD, 0, 0, FIND_ATTRIBUTE),
    (JUMP_EQUAL, 0, 12, 0),
    (SET, 0, 0, ATTRIBUTES),
    (SET_INDEX, 0, 0, CTA_STATUS as u32),
    (LOAD_WORD, 0, 0, FIND_ATTRIBUTE),
    (TO_INDEX, 0, 0, 0),
    (LOAD_WORD_BEHIND, 0, 0, 4),
    (JUMP_BITS, 6, 7, Status::ASSURED.0),
    (SET, 0, 0, ATTRIBUTES), // CONNECTION_DELETE
    (SET_INDEX, 0, 0, CTA_STATUS as u32),
    (LOAD_WORD, 0, 0, FIND_ATTRIBUTE),
    (TO_INDEX, 0, 0, 0),
    (LOAD_WORD_BEHIND, 0, 0, 4),
    (JUMP_BITS, 0, 1, Status::SEEN_REPLY.0),
    (RETURN, 0, 0, u32::MAX),
    (RETURN, 0, 0, 0),
];
/// Offset of the first attribute.
const ATTRIBUTES: u32 = 20;
/// `SKF_AD_OFF + SKF_AD_NLATTR` of linux/filter.h: the offset of the attribute of the type in the index, from that offset in
/// the accumulator on; 0 if there is none.
const FIND_ATTRIBUTE: u32 = 0xffff_f00c;
/// Operations of classic BPF: the accumulator, or the index, becomes the operand; the index becomes the accumulator; a load
/// from behind the index; a jump if one of the bits is set.
const SET: u16 = 0x00;
const SET_INDEX: u16 = 0x01;
const TO_INDEX: u16 = 0x07;
const LOAD_WORD_BEHIND: u16 = 0x40;
const JUMP_BITS: u16 = 0x45;
