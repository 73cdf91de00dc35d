//! Fast path: decisions that a device's BPF program applies, so that packets do not enter user space.
//!
//! A bridge publishes the egress of a station pair as an entry of the ingress device's [`FastPath`]. An entry
//! has the [`Validity`] under which it was made, which the program compares with the current one. So one
//! store invalidates all entries, or all entries between two ports.
//!
//! A tunnel's fast path is that of its underlay. A frame into the tunnel gets the outer headers of an
//! [`OuterTemplate`]; a frame out of it is identified by its [`OuterKey`] in addition to its stations.
//!
//! A router publishes decisions about pairs of IP addresses, and its packets get new link-layer addresses.
//!
//! Cost: for a pair that was published recently, a comparison in a table of 256 pairs; without fast paths,
//! one branch per run of frames. Publishing is a system call, for the second frame of a pair and then at most
//! every 100 ms.

use crate::tunnel::{OuterKey, OuterTemplate, Tunnel, Tunnels};
use crate::units::Nanos;
use crate::wire::MacAddress;
use polder_buffers::PortId;
use std::net::IpAddr;
use std::sync::Arc;

/// Flow that a decision is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FlowKey {
    /// Frames at a bridge.
    Stations(StationPair),
    /// IP packets at a router.
    Addresses(AddressPair),
}

/// IP packets from one address to another, received on one router port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AddressPair {
    /// Source address.
    pub source: IpAddr,
    /// Destination address.
    pub destination: IpAddr,
    /// VLAN of the frames' 802.1Q tag; `None` for frames without one.
    pub tag: Option<u16>,
    /// Destination MAC address: the router's.
    pub station: MacAddress,
}

/// Frames from one station to another, received on one port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StationPair {
    /// Source address.
    pub source: MacAddress,
    /// Destination address.
    pub destination: MacAddress,
    /// VLAN of the frames' 802.1Q tag; `None` for frames without one.
    pub tag: Option<u16>,
    /// Outer headers of received packets; `None` for frames from a device.
    pub outer: Option<OuterKey>,
}

/// Change of a frame's 802.1Q tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TagChange {
    /// The tag stays unchanged.
    Keep,
    /// The tag is removed.
    Pop,
    /// A tag of this VLAN is added.
    Push(u16),
    /// The tag is replaced by one of this VLAN without priority.
    Replace(u16),
}

/// MAC addresses that routed packets get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkAddresses {
    /// Address of the next hop.
    pub destination: MacAddress,
    /// Address of the router.
    pub source: MacAddress,
}

/// Decision about the packets of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forwarding {
    /// Ingress: the device's port, or a tunnel.
    pub from: PortId,
    /// Egress port.
    pub port: PortId,
    /// Interface index of the egress.
    pub interface: u32,
    /// Maximum frame length in bytes that the egress sends uncut, without tag and outer headers.
    pub longest: u32,
    /// Change of the tag.
    pub tag: TagChange,
    /// VLAN in the forwarding database; 0 on a bridge without VLANs.
    pub vlan: u16,
    /// Outer headers to be added; `None` for frames that leave by a device directly.
    pub outer: Option<OuterTemplate>,
    /// MAC addresses to be set, with decremented TTL; `None` for bridged frames.
    pub link: Option<LinkAddresses>,
}

/// Version of the state that a decision depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// Version of the tables; see [`FastPaths::version`].
    pub version: u64,
    /// Number of changes of stations' ports, routes and neighbours.
    pub moves: u64,
}

/// Table of decisions for packets that a device receives.
pub trait FastPath: Send + Sync + core::fmt::Debug {
    /// Current number of changes: part of the validity of new decisions.
    fn moves(&self) -> u64;

    /// Invalidates all entries, because a station has moved or routes have changed.
    fn count_move(&self);

    /// Publishes a decision, unless one with the same validity exists. If the table is full, user space
    /// continues to forward the flow.
    fn publish(&self, flow: &FlowKey, forwarding: &Forwarding, validity: Validity);
}

