//! `polder show ports`.

use super::adapter::AdapterRow;
use super::counters::subtract_all;
use super::fdb::of_limit;
use super::look::{Look, duration, grouped};
use super::modem::ModemRow;
use super::nic::NicRow;
use super::table::{Align, Table};
use polder_datapath::scheduler::WEIGHT;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

pub use super::segments::SegmentRow;

/// One port with a device behind it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortRow {
    /// Its name in the configuration.
    pub name: String,
    /// The interface's name.
    pub interface: String,
    /// `interface`, `tap`, `lan78xx` or `pci`.
    pub kind: String,
    /// `bridge` or `underlay`.
    pub role: String,
    /// `kernel` or `drop`: what happens to the interface when Polder ends.
    pub on_exit: String,
    /// True if it is open.
    pub open: bool,
    /// `open`; `no-carrier` or `down` for one that is open and whose link does not carry; `waiting` for one whose device
    /// is not there; `closed`.
    #[serde(default)]
    pub state: String,
    /// True if its link has a carrier; none for a device that does not tell.
    #[serde(default)]
    pub carrier: Option<bool>,
    /// Reason why it is closed.
    pub trouble: Option<String>,
    /// Mode in which it is attached.
    pub mode: Option<String>,
    /// Reason for that mode, where the configuration leaves it to the device.
    #[serde(default)]
    pub mode_reason: Option<String>,
    /// Receive queues.
    pub queues: Option<usize>,
    /// The weight of each of those in the time of its worker.
    #[serde(default)]
    pub weight: u16,
    /// Its longest network packet, in bytes.
    pub mtu: Option<u32>,
    /// Addresses that its bridge has learnt on it, aged ones that are not swept included; none off a bridge.
    #[serde(default)]
    pub learned: Option<u32>,
    /// Most addresses that are learnt on it, where it has a limit.
    #[serde(default)]
    pub fdb_max_learned: Option<u32>,
    /// Its link-layer address.
    pub mac: Option<String>,
    /// Link-layer address of its router, if it has one.
    #[serde(default)]
    pub router_mac: Option<String>,
    /// Number of openings since the start.
    pub openings: u64,
    /// Packets received, those that the driver refused included.
    pub received: u64,
    /// Bytes of those.
    pub received_bytes: u64,
    /// Packets handed to the device.
    pub transmitted: u64,
    /// Bytes of those.
    pub transmitted_bytes: u64,
    /// Packets of anybody that the interface has dropped since it was opened, although it was given them: `transmitted`
    /// has Polder's. None for a device that tells of each packet.
    #[serde(default)]
    pub link_dropped: Option<u64>,
    /// Packets handed to the device and not completed.
    pub in_flight: u64,
    /// Time of workers that turns of its queues took, forwarding and sending included: on the CPU, not by the clock.
    #[serde(default)]
    pub worked_nanos: u64,
    /// Packets whose checksum a local sender has left to a device that did not say so; they were completed.
    #[serde(default)]
    pub partial_checksums: u64,
    /// System calls made for its queues.
    pub system_calls: u64,
    /// Packets merged and cut for it.
    #[serde(default)]
    pub segments: SegmentRow,
    /// Packets that the device, its driver or the kernel on the way lost or refused, by reason.
    pub drops: BTreeMap<String, u64>,
    /// Problems found at opening that ought to be mended.
    pub findings: Vec<String>,
    /// Packet hooks of the kernel that its packets do not reach, and that could drop or change them.
    #[serde(default)]
    pub bypassed: Vec<BypassedRow>,
    /// Hooks because of which its packets are left to the kernel at present.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_to_kernel: Option<YieldRow>,
    /// Number of times that its packets were left to the kernel.
    #[serde(default)]
    pub yields: u64,
    /// Time of all of them, in nanoseconds.
    #[serde(default)]
    pub yielded_nanos: u64,
    /// The USB adapter behind it, while it is open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adapter: Option<AdapterRow>,
    /// The modem behind it, while it is open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub modem: Option<ModemRow>,
    /// The PCI device behind it, while it is open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nic: Option<NicRow>,
}

