//! Updates of the kernel's list of routes with the same key.
//!
//! IPv4: routes with the same key differ in origin or target, and the first of the list is used. IPv6: routes
//! with the same key have no next hop in common. Routes with a gateway are siblings, which form one multipath
//! route; routes from router advertisements, on-link routes and routes with a nexthop object stay separate.
//! Observed on Linux 6.18.

use crate::kernel::message::{HopSpec, Placement, Target};
use crate::kernel::mirror::Route;
use std::sync::Arc;

/// The list after the kernel has added or replaced a route.
pub(super) fn with(known: &[Route], is_v6: bool, new: Route, placement: Placement) -> Vec<Route> {
    let mut list = known.to_vec();
    let is_known = list.iter().any(|route| route.is_same(&new));
    match placement {
        Placement::Alone => return vec![new],
        Placement::Replaces | Placement::Last | Placement::Added if is_known => {}
        Placement::Replaces | Placement::Last | Placement::Added if is_v6 => {
            let replaces = placement == Placement::Replaces;
            with_v6(&mut list, new, replaces);
        }
        Placement::Replaces => drop(list.splice(..list.len().min(1), [new])),
        Placement::Last => list.push(new),
        Placement::Added => list.insert(0, new),
    }
    list
}

fn with_v6(list: &mut Vec<Route>, mut new: Route, replaces: bool) {
    let overlaps = list.iter().position(|route| overlap(&route.target, &new.target));
    let alike = || list.iter().position(|route| is_sibling(route) == is_sibling(&new));
    let place = overlaps.or_else(|| replaces.then(alike).flatten());
    let place = place.or_else(|| (replaces && !list.is_empty()).then_some(0));
    let Some(place) = place else { return list.push(new) };
    if let Some(target) = in_order(&list[place].target, &new.target) {
        new.target = Arc::new(target);
    }
    let target = Arc::clone(&new.target);
    list[place] = new;
    let mut at = 0..;
    list.retain(|route| at.next() == Some(place) || !overlap(&route.target, &target));
}

/// The list after the kernel has removed a route, or hops of an IPv6 multipath route.
pub(super) fn without(known: &[Route], is_v6: bool, gone: &Route) -> Vec<Route> {
    if is_v6 {
        return known.iter().filter_map(|route| without_hops(route, &gone.target)).collect();
    }
    let mut list = known.to_vec();
    if let Some(place) = list.iter().position(|route| route.is_same(gone)) {
        list.remove(place);
    }
    list
}

fn without_hops(route: &Route, gone: &Target) -> Option<Route> {
    let (Target::Hops(known), Target::Hops(gone)) = (&*route.target, gone) else {
        return (!overlap(&route.target, gone)).then(|| route.clone());
    };
    let stays = |hop: &&HopSpec| !gone.iter().any(|gone| is_same_hop(gone, hop));
    let left = known.iter().filter(stays).copied().collect::<Vec<_>>();
    match left.len() {
        0 => None,
        length if length == known.len() => Some(route.clone()),
        _ => Some(route.with_target(Target::Hops(left))),
    }
}

/// True if two IPv6 routes with the same key have a next hop in common.
fn overlap(one: &Target, other: &Target) -> bool {
    match (one, other) {
        (Target::Hops(one), Target::Hops(other)) => {
            one.iter().any(|hop| other.iter().any(|other| is_same_hop(hop, other)))
        }
        (Target::Object(one, _), Target::Object(other, _)) | (Target::Local(one), Target::Local(other)) => {
            one == other
        }
        (Target::Hops(_) | Target::Object(..) | Target::Local(_), _)
        | (_, Target::Hops(_) | Target::Object(..) | Target::Local(_)) => false,
        // All of these use the loopback interface.
        (one, other) => one.is_verdict() && other.is_verdict(),
    }
}

fn is_same_hop(one: &HopSpec, other: &HopSpec) -> bool {
    (one.index, one.gateway) == (other.index, other.gateway)
}

/// Hops of the new target in the old target's order, new hops last, because a notice begins with the new
/// sibling.
fn in_order(old: &Target, new: &Target) -> Option<Target> {
    let (Target::Hops(old), Target::Hops(new)) = (old, new) else { return None };
    let place = |hop: &HopSpec| old.iter().position(|old| is_same_hop(old, hop)).unwrap_or(old.len());
    let mut hops = new.clone();
    hops.sort_by_key(place);
    Some(Target::Hops(hops))
}

/// True if the kernel makes an IPv6 route a sibling of others: a static route with a gateway.
fn is_sibling(route: &Route) -> bool {
    const REDIRECT: u8 = 1;
    const KERNEL: u8 = 2;
    const RA: u8 = 9;
    let has_gateway =
        matches!(&*route.target, Target::Hops(hops) if hops.first().is_some_and(|hop| hop.gateway.is_some()));
    has_gateway && !matches!(route.protocol, REDIRECT | KERNEL | RA)
}
