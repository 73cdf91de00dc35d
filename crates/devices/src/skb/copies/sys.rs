//! System calls of packet sockets that have no safe wrapper; what leaves this file is safe to call.
//!
//! Facts are looked up in packet(7), socket(7), recv(2) and cmsg(3).
#![expect(unsafe_code, reason = "UNSAFETY: a filter, an address, messages with control data")]

use polder_datapath::capture::Instruction;
use rustix::io::Errno;
use std::os::fd::{AsRawFd as _, BorrowedFd};

/// A message of a packet socket.
#[derive(Clone, Copy, Debug)]
pub(super) struct Message {
    /// Bytes that were copied.
    pub(super) copied: usize,
    /// `sockaddr_ll.sll_pkttype`.
    pub(super) kind: u8,
    /// Length of the packet.
    pub(super) length: u32,
    /// `tpacket_auxdata`: status, tag and its protocol.
    pub(super) tag: (u32, u16, u16),
    /// Time of the copy, in nanoseconds since 1970; 0 if it is unknown.
    pub(super) at: u64,
}

/// Attaches a filter, which a kernel without one of its instructions refuses.
pub(super) fn attach(socket: BorrowedFd<'_>, filter: &[Instruction]) -> Result<(), Errno> {
    let convert = |it: &Instruction| libc::sock_filter { code: it.code, jt: it.yes, jf: it.no, k: it.k };
    let mut filter = filter.iter().map(convert).collect::<Vec<_>>();
    let len = u16::try_from(filter.len()).map_err(|_| Errno::INVAL)?;
    let program = libc::sock_fprog { len, filter: filter.as_mut_ptr() };
    let length = libc::socklen_t::try_from(size_of::<libc::sock_fprog>()).map_err(|_| Errno::INVAL)?;
    // SAFETY: the kernel reads the structure, and as many instructions as it says, which are those of the vector; both
    // live across the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            (&raw const program).cast(),
            length,
        )
    };
    if result == 0 { Ok(()) } else { Err(last_error()) }
}

/// Lets packets of all protocols of that interface come.
pub(super) fn bind(socket: BorrowedFd<'_>, interface: u32) -> Result<(), Errno> {
    // SAFETY: the structure is numbers alone, for which zero is a value.
    let mut address: libc::sockaddr_ll = unsafe { core::mem::zeroed() };
    address.sll_family = u16::try_from(libc::AF_PACKET).map_err(|_| Errno::INVAL)?;
    address.sll_protocol = u16::try_from(libc::ETH_P_ALL).map_err(|_| Errno::INVAL)?.to_be();
    address.sll_ifindex = i32::try_from(interface).map_err(|_| Errno::NODEV)?;
    let length = libc::socklen_t::try_from(size_of_val(&address)).map_err(|_| Errno::INVAL)?;
    // SAFETY: the kernel reads `length` bytes, the structure's size, which lives across the call.
    let result = unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) };
    if result == 0 { Ok(()) } else { Err(last_error()) }
}

/// Packets that have come to the socket since this was asked last, and those of them that were lost.
pub(super) fn statistics(socket: BorrowedFd<'_>) -> Result<[u32; 2], Errno> {
    let mut statistics = [0_u32; 2];
    let mut length: libc::socklen_t = 8;
    // SAFETY: the kernel writes at most `length` bytes, the array's size (`tpacket_stats`), and the length itself; both
    // live across the call.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_PACKET,
            libc::PACKET_STATISTICS,
            statistics.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    if result == 0 { Ok(statistics) } else { Err(last_error()) }
}

/// Takes a message into `buffer`; `None` if there is none.
pub(super) fn receive(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> Result<Option<Message>, Errno> {
    let mut part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    // SAFETY: both structures are numbers and pointers, for which zero is a value.
    let (mut from, mut header): (libc::sockaddr_ll, libc::msghdr) = unsafe { core::mem::zeroed() };
    let mut control = [0_u64; 16];
    header.msg_name = (&raw mut from).cast();
    header.msg_namelen = libc::socklen_t::try_from(size_of_val(&from)).map_err(|_| Errno::INVAL)?;
    (header.msg_iov, header.msg_iovlen) = (&raw mut part, 1);
    (header.msg_control, header.msg_controllen) = (control.as_mut_ptr().cast(), size_of_val(&control));
    // SAFETY: the kernel writes at most as many bytes as the header says of each place: the buffer, the address and the
    // control data, which live across the call.
    let result = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut header, libc::MSG_DONTWAIT) };
    let Ok(copied) = usize::try_from(result) else {
        return match last_error() {
            Errno::AGAIN | Errno::INTR => Ok(None),
            error => Err(error),
        };
    };
    let mut message = Message { copied, kind: from.sll_pkttype, length: 0, tag: (0, 0, 0), at: 0 };
    // SAFETY: the header is the one that the kernel has filled.
    let mut next = unsafe { libc::CMSG_FIRSTHDR(&raw const header) };
    while !next.is_null() {
        // SAFETY: the pointer is to a control message inside `control`, as the macros of cmsg(3) promise.
        let head = unsafe { next.read() };
        // SAFETY: as above.
        let data = unsafe { libc::CMSG_DATA(next) };
        match (head.cmsg_level, head.cmsg_type) {
            (libc::SOL_PACKET, libc::PACKET_AUXDATA) => {
                // SAFETY: the kernel has put this structure there; it may lie anywhere.
                let data: libc::tpacket_auxdata =
                    unsafe { data.cast::<libc::tpacket_auxdata>().read_unaligned() };
                message.length = data.tp_len;
                message.tag = (data.tp_status, data.tp_vlan_tci, data.tp_vlan_tpid);
            }
            (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) => {
                // SAFETY: as above.
                let time: libc::timespec = unsafe { data.cast::<libc::timespec>().read_unaligned() };
                let [seconds, nanos] =
                    [time.tv_sec, time.tv_nsec].map(|part| u64::try_from(part).unwrap_or(0));
                message.at = seconds * 1_000_000_000 + nanos;
            }
            (_, _) => {}
        }
        // SAFETY: as for the first one.
        next = unsafe { libc::CMSG_NXTHDR(&raw const header, next) };
    }
    Ok(Some(message))
}

fn last_error() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}
