//! Packets of hosts and guests, cut as the RFCs say; the reference copies byte by byte.

use crate::oracle::coalesce::{DONT_FRAGMENT, Recipe, data};
use polder_buffers::{
    ChecksumState, OuterHeaders, Packet, Pool, Region, RegionOptions, Segmentation, SegmentationKind,
};
use polder_datapath::offload::complete_checksum;
use polder_datapath::segment::{Cutting, Measure};
use proptest::prelude::*;

const SLOTS: u32 = 1024;

fn region(slot_bytes: u32) -> Region {
    Region::new(RegionOptions { slots: SLOTS, slot_bytes }).expect("memory for a test")
}

/// Offset of the transport header in a recipe's frame.
fn transport(recipe: &Recipe) -> u16 {
    let ip = if recipe.v6 { 40 } else { 20 + recipe.ip_options.len() };
    u16::try_from(14 + recipe.tags.len() * 4 + ip).expect("short")
}

/// The packet that a host sends uncut; its checksum field has the sum of the pseudo-header, for which
/// anything stands here, because cutting computes it anew.
fn uncut(recipe: &Recipe, size: u16, kind: SegmentationKind, pool: &mut Pool) -> Packet {
    let mut packet = Packet::copy_from(&recipe.frame(), pool).expect("enough slots");
    packet.checksum = ChecksumState::Partial;
    packet.checksum_start = transport(recipe);
    packet.checksum_offset = if recipe.udp { 6 } else { 16 };
    Measure::describe(&mut packet, Segmentation { size, kind, outer: OuterHeaders::NONE });
    packet
}

fn kind(recipe: &Recipe) -> SegmentationKind {
    match (recipe.udp, recipe.v6) {
        (true, _) => SegmentationKind::Udp,
        (false, true) => SegmentationKind::Tcp6,
        (false, false) => SegmentationKind::Tcp4,
    }
}

fn cut(packet: Packet, pool: &mut Pool) -> Vec<Vec<u8>> {
    let mut cutting = Cutting::new(packet, pool).expect("a good packet");
    let mut frames = Vec::new();
    while let Some(mut segment) = cutting.next(pool).expect("enough slots") {
        complete_checksum(&mut segment).expect("in the packet");
        assert_eq!(segment.segmentation.kind, SegmentationKind::None);
        frames.push(segment.segments().flatten().copied().collect());
        pool.release_packet(segment);
        assert_eq!(usize::try_from(cutting.count() - cutting.remaining()).expect("few"), frames.len());
    }
    frames
}

/// Single packets that a sender would have sent.
fn reference(recipe: &Recipe, size: usize) -> Vec<Vec<u8>> {
    let chunks = recipe.payload.chunks(size).map(<[u8]>::to_vec).collect::<Vec<_>>();
    let chunks = if chunks.is_empty() { vec![Vec::new()] } else { chunks };
    let last = chunks.len() - 1;
    let mut sequence = recipe.sequence;
    let segment = |(number, payload): (usize, Vec<u8>)| {
        let mut one = Recipe { sequence, payload, ..recipe.clone() };
        sequence = sequence.wrapping_add(u32::try_from(one.payload.len()).expect("short"));
        one.identification = one.identification.wrapping_add(u16::try_from(number).expect("few"));
        one.flags &= if number == last { 0xff } else { 0xf6 };
        one.flags &= if number == 0 { 0xff } else { 0x7f };
        one.frame()
    };
    chunks.into_iter().enumerate().map(segment).collect()
}

fn recipe() -> impl Strategy<Value = Recipe> {
    let ip = (any::<bool>(), any::<bool>(), 0_usize..3, any::<u16>(), any::<u8>(), 0_usize..4);
    let tcp = (any::<u32>(), any::<u8>(), any::<u16>(), 0_usize..11, 0_usize..20_000);
    (ip, tcp).prop_map(|((v6, udp, tags, identification, class, options), tcp)| {
        let (sequence, flags, window, tcp_options, length) = tcp;
        Recipe {
            v6,
            udp,
            tags: vec![7; tags],
            sequence,
            flags,
            window,
            class,
            identification,
            fragment: DONT_FRAGMENT,
            ip_options: vec![1; if v6 { 0 } else { options * 4 }],
            options: vec![1; tcp_options * 4],
            payload: data(length, sequence),
            ..Recipe::tcp(0)
        }
    })
}

proptest! {
    #[test]
    fn segments_are_those_that_a_sender_would_have_sent(
        recipe in recipe(), size in 1_u16..3000, slot_bytes in prop::sample::select(vec![512_u32, 2048])
    ) {
        prop_assume!(recipe.payload.len() / usize::from(size) < 500);
        // Headers of a packet are in its head frame, which has room for 256 bytes at least.
        let region = region(slot_bytes);
        let mut pool = region.pool();
        let packet = uncut(&recipe, size, kind(&recipe), &mut pool);
        prop_assert_eq!(cut(packet, &mut pool), reference(&recipe, usize::from(size)));
        drop(pool);
        prop_assert_eq!((region.free_slots(), region.late_frees()), (SLOTS, 0));
    }

    /// Whatever the metadata say, a packet is cut or refused, and no memory is lost.
    #[test]
    fn lies_are_refused(
        recipe in recipe(), size in any::<u16>(), which in 0_usize..4, start in 0_u16..100, offset in 0_u16..20,
        at in 0_usize..100, value in any::<u8>(), honest in any::<bool>()
    ) {
        use SegmentationKind::{None as Whole, Tcp4, Tcp6, Udp};
        let region = region(2048);
        let mut pool = region.pool();
        let kind = [Whole, Tcp4, Tcp6, Udp][which];
        let mut packet = uncut(&recipe, size, kind, &mut pool);
        if !honest {
            (packet.checksum_start, packet.checksum_offset) = (start, offset);
        }
        if let Some(byte) = packet.bytes_mut().get_mut(at) {
            *byte ^= value;
        }
        let length = packet.len();
        match Cutting::new(packet, &mut pool) {
            Err((_, packet)) => pool.release_packet(packet),
            Ok(mut cutting) => {
                prop_assert!(cutting.count() as usize <= length);
                for _ in 0..20 {
                    let Some(segment) = cutting.next(&mut pool).expect("enough slots") else { break };
                    pool.release_packet(segment);
                }
                cutting.give_up(&mut pool);
            }
        }
        drop(pool);
        prop_assert_eq!((region.free_slots(), region.late_frees()), (SLOTS, 0));
    }
}

#[test]
fn a_pool_that_runs_dry_costs_segments_and_no_memory() {
    let region = Region::new(RegionOptions { slots: 12, slot_bytes: 2048 }).expect("memory for a test");
    let mut pool = region.pool();
    let recipe = Recipe::tcp(14_000);
    let packet = uncut(&recipe, 1000, SegmentationKind::Tcp4, &mut pool);
    let mut cutting = Cutting::new(packet, &mut pool).expect("good");
    let mut made = Vec::new();
    while let Ok(Some(segment)) = cutting.next(&mut pool) {
        made.push(segment);
    }
    assert!(!made.is_empty() && made.len() < 14, "{}", made.len());
    let left = cutting.give_up(&mut pool);
    assert_eq!(left as usize + made.len(), 14);
    made.into_iter().for_each(|segment| pool.release_packet(segment));
    drop(pool);
    assert_eq!((region.free_slots(), region.late_frees()), (12, 0));
}
