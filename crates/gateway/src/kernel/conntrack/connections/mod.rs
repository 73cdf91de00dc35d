//! Decides which connections may be carried, and keeps the kernel's timers of those that are.
//!
//! [`Connections`] takes the kernel's events, reports of carried packets, and time; it gives requests for the kernel
//! ([`Connections::next_requests`]) and changes of the table of carried connections ([`Connections::changes`]). It has no
//! I/O. A connection that it does not name is the kernel's, so losing state is safe.
//!
//! | rule | where |
//! |---|---|
//! | UDP when assured, TCP when established and assured; zone 0; no helper, sequence adjustment, SYN proxy, flowtable | `eligibility.rs` |
//! | connections that may be older than the socket are entered once an event has told of them; an update asks for it | `events.rs` |
//! | TCP only when the kernel has acknowledged that it accepts any segment | `entry.rs` |
//! | timers at a quarter, within 75 s of a packet that the kernel saw, and each GiB | `entry.rs` |
//! | at most so many connections, and of one source address | `recency.rs` |
//!
//! A connection whose timer is about to end without a carried packet leaves, and enters anew as another one: its entry
//! is closed, so that the next packet is the kernel's, which alone decides whether the connection still exists.

mod connection;
mod dump;
mod eligibility;
mod entry;
mod events;
mod recency;
mod table;

pub use connection::{Change, Connection, ConnectionId, Timeouts, Tuples};

use super::message::{self, Event, Record, Tuple, Update};
use core::num::NonZeroU32;
use dump::Dump;
use entry::Entry;
use hashbrown::HashTable;
use polder_datapath::units::Nanos;
use recency::Recency;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::hash::RandomState;
use std::net::IpAddr;

/// Bounds of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of connections.
    pub most: usize,
    /// Maximum number of connections whose first packet came from one source address.
    pub share: usize,
    /// Shortest time without packets after which a connection may make room for another.
    pub idle: Nanos,
    /// Timeouts of the kernel.
    pub timeouts: Timeouts,
}

impl Limits {
    /// A quarter of the table for a source address, but 64 connections at least.
    pub fn new(most: usize) -> Self {
        let share = (most / 4).max(64).min(most);
        Self { most, share, idle: Nanos::from_seconds(10), timeouts: Timeouts::default() }
    }
}

/// Counters since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Connections that were entered, once each time.
    pub entered: u64,
    /// Connections that left, once each time.
    pub left: u64,
    /// Idle connections that left to make room.
    pub evicted: u64,
    /// Connections that were not entered because the table was full.
    pub refused_full: u64,
    /// Connections that were not entered because their source address has its share.
    pub refused_share: u64,
    /// Updates that the kernel refused for another reason than that the connection is gone.
    pub refused_by_kernel: u64,
    /// Updates that were sent.
    pub updates: u64,
    /// Times that events were lost.
    pub lost: u64,
}

/// The connections of the kernel that may be carried.
#[derive(Debug)]
pub struct Connections {
    limits: Limits,
    port_id: u32,
    entries: Vec<Option<Entry>>,
    /// Number of connections that each slot had.
    generations: Vec<u32>,
    free: Vec<u32>,
    /// Slots by the original tuple.
    by_tuple: HashTable<u32>,
    recency: Recency,
    alarms: BTreeSet<(Nanos, u32)>,
    /// Slots of updates that the kernel has not answered, by their numbers.
    unanswered: HashMap<u32, u32>,
    /// Number of the last request.
    sequence: NonZeroU32,
    dump: Dump,
    /// Hashes of connections that are never entered, by original tuple and kernel's identity.
    barred: HashSet<u64>,
    /// The same of those that may be older than the socket.
    older: HashSet<u64>,
    /// Original tuples of older connections of which the kernel is still to be asked for an event.
    to_ask: Vec<Tuple>,
    /// True if some could not be kept in these: then no connection enters.
    is_blind: bool,
    hasher: RandomState,
    local: HashSet<IpAddr>,
    changes: Vec<Change>,
    counters: Counters,
}

impl Connections {
    /// Starts without connections, and asks for a dump. `port_id` is the netlink port of the socket that sends the
    /// requests. With `knows_all`, the kernel sends events of all its connections; else those that began before the socket
    /// was there are entered once it has sent an event of them.
    pub fn new(limits: Limits, port_id: u32, knows_all: bool) -> Self {
        Self {
            limits,
            port_id,
            entries: Vec::new(),
            generations: Vec::new(),
            free: Vec::new(),
            by_tuple: HashTable::new(),
            recency: Recency::default(),
            alarms: BTreeSet::new(),
            unanswered: HashMap::new(),
            sequence: NonZeroU32::MIN,
            dump: Dump::first(!knows_all),
            barred: HashSet::new(),
            older: HashSet::new(),
            to_ask: Vec::new(),
            is_blind: false,
            hasher: RandomState::new(),
            local: HashSet::new(),
            changes: Vec::new(),
            counters: Counters::default(),
        }
    }

