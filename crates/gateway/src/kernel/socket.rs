//! The rtnetlink socket for following the kernel's tables (netlink(7)).

use super::follower::Follower;
use super::hold::Hold;
use super::message::Neighbour;
use super::mirror::Mirror;
use super::request::{keep_neighbour, use_neighbour};
use polder_datapath::units::Nanos;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::sockopt::{set_socket_recv_buffer_size, set_socket_recv_buffer_size_force};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, recv, send, socket_with,
};
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Size of the receive buffer in bytes: enough for the notices of a daemon that has lost its peer.
pub const BUFFER_BYTES: usize = 8 << 20;
/// Maximum length of a datagram in bytes; dumps come in parts of at most 32 KiB.
const DATAGRAM: usize = 1 << 16;
/// Maximum number of datagrams that one call of [`Follow::attend`] reads.
const DATAGRAMS: usize = 512;

/// Follower of the kernel's tables in the calling thread's network namespace.
#[derive(Debug)]
pub struct Follow {
    socket: OwnedFd,
    buffer_bytes: usize,
    datagram: Vec<u8>,
    follower: Follower,
    /// Neighbours that the kernel was asked for since all notices were read.
    asked: Vec<(u32, IpAddr)>,
}

impl Follow {
    /// Subscribes, and begins to dump the tables.
    ///
    /// # Errors
    /// When the process cannot open such a socket.
    pub fn start(buffer_bytes: usize) -> Result<Self, Errno> {
        let socket = subscribe(buffer_bytes)?;
        let (datagram, follower) = (vec![0; DATAGRAM], Follower::default());
        Ok(Self { socket, buffer_bytes, datagram, follower, asked: Vec::new() })
    }

    /// Copy of the kernel's tables.
    pub fn mirror(&self) -> &Mirror {
        self.follower.mirror()
    }

    /// Mutable access, to take changes.
    pub fn mirror_mut(&mut self) -> &mut Mirror {
        self.follower.mirror_mut()
    }

    /// Held routes of daemons that have ended.
    pub fn hold(&self) -> &Hold {
        self.follower.hold()
    }

    /// Mutable access, to take changes.
    pub fn hold_mut(&mut self) -> &mut Hold {
        self.follower.hold_mut()
    }

    /// Sets the time for which routes of an ended daemon are held; 0 disables it.
    pub fn set_hold(&mut self, time: Nanos) {
        self.follower.set_hold(time);
    }

    /// True if all tables were dumped since the start, or since a notice was lost.
    pub fn is_settled(&self) -> bool {
        self.follower.is_settled()
    }

    /// Number of times that all tables were dumped again because notices were lost.
    pub fn restarts(&self) -> u64 {
        self.follower.restarts()
    }

    /// Time at which [`Follow::attend`] is due without other events.
    pub fn next_deadline(&self) -> Option<Nanos> {
        self.follower.next_deadline()
    }

    /// Reads queued messages and sends due requests. Returns true if more messages may be queued.
    ///
    /// # Errors
    /// When the socket fails for good.
    pub fn attend(&mut self, now: Nanos) -> Result<bool, Errno> {
        self.ask(now)?;
        let more = self.read(now);
        self.follower.release(now);
        if matches!(more, Ok(false)) {
            self.keep_permanent();
        }
        more
    }

    /// Makes those neighbours permanent again that somebody made permanent while the kernel was asked for them.
    fn keep_permanent(&mut self) {
        for (index, address) in std::mem::take(&mut self.asked) {
            let known = self.mirror().neighbour(index, address).filter(Neighbour::is_permanent);
            if let Some(mac) = known.and_then(|known| known.mac) {
                self.send_about(address, &keep_neighbour(index, address, mac));
            }
        }
    }

    fn read(&mut self, now: Nanos) -> Result<bool, Errno> {
        for _ in 0..DATAGRAMS {
            let read = recv(&self.socket, &mut self.datagram[..], RecvFlags::TRUNC | RecvFlags::DONTWAIT);
            match read {
                Ok((_, length)) if length > self.datagram.len() => self.start_again()?,
                Ok((_, length)) => self.follower.hear(&self.datagram[..length], now),
                Err(Errno::AGAIN) => return Ok(false),
                Err(Errno::INTR) => {}
                Err(Errno::NOBUFS) => self.start_again()?,
                Err(error) => return Err(error),
            }
            self.ask(now)?;
        }
        Ok(true)
    }

    /// Waits until all tables are known, at most `patience`; returns whether they are.
    ///
    /// # Errors
    /// As [`Follow::attend`].
    pub fn settle(&mut self, now: impl Fn() -> Nanos, patience: Nanos) -> Result<bool, Errno> {
        let end = now() + patience;
        while !self.is_settled() && now() < end {
            if !self.attend(now())? && !self.is_settled() {
                self.wait()?;
            }
        }
        Ok(self.is_settled())
    }

    /// Waits for a datagram, at most 50 ms.
    fn wait(&self) -> Result<(), Errno> {
        let mut files = [PollFd::new(&self.socket, PollFlags::IN)];
        match poll(&mut files, Some(&Timespec { tv_sec: 0, tv_nsec: 50_000_000 })) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Makes the kernel resolve or probe a neighbour, unless that is permanent.
    pub fn resolve(&mut self, index: u32, address: IpAddr) {
        let known = self.mirror().neighbour(index, address);
        if known.is_some_and(|known| known.is_permanent()) {
            return;
        }
        self.asked.push((index, address));
        self.send_about(address, &use_neighbour(index, address, known.is_none()));
    }

    fn send_about(&self, address: IpAddr, request: &[u8]) {
        if let Err(error) = send(&self.socket, request, SendFlags::DONTWAIT) {
            tracing::debug!(%address, %error, "cannot ask the kernel for a neighbour");
        }
    }

    fn ask(&mut self, now: Nanos) -> Result<(), Errno> {
        while let Some(request) = self.follower.next_request(now) {
            match send(&self.socket, &request, SendFlags::DONTWAIT) {
                Ok(_) => return Ok(()),
                Err(Errno::NOBUFS | Errno::AGAIN | Errno::NOMEM | Errno::INTR) => self.start_again()?,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Opens a new socket, which has no messages of an old dump.
    #[cold]
    fn start_again(&mut self) -> Result<(), Errno> {
        self.socket = subscribe(self.buffer_bytes)?;
        self.follower.restart();
        Ok(())
    }
}

impl AsFd for Follow {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn subscribe(buffer_bytes: usize) -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
    if set_socket_recv_buffer_size_force(&socket, buffer_bytes).is_err() {
        set_socket_recv_buffer_size(&socket, buffer_bytes)?;
    }
    bind(&socket, &SocketAddrNetlink::new(0, GROUPS.iter().fold(0, |mask, group| mask | 1 << (group - 1))))?;
    Ok(socket)
}

/// `RTNLGRP_*` of linux/rtnetlink.h: links, neighbours; IPv4 addresses, routes, rules; the same for IPv6;
/// IPv4 settings; nexthop objects.
const GROUPS: [u32; 10] = [1, 3, 5, 7, 8, 9, 11, 19, 24, 32];
