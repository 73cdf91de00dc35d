//! `bridge_vlan_unaware`, and the parts in common with `bridge_vlan_aware`: hosts on a bridge,
//! learning and flooding.

use super::net::{Forwarder, Host, Net};
use super::{Check, Mutant, Part};
use crate::differential::packet::link;
use polder_testbed::topology::Topology;

/// The type of frames that checks send (IEEE 802, local experimental).
pub(super) const KIND: u16 = 0x88b5;
/// A station that has said nothing.
const STRANGER: [u8; 6] = [2, 0x51, 0, 0, 0, 9];
const SPEAKER: [u8; 6] = [2, 0x51, 0, 0, 0, 7];
const GROUP: [u8; 6] = [1, 0, 0x5e, 0x51, 2, 3];
/// A tag of VLAN 10 as payload.
const TAGGED: [u8; 6] = [0x81, 0, 0, 10, 0x88, 0xb5];

/// The selftest `bridge_vlan_unaware`.
pub(super) const UNAWARE: Part = Part {
    name: "bridge_vlan_unaware",
    modules: &[],
    lay,
    checks: &[
        Check { name: "ping_ipv4", lacks: None, run: |net| net.reaches("h1", "192.0.2.2", &[]) },
        Check { name: "ping_ipv6", lacks: None, run: |net| net.reaches("h1", "2001:db8:1::2", &[]) },
        Check { name: "unknown_is_flooded", lacks: None, run: unknown_is_flooded },
        Check { name: "learnt_is_not_flooded", lacks: None, run: learnt_is_not_flooded },
        Check { name: "moved_is_followed", lacks: None, run: moved_is_followed },
        Check { name: "learning_off", lacks: None, run: |net| learning_off(net, &CONFIGURATION) },
        Check { name: "flooding_off_unknown", lacks: None, run: |net| flooding_off(net, &CONFIGURATION) },
        Check { name: "group_is_flooded", lacks: None, run: group_is_flooded },
        Check { name: "tags_are_payload", lacks: None, run: tags_are_payload },
        Check { name: "not_sent_back", lacks: None, run: not_sent_back },
    ],
    mutants: &[
        Mutant {
            name: "nothing_learnt",
            begin: &["bridge link set dev sw2 learning off"],
            fault: None,
            end: &["bridge link set dev sw2 learning on"],
            check: "learnt_is_not_flooded",
        },
        Mutant {
            name: "nothing_flooded",
            begin: &["bridge link set dev sw2 flood off"],
            fault: None,
            end: &["bridge link set dev sw2 flood on"],
            check: "unknown_is_flooded",
        },
        Mutant {
            name: "frames_sent_back",
            begin: &["bridge link set dev sw1 hairpin on"],
            fault: None,
            end: &["bridge link set dev sw1 hairpin off"],
            check: "not_sent_back",
        },
    ],
};

/// A bridge of Polder's with a line for each member, and one more for `sw2`.
pub(super) struct Configuration {
    pub(super) member: &'static str,
}

const CONFIGURATION: Configuration = Configuration { member: "" };

impl Configuration {
    pub(super) fn tables(&self, of_second: &str) -> String {
        let mut text = String::new();
        for port in ["sw1", "sw2", "sw3"] {
            text += &format!("[port.{port}]\ninterface = \"{port}\"\n");
        }
        text += "[bridge.br0]\nmembers = [\"sw1\", \"sw2\", \"sw3\"]\n";
        for port in ["sw1", "sw2", "sw3"] {
            let own = if port == "sw2" { of_second } else { "" };
            text += &format!("[bridge.br0.port.{port}]\n{}\n{own}\n", self.member);
        }
        text
    }
}

const fn host(name: &'static str, port: &'static str, addresses: &'static [&'static str]) -> Host {
    Host { name, port, router: &[], addresses, routes: &[] }
}

pub(super) const HOSTS: [Host; 3] = [
    host("h1", "sw1", &["192.0.2.1/24", "2001:db8:1::1/64"]),
    host("h2", "sw2", &["192.0.2.2/24", "2001:db8:1::2/64"]),
    host("h3", "sw3", &[]),
];

fn lay(topology: &mut Topology, who: Forwarder) -> anyhow::Result<Net> {
    Net::lay(topology, who, &HOSTS)?.with(topology, BRIDGE, &CONFIGURATION.tables(""))
}

const BRIDGE: &[&str] = &[
    "ip link add br0 type bridge mcast_snooping 0",
    "ip link set sw1 master br0",
    "ip link set sw2 master br0",
    "ip link set sw3 master br0",
    "ip link set br0 up",
];

pub(super) fn is_ours(frame: &[u8]) -> bool {
    frame.get(12..14) == Some(&KIND.to_be_bytes())
}

