//! Cost of reordering per packet, ours and that of DPDK's `librte_reorder`.
//!
//! Both get batches of 32 packets in pairs, the later batch first, on one core: the number is given to
//! each packet, the batch is lined up, and what is in order is taken out.

use anyhow::{Context as _, bail, ensure};
use polder_buffers::reorder::{ReorderBuffer, ReorderCursor, TicketCounter};
use polder_buffers::{Batch, Packet, Region, RegionOptions};
use polder_testbed::clock;
use polder_testbed::command;
use polder_testbed::machine;
use polder_testbed::meters::statistics::Samples;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

const BATCH: usize = 32;
const BATCHES: u32 = 200_000;
const WINDOW: u32 = 64;
const PROGRAM: &str = include_str!("librte_reorder.c");
const PACKAGE: &str = "libdpdk-dev";

/// Nanoseconds a packet, ours.
#[expect(clippy::cast_precision_loss, reason = "a ratio needs no more than 52 bits")]
pub(super) fn ours() -> anyhow::Result<f64> {
    let region = Region::new(RegionOptions { slots: 256, slot_bytes: 512 })?;
    let mut pool = region.pool();
    let gate = Arc::new(ReorderCursor::new());
    let (mut line, mut reorder_buffer) =
        (TicketCounter::new(WINDOW, Arc::clone(&gate)), ReorderBuffer::new(WINDOW, gate));
    line.open();
    let mut batches = Vec::new();
    for _ in 0..2 {
        let mut batch = Box::new(Batch::new());
        for _ in 0..BATCH {
            let packet = Packet::new(pool.take().context("no memory")?);
            ensure!(batch.push(packet).is_ok(), "32 fit into a batch");
        }
        batches.push(batch);
    }
    let mut passed = 0;
    let start = clock::thread_cpu();
    for pair in 0..u64::from(BATCHES / 2) {
        let tickets = [line.draw(), line.draw()];
        for (batch, ticket) in batches.iter_mut().zip(&tickets) {
            let number = ticket.map_or(0, |ticket| ticket.number);
            batch.iter_mut().for_each(|packet| packet.ticket = number);
        }
        for ticket in tickets.iter().rev() {
            let (Some(ticket), Some(batch)) = (ticket, batches.pop()) else { bail!("the line is full") };
            ensure!(reorder_buffer.redeem(*ticket, batch, pair).is_ok(), "everything is in time");
            let before = batches.len();
            while let Some(batch) = reorder_buffer.pass(pair) {
                passed += batch.len();
                batches.push(batch);
            }
            if batches.len() > before {
                reorder_buffer.publish();
            }
        }
    }
    let elapsed = clock::thread_cpu() - start;
    ensure!(passed == BATCH * BATCHES as usize, "everything passes");
    Ok(elapsed.as_nanos() as f64 / passed as f64)
}

/// Builds and runs the program; nanoseconds a packet, a sample a round.
///
/// # Errors
/// With what to do, when something is missing.
pub(super) fn librte(rounds: usize, core: usize) -> anyhow::Result<Samples> {
    let scratch = Scratch::new()?;
    let (source, program) = (scratch.0.join("reorder.c"), scratch.0.join("reorder"));
    fs::write(&source, PROGRAM).with_context(|| format!("cannot write {}", source.display()))?;
    let flags = command::run(Command::new("pkg-config").args(["--cflags", "--libs", "libdpdk"]))
        .with_context(|| format!("there is no librte_reorder to compare with; install {PACKAGE}"))?;
    let mut cc = Command::new("cc");
    // Source first: static archives serve what stands before them.
    cc.arg("-O3")
        .arg("-march=native")
        .arg("-DALLOW_EXPERIMENTAL_API")
        .arg("-o")
        .arg(&program)
        .arg(&source)
        .args(flags.split_whitespace());
    command::run(&mut cc).with_context(|| format!("librte_reorder cannot be built; install {PACKAGE}"))?;
    let said = run(&program, rounds, core)?;
    let samples = said.lines().filter_map(|line| line.trim().parse().ok()).collect::<Samples>();
    ensure!(samples.count() == rounds, "the program for librte_reorder said: {said}");
    Ok(samples)
}

fn run(program: &Path, rounds: usize, core: usize) -> anyhow::Result<String> {
    let core = core.min(machine::cores() - 1).to_string();
    let options =
        ["--no-huge", "--no-pci", "--no-telemetry", "--no-shconf", "--log-level=1", "-m", "64", "-l"];
    command::run(Command::new(program).args(options).arg(&core).arg("--").arg(rounds.to_string()))
}

/// A folder that goes with its owner.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> anyhow::Result<Self> {
        let name = format!("pdl-reorder-{}-{}", std::process::id(), clock::nanos());
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).with_context(|| format!("cannot make {}", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What stays is a folder among temporary files.
        let _ = fs::remove_dir_all(&self.0);
    }
}
