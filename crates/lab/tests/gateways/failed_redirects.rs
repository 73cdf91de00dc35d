//! Packets that programs redirect and that do not leave, counted behind the programs.

use crate::fast_path::{ADDRESSES, MOMENT, Net, mac_of, text_of};
use crate::machines::until;
use crate::support::{FAST_MODES, root_or_skip};
use polder_testbed::traffic::packet::Talk;
use polder_testbed::traffic::raw::{Injector, Plan};
use rustix::process::{Pid, Signal, kill_process};
use std::time::Duration;

/// A packet that a program redirects counts as transmitted; its loss behind that is in the interface's own counters.
#[test]
fn seventeen_failed_redirects_are_counted_as_seventeen() {
    if !root_or_skip("seventeen_failed_redirects_are_counted_as_seventeen") {
        return;
    }
    FAST_MODES.into_iter().for_each(refuse_seventeen);
}

fn refuse_seventeen(mode: &str) {
    let net = Net::new(&text_of(mode, "", ""));
    let [a, b, _] = &net.stations;
    net.exchange();
    let beside = Net::new(&text_of(mode, "", ""));
    beside.exchange();
    let ([before, besides], sources) = ([net.failed().0, beside.failed().0], net.failed().1);
    let source = if mode == "native" { "tracepoint" } else { "interface" };
    assert_eq!(sources, [source; 3], "{mode}");
    // The station refuses what it is sent, and its link stays up.
    b.ip(&["link", "set", "eth0", "mtu", "100"]).unwrap();
    let carried = net.carried()[0];
    let mut ping = a.command("ping");
    drop(ping.args(["-c", "17", "-i", "0.01", "-W", "1", "-s", "800", "10.95.0.2"]).output().unwrap());
    assert!(net.carried()[0] >= carried + 17);
    until("they are counted", || net.failed().0 == before + 17);
    std::thread::sleep(MOMENT);
    assert_eq!(net.failed().0, before + 17, "no packet counts twice");
    if mode == "native" {
        refuse_several_together(&net);
        refuse_strangers(&net);
    }
    assert_eq!(beside.failed().0, besides, "interfaces of another namespace have the same numbers");
    beside.polder.assert_conserved();
    beside.polder.stop();
    net.polder.assert_conserved();
    net.polder.stop();
}

/// Frames that come so fast that a driver is given, and refuses, several of them together.
fn refuse_several_together(net: &Net) {
    let [a, b, _] = &net.stations;
    let [from, to] = [(a, ADDRESSES[0]), (b, ADDRESSES[1])].map(|(station, ip)| (mac_of(station), ip));
    let mut injector = Injector::open(a, "eth0", Talk::simple(from, to), 800).unwrap();
    let before = (net.failed().0, net.carried()[0]);
    let sent = injector.run(&Plan::steady(1e6, Duration::from_millis(10)), |_| Ok(())).unwrap();
    std::thread::sleep(MOMENT);
    let carried = net.carried()[0] - before.1;
    assert!(carried > 1000 && carried <= sent.packets, "{carried} of {sent:?}");
    until("they are counted", || net.failed().0 >= before.0 + carried);
    assert_eq!(net.failed().0, before.0 + carried, "each of them once");
}

/// Frames that another program redirects to an interface of the gateway's, and that came in by none of its ports.
fn refuse_strangers(net: &Net) {
    let [from, to] = [0, 1].map(|place| (mac_of(&net.stations[place]), ADDRESSES[place]));
    let refused = || {
        let script = "cat /sys/class/net/lan2/statistics/tx_dropped";
        let text = polder_testbed::command::run(net.gateway.command("sh").args(["-c", script])).unwrap();
        text.trim().parse::<u64>().unwrap()
    };
    let before = (net.failed().0, refused());
    let mut injector = Injector::open(&net.gateway, "lan2", Talk::simple(from, to), 800).unwrap();
    injector.run(&Plan::steady(1e5, Duration::from_millis(10)), |_| Ok(())).unwrap();
    std::thread::sleep(MOMENT);
    assert!(refused() >= before.1 + 17, "the station takes what is not refused");
    assert_eq!(net.failed().0, before.0, "they are not the gateway's");
}

/// Frames that became too long for their way out while the gateway could not see it are refused in front of the driver,
/// which is another tracepoint's.
#[test]
fn seventeen_frames_that_are_too_long_for_the_target_are_counted_as_seventeen() {
    if !root_or_skip("seventeen_frames_that_are_too_long_for_the_target_are_counted_as_seventeen") {
        return;
    }
    let net = Net::new(&text_of("native", "", ""));
    net.exchange();
    let before = net.failed().0;
    let pid = Pid::from_raw(i32::try_from(net.polder.id()).unwrap()).unwrap();
    kill_process(pid, Signal::STOP).unwrap();
    net.gateway.ip(&["link", "set", "lan2", "mtu", "300"]).unwrap();
    let mut ping = net.stations[0].command("ping");
    drop(ping.args(["-c", "17", "-l", "17", "-W", "1", "-s", "800", "10.95.0.2"]).output().unwrap());
    kill_process(pid, Signal::CONT).unwrap();
    until("they are counted", || net.failed().0 >= before + 17);
    assert_eq!(net.failed().0, before + 17, "no packet counts twice");
    net.polder.stop();
}
