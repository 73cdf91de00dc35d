//! Random rules and packets: the classifier decides as the first rule of a list that fits.

use crate::oracle::{Spec, decide, rule, spec, with};
use polder_buffers::{Batch, PortId, Region, RegionOptions};
use polder_datapath::drops::{Context, DropCounters, DropReason, Ledger};
use polder_datapath::filter::{Action, Direction, FilterState, Filters, Rule, RuleCounts, filter};
use polder_datapath::units::Nanos;
use proptest::prelude::*;

/// The verdicts of the stage, and the packets that each rule has counted.
fn verdicts(rules: &[Rule], specs: &[Spec], direction: Direction) -> (Vec<Option<Action>>, Vec<u64>) {
    let region = Region::new(RegionOptions { slots: 512, slot_bytes: 2048 }).expect("memory for a test");
    let mut pool = region.pool();
    let mut counts = RuleCounts::new(1);
    counts.grow_to(rules.len());
    let numbered = rules.iter().cloned().zip(0..).collect::<Vec<_>>();
    let filters = Filters::new(&numbered, vec![0, 7, 0, 9], counts.clone()).expect("few rules");
    let mut state = FilterState::new(0, std::sync::Arc::default());
    let mut all = Vec::new();
    for specs in specs.chunks(64) {
        let (drops, ledger) = (DropCounters::default(), Ledger::default());
        let mut batch = Batch::new();
        for spec in specs {
            batch.push(spec.packet(direction, &mut pool)).expect("at most a batch");
        }
        let mut context = Context { now: Nanos(1), pool: &mut pool, drops: &drops, ledger: &ledger };
        filter(&mut batch, direction, &filters, &mut state, &mut context);
        for packet in batch.iter() {
            all.push(match DropReason::of(packet) {
                None => Some(Action::Accept),
                Some(DropReason::Filtered) => Some(Action::Drop),
                Some(DropReason::FilterRejected) => Some(Action::Reject),
                Some(_) => None,
            });
        }
        pool.release(&mut batch);
        pool.release(&mut state.replies);
    }
    (all, (0..).take(rules.len()).map(|slot| counts.get(slot).0).collect())
}

fn assert_same(rules: &[Rule], specs: &[Spec], direction: Direction) {
    let (found, counted) = verdicts(rules, specs, direction);
    let mut counts = vec![0; rules.len()];
    for (spec, found) in specs.iter().zip(found) {
        let expected = decide(rules, spec, direction);
        if let Some(position) = expected {
            counts[position] += 1;
        }
        let action = expected.map_or(Action::Accept, |position| rules[position].action);
        assert_eq!(found, Some(action), "{spec:?}\nrule {expected:?}: {:?}", expected.map(|at| &rules[at]));
    }
    assert_eq!(counted, counts);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn the_first_rule_that_fits_decides(
        rules in prop::collection::vec(rule(), 0..60),
        specs in prop::collection::vec(spec(), 1..130),
        direction in prop_oneof![Just(Direction::In), Just(Direction::Out)],
    ) {
        assert_same(&rules, &specs, direction);
    }

    /// Packets that a rule was made for, and their neighbours: chance alone rarely meets a long prefix.
    #[test]
    fn packets_at_the_edges_of_rules(
        rules in prop::collection::vec(rule(), 1..40),
        specs in prop::collection::vec(spec(), 1..20),
        choice in any::<u64>(),
    ) {
        let mut edges = Vec::new();
        for (number, spec) in specs.iter().enumerate() {
            for (at, rule) in rules.iter().enumerate() {
                edges.push(with(rule, spec, choice.rotate_left((number * 7 + at) as u32)));
            }
        }
        assert_same(&rules, &edges, Direction::In);
    }
}

/// As many rules as need tables of all kinds, and crowds in buckets.
#[test]
fn thousands_of_rules() {
    let mut random = 1_u64;
    let mut next = move || {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        random >> 33
    };
    let mut rules = Vec::new();
    for number in 0..3000_u64 {
        let bits = [0, 8, 12, 16, 20, 24, 28, 30, 32][(next() % 9) as usize];
        let address = std::net::Ipv4Addr::from_bits((10 << 24) | (next() as u32 & 0x003f_ffff));
        let prefix = polder_datapath::filter::Prefix { address: address.into(), bits };
        let port = (next() % 2000) as u16;
        let list =
            if number % 3 == 0 { vec![port..=port] } else { vec![port..=port + (next() % 300) as u16] };
        let actions = [Action::Accept, Action::Drop, Action::Reject];
        let mut rule = Rule { action: actions[(next() % 3) as usize], ..Rule::default() };
        match number % 4 {
            0 => rule.destinations.push(prefix),
            1 => (rule.sources, rule.destination_ports) = (vec![prefix], list),
            2 => (rule.destinations, rule.source_ports) = (vec![prefix], list),
            _ => (rule.protocols, rule.destination_ports) = (vec![6], list),
        }
        rules.push(rule);
    }
    let specs = (0..2000).map(|_| {
        let address =
            |random: u64| std::net::IpAddr::from((0x0a00_0000 | random as u32 & 0x003f_ffff).to_be_bytes());
        Spec {
            port: PortId(0),
            source: address(next()),
            destination: address(next()),
            protocol: [6, 17][(next() % 2) as usize],
            source_port: (next() % 2500) as u16,
            destination_port: (next() % 2500) as u16,
            ..Spec::default()
        }
    });
    assert_same(&rules, &specs.collect::<Vec<_>>(), Direction::In);
}

#[test]
fn an_unreadable_packet_is_refused_and_a_strange_one_is_not() {
    let rules = [Rule { vlans: vec![77..=77], action: Action::Drop, ..Rule::default() }];
    let cut = |protocol, cut| Spec { protocol, cut, ..Spec::default() };
    let verdict = |spec: Spec| verdicts(&rules, &[spec], Direction::In).0[0];
    assert_eq!(verdict(cut(6, 9)), None, "a TCP header without its flags");
    assert_eq!(verdict(cut(17, 17)), None, "a UDP header without its ports");
    assert_eq!(verdict(cut(47, 20)), Some(Action::Accept), "no ports are due");
    assert_eq!(verdict(Spec { fragment_offset: 8, ..cut(6, 0) }), None, "overwrites flags");
    assert_eq!(verdict(Spec { fragment_offset: 8, ..cut(17, 0) }), Some(Action::Accept));
    assert_eq!(verdict(Spec { ether_type: Some(0x0806), ..Spec::default() }), Some(Action::Accept));
}
