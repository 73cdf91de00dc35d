//! Bringing up and stopping a CDC network function, in numbered steps (NCM 1.0, section 7.2).

use super::descriptor::{NetworkFunction, Subclass, capability};
use super::ntb::Format;
use super::quirks::{Quirks, quirks};
use super::request::{
    ALL_FRAMES, GET_NTB_PARAMETERS, NtbParameters, PARAMETER_BYTES, SET_CRC_MODE, SET_MAX_DATAGRAM_SIZE,
    SET_NET_ADDRESS, SET_NTB_FORMAT, SET_NTB_INPUT_SIZE, SET_PACKET_FILTER, SMALLEST_BLOCK,
};
use crate::usb::control::{ControlError, Pipe};
use crate::usb::descriptor::STRING;
use crate::usb::{Setup, Speed, Status};

/// Bytes of an Ethernet header.
const HEADER: u16 = 14;
/// Bits of `formats`.
const NTB16: u16 = 1;
const NTB32: u16 = 2;

/// Settings of blocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    pub(super) format: Option<Format>,
    pub(super) crc: bool,
    /// Maximum block size in each direction, in bytes.
    pub(super) block_bytes: Option<u32>,
}

/// Settings of a function.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    pub(super) mtu: Option<u16>,
    pub(super) mac: Option<[u8; 6]>,
    pub(super) blocks: Settings,
    /// MAC address to use if the function has none.
    pub(super) random: [u8; 6],
}

/// Block parameters of an NCM function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ntb {
    /// Width of the fields.
    pub format: Format,
    /// The device's answer.
    pub parameters: NtbParameters,
    /// Maximum bytes of a block to the host.
    pub in_bytes: u32,
    /// Maximum bytes of a block to the device.
    pub out_bytes: u32,
    /// True if datagrams have checksums.
    pub has_crc: bool,
}

/// Properties of a function that is up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DeviceProperties {
    pub(super) function: NetworkFunction,
    pub(super) identity: (u16, u16),
    pub(super) mac: [u8; 6],
    pub(super) mtu: u16,
    pub(super) ntb: Option<Ntb>,
    pub(super) quirks: Quirks,
}

/// Reason why a function could not be brought up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InitError {
    /// A control request was refused or failed.
    #[error("{0}; unplug the device and plug it in again")]
    Control(#[from] ControlError),
    /// The device's parameters leave no room for a frame.
    #[error(
        "the USB device's transfer blocks (NTB) are too small for a frame: {in_bytes} bytes received, {out_bytes} sent"
    )]
    Parameters {
        /// Bytes of a block to the host.
        in_bytes: u32,
        /// Bytes of a block to the device.
        out_bytes: u32,
    },
    /// The device does not support the format.
    #[error("the USB device has no {} function", .0.name())]
    Format(Format),
    /// The MTU is out of range.
    #[error("invalid MTU of {mtu} bytes: the USB device supports 68 to {largest}")]
    Mtu {
        /// Requested MTU.
        mtu: u16,
        /// The largest MTU.
        largest: u16,
    },
}

/// Brings the function up.
pub(super) async fn bring_up(
    pipe: Pipe,
    function: NetworkFunction,
    identity: (u16, u16),
    wanted: Wanted,
    speed: Speed,
) -> Result<DeviceProperties, InitError> {
    let pipe = &pipe;
    let mtu = mtu_of(&function, &wanted)?;
    // 1. The configuration is selected, without data: only then blocks may be negotiated.
    pipe.set_configuration(function.configuration).await?;
    pipe.set_interface(function.data, 0).await?;
    // 2. Block parameters are negotiated.
    let ntb = match function.subclass {
        Subclass::Ncm => Some(negotiate(pipe, &function, &wanted.blocks, speed).await?),
        Subclass::Ecm | Subclass::Mbim => None,
    };
    // 3. The MAC address is determined.
    let mac = find_address(pipe, &function, &wanted).await?;
    // 4. All frames are let through, as a bridge needs; a function without filters has no such request.
    let has_filter = function.capabilities & capability::PACKET_FILTER != 0;
    if function.subclass == Subclass::Ecm || has_filter {
        unless_refused(pipe.set(to_control(&function, SET_PACKET_FILTER, ALL_FRAMES, 0)).await)?;
    }
    // 5. Data is enabled.
    pipe.set_interface(function.data, function.setting).await?;
    let quirks = quirks(identity.0, identity.1);
    Ok(DeviceProperties { function, identity, mac, mtu, ntb, quirks })
}

/// Stops the data flow.
pub(super) async fn stop_device(pipe: Pipe, function: NetworkFunction) -> Result<(), ControlError> {
    pipe.set_interface(function.data, 0).await
}

/// Requests the device status, which is independent of the link (USB 2.0, 9.4.5).
pub(super) async fn ask_status(pipe: Pipe) -> Result<(), ControlError> {
    let setup = Setup { kind: Setup::IN, request: 0, value: 0, index: 0, length: 2 };
    pipe.get(setup).await.map(drop)
}

fn mtu_of(function: &NetworkFunction, wanted: &Wanted) -> Result<u16, InitError> {
    let largest = function.longest.saturating_sub(HEADER);
    let mtu = wanted.mtu.unwrap_or(largest.min(1500));
    if mtu < crate::usb::SMALLEST_MTU || mtu > largest {
        return Err(InitError::Mtu { mtu, largest });
    }
    Ok(mtu)
}

fn to_control(function: &NetworkFunction, request: u8, value: u16, length: u16) -> Setup {
    let (kind, index) = (Setup::CLASS | Setup::TO_INTERFACE, u16::from(function.control));
    Setup { kind, request, value, index, length }
}

