//! TAP ports against the kernel, in a network namespace of their own.

use crate::common::{self, OtherEnd, RawPeer, frame};
use polder_buffers::{
    Batch, ChecksumState, OuterHeaders, Packet, Pool, Region, RegionOptions, Segmentation, SegmentationKind,
};
use polder_datapath::drops::DropReason;
use polder_datapath::port::{Budget, RxQueue, Turn, TxQueue};
use polder_devices::AnyQueue;
use polder_devices::conformance::{self, Fixture, Limits, Wire};
use polder_devices::netlink::Client;
use polder_devices::netlink::link::{FAR_STATION, HEADER, Link, LinkLayer, NEAR_STATION};
use polder_devices::tap::{self, Offloads, Options, Tap, TapError};
use std::time::Duration;

/// A region, a TAP with `offloads` that is up, and a raw socket on the kernel's side of it.
fn set_up(offloads: Offloads) -> (Region, Tap, RawPeer) {
    common::enter_namespace();
    let region = Region::new(RegionOptions { slots: 1024, slot_bytes: 2048 }).expect("memory for a test");
    let options = Options { offloads, mtu: Some(1500), ..Options::new("pdt%d") };
    let tap = tap::open(&options, &region).expect("root opens a TAP");
    common::ip(&format!("link set {} up", tap.interface.name));
    let peer = RawPeer::open(&tap.interface.name);
    (region, tap, peer)
}

fn receive(tap: &mut Tap, batch: &mut Batch, pool: &mut Pool) -> Turn {
    tap.queues[0].rx.receive(&mut Budget::new(64), batch, pool)
}

#[test]
fn frames_cross_both_ways_and_the_header_is_gone() {
    if !common::is_root("tap::frames_cross_both_ways_and_the_header_is_gone") {
        return;
    }
    let (region, mut tap, peer) = set_up(Offloads::None);
    let (mut pool, mut batch) = (region.pool(), Batch::new());
    assert_eq!(tap.interface.mtu, 1500);
    assert_ne!(tap.interface.index, 0);

    assert!(peer.send(&frame(60)));
    assert!(peer.send(&frame(1514)));
    assert_eq!(receive(&mut tap, &mut batch, &mut pool), Turn::Drained);
    let bytes = batch.iter().map(|packet| packet.bytes().to_vec()).collect::<Vec<_>>();
    assert_eq!(bytes, [frame(60), frame(1514)]);
    assert_eq!(batch[0].headroom(), 256);

    tap.queues[0].tx.transmit(&mut batch, &mut pool);
    assert!(batch.is_empty());
    assert_eq!(peer.receive(), Some(frame(60)));
    assert_eq!(peer.receive(), Some(frame(1514)));
    assert_eq!(peer.receive(), None);
    drop((tap, pool));
    assert_eq!(region.free_slots(), 1024);
}

/// TAPs of one MTU under the conformance suite.
struct Taps {
    mtu: u32,
    offloads: Offloads,
}

impl Fixture for Taps {
    fn limits(&self) -> Limits {
        // A raw socket sends four bytes beyond the MTU in frames with a VLAN tag alone.
        common::limits(self.mtu as usize + 18, self.mtu as usize + 14)
    }

    fn open(&mut self, region: &Region) -> Result<(AnyQueue, Box<dyn Wire>), String> {
        let options = Options { mtu: Some(self.mtu), offloads: self.offloads, ..Options::new("pdt%d") };
        let mut tap = tap::open(&options, region).map_err(|error| error.to_string())?;
        let link = tap.interface.name;
        common::ip(&format!("link set {link} up"));
        let queue = tap.queues.pop().expect("one queue").boxed();
        Ok((queue, Box::new(OtherEnd { peer: RawPeer::open(&link), link, port: () })))
    }
}

#[test]
fn a_tap_passes_the_suite() {
    for (name, mtu, offloads) in [
        ("tap::a_tap_passes_the_suite", 1500, Offloads::Checksum),
        ("tap::a_tap_with_jumbo_frames_passes_the_suite", 9000, Offloads::None),
        ("tap::a_tap_with_segments_passes_the_suite", 1500, Offloads::Segments),
    ] {
        if !common::is_root(name) {
            continue;
        }
        common::enter_namespace();
        let report = conformance::run(&mut Taps { mtu, offloads });
        assert!(report.is_clean(), "{name}\n{report}");
    }
}

