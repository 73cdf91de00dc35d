//! Metrics of ports, and of adapters and controllers behind them.

use super::family::Value::{Count, Nanos};
use super::family::{BYTES, Family, Labels, NONE, PACKETS, SECONDS, Value};
use crate::show::adapter::AdapterRow;
use crate::show::nic::NicRow;
use crate::show::ports::PortRow;
use std::collections::BTreeMap;

/// Labels of a port.
pub(super) fn labels(row: &PortRow) -> Labels {
    Labels::one("port", &row.name)
}

/// Families of ports.
pub(super) const PORT: &[Family<PortRow>] = &[
    Family::info("port", "A port, its device and how it is attached.", info),
    Family::gauge("port_open", NONE, "1 if the port is open.", |row| Some(Value::flag(row.open))),
    Family::gauge("port_carrier", NONE, "1 if the link of an open port has a carrier.", |row| {
        row.carrier.map(Value::flag)
    }),
    Family::counter("port_openings", NONE, "Times that the port was opened.", |row| {
        Some(Count(row.openings))
    }),
    Family::gauge("port_queues", NONE, "Receive queues of the port.", |row| {
        row.queues.map(|queues| Count(u64::try_from(queues).unwrap_or(u64::MAX)))
    }),
    Family::gauge("port_weight", NONE, "Weight of each queue of the port in its worker's time.", |row| {
        Some(Count(row.weight.into()))
    }),
    Family::gauge("port_mtu", BYTES, "Longest network packet of the port.", |row| {
        row.mtu.map(|mtu| Count(mtu.into()))
    }),
    Family::gauge("port_learned", "addresses", "Addresses that the bridge has learned on the port.", |row| {
        row.learned.map(|learned| Count(learned.into()))
    }),
    Family::gauge("port_learned_limit", "addresses", "Most addresses that are learned on the port.", |row| {
        row.fdb_max_learned.map(|most| Count(most.into()))
    }),
    Family::counter(
        "port_received",
        PACKETS,
        "Packets received, those that the driver refused included.",
        |row| Some(Count(row.received)),
    ),
    Family::counter("port_received", BYTES, "Bytes of received packets.", |row| {
        Some(Count(row.received_bytes))
    }),
    Family::counter("port_transmitted", PACKETS, "Packets handed to the device.", |row| {
        Some(Count(row.transmitted))
    }),
    Family::counter("port_transmitted", BYTES, "Bytes of transmitted packets.", |row| {
        Some(Count(row.transmitted_bytes))
    }),
    Family::counters(
        "port_dropped",
        PACKETS,
        "Packets that the device, its driver or the kernel on the way lost or refused, by reason.",
        |row| by("reason", &row.drops),
    ),
    Family::counter(
        "port_interface_dropped",
        PACKETS,
        "Packets of any sender that the interface has dropped since it was opened.",
        |row| row.link_dropped.map(Count),
    ),
    Family::gauge("port_in_flight", PACKETS, "Packets handed to the device and not completed.", |row| {
        Some(Count(row.in_flight))
    }),
    Family::counter(
        "port_worked",
        SECONDS,
        "CPU time of workers for turns of the port's queues, forwarding and sending included.",
        |row| Some(Nanos(row.worked_nanos)),
    ),
    Family::counter(
        "port_partial_checksum",
        PACKETS,
        "Packets whose checksum a local sender had left to the device, completed by Polder.",
        |row| Some(Count(row.partial_checksums)),
    ),
    Family::counter("port_system_calls", NONE, "System calls made for the port's queues.", |row| {
        Some(Count(row.system_calls))
    }),
    Family::counter(
        "port_merged",
        PACKETS,
        "Packets that became part of longer ones on their way to the port.",
        |row| Some(Count(row.segments.merged)),
    ),
    Family::counter("port_merged_into", PACKETS, "Longer packets that were merged.", |row| {
        Some(Count(row.segments.merged_into))
    }),
    Family::counter("port_cut", PACKETS, "Packets that were cut for the port.", |row| {
        Some(Count(row.segments.cut))
    }),
    Family::counter("port_cut_segments", PACKETS, "Segments that packets were cut into.", |row| {
        Some(Count(row.segments.segments))
    }),
    Family::gauge("port_findings", NONE, "Findings about the port that ought to be mended.", |row| {
        Some(Count(count(row.findings.len())))
    }),
    Family::gauge("port_bypassed_hooks", NONE, "Packet hooks of the kernel that the port bypasses.", |row| {
        Some(Count(count(row.bypassed.len())))
    }),
    Family::gauge("port_yielded", NONE, "1 while the port's packets are left to the kernel.", |row| {
        Some(Value::flag(row.left_to_kernel.is_some()))
    }),
    Family::counter("port_yields", NONE, "Times that the port's packets were left to the kernel.", |row| {
        Some(Count(row.yields))
    }),
    Family::counter(
        "port_yielded_time",
        SECONDS,
        "Time for which the port's packets were left to the kernel.",
        |row| Some(Nanos(row.yielded_nanos)),
    ),
];