    /// Takes an event.
    pub fn take(&mut self, event: Event, now: Nanos) {
        match event {
            Event::Changed(record) if record.is_dumped => self.dumped(&record, now),
            Event::Changed(record) if record.port_id == self.port_id => self.own(&record, now),
            Event::Changed(record) => self.noticed(&record, now),
            Event::Destroyed(record) => self.destroyed(&record),
            Event::Done { sequence, is_interrupted } => self.dump_ended(sequence, is_interrupted, now),
            Event::Error { code, sequence } => self.answered(sequence, code, now),
            Event::Other => {}
        }
    }

    /// Changes since the last call, in their order.
    pub fn changes(&mut self) -> Vec<Change> {
        std::mem::take(&mut self.changes)
    }

    /// Requests that are due, as one datagram; `None` if none is. To be asked again until then, after all waiting events
    /// were taken: a timer is not set again behind the end of its connection. If it cannot be sent, see
    /// [`Connections::lost`].
    pub fn next_requests(&mut self, now: Nanos) -> Option<Vec<u8>> {
        if self.dump.due().is_some_and(|at| at <= now) {
            let sequence = self.next_sequence().get();
            self.dump.begin(sequence);
            return Some(message::dump(sequence));
        }
        let mut datagram = Vec::new();
        if self.has_to_ask() {
            for original in self.to_ask.split_off(self.to_ask.len().saturating_sub(BATCH)) {
                let sequence = self.next_sequence().get();
                datagram.extend(message::update(sequence, &original, Update::default()));
            }
            return Some(datagram);
        }
        let mut count = 0;
        while count < BATCH
            && self.unanswered.len() < UNANSWERED
            && let Some(&(at, slot)) = self.alarms.first()
            && at <= now
        {
            self.alarms.pop_first();
            count += usize::from(self.ring(slot, now, &mut datagram));
        }
        (!datagram.is_empty()).then_some(datagram)
    }

    /// Time at which [`Connections::next_requests`] is due by time alone.
    pub fn next_deadline(&self) -> Option<Nanos> {
        let is_open = self.unanswered.len() < UNANSWERED;
        let alarm = self.alarms.first().map(|(at, _)| *at).filter(|_| is_open);
        let ask = self.has_to_ask().then_some(Nanos(0));
        alarm.into_iter().chain(self.dump.due()).chain(ask).min()
    }

    /// Events or answers were lost, or requests could not be sent: all connections leave, and a dump is due.
    pub fn lost(&mut self, now: Nanos) {
        self.counters.lost += 1;
        for slot in 0..u32::try_from(self.entries.len()).unwrap_or(u32::MAX) {
            self.remove(slot);
        }
        self.unanswered.clear();
        self.dump.restart(now);
    }

    /// The connection was carried; `bytes` is the number of bytes carried since it was entered.
    pub fn moved(&mut self, id: ConnectionId, bytes: u64, now: Nanos) {
        self.report(id, |entry| entry.moved(bytes, now));
    }

    /// A packet of the connection went to the kernel, which has set its timer: between these times.
    pub fn went_up(&mut self, id: ConnectionId, between: (Nanos, Nanos)) {
        self.report(id, |entry| entry.went_up(between));
    }

    /// A FIN or a RST has passed: the connection leaves, is not entered again, and its timer is the kernel's.
    pub fn ended(&mut self, id: ConnectionId) {
        if self.entry(id).is_some() {
            self.bar_and_remove(id.slot);
        }
    }

    /// Addresses of this machine: connections with one of them at an end are the kernel's.
    pub fn set_local_addresses(&mut self, addresses: impl IntoIterator<Item = IpAddr>) {
        self.local = addresses.into_iter().collect();
        let is_local = |entry: &Entry| eligibility::is_local(&entry.tuples.both(), &self.local);
        let entries = self.entries.iter().flatten().filter(|entry| is_local(entry));
        for slot in entries.map(|entry| entry.id.slot).collect::<Vec<_>>() {
            self.remove(slot);
        }
    }

    /// True if a dump was complete since the start, or since events were lost.
    pub fn is_settled(&self) -> bool {
        self.dump.is_complete()
    }

    /// Number of connections, those that wait for the kernel's acknowledgement included.
    pub fn len(&self) -> usize {
        self.by_tuple.len()
    }

    /// True if there is no connection.
    pub fn is_empty(&self) -> bool {
        self.by_tuple.is_empty()
    }

    /// Counters since the start.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }
}

/// Maximum number of connections that are never entered, or may be older, and are remembered: more than the kernel has by
/// default.
const BARRED: usize = 1 << 20;
/// Maximum number of requests in a datagram.
const BATCH: usize = 64;
/// Maximum number of updates that the kernel has not answered.
const UNANSWERED: usize = 1024;

#[cfg(test)]
mod tests;
