//! Source address check of IPv4 packets, as in the kernel before forwarding (`fib_validate_source`).
//!
//! In: a packet whose next hop is known. Exits: `OwnSource`, `ReversePath`, `MartianSource`. IPv6 is not
//! checked; neither does the kernel. Cost: one bit of a filter per packet; with `rp_filter`, one more route
//! look-up, batched like the first. Source: RFC 3704; Documentation/networking/ip-sysctl.rst.

use super::{Interface, InterfaceId, NextHopEntry, NextHopId, NextHopTable, ReversePath, Routers, Special};
use crate::drops::DropReason;
use std::net::{IpAddr, Ipv4Addr};

/// Source of a packet, with its route and the ingress interface.
pub(super) struct Origin<'a> {
    pub(super) source: Ipv4Addr,
    pub(super) special: Option<Special>,
    /// Route to the source, if it was looked up.
    pub(super) found: Option<NextHopId>,
    /// Ingress interface of the packet.
    pub(super) arrival: &'a Interface,
}

impl<'a> Origin<'a> {
    /// Source of a packet that `arrival` received; `None` for IPv6.
    pub(super) fn of(
        source: IpAddr,
        found: Option<NextHopId>,
        arrival: &'a Interface,
        routers: &Routers,
    ) -> Option<Self> {
        let IpAddr::V4(source) = source else { return None };
        Some(Self { source, special: routers.specials().get(source), found, arrival })
    }

    /// Reason to drop the packet, which leaves by `egress` or is for this machine; `None` to accept it.
    #[cold]
    pub(super) fn refusal(
        &self,
        egress: Option<InterfaceId>,
        next_hops: &NextHopTable,
    ) -> Option<DropReason> {
        let check = self.arrival.sources;
        let is_own = match self.special {
            Some(Special::Polder) => true,
            Some(Special::Machine) => !check.machine,
            Some(Special::Broadcast) | None => false,
        };
        let turns_back = check.redirects && egress == Some(self.arrival.id);
        if is_own && !check.accept_local {
            return Some(DropReason::OwnSource);
        }
        if !check.looks_up() && !turns_back {
            return None;
        }
        if self.special == Some(Special::Broadcast) {
            return Some(DropReason::MartianSource);
        }
        let found = self.found.map(|found| (found, next_hops.get(found)));
        match found {
            Some((_, Some(NextHopEntry::Local))) if !check.accept_local && !is_own => {
                Some(DropReason::OwnSource)
            }
            Some((_, Some(NextHopEntry::Broadcast))) => Some(DropReason::MartianSource),
            Some((found, _)) if !passes(found, self.arrival, next_hops, Some(self.source)) => {
                Some(DropReason::ReversePath)
            }
            Some(_) | None => None,
        }
    }
}

/// True if `rp_filter` accepts a packet, given the route to its source. For a route to this machine, `source`
/// must be given.
#[inline]
pub(super) fn passes(
    found: NextHopId,
    arrival: &Interface,
    next_hops: &NextHopTable,
    source: Option<Ipv4Addr>,
) -> bool {
    let reverse_path = arrival.sources.reverse_path;
    let is_back = |way: &NextHopEntry| match way {
        NextHopEntry::Hop(hop) => hop.interface == arrival.id,
        NextHopEntry::Connected(interface) => *interface == arrival.id,
        NextHopEntry::Kernel(route) => route.interfaces.contains(&arrival.id),
        NextHopEntry::Group(_)
        // Only IPv6 routes depend on sources, and IPv6 sources are not checked.
        | NextHopEntry::BySource(_)
        | NextHopEntry::Blackhole
        | NextHopEntry::Unreachable
        | NextHopEntry::Elsewhere
        | NextHopEntry::Prohibit
        | NextHopEntry::Local
        | NextHopEntry::Broadcast => false,
    };
    let leads_back = match next_hops.get(found) {
        None | Some(NextHopEntry::Blackhole | NextHopEntry::Unreachable | NextHopEntry::Prohibit) => {
            return reverse_path == ReversePath::Off;
        }
        Some(NextHopEntry::Broadcast) => return false,
        Some(NextHopEntry::Local) if source.is_none() => return false,
        Some(NextHopEntry::Group(group)) => group.hops().any(|hop| next_hops.get(hop).is_some_and(is_back)),
        Some(NextHopEntry::Local) => source.is_some_and(|source| arrival.has(source.into())),
        Some(
            way @ (NextHopEntry::Hop(_)
            | NextHopEntry::Connected(_)
            | NextHopEntry::Elsewhere
            | NextHopEntry::Kernel(_)
            | NextHopEntry::BySource(_)),
        ) => is_back(way),
    };
    match reverse_path {
        ReversePath::Off => true,
        ReversePath::Strict => leads_back,
        // An interface without addresses accepts no other sources.
        ReversePath::Loose => {
            leads_back || arrival.addresses.iter().any(|own| matches!(own.address, IpAddr::V4(_)))
        }
    }
}
