//! The outside world: one folder a device, one cargo feature a folder.
//!
//! A device that has been opened is a list of [`Queue`]s, each an
//! [`RxQueue`] and a [`TxQueue`].
//! A worker owns the queues that it polls; the two directions of one queue may belong to two workers.
//!
//! | module | what is behind it |
//! |---|---|
//! | [`af_xdp`] | any Linux interface, through shared rings |
//! | [`skb`] | any Linux interface, through a TAP that keeps checksums, segments and VLAN tags |
//! | [`tap`] | the host's own stack and applications, with virtio-net headers |
//! | [`usb`] | what drivers of USB network functions share: transports, URBs, packing |
//! | [`lan78xx`] | USB adapters with a LAN7800, LAN7801 or LAN7850, and a model of them |
//! | [`cdc`] | USB network functions of the classes CDC-NCM, CDC-ECM and MBIM, and a model of them |
//! | [`e1000`] | PCI controllers 82540EM and 82545EM, by way of [`pci`], and a model of them |
//! | [`pair`] | another port of this process: an in-memory cable |
//! | [`fault`] | another device, with losses, delays, damage and unplugging on order |
//!
//! The last two, models, [`mutants`] and [`conformance`] are behind the feature `models`, which the product does without.
//!
//! Drivers have the same files in the same order (`sys`, `init`, `rx`, `tx`) and pass one suite,
//! [`conformance`], which says what every driver owes to the datapath.
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

/// A Linux interface, as a driver found it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Its number in its namespace.
    pub index: u32,
    /// Its link-layer address.
    pub mac: [u8; 6],
    /// Its largest network packet in bytes, Ethernet header excluded.
    pub mtu: u32,
}

/// Packets that a port takes beyond complete packets that fit its link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Abilities {
    /// Packets whose transport checksum is partial.
    pub partial_checksums: bool,
    /// Packets that have to be cut into segments.
    pub segments: bool,
}

/// Both directions of one queue of a device.
#[derive(Debug)]
pub struct Queue<R, T> {
    /// The receiving end.
    pub rx: R,
    /// The sending end.
    pub tx: T,
}

/// An interface that has been opened.
pub struct Opened<P> {
    /// State of the interface as a whole.
    pub port: P,
    /// Its queues; where a device has fewer to send than to receive, the last cannot send.
    pub queues: Vec<AnyQueue>,
}

impl<P: fmt::Debug> fmt::Debug for Opened<P> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let queues = self.queues.len();
        formatter.debug_struct("Opened").field("port", &self.port).field("queues", &queues).finish()
    }
}

/// A queue whose driver is known at run time alone.
pub type AnyQueue = Queue<Box<dyn RxQueue>, Box<dyn TxQueue>>;

impl<R: RxQueue + 'static, T: TxQueue + 'static> Queue<R, T> {
    /// Forgets which driver it is.
    pub fn boxed(self) -> AnyQueue {
        Queue { rx: Box::new(self.rx), tx: Box::new(self.tx) }
    }
}
