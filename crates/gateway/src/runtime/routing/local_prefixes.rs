//! Destinations that stay with the kernel: this host's addresses, its local networks (`ip route add local
//! …`), and destinations that the kernel routes to interfaces that are no ports.

use super::Routing;
use super::wanted::{LOCAL_TABLE, Origin};
use crate::kernel::Mirror;
use crate::kernel::message::{Rule, Target};
use polder_datapath::route::Prefix;
use polder_devices::af_xdp;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};

/// Prefixes that stay with the kernel, among the routes in use.
#[derive(Debug, Default)]
pub(super) struct LocalPrefixes {
    /// Local networks of this host.
    networks: BTreeSet<Prefix>,
    /// Prefixes that the kernel forwards.
    forwarded: BTreeSet<Prefix>,
}

/// Reason why packets of a route stay with the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stays {
    /// The packets are for this host.
    Local,
    /// The kernel forwards them.
    Forwarded,
}

impl LocalPrefixes {
    /// Records a change of the route in use to a prefix; returns true if the set of prefixes changed.
    pub(super) fn changes(&mut self, prefix: Prefix, before: Option<Stays>, now: Option<Stays>) -> bool {
        let is_network = now == Some(Stays::Local) && is_net(prefix);
        for (set, is_of) in
            [(&mut self.networks, is_network), (&mut self.forwarded, now == Some(Stays::Forwarded))]
        {
            if is_of {
                set.insert(prefix);
            } else {
                set.remove(&prefix);
            }
        }
        before != now || has_part(&self.networks, prefix) || has_part(&self.forwarded, prefix)
    }

    /// Replaces the prefixes that the kernel forwards; returns true if they differ.
    pub(super) fn set_forwarded(&mut self, forwarded: BTreeSet<Prefix>) -> bool {
        let is_change = forwarded != self.forwarded;
        self.forwarded = forwarded;
        is_change
    }
}

/// True if a prefix is inside one of `networks`.
pub(super) fn has_part(networks: &BTreeSet<Prefix>, prefix: Prefix) -> bool {
    let shorter = (0..prefix.bits()).filter_map(|bits| Prefix::new(prefix.address(), bits).ok());
    !networks.is_empty() && shorter.into_iter().any(|shorter| networks.contains(&shorter))
}

impl Routing {
    /// Prefixes that programs leave to the kernel: this host's addresses, broadcasts on its links, and local
    /// networks; with `forwarded`, also destinations that the kernel forwards and 0.0.0.0 for answers to DHCP
    /// clients; each with its exceptions.
    ///
    /// With more than [`MOST_PARTS`] of them, forwarded destinations are left out: workers punt their
    /// packets.
    pub(in crate::runtime) fn lands(&self, forwarded: bool) -> Vec<af_xdp::LocalPrefixes> {
        let Some(mirror) = self.mirror() else { return Vec::new() };
        let has_clients = forwarded.then_some((Prefix::host(Ipv4Addr::UNSPECIFIED.into()), true));
        let is_part_of_forwarded = |prefix: &&Prefix| {
            has_part(&self.local.forwarded, **prefix) && !self.local.forwarded.contains(*prefix)
        };
        let forwarded = forwarded
            && !self.local.forwarded.is_empty()
            && self.installed.keys().filter(is_part_of_forwarded).count() + self.local.forwarded.len()
                <= MOST_PARTS;
        let of_table = mirror.routes().filter(|(table, prefix, _, target)| {
            *table == LOCAL_TABLE && prefix.is_host() && is_local(target)
        });
        let addresses = mirror.addresses().map(|address| Prefix::host(address.address));
        let own = of_table.map(|(_, prefix, ..)| prefix).chain(addresses).map(|prefix| (prefix, true));
        let mut lands = own.chain(has_clients).collect::<BTreeMap<_, _>>();
        lands.extend(self.local.networks.iter().map(|network| (*network, true)));
        if forwarded {
            lands.extend(self.local.forwarded.iter().map(|prefix| (*prefix, true)));
        }
        for (prefix, routes) in &self.installed {
            if forwarded && self.local.forwarded.contains(prefix) {
                continue;
            }
            let is_kernels = routes
                .only()
                .is_some_and(|(origin, target)| matches!(origin, Origin::Kernel(..)) && is_local(target));
            let is_part = !is_kernels
                && (has_part(&self.local.networks, *prefix)
                    || forwarded && has_part(&self.local.forwarded, *prefix));
            if is_part || is_kernels && prefix.is_host() {
                lands.insert(*prefix, is_kernels);
            }
        }
        lands.into_iter().map(|(network, is_kernels)| af_xdp::LocalPrefixes { network, is_kernels }).collect()
    }
}

/// Maximum number of forwarded prefixes and exceptions in a program's table.
const MOST_PARTS: usize = 16_384;

/// Networks in the kernel's table `local`, which end the look-up before later tables. Without added rules the
/// kernel merges `local` and `main` for IPv4; then the longest prefix wins, and no network is returned.
pub(super) fn of_table(mirror: &Mirror) -> BTreeSet<Prefix> {
    let is_split = has_own_rules(mirror);
    let counts = |prefix: Prefix| is_net(prefix) && (is_split || prefix.is_v6());
    let nets = mirror
        .routes()
        .filter(|(table, prefix, _, target)| *table == LOCAL_TABLE && counts(*prefix) && is_local(target));
    nets.map(|(_, prefix, ..)| prefix).collect()
}

/// True if there are IPv4 rules other than the kernel's default ones.
pub(super) fn has_own_rules(mirror: &Mirror) -> bool {
    const USUAL: [Option<u32>; 3] = [Some(LOCAL_TABLE), Some(254), Some(253)];
    let is_unusual = |rule: &Rule| !rule.is_v6 && (rule.selects || !USUAL.contains(&rule.table));
    mirror.rules().any(is_unusual)
}

/// True if a prefix is larger than one address and not loopback.
pub(super) fn is_net(prefix: Prefix) -> bool {
    const LOOP: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 0));
    !(prefix.is_host() || prefix.address() == LOOP && prefix.bits() >= 8)
}

/// True if a route is local or broadcast.
pub(super) fn is_local(target: &Target) -> bool {
    matches!(target, Target::Local(_) | Target::Broadcast)
}
