//! Checks of each tunnel.

use super::header::{CHECKSUM, ETHERNET_INSIDE, KEY, SEQUENCE};
use super::{Check, Judge, Tunnel};
use crate::tunnels::Tunnel as _;
use crate::tunnels::checks::{capable, congestion_in, congestion_out, some_pings, too_long};
use crate::tunnels::guest::{Linked as _, counter, no_errors, reaches, tcp, time_exceeded};
use crate::tunnels::outer::{Outer, ecn, is_cut, is_echo, ttl_inside};
use crate::tunnels::wire::From;
use anyhow::{Context as _, ensure};

/// Payload lengths of pings: the shortest, odd lengths, the longest without fragmentation, and lengths that need
/// fragmentation inside or outside.
const PING_SIZES: [u32; 13] = [0, 1, 17, 18, 64, 333, 501, 1001, 1400, 1406, 1434, 1472, 4001];
/// Every check, in the order in which they are made.
pub(super) const ALL: [Check; 9] = [
    ("the other end answers", reaches),
    ("pings of all sizes", ping_sizes),
    ("long packets into the tunnel", long_packets),
    ("outer fragments out of the tunnel", fragments),
    ("TCP in both directions", |judge, tunnel| tcp(judge, &tunnel.near())),
    ("congestion on the way in", congestion_in),
    ("congestion on the way out", congestion_out),
    ("headers on the wire", headers),
    ("the kernel counts no error", no_errors),
];

/// Further checks of tunnels that carry packets.
pub(super) const ROUTED: [Check; 5] = [
    ("pings of IPv6", pings_v6),
    ("TCP over IPv6 in both directions", |judge, tunnel| tcp(judge, &tunnel.near_v6())),
    ("who is too long on the way hears of it", too_long_on_the_way),
    ("who is too big hears of it", too_big),
    ("headers of IPv6 on the wire", headers),
];

/// Checks that find a broken encapsulator, those with the kernel's verdict first.
pub(super) const TELLING: [Check; 5] = [
    ("pings", some_pings),
    ("long packets", long_packets),
    ("congestion on the way in", capable),
    ("the kernel counts no error", no_errors),
    ("headers on the wire", headers),
];

fn ping_sizes(judge: &mut Judge, tunnel: &Tunnel) -> anyhow::Result<()> {
    for size in PING_SIZES {
        judge.far(&format!("ping -q -c 1 -W 3 -s {size} {}", tunnel.near()))?;
    }
    Ok(())
}

/// Packets of 1500 bytes that may be cut: Polder does it outside.
fn long_packets(judge: &mut Judge, tunnel: &Tunnel) -> anyhow::Result<()> {
    judge.near(&format!("ping -q -c 2 -i 0.02 -W 2 -M dont -s 1472 {}", tunnel.far()))?;
    // A router cuts what is inside, unless it has promised to carry it.
    let inside = tunnel.routed && !tunnel.promises;
    let is_cut = |(frame, outer): &(Vec<u8>, Outer)| match inside {
        true => is_cut(frame, outer.inner(frame)),
        false => !outer.is_whole(),
    };
    ensure!(judge.packets(From::Polder).iter().any(is_cut), "nothing was cut");
    Ok(())
}

/// The guest fragments packets over IPv4; over IPv6, where it does not, the wire fragments in its place.
fn fragments(judge: &mut Judge, tunnel: &Tunnel) -> anyhow::Result<()> {
    let before = counter(judge, tunnel, "reassembled")?;
    judge.wire.ways().cuts = tunnel.v6;
    let size = if tunnel.v6 { 1000 } else { 1472 };
    let result = judge.far(&format!("ping -q -c 3 -i 0.02 -W 2 -M dont -s {size} {}", tunnel.near()));
    judge.wire.ways().cuts = false;
    result?;
    let after = counter(judge, tunnel, "reassembled")?;
    let is_cut = tunnel.v6 || tunnel.cuts;
    ensure!(!is_cut || after >= before + 3, "{before} packets were put together, then {after}");
    Ok(())
}

