//! Interfaces behind a TAP of Polder's against the kernel, in network namespaces of their own.

use crate::common::{self, OtherEnd, RawPeer, frame};
use polder_buffers::{
    Batch, ChecksumState, OuterHeaders, Packet, Pool, Region, Segmentation, SegmentationKind,
};
use polder_datapath::capture::{CapturePoints, Instruction, Program};
use polder_datapath::drops::DropReason;
use polder_datapath::port::{Budget, Turn};
use polder_datapath::segment::Measure;
use polder_devices::AnyQueue;
use polder_devices::af_xdp::{OnExit, OpenError, Take, XdpVerdict, release};
use polder_devices::conformance::{self, Fixture, Limits, Wire};
use polder_devices::skb::{self, Hook, Opened, Options, is_left, open, release as release_filter};
use rustix::time::{ClockId, clock_gettime};
use std::net::UdpSocket;
use std::process::Command;
use std::time::Duration;

fn memory() -> (Region, Pool) {
    common::memory(1024)
}

fn whole(interface: &str) -> Options {
    Options::new(interface, Take::Whole)
}

fn receive(opened: &mut Opened, batch: &mut Batch, pool: &mut Pool) -> Turn {
    opened.queues[0].rx.receive(&mut Budget::new(64), batch, pool)
}

