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
use super::turns::{Sheet, in_turn};
use super::{Run, Scenario};
use anyhow::anyhow;
use own::Alone;
use peers::{Figures, PEERS, Peer, Programs};
use polder_buffers::FragmentOptions;
use polder_testbed::interrupt;
use polder_testbed::meters::statistics::Samples;
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
    let peers = if is_beside_peers { prepare(run, &programs)? } else { Vec::new() };
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
    let mut all = [None].into_iter().chain(peers.iter().copied().map(Some)).collect::<Vec<_>>();
    let name = |_: &Option<Peer>| "taking and releasing".to_owned();
    let sheet = in_turn(run, run.quick_or(3, 10), &mut all, name, |peer, sheet| match *peer {
        None => apart(|| own(sheet, objects, cores())),
        Some(peer) => {
            enter(sheet, peer, &programs.run(peer, cores(), objects, &[])?);
            Ok(())
        }
    })?;
    sheet.record(run);
    ratios(run);
    name_mallocs(run, &sheet);
    Ok(())
}

/// Installed peers; a missing peer is reported as skipped.
fn prepare(run: &mut Run, programs: &Programs) -> anyhow::Result<Vec<Peer>> {
    let mut ready = Vec::new();
    for peer in PEERS {
        run.says(&format!("compiling the program of {}", peer.names()[0]));
        let rows = peer.names().iter().flat_map(|name| rows_of(name)).collect::<Vec<_>>();
        ready.extend(run.or_skip(&rows, programs.prepare(peer))?.map(|()| peer));
    }
    Ok(ready)
}

fn rows_of(name: &str) -> [String; 3] {
    ["get_put.single", "get_put.bulk32", "cross_core"].map(|what| format!("buffers.{what}.ns.{name}"))
}

/// Runs `work` on a thread of its own, because it pins the thread.
fn apart<R: Send>(work: impl FnOnce() -> anyhow::Result<R> + Send) -> anyhow::Result<R> {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            polder_testbed::topology::pin_here(cores().0)?;
            work()
        });
        thread.join().map_err(|_| anyhow!("a measurement panicked"))?
    })
}

/// Runs all measurements of Polder's own allocators once.
fn own(sheet: &mut Sheet, objects: usize, cores: (usize, usize)) -> anyhow::Result<()> {
    for (name, alone) in
        [("polder", own::frames_alone(objects)?), ("polder_packet", own::packets_alone(objects)?)]
    {
        let Alone { single, bulk } = alone;
        sheet.push(format!("buffers.get_put.single.ns.{name}"), single);
        sheet.push(format!("buffers.get_put.bulk32.ns.{name}"), bulk);
    }
    for bytes in FRAGMENTS {
        for (biased_count, ending) in SWITCH {
            interrupt::check()?;
            let options = FragmentOptions { biased_count, ..FragmentOptions::default() };
            let row = |where_to: &str| format!("buffers.fragment_{bytes}.{where_to}.ns.{ending}");
            sheet.push(row("same_core"), own::fragments_alone(objects, bytes, options)?.bulk);
            if cores.0 != cores.1 {
                sheet.push(row("cross_core"), own::fragments_across(objects, cores, bytes, options)?);
            }
        }
    }
    if cores.0 != cores.1 {
        sheet.push("buffers.cross_core.ns.polder", own::frames_across(objects, cores)?);
        sheet.push("buffers.cross_core.ns.polder_packet", own::packets_across(objects, cores)?);
    }
    Ok(())
}

/// Records a peer's figures; the costs of fragments from a malloc have no rows.
fn enter(sheet: &mut Sheet, peer: Peer, figures: &Figures) {
    for (name, &value) in figures {
        match (peer, name.rsplit_once('.')) {
            (Peer::Dpdk, Some((what, whose))) => sheet.push(format!("buffers.{what}.ns.{whose}"), value),
            (Peer::Dpdk, None) => {}
            (Peer::Malloc(whose, _), _) => sheet.push(format!("buffers.{name}.ns.{whose}"), value),
        }
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
fn name_mallocs(run: &mut Run, sheet: &Sheet) {
    for bytes in FRAGMENTS {
        for (what, measured) in [("same_core", "same_core.bulk32"), ("cross_core", "cross_core")] {
            let cost = |name: &str| {
                sheet.samples(&format!("buffers.fragment_{bytes}.{measured}.ns.{name}")).median()
            };
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
    // Code and stacks are there from the second time on.
    short::drain(true, cores)?;
    let mut missed = [0, 0];
    let name = |&(_, ending): &(bool, &str)| format!("a burst that drains the reserve, reload {ending}");
    let sheet = in_turn(run, run.quick_or(8, 40), SWITCH, name, |&mut (reloads, ending), sheet| {
        let drain = short::drain(reloads, cores)?;
        sheet.push(format!("buffers.drain.p999_ns.{ending}"), drain.p999);
        sheet.push(format!("buffers.drain.minor_faults.{ending}"), drain.faults);
        sheet.push(ending, drain.longest);
        missed[usize::from(reloads)] += drain.missed;
        Ok(())
    })?;
    sheet.record(run);
    for (reloads, ending) in SWITCH {
        let (_, worst) = sheet.samples(ending).spread().unwrap_or_default();
        let (median, missed) = (sheet.median(ending), missed[usize::from(reloads)]);
        let text = format!("longest of a burst {median:.0} ns, of all {worst:.0}; {missed} could not be had");
        run.remark(&format!("buffers.drain.p999_ns.{ending}"), text);
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

/// Records the time that mallocs take in the same burst.
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
