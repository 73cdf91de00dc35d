//! The device behind a port: its kinds, and what configuration, router and memory have to know of each.
//!
//! Opening and upkeep of devices are in [`device`](crate::device), a module for each kind.

use super::lan78xx::Adapter;
use super::port::MAX_MTU;
use super::usb::UsbPlace;
use polder_devices::lan78xx::LARGEST_MTU;
use polder_devices::pci::Address;
use serde::{Serialize, Serializer};

/// The device behind a port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Device {
    /// A Linux interface, through AF_XDP or a TAP that keeps what the kernel knows of packets.
    Interface(String),
    /// A TAP that Polder makes; its other side is an interface of the kernel.
    Tap(String),
    /// A USB Ethernet adapter that Polder drives itself.
    Lan78xx(Box<Adapter>),
    /// A USB network function that Polder drives itself, by the driver that its descriptors ask for.
    Usb(UsbPlace),
    /// A PCI Ethernet controller that Polder drives itself, by VFIO.
    Pci(#[serde(serialize_with = "shown")] Address),
    /// A TUN interface that Polder makes for a tunnel of packets, which names it with `device`. No port of the file has
    /// it.
    Tun(String),
    /// The kernel's own stack, at the interface by which a packet came in: the punt path of the router. No key of the
    /// file names it.
    Kernel,
}

fn shown<S: Serializer>(address: &Address, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(address)
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
    /// True if its number of queues can be chosen.
    pub has_queues: bool,
    /// Largest MTU that a port may be given.
    pub max_mtu: u16,
    /// Noun and remedy, for a device over which no tunnel can run.
    pub no_underlay: Option<(&'static str, &'static str)>,
    /// True if it may be a modem, which is seen when it is opened.
    pub may_be_modem: bool,
    /// Keys of a port that it does not have.
    pub absent: &'static Absent,
}

