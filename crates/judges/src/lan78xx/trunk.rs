//! Two ports as one that carries a VLAN beside untagged frames, for a kernel without VLAN devices.

use anyhow::Context as _;
use polder_buffers::{Batch, Packet, Pool};
use polder_datapath::counters::QueueCounters;
use polder_datapath::port::{Armed, Budget, RxQueue, Turn, TxQueue};
use polder_datapath::wire::{EtherType, VlanId, VlanTag, pop_tag, push_tag};
use polder_devices::{AnyQueue, Queue};
use rustix::event::epoll;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// Bytes of a tag.
const TAG: u16 = 4;

/// Joins `plain` and `tagged`, whose frames have no tags, to one port on which the frames of the second
/// one have the tag of `vlan`.
///
/// # Errors
/// When there is no such VLAN, or the process may open no more files.
pub(super) fn join(plain: AnyQueue, tagged: AnyQueue, vlan: u16) -> anyhow::Result<AnyQueue> {
    let vlan = VlanId::configured(vlan).context("a VLAN is a number from 1 to 4094")?;
    let event = epoll::create(epoll::CreateFlags::CLOEXEC).context("cannot make an event")?;
    for queue in [&plain, &tagged] {
        let source = queue.rx.event().context("the ports of a trunk have events")?;
        let data = epoll::EventData::new_u64(0);
        epoll::add(&event, source, data, epoll::EventFlags::IN).context("cannot wait for an event")?;
    }
    let rx = TrunkRx { plain: plain.rx, tagged: tagged.rx, vlan, event, counters: Arc::default() };
    let tx = TrunkTx {
        plain: plain.tx,
        tagged: tagged.tx,
        vlan,
        outgoing: Batch::new(),
        counters: Arc::default(),
    };
    Ok(Queue { rx, tx }.boxed())
}

struct TrunkRx {
    plain: Box<dyn RxQueue>,
    tagged: Box<dyn RxQueue>,
    vlan: VlanId,
    event: OwnedFd,
    counters: Arc<QueueCounters>,
}

impl RxQueue for TrunkRx {
    fn receive(&mut self, budget: &mut Budget, batch: &mut Batch, pool: &mut Pool) -> Turn {
        let before = batch.len();
        let plain = self.plain.receive(budget, batch, pool);
        let middle = batch.len();
        let tagged = self.tagged.receive(budget, batch, pool);
        for packet in &mut batch[middle..] {
            let room = packet.prepend(TAG).is_ok();
            debug_assert!(room, "received packets have headroom");
            // A frame without a header has no place for a tag, and goes as it is.
            let _ = push_tag(packet.bytes_mut(), VlanTag::customer(self.vlan));
        }
        self.counters.received.add((batch.len() - before) as u64);
        match (plain, tagged) {
            (Turn::Closed, _) | (_, Turn::Closed) => Turn::Closed,
            (Turn::OutOfBudget, _) | (_, Turn::OutOfBudget) => Turn::OutOfBudget,
            (Turn::Drained, Turn::Drained) => Turn::Drained,
        }
    }

    fn arm(&mut self) -> Armed {
        match (self.plain.arm(), self.tagged.arm()) {
            (Armed::Waiting, Armed::Waiting) => Armed::Waiting,
            (Armed::Raced, _) | (_, Armed::Raced) => Armed::Raced,
        }
    }

    fn event(&self) -> Option<BorrowedFd<'_>> {
        Some(self.event.as_fd())
    }

    fn counters(&self) -> &Arc<QueueCounters> {
        &self.counters
    }
}

struct TrunkTx {
    plain: Box<dyn TxQueue>,
    tagged: Box<dyn TxQueue>,
    vlan: VlanId,
    outgoing: Batch,
    counters: Arc<QueueCounters>,
}

impl TrunkTx {
    /// Removes the tag from a frame of our VLAN.
    fn untag(&self, packet: &mut Packet) -> bool {
        let bytes = packet.bytes_mut();
        let is_tagged = bytes.get(12..14) == Some(&EtherType::VLAN.0.to_be_bytes());
        let tag = bytes.get(14..16).map_or(0, |tag| u16::from_be_bytes([tag[0], tag[1]]));
        is_tagged
            && tag & 0xfff == self.vlan.get()
            && pop_tag(bytes).is_ok()
            && packet.trim_front(TAG).is_ok()
    }
}

impl TxQueue for TrunkTx {
    fn transmit(&mut self, batch: &mut Batch, pool: &mut Pool) {
        while let Some(mut packet) = batch.drain_front(1).next() {
            let is_tagged = self.untag(&mut packet);
            self.counters.transmitted.add(1);
            self.outgoing.push(packet).expect("an empty batch has room");
            let port = if is_tagged { &mut self.tagged } else { &mut self.plain };
            port.transmit(&mut self.outgoing, pool);
            // A TAP whose queue is full loses frames, as a switch does.
            pool.release(&mut self.outgoing);
        }
    }

    fn reclaim(&mut self, pool: &mut Pool) -> Turn {
        let _ = self.tagged.reclaim(pool);
        self.plain.reclaim(pool)
    }

    fn held(&self) -> u32 {
        self.plain.held() + self.tagged.held()
    }

    fn counters(&self) -> &Arc<QueueCounters> {
        &self.counters
    }
}
