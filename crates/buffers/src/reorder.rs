//! Reorder buffer: values are released in the order of their tickets, however late each arrives.
//!
//! One thread owns the [`TicketCounter`] and draws tickets. One thread owns the [`ReorderBuffer`], which
//! stores redeemed values and releases the next ones. Both share a [`ReorderCursor`], one word with the next
//! ticket to be released. In between, any thread may hold a value.
//!
//! A ticket is (generation, number). Numbers of a generation start at 0 and wrap; the number of outstanding
//! tickets is limited by the window. A new generation begins only when all tickets of the previous one have
//! passed.

use crate::sync::{AtomicU64, Ordering};
use crossbeam_utils::CachePadded;
use std::sync::Arc;

/// Position in an order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Ticket {
    /// Generation: number of times that the counter was opened.
    pub generation: u32,
    /// Position in the generation.
    pub number: u32,
}

impl Ticket {
    const fn to_word(self) -> u64 {
        (self.generation as u64) << 32 | self.number as u64
    }

    #[expect(clippy::cast_possible_truncation, reason = "the two halves of a word")]
    const fn from_word(word: u64) -> Self {
        Self { generation: (word >> 32) as u32, number: word as u32 }
    }
}

/// The next ticket to be released, shared by both ends.
#[derive(Debug, Default)]
pub struct ReorderCursor(CachePadded<AtomicU64>);

impl ReorderCursor {
    /// Cursor before any ticket has passed.
    pub fn new() -> Self {
        Self(CachePadded::new(AtomicU64::new(0)))
    }
}

/// End that draws tickets.
#[derive(Debug)]
pub struct TicketCounter {
    next: Ticket,
    /// Next ticket to be released when the cursor was last read.
    passed: u32,
    window: u32,
    cursor: Arc<ReorderCursor>,
}

impl TicketCounter {
    /// A closed counter: no ticket can be drawn before [`open`](Self::open).
    pub fn new(window: u32, cursor: Arc<ReorderCursor>) -> Self {
        Self { next: Ticket::default(), passed: 0, window, cursor }
    }

    /// Starts a new generation; all tickets must have passed.
    ///
    /// # Panics
    /// In debug builds, if tickets are outstanding.
    pub fn open(&mut self) {
        debug_assert!(self.is_drained(), "a line is opened only when it is drained");
        self.next = Ticket { generation: self.next.generation.wrapping_add(1), number: 0 };
        self.passed = 0;
    }

    /// Draws a ticket; `None` if the window is full.
    ///
    /// Cost: an addition; a read of the cursor once per window.
    #[inline]
    pub fn draw(&mut self) -> Option<Ticket> {
        if self.next.number.wrapping_sub(self.passed) >= self.window {
            self.look();
            if self.next.number.wrapping_sub(self.passed) >= self.window {
                return None;
            }
        }
        let ticket = self.next;
        self.next.number = ticket.number.wrapping_add(1);
        Some(ticket)
    }

    /// True if every drawn ticket has passed and its value has been processed.
    pub fn is_drained(&mut self) -> bool {
        self.look();
        self.next.number == self.passed
    }

    /// Number of outstanding tickets.
    ///
    /// Cost: a read of the cursor.
    #[inline]
    pub fn outstanding(&mut self) -> u32 {
        self.look();
        self.next.number.wrapping_sub(self.passed)
    }

    fn look(&mut self) {
        // Acquire pairs with the Release of `ReorderBuffer::publish`.
        let word = self.cursor.0.load(Ordering::Acquire);
        // The cursor has an older generation until the first ticket of this one has passed.
        let cursor = Ticket::from_word(word);
        if cursor.generation == self.next.generation {
            self.passed = cursor.number;
        }
    }
}

/// End that releases values.
#[derive(Debug)]
pub struct ReorderBuffer<T> {
    window: Box<[Option<T>]>,
    next: Ticket,
    waiting: u32,
    /// Time since which the next value is missing while others wait, on the caller's clock.
    missing_since: Option<u64>,
    cursor: Arc<ReorderCursor>,
}

impl<T> ReorderBuffer<T> {
    /// A reorder buffer for `window` values, rounded up to a power of two.
    pub fn new(window: u32, cursor: Arc<ReorderCursor>) -> Self {
        let cells = window.max(1).next_power_of_two();
        let window = (0..cells).map(|_| None).collect();
        Self { window, next: Ticket::default(), waiting: 0, missing_since: None, cursor }
    }

    /// Stores the value of `ticket` at time `now`.
    ///
    /// # Errors
    /// The value itself if its ticket was skipped or belongs to an older generation.
    #[inline]
    pub fn redeem(&mut self, ticket: Ticket, value: T, now: u64) -> Result<(), T> {
        if ticket.generation != self.next.generation {
            let newer = ticket.generation.wrapping_sub(self.next.generation).cast_signed() > 0;
            if !newer {
                return Err(value);
            }
            self.turn_over(ticket.generation);
        }
        let ahead = ticket.number.wrapping_sub(self.next.number);
        let Some(cell) = self.cell(ahead) else { return Err(value) };
        if self.window[cell].is_some() {
            debug_assert!(false, "a ticket is redeemed once");
            return Err(value);
        }
        self.window[cell] = Some(value);
        self.waiting += 1;
        if ahead == 0 {
            self.missing_since = None;
        } else if self.waiting == 1 {
            self.missing_since = Some(now);
        }
        Ok(())
    }

