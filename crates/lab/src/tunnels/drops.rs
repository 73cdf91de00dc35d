//! What Polder has to drop, and the reasons that it has to give.

use super::outer::{CHECKSUM, Outer, SEQUENCE};
use super::wire::From;
use super::{ENDS, FULL, FULL_V6, Judge, Tunnel, checks};
use crate::traffic::raw::PacketSocket;
use crate::{clock, interrupt};
use anyhow::{Context as _, ensure};
use std::net::Ipv4Addr;
use std::time::Duration;

/// How long a packet may take until it is counted.
const COUNTED: Duration = Duration::from_secs(10);

/// What is done to a packet of the guest's; `None` when that cannot be done to it.
type Change = fn(&[u8], &Outer) -> Option<Vec<u8>>;

/// Reason, what is done, and whether it can be done in IPv6 alone.
const REFUSALS: [(&str, Change, bool); 11] = [
    ("gre-bad-checksum", bad_checksum, false),
    ("no-tunnel", wrong_key, false),
    ("gre-truncated", truncated, false),
    ("gre-bad-version", |frame, outer| patched(frame, outer.payload + 1, 1), false),
    ("gre-bad-flags", |frame, outer| patched(frame, outer.payload, 0x40), false),
    ("tunnel-bad-protocol", wrong_protocol, false),
    ("tunnel-missing-checksum", |frame, outer| outer.without(frame, CHECKSUM), false),
    ("tunnel-missing-sequence", |frame, outer| outer.without(frame, SEQUENCE), false),
    ("tunnel-out-of-sequence", |frame, _| Some(frame.to_vec()), false),
    ("ethernet-truncated", headers_alone, false),
    ("ipv6-bad-extension", unknown_option, true),
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
    changed[outer.field(frame, super::outer::KEY)?] ^= 0x10;
    outer.seal(&mut changed);
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
    let number = outer.field(frame, SEQUENCE)?;
    // A number that is still to come: the packet is not late.
    let next = u32::from_be_bytes(frame.get(number..number + 4)?.try_into().ok()?).wrapping_add(1 << 20);
    changed[number..number + 4].copy_from_slice(&next.to_be_bytes());
    Outer::read(&changed)?.seal(&mut changed);
    Some(changed)
}

fn wrong_protocol(frame: &[u8], outer: &Outer) -> Option<Vec<u8>> {
    let mut changed = frame.to_vec();
    changed[outer.payload + 2..outer.payload + 4].copy_from_slice(&[0x88, 0xcc]);
    outer.seal(&mut changed);
    Some(changed)
}

/// An option that has to be understood (RFC 8200, 4.2).
fn unknown_option(frame: &[u8], outer: &Outer) -> Option<Vec<u8>> {
    let mut changed = frame.to_vec();
    changed[(outer.limit.is_some()).then_some(outer.payload - 6)?] = 0xc2;
    Some(changed)
}

impl Judge {
    /// Packets that have to be dropped, and the reasons.
    pub(super) fn refusals(&mut self) -> anyhow::Result<()> {
        for tunnel in [&FULL, &FULL_V6] {
            let template = self.packet_of(tunnel)?;
            let outer = Outer::read(&template).context("the guest's packet is none of a tunnel")?;
            let fitting = REFUSALS.iter().filter(|(.., v6_alone)| tunnel.v6 || !v6_alone);
            for &(reason, change, _) in fitting {
                let result = change(&template, &outer)
                    .context("cannot be made of the guest's packet")
                    .and_then(|frame| self.refuses(reason, || self.wire.inject(&frame)));
                interrupt::check()?;
                self.note(format!("{}: dropped as {reason}", tunnel.name), result);
            }
            let looped = self.refuses("tunnel-recursion", || self.send_round(tunnel));
            self.note(format!("{}: dropped as tunnel-recursion", tunnel.name), looped);
        }
        Ok(())
    }

    /// A packet of the guest's that came through the tunnel.
    fn packet_of(&mut self, tunnel: &Tunnel) -> anyhow::Result<Vec<u8>> {
        checks::reaches(self, tunnel)?;
        self.asked(&format!("ping -q -c 1 -W 2 -s 200 {}", tunnel.host()))?;
        let mut seen = self.wire.seen(From::Guest).into_iter();
        let own = |frame: &Vec<u8>| {
            let outer = Outer::read(frame);
            let gre = outer.and_then(|outer| outer.gre(frame));
            outer.is_some_and(|outer| outer.v6 == tunnel.v6)
                && gre.is_some_and(|gre| gre.key == tunnel.key)
                && frame.len() > 200
        };
        seen.find(own).context("no packet of the tunnel was seen")
    }

    /// Whether what `send` sends is dropped, once, for a reason.
    fn refuses(&self, reason: &str, send: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<()> {
        let before = self.gateway.dropped(reason)?;
        send()?;
        let end = clock::now() + COUNTED;
        loop {
            let now = self.gateway.dropped(reason)?;
            if now > before {
                return Ok(());
            }
            ensure!(clock::now() < end, "it was not counted as {reason}");
            interrupt::sleep(Duration::from_millis(10))?;
        }
    }

    /// An outer packet of the tunnel, in a frame that the host sends into the tunnel.
    fn send_round(&self, tunnel: &Tunnel) -> anyhow::Result<()> {
        let socket = self.near.inside(|| PacketSocket::open(&tunnel.tap()))??;
        let mut frame = vec![0xff; 6];
        frame.extend([2, 0x70, 0x6f, 0, 0, 9]);
        let gre = [0, 0, 0x65, 0x58];
        let [local, remote] = ENDS[usize::from(tunnel.v6)];
        if tunnel.v6 {
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 84, 47, 64]);
            for end in [local, remote] {
                frame.extend(end.parse::<std::net::Ipv6Addr>()?.octets());
            }
        } else {
            frame.extend([8, 0]);
            let mut header = vec![0x45, 0, 0, 104, 0, 1, 0x40, 0, 64, 47, 0, 0];
            for end in [local, remote] {
                header.extend(end.parse::<Ipv4Addr>()?.octets());
            }
            let sum = !super::outer::sum(&header);
            header[10..12].copy_from_slice(&sum.to_be_bytes());
            frame.extend(header);
        }
        frame.extend(gre);
        frame.extend([0x55; 80]);
        socket.send(&frame).context("cannot send by the TAP")
    }
}
