//! VXLAN headers behind outer IP and UDP headers.

use super::tunnel::PORTS;
use crate::tunnels::outer::{Outer, sum, u16_at};
use std::ops::Range;

/// The IP protocol of UDP.
const UDP: u8 = 17;
/// Flag I of the VXLAN header.
pub(super) const VALID: u8 = 8;

/// Reads a frame; `None` for what is not whole UDP for one of the tunnels' ports.
pub(super) fn read(frame: &[u8]) -> Option<Outer> {
    let outer = Outer::read(frame, UDP).filter(|outer| outer.is_whole() && outer.limit.is_none())?;
    let is_own = PORTS.contains(&outer.port(frame));
    (is_own && frame.len() >= outer.end && outer.end >= outer.payload + 16).then_some(outer)
}

impl Outer {
    /// The VXLAN header.
    pub(super) fn vxlan(&self) -> usize {
        self.payload + 8
    }

    /// The frame inside.
    pub(super) fn inside(&self) -> Range<usize> {
        self.payload + 16..self.end
    }

    pub(super) fn source_port(&self, frame: &[u8]) -> u16 {
        u16_at(frame, self.payload).unwrap_or_default()
    }

    pub(super) fn port(&self, frame: &[u8]) -> u16 {
        u16_at(frame, self.payload + 2).unwrap_or_default()
    }

    pub(super) fn checksum(&self, frame: &[u8]) -> u16 {
        u16_at(frame, self.payload + 6).unwrap_or_default()
    }

    pub(super) fn vni(&self, frame: &[u8]) -> u32 {
        let at = self.vxlan() + 4;
        frame.get(at..at + 3).map_or(0, |bytes| u32::from_be_bytes([0, bytes[0], bytes[1], bytes[2]]))
    }

    /// True if the packet must not be cut on the way.
    pub(super) fn is_bound(&self, frame: &[u8]) -> bool {
        self.v6 || frame[20] & 0x40 != 0
    }

    /// Makes the checksum right, where there is one.
    pub(super) fn seal_udp(&self, frame: &mut [u8]) {
        if self.checksum(frame) != 0 {
            self.put_checksum(frame);
        }
    }

    /// Writes a checksum.
    pub(super) fn put_checksum(&self, frame: &mut [u8]) {
        frame[self.payload + 6..self.payload + 8].fill(0);
        let checksum = !self.udp_sum(frame);
        let checksum = if checksum == 0 { 0xffff } else { checksum };
        frame[self.payload + 6..self.payload + 8].copy_from_slice(&checksum.to_be_bytes());
    }

    /// True if the checksum is right, or none.
    pub(super) fn is_intact(&self, frame: &[u8]) -> bool {
        self.checksum(frame) == 0 || self.udp_sum(frame) == 0xffff
    }

    /// The sum over pseudo-header and datagram, whose length the UDP header says.
    fn udp_sum(&self, frame: &[u8]) -> u16 {
        let length = u16_at(frame, self.payload + 4).unwrap_or_default();
        let addresses = if self.v6 { 22..54 } else { 26..34 };
        let end = self.end.min(self.payload + usize::from(length));
        let pseudo = [0, 17].into_iter().chain(length.to_be_bytes()).collect::<Vec<u8>>();
        sum(&[&frame[addresses], &pseudo, &frame[self.payload..end]].concat())
    }

    /// Sets the length field of the UDP header.
    pub(super) fn set_length(&self, frame: &mut [u8], length: usize) {
        let length = u16::try_from(length).unwrap_or(u16::MAX);
        frame[self.payload + 4..self.payload + 6].copy_from_slice(&length.to_be_bytes());
    }

    /// Cuts the packet off so that `bytes` bytes stand behind the IP header, in all length fields.
    pub(super) fn shorten(&self, frame: &mut Vec<u8>, bytes: usize) {
        let end = self.payload + bytes;
        frame.truncate(end);
        self.set_length(frame, bytes);
        self.set_end(frame, end);
        if bytes >= 8 {
            Self { end, ..*self }.seal_udp(frame);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checksum_that_is_written_is_right() {
        let mut frame = [&[2; 12][..], &[8, 0, 0x45, 0, 0, 60, 0, 0, 0x40, 0, 64, 17, 0, 0]].concat();
        frame.extend([10, 0, 0, 1, 10, 0, 0, 2, 0xc0, 1, 0x12, 0xb5, 0, 40, 0, 0, 8, 0, 0, 0, 0, 0, 7, 0]);
        frame.resize(14 + 60, 0x5a);
        let outer = read(&frame).unwrap();
        assert!(outer.is_intact(&frame));
        outer.put_checksum(&mut frame);
        assert!(outer.is_intact(&frame) && outer.checksum(&frame) != 0);
        frame[60] ^= 1;
        assert!(!outer.is_intact(&frame));
        assert_eq!((outer.vni(&frame), outer.port(&frame), outer.source_port(&frame)), (7, 4789, 0xc001));
        frame[37] ^= 1;
        assert!(read(&frame).is_none());
    }
}
