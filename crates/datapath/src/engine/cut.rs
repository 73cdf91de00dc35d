//! The detour of packets that are cut before they go on.

use super::Journey;
use crate::counters::Stage;
use crate::drops::{DropReason, is_dropped};
use crate::offload::takes_whole;
use crate::segment::Cutting;
use crate::transmit::Egress;
use crate::units::Nanos;
use polder_buffers::{Batch, Packet};

impl<E: Egress, C: FnMut() -> Nanos> Journey<'_, E, C> {
    /// Cuts packets that their port does not take whole, and goes on with a batch of segments at a
    /// time: a packet may have as many as it has bytes.
    #[cold]
    pub(super) fn cut(&mut self, batch: &mut Batch) {
        let mut cut = core::mem::take(&mut self.scratch.cut);
        for packet in batch.drain() {
            if is_dropped(&packet) || takes_whole(&packet, &self.tables.outlets) {
                self.go_on(packet, &mut cut);
            } else {
                self.cut_one(packet, &mut cut);
            }
        }
        self.go_on_with(&mut cut);
        self.scratch.cut = cut;
    }

    fn cut_one(&mut self, packet: Packet, cut: &mut Batch) {
        let egress = usize::from(packet.egress.0);
        let mut cutting = match Cutting::new(packet, self.context.pool) {
            Ok(cutting) => cutting,
            Err((_, mut packet)) => {
                self.context.discard(&mut packet, DropReason::CannotSegment);
                return self.go_on(packet, cut);
            }
        };
        let count = u64::from(cutting.count());
        self.context.ledger.split.add(count - 1);
        if let Some(outlet) = self.tables.outlets.get(egress) {
            outlet.state.worker(self.dispatch.worker()).cut(count);
        }
        loop {
            match cutting.next(self.context.pool) {
                Ok(Some(segment)) => self.go_on(segment, cut),
                Ok(None) => return,
                Err(_) => {
                    let lost = cutting.give_up(self.context.pool);
                    return self.context.drops.count(DropReason::NoBuffer, u64::from(lost));
                }
            }
        }
    }

    /// Puts a packet behind those that are about to go on.
    fn go_on(&mut self, packet: Packet, cut: &mut Batch) {
        if cut.is_full() {
            self.go_on_with(cut);
        }
        let pushed = cut.push(packet);
        debug_assert!(pushed.is_ok(), "a full batch has gone on");
    }

    fn go_on_with(&mut self, cut: &mut Batch) {
        if !cut.is_empty() {
            self.meter.lap(Stage::Segment, cut.len());
            self.egress.passed(Stage::Segment, cut);
            self.encapsulate_stage(cut);
        }
    }
}
