//! Commands to workers, their reports, and the rings between them.

use super::outlet::{NewQueue, Outlet};
use crate::runtime::wake::Wakeup;
use polder_buffers::ring::{Consumer, Producer};
use polder_buffers::{Class, Packet, PortId};
use polder_datapath::capture::Tap;
use polder_datapath::port::{RxQueue, TxQueue};
use polder_datapath::queue::{QueueOptions, QueueReport};
use polder_datapath::scheduler::Backlog;
use polder_datapath::steer::Order;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;

/// Command to a worker.
pub enum Command {
    /// Use these queues of a port.
    Attach(Attachment),
    /// Steer the packets of a port to workers in this order mode; for a worker in a worker group.
    Order(PortId, Order),
    /// Set the weight of a port's queues.
    Weigh(PortId, u16),
    /// Replace the port's egress queue, or remove it.
    Queue(PortId, Option<Box<NewQueue>>),
    /// Change the parameters of the port's egress queue; waiting packets stay.
    AdjustQueue(PortId, Box<QueueOptions>),
    /// Replace the queue of packets that the port receives, or remove it.
    Inlet(PortId, Option<Box<NewQueue>>),
    /// Change the parameters of the queue of packets that the port receives; waiting packets stay.
    AdjustInlet(PortId, Box<QueueOptions>),
    /// Report what waits in the port's queues.
    ReportQueue(PortId, SyncSender<QueueContents>),
    /// Stop using a port; its queues are dropped.
    Detach(PortId),
    /// Start a capture.
    Tap(Box<Tap>),
    /// End the capture with this number.
    Untap(u64),
    /// Drain and end.
    Stop,
    /// End at once and keep all state: another worker takes it over.
    Leave,
}

/// A port's queues for one worker.
pub struct Attachment {
    /// The port.
    pub port: PortId,
    /// Class of received packets' frames.
    pub class: Class,
    /// Weight of each of its queues in the worker's cycle.
    pub weight: u16,
    /// Receive queues that this worker polls.
    pub rx: Vec<Box<dyn RxQueue>>,
    /// Path on which this worker sends packets to the port.
    pub tx: SendPath,
    /// Backlog of a consumer behind the port, which runs on the CPU time of the worker that owns the queue.
    pub backlog: Option<Arc<Backlog>>,
}

/// Path on which a worker sends packets to a port.
pub enum SendPath {
    /// A device queue that the worker owns.
    Own(Box<dyn TxQueue>),
    /// A device queue that the worker owns, behind an egress queue.
    Queued(Box<Outlet>),
    /// The ring to the worker of this number, which owns a queue.
    Through(usize),
}

/// Contents of a queue of a port at a worker.
#[derive(Debug)]
pub struct QueueContents {
    /// The port.
    pub port: PortId,
    /// Number of the worker.
    pub worker: usize,
    /// True for the queue of packets that the port receives.
    pub is_inlet: bool,
    /// Flows and hosts with most bytes.
    pub report: QueueReport,
}

/// Report of a worker.
#[derive(Debug, PartialEq, Eq)]
pub enum Report {
    /// A queue of the port reports that its device is gone.
    Closed(PortId),
    /// The worker has stopped using the port.
    Detached(PortId),
}

/// The rings between one worker and the others, by worker number; none to itself.
#[derive(Default)]
pub struct Mesh {
    /// Ring to each other worker, with its wake-up.
    pub outgoing: Vec<Option<(Producer<Packet>, Arc<Wakeup>)>>,
    /// Ring from each other worker.
    pub incoming: Vec<Consumer<Packet>>,
}
