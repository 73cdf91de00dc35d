//! Rows of a USB adapter in `polder show ports`.

use super::counters::subtract_all;
use super::look::{Look, grouped, percent};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

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
    pub blocks: Option<BlockRow>,
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
    /// Bulk-in URBs in flight.
    pub receive_urbs: u64,
    /// Bulk-out URBs in flight.
    pub send_urbs: u64,
    /// Received transfers that wait for a turn.
    pub waiting_urbs: u64,
    /// Frames in the overflow queue.
    pub overflow: u64,
    /// The most that it has held.
    pub overflow_most: u64,
    /// Packets in the pending queue.
    pub pending: u64,
    /// Bulk-in transfers.
    pub received_transfers: u64,
    /// Bulk-out transfers.
    pub sent_transfers: u64,
    /// Bytes of those, command words included.
    pub sent_bytes: u64,
    /// Bytes that those had room for.
    pub sent_room: u64,
    /// Transfers that ended with an error.
    pub bad_transfers: u64,
    /// Control requests that failed.
    pub bad_requests: u64,
    /// Bytes of received transfers in which no frames could be found.
    pub lost_bytes: u64,
    /// Received frames in which the adapter found a wrong checksum of IP, TCP or UDP.
    pub checksum_errors: u64,
    /// Received frames that the adapter's sum does not fit, though it found nothing wrong.
    pub checksum_mismatches: u64,
    /// The adapter's own counters since it was opened, those that are not zero.
    pub statistics: BTreeMap<String, u64>,
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
    pub received_frames: u64,
    /// Frames in sent ones.
    pub sent_frames: u64,
    /// Received frames with a wrong checksum.
    pub wrong_crc: u64,
    /// Received blocks that could not be read to their end, by reason.
    pub faults: BTreeMap<String, u64>,
}

impl BlockRow {
    fn subtract(&mut self, then: &Self) {
        for (now, then) in [
            (&mut self.received_frames, then.received_frames),
            (&mut self.sent_frames, then.sent_frames),
            (&mut self.wrong_crc, then.wrong_crc),
        ] {
            *now = now.saturating_sub(then);
        }
        subtract_all(&mut self.faults, &then.faults);
    }

    /// Format and sizes, and the mean number of frames in a block each way.
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
    /// Subtracts the counters of an earlier view.
    pub(super) fn subtract(&mut self, then: &Self) {
        let counters = [
            (&mut self.received_transfers, then.received_transfers),
            (&mut self.sent_transfers, then.sent_transfers),
            (&mut self.sent_bytes, then.sent_bytes),
            (&mut self.sent_room, then.sent_room),
            (&mut self.bad_transfers, then.bad_transfers),
            (&mut self.bad_requests, then.bad_requests),
            (&mut self.lost_bytes, then.lost_bytes),
            (&mut self.checksum_errors, then.checksum_errors),
            (&mut self.checksum_mismatches, then.checksum_mismatches),
        ];
        for (now, then) in counters {
            *now = now.saturating_sub(then);
        }
        subtract_all(&mut self.statistics, &then.statistics);
        if let (Some(now), Some(then)) = (&mut self.blocks, &then.blocks) {
            now.subtract(then);
        }
    }

    /// Good or odd, at a glance.
    pub(super) fn mark(&self, look: Look) -> String {
        if self.link_up { look.good("✓") } else { look.odd("!") }
    }

    /// Lines about the adapter, each a few words.
    pub(super) fn lines(&self, look: Look) -> Vec<String> {
        let mut lines = vec![self.link()];
        match (&self.class, &self.blocks, &self.phy) {
            (Some(class), None, _) => lines.push(format!("{class}, a frame in a transfer")),
            (Some(class), Some(blocks), _) => {
                let line = blocks.line(self.received_transfers, self.sent_transfers);
                lines.push(format!("{class}, {line}"));
                let faults: u64 = blocks.faults.values().sum();
                if faults > 0 {
                    lines.push(format!("{} received blocks malformed", look.count(faults)));
                }
            }
            (None, _, Some(phy)) => lines.push(format!("PHY {phy}")),
            (None, _, None) => lines.push("no PHY".to_owned()),
        }
        lines.push(format!("URBs in flight {} in, {} out", self.receive_urbs, self.send_urbs));
        let fill = percent(self.sent_bytes, self.sent_room).unwrap_or_else(|| "–".to_owned());
        lines.push(format!("{} sent, {fill} full", look.count(self.sent_transfers)));
        lines.push(format!("overflow {}, at most {}", grouped(self.overflow), grouped(self.overflow_most)));
        lines.push(format!("pending {}", grouped(self.pending)));
        let bad = self.bad_transfers + self.bad_requests;
        if bad > 0 {
            lines.push(format!("{} transfers failed", look.count(bad)));
        }
        let wrong = self.checksum_errors + self.checksum_mismatches;
        if wrong > 0 {
            lines.push(format!("{} wrong checksums passed on", look.count(wrong)));
        }
        if self.mac_source.as_deref() == Some("random") {
            lines.push(
                "it has no address of its own: set `mac`, or it has another one after each start".to_owned(),
            );
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
            row().lines(Look::PLAIN).join("; "),
            "link 1000 Mbit/s full duplex, sends pause; PHY 0007:c132 at 1; URBs in flight 30 in, 2 out; \
             10 sent, 95.0 % full; overflow 0, at most 17; pending 0"
        );
        let down = AdapterRow { link_up: false, link_mbit: None, ..row() };
        assert!(down.lines(Look::PLAIN)[0].starts_with("no link") && down.mark(Look::PLAIN) == "!");
    }

    #[test]
    fn gauges_stay_and_counters_are_compared() {
        let mut now = AdapterRow { sent_transfers: 14, sent_bytes: 98, sent_room: 140, ..row() };
        now.statistics.insert("rx-unicast".to_owned(), 9);
        let mut then = row();
        then.statistics.insert("rx-unicast".to_owned(), 4);
        now.subtract(&then);
        assert_eq!((now.sent_transfers, now.sent_bytes, now.sent_room, now.receive_urbs), (4, 3, 40, 30));
        assert_eq!(now.statistics["rx-unicast"], 5);
    }
}
