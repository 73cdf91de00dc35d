//! A CDC network function in software: descriptors, requests, notifications, blocks.
//!
//! | file | models |
//! |---|---|
//! | `encode` | blocks to the host, of any form that the specification allows |
//! | `decode` | blocks from the host, with a list of deviations from the specification or the device's parameters |
//! | `describe` | descriptors |
//! | `control` | endpoint 0 |
//! | `bus` | incoming and outgoing transfers |
//! | `options` `faulty` | properties, permanent faults |
//!
//! Neither `encode` nor `decode` uses code of the driver. [`Device`] has no clock and no threads.

mod bus;
mod control;
mod decode;
mod describe;
mod encode;
mod faulty;
mod options;

pub use decode::{Expected, Violation, decode};
pub use encode::{Style, encode};
pub use options::{Fault, FaultyDevice, Options};

use super::descriptor::Subclass;
use super::mbim::model::Modem;
use crate::usb::{Completion, Status, Urb};
use polder_datapath::units::Nanos;
use std::collections::VecDeque;

/// Address of the interrupt endpoint, for notifications.
pub const NOTIFY: u8 = 0x82;
/// Address of the bulk-in endpoint.
pub const BULK_IN: u8 = 0x81;
/// Address of the bulk-out endpoint.
pub const BULK_OUT: u8 = 0x01;
/// Maximum number of frames that wait for the host; more are lost.
const QUEUE: usize = 4096;

/// One device.
#[derive(Debug)]
pub struct Device {
    options: Options,
    configured: bool,
    /// Alternate setting of the data interface.
    setting: u8,
    /// True for 32-bit fields.
    wide: bool,
    crc: bool,
    in_bytes: u32,
    filter: Option<u16>,
    link: bool,
    halted_in: bool,
    halted_out: bool,
    sequence: u16,
    expected: Option<u16>,
    receiving: VecDeque<Urb>,
    interrupts: VecDeque<Urb>,
    notifications: VecDeque<Vec<u8>>,
    /// Number of notifications that the host has received.
    notified: u64,
    /// Time of their next repetition.
    repeats_at: Nanos,
    to_host: VecDeque<Vec<u8>>,
    to_wire: VecDeque<Vec<u8>>,
    lost: u64,
    completions: VecDeque<Completion>,
    faults: VecDeque<Fault>,
    violations: Vec<Violation>,
    blocks: u64,
    blocks_to_host: u64,
    plugged: bool,
    /// Alternate setting of the control interface.
    half: u8,
    modem: Modem,
}

impl Device {
    /// Creates a device that has just been plugged in.
    pub fn new(options: Options) -> Self {
        Self {
            configured: false,
            setting: 0,
            wide: false,
            crc: false,
            in_bytes: options.parameters.in_bytes,
            filter: None,
            link: options.link,
            halted_in: false,
            halted_out: false,
            sequence: 0,
            expected: None,
            receiving: VecDeque::new(),
            interrupts: VecDeque::new(),
            notifications: VecDeque::new(),
            notified: 0,
            repeats_at: Nanos(0),
            to_host: VecDeque::new(),
            to_wire: VecDeque::new(),
            lost: 0,
            completions: VecDeque::new(),
            faults: VecDeque::new(),
            violations: Vec::new(),
            blocks: 0,
            blocks_to_host: 0,
            plugged: true,
            half: 0,
            modem: Modem::new(options.modem.clone()),
            options,
        }
    }

    /// Returns the properties of the function.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Returns the modem of an MBIM function.
    pub fn modem(&mut self) -> &mut Modem {
        &mut self.modem
    }

    /// Returns the host's deviations from the specification or from the device's parameters.
    pub fn violations(&self) -> &[Violation] {
        &self.violations
    }

    /// Returns the values set by the host: true for 32-bit fields, true for checksums, and bytes of a block
    /// to the host.
    pub fn negotiated(&self) -> (bool, bool, u32) {
        (self.wide, self.crc, self.in_bytes)
    }

