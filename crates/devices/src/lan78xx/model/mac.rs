//! The MAC and its wire: received frames are padded, filtered, summed and put into the FIFO; sent frames are
//! counted and leave at the speed of the link.

use super::bulk::{Entry, FIFO_BYTES};
use super::filter::tag;
use super::offload::checksum_errors;
use super::{Adapter, Fault};
use crate::lan78xx::frame::{FCS_BYTES, RX_COMMAND_BYTES, RxStatus, rx_a};
use crate::lan78xx::regs::{
    FCT_FLOW, FCT_RX_CTL, FCT_TX_CTL, FLOW, INT_STS, MAC_CR, MAC_RX, MAC_RX_MAX_SIZE_SHIFT, MAC_TX, RFE_CTL,
    fct, flow, int_sts, mac_cr, mac_rx, mac_tx, rfe_ctl,
};
use crate::lan78xx::statistics::Statistic;
use polder_datapath::units::Nanos;
use polder_datapath::wire::Checksum;

/// Minimum frame length without the FCS.
pub(super) const SHORTEST: usize = 60;
/// Bytes on the wire besides the frame: preamble, start, gap.
const WIRE_OVERHEAD: usize = 20;
/// Addresses of pause frames (IEEE 802.3, 31B).
const PAUSE_ADDRESS: [u8; 6] = [0x01, 0x80, 0xc2, 0, 0, 1];
/// EtherType of MAC control and opcode of PAUSE.
const PAUSE: [u8; 4] = [0x88, 0x08, 0, 1];
/// A unit of pause time, in bit times.
const PAUSE_QUANTUM: u64 = 512;
/// Bytes of a block of the FIFO.
const BLOCK: usize = 512;

#[derive(Debug, Default)]
pub(super) struct Mac {
    /// Time at which the last received frame was complete.
    incoming_until: Nanos,
    /// Time at which the last sent frame was complete.
    outgoing_until: Nanos,
    /// End time of the pause that the partner has requested.
    paused_until: Nanos,
    /// True while the partner is asked to pause.
    pausing: bool,
}

impl Adapter {
    /// Returns the earliest start time of another received frame.
    pub fn wire_free_at(&self) -> Nanos {
        self.mac.incoming_until
    }

    /// True if the partner must not send, because it obeys our pause frames.
    pub fn holds_partner(&self) -> bool {
        self.mac.pausing && self.options.partner.pause
    }

    /// Receives a frame (without FCS) from the wire that starts at `start` at the earliest; returns `false`
    /// without a link.
    pub fn wire_in(&mut self, frame: &[u8], start: Nanos) -> bool {
        if !self.has_link() {
            return false;
        }
        if self.options.timing.paced {
            let arrived = start.max(self.mac.incoming_until) + self.wire_time(frame.len());
            self.mac.incoming_until = arrived;
            self.advance(arrived);
        }
        if self.registers.get(MAC_RX) & mac_rx::ENABLE == 0 {
            return true;
        }
        if self.is_pause(frame) {
            return true;
        }
        self.receive(frame);
        true
    }

    fn wire_time(&self, bytes: usize) -> Nanos {
        let bits = (bytes.max(SHORTEST) + FCS_BYTES + WIRE_OVERHEAD) as u64 * 8;
        Nanos(bits * 1000 / self.phy.speed())
    }

    fn is_pause(&mut self, frame: &[u8]) -> bool {
        let is = frame.starts_with(&PAUSE_ADDRESS) && frame.get(12..16) == Some(&PAUSE);
        let Some(&[high, low]) = frame.get(16..18).and_then(|time| time.first_chunk()) else { return false };
        if !is {
            return false;
        }
        self.statistics.add(Statistic::RxPause, 1);
        if self.registers.get(FLOW) & flow::RECEIVE != 0 {
            let bits = u64::from(u16::from_be_bytes([high, low])) * PAUSE_QUANTUM;
            self.mac.paused_until = self.now + Nanos(bits * 1000 / self.phy.speed());
        }
        true
    }

    fn receive(&mut self, frame: &[u8]) {
        let length = frame.len().max(SHORTEST) + FCS_BYTES;
        let longest = (self.registers.get(MAC_RX) & mac_rx::MAX_SIZE) >> MAC_RX_MAX_SIZE_SHIFT;
        if length > longest as usize {
            self.statistics.add(Statistic::RxOversize, 1);
            return;
        }
        let Some(bits) = self.accepts(frame) else { return };
        self.count_received(bits, length);
        let enabled = self.registers.get(FCT_RX_CTL) & fct::ENABLE != 0;
        let needed = (RX_COMMAND_BYTES + length).next_multiple_of(4);
        if self.bulk.receive_used + needed > FIFO_BYTES {
            // Between back-to-back frames the bus gets its turn.
            self.run_bulk_in();
        }
        if !enabled || self.bulk.receive_used + needed > FIFO_BYTES {
            self.statistics.add(Statistic::RxDropped, 1);
            if enabled {
                let control = self.registers.get(FCT_RX_CTL) | fct::OVERFLOW;
                self.registers.set(FCT_RX_CTL, control);
                let causes = self.registers.get(INT_STS) | int_sts::RX_OVERFLOW;
                self.registers.set(INT_STS, causes);
            }
            return;
        }
        let entry = self.describe(frame, bits);
        self.bulk.push_received(Entry { bytes: entry, arrived: self.now });
        self.watch_level();
    }

