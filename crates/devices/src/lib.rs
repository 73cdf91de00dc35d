//! Drivers: one folder per device, one cargo feature per folder.
//!
//! An open device is a list of [`Queue`]s, each an [`RxQueue`] and a [`TxQueue`].
//! A worker owns the queues that it polls; the two directions of one queue may belong to two workers.
//!
//! | module | device |
//! |---|---|
//! | [`af_xdp`] | any Linux interface, through shared rings |
//! | [`skb`] | any Linux interface, through a TAP that keeps checksums, segments and VLAN tags |
//! | [`tap`] | the host's own stack and applications, with virtio-net headers |
//! | [`usb`] | common parts of drivers of USB network functions: transports, URBs, packing |
//! | [`lan78xx`] | USB adapters with a LAN7800, LAN7801 or LAN7850, and a model of them |
//! | [`cdc`] | USB network functions of the classes CDC-NCM, CDC-ECM and MBIM, and a model of them |
//! | [`e1000`] | PCI controllers 82540EM and 82545EM, through [`pci`], and a model of them |
//! | [`pair`] | in-memory cable to another port of this process |
//! | [`fault`] | fault injector around another device: loss, delay, damage, unplugging |
//!
//! The last two, models, [`mutants`] and [`conformance`] need the feature `models`, which the product does not enable.
//!
//! Drivers have the same files (`sys`, `init`, `rx`, `tx`) and pass one suite, [`conformance`], which checks every
//! driver's duties to the datapath.
//!
//! ```
//! use polder_buffers::{Batch, Packet, Region, RegionOptions};
//! use polder_datapath::port::{Budget, RxQueue, Turn, TxQueue};
//! use polder_devices::pair;
//!
//! let region = Region::new(RegionOptions { slots: 256, slot_bytes: 2048 })?;
//! let mut pool = region.pool();
//! let (mut left, mut right) = pair::cable(pair::Options::default())?;
//!
//! let mut batch = Batch::new();
//! batch.push(Packet::copy_from(b"over the cable", &mut pool).expect("256 slots")).expect("room");
//! left[0].tx.transmit(&mut batch, &mut pool);
//!
//! let turn = right[0].rx.receive(&mut Budget::new(64), &mut batch, &mut pool);
//! assert_eq!((turn, batch[0].bytes()), (Turn::Drained, &b"over the cable"[..]));
//! # pool.release(&mut batch);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#[cfg(feature = "af_xdp")]
pub mod af_xdp;
#[cfg(feature = "cdc")]
pub mod cdc;
#[cfg(feature = "e1000")]
pub mod e1000;
#[cfg(feature = "lan78xx")]
pub mod lan78xx;
mod link;
#[cfg(feature = "e1000")]
pub mod pci;
#[cfg(feature = "skb")]
pub mod skb;
#[cfg(feature = "tap")]
pub mod tap;
#[cfg(feature = "usb")]
pub mod usb;

#[cfg(feature = "models")]
pub mod fault;
#[cfg(feature = "models")]
pub mod pair;

#[cfg(feature = "models")]
pub mod conformance;

#[cfg(feature = "af_xdp")]
mod bpf;
#[cfg(feature = "af_xdp")]
pub mod checks;
#[cfg(all(feature = "af_xdp", feature = "models"))]
pub mod mutants;
pub mod netlink;

mod receiving;
#[cfg(feature = "models")]
mod wakeup;

pub use link::Link;
pub use receiving::Receiving;

use core::fmt;
use polder_datapath::port::{RxQueue, TxQueue};

/// A Linux interface and its properties at opening.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Name.
    pub name: String,
    /// Index in its network namespace.
    pub index: u32,
    /// MAC address.
    pub mac: [u8; 6],
    /// MTU in bytes, Ethernet header excluded.
    pub mtu: u32,
}

/// Kinds of packets that a port sends besides complete packets that fit its link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Abilities {
    /// Packets whose transport checksum is partial.
    pub partial_checksums: bool,
    /// Super-packets, which are still to be segmented.
    pub segments: bool,
}

/// Both directions of one queue of a device.
#[derive(Debug)]
pub struct Queue<R, T> {
    /// The receiving end.
    pub rx: R,
    /// The transmitting end.
    pub tx: T,
}

/// An open interface.
pub struct Opened<P> {
    /// State of the interface as a whole.
    pub port: P,
    /// Its queues; if a device has fewer TX than RX queues, the last ones cannot send.
    pub queues: Vec<AnyQueue>,
}

impl<P: fmt::Debug> fmt::Debug for Opened<P> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let queues = self.queues.len();
        formatter.debug_struct("Opened").field("port", &self.port).field("queues", &queues).finish()
    }
}

/// A queue whose driver is known only at run time.
pub type AnyQueue = Queue<Box<dyn RxQueue>, Box<dyn TxQueue>>;

impl<R: RxQueue + 'static, T: TxQueue + 'static> Queue<R, T> {
    /// Boxes both ends, so that the driver's type is erased.
    pub fn boxed(self) -> AnyQueue {
        Queue { rx: Box::new(self.rx), tx: Box::new(self.tx) }
    }
}
