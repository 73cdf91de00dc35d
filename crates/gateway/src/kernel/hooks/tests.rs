//! Tests of the verdicts on rulesets from real kernels, and of hostile bytes.

use super::chain_walk::{Chains, FoundEffect, Packet};
use super::legacy;
use super::nft::Reader;
use super::policy;
use super::ruleset::{Chain, Field, Hook, NAME_BYTES, Ruleset};
use super::tc;
use proptest::prelude::*;

/// Docker's chains by iptables-nft, and others by nft: type and body of each message, as Linux 6.18 told them.
const NF_TABLES: &str = include_str!("recorded/nf_tables.hex");
/// The table `filter` of iptables-legacy: `ipt_getinfo` and its entries.
const IP_TABLES: &str = include_str!("recorded/ip_tables.hex");

fn bytes(hex: &str) -> Vec<u8> {
    let digit = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).expect("hexadecimal digits");
    (0..hex.len() / 2).map(|at| digit(2 * at)).collect()
}

fn messages() -> Vec<(u16, Vec<u8>)> {
    let message = |line: &str| {
        let (kind, body) = line.split_once(' ').expect("type and body");
        (u16::from_str_radix(kind, 16).expect("a type"), bytes(body))
    };
    NF_TABLES.lines().map(message).collect()
}

fn read(messages: &[(u16, Vec<u8>)]) -> Ruleset {
    let mut reader = Reader::default();
    messages.iter().for_each(|(kind, body)| reader.take(*kind, body));
    reader.finish()
}

fn ip_tables() -> (Vec<u8>, Vec<u8>) {
    let mut lines = IP_TABLES.lines().map(bytes);
    (lines.next().expect("the first line"), lines.next().expect("the second line"))
}

fn name(name: &str) -> Vec<u8> {
    let mut bytes = name.as_bytes().to_vec();
    bytes.resize(NAME_BYTES, 0);
    bytes
}

/// An IPv4 packet from one interface to another.
fn packet(from: &str, to: &str) -> Packet {
    Packet::default()
        .with(Field::Version, vec![vec![2]])
        .with(Field::InName, vec![name(from)])
        .with(Field::OutName, vec![name(to)])
}

/// First effect of the base chain of that name.
fn would(ruleset: &Ruleset, (table, chain): (&str, &str), packet: &Packet) -> Option<String> {
    let is_it = |of: &&Chain| of.table == table && of.name == chain;
    let base = ruleset.chains.iter().find(is_it).expect(chain);
    let found = Chains::of([ruleset]).walk(base, packet);
    found.map(|FoundEffect { effect, rule }| match rule {
        Some((chain, _)) => format!("{effect} ({chain})"),
        None => effect,
    })
}

#[test]
fn dockers_chains_are_for_its_own_interface_but_for_the_policy() {
    let ruleset = read(&messages());
    let forward = |from, to| would(&ruleset, ("filter", "FORWARD"), &packet(from, to));
    assert_eq!(forward("lan", "wan").as_deref(), Some("drop them"), "the policy");
    assert_eq!(forward("docker0", "docker0"), None, "accepted by interface");
    assert_eq!(forward("lan", "docker0").as_deref(), Some("drop them (DOCKER)"));
    let nat = |to| would(&ruleset, ("nat", "POSTROUTING"), &packet("lan", to));
    assert_eq!(nat("wan").as_deref(), Some("masquerade them (POSTROUTING)"));
    assert_eq!(nat("docker0"), None);
}

#[test]
fn sets_maps_and_wildcards_of_interfaces_are_looked_up() {
    let ruleset = read(&messages());
    let forward = |from, to| would(&ruleset, ("own", "forw"), &packet(from, to));
    assert_eq!(forward("lan", "wan"), None);
    assert_eq!(forward("dmz", "w1"), None);
    assert_eq!(forward("lan", "x").as_deref(), Some("drop them"), "the policy");
    assert_eq!(forward("tun9", "x").as_deref(), Some("drop them (forw)"));
    assert_eq!(forward("wan", "x").as_deref(), Some("drop them (stale)"));
    // An interface of which one of several is meant is both.
    let several = packet("lan", "wan").with(Field::InName, vec![name("lan"), name("x")]);
    assert_eq!(would(&ruleset, ("own", "forw"), &several).as_deref(), Some("drop them"));
}

