//! TUN interfaces, as other software makes them: for tests of ports without Ethernet.

use super::init::DEVICE;
use super::sys;
use crate::netlink::link::LinkLayer;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::os::fd::OwnedFd;

/// Creates the TUN interface `name` in the calling thread's network namespace, and returns its file. Each packet has a
/// virtio-net header of 10 bytes before it; with `segments` super-packets and partial checksums may be read.
///
/// # Errors
/// Errors of the kernel.
pub fn tun(name: &str, segments: bool) -> Result<OwnedFd, Errno> {
    let file = rustix::fs::open(DEVICE, OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty())?;
    sys::attach(&file, name, (LinkLayer::Packets, false))?;
    if segments {
        sys::set_offloads(&file, sys::CHECKSUM | sys::TCP_SEGMENTS)?;
    }
    Ok(file)
}
