//! Random histories of traffic and faults: whatever the device does, it ends in a counted drop or a closed port;
//! nothing leaks, nothing is made up, and what was not spoiled comes in order.

use crate::stand::{Stand, content, frame};
use polder_buffers::{Batch, Packet};
use polder_datapath::port::{Budget, RxControl, RxQueue, Turn, TxQueue};
use polder_devices::Receiving;
use polder_devices::e1000::Options;
use polder_devices::e1000::model::{self, Fault};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Step {
    Arrive(Vec<usize>),
    Turn(u32),
    Send(Vec<usize>),
    Take,
    Hold(bool),
    Release(usize),
    Stall(bool),
    Link(bool),
    Arm,
    Limit(u32),
    Wait(Option<u32>),
    Plan(Fault),
    Spurious,
}

fn step() -> impl Strategy<Value = Step> {
    let lengths = || prop::collection::vec(60_usize..1515, 1..25);
    let fault = prop_oneof![
        any::<u16>().prop_map(Fault::Length),
        any::<u8>().prop_map(Fault::Errors),
        any::<u8>().prop_map(Fault::Status),
        any::<u64>().prop_map(Fault::ForeignBuffer),
    ];
    prop_oneof![
        4 => lengths().prop_map(Step::Arrive),
        6 => (0_u32..70).prop_map(Step::Turn),
        3 => lengths().prop_map(Step::Send),
        2 => Just(Step::Take),
        1 => any::<bool>().prop_map(Step::Hold),
        2 => any::<usize>().prop_map(Step::Release),
        1 => any::<bool>().prop_map(Step::Stall),
        1 => any::<bool>().prop_map(Step::Link),
        1 => Just(Step::Arm),
        1 => prop_oneof![0_u32..200, Just(u32::MAX)].prop_map(Step::Limit),
        1 => prop::option::of(0_u32..200).prop_map(Step::Wait),
        1 => fault.prop_map(Step::Plan),
        1 => Just(Step::Spurious),
    ]
}

fn control(stand: &mut Stand) -> &mut dyn RxControl {
    stand.port.queue.rx.control().unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn any_history_keeps_every_frame_and_counts_every_packet(
        steps in prop::collection::vec(step(), 1..60),
        honest in any::<bool>(),
        percent in 1_u8..=100,
        jumbo in any::<bool>(),
    ) {
        let receiving = Receiving { refill_below_percent: percent, ..Receiving::default() };
        let mtu = if jumbo { 4000 } else { 1500 };
        let options = Options { mtu, receive_ring: 128, transmit_ring: 64, receiving, ..Options::default() };
        let mut stand = Stand::with(model::Options::default(), &options, 2048).unwrap();
        let (mut number, mut arrived, mut came, mut taken, mut left) = (0, Vec::new(), Vec::new(), 0_u64, Vec::new());
        let mut linked = true;
        let mut closed = false;
        for step in steps {
            match step {
                Step::Arrive(lengths) => for length in lengths {
                    number += 1;
                    if stand.nic.inject(&frame(number, length)) && linked {
                        arrived.push(frame(number, length));
                    }
                },
                Step::Turn(budget) => {
                    let mut batch = Batch::new();
                    let turn = stand.port.queue.rx.receive(&mut Budget::new(budget), &mut batch, &mut stand.pool);
                    closed |= turn == Turn::Closed;
                    came.extend(batch.iter().map(content));
                    stand.pool.release(&mut batch);
                }
                Step::Send(lengths) => {
                    let mut batch = Batch::new();
                    for length in lengths {
                        let packet = Packet::copy_from(&frame(u32::try_from(length).unwrap(), length), &mut stand.pool);
                        batch.push(packet.unwrap()).unwrap();
                    }
                    let before = batch.len();
                    stand.port.queue.tx.transmit(&mut batch, &mut stand.pool);
                    taken += (before - batch.len()) as u64;
                    stand.pool.release(&mut batch);
                    let _ = stand.port.queue.tx.reclaim(&mut stand.pool);
                }
                Step::Take => left.append(&mut stand.sent()),
                Step::Hold(holds) => stand.nic.hold_write_backs(holds),
                Step::Release(choice) => { stand.nic.release_write_back(choice); }
                Step::Stall(holds) => stand.nic.hold_sending(holds),
                Step::Link(up) => { stand.nic.set_link(up); linked = up; }
                Step::Arm => { let _ = stand.port.queue.rx.arm(); }
                Step::Limit(frames) => control(&mut stand).set_posted_limit(frames),
                Step::Wait(packets) => control(&mut stand).set_waiting_limit(packets),
                Step::Plan(fault) => if !honest { stand.nic.plan(fault) },
                Step::Spurious => stand.nic.interrupt_for_nothing(),
            }
            let (rx, tx) = (stand.port.queue.rx.counters(), stand.port.queue.tx.counters());
            prop_assert_eq!(tx.transmitted.get() + tx.drops.total(), taken);
            prop_assert_eq!(tx.in_flight.get(), u64::from(stand.port.queue.tx.held()));
            prop_assert_eq!(rx.received.get(), came.len() as u64 + rx.drops.total());
        }
        prop_assert!(!(honest && closed), "an honest device is never given up");
        stand.nic.hold_write_backs(false);
        stand.nic.hold_sending(false);
        if honest {
            for _ in 0..50 {
                let _ = stand.turn(64, |packet| came.push(content(packet)));
                let _ = stand.port.queue.tx.reclaim(&mut stand.pool);
            }
            let _ = stand.port.queue.rx.arm();
            // What did not find room is missing, and counted; the rest is in order.
            let mut rest = arrived.iter();
            prop_assert!(came.iter().all(|one| rest.any(|other| other == one)));
            let drops = stand.port.queue.rx.counters().drops.total();
            prop_assert_eq!(came.len() as u64 + drops, arrived.len() as u64);
            if linked {
                prop_assert_eq!(stand.port.queue.tx.held(), 0);
            }
        }
        prop_assert_eq!(stand.nic.dma_faults(), 0);
        stand.close();
    }
}
