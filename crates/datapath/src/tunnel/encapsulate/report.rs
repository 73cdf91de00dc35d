//! ICMP errors to senders of packets that are too big for a tunnel: recipients and rate limit.

use super::EncapsulateState;
use crate::drops::Context;
use crate::flags::{FLOODED, OWN_MESSAGE};
use crate::parse::HeaderSummary;
use crate::tunnel::lane::Lane;
use crate::tunnel::toobig;
use polder_buffers::Packet;

impl EncapsulateState {
    /// Sends an ICMP error to the sender of a packet that is too big, if the sender accepts errors and the
    /// rate limit allows.
    ///
    /// Copies of a flooded frame are dropped silently: the destination may be on another bridge port, where
    /// the frame fits.
    #[cold]
    pub(super) fn report(
        &mut self,
        packet: &Packet,
        headers: HeaderSummary,
        limit: u16,
        lane: &Lane<'_>,
        context: &mut Context<'_>,
    ) {
        if packet.flags & FLOODED != 0 || !toobig::wants_report(packet.bytes(), headers, limit) {
            return;
        }
        let silenced = self.replies.is_full() || !self.bucket.take(context.now);
        let reply = if silenced { None } else { toobig::message(packet, headers, limit, context.pool) };
        let Some(mut reply) = reply else {
            lane.counters.too_big_silenced.add(1);
            return;
        };
        reply.ingress = lane.port;
        reply.flags = OWN_MESSAGE;
        reply.received_at = context.now.0;
        match self.replies.push(reply) {
            Ok(()) => {
                lane.counters.too_big_reported.add(1);
                context.ledger.generated.add(1);
            }
            Err(reply) => context.pool.release_packet(reply),
        }
    }
}
