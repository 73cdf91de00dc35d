//! Packets that Polder has to drop, and the expected drop reasons.

use super::header::{CHECKSUM, GRE, KEY, SEQUENCE};
use super::tunnel::{FULL, FULL_PACKETS, FULL_PACKETS_V6, FULL_V6, PACKETS, PACKETS_V6, Tunnel};
use super::{Judge, Refusal};
use crate::differential::packet::{IPV4, IPV6, Upper, V4, V6, link};
use crate::tunnels::Tunnel as _;
use crate::tunnels::guest::{Linked as _, reaches, router_mac};
use crate::tunnels::outer::{BOUND, Outer};
use crate::tunnels::wire::From;
use anyhow::Context as _;
use polder_testbed::traffic::raw::PacketSocket;
use std::net::{Ipv4Addr, Ipv6Addr};

/// Change of a packet of the guest's; `None` when it does not apply to the packet.
type Change = fn(&[u8], &Outer) -> Option<Vec<u8>>;

/// Tunnels to which a change applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Where {
    Everywhere,
    Frames,
    OverIpv6,
}

/// Drop reason, change, and the tunnels that it applies to.
const REFUSALS: [(&str, Change, Where); 7] = [
    ("gre-bad-checksum", bad_checksum, Where::Everywhere),
    ("gre-truncated", truncated, Where::Everywhere),
    ("tunnel-missing-checksum", |frame, outer| outer.without(frame, CHECKSUM), Where::Everywhere),
    ("tunnel-missing-sequence", |frame, outer| outer.without(frame, SEQUENCE), Where::Everywhere),
    ("tunnel-out-of-sequence", |frame, _| Some(frame.to_vec()), Where::Everywhere),
    ("ethernet-truncated", headers_alone, Where::Frames),
    ("ipv6-bad-extension", unknown_option, Where::OverIpv6),
];

/// Changes that make a packet of no tunnel of Polder's, which the kernel has, and drop reasons that it would have here.
const LEFT: [(&str, Change); 4] = [
    ("no-tunnel", wrong_key),
    ("gre-bad-version", |frame, outer| patched(frame, outer.payload + 1, 1)),
    ("gre-bad-flags", |frame, outer| patched(frame, outer.payload, 0x40)),
    ("tunnel-bad-protocol", |frame, outer| of_type(frame, outer, 0x88cc)),
];

/// Further drops of a tunnel that carries packets, without options: answers to keepalives, nothing, another family.
const OF_PACKETS: [(&str, Change); 3] = [
    ("tunnel-bad-protocol", |frame, outer| of_type(frame, outer, 0)),
    ("ipv4-truncated", headers_alone),
    ("ipv6-bad-version", |frame, outer| of_type(frame, outer, 0x86dd)),
];

fn patched(frame: &[u8], at: usize, bits: u8) -> Option<Vec<u8>> {
    let mut changed = frame.to_vec();
    *changed.get_mut(at)? |= bits;
    Some(changed)
}

fn bad_checksum(frame: &[u8], outer: &Outer) -> Option<Vec<u8>> {
    let mut changed = frame.to_vec();
    changed[outer.field(frame, CHECKSUM)?] ^= 0x10;
    Some(changed)
}

fn wrong_key(frame: &[u8], outer: &Outer) -> Option<Vec<u8>> {
    let mut changed = frame.to_vec();
    changed[outer.field(frame, KEY)?] ^= 0x10;
    outer.seal_gre(&mut changed);
    Some(changed)
}

/// The IP packet ends within the GRE header.
fn truncated(frame: &[u8], outer: &Outer) -> Option<Vec<u8>> {
    let mut changed = frame.to_vec();
    outer.set_end(&mut changed, outer.payload + 10);
    Some(changed)
}

/// The IP packet ends behind the GRE header.
fn headers_alone(frame: &[u8], outer: &Outer) -> Option<Vec<u8>> {
    let mut changed = frame.to_vec();
    outer.set_end(&mut changed, outer.payload + outer.gre(frame)?.length + 4);
    if let Some(number) = outer.field(frame, SEQUENCE) {
        // A number that is still to come: the packet is not late.
        let next = u32::from_be_bytes(frame.get(number..number + 4)?.try_into().ok()?).wrapping_add(1 << 20);
        changed[number..number + 4].copy_from_slice(&next.to_be_bytes());
    }
    Outer::read(&changed, GRE)?.seal_gre(&mut changed);
    Some(changed)
}

fn of_type(frame: &[u8], outer: &Outer, protocol: u16) -> Option<Vec<u8>> {
    let mut changed = frame.to_vec();
    changed[outer.payload + 2..outer.payload + 4].copy_from_slice(&protocol.to_be_bytes());
    outer.seal_gre(&mut changed);
    Some(changed)
}

