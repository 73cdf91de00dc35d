//! LAN7800, LAN7801 and LAN7850: USB Ethernet adapters, driven from user space.
//!
//! The adapter-specific part of a port; [`usb`] carries the transfers.
//!
//! | file | contents |
//! |---|---|
//! | `regs` `frame` `descriptor` `statistics` | formats, once for the driver and the model |
//! | `control` `phy` `init` | registers, the link, bring-up in numbered steps |
//! | `function` `rx` `tx` `checksum` | dialogues, and frames in transfers |
//! | `status` | published status of a port |
//! | `model` | the device in software |
//!
//! **Not supported: TSO, suspend, wake-up.** Nothing was tested on silicon; see docs/hardware/lan78xx.md.

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
pub use status::{AdapterStatus, ChecksumCounters, PortProperties, PortStatus};

use crate::usb::{self, HEADERS, SMALLEST_MTU, Settings, Speed, Transport, random_mac, urbs_within};
use crate::{Abilities, AnyQueue, Receiving};
use function::Lan78xxFunction;
use init::Wanted;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Maximum frame length of the driver in bytes, Ethernet header included, FCS excluded.
const LONGEST_FRAME: u16 = 9000;
/// The largest MTU.
pub const LARGEST_MTU: u16 = LONGEST_FRAME - HEADERS;

/// Options of opening a port.
#[derive(Clone, Debug)]
pub struct Options {
    /// MTU, at most [`LARGEST_MTU`].
    pub mtu: u16,
    /// MAC address to use instead of the adapter's own.
    pub mac: Option<[u8; 6]>,
    /// Frames that are received.
    pub receive: ReceiveFilter,
    /// True if pause frames are offered to the partner.
    pub flow_control: bool,
    /// True if the adapter removes tags from received frames and inserts them into sent ones.
    pub vlan_offload: bool,
    /// Time for which the adapter delays a short transfer to collect more frames, in microseconds; at most
    /// 1092.
    pub gather_us: u16,
    /// Number of bulk-in URBs in flight; `None` for Linux' number.
    pub receive_urbs: Option<usize>,
    /// Number of bulk-out URBs in flight.
    pub send_urbs: Option<usize>,
    /// Maximum number of packets that wait for a bulk-out URB.
    pub pending: usize,
    /// Threshold for resubmitting URBs, and treatment of small packets.
    pub receiving: Receiving,
    /// Techniques of source A.
    pub techniques: Techniques,
    /// Cancels opening when set.
    pub cancelled: Arc<AtomicBool>,
}

impl Default for Options {
    /// Returns options with MTU 1500, all frames, pause frames, all techniques on.
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
    /// Returns the number of URBs in flight, in and out.
    fn urbs(&self, speed: Speed) -> (usize, usize) {
        let receive = match speed {
            Speed::High => 10,
            Speed::Super => 30,
        };
        // With one packet per URB, as many as the pending queue would hold.
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
    /// MTU.
    pub mtu: u16,
    /// Published status of the port.
    pub status: Arc<PortStatus>,
    /// The only queue.
    pub queue: AnyQueue,
}

impl core::fmt::Debug for Lan78xx {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.debug_struct("Lan78xx").field("status", &self.status).finish_non_exhaustive()
    }
}

impl Lan78xx {
    /// The adapter completes checksums; its segmentation is not used.
    pub const ABILITIES: Abilities = Abilities { partial_checksums: true, segments: false };
}

/// Brings up the adapter behind `transport`. Frames are taken from the pools that the queue is polled with.
///
/// # Errors
/// [`OpenError`], whose text names the remedy.
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
