//! Oracles for IPv4 and IPv6, and their payloads.

use super::{naive_pseudo_sum, naive_sum, tcp::segment};
use etherparse::{
    Icmpv4Slice, Icmpv6Slice, IpNumber, Ipv4HeaderSlice, Ipv6ExtensionSlice, Ipv6ExtensionsSlice,
    Ipv6HeaderSlice, UdpSlice,
};
use polder_datapath::drops::DropReason;
use polder_datapath::wire::{
    Ecn, Icmp, IcmpHeader, Icmpv6, IpProtocol, Ipv4, Ipv4Header, Ipv4Mut, Ipv6, Ipv6Header, Ipv6Mut, Pseudo,
    TrafficClass, Udp, UdpHeader, Upper,
};
use smoltcp::wire::{Icmpv4Packet, Ipv4Packet, Ipv6FragmentHeader, Ipv6Packet, UdpPacket};

/// An IPv4 packet.
pub(crate) fn ipv4(bytes: &[u8]) {
    let ours = Ipv4::parse(bytes);
    // Differs: smoltcp asks for the version in a second step.
    let smoltcp = Ipv4Packet::new_checked(bytes).ok().filter(|packet| packet.version() == 4);
    assert_eq!(ours.is_ok(), smoltcp.is_some());
    let etherparse = Ipv4HeaderSlice::from_slice(bytes);
    let (Ok(ours), Some(smoltcp)) = (ours, smoltcp) else {
        // Differs: etherparse's header does not compare the total length with anything.
        let total = etherparse.map(|header| (usize::from(header.total_len()), header.slice().len()));
        assert!(total.is_err() || total.is_ok_and(|(total, header)| total < header || total > bytes.len()));
        return;
    };
    let etherparse = etherparse.expect("smoltcp takes it");
    assert_eq!(ours.options(), etherparse.options());
    assert_eq!(ours.header_bytes(), etherparse.slice().len());
    assert_eq!(ours.payload(), smoltcp.payload());
    assert_eq!(ours.total_length(), smoltcp.total_len());
    assert_eq!(ours.traffic_class().dscp().get(), smoltcp.dscp());
    assert_eq!(ours.traffic_class().ecn().bits(), smoltcp.ecn());
    assert_eq!(ours.identification(), smoltcp.ident());
    assert_eq!(ours.dont_fragment(), smoltcp.dont_frag());
    assert_eq!(ours.more_fragments(), smoltcp.more_frags());
    assert_eq!(ours.fragment_offset(), smoltcp.frag_offset());
    assert_eq!(ours.is_fragment(), etherparse.is_fragmenting_payload());
    assert_eq!(ours.time_to_live(), smoltcp.hop_limit());
    assert_eq!(ours.protocol().0, u8::from(smoltcp.next_header()));
    assert_eq!(ours.checksum(), smoltcp.checksum());
    assert_eq!((ours.source(), ours.destination()), (smoltcp.src_addr(), smoltcp.dst_addr()));
    assert_eq!(ours.verify().is_ok(), naive_sum(&bytes[..ours.header_bytes()]) == 0xffff);

    ipv4_head(ours, bytes);
    ipv4_emit_again(ours, bytes);
    ipv4_change(ours, bytes);
    if !ours.is_fragment() {
        carried(ours.protocol(), ours.pseudo(), ours.payload());
    }
}

/// Any part that holds the header is enough, when the whole length is known.
fn ipv4_head(ours: Ipv4<'_>, bytes: &[u8]) {
    let cut = usize::from(ours.identification()) % (bytes.len() + 1);
    let head = Ipv4::parse_head(&bytes[..cut], bytes.len());
    assert_eq!(head.is_ok(), cut >= ours.header_bytes());
    if let Ok(head) = head {
        assert_eq!(head.payload(), &ours.payload()[..(cut - ours.header_bytes()).min(ours.payload().len())]);
    }
}

fn ipv4_emit_again(ours: Ipv4<'_>, bytes: &[u8]) {
    let header = Ipv4Header {
        traffic_class: ours.traffic_class(),
        total_length: ours.total_length(),
        identification: ours.identification(),
        dont_fragment: ours.dont_fragment(),
        more_fragments: ours.more_fragments(),
        fragment_offset: ours.fragment_offset(),
        time_to_live: ours.time_to_live(),
        protocol: ours.protocol(),
        source: ours.source(),
        destination: ours.destination(),
    };
    let mut copy = [0; Ipv4::HEADER_BYTES];
    assert_eq!(header.emit(&mut copy).map(|rest| rest.len()), Ok(0));
    assert_eq!(naive_sum(&copy), 0xffff);
    // Ours has neither options nor the reserved flag; nothing else but the checksum differs.
    let mut expected = [0; Ipv4::HEADER_BYTES];
    expected.copy_from_slice(&bytes[..Ipv4::HEADER_BYTES]);
    expected[0] = 0x45;
    expected[6] &= 0x7f;
    expected[10..12].copy_from_slice(&copy[10..12]);
    assert_eq!(copy, expected);
    assert!(header.emit(&mut copy[1..]).is_err());
}