/// A port with a fast path.
#[derive(Clone, Debug)]
pub struct FastPathPort {
    /// Decisions about received packets.
    pub table: Arc<dyn FastPath>,
    /// Interface index.
    pub interface: u32,
    /// Maximum frame length in bytes that the port sends uncut, without tag.
    pub longest: u32,
}

/// Ports with a fast path; immutable, replaced with the tables.
#[derive(Debug, Default)]
pub struct FastPaths {
    version: u64,
    /// By port.
    ports: Vec<Option<Port>>,
    /// UDP destination port of tunnels; 0 for none.
    tunnel_port: u16,
}

/// Fast path of a device's port, or of a tunnel by its underlay.
#[derive(Debug)]
struct Port {
    device: FastPathPort,
    tunnel: Option<Box<Tunnel>>,
    /// True if every received packet must enter user space: programs only send by the port.
    is_guarded: bool,
}

impl FastPaths {
    /// Fast paths of `ports`, by port, for tables of this version.
    pub fn new(version: u64, ports: Vec<Option<FastPathPort>>) -> Self {
        let port = |device: Option<FastPathPort>| {
            device.map(|device| Port { device, tunnel: None, is_guarded: false })
        };
        let ports = ports.into_iter().map(port).collect::<Vec<_>>();
        let has_any = ports.iter().flatten().next().is_some();
        Self { version, ports: if has_any { ports } else { Vec::new() }, tunnel_port: 0 }
    }

    /// Adds the tunnels for which `includes` returns true, if programs can carry their packets.
    #[must_use]
    pub fn with_tunnels(mut self, tunnels: &Tunnels, includes: impl Fn(PortId) -> bool) -> Self {
        self.tunnel_port = tunnels.ports().0;
        for tunnel in tunnels.iter().filter(|tunnel| tunnel.obstacle(tunnels).is_none()) {
            let (number, underlay) = (usize::from(tunnel.options().port.0), tunnel.underlay().port);
            let Some(device) = self.port(underlay).cloned().filter(|_| includes(tunnel.options().port))
            else {
                continue;
            };
            if self.ports.len() <= number {
                self.ports.resize_with(number + 1, || None);
            }
            self.ports[number] =
                Some(Port { device, tunnel: Some(Box::new(tunnel.clone())), is_guarded: false });
        }
        self
    }

    /// Disables decisions about packets that these ports receive: entries do not check the source IP address.
    #[must_use]
    pub fn guarding(mut self, guarded: impl Fn(PortId) -> bool) -> Self {
        for (id, port) in (0..).map(PortId).zip(&mut self.ports) {
            port.iter_mut().for_each(|port| port.is_guarded = guarded(id));
        }
        self
    }

    /// Version of the tables; never reused.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// True if no port has a fast path.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.ports.is_empty()
    }

    /// Ports and tunnels with a fast path.
    pub fn ports(&self) -> impl Iterator<Item = PortId> + '_ {
        let ids = (0..).map(PortId);
        ids.zip(&self.ports).filter_map(|(id, port)| port.is_some().then_some(id))
    }

    /// Fast path for packets that a port receives; `None` without one.
    #[inline]
    pub(crate) fn ingress(&self, port: PortId) -> Option<&FastPathPort> {
        self.entry(port).filter(|port| !port.is_guarded).map(|port| &port.device)
    }

    /// Fast path of a port or tunnel; `None` without one.
    #[inline]
    pub fn port(&self, port: PortId) -> Option<&FastPathPort> {
        self.entry(port).map(|port| &port.device)
    }

    /// Fast path of a device's port; `None` for a tunnel or without one.
    #[inline]
    pub(crate) fn device(&self, port: PortId) -> Option<&FastPathPort> {
        self.entry(port).filter(|port| port.tunnel.is_none()).map(|port| &port.device)
    }

    #[inline]
    fn entry(&self, port: PortId) -> Option<&Port> {
        self.ports.get(usize::from(port.0))?.as_ref()
    }

    /// Outer headers of received packets if the port is a tunnel; `None` otherwise.
    pub(crate) fn outer_key(&self, port: PortId) -> Option<OuterKey> {
        self.entry(port)?.tunnel.as_ref()?.outer_key()
    }

    /// Decision that frames of `pair` from `from` leave by `to` with this tag change and VLAN. `None` if no
    /// program can carry them.
    pub(crate) fn forwarding(
        &self,
        (from, pair): (PortId, &StationPair),
        to: PortId,
        (tag, vlan): (TagChange, u16),
    ) -> Option<Forwarding> {
        let Port { device, tunnel, .. } = self.entry(to)?;
        let &FastPathPort { interface, longest, .. } = device;
        let forwarding =
            Forwarding { from, port: to, interface, longest, tag, vlan, outer: None, link: None };
        // A tag inside a tunnel is in the inner frame, where programs do not change it.
        let (comes_tagged, leaves_tagged) = match tag {
            TagChange::Keep => (pair.tag.is_some(), pair.tag.is_some()),
            TagChange::Pop => (true, false),
            TagChange::Push(_) => (false, true),
            TagChange::Replace(_) => (true, true),
        };
        let Some(tunnel) = tunnel else {
            return (pair.outer.is_none() || !comes_tagged).then_some(forwarding);
        };
        if pair.outer.is_some() || leaves_tagged {
            return None;
        }
        let (outer, longest) = tunnel.outer_template(self.tunnel_port)?;
        Some(Forwarding { longest, outer: Some(outer), ..forwarding })
    }

    /// Invalidates all entries of all ports, because a station has moved.
    #[cold]
    pub(crate) fn count_move(&self) {
        let devices = self.ports.iter().flatten().filter(|port| port.tunnel.is_none());
        devices.for_each(|port| port.device.table.count_move());
    }
}

