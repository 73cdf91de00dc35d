//! Notices of the kernel that its tables of rules have changed (netlink(7)).

use rustix::io::Errno;
use rustix::net::netlink::{NETFILTER, SocketAddrNetlink};
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, bind, recv, socket_with};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// A socket that hears when tables of nf_tables change.
#[derive(Debug)]
pub struct Subscription(OwnedFd);

impl Subscription {
    /// Subscribes.
    ///
    /// # Errors
    /// When the kernel does not let this process, or has no nf_tables.
    pub fn open() -> Result<Self, Errno> {
        let (family, flags) = (AddressFamily::NETLINK, SocketFlags::CLOEXEC);
        let socket = socket_with(family, SocketType::RAW, flags, Some(NETFILTER))?;
        bind(&socket, &SocketAddrNetlink::new(0, 1 << (NFNLGRP_NFTABLES - 1)))?;
        Ok(Self(socket))
    }

    /// Reads waiting notices; lost notices are as good as others.
    pub fn drain(&mut self) {
        let mut datagram = [0_u8; 1];
        for _ in 0..NOTICES {
            match recv(&self.0, &mut datagram[..], RecvFlags::TRUNC | RecvFlags::DONTWAIT) {
                Ok(_) | Err(Errno::NOBUFS | Errno::INTR) => {}
                Err(_) => return,
            }
        }
    }
}

impl AsFd for Subscription {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Maximum number of notices that are taken at a time.
const NOTICES: usize = 100_000;
const NFNLGRP_NFTABLES: u32 = 7;
