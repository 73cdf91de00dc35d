//! Events that are found by comparison: drops, stations, neighbours, routes, tunnels, worker modes, refused
//! connections.
//!
//! Once a second the control thread compares the gateway's state with the previous second's. Tables are
//! walked only when their change counters differ, and each second reports a bounded number of stations and
//! neighbours.

use super::accounts::drops;
use super::gateway::Gateway;
use crate::config::model::Bridge;
use crate::events::{EventKind, Events};
use crate::show::tunnels::state as state_of_tunnel;
use polder_buffers::PortId;
use polder_datapath::drops::DropReason;
use polder_datapath::forward::Fdb;
use polder_datapath::scheduler::Mode;
use polder_datapath::units::Nanos;
use polder_datapath::wire::MacAddress;
use std::collections::HashMap;

/// Interval of the comparisons.
const LOOK: Nanos = Nanos::SECOND;
/// Time without a drop after which a drop period ends.
const QUIET: Nanos = Nanos::from_seconds(60);
/// Maximum number of stations, and of neighbours, reported each second.
const NAMED: usize = 32;
/// Largest forwarding database whose stations are compared; changes of a larger one are only counted.
const WALKED: u32 = 65_536;

/// State of the gateway at the last comparison.
#[derive(Debug, Default)]
pub(super) struct EventWatch {
    looked_at: Nanos,
    drops: HashMap<&'static str, Dropping>,
    /// Learned and moved addresses, summed over all bridges.
    learning: (u64, u64),
    stations: HashMap<String, HashMap<(u16, MacAddress), PortId>>,
    /// By worker: counts of frames with another member's source address, and of frames that came back in a
    /// loop.
    offences: Vec<[u64; 2]>,
    /// Time of the last report of such a frame, by the event's text.
    told: HashMap<String, Nanos>,
    neighbours: HashMap<(String, String), Option<MacAddress>>,
    route_changes: u64,
    settled: Option<bool>,
    tunnels: HashMap<String, &'static str>,
    modes: Vec<u64>,
    /// Counts of connections refused because the table was full or a source address had too many, and of lost
    /// events.
    connections: [u64; 3],
    /// Time of the last report of refused connections.
    refused_at: Option<Nanos>,
}

/// A drop period: drops for one reason without a pause.
#[derive(Clone, Copy, Debug, Default)]
struct Dropping {
    /// Drop count at the last comparison.
    seen: u64,
    /// Drop count and time at the beginning of the period; `None` outside of a period.
    began: Option<(u64, Nanos)>,
    last: Nanos,
}

impl EventWatch {
    /// True if the next comparison is due.
    pub(super) fn is_due(&self, now: Nanos) -> bool {
        now.since(self.looked_at) >= LOOK
    }

    /// Compares the state with the previous one, and records the differences as events.
    pub(super) fn look(&mut self, gateway: &Gateway, now: Nanos) {
        self.looked_at = now;
        let events = &gateway.events;
        self.look_at_drops(gateway, now, events);
        self.look_at_stations(gateway, events);
        self.look_at_offences(gateway, now, events);
        self.look_at_routes(gateway, events);
        self.look_at_tunnels(gateway, now, events);
        self.look_at_modes(gateway, events);
        self.look_at_connections(gateway, now, events);
    }

    fn look_at_drops(&mut self, gateway: &Gateway, now: Nanos, events: &Events) {
        let (workers, queues) = (gateway.worker_counters(), gateway.queue_counters());
        for &reason in DropReason::ALL {
            let packets = drops(&workers, &queues, reason);
            let dropping = self.drops.entry(reason.name()).or_default();
            if let Some(kind) = dropping.look((reason.name(), reason.stage()), packets, now) {
                events.note(kind);
            }
        }
    }

