//! Offloads that a packet's sender has left to the device: checksum and segmentation.

/// State of a packet's transport checksum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum ChecksumState {
    /// Not verified: the field is as received.
    #[default]
    Unknown,
    /// Verified by the device.
    Verified,
    /// The field has the pseudo-header sum only; the sending side must complete it from `checksum_start` into
    /// `checksum_offset`.
    Partial,
}

/// Protocol of a super-packet's segments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum SegmentationKind {
    /// The packet is no super-packet.
    #[default]
    None,
    /// TCP over IPv4.
    Tcp4,
    /// TCP over IPv6.
    Tcp6,
    /// UDP over either.
    Udp,
}

/// Segmentation of a super-packet, which is larger than its link's MTU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Segmentation {
    /// Bytes of payload per segment.
    pub size: u16,
    /// Protocol of the segments.
    pub kind: SegmentationKind,
    /// Outer headers of a tunnel around the segmented packet.
    pub outer: OuterHeaders,
}

/// Outer headers that every segment of a super-packet gets; none by default.
///
/// The inner IP header ends where the packet's checksum range starts, so its length locates it. Outer UDP and
/// GRE headers follow the packet's first IP header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OuterHeaders(u8);

impl OuterHeaders {
    /// No tunnel.
    pub const NONE: Self = Self(0);
    /// Mask of the inner IP header's length in words of four bytes.
    const WORDS: u8 = 0x3f;
    const CHECKSUM: u8 = 1 << 6;
    const GRE: u8 = 1 << 7;

    /// A tunnel over UDP around an IP packet with a header of `inner_ip_bytes` bytes, extension headers
    /// included. If `has_checksum`, segments have a UDP checksum; the super-packet has the pseudo-header sum
    /// in that field. `None` for a length that cannot be represented.
    #[inline]
    pub fn udp(inner_ip_bytes: usize, has_checksum: bool) -> Option<Self> {
        Some(Self(Self::words(inner_ip_bytes)? | if has_checksum { Self::CHECKSUM } else { 0 }))
    }

    /// A GRE tunnel around an IP packet with a header of `inner_ip_bytes` bytes. The GRE header tells whether
    /// segments have a checksum; the super-packet has zero in that field.
    #[inline]
    pub fn gre(inner_ip_bytes: usize) -> Option<Self> {
        Some(Self(Self::words(inner_ip_bytes)? | Self::GRE))
    }

    /// True if there is a tunnel.
    #[inline(always)]
    pub const fn is_some(self) -> bool {
        self.0 != 0
    }

    /// True for a tunnel over UDP.
    #[inline]
    pub const fn is_udp(self) -> bool {
        self.is_some() && self.0 & Self::GRE == 0
    }

    /// True for a tunnel over UDP whose segments have a UDP checksum.
    #[inline]
    pub const fn has_udp_checksum(self) -> bool {
        self.0 & Self::CHECKSUM != 0
    }

    /// Length of the inner IP header in bytes, extension headers included.
    #[inline]
    pub fn inner_ip_bytes(self) -> u16 {
        u16::from(self.0 & Self::WORDS) * 4
    }

    fn words(bytes: usize) -> Option<u8> {
        let words = u8::try_from(bytes / 4).ok()?;
        (bytes.is_multiple_of(4) && (1..=Self::WORDS).contains(&words)).then_some(words)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outer_headers_say_where_the_packet_inside_is() {
        assert_eq!(OuterHeaders::default(), OuterHeaders::NONE);
        assert!(!OuterHeaders::NONE.is_some() && !OuterHeaders::NONE.is_udp());
        for bytes in (20..=252).step_by(4) {
            for (outer, is_udp, has_checksum) in [
                (OuterHeaders::udp(bytes, false), true, false),
                (OuterHeaders::udp(bytes, true), true, true),
                (OuterHeaders::gre(bytes), false, false),
            ] {
                let outer = outer.expect("a length that can be told");
                assert_eq!(usize::from(outer.inner_ip_bytes()), bytes);
                assert_eq!(
                    (outer.is_some(), outer.is_udp(), outer.has_udp_checksum()),
                    (true, is_udp, has_checksum)
                );
            }
        }
        for bytes in [0, 21, 256, 1 << 20] {
            assert_eq!((OuterHeaders::udp(bytes, true), OuterHeaders::gre(bytes)), (None, None), "{bytes}");
        }
    }
}
