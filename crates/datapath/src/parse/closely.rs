//! Summary of a packet that is not plain IPv4: tags, options, extension headers, fragments.

use super::{
    EXTENT_AT, Extent, HeaderSummary, LINK_AT, NETWORK_AT, NO_LINK, Network, PART_AT, Part, WORDS, WORDS_AT,
    WORDS_V6,
};
use crate::wire::{EtherType, IpProtocol, Ipv4, Ipv6, Link};

impl HeaderSummary {
    #[inline(never)]
    pub(super) fn parse_closely(bytes: &[u8], length: usize) -> Self {
        let Ok(link) = Link::parse(bytes) else { return Self::other(0).ending(Extent::Unreadable) };
        let tags = u32::from(link.tag.is_some()) + u32::from(link.inner_tag.is_some());
        Self::network_of(tags, link.ether_type(), link.payload(), length - link.header_bytes())
    }

    /// Summary of a packet without link header: `length` bytes long, of type `ether_type`, starting with
    /// `bytes`.
    pub fn without_link(ether_type: EtherType, bytes: &[u8], length: usize) -> Self {
        Self::network_of(NO_LINK, ether_type, bytes, length)
    }

    fn network_of(link: u32, ether_type: EtherType, bytes: &[u8], length: usize) -> Self {
        match ether_type {
            EtherType::IPV4 => Self::ipv4(link, bytes, length),
            EtherType::IPV6 => Self::ipv6(link, bytes, length),
            _ => Self::other(link),
        }
    }

    fn ipv4(link: u32, bytes: &[u8], length: usize) -> Self {
        let header = bytes.first_chunk::<{ Ipv4::HEADER_BYTES }>().filter(|header| header[0] >> 4 == 4);
        let Some(header) = header else { return Self::other(link).ending(Extent::Broken) };
        let words = usize::from(header[0] & 0x0f).max(Ipv4::HEADER_BYTES / 4);
        let summary = Self::ip(link, Network::Ipv4, words, IpProtocol(header[9]));
        let Ok(ip) = Ipv4::parse_head(bytes, length) else { return summary.ending(Extent::Broken) };
        let fragment = ip.is_fragment().then(|| ip.fragment_offset());
        summary.part_at(fragment).ending_at(usize::from(ip.total_length()), length)
    }

    fn ipv6(link: u32, bytes: &[u8], length: usize) -> Self {
        let header = bytes.first_chunk::<{ Ipv6::HEADER_BYTES }>().filter(|header| header[0] >> 4 == 6);
        let Some(header) = header else { return Self::other(link).ending(Extent::Broken) };
        let summary = Self::ip(link, Network::Ipv6, WORDS_V6, IpProtocol(header[6]));
        let Ok(ip) = Ipv6::parse_head(bytes, length) else { return summary.ending(Extent::Broken) };
        let Ok(upper) = ip.upper() else { return summary.ending(Extent::Unreadable) };
        Self::ip(link, Network::Ipv6, upper.offset / 4, upper.protocol)
            .part_at(upper.fragment.map(|fragment| fragment.offset))
            .ending_at(Ipv6::HEADER_BYTES + usize::from(ip.payload_length()), length)
    }

    const fn other(link: u32) -> Self {
        Self(link << LINK_AT | (Network::Other as u32) << NETWORK_AT)
    }

    #[expect(clippy::cast_possible_truncation, reason = "eight extension headers of 2048 bytes at most")]
    const fn ip(link: u32, network: Network, words: usize, protocol: IpProtocol) -> Self {
        let words = words as u32 & WORDS;
        Self(link << LINK_AT | (network as u32) << NETWORK_AT | words << WORDS_AT | protocol.0 as u32)
    }

    /// Adds the fragment part by its offset in bytes; `None` for a packet that is not a fragment.
    const fn part_at(self, offset: Option<u16>) -> Self {
        let part = match offset {
            None => Part::Whole,
            Some(0) => Part::First,
            Some(8) => Part::Second,
            Some(_) => Part::Later,
        };
        Self(self.0 | (part as u32) << PART_AT)
    }

    const fn ending(self, extent: Extent) -> Self {
        Self(self.0 | (extent as u32) << EXTENT_AT)
    }

    const fn ending_at(self, end: usize, length: usize) -> Self {
        self.ending(if end == length { Extent::Exact } else { Extent::Padded })
    }
}
