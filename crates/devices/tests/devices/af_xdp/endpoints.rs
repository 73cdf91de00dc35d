//! An underlay port: claimed tunnel packets come to us, everything else stays with the kernel.

use super::{Opened, all_home, await_frame, memory, neighbours, options, receive, start};
use crate::common::{self, RawPeer};
use polder_buffers::Batch;
use polder_datapath::port::Budget;
use polder_datapath::port::Turn;
use polder_datapath::tunnel::Ends;
use polder_devices::af_xdp::{Mode, Options, Take, TunnelEndpoint, TunnelFields, open};
use polder_devices::skb;
use rustix::io::Errno;

pub(super) const OURS: [u8; 4] = [192, 168, 10, 1];
pub(super) const THEIRS: [u8; 4] = [192, 168, 20, 1];

pub(super) fn endpoint(local: [u8; 4], remote: [u8; 4]) -> TunnelEndpoint {
    let ends = Ends::V4 { local: local.into(), remote: remote.into() };
    TunnelEndpoint { ends, fields: FRAMES }
}

/// Fields of a tunnel of frames in GRE.
const FRAMES: TunnelFields = TunnelFields::Gre { has_frames: true, key: None };
/// The GRE header of its packets.
const GRE: [u8; 4] = [0, 0, 0x65, 0x58];

/// Fields that vary in a packet that may match an endpoint.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outer {
    tags: &'static [u16],
    words: u8,
    protocol: u8,
    /// The fragment field: flags and offset.
    fragment: u16,
    source: [u8; 4],
    destination: [u8; 4],
}

pub(super) const PLAIN: Outer =
    Outer { tags: &[], words: 5, protocol: 47, fragment: 0, source: THEIRS, destination: OURS };

pub(super) fn packet(outer: Outer) -> Vec<u8> {
    let mut packet = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    for &tag in outer.tags {
        packet.extend(tag.to_be_bytes());
        packet.extend([0, 5]);
    }
    packet.extend([0x08, 0x00, 0x40 | outer.words, 0, 0, 60, 0, 1]);
    packet.extend(outer.fragment.to_be_bytes());
    packet.extend([64, outer.protocol, 0, 0]);
    packet.extend(outer.source);
    packet.extend(outer.destination);
    packet.resize(packet.len() + 4 * usize::from(outer.words.saturating_sub(5)), 0x55);
    packet.extend(GRE);
    packet.resize(packet.len() + 40, 0x55);
    packet
}

/// Sends `sent` from the other end; returns how many of them came to us, and how many to the kernel.
fn share(
    port: &mut Opened,
    pool: &mut polder_buffers::Pool,
    ends: (&RawPeer, &RawPeer),
    sent: &[u8],
) -> (usize, usize) {
    let (sender, kernel) = ends;
    assert!(sender.send(sent));
    // A marker that stays with the kernel comes last, so nothing has to be waited for in vain.
    let marker = super::frame(99, 60);
    assert!(sender.send(&marker));
    let mut to_kernel = 0;
    loop {
        match await_frame(kernel) {
            Some(frame) if frame == marker => break,
            Some(frame) => to_kernel += usize::from(frame == sent),
            None => panic!("the marker did not come"),
        }
    }
    let mut batch = receive(port, 0, pool);
    let to_us = batch.iter().filter(|packet| packet.bytes() == sent).count();
    pool.release(&mut batch);
    (to_us, to_kernel)
}

