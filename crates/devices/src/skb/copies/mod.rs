//! Copies of what an interface receives and sends, for a capture: a packet socket (packet(7)).
//!
//! The socket sees what comes before the interface's program, and what leaves behind all that send: so it sees what the
//! kernel carries, too. Its filter runs in the kernel; the packet stays on its way. A packet with a VLAN tag that the
//! kernel has taken off is always copied, because the filter would not see the tag; the tag is put back here.
//!
//! The kernel clones a packet that is sent before it asks the filter. A socket for received packets alone says so, and costs
//! the packets that are sent nothing.

mod sys;

use crate::af_xdp::sys::{set_option, set_option_bytes};
use polder_datapath::capture::{Instruction, MOST_INSTRUCTIONS, Where};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// A packet socket on an interface.
#[derive(Debug)]
pub struct Copies {
    socket: OwnedFd,
    /// Room for a tag, and for the first bytes of a packet.
    buffer: Vec<u8>,
    /// True if the kernel has the filter.
    filters: bool,
    /// Packets that have come to the socket, and those of them that were lost.
    counted: [u64; 2],
}

/// A copy of a packet.
#[derive(Clone, Copy, Debug)]
pub struct Copy<'a> {
    /// True if the interface has sent it, false if it has received it.
    pub sent: bool,
    /// Time of the copy, in nanoseconds since 1970.
    pub at: u64,
    /// True if the filter has matched; false if it has not been asked.
    pub matches: bool,
    /// Length of the packet, its tag included.
    pub length: u32,
    /// Its first bytes.
    pub bytes: &'a [u8],
}

impl Copies {
    /// Copies of packets of `interface` that match `filter` as far as the kernel knows, with at least `longest` bytes each
    /// if they have them: of those that it receives, sends, or both.
    ///
    /// # Errors
    /// Errors of the kernel; a filter that it does not take is left out, and all packets are copied.
    pub(super) fn open(
        interface: u32,
        filter: &[Instruction],
        longest: u32,
        places: Where,
    ) -> Result<Self, Errno> {
        let longest = longest.max(FILTERED_BYTES);
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        // Without a protocol nothing comes until it is bound.
        let socket = rustix::net::socket_with(AddressFamily::PACKET, SocketType::RAW, flags, None)?;
        let fd = socket.as_fd();
        let filter = whole_filter(filter, longest, places);
        let filters = filter.is_some_and(|filter| sys::attach(fd, &filter).is_ok());
        if !places.tx {
            // Linux before 4.20 copies both ways; the reader takes the one that it wants.
            let _ = set_option(fd, libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, 1);
        }
        set_option_bytes(fd, libc::SOL_PACKET, libc::PACKET_AUXDATA, &1_u32.to_ne_bytes())?;
        set_option(fd, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1)?;
        // Without the right to more there is what the system grants.
        if set_option(fd, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, RECEIVE_BYTES).is_err() {
            set_option(fd, libc::SOL_SOCKET, libc::SO_RCVBUF, RECEIVE_BYTES)?;
        }
        sys::bind(fd, interface)?;
        let buffer = vec![0; TAG + usize::try_from(longest).unwrap_or(0)];
        Ok(Self { socket, buffer, filters, counted: [0; 2] })
    }

    /// The next copy; `None` if there is none yet.
    ///
    /// # Errors
    /// `NETDOWN` when the interface is switched off or gone.
    pub fn receive(&mut self) -> Result<Option<Copy<'_>>, Errno> {
        let Some(message) = sys::receive(self.socket.as_fd(), &mut self.buffer[TAG..])? else {
            return Ok(None);
        };
        let (status, tag, protocol) = message.tag;
        let (mut length, mut from, end) = (message.length, TAG, TAG + message.copied);
        let mut matches = self.filters;
        if status & libc::TP_STATUS_VLAN_VALID != 0 && message.copied >= ADDRESSES {
            let is_known = status & libc::TP_STATUS_VLAN_TPID_VALID != 0;
            let protocol = if is_known { protocol } else { CUSTOMER_TAG };
            self.buffer.copy_within(TAG..TAG + ADDRESSES, 0);
            self.buffer[ADDRESSES..ADDRESSES + 2].copy_from_slice(&protocol.to_be_bytes());
            self.buffer[ADDRESSES + 2..ADDRESSES + TAG].copy_from_slice(&tag.to_be_bytes());
            (length, from, matches) = (length + 4, 0, false);
        }
        let sent = message.kind == libc::PACKET_OUTGOING;
        Ok(Some(Copy { sent, at: message.at, matches, length, bytes: &self.buffer[from..end] }))
    }

    /// Number of packets that have come to the socket, and of those that found no room there.
    ///
    /// # Errors
    /// Errors of the kernel.
    pub fn counts(&mut self) -> Result<[u64; 2], Errno> {
        let new = sys::statistics(self.socket.as_fd())?;
        self.counted = [0, 1].map(|at| self.counted[at] + u64::from(new[at]));
        Ok(self.counted)
    }
}

