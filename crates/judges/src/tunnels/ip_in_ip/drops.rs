//! Packets that Polder has to drop, and others that it has to leave to the kernel.

use super::Judge;
use super::checks::router;
use super::header::{PROTOCOLS, inner};
use super::tunnel::Tunnel;
use crate::differential::packet::{IPV4, V4, link};
use crate::tunnels::Tunnel as _;
use crate::tunnels::guest::{Linked as _, reaches};
use crate::tunnels::outer::{ETHERNET, Outer, is_echo};
use crate::tunnels::wire::From;
use anyhow::{Context as _, ensure};
use polder_testbed::traffic::raw::PacketSocket;
use std::net::Ipv4Addr;

/// Last octet of an outer address that no tunnel has.
pub(super) const STRANGER: u8 = 77;
/// Drop reasons of outer packets that are not whole, or of no tunnel.
const REASONS: [&str; 4] = ["no-tunnel", "not-for-us", "tunnel-bad-protocol", "tunnel-recursion"];

/// Sends a packet of the guest's with a change, which has to be dropped for `reason`.
fn refused<const V6: bool>(
    judge: &mut Judge<V6>,
    tunnel: &Tunnel,
    reason: &str,
    change: impl FnOnce(&mut Vec<u8>, &Outer),
) -> anyhow::Result<()> {
    let (mut frame, outer) = sample(judge, tunnel)?;
    change(&mut frame, &outer);
    let dropped = judge.refuses(reason, || judge.wire.inject(&frame))?;
    ensure!(dropped == 1, "{dropped} packets were dropped");
    Ok(())
}

/// An echo request of the guest.
fn sample<const V6: bool>(judge: &mut Judge<V6>, tunnel: &Tunnel) -> anyhow::Result<(Vec<u8>, Outer)> {
    judge.wire.forget();
    judge.far(&format!("ping -q -c 1 -W 2 -s 200 {}", tunnel.near()))?;
    let packets = judge.packets_of(From::Kernel, tunnel).into_iter();
    let mut echoes = packets.filter(|(frame, outer)| is_echo(frame, inner(outer)));
    echoes.next().context("no packet of the tunnel was seen")
}

pub(super) fn other_version<const V6: bool>(judge: &mut Judge<V6>, tunnel: &Tunnel) -> anyhow::Result<()> {
    // 4 and 6 differ in one bit.
    refused(judge, tunnel, "tunnel-bad-protocol", |frame, outer| frame[outer.payload] ^= 0x20)
}

pub(super) fn half_header<const V6: bool>(judge: &mut Judge<V6>, tunnel: &Tunnel) -> anyhow::Result<()> {
    refused(judge, tunnel, "tunnel-bad-protocol", |frame, outer| outer.set_end(frame, outer.payload + 10))
}

/// The rest never comes.
pub(super) fn lone_fragment<const V6: bool>(judge: &mut Judge<V6>, tunnel: &Tunnel) -> anyhow::Result<()> {
    refused(judge, tunnel, "fragment-timeout", |frame, outer| {
        frame[20..22].copy_from_slice(&[0x20, 0]);
        outer.set_end(frame, outer.payload + 96);
    })
}

pub(super) fn wrong_checksum<const V6: bool>(judge: &mut Judge<V6>, tunnel: &Tunnel) -> anyhow::Result<()> {
    refused(judge, tunnel, "ipv4-bad-checksum", |frame, outer| frame[outer.payload + 10] ^= 0x40)
}

/// RFC 4213, 3.6.
pub(super) fn martian<const V6: bool>(judge: &mut Judge<V6>, tunnel: &Tunnel) -> anyhow::Result<()> {
    refused(judge, tunnel, "martian-source", |frame, outer| {
        let source = Ipv4Addr::new(192, 0, 2, 1).to_ipv6_mapped();
        frame[outer.payload + 8..outer.payload + 24].copy_from_slice(&source.octets());
    })
}

/// An IPv4 packet that the host sends into the tunnel from the address of its other end (RFC 2003, 4.4).
pub(super) fn recursion<const V6: bool>(judge: &mut Judge<V6>, tunnel: &Tunnel) -> anyhow::Result<()> {
    let [_, remote] = tunnel.ends();
    let [source, destination] = [remote, &tunnel.far()].map(str::parse::<Ipv4Addr>);
    let packet = V4 { source: source?.octets(), ..V4::udp(destination?.octets()) };
    reaches(judge, tunnel)?;
    let frame = link(router(judge, tunnel)?, [2, 0x70, 0x6f, 0, 0, 9], IPV4, &packet.bytes());
    let socket = judge.near.inside(|| PacketSocket::open(&tunnel.tap()))??;
    let sends = || socket.send(&frame).context("cannot send by the TAP");
    judge.refuses("tunnel-recursion", sends).map(drop)
}

/// Sends a packet of the guest's with a change, which is of no tunnel: nothing of it is dropped here, or answered.
fn left<const V6: bool>(
    judge: &mut Judge<V6>,
    tunnel: &Tunnel,
    change: impl FnOnce(&mut Vec<u8>, &Outer),
) -> anyhow::Result<()> {
    let (mut frame, outer) = sample(judge, tunnel)?;
    let identity = |frame: &[u8]| {
        let echo = outer.payload + if V6 { 44 } else { 24 };
        frame.get(echo..echo + 4).map(<[u8]>::to_vec)
    };
    let own = identity(&frame);
    change(&mut frame, &outer);
    let dropped = |judge: &Judge<V6>| {
        REASONS.iter().map(|reason| judge.gateway.dropped(reason)).sum::<anyhow::Result<u64>>()
    };
    let before = dropped(judge)?;
    judge.wire.forget();
    judge.wire.inject(&frame)?;
    // What has come before a ping that is answered has been counted, and answered.
    judge.far(&format!("ping -q -c 1 -W 2 {}", tunnel.near()))?;
    let after = dropped(judge)?;
    ensure!(after == before, "it was taken and dropped");
    let answers = judge.packets_of(From::Polder, tunnel);
    let is_answered = answers.iter().any(|(frame, _)| identity(frame) == own);
    ensure!(!is_answered, "it was taken and answered");
    Ok(())
}

/// A packet with the tunnel's end addresses but another inner protocol.
pub(super) fn other_protocol<const V6: bool>(judge: &mut Judge<V6>, tunnel: &Tunnel) -> anyhow::Result<()> {
    left(judge, tunnel, |frame, outer| outer.set_protocol(frame, PROTOCOLS[usize::from(!V6)]))
}

pub(super) fn stranger<const V6: bool>(judge: &mut Judge<V6>, tunnel: &Tunnel) -> anyhow::Result<()> {
    left(judge, tunnel, |frame, outer| outer.set_sender(frame, STRANGER))
}

/// Offset of the first byte behind the outer header of a frame without options.
pub(super) const INSIDE: usize = ETHERNET + 20;
