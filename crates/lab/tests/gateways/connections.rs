//! A router's ports where the kernel decides: its firewall and NAT admit connections, the ports carry them.

use crate::hooks::{can_run, nft, refused};
use crate::machines::{PATIENCE, until};
use crate::router::Net;
use crate::support::{Gateway, root_or_skip};
use polder_devices::skb::connections::HEARTBEAT;
use polder_testbed::clock;
use polder_testbed::topology::Namespace;
use rustix::process::Signal;
use serde_json::Value;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

const PORTS: &str = r#"
[port.west]
interface = "west"
role = "router"
decide = "kernel"
[port.east]
interface = "east"
role = "router"
decide = "kernel"
"#;

/// A home router's rules: what the left network begins passes, masqueraded, and everything else is dropped.
const RULES: &str = "
table inet fw {
    chain forward {
        type filter hook forward priority 0; policy drop;
        ct state established,related accept
        iifname west oifname east accept
    }
    chain postrouting {
        type nat hook postrouting priority 100;
        oifname east masquerade
    }
}
";

pub(crate) const SERVER: Ipv4Addr = Ipv4Addr::new(10, 83, 2, 2);

/// A masquerading router between two stations, whose kernel decides.
pub(crate) struct Masquerade {
    pub(crate) net: Net,
    pub(crate) polder: Gateway,
}

impl Masquerade {
    pub(crate) fn new() -> Self {
        Self::with(PORTS)
    }

