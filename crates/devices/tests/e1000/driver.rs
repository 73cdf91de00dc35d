//! Our driver on the honest model: the conformance suite, what it finds, what it costs.

use crate::stand::{Cable, Stand, frame};
use polder_buffers::{Batch, Packet, Region};
use polder_datapath::drops::DropReason;
use polder_datapath::port::{Armed, Drive, RxQueue, Turn, TxQueue};
use polder_datapath::units::Nanos;
use polder_devices::conformance::{self, Fixture, Limits, Wire};
use polder_devices::e1000::model::{self, Nic};
use polder_devices::e1000::regs::{CTRL, ICR, ITR, RCTL, Register, TCTL, ctrl};
use polder_devices::e1000::statistics::Statistic;
use polder_devices::e1000::{self, MacSource, Options, ReceiveFilter};
use polder_devices::pci::Registers as _;
use polder_devices::{AnyQueue, Queue, Receiving};
use rustix::event::{PollFd, PollFlags, Timespec};
use std::time::Duration;

/// Ports of these options, and the limit of posted buffers that they are given.
struct Ports(Options, u32);

impl Fixture for Ports {
    fn limits(&self) -> Limits {
        let longest = usize::from(self.0.mtu) + 18;
        let longest_received = longest;
        // What is not posted for has the packet buffer of 40 KiB.
        let backlog = if self.1 == u32::MAX { 200 } else { 20 };
        Limits { longest, longest_received, chains: true, backlog, patience: Duration::from_secs(5) }
    }

    fn open(&mut self, region: &Region) -> Result<(AnyQueue, Box<dyn Wire>), String> {
        let nic = Nic::new(model::Options::default()).map_err(|error| error.to_string())?;
        let port = e1000::open(nic.device(), region, &self.0).map_err(|error| error.to_string())?;
        let Queue { mut rx, tx } = port.queue;
        rx.control().ok_or("a queue without control")?.set_posted_limit(self.1);
        // A frame above 1522 bytes ends in the device, unless that takes long ones.
        let longest = if self.0.mtu > 1500 { usize::MAX } else { usize::from(self.0.mtu) + 18 };
        Ok((Queue { rx, tx }.boxed(), Box::new(Cable { nic, longest })))
    }
}

fn conforms(options: Options) {
    let report = conformance::run(&mut Ports(options, u32::MAX));
    assert!(report.is_clean(), "{report}");
}

#[test]
fn conforms_with_defaults() {
    conforms(Options::default());
}

#[test]
fn conforms_with_frames_of_several_buffers() {
    conforms(Options { mtu: 9000, receive_ring: 512, ..Options::default() });
}

#[test]
fn conforms_with_small_rings_and_refills_after_each_poll() {
    let receiving = Receiving { refill_below_percent: 100, ..Receiving::default() };
    conforms(Options { receive_ring: 128, transmit_ring: 32, receiving, ..Options::default() });
}

#[test]
fn conforms_with_few_buffers_posted() {
    for options in [Options::default(), Options { mtu: 9000, ..Options::default() }] {
        let report = conformance::run(&mut Ports(options, 8));
        assert!(report.is_clean(), "{report}");
    }
}

#[test]
fn the_address_is_the_eeproms_or_the_configurations() {
    let stand = Stand::new(&Options::default());
    let found = stand.port.port.status.facts().found.unwrap();
    assert_eq!((stand.port.mac, found.mac_source), (model::Options::default().mac, MacSource::Eeprom));
    assert_eq!((found.phy, found.eeprom_is_good), (0x0141_0c20, true));
    let mac = Some([2, 3, 4, 5, 6, 7]);
    let stand = Stand::new(&Options { mac, ..Options::default() });
    assert_eq!(Some(stand.port.mac), mac);
}

#[test]
fn pauses_are_what_both_sides_offer() {
    let both = ctrl::TRANSMIT_PAUSE | ctrl::RECEIVE_PAUSE;
    for (partner_pauses, flow_control, expected) in [(true, true, both), (false, true, 0), (true, false, 0)] {
        let model = model::Options { partner_pauses, ..model::Options::default() };
        let stand = Stand::with(model, &Options { flow_control, ..Options::default() }, 2048).unwrap();
        let link = stand.port.port.status.facts().link;
        assert_eq!((link.up, link.speed, link.full_duplex), (true, 1000, true));
        assert_eq!(stand.nic.peek(CTRL) & both, expected);
    }
}

/// Arms the queue until it waits.
fn sleep_ready(stand: &mut Stand) {
    for _ in 0..100 {
        let (turn, frames) = stand.receive(64);
        assert!(frames.is_empty());
        if turn == Turn::Drained && stand.port.queue.rx.arm() == Armed::Waiting {
            return;
        }
    }
    panic!("an idle port never waits");
}

