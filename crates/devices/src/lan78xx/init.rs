//! Bringing up and stopping the adapter, in numbered steps.

use super::descriptor::{Chip, parse_configuration, parse_device};
use super::phy::{self, Phy};
use super::regs::{
    BULK_IN_DLY, BURST_CAP, DP_ADDR, DP_CMD, DP_DATA, DP_SEL, DP_WRITE, E2P_CMD, E2P_DATA, EEPROM_SIGNATURE,
    FCT_FLOW, FCT_RX_CTL, FCT_RX_FIFO_END, FCT_TX_CTL, FCT_TX_FIFO_END, FLOW, GET_STATISTICS, HASH_WORDS,
    HW_CFG, ID_REV, INT_EP_CTL, INT_STS, LTM_BELT_IDLE0, MAC_CR, MAC_OFFSET, MAC_RX, MAC_RX_MAX_SIZE_SHIFT,
    MAC_TX, MAF_VALID, OTP_ADDR1, OTP_ADDR2, OTP_CMD_GO, OTP_FUNC_CMD, OTP_PWR_DN, OTP_RD_DATA, OTP_SECOND,
    OTP_SIGNATURE_1, OTP_SIGNATURE_2, OTP_STATUS, PMT_CTL, RFE_CTL, RX_ADDRH, RX_ADDRL, STATISTICS_BYTES,
    USB_CFG0, USB_CFG1, VLAN_WORDS, dp_sel, e2p_cmd, fct, hw_cfg, int_sts, mac_cr, mac_rx, mac_tx, maf_hi,
    maf_lo, pmt_ctl, rfe_ctl, usb_cfg0,
};
use super::statistics::Block;
use crate::usb::Setup;
use crate::usb::control::{ControlError, Pipe};
use crate::usb::descriptor::{CONFIGURATION, DEVICE, DescriptorError, Endpoints};

/// Bytes of a frame beyond the MTU: Ethernet header, a VLAN tag, FCS.
const OVERHEAD: u32 = 14 + 4 + 4;
/// Last 512-byte block of each FIFO of 12 KiB.
const FIFO_END: u32 = 0x17;
/// Cycles of `BULK_IN_DLY` per microsecond.
const DELAY_CYCLES: u32 = 60;
/// Maximum of `BULK_IN_DLY`.
const LONGEST_DELAY: u32 = 0xffff;
/// Maximum number of endpoint packets per transfer: 16 KiB at high speed, 32 KiB at SuperSpeed.
const BURST: u32 = 0x20;
/// The bit of the latency tolerance messages in [`USB_CFG1`].
const LTM: u32 = 0x100;

/// Settings of an adapter.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    pub(super) mtu: u16,
    pub(super) mac: Option<[u8; 6]>,
    pub(super) receive: ReceiveFilter,
    pub(super) pause: bool,
    pub(super) strip_tags: bool,
    /// Time for which a short transfer waits for more frames, in microseconds.
    pub(super) gather_us: u16,
    /// MAC address to use if the adapter has none.
    pub(super) random: [u8; 6],
}

/// Frames that an adapter receives.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ReceiveFilter {
    /// All frames, as a bridge needs.
    #[default]
    All,
    /// Frames to the adapter's own address, to broadcast, and to some groups.
    Addresses {
        /// Further unicast addresses and groups.
        addresses: Vec<[u8; 6]>,
        /// The VLANs, if not all.
        vlans: Option<Vec<u16>>,
    },
}

/// Properties of an adapter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DeviceProperties {
    pub(super) chip: Chip,
    pub(super) revision: u16,
    pub(super) endpoints: Endpoints,
    pub(super) mac: [u8; 6],
    pub(super) mac_source: MacSource,
    pub(super) phy: Option<Phy>,
    pub(super) statistics: Block,
}

