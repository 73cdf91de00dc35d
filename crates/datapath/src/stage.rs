//! Contract between the engine and its stages.

use crate::counters::WorkerCounters;
use crate::drops::Context;
use crate::units::Nanos;
use polder_buffers::{Batch, PortId};

/// State that one worker keeps for a stage between batches.
pub trait StageState: Sized {
    /// The stage's own table of the configuration; `()` for a stage without one.
    type Table;

    /// The state of the worker with this number.
    fn begin(worker: usize, table: &Self::Table, counters: &WorkerCounters) -> Self;

    /// The table has been replaced.
    fn adopt(&mut self, _: &Self::Table) {}

    /// Time at which held packets are to be looked after, if no batch comes before.
    fn next_deadline(&self) -> Option<Nanos> {
        None
    }

    /// Does the work that is due by time alone.
    fn expire(&mut self, _: &mut Context<'_>) {}

    /// Reason why the kernel carries no flows of a port or tunnel past the stage; `None` if it may.
    fn obstacle(_: &Self::Table, _: PortId) -> Option<&'static str> {
        None
    }

    /// Drops held packets, for a worker that ends.
    fn clear(&mut self, _: &mut Context<'_>) {}
}

/// A stage that works on received packets in place, between parser and router.
pub trait Inbound: StageState {
    /// True if packets that came in by a port have to meet the stage. Asked once a batch.
    fn is_met(table: &Self::Table, ingress: PortId) -> bool;

    /// Works on a batch, which does not grow.
    fn receive(&mut self, batch: &mut Batch, table: &Self::Table, context: &mut Context<'_>);
}
