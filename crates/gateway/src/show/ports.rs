//! `polder show ports`.

use super::adapter::AdapterRow;
use super::family::Unit::{Addresses, Bytes, Nanos, Packets, Plain};
use super::family::{Family, Labels};
use super::fdb::of_limit;
use super::layout::{Layout, duration, grouped};
use super::modem::ModemRow;
use super::nic::NicRow;
use super::row::rows;
use super::table::Table;
use polder_datapath::scheduler::WEIGHT;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

pub use super::segments::SegmentRow;

rows! {
    /// One port with a device behind it.
    #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    pub struct PortRow {
        /// Its name in the configuration.
        pub name: String => key() label("port") left(0, "port") top(0, "port"),
        /// The interface's name.
        pub interface: String => left_of(1, "device", device),
        /// `interface`, `tap`, `lan78xx` or `pci`; `tun` for the device of a tunnel.
        pub kind: String,
        /// `bridge`, `underlay` or `router`; `device` for the device of a tunnel.
        pub role: String,
        /// `kernel` or `drop`: what happens to the interface when Polder ends.
        pub on_exit: String,
        /// True if the port is open.
        pub open: bool => gauge("port_open", Plain),
        /// `open`; `no-carrier` or `down` for one that is open and whose link does not carry; `waiting` for one whose
        /// device is not there; `closed`.
        #[serde(default)]
        pub state: String => left_of(2, "state", |row, _| state(row)) top(1, "state"),
        /// True if the link of an open port has a carrier.
        ///
        /// None for a device that does not tell.
        #[serde(default)]
        pub carrier: Option<bool> => gauge("port_carrier", Plain),
        /// Reason why it is closed.
        pub trouble: Option<String>,
        /// Mode in which it is attached.
        pub mode: Option<String> => left(3, "attached"),
        /// Reason for that mode, where the configuration leaves it to the device.
        #[serde(default)]
        pub mode_reason: Option<String>,
        /// Queueing discipline of the kernel's that shapes what leaves the interface, if it has one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub qdisc: Option<String>,
        /// Receive queues of the port.
        pub queues: Option<usize> => gauge("port_queues", Plain) right(4, "queues"),
        /// Weight of each queue of the port in its worker's time.
        #[serde(default)]
        pub weight: u16 => gauge("port_weight", Plain),
        /// Longest network packet of the port.
        pub mtu: Option<u32> => gauge("port_mtu", Bytes) right(5, "MTU"),
        /// Addresses that the bridge has learned on the port.
        ///
        /// Aged ones that are not swept are included; none off a bridge.
        #[serde(default)]
        pub learned: Option<u32> => gauge("port_learned", Addresses) right_of(6, "learnt", learnt),
        /// Most addresses that are learned on the port.
        ///
        /// None where it has no limit.
        #[serde(default)]
        pub fdb_max_learned: Option<u32> => gauge("port_learned_limit", Addresses),
        /// Its link-layer address.
        pub mac: Option<String>,
        /// Link-layer address of its router, if it has one.
        #[serde(default)]
        pub router_mac: Option<String>,
        /// Times that the port was opened.
        pub openings: u64 => total("port_openings", Plain),
        /// Packets received, those that the driver refused included.
        pub received: u64 => counter("port_received", Packets) right(7, "received") top(2, "in/s") trend(),
        /// Bytes of received packets.
        pub received_bytes: u64 => counter("port_received", Bytes) right(8, "") top(5, "in bit/s"),
        /// Packets handed to the device.
        pub transmitted: u64
            => counter("port_transmitted", Packets) right(9, "transmitted") top(3, "out/s") trend(),
        /// Bytes of transmitted packets.
        pub transmitted_bytes: u64 => counter("port_transmitted", Bytes) right(10, "") top(6, "out bit/s"),
        /// Packets of any sender that the interface has dropped since it was opened.
        ///
        /// It was given them: `transmitted` has Polder's. None for a device that tells of each packet.
        #[serde(default)]
        pub link_dropped: Option<u64> => counter("port_interface_dropped", Packets),
        /// Packets handed to the device and not completed.
        pub in_flight: u64 => gauge("port_in_flight", Packets),
        /// CPU time of workers for turns of the port's queues, forwarding and sending included.
        #[serde(default)]
        pub worked_nanos: u64 => counter("port_worked", Nanos),
        /// Packets whose checksum a local sender had left to the device, completed by Polder.
        ///
        /// The device does not mark such packets.
        #[serde(default)]
        pub partial_checksums: u64 => counter("port_partial_checksum", Packets),
        /// System calls made for the port's queues.
        pub system_calls: u64 => counter("port_system_calls", Plain),
        /// Packets merged and cut for it.
        #[serde(default)]
        pub segments: SegmentRow => rows(),
        /// Packets that the device, its driver or the kernel on the way lost or refused, by reason.
        pub drops: BTreeMap<String, u64>
            => counters("port_dropped", Packets, "reason") right(11, "dropped") top(4, "drops/s"),
        /// Findings about the port that ought to be mended.
        pub findings: Vec<String> => gauge("port_findings", Plain),
        /// Packet hooks of the kernel that its packets do not reach, and that could drop or change them.
        #[serde(default)]
        pub bypassed: Vec<BypassedRow>,
        /// `kernel` or `router`: who decides about packets of a router's port.
        #[serde(default)]
        pub decide: Option<String>,
        /// Packet hook because of which the kernel decides, where the configuration leaves it open.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub decide_reason: Option<String>,
        /// Reason why no connection is carried where the kernel decides.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub obstacle: Option<String>,
        /// Hooks because of which its packets are left to the kernel at present.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub left_to_kernel: Option<YieldRow>,
        /// Times that the port's packets were left to the kernel.
        #[serde(default)]
        pub yields: u64 => counter("port_yields", Plain),
        /// Time for which the port's packets were left to the kernel.
        #[serde(default)]
        pub yielded_nanos: u64 => counter("port_yielded_time", Nanos),
        /// The USB adapter behind it, while it is open.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub adapter: Option<AdapterRow> => rows(),
        /// The modem behind it, while it is open.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub modem: Option<ModemRow>,
        /// The PCI device behind it, while it is open.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub nic: Option<NicRow> => rows(),
    }
    also &[
        Family::info("port", "A port, its device and how it is attached.", |row| {
            Labels::one("interface", &row.interface)
                .and("kind", &row.kind)
                .and("role", &row.role)
                .and("mode", row.mode.as_deref().unwrap_or_default())
                .and("on_exit", &row.on_exit)
                .and("mac", row.mac.as_deref().unwrap_or_default())
        }),
        Family::gauge("port_bypassed_hooks", "Packet hooks of the kernel that the port bypasses.", |row| {
            row.bypassed.len() as i128
        }),
        Family::gauge("port_yielded", "1 while the port yields its packets to the kernel.", |row| {
            row.left_to_kernel.is_some().into()
        }),
    ];
}