/// Keys that a device does not have, with reason and remedy.
pub type Absent = [(&'static str, &'static str, &'static str)];

/// All kinds, in the order in which the guide has them.
pub const KINDS: &[&Capabilities] = &[&INTERFACE, &TAP, &USB, &USBIP, &LAN78XX, &PCI];

const ONLY: &str = "only an `interface` has this key";
const OWN: &str = "only a `pci` or USB device has this key";
const ROUTER_INSTEAD: &str = "the kernel has no routes over this device; use `role = \"router\"` with \
                              `addresses` for tunnels over it, and a `tap` for the host's own packets";

const INTERFACE: Capabilities = Capabilities {
    word: "interface",
    noun: "interface",
    has_kernel_peer: false,
    registers_memory: true,
    takes_segments: false,
    follows_mtu: true,
    header_bytes: 0,
    has_queues: true,
    max_mtu: MAX_MTU,
    no_underlay: None,
    may_be_modem: false,
    absent: &[("mac", OWN, "remove `mac`: `ip link set address` sets an interface's")],
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
    has_queues: true,
    max_mtu: MAX_MTU,
    no_underlay: Some((
        "a TAP",
        "use an `interface` for the underlay; a TAP can only be a member of a bridge",
    )),
    may_be_modem: false,
    absent: &[
        ("mac", OWN, "remove `mac`: `ip link set address` sets a TAP's"),
        ("mode", ONLY, "remove `mode`: a TAP has only one"),
        ("moderation_us", ONLY, "remove `moderation_us`: a TAP has no interrupts"),
        ("busy_poll", ONLY, "remove `busy_poll`: a TAP has no NAPI to poll"),
        ("on_exit", ONLY, "remove `on_exit`: a TAP disappears when Polder ends"),
        ("decide", ONLY, "remove `decide`: the kernel does not forward packets of this device"),
        (
            "kernel_hooks",
            ONLY,
            "remove `kernel_hooks`: packets that the host sends by a TAP pass the \
                                kernel's hooks",
        ),
    ],
};

const LAN78XX: Capabilities = Capabilities {
    word: "lan78xx",
    noun: "adapter",
    no_underlay: Some(("a USB adapter", ROUTER_INSTEAD)),
    absent: &[
        ("mac", OWN, "write `mac` in the table: `lan78xx = { mac = \"…\" }`"),
        ("mode", ONLY, "remove `mode`: the kernel does not drive this device"),
        ("on_exit", ONLY, "remove `on_exit`: the kernel does not drive this device"),
        ("decide", ONLY, "remove `decide`: the kernel does not forward packets of this device"),
        ("kernel_hooks", ONLY, "remove `kernel_hooks`: the kernel does not drive this device"),
        ("moderation_us", ONLY, "remove `moderation_us`: an adapter has `gather_us` for this purpose"),
        ("busy_poll", ONLY, "remove `busy_poll`: the kernel does not drive this device"),
        ("queues", "an adapter has one queue", "remove `queues`; `order` shares the work among workers"),
    ],
    may_be_modem: false,
    ..USB
};

const USB: Capabilities = Capabilities {
    word: "usb",
    noun: "USB device",
    has_kernel_peer: false,
    registers_memory: false,
    takes_segments: false,
    follows_mtu: false,
    header_bytes: 0,
    has_queues: false,
    max_mtu: LARGEST_MTU,
    no_underlay: Some(("a USB device", ROUTER_INSTEAD)),
    may_be_modem: true,
    absent: &[
        ("mode", ONLY, "remove `mode`: the kernel does not drive this device"),
        ("on_exit", ONLY, "remove `on_exit`: the kernel does not drive this device"),
        ("decide", ONLY, "remove `decide`: the kernel does not forward packets of this device"),
        ("kernel_hooks", ONLY, "remove `kernel_hooks`: the kernel does not drive this device"),
        ("moderation_us", ONLY, "remove `moderation_us`: the device decides when it sends"),
        ("busy_poll", ONLY, "remove `busy_poll`: the kernel does not drive this device"),
        ("queues", "the device has one queue", "remove `queues`; `order` shares the work among workers"),
    ],
};

const USBIP: Capabilities = Capabilities { word: "usbip", ..USB };

const PCI: Capabilities = Capabilities {
    word: "pci",
    noun: "Ethernet controller",
    registers_memory: true,
    max_mtu: MAX_MTU,
    no_underlay: Some(("a PCI device", ROUTER_INSTEAD)),
    may_be_modem: false,
    absent: &[
        ("mode", ONLY, "remove `mode`: the kernel does not drive this device"),
        ("on_exit", ONLY, "remove `on_exit`: the device stays with vfio-pci until `polder release`"),
        ("decide", ONLY, "remove `decide`: the kernel does not forward packets of this device"),
        ("kernel_hooks", ONLY, "remove `kernel_hooks`: the kernel does not drive this device"),
        ("moderation_us", ONLY, "remove `moderation_us`: the device's throttle follows the load"),
        ("busy_poll", ONLY, "remove `busy_poll`: the kernel does not drive this device"),
        ("queues", "the device has one queue", "remove `queues`; `order` shares the work among workers"),
    ],
    ..USB
};

const TUN: Capabilities = Capabilities { word: "tun", has_queues: false, absent: &[], ..TAP };

const KERNEL: Capabilities = Capabilities {
    word: "kernel",
    noun: "punt path",
    has_kernel_peer: false,
    registers_memory: false,
    takes_segments: true,
    follows_mtu: false,
    header_bytes: TAP.header_bytes,
    has_queues: false,
    max_mtu: MAX_MTU,
    no_underlay: None,
    may_be_modem: false,
    absent: &[],
};

/// Name of the port by which packets return to the kernel.
pub(super) const KERNEL_PORT: &str = "kernel";

impl Device {
    /// Properties of its kind.
    pub const fn capabilities(&self) -> &'static Capabilities {
        match self {
            Self::Interface(_) => &INTERFACE,
            Self::Tap(_) => &TAP,
            Self::Lan78xx(_) => &LAN78XX,
            Self::Usb(place) if place.is_remote() => &USBIP,
            Self::Usb(_) => &USB,
            Self::Pci(_) => &PCI,
            Self::Tun(_) => &TUN,
            Self::Kernel => &KERNEL,
        }
    }

    /// True for devices that no port of the file has: the punt path, and devices of tunnels.
    pub fn is_internal(&self) -> bool {
        matches!(self, Self::Kernel | Self::Tun(_))
    }

    /// True for the punt path, without which the other ports can do.
    pub fn is_punt_path(&self) -> bool {
        matches!(self, Self::Kernel)
    }

    /// The interface or the adapter, for people.
    pub fn name(&self) -> String {
        match self {
            Self::Interface(name) | Self::Tap(name) | Self::Tun(name) => name.clone(),
            Self::Lan78xx(adapter) => adapter.place.to_string(),
            Self::Usb(place) => place.to_string(),
            Self::Pci(address) => address.to_string(),
            Self::Kernel => KERNEL_PORT.to_owned(),
        }
    }

    /// The kernel's interface whose packets are taken: its addresses, MTU and hooks are the kernel's.
    pub fn interface(&self) -> Option<&str> {
        if let Self::Interface(name) = self { Some(name) } else { None }
    }

    /// The device of a tunnel, if it is one.
    pub fn tun(&self) -> Option<&str> {
        if let Self::Tun(name) = self { Some(name) } else { None }
    }

    /// The TAP, if it is one.
    pub(super) fn tap(&self) -> Option<String> {
        if let Self::Tap(name) = self { Some(name.clone()) } else { None }
    }

    /// The USB adapter, if it is one.
    pub(super) fn adapter(&self) -> Option<Adapter> {
        if let Self::Lan78xx(adapter) = self { Some((**adapter).clone()) } else { None }
    }

    /// The USB device of this machine, or another one's, if it is one.
    pub(super) fn usb(&self, is_remote: bool) -> Option<UsbPlace> {
        let Self::Usb(place) = self else { return None };
        (place.is_remote() == is_remote).then(|| place.clone())
    }

    /// The PCI device, if it is one.
    pub(super) fn pci(&self) -> Option<Address> {
        if let Self::Pci(address) = self { Some(*address) } else { None }
    }

    /// The name by which the kernel knows it: the interface, or the kernel's end of it.
    pub fn kernel_name(&self) -> Option<&str> {
        match self {
            Self::Interface(name) | Self::Tap(name) | Self::Tun(name) => Some(name),
            Self::Lan78xx(_) | Self::Usb(_) | Self::Pci(_) | Self::Kernel => None,
        }
    }
}
