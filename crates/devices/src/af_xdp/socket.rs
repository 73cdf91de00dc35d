//! One AF_XDP socket: creation, binding, and closing.

use super::bind::{SMALLEST_RING, Transfer, bind, register};
use super::close::{self, End};
use super::ring::RingMemory;
use super::sys;
use super::watch::Watch;
use polder_buffers::{Frame, Region};
use rustix::io::Errno;
use rustix::net::sockopt;
use rustix::net::xdp::XdpRingOffset;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

/// Number of ring entries, each a power of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RingSizes {
    /// Entries of the RX ring and the fill ring.
    pub(super) receive: u32,
    /// Entries of the TX ring and the completion ring; 0 for a queue that only receives.
    pub(super) transmit: u32,
}

/// Sockets whose UMEM others may share, each with its transfer mode.
///
/// The kernel binds a UMEM to one transfer mode: the first socket of a mode registers the region, the others
/// share that socket's UMEM. A region keeps its number while a socket holds it, so a live entry is never
/// mistaken for another region.
static BOUND: Mutex<Vec<(Transfer, Weak<Core>)>> = Mutex::new(Vec::new());

/// Returns a bound socket that has registered `region` for `transfer` or shares it.
fn bound(region: &Region, transfer: Transfer) -> Option<Arc<Core>> {
    let candidates = {
        let mut bound = BOUND.lock().unwrap_or_else(PoisonError::into_inner);
        bound.retain(|(_, core)| core.strong_count() > 0);
        let same = bound.iter().filter(|(other, _)| *other == transfer);
        same.filter_map(|(_, core)| core.upgrade()).collect::<Vec<_>>()
    };
    let mut same = candidates.into_iter().filter(|core| core.region.id() == region.id());
    // A socket whose interface is gone is unbound, and cannot share.
    same.find(|core| core.wake_kernel(false) != Err(Errno::NXIO))
}

fn remember(transfer: Transfer, core: &Arc<Core>) {
    BOUND.lock().unwrap_or_else(PoisonError::into_inner).push((transfer, Arc::downgrade(core)));
}

/// The kernel's counters of an interface's sockets (`struct xdp_statistics`).
///
/// Lost packets also appear in the queues' own counters, by reason, a moment later.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Packets lost because no frame was posted, or because they were longer than a slot.
    pub dropped: u64,
    /// Packets lost because the RX ring was full.
    pub receive_ring_full: u64,
    /// Number of times that the kernel found no posted frame. These are not packets; `dropped` counts those.
    pub fill_ring_empty: u64,
    /// Descriptors of ours that the kernel refused, in either direction.
    pub invalid: u64,
}

/// State shared by both directions of one queue: the socket, and the frames that outlive its rings.
#[derive(Debug)]
pub(super) struct Core {
    ingress: Ingress,
    region: Region,
    left: Mutex<Vec<Frame>>,
    /// The kernel's first refusal of a receive setting.
    refused: OnceLock<Refused>,
}

#[derive(Debug)]
enum Ingress {
    Kernel {
        socket: OwnedFd,
        watch: Watch,
        interface: u32,
        queue: u32,
        zero_copy: bool,
    },
    Closed,
    #[cfg(test)]
    Model(Arc<Mutex<Statistics>>, Mutex<Result<(), Errno>>),
}

/// The four rings of a bound socket; a queue that only receives has two.
#[derive(Debug)]
pub(super) struct Rings {
    pub(super) receive: (RingMemory, RingMemory),
    pub(super) transmit: Option<(RingMemory, RingMemory)>,
}

/// A failed step of setting up a socket or its receiving.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Refused {
    pub(super) step: &'static str,
    pub(super) errno: Errno,
}

