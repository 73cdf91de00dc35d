use super::*;
use crate::config;
use polder_datapath::route::Prefix;
use std::collections::BTreeMap;
use std::path::Path;

const TWO: &str = "version = 1\n[port.lan]\ninterface = \"e0\"\nrole = \"router\"\non_exit = \"kernel\"\n\
                   [port.wan]\ninterface = \"e1\"\nrole = \"router\"\non_exit = \"kernel\"\n";

fn interface(address: &str) -> Interface {
    Interface {
        mtu: 1500,
        addresses: vec![(address.parse().expect("an address"), if address.contains(':') { 64 } else { 24 })],
        forwards: [Some(true); 2],
        ..Interface::default()
    }
}

fn host() -> HostState {
    HostState {
        interfaces: [("e0", "10.0.0.1"), ("e1", "10.0.1.1")]
            .map(|(name, address)| (name.to_owned(), interface(address)))
            .into(),
        forwards: [Some(true); 2],
        left: BTreeMap::new(),
        hears_routers: false,
        routes: Some([(100, 0), (200, 3)].into()),
    }
}

/// Findings, good news aside.
fn found(text: &str, change: impl FnOnce(&mut HostState)) -> Vec<(String, Severity, String, String)> {
    let configuration = config::parse(text, Path::new("r.toml")).expect(text).configuration;
    let mut host = host();
    change(&mut host);
    let seen = judge(&configuration, &host).into_iter().filter(|seen| seen.severity > Severity::Fine);
    seen.map(|seen| (seen.of, seen.severity, seen.topic, seen.text)).collect()
}

/// Checks that this is the only finding, and that it has a remedy.
fn only(
    text: &str,
    change: impl FnOnce(&mut HostState),
    (of, severity, topic): (&str, Severity, &str),
    remedy: &str,
) {
    let found = found(text, change);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!((found[0].0.as_str(), found[0].1, found[0].2.as_str()), (of, severity, topic), "{found:?}");
    assert!(found[0].3.contains(remedy), "{found:?}");
}

fn e0(host: &mut HostState) -> &mut Interface {
    host.interfaces.get_mut("e0").expect("it is there")
}

#[test]
fn a_machine_that_is_ready_is_not_complained_of() {
    assert_eq!(found(TWO, |_| {}), []);
    assert_eq!(
        found(
            "version = 1\n[port.a]\ntap = \"a\"\n[port.b]\ntap = \"b\"\n[bridge.b]\nmembers = [\"a\", \"b\"]\n",
            |_| {}
        ),
        []
    );
}

#[test]
fn a_port_without_an_address() {
    let port = ("port.lan", Severity::Warning, "address");
    only(TWO, |host| e0(host).addresses.clear(), port, "ip address add");
    let link_local = |host: &mut HostState| *e0(host) = interface("fe80::1");
    only(TWO, link_local, port, "ip address add");
}

#[test]
fn strict_looks_at_sources() {
    let port = ("port.lan", Severity::Warning, "rp_filter");
    only(TWO, |host| e0(host).source_check = 1, port, "rp_filter=2");
    assert_eq!(found(TWO, |host| e0(host).source_check = 2), []);
}

#[test]
fn packets_that_would_be_forwarded_twice() {
    let port = ("port.lan", Severity::Warning, "forwarding");
    only(TWO, |host| e0(host).master = Some("br0".to_owned()), port, "nomaster");
    let port = ("port.lan", Severity::Problem, "forwarding");
    only(TWO, |host| e0(host).below = Some("e1".to_owned()), port, "remove [port.lan]");
}

fn add(host: &mut HostState, address: &str) {
    e0(host).addresses.push((address.parse().expect("an address"), 64));
}

#[test]
fn a_kernel_that_does_not_forward() {
    let router = ("router", Severity::Warning, "forwarding");
    let off = |host: &mut HostState| host.forwards = [Some(false); 2];
    only(TWO, off, router, "`sysctl -w net.ipv4.ip_forward=1`");
    let closed = TWO.replace("\"kernel\"", "\"drop\"");
    only(&closed, off, router, "net.ipv4.ip_forward=1");
    let at_port = |host: &mut HostState| e0(host).forwards = [Some(false); 2];
    only(TWO, at_port, ("port.lan", Severity::Warning, "forwarding"), "net.ipv4.conf.e0.forwarding=1");
    assert_eq!(key("ipv4", "e0.5", "forwarding"), "net/ipv4/conf/e0.5/forwarding");
}

#[test]
fn hosts_would_drop_their_default_router() {
    let router = ("router", Severity::Warning, "forwarding");
    let off = |host: &mut HostState| host.forwards[1] = Some(false);
    assert_eq!(found(TWO, off), [], "it is no router of IPv6");
    let link_local = |host: &mut HostState| {
        add(host, "fe80::1");
        off(host);
    };
    assert_eq!(found(TWO, link_local), []);
    let routes = |host: &mut HostState| {
        add(host, "2001:db8::1");
        off(host);
    };
    only(TWO, routes, router, "`sysctl -w net.ipv6.conf.all.forwarding=1`");
    only(TWO, routes, router, "RFC 4861, 7.3.3");
    let at_port = |host: &mut HostState| {
        add(host, "2001:db8::1");
        e0(host).forwards[1] = Some(false);
    };
    only(TWO, at_port, ("port.lan", Severity::Warning, "forwarding"), "net.ipv6.conf.e0.forwarding=1");
}

