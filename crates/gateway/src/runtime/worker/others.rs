//! Work with other workers: sharing received packets, helping with work batches, sending handed-over packets.

use super::Worker;
use crate::runtime::sharing::WorkerStages;
use polder_buffers::{BATCH, PortId, wire_packets};
use polder_datapath::engine::TurnContext;
use polder_datapath::steer::Order;
use polder_datapath::units::Nanos;

impl Worker {
    /// Shares a received batch with the other workers. `has_more` is true if packets remained in the device.
    pub(super) fn share_out(&mut self, port: PortId, order: Order, has_more: bool, now: Nanos) {
        let Self { sharing: Some(sharing), engine, pool, senders, clock, batch, .. } = self else { return };
        let kind = (order, engine.is_underlay(port));
        let mut stages = WorkerStages { engine, pool, egress: senders, clock: *clock, now, timed: false };
        sharing.group.define(batch, kind, has_more, now, &mut stages);
        sharing.wake();
        sharing.group.share(now, &mut stages);
        sharing.wake();
    }

    /// Processes packets that other workers brought, and offers them all remaining work batches, because no
    /// more packets are received.
    pub(super) fn take_last_part(&mut self, now: Nanos) -> bool {
        if let Some(sharing) = &mut self.sharing {
            sharing.group.offer_all(now);
        }
        self.take_part(false, now)
    }

    /// Processes packets that other workers brought, and work batches of others when there is nothing else to
    /// do. `busy` and the result are true if another round should follow at once.
    pub(super) fn take_part(&mut self, mut busy: bool, now: Nanos) -> bool {
        let Self { sharing: Some(sharing), engine, pool, senders, clock, .. } = self else { return busy };
        let mut stages = WorkerStages { engine, pool, egress: senders, clock: *clock, now, timed: false };
        sharing.group.round(now, sharing.was_busy);
        let mut shared = sharing.group.collect(now, &mut stages);
        if !busy && !shared {
            shared = sharing.group.help(now, &mut stages);
        }
        busy |= shared;
        if shared {
            sharing.shared_at = now;
        }
        sharing.wake();
        sharing.was_busy = busy;
        busy
    }

    /// Sends packets that another worker handed over.
    pub(super) fn take_over(&mut self, index: usize, now: Nanos) -> bool {
        let batch = &mut self.batch;
        let taken = self.incoming[index].pop_all(BATCH, |packet| {
            // The batch is empty and holds as many packets as are popped.
            let pushed = batch.push(packet);
            debug_assert!(pushed.is_ok(), "a batch has room for a batch");
        });
        if taken > 0 {
            self.counters.taken_over.add(wire_packets(batch));
            let with = TurnContext { now, pool: &mut self.pool, timed: false };
            self.engine.transmit(&mut self.batch, with, &mut self.senders);
        }
        taken > 0
    }
}
