//! Turns of flows in hosts, and of hosts in tins.

use super::super::flow::Flow;
use super::super::list::{Link, Linked, List, Turn, Turns};
use super::super::report::FlowCounts;
use super::super::store::{PacketStore, Stored};
use super::table::Table;
use super::tins::{TINS, Tin, choose};

/// Index of no host.
pub(super) const NO_HOST: u32 = u32::MAX;
/// Number of flows of a host that are compared before one of them loses a packet.
const COMPARED: usize = 8;

/// A flow, its hosts, and the list in which it takes turns.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) flow: Flow,
    link: Link,
    pub(super) turn: Turn,
    /// Its hosts; the second one is [`NO_HOST`] if one of them is isolated only.
    hosts: [u32; 2],
    /// The one of its hosts in which it takes turns.
    group: u32,
    tin: u8,
}

impl Entry {
    /// Number of its tin.
    pub(super) fn tin(&self) -> usize {
        usize::from(self.tin)
    }

    /// Host in which it takes turns.
    pub(super) fn group(&self) -> usize {
        self.group as usize
    }

    /// True if it takes turns in the first one of its hosts.
    pub(super) fn is_in_first_host(&self) -> bool {
        self.group == self.hosts[0]
    }
}

const _: () = assert!(size_of::<Entry>() <= 80 && size_of::<Host>() <= 40);

impl Linked for Entry {
    #[inline]
    fn link(&mut self) -> &mut Link {
        &mut self.link
    }
}

/// A host: the flows that take turns in it.
#[derive(Clone, Copy, Debug, Default)]
struct Host {
    turns: Turns,
    deficit: i64,
    link: Link,
    /// Number of flows that have this host, whether they take turns in it or not.
    flows: u32,
    turn: Turn,
}

impl Linked for Host {
    #[inline]
    fn link(&mut self) -> &mut Link {
        &mut self.link
    }
}

/// Flows, hosts and tins of a queue.
#[derive(Debug)]
pub(super) struct Schedule {
    quantum: u32,
    pub(super) entries: Box<[Entry]>,
    /// By flow: bytes that wait.
    pub(super) backlogs: Box<[u32]>,
    pub(super) flow_table: Table,
    hosts: Box<[Host]>,
    pub(super) host_table: Table,
    tins: [Tin; TINS],
    pub(super) counts: FlowCounts,
    pub(super) store: PacketStore,
}

impl Schedule {
    pub(super) fn new(flows: u32, quantum: u32, store: PacketStore) -> Self {
        let (flow_table, host_table) = (Table::new(flows), Table::new(flows));
        let entry = Entry {
            flow: Flow::default(),
            link: Link::default(),
            turn: Turn::Idle,
            hosts: [NO_HOST; 2],
            group: NO_HOST,
            tin: 0,
        };
        Self {
            quantum,
            entries: (0..flow_table.len()).map(|_| entry).collect(),
            backlogs: (0..flow_table.len()).map(|_| 0).collect(),
            hosts: (0..host_table.len()).map(|_| Host::default()).collect(),
            tins: [Tin::default(); TINS],
            counts: FlowCounts::default(),
            flow_table,
            host_table,
            store,
        }
    }

    /// Host in which a flow takes turns.
    pub(super) fn group(&self, index: u32) -> usize {
        self.entries[index as usize].group as usize
    }

    /// Number of flows of a host.
    pub(super) fn flows_of(&self, host: usize) -> u32 {
        self.hosts[host].flows
    }

    /// Changes the bytes of a turn.
    pub(super) fn set_quantum(&mut self, quantum: u32) {
        self.quantum = quantum;
    }

    /// Gives an idle flow with these hosts its first turn.
    pub(super) fn start(&mut self, index: u32, hosts: [u32; 2], tin: usize) {
        for host in hosts.into_iter().filter(|&host| host != NO_HOST) {
            self.hosts[host as usize].flows += 1;
        }
        let entry = &mut self.entries[index as usize];
        self.counts.moved(Turn::Idle, Turn::New);
        (entry.hosts, entry.group, entry.turn) = (hosts, hosts[0], Turn::New);
        entry.tin = u8::try_from(tin).unwrap_or(0);
        entry.flow.deficit = i64::from(self.quantum);
        let group = self.busier(index);
        self.entries[index as usize].group = group;
        let host = &mut self.hosts[group as usize];
        host.turns.new.push(index, &mut self.entries);
        if host.turn == Turn::Idle {
            host.turn = Turn::New;
            host.deficit = i64::from(self.quantum);
            self.tins[tin].turns.new.push(group, &mut self.hosts);
        }
    }

    /// The one of a flow's hosts that has more flows; the one in which it takes turns if both have as many.
    #[inline]
    fn busier(&self, index: u32) -> u32 {
        let Entry { hosts: [first, second], group, .. } = self.entries[index as usize];
        if second == NO_HOST {
            return first;
        }
        let other = if group == first { second } else { first };
        let flows = |host: u32| self.hosts[host as usize].flows;
        if flows(other) > flows(group) { other } else { group }
    }

