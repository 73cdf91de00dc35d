//! Builds the datapath's tables from a configuration.

use super::filters::FilterSlots;
use super::routing::Routing;
use crate::config::difference::PREPARED;
use crate::config::model::{
    Bridge, Configuration, Device, Dscp as ConfiguredDscp, Ecn, FlowLabel as ConfiguredLabel, MemberVlan,
    Port, Role, TcpMss as ConfiguredMss, Ttl as ConfiguredTtl, Tunnel,
};
use crate::device::PortProperties;
use anyhow::{Context as _, Result, anyhow};
use core::num::NonZeroU8;
use polder_buffers::PortId;
use polder_datapath::engine::Tables;
use polder_datapath::filter::SourceGuard;
use polder_datapath::forward::{
    BridgeOptions, Bridges, Fdb, FdbOptions, FloodLimits, Links, MemberOptions, StaticEntry, VlanMode,
    VlanSet,
};
use polder_datapath::offload::{Outlet, OutletState, Takes};
use polder_datapath::tunnel::{
    Ends, FlowLabel, TcpMss, Ttl, TunnelDscp, TunnelOptions, TunnelState, Tunnels, Underlay,
};
use polder_datapath::units::BytesPerSecond;
use polder_datapath::wire::{Dscp, EcnMode, MacAddress, VlanId};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::net::IpAddr;
use std::sync::Arc;

/// State that survives changes of the configuration, by name.
#[derive(Default)]
pub struct Lasting {
    /// Learned addresses of each bridge.
    pub fdbs: HashMap<String, Arc<Fdb>>,
    /// Next hop, sequence numbers and counters of each tunnel.
    pub tunnels: HashMap<String, Arc<TunnelState>>,
    /// Counters of filter rules.
    pub filters: FilterSlots,
    /// Routes, and the state that they depend on.
    pub routing: Routing,
    /// Counts of merged and split packets of each port.
    pub outlets: HashMap<String, Arc<OutletState>>,
    /// Ports that carry nothing because of a kernel packet hook, and their tunnels.
    pub stopped: BTreeSet<PortId>,
    /// Tunnels whose remote is known to be unreachable.
    pub dead: HashSet<PortId>,
    /// Tunnels that were reported as up.
    pub alive: HashSet<PortId>,
}

impl Lasting {
    fn fdb(&mut self, bridge: &Bridge) -> Arc<Fdb> {
        // A random seed, so that senders cannot choose addresses that collide in the hash table.
        let seed = RandomState::new().build_hasher().finish();
        let fresh = || Arc::new(Fdb::new(FdbOptions { capacity: bridge.max_entries, seed }));
        let fdb = self.fdbs.entry(bridge.name.clone()).or_insert_with(fresh);
        if fdb.capacity() < bridge.max_entries {
            *fdb = fresh();
        }
        Arc::clone(fdb)
    }

    fn tunnel(&mut self, tunnel: &Tunnel, workers: usize) -> Arc<TunnelState> {
        let state = self.tunnels.entry(tunnel.name.clone());
        let secret = || RandomState::new().build_hasher().finish();
        Arc::clone(state.or_insert_with(|| Arc::new(TunnelState::new(workers).with_secret(secret()))))
    }

    /// Removes state of objects that the configuration does not name.
    pub fn retain(&mut self, configuration: &Configuration) {
        let bridges = configuration.bridges.iter().map(|bridge| bridge.name.as_str()).collect::<HashSet<_>>();
        let ports = configuration.ports.iter().map(|port| port.name.as_str()).collect::<HashSet<_>>();
        let tunnels = configuration.tunnels.iter().map(|tunnel| tunnel.name.as_str()).collect::<HashSet<_>>();
        self.fdbs.retain(|name, _| bridges.contains(name.as_str()));
        self.outlets.retain(|name, _| ports.contains(name.as_str()));
        self.tunnels.retain(|name, _| tunnels.contains(name.as_str()));
        self.filters.retain(configuration);
    }
}

