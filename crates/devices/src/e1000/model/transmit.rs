//! The path of descriptors from memory to the wire: gathering data, inserting checksums, segmentation.

use super::super::desc::{
    Context, TX_DATA, TX_DONE, TX_INSERT_IP, TX_INSERT_TRANSPORT, TX_LEGACY_LENGTH, TX_LENGTH, TX_TYPE,
    tx_command,
};
use super::super::regs::{CTRL, TCTL, TDBAH, TDBAL, TDH, TDLEN, TDT, VET, ctrl, icr, tctl};
use super::super::statistics::Statistic;
use super::{Mutant, State, WriteBack};
use polder_datapath::wire::Checksum;

/// Bytes of the FCS.
const FCS: usize = 4;
/// Minimum frame length without the FCS.
const SHORTEST: usize = 60;
/// Bytes of a frame's addresses, which precede a tag.
const ADDRESS_BYTES: usize = 12;
/// TCP flags that only the last segment has: FIN and PSH.
const LAST_FLAGS: u8 = 0x09;

impl State {
    /// Sends the packets of the driver's descriptors.
    pub(super) fn send(&mut self) {
        while self.is_set(TCTL, tctl::ENABLE) && !self.holds_sending && self.link {
            let total = self.registers.get(TDLEN.offset) / 16;
            let [head, tail] = [TDH, TDT].map(|register| self.registers.get(register.offset));
            if head == tail || total == 0 || head >= total || tail >= total {
                return;
            }
            let base = u64::from(self.registers.get(TDBAL.offset))
                | u64::from(self.registers.get(TDBAH.offset)) << 32;
            let place = base + 16 * u64::from(head);
            self.registers.set(TDH.offset, (head + 1) % total);
            let Some(words) = self.space.descriptor(place) else {
                self.dma_faults += 1;
                return;
            };
            self.read_descriptor(words);
            if words[1] & tx_command::REPORT != 0 {
                let word = words[1] | TX_DONE;
                self.report(WriteBack { address: place, word, cause: icr::TX_WRITTEN_BACK });
            }
        }
    }

    fn read_descriptor(&mut self, words: [u64; 2]) {
        let [address, word] = words;
        let is_extended = word & tx_command::EXTENDED != 0;
        if is_extended && word & TX_TYPE != TX_DATA {
            self.context = Context::parse(words);
            return;
        }
        let field = if is_extended { TX_LENGTH } else { TX_LEGACY_LENGTH };
        let length = usize::try_from(word & field).unwrap_or(0);
        match self.space.read(address, length) {
            Some(bytes) => self.sending.extend(bytes),
            None => {
                // Like a bus without an answer: other bytes are sent.
                self.dma_faults += 1;
                self.sending.extend(vec![0; length]);
            }
        }
        if word & tx_command::END != 0 {
            let packet = core::mem::take(&mut self.sending);
            // The options exist in data descriptors only, the tag in both kinds.
            let legacy = word & !(tx_command::SEGMENT | TX_INSERT_IP | TX_INSERT_TRANSPORT);
            self.leave(packet, if is_extended { word } else { legacy });
        }
    }

    /// Sends a complete packet.
    fn leave(&mut self, mut packet: Vec<u8>, mut word: u64) {
        let context = self.context;
        word &= if self.is(Mutant::LeavesChecksum) { !TX_INSERT_TRANSPORT } else { !0 };
        if word & tx_command::SEGMENT != 0 {
            self.registers.count(Statistic::Segmented, 1);
            return self.cut(&packet, word, context);
        }
        put_checksums(&mut packet, word, context, 0);
        self.put_on_wire(packet, word);
    }