    /// Returns the frame as stored in the FIFO: command words, bytes, FCS.
    fn describe(&mut self, frame: &[u8], bits: u32) -> Vec<u8> {
        let control = self.registers.get(RFE_CTL);
        let tag = tag(frame);
        let strips = tag.is_some() && control & rfe_ctl::VLAN_STRIP != 0;
        let mut bytes = self.bulk.spare();
        bytes.extend([0; RX_COMMAND_BYTES]);
        if strips {
            bytes.extend_from_slice(&frame[..12]);
            bytes.extend_from_slice(&frame[16..]);
        } else {
            bytes.extend_from_slice(frame);
        }
        let header = if tag.is_some() && !strips { 18 } else { 14 };
        // Bytes that the sender's MAC put on the wire. Removing a tag leaves the padding.
        let shortest = SHORTEST - if strips { 4 } else { 0 };
        bytes.resize(bytes.len().max(RX_COMMAND_BYTES + shortest), 0);
        let payload = &bytes[RX_COMMAND_BYTES + header..];
        let sums = control & (rfe_ctl::TRANSPORT_CHECKSUM | rfe_ctl::IP_CHECKSUM) != 0;
        let mut sum = Checksum::new().with(payload).partial();
        if self.options.faulty.wrong_checksum || self.take_fault(|f| matches!(f, Fault::Checksum)).is_some() {
            sum = sum.wrapping_add(0x1234);
        }
        let fcs = crc32(&bytes[RX_COMMAND_BYTES..]).to_le_bytes();
        bytes.extend(fcs);
        let mut length = bytes.len() - RX_COMMAND_BYTES;
        if self.options.faulty.length_without_fcs {
            length -= FCS_BYTES;
        }
        if let Some(Fault::Length(lie)) = self.take_fault(|f| matches!(f, Fault::Length(_))) {
            length = usize::from(lie);
        }
        let mut status = RxStatus { a: bits | word(length) & rx_a::LENGTH, b: 0, c: 0 };
        status.b = u32::from(if sums { sum } else { 0 }) << 16 | u32::from(tag.unwrap_or(0));
        status.a |= if sums { 0 } else { rx_a::IGNORE_CHECKSUM };
        status.a |= checksum_errors(frame, control);
        status.a |= if tag.is_some() { rx_a::VLAN } else { 0 };
        if let Some(Fault::ErrorBits(errors)) = self.take_fault(|f| matches!(f, Fault::ErrorBits(_))) {
            status.a |= errors & rx_a::ERRORS;
        }
        let words = if self.options.faulty.big_endian {
            RxStatus { a: status.a.swap_bytes(), b: status.b.swap_bytes(), c: status.c.swap_bytes() }
        } else {
            status
        };
        bytes[..RX_COMMAND_BYTES].copy_from_slice(&words.write());
        bytes
    }

    /// Flow control: requests a pause above one level of the FIFO, and ends it below another.
    pub(super) fn watch_level(&mut self) {
        if self.registers.get(FLOW) & flow::TRANSMIT == 0 {
            self.mac.pausing = false;
            return;
        }
        let levels = self.registers.get(FCT_FLOW);
        let (begin, end) = ((levels & 0x7f) as usize * BLOCK, (levels >> 8 & 0x7f) as usize * BLOCK);
        let used = self.bulk.receive_used;
        let pausing = if self.mac.pausing { used > end } else { begin > 0 && used >= begin };
        if pausing != self.mac.pausing {
            self.statistics.add(Statistic::TxPause, 1);
        }
        self.mac.pausing = pausing;
    }

    /// Returns the next frame (without FCS) that is completely sent by now, if any.
    pub fn wire_out(&mut self) -> Option<Vec<u8>> {
        let enabled = self.registers.get(MAC_TX) & mac_tx::ENABLE != 0
            && self.registers.get(FCT_TX_CTL) & fct::ENABLE != 0;
        if !enabled || !self.has_link() || self.mac.paused_until > self.now {
            return None;
        }
        let entry = self.bulk.transmit.front()?;
        if self.options.timing.paced {
            let begin = self.mac.outgoing_until.max(entry.arrived);
            let end = begin + self.wire_time(entry.bytes.len());
            if end > self.now {
                return None;
            }
            self.mac.outgoing_until = end;
        }
        let frame = self.bulk.pop_transmit()?;
        self.count_sent(&frame);
        // Room in the FIFO lets the bus continue.
        self.run_bulk_out();
        if self.registers.get(MAC_CR) & mac_cr::LOOPBACK != 0 {
            self.receive(&frame);
            return self.wire_out();
        }
        Some(frame)
    }

