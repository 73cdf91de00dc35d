//! `polder show fdb`: bridges, and the addresses they have learnt.

use super::look::{Look, duration, grouped};
use super::table::{Align, Table};
use serde::{Deserialize, Serialize};

/// One bridge.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BridgeRow {
    /// Its name.
    pub name: String,
    /// Its members.
    pub members: Vec<MemberRow>,
    /// Seconds after which an address that is not seen is forgotten.
    pub ageing_seconds: u32,
    /// Most addresses it learns.
    pub capacity: u32,
    /// Addresses it knows.
    pub occupied: u32,
    /// Stations, by VLAN, port and address; the first of them when there are very many.
    pub entries: Vec<FdbRow>,
}

/// One member of a bridge.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberRow {
    /// The port or tunnel.
    pub name: String,
    /// Its VLANs, on a VLAN-aware bridge: `access 10`, `trunk 1, 10-19, native 1`.
    pub vlans: Option<String>,
    /// True if it exchanges nothing with other isolated members.
    pub isolated: bool,
    /// True if packets can leave by it.
    pub open: bool,
    /// Addresses that it has in the table, aged ones that are not swept included.
    #[serde(default)]
    pub learned: u32,
    /// Most addresses that are learned on it, where it has a limit.
    #[serde(default)]
    pub fdb_max_learned: Option<u32>,
    /// Its addresses that made room for others in a full table.
    #[serde(default)]
    pub evicted: u64,
    /// Frames whose source was not learned because it was at its limit.
    #[serde(default)]
    pub limited: u64,
}

impl MemberRow {
    fn learning(&self) -> String {
        let mut text = format!("{} learnt", of_limit(self.learned, self.fdb_max_learned));
        for (count, what) in [(self.evicted, "evicted"), (self.limited, "beyond the limit")] {
            if count > 0 {
                text.push_str(&format!(", {} {what}", grouped(count)));
            }
        }
        text
    }
}

/// Addresses learnt, and the limit, where there is one.
pub(super) fn of_limit(learned: u32, limit: Option<u32>) -> String {
    let limit = limit.map(|limit| format!(" of {}", grouped(limit.into())));
    format!("{}{}", grouped(learned.into()), limit.unwrap_or_default())
}

/// One address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FdbRow {
    /// Its VLAN, on a VLAN-aware bridge.
    pub vlan: Option<u16>,
    /// The address.
    pub address: String,
    /// The port or tunnel it is on.
    pub port: String,
    /// The remote it is behind, if it is on a tunnel.
    #[serde(default)]
    pub remote: Option<String>,
    /// Seconds since it was last seen; `null` for an address bound by configuration.
    pub age_seconds: Option<u32>,
}

/// Most addresses of one bridge that are shown.
pub const MOST: usize = 65_536;

pub(super) fn draw(bridges: &[BridgeRow], look: Look) -> String {
    if bridges.is_empty() {
        return "there is no bridge\n".to_owned();
    }
    bridges.iter().map(|bridge| draw_bridge(bridge, look)).collect::<Vec<_>>().join("\n")
}

fn draw_bridge(bridge: &BridgeRow, look: Look) -> String {
    let mut text = format!(
        "{}  {} of {} addresses, forgotten after {} s\n",
        look.bold(&bridge.name),
        grouped(bridge.occupied.into()),
        grouped(bridge.capacity.into()),
        bridge.ageing_seconds
    );
    for member in &bridge.members {
        let vlans = member.vlans.as_ref().map(|vlans| format!("  {vlans}")).unwrap_or_default();
        let isolated = if member.isolated { "  isolated" } else { "" };
        let state = if member.open { String::new() } else { format!("  {}", look.bad("closed")) };
        let learning = member.learning();
        let rest = look.dim(&format!("  {learning}{vlans}{isolated}"));
        text.push_str(&format!("  {}{rest}{state}\n", member.name));
    }
    if bridge.entries.is_empty() {
        return text;
    }
    let columns = [
        ("vlan", Align::Right),
        ("address", Align::Left),
        ("port", Align::Left),
        ("remote", Align::Left),
        ("seen", Align::Right),
    ];
    let mut table = Table::new(look, columns);
    for entry in &bridge.entries {
        let seen = entry.age_seconds.map(|age| match age {
            0 => "now".to_owned(),
            age => format!("{} ago", duration(u64::from(age) * 1_000_000_000)),
        });
        table.row([
            entry.vlan.map_or_else(|| "–".to_owned(), |vlan| vlan.to_string()),
            entry.address.clone(),
            entry.port.clone(),
            entry.remote.clone().unwrap_or_else(|| "–".to_owned()),
            seen.unwrap_or_else(|| "static".to_owned()),
        ]);
    }
    text.push('\n');
    text.push_str(&table.draw());
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bridge_is_drawn_with_members_and_addresses() {
        let bridge = BridgeRow {
            name: "br0".to_owned(),
            members: vec![
                MemberRow { name: "lan".to_owned(), open: true, learned: 1, ..MemberRow::default() },
                MemberRow {
                    name: "guests".to_owned(),
                    open: true,
                    learned: 64,
                    fdb_max_learned: Some(64),
                    evicted: 7,
                    limited: 1200,
                    ..MemberRow::default()
                },
            ],
            ageing_seconds: 300,
            capacity: 8192,
            occupied: 2,
            entries: vec![
                FdbRow {
                    vlan: None,
                    address: "02:00:00:00:00:01".to_owned(),
                    port: "lan".to_owned(),
                    remote: None,
                    age_seconds: Some(3),
                },
                FdbRow {
                    vlan: Some(10),
                    address: "02:00:00:00:00:02".to_owned(),
                    port: "fabric".to_owned(),
                    remote: Some("192.0.2.2".to_owned()),
                    age_seconds: None,
                },
            ],
        };
        insta::assert_snapshot!(draw(&[bridge], Look::PLAIN), @r"
        br0  2 of 8 192 addresses, forgotten after 300 s
          lan  1 learnt
          guests  64 of 64 learnt, 7 evicted, 1 200 beyond the limit

        vlan  address            port    remote          seen
           –  02:00:00:00:00:01  lan     –          3.0 s ago
          10  02:00:00:00:00:02  fabric  192.0.2.2     static
        ");
    }
}
