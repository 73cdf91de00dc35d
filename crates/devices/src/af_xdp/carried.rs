//! Programs that carry flows, run on frames: what they carry, and how it leaves.

use super::program::Counting;
use super::program::{Action, Sockets};
use crate::bpf::flows::packets::{pairs, plain, v4, v6};
use crate::bpf::sys::{Map, MapKind, ProgramKind, load, test_run, test_run_changed};
use crate::bpf::taken::TakenMaps;
use crate::bpf::window::{COMPLETED_AT, NUMBER_AT, Windows};
use crate::bpf::yielded::cases::{self, Fate};
use crate::bpf::{FlowTable, Take};
use core::sync::atomic::Ordering;
use polder_buffers::PortId;
use polder_datapath::fast_path::{
    AddressPair, FastPath as _, FlowKey, Forwarding, LinkAddresses, StationPair, TagChange, Validity,
};
use polder_datapath::wire::MacAddress;
use std::os::fd::{AsFd as _, OwnedFd};

const SOURCE: [u8; 6] = [2, 0, 0, 0, 0, 9];
const DESTINATION: [u8; 6] = [2, 0, 0, 0, 0, 8];
const NEXT_HOP: LinkAddresses = LinkAddresses { destination: MacAddress([4; 6]), source: MacAddress([6; 6]) };
/// The longest frame that leaves, as the entries say.
const LONGEST: u32 = 214;
/// `XDP_REDIRECT`.
const REDIRECT: u32 = 4;

/// A program with entries, all of whose packets the worker is through with.
struct Bench {
    program: OwnedFd,
    flows: FlowTable,
    maps: TakenMaps,
    windows: Windows,
    _sockets: Map,
}

impl Bench {
    /// `None` without the right to load programs; the namespace tests say so.
    fn new(take: &Take, local_senders: bool) -> Option<Self> {
        let windows = Windows::new(1, 1 << 20).ok()?;
        let maps = TakenMaps::new(take, Default::default()).ok()?;
        let flows = FlowTable::new(1, 1, maps.taken().frames()).ok()?;
        let map = Map::new(MapKind::XskMap, "polder_sockets", 4, 4, 1).ok()?;
        // The kernel runs programs on frames as if the loopback interface had brought them, and redirects none.
        let counting = Counting {
            interface: 1,
            mac: [2; 6],
            queues: 1,
            windows: windows.as_fd(),
            window_bytes: 1 << 20,
            local_senders,
        };
        let sockets = Sockets { map: map.as_fd(), action: Action::Pass, counting: Some(counting) };
        let program = maps.taken().program(&sockets, Some((&(sockets, counting), flows.maps())));
        let program = load(ProgramKind::Xdp, "polder_flows", &program).expect("the verifier takes it");
        windows.at(COMPLETED_AT).store(u64::MAX / 2, Ordering::Relaxed);
        flows.set_version(1, |_| true);
        Some(Self { program, flows, maps, windows, _sockets: map })
    }

    fn publish(&self, flow: &FlowKey, tag: TagChange) {
        let link = matches!(flow, FlowKey::Addresses(_)).then_some(NEXT_HOP);
        let forwarding = Forwarding {
            from: PortId(0),
            port: PortId(1),
            interface: 1,
            longest: LONGEST,
            tag,
            vlan: 0,
            outer: None,
            link,
        };
        self.flows.publish(flow, &forwarding, Validity { version: 1, moves: 0 });
    }

    /// Packets and bytes carried, and open entries.
    fn state(&self) -> (u64, u64, usize) {
        let entries = self.flows.entries().expect("entries are read");
        let open = entries.iter().filter(|entry| entry.is_open).count();
        entries.iter().fold((0, 0, open), |(packets, bytes, open), entry| {
            (packets + entry.packets, bytes + entry.bytes, open)
        })
    }

    /// Runs the program on a frame; the frame as it leaves if it is carried.
    fn run(&self, frame: &[u8]) -> Option<Vec<u8>> {
        let (packets, bytes, _) = self.state();
        let (answer, changed) = test_run_changed(self.program.as_fd(), frame).expect("root runs programs");
        let (now, bytes_now, _) = self.state();
        if now == packets {
            return None;
        }
        assert_eq!((answer, now - packets, bytes_now - bytes), (REDIRECT, 1, frame.len() as u64));
        Some(changed)
    }
}

