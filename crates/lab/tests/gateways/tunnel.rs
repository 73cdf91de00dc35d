//! gretap: each option between two gateways, seen on the wire.

use crate::support::{Gateway, address, assert_reaches, root_or_skip, stream, wire};
use polder_testbed::clock;
use polder_testbed::command::Running;
use polder_testbed::topology::{Namespace, Topology};
use polder_testbed::traffic::sockets::tcp_goodput;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

pub(crate) const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 60, 0, 1);
pub(crate) const SERVER: Ipv4Addr = Ipv4Addr::new(10, 60, 0, 2);
pub(crate) const NEAR: Ipv4Addr = Ipv4Addr::new(10, 61, 0, 1);
pub(crate) const FAR: Ipv4Addr = Ipv4Addr::new(10, 61, 0, 2);

/// client – gateway – air – gateway – server; the air is a kernel bridge on which one can listen.
pub(crate) struct Net {
    pub(crate) client: Namespace,
    pub(crate) near: Namespace,
    pub(crate) air: Namespace,
    pub(crate) far: Namespace,
    pub(crate) server: Namespace,
    pub(crate) topology: Topology,
}

impl Net {
    pub(crate) fn new(radio_mtu: u32) -> Self {
        let mut topology = Topology::new().unwrap();
        let mut namespace = |role| topology.namespace(role).unwrap();
        let (client, near, air, far, server) =
            (namespace("cli"), namespace("near"), namespace("air"), namespace("far"), namespace("srv"));
        wire(&topology, (&client, "eth0"), (&near, "eth0"), 1500);
        wire(&topology, (&near, "radio0"), (&air, "near"), radio_mtu);
        wire(&topology, (&air, "far"), (&far, "radio0"), radio_mtu);
        wire(&topology, (&far, "eth0"), (&server, "eth0"), 1500);
        air.ip(&["link", "add", "br0", "mtu", &radio_mtu.to_string(), "type", "bridge"]).unwrap();
        for link in ["near", "far"] {
            air.ip(&["link", "set", link, "master", "br0"]).unwrap();
        }
        air.ip(&["link", "set", "br0", "up"]).unwrap();
        address(&client, "eth0", CLIENT, 24);
        address(&server, "eth0", SERVER, 24);
        address(&near, "radio0", NEAR, 24);
        address(&far, "radio0", FAR, 24);
        Self { client, near, air, far, server, topology }
    }

    /// Both gateways, with `options` for both ends of the tunnel.
    pub(crate) fn gateways(&self, options: &str) -> [Gateway; 2] {
        let gateways = [
            Gateway::start(&self.topology, &self.near, &configuration(NEAR, FAR, options)),
            Gateway::start(&self.topology, &self.far, &configuration(FAR, NEAR, options)),
        ];
        assert_reaches(&self.client, SERVER);
        gateways
    }

    /// Listens on the air for a line that `filter` matches, until `until` says that it was printed.
    pub(crate) fn listen(&self, filter: &str) -> Running {
        let mut tcpdump = self.air.command("tcpdump");
        tcpdump.args(["-i", "far", "-n", "-l", "-vv", "-c", "200"]).args(filter.split_whitespace());
        let mut running = Running::start("tcpdump", &mut tcpdump).unwrap();
        let end = clock::now() + Duration::from_secs(5);
        while !running.said().contains("listening on") {
            running.check().unwrap();
            assert!(clock::now() < end, "{}", running.said());
            std::thread::sleep(Duration::from_millis(10));
        }
        running
    }
}

pub(crate) fn configuration(local: Ipv4Addr, remote: Ipv4Addr, options: &str) -> String {
    format!(
        r#"
[port.eth0]
interface = "eth0"
[port.radio0]
interface = "radio0"
role = "underlay"
[tunnel.peer]
kind = "gretap"
local = "{local}"
remote = "{remote}"
port = "radio0"
{options}
[bridge.lan]
members = ["eth0", "peer"]
"#
    )
}

/// Output after `text`; fails if `text` was not printed.
pub(crate) fn heard(listener: &mut Running, text: &str) -> String {
    let end = clock::now() + Duration::from_secs(5);
    while !listener.said().contains(text) {
        assert!(clock::now() < end, "no {text:?} on the air: {}", listener.said());
        std::thread::sleep(Duration::from_millis(20));
    }
    listener.said()
}

