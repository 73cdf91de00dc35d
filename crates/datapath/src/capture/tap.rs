//! Tap: queue of matching packets from a worker to the capture's writer, copied into reusable chunks.
//!
//! Two rings connect worker and reader: filled chunks and free chunks. A packet without enough free chunks is
//! counted as lost; the worker never waits and never allocates.

use super::program::Program;
use super::run::{Runner, View};
use super::{CapturePoints, CapturedPacket};
use crate::counters::Counter;
use polder_buffers::ring::{self, Consumer, Producer};
use polder_buffers::{BATCH, Packet, PortId};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Bytes of a packet per chunk: most packets take one chunk.
pub const CHUNK_BYTES: usize = 2000;

/// A part of a captured packet.
struct Chunk {
    /// Metadata, in the first part of each packet.
    seen: Option<CapturedPacket>,
    /// True if another part follows.
    more: bool,
    length: usize,
    bytes: [u8; CHUNK_BYTES],
}

/// Capture points, program and limits of a tap.
#[derive(Clone, Debug)]
pub struct TapOptions {
    /// Number of the capture.
    pub capture: u64,
    /// Captured port or tunnel.
    pub port: PortId,
    /// Capture points.
    pub places: CapturePoints,
    /// Filter program.
    pub program: Arc<Program>,
    /// Maximum number of bytes captured per packet.
    pub longest: u32,
    /// Number of chunks between worker and reader.
    pub chunks: usize,
    /// Number of the worker.
    pub worker: u16,
}

/// Counters of a tap.
#[derive(Debug, Default)]
pub struct TapCounters {
    /// Packets that the program examined.
    pub asked: Counter,
    /// Packets that matched.
    pub matched: Counter,
    /// Packets that matched and were lost for lack of chunks.
    pub lost: Counter,
    /// True once the worker has the tap.
    begun: AtomicBool,
    /// True once the worker has dropped the tap.
    ended: AtomicBool,
}

/// Worker's end of a tap.
pub struct Tap {
    options: TapOptions,
    filled: Producer<Box<Chunk>>,
    free: Consumer<Box<Chunk>>,
    counters: Arc<TapCounters>,
}

/// Reader's end of a tap.
pub struct TapReader {
    filled: Consumer<Box<Chunk>>,
    free: Producer<Box<Chunk>>,
    /// Metadata of the packet whose parts are being read.
    seen: Option<CapturedPacket>,
    bytes: Vec<u8>,
    counters: Arc<TapCounters>,
}

impl core::fmt::Debug for Tap {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.debug_struct("Tap").field("options", &self.options).finish_non_exhaustive()
    }
}

impl core::fmt::Debug for TapReader {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.debug_struct("TapReader").field("counters", &self.counters).finish_non_exhaustive()
    }
}

/// Creates both ends of a tap.
pub fn tap(options: TapOptions) -> (Tap, TapReader) {
    let (filled, to_read) = ring::channel(options.chunks);
    let (mut free, to_fill) = ring::channel(options.chunks);
    let chunk = || Box::new(Chunk { seen: None, more: false, length: 0, bytes: [0; CHUNK_BYTES] });
    let put = free.push_all(options.chunks, (0..options.chunks).map(|_| chunk()));
    debug_assert_eq!(put, options.chunks, "a ring has room for what it was made for");
    let counters = Arc::<TapCounters>::default();
    let reader =
        TapReader { filled: to_read, free, seen: None, bytes: Vec::new(), counters: Arc::clone(&counters) };
    (Tap { options, filled, free: to_fill, counters }, reader)
}

impl Drop for Tap {
    fn drop(&mut self) {
        // Release: a reader that sees the flag finds all captured packets in the ring.
        self.counters.ended.store(true, Ordering::Release);
    }
}

impl Tap {
    /// Records that a worker has the tap and examines packets.
    pub(super) fn begin(&self) {
        // Relaxed: the flag orders nothing.
        self.counters.begun.store(true, Ordering::Relaxed);
    }

    /// Capture points, program and limits.
    pub fn options(&self) -> &TapOptions {
        &self.options
    }

