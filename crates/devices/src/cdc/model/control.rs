//! Endpoint 0: standard requests and class requests.

use super::describe::{configuration, device, text};
use super::{BULK_IN, BULK_OUT, Device, Fault, Violation};
use crate::cdc::descriptor::{Subclass, capability};
use crate::cdc::request::{
    GET_NTB_PARAMETERS, GET_RESPONSE, RESET_FUNCTION, SEND_COMMAND, SET_CRC_MODE, SET_MAX_DATAGRAM_SIZE,
    SET_NET_ADDRESS, SET_NTB_FORMAT, SET_NTB_INPUT_SIZE, SET_PACKET_FILTER, SMALLEST_BLOCK,
};
use crate::usb::descriptor::{BOS, CONFIGURATION, DEVICE, STRING, bos};
use crate::usb::model::{
    CLEAR_FEATURE, GET_CONFIGURATION, GET_DESCRIPTOR, GET_INTERFACE, GET_STATUS, SET_ADDRESS,
    SET_CONFIGURATION, SET_FEATURE, SET_INTERFACE, SET_ISOCH_DELAY, SET_SEL, answer,
};
use crate::usb::{Setup, Status, Urb};

/// Optional requests (NCM 1.0, table 6-2).
const GET_NTB_FORMAT: u8 = 0x83;
const GET_NTB_INPUT_SIZE: u8 = 0x85;

impl Device {
    /// Answers a control request at once.
    pub(super) fn control(&mut self, mut urb: Urb) {
        if self.take_fault(|fault| *fault == Fault::StallControl).is_some() {
            return self.finish(urb, Status::Stall, 0);
        }
        let found = if urb.setup.kind & Setup::CLASS != 0 {
            self.class(urb.setup, urb.buffer.bytes())
        } else {
            self.standard(urb.setup)
        };
        let Some(bytes) = found else { return self.finish(urb, Status::Stall, 0) };
        let actual = answer(&mut urb, &bytes);
        self.finish(urb, Status::Done, actual);
    }

    fn standard(&mut self, setup: Setup) -> Option<Vec<u8>> {
        let [kind, index] = setup.value.to_be_bytes();
        match setup.request {
            GET_STATUS => Some(vec![0, 0]),
            GET_DESCRIPTOR => match (kind, index) {
                (DEVICE, 0) => Some(device(&self.options).to_vec()),
                (CONFIGURATION, 0) => Some(configuration(&self.options)),
                (BOS, 0) => Some(bos().to_vec()),
                (STRING, index) => text(&self.options, index),
                _ => None,
            },
            GET_CONFIGURATION => Some(vec![u8::from(self.configured)]),
            GET_INTERFACE => Some(vec![if setup.index == 1 { self.setting } else { 0 }]),
            SET_CONFIGURATION if setup.value <= 1 => {
                self.configured = setup.value == 1;
                self.set_interface(0);
                Some(Vec::new())
            }
            SET_INTERFACE if setup.index == 0 && setup.value <= u16::from(self.data_setting() - 1) => {
                self.half = u8::from(setup.value == 1);
                Some(Vec::new())
            }
            SET_INTERFACE if setup.index == 1 && self.configured => {
                let setting = u8::try_from(setup.value).ok().filter(|&one| one <= self.data_setting())?;
                self.set_interface(setting);
                Some(Vec::new())
            }
            CLEAR_FEATURE if setup.kind == Setup::TO_ENDPOINT => {
                self.halted_in &= setup.index != u16::from(BULK_IN);
                self.halted_out &= setup.index != u16::from(BULK_OUT);
                Some(Vec::new())
            }
            CLEAR_FEATURE | SET_FEATURE | SET_ADDRESS | SET_SEL | SET_ISOCH_DELAY => Some(Vec::new()),
            _ => None,
        }
    }

