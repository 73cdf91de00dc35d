//! Encapsulators with one fault: the wire changes packets that a correct encapsulator sends or receives.

use super::drops::{INSIDE, STRANGER};
use super::header::{PROTOCOLS, inner, read};
use super::tunnel::Place;
use crate::tunnels::outer::{Outer, Stations, give_hop_back, is_echo, ttl_inside};
use crate::tunnels::wire::Faulty;

/// Misdeed of a broken encapsulator.
#[derive(Clone, Copy, Debug)]
enum Deed {
    /// Corrupts sent packets.
    Spoils(fn(&mut Vec<u8>, &Outer)),
    /// Sends other packets in place of one.
    Sends(fn(Vec<u8>, &Outer) -> Vec<Vec<u8>>),
    /// Changes or drops received frames.
    Hears(fn(Vec<u8>, Option<&Outer>) -> Option<Vec<u8>>),
    /// Replaces one text of the configuration by another.
    Configured(&'static str, &'static str),
}
use Deed::{Configured, Hears, Sends, Spoils};

/// A fault.
#[derive(Clone, Copy, Debug)]
pub(in crate::tunnels) struct Fault {
    name: &'static str,
    /// The tunnel that it is looked for in.
    pub(super) tunnel: Place,
    /// The check that has to find it.
    pub(super) check: &'static str,
    deed: Deed,
}

const fn fault(name: &'static str, tunnel: Place, check: &'static str, deed: Deed) -> Fault {
    Fault { name, tunnel, check, deed }
}

const PINGS: &str = "pings of all sizes, both ways";
const HEADERS: &str = "headers on the wire";

/// Faults of both kinds.
pub(super) const ALL: &[Fault] = &[
    fault(
        "unknown-peer",
        Place::Plain,
        "the other end answers",
        Spoils(|frame, outer| outer.set_sender(frame, STRANGER)),
    ),
    fault(
        "wrong-protocol",
        Place::Plain,
        PINGS,
        Spoils(|frame, outer| {
            let [ipip, sit] = PROTOCOLS;
            outer.set_protocol(frame, if outer.protocol == ipip { sit } else { ipip });
        }),
    ),
    fault(
        "short-length",
        Place::Plain,
        PINGS,
        Spoils(|frame, outer| outer.set_end(frame, outer.end.saturating_sub(6))),
    ),
    fault("wrong-header-checksum", Place::Bound, PINGS, Spoils(|frame, _| frame[24] ^= 0x10)),
    fault(
        "wrong-version-inside",
        Place::Promising,
        PINGS,
        Spoils(|frame, outer| {
            if outer.offset == 0 {
                frame[outer.payload] ^= 0x20;
            }
        }),
    ),
    fault(
        "link-header-inside",
        Place::Plain,
        PINGS,
        Spoils(|frame, outer| {
            let link = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];
            frame.splice(outer.payload..outer.payload, link);
            outer.set_end(frame, outer.end + link.len());
        }),
    ),
    fault(
        "fragment-offset-wrong",
        Place::Promising,
        "long packets into the tunnel",
        Spoils(|frame, outer| outer.delay_fragment(frame)),
    ),
    fault(
        "later-fragments-not-heard",
        Place::Promising,
        "outer fragments out of the tunnel",
        Hears(|frame, outer| outer.is_none_or(|outer| outer.offset == 0).then_some(frame)),
    ),
    fault(
        "segments-damaged",
        Place::Plain,
        "TCP in both directions",
        Spoils(|frame, outer| {
            let last = outer.end - 1;
            if !is_echo(frame, inner(outer)) {
                frame[last] ^= 0x10;
            }
        }),
    ),
    fault(
        "ecn-not-propagated",
        Place::Plain,
        "congestion on the way in",
        Spoils(|frame, outer| clear(frame, outer, 3)),
    ),
    fault(
        "marks-not-carried",
        Place::Plain,
        "congestion on the way out",
        Hears(|mut frame, outer| {
            outer.into_iter().for_each(|outer| clear(&mut frame, outer, 3));
            Some(frame)
        }),
    ),
    fault("time-to-live-0", Place::Plain, HEADERS, Spoils(|frame, outer| outer.set_ttl(frame, 0))),
    fault(
        "time-to-live-not-inherited",
        Place::Promising,
        HEADERS,
        Spoils(|frame, outer| {
            let inside = ttl_inside(frame, inner(outer)).unwrap_or_default();
            outer.set_ttl(frame, inside.wrapping_add(1));
        }),
    ),
    fault("dscp-not-inherited", Place::Plain, HEADERS, Spoils(|frame, outer| clear(frame, outer, !3))),
    fault("dscp-not-set", Place::Bound, HEADERS, Spoils(|frame, outer| clear(frame, outer, !3))),
    fault(
        "fragments-forbidden",
        Place::Plain,
        HEADERS,
        Spoils(|frame, outer| outer.set_forbids_cuts(frame, true)),
    ),
    fault(
        "fragments-allowed",
        Place::Bound,
        HEADERS,
        Spoils(|frame, outer| outer.set_forbids_cuts(frame, false)),
    ),
    fault(
        "hop-not-counted",
        Place::Plain,
        HEADERS,
        Spoils(|frame, outer| {
            inner(outer).into_iter().for_each(|inner| give_hop_back(frame, inner));
        }),
    ),
    fault(
        "silent-about-time",
        Place::Plain,
        "who is too long on the way hears of it",
        Sends(|frame, outer| if is_time_exceeded(&frame, outer) { Vec::new() } else { vec![frame] }),
    ),
    fault(
        "promises-too-much",
        Place::Plain,
        "who is too big hears of it",
        Configured("\n\n[port.h1]", "\nmtu = 1500\n\n[port.h1]"),
    ),
    fault(
        "deaf-to-routers",
        Place::Plain,
        "what a router says of the path is followed",
        Hears(|frame, outer| outer.is_some().then_some(frame)),
    ),
    fault("two-copies", Place::Plain, "both ends count the same packets", Sends(|frame, _| vec![frame; 2])),
    fault(
        "marks-without-congestion",
        Place::Plain,
        "the kernel counts no error",
        Spoils(|frame, outer| {
            let (class, _) = outer.class_and_ttl(frame);
            outer.set_class(frame, class | 3);
        }),
    ),
    fault(
        "other-version-not-counted",
        Place::Plain,
        "another version inside is dropped as tunnel-bad-protocol",
        Hears(|frame, outer| outer.is_none_or(|outer| is_right_version(&frame, outer)).then_some(frame)),
    ),
    fault(
        "half-header-not-counted",
        Place::Plain,
        "half a header inside is dropped as tunnel-bad-protocol",
        Hears(|frame, outer| outer.is_none_or(|outer| outer.end > INSIDE + 10).then_some(frame)),
    ),
    fault(
        "fragment-never-given-up",
        Place::Plain,
        "a first fragment alone is dropped as fragment-timeout",
        Hears(|frame, outer| outer.is_none_or(Outer::is_whole).then_some(frame)),
    ),
    fault(
        "other-protocol-taken",
        Place::Plain,
        "the other protocol is left to the kernel",
        Hears(|mut frame, outer| {
            if let Some(outer) = outer.filter(|outer| !is_right_version(&frame, outer)) {
                let [ipip, sit] = PROTOCOLS;
                outer.set_protocol(&mut frame, if outer.protocol == ipip { sit } else { ipip });
            }
            Some(frame)
        }),
    ),
    fault(
        "stranger-taken",
        Place::Plain,
        "a stranger's packet is left to the kernel",
        Hears(|mut frame, outer| {
            if let Some(outer) = outer.filter(|_| frame[29] == STRANGER) {
                outer.set_sender(&mut frame, 2);
            }
            Some(frame)
        }),
    ),
];