    /// Bit set of the matching packets among those in the bit set `wanted`.
    #[inline]
    pub(super) fn matching(&mut self, packets: &[Packet], wanted: u64, runner: &mut Runner) -> u64 {
        self.counters.asked.add(u64::from(wanted.count_ones()));
        let fronts = |length| Packet::fronts(packets, length);
        let candidates = wanted & self.options.program.may_match(fronts);
        if candidates == 0 { 0 } else { runner.run(&self.options.program, &views_of(packets), candidates) }
    }

    /// Captures the packets of a batch in the bit set `matching`, which the runner has just found; `seen`
    /// returns a packet's metadata.
    pub(super) fn take(
        &mut self,
        packets: &[Packet],
        mut matching: u64,
        runner: &Runner,
        seen: impl Fn(&Packet) -> CapturedPacket,
    ) {
        self.counters.matched.add(u64::from(matching.count_ones()));
        while matching != 0 {
            let place = matching.trailing_zeros() as usize;
            matching &= matching - 1;
            let Some(packet) = packets.get(place) else { break };
            if !self.copy(packet, runner.verdicts[place], seen(packet)) {
                self.counters.lost.add(1);
            }
        }
    }

    /// Copies a packet; false if there are too few free chunks.
    fn copy(&mut self, packet: &Packet, wanted: u32, seen: CapturedPacket) -> bool {
        let length = packet.len().min(wanted.min(self.options.longest) as usize);
        let parts = length.div_ceil(CHUNK_BYTES).max(1);
        if self.free.available() < parts && !self.has_free(parts) {
            return false;
        }
        let mut seen =
            Some(CapturedPacket { length: u32::try_from(packet.len()).unwrap_or(u32::MAX), ..seen });
        let mut offset = 0;
        for part in 1..=parts {
            let Some(mut chunk) = self.free.pop() else { return false };
            let size = (length - offset).min(CHUNK_BYTES);
            let copied = match packet.bytes().get(offset..offset + size) {
                Some(bytes) => {
                    chunk.bytes[..size].copy_from_slice(bytes);
                    size
                }
                None => packet.copy_out(offset, &mut chunk.bytes[..size]),
            };
            offset += size;
            (chunk.seen, chunk.more, chunk.length) = (seen.take(), part < parts, copied);
            let pushed = self.filled.push(chunk);
            debug_assert!(pushed.is_ok(), "the ring has room for all chunks that there are");
        }
        true
    }

    /// True if `parts` chunks are free, after looking for returned ones.
    #[cold]
    fn has_free(&mut self, parts: usize) -> bool {
        self.free.refresh() >= parts
    }
}

/// Readable parts of a batch's packets.
fn views_of(packets: &[Packet]) -> [View<'_>; BATCH] {
    let mut views = [View::default(); BATCH];
    for (view, packet) in views.iter_mut().zip(packets) {
        *view = View { bytes: packet.bytes(), length: u32::try_from(packet.len()).unwrap_or(u32::MAX) };
    }
    views
}

impl TapReader {
    /// Calls `take` with each captured packet. Returns their number.
    ///
    /// # Errors
    /// The first error of `take`; that packet is lost.
    pub fn read<E>(
        &mut self,
        mut take: impl FnMut(&CapturedPacket, &[u8]) -> Result<(), E>,
    ) -> Result<usize, E> {
        let mut count = 0;
        while let Some(mut chunk) = self.filled.pop() {
            if let Some(seen) = chunk.seen.take() {
                self.seen = Some(seen);
                self.bytes.clear();
            }
            self.bytes.extend_from_slice(&chunk.bytes[..chunk.length]);
            let more = chunk.more;
            let pushed = self.free.push(chunk);
            debug_assert!(pushed.is_ok(), "the ring has room for all chunks that there are");
            if !more && let Some(seen) = self.seen.take() {
                count += 1;
                take(&seen, &self.bytes)?;
            }
        }
        Ok(count)
    }

    /// True if the worker has or had the tap.
    pub fn has_begun(&self) -> bool {
        self.counters.begun.load(Ordering::Relaxed) || self.has_ended()
    }

    /// True if the worker has dropped the tap: no further packets will come.
    pub fn has_ended(&self) -> bool {
        self.counters.ended.load(Ordering::Acquire)
    }

    /// Counters of the tap.
    pub fn counters(&self) -> &TapCounters {
        &self.counters
    }
}