/// Makes an answer of a packet of [`udp_socket`]: addresses change places, which no sum notices.
fn turn_round(packet: &mut Packet) {
    let bytes = packet.bytes_mut();
    bytes[..12].rotate_left(6);
    bytes[26..34].rotate_left(4);
}

/// Offloads of the kernel come in as metadata, go out as metadata, and the kernel does their work.
#[test]
fn offloads_survive_the_way_there_and_back() {
    if !common::is_root("tap::offloads_survive_the_way_there_and_back") {
        return;
    }
    let payload = (0..14_000_u32).map(|index| (index / 7).to_le_bytes()[0]).collect::<Vec<_>>();
    for (offloads, packets, checksum, kind) in [
        (Offloads::None, 10, ChecksumState::Unknown, SegmentationKind::None),
        (Offloads::Checksum, 10, ChecksumState::Partial, SegmentationKind::None),
        (Offloads::Segments, 1, ChecksumState::Partial, SegmentationKind::Udp),
    ] {
        let (region, mut tap, _peer) = set_up(offloads);
        let (mut pool, mut batch) = (region.pool(), Batch::new());
        if kind != SegmentationKind::None && !tap.udp_segments {
            common::skip("tap::offloads_survive: UDP segments", "the kernel is older than 6.2");
            continue;
        }
        let socket = common::udp_socket(&tap.interface.name);
        common::send_segmented(&socket, 1400);
        socket.send(&payload).expect("the TAP takes it");
        assert_eq!(receive(&mut tap, &mut batch, &mut pool), Turn::Drained);
        assert_eq!(batch.len(), packets, "{offloads:?}");
        for packet in batch.iter_mut() {
            assert_eq!((packet.checksum, packet.segmentation.kind), (checksum, kind), "{offloads:?}");
            assert_eq!(packet.len(), 42 + 14_000 / packets);
            if checksum == ChecksumState::Partial {
                assert_eq!((packet.checksum_start, packet.checksum_offset), (34, 6));
            }
            if kind == SegmentationKind::Udp {
                assert_eq!((packet.segmentation.size, packet.segment_count()), (1400, 7));
            }
            turn_round(packet);
        }
        tap.queues[0].tx.transmit(&mut batch, &mut pool);
        let answer = common::datagrams(&socket, payload.len(), 1400);
        assert!(answer == payload, "{offloads:?}: the payload has changed");
        assert_eq!(tap.queues[0].tx.counters().drops.total(), 0);
    }
}

/// A packet of a TUN interface has an Ethernet header in this process, and none for the kernel; offloads survive.
#[test]
fn packets_of_a_tun_interface_have_a_header_in_this_process_alone() {
    if !common::is_root("tap::packets_of_a_tun_interface_have_a_header_in_this_process_alone") {
        return;
    }
    let payload = (0..14_000_u32).map(|index| (index / 7).to_le_bytes()[0]).collect::<Vec<_>>();
    for (offloads, packets) in [(Offloads::None, 10), (Offloads::Checksum, 10), (Offloads::Segments, 1)] {
        common::enter_namespace();
        let region = Region::new(RegionOptions { slots: 1024, slot_bytes: 2048 }).expect("memory for a test");
        let options = Options { offloads, layer: LinkLayer::Packets, ..Options::new("pdt%d") };
        let mut tun = tap::open(&options, &region).expect("root opens a TUN interface");
        if offloads == Offloads::Segments && !tun.udp_segments {
            common::skip("tap::packets_of_a_tun_interface: UDP segments", "the kernel is older than 6.2");
            continue;
        }
        let name = tun.interface.name.clone();
        assert_eq!(tun.interface.mac, NEAR_STATION);
        common::ip(&format!("link set {name} addrgenmode none"));
        common::ip(&format!("link set {name} up"));
        common::ip(&format!("address add 10.9.0.1/24 dev {name}"));
        let socket = std::net::UdpSocket::bind("10.9.0.1:5000").expect("the address is there");
        socket.connect("10.9.0.2:5000").expect("there is a route");
        socket.set_read_timeout(Some(Duration::from_secs(5))).expect("a time is a time");
        common::send_segmented(&socket, 1400);
        let (mut pool, mut batch) = (region.pool(), Batch::new());
        socket.send(&payload).expect("the interface takes it");
        assert_eq!(receive(&mut tun, &mut batch, &mut pool), Turn::Drained);
        assert_eq!(batch.len(), packets, "{offloads:?}");
        for packet in batch.iter_mut() {
            assert_eq!(packet.len(), 42 + 14_000 / packets);
            assert_eq!(packet.bytes()[..14], [&FAR_STATION[..], &NEAR_STATION, &[8, 0]].concat());
            if packet.checksum == ChecksumState::Partial {
                assert_eq!((packet.checksum_start, packet.checksum_offset), (34, 6));
            }
            assert_eq!(packet.checksum == ChecksumState::Partial, offloads != Offloads::None);
            turn_round(packet);
        }
        let counters = tun.queues[0].rx.counters();
        assert_eq!(counters.received_bytes.get(), (packets * 42 + 14_000) as u64);
        tun.queues[0].tx.transmit(&mut batch, &mut pool);
        let answer = common::datagrams(&socket, payload.len(), 1400);
        assert!(answer == payload, "{offloads:?}: the payload has changed");
        assert_eq!(tun.queues[0].tx.counters().drops.total(), 0);
        carrier_is_set(&tun);
    }
}

