//! Decisions of the stage, one by one: those that a random history meets too seldom.

use crate::bench::{
    Arrival, BROADCAST, Bench, GROUP, database, frame, member, one_bridge, station, trunk, vlan,
};
use polder_buffers::PortId;
use polder_datapath::drops::DropReason;
use polder_datapath::forward::{BridgeOptions, Bridges, FloodLimits, SweepCursor, VlanMode};
use polder_datapath::forward::{FdbKey, FdbTime};
use polder_datapath::stage::StageState as _;
use polder_datapath::units::Nanos;
use polder_datapath::wire::MacAddress;
use std::sync::Arc;

fn transparent_members(ports: u16) -> Vec<polder_datapath::forward::MemberOptions> {
    (0..ports).map(|port| member(port, VlanMode::Transparent)).collect()
}

/// Two ports; what comes in by port 0 is flooded within `limits`.
fn limited(limits: FloodLimits) -> Bench {
    let mut members = transparent_members(2);
    members[0].flood_limits = limits;
    Bench::new(vec![one_bridge(members)])
}

/// Number of `count` frames to `to` that pass, in batches of 50.
fn passes(bench: &mut Bench, ingress: u16, to: MacAddress, count: usize) -> usize {
    let arrivals = vec![Arrival::new(ingress, frame(to, station(1), &[], 0)); count];
    arrivals.chunks(50).map(|batch| bench.pass(batch).len()).sum()
}

#[test]
fn unknown_goes_everywhere_and_known_to_one_port() {
    let mut bench = Bench::transparent(3);
    assert_eq!(bench.ports(0, station(2), station(1)), [1, 2]);
    assert_eq!(bench.ports(1, station(1), station(2)), [0]);
    assert_eq!(bench.ports(0, station(2), station(1)), [1]);
    assert_eq!(bench.ports(2, BROADCAST, station(3)), [0, 1]);
    assert_eq!(bench.drops.total(), 0);
    assert_eq!(bench.state.counters().learned.get(), 3);
    assert_eq!(bench.state.counters().flooded.get(), 2);
}

#[test]
fn a_limit_that_is_used_up_stays_so_while_its_port_is_in_a_group() {
    let members = |split_horizon| {
        let mut members = transparent_members(3);
        members[2].flood_limits.multicast = Some(1);
        members[2].split_horizon = split_horizon;
        vec![one_bridge(members)]
    };
    let mut bench = Bench::new(members(None));
    assert_eq!(passes(&mut bench, 2, GROUP, 2), 2, "one, to two ports");
    bench.reload(members(Some(PortId(1))));
    bench.reload(members(None));
    assert_eq!(passes(&mut bench, 2, GROUP, 1), 0);
    assert_eq!(bench.dropped(DropReason::FloodLimit), 2);
}

/// A frame from one remote of a tunnel goes to none of the others, as a port's frames never go back by it.
#[test]
fn members_of_a_split_horizon_group_are_one_port() {
    let mut members = transparent_members(4);
    for member in &mut members[1..] {
        member.split_horizon = Some(PortId(1));
    }
    let mut bench = Bench::new(vec![one_bridge(members)]);
    assert_eq!(bench.ports(0, BROADCAST, station(9)), [1, 2, 3], "replicated to each");
    assert_eq!(bench.ports(1, BROADCAST, station(1)), [0]);
    assert_eq!(bench.ports(2, station(7), station(2)), [0], "not known");
    assert_eq!(bench.ports(3, station(1), station(3)), [], "behind another of the group");
    assert_eq!(bench.ports(0, station(2), station(9)), [2], "known behind one of them");
    assert_eq!((bench.dropped(DropReason::SamePort), bench.drops.total()), (1, 1));
    assert_eq!(bench.ledger.cloned.get(), 2);
}

#[test]
fn a_split_horizon_group_has_one_flood_limit() {
    let mut members = transparent_members(4);
    for member in &mut members[1..] {
        member.split_horizon = Some(PortId(1));
        member.flood_limits.broadcast = Some(2);
    }
    let mut bench = Bench::new(vec![one_bridge(members)]);
    let passed = (1..4).map(|port| passes(&mut bench, port, BROADCAST, 50)).sum::<usize>();
    assert_eq!(passed, 2);
}

#[test]
fn a_frame_of_zeros_is_refused() {
    let mut bench = Bench::transparent(2);
    assert_eq!(bench.pass_one(0, vec![0; 60]), []);
    assert_eq!(bench.pass_one(0, vec![0xff; 60]), []);
    assert_eq!(bench.dropped(DropReason::SourceMulticast), 2);
}

