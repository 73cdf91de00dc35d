//! Checks of each tunnel.

use super::header::inner;
use super::tunnel::{Place, Tunnel};
use super::{Check, Judge, Kernel};
use crate::differential::packet::{IPV4, Upper, V4, link};
use crate::tunnels::Tunnel as _;
use crate::tunnels::checks::{congestion_in, congestion_out, some_pings, too_long};
use crate::tunnels::guest::{Linked as _, counter, no_errors, reaches, router_mac, row, tcp, time_exceeded};
use crate::tunnels::outer::{ETHERNET, Outer, ecn, is_cut, is_echo, sum, ttl_inside, u16_at};
use crate::tunnels::wire::From;
use anyhow::{Context as _, ensure};
use polder_testbed::interrupt;
use serde_json::Value;
use std::time::Duration;

/// Payload lengths of pings: the shortest, odd lengths, lengths around the limit without fragmentation, and longer
/// ones.
const PING_SIZES: [u16; 12] = [0, 1, 17, 64, 333, 1001, 1400, 1432, 1433, 1452, 1453, 4001];
/// Last octet of the address of a router on the way.
const ROUTER: u8 = 99;
/// Bytes that a narrow path carries.
const NARROW: u16 = 1400;
/// Time within which what a router says is followed, and forgotten: from an honest Polder, and from a broken one.
const FOLLOWED: [Duration; 2] = [Duration::from_secs(15), Duration::from_secs(4)];
/// Time within which both ends have counted what has arrived.
const COUNTED: Duration = Duration::from_secs(5);
/// DSCP and ECN of pings, as `ping` wants them: AF41, and not capable of ECN.
const CLASS: &str = "0x88";

impl<const V6: bool> Kernel<V6> {
    /// Checks of both kinds, in the order in which they are made.
    pub(super) const CHECKS: &'static [Check<V6>] = &[
        ("the other end answers", reaches),
        ("pings of all sizes, both ways", ping_sizes),
        ("long packets into the tunnel", long_packets),
        ("outer fragments out of the tunnel", fragments),
        ("TCP in both directions", |judge, tunnel| tcp(judge, &tunnel.near())),
        ("congestion on the way in", |judge, tunnel| {
            judge.wire.forget();
            congestion_in(judge, tunnel)
        }),
        ("congestion on the way out", congestion_out),
        ("headers on the wire", headers),
        ("who is too long on the way hears of it", |judge, tunnel| {
            time_exceeded(judge, (&tunnel.near(), &tunnel.router()))
        }),
        ("who is too big hears of it", too_big),
        ("what a router says of the path is followed", narrow_path),
        ("both ends count the same packets", counts),
        ("the kernel counts no error", |judge, tunnel| {
            // What an end refuses is not answered.
            let _ = some_pings(judge, tunnel);
            no_errors(judge, tunnel)
        }),
        ("another version inside is dropped as tunnel-bad-protocol", super::drops::other_version),
        ("half a header inside is dropped as tunnel-bad-protocol", super::drops::half_header),
        ("a first fragment alone is dropped as fragment-timeout", super::drops::lone_fragment),
        ("the other protocol is left to the kernel", super::drops::other_protocol),
        ("a stranger's packet is left to the kernel", super::drops::stranger),
    ];
    /// Further checks of IPv4 inside.
    pub(super) const OF_IPIP: &'static [Check<V6>] = &[
        ("a wrong checksum inside is dropped as ipv4-bad-checksum", super::drops::wrong_checksum),
        ("a packet from the other end is dropped as tunnel-recursion", super::drops::recursion),
    ];
    /// Further checks of IPv6 inside.
    pub(super) const OF_SIT: &'static [Check<V6>] =
        &[("an IPv4-mapped source inside is dropped as martian-source", super::drops::martian)];
}

impl<const V6: bool> Judge<V6> {
    /// Outer packets of a tunnel that one end has sent.
    pub(super) fn packets_of(&self, from: From, tunnel: &Tunnel) -> Vec<(Vec<u8>, Outer)> {
        let end = usize::from(from == From::Kernel);
        self.packets(from).into_iter().filter(|packet| tunnel.has(end, packet)).collect()
    }
}

fn ping_sizes<const V6: bool>(judge: &mut Judge<V6>, tunnel: &Tunnel) -> anyhow::Result<()> {
    for size in PING_SIZES {
        if size > PING_SIZES[6] {
            // The first one may be what the sender hears of it for.
            let _ = judge.near(&format!("ping -q -c 1 -W 1 -s {size} {}", tunnel.far()));
        }
        judge.far(&format!("ping -q -c 1 -W 3 -s {size} {}", tunnel.near()))?;
        judge.near(&format!("ping -q -c 1 -W 3 -s {size} {}", tunnel.far()))?;
    }
    Ok(())
}

