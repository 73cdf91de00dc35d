//! The queue that a machine has in front of its network card, for an end of a cable whose interface has none: a TAP
//! drops what its ring has no room for, where a card would have its machine wait.

use polder_buffers::{Batch, Pool};
use polder_datapath::counters::QueueCounters;
use polder_datapath::port::{Armed, Budget, RxQueue, Turn};
use polder_datapath::queue::{CodelOptions, Discipline, EgressQueue, QueueOptions};
use polder_datapath::units::Nanos;
use polder_devices::{AnyQueue, Queue};
use polder_testbed::clock;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// Packets that the card has at one time, as Linux' byte queue limits leave it few.
const CARD: u32 = 8;
/// Bytes that the queue holds.
const LIMIT: u64 = 400_000;

/// The end of a cable, with CoDel for what the machine sends: a target of 1 ms, as suits a local network.
pub(super) fn with_codel(queue: AnyQueue) -> AnyQueue {
    let (target, interval) = (Nanos::from_millis(1), Nanos::from_millis(5));
    let discipline = Discipline::Codel(CodelOptions { target, interval, ..CodelOptions::default() });
    let options = QueueOptions::new(discipline, LIMIT);
    let waiting = EgressQueue::new(&options);
    let counters = Arc::default();
    let sending = Sending { machine: queue.rx, waiting, coming: Batch::new(), counters };
    Queue { rx: Box::new(sending), tx: queue.tx }
}

/// Packets that a machine sends, and that so come in at the cable.
struct Sending {
    machine: Box<dyn RxQueue>,
    waiting: EgressQueue,
    coming: Batch,
    counters: Arc<QueueCounters>,
}

impl RxQueue for Sending {
    fn receive(&mut self, budget: &mut Budget, batch: &mut Batch, pool: &mut Pool) -> Turn {
        let now = Nanos(clock::nanos());
        let turn = loop {
            let turn = self.machine.receive(&mut Budget::new(64), &mut self.coming, pool);
            self.waiting.put(&mut self.coming, now, |packet, _| pool.release_packet(packet));
            if turn != Turn::OutOfBudget || self.waiting.bytes() > LIMIT / 2 {
                break turn;
            }
        };
        let before = batch.len();
        let most = budget.left().min(CARD);
        for _ in 0..most {
            if batch.is_full() {
                break;
            }
            let Some(packet) = self.waiting.take(now, |packet, _| pool.release_packet(packet)) else { break };
            batch.push(packet).expect("the batch is not full");
        }
        let came = batch.len() - before;
        budget.spend(u32::try_from(came).unwrap_or(u32::MAX));
        self.counters.received.add(came as u64);
        if self.waiting.is_empty() { turn } else { Turn::OutOfBudget }
    }

    fn arm(&mut self) -> Armed {
        if self.waiting.is_empty() { self.machine.arm() } else { Armed::Raced }
    }

    fn event(&self) -> Option<BorrowedFd<'_>> {
        self.machine.event()
    }

    fn counters(&self) -> &Arc<QueueCounters> {
        &self.counters
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use polder_buffers::{Packet, Region, RegionOptions};
    use polder_devices::pair;

    #[test]
    fn a_card_has_few_packets_and_the_rest_waits_in_order() {
        let region = Region::new(RegionOptions { slots: 512, slot_bytes: 2048 }).unwrap();
        let mut pool = region.pool();
        let (near, far) = pair::cable(pair::Options { ring: 128, ..pair::Options::default() }).unwrap();
        let mut near = near.into_iter().next().map(Queue::boxed).unwrap();
        let mut far = with_codel(far.into_iter().next().map(Queue::boxed).unwrap());
        let mut sent = Batch::new();
        for number in 0..20_u8 {
            sent.push(Packet::copy_from(&[number; 60], &mut pool).unwrap()).unwrap();
        }
        near.tx.transmit(&mut sent, &mut pool);
        assert!(sent.is_empty());
        let mut came = Vec::new();
        for (turn, count) in [(Turn::OutOfBudget, 8), (Turn::OutOfBudget, 16), (Turn::Drained, 20)] {
            assert!(came.is_empty() || far.rx.arm() == Armed::Raced, "packets wait");
            let mut batch = Batch::new();
            assert_eq!(far.rx.receive(&mut Budget::new(64), &mut batch, &mut pool), turn);
            came.extend(batch.iter().map(|packet| packet.bytes()[0]));
            pool.release(&mut batch);
            assert_eq!(came.len(), count);
        }
        assert_eq!(came, (0..20).collect::<Vec<_>>());
        assert_eq!(far.rx.arm(), Armed::Waiting);
    }
}