fn is_readable(stand: &Stand) -> bool {
    let event = stand.port.queue.rx.event().unwrap();
    rustix::event::poll(&mut [PollFd::new(&event, PollFlags::IN)], Some(&Timespec::default())) == Ok(1)
}

#[test]
fn a_link_that_goes_and_comes_is_followed_and_loses_no_descriptor() {
    let mut stand = Stand::new(&Options::default());
    sleep_ready(&mut stand);
    stand.nic.set_link(false);
    assert!(is_readable(&stand), "the change interrupts");
    sleep_ready(&mut stand);
    assert!(!stand.port.port.status.is_link_up());
    let packet = stand.packet(&frame(1, 60));
    stand.send(vec![packet]);
    assert_eq!(stand.port.queue.tx.counters().drops.get(DropReason::PortDown), 1);
    stand.nic.set_link(true);
    sleep_ready(&mut stand);
    assert_eq!(stand.port.port.status.facts().link_changes, 3, "up, down, up");
    assert!(stand.nic.inject(&frame(2, 60)));
    assert_eq!(stand.receive(64).1, [frame(2, 60)]);
    let packet = stand.packet(&frame(3, 60));
    stand.send(vec![packet]);
    assert_eq!(stand.sent(), [frame(3, 60)]);
    stand.close();
}

#[test]
fn a_batch_costs_one_write_to_the_device() {
    let mut stand = Stand::new(&Options::default());
    let packets = (0..64).map(|number| stand.packet(&frame(number, 100))).collect();
    stand.send(packets);
    let status = &stand.port.port.status;
    assert_eq!((status.tx_doorbells.get(), status.contexts.get(), status.copied.get()), (1, 0, 0));
    assert_eq!(stand.sent().len(), 64);
    assert_eq!((stand.port.queue.tx.held(), stand.port.queue.tx.posted()), (0, 0));
}

#[test]
fn statistics_are_exact_to_the_byte_whether_reading_clears_them_or_not() {
    for keeps_statistics in [false, true] {
        let model = model::Options { keeps_statistics, ..model::Options::default() };
        let mut stand = Stand::with(model, &Options::default(), 2048).unwrap();
        let (mut frames, mut bytes) = (0, 0);
        for round in 0..3_u32 {
            for length in [60, 61, 999, 1514] {
                assert!(stand.nic.inject(&frame(round, length)));
                let packet = stand.packet(&frame(round, length));
                stand.send(vec![packet]);
                (frames, bytes) = (frames + 1, bytes + length as u64 + 4);
            }
            stand.port.port.refresh();
            (0..4).for_each(|_| drop(stand.receive(64)));
            let totals = stand.port.port.status.facts().statistics;
            let good = [Statistic::RxGood, Statistic::TxGood, Statistic::RxGoodBytes, Statistic::TxGoodBytes];
            assert_eq!(good.map(|statistic| totals.get(statistic)), [frames, frames, bytes, bytes]);
            assert_eq!(totals.get(Statistic::Rx64), u64::from(round) + 1);
        }
        stand.close();
    }
}

#[test]
fn what_dies_in_the_device_is_counted_as_lost_there() {
    let mut stand = Stand::new(&Options { receive_ring: 64, ..Options::default() });
    // 63 descriptors, then 48 KiB of packet buffer: 32 frames of 1518 bytes with their FCS.
    for number in 0..200 {
        assert!(stand.nic.inject(&frame(number, 1514)));
    }
    let mut came = 0;
    for _ in 0..10 {
        came += stand.receive(64).1.len() as u64;
        let _ = stand.port.queue.rx.arm();
    }
    let counters = stand.port.queue.rx.counters();
    let lost = counters.drops.get(DropReason::RxOverrun);
    assert_eq!((came, lost, counters.received.get()), (63 + 32, 200 - 63 - 32, 200));
    assert!(stand.port.port.status.overrun_causes.get() > 0);
    stand.port.port.refresh();
    let _ = stand.receive(64);
    let totals = stand.port.port.status.facts().statistics;
    assert_eq!((totals.get(Statistic::Missed), totals.get(Statistic::NoDescriptor)), (lost, 32));
    stand.close();
}

