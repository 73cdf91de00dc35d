//! The kernel's tables as they are followed, against the kernel itself.

use crate::machines::{addresses, machine, until};
use crate::support::{root_or_skip, wire};
use polder::kernel::Mirror;
use polder::kernel::socket::Follow;
use polder_datapath::units::Nanos;
use polder_lab::clock;
use polder_lab::command;
use polder_lab::topology::{Namespace, Topology};
use std::time::Duration;

/// Follows until everything is known and nothing more comes.
fn settle(follow: &mut Follow, begun: Duration) {
    let now = || Nanos(u64::try_from((clock::now() - begun).as_nanos()).unwrap());
    until("the kernel has told everything", || {
        let more = follow.attend(now()).unwrap();
        !more && follow.is_settled() && follow.next_deadline().is_none()
    });
}

/// What somebody sees who comes now.
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

/// A buffer that is too small for what happens meanwhile.
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
