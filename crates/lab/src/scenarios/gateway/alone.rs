//! Techniques that a worker has for itself (E4 to E7): in memory, one core, into the tunnel.
//!
//! Two gateways that differ in one thing take turns. A rate is what the core would do if it did nothing
//! else: packets for each second of the worker's CPU time.

use super::super::capture::{Looks, Reader, begin};
use super::super::engine::harness::{Build, FRAME_BYTES, Harness, Path};
use super::super::testbed::cores;
use super::{FLOWS, Run, compare, effort, remark, rows};
use anyhow::ensure;
use polder_buffers::{BufferOptions, FragmentOptions, HEADROOM};
use polder_datapath::filter::{Action, Filters, Rule, RuleCounts};
use polder_testbed::interrupt;
use polder_testbed::traffic::memory::Room;
use std::time::Duration;

/// Length of frames where bytes matter, FCS included.
pub(super) const LONG: usize = 1518;
/// Length of the shortest frames: 64 bytes, and what `engine` adds.
pub(super) const SHORT: usize = FRAME_BYTES;
/// Sockets that a DHCP server and a DHCP client have on the path.
const SOCKETS: u64 = 2;
/// Maximum number of packets in ports and workers.
const IN_FLIGHT: u64 = 2048;
const WARM_UP: Duration = Duration::from_millis(100);
/// Memory for E7: slots of a page, and pieces of 2 KiB and less that lie as close as they can. Slots for each packet that
/// is copied, as many as ports and worker may have.
const SLOT_BYTES: u32 = 4096;
const SLOTS: u32 = 4096;
const BLOCKS: u32 = 128;

/// A gateway with the technique, or without.
pub(super) struct Side {
    harness: Harness,
    readers: Vec<Reader>,
    what: String,
}

/// Gateways with and without a technique, by cores and length of frames.
pub(super) type Sides = fn((usize, usize), usize) -> anyhow::Result<[Side; 2]>;

/// The techniques, each with the length of frames that it is for.
pub(super) const TECHNIQUES: [(&str, Sides, usize); 4] =
    [("E4", headroom, LONG), ("E5", rules, SHORT), ("E6", captures, SHORT), ("E7", boundaries, LONG)];

pub(super) fn measure(run: &mut Run) -> anyhow::Result<()> {
    let (core, other) = cores();
    for (technique, sides, bytes) in TECHNIQUES {
        if !run.is_due(&rows(technique)) {
            continue;
        }
        run.place(
            "engine, for techniques that a worker has for itself",
            core,
            "one worker's thread, pinned; they take turns",
        );
        run.place("reader of captures", other, "thread, pinned, never sleeps in its turn");
        let sides = sides((core, other), bytes)?;
        let time = effort(run).1;
        compare(run, technique, &sides, |side| side.rate(time))?;
        let [on, off] = sides.map(|side| side.stop(technique));
        remark(run, technique, [on?, off?]);
    }
    Ok(())
}

impl Side {
    fn new(build: Build, core: usize, what: String) -> anyhow::Result<Self> {
        Ok(Self { harness: Harness::build(build, core)?, readers: Vec::new(), what })
    }

    /// Adds captures, one for each socket.
    fn capturing(mut self, looks: Looks, core: usize) -> anyhow::Result<Self> {
        for socket in 0..SOCKETS {
            let tell = |command| self.harness.tell(command);
            self.readers.extend(begin(tell, looks, (socket, 0), Some(core))?);
        }
        Ok(self)
    }

    /// Packets for each second of CPU time, while the readers of captures are awake.
    pub(super) fn rate(&self, time: Duration) -> anyhow::Result<f64> {
        self.readers.iter().for_each(|reader| reader.wake(true));
        let rate = rate(&self.harness, time);
        self.readers.iter().for_each(|reader| reader.wake(false));
        rate
    }

    /// Ends the capture; returns its description and packet counts.
    pub(super) fn stop(self, technique: &str) -> anyhow::Result<String> {
        let Self { harness, readers, what: mut remark } = self;
        for reader in readers {
            let (asked, matched, lost) = reader.stop()?;
            remark.push_str(&format!("; of {asked} packets {matched} matched, {lost} found no room"));
        }
        if harness.copied() > 0 {
            remark.push_str(&format!("; {} packets were copied", harness.copied()));
        }
        let left = harness.stop()?;
        ensure!(left.leaked == 0 && left.unaccounted == 0, "{technique}: {left:?}");
        Ok(remark)
    }
}

/// Packets for each second of CPU time.
fn rate(harness: &Harness, time: Duration) -> anyhow::Result<f64> {
    harness.open(true);
    interrupt::sleep(WARM_UP)?;
    let before = harness.read()?;
    interrupt::sleep(time)?;
    let window = harness.read()?.since(&before);
    harness.open(false);
    let missing = window.packets.saturating_sub(window.sent);
    ensure!(missing <= window.packets / 100 + IN_FLIGHT, "packets are lost on the way: {window:?}");
    Ok(1e9 / window.nanos_per_packet())
}

