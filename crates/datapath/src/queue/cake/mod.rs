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

pub(super) use tins::TINS;
pub use tins::{TIN_NAMES, Tins};

use super::flow::{Aqm, drop_batch, relieve};
use super::link::LinkLayer;
use super::list::Turn;
use super::mark::{set_traffic_class, traffic_class};
use super::report::{FlowCounts, HostAddress, HostReport, QueueReport, TinState, flow_report, largest};
use super::store::{PacketStore, Stored};
use super::{QueueDiscipline, Refusal};
use crate::steer::Hasher;
use crate::units::Nanos;
use crate::wire::{Dscp, TrafficClass};
use core::any::Any;
use polder_buffers::Packet;
use schedule::{Entry, NO_HOST, Schedule};

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
    link: LinkLayer,
    hasher: Hasher,
    schedule: Schedule,
    /// By host: bytes of the flows that take turns in it.
    host_backlogs: Box<[u32]>,
    tins: [TinState; TINS],
    marks: u64,
}

impl Cake {
    pub(super) fn new(options: CakeOptions, link: LinkLayer, store: PacketStore) -> Self {
        let quantum = options.quantum.max(LEAST_QUANTUM);
        let schedule = Schedule::new(options.flows.min(MOST_FLOWS), quantum, store);
        Self {
            options,
            link,
            hasher: Hasher::mixed(options.seed, false),
            host_backlogs: (0..schedule.host_table.len()).map(|_| 0).collect(),
            schedule,
            tins: [TinState::default(); TINS],
            marks: 0,
        }
    }

    /// Changes the parameters; tins, the number of flows and the seed stay.
    pub(super) fn adjust(&mut self, new: CakeOptions, link: LinkLayer) {
        let CakeOptions { tins, flows, seed, .. } = self.options;
        self.options = CakeOptions { tins, flows, seed, ..new };
        self.schedule.set_quantum(new.quantum.max(LEAST_QUANTUM));
        self.link = link;
    }

    /// Drops packets of the hosts that have most bytes.
    #[cold]
    fn drop_from_fattest(&mut self, refuse: &mut dyn FnMut(Packet, Refusal)) {
        let Self { options, schedule, host_backlogs, tins, .. } = self;
        relieve(host_backlogs, drop_batch(schedule.store.len(), options.aqm.drop_batch), |host, backlog| {
            let Some((tin, stored)) = schedule.pop_of_host(host, backlog) else { return false };
            tins[tin].remove(&stored.packet);
            tins[tin].events.full += u64::from(stored.packet.wire_packets);
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

impl Cake {
    /// Report of a host, named by the first packet of a flow that takes turns in it; `None` if there is none.
    #[cold]
    fn host_report(&self, host: usize, bytes: u32, now: Nanos) -> Option<HostReport> {
        let Schedule { entries, backlogs, store, .. } = &self.schedule;
        let is_of_host = |entry: &Entry| entry.turn != Turn::Idle && entry.group() == host;
        let mut waiting =
            entries.iter().zip(backlogs).filter(|(entry, bytes)| **bytes > 0 && is_of_host(entry));
        let (entry, &own_bytes) = waiting.next()?;
        let flow = flow_report((store, entry.flow.chain), (own_bytes, entry.turn, entry.tin()), now);
        let is_source = self.options.isolation != Isolation::Destination && entry.is_in_first_host();
        Some(HostReport {
            address: flow.name.map(|name| HostAddress::of(&name, is_source)),
            is_source,
            bytes,
            flows: self.schedule.flows_of(host),
            tin: entry.tin(),
        })
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
        let charge = u32::try_from(self.link.charge(&packet)).unwrap_or(u32::MAX);
        let index = self.schedule.flow_table.find(hash.wrapping_add(salt));
        if self.schedule.entries[index as usize].turn == Turn::Idle {
            let hosts = self.hosts(hosts, salt);
            self.schedule.start(index, hosts, tin);
        }
        let Schedule { entries, store, backlogs, .. } = &mut self.schedule;
        let entry = &mut entries[index as usize];
        let state = &mut self.tins[entry.tin()];
        let wire_packets = u64::from(packet.wire_packets);
        if let Err(packet) = store.append(&mut entry.flow.chain, Stored { packet, came, charge }) {
            return refuse(packet, Refusal::Full);
        }
        state.add(wire_packets, bytes);
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        backlogs[index as usize] += bytes;
        self.host_backlogs[self.schedule.group(index)] += bytes;
    }

    fn dequeue(&mut self, now: Nanos, refuse: &mut dyn FnMut(Packet, Refusal)) -> Option<(Packet, Nanos)> {
        let Self { options: CakeOptions { aqm, .. }, schedule, host_backlogs, tins, marks, .. } = self;
        let (tin, stored) = schedule.next(host_backlogs, |tin, flow, store, backlog| {
            let (state, mut marked) = (&mut tins[tin], 0);
            let mut refuse = |packet: Packet, why| {
                state.remove(&packet);
                state.events.delay += u64::from(packet.wire_packets);
                refuse(packet, why);
            };
            let taken = flow.take((store, backlog), aqm, now, &mut marked, &mut refuse);
            state.events.marked += marked;
            *marks += marked;
            taken
        })?;
        tins[tin].leave(&stored.packet, now.since(stored.came));
        Some((stored.packet, stored.came))
    }

    fn pop(&mut self) -> Option<(Packet, Nanos)> {
        let pop = |_, flow: &mut super::flow::Flow, store: &mut PacketStore, backlog: &mut u32| {
            flow.pop(store, backlog)
        };
        let (tin, stored) = self.schedule.next(&mut self.host_backlogs, pop)?;
        self.tins[tin].remove(&stored.packet);
        Some((stored.packet, stored.came))
    }

    fn len(&self) -> usize {
        self.schedule.store.len()
    }

    fn bytes(&self) -> u64 {
        self.schedule.store.bytes()
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }

    fn take_marks(&mut self) -> u64 {
        core::mem::take(&mut self.marks)
    }

    fn tins(&mut self) -> &mut [TinState] {
        &mut self.tins
    }

    fn take_flow_counts(&mut self) -> FlowCounts {
        self.schedule.counts.take()
    }

    #[cold]
    fn report(&self, now: Nanos) -> QueueReport {
        let Schedule { entries, backlogs, store, .. } = &self.schedule;
        let flow = |(bytes, index): (u32, usize)| {
            let entry = &entries[index];
            flow_report((store, entry.flow.chain), (bytes, entry.turn, entry.tin()), now)
        };
        let flows = largest(backlogs).into_iter().map(flow).collect();
        let host = |(bytes, host): (u32, usize)| self.host_report(host, bytes, now);
        QueueReport { flows, hosts: largest(&self.host_backlogs).into_iter().filter_map(host).collect() }
    }
}
