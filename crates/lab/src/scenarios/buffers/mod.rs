//! `buffers`: taking memory and giving it back, beside DPDK and three mallocs; and what happens when there
//! is little.

mod ablation;
mod contention;
mod modem;
mod own;
mod patterns;
mod peers;
mod pieces;
mod receiving;
pub(super) mod short;
pub(super) mod switched;
mod sys;
pub(super) mod windows;

use super::testbed::cores;
use super::{Run, Scenario};
use anyhow::anyhow;
use own::Alone;
use peers::{Figures, PEERS, Peer, Programs};
use polder_buffers::FragmentOptions;
use polder_testbed::interrupt;
use polder_testbed::meters::statistics::Samples;
use std::collections::BTreeMap;
use std::time::Duration;
use windows::WINDOW;

/// The scenario.
pub(super) const SCENARIO: Scenario = Scenario {
    name: "buffers",
    about: "taking memory and giving it back, beside DPDK, glibc, jemalloc and mimalloc, and when there is little",
    needs_root: true,
    rows: include_str!("../rows/buffers.rows"),
    measure,
};

const BEST_MALLOC: &str = "buffers.get_put.bulk32.ratio_vs_best_malloc";
const AFTER_BURST: &str = "buffers.memory_after_burst_percent";

/// Figures of several runs, by the name of their row.
type Rows = BTreeMap<String, Samples>;
const FRAGMENTS: [u32; 3] = [256, 1024, 2048];
const SWITCH: [(bool, &str); 2] = [(true, "on"), (false, "off")];
const MALLOCS: [&str; 3] = ["glibc", "jemalloc", "mimalloc"];

fn measure(run: &mut Run) -> anyhow::Result<()> {
    let (core, other) = cores();
    run.place("taking, and releasing on the same core", core, "thread, pinned");
    run.place("releasing on the other core; reloaders; control traffic", other, "threads, pinned");
    let objects = run.quick_or(400, 2000) * WINDOW;
    let is_beside_peers =
        run.wants_any_of(&["buffers.get_put", "buffers.cross_core", "buffers.fragment", "buffers.drain"]);
    let programs = Programs::new()?;
    let peers = if is_beside_peers { prepare(run, &programs) } else { Vec::new() };
    if run.wants_any_of(&["buffers.get_put", "buffers.cross_core", "buffers.fragment"]) {
        taking(run, objects, &programs, &peers)?;
    }
    if run.wants_any_of(&["buffers.control."]) {
        apart(|| controls(run, objects))?;
    }
    if run.wants_any_of(&["buffers.drain"]) {
        drained(run, &programs, &peers)?;
    }
    if run.wants_any_of(&["buffers.control_failures"]) {
        greed(run)?;
    }
    if run.wants(AFTER_BURST) {
        after_burst(run)?;
    }
    ablation::measure(run, (core, other))?;
    receiving::measure(run)
}

/// Taking and releasing: Polder's own and the peers', one run of each after the other.
fn taking(run: &mut Run, objects: usize, programs: &Programs, peers: &[Peer]) -> anyhow::Result<()> {
    let rounds = run.quick_or(3, 10);
    let (mut rows, mut beside) = (Rows::new(), Rows::new());
    for round in 1..=rounds {
        run.says(&format!("taking and releasing, run {round} of {rounds}"));
        apart(|| own(&mut rows, objects, cores()))?;
        for &peer in peers {
            interrupt::check()?;
            enter(&mut rows, &mut beside, peer, &programs.run(peer, cores(), objects, &[])?);
        }
    }
    rows.iter().for_each(|(row, samples)| run.record(row, samples));
    ratios(run);
    name_mallocs(run, &beside);
    Ok(())
}

/// Peers that are there; those that are not are skipped loudly.
fn prepare(run: &mut Run, programs: &Programs) -> Vec<Peer> {
    let mut ready = Vec::new();
    for peer in PEERS {
        run.says(&format!("compiling the program of {}", peer.names()[0]));
        match programs.prepare(peer) {
            Ok(()) => ready.push(peer),
            Err(error) => {
                let rows = peer.names().iter().flat_map(|name| rows_of(name)).collect::<Vec<_>>();
                let rows = rows.iter().map(String::as_str).collect::<Vec<_>>();
                run.skip(&rows, &format!("{error:#}"));
            }
        }
    }
    ready
}