    /// The next value; `None` if it is missing.
    #[inline]
    pub fn front(&self) -> Option<&T> {
        self.window[self.next.number as usize & (self.window.len() - 1)].as_ref()
    }

    /// Releases the next value at time `now`; `None` if it is missing.
    ///
    /// [`publish`](Self::publish) informs the ticket counter.
    #[inline]
    pub fn pass(&mut self, now: u64) -> Option<T> {
        let mask = self.window.len() - 1;
        let value = self.window[self.next.number as usize & mask].take()?;
        self.next.number = self.next.number.wrapping_add(1);
        self.waiting -= 1;
        if self.waiting > 0 && self.front().is_none() {
            self.missing_since = Some(now);
        }
        Some(value)
    }

    /// Publishes the cursor to the ticket counter; called after released values have been processed.
    #[inline]
    pub fn publish(&self) {
        // Release pairs with the Acquire of `TicketCounter::look`.
        self.cursor.0.store(self.next.to_word(), Ordering::Release);
    }

    /// Time since which the next value is missing while others wait; `None` if none is.
    #[inline]
    pub fn missing_since(&self) -> Option<u64> {
        self.missing_since
    }

    /// Skips to the first value that is present; returns the number of skipped tickets.
    ///
    /// A worker that redeems a skipped ticket later gets an error.
    #[cold]
    pub fn give_up(&mut self) -> u32 {
        let mut given_up = 0;
        while self.waiting > 0 && self.front().is_none() {
            self.next.number = self.next.number.wrapping_add(1);
            given_up += 1;
        }
        self.missing_since = None;
        given_up
    }

    /// Number of waiting values.
    pub fn waiting(&self) -> u32 {
        self.waiting
    }

