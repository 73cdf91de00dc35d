//! Outer packets as they stand on the wire: read, marked, cut and rebuilt by hand, with no line of the
//! datapath, since its packets are what is judged.

use std::net::IpAddr;

/// Bytes of an Ethernet header without tags.
const ETHERNET: usize = 14;
/// The protocol type of frames.
pub(super) const ETHERNET_INSIDE: u16 = 0x6558;
const GRE: u8 = 47;
const FRAGMENT: u8 = 44;
const OPTIONS: u8 = 60;
/// Bits of the first word of GRE.
pub(super) const CHECKSUM: u16 = 0x8000;
pub(super) const KEY: u16 = 0x2000;
pub(super) const SEQUENCE: u16 = 0x1000;

/// Offsets of a GRE packet's headers in a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Outer {
    pub(super) v6: bool,
    /// Bytes before the GRE header, or before a fragment's payload.
    pub(super) payload: usize,
    /// Bytes up to the end of the IP packet.
    pub(super) end: usize,
    /// A fragment header's place, in IPv6.
    pub(super) fragment_header: Option<usize>,
    /// Bytes of the whole before this part, and whether more follows.
    pub(super) offset: usize,
    pub(super) more: bool,
    /// The encapsulation limit.
    pub(super) limit: Option<u8>,
}

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

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

impl Outer {
    /// The headers before GRE; `None` for every other packet.
    pub(super) fn read(frame: &[u8]) -> Option<Self> {
        match u16_at(frame, 12)? {
            0x0800 if *frame.get(23)? == GRE => {
                let word = u16_at(frame, 20)?;
                Some(Self {
                    v6: false,
                    payload: ETHERNET + usize::from(frame[14] & 0x0f) * 4,
                    end: ETHERNET + usize::from(u16_at(frame, 16)?),
                    fragment_header: None,
                    offset: usize::from(word & 0x1fff) * 8,
                    more: word & 0x2000 != 0,
                    limit: None,
                })
            }
            0x86dd => Self::read_v6(frame),
            _ => None,
        }
    }

    fn read_v6(frame: &[u8]) -> Option<Self> {
        let mut outer = Self {
            v6: true,
            payload: ETHERNET + 40,
            end: ETHERNET + 40 + usize::from(u16_at(frame, 18)?),
            fragment_header: None,
            offset: 0,
            more: false,
            limit: None,
        };
        let mut next = *frame.get(20)?;
        for _ in 0..3 {
            let at = outer.payload;
            match next {
                GRE => return Some(outer),
                OPTIONS => outer.limit = (*frame.get(at + 2)? == 4).then_some(*frame.get(at + 4)?),
                FRAGMENT => {
                    let word = u16_at(frame, at + 2)?;
                    outer.fragment_header = Some(at);
                    (outer.offset, outer.more) = (usize::from(word & !7), word & 1 != 0);
                }
                _ => return None,
            }
            next = *frame.get(at)?;
            outer.payload = at + 8;
        }
        None
    }

    /// True if it carries a whole packet.
    pub(super) fn is_whole(&self) -> bool {
        self.offset == 0 && !self.more
    }

    /// Traffic class and time to live.
    pub(super) fn class_and_ttl(&self, frame: &[u8]) -> (u8, u8) {
        if self.v6 { (frame[14] << 4 | frame[15] >> 4, frame[21]) } else { (frame[15], frame[22]) }
    }

    pub(super) fn set_class(&self, frame: &mut [u8], class: u8) {
        if self.v6 {
            frame[14] = 0x60 | class >> 4;
            frame[15] = class << 4 | frame[15] & 0x0f;
        } else {
            frame[15] = class;
            self.repair(frame);
        }
    }

    pub(super) fn set_ttl(&self, frame: &mut [u8], ttl: u8) {
        frame[if self.v6 { 21 } else { 22 }] = ttl;
        self.repair(frame);
    }

    /// Sets the length in the IP header, given as bytes up to the end in the frame.
    pub(super) fn set_end(&self, frame: &mut [u8], end: usize) {
        let (at, before) = if self.v6 { (18, ETHERNET + 40) } else { (16, ETHERNET) };
        let length = u16::try_from(end.saturating_sub(before)).unwrap_or(u16::MAX);
        frame[at..at + 2].copy_from_slice(&length.to_be_bytes());
        self.repair(frame);
    }

