//! Checks of every encapsulation.

use super::outer::ecn;
use super::wire::{Faulty as _, From};
use super::{Encapsulation, Judge, Tunnel as _};
use anyhow::{Context as _, ensure};

/// Packets of a check of congestion.
const MARKED: u64 = 3;
/// Files with counters of packets that have met congestion.
const COUNTERS: [&str; 2] = ["/proc/net/netstat", "/proc/net/snmp6"];

pub(super) fn some_pings<E: Encapsulation>(judge: &mut Judge<E>, tunnel: &E::Tunnel) -> anyhow::Result<()> {
    judge.far(&format!("ping -q -c 3 -i 0.02 -W 1 -s 333 {}", tunnel.near())).map(drop)
}

/// Text that a ping of the host prints whose packets are too long and may not be cut.
pub(super) fn too_long<E: Encapsulation>(judge: &Judge<E>, size: u16, to: &str) -> anyhow::Result<String> {
    let mut command = judge.near.command("ping");
    let words = format!("-c 1 -W 2 -M do -s {size} {to}");
    let output = command.args(words.split_whitespace()).output().context("cannot start ping")?;
    let said = [output.stdout, output.stderr].concat();
    Ok(String::from_utf8_lossy(&said).into_owned())
}

/// Packets that a counter of `/proc/net/netstat` has, whose names and values are two lines, and IPv6's of
/// `/proc/net/snmp6`, a line each.
fn congested(netstat: &str, snmp6: &str) -> Option<u64> {
    let mut lines = netstat.lines().filter(|line| line.starts_with("IpExt:"));
    let (names, values) = (lines.next()?, lines.next()?);
    let at = names.split_whitespace().position(|name| name == "InCEPkts")?;
    let v4 = values.split_whitespace().nth(at)?.parse::<u64>().ok()?;
    let v6 = snmp6.lines().find_map(|line| line.strip_prefix("Ip6InCEPkts"));
    Some(v4 + v6.and_then(|number| number.trim().parse::<u64>().ok()).unwrap_or(0))
}

/// Packets that have met congestion, as the kernel counts them.
fn congested_far<E: Encapsulation>(judge: &mut Judge<E>) -> anyhow::Result<u64> {
    let [netstat, snmp6] = COUNTERS.map(|file| judge.kernel.read(file));
    congested(&netstat?, &snmp6?).context("the kernel counts no marks")
}

/// Congestion marks as the host counts them.
fn congested_near<E: Encapsulation>(judge: &Judge<E>) -> anyhow::Result<u64> {
    let [netstat, snmp6] = COUNTERS.map(|file| judge.near(&format!("cat {file}")));
    congested(&netstat?, &snmp6?).context("the namespace counts no marks")
}

/// Polder's packets meet congestion; the kernel has to see it inside.
pub(super) fn congestion_in<E: Encapsulation>(
    judge: &mut Judge<E>,
    tunnel: &E::Tunnel,
) -> anyhow::Result<()> {
    let before = congested_far(judge)?;
    judge.wire.ways().congested = Some(From::Polder);
    let result = capable(judge, tunnel);
    judge.wire.ways().congested = None;
    result?;
    let seen = congested_far(judge)? - before;
    let expected = E::marks(tunnel) * MARKED;
    ensure!(seen >= expected, "{MARKED} packets were marked, the kernel saw {seen} instead of {expected}");
    Ok(())
}

/// Packets that are capable of ECN inside are so outside.
pub(super) fn capable<E: Encapsulation>(judge: &mut Judge<E>, tunnel: &E::Tunnel) -> anyhow::Result<()> {
    judge.near(&format!("ping -q -c {MARKED} -i 0.02 -W 2 -Q 2 {}", tunnel.far()))?;
    let packets = judge.packets(From::Polder).into_iter();
    let silent = packets.filter(|(frame, outer)| {
        let inside = E::Fault::inner(outer, frame).and_then(|inner| ecn(frame, inner));
        outer.is_whole() && inside == Some(2) && outer.class_and_ttl(frame).0 & 3 == 0
    });
    let silent = silent.count();
    ensure!(silent == 0, "{silent} outer packets do not say that what is inside is capable of ECN");
    Ok(())
}

/// The kernel's packets meet congestion; the host has to see it inside, and what cannot say so is dropped.
pub(super) fn congestion_out<E: Encapsulation>(
    judge: &mut Judge<E>,
    tunnel: &E::Tunnel,
) -> anyhow::Result<()> {
    let before = congested_near(judge)?;
    let refused = judge.gateway.dropped("ecn-not-capable")?;
    judge.wire.ways().congested = Some(From::Kernel);
    let able = judge.far(&format!("ping -q -c {MARKED} -i 0.02 -W 2 -Q 2 {}", tunnel.near()));
    let other = judge.far(&format!("ping -q -c 1 -W 1 {}", tunnel.near()));
    judge.wire.ways().congested = None;
    able.context("marked packets that are capable of ECN")?;
    ensure!(other.is_err(), "a marked packet that is not capable of ECN came through");
    let seen = congested_near(judge)? - before;
    ensure!(seen >= MARKED, "{MARKED} packets were marked, the host saw {seen}");
    ensure!(judge.gateway.dropped("ecn-not-capable")? > refused, "nothing was dropped as ecn-not-capable");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_read_by_their_name() {
        let text = "TcpExt: A B\nTcpExt: 1 2\nIpExt: InOctets InCEPkts X\nIpExt: 9 17 3\n";
        assert_eq!(congested(text, ""), Some(17));
        assert_eq!(congested(text, "Ip6InECT0Pkts   \t2\nIp6InCEPkts     \t4\n"), Some(21));
        assert_eq!(congested("IpExt: InOctets\nIpExt: 9\n", ""), None);
    }
}
