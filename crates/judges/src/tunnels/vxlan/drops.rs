//! Packets that Polder has to drop, and the expected drop reasons.

use super::header::{VALID, read};
use super::tunnel::{CHECKED, OVER_V6, PLAIN, Tunnel, ZERO_V6};
use super::{Judge, Refusal, checks};
use crate::tunnels::Tunnel as _;
use crate::tunnels::outer::Outer;
use crate::tunnels::wire::From;
use anyhow::{Context as _, ensure};
use polder_testbed::interrupt;
use std::time::Duration;

/// Time for which an answer may take.
const ANSWERED: Duration = Duration::from_secs(10);

/// Change of a packet of the kernel's.
type Change = fn(&mut Vec<u8>, &Outer);

/// Tunnels, change, and drop reason.
const REFUSALS: [(&Tunnel, &str, Change, &str); 9] = [
    (&PLAIN, "a frame of 13 bytes", |frame, outer| outer.shorten(frame, 16 + 13), "ethernet-truncated"),
    (&PLAIN, "no frame", |frame, outer| outer.shorten(frame, 16), "ethernet-truncated"),
    (&PLAIN, "a UDP length beyond the packet", |frame, outer| long_length(frame, outer), "udp-bad-length"),
    (&PLAIN, "a UDP length of 7", |frame, outer| outer.set_length(frame, 7), "udp-bad-length"),
    (
        &PLAIN,
        "a wrong checksum that is not needed",
        |frame, outer| wrong_checksum(frame, outer),
        "udp-bad-checksum",
    ),
    (&CHECKED, "a wrong checksum", |frame, outer| wrong_checksum(frame, outer), "udp-bad-checksum"),
    (&OVER_V6, "a wrong checksum", |frame, outer| wrong_checksum(frame, outer), "udp-bad-checksum"),
    (
        &OVER_V6,
        "no checksum",
        |frame, outer| frame[outer.payload + 6..outer.payload + 8].fill(0),
        "tunnel-missing-checksum",
    ),
    (&ZERO_V6, "a wrong checksum", |frame, outer| wrong_checksum(frame, outer), "udp-bad-checksum"),
];

/// Packets of no tunnel of Polder's, which the kernel has, and drop reasons that they would have here.
const LEFT: [(&Tunnel, &str, Change, &str); 5] = [
    (&PLAIN, "half a header", |frame, outer| outer.shorten(frame, 12), "vxlan-truncated"),
    (&PLAIN, "no flag", |frame, outer| no_flag(frame, outer), "vxlan-no-network"),
    (&PLAIN, "another network", |frame, outer| other_network(frame, outer), "no-tunnel"),
    (&OVER_V6, "another network", |frame, outer| other_network(frame, outer), "no-tunnel"),
    (&ZERO_V6, "no flag", |frame, outer| no_flag(frame, outer), "vxlan-no-network"),
];

/// Packets that are odd and have to be taken.
const TAKEN: [(&Tunnel, &str, Change); 3] = [
    (&PLAIN, "reserved bits are ignored", |frame, outer| {
        frame[outer.vxlan()] |= !VALID;
        frame[outer.vxlan() + 1..outer.vxlan() + 4].fill(0xff);
        frame[outer.vxlan() + 7] = 0xff;
    }),
    (&PLAIN, "a right checksum that is not needed is taken", |frame, outer| outer.put_checksum(frame)),
    (&CHECKED, "no checksum is taken", |frame, outer| {
        frame[outer.payload + 6..outer.payload + 8].fill(0);
    }),
];

fn no_flag(frame: &mut [u8], outer: &Outer) {
    frame[outer.vxlan()] &= !VALID;
    outer.seal_udp(frame);
}

fn other_network(frame: &mut [u8], outer: &Outer) {
    frame[outer.vxlan() + 6] ^= 0x40;
    outer.seal_udp(frame);
}

