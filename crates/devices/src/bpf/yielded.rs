//! Yielding: the word by which the packets of a router's port are left to the kernel, and its part of the program.
//!
//! ```text
//! word is 0? ─ yes ─────────────────────────────────────────────▶ carried flows, and packets that the router takes
//!   no: IPv4 or IPv6 whose bit is set? ─ no ────────────────────▶ the same
//!     yes: packets of a claimed tunnel? ─ yes ──────────────────▶ taken
//!       no ─────────────────────────────────────────────────────▶ the kernel
//! ```
//!
//! The kernel can forward packets between its interfaces but cannot decapsulate those of Polder's tunnels, so these
//! are taken in any case. Setting the word is a store to shared memory: no system call is between a notice and its
//! effect. A word other than 0 has the generation of the notice that set it in its upper bits, so a thread that
//! checked before cannot clear the effect of a later notice.
//!
//! Cost: a load and a predicted branch per packet.

use super::assembler::{Assembler, Condition, Label, Register, Width};
use super::classify::{ETHERNET, IPV4, Target, need, network_order};
use super::sys::SharedCounters;
use Register::{R7, R9};
use core::sync::atomic::{AtomicU64, Ordering};
use rustix::io::Errno;
use std::os::fd::{AsFd as _, BorrowedFd};

/// Packets of a router's port that are left to the kernel, by cause and family.
///
/// Each cause has a bit for IPv4 and one for IPv6.
#[derive(Debug)]
pub struct YieldWord(SharedCounters);

/// Reason why packets are left to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum YieldCause {
    /// A packet hook has appeared, or may have.
    Hook,
    /// A route by an interface that is no port, until the router's tables have it.
    Route,
    /// The kernel decides on the packets of the port: only connections are carried.
    Decision,
}

/// Address families that the kernel forwards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Families {
    /// True if the kernel forwards IPv4.
    pub v4: bool,
    /// True if the kernel forwards IPv6.
    pub v6: bool,
}

impl Families {
    /// True if the kernel forwards neither family.
    pub fn is_empty(self) -> bool {
        self == Self::default()
    }

    fn bits(self, cause: YieldCause) -> u64 {
        (u64::from(self.v4) | u64::from(self.v6) << 1) << cause.shift()
    }
}

impl YieldCause {
    fn shift(self) -> u32 {
        match self {
            Self::Hook => 0,
            Self::Route => 2,
            Self::Decision => 4,
        }
    }

    fn mask(self) -> u64 {
        3 << self.shift()
    }
}

impl YieldWord {
    /// Creates a word that leaves no packet to the kernel.
    pub(crate) fn new() -> Result<Self, Errno> {
        Ok(Self(SharedCounters::new("polder_yield", 1)?))
    }

    /// Leaves packets of these families to the kernel, for a cause, from the next packet on. `generation` is
    /// that of the last notice.
    pub fn leave(&self, cause: YieldCause, families: Families, generation: u64) {
        self.change(|word| {
            let generation = generation.max(word >> GENERATION_SHIFT);
            Some(of(word & BITS & !cause.mask() | families.bits(cause), generation))
        });
    }

    /// Ends a cause; returns `false` and changes nothing if a notice later than `generation` has set it.
    pub fn end(&self, cause: YieldCause, generation: u64) -> bool {
        self.change(|word| {
            let is_later = word & cause.mask() != 0 && word >> GENERATION_SHIFT > generation;
            (!is_later).then(|| of(word & BITS & !cause.mask(), word >> GENERATION_SHIFT))
        })
    }

    /// True if packets are left to the kernel for a cause.
    pub fn has(&self, cause: YieldCause) -> bool {
        // Relaxed: the check orders nothing.
        self.word().load(Ordering::Relaxed) & cause.mask() != 0
    }

    /// True if packets are left to the kernel.
    pub fn is_set(&self) -> bool {
        // Relaxed: the check orders nothing.
        self.word().load(Ordering::Relaxed) != 0
    }

    fn change(&self, change: impl Fn(u64) -> Option<u64>) -> bool {
        // AcqRel: a thread that clears the word has published its tables before, and one that sets it has
        // seen the cause. The program's load is a plain load of the whole word.
        self.word().fetch_update(Ordering::AcqRel, Ordering::Acquire, change).is_ok()
    }

    fn word(&self) -> &AtomicU64 {
        self.0.get(0)
    }

