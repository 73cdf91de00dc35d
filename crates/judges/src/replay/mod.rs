//! Public captures through the kernel's bridge and through Polder's, whose frames are compared byte by byte.
//!
//! Both bridges have two ports and nothing else that is not a default (`bed`). The frames of each capture (`captures`) are sent
//! as they are, in bursts, by packet sockets on both sides: a frame enters by the side of its sender. What leaves is
//! compared with what was sent (`compare`): a frame that the kernel's bridge carries and Polder's does not is lost, one that
//! leaves with other bytes is changed, and order is that of the capture. A frame whose fate differs by standard is explained
//! by a rule (`explained`). Each check is shown to fail on a broken bridge (`mutants`).

mod bed;
mod captures;
mod compare;
mod explained;
mod mutants;

pub use mutants::Check;

use crate::examination::{Need, Plan, Verdict, require};
use anyhow::ensure;
use bed::{Bed, Left, Side};
use captures::Capture;
use compare::{Difference, Outcome};
use mutants::{FAULTS, Fault, WIRES, Wire};
use polder_testbed::clock;
use std::collections::BTreeMap;
use std::time::Duration;

/// Modes of Polder's ports; the first one is the default.
pub const MODES: [&str; 4] = ["auto", "skb", "generic", "native"];
/// Number of broken bridges that there are.
pub const MUTANTS: usize = FAULTS.len() + WIRES.len();
/// Frames of a burst at most: a veth's ring holds 256.
const BURST: usize = 128;
/// Time for which Polder may take to follow a change.
const FOLLOWS: Duration = Duration::from_secs(5);

/// Result of all replays.
#[derive(Clone, Debug, Default)]
pub struct Comparison {
    /// Captures, each replayed in every mode.
    pub captures: usize,
    /// Frames that were sent to Polder's bridge, in all modes.
    pub frames: usize,
    /// Frames of them that the kernel's bridge has carried.
    pub carried: usize,
    /// Failures by check, as text for people.
    pub failures: BTreeMap<Check, Vec<String>>,
    /// Captures with a failure, with the modes.
    pub failed: BTreeMap<String, Vec<&'static str>>,
    /// Frames by the rule that explains their fate.
    pub explained: BTreeMap<&'static str, usize>,
    /// Frames that left the kernel's bridge out of the order of the capture.
    pub kernel_reordered: usize,
    /// Packets into which Polder has merged others.
    pub merged: u64,
    /// Broken bridges that a check has detected, with the capture, and broken bridges that passed all checks.
    pub faults: Verdict,
}

/// Explanations of differences: a name, and the reason.
pub fn explanations() -> impl Iterator<Item = (&'static str, &'static str)> {
    explained::EXPLANATIONS.iter().map(|explanation| (explanation.name, explanation.reason))
}

/// Fails where captures cannot be replayed.
///
/// # Errors
/// The missing program, privilege or data, and how to get it.
pub fn available() -> anyhow::Result<()> {
    require(&[Need::Root, Need::Polder], &["ip", "ethtool"])?;
    captures::available()
}

/// Replays all captures, or every `step`-th, in each mode.
///
/// # Errors
/// When the comparison itself cannot be made; differences are in the verdict.
pub fn examine(step: usize, says: &dyn Fn(&str)) -> anyhow::Result<Comparison> {
    available()?;
    let all = captures::all()?;
    let captures = all.iter().step_by(step).cloned().collect::<Vec<_>>();
    let broken = FAULTS.iter().map(|fault| fault.name).chain(WIRES.iter().map(|wire| wire.name));
    let faults = Verdict::begin("", Plan::default().faults_named(broken));
    let mut verdict = Comparison { captures: captures.len(), faults, ..Comparison::default() };
    for mode in MODES {
        says(&format!("captures in mode {mode}"));
        let mut replay = Replay { bed: Bed::lay(mode)?, mode, sides: BTreeMap::new() };
        for capture in &captures {
            let bursts = replay.replay(capture)?;
            verdict.look_at(capture, mode, &bursts);
        }
        if mode == MODES[0] {
            verdict.examine_faults(&mut replay, &all, says)?;
        }
        verdict.merged += replay.bed.merged()?;
        replay.bed.end()?;
    }
    let wires = WIRES.iter().filter(|wire| !verdict.has_found(wire));
    let missed = wires.map(|wire| wire.name.to_owned()).collect::<Vec<_>>();
    verdict.faults.missed.extend(missed);
    verdict.faults.ended("captures and faults");
    Ok(verdict)
}

/// Frames of one side of a capture, sent without a pause, and the frames that left each bridge.
struct Burst {
    sent: Vec<Vec<u8>>,
    kernel: Left,
    polder: Left,
}

