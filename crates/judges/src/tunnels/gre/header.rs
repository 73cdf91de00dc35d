//! GRE headers behind outer IP headers.

use crate::tunnels::outer::{ETHERNET, Outer, sum, u16_at};

/// The IP protocol of GRE.
pub(super) const GRE: u8 = 47;
/// The protocol type of frames.
pub(super) const ETHERNET_INSIDE: u16 = 0x6558;
/// Bits of the first word of GRE.
pub(super) const CHECKSUM: u16 = 0x8000;
pub(super) const KEY: u16 = 0x2000;
pub(super) const SEQUENCE: u16 = 0x1000;

/// The fields of a GRE header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gre {
    pub(super) flags: u16,
    pub(super) protocol: u16,
    pub(super) checksum: Option<usize>,
    pub(super) key: Option<u32>,
    pub(super) sequence: Option<u32>,
    /// Bytes of the header.
    pub(super) length: usize,
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

impl Outer {
    /// The GRE header of a first or only part.
    pub(super) fn gre(&self, frame: &[u8]) -> Option<Gre> {
        let at = self.payload;
        let (flags, protocol) = (u16_at(frame, at)?, u16_at(frame, at + 2)?);
        let mut length = 4;
        let mut field = |flag: u16| {
            let place = at + length;
            let has = flags & flag != 0;
            length += if has { 4 } else { 0 };
            has.then_some(place)
        };
        let (checksum, key, sequence) = (field(CHECKSUM), field(KEY), field(SEQUENCE));
        let word = |place: Option<usize>| place.and_then(|place| u32_at(frame, place));
        Some(Gre { flags, protocol, checksum, key: word(key), sequence: word(sequence), length })
    }

    /// True if the GRE checksum is right, where there is one and the packet is whole.
    pub(super) fn has_right_checksum(&self, frame: &[u8]) -> bool {
        let checked = self.gre(frame).is_some_and(|gre| gre.checksum.is_some()) && self.is_whole();
        !checked || frame.get(self.payload..self.end).is_some_and(|bytes| sum(bytes) == 0xffff)
    }

    /// Makes the GRE checksum right again, where there is one.
    pub(super) fn seal_gre(&self, frame: &mut [u8]) {
        let Some(at) = self.gre(frame).and_then(|gre| gre.checksum) else { return };
        let end = self.end.min(frame.len());
        frame[at..at + 2].fill(0);
        let sum = !sum(&frame[self.payload..end]);
        frame[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    }

    /// The place of a field of GRE that has `before` in front of it.
    pub(super) fn field(&self, frame: &[u8], flag: u16) -> Option<usize> {
        let flags = u16_at(frame, self.payload)?;
        let before = [CHECKSUM, KEY, SEQUENCE].into_iter().take_while(|&other| other != flag);
        let count = before.filter(|&other| flags & other != 0).count();
        (flags & flag != 0).then_some(self.payload + 4 + 4 * count)
    }

    /// The packet without a field of GRE, everything else right.
    pub(super) fn without(&self, frame: &[u8], flag: u16) -> Option<Vec<u8>> {
        let at = self.field(frame, flag)?;
        let mut changed = frame.to_vec();
        changed.drain(at..at + 4);
        let flags = u16_at(&changed, self.payload)? & !flag;
        changed[self.payload..self.payload + 2].copy_from_slice(&flags.to_be_bytes());
        self.set_end(&mut changed, self.end - 4);
        Self::read(&changed, GRE)?.seal_gre(&mut changed);
        Some(changed)
    }

    /// The type of the packet inside, and where it begins: behind an Ethernet header, if there is one.
    pub(super) fn inner(&self, frame: &[u8]) -> Option<(u16, usize)> {
        let gre = self.gre(frame)?;
        let start = self.payload + gre.length;
        if gre.protocol == ETHERNET_INSIDE {
            return Some((u16_at(frame, start + 12)?, start + ETHERNET));
        }
        Some((gre.protocol, start))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Key and checksum, four bytes inside, behind destination options.
    fn frame() -> Vec<u8> {
        let mut frame = vec![0; 12];
        frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 24, 60, 64]);
        frame.extend([0xfd; 32]);
        frame.extend([47, 0, 4, 1, 4, 1, 1, 0]);
        frame.extend([0xa0, 0, 0x65, 0x58, 0, 0, 0, 0, 0, 0, 0, 9, 1, 2, 3, 4]);
        Outer::read(&frame, GRE).unwrap().seal_gre(&mut frame);
        frame
    }

    #[test]
    fn fields_of_a_packet() {
        let mut bytes = frame();
        let outer = Outer::read(&bytes, GRE).unwrap();
        assert_eq!((outer.payload, outer.end, outer.limit), (62, bytes.len(), Some(4)));
        let gre = outer.gre(&bytes).unwrap();
        assert_eq!((gre.key, gre.sequence, gre.length, gre.protocol), (Some(9), None, 12, 0x6558));
        assert!(outer.has_right_checksum(&bytes));
        bytes[76] ^= 1;
        assert!(!outer.has_right_checksum(&bytes));
        outer.set_class(&mut bytes, 0xb9);
        assert_eq!(outer.class_and_ttl(&bytes), (0xb9, 64));
    }

    #[test]
    fn a_field_less_and_a_cut() {
        let bytes = frame();
        let outer = Outer::read(&bytes, GRE).unwrap();
        let less = outer.without(&bytes, KEY).unwrap();
        let read = Outer::read(&less, GRE).unwrap();
        assert_eq!((less.len(), read.end), (bytes.len() - 4, bytes.len() - 4));
        assert!(read.has_right_checksum(&less) && read.gre(&less).unwrap().key.is_none());
        let [first, second] = outer.cut(&bytes, 9).unwrap();
        let parts = [&first, &second].map(|part| Outer::read(part, GRE).unwrap());
        assert_eq!(parts.map(|part| (part.offset, part.more)), [(0, true), (8, false)]);
        let joined = [&first[parts[0].payload..], &second[parts[1].payload..]].concat();
        assert_eq!(joined, bytes[62..]);
    }
}
