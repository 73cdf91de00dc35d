//! `polder show routes` and `polder show neighbors`.

use super::family::Unit::{Bytes, Plain};
use super::family::{Family, Labels};
use super::layout::{Layout, duration, grouped};
use super::row::rows;
use super::table::{Align, Table};
use serde::{Deserialize, Serialize};

rows! {
    /// The routes that packets follow.
    #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    pub struct Routes {
        /// Source of the routes: `kernel` or `static`.
        pub from: String,
        /// True if all of the kernel's tables are known.
        ///
        /// `null` where they are not followed.
        pub settled: Option<bool> => gauge("routes_synchronized", Plain),
        /// Times that all of the kernel's tables were dumped again.
        ///
        /// The kernel's notices had overrun the socket.
        pub restarts: u64 => total("routes_resynchronizations", Plain),
        /// Rules of the kernel that are not followed.
        ///
        /// They are for some packets alone.
        pub rules_left_out: u64 => gauge("routes_rules_left_out", Plain),
        /// Routes of routing daemons that have ended.
        ///
        /// They are kept until the daemon is back: `hold_seconds`.
        #[serde(default)]
        pub held: u64 => gauge("routes_held", Plain),
        /// Routes of IPv4.
        pub ipv4: u64,
        /// Routes of IPv6.
        pub ipv6: u64,
        /// Memory of the tables of routes.
        ///
        /// In bytes: what workers read, and the records for changing it.
        pub bytes: u64 => gauge("routes_memory", Bytes),
        /// The routes, by prefix; the first of them when there are very many.
        pub routes: Vec<RouteRow>,
    }
    also &[Family::gauges(("routes", Plain), "Routes in use.", |row| {
        let of = |family: &str, routes: u64| (Labels::one("family", family), routes.into());
        vec![of("ipv4", row.ipv4), of("ipv6", row.ipv6)]
    })];

    /// One neighbour.
    #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    pub struct NeighbourRow {
        /// The port, and the VLAN behind a dot.
        pub port: String => left(0, "port"),
        /// Its address.
        pub address: String => left(1, "address"),
        /// Its link-layer address, when it is known.
        pub mac: Option<String> => left_of(2, "link-layer address", |row, _| {
            row.mac.clone().unwrap_or_else(|| "-".to_owned())
        }),
        /// Owner of the entry: `kernel` or `polder`.
        pub owner: String => left(3, "known to"),
        /// Name of its state in the kernel's tools.
        pub state: Option<String> => left_of(4, "state", state),
        /// Time since it was heard, for one that Polder asks for itself.
        pub heard_nanos: Option<u64>,
        /// True if routes lead to it as a gateway.
        pub gateway: bool,
    }
}

/// A route.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouteRow {
    /// Destination prefix.
    pub to: String,
    /// Source prefix; `null` for all sources.
    #[serde(default)]
    pub source: Option<String>,
    /// Effect on packets: `unicast`, `link`, `local`, `broadcast`, `blackhole`, `unreachable`, `prohibit`;
    /// `kernel`: the kernel forwards them, by an interface that is no port or by one of several; or
    /// `nowhere`: its interfaces are down or gone.
    pub kind: String,
    /// Origin: `kernel`, `address` or `file`.
    pub origin: String,
    /// Kernel table.
    pub table: Option<u32>,
    /// Kernel metric.
    pub metric: Option<u32>,
    /// True if the kernel has removed the route, and it is held until its routing daemon is back.
    #[serde(default)]
    pub held: bool,
    /// Next hops.
    pub hops: Vec<HopRow>,
}

/// A next hop of a route.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HopRow {
    /// Port, with the VLAN after a dot.
    pub port: String,
    /// Gateway; `null` for on-link destinations.
    pub via: Option<String>,
    /// MAC address of the gateway, if known.
    pub mac: Option<String>,
    /// Weight among the next hops.
    pub weight: u16,
    /// True if packets can be sent to it.
    pub carries: bool,
}

/// Maximum number of routes shown.
pub const MOST: usize = 65_536;

impl Routes {
    pub(super) fn draw(&self, layout: Layout) -> String {
        if self.routes.is_empty() {
            return "there is no route: give ports `role = \"router\"`\n".to_owned();
        }
        let columns =
            [("to", Align::Left), ("kind", Align::Left), ("by", Align::Left), ("from", Align::Left)];
        let mut table = Table::new(layout, columns);
        for row in &self.routes {
            let mut hops = row.hops.iter().map(|hop| hop.words(row.hops.len() > 1));
            let first = hops.next().unwrap_or_default();
            let to = row.source.as_ref().map_or(row.to.clone(), |source| format!("{} from {source}", row.to));
            table.row([to, row.kind.clone(), first, row.from()]);
            hops.for_each(|hop| table.row([String::new(), String::new(), hop, String::new()]));
        }
        let mut text = table.draw();
        let known = self.ipv4 + self.ipv6;
        text.push_str(&format!(
            "{} routes of IPv4, {} of IPv6, in {} KiB\n",
            grouped(self.ipv4),
            grouped(self.ipv6),
            grouped(self.bytes.div_ceil(1024))
        ));
        if known > self.routes.len() as u64 {
            text.push_str(&format!("the first {} of them are shown\n", grouped(self.routes.len() as u64)));
        }
        if self.held > 0 {
            let count = grouped(self.held);
            text.push_str(&format!("{} {count} of a stopped routing daemon are kept\n", layout.bad("✗")));
        }
        if self.settled == Some(false) {
            text.push_str(&format!("{} the kernel's tables are not completely read yet\n", layout.bad("✗")));
        }
        if self.rules_left_out > 0 {
            let count = self.rules_left_out;
            text.push_str(&format!(
                "{} {count} rules of the kernel (`ip rule`) apply only to some packets and are not \
                 followed\n",
                layout.bad("✗")
            ));
        }
        text
    }
}

impl RouteRow {
    fn from(&self) -> String {
        let table = match self.table {
            None => String::new(),
            Some(254) => " main".to_owned(),
            Some(255) => " local".to_owned(),
            Some(253) => " default".to_owned(),
            Some(table) => format!(" {table}"),
        };
        let metric = self.metric.filter(|&metric| metric > 0);
        let metric = metric.map(|metric| format!(", metric {metric}")).unwrap_or_default();
        let held = if self.held { ", held" } else { "" };
        format!("{}{table}{metric}{held}", self.origin)
    }
}

impl HopRow {
    fn words(&self, several: bool) -> String {
        let mut text = match &self.via {
            Some(via) => format!("{via} on {}", self.port),
            None => self.port.clone(),
        };
        if several {
            text.push_str(&format!(", weight {}", self.weight));
        }
        if !self.carries {
            text.push_str(", down");
        } else if self.via.is_some() && self.mac.is_none() {
            text.push_str(", does not answer");
        }
        text
    }
}

pub(super) fn draw_neighbours(rows: &[NeighbourRow], layout: Layout) -> String {
    if rows.is_empty() {
        return "there is no neighbour\n".to_owned();
    }
    let mut table = Table::of::<NeighbourRow>(layout);
    rows.iter().for_each(|row| table.add(row));
    table.draw()
}

fn state(row: &NeighbourRow, _look: Layout) -> String {
    let heard = row.heard_nanos.map(|nanos| format!("heard {} ago", duration(nanos)));
    let mut state = row.state.clone().or(heard).unwrap_or_default();
    if row.gateway {
        state.push_str(if state.is_empty() { "gateway" } else { ", gateway" });
    }
    state
}