impl Burst {
    fn difference(&self, polder: &Left) -> Difference {
        let [kernel, outcome] = [&self.kernel, polder].map(|left| Outcome::of(&self.sent, &left.passed));
        let mut difference = Difference::between(&self.sent, &kernel, &outcome);
        let is_alone = |frame: &&Vec<u8>| !self.kernel.returned.contains(frame);
        difference.added.extend(polder.returned.iter().filter(is_alone).cloned());
        difference
    }

    /// Number of failures by check, without explained ones.
    fn failures(&self, polder: &Left) -> [usize; 5] {
        let difference = self.difference(polder);
        let is_unexplained =
            |index: usize, left: Option<&[u8]>| explained::explanation(&self.sent[index], left).is_none();
        let lost = |index: &&usize| is_unexplained(**index, None);
        let changed = |(index, left): &&(usize, Vec<u8>)| is_unexplained(*index, Some(left));
        Check::ALL.map(|check| match check {
            Check::NothingLost => difference.lost.iter().filter(lost).count(),
            Check::NothingChanged => difference.changed.iter().filter(changed).count(),
            Check::NothingAdded => difference.added.len() + difference.carried_alone.len(),
            Check::FlowOrderKept => difference.reordered_in_flow.len(),
            Check::OrderKept => difference.reordered.len(),
        })
    }
}

/// Both bridges, with Polder's ports in one mode.
struct Replay {
    bed: Bed,
    mode: &'static str,
    /// Side of each station, the same in all captures.
    sides: BTreeMap<[u8; 6], Side>,
}

impl Replay {
    /// Sends a capture to both bridges: what enters by the west, then what enters by the east.
    fn replay(&mut self, capture: &Capture) -> anyhow::Result<Vec<Burst>> {
        let mut by_side = [Vec::new(), Vec::new()];
        for frame in &capture.frames {
            by_side[side_of(&mut self.sides, frame) as usize].push(frame.clone());
        }
        let mut bursts = Vec::new();
        for (side, frames) in Side::ALL.into_iter().zip(by_side) {
            for sent in frames.chunks(BURST) {
                let [kernel, polder] = self.bed.replay(side, sent)?;
                bursts.push(Burst { sent: sent.to_vec(), kernel, polder });
            }
        }
        Ok(bursts)
    }

    /// The first capture on which a check fails, with its name.
    fn fails(&mut self, check: Check, captures: &[Capture]) -> anyhow::Result<Option<String>> {
        for capture in captures {
            let bursts = self.replay(capture)?;
            if bursts.iter().any(|burst| burst.failures(&burst.polder)[check as usize] > 0) {
                return Ok(Some(capture.name.clone()));
            }
        }
        Ok(None)
    }
}

/// The side of a frame's sender: the side of its earlier frames, or else the side opposite to the receiver.
fn side_of(sides: &mut BTreeMap<[u8; 6], Side>, frame: &[u8]) -> Side {
    let station = |at: usize| frame.get(at..).and_then(<[u8]>::first_chunk::<6>).copied();
    let (Some(receiver), Some(sender)) = (station(0), station(6)) else { return Side::West };
    let receivers = sides.get(&receiver).copied();
    let side = *sides.entry(sender).or_insert_with(|| receivers.map_or(Side::West, Side::other));
    if receiver[0] & 1 == 0 {
        sides.entry(receiver).or_insert(side.other());
    }
    side
}

impl Comparison {
    /// Number of failures of a check.
    pub fn failures_of(&self, check: Check) -> usize {
        self.failures.get(&check).map_or(0, Vec::len)
    }

    fn look_at(&mut self, capture: &Capture, mode: &'static str, bursts: &[Burst]) {
        for burst in bursts {
            let kernel = Outcome::of(&burst.sent, &burst.kernel.passed);
            self.frames += burst.sent.len();
            self.carried += kernel.carried.iter().filter(|&&carried| carried).count();
            self.kernel_reordered += kernel.misplaced.len();
            let difference = burst.difference(&burst.polder);
            self.note(&capture.name, mode, burst, &difference);
            self.look_at_wires(&capture.name, burst);
        }
    }

