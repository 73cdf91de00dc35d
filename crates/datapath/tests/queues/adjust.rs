//! Parameters that change while packets wait.

use super::link::{Frame, MILLIS, Network, RATE, Sender, cake, fq_codel};
use polder_datapath::queue::{
    Aqm, CakeOptions, Discipline, EgressQueue, FqCodelOptions, Isolation, LinkLayer, QueueOptions,
};
use polder_datapath::units::{BytesPerSecond, Nanos};

const FULL: usize = 1514;

/// The options with another AQM.
fn with_aqm(options: &QueueOptions, aqm: Aqm) -> QueueOptions {
    let discipline = match options.discipline {
        Discipline::FqCodel(fq_codel) => Discipline::FqCodel(FqCodelOptions { aqm, ..fq_codel }),
        Discipline::Cake(cake) => Discipline::Cake(CakeOptions { aqm, ..cake }),
        other @ (Discipline::DropTail | Discipline::Codel(_)) => other,
    };
    QueueOptions { discipline, ..*options }
}

/// Bytes that leave in a second in which the rate changes 100 times, between `rate` and half as much again.
fn bytes_of_a_second(options: &QueueOptions, rate: u64, change: impl Fn(&mut Network, &QueueOptions)) -> u64 {
    let at = |rate| QueueOptions { rate: Some(BytesPerSecond(rate)), ..*options };
    let mut network = Network::new(&at(rate));
    // The link itself is fast: the queue alone holds packets back.
    network.rate = BytesPerSecond(1_000_000_000);
    for flow in 0..4 {
        network.add(Sender::Constant(500_000), Frame { flow, length: FULL, ..Frame::default() });
    }
    network.run(200 * MILLIS);
    network.forget();
    for turn in 0..100 {
        change(&mut network, &at(if turn % 2 == 0 { rate * 3 / 2 } else { rate }));
        for _ in 0..100 {
            network.run(MILLIS / 10);
            network.transmit();
        }
    }
    network.shares(0..4).into_iter().sum()
}

#[test]
fn a_rate_that_changes_a_hundred_times_a_second_is_obeyed() {
    let rate = 2_500_000;
    for options in [fq_codel(), cake(Isolation::Both), QueueOptions::new(Discipline::DropTail, 500_000)] {
        let adjust = |network: &mut Network, options: &QueueOptions| network.queue.adjust(options);
        let exchange = |network: &mut Network, options: &QueueOptions| {
            network.exchange(EgressQueue::new(options));
        };
        for bytes in [bytes_of_a_second(&options, rate, adjust), bytes_of_a_second(&options, rate, exchange)]
        {
            let expected = rate * 5 / 4;
            assert!(bytes.abs_diff(expected) <= expected / 100, "{bytes} of {expected}: {options:?}");
        }
    }
}

#[test]
fn aqm_and_link_change_while_packets_wait() {
    for options in [fq_codel(), cake(Isolation::Source)] {
        let never = Aqm { ce_threshold: Some(Nanos::from_seconds(100)), ..Aqm::default() };
        let mut network = Network::new(&with_aqm(&options, never));
        let frame = Frame { flow: 0, length: FULL, traffic_class: 2, ..Frame::default() };
        network.add(Sender::Bursts(200, 1_000_000 * MILLIS), frame);
        network.run(5 * MILLIS);
        let (waiting, before) = (network.queue.len(), network.queue.take_marks());
        assert!(waiting > 100 && before == 0, "{waiting} wait, {before} marked");
        let at_once = Aqm { ce_threshold: Some(Nanos::from_millis(1)), ..never };
        let next =
            QueueOptions { link: LinkLayer::ETHERNET, rate: Some(RATE), ..with_aqm(&options, at_once) };
        assert!(options.is_adjustable_to(&next));
        network.queue.adjust(&next);
        assert_eq!(network.queue.len(), waiting, "they stay");
        network.run(5 * MILLIS);
        assert!(network.queue.take_marks() > 20, "packets that waited for longer are marked");
    }
}

#[test]
fn another_discipline_limit_or_table_needs_another_queue() {
    let fq = fq_codel();
    let smaller = QueueOptions { limit_bytes: 10_000, ..fq };
    let tables = |flows| match fq.discipline {
        Discipline::FqCodel(options) => {
            let options = FqCodelOptions { flows, ..options };
            QueueOptions { discipline: Discipline::FqCodel(options), ..fq }
        }
        Discipline::DropTail | Discipline::Codel(_) | Discipline::Cake(_) => fq,
    };
    for other in [smaller, tables(17), cake(Isolation::Both), QueueOptions::new(Discipline::DropTail, 1)] {
        assert!(!fq.is_adjustable_to(&other), "{other:?}");
    }
    assert!(cake(Isolation::Both).is_adjustable_to(&cake(Isolation::Source)));
    assert!(fq.is_adjustable_to(&QueueOptions { rate: Some(RATE), ..fq }));
}
