//! The kernel's tables as they are followed, against the kernel itself.

use crate::machines::{addresses, machine, until};
use crate::support::{root_or_skip, skip, wire};
use polder::kernel::Mirror;
use polder::kernel::socket::Follow;
use polder_datapath::route::Prefix;
use polder_datapath::units::Nanos;
use polder_testbed::clock;
use polder_testbed::command;
use polder_testbed::topology::{Namespace, Topology};
use std::net::Ipv6Addr;
use std::time::Duration;

/// Follows until everything is known and nothing more comes.
fn settle(follow: &mut Follow, begun: Duration) {
    let now = || Nanos(u64::try_from((clock::now() - begun).as_nanos()).unwrap());
    until("the kernel has told everything", || {
        let more = follow.attend(now()).unwrap();
        !more && follow.is_settled() && follow.next_deadline().is_none()
    });
}

/// Kernel state as a new follower sees it.
fn afresh(begun: Duration) -> Mirror {
    let mut follow = Follow::start(1 << 20).unwrap();
    settle(&mut follow, begun);
    follow.mirror().clone()
}

/// Many commands at once.
fn batch(namespace: &Namespace, topology: &Topology, lines: &str) {
    let family: &[&str] = if lines.contains("2001:") { &["-6"] } else { &[] };
    let file = topology.directory().join("batch");
    std::fs::write(&file, lines).unwrap();
    let mut ip = std::process::Command::new("ip");
    command::run(ip.args(family).args(["-n", namespace.name(), "-batch"]).arg(&file)).unwrap();
}

/// The commands that a kernel without VLANs understands.
fn without_vlans(lines: &str) -> String {
    let plain = lines.lines().filter(|line| !line.contains("va.10") && !line.contains("10.84.10."));
    plain.map(|line| format!("{line}\n")).collect()
}

fn with_links(topology: &mut Topology) -> Namespace {
    let gateway = machine(topology, "gw");
    let other = machine(topology, "other");
    for interface in ["va", "vb"] {
        wire(topology, (&gateway, interface), (&other, interface), 1500);
    }
    addresses(&gateway, "va", &["10.84.1.1/24", "fd84:1::1/64"]);
    addresses(&gateway, "vb", &["10.84.2.1/24", "fd84:2::1/64"]);
    gateway
}

/// Changes of every kind, those included of which the kernel says nothing.
#[test]
fn what_was_followed_is_what_is_there() {
    if !root_or_skip("what_was_followed_is_what_is_there") {
        return;
    }
    let mut topology = Topology::new().unwrap();
    let gateway = with_links(&mut topology);
    let has_vlans =
        gateway.ip(&["link", "add", "link", "va", "name", "va.9", "type", "vlan", "id", "9"]).is_ok();
    if !has_vlans {
        skip("what_was_followed_is_what_is_there, its VLANs", "this kernel has none");
    }
    let begun = clock::now();
    gateway
        .inside(|| {
            let mut follow = Follow::start(1 << 20).unwrap();
            settle(&mut follow, begun);
            for lines in [
                "route add 10.1.0.0/16 via 10.84.1.2\nroute add 10.1.0.0/16 via 10.84.2.2 metric 7\n",
                "route append 10.1.0.0/16 via 10.84.2.2\n",
                "nexthop add id 1 via 10.84.1.2 dev va\nnexthop add id 2 via 10.84.2.2 dev vb\n\
                 nexthop add id 3 group 1/2,3\nroute add 10.2.0.0/16 nhid 3\n",
                "route add 2001:db8::/32 nexthop via fd84:1::2 nexthop via fd84:2::2\n",
                "route del 2001:db8::/32 nexthop via fd84:1::2\n",
                "route add default from 2001:db8:1::/48 via fd84:2::2\n\
                 route add default from 2001:db8:2::/48 via fd84:1::2\nroute add default via fd84:1::2\n",
                "route del default from 2001:db8:1::/48 via fd84:2::2\n",
                "route add 10.5.0.0/16 via 10.84.1.2\nroute append 10.5.0.0/16 via 10.84.1.3\n\
                 route prepend 10.5.0.0/16 via 10.84.2.2\nroute append 10.5.0.0/16 via 10.84.1.2 proto bird\n",
                "route replace 10.5.0.0/16 via 10.84.1.9\nroute del 10.5.0.0/16 via 10.84.1.3\n",
                "route add 2001:db8:5::/48 dev va\nroute append 2001:db8:5::/48 via fd84:1::2\n\
                 route append 2001:db8:5::/48 via fd84:1::3\nroute append 2001:db8:5::/48 dev vb\n",
                "route replace 2001:db8:5::/48 via fd84:1::9\nroute del 2001:db8:5::/48 dev va\n",
                "neigh add 10.84.1.9 lladdr 02:00:00:00:00:09 dev va\nrule add from 10.9.0.0/16 lookup 77\n",
                "link add link va name va.10 type vlan id 10\nlink set va.10 up\naddress add 10.84.10.1/24 dev va.10\n",
                "route add 10.3.0.0/16 via 10.84.10.2\nroute add blackhole 10.4.0.0/16\n",
                "address del 10.84.10.1/24 dev va.10\nnexthop del id 2\n",
                "link set vb down\n",
                "link set vb up\nlink del va.10\n",
                "route replace 10.1.0.0/16 via 10.84.1.7\nrule del from 10.9.0.0/16 lookup 77\n",
            ] {
                let lines = if has_vlans { lines.to_owned() } else { without_vlans(lines) };
                batch(&gateway, &topology, &lines);
                settle(&mut follow, begun);
                until(&format!("the same after {lines}"), || {
                    settle(&mut follow, begun);
                    *follow.mirror() == afresh(begun)
                });
            }
            assert_eq!(follow.restarts(), 0, "nothing was lost");
            assert!(follow.mirror().routes().count() > 10);
            let default = Prefix::new(Ipv6Addr::UNSPECIFIED.into(), 0).unwrap();
            let sources = follow.mirror().routes_to(254, default).map(|route| route.source).collect::<Vec<_>>();
            let network = Prefix::new("2001:db8:2::".parse().unwrap(), 48).unwrap();
            assert_eq!(sources, [Some(network), None]);
        })
        .unwrap();
}

