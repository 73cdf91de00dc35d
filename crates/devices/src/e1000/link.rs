//! The link: checked without waiting, one PHY register at a time.
//!
//! An interrupt reports a change. Speed and duplex are in the device's status; the use of pause frames
//! follows from both sides' abilities (IEEE 802.3, 28B.3), which are in the PHY.

use super::access::Access;
use super::regs::{CTRL, SPEED_SHIFT, STATUS, ctrl, phy, status};
use crate::Link;

/// Number of checks for an answer of the PHY before it is given up; two checks are at least a microsecond
/// apart, and an answer takes 64 µs.
const LOOKS: u32 = 4096;

/// Progress of a link check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Step {
    #[default]
    Idle,
    /// Own abilities were requested.
    Own,
    /// The partner's abilities were requested.
    Partner { own: u16 },
}

/// Watcher of one link.
#[derive(Debug)]
pub(super) struct LinkWatch {
    due: bool,
    step: Step,
    looks: u32,
    flow_control: bool,
}

impl LinkWatch {
    /// Creates a watcher with a check due.
    pub(super) fn new(flow_control: bool) -> Self {
        Self { due: true, step: Step::Idle, looks: 0, flow_control }
    }

    /// Records that the link may have changed.
    pub(super) fn notice(&mut self) {
        self.due = true;
    }

    /// True if a check is due or in progress.
    #[inline]
    pub(super) fn is_busy(&self) -> bool {
        self.due || self.step != Step::Idle
    }

    /// Does the next step; returns the link after the last one.
    #[cold]
    pub(super) fn step(&mut self, access: &Access) -> Option<Link> {
        if self.due {
            self.due = false;
            let link = link_of(access.read(STATUS));
            if !link.up || !link.full_duplex || !self.flow_control {
                self.step = Step::Idle;
                return Some(set_pause(access, link, (0, 0)));
            }
            self.ask(access, phy::ADVERTISE, Step::Own);
            return None;
        }
        let answer = match access.phy_answer() {
            Some(Ok(answer)) => answer,
            None if self.looks < LOOKS => {
                self.looks += 1;
                return None;
            }
            // With a PHY that does not answer, no pause frames are used.
            Some(Err(_)) | None => 0,
        };
        match self.step {
            Step::Idle => None,
            Step::Own => {
                self.ask(access, phy::PARTNER, Step::Partner { own: answer });
                None
            }
            Step::Partner { own } => {
                self.step = Step::Idle;
                Some(set_pause(access, link_of(access.read(STATUS)), (own, answer)))
            }
        }
    }

    fn ask(&mut self, access: &Access, register: u32, step: Step) {
        access.ask_phy(register);
        (self.step, self.looks) = (step, 0);
    }
}

/// Returns the link of a [`STATUS`] value.
fn link_of(value: u32) -> Link {
    let speed = match (value & status::SPEED) >> SPEED_SHIFT {
        0 => 10,
        1 => 100,
        _ => 1000,
    };
    let up = value & status::LINK_UP != 0;
    Link { up, speed, full_duplex: value & status::FULL_DUPLEX != 0, ..Link::default() }
}

/// Sets the MAC's pause frames by both sides' abilities.
fn set_pause(access: &Access, link: Link, abilities: (u16, u16)) -> Link {
    let (transmit, receive) = resolve(abilities);
    let set = if transmit { ctrl::TRANSMIT_PAUSE } else { 0 } | if receive { ctrl::RECEIVE_PAUSE } else { 0 };
    access.modify(CTRL, ctrl::TRANSMIT_PAUSE | ctrl::RECEIVE_PAUSE, set);
    Link { pause_transmit: transmit, pause_receive: receive, ..link }
}

/// Returns if pause frames are sent, and if they are obeyed, by own and partner abilities (IEEE 802.3, table
/// 28B-3).
fn resolve((own, partner): (u16, u16)) -> (bool, bool) {
    let pause = |abilities: u16| abilities & phy::PAUSE != 0;
    let asymmetric = |abilities: u16| abilities & phy::PAUSE_ASYMMETRIC != 0;
    if pause(own) && pause(partner) {
        return (true, true);
    }
    let both_asymmetric = asymmetric(own) && asymmetric(partner);
    (both_asymmetric && pause(partner) && !pause(own), both_asymmetric && pause(own) && !pause(partner))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All rows of the standard's table.
    #[test]
    fn pauses_are_what_the_standard_resolves() {
        let (p, a) = (phy::PAUSE, phy::PAUSE_ASYMMETRIC);
        let rows = [
            (0, 0, (false, false)),
            (0, p | a, (false, false)),
            (a, p, (false, false)),
            (a, p | a, (true, false)),
            (p, 0, (false, false)),
            (p, p, (true, true)),
            (p | a, a, (false, true)),
            (p | a, p, (true, true)),
            (a, a, (false, false)),
        ];
        for (own, partner, expected) in rows {
            assert_eq!(resolve((own, partner)), expected, "{own:#x} {partner:#x}");
        }
    }

    #[test]
    fn a_status_says_speed_and_duplex() {
        let link = |value| link_of(value).to_string();
        assert_eq!(link(0x81), "no link");
        assert_eq!(link(0x83), "1000 Mbit/s full duplex");
        assert_eq!(link(0x42), "100 Mbit/s half duplex");
        assert_eq!(link(0x03), "10 Mbit/s full duplex");
    }
}