    /// Returns the packet filter set by the host.
    pub fn filter(&self) -> Option<u16> {
        self.filter
    }

    /// Returns the alternate setting of the data interface.
    pub fn setting(&self) -> u8 {
        self.setting
    }

    /// Returns the number of blocks, or ECM frames, from the host.
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Returns the number of blocks, or ECM frames, to the host.
    pub fn blocks_to_host(&self) -> u64 {
        self.blocks_to_host
    }

    /// Returns the number of notifications that the host has received.
    pub fn notified(&self) -> u64 {
        self.notified
    }

    /// Returns the number of frames from the wire that found no room.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Plans a fault for the next matching transfer.
    pub fn plan(&mut self, fault: Fault) {
        self.faults.push_back(fault);
    }

    /// Sets the link, and notifies the host.
    pub fn set_link(&mut self, up: bool) {
        self.link = up;
        self.notify();
    }

    fn take_fault(&mut self, kind: impl Fn(&Fault) -> bool) -> Option<Fault> {
        let at = self.faults.iter().position(kind)?;
        self.faults.remove(at)
    }

    fn has_data(&self) -> bool {
        self.configured && self.setting == self.data_setting()
    }

    fn is_mbim(&self) -> bool {
        self.options.subclass == Subclass::Mbim
    }

    /// Returns the alternate setting of the data interface for the subclass.
    fn data_setting(&self) -> u8 {
        if self.is_mbim() && self.options.modem.is_dual { 2 } else { 1 }
    }

    /// Announces the modem's answers to the host.
    fn announce(&mut self) {
        for _ in 0..self.modem.take_announced() {
            self.notifications.push_back(vec![0xa1, 1, 0, 0, 0, 0, 0, 0]);
        }
    }

    /// Queues the notifications of the link state.
    fn notify(&mut self) {
        if !self.has_data() || self.options.is_silent || self.is_mbim() {
            return;
        }
        let half = u32::from(self.has(FaultyDevice::HalfSpeed));
        let speed = (self.options.bits_per_second >> half).to_le_bytes();
        let link = self.link && !self.has(FaultyDevice::NoConnection);
        let change = [0xa1, 0x2a, 0, 0, 0, 0, 8, 0];
        if self.options.splits_notifications {
            self.notifications.push_back(change.to_vec());
            self.notifications.push_back([speed, speed].concat());
        } else {
            self.notifications.push_back([&change[..], &speed, &speed].concat());
        }
        self.notifications.push_back(vec![0xa1, 0, u8::from(link), 0, 0, 0, 0, 0]);
    }

    fn finish(&mut self, urb: Urb, status: Status, actual: usize) {
        self.completions.push_back(Completion { urb, status, actual });
    }

    fn run_interrupts(&mut self) {
        while !self.notifications.is_empty() || self.faults.iter().any(is_notification) {
            let Some(mut urb) = self.interrupts.pop_front() else { return };
            let fault = self.take_fault(is_notification);
            let bytes = match fault {
                Some(Fault::Notification(bytes)) => bytes,
                _ => self.notifications.pop_front().unwrap_or_default(),
            };
            let count = bytes.len().min(urb.length);
            urb.buffer.bytes_mut()[..count].copy_from_slice(&bytes[..count]);
            self.notified += 1;
            self.finish(urb, Status::Done, count);
        }
    }

    /// Queues the notifications of the link again, if due and if the host has received the last ones.
    fn repeat(&mut self, now: Nanos) {
        let Some(interval) = self.options.repeats.filter(|_| now >= self.repeats_at) else { return };
        self.repeats_at = now + interval;
        if self.notifications.is_empty() {
            self.notify();
        }
    }

    fn run_bulk_in(&mut self) {
        while self.has_data() && !self.receiving.is_empty() {
            let is_planned = self.faults.iter().any(is_of_bulk_in);
            if self.to_host.is_empty() && !is_planned {
                return;
            }
            let Some(urb) = self.receiving.pop_front() else { return };
            if self.halted_in || self.take_fault(|fault| *fault == Fault::StallIn).is_some() {
                self.halted_in = true;
                self.finish(urb, Status::Stall, 0);
                continue;
            }
            self.send(urb);
        }
    }

