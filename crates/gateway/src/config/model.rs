//! Values of a configuration, with every default filled in and every reference resolved.
//!
//! These are plain, owned values: the runtime builds its tables from them, `polder show config` prints
//! them, and [`difference`](super::difference()) compares two of them. A value of these types has passed
//! all checks; nothing here has to be checked again, except against the machine it is to run on.

pub use super::bridge::{Bridge, FloodLimit, ForwardGroup, Member, MemberVlan, StaticEntry};
use super::buffers::Buffers;
pub use super::device::Device;
use super::filters::Filter;
pub use super::gateway::Gateway;
use super::lab::Lab;
pub use super::metrics::{Listen, Metrics};
use super::patterns::Pattern;
pub use super::port::Port;
pub use super::queue::{Diffserv, HostIsolation, LinkKind, PortQueue, QueueKind};
use super::router::Router;
pub use super::shaper::{Rate, Shaper};
pub use super::tunnel::{Dscp, Ecn, FlowLabel, TcpMss, Ttl, Tunnel, TunnelKind};
pub use super::vxlan::Vxlan;
use polder_buffers::PortId;
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::OnceLock;

/// A whole configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Configuration {
    /// The process as a whole.
    pub gateway: Gateway,
    /// Metrics and health, for monitoring.
    pub metrics: Metrics,
    /// Division of packet memory.
    pub buffers: Buffers,
    /// Techniques, for measurements.
    pub lab: Lab,
    /// Device ports, in the order of the file.
    pub ports: Vec<Port>,
    /// Patterns of ports, in the order of the file.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub patterns: Vec<Pattern>,
    /// Tunnels, in the order of the file; one for each remote.
    pub tunnels: Vec<Tunnel>,
    /// Bridges, in the order of the file.
    pub bridges: Vec<Bridge>,
    /// Rules, in the order of the file.
    pub filters: Vec<Filter>,
    /// Routes, where ports have the role of a router.
    pub router: Router,
    /// Packet hook because of which the kernel decides about the router's packets where the file leaves it open; none where
    /// the router does.
    #[serde(skip)]
    pub decided: Option<String>,
    #[serde(skip)]
    pub(super) places: Places,
}

/// Places of the tunnels by number, found once; a part of no value.
#[derive(Default)]
pub(super) struct Places(OnceLock<BTreeMap<PortId, usize>>);

impl Places {
    /// Place of the tunnel of that number.
    fn of(&self, id: PortId, tunnels: &[Tunnel]) -> Option<usize> {
        let found = || tunnels.iter().enumerate().map(|(place, tunnel)| (tunnel.id, place)).collect();
        self.0.get_or_init(found).get(&id).copied()
    }
}

impl Clone for Places {
    /// Finds the places anew: a copy is there to be changed.
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl PartialEq for Places {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Places {}

impl fmt::Debug for Places {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("…")
    }
}

choices! {
    /// True if threads give up the capabilities, files and system calls that they do not need.
    pub enum Sandbox {
        /// As far as the kernel can.
        #[default]
        Auto = "auto",
        /// Not at all.
        Off = "off",
    }
}

choices! {
    /// Part of a port's traffic that Polder takes.
    pub enum Role {
        /// All of it; the port is a member of a bridge.
        #[default]
        Bridge = "bridge",
        /// The packets of the tunnels that run over it; the rest stays with the kernel.
        Underlay = "underlay",
        /// Packets that are to be forwarded by their link-layer address and are for no address of this machine, and those
        /// of tunnels; the rest stays with the kernel, if that has the device.
        Router = "router",
    }
}

choices! {
    /// Way of attaching an interface.
    pub enum Mode {
        /// `skb` where senders may be on this machine or the driver has no XDP of its own; else the best that works of AF_XDP:
        /// zero copy, else native, else generic.
        #[default]
        Auto = "auto",
        /// In the driver and without a copy, or not at all.
        ZeroCopy = "zero-copy",
        /// In the driver, with a copy.
        Native = "native",
        /// In the network stack, with a copy; works with every driver.
        Generic = "generic",
        /// In the network stack, with checksums, segments and VLAN tags as the stack has them.
        Skb = "skb",
    }
}

choices! {
    /// State of an interface after Polder has ended, however it ended.
    pub enum OnExit {
        /// The kernel has it back.
        #[default]
        Kernel = "kernel",
        /// It stays closed until Polder runs again or `polder release` opens it.
        Drop = "drop",
    }
}

choices! {
    /// Use of a port's fast path: flows that its program carries in the kernel.
    pub enum FastPathUse {
        /// Used if the port has one, and nothing has to be done with its packets that only user space does.
        #[default]
        Auto = "auto",
        /// Not used.
        Off = "off",
    }
}

choices! {
    /// Authority over the packets of a router's port: where they go, and whether they go at all.
    pub enum Decide {
        /// The kernel where packets of the router would go round its packet hooks, else the router.
        #[default]
        Auto = "auto",
        /// Polder's router, by the kernel's routes and neighbours.
        Router = "router",
        /// The kernel, with its firewall and NAT: Polder carries connections that it has seen the kernel forward.
        Kernel = "kernel",
    }
}

choices! {
    /// Start of a port whose packets would go round packet hooks of the kernel that could drop or change them.
    pub enum KernelHooks {
        /// The gateway does not start.
        #[default]
        Refuse = "refuse",
        /// The gateway does not start; when one appears later and the kernel cannot forward the port's packets, they are
        /// dropped until it has gone.
        Stop = "stop",
        /// The hooks are bypassed, and it is said.
        Bypass = "bypass",
    }
}

/// Number of queues of a device that are used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Queues {
    /// All that the device has.
    #[default]
    All,
    /// The first so many; the device must have as many.
    Count(u16),
}

