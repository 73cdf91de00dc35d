//! The event that wakes a worker, for packets and for a deleted interface.
//!
//! The kernel does not make an AF_XDP socket readable when its interface is deleted. So the event of a queue
//! is an epoll descriptor of two: the socket, and a netlink socket whose filter passes only the message that
//! the link was deleted. The message follows the unbinding and stays unread, so a queue whose interface is
//! gone stays readable.

use crate::netlink::{Instruction, JUMP_EQUAL, LOAD_BYTE, LOAD_HALF, LOAD_WORD, RETURN, filter_socket};
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The event of one queue.
#[derive(Debug)]
pub(super) struct Watch {
    epoll: OwnedFd,
    /// Keeps the subscription.
    _links: OwnedFd,
}

impl Watch {
    /// Watches `socket` and the link of index `interface`, which exists.
    pub(super) fn new(socket: &OwnedFd, interface: u32) -> Result<Self, Errno> {
        let links = deletions(interface)?;
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        for fd in [socket, &links] {
            epoll::add(&epoll, fd, EventData::new_u64(0), EventFlags::IN)?;
        }
        Ok(Self { epoll, _links: links })
    }
}

impl AsFd for Watch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

/// Returns a netlink socket that becomes readable when the link of index `interface` is deleted
/// (rtnetlink(7)).
fn deletions(interface: u32) -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
    filter_socket(&socket, &filter(interface))?;
    rustix::net::bind(&socket, &SocketAddrNetlink::new(0, GROUP_LINK))?;
    Ok(socket)
}

/// Returns a classic BPF program that passes RTM_DELLINK for `interface` and nothing else.
///
/// Loads convert from network byte order, and the message is in host order.
fn filter(interface: u32) -> [Instruction; 8] {
    let delete = u32::from(libc::RTM_DELLINK.to_be());
    [
        (LOAD_HALF, 0, 0, 4), // nlmsghdr.nlmsg_type
        (JUMP_EQUAL, 0, 5, delete),
        (LOAD_BYTE, 0, 0, 16), // ifinfomsg.ifi_family; a bridge that releases a port sends 7
        (JUMP_EQUAL, 0, 3, 0),
        (LOAD_WORD, 0, 0, 20), // ifinfomsg.ifi_index
        (JUMP_EQUAL, 0, 1, interface.to_be()),
        (RETURN, 0, 0, u32::MAX),
        (RETURN, 0, 0, 0),
    ]
}

/// `RTMGRP_LINK`.
const GROUP_LINK: u32 = 1;
