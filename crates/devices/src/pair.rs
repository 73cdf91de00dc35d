//! An in-memory cable: each end receives the packets that the opposite end sends.
//!
//! [`cable`] moves packets: the same frames come out, as between two ports of one process. [`copying`] copies
//! every packet into memory of its own and out again, like a port with foreign memory; it makes an engine's
//! numbers comparable with those of others.
//!
//! A cable carries the state of a partial checksum and of segmentation, as a veth pair does; all other
//! metadata is removed.

use crate::Queue;
use crate::wakeup::{Wakeup, WakeupReceiver};
use polder_buffers::ring::{self, Consumer, Producer};
use polder_buffers::{BATCH, Batch, NO_PORT, Packet, Pool, Region, RegionError, RegionOptions, wire_packets};
use polder_datapath::counters::QueueCounters;
use polder_datapath::drops::DropReason;
use polder_datapath::port::{Armed, Budget, RxQueue, Turn, TxQueue};
use rustix::io::Errno;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// Options of a cable.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Number of queues at each end.
    pub queues: usize,
    /// Number of packets that each queue holds in each direction; rounded up to a power of two.
    pub ring: usize,
    /// Maximum packet length in bytes, Ethernet header included, FCS excluded.
    pub longest: usize,
}

impl Default for Options {
    /// Returns options for one queue, 256 packets, any length.
    fn default() -> Self {
        Self { queues: 1, ring: 256, longest: usize::MAX }
    }
}

/// Reason why a cable could not be created.
#[derive(Debug, thiserror::Error)]
pub enum PairError {
    /// The system provides no event descriptor.
    #[error("cannot create an event descriptor for an in-memory cable: {0}; raise the limit of open files")]
    Event(Errno),
    /// No memory for the copies of [`copying`].
    #[error(transparent)]
    Memory(#[from] RegionError),
}

/// The queues of one end.
pub type End = Vec<Queue<PairRx, PairTx>>;

/// Creates a cable that moves packets; returns its two ends.
///
/// # Errors
/// [`PairError::Event`] if the process may open no more files.
pub fn cable(options: Options) -> Result<(End, End), PairError> {
    connect(options, None)
}

/// Creates a cable that copies every packet in and out; returns its two ends.
///
/// # Errors
/// [`PairError`] if the process may open no more files, or if there is no memory for the copies.
pub fn copying(options: Options) -> Result<(End, End), PairError> {
    // Besides the packets in flight, both ends have a cache and a batch of free slots.
    let wires = 2 * options.queues;
    let slots = wires * (options.ring.next_power_of_two() + 6 * BATCH);
    let slots = u32::try_from(slots).unwrap_or(u32::MAX);
    let region = Region::new(RegionOptions { slots, slot_bytes: 2048 })?;
    connect(options, Some(&region))
}

fn connect(options: Options, copies: Option<&Region>) -> Result<(End, End), PairError> {
    let (mut left, mut right) = (Vec::new(), Vec::new());
    for _ in 0..options.queues {
        let (to_right, from_left) = wire(options, copies)?;
        let (to_left, from_right) = wire(options, copies)?;
        left.push(Queue { rx: from_right, tx: to_right });
        right.push(Queue { rx: from_left, tx: to_left });
    }
    Ok((left, right))
}

/// Creates one direction of one queue.
fn wire(options: Options, copies: Option<&Region>) -> Result<(PairTx, PairRx), PairError> {
    let (outgoing, incoming) = ring::channel(options.ring);
    let wakeup = Arc::new(Wakeup::new().map_err(PairError::Event)?);
    let tx = PairTx {
        outgoing,
        wakeup: Arc::clone(&wakeup),
        longest: options.longest,
        copies: copies.map(Copies::new),
        counters: Arc::default(),
    };
    let rx = PairRx {
        incoming,
        receiver: WakeupReceiver::new(wakeup),
        copies: copies.map(Copies::new),
        counters: Arc::default(),
    };
    Ok((tx, rx))
}

/// The memory of a copying cable, as one end sees it.
#[derive(Debug)]
struct Copies {
    pool: Pool,
    /// Copies on their way into the ring, or out of it and waiting for a frame.
    staged: Batch,
}

impl Copies {
    fn new(region: &Region) -> Self {
        Self { pool: region.pool(), staged: Batch::new() }
    }
}

/// The transmitting end of one queue of a cable.
#[derive(Debug)]
pub struct PairTx {
    outgoing: Producer<Packet>,
    wakeup: Arc<Wakeup>,
    longest: usize,
    copies: Option<Copies>,
    counters: Arc<QueueCounters>,
}

impl PairTx {
    /// Sends the first `count` packets of `batch`, which all fit the link and the ring; returns the number
    /// sent.
    fn send(&mut self, count: usize, batch: &mut Batch, pool: &mut Pool) -> usize {
        let Some(copies) = &mut self.copies else {
            // There is room for all of them.
            let counted = (wire_packets(&batch[..count]), total_bytes(&batch[..count]));
            let sent = self.outgoing.push_all(count, batch.drain_front(count));
            self.count(counted);
            return sent;
        };
        let Copies { pool: copy_pool, staged } = copies;
        for copy in batch[..count].iter().map_while(|packet| packet.duplicate(copy_pool)) {
            staged.push(copy).expect("an empty batch takes as many as another one has");
        }
        let (sent, counted) = (staged.len(), (wire_packets(staged), total_bytes(staged)));
        self.outgoing.push_all(sent, staged.drain());
        batch.drain_front(sent).for_each(|packet| pool.release_packet(packet));
        self.count(counted);
        sent
    }

