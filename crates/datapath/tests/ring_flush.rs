//! A core under overload in virtual time: a worker with requests, and the kernel's thread that receives for it
//! only while it sleeps.

use polder_datapath::scheduler::{Ageing, POLL, RingFlush, WIRE, frames};
use polder_datapath::units::Nanos;
use std::collections::VecDeque;

/// Events on the core; all times in nanoseconds.
#[derive(Clone, Copy)]
struct Core {
    /// Between two packets that come.
    gap: u64,
    /// Of a request.
    service: u64,
    /// Time in which the thread takes a packet, kept or not.
    taking: u64,
    posted: u32,
}

/// Cost of a sleep, apart from the work in it.
const SWITCHING: u64 = 15_000;
/// Period of ring flushes.
const OFTEN: u64 = 2_000_000;
const END: u64 = 500_000_000;

/// Packets on the wire, by when they came.
#[derive(Default)]
struct Wire {
    packets: VecDeque<u64>,
    next: u64,
}

impl Wire {
    fn fill(&mut self, now: u64, gap: u64) {
        while self.next <= now {
            if self.packets.len() < WIRE as usize {
                self.packets.push_back(self.next);
            }
            self.next += gap;
        }
    }

    /// Flushes packets as the thread does, until `end`; returns their number.
    fn lose(&mut self, mut now: u64, end: u64, core: Core) -> u64 {
        self.fill(now, core.gap);
        let mut gone = 0;
        while now + core.taking <= end && self.packets.pop_front().is_some() {
            now += core.taking;
            gone += 1;
            self.fill(now, core.gap);
        }
        gone
    }
}

/// Empties the wire; when that has ended.
fn empty(wire: &mut Wire, mut now: u64, core: Core, ageing: &mut Ageing) -> u64 {
    let (mut flushing, mut nap) = (RingFlush::default(), Some(RingFlush::FIRST));
    while let Some(long) = nap {
        let gone = wire.lose(now + SWITCHING / 4, now + long.0, core);
        now += long.0 + SWITCHING / 4;
        ageing.came(gone);
        nap = flushing.next(gone, Nanos(gone * core.taking), long);
    }
    ageing.emptied(flushing);
    now
}

/// The part of the core that requests have, in thousandths, and the median of their age when they are done.
fn overloaded(core: Core, adapts: bool) -> (u64, u64) {
    let (mut wire, mut now, mut asked) = (Wire::default(), 0, 0);
    let (mut useful, mut ages, mut ageing) = (0, Vec::new(), Ageing::default());
    while now < END {
        if now >= asked + OFTEN {
            asked = now;
            if ageing.is_old() || !adapts {
                now = empty(&mut wire, now, core, &mut ageing);
            }
        }
        // The worker sleeps. The thread polls once, and wakes it.
        now += SWITCHING;
        wire.fill(now, core.gap);
        if wire.packets.is_empty() {
            now = wire.next;
            wire.fill(now, core.gap);
        }
        let taken = wire.packets.len().min(POLL as usize);
        now += core.taking * taken as u64;
        ageing.came(taken as u64);
        for came in wire.packets.drain(..taken).take(core.posted as usize) {
            now += core.service;
            useful += core.service;
            ages.push(now - came);
        }
    }
    ages.sort_unstable();
    (1000 * useful / now, ages[ages.len() / 2])
}

#[test]
fn a_wire_is_emptied_on_a_slow_core_too() {
    // 13 µs a request, five times as many as are answered, and from fast to slow to throw one away.
    for taking in [200, 400, 600] {
        let core = Core { gap: 2_500, service: 13_000, taking, posted: frames(54) };
        let (_, age) = overloaded(core, true);
        // What may wait, 54 posted and 40 in front of the service, and a fifth.
        assert!(age <= 94 * core.service * 6 / 5, "{age} ns, at {taken} ns a packet", taken = taking);
    }
}

#[test]
fn a_poll_brings_nothing_for_which_there_is_no_frame() {
    for taking in [300, 600] {
        // 50 µs, eleven times the capacity.
        let at = |posted| overloaded(Core { gap: 4_700, service: 52_000, taking, posted }, true).0;
        let (few, enough) = (at(16), at(frames(14)));
        assert!(enough >= few + 30, "{enough} thousandths of the core for requests, {few} with 16 frames");
    }
}

#[test]
fn what_is_young_is_not_thrown_away() {
    // Two and a half times the capacity; most of that is lost when it is received.
    for (gap, service, worth) in [(11_000, 26_000, 22), (20_600, 52_000, 14)] {
        for taking in [300, 400] {
            let core = Core { gap, service, taking, posted: frames(worth) };
            let [(often, _), (rarely, age)] = [false, true].map(|adapts| overloaded(core, adapts));
            assert!(rarely >= often + 10, "{rarely} thousandths of the core for requests, {often} without");
            assert!(age <= u64::from(core.posted) * service * 6 / 5, "{age} ns");
        }
    }
}

#[test]
fn emptying_ends() {
    let (idle, busy, nap) = (Nanos(5_000), Nanos(35_000), RingFlush::FIRST);
    assert!(RingFlush::default().next(u64::from(WIRE), busy, nap).is_none(), "all that was there is gone");
    assert!(RingFlush::default().next(40, idle, nap).is_none(), "there was nothing more");
    let mut flushing = RingFlush::default();
    let naps = (0..100).take_while(|_| flushing.next(20, busy, nap).is_some()).count();
    assert_eq!(naps, 7, "and an eighth");
    // Who could not empty it tries again as soon as is asked, and so does who found it full.
    let mut ageing = Ageing::default();
    ageing.came(5_000);
    ageing.emptied(flushing);
    assert!(ageing.is_old());
    let mut full = RingFlush::default();
    assert!(full.next(300, busy, nap).is_none());
    ageing.came(5_000);
    ageing.emptied(full);
    assert!(ageing.is_old());
    // Hardly anything in it: it is left as it is, and not for ever.
    let mut little = RingFlush::default();
    assert!(little.next(1, idle, nap).is_none());
    ageing.came(5_000);
    ageing.emptied(little);
    assert_eq!((0..100).take_while(|_| !ageing.is_old()).count(), 7);
}
