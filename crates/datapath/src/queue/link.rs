//! Bytes that a packet occupies on the link: the charge for quantum and rate.

use crate::segment::Measure;
use polder_buffers::Packet;

/// Framing of the link behind a port, which may be another one than the port's own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LinkLayer {
    /// Packets are counted as they are: Ethernet headers included, FCS excluded.
    #[default]
    Plain,
    /// Ethernet with FCS, preamble and gap: 24 bytes more, 84 at least (IEEE 802.3, 4A.4.2).
    Ethernet,
    /// PPPoE over VDSL2: 16 bytes more than Ethernet without FCS, and 65 for 64 (ITU-T G.992.3, annex N).
    Pppoe,
    /// Cable modem: FCS included, 64 bytes at least (DOCSIS 3.1, rates are of the Ethernet frame).
    Docsis,
    /// PPPoE with LLC/SNAP over AAL5: 26 bytes more, in cells of 53 for 48 (RFC 2684, RFC 2516).
    Atm,
}

impl LinkLayer {
    /// Bytes on the link for a frame of `bytes` bytes, Ethernet header included, FCS excluded.
    #[inline]
    pub const fn bytes(self, bytes: u64) -> u64 {
        match self {
            Self::Plain => bytes,
            Self::Ethernet => at_least(bytes + 24, 84),
            Self::Pppoe => {
                let framed = bytes + 16;
                framed + framed.div_ceil(64)
            }
            Self::Docsis => at_least(bytes + 4, 64),
            Self::Atm => (bytes + 26).div_ceil(48) * 53,
        }
    }

    /// Bytes on the link for a packet; for a super-packet, those of its segments.
    #[inline]
    pub fn charge(self, packet: &Packet) -> u64 {
        if packet.wire_packets <= 1 {
            return self.bytes(packet.len() as u64);
        }
        self.charge_of_segments(packet)
    }

    #[cold]
    fn charge_of_segments(self, packet: &Packet) -> u64 {
        let Some(measure) = Measure::of(packet) else { return self.bytes(packet.len() as u64) };
        let whole = measure.count.saturating_sub(1);
        let last = packet.len() - whole * (measure.longest_bytes - measure.header_bytes);
        whole as u64 * self.bytes(measure.longest_bytes as u64) + self.bytes(last as u64)
    }
}

const fn at_least(bytes: u64, least: u64) -> u64 {
    if bytes < least { least } else { bytes }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_link_has_its_overhead() {
        let of = |link: LinkLayer| [60, 1514].map(|bytes| link.bytes(bytes));
        assert_eq!(of(LinkLayer::Plain), [60, 1514]);
        assert_eq!(of(LinkLayer::Ethernet), [84, 1538]);
        assert_eq!(LinkLayer::Ethernet.bytes(20), 84, "the shortest frame and its gap");
        assert_eq!(of(LinkLayer::Pppoe), [76 + 2, 1530 + 24]);
        assert_eq!(of(LinkLayer::Docsis), [64, 1518]);
        assert_eq!(of(LinkLayer::Atm), [2 * 53, 33 * 53], "1540 bytes take 33 cells");
    }
}
