//! Stage `reorder`: work batches leave in the order of their tickets (E8).
//!
//! In: work batches as workers finish them. Out: the same in order, for the worker that sequences and sends
//! them. Exits: `LateAfterReorder`. Cost: a few instructions per work batch; none while no bucket is spread.
//!
//! Packets of hashed buckets do not pass here: their worker keeps their order. For spread buckets, the
//! bucket's home has a reorder buffer for each lane of each receiving worker. Properties:
//!
//! 1. A work batch is released when every earlier ticket of its lane has been redeemed, even with an empty
//!    batch. No ticket waits for a packet, so drops leave no gap.
//! 2. If a ticket is missing for too long while others wait, the lane skips it, and its work batch is dropped
//!    when it arrives. Packets never leave out of order.
//! 3. Everything that depends on order ([`sequence`](crate::sequence), queues) comes later; everything before
//!    may run on any worker.

use crate::steer::{ReorderCursors, WINDOW, WorkBatch};
use crate::units::Nanos;
use polder_buffers::reorder::ReorderBuffer;
use std::sync::Arc;

/// Reorder buffers of all buckets whose home is one worker.
#[derive(Debug)]
pub struct Reorderer {
    rows: Box<[Row]>,
    patience: [Nanos; 2],
}

/// Number of waiting work batches from which the shorter timeout applies.
const MANY: u32 = WINDOW / 2;

/// Timeout of a missing ticket.
fn patience(reorder_buffer: &ReorderBuffer<Box<WorkBatch>>, [short, long]: [Nanos; 2]) -> Nanos {
    if reorder_buffer.waiting() >= MANY { short } else { long }
}

/// Lanes of one receiving worker.
#[derive(Debug)]
struct Row {
    reorder_buffers: Box<[ReorderBuffer<Box<WorkBatch>>]>,
    /// Total number of packets of that worker's hashed buckets that this worker has sent.
    sent: u64,
    /// Bit set of lanes whose next work batch waits until this worker has sent more packets of hashed buckets.
    fenced: u32,
    /// Bit set of lanes with a missing ticket.
    gaps: u32,
}

impl Reorderer {
    /// Reorder buffers for the receiving workers with these cursors. A ticket that is missing for longer than
    /// `patience` is skipped: the first value applies if many work batches wait, the second if few do.
    pub fn new(cursors: &[ReorderCursors], patience: [Nanos; 2]) -> Self {
        let row = |cursors: &ReorderCursors| Row {
            reorder_buffers: cursors
                .iter()
                .map(|cursor| ReorderBuffer::new(WINDOW, Arc::clone(cursor)))
                .collect(),
            sent: 0,
            fenced: 0,
            gaps: 0,
        };
        Self { rows: cursors.iter().map(row).collect(), patience }
    }

    /// Adds a finished work batch, and releases all work batches that are next in order.
    ///
    /// # Errors
    /// The work batch itself if its ticket was skipped.
    #[inline]
    pub fn redeem(
        &mut self,
        work: Box<WorkBatch>,
        now: Nanos,
        go: impl FnMut(Box<WorkBatch>),
    ) -> Result<(), Box<WorkBatch>> {
        let (ticket, lane) = (work.ticket, usize::from(work.lane));
        let row = &mut self.rows[usize::from(work.from)];
        row.reorder_buffers[lane].redeem(ticket, work, now.0)?;
        row.release_batch(lane, now, go);
        Ok(())
    }

    /// Counts `packets` more sent packets of `from`'s hashed buckets, and releases work batches that waited
    /// for them.
    #[inline]
    pub fn sent(&mut self, from: usize, packets: u64, now: Nanos, mut go: impl FnMut(Box<WorkBatch>)) {
        let row = &mut self.rows[from];
        row.sent += packets;
        let mut fenced = row.fenced;
        while fenced != 0 {
            let lane = fenced.trailing_zeros() as usize;
            fenced &= fenced - 1;
            row.release_batch(lane, now, &mut go);
        }
    }

