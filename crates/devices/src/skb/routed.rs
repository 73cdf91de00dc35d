//! The part of a router's program that carries flows, run on frames: those that it leaves to the stage, and how.

use super::connections::{ConnectionTable, evidence};
use super::program::{NEXT, ToTap};
use crate::bpf::flows::packets::{pairs, plain, v4, v6};
use crate::bpf::sys::{ProgramKind, load, test_run, test_run_segments};
use crate::bpf::taken::TakenMaps;
use crate::bpf::window::{COMPLETED_AT, NUMBER_AT, Windows};
use crate::bpf::yielded::cases::{self, Fate};
use crate::bpf::{FlowTable, Ingress, LocalPrefixes, Take};
use crate::netlink::link::LinkLayer;
use core::sync::atomic::Ordering;
use polder_buffers::PortId;
use polder_datapath::fast_path::{FastPath as _, FlowKey, Forwarding, LinkAddresses, TagChange, Validity};
use polder_datapath::route::Prefix;
use polder_datapath::wire::MacAddress;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd as _, OwnedFd};

/// The longest frame that leaves by the loopback interface, as the entries say.
const LONGEST: u32 = 214;

/// A router's program with an entry for IPv4 and one for IPv6.
struct Bench {
    program: OwnedFd,
    flows: FlowTable,
    maps: TakenMaps,
    windows: Windows,
    longest: u32,
}

impl Bench {
    fn new() -> Option<Self> {
        Self::with(LONGEST)
    }

    /// `None` without the right to load programs; the namespace tests say so.
    fn with(longest: u32) -> Option<Self> {
        let windows = Windows::new(1, 1 << 20).ok()?;
        let maps = TakenMaps::new(&cases::take(), Default::default()).ok()?;
        let flows = FlowTable::new(1, 1, maps.taken().frames()).ok()?;
        // The kernel runs programs on frames as if the loopback interface had brought them, and redirects none.
        let target = ToTap {
            interface: 1,
            layer: LinkLayer::Ethernet,
            tap: 1,
            queues: 1,
            windows: windows.as_fd(),
            window_bytes: 1 << 20,
            whole: &[libc::IPPROTO_TCP],
            connections: None,
        };
        let program = maps.taken().program(&target, Some((&target, flows.maps())));
        let program = load(ProgramKind::Tcx, "polder_router", &program).expect("the verifier takes it");
        // The worker is through with all that it will get.
        windows.at(COMPLETED_AT).store(u64::MAX / 2, Ordering::Relaxed);
        flows.set_version(1, |_| true);
        let bench = Self { program, flows, maps, windows, longest };
        bench.publish(1);
        Some(bench)
    }

    /// Publishes both entries by tables of that version.
    fn publish(&self, version: u64) {
        let link = Some(LinkAddresses { destination: MacAddress([4; 6]), source: MacAddress([6; 6]) });
        for pair in pairs() {
            let forwarding = Forwarding {
                from: PortId(0),
                port: PortId(1),
                interface: 1,
                longest: self.longest,
                tag: TagChange::Keep,
                vlan: 0,
                outer: None,
                link,
            };
            let validity = Validity { version, moves: 0 };
            self.flows.publish(&FlowKey::Addresses(pair), &forwarding, validity);
        }
    }

    /// Packets carried, and open entries.
    fn state(&self) -> (u64, usize) {
        let entries = self.flows.entries().expect("entries are read");
        (
            entries.iter().map(|entry| entry.packets).sum(),
            entries.iter().filter(|entry| entry.is_open).count(),
        )
    }

    /// Fate of a frame at the program.
    fn fate(&self, frame: &[u8]) -> Fate {
        let number = || self.windows.at(NUMBER_AT).load(Ordering::Relaxed);
        let (carried, taken) = (self.state().0, number());
        let answer = test_run(self.program.as_fd(), frame).expect("root runs programs");
        match (self.state().0 > carried, number() > taken) {
            (true, _) => Fate::Carried,
            (false, true) => Fate::Taken,
            (false, false) => {
                assert_eq!(answer, NEXT.cast_unsigned(), "the next program has it");
                Fate::Kernel
            }
        }
    }

    /// Runs the program on a frame.
    fn run(&self, frame: &[u8]) {
        test_run(self.program.as_fd(), frame).expect("root runs programs");
    }

