//! Effect of each technique by itself: with all of the table off, with one on, and with all on; and the
//! effect that remains when a buffer is not used again soon. The buffers' own cost, and five flows through a
//! gateway.

use super::modem;
use super::short::with_reloaders;
use super::windows::Windows;
use crate::scenarios::Run;
use crate::scenarios::turns::in_turn;
use anyhow::anyhow;
use polder_buffers::{
    AllocationPolicy, BufferManager, BufferOptions, Class, ClassBuffers, ClassOptions, FragmentOptions,
    Frame, Marks, Pool, ReserveOptions, Switches,
};
use polder_testbed::clock;
use polder_testbed::command;
use polder_testbed::topology::pin_here;
use std::collections::VecDeque;
use std::time::Duration;

/// The techniques of the table off, all others on.
const NONE: Switches = Switches {
    pools_frames: false,
    pools_fragments: false,
    reloads: false,
    splits_reload: true,
    gives_back: true,
    refill_below_percent: 100,
    reuses: true,
    resets_when_alone: false,
    large_blocks: false,
    biased_count: false,
    single_pages: true,
    owns_fragments: true,
    held_blocks: 8,
    never_cross: 4096,
};

/// Name, switches and number of threads.
type Column = (&'static str, Switches, usize);

/// Columns of the table: name, switches, and number of threads that allocate.
pub(super) fn columns() -> [Column; 11] {
    let all = Switches::default();
    let no_reuse = Switches { reuses: false, ..all };
    [
        ("none", NONE, 1),
        ("C1_frames", Switches { pools_frames: true, ..NONE }, 1),
        ("C1_fragments", Switches { pools_fragments: true, ..NONE }, 1),
        ("C2", Switches { reloads: true, ..NONE }, 1),
        ("C5", Switches { refill_below_percent: all.refill_below_percent, ..NONE }, 1),
        ("D1", Switches { resets_when_alone: true, ..NONE }, 1),
        ("D2", Switches { large_blocks: true, ..NONE }, 1),
        ("D3", Switches { biased_count: true, ..NONE }, 1),
        ("all", all, 1),
        ("no_reuse_1", no_reuse, 1),
        ("no_reuse_2", no_reuse, 2),
    ]
}

/// Buffers that one thread has at a time: what five flows keep in rings and queues.
const LIVE: usize = 512;
const BATCH: usize = 32;
/// Bytes of a fragment: three of them lie in a page, and a segment of TCP does not.
const PIECE: u32 = 1024;
/// Columns of a quick run.
const QUICK: [&str; 2] = ["none", "all"];

/// Fills the rows.
pub(super) fn measure(run: &mut Run, cores: (usize, usize)) -> anyhow::Result<()> {
    let rows = |what: &str| columns().map(|(name, ..)| format!("buffers.ablation.{name}.{what}"));
    let wants = |run: &Run, what| rows(what).iter().any(|row| run.wants(row));
    if wants(run, "ns_per_alloc") {
        alone(run, cores)?;
    }
    if !wants(run, "mbit") && !wants(run, "cpu_ns_per_packet") {
        return Ok(());
    }
    if command::exists("iperf3") && command::exists("taskset") {
        return flows(run, cores);
    }
    let remedy = command::remedy(if command::exists("iperf3") { "taskset" } else { "iperf3" });
    let rows = [rows("mbit"), rows("cpu_ns_per_packet")].concat();
    run.skip(&rows, &remedy);
    Ok(())
}

/// Measures the cost of a buffer without a gateway.
fn alone(run: &mut Run, cores: (usize, usize)) -> anyhow::Result<()> {
    let batches = run.quick_or(1000, 4000);
    let name = |_: &Column| "what each technique brings".to_owned();
    let sheet = in_turn(run, run.quick_or(3, 10), columns(), name, |(name, switches, threads), sheet| {
        let (cost, missed) = cost(switches, *threads, batches, cores)?;
        sheet.push(format!("buffers.ablation.{name}.ns_per_alloc"), cost);
        sheet.push(*name, missed * 100.0);
        Ok(())
    })?;
    sheet.record(run);
    for (name, ..) in columns() {
        let row = format!("buffers.ablation.{name}.ns_per_alloc");
        if name == "C5" {
            run.missing(&row, "a ring's threshold takes no buffer by itself: see the gateway's rows");
        } else {
            run.remark(&row, format!("{:.2} % could not be had at once", sheet.median(name)));
        }
    }
    Ok(())
}

/// Measures the effect of the techniques on five flows: each run beside one with all of them off,
/// in turn.
fn flows(run: &mut Run, (core, other): (usize, usize)) -> anyhow::Result<()> {
    let (rounds, time) = run.quick_or((2, 1), (10, 1));
    let time = Duration::from_secs(time);
    run.place("the modem table: polder (no_reuse_2: both cores)", core, "workers, pinned");
    run.place("the modem table: iperf3", 0, "process, pinned");
    let mut chosen = columns().to_vec();
    if run.is_quick() {
        chosen.retain(|(name, ..)| QUICK.contains(name));
        run.leave_out(
            "five flows through a gateway with techniques one by one (all off and all on are there)",
        );
    }
    let name = |_: &Column| "five flows through a gateway".to_owned();
    let sheet = in_turn(run, rounds, &mut chosen, name, |(name, switches, threads), sheet| {
        let figures = modem::run(switches, &[core, other][..*threads], time)?;
        sheet.push(format!("buffers.ablation.{name}.mbit"), figures.mbit);
        sheet.push(format!("buffers.ablation.{name}.cpu_ns_per_packet"), figures.nanos_per_packet);
        Ok(())
    })?;
    sheet.record(run);
    Ok(())
}

/// Nanoseconds of taking a buffer, writing its first line, and releasing it, half of them frames and half
/// fragments; and the part that could not be had. Of the slowest thread.
fn cost(
    switches: &Switches,
    threads: usize,
    batches: usize,
    cores: (usize, usize),
) -> anyhow::Result<(f64, f64)> {
    let policy = AllocationPolicy::Growing(Marks::for_target(2048));
    let blocks = AllocationPolicy::Growing(Marks::for_target(64));
    let data = ClassBuffers {
        frames: ClassOptions { slots: 8192, policy, reserve_options: ReserveOptions::default() },
        fragments: Some(FragmentOptions { blocks: 512, policy: blocks, ..FragmentOptions::default() }),
    };
    let options =
        BufferOptions { data, patience: Some(Duration::from_secs(1)), ..BufferOptions::fixed(2048, 64, 0) };
    let manager = BufferManager::new(options.with_switches(switches))?;
    with_reloaders(&manager, cores.1, || {
        std::thread::scope(|scope| {
            let pinned = [cores.0, cores.1];
            let workers = pinned.iter().take(threads).map(|&core| {
                let pool = manager.pool(Class::Data);
                scope.spawn(move || pin_here(core).map(|()| work(pool, batches)))
            });
            let workers = workers.collect::<Vec<_>>();
            let mut costs = Vec::new();
            for worker in workers {
                costs.push(worker.join().map_err(|_| anyhow!("a measurement panicked"))??);
            }
            let slowest = costs.into_iter().max_by(|a, b| a.0.total_cmp(&b.0));
            slowest.ok_or_else(|| anyhow!("no thread was asked for"))
        })
    })
}

/// Nanoseconds of [`cost`] alone.
pub(super) fn nanos(
    switches: &Switches,
    threads: usize,
    batches: usize,
    cores: (usize, usize),
) -> anyhow::Result<f64> {
    Ok(cost(switches, threads, batches, cores)?.0)
}

/// Allocates a batch and releases the oldest one; returns the cost of a buffer, and the share of failed allocations.
fn work(mut pool: Pool, batches: usize) -> (f64, f64) {
    let (mut windows, mut frames, mut missed) = (Windows::new(), Vec::with_capacity(BATCH), 0);
    let mut live = VecDeque::<Frame>::with_capacity(LIVE + BATCH);
    for _ in 0..batches {
        let start = clock::nanos();
        pool.take_bulk(BATCH / 2, &mut frames);
        pool.take_bulk_for(PIECE, BATCH / 2, &mut frames);
        frames.iter_mut().for_each(|frame: &mut Frame| frame.slot_mut()[..64].fill(1));
        // What could not be had is no allocation, but its time counts.
        windows.add(start, frames.len());
        missed += BATCH - frames.len();
        live.extend(frames.drain(..));
        let over = live.len().saturating_sub(LIVE);
        frames.extend(live.drain(..over));
        let start = clock::nanos();
        pool.release_bulk(&mut frames);
        windows.add(start, 0);
    }
    frames.extend(live.drain(..));
    pool.release_bulk(&mut frames);
    (windows.nanos(), part(missed, batches * BATCH))
}

#[expect(clippy::cast_precision_loss, reason = "a part of a whole needs no 52 bits")]
fn part(of: usize, whole: usize) -> f64 {
    of as f64 / whole as f64
}