#[test]
fn a_flood_limit_lets_a_burst_pass_and_then_its_rate() {
    for (limit, burst) in [(0, 0), (1, 1), (63, 63), (64, 64), (640, 64), (650, 65), (1000, 100)] {
        let mut bench = limited(FloodLimits { unknown_unicast: Some(limit), ..FloodLimits::default() });
        assert_eq!(passes(&mut bench, 0, station(9), 300), burst, "burst at {limit}");
        let passed: usize = (0..40)
            .map(|_| {
                bench.now = bench.now + Nanos::from_millis(50);
                passes(&mut bench, 0, station(9), 150)
            })
            .sum();
        assert_eq!(passed, 2 * limit as usize, "two seconds at {limit}");
        bench.now = bench.now + Nanos::from_seconds(3600);
        assert_eq!(passes(&mut bench, 0, station(9), 300), burst, "no more after a quiet hour");
        let sent = (2 * burst + passed) as u64;
        assert_eq!(bench.dropped(DropReason::FloodLimit), 300 * 2 + 150 * 40 - sent);
    }
}

#[test]
fn flood_limits_stand_by_port_and_kind_and_spare_what_is_known() {
    let limits = FloodLimits { unknown_unicast: Some(2), multicast: Some(3), broadcast: Some(5) };
    let mut bench = limited(limits);
    assert_eq!(passes(&mut bench, 0, station(9), 50), 2);
    assert_eq!(passes(&mut bench, 0, GROUP, 50), 3);
    assert_eq!(passes(&mut bench, 0, BROADCAST, 50), 5);
    assert_eq!(passes(&mut bench, 1, BROADCAST, 50), 50, "the other port has no limit");
    assert_eq!(bench.ports(1, station(7), station(9)), [0]);
    assert_eq!(passes(&mut bench, 0, station(9), 50), 50, "no flood any more");
}

#[test]
fn a_refused_flood_is_learned_from() {
    let mut bench = limited(FloodLimits { broadcast: Some(0), ..FloodLimits::default() });
    assert_eq!(bench.ports(0, BROADCAST, station(1)), []);
    assert_eq!(bench.ports(1, station(1), station(2)), [0]);
    assert_eq!(bench.state.counters().flooded.get(), 1);
}

#[test]
fn reserved_groups_end_here_and_are_counted() {
    let mut bench = limited(FloodLimits { multicast: Some(1), ..FloodLimits::default() });
    for last in 0..=0xf {
        assert_eq!(bench.ports(0, MacAddress([1, 0x80, 0xc2, 0, 0, last]), station(1)), []);
    }
    assert_eq!(bench.dropped(DropReason::ReservedMulticast), 16);
    assert_eq!(bench.drops.total(), 16);
    assert_eq!(bench.state.counters().flooded.get(), 0);
    assert_eq!(bench.state.counters().learned.get(), 0, "the neighbour is not learned");
    let next = MacAddress([1, 0x80, 0xc2, 0, 0, 0x10]);
    assert_eq!(bench.ports(0, next, station(1)), [1], "the limit was not touched");
}

#[test]
fn entries_of_an_older_configuration_lead_nowhere() {
    let fdb = database(256);
    let lan = |name: &str, members| BridgeOptions {
        name: name.into(),
        fdb: Arc::clone(&fdb),
        ..one_bridge(members)
    };
    let trunks = |ports: &[u16]| ports.iter().map(|&port| member(port, trunk(&[1, 2], None))).collect();
    let mut bench = Bench::new(vec![lan("one", trunks(&[0, 1, 2]))]);
    let to = |number| frame(station(number), station(7), &[2], 0);
    for port in [1, 2] {
        bench.pass_one(port, frame(BROADCAST, station(u8::try_from(port).unwrap()), &[2], 0));
    }
    assert_eq!(bench.pass_one(0, to(1)).len(), 1);
    // The table is in use, and what was learned is not yet brought in line: port 1 has left the
    // bridge, port 2 does not carry the VLAN any more.
    let mut members: Vec<_> = trunks(&[0, 2, 3]);
    members[1].vlans = VlanMode::Access(vlan(1));
    let options = vec![lan("one", members), one_bridge(trunks(&[1]))];
    bench.bridges = Bridges::new(options, Arc::clone(&bench.links)).unwrap();
    bench.state.adopt(&bench.bridges);
    let departures = bench.pass_one(0, to(1));
    assert_eq!(departures.iter().map(|(port, _)| *port).collect::<Vec<_>>(), [3], "as good as unknown");
    assert_eq!(bench.pass_one(0, to(2)), []);
    assert_eq!(bench.dropped(DropReason::VlanNotAllowed), 1);
}

