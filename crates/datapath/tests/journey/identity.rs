//! No byte is copied: a frame leaves in the slot in which it came.

use crate::gateway::{ACCESS, End, Gateway, Line, Modes, OTHER_UNDERLAY, SECOND, TUNNEL, UNDERLAY};
use polder_buffers::PortId;
use polder_datapath::forward::VlanMode;
use polder_datapath::wire::VlanId;

fn frame(to: u8, from: u8, payload: usize, tag: Option<u16>) -> Vec<u8> {
    let mut bytes = vec![2, 0, 0, 0, 0, to, 2, 0, 0, 0, 0, from];
    if let Some(tag) = tag {
        bytes.extend([0x81, 0]);
        bytes.extend(tag.to_be_bytes());
    }
    bytes.extend([0x88, 0xb5]);
    bytes.resize(bytes.len() + payload, from);
    bytes
}

/// The slots in which frames left.
fn slots(gateway: &mut Gateway, port: PortId) -> Vec<u32> {
    gateway.take(port).iter().map(|sent| sent.slot.expect("one frame")).collect()
}

/// Station 1 is behind the near access port, station 2 behind the far one, and both are known.
fn acquainted(line: &Line, modes: &Modes) -> (Gateway, Gateway) {
    let (mut near, mut far) = (Gateway::new(End::Near, line, modes), Gateway::new(End::Far, line, modes));
    near.receive(ACCESS, [&frame(2, 1, 46, None)[..]]);
    let hello: Vec<_> = near.take(UNDERLAY).into_iter().map(|sent| sent.bytes).collect();
    far.receive(UNDERLAY, hello.iter().map(Vec::as_slice));
    far.receive(ACCESS, [&frame(1, 2, 46, None)[..]]);
    let hello: Vec<_> = far.take(UNDERLAY).into_iter().map(|sent| sent.bytes).collect();
    near.receive(UNDERLAY, hello.iter().map(Vec::as_slice));
    for gateway in [&mut near, &mut far] {
        gateway.take(ACCESS);
        gateway.take(SECOND);
    }
    (near, far)
}

/// Sends 40 frames from station 1 to station 2, and compares slots at both gateways.
fn keep_their_slots(line: &Line) {
    let (mut near, mut far) = acquainted(line, &Modes::transparent());
    let frames: Vec<_> = (0..40).map(|number| frame(2, 1, 46 + number * 36, None)).collect();
    let came = near.receive(ACCESS, frames.iter().map(Vec::as_slice));
    let outer = near.take(UNDERLAY);
    let left: Vec<_> = outer.iter().map(|sent| sent.slot.expect("one frame")).collect();
    assert_eq!(left, came, "into the tunnel");
    let came = far.receive(UNDERLAY, outer.iter().map(|sent| &sent.bytes[..]));
    let delivered = far.take(ACCESS);
    let left: Vec<_> = delivered.iter().map(|sent| sent.slot.expect("one frame")).collect();
    assert_eq!(left, came, "out of the tunnel");
    let delivered: Vec<_> = delivered.into_iter().map(|sent| sent.bytes).collect();
    assert_eq!(delivered, frames);
    assert_eq!((near.drops(), far.drops()), (Vec::new(), Vec::new()));
}

#[test]
fn frames_keep_their_slots_through_a_tunnel() {
    keep_their_slots(&Line::default());
}

#[test]
fn frames_keep_their_slots_through_a_tunnel_with_all_options() {
    let line =
        Line { vlan: VlanId::configured(7), key: Some(5), checksum: true, sequence: true, ..Line::default() };
    keep_their_slots(&line);
}

/// A tunnel that goes over another port needs no other headroom, no copy and no new sequence.
#[test]
fn frames_keep_their_slots_when_the_tunnel_takes_another_port() {
    let (line, modes) = (Line { sequence: true, ..Line::default() }, Modes::transparent());
    let (mut near, _far) = acquainted(&line, &modes);
    for port in [OTHER_UNDERLAY, UNDERLAY] {
        near.reroute(End::Near, &line, &modes, port);
        let frames: Vec<_> = (0..40).map(|number| frame(2, 1, 46 + number * 36, None)).collect();
        let came = near.receive(ACCESS, frames.iter().map(Vec::as_slice));
        assert_eq!(slots(&mut near, port), came);
    }
    assert_eq!(near.drops(), Vec::new());
}

#[test]
fn frames_keep_their_slots_when_tags_come_and_go() {
    let vlan = |number| VlanId::configured(number).expect("1 to 4094");
    let trunk = |native| VlanMode::Trunk { allowed: [vlan(10)].into_iter().collect(), native };
    // Station 1 is on a trunk at the near end only, so it talks with a tag.
    let line = Line::default();
    let near = Modes { access: trunk(None), second: VlanMode::Access(vlan(10)), tunnel: trunk(None) };
    let far = Modes { access: VlanMode::Access(vlan(10)), ..near.clone() };
    let mut gateways = (Gateway::new(End::Near, &line, &near), Gateway::new(End::Far, &line, &far));
    let hello = frame(1, 2, 46, None);
    gateways.1.receive(ACCESS, [&hello[..]]);
    let outer: Vec<_> = gateways.1.take(UNDERLAY).into_iter().map(|sent| sent.bytes).collect();
    gateways.1.take(SECOND);
    gateways.0.receive(UNDERLAY, outer.iter().map(Vec::as_slice));
    gateways.0.take(ACCESS);
    gateways.0.take(SECOND);
    let came = gateways.0.receive(ACCESS, [&frame(2, 1, 46, Some(10))[..]]);
    let outer = gateways.0.take(UNDERLAY);
    assert_eq!(vec![outer[0].slot.expect("one frame")], came);
    let came = gateways.1.receive(UNDERLAY, [&outer[0].bytes[..]]);
    let delivered = gateways.1.take(ACCESS);
    assert_eq!(vec![delivered[0].slot.expect("one frame")], came);
    assert_eq!(delivered[0].bytes, frame(2, 1, 46, None));
}

#[test]
fn frames_between_access_ports_keep_their_slots() {
    let mut gateway = Gateway::new(End::Near, &Line::default(), &Modes::transparent());
    gateway.receive(SECOND, [&frame(1, 2, 46, None)[..]]);
    slots(&mut gateway, ACCESS);
    slots(&mut gateway, UNDERLAY);
    let came = gateway.receive(ACCESS, [&frame(2, 1, 46, None)[..], &frame(2, 1, 1400, None)]);
    assert_eq!(slots(&mut gateway, SECOND), came);
    assert_eq!(gateway.take(TUNNEL).len(), 0);
}
