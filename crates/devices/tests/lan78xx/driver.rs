//! Our driver on the honest model: the conformance suite, what it finds, what it offers.

use crate::bench::{Stand, plug_in};
use crate::hand::frame;
use polder_buffers::{Batch, ChecksumState, Packet, Region};
use polder_datapath::drops::DropReason;
use polder_datapath::port::Budget;
use polder_datapath::units::Nanos;
use polder_devices::AnyQueue;
use polder_devices::conformance::{self, Fixture, Limits, Wire};
use polder_devices::lan78xx::descriptor::Chip;
use polder_devices::lan78xx::model::{self, AddressSource, Partner};
use polder_devices::lan78xx::statistics::Statistic;
use polder_devices::lan78xx::{self, MacSource, Options, ReceiveFilter, Techniques};
use polder_devices::usb::Speed;
use std::time::Duration;

struct Adapters {
    model: model::Options,
    options: Options,
}

impl Fixture for Adapters {
    fn limits(&self) -> Limits {
        Limits {
            longest: usize::from(self.options.mtu) + 18,
            longest_received: usize::from(self.options.mtu) + 18,
            chains: true,
            // URBs that end after one frame each, and what the FIFO holds.
            backlog: 20,
            patience: Duration::from_secs(5),
        }
    }

    fn open(&mut self, _region: &Region) -> Result<(AnyQueue, Box<dyn Wire>), String> {
        let (local, side) = plug_in(self.model.clone());
        let port = lan78xx::open(Box::new(local), &self.options).map_err(|error| error.to_string())?;
        Ok((port.queue, Box::new(side)))
    }
}

fn conforms(model: model::Options, options: Options) {
    let report = conformance::run(&mut Adapters { model, options });
    assert!(report.is_clean(), "{report}");
}

#[test]
fn conforms_at_superspeed() {
    conforms(model::Options::default(), Options::default());
}

#[test]
fn conforms_at_high_speed_with_large_frames_and_tags_in_hardware() {
    let model = model::Options { speed: Speed::High, ..model::Options::default() };
    conforms(
        model,
        Options {
            mtu: lan78xx::LARGEST_MTU,
            vlan_offload: true,
            // Frames of the suite come one at a time and end a transfer each.
            receive_urbs: Some(40),
            ..Options::default()
        },
    );
}

/// Budgets are not kept without the techniques that keep them; everything else holds.
#[test]
fn conforms_with_each_technique_off() {
    let on = Techniques::ON;
    let variants = [
        Techniques { poll_cycle: false, ..on },
        Techniques { urb_pools: false, ..on },
        Techniques { pending_queue: false, ..on },
        Techniques { resubmit_in_cycle: false, ..on },
        Techniques { frame_is_unit: false, ..on },
        Techniques::OFF,
    ];
    for techniques in variants {
        let options = Options { techniques, ..Options::default() };
        let report = conformance::run(&mut Adapters { model: model::Options::default(), options });
        let keeps_budget = techniques.frame_is_unit && techniques.poll_cycle;
        let excused = |check: &str| {
            !keeps_budget && check.contains("budget")
                || !techniques.poll_cycle && check == "never more than the batch has room for"
        };
        let broken: Vec<_> = report.broken().filter(|check| !excused(check)).collect();
        assert!(broken.is_empty(), "{techniques:?}\n{report}");
    }
}

#[test]
fn addresses_are_found_where_they_are() {
    let mac = model::Options::default().mac;
    for (address, source) in [
        (AddressSource::Eeprom, MacSource::Eeprom),
        (AddressSource::Otp, MacSource::Otp),
        (AddressSource::OtpSecond, MacSource::Otp),
        (AddressSource::Registers, MacSource::Registers),
        (AddressSource::None, MacSource::Random),
    ] {
        let stand = Stand::new(model::Options { address, ..model::Options::default() }, &Options::default());
        assert_eq!(stand.port.status.facts().mac, Some((stand.port.mac, source)));
        if source == MacSource::Random {
            assert_eq!(stand.port.mac[0] & 3, 2);
        } else {
            assert_eq!(stand.port.mac, mac);
        }
    }
    let own = [2, 3, 4, 5, 6, 7];
    let stand = Stand::new(model::Options::default(), &Options { mac: Some(own), ..Options::default() });
    assert_eq!(stand.port.status.facts().mac, Some((own, MacSource::Configuration)));
}