/// Checks pings over IPv6; the sender of a packet that is too big gets a message at first.
fn pings_v6(judge: &mut Judge, tunnel: &Tunnel) -> anyhow::Result<()> {
    for size in [0_u16, 1, 64, 333, 1001, 1300, 1472, 4001] {
        if size > 1001 {
            // The first one may be what the sender hears of it for.
            let _ = judge.far(&format!("ping -q -c 1 -W 1 -s {size} {}", tunnel.near_v6()));
        }
        judge.far(&format!("ping -q -c 1 -W 3 -s {size} {}", tunnel.near_v6()))?;
    }
    let outside = format!("ping -q -c 3 -i 0.02 -W 2 -s 1000 {}", tunnel.far_v6());
    judge.near(&outside).map(drop)
}

/// Packets longer than the path MTU, in both families: the inner sender of the error is the router's address.
fn too_long_on_the_way(judge: &mut Judge, tunnel: &Tunnel) -> anyhow::Result<()> {
    for (to, router) in [tunnel.near(), tunnel.near_v6()].iter().zip(tunnel.routers()) {
        time_exceeded(judge, (to, &router))?;
    }
    Ok(())
}

/// The host's packets that may not be cut.
fn too_big(judge: &mut Judge, tunnel: &Tunnel) -> anyhow::Result<()> {
    for (to, size) in [(tunnel.far(), 1470), (tunnel.far_v6(), 1450)] {
        let said = too_long(judge, size, &to)?;
        ensure!(said.contains("mtu") != tunnel.promises, "of {size} bytes it is said: {said}");
    }
    Ok(())
}

/// Every outer packet of the tunnel as it arrives: the fields that its configuration says, numbers one after
/// the other, checksums that are right.
fn headers(judge: &mut Judge, tunnel: &Tunnel) -> anyhow::Result<()> {
    let (mut looked_at, mut last) = (0, None);
    for (frame, outer) in judge.packets(From::Polder) {
        if outer.v6 != tunnel.v6 {
            continue;
        }
        let (class, ttl) = outer.class_and_ttl(&frame);
        ensure!(outer.end <= frame.len(), "a length beyond the frame");
        if outer.offset > 0 {
            continue;
        }
        let gre = outer.gre(&frame).context("a GRE header that is cut short")?;
        if gre.key != tunnel.key || !outer.is_from(&frame, tunnel.ends()[0]) {
            continue;
        }
        let inner_ttl = ttl_inside(&frame, outer.inner(&frame)).filter(|_| tunnel.inherits);
        ensure!(ttl == inner_ttl.unwrap_or(64), "a time to live of {ttl}");
        let flags = [(CHECKSUM, tunnel.checksum), (KEY, tunnel.key.is_some()), (SEQUENCE, tunnel.sequence)];
        let expected = flags.iter().filter(|(_, has)| *has).fold(0, |flags, (flag, _)| flags | flag);
        ensure!(gre.flags == expected, "flags {:#06x} instead of {expected:#06x}", gre.flags);
        let version = frame.get(outer.payload + gre.length).map_or(0, |first| first >> 4);
        let protocol = match version {
            _ if !tunnel.routed => ETHERNET_INSIDE,
            6 => 0x86dd,
            _ => 0x0800,
        };
        ensure!(gre.protocol == protocol, "the protocol type {:#06x}", gre.protocol);
        // The host's packets have met one router; what that says itself has met none.
        let hops = ttl_inside(&frame, outer.inner(&frame)).filter(|_| tunnel.routed);
        ensure!(hops.is_none_or(|hops| matches!(hops, 63 | 64 | 254 | 255)), "{hops:?} hops left inside");
        if is_echo(&frame, outer.inner(&frame)) && tunnel.routed {
            ensure!(hops == Some(63), "an echo with {hops:?} hops left");
        }
        ensure!(outer.has_right_checksum(&frame), "a wrong GRE checksum");
        let limit = (tunnel.v6 && tunnel.limit).then_some(4);
        ensure!(outer.limit == limit, "the encapsulation limit {:?}", outer.limit);
        let marked = class & 3 == 3;
        let inner = outer.inner(&frame).and_then(|inner| ecn(&frame, inner));
        if let Some(inner) = inner.filter(|_| !marked) {
            ensure!(class & 3 == inner, "ECN {} outside and {inner} inside", class & 3);
        }
        if let (Some(before), Some(number)) = (last, gre.sequence) {
            ensure!(number == u32::wrapping_add(before, 1), "number {number} behind {before}");
        }
        (last, looked_at) = (gre.sequence, looked_at + 1);
    }
    ensure!(looked_at > 0, "no packet of the tunnel was seen");
    Ok(())
}
