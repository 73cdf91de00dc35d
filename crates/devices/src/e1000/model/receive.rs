//! The path of a frame from the wire to memory: filter, packet buffer, descriptors.

use super::super::desc::{RxWord, rx_error, rx_status};
use super::super::init::hash;
use super::super::regs::{
    ADDRESS_VALID, ADDRESSES, CTRL, MTA, PBA, RAH, RAL, RCTL, RCTL_SIZE_SHIFT, RDBAH, RDBAL, RDH, RDLEN, RDT,
    RXCSUM, VET, VFTA, ctrl, icr, rctl, rxcsum,
};
use super::super::statistics::Statistic;
use super::{Fault, Mutant, State, WriteBack};
use polder_datapath::wire::{EtherType, IpProtocol, Ipv4, Ipv6, Pseudo, Tcp, Udp};

/// Bytes of the FCS.
const FCS: usize = 4;
/// Maximum frame length, FCS included, of a device that accepts no long frames; and of one that does.
const SHORT: usize = 1522;
const LONG: usize = 16_384;
/// End offsets of a frame's addresses, and of its EtherType.
const ADDRESS_BYTES: usize = 12;
const ETHERNET: usize = 14;

impl State {
    /// Handles a frame from the wire.
    pub(super) fn receive(&mut self, frame: &[u8]) {
        if !self.link || !self.is_set(RCTL, rctl::ENABLE) || !self.passes(frame) {
            return;
        }
        let length = frame.len() + FCS;
        let limit = if self.is_set(RCTL, rctl::LONG) { LONG } else { SHORT };
        if length > limit {
            return self.registers.count(Statistic::Oversize, 1);
        }
        let room = self.registers.get(PBA.offset) as usize * 1024;
        if self.fifo_bytes + length > room {
            self.registers.count(Statistic::Missed, u64::from(!self.is(Mutant::ForgetsMissed)));
            return self.cause(icr::RX_OVERRUN);
        }
        self.count_received(frame);
        self.fifo_bytes += length;
        self.fifo.push_back(frame.to_vec());
        self.fill();
        // It waits in the packet buffer.
        self.registers.count(Statistic::NoDescriptor, u64::from(!self.fifo.is_empty()));
    }

    /// True if a frame passes the filters.
    fn passes(&self, frame: &[u8]) -> bool {
        let is_whole = frame.len() >= ADDRESS_BYTES;
        is_whole && (self.is(Mutant::AcceptsAll) || self.accepts(frame) && self.is_member(frame))
    }

    /// True for a frame without a tag, and for a frame of an enabled VLAN (8254x SDM, 13.5.4).
    fn is_member(&self, frame: &[u8]) -> bool {
        let Some(tag) = self.tag(frame).filter(|_| self.is_set(RCTL, rctl::VLAN_FILTER)) else { return true };
        let word = self.registers.get(VFTA.behind(u32::from(tag >> 5 & 0x7f)).offset);
        word >> (tag & 31) & 1 != 0
    }

    /// Returns the tag of a frame, if it has the driver's tag type.
    fn tag(&self, frame: &[u8]) -> Option<u16> {
        let kind = u16::try_from(self.registers.get(VET.offset)).ok()?.to_be_bytes();
        let is_tagged = frame.get(ADDRESS_BYTES..ETHERNET)? == kind;
        let tag = frame.get(ETHERNET..ETHERNET + 2)?.try_into().ok()?;
        is_tagged.then_some(u16::from_be_bytes(tag))
    }

