//! Offloads of sent packets: transport checksums, and TCP segmentation.
//!
//! A packet's metadata has the needed offloads; a context descriptor before the packet's data passes them to
//! the device (8254x SDM, 3.3.5 and 3.5). Cases that the device cannot handle are done here.

use super::desc::{Context, TX_INSERT_IP, TX_INSERT_TRANSPORT, tx_command};
use polder_buffers::{ChecksumState, Packet, Pool, SegmentationKind};
use polder_datapath::drops::DropReason;
use polder_datapath::offload::complete_checksum;
use polder_datapath::wire::{EtherType, IpProtocol, Ipv4, Ipv6, Pseudo, Tcp};

/// Bytes of an Ethernet header and of a tag.
const ETHERNET: usize = 14;
const TAG: usize = 4;
/// Maximum number of tags that are parsed.
const TAGS: usize = 2;
/// Offset of the data offset in a TCP header.
const TCP_DATA_OFFSET: usize = 12;
/// Offsets of fields in an IPv4 header.
const IPV4_LENGTH: usize = 2;
const IPV4_CHECKSUM: usize = 10;
/// Offset of the length in an IPv6 header.
const IPV6_LENGTH: usize = 4;

/// Treatment of a packet by the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Treatment {
    /// The context of the packet.
    pub(super) context: Context,
    /// Command and option bits of its data descriptors.
    pub(super) bits: u64,
}

/// Prepares a packet for the device; returns `None` for a packet without offloads.
///
/// # Errors
/// The reason why it cannot be sent.
#[inline]
pub(super) fn prepare(
    packet: &mut Packet,
    longest: usize,
    pool: &mut Pool,
) -> Result<Option<Treatment>, DropReason> {
    let length = packet.len();
    if length < ETHERNET {
        return Err(DropReason::TxError);
    }
    if packet.segmentation.kind != SegmentationKind::None {
        return segments(packet, longest, pool).map(Some);
    }
    if length > longest {
        return Err(DropReason::TxTooLong);
    }
    if packet.checksum != ChecksumState::Partial {
        return Ok(None);
    }
    checksum(packet)
}

/// Returns the treatment of a packet with a partial transport checksum. Both offsets have eight bits: for
/// larger offsets, and for packets that do not match their metadata, the checksum is completed here.
#[cold]
fn checksum(packet: &mut Packet) -> Result<Option<Treatment>, DropReason> {
    let start = usize::from(packet.checksum_start);
    let field = start + usize::from(packet.checksum_offset);
    let (Ok(transport_start), Ok(transport_field)) = (u8::try_from(start), u8::try_from(field)) else {
        complete_checksum(packet).map_err(|_| DropReason::TxError)?;
        return Ok(None);
    };
    if field + 2 > packet.len() || start < ETHERNET {
        return Err(DropReason::TxError);
    }
    let is_tcp = packet.checksum_offset == Tcp::CHECKSUM_OFFSET;
    let context = Context { transport_start, transport_field, is_tcp, ..Context::default() };
    Ok(Some(Treatment { context, bits: TX_INSERT_TRANSPORT }))
}