    /// Skips tickets that have been missing for too long. Returns their number.
    ///
    /// Cost: one word for each receiving worker, unless a ticket is missing.
    #[inline]
    pub fn expire(&mut self, now: Nanos, mut go: impl FnMut(Box<WorkBatch>)) -> u32 {
        let mut expired = 0;
        for row in &mut self.rows {
            if row.gaps != 0 {
                expired += row.expire(now, self.patience, &mut go);
            }
        }
        expired
    }

    /// Time of the next call of [`expire`](Self::expire); `None` if no ticket is missing.
    pub fn next_deadline(&self) -> Option<Nanos> {
        let rows = self.rows.iter().filter(|row| row.gaps != 0);
        let deadline = |reorder_buffer: &ReorderBuffer<_>| {
            Some(Nanos(reorder_buffer.missing_since()?) + patience(reorder_buffer, self.patience))
        };
        rows.flat_map(|row| row.reorder_buffers.iter().filter_map(deadline)).min()
    }

    /// Number of waiting work batches.
    pub fn waiting(&self) -> u32 {
        self.rows.iter().flat_map(|row| row.reorder_buffers.iter()).map(ReorderBuffer::waiting).sum()
    }

    /// Releases all waiting work batches in order, for a worker that ends.
    pub fn clear(&mut self, mut go: impl FnMut(Box<WorkBatch>)) {
        for reorder_buffer in self.rows.iter_mut().flat_map(|row| row.reorder_buffers.iter_mut()) {
            reorder_buffer.clear().for_each(&mut go);
            reorder_buffer.publish();
        }
    }
}

impl Row {
    #[inline]
    fn release_batch(&mut self, lane: usize, now: Nanos, mut go: impl FnMut(Box<WorkBatch>)) {
        let reorder_buffer = &mut self.reorder_buffers[lane];
        let (bit, mut passed) = (1 << lane, false);
        self.fenced &= !bit;
        while let Some(work) = reorder_buffer.front() {
            if work.after > self.sent {
                self.fenced |= bit;
                break;
            }
            if let Some(work) = reorder_buffer.pass(now.0) {
                go(work);
                passed = true;
            }
        }
        if passed {
            reorder_buffer.publish();
        }
        match reorder_buffer.missing_since() {
            Some(_) => self.gaps |= bit,
            None => self.gaps &= !bit,
        }
    }