#[test]
fn chips_and_phys_are_told_apart() {
    for (chip, id) in
        [(Chip::Lan7800, 0x0007_c132), (Chip::Lan7801, 0x0022_1622), (Chip::Lan7850, 0x0007_c132)]
    {
        let stand = Stand::new(model::Options { chip, ..model::Options::default() }, &Options::default());
        let facts = stand.port.status.facts();
        assert_eq!(facts.chip, Some((chip.name(), 2)));
        assert_eq!(facts.phy.map(|phy| (phy.address, phy.id)), Some((1, id)));
        assert!(facts.link.up, "the first look finds the link");
    }
}

#[test]
fn links_are_what_both_sides_offer() {
    for (speed, pause) in [(1000, true), (1000, false), (100, true), (10, false)] {
        let partner = Partner { speed, pause, ..Partner::default() };
        let stand = Stand::new(model::Options { partner, ..model::Options::default() }, &Options::default());
        let link = stand.port.status.facts().link;
        assert_eq!((link.speed, link.full_duplex, link.pause_transmit), (speed, true, pause));
    }
}

#[test]
fn a_link_that_goes_and_comes_is_followed() {
    let mut stand = Stand::new(model::Options::default(), &Options::default());
    stand.side.lock().bench.adapter.set_link(false);
    let _ = stand.settle();
    assert!(!stand.port.status.facts().link.up);
    stand.send(&[frame([2; 6], 60)]);
    assert_eq!(stand.port.queue.tx.counters().drops.get(DropReason::PortDown), 1);
    stand.side.lock().bench.adapter.set_link(true);
    let _ = stand.settle();
    assert!(stand.port.status.facts().link.up);
    stand.send(&[frame([2; 6], 60)]);
    assert_eq!(stand.sent().len(), 1);
}

#[test]
fn a_link_is_found_without_interrupts_too() {
    let faulty = model::FaultyDevice { no_interrupts: true, ..model::FaultyDevice::default() };
    let link_delay = Nanos::from_millis(700);
    let mut stand =
        Stand::new(model::Options { faulty, link_delay, ..model::Options::default() }, &Options::default());
    assert!(!stand.port.status.facts().link.up);
    stand.side.pass(Nanos::from_millis(2000));
    let _ = stand.settle();
    assert!(stand.port.status.facts().link.up);
}

#[test]
fn filters_let_pass_what_is_asked_for() {
    let (group, other) = ([0x01, 0, 0x5e, 0, 0, 0xfb], [2, 0, 0, 0, 0, 77]);
    let many: Vec<[u8; 6]> = (0..40).map(|n| [0x33, 0x33, 0, 0, 1, n]).collect();
    let mut addresses = vec![group];
    addresses.extend(&many);
    let receive = ReceiveFilter::Addresses { addresses, vlans: Some(vec![7, 100]) };
    let mut stand = Stand::new(model::Options::default(), &Options { receive, ..Options::default() });
    let own = stand.port.mac;
    let mut tagged = |vlan: u8| {
        let mut frame = frame(own, 80);
        frame.splice(12..12, [0x81, 0, 0, vlan]);
        stand.side.inject(&frame);
        stand.settle().len()
    };
    assert_eq!((tagged(7), tagged(100), tagged(8)), (1, 1, 0));
    let mut passes = |destination| {
        stand.side.inject(&frame(destination, 80));
        stand.settle().len() == 1
    };
    assert!(passes(own) && passes(group) && passes([0xff; 6]));
    assert!(many.into_iter().all(&mut passes), "32 perfectly, the others by hash");
    assert!(!passes(other) && !passes([0x01, 0, 0x5e, 9, 9, 9]));
}

#[test]
fn transport_checksums_are_verified_by_the_adapters_sum() {
    let mut stand = Stand::new(model::Options::default(), &Options::default());
    let mut states = Vec::new();
    for (length, breaks) in [(0, false), (1, false), (17, false), (700, false), (701, true)] {
        let mut datagram = crate::packets::udp(length);
        if breaks {
            *datagram.last_mut().unwrap() ^= 1;
        }
        stand.side.inject(&datagram);
        let mut batch = Batch::new();
        let _ = stand.port.queue.rx.receive(&mut Budget::new(64), &mut batch, &mut stand.pool);
        states.extend(batch.iter().map(|packet| packet.checksum));
        stand.pool.release(&mut batch);
    }
    let (good, bad) = (ChecksumState::Verified, ChecksumState::Unknown);
    assert_eq!(states, [good, good, good, good, bad]);
}

