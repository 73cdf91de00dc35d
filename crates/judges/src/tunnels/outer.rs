//! Outer IP headers as they stand on the wire: read, marked, cut and repaired by hand, with no line of the datapath, since
//! its packets are what is judged.

pub(super) use crate::differential::packet::sum;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

/// Bytes of an Ethernet header without tags.
pub(super) const ETHERNET: usize = 14;
/// The DF bit in the word with flags and offset of a fragment.
pub(super) const BOUND: u16 = 0x4000;
const FRAGMENT: u8 = 44;
const OPTIONS: u8 = 60;

/// Link-layer address of each sender of outer IPv4 packets.
pub(super) type Stations = BTreeMap<Ipv4Addr, [u8; 6]>;

/// Offsets of an outer packet's headers in a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Outer {
    pub(super) v6: bool,
    /// Protocol behind the IP headers.
    pub(super) protocol: u8,
    /// Bytes before the header of that protocol, or before a fragment's payload.
    pub(super) payload: usize,
    /// Bytes up to the end of the IP packet.
    pub(super) end: usize,
    /// A fragment header's place, in IPv6.
    pub(super) fragment_header: Option<usize>,
    /// Bytes of the whole before this part.
    pub(super) offset: usize,
    /// True if more follows.
    pub(super) more: bool,
    /// The encapsulation limit.
    pub(super) limit: Option<u8>,
}

pub(super) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

impl Outer {
    /// Reads the headers before `protocol`; `None` for every other packet.
    pub(super) fn read(frame: &[u8], protocol: u8) -> Option<Self> {
        match u16_at(frame, 12)? {
            0x0800 if *frame.get(23)? == protocol => {
                let word = u16_at(frame, 20)?;
                Some(Self {
                    v6: false,
                    protocol,
                    payload: ETHERNET + usize::from(frame[14] & 0x0f) * 4,
                    end: ETHERNET + usize::from(u16_at(frame, 16)?),
                    fragment_header: None,
                    offset: usize::from(word & 0x1fff) * 8,
                    more: word & 0x2000 != 0,
                    limit: None,
                })
            }
            0x86dd => Self::read_v6(frame, protocol),
            _ => None,
        }
    }

    fn read_v6(frame: &[u8], protocol: u8) -> Option<Self> {
        let mut outer = Self {
            v6: true,
            protocol,
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
                _ if next == protocol => return Some(outer),
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
    pub(super) fn repair(&self, frame: &mut [u8]) {
        if self.v6 {
            return;
        }
        frame[24..26].fill(0);
        let sum = !sum(&frame[ETHERNET..self.payload]);
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
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

    /// Increases the offset of a later fragment by eight bytes.
    pub(super) fn delay_fragment(&self, frame: &mut [u8]) {
        if self.offset == 0 {
            return;
        }
        let place = self.fragment_header.map_or(20, |header| header + 2);
        let step = if self.v6 { 8 } else { 1 };
        let word = u16::from_be_bytes([frame[place], frame[place + 1]]).wrapping_add(step);
        frame[place..place + 2].copy_from_slice(&word.to_be_bytes());
        self.repair(frame);
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
            changed.extend([self.protocol, 0]);
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

/// ECN field of the packet of that type at that place, if it is IP.
pub(super) fn ecn(frame: &[u8], inner: (u16, usize)) -> Option<u8> {
    match inner {
        (0x0800, start) => Some(frame.get(start + 1)? & 3),
        (0x86dd, start) => Some(frame.get(start + 1)? >> 4 & 3),
        _ => None,
    }
}

/// Time to live or hop limit inside, if it is IP.
pub(super) fn ttl_inside(frame: &[u8], inner: Option<(u16, usize)>) -> Option<u8> {
    match inner? {
        (0x0800, start) => frame.get(start + 8).copied(),
        (0x86dd, start) => frame.get(start + 7).copied(),
        _ => None,
    }
}

/// True if the packet inside is a fragment.
pub(super) fn is_cut(frame: &[u8], inner: Option<(u16, usize)>) -> bool {
    match inner {
        Some((0x0800, start)) => u16_at(frame, start + 6).is_some_and(|word| word & 0x3fff != 0),
        Some((0x86dd, start)) => frame.get(start + 6) == Some(&FRAGMENT),
        Some(_) | None => false,
    }
}

/// True if the packet inside is an echo of either family, whole.
pub(super) fn is_echo(frame: &[u8], inner: Option<(u16, usize)>) -> bool {
    let (protocol, kinds) = match inner {
        Some((0x0800, start)) => (frame.get(start + 9) == Some(&1), (start + 20, [0, 8])),
        Some((0x86dd, start)) => (frame.get(start + 6) == Some(&58), (start + 40, [128, 129])),
        Some(_) | None => return false,
    };
    protocol && !is_cut(frame, inner) && frame.get(kinds.0).is_some_and(|kind| kinds.1.contains(kind))
}

/// Reverts one decrement of the inner packet's TTL.
pub(super) fn give_hop_back(frame: &mut [u8], (protocol, start): (u16, usize)) {
    if protocol == 0x0800 && frame.len() >= start + 20 {
        frame[start + 8] = frame[start + 8].wrapping_add(1);
        frame[start + 10..start + 12].fill(0);
        let checksum = !sum(&frame[start..start + 20]);
        frame[start + 10..start + 12].copy_from_slice(&checksum.to_be_bytes());
    } else if let Some(hops) = frame.get_mut(start + 7) {
        *hops = hops.wrapping_add(1);
    }
}

/// Addresses of an outer IPv4 packet's sender.
pub(super) fn sender(frame: &[u8]) -> Option<(Ipv4Addr, [u8; 6])> {
    let ip = frame.get(26..30)?.first_chunk::<4>().copied()?;
    Some((Ipv4Addr::from(ip), *frame.get(6..12)?.first_chunk()?))
}