fn rows_of(name: &str) -> [String; 3] {
    ["get_put.single", "get_put.bulk32", "cross_core"].map(|what| format!("buffers.{what}.ns.{name}"))
}

/// On a thread of its own, because it is pinned.
fn apart<R: Send>(work: impl FnOnce() -> anyhow::Result<R> + Send) -> anyhow::Result<R> {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            polder_testbed::topology::pin_here(cores().0)?;
            work()
        });
        thread.join().map_err(|_| anyhow!("a measurement panicked"))?
    })
}

/// One run of everything that is Polder's own.
fn own(rows: &mut Rows, objects: usize, cores: (usize, usize)) -> anyhow::Result<()> {
    let mut push = |row: String, value: f64| rows.entry(row).or_default().push(value);
    for (name, alone) in
        [("polder", own::frames_alone(objects)?), ("polder_packet", own::packets_alone(objects)?)]
    {
        let Alone { single, bulk } = alone;
        push(format!("buffers.get_put.single.ns.{name}"), single);
        push(format!("buffers.get_put.bulk32.ns.{name}"), bulk);
    }
    for bytes in FRAGMENTS {
        for (biased_count, ending) in SWITCH {
            interrupt::check()?;
            let options = FragmentOptions { biased_count, ..FragmentOptions::default() };
            let row = |where_to: &str| format!("buffers.fragment_{bytes}.{where_to}.ns.{ending}");
            push(row("same_core"), own::fragments_alone(objects, bytes, options)?.bulk);
            if cores.0 != cores.1 {
                push(row("cross_core"), own::fragments_across(objects, cores, bytes, options)?);
            }
        }
    }
    if cores.0 != cores.1 {
        push("buffers.cross_core.ns.polder".to_owned(), own::frames_across(objects, cores)?);
        push("buffers.cross_core.ns.polder_packet".to_owned(), own::packets_across(objects, cores)?);
    }
    Ok(())
}

/// Puts a peer's figures into the rows; what a malloc costs for a fragment stands beside.
fn enter(rows: &mut Rows, beside: &mut Rows, peer: Peer, figures: &Figures) {
    for (name, &value) in figures {
        let row = match peer {
            Peer::Dpdk => {
                let Some((what, whose)) = name.rsplit_once('.') else { continue };
                format!("buffers.{what}.ns.{whose}")
            }
            Peer::Malloc(whose, _) if name.starts_with("fragment") => {
                beside.entry(format!("{name} {whose}")).or_default().push(value);
                continue;
            }
            Peer::Malloc(whose, _) => format!("buffers.{name}.ns.{whose}"),
        };
        rows.entry(row).or_default().push(value);
    }
}

/// Fills the rows that are derived from others.
fn ratios(run: &mut Run) {
    let value = |run: &Run, row: &str| run.value(row).filter(|value| *value > 0.0);
    let mallocs = MALLOCS.map(|name| value(run, &format!("buffers.get_put.bulk32.ns.{name}")));
    let best = mallocs.into_iter().flatten().min_by(f64::total_cmp);
    match best.zip(value(run, "buffers.get_put.bulk32.ns.polder")) {
        Some((best, own)) => run.record_one(BEST_MALLOC, best / own),
        None => run.missing(BEST_MALLOC, "no malloc was measured"),
    }
    for bytes in FRAGMENTS {
        let row = |what: &str| format!("buffers.fragment_{bytes}.cross_core.{what}");
        match value(run, &row("ns.off")).zip(value(run, &row("ns.on"))) {
            Some((off, on)) => run.record_one(&row("ratio"), off / on),
            None => run.missing(&row("ratio"), "there is one core only"),
        }
    }
}

/// Notes the cost of mallocs for as many bytes beside the rows of fragments.
fn name_mallocs(run: &mut Run, beside: &Rows) {
    for bytes in FRAGMENTS {
        for (what, measured) in [("same_core", "same_core.bulk32"), ("cross_core", "cross_core")] {
            let cost = |name: &str| beside.get(&format!("fragment_{bytes}.{measured} {name}"))?.median();
            let told = MALLOCS.iter().filter_map(|name| Some(format!("{name} {:.1} ns", cost(name)?)));
            let told = told.collect::<Vec<_>>().join(", ");
            run.remark(&format!("buffers.fragment_{bytes}.{what}.ns.on"), told);
        }
    }
}

