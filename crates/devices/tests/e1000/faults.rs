//! Devices that lie, stall or go: a counted drop, a closed port or an error that says what to do.

use crate::stand::{Stand, frame};
use polder_datapath::drops::DropReason;
use polder_datapath::port::{Armed, RxQueue, Turn, TxQueue};
use polder_devices::e1000::desc::{rx_error, rx_status};
use polder_devices::e1000::model::{self, Fault, FaultyDevice};
use polder_devices::e1000::{AccessError, End, InitError, OpenError, Options};
use rustix::event::{PollFd, PollFlags, Timespec};

#[test]
fn frames_that_were_damaged_are_drops_and_wrong_checksums_are_not() {
    let mut stand = Stand::new(&Options::default());
    let damaged = [0x01, 0x02, 0x04, 0x10, 0x80, 0x01 | rx_error::TRANSPORT];
    for (count, errors) in (1..).zip(damaged) {
        stand.nic.plan(Fault::Errors(errors));
        stand.nic.inject(&frame(1, 100));
        assert!(stand.receive(64).1.is_empty(), "{errors:#x}");
        assert_eq!(stand.drops(DropReason::DeviceError), count);
    }
    stand.nic.plan(Fault::Errors(rx_error::TRANSPORT));
    stand.nic.inject(&frame(1, 100));
    assert_eq!(stand.receive(64).1.len(), 1, "a bridge passes on what it got");
    assert_eq!(stand.port.port.status.checksum_errors.get(), 1);
    stand.close();
}

#[test]
fn a_length_that_no_buffer_has_closes_the_port() {
    for length in [1793, 2049, u16::MAX] {
        let mut stand = Stand::new(&Options::default());
        stand.nic.inject(&frame(1, 100));
        stand.nic.plan(Fault::Length(length));
        stand.nic.inject(&frame(2, 100));
        let (turn, frames) = stand.receive(64);
        assert_eq!((turn, frames), (Turn::Closed, vec![frame(1, 100)]), "{length}");
        assert_eq!((stand.receive(64).0, stand.port.queue.rx.arm()), (Turn::Closed, Armed::Raced));
        assert_eq!(stand.port.queue.tx.reclaim(&mut stand.pool), Turn::Closed);
        let counters = stand.port.queue.rx.counters();
        assert_eq!((counters.received.get(), counters.drops.get(DropReason::DeviceError)), (2, 1));
        assert_eq!(stand.port.port.status.facts().end, Some(End::Lied));
        stand.close();
    }
}

#[test]
fn lengths_and_ends_that_cannot_be_are_one_drop_each() {
    let mut stand = Stand::new(&Options::default());
    // Empty; shorter than a header; cut in the middle of a buffer, which takes the next frame with it.
    for (fault, also_next) in
        [(Fault::Length(0), false), (Fault::Length(13), false), (Fault::Status(rx_status::DONE), true)]
    {
        let before = stand.drops(DropReason::DeviceError);
        stand.nic.plan(fault);
        stand.nic.inject(&frame(1, 100));
        stand.nic.inject(&frame(2, 100));
        stand.nic.inject(&frame(3, 100));
        let expected = if also_next { vec![frame(3, 100)] } else { vec![frame(2, 100), frame(3, 100)] };
        assert_eq!(stand.receive(64).1, expected, "{fault:?}");
        assert_eq!(stand.drops(DropReason::DeviceError), before + 1, "{fault:?}");
    }
    stand.close();
}

/// The driver knows frames by their places: an address that the device has written over names nothing.
#[test]
fn a_foreign_buffer_changes_nothing() {
    let mut stand = Stand::new(&Options::default());
    for address in [0, 0x2_4000_0000, u64::MAX] {
        stand.nic.plan(Fault::ForeignBuffer(address));
        stand.nic.inject(&frame(1, 100));
        assert_eq!(stand.receive(64).1, [frame(1, 100)]);
    }
    for number in 0..1000 {
        stand.nic.inject(&frame(number, 70));
        assert_eq!(stand.receive(64).1, [frame(number, 70)]);
    }
    assert_eq!(stand.nic.dma_faults(), 0);
    stand.close();
}

#[test]
fn descriptors_that_are_written_back_late_and_in_any_order_come_in_order() {
    let mut stand = Stand::new(&Options::default());
    stand.nic.hold_write_backs(true);
    (0..20).for_each(|number| assert!(stand.nic.inject(&frame(number, 60 + number as usize))));
    assert_eq!(stand.receive(64), (Turn::Drained, Vec::new()));
    let mut came = Vec::new();
    // The newest first: nothing can come before the oldest has.
    for choice in (0..20).rev() {
        assert!(came.is_empty());
        assert!(stand.nic.release_write_back(choice));
        came.append(&mut stand.receive(64).1);
    }
    assert_eq!(came, (0..20).map(|number| frame(number, 60 + number as usize)).collect::<Vec<_>>());
    stand.close();
}

