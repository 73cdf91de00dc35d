//! Receivers of the message that a packet is too big, and their rate limit.

use super::ends;
use crate::frames::{STATIONS, V4, V6, content, other, tcp, v4, v4_of, v6, v6_of};
use crate::oracle::ends::{End, TUNNEL, bytes_of};
use crate::oracle::naive_sum;
use polder_datapath::drops::DropReason;
use polder_datapath::tunnel::TunnelOptions;
use polder_datapath::units::Nanos;

fn strict(options: &mut TunnelOptions) {
    options.dont_fragment = true;
}

/// The messages that frames cause; all of them are too big.
fn replies(end: &mut End, frames: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let before = end.dropped(DropReason::TunnelTooBig);
    let packets = frames.iter().map(|frame| end.packet(frame, &[])).collect();
    let (out, replies) = end.send(packets);
    assert!(out.is_empty());
    assert_eq!(end.dropped(DropReason::TunnelTooBig) - before, frames.len() as u64);
    for reply in &replies {
        assert_eq!((reply.ingress, reply.received_at), (TUNNEL, end.now.0));
        assert_ne!(reply.egress, polder_datapath::drops::DROPPED);
    }
    let bytes = replies.iter().map(bytes_of).collect();
    end.release(replies);
    bytes
}

/// A frame whose IPv4 header is changed and right again.
fn changed(frame: &[u8], at: usize, bytes: &[u8]) -> Vec<u8> {
    let mut frame = frame.to_vec();
    frame[at..at + bytes.len()].copy_from_slice(bytes);
    let checksum = !naive_sum(&[&frame[14..24], &frame[26..34]].concat());
    frame[24..26].copy_from_slice(&checksum.to_be_bytes());
    frame
}

/// RFC 1122, 3.2.2; RFC 4443, 2.4 (e); and who has no say in it.
#[test]
fn who_is_told() {
    let four = v4(&[], 0, 64, true, 1500);
    let six = v6(&[], 0, 64, 1500);
    let icmp = |kind: u8| v4_of(&[], 0, 64, true, 1, &[&[kind, 0][..], &content(1480)].concat());
    let icmpv6 = |kind: u8| v6_of(&[], 0, 64, 58, &[&[kind, 0][..], &content(1450)].concat());
    let address = |at: usize, bytes: &[u8]| {
        let mut frame = six.clone();
        frame[at..at + bytes.len()].copy_from_slice(bytes);
        frame
    };
    let cases = [
        ("IPv4", true, four.clone()),
        ("IPv6", true, six.clone()),
        ("TCP", true, v4_of(&[], 0, 64, true, 6, &tcp(false, 0x10, &[], &content(1460)))),
        ("a ping", true, icmp(8)),
        ("an ICMPv6 echo", true, icmpv6(128)),
        ("may be fragmented", false, changed(&four, 20, &[0])),
        ("not IP", false, other(&[], 1520)),
        ("an ICMP error", false, icmp(3)),
        ("an ICMP that is no error", true, icmp(200)),
        ("an ICMPv6 error", false, icmpv6(2)),
        ("a later fragment", false, changed(&four, 20, &[0x40, 9])),
        ("from nobody", false, changed(&four, 26, &[0; 4])),
        ("from a group", false, changed(&four, 26, &[224, 0, 0, 1])),
        ("to a group", false, changed(&four, 30, &[239, 0, 0, 1])),
        ("to all", false, changed(&four, 30, &[255; 4])),
        ("from a loop", false, changed(&four, 26, &[127, 0, 0, 1])),
        ("to a group's MAC", false, changed(&four, 0, &[1, 0, 0x5e, 0, 0, 1])),
        ("from a group's MAC", false, changed(&four, 6, &[3, 0, 0, 0, 0, 1])),
        ("IPv6 from nobody", false, address(22, &[0; 16])),
        ("IPv6 to a group", false, address(38, &[0xff])),
        ("IPv6 from its loop", false, address(22, &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1])),
        ("cut extension headers", false, v6_of(&[], 0, 64, 60, &[255; 1460])),
    ];
    for (name, is_told, frame) in cases {
        let (mut left, _right) = ends(strict);
        assert_eq!(replies(&mut left, &[frame]).len(), usize::from(is_told), "{name}");
        assert_eq!(left.state.total(|counters| &counters.too_big_reported), u64::from(is_told));
        assert_eq!(left.state.total(|counters| &counters.too_big), 1);
    }
}

