//! The device behind a port: its kinds, and what configuration, router and memory have to know of each.
//!
//! Opening and upkeep of devices are in [`device`](crate::device), a module for each kind.

use super::lan78xx::Adapter;
use serde::Serialize;

/// The device behind a port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Device {
    /// A Linux interface, through AF_XDP.
    Interface(String),
    /// A TAP that Polder makes; its other side is an interface of the kernel.
    Tap(String),
    /// A USB Ethernet adapter that Polder drives itself.
    Lan78xx(Box<Adapter>),
}

/// Properties of a kind of device.
#[derive(Debug)]
pub struct Capabilities {
    /// Key of the device in the table of a port, and its kind in rows and reports.
    pub word: &'static str,
    /// Noun under which devices of the kind are compared: two ports cannot use the same one.
    pub noun: &'static str,
    /// True if the kernel's network stack is the station at the other end.
    pub has_kernel_peer: bool,
    /// True if packet memory is registered for the device, which reads and writes it in place: such memory does not
    /// grow or shrink.
    pub registers_memory: bool,
    /// True if it takes packets that are still to be cut into segments, and may bring such packets.
    pub takes_segments: bool,
    /// True if its MTU is the kernel's to change while the port is open.
    pub follows_mtu: bool,
    /// Number of bytes that it puts in front of a received packet.
    pub header_bytes: u16,
}

const INTERFACE: Capabilities = Capabilities {
    word: "interface",
    noun: "interface",
    has_kernel_peer: false,
    registers_memory: true,
    takes_segments: false,
    follows_mtu: true,
    header_bytes: 0,
};

const TAP: Capabilities = Capabilities {
    word: "tap",
    noun: "interface",
    has_kernel_peer: true,
    registers_memory: false,
    takes_segments: true,
    follows_mtu: false,
    // The virtio-net header.
    header_bytes: 10,
};

const LAN78XX: Capabilities = Capabilities {
    word: "lan78xx",
    noun: "adapter",
    has_kernel_peer: false,
    registers_memory: false,
    takes_segments: false,
    follows_mtu: false,
    header_bytes: 0,
};

impl Device {
    /// Properties of its kind.
    pub const fn capabilities(&self) -> &'static Capabilities {
        match self {
            Self::Interface(_) => &INTERFACE,
            Self::Tap(_) => &TAP,
            Self::Lan78xx(_) => &LAN78XX,
        }
    }

    /// The interface or the adapter, for people.
    pub fn name(&self) -> String {
        match self {
            Self::Interface(name) | Self::Tap(name) => name.clone(),
            Self::Lan78xx(adapter) => adapter.place.to_string(),
        }
    }

    /// The kernel's interface whose packets are taken: its addresses, MTU and hooks are the kernel's.
    pub fn interface(&self) -> Option<&str> {
        match self {
            Self::Interface(name) => Some(name),
            Self::Tap(_) | Self::Lan78xx(_) => None,
        }
    }

    /// The name by which the kernel knows it: the interface, or the kernel's end of it.
    pub fn kernel_name(&self) -> Option<&str> {
        match self {
            Self::Interface(name) | Self::Tap(name) => Some(name),
            Self::Lan78xx(_) => None,
        }
    }
}
