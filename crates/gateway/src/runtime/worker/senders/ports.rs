//! A worker's send paths: attached, given another queue, detached.

use super::{Consumer, SendPath, Senders, WorkerRing};
use crate::runtime::worker::NewQueue;
use crate::runtime::worker::outlet::Outlet;
use polder_buffers::{Pool, PortId};
use polder_datapath::counters::WorkerCounters;
use polder_datapath::queue::{QueueOptions, QueueReport};
use polder_datapath::scheduler::Backlog;
use polder_datapath::units::Nanos;
use std::sync::Arc;

impl Senders {
    /// Creates a sending half without ports, with the rings to other workers.
    pub(in crate::runtime::worker) fn new(outgoing: Vec<WorkerRing>, counters: Arc<WorkerCounters>) -> Self {
        Self {
            now: Nanos::default(),
            ports: Vec::new(),
            outgoing,
            counters,
            consumers: Vec::new(),
            offered: 0,
            sated: false,
            has_unsent: false,
            is_watched: false,
        }
    }

    /// Adds the send path of a port, with the backlog of a consumer behind it, if any.
    pub(in crate::runtime::worker) fn attach(
        &mut self,
        port: PortId,
        path: SendPath,
        backlog: Option<Arc<Backlog>>,
    ) {
        let consumer = |backlog| Consumer { port, backlog, is_direct: false };
        self.consumers.extend(backlog.map(consumer));
        self.put(port, path);
    }

    fn put(&mut self, port: PortId, path: SendPath) {
        let index = usize::from(port.0);
        if self.ports.len() <= index {
            self.ports.resize_with(index + 1, || None);
        }
        for consumer in self.consumers.iter_mut().filter(|consumer| consumer.port == port) {
            consumer.is_direct = matches!(path, SendPath::Own(_));
        }
        self.ports[index] = Some(path);
        self.count_waiting();
    }

    /// Replaces or removes the egress queue of a port. Waiting packets stay in order, as far as there is
    /// room; the others are dropped as `queue-full`.
    pub(in crate::runtime::worker) fn set_queue(
        &mut self,
        port: PortId,
        queue: Option<Box<NewQueue>>,
        pool: &mut Pool,
    ) {
        let Some(path) = self.ports.get_mut(usize::from(port.0)).and_then(Option::take) else { return };
        let path = match (path, queue) {
            (SendPath::Own(tx), Some(new)) => SendPath::Queued(Box::new(Outlet::with(tx, *new))),
            (SendPath::Queued(mut outlet), Some(new)) => {
                outlet.exchange(*new, pool, &self.counters);
                SendPath::Queued(outlet)
            }
            (SendPath::Queued(outlet), None) => SendPath::Own(outlet.remove(pool, &self.counters)),
            (other @ (SendPath::Own(_) | SendPath::Through(_)), _) => other,
        };
        self.put(port, path);
    }

    /// Changes the parameters of a port's egress queue.
    pub(in crate::runtime::worker) fn adjust_queue(&mut self, port: PortId, options: &QueueOptions) {
        if let Some(Some(SendPath::Queued(outlet))) = self.ports.get_mut(usize::from(port.0)) {
            outlet.adjust(options);
        }
    }

    /// Report of a port's egress queue; `None` if this worker has none.
    #[cold]
    pub(in crate::runtime::worker) fn report(&self, port: PortId) -> Option<QueueReport> {
        match self.ports.get(usize::from(port.0)) {
            Some(Some(SendPath::Queued(outlet))) => Some(outlet.report(self.now)),
            Some(Some(SendPath::Own(_) | SendPath::Through(_)) | None) | None => None,
        }
    }

    /// Removes a port's send path and drops the packets that wait for it.
    pub(in crate::runtime::worker) fn detach(&mut self, port: PortId, pool: &mut Pool) {
        self.consumers.retain(|consumer| consumer.port != port);
        let path = self.ports.get_mut(usize::from(port.0)).and_then(Option::take);
        if let Some(SendPath::Queued(mut outlet)) = path {
            outlet.clear(pool, &self.counters);
        }
        self.count_waiting();
    }

    /// Removes all send paths, for another worker.
    pub(in crate::runtime::worker) fn take_all(&mut self) -> Vec<(PortId, SendPath)> {
        let paths = (0..).map(PortId).zip(self.ports.drain(..));
        let paths = paths.filter_map(|(port, path)| Some((port, path?))).collect();
        self.counters.queued.set(0);
        paths
    }

    /// Removes all ports.
    pub(in crate::runtime::worker) fn clear(&mut self, pool: &mut Pool) {
        (0..).map(PortId).take(self.ports.len()).for_each(|port| self.detach(port, pool));
    }
}
