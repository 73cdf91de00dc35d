//! Findings over machines that are made up.

use super::*;
use crate::config;
use crate::kernel::sockets::{BoundSocket, Filter};
use std::path::Path;

const BRIDGE: &str = "version = 1\n[port.lan]\ninterface = \"e0\"\n[port.dmz]\ninterface = \"e1\"\n[bridge.br0]\n\
                      members = [\"lan\", \"dmz\"]\n";
const ROUTER: &str = "version = 1\n[port.lan]\ninterface = \"e0\"\nrole = \"router\"\n[port.dmz]\ninterface = \"e1\"\n\
                      role = \"router\"\n";
const UNDERLAY: &str = "version = 1\n[port.lan]\ninterface = \"e0\"\nrole = \"underlay\"\n[port.dmz]\ninterface = \"e1\"\n\
                        role = \"router\"\n";
const OWN: [u8; 6] = [2, 0, 0, 0, 0, 1];
const OTHER: [u8; 6] = [2, 0, 0, 0, 0, 9];

fn link(index: u32, name: &str, kind: &str) -> Link {
    Link { index, name: name.to_owned(), kind: kind.to_owned(), mac: OWN, ..Link::default() }
}

fn on(lower: u32, index: u32, name: &str, kind: &str) -> Link {
    Link { peer: Some(lower), mac: OTHER, ..link(index, name, kind) }
}

fn moved(lower: u32, name: &str, kind: &str) -> (Place, Link) {
    let link = Link { peer_elsewhere: true, peer_namespace: Some(0), ..on(lower, 2, name, kind) };
    (Place::Named("web".to_owned()), link)
}

fn host() -> Host {
    Host { links: vec![link(2, "e0", ""), link(3, "e1", ""), link(4, "e2", "")], ..Host::default() }
}

/// Table, severity and object of each finding.
fn found(text: &str, host: &Host) -> Vec<(String, Severity, String)> {
    let configuration = config::parse(text, Path::new("b.toml")).expect(text).configuration;
    let object = |seen: PreflightFinding| {
        let object = seen.evidence.map_or(seen.text, |evidence| {
            assert!(!evidence.probe.is_empty() && !evidence.remedy.is_empty(), "{evidence:?}");
            evidence.object
        });
        (seen.of, seen.severity, object)
    };
    judge(&configuration, host).into_iter().map(object).collect()
}

/// Checks that one object starves, by port lan.
fn only(text: &str, host: &Host, object: &str) {
    assert_eq!(found(text, host), [("port.lan".to_owned(), Severity::Warning, object.to_owned())]);
}

#[test]
fn a_host_without_others_is_not_complained_of() {
    let mut host = host();
    // The other end of a veth, and interfaces of others.
    host.links[0] = Link { peer: Some(4), ..link(2, "e0", "veth") };
    host.links.extend([on(4, 7, "mv0", "macvlan"), link(8, "br0", "bridge")]);
    host.elsewhere.links = vec![moved(4, "mv1", "macvlan"), moved(2, "eth0", "veth")];
    for text in [BRIDGE, ROUTER, UNDERLAY] {
        assert_eq!(found(text, &host), [], "{text}");
    }
}

#[test]
fn interfaces_on_a_bridge_port_receive_nothing() {
    for kind in ["vlan", "macvlan", "macvtap", "ipvlan", "macsec", "vxlan", "gretap"] {
        let mut host = host();
        host.links.push(on(2, 7, "up", kind));
        only(BRIDGE, &host, &format!("{kind} up"));
    }
    let mut stacked = host();
    stacked.links.push(on(2, 7, "e0.5", "vlan"));
    stacked.elsewhere.links.push(moved(7, "mv0", "macvlan"));
    let objects = found(BRIDGE, &stacked).into_iter().map(|seen| seen.2).collect::<Vec<_>>();
    assert_eq!(objects, ["vlan e0.5", "macvlan mv0 in namespace web"]);
}

#[test]
fn the_master_of_a_bridge_port_receives_nothing() {
    for kind in ["bridge", "bond", "team", "openvswitch", "vrf"] {
        let mut host = host();
        host.links[0].master = Some(9);
        host.links.push(link(9, "up", kind));
        only(BRIDGE, &host, &format!("{kind} up"));
        assert_eq!(found(ROUTER, &host), []);
    }
}

#[test]
fn on_a_router_those_with_its_address_starve_unless_the_machine_has_their_addresses() {
    let mut host = host();
    host.links.extend([on(2, 7, "e0.5", "vlan"), on(2, 8, "mv0", "macvlan"), on(2, 9, "v", "vxlan")]);
    host.links.push(Link { mac: OWN, ..on(2, 10, "iv0", "ipvlan") });
    host.elsewhere.links = vec![moved(2, "mv1", "macvlan"), moved(2, "e0.7", "vlan")];
    host.elsewhere.links[1].1.mac = OWN;
    assert_eq!(found(ROUTER, &host), []);
    let mut shared = host.clone();
    shared.elsewhere.links.push(moved(2, "iv1", "ipvlan"));
    shared.elsewhere.links[2].1.mac = OWN;
    only(ROUTER, &shared, "ipvlan iv1 in namespace web");
    assert_eq!(found(UNDERLAY, &shared), []);
    host.links.push(Link { mac: OWN, ..on(2, 11, "vm0", "macvtap") });
    only(ROUTER, &host, "macvtap vm0");
}

