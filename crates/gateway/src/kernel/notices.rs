//! Notices of the kernel that interfaces or addresses have changed (rtnetlink(7)).

use polder_datapath::units::Nanos;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType};
use std::os::fd::OwnedFd;

/// A subscription to them.
#[derive(Debug)]
pub(crate) struct Notices(OwnedFd);

impl Notices {
    /// Notices from here on.
    pub(crate) fn new() -> Result<Self, Errno> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
        rustix::net::bind(&socket, &SocketAddrNetlink::new(0, GROUPS))?;
        Ok(Self(socket))
    }

    /// True if there were any since the last time.
    pub(crate) fn take(&self) -> bool {
        let (mut buffer, mut any) = ([0; 64], false);
        loop {
            match rustix::net::recv(&self.0, &mut buffer[..], RecvFlags::TRUNC) {
                Ok(_) | Err(Errno::INTR) => any = true,
                Err(Errno::AGAIN) => return any,
                // Some were lost.
                Err(_) => return true,
            }
        }
    }

    /// Waits until there is one, for `patience` at most, and takes what there is.
    pub(crate) fn wait(&self, patience: Nanos) {
        let seconds = i64::try_from(patience.0 / Nanos::SECOND.0).unwrap_or(i64::MAX);
        let nanos = i64::try_from(patience.0 % Nanos::SECOND.0).unwrap_or_default();
        // An error is the end of a wait, too.
        let _ = poll(
            &mut [PollFd::new(&self.0, PollFlags::IN)],
            Some(&Timespec { tv_sec: seconds, tv_nsec: nanos }),
        );
        self.take();
    }
}

/// `RTMGRP_LINK`, `RTMGRP_IPV4_IFADDR` and `RTMGRP_IPV6_IFADDR` of linux/rtnetlink.h.
const GROUPS: u32 = 0x1 | 0x10 | 0x100;
