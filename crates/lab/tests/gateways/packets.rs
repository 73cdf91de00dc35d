//! Ports on interfaces whose packets have no Ethernet header: a TUN interface, whose other end is another host's.

use crate::hooks::{can_run, nft};
use crate::machines::{addresses, machine, ping, reaches, route, until};
use crate::router::tcp;
use crate::support::{Gateway, root_or_skip, wire};
use polder_testbed::topology::{Cable, CableEnd, Namespace, Topology};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Duration;

/// left – gateway – far: the gateway has Ethernet at its port `west` and a TUN interface `wan`; the far host has the TUN
/// interface `tun0`, and addresses behind it.
struct Net {
    left: Namespace,
    gateway: Namespace,
    far: Namespace,
    cable: Option<Cable>,
    topology: Topology,
}

const PORTS: &str = r#"
[port.west]
interface = "west"
role = "router"
[port.wan]
interface = "wan"
role = "router"
"#;

/// Addresses of the far host, on the link and behind it.
const FAR: [&str; 4] = ["10.87.2.2", "fd87:2::2", "203.0.113.9", "2001:db8:9::9"];
const LEFT: [&str; 2] = ["10.87.1.2", "fd87:1::2"];

impl Net {
    fn new(segments: bool) -> Self {
        let mut topology = Topology::new().unwrap();
        let mut new = |role| machine(&mut topology, role);
        let (left, gateway, far) = (new("left"), new("gw"), new("far"));
        wire(&topology, (&gateway, "west"), (&left, "eth0"), 1500);
        addresses(&gateway, "west", &["10.87.1.1/24", "fd87:1::1/64"]);
        addresses(&left, "eth0", &["10.87.1.2/24", "fd87:1::2/64"]);
        route(&left, "add default via 10.87.1.1");
        route(&left, "add default via fd87:1::1");
        addresses(&far, "lo", &["203.0.113.9/32", "2001:db8:9::9/128"]);
        let mut net = Self { left, gateway, far, cable: None, topology };
        net.connect((1400, segments), &["10.87.2.1/24", "fd87:2::1/64"]);
        net
    }

    /// Makes the TUN interfaces, the gateway's with those addresses, and routes.
    fn connect(&mut self, (mtu, segments): (u32, bool), own: &[&str]) {
        let ends = [(&self.gateway, "wan"), (&self.far, "tun0")];
        let ends = ends.map(|(namespace, interface)| CableEnd { namespace, interface });
        self.cable = Some(Cable::lay(ends, mtu, segments).unwrap());
        addresses(&self.gateway, "wan", own);
        addresses(&self.far, "tun0", &["10.87.2.2/24", "fd87:2::2/64"]);
        // A point-to-point link needs no next hop.
        for to in ["203.0.113.0/24", "2001:db8:9::/64"] {
            route(&self.gateway, &format!("add {to} dev wan"));
        }
        for to in ["default", "::/0"] {
            route(&self.far, &format!("add {to} dev tun0"));
        }
    }

    fn start(&self, text: &str) -> Gateway {
        Gateway::start(&self.topology, &self.gateway, text)
    }
}

#[test]
fn a_tun_interface_is_a_routers_port() {
    if !root_or_skip("a_tun_interface_is_a_routers_port") {
        return;
    }
    for segments in [false, true] {
        let net = Net::new(segments);
        let polder = net.start(PORTS);
        for to in FAR {
            reaches(&net.left, to);
            tcp(&net.left, &net.far, to.parse().unwrap());
        }
        for to in LEFT {
            reaches(&net.far, to);
            tcp(&net.far, &net.left, to.parse().unwrap());
        }
        // The gateway's own addresses are the kernel's.
        for to in ["10.87.1.1", "10.87.2.1", "fd87:1::1", "fd87:2::1"] {
            reaches(&net.left, to);
            reaches(&net.far, to);
        }
        assert!(polder.transmitted("wan") > 100, "{:#}", polder.port("wan"));
        polder.stop();
    }
}

