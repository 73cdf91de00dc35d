//! Formats on hostile bytes, and round trips of written formats.

use crate::oracle;
use polder_devices::lan78xx::descriptor;
use polder_devices::lan78xx::frame::{RxCursor, RxStatus, TxCommand, TxCursor};
use polder_devices::usb::Speed;
use proptest::prelude::*;

/// A transfer of honest frames; then some of its bytes are changed, and it is cut.
fn damaged_transfer() -> impl Strategy<Value = Vec<u8>> {
    let frames = prop::collection::vec((14_usize..200, any::<u32>()), 0..8);
    let damage = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4);
    (frames, damage, any::<prop::sample::Index>(), any::<bool>()).prop_map(|(frames, damage, cut, cuts)| {
        let mut bytes = receive_transfer(&frames);
        for (at, value) in damage {
            if !bytes.is_empty() {
                let at = at.index(bytes.len());
                bytes[at] = value;
            }
        }
        if cuts && !bytes.is_empty() {
            bytes.truncate(cut.index(bytes.len()));
        }
        bytes
    })
}

fn receive_transfer(frames: &[(usize, u32)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for &(length, bits) in frames {
        bytes.resize(usize::next_multiple_of(bytes.len(), 4), 0);
        let a = bits & !0x3fff | u32::try_from(length + 4).unwrap();
        bytes.extend(RxStatus { a, b: bits, c: 0 }.write());
        bytes.resize(bytes.len() + length + 4, 0x55);
    }
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn honest_transfers_are_read_whole(frames in prop::collection::vec((14_usize..1600, any::<u32>()), 0..20)) {
        let bytes = receive_transfer(&frames);
        let mut cursor = RxCursor::default();
        let found: Vec<_> = core::iter::from_fn(|| cursor.next(&bytes))
            .map(|frame| frame.map(|frame| frame.bytes.len()))
            .collect();
        let sent: Vec<_> = frames.iter().map(|&(length, _)| Ok(length)).collect();
        prop_assert_eq!(found, sent);
    }

    #[test]
    fn damaged_transfers_do_no_harm(bytes in damaged_transfer()) {
        oracle::receive(&bytes);
    }

    #[test]
    fn any_bytes_do_no_harm(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        for (_, target) in oracle::TARGETS {
            target(&bytes);
        }
    }

    #[test]
    fn changed_descriptors_do_no_harm(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..5),
    ) {
        for speed in [Speed::High, Speed::Super] {
            let mut bytes = descriptor::configuration(speed);
            for (at, value) in &changes {
                let at = at.index(bytes.len());
                bytes[at] = *value;
            }
            oracle::descriptors(&bytes);
        }
    }

    #[test]
    fn sent_frames_are_read_whole(sizes in prop::collection::vec(14_usize..1600, 0..20)) {
        let mut bytes = Vec::new();
        for &size in &sizes {
            bytes.resize(usize::next_multiple_of(bytes.len(), 4), 0);
            bytes.extend(TxCommand::plain(size).unwrap().write());
            bytes.resize(bytes.len() + size, 1);
        }
        let mut cursor = TxCursor::default();
        let found: Vec<_> =
            core::iter::from_fn(|| cursor.next(&bytes, 4)).map(|frame| frame.unwrap().bytes.len()).collect();
        prop_assert_eq!(found, sizes);
    }
}
