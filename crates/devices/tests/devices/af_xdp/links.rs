//! Interfaces that go and come back, that have several queues, that cannot be opened.

use super::{all_home, await_frame, drain, frame, memory, options, receive, start};
use crate::common::{self, RawPeer};
use polder_buffers::{Batch, Packet, Region, RegionOptions};
use polder_datapath::port::Turn;
use polder_devices::af_xdp::{
    BusyPoll, Level, Mode, Moderation, OnExit, OpenError, Options, inspect, open, release,
};
use std::time::Duration;

/// One of two ports on the same memory disappears; the other goes on, and it comes back.
#[test]
fn an_interface_goes_and_comes_back_under_its_name() {
    if !common::has_namespace("af_xdp::an_interface_goes_and_comes_back_under_its_name") {
        return;
    }
    common::veth("pdxj0", "pdxj1", "");
    common::veth("pdxk0", "pdxk1", "");
    let (region, mut pool) = memory();
    // The first port registers the memory, the second one shares it; it is the first that goes.
    let mut gone = open(&options("pdxj0", Mode::Auto), &region).expect("root opens a veth");
    let mut stays = open(&options("pdxk0", Mode::Auto), &region).expect("root opens a veth");
    start(&mut stays, &mut pool);
    for round in 0..3 {
        start(&mut gone, &mut pool);
        let (sender, sink) = (RawPeer::open("pdxj1"), RawPeer::open("pdxk1"));
        assert!(sender.send(&frame(round, 80)));
        let mut batch = receive(&mut gone, 1, &mut pool);
        stays.queues[0].tx.transmit(&mut batch, &mut pool);
        assert_eq!(await_frame(&sink), Some(frame(round, 80)), "round {round}");
        (0..30).for_each(|number| assert!(sender.send(&frame(number, 90))));

        common::ip("link delete pdxj0");
        assert_eq!(drain(&mut gone, &mut pool), Turn::Closed);
        assert!(gone.port.refresh(None).is_err());
        let mut batch = Batch::new();
        batch.push(Packet::copy_from(&frame(1, 60), &mut pool).expect("free frames")).expect("room");
        gone.queues[0].tx.transmit(&mut batch, &mut pool);
        assert_eq!(gone.queues[0].tx.reclaim(&mut pool), Turn::Closed);
        pool.release(&mut batch);

        let error = open(&options("pdxj0", Mode::Auto), &region).expect_err("it is gone");
        assert!(matches!(error, OpenError::NoInterface(_)), "{error}");
        common::veth("pdxj0", "pdxj1", "");
        gone = open(&options("pdxj0", Mode::Auto), &region).expect("it is back");
    }
    drop((gone, stays, pool));
    all_home(&region);
}

#[test]
fn all_queues_of_an_interface_receive_and_send() {
    if !common::has_namespace("af_xdp::all_queues_of_an_interface_receive_and_send") {
        return;
    }
    common::veth("pdxl0", "pdxl1", "numrxqueues 2 numtxqueues 2");
    let (region, mut pool) = memory();
    let mut port = open(&options("pdxl0", Mode::Native), &region).expect("root opens a veth");
    assert_eq!(port.queues.len(), 2, "{}", port.port.report);
    start(&mut port, &mut pool);
    let other = RawPeer::open("pdxl1");
    for number in 0..200_u16 {
        // UDP over IPv4: the hash of the ports chooses the queue.
        let mut frame = frame(0, 80);
        frame[12..24].copy_from_slice(&[8, 0, 0x45, 0, 0, 66, 0, 0, 0, 0, 64, 17]);
        frame[26..34].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
        frame[34..36].copy_from_slice(&number.to_be_bytes());
        assert!(other.send(&frame));
    }
    std::thread::sleep(Duration::from_millis(20));
    let mut came = 0;
    for _ in 0..10 {
        let mut batch = receive(&mut port, 0, &mut pool);
        came += batch.len();
        pool.release(&mut batch);
    }
    let by_queue = port.queues.iter().map(|queue| queue.rx.counters().received.get()).collect::<Vec<_>>();
    assert_eq!(came, 200);
    assert!(by_queue.iter().all(|&count| count > 20), "{by_queue:?}");
    for (number, queue) in (0..).zip(&mut port.queues) {
        let mut batch = Batch::new();
        batch.push(Packet::copy_from(&frame(number, 60), &mut pool).expect("free frames")).expect("room");
        queue.tx.transmit(&mut batch, &mut pool);
        assert_eq!(await_frame(&other), Some(frame(number, 60)));
        assert_eq!((queue.tx.reclaim(&mut pool), queue.tx.held()), (Turn::Drained, 0));
    }
    drop(port);

    let one = Options { queues: Some(1), ..options("pdxl0", Mode::Native) };
    let port = open(&one, &region).expect("one queue of two");
    assert_eq!((port.queues.len(), port.port.report.worst()), (1, Level::Warning));
    assert!(port.port.report.to_string().contains("ethtool -L pdxl0 combined 1"), "{}", port.port.report);
    drop((port, pool));
    let three = Options { queues: Some(3), ..one };
    let error = open(&three, &region).expect_err("there are two");
    assert!(error.to_string().contains("ethtool -L pdxl0 combined 3"), "{error}");
    all_home(&region);
}

