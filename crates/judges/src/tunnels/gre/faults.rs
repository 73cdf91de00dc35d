//! Encapsulators with one fault: what the wire does to packets of an honest one.

use super::header::{CHECKSUM, GRE, KEY, SEQUENCE};
use super::tunnel::{FULL, FULL_PACKETS, FULL_PACKETS_V6, FULL_V6, Tunnel};
use crate::tunnels::outer::{Outer, sum};
use crate::tunnels::wire::Faulty;

/// A fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::tunnels) enum Fault {
    /// A bit of the GRE checksum is wrong.
    Checksum,
    /// The key is another tunnel's.
    Key,
    /// The IP header says less than there is.
    Length,
    /// The protocol type says IPv4.
    Protocol,
    /// Nothing is left of the time to live.
    TimeToLive,
    /// The outer header says nothing of congestion.
    Ecn,
    /// The sequence number stands still.
    Sequence,
    /// Later fragments begin eight bytes too late.
    FragmentOffset,
    /// A flag says that a field is there that is not.
    Flags,
    /// The protocol type is that of the other family.
    Family,
    /// An Ethernet header stands in front of the payload, whose type is that of a packet.
    LinkHeader,
    /// The router has not counted.
    Hops,
}

impl Fault {
    /// All of them.
    pub(super) const ALL: [Self; 12] = [
        Self::Checksum,
        Self::Key,
        Self::Length,
        Self::Protocol,
        Self::TimeToLive,
        Self::Ecn,
        Self::Sequence,
        Self::FragmentOffset,
        Self::Flags,
        Self::Family,
        Self::LinkHeader,
        Self::Hops,
    ];

    /// The tunnels, one over each family, that it is looked for in.
    pub(super) fn tunnels(self) -> [&'static Tunnel; 2] {
        match self {
            Self::Family | Self::LinkHeader | Self::Hops => [&FULL_PACKETS, &FULL_PACKETS_V6],
            Self::Checksum
            | Self::Key
            | Self::Length
            | Self::Protocol
            | Self::TimeToLive
            | Self::Ecn
            | Self::Sequence
            | Self::FragmentOffset
            | Self::Flags => [&FULL, &FULL_V6],
        }
    }
}

impl Faulty for Fault {
    fn name(self) -> &'static str {
        match self {
            Self::Checksum => "wrong-checksum",
            Self::Key => "wrong-key",
            Self::Length => "short-length",
            Self::Protocol => "wrong-protocol-type",
            Self::TimeToLive => "time-to-live-0",
            Self::Ecn => "ecn-not-propagated",
            Self::Sequence => "sequence-repeated",
            Self::FragmentOffset => "fragment-offset-wrong",
            Self::Flags => "missing-field",
            Self::Family => "other-family",
            Self::LinkHeader => "link-header-inside",
            Self::Hops => "time-to-live-not-counted",
        }
    }

    fn read(frame: &[u8]) -> Option<Outer> {
        Outer::read(frame, GRE)
    }

    fn inner(outer: &Outer, frame: &[u8]) -> Option<(u16, usize)> {
        outer.inner(frame)
    }

    fn spoil(self, frame: &mut Vec<u8>, outer: &Outer) {
        let at = outer.payload;
        let is_first = outer.offset == 0;
        match self {
            Self::Checksum => {
                if let Some(field) = outer.field(frame, CHECKSUM).filter(|_| is_first) {
                    frame[field] ^= 0x40;
                }
            }
            Self::Key => {
                if let Some(field) = outer.field(frame, KEY).filter(|_| is_first) {
                    frame[field + 3] ^= 0x40;
                    outer.seal_gre(frame);
                }
            }
            Self::Length => outer.set_end(frame, outer.end.saturating_sub(6)),
            Self::Protocol if is_first => {
                frame[at + 2..at + 4].copy_from_slice(&[0x08, 0x00]);
                outer.seal_gre(frame);
            }
            Self::TimeToLive => outer.set_ttl(frame, 0),
            Self::Ecn => {
                let (class, _) = outer.class_and_ttl(frame);
                outer.set_class(frame, class & !3);
            }
            Self::Sequence => {
                if let Some(field) = outer.field(frame, SEQUENCE).filter(|_| is_first) {
                    frame[field..field + 4].copy_from_slice(&[0, 0, 0, 1]);
                    outer.seal_gre(frame);
                }
            }
            Self::FragmentOffset if !is_first => {
                let place = outer.fragment_header.map_or(20, |header| header + 2);
                let step = if outer.v6 { 8 } else { 1 };
                let word = u16::from_be_bytes([frame[place], frame[place + 1]]).wrapping_add(step);
                frame[place..place + 2].copy_from_slice(&word.to_be_bytes());
                outer.set_end(frame, outer.end);
            }
            Self::Flags if is_first => {
                if let Some(whole) = outer.without(frame, SEQUENCE) {
                    let flags = frame[at];
                    *frame = whole;
                    frame[at] = flags;
                }
            }
            Self::Family | Self::LinkHeader | Self::Hops if outer.is_whole() => {
                self.spoil_packet(frame, outer);
            }
            Self::Protocol
            | Self::FragmentOffset
            | Self::Flags
            | Self::Family
            | Self::LinkHeader
            | Self::Hops => {}
        }
    }
}

impl Fault {
    /// Applies a fault of tunnels that carry packets.
    fn spoil_packet(self, frame: &mut Vec<u8>, outer: &Outer) {
        let Some((protocol, start)) = outer.inner(frame).filter(|inner| inner.0 != 0x6558) else { return };
        match self {
            Self::Family => {
                let other = if protocol == 0x0800 { [0x86, 0xdd] } else { [0x08, 0x00] };
                frame[outer.payload + 2..outer.payload + 4].copy_from_slice(&other);
                outer.seal_gre(frame);
            }
            Self::LinkHeader => {
                let [high, low] = protocol.to_be_bytes();
                let link = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, high, low];
                frame.splice(start..start, link);
                outer.set_end(frame, outer.end + link.len());
                if let Some(longer) = Outer::read(frame, GRE) {
                    longer.seal_gre(frame);
                }
            }
            Self::Hops if protocol == 0x0800 && frame.len() >= start + 20 => {
                frame[start + 8] = frame[start + 8].wrapping_add(1);
                frame[start + 10..start + 12].fill(0);
                let checksum = !sum(&frame[start..start + 20]);
                frame[start + 10..start + 12].copy_from_slice(&checksum.to_be_bytes());
                outer.seal_gre(frame);
            }
            Self::Hops if frame.len() >= start + 8 => {
                frame[start + 7] = frame[start + 7].wrapping_add(1);
                outer.seal_gre(frame);
            }
            Self::Hops
            | Self::Checksum
            | Self::Key
            | Self::Length
            | Self::Protocol
            | Self::TimeToLive
            | Self::Ecn
            | Self::Sequence
            | Self::FragmentOffset
            | Self::Flags => {}
        }
    }
}