/// Changes in place reach their fields, and leave a right checksum right and a wrong one wrong.
fn ipv4_change(ours: Ipv4<'_>, bytes: &[u8]) {
    let class = TrafficClass(ours.traffic_class().0.rotate_left(3) ^ 0x5a).with_ecn(Ecn::Congestion);
    let identification = ours.identification().wrapping_mul(31).wrapping_add(1);
    let time_to_live = ours.time_to_live().wrapping_sub(1);
    let mut changed = bytes.to_vec();
    let mut header = Ipv4Mut::parse(&mut changed).expect("parsed before");
    header.set_traffic_class(class);
    header.set_identification(identification);
    header.set_time_to_live(time_to_live);
    let after = Ipv4::parse(&changed).expect("no length has changed");
    assert_eq!((after.traffic_class(), after.identification()), (class, identification));
    assert_eq!((after.time_to_live(), after.protocol()), (time_to_live, ours.protocol()));
    assert_eq!(after.verify(), ours.verify());
    assert_eq!(changed[12..], bytes[12..]);

    let header_bytes = u16::try_from(ours.header_bytes()).expect("at most 60");
    Ipv4Mut::parse(&mut changed).expect("parsed before").set_total_length(header_bytes);
    let after = Ipv4::parse(&changed).expect("a header alone");
    assert_eq!((after.payload(), after.verify()), (&[][..], ours.verify()));
}

/// An IPv6 packet.
pub(crate) fn ipv6(bytes: &[u8]) {
    let ours = Ipv6::parse(bytes);
    // Differs: smoltcp asks for the version in a second step.
    let smoltcp = Ipv6Packet::new_checked(bytes).ok().filter(|packet| packet.version() == 6);
    assert_eq!(ours.is_ok(), smoltcp.is_some());
    let (Ok(ours), Some(smoltcp)) = (ours, smoltcp) else { return };
    let etherparse = Ipv6HeaderSlice::from_slice(bytes).expect("smoltcp takes it");
    assert_eq!(ours.traffic_class().0, etherparse.traffic_class());
    assert_eq!(ours.flow_label(), etherparse.flow_label().value());
    assert_eq!(ours.payload_length(), etherparse.payload_length());
    assert_eq!(ours.next_header().0, etherparse.next_header().0);
    assert_eq!(ours.hop_limit(), etherparse.hop_limit());
    assert_eq!((ours.source(), ours.destination()), (smoltcp.src_addr(), smoltcp.dst_addr()));
    assert_eq!(ours.payload(), smoltcp.payload());

    ipv6_head(ours, bytes);
    ipv6_emit_again(ours, bytes);
    ipv6_change(ours, bytes);
    let upper = ours.upper();
    extensions(ours, upper);
    let Ok(upper) = upper else { return };
    assert_eq!(&bytes[upper.offset..][..upper.payload.len()], upper.payload);
    if upper.fragment.is_none() {
        carried(upper.protocol, ours.pseudo(), upper.payload);
    }
}

fn ipv6_head(ours: Ipv6<'_>, bytes: &[u8]) {
    let [low, high] = ours.payload_length().to_le_bytes();
    let cut = (usize::from(low) * 7 + usize::from(high)) % (bytes.len() + 1);
    let head = Ipv6::parse_head(&bytes[..cut], bytes.len());
    assert_eq!(head.is_ok(), cut >= Ipv6::HEADER_BYTES);
    if let Ok(head) = head {
        assert_eq!(head.payload(), &ours.payload()[..(cut - Ipv6::HEADER_BYTES).min(ours.payload().len())]);
        // A part leads to the same protocol as the whole, or to a refusal.
        if let Ok(upper) = head.upper() {
            let whole = ours.upper().expect("the whole has the same headers");
            assert_eq!(
                (upper.protocol, upper.offset, upper.fragment),
                (whole.protocol, whole.offset, whole.fragment)
            );
        }
    }
}

