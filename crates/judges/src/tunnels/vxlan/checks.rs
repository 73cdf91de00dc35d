//! Checks of each tunnel.

use super::header::VALID;
use super::{Check, Judge, REACH, Tunnel};
use crate::tunnels::Tunnel as _;
use crate::tunnels::checks::{capable, congestion_in, congestion_out, some_pings, too_long};
use crate::tunnels::outer::Outer;
use crate::tunnels::wire::From;
use anyhow::ensure;
use polder_testbed::topology::Namespace;
use polder_testbed::traffic::sockets::{tcp_goodput, wait_for_ping};
use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

/// Payloads of pings: the shortest, odd ones, the longest that fit.
const PING_SIZES: [u16; 8] = [0, 1, 17, 64, 333, 1001, 1400, 1402];
/// Port of TCP connections.
const PORT: u16 = 7007;
/// Time for which TCP runs in one direction.
const TCP_TIME: Duration = Duration::from_millis(200);
/// Longer time limit for streams: longer than retransmissions take.
const PATIENT: Duration = Duration::from_secs(3);

/// Every check, in the order in which they are made.
pub(super) const ALL: [Check; 10] = [
    ("the other end answers", reaches),
    ("pings of all sizes, both ways", ping_sizes),
    ("TCP to the kernel", tcp_in),
    ("TCP from the kernel", tcp_out),
    ("who is too big hears of it", too_big),
    ("segments are made to fit", mss),
    ("congestion on the way in", |judge, tunnel| {
        judge.wire.forget();
        congestion_in(judge, tunnel)
    }),
    ("congestion on the way out", congestion_out),
    ("headers on the wire", headers),
    ("flows have source ports of their own", source_ports),
];

/// Checks that find a broken encapsulator, those with the kernel's verdict first.
pub(super) const TELLING: [Check; 4] = [
    ("pings", some_pings),
    ("congestion on the way in", capable),
    ("flows have source ports of their own", source_ports),
    ("headers on the wire", headers),
];

/// Pings until the first answer: both ends have to find their neighbours.
pub(super) fn reaches(judge: &mut Judge, tunnel: &Tunnel) -> anyhow::Result<()> {
    let [near, far] = tunnel.addresses();
    ensure!(wait_for_ping(&judge.kernel.far, near, REACH)?, "no answer to any ping");
    ensure!(wait_for_ping(&judge.near, far, REACH)?, "no answer to any ping of the host");
    judge.wire.forget();
    Ok(())
}

fn ping_sizes(judge: &mut Judge, tunnel: &Tunnel) -> anyhow::Result<()> {
    for size in PING_SIZES {
        judge.far(&format!("ping -q -c 1 -W 3 -s {size} {}", tunnel.near()))?;
        judge.near(&format!("ping -q -c 1 -W 3 -s {size} {}", tunnel.far()))?;
    }
    // A whole packet of the tunnel's MTU, which must not be cut.
    let longest = tunnel.mtu() - 28;
    judge.far(&format!("ping -q -c 1 -W 3 -M do -s {longest} {}", tunnel.near()))?;
    judge.near(&format!("ping -q -c 1 -W 3 -M do -s {longest} {}", tunnel.far())).map(drop)
}

/// A connection that carries data. One that waits for a retransmission is given longer.
fn carries_tcp((from, to): (&Namespace, &Namespace), address: Ipv4Addr) -> anyhow::Result<()> {
    let destination = SocketAddrV4::new(address, PORT);
    let quick = tcp_goodput(from, to, destination, TCP_TIME, TCP_TIME);
    let rate = quick.or_else(|_| tcp_goodput(from, to, destination, TCP_TIME, PATIENT))?;
    ensure!(rate > 1e5, "{rate} bit/s");
    Ok(())
}

fn tcp_in(judge: &mut Judge, tunnel: &Tunnel) -> anyhow::Result<()> {
    carries_tcp((&judge.near, &judge.kernel.far), tunnel.addresses()[1])
}

fn tcp_out(judge: &mut Judge, tunnel: &Tunnel) -> anyhow::Result<()> {
    carries_tcp((&judge.kernel.far, &judge.near), tunnel.addresses()[0])
}

/// A packet that may not be cut and is one byte too long.
fn too_big(judge: &mut Judge, tunnel: &Tunnel) -> anyhow::Result<()> {
    let (size, mtu) = (tunnel.mtu() - 28 + 1, tunnel.mtu());
    let said = too_long(judge, size, &tunnel.far())?;
    ensure!(
        said.contains(&format!("mtu = {mtu}")) || said.contains(&format!("mtu={mtu}")),
        "it is said: {said}"
    );
    // The sender's kernel keeps what it has heard.
    judge.near("ip route flush cache").map(drop)
}