/// Packets of 1500 bytes that may be cut: by Polder outside if it has promised to carry them; else inside, by Polder
/// (IPv4) or by the sender (IPv6).
fn long_packets<const V6: bool>(judge: &mut Judge<V6>, tunnel: &Tunnel) -> anyhow::Result<()> {
    let line = format!("-W 2 -M dont -s {} {}", tunnel.ping_of(1500), tunnel.far());
    let _ = judge.near(&format!("ping -q -c 1 {line}"));
    judge.wire.forget();
    judge.near(&format!("ping -q -c 2 -i 0.02 {line}"))?;
    let is_right = |(frame, outer): &(Vec<u8>, Outer)| match tunnel.promises() {
        true => !outer.is_whole(),
        false => is_cut(frame, inner(outer)),
    };
    ensure!(judge.packets_of(From::Polder, tunnel).iter().any(is_right), "nothing was cut");
    Ok(())
}

/// The guest fragments packets outside where its end is told to.
fn fragments<const V6: bool>(judge: &mut Judge<V6>, tunnel: &Tunnel) -> anyhow::Result<()> {
    // The guest keeps what its own end has said of longer packets.
    for family in ["-4", "-6"] {
        judge.far(&format!("ip {family} route flush cache"))?;
    }
    let before = counter(judge, tunnel, "reassembled")?;
    let size = tunnel.ping_of(1500);
    judge.far(&format!("ping -q -c 3 -i 0.02 -W 2 -M dont -s {size} {}", tunnel.near()))?;
    let after = counter(judge, tunnel, "reassembled")?;
    ensure!(!tunnel.promises() || after >= before + 3, "{before} packets were put together, then {after}");
    Ok(())
}

/// The host's packets that may not be cut.
fn too_big<const V6: bool>(judge: &mut Judge<V6>, tunnel: &Tunnel) -> anyhow::Result<()> {
    flush(judge)?;
    let said = too_long(judge, tunnel.ping_of(1481), &tunnel.far())?;
    ensure!(said.contains("mtu") != tunnel.promises(), "of 1481 bytes it is said: {said}");
    ensure!(tunnel.promises() || said.contains("1480"), "no word of 1480 bytes: {said}");
    flush(judge)
}

/// Flushes the host's cache of path MTUs, including the tunnels' paths.
fn flush<const V6: bool>(judge: &Judge<V6>) -> anyhow::Result<()> {
    ["-4", "-6"].iter().try_for_each(|family| judge.near(&format!("ip {family} route flush cache")).map(drop))
}

/// A router on the way says that it carries less (RFC 2003, 5.1; RFC 4213, 3.2): senders hear of it, and no outer packet is longer.
fn narrow_path<const V6: bool>(judge: &mut Judge<V6>, tunnel: &Tunnel) -> anyhow::Result<()> {
    judge.wire.forget();
    judge.near(&format!("ping -q -c 1 -W 2 {}", tunnel.far()))?;
    let packet = judge.packets_of(From::Polder, tunnel).pop().context("no packet of the tunnel was seen")?;
    judge.wire.inject(&too_big_for_router(&packet.0))?;
    let result = follows(judge, tunnel, Some(NARROW)).and_then(|()| carries_narrow(judge, tunnel));
    flush(judge)?;
    result.and_then(|()| follows(judge, tunnel, None))
}

/// Waits until Polder knows that path MTU.
fn follows<const V6: bool>(judge: &Judge<V6>, tunnel: &Tunnel, expected: Option<u16>) -> anyhow::Result<()> {
    let is_broken = judge.wire.ways().is_broken();
    interrupt::retry(FOLLOWED[usize::from(is_broken)], Duration::from_millis(50), || {
        let known = row(judge, tunnel)?.get("path_mtu").and_then(Value::as_u64);
        ensure!(known == expected.map(u64::from), "the path MTU is {known:?} instead of {expected:?}");
        Ok(())
    })
}

fn carries_narrow<const V6: bool>(judge: &mut Judge<V6>, tunnel: &Tunnel) -> anyhow::Result<()> {
    let said = too_long(judge, tunnel.ping_of(NARROW - 19), &tunnel.far())?;
    let expected = (NARROW - 20).to_string();
    ensure!(tunnel.promises() || said.contains(&expected), "no word of {expected} bytes: {said}");
    judge.wire.forget();
    judge.near(&format!("ping -q -c 1 -W 2 -M dont -s {} {}", tunnel.ping_of(1480), tunnel.far()))?;
    let packets = judge.packets_of(From::Polder, tunnel);
    let longest = packets.iter().map(|(_, outer)| outer.end - ETHERNET).max();
    ensure!(longest.is_some_and(|longest| longest <= usize::from(NARROW)), "packets of {longest:?} bytes");
    Ok(())
}