    fn look_at_stations(&mut self, gateway: &Gateway, events: &Events) {
        let sums = gateway.bridge_counters().fold((0, 0), |(learned, moved), counters| {
            (learned + counters.learned.get(), moved + counters.moved.get())
        });
        let before = std::mem::replace(&mut self.learning, sums);
        if before == sums {
            return;
        }
        self.stations
            .retain(|name, _| gateway.configuration.bridges.iter().any(|bridge| bridge.name == *name));
        for bridge in &gateway.configuration.bridges {
            let Some(fdb) = gateway.lasting.fdbs.get(&bridge.name) else { continue };
            if fdb.capacity() > WALKED {
                let (learnt, moved) = (sums.0.saturating_sub(before.0), sums.1.saturating_sub(before.1));
                events.note(EventKind::MoreStations { bridge: bridge.name.clone(), learnt, moved });
                continue;
            }
            let seen = self.stations.entry(bridge.name.clone()).or_default();
            let name = |port| gateway.configuration.name_of(port).unwrap_or_default().to_owned();
            compare_stations(bridge, fdb, seen, name).into_iter().for_each(|kind| events.note(kind));
        }
    }

    /// Reports each worker's last frame with another member's source address, and the last looped frame: at
    /// most once a minute for a port and address.
    fn look_at_offences(&mut self, gateway: &Gateway, now: Nanos, events: &Events) {
        self.told.retain(|_, told| now.since(*told) < QUIET);
        let mut counts = Vec::new();
        for (worker, counters) in gateway.bridge_counters().enumerate() {
            let offences = [&counters.own_addresses, &counters.looped];
            let count = offences.map(|offences| offences.count.get());
            let before = self.offences.get(worker).copied().unwrap_or_default();
            counts.push(count);
            let kinds = [own_address, hairpin_loop];
            for ((offences, kind), is_news) in
                offences.into_iter().zip(kinds).zip([count[0] > before[0], count[1] > before[1]])
            {
                let told = is_news.then(|| offences.last()).flatten();
                let event = told.and_then(|last| kind(gateway, last));
                event.into_iter().for_each(|event| self.tell_once(event, now, events));
            }
        }
        self.offences = counts;
    }

    /// Reports an event unless the same text was reported in the last minute.
    fn tell_once(&mut self, event: EventKind, now: Nanos, events: &Events) {
        let text = event.text();
        if !self.told.contains_key(&text) && self.told.len() < NAMED {
            self.told.insert(text, now);
            events.note(event);
        }
    }

    fn look_at_routes(&mut self, gateway: &Gateway, events: &Events) {
        let routing = &gateway.lasting.routing;
        let settled = routing.is_settled();
        if self.settled.replace(settled).is_some_and(|before| before != settled) {
            events.note(EventKind::RoutesSynchronized { settled });
        }
        let changes = routing.changes();
        let before = std::mem::replace(&mut self.route_changes, changes);
        if changes == before {
            return;
        }
        let (ipv4, ipv6) = routing.count_routes();
        events.note(EventKind::Routes { ipv4, ipv6, changes: changes - before });
        let neighbours = routing.known_neighbours();
        let different = neighbours.iter().filter(|(key, mac)| self.neighbours.get(*key) != Some(*mac));
        let changed = different.map(|((port, address), mac)| (port.clone(), address.clone(), *mac));
        let gone =
            self.neighbours.iter().filter(|(key, mac)| mac.is_some() && !neighbours.contains_key(*key));
        let gone = gone.map(|((port, address), _)| (port.clone(), address.clone(), None));
        for (port, address, mac) in changed.chain(gone).take(NAMED) {
            let known = self.neighbours.get(&(port.clone(), address.clone())).copied().flatten();
            // A new entry without an address yet is not reported.
            if mac.is_some() || known.is_some() {
                events.note(EventKind::Neighbour { port, address, mac: mac.map(|mac| mac.to_string()) });
            }
        }
        self.neighbours = neighbours;
    }

