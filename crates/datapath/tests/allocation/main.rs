//! The forwarding path allocates nothing: not a packet, not a batch, not now and then.
//!
//! The allocator of this test binary counts; what the engine does between two readings of the count
//! is all that happens in between on this thread.

mod counting_allocator;
#[path = "../journey/gateway.rs"]
#[expect(dead_code, reason = "shared with the journey, which uses the rest")]
mod gateway;

use counting_allocator::asked;
use gateway::{ACCESS, End, Gateway, Line, Modes, SECOND, UNDERLAY};
use polder_buffers::{BATCH, Batch, Packet, Pool, PortId};
use polder_datapath::engine::TurnContext;
use polder_datapath::transmit::Egress;
use polder_datapath::units::Nanos;
use std::hint::black_box;

/// Sends into the void, and counts.
#[derive(Default)]
struct Void([u64; 4]);

impl Egress for Void {
    fn send(&mut self, port: PortId, batch: &mut Batch, pool: &mut Pool) -> bool {
        self.0[usize::from(port.0)] += batch.len() as u64;
        pool.release(batch);
        true
    }
}

fn frame(to: u8, from: u16, length: usize) -> Vec<u8> {
    let [high, low] = from.to_be_bytes();
    let mut bytes = vec![2, 0, 0, 0, 0, to, 2, 0, 0, 0, high, low, 0x88, 0xb5];
    bytes.resize(length, 0);
    bytes
}

/// Allocating work besides the engine's.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Besides {
    Nothing,
    /// One allocation in this number of packets.
    OneIn(u64),
}

/// Lets `rounds` batches of `frames` (again and again) through the engine; returns packets, allocations
/// and what left by which port.
fn run(gateway: &mut Gateway, port: PortId, frames: &[Vec<u8>], besides: Besides) -> (u64, u64, [u64; 4]) {
    const ROUNDS: u64 = 500;
    let mut batch = Batch::new();
    let mut void = Void::default();
    let mut packets = 0;
    let mut before = asked();
    let mut frames = frames.iter().cycle();
    for round in 0..ROUNDS {
        if round == ROUNDS / 5 {
            // Everything has happened once that happens once.
            (before, packets, void) = (asked(), 0, Void::default());
        }
        let sent = void.0.iter().sum::<u64>();
        while !batch.is_full() {
            let bytes = frames.next().expect("they go round");
            let mut packet = Packet::copy_from(bytes, &mut gateway.pool).expect("a free slot");
            packet.ingress = port;
            batch.push(packet).expect("not full");
            packets += 1;
            if let Besides::OneIn(count) = besides
                && packets % count == 0
            {
                drop(black_box(Box::new(packets)));
            }
        }
        gateway.now = gateway.now + Nanos(1_000_000);
        let timed = gateway.engine.begin_turn();
        let with = TurnContext { now: gateway.now, pool: &mut gateway.pool, timed };
        let now = gateway.now;
        gateway.engine.process(&mut batch, port, with, &mut void, &mut || now);
        gateway.engine.tick(now, &mut gateway.pool);
        gateway.received += BATCH as u64;
        gateway.wires.transmitted += void.0.iter().sum::<u64>() - sent;
        gateway.check();
    }
    (packets, asked() - before, void.0)
}

/// A gateway that knows station 2 behind the tunnel and station 1 behind the access port, and the
/// outer packets of a frame of `length` bytes that the other end sends.
fn acquainted(line: &Line, length: usize) -> (Gateway, Vec<Vec<u8>>) {
    let ends = [End::Near, End::Far];
    let [mut near, mut far] = ends.map(|end| Gateway::new(end, line, &Modes::transparent()));
    far.receive(ACCESS, [&frame(1, 2, length)[..]]);
    let outer: Vec<_> = far.take(UNDERLAY).into_iter().map(|sent| sent.bytes).collect();
    near.receive(UNDERLAY, outer.iter().map(Vec::as_slice));
    near.receive(ACCESS, [&frame(2, 1, length)[..]]);
    for port in [ACCESS, SECOND, UNDERLAY] {
        near.take(port);
    }
    (near, outer)
}

fn all_options() -> Line {
    Line { key: Some(9), checksum: true, ..Line::default() }
}

const PACKETS: u64 = 400 * BATCH as u64;

#[test]
fn nothing_is_allocated_on_the_way_into_a_tunnel() {
    let (mut gateway, _) = acquainted(&all_options(), 500);
    let (packets, allocations, left) = run(&mut gateway, ACCESS, &[frame(2, 1, 1000)], Besides::Nothing);
    assert_eq!((packets, allocations), (PACKETS, 0));
    assert_eq!(left[usize::from(UNDERLAY.0)], packets);
}

#[test]
fn nothing_is_allocated_on_the_way_out_of_a_tunnel() {
    let (mut gateway, outer) = acquainted(&all_options(), 500);
    let (packets, allocations, left) = run(&mut gateway, UNDERLAY, &outer, Besides::Nothing);
    assert_eq!((packets, allocations), (PACKETS, 0));
    assert_eq!(left[usize::from(ACCESS.0)], packets);
}

#[test]
fn nothing_is_allocated_when_frames_are_flooded() {
    let (mut gateway, _) = acquainted(&all_options(), 500);
    let frames = [frame(2, 1, 500), frame(9, 1, 500), frame(9, 1, 60)];
    let (packets, allocations, left) = run(&mut gateway, ACCESS, &frames, Besides::Nothing);
    assert_eq!((packets, allocations), (PACKETS, 0));
    assert_eq!(left[usize::from(UNDERLAY.0)], packets);
    assert!(left[usize::from(SECOND.0)].abs_diff(packets * 2 / 3) < 3, "{left:?}");
}

#[test]
fn nothing_is_allocated_when_packets_are_cut_and_put_together() {
    let line = Line { mtu: 600, ..all_options() };
    let (mut gateway, outer) = acquainted(&line, 1500);
    assert!(outer.len() > 2, "fragments");
    let (packets, allocations, left) = run(&mut gateway, UNDERLAY, &outer, Besides::Nothing);
    assert_eq!((packets, allocations), (PACKETS, 0));
    let whole = packets / outer.len() as u64;
    assert!(left[usize::from(ACCESS.0)].abs_diff(whole) < 4, "{left:?}");
    let (packets, allocations, left) = run(&mut gateway, ACCESS, &[frame(2, 1, 1500)], Besides::Nothing);
    assert_eq!((packets, allocations), (PACKETS, 0));
    assert_eq!(left[usize::from(UNDERLAY.0)], packets * outer.len() as u64);
}

#[test]
fn nothing_is_allocated_when_stations_come_and_move() {
    let (mut gateway, _) = acquainted(&all_options(), 500);
    let frames: Vec<_> = (100..2100).map(|number| frame(2, number, 100)).collect();
    let (packets, allocations, _) = run(&mut gateway, ACCESS, &frames, Besides::Nothing);
    assert_eq!((packets, allocations), (PACKETS, 0));
    let (packets, allocations, _) = run(&mut gateway, SECOND, &frames, Besides::Nothing);
    assert_eq!((packets, allocations), (PACKETS, 0));
}

#[test]
fn one_allocation_in_17_packets_is_seen() {
    let (mut gateway, _) = acquainted(&all_options(), 500);
    let (packets, allocations, _) = run(&mut gateway, ACCESS, &[frame(2, 1, 100)], Besides::OneIn(17));
    assert_eq!(allocations, packets / 17);
}