/// A packet hook of the kernel that a port bypasses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BypassedRow {
    /// `nftables`, `iptables-legacy`, `ip6tables-legacy`, `tc`, `ip rule` or `ip xfrm`.
    pub by: String,
    /// Name of the chain, filter or policy.
    pub name: String,
    /// Effect on packets, as text that follows "would".
    pub effect: String,
    /// True if it has appeared while the gateway runs.
    pub appeared: bool,
}

/// Current yield of a port: the kernel gets its packets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct YieldRow {
    /// Packet hooks that cause the yield, each with its effect.
    pub hooks: Vec<String>,
    /// Length of the yield in nanoseconds.
    pub nanos: u64,
}

pub(super) fn draw(rows: &[PortRow], layout: Layout) -> String {
    let mut table = Table::of::<PortRow>(layout).folding(["learnt", "MTU", "queues", "attached", "device"]);
    for row in rows {
        table.add(row);
        remarks(&mut table, row, layout);
    }
    table.draw()
}

fn device(row: &PortRow, _look: Layout) -> String {
    if row.kind == "tap" { format!("tap {}", row.interface) } else { row.interface.clone() }
}

fn learnt(row: &PortRow, _look: Layout) -> String {
    row.learned.map(|learned| of_limit(learned, row.fdb_max_learned)).unwrap_or_default()
}