/// E4: room in front of packets, so that outer headers need no copy.
fn headroom((core, _): (usize, usize), bytes: usize) -> anyhow::Result<[Side; 2]> {
    let with = |headroom| Build {
        frame_bytes: bytes,
        room: Room { headroom, ..Room::default() },
        ..Build::new(Path::Encapsulate, FLOWS)
    };
    let off = "headroom as for a port without tunnels: each packet is copied";
    Ok([
        Side::new(with(HEADROOM), core, format!("{bytes} bytes; outer headers are written in front"))?,
        Side::new(with(0), core, format!("{bytes} bytes; {off}"))?,
    ])
}

/// A stage that accepts all.
fn accept_all() -> anyhow::Result<Filters> {
    let mut counts = RuleCounts::new(1);
    counts.grow_to(1);
    let rule = Rule { action: Action::Accept, ..Rule::default() };
    Ok(Filters::new(&[(rule, 0)], Vec::new(), counts)?)
}

/// E5: no stage that is not used.
fn rules((core, _): (usize, usize), bytes: usize) -> anyhow::Result<[Side; 2]> {
    let with = |filters| Build { frame_bytes: bytes, filters, ..Build::new(Path::Encapsulate, FLOWS) };
    Ok([
        Side::new(with(Filters::none()), core, format!("{bytes} bytes; no rule and no stage"))?,
        Side::new(
            with(accept_all()?),
            core,
            format!("{bytes} bytes; a stage with one rule that accepts all"),
        )?,
    ])
}

/// E6: a capture costs what it matches.
fn captures((core, other): (usize, usize), bytes: usize) -> anyhow::Result<[Side; 2]> {
    let capturing = |looks, what: &str| {
        let build = Build { frame_bytes: bytes, ..Build::new(Path::Encapsulate, FLOWS) };
        Side::new(build, core, format!("{bytes} bytes; {SOCKETS} sockets, {what}"))?.capturing(looks, other)
    };
    Ok([
        capturing(Looks::Dhcp, "which match DHCP, of which there is none, in the worker")?,
        capturing(Looks::Clone, "whose reader gets each packet and looks for DHCP")?,
    ])
}

/// E7: buffers that cannot cross a boundary of 4 KiB. The device that sends must not be given others. Devices move
/// the payload by themselves: where the processor had written it just before, one more copy would be nearly free.
fn boundaries((core, _): (usize, usize), bytes: usize) -> anyhow::Result<[Side; 2]> {
    let with = |never_cross| Build { frame_bytes: bytes, ..direct(never_cross, HEADROOM) };
    Ok([
        Side::new(with(4096), core, format!("{bytes} bytes; no buffer crosses a boundary"))?,
        Side::new(
            with(32_768),
            core,
            format!("{bytes} bytes; buffers anywhere, those that cross are copied"),
        )?,
    ])
}

/// Ports that move the payload as devices do, in buffers that cross no multiple of `never_cross`.
fn direct(never_cross: u32, headroom: u16) -> Build {
    let mut options = BufferOptions::fixed(SLOT_BYTES, SLOTS / 4, SLOTS);
    options.data.fragments =
        Some(FragmentOptions { blocks: BLOCKS, never_cross, ..FragmentOptions::default() });
    Build {
        room: Room { headroom, exact: true, direct: true },
        buffers: Some(options),
        erratum: true,
        ..Build::new(Path::Encapsulate, FLOWS)
    }
}

/// E4 to E7 together, with so many flows.
pub(super) fn together((core, other): (usize, usize), bytes: usize, flows: u32) -> anyhow::Result<[Side; 2]> {
    let on = Build { frame_bytes: bytes, flows, ..direct(4096, HEADROOM) };
    let off = Build { frame_bytes: bytes, flows, filters: accept_all()?, ..direct(32_768, 0) };
    Ok([
        Side::new(on, core, format!("{bytes} bytes, {flows} flows; E4 to E7"))?
            .capturing(Looks::Dhcp, other)?,
        Side::new(off, core, format!("{bytes} bytes, {flows} flows; none of them"))?
            .capturing(Looks::Clone, other)?,
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each side copies packets where it must, and nowhere else.
    #[test]
    fn off_is_off() {
        for (sides, copies) in [(boundaries as Sides, [false, true]), (headroom, [false; 2])] {
            for (side, copies) in sides((0, 0), LONG).unwrap().into_iter().zip(copies) {
                rate(&side.harness, Duration::from_millis(50)).unwrap();
                assert_eq!(side.harness.copied() > 0, copies, "{}", side.what);
                let left = side.harness.stop().unwrap();
                assert_eq!((left.leaked, left.unaccounted), (0, 0), "{}", side.what);
            }
        }
    }

    /// Gateways with all techniques and with none lose no packet for want of memory.
    #[test]
    fn all_together_carry_what_comes() {
        for bytes in [SHORT, LONG] {
            for side in together((0, 0), bytes, 1).unwrap() {
                side.rate(Duration::from_millis(50)).unwrap();
                side.stop("all").unwrap();
            }
        }
    }
}
