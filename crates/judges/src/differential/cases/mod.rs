//! Unusual packets, each with a name: every unusual property combined with every kind of packet.

mod addresses;
mod addresses_v6;
mod extensions;
mod flows;
mod fragments;
mod headers;
mod headers_v6;
mod links;
mod options;
mod own;
mod resolution;
mod routes;
mod sizes;

use super::packet::{IPV4, IPV6, V4, V6, frame, short};
use super::twin::Side;
use std::collections::BTreeSet;

/// Destination behind the eastern station.
pub(super) const FAR: [u8; 4] = [198, 18, 7, 7];
/// Destination behind the southern station, whose link has a small MTU.
pub(super) const NARROW: [u8; 4] = [198, 19, 7, 7];
/// Destination behind the second western station: packets leave by the link that received them.
pub(super) const BACK: [u8; 4] = [198, 20, 7, 7];
/// IPv6 destination behind the eastern station.
pub(super) const FAR_V6: [u8; 16] = doc(0x18);
pub(super) const NARROW_V6: [u8; 16] = doc(0x19);
pub(super) const BACK_V6: [u8; 16] = doc(0x20);
/// Don't fragment; more fragments; the flag that means nothing.
pub(super) const DF: u16 = 0x4000;
pub(super) const MF: u16 = 0x2000;
pub(super) const EVIL: u16 = 0x8000;

/// An address in one of the routes' networks of IPv6.
pub(super) const fn doc(net: u16) -> [u8; 16] {
    let [high, low] = net.to_be_bytes();
    [0x20, 1, 0x0d, 0xb8, high, low, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7]
}

/// Input that both routers get.
#[derive(Clone, Debug)]
pub(super) struct Case {
    /// Its name: family or layer, what is odd, and where it goes.
    pub(super) name: String,
    /// The station that sends.
    pub(super) from: Side,
    /// Its frames, in order.
    pub(super) frames: Vec<Vec<u8>>,
}

impl Case {
    /// This case with changed frames.
    pub(super) fn changed(&self, change: impl Fn(&[u8]) -> Vec<u8>) -> Self {
        Self { frames: self.frames.iter().map(|frame| change(frame)).collect(), ..self.clone() }
    }
}

/// A list of cases that grows.
#[derive(Debug, Default)]
pub(super) struct Cases(pub(super) Vec<Case>);

impl Cases {
    /// A frame from the western station.
    pub(super) fn raw(&mut self, name: impl Into<String>, frame: Vec<u8>) {
        self.several(name, Side::West, vec![frame]);
    }

    /// Frames from a station.
    pub(super) fn several(&mut self, name: impl Into<String>, from: Side, frames: Vec<Vec<u8>>) {
        self.0.push(Case { name: name.into(), from, frames });
    }

    /// An IPv4 packet from behind the western station; each has a sender of its own, because the kernel's errors are limited
    /// for each sender.
    pub(super) fn v4(&mut self, name: impl Into<String>, packet: &V4) {
        let [high, low] = short(self.0.len()).to_be_bytes();
        let is_usual = packet.source == Side::West.station_v4();
        let source = if is_usual { [10, 91, high, low] } else { packet.source };
        self.raw(name, frame(Side::West, IPV4, &V4 { source, ..packet.clone() }.bytes()));
    }

    /// An IPv6 packet from the western station.
    pub(super) fn v6(&mut self, name: impl Into<String>, packet: &V6) {
        self.raw(name, frame(Side::West, IPV6, &packet.bytes()));
    }
}

/// Every case; names are unique.
pub(super) fn all() -> Vec<Case> {
    let mut cases = Cases::default();
    headers::add(&mut cases);
    options::add(&mut cases);
    fragments::add(&mut cases);
    addresses::add(&mut cases);
    sizes::add(&mut cases);
    routes::add(&mut cases);
    headers_v6::add(&mut cases);
    extensions::add(&mut cases);
    addresses_v6::add(&mut cases);
    links::add(&mut cases);
    resolution::add(&mut cases);
    own::add(&mut cases);
    flows::add(&mut cases);
    let mut names = BTreeSet::new();
    debug_assert!(cases.0.iter().all(|case| names.insert(case.name.clone())), "names of cases are unique");
    cases.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_enough_cases_and_no_two_have_a_name() {
        let cases = all();
        let names = cases.iter().map(|case| &case.name).collect::<BTreeSet<_>>();
        assert_eq!(names.len(), cases.len());
        let packets = cases.iter().map(|case| case.frames.len()).sum::<usize>();
        assert!(packets >= 500, "{packets}");
        assert!(cases.iter().all(|case| !case.frames.is_empty()));
    }
}
