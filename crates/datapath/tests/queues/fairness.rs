//! Fairness between flows (RFC 7928, 5 to 7).

use super::link::{Frame, MILLIS, Network, RATE, Sender, cake, fq_codel, jain};
use polder_datapath::queue::{Isolation, QueueOptions};
use polder_datapath::units::BytesPerSecond;

/// Interval of packets of `length` bytes at `share` times the link's rate.
fn interval(length: usize, share: f64) -> u64 {
    let whole = RATE.time_of(length as u64).0;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a short time")]
    let nanos = (whole as f64 / share) as u64;
    nanos
}

#[test]
fn flows_of_any_packet_size_have_equal_shares() {
    let cases = [2, 3, 8, 16, 64].map(|flows| (flows, fq_codel()));
    for (flows, options) in cases.into_iter().chain([(16, cake(Isolation::Both))]) {
        let mut network = Network::new(&options);
        for flow in 0..flows {
            let length = [128, 300, 576, 1000, 1514][flow as usize % 5];
            // Each sends twice its share.
            let sender = Sender::Constant(interval(length, 2.0 / f64::from(flows)));
            network.add(sender, Frame { flow, length, ..Frame::default() });
        }
        network.run(200 * MILLIS);
        network.forget();
        network.run(800 * MILLIS);
        let shares = network.shares(0..flows);
        assert!(jain(&shares) >= 0.99, "{flows} flows: {} of {shares:?}", jain(&shares));
        let sum = shares.iter().sum::<u64>();
        assert!(sum >= RATE.0 * 8 / 10 * 99 / 100, "the link is used: {sum}");
    }
}

#[test]
fn an_aggressive_flow_does_not_take_the_share_of_a_responsive_one() {
    let mut network = Network::new(&fq_codel());
    let length = 1514;
    network.add(Sender::Responsive(20 * MILLIS), Frame { flow: 0, length, ..Frame::default() });
    network.add(Sender::Constant(interval(length, 3.0)), Frame { flow: 1, length, ..Frame::default() });
    network.run(5000 * MILLIS);
    network.forget();
    network.run(5000 * MILLIS);
    let shares = network.shares(0..2);
    assert!(shares[0] * 100 >= (shares[0] + shares[1]) * 45, "{shares:?}");
}

#[test]
fn unequal_round_trips_have_near_equal_shares() {
    let mut network = Network::new(&fq_codel());
    let trips = [5, 20, 50, 100];
    for (flow, millis) in (0..).zip(trips) {
        let frame = Frame { flow, length: 1514, ..Frame::default() };
        network.add(Sender::Responsive(millis * MILLIS), frame);
    }
    network.run(10_000 * MILLIS);
    network.forget();
    network.run(20_000 * MILLIS);
    let shares = network.shares(0..4);
    assert!(jain(&shares) >= 0.95, "{} of {shares:?}", jain(&shares));
}

#[test]
fn shares_stay_equal_while_the_rate_changes() {
    let mut network = Network::new(&fq_codel());
    for flow in 0..8 {
        let sender = Sender::Constant(interval(1000, 0.5));
        network.add(sender, Frame { flow, length: 1000, ..Frame::default() });
    }
    let mut possible = 0;
    for step in 0..200 {
        // A hundred changes a second.
        network.rate = BytesPerSecond(RATE.0 / [1, 2, 8, 3][step % 4]);
        possible += network.rate.0 / 100;
        network.run(10 * MILLIS);
    }
    let shares = network.shares(0..8);
    assert!(jain(&shares) >= 0.99, "{shares:?}");
    assert!(shares.iter().sum::<u64>() >= possible * 95 / 100, "{shares:?} of {possible}");
}

#[test]
fn ten_thousand_flows_share_the_link() {
    // Room for three packets of each.
    let mut network = Network::new(&QueueOptions { limit_bytes: 15_500_000, ..fq_codel() });
    for flow in 0..10_000 {
        // Twice the link's rate in all.
        let sender = Sender::Constant(interval(200, 0.0002));
        network.add(sender, Frame { flow, length: 200, ..Frame::default() });
    }
    network.run(500 * MILLIS);
    network.forget();
    network.run(2500 * MILLIS);
    let shares = network.shares(0..10_000);
    // Some share an entry of 65,536.
    assert!(jain(&shares) >= 0.9, "{}", jain(&shares));
}
