//! The model by hand: what the kernel's driver does not ask, or cannot see.

use crate::hand::{Hand, frame, frames};
use polder_datapath::units::Nanos;
use polder_datapath::wire::{Checksum, IpProtocol, Ipv4, Ipv4Header, Tcp, TrafficClass};
use polder_devices::lan78xx::frame::{TxCommand, rx_a, tx_a};
use polder_devices::lan78xx::model::{AddressSource, Fault, Options, Partner, Timing};
use polder_devices::lan78xx::regs::{
    BMSR, BURST_CAP, DP_ADDR, DP_CMD, DP_DATA, DP_SEL, E2P_CMD, E2P_DATA, FCT_FLOW, FCT_RX_CTL, FLOW, HW_CFG,
    ID_REV, INT_STS, OTP_ADDR1, OTP_ADDR2, OTP_CMD_GO, OTP_FUNC_CMD, OTP_PWR_DN, OTP_RD_DATA, OTP_STATUS,
    PHY_ID1, PHY_ID2, PHY_INTERRUPT_MASK, PHY_INTERRUPT_STATUS, RFE_CTL, RX_ADDRH, RX_ADDRL, STATUS_1000,
    bmsr, dp_sel, e2p_cmd, fct, flow, gigabit, hw_cfg, int_sts, phy_interrupt, rfe_ctl,
};
use polder_devices::lan78xx::statistics::Statistic;
use polder_devices::usb::{Setup, Speed, Status};
use std::net::Ipv4Addr;

const BROADCAST: [u8; 6] = [0xff; 6];

fn us() -> [u8; 6] {
    Options::default().mac
}

#[test]
fn it_says_what_it_is_and_where_its_address_is() {
    let mut hand = Hand::new(Options { address: AddressSource::Otp, ..Options::default() });
    assert_eq!(hand.read(ID_REV), 0x7800_0002);
    assert_eq!((hand.read(RX_ADDRL), hand.read(RX_ADDRH)), (u32::MAX, 0xffff));
    hand.write(E2P_CMD, e2p_cmd::BUSY);
    let answer = hand.read(E2P_CMD);
    assert_eq!((answer & e2p_cmd::BUSY, answer & e2p_cmd::TIMEOUT), (0, e2p_cmd::TIMEOUT));
    hand.write(OTP_PWR_DN, 0);
    let mut byte = |address: u32| {
        hand.write(OTP_ADDR1, address >> 8);
        hand.write(OTP_ADDR2, address & 0xff);
        hand.write(OTP_FUNC_CMD, 1);
        hand.write(OTP_CMD_GO, 1);
        assert_eq!(hand.read(OTP_STATUS) & 1, 0);
        hand.read(OTP_RD_DATA)
    };
    assert_eq!(byte(0), 0xf3);
    assert_eq!((1..7).map(byte).collect::<Vec<_>>(), us().map(u32::from));

    let mut hand = Hand::new(Options::default());
    hand.write(E2P_CMD, e2p_cmd::BUSY | 3);
    assert_ne!(hand.read(E2P_CMD) & e2p_cmd::TIMEOUT, 0, "the LEDs have its pins");
    hand.write(HW_CFG, 0);
    hand.write(E2P_CMD, e2p_cmd::BUSY | 3);
    assert_eq!(hand.read(E2P_CMD) & e2p_cmd::TIMEOUT, 0);
    assert_eq!(hand.read(E2P_DATA), u32::from(us()[2]));
    let mut hand = Hand::new(Options { address: AddressSource::Registers, ..Options::default() });
    assert_eq!(hand.read(RX_ADDRL).to_le_bytes(), us()[..4]);
}

