//! Commands to workers, their reports, and the rings between them.

use super::outlet::{NewQueue, Outlet};
use crate::runtime::wake::Wakeup;
use polder_buffers::ring::{Consumer, Producer};
use polder_buffers::{Class, Packet, PortId};
use polder_datapath::capture::Tap;
use polder_datapath::port::{RxQueue, TxQueue};
use polder_datapath::scheduler::Backlog;
use polder_datapath::steer::Order;
use std::sync::Arc;

/// Command to a worker.
pub enum Command {
    /// Use these queues of a port.
    Attach(Attachment),
    /// The packets of a port find their worker like this, for a worker in a worker group.
    Order(PortId, Order),
    /// The queues of a port have another weight.
    Weigh(PortId, u16),
    /// Packets wait in another queue in front of the port, or in none.
    Queue(PortId, Option<Box<NewQueue>>),
    /// Let go of a port; its queues are dropped.
    Detach(PortId),
    /// Capture.
    Tap(Box<Tap>),
    /// End a capture.
    Untap(u64),
    /// Drain and end.
    Stop,
    /// End at once, with everything that there is: somebody else goes on with it.
    Leave,
}

/// A port as one worker sees it.
pub struct Attachment {
    /// The port.
    pub port: PortId,
    /// Class of its received packets' frames.
    pub class: Class,
    /// The weight of each of its queues in the worker's time.
    pub weight: u16,
    /// The queues that this worker polls.
    pub rx: Vec<Box<dyn RxQueue>>,
    /// Path on which this worker sends on the port.
    pub tx: SendPath,
    /// Backlog of a consumer behind the port, which works on the time of the worker that has its queue.
    pub backlog: Option<Arc<Backlog>>,
}

/// Path on which a worker sends on a port.
pub enum SendPath {
    /// On a queue of its own.
    Own(Box<dyn TxQueue>),
    /// On a queue of its own, in front of which packets wait.
    Queued(Box<Outlet>),
    /// Through the worker of that number, which has one.
    Through(usize),
}

/// Report of a worker.
#[derive(Debug, PartialEq, Eq)]
pub enum Report {
    /// A queue of the port says that the device is gone.
    Closed(PortId),
    /// The worker has let go of the port.
    Detached(PortId),
}

/// The rings between one worker and the others, by number; none to itself.
#[derive(Default)]
pub struct Mesh {
    /// To each other worker, with its wakeup.
    pub outgoing: Vec<Option<(Producer<Packet>, Arc<Wakeup>)>>,
    /// From each other worker.
    pub incoming: Vec<Consumer<Packet>>,
}