/// Both ways are carried by the programs of the ports once a flow is known.
#[test]
fn flows_are_carried_from_and_to_a_tun_interface() {
    if !root_or_skip("flows_are_carried_from_and_to_a_tun_interface") {
        return;
    }
    for segments in [false, true] {
        let net = Net::new(segments);
        let polder = net.start(PORTS);
        for to in ["203.0.113.9", "2001:db8:9::9"] {
            reaches(&net.left, to);
            until(&format!("packets to {to} and back are carried"), || {
                let before = carried(&polder);
                tcp(&net.left, &net.far, to.parse().unwrap());
                let now = carried(&polder);
                now[0] > before[0] + 20 && now[1] > before[1] + 20
            });
        }
        polder.stop();
    }
}

/// Packets that the programs of the ports `west` and `wan` have carried.
fn carried(polder: &Gateway) -> [u64; 2] {
    let shown = polder.show("flows");
    let rows = shown["flows"]["ports"].as_array().unwrap();
    ["west", "wan"].map(|port| {
        let row = rows.iter().find(|row| row["port"] == port).unwrap();
        row["received"].as_u64().unwrap()
    })
}

/// A packet that does not fit is answered by the gateway, in both directions.
#[test]
fn senders_hear_of_the_mtu_of_a_tun_interface() {
    if !root_or_skip("senders_hear_of_the_mtu_of_a_tun_interface") {
        return;
    }
    let net = Net::new(false);
    let polder = net.start(PORTS);
    for to in ["203.0.113.9", "2001:db8:9::9"] {
        reaches(&net.left, to);
        let long = ["-s", "1400", "-M", "do"];
        until("the sender is told", || ping(&net.left, to, &long).contains("1400"));
        reaches(&net.left, to);
    }
    // The MTU is followed.
    net.gateway.ip(&["link", "set", "wan", "mtu", "1300"]).unwrap();
    until("the new MTU is told", || {
        ping(&net.left, "10.87.2.2", &["-s", "1300", "-M", "do"]).contains("mtu = 1300")
    });
    polder.stop();
}

/// The far end goes away and comes back, as a PPP session does: with another index, another address and another MTU.
#[test]
fn a_tun_interface_comes_back_with_another_address_and_mtu() {
    if !root_or_skip("a_tun_interface_comes_back_with_another_address_and_mtu") {
        return;
    }
    let mut net = Net::new(false);
    let polder = net.start(PORTS);
    reaches(&net.left, "203.0.113.9");
    net.gateway.ip(&["link", "set", "wan", "down"]).unwrap();
    until("the port is down", || polder.port("wan")["state"] == "down");
    net.gateway.ip(&["link", "set", "wan", "up"]).unwrap();
    route(&net.gateway, "add 203.0.113.0/24 dev wan");
    reaches(&net.left, "203.0.113.9");
    drop(net.cable.take());
    until("the port is gone", || polder.port("wan")["state"] == "waiting");
    net.connect((1280, false), &["10.87.3.1/32", "fd87:3::1/128"]);
    for to in ["203.0.113.9", "2001:db8:9::9"] {
        reaches(&net.left, to);
    }
    assert_eq!(polder.port("wan")["mtu"], 1280);
    polder.stop();
}

/// Multicast stays with the kernel, as packets for the gateway do.
#[test]
fn what_is_for_the_host_stays_with_the_kernel() {
    if !root_or_skip("what_is_for_the_host_stays_with_the_kernel") {
        return;
    }
    let net = Net::new(false);
    let polder = net.start(PORTS);
    reaches(&net.left, "203.0.113.9");
    let before = polder.port("wan")["received"].as_u64().unwrap();
    let heard = |group: &str| {
        let group = group.parse().unwrap();
        net.gateway.inside(|| {
            let socket = UdpSocket::bind(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 7009)).unwrap();
            socket.join_multicast_v4(&group, &Ipv4Addr::new(10, 87, 2, 1)).unwrap();
            socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
            socket
        })
    };
    let socket = heard("239.1.2.3").unwrap();
    route(&net.far, "add 239.0.0.0/8 dev tun0");
    let sender = net.far.inside(|| UdpSocket::bind("10.87.2.2:0").unwrap()).unwrap();
    sender.send_to(b"to a group", "239.1.2.3:7009").unwrap();
    let mut room = [0; 64];
    assert_eq!(socket.recv(&mut room).unwrap(), 10);
    assert_eq!(polder.port("wan")["received"], before, "Polder takes none of it");
    polder.stop();
}

