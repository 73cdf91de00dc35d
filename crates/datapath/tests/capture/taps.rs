//! From a batch to a reader: whole packets, in order, and never a wait.

use polder_buffers::{Batch, Packet, PortId, Region, RegionOptions};
use polder_datapath::capture::{
    CHUNK_BYTES, CapturePoint, CapturePoints, CapturedPacket, Captures, Program, TapOptions, TapReader, tap,
};
use polder_datapath::units::Nanos;
use std::sync::Arc;

const LAN: PortId = PortId(3);

fn options(chunks: usize, longest: u32) -> TapOptions {
    TapOptions {
        capture: 1,
        port: LAN,
        places: CapturePoints { rx: true, tx: false, drops: false },
        program: Arc::new(Program::everything()),
        longest,
        chunks,
        worker: 5,
    }
}

fn read(reader: &mut TapReader) -> Vec<(CapturedPacket, Vec<u8>)> {
    let mut all = Vec::new();
    let mut take = |seen: &CapturedPacket, bytes: &[u8]| {
        all.push((*seen, bytes.to_vec()));
        Ok::<_, ()>(())
    };
    reader.read(&mut take).unwrap();
    all
}

fn batch(packets: &[Vec<u8>], region: &Region) -> Batch {
    let (mut pool, mut batch) = (region.pool(), Batch::new());
    for bytes in packets {
        batch.push(Packet::copy_from(bytes, &mut pool).unwrap()).unwrap();
    }
    batch
}

#[test]
fn packets_arrive_whole_with_what_is_known_of_them() {
    let region = Region::new(RegionOptions { slots: 512, slot_bytes: 2048 }).unwrap();
    let (tap, mut reader) = tap(options(64, 65_535));
    let mut captures = Captures::default();
    captures.add(tap);
    let lengths = [0, 1, 60, CHUNK_BYTES, CHUNK_BYTES + 1, 9000];
    let packets = lengths.map(|length| (0..length).map(|at| (at % 251) as u8).collect::<Vec<_>>());
    for round in 0..20 {
        let mut batch = batch(&packets, &region);
        batch[2].ticket = 17;
        captures.received(&batch, PortId(4), 0, Nanos(1));
        assert!(read(&mut reader).is_empty(), "another port");
        captures.received(&batch, LAN, 2, Nanos(round));
        let seen = read(&mut reader);
        assert_eq!(seen.iter().map(|(_, bytes)| bytes.clone()).collect::<Vec<_>>(), packets);
        let expected = CapturedPacket {
            at: Nanos(round),
            place: CapturePoint::Rx,
            worker: 5,
            queue: Some(2),
            ticket: 17,
            length: 60,
        };
        assert_eq!(seen[2].0, expected);
        region.pool().release(&mut batch);
    }
    let counters = reader.counters();
    assert_eq!((counters.asked.get(), counters.matched.get(), counters.lost.get()), (120, 120, 0));
    assert!(captures.remove(9) && !captures.remove(1));
}

#[test]
fn what_finds_no_room_is_lost_and_counted() {
    let region = Region::new(RegionOptions { slots: 512, slot_bytes: 2048 }).unwrap();
    let (tap, mut reader) = tap(options(8, 65_535));
    let mut captures = Captures::default();
    captures.add(tap);
    let mut many = batch(&vec![vec![7; 60]; 25], &region);
    captures.received(&many, LAN, 0, Nanos(1));
    assert_eq!((read(&mut reader).len(), reader.counters().lost.get()), (8, 17));
    // Room comes back, and a packet of nine parts never fits.
    let mut mixed = batch(&[vec![1; 60], vec![2; 8 * CHUNK_BYTES + 1], vec![3; 60]], &region);
    captures.received(&mixed, LAN, 0, Nanos(2));
    let seen = read(&mut reader).into_iter().map(|(_, bytes)| bytes[0]).collect::<Vec<_>>();
    assert_eq!((seen, reader.counters().lost.get()), (vec![1, 3], 18));
    region.pool().release(&mut many);
    region.pool().release(&mut mixed);
}

#[test]
fn no_more_than_was_asked_for() {
    let region = Region::new(RegionOptions { slots: 64, slot_bytes: 2048 }).unwrap();
    let (tap, mut reader) = tap(options(8, 20));
    let mut captures = Captures::default();
    captures.add(tap);
    let mut one = batch(&[vec![7; 60]], &region);
    captures.received(&one, LAN, 0, Nanos(1));
    let seen = read(&mut reader);
    assert_eq!((seen[0].1.len(), seen[0].0.length), (20, 60));
    region.pool().release(&mut one);
}