fn stations(tag: Option<u16>) -> FlowKey {
    let [source, destination] = [SOURCE, DESTINATION].map(MacAddress);
    FlowKey::Stations(StationPair { source, destination, tag, outer: None })
}

/// A frame between the stations, with these words and an IPv4 packet behind.
fn tagged(tags: &[u8], packet: &[u8]) -> Vec<u8> {
    [&DESTINATION[..], &SOURCE, tags, packet].concat()
}

#[test]
fn tags_change_as_entries_say() {
    let packet = [&[8, 0][..], &plain()[0][14..]].concat();
    let seven = [0x81, 0, 0x60, 7];
    for (tag, change, came, leaves) in [
        (None, TagChange::Keep, &[][..], &[][..]),
        (None, TagChange::Push(9), &[], &[0x81, 0, 0, 9]),
        (Some(7), TagChange::Keep, &seven, &seven),
        (Some(7), TagChange::Pop, &seven, &[]),
        (Some(7), TagChange::Replace(9), &seven, &[0x81, 0, 0, 9]),
    ] {
        let Some(bench) = Bench::new(&Take::Whole, false) else { return };
        bench.publish(&stations(tag), change);
        let (came, leaves) = (tagged(came, &packet), tagged(leaves, &packet));
        assert_eq!((bench.run(&came), bench.state().2), (None, 0), "{change:?}: its wait begins");
        assert_eq!(bench.run(&came), Some(leaves), "{change:?}");
        for tags in [&[0x81, 0, 0x60, 0][..], &[0x88, 0xa8, 0, 7], &[0x81, 0, 0, 7, 0x81, 0, 0, 7]] {
            assert_eq!(bench.run(&tagged(tags, &packet)), None, "{tags:02x?}");
        }
        assert_eq!(bench.run(&tagged(&[0x81, 0, 0, 8], &packet)), None);
        let mut long = came.clone();
        long.resize(LONGEST as usize + (came.len() - packet.len() - 12), 0);
        assert!(bench.run(&long).is_some(), "a tag is not of the length");
        long.push(0);
        assert_eq!(bench.run(&long), None, "{} bytes", long.len());
        assert_eq!(bench.state().2, 1, "{change:?}");
    }
}

#[test]
fn routed_packets_have_one_hop_less_and_the_addresses_of_the_next_link() {
    let Some(bench) = Bench::new(&Take::Routed(Vec::new()), false) else { return };
    for pair in pairs() {
        bench.publish(&FlowKey::Addresses(pair), TagChange::Push(9));
        bench.publish(&FlowKey::Addresses(AddressPair { tag: Some(7), ..pair }), TagChange::Pop);
    }
    let expected = [v4(&[(8, 63)]), v6(&[(7, 63)])];
    for (plain, expected) in plain().into_iter().zip(expected) {
        let with = |addresses: [&[u8]; 2], tag: &[u8], frame: &[u8]| {
            [addresses[0], addresses[1], tag, &frame[12..]].concat()
        };
        let came = [&plain[..6], &plain[6..12]];
        let leaves = [&NEXT_HOP.destination.0[..], &NEXT_HOP.source.0];
        for (tag, new) in [(&[][..], &[0x81, 0, 0, 9][..]), (&[0x81, 0, 0x60, 7], &[])] {
            let frame = with(came, tag, &plain);
            assert_eq!(bench.run(&frame), None, "its wait begins");
            assert_eq!(bench.run(&frame), Some(with(leaves, new, &expected)), "{tag:02x?}");
        }
        // A priority alone, and one hop to go.
        let (_, _, open) = bench.state();
        assert_eq!(bench.run(&with(came, &[0x81, 0, 0x60, 0], &plain)), None);
        assert_eq!(bench.state().2, open - 1);
    }
    for odd in [v4(&[(8, 1)]), v6(&[(7, 1)]), v4(&[(0, 0x46)]), [&plain()[0][..], &[0]].concat()] {
        assert_eq!(bench.run(&odd), None, "{odd:02x?}");
    }
}

