//! A socket that only sends (AF_XDP, copy mode).

use super::sys::{PacketMemory, SharedWords, set_option};
use anyhow::{Context as _, bail};
use rustix::io::Errno;
use rustix::net::xdp::{SocketAddrXdp, SocketAddrXdpFlags, XdpRingOffset, XdpUmemReg, XdpUmemRegFlags};
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, bind, send, socket_with, sockopt};
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Bytes of a slot, the most that AF_XDP takes on ordinary pages.
const SLOT: u32 = 4096;
/// Slots, and places in each ring. More than wait on the way through a gateway, so that a slow one does
/// not hold up the generator.
const SLOTS: u32 = 4096;
/// Packets that one system call sends.
const BUDGET: u32 = 256;
/// Send buffer of the socket: each packet with its bookkeeping.
const SOCKET_BYTES: u32 = SLOTS * 4096;
/// `XDP_MAX_TX_SKB_BUDGET` of linux/if_xdp.h.
const MAX_TX_SKB_BUDGET: i32 = 9;
/// Number of retries while the queue is still bound.
const BUSY_RETRIES: u32 = 40;

/// A socket, its rings, and its packet memory.
#[derive(Debug)]
pub(super) struct Sender {
    socket: OwnedFd,
    memory: PacketMemory,
    transmit: Ring,
    completion: Ring,
    /// Slots that are ours.
    free: Vec<u32>,
}

/// A ring as the kernel lays it out, and our cursor in it.
#[derive(Debug)]
struct Ring {
    words: SharedWords,
    producer: usize,
    consumer: usize,
    entries: usize,
    cursor: u32,
}

impl Sender {
    /// Opens queue 0 of an interface of the calling thread's namespace.
    pub(super) fn open(interface: &str) -> anyhow::Result<Self> {
        let told = |step: &'static str| move || format!("the generator cannot {step} on a raw socket");
        let index = super::interface_number(interface)
            .with_context(|| format!("the generator finds no interface {interface}"))?;
        let socket = socket_with(AddressFamily::XDP, SocketType::RAW, SocketFlags::CLOEXEC, None)
            .with_context(told("open AF_XDP"))?;
        let bytes = u64::from(SLOTS) * u64::from(SLOT);
        let memory = PacketMemory::new(usize::try_from(bytes)?).with_context(told("map memory"))?;
        let registration = XdpUmemReg {
            addr: memory.address(),
            len: memory.len() as u64,
            chunk_size: SLOT,
            headroom: 0,
            flags: XdpUmemRegFlags::empty(),
            tx_metadata_len: 0,
        };
        sockopt::set_xdp_umem_reg(&socket, registration).with_context(told("register memory"))?;
        sockopt::set_xdp_umem_fill_ring_size(&socket, 2).with_context(told("make the fill ring"))?;
        sockopt::set_xdp_umem_completion_ring_size(&socket, SLOTS).with_context(told("make a ring"))?;
        sockopt::set_xdp_tx_ring_size(&socket, SLOTS).with_context(told("make a ring"))?;
        // Kernels without the option send 32 packets a call; nothing else changes.
        let _ = set_option(socket.as_fd(), libc::SOL_XDP, MAX_TX_SKB_BUDGET, BUDGET);
        set_option(socket.as_fd(), libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, SOCKET_BYTES)
            .with_context(told("raise the send limit"))?;
        bind_patiently(&socket, index).with_context(told("bind to the queue"))?;
        let offsets = sockopt::xdp_mmap_offsets(&socket).with_context(told("find the rings"))?;
        let at = libc::XDP_PGOFF_TX_RING.cast_unsigned();
        let transmit = Ring::map(&socket, at, &offsets.tx, 16).with_context(told("map a ring"))?;
        let at = libc::XDP_UMEM_PGOFF_COMPLETION_RING;
        let completion = Ring::map(&socket, at, &offsets.cr, 8).with_context(told("map a ring"))?;
        Ok(Self { socket, memory, transmit, completion, free: (0..SLOTS).rev().collect() })
    }

