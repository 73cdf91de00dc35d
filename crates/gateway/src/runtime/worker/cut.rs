//! Cuts super-packets that take long at a queue's rate, before they enter it: the flows behind one would wait
//! for all of its segments.
//!
//! The stages do this for packets that leave, by the rate in the configuration (`Takes::longest`). It is done
//! here after a change of the rate by command, and for packets that come in.

use polder_buffers::{Batch, Packet, Pool};
use polder_datapath::counters::WorkerCounters;
use polder_datapath::drops::DropReason;
use polder_datapath::queue::QueueOptions;
use polder_datapath::segment::Cutting;
use polder_datapath::units::BytesPerSecond;

/// Maximum length of a super-packet in bytes: a millisecond at the rate.
pub(super) fn longest(options: &QueueOptions) -> usize {
    let rate = options.rate.map_or(u64::MAX, |BytesPerSecond(rate)| rate / 1000);
    usize::try_from(rate).unwrap_or(usize::MAX)
}

/// True if the packet is a super-packet of more than `longest` bytes.
#[inline]
pub(super) fn is_long(packet: &Packet, longest: usize) -> bool {
    packet.wire_packets > 1 && packet.len() > longest
}

/// Passes the packets of `batch` to `enter`, a batch at a time; long super-packets as their segments.
#[cold]
pub(super) fn cut(
    batch: &mut Batch,
    longest: usize,
    (pool, counters): (&mut Pool, &WorkerCounters),
    mut enter: impl FnMut(&mut Batch, &mut Pool),
) {
    let mut pieces = Batch::new();
    let mut put = |packet: Packet, pool: &mut Pool| {
        let pushed = pieces.push(packet);
        debug_assert!(pushed.is_ok(), "a full batch has been passed on");
        if pieces.is_full() {
            enter(&mut pieces, pool);
        }
    };
    for packet in batch.drain() {
        if !is_long(&packet, longest) {
            put(packet, pool);
            continue;
        }
        let before = u64::from(packet.wire_packets);
        match Cutting::new(packet, pool) {
            // A packet that contradicts its metadata goes on as it is.
            Err((_, packet)) => put(packet, pool),
            Ok(cutting) => {
                let count = u64::from(cutting.count());
                // Equal, unless the sender gave another number.
                counters.ledger.split.add(count.saturating_sub(before));
                counters.ledger.merged.add(before.saturating_sub(count));
                let lost = pass_segments(cutting, pool, &mut put);
                counters.drops.count(DropReason::NoBuffer, lost);
            }
        }
    }
    if !pieces.is_empty() {
        enter(&mut pieces, pool);
    }
}

/// Passes all segments to `put`; returns the number of segments for which there is no memory.
fn pass_segments(mut cutting: Cutting, pool: &mut Pool, put: &mut impl FnMut(Packet, &mut Pool)) -> u64 {
    loop {
        match cutting.next(pool) {
            Ok(Some(segment)) => put(segment, pool),
            Ok(None) => return 0,
            Err(_) => return cutting.give_up(pool).into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use polder_buffers::{Region, RegionOptions, Segmentation, SegmentationKind, wire_packets};
    use polder_datapath::queue::Discipline;
    use polder_datapath::segment::Measure;

    /// A UDP super-packet over IPv4 with 10 segments of 1000 bytes.
    fn super_packet(pool: &mut Pool) -> Packet {
        let mut bytes = vec![0; 42];
        bytes[12..14].copy_from_slice(&[8, 0]);
        let (total, datagram) = (20 + 8 + 10_000_u16, 8 + 10_000_u16);
        bytes[14..16].copy_from_slice(&[0x45, 0]);
        bytes[16..18].copy_from_slice(&total.to_be_bytes());
        bytes[22..24].copy_from_slice(&[64, 17]);
        bytes[38..40].copy_from_slice(&datagram.to_be_bytes());
        bytes.resize(42 + 10_000, 7);
        let mut packet = Packet::copy_from(&bytes, pool).expect("enough slots");
        packet.checksum_start = 34;
        packet.checksum_offset = 6;
        let segmentation =
            Segmentation { size: 1000, kind: SegmentationKind::Udp, ..Segmentation::default() };
        Measure::describe(&mut packet, segmentation);
        packet
    }

    #[test]
    fn a_super_packet_of_more_than_a_millisecond_is_cut() {
        let region = Region::new(RegionOptions { slots: 256, slot_bytes: 2048 }).expect("memory");
        let mut pool = region.pool();
        let counters = WorkerCounters::default();
        // 10,042 bytes take 1 ms at 80.3 Mbit/s.
        for (kilobits, packets) in [(80_336, 2), (80_328, 11)] {
            let rate = Some(BytesPerSecond::from_kilobits(kilobits));
            let longest = longest(&QueueOptions { rate, ..QueueOptions::new(Discipline::DropTail, 1) });
            let mut batch = Batch::new();
            let single = Packet::copy_from(&[0; 60], &mut pool).expect("enough slots");
            for packet in [super_packet(&mut pool), single] {
                batch.push(packet).expect("room");
            }
            let (mut lengths, mut on_the_wire) = (Vec::new(), 0);
            cut(&mut batch, longest, (&mut pool, &counters), |batch, pool| {
                on_the_wire += wire_packets(batch);
                lengths.extend(batch.iter().map(Packet::len));
                pool.release(batch);
            });
            assert_eq!((lengths.len(), on_the_wire), (packets, 11), "{kilobits} kbit/s");
            assert_eq!(lengths.last(), Some(&60), "the order stays");
            assert!(packets == 2 || lengths[..10].iter().all(|&length| length == 1042), "{lengths:?}");
        }
        assert_eq!((counters.ledger.split.get(), counters.ledger.merged.get()), (0, 0));
        assert_eq!(longest(&QueueOptions::new(Discipline::DropTail, 1)), usize::MAX, "no rate, no limit");
        drop(pool);
        assert_eq!(region.free_slots(), 256);
    }
}
