//! Endpoint 0: standard requests, vendor requests, and the interrupt endpoint.

use super::{Adapter, Fault};
use crate::lan78xx::descriptor::{self, ENDPOINTS};
use crate::lan78xx::regs::{
    GET_STATISTICS, INT_EP_CTL, INT_STS, READ_REGISTER, STATISTICS_BYTES, WRITE_REGISTER, int_sts,
};
use crate::usb::descriptor::{BOS, CONFIGURATION, DEVICE, STRING, bos, string};
use crate::usb::model::{
    CLEAR_FEATURE, GET_CONFIGURATION, GET_DESCRIPTOR, GET_INTERFACE, GET_STATUS, SET_ADDRESS,
    SET_CONFIGURATION, SET_FEATURE, SET_INTERFACE, SET_ISOCH_DELAY, SET_SEL, answer,
};
use crate::usb::{Setup, Status, Urb};

impl Adapter {
    /// Answers a control request at once.
    pub(super) fn control(&mut self, mut urb: Urb) {
        let found = if urb.setup.kind & Setup::VENDOR != 0 {
            self.vendor(urb.setup, urb.buffer.bytes())
        } else {
            self.standard(urb.setup)
        };
        // Causes that the request has ended may be reported again.
        self.reported &= self.causes();
        if self.take_fault(|fault| matches!(fault, Fault::StallControl)).is_some() {
            return self.finish(urb, Status::Stall, 0);
        }
        let Some(bytes) = found else { return self.finish(urb, Status::Stall, 0) };
        let actual = answer(&mut urb, &bytes);
        self.finish(urb, Status::Done, actual);
    }

    fn vendor(&mut self, setup: Setup, data: &[u8]) -> Option<Vec<u8>> {
        match (setup.is_in(), setup.request) {
            (true, READ_REGISTER) if setup.length == 4 => {
                Some(self.read_register(setup.index).to_le_bytes().to_vec())
            }
            (false, WRITE_REGISTER) => {
                let value = u32::from_le_bytes(*data.first_chunk()?);
                self.write_register(setup.index, value);
                Some(Vec::new())
            }
            (true, GET_STATISTICS) if usize::from(setup.length) >= STATISTICS_BYTES => {
                Some(self.statistics.write().to_vec())
            }
            _ => None,
        }
    }

    fn standard(&mut self, setup: Setup) -> Option<Vec<u8>> {
        match setup.request {
            GET_STATUS => Some(vec![0, 0]),
            GET_DESCRIPTOR => self.descriptor(setup.value),
            GET_CONFIGURATION => Some(vec![u8::from(self.configured)]),
            GET_INTERFACE => Some(vec![0]),
            SET_CONFIGURATION if setup.value <= 1 => {
                self.configured = setup.value == 1;
                Some(Vec::new())
            }
            SET_INTERFACE if setup.value == 0 => Some(Vec::new()),
            CLEAR_FEATURE if setup.kind == Setup::TO_ENDPOINT => {
                self.clear_halt(setup.index);
                Some(Vec::new())
            }
            CLEAR_FEATURE | SET_FEATURE | SET_ADDRESS | SET_SEL | SET_ISOCH_DELAY => Some(Vec::new()),
            _ => None,
        }
    }

    fn clear_halt(&mut self, endpoint: u16) {
        match u8::try_from(endpoint) {
            Ok(address) if address == ENDPOINTS.bulk_in => self.bulk.halted_in = false,
            Ok(address) if address == ENDPOINTS.bulk_out => self.bulk.halted_out = false,
            _ => {}
        }
    }

    fn descriptor(&mut self, value: u16) -> Option<Vec<u8>> {
        let [kind, index] = value.to_be_bytes();
        let (chip, speed) = (self.options.chip, self.options.speed);
        let mut bytes = match (kind, index) {
            (DEVICE, 0) => descriptor::device(chip, speed).to_vec(),
            (CONFIGURATION, 0) => descriptor::configuration(speed),
            (BOS, 0) => bos().to_vec(),
            (STRING, 0) => string(None),
            (STRING, 1) => string(Some("Microchip")),
            (STRING, 2) => string(Some(chip.name())),
            (STRING, 3) => string(Some("model")),
            _ => return None,
        };
        if let Some(Fault::Descriptor { at, value }) =
            self.take_fault(|fault| matches!(fault, Fault::Descriptor { .. }))
        {
            let length = bytes.len();
            bytes[at % length] = value;
        }
        Some(bytes)
    }

    /// Returns the asserted interrupt causes.
    fn causes(&self) -> u32 {
        self.registers.get(INT_STS) | if self.phy.interrupt() { int_sts::PHY } else { 0 }
    }

    /// Reports new interrupt causes, once for each assertion.
    pub(super) fn report_interrupts(&mut self) {
        let wanted = self.causes() & self.registers.get(INT_EP_CTL);
        // Causes that are not asserted may be reported again.
        self.reported &= wanted;
        if wanted & !self.reported == 0 || self.options.faulty.no_interrupts {
            return;
        }
        let Some(mut urb) = self.interrupts.pop_front() else { return };
        self.reported = wanted;
        if self.take_fault(|fault| matches!(fault, Fault::LoseInterrupt)).is_some() {
            self.interrupts.push_front(urb);
            return;
        }
        let word = wanted.to_le_bytes();
        let count = word.len().min(urb.length);
        urb.buffer.bytes_mut()[..count].copy_from_slice(&word[..count]);
        self.finish(urb, Status::Done, count);
    }
}
