//! LAN7800, LAN7801 and LAN7850: USB Ethernet adapters, driven from user space.
//!
//! A user of [`usb`], which carries transfers; what is here is the adapter's own.
//!
//! | file | what it is |
//! |---|---|
//! | `regs` `frame` `descriptor` `statistics` | formats, once for the driver and the model |
//! | `control` `phy` `init` | registers, the link, the numbered list |
//! | `function` `rx` `tx` `checksum` | dialogues, and frames in transfers |
//! | `status` | what a port shows of itself |
//! | `model` | the device in software |
//!
//! **Not supported: TSO, suspend, wake-up.** What was never tried on silicon is in
//! docs/hardware/lan78xx.md: all of it.

pub mod descriptor;
pub mod frame;
pub mod regs;
pub mod statistics;

mod checksum;
mod control;
mod function;
mod init;
mod phy;
mod rx;
mod status;
mod tx;

#[cfg(feature = "models")]
pub mod model;

pub use crate::usb::{ControlError, Techniques};
pub use init::{InitError, MacSource, ReceiveFilter};
pub use phy::Phy;
pub use status::{AdapterStatus, ChecksumCounters, Facts, PortStatus};

use crate::usb::{self, HEADERS, SMALLEST_MTU, Settings, Speed, Transport, random_mac, urbs_within};
use crate::{Abilities, AnyQueue, Receiving};
use function::Lan78xxFunction;
use init::Wanted;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Longest frame that the driver asks for, in bytes, Ethernet header included, FCS excluded.
const LONGEST_FRAME: u16 = 9000;
/// The largest MTU.
pub const LARGEST_MTU: u16 = LONGEST_FRAME - HEADERS;

/// Options of opening a port.
#[derive(Clone, Debug)]
pub struct Options {
    /// Longest network packet, at most [`LARGEST_MTU`].
    pub mtu: u16,
    /// The address to use in place of the adapter's own.
    pub mac: Option<[u8; 6]>,
    /// Frames that are received.
    pub receive: ReceiveFilter,
    /// True if pause frames are offered to the partner.
    pub flow_control: bool,
    /// True if the adapter takes tags out of frames and puts them in.
    pub vlan_offload: bool,
    /// Time for which the adapter holds a short transfer back, in the hope of more frames, in microseconds; at most 1092.
    pub gather_us: u16,
    /// Bulk-in URBs in flight; as Linux has them if none is said.
    pub receive_urbs: Option<usize>,
    /// Bulk-out URBs in flight.
    pub send_urbs: Option<usize>,
    /// Packets that wait for a bulk-out URB, at most.
    pub pending: usize,
    /// Threshold for returning URBs to the bus, and treatment of small packets.
    pub receiving: Receiving,
    /// Techniques of source A.
    pub techniques: Techniques,
    /// Gives up opening when it is set.
    pub cancelled: Arc<AtomicBool>,
}

impl Default for Options {
    /// MTU 1500, all frames, pause frames, all techniques.
    fn default() -> Self {
        Self {
            mtu: 1500,
            mac: None,
            receive: ReceiveFilter::All,
            flow_control: true,
            vlan_offload: false,
            gather_us: 136,
            receive_urbs: None,
            send_urbs: None,
            pending: 128,
            receiving: Receiving { refill_below_percent: 100, ..Receiving::default() },
            techniques: Techniques::ON,
            cancelled: Arc::default(),
        }
    }
}

impl Options {
    /// URBs in flight, in and out.
    fn urbs(&self, speed: Speed) -> (usize, usize) {
        let receive = match speed {
            Speed::High => 10,
            Speed::Super => 30,
        };
        // With one packet in each, as many as the pending queue would hold.
        let send = if self.techniques.pending_queue { 4 } else { 64 };
        (urbs_within(self.receive_urbs, receive), urbs_within(self.send_urbs, send))
    }

    fn settings(&self, speed: Speed) -> Settings {
        let (receive_urbs, send_urbs) = self.urbs(speed);
        Settings {
            receive_urbs,
            send_urbs,
            pending: self.pending,
            receiving: self.receiving,
            techniques: self.techniques,
            own_control: true,
            cancelled: Arc::clone(&self.cancelled),
        }
    }
}

/// Reason why an adapter could not be opened.
pub type OpenError = usb::OpenError<InitError>;

/// An open port.
pub struct Lan78xx {
    /// Its MAC address.
    pub mac: [u8; 6],
    /// Longest network packet.
    pub mtu: u16,
    /// Published status of the port.
    pub status: Arc<PortStatus>,
    /// The one queue.
    pub queue: AnyQueue,
}

impl core::fmt::Debug for Lan78xx {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.debug_struct("Lan78xx").field("status", &self.status).finish_non_exhaustive()
    }
}

impl Lan78xx {
    /// The adapter completes checksums; it is not asked to cut segments.
    pub const ABILITIES: Abilities = Abilities { partial_checksums: true, segments: false };
}

/// Brings up the adapter behind `transport`. Frames come from the pools that the queue is polled with.
///
/// # Errors
/// [`OpenError`] says what to do next.
pub fn open(transport: Box<dyn Transport>, options: &Options) -> Result<Lan78xx, OpenError> {
    if !(SMALLEST_MTU..=LARGEST_MTU).contains(&options.mtu) {
        return Err(OpenError::Mtu { mtu: options.mtu, kind: "LAN78xx", largest: LARGEST_MTU });
    }
    let wanted = Wanted {
        mtu: options.mtu,
        mac: options.mac,
        receive: options.receive.clone(),
        pause: options.flow_control,
        strip_tags: options.vlan_offload,
        gather_us: options.gather_us,
        random: random_mac(&transport.place()),
    };
    let settings = options.settings(transport.speed());
    let usb::OpenFunction { found, status, queue } =
        usb::open(transport, Lan78xxFunction::new(wanted), &settings)?;
    Ok(Lan78xx { mac: found.mac, mtu: options.mtu, status, queue })
}