#[test]
fn the_phy_answers_at_its_address_and_loss_of_link_is_latched() {
    let mut hand = Hand::new(Options::default());
    assert_eq!((hand.phy(1, PHY_ID1), hand.phy(1, PHY_ID2), hand.phy(0, PHY_ID1)), (7, 0xc132, 0xffff));
    let _ = hand.phy(1, BMSR);
    assert_ne!(hand.phy(1, BMSR) & bmsr::LINK, 0);
    assert_ne!(hand.phy(1, STATUS_1000) & gigabit::PARTNER_FULL, 0);
    hand.adapter.set_link(false);
    hand.adapter.set_link(true);
    hand.adapter.advance(Nanos(2));
    assert_eq!(hand.phy(1, BMSR) & bmsr::LINK, 0, "seen once, though the link is back");
    assert_ne!(hand.phy(1, BMSR) & bmsr::LINK, 0);
}

#[test]
fn an_interrupt_comes_once_for_each_assertion() {
    let mut hand = Hand::ready(Options::default());
    hand.write_phy(1, PHY_INTERRUPT_MASK, phy_interrupt::ENABLE | phy_interrupt::LINK);
    let urb = hand.listen();
    assert!(hand.ended().is_empty(), "nothing to report");
    hand.adapter.set_link(false);
    let done = hand.ended();
    assert_eq!((done.len(), done[0].urb.id, done[0].received()), (1, urb, &[0, 0, 2, 0][..]));
    let _ = hand.listen();
    assert!(hand.ended().is_empty(), "the same assertion");
    assert_eq!(hand.read(INT_STS) & int_sts::PHY, int_sts::PHY);
    assert_eq!(hand.phy(1, PHY_INTERRUPT_STATUS), phy_interrupt::LINK);
    assert_eq!(hand.read(INT_STS) & int_sts::PHY, 0, "reading the cause ends it");
    hand.adapter.set_link(true);
    assert_eq!(hand.ended().len(), 1);
}

#[test]
fn frames_are_filtered_by_address_and_vlan() {
    let mut hand = Hand::ready(Options::default());
    let group = [0x01, 0, 0x5e, 0, 0, 0xfb];
    let accepted = |hand: &mut Hand, destination: [u8; 6]| {
        let _ = hand.offer(16384);
        hand.arrive(&frame(destination, 60));
        let done = hand.ended();
        let bits = done.first().map(|done| frames(done)[0].0.a & 0x0700_0000);
        if done.is_empty() {
            // The URB is still pending; take it back for the next one.
            hand.adapter.unplug();
            *hand = Hand::ready(Options::default());
        }
        bits
    };
    assert_eq!(accepted(&mut hand, us()), Some(rx_a::PERFECT));
    assert_eq!(accepted(&mut hand, BROADCAST), Some(rx_a::BROADCAST));
    assert_eq!(accepted(&mut hand, group), None);
    assert_eq!(accepted(&mut hand, [2, 0, 0, 0, 0, 1]), None);
    let rfe = hand.read(RFE_CTL);
    hand.write(RFE_CTL, rfe | rfe_ctl::ALL_MULTICAST | rfe_ctl::ALL_UNICAST);
    assert_eq!(accepted(&mut hand, group), Some(rx_a::MULTICAST));
    assert_eq!(accepted(&mut hand, [2, 0, 0, 0, 0, 1]), Some(0));
    // Multicast by hash: the kernel's own bit for this group.
    hand.write(RFE_CTL, rfe | rfe_ctl::MULTICAST_HASH);
    let bit = crc_bit(group);
    hand.write(DP_SEL, dp_sel::VLAN_DA);
    hand.write(DP_ADDR, 128 + bit / 32);
    hand.write(DP_DATA, 1 << (bit % 32));
    hand.write(DP_CMD, 1);
    assert_eq!(accepted(&mut hand, group), Some(rx_a::MULTICAST));
    // VLANs: a tag of a VLAN that is not in the filter is refused.
    hand.write(RFE_CTL, rfe | rfe_ctl::VLAN_FILTER);
    let mut tagged = frame(us(), 64);
    tagged.splice(12..12, [0x81, 0, 0x20, 7]);
    hand.arrive(&tagged);
    assert!(hand.ended().is_empty());
    hand.write(DP_ADDR, 0);
    hand.write(DP_DATA, 1 << 7);
    hand.write(DP_CMD, 1);
    let _ = hand.offer(16384);
    hand.arrive(&tagged);
    let (status, bytes) = frames(&hand.ended()[0]).remove(0);
    assert_eq!((status.vlan(), bytes), (Some(0x2007), frame(us(), 64)));
}