    /// Selects an alternate setting of the data interface; the setting without endpoints resets it.
    fn set_interface(&mut self, setting: u8) {
        self.setting = setting;
        (self.halted_in, self.halted_out) = (false, false);
        if setting == 0 {
            (self.wide, self.crc, self.expected, self.filter) = (false, false, None, None);
            self.in_bytes = self.options.parameters.in_bytes;
            self.to_host.clear();
            let pending = core::mem::take(&mut self.receiving);
            pending.into_iter().for_each(|urb| self.finish(urb, Status::Cancelled, 0));
        }
        self.notify();
    }

    fn class(&mut self, setup: Setup, data: &[u8]) -> Option<Vec<u8>> {
        if self.is_mbim() && setup.request < SET_PACKET_FILTER {
            return self.message(setup, data);
        }
        let known = self.options.capabilities;
        let is_ncm = self.options.subclass != Subclass::Ecm;
        let has = |capability: u8| is_ncm && known & capability != 0;
        // Block parameters are fixed while data flows (NCM 1.0, 7.2).
        let is_early = self.setting == 0;
        let answer = match (setup.is_in(), setup.request) {
            (false, SET_PACKET_FILTER) if !is_ncm || has(capability::PACKET_FILTER) => {
                self.filter = Some(setup.value);
                Some(Vec::new())
            }
            (true, GET_NTB_PARAMETERS) if is_ncm => Some(self.parameters()),
            (true, GET_NTB_FORMAT) if is_ncm => Some(vec![u8::from(self.wide), 0]),
            (true, GET_NTB_INPUT_SIZE) if is_ncm => Some(self.in_bytes.to_le_bytes().to_vec()),
            (false, SET_NTB_FORMAT) if is_ncm && is_early && setup.value <= 1 => {
                self.wide = setup.value == 1;
                let is_had = self.options.parameters.formats & if self.wide { 2 } else { 1 } != 0;
                is_had.then(Vec::new)
            }
            (false, SET_NTB_INPUT_SIZE) if is_ncm && is_early => self.set_input_size(data, setup.length),
            (false, SET_CRC_MODE) if has(capability::CRC_MODE) && is_early && setup.value <= 1 => {
                self.crc = setup.value == 1;
                Some(Vec::new())
            }
            (false, SET_NET_ADDRESS) if has(capability::NET_ADDRESS) && is_early => {
                self.options.mac = *data.first_chunk()?;
                Some(Vec::new())
            }
            (false, SET_MAX_DATAGRAM_SIZE) if has(capability::MAX_DATAGRAM_SIZE) && is_early => {
                Some(Vec::new())
            }
            _ => None,
        };
        if answer.is_none() {
            self.violations.push(Violation::Request(setup.request));
        }
        answer
    }

    /// Handles control messages of MBIM.
    fn message(&mut self, setup: Setup, data: &[u8]) -> Option<Vec<u8>> {
        // The unselected half of a dual function does not answer.
        let answer = match (setup.is_in(), setup.request) {
            _ if self.half != self.data_setting() - 1 => None,
            (false, SEND_COMMAND) => {
                self.modem.receive(data.get(..usize::from(setup.length))?);
                Some(Vec::new())
            }
            (true, GET_RESPONSE) => Some(self.modem.respond()),
            (false, RESET_FUNCTION) => {
                self.modem.reset();
                Some(Vec::new())
            }
            _ => None,
        };
        if answer.is_none() {
            self.violations.push(Violation::Request(setup.request));
        }
        answer
    }

    fn parameters(&mut self) -> Vec<u8> {
        match self.take_fault(|fault| matches!(fault, Fault::Parameters(_))) {
            Some(Fault::Parameters(bytes)) => bytes,
            _ => self.options.parameters.write().to_vec(),
        }
    }

    fn set_input_size(&mut self, data: &[u8], length: u16) -> Option<Vec<u8>> {
        let long = self.options.capabilities & capability::NTB_INPUT_SIZE_8 != 0;
        if length != if long { 8 } else { 4 } {
            return None;
        }
        let bytes = u32::from_le_bytes(*data.first_chunk()?);
        if !(SMALLEST_BLOCK..=self.options.parameters.in_bytes).contains(&bytes) {
            return None;
        }
        self.in_bytes = bytes;
        Some(Vec::new())
    }
}