fn ipv6_emit_again(ours: Ipv6<'_>, bytes: &[u8]) {
    let header = Ipv6Header {
        traffic_class: ours.traffic_class(),
        flow_label: ours.flow_label(),
        payload_length: ours.payload_length(),
        next_header: ours.next_header(),
        hop_limit: ours.hop_limit(),
        source: ours.source(),
        destination: ours.destination(),
    };
    let mut copy = [0; Ipv6::HEADER_BYTES];
    assert_eq!(header.emit(&mut copy).map(|rest| rest.len()), Ok(0));
    assert_eq!(copy[..], bytes[..Ipv6::HEADER_BYTES]);
    assert!(header.emit(&mut copy[1..]).is_err());
}

fn ipv6_change(ours: Ipv6<'_>, bytes: &[u8]) {
    let class = TrafficClass(ours.traffic_class().0.rotate_left(3) ^ 0x5a);
    let mut changed = bytes.to_vec();
    let mut header = Ipv6Mut::parse(&mut changed).expect("parsed before");
    header.set_traffic_class(class);
    header.set_hop_limit(ours.hop_limit().wrapping_sub(1));
    let after = Ipv6::parse(&changed).expect("no length has changed");
    assert_eq!((after.traffic_class(), after.flow_label()), (class, ours.flow_label()));
    assert_eq!(after.hop_limit(), ours.hop_limit().wrapping_sub(1));
    assert_eq!(changed[8..], bytes[8..]);
    assert_eq!(changed[4..7], bytes[4..7]);
}

/// etherparse walks over any number of extension headers, and on behind a later fragment's header.
fn extensions(ours: Ipv6<'_>, upper: Result<Upper<'_>, DropReason>) {
    let etherparse = Ipv6ExtensionsSlice::from_slice(IpNumber(ours.next_header().0), ours.payload());
    match (upper, etherparse) {
        (Ok(upper), Ok((walked, protocol, rest))) if upper.has_header() => {
            assert_eq!((upper.protocol.0, upper.payload), (protocol.0, rest));
            let is_fragment = |header: &_| matches!(header, Ipv6ExtensionSlice::Fragment(_));
            let headers = walked.clone().into_iter().filter(is_fragment).count();
            assert_eq!(upper.fragment.is_some(), headers > 0);
            // Differs: of several fragment headers this one tells the last, etherparse asks them all.
            if headers < 2 {
                let more = upper.fragment.is_some_and(|fragment| fragment.more);
                assert_eq!(walked.is_fragmenting_payload(), more);
            }
        }
        (Ok(upper), _) if !upper.has_header() => {
            // Differs: behind a later fragment's header is no header, and etherparse looks for one.
            let start = upper.offset - Ipv6::HEADER_BYTES - 8;
            let smoltcp = Ipv6FragmentHeader::new_checked(&ours.payload()[start + 2..]);
            let last = upper.fragment.expect("a fragment has no header");
            // smoltcp's view starts behind next header and length.
            let smoltcp = smoltcp.expect("six bytes");
            assert_eq!(last.offset, smoltcp.frag_offset() * 8);
            assert_eq!((last.more, last.identification), (smoltcp.more_frags(), smoltcp.ident()));
        }
        (Ok(upper), Err(error)) => unreachable!("{upper:?}, but etherparse: {error}"),
        (Ok(upper), Ok(_)) => unreachable!("{upper:?} has a header and has none"),
        // Differs: RFC 8504, 5.3 allows a limit; etherparse has none.
        (Err(_), Ok((walked, _, _))) => assert!(walked.into_iter().count() > 8),
        (Err(refusal), Err(_)) => assert_eq!(refusal, DropReason::Ipv6BadExtension),
    }
}

/// The protocol that an IP packet carries.
fn carried(protocol: IpProtocol, pseudo: Pseudo, bytes: &[u8]) {
    match protocol {
        IpProtocol::UDP => udp(pseudo, bytes),
        IpProtocol::TCP => segment(pseudo, bytes, 1200),
        IpProtocol::ICMP => icmp(bytes),
        IpProtocol::ICMPV6 => icmpv6(pseudo, bytes),
        IpProtocol::GRE => super::gre(bytes),
        _ => {}
    }
}

/// The one's complement sum over pseudo-header and message, 0xffff when it is intact.
pub(crate) fn reference_sum(pseudo: Pseudo, protocol: IpProtocol, message: &[u8]) -> u16 {
    match pseudo {
        Pseudo::V4 { source, destination } => {
            naive_pseudo_sum(&source.octets(), &destination.octets(), protocol.0, message)
        }
        Pseudo::V6 { source, destination } => {
            naive_pseudo_sum(&source.octets(), &destination.octets(), protocol.0, message)
        }
    }
}

