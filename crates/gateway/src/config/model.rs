//! What a configuration says, with every default filled in and every reference resolved.
//!
//! These are plain, owned values: the runtime builds its tables from them, `polder show config` prints
//! them, and [`difference`](super::difference()) compares two of them. A value of these types has passed
//! all checks; nothing here has to be checked again, except against the machine it is to run on.

use super::buffers::Buffers;
pub use super::device::Device;
use super::filters::Filter;
pub use super::queue::{PortQueue, QueueKind};
use super::router::{InterfaceAddress, Router};
pub use super::tunnel::{Dscp, Ecn, FlowLabel, TcpMss, Ttl, Tunnel, TunnelKind};
pub use super::vxlan::Vxlan;
use polder_buffers::PortId;
use serde::{Serialize, Serializer};
use std::fmt;
use std::path::PathBuf;

/// Defines a choice of the file: values with the words by which they are read, written and shown.
macro_rules! choices {
    ($(#[$about:meta])* pub enum $name:ident { $($(#[$what:meta])* $value:ident = $word:literal,)+ }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
        pub enum $name {
            $($(#[$what])* #[serde(rename = $word)] $value,)+
        }

        impl $name {
            /// All values with their words.
            pub(super) const WORDS: &'static [(&'static str, Self)] = &[$(($word, Self::$value),)+];

            /// The value in the word of the file.
            pub const fn word(self) -> &'static str {
                match self { $(Self::$value => $word,)+ }
            }
        }
    };
}

/// A whole configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Configuration {
    /// What concerns the process as a whole.
    pub gateway: Gateway,
    /// How packet memory is divided and looked after.
    pub buffers: Buffers,
    /// Device ports, in the order of the file.
    pub ports: Vec<Port>,
    /// Tunnels, in the order of the file.
    pub tunnels: Vec<Tunnel>,
    /// Bridges, in the order of the file.
    pub bridges: Vec<Bridge>,
    /// Rules, in the order of the file.
    pub filters: Vec<Filter>,
    /// What routes go by, where ports have the role of a router.
    pub router: Router,
}

/// What concerns the process as a whole.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Gateway {
    /// Its name, in logs and in the default path of the control socket.
    pub name: String,
    /// Number of workers, at least 1.
    pub workers: u16,
    /// The CPU of each worker; empty to leave the choice to the runtime.
    pub cpus: Vec<u16>,
    /// Packet memory, in MiB.
    pub memory_mib: u32,
    /// Size of one slot of it, in bytes: 2048 or 4096.
    pub slot_bytes: u32,
    /// Where the control socket is.
    pub control: PathBuf,
    /// What makes a flow the same flow, for ports whose packets find their worker by flow.
    pub flow_hash: FlowHash,
    /// True if packets that are spread over workers leave in the order in which they came.
    pub restore_order: bool,
    /// Whether workers give queues turns and leave in devices what nobody can use.
    pub balance: bool,
    /// Packets a turn; by measured cost if `None`.
    pub budget: Option<u16>,
    /// The share of its core that a worker may use, in percent.
    pub cpu_share: u8,
    /// True if threads give up what they do not need.
    pub sandbox: Sandbox,
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

/// A port with a device behind it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Port {
    /// Its number, unique among ports and tunnels.
    #[serde(serialize_with = "number")]
    pub id: PortId,
    /// Its name in the configuration and in all tables.
    pub name: String,
    /// The device.
    pub device: Device,
    /// What Polder takes of the traffic.
    pub role: Role,
    /// How an interface is attached. [`Mode::Auto`] for a TAP.
    pub mode: Mode,
    /// What happens to an interface when Polder ends. [`OnExit::Kernel`] for a TAP.
    pub on_exit: OnExit,
    /// What becomes of packet hooks of the kernel that it goes round. [`KernelHooks::Refuse`] for a TAP.
    pub kernel_hooks: KernelHooks,
    /// Number of queues that are used.
    pub queues: Queues,
    /// How its packets find their worker.
    pub order: Order,
    /// Longest network packet in bytes, Ethernet header and VLAN tags excluded; the interface's own if none.
    pub mtu: Option<u16>,
    /// The weight of each of its receive queues in the time of the queue's worker.
    pub weight: u16,
    /// What waits in front of it, if anything may.
    pub queue: Option<PortQueue>,
    /// Time for which after its last poll the kernel polls the device again, in microseconds; by what comes if `None`.
    pub moderation_us: Option<u16>,
    /// True if the worker drives the device, and the kernel only while it sleeps.
    pub busy_poll: bool,
    /// True if segments that leave by it are merged. Never for a device that does not take such packets.
    pub coalesce: bool,
    /// Its own addresses, if it belongs to the router and the kernel has no part in it.
    pub addresses: Vec<InterfaceAddress>,
    /// True if it may bring packets that are to be cut into segments. Never for a device that has none.
    pub segments: bool,
}