/// State of the port, in capitals if it carries nothing.
fn state(row: &PortRow) -> String {
    match (row.state.as_str(), row.open) {
        ("" | "open", true) if row.left_to_kernel.is_some() => "kernel".to_owned(),
        // An older gateway does not send the state.
        ("" | "open", true) => "open".to_owned(),
        ("", false) => "CLOSED".to_owned(),
        (state, _) => state.replace('-', " ").to_uppercase(),
    }
}

fn remarks(table: &mut Table, row: &PortRow, layout: Layout) {
    let mut note = |mark: String, text: &str| table.remark(&mark, text);
    if let Some(trouble) = row.trouble.as_ref().filter(|_| !row.open) {
        note(layout.bad("✗"), &format!("{trouble}; the gateway tries again"));
    }
    if row.open && row.state == "down" {
        let command = format!("`ip link set dev {} up`", row.interface);
        note(layout.bad("✗"), &format!("the interface is down: {command}"));
    }
    if let Some(adapter) = &row.adapter {
        note(adapter.mark(layout), &adapter.lines(layout).join("; "));
    }
    if let Some(modem) = &row.modem {
        note(modem.mark(layout), &modem.lines().join("; "));
    }
    if let Some(nic) = &row.nic {
        note(nic.mark(layout), &nic.lines(layout).join("; "));
    }
    if let Some((mode, why)) = row.mode.as_ref().zip(row.mode_reason.as_ref()).filter(|_| row.open) {
        let mode = mode.split(',').next().unwrap_or_default();
        note(layout.dim("·"), &format!("mode {mode}: {why}"));
    }
    for finding in &row.findings {
        note(layout.odd("!"), finding);
    }
    kernel_remarks(table, row, layout);
    let mut note = |mark: String, text: &str| table.remark(&mark, text);
    for bypassed in &row.bypassed {
        let BypassedRow { by, name, effect, appeared } = bypassed;
        let since = if *appeared { ", added while the gateway runs" } else { "" };
        note(layout.odd("!"), &format!("bypassed: {by} {name} would {effect}{since}"));
    }
    if let Some(text) = row.segments.sentence(layout) {
        note(layout.dim("·"), &text);
    }
    if let Some(dropped) = row.link_dropped.filter(|&dropped| dropped > 0) {
        let text = format!("the interface dropped {} packets after Polder had sent them", grouped(dropped));
        note(layout.odd("!"), &text);
    }
    if row.partial_checksums > 0 {
        let text =
            format!("completed the checksums of {} packets of local senders", grouped(row.partial_checksums));
        note(layout.dim("·"), &text);
    }
    if row.weight != 0 && row.weight != WEIGHT {
        let text = format!(
            "each of its queues has weight {} in its worker's time; the default is {WEIGHT}",
            row.weight
        );
        note(layout.dim("·"), &text);
    }
    if row.openings > 1 {
        note(layout.dim("·"), &format!("opened {} times since the start", grouped(row.openings)));
    }
}

/// Remarks about what the kernel does with the port's packets.
fn kernel_remarks(table: &mut Table, row: &PortRow, layout: Layout) {
    if let Some(qdisc) = &row.qdisc {
        match row.mode.as_deref().is_some_and(|mode| mode.starts_with("skb")) {
            true => table
                .remark(&layout.dim("·"), &format!("what leaves passes the queueing discipline `{qdisc}`")),
            false => table
                .remark(&layout.odd("!"), &format!("what leaves bypasses the queueing discipline `{qdisc}`")),
        }
    }
    if row.decide.as_deref() == Some("kernel") {
        let because = row.decide_reason.as_ref().map(|hook| format!(": {hook}")).unwrap_or_default();
        let text =
            format!("the kernel decides{because}; `polder show connections` lists carried connections");
        table.remark(&layout.dim("·"), &text);
    }
    if let Some(obstacle) = &row.obstacle {
        table.remark(&layout.odd("!"), &format!("no connection is carried: {obstacle}"));
    }
    if let Some(YieldRow { hooks, nanos }) = &row.left_to_kernel {
        let text = format!("yields to the kernel for {}, because {}", duration(*nanos), hooks.join("; "));
        table.remark(&layout.odd("!"), &text);
    }
}

