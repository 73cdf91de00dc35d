//! 82540EM and 82545EM: PCI Ethernet controllers ("e1000"), driven from user space.
//!
//! The driver reaches the device through the three interfaces of [`pci`](crate::pci): by VFIO, or a model in this
//! process. The device reads and writes frames in the packet memory itself.
//!
//! | file | contents |
//! |---|---|
//! | `regs` `desc` `statistics` | formats, once for the driver and the model |
//! | `access` `init` `link` | registers, EEPROM and PHY, the manual's steps |
//! | `rx` `layout` `posting` `throttle` | received frames, buffers for them, and the interrupt |
//! | `tx` `offload` | sent frames, checksums and segments |
//! | `ring` `port` `status` | state of both directions, and the published status of a port |
//! | `model` | the device in software |
//!
//! Techniques of source B: an interrupt has its cause recorded and wakes the worker (B1); a turn has a
//! budget, and if it was not used up, the throttle is tuned and the interrupt unmasked (B2); the device drops the
//! excess, where it costs nothing, counted as `rx-overrun` (B3).
//!
//! **Not supported: the work-arounds for errata of segmentation on 82544, jumbo frames on 10 and 100 Mbit/s, fibre,
//! wake-up.** Tested on the model and on QEMU's devices, never on silicon. The next chip is 82574L (e1000e) with
//! MSI-X, which needs changes in [`CHIPS`], in `init`, and an interrupt for each cause.

pub mod desc;
pub mod regs;
pub mod statistics;

mod access;
mod init;
mod layout;
mod link;
mod offload;
mod options;
mod port;
mod posting;
mod ring;
mod rx;
mod status;
mod throttle;
mod tx;

#[cfg(feature = "models")]
pub mod model;

pub use access::AccessError;
pub use init::{DeviceProperties, InitError, MacSource};
pub use options::{LARGEST_MTU, Options, ReceiveFilter};
pub use rx::E1000Rx;
pub use status::{End, PortProperties, PortStatus};
pub use tx::E1000Tx;

use crate::pci::{Device, Dma, DmaError};
use crate::{Abilities, Queue};
use access::Access;
use desc::DESCRIPTOR_BYTES;
use layout::Layout;
use polder_buffers::Region;
use polder_datapath::units::Nanos;
use port::Core;
use ring::Ring;
use std::sync::Arc;

/// Vendor ID, device ID and name of the supported chips: 82540EM (also on main boards), 82545EM (copper).
pub const CHIPS: &[((u16, u16), &str)] =
    &[((0x8086, 0x100e), "82540EM"), ((0x8086, 0x1015), "82540EM"), ((0x8086, 0x100f), "82545EM")];
/// Maximum number of descriptors of a ring (13.4.27: 4096 on these chips).
const LARGEST_RING: u16 = 4096;
/// Interval of checks for the PHY's answer.
const LOOK: Nanos = Nanos(20_000);

/// Reason why a device could not be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// The MTU is out of range.
    #[error("invalid MTU of {0} bytes: an e1000 port supports 68 to {LARGEST_MTU}")]
    Mtu(u16),
    /// The ring size is invalid.
    #[error("invalid ring size {0}: an e1000 port needs a power of two from 8 to {LARGEST_RING}")]
    Ring(u16),
    /// The slots are too small for a receive buffer.
    #[error(
        "slots of {slot_bytes} bytes with {headroom} bytes of headroom are too small for a receive buffer; \
         use 2048"
    )]
    Slot {
        /// Bytes of a slot.
        slot_bytes: u32,
        /// Bytes before a packet.
        headroom: u16,
    },
    /// The device cannot share memory.
    #[error(transparent)]
    Dma(#[from] DmaError),
    /// The device could not be brought up.
    #[error(transparent)]
    Init(#[from] InitError),
}

/// An open port.
#[derive(Debug)]
pub struct E1000 {
    /// Its MAC address.
    pub mac: [u8; 6],
    /// MTU.
    pub mtu: u16,
    /// The part of the port without its queue, for the control thread.
    pub port: Port,
    /// The only queue.
    pub queue: Queue<E1000Rx, E1000Tx>,
}

impl E1000 {
    /// The device completes checksums and segments TCP.
    pub const ABILITIES: Abilities = Abilities { partial_checksums: true, segments: true };
}

/// An open port without its queue.
#[derive(Clone)]
pub struct Port {
    /// Published status of the port.
    pub status: Arc<PortStatus>,
    access: Access,
    dma: Arc<dyn Dma>,
}

impl core::fmt::Debug for Port {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.debug_struct("Port").field("status", &self.status).finish_non_exhaustive()
    }
}

impl Port {
    /// Closes the port if a transfer of the device was refused: its data is lost, and the device may wait for
    /// it for ever.
    pub fn look_for_refusal(&self) {
        if !self.status.is_refused() && self.dma.was_refused() {
            self.status.refuse();
            self.wake();
        }
    }

    /// Requests a reading of the device's counters, and wakes the worker for it.
    pub fn refresh(&self) {
        self.status.ask_for_statistics();
        self.wake();
    }

    fn wake(&self) {
        self.access.write(regs::ICS, regs::icr::RX_TIMER);
    }
}

/// Brings the device up. Frames are taken from the pools of `region`, which is mapped for the device.
///
/// # Errors
/// [`OpenError`], whose text names the remedy.
pub fn open(device: Device, region: &Region, options: &Options) -> Result<E1000, OpenError> {
    if !(68..=LARGEST_MTU).contains(&options.mtu) {
        return Err(OpenError::Mtu(options.mtu));
    }
    let (slot_bytes, headroom) = (region.slot_bytes(), options.receiving.headroom);
    let layout =
        Layout::new(slot_bytes, headroom, options.mtu).ok_or(OpenError::Slot { slot_bytes, headroom })?;
    let Device { registers, dma, interrupt } = device;
    let ring = |count: u16| {
        let is_possible = count.is_power_of_two() && (8..=LARGEST_RING).contains(&count);
        let memory = is_possible.then(|| dma.coherent(usize::from(count) * DESCRIPTOR_BYTES)).transpose()?;
        memory.and_then(|memory| Ring::new(memory, count)).ok_or(OpenError::Ring(count))
    };
    let (receive, transmit) = (ring(options.receive_ring)?, ring(options.transmit_ring)?);
    let base = dma.map(region)?;
    let access = Access::new(registers);
    // From here on the device is stopped on any failure.
    let core = Core::new((access.clone(), interrupt, Arc::clone(&dma)), (region.clone(), base));
    let found = init::bring_up(&access, options)?;
    init::start_receiving(&access, &receive, layout, options);
    init::start_sending(&access, &transmit);
    let status = Arc::clone(&core.status);
    status.set_found(found);
    let core = Arc::new(core);
    let mut rx = E1000Rx::new(Arc::clone(&core), receive, layout, options);
    rx.look_at_link(|| access.pause(LOOK));
    let tx = E1000Tx::new(core, transmit, options);
    let port = Port { status, access, dma };
    Ok(E1000 { mac: found.mac, mtu: options.mtu, port, queue: Queue { rx, tx } })
}