    /// True if a frame passes the address filter (8254x SDM, 3.2.2).
    fn accepts(&self, frame: &[u8]) -> bool {
        let Some(&mac) = frame.first_chunk::<6>() else { return false };
        if mac == [0xff; 6] {
            return self.is_set(RCTL, rctl::BROADCAST);
        }
        let [a, b, c, d, e, f] = mac;
        let words = [u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, 0, 0]) | ADDRESS_VALID];
        let is_station = (0..ADDRESSES)
            .any(|index| [RAL, RAH].map(|half| self.registers.get(half.behind(2 * index).offset)) == words);
        if mac[0] & 1 == 0 {
            return is_station || self.is_set(RCTL, rctl::ALL_UNICAST);
        }
        let bit = hash(mac);
        let word = self.registers.get(MTA.behind(u32::from(bit >> 5)).offset);
        is_station || self.is_set(RCTL, rctl::ALL_MULTICAST) || word >> (bit & 31) & 1 != 0
    }

    fn count_received(&mut self, frame: &[u8]) {
        let length = frame.len() + FCS;
        let bytes = length as u64;
        let by_size = match length {
            ..=64 => Statistic::Rx64,
            65..=127 => Statistic::Rx127,
            128..=255 => Statistic::Rx255,
            256..=511 => Statistic::Rx511,
            512..=1023 => Statistic::Rx1023,
            _ => Statistic::RxLonger,
        };
        for statistic in [by_size, Statistic::RxGood, Statistic::RxFrames] {
            self.registers.count(statistic, 1);
        }
        for statistic in [Statistic::RxGoodBytes, Statistic::RxBytes] {
            self.registers.count(statistic, bytes);
        }
        if frame.starts_with(&[0xff; 6]) {
            self.registers.count(Statistic::RxBroadcast, 1);
        } else if frame[0] & 1 != 0 {
            self.registers.count(Statistic::RxMulticast, 1);
        }
    }

    /// Moves frames from the packet buffer to memory while there are descriptors.
    pub(super) fn fill(&mut self) {
        while self.is_set(RCTL, rctl::ENABLE)
            && let Some(frame) = self.fifo.front()
        {
            let total = self.registers.get(RDLEN.offset) / 16;
            let [head, tail] = [RDH, RDT].map(|register| self.registers.get(register.offset));
            if total == 0 || head >= total || tail >= total {
                return;
            }
            let needed = u32::try_from((frame.len() + FCS).div_ceil(self.buffer_bytes())).unwrap_or(u32::MAX);
            let free = (tail + total - head) % total;
            if needed > free {
                return;
            }
            let Some(frame) = self.fifo.pop_front() else { return };
            self.fifo_bytes -= frame.len() + FCS;
            let cause = if free - needed < total / 4 { icr::RX_TIMER | icr::RX_LOW } else { icr::RX_TIMER };
            self.store(frame, (head, total), cause);
        }
    }

    /// Returns the receive buffer size set by the driver, in bytes.
    fn buffer_bytes(&self) -> usize {
        let control = self.registers.get(RCTL.offset);
        let bytes = 2048 >> ((control & rctl::SIZE) >> RCTL_SIZE_SHIFT);
        if control & rctl::SIZE_EXTENSION != 0 { bytes * 16 } else { bytes }
    }

    fn store(&mut self, mut frame: Vec<u8>, (mut head, total): (u32, u32), cause: u32) {
        let (status, errors) = self.checksums(&frame);
        if let Some(byte) = frame.last_mut().filter(|_| self.is(Mutant::ChangesByte)) {
            *byte ^= 1;
        }
        let (tag, status) = match self.take_tag(&mut frame) {
            Some(tag) => (tag, status | rx_status::VLAN),
            None => (0, status),
        };
        if !self.is_set(RCTL, rctl::STRIP_FCS) {
            frame.extend([0xfc; FCS]);
        }
        let base =
            u64::from(self.registers.get(RDBAL.offset)) | u64::from(self.registers.get(RDBAH.offset)) << 32;
        let fault = self.faults.pop_front();
        let parts = frame.chunks(self.buffer_bytes()).collect::<Vec<_>>();
        for (index, part) in (1..).zip(&parts) {
            let place = base + 16 * u64::from(head);
            head = (head + 1) % total;
            let written =
                self.space.descriptor(place).is_some_and(|[address, _]| self.space.write(address, part));
            self.dma_faults += u64::from(!written);
            let length = u16::try_from(part.len()).unwrap_or(u16::MAX);
            let mut word = RxWord::new(length, rx_status::DONE, 0, 0);
            let is_last = index == parts.len();
            if is_last {
                word = RxWord::new(length, status | rx_status::DONE | rx_status::END, errors, tag);
                word = self.spoil(word, fault, place);
            }
            let cause = if is_last { cause } else { 0 };
            self.report(WriteBack { address: place, word: word.0, cause });
        }
        self.registers.set(RDH.offset, head);
    }

    fn spoil(&mut self, word: RxWord, fault: Option<Fault>, place: u64) -> RxWord {
        match fault {
            None => word,
            Some(Fault::Length(length)) => RxWord::new(length, word.status(), word.errors(), word.tag()),
            Some(Fault::Errors(errors)) => RxWord::new(word.length(), word.status(), errors, word.tag()),
            Some(Fault::Status(status)) => RxWord::new(word.length(), status, word.errors(), word.tag()),
            Some(Fault::ForeignBuffer(address)) => {
                self.space.store(place, address);
                word
            }
        }
    }

    /// Removes the tag of a frame, if the driver has enabled that.
    fn take_tag(&self, frame: &mut Vec<u8>) -> Option<u16> {
        let tag = self.tag(frame).filter(|_| self.is_set(CTRL, ctrl::VLAN_MODE))?;
        frame.drain(ADDRESS_BYTES..ETHERNET + 2);
        Some(tag)
    }

    /// Returns status and error bits for a frame's checksums.
    fn checksums(&self, frame: &[u8]) -> (u8, u8) {
        let control = self.registers.get(RXCSUM.offset);
        let Some(checked) = check(frame) else { return (rx_status::NO_CHECKSUM, 0) };
        let (mut status, mut errors) = (0, 0);
        if let Some(is_right) = checked.ip.filter(|_| control & rxcsum::IP != 0) {
            status |= rx_status::IP;
            errors |= if is_right { 0 } else { rx_error::IP };
        }
        if let Some(is_right) = checked.transport.filter(|_| control & rxcsum::TRANSPORT != 0) {
            status |= rx_status::TRANSPORT;
            let passes = is_right || self.is(Mutant::PassesChecksums);
            errors |= if passes { 0 } else { rx_error::TRANSPORT };
        }
        (status, errors)
    }
}