/// Pairs of stations or addresses that one worker has seen recently. A pair is published at its second frame,
/// and not again for 100 ms; so a flood of addresses costs no system calls.
#[derive(Debug)]
pub(crate) struct SeenPairs(Box<[SeenPair; PAIRS]>);

#[derive(Clone, Copy, Debug, Default)]
struct SeenPair {
    hash: u64,
    /// Time of the last publication; 0 for never.
    published: Nanos,
}

impl SeenPairs {
    pub(crate) fn new() -> Self {
        Self(Box::new([SeenPair::default(); PAIRS]))
    }

    /// True if a pair, given by a non-zero hash, must be published now.
    #[inline]
    pub(crate) fn is_due(&mut self, hash: u64, now: Nanos) -> bool {
        let pair = &mut self.0[place(hash)];
        if pair.hash != hash {
            *pair = SeenPair { hash, published: Nanos(0) };
            return false;
        }
        if pair.published != Nanos(0) && now.since(pair.published) < AGAIN {
            return false;
        }
        pair.published = now.max(Nanos(1));
        true
    }

    /// Marks a due pair as not published: its next frame is due again.
    pub(crate) fn retry(&mut self, hash: u64) {
        let pair = &mut self.0[place(hash)];
        if pair.hash == hash {
            pair.published = Nanos(0);
        }
    }
}

/// Index of a pair by its hash.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "less than 256")]
const fn place(hash: u64) -> usize {
    (hash % PAIRS as u64) as usize
}