/// Source of an adapter's MAC address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MacSource {
    /// The configuration.
    Configuration,
    /// The adapter's registers.
    Registers,
    /// Its EEPROM.
    Eeprom,
    /// Its one-time programmable memory.
    Otp,
    /// Generated: the adapter has none.
    Random,
}

/// Reason why an adapter could not be brought up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InitError {
    /// The descriptors are those of another device.
    #[error(transparent)]
    Descriptor(#[from] DescriptorError),
    /// A control request was refused or failed.
    #[error("{0}; unplug the adapter and plug it in again")]
    Control(#[from] ControlError),
    /// The chip's register does not match its descriptor.
    #[error(
        "the adapter has product ID {descriptor:#06x} in its descriptor, but chip ID {register:#06x} in its register"
    )]
    Identity {
        /// Product ID in the descriptor.
        descriptor: u16,
        /// Chip in the register.
        register: u16,
    },
}

/// Brings the adapter up, from descriptors to a negotiating link.
pub(super) async fn bring_up(pipe: Pipe, wanted: Wanted) -> Result<DeviceProperties, InitError> {
    let pipe = &pipe;
    // 1. The descriptors are read.
    let device = pipe.descriptor(DEVICE, 0, 18).await?;
    let chip = parse_device(&device)?;
    let configuration = pipe.descriptor(CONFIGURATION, 0, 255).await?;
    let endpoints = parse_configuration(&configuration)?;
    pipe.set_configuration(1).await?;
    // 2. Interrupts are off, the adapter is reset, its identity is checked.
    pipe.write(INT_EP_CTL, 0).await?;
    pipe.modify(HW_CFG, 0, hw_cfg::LITE_RESET).await?;
    pipe.until(HW_CFG, hw_cfg::LITE_RESET, 0).await?;
    let revision = identify(pipe, chip).await?;
    // 3. The MAC address is determined.
    let (mac, mac_source) = find_address(pipe, chip, &wanted).await?;
    // 4. The USB side is set up.
    set_up_bus(pipe, &wanted).await?;
    // 5. FIFOs, interrupts and flow control are set up.
    pipe.write(FCT_RX_FIFO_END, FIFO_END).await?;
    pipe.write(FCT_TX_FIFO_END, FIFO_END).await?;
    pipe.write(INT_STS, u32::MAX).await?;
    pipe.write(FLOW, 0).await?;
    pipe.write(FCT_FLOW, 0).await?;
    // 6. Filters and checksums are set.
    set_filters(pipe, &wanted, mac).await?;
    // 7. The PHY is set up.
    pipe.modify(PMT_CTL, 0, pmt_ctl::PHY_RESET).await?;
    pipe.until(PMT_CTL, pmt_ctl::PHY_RESET | pmt_ctl::READY, pmt_ctl::READY).await?;
    let phy = phy::find(pipe, chip).await?;
    phy::prepare_rgmii(pipe, chip, phy).await?;
    // 8. The MAC is set up: speed and duplex follow the PHY.
    pipe.modify(MAC_CR, mac_cr::LOOPBACK, mac_cr::AUTO_SPEED | mac_cr::AUTO_DUPLEX).await?;
    let longest = (u32::from(wanted.mtu) + OVERHEAD) << MAC_RX_MAX_SIZE_SHIFT;
    pipe.write(MAC_RX, longest & mac_rx::MAX_SIZE).await?;
    // 9. FIFOs and MAC are enabled in both directions.
    for fifo in [FCT_RX_CTL, FCT_TX_CTL] {
        pipe.write(fifo, fct::RESET).await?;
        pipe.until(fifo, fct::RESET, 0).await?;
    }
    pipe.modify(MAC_TX, 0, mac_tx::ENABLE).await?;
    pipe.write(FCT_TX_CTL, fct::ENABLE).await?;
    pipe.write(FCT_RX_CTL, fct::ENABLE).await?;
    pipe.modify(MAC_RX, 0, mac_rx::ENABLE).await?;
    // 10. Link interrupts are enabled.
    pipe.write(INT_EP_CTL, int_sts::PHY).await?;
    if let Some(phy) = phy {
        phy::start(pipe, phy, wanted.pause).await?;
    }
    let statistics = read_statistics(pipe).await?;
    Ok(DeviceProperties { chip, revision, endpoints, mac, mac_source, phy, statistics })
}

