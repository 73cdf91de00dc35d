//! Frames for a bridge's port itself, which its program leaves to the kernel, for daemons on the interface.
//!
//! ```text
//! to 01:80:c2:00:00:00 to :0f, with a tag or without? ─ yes ─▶ a group that the bridge forwards? ─ no ─▶ the kernel
//!   to the interface's own address? ─ no ─▶ taken                        └ yes ─▶ taken
//!     untagged or with a priority tag, 802.1X or PTP? ─ yes ─▶ the kernel
//!       no ─▶ taken
//! ```
//!
//! Cost: one load and two comparisons for a frame of the bridge. Carried flows are looked up before: they are
//! between two stations, and the bridge never learns the interface's address at another port.

#[cfg(test)]
pub(crate) mod cases;

use super::assembler::{Assembler, Condition, Label, Register, Width};
use super::classify::{ETHERNET, RESERVED_GROUPS, Target, need, network_order};
use super::sys::SharedCounters;
use Register::{R1, R2, R4, R5, R8, R9};
use core::sync::atomic::Ordering;
use polder_datapath::forward::ForwardGroups;
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd};

/// Words by which a program recognises frames for the port itself; it reads them for each packet.
#[derive(Debug)]
pub(crate) struct PortFrames(SharedCounters);

impl PortFrames {
    /// Creates the words of an interface with MAC address `mac`, on a bridge that forwards `groups`.
    pub(crate) fn new(mac: [u8; 6], groups: ForwardGroups) -> Result<Self, Errno> {
        let words = Self(SharedCounters::new("polder_port", WORDS)?);
        words.set_mac(mac);
        words.set_groups(groups);
        Ok(words)
    }

    /// Sets the interface's MAC address.
    pub(crate) fn set_mac(&self, [a, b, c, d, e, f]: [u8; 6]) {
        // Relaxed: a program that reads one word of each address leaves the frame to the bridge.
        self.0.get(FIRST).store(u32::from_ne_bytes([a, b, c, d]).into(), Ordering::Relaxed);
        self.0.get(LAST).store(u16::from_ne_bytes([e, f]).into(), Ordering::Relaxed);
    }

    /// Sets the link-local groups that the bridge forwards.
    pub(crate) fn set_groups(&self, groups: ForwardGroups) {
        for last in 0..16 {
            // Relaxed: the flags order nothing.
            self.0.get(last.into()).store(groups.contains(last).into(), Ordering::Relaxed);
        }
    }
}

impl AsFd for PortFrames {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Takes the frames of a bridge, and leaves frames for the port itself to the kernel.
pub(crate) fn bridge(program: &mut Assembler, target: &impl Target, words: BorrowedFd<'_>) {
    let [group, take, pass] = [(); 3].map(|()| program.label());
    target.peek(program);
    need(program, ETHERNET, take);
    program.load(Width::Word, R5, R2, 0);
    program.jump_value(Condition::Equal, R5, RESERVED_GROUPS, group);
    program.map_value(R1, words);
    program.load(Width::Double, R4, R1, offset(FIRST));
    program.jump(Condition::NotEqual, R5, R4, take);
    for_station(program, target, (take, pass));

    program.place(group);
    program.load(Width::Half, R5, R2, 4);
    program.network_order(R5);
    program.jump_value(Condition::Greater, R5, 15, take);
    program.shift_left(R5, 3);
    program.map_value(R1, words);
    program.add_register(R1, R5);
    program.load(Width::Double, R4, R1, 0);
    program.jump_value(Condition::NotEqual, R4, 0, take);

    program.place(pass);
    target.pass(program);
    program.place(take);
    target.take(program);
}

/// Jumps to `pass` with a frame that is only for the interface, and to `take` with others. The first four
/// bytes of the destination match the interface's address; the words are at R1.
fn for_station(program: &mut Assembler, target: &impl Target, (take, pass): (Label, Label)) {
    program.load(Width::Half, R5, R2, 4);
    program.load(Width::Double, R4, R1, offset(LAST));
    program.jump(Condition::NotEqual, R5, R4, take);
    target.untag(program, take);
    program.jump_value(Condition::NotEqual, R8, 0, take);
    program.jump_value(Condition::Equal, R9, network_order(EAPOL), pass);
    program.jump_value(Condition::Equal, R9, network_order(PTP), pass);
    program.go(take);
}

/// Returns the byte offset of a word.
#[expect(clippy::cast_possible_truncation, clippy::cast_possible_wrap, reason = "there are 18 words")]
const fn offset(word: usize) -> i16 {
    const { assert!(WORDS < 1 << 12, "offsets have 15 bits") };
    word as i16 * 8
}

/// Words: a flag for each link-local group, and the first four and last two bytes of the interface's MAC
/// address.
const FIRST: usize = 16;
const LAST: usize = 17;
const WORDS: usize = 18;
/// IEEE 802.1X-2020, table 11-4.
const EAPOL: u16 = 0x888e;
/// IEEE 1588-2019, annex E.
const PTP: u16 = 0x88f7;