/// Results for a frame's checksums: `true` for a right one, `None` for a missing one.
struct Checked {
    ip: Option<bool>,
    transport: Option<bool>,
}

fn check(frame: &[u8]) -> Option<Checked> {
    let kind = |at: usize| Some(EtherType(u16::from_be_bytes(frame.get(at..at + 2)?.try_into().ok()?)));
    let start = if kind(ADDRESS_BYTES)? == EtherType::VLAN { ETHERNET + 4 } else { ETHERNET };
    let packet = frame.get(start..)?;
    match kind(start - 2)? {
        EtherType::IPV4 => {
            let ip = Ipv4::parse(packet).ok()?;
            let transport = (!ip.is_fragment()).then(|| transport(ip.protocol(), ip.pseudo(), ip.payload()));
            Some(Checked { ip: Some(ip.verify().is_ok()), transport: transport.flatten() })
        }
        EtherType::IPV6 => {
            let ip = Ipv6::parse(packet).ok()?;
            let transport = transport(ip.next_header(), ip.pseudo(), ip.payload());
            Some(Checked { ip: None, transport })
        }
        _ => None,
    }
}

fn transport(protocol: IpProtocol, pseudo: Pseudo, message: &[u8]) -> Option<bool> {
    match protocol {
        IpProtocol::TCP => Some(Tcp::parse(message).ok()?.verify(pseudo).is_ok()),
        IpProtocol::UDP => Some(Udp::parse(message).ok()?.verify(pseudo).is_ok()),
        _ => None,
    }
}