/// Returns the treatment of a TCP super-packet. Lengths and checksums of its headers are set as the device
/// expects: it computes lengths, identifications and sequence numbers itself (3.5.4 to 3.5.7).
///
/// The device always increments identifications, which is allowed (RFC 6864, 4.1).
#[cold]
fn segments(packet: &mut Packet, longest: usize, pool: &mut Pool) -> Result<Treatment, DropReason> {
    let is_tcp = match packet.segmentation.kind {
        SegmentationKind::Tcp4 | SegmentationKind::Tcp6 => true,
        SegmentationKind::None | SegmentationKind::Udp => false,
    };
    let is_partial =
        packet.checksum == ChecksumState::Partial && packet.checksum_offset == Tcp::CHECKSUM_OFFSET;
    if !is_tcp || !is_partial || packet.segmentation.outer.is_some() {
        return Err(DropReason::CannotSegment);
    }
    let start = usize::from(packet.checksum_start);
    let headers = header_bytes(packet, start).ok_or(DropReason::CannotSegment)?;
    let segment = packet.segmentation.size;
    if usize::from(headers) + usize::from(segment) > longest {
        return Err(DropReason::TxTooLong);
    }
    packet.gather(u16::from(headers), pool).map_err(|_| DropReason::CannotSegment)?;
    let length = packet.len();
    let payload = u32::try_from(length - usize::from(headers)).map_err(|_| DropReason::CannotSegment)?;
    let (network, kind) = network_start(packet.bytes()).ok_or(DropReason::CannotSegment)?;
    let is_ipv4 = kind == EtherType::IPV4;
    let bytes = packet.bytes_mut();
    let place = (network, start, length);
    let pseudo = blank_network(bytes, kind, place).ok_or(DropReason::CannotSegment)?;
    // The device adds the length of each segment.
    let sum = pseudo.sum(IpProtocol::TCP, 0).partial();
    let field = start + usize::from(Tcp::CHECKSUM_OFFSET);
    bytes.get_mut(field..field + 2).ok_or(DropReason::CannotSegment)?.copy_from_slice(&sum.to_be_bytes());
    let place = |place: usize| u8::try_from(place).map_err(|_| DropReason::CannotSegment);
    let context = Context {
        ip_start: place(network)?,
        ip_field: if is_ipv4 { place(network + IPV4_CHECKSUM)? } else { 0 },
        ip_end: if is_ipv4 { u16::from(place(start - 1)?) } else { 0 },
        transport_start: place(start)?,
        transport_field: place(field)?,
        segment,
        headers,
        payload,
        is_ipv4,
        is_tcp,
    };
    let bits = tx_command::SEGMENT | TX_INSERT_TRANSPORT | if is_ipv4 { TX_INSERT_IP } else { 0 };
    Ok(Treatment { context, bits })
}

/// Returns the bytes of all headers of a packet whose TCP header starts at `start`; `None` if they are
/// incomplete, too long for the device, or without payload.
fn header_bytes(packet: &Packet, start: usize) -> Option<u8> {
    let mut byte = [0];
    let found = packet.copy_out(start + TCP_DATA_OFFSET, &mut byte);
    let tcp_bytes = usize::from(byte[0] >> 4) * 4;
    let headers = start + tcp_bytes;
    let is_right = found == 1 && tcp_bytes >= Tcp::HEADER_BYTES && headers < packet.len();
    (is_right && packet.segmentation.size > 0).then(|| u8::try_from(headers).ok()).flatten()
}

/// Returns the start of the network header, after the Ethernet header and the tags, and its EtherType.
fn network_start(bytes: &[u8]) -> Option<(usize, EtherType)> {
    let kind = |start: usize| {
        let [high, low] = bytes.get(start - 2..start)?.try_into().ok()?;
        Some(EtherType(u16::from_be_bytes([high, low])))
    };
    let mut start = ETHERNET;
    for _ in 0..TAGS {
        if !kind(start)?.is_tag() {
            break;
        }
        start += TAG;
    }
    kind(start).map(|kind| (start, kind))
}

/// Sets the network header's length and checksum to zero, since the device computes them. Returns its
/// addresses; `None` if the packet does not match its metadata. The offsets are those of the network header,
/// the transport header and the packet's end.
fn blank_network(
    bytes: &mut [u8],
    kind: EtherType,
    (network, transport, end): (usize, usize, usize),
) -> Option<Pseudo> {
    let rest = end.checked_sub(network)?;
    let header = bytes.get(network..)?;
    let (pseudo, fields): (Pseudo, &[usize]) = if kind == EtherType::IPV4 {
        let ip = Ipv4::parse_head(header, rest).ok()?;
        let is_tcp = ip.protocol() == IpProtocol::TCP && !ip.is_fragment();
        let fits = is_tcp && network + ip.header_bytes() == transport;
        (fits.then(|| ip.pseudo())?, &[IPV4_LENGTH, IPV4_CHECKSUM])
    } else if kind == EtherType::IPV6 {
        let ip = Ipv6::parse_head(header, rest).ok()?;
        let fits = network + Ipv6::HEADER_BYTES == transport && ip.next_header() == IpProtocol::TCP;
        (fits.then(|| ip.pseudo())?, &[IPV6_LENGTH])
    } else {
        return None;
    };
    for &field in fields {
        bytes.get_mut(network + field..network + field + 2)?.fill(0);
    }
    Some(pseudo)
}
