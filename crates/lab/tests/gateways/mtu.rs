//! The edge of the MTU: what fits passes, what does not is answered or cut, TCP never notices.

use crate::support::{Gateway, root_or_skip, soon};
use crate::tunnel::{FAR, NEAR, Net, SERVER, heard};
use polder_datapath::wire::Checksum;
use polder_testbed::clock;
use polder_testbed::command;
use polder_testbed::topology::Namespace;
use polder_testbed::traffic::sockets::tcp_goodput;
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, ipproto::ICMP, sendto, socket_with};
use std::net::SocketAddrV4;
use std::process::Command;
use std::time::Duration;

/// `ping` once with `data` bytes of data and DF.
fn ping(from: &Namespace, data: u16, df: bool) -> (bool, String) {
    let mut command: Command = from.command("ping");
    command.args(["-c", "1", "-W", "3", "-s", &data.to_string(), "-M", if df { "do" } else { "want" }]);
    let output = command.arg(SERVER.to_string()).output().unwrap();
    (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Radio MTU 1500, and 38 bytes of outer headers: 1462 bytes fit, which are 1434 of ping data.
const FITS: u16 = 1434;

#[test]
fn one_byte_too_many_is_answered_with_the_mtu() {
    if !root_or_skip("one_byte_too_many_is_answered_with_the_mtu") {
        return;
    }
    let net = Net::new(1500);
    let gateways = net.gateways("");
    let (passed, said) = ping(&net.client, FITS, true);
    assert!(passed, "{said}");
    let (passed, said) = ping(&net.client, FITS + 1, true);
    assert!(!passed && said.contains("mtu = 1462"), "{said}");
    // The sender's kernel believes it and remembers.
    let route = net.client.ip(&["route", "get", &SERVER.to_string()]).unwrap();
    assert!(route.contains("mtu 1462"), "{route}");
    // And cuts by itself from now on. The answer forbids nobody to cut it, so the tunnel does.
    let (passed, said) = ping(&net.client, 1472, false);
    assert!(passed, "{said}");
    gateways.into_iter().for_each(Gateway::stop);
}

#[test]
fn what_may_not_be_cut_and_has_nobody_to_tell_is_dropped_with_its_reason() {
    if !root_or_skip("what_may_not_be_cut_and_has_nobody_to_tell_is_dropped_with_its_reason") {
        return;
    }
    let net = Net::new(1500);
    let gateways = net.gateways("dont_fragment = true");
    // The request is small enough in pieces; the answer is not, and may be cut by routers alone.
    let (passed, _) = ping(&net.client, 1472, true);
    assert!(!passed);
    let (passed, _) = ping(&net.client, 1472, false);
    assert!(!passed);
    assert!(gateways[1].drops("tunnel-too-big") > 0, "{:#}", gateways[1].show("drops"));
    gateways.into_iter().for_each(Gateway::stop);
}

#[test]
fn outer_packets_are_cut_and_put_together_when_they_may() {
    if !root_or_skip("outer_packets_are_cut_and_put_together_when_they_may") {
        return;
    }
    let net = Net::new(1500);
    let gateways = net.gateways("dont_fragment = false\nmtu = 1500");
    let mut listener = net.listen("ip[6:2]&0x1fff!=0");
    for data in [FITS, FITS + 1, 1472] {
        let (passed, said) = ping(&net.client, data, true);
        assert!(passed, "{data}: {said}");
    }
    heard(&mut listener, "proto GRE (47)");
    assert!(gateways[0].term("split") >= 2);
    assert!(gateways[1].term("merged") >= 2);
    gateways.into_iter().for_each(Gateway::stop);
}

#[test]
fn tcp_learns_its_segment_size() {
    if !root_or_skip("tcp_learns_its_segment_size") {
        return;
    }
    let net = Net::new(1500);
    // 1462 less 40 bytes of headers, by default; as told; left alone and found by path MTU discovery.
    for (options, size) in
        [("", "mss 1422"), ("tcp_mss = 1200", "mss 1200"), ("tcp_mss = \"off\"", "mss 1460")]
    {
        let gateways = net.gateways(options);
        let mut listener = net.listen("ip proto 47");
        let to = SocketAddrV4::new(SERVER, 7007);
        let moment = Duration::from_millis(200);
        assert!(tcp_goodput(&net.client, &net.server, to, moment, moment).unwrap() > 1e6, "{options}");
        heard(&mut listener, size);
        gateways.into_iter().for_each(Gateway::stop);
        command::run(net.client.command("ip").args(["route", "flush", "cache"])).unwrap();
    }
}

/// Pings with DF until the answer is that this much fits.
fn told(net: &Net, mtu: u16) {
    let end = clock::now() + soon();
    loop {
        let (_, said) = ping(&net.client, FITS, true);
        if said.contains(&format!("mtu = {mtu}")) {
            return;
        }
        assert!(clock::now() < end, "{mtu}: {said}");
        // What the client's kernel remembers would be its own answer.
        net.client.ip(&["route", "flush", "cache"]).unwrap();
    }
}

/// An ICMP message from the far gateway: a packet of the tunnel was too big for what lies behind.
fn complain(net: &Net, mtu: u16) {
    let mut message = vec![3, 4, 0, 0, 0, 0];
    message.extend(mtu.to_be_bytes());
    message.extend([0x45, 0, 0x05, 0xdc, 0, 0, 0x40, 0, 64, 47, 0, 0]);
    message.extend([NEAR.octets(), FAR.octets()].concat());
    message.extend([0, 0, 0x65, 0x58, 0, 0, 0, 0]);
    let checksum = Checksum::of(&message);
    message[2..4].copy_from_slice(&checksum.to_be_bytes());
    let send = || {
        let socket =
            socket_with(AddressFamily::INET, SocketType::RAW, SocketFlags::CLOEXEC, Some(ICMP)).unwrap();
        sendto(&socket, &message, SendFlags::empty(), &SocketAddrV4::new(NEAR, 0)).unwrap();
    };
    net.far.inside(send).unwrap();
}

#[test]
fn a_narrower_path_is_learnt_from_routes_and_from_routers() {
    if !root_or_skip("a_narrower_path_is_learnt_from_routes_and_from_routers") {
        return;
    }
    let net = Net::new(1500);
    let gateways = net.gateways("dont_fragment = true");
    let (passed, said) = ping(&net.client, FITS, true);
    assert!(passed, "{said}");
    complain(&net, 1300);
    told(&net, 1262);
    let peer = format!("{FAR}/32");
    net.near.ip(&["route", "add", &peer, "dev", "radio0", "mtu", "1400"]).unwrap();
    told(&net, 1362);
    net.near.ip(&["route", "del", &peer]).unwrap();
    net.near.ip(&["route", "flush", "cache"]).unwrap();
    // The interface itself, while it is open.
    net.near.ip(&["link", "set", "dev", "radio0", "mtu", "1350"]).unwrap();
    told(&net, 1312);
    net.near.ip(&["link", "set", "dev", "radio0", "mtu", "1500"]).unwrap();
    let end = clock::now() + soon();
    while !ping(&net.client, FITS, true).0 {
        assert!(clock::now() < end, "the path is as wide as before");
        net.client.ip(&["route", "flush", "cache"]).unwrap();
    }
    gateways.into_iter().for_each(Gateway::stop);
}
