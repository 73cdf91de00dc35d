//! The router's rows: tables of realistic prefixes, random destinations inside them.

use super::harness::{self, ETHERNET, Harness, RADIO};
use super::scatter::Scatter;
use polder_buffers::PortId;
use polder_datapath::engine::Tables;
use polder_datapath::forward::{Bridges, Links};
use polder_datapath::port::RxQueue;
use polder_datapath::route::{
    Fib, Interface, InterfaceId, Neighbours, NextHopEntry, NextHopId, Owner, Prefix, Router, RouterId,
    Routers, SourceCheck,
};
use polder_datapath::tunnel::Tunnels;
use polder_datapath::units::Nanos;
use polder_datapath::wire::MacAddress;
use polder_testbed::interrupt;
use polder_testbed::meters::statistics::Samples;
use polder_testbed::traffic::memory::Tap;
use polder_testbed::traffic::vary::{Draw, Vary};
use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Instant;

/// Destinations that are drawn; they come in turn.
const DESTINATIONS: usize = 1 << 20;
/// Next hops that routes lead to, half on each port.
pub(super) const HOPS: u8 = 200;
/// Blocks of 32 bits that IPv6 routes are in.
const BLOCKS_V6: u64 = 20_000;
/// Station that all packets come from.
const SENDER: MacAddress = MacAddress([2, 0, 0, 7, 0, 1]);
/// Routes that are taken away and brought back.
const UPDATES: usize = 200_000;

/// A table that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Size {
    /// Routes.
    pub(crate) routes: usize,
    /// True for IPv6, false for IPv4.
    pub(crate) is_v6: bool,
}

/// A table's routes, and destinations inside them.
pub(crate) struct Load {
    /// Routes, whose next hops take turns.
    pub(crate) prefixes: Vec<Prefix>,
    random: Random,
}

impl Load {
    /// Draws routes; those of one size are always the same.
    pub(crate) fn draw(size: Size) -> Self {
        let (mut random, mut seen) = (Random(fastrand::Rng::with_seed(size.routes as u64)), HashSet::new());
        let prefixes = random.fill(size, |prefix, _| seen.insert(prefix));
        Self { prefixes, random }
    }

    /// Random destinations.
    pub(crate) fn destinations(&mut self) -> Vec<Draw> {
        (0..DESTINATIONS).map(|_| self.random.inside(&self.prefixes)).collect()
    }

    /// A port's source of packets for random destinations, and its tap.
    pub(super) fn source(&mut self, port: PortId) -> (Box<dyn RxQueue>, Arc<Tap>) {
        let destinations = self.destinations();
        let is_v6 = self.prefixes.first().is_some_and(|prefix| prefix.address().is_ipv6());
        let vary = if is_v6 { Vary::DestinationV6 } else { Vary::DestinationV4 };
        Scatter::open(vary, (mac(port), SENDER), destinations)
    }

    /// Tables of a router with these routes between two ports, and the router.
    pub(super) fn tables(&self) -> anyhow::Result<(Tables, Router)> {
        let interfaces = [ETHERNET, RADIO].map(interface);
        let (mut router, mut neighbours) = (Router::new(), Neighbours::new());
        let mut ways = Vec::new();
        for number in 0..HOPS {
            let interface = &interfaces[usize::from(number % 2)];
            let (address, mac) = hop(number);
            let hop = neighbours.hop(interface, address.into());
            neighbours.set(&mut router, interface, address.into(), mac, (Nanos(0), true));
            ways.extend(router.add_next_hop(NextHopEntry::Hop(hop)));
        }
        for (number, &prefix) in self.prefixes.iter().enumerate() {
            router.insert(prefix, ways[number % ways.len()]);
        }
        let tables = Tables {
            routers: Routers::new([router.access()], interfaces)?,
            ..harness::tables(Bridges::new(Vec::new(), Arc::new(Links::new(8)))?, Tunnels::new([], [])?)
        };
        Ok((tables, router))
    }
}

/// Addresses of a next hop, of which even ones are on the first port.
pub(super) fn hop(number: u8) -> (Ipv4Addr, MacAddress) {
    (Ipv4Addr::new(169, 254, 0, number), MacAddress([2, 0, 0, 9, 0, number]))
}

/// A worker that routes between two ports by a table of that size, as [`Harness::start`] starts others.
pub(crate) fn start(size: Size, core: usize) -> anyhow::Result<(Harness, Router)> {
    let mut load = Load::draw(size);
    let (tables, router) = load.tables()?;
    let sources = [ETHERNET, RADIO].map(|port| load.source(port));
    Ok((Harness::between(tables, sources, core)?, router))
}

/// The router's interface on a port.
pub(crate) fn interface(port: PortId) -> Interface {
    Interface {
        id: InterfaceId::untagged(port),
        router: RouterId(0),
        mac: mac(port),
        mtu: 1500,
        addresses: Vec::new(),
        owner: Owner::Polder,
        sources: SourceCheck::default(),
    }
}

