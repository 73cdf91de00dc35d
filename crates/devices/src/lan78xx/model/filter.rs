//! Receive filter: by address, by hash, by VLAN.

use super::Adapter;
use crate::lan78xx::frame::rx_a;
use crate::lan78xx::regs::{FILTERS, HASH_START, HASH_WORDS, MAF_VALID, RFE_CTL, maf_hi, maf_lo, rfe_ctl};
use polder_datapath::wire::EtherType;

/// The reflected polynomial of CRC-32 (IEEE 802.3, 3.2.9).
const POLYNOMIAL: u32 = 0xedb8_8320;

impl Adapter {
    /// Returns the status bits of `frame` if it passes the filter (they give the reason); `None` if not.
    pub(super) fn accepts(&self, frame: &[u8]) -> Option<u32> {
        let control = self.registers.get(RFE_CTL);
        let destination: [u8; 6] = *frame.first_chunk()?;
        let on = |bit: u32| control & bit != 0;
        let perfect = on(rfe_ctl::PERFECT) && self.is_perfect(destination);
        let perfect_bit = if perfect { rx_a::PERFECT } else { 0 };
        let bits = if destination == [0xff; 6] {
            on(rfe_ctl::BROADCAST).then_some(rx_a::BROADCAST)
        } else if destination[0] & 1 == 1 {
            let hashed = on(rfe_ctl::MULTICAST_HASH) && self.is_hashed(destination);
            (on(rfe_ctl::ALL_MULTICAST) || hashed || perfect).then_some(rx_a::MULTICAST | perfect_bit)
        } else {
            let hashed = on(rfe_ctl::UNICAST_HASH) && self.is_hashed(destination);
            (on(rfe_ctl::ALL_UNICAST) || hashed || perfect).then_some(perfect_bit)
        }?;
        if on(rfe_ctl::VLAN_FILTER) && !self.has_vlan(frame) {
            return None;
        }
        Some(bits)
    }

    fn is_perfect(&self, address: [u8; 6]) -> bool {
        let [a, b, c, d, e, f] = address;
        let low = u32::from_le_bytes([a, b, c, d]);
        let high = u32::from_le_bytes([e, f, 0, 0]) | MAF_VALID;
        (0..FILTERS).any(|index| {
            self.registers.get(maf_lo(index)) == low && self.registers.get(maf_hi(index)) == high
        })
    }

    fn is_hashed(&self, address: [u8; 6]) -> bool {
        let bit = hash(address);
        let word = self.registers.filter_memory[(HASH_START + bit / 32 % HASH_WORDS) as usize];
        word >> (bit % 32) & 1 == 1
    }

    /// True if the frame has no tag, or one of a VLAN in the filter.
    fn has_vlan(&self, frame: &[u8]) -> bool {
        let Some(tag) = tag(frame) else { return true };
        let vlan = u32::from(tag & 0xfff);
        // Priority tags belong to no VLAN.
        vlan == 0 || self.registers.filter_memory[(vlan / 32) as usize] >> (vlan % 32) & 1 == 1
    }
}

/// Returns the 802.1Q tag of a frame.
pub(super) fn tag(frame: &[u8]) -> Option<u16> {
    let (kind, tag) = (frame.get(12..14)?, frame.get(14..16)?);
    (kind == EtherType::VLAN.0.to_be_bytes()).then(|| u16::from_be_bytes([tag[0], tag[1]]))
}

/// Returns the bit of an address in the hash filter: bits 31 to 23 of its CRC, as shifted out.
fn hash(address: [u8; 6]) -> u32 {
    let mut crc = u32::MAX;
    for byte in address {
        for bit in 0..8 {
            let odd = (crc ^ u32::from(byte) >> bit) & 1 == 1;
            crc = crc >> 1 ^ if odd { POLYNOMIAL } else { 0 };
        }
    }
    // The register's most significant bit is the least significant one of the reflected sum.
    crc.reverse_bits() >> 23
}
