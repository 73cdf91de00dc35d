//! Rows of a PCI device in `polder show ports`.

use super::counters::subtract_all;
use super::look::{Look, grouped};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

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
    /// True if it has a link.
    pub link_up: bool,
    /// The link's speed, in Mbit/s.
    pub link_mbit: Option<u16>,
    /// True if both sides may send at once.
    pub full_duplex: Option<bool>,
    /// True if it sends pause frames.
    pub pause_transmit: bool,
    /// True if it obeys them.
    pub pause_receive: bool,
    /// Number of times that the link came up or went.
    pub link_changes: u64,
    /// Receive descriptors that wait for frames.
    pub rx_posted: u64,
    /// Transmit descriptors that the device has.
    pub tx_used: u64,
    /// Least time between two interrupts, in nanoseconds.
    pub throttle_nanos: u64,
    /// Interrupts that woke the worker.
    pub interrupts: u64,
    /// Of those, with no cause of this device.
    pub spurious: u64,
    /// Writes of the receive ring's tail.
    pub rx_doorbells: u64,
    /// Writes of the transmit ring's tail.
    pub tx_doorbells: u64,
    /// Packets that the device was given to cut.
    pub segmented: u64,
    /// Packets that had to be copied into the packet memory.
    pub copied: u64,
    /// Received packets in which the device found a wrong checksum of IP, TCP or UDP.
    pub checksum_errors: u64,
    /// The device's own counters since it was opened, those that are not zero.
    pub statistics: BTreeMap<String, u64>,
}

impl NicRow {
    /// Subtracts the counters of an earlier view.
    pub(super) fn subtract(&mut self, then: &Self) {
        let counters = [
            (&mut self.link_changes, then.link_changes),
            (&mut self.interrupts, then.interrupts),
            (&mut self.spurious, then.spurious),
            (&mut self.rx_doorbells, then.rx_doorbells),
            (&mut self.tx_doorbells, then.tx_doorbells),
            (&mut self.segmented, then.segmented),
            (&mut self.copied, then.copied),
            (&mut self.checksum_errors, then.checksum_errors),
        ];
        for (now, then) in counters {
            *now = now.saturating_sub(then);
        }
        subtract_all(&mut self.statistics, &then.statistics);
    }

    /// Good or odd, at a glance.
    pub(super) fn mark(&self, look: Look) -> String {
        if self.link_up { look.good("✓") } else { look.odd("!") }
    }

    /// Lines about the device, each a few words.
    pub(super) fn lines(&self, look: Look) -> Vec<String> {
        let mut lines = vec![self.link()];
        lines.push(format!("ring: {} posted, {} to send", grouped(self.rx_posted), grouped(self.tx_used)));
        lines.push(match self.throttle_nanos / 1000 {
            0 => format!("{} interrupts, not throttled", look.count(self.interrupts)),
            micros => format!("{} interrupts, {micros} µs apart", look.count(self.interrupts)),
        });
        if self.segmented > 0 {
            lines.push(format!("cut {} packets", look.count(self.segmented)));
        }
        if self.copied > 0 {
            lines.push(format!("copied {} packets of other memory", look.count(self.copied)));
        }
        if self.spurious > 0 {
            lines.push(format!("{} interrupts without a cause", look.count(self.spurious)));
        }
        if self.checksum_errors > 0 {
            lines.push(format!("{} wrong checksums passed on", look.count(self.checksum_errors)));
        }
        if !self.eeprom_is_good {
            lines.push("the checksum of its EEPROM is wrong".to_owned());
        }
        lines
    }

    fn link(&self) -> String {
        let Some(mbit) = self.link_mbit else { return "no link: plug the cable in".to_owned() };
        let duplex = if self.full_duplex == Some(true) { "full" } else { "half" };
        let pause = match (self.pause_transmit, self.pause_receive) {
            (true, true) => ", pause both ways",
            (true, false) => ", sends pause",
            (false, true) => ", obeys pause",
            (false, false) => "",
        };
        format!("link {mbit} Mbit/s {duplex} duplex{pause}")
    }
}

#[cfg(test)]
mod tests {
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
            row().lines(Look::PLAIN).join("; "),
            "link 1000 Mbit/s full duplex, obeys pause; ring: 255 posted, 0 to send; 10 interrupts, 20 µs apart"
        );
        let down = NicRow { link_up: false, link_mbit: None, eeprom_is_good: false, ..row() };
        let lines = down.lines(Look::PLAIN);
        assert!(
            lines[0].starts_with("no link") && lines[3].contains("EEPROM") && down.mark(Look::PLAIN) == "!"
        );
    }

    #[test]
    fn gauges_stay_and_counters_are_compared() {
        let mut now = NicRow { interrupts: 14, ..row() };
        now.statistics.insert("rx-good".to_owned(), 9);
        let mut then = row();
        then.statistics.insert("rx-good".to_owned(), 4);
        now.subtract(&then);
        assert_eq!((now.interrupts, now.rx_posted, now.statistics["rx-good"]), (4, 255, 5));
    }
}