/// Stops the adapter: it receives and sends no frame.
pub(super) async fn stop_device(pipe: Pipe) -> Result<(), ControlError> {
    let pipe = &pipe;
    pipe.write(INT_EP_CTL, 0).await?;
    pipe.write(FCT_TX_CTL, 0).await?;
    pipe.until(FCT_TX_CTL, fct::DISABLED, fct::DISABLED).await?;
    pipe.modify(MAC_TX, mac_tx::ENABLE, 0).await?;
    pipe.until(MAC_TX, mac_tx::DISABLED, mac_tx::DISABLED).await?;
    pipe.modify(MAC_RX, mac_rx::ENABLE, 0).await?;
    pipe.until(MAC_RX, mac_rx::DISABLED, mac_rx::DISABLED).await?;
    pipe.write(FCT_RX_CTL, 0).await?;
    pipe.until(FCT_RX_CTL, fct::DISABLED, fct::DISABLED).await.map(drop)
}

/// Reads the block of statistics.
pub(super) async fn read_statistics(pipe: &Pipe) -> Result<Block, ControlError> {
    let length = u16::try_from(STATISTICS_BYTES).unwrap_or(u16::MAX);
    let setup = Setup { kind: Setup::VENDOR, request: GET_STATISTICS, value: 0, index: 0, length };
    let bytes = pipe.get(setup).await?;
    let block = bytes.first_chunk().map(Block::read);
    block.ok_or(ControlError::Length { expected: STATISTICS_BYTES, found: bytes.len() })
}

async fn identify(pipe: &Pipe, chip: Chip) -> Result<u16, InitError> {
    let [a, b, c, d] = pipe.read(ID_REV).await?.to_be_bytes();
    let (register, revision) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
    if register == chip.product() {
        return Ok(revision);
    }
    Err(InitError::Identity { descriptor: chip.product(), register })
}

async fn find_address(
    pipe: &Pipe,
    chip: Chip,
    wanted: &Wanted,
) -> Result<([u8; 6], MacSource), ControlError> {
    let [a, b, c, d] = pipe.read(RX_ADDRL).await?.to_le_bytes();
    let [e, f, ..] = pipe.read(RX_ADDRH).await?.to_le_bytes();
    let in_registers = [a, b, c, d, e, f];
    let (mac, source) = if let Some(mac) = wanted.mac {
        (mac, MacSource::Configuration)
    } else if is_valid(in_registers) {
        (in_registers, MacSource::Registers)
    } else if let Some(mac) = address_in_eeprom(pipe, chip).await?.filter(|&mac| is_valid(mac)) {
        (mac, MacSource::Eeprom)
    } else if let Some(mac) = address_in_otp(pipe).await?.filter(|&mac| is_valid(mac)) {
        (mac, MacSource::Otp)
    } else {
        (wanted.random, MacSource::Random)
    };
    let [a, b, c, d, e, f] = mac;
    let (low, high) = (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, 0, 0]));
    pipe.write(RX_ADDRL, low).await?;
    pipe.write(RX_ADDRH, high).await?;
    pipe.write(maf_lo(0), low).await?;
    pipe.write(maf_hi(0), high | MAF_VALID).await?;
    Ok((mac, source))
}

/// True for a valid unicast address.
fn is_valid(mac: [u8; 6]) -> bool {
    mac[0] & 1 == 0 && mac != [0; 6]
}

