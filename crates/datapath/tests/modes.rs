//! The modes of a worker that shares its core with the kernel's thread which receives for it, in virtual time.
//!
//! By interrupts each packet wakes that thread, before the worker, and a wake-up costs nearly as much as a request; a
//! thread that is held runs while the worker sleeps. What is measured is how long packets wait.

use polder_datapath::port::Driven;
use polder_datapath::scheduler::{Mode, PollMode};
use polder_datapath::units::Nanos;
use std::collections::VecDeque;

/// Cost of a wake-up of the kernel's thread, and of a packet in it.
const WAKE: u64 = 8_000;
const COPY: u64 = 1_000;
/// The same when the thread has to be let go first, and runs at once.
const LET_GO: u64 = 4_000;
/// Time of a request, further time of each round, and time of a wake-up of the worker.
const REQUEST: u64 = 11_000;
const ROUND: u64 = 500;
const WOKEN: u64 = 5_000;
/// Requests of a round, packets of one poll of the kernel's, and capacities of the wire and the ring.
const TURN: usize = 32;
const POLL: usize = 64;
const WIRE: usize = 256;
const RING: usize = 2048;
/// Period with which another thread takes the core, and for how long.
const EVERY: u64 = 150_000_000;
const TAKEN: u64 = 6_000_000;
const SECOND: u64 = 1_000_000_000;
const MILLI: u64 = 1_000_000;

/// A core with a worker and the kernel's thread, and packets that come in even distances.
struct Core {
    now: u64,
    pace: PollMode,
    mode: Mode,
    gap: u64,
    /// Time at which the next packet comes, and until when there are some.
    next: u64,
    end: u64,
    /// Time at which those came that are on the wire, and in the ring.
    wire: VecDeque<u64>,
    ring: VecDeque<u64>,
    /// Time at which the kernel's thread ran last.
    polled: u64,
    /// Time at which another thread has the core next.
    taken: u64,
    waits: Vec<u64>,
    lost: u64,
    changes: u32,
}

impl Core {
    fn new() -> Self {
        Self {
            now: 1,
            pace: PollMode::default(),
            mode: Mode::Interrupts,
            gap: SECOND,
            next: 1,
            end: 1,
            wire: VecDeque::new(),
            ring: VecDeque::new(),
            polled: 0,
            taken: u64::MAX,
            waits: Vec::new(),
            lost: 0,
            changes: 0,
        }
    }

    fn arrive(&mut self) {
        while self.next <= self.now.min(self.end) {
            if self.wire.len() < WIRE {
                self.wire.push_back(self.next)
            } else {
                self.lost += 1
            }
            self.next += self.gap;
        }
    }

    /// Time of the next wake-up of the kernel's thread, if nothing holds it.
    fn wakes_at(&self) -> u64 {
        let first = self.wire.front().copied().unwrap_or(self.next);
        let after = if self.mode == Mode::Throttled { self.polled + PollMode::THROTTLE.0 } else { 0 };
        first.max(after).max(self.now)
    }

    /// The kernel's thread runs.
    fn poll(&mut self, wake: u64) {
        self.now += wake;
        self.arrive();
        let packets = self.wire.len().min(POLL);
        for came in self.wire.drain(..packets) {
            if self.ring.len() < RING { self.ring.push_back(came) } else { self.lost += 1 }
        }
        self.now += COPY * packets as u64;
        self.polled = self.now;
        self.arrive();
    }

    /// The worker works, and is preempted by a thread that it does not hold.
    fn work(&mut self, mut time: u64) {
        while self.mode != Mode::Polled {
            let at = self.wakes_at();
            if at >= self.now + time || at > self.end {
                break;
            }
            time -= at - self.now;
            self.now = at;
            self.poll(WAKE);
        }
        self.now += time;
        self.arrive();
    }

    /// One round of the worker, and its sleep.
    fn round(&mut self) {
        if self.now >= self.taken {
            self.work(TAKEN);
            self.taken += EVERY;
        }
        let start = self.now;
        let packets = self.ring.len().min(TURN);
        for _ in 0..packets {
            let Some(came) = self.ring.pop_front() else { break };
            self.work(REQUEST);
            self.waits.push(self.now - came);
        }
        self.work(ROUND);
        if let Some(mode) = self.pace.cycle(Nanos(start), u32::try_from(packets).expect("a turn")) {
            (self.mode, self.changes) = (mode, self.changes + 1);
            self.pace.set_driven(Driven::Asleep);
        }
        if packets > 0 || !self.ring.is_empty() || self.pace.must_poll(Nanos(self.now)) {
            return;
        }
        self.pace.sleeps(Nanos(self.now));
        let held = self.mode == Mode::Polled;
        let at = if held {
            self.wire.front().copied().unwrap_or(self.next).max(self.now)
        } else {
            self.wakes_at()
        };
        if at > self.end {
            self.now = self.end;
            return;
        }
        // A thread that waits for the core need not be woken.
        let waited = held && at == self.now;
        self.now = at;
        self.poll(if waited { LET_GO } else { WAKE });
        self.pace.record_wakeup();
        self.work(WOKEN);
    }

