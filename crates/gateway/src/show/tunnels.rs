//! `polder show tunnels`.

use super::family::Unit::{self, Bytes, Packets, Plain};
use super::family::{Family, Labels};
use super::layout::{Layout, duration};
use super::row::rows;
use super::table::{Align, Table, pad};
use crate::bfd::Diagnostic;
use polder_datapath::tunnel::TunnelCounters;
use polder_datapath::units::Nanos;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

rows! {
    /// One tunnel.
    #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    pub struct TunnelRow {
        /// Its name.
        pub name: String => key() label("tunnel") left(0, "tunnel"),
        /// Kind, as in the file: `gretap` and `vxlan` carry Ethernet frames, `gre`, `ipip` and `sit` IP packets.
        pub kind: String => left(1, "kind"),
        /// Its addresses, where it carries packets.
        pub addresses: Vec<String>,
        /// Interface of the kernel that was made for it, if it has one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub device: Option<String>,
        /// State of that interface, as of a port: `open`, `no-carrier`, `down` or `closed`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub device_state: Option<String>,
        /// Outer address of this end.
        pub local: String => left_of(2, "ends", ends),
        /// Outer address of the other end.
        pub remote: String,
        /// The underlay port.
        pub port: String => left(3, "over"),
        /// True if the tunnel's underlay port is open.
        pub port_open: bool => gauge("tunnel_underlay_open", Plain)
            left_of(4, "state", |row, _| row.state().0.to_owned()),
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
        /// Longest network packet that crosses the tunnel.
        ///
        /// In bytes, inner Ethernet header excluded.
        pub mtu: Option<u16> => gauge("tunnel_mtu", Bytes) right(6, "MTU"),
        /// Longest outer packet of the path, where it is less than the underlay's.
        ///
        /// In bytes, when the kernel has learnt it.
        pub path_mtu: Option<u16> => gauge("tunnel_path_mtu", Bytes),
        /// Bytes that encapsulation adds.
        pub overhead_bytes: u16 => gauge("tunnel_overhead", Bytes),
        /// Time since a packet of the other end was accepted.
        ///
        /// `null` when none ever was.
        pub silent_nanos: Option<u64> => gauge("tunnel_silent", Unit::Nanos) right_of(5, "heard", |row, _| {
            row.silent_nanos.map_or_else(|| "never".to_owned(), |silent| format!("{} ago", duration(silent)))
        }),
        /// BFD with the other end, if the tunnel has it.
        #[serde(default)]
        pub bfd: Option<BfdRow> => rows(),
        /// Keepalives of the tunnel, if it has them.
        #[serde(default)]
        pub keepalive: Option<KeepaliveRow> => rows(),
        /// Counters of the tunnel.
        pub counters: BTreeMap<String, u64> => counted(Packets)
            right_of(7, "received", |row, layout| layout.count(row.counter("received")))
            right_of(8, "", |row, layout| layout.bytes(row.counter("received_bytes")))
            right_of(9, "sent", |row, layout| layout.count(row.counter("sent")))
            right_of(10, "", |row, layout| layout.bytes(row.counter("sent_bytes"))),
    }
    also &[
        Family::info("tunnel", "A tunnel, its ends and its underlay.", |row| {
            Labels::one("kind", &row.kind)
                .and("local", &row.local)
                .and("remote", &row.remote)
                .and("port", &row.port)
        }),
        Family::gauge("tunnel_next_hop_known", "1 if the next hop's link-layer address is known.", |row| {
            row.next_hop_mac.is_some().into()
        }),
        Family::gauge(
            "tunnel_up",
            "1 unless a known problem prevents the tunnel from carrying packets.",
            |row| row.state().1.into(),
        ),
        Family::counters(("tunnel_received", Packets), "Packets decapsulated from the tunnel.", |row| {
            row.carried("received")
        }),
        Family::counters(("tunnel_received", Bytes), "Bytes of packets decapsulated from the tunnel.", |row| {
            row.carried("received_bytes")
        }),
        Family::counters(("tunnel_sent", Packets), "Packets encapsulated into the tunnel.", |row| row.carried("sent")),
        Family::counters(("tunnel_sent", Bytes), "Bytes of packets encapsulated into the tunnel.", |row| {
            row.carried("sent_bytes")
        }),
        Family::counters(("tunnel_events", Plain), "Other counters of the tunnel, by name.", |row| {
            let others = row.counters.iter().filter(|(name, _)| !CARRIED.contains(&name.as_str()));
            others.map(|(name, &number)| (Labels::one("event", name), number.into())).collect()
        }),
    ];

    /// The BFD session of a tunnel.
    #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    pub struct BfdRow {
        /// True if the tunnel is used: the session is up, begins, or was switched off at the other end.
        pub carries: bool,
        /// State of this end: `up`, `init`, `down` or `admin down`.
        pub state: String,
        /// Time since the last change of the session's state.
        pub since_nanos: u64 => gauge("tunnel_bfd_since", Unit::Nanos),
        /// Reason of that change.
        pub diagnostic: String,
        /// State of the other end, as that says.
        pub remote_state: String,
        /// Its reason.
        pub remote_diagnostic: String,
        /// Time since a control packet was accepted.
        ///
        /// `null` when none ever was.
        pub heard_nanos: Option<u64> => gauge("tunnel_bfd_heard", Unit::Nanos),
        /// Silence after which the session is down.
        ///
        /// `null` before the first packet.
        pub detection_nanos: Option<u64> => gauge("tunnel_bfd_detection", Unit::Nanos),
        /// True if routers may lie between the ends.
        pub multihop: bool,
        /// Discriminator of this end.
        pub local_discriminator: u32,
        /// That of the other end; 0 while it is not known.
        pub remote_discriminator: u32,
        /// Control packets sent.
        pub sent: u64 => total("tunnel_bfd_sent", Packets),
        /// Control packets accepted.
        pub received: u64 => total("tunnel_bfd_received", Packets),
        /// Control packets over more hops than they may.
        pub far: u64 => total("tunnel_bfd_far", Packets),
        /// TTL of the last of those; 0 for none.
        #[serde(default)]
        pub far_ttl: u32 => gauge("tunnel_bfd_far_ttl", Plain),
        /// Control packets by another interface.
        ///
        /// Another one than that of the tunnel's port.
        #[serde(default)]
        pub elsewhere: u64 => total("tunnel_bfd_elsewhere", Packets),
        /// Control packets whose authentication failed.
        #[serde(default)]
        pub not_authentic: u64 => total("tunnel_bfd_not_authentic", Packets),
        /// Control packets that were refused.
        ///
        /// They were malformed, or for another session.
        pub refused: u64 => total("tunnel_bfd_refused", Packets),
        /// Reason why the session cannot work.
        pub trouble: Option<String>,
    }
    also &[Family::gauge("tunnel_bfd_up", "1 if the BFD session with the tunnel's other end is up.", |row| {
        (row.state == "up").into()
    })];

    /// The keepalives of a tunnel.
    #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    pub struct KeepaliveRow {
        /// True if the tunnel is used: keepalives are answered, or begin.
        pub carries: bool,
        /// State of the other end: `up`, `down`, or `init` before it is known.
        pub state: String,
        /// Time since the other end's last change.
        pub since_nanos: u64 => gauge("tunnel_keepalive_since", Unit::Nanos),
        /// Time since a keepalive was answered.
        ///
        /// `null` when none ever was.
        pub heard_nanos: Option<u64> => gauge("tunnel_keepalive_heard", Unit::Nanos),
        /// Interval at which keepalives are sent.
        pub interval_nanos: u64 => gauge("tunnel_keepalive_interval", Unit::Nanos),
        /// Keepalives without an answer that are down.
        ///
        /// So many in a row.
        pub retries: u32 => gauge("tunnel_keepalive_retries", Plain),
        /// Keepalives in a row without an answer.
        pub unanswered: u32 => gauge("tunnel_keepalive_unanswered", Plain),
        /// Address inside that is asked for, in a tunnel of frames.
        pub address: Option<String>,
        /// Keepalives sent.
        pub sent: u64 => total("tunnel_keepalive_sent", Packets),
        /// Reason why none can be sent.
        pub trouble: Option<String>,
    }
    also &[Family::gauge("tunnel_keepalive_up", "1 if the tunnel's keepalives are answered.", |row| {
        (row.state == "up").into()
    })];
}

