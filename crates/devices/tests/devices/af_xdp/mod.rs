//! AF_XDP ports against the kernel: veth pairs in a network namespace of their own.

mod endpoints;
mod exits;
mod links;
mod losses;
mod offloads;
mod rights;
mod suspend;

use crate::common::{self, OtherEnd, RawPeer};
use polder_buffers::{Batch, Pool, Region};
use polder_datapath::port::{Armed, Budget, Turn};
use polder_devices::AnyQueue;
use polder_devices::af_xdp::{Hook, Mode, Opened, Options, Statistics, open};
use polder_devices::conformance::{self, Fixture, Limits, Wire};
use std::time::Duration;

const SLOTS: u32 = 8192;

/// Namespace with a name, apart from the thread's own.
struct Namespace(String);

impl Namespace {
    fn new(name: &str) -> Self {
        let name = format!("pdx-{}-{name}", std::process::id());
        common::ip(&format!("netns add {name}"));
        Self(name)
    }

    /// Runs `ip` there.
    fn ip(&self, arguments: &str) {
        common::ip(&format!("-n {} {arguments}", self.0));
    }

    /// True if an address answers one of many pings from there: a link that has just come up may be
    /// slow on a busy machine.
    fn pings(&self, address: &str) -> bool {
        self.ping(&["-w", "20", address])
    }

    /// True if a ping from there has no answer.
    fn is_silent(&self, address: &str) -> bool {
        !self.ping(&["-W", "0.2", address])
    }

    fn ping(&self, arguments: &[&str]) -> bool {
        let ping = ["netns", "exec", &self.0, "ping", "-c", "1"];
        let output = std::process::Command::new("ip").args(ping).args(arguments).output();
        let output = output.expect("ip is there");
        output.status.success()
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = std::process::Command::new("ip").args(["netns", "delete", &self.0]).output();
    }
}

/// A veth pair `left` – `right`, the right end in a namespace of its own, with addresses 10.8.0.1 and
/// 10.8.0.2.
fn neighbours(left: &str, right: &str) -> Namespace {
    let other = Namespace::new(right);
    common::ip(&format!("link add {left} type veth peer name {right} netns {}", other.0));
    common::ip(&format!("address add 10.8.0.1/24 dev {left}"));
    common::ip(&format!("link set {left} up"));
    other.ip(&format!("address add 10.8.0.2/24 dev {right}"));
    other.ip(&format!("link set {right} up"));
    other
}

fn memory() -> (Region, Pool) {
    common::memory(SLOTS)
}

fn options(interface: &str, mode: Mode) -> Options {
    Options { mode, receive_ring: 512, transmit_ring: 512, ..Options::whole(interface) }
}

/// A frame for a local experiment (EtherType 0x88b5) with a number in it.
fn frame(number: u32, length: usize) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xb5];
    frame.extend(number.to_be_bytes());
    frame.extend((frame.len()..length).map(|index| index.to_le_bytes()[0]));
    frame
}

/// Posts the first frames.
fn start(port: &mut Opened, pool: &mut Pool) {
    let mut batch = Batch::new();
    for queue in &mut port.queues {
        let turn = queue.rx.receive(&mut Budget::new(0), &mut batch, pool);
        assert_ne!(turn, Turn::Closed);
    }
}

