//! Polder as a router between the cards, and as the end of a tunnel against the guest's own kernel.

use super::bench::Bench;
use super::checks::{Cell, TCP, answered_within, not_here, ping_from, ping_within, stream};
use super::shuttle::Shuttle;
use anyhow::{Context as _, ensure};
use polder_testbed::traffic::raw::PacketSocket;
use std::net::UdpSocket;
use std::time::Duration;

/// Datagrams each way, and how often one is sent.
const DATAGRAMS: usize = 32;
const ATTEMPTS: usize = 5;

/// UDP with checksums left to the devices; the far end's kernel drops what is not right.
pub(super) fn udp(cell: &mut Cell<'_>) -> anyhow::Result<()> {
    let [a, b] = &cell.bench.far;
    let open = |far: &polder_testbed::topology::Namespace, number: u8| -> anyhow::Result<UdpSocket> {
        let socket = far.inside(|| UdpSocket::bind((format!("10.77.0.{number}").as_str(), 7777)))??;
        socket.set_read_timeout(Some(Duration::from_millis(700)))?;
        Ok(socket)
    };
    let (near, far) = (open(a, 1)?, open(b, 2)?);
    near.connect("10.77.0.2:7777")?;
    far.connect("10.77.0.1:7777")?;
    let mut lost = 0;
    for number in 0..DATAGRAMS {
        // Odd lengths, the shortest and the longest.
        let length = 1 + number * 1471 / (DATAGRAMS - 1);
        let datagram = (0..length).map(|at| (at * 7 + number).to_le_bytes()[0]).collect::<Vec<_>>();
        for (from, to) in [(&near, &far), (&far, &near)] {
            let came = (0..ATTEMPTS).any(|_| from.send(&datagram).is_ok() && comes(to, &datagram));
            lost += usize::from(!came);
        }
    }
    ensure!(lost == 0, "{lost} of {} datagrams are lost", 2 * DATAGRAMS);
    Ok(())
}

fn comes(socket: &UdpSocket, datagram: &[u8]) -> bool {
    let mut room = [0; 2048];
    // Older ones may come first.
    (0..ATTEMPTS).any(|_| socket.recv(&mut room).is_ok_and(|length| &room[..length] == datagram))
}

/// A router by the kernel's addresses and routes. The gateway is stopped; the kernel itself forwards nothing.
pub(super) fn router(cell: &mut Cell<'_>) -> anyhow::Result<()> {
    let result = routed(cell.bench);
    cell.bench.end()?;
    let [a, b] = cell.bench.names.clone();
    for line in [format!("ip address flush dev {a}"), format!("ip address flush dev {b}")] {
        cell.bench.run(&line)?;
    }
    let [a, b] = &cell.bench.far;
    for (far, own) in [(a, "10.81.0.2/24"), (b, "10.82.0.2/24")] {
        far.ip(&["address", "del", own, "dev", "far"])?;
    }
    b.ip(&["address", "del", "10.99.0.1/32", "dev", "lo"])?;
    result
}