    /// Fills a bulk-in URB.
    fn send(&mut self, mut urb: Urb) {
        let bytes = self.next_transfer(urb.length);
        self.blocks_to_host += 1;
        let Some(mut bytes) = self.spoil(bytes) else { return self.receiving.push_front(urb) };
        match self.take_fault(is_of_bulk_in) {
            Some(Fault::Replace(other)) => bytes = other,
            Some(Fault::Corrupt { at, bits }) if !bytes.is_empty() => {
                let length = bytes.len();
                bytes[at % length] ^= bits;
            }
            Some(Fault::Cut(length)) => bytes.truncate(length),
            Some(Fault::Oversized) => return self.finish_oversized(urb),
            _ => {}
        }
        if bytes.len() > urb.length {
            return self.finish(urb, Status::Babble, 0);
        }
        urb.buffer.bytes_mut()[..bytes.len()].copy_from_slice(&bytes);
        let count = bytes.len();
        self.finish(urb, Status::Done, count);
    }

    fn finish_oversized(&mut self, urb: Urb) {
        let claimed = urb.length + 1000;
        self.finish(urb, Status::Done, claimed);
    }

    /// Returns the bytes of the next transfer to the host.
    fn next_transfer(&mut self, room: usize) -> Vec<u8> {
        if self.options.subclass == Subclass::Ecm {
            return self.to_host.pop_front().unwrap_or_default();
        }
        let limit = (self.in_bytes as usize).min(room);
        let mut style = self.style();
        if self.is_mbim() {
            return self.next_packets(limit, &mut style);
        }
        let mut frames: Vec<Vec<u8>> = Vec::new();
        while frames.len() < self.options.frames_per_block {
            let Some(frame) = self.to_host.pop_front() else { break };
            frames.push(frame);
            if encode(&frames, &style).len() > limit {
                self.to_host.extend(frames.pop());
                self.to_host.rotate_right(1);
                break;
            }
        }
        self.sequence = self.sequence.wrapping_add(1);
        if frames.is_empty() {
            // The frame would never fit a block.
            self.lost += u64::from(self.to_host.pop_front().is_some());
        }
        encode(&frames, &style)
    }

    /// Returns a block with the packets of one session.
    fn next_packets(&mut self, limit: usize, style: &mut Style) -> Vec<u8> {
        let mut packets: Vec<Vec<u8>> = Vec::new();
        while packets.len() < self.options.frames_per_block {
            let Some((session, packet)) = self.to_host.front().and_then(|frame| packet_in(frame)) else {
                break;
            };
            if style.session.is_some_and(|other| other != session) {
                break;
            }
            style.session = Some(session);
            packets.push(packet.to_vec());
            if encode(&packets, style).len() > limit {
                packets.pop();
                break;
            }
            self.to_host.pop_front();
        }
        self.sequence = self.sequence.wrapping_add(1);
        style.session = style.session.or(Some(0));
        if packets.is_empty() {
            // The packet would never fit a block.
            self.lost += u64::from(self.to_host.pop_front().is_some());
        }
        encode(&packets, style)
    }

    /// Returns the negotiated form of blocks.
    fn style(&self) -> Style {
        let parameters = &self.options.parameters;
        Style {
            wide: self.wide,
            crc: self.crc,
            sequence: self.sequence,
            divisor: usize::from(parameters.in_divisor),
            remainder: usize::from(parameters.in_remainder),
            alignment: usize::from(parameters.in_alignment),
            ..self.options.style
        }
    }