    fn count(&self, (packets, bytes): (u64, u64)) {
        self.counters.transmitted.add(packets);
        self.counters.transmitted_bytes.add(bytes);
    }
}

impl TxQueue for PairTx {
    fn transmit(&mut self, batch: &mut Batch, pool: &mut Pool) {
        if self.wakeup.is_gone() {
            return;
        }
        let mut sent_any = false;
        while !batch.is_empty() {
            let fit = batch.iter().take_while(|packet| packet.len() <= self.longest).count();
            if fit == 0 {
                let dropped = wire_packets(&batch[..1]);
                batch.drain_front(1).for_each(|packet| pool.release_packet(packet));
                self.counters.drops.count(DropReason::TxTooLong, dropped);
                continue;
            }
            let count = fit.min(self.outgoing.room(fit));
            let sent = self.send(count, batch, pool);
            sent_any |= sent > 0;
            if sent < fit {
                break;
            }
        }
        if sent_any {
            self.wakeup.wake_if_armed();
        }
    }

    /// Reclaims nothing: a sent packet belongs to the receiving end, or was copied.
    fn reclaim(&mut self, _pool: &mut Pool) -> Turn {
        if self.wakeup.is_gone() { Turn::Closed } else { Turn::Drained }
    }

    fn held(&self) -> u32 {
        0
    }

    fn counters(&self) -> &Arc<QueueCounters> {
        &self.counters
    }
}

impl Drop for PairTx {
    fn drop(&mut self) {
        self.wakeup.close();
    }
}

/// The receiving end of one queue of a cable.
#[derive(Debug)]
pub struct PairRx {
    incoming: Consumer<Packet>,
    receiver: WakeupReceiver,
    copies: Option<Copies>,
    counters: Arc<QueueCounters>,
}

impl PairRx {
    /// Returns the number of packets that wait at this end.
    fn pending(&mut self) -> usize {
        pending(&mut self.incoming, self.copies.as_ref())
    }

    /// Moves up to `limit` packets into `batch`; returns their number.
    fn take(&mut self, limit: usize, batch: &mut Batch, pool: &mut Pool) -> usize {
        let Some(Copies { pool: copy_pool, staged }) = &mut self.copies else {
            return self.incoming.pop_all(limit, |packet| deliver(packet, batch));
        };
        let wanted = limit.saturating_sub(staged.len());
        self.incoming.pop_all(wanted, |packet| {
            staged.push(packet).expect("never more are staged than a batch has room for");
        });
        let before = batch.len();
        for copy in staged.iter().take(limit).map_while(|packet| packet.duplicate(pool)) {
            deliver(copy, batch);
        }
        let count = batch.len() - before;
        staged.drain_front(count).for_each(|packet| copy_pool.release_packet(packet));
        count
    }
}

impl RxQueue for PairRx {
    fn receive(&mut self, budget: &mut Budget, batch: &mut Batch, pool: &mut Pool) -> Turn {
        // Read first: packets sent before the peer's end was dropped are still received.
        let gone = self.receiver.is_gone();
        let limit = batch.room().min(budget.left() as usize);
        let before = batch.len();
        let mut left = limit;
        while left > 0 && self.pending() > 0 {
            let count = self.take(left, batch, pool);
            if count == 0 {
                break;
            }
            left -= count;
        }
        let received = &batch[before..];
        budget.spend(u32::try_from(received.len()).unwrap_or(u32::MAX));
        self.counters.received.add(wire_packets(received));
        self.counters.received_bytes.add(total_bytes(received));
        match self.pending() {
            0 if gone => Turn::Closed,
            0 => Turn::Drained,
            _ => Turn::OutOfBudget,
        }
    }

    fn arm(&mut self) -> Armed {
        let Self { receiver, incoming, copies, .. } = self;
        receiver.arm(|| pending(incoming, copies.as_ref()) > 0)
    }

    fn event(&self) -> Option<BorrowedFd<'_>> {
        Some(self.receiver.event())
    }

    fn counters(&self) -> &Arc<QueueCounters> {
        &self.counters
    }
}

impl Drop for PairRx {
    fn drop(&mut self) {
        self.receiver.close();
    }
}

fn pending(incoming: &mut Consumer<Packet>, copies: Option<&Copies>) -> usize {
    let staged = copies.map_or(0, |copies| copies.staged.len());
    if staged > 0 { staged } else { incoming.available() }
}

/// Puts a packet that has crossed the cable into `batch`, without the sender's metadata.
fn deliver(mut packet: Packet, batch: &mut Batch) {
    packet.ingress = NO_PORT;
    packet.egress = NO_PORT;
    packet.network_offset = 0;
    packet.transport_offset = 0;
    packet.vlan = 0;
    packet.flags = 0;
    packet.flow_hash = 0;
    packet.received_at = 0;
    packet.ticket = 0;
    packet.set_header_summary(0);
    batch.push(packet).expect("the room of the batch was counted");
}

fn total_bytes(packets: &[Packet]) -> u64 {
    packets.iter().map(|packet| packet.len() as u64).sum()
}
