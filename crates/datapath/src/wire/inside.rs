//! Inner packets: the payload of an IP packet whose protocol is an encapsulation.

use super::{EtherType, Gre, IpProtocol};

/// The inner packet of an encapsulation, for any tunnel.
#[derive(Clone, Copy, Debug)]
pub struct Inside<'p> {
    /// EtherType of the inner packet.
    pub protocol: EtherType,
    /// Bytes of the inner packet.
    pub payload: &'p [u8],
    /// GRE sequence number; `None` without one.
    pub sequence: Option<u32>,
}

impl<'p> Inside<'p> {
    /// Returns the inner packet in the payload of an IP packet of this protocol; `None` for a protocol that
    /// is no encapsulation, or a malformed header.
    #[inline]
    pub fn of(protocol: IpProtocol, payload: &'p [u8]) -> Option<Self> {
        let whole = |protocol| Some(Self { protocol, payload, sequence: None });
        match protocol {
            IpProtocol::GRE => {
                let gre = Gre::parse(payload).ok()?;
                Some(Self { protocol: gre.protocol(), payload: gre.payload(), sequence: gre.sequence() })
            }
            IpProtocol::IPV4 => whole(EtherType::IPV4),
            IpProtocol::IPV6 => whole(EtherType::IPV6),
            _ => None,
        }
    }
}

impl IpProtocol {
    /// True if the payload is an inner packet: GRE, IPv4 or IPv6.
    #[inline(always)]
    pub const fn is_encapsulation(self) -> bool {
        matches!(self, Self::GRE | Self::IPV4 | Self::IPV6)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_encapsulation_has_a_packet_inside() {
        let gre = [0x10, 0, 0x08, 0, 0, 0, 0, 9, 0x45];
        for protocol in (0..=u8::MAX).map(IpProtocol) {
            let found = Inside::of(protocol, &gre);
            assert_eq!(found.is_some(), protocol.is_encapsulation(), "{protocol:?}");
            let expected = match protocol {
                IpProtocol::GRE => (EtherType::IPV4, &gre[8..], Some(9)),
                IpProtocol::IPV4 => (EtherType::IPV4, &gre[..], None),
                IpProtocol::IPV6 => (EtherType::IPV6, &gre[..], None),
                _ => continue,
            };
            assert_eq!(
                found.map(|inside| (inside.protocol, inside.payload, inside.sequence)),
                Some(expected)
            );
        }
        assert!(Inside::of(IpProtocol::GRE, &gre[..7]).is_none(), "cut off");
    }
}