/// Under a limit the ring shrinks to what the worker can use, the excess dies in the device, and the queue says that there
/// was more; without one the ring is full again.
#[test]
fn few_buffers_are_posted_while_the_worker_cannot_use_more() {
    let mut stand = Stand::new(&Options::default());
    assert_eq!(stand.port.queue.rx.posted(), 255);
    let limit = |stand: &mut Stand, frames| stand.port.queue.rx.control().unwrap().set_posted_limit(frames);
    limit(&mut stand, 20);
    let (mut came, mut offered) = (0, 0);
    for _ in 0..300 {
        (0..40).for_each(|number| assert!(stand.nic.inject(&frame(number, 60))));
        offered += 40;
        came += stand.receive(4).1.len() as u64;
    }
    assert!(stand.port.queue.rx.posted() <= 20, "{}", stand.port.queue.rx.posted());
    assert!(stand.port.queue.rx.control().unwrap().has_backlog());
    let _ = stand.port.queue.rx.arm();
    let lost = stand.drops(DropReason::RxOverrun);
    // 20 buffers and the packet buffer of 48 KiB may still have some: 768 frames of 64 bytes with their FCS.
    assert_eq!(came, 4 * 300);
    assert!(offered - came - lost <= 768 + 20, "{offered} offered, {came} came, {lost} lost");
    while stand.receive(64).0 == Turn::OutOfBudget {}
    assert!(stand.port.queue.rx.posted() <= 20);
    limit(&mut stand, u32::MAX);
    sleep_ready(&mut stand);
    assert_eq!(stand.port.queue.rx.posted(), 255);
    let _: bool = stand.port.queue.rx.control().unwrap().has_backlog();
    // A worker that sleeps under a limit wakes at the next frame, and 8 more are no backlog.
    limit(&mut stand, 0);
    (0..250).for_each(|number| assert!(stand.nic.inject(&frame(number, 60))));
    while !stand.receive(64).1.is_empty() {}
    sleep_ready(&mut stand);
    assert_eq!(stand.port.queue.rx.posted(), 8);
    assert!(!stand.port.queue.rx.control().unwrap().has_backlog());
    assert!(stand.nic.inject(&frame(1, 60)) && is_readable(&stand));
    assert_eq!(stand.receive(64), (Turn::Drained, vec![frame(1, 60)]));
    assert!(!stand.port.queue.rx.control().unwrap().has_backlog());
    stand.close();
}

#[test]
fn a_frame_that_the_device_does_not_accept_is_counted() {
    let mut stand = Stand::new(&Options::default());
    assert!(stand.nic.inject(&frame(1, 1519)) && stand.nic.inject(&frame(2, 1518)));
    assert_eq!(stand.receive(64).1, [frame(2, 1518)]);
    let _ = stand.port.queue.rx.arm();
    assert_eq!(stand.drops(DropReason::FrameTooLong), 1);
}

#[test]
fn interrupts_are_counted_by_cause_and_off_while_the_worker_polls() {
    let mut stand = Stand::new(&Options::default());
    sleep_ready(&mut stand);
    for round in 1..=5 {
        assert!(stand.nic.inject(&frame(round, 60)));
        assert!(is_readable(&stand));
        assert_eq!(stand.receive(64).1.len(), 1);
        assert!(!is_readable(&stand));
        // Polling finds frames, without an interrupt.
        assert!(stand.nic.inject(&frame(round, 61)));
        assert!(!is_readable(&stand));
        assert_eq!(stand.receive(64).1.len(), 1);
        sleep_ready(&mut stand);
        let status = &stand.port.port.status;
        assert_eq!(status.interrupts.get(), u64::from(round));
    }
    stand.nic.interrupt_for_nothing();
    assert!(is_readable(&stand));
    sleep_ready(&mut stand);
    assert_eq!(stand.port.port.status.spurious.get(), 1);
    assert!(stand.nic.inject(&frame(9, 60)) && is_readable(&stand), "the next one comes");
}

/// A frame between the look at the causes and their release is seen by the last look, or interrupts.
#[test]
fn throttled_interrupts_come_when_their_time_has() {
    let model = model::Options { throttles: true, ..model::Options::default() };
    let mut stand = Stand::with(model, &Options::default(), 2048).unwrap();
    stand.port.queue.rx.control().unwrap().set_mode(Drive::Interrupts(Nanos(100_000)));
    sleep_ready(&mut stand);
    assert_eq!(stand.nic.peek(ITR), 391, "100 µs in units of 256 ns");
    stand.nic.advance(Nanos::SECOND);
    assert!(stand.nic.inject(&frame(1, 60)) && is_readable(&stand), "the first one comes at once");
    assert_eq!(stand.receive(64).1.len(), 1);
    sleep_ready(&mut stand);
    assert!(stand.nic.inject(&frame(2, 60)) && !is_readable(&stand));
    stand.nic.advance(Nanos(99_000));
    assert!(!is_readable(&stand));
    stand.nic.advance(Nanos(2000));
    assert!(is_readable(&stand));
}

#[test]
fn the_throttle_follows_what_interrupts_bring() {
    let mut stand = Stand::new(&Options::default());
    sleep_ready(&mut stand);
    assert_eq!(stand.nic.peek(ITR), 0);
    for _ in 0..2 {
        (0..40).for_each(|number| assert!(stand.nic.inject(&frame(number, 60))));
        assert_eq!(stand.receive(64).1.len(), 40);
        sleep_ready(&mut stand);
    }
    assert_eq!(stand.port.port.status.throttle_nanos.get(), 80_000);
    for _ in 0..3 {
        sleep_ready(&mut stand);
    }
    assert_eq!(stand.nic.peek(ITR), 0);
}

