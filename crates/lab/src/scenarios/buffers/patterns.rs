//! Uses that starting a block again (D1) and several blocks (D6) are *not* for: pieces live so long
//! that a block is never alone. They must not be costlier for it.

use super::windows::{WINDOW, Windows};
use polder_buffers::{FragmentMemory, FragmentOptions, Fragments, Frame};
use std::collections::VecDeque;

/// A way of using fragments.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pattern {
    pub(super) row: &'static str,
    /// Number of live buffers; the oldest one goes first.
    live: usize,
    /// Bytes, in turn.
    bytes: &'static [u32],
    /// Number taken and released at a time.
    batch: usize,
}

/// Datagrams wait in a socket; routed packets in the rings of two devices; buffers that are posted long
/// before they are used, as many as a ring is long.
pub(super) const PATTERNS: [Pattern; 3] = [
    Pattern { row: "buffers.control.udp.loss_percent", live: 256, bytes: &[192, 320, 256, 704], batch: 16 },
    Pattern {
        row: "buffers.control.routing.loss_percent",
        live: 128,
        bytes: &[320, 1792, 832, 1792],
        batch: 32,
    },
    Pattern { row: "buffers.control.long_posted.loss_percent", live: 1024, bytes: &[2048], batch: 32 },
];

/// Segments of one TCP stream, copied into pieces and read before the next ones come: what starting again is for.
pub(super) const STREAM: Pattern = Pattern { row: "", live: 0, bytes: &[1792], batch: 8 };
/// The stream with slower reading: waiting pieces belong to two blocks.
pub(super) const SLOWER_STREAM: Pattern = Pattern { row: "", live: 24, bytes: &[1792], batch: 8 };
/// Buffers of a whole page, as for packets that an adapter has merged.
pub(super) const MERGED: Pattern = Pattern { row: "", live: 64, bytes: &[4096], batch: 16 };
/// Jumbo frames, taken and released one batch after the other.
pub(super) const JUMBO: Pattern = Pattern { row: "", live: 0, bytes: &[9000], batch: 8 };
const BLOCK_BYTES: u64 = 32 << 10;

/// Percentage of the beginnings of a block for which no fresh one was needed, because a block that was held was alone.
pub(super) fn alone_percent(
    pattern: Pattern,
    rounds: usize,
    options: FragmentOptions,
) -> anyhow::Result<f64> {
    let memory = FragmentMemory::new(options)?;
    let mut fragments = memory.fragments();
    let mut live = VecDeque::<Frame>::with_capacity(pattern.live + pattern.batch);
    let (mut alone, mut fresh, mut last) = (0, 0, None);
    let mut sizes = pattern.bytes.iter().copied().cycle();
    for _ in 0..rounds / pattern.batch {
        for bytes in sizes.by_ref().take(pattern.batch) {
            let before = memory.free_blocks();
            let Some(frame) = begun(&mut fragments, bytes) else { continue };
            let at = frame.offset_in_region();
            // Blocks are carved downwards.
            let begins = last.is_none_or(|last| at / BLOCK_BYTES != last / BLOCK_BYTES || at >= last);
            let is_fresh = memory.free_blocks() != before;
            fresh += u32::from(begins && is_fresh);
            alone += u32::from(begins && !is_fresh);
            last = Some(at);
            live.push_back(frame);
        }
        let over = live.len().saturating_sub(pattern.live);
        live.drain(..over).for_each(|frame| fragments.release(frame));
        fragments.settle();
    }
    live.drain(..).for_each(|frame| fragments.release(frame));
    Ok(100.0 * f64::from(alone) / f64::from((alone + fresh).max(1)))
}

/// Pieces of `bytes` that one block holds.
pub(super) fn in_a_block(bytes: u32, options: FragmentOptions) -> anyhow::Result<f64> {
    let options = FragmentOptions { blocks: 1, spare_pages: 0, ..options };
    let mut fragments = FragmentMemory::new(options)?.fragments();
    let pieces = core::iter::from_fn(|| fragments.take(bytes)).collect::<Vec<_>>();
    let count = pieces.len();
    pieces.into_iter().for_each(|piece| fragments.release(piece));
    Ok(f64::from(u32::try_from(count)?))
}

/// Percentage of a burst of pieces of 1 KiB that was had, where so many blocks are free.
pub(super) fn had_percent(burst: usize, options: FragmentOptions) -> anyhow::Result<f64> {
    let mut fragments = FragmentMemory::new(options)?.fragments();
    let pieces = (0..burst).filter_map(|_| fragments.take(1024)).collect::<Vec<_>>();
    let percent = 100.0 * f64::from(u32::try_from(pieces.len())?) / f64::from(u32::try_from(burst)?);
    pieces.into_iter().for_each(|piece| fragments.release(piece));
    Ok(percent)
}

/// Nanoseconds of taking a piece, writing its headers, and releasing the oldest one.
pub(super) fn cost(pattern: Pattern, rounds: usize, options: FragmentOptions) -> anyhow::Result<f64> {
    let mut fragments = FragmentMemory::new(options)?.fragments();
    let mut windows = Windows::new();
    let mut live = VecDeque::<Frame>::with_capacity(pattern.live + pattern.batch);
    let mut sizes = pattern.bytes.iter().copied().cycle();
    for _ in 0..rounds / WINDOW {
        windows.time(WINDOW, || {
            for _ in 0..WINDOW / pattern.batch {
                let sizes = sizes.by_ref().take(pattern.batch);
                live.extend(sizes.filter_map(|bytes| begun(&mut fragments, bytes)));
                let over = live.len().saturating_sub(pattern.live);
                live.drain(..over).for_each(|frame| fragments.release(frame));
                fragments.settle();
            }
        });
    }
    live.drain(..).for_each(|frame| fragments.release(frame));
    Ok(windows.nanos())
}

/// A piece with its headers written.
#[inline(always)]
fn begun(fragments: &mut Fragments, bytes: u32) -> Option<Frame> {
    let mut frame = fragments.take(bytes)?;
    frame.slot_mut()[..64].fill(1);
    Some(frame)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> FragmentOptions {
        FragmentOptions { blocks: 128, ..FragmentOptions::default() }
    }

    /// The meter tells a block that starts again from a fresh one.
    #[test]
    fn a_block_is_alone_as_often_as_the_pattern_lets_it() {
        let one = FragmentOptions { held_blocks: 1, ..options() };
        let of = |pattern, options| alone_percent(pattern, 8000, options).unwrap();
        assert!(of(STREAM, options()) > 99.0 && of(STREAM, one) > 99.0);
        assert!(of(SLOWER_STREAM, one) < 1.0, "{}", of(SLOWER_STREAM, one));
        assert!(of(SLOWER_STREAM, options()) > 95.0, "{}", of(SLOWER_STREAM, options()));
    }

    #[test]
    fn blocks_hold_what_the_source_says() {
        let whole = FragmentOptions { never_cross: 32_768, ..options() };
        let pages = FragmentOptions { large_blocks: false, ..whole };
        assert_eq!(in_a_block(9000, whole).unwrap(), 3.0);
        assert_eq!(in_a_block(9000, pages).unwrap(), 0.0);
        assert_eq!(in_a_block(2048, pages).unwrap(), 16.0, "eight pages of two");
    }

    #[test]
    fn single_pages_stand_in() {
        let few = FragmentOptions { blocks: 2, spare_pages: 16, ..options() };
        assert_eq!(had_percent(128, few).unwrap(), 100.0);
        assert_eq!(had_percent(128, FragmentOptions { spare_pages: 0, ..few }).unwrap(), 50.0);
    }
}
