//! Bringing up and stopping an MBIM function, in numbered steps (MBIM 1.0, sections 6 and 8).

use super::super::descriptor::NetworkFunction;
use super::super::init::{InitError, Ntb, Settings, negotiate, unless_refused};
use super::super::quirks::{Quirks, quirks};
use super::super::request::{GET_RESPONSE, RESET_FUNCTION, SEND_COMMAND};
use super::frames::Stations;
use super::message::{Request, fragments};
use crate::usb::control::{CONTROL_BYTES, ControlError, Pipe};
use crate::usb::{SMALLEST_MTU, Setup, Speed};

/// Properties of a function that is up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DeviceProperties {
    pub(super) function: NetworkFunction,
    pub(super) stations: Stations,
    pub(super) mtu: u16,
    pub(super) ntb: Ntb,
    pub(super) quirks: Quirks,
}

/// Returns the maximum control transfer of a function, in bytes.
pub(super) fn message_bytes(function: &NetworkFunction) -> usize {
    usize::from(function.message_bytes).min(CONTROL_BYTES)
}

/// Brings the function up. The dialogue with the modem follows afterwards, since it may take minutes.
pub(super) async fn bring_up(
    pipe: Pipe,
    function: NetworkFunction,
    identity: (u16, u16),
    wanted: (Settings, Option<u16>, [u8; 6]),
    speed: Speed,
) -> Result<DeviceProperties, InitError> {
    let pipe = &pipe;
    let (settings, mtu, mac) = wanted;
    let largest = function.longest;
    let mtu = mtu.unwrap_or(largest.min(1500));
    if mtu < SMALLEST_MTU || mtu > largest {
        return Err(InitError::Mtu { mtu, largest });
    }
    // 1. The configuration is selected, and the MBIM half of a dual function, without data.
    pipe.set_configuration(function.configuration).await?;
    if function.control_setting != 0 {
        pipe.set_interface(function.control, function.control_setting).await?;
    }
    pipe.set_interface(function.data, 0).await?;
    // 2. Sessions that another host has left open are closed.
    unless_refused(pipe.set(to_control(&function, RESET_FUNCTION, 0)).await)?;
    // 3. Block parameters are negotiated.
    let ntb = negotiate(pipe, &function, &settings, speed).await?;
    // 4. Data is enabled.
    pipe.set_interface(function.data, function.setting).await?;
    let quirks = quirks(identity.0, identity.1);
    Ok(DeviceProperties { function, stations: Stations::of(mac), mtu, ntb, quirks })
}

/// Sends a fragment of a control message.
pub(super) async fn send(
    pipe: Pipe,
    function: NetworkFunction,
    fragment: Vec<u8>,
) -> Result<(), ControlError> {
    let length = u16::try_from(fragment.len()).unwrap_or(u16::MAX);
    pipe.put(to_control(&function, SEND_COMMAND, length), &fragment).await
}

/// Reads a fragment that the function has for the host; empty if there is none.
pub(super) async fn fetch(pipe: Pipe, function: NetworkFunction) -> Result<Vec<u8>, ControlError> {
    let length = u16::try_from(message_bytes(&function)).unwrap_or(u16::MAX);
    pipe.get(to_control(&function, GET_RESPONSE, length)).await
}

/// Closes the function, and stops the data flow.
pub(super) async fn stop_device(pipe: Pipe, function: NetworkFunction) -> Result<(), ControlError> {
    let close = fragments(&Request::Close, u32::MAX, message_bytes(&function));
    for fragment in close {
        send(pipe.clone(), function, fragment).await?;
    }
    pipe.set_interface(function.data, 0).await
}

fn to_control(function: &NetworkFunction, request: u8, length: u16) -> Setup {
    let (kind, index) = (Setup::CLASS | Setup::TO_INTERFACE, u16::from(function.control));
    Setup { kind, request, value: 0, index, length }
}
