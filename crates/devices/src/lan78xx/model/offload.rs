//! Offloads of sent frames (tag, checksums, segmentation), and checksum results of received frames.
//!
//! Checksums are computed over the whole message, pseudo-header included, whatever the field contains.

use crate::lan78xx::frame::{TxFrame, rx_a, tx_a};
use crate::lan78xx::regs::rfe_ctl;
use polder_datapath::wire::{Checksum, EtherType, IpProtocol, Ipv4, Ipv6, Pseudo};

/// Bytes of the two addresses, which precede a tag.
const ADDRESSES: usize = 12;
/// TCP flags, in the fourteenth byte of the header.
const FIN: u8 = 0x01;
const PSH: u8 = 0x08;
const CWR: u8 = 0x80;

/// Offsets of a frame's headers.
#[derive(Clone, Copy)]
struct Layout {
    network: usize,
    transport: usize,
    end: usize,
    protocol: IpProtocol,
    is_v4: bool,
}

/// Returns the frames on the wire for one frame of a transfer: the frame itself, or its segments.
pub(super) fn prepare(frame: TxFrame<'_>) -> Vec<Vec<u8>> {
    let TxFrame { command, bytes } = frame;
    let mut frame = Vec::with_capacity(bytes.len() + 4);
    frame.extend_from_slice(bytes);
    if let Some(tag) = command.vlan() {
        let mut inserted = EtherType::VLAN.0.to_be_bytes().to_vec();
        inserted.extend(tag.to_be_bytes());
        frame.splice(ADDRESSES..ADDRESSES, inserted);
    }
    let Some(layout) = layout(&frame) else { return vec![frame] };
    if command.a & tx_a::SEGMENT != 0 {
        let size = (command.b >> 16 & 0x3fff) as usize;
        return segments(&frame, layout, size);
    }
    finish(&mut frame, layout, command.a);
    vec![frame]
}

/// Returns the error bits of a received frame, from the checksum engines that `control` enables.
pub(super) fn checksum_errors(frame: &[u8], control: u32) -> u32 {
    let Some(layout) = layout(frame) else { return 0 };
    let header = frame.get(layout.network..layout.transport).unwrap_or_default();
    let is_header_wrong = control & rfe_ctl::IP_CHECKSUM != 0 && layout.is_v4 && Checksum::of(header) != 0;
    let is_message_wrong = control & rfe_ctl::TRANSPORT_CHECKSUM != 0 && is_transport_wrong(frame, layout);
    let bits = if is_header_wrong { rx_a::IP_CHECKSUM } else { 0 }
        | if is_message_wrong { rx_a::TRANSPORT_CHECKSUM } else { 0 };
    // One bit is set for errors of every kind.
    if bits == 0 { 0 } else { bits | rx_a::ERROR }
}

fn is_transport_wrong(frame: &[u8], layout: Layout) -> bool {
    let is_udp = layout.protocol == IpProtocol::UDP;
    let (Some(pseudo), Some(message)) = (pseudo(frame, layout), frame.get(layout.transport..layout.end))
    else {
        return false;
    };
    // A UDP checksum of zero was not computed.
    let has_sum =
        layout.protocol == IpProtocol::TCP || is_udp && message.get(6..8).is_some_and(|sum| sum != [0, 0]);
    has_sum && !pseudo.sum_over(layout.protocol, message).is_valid()
}

fn layout(frame: &[u8]) -> Option<Layout> {
    let mut network = ADDRESSES + 2;
    let mut kind = frame.get(ADDRESSES..network)?;
    while kind == EtherType::VLAN.0.to_be_bytes() || kind == EtherType::SERVICE_VLAN.0.to_be_bytes() {
        kind = frame.get(network + 2..network + 4)?;
        network += 4;
    }
    if kind == EtherType::IPV4.0.to_be_bytes() {
        let packet = Ipv4::parse(&frame[network..]).ok().filter(|packet| !packet.is_fragment())?;
        let transport = network + packet.header_bytes();
        let end = network + usize::from(packet.total_length());
        Some(Layout { network, transport, end, protocol: packet.protocol(), is_v4: true })
    } else if kind == EtherType::IPV6.0.to_be_bytes() {
        let packet = Ipv6::parse(&frame[network..]).ok()?;
        let end = network + Ipv6::HEADER_BYTES + usize::from(packet.payload_length());
        let transport = network + Ipv6::HEADER_BYTES;
        Some(Layout { network, transport, end, protocol: packet.next_header(), is_v4: false })
    } else {
        None
    }
}