/// Bit by bit, as IEEE 802.3 writes it: the first nine bits of the sum, without complement.
fn crc_bit(address: [u8; 6]) -> u32 {
    let mut crc = u32::MAX;
    for byte in address {
        for bit in 0..8 {
            let feedback = (crc >> 31) ^ u32::from(byte >> bit & 1);
            crc = crc << 1 ^ if feedback == 1 { 0x04c1_1db7 } else { 0 };
        }
    }
    crc >> 23
}

#[test]
fn short_frames_are_padded_and_summed_with_their_padding() {
    let mut hand = Hand::ready(Options::default());
    for length in [14, 15, 42, 59, 60, 61, 333] {
        let _ = hand.offer(16384);
        let sent = frame(us(), length);
        hand.arrive(&sent);
        let (status, bytes) = frames(&hand.ended()[0]).remove(0);
        assert_eq!(bytes.len(), length.max(60));
        assert_eq!(bytes[..length], sent);
        assert_eq!(status.checksum(), Some(Checksum::new().with(&bytes[14..]).partial()));
    }
    assert_eq!(hand.adapter.statistics().get(Statistic::Rx64), 5);
}

#[test]
fn the_fifo_overflows_without_urbs_and_counts() {
    let mut hand = Hand::ready(Options::default());
    let sent: Vec<_> = (0..20).map(|_| frame(us(), 1000)).collect();
    for frame in &sent {
        hand.arrive(frame);
    }
    // 12 KiB hold twelve frames of 10 + 1004 bytes.
    assert_eq!(hand.adapter.statistics().get(Statistic::RxDropped), 8);
    assert_ne!(hand.read(FCT_RX_CTL) & fct::OVERFLOW, 0);
    let _ = hand.offer(16384);
    assert_eq!(frames(&hand.ended()[0]).len(), 12);
}

#[test]
fn transfers_end_at_the_burst_cap_and_at_the_urb() {
    let mut hand = Hand::ready(Options { speed: Speed::High, ..Options::default() });
    hand.write(BURST_CAP, 4);
    for _ in 0..6 {
        hand.arrive(&frame(us(), 600));
    }
    for length in [16384, 1024, 1024, 700] {
        let _ = hand.offer(length);
    }
    // The cap is 4 × 512 bytes; the third URB has room for one frame, as the last one.
    let counts: Vec<_> = hand.ended().iter().map(|done| frames(done).len()).collect();
    assert_eq!(counts, [3, 1, 1, 1]);
}

#[test]
fn cancelled_transfers_end_at_once_and_once() {
    let mut hand = Hand::ready(Options::default());
    let (first, second) = (hand.offer(16384), hand.offer(16384));
    assert!(hand.adapter.cancel(first));
    assert!(!hand.adapter.cancel(first));
    hand.arrive(&frame(us(), 100));
    let done: Vec<_> = hand.ended().iter().map(|done| (done.urb.id, done.status)).collect();
    assert_eq!(done, [(first, Status::Cancelled), (second, Status::Done)]);
    assert!(!hand.adapter.cancel(second), "it has ended");
    let last = hand.offer(16384);
    hand.adapter.unplug();
    let done: Vec<_> = hand.ended().iter().map(|done| (done.urb.id, done.status)).collect();
    assert_eq!(done, [(last, Status::Gone)]);
    let late = hand.offer(16384);
    assert_eq!(hand.ended().iter().map(|done| (done.urb.id, done.status)).next(), Some((late, Status::Gone)));
}

