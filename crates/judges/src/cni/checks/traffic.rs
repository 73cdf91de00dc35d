//! Packets of containers, and of others beside them.

use super::super::bench::{Bench, LEFT, RIGHT};
use anyhow::ensure;
use polder_testbed::clock;
use std::net::Ipv4Addr;
use std::time::Duration;

/// Containers a minute; half of them where the machine does other work, as in a test.
const A_MINUTE: u32 = 250;

pub(super) fn pinned(bench: &mut Bench) -> anyhow::Result<String> {
    let thief = bench.container("c1")?;
    let victim = bench.container("c2")?;
    let own = bench.add(&thief)?;
    let address = bench.add(&victim)?;
    bench.reaches(&thief)?;
    bench.reaches(&victim)?;
    let before = bench.drops("source-guard")?;
    ensure!(before == 0, "{before} packets were dropped before");
    // The neighbour's IP address.
    let cidr = |address: Ipv4Addr| format!("{address}/24");
    // Addresses of the same network go with its first one.
    thief.ip(&["address", "del", &cidr(own), "dev", "eth0"])?;
    thief.ip(&["address", "add", &cidr(address), "dev", "eth0"])?;
    bench.is_silent(&thief)?;
    let taken = bench.drops("source-guard")?;
    ensure!(taken > before, "nothing was counted");
    bench.reaches(&victim)?;
    thief.ip(&["address", "del", &cidr(address), "dev", "eth0"])?;
    thief.ip(&["address", "add", &cidr(own), "dev", "eth0"])?;
    bench.reaches(&thief)?;
    // The neighbour's MAC address, while the victim is quiet.
    let text = |mac: [u8; 6]| mac.map(|byte| format!("{byte:02x}")).join(":");
    let (first, second) = (text(thief.mac("eth0")?), text(victim.mac("eth0")?));
    thief.ip(&["link", "set", "eth0", "address", &second])?;
    bench.is_silent(&thief)?;
    ensure!(bench.drops("source-guard")? > taken, "nothing was counted");
    bench.reaches(&victim)?;
    thief.ip(&["link", "set", "eth0", "address", &first])?;
    bench.reaches(&thief)?;
    Ok(format!("{} packets dropped", bench.drops("source-guard")?))
}

pub(super) fn rate(bench: &mut Bench) -> anyhow::Result<String> {
    let time = Duration::from_secs(if bench.is_quick { 12 } else { 60 });
    let containers =
        (0..8).map(|number| bench.container(&format!("c{number}"))).collect::<anyhow::Result<Vec<_>>>()?;
    // The stations know each other before.
    bench.come_and_go(&[], Duration::from_secs(1))?;
    let begun = clock::now();
    let (count, arrivals) = bench.come_and_go(&containers, time)?;
    let seconds = (clock::now() - begun).as_secs_f64();
    let minute = f64::from(count) * 60.0 / seconds;
    ensure!(arrivals.lost == 0 && arrivals.reordered == 0, "{arrivals:?} beside {count} containers");
    let least = if bench.is_quick { A_MINUTE / 2 } else { A_MINUTE };
    ensure!(minute >= f64::from(least), "{minute:.0} containers a minute");
    bench.nothing_is_left()?;
    Ok(format!("{minute:.0} containers a minute, {} packets between {LEFT} and {RIGHT}", arrivals.sent))
}
