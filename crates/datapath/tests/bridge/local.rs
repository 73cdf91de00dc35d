//! Frames that a bridge treats as its link's or its machine's own: link-local groups, the members' addresses, and what
//! leaves by the port that it came in by.

use crate::bench::{Arrival, BROADCAST, Bench, GROUP, frame, member, one_bridge, station, trunk, vlan};
use polder_buffers::PortId;
use polder_datapath::drops::DropReason;
use polder_datapath::forward::{
    BridgeOptions, FdbKey, FdbTime, ForwardGroups, LinkLocalGroup, MemberOptions, VlanMode,
};
use polder_datapath::units::Nanos;
use polder_datapath::wire::MacAddress;

fn members(ports: u16) -> Vec<MemberOptions> {
    (0..ports).map(|port| member(port, VlanMode::Transparent)).collect()
}

fn group(last: u8) -> MacAddress {
    MacAddress([1, 0x80, 0xc2, 0, 0, last])
}

/// Number of addresses learned.
fn learned(bench: &Bench) -> u64 {
    bench.state.counters().learned.get()
}

#[test]
fn listed_groups_are_forwarded_and_no_others() {
    use LinkLocalGroup::{Dot1x, Lacp, Lldp, Stp};
    for (listed, last) in [(Stp, 0), (Lacp, 2), (Dot1x, 3), (Lldp, 0xe)] {
        let forward_groups = [listed].into_iter().collect();
        let options = BridgeOptions { forward_groups, ..one_bridge(members(3)) };
        let mut bench = Bench::new(vec![options]);
        for other in (0..16).filter(|&other| other != last) {
            assert_eq!(bench.ports(0, group(other), station(1)), [], "{listed:?}, {other}");
        }
        assert_eq!((learned(&bench), bench.dropped(DropReason::ReservedMulticast)), (0, 15));
        assert_eq!(bench.ports(0, group(last), station(1)), [1, 2], "{listed:?}");
        assert_eq!(learned(&bench), 1, "as of any group");
    }
    let all: ForwardGroups = [Stp, Lacp, Dot1x, Lldp].into_iter().collect();
    assert!(!all.contains(1), "PAUSE is never forwarded");
}

/// On a VLAN-aware bridge too, whether a frame has a tag or not.
#[test]
fn tags_do_not_carry_link_local_groups_past_the_bridge() {
    let ports = (0..2).map(|port| member(port, trunk(&[7], None))).collect();
    let mut bench = Bench::new(vec![one_bridge(ports)]);
    for tags in [&[7][..], &[]] {
        assert_eq!(bench.pass_one(0, frame(group(2), station(1), tags, 0)), []);
    }
    assert_eq!((bench.dropped(DropReason::ReservedMulticast), learned(&bench)), (2, 0));
}

/// Member 2 is a host's TAP with this address.
fn with_host(mut members: Vec<MemberOptions>) -> Bench {
    members[2].own_address = Some(station(99));
    Bench::new(vec![one_bridge(members)])
}

#[test]
fn a_members_own_address_is_known_before_it_speaks_and_never_drawn_away() {
    let mut bench = with_host(members(3));
    assert_eq!(bench.ports(0, station(99), station(1)), [2], "not flooded");
    for to in [BROADCAST, station(1), station(99)] {
        assert_eq!(bench.ports(1, to, station(99)), []);
    }
    assert_eq!((bench.dropped(DropReason::OwnAddress), bench.drops.total()), (3, 3));
    assert_eq!(bench.state.counters().own_addresses.last(), Some((PortId(1), station(99))));
    assert_eq!(bench.ports(0, station(99), station(1)), [2], "as before");
    assert_eq!(bench.ports(2, station(1), station(99)), [0], "the host itself may");
}