    /// Notes a difference, frame by frame.
    fn note(&mut self, name: &str, mode: &'static str, burst: &Burst, difference: &Difference) {
        let bytes = |index: usize| hexadecimal(&burst.sent[index]);
        let lost = difference.lost.iter().map(|&index| (index, None));
        let changed = difference.changed.iter().map(|(index, left)| (*index, Some(left.as_slice())));
        for (index, left) in lost.chain(changed) {
            if let Some(explanation) = explained::explanation(&burst.sent[index], left) {
                *self.explained.entry(explanation.name).or_default() += 1;
                continue;
            }
            match left {
                None => self.fail(Check::NothingLost, name, mode, format!("{} is lost", bytes(index))),
                Some(left) => {
                    let text = format!("{} becomes {}", bytes(index), hexadecimal(left));
                    self.fail(Check::NothingChanged, name, mode, text);
                }
            }
        }
        for &index in &difference.carried_alone {
            let text = format!("{} is carried by Polder alone", bytes(index));
            self.fail(Check::NothingAdded, name, mode, text);
        }
        for frame in &difference.added {
            self.fail(Check::NothingAdded, name, mode, format!("{} is added", hexadecimal(frame)));
        }
        let orders = [
            (Check::FlowOrderKept, &difference.reordered_in_flow),
            (Check::OrderKept, &difference.reordered),
        ];
        for (check, index) in
            orders.iter().flat_map(|(check, list)| list.iter().map(|index| (*check, *index)))
        {
            let text = format!("frame {index} of {} changes its place: {}", burst.sent.len(), bytes(index));
            self.fail(check, name, mode, text);
        }
    }

    fn fail(&mut self, check: Check, name: &str, mode: &'static str, text: String) {
        self.failures.entry(check).or_default().push(format!("{name}, mode {mode}: {text}"));
        let modes = self.failed.entry(name.to_owned()).or_default();
        if modes.last() != Some(&mode) {
            modes.push(mode);
        }
    }

    fn has_found(&self, wire: &Wire) -> bool {
        let prefix = format!("{}:", wire.name);
        self.faults.caught.iter().any(|caught| caught.starts_with(&prefix))
    }

    /// Spoils what has left Polder with each wire that no check has failed on so far.
    fn look_at_wires(&mut self, name: &str, burst: &Burst) {
        for wire in WIRES {
            let mut spoilt = burst.polder.clone();
            (wire.spoil)(&mut spoilt);
            let [honest, broken] =
                [&burst.polder, &spoilt].map(|left| burst.failures(left)[wire.check as usize]);
            if !self.has_found(wire) && honest == 0 && broken > 0 {
                self.faults.conclude(wire.name, Some(format!("{} on {name}", wire.check.name())));
            }
        }
    }

    /// Applies each fault to Polder until its check fails, and removes the fault until the check passes again.
    fn examine_faults(
        &mut self,
        replay: &mut Replay,
        captures: &[Capture],
        says: &dyn Fn(&str),
    ) -> anyhow::Result<()> {
        for fault in FAULTS {
            says(fault.name);
            let found = examine_fault(replay, fault, captures)?;
            self.faults.conclude(fault.name, found.map(|name| format!("{} on {name}", fault.check.name())));
        }
        Ok(())
    }
}

/// The capture on which the check fails while Polder has a fault.
fn examine_fault(replay: &mut Replay, fault: &Fault, captures: &[Capture]) -> anyhow::Result<Option<String>> {
    replay.bed.reload(replay.mode, Some(fault))?;
    let found = replay.fails(fault.check, captures)?;
    replay.bed.reload(replay.mode, None)?;
    let Some(name) = &found else { return Ok(found) };
    let one = captures.iter().filter(|capture| capture.name == *name).cloned().collect::<Vec<_>>();
    let end = clock::now() + FOLLOWS;
    while replay.fails(fault.check, &one)?.is_some() {
        ensure!(clock::now() < end, "{} is still there after it was taken back", fault.name);
    }
    Ok(found)
}

/// The first bytes of a frame.
fn hexadecimal(frame: &[u8]) -> String {
    let shown = frame.iter().take(80).map(|byte| format!("{byte:02x}")).collect::<String>();
    if frame.len() > 80 { format!("{shown}… of {} bytes", frame.len()) } else { shown }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stations_that_speak_to_each_other_are_on_different_sides() {
        let frame = |to: u8, from: u8| [[to; 6], [from; 6]].concat();
        let mut sides = BTreeMap::new();
        assert_eq!(side_of(&mut sides, &frame(2, 4)), Side::West);
        assert_eq!(side_of(&mut sides, &frame(4, 2)), Side::East);
        assert_eq!(side_of(&mut sides, &frame(2, 6)), Side::West, "a second one beside the first");
        assert_eq!(side_of(&mut sides, &frame(0xff, 2)), Side::East, "a broadcast");
        assert_eq!(side_of(&mut sides, &frame(0xff, 8)), Side::West);
        assert_eq!(side_of(&mut sides, &[1, 2, 3]), Side::West, "no frame");
    }
}