/// More to receive than to send: the last queue receives and leaves what it is to send.
#[test]
fn a_queue_without_a_sending_side_receives() {
    if !common::has_namespace("af_xdp::a_queue_without_a_sending_side_receives") {
        return;
    }
    common::ip(
        "link add pdxm0 numrxqueues 2 numtxqueues 1 type veth peer name pdxm1 numrxqueues 1 numtxqueues 2",
    );
    common::ip("link set pdxm0 up");
    common::ip("link set pdxm1 up");
    common::wait_for_links(&["pdxm0", "pdxm1"]);
    let (region, mut pool) = memory();
    let mut port = open(&options("pdxm0", Mode::Native), &region).expect("root opens a veth");
    assert_eq!(port.queues.len(), 2);
    assert!(
        port.port.report.to_string().contains("2 receive queues, but 1 transmit queues"),
        "{}",
        port.port.report
    );
    start(&mut port, &mut pool);
    let mut batch = Batch::new();
    batch.push(Packet::copy_from(&frame(1, 60), &mut pool).expect("free frames")).expect("room");
    port.queues[1].tx.transmit(&mut batch, &mut pool);
    assert_eq!(batch.len(), 1);
    port.queues[0].tx.transmit(&mut batch, &mut pool);
    assert_eq!(batch.len(), 0);
    drop((port, pool));
    all_home(&region);
}

/// Every refusal names the interface and the remedy.
#[test]
fn refusals_say_what_to_do() {
    if !common::has_namespace("af_xdp::refusals_say_what_to_do") {
        return;
    }
    common::veth("pdxn0", "pdxn1", "");
    let ((region, _), (other, _)) = (memory(), memory());
    let refused = |options: &Options| open(options, &region).expect_err("refused").to_string();
    assert!(refused(&options("pdxnone", Mode::Auto)).contains("`ip link` lists"));
    assert!(refused(&options("lo", Mode::Auto)).contains("no Ethernet address"));
    assert!(refused(&options("pdxn0", Mode::ZeroCopy)).contains("the driver does not support it"));
    let odd = Options { receive_ring: 100, ..options("pdxn0", Mode::Auto) };
    assert!(refused(&odd).contains("power of two"));
    let large = Region::new(RegionOptions { slots: 64, slot_bytes: 8192 }).expect("memory for a test");
    let error = open(&options("pdxn0", Mode::Auto), &large).expect_err("slots above a page");
    assert!(error.to_string().contains("2048 or 4096"), "{error}");
    let used = open(&options("pdxn0", Mode::Auto), &other).expect("root opens a veth");
    assert!(refused(&options("pdxn0", Mode::Auto)).contains("in use by another polder"));
    drop(used);
    // Nothing is left of what failed.
    drop(open(&options("pdxn0", Mode::Auto), &region).expect("root opens a veth"));
    all_home(&region);
}

/// Pre-flight finds obstacles without touching the interface.
#[test]
fn pre_flight_names_what_will_break() {
    const NAME: &str = "af_xdp::pre_flight_names_what_will_break";
    if !common::has(NAME, "ethtool") || !common::has_namespace(NAME) {
        return;
    }
    common::veth("pdxo0", "pdxo1", "");
    let memory = RegionOptions { slots: 1024, slot_bytes: 2048 };
    let look = || inspect(&options("pdxo0", Mode::Auto), memory).expect("it is there");
    let found = |topic: &str| look().findings.into_iter().find(|finding| finding.topic == topic);
    assert_eq!(look().driver.as_deref(), Some("veth"));
    let mode = found("mode").expect("always there");
    assert!(mode.level == Level::Fine && mode.text.starts_with("native XDP, copy"), "{mode:?}");
    let asked = Options { mode: Mode::ZeroCopy, ..options("pdxo0", Mode::Auto) };
    assert_eq!(inspect(&asked, memory).expect("it is there").worst(), Level::Problem);
    let peer = found("peer").expect("the peer puts tags beside packets");
    assert!(peer.level == Level::Warning && peer.text.contains("`ethtool -K pdxo1 txvlan off`"), "{peer:?}");
    common::run("ethtool", "-K pdxo1 txvlan off");
    assert_eq!(found("peer"), None);
    assert_eq!(found("state"), None);
    common::ip("link set pdxo0 mtu 9000");
    let frames = found("frames").expect("always there");
    assert!(frames.text.contains("up to 6 slots a packet"), "{frames:?}");
    common::ip("link add pdxobr type bridge");
    common::ip("link set pdxo0 master pdxobr");
    let state = found("state").expect("it belongs to a bridge");
    assert!(state.level == Level::Warning && state.text.contains("nomaster"), "{state:?}");
    common::ip("link set pdxo0 nomaster");
    common::ip("link set pdxo0 down");
    let state = found("state").expect("it is down");
    assert!(state.level == Level::Problem && state.text.contains("ip link set dev pdxo0 up"), "{state:?}");
    assert_eq!(look().worst(), Level::Problem);
}

