//! Frames of a bridge's port itself, which its program leaves to the kernel: daemons on the interface hear them.
//!
//! ```text
//! to 01:80:c2:00:00:00 to :0f, with a tag or without? ─ yes ─▶ a group that the bridge forwards? ─ no ─▶ the kernel
//!   to the interface's own address? ─ no ─▶ taken                        └ yes ─▶ taken
//!     without a tag or with a priority alone, 802.1X or PTP? ─ yes ─▶ the kernel
//!       no ─▶ taken
//! ```
//!
//! Cost: one load and two comparisons for a frame of the bridge. What the port's program carries is looked at before: its
//! flows are between stations, and the bridge knows the interface's address for none of another port.

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

/// Words by which a program knows such frames; it reads them for each packet.
#[derive(Debug)]
pub(crate) struct PortFrames(SharedCounters);

impl PortFrames {
    /// The words of an interface with that address, on a bridge that forwards `groups`.
    pub(crate) fn new(mac: [u8; 6], groups: ForwardGroups) -> Result<Self, Errno> {
        let words = Self(SharedCounters::new("polder_port", WORDS)?);
        words.set_mac(mac);
        words.set_groups(groups);
        Ok(words)
    }

    /// Sets the interface's address.
    pub(crate) fn set_mac(&self, [a, b, c, d, e, f]: [u8; 6]) {
        // Relaxed: programs that meet one word of each address leave a frame to the bridge.
        self.0.get(FIRST).store(u32::from_ne_bytes([a, b, c, d]).into(), Ordering::Relaxed);
        self.0.get(LAST).store(u16::from_ne_bytes([e, f]).into(), Ordering::Relaxed);
    }

    /// Sets the link-local groups that the bridge forwards.
    pub(crate) fn set_groups(&self, groups: ForwardGroups) {
        for last in 0..16 {
            // Relaxed: flags that order nothing.
            self.0.get(last.into()).store(groups.contains(last).into(), Ordering::Relaxed);
        }
    }
}

impl AsFd for PortFrames {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Takes the frames of a bridge, and leaves those of the port itself to the kernel.
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

/// Jumps to `pass` with a frame that is for the interface alone, and to `take` with others. The first four bytes of the
/// destination are those of the interface's address, and the words are at R1.
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

/// Offset of a word.
#[expect(clippy::cast_possible_truncation, clippy::cast_possible_wrap, reason = "there are 18 words")]
const fn offset(word: usize) -> i16 {
    const { assert!(WORDS < 1 << 12, "offsets have 15 bits") };
    word as i16 * 8
}

/// Words: a flag for each link-local group, and the first four and last two bytes of the interface's address.
const FIRST: usize = 16;
const LAST: usize = 17;
const WORDS: usize = 18;
/// IEEE 802.1X-2020, table 11-4.
const EAPOL: u16 = 0x888e;
/// IEEE 1588-2019, annex E.
const PTP: u16 = 0x88f7;