    /// Opens both entries, and says if a frame is carried, and how many entries are open then.
    fn pass(&self, frame: &[u8]) -> (bool, usize) {
        for _ in 0..2 {
            plain().iter().for_each(|plain| self.run(plain));
        }
        let (before, open) = self.state();
        assert_eq!(open, 2, "both entries are open");
        self.run(frame);
        let (carried, open) = self.state();
        (carried > before, open)
    }
}

/// A packet of so many bytes in all.
fn long(is_v6: bool, bytes: u8) -> Vec<u8> {
    let mut frame = if is_v6 { v6(&[(5, bytes - 14 - 40)]) } else { v4(&[(3, bytes - 14)]) };
    frame.resize(bytes.into(), 0x5a);
    frame
}

#[test]
fn ordinary_packets_are_carried() {
    let Some(bench) = Bench::new() else { return };
    let [of_v4, of_v6] = plain();
    for frame in [
        of_v4,
        of_v6,
        v4(&[(1, 0xbb)]),
        v4(&[(6, 0x40)]),
        v4(&[(6, 0x20)]),
        v4(&[(7, 3)]),
        v4(&[(8, 2)]),
        v4(&[(9, 6)]),
        v6(&[(7, 2)]),
        v6(&[(6, 44)]),
        long(false, 214),
        long(true, 214),
    ] {
        assert_eq!(bench.pass(&frame), (true, 2), "{frame:02x?}");
    }
}

/// Packets that the stage treats in another way go up, and those behind them stay behind them.
#[test]
fn odd_packets_of_a_pair_go_up_and_close_its_entry() {
    let Some(bench) = Bench::new() else { return };
    let [of_v4, of_v6] = plain();
    let changed = |frame: &[u8], at: usize| {
        let mut frame = frame.to_vec();
        frame[at] ^= 1;
        frame
    };
    for frame in [
        v4(&[(8, 0)]),
        v4(&[(8, 1)]),
        v4(&[(0, 0x46)]),
        v4(&[(0, 0x44)]),
        v4(&[(0, 0x55)]),
        v4(&[(3, 59)]),
        v4(&[(3, 61)]),
        v4(&[(2, 1)]),
        changed(&of_v4, 14 + 10),
        changed(&of_v4, 14 + 11),
        [&of_v4[..], &[0]].concat(),
        of_v4[..of_v4.len() - 1].to_vec(),
        v6(&[(7, 0)]),
        v6(&[(7, 1)]),
        v6(&[(6, 0)]),
        v6(&[(0, 0x7b)]),
        v6(&[(5, 39)]),
        v6(&[(4, 1)]),
        [&of_v6[..], &[0]].concat(),
        of_v6[..of_v6.len() - 1].to_vec(),
        long(false, 215),
        long(true, 215),
    ] {
        assert_eq!(bench.pass(&frame), (false, 1), "{frame:02x?}");
    }
}

/// A change of a way ends its entries; a change of others leaves them, and entries of newer tables hold.
#[test]
fn entries_end_with_their_way() {
    let Some(bench) = Bench::new() else { return };
    let [plain, _] = plain();
    let is_carried = |bench: &Bench| {
        (0..3).for_each(|_| bench.run(&plain));
        let before = bench.state().0;
        bench.run(&plain);
        bench.state().0 > before
    };
    assert!(is_carried(&bench));
    bench.flows.set_version(2, |way| way == (PortId(1), PortId(0)));
    assert!(is_carried(&bench), "the other way has changed");
    assert!(bench.flows.entries().expect("entries are read").iter().all(|entry| entry.is_valid));
    bench.flows.set_version(3, |way| way == (PortId(0), PortId(1)));
    assert!(!is_carried(&bench), "the way has changed");
    assert!(bench.flows.entries().expect("entries are read").iter().all(|entry| !entry.is_valid));
    // What tables from before the change say is not entered; what newer ones say is, and holds beside other changes.
    bench.publish(2);
    assert!(!is_carried(&bench));
    bench.publish(3);
    bench.flows.set_version(4, |_| false);
    assert!(is_carried(&bench));
}

/// Segments of a super-packet fit the interface, but not a route whose MTU is less.
#[test]
fn super_packets_go_up_where_the_way_out_is_narrower_than_its_interface() {
    for (longest, is_carried) in [(LONGEST, false), (65_536 + 14, true)] {
        let Some(bench) = Bench::with(longest) else { return };
        let long = long(false, 250);
        plain().iter().for_each(|plain| bench.run(plain));
        plain().iter().for_each(|plain| bench.run(plain));
        let (before, _) = bench.state();
        test_run_segments(bench.program.as_fd(), &long, [2, 150]).expect("root runs programs");
        assert_eq!(
            bench.state().0 - before,
            if is_carried { 2 } else { 0 },
            "{longest}: as they are on a link"
        );
    }
}

