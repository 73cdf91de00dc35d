//! The two ends of a flow: who sends, who counts. One of them stands behind our driver, the other one is
//! the link partner of the adapter.
//!
//! A UDP flow is sent as fast as the link carries it. A TCP flow is a closed loop: a window of segments,
//! an acknowledgement for every second one, and everything again from the last acknowledged one when
//! nothing has come for a while. No stack is involved: what is measured is the driver.

use super::frames::{Protocol, number, set_number};
use polder_datapath::units::Nanos;

/// Segments on their way at most: six milliseconds of the link, less than a receiver's URBs hold.
const WINDOW: u32 = 512;
/// Segments that one acknowledgement covers.
const COVERED: u32 = 2;
/// Time without an acknowledgement after which everything is sent again.
const TIMEOUT: Nanos = Nanos::from_millis(20);
/// Time after which an acknowledgement is sent for a single segment.
const DELAY: Nanos = Nanos::from_millis(1);

/// An end that sends data.
#[derive(Debug)]
pub(super) struct Sender {
    protocol: Protocol,
    frame: Vec<u8>,
    next: u32,
    acknowledged: u32,
    heard: Nanos,
    /// Frames sent, repetitions included.
    pub(super) sent: u64,
    /// Times that everything was sent again.
    pub(super) timeouts: u64,
}

impl Sender {
    pub(super) fn new(protocol: Protocol, now: Nanos) -> Self {
        let frame = protocol.data();
        Self { protocol, frame, next: 0, acknowledged: 0, heard: now, sent: 0, timeouts: 0 }
    }

    /// True if there is data to send.
    pub(super) fn is_ready(&mut self, now: Nanos) -> bool {
        if self.protocol == Protocol::Udp {
            return true;
        }
        if now.since(self.heard) > TIMEOUT && self.next != self.acknowledged {
            (self.next, self.heard) = (self.acknowledged, now);
            self.timeouts += 1;
        }
        self.next.wrapping_sub(self.acknowledged) < WINDOW
    }

    /// The next frame.
    pub(super) fn next(&mut self) -> &[u8] {
        set_number(&mut self.frame, self.next);
        self.next = self.next.wrapping_add(1);
        self.sent += 1;
        &self.frame
    }

    /// A frame has come back.
    pub(super) fn hear(&mut self, frame: &[u8], now: Nanos) {
        let Some(next) = number(frame) else { return };
        let news = next.wrapping_sub(self.acknowledged);
        if (1..=WINDOW).contains(&news) {
            self.acknowledged = next;
            self.heard = now;
            // What was sent again may have been there already.
            if self.next.wrapping_sub(next) > WINDOW {
                self.next = next;
            }
        }
    }
}

/// An end that receives data.
#[derive(Debug)]
pub(super) struct Receiver {
    protocol: Protocol,
    frame: Vec<u8>,
    expected: u32,
    owed: u32,
    last: Nanos,
    /// Frames received, each counted once, TCP's in order.
    pub(super) received: u64,
    /// Frames received, including dropped ones.
    pub(super) came: u64,
    /// Frames that were not as they were sent.
    pub(super) damaged: u64,
}

impl Receiver {
    pub(super) fn new(protocol: Protocol) -> Self {
        let frame = protocol.acknowledgement();
        Self { protocol, frame, expected: 0, owed: 0, last: Nanos(0), received: 0, came: 0, damaged: 0 }
    }

    /// A frame has come.
    pub(super) fn take(&mut self, frame: &[u8], now: Nanos) {
        self.came += 1;
        let Some(number) = number(frame) else {
            self.damaged += 1;
            return;
        };
        self.owed += 1;
        self.last = now;
        if self.protocol == Protocol::Udp {
            self.received += 1;
        } else if number == self.expected {
            self.expected = self.expected.wrapping_add(1);
            self.received += 1;
        }
    }

    /// The acknowledgement that is due, if one is.
    pub(super) fn answer(&mut self, now: Nanos) -> Option<&[u8]> {
        let due = self.owed >= COVERED || self.owed > 0 && now.since(self.last) > DELAY;
        if self.protocol == Protocol::Udp || !due {
            return None;
        }
        self.owed = self.owed.saturating_sub(COVERED);
        set_number(&mut self.frame, self.expected);
        Some(&self.frame)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every seventh frame is lost, every fifth acknowledgement too: all the same everything arrives.
    #[test]
    fn a_loop_with_losses_goes_on() {
        let mut now = Nanos(1);
        let (mut sender, mut receiver) = (Sender::new(Protocol::Tcp, now), Receiver::new(Protocol::Tcp));
        let mut answers = 0;
        while receiver.received < 5000 {
            now = now + Nanos(12_000);
            if sender.is_ready(now) {
                let frame = sender.next().to_vec();
                let arrives = !sender.sent.is_multiple_of(1007);
                arrives.then(|| receiver.take(&frame, now));
            }
            if let Some(answer) = receiver.answer(now).map(<[u8]>::to_vec) {
                answers += 1;
                (answers % 5 != 0).then(|| sender.hear(&answer, now));
            }
            assert!(now < Nanos::from_seconds(10), "stuck at {}", receiver.received);
        }
        assert!(sender.timeouts > 0 && receiver.damaged == 0);
    }

    #[test]
    fn datagrams_need_no_answer() {
        let mut sender = Sender::new(Protocol::Udp, Nanos(1));
        let mut receiver = Receiver::new(Protocol::Udp);
        for _ in 0..1000 {
            assert!(sender.is_ready(Nanos(1)));
            let frame = sender.next().to_vec();
            receiver.take(&frame, Nanos(1));
            assert!(receiver.answer(Nanos::from_seconds(1)).is_none());
        }
        assert_eq!((sender.sent, receiver.received), (1000, 1000));
    }
}
