//! CoDel (RFC 8289): drops packets if even the minimum sojourn time of an interval exceeds the target.
//!
//! The names are those of the RFC's pseudo-code (section 5), for comparison. One deviation, which the RFC
//! allows (5.5): the square root is computed in double precision and not approximated.

use super::{Fifo, QueueDiscipline, Refusal};
use crate::units::Nanos;
use core::any::Any;
use polder_buffers::Packet;

/// Parameters of CoDel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodelOptions {
    /// Acceptable standing delay (RFC 8289, 4.4).
    pub target: Nanos,
    /// Time for which the delay may exceed the target; at least the round-trip time of most of the traffic
    /// (4.3).
    pub interval: Nanos,
    /// Maximum packet length in bytes: no packet is dropped while the queue has no more bytes than that.
    pub longest_packet: u64,
}

impl Default for CodelOptions {
    /// 5 ms and 100 ms, as the RFC advises for the Internet; Ethernet's maximum frame.
    fn default() -> Self {
        Self { target: Nanos::from_millis(5), interval: Nanos::from_millis(100), longest_packet: 1514 }
    }
}

/// CoDel with its parameters.
#[derive(Debug)]
pub struct Codel {
    options: CodelOptions,
    state: CodelState,
}

/// CoDel's state of one queue; not dropping at first.
#[derive(Clone, Copy, Debug, Default)]
pub struct CodelState {
    /// Time at which the delay will have exceeded the target for an interval; `None` while it is below.
    first_above_time: Option<Nanos>,
    /// Time of the next drop.
    drop_next: Nanos,
    /// Number of packets dropped in this dropping state.
    count: u32,
    /// Value of `count` at the start of the last dropping state.
    last_count: u32,
    dropping: bool,
}

/// A dequeued packet, and true if it may be dropped.
struct Taken<T> {
    packet: Option<T>,
    ok_to_drop: bool,
}

impl Codel {
    /// Initial state, not dropping.
    pub fn new(options: CodelOptions) -> Self {
        Self { options, state: CodelState::default() }
    }

    /// Returns the next packet to send. `next` dequeues a packet and returns it with its time of arrival and
    /// the bytes left in the queue. `drop` gets packets that are dropped.
    pub fn take<T>(
        &mut self,
        now: Nanos,
        next: impl FnMut() -> Option<(T, Nanos, u64)>,
        mut drop: impl FnMut(T),
    ) -> Option<T> {
        let drop = |packet| {
            drop(packet);
            None
        };
        self.state.take(&self.options, now, next, drop)
    }
}

impl CodelState {
    /// As [`Codel::take`]; `signal` gets packets that signal congestion, and returns those that it has marked
    /// and not dropped.
    #[inline]
    pub fn take<T>(
        &mut self,
        options: &CodelOptions,
        now: Nanos,
        mut next: impl FnMut() -> Option<(T, Nanos, u64)>,
        mut signal: impl FnMut(T) -> Option<T>,
    ) -> Option<T> {
        let taken = self.do_dequeue(options, now, &mut next);
        self.dropping &= taken.ok_to_drop;
        match (self.dropping, taken.ok_to_drop) {
            (true, _) => self.go_on(options, taken, now, next, signal),
            (false, true) => {
                let marked = taken.packet.and_then(&mut signal);
                let packet = marked.or_else(|| self.do_dequeue(options, now, &mut next).packet);
                self.begin(options, now);
                packet
            }
            (false, false) => taken.packet,
        }
    }

    /// Marks or drops the packets that are due.
    fn go_on<T>(
        &mut self,
        options: &CodelOptions,
        mut taken: Taken<T>,
        now: Nanos,
        mut next: impl FnMut() -> Option<(T, Nanos, u64)>,
        mut signal: impl FnMut(T) -> Option<T>,
    ) -> Option<T> {
        while self.dropping && now >= self.drop_next {
            self.count = self.count.saturating_add(1);
            let marked = taken.packet.and_then(&mut signal);
            if marked.is_some() {
                self.drop_next = self.control_law(options, self.drop_next);
                return marked;
            }
            taken = self.do_dequeue(options, now, &mut next);
            self.dropping = taken.ok_to_drop;
            if self.dropping {
                self.drop_next = self.control_law(options, self.drop_next);
            }
        }
        taken.packet
    }

    /// Enters the dropping state: at the former drop rate if the last one ended recently.
    fn begin(&mut self, options: &CodelOptions, now: Nanos) {
        self.dropping = true;
        let delta = self.count.saturating_sub(self.last_count);
        let recent = now.since(self.drop_next).0 < 16 * options.interval.0;
        self.count = if delta > 1 && recent { delta } else { 1 };
        self.drop_next = self.control_law(options, now);
        self.last_count = self.count;
    }