fn routed(bench: &mut Bench) -> anyhow::Result<()> {
    let [a, b] = bench.names.clone();
    for line in [
        format!("ip address add 10.81.0.1/24 dev {a}"),
        format!("ip address add 10.82.0.1/24 dev {b}"),
        "ip route replace 10.99.0.0/24 via 10.82.0.2".to_owned(),
    ] {
        bench.run(&line)?;
    }
    let [near, far] = &bench.far;
    near.ip(&["address", "add", "10.81.0.2/24", "dev", "far"])?;
    far.ip(&["address", "add", "10.82.0.2/24", "dev", "far"])?;
    far.ip(&["link", "set", "lo", "up"])?;
    far.ip(&["address", "add", "10.99.0.1/32", "dev", "lo"])?;
    for (end, gateway, to) in [
        (near, "10.81.0.1", ["10.82.0.0/24", "10.99.0.0/24"]),
        (far, "10.82.0.1", ["10.81.0.0/24", "10.81.0.0/24"]),
    ] {
        for to in to {
            end.ip(&["route", "replace", to, "via", gateway, "dev", "far", "mtu", "1500", "advmss", "1460"])?;
        }
    }
    bench.configure_ports("", "role = \"router\"", "")?;
    bench.start()?;
    let near = &bench.far[0];
    ping_from(near, "10.82.0.2").context("the next hop")?;
    ping_from(near, "10.99.0.1").context("behind a route of the kernel")?;
    stream(&bench.far, "10.99.0.1", &["-n", TCP])?;
    // A route that goes is followed.
    bench.run("ip route del 10.99.0.0/24")?;
    polder_testbed::interrupt::sleep(Duration::from_secs(1))?;
    ensure!(ping_within(&bench.far[0], "10.99.0.1", 2).is_err(), "a route that is gone is still followed");
    bench.stop()
}

/// A tunnel between Polder on one card and the guest's own kernel on the other. The gateway is stopped.
pub(super) fn gretap(cell: &mut Cell<'_>) -> anyhow::Result<()> {
    if cell.bench.cards != cell.bench.names {
        return Err(not_here("an interface above a card cannot be the peer's in another namespace"));
    }
    let [near, far] = &cell.bench.far;
    let open = |far: &polder_testbed::topology::Namespace| -> anyhow::Result<PacketSocket> {
        far.inside(|| PacketSocket::open("far"))?.context("cannot open a packet socket")
    };
    let wire = Shuttle::new(open(near)?, open(far)?, None);
    let result = tunnel(cell.bench);
    drop(wire);
    cell.bench.end()?;
    let [a, b] = cell.bench.names.clone();
    let _ = cell.bench.run(&format!("ip -n peer link set {b} netns 1"));
    for line in
        ["ip netns del peer".to_owned(), format!("ip address flush dev {a}"), format!("ip link set {b} up")]
    {
        cell.bench.run(&line)?;
    }
    result
}

fn tunnel(bench: &mut Bench) -> anyhow::Result<()> {
    let [a, b] = bench.names.clone();
    for line in [
        format!("ip address add 10.78.0.1/24 dev {a}"),
        "ip netns add peer".to_owned(),
        format!("ip link set {b} netns peer"),
        format!("ip -n peer link set {b} up"),
        format!("ip -n peer address add 10.78.0.2/24 dev {b}"),
        "ip -n peer link add gre type gretap local 10.78.0.2 remote 10.78.0.1 nopmtudisc ignore-df"
            .to_owned(),
        "ip -n peer link set gre mtu 1500 up".to_owned(),
        "ip -n peer address add 10.79.0.2/24 dev gre".to_owned(),
    ] {
        bench.run(&line)?;
    }
    bench.write(&format!(
        "[port.under]\ninterface = \"{a}\"\nrole = \"underlay\"\n[port.host]\ntap = \"host0\"\n\
         [tunnel.other]\nkind = \"gretap\"\nlocal = \"10.78.0.1\"\nremote = \"10.78.0.2\"\nport = \"under\"\n\
         [bridge.lan]\nmembers = [\"host\", \"other\"]\n"
    ))?;
    bench.start()?;
    for line in ["ip link set host0 up", "ip address add 10.79.0.1/24 dev host0"] {
        bench.run(line)?;
    }
    answered_within(20, || bench.run("ping -n -q -c 1 -W 1 10.79.0.2").map(drop))
        .with_context(|| format!("nothing through the tunnel: {}", bench.said()))?;
    for size in [56, 500, 1380] {
        bench
            .run(&format!("ping -n -q -c 5 -i 0.2 -w 20 -s {size} 10.79.0.2"))
            .with_context(|| format!("{size} bytes through the tunnel: {}", bench.said()))?;
    }
    bench.stop()
}
