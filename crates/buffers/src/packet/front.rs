//! First bytes of many packets, for stages that read only a few bytes of each.

use super::Packet;
use crate::frame::table::FrameKindCache;

/// Iterator over the first bytes of packets; see [`Packet::fronts`].
#[derive(Clone, Debug)]
pub struct Fronts<'a> {
    packets: core::slice::Iter<'a, Packet>,
    length: u16,
    /// Base address and size of frames like the last one.
    kind_cache: FrameKindCache<'a>,
}

impl Packet {
    /// Iterates over the first `length` bytes in the head frame of each packet; `None` for shorter ones.
    ///
    /// Cost: half of [`Packet::bytes`], because most frames of a batch are of one kind, whose base address is
    /// looked up once.
    #[inline]
    pub fn fronts(packets: &[Self], length: u16) -> Fronts<'_> {
        let kind_cache =
            packets.first().map_or(FrameKindCache::NONE, |packet| FrameKindCache::of(&packet.head));
        Fronts { packets: packets.iter(), length, kind_cache }
    }
}

impl<'a> Iterator for Fronts<'a> {
    type Item = Option<&'a [u8]>;

    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        let packet = self.packets.next()?;
        if packet.length < self.length {
            return Some(None);
        }
        let (offset, length) = (u32::from(packet.offset), u32::from(self.length));
        let front = self.kind_cache.slot(&packet.head, offset, length);
        if front.is_none() {
            self.kind_cache = FrameKindCache::of(&packet.head);
            return Some(elsewhere(packet, self.length));
        }
        Some(front)
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        self.packets.size_hint()
    }
}

/// First bytes of a packet whose frame is of another kind than the last one. Not a method, so that callers
/// can keep the iterator in registers.
#[cold]
fn elsewhere(packet: &Packet, length: u16) -> Option<&[u8]> {
    packet.bytes().get(..usize::from(length))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Region, RegionOptions};

    /// Packets of two regions with slots of different sizes, a shared one among them, and of all lengths.
    #[test]
    fn fronts_are_what_bytes_begin_with() {
        let regions = [512, 2048].map(|slot_bytes| {
            Region::new(RegionOptions { slots: 256, slot_bytes }).expect("memory for a test")
        });
        let mut pools = regions.each_ref().map(Region::pool);
        let mut packets = Vec::new();
        for number in 0..200_u8 {
            let bytes = (0..number).map(|byte| byte ^ number).collect::<Vec<_>>();
            let pool = &mut pools[usize::from(number / 3 % 2)];
            let mut packet = Packet::copy_from(&bytes, pool).expect("256 slots");
            if number % 7 == 0 && number > 4 {
                packet.trim_front(u16::from(number % 5)).expect("longer than that");
            }
            if number % 11 == 0 {
                let _other = packet.head.share();
            }
            packets.push(packet);
        }
        for length in [0, 1, 14, 60, 128, 199, 200, 2048] {
            let fronts = Packet::fronts(&packets, length).collect::<Vec<_>>();
            let expected = packets.iter().map(|packet| packet.bytes().get(..usize::from(length)));
            assert_eq!(fronts, expected.collect::<Vec<_>>(), "{length}");
        }
        assert_eq!(Packet::fronts(&[], 5).next(), None);
    }
}
