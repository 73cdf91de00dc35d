//! Stage `route`: forwards batches of packets to next hops.
//!
//! In: packets received on a router interface; others pass unchanged. Out: frames for their next hops, with
//! `egress` set. Exits: all refusals of IPv4, IPv6, ARP and VLAN, and every reason of stage `route` in
//! [`drops`](crate::drops).
//!
//! A batch passes three loops: header check, route look-up, rewrite. Packets that are not plain (a tag, an
//! option, a special address, a packet for this machine) take the slow path afterwards.
//!
//! Cost: the cache lines that a look-up reads, prefetched for all packets in parallel, and some ten
//! nanoseconds. Source: RFC 1812, RFC 8200.

use super::local::HostInterfaces;
use super::onward::{Actions, LookupContext, send_sorted};
use super::send::{WORD_V4, WORD_V6};
use super::state::RouteState;
use super::{Routers, Sent};
use crate::drops::Context;
use polder_buffers::{BATCH, Batch, Packet};

/// Routes the packets of `batch` that were received on interfaces of `routers`.
///
/// Usually the batch stays in place; if all its packets are forwarded and need no further work, the range of
/// their egress ports is returned. If a packet must wait or is fragmented, the whole batch moves to the end
/// of `routed`, in order, and `batch` is empty. `routed` must have spare capacity for
/// [`Routers::longest_expansion`] packets.
pub fn route(
    batch: &mut Batch,
    routers: &Routers,
    state: &mut RouteState,
    routed: &mut Vec<Packet>,
    context: &mut Context<'_>,
) -> Option<Sent> {
    const { assert!(BATCH <= 64, "one bit a packet") };
    let (mut left, sent) = state.pass_plain(batch, routers, context);
    while left != 0 {
        left = state.pass(batch, left, routers, context);
    }
    if state.moves.any {
        state.rebuild(batch, routers, routed, context);
    }
    sent
}

impl RouteState {
    /// Routes the packets of `meant` that belong to one router; returns the bit set of the others.
    fn pass(&mut self, batch: &mut Batch, meant: u64, routers: &Routers, context: &mut Context<'_>) -> u64 {
        (self.work.v4.count, self.work.v6.count) = (0, 0);
        let (router, others) = self.sort(batch, meant, routers, context);
        let Some(lane) = router.and_then(|router| self.lanes.get_mut(usize::from(router.0))) else {
            return others;
        };
        self.work.v4.lookup(&mut lane.v4);
        self.work.v6.lookup(&mut lane.v6);
        let looks_back = routers.looks_up_sources();
        if looks_back {
            self.work.look_back(batch, &mut lane.v4);
        }
        // After the look-ups: a next hop is published before a route that refers to it.
        lane.next_hops.refresh();
        let next_hops = lane.next_hops.get();
        let Self { work, output, moves, .. } = self;
        let origins = looks_back.then_some(&work.origins.found);
        let lookup = LookupContext { routers, router: router.unwrap_or_default(), next_hops, origins };
        let host_interfaces = HostInterfaces { waiting: &self.waiting, notices: &lane.notices };
        let mut actions = Actions { output, moves, host_interfaces };
        send_sorted::<4, WORD_V4>(&work.v4, batch, &lookup, &mut actions, context);
        if work.v6.count > 0 {
            send_sorted::<16, WORD_V6>(&work.v6, batch, &lookup, &mut actions, context);
        }
        others
    }
}