/// Opens a socket on a queue of an interface, and binds it with its rings.
///
/// The order is that of libxdp's `xsk_socket__create_shared`: memory, rings, binding.
pub(super) fn open(
    region: &Region,
    interface: u32,
    queue: u32,
    sizes: RingSizes,
    transfer: Transfer,
) -> Result<(Arc<Core>, Rings), Refused> {
    let at = |step| move |errno| Refused { step, errno };
    // 1. The socket is created.
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::XDP, SocketType::RAW, flags, None)
        .map_err(at("open an AF_XDP socket"))?;
    // 2. The memory is registered, unless another socket has done so.
    let sharing = bound(region, transfer);
    if sharing.is_none() {
        register(&socket, region).map_err(at("register the packet memory"))?;
    }
    // 3. The rings are sized. Fill and completion rings belong to the queue and are always needed.
    let completion = sizes.transmit.max(SMALLEST_RING);
    sockopt::set_xdp_umem_fill_ring_size(&socket, sizes.receive).map_err(at("create the fill ring"))?;
    sockopt::set_xdp_umem_completion_ring_size(&socket, completion)
        .map_err(at("create the completion ring"))?;
    sockopt::set_xdp_rx_ring_size(&socket, sizes.receive).map_err(at("create the receive ring"))?;
    if sizes.transmit > 0 {
        sockopt::set_xdp_tx_ring_size(&socket, sizes.transmit).map_err(at("create the transmit ring"))?;
        raise_limits(&socket, sizes.transmit);
    }
    let watch = Watch::new(&socket, interface).map_err(at("monitor the interface for removal"))?;
    // 4. The rings are mapped: Linux before 6.4 maps none of a bound socket.
    let rings = map(&socket, sizes).map_err(at("map the rings"))?;
    // 5. The socket is bound; for a while after another socket has closed, the kernel refuses.
    bind(&socket, interface, queue, transfer, sharing.as_deref().and_then(Core::socket))
        .map_err(at("bind to the queue"))?;
    drop(sharing);
    let zero_copy = transfer.zero_copy;
    let ingress = Ingress::Kernel { socket, watch, interface, queue, zero_copy };
    let core =
        Arc::new(Core { ingress, region: region.clone(), left: Mutex::default(), refused: OnceLock::new() });
    remember(transfer, &core);
    Ok((core, rings))
}

/// Lets one system call send the whole ring, and lets as much be in flight in the device.
///
/// A kernel without an option keeps its limit; then a call sends less and is repeated.
fn raise_limits(socket: &OwnedFd, entries: u32) {
    let _ = sys::set_option(socket.as_fd(), libc::SOL_XDP, MAX_TX_SKB_BUDGET, entries);
    let bytes = entries.saturating_mul(SOCKET_BYTES_A_PACKET).min(u32::MAX >> 2);
    let _ = sys::set_option(socket.as_fd(), libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, bytes);
}

fn map(socket: &OwnedFd, sizes: RingSizes) -> Result<Rings, Errno> {
    let offsets = sockopt::xdp_mmap_offsets(socket)?;
    let ring = |at: u64, offsets: &XdpRingOffset, entries: u32, words: usize| {
        RingMemory::map(socket.as_fd(), at, offsets, entries as usize * words)
    };
    let receive = ring(libc::XDP_PGOFF_RX_RING.cast_unsigned(), &offsets.rx, sizes.receive, 2)?;
    let fill = ring(libc::XDP_UMEM_PGOFF_FILL_RING, &offsets.fr, sizes.receive, 1)?;
    let mut rings = Rings { receive: (receive, fill), transmit: None };
    if sizes.transmit > 0 {
        let transmit = ring(libc::XDP_PGOFF_TX_RING.cast_unsigned(), &offsets.tx, sizes.transmit, 2)?;
        let completion = ring(libc::XDP_UMEM_PGOFF_COMPLETION_RING, &offsets.cr, sizes.transmit, 1)?;
        rings.transmit = Some((transmit, completion));
    }
    Ok(rings)
}

impl Core {
    /// Records a refusal of the kernel, for the thread that manages ports.
    pub(super) fn note(&self, refused: Refused) {
        // The first reason is enough: nothing more is tried.
        let _ = self.refused.set(refused);
    }

    /// Returns the kernel's refusal of a receive setting.
    pub(super) fn refused(&self) -> Option<Refused> {
        self.refused.get().copied()
    }

    /// Returns the queue's number.
    pub(super) fn queue(&self) -> Option<u32> {
        match &self.ingress {
            Ingress::Kernel { queue, .. } => Some(*queue),
            Ingress::Closed => None,
            #[cfg(test)]
            Ingress::Model(..) => None,
        }
    }

