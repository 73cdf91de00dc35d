//! Rows of a USB adapter in `polder show ports`.

use super::family::Unit::{Bytes, Frames, Mbit, Packets, Plain};
use super::layout::{Layout, grouped, percent};
use super::nic::link;
use super::row::rows;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

rows! {
    /// A USB adapter.
    #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    pub struct AdapterRow {
        /// Bus and address of the device.
        pub place: String,
        /// Its chip and revision.
        pub chip: Option<String>,
        /// `USB 2` or `USB 3`.
        pub bus: Option<String>,
        /// Source of its MAC address: `configuration`, `registers`, `eeprom`, `otp` or `random`.
        pub mac_source: Option<String>,
        /// Identity and address of its PHY.
        pub phy: Option<String>,
        /// Class of a function without PHY: `MBIM`, `CDC-NCM` or `CDC-ECM`.
        pub class: Option<String>,
        /// Its blocks, if it has any.
        pub blocks: Option<BlockRow> => rows(),
        /// True if the USB adapter has a link.
        pub link_up: bool => gauge("adapter_link_up", Plain),
        /// Speed of the adapter's link.
        pub link_mbit: Option<u16> => gauge("adapter_link_speed", Mbit),
        /// True if both sides may send at once.
        pub full_duplex: Option<bool>,
        /// True if it sends pause frames.
        pub pause_transmit: bool,
        /// True if it obeys them.
        pub pause_receive: bool,
        /// Bulk-in URBs in flight.
        pub receive_urbs: u64 => gauge("adapter_receive_urbs", Plain),
        /// Bulk-out URBs in flight.
        pub send_urbs: u64 => gauge("adapter_send_urbs", Plain),
        /// Received transfers that wait for a turn.
        pub waiting_urbs: u64 => gauge("adapter_waiting_urbs", Plain),
        /// Frames in the overflow queue.
        pub overflow: u64 => gauge("adapter_overflow_queue", Frames),
        /// Most frames that the overflow queue has held.
        pub overflow_most: u64 => gauge("adapter_overflow_queue_most", Frames),
        /// Packets in the pending queue.
        pub pending: u64 => gauge("adapter_pending", Packets),
        /// Bulk-in transfers.
        pub received_transfers: u64 => counter("adapter_received_transfers", Plain),
        /// Bulk-out transfers.
        pub sent_transfers: u64 => counter("adapter_sent_transfers", Plain),
        /// Bytes of bulk-out transfers, command words included.
        pub sent_bytes: u64 => counter("adapter_sent", Bytes),
        /// Bytes that bulk-out transfers had room for.
        pub sent_room: u64 => counter("adapter_sent_room", Bytes),
        /// Transfers that ended with an error.
        pub bad_transfers: u64 => counter("adapter_bad_transfers", Plain),
        /// Control requests that failed.
        pub bad_requests: u64 => counter("adapter_bad_requests", Plain),
        /// Bytes of received transfers in which no frame could be found.
        pub lost_bytes: u64 => counter("adapter_lost", Bytes),
        /// Received frames in which the adapter found a wrong checksum.
        ///
        /// That of IP, TCP or UDP.
        pub checksum_errors: u64 => counter("adapter_checksum_errors", Frames),
        /// Received frames that the adapter's sum does not fit, though it found nothing wrong.
        pub checksum_mismatches: u64 => counter("adapter_checksum_mismatches", Frames),
        /// Counters of the adapter itself since it was opened.
        ///
        /// Those that are not zero.
        pub statistics: BTreeMap<String, u64> => counters("adapter_statistics", Plain, "counter"),
    }

    /// Blocks of many frames in a transfer.
    #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    pub struct BlockRow {
        /// `NTB16` or `NTB32`.
        pub format: String,
        /// True if frames in them have checksums.
        pub crc: bool,
        /// Bytes of a received one, at most.
        pub in_bytes: u32,
        /// Bytes of a sent one, at most.
        pub out_bytes: u32,
        /// Frames in received ones.
        pub received_frames: u64 => counted(Frames),
        /// Frames in sent ones.
        pub sent_frames: u64 => counted(Frames),
        /// Received frames with a wrong checksum.
        pub wrong_crc: u64 => counted(Frames),
        /// Received blocks that could not be read to their end, by reason.
        pub faults: BTreeMap<String, u64> => counted(Plain),
    }
}

