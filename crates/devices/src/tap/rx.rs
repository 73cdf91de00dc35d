//! The receiver of a queue: one `read` per packet that the kernel sends by the interface, into the packet's
//! frames.
//!
//! Frames for the longest possible packet are taken in advance; unused ones serve the next packet. The
//! virtio-net header is read directly before the packet, into the headroom of the head frame, so a packet of
//! one frame needs one contiguous buffer.

use super::header;
use crate::Receiving;
use crate::netlink::link::{FAR_STATION, LinkLayer, NEAR_STATION};
use polder_buffers::{BATCH, Batch, Frame, HEADROOM, Packet, Pool, Region, Segment};
use polder_datapath::counters::QueueCounters;
use polder_datapath::drops::DropReason;
use polder_datapath::port::{Armed, Budget, RxQueue, Turn};
use polder_datapath::wire::EtherType;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use std::io::IoSliceMut;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// Maximum number of frames of a packet: 64 KiB in frames of 2 KiB.
const CHAIN: usize = 34;

/// The receiving end of one queue of a TAP.
#[derive(Debug)]
pub struct TapRx {
    file: Arc<OwnedFd>,
    /// Posted frames. Those for the next packet are at the end, its head frame last.
    posted: Vec<Frame>,
    /// Number of frames that a packet is read into.
    frames: usize,
    /// Number of posted frames below which a refill up to `most` is done (C5).
    low_mark: usize,
    most: usize,
    receiving: Receiving,
    /// Length of the Ethernet header that is written before each packet.
    link_bytes: usize,
    /// Region of the posted frames.
    region: Region,
    /// Bytes of the header before each packet.
    header_bytes: u16,
    /// Offset of the packet in its head frame.
    head_offset: u16,
    /// Maximum length of an accepted packet, in bytes, Ethernet header included.
    longest: usize,
    closed: bool,
    /// Number of packets read, as delivered by the kernel.
    reads: u64,
    counters: Arc<QueueCounters>,
}

impl TapRx {
    /// Creates a receiver of packets of at most `longest` bytes, after `header_bytes` of header.
    pub(super) fn new(
        file: Arc<OwnedFd>,
        (header_bytes, longest): (u16, usize),
        (layer, receiving): (LinkLayer, Receiving),
        region: &Region,
    ) -> Self {
        let slot_bytes = region.slot_bytes();
        let head_offset = head_offset(slot_bytes, receiving.headroom);
        let frames = frames(longest, slot_bytes, head_offset);
        let is_batched = receiving.refill_below_percent < 100;
        let most = frames + if is_batched { BATCH } else { 0 };
        let low_mark = receiving.low_mark(u32::try_from(most).unwrap_or(u32::MAX)) as usize;
        Self {
            file,
            posted: Vec::with_capacity(most),
            frames,
            low_mark: low_mark.max(frames),
            most,
            receiving,
            link_bytes: if layer == LinkLayer::Packets { header::ETHERNET.into() } else { 0 },
            region: region.clone(),
            header_bytes,
            head_offset,
            longest,
            closed: false,
            reads: 0,
            counters: Arc::default(),
        }
    }

    /// True if slots of that size hold the longest packet in few enough pieces.
    pub(super) fn can_chain(longest: usize, slot_bytes: u32) -> bool {
        frames(longest, slot_bytes, head_offset(slot_bytes, HEADROOM)) <= CHAIN
    }

    /// Returns the number of packets read; a super-packet counts as one.
    pub(crate) fn reads(&self) -> u64 {
        self.reads
    }

    /// Takes frames if too few are posted; returns true if the longest packet finds room.
    #[inline]
    fn refill(&mut self, pool: &mut Pool) -> bool {
        if self.posted.len() < self.low_mark {
            pool.take_bulk(self.most - self.posted.len(), &mut self.posted);
        }
        self.posted.len() >= self.frames
    }

    /// Reads one packet with its header into the posted frames; returns the bytes of both.
    #[inline]
    fn read(&mut self) -> rustix::io::Result<usize> {
        self.counters.system_calls.add(1);
        let start = usize::from(self.head_offset - self.header_bytes);
        let first = self.posted.len() - self.frames;
        if let [frame] = &mut self.posted[first..] {
            return rustix::io::read(&*self.file, &mut frame.slot_mut()[start..]);
        }
        let mut buffers = core::array::from_fn::<_, CHAIN, _>(|_| IoSliceMut::new(&mut []));
        let mut count = 0;
        let mut skip = start;
        for (buffer, frame) in buffers.iter_mut().zip(self.posted[first..].iter_mut().rev()) {
            *buffer = IoSliceMut::new(&mut frame.slot_mut()[skip..]);
            skip = 0;
            count += 1;
        }
        rustix::io::readv(&*self.file, &mut buffers[..count])
    }