/// A packet hook of the kernel that a port goes round.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BypassedRow {
    /// `nftables`, `iptables-legacy`, `ip6tables-legacy`, `tc`, `ip rule` or `ip xfrm`.
    pub by: String,
    /// The chain, filter or policy.
    pub name: String,
    /// Effect on packets, in words that follow "would".
    pub effect: String,
    /// True if it has appeared while the gateway runs.
    pub appeared: bool,
}

/// A port whose packets are left to the kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct YieldRow {
    /// The hooks, each with its effect.
    pub hooks: Vec<String>,
    /// Time since it yielded, in nanoseconds.
    pub nanos: u64,
}

/// Subtracts the counters of an earlier view.
pub(super) fn subtract(rows: &mut [PortRow], earlier: &[PortRow]) {
    for row in rows {
        let Some(then) = earlier.iter().find(|then| then.name == row.name) else { continue };
        row.received = row.received.saturating_sub(then.received);
        row.received_bytes = row.received_bytes.saturating_sub(then.received_bytes);
        row.transmitted = row.transmitted.saturating_sub(then.transmitted);
        row.transmitted_bytes = row.transmitted_bytes.saturating_sub(then.transmitted_bytes);
        row.link_dropped =
            row.link_dropped.map(|dropped| dropped.saturating_sub(then.link_dropped.unwrap_or(0)));
        row.worked_nanos = row.worked_nanos.saturating_sub(then.worked_nanos);
        row.system_calls = row.system_calls.saturating_sub(then.system_calls);
        row.yields = row.yields.saturating_sub(then.yields);
        row.yielded_nanos = row.yielded_nanos.saturating_sub(then.yielded_nanos);
        row.partial_checksums = row.partial_checksums.saturating_sub(then.partial_checksums);
        row.segments.subtract(&then.segments);
        subtract_all(&mut row.drops, &then.drops);
        if let (Some(adapter), Some(then)) = (&mut row.adapter, &then.adapter) {
            adapter.subtract(then);
        }
        if let (Some(nic), Some(then)) = (&mut row.nic, &then.nic) {
            nic.subtract(then);
        }
    }
}

pub(super) fn draw(rows: &[PortRow], look: Look) -> String {
    let columns = [
        ("port", Align::Left),
        ("device", Align::Left),
        ("state", Align::Left),
        ("attached", Align::Left),
        ("queues", Align::Right),
        ("MTU", Align::Right),
        ("learnt", Align::Right),
        ("received", Align::Right),
        ("", Align::Right),
        ("transmitted", Align::Right),
        ("", Align::Right),
        ("dropped", Align::Right),
    ];
    let mut table = Table::new(look, columns).folding(["learnt", "MTU", "queues", "attached", "device"]);
    for row in rows {
        let device = match row.kind.as_str() {
            "tap" => format!("tap {}", row.interface),
            _ => row.interface.clone(),
        };
        let dropped = row.drops.values().sum::<u64>();
        table.row([
            row.name.clone(),
            device,
            state(row),
            row.mode.clone().unwrap_or_default(),
            row.queues.map(|queues| queues.to_string()).unwrap_or_default(),
            row.mtu.map(|mtu| mtu.to_string()).unwrap_or_default(),
            row.learned.map(|learned| of_limit(learned, row.fdb_max_learned)).unwrap_or_default(),
            look.count(row.received),
            look.bytes(row.received_bytes),
            look.count(row.transmitted),
            look.bytes(row.transmitted_bytes),
            look.count(dropped),
        ]);
        remarks(&mut table, row, look);
    }
    table.draw()
}

/// The state, in capitals when the port carries nothing.
fn state(row: &PortRow) -> String {
    match (row.state.as_str(), row.open) {
        ("" | "open", true) if row.left_to_kernel.is_some() => "kernel".to_owned(),
        // A gateway that tells less.
        ("" | "open", true) => "open".to_owned(),
        ("", false) => "CLOSED".to_owned(),
        (state, _) => state.replace('-', " ").to_uppercase(),
    }
}

