//! Tunnels of packets, as the router sees them: links like those of its ports.

use super::routing::{AttachedPort, Ports};
use super::tables::{Lasting, tunnel_options};
use crate::config::model::{Configuration, Tunnel};
use crate::device::Facts;
use crate::hash::fnv1a;
use polder_datapath::tunnel::{Carries, Stations, TunnelState};
use polder_datapath::wire::{IpProtocol, MacAddress};
use std::net::IpAddr;
use std::sync::Arc;

/// Payload of a tunnel.
pub(super) fn carries(tunnel: &Tunnel) -> Carries {
    if tunnel.is_routed() { Carries::Packets(stations(tunnel)) } else { Carries::Frames }
}

/// The addresses that packets of a tunnel have while they are inside. Another Polder at the other end has the
/// same ones the other way round.
pub(super) fn stations(tunnel: &Tunnel) -> Stations {
    // Of GRE, the key alone.
    let protocol = Some(tunnel.carrier().protocol()).filter(|&protocol| protocol != IpProtocol::GRE);
    let protocol = protocol.map(|protocol| protocol.0);
    let key = || tunnel.key.map(u32::to_be_bytes).into_iter().flatten().chain(protocol);
    let station = |ours, theirs| MacAddress(station([ours, theirs], key()));
    Stations { near: station(tunnel.local, tunnel.remote), far: station(tunnel.remote, tunnel.local) }
}

/// Station of this end that sends keepalives: an address of its own for each tunnel, that nobody can guess who does not
/// know the secret of the tunnel's state.
pub(super) fn keepalive_station(tunnel: &Tunnel, secret: u64) -> MacAddress {
    let number = tunnel.vxlan.map(|vxlan| vxlan.vni).or(tunnel.key).map(u32::to_be_bytes);
    let numbers = number.into_iter().flatten().chain(secret.to_be_bytes());
    let [_, rest @ ..] = station([tunnel.local, tunnel.remote], numbers);
    let [b, c, d, e, f] = rest;
    // Other than the stations of tunnels of packets, whose first octet is 02.
    MacAddress([0x0e, b, c, d, e, f])
}

/// A locally administered address made of the ends of a tunnel and its numbers.
fn station(ends: [IpAddr; 2], numbers: impl Iterator<Item = u8>) -> [u8; 6] {
    let octets = ends.into_iter().flat_map(|end| match end {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    });
    let hash = fnv1a(octets.chain(numbers));
    let [.., b, c, d, e, f] = (hash ^ hash >> 32).to_be_bytes();
    [2, b, c, d, e, f]
}

/// Adds the tunnels of packets to the ports that the router sees.
pub(super) fn add_links(ports: &mut Ports, configuration: &Configuration, lasting: &Lasting) {
    for tunnel in configuration.tunnels.iter().filter(|tunnel| tunnel.is_routed()) {
        let Some(carrier) = ports.get(&tunnel.port) else { continue };
        let state = lasting.tunnels.get(&tunnel.name).map(Arc::clone);
        let Some(mtu) = mtu(tunnel, carrier.facts.mtu, state) else { continue };
        let facts = Facts { queues: 0, ..Facts::new(&tunnel.name, stations(tunnel).near, mtu.into(), "") };
        let up = carrier.up && !lasting.dead.contains(&tunnel.id);
        ports.insert(tunnel.id, AttachedPort { facts, up, punts: false });
    }
}

/// The largest packet that is routed into a tunnel over a port that carries `carrier` bytes.
pub(super) fn mtu(tunnel: &Tunnel, carrier: u32, state: Option<Arc<TunnelState>>) -> Option<u16> {
    let options = tunnel_options(tunnel, state.unwrap_or_else(|| Arc::new(TunnelState::new(1)))).ok()?;
    Some(options.packet_mtu(u16::try_from(carrier).unwrap_or(u16::MAX)))
}
