//! LAN7800, LAN7801 and LAN7850: USB Ethernet adapters, driven from user space.
//!
//! The adapter is reached by a [`Transport`]: the [`model`] in this process
//! ([`local`]), a USB/IP server ([`usbip`]), a device of this machine. Frames travel in bulk transfers,
//! several to one; everything else is registers behind control requests.
//!
//! | file | what it is |
//! |---|---|
//! | `regs` `frame` `descriptor` `statistics` `usb` | formats, once for the driver and the model |
//! | `control` `phy` `init` | registers, the link, the numbered list |
//! | `rx` `tx` `incoming` `packed` `port` `tasks` `urbs` `checksum` | frames, transfers, what both directions share |
//! | `status` | what a port shows of itself |
//! | `model` `local` `usbip` | the device in software, and ways to it |
//!
//! Techniques of source A, each with a switch in [`Techniques`]: work in the worker's turn under its
//! budget (A1), URB memory from the buffer manager (A2), the pending queue (A3), resubmission in the
//! cycle (A4), the overflow queue (A5). Packets carry no private header (A6).
//!
//! **Not supported: TSO, suspend, wake-up.** What was never tried on silicon is in
//! docs/hardware/lan78xx.md: all of it.

pub mod descriptor;
pub mod frame;
pub mod regs;
pub mod statistics;
pub mod usb;

mod checksum;
mod control;
mod incoming;
mod init;
mod packed;
mod phy;
mod port;
mod rx;
mod status;
mod tasks;
mod tx;
mod urbs;

#[cfg(feature = "models")]
pub mod local;
#[cfg(feature = "models")]
pub mod model;
pub mod usbfs;
pub mod usbip;

pub use control::ControlError;
pub use init::{InitError, MacSource, ReceiveFilter};
pub use phy::Phy;
pub use rx::Lan78xxRx;
pub use status::{Facts, PortStatus, UrbMemory};
pub use tx::Lan78xxTx;

use crate::{Abilities, Queue, Receiving};
use init::Wanted;
use polder_buffers::RegionError;
use polder_datapath::units::Nanos;
use port::Core;
use rustix::time::{ClockId, clock_gettime};
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, LazyLock};
use tx::SharedCore;
use usb::{Speed, Transport};

/// Longest frame that the driver asks for, in bytes, Ethernet header included, FCS excluded.
const LONGEST_FRAME: u16 = 9000;
/// Bytes of an Ethernet header and a tag.
const HEADERS: u16 = 14 + 4;
/// The largest MTU.
pub const LARGEST_MTU: u16 = LONGEST_FRAME - HEADERS;

/// Techniques of source A that are on. Off is the state that the source started from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Techniques {
    /// A1: received transfers are read in the worker's turn under its budget; off: all at once, and no
    /// budget applies.
    pub poll_cycle: bool,
    /// A2: URBs have memory from a pool; off: memory of their own, for the life of one transfer.
    pub urb_pools: bool,
    /// A3: several packets in a bulk-out URB, and a queue of pending ones; off: one packet in a URB.
    pub pending_queue: bool,
    /// A4: a bulk-in URB goes back in the turn, when its frames have been handled; off: when it completes.
    pub resubmit_in_cycle: bool,
    /// A5: a frame is a unit of the budget; off: a transfer that was begun is finished.
    pub frame_is_unit: bool,
}

impl Techniques {
    /// All on.
    pub const ON: Self = Self {
        poll_cycle: true,
        urb_pools: true,
        pending_queue: true,
        resubmit_in_cycle: true,
        frame_is_unit: true,
    };
    /// All off.
    pub const OFF: Self = Self {
        poll_cycle: false,
        urb_pools: false,
        pending_queue: false,
        resubmit_in_cycle: false,
        frame_is_unit: false,
    };
}

impl Default for Techniques {
    fn default() -> Self {
        Self::ON
    }
}

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
        let within = |count: Option<usize>, usual| count.unwrap_or(usual).clamp(1, 256);
        (within(self.receive_urbs, receive), within(self.send_urbs, send))
    }
}

/// Reason why an adapter could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// An MTU that it cannot have.
    #[error("an MTU of {0}: a LAN78xx port has 68 to {LARGEST_MTU}")]
    Mtu(u16),
    /// The device is no such adapter, or does not work.
    #[error("{place}: {error}")]
    Init {
        /// Bus and address of the device, for people.
        place: String,
        /// Cause of the failure.
        error: InitError,
    },
    /// The adapter went while it was brought up.
    #[error("{place}: the adapter was unplugged, or the connection to it ended")]
    Gone {
        /// Bus and address of the device, for people.
        place: String,
    },
    /// [`Options::cancelled`] was set.
    #[error("opening {place} was given up, because the program ends")]
    Cancelled {
        /// Bus and address of the device, for people.
        place: String,
    },
    /// No memory for URBs.
    #[error(transparent)]
    Memory(RegionError),
    /// No file for events.
    #[error("cannot share the transport's event: {0}; raise the limit of open files")]
    Event(std::io::Error),
}

/// An open port.
#[derive(Debug)]
pub struct Lan78xx {
    /// Its MAC address.
    pub mac: [u8; 6],
    /// Longest network packet.
    pub mtu: u16,
    /// Published status of the port.
    pub status: Arc<PortStatus>,
    /// The one queue.
    pub queue: Queue<Lan78xxRx, Lan78xxTx>,
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
    if !(68..=LARGEST_MTU).contains(&options.mtu) {
        return Err(OpenError::Mtu(options.mtu));
    }
    let wanted = Wanted {
        mtu: options.mtu,
        mac: options.mac,
        receive: options.receive.clone(),
        pause: options.flow_control,
        strip_tags: options.vlan_offload,
        gather_us: options.gather_us,
        random: random_mac(&transport.place()),
        configured: false,
    };
    let core = Core::open(transport, options, wanted)?;
    let event = core.transport.event().map(|event| event.try_clone_to_owned());
    let event = event.transpose().map_err(OpenError::Event)?;
    let mac = core.found.map_or([0; 6], |found| found.mac);
    let status = Arc::clone(&core.status);
    let longest = usize::from(options.mtu + HEADERS);
    let core = SharedCore::new(core);
    let rx = Lan78xxRx::new(core.clone(), event, longest, options);
    let tx = Lan78xxTx::new(core, longest);
    Ok(Lan78xx { mac, mtu: options.mtu, status, queue: Queue { rx, tx } })
}

/// An address of our own making: locally administered, unicast, and the same for a place as long as the
/// process runs, so that an adapter that was unplugged keeps its address.
fn random_mac(place: &str) -> [u8; 6] {
    static CHANCE: LazyLock<RandomState> = LazyLock::new(RandomState::new);
    let chance = CHANCE.hash_one(place).to_be_bytes();
    let [_, _, a, b, c, d, e, f] = chance;
    [a & 0xfc | 0x02, b, c, d, e, f]
}

/// The monotonic clock, for set-up code, servers and deadlines of hardware.
pub(crate) fn monotonic() -> Nanos {
    let time = clock_gettime(ClockId::Monotonic);
    Nanos(time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned())
}