/// Writes the checksums that `wanted` selects.
fn finish(frame: &mut [u8], layout: Layout, wanted: u32) {
    if wanted & tx_a::TRANSPORT_CHECKSUM != 0 {
        write_transport(frame, layout);
    }
    if wanted & tx_a::IP_CHECKSUM != 0 && layout.is_v4 {
        let header = &mut frame[layout.network..layout.transport];
        header[10..12].fill(0);
        let sum = Checksum::of(header);
        header[10..12].copy_from_slice(&sum.to_be_bytes());
    }
}

fn pseudo(frame: &[u8], layout: Layout) -> Option<Pseudo> {
    let packet = &frame[layout.network..];
    if layout.is_v4 {
        Ipv4::parse(packet).ok().map(|packet| packet.pseudo())
    } else {
        Ipv6::parse(packet).ok().map(|packet| packet.pseudo())
    }
}

fn write_transport(frame: &mut [u8], layout: Layout) {
    let field = match layout.protocol {
        IpProtocol::TCP => 16,
        IpProtocol::UDP => 6,
        _ => return,
    };
    let Some(pseudo) = pseudo(frame, layout) else { return };
    let Some(segment) = frame.get_mut(layout.transport..layout.end) else { return };
    if segment.len() < field + 2 {
        return;
    }
    segment[field..field + 2].fill(0);
    let sum = pseudo.sum_over(layout.protocol, segment).finish_nonzero();
    segment[field..field + 2].copy_from_slice(&sum.to_be_bytes());
}

/// Segments a TCP packet, with `size` bytes of payload each.
fn segments(frame: &[u8], layout: Layout, size: usize) -> Vec<Vec<u8>> {
    let Some(&offset) = frame.get(layout.transport + 12) else { return vec![frame.to_vec()] };
    let headers = layout.transport + usize::from(offset >> 4) * 4;
    let (Some(payload), true) = (frame.get(headers..layout.end), size > 0) else {
        return vec![frame.to_vec()];
    };
    let pieces = payload.chunks(size).count();
    let cut = |(index, piece): (usize, &[u8])| {
        let mut segment = frame[..headers].to_vec();
        segment.extend_from_slice(piece);
        let end = segment.len();
        number(&mut segment, layout, index, index * size);
        let flags = &mut segment[layout.transport + 13];
        if index + 1 < pieces {
            *flags &= !(FIN | PSH);
        }
        if index > 0 {
            *flags &= !CWR;
        }
        finish(&mut segment, Layout { end, ..layout }, tx_a::TRANSPORT_CHECKSUM | tx_a::IP_CHECKSUM);
        segment
    };
    payload.chunks(size).enumerate().map(cut).collect()
}

/// Writes length, identification and sequence number of segment `index`, which starts at byte `behind` of the
/// payload.
fn number(segment: &mut [u8], layout: Layout, index: usize, behind: usize) {
    let short = |value: usize| u16::try_from(value).unwrap_or(u16::MAX);
    let length = segment.len() - layout.network;
    if layout.is_v4 {
        segment[layout.network + 2..][..2].copy_from_slice(&short(length).to_be_bytes());
        let field = &mut segment[layout.network + 4..][..2];
        let first = u16::from_be_bytes([field[0], field[1]]);
        field.copy_from_slice(&first.wrapping_add(short(index)).to_be_bytes());
    } else {
        let payload = short(length - Ipv6::HEADER_BYTES);
        segment[layout.network + 4..][..2].copy_from_slice(&payload.to_be_bytes());
    }
    let field = &mut segment[layout.transport + 4..][..4];
    let first = u32::from_be_bytes([field[0], field[1], field[2], field[3]]);
    let behind = u32::try_from(behind).unwrap_or(u32::MAX);
    field.copy_from_slice(&first.wrapping_add(behind).to_be_bytes());
}