/// Ignores the refusal of an optional request.
pub(super) fn unless_refused(result: Result<(), ControlError>) -> Result<(), ControlError> {
    match result {
        Err(ControlError::Failed(Status::Stall)) => Ok(()),
        result => result,
    }
}

/// Negotiates format, sizes and checksums.
pub(super) async fn negotiate(
    pipe: &Pipe,
    function: &NetworkFunction,
    wanted: &Settings,
    speed: Speed,
) -> Result<Ntb, InitError> {
    // 2a. The device's parameters are read.
    let length = u16::try_from(PARAMETER_BYTES).unwrap_or(u16::MAX);
    let answer = pipe.get(to_control(function, GET_NTB_PARAMETERS, 0, length)).await?;
    let found = answer.len();
    let parameters = NtbParameters::read(&answer);
    let parameters = parameters.ok_or(ControlError::Length { expected: PARAMETER_BYTES, found })?;
    let NtbParameters { in_bytes, out_bytes, .. } = parameters;
    if in_bytes < SMALLEST_BLOCK || out_bytes < SMALLEST_BLOCK {
        return Err(InitError::Parameters { in_bytes, out_bytes });
    }
    // 2b. Checksums are set.
    let has_crc = wanted.crc && function.capabilities & capability::CRC_MODE != 0;
    if function.capabilities & capability::CRC_MODE != 0 {
        unless_refused(pipe.set(to_control(function, SET_CRC_MODE, u16::from(has_crc), 0)).await)?;
    }
    // 2c. The format is set. A device with only one format may lack the request.
    let format = choose_format(parameters.formats, wanted.format)?;
    if parameters.formats & NTB32 != 0 {
        let value = match format {
            Format::Ntb16 => 0,
            Format::Ntb32 => 1,
        };
        pipe.set(to_control(function, SET_NTB_FORMAT, value, 0)).await?;
    }
    // 2d. The block size is set. The device starts with its maximum.
    let usual = match speed {
        Speed::High => 16 * 1024,
        Speed::Super => 32 * 1024,
    };
    let limit = wanted.block_bytes.unwrap_or(usual).max(SMALLEST_BLOCK);
    let limit = limit.min(u32::try_from(format.largest()).unwrap_or(u32::MAX));
    let (wanted_in, out) = (in_bytes.min(limit), out_bytes.min(limit));
    if wanted_in != in_bytes {
        set_input_size(pipe, function, wanted_in).await?;
    }
    // 2e. The frame length is set to the function's maximum.
    if function.capabilities & capability::MAX_DATAGRAM_SIZE != 0 {
        let setup = to_control(function, SET_MAX_DATAGRAM_SIZE, 0, 2);
        unless_refused(pipe.put(setup, &function.longest.to_le_bytes()).await)?;
    }
    Ok(Ntb { format, parameters, in_bytes: wanted_in, out_bytes: out, has_crc })
}

fn choose_format(formats: u16, wanted: Option<Format>) -> Result<Format, InitError> {
    let has = |format| match format {
        // Every device supports it (NCM 1.0, table 6-3).
        Format::Ntb16 => formats & NTB16 != 0 || formats & NTB32 == 0,
        Format::Ntb32 => formats & NTB32 != 0,
    };
    let format = wanted.unwrap_or(if has(Format::Ntb16) { Format::Ntb16 } else { Format::Ntb32 });
    if has(format) { Ok(format) } else { Err(InitError::Format(format)) }
}

async fn set_input_size(pipe: &Pipe, function: &NetworkFunction, bytes: u32) -> Result<(), ControlError> {
    let [a, b, c, d] = bytes.to_le_bytes();
    // The longer form also has a limit of datagrams; 0 is none.
    let data = [a, b, c, d, 0, 0, 0, 0];
    let length = if function.capabilities & capability::NTB_INPUT_SIZE_8 != 0 { 8 } else { 4 };
    pipe.put(to_control(function, SET_NTB_INPUT_SIZE, 0, length), &data[..usize::from(length)]).await
}

async fn find_address(
    pipe: &Pipe,
    function: &NetworkFunction,
    wanted: &Wanted,
) -> Result<[u8; 6], ControlError> {
    if let Some(mac) = wanted.mac {
        if function.capabilities & capability::NET_ADDRESS != 0 {
            let setup = to_control(function, SET_NET_ADDRESS, 0, 6);
            unless_refused(pipe.put(setup, &mac).await)?;
        }
        return Ok(mac);
    }
    let text = match pipe.descriptor(STRING, function.mac_string, 255).await {
        Err(ControlError::Failed(Status::Stall)) => Vec::new(),
        text => text?,
    };
    let own = address_of(&text).filter(|mac| mac[0] & 1 == 0 && *mac != [0; 6]);
    Ok(own.unwrap_or(wanted.random))
}

/// Returns the MAC address in a string descriptor: twelve hexadecimal digits.
pub(super) fn address_of(descriptor: &[u8]) -> Option<[u8; 6]> {
    let [length, STRING, text @ ..] = descriptor else { return None };
    let text = text.get(..usize::from(*length).checked_sub(2)?)?;
    let mut digits = text.as_chunks::<2>().0.iter().map(|&unit| {
        let unit = u32::from(u16::from_le_bytes(unit));
        char::from_u32(unit).and_then(|digit| digit.to_digit(16)).and_then(|digit| u8::try_from(digit).ok())
    });
    let mut mac = [0; 6];
    for byte in &mut mac {
        *byte = digits.next()?? << 4 | digits.next()??;
    }
    digits.next().is_none().then_some(mac)
}
