//! Backlog of a consumer, which works on the time of the worker that sends to it.
//!
//! A consumer is behind a port, as an application in the gateway's process is, and has its turns in the run queue like a
//! device. The worker measures what a turn costs, and bounds the backlog by time; packets for a consumer that wants
//! none stay in their devices.

use core::sync::atomic::{AtomicU32, Ordering};

/// Number of packets that wait for a consumer, and how many may.
///
/// The consumer counts what comes and what it has done; the worker sets the limit.
#[derive(Debug)]
pub struct Backlog {
    limit: AtomicU32,
    waiting: AtomicU32,
    packets_each: AtomicU32,
}

/// Number of packets that may wait at least, and at most.
const FEWEST: u32 = 8;
const MOST: u32 = 4096;

impl Default for Backlog {
    fn default() -> Self {
        Self::new(FEWEST)
    }
}

// Relaxed throughout: consumer and worker are one thread, or the numbers are a hint.
impl Backlog {
    /// An empty backlog with that limit until the worker sets another.
    pub const fn new(limit: u32) -> Self {
        Self { limit: AtomicU32::new(limit), waiting: AtomicU32::new(0), packets_each: AtomicU32::new(1) }
    }

    /// Number of packets that may wait.
    pub fn limit(&self) -> u32 {
        self.limit.load(Ordering::Relaxed)
    }

    /// Number of packets that wait.
    pub fn waiting(&self) -> u32 {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Number of packets more that the consumer wants: none until half of the limit is done, so that devices are not
    /// asked for every single packet.
    pub fn wanted(&self) -> u32 {
        let (limit, waiting) = (self.limit(), self.waiting());
        if waiting <= limit / 2 { limit - waiting } else { 0 }
    }

    /// True if more packets wait than may.
    pub fn is_exceeded(&self) -> bool {
        self.waiting() > self.limit()
    }

    /// Number of packets that the consumer brings for each that it was given: more than one where its answers are longer
    /// than the network takes.
    pub fn packets_each(&self) -> u32 {
        self.packets_each.load(Ordering::Relaxed)
    }

    /// Lets as many packets wait as lead to `packets` that the consumer brings.
    pub fn set_limit(&self, packets: u32) {
        let limit = (packets / self.packets_each()).clamp(FEWEST, MOST);
        self.limit.store(limit, Ordering::Relaxed);
    }

    /// Counts packets that the consumer was given.
    pub fn add(&self, packets: u32) {
        self.waiting.fetch_add(packets, Ordering::Relaxed);
    }

    /// Counts one packet as done, for which the consumer brings so many, or none.
    pub fn done(&self, packets: u32) {
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        self.packets_each.store(packets.max(1), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_wanted_until_half_is_done() {
        let backlog = Backlog::default();
        assert_eq!((backlog.wanted(), backlog.limit(), backlog.is_exceeded()), (FEWEST, FEWEST, false));
        backlog.set_limit(24);
        backlog.add(24);
        assert_eq!((backlog.wanted(), backlog.is_exceeded()), (0, false));
        backlog.add(1);
        assert!(backlog.is_exceeded());
        (0..12).for_each(|_| backlog.done(1));
        assert_eq!((backlog.waiting(), backlog.wanted()), (13, 0));
        backlog.done(1);
        assert_eq!(backlog.wanted(), 12);
    }

    #[test]
    fn the_limit_is_in_packets_that_are_brought_and_has_bounds() {
        let backlog = Backlog::default();
        let limit = |packets| {
            backlog.set_limit(packets);
            backlog.limit()
        };
        assert_eq!((limit(96), limit(0), limit(u32::MAX)), (96, FEWEST, MOST));
        backlog.add(2);
        backlog.done(2);
        assert_eq!((backlog.packets_each(), limit(96)), (2, 48));
        backlog.done(0);
        assert_eq!((backlog.packets_each(), limit(96)), (1, 96));
    }
}