#[test]
fn partial_checksums_are_completed_by_the_adapter_or_here() {
    let mut stand = Stand::new(model::Options::default(), &Options::default());
    let whole = crate::packets::udp(333);
    let mut packets = Vec::new();
    for shift in [0, 2] {
        let mut packet = Packet::copy_from(&whole, &mut stand.pool).unwrap();
        crate::packets::make_partial(&mut packet);
        // The second one claims a place that the adapter would not find.
        if shift > 0 {
            packet.network_offset = 14;
            packet.prepend(4).unwrap();
            let bytes = packet.bytes_mut();
            bytes.copy_within(4..16, 0);
            bytes[12..16].copy_from_slice(&[0x88, 0xa8, 0, 5]);
            packet.checksum_start += 4;
        }
        packets.push(packet);
    }
    let mut batch = Batch::new();
    packets.into_iter().for_each(|packet| batch.push(packet).unwrap());
    stand.port.queue.tx.transmit(&mut batch, &mut stand.pool);
    let sent = stand.sent();
    assert_eq!(sent[0], whole);
    assert_eq!(sent[1][16..], whole[12..]);
}

#[test]
fn urbs_leave_full_under_load_and_at_once_without() {
    let mut stand = Stand::new(model::Options::default(), &Options::default());
    // Nobody takes frames off the wire, so that the FIFO fills and URBs stay in flight.
    stand.side.lock().bench.adapter.set_link(false);
    let frames: Vec<_> = (0..60).map(|_| frame([2; 6], 1514)).collect();
    let before = stand.port.status.sent_transfers.get();
    let link_is_still_up = stand.port.status.facts().link.up;
    assert!(link_is_still_up, "the driver has not looked yet");
    let mut batch = Batch::new();
    for frame in &frames {
        batch.push(Packet::copy_from(frame, &mut stand.pool).unwrap()).unwrap();
    }
    stand.port.queue.tx.transmit(&mut batch, &mut stand.pool);
    // 21 frames in 32 KiB.
    assert_eq!(stand.port.status.sent_transfers.get() - before, 3);
    stand.side.lock().bench.adapter.set_link(true);
    let _ = stand.settle();
    assert_eq!(stand.sent().len(), 60);
    let before = stand.port.status.sent_transfers.get();
    stand.send(&frames[..1]);
    assert_eq!(stand.port.status.sent_transfers.get() - before, 1);
    assert_eq!(stand.sent().len(), 1);
}

#[test]
fn transfers_that_claim_too_much_are_refused_whole() {
    let mut stand = Stand::new(model::Options::default(), &Options::default());
    stand.side.inject(&frame([2; 6], 1000));
    assert_eq!(stand.settle().len(), 1);
    stand.side.lock().bench.adapter.plan(model::Fault::Oversized);
    stand.side.inject(&frame([2; 6], 100));
    stand.side.inject(&frame([2; 6], 101));
    assert_eq!(stand.settle(), [frame([2; 6], 101)]);
    let counters = stand.port.queue.rx.counters();
    // As many as 32 KiB can hold.
    assert_eq!(counters.drops.get(DropReason::DeviceError), 455);
    assert_eq!(stand.port.status.lost_bytes.get(), 32768);
}

#[test]
fn statistics_are_read_when_asked_for() {
    let mut stand = Stand::new(model::Options::default(), &Options::default());
    for _ in 0..5 {
        stand.side.inject(&frame([2; 6], 100));
    }
    let _ = stand.settle();
    stand.port.status.refresh();
    let _ = stand.settle();
    let totals = stand.port.status.facts().statistics.unwrap();
    assert_eq!(totals.get(Statistic::RxUnicast), 5);
}

#[test]
fn a_closed_port_leaves_the_adapter_at_rest_and_open_again_works() {
    let stand = Stand::new(model::Options::default(), &Options::default());
    let Stand { port, side, region, .. } = stand;
    drop(port);
    use polder_devices::lan78xx::regs::{FCT_RX_CTL, MAC_RX, MAC_TX};
    for register in [FCT_RX_CTL, MAC_RX, MAC_TX] {
        assert_eq!(side.lock().bench.adapter.peek(register) & 0x8000_0001, 0, "{}", register.name);
    }
    assert_eq!(region.free_slots(), region.slots());
}
