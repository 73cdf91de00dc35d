//! Options of opening an interface.

use super::napi::Moderation;
use crate::Receiving;
use crate::bpf::{Take, TunnelEndpoint};
use core::fmt;
use polder_datapath::forward::ForwardGroups;

/// Fate of packets for us when the process has ended, however it has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnExit {
    /// The kernel receives them again.
    #[default]
    Kernel,
    /// Packets are dropped until the next start, or [`release`](super::release).
    Drop,
}

/// Place at which the program is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hook {
    /// In the driver, before the kernel has made a packet of its own.
    Native,
    /// Behind the driver; works with every interface.
    Generic,
}

impl Hook {
    /// The flag of `XDP_FLAGS_*`.
    pub(super) fn flag(self) -> u32 {
        match self {
            Self::Native => 1 << 2,
            Self::Generic => 1 << 1,
        }
    }
}

impl fmt::Display for Hook {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Native => "native XDP",
            Self::Generic => "generic XDP",
        })
    }
}

/// Method of moving packets between the device and our memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// The best that works: zero copy, else a copy in the driver, else the generic hook.
    #[default]
    Auto,
    /// The device reads and writes the frames itself, or the interface is not opened.
    ZeroCopy,
    /// The driver's hook, and a copy.
    Native,
    /// The generic hook, and a copy.
    Generic,
}

impl Mode {
    /// The hooks to try, best first.
    pub(super) fn hooks(self) -> &'static [Hook] {
        match self {
            Self::Auto => &[Hook::Native, Hook::Generic],
            Self::ZeroCopy | Self::Native => &[Hook::Native],
            Self::Generic => &[Hook::Generic],
        }
    }

    /// True if zero copy may be tried, and whether a copy may.
    pub(super) fn transfers(self) -> (bool, bool) {
        match self {
            Self::Auto => (true, true),
            Self::ZeroCopy => (true, false),
            Self::Native | Self::Generic => (false, true),
        }
    }
}

/// Preferred busy polling: the worker drives the device, interrupts stay off while it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BusyPoll {
    /// Packets that the device may hand over at a time.
    pub budget: u32,
    /// Time for which a system call may wait for packets, in microseconds.
    pub microseconds: u32,
}

/// Interface to open, and options of opening it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The interface, of the calling thread's network namespace.
    pub interface: String,
    /// Packets that are taken.
    pub take: Take,
    /// Link-local groups that the bridge of the interface forwards; the kernel receives the others.
    pub forward_groups: ForwardGroups,
    /// Fate of the packets after the end.
    pub on_exit: OnExit,
    /// Method of moving packets.
    pub mode: Mode,
    /// Number of queues that are opened, from the first on; all if `None`.
    pub queues: Option<u32>,
    /// The longest network packet that is sent, where the interface's MTU is larger.
    pub mtu: Option<u32>,
    /// Entries of the receive and fill rings of each queue.
    pub receive_ring: u32,
    /// Entries of the transmit and completion rings of each queue.
    pub transmit_ring: u32,
    /// Frames that all receive queues together may keep posted; a quarter of the memory if `None`.
    /// Never more than fit the rings.
    pub receive_frames: Option<u32>,
    /// Refill threshold of the ring, and treatment of small packets.
    pub receiving: Receiving,
    /// True if frames for other link-layer addresses are received, as a bridge needs it.
    pub promiscuous: bool,
    /// True if VLAN tags keep packets apart, so that a device that takes them off must not be opened.
    pub needs_tags: bool,
    /// True if the interface's program counts what goes to the sockets, where packets are copied: it drops what the worker
    /// has no use for, control packets last, and may carry flows; see [`FlowTable`](crate::skb::FlowTable).
    pub counts: bool,
    /// Preferred busy polling.
    pub busy_poll: Option<BusyPoll>,
    /// Moderation of the kernel's polling of the device; unchanged if `None`.
    pub moderation: Option<Moderation>,
    /// True if a worker may drive the kernel's half of receiving by the arrivals.
    pub adapts: bool,
    /// True to open also slots that a driver may shorten, and to believe each descriptor: for measurements that show
    /// what a driver does. A gateway never sets it.
    pub unguarded: bool,
}

impl Options {
    /// A port of a bridge: everything is taken, whoever it is for.
    pub fn whole(interface: impl Into<String>) -> Self {
        Self {
            interface: interface.into(),
            take: Take::Whole,
            forward_groups: ForwardGroups::NONE,
            on_exit: OnExit::default(),
            mode: Mode::default(),
            queues: None,
            mtu: None,
            receive_ring: 2048,
            transmit_ring: 2048,
            receive_frames: None,
            receiving: Receiving::default(),
            promiscuous: true,
            needs_tags: false,
            counts: false,
            busy_poll: None,
            moderation: None,
            adapts: false,
            unguarded: false,
        }
    }

    /// A port that the kernel goes on using, and that carries tunnels.
    pub fn tunnels(interface: impl Into<String>, endpoints: impl Into<Vec<TunnelEndpoint>>) -> Self {
        Self { take: Take::Tunnels(endpoints.into()), promiscuous: false, ..Self::whole(interface) }
    }

    /// A router's port, which the kernel goes on using, and that may carry tunnels too.
    pub fn routed(interface: impl Into<String>, endpoints: impl Into<Vec<TunnelEndpoint>>) -> Self {
        Self { take: Take::Routed(endpoints.into()), ..Self::tunnels(interface, Vec::new()) }
    }
}
