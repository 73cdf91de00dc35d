//! Counters of queues and of their tins.

use super::cake::{TIN_NAMES, TINS};
use super::report::{FlowCounts, TinEvents, TinState};
use super::{EgressQueue, Waits};
use crate::counters::{Counter, Totals, totals};

/// Counters of one queue; written by the owning worker.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct EgressCounters {
    /// Packets offered to the queue.
    pub entered: Counter,
    /// Packets passed to the device.
    pub left: Counter,
    /// Bytes passed to the device.
    pub left_bytes: Counter,
    /// Packets dropped because the queue was full.
    pub full: Counter,
    /// Packets dropped to limit the delay.
    pub delay: Counter,
    /// Packets marked with "congestion experienced".
    pub marked: Counter,
    /// Times that a flow without packets got one.
    pub flows_started: Counter,
    /// Flows in the list of new ones. A gauge.
    pub flows_new: Counter,
    /// Flows in the list of old ones. A gauge.
    pub flows_old: Counter,
    /// Packets in the queue. A gauge.
    pub waiting: Counter,
    /// Bytes in the queue. A gauge.
    pub waiting_bytes: Counter,
    /// Time in nanoseconds that the last packet spent in the queue. A gauge.
    pub wait_nanos: Counter,
    /// Packets that left, by their time in the queue.
    pub waits: Waits,
    /// Counters by tin.
    pub tins: TinsCounters,
}

impl EgressCounters {
    /// Adds what the discipline counted since the last call, and sets the gauges of its contents.
    pub fn publish(&self, queue: &mut EgressQueue) {
        self.waiting_bytes.set(queue.bytes());
        self.wait_nanos.set(queue.wait().0);
        self.marked.add(queue.take_marks());
        let FlowCounts { new, old, started } = queue.take_flow_counts();
        self.flows_new.set(new.into());
        self.flows_old.set(old.into());
        self.flows_started.add(started);
        queue.tins().iter_mut().zip(&self.tins).for_each(|(state, tin)| tin.publish(state));
    }
}

/// Counters of all tins of a queue.
pub type TinsCounters = [TinCounters; TINS];

/// Counters of a tin; written by the owning worker.
#[derive(Debug, Default)]
pub struct TinCounters {
    /// Packets that entered the tin.
    pub entered: Counter,
    /// Packets passed to the device.
    pub left: Counter,
    /// Bytes passed to the device.
    pub left_bytes: Counter,
    /// Packets dropped because the queue was full.
    pub full: Counter,
    /// Packets dropped to limit the delay.
    pub delay: Counter,
    /// Packets marked with "congestion experienced".
    pub marked: Counter,
    /// Packets in the tin. A gauge.
    pub waiting: Counter,
    /// Bytes in the tin. A gauge.
    pub waiting_bytes: Counter,
    /// Time in nanoseconds that the last packet spent in the tin. A gauge.
    pub wait_nanos: Counter,
}

impl TinCounters {
    /// Adds the events of a tin, which are zero afterwards, and sets the gauges.
    fn publish(&self, state: &mut TinState) {
        let TinState { events, waiting, waiting_bytes, wait } = state;
        let TinEvents { entered, left, left_bytes, full, delay, marked } = core::mem::take(events);
        self.entered.add(entered);
        self.left.add(left);
        self.left_bytes.add(left_bytes);
        self.full.add(full);
        self.delay.add(delay);
        self.marked.add(marked);
        self.waiting.set(*waiting);
        self.waiting_bytes.set(*waiting_bytes);
        self.wait_nanos.set(wait.0);
    }
}

totals! {
    EgressCounters { entered, left, left_bytes, full, delay, marked, flows_started } [waits, tins];
    TinCounters { entered, left, left_bytes, full, delay, marked } [];
}

impl Totals for TinsCounters {
    fn totals(&self, prefix: &str, visit: &mut dyn FnMut(&str, &Counter)) {
        for (name, tin) in TIN_NAMES.iter().zip(self) {
            tin.totals(&format!("{prefix}{name}."), visit);
        }
    }
}
