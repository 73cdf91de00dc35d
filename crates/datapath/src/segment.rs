//! Packets that no link carries whole, cut into segments.
//!
//! In: packets with a [`Segmentation`](polder_buffers::Segmentation) on their way to a port that does not take them, or to a
//! tunnel. Out: segments with partial checksums, in order. Exits: `CannotSegment`, `NoBuffer`.
//! Cost: one set of headers a segment; the payload moves when it lies in a frame of its own with room
//! in front, as what [`coalesce`](crate::coalesce) has merged does, and is copied otherwise.
//! Source: A6; what a segment's header has in common with the packet's: RFC 9293, 3.1 (sequence
//! number, PSH, FIN), RFC 3168, 6.1.2 (CWR), RFC 6864 (identification).

use crate::parse::{Extent, HeaderSummary, Network};
use crate::wire::{IpProtocol, Ipv4Mut, Ipv6, Ipv6Mut, Pseudo, Tcp, TcpFlags, TcpMut, Udp, UdpMut};
use polder_buffers::{ChecksumState, HEADROOM, NoRoom, Packet, Pool, Segment, SegmentationKind, Segments};

/// A packet that contradicts its metadata, which come from its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the packet cannot be cut as its description says")]
pub struct Unfit;

/// Headers that are longer are refused: two tags, IPv6 with a few extension headers, TCP with options.
const LONGEST_HEADERS: usize = 256;
/// Bytes in front of a segment that stay free for the headers of tunnels, when its payload is not copied.
const SPARE: u16 = HEADROOM / 2;
/// A segment's IP packet is as long as a length field says at most.
const LONGEST_PACKET: usize = 65_535;

/// Segments of one packet, made one by one.
///
/// A packet may have as many as it has bytes, so nothing here makes them all at once.
#[derive(Debug)]
pub struct Cutting {
    source: Source,
    headers: Headers,
    /// Metadata for each segment.
    pattern: Metadata,
    size: usize,
    /// Payload bytes that no segment has yet.
    left: usize,
    /// Segments made.
    made: u32,
    count: u32,
}

impl Cutting {
    /// Starts to cut `packet`, which has a segmentation.
    ///
    /// # Errors
    /// [`Unfit`] and the packet itself when its headers are not those of its segmentation, or too long.
    #[cold]
    pub fn new(packet: Packet, pool: &mut Pool) -> Result<Self, (Unfit, Packet)> {
        let Some(headers) = Headers::of(&packet) else { return Err((Unfit, packet)) };
        let size = usize::from(packet.segmentation.size);
        let left = packet.len() - headers.length;
        let longest = headers.length - headers.network + left.min(size);
        // Headers are rewritten in the head frame of each segment, so a packet without payload has one.
        let count = u32::try_from(left.div_ceil(size.max(1)).max(1));
        let (Ok(count), true) = (count, size > 0 && longest <= LONGEST_PACKET) else {
            return Err((Unfit, packet));
        };
        let pattern = Metadata::of(&packet);
        let mut source = Source { frames: packet.into_segments(), current: None };
        source.skip(headers.length, pool);
        Ok(Self { source, headers, pattern, size, left, made: 0, count })
    }

    /// Segments that it makes altogether.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Segments not made yet.
    pub fn remaining(&self) -> u32 {
        self.count - self.made
    }

    /// The next segment, whose checksum is partial; `None` after the last.
    ///
    /// # Errors
    /// [`NoRoom`] when the pool has no frame; what is left is to be given up by [`Cutting::give_up`].
    pub fn next(&mut self, pool: &mut Pool) -> Result<Option<Packet>, NoRoom> {
        if self.made == self.count {
            return Ok(None);
        }
        let length = self.size.min(self.left);
        let mut packet = self.payload(length, pool)?;
        self.left -= length;
        let is_last = self.made + 1 == self.count;
        self.headers.write(&mut packet, self.made, self.size, is_last);
        self.pattern.give(&mut packet, &self.headers);
        self.made += 1;
        if is_last {
            self.source.release(pool);
        }
        Ok(Some(packet))
    }

    /// Releases the bytes that were not made into segments; returns the number of segments that are
    /// missing.
    #[cold]
    pub fn give_up(mut self, pool: &mut Pool) -> u32 {
        self.source.release(pool);
        self.remaining()
    }

    /// A packet of room for the headers and the next `length` bytes of payload.
    fn payload(&mut self, length: usize, pool: &mut Pool) -> Result<Packet, NoRoom> {
        let headers = u16::try_from(self.headers.length).map_err(|_| NoRoom::Front)?;
        if let Some(segment) = self.source.whole(length, headers + SPARE) {
            let mut packet = Packet::from_segment(segment);
            packet.prepend(headers)?;
            return Ok(packet);
        }
        let mut packet = Packet::new(pool.take().ok_or(NoRoom::Back)?);
        let copied =
            packet.append(headers).map(drop).and_then(|()| self.source.copy(length, &mut packet, pool));
        if let Err(error) = copied {
            pool.release_packet(packet);
            return Err(error);
        }
        Ok(packet)
    }
}

