//! Questions to the kernel that are answered by a list (netlink(7)).

use crate::kernel::message::{HEADER, number, number16};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::netlink::{self, SocketAddrNetlink};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, recv, send, socket_with,
};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The largest datagram of a dump.
const DATAGRAM: usize = 1 << 16;
/// A dump during which something has changed is asked for again so often.
const ATTEMPTS: usize = 20;
/// The kernel answers at once or not at all.
const PATIENCE: Timespec = Timespec { tv_sec: 5, tv_nsec: 0 };

/// A protocol of netlink that is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    /// `NETLINK_ROUTE`.
    Route,
    /// `NETLINK_NETFILTER`.
    Netfilter,
    /// `NETLINK_XFRM`.
    Xfrm,
}

/// A conversation with the kernel.
#[derive(Debug)]
pub(super) struct Dump {
    socket: OwnedFd,
    sequence: u32,
    datagram: Vec<u8>,
}

impl Dump {
    /// Opens a conversation.
    pub(super) fn open(protocol: Protocol) -> Result<Self, Errno> {
        let socket = open(protocol)?;
        Ok(Self { socket, sequence: 0, datagram: vec![0; DATAGRAM] })
    }

    /// Sends a request, which is a header of the protocol and attributes, and collects type and body of each
    /// answer; again when something has changed in the meantime.
    pub(super) fn ask(&mut self, kind: u16, body: &[u8]) -> Result<Vec<(u16, Vec<u8>)>, Errno> {
        for _ in 1..ATTEMPTS {
            match self.attempt(kind, body, NLM_F_REQUEST | NLM_F_DUMP) {
                Err(Errno::INTR | Errno::AGAIN | Errno::BUSY) => {}
                outcome => return outcome,
            }
        }
        self.attempt(kind, body, NLM_F_REQUEST | NLM_F_DUMP)
    }

    /// The same for a question with one answer.
    pub(super) fn ask_one(&mut self, kind: u16, body: &[u8]) -> Result<Vec<(u16, Vec<u8>)>, Errno> {
        self.attempt(kind, body, NLM_F_REQUEST | NLM_F_ACK)
    }

    fn attempt(&mut self, kind: u16, body: &[u8], flags: u16) -> Result<Vec<(u16, Vec<u8>)>, Errno> {
        self.sequence = self.sequence.wrapping_add(1).max(1);
        send(&self.socket, &request(kind, flags, self.sequence, body), SendFlags::empty())?;
        let mut answers = Vec::new();
        let mut is_interrupted = false;
        loop {
            let mut files = [PollFd::new(&self.socket, PollFlags::IN)];
            if poll(&mut files, Some(&PATIENCE))? == 0 {
                return Err(Errno::TIMEDOUT);
            }
            let (_, length) =
                recv(&self.socket, &mut self.datagram[..], RecvFlags::TRUNC | RecvFlags::DONTWAIT)?;
            let Some(rest) = self.datagram.get(..length) else { return Err(Errno::MSGSIZE) };
            // What is left of an attempt that was given up has another number.
            for message in messages(rest).filter(|message| message.sequence == self.sequence) {
                is_interrupted |= message.flags & NLM_F_DUMP_INTR != 0;
                match message.outcome() {
                    None => answers.push((message.kind, message.body.to_vec())),
                    Some(_) if is_interrupted => return Err(Errno::INTR),
                    Some(outcome) => return outcome.map(|()| answers),
                }
            }
        }
    }
}

/// A message of a datagram.
struct Message<'a> {
    kind: u16,
    flags: u16,
    sequence: u32,
    body: &'a [u8],
}

impl Message<'_> {
    /// The end of a dump, or an error.
    fn outcome(&self) -> Option<Result<(), Errno>> {
        if !matches!(self.kind, NLMSG_DONE | NLMSG_ERROR) {
            return None;
        }
        let code = number(self.body).map_or(0, u32::cast_signed);
        Some(if code == 0 { Ok(()) } else { Err(Errno::from_raw_os_error(code.saturating_neg())) })
    }
}

fn messages(mut rest: &[u8]) -> impl Iterator<Item = Message<'_>> {
    core::iter::from_fn(move || {
        let length = number(rest)? as usize;
        let message = rest.get(..length).filter(|_| length >= HEADER)?;
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(Message {
            kind: number16(message.get(4..)?)?,
            flags: number16(message.get(6..)?)?,
            sequence: number(message.get(8..)?)?,
            body: message.get(HEADER..)?,
        })
    })
}

/// A socket of that protocol.
fn open(protocol: Protocol) -> Result<OwnedFd, Errno> {
    let protocol = match protocol {
        // Number 0.
        Protocol::Route => None,
        Protocol::Netfilter => Some(netlink::NETFILTER),
        Protocol::Xfrm => Some(netlink::XFRM),
    };
    socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, protocol)
}

/// A socket that hears when tables of nf_tables change.
#[derive(Debug)]
pub struct Subscription(OwnedFd);

impl Subscription {
    /// Subscribes.
    ///
    /// # Errors
    /// When the kernel does not let this process, or has no nf_tables.
    pub fn open() -> Result<Self, Errno> {
        let socket = open(Protocol::Netfilter)?;
        bind(&socket, &SocketAddrNetlink::new(0, 1 << (NFNLGRP_NFTABLES - 1)))?;
        Ok(Self(socket))
    }

    /// Takes what has come; lost notices are as good as others.
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

fn request(kind: u16, flags: u16, sequence: u32, body: &[u8]) -> Vec<u8> {
    let mut message = vec![0; HEADER];
    message.extend_from_slice(body);
    let length = u32::try_from(message.len()).unwrap_or(u32::MAX);
    message[0..4].copy_from_slice(&length.to_ne_bytes());
    message[4..6].copy_from_slice(&kind.to_ne_bytes());
    message[6..8].copy_from_slice(&flags.to_ne_bytes());
    message[8..12].copy_from_slice(&sequence.to_ne_bytes());
    message
}

/// Notices that are taken at a time.
const NOTICES: usize = 100_000;
const NFNLGRP_NFTABLES: u32 = 7;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLM_F_REQUEST: u16 = 0x001;
const NLM_F_ACK: u16 = 0x004;
const NLM_F_DUMP_INTR: u16 = 0x10;
const NLM_F_DUMP: u16 = 0x300;