/// Sends a frame from `from`.
pub(super) fn say(net: &Net, from: &str, destination: [u8; 6], source: [u8; 6]) -> anyhow::Result<()> {
    net.send(from, &link(destination, source, KIND, &[0x51; 50]))
}

/// A frame to `destination` reaches exactly these hosts.
pub(super) fn goes_to(net: &Net, from: &str, destination: [u8; 6], wanted: &[&str]) -> anyhow::Result<()> {
    let mut last = Vec::new();
    net.until(&format!("a frame from {from} goes to {wanted:?}"), || {
        net.discard();
        say(net, from, destination, net.host_mac(from)?)?;
        std::thread::sleep(std::time::Duration::from_millis(60));
        last.clear();
        for at in ["h1", "h2", "h3"] {
            if net.arrived(at)?.iter().any(|frame| is_ours(frame)) {
                last.push(at);
            }
        }
        Ok(last == wanted)
    })
    .map_err(|error| error.context(format!("it goes to {last:?}")))
}

pub(super) fn unknown_is_flooded(net: &Net) -> anyhow::Result<()> {
    goes_to(net, "h1", STRANGER, &["h2", "h3"])
}

pub(super) fn learnt_is_not_flooded(net: &Net) -> anyhow::Result<()> {
    say(net, "h2", net.host_mac("h1")?, SPEAKER)?;
    goes_to(net, "h1", SPEAKER, &["h2"])
}

fn moved_is_followed(net: &Net) -> anyhow::Result<()> {
    say(net, "h3", net.host_mac("h1")?, SPEAKER)?;
    goes_to(net, "h1", SPEAKER, &["h3"])
}

/// Addresses behind a member that does not learn are flooded.
pub(super) fn learning_off(net: &Net, configuration: &Configuration) -> anyhow::Result<()> {
    const SILENT: [u8; 6] = [2, 0x51, 0, 0, 0, 8];
    net.change(&["bridge link set dev sw2 learning off"], &configuration.tables("learning = false"))?;
    say(net, "h2", net.host_mac("h1")?, SILENT)?;
    let off = goes_to(net, "h1", SILENT, &["h2", "h3"]);
    net.change(&["bridge link set dev sw2 learning on"], &configuration.tables(""))?;
    off?;
    net.until("it learns again", || {
        say(net, "h2", net.host_mac("h1")?, SILENT)?;
        net.discard();
        Ok(goes_once(net, SILENT)? == ["h2"])
    })
}

fn goes_once(net: &Net, destination: [u8; 6]) -> anyhow::Result<Vec<&'static str>> {
    say(net, "h1", destination, net.host_mac("h1")?)?;
    std::thread::sleep(std::time::Duration::from_millis(60));
    let mut seen = Vec::new();
    for at in ["h2", "h3"] {
        if net.arrived(at)?.iter().any(|frame| is_ours(frame)) {
            seen.push(at);
        }
    }
    Ok(seen)
}

/// Frames to unknown stations do not go to a member that is not flooded.
pub(super) fn flooding_off(net: &Net, configuration: &Configuration) -> anyhow::Result<()> {
    net.change(&["bridge link set dev sw2 flood off"], &configuration.tables("flood = false"))?;
    let off = goes_to(net, "h1", STRANGER, &["h3"]);
    let group = goes_to(net, "h1", [0xff; 6], &["h2", "h3"]);
    net.change(&["bridge link set dev sw2 flood on"], &configuration.tables(""))?;
    off?;
    group?;
    goes_to(net, "h1", STRANGER, &["h2", "h3"])
}

pub(super) fn group_is_flooded(net: &Net) -> anyhow::Result<()> {
    goes_to(net, "h1", GROUP, &["h2", "h3"])?;
    goes_to(net, "h1", [0xff; 6], &["h2", "h3"])
}

/// A bridge that keeps no VLANs apart leaves tags alone.
fn tags_are_payload(net: &Net) -> anyhow::Result<()> {
    let (source, destination) = (net.host_mac("h1")?, net.host_mac("h2")?);
    let frame = [destination.as_slice(), &source, &TAGGED, &[0x51; 46]].concat();
    net.discard();
    net.send("h1", &frame)?;
    net.arrive("h2", 1, |seen| seen == frame).map(drop)
}

/// A frame to a station on the port that it comes from goes nowhere.
fn not_sent_back(net: &Net) -> anyhow::Result<()> {
    const BESIDE: [u8; 6] = [2, 0x51, 0, 0, 0, 6];
    say(net, "h1", net.host_mac("h2")?, BESIDE)?;
    net.discard();
    goes_to(net, "h1", BESIDE, &[])
}