    /// Slots that can be filled.
    #[inline]
    pub(super) fn room(&mut self) -> usize {
        let ring = &mut self.completion;
        // Acquire pairs with the kernel's Release (`__xskq_prod_submit`): entries before the cursor.
        let producer = ring.words.u32(ring.producer).load(Ordering::Acquire);
        while ring.cursor != producer {
            let address = ring.words.u64(ring.entry(8)).load(Ordering::Relaxed);
            self.free.push(u32::try_from(address / u64::from(SLOT)).unwrap_or(0));
            ring.cursor = ring.cursor.wrapping_add(1);
        }
        // Release pairs with the kernel's Acquire (`xskq_prod_nb_free`): read before it is reused.
        ring.words.u32(ring.consumer).store(ring.cursor, Ordering::Release);
        self.free.len()
    }

    /// Puts a packet of `length` bytes in line; its front `head` bytes are written by `write`.
    ///
    /// False when there is no room.
    #[inline]
    pub(super) fn put(&mut self, length: u32, head: usize, write: impl FnOnce(&mut [u8])) -> bool {
        let Some(slot) = self.free.pop() else { return false };
        let address = u64::from(slot) * u64::from(SLOT);
        let Ok(offset) = usize::try_from(address) else { return false };
        write(self.memory.bytes_mut(offset, head));
        let ring = &mut self.transmit;
        let entry = ring.entry(16);
        ring.words.u64(entry).store(address, Ordering::Relaxed);
        ring.words.u32(entry + 8).store(length, Ordering::Relaxed);
        ring.words.u32(entry + 12).store(0, Ordering::Relaxed);
        ring.cursor = ring.cursor.wrapping_add(1);
        true
    }

    /// Lets the kernel send queued packets, as many as one call does.
    pub(super) fn flush(&mut self) -> anyhow::Result<()> {
        let ring = &self.transmit;
        // Release pairs with the kernel's Acquire (`__xskq_cons_peek`): descriptors before the cursor.
        ring.words.u32(ring.producer).store(ring.cursor, Ordering::Release);
        match send(&self.socket, &[], SendFlags::DONTWAIT) {
            // A part was sent, or the device's ring was full and a packet was dropped there.
            Ok(_) | Err(Errno::AGAIN | Errno::BUSY | Errno::NOBUFS) => Ok(()),
            Err(error) => bail!("the generator cannot send: {error}"),
        }
    }

    /// Packets in line that the kernel has not taken.
    pub(super) fn waiting(&self) -> u32 {
        let ring = &self.transmit;
        ring.cursor.wrapping_sub(ring.words.u32(ring.consumer).load(Ordering::Relaxed))
    }

    /// Writes the same `bytes` to all slots: what is behind the heads.
    pub(super) fn fill(&mut self, bytes: &[u8]) {
        for slot in 0..SLOTS as usize {
            self.memory.bytes_mut(slot * SLOT as usize, bytes.len()).copy_from_slice(bytes);
        }
    }
}

impl Ring {
    fn map(socket: &OwnedFd, at: u64, offsets: &XdpRingOffset, entry: usize) -> anyhow::Result<Self> {
        let [producer, consumer, entries] =
            [offsets.producer, offsets.consumer, offsets.desc].map(usize::try_from);
        let entries = entries?;
        let words = SharedWords::of(socket.as_fd(), at, entries + SLOTS as usize * entry)?;
        Ok(Self { words, producer: producer?, consumer: consumer?, entries, cursor: 0 })
    }

    /// Offset of the entry at the cursor, with entries of `bytes` bytes.
    #[inline(always)]
    fn entry(&self, bytes: usize) -> usize {
        self.entries + (self.cursor & (SLOTS - 1)) as usize * bytes
    }
}

/// The kernel refuses a queue for some milliseconds after its last socket has gone.
fn bind_patiently(socket: &OwnedFd, interface: u32) -> Result<(), Errno> {
    for _ in 0..BUSY_RETRIES {
        let address = SocketAddrXdp::new(SocketAddrXdpFlags::XDP_COPY, interface, 0);
        match bind(socket, &address) {
            Err(Errno::BUSY) => std::thread::sleep(Duration::from_millis(5)),
            result => return result,
        }
    }
    Err(Errno::BUSY)
}
