//! Receive parameters common to all drivers: the refill threshold, and the treatment of small packets.

use polder_buffers::{HEADROOM, Packet, Pool, Segment};

/// Receive parameters of a driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receiving {
    /// Percentage of posted frames below which the ring is refilled; 100 refills after every poll, which
    /// switches technique C5 off.
    pub refill_below_percent: u8,
    /// Maximum length in bytes of packets that are copied to a fragment, so that their frame is posted again
    /// at once; 0 is off (D1).
    pub copy_break: u16,
    /// Bytes before a packet, if the driver places packets itself (E4).
    pub headroom: u16,
}

impl Default for Receiving {
    /// Refills below two thirds, and copies no packet.
    fn default() -> Self {
        Self { refill_below_percent: 67, copy_break: 0, headroom: HEADROOM }
    }
}

impl Receiving {
    /// Returns the number of posted frames of `target` below which the ring is refilled.
    pub(crate) fn low_mark(&self, target: u32) -> u32 {
        let percent = u64::from(self.refill_below_percent.min(100));
        let mark = (u64::from(target) * percent).div_ceil(100);
        u32::try_from(mark).unwrap_or(target).max(1)
    }

    /// Copies a small packet to a fragment; `None` if it is too long, or no fragment is free.
    ///
    /// Cost: the fragment and the copy, some ten nanoseconds.
    #[inline]
    pub(crate) fn copy(&self, bytes: &[u8], pool: &mut Pool) -> Option<Packet> {
        let length = u16::try_from(bytes.len()).ok().filter(|&length| length <= self.copy_break)?;
        let mut frame = pool.take_for(u32::from(self.headroom) + u32::from(length))?;
        if frame.region() == pool.region().id() {
            // The pool gave a slot, not a fragment: copying to it gains nothing.
            pool.release_frame(frame);
            return None;
        }
        let start = usize::from(self.headroom);
        frame.slot_mut()[start..start + bytes.len()].copy_from_slice(bytes);
        Some(Packet::from_segment(Segment { frame, offset: self.headroom, length }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use polder_buffers::{BufferManager, BufferOptions, Class, FragmentOptions};

    #[test]
    fn small_packets_move_into_fragments_with_their_headroom() {
        let mut options = BufferOptions::fixed(2048, 0, 64);
        options.data.fragments =
            Some(FragmentOptions { blocks: 1, spare_pages: 0, ..FragmentOptions::default() });
        let manager = BufferManager::new(options).expect("memory for a test");
        let mut pool = manager.pool(Class::Data);
        let receiving = Receiving { copy_break: 100, headroom: 54, ..Receiving::default() };
        assert!(receiving.copy(&[1; 101], &mut pool).is_none());
        assert!(Receiving::default().copy(&[1; 1], &mut pool).is_none());
        let packet = receiving.copy(&[7; 100], &mut pool).expect("a block is free");
        assert_eq!((packet.bytes(), packet.headroom()), (&[7; 100][..], 54));
        assert_ne!(packet.head().region(), manager.region().id());
        let mut all = vec![packet];
        all.extend(core::iter::from_fn(|| receiving.copy(&[7; 100], &mut pool)));
        assert_eq!(all.len(), 32 * 1024 / 192 - 2, "pieces of 192 bytes that do not cross 4096");
        assert_eq!(pool.take().map(|frame| pool.release_frame(frame)), Some(()), "no slot was lost");
        all.into_iter().for_each(|packet| pool.release_packet(packet));
        drop(pool);
        assert_eq!((manager.region().free_slots(), manager.accounts()[1].late_frees), (64, 0));
    }

    #[test]
    fn a_ring_is_refilled_below_its_mark() {
        let mark = |percent, target| {
            Receiving { refill_below_percent: percent, ..Receiving::default() }.low_mark(target)
        };
        assert_eq!([mark(67, 64), mark(100, 64), mark(1, 64), mark(50, 1)], [43, 64, 1, 1]);
    }
}