#[test]
fn a_halted_endpoint_stalls_until_it_is_cleared() {
    let mut hand = Hand::ready(Options::default());
    hand.adapter.plan(Fault::StallIn);
    let _ = (hand.offer(16384), hand.offer(16384));
    assert!(hand.ended().iter().all(|done| done.status == Status::Stall));
    hand.arrive(&frame(us(), 100));
    let clear = Setup { kind: 2, request: 1, value: 0, index: 0x81, length: 0 };
    assert_eq!(hand.control(clear, &[]).0, Status::Done);
    let _ = hand.offer(16384);
    assert_eq!(frames(&hand.ended()[0]).len(), 1);
}

#[test]
fn frames_leave_in_order_padded_with_tags_inserted() {
    let mut hand = Hand::ready(Options::default());
    let sizes = [14, 60, 61, 62, 63, 1514];
    let sent: Vec<_> = sizes.iter().map(|&size| frame(BROADCAST, size)).collect();
    let packed: Vec<_> =
        sent.iter().map(|frame| (TxCommand::plain(frame.len()).unwrap(), frame.as_slice())).collect();
    let urb = hand.send(&packed);
    let left = hand.left();
    assert_eq!(left.len(), sizes.len());
    for (left, sent) in left.iter().zip(&sent) {
        assert_eq!(left[..sent.len()], sent[..]);
        assert_eq!(left.len(), sent.len().max(60));
    }
    let done = hand.ended();
    assert_eq!((done[0].urb.id, done[0].status), (urb, Status::Done));
    let command = TxCommand::plain(100).unwrap();
    let command = TxCommand { a: command.a | tx_a::VLAN, b: 0x6007 };
    let _ = hand.send(&[(command, &frame(us(), 100))]);
    assert_eq!(hand.left()[0][12..16], [0x81, 0, 0x60, 7]);
}

#[test]
fn the_transmit_fifo_holds_urbs_back() {
    let mut hand = Hand::ready(Options {
        partner: Partner { cable: false, ..Partner::default() },
        ..Options::default()
    });
    let frame = frame(us(), 1500);
    for _ in 0..10 {
        let _ = hand.send(&[(TxCommand::plain(1500).unwrap(), &frame)]);
    }
    // Eight frames of 8 + 1500 bytes fit 12 KiB.
    assert_eq!(hand.ended().len(), 8);
    hand.adapter.set_link(true);
    hand.adapter.advance(Nanos(2));
    assert_eq!((hand.left().len(), hand.ended().len()), (10, 2));
}

fn tcp_frame(payload: usize) -> Vec<u8> {
    let mut frame = frame(us(), 14);
    frame[12..14].copy_from_slice(&[8, 0]);
    let mut packet = vec![0; 20 + 20 + payload];
    let header = Ipv4Header {
        source: Ipv4Addr::new(192, 0, 2, 1),
        destination: Ipv4Addr::new(192, 0, 2, 2),
        protocol: IpProtocol::TCP,
        traffic_class: TrafficClass(0),
        identification: 0xfffe,
        dont_fragment: true,
        time_to_live: 64,
        total_length: u16::try_from(40 + payload).unwrap(),
        more_fragments: false,
        fragment_offset: 0,
    };
    header.emit(&mut packet).unwrap();
    let tcp = &mut packet[20..];
    tcp[4..8].copy_from_slice(&0xffff_ff00_u32.to_be_bytes());
    tcp[12] = 0x50;
    // CWR, PSH, ACK, FIN.
    tcp[13] = 0x99;
    tcp.iter_mut().skip(20).enumerate().for_each(|(at, byte)| *byte = u8::try_from(at % 253).unwrap());
    frame.extend(packet);
    frame
}