fn socket(protocol: u16) -> PacketSocket {
    PacketSocket { interface: 2, protocol, has_link_header: true, filter: Filter::None, inode: 77 }
}

#[test]
fn packet_sockets_starve_by_protocol_mode_and_role() {
    let with = |protocol, in_skb_mode: &[&str]| {
        let mut host = host();
        host.packet_sockets = vec![socket(protocol)];
        host.owners.insert(77, ("daemon".to_owned(), 12));
        host.in_skb_mode = in_skb_mode.iter().map(|name| (*name).to_owned()).collect();
        host
    };
    let object = "packet socket of daemon (12)";
    for protocol in [0x0800, 0x0806, 0x86dd, 0x8863, 0x8864, 0x22f0] {
        only(BRIDGE, &with(protocol, &[]), object);
        only(BRIDGE, &with(protocol, &["e0"]), object);
    }
    for kept in KEPT.into_iter().filter(|kept| !matches!(kept, 0x0004 | 0x88f7)) {
        assert_eq!(found(BRIDGE, &with(kept, &[])), [], "{kept:#x}");
        assert_eq!(found(ROUTER, &with(kept, &[])), [], "{kept:#x}");
    }
    only(BRIDGE, &with(EVERY_PROTOCOL, &[]), object);
    assert_eq!(found(BRIDGE, &with(EVERY_PROTOCOL, &["e0"])), [], "it hears frames before the program");
    only(ROUTER, &with(EVERY_PROTOCOL, &[]), object);
    assert_eq!(found(ROUTER, &with(EVERY_PROTOCOL, &["e0"])), []);
    // Answers to clients of DHCP are the kernel's where no filter has to see them.
    assert_eq!(found(ROUTER, &with(0x0800, &["e0"])), []);
    let filtered = format!("{ROUTER}[[filter]]\nprotocol = \"tcp\"\naction = \"drop\"\n");
    only(&filtered, &with(0x0800, &["e0"]), object);
    for kept in [0x0806, 0x8863, 0x8864, 0x22f0] {
        assert_eq!(found(ROUTER, &with(kept, &[])), [], "{kept:#x}");
    }
    assert_eq!(found(UNDERLAY, &with(0x0800, &[])), []);
    // The gateway's own, and one whose filter is hidden.
    let mut own = with(0x0800, &[]);
    own.owners.insert(77, ("polder".to_owned(), 12));
    assert_eq!(found(BRIDGE, &own), []);
    let mut hidden = with(0x0800, &[]);
    hidden.packet_sockets[0].filter = Filter::Unknown;
    assert_eq!(found(BRIDGE, &hidden), [("port.lan".to_owned(), Severity::Fine, object.to_owned())]);
}

#[test]
fn sockets_that_are_bound_to_a_bridge_port_hear_nothing() {
    let mut host = host();
    host.bound_sockets = vec![
        BoundSocket { kind: "UDP", interface: 2, port: 67, inode: 5 },
        BoundSocket { kind: "UDP", interface: 4, port: 67, inode: 6 },
    ];
    only(BRIDGE, &host, "UDP socket of a process outside this PID namespace, port 67");
    assert_eq!(found(ROUTER, &host), []);
}

#[test]
fn many_interfaces_are_told_in_few_lines() {
    let mut host = host();
    host.links.extend((0..10_000).map(|number| on(2, 100 + number, &format!("mv{number}"), "macvlan")));
    let found = found(BRIDGE, &host);
    assert_eq!(found.len(), MOST + 1);
    assert!(found[MOST].2.starts_with(&format!("{} more", 10_000 - MOST)), "{:?}", found[MOST]);
}

#[test]
fn namespaces_that_cannot_be_read_are_told_where_that_matters() {
    let mut host = host();
    host.elsewhere.unread = 3;
    assert_eq!(found(ROUTER, &host), []);
    let closed = Host { may_look: true, ..host.clone() };
    assert_eq!(found(BRIDGE, &closed).into_iter().map(|seen| seen.1).collect::<Vec<_>>(), [Severity::Fine]);
    let found = found(BRIDGE, &host);
    assert!(found.len() == 1 && found[0].2.contains("run as root"), "{found:?}");
    assert_eq!(found[0].1, Severity::Warning);
}

#[test]
fn services_whose_answers_are_routed_are_named() {
    let host = Host { services: vec!["TCP 192.0.2.1:80".to_owned()], ..host() };
    assert_eq!(found(BRIDGE, &host), []);
    let expected = ("router".to_owned(), Severity::Warning, "IPVS service TCP 192.0.2.1:80".to_owned());
    assert_eq!(found(ROUTER, &host), [expected]);
}

#[test]
fn sessions_of_a_bridge_port_are_named() {
    let session = |device: &str| (device.to_owned(), "7 with 02:00:00:00:00:01".to_owned());
    let host = Host { sessions: vec![session("e0"), session("e2")], ..host() };
    only(BRIDGE, &host, "PPPoE session 7 with 02:00:00:00:00:01");
    assert_eq!(found(ROUTER, &host), []);
}