    fn with(tables: &str) -> Self {
        let net = Net::new(1500);
        net.gateway.inside(|| std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").unwrap()).unwrap();
        nft(&net.gateway, RULES);
        let polder = Gateway::start(&net.topology, &net.gateway, tables);
        Self { net, polder }
    }

    pub(crate) fn connections(&self) -> Vec<Value> {
        let shown = self.polder.show("connections");
        let shown = &shown["connections"];
        assert_eq!(shown["obstacle"], Value::Null, "{shown}");
        shown["connections"].as_array().unwrap().clone()
    }

    /// Packets carried of connections of that protocol.
    pub(crate) fn carried(&self, protocol: &str) -> u64 {
        let rows = self.connections();
        let rows = rows.iter().filter(|row| row["protocol"] == protocol);
        rows.map(|row| row["packets"].as_u64().unwrap()).sum()
    }

    /// Exchanges packets until more of them are carried.
    pub(crate) fn until_carried(&self, udp: &Udp) {
        let (before, end) = (self.carried("udp"), clock::now() + PATIENCE);
        while self.carried("udp") == before {
            assert!(clock::now() < end, "it is not carried: {:#}", self.polder.show("connections"));
            udp.exchange().expect("an answer");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub(crate) fn udp(&self) -> Udp {
        self.udp_between(40_007, 7007)
    }

    /// A flow between two ports.
    pub(crate) fn udp_between(&self, from: u16, to: u16) -> Udp {
        let bind = |namespace: &Namespace, address: (Ipv4Addr, u16)| {
            let socket = namespace.inside(|| UdpSocket::bind(address)).unwrap().unwrap();
            socket.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
            socket
        };
        let client = bind(&self.net.left, (Ipv4Addr::new(10, 83, 1, 2), from));
        client.connect((SERVER, to)).unwrap();
        Udp { client, server: bind(&self.net.right, (SERVER, to)) }
    }
}

/// A flow of UDP with its answers.
pub(crate) struct Udp {
    client: UdpSocket,
    server: UdpSocket,
}

impl Udp {
    /// One packet and its answer; where the server saw it come from, if both came.
    pub(crate) fn exchange(&self) -> Option<SocketAddr> {
        let mut room = [0; 64];
        self.client.send(b"question").unwrap();
        let (length, from) = self.server.recv_from(&mut room).ok()?;
        assert_eq!(&room[..length], b"question");
        self.server.send_to(b"answer", from).unwrap();
        let length = self.client.recv(&mut room).ok()?;
        assert_eq!(&room[..length], b"answer");
        Some(from)
    }
}

#[test]
fn masqueraded_udp_is_carried_until_a_rule_forbids_it() {
    let test = "masqueraded_udp_is_carried_until_a_rule_forbids_it";
    if !root_or_skip(test) || !can_run(test, "nft") {
        return;
    }
    let masquerade = Masquerade::new();
    let udp = masquerade.udp();
    // The kernel calls a flow assured that is answered for two seconds.
    until("the flow is carried", || {
        let from = udp.exchange().expect("an answer");
        assert_eq!(from.ip(), Ipv4Addr::new(10, 83, 2, 1));
        masquerade.carried("udp") > 0
    });
    let before = masquerade.carried("udp");
    (0..100).for_each(|_| assert!(udp.exchange().is_some()));
    assert!(masquerade.carried("udp") >= before + 200, "{:?}", masquerade.connections());
    let shown = masquerade.polder.show("connections");
    let totals = &shown["connections"];
    assert!(totals["room"].as_u64() > totals["entered"].as_u64() && totals["entered"] == 1, "{totals}");
    let row = &totals["connections"][0];
    assert_eq!((&row["state"], &row["lane"]), (&Value::from("carried"), &Value::from("skb")), "{row}");
    assert!(row["age_nanos"].as_u64() > Some(0) && row["reason"] == Value::Null, "{row}");
    // From the return of the command on, nothing passes.
    nft(&masquerade.net.gateway, "insert rule inet fw forward udp dport 7007 drop\n");
    let before = masquerade.carried("udp");
    (0..3).for_each(|_| assert_eq!(udp.exchange(), None));
    assert_eq!(masquerade.carried("udp"), before);
    let row = masquerade.connections().remove(0);
    assert!(
        row["state"] == "waiting" && row["reason"].as_str().is_some_and(|why| why.contains("no packet")),
        "{row}"
    );
    nft(&masquerade.net.gateway, "flush chain inet fw forward\n");
    nft(
        &masquerade.net.gateway,
        "add rule inet fw forward ct state established,related accept\n\
         add rule inet fw forward iifname west oifname east accept\n",
    );
    until("it is carried again", || {
        udp.exchange();
        masquerade.carried("udp") > before
    });
    // A rule that looks at each packet: the kernel has all of them.
    nft(
        &masquerade.net.gateway,
        "insert rule inet fw forward udp dport 7007 limit rate 1000/second accept\n",
    );
    until("the rule is named", || {
        let shown = masquerade.polder.show("connections");
        shown["connections"]["obstacle"]
            .as_str()
            .is_some_and(|text| text.contains("inet fw forward") && text.contains("limit"))
    });
    assert!(udp.exchange().is_some());
    let ports = masquerade.polder.show("ports");
    let port = &ports["ports"][0];
    assert!(
        port["decide"] == "kernel" && port["obstacle"].as_str().is_some_and(|why| why.contains("limit rate")),
        "{port}"
    );
    masquerade.polder.stop();
}

#[test]
fn tcp_is_carried_and_closed_as_by_the_kernel_alone() {
    let test = "tcp_is_carried_and_closed_as_by_the_kernel_alone";
    if !root_or_skip(test) || !can_run(test, "nft") {
        return;
    }
    let masquerade = Masquerade::new();
    let listener = masquerade.net.right.inside(|| TcpListener::bind((SERVER, 7008))).unwrap().unwrap();
    let mut client = masquerade
        .net
        .left
        .inside(|| TcpStream::connect_timeout(&SocketAddr::from((SERVER, 7008)), PATIENCE))
        .unwrap()
        .unwrap();
    let (mut server, from) = listener.accept().unwrap();
    assert_eq!(from.ip(), Ipv4Addr::new(10, 83, 2, 1));
    for stream in [&client, &server] {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
    }
    let mut room = [0; 8];
    until("the connection is carried", || {
        client.write_all(b"question").unwrap();
        server.read_exact(&mut room).unwrap();
        server.write_all(b"answered").unwrap();
        client.read_exact(&mut room).unwrap();
        masquerade.carried("tcp") > 0
    });
    let sent = vec![0x5a; 8 << 20];
    let received = std::thread::scope(|scope| {
        scope.spawn(|| {
            client.write_all(&sent).unwrap();
            client.shutdown(std::net::Shutdown::Write).unwrap();
        });
        let mut received = Vec::new();
        server.read_to_end(&mut received).unwrap();
        received
    });
    assert!(received == sent);
    // Half-closed, and then closed.
    server.write_all(b"answered").unwrap();
    drop(server);
    let mut rest = Vec::new();
    client.read_to_end(&mut rest).unwrap();
    assert_eq!(rest, b"answered");
    drop(client);
    until("its end is known", || masquerade.connections().iter().all(|row| row["protocol"] != "tcp"));
    masquerade.polder.stop();
}

/// A process that stands still hears of no change: the kernel has everything soon, and goes on when the process has ended.
#[test]
fn a_gateway_that_stands_still_or_ends_leaves_connections_to_the_kernel() {
    let test = "a_gateway_that_stands_still_or_ends_leaves_connections_to_the_kernel";
    if !root_or_skip(test) || !can_run(test, "nft") {
        return;
    }
    let masquerade = Masquerade::new();
    let udp = masquerade.udp();
    masquerade.until_carried(&udp);
    masquerade.polder.signal(Signal::STOP);
    nft(&masquerade.net.gateway, "insert rule inet fw forward udp dport 7007 drop\n");
    std::thread::sleep(2 * HEARTBEAT);
    assert_eq!(udp.exchange(), None, "the rule forbids it");
    nft(&masquerade.net.gateway, "flush chain inet fw forward\nadd rule inet fw forward accept\n");
    assert!(udp.exchange().is_some(), "the kernel forwards it");
    masquerade.polder.signal(Signal::CONT);
    let before = masquerade.carried("udp");
    until("it is carried again", || {
        udp.exchange().expect("an answer");
        masquerade.carried("udp") > before
    });
    masquerade.polder.kill();
    (0..10).for_each(|_| assert!(udp.exchange().is_some(), "the kernel forwards it"));
}

/// IPsec forbids by a policy; changes that touch no connection leave all of them carried, without another look of the kernel's.
#[test]
fn changes_close_the_connections_that_they_touch() {
    let test = "changes_close_the_connections_that_they_touch";
    if !root_or_skip(test) || !can_run(test, "nft") {
        return;
    }
    let masquerade = Masquerade::new();
    let udp = masquerade.udp();
    masquerade.until_carried(&udp);
    let ip = |command: &str| masquerade.net.gateway.ip(&command.split(' ').collect::<Vec<_>>()).unwrap();
    let evidence = || masquerade.polder.show("connections")["connections"]["evidence"].as_u64().unwrap();
    // What comes in under the stamp of the last change is over.
    let (before, carried) = (evidence(), masquerade.carried("udp"));
    for number in 0..50 {
        ip(&format!("route add 10.99.{number}.0/24 via 10.83.2.2"));
        ip(&format!(
            "neighbour replace 10.83.1.{} lladdr 02:00:00:00:01:{number:02x} dev west",
            100 + number
        ));
        udp.exchange().expect("an answer");
        ip(&format!(
            "neighbour replace 10.83.1.{} lladdr 02:00:00:00:02:{number:02x} dev west",
            100 + number
        ));
        ip(&format!("route del 10.99.{number}.0/24"));
    }
    // An address that shares a slot with another one closes its connections for a packet.
    assert!(
        evidence() <= before + 4 && masquerade.carried("udp") >= carried + 96,
        "{:?}",
        masquerade.connections()
    );
    // A policy of IPsec, and the route of the server.
    for (change, back) in [
        ("xfrm policy add src 10.83.1.0/24 dst 10.83.2.0/24 dir fwd action block", "xfrm policy flush"),
        ("route add blackhole 10.83.2.2/32", "route del blackhole 10.83.2.2/32"),
        ("rule add iif west to 10.83.2.2 pref 10 blackhole", "rule del pref 10"),
    ] {
        let before = masquerade.carried("udp");
        ip(change);
        (0..3).for_each(|_| assert_eq!(udp.exchange(), None, "{change}"));
        assert_eq!(masquerade.carried("udp"), before, "{change}");
        ip(back);
        masquerade.until_carried(&udp);
    }
    masquerade.polder.stop();
}

/// Rules of a forwarding machine, and what is said of those of them that look at each packet of an established connection.
const LOOKED_AT: [(&str, Option<&str>); 8] = [
    // Limits for what is new, and for what is logged: packets of an established connection do not meet them.
    (
        "chain forward { type filter hook forward priority 0; policy drop;
            ct state vmap { established : accept, related : accept, invalid : drop }
            tcp flags syn limit rate over 25/second drop
            limit rate 5/minute log prefix \"denied \"
            iifname west oifname east accept }",
        None,
    ),
    (
        "chain syn_flood { limit rate 25/second burst 50 packets return
            drop }
         chain forward { type filter hook forward priority 0;
            tcp flags & (fin|syn|rst|ack) == syn jump syn_flood
            limit rate 5/minute log prefix \"seen \"
            ct state established,related accept }
         chain input { type filter hook input priority 0; limit rate over 10/second drop
            meta length > 1000 drop }",
        None,
    ),
    (
        "chain forward { type filter hook forward priority 0; iifname lo limit rate over 10/second drop
            accept }",
        None,
    ),
    (
        "set seen { type ipv4_addr; flags dynamic,timeout; timeout 1m; }
         chain forward { type filter hook forward priority 0; ct state new add @seen {ip saddr}
            ct state new ip saddr @seen accept
            ct state established accept }",
        None,
    ),
    (
        "chain forward { type filter hook forward priority 0; limit rate over 1000/second drop
            ct state established accept }",
        Some("`limit rate over 1000/second`"),
    ),
    (
        "chain forward { type filter hook forward priority 0; jump length }
         chain length { meta length > 1000 drop }",
        Some("packet length"),
    ),
    (
        "set seen { type ipv4_addr; flags timeout; }
         chain prerouting { type filter hook prerouting priority 0; ip saddr @seen drop }",
        Some("`seen`"),
    ),
    (
        "chain forward { type filter hook forward priority 0; }
         chain mangle { type filter hook postrouting priority mangle; ip dscp set cs1 }",
        Some("a field of the IP header"),
    ),
];

