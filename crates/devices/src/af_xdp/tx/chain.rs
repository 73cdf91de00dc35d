//! Packets that are chains, lie in other memory, or may be too long for the link.

use super::{ETHERNET, Transmitter, fits};
use polder_buffers::{Packet, Pool, Segment};
use polder_datapath::drops::DropReason;

impl Transmitter {
    /// Returns the maximum number of ring entries of a chain, or of a packet that has to be copied.
    #[cold]
    pub(super) fn frames(&self, packet: &Packet) -> u32 {
        let parts = if self.posted.knows(packet) { packet.segment_count() } else { usize::MAX };
        u32::try_from(parts).unwrap_or(u32::MAX).min(self.limits.segments)
    }

    /// Posts a packet that is a chain, or that may be too long for the link.
    #[cold]
    pub(super) fn post_with_care(&mut self, packet: Packet, pool: &mut Pool) {
        if packet.len() < ETHERNET {
            return self.refuse(packet, DropReason::TxError, pool);
        }
        if !fits(&packet, self.longest()) {
            return self.refuse(packet, DropReason::TxTooLong, pool);
        }
        match self.shape(packet, pool) {
            Ok(packet) => self.post_chain(packet, pool),
            Err(packet) => {
                let is_known = self.posted.knows(&packet);
                let reason = if is_known { DropReason::TxTooLong } else { DropReason::TxError };
                self.refuse(packet, reason, pool);
            }
        }
    }

    fn mark_inner(&mut self, slot: u32) {
        self.inner[slot as usize / 64] |= 1 << (slot % 64);
    }

    fn refuse(&mut self, packet: Packet, reason: DropReason, pool: &mut Pool) {
        self.counters.drops.count(reason, 1);
        pool.release_packet(packet);
    }

    /// Returns the packet in as few parts as the device accepts, all in slots of the region: a copy if it has
    /// too many parts, lies in fragments, or shares bytes with another packet. Returns the packet itself if
    /// that is impossible.
    fn shape(&self, packet: Packet, pool: &mut Pool) -> Result<Packet, Packet> {
        let parts = packet.segments().filter(|part| !part.is_empty()).count();
        let limit = self.limits.segments as usize;
        if parts <= limit && self.posted.knows(&packet) {
            return Ok(packet);
        }
        match packet.duplicate(pool) {
            Some(copy) if copy.segment_count() <= limit && self.posted.knows(&copy) => {
                pool.release_packet(packet);
                Ok(copy)
            }
            Some(copy) => {
                pool.release_packet(copy);
                Err(packet)
            }
            None => Err(packet),
        }
    }

    fn post_chain(&mut self, packet: Packet, pool: &mut Pool) {
        let bytes = packet.len() as u64;
        let mut before: Option<Segment> = None;
        for segment in packet.into_segments() {
            // The kernel does not accept an empty part, and would never return its frame.
            if segment.length == 0 {
                pool.release_frame(segment.frame);
                continue;
            }
            if let Some(part) = before.replace(segment) {
                self.mark_inner(part.frame.index());
                self.post_part(part, true, pool);
            }
        }
        let Some(last) = before else { return };
        self.post_part(last, false, pool);
        self.held += 1;
        self.counters.transmitted.add(1);
        self.counters.transmitted_bytes.add(bytes);
    }

    fn post_part(&mut self, part: Segment, continues: bool, pool: &mut Pool) {
        if !self.post(part, continues, pool) {
            // A part of the packet is in the ring, and the next packet would be taken for its rest.
            self.closed = true;
        }
    }
}