/// Tables of `configuration`, with the properties of the open ports, and without fast paths.
///
/// # Errors
/// When parts of the configuration contradict each other; a checked configuration has no contradictions.
pub(super) fn tables(
    configuration: &Configuration,
    ports: &HashMap<PortId, PortProperties>,
    lasting: &mut Lasting,
    links: &Arc<Links>,
) -> Result<Tables> {
    let groups = split_horizons(configuration);
    let bridges = configuration.bridges.iter().map(|bridge| {
        let own = own_addresses(bridge, configuration, ports);
        bridge_options(bridge, (&groups, &own), lasting)
    });
    let bridges = Bridges::new(bridges.collect::<Result<_>>()?, Arc::clone(links))?;
    // Counters outlive a reload, which may add workers.
    let workers = usize::from(configuration.gateway.workers.max(PREPARED));
    let mut tunnels = Vec::new();
    for tunnel in &configuration.tunnels {
        let state = lasting.tunnel(tunnel, workers);
        tunnels.push(tunnel_options(tunnel, state)?);
    }
    let underlays = configuration.tunnels.iter().map(|tunnel| tunnel.port).collect::<BTreeSet<_>>();
    let is_shared = |port| configuration.port(port).is_some_and(|port| port.role == Role::Router);
    let underlays =
        underlays.into_iter().filter_map(|port| underlay(port, is_shared(port), ports.get(&port)?));
    let tunnels = Tunnels::new(underlays.collect::<Vec<_>>(), tunnels)?;
    let limit = u16::try_from(configuration.id_limit()).unwrap_or(u16::MAX);
    let outlets =
        (0..limit).map(|id| outlet(configuration.port(PortId(id)), ports, lasting, workers)).collect();
    let stopped = lasting.stopped.iter().copied().collect::<Vec<_>>();
    let guards = (0..limit).map(|id| guard(configuration.port(PortId(id)))).collect();
    let filters = lasting.filters.filters(configuration)?.stopping(&stopped).guarding(guards);
    Ok(Tables {
        bridges,
        tunnels,
        filters,
        routers: lasting.routing.routers()?,
        longest_frame: LONGEST_FRAME,
        outlets,
        ..Tables::default()
    })
}

/// Source addresses that packets of a port may have, if the port checks them.
fn guard(port: Option<&Port>) -> Option<SourceGuard> {
    let guard = port?.source_guard.as_ref()?;
    Some(SourceGuard::new(MacAddress(guard.mac.0), &guard.addresses))
}

/// Outlet of a port, with its device's offloads; a tunnel sends complete packets.
fn outlet(
    port: Option<&Port>,
    ports: &HashMap<PortId, PortProperties>,
    lasting: &mut Lasting,
    workers: usize,
) -> Outlet {
    let Some(port) = port else { return Outlet::plain() };
    let takes = ports.get(&port.id).map(|facts| facts.takes).unwrap_or_default();
    let state = lasting.outlets.entry(port.name.clone());
    let state = Arc::clone(state.or_insert_with(|| Arc::new(OutletState::new(workers))));
    let takes = Takes { longest: longest_super_packet(port), ..takes };
    Outlet { takes, coalesce: port.coalesce && takes.segments, state }
}

/// Maximum length of a super-packet for a port whose queue keeps to a rate: a millisecond at that rate. A
/// longer one would make the flows behind it wait for all of its segments.
fn longest_super_packet(port: &Port) -> Option<u32> {
    let BytesPerSecond(rate) = port.way_out()?.rate()?;
    Some(u32::try_from(rate / 1000).unwrap_or(u32::MAX))
}

/// Length of an IP packet of 64 KiB with an Ethernet header and two tags.
const LONGEST_FRAME: usize = 65_535 + 14 + 8;

/// By tunnel of a list of remotes, the list's first tunnel: the bridge treats the list as one port.
fn split_horizons(configuration: &Configuration) -> HashMap<PortId, PortId> {
    let listed = configuration.tunnels.iter().filter(|tunnel| tunnel.is_of_list());
    let mut first = HashMap::new();
    listed.map(|tunnel| (tunnel.id, *first.entry(tunnel.table.as_str()).or_insert(tunnel.id))).collect()
}

/// MAC addresses of the members that are interfaces of the kernel. If an interface and a TAP share an
/// address, frames to it go to the TAP.
fn own_addresses(
    bridge: &Bridge,
    configuration: &Configuration,
    ports: &HashMap<PortId, PortProperties>,
) -> HashMap<PortId, MacAddress> {
    let members = bridge.members.iter().filter_map(|member| {
        let (port, facts) = (configuration.port(member.port)?, ports.get(&member.port)?);
        Some((port, facts.mac))
    });
    let (mut own, mut interfaces) = (HashMap::new(), HashMap::new());
    for (port, mac) in members {
        match port.device {
            Device::Tap(_) => drop(own.insert(port.id, mac)),
            Device::Interface(_) => drop(interfaces.insert(port.id, mac)),
            Device::Lan78xx(_) | Device::Usb(_) | Device::Pci(_) | Device::Tun(_) | Device::Kernel => {}
        }
    }
    let taps = own.values().copied().collect::<HashSet<_>>();
    own.extend(interfaces.into_iter().filter(|(_, mac)| !taps.contains(mac)));
    own
}