fn carrier_is_set(tun: &Tap) {
    let has_carrier = || {
        let mut body = vec![0; HEADER];
        body[4..8].copy_from_slice(&tun.interface.index.to_ne_bytes());
        let mut client = Client::open(None).expect("a socket");
        let answers = client.ask(libc::RTM_GETLINK, &body).expect("the interface is there");
        answers.first().and_then(|(_, body)| Link::parse(body)).expect("an interface").carrier
    };
    for is_on in [false, true] {
        tap::set_carrier(&tun.files[0], is_on).expect("root sets the carrier");
        assert_eq!(has_carrier(), is_on);
    }
}

/// An interface of another kind is not taken, and the error says what to do.
#[test]
fn an_interface_of_another_kind_is_no_tun_interface() {
    if !common::has_namespace("tap::an_interface_of_another_kind_is_no_tun_interface") {
        return;
    }
    let region = Region::new(RegionOptions { slots: 256, slot_bytes: 2048 }).expect("memory for a test");
    common::ip("tuntap add dev pdtap mode tap");
    for name in ["pdtap", "lo"] {
        let options = Options { layer: LinkLayer::Packets, ..Options::new(name) };
        let refused = tap::open(&options, &region).expect_err("it is no TUN interface");
        assert!(matches!(refused, TapError::NoTun(_)), "{refused}");
        assert!(refused.to_string().contains(&format!("`ip link delete {name}`")), "{refused}");
    }
}

#[test]
fn a_frame_longer_than_the_port_accepts_is_counted() {
    if !common::is_root("tap::a_frame_longer_than_the_port_accepts_is_counted") {
        return;
    }
    let (region, mut tap, peer) = set_up(Offloads::None);
    let (mut pool, mut batch) = (region.pool(), Batch::new());
    common::ip(&format!("link set {} mtu 9000", tap.interface.name));
    for length in [1518, 1519, 1791, 1792, 1793, 9000, 60] {
        assert!(peer.send(&frame(length)));
    }
    assert_eq!(receive(&mut tap, &mut batch, &mut pool), Turn::Drained);
    let lengths = batch.iter().map(Packet::len).collect::<Vec<_>>();
    assert_eq!(lengths, [1518, 60]);
    let counters = tap.queues[0].rx.counters();
    assert_eq!((counters.received.get(), counters.drops.get(DropReason::FrameTooLong)), (7, 5));
    pool.release(&mut batch);
}

/// A packet that the header cannot describe, or that the kernel refuses, is counted and dropped.
#[test]
fn packets_that_cannot_be_sent_are_counted() {
    if !common::is_root("tap::packets_that_cannot_be_sent_are_counted") {
        return;
    }
    let (region, mut tap, peer) = set_up(Offloads::Segments);
    let (mut pool, mut batch) = (region.pool(), Batch::new());
    let mut odd = |change: fn(&mut Packet)| {
        let mut packet = Packet::copy_from(&frame(1000), &mut pool).expect("free frames");
        change(&mut packet);
        batch.push(packet).expect("few packets");
    };
    odd(|packet| {
        packet.segmentation =
            Segmentation { size: 100, kind: SegmentationKind::Tcp4, outer: OuterHeaders::NONE }
    });
    odd(|packet| {
        packet.segmentation =
            Segmentation { size: 100, kind: SegmentationKind::Tcp6, outer: OuterHeaders::NONE };
        packet.checksum = ChecksumState::Partial;
        packet.checksum_start = 999;
    });
    odd(|packet| {
        packet.checksum = ChecksumState::Partial;
        (packet.checksum_start, packet.checksum_offset) = (990, 16);
    });
    odd(|packet| packet.trim_front(990).expect("it has 1000"));
    odd(|_| {});
    let tx = &mut tap.queues[0].tx;
    tx.transmit(&mut batch, &mut pool);
    assert!(batch.is_empty());
    assert_eq!(tx.counters().drops.get(DropReason::TxError), 4);
    assert_eq!(tx.counters().transmitted.get(), 1);
    assert_eq!(peer.receive(), Some(frame(1000)));

    common::ip(&format!("link set {} down", tap.interface.name));
    batch.push(Packet::copy_from(&frame(60), &mut pool).expect("free frames")).expect("room");
    let tx = &mut tap.queues[0].tx;
    tx.transmit(&mut batch, &mut pool);
    assert_eq!((batch.len(), tx.counters().drops.get(DropReason::TxError)), (0, 5));
    assert_eq!(tx.reclaim(&mut pool), Turn::Drained, "an interface that is down is not gone");
}