/// near – far by a cable, and a host behind each: the cable carries a tunnel.
fn tunnelled(kind: &str, v6: bool) {
    let mut topology = Topology::new().unwrap();
    let mut new = |role| machine(&mut topology, role);
    let (left, near, far, right) = (new("left"), new("near"), new("far"), new("right"));
    wire(&topology, (&left, "eth0"), (&near, "lan"), 1500);
    wire(&topology, (&far, "lan"), (&right, "eth0"), 1500);
    let ends = [(&near, "wg0"), (&far, "wg0")];
    let ends = ends.map(|(namespace, interface)| CableEnd { namespace, interface });
    let _cable = Cable::lay(ends, 1420, false).unwrap();
    addresses(&near, "wg0", &["10.88.0.1/24", "fd88::1/64"]);
    addresses(&far, "wg0", &["10.88.0.2/24", "fd88::2/64"]);
    addresses(&left, "eth0", &["10.88.1.1/24", "fd88:1::1/64"]);
    addresses(&right, "eth0", &["10.88.1.2/24", "fd88:1::2/64"]);
    let inner = ["10.88.0.1", "fd88::1"][usize::from(v6)];
    let outer = ["10.88.0.2", "fd88::2"][usize::from(v6)];
    let [first, second] = [(&near, inner, outer), (&far, outer, inner)].map(|(space, local, remote)| {
        let text = format!(
            "[port.lan]\ninterface = \"lan\"\n[port.wg0]\ninterface = \"wg0\"\nrole = \"underlay\"\n\
             [tunnel.site]\n{kind}\nlocal = \"{local}\"\nremote = \"{remote}\"\nport = \"wg0\"\n\
             [bridge.br0]\nmembers = [\"lan\", \"site\"]\n"
        );
        Gateway::start(&topology, space, &text)
    });
    for to in ["10.88.1.2", "fd88:1::2"] {
        reaches(&left, to);
        tcp(&left, &right, to.parse().unwrap());
        tcp(&right, &left, to.replace("::2", "::1").replace(".1.2", ".1.1").parse().unwrap());
        let long = ping(&left, to, &["-s", "1300"]);
        assert!(long.contains(" 0% packet loss"), "{kind}: {long}");
    }
    // The gateways reach each other beside the tunnel.
    reaches(&near, outer);
    for polder in [&first, &second] {
        assert!(polder.transmitted("wg0") > 100, "{kind}: {:#}", polder.port("wg0"));
    }
    first.stop();
    second.stop();
}

#[test]
fn frames_are_tunnelled_over_a_tun_interface() {
    if !root_or_skip("frames_are_tunnelled_over_a_tun_interface") {
        return;
    }
    for v6 in [false, true] {
        for kind in ["kind = \"gretap\"", "kind = \"gretap\"\nkey = 7", "kind = \"vxlan\"\nvni = 42"] {
            tunnelled(kind, v6);
        }
    }
}