    /// Load of `rate` packets a second for `time`: median and 90th percentile of their wait in
    /// microseconds.
    fn load(&mut self, rate: u64, time: u64) -> (u64, u64) {
        (self.gap, self.next, self.end) = (SECOND / rate, self.now, self.now + time);
        self.waits.clear();
        while self.now < self.end {
            self.round();
        }
        self.waits.sort_unstable();
        let at =
            |part: usize| self.waits.get(self.waits.len() * part / 100).map_or(u64::MAX, |wait| wait / 1000);
        (at(50), at(90))
    }
}

/// Requests that can be answered in a second without wake-ups.
const CAPACITY: u64 = SECOND / (REQUEST + COPY);

#[test]
fn no_queue_stands_at_any_load_below_the_capacity() {
    // Loads one after the other, each of which may leave behind what it tried in vain.
    let mut core = Core::new();
    core.taken = EVERY;
    for percent in [50, 50, 65, 80, 50, 65, 90, 40, 70, 30, 85] {
        let (median, slow) = core.load(CAPACITY * percent / 100, 2 * SECOND);
        assert!(median <= 300, "at {percent} %: p50 {median}, p90 {slow} µs, {:?}", core.mode);
        assert!(slow <= 3_000, "at {percent} %: p50 {median}, p90 {slow} µs, {:?}", core.mode);
    }
}

#[test]
fn what_interrupts_alone_would_do_is_a_queue_that_stands() {
    // The negative control: the same core, whose worker never polls.
    let mut core = Core::new();
    core.load(CAPACITY / 2, SECOND);
    let end = core.now + SECOND;
    (core.gap, core.next, core.end) = (100 * SECOND / (CAPACITY * 65), core.now, end);
    core.waits.clear();
    while core.now < end {
        core.pace = PollMode::default();
        core.mode = Mode::Interrupts;
        core.round();
    }
    core.waits.sort_unstable();
    assert!(core.waits[core.waits.len() / 2] > 5 * MILLI);
}

#[test]
fn modes_do_not_flap_beside_the_kernels_thread() {
    const SECONDS: u64 = 10;
    for percent in (1..=150).step_by(3) {
        let mut core = Core::new();
        core.load(CAPACITY * percent / 100, SECONDS * SECOND);
        // Polling is kept longer each time that it was left too soon.
        let most = 2 * (8 + u32::try_from(SECONDS).expect("few"));
        assert!(core.changes <= most, "{} changes at {percent} %", core.changes);
    }
}

#[test]
fn who_sleeps_to_receive_does_not_sleep_for_long() {
    let mut core = Core::new();
    core.load(CAPACITY * 120 / 100, SECOND);
    assert_eq!(core.mode, Mode::Polled);
    assert!(core.pace.longest_sleep().is_some_and(|longest| longest.0 <= MILLI));
    core.load(CAPACITY / 50, 200 * MILLI);
    assert_eq!(core.pace.longest_sleep(), None, "whoever polls nothing sleeps until it is woken");
}

#[test]
fn who_polls_sleeps_by_what_the_devices_do_meanwhile() {
    let mut pace = PollMode::default();
    let mut now = Nanos(1);
    // No rest at all: the worker is behind.
    while pace.mode() != Mode::Polled {
        now = now + Nanos(100_000);
        assert!(now < Nanos::SECOND);
        let _: Option<Mode> = pace.cycle(now, 64);
    }
    let later = now + Nanos::from_millis(1);
    let rests = [Driven::Yes, Driven::BySenders, Driven::Asleep].map(|driven| {
        pace.set_driven(driven);
        (pace.must_poll(later), pace.longest_sleep().is_some())
    });
    assert_eq!(rests, [(true, false), (false, false), (false, true)]);
}

#[test]
fn a_load_that_goes_away_leaves_nothing_polled() {
    let mut core = Core::new();
    for percent in [90, 120, 65] {
        core.load(CAPACITY * percent / 100, 2 * SECOND);
        core.load(CAPACITY / 50, 200 * MILLI);
        assert_ne!(core.mode, Mode::Polled, "after {percent} %");
    }
}