/// A run of frames loses those with the address, and no others.
#[test]
fn other_frames_of_a_batch_with_a_forgery_go_on() {
    let mut bench = with_host(members(3));
    let from = [1, 99, 99, 3, 99].map(|from| Arrival::new(0, frame(BROADCAST, station(from), &[], from)));
    let left = bench.pass(&from).into_iter().map(|left| (left.egress, left.bytes[11])).collect::<Vec<_>>();
    assert_eq!(left, [(1, 1), (2, 1), (1, 3), (2, 3)]);
    assert_eq!(bench.dropped(DropReason::OwnAddress), 3);
}

#[test]
fn a_member_that_does_not_learn_passes_no_forgery_either() {
    let mut members = members(3);
    members[0].learning = false;
    let mut bench = with_host(members);
    assert_eq!(bench.ports(0, station(1), station(99)), []);
    assert_eq!(bench.ports(0, station(1), station(5)), [1, 2]);
    assert_eq!((bench.dropped(DropReason::OwnAddress), bench.drops.total()), (1, 1));
}

/// A trunk without a native VLAN has no entry in the database, and is protected and found all the same.
#[test]
fn an_own_address_holds_in_each_vlan() {
    let trunks = (0..3).map(|port| member(port, trunk(&[7, 8], None))).collect();
    let mut bench = with_host(trunks);
    assert_eq!(bench.pass_one(0, frame(BROADCAST, station(99), &[8], 0)), []);
    let to_host = bench.pass_one(0, frame(station(99), station(1), &[8], 0));
    assert_eq!(to_host.iter().map(|(port, _)| *port).collect::<Vec<_>>(), [2]);
    assert_eq!(bench.dropped(DropReason::OwnAddress), 1);
}

/// The address of a TAP is changed: what was learned of the new one elsewhere is forgotten, and the old one is free.
#[test]
fn a_changed_address_takes_its_entry_with_it() {
    let mut options = one_bridge(members(3));
    options.members[2].own_address = Some(station(99));
    let mut bench = Bench::new(vec![options.clone()]);
    bench.ports(0, BROADCAST, station(98));
    options.members[2].own_address = Some(station(98));
    bench.reload(vec![options.clone()]);
    let time = FdbTime::new(bench.now, 300);
    let port = |number| options.fdb.lookup(FdbKey::new(station(number), 0), time);
    assert_eq!((port(98), port(99)), (Some(PortId(2)), None));
    assert_eq!(bench.ports(0, BROADCAST, station(98)), []);
    assert_eq!(bench.ports(0, BROADCAST, station(99)), [1, 2]);
}

/// Two members may have one address, as ports of one machine often do; and a static entry overrules it.
#[test]
fn shared_and_bound_addresses_are_no_forgeries() {
    let mut options = one_bridge(members(4));
    options.members[1].own_address = Some(station(99));
    options.members[2].own_address = Some(station(99));
    let mut bench = Bench::new(vec![options.clone()]);
    assert_eq!(bench.ports(1, station(50), station(99)).len(), 3);
    assert_eq!(bench.ports(2, station(50), station(99)).len(), 3);
    assert_eq!(bench.ports(3, station(50), station(99)), []);
    let entry = polder_datapath::forward::StaticEntry { address: station(99), vlan: None, port: PortId(3) };
    options.static_entries.push(entry);
    bench.reload(vec![options]);
    assert_eq!(bench.ports(3, station(50), station(99)).len(), 3);
}

fn hairpin(ports: u16, limit: u32) -> Bench {
    let mut members = members(ports);
    members[0].hairpin = Some(limit);
    Bench::new(vec![one_bridge(members)])
}

#[test]
fn a_hairpin_member_gets_its_own_frames_back() {
    let mut bench = hairpin(3, 1000);
    assert_eq!(bench.ports(0, BROADCAST, station(1)), [0, 1, 2], "reflected and flooded");
    assert_eq!(bench.ports(0, station(1), station(2)), [0], "behind the same port");
    assert_eq!(bench.ports(0, station(9), station(2)), [0, 1, 2], "not known");
    assert_eq!(bench.ports(1, BROADCAST, station(3)), [0, 2], "other members have no hairpin");
    assert_eq!(bench.ports(1, station(3), station(4)), []);
    assert_eq!((bench.dropped(DropReason::SamePort), bench.drops.total()), (1, 1));
}