/// Polls until `count` packets have come, for at most a second.
fn receive(port: &mut Opened, count: usize, pool: &mut Pool) -> Batch {
    let mut batch = Batch::new();
    for _ in 0..if count == 0 { 1 } else { 1000 } {
        for queue in &mut port.queues {
            let _ = queue.rx.receive(&mut Budget::new(64), &mut batch, pool);
        }
        if batch.len() >= count {
            break;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    batch
}

/// Receives and releases until nothing is left or the port is closed.
fn drain(port: &mut Opened, pool: &mut Pool) -> Turn {
    let mut last = Turn::OutOfBudget;
    for _ in 0..1000 {
        let mut batch = Batch::new();
        let mut turns = port.queues.iter_mut().map(|queue| {
            let turn = queue.rx.receive(&mut Budget::new(64), &mut batch, pool);
            if turn == Turn::Drained { (turn, queue.rx.arm()) } else { (turn, Armed::Raced) }
        });
        last = turns.find(|(turn, _)| *turn != Turn::Drained).map_or(Turn::Drained, |(turn, _)| turn);
        drop(turns);
        pool.release(&mut batch);
        if last == Turn::Closed {
            break;
        }
        std::thread::sleep(Duration::from_micros(100));
    }
    last
}

/// Polls until the raw socket has a frame, for at most a second.
fn await_frame(peer: &RawPeer) -> Option<Vec<u8>> {
    (0..1000).find_map(|_| {
        let frame = peer.receive();
        if frame.is_none() {
            std::thread::sleep(Duration::from_millis(1));
        }
        frame
    })
}

/// Every frame comes home, soon after its port was closed, and none as a stray.
fn all_home(region: &Region) {
    for _ in 0..2000 {
        if region.free_slots() == SLOTS {
            break;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!((region.free_slots(), region.late_frees()), (SLOTS, 0));
}

/// Packets go in by one port and out by the other in the same frames.
fn forwards_without_a_copy(name: &str, mode: Mode, hook: Hook) {
    if !common::has_namespace(name) {
        return;
    }
    common::veth("pdxa0", "pdxa1", "");
    common::veth("pdxb0", "pdxb1", "");
    let (region, mut pool) = memory();
    let mut left = open(&options("pdxa0", mode), &region).expect("root opens a veth");
    let mut right = open(&options("pdxb0", mode), &region).expect("root opens a veth");
    println!("{}", left.port.report);
    assert_eq!((left.port.report.hook, left.port.report.zero_copy), (Some(hook), Some(false)));
    start(&mut left, &mut pool);
    start(&mut right, &mut pool);
    let (sender, sink) = (RawPeer::open("pdxa1"), RawPeer::open("pdxb1"));

    for round in 0..40 {
        for number in 0..32 {
            assert!(sender.send(&frame(32 * round + number, 60 + 40 * number as usize)));
        }
        let mut batch = receive(&mut left, 32, &mut pool);
        assert_eq!(batch.len(), 32);
        let frames = batch.iter().map(|packet| packet.head().index()).collect::<Vec<_>>();
        assert_eq!(batch[0].headroom(), 256);
        right.queues[0].tx.transmit(&mut batch, &mut pool);
        assert!(batch.is_empty());
        assert!(frames.iter().all(|&index| index < SLOTS));
        for number in 0..32 {
            let expected = frame(32 * round + number, 60 + 40 * number as usize);
            assert_eq!(await_frame(&sink), Some(expected));
        }
        assert_eq!(right.queues[0].tx.reclaim(&mut pool), Turn::Drained);
        assert_eq!(right.queues[0].tx.held(), 0);
    }
    let counters = left.queues[0].rx.counters();
    assert_eq!((counters.received.get(), counters.drops.total()), (1280, 0));
    assert_eq!(right.queues[0].tx.counters().transmitted.get(), 1280);
    assert_eq!(left.port.statistics(), Statistics::default());
    drop((left, right, pool));
    all_home(&region);
}

#[test]
fn forwards_natively() {
    forwards_without_a_copy("af_xdp::forwards_natively", Mode::Auto, Hook::Native);
}

#[test]
fn forwards_generically() {
    forwards_without_a_copy("af_xdp::forwards_generically", Mode::Generic, Hook::Generic);
}

#[test]
fn arming_sees_what_came_in_between() {
    if !common::has_namespace("af_xdp::arming_sees_what_came_in_between") {
        return;
    }
    common::veth("pdxc0", "pdxc1", "");
    let (region, mut pool) = memory();
    let mut port = open(&options("pdxc0", Mode::Native), &region).expect("root opens a veth");
    start(&mut port, &mut pool);
    assert_eq!(port.queues[0].rx.arm(), Armed::Waiting);
    assert!(RawPeer::open("pdxc1").send(&frame(1, 60)));
    let event = port.queues[0].rx.event().expect("a socket");
    let mut look = [rustix::event::PollFd::new(&event, rustix::event::PollFlags::IN)];
    let second = rustix::event::Timespec { tv_sec: 1, tv_nsec: 0 };
    assert_eq!(rustix::event::poll(&mut look, Some(&second)), Ok(1), "the socket wakes the worker");
    assert_eq!(port.queues[0].rx.arm(), Armed::Raced);
    let mut batch = receive(&mut port, 1, &mut pool);
    pool.release(&mut batch);
    drop((port, pool));
    all_home(&region);
}

/// Veths of one MTU under the conformance suite.
struct Veths {
    mtu: u32,
    mode: Mode,
    count: u32,
}

impl Fixture for Veths {
    fn limits(&self) -> Limits {
        // A raw socket sends four bytes beyond the MTU in frames with a VLAN tag alone.
        let longest = self.mtu as usize + 14;
        common::limits(longest, longest)
    }

    fn open(&mut self, region: &Region) -> Result<(AnyQueue, Box<dyn Wire>), String> {
        self.count += 1;
        let (name, other) = (format!("pdxs{}", self.count), format!("pdxt{}", self.count));
        common::veth(&name, &other, &format!("mtu {}", self.mtu));
        let mut opened = open(&options(&name, self.mode), region).map_err(|error| error.to_string())?;
        let queue = opened.queues.pop().ok_or("no queue")?;
        // It keeps the port's program attached.
        Ok((queue, Box::new(OtherEnd { peer: RawPeer::open(&other), link: name, port: opened.port })))
    }
}

fn suite(name: &str, mtu: u32, mode: Mode) {
    if !common::has_namespace(name) {
        return;
    }
    let report = conformance::run(&mut Veths { mtu, mode, count: 0 });
    assert!(report.is_clean(), "{name}\n{report}");
    println!("{report}");
}

#[test]
fn a_native_port_passes_the_suite() {
    suite("af_xdp::a_native_port_passes_the_suite", 1500, Mode::Native);
}

#[test]
fn a_generic_port_passes_the_suite() {
    suite("af_xdp::a_generic_port_passes_the_suite", 1500, Mode::Generic);
}

#[test]
fn a_jumbo_port_passes_the_suite() {
    suite("af_xdp::a_jumbo_port_passes_the_suite", 9000, Mode::Native);
}