fn long_length(frame: &mut [u8], outer: &Outer) {
    outer.set_length(frame, outer.end - outer.payload + 1);
}

fn wrong_checksum(frame: &mut [u8], outer: &Outer) {
    outer.put_checksum(frame);
    frame[outer.payload + 6] ^= 0x40;
}

/// Packets that have to be dropped, and the reasons; and what is odd and has to be taken.
pub(super) fn refusals() -> Vec<Refusal> {
    let mut all = Vec::<Refusal>::new();
    for (tunnel, what, change, reason) in REFUSALS {
        let ask = move |judge: &mut Judge| {
            let frame = judge.changed(tunnel, change)?;
            let dropped = judge.refuses(reason, || judge.wire.inject(&frame))?;
            ensure!(dropped == 1, "{dropped} packets were dropped");
            checks::reaches(judge, tunnel)
        };
        all.push((format!("{}: {what} is dropped as {reason}", tunnel.name), Box::new(ask)));
    }
    for (tunnel, what, change, reason) in LEFT {
        let ask = move |judge: &mut Judge| {
            let frame = judge.changed(tunnel, change)?;
            judge.leaves(tunnel, &frame, reason)
        };
        all.push((format!("{}: {what} is left to the kernel", tunnel.name), Box::new(ask)));
    }
    for (tunnel, what, change) in TAKEN {
        let ask = move |judge: &mut Judge| judge.takes(tunnel, change);
        all.push((format!("{}: {what}", tunnel.name), Box::new(ask)));
    }
    all.push((
        format!("{}: fragments stay with the kernel", PLAIN.name),
        Box::new(Judge::kernel_keeps_fragments),
    ));
    all
}

impl Judge {
    /// A packet of the kernel's.
    fn sample(&mut self, tunnel: &Tunnel) -> anyhow::Result<(Vec<u8>, Outer)> {
        self.wire.forget();
        self.far(&format!("ping -q -c 1 -W 2 -s 56 {}", tunnel.near()))?;
        let packets = self.packets_of(From::Kernel, tunnel);
        let is_ping = |(frame, outer): &(Vec<u8>, Outer)| frame.get(outer.inside().start + 23) == Some(&1);
        packets.into_iter().find(is_ping).context("no ping of the kernel was seen")
    }

    /// A packet of the kernel's with a change.
    fn changed(&mut self, tunnel: &Tunnel, change: Change) -> anyhow::Result<Vec<u8>> {
        let (mut frame, outer) = self.sample(tunnel)?;
        change(&mut frame, &outer);
        Ok(frame)
    }

    /// The host's answer tells that the ping has come through.
    fn takes(&mut self, tunnel: &Tunnel, change: Change) -> anyhow::Result<()> {
        let frame = self.changed(tunnel, change)?;
        self.wire.forget();
        self.wire.inject(&frame)?;
        interrupt::retry(ANSWERED, Duration::from_millis(10), || {
            ensure!(!self.packets_of(From::Polder, tunnel).is_empty(), "nobody answers");
            Ok(())
        })
    }

    /// The first of several fragments: nothing that Polder counts.
    fn kernel_keeps_fragments(&mut self) -> anyhow::Result<()> {
        let (mut frame, outer) = self.sample(&PLAIN)?;
        frame[20..22].copy_from_slice(&[0x20, 0]);
        outer.repair(&mut frame);
        ensure!(read(&frame).is_none(), "the packet is no fragment");
        const REASONS: [&str; 4] = ["vxlan-fragment", "fragment-timeout", "not-for-us", "udp-truncated"];
        let dropped = |judge: &Self| {
            REASONS.iter().map(|reason| judge.gateway.dropped(reason)).sum::<anyhow::Result<u64>>()
        };
        let before = dropped(self)?;
        self.wire.inject(&frame)?;
        checks::reaches(self, &PLAIN)?;
        let after = dropped(self)?;
        ensure!(after == before, "{} packets were dropped", after - before);
        Ok(())
    }
}
