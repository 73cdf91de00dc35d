//! Messages of the gateway itself, to senders whose packets are too big for the tunnel.

use crate::gateway::{ACCESS, End, Gateway, Line, Modes, SECOND, UNDERLAY};
use crate::traffic::{Body, packet};
use polder_datapath::drops::DropReason;
use polder_datapath::units::Nanos;
use polder_datapath::wire::{Icmp, Ipv4, Link};
use std::collections::BTreeSet;

const STATION: [u8; 6] = [2, 0, 0, 0, 0, 1];
const FAR_STATION: [u8; 6] = [2, 0, 0, 0, 0, 2];

fn frame(to: [u8; 6], from: [u8; 6], body: Body, length: usize) -> Vec<u8> {
    [to.to_vec(), from.to_vec(), packet(body, length, 1)].concat()
}

/// A gateway that knows both stations.
fn acquainted(line: &Line) -> Gateway {
    let [mut near, mut far] = [End::Near, End::Far].map(|end| Gateway::new(end, line, &Modes::transparent()));
    far.receive(ACCESS, [&frame(STATION, FAR_STATION, Body::Other, 46)[..]]);
    let outer: Vec<_> = far.take(UNDERLAY).into_iter().map(|sent| sent.bytes).collect();
    near.receive(UNDERLAY, outer.iter().map(Vec::as_slice));
    near.receive(ACCESS, [&frame(FAR_STATION, STATION, Body::Other, 46)[..]]);
    for port in [ACCESS, SECOND, UNDERLAY] {
        near.take(port);
    }
    near
}

#[test]
fn a_sender_is_told_what_the_tunnel_carries() {
    let line = Line { mtu: 1500, dont_fragment: true, ..Line::default() };
    let mut gateway = acquainted(&line);
    let body = Body::Ipv4(17, 0, true);
    let fits = frame(FAR_STATION, STATION, body, 1462);
    let too_big = frame(FAR_STATION, STATION, body, 1463);
    gateway.receive(ACCESS, [&fits[..], &too_big]);
    assert_eq!(gateway.take(UNDERLAY).len(), 1);
    assert_eq!(gateway.drops(), [(DropReason::TunnelTooBig, 1)]);
    let replies = gateway.take(ACCESS);
    assert_eq!((replies.len(), gateway.take(SECOND).len()), (1, 0), "to the sender alone");
    let link = Link::parse(&replies[0].bytes).unwrap();
    assert_eq!((link.ethernet.destination().0, link.ethernet.source().0), (STATION, FAR_STATION));
    let ip = Ipv4::parse(link.payload()).unwrap();
    let message = Icmp::parse(ip.payload()).unwrap();
    message.verify().unwrap();
    assert_eq!((message.kind(), message.code(), message.rest()), (3, 4, 1462));
    assert_eq!(gateway.engine.counters().ledger.generated.get(), 1);
}

#[test]
fn who_cannot_be_told_is_dropped_in_silence() {
    let line = Line { mtu: 1500, dont_fragment: true, ..Line::default() };
    let mut gateway = acquainted(&line);
    gateway.receive(ACCESS, [&frame(FAR_STATION, STATION, Body::Other, 1463)[..]]);
    assert_eq!(gateway.drops(), [(DropReason::TunnelTooBig, 1)]);
    assert_eq!((gateway.take(ACCESS).len(), gateway.take(UNDERLAY).len()), (0, 0));
}

/// The station may be on any member, so no copy may cause a message in its name.
#[test]
fn a_flooded_frame_that_is_too_big_is_reported_to_nobody() {
    let line = Line { mtu: 1500, dont_fragment: true, ..Line::default() };
    let mut gateway = Gateway::new(End::Near, &line, &Modes::transparent());
    gateway.receive(ACCESS, [&frame(FAR_STATION, STATION, Body::Ipv4(17, 0, true), 1463)[..]]);
    assert_eq!((gateway.take(SECOND).len(), gateway.take(UNDERLAY).len()), (1, 0));
    assert_eq!(gateway.drops(), [(DropReason::TunnelTooBig, 1)]);
    assert_eq!((gateway.take(ACCESS).len(), gateway.engine.counters().ledger.generated.get()), (0, 0));
    // The silent station is as unknown as before.
    gateway.receive(ACCESS, [&frame(FAR_STATION, STATION, Body::Ipv4(17, 0, true), 100)[..]]);
    assert_eq!((gateway.take(SECOND).len(), gateway.take(UNDERLAY).len()), (1, 1));
}

/// A message that the gateway sends in a station's name is not learnt from.
#[test]
fn nothing_is_learnt_from_a_message_of_the_gateway() {
    let line = Line { mtu: 1500, dont_fragment: true, ..Line::default() };
    let mut gateway = acquainted(&line);
    gateway.wait(Nanos::from_seconds(299));
    gateway.receive(ACCESS, [&frame(FAR_STATION, STATION, Body::Ipv4(17, 0, true), 1463)[..]]);
    assert_eq!((gateway.take(ACCESS).len(), gateway.take(SECOND).len()), (1, 0), "a message");
    gateway.wait(Nanos::from_seconds(2));
    gateway.receive(ACCESS, [&frame(FAR_STATION, STATION, Body::Other, 46)[..]]);
    assert_eq!((gateway.take(SECOND).len(), gateway.take(UNDERLAY).len()), (1, 1), "it is forgotten");
    assert_eq!(gateway.engine.bridge_counters().learned.get(), 2, "both stations, once");
}

#[test]
fn outer_packets_that_may_be_cut_have_numbers_of_their_own() {
    let mut gateway = acquainted(&Line { mtu: 600, ..Line::default() });
    let frames: Vec<_> =
        (0..60).map(|number| frame(FAR_STATION, STATION, Body::Other, 100 + number * 20)).collect();
    gateway.receive(ACCESS, frames.iter().map(Vec::as_slice));
    let mut numbers = BTreeSet::new();
    for sent in gateway.take(UNDERLAY) {
        let link = Link::parse(&sent.bytes).unwrap();
        let ip = Ipv4::parse(link.payload()).unwrap();
        if ip.fragment_offset() == 0 {
            assert!(numbers.insert(ip.identification()), "twice: {}", ip.identification());
        }
    }
    assert_eq!(numbers.len(), frames.len());
}
