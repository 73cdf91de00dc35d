//! Bringing the device up, following the manual's chapter 14.

use super::access::{Access, AccessError};
use super::desc::DESCRIPTOR_BYTES;
use super::layout::Layout;
use super::options::{LAYER_2_MTU, OVERHEAD, Options, ReceiveFilter};
use super::regs::{
    ADDRESS_VALID, ADDRESSES, CTRL, FCAH, FCAL, FCRTH, FCRTL, FCT, FCTTV, IMC, MTA, PBA, RADV, RAH, RAL,
    RCTL, RDBAH, RDBAL, RDH, RDLEN, RDT, RDTR, RXCSUM, RXDCTL, RXDCTL_AT_ONCE, TABLE_WORDS, TADV, TCTL,
    TDBAH, TDBAL, TDH, TDLEN, TDT, TIDV, TIPG, TIPG_COPPER, TXDCTL, TXDCTL_AT_ONCE, VET, VFTA, ctrl, phy,
    rctl, rxcsum, tctl,
};
use super::ring::Ring;
use crate::pci::ALL_ONES;
use polder_datapath::units::Nanos;

/// Time in which pending transfers end (14.7).
const TRANSFERS: Nanos = Nanos::from_millis(2);
/// Part of the 64 KiB packet buffer for receiving, in KiB.
const RECEIVE_KIB: u32 = 48;
/// Part for receiving with frames longer than 1522 bytes: the rest has to hold a whole frame.
const RECEIVE_KIB_LONG: u32 = 40;
/// Time of a pause frame, in units of 512 bit times.
const PAUSE_TIME: u32 = 0xffff;
/// Address, type and tag of pause frames (13.4.10 to 13.4.12; IEEE 802.3, 31B).
const PAUSE_ADDRESS: [u32; 2] = [0x00c2_8001, 0x0100];
const PAUSE_TYPE: u32 = 0x8808;
/// Reserve of the packet buffer above the pause level, for frames in flight from either side, in bytes.
const PAUSE_SPARE: u32 = 2 * 1024;
const TAG_TYPE: u32 = 0x8100;

/// Source of a port's MAC address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MacSource {
    /// The configuration.
    Configuration,
    /// The EEPROM.
    Eeprom,
}

/// Properties of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceProperties {
    /// Its MAC address.
    pub mac: [u8; 6],
    /// Source of the address.
    pub mac_source: MacSource,
    /// True if the EEPROM's checksum is right.
    pub eeprom_is_good: bool,
    /// Vendor, model and revision of the PHY.
    pub phy: u32,
}

/// Reason why a device could not be brought up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InitError {
    /// An access to the device failed.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// The EEPROM is damaged.
    #[error(
        "the checksum of the adapter's EEPROM is wrong, so the MAC address in it is not trusted; set `mac` for the port"
    )]
    EepromChecksum,
    /// The EEPROM has no valid unicast address.
    #[error("the adapter's EEPROM has no valid MAC address; set `mac` for the port")]
    NoAddress,
}

/// Resets the device and reads its properties (14.3).
pub(super) fn bring_up(access: &Access, options: &Options) -> Result<DeviceProperties, InitError> {
    // 1. The device must answer.
    if access.is_gone() {
        return Err(AccessError::Gone.into());
    }
    // 2. Interrupts and transfers are stopped, the device is reset (14.7), and interrupts are masked again.
    stop(access);
    access.reset()?;
    access.write(IMC, ALL_ONES);
    // 3. The EEPROM is read: the address, and a checksum over all words (5.6).
    let (words, eeprom_is_good) = access.read_whole_eeprom()?;
    let (mac, mac_source) =
        find_address(options.mac, words[..3].try_into().unwrap_or_default(), eeprom_is_good)?;
    // 4. Speed and duplex follow the PHY; tags are removed if that was asked for (14.3).
    let cleared = ctrl::INVERT_LOSS
        | ctrl::FORCE_SPEED
        | ctrl::FORCE_DUPLEX
        | ctrl::PHY_RESET
        | ctrl::VLAN_MODE
        | ctrl::RECEIVE_PAUSE
        | ctrl::TRANSMIT_PAUSE;
    let tags = if options.vlan_offload { ctrl::VLAN_MODE } else { 0 };
    access.modify(CTRL, cleared, ctrl::SET_LINK_UP | ctrl::AUTO_SPEED | tags);
    access.write(VET, TAG_TYPE);
    // 5. Flow control: levels of the packet buffer are set (13.4.10 and following).
    set_flow_control(access, options);
    // 6. Addresses are set (13.5).
    set_addresses(access, mac, &options.receive);
    // 7. The PHY negotiates.
    let phy = start_phy(access, options.flow_control)?;
    Ok(DeviceProperties { mac, mac_source, eeprom_is_good, phy })
}

