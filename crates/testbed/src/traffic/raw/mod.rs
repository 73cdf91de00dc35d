//! Raw packets: a generator on AF_XDP, an injector in the kernel, and a sink in XDP.
//!
//! The [`Generator`] owns a few thousand slots of packet memory, writes the head of each packet and
//! hands it to the kernel's copying transmit path: mixes of lengths, faults on purpose. The
//! [`Injector`] makes packets of one length in the kernel, for a quarter of the cost. The [`Sink`] is a
//! program in the driver of the receiving interface: it counts, writes down number and latency of every
//! probe, and drops. A [`PacketSocket`] is for few frames, each looked at. None uses a line of the datapath or its drivers.

mod breaker;
mod code;
mod generator;
mod injection;
mod injector;
mod packet_socket;
mod program;
mod sender;
mod sink;
mod sys;

pub use generator::{Faults, Generator, Moment, Plan, Sent};
pub use injector::{Injector, Timetable};
pub use packet_socket::PacketSocket;
pub use sink::Sink;

use crate::clock;
use anyhow::Context as _;
use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::netdevice::name_to_index;
use rustix::net::{AddressFamily, SocketType, socket};
use std::time::Duration;

/// Time since the host received the packet that was last read from `socket`. That of the first one is zero: the
/// kernel is asked to record the time of later packets.
///
/// # Errors
/// When the socket has no such time.
pub fn age_of_last(socket: BorrowedFd<'_>) -> anyhow::Result<Duration> {
    match sys::arrival(socket) {
        Ok(time) => Ok(clock::since_1970().saturating_sub(time)),
        // Nothing has come.
        Err(Errno::NOENT) => Ok(Duration::ZERO),
        Err(errno) => Err(errno).context("the kernel does not say when a packet came"),
    }
}

/// Has a BPF program that accepts each packet at netfilter's hook `forward` of IPv4, in the calling thread's namespace. It goes
/// with the descriptor.
///
/// # Errors
/// When the kernel has no such programs, or refuses.
pub fn netfilter_program() -> anyhow::Result<OwnedFd> {
    sys::accept_at_forward().map_err(|(errno, said)| anyhow::anyhow!("{errno}: {said}"))
}

/// The number of an interface in the calling thread's namespace.
fn interface_number(interface: &str) -> Result<u32, Errno> {
    let any: OwnedFd = socket(AddressFamily::INET, SocketType::DGRAM, None)?;
    name_to_index(&any, interface)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;
    use std::os::fd::AsFd as _;

    #[test]
    fn a_packet_that_has_waited_is_as_old() {
        let [from, to] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
        let mut ages = Vec::new();
        for wait in [0, 0, 40].map(Duration::from_millis) {
            // The kernel begins to note times a moment after it is asked to.
            std::thread::sleep(Duration::from_millis(20));
            from.send_to(b"age", to.local_addr().unwrap()).unwrap();
            std::thread::sleep(wait);
            to.recv(&mut [0; 8]).unwrap();
            ages.push(age_of_last(to.as_fd()).unwrap());
        }
        assert!(ages[2] >= Duration::from_millis(40) && ages[2] < Duration::from_secs(10), "{ages:?}");
        assert!(ages[0] + ages[1] < ages[2], "{ages:?}");
    }
}
