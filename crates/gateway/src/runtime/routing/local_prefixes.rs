//! Destinations that stay with the kernel: addresses of this machine, networks that are the machine's as a whole
//! (`ip route add local …`), and destinations that the kernel forwards to by interfaces that are no ports.

use super::Routing;
use super::wanted::{LOCAL_TABLE, Origin};
use crate::kernel::Mirror;
use crate::kernel::message::{Rule, Target};
use polder_datapath::route::Prefix;
use polder_devices::af_xdp;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};

/// Prefixes that stay with the kernel, among the routes that count.
#[derive(Debug, Default)]
pub(super) struct LocalPrefixes {
    /// Networks of this machine. There are few.
    networks: BTreeSet<Prefix>,
    /// Prefixes whose packets the kernel forwards.
    forwarded: BTreeSet<Prefix>,
}

/// Reason for which packets of a route stay with the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stays {
    /// They are for this machine.
    Local,
    /// The kernel forwards them.
    Forwarded,
}

impl LocalPrefixes {
    /// Another route to a prefix counts; true if the kernel keeps something else than before.
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

    /// Makes `forwarded` the prefixes whose packets the kernel forwards; true if they were others.
    pub(super) fn set_forwarded(&mut self, forwarded: BTreeSet<Prefix>) -> bool {
        let is_change = forwarded != self.forwarded;
        self.forwarded = forwarded;
        is_change
    }
}

/// True if a prefix is a part of one of `networks`.
pub(super) fn has_part(networks: &BTreeSet<Prefix>, prefix: Prefix) -> bool {
    let shorter = (0..prefix.bits()).filter_map(|bits| Prefix::new(prefix.address(), bits).ok());
    !networks.is_empty() && shorter.into_iter().any(|shorter| networks.contains(&shorter))
}

impl Routing {
    /// Prefixes that stay with the kernel at the ingresses: addresses that are this machine's own, or broadcasts on one
    /// of its links; networks of this machine; with `forwarded`, destinations that the kernel forwards to, and 0.0.0.0 for
    /// packets to clients of DHCP; and the exceptions within these.
    ///
    /// With very many exceptions the destinations that the kernel forwards to are left out: user space returns their
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

/// Most prefixes of destinations that the kernel forwards to, and exceptions within them, at an ingress.
const MOST_PARTS: usize = 16_384;

/// Networks of the kernel's own table behind which no later table is looked at. Until somebody adds a rule, the
/// kernel has the routes of IPv4 in this table and in `main` in one: then the smallest network counts.
pub(super) fn of_table(mirror: &Mirror) -> BTreeSet<Prefix> {
    let is_split = has_own_rules(mirror);
    let counts = |prefix: Prefix| is_net(prefix) && (is_split || prefix.is_v6());
    let nets = mirror
        .routes()
        .filter(|(table, prefix, _, target)| *table == LOCAL_TABLE && counts(*prefix) && is_local(target));
    nets.map(|(_, prefix, ..)| prefix).collect()
}

/// True if there are rules of IPv4 beyond those that the kernel begins with.
pub(super) fn has_own_rules(mirror: &Mirror) -> bool {
    const USUAL: [Option<u32>; 3] = [Some(LOCAL_TABLE), Some(254), Some(253)];
    let is_unusual = |rule: &Rule| !rule.is_v6 && (rule.selects || !USUAL.contains(&rule.table));
    mirror.rules().any(is_unusual)
}

/// True if it has room for more than an address, and for addresses that may come by a wire.
pub(super) fn is_net(prefix: Prefix) -> bool {
    const LOOP: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 0));
    !(prefix.is_host() || prefix.address() == LOOP && prefix.bits() >= 8)
}

/// True if a route is for this machine, or for all stations of one of its links.
pub(super) fn is_local(target: &Target) -> bool {
    matches!(target, Target::Local(_) | Target::Broadcast)
}
