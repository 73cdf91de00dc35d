//! One AF_XDP socket: its making, its binding, and its end.

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

/// Entries of the rings, each a power of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RingSizes {
    /// Of the receive and the fill ring.
    pub(super) receive: u32,
    /// Of the transmit and the completion ring; 0 for a queue that only receives.
    pub(super) transmit: u32,
}

/// The sockets whose memory others may share, with the kind of transfer that it is bound to.
///
/// The kernel knows a region once for each kind of transfer, because a UMEM is bound to one: the
/// first socket of a kind registers it, the others share that socket's. A region's number is its own
/// as long as a socket holds it, so an entry that can be upgraded is never mistaken.
static BOUND: Mutex<Vec<(Transfer, Weak<Core>)>> = Mutex::new(Vec::new());

/// A socket that has registered `region` for `transfer` or shares it, and is bound.
fn bound(region: &Region, transfer: Transfer) -> Option<Arc<Core>> {
    let candidates = {
        let mut bound = BOUND.lock().unwrap_or_else(PoisonError::into_inner);
        bound.retain(|(_, core)| core.strong_count() > 0);
        let same = bound.iter().filter(|(other, _)| *other == transfer);
        same.filter_map(|(_, core)| core.upgrade()).collect::<Vec<_>>()
    };
    let mut same = candidates.into_iter().filter(|core| core.region.id() == region.id());
    // A socket whose interface is gone is bound to nothing, and nobody can share with it.
    same.find(|core| core.nudge(false) != Err(Errno::NXIO))
}

fn remember(transfer: Transfer, core: &Arc<Core>) {
    BOUND.lock().unwrap_or_else(PoisonError::into_inner).push((transfer, Arc::downgrade(core)));
}

/// Counters of the kernel at the sockets of an interface (`struct xdp_statistics`).
///
/// Packets that were lost are in the queues' own counters too, by reason, a moment later.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Packets lost because no frame was posted or because they were longer than a slot.
    pub dropped: u64,
    /// Packets lost because the receive ring was full.
    pub receive_ring_full: u64,
    /// Times that the kernel found no frame posted. Not packets: those are in `dropped`.
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
    /// First refusal of the kernel about receiving for the queue.
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

/// A failed step on the way to a bound socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Refused {
    pub(super) step: &'static str,
    pub(super) errno: Errno,
}

/// Opens a socket on a queue of an interface and binds it with its rings.
///
/// The order is that of `xsk_socket__create_shared` of libxdp: memory, rings, binding.
pub(super) fn open(
    region: &Region,
    interface: u32,
    queue: u32,
    sizes: RingSizes,
    transfer: Transfer,
) -> Result<(Arc<Core>, Rings), Refused> {
    let at = |step| move |errno| Refused { step, errno };
    // 1. The socket.
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::XDP, SocketType::RAW, flags, None)
        .map_err(at("open an AF_XDP socket"))?;
    // 2. The memory: registered, unless another socket has done so.
    let sharing = bound(region, transfer);
    if sharing.is_none() {
        register(&socket, region).map_err(at("register the packet memory"))?;
    }
    // 3. The rings. Fill and completion belong to the queue and are needed in any case.
    let completion = sizes.transmit.max(SMALLEST_RING);
    sockopt::set_xdp_umem_fill_ring_size(&socket, sizes.receive).map_err(at("make the fill ring"))?;
    sockopt::set_xdp_umem_completion_ring_size(&socket, completion)
        .map_err(at("make the completion ring"))?;
    sockopt::set_xdp_rx_ring_size(&socket, sizes.receive).map_err(at("make the receive ring"))?;
    if sizes.transmit > 0 {
        sockopt::set_xdp_tx_ring_size(&socket, sizes.transmit).map_err(at("make the transmit ring"))?;
        raise_limits(&socket, sizes.transmit);
    }
    let watch = Watch::new(&socket, interface).map_err(at("watch for the end of the interface"))?;
    // 4. The rings, into our memory: Linux before 6.4 maps none of a bound socket.
    let rings = map(&socket, sizes).map_err(at("map the rings"))?;
    // 5. The binding, which the kernel refuses for a while after another socket has gone.
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

/// Lets one system call send the whole ring, and lets as much be on its way in the device.
///
/// Kernels that do not know an option keep their limit; then a call sends less and is repeated.
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
    /// Notes a refusal of the kernel, for the thread that looks after ports.
    pub(super) fn note(&self, refused: Refused) {
        // One reason is enough: the kernel is not asked again.
        let _ = self.refused.set(refused);
    }

    /// Refusal of the kernel about receiving for the queue.
    pub(super) fn refused(&self) -> Option<Refused> {
        self.refused.get().copied()
    }

    /// The number of the queue.
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
    /// `NXIO` when the interface is gone.
    pub(super) fn nudge(&self, send: bool) -> Result<(), Errno> {
        match &self.ingress {
            Ingress::Kernel { socket, .. } => sys::nudge(socket.as_fd(), send),
            Ingress::Closed => Err(Errno::NXIO),
            #[cfg(test)]
            Ingress::Model(_, answer) => *answer.lock().unwrap_or_else(PoisonError::into_inner),
        }
    }

    /// Descriptor that is readable when a packet has come or the interface is gone.
    pub(super) fn event(&self) -> Option<BorrowedFd<'_>> {
        match &self.ingress {
            Ingress::Kernel { watch, .. } => Some(watch.as_fd()),
            Ingress::Closed => None,
            #[cfg(test)]
            Ingress::Model(..) => None,
        }
    }

    /// The socket itself.
    pub(super) fn socket(&self) -> Option<BorrowedFd<'_>> {
        match &self.ingress {
            Ingress::Kernel { socket, .. } => Some(socket.as_fd()),
            Ingress::Closed => None,
            #[cfg(test)]
            Ingress::Model(..) => None,
        }
    }

    /// Bytes of a slot.
    pub(super) fn slot_bytes(&self) -> u32 {
        self.region.slot_bytes()
    }

    /// Counters of the kernel at this socket; zeros when it has none.
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

    /// Takes over frames whose rings are gone, until the socket is, too.
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
/// Charge of a packet of two kilobytes to a socket's buffer, with room to spare.
const SOCKET_BYTES_A_PACKET: u32 = 4096;
