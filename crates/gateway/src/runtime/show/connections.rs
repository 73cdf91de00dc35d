//! Rows of `polder show connections`.
//!
//! Connections are selected by their state at the last periodic reading; only the selected ones are read from
//! the table. So the cost of a view does not depend on the table's size.

use crate::kernel::hooks::EachPacket;
use crate::runtime::connections::{Entered, Seen, SharedKnown, State, Totals};
use crate::show::connections::{ConnectionRow, Connections};
use polder_datapath::units::Nanos;
use polder_devices::skb::connections::{ConnectionTable, Transport, Tuple};
use std::cmp::Reverse;
use std::net::SocketAddr;
use std::sync::Arc;

/// Maximum number of connections shown, unless the request gives a number.
pub(super) const MOST: usize = 1000;

/// State that the rows are made from, without the gateway's lock.
pub(in crate::runtime) struct Source {
    /// The table with its known connections; `None` if no port has `decide = "kernel"`.
    pub(in crate::runtime) shared: Option<(Arc<ConnectionTable>, Arc<SharedKnown>)>,
    /// Reason why no connection is carried.
    pub(in crate::runtime) obstacle: Option<String>,
    /// Kernel rules that keep connections between two ports with the kernel.
    pub(in crate::runtime) rules: Vec<EachPacket>,
    /// Port names by interface index.
    pub(in crate::runtime) ports: Vec<(u32, String)>,
    /// Current time.
    pub(in crate::runtime) now: Nanos,
}

impl Source {
    /// Totals only; `None` if no port has `decide = "kernel"`.
    pub(super) fn totals(self) -> Option<Connections> {
        let (table, known) = self.shared?;
        let totals = *known.lock().totals();
        Some(Connections { obstacle: self.obstacle, ..shown(&table, &totals) })
    }

    /// Totals, and the `most` connections with the highest rate that match the name, address, number or state
    /// `of`.
    pub(super) fn read(self, of: Option<&str>, most: usize) -> Connections {
        let Some((table, known)) = &self.shared else {
            return Connections { obstacle: self.obstacle, ..Connections::default() };
        };
        let known = known.lock();
        let totals = *known.totals();
        let mut entered = known.connections().collect::<Vec<_>>();
        if let Some(of) = of {
            entered.retain(|entered| self.row(entered).has(of));
        }
        entered.sort_unstable_by_key(|entered| Reverse((entered.rate, entered.seen.carried)));
        let left_out = entered.len().saturating_sub(most) as u64;
        entered.truncate(most);
        let entered = entered.into_iter().cloned().collect::<Vec<_>>();
        drop(known);
        let connections = entered.into_iter().filter_map(|mut entered| {
            let directions = table.state(&entered.connection());
            entered.seen = Seen::of(&directions);
            // The entry was removed meanwhile.
            directions[0].is_entered.then(|| self.row(&entered))
        });
        let connections = connections.collect();
        Connections { obstacle: self.obstacle.clone(), connections, left_out, ..shown(table, &totals) }
    }

    fn row(&self, entered: &Entered) -> ConnectionRow {
        let Entered { seen, rate, .. } = entered;
        let connection = entered.connection();
        let state = seen.state();
        let [source, destination] = ends(&connection.original);
        let [translated_source, translated_destination] = ends(&connection.reply.reversed());
        let port = |interface| {
            let port = self.ports.iter().find(|(number, _)| *number == interface);
            port.map(|(_, name)| name.clone())
        };
        let [from, to] = seen.interfaces.map(port);
        let is_kept = self.obstacle.is_some() && matches!(state, State::Carried | State::Waiting);
        ConnectionRow {
            protocol: match connection.original.transport {
                Transport::Tcp => "tcp".to_owned(),
                Transport::Udp => "udp".to_owned(),
                Transport::UdpLite => "udplite".to_owned(),
            },
            translated_source: Some(translated_source).filter(|translated| *translated != source),
            translated_destination: Some(translated_destination)
                .filter(|translated| *translated != destination),
            source,
            destination,
            from,
            to,
            state: if is_kept { "obstacle" } else { state.word() }.to_owned(),
            reason: seen.reason(&self.rules).filter(|_| !is_kept),
            lane: "skb".to_owned(),
            age_nanos: self.now.since(entered.since).0,
            packets_per_second: rate.packets,
            bytes_per_second: rate.bytes,
            packets: seen.carried.packets,
            bytes: seen.carried.bytes,
        }
    }
}

/// Address and port of both ends.
fn ends(tuple: &Tuple) -> [String; 2] {
    [(tuple.source, tuple.source_port), (tuple.destination, tuple.destination_port)]
        .map(|(address, port)| SocketAddr::new(address, port).to_string())
}

fn shown(table: &ConnectionTable, totals: &Totals) -> Connections {
    let counters = table.counters();
    Connections {
        room: table.most().into(),
        entered: totals.entered as u64,
        carried: totals.of(State::Carried),
        waiting: totals.of(State::Waiting),
        contradicted: totals.of(State::Contradicted),
        ended: totals.of(State::Ended),
        carried_packets: totals.carried.packets,
        carried_bytes: totals.carried.bytes,
        entries: totals.decisions.entered,
        refused_full: totals.decisions.refused_full,
        refused_share: totals.decisions.refused_share,
        evicted: totals.decisions.evicted,
        events_lost: totals.decisions.lost,
        evidence: counters.evidence,
        contradictions: counters.contradictions,
        ends: counters.ends,
        carried_ends: counters.carried_ends,
        late_heartbeats: counters.late_heartbeats,
        ..Connections::default()
    }
}
