//! Addresses that stay with the kernel: single addresses, and networks that are the machine's as a
//! whole (`ip route add local …`).

use super::wanted::{LOCAL_TABLE, Origin};
use super::{Routing, is_below};
use crate::kernel::Mirror;
use crate::kernel::message::{Rule, Target};
use polder_datapath::route::Prefix;
use polder_devices::af_xdp;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

/// Networks of this machine among the routes that count. There are few.
#[derive(Debug, Default)]
pub(super) struct LocalPrefixes(BTreeSet<Prefix>);

impl LocalPrefixes {
    /// Another route to a prefix counts now; whether the kernel keeps something else than before.
    pub(super) fn changes(
        &mut self,
        prefix: Prefix,
        old: Option<&(Origin, Arc<Target>)>,
        new: Option<&(Origin, Arc<Target>)>,
    ) -> bool {
        let is_land = |route: Option<&(Origin, Arc<Target>)>| {
            route.is_some_and(|(origin, target)| matches!(origin, Origin::Kernel(..)) && is_local(target))
        };
        let (was, is) = (is_land(old), is_land(new));
        if is && is_net(prefix) {
            self.0.insert(prefix);
        } else {
            self.0.remove(&prefix);
        }
        was != is || self.has(prefix)
    }

    /// True if a prefix is a part of one of the networks.
    fn has(&self, prefix: Prefix) -> bool {
        self.0.iter().any(|network| is_below(prefix, *network))
    }
}

impl Routing {
    /// Local prefixes at the ingresses: addresses that are this machine's own, or broadcasts on one of its
    /// links; networks of this machine; and the exceptions within these.
    pub(in crate::runtime) fn lands(&self) -> Vec<af_xdp::LocalPrefixes> {
        let Some(mirror) = self.mirror() else { return Vec::new() };
        let of_table = mirror.routes().filter(|(table, prefix, _, target)| {
            *table == LOCAL_TABLE && prefix.is_host() && is_local(target)
        });
        let addresses = mirror.addresses().map(|address| Prefix::host(address.address));
        let own = of_table.map(|(_, prefix, ..)| prefix).chain(addresses).map(|prefix| (prefix, true));
        let mut lands = own.collect::<BTreeMap<_, _>>();
        lands.extend(self.local.0.iter().map(|network| (*network, true)));
        for (prefix, (origin, target)) in &self.installed {
            let is_kernels = matches!(origin, Origin::Kernel(..)) && is_local(target);
            let is_part = !is_kernels && self.local.has(*prefix);
            if is_part || is_kernels && prefix.is_host() {
                lands.insert(*prefix, is_kernels);
            }
        }
        lands.into_iter().map(|(network, is_kernels)| af_xdp::LocalPrefixes { network, is_kernels }).collect()
    }
}

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

fn is_local(target: &Target) -> bool {
    matches!(target, Target::Local(_) | Target::Broadcast)
}