#[test]
fn a_tunnels_packets_are_known_by_protocol_and_not_by_set_of_addresses() {
    let ruleset = read(&messages());
    let gre = packet("lan", "").with(Field::Protocol, vec![vec![47]]);
    let of = |source: [u8; 4]| {
        would(&ruleset, ("own", "inp"), &gre.clone().with(Field::Source, vec![source.to_vec()]))
    };
    assert_eq!(of([192, 0, 2, 7]), None);
    assert_eq!(of([192, 0, 3, 7]).as_deref(), Some("drop them"));
}

#[test]
fn chains_of_interfaces_and_bridges_have_their_hooks() {
    let ruleset = read(&messages());
    let base = |name: &str| {
        let chain = ruleset.chains.iter().find(|chain| chain.name == name && chain.base.is_some());
        chain.and_then(|chain| chain.base.clone()).expect(name)
    };
    assert_eq!((base("i").hook, base("i").devices), (Hook::Ingress, vec!["pdnf0".to_owned()]));
    assert_eq!(base("f").hook, Hook::Forward);
    assert_eq!(would(&ruleset, ("b", "f"), &packet("lan", "wan")).as_deref(), Some("rewrite them (f)"));
    assert_eq!(would(&ruleset, ("early", "i"), &packet("pdnf0", "")).as_deref(), Some("drop them (i)"));
}

#[test]
fn legacy_tables_are_chains_like_others() {
    let (info, entries) = ip_tables();
    let ruleset = Ruleset { chains: legacy::chains(&legacy::V4, "filter", &info, &entries) };
    // A chain that rules call ends with a rule that returns; the last chain is the table's end.
    let names = ruleset.chains.iter().map(|chain| (chain.name.as_str(), chain.rules.len()));
    assert_eq!(
        names.collect::<Vec<_>>(),
        [("INPUT", 0), ("FORWARD", 3), ("OUTPUT", 0), ("DOCKER", 3), ("DOCKER2", 2), ("ERROR", 0)]
    );
    let forward = |packet: &Packet| would(&ruleset, ("filter", "FORWARD"), packet);
    assert_eq!(forward(&packet("lan", "w1")), None, "accepted");
    assert_eq!(forward(&packet("lan", "docker0")).as_deref(), Some("drop them (DOCKER)"));
    assert_eq!(forward(&packet("lan", "x")).as_deref(), Some("reject them (DOCKER2)"));
    let udp = packet("lan", "x").with(Field::Protocol, vec![vec![17]]);
    assert_eq!(forward(&udp).as_deref(), Some("drop them"), "the policy");
}

/// Recorded messages with bytes changed, and cut.
fn hostile() -> impl Strategy<Value = Vec<(u16, Vec<u8>)>> {
    let count = messages().len();
    let change = (0..count, any::<usize>(), any::<u8>(), any::<Option<u16>>());
    proptest::collection::vec(change, 1..24).prop_map(|changes| {
        let mut messages = messages();
        for (which, place, value, cut) in changes {
            let (_, body) = &mut messages[which];
            let length = body.len().max(1);
            if let Some(byte) = body.get_mut(place % length) {
                *byte = value;
            }
            if let Some(cut) = cut {
                body.truncate(usize::from(cut));
            }
        }
        messages
    })
}

proptest! {
    #[test]
    fn hostile_rulesets_are_read_and_walked(messages in hostile()) {
        let ruleset = read(&messages);
        let chains = Chains::of([&ruleset]);
        for chain in &ruleset.chains {
            chains.walk(chain, &packet("lan", "wan"));
        }
    }

    #[test]
    fn hostile_tables_are_read_and_walked(place: usize, value: u8, other: usize, cut: Option<u16>) {
        let (mut info, mut entries) = ip_tables();
        let (length, others) = (entries.len(), info.len());
        entries[place % length] = value;
        info[other % others] ^= value;
        entries.truncate(cut.map_or(length, usize::from));
        for layout in [&legacy::V4, &legacy::V6] {
            let ruleset = Ruleset { chains: legacy::chains(layout, "filter", &info, &entries) };
            let chains = Chains::of([&ruleset]);
            for chain in &ruleset.chains {
                chains.walk(chain, &packet("lan", "wan"));
            }
        }
    }

    #[test]
    fn any_bytes_are_read(kind: u16, bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let mut reader = Reader::default();
        for kind in [kind, 0x0a00, 0x0a03, 0x0a06, 0x0a09, 0x0a0c] {
            reader.take(kind, &bytes);
        }
        reader.wanted_sets();
        reader.finish();
        tc::filter(true, &bytes);
        policy::rule(&bytes);
        policy::ipsec(&bytes);
        policy::ipsec_default(&bytes);
        legacy::chains(&legacy::V4, "filter", &bytes, &bytes);
    }
}