impl AsFd for Copies {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// The filter behind a look for the way of the packet and for tags, if it fits.
fn whole_filter(filter: &[Instruction], longest: u32, places: Where) -> Option<Vec<Instruction>> {
    let step = |code, k, (yes, no)| Instruction { code, yes, no, k };
    let if_sent = [
        step(LOAD_BYTE, PACKET_TYPE, (0, 0)),
        step(JUMP_EQUAL, libc::PACKET_OUTGOING.into(), (1, 0)),
        step(RETURN, 0, (0, 0)),
    ];
    let if_sent = if places.rx { &[][..] } else { &if_sent };
    let begin = [
        step(LOAD_WORD, TAG_PRESENT, (0, 0)),
        step(JUMP_EQUAL, 0, (1, 0)),
        step(RETURN, longest, (0, 0)),
        // Programs begin with zero.
        step(LOAD_CONSTANT, 0, (0, 0)),
    ];
    let whole = [if_sent, &begin, filter].concat();
    (whole.len() <= MOST_INSTRUCTIONS).then_some(whole)
}

/// Bytes that wait for the capture.
const RECEIVE_BYTES: u32 = 8 << 20;
/// Bytes that filters see of each packet at least.
const FILTERED_BYTES: u32 = 2048;
/// Addresses of a frame, and a tag.
const ADDRESSES: usize = 12;
const TAG: usize = 4;
const CUSTOMER_TAG: u16 = 0x8100;
/// `BPF_LD | BPF_W | BPF_ABS`, `BPF_LD | BPF_B | BPF_ABS`, `BPF_JMP | BPF_JEQ | BPF_K`, `BPF_RET | BPF_K`,
/// `BPF_LD | BPF_IMM`.
const LOAD_WORD: u16 = 0x20;
const LOAD_BYTE: u16 = 0x30;
const JUMP_EQUAL: u16 = 0x15;
const RETURN: u16 = 0x06;
const LOAD_CONSTANT: u16 = 0x00;
/// `SKF_AD_OFF + SKF_AD_VLAN_TAG_PRESENT`.
const TAG_PRESENT: u32 = 0xffff_f000 + 48;
/// `SKF_AD_OFF + SKF_AD_PKTTYPE`.
const PACKET_TYPE: u32 = 0xffff_f000 + 4;

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;

    /// The loopback interface.
    const LOOPBACK: u32 = 1;
    const PAYLOAD: &[u8] = b"a copy of one way or of both";
    const COUNT: usize = 17;

    /// Copies of packets of ours that were received, and that were sent.
    fn copied(copies: &mut Copies) -> [usize; 2] {
        let mut counts = [0; 2];
        while let Some(copy) = copies.receive().expect("the loopback interface is up") {
            // Errors of ICMP quote it, too.
            let is_ours = copy.bytes.get(23) == Some(&17) && copy.bytes.ends_with(PAYLOAD);
            counts[usize::from(copy.sent)] += usize::from(is_ours);
        }
        counts
    }

    #[test]
    fn the_kernel_copies_the_ways_that_are_wanted_and_no_other() {
        let everything = [Instruction { code: RETURN, yes: 0, no: 0, k: 2048 }];
        for (rx, tx) in [(true, true), (true, false), (false, true)] {
            let places = Where { rx, tx, drops: false };
            // Without the right to packet sockets there is nothing to look at; the namespace tests say so.
            let Ok(mut copies) = Copies::open(LOOPBACK, &everything, 64, places) else { return };
            let socket = UdpSocket::bind("127.0.0.1:0").expect("a UDP socket");
            for _ in 0..COUNT {
                // Nobody listens there, which a later call may tell.
                let _ = socket.send_to(PAYLOAD, "127.0.0.1:9");
            }
            assert_eq!(copied(&mut copies), [rx, tx].map(|wanted| if wanted { COUNT } else { 0 }));
        }
    }
}