    /// Handles a bulk-out URB.
    fn take(&mut self, urb: Urb) {
        if self.halted_out || self.take_fault(|fault| *fault == Fault::StallOut).is_some() {
            (self.halted_out, self.expected) = (true, None);
            return self.finish(urb, Status::Stall, 0);
        }
        if let Some((status, actual)) = self.ends_early(urb.length) {
            self.expected = None;
            return self.finish(urb, status, actual);
        }
        let (length, zero_packet) = (urb.length, urb.zero_packet);
        let bytes = urb.buffer.bytes()[..length].to_vec();
        self.finish(urb, Status::Done, length);
        self.blocks += 1;
        if self.options.subclass == Subclass::Ecm {
            if length.is_multiple_of(self.options.speed.bulk_packet()) && !zero_packet {
                self.violations.push(Violation::NoShortPacket);
            }
            return self.pass_on(bytes);
        }
        let parameters = &self.options.parameters;
        let ends = length == parameters.out_bytes as usize || zero_packet;
        if length.is_multiple_of(self.options.speed.bulk_packet()) && !ends {
            self.violations.push(Violation::NoShortPacket);
        }
        let is_mbim = self.is_mbim();
        let expected = Expected { parameters, wide: self.wide, has_crc: self.crc, is_mbim };
        match decode(&bytes, &expected, &mut self.expected) {
            Ok((_, frames)) if !is_mbim => frames.into_iter().for_each(|frame| self.pass_on(frame)),
            Ok((session, packets)) => {
                packets.into_iter().for_each(|packet| self.pass_packet(session, &packet))
            }
            Err(violation) => self.violations.push(violation),
        }
    }

    /// Returns status and bytes of the next transfer of `length` bytes from the host, if a fault ends it.
    fn ends_early(&mut self, length: usize) -> Option<(Status, usize)> {
        match self.take_fault(|fault| matches!(fault, Fault::ErrorOut(_) | Fault::ShortOut(_))) {
            Some(Fault::ErrorOut(bytes)) => Some((Status::Error, bytes.min(length))),
            Some(Fault::ShortOut(bytes)) if bytes < length => Some((Status::Done, bytes)),
            _ => None,
        }
    }

    /// Passes a packet of a session to the network.
    fn pass_packet(&mut self, session: u8, packet: &[u8]) {
        if packet.len() > usize::from(self.options.longest) {
            return self.violations.push(Violation::DatagramLong);
        }
        if !self.modem.is_active(session) {
            return self.violations.push(Violation::Session(session));
        }
        let [to, from] = self.options.modem.wire;
        let mut frame = [to, from].concat();
        if session != 0 {
            frame.extend([0x81, 0, 0, session]);
        }
        frame.extend(if packet.first().is_some_and(|byte| byte >> 4 == 6) { [0x86, 0xdd] } else { [8, 0] });
        frame.extend(packet);
        self.to_wire.push_back(frame);
    }

    fn pass_on(&mut self, mut frame: Vec<u8>) {
        if self.has(FaultyDevice::ChangedFrames)
            && let Some(last) = frame.last_mut()
        {
            *last ^= 0x10;
        }
        if frame.len() > usize::from(self.options.longest) {
            self.violations.push(Violation::DatagramLong);
        } else {
            self.to_wire.push_back(frame);
        }
    }
}

/// Returns session and IP packet of a frame of the wire; `None` if it has no IP packet of a session.
fn packet_in(frame: &[u8]) -> Option<(u8, &[u8])> {
    match frame.get(12..)? {
        [8, 0, packet @ ..] | [0x86, 0xdd, packet @ ..] => Some((0, packet)),
        [0x81, 0, high, session, 8, 0, packet @ ..] | [0x81, 0, high, session, 0x86, 0xdd, packet @ ..]
            if high & 0x0f == 0 =>
        {
            Some((*session, packet))
        }
        _ => None,
    }
}

fn is_notification(fault: &Fault) -> bool {
    matches!(fault, Fault::Notification(_))
}

fn is_of_bulk_in(fault: &Fault) -> bool {
    matches!(
        fault,
        Fault::Replace(_) | Fault::Corrupt { .. } | Fault::Cut(_) | Fault::Oversized | Fault::StallIn
    )
}