/// Sets up the receive ring and enables the receiver (14.4). Its tail is at 0: the device has no descriptor
/// yet.
pub(super) fn start_receiving(access: &Access, ring: &Ring, layout: Layout, options: &Options) {
    let [low, high] = halves(ring.io_address());
    access.write(RDBAL, low);
    access.write(RDBAH, high);
    access.write(RDLEN, bytes(ring));
    access.write(RDH, 0);
    access.write(RDT, 0);
    // Frames are reported at once: only the throttle delays interrupts.
    access.write(RDTR, 0);
    access.write(RADV, 0);
    access.write(RXDCTL, RXDCTL_AT_ONCE);
    access.write(RXCSUM, rxcsum::IP | rxcsum::TRANSPORT);
    let mut control = rctl::ENABLE | rctl::BROADCAST | rctl::STRIP_FCS | rctl::LOW_QUARTER | layout.control();
    let everything = match &options.receive {
        ReceiveFilter::All => rctl::ALL_UNICAST | rctl::ALL_MULTICAST,
        ReceiveFilter::Addresses(addresses) if perfect(addresses) < unicast(addresses).count() => {
            rctl::ALL_UNICAST
        }
        ReceiveFilter::Addresses(_) => 0,
    };
    control |= everything;
    access.write(RCTL, control);
}

/// Sets up the transmit ring and enables the transmitter (14.5).
pub(super) fn start_sending(access: &Access, ring: &Ring) {
    let [low, high] = halves(ring.io_address());
    access.write(TDBAL, low);
    access.write(TDBAH, high);
    access.write(TDLEN, bytes(ring));
    access.write(TDH, 0);
    access.write(TDT, 0);
    access.write(TIDV, 0);
    access.write(TADV, 0);
    access.write(TXDCTL, TXDCTL_AT_ONCE);
    access.write(TIPG, TIPG_COPPER);
    access.write(TCTL, tctl::ENABLE | tctl::PAD_SHORT | tctl::COLLISIONS | tctl::DISTANCE);
}

/// Stops the device: no interrupts, no receiving and sending, no pending transfers.
pub(super) fn stop(access: &Access) {
    access.write(IMC, ALL_ONES);
    access.write(RCTL, 0);
    access.write(TCTL, tctl::PAD_SHORT);
    if !access.is_gone() {
        access.pause(TRANSFERS);
    }
}

fn find_address(
    configured: Option<[u8; 6]>,
    words: [u16; 3],
    is_good: bool,
) -> Result<([u8; 6], MacSource), InitError> {
    if let Some(mac) = configured {
        return Ok((mac, MacSource::Configuration));
    }
    if !is_good {
        return Err(InitError::EepromChecksum);
    }
    let [[a, b], [c, d], [e, f]] = words.map(u16::to_le_bytes);
    let mac = [a, b, c, d, e, f];
    if mac[0] & 1 == 0 && mac != [0; 6] { Ok((mac, MacSource::Eeprom)) } else { Err(InitError::NoAddress) }
}

fn set_flow_control(access: &Access, options: &Options) {
    let kib = if options.mtu > LAYER_2_MTU { RECEIVE_KIB_LONG } else { RECEIVE_KIB };
    access.write(PBA, kib);
    access.write(FCAL, PAUSE_ADDRESS[0]);
    access.write(FCAH, PAUSE_ADDRESS[1]);
    access.write(FCT, PAUSE_TYPE);
    access.write(FCTTV, PAUSE_TIME);
    // A frame being received, and one that the partner has started, have room above the upper level.
    let longest = u32::from(options.mtu) + OVERHEAD;
    let high = (kib * 1024).saturating_sub(2 * longest + PAUSE_SPARE) & !7;
    access.write(FCRTH, if options.flow_control { high } else { 0 });
    access.write(FCRTL, if options.flow_control { (high / 2) & !7 } else { 0 });
}