impl BlockRow {
    /// Format and sizes of blocks, and the mean number of frames in a block in each direction.
    fn line(&self, received: u64, sent: u64) -> String {
        let mean = |frames: u64, blocks: u64| match (10 * frames).checked_div(blocks) {
            Some(tenths) => format!("{}.{}", tenths / 10, tenths % 10),
            None => "–".to_owned(),
        };
        let crc = if self.crc { " with CRC" } else { "" };
        let (received, sent) = (mean(self.received_frames, received), mean(self.sent_frames, sent));
        let (in_bytes, out_bytes) = (grouped(self.in_bytes.into()), grouped(self.out_bytes.into()));
        format!(
            "{}{crc} of {in_bytes} bytes in, {out_bytes} out; frames in one: {received} in, {sent} out",
            self.format
        )
    }
}

impl AdapterRow {
    /// Mark for a good or bad state.
    pub(super) fn mark(&self, layout: Layout) -> String {
        if self.link_up { layout.good("✓") } else { layout.odd("!") }
    }

    /// Lines about the adapter, as short phrases.
    pub(super) fn lines(&self, layout: Layout) -> Vec<String> {
        let mut lines = vec![self.link()];
        match (&self.class, &self.blocks, &self.phy) {
            (Some(class), None, _) => lines.push(format!("{class}, one frame per transfer")),
            (Some(class), Some(blocks), _) => {
                let line = blocks.line(self.received_transfers, self.sent_transfers);
                lines.push(format!("{class}, {line}"));
                let faults: u64 = blocks.faults.values().sum();
                if faults > 0 {
                    lines.push(format!("{} received blocks malformed", layout.count(faults)));
                }
            }
            (None, _, Some(phy)) => lines.push(format!("PHY {phy}")),
            (None, _, None) => lines.push("no PHY".to_owned()),
        }
        lines.push(format!("URBs in flight: {} in, {} out", self.receive_urbs, self.send_urbs));
        let fill = percent(self.sent_bytes, self.sent_room).unwrap_or_else(|| "–".to_owned());
        lines.push(format!("{} sent, {fill} full", layout.count(self.sent_transfers)));
        lines.push(format!(
            "overflow queue {}, at most {}",
            grouped(self.overflow),
            grouped(self.overflow_most)
        ));
        lines.push(format!("pending {}", grouped(self.pending)));
        let bad = self.bad_transfers + self.bad_requests;
        if bad > 0 {
            lines.push(format!("{} transfers failed", layout.count(bad)));
        }
        let wrong = self.checksum_errors + self.checksum_mismatches;
        if wrong > 0 {
            lines.push(format!("{} packets with wrong checksums passed on", layout.count(wrong)));
        }
        if self.mac_source.as_deref() == Some("random") {
            lines.push(
                "the adapter has no MAC address: set `mac`, or it gets a random one at each start".to_owned(),
            );
        }
        lines
    }

    fn link(&self) -> String {
        link(self.link_mbit, self.full_duplex, (self.pause_transmit, self.pause_receive))
    }
}

#[cfg(test)]
mod tests {
    use super::super::row::Row as _;
    use super::*;

    fn row() -> AdapterRow {
        AdapterRow {
            phy: Some("0007:c132 at 1".to_owned()),
            link_up: true,
            link_mbit: Some(1000),
            full_duplex: Some(true),
            pause_transmit: true,
            receive_urbs: 30,
            send_urbs: 2,
            sent_transfers: 10,
            sent_bytes: 95,
            sent_room: 100,
            overflow_most: 17,
            ..AdapterRow::default()
        }
    }

    #[test]
    fn a_link_and_its_urbs_are_told() {
        assert_eq!(
            row().lines(Layout::PLAIN).join("; "),
            "link 1000 Mbit/s full duplex, sends pause; PHY 0007:c132 at 1; URBs in flight: 30 in, 2 out; \
             10 sent, 95.0 % full; overflow queue 0, at most 17; pending 0"
        );
        let down = AdapterRow { link_up: false, link_mbit: None, ..row() };
        assert!(down.lines(Layout::PLAIN)[0].starts_with("no link") && down.mark(Layout::PLAIN) == "!");
    }

    #[test]
    fn gauges_stay_and_counters_are_compared() {
        let mut now = AdapterRow { sent_transfers: 14, sent_bytes: 98, sent_room: 140, ..row() };
        now.statistics.insert("rx-unicast".to_owned(), 9);
        let mut then = row();
        then.statistics.insert("rx-unicast".to_owned(), 4);
        now.difference(&then);
        assert_eq!((now.sent_transfers, now.sent_bytes, now.sent_room, now.receive_urbs), (4, 3, 40, 30));
        assert_eq!(now.statistics["rx-unicast"], 5);
    }
}