/// A port opened while its interface is down works when it is up.
#[test]
fn a_port_may_be_opened_before_its_interface_is_up() {
    if !common::has_namespace("af_xdp::a_port_may_be_opened_before_its_interface_is_up") {
        return;
    }
    common::veth("pdxp0", "pdxp1", "");
    common::ip("link set pdxp0 down");
    let (region, mut pool) = memory();
    let mut port = open(&options("pdxp0", Mode::Auto), &region).expect("root opens a veth");
    start(&mut port, &mut pool);
    common::ip("link set pdxp0 up");
    common::wait_for_links(&["pdxp0", "pdxp1"]);
    assert!(RawPeer::open("pdxp1").send(&frame(1, 60)));
    let mut batch = receive(&mut port, 1, &mut pool);
    assert_eq!(batch.len(), 1);
    pool.release(&mut batch);
    drop((port, pool));
    all_home(&region);
}

/// A port that has just been closed is no obstacle to the next one, whatever it left.
#[test]
fn an_interface_is_opened_again_at_once() {
    if !common::has_namespace("af_xdp::an_interface_is_opened_again_at_once") {
        return;
    }
    common::veth("pdxw0", "pdxw1", "");
    let (region, mut pool) = memory();
    let sender = RawPeer::open("pdxw1");
    for round in 0..12 {
        let on_exit = [OnExit::Kernel, OnExit::Drop, OnExit::Drop][round % 3];
        let mode = [Mode::Native, Mode::Generic][round / 3 % 2];
        let busy_poll = (round > 8).then_some(BusyPoll { budget: 64, microseconds: 20 });
        let asked = Options { on_exit, busy_poll, ..options("pdxw0", mode) };
        let mut port = open(&asked, &region).expect("root opens a veth");
        start(&mut port, &mut pool);
        assert!(sender.send(&frame(1, 60)));
        let mut batch = receive(&mut port, 1, &mut pool);
        assert_eq!(batch.len(), 1, "round {round}");
        pool.release(&mut batch);
    }
    assert!(release("pdxw0").expect("root removes a pin"));
    drop(pool);
    all_home(&region);
}

/// A veth whose peer has more queues to send than it has to receive: XDP in the driver would not see
/// all packets, so the driver refuses.
#[test]
fn a_peer_with_more_queues_is_explained() {
    if !common::has_namespace("af_xdp::a_peer_with_more_queues_is_explained") {
        return;
    }
    common::ip(
        "link add pdxy0 numrxqueues 1 numtxqueues 1 type veth peer name pdxy1 numrxqueues 1 numtxqueues 2",
    );
    common::ip("link set pdxy0 up");
    let (region, _) = memory();
    let error = open(&options("pdxy0", Mode::Native), &region).expect_err("too few queues").to_string();
    assert!(error.contains("too few queues"), "{error}");
    let port = open(&options("pdxy0", Mode::Auto), &region).expect("the generic hook has no such limit");
    assert!(port.port.report.mode().is_some_and(|mode| mode == "generic XDP, copy, multi-buffer"));
    assert!(port.port.report.to_string().contains("too few queues"), "{}", port.port.report);
    drop(port);
    all_home(&region);
}

/// The kernel's receive work is moderated while the port is open, and as before when it is closed.
#[test]
fn moderation_ends_with_the_port() {
    let name = "af_xdp::moderation_ends_with_the_port";
    if !common::has(name, "ethtool") || !common::has_namespace(name) {
        return;
    }
    common::veth("pdxm0", "pdxm1", "");
    // With GRO a veth keeps its contexts without a program, too.
    common::run("ethtool", "-K pdxm0 gro on");
    let (region, _) = memory();
    let plain = options("pdxm0", Mode::Native);
    let port = open(&plain, &region).expect("root opens a veth").port;
    let Ok(before) = port.moderation() else { return common::skip(name, "needs Linux 6.13") };
    drop(port);
    let moderation = Moderation { microseconds: 170, empty_polls: 17 };
    let options = Options { moderation: Some(moderation), ..plain.clone() };
    let mut opened = open(&options, &region).expect("root opens a veth");
    let during = opened.port.moderation().expect("it was answered before");
    assert_eq!(during, vec![moderation; before.len()]);
    assert_ne!(during, before);
    // Moderated packets come, too.
    let mut pool = region.pool();
    start(&mut opened, &mut pool);
    let sender = RawPeer::open("pdxm1");
    assert!((0..3).all(|number| sender.send(&frame(number, 60))));
    let mut batch = receive(&mut opened, 3, &mut pool);
    assert_eq!(batch.len(), 3);
    pool.release(&mut batch);
    drop(opened);
    let port = open(&plain, &region).expect("root opens a veth").port;
    assert_eq!(port.moderation().expect("it was answered before"), before);
}
