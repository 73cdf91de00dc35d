//! Gateways in memory with a number of one object each, and traffic that visits all of them at random.

use super::rows::Object;
use crate::scenarios::engine::harness::{ETHERNET, Harness, LOCAL, Path, RADIO, REMOTE, bridge, tables};
use crate::scenarios::engine::routing::{self, Size, interface, mac};
use crate::scenarios::engine::scatter::Scatter;
use polder_buffers::PortId;
use polder_datapath::engine::Tables;
use polder_datapath::filter::{Action, Filters, Prefix as FilterPrefix, Rule, RuleCounts};
use polder_datapath::forward::{Bridges, Links, StaticEntry};
use polder_datapath::port::RxQueue;
use polder_datapath::route::{Neighbours, NextHopEntry, Prefix, Router, Routers};
use polder_datapath::tunnel::{TunnelOptions, TunnelState, Tunnels, Underlay};
use polder_datapath::units::Nanos;
use polder_datapath::wire::MacAddress;
use polder_testbed::traffic::memory::Tap;
use polder_testbed::traffic::vary::{Draw, Vary};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

/// Draws of a port, which come in turn: of ten thousand objects each is drawn thirteen times.
pub(super) const DRAWS: usize = 1 << 17;
/// First of the tunnels' ports.
const FIRST_TUNNEL: u16 = 2;
/// First of the addresses that rules and neighbours are for: 16 bits of them.
pub(super) const FIRST: u32 = 0x0a40_0000;
/// Time at which static addresses are bound.
const NOW: Nanos = Nanos::SECOND;

/// A source at a port.
type Fed = (Box<dyn RxQueue>, Arc<Tap>);

/// A gateway with a number of one object.
pub(super) struct Bench {
    pub(super) harness: Harness,
    /// Router whose tables are read.
    _router: Option<Router>,
}

impl Bench {
    /// Starts a worker on core `core`; packets come when it is opened.
    pub(super) fn start(object: Object, count: u32, core: usize) -> anyhow::Result<Self> {
        let alone = |harness| Self { harness, _router: None };
        Ok(match object {
            Object::Tunnels => alone(tunnels(count, core)?),
            Object::Stations => alone(stations(count, core)?),
            Object::Neighbours => neighbours(count, core)?,
            Object::Rules => alone(rules(count, core)?),
            Object::Routes => {
                let size = Size { routes: usize::try_from(count)?, is_v6: false };
                let (harness, router) = routing::start(size, core)?;
                Self { harness, _router: Some(router) }
            }
            Object::Ports => alone(ports(count, core)?),
            Object::Flows => alone(Harness::start(Path::Bridge, count, core)?),
        })
    }
}

/// MAC address of a station; the second byte is its group.
pub(super) fn station(group: u8, number: u32) -> MacAddress {
    let [_, a, b, c] = number.to_be_bytes();
    MacAddress([2, group, 0, a, b, c])
}

/// Random pairs of stations.
pub(super) fn pairs(
    seed: u64,
    count: usize,
    mut draw: impl FnMut(&mut fastrand::Rng) -> (MacAddress, MacAddress),
) -> Vec<Draw> {
    let mut random = fastrand::Rng::with_seed(seed);
    let pair = |_| {
        let (destination, source) = draw(&mut random);
        let mut bytes = [0; 16];
        bytes[..6].copy_from_slice(&destination.0);
        bytes[6..12].copy_from_slice(&source.0);
        bytes
    };
    (0..count).map(pair).collect()
}

/// A source whose packets go between drawn stations.
fn between(draws: Vec<Draw>) -> Fed {
    Scatter::open(Vary::Stations, (station(0, 0), station(0, 0)), draws)
}

/// A port that nothing comes from.
fn silent() -> Fed {
    let (source, tap) = polder_testbed::traffic::memory::Source::dry();
    (Box::new(source), tap)
}

/// Frames for a station behind each tunnel.
fn tunnels(count: u32, core: usize) -> anyhow::Result<Harness> {
    let port = |number: u32| u16::try_from(number).map(|number| PortId(FIRST_TUNNEL + number));
    let mut options = Vec::new();
    let mut bound = Vec::new();
    for number in 0..count {
        let state = Arc::new(TunnelState::new(1));
        state.next_hop.set_address(Some(MacAddress(REMOTE.0)));
        let remote = Ipv4Addr::from_bits(FIRST + number);
        options.push(TunnelOptions::new(port(number)?, (LOCAL.1, remote), RADIO, state));
        bound.push(StaticEntry { address: station(1, number), vlan: None, port: port(number)? });
    }
    let underlay =
        Underlay { port: RADIO, mac: MacAddress(LOCAL.0), mtu: 1600, vlan: None, is_shared: false };
    let members = bound.iter().map(|entry| entry.port).collect::<Vec<_>>();
    let bridges = bridge([ETHERNET].into_iter().chain(members), bound, NOW)?;
    let tables = tables(bridges, Tunnels::new([underlay], options)?);
    let draws = pairs(1, DRAWS, |random| (station(1, random.u32(..count)), station(0, 1)));
    Harness::between(tables, [between(draws), silent()], core)
}

