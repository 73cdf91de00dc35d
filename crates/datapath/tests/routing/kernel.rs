//! Routes that the kernel follows, and routes by source.

use crate::frames::Frame;
use crate::stand::{A, B, HOST, KERNEL, Stand, TRUNK, ip, mac, prefix, station};
use polder_buffers::PortId;
use polder_datapath::drops::DropReason;
use polder_datapath::route::{InterfaceId, KernelRoute, NextHopEntry, Owner, Prefix, ReversePath};

fn frame(port: PortId, source: &str, destination: &str) -> Frame {
    Frame::new(mac(port), station(port, 5), source, destination)
}

/// A packet whose route is the kernel's returns as it came: the kernel counts its time to live down.
#[test]
fn a_route_of_the_kernels_returns_packets_unchanged() {
    let mut stand = Stand::new();
    let way = stand.way(NextHopEntry::Kernel(KernelRoute::default()));
    for network in ["10.66.0.0/16", "2001:db8:66::/48"] {
        stand.router.insert(prefix(network), way);
    }
    for (source, destination) in [("10.0.3.5", "10.66.0.9"), ("2001:db8:3::5", "2001:db8:66::9")] {
        for hops in [64, 1] {
            let frame = Frame { hops, ..frame(KERNEL, source, destination) };
            stand.receive(KERNEL, &[frame.bytes()]);
            assert_eq!(stand.take(HOST), [frame.bytes()], "{destination} {hops}");
        }
    }
    assert_eq!(stand.engine.route_counters().to_kernel.get(), 4);
    assert_eq!(stand.engine.route_counters().to_host.get(), 0);
    // On an interface that only Polder has, the kernel cannot be asked.
    assert_eq!(stand.refused(A, frame(A, "10.0.0.5", "10.66.0.9").bytes()), DropReason::Unreachable);
    stand.interfaces.iter_mut().filter(|interface| interface.id.port == KERNEL).for_each(|interface| {
        interface.owner = Owner::Kernel { host: None, decides: false };
    });
    stand.renew([]);
    assert_eq!(stand.refused(KERNEL, frame(KERNEL, "10.0.3.5", "10.66.0.9").bytes()), DropReason::ToKernel);
}

/// The kernel that decides has all packets for the interface: plain ones, hostile ones and those for its own address.
#[test]
fn a_port_where_the_kernel_decides_returns_all_packets() {
    let mut stand = Stand::new();
    stand.know(B, 0, "10.0.1.9", station(B, 9));
    stand.interfaces.iter_mut().filter(|interface| interface.id.port == KERNEL).for_each(|interface| {
        interface.owner = Owner::Kernel { host: Some(HOST), decides: true };
    });
    stand.renew([]);
    let mut frames = ["10.0.1.9", "10.0.3.1", "192.0.2.9", "255.255.255.255"]
        .map(|to| frame(KERNEL, "10.0.3.5", to).bytes())
        .to_vec();
    frames.push(Frame { hops: 1, ..frame(KERNEL, "10.0.1.1", "10.0.1.9") }.bytes());
    frames.push(frame(KERNEL, "2001:db8:3::5", "2001:db8:1::9").bytes());
    for sent in &frames {
        stand.receive(KERNEL, std::slice::from_ref(sent));
        assert_eq!(stand.take(HOST), std::slice::from_ref(sent));
    }
    // A batch is like one packet after the other.
    stand.receive(KERNEL, &frames);
    assert_eq!(stand.take(HOST), frames);
    assert_eq!(stand.engine.route_counters().to_kernel.get(), 2 * frames.len() as u64);
    // Other ports are as before.
    let sent = frame(A, "10.0.0.5", "10.0.1.9");
    stand.receive(A, &[sent.bytes()]);
    assert_eq!(stand.take(B), [sent.routed(mac(B), station(B, 9), None)]);
}

/// The kernel may send by a port whose filter would not see it.
#[test]
fn a_route_of_the_kernels_past_a_filter_is_refused() {
    let mut stand = Stand::new();
    let route = KernelRoute { interfaces: [InterfaceId::untagged(A)].into(), is_filtered: true };
    let way = stand.way(NextHopEntry::Kernel(route));
    stand.router.insert(prefix("10.66.0.0/16"), way);
    let sent = frame(KERNEL, "10.0.3.5", "10.66.0.9");
    assert_eq!(stand.refused(KERNEL, sent.bytes()), DropReason::ToKernel);
}