/// Link-layer address of the router on a port.
pub(crate) fn mac(port: PortId) -> MacAddress {
    let [_, low] = port.0.to_be_bytes();
    MacAddress([2, 0, 0, 8, 0, low])
}

/// Changes a second of a table of a million routes without readers, and the bytes of a route in a small and a
/// large table.
#[expect(clippy::disallowed_methods, reason = "the time of a loop is measured")]
#[expect(clippy::cast_precision_loss, reason = "a ratio needs no more than 52 bits")]
pub(super) fn tables(rounds: usize) -> anyhow::Result<(Samples, f64, f64)> {
    let way =
        |number: usize| u32::try_from(1 + number % 200).ok().and_then(NextHopId::new).unwrap_or_default();
    let fill = |routes| {
        let mut fib = Fib::v4();
        let prefixes = Random(fastrand::Rng::with_seed(routes as u64))
            .fill(Size { routes, is_v6: false }, |prefix, number| fib.insert(prefix, way(number)).is_none());
        (fib, prefixes)
    };
    let (small, _) = fill(100);
    let (mut large, prefixes) = fill(1_000_000);
    let bytes = [small.bytes() as f64 / 100.0, large.bytes() as f64 / 1e6];
    let mut samples = Samples::default();
    for _ in 0..rounds {
        interrupt::check()?;
        let start = Instant::now();
        for number in 0..UPDATES / 2 {
            let prefix = prefixes[number * 7919 % prefixes.len()];
            let before = large.remove(prefix).unwrap_or_default();
            large.insert(prefix, before);
        }
        samples.push(UPDATES as f64 / start.elapsed().as_secs_f64());
    }
    Ok((samples, bytes[0], bytes[1]))
}

/// Draws of a table and its traffic.
struct Random(fastrand::Rng);

impl Random {
    fn next(&mut self) -> u64 {
        self.0.u64(..)
    }

    /// Draws prefixes until as many have been taken as the table is to have.
    fn fill(&mut self, size: Size, mut insert: impl FnMut(Prefix, usize) -> bool) -> Vec<Prefix> {
        let mut prefixes = Vec::with_capacity(size.routes);
        while prefixes.len() < size.routes {
            let drawn = if size.is_v6 { self.prefix_v6() } else { self.prefix_v4() };
            prefixes.extend(drawn.filter(|&prefix| insert(prefix, prefixes.len())));
        }
        prefixes
    }

    /// Random unicast prefix, with the length distribution of today's default-free tables.
    fn prefix_v4(&mut self) -> Option<Prefix> {
        let bits = match self.next() % 100 {
            0..60 => 24,
            60..72 => 22,
            72..80 => 23,
            80..86 => 20,
            86..91 => 21,
            91..95 => 19,
            95..97 => 18,
            97..99 => 16,
            _ => 28,
        };
        let [a, b, c, d, ..] = self.next().to_be_bytes();
        let first = 1 + a % 223;
        // Not where no packet goes.
        if matches!(first, 127 | 169) {
            return None;
        }
        Prefix::new(Ipv4Addr::new(first, b, c, d).into(), bits).ok()
    }

    fn prefix_v6(&mut self) -> Option<Prefix> {
        let bits = [32, 36, 40, 44, 48, 48, 48, 48][usize::try_from(self.next() % 8).unwrap_or(0)];
        let block = 0x2000_0000 + (self.next() % BLOCKS_V6) * 26_843;
        let address = u128::from(block << 32 | self.next() >> 32) << 64;
        Prefix::new(Ipv6Addr::from_bits(address).into(), bits).ok()
    }

    /// A random address in a random one of the prefixes.
    fn inside(&mut self, prefixes: &[Prefix]) -> Draw {
        let index = usize::try_from(self.next() % prefixes.len() as u64).unwrap_or(0);
        let prefix = prefixes[index];
        let random = u128::from(self.next()) << 64 | u128::from(self.next());
        let mask = u128::MAX.checked_shr(u32::from(prefix.bits())).unwrap_or(0);
        let first = match prefix.address() {
            IpAddr::V4(address) => u128::from(address.to_bits()) << 96,
            IpAddr::V6(address) => address.to_bits(),
        };
        (first | random & mask).to_be_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// Nothing is dropped: every destination has a route, every hop an address.
    #[test]
    fn both_families_are_routed_and_accounted() {
        for is_v6 in [false, true] {
            let (harness, _router) = start(Size { routes: 2000, is_v6 }, 0).unwrap();
            harness.open(true);
            let before = harness.read().unwrap();
            let window = (0..400)
                .map(|_| {
                    std::thread::sleep(Duration::from_millis(50));
                    harness.read().unwrap().since(&before)
                })
                .find(|window| window.packets > 10_000)
                .expect("packets within 20 seconds");
            assert!(window.sent * 100 > window.packets * 99, "{window:?}");
            let left = harness.stop().unwrap();
            assert_eq!((left.leaked, left.unaccounted), (0, 0));
        }
    }
}