fn bridge_options(
    bridge: &Bridge,
    (groups, own): (&HashMap<PortId, PortId>, &HashMap<PortId, MacAddress>),
    lasting: &mut Lasting,
) -> Result<BridgeOptions> {
    let members = bridge.members.iter().map(|member| {
        Ok(MemberOptions {
            port: member.port,
            vlans: vlan_mode(member.vlan.as_ref())?,
            learning: member.learning,
            flood: member.flood,
            isolated: member.isolated,
            split_horizon: groups.get(&member.port).copied(),
            fdb_max_learned: member.fdb_max_learned,
            hairpin: member.hairpin.then_some(member.hairpin_flood_limit),
            own_address: own.get(&member.port).copied(),
            flood_limits: FloodLimits {
                unknown_unicast: bridge.flood_limit.unknown_unicast,
                multicast: bridge.flood_limit.multicast,
                broadcast: bridge.flood_limit.broadcast,
            },
        })
    });
    let entries = bridge.static_entries.iter().map(|entry| {
        let vlan = entry.vlan.map(vlan_id).transpose()?;
        Ok(StaticEntry { address: MacAddress(entry.mac.0), vlan, port: entry.port })
    });
    Ok(BridgeOptions {
        name: bridge.name.clone(),
        ageing_seconds: bridge.ageing_seconds,
        members: members.collect::<Result<_>>()?,
        static_entries: entries.collect::<Result<_>>()?,
        forward_groups: bridge.groups(),
        fdb: lasting.fdb(bridge),
    })
}

fn vlan_mode(vlan: Option<&MemberVlan>) -> Result<VlanMode> {
    Ok(match vlan {
        None => VlanMode::Transparent,
        Some(MemberVlan::Access(vlan)) => VlanMode::Access(vlan_id(*vlan)?),
        Some(MemberVlan::Trunk { allowed, native }) => VlanMode::Trunk {
            allowed: allowed.iter().map(|&vlan| vlan_id(vlan)).collect::<Result<VlanSet>>()?,
            native: native.map(vlan_id).transpose()?,
        },
    })
}

fn vlan_id(vlan: u16) -> Result<VlanId> {
    VlanId::configured(vlan).ok_or_else(|| anyhow!("{vlan} is not a VLAN ID; use 1 to 4094"))
}

/// Options of a tunnel.
///
/// # Errors
/// When values contradict each other; checked values do not.
pub(super) fn tunnel_options(tunnel: &Tunnel, state: Arc<TunnelState>) -> Result<TunnelOptions> {
    if let Some(mac) = tunnel.next_hop_mac {
        state.next_hop.set_address(Some(MacAddress(mac.0)));
    }
    let ttl = match tunnel.ttl {
        ConfiguredTtl::Inherit => Ttl::Inherit,
        ConfiguredTtl::Fixed(ttl) => {
            Ttl::Fixed(NonZeroU8::new(ttl).context("the tunnel has a TTL of 0; use 1 to 255")?)
        }
    };
    let dscp = match tunnel.dscp {
        ConfiguredDscp::Inherit => TunnelDscp::Inherit,
        ConfiguredDscp::Fixed(dscp) => {
            TunnelDscp::Fixed(Dscp::new(dscp).context("the tunnel has a DSCP above 63; use 0 to 63")?)
        }
    };
    let ecn = match tunnel.ecn {
        Ecn::Rfc6040 => EcnMode::Normal,
        Ecn::None => EcnMode::Compatibility,
    };
    let tcp_mss = match tunnel.tcp_mss {
        ConfiguredMss::Clamp => TcpMss::Auto,
        ConfiguredMss::Off => TcpMss::Off,
        ConfiguredMss::Bytes(bytes) => TcpMss::AtMost(bytes),
    };
    let flow_label = match tunnel.flow_label {
        ConfiguredLabel::Flow => FlowLabel::Flow,
        ConfiguredLabel::Inherit => FlowLabel::Inherit,
        ConfiguredLabel::Fixed(label) => FlowLabel::Fixed(label),
    };
    let ends = Ends::of(tunnel.local, tunnel.remote)
        .context("`local` and `remote` of the tunnel have different address families")?;
    let addresses = tunnel.addresses.iter().filter_map(|own| match own.address {
        IpAddr::V4(address) => Some(address),
        IpAddr::V6(_) => None,
    });
    Ok(TunnelOptions {
        addresses: addresses.collect(),
        encapsulation: tunnel.encapsulation(),
        key: tunnel.key,
        checksum: tunnel.vxlan.map_or(tunnel.checksum, |vxlan| vxlan.udp_checksum),
        sequence: tunnel.sequence,
        ttl,
        dscp,
        ecn,
        flow_label,
        encapsulation_limit: tunnel.encapsulation_limit,
        dont_fragment: tunnel.dont_fragment,
        mtu: tunnel.mtu,
        tcp_mss,
        carries: super::tunnels::carries(tunnel),
        keepalive: tunnel.keepalive.map(|_| super::tunnels::keepalive_station(tunnel, state.secret)),
        ..TunnelOptions::new(tunnel.id, ends, tunnel.port, state)
    })
}

fn underlay(port: PortId, is_shared: bool, facts: &PortProperties) -> Option<Underlay> {
    let mtu = u16::try_from(facts.mtu).unwrap_or(u16::MAX);
    Some(Underlay { port, mac: facts.mac, mtu, vlan: None, is_shared })
}