    /// Segments a packet (8254x SDM, 3.5).
    fn cut(&mut self, packet: &[u8], word: u64, context: Context) {
        let headers = usize::from(context.headers);
        let Some((head, payload)) = packet.split_at_checked(headers) else { return };
        let payload = &payload[..payload.len().min(context.payload as usize)];
        let size = usize::from(context.segment).max(1);
        let (network, transport) = (usize::from(context.ip_start), usize::from(context.transport_start));
        let chunks = payload.chunks(size).collect::<Vec<_>>();
        for (index, chunk) in chunks.iter().enumerate() {
            let mut segment = [head, chunk].concat();
            let number = u16::try_from(index).unwrap_or(u16::MAX);
            let after_network = segment.len() - network;
            if context.is_ipv4 {
                add_16(&mut segment, network + 2, u16::try_from(after_network).unwrap_or(0));
                add_16(&mut segment, network + 4, number);
            } else {
                add_16(&mut segment, network + 4, u16::try_from(after_network - 40).unwrap_or(0));
            }
            let sequence = transport + 4;
            let before = segment[sequence..sequence + 4].try_into().map_or(0, u32::from_be_bytes);
            let ahead = if self.is(Mutant::KeepsSequence) { 0 } else { index * size };
            let now = before.wrapping_add(u32::try_from(ahead).unwrap_or(0));
            segment[sequence..sequence + 4].copy_from_slice(&now.to_be_bytes());
            if index + 1 < chunks.len() {
                segment[transport + 13] &= !LAST_FLAGS;
            }
            let length = u16::try_from(segment.len() - transport).unwrap_or(0);
            put_checksums(&mut segment, word, context, length);
            self.put_on_wire(segment, word);
        }
    }

    /// Inserts the tag that a descriptor requests (8254x SDM, 9.2).
    fn put_tag(&self, frame: &mut Vec<u8>, word: u64) {
        let is_asked = word & tx_command::VLAN != 0 && self.is_set(CTRL, ctrl::VLAN_MODE);
        let kind = u16::try_from(self.registers.get(VET.offset)).unwrap_or(0).to_be_bytes();
        if is_asked && frame.len() >= ADDRESS_BYTES && !self.is(Mutant::LeavesTagOut) {
            let [.., low, high] = word.to_le_bytes();
            frame.splice(ADDRESS_BYTES..ADDRESS_BYTES, [kind[0], kind[1], high, low]);
        }
    }

    fn put_on_wire(&mut self, mut frame: Vec<u8>, word: u64) {
        self.put_tag(&mut frame, word);
        if self.is_set(TCTL, tctl::PAD_SHORT) && frame.len() < SHORTEST {
            frame.resize(SHORTEST, 0);
        }
        let length = frame.len() + FCS;
        let by_size = match length {
            ..=64 => Statistic::Tx64,
            65..=127 => Statistic::Tx127,
            128..=255 => Statistic::Tx255,
            256..=511 => Statistic::Tx511,
            512..=1023 => Statistic::Tx1023,
            _ => Statistic::TxLonger,
        };
        for statistic in [by_size, Statistic::TxGood, Statistic::TxFrames] {
            self.registers.count(statistic, 1);
        }
        let bytes = if self.is(Mutant::CountsShort) { frame.len() } else { length };
        for statistic in [Statistic::TxGoodBytes, Statistic::TxBytes] {
            self.registers.count(statistic, bytes as u64);
        }
        if frame.starts_with(&[0xff; 6]) {
            self.registers.count(Statistic::TxBroadcast, 1);
        } else if frame.first().is_some_and(|byte| byte & 1 != 0) {
            self.registers.count(Statistic::TxMulticast, 1);
        }
        self.sent.push_back(frame);
    }
}

/// Adds to a 16-bit field, which a driver has set to zero or to a start value.
fn add_16(bytes: &mut [u8], at: usize, amount: u16) {
    let Some(field) = bytes.get_mut(at..at + 2) else { return };
    let sum = u16::from_be_bytes([field[0], field[1]]).wrapping_add(amount);
    field.copy_from_slice(&sum.to_be_bytes());
}

/// Inserts the checksums that a descriptor requests; `length` is added to the transport checksum.
fn put_checksums(frame: &mut [u8], word: u64, context: Context, length: u16) {
    if word & TX_INSERT_IP != 0 {
        let (start, end) = (usize::from(context.ip_start), usize::from(context.ip_end) + 1);
        put_sum(frame, (start, end.min(frame.len())), usize::from(context.ip_field), 0);
    }
    if word & TX_INSERT_TRANSPORT != 0 {
        let (start, end) = (usize::from(context.transport_start), frame.len());
        put_sum(frame, (start, end), usize::from(context.transport_field), length);
    }
}

fn put_sum(frame: &mut [u8], (start, end): (usize, usize), field: usize, length: u16) {
    let Some(bytes) = frame.get(start..end) else { return };
    let sum = Checksum::new().with(&length.to_be_bytes()).with(bytes).finish_nonzero();
    if let Some(field) = frame.get_mut(field..field + 2) {
        field.copy_from_slice(&sum.to_be_bytes());
    }
}
