//! Layer-3 tunnels as links of the router.

use super::routing::{AttachedPort, Ports};
use super::tables::{Lasting, tunnel_options};
use crate::config::model::{Configuration, Tunnel};
use crate::device::PortProperties;
use crate::hash::fnv1a;
use polder_datapath::tunnel::{Carries, Stations, TunnelState};
use polder_datapath::wire::{IpProtocol, MacAddress};
use std::net::IpAddr;
use std::sync::Arc;

/// Payload type of a tunnel.
pub(super) fn carries(tunnel: &Tunnel) -> Carries {
    if tunnel.is_routed() { Carries::Packets(stations(tunnel)) } else { Carries::Frames }
}

/// Internal MAC addresses of packets of a tunnel. A Polder at the other end derives the same pair, swapped.
pub(super) fn stations(tunnel: &Tunnel) -> Stations {
    // For GRE, only the key is included.
    let protocol = Some(tunnel.carrier().protocol()).filter(|&protocol| protocol != IpProtocol::GRE);
    let protocol = protocol.map(|protocol| protocol.0);
    let key = || tunnel.key.map(u32::to_be_bytes).into_iter().flatten().chain(protocol);
    let station = |ours, theirs| MacAddress(station([ours, theirs], key()));
    Stations { near: station(tunnel.local, tunnel.remote), far: station(tunnel.remote, tunnel.local) }
}

/// Source MAC address of keepalives: different for each tunnel, and not predictable without the secret of the
/// tunnel's state.
pub(super) fn keepalive_station(tunnel: &Tunnel, secret: u64) -> MacAddress {
    let number = tunnel.vxlan.map(|vxlan| vxlan.vni).or(tunnel.key).map(u32::to_be_bytes);
    let numbers = number.into_iter().flatten().chain(secret.to_be_bytes());
    let [_, rest @ ..] = station([tunnel.local, tunnel.remote], numbers);
    let [b, c, d, e, f] = rest;
    // The first octet differs from that of [`stations`], which is 02.
    MacAddress([0x0e, b, c, d, e, f])
}

/// A locally administered MAC address, hashed from the ends of a tunnel and its numbers.
fn station(ends: [IpAddr; 2], numbers: impl Iterator<Item = u8>) -> [u8; 6] {
    let octets = ends.into_iter().flat_map(|end| match end {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    });
    let hash = fnv1a(octets.chain(numbers));
    let [.., b, c, d, e, f] = (hash ^ hash >> 32).to_be_bytes();
    [2, b, c, d, e, f]
}

/// Adds the layer-3 tunnels to the router's ports.
pub(super) fn add_links(ports: &mut Ports, configuration: &Configuration, lasting: &Lasting) {
    for tunnel in configuration.tunnels.iter().filter(|tunnel| tunnel.is_routed()) {
        let Some(carrier) = ports.get(&tunnel.port) else { continue };
        let state = lasting.tunnels.get(&tunnel.name).map(Arc::clone);
        let Some(mtu) = mtu(tunnel, carrier.facts.mtu, state) else { continue };
        let facts = PortProperties {
            queues: 0,
            ..PortProperties::new(&tunnel.name, stations(tunnel).near, mtu.into(), "")
        };
        let up = carrier.up && !lasting.dead.contains(&tunnel.id);
        ports.insert(tunnel.id, AttachedPort { facts, up, punts: false });
    }
}

/// The tunnel's MTU for routed packets, over an underlay with an MTU of `carrier` bytes.
pub(super) fn mtu(tunnel: &Tunnel, carrier: u32, state: Option<Arc<TunnelState>>) -> Option<u16> {
    let options = tunnel_options(tunnel, state.unwrap_or_else(|| Arc::new(TunnelState::new(1)))).ok()?;
    Some(options.packet_mtu(u16::try_from(carrier).unwrap_or(u16::MAX)))
}