#[test]
fn queues_settings_and_interfaces_that_exist() {
    if !common::has_namespace("tap::queues_settings_and_interfaces_that_exist") {
        return;
    }
    let region = Region::new(RegionOptions { slots: 256, slot_bytes: 2048 }).expect("memory for a test");
    let mac = [2, 0, 0, 0xaa, 0xbb, 0xcc];
    let options = Options { queues: 3, mtu: Some(4000), mac: Some(mac), ..Options::new("pdt%d") };
    let tap = tap::open(&options, &region).expect("root opens a TAP");
    assert_eq!((tap.queues.len(), tap.interface.mtu, tap.interface.mac), (3, 4000, mac));
    assert_eq!(tap.interface.name, "pdt0");
    assert_eq!(tap::open(&Options::new("pdt0"), &region).expect("one more queue").queues.len(), 1);
    drop(tap);
    // A program that another test starts has the descriptors until it is the other program.
    let is_new = || tap::open(&Options::new("pdt0"), &region).expect("anew").interface.mtu == 1500;
    let is_gone = (0..2000).any(|_| {
        let is_new = is_new();
        if !is_new {
            std::thread::sleep(Duration::from_millis(10));
        }
        is_new
    });
    assert!(is_gone, "not persistent");

    // Interfaces made by others, with one queue and with many.
    common::ip("tuntap add dev pdtone mode tap");
    common::ip("tuntap add dev pdtmany mode tap multi_queue");
    common::ip("link set pdtone mtu 1400");
    let one = tap::open(&Options::new("pdtone"), &region).expect("one queue of an interface that has one");
    assert_eq!(one.interface.mtu, 1400);
    let two = Options { queues: 2, ..Options::new("pdtmany") };
    assert_eq!(tap::open(&two, &region).expect("two queues").queues.len(), 2);
    let busy = tap::open(&Options::new("pdtone"), &region).expect_err("it has one queue");
    assert!(matches!(busy, TapError::Busy(_)), "{busy}");
    drop(one);
    let mismatch = tap::open(&Options { name: "pdtone".to_owned(), ..two }, &region);
    assert!(matches!(mismatch, Err(TapError::Mismatch(_))), "{mismatch:?}");
    let small = Region::new(RegionOptions { slots: 64, slot_bytes: 512 }).expect("memory for a test");
    let uncut = Options { offloads: Offloads::Segments, ..Options::new("pdt%d") };
    let too_small = tap::open(&uncut, &small).expect_err("129 slots a packet");
    assert!(matches!(too_small, TapError::SmallSlots(512)), "{too_small}");
    let not_a_tap = tap::open(&Options::new("lo"), &region).expect_err("it is the loopback");
    assert!(matches!(not_a_tap, TapError::Mismatch(_)), "{not_a_tap}");
}

#[test]
fn options_that_cannot_be_right_are_refused_first() {
    let region = Region::new(RegionOptions { slots: 64, slot_bytes: 512 }).expect("memory for a test");
    for name in ["", "a name", "a/b", "sixteen-letters-"] {
        let error = tap::open(&Options::new(name), &region).expect_err("no name");
        assert!(matches!(error, TapError::Name(_)), "{error}");
    }
    let none = tap::open(&Options { queues: 0, ..Options::new("pdt%d") }, &region);
    assert!(matches!(none, Err(TapError::NoQueues)), "{none:?}");
}