fn udp(pseudo: Pseudo, bytes: &[u8]) {
    let ours = Udp::parse(bytes);
    let smoltcp = UdpPacket::new_checked(bytes);
    let etherparse = UdpSlice::from_slice(bytes);
    assert_eq!(ours.is_ok(), smoltcp.is_ok());
    // Differs: etherparse takes a length of 0 for "to the end", as jumbograms have it.
    assert_eq!(ours.is_ok(), etherparse.is_ok_and(|datagram| datagram.length() != 0));
    let (Ok(ours), Ok(smoltcp)) = (ours, smoltcp) else { return };
    assert_eq!((ours.source_port(), ours.destination_port()), (smoltcp.src_port(), smoltcp.dst_port()));
    assert_eq!((ours.length(), ours.checksum()), (smoltcp.len(), smoltcp.checksum()));
    assert_eq!(ours.payload(), smoltcp.payload());
    let datagram = &bytes[..usize::from(ours.length())];
    let right = match (ours.checksum(), pseudo) {
        (0, Pseudo::V4 { .. }) => true,
        (0, Pseudo::V6 { .. }) => false,
        _ => reference_sum(pseudo, IpProtocol::UDP, datagram) == 0xffff,
    };
    assert_eq!(ours.verify(pseudo).is_ok(), right);

    let header = UdpHeader { source_port: ours.source_port(), destination_port: ours.destination_port() };
    let mut copy = datagram.to_vec();
    assert_eq!(header.emit(&mut copy, Some(pseudo)).map(|payload| &*payload), Ok(ours.payload()));
    let again = Udp::parse(&copy).expect("a datagram of ours");
    assert!(again.checksum() != 0 && again.verify(pseudo).is_ok());
    assert_eq!(reference_sum(pseudo, IpProtocol::UDP, &copy), 0xffff);
    assert_eq!(copy[..6], bytes[..6]);
    let cut = usize::from(ours.source_port()) % (bytes.len() + 1);
    let head = Udp::parse_head(&bytes[..cut], bytes.len());
    assert_eq!(
        head.map(|head| head.length()),
        if cut < 8 { Err(DropReason::UdpTruncated) } else { Ok(ours.length()) }
    );
}

fn icmp(bytes: &[u8]) {
    let ours = Icmp::parse(bytes);
    let smoltcp = Icmpv4Packet::new_checked(bytes);
    assert_eq!(ours.is_ok(), smoltcp.is_ok());
    let Ok(ours) = ours else { return };
    // Differs: etherparse asks timestamps for twenty bytes.
    if let Ok(etherparse) = Icmpv4Slice::from_slice(bytes) {
        assert_eq!((ours.kind(), ours.code()), (etherparse.type_u8(), etherparse.code_u8()));
        assert_eq!(ours.checksum(), etherparse.checksum());
        assert_eq!(ours.rest().to_be_bytes(), etherparse.bytes5to8());
    }
    assert_eq!(ours.verify().is_ok(), naive_sum(bytes) == 0xffff);
    let header = IcmpHeader { kind: ours.kind(), code: ours.code(), rest: ours.rest() };
    let mut copy = bytes.to_vec();
    assert_eq!(header.emit(&mut copy).map(|payload| &*payload), Ok(ours.payload()));
    assert_eq!(copy[4..], bytes[4..]);
    assert_eq!(Icmp::parse(&copy).and_then(|message| message.verify()), Ok(()));
}

fn icmpv6(pseudo: Pseudo, bytes: &[u8]) {
    let ours = Icmpv6::parse(bytes);
    // Differs: etherparse asks for the eight bytes that all kinds defined so far have; RFC 4443, 2.1
    // has four.
    assert_eq!(ours.is_ok_and(|message| message.rest().is_some()), Icmpv6Slice::from_slice(bytes).is_ok());
    let (Ok(ours), Ok(etherparse)) = (ours, Icmpv6Slice::from_slice(bytes)) else { return };
    assert_eq!((ours.kind(), ours.code()), (etherparse.type_u8(), etherparse.code_u8()));
    assert_eq!(ours.checksum(), etherparse.checksum());
    assert_eq!(ours.rest().map(u32::to_be_bytes), Some(etherparse.bytes5to8()));
    assert_eq!(ours.verify(pseudo).is_ok(), reference_sum(pseudo, IpProtocol::ICMPV6, bytes) == 0xffff);
    let header = IcmpHeader { kind: ours.kind(), code: ours.code(), rest: ours.rest().expect("eight bytes") };
    let mut copy = bytes.to_vec();
    assert_eq!(header.emit_v6(&mut copy, pseudo).map(|payload| &*payload), Ok(&ours.payload()[4..]));
    assert_eq!(copy[4..], bytes[4..]);
    assert_eq!(Icmpv6::parse(&copy).and_then(|message| message.verify(pseudo)), Ok(()));
}
