//! Reading datagrams with their TTL and interface from control messages.

#![expect(unsafe_code, reason = "UNSAFETY: system calls that write through pointers")]

use std::io;
use std::mem::{size_of, zeroed};
use std::net::UdpSocket;
use std::os::fd::AsRawFd as _;

/// Size of the control message buffer in 64-bit words: twice the size of a TTL and an interface with
/// addresses.
const CONTROL_WORDS: usize = 16;

/// TTL and interface of a received datagram.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Arrival {
    /// TTL or hop limit.
    pub(super) ttl: Option<u8>,
    /// Index of the interface.
    pub(super) interface: Option<u32>,
}

/// Enables control messages with TTL or hop limit and interface on a socket.
///
/// # Errors
/// Error of the kernel.
pub(super) fn report_arrival(socket: &UdpSocket, is_v6: bool) -> io::Result<()> {
    let (level, names) = match is_v6 {
        true => (libc::IPPROTO_IPV6, [libc::IPV6_RECVHOPLIMIT, libc::IPV6_RECVPKTINFO]),
        false => (libc::IPPROTO_IP, [libc::IP_RECVTTL, libc::IP_PKTINFO]),
    };
    names.into_iter().try_for_each(|name| switch_on(socket, level, name))
}

fn switch_on(socket: &UdpSocket, level: libc::c_int, name: libc::c_int) -> io::Result<()> {
    let on: libc::c_int = 1;
    let length = libc::socklen_t::try_from(size_of::<libc::c_int>()).unwrap_or(4);
    // SAFETY: the kernel reads `length` bytes of `on`, an integer of that size, and keeps no pointer (setsockopt(2)).
    let status = unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, (&raw const on).cast(), length) };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Reads a datagram and its arrival; a longer datagram is truncated to `octets`.
///
/// # Errors
/// [`WouldBlock`](io::ErrorKind::WouldBlock) if none is queued, and errors of the kernel.
pub(super) fn receive(socket: &UdpSocket, octets: &mut [u8]) -> io::Result<(usize, Arrival)> {
    let mut part = libc::iovec { iov_base: octets.as_mut_ptr().cast(), iov_len: octets.len() };
    let mut control = [0_u64; CONTROL_WORDS];
    // SAFETY: `msghdr` is a plain structure of numbers and pointers, for which zeros are a value.
    let mut message: libc::msghdr = unsafe { zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = (CONTROL_WORDS * size_of::<u64>()) as _;
    // SAFETY: (1) the kernel writes at most `iov_len` bytes of `octets` and `msg_controllen` bytes of `control`, both
    // borrowed until behind the call; (2) it keeps no pointer (recvmsg(2)).
    let length = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, libc::MSG_DONTWAIT) };
    let length = usize::try_from(length).map_err(|_| io::Error::last_os_error())?;
    Ok((length, arrival(&message)))
}

/// TTL or hop limit, and interface, from the control messages.
fn arrival(message: &libc::msghdr) -> Arrival {
    let mut arrival = Arrival::default();
    // SAFETY: `message` is as recvmsg(2) has left it, and its control messages live as long as it is borrowed
    // (cmsg(3)).
    let mut header = unsafe { libc::CMSG_FIRSTHDR(message) };
    while !header.is_null() {
        // SAFETY: the macros of cmsg(3) lead to whole headers inside the control messages, or to null.
        let libc::cmsghdr { cmsg_level: level, cmsg_type: kind, .. } = unsafe { *header };
        // SAFETY: the data of a whole header is behind it, inside the control messages (cmsg(3)).
        let data = unsafe { libc::CMSG_DATA(header) };
        match (level, kind) {
            (libc::IPPROTO_IP, libc::IP_TTL) | (libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT) => {
                // SAFETY: both kinds have an integer as data (ip(7), ipv6(7)), which need not be aligned.
                let ttl = unsafe { data.cast::<libc::c_int>().read_unaligned() };
                arrival.ttl = u8::try_from(ttl).ok();
            }
            (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                // SAFETY: this kind has that structure as data (ip(7)), which need not be aligned.
                let info = unsafe { data.cast::<libc::in_pktinfo>().read_unaligned() };
                arrival.interface = u32::try_from(info.ipi_ifindex).ok();
            }
            (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                // SAFETY: this kind has that structure as data (ipv6(7)), which need not be aligned.
                let info = unsafe { data.cast::<libc::in6_pktinfo>().read_unaligned() };
                arrival.interface = Some(info.ipi6_ifindex);
            }
            _ => {}
        }
        // SAFETY: as for the first header.
        header = unsafe { libc::CMSG_NXTHDR(message, header) };
    }
    arrival
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datagrams_come_with_their_ttl_and_interface() {
        for (address, is_v6) in [("127.0.0.1:0", false), ("[::1]:0", true)] {
            let Ok(receiver) = UdpSocket::bind(address) else { continue };
            report_arrival(&receiver, is_v6).expect("options of every socket");
            let sender = UdpSocket::bind(address).expect("a port");
            if is_v6 {
                rustix::net::sockopt::set_ipv6_unicast_hops(&sender, Some(254)).expect("a hop limit");
            } else {
                sender.set_ttl(254).expect("a TTL");
            }
            let mut octets = [0; 4];
            let none = receive(&receiver, &mut octets).expect_err("nothing was sent");
            assert_eq!(none.kind(), io::ErrorKind::WouldBlock);
            sender.send_to(b"longer", receiver.local_addr().expect("bound")).expect("sent");
            // The loopback interface delivers before the call returns.
            let loopback = rustix::net::netdevice::name_to_index(&receiver, "lo").ok();
            let arrival = Arrival { ttl: Some(254), interface: loopback };
            assert_eq!(receive(&receiver, &mut octets).expect("one waits"), (4, arrival));
            assert_eq!(&octets, b"long");
        }
    }
}
