//! Interface between the engine and its stages.

use crate::counters::WorkerCounters;
use crate::drops::Context;
use crate::units::Nanos;
use polder_buffers::{Batch, PortId};

/// State of one worker for a stage between batches.
pub trait StageState: Sized {
    /// Configuration table of the stage; `()` for a stage without one.
    type Table;

    /// Initial state of worker number `worker`.
    fn begin(worker: usize, table: &Self::Table, counters: &WorkerCounters) -> Self;

    /// Adapts the state to a new table.
    fn adopt(&mut self, _: &Self::Table) {}

    /// Time at which held packets need maintenance if no batch comes before; `None` if never.
    fn next_deadline(&self) -> Option<Nanos> {
        None
    }

    /// Does the work that is due at this time.
    fn expire(&mut self, _: &mut Context<'_>) {}

    /// Reason why the kernel must not forward flows of a port or tunnel past this stage; `None` if it may.
    fn obstacle(_: &Self::Table, _: PortId) -> Option<&'static str> {
        None
    }

    /// Drops the packets that the stage holds, for a worker that ends.
    fn clear(&mut self, _: &mut Context<'_>) {}
}

/// Stage that processes received packets in place, between parser and router.
pub trait Inbound: StageState {
    /// True if packets received on a port pass the stage. Called once per batch.
    fn is_met(table: &Self::Table, ingress: PortId) -> bool;

    /// Processes a batch, which does not grow.
    fn receive(&mut self, batch: &mut Batch, table: &Self::Table, context: &mut Context<'_>);
}