fn remarks(table: &mut Table, row: &PortRow, look: Look) {
    let mut note = |mark: String, text: &str| table.remark(&mark, text);
    if let Some(trouble) = row.trouble.as_ref().filter(|_| !row.open) {
        note(look.bad("✗"), &format!("{trouble}; it is tried again"));
    }
    if row.open && row.state == "down" {
        let command = format!("`ip link set dev {} up`", row.interface);
        note(look.bad("✗"), &format!("it is switched off: {command}"));
    }
    if let Some(adapter) = &row.adapter {
        note(adapter.mark(look), &adapter.lines(look).join("; "));
    }
    if let Some(modem) = &row.modem {
        note(modem.mark(look), &modem.lines().join("; "));
    }
    if let Some(nic) = &row.nic {
        note(nic.mark(look), &nic.lines(look).join("; "));
    }
    if let Some((mode, why)) = row.mode.as_ref().zip(row.mode_reason.as_ref()).filter(|_| row.open) {
        let mode = mode.split(',').next().unwrap_or_default();
        note(look.dim("·"), &format!("mode {mode}: {why}"));
    }
    for finding in &row.findings {
        note(look.odd("!"), finding);
    }
    if let Some(YieldRow { hooks, nanos }) = &row.left_to_kernel {
        let text = format!("left to the kernel for {}, because {}", duration(*nanos), hooks.join("; "));
        note(look.odd("!"), &text);
    }
    for bypassed in &row.bypassed {
        let BypassedRow { by, name, effect, appeared } = bypassed;
        let since = if *appeared { ", and has appeared while the gateway runs" } else { "" };
        note(look.odd("!"), &format!("bypassed: {by} {name} would {effect}{since}"));
    }
    if let Some(text) = row.segments.sentence(look) {
        note(look.dim("·"), &text);
    }
    if let Some(dropped) = row.link_dropped.filter(|&dropped| dropped > 0) {
        let text =
            format!("the interface itself has dropped {} packets that it was to send", grouped(dropped));
        note(look.odd("!"), &text);
    }
    if row.partial_checksums > 0 {
        let text =
            format!("completed the checksums of {} packets of local senders", grouped(row.partial_checksums));
        note(look.dim("·"), &text);
    }
    if row.weight != 0 && row.weight != WEIGHT {
        let text = format!(
            "each of its queues has weight {} in its worker's time; {WEIGHT} is ordinary",
            row.weight
        );
        note(look.dim("·"), &text);
    }
    if row.openings > 1 {
        note(look.dim("·"), &format!("opened {} times since the start", grouped(row.openings)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_port_says_why() {
        let row = PortRow {
            name: "lan".to_owned(),
            trouble: Some("the interface has disappeared".to_owned()),
            ..PortRow::default()
        };
        let text = draw(&[row], Look::PLAIN);
        assert!(text.contains("CLOSED") && text.contains("✗ the interface has disappeared"), "{text}");
    }

    #[test]
    fn a_link_that_does_not_carry_and_a_device_that_is_not_there_are_told() {
        let text = |state: &str, open| {
            draw(&[PortRow { state: state.to_owned(), open, ..PortRow::default() }], Look::PLAIN)
        };
        assert!(text("no-carrier", true).contains("NO CARRIER"));
        assert!(text("down", true).contains("DOWN") && text("down", true).contains("✗ it is switched off"));
        assert!(text("waiting", false).contains("WAITING"));
        assert!(text("", true).contains("open"), "a gateway that does not tell");
    }

    #[test]
    fn a_port_that_is_left_to_the_kernel_says_because_of_which_hook() {
        let hook = "nftables chain `inet own forw` at forward would drop them by its policy".to_owned();
        let left_to_kernel = Some(YieldRow { hooks: vec![hook], nanos: 12_000_000_000 });
        let row = PortRow { open: true, left_to_kernel, ..PortRow::default() };
        let text = draw(&[row], Look::PLAIN);
        assert!(text.contains("kernel") && text.contains("! left to the kernel for 12"), "{text}");
        assert!(text.contains("because nftables chain `inet own forw` at forward"), "{text}");
    }

    #[test]
    fn a_weight_is_told_where_it_is_not_ordinary() {
        let text = |weight| draw(&[PortRow { weight, ..PortRow::default() }], Look::PLAIN);
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
        let text = draw(&rows, Look::PLAIN);
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
        subtract(&mut rows, &[row("a", 1), row("b", 3)]);
        assert_eq!(rows.map(|row| row.received), [17, 5]);
    }
}
