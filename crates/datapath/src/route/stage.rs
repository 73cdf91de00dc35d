//! The stage: batches of packets to next hops.
//!
//! In: packets that came in by a router's interface; all others pass untouched. Out: frames for their next
//! hops, `egress` set. Exits: all refusals of IPv4, IPv6, ARP and VLAN, and every reason of stage `route`
//! in [`drops`](crate::drops).
//!
//! A batch goes through three loops: one looks at headers, one looks routes up, one rewrites. What is not
//! plain (a tag, an option, an address that wants a second look, a packet for this machine) takes a detour
//! afterwards.
//!
//! Cost: the lines of the table that a look-up reads, fetched for all packets side by side, and some ten
//! nanoseconds. Source: RFC 1812, RFC 8200.

use super::local::HostInterfaces;
use super::onward::{Actions, LookupContext, send_sorted};
use super::send::{WORD_V4, WORD_V6};
use super::state::RouteState;
use super::{Routers, Sent};
use crate::drops::Context;
use polder_buffers::{BATCH, Batch, Packet};

/// Routes the packets of `batch` that came in by interfaces of `routers`.
///
/// Usually the batch stays as it is, and when all of it is sent on and nothing else is to be done to its
/// packets, it is said by which ports they leave. When a packet has to wait or is cut into fragments, the whole batch
/// moves to the end of `routed`, in order, and the batch is empty. `routed` has capacity for
/// [`Routers::longest_expansion`] packets more.
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
    /// Routes those of `meant` that belong to one router; returns which are left.
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
        // Behind the look-ups: a way that a route leads to was published before that route.
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