#[test]
fn a_copy_that_finds_no_buffer_is_counted_and_the_original_leaves() {
    let mut bench = Bench::with_slots(vec![one_bridge(transparent_members(6))], 66);
    let arrivals = vec![Arrival::new(0, frame(BROADCAST, station(1), &[], 0)); 64];
    let departures = bench.pass(&arrivals);
    let copies = 66 - 64;
    assert_eq!(departures.len(), 64 + copies);
    assert_eq!(departures.iter().filter(|departure| departure.egress == 5).count(), 64);
    assert_eq!(bench.dropped(DropReason::NoBuffer), 64 * 4 - copies as u64);
    assert_eq!(bench.ledger.cloned.get(), 64 * 4);
}

#[test]
fn a_full_database_makes_room_and_recovers() {
    let options = BridgeOptions { fdb: database(64), ..one_bridge(transparent_members(3)) };
    let fdb = Arc::clone(&options.fdb);
    let mut bench = Bench::new(vec![options]);
    for number in 1..=100 {
        bench.ports(0, BROADCAST, station(number));
    }
    let counters = Arc::clone(bench.state.counters());
    assert_eq!(fdb.occupied(), 64);
    assert_eq!((counters.learned.get(), counters.learn_failures.get()), (100, 0));
    assert_eq!(fdb.port(PortId(0)).evicted, 36);
    assert_eq!(bench.ports(1, station(100), station(200)), [0], "the last is known");
    let known = (1..=100).filter(|&number| bench.ports(1, station(number), station(200)) == [0]);
    assert_eq!(known.count(), 63, "and frames to others are flooded");
    // Those that were learned have aged; a sweep makes room.
    bench.now = bench.now + Nanos::from_seconds(302);
    let time = FdbTime::new(bench.now, 300);
    assert_eq!(fdb.sweep(&mut SweepCursor::default(), usize::MAX, time).removed, 64);
    bench.ports(0, BROADCAST, station(100));
    assert_eq!(fdb.lookup(FdbKey::new(station(100), 0), time), Some(PortId(0)));
}

/// A cable from port 0 to port 1 of one bridge: what leaves by one comes in by the other.
#[test]
fn a_loop_goes_round_at_the_rate_of_the_flood_limit() {
    let mut members = transparent_members(3);
    for member in &mut members {
        member.flood_limits.broadcast = Some(1000);
    }
    let mut bench = Bench::new(vec![one_bridge(members)]);
    let mut wire = vec![Arrival::new(2, frame(BROADCAST, station(1), &[], 0))];
    let mut heard = 0;
    for _ in 0..10_000 {
        bench.now = bench.now + Nanos(100_000);
        let departures = bench.pass(&wire);
        let across = |port| if port == 0 { 1 } else { 0 };
        heard += departures.iter().filter(|departure| departure.egress == 2).count();
        wire = departures
            .into_iter()
            .filter(|departure| departure.egress != 2)
            .map(|departure| Arrival::new(across(departure.egress), departure.bytes))
            .collect();
    }
    // Without a limit: two copies on every one of the 10 000 rounds.
    assert!(heard <= 2 * (1000 + 100), "{heard}");
    assert!(bench.state.counters().moved.get() > 100, "the address moves to and fro");
    assert_eq!(wire.len(), 0, "a frame that is refused twice does not come back");
}

/// One port sends from 100 000 addresses; a station that comes later is not flooded to.
#[test]
fn a_station_is_learnt_while_another_port_floods_the_database() {
    let mut bench = Bench::transparent(3);
    let random = |number: u32| {
        let [a, b, c, d] = number.wrapping_mul(0x9e37_79b9).to_be_bytes();
        Arrival::new(0, frame(station(1), MacAddress([2, 9, a, b, c, d]), &[], 0))
    };
    let flood = |bench: &mut Bench, numbers: core::ops::Range<u32>| {
        let frames: Vec<_> = numbers.map(random).collect();
        frames.chunks(64).for_each(|batch| _ = bench.pass(batch));
    };
    bench.ports(1, BROADCAST, station(1));
    flood(&mut bench, 0..50_000);
    bench.ports(2, station(1), station(2));
    assert_eq!(bench.ports(1, station(2), station(1)), [2], "to its port alone");
    flood(&mut bench, 50_000..100_000);
    assert_eq!(bench.ports(1, station(2), station(1)), [2], "and so it stays");
    assert_eq!(bench.state.counters().learn_failures.get(), 0);
    assert_eq!(bench.state.counters().flooded.get(), 1, "the first frame alone");
}

#[test]
fn a_port_learns_no_more_than_its_limit() {
    let mut members = transparent_members(3);
    members[0].fdb_max_learned = Some(2);
    let mut bench = Bench::new(vec![one_bridge(members)]);
    (1..=4).for_each(|number| _ = bench.ports(0, BROADCAST, station(number)));
    assert_eq!(bench.ports(1, station(2), station(9)), [0]);
    assert_eq!(bench.ports(1, station(3), station(9)), [0, 2], "not learnt, and reached all the same");
    assert_eq!((bench.state.counters().learned.get(), bench.state.counters().limited.get()), (3, 2));
}