    /// Returns the descriptor for the program.
    pub(super) fn map(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Returns a word with those bits; 0 without any.
fn of(bits: u64, generation: u64) -> u64 {
    if bits == 0 { 0 } else { bits | generation << GENERATION_SHIFT }
}

/// Jumps to `yielded` for a packet that is left to the kernel unless it is of a tunnel; falls through for any
/// other. The context in R6 is kept.
pub(super) fn if_yielded(
    program: &mut Assembler,
    target: &impl Target,
    word: BorrowedFd<'_>,
    yielded: Label,
) {
    let [kept, ipv4] = [(); 2].map(|()| program.label());
    program.map_value(R7, word);
    program.load(Width::Double, R7, R7, 0);
    program.jump_value(Condition::Equal, R7, 0, kept);
    target.open(program);
    need(program, ETHERNET + IPV4, kept);
    target.untag(program, kept);
    program.jump_value(Condition::Equal, R9, network_order(0x0800), ipv4);
    program.jump_value(Condition::NotEqual, R9, network_order(0x86dd), kept);
    program.shift_right(R7, 1);
    program.place(ipv4);
    program.and(R7, OF_IPV4);
    program.jump_value(Condition::NotEqual, R7, 0, yielded);
    program.place(kept);
}

/// Bits of all causes, below the generation.
const BITS: u64 = 0x3f;
/// Bits of IPv4; those of IPv6 are one position higher.
const OF_IPV4: i32 = 0b01_0101;
const GENERATION_SHIFT: u32 = 8;

#[cfg(test)]
pub(crate) mod cases {
    use super::*;
    use crate::bpf::flows::packets::{plain, v4};
    use crate::bpf::take::{Ingress, Take, TunnelEndpoint, TunnelFields};
    use crate::bpf::taken::TakenMaps;
    use polder_datapath::tunnel::Ends;

    /// Fate of a packet at the program.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) enum Fate {
        Carried,
        Taken,
        Kernel,
    }

    /// A port with a tunnel whose packets are those of [`tunnelled`].
    pub(crate) fn take() -> Take {
        let ends = Ends::of("20.0.0.1".parse().expect("an address"), "10.0.0.6".parse().expect("an address"));
        let fields = TunnelFields::Gre { has_frames: true, key: None };
        Take::Routed(vec![TunnelEndpoint { ends: ends.expect("one family"), fields }])
    }

    /// Packets of both families that entries have, packets that they have not, and one of the tunnel.
    fn packets() -> [Vec<u8>; 5] {
        let [of_v4, of_v6] = plain();
        let unknown = |frame: &[u8], at: usize| {
            let mut frame = frame.to_vec();
            frame[at] ^= 4;
            frame
        };
        let others = [unknown(&v4(&[(19, 9)]), 13 + 14), unknown(&of_v6, 53)];
        let [other_v4, other_v6] = others;
        let mut tunnelled = v4(&[(9, 47), (15, 6)]);
        // A GRE header without options in front of a frame.
        tunnelled[34..38].copy_from_slice(&[0, 0, 0x65, 0x58]);
        [of_v4, of_v6, other_v4, other_v6, tunnelled]
    }

    /// A word that is set leaves what the router takes and what the program carries to the kernel, of its families alone;
    /// the program's entries are those of [`packets`](crate::bpf::flows::packets).
    pub(crate) fn leaves(maps: &TakenMaps, fate: impl Fn(&[u8]) -> Fate) {
        use Fate::{Carried, Kernel, Taken};
        maps.set_router(&[Ingress { mac: [2, 0, 0, 0, 0, 1], vlan: 0 }], &[]).expect("it routes");
        let word = maps.yield_word().expect("it routes");
        let fates = || packets().map(|packet| fate(&packet));
        fates();
        let before = [Carried, Carried, Taken, Taken, Taken];
        assert_eq!(fates(), before);
        let [v4, v6, both] = [(true, false), (false, true), (true, true)].map(|(v4, v6)| Families { v4, v6 });
        for cause in [YieldCause::Hook, YieldCause::Route] {
            word.leave(cause, v4, 1);
            assert_eq!(fates(), [Kernel, Carried, Kernel, Taken, Taken], "{cause:?}");
            word.leave(cause, v6, 2);
            assert_eq!(fates(), [Carried, Kernel, Taken, Kernel, Taken], "{cause:?}");
            word.leave(cause, both, 3);
            assert_eq!(fates(), [Kernel, Kernel, Kernel, Kernel, Taken], "{cause:?}");
            assert!(!word.end(cause, 2), "a later notice has come");
            assert_eq!(fates()[0], Kernel);
            assert!(word.end(cause, 3) && !word.is_set());
            assert_eq!(fates(), before, "{cause:?}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_ends_alone_and_not_by_what_was_read_before_a_later_notice() {
        // Without the right to make maps there is nothing to look at; the namespace tests say so.
        let Ok(word) = YieldWord::new() else { return };
        let both = Families { v4: true, v6: true };
        assert!(word.end(YieldCause::Hook, 7) && !word.is_set(), "nothing to end");
        word.leave(YieldCause::Hook, both, 1);
        word.leave(YieldCause::Route, both, 2);
        assert!(!word.end(YieldCause::Hook, 1) && word.end(YieldCause::Hook, 2) && word.is_set());
        assert!(word.end(YieldCause::Hook, 1), "it has ended");
        assert!(word.end(YieldCause::Route, 2) && !word.is_set());
        word.leave(YieldCause::Hook, both, 9);
        word.leave(YieldCause::Hook, both, 4);
        assert!(!word.end(YieldCause::Hook, 4) && word.has(YieldCause::Hook), "9 has come");
        assert!(word.end(YieldCause::Hook, 9) && !word.has(YieldCause::Hook));
        word.leave(YieldCause::Hook, Families::default(), 3);
        assert!(!word.is_set(), "a kernel that forwards nothing is left nothing");
    }
}
