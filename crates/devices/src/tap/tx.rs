//! The transmitter of a queue: one `write` per packet, from the packet's frames; the kernel receives the
//! packet by the interface.
//!
//! The kernel copies the packet before the call returns, so frames are freed at once and no packet is ever
//! held.

use super::header;
use crate::netlink::link::LinkLayer;
use core::sync::atomic::{AtomicU32, Ordering};
use polder_buffers::{Batch, NoRoom, Packet, Pool, SegmentationKind};
use polder_datapath::counters::QueueCounters;
use polder_datapath::drops::DropReason;
use polder_datapath::port::{Turn, TxQueue};
use polder_datapath::wire::EtherType;
use rustix::io::Errno;
use std::io::IoSlice;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Bytes of an Ethernet header, and of an 802.1Q tag.
const ETHERNET: usize = 14;
const TAG: usize = 4;
/// Bytes of the two addresses before an EtherType or tag.
const ADDRESSES: usize = 12;
/// Maximum number of pieces that one packet is written from, header included.
const PIECES: usize = 64;

/// The transmitting end of one queue of a TAP.
#[derive(Debug)]
pub struct TapTx {
    file: Arc<OwnedFd>,
    /// Bytes of the header before each packet.
    header_bytes: u16,
    /// Maximum length of a packet that is no super-packet, in bytes.
    longest: usize,
    /// The MTU of the link after the TAP, if any: segments are checked against it too.
    link_mtu: Option<Arc<AtomicU32>>,
    /// True if a service tag in each packet names its ingress port.
    names_ingress: bool,
    layer: LinkLayer,
    closed: bool,
    counters: Arc<QueueCounters>,
}

/// Result of sending a packet.
enum Sent {
    Yes,
    /// Not sent yet: the file is full, or gone.
    Later,
    Never(DropReason),
}

impl TapTx {
    /// Creates a transmitter of packets of at most `longest` bytes (super-packets excepted), with
    /// `header_bytes` of header.
    pub(super) fn new(file: Arc<OwnedFd>, (header_bytes, longest): (u16, usize), layer: LinkLayer) -> Self {
        let (link_mtu, counters) = (None, Arc::default());
        Self { file, header_bytes, longest, link_mtu, names_ingress: false, layer, closed: false, counters }
    }

    /// Sets the MTU of the link by which the TAP's packets leave; it may change. Longer packets and segments
    /// are dropped.
    #[must_use]
    pub fn toward(self, link_mtu: Arc<AtomicU32>) -> Self {
        Self { link_mtu: Some(link_mtu), ..self }
    }

    /// Lets each packet name its ingress port for the TAP's program: the port's number is the control
    /// information of a service tag (0x88a8) after the two addresses.
    #[must_use]
    pub fn naming_ingress(self) -> Self {
        Self { names_ingress: true, ..self }
    }

    /// True if the link after the TAP carries a packet, or its segments with `headers` bytes of headers each.
    #[inline]
    fn fits_link(&self, packet: &Packet, headers: u16) -> bool {
        let Some(mtu) = &self.link_mtu else { return true };
        let tag = match packet.bytes().get(12..14) {
            Some([0x81, 0x00] | [0x88, 0xa8]) => TAG,
            _ => 0,
        };
        // Relaxed: the number orders nothing.
        let longest = mtu.load(Ordering::Relaxed) as usize + ETHERNET + tag;
        if packet.segmentation.kind == SegmentationKind::None {
            return packet.len() <= longest;
        }
        usize::from(headers) + usize::from(packet.segmentation.size) <= longest
    }

    #[inline]
    fn send(&mut self, packet: &mut Packet) -> Sent {
        if packet.len() > self.longest && packet.segmentation.kind == SegmentationKind::None {
            return Sent::Never(DropReason::TxTooLong);
        }
        let Ok(mut header) = header::describe(packet) else { return Sent::Never(DropReason::TxError) };
        if !self.fits_link(packet, header::header_bytes(&header)) {
            return Sent::Never(DropReason::TxTooLong);
        }
        if header::is_long(&header) && self.header_bytes < header::LONG {
            return Sent::Never(DropReason::TxError);
        }
        if self.names_ingress {
            header::move_by_tag(&mut header);
        }
        if self.layer == LinkLayer::Packets {
            header::remove_ethernet(&mut header);
        }
        let header = &header[..usize::from(self.header_bytes)];
        loop {
            match self.write(header, packet) {
                Ok(_) => return Sent::Yes,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Sent::Later,
                // The interface is gone.
                Err(Errno::BADFD) => {
                    self.closed = true;
                    return Sent::Later;
                }
                // EIO: the interface is down. EINVAL: the packet is shorter than an Ethernet header.
                Err(_) => return Sent::Never(DropReason::TxError),
            }
        }
    }

