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