#[test]
fn rules_that_look_at_each_packet_are_found_where_connections_meet_them() {
    let test = "rules_that_look_at_each_packet_are_found_where_connections_meet_them";
    if !root_or_skip(test) || !can_run(test, "nft") {
        return;
    }
    let masquerade = Masquerade::new();
    for (rules, wanted) in LOOKED_AT {
        // A statement ends with its line.
        let rules = rules.replace(" }", "\n }");
        nft(&masquerade.net.gateway, &format!("flush ruleset\ntable inet t {{\n{rules}\n}}\n"));
        // It is read again once it has changed.
        until(&format!("{wanted:?} is said of {rules}"), || {
            let shown = masquerade.polder.show("connections");
            match (shown["connections"]["obstacle"].as_str(), wanted) {
                (Some(obstacle), Some(wanted)) => obstacle.contains(wanted),
                (obstacle, wanted) => obstacle.is_none() && wanted.is_none(),
            }
        });
    }
    masquerade.polder.stop();
}

/// A file that says nothing of it has the kernel decide where rules stand, and the router where none do.
#[test]
fn the_kernel_decides_where_rules_stand_and_can_forward() {
    let test = "the_kernel_decides_where_rules_stand_and_can_forward";
    if !root_or_skip(test) || !can_run(test, "nft") {
        return;
    }
    let net = Net::new(1500);
    let ports = PORTS.replace("decide = \"kernel\"\n", "");
    nft(&net.gateway, RULES);
    let (code, said) = refused(&net, &ports);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("the kernel does not forward"), "{said}");
    net.gateway
        .inside(|| {
            std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").unwrap();
            std::fs::write("/proc/sys/net/ipv6/conf/all/forwarding", "1").unwrap();
        })
        .unwrap();
    let (code, said) =
        refused(&net, &ports.replace("\"west\"\nrole", "\"west\"\nqueue = { kind = \"codel\" }\nrole"));
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("bypass a port's `queue`"), "{said}");
    let mut polder = Gateway::start(&net.topology, &net.gateway, &ports);
    polder.wait_until_said("the kernel decides about the router's packets: nftables chain `inet fw forward`");
    let masquerade = Masquerade { net, polder };
    let udp = masquerade.udp();
    masquerade.until_carried(&udp);
    let decision = || {
        let shown = masquerade.polder.show("connections")["connections"]["obstacle"].clone();
        shown.as_str().map(str::to_owned)
    };
    // Nothing is lost while the router takes over, and while the kernel does.
    nft(&masquerade.net.gateway, "flush ruleset\n");
    masquerade.polder.reload(&ports).unwrap();
    until("the router decides", || {
        udp.exchange().expect("an answer");
        decision().is_some_and(|why| why.contains("decide"))
    });
    nft(&masquerade.net.gateway, RULES);
    until("the kernel decides again", || {
        udp.exchange();
        decision().is_none()
    });
    masquerade.until_carried(&udp);
    masquerade.polder.stop();
}

