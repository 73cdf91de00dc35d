//! Classes of traffic, washing, and the overhead of links.

use super::link::{Frame, MILLIS, Network, RATE, Sender, cake, identity};
use polder_buffers::{Batch, Region, RegionOptions};
use polder_datapath::queue::{
    CakeOptions, Discipline, EgressQueue, Isolation, LinkLayer, QueueOptions, Tins,
};
use polder_datapath::units::Nanos;

const FULL: usize = 1514;
/// Traffic classes of the four tins: CS1, default, AF41, EF.
const CLASSES: [u8; 4] = [8 << 2, 0, 34 << 2, 46 << 2];

fn with(change: impl FnOnce(&mut CakeOptions)) -> QueueOptions {
    let mut options = CakeOptions { flows: 4096, seed: 7, ..CakeOptions::default() };
    change(&mut options);
    QueueOptions { discipline: Discipline::Cake(options), ..cake(Isolation::Both) }
}

/// Bytes by tin, in a network where each sends at `loads` sixteenths of the link's rate.
fn shares(options: &QueueOptions, loads: [u64; 4]) -> Vec<u64> {
    let mut network = Network::new(options);
    for ((flow, traffic_class), load) in (0..).zip(CLASSES).zip(loads).filter(|(_, load)| *load > 0) {
        let sender = Sender::Constant(RATE.time_of(FULL as u64).0 * 16 / load);
        network.add(sender, Frame { flow, length: FULL, traffic_class, ..Frame::default() });
    }
    network.run(500 * MILLIS);
    network.forget();
    network.run(1000 * MILLIS);
    (0..4).map(|flow| network.flows.get(&flow).map_or(0, |flow| flow.bytes * 160 / RATE.0)).collect()
}

#[test]
fn tins_have_their_shares_and_take_what_others_leave() {
    let near = |found: Vec<u64>, expected: [u64; 4]| {
        let is_near = found.iter().zip(expected).all(|(&found, expected)| found.abs_diff(expected) <= 3);
        assert!(is_near, "{found:?}, expected {expected:?} tenths of a sixteenth");
    };
    near(shares(&with(|_| ()), [32; 4]), [10, 50, 60, 40]);
    // Voice alone takes all; with a little of it, the others share the rest.
    near(shares(&with(|_| ()), [0, 0, 0, 32]), [0, 0, 0, 160]);
    near(shares(&with(|_| ()), [0, 32, 0, 2]), [0, 140, 0, 20]);
    near(shares(&with(|options| options.tins = Tins::One), [32; 4]), [40; 4]);
}

#[test]
fn a_packet_of_voice_waits_for_one_packet() {
    let mut network = Network::new(&with(|_| ()));
    for flow in 1..=32 {
        let sender = Sender::Constant(RATE.time_of(FULL as u64).0 * 16);
        let hosts = [u16::try_from(flow).expect("few"), 0];
        network.add(sender, Frame { flow, hosts, length: FULL, traffic_class: 34 << 2 });
    }
    // A fifth of the link, not sparse.
    let sender = Sender::Constant(RATE.time_of(500).0 * 5);
    network.add(sender, Frame { flow: 0, length: 500, traffic_class: 46 << 2, ..Frame::default() });
    network.run(300 * MILLIS);
    network.forget();
    network.run(1000 * MILLIS);
    let voice = &network.flows[&0];
    let bound = RATE.time_of(FULL as u64 + 500);
    assert!(voice.longest_wait <= bound, "{:?} of {bound:?}", voice.longest_wait);
    assert_eq!(voice.dropped, 0);
}

#[test]
fn a_washing_queue_clears_the_code_point_after_it_has_used_it() {
    for wash in [false, true] {
        let mut pool = Region::new(RegionOptions { slots: 64, slot_bytes: 2048 }).expect("memory").pool();
        let mut queue = EgressQueue::new(&with(|options| options.wash = wash));
        let mut batch = Batch::new();
        for (flow, class) in (0..).zip(CLASSES) {
            let frame = Frame { flow, length: 100, traffic_class: class | 2, ..Frame::default() };
            batch.push(frame.packet(0, &mut pool)).expect("a batch");
        }
        queue.put(&mut batch, Nanos::SECOND, |_, _| unreachable!("there is room"));
        let taken = core::iter::from_fn(|| queue.take(Nanos::SECOND, |_, _| unreachable!("no reason to")));
        let taken = taken.collect::<Vec<_>>();
        assert!(taken.iter().map(|packet| identity(packet).0).eq([3, 2, 1, 0]), "voice first");
        for packet in &taken {
            let class = CLASSES[identity(packet).0 as usize];
            assert_eq!(packet.bytes()[15], if wash { 2 } else { class | 2 }, "ECN stays");
        }
        taken.into_iter().for_each(|packet| pool.release_packet(packet));
    }
}

#[test]
fn the_rate_is_that_of_the_link_with_its_overhead() {
    for (link, length, on_link) in [
        (LinkLayer::RAW, 100, 100),
        (LinkLayer::ETHERNET, 100, 124),
        (LinkLayer::PPPOE_PTM, 100, 118),
        (LinkLayer::DOCSIS, 100, 104),
        (LinkLayer::PPPOE_LLCSNAP, 100, 159),
        (LinkLayer::ETHERNET, 54, 84),
    ] {
        let options = QueueOptions { rate: Some(RATE), ..with(|_| ()) };
        let options = QueueOptions { link, ..options };
        let mut pool = Region::new(RegionOptions { slots: 4096, slot_bytes: 2048 }).expect("memory").pool();
        let mut queue = EgressQueue::new(&options);
        for number in 0..2000 {
            let mut batch = Batch::new();
            batch.push(Frame { length, ..Frame::default() }.packet(number, &mut pool)).expect("a batch");
            queue.put(&mut batch, Nanos::SECOND, |_, _| unreachable!("there is room"));
        }
        // What leaves at once may be a millisecond; the rest keeps to the rate.
        let (mut left, end) = (0, Nanos::SECOND + Nanos::from_millis(10));
        while let Some(at) = queue.next_deadline().filter(|at| *at <= end) {
            let now = at.max(Nanos::SECOND);
            left += queue.take(now, |_, _| ()).map(|packet| pool.release_packet(packet)).map_or(0, |()| 1);
        }
        let expected = RATE.0 * 11 / 1000 / on_link;
        assert!(expected.abs_diff(left) <= 2, "{link:?}: {left} packets, expected {expected}");
        queue.clear().for_each(|packet| pool.release_packet(packet));
    }
}
