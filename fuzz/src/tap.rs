//! The virtio-net header, without the device that it is of.

#[expect(dead_code, reason = "the target parses headers, the device does more")]
#[path = "../../crates/devices/src/tap/header.rs"]
mod header;

use crate::oracle::Target;
use polder_buffers::{Packet, Region, RegionOptions};

/// All targets.
pub(crate) const TARGETS: &[Target] = &[("virtio_net", virtio_net)];

/// A header and a packet: what is believed lies within the packet, and what can be said of it again is the same.
fn virtio_net(bytes: &[u8]) {
    let Some((said, frame)) = bytes.split_first_chunk::<{ header::LONG as usize }>() else { return };
    assert!(header::SHORT < header::LONG);
    let region = Region::new(RegionOptions { slots: 64, slot_bytes: 2048 }).expect("memory for a test");
    let mut pool = region.pool();
    let Some(mut packet) = Packet::copy_from(frame, &mut pool) else { return };
    if header::apply(*said, &mut packet).is_ok() {
        // What is behind the Ethernet header, and the field in one piece.
        let field = usize::from(packet.checksum_start) + usize::from(packet.checksum_offset);
        let is_partial = packet.checksum == polder_buffers::ChecksumState::Partial;
        assert!(!is_partial || packet.checksum_start >= 14 && field + 2 <= packet.bytes().len());
        let is_segmented = packet.segmentation.kind != polder_buffers::SegmentationKind::None;
        assert!(!is_segmented || is_partial && packet.segmentation.size > 0);
        if let Ok(again) = header::describe(&packet) {
            let mut copy = Packet::copy_from(frame, &mut pool).expect("64 slots");
            assert_eq!(header::apply(again, &mut copy), Ok(()), "{said:?} is said {again:?}");
            assert_eq!((copy.checksum, copy.segmentation), (packet.checksum, packet.segmentation));
            assert_eq!(
                (copy.checksum_start, copy.checksum_offset),
                (packet.checksum_start, packet.checksum_offset)
            );
            pool.release_packet(copy);
        }
    }
    pool.release_packet(packet);
}
