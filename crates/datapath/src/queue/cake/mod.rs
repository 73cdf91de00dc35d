//! Fairness between hosts and between their flows, with four classes of traffic.
//!
//! In: packets in the order of transmission. Out: packets of all tins, hosts and flows in turn, each flow in
//! order. Exits: [`Refusal::Full`] for packets of the hosts with most bytes if the queue is full,
//! [`Refusal::Delay`] by CoDel. Cost: two moves of a packet and a hash; a packet of *n* quanta costs its flow
//! and its host *n* turns. Memory: 80 bytes per packet of the capacity, 136 per flow, allocated once.
//!
//! The aims are CAKE's (Høiland-Jørgensen, Täht, Morton: "Piece of CAKE", 2018); the algorithm differs. Tins
//! share the link by deficits. In a tin, hosts take turns by deficit round robin, and in a host its
//! flows, each with lists of new and old ones as in [`fq_codel`](super::fq_codel). With
//! [`Isolation::Both`], a flow takes turns in the one of its two hosts that has more flows, so that neither a
//! sender nor a receiver gains by opening many. Acknowledgements are not thinned.

mod schedule;
mod table;
mod tins;

pub use tins::Tins;

use super::flow::{Aqm, drop_batch, relieve};
use super::link::LinkLayer;
use super::list::Turn;
use super::mark::{set_traffic_class, traffic_class};
use super::store::{PacketStore, Stored};
use super::{QueueDiscipline, Refusal};
use crate::steer::Hasher;
use crate::units::Nanos;
use crate::wire::{Dscp, TrafficClass};
use polder_buffers::Packet;
use schedule::{NO_HOST, Schedule};

/// Hosts between which a queue is fair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Isolation {
    /// Senders, for the uplink of a network.
    Source,
    /// Receivers, for its downlink.
    Destination,
    /// Senders and receivers.
    #[default]
    Both,
}

/// Parameters of `cake`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CakeOptions {
    /// Hosts between which the queue is fair.
    pub isolation: Isolation,
    /// Classes of traffic.
    pub tins: Tins,
    /// True if packets leave with DSCP 0; their class is that of the DSCP with which they came.
    pub wash: bool,
    /// Link whose overhead packets are charged for.
    pub link: LinkLayer,
    /// CoDel's parameters and ECN.
    pub aqm: Aqm,
    /// Bytes that a flow and a host send in a turn; at least 256.
    pub quantum: u32,
    /// Number of flows, and of hosts, that are told apart; 8 to 65,536, in steps of 8.
    pub flows: u32,
    /// Secret of the hash, so that no sender chooses the flow that it shares.
    pub seed: u64,
}

impl Default for CakeOptions {
    fn default() -> Self {
        Self {
            isolation: Isolation::default(),
            tins: Tins::default(),
            wash: false,
            link: LinkLayer::default(),
            aqm: Aqm::default(),
            quantum: 1514,
            flows: 1024,
            seed: 0,
        }
    }
}

/// Least quantum in bytes, and largest number of flows.
const LEAST_QUANTUM: u32 = 256;
const MOST_FLOWS: u32 = 65_536;
/// Added to a tag for each tin, and for destinations: entries of different tins and roles are different ones.
const TIN_STEP: u32 = 0x9e37_79b9;
const DESTINATION_STEP: u32 = 0x7f4a_7c15;

/// A queue with fairness between hosts.
#[derive(Debug)]
pub(super) struct Cake {
    options: CakeOptions,
    hasher: Hasher,
    schedule: Schedule,
    /// By host: bytes of the flows that take turns in it.
    host_backlogs: Box<[u32]>,
    marks: u64,
}

impl Cake {
    pub(super) fn new(options: CakeOptions, store: PacketStore) -> Self {
        let quantum = options.quantum.max(LEAST_QUANTUM);
        let schedule = Schedule::new(options.flows.min(MOST_FLOWS), quantum, store);
        Self {
            options,
            hasher: Hasher::mixed(options.seed, false),
            host_backlogs: (0..schedule.host_table.len()).map(|_| 0).collect(),
            schedule,
            marks: 0,
        }
    }