    /// Lets the kernel look at the rings: to send (`true`) or to receive.
    ///
    /// # Errors
    /// `NXIO` if the interface is gone.
    pub(super) fn wake_kernel(&self, send: bool) -> Result<(), Errno> {
        match &self.ingress {
            Ingress::Kernel { socket, .. } => sys::wake_kernel(socket.as_fd(), send),
            Ingress::Closed => Err(Errno::NXIO),
            #[cfg(test)]
            Ingress::Model(_, answer) => *answer.lock().unwrap_or_else(PoisonError::into_inner),
        }
    }

    /// Returns a descriptor that is readable if a packet has arrived or the interface is gone.
    pub(super) fn event(&self) -> Option<BorrowedFd<'_>> {
        match &self.ingress {
            Ingress::Kernel { watch, .. } => Some(watch.as_fd()),
            Ingress::Closed => None,
            #[cfg(test)]
            Ingress::Model(..) => None,
        }
    }

    /// Returns the socket itself.
    pub(super) fn socket(&self) -> Option<BorrowedFd<'_>> {
        match &self.ingress {
            Ingress::Kernel { socket, .. } => Some(socket.as_fd()),
            Ingress::Closed => None,
            #[cfg(test)]
            Ingress::Model(..) => None,
        }
    }

    /// Returns the slot size in bytes.
    pub(super) fn slot_bytes(&self) -> u32 {
        self.region.slot_bytes()
    }

    /// Returns the kernel's counters of this socket; zeros if it has none.
    pub(super) fn statistics(&self) -> Statistics {
        let socket = match &self.ingress {
            Ingress::Kernel { socket, .. } => socket,
            Ingress::Closed => return Statistics::default(),
            #[cfg(test)]
            Ingress::Model(statistics, _) => {
                return *statistics.lock().unwrap_or_else(PoisonError::into_inner);
            }
        };
        let Ok(statistics) = sockopt::xdp_statistics(socket) else { return Statistics::default() };
        Statistics {
            dropped: statistics.rx_dropped,
            receive_ring_full: statistics.rx_ring_full.unwrap_or(0),
            fill_ring_empty: statistics.rx_fill_ring_empty_descs.unwrap_or(0),
            invalid: statistics.rx_invalid_descs + statistics.tx_invalid_descs,
        }
    }

    /// Keeps frames whose rings are gone until the socket is closed.
    pub(super) fn leave(&self, frames: impl Iterator<Item = Frame>) {
        self.left.lock().unwrap_or_else(PoisonError::into_inner).extend(frames);
    }

    /// The other end is a model in the same process.
    #[cfg(test)]
    pub(super) fn model(region: &Region, statistics: &Arc<Mutex<Statistics>>) -> Arc<Self> {
        let ingress = Ingress::Model(Arc::clone(statistics), Mutex::new(Ok(())));
        Arc::new(Self { ingress, region: region.clone(), left: Mutex::default(), refused: OnceLock::new() })
    }
}

#[cfg(test)]
impl Core {
    /// Sets the answer of the model's kernel to a call: `NXIO` for an interface that is gone, `AGAIN` for one that is
    /// full.
    pub(super) fn set_answer(&self, answer: Result<(), Errno>) {
        if let Ingress::Model(_, before) = &self.ingress {
            *before.lock().unwrap_or_else(PoisonError::into_inner) = answer;
        }
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        let frames = core::mem::take(&mut *self.left.lock().unwrap_or_else(PoisonError::into_inner));
        let mut end = End { region: self.region.clone(), frames, socket: None, device: None };
        if let Ingress::Kernel { socket, watch, interface, queue, zero_copy } =
            core::mem::replace(&mut self.ingress, Ingress::Closed)
        {
            drop(watch);
            end.socket = Some(socket);
            end.device = zero_copy.then_some((interface, queue));
            close::hand_over(end);
        }
    }
}

/// `XDP_MAX_TX_SKB_BUDGET` of linux/if_xdp.h: packets that one system call sends in copy mode.
const MAX_TX_SKB_BUDGET: i32 = 9;
/// Bytes that a packet of 2 KiB charges to a socket's buffer, rounded up.
const SOCKET_BYTES_A_PACKET: u32 = 4096;