#[test]
fn each_option_is_on_the_wire_and_carries_traffic() {
    if !root_or_skip("each_option_is_on_the_wire_and_carries_traffic") {
        return;
    }
    let net = Net::new(1600);
    // Option, and what tcpdump says of a packet that has it.
    let cases = [
        ("", "GREv0, Flags [none]"),
        ("key = 4711", "key=0x1267"),
        ("checksum = true", "Flags [checksum present]"),
        ("sequence = true", "seq 3"),
        (
            "key = 1\nchecksum = true\nsequence = true",
            "Flags [checksum present, key present, sequence# present]",
        ),
        ("ttl = 9", "ttl 9"),
        ("ttl = \"inherit\"", "ttl 64"),
        ("dscp = 46", "tos 0xb8"),
        ("dont_fragment = true", "flags [DF]"),
        ("dont_fragment = false", "flags [none]"),
    ];
    for (options, sign) in cases {
        let mut listener = net.listen("ip proto 47");
        let gateways = net.gateways(options);
        let arrivals = stream(&net.client, &net.server, SERVER, 1000.0, Duration::from_millis(200));
        assert_eq!((arrivals.duplicated, arrivals.reordered), (0, 0), "{options}: {arrivals:?}");
        assert!(arrivals.loss_ratio() < 0.05, "{options}: {arrivals:?}");
        heard(&mut listener, sign);
        gateways.into_iter().for_each(Gateway::stop);
    }
}

#[test]
fn a_tunnel_whose_ends_disagree_hears_nothing() {
    if !root_or_skip("a_tunnel_whose_ends_disagree_hears_nothing") {
        return;
    }
    let net = Net::new(1600);
    let near = Gateway::start(&net.topology, &net.near, &configuration(NEAR, FAR, "key = 1"));
    let far = Gateway::start(&net.topology, &net.far, &configuration(FAR, NEAR, "key = 2"));
    crate::support::assert_silent(&net.client, SERVER);
    // Packets with another key are the kernel's.
    assert_eq!((far.drops("no-tunnel"), far.all("tunnels", "received")), (0, vec![0]));
    near.stop();
    far.stop();
}

#[test]
fn tcp_runs_both_ways_through_a_tunnel() {
    if !root_or_skip("tcp_runs_both_ways_through_a_tunnel") {
        return;
    }
    let net = Net::new(1600);
    let gateways = net.gateways("");
    let moment = Duration::from_millis(300);
    let forth =
        tcp_goodput(&net.client, &net.server, SocketAddrV4::new(SERVER, 7007), moment, moment).unwrap();
    let back =
        tcp_goodput(&net.server, &net.client, SocketAddrV4::new(CLIENT, 7007), moment, moment).unwrap();
    assert!(forth > 1e7 && back > 1e7, "{forth} {back}");
    gateways.into_iter().for_each(Gateway::stop);
}

#[test]
fn the_underlay_port_keeps_its_kernel() {
    if !root_or_skip("the_underlay_port_keeps_its_kernel") {
        return;
    }
    let net = Net::new(1600);
    let gateways = net.gateways("");
    // The gateways' own stacks talk over the same wire as the tunnel.
    assert_reaches(&net.near, FAR);
    assert_reaches(&net.far, NEAR);
    gateways.into_iter().for_each(Gateway::stop);
}

#[test]
fn the_next_hop_follows_the_kernels_route_to_the_remote() {
    if !root_or_skip("the_next_hop_follows_the_kernels_route_to_the_remote") {
        return;
    }
    let net = Net::new(1600);
    // A router stands between the ends.
    let (remote, prefix) = (Ipv4Addr::new(10, 62, 0, 2), "10.62.0.0/24");
    let router = |last| Ipv4Addr::new(10, 61, 0, last);
    net.air.ip(&["link", "set", "far", "nomaster"]).unwrap();
    net.air.inside(|| std::fs::write("/proc/sys/net/ipv4/ip_forward", "1")).unwrap().unwrap();
    for last in [253, 254] {
        address(&net.air, "br0", router(last), 24);
    }
    address(&net.air, "far", Ipv4Addr::new(10, 62, 0, 254), 24);
    net.far.ip(&["address", "flush", "dev", "radio0"]).unwrap();
    address(&net.far, "radio0", remote, 24);
    net.far.ip(&["route", "add", "default", "via", "10.62.0.254"]).unwrap();
    let by = |last| net.near.ip(&["route", "replace", prefix, "via", &router(last).to_string()]).unwrap();
    by(254);
    let near = Gateway::start(&net.topology, &net.near, &configuration(NEAR, remote, ""));
    let far = Gateway::start(&net.topology, &net.far, &configuration(remote, NEAR, ""));
    assert_reaches(&net.client, SERVER);
    let next_hop = || near.show("tunnels")["tunnels"][0]["next_hop"].clone();
    assert_eq!(next_hop(), "10.61.0.254");
    by(253);
    let end = clock::now() + Duration::from_secs(2);
    while next_hop() != "10.61.0.253" {
        assert!(clock::now() < end, "the next hop is {}", next_hop());
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_reaches(&net.client, SERVER);
    near.stop();
    far.stop();
}
