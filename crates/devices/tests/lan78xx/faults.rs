//! Transfers that fail, end short or stall: what the device took is transmitted, all else is a counted drop.

use crate::bench::Stand;
use crate::hand::frame;
use polder_buffers::{Batch, ChecksumState, Packet};
use polder_datapath::drops::DropReason;
use polder_datapath::port::Budget;
use polder_devices::conformance::Wire;
use polder_devices::lan78xx::Options;
use polder_devices::lan78xx::frame::rx_a;
use polder_devices::lan78xx::model::{self, Fault};
use polder_devices::usb::Speed;

/// Counters of a sending end: transmitted, bytes of those, drops as `tx-error` and as `port-down`, in flight.
fn sent_counters(stand: &Stand) -> [u64; 5] {
    let counters = stand.port.queue.tx.counters();
    let drops = |reason| counters.drops.get(reason);
    [
        counters.transmitted.get(),
        counters.transmitted_bytes.get(),
        drops(DropReason::TxError),
        drops(DropReason::PortDown),
        counters.in_flight.get(),
    ]
}

/// Hands packets over in one batch, so that they share a transfer; takes back what has ended.
fn send_together(stand: &mut Stand, lengths: &[usize]) {
    let mut batch = Batch::new();
    for &length in lengths {
        batch.push(Packet::copy_from(&frame([2; 6], length), &mut stand.pool).unwrap()).unwrap();
    }
    stand.port.queue.tx.transmit(&mut batch, &mut stand.pool);
    assert!(batch.is_empty());
    let _ = stand.port.queue.tx.reclaim(&mut stand.pool);
}

#[test]
fn transmitted_is_what_the_device_took() {
    // Frames of 100 bytes end at 108, 216, 324 and 432 of their transfer.
    for (fault, taken) in [
        (Fault::ShortOut(431), 3),
        (Fault::ShortOut(216), 2),
        (Fault::ErrorOut(0), 0),
        (Fault::ErrorOut(110), 1),
        (Fault::StallOut, 0),
    ] {
        let mut stand = Stand::new(model::Options::default(), &Options::default());
        stand.side.lock().bench.adapter.plan(fault.clone());
        send_together(&mut stand, &[100; 4]);
        let _ = stand.settle();
        assert_eq!(sent_counters(&stand), [taken, 100 * taken, 4 - taken, 0, 0], "{fault:?}");
        assert_eq!(stand.sent().len() as u64, taken, "{fault:?}");
        assert_eq!(stand.port.status.bad_transfers.get(), 1, "{fault:?}");
        send_together(&mut stand, &[100; 4]);
        assert_eq!(sent_counters(&stand), [4 + taken, 400 + 100 * taken, 4 - taken, 0, 0], "it goes on");
    }
}

#[test]
fn unplugging_drops_what_the_device_did_not_take() {
    let mut stand = Stand::new(model::Options::default(), &Options::default());
    // Nothing leaves by the wire, so that the FIFO fills: eight frames of 8 + 1500 bytes.
    stand.side.lock().bench.adapter.set_link(false);
    send_together(&mut stand, &[1500; 60]);
    assert_eq!(sent_counters(&stand), [0, 0, 0, 0, 60], "no transfer has ended");
    assert_eq!(stand.port.queue.tx.held(), 60);
    assert!(stand.side.unplug());
    let _ = stand.port.queue.tx.reclaim(&mut stand.pool);
    assert_eq!(sent_counters(&stand), [8, 8 * 1500, 0, 52, 0]);
}

#[test]
fn closing_drops_what_still_waits() {
    let mut stand = Stand::new(model::Options::default(), &Options::default());
    stand.side.lock().bench.adapter.set_link(false);
    // More than four transfers hold: the rest is pending.
    (0..2).for_each(|_| send_together(&mut stand, &[1500; 60]));
    let counters = stand.port.queue.tx.counters().clone();
    drop(stand.port);
    assert_eq!(counters.in_flight.get(), 0);
    assert_eq!(counters.transmitted.get() + counters.drops.total(), 120);
    assert_eq!(counters.transmitted.get(), 8);
}