#[test]
fn the_header_alone_decides_who_gets_a_packet() {
    const US: (usize, usize) = (1, 0);
    const KERNEL: (usize, usize) = (0, 1);
    const NAME: &str = "af_xdp::the_header_alone_decides_who_gets_a_packet";
    if !common::has(NAME, "ethtool") || !common::has_namespace(NAME) {
        return;
    }
    for mode in [Mode::Native, Mode::Generic] {
        common::veth("pdxd0", "pdxd1", "");
        // A tag in a packet of a local sender goes beside it, where XDP does not see it.
        common::run("ethtool", "-K pdxd1 tx off txvlan off");
        common::run("ethtool", "-K pdxd0 rxvlan off");
        let (region, mut pool) = memory();
        let asked = Options { mode, ..Options::tunnels("pdxd0", [endpoint(OURS, THEIRS)]) };
        let mut port = open(&asked, &region).expect("root opens a veth");
        start(&mut port, &mut pool);
        let (sender, kernel) = (RawPeer::open("pdxd1"), RawPeer::open("pdxd0"));
        for (who, outer) in [
            (US, PLAIN),
            (US, Outer { words: 15, ..PLAIN }),
            (US, Outer { fragment: 0x2000, ..PLAIN }),
            (US, Outer { fragment: 0x00b9, ..PLAIN }),
            (KERNEL, Outer { protocol: 1, ..PLAIN }),
            (KERNEL, Outer { protocol: 17, ..PLAIN }),
            (KERNEL, Outer { source: [192, 168, 20, 2], ..PLAIN }),
            (KERNEL, Outer { destination: [192, 168, 10, 2], ..PLAIN }),
            (KERNEL, Outer { source: OURS, destination: THEIRS, ..PLAIN }),
        ] {
            let shared = share(&mut port, &mut pool, (&sender, &kernel), &packet(outer));
            assert_eq!(shared, who, "{mode:?}: {outer:?}");
        }
        // The kernel takes tags off before packet sockets see them, so only our side can be counted.
        for (ours, tags) in [(1, &[0x8100_u16][..]), (0, &[0x88a8]), (0, &[0x8100, 0x8100])] {
            let tagged = packet(Outer { tags, ..PLAIN });
            let (to_us, _) = share(&mut port, &mut pool, (&sender, &kernel), &tagged);
            assert_eq!(to_us, ours, "{mode:?}: tags {tags:x?}");
        }
        for length in [14, 15, 33, 37, 38] {
            let short = &packet(PLAIN)[..length];
            let (to_us, _) = share(&mut port, &mut pool, (&sender, &kernel), short);
            assert_eq!(to_us, usize::from(length == 38), "{mode:?}: {length} bytes");
        }
        drop((port, pool));
        all_home(&region);
        common::ip("link delete pdxd0");
    }
}

/// The program at the TCX hook takes what that at the XDP hook takes.
#[test]
fn the_tcx_hook_takes_the_same() {
    const NAME: &str = "af_xdp::the_tcx_hook_takes_the_same";
    if !common::has_namespace(NAME) {
        return;
    }
    common::veth("pdxe0", "pdxe1", "");
    let (region, mut pool) = memory();
    let take = Take::Tunnels(vec![endpoint(OURS, THEIRS)]);
    let mut opened = skb::open(&skb::Options::new("pdxe0", take), &region, None).expect("root opens a veth");
    let sender = RawPeer::open("pdxe1");
    let marker = packet(Outer { words: 6, ..PLAIN });
    let mut taken = |frame: &[u8]| {
        assert!(sender.send(frame) && sender.send(&marker));
        let mut found = Vec::new();
        while found.last() != Some(&marker) {
            let mut batch = Batch::new();
            let _ = opened.queues[0].rx.receive(&mut Budget::new(64), &mut batch, &mut pool);
            found.extend(batch.iter().map(|packet| packet.bytes().to_vec()));
            pool.release(&mut batch);
        }
        found[0] == frame
    };
    let (tag, tags): (&[u16], [&[u16]; 2]) = (&[0x8100], [&[0x88a8], &[0x8100, 0x8100]]);
    for (ours, outer) in [
        (true, PLAIN),
        (true, Outer { words: 15, ..PLAIN }),
        (true, Outer { fragment: 0x2000, ..PLAIN }),
        (true, Outer { fragment: 0x00b9, ..PLAIN }),
        (true, Outer { tags: tag, ..PLAIN }),
        (false, Outer { tags: tags[0], ..PLAIN }),
        (false, Outer { tags: tags[1], ..PLAIN }),
        (false, Outer { protocol: 1, ..PLAIN }),
        (false, Outer { protocol: 17, ..PLAIN }),
        (false, Outer { source: [192, 168, 20, 2], ..PLAIN }),
        (false, Outer { destination: [192, 168, 10, 2], ..PLAIN }),
        (false, Outer { source: OURS, destination: THEIRS, ..PLAIN }),
    ] {
        assert_eq!(taken(&packet(outer)), ours, "{outer:?}");
    }
    for length in [37, 38] {
        assert_eq!(taken(&packet(PLAIN)[..length]), length == 38, "{length} bytes");
    }
}