/// Counters with metric families of their own.
const CARRIED: [&str; 4] = ["received", "received_bytes", "sent", "sent_bytes"];

impl TunnelRow {
    /// A counter of [`CARRIED`] for its own metric family.
    fn carried(&self, name: &str) -> Vec<(Labels, i128)> {
        let number = self.counters.get(name);
        number.map(|&number| (Labels::default(), number.into())).into_iter().collect()
    }

    fn counter(&self, name: &str) -> u64 {
        self.counters.get(name).copied().unwrap_or(0)
    }

    /// State of the tunnel as text, and true if it is good.
    pub fn state(&self) -> (&'static str, bool) {
        let bfd = self.bfd.as_ref().map(|bfd| ("BFD down", bfd.carries, bfd.state.as_str()));
        let keepalive = self.keepalive.as_ref().map(|own| ("no answer", own.carries, own.state.as_str()));
        state(self.port_open, self.next_hop_mac.is_some(), bfd.or(keepalive), self.silent_nanos)
    }
}

/// State of a tunnel as text, and true if it is good: the first missing condition, otherwise the age of the
/// last received packet. `end` is given for tunnels with BFD or keepalives: text for a remote end that is
/// down, true if the tunnel may be used, and the state.
pub(crate) fn state(
    port_open: bool,
    has_next_hop: bool,
    end: Option<(&'static str, bool, &str)>,
    silent_nanos: Option<u64>,
) -> (&'static str, bool) {
    match (port_open, has_next_hop, end, silent_nanos) {
        (false, ..) => ("port closed", false),
        (true, false, ..) => ("no next hop", false),
        (true, true, Some((down, false, _)), _) => (down, false),
        (true, true, Some((_, true, "up")), _) => ("up", true),
        (true, true, _, None) => ("nothing heard", false),
        (true, true, _, Some(silent)) if silent > QUIET.0 => ("quiet", true),
        (true, true, _, Some(_)) => ("up", true),
    }
}

/// Age of the last received packet from which on a tunnel without BFD and keepalives is not called up.
const QUIET: Nanos = Nanos::from_seconds(60);

impl BfdRow {
    /// The session as a sentence.
    fn sentence(&self) -> String {
        let since = duration(self.since_nanos);
        let heard = self
            .heard_nanos
            .map_or_else(|| "nothing heard".to_owned(), |heard| format!("heard {} ago", duration(heard)));
        let limit = self.detection_nanos.map(|limit| format!(" of {}", duration(limit))).unwrap_or_default();
        let Self { far, far_ttl, elsewhere, not_authentic, .. } = self;
        let far = if *far > 0 { format!(", {far} refused for their TTL ({far_ttl})") } else { String::new() };
        let elsewhere = if *elsewhere > 0 {
            format!(", {elsewhere} received on another interface")
        } else {
            String::new()
        };
        let forged = if *not_authentic > 0 {
            format!(", {not_authentic} with failed authentication")
        } else {
            String::new()
        };
        let end = format!("the other end is {}", self.remote_state);
        let why = if self.diagnostic == Diagnostic::NONE.to_string() { "" } else { &self.diagnostic };
        let why = self.trouble.as_deref().unwrap_or(why);
        let why = if why.is_empty() { String::new() } else { format!(": {why}") };
        format!("BFD {} for {since}{why}; {heard}{limit}{far}{elsewhere}{forged}; {end}", self.state)
    }
}

impl KeepaliveRow {
    /// The keepalives as a sentence.
    fn sentence(&self) -> String {
        let since = duration(self.since_nanos);
        let heard = self.heard_nanos.map_or_else(
            || "none was answered".to_owned(),
            |heard| format!("answered {} ago", duration(heard)),
        );
        let Self { retries, unanswered, .. } = self;
        let lost = match unanswered {
            0 => String::new(),
            unanswered => format!(", {unanswered} of {retries} missed"),
        };
        let why = self.trouble.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
        let asked = self.address.as_ref().map(|address| format!(" for {address}")).unwrap_or_default();
        let every = duration(self.interval_nanos);
        format!("keepalive {} for {since}{why}; {heard}{lost}; every {every}{asked}", self.state)
    }
}

pub(super) fn draw(rows: &[TunnelRow], layout: Layout) -> String {
    if rows.is_empty() {
        return "there is no tunnel\n".to_owned();
    }
    let mut table = Table::of::<TunnelRow>(layout);
    for row in rows {
        table.add(row);
        remarks(&mut table, row, layout);
    }
    table.draw()
}

fn ends(row: &TunnelRow, _look: Layout) -> String {
    let key = row.key.map(|key| format!(" key {key}"));
    let vni = row.vni.map(|vni| format!(" VNI {vni}"));
    format!("{} → {}{}", row.local, row.remote, key.or(vni).unwrap_or_default())
}

fn remarks(table: &mut Table, row: &TunnelRow, layout: Layout) {
    let own = if row.addresses.is_empty() { "no address".to_owned() } else { row.addresses.join(" and ") };
    match (&row.device, row.device_state.as_deref()) {
        (None, _) if row.addresses.is_empty() => {}
        (None, _) => table.remark(&layout.dim("·"), &format!("routed, with {own}")),
        (Some(device), Some("open") | None) => {
            table.remark(&layout.dim("·"), &format!("routed, by the device {device} with {own}"));
        }
        (Some(device), Some(state)) => {
            let state =
                if state == "no-carrier" { "has no carrier".to_owned() } else { format!("is {state}") };
            let text = format!("its device {device} {state}, with {own}");
            table.remark(&layout.odd("!"), &text);
        }
    }
    if row.port_open && row.next_hop_mac.is_none() {
        let text = format!(
            "{} does not answer on {}: is it on this link? `ip neighbour show {0}`",
            row.next_hop, row.port
        );
        table.remark(&layout.bad("✗"), &text);
    } else if row.state().0 == "nothing heard" {
        let text =
            "no packet received from the other end: is it running, with these addresses and this key or VNI?";
        table.remark(&layout.odd("!"), text);
    }
    if row.next_hop_mac.is_some() && row.next_hop != row.remote {
        table.remark(&layout.dim("·"), &format!("next hop {}", row.next_hop));
    }
    if let Some(bfd) = &row.bfd {
        let mark = if bfd.carries { layout.dim("·") } else { layout.bad("✗") };
        table.remark(&mark, &bfd.sentence());
    }
    if let Some(keepalive) = &row.keepalive {
        let mark = if keepalive.carries { layout.dim("·") } else { layout.bad("✗") };
        table.remark(&mark, &keepalive.sentence());
    }
    if let Some(path_mtu) = row.path_mtu {
        let text =
            format!("the path MTU to {} is {path_mtu} bytes, less than that of {}", row.remote, row.port);
        table.remark(&layout.odd("!"), &text);
    }
    const IN_COLUMNS: [&str; 6] =
        ["received", "received_bytes", "sent", "sent_bytes", "last_received", "last_keepalive"];
    let descriptions = TunnelCounters::default();
    for (name, description, _) in descriptions.rows().filter(|(name, ..)| !IN_COLUMNS.contains(name)) {
        let count = row.counter(name);
        if count > 0 {
            table.remark(
                &layout.dim(&format!("{} ", pad(&layout.count(count), 12, Align::Right))),
                description,
            );
        }
    }
}

/// Example with all kinds of rows.
#[cfg(test)]
pub(super) fn whole() -> TunnelRow {
    let (bfd, keepalive) = (Some(BfdRow::default()), Some(KeepaliveRow::default()));
    TunnelRow { bfd, keepalive, ..TunnelRow::default() }
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
        let heard = TunnelRow { silent_nanos: Some(1), ..known };
        assert_eq!(heard.state(), ("up", true));
        let quiet = TunnelRow { silent_nanos: Some(QUIET.0 + 1), ..heard.clone() };
        assert_eq!(quiet.state(), ("quiet", true), "nobody knows");
        let session =
            |carries, state: &str| Some(BfdRow { carries, state: state.to_owned(), ..BfdRow::default() });
        let up = TunnelRow { bfd: session(true, "up"), silent_nanos: None, ..quiet };
        assert_eq!(up.state(), ("up", true), "the session was heard");
        assert_eq!(TunnelRow { bfd: session(false, "down"), ..heard.clone() }.state(), ("BFD down", false));
        let keepalive = |carries, state: &str| {
            Some(KeepaliveRow { carries, state: state.to_owned(), ..KeepaliveRow::default() })
        };
        let up = TunnelRow { keepalive: keepalive(true, "up"), silent_nanos: None, ..heard.clone() };
        assert_eq!(up.state(), ("up", true), "keepalives are answered");
        let down = TunnelRow { keepalive: keepalive(false, "down"), ..heard.clone() };
        assert_eq!(down.state(), ("no answer", false), "whatever else was heard");
        assert_eq!(TunnelRow { keepalive: keepalive(true, "init"), ..heard }.state(), ("up", true));
    }

    #[test]
    fn a_device_is_named_with_its_state() {
        let addresses = vec!["10.0.0.0/31".to_owned()];
        let row = TunnelRow { device: Some("site".to_owned()), addresses, ..row() };
        let drawn = |state: &str| {
            draw(&[TunnelRow { device_state: Some(state.to_owned()), ..row.clone() }], Layout::PLAIN)
        };
        assert!(drawn("open").contains("routed, by the device site with 10.0.0.0/31"), "{}", drawn("open"));
        assert!(
            drawn("no-carrier").contains("its device site has no carrier, with"),
            "{}",
            drawn("no-carrier")
        );
    }

    #[test]
    fn counters_that_are_not_zero_are_explained() {
        let mut row = row();
        row.counters.insert("mss_clamped".to_owned(), 17);
        let text = draw(&[row], Layout::PLAIN);
        assert!(text.contains("17  TCP connections whose MSS was lowered."), "{text}");
        assert!(text.contains("10.0.0.2 does not answer"), "{text}");
    }
}