    /// Drops packets of the hosts that have most bytes.
    #[cold]
    fn drop_from_fattest(&mut self, refuse: &mut dyn FnMut(Packet, Refusal)) {
        let Self { schedule, host_backlogs, .. } = self;
        relieve(host_backlogs, drop_batch(schedule.store.len()), |host, backlog| {
            let Some(stored) = schedule.pop_of_host(host, backlog) else { return false };
            refuse(stored.packet, Refusal::Full);
            true
        });
    }

    /// Tin of a packet, which is washed if the queue does so.
    #[inline]
    fn classify(&self, packet: &mut Packet) -> usize {
        let class = traffic_class(packet).unwrap_or_default();
        let tin = self.options.tins.of(class.dscp());
        if self.options.wash && class.dscp() != Dscp::DEFAULT {
            set_traffic_class(packet, TrafficClass::new(Dscp::DEFAULT, class.ecn()));
        }
        tin
    }

    /// Entries of the hosts between which the queue is fair.
    fn hosts(&mut self, [source, destination]: [u32; 2], salt: u32) -> [u32; 2] {
        let table = &mut self.schedule.host_table;
        let source = source.wrapping_add(salt);
        let destination = destination.wrapping_add(salt).wrapping_add(DESTINATION_STEP);
        match self.options.isolation {
            Isolation::Source => [table.find(source), NO_HOST],
            Isolation::Destination => [table.find(destination), NO_HOST],
            Isolation::Both => [table.find(source), table.find(destination)],
        }
    }
}

impl QueueDiscipline for Cake {
    fn enqueue(&mut self, mut packet: Packet, came: Nanos, refuse: &mut dyn FnMut(Packet, Refusal)) {
        let bytes = packet.len() as u64;
        while !self.schedule.store.has_room(bytes) {
            if !self.schedule.store.could_hold(bytes) {
                return refuse(packet, Refusal::Full);
            }
            self.drop_from_fattest(refuse);
        }
        let tin = self.classify(&mut packet);
        let salt = TIN_STEP.wrapping_mul(u32::try_from(tin).unwrap_or(0));
        let (hash, hosts) = self.hasher.flow_and_hosts(&packet);
        let charge = u32::try_from(self.charge(&packet)).unwrap_or(u32::MAX);
        let index = self.schedule.flow_table.find(hash.wrapping_add(salt));
        if self.schedule.entries[index as usize].turn == Turn::Idle {
            let hosts = self.hosts(hosts, salt);
            self.schedule.start(index, hosts, tin);
        }
        let Schedule { entries, store, backlogs, .. } = &mut self.schedule;
        let chain = &mut entries[index as usize].flow.chain;
        if let Err(packet) = store.append(chain, Stored { packet, came, charge }) {
            return refuse(packet, Refusal::Full);
        }
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        backlogs[index as usize] += bytes;
        self.host_backlogs[self.schedule.group(index)] += bytes;
    }

    fn dequeue(&mut self, now: Nanos, refuse: &mut dyn FnMut(Packet, Refusal)) -> Option<(Packet, Nanos)> {
        let Self { options: CakeOptions { aqm, .. }, schedule, host_backlogs, marks, .. } = self;
        let stored = schedule.next(host_backlogs, |flow, store, backlog| {
            flow.take((store, backlog), aqm, now, marks, &mut *refuse)
        })?;
        Some((stored.packet, stored.came))
    }

    fn pop(&mut self) -> Option<(Packet, Nanos)> {
        let pop = |flow: &mut super::flow::Flow, store: &mut PacketStore, backlog: &mut u32| {
            flow.pop(store, backlog)
        };
        let stored = self.schedule.next(&mut self.host_backlogs, pop)?;
        Some((stored.packet, stored.came))
    }

    fn len(&self) -> usize {
        self.schedule.store.len()
    }

    fn bytes(&self) -> u64 {
        self.schedule.store.bytes()
    }

    fn charge(&self, packet: &Packet) -> u64 {
        self.options.link.charge(packet)
    }

    fn take_marks(&mut self) -> u64 {
        core::mem::take(&mut self.marks)
    }
}