#[test]
fn filters_let_pass_what_is_asked_for() {
    let (group, station) = ([0x01, 0, 0x5e, 0, 0, 0xfb], [2, 0, 0, 0, 0, 77]);
    let receive = ReceiveFilter::Addresses(vec![group, station]);
    let mut stand = Stand::new(&Options { receive, ..Options::default() });
    let own = stand.port.mac;
    let mut passes = |destination: [u8; 6]| {
        let mut frame = frame(1, 80);
        frame[..6].copy_from_slice(&destination);
        stand.nic.inject(&frame);
        stand.receive(64).1.len() == 1
    };
    assert!(passes(own) && passes(group) && passes(station) && passes([0xff; 6]));
    assert!(!passes([2, 0, 0, 0, 0, 78]) && !passes([0x01, 0, 0x5e, 9, 9, 9]));
}

#[test]
fn a_closed_port_leaves_the_device_at_rest_and_open_again_works() {
    let mut stand = Stand::new(&Options::default());
    stand.nic.inject(&frame(1, 60));
    stand.nic.hold_sending(true);
    let packet = stand.packet(&frame(2, 60));
    stand.send(vec![packet]);
    let (nic, counters) = (stand.nic.clone(), stand.port.queue.tx.counters().clone());
    let resets = nic.resets();
    stand.close();
    assert_eq!((nic.peek(RCTL) & 2, nic.peek(TCTL) & 2, nic.resets()), (0, 0, resets + 1));
    assert_eq!((counters.transmitted.get(), counters.drops.get(DropReason::TxError)), (0, 1));
    nic.hold_sending(false);
    let region = Region::new(polder_buffers::RegionOptions { slots: 512, slot_bytes: 2048 }).unwrap();
    let port = e1000::open(nic.device(), &region, &Options::default()).unwrap();
    let mut stand = Stand { port, nic, pool: region.pool(), region };
    assert_eq!(stand.receive(0).1.len(), 0);
    stand.nic.inject(&frame(3, 60));
    assert_eq!(stand.receive(64).1, [frame(3, 60)]);
    assert_eq!(stand.nic.dma_faults(), 0);
    stand.close();
}

#[test]
fn long_frames_come_on_when_few_buffers_are_left_and_refills_wait_for_fewer() {
    let receiving = Receiving { refill_below_percent: 1, ..Receiving::default() };
    let options = Options { mtu: 4000, receive_ring: 64, receiving, ..Options::default() };
    let mut stand = Stand::with(model::Options::default(), &options, 2048).unwrap();
    // Frames of one buffer and of four, so that some are left of 63 which are too few for the next.
    let frames =
        (0..200).map(|number| frame(number, if number % 4 == 0 { 60 } else { 4000 })).collect::<Vec<_>>();
    for frame in &frames {
        assert!(stand.nic.inject(frame));
        let mut came = Vec::new();
        for _ in 0..3 {
            came.extend(stand.receive(8).1);
        }
        assert_eq!(came, [frame.as_slice()]);
    }
    stand.close();
}

#[test]
fn packets_of_other_memory_are_copied_and_long_chains_leave_whole() {
    let mut stand = Stand::new(&Options { mtu: 9000, ..Options::default() });
    let other = Region::new(polder_buffers::RegionOptions { slots: 64, slot_bytes: 512 }).unwrap();
    let mut pool = other.pool();
    let mut batch = Batch::new();
    batch.push(Packet::copy_from(&frame(1, 8000), &mut pool).unwrap()).unwrap();
    let mut chain = stand.packet(&frame(2, 20));
    for _ in 0..30 {
        chain.join(stand.packet(&[7; 3]));
    }
    batch.push(chain).unwrap();
    stand.port.queue.tx.transmit(&mut batch, &mut stand.pool);
    let _ = stand.port.queue.tx.reclaim(&mut stand.pool);
    let sent = stand.sent();
    assert_eq!((&sent[0], sent[1].len()), (&frame(1, 8000), 20 + 90));
    assert_eq!(stand.port.port.status.copied.get(), 1);
    drop(pool);
    assert_eq!(other.free_slots(), 64);
    stand.close();
}

/// Reading causes clears them, so that a driver that looks twice sees a cause once.
#[test]
fn the_model_clears_causes_when_they_are_read() {
    let nic = Nic::new(model::Options::default()).unwrap();
    nic.set_link(true);
    let offset: Register<_> = ICR;
    assert_eq!((nic.read32(offset.offset), nic.read32(offset.offset)), (4, 0));
}