/// Writes all receive addresses, the multicast table and the VLAN filter, which a reset leaves undefined
/// (14.4).
fn set_addresses(access: &Access, own: [u8; 6], filter: &ReceiveFilter) {
    let addresses: &[[u8; 6]] = match filter {
        ReceiveFilter::All => &[],
        ReceiveFilter::Addresses(addresses) => addresses,
    };
    let mut stations = core::iter::once(own).chain(unicast(addresses).filter(|&mac| mac != own));
    for index in 0..ADDRESSES {
        let [low, high] = stations.next().map_or([0, 0], |[a, b, c, d, e, f]| {
            [u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, 0, 0]) | ADDRESS_VALID]
        });
        access.write(RAL.behind(2 * index), low);
        access.write(RAH.behind(2 * index), high);
    }
    let mut table = [0_u32; TABLE_WORDS as usize];
    for mac in addresses.iter().filter(|mac| mac[0] & 1 != 0) {
        let hash = hash(*mac);
        table[usize::from(hash >> 5)] |= 1 << (hash & 31);
    }
    for (index, word) in (0..).zip(table) {
        access.write(MTA.behind(index), word);
        access.write(VFTA.behind(index), 0);
    }
}

fn unicast(addresses: &[[u8; 6]]) -> impl Iterator<Item = [u8; 6]> + '_ {
    addresses.iter().copied().filter(|mac| mac[0] & 1 == 0)
}

/// Returns the number of unicast addresses with an exact filter, besides the port's own address.
fn perfect(addresses: &[[u8; 6]]) -> usize {
    unicast(addresses).count().min(ADDRESSES as usize - 1)
}

/// Returns the bit of a group in the multicast table: bits 47 to 36 of the address (13.5.1, offset 0).
pub(super) fn hash(mac: [u8; 6]) -> u16 {
    (u16::from(mac[4]) >> 4 | u16::from(mac[5]) << 4) & 0xfff
}

fn start_phy(access: &Access, pause: bool) -> Result<u32, AccessError> {
    let id = u32::from(access.read_phy(phy::ID_1)?) << 16 | u32::from(access.read_phy(phy::ID_2)?);
    let pauses = if pause { phy::PAUSE | phy::PAUSE_ASYMMETRIC } else { 0 };
    access.write_phy(phy::ADVERTISE, phy::MODES | pauses)?;
    access.write_phy(phy::CONTROL_1000, phy::GIGABIT_FULL)?;
    access.write_phy(phy::CONTROL, phy::NEGOTIATE | phy::RESTART)?;
    Ok(id)
}

fn halves(address: u64) -> [u32; 2] {
    let [a, b, c, d, e, f, g, h] = address.to_le_bytes();
    [u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h])]
}

fn bytes(ring: &Ring) -> u32 {
    u32::try_from(ring.len() * DESCRIPTOR_BYTES).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_believed_when_the_eeprom_is_right() {
        let words = [0x5452, 0x1200, 0x5634];
        let mac = [0x52, 0x54, 0x00, 0x12, 0x34, 0x56];
        assert_eq!(find_address(None, words, true), Ok((mac, MacSource::Eeprom)));
        assert_eq!(find_address(None, words, false), Err(InitError::EepromChecksum));
        assert_eq!(find_address(None, [0; 3], true), Err(InitError::NoAddress));
        assert_eq!(find_address(None, [0xffff; 3], true), Err(InitError::NoAddress));
        assert_eq!(find_address(Some([2; 6]), words, false), Ok(([2; 6], MacSource::Configuration)));
    }

    /// The manual's example of the table (13.5.1): 12:34:56:78:9A:BC has 0xbc9 with offset 0.
    #[test]
    fn groups_have_their_bit() {
        assert_eq!(hash([0x12, 0x34, 0x56, 0x78, 0x9a, 0xbc]), 0xbc9);
    }
}