#[test]
fn packets_of_other_pairs_and_stations_are_left_alone() {
    let Some(bench) = Bench::new() else { return };
    for plain in plain() {
        let ends = if plain[12] == 8 { [26, 30] } else { [22, 38] };
        let tagged = |tags: &[u8]| [&plain[..12], tags, &plain[12..]].concat();
        let mut frames = vec![
            tagged(&[0x81, 0, 0, 7]),
            tagged(&[0x81, 0, 0x60, 0]),
            tagged(&[0x81, 0, 0, 7, 0x81, 0, 0, 7]),
            tagged(&[0x88, 0xa8, 0, 7]),
        ];
        frames.extend([0, 5, 13, ends[0], ends[1] + 3].map(|at| {
            let mut frame = plain.clone();
            frame[at] ^= 4;
            frame
        }));
        for frame in frames {
            assert_eq!(bench.pass(&frame), (false, 2), "{frame:02x?}");
        }
    }
}

#[test]
fn entries_end_with_their_validity() {
    let Some(bench) = Bench::new() else { return };
    let [of_v4, _] = plain();
    assert!(bench.pass(&of_v4).0);
    let (before, _) = bench.state();
    bench.flows.count_move();
    bench.run(&of_v4);
    assert_eq!(bench.state().0, before, "routes have changed");
}

#[test]
fn packets_are_left_to_the_kernel_by_cause_and_family_and_tunnels_are_not() {
    let Some(bench) = Bench::new() else { return };
    cases::leaves(&bench.maps, |frame| bench.fate(frame));
}

/// An offer may be for an address that the machine does not have yet.
#[test]
fn packets_for_a_client_of_dhcp_are_the_kernels_where_it_may_have_one() {
    let Some(bench) = Bench::new() else { return };
    let to_port = |port: u16, changes: &[(usize, u8)]| {
        let mut frame = v4(&[&[(19, 77)], changes].concat());
        frame[36..38].copy_from_slice(&port.to_be_bytes());
        frame
    };
    let offer = to_port(68, &[]);
    let others = [
        to_port(67, &[]),
        to_port(68 << 8, &[]),
        to_port(68, &[(9, 6)]),
        to_port(68, &[(7, 1)]),
        to_port(68, &[(0, 0x46)]),
    ];
    let client = LocalPrefixes { network: Prefix::host(Ipv4Addr::UNSPECIFIED.into()), is_kernels: true };
    for (lands, fate) in [(&[][..], Fate::Taken), (&[client], Fate::Kernel), (&[], Fate::Taken)] {
        bench.maps.set_router(&[Ingress { mac: [2, 0, 0, 0, 0, 1], vlan: 0 }], lands).expect("it routes");
        assert_eq!(bench.fate(&offer), fate);
        for other in &others {
            assert_eq!(bench.fate(other), Fate::Taken, "{other:02x?}");
        }
    }
}

/// The kernel's test runs give every packet an Ethernet header; what the programs do to packets without one is tested
/// in namespaces.
#[test]
fn the_verifier_takes_programs_for_packets_without_a_header() {
    // Without the right to load programs the namespace tests say so.
    let (Ok(windows), Ok(table)) = (Windows::new(2, 1 << 20), ConnectionTable::new(16)) else { return };
    let routed = cases::take();
    let Take::Routed(endpoints) = routed.clone() else { panic!("a router's port") };
    for (take, connections) in
        [(routed.clone(), None), (routed, Some(&table)), (Take::Tunnels(endpoints), None)]
    {
        let target = ToTap {
            interface: 1,
            layer: LinkLayer::Packets,
            tap: 1,
            queues: 2,
            windows: windows.as_fd(),
            window_bytes: 1 << 20,
            whole: &[libc::IPPROTO_TCP],
            connections: connections.map(ConnectionTable::maps),
        };
        let taken = TakenMaps::new(&take, Default::default()).expect("maps can be made");
        let flows = FlowTable::new(1, 2, taken.taken().frames()).expect("maps can be made");
        for carries in [false, true] {
            let program = taken.taken().program(&target, carries.then(|| (&target, flows.maps())));
            load(ProgramKind::Tcx, "polder_router", &program).expect("the verifier takes it");
        }
    }
    let program = evidence(table.maps(), LinkLayer::Packets);
    load(ProgramKind::Tcx, "polder_evidence", &program).expect("the verifier takes it");
}