/// Reads the address in the EEPROM. On a LAN7800 the EEPROM shares pins with two LEDs, which are dark
/// meanwhile.
async fn address_in_eeprom(pipe: &Pipe, chip: Chip) -> Result<Option<[u8; 6]>, ControlError> {
    let configuration = pipe.read(HW_CFG).await?;
    let shares_pins = chip == Chip::Lan7800 && configuration & hw_cfg::LEDS_OF_EEPROM != 0;
    if shares_pins {
        pipe.write(HW_CFG, configuration & !hw_cfg::LEDS_OF_EEPROM).await?;
    }
    let mac = read_address_in_eeprom(pipe).await;
    if shares_pins {
        pipe.write(HW_CFG, configuration).await?;
    }
    mac
}

async fn read_address_in_eeprom(pipe: &Pipe) -> Result<Option<[u8; 6]>, ControlError> {
    if read_eeprom(pipe, 0).await? != Some(EEPROM_SIGNATURE) {
        return Ok(None);
    }
    let mut mac = [0; 6];
    for (byte, address) in mac.iter_mut().zip(MAC_OFFSET..) {
        let Some(value) = read_eeprom(pipe, address).await? else { return Ok(None) };
        *byte = value;
    }
    Ok(Some(mac))
}

/// Reads a byte of the EEPROM; `None` if there is none, or it stays busy.
async fn read_eeprom(pipe: &Pipe, address: u16) -> Result<Option<u8>, ControlError> {
    pipe.write(E2P_CMD, e2p_cmd::BUSY | u32::from(address) & e2p_cmd::ADDRESS).await?;
    let answer = match pipe.until(E2P_CMD, e2p_cmd::BUSY, 0).await {
        Err(ControlError::Busy(_)) => return Ok(None),
        answer => answer?,
    };
    if answer & e2p_cmd::TIMEOUT != 0 {
        return Ok(None);
    }
    let [byte, ..] = pipe.read(E2P_DATA).await?.to_le_bytes();
    Ok(Some(byte))
}

async fn address_in_otp(pipe: &Pipe) -> Result<Option<[u8; 6]>, ControlError> {
    let base = match read_otp(pipe, 0).await? {
        OTP_SIGNATURE_1 => 0,
        OTP_SIGNATURE_2 => OTP_SECOND,
        _ => return Ok(None),
    };
    let mut mac = [0; 6];
    for (byte, address) in mac.iter_mut().zip(base + MAC_OFFSET..) {
        *byte = read_otp(pipe, address).await?;
    }
    Ok(Some(mac))
}

async fn read_otp(pipe: &Pipe, address: u16) -> Result<u8, ControlError> {
    pipe.modify(OTP_PWR_DN, 1, 0).await?;
    let [high, low] = address.to_be_bytes();
    pipe.write(OTP_ADDR1, u32::from(high)).await?;
    pipe.write(OTP_ADDR2, u32::from(low)).await?;
    pipe.write(OTP_FUNC_CMD, 1).await?;
    pipe.write(OTP_CMD_GO, 1).await?;
    pipe.until(OTP_STATUS, 1, 0).await?;
    let [byte, ..] = pipe.read(OTP_RD_DATA).await?.to_le_bytes();
    Ok(byte)
}

async fn set_up_bus(pipe: &Pipe, wanted: &Wanted) -> Result<(), ControlError> {
    pipe.modify(USB_CFG0, 0, usb_cfg0::NAK_WHEN_EMPTY).await?;
    pipe.modify(USB_CFG1, LTM, 0).await?;
    for word in 0..6 {
        pipe.write(LTM_BELT_IDLE0.behind(word), 0).await?;
    }
    pipe.write(BURST_CAP, BURST).await?;
    let delay = u32::from(wanted.gather_us) * DELAY_CYCLES;
    pipe.write(BULK_IN_DLY, delay.min(LONGEST_DELAY)).await?;
    pipe.modify(HW_CFG, 0, hw_cfg::MULTIPLE_FRAMES).await?;
    pipe.modify(USB_CFG0, 0, usb_cfg0::BURST_CAP_ON).await
}