    /// Makes a packet of the `length` bytes just read, header included.
    #[inline]
    fn packet(&mut self, length: usize, pool: &mut Pool) -> Result<Packet, DropReason> {
        let bytes = length.saturating_sub(self.header_bytes.into());
        self.reads += 1;
        self.counters.received_bytes.add((bytes + self.link_bytes) as u64);
        if bytes == 0 {
            return Err(DropReason::DeviceError);
        }
        if bytes + self.link_bytes > self.longest {
            return Err(DropReason::FrameTooLong);
        }
        let (offset, head) =
            (self.head_offset, self.posted.last().expect("a packet was read into posted frames"));
        let start = usize::from(offset);
        let mut header = header::Header::default();
        let said = &head.slot()[start - usize::from(self.header_bytes)..start];
        header[..said.len()].copy_from_slice(said);
        let here = bytes.min(head.slot_bytes() as usize - start);
        let mut packet = match self.receiving.copy(&head.slot()[start..start + here], pool) {
            Some(packet) => packet,
            None => {
                let frame = self.posted.pop().expect("its head is the last one");
                Packet::from_segment(Segment { frame, offset, length: short(here) })
            }
        };
        if here < bytes {
            self.chain(&mut packet, bytes - here);
        }
        let is_whole = self.link_bytes == 0 || add_ethernet(&mut packet, &mut header).is_some();
        if !is_whole || header::apply(header, &mut packet).is_err() {
            pool.release_packet(packet);
            return Err(DropReason::DeviceError);
        }
        Ok(packet)
    }

    /// Puts a read packet into the batch, or counts its drop reason.
    #[inline]
    fn take(&mut self, length: usize, budget: &mut Budget, batch: &mut Batch, pool: &mut Pool) {
        match self.packet(length, pool) {
            Ok(packet) => {
                self.counters.received.add(packet.wire_packets.into());
                // A super-packet costs as much work as its segments.
                budget.spend(packet.wire_packets.into());
                batch.push(packet).expect("the room of the batch was looked at");
            }
            Err(reason) => {
                budget.spend(1);
                self.counters.received.add(1);
                self.counters.drops.count(reason, 1);
            }
        }
    }

    /// Moves as many posted frames to the end of `packet` as `bytes` fill.
    fn chain(&mut self, packet: &mut Packet, mut bytes: usize) {
        while bytes > 0 {
            let frame = self.posted.pop().expect("the longest packet fits the posted frames");
            let here = bytes.min(frame.slot_bytes() as usize);
            packet.push_segment(Segment { frame, offset: 0, length: short(here) });
            bytes -= here;
        }
    }
}

/// Puts an Ethernet header before a packet that begins with an IP header, as if this host had sent it to the other end
/// of the link; `None` for other packets.
fn add_ethernet(packet: &mut Packet, header: &mut header::Header) -> Option<()> {
    let ether_type = match packet.bytes().first()? >> 4 {
        4 => EtherType::IPV4,
        6 => EtherType::IPV6,
        _ => return None,
    };
    let front = packet.prepend(header::ETHERNET).ok()?;
    let (stations, kind) = front.split_at_mut_checked(12)?;
    stations[..6].copy_from_slice(&FAR_STATION);
    stations[6..].copy_from_slice(&NEAR_STATION);
    kind.copy_from_slice(&ether_type.0.to_be_bytes());
    header::add_ethernet(header);
    Some(())
}

/// Returns the offset of a packet in its head frame.
fn head_offset(slot_bytes: u32, headroom: u16) -> u16 {
    headroom.max(header::LONG).min(u16::try_from(slot_bytes / 2).unwrap_or(u16::MAX))
}

/// Returns the number of frames for the longest packet plus one byte: a packet that fills them all may have
/// been truncated by the kernel.
fn frames(longest: usize, slot_bytes: u32, head_offset: u16) -> usize {
    let slot = slot_bytes as usize;
    let behind_head = (longest + 1).saturating_sub(slot - usize::from(head_offset));
    1 + behind_head.div_ceil(slot)
}

/// Converts a length within a slot of at most 32 KiB.
#[inline]
fn short(bytes: usize) -> u16 {
    u16::try_from(bytes).expect("a slot has at most 32 KiB")
}

impl RxQueue for TapRx {
    fn receive(&mut self, budget: &mut Budget, batch: &mut Batch, pool: &mut Pool) -> Turn {
        if self.closed {
            return Turn::Closed;
        }
        while batch.room() > 0 && budget.left() > 0 {
            if !self.refill(pool) {
                // Packets wait in the kernel's queue, which drops and counts the excess.
                return Turn::OutOfBudget;
            }
            match self.read() {
                Ok(length) => self.take(length, budget, batch, pool),
                Err(Errno::AGAIN) => return Turn::Drained,
                Err(Errno::INTR) => {}
                // EBADFD: the interface is gone. No other error is expected of an open file, and none would
                // go away.
                Err(_) => {
                    self.closed = true;
                    return Turn::Closed;
                }
            }
        }
        self.refill(pool);
        Turn::OutOfBudget
    }

    /// The file is readable while a packet waits, so no arming is needed.
    ///
    /// Cost: one `poll` without waiting.
    fn arm(&mut self) -> Armed {
        self.counters.system_calls.add(1);
        let mut look = [PollFd::new(&*self.file, PollFlags::IN)];
        // An error counts as work: the next `receive` finds out.
        match rustix::event::poll(&mut look, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) {
            Ok(0) if !self.closed => Armed::Waiting,
            _ => Armed::Raced,
        }
    }

    fn event(&self) -> Option<BorrowedFd<'_>> {
        Some(self.file.as_fd())
    }

    fn posted(&self) -> u32 {
        u32::try_from(self.posted.len()).unwrap_or(u32::MAX)
    }

    fn counters(&self) -> &Arc<QueueCounters> {
        &self.counters
    }
}

impl Drop for TapRx {
    fn drop(&mut self) {
        self.region.pool().release_bulk(&mut self.posted);
    }
}
