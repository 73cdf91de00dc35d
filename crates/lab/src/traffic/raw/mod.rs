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

use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::netdevice::name_to_index;
use rustix::net::{AddressFamily, SocketType, socket};

/// The number of an interface in the calling thread's namespace.
fn interface_number(interface: &str) -> Result<u32, Errno> {
    let any: OwnedFd = socket(AddressFamily::INET, SocketType::DGRAM, None)?;
    name_to_index(&any, interface)
}
