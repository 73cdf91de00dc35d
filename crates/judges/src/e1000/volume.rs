//! Many frames each way over the emulated controller, each looked at, and the worth of one tail write for many.

use super::bench::{Bench, equal};
use super::judge::available;
use super::machine::Chip;
use polder_devices::e1000::Options;
use polder_devices::e1000::model::frames::frame;
use polder_devices::e1000::statistics::Statistic;
use polder_testbed::{clock, interrupt};
use std::time::Duration;

/// Lengths of frames, in turn.
const LENGTHS: core::ops::RangeInclusive<usize> = 60..=1514;
/// Frames that are made at once, and packets that one tail write announces at most.
const CHUNK: usize = 1024;
const BATCH: usize = 64;
/// Bytes of a frame whose way is timed.
const SHORT: usize = 60;

/// Result of the frames each way.
#[derive(Clone, Copy, Debug, Default)]
pub struct Volume {
    /// Frames that arrived as they were, received and sent.
    pub verified: [u32; 2],
    /// Frames that did not arrive and that the controller has not counted as missed, both ways together.
    pub lost: u32,
    /// Duration of both.
    pub took: [Duration; 2],
}

/// Carries `count` frames each way.
///
/// # Errors
/// When the emulator does not start, or a frame is not as it was.
pub fn carry(count: u32) -> anyhow::Result<Volume> {
    available()?;
    let mut bench = Bench::start(Chip::I82540em, None)?;
    bench.open(&Options::default())?;
    let mut volume = Volume::default();
    let start = clock::now();
    for frames in chunks(count) {
        interrupt::check()?;
        let received = bench.exchange(&frames, frames.len())?;
        volume.verified[0] += verify(&received, &frames)?;
    }
    let middle = clock::now();
    for frames in chunks(count) {
        interrupt::check()?;
        let sent = send(&mut bench, &frames, BATCH)?;
        volume.verified[1] += verify(&sent, &frames)?;
    }
    volume.took = [middle - start, clock::now() - middle];
    bench.is_reported()?;
    // A missed frame is a drop of the queue by then.
    bench.settle()?;
    let missed = bench.status()?.facts().statistics.get(Statistic::Missed);
    let arrived = u64::from(volume.verified[0]) + u64::from(volume.verified[1]) + missed;
    volume.lost = u32::try_from((2 * u64::from(count)).saturating_sub(arrived))?;
    Ok(volume)
}

/// Time from the write of the tail to the frame on the wire, for each of so many frames, by frames a tail write.
///
/// # Errors
/// When the emulator does not start, or a frame does not arrive.
pub fn time_each(count: u32, batch: usize) -> anyhow::Result<Duration> {
    available()?;
    let mut bench = Bench::start(Chip::I82540em, None)?;
    bench.open(&Options::default())?;
    let frames = (0..count).map(|number| frame(number, SHORT)).collect::<Vec<_>>();
    let start = clock::now();
    let sent = send(&mut bench, &frames, batch)?;
    let took = clock::now() - start;
    equal(&sent, &frames)?;
    Ok(took / count.max(1))
}

/// Frames of all lengths, unlike each other, a part at a time.
fn chunks(count: u32) -> impl Iterator<Item = Vec<Vec<u8>>> {
    let numbered = (0..count).zip(LENGTHS.cycle());
    let mut frames = numbered.map(|(number, length)| frame(number, length));
    core::iter::from_fn(move || {
        let chunk = frames.by_ref().take(CHUNK).collect::<Vec<_>>();
        (!chunk.is_empty()).then_some(chunk)
    })
}

/// Sends frames, a given number per write of the tail register; returns the transmitted frames.
fn send(bench: &mut Bench, frames: &[Vec<u8>], batch: usize) -> anyhow::Result<Vec<Vec<u8>>> {
    let mut sent = Vec::with_capacity(frames.len());
    for frames in frames.chunks(batch) {
        let packets = frames.iter().map(|frame| bench.packet(frame)).collect::<anyhow::Result<Vec<_>>>()?;
        sent.extend(bench.send(packets, frames.len())?);
    }
    Ok(sent)
}

/// Number of frames that arrived unchanged; missing frames are at the end.
fn verify(found: &[Vec<u8>], wanted: &[Vec<u8>]) -> anyhow::Result<u32> {
    equal(found, wanted.get(..found.len()).unwrap_or(wanted))?;
    Ok(u32::try_from(found.len())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_have_all_frames_once() {
        let frames = chunks(3000).flatten().collect::<Vec<_>>();
        assert_eq!((frames.len(), frames[0].len(), frames[1455].len()), (3000, 60, 60));
        let unlike = frames.iter().collect::<std::collections::BTreeSet<_>>();
        assert_eq!(unlike.len(), 3000);
        assert_eq!(verify(&frames[..2990], &frames).unwrap(), 2990);
        assert!(verify(&frames[1..], &frames).is_err() && verify(&frames, &frames[1..]).is_err());
    }
}
