//! `bridge_vlan_aware` and `bridge_vlan_mcast`: a bridge that keeps VLANs apart.

use super::bridge::{
    Configuration, HOSTS, KIND, flooding_off, goes_to, group_is_flooded, learning_off, learnt_is_not_flooded,
    unknown_is_flooded,
};
use super::net::{Forwarder, Net};
use super::{Check, Mutant, Part};
use anyhow::ensure;
use polder_testbed::topology::Topology;

/// The selftest `bridge_vlan_aware`; untagged frames are of VLAN 1, and VLAN 10 is tagged.
pub(super) const AWARE: Part = Part {
    name: "bridge_vlan_aware",
    modules: &["veth", "bridge", "8021q"],
    lay,
    checks: &[
        Check { name: "ping_ipv4", lacks: None, run: |net| net.reaches("h1", "192.0.2.2", &[]) },
        Check { name: "ping_ipv6", lacks: None, run: |net| net.reaches("h1", "2001:db8:1::2", &[]) },
        Check { name: "unknown_is_flooded", lacks: None, run: unknown_is_flooded },
        Check { name: "learnt_is_not_flooded", lacks: None, run: learnt_is_not_flooded },
        Check { name: "learning_off", lacks: None, run: |net| learning_off(net, &TRUNK) },
        Check { name: "flooding_off_unknown", lacks: None, run: |net| flooding_off(net, &TRUNK) },
        Check { name: "group_is_flooded", lacks: None, run: group_is_flooded },
        Check { name: "untagged_stays_untagged", lacks: None, run: |net| passes(net, &[], Some(&[])) },
        Check { name: "tagged_stays_tagged", lacks: None, run: |net| passes(net, &TEN, Some(&TEN)) },
        Check {
            name: "native_tag_is_removed",
            lacks: None,
            run: |net| passes(net, &[0x81, 0, 0, 1], Some(&[])),
        },
        Check { name: "8021p", lacks: None, run: |net| passes(net, &[0x81, 0, 0xa0, 0], Some(&[])) },
        Check { name: "vlan_of_nobody", lacks: None, run: |net| passes(net, &[0x81, 0, 0, 30], None) },
        Check {
            name: "other_tpid",
            lacks: None,
            run: |net| passes(net, &[0x88, 0xa8, 0, 10], Some(&[0x88, 0xa8, 0, 10])),
        },
        Check { name: "vlan_deletion", lacks: None, run: vlan_deletion },
        Check { name: "drop_untagged", lacks: None, run: drop_untagged },
        Check {
            name: "extern_learn",
            lacks: Some("Polder's FDB takes no entries from outside but those of the file"),
            run: extern_learn,
        },
    ],
    mutants: &[
        Mutant {
            name: "tag_left",
            begin: &["bridge vlan add dev sw2 vid 1 pvid"],
            fault: None,
            end: &["bridge vlan add dev sw2 vid 1 pvid untagged"],
            check: "untagged_stays_untagged",
        },
        Mutant {
            name: "tag_removed",
            begin: &["bridge vlan add dev sw2 vid 10 untagged"],
            fault: None,
            end: &["bridge vlan add dev sw2 vid 10"],
            check: "tagged_stays_tagged",
        },
        Mutant {
            name: "vlans_not_kept_apart",
            begin: &["ip link set br0 type bridge vlan_filtering 0"],
            fault: None,
            end: &["ip link set br0 type bridge vlan_filtering 1"],
            check: "vlan_of_nobody",
        },
    ],
};

const NO_SNOOPING: &str =
    "Polder has no IGMP and MLD snooping: groups go to all members (docs/guide/bridge.md)";

/// The selftest `bridge_vlan_mcast`, which is about snooping in each VLAN.
pub(super) const MULTICAST: Part = Part {
    name: "bridge_vlan_mcast",
    modules: &["veth", "bridge", "8021q"],
    lay,
    checks: &[
        Check { name: "unregistered_group_is_flooded", lacks: None, run: group_is_flooded },
        Check { name: "vlan_snooping_can_be_switched_on", lacks: Some(NO_SNOOPING), run: snooping },
    ],
    mutants: &[],
};

const TEN: [u8; 4] = [0x81, 0, 0, 10];
const TRUNK: Configuration = Configuration { member: "vlan = { trunk = [1, 10], native = 1 }" };
const TAGGED_ALONE: Configuration = Configuration { member: "vlan = { trunk = [1, 10] }" };

