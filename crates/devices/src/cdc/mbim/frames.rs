//! IP packets of bulk transfers, which have an Ethernet header only inside the gateway.
//!
//! The header has two fixed addresses, the port's and its only neighbour's, and the EtherType by the packet's
//! IP version. Session 0 has no tag, session n has VLAN n, as in Linux.

use super::super::ntb::{Block, Channel, Cursor, Datagram, Packer};
use super::super::status::BlockCounters;
use crate::Receiving;
use crate::usb::UrbBuffer;
use crate::usb::function::{Malformed, Plan, Reader, Writer};
use polder_buffers::{ChecksumState, Packet, Pool};
use polder_datapath::drops::DropReason;
use polder_datapath::offload::complete_checksum;
use std::sync::Arc;

/// Bytes of an Ethernet header without and with a tag.
const HEADER: usize = 14;
const TAGGED: usize = 18;
/// Bytes of the two addresses.
const ADDRESSES: usize = 12;
/// EtherTypes.
const IPV4: [u8; 2] = [0x08, 0x00];
const IPV6: [u8; 2] = [0x86, 0xdd];
const TAG: [u8; 2] = [0x81, 0x00];
/// Bytes of an IPv4 header, which is the shortest datagram.
pub(super) const SHORTEST: usize = 20;

/// MAC addresses of a port's link: its own, and its only neighbour's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Stations {
    pub(super) near: [u8; 6],
    pub(super) far: [u8; 6],
}

impl Stations {
    /// Returns the addresses for a port with address `near`.
    pub(super) const fn of(near: [u8; 6]) -> Self {
        let [a, b, c, d, e, f] = near;
        Self { near, far: [(a | 2) & !1, b, c, d, e, f ^ 1] }
    }
}

/// Parser of blocks with IP packets.
pub(super) struct PacketReader {
    pub(super) block: Block,
    /// Maximum length of an accepted packet, in bytes.
    pub(super) longest: usize,
    pub(super) stations: Stations,
    pub(super) counters: Arc<BlockCounters>,
}

impl PacketReader {
    /// Returns the Ethernet header of a packet and its length; `None` if the datagram is no IP packet.
    fn header(&self, datagram: &Datagram<'_>) -> Option<([u8; TAGGED], usize)> {
        let kind = match datagram.bytes.first()? >> 4 {
            4 => IPV4,
            6 => IPV6,
            _ => return None,
        };
        let Channel::Session(session) = datagram.channel else { return None };
        let mut header = [0; TAGGED];
        header[..6].copy_from_slice(&self.stations.near);
        header[6..ADDRESSES].copy_from_slice(&self.stations.far);
        let (at, length) = if session == 0 { (ADDRESSES, HEADER) } else { (ADDRESSES + 4, TAGGED) };
        header[ADDRESSES..ADDRESSES + 2].copy_from_slice(&TAG);
        header[ADDRESSES + 3] = session;
        header[at..at + 2].copy_from_slice(&kind);
        Some((header, length))
    }
}

impl Reader for PacketReader {
    type Cursor = Cursor;
    type Frame<'a> = Datagram<'a>;

    fn next<'a>(&self, cursor: &mut Cursor, transfer: &'a [u8]) -> Option<Result<Datagram<'a>, Malformed>> {
        let bytes = cursor.left(transfer);
        self.block.next(cursor, transfer).map(|datagram| {
            datagram.map_err(|fault| {
                self.counters.count(fault);
                Malformed { bytes }
            })
        })
    }

    /// Data of a device service was not requested, and is no packet.
    fn accept(&self, datagram: &Datagram<'_>) -> Result<(), DropReason> {
        if self.header(datagram).is_none() {
            return Err(DropReason::DeviceError);
        }
        if datagram.bytes.len() > self.longest {
            return Err(DropReason::FrameTooLong);
        }
        Ok(())
    }

    fn copy(&self, datagram: &Datagram<'_>, _: &Receiving, pool: &mut Pool) -> Option<Packet> {
        let (header, length) = self.header(datagram)?;
        let mut packet = Packet::copy_from(&header[..length], pool)?;
        if packet.extend_from(datagram.bytes, pool).is_err() {
            pool.release_packet(packet);
            return None;
        }
        self.counters.datagrams.add(1);
        Some(packet)
    }
}

/// An IP packet within a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Inside {
    /// Bytes of the Ethernet header.
    header: usize,
    session: u8,
    /// Bytes of the packet; the bytes after it are padding.
    bytes: usize,
}

impl Inside {
    /// Returns the IP packet in a frame; `None` if there is none, or its VLAN is no session's.
    fn of(packet: &Packet) -> Option<Self> {
        let mut head = [0; TAGGED + 6];
        let count = packet.copy_out(0, &mut head);
        let head = head.get(..count)?;
        let at = |at: usize| head.get(at..at + 2).map(|pair| [pair[0], pair[1]]);
        let (header, session) = match at(ADDRESSES)? {
            TAG => (TAGGED, u8::try_from(u16::from_be_bytes(at(HEADER)?) & 0xfff).ok()?),
            _ => (HEADER, 0),
        };
        let total = match at(header - 2)? {
            IPV4 => usize::from(u16::from_be_bytes(at(header + 2)?)),
            IPV6 => usize::from(u16::from_be_bytes(at(header + 4)?)) + 40,
            _ => return None,
        };
        let bytes = packet.len().checked_sub(header)?.min(total.max(SHORTEST));
        (bytes >= SHORTEST).then_some(Self { header, session, bytes })
    }
}

/// Packer of blocks, each with IP packets of one session.
#[derive(Default)]
pub(super) struct PacketWriter {
    pub(super) packer: Packer,
    /// Maximum packet length in bytes.
    pub(super) longest: usize,
}

impl Writer for PacketWriter {
    const WHOLE: bool = true;

    fn most_packets(&self, bytes: usize) -> usize {
        self.packer.most_datagrams(bytes, SHORTEST)
    }

    fn plan<'a>(&mut self, packets: impl Iterator<Item = &'a Packet>, limit: usize) -> Plan {
        let mut packets = packets.map_while(Inside::of).peekable();
        let Some(&Inside { session, .. }) = packets.peek() else { return Plan::default() };
        self.packer.set_channel(Channel::Session(session));
        let lengths = packets.take_while(|inside| inside.session == session).map(|inside| inside.bytes);
        self.packer.plan(lengths, limit)
    }

    fn begin(&mut self, buffer: &mut UrbBuffer) -> usize {
        self.packer.begin(buffer)
    }

    fn push(&mut self, packet: &Packet, buffer: &mut UrbBuffer, used: usize) -> usize {
        let Some(Inside { header, bytes, .. }) = Inside::of(packet) else { return used };
        self.packer.push(packet, header..header + bytes, buffer, used)
    }

    fn end(&mut self, buffer: &mut UrbBuffer, used: usize) -> usize {
        self.packer.end(buffer, used)
    }

    fn needs_zero_packet(&self, bytes: usize) -> bool {
        let shape = self.packer.shape();
        shape.zero_packet && bytes < shape.largest
    }

    /// Refuses a frame without an IP packet, which the link cannot carry.
    fn prepare(&self, packet: &mut Packet) -> Result<(), DropReason> {
        let inside = Inside::of(packet).ok_or(DropReason::TxError)?;
        if inside.bytes > self.longest {
            return Err(DropReason::TxTooLong);
        }
        if packet.checksum == ChecksumState::Partial {
            complete_checksum(packet).map_err(|_| DropReason::TxError)?;
        }
        Ok(())
    }
}
