//! Rings between the workers of a group.

use crate::steer::{WORK_BATCHES, WorkBatch};
use polder_buffers::Packet;
use polder_buffers::ring::{self, Consumer, Producer};
use polder_buffers::work_queue::{self, WorkConsumer, WorkProducer};

/// Rings between this worker and another.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) offers: WorkConsumer<WorkBatch>,
    pub(super) steered_to: Producer<Packet>,
    pub(super) steered_from: Consumer<Packet>,
    pub(super) redeemed_to: Producer<Box<WorkBatch>>,
    pub(super) redeemed_from: Consumer<Box<WorkBatch>>,
    pub(super) returned_to: Producer<Box<WorkBatch>>,
    pub(super) returned_from: Consumer<Box<WorkBatch>>,
}

/// Ends of all rings of a group before they are handed out.
pub(super) struct Rings {
    offers: Vec<WorkConsumer<WorkBatch>>,
    steered: Square<Packet>,
    redeemed: Square<Box<WorkBatch>>,
    returned: Square<Box<WorkBatch>>,
}

impl Rings {
    /// Creates the rings of `workers` workers, with a capacity of `steered` packets from one to another; also
    /// returns, by worker, the producer of work batches.
    pub(super) fn new(workers: usize, steered: usize) -> (Self, Vec<WorkProducer<WorkBatch>>) {
        let (producers, offers) =
            (0..workers).map(|_| work_queue::channel::<WorkBatch>(WORK_BATCHES)).unzip();
        let rings = Self {
            offers,
            steered: Square::new(workers, steered),
            // Capacities are the total number of work batches, and that of one worker: a push never fails.
            redeemed: Square::new(workers, workers * WORK_BATCHES),
            returned: Square::new(workers, WORK_BATCHES),
        };
        (rings, producers)
    }

    /// Worker `me`'s ends of the rings between it and `other`; each is handed out once.
    pub(super) fn peer(&mut self, me: usize, other: usize) -> Peer {
        Peer {
            offers: WorkConsumer::clone(&self.offers[other]),
            steered_to: self.steered.to(me, other),
            steered_from: self.steered.from(me, other),
            redeemed_to: self.redeemed.to(me, other),
            redeemed_from: self.redeemed.from(me, other),
            returned_to: self.returned.to(me, other),
            returned_from: self.returned.from(me, other),
        }
    }
}

/// Both ends of a ring, before they are handed out.
type Ends<T> = (Option<Producer<T>>, Option<Consumer<T>>);

/// A ring from every worker to every worker.
struct Square<T> {
    ends: Vec<Ends<T>>,
    workers: usize,
}

impl<T: Send> Square<T> {
    fn new(workers: usize, capacity: usize) -> Self {
        let ring = |place| {
            // The ring from a worker to itself has one cell and is unused.
            let (to, from) = ring::channel(if place % (workers + 1) == 0 { 1 } else { capacity });
            (Some(to), Some(from))
        };
        Self { ends: (0..workers * workers).map(ring).collect(), workers }
    }

    fn to(&mut self, me: usize, other: usize) -> Producer<T> {
        self.ends[me * self.workers + other].0.take().expect("each end is given away once")
    }

    fn from(&mut self, me: usize, other: usize) -> Consumer<T> {
        self.ends[other * self.workers + me].1.take().expect("each end is given away once")
    }
}
