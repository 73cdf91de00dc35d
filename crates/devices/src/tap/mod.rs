//! The host's own network stack and applications, with virtio-net headers.
//!
//! A TAP is an interface with a file at its other end: packets that the kernel sends by the interface are
//! read from the file, and written packets are received by the kernel. Every packet has a virtio-net header,
//! so a partial checksum, or a super-packet of up to 64 KiB, in a tunnel over UDP or in none, passes in one
//! system call. The cost of the port is that call per packet and direction, and the kernel's copy of the
//! bytes.
//!
//! A TUN interface ([`Options::layer`]) is the same without Ethernet: the header that all packets have in this process
//! is written when a packet is read, and left out when it is written.
//!
//! [`Offloads`] selects the offloads of received packets; sent packets may always have partial checksums or
//! be super-packets ([`Tap::ABILITIES`]).
//!
//! The interface is deleted when its last file is closed, unless it was made persistent before. The operator
//! sets it up and configures its address.
//!
//! Source: Linux, Documentation/networking/tuntap.rst; virtio 1.3, 5.1.6 (the legacy header of 10 bytes in
//! host byte order, or the header of 24 bytes with tunnel fields).

mod header;
mod init;
mod rx;
mod sys;
#[cfg(feature = "models")]
mod tun;
mod tx;

pub use init::{Offloads, Options, Tap, TapError, adopt, mac, mtu, open, set_carrier, unavailable};
pub use rx::TapRx;
#[cfg(feature = "models")]
pub use tun::tun;
pub use tx::TapTx;