fn info(row: &PortRow) -> Vec<(Labels, Value)> {
    let labels = Labels::one("interface", &row.interface)
        .and("kind", &row.kind)
        .and("role", &row.role)
        .and("mode", row.mode.as_deref().unwrap_or_default())
        .and("on_exit", &row.on_exit)
        .and("mac", row.mac.as_deref().unwrap_or_default());
    vec![(labels, Count(1))]
}

/// Counters by the value of one label.
pub(super) fn by(name: &'static str, counters: &BTreeMap<String, u64>) -> Vec<(Labels, Value)> {
    counters.iter().map(|(value, &number)| (Labels::one(name, value), Count(number))).collect()
}

/// A number of things in memory.
pub(super) fn count(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

/// A port with a USB adapter or a PCI controller behind it.
pub(super) struct Behind<T> {
    /// The port.
    pub(super) port: String,
    /// The device.
    pub(super) device: T,
}

impl<T> Behind<T> {
    /// Labels of a device.
    pub(super) fn labels(&self) -> Labels {
        Labels::one("port", &self.port)
    }
}

/// Families of USB adapters.
pub(super) const ADAPTER: &[Family<Behind<AdapterRow>>] = &[
    Family::gauge("adapter_link_up", NONE, "1 if the USB adapter has a link.", |row| {
        Some(Value::flag(row.device.link_up))
    }),
    Family::gauge("adapter_link_speed", "bits_per_second", "Speed of the adapter's link.", |row| {
        row.device.link_mbit.map(|mbit| Count(u64::from(mbit) * 1_000_000))
    }),
    Family::gauge("adapter_receive_urbs", NONE, "Bulk-in URBs in flight.", |row| {
        Some(Count(row.device.receive_urbs))
    }),
    Family::gauge("adapter_send_urbs", NONE, "Bulk-out URBs in flight.", |row| {
        Some(Count(row.device.send_urbs))
    }),
    Family::gauge("adapter_waiting_urbs", NONE, "Received transfers that wait for a turn.", |row| {
        Some(Count(row.device.waiting_urbs))
    }),
    Family::gauge("adapter_overflow_queue", "frames", "Frames in the overflow queue.", |row| {
        Some(Count(row.device.overflow))
    }),
    Family::gauge(
        "adapter_overflow_queue_most",
        "frames",
        "Most frames that the overflow queue has held.",
        |row| Some(Count(row.device.overflow_most)),
    ),
    Family::gauge("adapter_pending", PACKETS, "Packets in the pending queue.", |row| {
        Some(Count(row.device.pending))
    }),
    Family::counter("adapter_received_transfers", NONE, "Bulk-in transfers.", |row| {
        Some(Count(row.device.received_transfers))
    }),
    Family::counter("adapter_sent_transfers", NONE, "Bulk-out transfers.", |row| {
        Some(Count(row.device.sent_transfers))
    }),
    Family::counter("adapter_sent", BYTES, "Bytes of bulk-out transfers, command words included.", |row| {
        Some(Count(row.device.sent_bytes))
    }),
    Family::counter("adapter_sent_room", BYTES, "Bytes that bulk-out transfers had room for.", |row| {
        Some(Count(row.device.sent_room))
    }),
    Family::counter("adapter_bad_transfers", NONE, "Transfers that ended with an error.", |row| {
        Some(Count(row.device.bad_transfers))
    }),
    Family::counter("adapter_bad_requests", NONE, "Control requests that failed.", |row| {
        Some(Count(row.device.bad_requests))
    }),
    Family::counter(
        "adapter_lost",
        BYTES,
        "Bytes of received transfers in which no frame could be found.",
        |row| Some(Count(row.device.lost_bytes)),
    ),
    Family::counter(
        "adapter_checksum_errors",
        "frames",
        "Received frames in which the adapter found a wrong checksum.",
        |row| Some(Count(row.device.checksum_errors)),
    ),
    Family::counter(
        "adapter_checksum_mismatches",
        "frames",
        "Received frames that the adapter's sum does not fit, though it found nothing wrong.",
        |row| Some(Count(row.device.checksum_mismatches)),
    ),
    Family::counters(
        "adapter_statistics",
        NONE,
        "Counters of the adapter itself since it was opened.",
        |row| by("counter", &row.device.statistics),
    ),
];

/// Families of PCI controllers.
pub(super) const NIC: &[Family<Behind<NicRow>>] = &[
    Family::gauge("nic_link_up", NONE, "1 if the PCI controller has a link.", |row| {
        Some(Value::flag(row.device.link_up))
    }),
    Family::gauge("nic_link_speed", "bits_per_second", "Speed of the controller's link.", |row| {
        row.device.link_mbit.map(|mbit| Count(u64::from(mbit) * 1_000_000))
    }),
    Family::counter("nic_link_changes", NONE, "Times that the controller's link came up or went.", |row| {
        Some(Count(row.device.link_changes))
    }),
    Family::gauge("nic_rx_posted_descriptors", NONE, "Receive descriptors that wait for frames.", |row| {
        Some(Count(row.device.rx_posted))
    }),
    Family::gauge("nic_tx_used_descriptors", NONE, "Transmit descriptors that the controller has.", |row| {
        Some(Count(row.device.tx_used))
    }),
    Family::gauge("nic_throttle", SECONDS, "Least time between two interrupts.", |row| {
        Some(Nanos(row.device.throttle_nanos))
    }),
    Family::counter("nic_interrupts", NONE, "Interrupts that woke the worker.", |row| {
        Some(Count(row.device.interrupts))
    }),
    Family::counter(
        "nic_spurious_interrupts",
        NONE,
        "Interrupts without a cause of this controller.",
        |row| Some(Count(row.device.spurious)),
    ),
    Family::counter("nic_rx_doorbells", NONE, "Writes of the receive ring's tail.", |row| {
        Some(Count(row.device.rx_doorbells))
    }),
    Family::counter("nic_tx_doorbells", NONE, "Writes of the transmit ring's tail.", |row| {
        Some(Count(row.device.tx_doorbells))
    }),
    Family::counter("nic_segmented", PACKETS, "Packets that the controller was given to cut.", |row| {
        Some(Count(row.device.segmented))
    }),
    Family::counter("nic_copied", PACKETS, "Packets that had to be copied into the packet memory.", |row| {
        Some(Count(row.device.copied))
    }),
    Family::counter(
        "nic_checksum_errors",
        PACKETS,
        "Received packets in which the controller found a wrong checksum.",
        |row| Some(Count(row.device.checksum_errors)),
    ),
    Family::counters(
        "nic_statistics",
        NONE,
        "Counters of the controller itself since it was opened.",
        |row| by("counter", &row.device.statistics),
    ),
];
