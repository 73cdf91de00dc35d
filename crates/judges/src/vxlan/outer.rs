//! VXLAN packets as the wire sees them.

use std::ops::Range;

/// Bytes of an Ethernet header.
const ETHERNET: usize = 14;
/// Flag I of the VXLAN header.
pub(super) const VALID: u8 = 8;

/// Offsets of an outer packet's headers in its frame.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outer {
    pub(super) v6: bool,
    /// The UDP header.
    pub(super) udp: usize,
    /// Bytes up to the end of the IP packet.
    pub(super) end: usize,
}

impl Outer {
    /// Reads a frame; `None` for what is not UDP for one of these ports.
    pub(super) fn read(frame: &[u8], ports: &[u16]) -> Option<Self> {
        let v6 = match u16_at(frame, 12)? {
            0x0800 => false,
            0x86dd => true,
            _ => return None,
        };
        let (protocol, udp) = if v6 { (20, ETHERNET + 40) } else { (23, ETHERNET + 20) };
        let whole = v6 || u16_at(frame, 20)? & 0x3fff == 0;
        if *frame.get(protocol)? != 17 || !whole || !ports.contains(&u16_at(frame, udp + 2)?) {
            return None;
        }
        let length = usize::from(u16_at(frame, if v6 { 18 } else { 16 })?);
        let end = ETHERNET + length + if v6 { 40 } else { 0 };
        (frame.len() >= end && end >= udp + 16).then_some(Self { v6, udp, end })
    }

    /// The VXLAN header.
    pub(super) fn vxlan(&self) -> usize {
        self.udp + 8
    }

    /// The frame inside.
    pub(super) fn inside(&self) -> Range<usize> {
        self.udp + 16..self.end
    }

    pub(super) fn source_port(&self, frame: &[u8]) -> u16 {
        u16_at(frame, self.udp).unwrap_or_default()
    }

    pub(super) fn port(&self, frame: &[u8]) -> u16 {
        u16_at(frame, self.udp + 2).unwrap_or_default()
    }

    pub(super) fn checksum(&self, frame: &[u8]) -> u16 {
        u16_at(frame, self.udp + 6).unwrap_or_default()
    }

    pub(super) fn vni(&self, frame: &[u8]) -> u32 {
        let at = self.vxlan() + 4;
        frame.get(at..at + 3).map_or(0, |bytes| u32::from_be_bytes([0, bytes[0], bytes[1], bytes[2]]))
    }

    /// Traffic class, and time to live or hop limit.
    pub(super) fn class_and_ttl(&self, frame: &[u8]) -> (u8, u8) {
        if self.v6 { (frame[14] << 4 | frame[15] >> 4, frame[21]) } else { (frame[15], frame[22]) }
    }

    /// True if the packet must not be cut on the way.
    pub(super) fn is_bound(&self, frame: &[u8]) -> bool {
        self.v6 || frame[20] & 0x40 != 0
    }

    pub(super) fn set_class(&self, frame: &mut [u8], class: u8) {
        if self.v6 {
            frame[14] = frame[14] & 0xf0 | class >> 4;
            frame[15] = frame[15] & 0x0f | class << 4;
        } else {
            frame[15] = class;
            seal_ip(frame);
        }
    }

    /// Makes the checksum right, where there is one.
    pub(super) fn seal(&self, frame: &mut [u8]) {
        if self.checksum(frame) != 0 {
            self.put_checksum(frame);
        }
    }

    /// Writes a checksum.
    pub(super) fn put_checksum(&self, frame: &mut [u8]) {
        frame[self.udp + 6..self.udp + 8].fill(0);
        let checksum = !self.sum(frame);
        let checksum = if checksum == 0 { 0xffff } else { checksum };
        frame[self.udp + 6..self.udp + 8].copy_from_slice(&checksum.to_be_bytes());
    }

    /// True if the checksum is right, or none.
    pub(super) fn is_intact(&self, frame: &[u8]) -> bool {
        self.checksum(frame) == 0 || self.sum(frame) == 0xffff
    }

    /// The sum over pseudo-header and datagram, whose length the UDP header says.
    fn sum(&self, frame: &[u8]) -> u16 {
        let length = u16_at(frame, self.udp + 4).unwrap_or_default();
        let addresses = if self.v6 { 22..54 } else { 26..34 };
        let end = self.end.min(self.udp + usize::from(length));
        let pseudo = [0, 17].into_iter().chain(length.to_be_bytes()).collect::<Vec<u8>>();
        sum(&[&frame[addresses], &pseudo, &frame[self.udp..end]].concat())
    }

    /// Says another length in the UDP header.
    pub(super) fn set_length(&self, frame: &mut [u8], length: usize) {
        let length = u16::try_from(length).unwrap_or(u16::MAX);
        frame[self.udp + 4..self.udp + 6].copy_from_slice(&length.to_be_bytes());
    }

    /// Cuts the packet off so that `bytes` bytes stand behind the IP header, in all length fields.
    pub(super) fn shorten(&self, frame: &mut Vec<u8>, bytes: usize) {
        frame.truncate(self.udp + bytes);
        self.set_length(frame, bytes);
        let length = if self.v6 { bytes } else { bytes + 20 };
        let length = u16::try_from(length).unwrap_or(u16::MAX).to_be_bytes();
        let at = if self.v6 { 18 } else { 16 };
        frame[at..at + 2].copy_from_slice(&length);
        if !self.v6 {
            seal_ip(frame);
        }
        let shorter = Self { end: self.udp + bytes, ..*self };
        if bytes >= 8 {
            shorter.seal(frame);
        }
    }
}

/// Makes the checksum of an IPv4 header right.
pub(super) fn seal_ip(frame: &mut [u8]) {
    frame[24..26].fill(0);
    let checksum = !sum(&frame[14..34]);
    frame[24..26].copy_from_slice(&checksum.to_be_bytes());
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at + 2).map(|pair| u16::from_be_bytes([pair[0], pair[1]]))
}

/// The one's complement sum.
fn sum(bytes: &[u8]) -> u16 {
    let words =
        bytes.chunks(2).map(|pair| u64::from(pair[0]) << 8 | pair.get(1).map_or(0, |&low| u64::from(low)));
    let mut sum = words.sum::<u64>();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    u16::try_from(sum).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 1071, 3: the example's sum.
    #[test]
    fn sums() {
        assert_eq!(sum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), 0xddf2);
        assert_eq!(sum(&[0x01]), 0x0100);
    }

    #[test]
    fn a_checksum_that_is_written_is_right() {
        let mut frame = [&[2; 12][..], &[8, 0, 0x45, 0, 0, 60, 0, 0, 0x40, 0, 64, 17, 0, 0]].concat();
        frame.extend([10, 0, 0, 1, 10, 0, 0, 2, 0xc0, 1, 0x12, 0xb5, 0, 40, 0, 0, 8, 0, 0, 0, 0, 0, 7, 0]);
        frame.resize(14 + 60, 0x5a);
        let outer = Outer::read(&frame, &[4789]).unwrap();
        assert!(outer.is_intact(&frame));
        outer.put_checksum(&mut frame);
        assert!(outer.is_intact(&frame) && outer.checksum(&frame) != 0);
        frame[60] ^= 1;
        assert!(!outer.is_intact(&frame));
        assert_eq!((outer.vni(&frame), outer.port(&frame), outer.source_port(&frame)), (7, 4789, 0xc001));
        assert!(Outer::read(&frame, &[8472]).is_none());
    }
}
