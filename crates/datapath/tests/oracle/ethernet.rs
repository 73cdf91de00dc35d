//! Ethernet, tags and ARP.

use super::summary::summary;
use etherparse::{Ethernet2Slice, SingleVlanSlice};
use polder_datapath::drops::DropReason;
use polder_datapath::wire::{
    Arp, ArpHeader, ArpOperation, EtherType, Ethernet, EthernetHeader, Link, Vlan, VlanId, VlanTag, pop_tag,
    push_tag,
};
use smoltcp::wire::{ArpPacket, ArpRepr, EthernetFrame};

/// A frame, with its tags and with ARP in it.
pub(crate) fn ethernet(bytes: &[u8]) {
    summary(bytes);
    let ours = Ethernet::parse(bytes);
    let smoltcp = EthernetFrame::new_checked(bytes);
    let etherparse = Ethernet2Slice::from_slice_without_fcs(bytes);
    assert_eq!(ours.is_ok(), smoltcp.is_ok());
    assert_eq!(ours.is_ok(), etherparse.is_ok());
    let (Ok(ours), Ok(smoltcp), Ok(etherparse)) = (ours, smoltcp, etherparse) else {
        assert_eq!(Link::parse(bytes).err(), Some(DropReason::EthernetTruncated));
        return;
    };
    assert_eq!(ours.destination().0, smoltcp.dst_addr().0);
    assert_eq!(ours.source().0, etherparse.source());
    assert_eq!(ours.ether_type().0, etherparse.ether_type().0);
    assert_eq!(ours.payload(), smoltcp.payload());
    assert_eq!(ours.destination().is_multicast(), smoltcp.dst_addr().is_multicast());
    assert_eq!(ours.destination().is_broadcast(), smoltcp.dst_addr().is_broadcast());
    // Differs: smoltcp takes 00:00:00:00:00:00 for a station; nobody has it.
    let is_zero = smoltcp.dst_addr().0 == [0; 6];
    assert_eq!(ours.destination().is_station(), smoltcp.dst_addr().is_unicast() && !is_zero);

    emit_again(ours, bytes);
    tags(bytes);
    move_tags(bytes);
}

fn emit_again(ours: Ethernet<'_>, bytes: &[u8]) {
    let header = EthernetHeader {
        destination: ours.destination(),
        source: ours.source(),
        ether_type: ours.ether_type(),
    };
    let mut copy = [0; Ethernet::HEADER_BYTES];
    assert_eq!(header.emit(&mut copy).map(|rest| rest.len()), Ok(0));
    assert_eq!(copy[..], bytes[..Ethernet::HEADER_BYTES]);
    assert!(header.emit(&mut copy[1..]).is_err());
}

/// Two tags at most, each compared with etherparse's.
fn tags(bytes: &[u8]) {
    let mut ether_type = u16::from_be_bytes([bytes[12], bytes[13]]);
    let mut position = Ethernet::HEADER_BYTES;
    let mut expected = Vec::new();
    while matches!(ether_type, 0x8100 | 0x88a8) && expected.len() < 2 {
        let Ok(tag) = SingleVlanSlice::from_slice(&bytes[position..]) else {
            assert_eq!(Link::parse(bytes).err(), Some(DropReason::VlanTruncated));
            return;
        };
        ether_type = tag.ether_type().0;
        position += 4;
        expected.push(tag);
    }
    let link = Link::parse(bytes).expect("as many tags as etherparse found");
    let found: Vec<_> = [link.tag, link.inner_tag].into_iter().flatten().collect();
    assert_eq!(found.len(), expected.len());
    for (ours, etherparse) in found.iter().zip(&expected) {
        same_tag(ours, etherparse);
    }
    assert_eq!(link.header_bytes(), position);
    assert_eq!(link.ether_type(), EtherType(ether_type));
    assert_eq!(link.payload(), &bytes[position..]);
    if link.ether_type() == EtherType::ARP {
        arp(link.payload());
    }
}

fn same_tag(ours: &Vlan<'_>, etherparse: &SingleVlanSlice<'_>) {
    // Differs: etherparse takes 4095, which IEEE 802.1Q, 9.6 reserves, for a VLAN.
    let id = etherparse.vlan_identifier().value();
    assert_eq!(ours.id().map(VlanId::get), (id != 4095).then_some(id));
    assert_eq!(ours.priority(), etherparse.priority_code_point().value());
    assert_eq!(ours.drop_eligible(), etherparse.drop_eligible_indicator());
    assert_eq!(ours.ether_type().0, etherparse.ether_type().0);
    assert_eq!(ours.payload(), etherparse.payload_slice());
}

/// A tag that is put in is found, and taking it out leaves the frame as it was.
fn move_tags(frame: &[u8]) {
    let id = VlanId::new(u16::from_be_bytes([frame[4], frame[5]]) & 0x0fff).unwrap_or(VlanId::HIGHEST);
    let kind = if frame[0] & 2 == 0 { EtherType::VLAN } else { EtherType::SERVICE_VLAN };
    let tag = VlanTag { kind, id, priority: frame[5] & 7, drop_eligible: frame[4] & 1 != 0 };
    let mut tagged = [&[0; 4], frame].concat();
    assert_eq!(push_tag(&mut tagged, tag), Ok(()));
    let ethernet = Ethernet::parse(&tagged).expect("longer than before");
    let vlan = Vlan::parse(ethernet.payload()).expect("a tag");
    assert_eq!((ethernet.ether_type(), vlan.id()), (kind, Some(id)));
    assert_eq!((vlan.priority(), vlan.drop_eligible()), (tag.priority, tag.drop_eligible));
    assert_eq!(ethernet.destination().0, frame[..6]);
    assert_eq!(ethernet.source().0, frame[6..12]);
    assert_eq!(vlan.ether_type().0.to_be_bytes(), frame[12..14]);
    assert_eq!(vlan.payload(), &frame[14..]);
    assert_eq!(pop_tag(&mut tagged), Ok(()));
    assert_eq!(&tagged[4..], frame);
}

fn arp(bytes: &[u8]) {
    let ours = Arp::parse(bytes);
    let smoltcp = ArpPacket::new_checked(bytes).and_then(|packet| ArpRepr::parse(&packet));
    assert_eq!(ours.is_ok(), smoltcp.is_ok());
    let (Ok(ours), Ok(smoltcp)) = (ours, smoltcp) else { return };
    let header = ArpHeader {
        operation: ours.operation(),
        sender_mac: ours.sender_mac(),
        sender_ip: ours.sender_ip(),
        target_mac: ours.target_mac(),
        target_ip: ours.target_ip(),
    };
    let ArpRepr::EthernetIpv4 {
        operation,
        source_hardware_addr,
        source_protocol_addr,
        target_hardware_addr,
        target_protocol_addr,
    } = smoltcp
    else {
        unreachable!("smoltcp knows another kind of ARP");
    };
    assert_eq!(header.operation, ArpOperation(operation.into()));
    assert_eq!((header.sender_mac.0, header.sender_ip), (source_hardware_addr.0, source_protocol_addr));
    assert_eq!((header.target_mac.0, header.target_ip), (target_hardware_addr.0, target_protocol_addr));
    let mut copy = [0; Arp::HEADER_BYTES];
    assert_eq!(header.emit(&mut copy).map(|rest| rest.len()), Ok(0));
    assert_eq!(copy[..], bytes[..Arp::HEADER_BYTES]);
}