#[test]
fn checksums_are_written_and_large_packets_cut() {
    let mut hand = Hand::ready(Options::default());
    let whole = tcp_frame(3000);
    let command = TxCommand::plain(whole.len()).unwrap();
    let bits = tx_a::SEGMENT | tx_a::TRANSPORT_CHECKSUM | tx_a::IP_CHECKSUM;
    let _ = hand.send(&[(TxCommand { a: command.a | bits, b: 1400 << 16 }, &whole)]);
    let left = hand.left();
    assert_eq!(left.len(), 3);
    let mut payload = Vec::new();
    for (index, segment) in left.iter().enumerate() {
        let ip = Ipv4::parse(&segment[14..]).unwrap();
        ip.verify().unwrap();
        let tcp = Tcp::parse(ip.payload()).unwrap();
        tcp.verify(ip.pseudo()).unwrap();
        assert_eq!(tcp.sequence(), 0xffff_ff00_u32.wrapping_add(u32::try_from(payload.len()).unwrap()));
        assert_eq!(ip.identification(), 0xfffe_u16.wrapping_add(u16::try_from(index).unwrap()));
        let flags = ip.payload()[13];
        assert_eq!(flags, [0x90, 0x10, 0x19][index]);
        payload.extend_from_slice(tcp.payload());
    }
    assert_eq!(payload, whole[54..]);
}

#[test]
fn pause_frames_hold_back_both_sides() {
    let partner = Partner { pause: true, ..Partner::default() };
    let mut hand = Hand::ready(Options { partner, ..Options::default() });
    hand.write(FCT_FLOW, 0x0817);
    hand.write(FLOW, flow::TRANSMIT | flow::RECEIVE | 0xffff);
    for _ in 0..12 {
        hand.arrive(&frame(us(), 1000));
    }
    assert!(hand.adapter.holds_partner());
    let _ = hand.offer(16384);
    let _ = hand.ended();
    assert!(!hand.adapter.holds_partner());
    assert_eq!(hand.adapter.statistics().get(Statistic::TxPause), 2);
    let mut pause = frame([1, 0x80, 0xc2, 0, 0, 1], 60);
    pause[12..18].copy_from_slice(&[0x88, 8, 0, 1, 0, 100]);
    hand.arrive(&pause);
    let _ = hand.send(&[(TxCommand::plain(60).unwrap(), &frame(us(), 60))]);
    assert!(hand.left().is_empty(), "100 × 512 bit times have not passed");
    hand.adapter.advance(Nanos(100 * 512 + 100));
    assert!(hand.adapter.wire_out().is_some());
}

#[test]
fn on_a_paced_wire_frames_take_their_time() {
    let mut hand = Hand::ready(Options { timing: Timing::real(Speed::Super), ..Options::default() });
    let _ = hand.offer(16384);
    // 1000 + 4 + 20 bytes at 1 Gbit/s.
    assert!(hand.adapter.wire_in(&frame(us(), 1000), Nanos(1000)));
    assert_eq!(hand.adapter.wire_free_at(), Nanos(1000 + 8192));
    assert!(hand.adapter.complete().is_none());
    let due = hand.adapter.next_event().expect("the bus moves the frame");
    hand.adapter.advance(due);
    assert!(hand.adapter.complete().is_some(), "without a delay in BULK_IN_DLY the transfer ends");
    let frame = frame(us(), 1500);
    let start = due + Nanos(200_000);
    hand.adapter.advance(start);
    let _ =
        hand.send(&[(TxCommand::plain(1500).unwrap(), &frame), (TxCommand::plain(1500).unwrap(), &frame)]);
    let mut left = 0;
    let mut now = start;
    while left < 2 {
        now = now + Nanos(100);
        hand.adapter.advance(now);
        left += usize::from(hand.adapter.wire_out().is_some());
        assert!(now < start + Nanos(40_000), "two frames take 24 µs");
    }
    assert!(now > start + Nanos(2 * 12_192 - 200));
}

#[test]
fn reset_forgets_everything_but_the_bus() {
    let mut hand = Hand::ready(Options::default());
    let urb = hand.offer(16384);
    hand.write(HW_CFG, hw_cfg::MULTIPLE_FRAMES | hw_cfg::LITE_RESET);
    assert_eq!((hand.read(HW_CFG), hand.read(RFE_CTL)), (hw_cfg::LEDS_OF_EEPROM, 0));
    assert!(hand.adapter.cancel(urb), "URBs belong to the host");
}