/// Number of pairs that a worker remembers.
const PAIRS: usize = 256;
/// Time after which a pair that still enters user space is published again.
const AGAIN: Nanos = Nanos::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tunnel::{TunnelOptions, TunnelState, Underlay};
    use std::net::Ipv4Addr;

    #[test]
    fn a_pair_is_published_with_its_second_frame_and_not_again_at_once() {
        let mut seen = SeenPairs::new();
        let at = |millis: u64| Nanos::from_millis(1000 + millis);
        assert!(!seen.is_due(7, at(0)));
        assert!(seen.is_due(7, at(0)));
        assert!(!seen.is_due(7, at(99)));
        assert!(seen.is_due(7, at(100)));
        seen.retry(7);
        assert!(seen.is_due(7, at(101)));
        // Another pair of the same place takes it.
        assert!(!seen.is_due(7 + PAIRS as u64, at(100)));
        assert!(!seen.is_due(7, at(300)));
    }

    #[test]
    fn ports_without_fast_paths_leave_nothing_to_look_at() {
        assert!(FastPaths::new(1, vec![None, None]).is_empty());
    }

    #[derive(Debug)]
    struct Nowhere;

    impl FastPath for Nowhere {
        fn moves(&self) -> u64 {
            0
        }

        fn count_move(&self) {}

        fn publish(&self, _: &FlowKey, _: &Forwarding, _: Validity) {}
    }

    const LAN: PortId = PortId(0);
    const RADIO: PortId = PortId(1);
    const PEER: PortId = PortId(5);
    const OTHER: PortId = PortId(6);

    /// Tunnels to two remotes, the first of them as `change` has it, and the fast paths of both and of two devices.
    fn tunnels(change: impl FnOnce(&mut TunnelOptions)) -> (Tunnels, FastPaths) {
        let options = |port, last| {
            let ends = (Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, last));
            let state = TunnelState::new(1);
            state.next_hop.set_address(Some(MacAddress([2, 0, 0, 0, 0, last])));
            TunnelOptions::new(port, ends, RADIO, Arc::new(state))
        };
        let mut first = options(PEER, 2);
        change(&mut first);
        let mac = MacAddress([2, 0, 0, 0, 0, 1]);
        let underlay = Underlay { port: RADIO, mac, mtu: 1500, vlan: None, is_shared: false };
        let tunnels = Tunnels::new([underlay], [first, options(OTHER, 3)]).expect("valid");
        let device = |interface| Some(FastPathPort { table: Arc::new(Nowhere), interface, longest: 1514 });
        let paths = FastPaths::new(1, vec![device(10), device(11)]).with_tunnels(&tunnels, |_| true);
        (tunnels, paths)
    }

    fn forwarding(
        paths: &FastPaths,
        from: PortId,
        to: PortId,
        tag: Option<u16>,
        change: TagChange,
    ) -> Option<Forwarding> {
        let [source, destination] = [1, 2].map(|last| MacAddress([2, 0, 0, 0, 1, last]));
        let pair = StationPair { source, destination, tag, outer: paths.outer_key(from) };
        paths.forwarding((from, &pair), to, (change, 0))
    }

    #[test]
    fn frames_without_a_tag_go_into_tunnels_and_come_out_of_them() {
        let (_, paths) = tunnels(|_| {});
        let into = forwarding(&paths, LAN, PEER, None, TagChange::Keep).expect("carried");
        let outer = into.outer.expect("outer headers");
        assert_eq!((into.interface, into.longest, outer.headers().len()), (11, 1500 - 24, 38));
        assert_eq!(outer.headers()[..6], [2, 0, 0, 0, 0, 2], "the next hop");
        assert!(forwarding(&paths, LAN, PEER, Some(7), TagChange::Pop).is_some());
        assert!(forwarding(&paths, LAN, PEER, Some(7), TagChange::Keep).is_none());
        assert!(forwarding(&paths, LAN, PEER, None, TagChange::Push(7)).is_none());
        let out = forwarding(&paths, PEER, LAN, None, TagChange::Push(7)).expect("carried");
        assert_eq!((out.interface, out.outer), (10, None));
        assert!(forwarding(&paths, PEER, LAN, Some(7), TagChange::Keep).is_none());
        assert!(forwarding(&paths, PEER, OTHER, None, TagChange::Keep).is_none(), "from tunnel to tunnel");
    }

    #[test]
    fn a_tunnel_says_why_no_program_carries_it() {
        let why = |change: fn(&mut TunnelOptions)| {
            let (tunnels, paths) = tunnels(change);
            let obstacle = tunnels.get(PEER).expect("a tunnel").obstacle(&tunnels);
            assert_eq!(obstacle.is_some(), paths.port(PEER).is_none());
            obstacle
        };
        assert_eq!(why(|_| {}), None);
        assert_eq!(why(|tunnel| tunnel.checksum = true), Some("its packets have a checksum"));
        assert_eq!(why(|tunnel| tunnel.sequence = true), Some("its packets have sequence numbers"));
        let (_, paths) = tunnels(|tunnel| tunnel.state.next_hop.set_address(None));
        assert!(forwarding(&paths, LAN, PEER, None, TagChange::Keep).is_none(), "nobody to send to");
    }
}
