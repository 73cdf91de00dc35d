//! Costs of a packet: nothing is allocated for it, and nothing of it is copied.

use crate::counting_allocator::asked;
use crate::stand::{Stand, frame};
use polder_buffers::Batch;
use polder_datapath::port::{Budget, RxQueue, TxQueue};
use polder_devices::e1000::Options;

const ROUNDS: u32 = 200;
const FRAMES: u32 = 40;

/// Frames of up to three buffers come and go. There is no free slot meanwhile, so that whatever is copied is lost. The
/// first round has what happens once.
#[test]
fn a_packet_costs_no_allocation_and_no_copy() {
    let mut stand = Stand::new(&Options { mtu: 4000, receive_ring: 512, ..Options::default() });
    let (mut allocations, mut batch) = (0, Batch::new());
    for round in 0..ROUNDS {
        let sent = (0..FRAMES).map(|number| frame(number, 60 + 70 * number as usize)).collect::<Vec<_>>();
        // What the model allocates is not the driver's.
        sent.iter().for_each(|frame| assert!(stand.nic.inject(frame)));
        stand.nic.hold_sending(true);
        let free = core::iter::from_fn(|| stand.pool.take()).collect::<Vec<_>>();
        let before = asked();
        let _ = stand.port.queue.rx.receive(&mut Budget::new(64), &mut batch, &mut stand.pool);
        stand.port.queue.tx.transmit(&mut batch, &mut stand.pool);
        let moved = asked() - before;
        assert_eq!((batch.len(), stand.port.queue.tx.held()), (0, FRAMES));
        stand.nic.hold_sending(false);
        assert_eq!(stand.sent(), sent);
        let before = asked();
        let _ = stand.port.queue.tx.reclaim(&mut stand.pool);
        let reclaimed = asked() - before;
        free.into_iter().for_each(|frame| stand.pool.release_frame(frame));
        let before = asked();
        let _ = stand.port.queue.rx.receive(&mut Budget::new(0), &mut batch, &mut stand.pool);
        allocations += if round > 0 { moved + reclaimed + asked() - before } else { 0 };
    }
    assert_eq!((allocations, stand.port.port.status.copied.get()), (0, 0));
    stand.close();
}

#[test]
fn the_count_of_allocations_counts() {
    let before = asked();
    drop(core::hint::black_box(Box::new(1_u64)));
    assert_eq!(asked() - before, 1);
}