    fn look_at_tunnels(&mut self, gateway: &Gateway, now: Nanos, events: &Events) {
        let mut states = HashMap::new();
        // Changes of tunnels with keepalives are reported when they happen.
        for tunnel in gateway.configuration.tunnels.iter().filter(|tunnel| !tunnel.is_watched()) {
            let port = gateway.ports.iter().find(|state| state.configuration.id == tunnel.port);
            let state = gateway.lasting.tunnels.get(&tunnel.name);
            let has_next_hop = state.is_some_and(|state| state.next_hop.address().is_some());
            let silent = state.and_then(|state| state.last_received()).map(|heard| now.since(heard).0);
            let (word, up) = state_of_tunnel(port.is_some_and(|port| port.open), has_next_hop, None, silent);
            let before = self.tunnels.get(&tunnel.name).copied();
            // A new tunnel has received nothing yet.
            if before != Some(word) && (before.is_some() || word == "up") {
                let tunnel = tunnel.name.clone();
                events.note(EventKind::Tunnel { tunnel, state: word.to_owned(), up });
            }
            states.insert(tunnel.name.clone(), word);
        }
        self.tunnels = states;
    }

    /// Reports refused connections and lost events, each at most once a minute.
    fn look_at_connections(&mut self, gateway: &Gateway, now: Nanos, events: &Events) {
        let Some((_, known)) = gateway.connections() else { return };
        let counters = known.lock().totals().decisions;
        let counts = [counters.refused_full, counters.refused_share, counters.lost];
        let before = std::mem::replace(&mut self.connections, counts);
        let [full, share, lost] = [0, 1, 2].map(|count| counts[count].saturating_sub(before[count]));
        let is_quiet = |told: Option<Nanos>| told.is_none_or(|told| now.since(told) >= QUIET);
        if full + share > 0 && is_quiet(self.refused_at) {
            self.refused_at = Some(now);
            events.note(EventKind::ConnectionsRefused { full, share });
        }
        if lost > 0 {
            self.tell_once(EventKind::ConnectionEventsLost, now, events);
        }
    }

    fn look_at_modes(&mut self, gateway: &Gateway, events: &Events) {
        let modes = gateway.workers.iter().map(|worker| worker.counters.mode.get()).collect::<Vec<_>>();
        let usual = Mode::default();
        for (worker, &mode) in modes.iter().enumerate() {
            let before = self.modes.get(worker).map_or(usual, |&mode| Mode::of(mode));
            if Mode::of(mode) != before {
                events.note(EventKind::WorkerMode { worker, mode: Mode::of(mode).name().to_owned() });
            }
        }
        self.modes = modes;
    }
}

fn own_address(gateway: &Gateway, (port, address): (PortId, MacAddress)) -> Option<EventKind> {
    let (bridge, port) = bridge_and_port(gateway, port)?;
    Some(EventKind::OwnAddress { bridge, port, address: address.to_string() })
}

fn hairpin_loop(gateway: &Gateway, (port, address): (PortId, MacAddress)) -> Option<EventKind> {
    let (bridge, port) = bridge_and_port(gateway, port)?;
    Some(EventKind::HairpinLoop { bridge, port, address: address.to_string() })
}

/// Names of a bridge member and of its bridge.
fn bridge_and_port(gateway: &Gateway, port: PortId) -> Option<(String, String)> {
    let bridge = gateway.configuration.bridge_of(port)?;
    Some((bridge.name.clone(), gateway.configuration.name_of(port)?.to_owned()))
}

impl Dropping {
    /// Compares a reason's drop count with the previous one.
    fn look(&mut self, (reason, stage): (&str, &str), packets: u64, now: Nanos) -> Option<EventKind> {
        let before = std::mem::replace(&mut self.seen, packets);
        let (reason, stage) = (reason.to_owned(), stage.to_owned());
        match self.began {
            None if packets > before => {
                (self.began, self.last) = (Some((before, now)), now);
                Some(EventKind::DropsBegan { reason, stage, packets: packets - before })
            }
            Some(_) if packets > before => {
                self.last = now;
                None
            }
            Some((first, began)) if now.since(self.last) >= QUIET => {
                self.began = None;
                let (packets, nanos) = (packets.saturating_sub(first), self.last.since(began).0);
                Some(EventKind::DropsEnded { reason, stage, packets, nanos })
            }
            None | Some(_) => None,
        }
    }
}