/// The packet that is being cut: frames, first to last, the first perhaps used in part.
#[derive(Debug)]
struct Source {
    frames: Segments,
    current: Option<Segment>,
}

impl Source {
    /// The frame that bytes are taken from next.
    fn front(&mut self) -> Option<&mut Segment> {
        if self.current.is_none() {
            self.current = self.frames.next();
        }
        self.current.as_mut()
    }

    /// Leaves out the headers.
    fn skip(&mut self, mut bytes: usize, pool: &mut Pool) {
        while let Some(front) = self.front() {
            let here = u16::try_from(bytes).unwrap_or(u16::MAX).min(front.length);
            front.offset += here;
            front.length -= here;
            bytes -= usize::from(here);
            if front.length > 0 {
                return;
            }
            if let Some(empty) = self.current.take() {
                pool.release_frame(empty.frame);
            }
        }
    }

    /// The next frame, if it holds `length` bytes that no other segment has a part of, and has `room` bytes
    /// in front of them.
    fn whole(&mut self, length: usize, room: u16) -> Option<Segment> {
        let front = self.front()?;
        // Nobody writes in front of what another packet reads.
        let fits = usize::from(front.length) == length && front.offset >= room && !front.frame.is_shared();
        if fits { self.current.take() } else { None }
    }

    /// Puts a copy of the next `length` bytes at the end of `packet`.
    fn copy(&mut self, mut length: usize, packet: &mut Packet, pool: &mut Pool) -> Result<(), NoRoom> {
        while length > 0 {
            let front = self.front().ok_or(NoRoom::Short)?;
            let take = u16::try_from(length).unwrap_or(u16::MAX).min(front.length);
            let start = usize::from(front.offset);
            packet.extend_from(&front.frame.slot()[start..start + usize::from(take)], pool)?;
            front.offset += take;
            front.length -= take;
            length -= usize::from(take);
            if front.length == 0
                && let Some(empty) = self.current.take()
            {
                pool.release_frame(empty.frame);
            }
        }
        Ok(())
    }

    /// Releases all frames.
    fn release(&mut self, pool: &mut Pool) {
        for segment in self.current.take().into_iter().chain(&mut self.frames) {
            pool.release_frame(segment.frame);
        }
    }
}

/// Metadata of the packet that every segment has.
#[derive(Debug)]
struct Metadata {
    ingress: polder_buffers::PortId,
    egress: polder_buffers::PortId,
    network_offset: u16,
    vlan: u16,
    flags: u8,
    flow_hash: u32,
    received_at: u64,
    ticket: u32,
}

impl Metadata {
    fn of(packet: &Packet) -> Self {
        Self {
            ingress: packet.ingress,
            egress: packet.egress,
            network_offset: packet.network_offset,
            vlan: packet.vlan,
            flags: packet.flags,
            flow_hash: packet.flow_hash,
            received_at: packet.received_at,
            ticket: packet.ticket,
        }
    }

    fn give(&self, packet: &mut Packet, headers: &Headers) {
        packet.ingress = self.ingress;
        packet.egress = self.egress;
        packet.network_offset = self.network_offset;
        packet.vlan = self.vlan;
        packet.flags = self.flags;
        packet.flow_hash = self.flow_hash;
        packet.received_at = self.received_at;
        packet.ticket = self.ticket;
        packet.checksum = ChecksumState::Partial;
        // Within `LONGEST_HEADERS`.
        packet.checksum_start = u16::try_from(headers.transport).unwrap_or(u16::MAX);
        packet.checksum_offset = headers.checksum_offset();
    }
}

/// The packet's headers, from which those of segments are made.
#[derive(Debug)]
struct Headers {
    bytes: [u8; LONGEST_HEADERS],
    length: usize,
    network: usize,
    transport: usize,
    pseudo: Pseudo,
    protocol: IpProtocol,
    /// Identification of the first segment, and its step from segment to segment.
    identification: u16,
    identification_step: u16,
    sequence: u32,
    flags: TcpFlags,
}

