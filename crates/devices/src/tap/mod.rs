//! The host's own network stack and applications, with virtio-net headers.
//!
//! A TAP is an interface whose other side is a file: what the kernel sends by the interface is read,
//! what is written the kernel receives. Every packet carries a virtio-net header, so a checksum that
//! the kernel has left partial, and a 64 KiB packet that it has not cut into segments, in a tunnel over UDP or in none,
//! cross in one system call. The price of the port is that call: one for each packet and direction, and the
//! kernel's copy of the bytes.
//!
//! [`Offloads`] selects the offloads of received packets; going out, partial checksums and segments
//! are always taken ([`Tap::ABILITIES`]).
//!
//! The interface goes when its last file is closed, unless it was made persistent before. The
//! operator sets it up and gives it its address.
//!
//! Source: Linux, Documentation/networking/tuntap.rst; virtio 1.3, 5.1.6 (the legacy header of 10
//! bytes in the host's byte order, or that of 24 with the fields of tunnels).

mod header;
mod init;
mod rx;
mod sys;
mod tx;

pub use init::{Offloads, Options, Tap, TapError, adopt, mac, mtu, open, unavailable};
pub use rx::TapRx;
pub use tx::TapTx;
