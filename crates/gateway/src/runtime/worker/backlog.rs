//! Backlog limits of consumers, which run on a worker's CPU time.

use super::round::BATCH_BUDGET;
use super::{Queue, Worker};
use polder_datapath::scheduler::Grant;
use polder_datapath::units::Nanos;

/// Maximum time that a packet for a consumer may spend in a device, from when a frame was posted for it.
const DELAY: Nanos = Nanos(700_000);

/// Backlog limit of a consumer: 500 µs of work, or 8 batches when `budget` is fixed.
const WAIT: Nanos = Nanos(500_000);
const TURNS: u32 = 8;

impl Worker {
    /// Sets a consumer's backlog limit before the turn of its queue.
    pub(super) fn limit_backlog(&self, grant: Grant) {
        let Some(backlog) = self.senders.backlog(self.receivers[grant.index].port) else { return };
        let line = &self.schedule.line;
        backlog.set_limit(match line.fixed_budget(grant.index) {
            Some(packets) => packets.min(BATCH_BUDGET).saturating_mul(TURNS),
            None => line.packets_in(grant.index, WAIT),
        });
    }

    /// Number of packets that this worker's consumers handle within [`DELAY`].
    pub(super) fn packets_in_delay(&self) -> u32 {
        let done = |(index, queue): (usize, &Queue)| {
            let backlog = self.senders.backlog(queue.port)?;
            Some(self.schedule.line.packets_in(index, DELAY) / backlog.packets_each())
        };
        self.receivers.iter().enumerate().filter_map(done).fold(0, u32::saturating_add)
    }
}
