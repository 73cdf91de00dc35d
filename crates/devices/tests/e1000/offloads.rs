//! Checksums, tags and segments: what the device does, and what is told of it.

use crate::stand::Stand;
use polder_buffers::{ChecksumState, Packet};
use polder_datapath::drops::DropReason;
use polder_datapath::port::TxQueue;
use polder_datapath::wire::{Ipv4, Ipv6, Tcp};
use polder_devices::e1000::Options;
use polder_devices::e1000::model::frames::{
    FrameProtocols, KINDS, complete, frame, make_partial, make_super,
};

#[test]
fn checksums_that_the_device_has_looked_at_are_known() {
    let mut stand = Stand::new(&Options::default());
    let mut states = Vec::new();
    for kind in KINDS {
        let good = complete(kind, 333);
        let mut bad = good.clone();
        *bad.last_mut().unwrap() ^= 1;
        stand.nic.inject(&good);
        stand.nic.inject(&bad);
        let _ = stand.turn(64, |packet| states.push(packet.checksum));
    }
    stand.nic.inject(&frame(1, 100));
    let _ = stand.turn(64, |packet| states.push(packet.checksum));
    let pair = [ChecksumState::Verified, ChecksumState::Unknown];
    assert_eq!(states, [&pair.repeat(4)[..], &[ChecksumState::Unknown]].concat());
    assert_eq!(stand.port.port.status.checksum_errors.get(), 4);
}

#[test]
fn partial_checksums_are_completed_by_the_device_or_here() {
    let mut stand = Stand::new(&Options::default());
    for kind in KINDS {
        let whole = complete(kind, 777);
        let mut packet = stand.packet(&whole);
        make_partial(&mut packet, kind);
        stand.send(vec![packet]);
        assert_eq!(stand.sent(), core::slice::from_ref(&whole));
        // Behind 300 bytes of other headers, which the device has no bits for.
        let mut packet = stand.packet(&whole);
        make_partial(&mut packet, kind);
        let expected = [frame(1, 250), whole].concat();
        packet.prepend(250).unwrap().copy_from_slice(&expected[..250]);
        packet.checksum_start += 250;
        stand.send(vec![packet]);
        assert_eq!(stand.sent(), [expected]);
    }
    assert_eq!(stand.port.port.status.contexts.get(), 4);
}

#[test]
fn equal_contexts_are_written_once() {
    let mut stand = Stand::new(&Options::default());
    for round in 1..=3 {
        let packets = (0..10)
            .map(|length| {
                let mut packet = stand.packet(&complete(KINDS[2], 100 + length));
                make_partial(&mut packet, KINDS[2]);
                packet
            })
            .collect();
        stand.send(packets);
        assert_eq!(stand.sent().len(), 10);
        assert_eq!(stand.port.port.status.contexts.get(), 1, "{round}");
    }
    stand.close();
}

#[test]
fn tags_that_the_device_took_off_are_where_the_wire_had_them() {
    for vlan_offload in [false, true] {
        let mut stand = Stand::new(&Options { vlan_offload, ..Options::default() });
        let mut tagged = complete(KINDS[0], 100);
        tagged.splice(12..12, [0x81, 0x00, 0x6f, 0xed]);
        for frame in [&tagged, &frame(1, 60)] {
            stand.nic.inject(frame);
            assert_eq!(stand.receive(64).1, core::slice::from_ref(frame), "{vlan_offload}");
        }
        stand.close();
    }
}

/// Sends a super-packet of `payload` bytes; checks every segment and returns their number.
fn cut(stand: &mut Stand, kind: FrameProtocols, payload: usize, size: u16, tags: usize) -> usize {
    let whole = complete(kind, payload);
    let mut packet = stand.packet(&whole);
    make_super(&mut packet, kind, size);
    for tag in 0..tags {
        // Addresses in front, then the tag.
        packet.prepend(4).unwrap();
        let bytes = packet.bytes_mut();
        bytes.copy_within(4..16, 0);
        bytes[12..16].copy_from_slice(&[0x81, 0, 0, u8::try_from(tag).unwrap() + 5]);
        packet.checksum_start += 4;
    }
    stand.send(vec![packet]);
    let sent = stand.sent();
    let mut received = Vec::new();
    for (index, segment) in sent.iter().enumerate() {
        let is_last = index + 1 == sent.len();
        let packet = &segment[14 + 4 * tags..];
        let (pseudo, message) = if kind.is_ipv6 {
            let ip = Ipv6::parse(packet).unwrap();
            (ip.pseudo(), ip.payload().to_vec())
        } else {
            let ip = Ipv4::parse(packet).unwrap();
            ip.verify().unwrap();
            assert_eq!(usize::from(ip.identification()), 100 + index);
            (ip.pseudo(), ip.payload().to_vec())
        };
        let tcp = Tcp::parse(&message).unwrap();
        tcp.verify(pseudo).unwrap();
        let before = u32::try_from(received.len()).unwrap();
        assert_eq!(tcp.sequence(), 0xffff_f000_u32.wrapping_add(before));
        assert_eq!(tcp.flags().0 & 0x09 != 0, is_last, "FIN and PSH are the last one's");
        assert!(tcp.payload().len() == usize::from(size) || is_last);
        received.extend_from_slice(tcp.payload());
    }
    assert!(received == whole[kind.transport() + Tcp::HEADER_BYTES..], "payload is the same");
    sent.len()
}

#[test]
fn super_packets_leave_whole_and_become_segments() {
    let mut stand = Stand::new(&Options::default());
    for kind in [KINDS[2], KINDS[3]] {
        for (payload, size, segments) in [(1, 1400, 1), (1400, 1400, 1), (1401, 1400, 2), (60_000, 1400, 43)]
        {
            assert_eq!(cut(&mut stand, kind, payload, size, 0), segments);
        }
        assert_eq!(cut(&mut stand, kind, 4000, 1000, 1), 4);
        assert_eq!(cut(&mut stand, kind, 4000, 1000, 2), 4);
    }
    let status = &stand.port.port.status;
    assert_eq!((status.segmented.get(), status.tx_doorbells.get()), (12, 12));
    stand.close();
}

#[test]
fn super_packets_that_are_not_what_they_say_are_drops() {
    let mut stand = Stand::new(&Options::default());
    let kind = KINDS[2];
    let mut drops = Vec::new();
    let spoils: [fn(&mut Packet); 8] = [
        |packet| packet.checksum = ChecksumState::Unknown,
        |packet| packet.checksum_start = 15,
        |packet| packet.checksum_start = 60_000,
        |packet| packet.segmentation.size = 0,
        |packet| packet.segmentation.size = 1480,
        |packet| packet.bytes_mut()[12] = 0x77,
        |packet| packet.bytes_mut()[14] = 0x4f,
        |packet| packet.bytes_mut()[23] = 17,
    ];
    for spoil in spoils {
        let mut packet = stand.packet(&complete(kind, 5000));
        make_super(&mut packet, kind, 1400);
        spoil(&mut packet);
        stand.send(vec![packet]);
        assert!(stand.sent().is_empty());
        let counters = stand.port.queue.tx.counters();
        drops.push(
            [DropReason::CannotSegment, DropReason::TxTooLong].map(|reason| counters.drops.get(reason)),
        );
    }
    assert_eq!(drops.last(), Some(&[7 * 4, 4]), "of four segments each");
    assert_eq!(stand.port.queue.tx.held(), 0);
    stand.close();
}
