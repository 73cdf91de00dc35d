//! Permanent faults of a broken function. The kernel's driver in a guest detects each of them.

use super::{Device, FaultyDevice};
use crate::cdc::Subclass;

/// Number of transfers to the host of which one is lost.
const LOST_EVERY: u64 = 50;

impl Device {
    /// Returns a transfer to the host with the device's fault applied; `None` if it is lost.
    pub(super) fn spoil(&self, mut bytes: Vec<u8>) -> Option<Vec<u8>> {
        let Some(fault) = self.options.faulty.filter(|_| !bytes.is_empty()) else { return Some(bytes) };
        let is_ncm = self.options.subclass == Subclass::Ncm;
        // Fields of a 16-bit block: its table, and the entry of its first datagram.
        let half = |bytes: &[u8], at: usize| usize::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]));
        let is_block = is_ncm && bytes.len() > 28;
        let table = if is_block { half(&bytes, 10) } else { 0 };
        match fault {
            FaultyDevice::Signature if is_block => bytes[0] ^= 1,
            FaultyDevice::TablePlace if is_block => bytes[10] ^= 4,
            FaultyDevice::TableSignature if is_block => bytes[table] ^= 1,
            FaultyDevice::ShortDatagram if is_block => {
                let length = half(&bytes, table + 10) - 1;
                let [low, high, ..] = length.to_le_bytes();
                bytes[table + 10..table + 12].copy_from_slice(&[low, high]);
            }
            FaultyDevice::LateDatagram if is_block => bytes[table + 8] ^= 2,
            FaultyDevice::ChangedByte => {
                let last =
                    if is_block { half(&bytes, table + 8) + half(&bytes, table + 10) } else { bytes.len() };
                bytes[last - 1] ^= 0x10;
            }
            FaultyDevice::LostTransfers if self.blocks_to_host.is_multiple_of(LOST_EVERY) => return None,
            FaultyDevice::CutTransfers => bytes.truncate(bytes.len() - 1),
            FaultyDevice::Signature
            | FaultyDevice::TablePlace
            | FaultyDevice::TableSignature
            | FaultyDevice::ShortDatagram
            | FaultyDevice::LateDatagram
            | FaultyDevice::LostTransfers
            | FaultyDevice::ChangedFrames
            | FaultyDevice::OtherAddress
            | FaultyDevice::NoConnection
            | FaultyDevice::HalfSpeed => {}
        }
        Some(bytes)
    }

    /// True if the device has that permanent fault.
    pub(super) fn has(&self, fault: FaultyDevice) -> bool {
        self.options.faulty == Some(fault)
    }
}
