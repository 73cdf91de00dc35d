//! Modems of the Mobile Broadband Interface Model: IP packets of sessions, and a dialogue over control messages.
//!
//! | file | contents |
//! |---|---|
//! | `message` `service` | control messages, fragments, information of commands |
//! | `session` | the dialogue, as a state machine without I/O |
//! | `init` `function` `frames` | bring-up in numbered steps, control transfers, packets in blocks |
//! | `status` | published status of a port, orders to the modem |
//! | `model` | a modem in software |
//!
//! A port's packets have an Ethernet header only inside the gateway, with one neighbour. Session 0 is the port,
//! session n its VLAN n.
//!
//! **Not supported: SMS, USSD, phone book, STK, multi-carrier providers, device service streams.**
//!
//! Source: MBIM 1.0 with errata 1.

mod ip;
pub mod message;
pub mod service;
pub mod session;
mod state;

mod frames;
mod function;
mod init;
mod status;

#[cfg(feature = "models")]
pub mod model;

pub use session::{ModemState, SessionState, Step, Wanted};
pub use status::{Modem, ModemStatus, PortStatus};

use super::{NetworkFunction, OpenError, Options, Subclass};
use crate::AnyQueue;
use crate::usb::{self, Transport, random_mac};
use frames::Stations;
use function::MbimFunction;
use std::sync::Arc;

/// An open port of a modem.
pub struct Mbim {
    /// MAC address of the port inside the gateway.
    pub mac: [u8; 6],
    /// MAC address of its only neighbour.
    pub neighbour: [u8; 6],
    /// MTU.
    pub mtu: u16,
    /// Published status of the port.
    pub status: Arc<PortStatus>,
    /// The only queue.
    pub queue: AnyQueue,
}

impl core::fmt::Debug for Mbim {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.debug_struct("Mbim").field("status", &self.status).finish_non_exhaustive()
    }
}

/// Brings up the modem `function` of the device with vendor ID and product ID `identity` behind `transport`, and starts
/// the dialogue that connects it as `wanted`. The link is up from the first session on.
///
/// # Errors
/// [`OpenError`], whose text names the remedy.
pub fn open(
    transport: Box<dyn Transport>,
    function: NetworkFunction,
    identity: (u16, u16),
    options: &Options,
    wanted: Wanted,
) -> Result<Mbim, OpenError> {
    let speed = transport.speed();
    let mac = options.mac.unwrap_or_else(|| random_mac(&transport.place()));
    let settings = options.settings(Subclass::Mbim, speed);
    let blocks = (options.blocks(), wanted);
    let function = MbimFunction::new(function, identity, blocks, (options.mtu, mac), speed);
    let usb::OpenFunction { found, status, queue } = usb::open(transport, function, &settings)?;
    let Stations { near, far } = found.stations;
    Ok(Mbim { mac: near, neighbour: far, mtu: found.mtu, status, queue })
}
