//! Backlog of a consumer that runs on the thread of the worker that sends to it.
//!
//! A consumer is an application in the gateway's process, behind a port, and has turns in the run queue like
//! a device. The worker measures the cost of a turn and bounds the backlog by time. While a consumer's
//! backlog is full, packets for it stay in their devices.

use core::sync::atomic::{AtomicU32, Ordering};

/// Number of packets that wait for a consumer, and the limit of that number.
///
/// The consumer counts packets in and out; the worker sets the limit.
#[derive(Debug)]
pub struct Backlog {
    limit: AtomicU32,
    waiting: AtomicU32,
    packets_each: AtomicU32,
}

/// Minimum and maximum of the limit, in packets.
const FEWEST: u32 = 8;
const MOST: u32 = 4096;

impl Default for Backlog {
    fn default() -> Self {
        Self::new(FEWEST)
    }
}

// Relaxed throughout: consumer and worker are one thread, otherwise the numbers are hints.
impl Backlog {
    /// An empty backlog with a limit of `limit` packets until the worker sets another.
    pub const fn new(limit: u32) -> Self {
        Self { limit: AtomicU32::new(limit), waiting: AtomicU32::new(0), packets_each: AtomicU32::new(1) }
    }

    /// Maximum number of waiting packets.
    pub fn limit(&self) -> u32 {
        self.limit.load(Ordering::Relaxed)
    }

    /// Number of waiting packets.
    pub fn waiting(&self) -> u32 {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Number of further packets that the consumer accepts: 0 until the backlog has fallen to half of the
    /// limit, so that devices are not polled for single packets.
    pub fn wanted(&self) -> u32 {
        let (limit, waiting) = (self.limit(), self.waiting());
        if waiting <= limit / 2 { limit - waiting } else { 0 }
    }

    /// True if the backlog exceeds the limit.
    pub fn is_exceeded(&self) -> bool {
        self.waiting() > self.limit()
    }

    /// Number of packets that the consumer generates for each packet it processes: more than one if a reply
    /// exceeds the link's maximum frame.
    pub fn packets_each(&self) -> u32 {
        self.packets_each.load(Ordering::Relaxed)
    }

    /// Sets the limit so that the backlog leads to `packets` generated packets.
    pub fn set_limit(&self, packets: u32) {
        let limit = (packets / self.packets_each()).clamp(FEWEST, MOST);
        self.limit.store(limit, Ordering::Relaxed);
    }

    /// Adds packets handed to the consumer.
    pub fn add(&self, packets: u32) {
        self.waiting.fetch_add(packets, Ordering::Relaxed);
    }

    /// Removes one processed packet, for which the consumer generated `packets` packets.
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
