//! Changes of an interface while the gateway has it: another MTU, no carrier, longer frames.

use super::bench::Bench;
use super::checks::{Cell, not_here, ping};
use super::frames::{LONGEST, Outcome, SHORTEST, exchange, frame};
use super::rates;
use anyhow::{Context as _, ensure};
use polder_testbed::{clock, interrupt};
use serde_json::Value;
use std::time::Duration;

/// An MTU that is shorter than the usual one, and the Ethernet header.
const SHORT: usize = 1400;
const HEADER: usize = 14;
/// The jumbo MTU, and the largest of cards that have less.
const JUMBO: [usize; 3] = [9000, 4000, 2000];
const PATIENCE: Duration = Duration::from_secs(20);

/// Changes the MTU while the gateway runs.
pub(super) fn mtu(cell: &mut Cell<'_>) -> anyhow::Result<()> {
    let result = shorter_mtu(cell);
    set_mtu(cell.bench, 1500)?;
    result
}

fn shorter_mtu(cell: &mut Cell<'_>) -> anyhow::Result<()> {
    set_mtu(cell.bench, SHORT)?;
    ping(cell.bench, 2)?;
    cell.frames_of(&[SHORTEST, 1000, SHORT + HEADER])?;
    // The gateway looks at its interfaces every second, and follows then.
    interrupt::sleep(Duration::from_millis(1500))?;
    let [a, b] = &cell.bench.sockets;
    let too_long = exchange(a, b, &[frame(a.mac, b.mac, &[], LONGEST, 3)])?;
    set_mtu(cell.bench, 1500)?;
    ping(cell.bench, 2)?;
    cell.frames_of(&[SHORTEST, LONGEST])?;
    let in_part = too_long.altered + too_long.injected + too_long.exact;
    ensure!(in_part == 0, "a frame that is longer than the MTU came out: {too_long}");
    Ok(())
}

fn set_mtu(bench: &mut Bench, mtu: usize) -> anyhow::Result<()> {
    for name in bench.cards.clone().into_iter().chain(bench.names.clone()) {
        bench.run(&format!("ip link set {name} mtu {mtu}"))?;
    }
    Ok(())
}

/// The wire is plugged out and in again.
pub(super) fn carrier(cell: &mut Cell<'_>) -> anyhow::Result<()> {
    cell.bench.guest.plug(0, false)?;
    let gone = wait_for_carrier(cell.bench, false);
    cell.bench.guest.plug(0, true)?;
    gone.context("plugged out")?;
    wait_for_carrier(cell.bench, true).context("plugged in")?;
    ping(cell.bench, 2)
}

fn wait_for_carrier(bench: &mut Bench, wanted: bool) -> anyhow::Result<()> {
    let end = clock::now() + PATIENCE;
    loop {
        let ports = bench.show("ports")?;
        let seen = ports.pointer("/ports/0/carrier").and_then(Value::as_bool);
        if seen == Some(wanted) {
            return Ok(());
        }
        ensure!(clock::now() < end, "the carrier of port a is {seen:?} and not {wanted}");
        interrupt::sleep(Duration::from_millis(100))?;
    }
}

/// Jumbo frames, where the card has them and as far as `check` says; then with its cure. The gateway is stopped.
pub(super) fn jumbo(cell: &mut Cell<'_>) -> anyhow::Result<()> {
    cell.bench.configure("")?;
    let found = JUMBO.into_iter().find(|&mtu| set_mtu(cell.bench, mtu).is_ok());
    let result =
        found.map_or_else(|| Err(not_here("the driver takes no MTU of 2000")), |mtu| long_frames(cell, mtu));
    cell.bench.end()?;
    set_mtu(cell.bench, 1500)?;
    result
}

/// Sends the same frames through the bridge of the guest's kernel: a card may lose them before any forwarder.
fn without_polder(bench: &mut Bench, frames: &[Vec<u8>]) -> anyhow::Result<Outcome> {
    bench.stop()?;
    rates::bridge(bench, true)?;
    let outcome = ping(bench, 2).and_then(|()| exchange(&bench.sockets[0], &bench.sockets[1], frames));
    rates::bridge(bench, false)?;
    outcome
}

fn long_frames(cell: &mut Cell<'_>, mtu: usize) -> anyhow::Result<()> {
    let told = cell.bench.check()?;
    let problem = told.iter().find(|told| told.topic == "frames" && told.severity == "problem");
    cell.bench.start()?;
    ping(cell.bench, 2)?;
    let [a, b] = &cell.bench.sockets;
    let lengths = [LONGEST, 1700, 2100, 3000, 4000, 6000, mtu + HEADER];
    let frames = lengths.into_iter().filter(|&length| length <= mtu + HEADER);
    let frames = frames.map(|length| frame(a.mac, b.mac, &[], length, length)).collect::<Vec<_>>();
    let outcome = exchange(a, b, &frames)?;
    let Some(problem) = problem else {
        if !outcome.is_clean() && outcome.altered + outcome.injected == 0 {
            let alone = without_polder(cell.bench, &frames)?;
            if alone.exact <= outcome.exact {
                return Err(not_here(format!("MTU {mtu}: {outcome}; with the kernel's bridge {alone}")));
            }
        }
        ensure!(outcome.is_clean(), "MTU {mtu}: {outcome}; `check` has said nothing against it");
        return Ok(());
    };
    ensure!(outcome.altered + outcome.injected == 0, "MTU {mtu}: {outcome}");
    // What the kernel carries is in no slot; a flow's first packets and others go through user space.
    cell.bench.stop()?;
    cell.bench.configure_slow("auto")?;
    cell.bench.start()?;
    ping(cell.bench, 2)?;
    let [a, b] = &cell.bench.sockets;
    let outcome = exchange(a, b, &frames)?;
    ensure!(outcome.altered + outcome.injected == 0, "MTU {mtu}, no fast path: {outcome}");
    if outcome.is_clean() {
        cell.verdict.false_alarms.push(format!("MTU {mtu}: {}, and nothing was lost", problem.text));
        return Ok(());
    }
    // With the MTU that it advises nothing is lost.
    let advised =
        problem.text.rsplit_once(" mtu ").and_then(|(_, rest)| rest.trim_end_matches('`').parse().ok());
    let advised: usize = advised.with_context(|| format!("no MTU in the advice: {}", problem.text))?;
    cell.bench.stop()?;
    set_mtu(cell.bench, advised)?;
    cell.bench.start()?;
    ping(cell.bench, 2)?;
    cell.frames_of(&[LONGEST, advised + HEADER]).with_context(|| format!("MTU {advised} as advised"))
}