/// Negative controls: uses for which D1 and D6 are not made.
fn controls(run: &mut Run, objects: usize) -> anyhow::Result<()> {
    let rounds = run.quick_or(5, 15);
    let on = FragmentOptions { blocks: 128, ..FragmentOptions::default() };
    let off = FragmentOptions { reset_when_alone: false, held_blocks: 1, ..on };
    for pattern in patterns::PATTERNS {
        run.says(pattern.row);
        let (mut loss, mut costs) = (Samples::new(), Samples::new());
        for round in 0..rounds {
            interrupt::check()?;
            let cost = |options| patterns::cost(pattern, objects, options);
            // They take turns at being first, which finds what the other one left in the caches.
            let (with, without) = if round % 2 == 0 {
                (cost(on)?, cost(off)?)
            } else {
                let without = cost(off)?;
                (cost(on)?, without)
            };
            loss.push((with / without - 1.0) * 100.0);
            costs.push(with);
        }
        run.record(pattern.row, &loss);
        run.remark(pattern.row, format!("of {:.1} ns", costs.median().unwrap_or(f64::NAN)));
    }
    Ok(())
}

fn drained(run: &mut Run, programs: &Programs, peers: &[Peer]) -> anyhow::Result<()> {
    let cores = cores();
    let rounds = run.quick_or(8, 40);
    // Code and stacks are there from the second time on.
    short::drain(true, cores)?;
    for (reloads, ending) in SWITCH {
        run.says(&format!("a burst that drains the reserve, reload {ending}"));
        let (mut p999, mut faults, mut longest, mut missed) =
            (Samples::new(), Samples::new(), Samples::new(), 0);
        for _ in 0..rounds {
            interrupt::check()?;
            let drain = short::drain(reloads, cores)?;
            p999.push(drain.p999);
            faults.push(drain.faults);
            longest.push(drain.longest);
            missed += drain.missed;
        }
        let row = format!("buffers.drain.p999_ns.{ending}");
        run.record(&row, &p999);
        let (_, worst) = longest.spread().unwrap_or_default();
        let median = longest.median().unwrap_or_default();
        run.remark(
            &row,
            format!("longest of a burst {median:.0} ns, of all {worst:.0}; {missed} could not be had"),
        );
        run.record(&format!("buffers.drain.minor_faults.{ending}"), &faults);
    }
    name_mallocs_drained(run, programs, peers)
}

/// Control beside data that takes all it can get.
fn greed(run: &mut Run) -> anyhow::Result<()> {
    let cores = cores();
    let time = Duration::from_secs(run.quick_or(2, 10));
    for (splits, ending) in SWITCH {
        run.says(&format!("control beside greedy data, a reloader of its own {ending}"));
        let greed = short::greed(splits, time, cores)?;
        let row = format!("buffers.control_failures.{ending}");
        run.record_one(&row, f64::from(greed.failed));
        let short::Greed { taken, demanded, data_taken, .. } = greed;
        run.remark(
            &row,
            format!("{taken} succeeded; data asked for {demanded} frames at a time and took {data_taken}"),
        );
    }
    Ok(())
}

fn after_burst(run: &mut Run) -> anyhow::Result<()> {
    run.says("memory ten seconds after a burst");
    let memory = short::memory_after_burst(Duration::from_secs(10), (true, Duration::from_secs(2)), cores())?;
    run.record_one(AFTER_BURST, (memory.after / memory.before - 1.0) * 100.0);
    let [before, peak, after] = [memory.before, memory.peak, memory.after].map(|kib| kib / 1024.0);
    run.remark(AFTER_BURST, format!("Pss {before:.1} MiB before, {peak:.1} at the peak, {after:.1} after"));
    Ok(())
}

/// Says how long mallocs take in the same burst.
fn name_mallocs_drained(run: &mut Run, programs: &Programs, peers: &[Peer]) -> anyhow::Result<()> {
    let mut told = Vec::new();
    for &peer in peers {
        let Peer::Malloc(name, _) = peer else { continue };
        interrupt::check()?;
        let figures = programs.run(peer, cores(), WINDOW, &["drain"])?;
        let figure = |what: &str| figures.get(what).copied().unwrap_or(f64::NAN);
        let (p999, longest, faults) = (figure("drain.p999"), figure("drain.longest"), figure("drain.faults"));
        told.push(format!("{name}: p99.9 {p999:.0} ns, longest {longest:.0} ns, {faults:.0} faults"));
    }
    run.remark("buffers.drain.minor_faults.on", told.join("; "));
    Ok(())
}
