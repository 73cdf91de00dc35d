//! Bytes that a packet occupies on the link: the charge for quantum and rate.

use crate::segment::Measure;
use polder_buffers::Packet;

/// Framing of the link behind a port, which may be another one than the port's own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkLayer {
    /// Bytes that the link adds to a frame, -64 to 256; the frame has an Ethernet header and no FCS.
    pub overhead: i16,
    /// Minimum number of bytes of a frame with its overhead; the link pads shorter ones.
    pub mpu: u16,
    /// Coding of the frame with its overhead.
    pub framing: Framing,
}

/// Coding of frames on a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Framing {
    /// A byte takes a byte.
    #[default]
    Plain,
    /// Packet transfer mode of DSL: 65 bytes for 64 (ITU-T G.992.3, annex N).
    Ptm,
    /// AAL5 over ATM: cells of 53 bytes for 48 (ITU-T I.363.5).
    Atm,
}

impl LinkLayer {
    /// Packets are counted as they are: Ethernet headers included, FCS excluded.
    pub const RAW: Self = Self { overhead: 0, mpu: 0, framing: Framing::Plain };
    /// Ethernet with FCS, preamble and gap (IEEE 802.3, 4A.4.2).
    pub const ETHERNET: Self = Self { overhead: 24, mpu: 84, framing: Framing::Plain };
    /// Cable modem: FCS included (DOCSIS 3.1, rates are of the Ethernet frame).
    pub const DOCSIS: Self = Self { overhead: 4, mpu: 64, framing: Framing::Plain };
    /// PPPoE over VDSL2: 16 bytes more than Ethernet without FCS (ITU-T G.992.3, annex N).
    pub const PPPOE_PTM: Self = Self { overhead: 16, mpu: 0, framing: Framing::Ptm };
    /// PPPoE with LLC/SNAP over AAL5 (RFC 2684, RFC 2516).
    pub const PPPOE_LLCSNAP: Self = Self { overhead: 26, mpu: 0, framing: Framing::Atm };

    /// Bytes on the link for a frame of `bytes` bytes, Ethernet header included, FCS excluded.
    #[inline]
    pub const fn bytes(self, bytes: u64) -> u64 {
        let framed = bytes.saturating_add_signed(self.overhead as i64);
        let framed = if framed < self.mpu as u64 { self.mpu as u64 } else { framed };
        match self.framing {
            Framing::Plain => framed,
            Framing::Ptm => framed + framed.div_ceil(64),
            Framing::Atm => framed.div_ceil(48) * 53,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_link_has_its_overhead() {
        let of = |link: LinkLayer| [60, 1514].map(|bytes| link.bytes(bytes));
        assert_eq!(of(LinkLayer::RAW), [60, 1514]);
        assert_eq!(of(LinkLayer::ETHERNET), [84, 1538]);
        assert_eq!(LinkLayer::ETHERNET.bytes(20), 84, "the shortest frame and its gap");
        assert_eq!(of(LinkLayer::PPPOE_PTM), [76 + 2, 1530 + 24]);
        assert_eq!(of(LinkLayer::DOCSIS), [64, 1518]);
        assert_eq!(LinkLayer { overhead: -14, ..LinkLayer::RAW }.bytes(10), 0, "never less than nothing");
        assert_eq!(of(LinkLayer::PPPOE_LLCSNAP), [2 * 53, 33 * 53], "1540 bytes take 33 cells");
    }
}
