//! Release of packets and batches to a pool.

use crate::batch::Batch;
use crate::packet::Packet;
use crate::pool::Pool;

impl Pool {
    /// Releases all packets of `batch` with all their frames.
    ///
    /// Cost: about a nanosecond per packet of one frame.
    pub fn release(&mut self, batch: &mut Batch) {
        if batch.iter().all(|packet| packet.is_contiguous() && self.is_slot(packet.head())) {
            self.put_slots(batch, |packet| packet.head().place());
            // The slots are in the cache and no longer owned by the packets.
            return batch.forget();
        }
        for packet in batch.drain() {
            self.put_packet(packet);
        }
        self.settle();
    }

    /// Releases a packet with all its frames.
    #[inline]
    pub fn release_packet(&mut self, packet: Packet) {
        match packet.into_single() {
            Ok(segment) => self.release_frame(segment.frame),
            Err(chain) => self.release_chain(chain),
        }
    }

    #[inline(never)]
    fn release_chain(&mut self, chain: Packet) {
        chain.into_segments().for_each(|segment| self.put(segment.frame));
        self.settle();
    }

    fn put_packet(&mut self, packet: Packet) {
        match packet.into_single() {
            Ok(segment) => self.put(segment.frame),
            Err(chain) => chain.into_segments().for_each(|segment| self.put(segment.frame)),
        }
    }
}