async fn set_filters(pipe: &Pipe, wanted: &Wanted, own: [u8; 6]) -> Result<(), ControlError> {
    let mut control = rfe_ctl::BROADCAST
        | rfe_ctl::PERFECT
        | rfe_ctl::IP_CHECKSUM
        | rfe_ctl::TRANSPORT_CHECKSUM
        | rfe_ctl::ICMP_CHECKSUM
        | rfe_ctl::IGMP_CHECKSUM;
    if wanted.strip_tags {
        control |= rfe_ctl::VLAN_STRIP;
    }
    match &wanted.receive {
        ReceiveFilter::All => control |= rfe_ctl::ALL_UNICAST | rfe_ctl::ALL_MULTICAST,
        ReceiveFilter::Addresses { addresses, vlans } => {
            let rest = set_perfect_filters(pipe, addresses, own).await?;
            let mut memory = [0; (VLAN_WORDS + HASH_WORDS) as usize];
            for bit in rest.iter().map(|&address| hash(address)) {
                memory[(VLAN_WORDS + bit / 32) as usize] |= 1 << (bit % 32);
            }
            if !rest.is_empty() {
                control |= rfe_ctl::MULTICAST_HASH | rfe_ctl::UNICAST_HASH;
            }
            for &vlan in vlans.iter().flatten() {
                memory[usize::from(vlan / 32) % VLAN_WORDS as usize] |= 1 << (vlan % 32);
            }
            if vlans.is_some() {
                control |= rfe_ctl::VLAN_FILTER;
            }
            write_filter_memory(pipe, &memory).await?;
        }
    }
    pipe.write(RFE_CTL, control).await
}

/// Fills the perfect filters after the adapter's own address; returns the addresses without a filter.
async fn set_perfect_filters<'a>(
    pipe: &Pipe,
    addresses: &'a [[u8; 6]],
    own: [u8; 6],
) -> Result<&'a [[u8; 6]], ControlError> {
    let perfect = addresses.len().min(usize::from(super::regs::FILTERS) - 1);
    for (index, &[a, b, c, d, e, f]) in (1..).zip(addresses[..perfect].iter().filter(|&&mac| mac != own)) {
        pipe.write(maf_hi(index), 0).await?;
        pipe.write(maf_lo(index), u32::from_le_bytes([a, b, c, d])).await?;
        pipe.write(maf_hi(index), u32::from_le_bytes([e, f, 0, 0]) | MAF_VALID).await?;
    }
    Ok(&addresses[perfect..])
}

async fn write_filter_memory(pipe: &Pipe, memory: &[u32]) -> Result<(), ControlError> {
    pipe.until(DP_SEL, dp_sel::READY, dp_sel::READY).await?;
    pipe.modify(DP_SEL, dp_sel::SELECT, dp_sel::VLAN_DA).await?;
    for (address, &word) in (0..).zip(memory) {
        pipe.write(DP_ADDR, address).await?;
        pipe.write(DP_DATA, word).await?;
        pipe.write(DP_CMD, DP_WRITE).await?;
        pipe.until(DP_SEL, dp_sel::READY, dp_sel::READY).await?;
    }
    Ok(())
}

/// Returns the bit of an address in the hash filter: the first nine bits of its CRC.
fn hash(address: [u8; 6]) -> u32 {
    let mut crc = u32::MAX;
    for byte in address {
        for bit in 0..8 {
            let odd = (crc >> 31) ^ u32::from(byte >> bit & 1) == 1;
            crc = crc << 1 ^ if odd { 0x04c1_1db7 } else { 0 };
        }
    }
    crc >> 23
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_nobody_has() {
        assert!(is_valid([2, 0, 0, 0, 0, 1]));
        for mac in [[0; 6], [0xff; 6], [1, 0, 0, 0, 0, 1]] {
            assert!(!is_valid(mac));
        }
    }
}
