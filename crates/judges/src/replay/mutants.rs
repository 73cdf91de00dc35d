//! Bridges with one fault: wires that spoil what has left Polder, and Polder with other tables. A check has to fail on each.

use super::bed::Left;
use super::compare::flow;

/// A named check on the frames of a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Check {
    /// No frame is lost.
    NothingLost,
    /// Every frame keeps its bytes.
    NothingChanged,
    /// No frame is added.
    NothingAdded,
    /// Frames of a flow keep the order of the capture.
    FlowOrderKept,
    /// All frames keep the order of the capture.
    OrderKept,
}

impl Check {
    /// All checks.
    pub const ALL: [Self; 5] =
        [Self::NothingLost, Self::NothingChanged, Self::NothingAdded, Self::FlowOrderKept, Self::OrderKept];
    /// Checks that a bridge has to pass: segments that are merged change places with frames of other flows (ADR 0012).
    pub const REQUIRED: [Self; 4] =
        [Self::NothingLost, Self::NothingChanged, Self::NothingAdded, Self::FlowOrderKept];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NothingLost => "nothing-lost",
            Self::NothingChanged => "nothing-changed",
            Self::NothingAdded => "nothing-added",
            Self::FlowOrderKept => "flow-order-kept",
            Self::OrderKept => "order-kept",
        }
    }
}

/// Polder with other tables.
pub(super) struct Fault {
    pub(super) name: &'static str,
    /// Check that has to fail.
    pub(super) check: Check,
    /// Tables in addition to the honest bridge's.
    pub(super) tables: &'static str,
}

/// All faults of the bridge.
pub(super) const FAULTS: &[Fault] = &[
    Fault {
        name: "arp-filtered",
        check: Check::NothingLost,
        tables: "[[filter]]\nether_type = \"arp\"\naction = \"drop\"\n",
    },
    Fault {
        name: "tagged",
        check: Check::NothingChanged,
        tables: "[bridge.lan.port.west]\nvlan = { access = 7 }\n[bridge.lan.port.east]\nvlan = { trunk = [7] }\n",
    },
    Fault {
        name: "reflecting",
        check: Check::NothingAdded,
        tables: "[bridge.lan.port.west]\nhairpin = true\n[bridge.lan.port.east]\nhairpin = true\n",
    },
];

/// A wire that spoils the frames of a burst.
pub(super) struct Wire {
    pub(super) name: &'static str,
    /// Check that has to fail.
    pub(super) check: Check,
    pub(super) spoil: fn(&mut Left),
}

/// All faults of the wire.
pub(super) const WIRES: &[Wire] = &[
    Wire { name: "identifications-count-up", check: Check::NothingChanged, spoil: count_up },
    Wire { name: "cut-short", check: Check::NothingChanged, spoil: cut_short },
    Wire { name: "padded", check: Check::NothingChanged, spoil: |left| each(left, |frame| frame.push(0)) },
    Wire {
        name: "one-bit",
        check: Check::NothingChanged,
        spoil: |left| each(left, |frame| *frame.last_mut().unwrap_or(&mut 0) ^= 1),
    },
    Wire { name: "last-lost", check: Check::NothingLost, spoil: |left| drop(left.passed.pop()) },
    Wire { name: "one-twice", check: Check::NothingAdded, spoil: twice },
    Wire {
        name: "flow-reordered",
        check: Check::FlowOrderKept,
        spoil: |left| change_places(left, |a, b| flow(a) == flow(b)),
    },
    Wire {
        name: "flows-change-places",
        check: Check::OrderKept,
        spoil: |left| change_places(left, |a, b| flow(a) != flow(b)),
    },
];

fn each(left: &mut Left, spoil: fn(&mut Vec<u8>)) {
    left.passed.iter_mut().for_each(spoil);
}

fn twice(left: &mut Left) {
    left.passed.extend(left.passed.first().cloned());
}

/// Halves the longest frame.
fn cut_short(left: &mut Left) {
    if let Some(longest) = left.passed.iter_mut().max_by_key(|frame| frame.len()) {
        longest.truncate((longest.len() / 2).max(14));
    }
}

/// The first two neighbours that are `meant` change places.
fn change_places(left: &mut Left, meant: fn(&[u8], &[u8]) -> bool) {
    let is_meant = |pair: &[Vec<u8>]| pair[0] != pair[1] && meant(&pair[0], &pair[1]);
    if let Some(place) = left.passed.windows(2).position(is_meant) {
        left.passed.swap(place, place + 1);
    }
}

/// Identifications of IPv4 that stand still count up, as in segments that a device cuts (RFC 6864, 4.1).
fn count_up(left: &mut Left) {
    let mut before: Option<(u16, u16)> = None;
    for frame in &mut left.passed {
        if frame.get(12..15) != Some(&[8, 0, 0x45]) || frame.len() < 34 {
            continue;
        }
        let identification = u16::from_be_bytes([frame[18], frame[19]]);
        let count = match before {
            Some((same, count)) if same == identification => count.wrapping_add(1),
            _ => 0,
        };
        before = Some((identification, count));
        let counted = identification.wrapping_add(count);
        frame[18..20].copy_from_slice(&counted.to_be_bytes());
        // The header's checksum follows (RFC 1624).
        let checksum = u16::from_be_bytes([frame[24], frame[25]]);
        let sum = u32::from(!checksum) + u32::from(!identification) + u32::from(counted);
        let sum = (sum & 0xffff) + (sum >> 16);
        let sum = u16::try_from((sum & 0xffff) + (sum >> 16)).unwrap_or(0);
        frame[24..26].copy_from_slice(&(!sum).to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifications_that_stand_still_count_up_with_their_checksum() {
        let mut frame = [&[0; 12][..], &[8, 0, 0x45], &[0; 19]].concat();
        frame[24..26].copy_from_slice(&(!0x4500_u16).to_be_bytes());
        let mut left = Left { passed: vec![frame.clone(); 3], returned: Vec::new() };
        count_up(&mut left);
        assert_eq!(left.passed[0], frame);
        assert_eq!(
            (left.passed[2][19], left.passed[2][24..26].to_vec()),
            (2, (!0x4502_u16).to_be_bytes().to_vec())
        );
    }
}
