//! The conservation law: both sides, summed from where things are counted.

use polder_datapath::counters::{QueueCounters, WorkerCounters};
use polder_datapath::drops::DropReason;
use serde::Serialize;
use std::sync::Arc;

/// Both sides of the conservation law, in packets.
///
/// received + generated + cloned + split = transmitted + delivered + dropped + merged + held. What is for
/// the host leaves by a TAP and counts as transmitted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Accounts {
    /// Taken from devices, those that drivers refused included.
    pub received: u64,
    /// Made by the datapath.
    pub generated: u64,
    /// Copies for flooding.
    pub cloned: u64,
    /// Further packets made from one.
    pub split: u64,
    /// Handed to devices.
    pub transmitted: u64,
    /// Taken by the gateway itself.
    pub delivered: u64,
    /// Ended by a stage or a driver, for any reason.
    pub dropped: u64,
    /// Become part of another packet.
    pub merged: u64,
    /// In reassembly, in the rings between workers, in the queues of ports, and with devices that have not said
    /// whether they took them.
    pub held: u64,
}

impl Accounts {
    /// Sums up. Exact while no packet is on its way.
    pub fn of(workers: &[Arc<WorkerCounters>], queues: &[Arc<QueueCounters>]) -> Self {
        let mut accounts = Self::default();
        let (mut handed, mut taken, mut shared) = (0, 0, 0);
        for worker in workers {
            accounts.generated += worker.ledger.generated.get();
            accounts.cloned += worker.ledger.cloned.get();
            accounts.split += worker.ledger.split.get();
            accounts.merged += worker.ledger.merged.get();
            accounts.delivered += worker.ledger.delivered.get();
            let ledger = &worker.ledger;
            accounts.held += ledger.held.get() + ledger.waiting.get() + worker.queued.get();
            shared += worker.order.held();
            accounts.dropped += worker.drops.total();
            // Taken first: a packet that is handed over in between counts as held, never as −1.
            taken += worker.taken_over.get();
            handed += worker.handed_over.get();
        }
        accounts.held += handed - taken.min(handed) + u64::try_from(shared).unwrap_or(0);
        for queue in queues {
            accounts.received += queue.received.get();
            accounts.transmitted += queue.transmitted.get();
            accounts.held += queue.unsent.get();
            accounts.dropped += queue.drops.total();
        }
        accounts
    }

    /// Packets that came or were made, less packets that left or are held: 0 when none is lost.
    pub fn unaccounted(&self) -> i64 {
        let incoming = self.received + self.generated + self.cloned + self.split;
        let outgoing = self.transmitted + self.delivered + self.dropped + self.merged + self.held;
        incoming.cast_signed().wrapping_sub(outgoing.cast_signed())
    }
}

/// Drops for one reason, of all workers and queues.
pub fn drops(workers: &[Arc<WorkerCounters>], queues: &[Arc<QueueCounters>], reason: DropReason) -> u64 {
    let stages = workers.iter().map(|worker| worker.drops.get(reason)).sum::<u64>();
    stages + queues.iter().map(|queue| queue.drops.get(reason)).sum::<u64>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seventeen_missing_packets_are_seventeen() {
        let (worker, queue) = (Arc::new(WorkerCounters::default()), Arc::new(QueueCounters::default()));
        queue.received.add(1000);
        queue.transmitted.add(800);
        queue.unsent.set(100);
        worker.drops.count(DropReason::TxFull, 60);
        queue.drops.count(DropReason::FrameTooLong, 20);
        worker.ledger.held.set(3);
        let accounts = Accounts::of(&[worker], &[queue]);
        assert_eq!(accounts.unaccounted(), 17);
    }

    #[test]
    fn every_term_has_its_side() {
        let worker = Arc::new(WorkerCounters::default());
        worker.ledger.generated.add(1);
        worker.ledger.cloned.add(2);
        worker.ledger.split.add(4);
        worker.ledger.merged.add(3);
        worker.handed_over.add(10);
        worker.taken_over.add(6);
        assert_eq!(Accounts::of(&[worker], &[]).unaccounted(), 0);
    }
}