    fn do_dequeue<T>(
        &mut self,
        options: &CodelOptions,
        now: Nanos,
        mut next: impl FnMut() -> Option<(T, Nanos, u64)>,
    ) -> Taken<T> {
        let Some((packet, came, bytes)) = next() else {
            self.first_above_time = None;
            return Taken { packet: None, ok_to_drop: false };
        };
        let mut ok_to_drop = false;
        if now.since(came) < options.target || bytes <= options.longest_packet {
            self.first_above_time = None;
        } else {
            match self.first_above_time {
                None => self.first_above_time = Some(now + options.interval),
                Some(time) => ok_to_drop = now >= time,
            }
        }
        Taken { packet: Some(packet), ok_to_drop }
    }

    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a time of at most seconds, divided by a number of at least 1"
    )]
    fn control_law(&self, options: &CodelOptions, time: Nanos) -> Nanos {
        time + Nanos((options.interval.0 as f64 / f64::from(self.count).sqrt()) as u64)
    }
}

/// A queue with CoDel.
#[derive(Debug)]
pub(super) struct CodelQueue {
    fifo: Fifo,
    codel: Codel,
}

impl CodelQueue {
    pub(super) fn new(options: CodelOptions, fifo: Fifo) -> Self {
        Self { fifo, codel: Codel::new(options) }
    }

    /// Changes the parameters.
    pub(super) fn adjust(&mut self, options: CodelOptions) {
        self.codel.options = options;
    }
}

impl QueueDiscipline for CodelQueue {
    fn enqueue(&mut self, packet: Packet, came: Nanos, refuse: &mut dyn FnMut(Packet, Refusal)) {
        self.fifo.enqueue(packet, came, refuse);
    }

    fn dequeue(&mut self, now: Nanos, refuse: &mut dyn FnMut(Packet, Refusal)) -> Option<(Packet, Nanos)> {
        let next = || {
            let (packet, came) = self.fifo.pop()?;
            Some(((packet, came), came, self.fifo.bytes()))
        };
        self.codel.take(now, next, |(packet, _)| refuse(packet, Refusal::Delay))
    }

    fn pop(&mut self) -> Option<(Packet, Nanos)> {
        self.fifo.pop()
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }

    fn len(&self) -> usize {
        self.fifo.len()
    }

    fn bytes(&self) -> u64 {
        self.fifo.bytes()
    }
}