/// IPv6 with these extension headers, the last of which is followed by `next`.
fn packet_v6(headers: &[(u8, &[u8])], next: u8, (source, destination): ([u8; 16], [u8; 16])) -> Vec<u8> {
    let mut packet = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x86, 0xdd, 0x60, 0, 0, 0];
    let length = headers.iter().map(|(_, bytes)| bytes.len()).sum::<usize>() + 44;
    packet.extend(u16::try_from(length).expect("a short packet").to_be_bytes());
    let kinds = headers.iter().map(|(kind, _)| *kind).chain([next]).collect::<Vec<_>>();
    packet.extend([kinds[0], 64]);
    packet.extend(source);
    packet.extend(destination);
    for ((_, bytes), &next) in headers.iter().zip(&kinds[1..]) {
        packet.push(next);
        packet.extend(&bytes[1..]);
    }
    packet.extend(GRE);
    packet.resize(packet.len() + 40, 0x55);
    packet
}

#[test]
fn ipv6_headers_decide_as_those_of_ipv4() {
    const US: (usize, usize) = (1, 0);
    const KERNEL: (usize, usize) = (0, 1);
    const NAME: &str = "af_xdp::ipv6_headers_decide_as_those_of_ipv4";
    /// Destination options with the encapsulation limit that Linux sends.
    const LIMIT: (u8, &[u8]) = (60, &[0, 0, 4, 1, 4, 1, 1, 0]);
    const FIRST: (u8, &[u8]) = (44, &[0, 0, 0, 1, 1, 2, 3, 4]);
    const LATER: (u8, &[u8]) = (44, &[0, 0, 4, 0xd0, 1, 2, 3, 4]);
    const LONG: (u8, &[u8]) = (60, &[0, 1, 4, 1, 4, 1, 1, 0, 1, 6, 0, 0, 0, 0, 0, 0]);
    if !common::has_namespace(NAME) {
        return;
    }
    let [ours, theirs, other] = [1, 2, 3].map(|end| {
        let mut address = [0xfd, 0, 0, 1, 0, 2, 0, 3, 0, 4, 0, 5, 0, 6, 0, 0];
        address[15] = end;
        address
    });
    common::veth("pdxg0", "pdxg1", "");
    let (region, mut pool) = memory();
    let tunnel = Ends::V6 { local: ours.into(), remote: theirs.into() };
    let endpoint = TunnelEndpoint { ends: tunnel, fields: FRAMES };
    let mut port = open(&Options::tunnels("pdxg0", [endpoint]), &region).expect("root opens a veth");
    start(&mut port, &mut pool);
    let (sender, kernel) = (RawPeer::open("pdxg1"), RawPeer::open("pdxg0"));
    let ends = (theirs, ours);
    let cases = [
        (US, packet_v6(&[], 47, ends)),
        (US, packet_v6(&[LIMIT], 47, ends)),
        (US, packet_v6(&[FIRST], 47, ends)),
        (US, packet_v6(&[LIMIT, FIRST], 47, ends)),
        (US, packet_v6(&[LIMIT, LATER], 47, ends)),
        (KERNEL, packet_v6(&[LATER], 17, ends)),
        (KERNEL, packet_v6(&[LIMIT, LATER], 58, ends)),
        (KERNEL, packet_v6(&[LIMIT], 58, ends)),
        (KERNEL, packet_v6(&[LONG], 47, ends)),
        (KERNEL, packet_v6(&[(0, LIMIT.1)], 47, ends)),
        (KERNEL, packet_v6(&[], 58, ends)),
        (KERNEL, packet_v6(&[], 47, (other, ours))),
        (KERNEL, packet_v6(&[], 47, (theirs, other))),
        (KERNEL, packet_v6(&[LIMIT], 47, (ours, theirs))),
        (KERNEL, packet(PLAIN)),
    ];
    for (number, (who, sent)) in cases.iter().enumerate() {
        let shared = share(&mut port, &mut pool, (&sender, &kernel), sent);
        assert_eq!(shared, *who, "case {number}: {sent:x?}");
    }
    let whole = packet_v6(&[LIMIT, FIRST], 47, ends);
    for (length, taken) in [(53, 0), (54, 0), (61, 0), (62, 0), (69, 0), (70, 1)] {
        let (to_us, _) = share(&mut port, &mut pool, (&sender, &kernel), &whole[..length]);
        assert_eq!(to_us, taken, "{length} bytes");
    }
    let tagged = [&whole[..12], &[0x81, 0, 0, 5], &whole[12..]].concat();
    let (to_us, _) = share(&mut port, &mut pool, (&sender, &kernel), &tagged);
    assert_eq!(to_us, 1, "behind a tag");
    drop((port, pool));
    all_home(&region);
    common::ip("link delete pdxg0");
}

