//! The order definition point's counterpart: packets leave in the order of their tickets (E8).
//!
//! In: batches as workers finish them. Out: the same, in order. Exits: none.
//! Cost: nothing while every flow stays on one worker.
//!
//! A packet whose flow is not spread carries ticket 0. It never leaves the worker that received it,
//! stages keep the order of a batch, and batches are finished one after the other: the order of
//! arrival *is* the order, and the stage is the identity. What holds before it and has to hold behind
//! it, and what a debug build checks:
//!
//! 1. Tickets do not go back from one packet to the next, over the end of a batch too; they wrap.
//! 2. Nothing waits here. A packet that is dropped, before or after, leaves no hole for others to
//!    wait at, because nobody waits for a packet.
//! 3. Everything that depends on order ([`seal`](crate::seal), queues) comes later; everything
//!    before may run on any worker.

use polder_buffers::Batch;

/// What one worker keeps between batches.
#[derive(Clone, Copy, Debug, Default)]
pub struct RestoreState {
    /// The last ticket other than 0.
    last: u32,
}

/// Passes the batch on in order, which is the order that it has.
///
/// # Panics
/// In debug builds, when tickets go back.
#[inline]
pub fn restore(batch: &mut Batch, state: &mut RestoreState) {
    if cfg!(debug_assertions) {
        check(batch, state);
    }
}

fn check(batch: &Batch, state: &mut RestoreState) {
    for packet in batch.iter().filter(|packet| packet.ticket != 0) {
        let step = packet.ticket.wrapping_sub(state.last);
        debug_assert!(
            state.last == 0 || step <= u32::MAX / 2,
            "ticket {} came behind ticket {}",
            packet.ticket,
            state.last
        );
        state.last = packet.ticket;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use polder_buffers::{Packet, Region, RegionOptions};

    /// Passes batches with these tickets, one after the other, through one state.
    fn pass(batches: &[&[u32]]) -> Vec<u32> {
        let region = Region::new(RegionOptions { slots: 64, slot_bytes: 512 }).expect("memory for a test");
        let mut pool = region.pool();
        let mut state = RestoreState::default();
        let mut out = Vec::new();
        for tickets in batches {
            let mut batch = Batch::new();
            for &ticket in *tickets {
                let mut packet = Packet::new(pool.take().expect("a free slot"));
                packet.ticket = ticket;
                batch.push(packet).expect("room");
            }
            restore(&mut batch, &mut state);
            out.extend(batch.iter().map(|packet| packet.ticket));
            pool.release(&mut batch);
        }
        out
    }

    #[test]
    fn order_stays() {
        let passed = pass(&[&[1, 0, 1, 2, 9], &[0, 9, 1 << 31], &[u32::MAX, 1]]);
        assert_eq!(passed, [1, 0, 1, 2, 9, 0, 9, 1 << 31, u32::MAX, 1]);
    }

    #[test]
    #[should_panic(expected = "ticket 3 came behind ticket 4")]
    fn tickets_that_go_back_are_noticed() {
        pass(&[&[1, 4], &[3]]);
    }
}