#[cfg(test)]
#[expect(
    clippy::excessive_nesting,
    clippy::cast_possible_truncation,
    reason = "the oracle is laid out as in the RFC"
)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    const MILLIS: u64 = 1_000_000;

    /// The pseudo-code of RFC 8289, section 5, word for word, with numbers for packets.
    #[derive(Default)]
    struct PseudoCode {
        queue: VecDeque<(u32, u64, u64)>,
        bytes: u64,
        first_above_time: u64,
        drop_next: u64,
        count: u64,
        lastcount: u64,
        dropping: bool,
        dropped: Vec<u32>,
    }

    impl PseudoCode {
        const TARGET: u64 = 5 * MILLIS;
        const INTERVAL: u64 = 100 * MILLIS;
        const MAXPACKET: u64 = 1514;

        fn control_law(t: u64, count: u64) -> u64 {
            t + (Self::INTERVAL as f64 / (count as f64).sqrt()) as u64
        }

        fn dodequeue(&mut self, now: u64) -> (Option<u32>, bool) {
            let packet = self.queue.pop_front();
            let Some((number, tstamp, bytes)) = packet else {
                self.first_above_time = 0;
                return (None, false);
            };
            self.bytes -= bytes;
            let mut ok_to_drop = false;
            let sojourn_time = now - tstamp;
            if sojourn_time < Self::TARGET || self.bytes <= Self::MAXPACKET {
                self.first_above_time = 0;
            } else if self.first_above_time == 0 {
                self.first_above_time = now + Self::INTERVAL;
            } else if now >= self.first_above_time {
                ok_to_drop = true;
            }
            (Some(number), ok_to_drop)
        }

        fn deque(&mut self, now: u64) -> Option<u32> {
            let mut r = self.dodequeue(now);
            if self.dropping {
                if !r.1 {
                    self.dropping = false;
                }
                r = self.drop_while_due(now, r);
            } else if r.1 {
                self.dropped.extend(r.0);
                r = self.dodequeue(now);
                self.dropping = true;
                let delta = self.count - self.lastcount;
                self.count = 1;
                if delta > 1 && now.saturating_sub(self.drop_next) < 16 * Self::INTERVAL {
                    self.count = delta;
                }
                self.drop_next = Self::control_law(now, self.count);
                self.lastcount = self.count;
            }
            r.0
        }

        fn drop_while_due(&mut self, now: u64, mut r: (Option<u32>, bool)) -> (Option<u32>, bool) {
            while now >= self.drop_next && self.dropping {
                self.dropped.extend(r.0);
                self.count += 1;
                r = self.dodequeue(now);
                if r.1 {
                    self.drop_next = Self::control_law(self.drop_next, self.count);
                } else {
                    self.dropping = false;
                }
            }
            r
        }
    }

    /// [`Codel`] with the same kind of queue.
    struct Ours {
        queue: VecDeque<(u32, Nanos, u64)>,
        bytes: u64,
        codel: Codel,
        dropped: Vec<u32>,
    }

    impl Ours {
        fn new(options: CodelOptions) -> Self {
            Self { queue: VecDeque::new(), bytes: 0, codel: Codel::new(options), dropped: Vec::new() }
        }

        fn put(&mut self, number: u32, now: Nanos, bytes: u64) {
            self.queue.push_back((number, now, bytes));
            self.bytes += bytes;
        }

        fn take(&mut self, now: Nanos) -> Option<u32> {
            let Self { queue, bytes, codel, dropped } = self;
            let next = || {
                let (number, came, length) = queue.pop_front()?;
                *bytes -= length;
                Some((number, came, *bytes))
            };
            codel.take(now, next, |number| dropped.push(number))
        }
    }

    proptest! {
        #[test]
        fn it_does_what_the_pseudo_code_does(
            // Load in per cent of the link's rate, and for how many packets of the link's time.
            phases in proptest::collection::vec((10..300_u64, 100..3000_u64, 64..1514_u64), 1..8),
        ) {
            let (mut ours, mut theirs) = (Ours::new(CodelOptions::default()), PseudoCode::default());
            // The time of the link: 1 ms a packet. It starts late, for 0 means never to the pseudo-code.
            let (mut now, mut number, mut due) = (1000 * MILLIS, 0, 0);
            for (load, ticks, bytes) in phases {
                for _ in 0..ticks {
                    due += load;
                    while due >= 100 {
                        due -= 100;
                        ours.put(number, Nanos(now), bytes);
                        theirs.queue.push_back((number, now, bytes));
                        theirs.bytes += bytes;
                        number += 1;
                    }
                    now += MILLIS;
                    prop_assert_eq!(ours.take(Nanos(now)), theirs.deque(now));
                }
                prop_assert_eq!(&ours.dropped, &theirs.dropped);
            }
        }
    }

    /// Sends a packet every `service` while one arrives every `arrival`, until `time`; returns the packets
    /// sent, the packets dropped and the last wait.
    fn overload(arrival: u64, service: u64, time: u64, options: CodelOptions) -> (u64, u64, u64) {
        let mut ours = Ours::new(options);
        let (mut sent, mut wait, mut next_arrival, mut number) = (0, 0, 0, 0);
        let mut now = 0;
        while now < time {
            now += service;
            while next_arrival <= now {
                ours.put(number, Nanos(next_arrival), 1000);
                number += 1;
                next_arrival += arrival;
            }
            let came = ours.queue.iter().map(|&(number, came, _)| (number, came)).collect::<Vec<_>>();
            if let Some(number) = ours.take(Nanos(now)) {
                sent += 1;
                wait =
                    now - came.iter().find(|&&(other, _)| other == number).map_or(now, |&(_, came)| came.0);
            }
        }
        (sent, ours.dropped.len() as u64, wait)
    }

    #[test]
    fn a_light_load_and_a_short_burst_lose_nothing() {
        assert_eq!(overload(2 * MILLIS, MILLIS, 2000 * MILLIS, CodelOptions::default()).1, 0);
        let mut ours = Ours::new(CodelOptions::default());
        (0..60).for_each(|number| ours.put(number, Nanos(0), 1000));
        (0..60).for_each(|tick| assert_eq!(ours.take(Nanos(u64::from(tick + 1) * MILLIS)), Some(tick)));
        assert_eq!(ours.dropped, []);
    }

    #[test]
    fn a_standing_queue_is_brought_down_to_the_target() {
        let options = CodelOptions { interval: Nanos::from_millis(10), ..CodelOptions::default() };
        // A fifth more than the link sends.
        let (sent, dropped, wait) = overload(MILLIS / 12, MILLIS / 10, 4000 * MILLIS, options);
        let share = dropped * 100 / (sent + dropped);
        assert!((14..=19).contains(&share), "{share} % dropped, of which a sixth is too much");
        assert!(wait < 50 * MILLIS, "{} ms at the end, of 800 without it", wait / MILLIS);
    }
}