#[test]
fn claims_change_while_the_port_is_open() {
    if !common::has_namespace("af_xdp::claims_change_while_the_port_is_open") {
        return;
    }
    common::veth("pdxe0", "pdxe1", "");
    let (region, mut pool) = memory();
    let mut port = open(&Options::tunnels("pdxe0", []), &region).expect("root opens a veth");
    start(&mut port, &mut pool);
    let (sender, kernel) = (RawPeer::open("pdxe1"), RawPeer::open("pdxe0"));
    let other = Outer { source: [192, 168, 30, 1], ..PLAIN };
    let (first, second) = (endpoint(OURS, THEIRS), endpoint(OURS, other.source));
    for (endpoints, plain, others) in [
        (vec![], 0, 0),
        (vec![first], 1, 0),
        (vec![first, second, first], 1, 1),
        (vec![second], 0, 1),
        (vec![], 0, 0),
    ] {
        port.port.set_claims(&endpoints).expect("root changes a map");
        let mut to_us = |outer| share(&mut port, &mut pool, (&sender, &kernel), &packet(outer)).0;
        assert_eq!((to_us(PLAIN), to_us(other)), (plain, others), "{endpoints:?}");
    }
    let whole = {
        common::veth("pdxe2", "pdxe3", "");
        open(&options("pdxe2", Mode::Auto), &region).expect("root opens a veth")
    };
    assert_eq!(whole.port.set_claims(&[first]), Err(Errno::NODEV), "it takes everything");
    drop((port, whole, pool));
    all_home(&region);
}

/// The kernel at an underlay port answers as if nothing were there; at a bridge port nobody answers.
#[test]
fn the_kernel_goes_on_at_an_underlay_port_alone() {
    const NAME: &str = "af_xdp::the_kernel_goes_on_at_an_underlay_port_alone";
    if !common::has(NAME, "ping") || !common::has_namespace(NAME) {
        return;
    }
    let other = neighbours("pdxf0", "pdxf1");
    let (region, mut pool) = memory();
    assert!(other.pings("10.8.0.1"), "without Polder");
    let mut port = open(&Options::tunnels("pdxf0", [endpoint(OURS, THEIRS)]), &region).expect("a veth");
    start(&mut port, &mut pool);
    assert!(other.pings("10.8.0.1"), "an underlay port");
    assert_eq!(receive(&mut port, 0, &mut pool).len(), 0);
    drop(port);
    let mut port = open(&options("pdxf0", Mode::Auto), &region).expect("a veth");
    start(&mut port, &mut pool);
    assert!(other.is_silent("10.8.0.1"), "a port of a bridge");
    let mut batch = receive(&mut port, 1, &mut pool);
    assert!(!batch.is_empty(), "the questions came to us");
    pool.release(&mut batch);
    let turn = super::drain(&mut port, &mut pool);
    assert_eq!(turn, Turn::Drained);
    drop(port);
    assert!(other.pings("10.8.0.1"), "after Polder");
    drop(pool);
    all_home(&region);
}