/// Connections of the host, whose TAP takes more than the tunnel does.
fn mss(judge: &mut Judge, tunnel: &Tunnel) -> anyhow::Result<()> {
    judge.wire.forget();
    tcp_in(judge, tunnel)?;
    let packets = judge.packets_of(From::Polder, tunnel);
    let announced = packets.iter().filter_map(|(frame, outer)| {
        let inside = frame.get(outer.inside())?;
        let (ip, tcp) = (inside.get(14..34)?, inside.get(34..)?);
        let is_syn = ip[9] == 6 && tcp.get(13)? & 2 != 0;
        // Linux writes the segment size first.
        (is_syn && tcp.get(20..22)? == [2, 4]).then(|| u16::from_be_bytes([tcp[22], tcp[23]]))
    });
    let announced = announced.collect::<Vec<_>>();
    let expected = tunnel.mtu() - 40;
    ensure!(!announced.is_empty(), "no connection was opened");
    ensure!(announced.iter().all(|&size| size == expected), "{announced:?} instead of {expected}");
    Ok(())
}

/// Every outer packet of the tunnel as it arrives.
fn headers(judge: &mut Judge, tunnel: &Tunnel) -> anyhow::Result<()> {
    let packets = judge.packets_of(From::Polder, tunnel);
    ensure!(!packets.is_empty(), "no packet of the tunnel was seen");
    for (frame, outer) in &packets {
        let (class, ttl) = outer.class_and_ttl(frame);
        let expected = if tunnel.port == 8472 { 9 } else { 64 };
        ensure!(ttl == expected, "a time to live of {ttl}");
        ensure!(tunnel.port != 8472 || class >> 2 == 46, "a DSCP of {}", class >> 2);
        let vxlan = &frame[outer.vxlan()..outer.vxlan() + 8];
        ensure!(vxlan[..4] == [VALID, 0, 0, 0] && vxlan[7] == 0, "the VXLAN header {vxlan:02x?}");
        ensure!(outer.source_port(frame) >= 0xc000, "the source port {}", outer.source_port(frame));
        ensure!(outer.is_bound(frame), "a packet that may be cut");
        let has_checksum = outer.checksum(frame) != 0;
        ensure!(has_checksum == tunnel.checksum, "the checksum {:#06x}", outer.checksum(frame));
        ensure!(outer.is_intact(frame), "a wrong checksum");
        ensure!(outer.end == frame.len(), "{} bytes behind the packet", frame.len() - outer.end);
    }
    Ok(())
}

/// A flow keeps its source port, and several flows have several.
fn source_ports(judge: &mut Judge, tunnel: &Tunnel) -> anyhow::Result<()> {
    judge.wire.forget();
    for port in 1..=16 {
        let script = format!("for i in 1 2; do echo x > /dev/udp/{}/{}; done", tunnel.far(), 9000 + port);
        // Nobody listens there; the second one may hear of it.
        let _ = judge.near.command("bash").args(["-c", &script]).output();
    }
    let packets = judge.packets_of(From::Polder, tunnel);
    let ports = packets.iter().filter_map(|(frame, outer)| {
        let inside = frame.get(outer.inside())?;
        let is_udp = inside.get(12..14)? == [8, 0] && inside.get(23)? == &17;
        is_udp.then(|| (inside[26..38].to_vec(), outer.source_port(frame)))
    });
    let pairs = ports.collect::<BTreeSet<_>>();
    let flows = pairs.iter().map(|(flow, _)| flow).collect::<BTreeSet<_>>().len();
    let ports = pairs.iter().map(|(_, port)| port).collect::<BTreeSet<_>>().len();
    ensure!(flows >= 16, "{flows} flows were seen");
    ensure!(pairs.len() == flows, "{flows} flows had {} source ports", pairs.len());
    ensure!(ports > 8, "{flows} flows had {ports} source ports");
    Ok(())
}

impl Judge {
    /// Outer packets of a tunnel.
    pub(super) fn packets_of(&self, from: From, tunnel: &Tunnel) -> Vec<(Vec<u8>, Outer)> {
        let is_own = |(frame, outer): &(Vec<u8>, Outer)| {
            outer.v6 == tunnel.v6 && outer.port(frame) == tunnel.port && outer.vni(frame) == tunnel.vni()
        };
        self.packets(from).into_iter().filter(is_own).collect()
    }
}