/// The source is looked up as the kernel does it: a way of several, one of which is the port's, leads back.
#[test]
fn a_source_behind_a_route_of_the_kernels_passes_where_the_port_is_one_of_its_ways() {
    let mut stand = Stand::new();
    stand.know(B, 0, "10.0.1.9", station(B, 9));
    for interface in &mut stand.interfaces {
        interface.sources.reverse_path = ReversePath::Strict;
    }
    stand.renew([]);
    let by = |interfaces: &[InterfaceId]| {
        NextHopEntry::Kernel(KernelRoute { interfaces: interfaces.into(), is_filtered: false })
    };
    let [back, away] = [by(&[InterfaceId::untagged(A)]), by(&[])].map(|way| stand.way(way));
    stand.router.insert(prefix("10.66.0.0/16"), back);
    stand.router.insert(prefix("10.67.0.0/16"), away);
    let sent = frame(A, "10.66.0.9", "10.0.1.9");
    stand.receive(A, &[sent.bytes()]);
    assert_eq!(stand.take(B), [sent.routed(mac(B), station(B, 9), None)]);
    assert_eq!(stand.refused(A, frame(A, "10.67.0.9", "10.0.1.9").bytes()), DropReason::ReversePath);
}

/// The first network that has the source counts; a source that none has finds no route.
#[test]
fn routes_by_source_send_each_source_its_way() {
    let mut stand = Stand::new();
    for (port, vlan, gateway) in [(B, 0, "2001:db8:1::9"), (TRUNK, 7, "2001:db8:12::9")] {
        stand.know(port, vlan, gateway, station(port, 9));
    }
    let (by_b, by_trunk) = (stand.by(B, 0, "2001:db8:1::9"), stand.by(TRUNK, 7, "2001:db8:12::9"));
    let network = |text: &str| prefix(text);
    let networks = [(network("2001:db8::80/121"), by_trunk), (network("2001:db8::/64"), by_b)];
    let list = stand.way(NextHopEntry::BySource(networks.into()));
    stand.router.insert(prefix("::/0"), list);
    let far = "2001:db8:ffff::1";
    for (source, port, vlan) in [("2001:db8::5", B, None), ("2001:db8::85", TRUNK, Some(7))] {
        let sent = frame(A, source, far);
        stand.receive(A, &[sent.bytes()]);
        assert_eq!(stand.take(port), [sent.routed(mac(port), station(port, 9), vlan)], "{source}");
    }
    assert_eq!(stand.refused(A, frame(A, "2001:db8:0:1::5", far).bytes()), DropReason::NoRoute);
    assert!(Prefix::new(ip("2001:db8::"), 64).is_ok_and(|network| network.contains(ip("2001:db8::85"))));
}

/// The kernel has routed what it sends by the device of a link: no look-up, no time to live, no filter of addresses.
#[test]
fn packets_of_a_device_leave_by_its_link() {
    let mut stand = with_device();
    for (source, destination) in [
        ("10.0.3.1", "10.0.3.5"),
        ("10.0.3.1", "10.0.1.9"),
        ("192.0.2.1", "198.51.100.9"),
        ("10.0.3.1", "224.0.0.5"),
        ("2001:db8:3::1", "2001:db8:ffff::1"),
        ("fe80::1", "ff02::5"),
    ] {
        for hops in [64, 1] {
            let sent = Frame { hops, ..Frame::new(mac(B), station(KERNEL, 5), source, destination) }.bytes();
            stand.receive(HOST, std::slice::from_ref(&sent));
            let mut expected = sent;
            expected[6..12].copy_from_slice(&mac(KERNEL).0);
            assert_eq!(stand.take(KERNEL), [expected], "{destination} {hops}");
        }
    }
    stand.check();
}

/// The kernel gets what is for this machine, for groups, and what it has to forward; the rest is routed as from any link.
#[test]
fn a_link_with_a_device_gives_the_kernel_its_packets() {
    let mut stand = with_device();
    stand.know(B, 0, "10.0.1.9", station(B, 9));
    let way = stand.way(NextHopEntry::Kernel(KernelRoute::default()));
    stand.router.insert(prefix("10.66.0.0/16"), way);
    for (source, destination) in [
        ("10.0.3.5", "10.0.3.1"),
        ("10.0.3.5", "224.0.0.5"),
        ("10.0.3.5", "255.255.255.255"),
        ("10.0.3.5", "10.66.0.9"),
        ("2001:db8:3::5", "2001:db8:3::1"),
        ("fe80::5", "ff02::5"),
    ] {
        for hops in [255, 1] {
            let sent = Frame { hops, ..frame(KERNEL, source, destination) }.bytes();
            stand.receive(KERNEL, std::slice::from_ref(&sent));
            assert_eq!(stand.take(HOST), [sent], "{destination} {hops}");
        }
    }
    let sent = frame(KERNEL, "10.0.3.5", "10.0.1.9");
    stand.receive(KERNEL, &[sent.bytes()]);
    assert_eq!(stand.take(B), [sent.routed(mac(B), station(B, 9), None)]);
    // Another interface of the kernel's has no groups for it.
    assert_eq!(stand.refused(A, frame(A, "10.0.0.5", "224.0.0.5").bytes()), DropReason::GroupNotRouted);
    stand.check();
}

fn with_device() -> Stand {
    let mut stand = Stand::new();
    stand.interfaces.iter_mut().filter(|interface| interface.id.port == KERNEL).for_each(|interface| {
        interface.owner = Owner::Device(HOST);
    });
    stand.renew([]);
    stand
}
