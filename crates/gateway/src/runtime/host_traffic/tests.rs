//! Judgements over machines that are made up.

use super::host_state::Login;
use super::*;
use crate::config;
use crate::kernel::message::Address;
use polder_devices::netlink::link::Link;
use std::path::Path;

const BRIDGE: &str = "version = 1\n[port.lan]\ninterface = \"e0\"\n[port.dmz]\ninterface = \"e1\"\n[bridge.br0]\n\
                      members = [\"lan\", \"dmz\"]\n";
const ROUTER: &str = "version = 1\n[port.lan]\ninterface = \"e0\"\nrole = \"router\"\n[port.dmz]\ninterface = \"e1\"\n\
                      role = \"router\"\n";

fn address(index: u32, address: &str) -> Address {
    Address { index, secondary: false, address: address.parse().expect(address), bits: 24 }
}

fn link(index: u32, name: &str, kind: &str) -> Link {
    Link { index, name: name.to_owned(), kind: kind.to_owned(), ..Link::default() }
}

fn host() -> HostState {
    HostState { links: vec![link(2, "e0", ""), link(3, "e1", ""), link(4, "e2", "")], ..HostState::default() }
}

fn configuration(text: &str) -> Configuration {
    config::parse(text, Path::new("a.toml")).unwrap_or_else(|report| panic!("{report}")).configuration
}

/// Findings as table and text.
fn found(text: &str, host: &HostState) -> Vec<(String, String)> {
    let configuration = configuration(text);
    let ports = configuration.ports.iter().collect::<Vec<_>>();
    judge(&ports, &configuration, host).into_iter().map(|found| (found.of, found.text)).collect()
}

/// Checks that port lan alone falls silent, and with what.
fn lan_loses(host: &HostState, phrase: &str) {
    let found = found(BRIDGE, host);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].0, "port.lan");
    assert!(found[0].1.contains(phrase), "{phrase}: {}", found[0].1);
    assert!(found[0].1.contains("a member of br0"), "{}", found[0].1);
}

#[test]
fn what_nobody_misses_is_not_told() {
    let mut host = host();
    host.addresses = vec![address(2, "fe80::1"), address(3, "169.254.1.1"), address(4, "192.0.2.1")];
    host.default_routes = vec![(4, None)];
    assert_eq!(found(BRIDGE, &host), []);
}

#[test]
fn addresses_fall_silent_with_the_interface_and_all_above_it() {
    let mut host = host();
    host.addresses = vec![address(2, "192.0.2.1")];
    lan_loses(&host, "own 192.0.2.1/24 (e0)");
    assert_eq!(found(ROUTER, &host), [], "a router leaves to the kernel what is for it");
    host.links.push(Link { peer: Some(2), ..link(7, "e0.5", "vlan") });
    host.links.push(Link { peer: Some(7), ..link(8, "m", "macvlan") });
    host.addresses = vec![address(8, "192.0.2.1")];
    lan_loses(&host, "192.0.2.1/24 (m)");
    host.links[0].master = Some(9);
    host.links.push(link(9, "kbr", "bridge"));
    host.addresses = vec![address(9, "192.0.2.1")];
    lan_loses(&host, "192.0.2.1/24 (kbr)");
    host.links.last_mut().expect("the bridge").kind = "vrf".to_owned();
    assert_eq!(found(BRIDGE, &host), []);
}

#[test]
fn the_other_end_of_a_veth_goes_on() {
    let mut host = host();
    host.links[0] = Link { peer: Some(4), ..link(2, "e0", "veth") };
    host.links[2] = Link { peer: Some(2), ..link(4, "e2", "veth") };
    host.addresses = vec![address(4, "192.0.2.1")];
    assert_eq!(found(BRIDGE, &host), []);
}

#[test]
fn the_default_route_and_the_login_are_named() {
    let mut host = host();
    host.default_routes = vec![(2, Some("192.0.2.254".parse().expect("an address")))];
    lan_loses(&host, "the default route by 192.0.2.254");
    host.default_routes.clear();
    let [client, server] = ["198.51.100.7", "192.0.2.1"].map(|text| text.parse::<IpAddr>().expect(text));
    host.login = Some(Login { client, server, way_back: Some(2) });
    lan_loses(&host, "your login (SSH from 198.51.100.7)");
    host.login = Some(Login { client, server, way_back: Some(4) });
    assert_eq!(found(BRIDGE, &host), [], "it goes another way");
    host.addresses = vec![address(2, "192.0.2.1")];
    lan_loses(&host, "your login");
}

#[test]
fn open_connections_to_its_addresses_are_named() {
    let mut host = host();
    host.addresses = vec![address(2, "fe80::1")];
    let open = |remote: &str| Connection {
        local: "[fe80::1]:22".parse().expect("an end"),
        remote: remote.parse().expect(remote),
    };
    host.connections = (1..=6).map(|port| open(&format!("[fe80::7]:{port}"))).collect();
    lan_loses(&host, "from [fe80::7]:1 to port 22,");
    lan_loses(&host, "[fe80::7]:4 to port 22 and 2 more");
    host.addresses[0].index = 4;
    assert_eq!(found(BRIDGE, &host), []);
}

#[test]
fn without_yes_it_is_refused_and_a_port_that_was_taken_before_is_not_asked_about() {
    let mut host = host();
    host.addresses = vec![address(2, "192.0.2.1")];
    let next = configuration(BRIDGE);
    let all = next.ports.iter().collect::<Vec<_>>();
    let refused = decide(&judge(&all, &next, &host), false, "run").expect_err("refused").to_string();
    assert!(refused.contains("[port.lan]") && refused.contains("polder run --yes"), "{refused}");
    decide(&judge(&all, &next, &host), true, "run").expect("it was said");
    assert!(taken(&next).count() == 2 && taken(&configuration(ROUTER)).count() == 0);
}