/// Faults of IPv4 inside.
pub(super) const OF_IPIP: &[Fault] = &[
    fault(
        "wrong-checksum-not-counted",
        Place::Plain,
        "a wrong checksum inside is dropped as ipv4-bad-checksum",
        Hears(|frame, outer| {
            let is_right = |header: &[u8]| crate::tunnels::outer::sum(header) == 0xffff;
            let header = frame.get(INSIDE..INSIDE + 20);
            (outer.is_none() || header.is_some_and(is_right)).then_some(frame)
        }),
    ),
    fault(
        "recursion-not-seen",
        Place::Plain,
        "a packet from the other end is dropped as tunnel-recursion",
        Configured("remote = \"10.77.2.2\"", "remote = \"10.77.2.3\""),
    ),
];

/// Faults of IPv6 inside.
pub(super) const OF_SIT: &[Fault] = &[fault(
    "martian-not-counted",
    Place::Plain,
    "an IPv4-mapped source inside is dropped as martian-source",
    Hears(|frame, outer| {
        let is_mapped = frame.get(INSIDE + 8..INSIDE + 18).is_some_and(|head| head == [0; 10]);
        (outer.is_none() || !is_mapped).then_some(frame)
    }),
)];

impl Fault {
    /// True if Polder's configuration has the fault.
    pub(super) fn is_of_configuration(self) -> bool {
        matches!(self.deed, Configured(..))
    }

    /// Polder's configuration with the fault.
    pub(super) fn configure(self, text: &str) -> String {
        match self.deed {
            Configured(right, wrong) => text.replacen(right, wrong, 1),
            Spoils(_) | Sends(_) | Hears(_) => text.to_owned(),
        }
    }
}

impl Faulty for Fault {
    fn name(self) -> &'static str {
        self.name
    }

    fn read(frame: &[u8]) -> Option<Outer> {
        read(frame)
    }

    fn inner(outer: &Outer, _: &[u8]) -> Option<(u16, usize)> {
        inner(outer)
    }

    fn spoil(self, frame: &mut Vec<u8>, outer: &Outer) {
        if let Spoils(spoil) = self.deed {
            spoil(frame, outer);
        }
    }

    fn copies(self, frame: Vec<u8>, outer: &Outer, _: &Stations) -> Vec<Vec<u8>> {
        if let Sends(send) = self.deed { send(frame, outer) } else { vec![frame] }
    }

    fn heard(self, frame: Vec<u8>, outer: Option<&Outer>) -> Option<Vec<u8>> {
        if let Hears(hear) = self.deed { hear(frame, outer) } else { Some(frame) }
    }
}

/// Clears bits of the outer traffic class.
fn clear(frame: &mut [u8], outer: &Outer, bits: u8) {
    let (class, _) = outer.class_and_ttl(frame);
    outer.set_class(frame, class & !bits);
}

/// True if the packet inside is of the version that the outer protocol says.
fn is_right_version(frame: &[u8], outer: &Outer) -> bool {
    let version = if outer.protocol == PROTOCOLS[0] { 4 } else { 6 };
    outer.offset > 0 || frame.get(outer.payload).is_some_and(|first| first >> 4 == version)
}

/// True if the packet inside says that a packet's time has come.
fn is_time_exceeded(frame: &[u8], outer: &Outer) -> bool {
    let kind = |protocol: usize, of: u8, at: usize, kind: u8| {
        frame.get(outer.payload + protocol) == Some(&of) && frame.get(outer.payload + at) == Some(&kind)
    };
    match outer.protocol {
        4 => kind(9, 1, 20, 11),
        _ => kind(6, 58, 40, 3),
    }
}