/// Packets that are not carried pass the filters of the port, and return to the kernel; what a filter forbids is carried no more
/// once the command that has brought it has returned.
#[test]
fn filters_of_a_port_see_what_is_not_carried() {
    let test = "filters_of_a_port_see_what_is_not_carried";
    if !root_or_skip(test) || !can_run(test, "nft") {
        return;
    }
    let drops = |port: &str, ports: &str| {
        format!("[[filter]]\nport = \"{port}\"\nprotocol = \"udp\"\n{ports}\naction = \"drop\"\n")
    };
    let elsewhere = drops("west", "destination_port = 7009");
    let masquerade = Masquerade::with(&format!("{PORTS}{elsewhere}"));
    let udp = masquerade.udp();
    masquerade.until_carried(&udp);
    let before = masquerade.carried("udp");
    (0..100).for_each(|_| assert!(udp.exchange().is_some()));
    assert!(masquerade.carried("udp") >= before + 200, "{:?}", masquerade.connections());
    assert!(masquerade.polder.transmitted("kernel") > 0);
    let other = masquerade.net.left.inside(|| UdpSocket::bind("10.83.1.2:40008")).unwrap().unwrap();
    (0..17).for_each(|_| assert_eq!(other.send_to(b"question", (SERVER, 7009)).unwrap(), 8));
    until("the filter has dropped them", || masquerade.polder.drops("filtered") == 17);
    // A packet that comes in, and an answer whose address the kernel has translated.
    for (forbids, meets) in [
        (drops("west", "destination_port = 7007"), "a question"),
        (drops("east", "source_port = 7007"), "an answer to the router's own address"),
    ] {
        masquerade.polder.reload(&format!("{PORTS}{elsewhere}{forbids}")).unwrap();
        let before = masquerade.carried("udp");
        (0..3).for_each(|_| assert_eq!(udp.exchange(), None, "{meets}"));
        assert_eq!(masquerade.carried("udp"), before, "{meets}");
        masquerade.polder.reload(&format!("{PORTS}{elsewhere}")).unwrap();
        masquerade.until_carried(&udp);
    }
    // Without filters packets go up no more.
    masquerade.polder.reload(PORTS).unwrap();
    masquerade.until_carried(&udp);
    let returned = || masquerade.polder.transmitted("kernel");
    let before = returned();
    nft(&masquerade.net.gateway, "insert rule inet fw forward udp dport 7007 drop\n");
    (0..3).for_each(|_| assert_eq!(udp.exchange(), None));
    assert_eq!(returned(), before);
    masquerade.polder.stop();
}
