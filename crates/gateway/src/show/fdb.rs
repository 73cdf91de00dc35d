//! `polder show fdb`: bridges with their learned addresses.

use super::family::Unit::{Addresses, Frames, Plain, Seconds};
use super::layout::{Layout, duration, grouped};
use super::row::rows;
use super::table::Table;
use serde::{Deserialize, Serialize};

rows! {
    /// One bridge.
    #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    pub struct BridgeRow {
        /// Its name.
        pub name: String => label("bridge"),
        /// Its members.
        pub members: Vec<MemberRow> => rows(),
        /// Time after which an address that is not seen is forgotten.
        pub ageing_seconds: u32 => gauge("fdb_ageing", Seconds),
        /// Most addresses that the bridge learns.
        pub capacity: u32 => gauge("fdb_capacity", Addresses),
        /// Addresses that the bridge knows.
        pub occupied: u32 => gauge("fdb_occupied", Addresses),
        /// Stations, by VLAN, port and address; the first of them when there are very many.
        pub entries: Vec<FdbRow>,
    }

    /// One member of a bridge.
    #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    pub struct MemberRow {
        /// The port or tunnel.
        pub name: String => label("member"),
        /// Its VLANs, on a VLAN-aware bridge: `access 10`, `trunk 1, 10-19, native 1`.
        pub vlans: Option<String>,
        /// True if it exchanges nothing with other isolated members.
        pub isolated: bool,
        /// True if packets can leave by the member.
        pub open: bool => gauge("fdb_member_open", Plain),
        /// Addresses that the member has in the database.
        ///
        /// Aged ones that are not swept are included.
        #[serde(default)]
        pub learned: u32 => gauge("fdb_member_learned", Addresses),
        /// Most addresses that are learned on the member.
        ///
        /// None where it has no limit.
        #[serde(default)]
        pub fdb_max_learned: Option<u32> => gauge("fdb_member_limit", Addresses),
        /// Addresses of the member that made room for others.
        #[serde(default)]
        pub evicted: u64 => total("fdb_member_evicted", Addresses),
        /// Frames whose source was not learned at the member's limit.
        #[serde(default)]
        pub limited: u64 => total("fdb_member_limited", Frames),
    }

    /// One address.
    #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
    pub struct FdbRow {
        /// Its VLAN, on a VLAN-aware bridge.
        pub vlan: Option<u16>
            => right_of(0, "vlan", |row, _| row.vlan.map_or_else(|| "–".to_owned(), |vlan| vlan.to_string())),
        /// The address.
        pub address: String => left(1, "address"),
        /// The port or tunnel it is on.
        pub port: String => left(2, "port"),
        /// The remote it is behind, if it is on a tunnel.
        #[serde(default)]
        pub remote: Option<String>
            => left_of(3, "remote", |row, _| row.remote.clone().unwrap_or_else(|| "–".to_owned())),
        /// Seconds since it was last seen; `null` for an address bound by configuration.
        pub age_seconds: Option<u32> => right_of(4, "seen", |row, _| match row.age_seconds {
            None => "static".to_owned(),
            Some(0) => "now".to_owned(),
            Some(age) => format!("{} ago", duration(u64::from(age) * 1_000_000_000)),
        }),
    }
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

/// Number of learned addresses, with the limit if there is one.
pub(super) fn of_limit(learned: u32, limit: Option<u32>) -> String {
    let limit = limit.map(|limit| format!(" of {}", grouped(limit.into())));
    format!("{}{}", grouped(learned.into()), limit.unwrap_or_default())
}

/// Maximum number of addresses shown for a bridge.
pub const MOST: usize = 65_536;

pub(super) fn draw(bridges: &[BridgeRow], layout: Layout) -> String {
    if bridges.is_empty() {
        return "there is no bridge\n".to_owned();
    }
    bridges.iter().map(|bridge| draw_bridge(bridge, layout)).collect::<Vec<_>>().join("\n")
}

fn draw_bridge(bridge: &BridgeRow, layout: Layout) -> String {
    let mut text = format!(
        "{}  {} of {} addresses, forgotten after {} s\n",
        layout.bold(&bridge.name),
        grouped(bridge.occupied.into()),
        grouped(bridge.capacity.into()),
        bridge.ageing_seconds
    );
    for member in &bridge.members {
        let vlans = member.vlans.as_ref().map(|vlans| format!("  {vlans}")).unwrap_or_default();
        let isolated = if member.isolated { "  isolated" } else { "" };
        let state = if member.open { String::new() } else { format!("  {}", layout.bad("closed")) };
        let learning = member.learning();
        let rest = layout.dim(&format!("  {learning}{vlans}{isolated}"));
        text.push_str(&format!("  {}{rest}{state}\n", member.name));
    }
    if bridge.entries.is_empty() {
        return text;
    }
    let mut table = Table::of::<FdbRow>(layout);
    bridge.entries.iter().for_each(|entry| table.add(entry));
    text.push('\n');
    text.push_str(&table.draw());
    text
}

/// Example of a bridge with a member and a station.
#[cfg(test)]
pub(super) fn whole() -> BridgeRow {
    BridgeRow {
        members: vec![MemberRow::default()],
        entries: vec![FdbRow {
            vlan: None,
            address: "02:00:00:00:00:01".to_owned(),
            port: "lan".to_owned(),
            remote: None,
            age_seconds: Some(1),
        }],
        ..BridgeRow::default()
    }
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
        insta::assert_snapshot!(draw(&[bridge], Layout::PLAIN), @r"
        br0  2 of 8 192 addresses, forgotten after 300 s
          lan  1 learnt
          guests  64 of 64 learnt, 7 evicted, 1 200 beyond the limit

        vlan  address            port    remote          seen
           –  02:00:00:00:00:01  lan     –          3.0 s ago
          10  02:00:00:00:00:02  fabric  192.0.2.2     static
        ");
    }
}