    /// Makes the header checksum of IPv4 right again.
    fn repair(&self, frame: &mut [u8]) {
        if self.v6 {
            return;
        }
        frame[24..26].fill(0);
        let sum = !sum(&frame[ETHERNET..self.payload]);
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
    }

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
    pub(super) fn seal(&self, frame: &mut [u8]) {
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
        Self::read(&changed)?.seal(&mut changed);
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

    /// ECN field of the inner packet, if it is IP.
    pub(super) fn inner_ecn(&self, frame: &[u8]) -> Option<u8> {
        match self.inner(frame)? {
            (0x0800, start) => Some(frame.get(start + 1)? & 3),
            (0x86dd, start) => Some(frame.get(start + 1)? >> 4 & 3),
            _ => None,
        }
    }

    /// Time to live or hop limit inside, if it is IP.
    pub(super) fn inner_ttl(&self, frame: &[u8]) -> Option<u8> {
        match self.inner(frame)? {
            (0x0800, start) => frame.get(start + 8).copied(),
            (0x86dd, start) => frame.get(start + 7).copied(),
            _ => None,
        }
    }

    /// True if the payload is an echo of either family, whole.
    pub(super) fn inner_is_echo(&self, frame: &[u8]) -> bool {
        match self.inner(frame) {
            Some((0x0800, start)) => {
                frame.get(start + 9) == Some(&1)
                    && !self.inner_is_cut(frame)
                    && matches!(frame.get(start + 20), Some(0 | 8))
            }
            Some((0x86dd, start)) => {
                frame.get(start + 6) == Some(&58) && matches!(frame.get(start + 40), Some(128 | 129))
            }
            Some(_) | None => false,
        }
    }

    /// True if its source is that address.
    pub(super) fn is_from(&self, frame: &[u8], address: &str) -> bool {
        let (at, length) = if self.v6 { (22, 16) } else { (26, 4) };
        let octets = match address.parse::<IpAddr>() {
            Ok(IpAddr::V4(address)) => address.octets().to_vec(),
            Ok(IpAddr::V6(address)) => address.octets().to_vec(),
            Err(_) => return false,
        };
        frame.get(at..at + length).is_some_and(|source| source == octets)
    }

    /// True if the payload is a fragment of IPv4.
    pub(super) fn inner_is_cut(&self, frame: &[u8]) -> bool {
        let word = match self.inner(frame) {
            Some((0x0800, start)) => u16_at(frame, start + 6),
            Some(_) | None => None,
        };
        word.is_some_and(|word| word & 0x3fff != 0)
    }

    /// A whole IPv6 packet in two fragments, as its sender would cut it behind `room` bytes of
    /// payload; `None` when it is not long enough.
    pub(super) fn cut(&self, frame: &[u8], room: usize) -> Option<[Vec<u8>; 2]> {
        let carried = frame.get(self.payload..self.end)?;
        if !self.v6 || self.fragment_header.is_some() || carried.len() <= room {
            return None;
        }
        let says_next = if self.limit.is_some() { self.payload - 8 } else { 20 };
        let part = |offset: usize, bytes: &[u8], more: u16| {
            let mut changed = frame[..self.payload].to_vec();
            changed[says_next] = FRAGMENT;
            let word = u16::try_from(offset).unwrap_or(u16::MAX) & !7 | more;
            changed.extend([GRE, 0]);
            changed.extend(word.to_be_bytes());
            changed.extend([0xfe, 0xdc, 0xba, 0x98]);
            changed.extend(bytes);
            let end = changed.len();
            self.set_end(&mut changed, end);
            changed
        };
        let (first, second) = carried.split_at(room & !7);
        Some([part(0, first, 1), part(room & !7, second, 0)])
    }
}

/// The one's complement sum of RFC 1071.
pub(super) fn sum(bytes: &[u8]) -> u16 {
    let mut sum = 0_u32;
    for word in bytes.chunks(2) {
        sum += u32::from(word[0]) << 8 | u32::from(*word.get(1).unwrap_or(&0));
        sum = (sum & 0xffff) + (sum >> 16);
    }
    u16::try_from(sum).unwrap_or(u16::MAX)
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
        Outer::read(&frame).unwrap().seal(&mut frame);
        frame
    }

    #[test]
    fn fields_of_a_packet() {
        let mut bytes = frame();
        let outer = Outer::read(&bytes).unwrap();
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
        let outer = Outer::read(&bytes).unwrap();
        let less = outer.without(&bytes, KEY).unwrap();
        let read = Outer::read(&less).unwrap();
        assert_eq!((less.len(), read.end), (bytes.len() - 4, bytes.len() - 4));
        assert!(read.has_right_checksum(&less) && read.gre(&less).unwrap().key.is_none());
        let [first, second] = outer.cut(&bytes, 9).unwrap();
        let parts = [&first, &second].map(|part| Outer::read(part).unwrap());
        assert_eq!(parts.map(|part| (part.offset, part.more)), [(0, true), (8, false)]);
        let joined = [&first[parts[0].payload..], &second[parts[1].payload..]].concat();
        assert_eq!(joined, bytes[62..]);
    }
}