choices! {
    /// What Polder takes of a port's traffic.
    pub enum Role {
        /// All of it; the port is a member of a bridge.
        #[default]
        Bridge = "bridge",
        /// The packets of the tunnels that run over it; the rest stays with the kernel.
        Underlay = "underlay",
        /// What is to be forwarded by its link-layer address and is for no address of this machine, and the packets
        /// of tunnels; the rest stays with the kernel, if that has the device.
        Router = "router",
    }
}

choices! {
    /// How an interface is attached.
    pub enum Mode {
        /// The best that works: zero copy, else native, else generic.
        #[default]
        Auto = "auto",
        /// In the driver and without a copy, or not at all.
        ZeroCopy = "zero-copy",
        /// In the driver, with a copy.
        Native = "native",
        /// In the network stack, with a copy; works with every driver.
        Generic = "generic",
    }
}

choices! {
    /// What happens to an interface when Polder ends, however it ends.
    pub enum OnExit {
        /// The kernel has it back.
        #[default]
        Kernel = "kernel",
        /// It stays closed until Polder runs again or `polder release` opens it.
        Drop = "drop",
    }
}

choices! {
    /// Start of a port whose packets would go round packet hooks of the kernel that could drop or change them.
    pub enum KernelHooks {
        /// The gateway does not start.
        #[default]
        Refuse = "refuse",
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
    /// How the packets of a port find their worker.
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
    /// What makes a flow the same flow.
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

/// A learning bridge.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Bridge {
    /// Its name.
    pub name: String,
    /// Its members, in the order of the file.
    pub members: Vec<Member>,
    /// Seconds after which an address that is not seen is forgotten.
    pub ageing_seconds: u32,
    /// Most addresses it learns.
    pub max_entries: u32,
    /// How much each member may have flooded.
    pub flood_limit: FloodLimit,
    /// Addresses bound by configuration.
    pub static_entries: Vec<StaticEntry>,
}

impl Bridge {
    /// True if it keeps VLANs apart. Then every member says which VLANs it carries; else none does.
    pub fn is_vlan_aware(&self) -> bool {
        self.members.iter().any(|member| member.vlan.is_some())
    }
}

/// A port or tunnel as a member of a bridge.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Member {
    /// The port or tunnel.
    #[serde(serialize_with = "number")]
    pub port: PortId,
    /// The VLANs it carries, on a VLAN-aware bridge.
    pub vlan: Option<MemberVlan>,
    /// True if it exchanges nothing with other isolated members.
    pub isolated: bool,
    /// True if addresses are learned from what it receives.
    pub learning: bool,
    /// True if frames to unknown addresses are sent to it.
    pub flood: bool,
    /// Most addresses that are learned on it; `None` for as many as the bridge takes.
    pub fdb_max_learned: Option<u32>,
}

/// The VLANs that a member carries.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum MemberVlan {
    /// One, without tags on the wire.
    Access(u16),
    /// Several, with tags on the wire.
    Trunk {
        /// Those, in rising order, the native one included.
        allowed: Vec<u16>,
        /// The one that has no tags on the wire, if any; untagged frames are refused otherwise.
        native: Option<u16>,
    },
}

/// How many packets a second of each member may be flooded; `None` is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FloodLimit {
    /// Frames to unicast addresses that are not known.
    pub unknown_unicast: Option<u32>,
    /// Frames to group addresses other than broadcast.
    pub multicast: Option<u32>,
    /// Frames to the broadcast address.
    pub broadcast: Option<u32>,
}

/// An address bound to a member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StaticEntry {
    /// The address.
    pub mac: Mac,
    /// Its VLAN, on a VLAN-aware bridge.
    pub vlan: Option<u16>,
    /// The member.
    #[serde(serialize_with = "number")]
    pub port: PortId,
}

/// An Ethernet address.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Mac(pub [u8; 6]);

impl Mac {
    /// Whether it addresses a group: broadcast or multicast.
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

    /// The tunnel of that number.
    pub fn tunnel(&self, id: PortId) -> Option<&Tunnel> {
        self.tunnels.iter().find(|tunnel| tunnel.id == id)
    }

    /// The name of the port or tunnel of that number.
    pub fn name_of(&self, id: PortId) -> Option<&str> {
        let port = self.port(id).map(|port| port.name.as_str());
        port.or_else(|| self.tunnel(id).map(|tunnel| tunnel.name.as_str()))
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