/// Drops of a receiving end and the bytes that were lost with them, when `fault` hits a transfer of three frames.
fn lost_to(fault: Fault) -> (usize, u64, u64) {
    let model = model::Options { speed: Speed::High, ..model::Options::default() };
    let mut stand = Stand::new(model, &Options { receive_urbs: Some(1), ..Options::default() });
    // While the one URB waits for its turn, frames gather in the FIFO.
    for _ in 0..4 {
        stand.side.inject(&frame([2; 6], 200));
    }
    stand.side.lock().bench.adapter.plan(fault);
    let delivered = stand.settle().len();
    let counters = stand.port.queue.rx.counters();
    assert_eq!(counters.received.get(), delivered as u64 + counters.drops.total());
    (delivered, counters.drops.get(DropReason::DeviceError), stand.port.status.lost_bytes.get())
}

/// A frame of 200 bytes takes 214 in a transfer, and the next one begins at 216.
#[test]
fn bad_receive_transfers_count_bytes_and_the_frames_they_can_have_held() {
    // Whole: one frame, then three in one transfer.
    assert_eq!(lost_to(Fault::Checksum), (4, 0, 0));
    // Cut in the third frame: 100 bytes of it are left, which can have been one.
    assert_eq!(lost_to(Fault::Cut(432 + 100)), (3, 1, 100));
    // The host saw that more came than fits; 16 KiB can have held 227.
    assert_eq!(lost_to(Fault::Babble), (1, 227, 16384));
    assert_eq!(lost_to(Fault::BusError), (1, 1, 0));
}

#[test]
fn wrong_checksums_are_delivered_and_counted() {
    let mut stand = Stand::new(model::Options::default(), &Options::default());
    let good = crate::packets::udp(100);
    let wrong = |at: usize| {
        let mut frame = good.clone();
        frame[at] ^= 1;
        frame
    };
    // The adapter sets its error bit for a wrong IP header and for a wrong datagram.
    let sent = [wrong(14 + 8), wrong(80), good.clone()];
    let mut states = Vec::new();
    for frame in &sent {
        stand.side.inject(frame);
        let mut batch = Batch::new();
        let _ = stand.port.queue.rx.receive(&mut Budget::new(64), &mut batch, &mut stand.pool);
        assert_eq!(batch.first().map(|packet| packet.bytes().to_vec()).as_ref(), Some(frame));
        states.extend(batch.iter().map(|packet| packet.checksum));
        stand.pool.release(&mut batch);
    }
    assert_eq!(states, [ChecksumState::Unknown, ChecksumState::Unknown, ChecksumState::Verified]);
    assert_eq!(stand.port.queue.rx.counters().drops.total(), 0);
    assert_eq!(stand.port.status.function.checksums.errors.get(), 2);
    stand.side.lock().bench.adapter.plan(Fault::Checksum);
    stand.side.inject(&good);
    assert_eq!(stand.settle().len(), 1);
    assert_eq!(stand.port.status.function.checksums.mismatches.get(), 1);
}

/// Whatever stands beside it, an error of the MAC means that the frame is not the one that was sent.
#[test]
fn errors_of_the_mac_are_drops() {
    let mac = [
        rx_a::FCS_ERROR,
        rx_a::ALIGNMENT,
        rx_a::PHY_ERROR,
        rx_a::LONG,
        rx_a::RUNT,
        rx_a::WATCHDOG,
        rx_a::FCS_ERROR | rx_a::CHECKSUM_ERRORS,
    ];
    let mut stand = Stand::new(model::Options::default(), &Options::default());
    for (count, bits) in (1..).zip(mac) {
        stand.side.lock().bench.adapter.plan(Fault::ErrorBits(bits | rx_a::ERROR));
        stand.side.inject(&frame([2; 6], 100));
        assert!(stand.settle().is_empty(), "{bits:#x}");
        assert_eq!(stand.port.queue.rx.counters().drops.get(DropReason::DeviceError), count);
    }
}