/// Of a tunnel with several remotes, a frame goes back to the remote that it is from, and to none of the others.
#[test]
fn a_remote_of_a_tunnel_reflects_to_itself_alone() {
    let mut members = members(4);
    for member in &mut members[1..] {
        member.split_horizon = Some(PortId(1));
        member.hairpin = Some(1000);
    }
    let mut bench = Bench::new(vec![one_bridge(members)]);
    assert_eq!(bench.ports(2, GROUP, station(2)), [0, 2]);
    assert_eq!(bench.ports(2, station(2), station(7)), [2]);
    assert_eq!(bench.ports(3, station(2), station(3)), [], "another remote's");
    assert_eq!(bench.dropped(DropReason::SamePort), 1);
}

#[test]
fn an_isolated_member_reflects_nothing() {
    let mut members = members(2);
    (members[0].hairpin, members[0].isolated) = (Some(1000), true);
    let mut bench = Bench::new(vec![one_bridge(members)]);
    assert_eq!(bench.ports(0, BROADCAST, station(1)), [1]);
}

#[test]
fn reflected_floods_have_a_limit_and_the_other_members_get_theirs() {
    let mut bench = hairpin(2, 10);
    let counts = (0..30).map(|_| bench.ports(0, BROADCAST, station(1)).len()).collect::<Vec<_>>();
    assert_eq!(counts.iter().filter(|&&count| count == 2).count(), 10, "{counts:?}");
    assert_eq!(counts.iter().filter(|&&count| count == 1).count(), 20, "{counts:?}");
    assert_eq!(bench.dropped(DropReason::HairpinLimit), 20);
    // That was a sign of a loop: frames to known stations go by the limit, for ten seconds.
    assert_eq!(bench.ports(0, station(1), station(2)), []);
    bench.now = bench.now + Nanos::from_seconds(5);
    let known = (0..30).filter(|_| bench.ports(0, station(1), station(2)) == [0]).count();
    assert_eq!(known, 10);
    bench.now = bench.now + Nanos::from_seconds(6);
    let known = (0..30).filter(|_| bench.ports(0, station(1), station(2)) == [0]).count();
    assert_eq!(known, 30);
}

/// A bridge alone with its hairpin member drops what is beyond the limit.
#[test]
fn a_flood_that_would_only_be_reflected_is_dropped_at_the_limit() {
    let mut bench = hairpin(1, 1);
    assert_eq!(bench.ports(0, BROADCAST, station(1)), [0]);
    assert_eq!(bench.ports(0, BROADCAST, station(1)), []);
    assert_eq!((bench.dropped(DropReason::HairpinLimit), bench.ledger.cloned.get()), (1, 0));
}

#[test]
fn a_station_that_moves_behind_a_hairpin_port_is_found_after_some_seconds() {
    let mut bench = hairpin(3, 1000);
    bench.ports(1, BROADCAST, station(1));
    bench.now = bench.now + Nanos::from_seconds(3);
    assert_eq!(bench.ports(0, BROADCAST, station(1)), []);
    assert_eq!(bench.dropped(DropReason::HairpinLoop), 1);
    assert_eq!(bench.state.counters().looped.last(), Some((PortId(0), station(1))));
    bench.now = bench.now + Nanos::from_seconds(1);
    assert_eq!(bench.ports(0, BROADCAST, station(1)), [0, 1, 2]);
}

/// A gateway of two members: 0 is the hairpin end, 1 has a station. `peer` is another such, or a bridge that reflects all.
struct Facing {
    ends: [Bench; 2],
    /// Frames on the cable, toward each end.
    cable: [Vec<Vec<u8>>; 2],
    /// Frames that crossed the cable.
    crossed: u64,
    /// Frames that members 1 were sent.
    heard: u64,
}

