//! Registration of a socket's packet memory, and its binding to a queue.

use core::time::Duration;
use polder_buffers::Region;
use rustix::io::Errno;
use rustix::net::sockopt;
use rustix::net::xdp::{
    SocketAddrXdp, SocketAddrXdpFlags, SocketAddrXdpWithSharedUmem, XdpUmemReg, XdpUmemRegFlags,
};
use std::os::fd::{BorrowedFd, OwnedFd};

/// Method of moving packets between the device and the region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Transfer {
    /// True if the device reads and writes the region itself.
    pub(super) zero_copy: bool,
    /// True if a packet may have several descriptors.
    pub(super) multi_buffer: bool,
}

/// Registers the memory of a region with a socket.
pub(super) fn register(socket: &OwnedFd, region: &Region) -> Result<(), Errno> {
    let slot = region.slot_bytes();
    let value = XdpUmemReg {
        addr: region.base_address().expose_provenance() as u64,
        len: u64::from(region.slots()) * u64::from(slot),
        chunk_size: slot,
        headroom: 0,
        flags: XdpUmemRegFlags::empty(),
        tx_metadata_len: 0,
    };
    sockopt::set_xdp_umem_reg(socket, value)
}

/// Binds a socket to a queue. With `sharing`, the socket uses that socket's UMEM.
pub(super) fn bind(
    socket: &OwnedFd,
    interface: u32,
    queue: u32,
    transfer: Transfer,
    sharing: Option<BorrowedFd<'_>>,
) -> Result<(), Errno> {
    let mut wait = Duration::from_millis(1);
    for _ in 0..BUSY_RETRIES {
        let result = bind_once(socket, interface, queue, transfer, sharing);
        if result != Err(Errno::BUSY) {
            return result;
        }
        std::thread::sleep(wait);
        wait = (wait * 2).min(BUSY_LONGEST_WAIT);
    }
    Err(Errno::BUSY)
}

fn bind_once(
    socket: &OwnedFd,
    interface: u32,
    queue: u32,
    transfer: Transfer,
    sharing: Option<BorrowedFd<'_>>,
) -> Result<(), Errno> {
    if let Some(shared_umem_fd) = sharing {
        // The first socket's other flags apply; the kernel refuses them here.
        let addr = SocketAddrXdp::new(SocketAddrXdpFlags::XDP_SHARED_UMEM, interface, queue);
        return rustix::net::bind(socket, &SocketAddrXdpWithSharedUmem { addr, shared_umem_fd });
    }
    let mut flags = SocketAddrXdpFlags::XDP_USE_NEED_WAKEUP;
    flags.set(SocketAddrXdpFlags::XDP_ZEROCOPY, transfer.zero_copy);
    flags.set(SocketAddrXdpFlags::XDP_COPY, !transfer.zero_copy);
    flags.set(SocketAddrXdpFlags::XDP_USE_SG, transfer.multi_buffer);
    rustix::net::bind(socket, &SocketAddrXdp::new(flags, interface, queue))
}

/// Number of entries of a ring that is needed only because the kernel requires one.
pub(super) const SMALLEST_RING: u32 = 2;

/// Number of attempts on a busy queue, and the pause between two: about one second in total.
const BUSY_RETRIES: u32 = 25;

const BUSY_LONGEST_WAIT: Duration = Duration::from_millis(50);