    #[inline]
    fn write(&self, header: &[u8], packet: &mut Packet) -> rustix::io::Result<usize> {
        self.counters.system_calls.add(1);
        if self.names_ingress {
            return self.write_tagged(header, packet);
        }
        if self.layer == LinkLayer::Packets {
            return self.write_bare(header, packet);
        }
        if !packet.is_contiguous() {
            return self.write_chain(header, packet);
        }
        match packet.prepend(self.header_bytes) {
            Ok(front) => front.copy_from_slice(header),
            Err(NoRoom::Front | NoRoom::Back | NoRoom::Short) => return self.write_chain(header, packet),
        }
        let result = rustix::io::write(&*self.file, packet.bytes());
        packet.trim_front(self.header_bytes).expect("as many bytes were put in front");
        result
    }

    /// Writes a packet with a service tag after its addresses.
    fn write_tagged(&self, header: &[u8], packet: &Packet) -> rustix::io::Result<usize> {
        let mut tag = [0; TAG];
        let (kind, control) = tag.split_at_mut(2);
        kind.copy_from_slice(&EtherType::SERVICE_VLAN.0.to_be_bytes());
        control.copy_from_slice(&packet.ingress.0.to_be_bytes());
        let mut segments = packet.segments();
        let (addresses, rest) =
            segments.next().and_then(|first| first.split_at_checked(ADDRESSES)).ok_or(Errno::INVAL)?;
        let mut pieces = [IoSlice::new(&[]); PIECES];
        let mut count = 0;
        for piece in [header, addresses, &tag, rest].into_iter().chain(segments) {
            *pieces.get_mut(count).ok_or(Errno::MSGSIZE)? = IoSlice::new(piece);
            count += 1;
        }
        rustix::io::writev(&*self.file, &pieces[..count])
    }

    /// Writes a packet without its Ethernet header.
    fn write_bare(&self, header: &[u8], packet: &Packet) -> rustix::io::Result<usize> {
        let mut segments = packet.segments();
        let (_, rest) =
            segments.next().and_then(|first| first.split_at_checked(ETHERNET)).ok_or(Errno::INVAL)?;
        let mut pieces = [IoSlice::new(&[]); PIECES];
        let mut count = 0;
        for piece in [header, rest].into_iter().chain(segments) {
            *pieces.get_mut(count).ok_or(Errno::MSGSIZE)? = IoSlice::new(piece);
            count += 1;
        }
        rustix::io::writev(&*self.file, &pieces[..count])
    }

    fn write_chain(&self, header: &[u8], packet: &Packet) -> rustix::io::Result<usize> {
        let mut pieces = [IoSlice::new(&[]); PIECES];
        pieces[0] = IoSlice::new(header);
        let mut count = 1;
        for segment in packet.segments() {
            *pieces.get_mut(count).ok_or(Errno::MSGSIZE)? = IoSlice::new(segment);
            count += 1;
        }
        rustix::io::writev(&*self.file, &pieces[..count])
    }
}

impl TxQueue for TapTx {
    fn transmit(&mut self, batch: &mut Batch, pool: &mut Pool) {
        if self.closed {
            return;
        }
        let (mut done, mut sent, mut bytes) = (0, 0, 0);
        for packet in batch.iter_mut() {
            let length = packet.len() as u64;
            match self.send(packet) {
                Sent::Yes => {
                    sent += u64::from(packet.wire_packets);
                    bytes += length;
                }
                Sent::Never(reason) => self.counters.drops.count(reason, packet.wire_packets.into()),
                Sent::Later => break,
            }
            done += 1;
        }
        self.counters.transmitted.add(sent);
        self.counters.transmitted_bytes.add(bytes);
        batch.drain_front(done).for_each(|packet| pool.release_packet(packet));
    }

    /// Reclaims nothing: frames were freed when their packet was written.
    fn reclaim(&mut self, _pool: &mut Pool) -> Turn {
        if self.closed { Turn::Closed } else { Turn::Drained }
    }

    fn held(&self) -> u32 {
        0
    }

    fn counters(&self) -> &Arc<QueueCounters> {
        &self.counters
    }
}