/// Message of a router about an outer packet of Polder (RFC 792, RFC 1191).
fn too_big_for_router(frame: &[u8]) -> Vec<u8> {
    let [high, low] = NARROW.to_be_bytes();
    let upper = Upper::Icmp(3, 4, [0, 0, high, low], frame[ETHERNET..ETHERNET + 28].to_vec());
    let address = |at: usize| frame[at..].first_chunk::<4>().copied().unwrap_or_default();
    let mac = |at: usize| frame[at..].first_chunk::<6>().copied().unwrap_or_default();
    let [a, b, c, _] = address(30);
    let packet = V4 { source: [a, b, c, ROUTER], upper, ..V4::udp(address(26)) };
    link(mac(6), mac(0), IPV4, &packet.bytes())
}

/// Outer packets on the wire, in Polder's counters and in those of the kernel's interface.
fn counts<const V6: bool>(judge: &mut Judge<V6>, tunnel: &Tunnel) -> anyhow::Result<()> {
    let before = counted(judge, tunnel)?;
    judge.wire.forget();
    let _ = some_pings(judge, tunnel);
    interrupt::retry(COUNTED, Duration::from_millis(50), || {
        let seen = [From::Polder, From::Kernel].map(|from| judge.packets_of(from, tunnel).len() as u64);
        let now = counted(judge, tunnel)?;
        let of = |place: usize| [now[place] - before[place], now[place + 1] - before[place + 1]];
        let [polder, kernel] = [of(0), of(2)];
        let is_same = seen[0] >= 3 && polder == seen && kernel == seen;
        ensure!(is_same, "on the wire {seen:?}, by Polder {polder:?}, by the kernel {kernel:?}");
        Ok(())
    })
}

/// Packets into and out of the tunnel as Polder counts them, then as the kernel does, which sees the former arrive.
fn counted<const V6: bool>(judge: &mut Judge<V6>, tunnel: &Tunnel) -> anyhow::Result<[u64; 4]> {
    let interface = tunnel.interface();
    Ok([
        counter(judge, tunnel, "sent")?,
        counter(judge, tunnel, "received")?,
        judge.kernel.0.statistics(&interface, &["rx_packets"])?,
        judge.kernel.0.statistics(&interface, &["tx_packets"])?,
    ])
}

/// Every outer packet of the tunnel as it arrives.
fn headers<const V6: bool>(judge: &mut Judge<V6>, tunnel: &Tunnel) -> anyhow::Result<()> {
    judge.wire.forget();
    judge.near(&format!("ping -q -c 3 -i 0.02 -W 2 -Q {CLASS} {}", tunnel.far()))?;
    let packets = judge.packets_of(From::Polder, tunnel);
    let echoes = packets.iter().filter(|(frame, outer)| is_echo(frame, inner(outer))).count();
    ensure!(echoes >= 3, "{echoes} echoes of 3 were seen");
    packets.iter().try_for_each(|packet| header(tunnel, packet))
}

fn header(tunnel: &Tunnel, (frame, outer): &(Vec<u8>, Outer)) -> anyhow::Result<()> {
    ensure!(outer.payload == ETHERNET + 20, "options in the outer header");
    ensure!(sum(&frame[ETHERNET..outer.payload]) == 0xffff, "a wrong checksum of the outer header");
    let (class, ttl) = outer.class_and_ttl(frame);
    let inner = inner(outer).context("a fragment")?;
    let hops = ttl_inside(frame, Some(inner)).context("no hops inside")?;
    let expected = match tunnel.place {
        Place::Plain => (64, inside_class(frame, inner)? >> 2),
        Place::Promising => (hops, inside_class(frame, inner)? >> 2),
        Place::Bound => (9, 46),
    };
    ensure!((ttl, class >> 2) == expected, "TTL and DSCP {:?}, not {expected:?}", (ttl, class >> 2));
    ensure!(Some(class & 3) == ecn(frame, inner), "ECN {} outside", class & 3);
    let forbids = Outer::forbids_cuts(frame);
    ensure!(forbids == (tunnel.place == Place::Bound), "DF is {forbids}");
    ensure!(!is_echo(frame, Some(inner)) || hops == 63, "an echo with {hops} hops left");
    let version = frame[outer.payload] >> 4;
    ensure!(version == if tunnel.v6 { 6 } else { 4 }, "version {version} inside");
    let length = match tunnel.v6 {
        true => u16_at(frame, outer.payload + 4).map(|length| length + 40),
        false => u16_at(frame, outer.payload + 2),
    };
    let carried = outer.end - outer.payload;
    ensure!(length.map(usize::from) == Some(carried), "{carried} bytes around a packet of {length:?}");
    Ok(())
}

/// Traffic class inside.
fn inside_class(frame: &[u8], (kind, start): (u16, usize)) -> anyhow::Result<u8> {
    let word = u16_at(frame, start).context("nothing inside")?;
    Ok(if kind == 0x0800 { word.to_be_bytes()[1] } else { (word >> 4).to_be_bytes()[1] })
}

/// The router's link-layer address on the TAP of a tunnel.
pub(super) fn router<const V6: bool>(judge: &Judge<V6>, tunnel: &Tunnel) -> anyhow::Result<[u8; 6]> {
    router_mac(judge, &format!("{} dev {}", tunnel.gateway(), tunnel.tap()))
}
