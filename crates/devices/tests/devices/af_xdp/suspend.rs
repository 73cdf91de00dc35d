//! Suspension of interrupts during polls: of a veth's context, by an ordinary socket, because a veth does not
//! say which context an AF_XDP socket belongs to.

use crate::common::{self, RawPeer, ip, run};
use polder_datapath::wire::Checksum;
use polder_devices::af_xdp::Suspension;
use rustix::io::Errno;
use std::net::UdpSocket;
use std::os::fd::AsFd as _;
use std::time::Duration;

/// Longer than the test runs: what comes while interrupts are suspended comes by a poll alone.
const LONG: u64 = 600_000_000_000;
/// Longer than the kernel puts interrupts off by itself.
const PAST_TIMERS: Duration = Duration::from_millis(100);

/// Veth with a NAPI receiver at one end, a socket there, and a sender at the other.
struct Stand {
    socket: UdpSocket,
    sender: RawPeer,
    frame: Vec<u8>,
}

impl Stand {
    fn new() -> Self {
        common::enter_namespace();
        ip("link add pdsu0 type veth peer name pdsu1");
        // What is sent cut receives by NAPI where GRO is on.
        run("ethtool", "-K pdsu0 gro on");
        run("ethtool", "-K pdsu1 tso off gso off");
        ip("address add 10.9.9.1/24 dev pdsu0");
        ip("link set pdsu0 address 02:00:00:00:09:01 up");
        ip("link set pdsu1 up");
        common::wait_for_links(&["pdsu0", "pdsu1"]);
        let socket = UdpSocket::bind("10.9.9.1:7").expect("the address is there");
        socket.set_nonblocking(true).expect("a socket");
        let stand = Self { socket, sender: RawPeer::open("pdsu1"), frame: frame() };
        stand.send();
        assert!(stand.comes(), "by interrupts");
        stand
    }

    fn send(&self) {
        assert!(self.sender.send(&self.frame));
    }

    fn has(&self) -> bool {
        self.socket.recv(&mut [0; 64]).is_ok()
    }

    /// True if a packet comes.
    fn comes(&self) -> bool {
        (0..10_000).any(|_| {
            let has = self.has();
            if !has {
                std::thread::sleep(Duration::from_millis(1));
            }
            has
        })
    }
}

/// A UDP packet to the socket.
fn frame() -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 9, 1, 2, 0, 0, 0, 9, 2, 8, 0];
    frame.extend([0x45, 0, 0, 29, 0, 0, 0, 0, 64, 17, 0, 0, 10, 9, 9, 2, 10, 9, 9, 1]);
    let sum = Checksum::of(&frame[14..34]);
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    frame.extend([15, 160, 0, 7, 0, 9, 0, 0, 1]);
    frame.resize(60, 0);
    frame
}

fn can_run(name: &str) -> bool {
    common::is_root(name) && common::has(name, "ethtool")
}

#[test]
fn interrupts_are_suspended_while_packets_are_found_and_come_when_there_are_none() {
    let name =
        "af_xdp::suspend::interrupts_are_suspended_while_packets_are_found_and_come_when_there_are_none";
    if !can_run(name) {
        return;
    }
    let stand = Stand::new();
    let mut suspension = match Suspension::of(stand.socket.as_fd(), LONG) {
        Err(Errno::NODEV | Errno::OPNOTSUPP | Errno::NOENT | Errno::NOTTY) => {
            return common::skip(name, "needs Linux 6.13, for irq-suspend-timeout");
        }
        result => result.expect("root tells a context"),
    };
    stand.send();
    assert!(suspension.poll(), "it came by an interrupt or by the poll");
    assert!(stand.has());
    for _ in 0..3 {
        std::thread::sleep(PAST_TIMERS);
        stand.send();
        std::thread::sleep(PAST_TIMERS);
        assert!(!stand.has(), "nobody has asked for it");
        assert!(suspension.poll() && stand.has(), "the poll brings it");
    }
    assert!(!suspension.poll(), "nothing is there");
    std::thread::sleep(PAST_TIMERS);
    stand.send();
    assert!(stand.comes(), "interrupts are on again");
    // Who goes away leaves the context as it was.
    stand.send();
    assert!(suspension.poll() && stand.has());
    drop(suspension);
    for _ in 0..3 {
        stand.send();
        assert!(stand.comes(), "nobody suspends them");
        std::thread::sleep(PAST_TIMERS);
    }
}

#[test]
fn without_a_time_they_are_not_suspended() {
    let name = "af_xdp::suspend::without_a_time_they_are_not_suspended";
    if !can_run(name) {
        return;
    }
    let stand = Stand::new();
    let Ok(mut suspension) = Suspension::of(stand.socket.as_fd(), 0) else {
        return common::skip(name, "needs Linux 6.13, for irq-suspend-timeout");
    };
    assert_eq!(suspension.suspended_nanos(), Ok(0));
    stand.send();
    assert!(suspension.poll() && stand.has());
    std::thread::sleep(PAST_TIMERS);
    stand.send();
    assert!(stand.comes(), "without a poll");
}

#[test]
fn a_socket_that_knows_no_context_is_refused() {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("loopback");
    assert_eq!(Suspension::of(socket.as_fd(), LONG).err(), Some(Errno::NODEV));
}
