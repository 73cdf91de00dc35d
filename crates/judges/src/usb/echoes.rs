//! Checks of gadgets and models alike, by frames that a guest's network stack answers.

use super::bed::{Subject, Testbed};
use super::station::{
    GUEST, GUEST_MAC, LARGEST, OTHER, OTHER_MAC, UNKNOWN, UNKNOWN_MAC, arp_request, echo, is_arp_question,
    is_arp_reply, is_same,
};
use anyhow::ensure;

pub(super) fn one_echo<S: Subject>(bed: &mut Testbed<S>) -> anyhow::Result<()> {
    S::ready(bed)?;
    bed.echoes(&[56])
}

pub(super) fn all_sizes<S: Subject>(bed: &mut Testbed<S>) -> anyhow::Result<()> {
    S::ready(bed)?;
    bed.echoes(&(0..=LARGEST).collect::<Vec<_>>())
}

pub(super) fn broadcast<S: Subject>(bed: &mut Testbed<S>) -> anyhow::Result<()> {
    S::ready(bed)?;
    bed.ask(&arp_request(), is_arp_reply)
}

/// Frames to and from a second station, as a bridge needs it.
pub(super) fn promiscuous<S: Subject>(bed: &mut Testbed<S>) -> anyhow::Result<()> {
    S::ready(bed)?;
    let (other, guest) = ((OTHER_MAC, OTHER), (GUEST_MAC, GUEST));
    let wanted = echo(0, 7, 100, guest, other);
    bed.ask(&echo(8, 7, 100, other, guest), |frame| is_same(frame, &wanted))
}

/// A question of the guest to all, which answers nothing that was sent.
pub(super) fn own_frames<S: Subject>(bed: &mut Testbed<S>) -> anyhow::Result<()> {
    S::ready(bed)?;
    let from = (UNKNOWN_MAC, UNKNOWN);
    bed.ask(&echo(8, 7, 100, from, (GUEST_MAC, GUEST)), |frame| is_arp_question(frame, UNKNOWN))
}

/// So many echoes of sizes that jump.
pub(super) fn many<S: Subject>(bed: &mut Testbed<S>, count: usize, step: usize) -> anyhow::Result<()> {
    S::ready(bed)?;
    bed.echoes(&(0..count).map(|number| number * step % (LARGEST + 1)).collect::<Vec<_>>())
}

/// The guest's kernel has printed none of these words, in lines that count.
pub(super) fn silence<S: Subject>(
    bed: &mut Testbed<S>,
    odd: &[&str],
    counts: impl Fn(&str) -> bool,
) -> anyhow::Result<()> {
    let log = bed.guest.log()?;
    let mut lines = log.lines().filter(|line| counts(line));
    let said = lines.find(|line| odd.iter().any(|word| line.contains(word)));
    ensure!(said.is_none(), "the kernel says: {}", said.unwrap_or_default());
    Ok(())
}