    /// Dequeues a packet of the next flow in turn, as `take` does it.
    #[inline]
    pub(super) fn next(
        &mut self,
        host_backlogs: &mut [u32],
        mut take: impl FnMut(usize, &mut Flow, &mut PacketStore, &mut u32) -> Option<Stored>,
    ) -> Option<(usize, Stored)> {
        loop {
            let tin = choose(&mut self.tins, self.quantum)?;
            let group = self.tins[tin].turns.first()?;
            let host = &mut self.hosts[group as usize];
            if host.deficit <= 0 {
                host.deficit += i64::from(self.quantum);
                self.rotate_host(tin, group);
                continue;
            }
            let Some(index) = host.turns.first() else {
                self.leave_tin(tin, group);
                continue;
            };
            let entry = &mut self.entries[index as usize];
            if entry.flow.deficit <= 0 {
                entry.flow.deficit += i64::from(self.quantum);
                self.rotate_flow(index, tin, host_backlogs);
                continue;
            }
            let backlog = &mut self.backlogs[index as usize];
            let before = *backlog;
            let own_tin = entry.tin();
            let taken = take(own_tin, &mut entry.flow, &mut self.store, backlog);
            host_backlogs[group as usize] -= before - *backlog;
            let Some(stored) = taken else {
                self.leave_host(index, group);
                continue;
            };
            let charge = i64::from(stored.charge);
            entry.flow.deficit -= charge;
            host.deficit -= charge;
            self.tins[tin].deficit -= charge;
            return Some((own_tin, stored));
        }
    }

    /// Ends the turn of the first host of a tin.
    fn rotate_host(&mut self, tin: usize, group: u32) {
        self.hosts[group as usize].turn = Turn::Old;
        let turns = &mut self.tins[tin].turns;
        turns.pop(&mut self.hosts);
        turns.old.push(group, &mut self.hosts);
    }

    /// Ends the turn of the first flow of its host; it goes on in the busier one of its hosts.
    fn rotate_flow(&mut self, index: u32, tin: usize, host_backlogs: &mut [u32]) {
        let (from, to) = (self.entries[index as usize].group, self.busier(index));
        self.hosts[from as usize].turns.pop(&mut self.entries);
        let entry = &mut self.entries[index as usize];
        self.counts.moved(entry.turn, Turn::Old);
        (entry.turn, entry.group) = (Turn::Old, to);
        let host = &mut self.hosts[to as usize];
        host.turns.old.push(index, &mut self.entries);
        if from == to {
            return;
        }
        let bytes = self.backlogs[index as usize];
        host_backlogs[from as usize] -= bytes;
        host_backlogs[to as usize] += bytes;
        if host.turn == Turn::Idle {
            // It has no quantum to begin with: the flow has had its turn.
            (host.turn, host.deficit) = (Turn::Old, 0);
            self.tins[tin].turns.old.push(to, &mut self.hosts);
        }
    }

    /// The first flow of a host has no packets.
    fn leave_host(&mut self, index: u32, group: u32) {
        let turns = &mut self.hosts[group as usize].turns;
        turns.pop(&mut self.entries);
        let entry = &mut self.entries[index as usize];
        if entry.turn == Turn::New {
            self.counts.moved(Turn::New, Turn::Old);
            entry.turn = Turn::Old;
            turns.old.push(index, &mut self.entries);
        } else {
            self.stop(index);
        }
    }

    /// The flow is in no list.
    fn stop(&mut self, index: u32) {
        let entry = &mut self.entries[index as usize];
        self.counts.moved(entry.turn, Turn::Idle);
        entry.turn = Turn::Idle;
        self.flow_table.release(index);
        for host in entry.hosts.into_iter().filter(|&host| host != NO_HOST) {
            self.hosts[host as usize].flows -= 1;
            self.release_host(host);
        }
    }

    /// The first host of a tin has no flows that take turns in it.
    fn leave_tin(&mut self, tin: usize, group: u32) {
        let turns = &mut self.tins[tin].turns;
        turns.pop(&mut self.hosts);
        let host = &mut self.hosts[group as usize];
        if host.turn == Turn::New {
            host.turn = Turn::Old;
            turns.old.push(group, &mut self.hosts);
        } else {
            host.turn = Turn::Idle;
            self.release_host(group);
        }
    }

    fn release_host(&mut self, host: u32) {
        let Host { flows, turn, .. } = self.hosts[host as usize];
        if flows == 0 && turn == Turn::Idle {
            self.host_table.release(host);
        }
    }

    /// Removes a packet of a host from the head of a flow: the one with most bytes of a few. Returns it with
    /// its tin; `None` if the host has none.
    pub(super) fn pop_of_host(&mut self, group: usize, host_backlog: &mut u32) -> Option<(usize, Stored)> {
        loop {
            let Turns { new, old } = self.hosts[group].turns;
            let (old, new) = (self.fattest(old), self.fattest(new));
            let (most, fattest) = old.max(new);
            if most > 0 {
                let backlog = &mut self.backlogs[fattest as usize];
                let entry = &mut self.entries[fattest as usize];
                let stored = entry.flow.pop(&mut self.store, backlog);
                *host_backlog -= most - *backlog;
                return Some((entry.tin(), stored?));
            }
            // The flows that were compared are empty.
            let index = self.hosts[group].turns.pop(&mut self.entries)?;
            self.stop(index);
        }
    }

    /// Bytes and index of the flow with most bytes, of the first few of a list.
    fn fattest(&mut self, list: List) -> (u32, u32) {
        let mut next = list.first();
        let flows = core::iter::from_fn(|| {
            let index = next?;
            next = List::after(index, &mut self.entries);
            Some((self.backlogs[index as usize], index))
        });
        flows.take(COMPARED).max().unwrap_or((0, 0))
    }
}