impl Headers {
    /// Headers of `packet`, if they agree with its metadata.
    fn of(packet: &Packet) -> Option<Self> {
        let mut bytes = [0; LONGEST_HEADERS];
        let there = packet.copy_out(0, &mut bytes);
        let bytes = bytes.get(..there)?;
        let summary = HeaderSummary::parse(bytes, packet.len());
        if summary.is_fragment() || summary.extent() != Extent::Exact {
            return None;
        }
        let (network, transport, found) =
            (summary.network_offset(), summary.transport_offset(), summary.protocol());
        let (protocol, step, wants_v4) = match packet.segmentation.kind {
            SegmentationKind::None => return None,
            SegmentationKind::Tcp4 => (IpProtocol::TCP, 1, Some(true)),
            SegmentationKind::Tcp4OneId => (IpProtocol::TCP, 0, Some(true)),
            SegmentationKind::Tcp6 => (IpProtocol::TCP, 0, Some(false)),
            SegmentationKind::Udp => (IpProtocol::UDP, 1, None),
            SegmentationKind::UdpOneId => (IpProtocol::UDP, 0, Some(true)),
        };
        let pseudo = summary.addresses(bytes)?.pseudo();
        let is_v4 = summary.network() == Network::Ipv4;
        if wants_v4.is_some_and(|wanted| wanted != is_v4) {
            return None;
        }
        let identification = bytes.get(network + 4..).and_then(<[u8]>::first_chunk).filter(|_| is_v4);
        let identification = identification.map_or(0, |&field| u16::from_be_bytes(field));
        let mut headers = Self {
            bytes: [0; LONGEST_HEADERS],
            length: transport,
            network,
            transport,
            pseudo,
            protocol,
            identification,
            identification_step: step,
            sequence: 0,
            flags: TcpFlags::default(),
        };
        let start = usize::from(packet.checksum_start);
        if found != protocol || start != transport || packet.checksum_offset != headers.checksum_offset() {
            return None;
        }
        headers.read_transport(bytes.get(transport..)?)?;
        let source = bytes.get(..headers.length)?;
        headers.bytes.get_mut(..headers.length)?.copy_from_slice(source);
        Some(headers)
    }

    fn read_transport(&mut self, bytes: &[u8]) -> Option<()> {
        if self.protocol == IpProtocol::TCP {
            let tcp = Tcp::parse(bytes).ok()?;
            self.length += tcp.header_bytes();
            (self.sequence, self.flags) = (tcp.sequence(), tcp.flags());
        } else {
            self.length += Udp::HEADER_BYTES;
            bytes.get(..Udp::HEADER_BYTES)?;
        }
        Some(())
    }

    fn checksum_offset(&self) -> u16 {
        if self.protocol == IpProtocol::TCP { Tcp::CHECKSUM_OFFSET } else { Udp::CHECKSUM_OFFSET }
    }

    /// Writes the headers of segment `number` in front of its payload, where there is room for them.
    fn write(&self, packet: &mut Packet, number: u32, size: usize, is_last: bool) {
        let whole = packet.len();
        let Some(bytes) = packet.bytes_mut().get_mut(..self.length) else { return };
        bytes.copy_from_slice(&self.bytes[..self.length]);
        self.write_network(bytes, number, whole);
        let transport_bytes = whole - self.transport;
        let sum =
            self.pseudo.sum(self.protocol, u32::try_from(transport_bytes).unwrap_or(u32::MAX)).partial();
        let transport = &mut bytes[self.transport..];
        if self.protocol == IpProtocol::TCP {
            // Sequence numbers wrap.
            let ahead = number.wrapping_mul(u32::try_from(size).unwrap_or(u32::MAX));
            let flags = self.flags_of(number == 0, is_last);
            if let Ok(mut tcp) = TcpMut::parse(transport) {
                tcp.set_sequence_and_flags(self.sequence.wrapping_add(ahead), flags);
                tcp.set_checksum(sum);
            }
        } else if let Ok(mut udp) = UdpMut::parse_head(transport) {
            udp.set_length(u16::try_from(transport_bytes).unwrap_or(u16::MAX));
            udp.set_checksum(sum);
        }
    }

    fn write_network(&self, bytes: &mut [u8], number: u32, whole: usize) {
        let network = &mut bytes[self.network..];
        let network_bytes = u16::try_from(whole - self.network).unwrap_or(u16::MAX);
        match self.pseudo {
            Pseudo::V4 { .. } => {
                if let Ok(mut ip) = Ipv4Mut::parse_head(network, LONGEST_PACKET) {
                    let [_, _, high, low] = number.to_be_bytes();
                    let ahead = u16::from_be_bytes([high, low]).wrapping_mul(self.identification_step);
                    ip.set_total_length(network_bytes);
                    ip.set_identification(self.identification.wrapping_add(ahead));
                }
            }
            Pseudo::V6 { .. } => {
                if let Ok(mut ip) = Ipv6Mut::parse_head(network, LONGEST_PACKET + Ipv6::HEADER_BYTES) {
                    let behind = network_bytes.saturating_sub(40);
                    ip.set_payload_length(behind);
                }
            }
        }
    }

    /// A segment's flags: PSH and FIN belong to the last byte, CWR to the first segment.
    fn flags_of(&self, is_first: bool, is_last: bool) -> TcpFlags {
        let mut flags = self.flags;
        if !is_last {
            flags = flags.without(TcpFlags::FIN.with(TcpFlags::PSH));
        }
        if !is_first {
            flags = flags.without(TcpFlags::CWR);
        }
        flags
    }
}
