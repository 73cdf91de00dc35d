//! Encapsulators with one fault: what the wire does to packets of an honest one.

use super::header::{CHECKSUM, ETHERNET_INSIDE, GRE, KEY, SEQUENCE};
use super::tunnel::{FULL, FULL_PACKETS, FULL_PACKETS_V6, FULL_V6, Tunnel};
use crate::tunnels::outer::{Outer, give_hop_back};
use crate::tunnels::wire::Faulty;

/// Change of an outer packet, where it applies to the packet.
type Spoil = fn(&mut Vec<u8>, &Outer);

/// A fault.
#[derive(Clone, Copy, Debug)]
pub(in crate::tunnels) struct Fault {
    name: &'static str,
    /// The tunnels, one over each family, that it is looked for in.
    pub(super) tunnels: [&'static Tunnel; 2],
    spoil: Spoil,
}

const fn fault(name: &'static str, spoil: Spoil) -> Fault {
    Fault { name, tunnels: [&FULL, &FULL_V6], spoil }
}

/// A fault of tunnels that carry packets.
const fn of_packets(name: &'static str, spoil: Spoil) -> Fault {
    Fault { name, tunnels: [&FULL_PACKETS, &FULL_PACKETS_V6], spoil }
}

/// All faults.
pub(super) const FAULTS: &[Fault] = &[
    fault("wrong-checksum", |frame, outer| {
        if let Some(field) = field(frame, outer, CHECKSUM) {
            frame[field] ^= 0x40;
        }
    }),
    fault("wrong-key", |frame, outer| {
        let Some(field) = field(frame, outer, KEY) else { return };
        frame[field + 3] ^= 0x40;
        outer.seal_gre(frame);
    }),
    fault("short-length", |frame, outer| outer.set_end(frame, outer.end.saturating_sub(6))),
    fault("wrong-protocol-type", |frame, outer| {
        if outer.offset == 0 {
            set_type(frame, outer, [0x08, 0x00]);
        }
    }),
    fault("time-to-live-0", |frame, outer| outer.set_ttl(frame, 0)),
    fault("ecn-not-propagated", |frame, outer| {
        let (class, _) = outer.class_and_ttl(frame);
        outer.set_class(frame, class & !3);
    }),
    fault("sequence-repeated", |frame, outer| {
        let Some(field) = field(frame, outer, SEQUENCE) else { return };
        frame[field..field + 4].copy_from_slice(&[0, 0, 0, 1]);
        outer.seal_gre(frame);
    }),
    fault("fragment-offset-wrong", |frame, outer| outer.delay_fragment(frame)),
    fault("missing-field", |frame, outer| {
        let Some(whole) = outer.without(frame, SEQUENCE).filter(|_| outer.offset == 0) else { return };
        let flags = frame[outer.payload];
        *frame = whole;
        frame[outer.payload] = flags;
    }),
    of_packets("other-family", |frame, outer| {
        let Some((protocol, _)) = packet(frame, outer) else { return };
        set_type(frame, outer, if protocol == 0x0800 { [0x86, 0xdd] } else { [0x08, 0x00] });
    }),
    of_packets("link-header-inside", link_header),
    of_packets("time-to-live-not-counted", |frame, outer| {
        let Some((protocol, start)) = packet(frame, outer) else { return };
        give_hop_back(frame, (protocol, start));
        outer.seal_gre(frame);
    }),
];

impl Faulty for Fault {
    fn name(self) -> &'static str {
        self.name
    }

    fn read(frame: &[u8]) -> Option<Outer> {
        Outer::read(frame, GRE)
    }

    fn inner(outer: &Outer, frame: &[u8]) -> Option<(u16, usize)> {
        outer.inner(frame)
    }

    fn spoil(self, frame: &mut Vec<u8>, outer: &Outer) {
        (self.spoil)(frame, outer);
    }
}

/// The place of a field of GRE, in a first or only part.
fn field(frame: &[u8], outer: &Outer, flag: u16) -> Option<usize> {
    outer.field(frame, flag).filter(|_| outer.offset == 0)
}

/// Type and place of a whole packet without a link header.
fn packet(frame: &[u8], outer: &Outer) -> Option<(u16, usize)> {
    outer.inner(frame).filter(|(kind, _)| outer.is_whole() && *kind != ETHERNET_INSIDE)
}

fn set_type(frame: &mut [u8], outer: &Outer, kind: [u8; 2]) {
    frame[outer.payload + 2..outer.payload + 4].copy_from_slice(&kind);
    outer.seal_gre(frame);
}

/// Inserts an Ethernet header before the payload of a packet tunnel.
fn link_header(frame: &mut Vec<u8>, outer: &Outer) {
    let Some((protocol, start)) = packet(frame, outer) else { return };
    let [high, low] = protocol.to_be_bytes();
    let link = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, high, low];
    frame.splice(start..start, link);
    outer.set_end(frame, outer.end + link.len());
    if let Some(longer) = Outer::read(frame, GRE) {
        longer.seal_gre(frame);
    }
}
