//! Transport checksum state from the adapter's sum over a received frame.
//!
//! The sum covers everything behind the Ethernet header, padding included. Take away what does not
//! belong to the transport message, add the pseudo-header, and it must come out as all ones.

use polder_datapath::wire::{Checksum, EtherType, IpProtocol, Ipv4, Ipv6, Pseudo};

/// Bytes of an Ethernet header.
const HEADER: usize = 14;

/// Verdict on a transport checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is right.
    Verified,
    /// The adapter's sum does not fit the frame.
    Mismatch,
    /// The frame has none that the sum could tell of.
    None,
}

/// Verdict on the transport checksum of `frame`, given the sum of all bytes behind its Ethernet header (and
/// behind its tag, if that is in the frame).
///
/// A sum that does not fit leaves the checksum unknown: the stack that the packet is for finds out
/// whether the packet or the sum is wrong.
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
    /// True if the sum fits; `None` when the message has no checksum.
    fn is_intact(&self, packet: &[u8], sum: u16) -> Option<bool> {
        let has_sum = match self.protocol {
            IpProtocol::TCP => true,
            // Zero means that the sender did not compute any.
            IpProtocol::UDP => packet.get(self.begin + 6..self.begin + 8).is_some_and(|sum| sum != [0, 0]),
            _ => false,
        };
        let (header, padding) = (packet.get(..self.begin)?, packet.get(self.end..)?);
        if !has_sum {
            return None;
        }
        // One's complement: taking away is adding the complement.
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