/// Events for stations that are new or have moved, and for the number beyond the limit.
fn compare_stations(
    bridge: &Bridge,
    fdb: &Fdb,
    seen: &mut HashMap<(u16, MacAddress), PortId>,
    name: impl Fn(PortId) -> String,
) -> Vec<EventKind> {
    let entries = fdb.entries().filter(|entry| !entry.is_static);
    let now = entries.map(|entry| ((entry.vlan, entry.address), entry.port)).collect::<HashMap<_, _>>();
    let (mut events, mut learnt, mut moved) = (Vec::new(), 0, 0);
    for (&(vlan, station), &port) in &now {
        let before = seen.get(&(vlan, station)).copied();
        if before == Some(port) {
            continue;
        }
        if events.len() == NAMED {
            *(if before.is_some() { &mut moved } else { &mut learnt }) += 1;
            continue;
        }
        let (vlan, address) = (bridge.is_vlan_aware().then_some(vlan), station.to_string());
        let bridge = bridge.name.clone();
        events.push(match before {
            None => EventKind::StationLearnt { bridge, port: name(port), vlan, address },
            Some(from) => EventKind::StationMoved { bridge, from: name(from), to: name(port), vlan, address },
        });
    }
    if learnt + moved > 0 {
        events.push(EventKind::MoreStations { bridge: bridge.name.clone(), learnt, moved });
    }
    *seen = now;
    events
}

#[cfg(test)]
mod tests {
    use super::*;
    use polder_datapath::forward::{FdbKey, FdbOptions, FdbTime};

    #[test]
    fn drops_begin_once_and_end_after_a_quiet_time() {
        let mut dropping = Dropping::default();
        let mut look =
            |packets, seconds| dropping.look(("tx-full", "transmit"), packets, Nanos::from_seconds(seconds));
        assert_eq!(look(0, 1), None);
        let Some(EventKind::DropsBegan { packets: 17, .. }) = look(17, 2) else { panic!("they begin") };
        assert_eq!(look(20, 3), None);
        assert_eq!(look(20, 62), None, "not quiet for long enough");
        let ended = look(20, 63);
        let nanos = Nanos::SECOND.0;
        let (reason, stage) = ("tx-full".to_owned(), "transmit".to_owned());
        assert_eq!(ended, Some(EventKind::DropsEnded { reason, stage, packets: 20, nanos }));
        assert_eq!(look(20, 64), None);
        assert!(matches!(look(21, 65), Some(EventKind::DropsBegan { packets: 1, .. })));
    }

    #[test]
    fn stations_are_learnt_and_move_and_too_many_are_counted() {
        let (bridge, mut seen) = (Bridge { name: "br0".to_owned(), ..Bridge::default() }, HashMap::new());
        let fdb = Fdb::new(FdbOptions { capacity: 1024, seed: 1 });
        let time = FdbTime { second: 1, ageing: 300 };
        let key = |last: u8| FdbKey::new(MacAddress([2, 0, 0, 0, 0, last]), 0);
        let name = |port: PortId| format!("p{}", port.0);
        fdb.learn(key(1), PortId(0), time);
        let found = compare_stations(&bridge, &fdb, &mut seen, name);
        assert!(matches!(&found[..], [EventKind::StationLearnt { port, .. }] if port == "p0"), "{found:?}");
        assert_eq!(compare_stations(&bridge, &fdb, &mut seen, name), []);
        fdb.learn(key(1), PortId(1), time);
        let found = compare_stations(&bridge, &fdb, &mut seen, name);
        let moved =
            matches!(&found[..], [EventKind::StationMoved { from, to, .. }] if from == "p0" && to == "p1");
        assert!(moved, "{found:?}");
        (10..110).for_each(|last| {
            fdb.learn(key(last), PortId(0), time);
        });
        let found = compare_stations(&bridge, &fdb, &mut seen, name);
        assert_eq!(found.len(), NAMED + 1);
        assert!(
            matches!(found.last(), Some(EventKind::MoreStations { learnt: 68, moved: 0, .. })),
            "{found:?}"
        );
    }
}