fn lay(topology: &mut Topology, who: Forwarder) -> anyhow::Result<Net> {
    let lines = &[
        "ip link add br0 type bridge vlan_filtering 1 mcast_snooping 0",
        "ip link set sw1 master br0",
        "ip link set sw2 master br0",
        "ip link set sw3 master br0",
        "ip link set br0 up",
        "bridge vlan add dev sw1 vid 10",
        "bridge vlan add dev sw2 vid 10",
        "bridge vlan add dev sw3 vid 10",
    ];
    Net::lay(topology, who, &HOSTS)?.with(topology, lines, &TRUNK.tables(""))
}

/// A frame from `h1` to `h2` with these bytes behind the addresses.
fn frame(net: &Net, tag: &[u8]) -> anyhow::Result<Vec<u8>> {
    let (source, destination) = (net.host_mac("h1")?, net.host_mac("h2")?);
    Ok([destination.as_slice(), &source, tag, &KIND.to_be_bytes(), &[0x51; 50]].concat())
}

/// A frame with one tag arrives with another, or not at all.
fn passes(net: &Net, tag: &[u8], arrives: Option<&[u8]>) -> anyhow::Result<()> {
    net.reaches("h1", "192.0.2.2", &[])?;
    net.discard();
    net.send("h1", &frame(net, tag)?)?;
    let is_ours = |seen: &[u8]| seen.get(seen.len().saturating_sub(50)..) == Some(&[0x51; 50]);
    let Some(arrives) = arrives else { return net.none_arrive("h2", is_ours) };
    let (seen, wanted) = (net.arrive("h2", 1, is_ours)?, frame(net, arrives)?);
    ensure!(seen == [wanted.as_slice()], "arrived: {:02x?}", seen.first().map(|frame| &frame[..20]));
    Ok(())
}

/// A member without the VLAN gets none of its frames, and gets them again.
fn vlan_deletion(net: &Net) -> anyhow::Result<()> {
    let without = TRUNK.tables("").replacen(
        "[bridge.br0.port.sw2]\nvlan = { trunk = [1, 10], native = 1 }",
        "[bridge.br0.port.sw2]\nvlan = { trunk = [10] }",
        1,
    );
    net.change(&["bridge vlan del dev sw2 vid 1"], &without)?;
    net.discard();
    net.send("h1", &frame(net, &[])?)?;
    let gone = net.none_arrive("h2", |seen| seen.get(12..14) == Some(&KIND.to_be_bytes()));
    net.change(&["bridge vlan add dev sw2 vid 1 pvid untagged"], &TRUNK.tables(""))?;
    gone?;
    net.reaches("h1", "192.0.2.2", &[])
}

/// A port without a native VLAN drops untagged frames and passes tagged ones.
fn drop_untagged(net: &Net) -> anyhow::Result<()> {
    net.reaches("h1", "192.0.2.2", &[])?;
    net.change(&["bridge vlan add dev sw1 vid 1"], &TAGGED_ALONE.tables(""))?;
    net.discard();
    net.send("h1", &frame(net, &[])?)?;
    let dropped = net.none_arrive("h2", |seen| seen.ends_with(&[0x51; 50]));
    net.send("h1", &frame(net, &TEN)?)?;
    let passed = net.arrive("h2", 1, |seen| seen.get(12..16) == Some(&TEN));
    net.change(&["bridge vlan add dev sw1 vid 1 pvid untagged"], &TRUNK.tables(""))?;
    dropped?;
    passed?;
    net.reaches("h1", "192.0.2.2", &[])
}

/// An entry that a program adds is used.
fn extern_learn(net: &Net) -> anyhow::Result<()> {
    net.tell("bridge fdb add de:ad:be:ef:13:37 dev sw2 master extern_learn vlan 1")?;
    let result = goes_to(net, "h1", [0xde, 0xad, 0xbe, 0xef, 0x13, 0x37], &["h2"]);
    net.tell("bridge fdb del de:ad:be:ef:13:37 dev sw2 master vlan 1")?;
    result
}

fn snooping(net: &Net) -> anyhow::Result<()> {
    net.tell("ip link set br0 type bridge mcast_snooping 1 mcast_vlan_snooping 1")?;
    net.tell("ip link set br0 type bridge mcast_vlan_snooping 0 mcast_snooping 0")
}