/// Packets with such a transport header, whose checksum is that of the pseudo-header alone, or is computed.
fn transports() -> Vec<(Vec<u8>, bool)> {
    let tcp = |sum: u16| [&[0; 12][..], &[0x50, 2, 0, 0], &sum.to_be_bytes(), &[0; 22]].concat();
    let udp = |port: u16, sum: u16| {
        [&[0, 9][..], &port.to_be_bytes(), &[0, 40], &sum.to_be_bytes(), &[0; 32]].concat()
    };
    let mut packets = Vec::new();
    for is_v6 in [false, true] {
        let with = |protocol: u8, payload: Vec<u8>| {
            let (mut frame, at) = if is_v6 { (v6(&[(6, protocol)]), 54) } else { (v4(&[(9, protocol)]), 34) };
            frame.truncate(at);
            frame.extend(&payload);
            [&DESTINATION[..], &SOURCE, &frame[12..]].concat()
        };
        let addresses = with(0, Vec::new());
        let ends = if is_v6 { &addresses[22..54] } else { &addresses[26..34] };
        let partial = |protocol: u8| {
            let words = ends.chunks_exact(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
            let sum = words.sum::<u32>() + u32::from(protocol) + 40;
            let folded = (sum & 0xffff) + (sum >> 16);
            u16::try_from((folded & 0xffff) + (folded >> 16)).expect("it is folded")
        };
        packets.extend([
            (with(6, tcp(partial(6))), true),
            (with(6, tcp(partial(6) ^ 1)), false),
            (with(6, tcp(partial(17))), false),
            (with(17, udp(53, partial(17))), true),
            (with(17, udp(53, partial(17).wrapping_add(1))), false),
            (with(17, udp(53, 0)), false),
            (with(17, udp(4789, 0)), true),
            (with(132, udp(53, 0)), true),
            (with(47, udp(53, 0)), true),
            (with(if is_v6 { 58 } else { 1 }, udp(53, 0)), false),
            (with(89, udp(53, 0)), false),
        ]);
    }
    packets
}

#[test]
fn a_checksum_that_a_local_sender_has_left_to_the_device_is_not_carried() {
    for local_senders in [false, true] {
        let Some(bench) = Bench::new(&Take::Whole, local_senders) else { return };
        bench.publish(&stations(None), TagChange::Keep);
        for (frame, is_left) in transports() {
            let ordinary = tagged(&[], &[0x88, 0xb5, 0, 0]);
            for _ in 0..2 {
                bench.run(&ordinary);
            }
            assert_eq!(bench.state().2, 1, "the entry is open");
            let goes_up = is_left && local_senders;
            assert_eq!(bench.run(&frame), (!goes_up).then(|| frame.clone()), "{frame:02x?}");
            assert_eq!(bench.state().2, usize::from(!goes_up), "those behind it stay behind it");
        }
    }
}

#[test]
fn programs_for_tunnels_verify() {
    for local_senders in [false, true] {
        let Some(bench) = Bench::new(&Take::Tunnels(Vec::new()), local_senders) else { return };
        assert_eq!(bench.run(&plain()[0]), None);
    }
}

#[test]
fn packets_are_left_to_the_kernel_by_cause_and_family_and_tunnels_are_not() {
    let Some(bench) = Bench::new(&cases::take(), false) else { return };
    pairs().into_iter().for_each(|pair| bench.publish(&FlowKey::Addresses(pair), TagChange::Keep));
    cases::leaves(&bench.maps, |frame| {
        let number = || bench.windows.at(NUMBER_AT).load(Ordering::Relaxed);
        let (carried, taken) = (bench.state().0, number());
        let answer = test_run(bench.program.as_fd(), frame).expect("root runs programs");
        match (bench.state().0 > carried, number() > taken) {
            (true, _) => Fate::Carried,
            (false, true) => Fate::Taken,
            (false, false) => {
                assert_eq!(answer, (Action::Pass as i32).cast_unsigned());
                Fate::Kernel
            }
        }
    });
}
