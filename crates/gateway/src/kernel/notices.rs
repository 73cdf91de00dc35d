//! Netlink notices about changed interfaces and addresses (rtnetlink(7)).

use polder_datapath::units::Nanos;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType};
use std::os::fd::OwnedFd;

/// A subscription to the notices.
#[derive(Debug)]
pub(crate) struct Notices(OwnedFd);

impl Notices {
    /// Subscribes.
    pub(crate) fn new() -> Result<Self, Errno> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
        rustix::net::bind(&socket, &SocketAddrNetlink::new(0, GROUPS))?;
        Ok(Self(socket))
    }

    /// Discards queued notices; returns true if there were any.
    pub(crate) fn take(&self) -> bool {
        let (mut buffer, mut any) = ([0; 64], false);
        loop {
            match rustix::net::recv(&self.0, &mut buffer[..], RecvFlags::TRUNC) {
                Ok(_) | Err(Errno::INTR) => any = true,
                Err(Errno::AGAIN) => return any,
                // Notices were lost, which counts as a notice.
                Err(_) => return true,
            }
        }
    }

    /// Waits at most `patience` for a notice, and discards all queued ones.
    pub(crate) fn wait(&self, patience: Nanos) {
        let seconds = i64::try_from(patience.0 / Nanos::SECOND.0).unwrap_or(i64::MAX);
        let nanos = i64::try_from(patience.0 % Nanos::SECOND.0).unwrap_or_default();
        // An error ends the wait, too.
        let _ = poll(
            &mut [PollFd::new(&self.0, PollFlags::IN)],
            Some(&Timespec { tv_sec: seconds, tv_nsec: nanos }),
        );
        self.take();
    }
}

/// `RTMGRP_LINK`, `RTMGRP_IPV4_IFADDR` and `RTMGRP_IPV6_IFADDR` of linux/rtnetlink.h.
const GROUPS: u32 = 0x1 | 0x10 | 0x100;
