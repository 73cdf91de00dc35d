//! TCP through Polder and through the bridge of the guest's own kernel, in turns.

use super::bench::Bench;
use super::checks::{ping, stream};

/// A rate of both ways together beside the other's, for each round.
pub(super) fn ratios(bench: &mut Bench, rounds: usize, seconds: usize) -> anyhow::Result<Vec<[f64; 2]>> {
    let mut rates = Vec::new();
    for _ in 0..rounds {
        bench.configure("")?;
        bench.start()?;
        let ours = both_ways(bench, seconds);
        bench.end()?;
        let ours = ours?;
        bridge(bench, true)?;
        let theirs = both_ways(bench, seconds);
        bridge(bench, false)?;
        rates.push([ours, theirs?]);
    }
    Ok(rates)
}

/// Mbit/s, both ways one after the other.
fn both_ways(bench: &mut Bench, seconds: usize) -> anyhow::Result<f64> {
    ping(bench, 2)?;
    let bits = stream(&bench.far, "10.77.0.2", &["-t", &seconds.to_string()])?;
    Ok(bits / 1e6)
}

/// The kernel's own bridge between the ports' interfaces.
pub(super) fn bridge(bench: &mut Bench, there: bool) -> anyhow::Result<()> {
    if !there {
        return bench.run("ip link del br9").map(drop);
    }
    bench.run("ip link add br9 type bridge")?;
    for name in bench.names.clone() {
        bench.run(&format!("ip link set {name} master br9"))?;
    }
    bench.run("ip link set br9 up").map(drop)
}
