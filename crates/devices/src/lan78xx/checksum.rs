//! Transport checksum state from the adapter's sum over a received frame.
//!
//! The sum covers all bytes after the Ethernet header, padding included. The bytes outside the transport
//! message are subtracted and the pseudo-header is added; the result must be all ones.

use polder_datapath::wire::{Checksum, EtherType, IpProtocol, Ipv4, Ipv6, Pseudo};

/// Bytes of an Ethernet header.
const HEADER: usize = 14;

/// Verdict on a transport checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The checksum is right.
    Verified,
    /// The adapter's sum does not match the frame.
    Mismatch,
    /// The frame has no checksum that the sum covers.
    None,
}

/// Returns the verdict on the transport checksum of `frame`, by the sum of all bytes after its Ethernet
/// header (and after its tag, if that is in the frame).
///
/// A mismatch leaves the checksum unknown: the receiving stack finds out if the packet or the sum is wrong.
pub(super) fn verify(frame: &[u8], sum: u16) -> Verdict {
    let Some(kind) = frame.get(HEADER - 2..HEADER) else { return Verdict::None };
    let (kind, network) = if kind == EtherType::VLAN.0.to_be_bytes() {
        (frame.get(HEADER + 2..HEADER + 4).unwrap_or_default(), HEADER + 4)
    } else {
        (kind, HEADER)
    };
    let packet = &frame[network.min(frame.len())..];
    let message = if kind == EtherType::IPV4.0.to_be_bytes() {
        Ipv4::parse(packet).ok().filter(|packet| !packet.is_fragment()).map(|ip| Message {
            begin: ip.header_bytes(),
            end: usize::from(ip.total_length()),
            protocol: ip.protocol(),
            pseudo: ip.pseudo(),
        })
    } else if kind == EtherType::IPV6.0.to_be_bytes() {
        Ipv6::parse(packet).ok().map(|ip| Message {
            begin: Ipv6::HEADER_BYTES,
            end: Ipv6::HEADER_BYTES + usize::from(ip.payload_length()),
            protocol: ip.next_header(),
            pseudo: ip.pseudo(),
        })
    } else {
        None
    };
    match message.and_then(|message| message.is_intact(packet, sum)) {
        Some(true) => Verdict::Verified,
        Some(false) => Verdict::Mismatch,
        None => Verdict::None,
    }
}

/// A TCP or UDP message in its packet.
struct Message {
    begin: usize,
    end: usize,
    protocol: IpProtocol,
    pseudo: Pseudo,
}

impl Message {
    /// True if the sum matches; `None` if the message has no checksum.
    fn is_intact(&self, packet: &[u8], sum: u16) -> Option<bool> {
        let has_sum = match self.protocol {
            IpProtocol::TCP => true,
            // Zero means that the sender did not compute one.
            IpProtocol::UDP => packet.get(self.begin + 6..self.begin + 8).is_some_and(|sum| sum != [0, 0]),
            _ => false,
        };
        let (header, padding) = (packet.get(..self.begin)?, packet.get(self.end..)?);
        if !has_sum {
            return None;
        }
        // One's complement: subtracting is adding the complement.
        let header = !Checksum::new().with(header).partial();
        let padding = if self.end.is_multiple_of(2) { Checksum::new() } else { Checksum::new().with(&[0]) }
            .with(padding)
            .partial();
        let length = u32::try_from(self.end - self.begin).unwrap_or(u32::MAX);
        let pseudo = self.pseudo.sum(self.protocol, length);
        let words = [sum, header, !padding].map(u16::to_be_bytes).concat();
        Some(pseudo.with(&words).is_valid())
    }
}