/// Another implementation understands the message.
#[test]
fn the_message_is_believed() {
    use smoltcp::wire::{Icmpv4Message, Icmpv4Packet, Icmpv6Message, Icmpv6Packet, Ipv4Packet, Ipv6Packet};
    let (mut left, _right) = ends(strict);
    let told = replies(&mut left, &[v4(&[7], 0, 64, true, 1500), v6(&[], 0, 64, 1500)]);
    let (four, six) = (&told[0], &told[1]);
    assert_eq!(four[..18], [&STATIONS[0][..], &STATIONS[1], &[0x81, 0, 0, 7, 8, 0]].concat());
    let ip = Ipv4Packet::new_checked(&four[18..]).expect("IPv4");
    assert!(ip.verify_checksum() && ip.src_addr().octets() == V4[1] && ip.dst_addr().octets() == V4[0]);
    let icmp = Icmpv4Packet::new_checked(ip.payload()).expect("ICMP");
    assert!(icmp.verify_checksum());
    assert_eq!((icmp.msg_type(), icmp.msg_code()), (Icmpv4Message::DstUnreachable, 4));
    assert_eq!(ip.payload()[6..8], 1458_u16.to_be_bytes(), "1500 without 24, 14 and a tag");
    let ip = Ipv6Packet::new_checked(&six[14..]).expect("IPv6");
    assert!(ip.src_addr().octets() == V6[1] && ip.dst_addr().octets() == V6[0]);
    let icmp = Icmpv6Packet::new_checked(ip.payload()).expect("ICMPv6");
    assert!(icmp.verify_checksum(&ip.src_addr(), &ip.dst_addr()));
    assert_eq!((icmp.msg_type(), icmp.pkt_too_big_mtu()), (Icmpv6Message::PktTooBig, 1462));
}

/// A chain is quoted across its frames.
#[test]
fn a_chain_is_quoted() {
    let (mut left, _right) = ends(strict);
    let frame = v6(&[], 0, 64, 4000);
    let packet = left.packet(&frame, &[100, 50, 700]);
    let (_, replies) = left.send(vec![packet]);
    let reply = bytes_of(&replies[0]);
    assert!(reply[62..] == frame[14..14 + 1232]);
    left.release(replies);
}

/// IPv6 below 1280 bytes is not there for its hosts: nobody is told what nobody would believe.
#[test]
fn a_path_too_narrow_for_ipv6() {
    let (mut left, _right) = ends(strict);
    left.state.next_hop.set_path_mtu(Some(1300));
    assert!(replies(&mut left, &[v6(&[], 0, 64, 1280)]).is_empty());
    // A tunnel that may cut carries it all the same (RFC 8200, 5), and asks nobody for less.
    let (mut left, _right) = ends(|_| {});
    left.state.next_hop.set_path_mtu(Some(1300));
    assert_eq!(super::send(&mut left, &[v6(&[], 0, 64, 1280)]).len(), 2);
    let told = replies(&mut left, &[v6(&[], 0, 64, 1281)]);
    assert_eq!(told[0][58..62], 1280_u32.to_be_bytes());
}

/// Fifty at once, then one a millisecond.
#[test]
fn the_rate_is_limited() {
    let (mut left, _right) = ends(strict);
    let frames = vec![v4(&[], 0, 64, true, 1500); 60];
    assert_eq!(replies(&mut left, &frames).len(), 50);
    assert_eq!(left.state.total(|counters| &counters.too_big_silenced), 10);
    assert_eq!(replies(&mut left, &frames[..1]).len(), 0);
    left.now = left.now + Nanos::from_millis(3);
    assert_eq!(replies(&mut left, &frames[..9]).len(), 3);
    left.now = left.now + Nanos::SECOND;
    assert_eq!(replies(&mut left, &frames).len(), 50, "no more than fifty are saved");
}

/// Without memory no message is sent, and the packet is dropped all the same.
#[test]
fn no_memory_no_message() {
    let (mut left, _right) = ends(strict);
    let packet = left.packet(&v4(&[], 0, 64, true, 1500), &[]);
    let hoard = std::iter::from_fn(|| left.pool.take()).collect::<Vec<_>>();
    let (out, told) = left.send(vec![packet]);
    assert!(out.is_empty() && told.is_empty());
    assert_eq!(left.dropped(DropReason::TunnelTooBig), 1);
    assert_eq!(left.state.total(|counters| &counters.too_big_silenced), 1);
    hoard.into_iter().for_each(|frame| left.pool.release_frame(frame));
}