/// A bridge needs Ethernet, and so does AF_XDP; both say what can be done.
#[test]
fn a_bridge_refuses_a_tun_interface() {
    if !root_or_skip("a_bridge_refuses_a_tun_interface") {
        return;
    }
    let net = Net::new(false);
    let check = |keys: &str| {
        let file = net.topology.directory().join("check.toml");
        let text = format!("version = 1\n[port.wan]\ninterface = \"wan\"\n{keys}\n");
        std::fs::write(&file, text).unwrap();
        let mut command = net.gateway.command(crate::support::polder());
        let output = command.arg("check").arg(&file).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        // Lines are broken.
        said.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let said = check("[bridge.br0]\nmembers = [\"wan\"]");
    assert!(said.contains("no port of a bridge"), "{said}");
    let said = check("role = \"router\"\nmode = \"native\"");
    assert!(said.contains("only mode \"skb\" takes these"), "{said}");
    let said = check("role = \"router\"");
    assert!(said.contains("chosen by `mode = \"auto\"`: its packets have no Ethernet header"), "{said}");
}

/// The kernel decides: its firewall and NAT admit connections from and to a TUN interface, which the ports carry.
#[test]
fn masqueraded_connections_by_a_tun_interface_are_carried() {
    let test = "masqueraded_connections_by_a_tun_interface_are_carried";
    if !root_or_skip(test) || !can_run(test, "nft") {
        return;
    }
    for segments in [false, true] {
        let net = Net::new(segments);
        for (key, value) in [("ipv4/ip_forward", "1"), ("ipv6/conf/all/forwarding", "1")] {
            net.gateway.inside(|| std::fs::write(format!("/proc/sys/net/{key}"), value).unwrap()).unwrap();
        }
        nft(&net.gateway, RULES);
        let polder = net.start(&PORTS.replace("role = \"router\"", "role = \"router\"\ndecide = \"kernel\""));
        for (to, own) in [("203.0.113.9", "10.87.2.1"), ("2001:db8:9::9", "fd87:2::1")] {
            let bind = |at: &str| UdpSocket::bind(SocketAddr::new(at.parse().unwrap(), 0)).unwrap();
            let server = net.far.inside(|| bind(to)).unwrap();
            let any = if to.contains(':') { "::" } else { "0.0.0.0" };
            let client = net.left.inside(|| bind(any)).unwrap();
            for socket in [&server, &client] {
                socket.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
            }
            client.connect(server.local_addr().unwrap()).unwrap();
            let before = passed(&polder);
            // The kernel calls a flow assured that is answered for two seconds.
            until(&format!("the connection to {to} is carried"), || {
                exchange(&client, &server, own);
                passed(&polder) > before + 1
            });
            let before = passed(&polder);
            (0..100).for_each(|_| exchange(&client, &server, own));
            let now = passed(&polder);
            // Both directions; the kernel may have some after a change.
            assert!(now > before + 150, "{} of 200 packets were carried", now - before);
            tcp(&net.left, &net.far, to.parse().unwrap());
        }
        nft(&net.gateway, "insert rule inet fw forward ip daddr 203.0.113.9 drop\n");
        assert!(!ping(&net.left, "203.0.113.9", &[]).contains(" 0% packet loss"));
        polder.stop();
    }
}

/// Packets of connections that the ports have carried.
fn passed(polder: &Gateway) -> u64 {
    let shown = polder.show("connections");
    let rows = shown["connections"]["connections"].as_array().unwrap().clone();
    rows.iter().filter_map(|row| row["packets"].as_u64()).sum()
}

/// One packet and its answer; the server sees it come from the gateway.
fn exchange(client: &UdpSocket, server: &UdpSocket, own: &str) {
    let mut room = [0; 64];
    client.send(b"question").unwrap();
    let Ok((_, from)) = server.recv_from(&mut room) else { return };
    assert_eq!(from.ip(), own.parse::<std::net::IpAddr>().unwrap());
    server.send_to(b"answer", from).unwrap();
    let _ = client.recv(&mut room);
}

const RULES: &str = "
table inet fw {
    chain forward {
        type filter hook forward priority 0; policy drop;
        ct state established,related accept
        iifname west oifname wan accept
    }
    chain postrouting {
        type nat hook postrouting priority 100;
        oifname wan masquerade
    }
}
";
