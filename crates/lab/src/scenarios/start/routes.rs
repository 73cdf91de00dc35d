//! A router that finds a million routes in the kernel when it starts, and is told of more.

use super::{Net, PORT, Run};
use anyhow::ensure;
use polder_testbed::clock;
use polder_testbed::command;
use polder_testbed::meters::statistics::Samples;
use polder_testbed::topology::{End, Topology};
use std::fmt::Write as _;
use std::fs;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::process::Command;
use std::time::Duration;

pub(super) const FIRST_PACKET: &str = "start.first_packet_ms.routes_1m";
pub(super) const RESIDENT: &str = "start.resident_mib.routes_1m";
pub(super) const ADDED: &str = "start.route_added_ms.routes_1m";

/// As many networks of 16 addresses as 11.0.0.0/8 has.
const ROUTES: u32 = 1 << 20;
const FIRST: u32 = 11 << 24;
const LEFT: [&str; 2] = ["10.88.1.2/24", "10.88.1.1"];
const RIGHT: [&str; 2] = ["10.88.2.2/24", "10.88.2.1"];
/// Routes to it come and go.
const LATE: Ipv4Addr = Ipv4Addr::new(12, 0, 0, 1);

pub(super) fn measure(run: &mut Run, topology: &mut Topology) -> anyhow::Result<()> {
    if !run.wants_any(&[FIRST_PACKET, RESIDENT, ADDED]) {
        return Ok(());
    }
    if run.is_quick() {
        run.leave_out("a million routes in the kernel");
        return Ok(());
    }
    run.says("a million routes for the kernel");
    let net = lay(topology)?;
    let directory = topology.directory();
    let file = directory.join("routes");
    let mut lines = String::new();
    for number in 0..ROUTES {
        let network = Ipv4Addr::from_bits(FIRST + number * 16);
        writeln!(lines, "route add {network}/28 via 10.88.2.2")?;
    }
    fs::write(&file, lines)?;
    command::run(Command::new("ip").args(["-n", net.gateway.name(), "-batch"]).arg(&file))?;
    let configuration = directory.join("router.toml");
    let socket = directory.join("router.sock");
    fs::write(
        &configuration,
        format!(
            "version = 1\n[gateway]\ncontrol = \"{}\"\n\
             [port.eth0]\ninterface = \"eth0\"\nmode = \"native\"\nrole = \"router\"\n\
             [port.eth1]\ninterface = \"eth1\"\nmode = \"native\"\nrole = \"router\"\n",
            socket.display()
        ),
    )?;
    run.says("a router starts with a million routes");
    let (took, gateway) = net.first_packet_of(&configuration)?;
    run.record_one(FIRST_PACKET, took.as_secs_f64() * 1e3);
    let mut added = Samples::default();
    for round in 0..20 {
        run.says(&format!("route {} of 20", round + 1));
        added.push(one_more(&net)?.as_secs_f64() * 1e3);
    }
    run.record(ADDED, &added);
    run.record_one(RESIDENT, net.memory(gateway)?);
    Ok(())
}

/// Adds a route under a stream of packets to where it leads; until the first of them arrives.
fn one_more(net: &Net) -> anyhow::Result<Duration> {
    let route = |verb: &str| net.gateway.ip(&["route", verb, "12.0.0.0/8", "via", "10.88.2.2"]);
    let took = net.under_a_stream(LATE, || {
        // Some packets have found no route.
        std::thread::sleep(Duration::from_millis(20));
        ensure!(!net.has_received()?, "packets arrive where no route leads");
        let start = clock::now();
        route("add")?;
        while !net.has_received()? {
            ensure!(clock::now() - start < super::PATIENCE, "a new route is not followed");
        }
        Ok(clock::now() - start)
    })?;
    route("del")?;
    // Until it is gone for the router too.
    let silent = || -> anyhow::Result<bool> {
        net.under_a_stream(LATE, || {
            net.discard()?;
            Ok(!net.has_received()?)
        })
    };
    while !silent()? {}
    Ok(took)
}

/// left – router – right, whose stations know each other's link-layer addresses.
fn lay(topology: &mut Topology) -> anyhow::Result<Net> {
    let (left, gateway, right) =
        (topology.namespace("rleft")?, topology.namespace("rgw")?, topology.namespace("rright")?);
    for (station, port, number, [own, router]) in [(&left, "eth0", 3, LEFT), (&right, "eth1", 5, RIGHT)] {
        let end = |namespace, interface| End { namespace, interface };
        topology.wire(end(&gateway, port), end(station, "eth0"), 1500)?;
        let address = own.trim_end_matches("/24");
        let mac = |number: u8| format!("02:00:00:00:88:{number:02x}");
        let sides = [
            (&gateway, port, format!("{router}/24"), mac(number), address, mac(number + 1)),
            (station, "eth0", own.to_owned(), mac(number + 1), router, mac(number)),
        ];
        for (namespace, interface, own, mac, peer, peer_mac) in sides {
            namespace.ip(&["link", "set", interface, "address", &mac])?;
            namespace.ip(&["address", "add", &own, "dev", interface])?;
            namespace.ip(&["neighbour", "replace", peer, "lladdr", &peer_mac, "dev", interface])?;
        }
        station.ip(&["route", "add", "default", "via", router])?;
    }
    // It takes what is sent to any of the networks.
    for network in ["11.0.0.0/8", "12.0.0.0/8"] {
        right.ip(&["route", "add", "local", network, "dev", "lo"])?;
    }
    let receiver = right.inside(|| UdpSocket::bind(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, PORT)))??;
    receiver.set_read_timeout(Some(Duration::from_millis(50)))?;
    let target = Ipv4Addr::from_bits(FIRST + ROUTES * 16 - 1);
    Ok(Net { left, gateway, receiver, target })
}
