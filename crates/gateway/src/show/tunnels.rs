//! `polder show tunnels`.

use super::look::{Look, duration};
use super::ports::subtract_all;
use super::table::{Align, Table, pad};
use polder_datapath::tunnel::TunnelCounters;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One tunnel.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TunnelRow {
    /// Its name.
    pub name: String,
    /// Payload: `gretap` and `vxlan`, Ethernet frames, or `gre`, IP packets.
    pub kind: String,
    /// Its addresses, where it carries packets.
    pub addresses: Vec<String>,
    /// Outer address of this end.
    pub local: String,
    /// Outer address of the other end.
    pub remote: String,
    /// The underlay port.
    pub port: String,
    /// True if that is open.
    pub port_open: bool,
    /// Next hop of outer packets.
    pub next_hop: String,
    /// Its link-layer address, when it is known.
    pub next_hop_mac: Option<String>,
    /// GRE key.
    pub key: Option<u32>,
    /// VXLAN network identifier.
    #[serde(default)]
    pub vni: Option<u32>,
    /// UDP destination port.
    #[serde(default)]
    pub udp_port: Option<u16>,
    /// Longest network packet that crosses it, in bytes, inner Ethernet header excluded.
    pub mtu: Option<u16>,
    /// Longest outer packet that the path carries, in bytes, when the kernel has learnt that it is less than
    /// the underlay's MTU.
    pub path_mtu: Option<u16>,
    /// Bytes that encapsulation adds.
    pub overhead_bytes: u16,
    /// Time since a packet of the other end was accepted; `null` when none ever was.
    pub silent_nanos: Option<u64>,
    /// Counters of the tunnel.
    pub counters: BTreeMap<String, u64>,
}

impl TunnelRow {
    fn counter(&self, name: &str) -> u64 {
        self.counters.get(name).copied().unwrap_or(0)
    }

    /// The state in two words, and whether it is good.
    fn state(&self) -> (&'static str, bool) {
        match (self.port_open, &self.next_hop_mac, self.silent_nanos) {
            (false, _, _) => ("port closed", false),
            (true, None, _) => ("no next hop", false),
            (true, Some(_), None) => ("nothing heard", false),
            (true, Some(_), Some(_)) => ("up", true),
        }
    }
}

/// Subtracts the counters of an earlier view.
pub(super) fn subtract(rows: &mut [TunnelRow], earlier: &[TunnelRow]) {
    for row in rows {
        if let Some(then) = earlier.iter().find(|then| then.name == row.name) {
            subtract_all(&mut row.counters, &then.counters);
        }
    }
}

pub(super) fn draw(rows: &[TunnelRow], look: Look) -> String {
    if rows.is_empty() {
        return "there is no tunnel\n".to_owned();
    }
    let columns = [
        ("tunnel", Align::Left),
        ("kind", Align::Left),
        ("ends", Align::Left),
        ("over", Align::Left),
        ("state", Align::Left),
        ("heard", Align::Right),
        ("MTU", Align::Right),
        ("received", Align::Right),
        ("", Align::Right),
        ("sent", Align::Right),
        ("", Align::Right),
    ];
    let mut table = Table::new(look, columns);
    for row in rows {
        let key = row.key.map(|key| format!(" key {key}"));
        let vni = row.vni.map(|vni| format!(" VNI {vni}"));
        let key = key.or(vni).unwrap_or_default();
        table.row([
            row.name.clone(),
            row.kind.clone(),
            format!("{} → {}{key}", row.local, row.remote),
            row.port.clone(),
            row.state().0.to_owned(),
            row.silent_nanos.map_or_else(|| "never".to_owned(), |silent| format!("{} ago", duration(silent))),
            row.mtu.map(|mtu| mtu.to_string()).unwrap_or_default(),
            look.count(row.counter("received")),
            look.bytes(row.counter("received_bytes")),
            look.count(row.counter("sent")),
            look.bytes(row.counter("sent_bytes")),
        ]);
        remarks(&mut table, row, look);
    }
    table.draw()
}

fn remarks(table: &mut Table, row: &TunnelRow, look: Look) {
    if !row.addresses.is_empty() {
        table.remark(&look.dim("·"), &format!("routed, with {}", row.addresses.join(" and ")));
    }
    if row.port_open && row.next_hop_mac.is_none() {
        let text = format!(
            "{} does not answer on {}: is it on this link? `ip neighbour show {0}`",
            row.next_hop, row.port
        );
        table.remark(&look.bad("✗"), &text);
    } else if !row.state().1 && row.port_open {
        let text =
            "nothing has come from the other end: does it run, with these addresses and this key or VNI?";
        table.remark(&look.odd("!"), text);
    }
    if let Some(path_mtu) = row.path_mtu {
        let text =
            format!("the path to {} carries {path_mtu} bytes, less than {} does", row.remote, row.port);
        table.remark(&look.odd("!"), &text);
    }
    const IN_COLUMNS: [&str; 5] = ["received", "received_bytes", "sent", "sent_bytes", "last_received"];
    let descriptions = TunnelCounters::default();
    for (name, description, _) in descriptions.rows().filter(|(name, ..)| !IN_COLUMNS.contains(name)) {
        let count = row.counter(name);
        if count > 0 {
            table.remark(&look.dim(&format!("{} ", pad(&look.count(count), 12, Align::Right))), description);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row() -> TunnelRow {
        TunnelRow {
            name: "station".to_owned(),
            next_hop: "10.0.0.2".to_owned(),
            port_open: true,
            ..TunnelRow::default()
        }
    }

    #[test]
    fn the_state_names_the_first_thing_that_is_missing() {
        assert_eq!(TunnelRow { port_open: false, ..row() }.state(), ("port closed", false));
        assert_eq!(row().state(), ("no next hop", false));
        let known = TunnelRow { next_hop_mac: Some(String::new()), ..row() };
        assert_eq!(known.state(), ("nothing heard", false));
        assert_eq!(TunnelRow { silent_nanos: Some(1), ..known }.state(), ("up", true));
    }

    #[test]
    fn counters_that_are_not_zero_are_explained() {
        let mut row = row();
        row.counters.insert("mss_clamped".to_owned(), 17);
        let text = draw(&[row], Look::PLAIN);
        assert!(text.contains("17  TCP connections whose segment size was lowered."), "{text}");
        assert!(text.contains("10.0.0.2 does not answer"), "{text}");
    }
}
