//! Frames of bulk-out transfers: command words, tags, checksums that the adapter completes.

use super::frame::{TX_COMMAND_BYTES, TxCommand, tx_a, tx_room};
use crate::usb::UrbBuffer;
use crate::usb::function::{Plan, Writer};
use polder_buffers::{ChecksumState, Packet};
use polder_datapath::drops::DropReason;
use polder_datapath::offload::complete_checksum;
use polder_datapath::wire::{EtherType, IpProtocol, Ipv4, Ipv6};

/// Bytes of an Ethernet header.
const HEADER: usize = 14;
/// Bytes of the two addresses, which precede a tag.
const ADDRESSES: usize = 12;
/// Bytes of a tag.
const TAG_BYTES: usize = 4;

/// Packer of bulk-out transfers.
#[derive(Default)]
pub(super) struct FrameWriter {
    pub(super) insert_tags: bool,
}

impl Writer for FrameWriter {
    const WHOLE: bool = false;

    fn most_packets(&self, bytes: usize) -> usize {
        bytes / (TX_COMMAND_BYTES + HEADER)
    }

    fn plan<'a>(&mut self, packets: impl Iterator<Item = &'a Packet>, limit: usize) -> Plan {
        let mut plan = Plan::default();
        for length in packets.map(Packet::len) {
            let end = plan.bytes + tx_room(plan.bytes, length);
            if end > limit {
                break;
            }
            plan = Plan { packets: plan.packets + 1, bytes: end };
        }
        plan
    }

    fn push(&mut self, packet: &Packet, buffer: &mut UrbBuffer, used: usize) -> usize {
        write(packet, buffer, used, self.insert_tags)
    }

    fn needs_zero_packet(&self, _bytes: usize) -> bool {
        true
    }

    fn prepare(&self, packet: &mut Packet) -> Result<(), DropReason> {
        if packet.checksum == ChecksumState::Partial && !is_outermost(packet) {
            complete_checksum(packet).map_err(|_| DropReason::TxError)?;
        }
        Ok(())
    }
}

/// Appends a packet with its command words to the `used` bytes of a transfer; returns the new number of
/// bytes.
fn write(packet: &Packet, urb: &mut UrbBuffer, used: usize, insert_tags: bool) -> usize {
    let tag = if insert_tags { tag_of(packet) } else { None };
    let length = packet.len() - if tag.is_some() { TAG_BYTES } else { 0 };
    let mut command = TxCommand::plain(length).unwrap_or_default();
    if let Some(tag) = tag {
        command.a |= tx_a::VLAN;
        command.b |= u32::from(tag);
    }
    if packet.checksum == ChecksumState::Partial {
        command.a |= tx_a::TRANSPORT_CHECKSUM | tx_a::IP_CHECKSUM;
    }
    let padding = used.next_multiple_of(4) - used;
    let mut at = urb.write(used, &[0; 4][..padding]);
    at = urb.write(at, &command.write());
    let mut segments = packet.segments();
    if tag.is_some() {
        let head = segments.next().unwrap_or_default();
        at = urb.write(at, &head[..ADDRESSES]);
        at = urb.write(at, &head[ADDRESSES + TAG_BYTES..]);
    }
    segments.fold(at, |at, segment| urb.write(at, segment))
}

/// Returns the 802.1Q tag of a packet.
fn tag_of(packet: &Packet) -> Option<u16> {
    let bytes = packet.bytes();
    let tag = bytes.get(ADDRESSES + 2..ADDRESSES + 4)?;
    let is_tagged = bytes[ADDRESSES..ADDRESSES + 2] == EtherType::VLAN.0.to_be_bytes();
    is_tagged.then(|| u16::from_be_bytes([tag[0], tag[1]]))
}

/// True if the adapter finds the same transport message in a packet whose checksum is partial: the outermost
/// one, TCP or UDP, and no fragment.
fn is_outermost(packet: &Packet) -> bool {
    let bytes = packet.bytes();
    let mut network = HEADER;
    let mut kind = bytes.get(HEADER - 2..HEADER).unwrap_or_default();
    if kind == EtherType::VLAN.0.to_be_bytes() {
        kind = bytes.get(HEADER + 2..HEADER + 4).unwrap_or_default();
        network += 4;
    }
    let rest = bytes.get(network..).unwrap_or_default();
    let whole = packet.len().saturating_sub(network);
    let (transport, protocol) = if kind == EtherType::IPV4.0.to_be_bytes() {
        match Ipv4::parse_head(rest, whole) {
            Ok(ip) if !ip.is_fragment() => (network + ip.header_bytes(), ip.protocol()),
            _ => return false,
        }
    } else if kind == EtherType::IPV6.0.to_be_bytes() {
        match Ipv6::parse_head(rest, whole) {
            Ok(ip) => (network + Ipv6::HEADER_BYTES, ip.next_header()),
            Err(_) => return false,
        }
    } else {
        return false;
    };
    let field = match protocol {
        IpProtocol::TCP => 16,
        IpProtocol::UDP => 6,
        _ => return false,
    };
    usize::from(packet.checksum_start) == transport && packet.checksum_offset == field
}