impl Facing {
    fn new(limits: [u32; 2]) -> Self {
        Self {
            ends: limits.map(|limit| hairpin(2, limit)),
            cable: [(); 2].map(|()| Vec::new()),
            crossed: 0,
            heard: 0,
        }
    }

    fn enter(&mut self, end: usize, ingress: u16, bytes: Vec<u8>) {
        for (port, bytes) in self.ends[end].pass_one(ingress, bytes) {
            match port {
                0 => {
                    self.cable[1 - end].push(bytes);
                    self.crossed += 1;
                }
                _ => self.heard += 1,
            }
        }
    }

    /// Sends frames from behind each end, and from the middle of the cable, toward each other and to all; their number.
    fn talk(&mut self) -> u64 {
        for (end, from, to) in [(0, 1, 2), (1, 2, 1)] {
            self.enter(end, 1, frame(BROADCAST, station(from), &[], 0));
            self.enter(end, 1, frame(station(to), station(from), &[], 1));
        }
        for (end, (from, to)) in [(0, (11, 12)), (1, (11, 12)), (0, (12, 11)), (1, (12, 11))] {
            self.cable[end].push(frame(BROADCAST, station(from), &[], 2));
            self.cable[end].push(frame(station(to), station(from), &[], 3));
        }
        12
    }

    /// Delivers the frames on the cable, 10 µs later.
    fn step(&mut self) {
        for end in [0, 1] {
            self.ends[end].now = self.ends[end].now + Nanos(10_000);
            for bytes in std::mem::take(&mut self.cable[end]) {
                self.enter(end, 0, bytes);
            }
        }
    }
}

/// Stations at both sides, and two in the middle, talk; nothing melts.
#[test]
fn two_facing_hairpin_ends_stay_within_their_limits() {
    // The second peer has a limit that it never reaches.
    for limits in [[100, 100], [100, 10_000_000]] {
        let mut facing = Facing::new(limits);
        let mut sent = 0;
        // Three seconds.
        for round in 0..300_000_u32 {
            if round % 10_000 == 0 {
                sent += facing.talk();
            }
            facing.step();
            let most = 20 * sent + 3 * 2 * 4 * 100 + 400;
            assert!(facing.crossed < most, "{limits:?}: {} crossed, {sent} were sent", facing.crossed);
            assert!(facing.heard < most, "{limits:?}: {} heard", facing.heard);
        }
        let end = &facing.ends[0];
        assert!(end.dropped(DropReason::HairpinLimit) > 0, "{limits:?}");
    }
}

/// A station behind one end is not moved behind its hairpin port by its own frames.
#[test]
fn frames_that_come_back_move_no_station() {
    let mut facing = Facing::new([1000, 1000]);
    for _ in 0..20 {
        facing.enter(0, 1, frame(BROADCAST, station(1), &[], 0));
        (0..10).for_each(|_| facing.step());
    }
    let end = &facing.ends[0];
    assert_eq!(end.dropped(DropReason::HairpinLoop), 20);
    assert_eq!((end.state.counters().moved.get(), end.state.counters().looped.count.get()), (0, 20));
    assert_eq!(facing.heard, 20, "each frame once, behind the other end");
}

/// Frames of a VLAN go back with their tag.
#[test]
fn reflected_frames_keep_their_vlan() {
    let mut ports = vec![member(0, trunk(&[7, 8], Some(8))), member(1, VlanMode::Access(vlan(7)))];
    ports[0].hairpin = Some(1000);
    let mut bench = Bench::new(vec![one_bridge(ports)]);
    let tagged = frame(BROADCAST, station(1), &[7], 0);
    assert_eq!(bench.pass_one(0, tagged.clone())[0], (0, tagged));
    let native = frame(BROADCAST, station(1), &[], 0);
    assert_eq!(bench.pass_one(0, native.clone()), [(0, native)]);
}