choices! {
    /// Way by which the packets of a port find their worker.
    pub enum Order {
        /// They stay with the worker that polls their queue.
        #[default]
        Queue = "queue",
        /// By flow; each flow is the work of one worker.
        Hash = "hash",
        /// Over all workers; their order is restored where they leave.
        Spread = "spread",
        /// By flow, and spread while a flow is more than its worker can carry.
        Auto = "auto",
    }
}

choices! {
    /// Definition of a flow.
    pub enum FlowHash {
        /// Each direction of a connection is a flow.
        #[default]
        Directed = "directed",
        /// Both directions of a connection are one flow.
        Symmetric = "symmetric",
        /// As adapters hash (Toeplitz), to agree with them.
        Toeplitz = "toeplitz",
        /// Toeplitz with a key that makes both directions one flow.
        SymmetricToeplitz = "symmetric-toeplitz",
    }
}

/// An Ethernet address.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Mac(pub [u8; 6]);

impl Mac {
    /// True if it addresses a group: broadcast or multicast.
    pub fn is_group(self) -> bool {
        self.0[0] & 1 == 1
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, f] = self.0;
        write!(formatter, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}")
    }
}

impl fmt::Debug for Mac {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

impl Serialize for Mac {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Configuration {
    /// The device port of that number.
    pub fn port(&self, id: PortId) -> Option<&Port> {
        self.ports.iter().find(|port| port.id == id)
    }

    /// Device ports of the file: without the port by which packets return to the kernel, and those of tunnels'
    /// devices.
    pub fn file_ports(&self) -> impl Iterator<Item = &Port> {
        self.ports.iter().filter(|port| !port.device.is_internal())
    }

    /// The port of a tunnel's device, if the tunnel has one.
    pub fn device_port(&self, tunnel: &Tunnel) -> Option<&Port> {
        let device = tunnel.device.as_deref()?;
        self.ports.iter().find(|port| port.device.tun() == Some(device))
    }

    /// The port by which packets return to the kernel, if there is one.
    pub fn kernel_port(&self) -> Option<PortId> {
        self.ports.iter().find(|port| port.device == Device::Kernel).map(|port| port.id)
    }

    /// Takes out a port of the router, and what filters say of it.
    pub fn take_out(&mut self, name: &str) {
        let Some(id) = self.id_of(name) else { return };
        self.ports.retain(|port| port.id != id);
        self.filters.retain_mut(|filter| {
            let is_for_all = filter.ports.is_empty();
            filter.ports.retain(|port| *port != id);
            is_for_all || !filter.ports.is_empty()
        });
    }

    /// True if filters look at packets of that port or tunnel.
    pub fn is_filtered(&self, id: PortId) -> bool {
        self.filters.iter().any(|filter| filter.meets(id))
    }

    /// Place of the tunnel of that number among the tunnels.
    pub(super) fn place_of_tunnel(&self, id: PortId) -> Option<usize> {
        self.places.of(id, &self.tunnels)
    }

    /// The tunnel of that number.
    pub fn tunnel(&self, id: PortId) -> Option<&Tunnel> {
        self.tunnels.get(self.place_of_tunnel(id)?)
    }

    /// The name of the port or tunnel of that number.
    pub fn name_of(&self, id: PortId) -> Option<&str> {
        let port = self.port(id).map(|port| port.name.as_str());
        port.or_else(|| self.tunnel(id).map(|tunnel| tunnel.name.as_str()))
    }

    /// Name of the table in the file that the port or tunnel of that number is of.
    pub fn table_of(&self, id: PortId) -> Option<&str> {
        let tunnel = self.tunnel(id).map(|tunnel| tunnel.table.as_str());
        tunnel.or_else(|| self.port(id).map(|port| port.name.as_str()))
    }

    /// The number of the port or tunnel of that name.
    pub fn id_of(&self, name: &str) -> Option<PortId> {
        self.names().find(|&(_, candidate)| candidate == name).map(|(id, _)| id)
    }

    /// Numbers and names of all ports, then of all tunnels.
    pub fn names(&self) -> impl Iterator<Item = (PortId, &str)> {
        let ports = self.ports.iter().map(|port| (port.id, port.name.as_str()));
        ports.chain(self.tunnels.iter().map(|tunnel| (tunnel.id, tunnel.name.as_str())))
    }

    /// True if something is routed.
    pub fn has_router_ports(&self) -> bool {
        self.ports.iter().any(|port| port.role == Role::Router) || self.tunnels.iter().any(Tunnel::is_routed)
    }

    /// The bridge that the port or tunnel is a member of.
    pub fn bridge_of(&self, id: PortId) -> Option<&Bridge> {
        self.bridges.iter().find(|bridge| bridge.members.iter().any(|member| member.port == id))
    }

    /// One more than the highest number in use: the size of a table that is indexed by port.
    pub fn id_limit(&self) -> usize {
        self.names().map(|(id, _)| usize::from(id.0) + 1).max().unwrap_or(0)
    }
}

pub(super) fn number<S: Serializer>(id: &PortId, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u16(id.0)
}
