//! Segmentation in the engine: of super-packets that their egress or tunnel does not take, and of
//! encapsulated ones that the underlay does not take.

use super::Pipeline;
use super::stages::goes_on;
use crate::counters::Stage;
use crate::drops::{DropReason, is_dropped};
use crate::offload::{complete, takes_of};
use crate::segment::Cutting;
use crate::transmit::Egress;
use crate::units::Nanos;
use polder_buffers::{Batch, Packet, SegmentationKind};

/// Place in the packet path where packets are cut.
#[derive(Clone, Copy)]
enum CutPoint {
    BeforeEncapsulation,
    Encapsulated,
}

impl<E: Egress, C: FnMut() -> Nanos> Pipeline<'_, E, C> {
    /// Segments super-packets that cannot continue whole, and continues with a batch of segments at a time: a
    /// packet may have as many segments as bytes.
    #[cold]
    pub(super) fn cut(&mut self, batch: &mut Batch) {
        let mut cut = core::mem::take(&mut self.stages.scratch.cut);
        for mut packet in batch.drain() {
            let tunnel = self.tables.tunnels.get(packet.egress);
            if is_dropped(&packet)
                || packet.segmentation.kind == SegmentationKind::None
                || goes_on(&mut packet, tunnel, self.tables, &mut self.context)
            {
                self.go_on(packet, &mut cut, CutPoint::BeforeEncapsulation);
            } else {
                self.cut_one(packet, &mut cut, CutPoint::BeforeEncapsulation);
            }
        }
        self.go_on_with(&mut cut, CutPoint::BeforeEncapsulation);
        self.stages.scratch.cut = cut;
    }

    /// Processes encapsulated packets: segments super-packets that the underlay does not take, then sends
    /// all.
    pub(super) fn leave_encapsulated(&mut self, batch: &mut Batch, has_partial: bool) {
        if has_partial && batch.iter().any(|packet| !self.leaves_whole(packet)) {
            return self.cut_encapsulated(batch);
        }
        self.leave(batch);
    }

    #[cold]
    fn cut_encapsulated(&mut self, batch: &mut Batch) {
        let mut cut = core::mem::take(&mut self.stages.scratch.cut_encapsulated);
        for packet in batch.drain() {
            if self.leaves_whole(&packet) {
                self.go_on(packet, &mut cut, CutPoint::Encapsulated);
            } else {
                self.cut_one(packet, &mut cut, CutPoint::Encapsulated);
            }
        }
        self.go_on_with(&mut cut, CutPoint::Encapsulated);
        self.stages.scratch.cut_encapsulated = cut;
    }

    fn leaves_whole(&self, packet: &Packet) -> bool {
        packet.segmentation.kind == SegmentationKind::None
            || is_dropped(packet)
            || takes_of(packet.egress, &self.tables.outlets).takes(packet)
    }

    fn cut_one(&mut self, packet: Packet, cut: &mut Batch, place: CutPoint) {
        let (ingress, egress, wire_packets) = (packet.ingress, packet.egress, u64::from(packet.wire_packets));
        let mut cutting = match Cutting::new(packet, self.context.pool) {
            Ok(cutting) => cutting,
            Err((_, mut packet)) => {
                self.context.discard(&mut packet, DropReason::CannotSegment);
                return self.go_on(packet, cut, place);
            }
        };
        let count = u64::from(cutting.count());
        // Equal, unless the packet was truncated or its sender gave another number.
        self.context.ledger.split.add(count.saturating_sub(wire_packets));
        self.context.ledger.merged.add(wire_packets.saturating_sub(count));
        let worker = self.stages.dispatch.worker();
        if let Some(outlet) = self.tables.outlets.get(usize::from(egress.0)) {
            outlet.state.worker(worker).cut(count);
        }
        if let (CutPoint::Encapsulated, Some(tunnel)) = (place, self.tables.tunnels.get(ingress)) {
            tunnel.state().worker(worker).sent.add(count.saturating_sub(wire_packets));
        }
        let takes = takes_of(egress, &self.tables.outlets);
        loop {
            let mut next = cutting.next(self.context.pool);
            if let (Ok(Some(segment)), CutPoint::Encapsulated) = (&mut next, place) {
                complete(segment, takes, &self.context);
            }
            match next {
                Ok(Some(segment)) => self.go_on(segment, cut, place),
                Ok(None) => return,
                Err(_) => {
                    let lost = cutting.give_up(self.context.pool);
                    return self.context.drops.count(DropReason::NoBuffer, u64::from(lost));
                }
            }
        }
    }

    /// Appends a packet to the batch that continues next.
    fn go_on(&mut self, packet: Packet, cut: &mut Batch, place: CutPoint) {
        if cut.is_full() {
            self.go_on_with(cut, place);
        }
        let pushed = cut.push(packet);
        debug_assert!(pushed.is_ok(), "a full batch has gone on");
    }

    fn go_on_with(&mut self, cut: &mut Batch, place: CutPoint) {
        if cut.is_empty() {
            return;
        }
        self.meter.lap(Stage::Segment, cut.len());
        self.egress.passed(Stage::Segment, cut);
        match place {
            CutPoint::BeforeEncapsulation => self.encapsulate_stage(cut),
            CutPoint::Encapsulated => self.leave(cut),
        }
    }
}