#[cfg(test)]
mod tests {
    use super::super::row::subtract_rows;
    use super::*;

    #[test]
    fn a_closed_port_says_why() {
        let row = PortRow {
            name: "lan".to_owned(),
            trouble: Some("the interface has disappeared".to_owned()),
            ..PortRow::default()
        };
        let text = draw(&[row], Layout::PLAIN);
        assert!(text.contains("CLOSED") && text.contains("✗ the interface has disappeared"), "{text}");
    }

    #[test]
    fn a_link_that_does_not_carry_and_a_device_that_is_not_there_are_told() {
        let text = |state: &str, open| {
            draw(&[PortRow { state: state.to_owned(), open, ..PortRow::default() }], Layout::PLAIN)
        };
        assert!(text("no-carrier", true).contains("NO CARRIER"));
        assert!(
            text("down", true).contains("DOWN") && text("down", true).contains("✗ the interface is down")
        );
        assert!(text("waiting", false).contains("WAITING"));
        assert!(text("", true).contains("open"), "a gateway that does not tell");
    }

    #[test]
    fn a_port_that_is_left_to_the_kernel_says_because_of_which_hook() {
        let hook = "nftables chain `inet own forw` at forward would drop them by its policy".to_owned();
        let left_to_kernel = Some(YieldRow { hooks: vec![hook], nanos: 12_000_000_000 });
        let row = PortRow { open: true, left_to_kernel, ..PortRow::default() };
        let text = draw(&[row], Layout::PLAIN);
        assert!(text.contains("kernel") && text.contains("! yields to the kernel for 12"), "{text}");
        assert!(text.contains("because nftables chain `inet own forw` at forward"), "{text}");
    }

    #[test]
    fn a_port_where_the_kernel_decides_says_why_no_connection_is_carried() {
        let text = |obstacle: Option<&str>| {
            let (decide, obstacle) = (Some("kernel".to_owned()), obstacle.map(str::to_owned));
            draw(&[PortRow { decide, obstacle, ..PortRow::default() }], Layout::PLAIN)
        };
        assert!(text(None).contains("· the kernel decides; `polder show"));
        assert!(text(Some("a limit")).contains("! no connection is carried: a limit"));
        assert!(!draw(&[PortRow::default()], Layout::PLAIN).contains("decides"));
    }

    #[test]
    fn a_weight_is_told_where_it_is_not_ordinary() {
        let text = |weight| draw(&[PortRow { weight, ..PortRow::default() }], Layout::PLAIN);
        assert!(text(300).contains("weight 300") && !text(WEIGHT).contains("weight"));
    }

    #[test]
    fn addresses_learnt_are_told_of_ports_of_a_bridge() {
        let row = |name: &str, learned, fdb_max_learned| PortRow {
            name: name.to_owned(),
            learned,
            fdb_max_learned,
            ..PortRow::default()
        };
        let rows = [row("a", Some(64), Some(64)), row("b", Some(1200), None), row("c", None, None)];
        let text = draw(&rows, Layout::PLAIN);
        let [head, a, b, c] = text.lines().collect::<Vec<_>>()[..] else {
            unreachable!("four lines: {text}")
        };
        assert!(head.contains("MTU    learnt"), "{text}");
        assert!(a.contains("  64 of 64  ") && b.contains("     1 200  ") && !c.contains(" of "), "{text}");
    }

    #[test]
    fn ports_are_compared_by_name() {
        let row = |name: &str, received| PortRow { name: name.to_owned(), received, ..PortRow::default() };
        let mut rows = [row("b", 20), row("new", 5)];
        subtract_rows(&mut rows, &[row("a", 1), row("b", 3)]);
        assert_eq!(rows.map(|row| row.received), [17, 5]);
    }
}
