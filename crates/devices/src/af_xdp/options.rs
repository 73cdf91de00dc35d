//! Options of opening an interface.

use super::napi::Moderation;
use crate::Receiving;
use crate::bpf::{Take, TunnelEndpoint};
use core::fmt;
use polder_datapath::forward::ForwardGroups;

/// Treatment of the port's packets after the process has ended, for any reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnExit {
    /// The kernel receives them.
    #[default]
    Kernel,
    /// They are dropped until the next start, or until [`release`](super::release).
    Drop,
}

/// Hook at which the program is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hook {
    /// In the driver, before the kernel has made an skb.
    Native,
    /// After the driver; works with every interface.
    Generic,
}

impl Hook {
    /// Returns the flag of `XDP_FLAGS_*`.
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

/// Method of moving packets between the device and the region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// The best that works: zero copy, else a copy in the driver, else the generic hook.
    #[default]
    Auto,
    /// The device reads and writes the frames itself; if it cannot, opening fails.
    ZeroCopy,
    /// The driver's hook, with a copy.
    Native,
    /// The generic hook, with a copy.
    Generic,
}

impl Mode {
    /// Returns the hooks to try, best first.
    pub(super) fn hooks(self) -> &'static [Hook] {
        match self {
            Self::Auto => &[Hook::Native, Hook::Generic],
            Self::ZeroCopy | Self::Native => &[Hook::Native],
            Self::Generic => &[Hook::Generic],
        }
    }

    /// Returns if zero copy may be tried, and if a copy may.
    pub(super) fn transfers(self) -> (bool, bool) {
        match self {
            Self::Auto => (true, true),
            Self::ZeroCopy => (true, false),
            Self::Native | Self::Generic => (false, true),
        }
    }
}

/// Preferred busy polling: the worker drives the device, and interrupts stay off meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BusyPoll {
    /// Maximum number of packets of one poll.
    pub budget: u32,
    /// Maximum wait for packets in a system call, in microseconds.
    pub microseconds: u32,
}

/// Interface to open, and options of opening it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The interface, in the calling thread's network namespace.
    pub interface: String,
    /// Packets that are taken.
    pub take: Take,
    /// Link-local groups that the port's bridge forwards; the kernel receives the others.
    pub forward_groups: ForwardGroups,
    /// Treatment of the packets after the end.
    pub on_exit: OnExit,
    /// Method of moving packets.
    pub mode: Mode,
    /// Number of queues to open, from the first on; `None` for all.
    pub queues: Option<u32>,
    /// Maximum length of a sent network packet in bytes, if the interface's MTU is larger.
    pub mtu: Option<u32>,
    /// Entries of the RX ring and the fill ring of each queue.
    pub receive_ring: u32,
    /// Entries of the TX ring and the completion ring of each queue.
    pub transmit_ring: u32,
    /// Maximum number of posted frames over all RX queues, limited by the ring sizes; `None` for a quarter of
    /// the memory.
    pub receive_frames: Option<u32>,
    /// Refill threshold of the ring, and treatment of small packets.
    pub receiving: Receiving,
    /// True to receive frames for other MAC addresses, as a bridge needs.
    pub promiscuous: bool,
    /// True if VLAN tags distinguish packets; then a device that strips them is not opened.
    pub needs_tags: bool,
    /// True if the interface's program counts packets to the sockets, in copy mode: it drops the excess,
    /// control packets last, and may carry flows; see [`FlowTable`](crate::skb::FlowTable).
    pub counts: bool,
    /// Preferred busy polling.
    pub busy_poll: Option<BusyPoll>,
    /// Moderation of the kernel's polling; unchanged if `None`.
    pub moderation: Option<Moderation>,
    /// True if a worker may drive the kernel's half of receiving by the arrivals.
    pub adapts: bool,
    /// True to accept slots that a driver may shorten, and every descriptor: for measurements of a driver. A
    /// gateway never sets it.
    pub unguarded: bool,
}

impl Options {
    /// Options of a bridge port, which takes every packet, whatever its destination.
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

    /// Options of a port that carries tunnels and that the kernel goes on using.
    pub fn tunnels(interface: impl Into<String>, endpoints: impl Into<Vec<TunnelEndpoint>>) -> Self {
        Self { take: Take::Tunnels(endpoints.into()), promiscuous: false, ..Self::whole(interface) }
    }

    /// Options of a router's port, which the kernel goes on using, and which may carry tunnels too.
    pub fn routed(interface: impl Into<String>, endpoints: impl Into<Vec<TunnelEndpoint>>) -> Self {
        Self { take: Take::Routed(endpoints.into()), ..Self::tunnels(interface, Vec::new()) }
    }
}
