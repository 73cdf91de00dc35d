//! A model of the adapter: the silicon's behaviour as far as a driver can see it.
//!
//! | file | models |
//! |---|---|
//! | `control` | endpoint 0: standard requests, descriptors, register access, statistics |
//! | `registers` | the register file and its side effects |
//! | `phy` | the PHY behind MDIO: negotiation, link, interrupts |
//! | `memory` | EEPROM and one-time programmable memory |
//! | `filter` | the receive filter |
//! | `mac` | the wire: FCS, lengths, VLAN tags, checksums, flow control, statistics |
//! | `offload` | checksums and segments of sent frames |
//! | `bulk` | FIFOs of 12 KiB, URBs, the time that the bus takes |
//! | `faulty` | behaviour of a broken adapter |
//!
//! [`Adapter`] is one device without clock and threads: URBs and frames go in, completions and frames come out, the
//! time is an argument. docs/hardware/lan78xx.md separates known behaviour from assumptions.

mod bulk;
mod control;
mod faulty;
mod filter;
mod mac;
mod memory;
mod offload;
mod phy;
mod registers;

pub use crate::usb::model::WireCounters;
pub use bulk::Timing;
pub use faulty::{Fault, FaultyDevice};
pub use phy::Partner;

use super::descriptor::{Chip, ENDPOINTS, VENDOR};
use super::regs::Register;
use super::statistics::{Block, Statistic};
use crate::usb::model::{Identity, Model};
use crate::usb::{Completion, Speed, Status, Urb};
use bulk::Bulk;
use mac::Mac;
use memory::Memory;
use phy::Phy;
use polder_datapath::units::Nanos;
use registers::Registers;
use std::collections::VecDeque;

/// Location of the model's MAC address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AddressSource {
    /// None.
    None,
    /// In the EEPROM.
    #[default]
    Eeprom,
    /// In the one-time programmable memory, first configuration.
    Otp,
    /// In the one-time programmable memory, second configuration.
    OtpSecond,
    /// In the registers, loaded by the device itself.
    Registers,
}

/// Properties of the modelled adapter.
#[derive(Clone, Debug)]
pub struct Options {
    /// The chip.
    pub chip: Chip,
    /// Speed of its bus.
    pub speed: Speed,
    /// Its MAC address.
    pub mac: [u8; 6],
    /// Location of the MAC address.
    pub address: AddressSource,
    /// Link partner at the other end of the cable.
    pub partner: Partner,
    /// Speed of the bus, and pacing of the wire.
    pub timing: Timing,
    /// Permanent faults.
    pub faulty: FaultyDevice,
    /// Time from a ready PHY to the link.
    pub link_delay: Nanos,
}

impl Default for Options {
    /// Returns a correct, infinitely fast LAN7800 at SuperSpeed with an EEPROM, on a gigabit link.
    fn default() -> Self {
        Self {
            chip: Chip::Lan7800,
            speed: Speed::Super,
            mac: [0x02, 0x80, 0x0f, 0x78, 0x00, 0x01],
            address: AddressSource::default(),
            partner: Partner::default(),
            timing: Timing::default(),
            faulty: FaultyDevice::default(),
            link_delay: Nanos(0),
        }
    }
}

/// An adapter whose wire is a port of the datapath.
pub type Bench = crate::usb::model::Bench<Adapter>;

/// One device.
#[derive(Debug)]
pub struct Adapter {
    options: Options,
    registers: Registers,
    phy: Phy,
    memory: Memory,
    mac: Mac,
    bulk: Bulk,
    statistics: Block,
    /// Interrupt URBs that wait for a report.
    interrupts: VecDeque<Urb>,
    /// The last reported word of the interrupt endpoint that the driver has not cleared.
    reported: u32,
    completions: VecDeque<Completion>,
    faults: VecDeque<Fault>,
    configured: bool,
    plugged: bool,
    now: Nanos,
}

impl Adapter {
    /// Creates a device that has just been plugged in.
    pub fn new(options: Options) -> Self {
        Self {
            registers: Registers::new(&options),
            phy: Phy::new(options.chip, options.partner),
            memory: Memory::new(options.address, options.mac),
            mac: Mac::default(),
            bulk: Bulk::default(),
            statistics: Block::default(),
            interrupts: VecDeque::new(),
            reported: 0,
            completions: VecDeque::new(),
            faults: VecDeque::new(),
            configured: false,
            plugged: true,
            now: Nanos(0),
            options,
        }
    }

    /// Returns the properties of the adapter.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Returns the device's own counters.
    pub fn statistics(&self) -> &Block {
        &self.statistics
    }

    /// Counts frames without creating them.
    pub fn count_frames(&mut self, statistic: Statistic, frames: u32) {
        self.statistics.add(statistic, frames);
    }

    /// Returns the polling interval of the waiting interrupt URB in microframes; `None` if none waits.
    pub fn interrupt_interval(&self) -> Option<u32> {
        self.interrupts.front().map(|urb| urb.interval)
    }

    /// Returns the value of a register, without the side effects of a read.
    pub fn peek<E>(&self, register: Register<E>) -> u32 {
        self.registers.get(register)
    }

    /// True if the link is up.
    pub fn has_link(&self) -> bool {
        self.plugged && self.phy.has_link()
    }

    /// Takes a URB from the host; it completes at once, later, or never.
    pub fn submit(&mut self, urb: Urb) {
        let refused = if self.plugged { None } else { Some(Status::Gone) };
        if let Some(status) = refused {
            self.finish(urb, status, 0);
        } else if urb.endpoint == 0 {
            self.control(urb);
        } else if urb.endpoint == ENDPOINTS.bulk_in && self.configured {
            self.bulk.offer(urb, self.now);
        } else if urb.endpoint == ENDPOINTS.bulk_out && self.configured {
            self.bulk.bring(urb, self.now);
        } else if urb.endpoint == ENDPOINTS.interrupt && self.configured {
            self.interrupts.push_back(urb);
        } else {
            self.finish(urb, Status::Stall, 0);
        }
    }

