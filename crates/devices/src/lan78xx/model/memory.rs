//! EEPROM and one-time programmable memory: 512 bytes each, if present.

use super::AddressSource;
use crate::lan78xx::regs::{EEPROM_SIGNATURE, MAC_OFFSET, OTP_SECOND, OTP_SIGNATURE_1, OTP_SIGNATURE_2};

const BYTES: usize = 512;

#[derive(Debug)]
pub(super) struct Memory {
    eeprom: Option<Box<[u8; BYTES]>>,
    otp: Box<[u8; BYTES]>,
}

impl Memory {
    pub(super) fn new(address: AddressSource, mac: [u8; 6]) -> Self {
        let blank = || Box::new([0xff; BYTES]);
        let put = |memory: &mut [u8; BYTES], at: u16| {
            let at = usize::from(at + MAC_OFFSET);
            memory[at..at + 6].copy_from_slice(&mac);
        };
        let (mut eeprom, mut otp) = (None, Box::new([0; BYTES]));
        match address {
            AddressSource::None | AddressSource::Registers => {}
            AddressSource::Eeprom => {
                let mut memory = blank();
                memory[0] = EEPROM_SIGNATURE;
                put(&mut memory, 0);
                eeprom = Some(memory);
            }
            AddressSource::Otp => {
                otp[0] = OTP_SIGNATURE_1;
                put(&mut otp, 0);
            }
            AddressSource::OtpSecond => {
                otp[0] = OTP_SIGNATURE_2;
                otp[usize::from(OTP_SECOND)] = OTP_SIGNATURE_1;
                put(&mut otp, OTP_SECOND);
            }
        }
        Self { eeprom, otp }
    }

    pub(super) fn has_eeprom(&self) -> bool {
        self.eeprom.is_some()
    }

    /// Returns a byte of the EEPROM; `None` if there is none.
    pub(super) fn eeprom(&self, address: u32) -> Option<u8> {
        self.eeprom.as_ref().map(|memory| memory[address as usize % BYTES])
    }

    pub(super) fn otp(&self, address: u32) -> u8 {
        self.otp[address as usize % BYTES]
    }
}
