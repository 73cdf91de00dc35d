//! Techniques that a worker has for itself (E4 to E7): in memory, one core, into the tunnel.
//!
//! Two gateways that differ in one thing take turns. A rate is what the core would do if it did nothing
//! else: packets for each second of the worker's CPU time.

use super::super::capture::{Looks, Reader, begin};
use super::super::engine::harness::{Build, Harness, Path};
use super::super::testbed::cores;
use super::{FLOWS, Run, effort, is_due, record};
use crate::interrupt;
use crate::meters::statistics::Samples;
use crate::traffic::memory::Room;
use anyhow::ensure;
use polder_buffers::{BufferOptions, FragmentOptions, HEADROOM};
use polder_datapath::filter::{Action, Filters, Rule, RuleCounts};
use std::time::Duration;

/// Length of frames where bytes matter.
const LONG: usize = 1518;
const WARM_UP: Duration = Duration::from_millis(100);
/// Memory for E7: slots of a page, and pieces of 2 KiB and less that lie as close as they can.
const SLOT_BYTES: u32 = 4096;
const SLOTS: u32 = 1024;
const BLOCKS: u32 = 128;

/// A gateway with the technique, or without.
struct Side {
    harness: Harness,
    reader: Option<Reader>,
    what: String,
}

pub(super) fn measure(run: &mut Run) -> anyhow::Result<()> {
    let (core, other) = cores();
    for (technique, sides) in [
        ("E4", headroom as fn(usize, usize) -> anyhow::Result<[Side; 2]>),
        ("E5", rules),
        ("E6", captures),
        ("E7", boundaries),
    ] {
        if !is_due(run, technique) {
            continue;
        }
        run.place(
            "engine, for techniques that a worker has for itself",
            core,
            "one worker's thread, pinned; they take turns",
        );
        run.place("reader of captures", other, "thread, pinned, never sleeps in its turn");
        compare(run, technique, sides(core, other)?)?;
    }
    Ok(())
}

fn compare(run: &mut Run, technique: &str, sides: [Side; 2]) -> anyhow::Result<()> {
    let (rounds, time) = effort(run);
    let mut rates = [const { Samples::new() }; 2];
    for round in 1..=rounds {
        run.says(&format!("{technique} on and off, run {round} of {rounds}"));
        for (side, rates) in sides.iter().zip(&mut rates) {
            side.reader.iter().for_each(|reader| reader.wake(true));
            rates.push(rate(&side.harness, time, round == 1)?);
            side.reader.iter().for_each(|reader| reader.wake(false));
        }
    }
    let mut remarks = Vec::new();
    for Side { harness, reader, what } in sides {
        let mut remark = what;
        if let Some(reader) = reader {
            let (asked, matched, lost) = reader.stop()?;
            remark.push_str(&format!("; of {asked} packets {matched} matched, {lost} found no room"));
        }
        if harness.copied() > 0 {
            remark.push_str(&format!("; {} packets were copied", harness.copied()));
        }
        remarks.push(remark);
        let left = harness.stop()?;
        ensure!(left.leaked == 0 && left.unaccounted == 0, "{technique}: {left:?}");
    }
    let remarks = std::array::from_fn(|side| std::mem::take(&mut remarks[side]));
    record(run, technique, &rates, remarks);
    Ok(())
}

/// Packets for each second of CPU time.
fn rate(harness: &Harness, time: Duration, is_first: bool) -> anyhow::Result<f64> {
    harness.open(true);
    interrupt::sleep(if is_first { WARM_UP } else { WARM_UP / 10 })?;
    let before = harness.read()?;
    interrupt::sleep(time)?;
    let window = harness.read()?.since(&before);
    harness.open(false);
    ensure!(window.sent * 100 > window.packets * 99, "packets are lost on the way: {window:?}");
    Ok(1e9 / window.nanos_per_packet())
}

fn side(build: Build, core: usize, what: &str) -> anyhow::Result<Side> {
    Ok(Side { harness: Harness::build(build, core)?, reader: None, what: what.to_owned() })
}

/// E4: room in front of packets, so that outer headers need no copy.
fn headroom(core: usize, _: usize) -> anyhow::Result<[Side; 2]> {
    let with = |headroom| Build {
        frame_bytes: LONG,
        room: Room { headroom, ..Room::default() },
        ..Build::new(Path::Encapsulate, FLOWS)
    };
    Ok([
        side(with(HEADROOM), core, "1518 bytes; outer headers are written in front")?,
        side(with(0), core, "1518 bytes; headroom as for a port without tunnels: each packet is copied")?,
    ])
}

/// E5: no stage that is not used.
fn rules(core: usize, _: usize) -> anyhow::Result<[Side; 2]> {
    let mut counts = RuleCounts::new(1);
    counts.grow_to(1);
    let rule = Rule { action: Action::Accept, ..Rule::default() };
    let all = Filters::new(&[(rule, 0)], Vec::new(), counts)?;
    Ok([
        side(Build::new(Path::Encapsulate, FLOWS), core, "64 bytes; no rule and no stage")?,
        side(
            Build { filters: all, ..Build::new(Path::Encapsulate, FLOWS) },
            core,
            "64 bytes; a stage with one rule that accepts all",
        )?,
    ])
}

/// E6: a capture costs what it matches.
fn captures(core: usize, other: usize) -> anyhow::Result<[Side; 2]> {
    let capturing = |looks, what| {
        let mut side = side(Build::new(Path::Encapsulate, FLOWS), core, what)?;
        side.reader = begin(&side.harness, looks, other)?;
        anyhow::Ok(side)
    };
    Ok([
        capturing(Looks::Dhcp, "64 bytes; a capture of DHCP, of which there is none")?,
        capturing(Looks::Clone, "64 bytes; each packet goes to the reader, which looks for DHCP")?,
    ])
}

/// E7: buffers that cannot cross a boundary of 4 KiB. The device that sends must not be given others. Devices move
/// the payload by themselves: where the processor had written it just before, one more copy would be nearly free.
fn boundaries(core: usize, _: usize) -> anyhow::Result<[Side; 2]> {
    let with = |never_cross| {
        let mut options = BufferOptions::fixed(SLOT_BYTES, SLOTS / 4, SLOTS);
        options.data.fragments =
            Some(FragmentOptions { blocks: BLOCKS, never_cross, ..FragmentOptions::default() });
        Build {
            frame_bytes: LONG,
            room: Room { exact: true, direct: true, ..Room::default() },
            buffers: Some(options),
            erratum: true,
            ..Build::new(Path::Encapsulate, FLOWS)
        }
    };
    Ok([
        side(with(4096), core, "1518 bytes; no buffer crosses a boundary")?,
        side(with(32_768), core, "1518 bytes; buffers anywhere, those that cross are copied")?,
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each side copies packets where it must, and nowhere else.
    #[test]
    fn off_is_off() {
        for (sides, copies) in [
            (boundaries as fn(usize, usize) -> anyhow::Result<[Side; 2]>, [false, true]),
            (headroom, [false; 2]),
        ] {
            for (side, copies) in sides(0, 0).unwrap().into_iter().zip(copies) {
                rate(&side.harness, Duration::from_millis(50), true).unwrap();
                assert_eq!(side.harness.copied() > 0, copies, "{}", side.what);
                let left = side.harness.stop().unwrap();
                assert_eq!((left.leaked, left.unaccounted), (0, 0), "{}", side.what);
            }
        }
    }
}
