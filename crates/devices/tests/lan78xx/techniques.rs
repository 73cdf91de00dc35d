//! The techniques of source A, on and off: each switch does what it says and nothing else.

use crate::bench::Stand;
use crate::hand::frame;
use polder_buffers::Batch;
use polder_datapath::port::{Budget, Turn};
use polder_devices::conformance::Wire;
use polder_devices::lan78xx::{Options, Techniques, model};
use polder_devices::usb::Speed;

/// A port with so many bulk-in URBs.
fn stand(techniques: Techniques, urbs: usize) -> Stand {
    let model = model::Options { speed: Speed::High, ..model::Options::default() };
    Stand::new(model, &Options { techniques, receive_urbs: Some(urbs), ..Options::default() })
}

fn arrive(stand: &mut Stand, frames: usize) {
    (0..frames).for_each(|_| assert!(stand.side.inject(&frame([2; 6], 60))));
}

/// A turn with a budget: packets that came, and what is left of the budget.
fn turn(stand: &mut Stand, budget: u32) -> (usize, u32, Turn) {
    let (mut budget, mut batch) = (Budget::new(budget), Batch::new());
    let turn = stand.port.queue.rx.receive(&mut budget, &mut batch, &mut stand.pool);
    let count = batch.len();
    stand.pool.release(&mut batch);
    (count, budget.left(), turn)
}

/// A port in which a transfer of so many frames, and one of one frame, have ended and were not read.
fn with_two_transfers(techniques: Techniques, frames: usize) -> Stand {
    let mut stand = stand(techniques, 2);
    // Both URBs end with a frame each, and frames gather in the FIFO until a turn brings a URB back.
    arrive(&mut stand, 2 + frames);
    assert_eq!(turn(&mut stand, 2).0, 2);
    arrive(&mut stand, 1);
    stand
}

/// A1, off: no budget applies, and none is charged.
#[test]
fn the_poll_cycle_keeps_the_budget() {
    let mut on = stand(Techniques::ON, 10);
    arrive(&mut on, 10);
    assert_eq!(turn(&mut on, 4), (4, 0, Turn::OutOfBudget));
    let mut off = stand(Techniques { poll_cycle: false, ..Techniques::ON }, 10);
    arrive(&mut off, 10);
    assert_eq!(turn(&mut off, 4), (10, 4, Turn::Drained));
    arrive(&mut off, 1);
    assert_eq!(turn(&mut off, 0), (1, 0, Turn::Drained));
}

/// A4, off: a URB goes back when it completes, however many wait for their turn; on: in the turn alone.
#[test]
fn urbs_are_resubmitted_in_the_cycle_or_at_once() {
    for (resubmit_in_cycle, in_flight) in [(true, 0), (false, 10)] {
        let mut stand = stand(Techniques { resubmit_in_cycle, ..Techniques::ON }, 10);
        // Each of them ends a transfer; the sending end collects completions, and no turn receives.
        for _ in 0..35 {
            arrive(&mut stand, 1);
            let _ = stand.port.queue.tx.reclaim(&mut stand.pool);
        }
        let status = stand.port.status.clone();
        assert_eq!(status.receiving.get(), in_flight, "{resubmit_in_cycle}");
        assert_eq!(status.filled.get(), if resubmit_in_cycle { 10 } else { 35 });
        assert_eq!(stand.settle().len(), 35);
        assert_eq!(status.receiving.get(), 10, "the same number of URBs, on and off");
    }
}

/// A5, with A1 on: a frame is a unit of the budget, or a transfer that was begun is finished.
#[test]
fn a_transfer_is_left_in_the_middle_or_finished() {
    let mut on = with_two_transfers(Techniques::ON, 20);
    assert_eq!(turn(&mut on, 4), (4, 0, Turn::OutOfBudget));
    assert_eq!((on.port.status.overflow.get(), on.port.status.filled.get()), (16, 1));
    let mut off = with_two_transfers(Techniques { frame_is_unit: false, ..Techniques::ON }, 20);
    assert_eq!(turn(&mut off, 4), (20, 0, Turn::OutOfBudget));
    assert_eq!((off.port.status.overflow.get(), off.port.status.filled.get()), (0, 1));
}

/// A5, with A1 off: all transfers are read and what finds no room overflows, or one that was begun is finished and
/// the next one waits.
#[test]
fn frames_overflow_or_transfers_wait_without_a_budget_too() {
    let off = Techniques { poll_cycle: false, ..Techniques::ON };
    let mut by_frame = with_two_transfers(off, 100);
    assert_eq!(turn(&mut by_frame, 4), (64, 4, Turn::OutOfBudget));
    assert_eq!((by_frame.port.status.overflow.get(), by_frame.port.status.filled.get()), (37, 0));
    let mut by_transfer = with_two_transfers(Techniques { frame_is_unit: false, ..off }, 100);
    assert_eq!(turn(&mut by_transfer, 4), (64, 4, Turn::OutOfBudget));
    assert_eq!((by_transfer.port.status.overflow.get(), by_transfer.port.status.filled.get()), (36, 1));
}
