//! Why bytes were refused.

macro_rules! refusals {
    ($($variant:ident, $name:literal, $description:literal;)+) => {
        /// Why a parser refused the bytes. Each variant is a drop reason of the same name.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, thiserror::Error)]
        #[repr(u8)]
        pub enum Malformed {
            $(#[doc = $description] #[error($description)] $variant,)+
        }

        impl Malformed {
            /// All refusals, in the order of the layers.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The name in tables and metrics.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)+ }
            }
        }
    };
}

refusals! {
    EthernetTruncated, "ethernet-truncated", "Shorter than an Ethernet header.";
    VlanTruncated, "vlan-truncated", "Ends inside an 802.1Q tag.";
    ArpTruncated, "arp-truncated", "Ends inside an ARP packet.";
    ArpBadFormat, "arp-bad-format", "ARP for something else than IPv4 over Ethernet.";
    Ipv4Truncated, "ipv4-truncated", "Ends inside an IPv4 header.";
    Ipv4BadVersion, "ipv4-bad-version", "EtherType IPv4 with another version.";
    Ipv4BadHeaderLength, "ipv4-bad-header-length", "IPv4 header length below 20 bytes.";
    Ipv4BadTotalLength, "ipv4-bad-total-length", "IPv4 total length does not fit header or frame.";
    Ipv4BadChecksum, "ipv4-bad-checksum", "IPv4 header checksum is wrong.";
    Ipv6Truncated, "ipv6-truncated", "Ends inside an IPv6 header.";
    Ipv6BadVersion, "ipv6-bad-version", "EtherType IPv6 with another version.";
    Ipv6BadPayloadLength, "ipv6-bad-payload-length", "IPv6 payload length exceeds the frame.";
    Ipv6BadExtension, "ipv6-bad-extension", "IPv6 extension headers are cut short or too many.";
    UdpTruncated, "udp-truncated", "Ends inside a UDP header.";
    UdpBadLength, "udp-bad-length", "UDP length does not fit header or packet.";
    UdpBadChecksum, "udp-bad-checksum", "UDP checksum is wrong.";
    TcpTruncated, "tcp-truncated", "Ends inside a TCP header.";
    TcpBadOffset, "tcp-bad-offset", "TCP data offset does not fit header or packet.";
    TcpBadOption, "tcp-bad-option", "A TCP option runs over the header's end.";
    TcpBadChecksum, "tcp-bad-checksum", "TCP checksum is wrong.";
    IcmpTruncated, "icmp-truncated", "Ends inside an ICMP header.";
    IcmpBadChecksum, "icmp-bad-checksum", "ICMP checksum is wrong.";
    GreTruncated, "gre-truncated", "Ends inside a GRE header.";
    GreBadVersion, "gre-bad-version", "GRE version is not 0 (RFC 2784).";
    GreBadFlags, "gre-bad-flags", "GRE with reserved bits or source routing (RFC 2784, 2.1).";
    GreBadChecksum, "gre-bad-checksum", "GRE checksum is wrong.";
}

impl Malformed {
    /// Number of refusals.
    pub const COUNT: usize = Self::ALL.len();

    /// Position in [`Malformed::ALL`].
    pub const fn index(self) -> usize {
        self as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drops::DropReason;

    #[test]
    fn every_refusal_is_a_drop_reason_of_the_same_name() {
        for refusal in Malformed::ALL {
            let same = |reason: &&DropReason| reason.name() == refusal.name();
            let reason = DropReason::ALL.iter().find(same).expect("a drop reason");
            assert_eq!(format!("{reason:?}"), format!("{refusal:?}"));
        }
    }

    #[test]
    fn index_is_the_position() {
        for (position, refusal) in Malformed::ALL.iter().enumerate() {
            assert_eq!(refusal.index(), position);
        }
    }
}
