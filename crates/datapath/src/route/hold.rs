//! Packets that leave their batch: packets to be fragmented, and packets that wait for a neighbour.

use super::error::Problem;
use super::state::{Move, RouteState};
use super::waiting::{Due, Wanted};
use super::{Notice, Owner, RouterId, Routers, fragment};
use crate::drops::{Context, DropReason};
use polder_buffers::{Batch, Packet};

impl RouteState {
    /// Moves the batch to the end of `routed`, in order, with packets fragmented; waiting packets leave it.
    #[cold]
    pub(super) fn rebuild(
        &mut self,
        batch: &mut Batch,
        routers: &Routers,
        routed: &mut Vec<Packet>,
        context: &mut Context<'_>,
    ) {
        self.moves.any = false;
        for (position, packet) in batch.drain().enumerate() {
            match self.moves.take(position) {
                None => routed.push(packet),
                Some(Move::Cut(mtu)) => {
                    let fragments = fragment::split(packet, mtu, routed, context);
                    self.output.counters.fragmented.add(u64::from(fragments > 0));
                    self.output.counters.fragments.add(fragments);
                }
                Some(Move::Wait(wanted)) => self.hold(packet, wanted, routers, context),
            }
        }
    }

    fn hold(&mut self, packet: Packet, wanted: Wanted, routers: &Routers, context: &mut Context<'_>) {
        self.output.counters.waited.add(1);
        if self.waiting.hold(packet, wanted, context) {
            self.ask(wanted, routers, context);
        }
    }

    /// Maintains waiting packets: repeats requests, gives neighbours up, and returns packets whose neighbour
    /// was resolved, to be routed again.
    #[cold]
    pub(crate) fn look_after(&mut self, routers: &Routers, context: &mut Context<'_>) -> &mut Vec<Packet> {
        while let Some(due) = self.waiting.due(context.now) {
            match due {
                Due::Ask(wanted) => self.ask(wanted, routers, context),
                Due::GiveUp(wanted) => self.give_up(wanted, routers, context),
            }
        }
        for (number, lane) in (0..).zip(&mut self.lanes) {
            let news = lane.notices.news();
            if core::mem::replace(&mut lane.news, news) != news {
                let is_meant = |wanted: &Wanted| wanted.router == RouterId(number);
                self.waiting.take(is_meant, &mut self.released, context);
            }
        }
        self.waiting.look_again(context.now);
        &mut self.released
    }

    /// Sends a request for a neighbour, or notifies the control thread.
    fn ask(&mut self, wanted: Wanted, routers: &Routers, context: &mut Context<'_>) {
        let Wanted { router, interface, address } = wanted;
        if let Some(lane) = self.lanes.get(usize::from(router.0)) {
            lane.notices.give(Notice::Wanted { interface, address });
        }
        if let Some(interface) = routers.interface(interface).filter(|to| to.owner == Owner::Polder) {
            self.output.ask(interface, address, context);
        }
    }

    fn give_up(&mut self, wanted: Wanted, routers: &Routers, context: &mut Context<'_>) {
        let Wanted { router, interface, address } = wanted;
        let is_own = routers.interface(interface).is_some_and(|to| to.owner == Owner::Polder);
        if let Some(lane) = self.lanes.get(usize::from(router.0)).filter(|_| is_own) {
            lane.notices.give(Notice::Silent { interface, address });
        }
        let Self { waiting, released, output, .. } = self;
        waiting.take(|other| *other == wanted, released, context);
        waiting.forget(wanted);
        for mut packet in released.drain(..) {
            if let Ok(arrival) = routers.arrival_of(&packet) {
                output.tell(&packet, arrival, Problem::HostUnreachable, context);
            }
            context.discard(&mut packet, DropReason::NeighbourUnknown);
            context.pool.release_packet(packet);
        }
    }
}