/// Frames between the stations of two ports, half of them at each, which the bridge learns.
fn stations(count: u32, core: usize) -> anyhow::Result<Harness> {
    let half = (count / 2).max(1);
    let bridges = bridge([ETHERNET, RADIO], Vec::new(), NOW)?;
    let sources = [(1, 2), (2, 1)].map(|(from, to)| {
        between(pairs(from.into(), DRAWS, |random| {
            (station(to, random.u32(..half)), station(from, random.u32(..half)))
        }))
    });
    Harness::between(tables(bridges, Tunnels::new([], [])?), sources, core)
}

/// Frames between one station of each port.
fn ports(count: u32, core: usize) -> anyhow::Result<Harness> {
    let count = u16::try_from(count)?;
    let bound = |port: u16| StaticEntry { address: station(1, port.into()), vlan: None, port: PortId(port) };
    let bridges = bridge((0..count).map(PortId), (0..count).map(bound).collect(), NOW)?;
    let sources = (0..count).map(|port| {
        between(pairs(port.into(), DRAWS / usize::from(count), |random| {
            // Any port but its own.
            let to = (port + random.u16(1..count)) % count;
            (station(1, to.into()), station(1, port.into()))
        }))
    });
    Harness::between(tables(bridges, Tunnels::new([], [])?), sources, core)
}

/// Random addresses of as many that follow each other.
pub(super) fn addresses(count: u32) -> Vec<Draw> {
    let mut random = fastrand::Rng::with_seed(count.into());
    let address = |_| {
        let mut bytes = [0; 16];
        bytes[..4].copy_from_slice(&(FIRST + random.u32(..count)).to_be_bytes());
        bytes
    };
    (0..DRAWS).map(address).collect()
}

/// Packets for hosts, each of which is a neighbour with a route of its own.
fn neighbours(count: u32, core: usize) -> anyhow::Result<Bench> {
    let interfaces = [ETHERNET, RADIO].map(interface);
    let (mut router, mut neighbours) = (Router::new(), Neighbours::new());
    for number in 0..count {
        let address = IpAddr::from(Ipv4Addr::from_bits(FIRST + number));
        let hop = neighbours.hop(&interfaces[1], address);
        neighbours.set(&mut router, &interfaces[1], address, station(3, number), (Nanos(0), true));
        let Some(next_hop) = router.add_next_hop(NextHopEntry::Hop(hop)) else { break };
        router.insert(Prefix::new(address, 32)?, next_hop);
    }
    let no_bridges = Bridges::new(Vec::new(), Arc::new(Links::new(2)))?;
    let routers = Routers::new([router.access()], interfaces)?;
    let tables = Tables { routers, ..tables(no_bridges, Tunnels::new([], [])?) };
    let source = Scatter::open(Vary::DestinationV4, (mac(ETHERNET), station(0, 1)), addresses(count));
    let harness = Harness::between(tables, [source, silent()], core)?;
    Ok(Bench { harness, _router: Some(router) })
}

/// Packets for hosts, each of which has a rule: of four shapes in turn, which accept.
fn rules(count: u32, core: usize) -> anyhow::Result<Harness> {
    let rule = |number: u32| {
        let address = Ipv4Addr::from_bits(FIRST + number).into();
        let shaped = match number % 4 {
            0 => Rule::default(),
            1 => Rule { protocols: vec![17], ..Rule::default() },
            2 => Rule {
                sources: vec![FilterPrefix { address: Ipv4Addr::new(10, 0, 0, 0).into(), bits: 24 }],
                ..Rule::default()
            },
            _ => Rule { ether_types: vec![0x0800], ..Rule::default() },
        };
        Rule { destinations: vec![FilterPrefix { address, bits: 32 }], action: Action::Accept, ..shaped }
    };
    let mut counts = RuleCounts::new(1);
    counts.grow_to(usize::try_from(count)?);
    let rules = (0..count).map(|number| (rule(number), number)).collect::<Vec<_>>();
    let filters = Filters::new(&rules, Vec::new(), counts)?;
    let bound = vec![StaticEntry { address: station(1, 0), vlan: None, port: RADIO }];
    let tables = Tables { filters, ..tables(bridge([ETHERNET, RADIO], bound, NOW)?, Tunnels::new([], [])?) };
    let source = Scatter::open(Vary::DestinationV4, (station(1, 0), station(0, 1)), addresses(count));
    Harness::between(tables, [source, silent()], core)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// All packets find their object: nothing is dropped or flooded.
    #[test]
    fn each_object_forwards_what_is_sent() {
        for object in Object::ALL {
            [2, 100].into_iter().for_each(|count| assert_forwards(object, count));
        }
    }

    fn assert_forwards(object: Object, count: u32) {
        let bench = Bench::start(object, count, 0).unwrap();
        bench.harness.open(true);
        std::thread::sleep(Duration::from_millis(50));
        let before = bench.harness.read().unwrap();
        let later = |_| {
            std::thread::sleep(Duration::from_millis(50));
            bench.harness.read().unwrap().since(&before)
        };
        let window = (0..200).map(later).find(|window| window.packets > 10_000).unwrap();
        let difference = window.packets.abs_diff(window.sent);
        assert!(difference <= 512, "{object:?} {count} {window:?}");
        let left = bench.harness.stop().unwrap();
        assert_eq!((left.leaked, left.unaccounted), (0, 0), "{object:?} {count}");
    }
}