#[test]
fn a_machine_that_hears_routers_goes_on_hearing_them() {
    let hears = |accepts| {
        move |host: &mut HostState| {
            add(host, "2001:db8::1");
            host.forwards[1] = Some(false);
            host.hears_routers = true;
            e0(host).accepts_advertisements = accepts;
        }
    };
    let router = ("router", Severity::Warning, "forwarding");
    only(TWO, hears(1), router, "net.ipv6.conf.all.forwarding=1 net.ipv6.conf.e0.accept_ra=2`");
    only(TWO, hears(2), router, "net.ipv6.conf.all.forwarding=1`");
}

#[test]
fn routes_by_other_interfaces_are_left_to_the_kernel() {
    let left = |host: &mut HostState| {
        let prefix = Prefix::new("10.66.0.0".parse().expect("an address"), 24).expect("a prefix");
        host.left.insert("vpn0".to_owned(), vec![prefix]);
    };
    let configuration = config::parse(TWO, Path::new("r.toml")).expect(TWO).configuration;
    let mut host = host();
    left(&mut host);
    let seen = judge(&configuration, &host);
    let told = seen.iter().find(|seen| seen.topic == "kernel").expect("it is said");
    assert_eq!(told.severity, Severity::Fine);
    assert!(told.text.starts_with("vpn0 is not a port: 10.66.0.0/24 stays with the kernel"), "{}", told.text);
    assert_eq!(found(TWO, left), []);
    let off = |host: &mut HostState| {
        left(host);
        host.forwards[0] = Some(false);
    };
    let warned = found(TWO, off);
    let topics = warned.iter().map(|seen| (seen.1, seen.2.as_str())).collect::<Vec<_>>();
    assert_eq!(topics, [(Severity::Warning, "forwarding"), (Severity::Warning, "kernel")]);
    assert!(warned[1].3.contains("net.ipv4.ip_forward=1"), "{warned:?}");
}

#[test]
fn a_table_that_is_empty() {
    let text = format!("{TWO}[router]\ntables = [100, 200]\n");
    only(&text, |_| {}, ("router", Severity::Warning, "routes"), "ip route show table 100");
    let silent = ("router", Severity::Warning, "routes");
    only(TWO, |host| host.routes = None, silent, "again");
}

#[test]
fn a_next_hop_on_no_link() {
    let text = |via: &str| format!("{TWO}[[router.route]]\nto = \"10.9.0.0/16\"\nvia = \"{via}\"\n");
    only(&text("10.7.0.1"), |_| {}, ("router", Severity::Warning, "next hop"), "lan, wan");
    assert_eq!(found(&text("10.0.1.77"), |_| {}), []);
    let with_port = |via: &str| format!("{}port = \"lan\"\n", text(via));
    only(&with_port("10.0.1.77"), |_| {}, ("router", Severity::Warning, "next hop"), "in no network of lan,");
}

#[test]
fn a_next_hop_in_a_tunnel_is_its_other_end() {
    let text = |route: &str| {
        format!(
            "{TWO}[tunnel.far]\nkind = \"gre\"\naddresses = [\"10.255.1.0/31\"]\nlocal = \"10.0.1.1\"\n\
             remote = \"10.0.1.9\"\nport = \"wan\"\n[[router.route]]\nto = \"10.9.0.0/16\"\nvia = {route}\n"
        )
    };
    assert_eq!(found(&text("\"10.255.1.1\""), |_| {}), []);
    assert_eq!(found(&text("\"10.7.0.1\"\nport = \"far\""), |_| {}), []);
    let warning = ("router", Severity::Warning, "next hop");
    only(&text("\"10.7.0.1\""), |_| {}, warning, "in no network of lan, wan, far");
    let example = include_str!("../../../../../../examples/router-tunnels.toml");
    let found = found(example, |_| {});
    assert!(found.iter().all(|(.., topic, _)| topic != "next hop"), "{found:?}");
}

#[test]
fn an_mtu_too_small_for_ipv6() {
    let problem = ("port.lan", Severity::Problem, "mtu");
    let narrow = |host: &mut HostState| {
        e0(host).addresses.push(("2001:db8::1".parse().expect("an address"), 64));
        e0(host).mtu = 1279;
    };
    only(TWO, narrow, problem, "ip link set dev e0 mtu 1280");
    assert_eq!(found(TWO, |host| e0(host).mtu = 1279), [], "IPv4 alone");
    let tap = "version = 1\n[port.t]\ntap = \"t\"\nrole = \"router\"\naddresses = [\"2001:db8::1/64\"]\nmtu = 1000\n";
    only(tap, |_| {}, ("port.t", Severity::Problem, "mtu"), "raise `mtu`");
}