    /// Releases all waiting values in order, for a thread that ends.
    pub fn clear(&mut self) -> impl Iterator<Item = T> + '_ {
        core::iter::from_fn(move || {
            self.give_up();
            self.pass(0)
        })
    }

    /// Cell of the ticket that is `ahead` of the next; `None` if it is outside of the window.
    #[inline]
    fn cell(&self, ahead: u32) -> Option<usize> {
        // A ticket before the next one wraps to a large distance.
        let place = self.next.number.wrapping_add(ahead) as usize & (self.window.len() - 1);
        ((ahead as usize) < self.window.len()).then_some(place)
    }

    #[cold]
    fn turn_over(&mut self, generation: u32) {
        debug_assert_eq!(self.waiting, 0, "a line is opened only when it is drained");
        self.window.iter_mut().for_each(|cell| *cell = None);
        self.next = Ticket { generation, number: 0 };
        self.waiting = 0;
        self.missing_since = None;
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn pair(window: u32) -> (TicketCounter, ReorderBuffer<u32>) {
        let cursor = Arc::new(ReorderCursor::new());
        let mut line = TicketCounter::new(window, Arc::clone(&cursor));
        line.open();
        (line, ReorderBuffer::new(window, cursor))
    }

    fn passed(reorder_buffer: &mut ReorderBuffer<u32>, now: u64) -> Vec<u32> {
        let passed = core::iter::from_fn(|| reorder_buffer.pass(now)).collect();
        reorder_buffer.publish();
        passed
    }

    #[test]
    fn what_comes_early_waits() {
        let (mut line, mut reorder_buffer) = pair(4);
        let tickets = [0; 4].map(|_| line.draw().expect("a window of four"));
        assert_eq!(line.draw(), None);
        for number in [2, 1, 3] {
            reorder_buffer.redeem(tickets[number], tickets[number].number, 10).expect("in time");
            assert_eq!(passed(&mut reorder_buffer, 10), []);
        }
        assert_eq!((reorder_buffer.missing_since(), line.draw()), (Some(10), None));
        reorder_buffer.redeem(tickets[0], 0, 11).expect("in time");
        assert_eq!(reorder_buffer.missing_since(), None);
        assert_eq!(passed(&mut reorder_buffer, 11), [0, 1, 2, 3]);
        assert!(line.is_drained());
        assert_eq!(line.draw().map(|ticket| ticket.number), Some(4));
    }

    #[test]
    fn a_missing_one_is_given_up_and_late_then() {
        let (mut line, mut reorder_buffer) = pair(4);
        let tickets = [0; 4].map(|_| line.draw().expect("a window of four"));
        reorder_buffer.redeem(tickets[1], 1, 5).expect("in time");
        reorder_buffer.redeem(tickets[3], 3, 6).expect("in time");
        assert_eq!(reorder_buffer.missing_since(), Some(5));
        assert_eq!((reorder_buffer.give_up(), passed(&mut reorder_buffer, 7)), (1, vec![1]));
        assert_eq!(reorder_buffer.missing_since(), Some(7), "the next one is missing since then");
        assert_eq!(reorder_buffer.redeem(tickets[0], 0, 8), Err(0));
        assert_eq!((reorder_buffer.give_up(), passed(&mut reorder_buffer, 9)), (1, vec![3]));
        assert_eq!(reorder_buffer.redeem(tickets[2], 2, 10), Err(2));
        assert!(line.is_drained());
        assert_eq!(reorder_buffer.give_up(), 0, "nothing waits, so nothing is given up");
    }

    #[test]
    fn a_ticket_of_an_old_opening_is_late() {
        let (mut line, mut reorder_buffer) = pair(4);
        let (old, second) = (line.draw().expect("room"), line.draw().expect("room"));
        reorder_buffer.redeem(second, 1, 0).expect("in time");
        reorder_buffer.give_up();
        assert_eq!(passed(&mut reorder_buffer, 0), [1]);
        assert!(line.is_drained());
        line.open();
        let new = line.draw().expect("room");
        reorder_buffer.redeem(new, 7, 0).expect("in time");
        assert_eq!(reorder_buffer.redeem(old, 0, 0), Err(0));
        assert_eq!(passed(&mut reorder_buffer, 0), [7]);
        assert!(line.is_drained());
    }

    #[test]
    fn numbers_come_round() {
        let (mut line, mut reorder_buffer) = pair(4);
        let start = Ticket { generation: 1, number: u32::MAX - 1 };
        (line.next, line.passed) = (start, start.number);
        reorder_buffer.next = start;
        reorder_buffer.publish();
        let tickets = [0; 4].map(|_| line.draw().expect("a window of four"));
        assert_eq!(tickets.map(|ticket| ticket.number), [u32::MAX - 1, u32::MAX, 0, 1]);
        for (place, value) in [(3, 3), (2, 2), (1, 1)] {
            reorder_buffer.redeem(tickets[place], value, 0).expect("in time");
        }
        assert_eq!(reorder_buffer.give_up(), 1);
        assert_eq!(passed(&mut reorder_buffer, 0), [1, 2, 3]);
        assert_eq!(reorder_buffer.redeem(tickets[0], 0, 0), Err(0));
        assert!(line.is_drained() && line.draw().is_some());
    }

    #[test]
    fn who_ends_takes_what_waits_in_order() {
        let (mut line, mut reorder_buffer) = pair(8);
        let tickets = [0; 8].map(|_| line.draw().expect("a window of eight"));
        for place in [6, 2, 3] {
            reorder_buffer.redeem(tickets[place], tickets[place].number, 0).expect("in time");
        }
        assert_eq!(reorder_buffer.clear().collect::<Vec<_>>(), [2, 3, 6]);
        assert_eq!(reorder_buffer.waiting(), 0);
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::sync::UnsafeCell;
    use crate::{ring, work_queue};

    /// Redeemed ticket with its number.
    type Redeemed = (Ticket, u32);

    /// One thread draws tickets, offers values and processes some; another processes some and releases all in
    /// order. The first may access the cell, which the second writes, once all tickets have passed.
    #[test]
    fn the_line_keeps_its_order_and_says_so_when_it_is_done() {
        loom::model(|| {
            let cursor = Arc::new(ReorderCursor::new());
            let sent = Arc::new(UnsafeCell::new(0));
            let mut line = TicketCounter::new(2, Arc::clone(&cursor));
            line.open();
            let (mut producer, consumer) = work_queue::channel::<Redeemed>(2);
            let (mut bring, mut brought) = ring::channel::<Redeemed>(2);
            let (others, result) = (consumer.clone(), Arc::clone(&sent));
            let home = loom::thread::spawn(move || {
                let mut reorder_buffer = ReorderBuffer::new(2, cursor);
                let mut order = Vec::new();
                while order.len() < 2 {
                    let own = others.take().map(|value| *value);
                    let redeemed = own.or_else(|| brought.pop());
                    let Some((ticket, value)) = redeemed else {
                        loom::thread::yield_now();
                        continue;
                    };
                    reorder_buffer.redeem(ticket, value, 0).expect("nothing expires here");
                    while let Some(value) = reorder_buffer.pass(0) {
                        result.with_mut(|sent| {
                            // SAFETY: the other thread looks only after the gate has said so.
                            #[expect(unsafe_code, reason = "UNSAFETY: the checker's own cell")]
                            unsafe {
                                *sent += 1;
                            }
                        });
                        order.push(value);
                    }
                    reorder_buffer.publish();
                }
                assert!(order.iter().copied().eq(0..2), "{order:?}");
            });
            for value in 0..2 {
                let ticket = line.draw().expect("a window of two");
                producer.give(Box::new((ticket, value))).expect("two cells");
            }
            if let Some(value) = consumer.take() {
                bring.push(*value).expect("two cells");
            }
            if line.is_drained() {
                // SAFETY: all tickets have passed, so the other thread is done with it.
                #[expect(unsafe_code, reason = "UNSAFETY: the checker's own cell")]
                let seen = sent.with(|sent| unsafe { *sent });
                assert_eq!(seen, 2);
            }
            home.join().expect("the home does not panic");
            assert!(line.is_drained());
        });
    }
}
