//! Maximum rate of the AF_XDP generator over one wire, whose other end counts and drops.
//!
//! Run it as root, alone on the machine, beside `perf record --all-cpus --call-graph fp` for a profile:
//!
//! ```text
//! cargo bench --package polder-lab --bench generator -- [ROUNDS] [WHERE]
//! ```
//!
//! `WHERE` is who receives: `apart` (the NAPI thread of the other end on the last core), `beside` (the same
//! thread on the generator's core), `softirq` (on the generator's own time) or `stack` (no XDP program at the other end: the kernel's
//! stack, on the generator's own time).

use polder_testbed::topology::{End, Topology, pin_here, put_first};
use polder_testbed::traffic::packet::Talk;
use polder_testbed::traffic::raw::{Generator, Plan, Sink};
use polder_testbed::traffic::sizes::Sizes;
use std::io::Write as _;
use std::net::Ipv4Addr;
use std::time::Duration;

/// Frames as short as they can be, FCS included.
const FRAME_BYTES: usize = 64;

fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1).filter(|argument| argument != "--bench");
    let rounds = arguments.next().map_or(Ok(5), |rounds| rounds.parse::<u32>())?;
    let last = std::thread::available_parallelism()?.get() - 1;
    let mut topology = Topology::new()?;
    let (left, right) = (topology.namespace("gen")?, topology.namespace("sink")?);
    let end = topology.interface("s");
    topology.wire(
        End { namespace: &left, interface: "gen0" },
        End { namespace: &right, interface: &end },
        1500,
    )?;
    let talk = |last| ([2, 0, 0, 0, 0, last], Ipv4Addr::new(10, 0, 0, last));
    let mut generator =
        Generator::open(&left, "gen0", Talk::simple(talk(1), talk(2)), &Sizes::all(FRAME_BYTES))?;
    let place = arguments.next().unwrap_or_else(|| "apart".to_owned());
    let sink = if place == "stack" { None } else { Some(Sink::counting(&right, &end)?) };
    match place.as_str() {
        "apart" => right.pin_napi(&end, last)?.into_iter().try_for_each(put_first)?,
        "beside" => right.pin_napi(&end, 0)?.into_iter().try_for_each(put_first)?,
        "softirq" | "stack" => {}
        _ => anyhow::bail!("receive `apart`, `beside`, in `softirq` or by the `stack`"),
    }
    pin_here(0)?;
    let mut out = std::io::stdout().lock();
    for _ in 0..rounds {
        let before = sink.as_ref().map(Sink::packets);
        let sent = generator.run(&Plan::flat_out(Duration::from_secs(1)), || {})?;
        let nanos = sent.cpu.as_secs_f64() * 1e9 / sent.packets as f64;
        let (mpps, met) = (sent.rate() / 1e6, sink.as_ref().zip(before));
        let met = met.map_or(f64::NAN, |(sink, before)| {
            (sink.packets() - before) as f64 / 1e6 / sent.time.as_secs_f64()
        });
        writeln!(out, "{mpps:.3} Mpps, {nanos:.0} ns a packet; {met:.3} Mpps came to the sink")?;
    }
    Ok(())
}
