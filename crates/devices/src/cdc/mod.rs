//! Network functions of the USB Communications Device Class, driven from user space: docks, phones, modems.
//!
//! | subclass | frames per transfer |
//! |---|---|
//! | NCM ([`Subclass::Ncm`]) | many, in a block ([`ntb`]) |
//! | ECM ([`Subclass::Ecm`]) | one |
//! | MBIM ([`mbim`]) | many IP packets, in blocks |
//!
//! The class-specific part of a port; [`usb`] carries the transfers.
//!
//! | file | contents |
//! |---|---|
//! | `descriptor` `request` `ntb` | formats |
//! | `quirks` | devices that deviate from the specification |
//! | `init` `function` `frames` | bring-up in numbered steps, dialogues, frames in transfers |
//! | `status` | published status of a port |
//! | [`mbim`] | modems: control messages, sessions, packets without Ethernet |
//! | `model` | a function in software |
//!
//! **Not supported: RNDIS, statistics of the device, power management.**
//!
//! Source: CDC 1.2, ECM 1.2, NCM 1.0 with errata 1, MBIM 1.0 with errata 1.

pub mod descriptor;
pub mod mbim;
pub mod ntb;
pub mod quirks;
pub mod request;

mod frames;
mod function;
mod init;
mod status;

#[cfg(feature = "models")]
pub mod model;

pub use descriptor::{NetworkFunction, Subclass, network_function};
pub use init::{InitError, Ntb};
pub use ntb::Format;
pub use status::{BlockCounters, FunctionStatus, PortProperties, PortStatus, Properties};

use crate::usb::{self, Settings, Speed, Techniques, Transport, random_mac, urbs_within};
use crate::{Abilities, AnyQueue, Receiving};
use function::CdcFunction;
use init::Wanted;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Options of opening a port.
#[derive(Clone, Debug)]
pub struct Options {
    /// MTU; `None` for the function's maximum, up to 1500.
    pub mtu: Option<u16>,
    /// MAC address to use instead of the function's own.
    pub mac: Option<[u8; 6]>,
    /// Width of block fields; `None` for 16 bits if the device supports them.
    pub format: Option<Format>,
    /// True to use datagram checksums if the device supports them.
    pub crc: bool,
    /// Maximum bytes of a block in each direction; `None` for 16 KiB at high speed and 32 KiB at SuperSpeed.
    pub block_bytes: Option<u32>,
    /// Number of bulk-in URBs in flight.
    pub receive_urbs: Option<usize>,
    /// Number of bulk-out URBs in flight.
    pub send_urbs: Option<usize>,
    /// Maximum number of packets that wait for a bulk-out URB.
    pub pending: usize,
    /// Threshold for resubmitting URBs, and treatment of small packets.
    pub receiving: Receiving,
    /// Techniques of source A.
    pub techniques: Techniques,
    /// C3: control messages have memory of their own and are handled before received data; off: they share
    /// the memory of received transfers, in order of arrival.
    pub own_control: bool,
    /// Cancels opening when set.
    pub cancelled: Arc<AtomicBool>,
}

impl Default for Options {
    /// Returns the device's own values, and all techniques on.
    fn default() -> Self {
        Self {
            mtu: None,
            mac: None,
            format: None,
            crc: false,
            block_bytes: None,
            receive_urbs: None,
            send_urbs: None,
            pending: 256,
            receiving: Receiving { refill_below_percent: 100, ..Receiving::default() },
            techniques: Techniques::ON,
            own_control: true,
            cancelled: Arc::default(),
        }
    }
}

impl Options {
    const fn blocks(&self) -> init::Settings {
        init::Settings { format: self.format, crc: self.crc, block_bytes: self.block_bytes }
    }

    fn settings(&self, subclass: Subclass, speed: Speed) -> Settings {
        let receive = match (subclass, speed) {
            (Subclass::Ecm, _) => 60,
            (Subclass::Ncm | Subclass::Mbim, Speed::High) => 10,
            (Subclass::Ncm | Subclass::Mbim, Speed::Super) => 30,
        };
        let packs = subclass != Subclass::Ecm && self.techniques.pending_queue;
        Settings {
            receive_urbs: urbs_within(self.receive_urbs, receive),
            // With one packet per URB, as many as the pending queue would hold.
            send_urbs: urbs_within(self.send_urbs, if packs { 4 } else { 64 }),
            pending: self.pending,
            receiving: self.receiving,
            techniques: self.techniques,
            own_control: self.own_control,
            cancelled: Arc::clone(&self.cancelled),
        }
    }
}

/// Reason why a function could not be opened.
pub type OpenError = usb::OpenError<InitError>;

/// An open port.
pub struct Cdc {
    /// Its MAC address.
    pub mac: [u8; 6],
    /// MTU.
    pub mtu: u16,
    /// Published status of the port.
    pub status: Arc<PortStatus>,
    /// The only queue.
    pub queue: AnyQueue,
}

impl core::fmt::Debug for Cdc {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.debug_struct("Cdc").field("status", &self.status).finish_non_exhaustive()
    }
}

impl Cdc {
    /// Partial checksums are completed here in software; super-packets are not accepted.
    pub const ABILITIES: Abilities = Abilities { partial_checksums: true, segments: false };
}

/// Brings up `function` of the device with vendor ID and product ID `identity` behind `transport`. Frames are
/// taken from the pools that the queue is polled with.
///
/// # Errors
/// [`OpenError`], whose text names the remedy.
pub fn open(
    transport: Box<dyn Transport>,
    function: NetworkFunction,
    identity: (u16, u16),
    options: &Options,
) -> Result<Cdc, OpenError> {
    let speed = transport.speed();
    let wanted = Wanted {
        mtu: options.mtu,
        mac: options.mac,
        blocks: options.blocks(),
        random: random_mac(&transport.place()),
    };
    let settings = options.settings(function.subclass, speed);
    let function = CdcFunction::new(function, identity, wanted, speed);
    let usb::OpenFunction { found, status, queue } = usb::open(transport, function, &settings)?;
    Ok(Cdc { mac: found.mac, mtu: found.mtu, status, queue })
}