    /// Returns the time of the next event of the wire.
    pub(super) fn wire_event(&self) -> Option<Nanos> {
        let entry = self.bulk.transmit.front()?;
        if !self.options.timing.paced {
            return Some(self.mac.paused_until);
        }
        let begin = self.mac.outgoing_until.max(entry.arrived).max(self.mac.paused_until);
        Some(begin + self.wire_time(entry.bytes.len()))
    }

    fn count_received(&mut self, bits: u32, length: usize) {
        let (frames, bytes) = if bits & rx_a::BROADCAST != 0 {
            (Statistic::RxBroadcast, Statistic::RxBroadcastBytes)
        } else if bits & rx_a::MULTICAST != 0 {
            (Statistic::RxMulticast, Statistic::RxMulticastBytes)
        } else {
            (Statistic::RxUnicast, Statistic::RxUnicastBytes)
        };
        self.statistics.add(frames, 1);
        self.statistics.add(bytes, word(length));
        self.statistics.add(size_class(Statistic::Rx64, length), 1);
    }

    fn count_sent(&mut self, frame: &[u8]) {
        let length = frame.len() + FCS_BYTES;
        let (frames, bytes) = if frame.starts_with(&[0xff; 6]) {
            (Statistic::TxBroadcast, Statistic::TxBroadcastBytes)
        } else if frame[0] & 1 == 1 {
            (Statistic::TxMulticast, Statistic::TxMulticastBytes)
        } else {
            (Statistic::TxUnicast, Statistic::TxUnicastBytes)
        };
        self.statistics.add(frames, 1);
        self.statistics.add(bytes, word(length));
        self.statistics.add(size_class(Statistic::Tx64, length), 1);
    }
}

/// Returns the counter of frames of that length; the first class is `first`.
fn size_class(first: Statistic, length: usize) -> Statistic {
    let class = [64, 127, 255, 511, 1023, 1518].iter().take_while(|&&limit| length > limit).count();
    Statistic::ALL[first as usize + class]
}

fn word(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

/// Returns the CRC-32 of a frame (IEEE 802.3, 3.2.9), eight bytes per step.
pub(super) fn crc32(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    let (blocks, rest) = bytes.as_chunks::<8>();
    for block in blocks {
        let word = u64::from_le_bytes(*block) ^ u64::from(crc);
        crc = (0..8).fold(0, |sum, at| sum ^ TABLES[7 - at][(word >> (8 * at) & 0xff) as usize]);
    }
    for byte in rest {
        crc = crc >> 8 ^ TABLES[0][((crc ^ u32::from(*byte)) & 0xff) as usize];
    }
    !crc
}

/// `TABLES[n][byte]`: the sum of a byte followed by n zeros.
static TABLES: [[u32; 256]; 8] = tables();

const fn tables() -> [[u32; 256]; 8] {
    let mut tables = [[0_u32; 256]; 8];
    let mut byte = 0;
    let mut value = 0;
    while byte < 256 {
        let mut sum: u32 = value;
        let mut bit = 0;
        while bit < 8 {
            sum = sum >> 1 ^ if sum & 1 == 1 { 0xedb8_8320 } else { 0 };
            bit += 1;
        }
        tables[0][byte] = sum;
        byte += 1;
        value += 1;
    }
    let mut behind = 1;
    while behind < 8 {
        let mut byte = 0;
        while byte < 256 {
            let before = tables[behind - 1][byte];
            tables[behind][byte] = before >> 8 ^ tables[0][(before & 0xff) as usize];
            byte += 1;
        }
        behind += 1;
    }
    tables
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crc_of_the_usual_check() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
        assert_eq!(crc32(&[b"123456789".as_slice(), &[0; 7]].concat()), {
            let whole = [b"123456789".as_slice(), &[0; 7]].concat();
            let mut crc = u32::MAX;
            for byte in whole {
                crc = crc >> 8 ^ TABLES[0][((crc ^ u32::from(byte)) & 0xff) as usize];
            }
            !crc
        });
    }

    #[test]
    fn classes_of_sizes() {
        for (length, class) in [
            (64, Statistic::Rx64),
            (65, Statistic::Rx127),
            (127, Statistic::Rx127),
            (128, Statistic::Rx255),
            (1518, Statistic::Rx1518),
            (1519, Statistic::RxLonger),
        ] {
            assert_eq!(size_class(Statistic::Rx64, length), class);
        }
    }
}