#[test]
fn frames_of_sent_packets_come_back_in_order_of_their_reports() {
    let mut stand = Stand::new(&Options::default());
    stand.nic.hold_write_backs(true);
    for round in 0..3 {
        let packets = (0..10).map(|number| stand.packet(&frame(number + round * 10, 60))).collect();
        stand.send(packets);
    }
    assert_eq!((stand.sent().len(), stand.port.queue.tx.held()), (30, 30));
    // The last batch's report first.
    assert!(stand.nic.release_write_back(2));
    let _ = stand.port.queue.tx.reclaim(&mut stand.pool);
    assert_eq!(stand.port.queue.tx.held(), 30);
    assert!(stand.nic.release_write_back(0));
    let _ = stand.port.queue.tx.reclaim(&mut stand.pool);
    assert_eq!(stand.port.queue.tx.held(), 20);
    stand.nic.hold_write_backs(false);
    let _ = stand.port.queue.tx.reclaim(&mut stand.pool);
    assert_eq!((stand.port.queue.tx.held(), stand.port.queue.tx.posted()), (0, 0));
    stand.close();
}

#[test]
fn an_unplugged_device_closes_the_port_without_an_interrupt_too() {
    let mut stand = Stand::new(&Options::default());
    stand.nic.hold_sending(true);
    let packets = (0..10).map(|number| stand.packet(&frame(number, 60))).collect();
    stand.send(packets);
    stand.nic.unplug();
    let closed = (0..10_000).position(|_| stand.receive(64).0 == Turn::Closed);
    assert!(closed.is_some(), "a worker that never sleeps finds out");
    assert_eq!(stand.port.port.status.facts().end, Some(End::Gone));
    assert_eq!(stand.port.queue.tx.reclaim(&mut stand.pool), Turn::Closed);
    let counters = stand.port.queue.tx.counters();
    assert_eq!((counters.transmitted.get(), counters.drops.get(DropReason::TxError)), (0, 10));
    assert_eq!((counters.in_flight.get(), stand.port.queue.tx.held()), (0, 0));
    stand.close();
}

/// The control thread looks, because a device that was refused may never write anything again.
#[test]
fn a_refused_transfer_closes_the_port_of_a_worker_that_sleeps() {
    let mut stand = Stand::new(&Options::default());
    while stand.receive(64).0 != Turn::Drained || stand.port.queue.rx.arm() != Armed::Waiting {}
    stand.port.port.look_for_refusal();
    assert_eq!((stand.receive(64).0, stand.port.queue.rx.arm()), (Turn::Drained, Armed::Waiting));
    // All memory of the device is gone when it gets a frame.
    stand.nic.attach(Vec::new());
    stand.nic.inject(&frame(1, 100));
    assert!(stand.nic.dma_faults() > 0);
    stand.port.port.look_for_refusal();
    let event = stand.port.queue.rx.event().unwrap();
    let mut look = [PollFd::new(&event, PollFlags::IN)];
    assert_eq!(rustix::event::poll(&mut look, Some(&Timespec::default())), Ok(1), "the worker is woken");
    assert_eq!(stand.receive(64), (Turn::Closed, Vec::new()));
    assert_eq!(stand.port.port.status.facts().end, Some(End::Refused));
    stand.close();
}

fn opens(faulty: FaultyDevice, options: &Options) -> Result<(), OpenError> {
    let model = model::Options { faulty, ..model::Options::default() };
    Stand::with(model, options, 2048).map(drop)
}

#[test]
fn devices_that_do_not_come_up_say_what_is_wrong_with_them() {
    let fine = FaultyDevice::default();
    let access = |error| Err(OpenError::Init(InitError::Access(error)));
    let options = Options::default();
    assert_eq!(
        opens(FaultyDevice { never_resets: true, ..fine }, &options),
        access(AccessError::Busy("CTRL"))
    );
    assert_eq!(
        opens(FaultyDevice { silent_eeprom: true, ..fine }, &options),
        access(AccessError::Busy("EERD"))
    );
    assert_eq!(opens(FaultyDevice { no_phy: true, ..fine }, &options), access(AccessError::NoPhy));
    assert_eq!(opens(FaultyDevice { silent_phy: true, ..fine }, &options), access(AccessError::Busy("MDIC")));
    let bad = FaultyDevice { bad_eeprom: true, ..fine };
    assert_eq!(opens(bad, &options), Err(OpenError::Init(InitError::EepromChecksum)));
    assert_eq!(opens(bad, &Options { mac: Some([2; 6]), ..Options::default() }), Ok(()));
    let none = FaultyDevice { no_address: true, ..fine };
    assert_eq!(opens(none, &options), Err(OpenError::Init(InitError::NoAddress)));
    assert_eq!(opens(fine, &Options { mtu: 20_000, ..Options::default() }), Err(OpenError::Mtu(20_000)));
    assert_eq!(opens(fine, &Options { receive_ring: 100, ..Options::default() }), Err(OpenError::Ring(100)));
    for error in [OpenError::Init(InitError::EepromChecksum), OpenError::Mtu(20_000), OpenError::Ring(3)] {
        assert!(error.to_string().len() > 30, "{error}");
    }
}
