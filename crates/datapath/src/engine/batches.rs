//! Batches between stages: counted, cut into chunks, put into parcels.

use crate::drops::is_dropped;
use crate::seal::is_marked;
use crate::steer::Parcel;
use polder_buffers::{Batch, Packet, Pool};

/// Puts what is left of a batch into its parcel.
#[inline]
pub(super) fn collect(batch: &mut Batch, parcel: &mut Parcel, pool: &mut Pool) {
    if parcel.len() == 0 && !batch.iter().any(is_dropped) {
        return core::mem::swap(&mut parcel.batch, batch);
    }
    for packet in batch.drain() {
        if is_dropped(&packet) { pool.release_packet(packet) } else { parcel.push(packet) }
    }
}

/// What the last stages ask of a batch, in one pass.
#[derive(Clone, Copy, Default)]
pub(super) struct Survey {
    /// Packets that are still on their way.
    pub(super) alive: usize,
    /// Whether some packets are to be sealed.
    pub(super) has_marked: bool,
}

impl Survey {
    #[inline]
    pub(super) fn of(batch: &Batch) -> Self {
        let mut survey = Self::default();
        for packet in batch.iter() {
            survey.alive += usize::from(!is_dropped(packet));
            survey.has_marked |= is_marked(packet);
        }
        survey
    }
}

/// Packets of the batch that are still on their way.
#[inline]
pub(super) fn alive(batch: &Batch) -> usize {
    batch.iter().filter(|packet| !is_dropped(packet)).count()
}

/// Empties `packets` in order, a batch at a time.
#[cold]
pub(super) fn in_chunks(packets: &mut Vec<Packet>, chunk: &mut Batch, mut go_on: impl FnMut(&mut Batch)) {
    let mut all = packets.drain(..).peekable();
    while all.peek().is_some() {
        while !chunk.is_full()
            && let Some(packet) = all.next()
        {
            let pushed = chunk.push(packet);
            debug_assert!(pushed.is_ok(), "looked for room before");
        }
        go_on(chunk);
    }
}
