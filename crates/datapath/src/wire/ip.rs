//! Common parts of IPv4 and IPv6: protocol numbers and the traffic class byte.

use super::Ecn;
use core::fmt;

/// Protocol of an IP packet's payload (IANA "Assigned Internet Protocol Numbers").
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct IpProtocol(pub u8);

impl IpProtocol {
    /// IPv6 hop-by-hop options (RFC 8200, 4.3).
    pub const HOP_BY_HOP: Self = Self(0);
    /// ICMP (RFC 792).
    pub const ICMP: Self = Self(1);
    /// IGMP.
    pub const IGMP: Self = Self(2);
    /// IPv4 in IP (RFC 2003).
    pub const IPV4: Self = Self(4);
    /// TCP (RFC 9293).
    pub const TCP: Self = Self(6);
    /// UDP (RFC 768).
    pub const UDP: Self = Self(17);
    /// IPv6 in IP (RFC 2473).
    pub const IPV6: Self = Self(41);
    /// IPv6 routing header (RFC 8200, 4.4).
    pub const ROUTING: Self = Self(43);
    /// IPv6 fragment header (RFC 8200, 4.5).
    pub const FRAGMENT: Self = Self(44);
    /// GRE (RFC 2784).
    pub const GRE: Self = Self(47);
    /// Encapsulating security payload (RFC 4303).
    pub const ESP: Self = Self(50);
    /// Authentication header (RFC 4302).
    pub const AUTHENTICATION: Self = Self(51);
    /// ICMPv6 (RFC 4443).
    pub const ICMPV6: Self = Self(58);
    /// No next header (RFC 8200, 4.7).
    pub const NO_NEXT_HEADER: Self = Self(59);
    /// IPv6 destination options (RFC 8200, 4.6).
    pub const DESTINATION_OPTIONS: Self = Self(60);
    /// SCTP (RFC 9260).
    pub const SCTP: Self = Self(132);

    /// True for IPv6 extension headers that [`Ipv6::upper`](super::Ipv6::upper) skips.
    #[inline]
    pub const fn is_extension(self) -> bool {
        matches!(
            self,
            Self::HOP_BY_HOP
                | Self::ROUTING
                | Self::FRAGMENT
                | Self::AUTHENTICATION
                | Self::DESTINATION_OPTIONS
        )
    }

    /// True if the protocol's header starts with a source and a destination port of two bytes each.
    #[inline]
    pub const fn has_ports(self) -> bool {
        matches!(self, Self::TCP | Self::UDP | Self::SCTP)
    }
}

impl fmt::Debug for IpProtocol {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, formatter)
    }
}

/// Differentiated services code point (RFC 2474): 0 to 63.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Dscp(u8);

impl Dscp {
    /// Best effort.
    pub const DEFAULT: Self = Self(0);
    /// Lower effort (RFC 8622).
    pub const LOWER_EFFORT: Self = Self(1);
    /// Expedited forwarding (RFC 3246).
    pub const EXPEDITED: Self = Self(46);
    /// Network control (RFC 4594).
    pub const NETWORK_CONTROL: Self = Self(48);

    /// Code point `number`; `None` above 63.
    pub const fn new(number: u8) -> Option<Self> {
        if number < 64 { Some(Self(number)) } else { None }
    }

    /// The number.
    #[inline]
    pub const fn get(self) -> u8 {
        self.0
    }
}

/// The byte that holds DSCP and ECN: "type of service" in IPv4, "traffic class" in IPv6.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct TrafficClass(pub u8);

impl TrafficClass {
    /// Combines DSCP and ECN into the byte.
    #[inline]
    pub const fn new(dscp: Dscp, ecn: Ecn) -> Self {
        Self(dscp.0 << 2 | ecn.bits())
    }

    /// DSCP, the upper six bits.
    #[inline]
    pub const fn dscp(self) -> Dscp {
        Dscp(self.0 >> 2)
    }

    /// ECN, the lower two bits.
    #[inline]
    pub const fn ecn(self) -> Ecn {
        Ecn::from_bits(self.0)
    }

    /// The same DSCP with ECN replaced.
    #[inline]
    #[must_use]
    pub const fn with_ecn(self, ecn: Ecn) -> Self {
        Self::new(self.dscp(), ecn)
    }
}