    #[cold]
    fn expire(&mut self, now: Nanos, patiences: [Nanos; 2], mut go: impl FnMut(Box<WorkBatch>)) -> u32 {
        let (mut expired, mut gaps) = (0, self.gaps);
        while gaps != 0 {
            let lane = gaps.trailing_zeros() as usize;
            gaps &= gaps - 1;
            let reorder_buffer = &mut self.reorder_buffers[lane];
            let patience = patience(reorder_buffer, patiences);
            if reorder_buffer.missing_since().is_some_and(|since| now.since(Nanos(since)) >= patience) {
                expired += reorder_buffer.give_up();
                self.release_batch(lane, now, &mut go);
            }
        }
        expired
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use polder_buffers::reorder::{ReorderCursor, Ticket};

    const SHORT: Nanos = Nanos::from_millis(5);
    const PATIENCE: Nanos = Nanos::from_millis(20);

    fn reorderer() -> Reorderer {
        let cursors = (0..2).map(|_| (0..4).map(|_| Arc::new(ReorderCursor::new())).collect());
        Reorderer::new(&cursors.collect::<Vec<ReorderCursors>>(), [SHORT, PATIENCE])
    }

    /// An empty work batch: a ticket is redeemed also when nothing is left.
    fn work(from: u16, lane: u16, number: u32, after: u64) -> Box<WorkBatch> {
        let mut work = WorkBatch::new();
        (work.from, work.lane, work.after) = (from, lane, after);
        work.ticket = Ticket { generation: 1, number };
        Box::new(work)
    }

    /// Redeems at this time; what leaves then, and whether it was in time.
    fn redeem(reorderer: &mut Reorderer, work: Box<WorkBatch>, now: Nanos) -> (Vec<(u16, u32)>, bool) {
        let mut left = Vec::new();
        let redeemed = reorderer.redeem(work, now, |work| left.push((work.lane, work.ticket.number)));
        (left, redeemed.is_ok())
    }

    #[test]
    fn a_slow_parcel_delays_its_own_line_alone() {
        let (mut reorderer, now) = (reorderer(), Nanos(1));
        assert_eq!(redeem(&mut reorderer, work(0, 1, 1, 0), now), (vec![], true));
        assert_eq!(redeem(&mut reorderer, work(0, 2, 0, 0), now), (vec![(2, 0)], true));
        assert_eq!(redeem(&mut reorderer, work(1, 1, 0, 0), now), (vec![(1, 0)], true));
        assert_eq!(redeem(&mut reorderer, work(0, 1, 0, 0), now), (vec![(1, 0), (1, 1)], true));
        assert_eq!((reorderer.waiting(), reorderer.next_deadline()), (0, None));
    }

    #[test]
    fn what_is_missing_too_long_is_given_up_and_late() {
        let (mut reorderer, now) = (reorderer(), Nanos(7));
        redeem(&mut reorderer, work(0, 3, 2, 0), now);
        let deadline = now + PATIENCE;
        assert_eq!(reorderer.next_deadline(), Some(deadline));
        let mut left = Vec::new();
        assert_eq!(reorderer.expire(Nanos(deadline.0 - 1), |work| left.push(work.ticket.number)), 0);
        assert_eq!(reorderer.expire(deadline, |work| left.push(work.ticket.number)), 2);
        assert_eq!((left, reorderer.next_deadline()), (vec![2], None));
        for number in [1, 0] {
            assert_eq!(redeem(&mut reorderer, work(0, 3, number, 0), deadline), (vec![], false));
        }
        assert_eq!(redeem(&mut reorderer, work(0, 3, 3, 0), deadline), (vec![(3, 3)], true));
    }

    #[test]
    fn a_line_opens_when_what_was_hashed_before_has_been_sent() {
        let (mut reorderer, now) = (reorderer(), Nanos(1));
        let mut left = Vec::new();
        reorderer.sent(0, 9, now, |_| {});
        for number in 0..2 {
            assert_eq!(redeem(&mut reorderer, work(0, 0, number, 12), now), (vec![], true));
        }
        reorderer.sent(0, 2, now, |work| left.push(work.ticket.number));
        reorderer.sent(1, 2, now, |work| left.push(work.ticket.number));
        assert_eq!(left, [], "eleven of twelve, and two of somebody else");
        assert_eq!(reorderer.expire(now + PATIENCE, |_| {}), 0, "nothing is missing");
        reorderer.sent(0, 1, now, |work| left.push(work.ticket.number));
        assert_eq!(left, [0, 1]);
    }

    /// Waiting costs nothing but time while tickets are left; when they get scarce, packets would be lost for it.
    #[test]
    fn patience_ends_sooner_when_many_wait() {
        let (mut reorderer, now) = (reorderer(), Nanos(7));
        for number in 1..MANY {
            redeem(&mut reorderer, work(0, 1, number, 0), now);
        }
        assert_eq!(reorderer.next_deadline(), Some(now + PATIENCE));
        assert_eq!(reorderer.expire(now + SHORT, |_| {}), 0);
        redeem(&mut reorderer, work(0, 1, MANY, 0), now + SHORT);
        assert_eq!(reorderer.next_deadline(), Some(now + SHORT));
        let mut left = 0;
        assert_eq!(reorderer.expire(now + SHORT, |_| left += 1), 1);
        assert_eq!((left, reorderer.waiting()), (MANY, 0));
    }
}