/// Sets the state of a neighbour.
fn make(gateway: &Namespace, (address, lladdr): (&str, &str), state: &str) {
    gateway.ip(&["neigh", "replace", address, "lladdr", lladdr, "dev", "va", "nud", state]).unwrap();
}

/// A request for a neighbour overtakes the notice that the neighbour is permanent now. The kernel takes that from it.
#[test]
fn permanent_neighbours_stay_permanent() {
    if !root_or_skip("permanent_neighbours_stay_permanent") {
        return;
    }
    let mut topology = Topology::new().unwrap();
    let gateway = with_links(&mut topology);
    let begun = clock::now();
    gateway
        .inside(|| {
            let index = {
                let mut follow = Follow::start(1 << 20).unwrap();
                settle(&mut follow, begun);
                follow.mirror().links().find(|link| link.name == "va").unwrap().index
            };
            for (address, lladdr) in [("10.84.1.9", "02:00:00:00:00:09"), ("fd84:1::9", "02:00:00:00:00:0a")]
            {
                let is_permanent = || {
                    let shown = gateway.ip(&["neigh", "show", address, "dev", "va"]).unwrap();
                    shown.contains("PERMANENT") && shown.contains(lladdr)
                };
                for before in [None, Some("stale"), Some("failed")] {
                    let mut follow = Follow::start(1 << 20).unwrap();
                    let _ = gateway.ip(&["neigh", "del", address, "dev", "va"]);
                    before.into_iter().for_each(|state| make(&gateway, (address, lladdr), state));
                    settle(&mut follow, begun);
                    make(&gateway, (address, lladdr), "permanent");
                    follow.resolve(index, address.parse().unwrap());
                    assert_eq!(
                        is_permanent(),
                        before.is_none(),
                        "{address} {before:?}: what the kernel does"
                    );
                    settle(&mut follow, begun);
                    assert!(is_permanent(), "{address} {before:?}");
                    // Known as permanent it is not asked for.
                    settle(&mut follow, begun);
                    follow.resolve(index, address.parse().unwrap());
                    assert!(is_permanent(), "{address} {before:?}");
                }
            }
        })
        .unwrap();
}

/// Socket buffer that is too small for the notices of a burst.
#[test]
fn what_was_missed_is_asked_for_again() {
    if !root_or_skip("what_was_missed_is_asked_for_again") {
        return;
    }
    let mut topology = Topology::new().unwrap();
    let gateway = with_links(&mut topology);
    let begun = clock::now();
    gateway
        .inside(|| {
            // The kernel does not go below some 2 KiB.
            let mut follow = Follow::start(1).unwrap();
            settle(&mut follow, begun);
            for round in 0..3 {
                let verb = if round == 1 { "del" } else { "add" };
                let lines = (0..2000).map(|number| {
                    format!("route {verb} 10.{}.{}.0/24 via 10.84.1.2\n", 100 + number / 256, number % 256)
                });
                batch(&gateway, &topology, &lines.collect::<String>());
                let before = follow.restarts();
                settle(&mut follow, begun);
                assert!(follow.restarts() > before, "so many notices do not fit");
                assert_eq!(*follow.mirror(), afresh(begun));
            }
            assert!(follow.mirror().routes().count() > 2000);
        })
        .unwrap();
}
