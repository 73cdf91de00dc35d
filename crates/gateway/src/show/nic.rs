//! Rows of a PCI device in `polder show ports`.

use super::family::Unit::{Mbit, Nanos, Packets, Plain};
use super::layout::{Layout, grouped};
use super::row::rows;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

rows! {
    /// A PCI Ethernet controller.
    #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    pub struct NicRow {
        /// Address of the device.
        pub place: String,
        /// Its chip.
        pub chip: String,
        /// Source of its MAC address: `configuration` or `eeprom`.
        pub mac_source: Option<String>,
        /// True if the checksum of its EEPROM is right.
        pub eeprom_is_good: bool,
        /// Identity of its PHY.
        pub phy: Option<String>,
        /// True if the PCI controller has a link.
        pub link_up: bool => gauge("nic_link_up", Plain),
        /// Speed of the controller's link.
        pub link_mbit: Option<u16> => gauge("nic_link_speed", Mbit),
        /// True if both sides may send at once.
        pub full_duplex: Option<bool>,
        /// True if it sends pause frames.
        pub pause_transmit: bool,
        /// True if it obeys them.
        pub pause_receive: bool,
        /// Times that the controller's link came up or went.
        pub link_changes: u64 => counter("nic_link_changes", Plain),
        /// Receive descriptors that wait for frames.
        pub rx_posted: u64 => gauge("nic_rx_posted_descriptors", Plain),
        /// Transmit descriptors that the controller has.
        pub tx_used: u64 => gauge("nic_tx_used_descriptors", Plain),
        /// Least time between two interrupts.
        pub throttle_nanos: u64 => gauge("nic_throttle", Nanos),
        /// Interrupts that woke the worker.
        pub interrupts: u64 => counter("nic_interrupts", Plain),
        /// Interrupts without a cause of this controller.
        pub spurious: u64 => counter("nic_spurious_interrupts", Plain),
        /// Writes of the receive ring's tail.
        pub rx_doorbells: u64 => counter("nic_rx_doorbells", Plain),
        /// Writes of the transmit ring's tail.
        pub tx_doorbells: u64 => counter("nic_tx_doorbells", Plain),
        /// Packets that the controller was given to cut.
        pub segmented: u64 => counter("nic_segmented", Packets),
        /// Packets that had to be copied into the packet memory.
        pub copied: u64 => counter("nic_copied", Packets),
        /// Received packets in which the controller found a wrong checksum.
        pub checksum_errors: u64 => counter("nic_checksum_errors", Packets),
        /// Counters of the controller itself since it was opened.
        ///
        /// Those that are not zero.
        pub statistics: BTreeMap<String, u64> => counters("nic_statistics", Plain, "counter"),
    }
}

impl NicRow {
    /// Mark for a good or bad state.
    pub(super) fn mark(&self, layout: Layout) -> String {
        if self.link_up { layout.good("✓") } else { layout.odd("!") }
    }

    /// Lines about the device, as short phrases.
    pub(super) fn lines(&self, layout: Layout) -> Vec<String> {
        let mut lines = vec![self.link()];
        lines.push(format!("ring: {} posted, {} to send", grouped(self.rx_posted), grouped(self.tx_used)));
        lines.push(match self.throttle_nanos / 1000 {
            0 => format!("{} interrupts, not throttled", layout.count(self.interrupts)),
            micros => format!("{} interrupts, {micros} µs apart", layout.count(self.interrupts)),
        });
        if self.segmented > 0 {
            lines.push(format!("cut {} packets", layout.count(self.segmented)));
        }
        if self.copied > 0 {
            lines.push(format!("copied {} packets from foreign memory", layout.count(self.copied)));
        }
        if self.spurious > 0 {
            lines.push(format!("{} spurious interrupts", layout.count(self.spurious)));
        }
        if self.checksum_errors > 0 {
            lines.push(format!(
                "{} packets with wrong checksums passed on",
                layout.count(self.checksum_errors)
            ));
        }
        if !self.eeprom_is_good {
            lines.push("the checksum of its EEPROM is wrong".to_owned());
        }
        lines
    }

    fn link(&self) -> String {
        link(self.link_mbit, self.full_duplex, (self.pause_transmit, self.pause_receive))
    }
}

/// An Ethernet link as text: speed in Mbit/s, duplex, and pause frames sent and obeyed.
pub(super) fn link(mbit: Option<u16>, full_duplex: Option<bool>, pause: (bool, bool)) -> String {
    let Some(mbit) = mbit else { return "no link: plug the cable in".to_owned() };
    let duplex = if full_duplex == Some(true) { "full" } else { "half" };
    let pause = match pause {
        (true, true) => ", pause both ways",
        (true, false) => ", sends pause",
        (false, true) => ", obeys pause",
        (false, false) => "",
    };
    format!("link {mbit} Mbit/s {duplex} duplex{pause}")
}

#[cfg(test)]
mod tests {
    use super::super::row::Row as _;
    use super::*;

    fn row() -> NicRow {
        NicRow {
            eeprom_is_good: true,
            link_up: true,
            link_mbit: Some(1000),
            full_duplex: Some(true),
            pause_receive: true,
            rx_posted: 255,
            interrupts: 10,
            throttle_nanos: 20_000,
            ..NicRow::default()
        }
    }

    #[test]
    fn link_ring_and_throttle_are_told() {
        assert_eq!(
            row().lines(Layout::PLAIN).join("; "),
            "link 1000 Mbit/s full duplex, obeys pause; ring: 255 posted, 0 to send; 10 interrupts, 20 µs apart"
        );
        let down = NicRow { link_up: false, link_mbit: None, eeprom_is_good: false, ..row() };
        let lines = down.lines(Layout::PLAIN);
        assert!(
            lines[0].starts_with("no link") && lines[3].contains("EEPROM") && down.mark(Layout::PLAIN) == "!"
        );
    }

    #[test]
    fn gauges_stay_and_counters_are_compared() {
        let mut now = NicRow { interrupts: 14, ..row() };
        now.statistics.insert("rx-good".to_owned(), 9);
        let mut then = row();
        then.statistics.insert("rx-good".to_owned(), 4);
        now.difference(&then);
        assert_eq!((now.interrupts, now.rx_posted, now.statistics["rx-good"]), (4, 255, 5));
    }
}