/// An option that has to be understood (RFC 8200, 4.2).
fn unknown_option(frame: &[u8], outer: &Outer) -> Option<Vec<u8>> {
    let mut changed = frame.to_vec();
    changed[(outer.limit.is_some()).then_some(outer.payload - 6)?] = 0xc2;
    Some(changed)
}

/// Packets that have to be dropped, and the reasons; and packets that are not to be taken.
pub(super) fn refusals() -> Vec<Refusal> {
    let mut all = Vec::<Refusal>::new();
    let mut dropped = |tunnel: &'static Tunnel, reason: &'static str, change: Change| {
        let ask = move |judge: &mut Judge| {
            let frame = judge.changed(tunnel, change)?;
            judge.refuses(reason, || judge.wire.inject(&frame)).map(drop)
        };
        all.push((format!("{}: dropped as {reason}", tunnel.name), Box::new(ask)));
    };
    for tunnel in [&PACKETS, &PACKETS_V6] {
        OF_PACKETS.iter().for_each(|&(reason, change)| dropped(tunnel, reason, change));
    }
    const ALL_OPTIONS: [&Tunnel; 4] = [&FULL, &FULL_V6, &FULL_PACKETS, &FULL_PACKETS_V6];
    for tunnel in ALL_OPTIONS {
        let fits = |place: Where| match place {
            Where::Everywhere => true,
            Where::Frames => !tunnel.routed,
            Where::OverIpv6 => tunnel.v6,
        };
        let fitting = REFUSALS.iter().filter(|refusal| fits(refusal.2));
        fitting.for_each(|&(reason, change, _)| dropped(tunnel, reason, change));
    }
    for tunnel in ALL_OPTIONS {
        for (reason, change) in LEFT {
            let ask = move |judge: &mut Judge| {
                let frame = judge.changed(tunnel, change)?;
                judge.leaves(tunnel, &frame, reason)
            };
            all.push((format!("{}: not taken to be dropped as {reason}", tunnel.name), Box::new(ask)));
        }
        let ask = move |judge: &mut Judge| {
            reaches(judge, tunnel)?;
            judge.refuses("tunnel-recursion", || judge.send_round(tunnel)).map(drop)
        };
        all.push((format!("{}: dropped as tunnel-recursion", tunnel.name), Box::new(ask)));
    }
    all
}

impl Judge {
    /// A packet of the guest's with a change.
    fn changed(&mut self, tunnel: &Tunnel, change: Change) -> anyhow::Result<Vec<u8>> {
        let (template, outer) = self.packet_of(tunnel)?;
        change(&template, &outer).context("cannot be made of the guest's packet")
    }

    /// A packet from the guest that was received through the tunnel.
    fn packet_of(&mut self, tunnel: &Tunnel) -> anyhow::Result<(Vec<u8>, Outer)> {
        reaches(self, tunnel)?;
        self.far(&format!("ping -q -c 1 -W 2 -s 200 {}", tunnel.near()))?;
        let is_own = |(frame, outer): &(Vec<u8>, Outer)| {
            outer.v6 == tunnel.v6
                && outer.is_from(frame, tunnel.ends()[1])
                && outer.gre(frame).is_some_and(|gre| gre.key == tunnel.key)
                && frame.len() > 200
        };
        let found = self.packets(From::Kernel).into_iter().find(is_own);
        found.context("no packet of the tunnel was seen")
    }

    /// An outer packet of the tunnel, in a frame that the host sends into the tunnel.
    fn send_round(&self, tunnel: &Tunnel) -> anyhow::Result<()> {
        let socket = self.near.inside(|| PacketSocket::open(&tunnel.tap()))??;
        let gateway = format!("10.79.{}.1", tunnel.number);
        let (to, kind) = match tunnel.routed {
            true => (router_mac(self, &gateway)?, [0x08, 0x00]),
            false => ([0xff; 6], [0x65, 0x58]),
        };
        let upper = Upper::Raw(GRE, [&[0, 0][..], &kind, &[0x55; 80]].concat());
        let [local, remote] = tunnel.ends();
        let (kind, packet) = if tunnel.v6 {
            let [source, destination] = [local, remote].map(str::parse::<Ipv6Addr>);
            let whole = V6 { source: source?.octets(), upper, ..V6::udp(destination?.octets()) };
            (IPV6, whole.bytes())
        } else {
            let [source, destination] = [local, remote].map(str::parse::<Ipv4Addr>);
            let whole =
                V4 { source: source?.octets(), fragment: BOUND, upper, ..V4::udp(destination?.octets()) };
            (IPV4, whole.bytes())
        };
        let frame = link(to, [2, 0x70, 0x6f, 0, 0, 9], kind, &packet);
        socket.send(&frame).context("cannot send by the TAP")
    }
}