/// Receives until the kernel has brought so many packets.
fn await_packets(opened: &mut Opened, count: usize, pool: &mut Pool) -> Batch {
    let mut batch = Batch::new();
    for _ in 0..2000 {
        let _ = receive(opened, &mut batch, pool);
        if batch.len() >= count {
            break;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    batch
}

/// Ports on veths of one MTU under the conformance suite.
struct Veths {
    mtu: u32,
    clsact: bool,
    count: u32,
}

impl Fixture for Veths {
    fn limits(&self) -> Limits {
        let longest = self.mtu as usize + 14;
        common::limits(longest, longest)
    }

    fn open(&mut self, region: &Region) -> Result<(AnyQueue, Box<dyn Wire>), String> {
        self.count += 1;
        let (name, other) = (format!("pdks{}", self.count), format!("pdkt{}", self.count));
        common::veth(&name, &other, &format!("mtu {}", self.mtu));
        let options = Options { clsact: self.clsact, ..whole(&name) };
        let mut opened = open(&options, region, None).map_err(|error| error.to_string())?;
        let queue = opened.queues.pop().ok_or("no queue")?;
        // The TAP goes, as when somebody deletes it: the interface itself is not what the queue is on.
        let link = tap_of(&name);
        Ok((queue, Box::new(OtherEnd { peer: RawPeer::open(&other), link, port: opened.port })))
    }
}

/// The TAP whose alias says that it is for an interface.
fn tap_of(interface: &str) -> String {
    let output = Command::new("ip").args(["-o", "link", "show"]).output();
    let text = String::from_utf8_lossy(&output.expect("ip is there").stdout).into_owned();
    let alias = format!("Polder's packets of {interface}");
    let line = text.lines().find(|line| line.trim_end().ends_with(&alias));
    let line = line.unwrap_or_else(|| panic!("no TAP for {interface}: {text}"));
    line.split(": ").nth(1).expect("a line of ip has a name").to_owned()
}

#[test]
fn a_port_passes_the_suite() {
    for (name, mtu, clsact) in [
        ("skb::a_port_passes_the_suite", 1500, false),
        ("skb::a_port_with_jumbo_frames_passes_the_suite", 9000, false),
        ("skb::a_port_at_clsact_passes_the_suite", 1500, true),
    ] {
        if !common::is_root(name) {
            continue;
        }
        common::enter_namespace();
        let report = conformance::run(&mut Veths { mtu, clsact, count: 0 });
        assert!(report.is_clean(), "{name}\n{report}");
    }
}

/// Lines of `tc filter show` for an interface's ingress that name a filter.
fn filters(interface: &str) -> Vec<String> {
    let output = Command::new("tc").args(["filter", "show", "dev", interface, "ingress"]).output();
    let text = String::from_utf8_lossy(&output.expect("tc is there").stdout).into_owned();
    text.lines().filter(|line| line.contains("handle")).map(str::to_owned).collect()
}

fn tc(words: &[&str]) {
    let output = Command::new("tc").args(words).output().expect("tc is there");
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
}

fn has_clsact(interface: &str) -> bool {
    let output = Command::new("tc").args(["qdisc", "show", "dev", interface]).output();
    String::from_utf8_lossy(&output.expect("tc is there").stdout).contains("clsact")
}

/// A filter at clsact is the first one, replaces what is left of another, and goes without those of others.
#[test]
fn a_filter_at_clsact_takes_nothing_from_others() {
    const NAME: &str = "skb::a_filter_at_clsact_takes_nothing_from_others";
    if !common::is_root(NAME) {
        return;
    }
    if Command::new("tc").arg("-V").output().is_err() {
        return common::skip(NAME, "`tc` is not installed");
    }
    common::enter_namespace();
    common::veth("pdka0", "pdka1", "");
    common::veth("pdkb0", "pdkb1", "");
    tc(&["qdisc", "add", "dev", "pdkb0", "clsact"]);
    // What ends in it is dropped by it.
    tc(&["filter", "add", "dev", "pdkb0", "ingress", "pref", "1", "bpf", "da", "bytecode", "1,6 0 0 2"]);
    let (region, mut pool) = memory();
    for (interface, other, foreign) in [("pdka0", "pdka1", 0), ("pdkb0", "pdkb1", 1)] {
        let options = Options { clsact: true, ..whole(interface) };
        let mut opened = open(&options, &region, None).expect("root opens a veth");
        assert_eq!(opened.port.hook, Hook::Clsact);
        assert!(RawPeer::open(other).send(&frame(100)));
        assert_eq!(await_packets(&mut opened, 1, &mut pool).len(), 1, "it is the first");
        // It is in use as long as its TAP is there.
        assert!(is_left(interface) && !release_filter(interface, false).expect("the kernel says"));
        assert!(matches!(open(&options, &region, None), Err(skb::OpenError::Interface(OpenError::InUse(_)))));
        common::ip(&format!("link delete {}", tap_of(interface)));
        let second = open(&options, &region, None).expect("what is left is taken over");
        assert_eq!(filters(interface).len(), 1 + foreign);
        assert_eq!(second.port.refresh(None).map(|_| ()), Ok(()));
        assert!(opened.port.refresh(None).is_err(), "its filter is another's");
        // Closing the first, whose filter was replaced, leaves that of the second.
        drop(opened);
        assert_eq!((filters(interface).len(), second.port.refresh(None).is_ok()), (1 + foreign, true));
        drop(second);
        assert_eq!((filters(interface).len(), has_clsact(interface)), (foreign, foreign > 0));
        // Left behind, and released.
        let third = open(&Options { on_exit: OnExit::Drop, ..options }, &region, None).expect("it is free");
        drop(third);
        assert_eq!(filters(interface).len(), 1 + foreign);
        assert!(release_filter(interface, false).expect("the kernel says") && !is_left(interface));
        assert_eq!((filters(interface).len(), has_clsact(interface)), (foreign, foreign > 0));
    }
}

/// Offloads of a sender come in as metadata, go out as metadata, and the kernel does their work.
#[test]
fn offloads_survive_the_way_there_and_back() {
    const NAME: &str = "skb::offloads_survive_the_way_there_and_back";
    if !common::is_root(NAME) {
        return;
    }
    let payload = (0..14_000_u32).map(|index| (index / 7).to_le_bytes()[0]).collect::<Vec<_>>();
    for (segments, packets, kind) in [(true, 1, SegmentationKind::Udp), (false, 10, SegmentationKind::None)] {
        common::enter_namespace();
        common::veth("pdko0", "pdko1", "");
        let (region, mut pool) = memory();
        let mut opened =
            open(&Options { segments, ..whole("pdko0") }, &region, None).expect("root opens a veth");
        if segments && !opened.port.udp_segments {
            common::skip(NAME, "the kernel is older than 6.2");
            continue;
        }
        let socket = common::udp_socket("pdko1");
        common::send_segmented(&socket, 1400);
        socket.send(&payload).expect("the veth takes it");
        let mut batch = await_packets(&mut opened, packets, &mut pool);
        assert_eq!(batch.len(), packets);
        for packet in batch.iter_mut() {
            assert_eq!((packet.checksum, packet.segmentation.kind), (ChecksumState::Partial, kind));
            // Addresses change places, which no sum notices.
            let bytes = packet.bytes_mut();
            bytes[..12].rotate_left(6);
            bytes[26..34].rotate_left(4);
        }
        opened.queues[0].tx.transmit(&mut batch, &mut pool);
        assert!(common::datagrams(&socket, payload.len(), 1400) == payload, "the payload has changed");
        assert_eq!(opened.queues[0].tx.counters().drops.total(), 0);
    }
}

/// Segments in a kernel's VXLAN come in whole and go out whole, with and without outer checksums.
#[test]
fn segments_in_tunnels_survive_the_way_there_and_back() {
    const NAME: &str = "skb::segments_in_tunnels_survive_the_way_there_and_back";
    if !common::is_root(NAME) {
        return;
    }
    let payload = (0..13_000_u32).map(|index| (index / 7).to_le_bytes()[0]).collect::<Vec<_>>();
    for checksum in ["noudpcsum", "udpcsum"] {
        common::enter_namespace();
        common::veth("pdku0", "pdku1", "mtu 1600");
        let (region, mut pool) = memory();
        let mut opened = open(&whole("pdku0"), &region, None).expect("root opens a veth");
        if !opened.port.tunnel_segments {
            return common::skip(NAME, "the kernel is older than 6.17");
        }
        common::ip("address add 10.9.1.1/24 dev pdku1");
        common::ip("neighbour add 10.9.1.2 lladdr 02:00:00:00:00:02 dev pdku1");
        common::ip(&format!(
            "link add pdku2 type vxlan id 5 local 10.9.1.1 remote 10.9.1.2 dstport 4789 {checksum}"
        ));
        common::ip("link set pdku2 mtu 1500 up");
        let socket = common::udp_socket("pdku2");
        common::send_segmented(&socket, 1300);
        socket.send(&payload).expect("the tunnel takes it");
        let mut whole = None;
        // Neighbour discovery of the new interface may come before.
        while whole.is_none() {
            let mut batch = await_packets(&mut opened, 1, &mut pool);
            assert!(!batch.is_empty(), "nothing comes");
            for packet in batch.drain() {
                match packet.segmentation.kind == SegmentationKind::None {
                    true => pool.release_packet(packet),
                    false => whole = Some(packet),
                }
            }
        }
        let mut packet = whole.expect("found");
        let outer = OuterHeaders::udp(20, checksum == "udpcsum");
        assert_eq!(Some(packet.segmentation.outer), outer);
        assert_eq!((packet.segmentation.size, packet.segmentation.kind), (1300, SegmentationKind::Udp));
        assert_eq!(packet.len(), 50 + 42 + payload.len());
        // Addresses change places, which no sum notices: those outside, and those inside.
        let bytes = packet.bytes_mut();
        for (start, addresses) in [(0, 26), (50, 76)] {
            bytes[start..start + 12].rotate_left(6);
            bytes[addresses..addresses + 8].rotate_left(4);
        }
        let mut batch = Batch::new();
        batch.push(packet).expect("the only one");
        opened.queues[0].tx.transmit(&mut batch, &mut pool);
        assert!(common::datagrams(&socket, payload.len(), 1300) == payload, "the payload has changed");
        assert_eq!(opened.queues[0].tx.counters().drops.total(), 0);
    }
}

#[test]
fn tags_are_in_the_frame_and_too_long_is_dropped() {
    if !common::has_namespace("skb::tags_are_in_the_frame_and_too_long_is_dropped") {
        return;
    }
    common::veth("pdkv0", "pdkv1", "");
    let (region, mut pool) = memory();
    let mut opened = open(&whole("pdkv0"), &region, None).expect("root opens a veth");
    let peer = RawPeer::open("pdkv1");
    let mut tagged = frame(1518);
    tagged[12..18].copy_from_slice(&[0x81, 0, 0x20, 7, 0x88, 0xb5]);
    assert!(peer.send(&tagged));
    let mut batch = await_packets(&mut opened, 1, &mut pool);
    assert_eq!(batch[0].bytes(), tagged);
    opened.queues[0].tx.transmit(&mut batch, &mut pool);
    let counters = std::sync::Arc::clone(opened.queues[0].tx.counters());
    assert_eq!((counters.transmitted.get(), counters.drops.total()), (1, 0), "a tag is not of the MTU");
    // Segments of a super-packet that are longer than the link carries: nothing below would look at them.
    let mut long = frame(4000);
    long[12..16].copy_from_slice(&[8, 0, 0x45, 0]);
    long[46] = 0x50;
    for (size, sent) in [(1460, true), (1461, false)] {
        let mut packet = Packet::copy_from(&long, &mut pool).expect("slots are free");
        (packet.checksum, packet.checksum_start, packet.checksum_offset) = (ChecksumState::Partial, 34, 16);
        let (kind, outer) = (SegmentationKind::Tcp4, OuterHeaders::NONE);
        Measure::describe(&mut packet, Segmentation { size, kind, outer });
        batch.push(packet).expect("room");
        let before = counters.drops.get(DropReason::TxTooLong);
        opened.queues[0].tx.transmit(&mut batch, &mut pool);
        assert_eq!(counters.drops.get(DropReason::TxTooLong) == before, sent, "{size}");
    }
    // A smaller MTU is taken over.
    common::ip("link set pdkv0 mtu 1000");
    opened.port.refresh(None).expect("it is there");
    batch.push(Packet::copy_from(&frame(1015), &mut pool).expect("slots are free")).expect("room");
    opened.queues[0].tx.transmit(&mut batch, &mut pool);
    assert_eq!(counters.drops.get(DropReason::TxTooLong), 4, "three segments, and one packet");
}

/// All that is sent is received or counted, and no more waits than the window has.
#[test]
fn what_exceeds_the_window_is_counted() {
    if !common::has_namespace("skb::what_exceeds_the_window_is_counted") {
        return;
    }
    common::veth("pdkw0", "pdkw1", "");
    let (region, mut pool) = memory();
    let window_bytes = 64 << 10;
    let mut opened =
        open(&Options { window_bytes, ..whole("pdkw0") }, &region, None).expect("root opens a veth");
    let peer = RawPeer::open("pdkw1");
    for round in 1..=3_u64 {
        for _ in 0..200 {
            assert!(peer.send(&frame(1000)));
        }
        std::thread::sleep(Duration::from_millis(20));
        let mut waited = 0;
        loop {
            let mut batch = Batch::new();
            let turn = receive(&mut opened, &mut batch, &mut pool);
            waited += batch.len();
            pool.release(&mut batch);
            if turn == Turn::Drained {
                break;
            }
        }
        // Three quarters of 64 KiB, and the packet that was let in last.
        assert_eq!(waited, 25, "round {round}");
        let _ = receive(&mut opened, &mut Batch::new(), &mut pool);
        let counters = opened.queues[0].rx.counters();
        assert_eq!(counters.received.get(), 200 * round);
        assert_eq!(counters.drops.get(DropReason::RxOverrun), (200 - 25) * round);
    }
    opened.port.refresh(None).expect("it is there");
    assert_eq!(opened.port.lost().drops.total(), 0, "the TAP itself has lost nothing");
}

#[test]
fn the_tap_carries_nothing_else_and_flows_keep_their_queue() {
    if !common::has_namespace("skb::the_tap_carries_nothing_else_and_flows_keep_their_queue") {
        return;
    }
    common::veth("pdkq0", "pdkq1", "");
    let (region, mut pool) = memory();
    let mut opened =
        open(&Options { queues: 2, ..whole("pdkq0") }, &region, None).expect("root opens a veth");
    assert_eq!(opened.queues.len(), 2, "{:?}", opened.port.report);
    let (stack, peer) = (RawPeer::open(&tap_of("pdkq0")), RawPeer::open("pdkq1"));
    stack.send(&frame(60));
    let mut taken = [0, 0];
    for port in 0..32_u8 {
        let mut udp = frame(60);
        udp[12..14].copy_from_slice(&[8, 0]);
        udp[14..34].copy_from_slice(&[0x45, 0, 0, 46, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        udp[34..42].copy_from_slice(&[1, port, 0, 53, 0, 26, 0, 0]);
        let mut queues = Vec::new();
        for _ in 0..3 {
            assert!(peer.send(&udp));
            std::thread::sleep(Duration::from_millis(1));
            for (number, queue) in opened.queues.iter_mut().enumerate() {
                let mut batch = Batch::new();
                let _ = queue.rx.receive(&mut Budget::new(64), &mut batch, &mut pool);
                assert!(batch.iter().all(|packet| packet.bytes() == udp), "something else came");
                queues.extend(batch.iter().map(|_| number));
                taken[number] += batch.len();
                pool.release(&mut batch);
            }
        }
        assert!(queues.iter().all(|number| *number == queues[0]), "{queues:?}");
    }
    assert!(taken[0] > 20 && taken[1] > 20, "{taken:?}");
    assert_eq!(taken[0] + taken[1], 96);
}

/// A driver may say of every packet that its hash is one of addresses and ports, and always the same.
#[test]
fn flows_spread_over_queues_whatever_hash_the_driver_sets() {
    const NAME: &str = "skb::flows_spread_over_queues_whatever_hash_the_driver_sets";
    if !common::has_namespace(NAME) {
        return;
    }
    common::veth("pdkh0", "pdkh1", "");
    let (region, mut pool) = memory();
    let mut opened =
        open(&Options { queues: 4, ..whole("pdkh0") }, &region, None).expect("root opens a veth");
    assert_eq!(opened.queues.len(), 4, "{:?}", opened.port.report);
    let driver = skb::set_hash("pdkh0", 1);
    let Ok(_driver) = driver else { return common::skip(NAME, "the kernel has no TCX") };
    let peer = RawPeer::open("pdkh1");
    let mut taken = [0; 4];
    for port in 0..64_u8 {
        let mut udp = datagram();
        udp[35] = port;
        assert!(peer.send(&udp));
    }
    for _ in 0..2000 {
        for (taken, queue) in taken.iter_mut().zip(&mut opened.queues) {
            let mut batch = Batch::new();
            let _ = queue.rx.receive(&mut Budget::new(64), &mut batch, &mut pool);
            *taken += batch.len();
            pool.release(&mut batch);
        }
        if taken.iter().sum::<usize>() == 64 {
            break;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(taken.iter().sum::<usize>(), 64, "{taken:?}");
    assert!(taken.iter().all(|&taken| taken > 4), "{taken:?}");
}

/// UDP over IPv4 from 10.9.1.2 to 10.9.1.1, to all stations of the link.
fn datagram() -> Vec<u8> {
    let mut datagram = vec![0xff; 6];
    datagram.extend([2, 0, 0, 0, 0, 2, 8, 0]);
    datagram.extend([0x45, 0, 0, 32, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 9, 1, 2, 10, 9, 1, 1]);
    let sum =
        datagram[14..34].chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum::<u32>();
    let sum = u16::try_from((sum & 0xffff) + (sum >> 16)).expect("a sum of few words");
    datagram[24..26].copy_from_slice(&(!sum).to_be_bytes());
    datagram.extend([0, 53, 0x14, 0xe9, 0, 12, 0, 0, 1, 2, 3, 4]);
    datagram
}

#[test]
fn a_closed_port_stays_closed_or_opens_as_it_was_told() {
    if !common::has_namespace("skb::a_closed_port_stays_closed_or_opens_as_it_was_told") {
        return;
    }
    common::veth("pdkx0", "pdkx1", "");
    common::ip("address add 10.9.1.1/24 dev pdkx0");
    let ((region, _), peer) = (memory(), RawPeer::open("pdkx1"));
    let socket = UdpSocket::bind("10.9.1.1:5353").expect("the address is there");
    socket.set_read_timeout(Some(Duration::from_millis(300))).expect("a time is a time");
    let kernel_hears = || {
        assert!(peer.send(&datagram()));
        socket.recv(&mut [0; 64]).is_ok()
    };
    assert!(kernel_hears());
    let opened = open(&whole("pdkx0"), &region, None).expect("root opens a veth");
    assert_eq!(opened.port.verdict(&frame(60)), Ok(XdpVerdict::Taken));
    assert_eq!(skb::foreign_programs(opened.port.interface.index, false), Ok(0));
    assert!(!kernel_hears());
    assert!(matches!(
        open(&whole("pdkx0"), &region, None),
        Err(skb::OpenError::Interface(OpenError::InUse(_)))
    ));
    drop(opened);
    assert!(kernel_hears(), "the program goes with the port");
    let closed = Options { on_exit: OnExit::Drop, ..whole("pdkx0") };
    drop(open(&closed, &region, None).expect("root opens a veth"));
    assert!(!kernel_hears(), "the program is pinned");
    let again = open(&closed, &region, None).expect("the pinned link is taken over");
    assert_eq!(again.port.verdict(&frame(60)), Ok(XdpVerdict::Taken));
    drop(again);
    assert!(!kernel_hears(), "it stays pinned");
    assert!(release("pdkx0").expect("root removes a pin"), "there was something to do");
    assert!(kernel_hears());
}

/// Everything that the filter matches is read or counted as lost.
#[test]
fn copies_are_of_both_ways_and_lost_ones_are_counted() {
    const NAME: &str = "skb::copies_are_of_both_ways_and_lost_ones_are_counted";
    if !common::has_namespace(NAME) {
        return;
    }
    common::veth("pdkv0", "pdkv1", "");
    let (region, mut pool) = memory();
    let mut opened = open(&whole("pdkv0"), &region, None).expect("root opens a veth");
    let peer = RawPeer::open("pdkv1");
    // EtherType 0x88b5 alone.
    let step = |code, k, no| Instruction { code, yes: 0, no, k };
    let filter = [step(0x28, 12, 0), step(0x15, 0x88b5, 1), step(0x06, 262_144, 0), step(0x06, 0, 0)];
    let both = CapturePoints { rx: true, tx: true, drops: false };
    let mut copies =
        opened.port.copies(&Program::load(&filter).unwrap(), 64, both).expect("root loads programs");
    let began = clock_gettime(ClockId::Monotonic).tv_sec.cast_unsigned() * 1_000_000_000;
    let frame = |kind: u8, length: usize| {
        let mut frame = [&[2; 12][..], &[0x88, kind]].concat();
        frame.resize(length, 7);
        frame
    };
    for number in 0..34 {
        peer.send(&frame(0xb5 + number % 2, 600));
    }
    let mut batch = Batch::new();
    for number in 0..6 {
        let packet = Packet::copy_from(&frame(0xb5 + number % 2, 700), &mut pool).expect("slots are free");
        batch.push(packet).expect("room");
    }
    opened.queues[0].tx.transmit(&mut batch, &mut pool);
    let mut seen = [0; 2];
    while let Some(copy) = copies.receive().expect("the interface is up") {
        assert!(copy.bytes.len() == 64 && copy.bytes[12..14] == [0x88, 0xb5]);
        assert_eq!(copy.length, if copy.sent { 700 } else { 600 });
        assert!(copy.at >= began, "{}", copy.at);
        seen[usize::from(copy.sent)] += 1;
    }
    assert_eq!(seen, [17, 3]);
    let [asked, lost] = copies.counts();
    assert!(asked >= 40 && lost == 0, "{asked} {lost}");
    // Nobody reads.
    for _ in 0..100_000 {
        peer.send(&frame(0xb5, 60));
    }
    let mut read = 20;
    while copies.receive().expect("the interface is up").is_some() {
        read += 1;
    }
    let [asked, lost] = copies.counts();
    assert!(asked >= 100_040 && lost > 0, "{asked} {lost}: the ring has room for fewer");
    assert_eq!(read + lost, 100_020);
    // Its programs keep nobody from opening the interface anew.
    drop(opened);
    let opened = open(&whole("pdkv0"), &region, None).expect("root opens a veth again");
    assert!(copies.receive().is_err(), "the port is closed");
    drop(copies);
    // It ends with the interface.
    let mut copies =
        opened.port.copies(&Program::load(&filter).unwrap(), 64, both).expect("root loads programs");
    assert!(copies.receive().expect("the interface is up").is_none());
    common::ip("link set pdkv0 down");
    opened.port.refresh(None).expect("the interface is there");
    assert!(copies.receive().is_err());
}

/// The kernel takes tags off before programs see the frame.
#[test]
fn copies_of_tagged_frames_are_as_on_the_wire() {
    const NAME: &str = "skb::copies_of_tagged_frames_are_as_on_the_wire";
    if !common::has_namespace(NAME) {
        return;
    }
    common::veth("pdkc0", "pdkc1", "");
    let (region, _) = memory();
    let opened = open(&whole("pdkc0"), &region, None).expect("root opens a veth");
    let peer = RawPeer::open("pdkc1");
    // VLAN 7 of either kind of tag, with 0x88b5 behind it and a seven at offset 20.
    let step = |code, k, (yes, no)| Instruction { code, yes, no, k };
    let filter = [
        step(0x28, 12, (0, 0)),
        step(0x15, 0x8100, (1, 0)),
        step(0x15, 0x88a8, (0, 7)),
        step(0x28, 14, (0, 0)),
        step(0x54, 0x0fff, (0, 0)),
        step(0x15, 7, (0, 4)),
        step(0x28, 16, (0, 0)),
        step(0x15, 0x88b5, (0, 2)),
        step(0x30, 20, (0, 0)),
        step(0x15, 7, (1, 0)),
        step(0x06, 0, (0, 0)),
        step(0x06, 262_144, (0, 0)),
    ];
    let places = CapturePoints { rx: true, tx: false, drops: false };
    let mut copies =
        opened.port.copies(&Program::load(&filter).unwrap(), 1000, places).expect("root loads programs");
    let frame = |tag: &[u8]| {
        let mut frame = [&[2; 12][..], tag, &[0x88, 0xb5]].concat();
        frame.resize(100, 7);
        frame
    };
    let tags = [[0x81, 0, 0, 7], [0x81, 0, 0, 8], [0x88, 0xa8, 0x60, 7], [0x88, 0xa8, 0x70, 8]];
    for tag in tags {
        peer.send(&frame(&tag));
    }
    peer.send(&frame(&[]));
    for tag in [tags[0], tags[2]] {
        let copy = copies.receive().expect("the interface is up").expect("a copy");
        assert_eq!((copy.length, copy.bytes), (100, &frame(&tag)[..]));
    }
    assert!(copies.receive().expect("the interface is up").is_none());
}