    /// Cancels a URB; returns `false` if it is not pending.
    pub fn cancel(&mut self, id: u32) -> bool {
        let queues = [&mut self.bulk.receiving, &mut self.bulk.sending, &mut self.interrupts];
        let found = queues.into_iter().find_map(|queue| {
            let at = queue.iter().position(|urb| urb.id == id)?;
            queue.remove(at).map(|urb| (urb, at))
        });
        let Some((urb, at)) = found else { return false };
        let moved = self.bulk.moved(urb.endpoint, at);
        self.bulk.forget(urb.endpoint, at);
        self.finish(urb, Status::Cancelled, moved);
        true
    }

    /// Cancels all URBs of an endpoint.
    pub fn cancel_endpoint(&mut self, endpoint: u8) {
        let queues = [&self.bulk.receiving, &self.bulk.sending, &self.interrupts];
        let pending = queues.into_iter().flatten().filter(|urb| urb.endpoint == endpoint);
        let ids: Vec<u32> = pending.map(|urb| urb.id).collect();
        for id in ids {
            self.cancel(id);
        }
    }

    /// Takes the next completed transfer.
    pub fn complete(&mut self) -> Option<Completion> {
        self.completions.pop_front()
    }

    /// Advances the time, and handles all due events.
    pub fn advance(&mut self, now: Nanos) {
        self.now = self.now.max(now);
        if !self.plugged {
            return;
        }
        self.phy.advance(self.now, self.options.link_delay);
        self.run_bulk_out();
        self.run_bulk_in();
        self.report_interrupts();
    }

    /// Returns the time of the next event without outside input; `None` if there is none.
    pub fn next_event(&self) -> Option<Nanos> {
        let link = self.phy.next_event(self.options.link_delay);
        [link, self.bulk_event(), self.wire_event()].into_iter().flatten().min()
    }

    /// Plugs the cable in or out.
    pub fn set_link(&mut self, up: bool) {
        self.phy.set_cable(up, self.now);
    }

    /// Unplugs the device: every URB ends, and no further one is taken.
    pub fn unplug(&mut self) {
        self.plugged = false;
        let mut moved = self.bulk.sending.front().map(|urb| self.bulk.moved(urb.endpoint, 0));
        let pending = [&mut self.bulk.receiving, &mut self.bulk.sending, &mut self.interrupts];
        let pending: Vec<Urb> = pending.into_iter().flat_map(VecDeque::drain_all).collect();
        for urb in pending {
            let is_emptied = urb.endpoint == ENDPOINTS.bulk_out;
            let actual = if is_emptied { moved.take().unwrap_or(0) } else { 0 };
            self.finish(urb, Status::Gone, actual);
        }
    }

    /// True if the device is plugged in.
    pub fn is_plugged(&self) -> bool {
        self.plugged
    }

    /// Plugs the device in again, in its reset state.
    pub fn plug(&mut self) {
        let (now, completions) = (self.now, core::mem::take(&mut self.completions));
        *self = Self { completions, ..Self::new(self.options.clone()) };
        self.now = now;
    }

    /// Plans a fault for the next matching transfer.
    pub fn plan(&mut self, fault: Fault) {
        self.faults.push_back(fault);
    }

    fn finish(&mut self, urb: Urb, status: Status, actual: usize) {
        self.completions.push_back(Completion { urb, status, actual });
    }
}

impl Model for Adapter {
    fn identity(&self) -> Identity {
        Identity {
            vendor: VENDOR,
            product: self.options.chip.product(),
            speed: self.options.speed,
            class: [255, 0, 255],
            interfaces: &[[255, 0, 255]],
            interrupt: ENDPOINTS.interrupt,
        }
    }

    fn submit(&mut self, urb: Urb) {
        self.submit(urb);
    }

    fn cancel(&mut self, id: u32) -> bool {
        self.cancel(id)
    }

    fn cancel_endpoint(&mut self, endpoint: u8) {
        self.cancel_endpoint(endpoint);
    }

    fn complete(&mut self) -> Option<Completion> {
        self.complete()
    }

    fn advance(&mut self, now: Nanos) {
        self.advance(now);
    }

    fn next_event(&self) -> Option<Nanos> {
        self.next_event()
    }

    fn is_plugged(&self) -> bool {
        self.is_plugged()
    }

    fn plug(&mut self) {
        self.plug();
    }

    fn unplug(&mut self) {
        self.unplug();
    }

    fn has_link(&self) -> bool {
        self.has_link()
    }

    fn is_paced(&self) -> bool {
        self.options.timing.paced
    }

    fn wire_free_at(&self) -> Nanos {
        self.wire_free_at()
    }

    fn holds_partner(&self) -> bool {
        self.holds_partner()
    }

    fn wire_in(&mut self, frame: &[u8], start: Nanos) -> bool {
        self.wire_in(frame, start)
    }

    fn wire_out(&mut self) -> Option<Vec<u8>> {
        self.wire_out()
    }
}

/// Taking all values out of a queue.
trait DrainAll<T> {
    fn drain_all(&mut self) -> impl Iterator<Item = T>;
}

impl<T> DrainAll<T> for VecDeque<T> {
    fn drain_all(&mut self) -> impl Iterator<Item = T> {
        core::mem::take(self).into_iter()
    }
}
